//! The processes that measure: a router, the floor, and a naive loop.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellows_engine::{AppSpec, Engine, Network, Settings};
use bellows_packet::pool;
use bellows_router::ethernet_input::EthernetInput;
use bellows_router::forward::{Ip4Forward, Ip6Forward};
use bellows_router::interface_output::InterfaceOutput;
use bellows_router::ip4_input::{self, Checksum, Ip4Input};
use bellows_router::ip6_input::{self, Ip6Input};
use bellows_router::lookup::{Ip4LookUp, Ip6LookUp};
use bellows_router::rewrite::{Ip4Rewrite, Ip6Rewrite};
use bellows_router::vrf::RoutingDomain;
use bellows_sys::clock;
use serde::{Deserialize, Serialize};

use super::bare::BareRouter;
use super::circulation::{Circulator, Stamp, Times, VECTOR};
use super::traffic::{Evicting, Family, Traffic};
use crate::benchmarks::fib::routes::Prefixes;
use crate::networks::{configured, linked};
use crate::slices::{Sliced, Turn, sliced};
use crate::workers::{Contender, fail, settle};

/// The nodes of a router, in their order.
pub(super) const NODES: [&str; 5] = ["ethernet-input", "input", "lookup", "rewrite", "output"];

/// Packets in a slice, at least.
const SLICE: usize = 32_768;

/// Slices in a turn.
const SLICES: usize = 4;

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RouterTask {
    pub(super) traffic: Traffic,
    /// The routes of the Internet are those of a file, or generated ones.
    pub(super) routes: Option<PathBuf>,
    /// How far ahead the input node prefetches, if it is not what the app says.
    pub(super) prefetch: Option<usize>,
    /// Whether the input node verifies the checksums of IPv4 headers.
    pub(super) verifies: bool,
    /// Whether the input node is the first to see a packet, which is in no cache.
    pub(super) is_cold: bool,
    pub(super) cpu: Option<usize>,
}

/// Lays out the work of one process.
///
/// # Errors
/// None: a failure ends the process.
pub(super) fn lay_out(task: RouterTask) -> Result<Box<dyn Contender>, String> {
    settle(task.cpu);
    let packets = pool::Config { packets: 4 * task.traffic.in_flight + 65_536, ..pool::Config::default() };
    pool::init(packets).unwrap_or_else(|error| fail(&error));
    let times = Arc::new(Times::default());
    let prefixes = if task.traffic.is_internet { prefixes(task.routes.as_deref())? } else { Prefixes::default() };
    let engine = engine(&task, &times, &prefixes);
    let has_nodes_alone = task.is_cold || task.prefetch.is_some() || !task.verifies;
    let fused = (!has_nodes_alone).then(|| Fused::new(task.traffic, &prefixes));
    let bare = BareRouter::new(task.traffic, &prefixes);
    let mut routing = Routing { engine, times, fused, bare, in_flight: task.traffic.in_flight };
    // Each packet goes through the router once.
    route(&mut routing.engine, task.traffic.in_flight);
    routing.times.take();
    Ok(Box::new(routing))
}

/// The routes of the Internet: those of a file, or generated ones, in either case without those that are not forwarded.
///
/// # Errors
/// If the file cannot be read, or has no such route of one of the families.
pub(in crate::benchmarks) fn prefixes(routes: Option<&Path>) -> Result<Prefixes, String> {
    let Some(path) = routes else { return Ok(Prefixes::generated(1).forwarded()) };
    let prefixes = Prefixes::read(path)?.forwarded();
    match (prefixes.ipv4.is_empty(), prefixes.ipv6.is_empty()) {
        (false, false) => Ok(prefixes),
        (is_without, _) => Err(format!(
            "{} has no route of {} to addresses that a router forwards to: name a file that has some of both families",
            path.display(),
            if is_without { "IPv4" } else { "IPv6" }
        )),
    }
}

/// A network of a router whose packets go round.
fn engine(task: &RouterTask, times: &Arc<Times>, prefixes: &Prefixes) -> Engine {
    let RouterTask { traffic, prefetch, verifies, is_cold, .. } = *task;
    let checksum = if verifies { Checksum::Verify } else { Checksum::Trusted };
    let domain = Arc::new(RoutingDomain::new(traffic.vrf(prefixes)));
    let packets = traffic.packets(prefixes);
    let mut network = match is_cold {
        false => Network::new().app("circulator", Circulator::new(packets, traffic.family)),
        true => Network::new().app("circulator", Circulator::new(packets, Evicting(traffic.family))),
    };
    if !is_cold {
        network = network.app("ethernet-input", EthernetInput::new(Arc::clone(&domain)));
    }
    let input = match traffic.family {
        Family::Ip4 => AppSpec::new("input", "ip4-input", "", configured::<Ip4Input>(ip4_input::Config { checksum })),
        Family::Ip6 => AppSpec::new("input", "ip6-input", "", configured::<Ip6Input>(ip6_input::Config {})),
    };
    network.apps.push(match prefetch {
        Some(distance) => input.prefetching(distance),
        None => input,
    });
    network = match traffic.family {
        Family::Ip4 => {
            let network = network.app("lookup", Ip4LookUp::new(Arc::clone(&domain)));
            network.app("rewrite", Ip4Rewrite::new(Arc::clone(&domain)))
        }
        Family::Ip6 => {
            let network = network.app("lookup", Ip6LookUp::new(Arc::clone(&domain)));
            network.app("rewrite", Ip6Rewrite::new(Arc::clone(&domain)))
        }
    };
    let output = InterfaceOutput::new(&domain, "out").unwrap_or_else(|| fail(&"no port"));
    network = network.app("output", output);
    for place in 0..NODES.len() + 2 {
        network = network.app(&format!("stamp{place}"), Stamp { times: Arc::clone(times), place });
    }
    let family = if traffic.family == Family::Ip4 { "ip4" } else { "ip6" };
    let links_of_first = match is_cold {
        false => {
            vec!["stamp1.output -> ethernet-input.in".to_owned(), format!("ethernet-input.{family} -> stamp2.input")]
        }
        true => vec!["stamp1.output -> stamp2.input".to_owned()],
    };
    network = linked(network, links_of_first);
    network = linked(
        network,
        [
            "circulator.output -> stamp0.input".to_owned(),
            "stamp0.output -> stamp1.input".to_owned(),
            "stamp2.output -> input.input".to_owned(),
            "input.output -> stamp3.input".to_owned(),
            "stamp3.output -> lookup.input".to_owned(),
            "lookup.output -> stamp4.input".to_owned(),
            "stamp4.output -> rewrite.input".to_owned(),
            "rewrite.out -> stamp5.input".to_owned(),
            "stamp5.output -> output.rewrite".to_owned(),
            "output.output -> stamp6.input".to_owned(),
            "stamp6.output -> circulator.input".to_owned(),
        ],
    );
    let settings = Settings { burst: VECTOR, sampling: false, ..Settings::default() };
    Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error))
}

/// A router that forwards in one loop, whose packets go round: from the clock behind `ethernet-input` to that behind
/// `interface-output`.
struct Fused {
    engine: Engine,
    times: Arc<Times>,
}

impl Fused {
    fn new(traffic: Traffic, prefixes: &Prefixes) -> Fused {
        let times = Arc::new(Times::default());
        let domain = Arc::new(RoutingDomain::new(traffic.vrf(prefixes)));
        let mut network = Network::new()
            .app("circulator", Circulator::new(traffic.packets(prefixes), traffic.family))
            .app("ethernet-input", EthernetInput::new(Arc::clone(&domain)));
        network = match traffic.family {
            Family::Ip4 => network.app("forward", Ip4Forward::new(Arc::clone(&domain))),
            Family::Ip6 => network.app("forward", Ip6Forward::new(Arc::clone(&domain))),
        };
        let output = InterfaceOutput::new(&domain, "out").unwrap_or_else(|| fail(&"no port"));
        network = network.app("output", output);
        for place in 0..3 {
            network = network.app(&format!("stamp{place}"), Stamp { times: Arc::clone(&times), place });
        }
        let family = if traffic.family == Family::Ip4 { "ip4" } else { "ip6" };
        network = linked(
            network,
            [
                "circulator.output -> ethernet-input.in".to_owned(),
                format!("ethernet-input.{family} -> stamp0.input"),
                "stamp0.output -> stamp1.input".to_owned(),
                "stamp1.output -> forward.input".to_owned(),
                "forward.out -> output.forward".to_owned(),
                "output.output -> stamp2.input".to_owned(),
                "stamp2.output -> circulator.input".to_owned(),
            ],
        );
        let settings = Settings { burst: VECTOR, sampling: false, ..Settings::default() };
        Fused { engine: Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error)), times }
    }

    /// Clocks a packet.
    fn measure(&mut self, in_flight: usize) -> Sliced {
        route(&mut self.engine, in_flight);
        self.times.take();
        let mut routed = 0;
        let mut slices = sliced(SLICES, || routed += route(&mut self.engine, in_flight));
        let [_, stamp, forward, ..] = self.times.take();
        slices.clocks = (forward as f64 - stamp as f64) / routed as f64;
        slices
    }
}

/// Has as many packets go through a router as are in flight, or as a slice has.
fn route(engine: &mut Engine, in_flight: usize) -> usize {
    let vectors = in_flight.max(SLICE) / VECTOR;
    engine.breathe_times(vectors as u64);
    vectors * VECTOR
}

/// The worker's side.
struct Routing {
    engine: Engine,
    times: Arc<Times>,
    fused: Option<Fused>,
    bare: BareRouter,
    in_flight: usize,
}

impl Contender for Routing {
    fn turn(&mut self) -> Turn {
        // Untimed, to reload the data that other processes evicted from the caches.
        let Routing { engine, in_flight, .. } = self;
        route(engine, *in_flight);
        self.times.take();
        let mut sums = [0.0; NODES.len()];
        let mut routed = 0;
        let engine = sliced(SLICES, || routed += route(engine, *in_flight));
        let [_, stamp, nodes @ ..] = self.times.take();
        for (sum, clocks) in sums.iter_mut().zip(nodes) {
            *sum = (clocks as f64 - stamp as f64) / routed as f64;
        }
        let vectors = self.bare.in_flight().max(SLICE) / VECTOR;
        let packets = (vectors * VECTOR) as f64;
        (0..vectors).for_each(|_| self.bare.floor());
        let floor = sliced(SLICES, || (0..vectors).for_each(|_| self.bare.floor()));
        let naive = self.naive();
        let mut figures = sums.to_vec();
        figures.extend([sums[1..].iter().sum(), floor.clocks / packets, naive.clocks]);
        let mut slices = vec![engine, floor, naive];
        if let Some(fused) = &mut self.fused {
            let forward = fused.measure(self.in_flight);
            figures.push(forward.clocks);
            slices.push(forward);
        }
        Turn::of(figures, &slices)
    }
}

/// The figures of a turn behind those of the nodes: all nodes but the first, the floor, the naive loop, and what forwards
/// in one loop with the output.
pub(super) const SUM: usize = NODES.len();
pub(super) const FLOOR: usize = SUM + 1;
pub(super) const NAIVE: usize = SUM + 2;
pub(super) const FORWARD: usize = SUM + 3;

/// Passes over all packets that the naive loop makes before hops run out.
const MAX_PASSES: usize = 32;

impl Routing {
    /// Times the naive loop, clocks a packet.
    fn naive(&mut self) -> Sliced {
        let vectors = self.bare.in_flight() / VECTOR;
        let passes = (SLICE / self.bare.in_flight()).clamp(1, MAX_PASSES);
        let cost = clock::cost();
        let mut slices = Vec::new();
        for slice in 0..=2 * SLICES {
            let start = clock::ticks();
            (0..passes * vectors).for_each(|_| self.bare.naive());
            let clocks = (clock::ticks() - start).saturating_sub(cost);
            (0..passes).for_each(|_| self.bare.restore());
            // The first one warms the caches.
            if slice > 0 {
                slices.push(((passes * vectors * VECTOR) as u64, clocks as f64));
            }
        }
        Sliced::of(&slices)
    }
}

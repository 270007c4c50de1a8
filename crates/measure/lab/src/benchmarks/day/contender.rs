//! The processes that measure: a network, or one part of it between the ends of the feed.

use std::path::PathBuf;
use std::sync::Arc;

use bellows_basic::pcap_filter::{self, PcapFilter};
use bellows_basic::sink::Sink;
use bellows_basic::state_table::{self, StateTable};
use bellows_config::{Context, SharedObject};
use bellows_engine::{App, Engine, Io, Network, Port, Ports, Settings};
use bellows_fib::Prefix;
use bellows_packet::{Packet, pool};
use bellows_router::ethernet_input::EthernetInput;
use bellows_router::forward::{Ip4Forward, Ip6Forward};
use bellows_router::interface_output::InterfaceOutput;
use bellows_router::vrf::RoutingDomain;
use bellows_sys::switches::ONLY_PACKETS_ON_HUGE_PAGES;
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::route::{Action, IpPrefix, NextHop};
use bellows_vrf::{IfExists, Interface, RouteSpec, Vrf};
use bellows_wire::MacAddr;
use serde::{Deserialize, Serialize};

use super::flows::{DayFeed, Flows, MAC, STATIONS, Shape};
use crate::benchmarks::fib::routes::Prefixes;
use crate::benchmarks::router::circulation::VECTOR;
use crate::benchmarks::router::contender::prefixes;
use crate::named::named;
use crate::networks::{linked, loaded};
use crate::slices::{Turn, sliced};
use crate::workers::{Contender, fail, settle};

named! {
    /// A part of the network.
    pub(super) enum DayPart {
        /// The app that sends packets and takes them back.
        Feed = "feed",
        /// A learning bridge between the stations and the others.
        Bridge = "bridge",
        /// A filter with states.
        Filter = "filter",
        /// A router with the Internet's table.
        Router = "router",
    }
}

/// Flows, and connections, of the whole network.
pub(super) const FLOWS: u32 = 1 << 20;

/// Packets in flight: more than the second-level cache holds.
const IN_FLIGHT: usize = 32_768;

/// Next hops of the routes.
const NEXT_HOPS: u32 = 4_096;

/// Breaths in a slice, about as many as fit in half a millisecond, so that what the host steals is seen; and slices of a
/// turn.
const BREATHS: u64 = 16;
const SLICES: usize = 1_024;

/// The figures of a turn: clocks of a packet by the clock, and of each part by the accounts of sampled breaths.
pub(super) const WHOLE: usize = 0;
pub(super) const SHOWN: usize = 1;

/// The work of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct DayTask {
    /// The parts behind the feed.
    pub(super) parts: Vec<DayPart>,
    pub(super) flows: u32,
    /// Packets are of the first flows, so many.
    pub(super) drawn: u32,
    /// Whether tables are on plain pages.
    pub(super) is_plain: bool,
    pub(super) shapes: Vec<Shape>,
    pub(super) routes: Option<PathBuf>,
    pub(super) cpu: Option<usize>,
}

/// Lays out the work of one process.
///
/// # Errors
/// If the routes cannot be read.
pub(super) fn lay_out(task: DayTask) -> Result<Box<dyn Contender>, String> {
    settle(task.cpu);
    if task.is_plain {
        ONLY_PACKETS_ON_HUGE_PAGES.set();
    }
    let buffers = pool::Config { packets: IN_FLIGHT + 32_768, ..pool::Config::default() };
    pool::init(buffers).unwrap_or_else(|error| fail(&error));
    Ok(Box::new(Day::new(&task)?))
}

/// The worker's side.
struct Day {
    engine: Engine,
    parts: Vec<DayPart>,
}

impl Day {
    fn new(task: &DayTask) -> Result<Day, String> {
        // A smaller network has as many fewer routes and stations.
        let divisor = (FLOWS / task.flows).max(1);
        let prefixes = match &task.routes {
            None if divisor > 1 => Prefixes::generated(divisor as usize).forwarded(),
            routes => prefixes(routes.as_deref())?,
        };
        let flows = Flows::new(task.flows, (STATIONS / divisor).max(1), &task.shapes, &prefixes);
        let (mut network, mut links, mut end) = (Network::new(), Vec::new(), "feed.output");
        for part in &task.parts {
            match part {
                DayPart::Feed => {}
                DayPart::Bridge => {
                    let apps = loaded(BRIDGE).apps;
                    network.apps.extend(apps.into_iter().filter(|app| app.name == "bridge"));
                    links.push(format!("{end} -> bridge.stations"));
                    end = "bridge.core";
                }
                DayPart::Filter => {
                    network = network.app("filter", filter(&states(&flows)));
                    links.push(format!("{end} -> filter.input"));
                    end = "filter.match";
                }
                DayPart::Router => {
                    let domain = Arc::new(RoutingDomain::new(vrf(&prefixes)));
                    let output = InterfaceOutput::new(&domain, "out").unwrap_or_else(|| fail(&"no port"));
                    network = network
                        .app("router/ethernet", EthernetInput::new(Arc::clone(&domain)))
                        .app("router/ip4", Ip4Forward::new(Arc::clone(&domain)))
                        .app("router/ip6", Ip6Forward::new(domain))
                        .app("router/output", output);
                    links.push(format!("{end} -> router/ethernet.in"));
                    for family in ["ip4", "ip6"] {
                        links.push(format!("router/ethernet.{family} -> router/{family}.input"));
                        links.push(format!("router/{family}.out -> router/output.{family}"));
                    }
                    end = "router/output.output";
                }
            }
        }
        if links.is_empty() {
            network = network.app("wire", Wire);
            links.push(format!("{end} -> wire.input"));
            end = "wire.output";
        }
        links.push(format!("{end} -> feed.input"));
        let network = linked(network.app("feed", DayFeed::new(flows, task.drawn, IN_FLIGHT)), links);
        let settings = Settings { burst: VECTOR, ..Settings::default() };
        let engine = Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error));
        let mut day = Day { engine, parts: task.parts.clone() };
        // The bridge learns all stations, and each part sees most flows.
        day.engine.breathe_times(2 * u64::from(task.flows) / VECTOR as u64);
        Ok(day)
    }

    /// What is known of the pulls and pushes of each app by now.
    fn calls(&self) -> Vec<Calls> {
        let mut all = Vec::new();
        for app in self.engine.snapshot().apps {
            let part = app.name.split('/').next().unwrap_or_default();
            let Some(part) = DayPart::ALL.iter().position(|other| other.name() == part) else { continue };
            for (entry, packets) in [("pull", app.out_packets), ("push", app.in_packets)] {
                let account = |what: &str| app.account.get(&format!("{entry}_{what}")).copied().unwrap_or_default();
                all.push(Calls { part, clocks: account("clocks"), sampled: account("packets"), packets });
            }
        }
        all
    }

    /// The figures of so many slices.
    fn measure(&mut self, slices: usize) -> Turn {
        self.engine.breathe_times(8 * BREATHS);
        let before = self.calls();
        let time = sliced(slices, || {
            self.engine.breathe_times(BREATHS);
        });
        let packets = (slices * VECTOR) as u64 * BREATHS;
        let mut figures = vec![0.0; SHOWN + DayPart::ALL.len()];
        figures[WHOLE] = time.usual_mean() * slices as f64 / packets as f64;
        for (before, after) in before.into_iter().zip(self.calls()) {
            // By `show run` a packet costs as much as those of sampled calls.
            let each = (after.clocks - before.clocks) as f64 / (after.sampled - before.sampled) as f64;
            let passed = (after.packets - before.packets) as f64 / packets as f64;
            if after.clocks > 0 {
                figures[SHOWN + after.part] += each * passed;
            }
        }
        Turn::of(figures, &[time])
    }
}

/// Pulls or pushes of an app.
struct Calls {
    /// Which part the app belongs to.
    part: usize,
    /// The clocks and packets of sampled calls.
    clocks: u64,
    sampled: u64,
    /// The packets of all calls.
    packets: u64,
}

/// Between the ends of the feed if there is no part.
struct Wire;

impl App for Wire {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets")]);

    fn push(&mut self, io: &Io<Self>) {
        io.forward(0, 0);
    }
}

/// The bridge with a table that has room for all stations. Its other apps are left out.
const BRIDGE: &str = r#"
links = ["feed.output -> bridge.stations", "bridge.core -> end.input"]

[objects.macs]
object = "mac-table"
capacity = 131072
static = { "02:00:00:00:00:01" = "core" }

[apps]
feed.app = "source"
bridge = { app = "bridge", table = "macs" }
end.app = "sink"
"#;

/// A filter with a table of states.
fn filter(table: &Arc<StateTable>) -> PcapFilter {
    let config = pcap_filter::Config { filter: Some("tcp or udp".to_owned()), ..pcap_filter::Config::default() };
    let table = Some(Arc::clone(table));
    PcapFilter::with_table(config, table, &Context::default()).unwrap_or_else(|error| fail(&error))
}

/// Sends frames as long as there are some.
struct OpeningFrames<I>(I);

impl<I: Iterator<Item: AsRef<[u8]>> + Send + 'static> App for OpeningFrames<I> {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "frames")]);

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        let packet = |frame: I::Item| Packet::from_bytes(frame.as_ref()).unwrap_or_else(|| fail(&"no buffer"));
        let mut count = 0;
        for packet in self.0.by_ref().take(VECTOR).map(packet) {
            output.push(packet);
            count += 1;
        }
        io.brought_in(count);
    }
}

/// A table in which all flows are established connections.
fn states(flows: &Flows) -> Arc<StateTable> {
    let config = state_table::Config { capacity: flows.count().max(64), ..state_table::Config::default() };
    let table = StateTable::configure(config, &Context::default()).unwrap_or_else(|error| fail(&error));
    let table = Arc::new(table);
    let frames: Vec<_> = flows.handshakes().collect();
    let breaths = (frames.len() / VECTOR + 2) as u64;
    let network =
        Network::new().app("frames", OpeningFrames(frames.into_iter())).app("filter", filter(&table)).app("sink", Sink);
    let network = linked(network, ["frames.output -> filter.input", "filter.match -> sink.input"]);
    let settings = Settings { burst: VECTOR, sampling: false, ..Settings::default() };
    let mut engine = Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error));
    engine.breathe_times(breaths);
    table
}

/// A routing domain with routes to these prefixes, by many neighbours.
fn vrf(prefixes: &Prefixes) -> Vrf {
    let interface = |name: &str, addresses: [(&str, u8); 2]| Interface {
        name: name.to_owned(),
        port: name.to_owned(),
        mac: MacAddr(MAC),
        mtu: 1_500,
        tags: Vec::new(),
        addresses: addresses
            .map(|(address, length)| InterfaceAddress {
                address: address.parse().unwrap_or_else(|error| fail(&error)),
                length,
            })
            .to_vec(),
    };
    let interfaces = vec![
        interface("in", [("10.0.0.1", 24), ("fd00::1", 64)]),
        interface("out", [("10.1.0.1", 16), ("fd00:0:0:1::1", 64)]),
    ];
    let vrf = Vrf::new(interfaces, 16_384, 1).unwrap_or_else(|error| fail(&error));
    let mut changes = vrf.lock();
    let gateways = |number: u32| {
        let v4 = std::net::Ipv4Addr::from(0x0a01_0100 + number);
        let v6 = std::net::Ipv6Addr::from(0xfd00_0000_0000_0001_u128 << 64 | u128::from(number + 256));
        [std::net::IpAddr::from(v4), v6.into()]
    };
    for number in 0..NEXT_HOPS {
        let [.., high, low] = number.to_be_bytes();
        for gateway in gateways(number) {
            changes.resolve(2, gateway, MacAddr([4, 0, 0, 0, high, low])).unwrap_or_else(|error| fail(&error));
        }
    }
    let v4 = prefixes.ipv4.iter().map(|&prefix: &Prefix<u32>| IpPrefix::V4(prefix));
    for (number, prefix) in (0_u32..).zip(v4.chain(prefixes.ipv6.iter().map(|&prefix| IpPrefix::V6(prefix)))) {
        let gateway =
            gateways(number.wrapping_mul(2_654_435_761) >> 20)[usize::from(matches!(prefix, IpPrefix::V6(_)))];
        let hop =
            NextHop { gateway: Some(gateway), interface: Some("out".to_owned()), weight: 1, onlink: false, mtu: None };
        let route = RouteSpec { prefix, action: Action::Forward(vec![hop]), metric: 0 };
        changes.add(&route, IfExists::Refuse).unwrap_or_else(|error| fail(&error));
    }
    changes.commit().unwrap_or_else(|error| fail(&error));
    drop(changes);
    vrf
}

impl Contender for Day {
    fn turn(&mut self) -> Turn {
        self.measure(SLICES)
    }

    /// Checks that nothing was lost, and that packets passed as they should.
    fn finish(self: Box<Self>) -> Result<(), String> {
        let snapshot = self.engine.snapshot();
        let count = |app: &str, counter: &str| {
            let found = snapshot.apps.iter().find(|other| other.name == app);
            found.and_then(|app| app.counters.get(counter).copied()).unwrap_or_default()
        };
        let (matched, by_state) = (count("filter", "matched"), count("filter", "passed_by_state"));
        match () {
            () if snapshot.dropped() > 0 => Err(format!("{} packets were dropped", snapshot.dropped())),
            // A few connections of many may have found no place.
            () if self.parts.contains(&DayPart::Filter) && by_state < matched / 20 * 19 => {
                Err(format!("of {matched} packets {by_state} passed by state"))
            }
            () if count("bridge", "flooded") > 0 => Err("the bridge has flooded".to_owned()),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All parts get all packets, and lose none.
    #[test]
    fn a_day_goes_through_each_part_and_loses_nothing() {
        for parts in [&DayPart::ALL[1..], &[], &[DayPart::Router]] {
            let task = DayTask {
                parts: parts.to_vec(),
                flows: 4_096,
                drawn: 4_096,
                is_plain: false,
                shapes: Shape::usual(),
                routes: None,
                cpu: None,
            };
            let mut day = Day::new(&task).unwrap();
            let turn = day.measure(64);
            let is_measured = |part: &DayPart| {
                turn.figures[SHOWN + *part as usize].is_nan() || turn.figures[SHOWN + *part as usize] > 0.0
            };
            assert!(turn.figures[WHOLE] > 0.0 && parts.iter().all(is_measured), "{turn:?}");
            assert_eq!(Box::new(day).finish(), Ok(()));
        }
    }
}

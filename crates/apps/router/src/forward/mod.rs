//! The forwarding of both families in one loop: `ip4-forward` and `ip6-forward`.
//!
//! The loop (`fused`) decides about packets as `ip4-input`, `ip4-reverse-path`, `ip4-lookup` and `ip4-rewrite` would, if all
//! would find them usual, or of the kinds that floods are made of. It decides about nothing else: every other packet goes on to these
//! apps as it came, so that each rule, each reason for a drop and each counter has its place there. Property tests compare
//! what both make of the same packets.

mod fused;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bellows_common::headers::cut_trailer;
use bellows_common::nexts::{Next, NextVectors};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, Fusion, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_packet::Packet;
use bellows_vrf::adjacency::{AdjacencyKind, MAX_HEADER, special};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forwarding::{ETHERNET, Headers, UNUSUAL, USUAL, V4, V6, set_header};
use crate::reverse_path::SourceChecker;
use crate::rewrite::redirect::Redirects;
use crate::rewrite::{RewriteTargets, find_output, outputs_of_interfaces, segment_length};
use crate::router_bench::{Behind, OUT, row};
use crate::vrf::RoutingDomain;

use fused::{Forwarded, FusedRoom, Given, StageClocks};

/// Forwards packets: checks their headers, finds their adjacencies, and writes the Ethernet headers of their next hops, in
/// one loop.
///
/// If an interface asks for a check of sources (`reverse_path`), that is in the loop, too: a source that does not pass makes
/// a packet unusual.
///
/// Outputs have the names of ports. Packets of which floods are made go where the apps of the stages would send them:
/// to `to-router` those for the router itself, to `error` those without a route, whose time runs out or that are too long,
/// with copies of those whose sender has a better first hop on its link, to `resolve` those to neighbours that are not
/// known. All others that are not usual in every respect go to `unusual` as they came, and from there to `ip4-input` or
/// `ip6-input`, and so do those of an output that is not linked. While a trace or a tap runs, all packets go to `unusual`,
/// so that each stage is seen.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,
}

/// Forwards packets in one loop.
pub struct Forward<F: Forwarded> {
    domain: Arc<RoutingDomain>,
    /// The output of each interface, by its number.
    outputs: Vec<u16>,
    unusual: Option<u16>,
    error: Option<u16>,
    resolve: Option<u16>,
    to_router: Option<u16>,
    redirects: Redirects,
    next_vectors: NextVectors,
    room: FusedRoom<F>,
    /// The check of sources, if any interface asks for it.
    checker: Option<SourceChecker<F>>,
}

/// Forwards IPv4 packets in one loop.
pub type Ip4Forward = Forward<V4>;

/// Forwards IPv6 packets in one loop.
pub type Ip6Forward = Forward<V6>;

counters! { for[F: Forwarded] Forward<F>;
    drop UNUSUAL = "unusual", "packets that other apps decide about, if `unusual` is not linked";
    count RECORDED = "recorded", "packets in the calls whose clocks are recorded by stage";
    count INPUT_CLOCKS = "input_clocks", "clocks that these took for the check of headers";
    count LOOKUP_CLOCKS = "lookup_clocks", "clocks that these took for the look-up";
    count REWRITE_CLOCKS = "rewrite_clocks", "clocks that these took for the rewriting";
    count UNMADE = "unmade", "packets with redirects that were not made because the pool had no buffer";
}

impl<F: Forwarded> App for Forward<F> {
    const INPUTS: Ports =
        Ports::Named(&[Port::required("input", "packets behind an Ethernet header, tagged with their interface")]);
    const OUTPUTS: Ports =
        Ports::Any { at_least: 1, help: "frames of a port; `unusual`, `error`, `resolve`, `to-router`" };
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        if self.outputs.is_empty() {
            self.rewire(io);
        }
        match self.unusual {
            Some(unusual) if io.is_watched() => io.forward(0, unusual.into()),
            _ => self.forward(io),
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.rewire(io);
    }
}

impl<F: Forwarded> Forward<F> {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>) -> Forward<F> {
        let checker = SourceChecker::new(&domain);
        Forward {
            checker: checker.is_needed().then_some(checker),
            domain,
            outputs: Vec::new(),
            unusual: None,
            error: None,
            resolve: None,
            to_router: None,
            redirects: Redirects::default(),
            next_vectors: NextVectors::new(),
            room: FusedRoom::new(),
        }
    }

    /// Finds the outputs of the interfaces.
    #[cold]
    fn rewire(&mut self, io: &Io<Self>) {
        self.outputs = outputs_of_interfaces(io, &self.domain);
        [self.unusual, self.error, self.resolve, self.to_router] =
            ["unusual", "error", "resolve", "to-router"].map(|name| find_output(io, name));
        self.next_vectors.resize(io.outputs());
    }

    /// Forwards the packets of the input. Hot.
    #[inline]
    fn forward(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        if input.is_empty() {
            return;
        }
        let Forward { unusual, error, resolve, to_router, .. } = *self;
        let Forward { domain, outputs, redirects, next_vectors, room, checker, .. } = self;
        let vrf = domain.tables();
        let mut contents = input.contents_mut();
        let count = contents.packets().len();
        let numbers = next_vectors.nexts(count);
        let [to_error, to_resolve, to_router] = [error, resolve, to_router].map(|output| output.unwrap_or(UNUSUAL));
        let targets = RewriteTargets { adjacencies: vrf.adjacencies(), outputs, error: to_error, resolve: to_resolve };
        let redirect = |packets: &[Packet], adjacencies: &[u32], numbers: &[u16]| {
            if let Some(error) = error {
                let adjacency = |at: usize| if numbers[at] == USUAL { adjacencies[at] } else { special::NO_ROUTE };
                io.count(Self::UNMADE, redirects.look(io, domain, packets, adjacency, error));
            }
        };
        let mut clocks = StageClocks::begin(io.is_recorded());
        let given = Given { vrf, targets, to_router, ahead: io.prefetch() };
        let left_over =
            fused::forward((room, checker.as_mut()), &mut contents, given, io, numbers, &mut clocks, redirect);
        if io.is_recorded() {
            let [input, lookup, rewrite] = clocks.stages;
            let counts = [
                (Self::RECORDED, count as u64),
                (Self::INPUT_CLOCKS, input),
                (Self::LOOKUP_CLOCKS, lookup),
                (Self::REWRITE_CLOCKS, rewrite),
            ];
            counts.into_iter().for_each(|(counter, count)| io.count(counter, count));
        }
        if left_over.are_unusual | left_over.are_longer {
            for (place, (packet, number)) in input.packets_mut().iter_mut().zip(&mut *numbers).enumerate() {
                if *number == UNUSUAL {
                    let forwarded = room.found(place).and_then(|index| forward_one::<F>(packet, index, targets));
                    *number = forwarded.or(unusual).unwrap_or(UNUSUAL);
                } else if left_over.are_longer {
                    cut_trailer(packet);
                }
            }
        }
        next_vectors.send_all(io, 0, input, |_| Next::Drop(Self::UNUSUAL));
    }
}

/// Forwards a packet whose header is right, but which is not usual: it will be segmented, or leaves with VLAN tags. Returns
/// its output. There is none if other apps decide about the packet: then it has only lost what is behind it in its frame.
fn forward_one<F: Forwarded>(packet: &mut Packet, index: u32, targets: RewriteTargets<'_>) -> Option<u16> {
    cut_trailer(packet);
    let adjacency = targets.adjacencies.get(index).filter(|it| it.kind == AdjacencyKind::Complete)?;
    let output = targets.output(adjacency.interface);
    let header = &adjacency.header[..usize::from(adjacency.length).min(MAX_HEADER)];
    let segment = segment_length(packet);
    let has_room = packet.headroom() >= header.len().saturating_sub(ETHERNET);
    let headers = F::Headers::of_mut(packet.bytes_mut())?;
    let length = segment.unwrap_or_else(|| F::length(headers));
    if output == UNUSUAL || !has_room || length > usize::from(adjacency.mtu) {
        return None;
    }
    F::set_ttl_words(headers, F::decremented(F::ttl_words(headers)));
    set_header(packet, header).then_some(output)
}

impl<F: Forwarded> Configure for Forward<F> {
    const NAME: &'static str = F::FORWARD;
    const FUSION: Option<Fusion> = Some(F::FUSION);
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Rows(vec![BenchRow { outputs: &[OUT], ..row(&F::FORWARD[..3], Behind::EthernetInput) }])
    }

    fn configure(config: Config, context: &Context) -> Result<Forward<F>, SettingError> {
        Ok(Forward::new(context.object("vrf", &config.vrf)?))
    }
}

//! The check of sources of both families: `ip4-reverse-path` and `ip6-reverse-path`. `Forward` has the same check in its loop.

use std::net::Ipv6Addr;
use std::sync::Arc;

use bellows_common::headers::ETHERNET;
use bellows_common::nexts::{Next, NextVectors};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_fib::NO_ROUTE;
use bellows_packet::{CAPACITY, Packet};
use bellows_shared::Breath;
use bellows_vrf::adjacency::special;
use bellows_vrf::{Tag, Vrf};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forwarding::{Family, Headers, UNUSUAL, USUAL, V4, V6};
use crate::policy::ReversePath;
use crate::router_bench::{Behind, row};
use crate::vrf::RoutingDomain;

/// Drops packets whose source is not where it says (ingress filtering, RFC 2827 and 3704).
///
/// The key `reverse_path` of each interface in the routing domain tells how strictly. `loose` wants a route to the
/// source that does not drop, `strict` one that leads through the interface that received the packet, if only by one of
/// several next hops. A source that is an address of the router itself never passes. Exempt are link-local sources of
/// IPv6, its unspecified source (duplicate address detection), and that of a host that asks for an address by DHCP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,
}

/// The sources of a family's packets.
pub trait Sources: Family {
    /// The app's name.
    const NAME: &'static str;

    /// The source.
    fn source(headers: &Self::Headers) -> Self::Address;

    /// Whether the source needs no route.
    fn is_exempt(headers: &Self::Headers) -> bool;
}

impl Sources for V4 {
    const NAME: &'static str = "ip4-reverse-path";

    #[inline(always)]
    fn source(headers: &Self::Headers) -> u32 {
        let at = ETHERNET + 12;
        u32::from_be_bytes([headers[at], headers[at + 1], headers[at + 2], headers[at + 3]])
    }

    fn is_exempt(headers: &Self::Headers) -> bool {
        // RFC 2131, section 4.1.
        Self::source(headers) == 0 && Self::destination(headers) == u32::MAX
    }
}

impl Sources for V6 {
    const NAME: &'static str = "ip6-reverse-path";

    #[inline(always)]
    fn source(headers: &Self::Headers) -> u128 {
        u128::from_be_bytes(std::array::from_fn(|index| headers[ETHERNET + 8 + index]))
    }

    fn is_exempt(headers: &Self::Headers) -> bool {
        let source = Ipv6Addr::from(Self::source(headers));
        // RFC 4862, section 5.4.2: to a multicast address.
        let asks = source.is_unspecified() && headers[ETHERNET + 24] == 0xff;
        source.is_unicast_link_local() || asks
    }
}

/// Checks sources.
pub struct ReversePathCheck<F: Sources> {
    domain: Arc<RoutingDomain>,
    next_vectors: NextVectors,
    checker: SourceChecker<F>,
}

/// Checks the sources of IPv4 packets.
pub type Ip4ReversePath = ReversePathCheck<V4>;

/// Checks the sources of IPv6 packets.
pub type Ip6ReversePath = ReversePathCheck<V6>;

counters! { for[F: Sources] ReversePathCheck<F>;
    asked drop LOOSE = "rpf_loose", "packets whose source has no route; likely, if all are: a route back to them is missing";
    asked drop STRICT = "rpf_strict", "packets whose source has no route through the interface that received them; likely, if all are: the way back is another one (asymmetric routing); use `loose`";
    drop TOO_SHORT = "too_short", "packets without a whole header";
}

impl<F: Sources> App for ReversePathCheck<F> {
    const INPUTS: Ports = Ports::Named(&[
        Port::required("input", "packets with checked headers, tagged with their interface"),
        Port::optional("options", "as `input`: packets from `ip4-options`"),
    ]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "those whose source may be theirs")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        self.next_vectors.resize(io.outputs());
        for index in io.waiting_inputs() {
            self.check(io, index);
        }
    }
}

impl<F: Sources> ReversePathCheck<F> {
    /// Checks the packets of an input. Hot.
    #[inline]
    fn check(&mut self, io: &Io<Self>, index: usize) {
        let ReversePathCheck { domain, next_vectors, checker } = self;
        let input = io.input(index);
        if input.is_empty() {
            return;
        }
        let packets = input.packets();
        let numbers = next_vectors.nexts(packets.len());
        checker.check(domain.tables(), io, packets, io.prefetch(), |place, passes| {
            numbers[place] = if passes { USUAL } else { UNUSUAL };
        });
        next_vectors.send_all(io, index, input, |packet| match F::Headers::of(packet.bytes()) {
            None => Next::Drop(Self::TOO_SHORT),
            Some(headers) if F::is_exempt(headers) => Next::To(USUAL.into()),
            Some(_) if checker.mode(packet) == ReversePath::Strict => Next::Drop(Self::STRICT),
            Some(_) => Next::Drop(Self::LOOSE),
        });
    }
}

/// What the sources of a vector are checked with.
pub(crate) struct SourceChecker<F: Sources> {
    /// How strictly, by the numbers of interfaces.
    modes: Vec<ReversePath>,
    sources: Vec<F::Address>,
    adjacencies: Vec<u32>,
}

impl<F: Sources> SourceChecker<F> {
    /// For the interfaces of a routing domain.
    pub(crate) fn new(domain: &RoutingDomain) -> SourceChecker<F> {
        let interfaces = domain.tables().interfaces().len() as u16;
        let mode = |number: u16| domain.policies().of(number).map(|policy| policy.reverse_path).unwrap_or_default();
        SourceChecker {
            modes: (0..=interfaces).map(mode).collect(),
            sources: vec![F::Address::default(); CAPACITY],
            adjacencies: vec![0; CAPACITY],
        }
    }

    /// Whether any interface asks for a check.
    pub(crate) fn is_needed(&self) -> bool {
        self.modes.iter().any(|mode| *mode != ReversePath::Off)
    }

    /// How strictly the source of a packet is checked.
    #[inline(always)]
    fn mode(&self, packet: &Packet) -> ReversePath {
        self.modes.get(usize::from(Tag(packet.tag()).interface())).copied().unwrap_or_default()
    }

    /// Tells of each packet of a vector, by its place, whether its source passes. Those that need no route do not. Hot.
    #[inline]
    pub(crate) fn check(
        &mut self,
        vrf: &Vrf,
        breath: &impl Breath,
        packets: &[Packet],
        ahead: usize,
        mut passes: impl FnMut(usize, bool),
    ) {
        let count = packets.len();
        read::<F>(packets, ahead, &mut self.sources[..count]);
        F::look_up(vrf, breath, &self.sources[..count], &mut self.adjacencies[..count]);
        for (place, (packet, &next)) in packets.iter().zip(&self.adjacencies).enumerate() {
            let is_passed = match self.mode(packet) {
                ReversePath::Off => true,
                ReversePath::Loose => is_route(next),
                ReversePath::Strict => leads_through(vrf, breath, next, Tag(packet.tag()).interface()),
            };
            passes(place, is_passed);
        }
    }
}

/// Reads the sources of packets; those of packets without a whole header are 0, to which there is no route. Hot.
#[inline(never)]
fn read<F: Sources>(packets: &[Packet], ahead: usize, sources: &mut [F::Address]) {
    packets.iter().take(ahead).for_each(Packet::prefetch);
    for (index, (packet, source)) in packets.iter().zip(sources).enumerate() {
        if let Some(packet) = packets.get(index + ahead) {
            packet.prefetch();
        }
        *source = F::Headers::of(packet.bytes()).map(F::source).unwrap_or_default();
    }
}

/// Whether a look-up has found a way.
#[inline(always)]
fn is_route(next: u32) -> bool {
    (special::FIRST..NO_ROUTE).contains(&next)
}

/// Whether a look-up has found a way through an interface. Hot.
#[inline(always)]
fn leads_through(vrf: &Vrf, breath: &impl Breath, next: u32, interface: u16) -> bool {
    is_route(next)
        && (vrf.adjacencies().state(next).interface() == interface || vrf.is_group_through(breath, next, interface))
}

impl<F: Sources> ReversePathCheck<F> {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>) -> ReversePathCheck<F> {
        ReversePathCheck { checker: SourceChecker::new(&domain), domain, next_vectors: NextVectors::new() }
    }
}

impl<F: Sources> Configure for ReversePathCheck<F> {
    const NAME: &'static str = <F as Sources>::NAME;
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Rows(vec![row(&<F as Sources>::NAME[..3], Behind::IpInput)])
    }

    fn configure(config: Config, context: &Context) -> Result<ReversePathCheck<F>, SettingError> {
        Ok(ReversePathCheck::new(context.object("vrf", &config.vrf)?))
    }
}

#[cfg(test)]
mod tests {
    use bellows_rig::Rig;
    use bellows_vrf::interface::InterfaceAddress;
    use bellows_vrf::{IfExists, Interface, RouteSpec};
    use bellows_wire::MacAddr;
    use proptest::prelude::*;

    use super::*;

    use crate::policy::Policy;

    /// The modes of the interfaces 1 to 3.
    const MODES: [ReversePath; 3] = [ReversePath::Off, ReversePath::Loose, ReversePath::Strict];

    const ROUTES: [&str; 6] = [
        "20.1.0.0/16 via 10.0.1.9",
        "20.3.0.0/16 via 10.0.3.9",
        "20.4.0.0/16 nexthop via 10.0.1.9 nexthop via 10.0.3.9 weight 5",
        "20.5.0.0/16 nexthop via 10.0.1.9 nexthop via 10.0.2.9",
        "blackhole 20.6.0.0/16",
        "2001:db8:30::/48 via 2001:db8:3::9",
    ];

    fn domain() -> Arc<RoutingDomain> {
        let interface = |number: u8| Interface {
            name: format!("i{number}"),
            port: format!("i{number}"),
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: [(format!("10.0.{number}.1"), 24), (format!("2001:db8:{number}::1"), 64)]
                .map(|(address, length)| InterfaceAddress { address: address.parse().unwrap(), length })
                .to_vec(),
        };
        let vrf = Vrf::new((1..=3).map(interface).collect(), 16, 1).unwrap();
        let mut changes = vrf.lock();
        for route in ROUTES {
            changes.add(&RouteSpec::parse(route).unwrap(), IfExists::Refuse).unwrap();
        }
        changes.commit().unwrap();
        drop(changes);
        let policies = MODES.map(|reverse_path| Policy { reverse_path, ..Policy::default() });
        Arc::new(RoutingDomain::with_policies(vrf, policies.to_vec()))
    }

    fn packet(interface: u16, source: &str, destination: &str) -> Packet {
        let mut frame = vec![0; ETHERNET + 60];
        match (source.parse().unwrap(), destination.parse().unwrap()) {
            (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) => {
                frame[ETHERNET + 12..ETHERNET + 16].copy_from_slice(&source.octets());
                frame[ETHERNET + 16..ETHERNET + 20].copy_from_slice(&destination.octets());
            }
            (std::net::IpAddr::V6(source), std::net::IpAddr::V6(destination)) => {
                frame[ETHERNET + 8..ETHERNET + 24].copy_from_slice(&source.octets());
                frame[ETHERNET + 24..ETHERNET + 40].copy_from_slice(&destination.octets());
            }
            _ => panic!("two families"),
        }
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(interface).0);
        packet
    }

    /// What becomes of packets with a source on each interface: the reason for a drop, or nothing.
    fn fates<F: Sources>(source: &str, destination: &str) -> [Option<String>; 3] {
        [1, 2, 3].map(|interface| {
            let mut rig = Rig::new(ReversePathCheck::<F>::new(domain()), &["input"], &["output"]);
            rig.send_packets("input", [packet(interface, source, destination)]);
            rig.settle();
            let dropped = rig.counts().drops.into_iter().find(|(_, count)| *count > 0).map(|(reason, _)| reason);
            assert_eq!(rig.received("output").len(), usize::from(dropped.is_none()));
            dropped
        })
    }

    #[test]
    fn sources_are_checked_as_strictly_as_the_interface_says() {
        let (none, loose, strict) = (None, Some("rpf_loose".to_owned()), Some("rpf_strict".to_owned()));
        for (source, expected) in [
            ("20.1.7.7", [&none, &none, &strict]),
            ("20.3.7.7", [&none, &none, &none]),
            ("20.4.7.7", [&none, &none, &none]),
            ("20.5.7.7", [&none, &none, &strict]),
            ("20.6.7.7", [&none, &loose, &strict]),
            ("30.1.1.1", [&none, &loose, &strict]),
            ("10.0.3.77", [&none, &none, &none]),
            ("10.0.1.77", [&none, &none, &strict]),
            ("10.0.3.1", [&none, &loose, &strict]),
            ("0.0.0.0", [&none, &loose, &strict]),
        ] {
            assert_eq!(fates::<V4>(source, "20.1.1.1").each_ref(), expected, "{source}");
        }
        assert_eq!(fates::<V4>("0.0.0.0", "255.255.255.255"), [None, None, None]);
        for (source, destination, expected) in [
            ("2001:db8:30::7", "2001:db8:1::9", [&none, &none, &none]),
            ("2001:db8:1::7", "2001:db8:3::9", [&none, &none, &strict]),
            ("2001:db8:77::7", "2001:db8:3::9", [&none, &loose, &strict]),
            ("fe80::7", "2001:db8:3::1", [&none, &none, &none]),
            ("::", "ff02::1:ff00:7", [&none, &none, &none]),
            ("::", "2001:db8:3::9", [&none, &loose, &strict]),
        ] {
            assert_eq!(fates::<V6>(source, destination).each_ref(), expected, "{source}");
        }
    }

    proptest! {
        #[test]
        fn a_batch_is_checked_as_its_packets(choices in prop::collection::vec((1u16..4, 0usize..6), 1..300)) {
            const SOURCES: [&str; 6] = ["20.1.7.7", "20.3.7.7", "20.4.7.7", "20.5.7.7", "30.1.1.1", "10.0.3.77"];
            let domain = domain();
            let mut rig = Rig::new(ReversePathCheck::<V4>::new(Arc::clone(&domain)), &["input"], &["output"]);
            let packets = choices.iter().map(|&(interface, source)| packet(interface, SOURCES[source], "20.1.1.1"));
            rig.send_packets("input", packets);
            rig.settle();
            // Loose refuses the fifth; strict the first, the fourth and the fifth.
            let passes = |&&(interface, source): &&(u16, usize)| match interface {
                1 => true,
                2 => source != 4,
                _ => !matches!(source, 0 | 3 | 4),
            };
            prop_assert_eq!(rig.received("output").len(), choices.iter().filter(passes).count());
        }
    }
}

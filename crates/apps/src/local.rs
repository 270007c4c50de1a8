//! Packets for a router itself, of both families: `ip4-local` and `ip6-local`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use bellows_config::{Bench, BenchFiles, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_packet::Packet;
use bellows_vrf::{IcmpError, Reason, Tag};
use bellows_wire::icmp::{IcmpMessage, message_type};
use bellows_wire::ipv4::Ipv4Packet;
use bellows_wire::ipv6::Ipv6Packet;
use bellows_wire::{IpPair, IpProtocol, Sum, mld};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forwarding::ETHERNET;
use crate::lanes::{Lanes, Verdict};
use crate::vrf::RoutingDomain;

/// Takes the packets that are for the router itself.
///
/// Echo requests to one address are answered through `output`; link it to the look-up. Answers from or to link-local
/// addresses go to `link`: `nd` sends them on the link of their interface. All other packets go to `punt`, for the host
/// behind it. IPv6 neighbour discovery, and queries and reports of multicast groups, go to `nd`. If `punt` is not linked, the senders of packets to ports and
/// protocols are told through `error` that nobody serves them, and the rest is dropped. Senders of IPv6 packets whose
/// routing header lists further hops are told that this router does not forward them (RFC 8200, section 4.4).
///
/// If interfaces have devices of the host (`host`), packets of other interfaces are punted only if their destination is
/// an address of one that has. Neighbour advertisements, solicitations for addresses of the host that the router does not
/// have, and messages about multicast groups go to `nd` and to `punt`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,

    /// Whether echo requests go to the host as well, instead of being answered here.
    #[serde(default)]
    pub punt_echo: bool,
}

impl Config {
    /// The defaults, for a routing domain.
    pub fn of(vrf: &str) -> Config {
        Config { vrf: vrf.to_owned(), punt_echo: false }
    }
}

/// The part of local packets that is a family's own.
pub trait Family: Send + Sized + 'static {
    /// The app's name.
    const NAME: &'static str;

    /// What an IP packet is.
    ///
    /// # Errors
    /// If its header is not right.
    fn kind(ip: &[u8]) -> Result<Kind, bellows_wire::Error>;

    /// Turns an echo request into its reply.
    ///
    /// # Errors
    /// If its header is not right.
    fn reply(ip: &mut [u8]) -> Result<(), bellows_wire::Error>;
}

/// A packet for the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    source: IpAddr,
    destination: IpAddr,
    message: Message,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    Echo,
    BadChecksum,
    Discovery,
    /// Of listeners to multicast groups.
    Listeners,
    /// With a routing header that lists further hops: where it names its type.
    Routed(u16),
    Fragment,
    /// To a port: TCP or UDP.
    Port,
    /// ICMP but echo requests.
    Other,
    Protocol,
}

/// Takes packets for the router.
pub struct Local<F> {
    domain: Arc<RoutingDomain>,
    punts_echo: bool,
    lanes: Lanes,
    family: std::marker::PhantomData<F>,
}

counters! { for[F: Family] Local<F>;
    drop MALFORMED = "malformed", "packets whose header or message is not whole";
    drop BAD_CHECKSUM = "bad_checksum", "ICMP messages with a wrong checksum";
    drop ECHO_TO_MANY = "echo_to_multicast", "echo requests to many, or not from one host";
    drop LINK_LOCAL = "link_local", "packets to link-local addresses that are not those of their interface";
    drop TENTATIVE = "tentative", "packets to addresses that the router must not use (yet), because another station may have them";
    drop ROUTING_HEADER = "routing_header", "IPv6 packets whose routing header lists further hops, if neither `punt` nor `error` is linked";
    drop FRAGMENT = "fragment", "fragments, if `punt` is not linked";
    drop UNSERVED = "unserved", "packets that nobody serves, if neither `punt` nor `error` is linked";
    count ECHO_REPLIES = "echo_replies_sent", "echo requests that were answered";
}

/// The places of the outputs.
const OUTPUT: usize = 0;
const PUNT: usize = 1;
const ERROR: usize = 2;
const ND: usize = 3;
const LINK: usize = 4;

impl<F: Family> App for Local<F> {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "packets for the router behind an Ethernet header" };
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("output", "echo replies, to look up"),
        Port::optional("punt", "packets for the host"),
        Port::optional("error", "packets whose sender is to be told"),
        Port::optional("nd", "messages of IPv6 neighbour discovery"),
        Port::optional("link", "echo replies from or to link-local addresses, tagged with their interface"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 4;

    fn push(&mut self, io: &Io<Self>) {
        self.lanes.resize(io.outputs());
        for index in 0..io.inputs() {
            for mut packet in &mut io.input(index) {
                match self.judge(io, &mut packet) {
                    Verdict::To(output) => {
                        if output == ND {
                            self.copy_for_host(io, &packet);
                        }
                        self.lanes.push(output, packet);
                    }
                    Verdict::Drop(reason) => io.drop(packet, reason),
                }
            }
            self.lanes.send(io);
        }
    }
}

impl<F: Family> Local<F> {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>) -> Local<F> {
        Local { domain, punts_echo: false, lanes: Lanes::new(), family: std::marker::PhantomData }
    }

    /// The app, which leaves echo requests to the host or not.
    #[must_use]
    pub fn punting_echo(mut self, punts: bool) -> Local<F> {
        self.punts_echo = punts;
        self
    }

    /// Gives the host what it has to know of neighbour discovery: answers, because it asks itself, and questions for
    /// addresses that the router does not have. It listens to groups of its own.
    fn copy_for_host(&mut self, io: &Io<Self>, packet: &Packet) {
        let interface = Tag(packet.tag()).interface();
        let (tables, policies) = (self.domain.tables(), self.domain.policies());
        let wanted = || {
            let view = Ipv6Packet::new_checked(packet.bytes().get(ETHERNET..)?).ok()?;
            let message = view.upper_layer().ok()?.payload;
            if mld::is_of_listeners(*message.first()?) {
                return policies.may_have_host(interface).then_some(());
            }
            policies.of(interface)?.host.as_ref()?;
            // RFC 4861, sections 4.3 and 4.4: the target is behind type, code, checksum and flags.
            let target = Ipv6Addr::from(*message.get(8..24)?.first_chunk::<16>()?);
            match message.first()? {
                135 => (!tables.interface(interface)?.has_address(target.into())).then_some(()),
                136 => Some(()),
                _ => None,
            }
        };
        if !io.is_linked(PUNT) || wanted().is_none() {
            return;
        }
        match packet.copy() {
            Some(copy) => self.lanes.push(PUNT, copy),
            None => io.count_no_buffer(1),
        }
    }

    /// Where a packet goes.
    fn judge(&self, io: &Io<Self>, packet: &mut Packet) -> Verdict<Self> {
        let tag = Tag(packet.tag());
        let Some(ip) = packet.bytes_mut().get_mut(ETHERNET..) else { return Verdict::Drop(Self::MALFORMED) };
        let Ok(kind) = F::kind(ip) else { return Verdict::Drop(Self::MALFORMED) };
        let interface = self.domain.tables().interface(tag.interface());
        let is_link_local = is_link_local_v6(kind.destination);
        let policies = self.domain.policies();
        let host = || policies.host_for(self.domain.tables(), tag.interface(), kind.destination);
        let host = if io.is_linked(PUNT) { host() } else { None };
        let punt = |packet: &mut Packet, host: u16| {
            packet.set_tag(Tag::received_on(host).0);
            Verdict::To(PUNT)
        };
        if is_link_local && interface.is_none_or(|interface| !interface.has_address(kind.destination)) {
            // The host may have link-local addresses of its own on its device.
            let has_device = policies.of(tag.interface()).is_some_and(|policy| policy.host.is_some());
            return match (host.filter(|_| has_device), kind.message) {
                (Some(_), Message::Discovery) if io.is_linked(ND) => Verdict::To(ND),
                (Some(host), _) => punt(packet, host),
                (None, _) => Verdict::Drop(Self::LINK_LOCAL),
            };
        }
        if let IpAddr::V6(address) = kind.destination
            && self.domain.addresses().is_barred_on_link(tag.interface(), address)
        {
            return Verdict::Drop(Self::TENTATIVE);
        }
        let to_one = match kind.destination {
            IpAddr::V4(address) => !address.is_multicast() && self.is_own(kind.destination),
            IpAddr::V6(address) => !address.is_multicast(),
        };
        let tell = |packet: &mut Packet, reason| match host {
            Some(host) => punt(packet, host),
            None if to_one && io.is_linked(ERROR) => {
                packet.set_tag(tag.with(IcmpError::of(reason).number()).0);
                Verdict::To(ERROR)
            }
            None => Verdict::Drop(Self::UNSERVED),
        };
        match kind.message {
            Message::BadChecksum => Verdict::Drop(Self::BAD_CHECKSUM),
            Message::Echo if self.punts_echo && host.is_some() => tell(packet, Reason::ProtocolUnreachable),
            Message::Echo if to_one && !is_many(kind.source) => match F::reply(ip) {
                Ok(()) => {
                    // Link-local addresses mean something on their own link alone.
                    let stays = [kind.source, kind.destination].into_iter().any(is_link_local_v6) && io.is_linked(LINK);
                    let output = if stays { LINK } else { OUTPUT };
                    io.count(Self::ECHO_REPLIES, self.lanes.has_room(io, output).into());
                    if !stays {
                        packet.set_tag(Tag::received_on(0).0);
                    }
                    Verdict::To(output)
                }
                Err(_) => Verdict::Drop(Self::MALFORMED),
            },
            Message::Echo => Verdict::Drop(Self::ECHO_TO_MANY),
            Message::Discovery | Message::Listeners if io.is_linked(ND) => Verdict::To(ND),
            Message::Routed(value) => match host {
                Some(host) => punt(packet, host),
                None if to_one && io.is_linked(ERROR) => {
                    packet.set_tag(tag.with(IcmpError { reason: Reason::ParameterProblem, value }.number()).0);
                    Verdict::To(ERROR)
                }
                None => Verdict::Drop(Self::ROUTING_HEADER),
            },
            Message::Fragment if host.is_none() => Verdict::Drop(Self::FRAGMENT),
            Message::Port => tell(packet, Reason::PortUnreachable),
            Message::Protocol => tell(packet, Reason::ProtocolUnreachable),
            Message::Discovery | Message::Listeners | Message::Fragment | Message::Other => match host {
                Some(host) => punt(packet, host),
                None => Verdict::Drop(Self::UNSERVED),
            },
        }
    }

    fn is_own(&self, address: IpAddr) -> bool {
        self.domain.tables().interfaces().iter().any(|interface| interface.has_address(address))
    }
}

fn is_link_local_v6(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Whether an address is not that of one host.
fn is_many(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets()[0], 0 | 127 | 224..),
        IpAddr::V6(address) => address.is_multicast() || address.is_unspecified() || address.is_loopback(),
    }
}

/// The local packets of IPv4.
pub struct V4;

/// The hops that a reply may take.
const HOPS: u8 = 64;

impl Family for V4 {
    const NAME: &'static str = "ip4-local";

    fn kind(ip: &[u8]) -> Result<Kind, bellows_wire::Error> {
        let view = Ipv4Packet::new_checked(ip)?;
        let message = match view.protocol() {
            _ if view.more_fragments() || view.fragment_offset() != 0 => Message::Fragment,
            IpProtocol::ICMP => {
                let icmp = IcmpMessage::new_checked(view.payload())?;
                match icmp.message_type() {
                    _ if Sum::new().add_bytes(view.payload()).finish() != 0 => Message::BadChecksum,
                    message_type::V4_ECHO_REQUEST => Message::Echo,
                    _ => Message::Other,
                }
            }
            IpProtocol::TCP | IpProtocol::UDP => Message::Port,
            _ => Message::Protocol,
        };
        Ok(Kind { source: view.src().into(), destination: view.dst().into(), message })
    }

    fn reply(ip: &mut [u8]) -> Result<(), bellows_wire::Error> {
        let mut view = Ipv4Packet::new_checked(ip)?;
        let (src, dst): (Ipv4Addr, Ipv4Addr) = (view.src(), view.dst());
        view.set_src(dst);
        view.set_dst(src);
        view.set_ttl(HOPS);
        view.fill_checksum();
        let mut icmp = IcmpMessage::new_checked(view.payload_mut())?;
        icmp.set_message_type(message_type::V4_ECHO_REPLY);
        icmp.fill_checksum(&IpPair::V4 { src: dst, dst: src });
        Ok(())
    }
}

/// The local packets of IPv6.
pub struct V6;

impl Family for V6 {
    const NAME: &'static str = "ip6-local";

    fn kind(ip: &[u8]) -> Result<Kind, bellows_wire::Error> {
        let view = Ipv6Packet::new_checked(ip)?;
        let (upper, routed) = (view.upper_layer()?, routing_header(ip));
        let message = match upper.protocol {
            _ if upper.fragment.is_some() => Message::Fragment,
            _ if routed.is_some() => Message::Routed(routed.unwrap_or_default()),
            IpProtocol::ICMPV6 => {
                let icmp = IcmpMessage::new_checked(upper.payload)?;
                let sum =
                    view.addresses().pseudo_header(IpProtocol::ICMPV6, upper.payload.len()).add_bytes(upper.payload);
                match icmp.message_type() {
                    _ if sum.finish() != 0 => Message::BadChecksum,
                    // An echo behind extension headers is for the host.
                    message_type::V6_ECHO_REQUEST if view.next_header() == IpProtocol::ICMPV6 => Message::Echo,
                    // RFC 4861, section 4: router and neighbour solicitations and advertisements, redirects.
                    133..=137 => Message::Discovery,
                    kind if mld::is_of_listeners(kind) => Message::Listeners,
                    _ => Message::Other,
                }
            }
            IpProtocol::TCP | IpProtocol::UDP => Message::Port,
            // No next header: there is nothing to serve (RFC 8200, section 4.7).
            IpProtocol(59) => Message::Other,
            _ => Message::Protocol,
        };
        Ok(Kind { source: view.src().into(), destination: view.dst().into(), message })
    }

    fn reply(ip: &mut [u8]) -> Result<(), bellows_wire::Error> {
        let mut view = Ipv6Packet::new_checked(ip)?;
        let (src, dst): (Ipv6Addr, Ipv6Addr) = (view.src(), view.dst());
        view.set_src(dst);
        view.set_dst(src);
        view.set_hop_limit(HOPS);
        let mut icmp = IcmpMessage::new_checked(view.payload_mut())?;
        icmp.set_message_type(message_type::V6_ECHO_REPLY);
        icmp.fill_checksum(&IpPair::V6 { src: dst, dst: src });
        Ok(())
    }
}

/// Where an IPv6 packet names the type of a routing header that lists further hops. This router knows no type of them, of
/// which type 0 is obsolete (RFC 5095); those without further hops are skipped (RFC 8200, section 4.4).
fn routing_header(ip: &[u8]) -> Option<u16> {
    let (mut kind, mut at) = (IpProtocol(*ip.get(6)?), 40);
    while matches!(kind, IpProtocol::IPV6_HOP_BY_HOP | IpProtocol::IPV6_DESTINATION | IpProtocol::IPV6_ROUTE) {
        let header = ip.get(at..)?.first_chunk::<4>()?;
        if kind == IpProtocol::IPV6_ROUTE && header[3] > 0 {
            return u16::try_from(at + 2).ok();
        }
        (kind, at) = (IpProtocol(header[0]), at + 8 + 8 * usize::from(header[1]));
    }
    None
}

impl<F: Family> Configure for Local<F> {
    const NAME: &'static str = F::NAME;
    type Config = Config;

    fn bench(_: &BenchFiles) -> Bench {
        Bench::Unmeasured(
            "it takes only packets for the router itself; `bellows bench router` measures a router without it",
        )
    }

    fn configure(config: Config, context: &Context) -> Result<Local<F>, SettingError> {
        Ok(Local::new(context.object("vrf", &config.vrf)?).punting_echo(config.punt_echo))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use bellows_rig::Rig;
    use bellows_vrf::interface::InterfaceAddress;
    use bellows_vrf::{Interface, Vrf};
    use bellows_wire::MacAddr;
    use bellows_wire::icmp::Echo;
    use bellows_wire::ipv4::Ipv4Header;
    use bellows_wire::ipv6::Ipv6Header;

    fn domain() -> Arc<RoutingDomain> {
        let addresses = ["10.0.1.1", "2001:db8::1", "fe80::1"].map(|address| InterfaceAddress {
            address: address.parse().unwrap(),
            length: if address.contains(':') { 64 } else { 24 },
        });
        let interface = Interface {
            name: "a".to_owned(),
            port: "a".to_owned(),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: addresses.to_vec(),
        };
        Arc::new(RoutingDomain::new(Vrf::new(vec![interface], 16, 1).unwrap()))
    }

    /// A packet of a protocol; an echo request if that is ICMP.
    fn packet(source: &str, destination: &str, protocol: IpProtocol) -> Vec<u8> {
        let pair = IpPair::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
        let at = if matches!(pair, IpPair::V4 { .. }) { 34 } else { 54 };
        let mut frame = vec![0x55; at + 24];
        if matches!(protocol, IpProtocol::ICMP | IpProtocol::ICMPV6) {
            Echo { reply: false, identifier: 7, sequence: 1 }.emit(&mut frame[at..], &pair).unwrap();
        }
        match pair {
            IpPair::V4 { src, dst } => {
                let (ttl, traffic_class, identification, dont_fragment) = (5, 0, 1, false);
                let header = Ipv4Header { src, dst, protocol, ttl, traffic_class, identification, dont_fragment };
                header.emit(&mut frame[14..]).unwrap();
            }
            IpPair::V6 { src, dst } => {
                let (hop_limit, traffic_class, flow_label) = (5, 0, 0);
                let header = Ipv6Header { src, dst, next_header: protocol, hop_limit, traffic_class, flow_label };
                header.emit(&mut frame[14..]).unwrap();
            }
        }
        frame
    }

    /// Where a packet goes, and what it is then: the output, or the reason for its drop.
    fn fate<F: Family>(outputs: &[&str], frame: &[u8]) -> (String, Vec<u8>) {
        let mut rig = Rig::new(Local::<F>::new(domain()), &["input"], outputs);
        let mut packet = Packet::from_bytes(frame).unwrap();
        packet.set_tag(Tag::received_on(1).0);
        rig.send_packets("input", [packet]);
        rig.settle();
        let sent = outputs.iter().find_map(|output| Some(((*output).to_owned(), rig.received(output).pop()?)));
        sent.unwrap_or_else(|| {
            let dropped = rig.counts().drops.into_iter().find(|(_, count)| *count > 0).unwrap();
            (dropped.0, Vec::new())
        })
    }

    #[test]
    fn echo_requests_are_answered() {
        let (output, reply) = fate::<V4>(&["output"], &packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP));
        let view = Ipv4Packet::new_checked(&reply[14..]).unwrap();
        assert_eq!(
            (&*output, view.src(), view.dst(), view.ttl()),
            ("output", [10, 0, 1, 1].into(), [10, 0, 1, 9].into(), 64)
        );
        assert_eq!(
            (Sum::new().add_bytes(view.header()).finish(), Sum::new().add_bytes(view.payload()).finish()),
            (0, 0)
        );
        assert_eq!(
            (view.payload()[0], &view.payload()[4..]),
            (0, &packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP)[38..])
        );
        let (output, reply) = fate::<V6>(&["output"], &packet("2001:db8::9", "2001:db8::1", IpProtocol::ICMPV6));
        let view = Ipv6Packet::new_checked(&reply[14..]).unwrap();
        let sum = view.addresses().pseudo_header(IpProtocol::ICMPV6, view.payload().len()).add_bytes(view.payload());
        assert_eq!((&*output, view.payload()[0], sum.finish(), view.hop_limit()), ("output", 129, 0, 64));
        assert_eq!(view.src().to_string(), "2001:db8::1");
    }

    #[test]
    fn the_rest_is_punted_told_or_dropped_by_name() {
        let (all, none) = (&["output", "punt", "error", "nd"][..], &["output"][..]);
        let told = &["output", "error"][..];
        let linked = &["output", "link"][..];
        let mut wrong_sum = packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP);
        wrong_sum[40] ^= 1;
        let mut fragment = packet("10.0.1.9", "10.0.1.1", IpProtocol::UDP);
        fragment[20] |= 0x20;
        let udp = packet("10.0.1.9", "10.0.1.1", IpProtocol::UDP);
        for (outputs, frame, expected) in [
            (all, udp.clone(), "punt"),
            (told, udp.clone(), "error"),
            (none, udp, "unserved"),
            (told, packet("10.0.1.9", "10.0.1.255", IpProtocol::UDP), "unserved"),
            (told, packet("10.0.1.9", "10.0.1.1", IpProtocol(89)), "error"),
            (told, packet("10.0.1.9", "224.0.0.5", IpProtocol(89)), "unserved"),
            (all, packet("10.0.1.9", "224.0.0.5", IpProtocol(89)), "punt"),
            (all, packet("10.0.1.9", "10.0.1.255", IpProtocol::ICMP), "echo_to_multicast"),
            (all, packet("224.0.0.1", "10.0.1.1", IpProtocol::ICMP), "echo_to_multicast"),
            (all, wrong_sum, "bad_checksum"),
            (all, fragment.clone(), "punt"),
            (told, fragment, "fragment"),
            (all, vec![0; 20], "malformed"),
        ] {
            assert_eq!(fate::<V4>(outputs, &frame).0, expected, "{frame:02x?}");
        }
        let mut solicitation = packet("2001:db8::9", "ff02::1:ff00:1", IpProtocol::ICMPV6);
        solicitation[54] = 135;
        let pair = IpPair::new("2001:db8::9".parse().unwrap(), "ff02::1:ff00:1".parse().unwrap()).unwrap();
        IcmpMessage::new_checked(&mut solicitation[54..]).unwrap().fill_checksum(&pair);
        for (outputs, frame, expected) in [
            (all, solicitation.clone(), "nd"),
            (told, solicitation, "unserved"),
            (all, packet("fe80::9", "fe80::2", IpProtocol::ICMPV6), "link_local"),
            (all, packet("fe80::9", "fe80::1", IpProtocol::ICMPV6), "output"),
            (linked, packet("fe80::9", "fe80::1", IpProtocol::ICMPV6), "link"),
            (linked, packet("fe80::9", "2001:db8::1", IpProtocol::ICMPV6), "link"),
            (linked, packet("2001:db8::9", "2001:db8::1", IpProtocol::ICMPV6), "output"),
            (told, packet("2001:db8::9", "2001:db8::1", IpProtocol::TCP), "error"),
            (told, packet("2001:db8::9", "2001:db8::1", IpProtocol(59)), "unserved"),
            (all, packet("2001:db8::9", "ff02::1", IpProtocol::ICMPV6), "echo_to_multicast"),
            (all, packet("::", "2001:db8::1", IpProtocol::ICMPV6), "echo_to_multicast"),
        ] {
            assert_eq!(fate::<V6>(outputs, &frame).0, expected, "{frame:02x?}");
        }
    }

    #[test]
    fn packets_with_a_routing_header_go_no_further() {
        // Type, length, segments left; the packet behind it is UDP.
        let routed = |kind: u8, left: u8, destination: &str, is_behind_options: bool| {
            let mut frame = packet("2001:db8::9", destination, IpProtocol::UDP);
            let mut header = [&[IpProtocol::UDP.0, 2, kind, left][..], &[0; 20]].concat();
            frame[20] = IpProtocol::IPV6_ROUTE.0;
            if is_behind_options {
                frame[20] = IpProtocol::IPV6_DESTINATION.0;
                header.splice(0..0, [IpProtocol::IPV6_ROUTE.0, 0, 1, 4, 0, 0, 0, 0]);
            }
            frame[18..20].copy_from_slice(&(24 + header.len() as u16).to_be_bytes());
            frame.splice(54..54, header);
            frame
        };
        let told = &["output", "error"][..];
        let tag = |frame: &[u8]| {
            let mut rig = Rig::new(Local::<V6>::new(domain()), &["input"], told);
            let mut packet = Packet::from_bytes(frame).unwrap();
            packet.set_tag(Tag::received_on(1).0);
            rig.send_packets("input", [packet]);
            rig.settle();
            IcmpError::from_number(Tag(rig.received_packets("error")[0].tag()).number())
        };
        // RFC 8200, section 4.4, and RFC 5095: the error points at the type.
        for kind in [0, 2, 4, 253] {
            let at = |value| IcmpError { reason: Reason::ParameterProblem, value };
            assert_eq!(tag(&routed(kind, 1, "2001:db8::1", false)), at(42));
            assert_eq!(tag(&routed(kind, 1, "2001:db8::1", true)), at(50));
            assert_eq!(tag(&routed(kind, 0, "2001:db8::1", false)), IcmpError::of(Reason::PortUnreachable));
        }
        for (outputs, destination, expected) in [
            (&["output"][..], "2001:db8::1", "routing_header"),
            (told, "ff02::1", "routing_header"),
            (&["output", "punt", "error"], "2001:db8::1", "punt"),
        ] {
            assert_eq!(fate::<V6>(outputs, &routed(0, 1, destination, false)).0, expected);
        }
    }

    #[test]
    fn an_address_that_is_not_in_use_yet_is_not_answered_for_on_other_links() {
        let interface = |number: u8| Interface {
            name: format!("i{number}"),
            port: format!("i{number}"),
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: vec![InterfaceAddress { address: format!("2001:db8:{number}::1").parse().unwrap(), length: 64 }],
        };
        let domain = Arc::new(RoutingDomain::new(Vrf::new(vec![interface(1), interface(2)], 16, 1).unwrap()));
        let mut rig = Rig::new(Local::<V6>::new(Arc::clone(&domain)), &["input"], &["output"]);
        let mut send = |received_on: u16| {
            let mut packet = Packet::from_bytes(&packet("2001:db8:1::9", "2001:db8:2::1", IpProtocol::ICMPV6)).unwrap();
            packet.set_tag(Tag::received_on(received_on).0);
            rig.send_packets("input", [packet]);
            rig.settle();
            (rig.received("output").len(), rig.counts().drops["tentative"])
        };
        use crate::ipv6_link::AddressState;
        domain.addresses().set(2, "2001:db8:2::1".parse().unwrap(), AddressState::Tentative);
        assert_eq!([send(1), send(2)], [(0, 1), (0, 2)]);
        domain.addresses().set(2, "2001:db8:2::1".parse().unwrap(), AddressState::Preferred);
        assert_eq!([send(1), send(2)], [(1, 2), (1, 2)]);
    }

    #[test]
    fn a_full_link_answers_nothing() {
        let mut rig = Rig::new(Local::<V4>::new(domain()), &["one", "other"], &["output"]);
        for input in ["one", "other"] {
            let echo = packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP);
            rig.send_packets(
                input,
                (0..800).map(|_| {
                    let mut packet = Packet::from_bytes(&echo).unwrap();
                    packet.set_tag(Tag::received_on(1).0);
                    packet
                }),
            );
        }
        rig.settle();
        let replies = rig.received("output").len();
        assert_eq!(rig.counts().counters["echo_replies_sent"], replies as u64);
        assert!(replies < 1600);
    }

    /// Where a packet goes that one of two interfaces received, of which the first one has a device: each output, and the
    /// interface in the packet's tag there.
    fn fates_with_device<F: Family>(received_on: u16, punts_echo: bool, frame: &[u8]) -> Vec<(String, u16)> {
        let interface = |number: u8| Interface {
            name: format!("i{number}"),
            port: format!("i{number}"),
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: [format!("10.0.{number}.1"), format!("2001:db8:{number}::1")]
                .map(|address| InterfaceAddress { address: address.parse().unwrap(), length: 24 })
                .to_vec(),
        };
        let vrf = Vrf::new(vec![interface(1), interface(2)], 16, 1).unwrap();
        let policy = Policy { host: Some("lan0".to_owned()), ..Policy::default() };
        let domain = Arc::new(RoutingDomain::with_policies(vrf, vec![policy, Policy::default()]));
        let outputs = ["output", "punt", "error", "nd"];
        let mut rig = Rig::new(Local::<F>::new(domain).punting_echo(punts_echo), &["input"], &outputs);
        let mut packet = Packet::from_bytes(frame).unwrap();
        packet.set_tag(Tag::received_on(received_on).0);
        rig.send_packets("input", [packet]);
        rig.settle();
        let sent = outputs.iter().flat_map(|output| {
            let packets = rig.received_packets(output);
            packets.into_iter().map(|packet| ((*output).to_owned(), Tag(packet.tag()).interface())).collect::<Vec<_>>()
        });
        sent.collect()
    }

    #[test]
    fn the_host_gets_packets_through_the_device_of_an_interface() {
        let udp = |to: &str| packet("10.0.1.9", to, IpProtocol::UDP);
        let to = |output: &str, interface: u16| vec![(output.to_owned(), interface)];
        for (received_on, frame, expected) in [
            (1, udp("10.0.1.1"), to("punt", 1)),
            (1, udp("10.0.2.1"), to("punt", 1)),
            (2, udp("10.0.1.1"), to("punt", 1)),
            (2, udp("10.0.2.1"), to("error", 2)),
            (1, packet("10.0.1.9", "224.0.0.5", IpProtocol(89)), to("punt", 1)),
            (2, packet("10.0.1.9", "224.0.0.5", IpProtocol(89)), Vec::new()),
            (1, packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP), to("output", 0)),
        ] {
            assert_eq!(fates_with_device::<V4>(received_on, false, &frame), expected, "{received_on} {frame:02x?}");
        }
        let echo = packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP);
        assert_eq!(fates_with_device::<V4>(1, true, &echo), to("punt", 1));
        let other = packet("10.0.2.9", "10.0.2.1", IpProtocol::ICMP);
        assert_eq!(fates_with_device::<V4>(2, true, &other), to("output", 0), "there is no device");
        let link_local = packet("fe80::9", "fe80::77", IpProtocol::TCP);
        assert_eq!(fates_with_device::<V6>(1, false, &link_local), to("punt", 1));
        assert_eq!(fates_with_device::<V6>(2, false, &link_local), Vec::new());
    }

    #[test]
    fn queries_for_multicast_groups_go_to_the_router_and_its_host() {
        // RFC 3810: a query behind a router alert.
        let (source, destination) = ("fe80::9", "ff02::1");
        let mut frame = packet(source, destination, IpProtocol::ICMPV6);
        frame[20] = IpProtocol::IPV6_HOP_BY_HOP.0;
        frame[18..20].copy_from_slice(&32_u16.to_be_bytes());
        frame.splice(54..54, mld::ROUTER_ALERT);
        frame[62] = mld::message_type::QUERY;
        let pair = IpPair::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
        IcmpMessage::new_checked(&mut frame[62..]).unwrap().fill_checksum(&pair);
        let to = |outputs: &[&str]| outputs.iter().map(|output| ((*output).to_owned(), 1)).collect::<Vec<_>>();
        assert_eq!(fates_with_device::<V6>(1, false, &frame), to(&["punt", "nd"]));
        let other: Vec<String> =
            fates_with_device::<V6>(2, false, &frame).into_iter().map(|(output, _)| output).collect();
        assert_eq!(other, ["nd"], "the other interface has no device");
    }

    #[test]
    fn the_host_hears_of_neighbours_as_far_as_it_has_to() {
        let discovery = |kind: u8, target: &str| {
            let (source, destination) = ("2001:db8:1::9", "ff02::1");
            let mut frame = packet(source, destination, IpProtocol::ICMPV6);
            frame[54] = kind;
            frame[62..78].copy_from_slice(&target.parse::<Ipv6Addr>().unwrap().octets());
            let pair = IpPair::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
            IcmpMessage::new_checked(&mut frame[54..]).unwrap().fill_checksum(&pair);
            frame
        };
        let (own, other) = ("2001:db8:1::1", "2001:db8:1::77");
        for (kind, target, hears) in
            [(135, own, false), (135, other, true), (136, other, true), (133, other, false), (134, other, false)]
        {
            let outputs: Vec<String> = fates_with_device::<V6>(1, false, &discovery(kind, target))
                .into_iter()
                .map(|(output, _)| output)
                .collect();
            let expected: &[&str] = if hears { &["punt", "nd"] } else { &["nd"] };
            assert_eq!(outputs, expected, "{kind} {target}");
        }
    }
}

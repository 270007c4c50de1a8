//! Packets for a router itself, of both families: `ip4-local` and `ip6-local`.
//!
//! | file | contents |
//! |---|---|
//! | `v4.rs`, `v6.rs` | what packets of a family are, and replies to echo requests |

#[cfg(test)]
mod tests;
mod v4;
mod v6;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use bellows_common::headers::ETHERNET;
use bellows_common::limit::SharedLimit;
use bellows_common::nexts::{Next, NextVectors, Refused};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, DropReason, Io, Port, Ports, counters};
use bellows_packet::{CAPACITY, Packet};
use bellows_vrf::adjacency::special;
use bellows_vrf::interface::subnet_router;
use bellows_vrf::{IcmpError, Reason, Tag};
use bellows_wire::ipv6::Ipv6Packet;
use bellows_wire::mld;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ipv6_link::AddressState;
use crate::ipv6_options::BadOptions;
use crate::router_bench::local_row;
use crate::vrf::RoutingDomain;

pub use self::v4::V4;
pub use self::v6::V6;
pub(crate) use self::v6::is_of_discovery;

/// Takes the packets that are for the router itself.
///
/// Echo requests to one address are answered through `output`; link it to the look-up. The answers have no extension
/// headers, and of IPv4 options only Record Route and Timestamp, in which the router enters itself. Answers from or to link-local addresses go to `link`: `nd` sends them on the link of their interface. All
/// other packets go to `punt`, for the host behind it. IPv6 neighbour discovery, and queries and reports of multicast
/// groups, go to `nd`. If `punt` is not linked, the senders of packets to ports and protocols are informed through
/// `error` that nobody serves them, and the rest is dropped.
///
/// Packets from other stations whose source is the router's own, or the broadcast address of one of its links, are
/// dropped (RFC 1812, section 5.3.7), but for neighbour discovery, which finds duplicate addresses by them.
///
/// Options for the destination of IPv6 packets that are answered or refused here are treated as their types say, and
/// senders of hop-by-hop options behind another extension header get an ICMP error (RFC 8200, section 4).
/// Senders of IPv6 packets whose routing header lists further hops are told that this router does not forward them (RFC
/// 8200, section 4.4).
///
/// If interfaces have devices of the host (`host`), packets of other interfaces are punted only if their destination is
/// an address of one that has. Neighbour advertisements, solicitations for addresses of the host that the router does
/// not have, router advertisements and solicitations, and messages about multicast groups go to `nd` and to `punt`;
/// router advertisements only while the kernel of the host ignores them (`accept_ra`), for its daemons to hear.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,

    /// Whether echo requests go to the host as well, instead of being answered here.
    #[serde(default)]
    pub punt_echo: bool,

    /// The maximum number of echo requests a second that are answered, from 1 to 1,000,000,000; a tenth of a second's are
    /// answered at once after a pause. Each interface is sure to have its part of one half.
    #[serde(default = "echo_rate")]
    #[schemars(extend("x-unit" = "packets/s"), range(min = 1, max = 1000000000))]
    pub echo_rate: u32,
}

fn echo_rate() -> u32 {
    100_000
}

impl Config {
    /// The defaults, for a routing domain.
    pub fn of(vrf: &str) -> Config {
        Config { vrf: vrf.to_owned(), punt_echo: false, echo_rate: echo_rate() }
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

    /// Whether an IP packet is an echo request without options or extension headers.
    fn is_echo_request(ip: &[u8]) -> bool;

    /// Writes what a glance shows of packets. Hot.
    fn glance_at(packets: &[Packet], glance: Glance, fates: &mut [Fate]) {
        for (packet, fate) in packets.iter().zip(fates) {
            let is_echo = packet.bytes().get(ETHERNET..).is_some_and(Self::is_echo_request);
            *fate = if is_echo & glance.limits_echo(packet) { Fate::Limited } else { Fate::Open };
        }
    }

    /// Writes the destination of an IPv6 packet. Its checksums are made anew with the reply.
    fn set_destination(_: &mut [u8], _: Ipv6Addr) {}

    /// Turns an echo request into its reply, and returns the bytes of that.
    ///
    /// # Errors
    /// If its header is not right.
    fn reply(ip: &mut [u8], own: Own<'_>) -> Result<usize, bellows_wire::Error>;
}

/// Tells whether an address is the router's own.
pub type Own<'a> = &'a dyn Fn(IpAddr) -> bool;

/// What a glance may decide.
#[derive(Clone, Copy, Debug)]
pub struct Glance {
    /// The interface from which echo requests are beyond the limit.
    echo_limited_from: Option<u16>,
    /// The interface from which all neighbour discovery to addresses beyond the link-local ones is for `nd` alone.
    discovery_from: Option<u16>,
}

impl Glance {
    /// Whether a packet is beyond the limit if it is an echo request.
    #[inline]
    fn limits_echo(&self, packet: &Packet) -> bool {
        self.echo_limited_from == Some(Tag(packet.tag()).interface())
    }
}

/// What a glance shows of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nothing: it is looked at closely.
    Open,
    /// It is an echo request beyond the limit.
    Limited,
    /// It is for `nd`.
    Discovery,
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
    /// An echo request with options that must be known but are not, that do not fit, or that cannot be filled in.
    BadOptions(BadOptions),
    /// For the host if there is one, with options for the destination that this router must know but does not.
    UnknownOptions(BadOptions),
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
    /// Another protocol, and where IPv6 packets name it.
    Protocol(u16),
}

/// Takes packets for the router.
pub struct Local<F> {
    domain: Arc<RoutingDomain>,
    punts_echo: bool,
    /// That of answers to echo requests.
    limit: SharedLimit,
    next_vectors: NextVectors,
    refused: Refused<Local<F>>,
    /// What a glance shows of the packets of a call.
    fates: Vec<Fate>,
    family: std::marker::PhantomData<F>,
}

/// Takes the IPv4 packets that are for the router itself.
pub type Ip4Local = Local<V4>;

/// Takes the IPv6 packets that are for the router itself.
pub type Ip6Local = Local<V6>;

counters! { for[F: Family] Local<F>;
    drop MALFORMED = "malformed", "packets whose header or message is not whole";
    drop BAD_CHECKSUM = "bad_checksum", "ICMP messages with a wrong checksum";
    drop BAD_OPTIONS = "bad_options", "packets with IPv4 options that cannot be filled in, or with IPv6 options that do not fit, must be known but are not, or are in the wrong place";
    drop BAD_SOURCE = "src_martian", "packets from other stations whose source is an address of the router, or the broadcast address of one of its links; likely: another station has an address of the router, or frames come back by a loop";
    drop RATE_LIMITED = "rate_limited", "echo requests beyond the limit of answers";
    drop ECHO_TO_MANY = "echo_to_multicast", "echo requests to many, or not from one host";
    drop LINK_LOCAL = "link_local", "packets to link-local addresses that are not those of their interface";
    drop TENTATIVE = "tentative", "packets to addresses that the router must not use (yet), because another station may have them";
    drop ROUTING_HEADER = "routing_header", "IPv6 packets whose routing header lists further hops, if neither `punt` nor `error` is linked";
    drop FRAGMENT = "fragment", "fragments, if `punt` is not linked";
    drop UNSERVED = "unserved", "packets that nobody serves, if neither `punt` nor `error` is linked; likely: `host` of the interface or a rule of `services` is missing";
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
        self.next_vectors.resize(io.outputs());
        for index in io.waiting_inputs() {
            self.take(io, index);
        }
    }
}

impl<F: Family> Local<F> {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>) -> Local<F> {
        let limit = Self::limit(&domain, echo_rate());
        let fates = vec![Fate::Open; CAPACITY];
        let (next_vectors, refused) = (NextVectors::new(), Refused::new());
        Local { domain, punts_echo: false, limit, next_vectors, refused, fates, family: std::marker::PhantomData }
    }

    /// The app, which leaves echo requests to the host or not.
    #[must_use]
    pub fn punting_echo(mut self, punts: bool) -> Local<F> {
        self.punts_echo = punts;
        self
    }

    fn limit(domain: &RoutingDomain, echo_rate: u32) -> SharedLimit {
        SharedLimit::new(echo_rate, (echo_rate / 10).max(1), domain.tables().interfaces().len())
    }

    /// Sets the limit of echo replies a second.
    #[must_use]
    pub fn answering(mut self, echo_rate: u32) -> Local<F> {
        self.limit = Self::limit(&self.domain, echo_rate);
        self
    }

    /// Takes the packets of an input.
    fn take(&mut self, io: &Io<Self>, index: usize) {
        let mut input = io.input(index);
        let Some(first) = input.packets().first() else { return };
        let number = Tag(first.tag()).interface();
        let glance = Glance {
            echo_limited_from: Some(number).filter(|_| !self.punts_echo && !self.limit.admits(number, io.now())),
            // Others are copied for the host, or are for no address of the router that it may use.
            discovery_from: Some(number).filter(|_| {
                let policy = self.domain.policies().of(number);
                io.is_linked(ND)
                    && !self.domain.addresses().are_some_barred()
                    && policy.is_none_or(|policy| policy.host.is_none())
            }),
        };
        let fates = &mut self.fates[..input.len()];
        F::glance_at(input.packets(), glance, fates);
        let fate = fates[0];
        if fate != Fate::Open && fates.iter().all(|&other| other == fate) {
            if fate == Fate::Limited {
                return io.drop_all(&mut input, Self::RATE_LIMITED);
            }
            drop(input);
            return io.forward(index, ND);
        }
        for (place, mut packet) in (&mut input).into_iter().enumerate() {
            let verdict = match self.fates[place] {
                Fate::Open => self.judge(io, &mut packet),
                Fate::Limited => Next::Drop(Self::RATE_LIMITED),
                Fate::Discovery => Next::To(ND),
            };
            match verdict {
                Next::To(output) => {
                    if output == ND && self.fates[place] == Fate::Open {
                        self.copy_for_host(io, &packet);
                    }
                    self.next_vectors.push(output, packet);
                }
                Next::Drop(reason) => self.refused.push(io, packet, reason),
            }
        }
        drop(input);
        self.refused.drop_all(io);
        self.next_vectors.send(io);
    }

    /// Gives the host what it has to know of neighbour discovery: answers, because it asks itself, questions for
    /// addresses that the router does not have, and what routers say and are asked, by which routing daemons find each
    /// other. It listens to groups of its own.
    fn copy_for_host(&mut self, io: &Io<Self>, packet: &Packet) {
        let interface = Tag(packet.tag()).interface();
        let (tables, policies) = (self.domain.tables(), self.domain.policies());
        let wanted = || {
            let view = Ipv6Packet::new_checked(packet.bytes().get(ETHERNET..)?).ok()?;
            let upper = view.upper_layer().ok()?;
            // `nd` drops those in fragments, and so must the host (RFC 6980).
            let message = if upper.fragment.is_some() { return None } else { upper.payload };
            if mld::is_of_listeners(*message.first()?) {
                return policies.may_have_host(interface).then_some(());
            }
            policies.of(interface)?.host.as_ref()?;
            match message.first()? {
                133 => Some(()),
                134 => policies.may_hear_routers(interface).then_some(()),
                135 => {
                    // RFC 4861, section 4.3: the target is behind type, code, checksum and flags.
                    let target = Ipv6Addr::from(*message.get(8..24)?.first_chunk::<16>()?);
                    (!tables.interface(interface)?.has_address(target.into())).then_some(())
                }
                136 => Some(()),
                _ => None,
            }
        };
        if !io.is_linked(PUNT) || wanted().is_none() {
            return;
        }
        match packet.copy() {
            Some(copy) => self.next_vectors.push(PUNT, copy),
            None => io.count_no_buffer(1),
        }
    }

    /// Where a packet goes.
    fn judge(&mut self, io: &Io<Self>, packet: &mut Packet) -> Next<Self> {
        let number = Tag(packet.tag()).interface();
        let Some(ip) = packet.bytes().get(ETHERNET..) else { return Next::Drop(Self::MALFORMED) };
        if !self.punts_echo && !self.limit.admits(number, io.now()) && F::is_echo_request(ip) {
            return Next::Drop(Self::RATE_LIMITED);
        }
        let Ok(kind) = F::kind(ip) else { return Next::Drop(Self::MALFORMED) };
        if self.is_own_or_many(io, number, &kind) {
            return Next::Drop(Self::BAD_SOURCE);
        }
        let host = || self.domain.policies().host_for(self.domain.tables(), number, kind.destination);
        let host = if io.is_linked(PUNT) { host() } else { None };
        if let Some(verdict) = self.judge_link_local(io, packet, &kind, host) {
            return verdict;
        }
        if let IpAddr::V6(address) = kind.destination
            && self.domain.addresses().is_barred_on_link(number, address)
        {
            return Next::Drop(Self::TENTATIVE);
        }
        let is_to_one = self.is_one(kind.destination);
        let unserved = Unserved { host, may_tell: is_to_one && io.is_linked(ERROR) };
        match kind.message {
            Message::BadChecksum => Next::Drop(Self::BAD_CHECKSUM),
            Message::Echo | Message::BadOptions(_) if self.punts_echo && host.is_some() => {
                unserved.punt_or_drop(packet)
            }
            Message::Echo if is_to_one => self.answer_echo(io, packet, &kind),
            Message::Echo => Next::Drop(Self::ECHO_TO_MANY),
            Message::UnknownOptions(_) if host.is_some() => unserved.punt_or_drop(packet),
            Message::BadOptions(BadOptions::Told(error)) | Message::UnknownOptions(BadOptions::Told(error))
                if unserved.may_tell =>
            {
                tell(packet, error)
            }
            Message::BadOptions(_) | Message::UnknownOptions(_) => Next::Drop(Self::BAD_OPTIONS),
            Message::Routed(value) => {
                let error = IcmpError { reason: Reason::ParameterProblem, value };
                unserved.punt_or_tell(packet, error, Self::ROUTING_HEADER)
            }
            Message::Port => unserved.punt_or_tell(packet, IcmpError::of(Reason::PortUnreachable), Self::UNSERVED),
            Message::Protocol(value) => {
                let error = IcmpError { reason: Reason::ProtocolUnreachable, value };
                unserved.punt_or_tell(packet, error, Self::UNSERVED)
            }
            Message::Discovery | Message::Listeners if io.is_linked(ND) => Next::To(ND),
            Message::Fragment if host.is_none() => Next::Drop(Self::FRAGMENT),
            Message::Discovery | Message::Listeners | Message::Fragment | Message::Other => {
                unserved.punt_or_drop(packet)
            }
        }
    }

    /// Where a packet to a link-local address goes that its interface does not have: the host may have link-local
    /// addresses of its own on its device.
    fn judge_link_local(
        &self,
        io: &Io<Self>,
        packet: &mut Packet,
        kind: &Kind,
        host: Option<u16>,
    ) -> Option<Next<Self>> {
        let number = Tag(packet.tag()).interface();
        let has_address = || {
            let interface = self.domain.tables().interface(number);
            interface.is_some_and(|interface| interface.has_address(kind.destination))
        };
        if !is_link_local_v6(kind.destination) || has_address() {
            return None;
        }
        let has_device = self.domain.policies().of(number).is_some_and(|policy| policy.host.is_some());
        Some(match (host.filter(|_| has_device), kind.message) {
            (Some(_), Message::Discovery) if io.is_linked(ND) => Next::To(ND),
            (Some(host), _) => punt(packet, host),
            (None, _) => Next::Drop(Self::LINK_LOCAL),
        })
    }

    /// Turns an echo request to one address into its reply, within the limit.
    fn answer_echo(&mut self, io: &Io<Self>, packet: &mut Packet, kind: &Kind) -> Next<Self> {
        let number = Tag(packet.tag()).interface();
        let Some(ip) = packet.bytes_mut().get_mut(ETHERNET..) else { return Next::Drop(Self::MALFORMED) };
        if let IpAddr::V6(asked) = kind.destination
            && !self.domain.tables().has_address(kind.destination)
        {
            // The address of all routers of a link answers as one of them (RFC 4443, section 4.2).
            match self.address_behind(number, asked) {
                Some(own) => F::set_destination(ip, own),
                None => return Next::Drop(Self::TENTATIVE),
            }
        }
        // Those behind options or extension headers were not looked for before.
        if !self.limit.admits(number, io.now()) {
            return Next::Drop(Self::RATE_LIMITED);
        }
        if is_many(kind.source) {
            return Next::Drop(Self::ECHO_TO_MANY);
        }
        let Ok(length) = F::reply(ip, &|address| self.domain.tables().has_address(address)) else {
            return Next::Drop(Self::MALFORMED);
        };
        packet.truncate(ETHERNET + length);
        self.limit.pay(number, io.now());
        // Link-local addresses mean something on their own link alone.
        let stays = [kind.source, kind.destination].into_iter().any(is_link_local_v6) && io.is_linked(LINK);
        let output = if stays { LINK } else { OUTPUT };
        io.count(Self::ECHO_REPLIES, self.next_vectors.has_room(io, output).into());
        if !stays {
            packet.set_tag(Tag::received_on(0).0);
        }
        Next::To(output)
    }

    /// Whether packets to an address are for one station.
    fn is_one(&self, destination: IpAddr) -> bool {
        match destination {
            IpAddr::V4(address) => !address.is_multicast() && self.domain.tables().has_address(destination),
            IpAddr::V6(address) => !address.is_multicast(),
        }
    }

    /// The router's own address with the prefix of an anycast address, of the interface that received a packet to that if
    /// it has one.
    #[cold]
    fn address_behind(&self, received_on: u16, anycast: Ipv6Addr) -> Option<Ipv6Addr> {
        let tables = self.domain.tables();
        let numbers = std::iter::once(received_on).chain(1..=tables.interfaces().len() as u16);
        numbers.filter_map(|number| Some((number, tables.interface(number)?))).find_map(|(number, interface)| {
            interface.addresses.iter().find_map(|own| match own.address {
                IpAddr::V6(address)
                    if subnet_router(own) == Some(anycast) && !self.domain.addresses().is_barred(number, address) =>
                {
                    Some(address)
                }
                _ => None,
            })
        })
    }

    /// Whether another station has sent a packet with a source that is the router's or that of many: an address of the
    /// router, or the broadcast address of one of its links. Both have routes to the router itself.
    fn is_own_or_many(&self, io: &Io<Self>, number: u16, kind: &Kind) -> bool {
        if number == 0 || matches!(kind.message, Message::Discovery | Message::Listeners) {
            return false;
        }
        match kind.source {
            IpAddr::V6(source) if source.is_unicast_link_local() => {
                self.domain.addresses().get(number, source) == Some(AddressState::Preferred)
            }
            source => self.domain.tables().look_up(io, source) == special::LOCAL,
        }
    }
}

/// What becomes of packets that the router does not serve.
struct Unserved {
    /// The interface of the host that may serve them.
    host: Option<u16>,
    /// Whether the sender can be informed that nobody does.
    may_tell: bool,
}

impl Unserved {
    /// To the host, or dropped.
    fn punt_or_drop<F: Family>(&self, packet: &mut Packet) -> Next<Local<F>> {
        self.host.map_or(Next::Drop(Local::UNSERVED), |host| punt(packet, host))
    }

    /// To the host, or back to the sender, or dropped.
    fn punt_or_tell<F: Family>(
        &self,
        packet: &mut Packet,
        error: IcmpError,
        reason: DropReason<Local<F>>,
    ) -> Next<Local<F>> {
        match self.host {
            Some(host) => punt(packet, host),
            None if self.may_tell => tell(packet, error),
            None => Next::Drop(reason),
        }
    }
}

/// Sends a packet to the host, on the device of an interface.
fn punt<A>(packet: &mut Packet, host: u16) -> Next<A> {
    packet.set_tag(Tag::received_on(host).0);
    Next::To(PUNT)
}

/// Has an ICMP error sent to the sender of a packet.
fn tell<A>(packet: &mut Packet, error: IcmpError) -> Next<A> {
    packet.set_tag(Tag(packet.tag()).with(error.number()).0);
    Next::To(ERROR)
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

/// The hops that a reply may take.
const HOPS: u8 = 64;

impl<F: Family> Configure for Local<F> {
    const NAME: &'static str = F::NAME;
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        let row = local_row(&F::NAME[..3]);
        // Without a limit.
        let keys = format!("{}, echo_rate = 1000000000", row.keys);
        BenchSetup::Rows(vec![BenchRow { keys, ..row }])
    }

    fn configure(config: Config, context: &Context) -> Result<Local<F>, SettingError> {
        if !(1..=1_000_000_000).contains(&config.echo_rate) {
            return Err(SettingError::at(
                "echo_rate",
                "the rate is out of range",
                "give a number from 1 to 1000000000",
            ));
        }
        let local = Local::new(context.object("vrf", &config.vrf)?);
        Ok(local.punting_echo(config.punt_echo).answering(config.echo_rate))
    }
}

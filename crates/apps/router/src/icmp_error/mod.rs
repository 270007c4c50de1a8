//! The ICMP errors of both families: `ip4-icmp-error` and `ip6-icmp-error`.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use bellows_common::headers::{ETHERNET, uncover};
use bellows_common::icmp::{Family, Unanswered, V4, V6};
use bellows_common::limit::SharedLimit;
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Count, Counter, Counters, DropReason, Io, Port, Ports, counters};
use bellows_packet::Packet;
use bellows_shared::Breath;
use bellows_vrf::adjacency::special;
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::{IcmpError, Interface, Reason, Sent, Tag};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::vrf::RoutingDomain;

/// Tells the senders of packets that a router cannot forward why (ICMP, RFC 792 and 1812; ICMPv6, RFC 4443).
///
/// `input` takes the packets from the outputs `error` of the router's other apps, `output` sends the errors; link it to
/// the look-up. Errors from or to link-local addresses go to `link`, for `nd`. An error about a packet to an address of
/// the router comes from that (RFC 4443, section 2.2), as those of Linux. Others have an address of the interface that
/// received the packet; if that has none of the family, one of the interface that the error leaves by, or else the
/// first one that the router has (RFC 1812, section 4.3.2.4; RFC 6724). An IPv4 error has the precedence "internetwork
/// control" and the type of service of the packet (RFC 1812, section 4.3.2.5); one of IPv6 has the traffic class 0, as
/// those of Linux, and no error has options. It has as much of the packet as fits into 576
/// bytes (IPv4) or 1,280 bytes (IPv6). Errors are not sent about ICMP errors, fragments behind the first, packets to
/// many, and packets whose source is not one host. They are limited to `rate` a second, after `burst` at once; packets
/// beyond that are dropped, and so are packets beyond eight for each error that may be sent, whether or not one is sent
/// about them. Each interface that packets come from is sure to have its part of one half of the rate. Senders that have a better first hop on their link are redirected, with a limit of the same size.
///
/// If a packet of the router itself is too long for a link, the error goes to the router: a tunnel among its services
/// learns the MTU from it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,

    /// The maximum number of errors a second, from 1 to 1,000,000.
    #[serde(default = "rate")]
    #[schemars(extend("x-unit" = "packets/s"), range(min = 1, max = 1000000))]
    pub rate: u32,

    /// The number of errors that are sent at once after a pause, from 1 to 100,000.
    #[serde(default = "burst")]
    #[schemars(extend("x-unit" = "packets"), range(min = 1, max = 100000))]
    pub burst: u32,
}

impl Config {
    /// The defaults, for a routing domain.
    pub fn of(vrf: &str) -> Config {
        Config { vrf: vrf.to_owned(), rate: rate(), burst: burst() }
    }
}

// As in Linux: icmp_msgs_per_sec, icmp_msgs_burst.
fn rate() -> u32 {
    1_000
}

fn burst() -> u32 {
    50
}

/// The place of an output.
const LINK: usize = 1;

/// Tells senders why their packets are not forwarded.
pub struct IcmpErrors<F> {
    domain: Arc<RoutingDomain>,
    /// The limits of errors and of redirects.
    errors: SharedLimit,
    redirects: SharedLimit,
    /// The limit of packets that are looked at, of which many may be such that no error is sent about.
    looks: SharedLimit,
    /// Room for an error behind an Ethernet header.
    frame: Vec<u8>,
    family: std::marker::PhantomData<F>,
}

/// Tells the senders of IPv4 packets why they are not forwarded.
pub type Ip4IcmpError = IcmpErrors<V4>;

/// Tells the senders of IPv6 packets why they are not forwarded.
pub type Ip6IcmpError = IcmpErrors<V6>;

/// The counters of messages that were sent, by [`Sent`].
const SENT: [Counter; Sent::COUNTERS.len()] = {
    let mut counters = [Counter::new("", ""); Sent::COUNTERS.len()];
    let mut row = 0;
    while row < counters.len() {
        let (name, help) = Sent::COUNTERS[row];
        counters[row] = Counter::new(name, help);
        row += 1;
    }
    counters
};

counters! { for[F: Family] IcmpErrors<F>;
    drop RATE_LIMITED = "rate_limited", "packets beyond the limit of errors";
    drop ABOUT_ERROR = "about_icmp_error", "ICMP errors";
    drop ABOUT_FRAGMENT = "about_fragment", "IPv4 fragments behind the first";
    drop ABOUT_MANY = "about_multicast", "packets to many, or in a frame to many";
    drop ABOUT_SOURCE = "about_source", "packets whose source is not one host, or the router itself";
    drop NO_ADDRESS = "no_address", "packets from interfaces without an address that may be used";
    drop NO_BETTER_HOP = "no_better_hop", "packets about a better first hop that is none any more";
    drop MALFORMED = "malformed", "packets without a whole header";
    table SENT = SENT;
}

impl<F: Family> App for IcmpErrors<F> {
    const INPUTS: Ports =
        Ports::Any { at_least: 1, help: "packets that cannot be forwarded, tagged with their errors" };
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("output", "ICMP errors, to look up"),
        Port::optional("link", "ICMPv6 errors from or to link-local addresses, tagged with their interface"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const ENDS: bool = true;
    const PREFETCH: usize = 4;

    fn push(&mut self, io: &Io<Self>) {
        for index in io.waiting_inputs() {
            let mut input = io.input(index);
            if !self.admits_any(io.now(), input.packets()) {
                io.drop_all(&mut input, Self::RATE_LIMITED);
                continue;
            }
            for packet in &mut input {
                match self.answer(io, &packet) {
                    Ok(Some(Answer { packet, counter })) => {
                        // An error to a link-local address keeps its interface.
                        let mut output = io.output(usize::from(Tag(packet.tag()).interface() != 0));
                        io.count(counter, (output.room() > 0).into());
                        output.push(packet);
                    }
                    Ok(None) => io.count_no_buffer(1),
                    Err(reason) => io.drop(packet, reason),
                }
            }
        }
    }
}

/// Packets that are looked at for each error that may be sent.
const LOOKS: u32 = 8;

/// Whether the sender of a packet is to get a redirect to a better first hop.
#[inline]
fn is_redirect(packet: &Packet) -> bool {
    const REDIRECT: IcmpError = IcmpError::of(Reason::Redirect);
    Tag(packet.tag()).number() == REDIRECT.number()
}

impl<F: Family> IcmpErrors<F> {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>, rate: u32, burst: u32) -> IcmpErrors<F> {
        let limit = |factor: u32| {
            let (rate, burst) = (rate.saturating_mul(factor), burst.saturating_mul(factor));
            SharedLimit::new(rate, burst, domain.tables().interfaces().len())
        };
        let (errors, redirects, looks) = (limit(1), limit(1), limit(LOOKS));
        let frame = vec![0; ETHERNET + F::MAX_LENGTH];
        IcmpErrors { domain, errors, redirects, looks, frame, family: std::marker::PhantomData }
    }

    /// The counter of messages that were sent for a reason.
    fn counter(reason: Reason) -> Count<Self> {
        Self::SENT.row(reason.sent() as usize)
    }

    /// Why no error is sent, as it is counted.
    fn unanswered(why: Unanswered) -> DropReason<Self> {
        match why {
            Unanswered::Malformed => Self::MALFORMED,
            Unanswered::AboutError => Self::ABOUT_ERROR,
            Unanswered::AboutFragment => Self::ABOUT_FRAGMENT,
            Unanswered::AboutMany => Self::ABOUT_MANY,
            Unanswered::AboutSource => Self::ABOUT_SOURCE,
        }
    }

    /// Whether any of these packets is within the limits. If not, none is looked at.
    fn admits_any(&self, now: u64, packets: &[Packet]) -> bool {
        // Those of a flood have the same tag: they are within the limits together.
        let mut last = None;
        packets.iter().any(|packet| {
            if last == Some(packet.tag()) {
                return false;
            }
            last = Some(packet.tag());
            let interface = Tag(packet.tag()).interface();
            let limit = if is_redirect(packet) { &self.redirects } else { &self.errors };
            limit.admits(interface, now) && self.looks.admits(interface, now)
        })
    }

    /// The error about a packet, or `None` if there is no buffer.
    fn answer(&mut self, io: &Io<Self>, packet: &Packet) -> Result<Option<Answer<F>>, DropReason<Self>> {
        let (now, tag) = (io.now(), Tag(packet.tag()));
        let error = IcmpError::from_number(tag.number());
        let is_redirect = error.reason == Reason::Redirect;
        let limit = if is_redirect { &self.redirects } else { &self.errors };
        let number = tag.interface();
        if !limit.admits(number, now) || !self.looks.admits(number, now) {
            return Err(Self::RATE_LIMITED);
        }
        self.looks.pay(number, now);
        let (ethernet, ip) = packet.bytes().split_at_checked(ETHERNET).ok_or(Self::MALFORMED)?;
        if ethernet[0] & 1 == 1 && !F::may_be_about_many(error) {
            return Err(Self::ABOUT_MANY);
        }
        let tables = self.domain.tables();
        let interface = tables.interface(tag.interface());
        F::may_answer(ip, error, interface).map_err(Self::unanswered)?;
        let sender = F::sender(ip).ok_or(Self::MALFORMED)?;
        if interface.is_none() && error.reason == Reason::TooBig && tables.has_address(sender.into()) {
            return self.tell_service(io, ip, error, sender);
        }
        let interface = interface.ok_or(Self::NO_ADDRESS)?;
        if self.is_own_or_many(io, sender) {
            return Err(Self::ABOUT_SOURCE);
        }
        let length = if is_redirect {
            let own =
                F::choose_for_redirect(self.usable(tag.interface(), interface), sender).ok_or(Self::NO_ADDRESS)?;
            let (next_hop, mac) = F::better_hop(tables, io, ip, tag.interface()).ok_or(Self::NO_BETTER_HOP)?;
            F::write_redirect(ip, own, next_hop, mac, &mut self.frame[ETHERNET..])
        } else {
            let own = self.asked(number, interface, ip, sender);
            let own = own.or_else(|| F::choose(self.usable(number, interface), sender));
            let own = own.or_else(|| self.address_elsewhere(io, sender)).ok_or(Self::NO_ADDRESS)?;
            F::write(ip, error, own, &mut self.frame[ETHERNET..])
        };
        let length = length.ok_or(Self::MALFORMED)?;
        let addresses = F::addresses(&self.frame[ETHERNET..]);
        let limit = if is_redirect { &mut self.redirects } else { &mut self.errors };
        limit.pay(number, now);
        let counter = Self::counter(error.reason);
        let answer = Packet::from_bytes(&self.frame[..ETHERNET + length]);
        Ok(answer.map(|mut answer| {
            let is_of_link = |both: [Ipv6Addr; 2]| both.iter().any(Ipv6Addr::is_unicast_link_local);
            let stays = addresses.is_some_and(is_of_link) && io.is_linked(LINK);
            answer.set_tag(Tag::received_on(if stays { tag.interface() } else { 0 }).0);
            Answer { packet: answer, counter }
        }))
    }

    /// The error about a packet of the router's own, which goes to itself: a service, such as a tunnel, that has sent it
    /// learns how long its packets may be.
    #[cold]
    fn tell_service(
        &mut self,
        io: &Io<Self>,
        ip: &[u8],
        error: IcmpError,
        own: F::Address,
    ) -> Result<Option<Answer<F>>, DropReason<Self>> {
        let length = F::write(ip, error, own, &mut self.frame[ETHERNET..]).ok_or(Self::MALFORMED)?;
        self.errors.pay(0, io.now());
        let packet = Packet::from_bytes(&self.frame[..ETHERNET + length]);
        Ok(packet.map(|mut packet| {
            uncover(&mut packet, F::ETHER_TYPE);
            Answer { packet, counter: Self::counter(error.reason) }
        }))
    }

    /// Whether a sender's address is one of the router, or the broadcast address of one of its links. Both have routes to
    /// the router itself, and so have all link-local addresses of IPv6.
    fn is_own_or_many(&self, breath: &impl Breath, sender: F::Address) -> bool {
        let is_link_local = matches!(sender.into(), IpAddr::V6(sender) if sender.is_unicast_link_local());
        !is_link_local && self.domain.tables().look_up(breath, sender.into()) == special::LOCAL
    }

    /// The destination of a packet, if it is an address of the router that its sender is told from (RFC 4443, section 2.2
    /// (a)).
    fn asked(&self, number: u16, interface: &Interface, ip: &[u8], sender: F::Address) -> Option<F::Address> {
        let asked = F::destination(ip)?;
        let address = asked.into();
        if matches!(address, IpAddr::V6(address) if self.domain.addresses().is_barred_on_link(number, address)) {
            return None;
        }
        // Link-local addresses mean something on their own link alone.
        let is_own = match F::is_good_elsewhere(address) {
            true => self.domain.tables().has_address(address),
            false => interface.has_address(address) && interface.has_on_link(sender.into()),
        };
        is_own.then_some(asked)
    }

    /// The addresses of an interface that may be used.
    fn usable<'a>(
        &'a self,
        number: u16,
        interface: &'a Interface,
    ) -> impl Iterator<Item = InterfaceAddress> + Clone + use<'a, F> {
        let states = self.domain.addresses();
        interface.addresses.iter().copied().filter(move |own| match own.address {
            IpAddr::V6(address) => !states.is_barred(number, address),
            IpAddr::V4(_) => true,
        })
    }

    /// An address of the router for a sender on whose link it has none: of the interface that leads to the sender, or
    /// of any.
    #[cold]
    fn address_elsewhere(&self, breath: &impl Breath, sender: F::Address) -> Option<F::Address> {
        let tables = self.domain.tables();
        let mut found = [tables.look_up(breath, sender.into())];
        tables.choose_paths(breath, &mut found, |_| 0);
        let first = tables.adjacencies().get(found[0]).map(|adjacency| adjacency.interface);
        let all = 1..=tables.interfaces().len() as u16;
        first.into_iter().chain(all).find_map(|number| {
            let own = self.usable(number, tables.interface(number)?).filter(|own| F::is_good_elsewhere(own.address));
            F::choose(own, sender)
        })
    }
}

/// A message that is sent, and what counts it.
struct Answer<F> {
    packet: Packet,
    counter: Count<IcmpErrors<F>>,
}

impl<F: Family> Configure for IcmpErrors<F> {
    const NAME: &'static str = F::NAME;
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured(
            "its rate is limited; `bellows bench floods` measures what it costs up to the limit and beyond",
        )
    }

    fn configure(config: Config, context: &Context) -> Result<IcmpErrors<F>, SettingError> {
        if !(1..=1_000_000).contains(&config.rate) {
            return Err(SettingError::at("rate", "the rate is out of range", "give a number from 1 to 1000000"));
        }
        if !(1..=100_000).contains(&config.burst) {
            return Err(SettingError::at("burst", "the burst is out of range", "give a number from 1 to 100000"));
        }
        Ok(IcmpErrors::new(context.object("vrf", &config.vrf)?, config.rate, config.burst))
    }
}

//! The ICMP errors of both families: `ip4-icmp-error` and `ip6-icmp-error`.
//!
//! | file | contents |
//! |---|---|
//! | `v4.rs`, `v6.rs` | which packets are answered, and the answers |

#[cfg(test)]
mod tests;
mod v4;
mod v6;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use bellows_config::{Bench, BenchFiles, Configure, Context, SettingError};
use bellows_engine::{App, Counters, DropReason, Io, Port, Ports, counters};
use bellows_packet::Packet;
use bellows_shared::Breath;
use bellows_vrf::adjacency::Kind;
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::{IcmpError, Interface, Reason, Tag, Vrf};
use bellows_wire::icmp::IcmpMessage;
use bellows_wire::{IpPair, MacAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forwarding::ETHERNET;
use crate::limit::Limit;
use crate::vrf::RoutingDomain;

pub use self::v4::V4;
pub use self::v6::V6;

/// Tells the senders of packets that a router cannot forward why (ICMP, RFC 792 and 1812; ICMPv6, RFC 4443).
///
/// `input` takes the packets from the outputs `error` of the router's other apps, `output` sends the errors; link it to the
/// look-up. Errors to link-local addresses go to `link`, for `nd`. An error has an address of the interface that received the packet, and as much of the packet as fits into 576
/// bytes (IPv4) or 1,280 bytes (IPv6). Errors are not sent about ICMP errors, fragments behind the first, packets to many,
/// and packets whose source is not one host. They are limited to `rate` a second, after `burst` at once; packets beyond
/// that are dropped. Senders that have a better first hop on their link are redirected, with a limit of the same size.
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

/// The part of the errors that is a family's own.
pub trait Family: Send + Sized + 'static {
    /// The app's name.
    const NAME: &'static str;

    /// Bytes of the longest error, without its Ethernet header.
    const MAX_LENGTH: usize;

    /// Why no error is sent about an IP packet, if none is.
    ///
    /// # Errors
    /// The reason for dropping the packet.
    fn may_answer(
        ip: &[u8],
        error: IcmpError,
        received_on: Option<&Interface>,
    ) -> Result<(), DropReason<IcmpErrors<Self>>>;

    /// Writes the error about an IP packet. Returns its length without the Ethernet header, or `None` if the interface
    /// has no address of the family.
    fn write(ip: &[u8], error: IcmpError, interface: &Interface, to: &mut [u8]) -> Option<usize>;

    /// The destination of an IP packet.
    fn destination(ip: &[u8]) -> Option<IpAddr>;

    /// The adjacency of a packet's destination.
    fn look_up(tables: &Vrf, breath: &impl Breath, destination: IpAddr) -> u32;

    /// The next hop of an IP packet on the link of an interface, and its Ethernet address if that is known.
    fn better_hop(tables: &Vrf, breath: &impl Breath, ip: &[u8], number: u16) -> Option<(IpAddr, Option<MacAddr>)> {
        let destination = Self::destination(ip)?;
        let mut found = [Self::look_up(tables, breath, destination)];
        tables.choose_paths(breath, &mut found, |_| 0);
        let adjacency = tables.adjacencies().get(found[0]).filter(|adjacency| adjacency.interface == number)?;
        let mac = MacAddr(std::array::from_fn(|at| adjacency.header[at]));
        let next_hop = adjacency.next_hop.unwrap_or(destination);
        // The packet may have gone another one of several ways, and this one leads to its sender.
        let is_sender = match next_hop {
            IpAddr::V4(next_hop) => ip.get(12..16).is_some_and(|source| source == next_hop.octets()),
            IpAddr::V6(next_hop) => ip.get(8..24).is_some_and(|source| source == next_hop.octets()),
        };
        (!is_sender).then_some((next_hop, (adjacency.kind == Kind::Complete).then_some(mac)))
    }

    /// Writes the message that an IP packet has a better first hop. Returns its length, as [`Family::write`].
    fn write_redirect(
        ip: &[u8],
        interface: &Interface,
        next_hop: IpAddr,
        mac: Option<MacAddr>,
        to: &mut [u8],
    ) -> Option<usize>;

    /// The IPv6 source and destination of an error that was written.
    fn addresses(_: &[u8]) -> Option<[Ipv6Addr; 2]> {
        None
    }
}

/// The place of an output.
const LINK: usize = 1;

/// Writes an ICMP message behind an IP header of so many bytes: its type, its code, the word behind the checksum, and what
/// it quotes. Returns the length with the IP header.
fn compose(
    to: &mut [u8],
    header: usize,
    quoted: &[u8],
    (kind, code, field): (u8, u8, u32),
    addresses: &IpPair,
) -> Option<usize> {
    let length = header + 8 + quoted.len();
    let message = to.get_mut(header..length)?;
    message[..4].copy_from_slice(&[kind, code, 0, 0]);
    message[4..8].copy_from_slice(&field.to_be_bytes());
    message[8..].copy_from_slice(quoted);
    IcmpMessage::new_checked(message).ok()?.fill_checksum(addresses);
    Some(length)
}

/// Tells senders why their packets are not forwarded.
pub struct IcmpErrors<F> {
    domain: Arc<RoutingDomain>,
    /// Those of errors and of redirects.
    limits: [Limit; 2],
    /// Room for an error behind an Ethernet header.
    frame: Vec<u8>,
    family: std::marker::PhantomData<F>,
}

counters! { for[F: Family] IcmpErrors<F>;
    drop RATE_LIMITED = "rate_limited", "packets beyond the limit of errors";
    drop ABOUT_ERROR = "about_icmp_error", "ICMP errors";
    drop ABOUT_FRAGMENT = "about_fragment", "fragments behind the first";
    drop ABOUT_MANY = "about_multicast", "packets to many, or in a frame to many";
    drop ABOUT_SOURCE = "about_source", "packets whose source is not one host";
    drop NO_ADDRESS = "no_address", "packets from interfaces without an address that may be used";
    drop NO_BETTER_HOP = "no_better_hop", "packets about a better first hop that is none any more";
    drop MALFORMED = "malformed", "packets without a whole header";
    count REDIRECT = "redirects_sent", "messages that tell a better first hop";
    count UNREACHABLE = "unreachable_sent", "errors that say that a destination cannot be reached";
    count TOO_BIG = "too_big_sent", "errors that say that a packet is too long for a link";
    count TIME_EXCEEDED = "time_exceeded_sent", "errors that say that a time ran out";
    count PARAMETER_PROBLEM = "parameter_problem_sent", "errors that say that a header is wrong";
}

impl<F: Family> App for IcmpErrors<F> {
    const INPUTS: Ports =
        Ports::Any { at_least: 1, help: "packets that cannot be forwarded, tagged with their errors" };
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("output", "ICMP errors, to look up"),
        Port::optional("link", "ICMPv6 errors to link-local addresses, tagged with their interface"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const ENDS: bool = true;
    const PREFETCH: usize = 4;

    fn push(&mut self, io: &Io<Self>) {
        for index in 0..io.inputs() {
            for packet in &mut io.input(index) {
                match self.answer(io, &packet) {
                    // An error to a link-local address keeps its interface.
                    Ok(Some(error)) => io.output(usize::from(Tag(error.tag()).interface() != 0)).push(error),
                    Ok(None) => io.count_no_buffer(1),
                    Err(reason) => io.drop(packet, reason),
                }
            }
        }
    }
}

impl<F: Family> IcmpErrors<F> {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>, rate: u32, burst: u32) -> IcmpErrors<F> {
        let limits = [Limit::new(rate, burst); 2];
        let frame = vec![0; ETHERNET + F::MAX_LENGTH];
        IcmpErrors { domain, limits, frame, family: std::marker::PhantomData }
    }

    /// The error about a packet, or `None` if there is no buffer.
    fn answer(&mut self, io: &Io<Self>, packet: &Packet) -> Result<Option<Packet>, DropReason<Self>> {
        let (now, tag) = (io.now(), Tag(packet.tag()));
        let error = IcmpError::from_number(tag.number());
        let is_redirect = error.reason == Reason::Redirect;
        let limit = &mut self.limits[usize::from(is_redirect)];
        if !limit.admits(now) {
            return Err(Self::RATE_LIMITED);
        }
        let (ethernet, ip) = packet.bytes().split_at_checked(ETHERNET).ok_or(Self::MALFORMED)?;
        if ethernet[0] & 1 == 1 {
            return Err(Self::ABOUT_MANY);
        }
        let tables = self.domain.tables();
        let interface = tables.interface(tag.interface());
        F::may_answer(ip, error, interface)?;
        let interface = interface.ok_or(Self::NO_ADDRESS)?;
        let states = self.domain.addresses();
        let is_barred = |own: &InterfaceAddress| match own.address {
            IpAddr::V6(address) => states.is_barred(tag.interface(), address),
            IpAddr::V4(_) => false,
        };
        // An address that must not be used leaves the errors to the others.
        let usable;
        let interface = if interface.addresses.iter().any(is_barred) {
            let addresses = interface.addresses.iter().copied().filter(|own| !is_barred(own)).collect();
            usable = Interface { addresses, ..interface.clone() };
            &usable
        } else {
            interface
        };
        let length = if is_redirect {
            let (next_hop, mac) = F::better_hop(tables, io, ip, tag.interface()).ok_or(Self::NO_BETTER_HOP)?;
            F::write_redirect(ip, interface, next_hop, mac, &mut self.frame[ETHERNET..])
        } else {
            F::write(ip, error, interface, &mut self.frame[ETHERNET..])
        };
        let length = length.ok_or(Self::NO_ADDRESS)?;
        let addresses = F::addresses(&self.frame[ETHERNET..]);
        limit.pay(now);
        let counter = match error.reason {
            Reason::Redirect => Self::REDIRECT,
            Reason::TooBig => Self::TOO_BIG,
            Reason::TimeExceeded | Reason::ReassemblyTimeExceeded => Self::TIME_EXCEEDED,
            Reason::ParameterProblem | Reason::Unrecognized => Self::PARAMETER_PROBLEM,
            _ => Self::UNREACHABLE,
        };
        io.count(counter, 1);
        let answer = Packet::from_bytes(&self.frame[..ETHERNET + length]);
        Ok(answer.map(|mut answer| {
            let stays = addresses.is_some_and(|[_, to]| to.is_unicast_link_local()) && io.is_linked(LINK);
            answer.set_tag(Tag::received_on(if stays { tag.interface() } else { 0 }).0);
            answer
        }))
    }
}

impl<F: Family> Configure for IcmpErrors<F> {
    const NAME: &'static str = F::NAME;
    type Config = Config;

    fn bench(_: &BenchFiles) -> Bench {
        Bench::Unmeasured("its rate is limited; `bellows bench router` measures a router without it")
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

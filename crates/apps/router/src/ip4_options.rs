//! `ip4-options`: fills in the options of IPv4 packets that are forwarded.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bellows_common::headers::ETHERNET;
use bellows_common::icmp::{self, Family as _};
use bellows_common::ipv4_options::{FIXED_HEADER, Records, Station};
use bellows_common::nexts::{Next, NextVectors};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_packet::Packet;
use bellows_vrf::adjacency::{Adjacency, special};
use bellows_vrf::{IcmpError, Interface, Reason, Tag};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lookup::flow_hash;
use crate::vrf::RoutingDomain;

/// Fills in the options of IPv4 packets that are forwarded: Record Route and Timestamp (RFC 791, section 3.1; RFC 1812,
/// sections 5.3.13.5 and 5.3.13.6).
///
/// The address that is recorded is one of the interface that the packet will leave by, the one on the next hop's link if
/// there are several; if it has none, one of the interface that received the packet, or else the first one of the
/// router. A packet whose option has no room left is forwarded: a Timestamp option counts the router, unless the sender
/// has listed the addresses. Senders of packets whose option has room for a part of an entry alone, a wrong pointer, a
/// full count, or a wrong length (also of Router Alert, RFC 2113) get an ICMP error (parameter problem) through
/// `error`. So do those of packets that have one of these options twice. All other options pass unchanged, and so do
/// packets for the router itself: `ip4-local` fills in the options of replies to echo requests.
///
/// Only packets with options pass this app; each costs a look-up of its own, because what is recorded depends on its way.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,
}

/// Fills in the options of packets.
pub struct Ip4Options {
    domain: Arc<RoutingDomain>,
    next_vectors: NextVectors,
}

counters! { Ip4Options;
    drop TOO_SHORT = "too_short", "packets without a whole IPv4 header";
    drop BAD_OPTIONS = "bad_options", "packets with an option that cannot be filled in, if `error` is not linked";
    count FILLED_IN = "filled_in", "packets with a Record Route or Timestamp option that were forwarded";
}

/// The places of the outputs.
const OUTPUT: usize = 0;
const ERROR: usize = 1;

impl App for Ip4Options {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets with options, with checked headers")]);
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("output", "packets to look up"),
        Port::optional("error", "packets whose sender is to be told"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        let Ip4Options { domain, next_vectors } = self;
        next_vectors.resize(io.outputs());
        for mut packet in &mut io.input(0) {
            match domain.fill_in_options(io, &mut packet) {
                Next::To(output) => next_vectors.push(output, packet),
                Next::Drop(reason) => io.drop(packet, reason),
            }
        }
        next_vectors.send(io);
    }
}

impl Ip4Options {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>) -> Ip4Options {
        Ip4Options { domain, next_vectors: NextVectors::new() }
    }
}

impl RoutingDomain {
    /// Fills in the options of a packet, if it is forwarded.
    fn fill_in_options(&self, io: &Io<Ip4Options>, packet: &mut Packet) -> Next<Ip4Options> {
        let header = packet.bytes().get(ETHERNET..).and_then(|ip| ip.get(..header_length(ip)?));
        let Some(header) = header else { return Next::Drop(Ip4Options::TOO_SHORT) };
        let records = match Records::find(header) {
            Ok(records) => records,
            Err(_) if !io.is_linked(ERROR) => return Next::Drop(Ip4Options::BAD_OPTIONS),
            Err(at) => {
                let error = IcmpError { reason: Reason::ParameterProblem, value: at as u16 };
                packet.set_tag(Tag(packet.tag()).with(error.number()).0);
                return Next::To(ERROR);
            }
        };
        if !records.is_empty()
            && let Some(address) = self.address_on_the_way(io, packet)
        {
            let is_own = |address: Ipv4Addr| self.tables().has_address(address.into());
            let end = ETHERNET + header.len();
            records.fill_in(&mut packet.bytes_mut()[ETHERNET..end], &Station { address, is_own: &is_own });
            io.count(Ip4Options::FILLED_IN, 1);
        }
        Next::To(OUTPUT)
    }

    /// The address of this router for a packet that is forwarded. `None` if it is not, or if the router has none.
    fn address_on_the_way(&self, io: &Io<Ip4Options>, packet: &Packet) -> Option<Ipv4Addr> {
        let tables = self.tables();
        let destination = icmp::V4::destination(packet.bytes().get(ETHERNET..)?)?.into();
        let mut found = [tables.look_up(io, destination)];
        tables.choose_paths(io, &mut found, |_| flow_hash(packet));
        let Adjacency { interface, next_hop, .. } =
            tables.adjacencies().get(found[0]).filter(|_| found[0] >= special::FIRST)?;
        let near = match next_hop.unwrap_or(destination) {
            IpAddr::V4(near) => near,
            IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
        };
        let chosen = |interface: &Interface| icmp::V4::choose(interface.addresses.iter().copied(), near);
        let first =
            [interface, Tag(packet.tag()).interface()].into_iter().filter_map(|number| tables.interface(number));
        first.chain(tables.interfaces()).find_map(chosen)
    }
}

/// Bytes of an IPv4 header, as it says.
fn header_length(ip: &[u8]) -> Option<usize> {
    Some(usize::from(ip.first()? & 0xf) * 4).filter(|&length| length >= FIXED_HEADER)
}

impl Configure for Ip4Options {
    const NAME: &'static str = "ip4-options";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured("only packets with options pass it; `bellows bench router` measures a router without it")
    }

    fn configure(config: Config, context: &Context) -> Result<Ip4Options, SettingError> {
        Ok(Ip4Options::new(context.object("vrf", &config.vrf)?))
    }
}

#[cfg(test)]
mod tests {
    use bellows_rig::Rig;
    use bellows_vrf::interface::InterfaceAddress;
    use bellows_vrf::{IfExists, RouteSpec, Vrf};
    use bellows_wire::{MacAddr, Sum};

    use super::*;

    use bellows_common::ipv4_options::fill_checksum;

    /// Three interfaces: with one address, with two, and with none of IPv4.
    fn domain() -> Arc<RoutingDomain> {
        let interface = |number: u8, addresses: &[&str]| Interface {
            name: format!("i{number}"),
            port: format!("i{number}"),
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: addresses
                .iter()
                .map(|address| InterfaceAddress {
                    address: address.parse().unwrap(),
                    length: if address.contains(':') { 64 } else { 24 },
                })
                .collect(),
        };
        let interfaces =
            vec![interface(1, &["10.0.1.1"]), interface(2, &["10.0.2.1", "10.0.3.1"]), interface(3, &["2001:db8::1"])];
        let vrf = Vrf::new(interfaces, 16, 1).unwrap();
        let mut changes = vrf.lock();
        for route in ["20.0.0.0/8 via 10.0.3.9", "30.0.0.0/8 via inet6 2001:db8::9", "blackhole 40.0.0.0/8"] {
            changes.add(&RouteSpec::parse(route).unwrap(), IfExists::Refuse).unwrap();
        }
        changes.commit().unwrap();
        drop(changes);
        Arc::new(RoutingDomain::new(vrf))
    }

    fn packet(interface: u16, destination: [u8; 4], options: &[u8]) -> Packet {
        let mut frame = vec![0; ETHERNET + FIXED_HEADER];
        frame.extend(options);
        let ip = &mut frame[ETHERNET..];
        ip[0] = 0x45 + (options.len() / 4) as u8;
        ip[3] = ip.len() as u8 + 8;
        ip[12..16].copy_from_slice(&[10, 0, 1, 9]);
        ip[16..20].copy_from_slice(&destination);
        fill_checksum(ip);
        frame.extend([7; 8]);
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(interface).0);
        packet
    }

    const ROUTE: [u8; 8] = [7, 7, 4, 0, 0, 0, 0, 0];

    fn rig(outputs: &[&str]) -> Rig {
        Rig::new(Ip4Options::new(domain()), &["input"], outputs)
    }

    /// The address that is recorded in a packet to a destination.
    fn recorded(interface: u16, destination: [u8; 4]) -> [u8; 4] {
        let mut rig = rig(&["output"]);
        rig.send_packets("input", [packet(interface, destination, &ROUTE)]);
        rig.settle();
        let frame = rig.received("output").pop().unwrap();
        let header = &frame[ETHERNET..ETHERNET + FIXED_HEADER + 8];
        assert_eq!(Sum::new().add_bytes(header).finish(), 0);
        let entry = *header[23..].first_chunk().unwrap();
        assert_eq!((header[22], rig.counts().counters["filled_in"]), if entry == [0; 4] { (4, 0) } else { (8, 1) });
        entry
    }

    #[test]
    fn the_address_is_that_of_the_interface_that_the_packet_leaves_by() {
        assert_eq!(recorded(1, [10, 0, 2, 9]), [10, 0, 2, 1], "a neighbour on the link");
        assert_eq!(recorded(1, [20, 0, 0, 1]), [10, 0, 3, 1], "a router on the second link");
        assert_eq!(recorded(1, [30, 0, 0, 1]), [10, 0, 1, 1], "one without: that which received the packet");
        assert_eq!(recorded(3, [30, 0, 0, 1]), [10, 0, 1, 1], "neither has one: the first");
        for (nowhere, destination) in
            [("itself", [10, 0, 1, 1]), ("no route", [50, 0, 0, 1]), ("nobody", [40, 0, 0, 1]), ("all", [255; 4])]
        {
            assert_eq!(recorded(1, destination), [0; 4], "{nowhere}");
        }
    }

    #[test]
    fn listed_addresses_are_those_of_any_interface() {
        let mut rig = rig(&["output"]);
        let listed = |address: [u8; 4]| [&[68, 12, 5, 3][..], &address, &[0; 4]].concat();
        for address in [[10, 0, 3, 1], [10, 0, 3, 2]] {
            rig.send_packets("input", [packet(1, [20, 0, 0, 1], &listed(address))]);
        }
        rig.settle();
        let pointers: Vec<u8> = rig.received("output").iter().map(|frame| frame[ETHERNET + 22]).collect();
        assert_eq!(pointers, [13, 5]);
    }

    #[test]
    fn senders_of_wrong_options_are_told() {
        let wrong = || packet(1, [20, 0, 0, 1], &[1, 7, 7, 5, 0, 0, 0, 0]);
        let mut told = rig(&["output", "error"]);
        told.send_packets("input", [wrong()]);
        told.settle();
        let error = IcmpError::from_number(Tag(told.received_packets("error")[0].tag()).number());
        assert_eq!(error, IcmpError { reason: Reason::ParameterProblem, value: 23 });
        let mut silent = rig(&["output"]);
        let mut short = packet(1, [20, 0, 0, 1], &ROUTE);
        short.truncate(ETHERNET + 22);
        silent.send_packets("input", [wrong(), short]);
        silent.settle();
        let drops = silent.counts().drops;
        assert_eq!((drops["bad_options"], drops["too_short"]), (1, 1));
    }

    #[test]
    fn other_options_pass_unchanged() {
        let options = [148, 4, 0, 0, 130, 3, 9, 1];
        let mut rig = rig(&["output"]);
        let sent = packet(1, [20, 0, 0, 1], &options);
        let bytes = sent.bytes().to_vec();
        rig.send_packets("input", [sent]);
        rig.settle();
        // The checksum is corrected to the same one.
        assert_eq!(rig.received("output"), [bytes]);
    }
}

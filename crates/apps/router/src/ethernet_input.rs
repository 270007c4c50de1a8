//! `ethernet-input`: takes the frames of a router's interfaces.
//!
//! There are two versions of one decision, which property tests hold together: `sort` numbers a vector of usual frames,
//! and `RoutingDomain::sort_unusual` decides about any frame, with its VLAN tags.

use std::sync::Arc;

use bellows_common::headers::ETHERNET;
use bellows_common::nexts::{Next, NextVectors};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_packet::{Contents, Packet};
use bellows_vrf::interface::VlanTag;
use bellows_vrf::{Interface, Tag};
use bellows_wire::EtherType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forwarding::{LookAhead, STEP, TYPE_ARP, TYPE_IP4, TYPE_IP6, UNUSUAL, load_u32, load_u64};
use crate::router_bench::{Behind, IN, row};
use crate::vrf::RoutingDomain;

/// Takes the frames of a router's interfaces, and sorts them by protocol.
///
/// Inputs have the names of ports. A frame belongs to the interface of the port that has its VLAN tags; they are removed,
/// so that behind this app the IP header is always at byte 14. Frames for other stations are dropped, and so are IP
/// packets to one host in a frame to all (RFC 1812, section 5.3.4). The tag of each packet tells the next apps its
/// interface.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,
}

/// Takes the frames of interfaces.
pub struct EthernetInput {
    domain: Arc<RoutingDomain>,
    /// What arrives at each input.
    origins: Vec<PortOrigin>,
    next_vectors: NextVectors,
}

/// The interfaces of a port.
#[derive(Default)]
struct PortOrigin {
    /// That of frames without tags: its Ethernet address as the low 48 bits, and the tag for packets.
    untagged: Option<(u64, Tag)>,
    /// Those of frames with tags, by their numbers.
    tagged: Vec<u16>,
}

counters! { EthernetInput;
    drop TOO_SHORT = "too_short", "packets without a whole Ethernet header";
    drop OTHER_STATION = "other_station", "frames for another Ethernet address; likely, if all are: `mac` of the interface is not the address that the neighbours know, or the port is promiscuous";
    drop UNKNOWN_VLAN = "unknown_vlan", "frames with VLAN tags, or without, that no interface of the port has; likely: `vlan` or `service_vlan` is missing at an interface, or the switch sends the VLAN untagged";
    drop LINK_BROADCAST = "link_broadcast", "IP packets to one host in a frame to many";
    drop UNKNOWN_PROTOCOL = "unknown_protocol", "frames that are not IP or ARP, if `other` is not linked";
}

/// The place of the output behind those of IP and ARP.
const OTHER: usize = 3;

impl App for EthernetInput {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "frames of a port" };
    const OUTPUTS: Ports = Ports::Named(&[
        Port::optional("ip4", "IPv4 packets behind an Ethernet header without tags"),
        Port::optional("ip6", "IPv6 packets behind an Ethernet header without tags"),
        Port::optional("arp", "ARP packets behind an Ethernet header without tags"),
        Port::optional("other", "frames of other protocols, without the tags of their interface"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 16;

    fn push(&mut self, io: &Io<Self>) {
        if self.origins.len() != io.inputs() {
            self.rewire(io);
        }
        for index in io.waiting_inputs() {
            self.take(io, index);
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.rewire(io);
    }
}

impl EthernetInput {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>) -> EthernetInput {
        EthernetInput { domain, origins: Vec::new(), next_vectors: NextVectors::new() }
    }

    /// Finds the interfaces of each input.
    #[cold]
    fn rewire(&mut self, io: &Io<Self>) {
        let origin = |input: usize| {
            let port = io.input_name(input).unwrap_or_default();
            let mut origin = PortOrigin::default();
            for (number, interface) in (1..).zip(self.domain.tables().interfaces()) {
                match interface {
                    Interface { port: of, .. } if of != port => {}
                    Interface { tags, mac, .. } if tags.is_empty() => {
                        let address = mac.0.iter().rev().fold(0, |all, &byte| all << 8 | u64::from(byte));
                        origin.untagged = Some((address, Tag::received_on(number)));
                    }
                    _ => origin.tagged.push(number),
                }
            }
            origin
        };
        self.origins = (0..io.inputs()).map(origin).collect();
        self.next_vectors.resize(io.outputs());
    }

    /// Takes the frames of an input. Hot.
    fn take(&mut self, io: &Io<Self>, index: usize) {
        let EthernetInput { domain, origins, next_vectors } = self;
        let mut input = io.input(index);
        let packets = input.contents_mut();
        let origin = &origins[index];
        // No frame has more than 48 bits of an address.
        let (mac, tag) = origin.untagged.unwrap_or((u64::MAX, Tag::received_on(0)));
        let numbers = next_vectors.nexts(packets.packets().len());
        sort(packets, io.prefetch(), mac, tag, numbers);
        next_vectors.send_all(io, index, input, |packet| match domain.sort_unusual(origin, packet) {
            Ok(OTHER) if !io.is_linked(OTHER) => Next::Drop(EthernetInput::UNKNOWN_PROTOCOL),
            Ok(output) => Next::To(output),
            Err(reason) => Next::Drop(reason),
        });
    }
}

/// The numbers of IPv4 and IPv6 packets.
const IP4: u16 = 0;
/// See [`IP4`].
const IP6: u16 = 1;
/// See [`IP4`].
const ARP: u16 = 2;

/// The bits of a loaded address, which are all set in that of all stations.
const ADDRESS: u64 = (1 << 48) - 1;

/// Numbers the frames of an interface by their protocols; if there is none, `mac` is no address. Hot.
#[inline(never)]
fn sort(mut packets: Contents<'_>, ahead: usize, mac: u64, tag: Tag, numbers: &mut [u16]) {
    packets.set_tags(|_| tag.0);
    let all_stations = if mac <= ADDRESS { ADDRESS } else { mac };
    let packets = packets.packets();
    let mut look_ahead = LookAhead::begin(packets, ahead, Packet::prefetch);
    for (packets, numbers) in packets.chunks(STEP).zip(numbers.chunks_mut(STEP)) {
        look_ahead.step(Packet::prefetch);
        for (packet, number) in packets.iter().zip(numbers) {
            *number = match packet.bytes().first_chunk::<ETHERNET>() {
                Some(header) if load_u64(header, 0) & ADDRESS == mac => match load_u32(header, 10) >> 16 {
                    TYPE_IP4 => IP4,
                    TYPE_IP6 => IP6,
                    TYPE_ARP => ARP,
                    _ => UNUSUAL,
                },
                Some(header) if load_u64(header, 0) & ADDRESS == all_stations => match load_u32(header, 10) >> 16 {
                    TYPE_ARP => ARP,
                    _ => UNUSUAL,
                },
                _ => UNUSUAL,
            };
        }
    }
}

impl RoutingDomain {
    /// The output of a frame that is not plain IP to the interface itself, whose tags are removed.
    fn sort_unusual(
        &self,
        origin: &PortOrigin,
        packet: &mut Packet,
    ) -> Result<usize, bellows_engine::DropReason<EthernetInput>> {
        let (tags, count) = tags_of(packet.bytes()).ok_or(EthernetInput::TOO_SHORT)?;
        let untagged = || origin.untagged.map(|(_, tag)| tag.interface());
        let has = |tags: &[VlanTag]| {
            let is = |&&number: &&u16| self.tables().interface(number).is_some_and(|interface| interface.tags == tags);
            origin.tagged.iter().find(is).copied()
        };
        // IEEE 802.1Q: a tag of VLAN 0 has a priority alone.
        let (number, removed) = match &tags[..count] {
            [] => (untagged(), 0),
            [outer, inner] => match (has(&[*outer, *inner]), has(&[*outer])) {
                (Some(number), _) => (Some(number), 2),
                (None, Some(number)) => (Some(number), 1),
                (None, None) if outer.id == 0 => (has(&[*inner]), 2),
                (None, None) => (None, 0),
            },
            [outer, ..] if outer.id == 0 => (untagged(), 1),
            [outer, ..] => (has(&[*outer]), 1),
        };
        let number = number.ok_or(EthernetInput::UNKNOWN_VLAN)?;
        let Some(interface) = self.tables().interface(number) else { return Err(EthernetInput::UNKNOWN_VLAN) };
        packet.set_tag(Tag::received_on(number).0);
        if count > 0 {
            // Tags of VLAN 0 behind them have a priority alone, too: the host would take the packet behind them.
            let mut bytes = removed * TAG;
            while tag_at(packet.bytes(), ADDRESSES + bytes).is_some_and(|tag| tag.id == 0) {
                bytes += TAG;
            }
            // The addresses move behind the tags.
            packet.bytes_mut().copy_within(..ADDRESSES, bytes);
            packet.trim_front(bytes);
        }
        let frame = packet.bytes();
        let Some(header) = frame.first_chunk::<ETHERNET>() else { return Err(EthernetInput::TOO_SHORT) };
        let is_to_many = header[0] & 1 == 1;
        if !is_to_many && header[..6] != interface.mac.0 {
            return Err(EthernetInput::OTHER_STATION);
        }
        let ip = &frame[ETHERNET..];
        match u32::from(u16::from_le_bytes([header[12], header[13]])) {
            TYPE_IP4 if is_to_many && !self.is_for_many_v4(interface, ip) => Err(EthernetInput::LINK_BROADCAST),
            // Multicast addresses begin with ff (RFC 4291, section 2.7).
            TYPE_IP6 if is_to_many && ip.get(24).is_some_and(|&first| first != 0xff) => {
                Err(EthernetInput::LINK_BROADCAST)
            }
            TYPE_IP4 => Ok(IP4.into()),
            TYPE_IP6 => Ok(IP6.into()),
            TYPE_ARP => Ok(ARP.into()),
            _ => Ok(OTHER),
        }
    }

    /// Whether an IPv4 packet may be in a frame to many stations.
    fn is_for_many_v4(&self, interface: &Interface, ip: &[u8]) -> bool {
        let Some(&destination) = ip.get(16..20).and_then(|bytes| bytes.first_chunk::<4>()) else { return true };
        let destination = std::net::Ipv4Addr::from(destination);
        destination.is_multicast() || destination.is_broadcast() || interface.has_broadcast(destination)
    }
}

/// Bytes of the addresses of a frame, and of a VLAN tag.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// Up to two tags of a frame and their number, or `None` if it ends before its type.
fn tags_of(frame: &[u8]) -> Option<([VlanTag; 2], usize)> {
    let mut tags = [VlanTag { protocol: 0, id: 0 }; 2];
    let mut count = 0;
    while let (true, Some(tag)) = (count < 2, tag_at(frame, ADDRESSES + TAG * count)) {
        tags[count] = tag;
        count += 1;
    }
    frame.get(ADDRESSES + TAG * count..)?.first_chunk::<2>()?;
    Some((tags, count))
}

/// The tag at a place of a frame, if there is one.
fn tag_at(frame: &[u8], at: usize) -> Option<VlanTag> {
    let &[a, b, c, d] = frame.get(at..)?.first_chunk()?;
    let protocol = u16::from_be_bytes([a, b]);
    let is_tag = matches!(EtherType(protocol), EtherType::VLAN | EtherType::SERVICE_VLAN);
    is_tag.then_some(VlanTag { protocol, id: u16::from_be_bytes([c, d]) & 0xfff })
}

impl Configure for EthernetInput {
    const NAME: &'static str = "ethernet-input";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Rows(vec![BenchRow { inputs: &[IN], ..row("ip4", Behind::Wire) }])
    }

    fn configure(config: Config, context: &Context) -> Result<EthernetInput, SettingError> {
        Ok(EthernetInput::new(context.object("vrf", &config.vrf)?))
    }
}

//! `counter`: counts packets by size and protocol.

use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, Counter as Named, Counters, Io, Port, Ports, counters};
use bellows_packet::Packet;
use bellows_wire::{EtherType, IpProtocol, Ipv4Packet, Ipv6Packet, ethernet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts packets by size and protocol, and passes them on unchanged.
///
/// The size classes are those of RFC 2819 (`etherStats`), but without the frame check sequence. Each frame also counts
/// once as `arp`, `ipv4`, `ipv6`, `other_ethernet` or `malformed`, after any VLAN tags. Each IP packet also counts as
/// `tcp`, `udp`, `icmp`, `icmpv6` or `other_ip`, and each fragment also as `fragments`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Whether to read the headers. If `false`, only sizes are counted, which is much cheaper: no packet data is
    /// touched.
    pub protocols: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { protocols: true }
    }
}

/// Counts packets.
pub struct Counter {
    protocols: bool,
}

/// The size classes, each with its maximum packet length.
const SIZES: [(usize, Named); 7] = [
    (64, Named::new("size_to_64", "packets of up to 64 bytes")),
    (127, Named::new("size_65_to_127", "packets of 65 to 127 bytes")),
    (255, Named::new("size_128_to_255", "packets of 128 to 255 bytes")),
    (511, Named::new("size_256_to_511", "packets of 256 to 511 bytes")),
    (1_023, Named::new("size_512_to_1023", "packets of 512 to 1,023 bytes")),
    (1_518, Named::new("size_1024_to_1518", "packets of 1,024 to 1,518 bytes")),
    (usize::MAX, Named::new("size_over_1518", "packets of more than 1,518 bytes")),
];

macro_rules! kinds {
    ($($kind:ident = $name:literal, $help:literal;)*) => {
        /// The counters besides sizes.
        #[derive(Clone, Copy)]
        enum CounterKind { $($kind,)* }

        const KINDS: &[Named] = &[$(Named::new($name, $help),)*];
    };
}

kinds! {
    Vlan = "vlan", "frames with a VLAN tag";
    Arp = "arp", "ARP packets";
    Ipv4 = "ipv4", "IPv4 packets";
    Ipv6 = "ipv6", "IPv6 packets";
    OtherEthernet = "other_ethernet", "frames with another EtherType, or none";
    Malformed = "malformed", "frames that are cut short or have invalid headers";
    Tcp = "tcp", "TCP segments";
    Udp = "udp", "UDP datagrams";
    Icmp = "icmp", "ICMP messages";
    Icmpv6 = "icmpv6", "ICMPv6 messages";
    OtherIp = "other_ip", "IP packets of other protocols";
    Fragments = "fragments", "IP packets that are fragments";
}

/// The maximum packet length of each class except the last.
const BOUNDS: [usize; SIZES.len() - 1] = {
    let mut bounds = [0; SIZES.len() - 1];
    let mut class = 0;
    while class < bounds.len() {
        bounds[class] = SIZES[class].0;
        class += 1;
    }
    bounds
};

/// The size classes, then the kinds.
const ROWS: [Named; SIZES.len() + KINDS.len()] = {
    let mut rows = [Named::new("", ""); SIZES.len() + KINDS.len()];
    let mut row = 0;
    while row < rows.len() {
        rows[row] = if row < SIZES.len() { SIZES[row].1 } else { KINDS[row - SIZES.len()] };
        row += 1;
    }
    rows
};

counters! { Counter;
    table COUNTS = ROWS;
}

/// A count for each of [`ROWS`].
struct Tally([u64; ROWS.len()]);

impl Tally {
    #[inline]
    fn count(&mut self, kind: CounterKind) {
        self.0[SIZES.len() + kind as usize] += 1;
    }
}

impl App for Counter {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to count")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        let mut tally = Tally([0; ROWS.len()]);
        count_sizes(input.packets(), &mut tally);
        if self.protocols {
            count_protocols(input.packets(), io.prefetch(), &mut tally);
        }
        for (row, count) in tally.0.into_iter().enumerate().filter(|(_, count)| *count > 0) {
            io.count(Counter::COUNTS.row(row), count);
        }
        io.output(0).forward(&mut input);
    }
}

/// Hot.
fn count_sizes(packets: &[Packet], tally: &mut Tally) {
    for packet in packets {
        let class: usize = BOUNDS.iter().map(|bound| usize::from(packet.len() > *bound)).sum();
        tally.0[class] += 1;
    }
}

/// Hot.
fn count_protocols(packets: &[Packet], prefetch: usize, tally: &mut Tally) {
    packets.iter().take(prefetch).for_each(Packet::prefetch);
    for (index, packet) in packets.iter().enumerate() {
        if let Some(ahead) = packets.get(index + prefetch).filter(|_| prefetch > 0) {
            ahead.prefetch();
        }
        if count_frame(packet.bytes(), tally).is_none() {
            tally.count(CounterKind::Malformed);
        }
    }
}

/// Counts a frame; `None` if it is malformed.
fn count_frame(frame: &[u8], tally: &mut Tally) -> Option<()> {
    let (ether_type, payload) = ethernet::skip_vlan_tags(frame).ok()?;
    let network = match ether_type {
        EtherType::IPV4 => {
            let packet = Ipv4Packet::new_checked(payload).ok()?;
            let fragment = packet.more_fragments() || packet.fragment_offset() > 0;
            count_ip(packet.protocol(), fragment, tally);
            CounterKind::Ipv4
        }
        EtherType::IPV6 => {
            let packet = Ipv6Packet::new_checked(payload).ok()?;
            let upper = packet.upper_layer().ok()?;
            count_ip(upper.protocol, upper.fragment.is_some(), tally);
            CounterKind::Ipv6
        }
        EtherType::ARP => CounterKind::Arp,
        _ => CounterKind::OtherEthernet,
    };
    tally.count(network);
    if payload.len() + ethernet::field::HEADER_LEN < frame.len() {
        tally.count(CounterKind::Vlan);
    }
    Some(())
}

fn count_ip(protocol: IpProtocol, fragment: bool, tally: &mut Tally) {
    let transport = match protocol {
        IpProtocol::TCP => CounterKind::Tcp,
        IpProtocol::UDP => CounterKind::Udp,
        IpProtocol::ICMP => CounterKind::Icmp,
        IpProtocol::ICMPV6 => CounterKind::Icmpv6,
        _ => CounterKind::OtherIp,
    };
    tally.count(transport);
    if fragment {
        tally.count(CounterKind::Fragments);
    }
}

impl Configure for Counter {
    const NAME: &'static str = "counter";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<Counter, SettingError> {
        Ok(Counter { protocols: config.protocols })
    }
}

#[cfg(test)]
mod tests {
    use bellows_rig::Rig;
    use bellows_wire::{MacAddr, UdpFrame};
    use proptest::prelude::*;

    use super::*;
    use std::collections::BTreeMap;
    use std::net::IpAddr;

    fn rig(protocols: bool) -> Rig {
        let counter = Counter::configure(Config { protocols }, &Context::default()).unwrap();
        Rig::new(counter, &["input"], &["output"])
    }

    /// The counters that are not 0.
    fn counted(frames: &[Vec<u8>], protocols: bool) -> BTreeMap<String, u64> {
        let mut rig = rig(protocols);
        rig.send("input", frames);
        rig.settle();
        assert_eq!(rig.received("output"), frames);
        rig.counts().counters.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    fn expected<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<String, u64> {
        counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }

    fn udp(size: usize, src: IpAddr, vlan: Option<u16>) -> Vec<u8> {
        let mac = MacAddr::BROADCAST;
        let headers = UdpFrame { src_mac: mac, dst_mac: mac, vlan, src, dst: src, src_port: 1, dst_port: 2, ttl: 64 };
        headers.build(size, |_| {}).unwrap()
    }

    #[test]
    fn sizes_fall_into_the_classes_of_rfc_2819() {
        let frames: Vec<Vec<u8>> =
            [0, 64, 65, 127, 128, 255, 256, 511, 512, 1023, 1024, 1518, 1519, 9000].map(|size| vec![0; size]).into();
        let classes = SIZES.iter().map(|(_, counter)| (counter.name.to_owned(), 2)).collect::<BTreeMap<_, _>>();
        assert_eq!(counted(&frames, false), classes);
    }

    #[test]
    fn protocols_are_distinguished() {
        let (v4, v6) = (IpAddr::from([192, 0, 2, 1]), "2001:db8::1".parse().unwrap());
        let mut tcp = udp(60, v4, None);
        tcp[23] = 6;
        let mut fragment = udp(60, v4, None);
        fragment[20] = 0x20;
        let mut icmpv6 = udp(64, v6, None);
        icmpv6[20] = 58;
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        let mut cut = udp(60, v4, None);
        cut.truncate(30);
        let frames =
            [udp(60, v4, Some(7)), udp(64, v6, None), tcp, fragment, icmpv6, arp, cut, vec![0; 60], vec![0; 13]];
        let counts = [
            ("size_to_64", 9),
            ("vlan", 1),
            ("ipv4", 3),
            ("ipv6", 2),
            ("arp", 1),
            ("other_ethernet", 1),
            ("malformed", 2),
            ("udp", 3),
            ("tcp", 1),
            ("icmpv6", 1),
            ("fragments", 1),
        ];
        assert_eq!(counted(&frames, true), expected(counts));
    }

    proptest! {
        /// For any bytes, each packet has one size and one kind, and each IP packet one protocol.
        #[test]
        fn each_packet_counts_once(
            frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..100), 0..4u8), 0..50)
        ) {
            let mut frames = frames;
            for (frame, kind) in &mut frames {
                let ether_type: [u8; 2] = [[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00], [0x12, 0x34]][usize::from(*kind)];
                if let Some(bytes) = frame.get_mut(12..14) {
                    bytes.copy_from_slice(&ether_type);
                }
                if let Some(version) = frame.get_mut(14) {
                    *version = [0x45, 0x60, 0, 0][usize::from(*kind)];
                }
                if let Some(length) = frame.get_mut(16..20) {
                    length.copy_from_slice(&[[0, 30, 0, 0], [0; 4], [0; 4], [0; 4]][usize::from(*kind)]);
                }
            }
            let frames: Vec<Vec<u8>> = frames.into_iter().map(|(frame, _)| frame).collect();
            let counts = counted(&frames, true);
            let sum = |names: &[&str]| names.iter().filter_map(|name| counts.get(*name)).sum::<u64>();
            let sizes: u64 = counts.iter().filter(|(name, _)| name.starts_with("size")).map(|(_, count)| count).sum();
            prop_assert_eq!(sizes, frames.len() as u64);
            prop_assert_eq!(sum(&["arp", "ipv4", "ipv6", "other_ethernet", "malformed"]), frames.len() as u64);
            prop_assert_eq!(sum(&["ipv4", "ipv6"]), sum(&["tcp", "udp", "icmp", "icmpv6", "other_ip"]));
        }
    }
}

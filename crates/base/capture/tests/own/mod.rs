//! The project's own captures, generated: every variant of the formats, with packets of all important protocols.
//!
//! [`all`] makes them; the files in `tests/captures` have the same bytes. The generator uses no code of the library, so
//! reading them tests the library.

mod frames;

use crate::common::{
    Order, Owned, block, enhanced_packet, interface_description, obsolete_packet, option, pcap_header, pcap_record,
    simple_packet,
};
use frames::{V4, V4_BACK, V6, V6_BACK};

/// A capture, and the expected result of reading it.
pub struct Made {
    /// The file's name.
    pub name: &'static str,
    pub bytes: Vec<u8>,
    /// The link type of each interface.
    pub links: Vec<u32>,
    pub records: Vec<Owned>,
    /// Whether reading ends with an error, after the records.
    pub is_damaged: bool,
}

const LITTLE: Order = Order { big: false };
const BIG: Order = Order { big: true };

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;
const MODIFIED: u32 = 0xa1b2_cd34;

const NULL: u32 = 0;
const ETHERNET: u32 = 1;
const PPP: u32 = 9;
const RAW: u32 = 101;
const WIRELESS: u32 = 105;
const LOOP: u32 = 108;
const COOKED: u32 = 113;
const PRIVATE: u32 = 147;
const IPV4: u32 = 228;
const IPV6: u32 = 229;
const COOKED_2: u32 = 276;

/// libpcap's snap length for "no limit".
const WHOLE: u32 = 262_144;

/// A second in November 2023.
const START: u64 = 1_700_000_000;
const SECOND: u64 = 1_000_000_000;

/// A packet and its time, in nanoseconds.
type Timed = (u64, Vec<u8>);

/// Packets at regular intervals.
fn timed(frames: Vec<Vec<u8>>) -> Vec<Timed> {
    let time = |number: u64| START * SECOND + number * 123_456_789 + number % 7 * 1_001;
    (0..).map(time).zip(frames).collect()
}

/// The fields of a pcap file's header.
#[derive(Clone, Copy)]
struct Pcap {
    order: Order,
    magic: u32,
    minor_version: u16,
    snap_length: u32,
    link: u32,
}

const PLAIN: Pcap = Pcap { order: LITTLE, magic: MICROSECONDS, minor_version: 4, snap_length: WHOLE, link: ETHERNET };

/// A pcap file of packets truncated to the snap length.
fn pcap(name: &'static str, header: Pcap, packets: &[Timed]) -> Made {
    let Pcap { order, magic, minor_version, snap_length, link } = header;
    let unit = if magic == NANOSECONDS { 1 } else { 1_000 };
    let extra = if magic == MODIFIED { &[0, 0, 0, 2, 8, 0, 0, 0][..] } else { &[] };
    let mut bytes = pcap_header(order, magic, minor_version, snap_length, link);
    let mut records = Vec::new();
    for (time, frame) in packets {
        let data = &frame[..frame.len().min(snap_length as usize)];
        let (seconds, fraction) = ((time / SECOND) as u32, (time % SECOND / unit) as u32);
        let mut record = pcap_record(order, seconds, fraction, frame.len() as u32, extra, data);
        // The original length came first until version 2.3, in which some programs still wrote it so.
        if minor_version < 4 {
            let (captured, original) = record[8..16].split_at_mut(4);
            captured.swap_with_slice(original);
        }
        bytes.extend(record);
        let (timestamp, original_length) = (time / unit * unit, frame.len() as u32);
        records.push(Owned { data: data.to_vec(), timestamp, original_length, interface: 0 });
    }
    // The bits above the link type describe check sequences.
    Made { name, bytes, links: vec![link & 0x03ff_ffff], records, is_damaged: false }
}

/// A pcapng file that grows by blocks.
struct Pcapng {
    made: Made,
    order: Order,
    /// The index of the section's first interface among all interfaces.
    first: usize,
    /// Snap lengths of all interfaces.
    snap_lengths: Vec<u32>,
}

/// Codes of pcapng's options, and types of its rarer blocks.
mod code {
    pub const COMMENT: u16 = 1;
    pub const SECTION_HARDWARE: u16 = 2;
    pub const SECTION_SYSTEM: u16 = 3;
    pub const SECTION_PROGRAM: u16 = 4;
    pub const IF_NAME: u16 = 2;
    pub const IF_DESCRIPTION: u16 = 3;
    pub const IF_SPEED: u16 = 8;
    pub const IF_RESOLUTION: u16 = 9;
    pub const IF_OFFSET: u16 = 14;
    pub const PACKET_FLAGS: u16 = 2;
    pub const PACKET_DROPS: u16 = 4;

    pub const NAME_RESOLUTION: u32 = 4;
    pub const STATISTICS: u32 = 5;
    pub const ENHANCED_PACKET: u32 = 6;
    pub const SECRETS: u32 = 10;
    pub const SECTION_HEADER: u32 = 0x0a0d_0d0a;
    pub const CUSTOM: u32 = 0x0000_0bad;
    pub const LOCAL: u32 = 0x8000_1234;
}

/// Microseconds, the default of interfaces.
fn microseconds(time: u64) -> (u64, u64) {
    (time / 1_000, time / 1_000 * 1_000)
}

impl Pcapng {
    fn new(name: &'static str, order: Order) -> Pcapng {
        let made = Made { name, bytes: Vec::new(), links: Vec::new(), records: Vec::new(), is_damaged: false };
        Pcapng { made, order, first: 0, snap_lengths: Vec::new() }.section(order, 0, &[])
    }

    fn block(mut self, block_type: u32, body: &[u8]) -> Pcapng {
        self.made.bytes.extend(block(self.order, block_type, body));
        self
    }

    /// Begins a section. At the start of the file, it replaces the first section.
    fn section(mut self, order: Order, minor_version: u16, options: &[(u16, &[u8])]) -> Pcapng {
        if self.made.links.is_empty() {
            self.made.bytes.clear();
        }
        (self.order, self.first) = (order, self.made.links.len());
        let fields = [&order.u32(0x1a2b_3c4d)[..], &order.u16(1), &order.u16(minor_version), &[0xff; 8]].concat();
        let options = self.options(options);
        self.block(code::SECTION_HEADER, &[fields, options].concat())
    }

    fn options(&self, options: &[(u16, &[u8])]) -> Vec<u8> {
        if options.is_empty() {
            return Vec::new();
        }
        options.iter().chain(&[(0, &[][..])]).flat_map(|(code, value)| option(self.order, *code, value)).collect()
    }

    fn interface(mut self, link: u32, snap_length: u32, options: &[(u16, &[u8])]) -> Pcapng {
        let options = self.options(options);
        self.made.bytes.extend(interface_description(self.order, link as u16, snap_length, &options));
        self.made.links.push(link);
        self.snap_lengths.push(snap_length);
        self
    }

    /// The bytes that the section's interface `interface` keeps of a packet.
    fn kept(&self, interface: usize, frame: &[u8]) -> Vec<u8> {
        match self.snap_lengths[self.first + interface] as usize {
            0 => frame.to_vec(),
            most => frame[..frame.len().min(most)].to_vec(),
        }
    }

    fn record(&mut self, interface: usize, timestamp: u64, frame: &[u8]) {
        let (data, original_length) = (self.kept(interface, frame), frame.len() as u32);
        let interface = (self.first + interface) as u32;
        self.made.records.push(Owned { data, timestamp, original_length, interface });
    }

    /// A packet; `ticks` converts its time to the interface's unit, and to the time that this represents in
    /// nanoseconds.
    fn packet_by(mut self, interface: usize, ticks: impl Fn(u64) -> (u64, u64), packet: &Timed) -> Pcapng {
        let (ticks, timestamp) = ticks(packet.0);
        let data = self.kept(interface, &packet.1);
        let length = packet.1.len() as u32;
        self.made.bytes.extend(enhanced_packet(self.order, interface as u32, ticks, length, &data));
        self.record(interface, timestamp, &packet.1);
        self
    }

    fn packet(self, interface: usize, packet: &Timed) -> Pcapng {
        self.packet_by(interface, microseconds, packet)
    }

    fn packets(self, interface: usize, packets: &[Timed]) -> Pcapng {
        packets.iter().fold(self, |file, packet| file.packet(interface, packet))
    }

    /// A packet, followed by options.
    fn packet_with(mut self, packet: &Timed, options: &[(u16, &[u8])]) -> Pcapng {
        let (ticks, timestamp) = microseconds(packet.0);
        let length = packet.1.len() as u32;
        let fields = [0, (ticks >> 32) as u32, ticks as u32, length, length].map(|field| self.order.u32(field));
        let mut body = [fields.concat(), packet.1.clone()].concat();
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(self.options(options));
        self.record(0, timestamp, &packet.1);
        self.block(code::ENHANCED_PACKET, &body)
    }

    fn simple(mut self, packet: &Timed) -> Pcapng {
        let data = self.kept(0, &packet.1);
        self.made.bytes.extend(simple_packet(self.order, packet.1.len() as u32, &data));
        self.record(0, 0, &packet.1);
        self
    }

    fn obsolete(mut self, interface: usize, packet: &Timed) -> Pcapng {
        let (ticks, timestamp) = microseconds(packet.0);
        let data = self.kept(interface, &packet.1);
        let length = packet.1.len() as u32;
        self.made.bytes.extend(obsolete_packet(self.order, interface as u16, ticks, length, &data));
        self.record(interface, timestamp, &packet.1);
        self
    }

    fn end(self) -> Made {
        self.made
    }
}

/// The capture without its last bytes; `records` of it are complete.
fn cut(name: &'static str, mut made: Made, bytes: usize, records: usize) -> Made {
    made.bytes.truncate(made.bytes.len() - bytes);
    made.records.truncate(records);
    Made { name, is_damaged: true, ..made }
}

/// The capture with some bytes replaced; `records` come before them.
fn changed(name: &'static str, mut made: Made, at: usize, bytes: &[u8], records: usize) -> Made {
    made.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    made.records.truncate(records);
    Made { name, is_damaged: true, ..made }
}

/// A file that is not a capture, so that even its header cannot be read.
fn unreadable(name: &'static str, bytes: Vec<u8>) -> Made {
    Made { name, bytes, links: Vec::new(), records: Vec::new(), is_damaged: true }
}

/// All captures.
pub fn all() -> Vec<Made> {
    [pcap_files(), protocols(), link_types(), pcapng_files(), damaged(), compressed()].into_iter().flatten().collect()
}

/// The variants of classic pcap.
fn pcap_files() -> Vec<Made> {
    let seconds = |times: &[u64]| -> Vec<Timed> {
        times.iter().map(|time| (time * SECOND + 999_999_999, frames::mixed_sizes().remove(0))).collect()
    };
    // 1970, the last seconds of 31 and of 32 bits, and back.
    let times = seconds(&[0, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, START, START - 1]);
    let longer = |header: Pcap| {
        let mut made = pcap("longer-than-snaplen.pcap", header, &timed(frames::mixed_sizes()));
        made.bytes[16..20].copy_from_slice(&header.order.u32(100));
        made
    };
    vec![
        pcap("little-us.pcap", PLAIN, &timed(frames::mixed_sizes())),
        pcap("big-us.pcap", Pcap { order: BIG, ..PLAIN }, &timed(frames::mixed_sizes())),
        pcap("little-ns.pcap", Pcap { magic: NANOSECONDS, ..PLAIN }, &timed(frames::mixed_sizes())),
        pcap("big-ns.pcap", Pcap { order: BIG, magic: NANOSECONDS, ..PLAIN }, &timed(frames::mixed_sizes())),
        pcap("little-modified.pcap", Pcap { magic: MODIFIED, ..PLAIN }, &timed(frames::mixed_sizes())),
        pcap("big-modified.pcap", Pcap { order: BIG, magic: MODIFIED, ..PLAIN }, &timed(frames::mixed_sizes())),
        pcap("version-2.2.pcap", Pcap { minor_version: 2, ..PLAIN }, &timed(frames::mixed_sizes())),
        pcap("version-2.3.pcap", Pcap { minor_version: 3, snap_length: 96, ..PLAIN }, &timed(frames::mixed_sizes())),
        pcap("snaplen-14.pcap", Pcap { snap_length: 14, ..PLAIN }, &timed(frames::mixed_sizes())),
        pcap(
            "snaplen-45.pcap",
            Pcap { order: BIG, snap_length: 45, ..PLAIN },
            &timed([frames::tcp_conversation([V4, V4_BACK], 2), frames::udp_datagrams()].concat()),
        ),
        longer(PLAIN),
        pcap("check-sequence.pcap", Pcap { link: ETHERNET | 0x2400_0000, ..PLAIN }, &timed(frames::with_fcs())),
        pcap("times.pcap", Pcap { magic: NANOSECONDS, ..PLAIN }, &times),
        pcap("no-packets.pcap", PLAIN, &[]),
        pcap("runts.pcap", PLAIN, &timed(frames::runts())),
        pcap("jumbo.pcap", PLAIN, &timed(frames::jumbo_frames())),
    ]
}

/// Packets by protocol, on Ethernet.
fn protocols() -> Vec<Made> {
    [
        ("arp-icmp.pcap", frames::arp_and_icmp()),
        ("tcp-ipv4.pcap", frames::tcp_conversation([V4, V4_BACK], 12)),
        ("tcp-ipv6.pcap", frames::tcp_conversation([V6, V6_BACK], 6)),
        ("udp-dns.pcap", frames::udp_datagrams()),
        ("vlan-qinq.pcap", frames::vlans()),
        ("icmpv6.pcap", frames::icmpv6()),
        ("ipv6-extensions.pcap", frames::ipv6_extensions()),
        ("fragments.pcap", frames::fragments()),
        ("vxlan.pcap", frames::vxlan()),
        ("gre.pcap", frames::gre()),
        ("mpls.pcap", frames::mpls()),
        ("tunnels.pcap", frames::tunnels()),
        ("igmp.pcap", frames::igmp()),
        ("stp-llc.pcap", frames::link_control()),
        ("mistakes.pcap", frames::mistakes()),
    ]
    .map(|(name, frames)| pcap(name, PLAIN, &timed(frames)))
    .into()
}

/// Packets by link type. Loopback's family is in the byte order of the machine, which is the file's; OpenBSD's is
/// big-endian.
fn link_types() -> Vec<Made> {
    let on = |name, order, link, frames| pcap(name, Pcap { order, link, ..PLAIN }, &timed(frames));
    vec![
        on("loopback-little.pcap", LITTLE, NULL, frames::loopback(|family| family.to_le_bytes())),
        on("loopback-big.pcap", BIG, NULL, frames::loopback(|family| family.to_be_bytes())),
        on("loopback-openbsd.pcap", LITTLE, LOOP, frames::loopback(|family| family.to_be_bytes())),
        on("raw-ip.pcap", LITTLE, RAW, frames::ip_packets()),
        on("raw-ipv4.pcap", LITTLE, IPV4, frames::v4_packets()),
        on("raw-ipv6.pcap", BIG, IPV6, frames::v6_packets()),
        on("cooked.pcap", LITTLE, COOKED, frames::cooked()),
        on("cooked-v2.pcap", LITTLE, COOKED_2, frames::cooked_2()),
        on("ppp.pcap", LITTLE, PPP, frames::ppp()),
        on("wireless.pcap", LITTLE, WIRELESS, frames::wireless()),
        on("private.pcap", LITTLE, PRIVATE, frames::private()),
    ]
}

/// The variants of pcapng.
fn pcapng_files() -> Vec<Made> {
    let packets = timed(frames::mixed_sizes());
    let some = &packets[..4];
    let ethernet = |name, order| Pcapng::new(name, order).interface(ETHERNET, 0, &[]);

    let sections = ethernet("sections.pcapng", LITTLE).packets(0, some).section(LITTLE, 2, &[]);
    let sections = sections.interface(ETHERNET, 0, &[]).packets(0, some).section(LITTLE, 0, &[]);
    let mixed_orders = ethernet("sections-both-orders.pcapng", LITTLE).packets(0, some).section(BIG, 0, &[]);

    // Each interface has its own unit: ms, ns, 2^-20 s, s, and ps with an offset.
    let since = START - 10;
    let resolutions = ethernet("resolutions.pcapng", BIG)
        .interface(ETHERNET, 0, &[(code::IF_RESOLUTION, &[3])])
        .interface(ETHERNET, 0, &[(code::IF_RESOLUTION, &[9])])
        .interface(ETHERNET, 0, &[(code::IF_RESOLUTION, &[128 + 20])])
        .interface(ETHERNET, 0, &[(code::IF_RESOLUTION, &[0])])
        .interface(ETHERNET, 0, &[(code::IF_RESOLUTION, &[12]), (code::IF_OFFSET, &since.to_be_bytes())]);
    let resolutions = packets.iter().fold(resolutions, |file, packet| {
        let binary = |time: u64| {
            let ticks = (u128::from(time) << 20) / u128::from(SECOND);
            (ticks as u64, ((ticks * u128::from(SECOND)) >> 20) as u64)
        };
        file.packet(0, packet)
            .packet_by(1, |time| (time / 1_000_000, time / 1_000_000 * 1_000_000), packet)
            .packet_by(2, |time| (time, time), packet)
            .packet_by(3, binary, packet)
            .packet_by(4, |time| (time / SECOND, time / SECOND * SECOND), packet)
            .packet_by(5, |time| ((time - since * SECOND) * 1_000, time), packet)
    });

    let link_types = ethernet("link-types.pcapng", LITTLE).interface(RAW, 0, &[]).interface(COOKED, 0, &[]);
    let link_types = link_types.packets(0, some).packets(1, &timed(frames::ip_packets()));
    let link_types = link_types.packets(2, &timed(frames::cooked()));

    let names = [&BIG.u16(1)[..], &BIG.u16(16), &[192, 0, 2, 1], b"client.test\0", &[0; 4]].concat();
    let statistics = [0, 0x0006_0a0b, 0x1234_5678].map(|field| BIG.u32(field)).concat();
    let other_blocks = Pcapng::new("other-blocks.pcapng", BIG)
        .section(
            BIG,
            0,
            &[
                (code::COMMENT, "made for tests: \u{e9}, \u{2713}".as_bytes()),
                (code::SECTION_HARDWARE, b"none"),
                (code::SECTION_SYSTEM, b"any"),
                (code::SECTION_PROGRAM, b"a generator"),
            ],
        )
        .block(code::LOCAL, &[1, 2, 3, 4])
        .interface(
            ETHERNET,
            0,
            &[
                (code::IF_NAME, b"port0"),
                (code::IF_DESCRIPTION, b"the first"),
                (code::IF_SPEED, &[0, 0, 0, 2, 0x54, 0xb, 0xe4, 0]),
            ],
        )
        .block(code::NAME_RESOLUTION, &names)
        .packet_with(&packets[0], &[(code::COMMENT, b"the first packet"), (code::COMMENT, b"twice")])
        .block(code::CUSTOM, &[&BIG.u32(32_473)[..], b"anything"].concat())
        .packet_with(
            &packets[1],
            &[(code::PACKET_FLAGS, &[0, 0, 0, 1]), (code::PACKET_DROPS, &[0, 0, 0, 0, 0, 0, 0, 3])],
        )
        .block(code::SECRETS, &[&BIG.u32(0x544c_534b)[..], &BIG.u32(8), b"a secret"].concat())
        .packet(0, &packets[2])
        .block(code::STATISTICS, &statistics);

    let snapped = Pcapng::new("simple-cut.pcapng", LITTLE).interface(ETHERNET, 40, &[]);
    let late = ethernet("interface-between-packets.pcapng", LITTLE).packets(0, some).interface(ETHERNET, 0, &[]);
    vec![
        ethernet("little.pcapng", LITTLE).packets(0, &packets).end(),
        ethernet("big.pcapng", BIG).packets(0, &packets).end(),
        sections.interface(ETHERNET, 0, &[]).packets(0, some).end(),
        mixed_orders.interface(ETHERNET, 0, &[]).packets(0, some).end(),
        resolutions.end(),
        link_types.end(),
        other_blocks.end(),
        packets.iter().fold(ethernet("simple.pcapng", LITTLE), Pcapng::simple).end(),
        packets.iter().fold(snapped, Pcapng::simple).end(),
        some.iter().fold(ethernet("obsolete.pcapng", LITTLE), |file, packet| file.obsolete(0, packet)).end(),
        some.iter().fold(ethernet("obsolete-big.pcapng", BIG), |file, packet| file.obsolete(0, packet)).end(),
        late.packets(1, some).packets(0, some).end(),
        Pcapng::new("no-interfaces.pcapng", LITTLE).end(),
        ethernet("no-packets.pcapng", BIG).end(),
    ]
}

/// The results of a full disk, a killed program or a bad copy.
fn damaged() -> Vec<Made> {
    let packets = &timed(frames::mixed_sizes())[..4];
    let capture = |name| pcap(name, PLAIN, packets);
    let sections = |name| Pcapng::new(name, LITTLE).interface(ETHERNET, 0, &[]).packets(0, packets).end();
    // In the third record: after the file's header and two records.
    let third = capture("").bytes.len() - 2 * (16 + packets[3].1.len());
    assert_eq!(packets[2].1.len(), packets[3].1.len());
    let enhanced = 32 + packets[3].1.len();
    let last_block = sections("").bytes.len() - enhanced;
    vec![
        unreadable("empty.pcap", Vec::new()),
        unreadable("cut-in-file-header.pcap", capture("").bytes[..20].to_vec()),
        unreadable("version-3.0.pcap", [&capture("").bytes[..4], &[3, 0, 0, 0], &capture("").bytes[8..]].concat()),
        cut("cut-in-record-header.pcap", capture(""), packets[3].1.len() + 3, 3),
        cut("cut-in-packet.pcap", capture(""), 1, 3),
        changed("record-too-long.pcap", capture(""), third + 8, &[0, 0, 0, 0x7f], 2),
        cut("cut-in-block.pcapng", sections(""), 5, 3),
        changed("lengths-differ.pcapng", sections(""), last_block + enhanced - 4, &[8, 0, 0, 0], 3),
        changed("unknown-interface.pcapng", sections(""), last_block + 8, &[7, 0, 0, 0], 3),
        changed("packet-beyond-block.pcapng", sections(""), last_block + 20, &[0, 1, 0, 0], 3),
    ]
}

/// The check sequence of Ethernet and of gzip.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// Compressed files with stored (uncompressed) blocks.
fn compressed() -> Vec<Made> {
    let capture = |name| pcap(name, PLAIN, &timed(frames::mixed_sizes()));
    let (mut gzip, mut zstd) = (capture("compressed.pcap.gz"), capture("compressed.pcap.zst"));
    let length = gzip.bytes.len() as u32;
    let (short, long) = ((length as u16).to_le_bytes(), length.to_le_bytes());
    let sum = crc32(&gzip.bytes).to_le_bytes();
    let opposite = (!(length as u16)).to_le_bytes();
    // No name and no time; one block, the last.
    gzip.bytes =
        [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 1][..], &short, &opposite, &gzip.bytes, &sum, &long].concat();
    // One segment, its length in 4 bytes; one raw block, the last.
    let block = (length << 3 | 1).to_le_bytes();
    zstd.bytes = [&[0x28, 0xb5, 0x2f, 0xfd, 0xa0][..], &long, &block[..3], &zstd.bytes].concat();
    vec![gzip, zstd]
}

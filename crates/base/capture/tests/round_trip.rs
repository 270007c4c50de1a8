//! Round trips: random records through every variant of the formats, from independent writers and from the crate's own.

mod common;

use std::io::{self, Read, Write};

use bellows_capture::{
    Endianness, Interface, LinkType, OutputFormat, Reader, Record, TimestampResolution, Writer, WriterOptions,
};
use common::{
    Order, Owned, Transcript, block, enhanced_packet, interface_description, obsolete_packet, option, pcap_header,
    pcap_record, section_header, simple_packet,
};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn order() -> impl Strategy<Value = Order> {
    any::<bool>().prop_map(|big| Order { big })
}

fn endianness(order: Order) -> Endianness {
    if order.big { Endianness::Big } else { Endianness::Little }
}

/// Mostly small packets, and a few that are larger than any usual buffer.
fn data() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        10 => prop::collection::vec(any::<u8>(), 0..200),
        1 => (0..=262_144usize, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ]
}

#[derive(Clone, Copy, Debug)]
struct PcapVariant {
    order: Order,
    nanoseconds: bool,
    modified: bool,
    minor_version: u16,
}

fn pcap_variant() -> impl Strategy<Value = PcapVariant> {
    (order(), 0..3u8, 0..=4u16).prop_map(|(order, magic, minor_version)| PcapVariant {
        order,
        nanoseconds: magic == 1,
        modified: magic == 2,
        minor_version,
    })
}

/// One packet of a pcap file.
#[derive(Clone, Debug)]
struct PcapPacket {
    seconds: u32,
    fraction: u32,
    more: u32,
    data: Vec<u8>,
}

fn pcap_packet() -> impl Strategy<Value = PcapPacket> {
    (any::<u32>(), 0..1_000_000u32, 0..100_000u32, data()).prop_map(|(seconds, fraction, more, data)| PcapPacket {
        seconds,
        fraction,
        more,
        data,
    })
}

fn naive_pcap(variant: PcapVariant, link: u32, packets: &[PcapPacket]) -> Vec<u8> {
    let magic = match variant {
        PcapVariant { nanoseconds: true, .. } => 0xa1b2_3c4d,
        PcapVariant { modified: true, .. } => 0xa1b2_cd34,
        _ => 0xa1b2_c3d4,
    };
    let mut file = pcap_header(variant.order, magic, variant.minor_version, 262_144, link);
    for PcapPacket { seconds, fraction, more, data } in packets {
        let original = data.len() as u32 + more;
        let extra: &[u8] = if variant.modified { &[0x55; 8] } else { &[] };
        let mut record = pcap_record(variant.order, *seconds, *fraction, original, extra, data);
        // Programs that wrote version 2.3 disagreed about the order of the lengths.
        if variant.minor_version < 3 || (variant.minor_version == 3 && seconds % 2 == 1) {
            record[8..16].rotate_left(4);
        }
        file.extend(record);
    }
    file
}

/// An interface of a pcapng section.
#[derive(Clone, Debug)]
struct NgInterface {
    link_type: u16,
    snap_length: u32,
    resolution: Option<TimestampResolution>,
    offset: Option<i64>,
    name: Option<String>,
}

fn ng_interface() -> impl Strategy<Value = NgInterface> {
    let resolution = prop_oneof![
        (0..=19u8).prop_map(TimestampResolution::PowerOfTen),
        (0..=63u8).prop_map(TimestampResolution::PowerOfTwo),
    ];
    let offset = prop_oneof![-1_000..1_000i64, any::<i64>()];
    (
        prop_oneof![Just(1u16), any::<u16>()],
        prop_oneof![Just(0u32), Just(64), 0..300_000u32],
        prop::option::of(resolution),
        prop::option::of(offset),
        prop::option::of("[a-zäé0-9]{0,15}"),
    )
        .prop_map(|(link_type, snap_length, resolution, offset, name)| NgInterface {
            link_type,
            snap_length,
            resolution,
            offset,
            name,
        })
}

impl NgInterface {
    fn resolution(&self) -> TimestampResolution {
        self.resolution.unwrap_or(TimestampResolution::MICROSECONDS)
    }

    fn bytes(&self, order: Order) -> Vec<u8> {
        let mut options = option(order, 1, b"a comment");
        if let Some(name) = &self.name {
            options.extend(option(order, 2, name.as_bytes()));
        }
        if let Some(resolution) = self.resolution {
            options.extend(option(
                order,
                9,
                &[match resolution {
                    TimestampResolution::PowerOfTen(power) => power,
                    TimestampResolution::PowerOfTwo(power) => power | 0x80,
                }],
            ));
        }
        if let Some(offset) = self.offset {
            options.extend(option(order, 14, &order.u64(offset as u64)));
        }
        options.extend(option(order, 0, &[]));
        interface_description(order, self.link_type, self.snap_length, &options)
    }

    /// The definition, without regard for speed.
    fn nanoseconds(&self, ticks: u64) -> u64 {
        let per_second = match self.resolution() {
            TimestampResolution::PowerOfTen(power) => 10u128.pow(power.into()),
            TimestampResolution::PowerOfTwo(power) => 1u128 << power,
        };
        let ticks = (u128::from(ticks) * u128::from(SECOND) / per_second) as i128;
        (ticks + i128::from(self.offset.unwrap_or(0)) * i128::from(SECOND)).clamp(0, u64::MAX.into()) as u64
    }

    fn expected(&self) -> Interface {
        Interface {
            link_type: LinkType(self.link_type.into()),
            snap_length: self.snap_length,
            resolution: self.resolution(),
            link_flags: 0,
            name: self.name.clone(),
        }
    }
}

#[derive(Clone, Debug)]
enum NgBlock {
    Enhanced { interface: prop::sample::Index, ticks: u64, more: u32, data: Vec<u8> },
    Obsolete { interface: prop::sample::Index, ticks: u64, more: u32, data: Vec<u8> },
    Simple { data: Vec<u8> },
    Interface(NgInterface),
    Other { block_type: u32, body: Vec<u8> },
}

fn ng_block() -> impl Strategy<Value = NgBlock> {
    let packet = || (any::<prop::sample::Index>(), any::<u64>(), 0..100_000u32, data());
    prop_oneof![
        4 => packet().prop_map(|(interface, ticks, more, data)| NgBlock::Enhanced { interface, ticks, more, data }),
        1 => packet().prop_map(|(interface, ticks, more, data)| NgBlock::Obsolete { interface, ticks, more, data }),
        1 => data().prop_map(|data| NgBlock::Simple { data }),
        1 => ng_interface().prop_map(NgBlock::Interface),
        1 => (4..6u32, data()).prop_map(|(block_type, body)| NgBlock::Other { block_type, body }),
    ]
}

#[derive(Clone, Debug)]
struct Section {
    order: Order,
    first: NgInterface,
    blocks: Vec<NgBlock>,
}

fn sections() -> impl Strategy<Value = Vec<Section>> {
    let section = (order(), ng_interface(), prop::collection::vec(ng_block(), 0..12))
        .prop_map(|(order, first, blocks)| Section { order, first, blocks });
    prop::collection::vec(section, 1..4)
}

/// The file with these `sections`, and its expected records.
fn naive_pcapng(sections: &[Section]) -> (Vec<u8>, Vec<Interface>, Vec<Owned>) {
    let (mut file, mut interfaces, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for Section { order, first, blocks } in sections {
        file.extend(section_header(*order));
        file.extend(first.bytes(*order));
        let mut own = vec![first.clone()];
        let base = interfaces.len();
        interfaces.push(first.expected());
        for each in blocks {
            match each {
                NgBlock::Enhanced { interface, ticks, more, data }
                | NgBlock::Obsolete { interface, ticks, more, data } => {
                    let index = interface.index(own.len());
                    let original = data.len() as u32 + more;
                    file.extend(match each {
                        NgBlock::Enhanced { .. } => enhanced_packet(*order, index as u32, *ticks, original, data),
                        _ => obsolete_packet(*order, index as u16, *ticks, original, data),
                    });
                    records.push(Owned {
                        data: data.clone(),
                        timestamp: own[index].nanoseconds(*ticks),
                        original_length: original,
                        interface: (base + index) as u32,
                    });
                }
                NgBlock::Simple { data } => {
                    let limit = if first.snap_length == 0 { data.len() } else { first.snap_length as usize };
                    let captured = data[..data.len().min(limit)].to_vec();
                    file.extend(simple_packet(*order, data.len() as u32, &captured));
                    records.push(Owned {
                        data: captured,
                        timestamp: 0,
                        original_length: data.len() as u32,
                        interface: base as u32,
                    });
                }
                NgBlock::Interface(interface) => {
                    file.extend(interface.bytes(*order));
                    interfaces.push(interface.expected());
                    own.push(interface.clone());
                }
                NgBlock::Other { block_type, body } => file.extend(block(*order, *block_type, body)),
            }
        }
    }
    (file, interfaces, records)
}

/// Writes records back in the same kind of format.
fn written_back(file: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(io::Cursor::new(file.to_vec()), "original").unwrap();
    let options = WriterOptions::like(reader.format().unwrap());
    let mut writer = Writer::new(Vec::new(), "copy", options, reader.interfaces()).unwrap();
    while let Some(record) = reader.next_record().unwrap().map(Owned::from) {
        for interface in &reader.interfaces()[writer.interfaces()..] {
            writer.add_interface(interface).unwrap();
        }
        writer.write(&record.borrow()).unwrap();
    }
    for interface in &reader.interfaces()[writer.interfaces()..] {
        writer.add_interface(interface).unwrap();
    }
    let length = writer.bytes_written();
    let file = writer.finish().unwrap();
    assert_eq!(length, file.len() as u64);
    file
}

/// Returns a file in pieces of the given sizes, over and over; 0 stands for an interrupted call.
struct Pieces {
    rest: io::Cursor<Vec<u8>>,
    sizes: Vec<usize>,
    turn: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes[self.turn % self.sizes.len()];
        self.turn += 1;
        if size == 0 && !self.turn.is_multiple_of(self.sizes.len()) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let size = size.clamp(1, buffer.len());
        self.rest.read(&mut buffer[..size])
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

const ZSTD_SKIPPABLE_FRAME: &[u8] = &[0x53, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_variant_of_pcap_is_read(variant in pcap_variant(), packets in prop::collection::vec(pcap_packet(), 0..20)) {
        let transcript = Transcript::of_bytes(&naive_pcap(variant, 1, &packets));
        prop_assert_eq!(transcript.error, None);
        let unit = if variant.nanoseconds { 1 } else { 1000 };
        let expected: Vec<_> = packets
            .iter()
            .map(|packet| Owned {
                data: packet.data.clone(),
                timestamp: u64::from(packet.seconds) * SECOND + u64::from(packet.fraction) * unit,
                original_length: packet.data.len() as u32 + packet.more,
                interface: 0,
            })
            .collect();
        prop_assert_eq!(transcript.records, expected);
    }

    #[test]
    fn every_variant_of_pcapng_is_read(sections in sections()) {
        let (file, interfaces, records) = naive_pcapng(&sections);
        let transcript = Transcript::of_bytes(&file);
        prop_assert_eq!(transcript, Transcript { interfaces, records, error: None });
    }

    #[test]
    fn pcap_written_back_is_the_same(
        variant in pcap_variant(),
        link in prop_oneof![Just(1u32), 0..1u32 << 26, any::<u32>()],
        packets in prop::collection::vec(pcap_packet(), 0..20),
    ) {
        let file = naive_pcap(variant, link, &packets);
        let copy = written_back(&file);
        prop_assert_eq!(Transcript::of_bytes(&copy), Transcript::of_bytes(&file));
        if !variant.modified && variant.minor_version == 4 {
            prop_assert_eq!(copy, file);
        }
    }

    #[test]
    fn pcapng_written_back_is_the_same(sections in sections()) {
        let (file, _, records) = naive_pcapng(&sections);
        let copy = Transcript::of_bytes(&written_back(&file));
        prop_assert_eq!(copy.error, None);
        prop_assert_eq!(copy.records, records);
        let nanoseconds = |mut interface: Interface| {
            interface.resolution = TimestampResolution::NANOSECONDS;
            interface
        };
        let expected: Vec<_> = Transcript::of_bytes(&file).interfaces.into_iter().map(nanoseconds).collect();
        prop_assert_eq!(copy.interfaces, expected);
    }

    #[test]
    fn the_writers_output_is_read_back(
        format in prop_oneof![
            Just(OutputFormat::PcapMicroseconds), Just(OutputFormat::PcapNanoseconds), Just(OutputFormat::Pcapng),
        ],
        order in order(),
        snap_length in prop_oneof![Just(0u32), 1..300u32],
        link_types in prop::collection::vec(any::<u16>(), 1..4),
        packets in prop::collection::vec((any::<prop::sample::Index>(), any::<u64>(), any::<u32>(), data()), 0..20),
    ) {
        let pcap = format != OutputFormat::Pcapng;
        let interfaces: Vec<_> = link_types
            .iter()
            .map(|&link_type| Interface::new(LinkType(if pcap { link_types[0] } else { link_type }.into())))
            .collect();
        let options = WriterOptions { format, endianness: endianness(order), snap_length };
        let mut writer = Writer::new(Vec::new(), "memory", options, &interfaces).unwrap();
        let mut expected = Vec::new();
        for (interface, timestamp, original_length, data) in packets {
            let timestamp = if pcap { timestamp % (SECOND << 32) } else { timestamp };
            let record =
                Owned { data, timestamp, original_length, interface: interface.index(interfaces.len()) as u32 };
            writer.write(&record.borrow()).unwrap();
            let Owned { mut data, mut timestamp, mut interface, .. } = record;
            if snap_length > 0 {
                data.truncate(snap_length as usize);
            }
            if format == OutputFormat::PcapMicroseconds {
                timestamp -= timestamp % 1000;
            }
            if pcap {
                interface = 0;
            }
            let original_length = original_length.max(data.len() as u32);
            expected.push(Owned { data, timestamp, original_length, interface });
        }
        let transcript = Transcript::of_bytes(&writer.finish().unwrap());
        prop_assert_eq!(transcript.error, None);
        prop_assert_eq!(transcript.records, expected);
    }

    #[test]
    fn the_sizes_of_reads_do_not_matter(
        pcap in (pcap_variant(), prop::collection::vec(pcap_packet(), 0..8)),
        sections in sections(),
        ng in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
        sizes in prop::collection::vec(prop_oneof![0..40usize, 0..100_000usize], 1..6),
    ) {
        let mut file = if ng { naive_pcapng(&sections).0 } else { naive_pcap(pcap.0, 1, &pcap.1) };
        for (index, byte) in damage {
            let index = index.index(file.len());
            file[index] = byte;
        }
        if !whole {
            file.truncate(cut.index(file.len()));
        }
        let expected = Transcript::of_bytes(&file);
        let pieces = Pieces { rest: io::Cursor::new(file), sizes, turn: 0 };
        prop_assert_eq!(Transcript::of(Reader::new(pieces, "memory")), expected);
    }

    #[test]
    fn compressed_files_read_as_plain_ones(
        sections in sections(),
        split in any::<prop::sample::Index>(),
        sizes in prop::collection::vec(1..5000usize, 1..4),
    ) {
        let (file, ..) = naive_pcapng(&sections);
        let expected = Transcript::of_bytes(&file);
        let (one, two) = file.split_at(split.index(file.len()));
        for compressed in [
            gzip(&file),
            [gzip(one), gzip(two)].concat(),
            zstd(&file),
            [ZSTD_SKIPPABLE_FRAME, &zstd(one), ZSTD_SKIPPABLE_FRAME, &zstd(two)].concat(),
        ] {
            prop_assert_eq!(&Transcript::of_bytes(&compressed), &expected);
            let pieces = Pieces { rest: io::Cursor::new(compressed), sizes: sizes.clone(), turn: 0 };
            prop_assert_eq!(&Transcript::of(Reader::new(pieces, "memory")), &expected);
        }
    }

    /// For any damage to a compressed file, its records come before the error.
    #[test]
    fn damaged_compressed_files_give_records_then_an_error(
        packets in prop::collection::vec(pcap_packet(), 1..8),
        zstandard in any::<bool>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let variant = PcapVariant { order: Order { big: false }, nanoseconds: false, modified: false, minor_version: 4 };
        let file = naive_pcap(variant, 1, &packets);
        let whole = Transcript::of_bytes(&file);
        let mut compressed = if zstandard { zstd(&file) } else { gzip(&file) };
        compressed.truncate(cut.index(compressed.len()).max(4));
        let transcript = Transcript::of_bytes(&compressed);
        prop_assert!(whole.records.starts_with(&transcript.records));
        prop_assert!(transcript.error.is_some_and(|error| error.contains("damaged or cut short")));
    }
}

/// A disk with room for this many bytes.
struct Small {
    file: Vec<u8>,
    room: usize,
}

impl Write for Small {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.room - self.file.len());
        self.file.extend_from_slice(&bytes[..taken]);
        if taken == 0 { Err(io::Error::from(io::ErrorKind::StorageFull)) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_file_whose_disk_is_full_holds_whole_records_and_goes_on_when_there_is_room() {
    for format in [OutputFormat::PcapMicroseconds, OutputFormat::PcapNanoseconds, OutputFormat::Pcapng] {
        for room in [10, 300, 100_000, 1_000_000] {
            let options = WriterOptions { format, ..WriterOptions::default() };
            let disk = Small { file: Vec::new(), room };
            let mut writer = Writer::new(disk, "small", options, &[Interface::new(LinkType::ETHERNET)]).unwrap();
            let mut wrote = 0_u64;
            let mut write = |writer: &mut Writer<Small>| {
                let data = [wrote as u8; 1_001];
                let record = Record { data: &data, timestamp: 1_000_000_000, original_length: 0, interface: 0 };
                writer.write(&record).inspect(|()| wrote += 1)
            };
            let failed = (0..2_000).map(|_| write(&mut writer)).find_map(Result::err).expect("a full disk");
            assert_eq!(failed.offset(), Some(room as u64), "{format:?}");
            let taken = writer.records_taken();
            let whole = writer.step_back() as usize;
            assert!(whole <= room && (room < 2_000 || room - whole < 2_000), "{whole} of {room}");
            writer.sink_mut().file.truncate(whole);
            assert_eq!(writer.records_taken(), taken);
            let read = |file: &[u8]| {
                let mut reader = Reader::new(io::Cursor::new(file.to_vec()), "cut").unwrap();
                let mut seen = 0_u64;
                while let Some(record) = reader.next_record().unwrap() {
                    let number = (record.data[0], record.data.len(), record.original_length);
                    assert_eq!(number, ((seen % 256) as u8, 1_001, 1_001));
                    seen += 1;
                }
                reader.records()
            };
            if whole > 0 {
                assert_eq!(read(&writer.sink_mut().file[..whole]), taken);
            }
            writer.sink_mut().room = 10_000_000;
            write(&mut writer).unwrap();
            assert_eq!(read(&writer.finish().unwrap().file), wrote);
        }
    }
}

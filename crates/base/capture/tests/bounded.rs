//! For any capture, a call of a reader with a budget does no more work than the budget allows.

mod common;

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bellows_capture::{Budget, Found, Reader};
use bellows_testkit::scratch;
use common::{Order, Owned, Transcript, block, enhanced_packet, interface_description, section_header};
use proptest::prelude::*;

const ORDER: Order = Order { big: false };

const ETHERNET: u16 = 1;

/// The type of statistics blocks.
const STATISTICS: u32 = 5;

/// A part of a pcapng file.
#[derive(Clone, Debug)]
enum Piece {
    /// A packet, followed by this many bytes of options.
    Packet {
        length: usize,
        options: usize,
    },
    /// This many blocks without packets, each of this many bytes.
    Junk {
        blocks: usize,
        length: usize,
    },
    Section,
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        4 => (0..1500usize, prop_oneof![Just(0usize), 0..200_000usize])
            .prop_map(|(length, options)| Piece::Packet { length, options }),
        2 => (0..20_000usize, 0..40usize).prop_map(|(blocks, length)| Piece::Junk { blocks, length }),
        2 => (0..40usize, 0..300_000usize).prop_map(|(blocks, length)| Piece::Junk { blocks, length }),
        1 => (Just(1usize), 0..5_000_000usize).prop_map(|(blocks, length)| Piece::Junk { blocks, length }),
        1 => Just(Piece::Section),
    ];
    prop::collection::vec(piece, 1..12)
}

/// The compression of a file.
#[derive(Clone, Copy, Debug)]
enum Packing {
    Plain,
    /// With this many empty members after the first bytes.
    Gzip {
        empty: usize,
    },
    /// With this many skippable frames and empty blocks there.
    Zstd {
        empty: usize,
    },
}

fn packing() -> impl Strategy<Value = Packing> {
    prop_oneof![
        Just(Packing::Plain),
        (0..20_000usize).prop_map(|empty| Packing::Gzip { empty }),
        (0..20_000usize).prop_map(|empty| Packing::Zstd { empty }),
    ]
}

/// The start of a section.
fn start() -> Vec<u8> {
    [section_header(ORDER), interface_description(ORDER, ETHERNET, 0, &[])].concat()
}

/// The file, and its number of blocks without packets. It begins with a packet, so that opening it is cheap.
fn file(pieces: &[Piece]) -> (Vec<u8>, usize) {
    let mut file = [start(), enhanced_packet(ORDER, 0, 1, 60, &[7; 60])].concat();
    let mut junk = 0;
    for piece in pieces {
        match *piece {
            Piece::Packet { length, options } => {
                // A reader does not read beyond the packet.
                let fields = [0, 0, 2, length as u32, length as u32].map(|field: u32| ORDER.u32(field)).concat();
                file.extend(block(ORDER, 6, &[&fields[..], &vec![9; length], &vec![0; options]].concat()));
            }
            Piece::Junk { blocks, length } => {
                let block = block(ORDER, STATISTICS, &vec![0; length]);
                (0..blocks).for_each(|_| file.extend_from_slice(&block));
                junk += blocks;
            }
            Piece::Section => {
                file.extend(start());
                junk += 2;
            }
        }
    }
    (file, junk)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

fn pack(file: &[u8], packing: Packing) -> Vec<u8> {
    let (first, rest) = file.split_at(file.len().min(300));
    match packing {
        Packing::Plain => file.to_vec(),
        Packing::Gzip { empty } => [gzip(first), gzip(&[]).repeat(empty), gzip(rest)].concat(),
        Packing::Zstd { empty } => {
            let skipped = [&[0x50, 0x2a, 0x4d, 0x18], &100_000u32.to_le_bytes()[..], &[0; 100_000]].concat();
            // A frame with a window of 1 KiB, and empty raw blocks; the last is marked as such.
            let hollow = [&[0x28, 0xb5, 0x2f, 0xfd, 0, 0][..], &[0, 0, 0].repeat(empty), &[1, 0, 0]].concat();
            [zstd(first), skipped.repeat(empty.min(20)), hollow, zstd(rest)].concat()
        }
    }
}

/// Counts the bytes read from it.
struct Counted(io::Cursor<Vec<u8>>, Arc<AtomicU64>);

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.0.read(buffer)?;
        self.1.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}

/// Reads a file in calls with a budget for this many records each, and checks each call; returns the records and the
/// number of calls.
fn read_in_bursts(bytes: Vec<u8>, burst: usize) -> (Vec<Owned>, u64) {
    let taken = Arc::new(AtomicU64::new(0));
    let mut reader = Reader::new(Counted(io::Cursor::new(bytes), Arc::clone(&taken)), "memory").unwrap();
    let (mut records, mut calls) = (Vec::new(), 0);
    loop {
        let mut budget = Budget::for_records(burst);
        let most = budget.left() + budget.left() / 8 + 2 * Budget::PIECE;
        let before = taken.load(Relaxed);
        calls += 1;
        let mut is_over = false;
        for _ in 0..burst {
            match reader.next_within(&mut budget).unwrap() {
                Found::Record(record) => records.push(Owned::from(record)),
                Found::Pause => {
                    assert!(budget.is_spent(), "it does not give up before");
                    break;
                }
                Found::End => {
                    is_over = true;
                    break;
                }
            }
        }
        let took = taken.load(Relaxed) - before;
        assert!(took <= most, "{took} bytes in a call that may take {most}");
        if is_over {
            return (records, calls);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// A call reads, decompresses and skips no more than its budget allows, and the records are the same as without a
    /// budget.
    #[test]
    fn work_is_bounded_for_any_file(pieces in pieces(), packing in packing(), burst in 1..200usize) {
        let (file, junk) = file(&pieces);
        let packed = pack(&file, packing);
        let expected = Transcript::of_bytes(&file);
        prop_assert_eq!(&expected.error, &None);
        let (records, calls) = read_in_bursts(packed, burst);
        prop_assert_eq!(&records, &expected.records);
        let budget = Budget::for_records(burst).left();
        // Opening the file reads a piece, too.
        let most = (calls + 1) * (budget + Budget::PIECE);
        prop_assert!(most >= file.len() as u64, "{} bytes in {} calls", file.len(), calls);
        prop_assert!(calls * (budget / Budget::MIN_STEP + 1) >= junk as u64, "{} blocks in {} calls", junk, calls);
    }
}

/// 64 MiB of zeros in blocks of 4 MiB, a few hundred KiB in the file.
#[test]
fn large_decompressed_data_takes_many_calls() {
    let (file, _) = file(&[Piece::Junk { blocks: 16, length: 4 << 20 }, Piece::Packet { length: 60, options: 0 }]);
    for packed in [gzip(&file), zstd(&file)] {
        assert!(packed.len() < file.len() / 50, "{}", packed.len());
        let (records, calls) = read_in_bursts(packed, 128);
        assert_eq!(records.len(), 2);
        assert!(calls > 60, "{calls}");
    }
}

#[test]
fn a_file_is_opened_within_a_mebibyte() {
    let scratch = scratch();
    let (mut junk, _) = file(&[Piece::Junk { blocks: 1_000, length: 16 << 10 }]);
    // Without the packet at its start.
    let packet = enhanced_packet(ORDER, 0, 1, 60, &[7; 60]);
    let at = junk.windows(packet.len()).position(|window| window == packet).unwrap();
    junk.drain(at..at + packet.len());
    junk.extend(&packet);
    let path = scratch::write(&scratch, "junk.pcapng", &junk);
    let mut reader = Reader::open(&path).unwrap();
    assert!(reader.position() < 2 << 20, "{}", reader.position());
    assert_eq!(reader.next_record().unwrap().unwrap().data.len(), 60);
    reader.rewind().unwrap();
    assert!(matches!(reader.next_within(&mut Budget::for_records(1)).unwrap(), Found::Pause));
    assert!(reader.position() < 2 << 20, "{}", reader.position());
    assert_eq!(reader.next_record().unwrap().unwrap().data.len(), 60);
    // Bytes that decompress to nothing.
    let path = scratch::write(&scratch, "hollow", [gzip(&[]).repeat(100_000), gzip(&junk)].concat());
    let mut reader = Reader::open(path).unwrap();
    assert_eq!((reader.format(), reader.interfaces().len()), (None, 0));
    assert!(reader.progress().consumed < 512 << 10, "{:?}", reader.progress());
    assert_eq!(reader.next_record().unwrap().unwrap().data.len(), 60);
    assert!(reader.format().is_some() && reader.interfaces().len() == 1);
}

//! Damaged files and failing systems: the error message, and the delivery of all records before.

mod common;

use std::io::{self, Read, Write};

use bellows_capture::{
    BlockProblem, Error, ErrorKind, Interface, LinkType, OutputFormat, Reader, Record, TruncatedPart, Writer,
    WriterOptions,
};
use bellows_testkit::scratch;
use common::{
    Order, Transcript, block, enhanced_packet, interface_description, option, pcap_header, pcap_record, section_header,
};

const ORDER: Order = Order { big: false };

fn pcap(records: &[Vec<u8>]) -> Vec<u8> {
    [pcap_header(ORDER, 0xa1b2_c3d4, 4, 65_535, 1), records.concat()].concat()
}

fn record(length: usize) -> Vec<u8> {
    pcap_record(ORDER, 1_700_000_000, 5, length as u32, &[], &vec![7; length])
}

fn pcapng(blocks: &[Vec<u8>]) -> Vec<u8> {
    [section_header(ORDER), interface_description(ORDER, 1, 0, &[]), blocks.concat()].concat()
}

fn open(bytes: Vec<u8>) -> Result<Reader, Error> {
    Reader::new(io::Cursor::new(bytes), "some.pcap")
}

/// The error at the end of a file, and the number of records before it.
fn error_of(bytes: Vec<u8>) -> (u64, Error) {
    let mut reader = match open(bytes) {
        Ok(reader) => reader,
        Err(error) => return (0, error),
    };
    loop {
        match reader.next_record() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no error in {reader:?}"),
            Err(error) => return (reader.records(), error),
        }
    }
}

fn block_problem(blocks: &[Vec<u8>]) -> BlockProblem {
    match error_of(pcapng(blocks)).1.kind() {
        ErrorKind::Block { problem, .. } => problem.clone(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_pcap_file_truncated_anywhere_yields_its_complete_records_then_an_error() {
    let lengths = [60, 0, 300];
    let file = pcap(&lengths.map(record));
    let mut starts = vec![24];
    for length in lengths {
        starts.push(starts[starts.len() - 1] + 16 + length);
    }
    for cut in 24..file.len() {
        let transcript = Transcript::of_bytes(&file[..cut]);
        let whole = starts.iter().filter(|&&start| start <= cut).count() - 1;
        assert_eq!(transcript.records.len(), whole);
        if starts[whole] == cut {
            assert_eq!(transcript.error, None);
            continue;
        }
        let (records, error) = error_of(file[..cut].to_vec());
        assert_eq!(records, whole as u64);
        assert_eq!(error.offset(), Some(starts[whole] as u64));
        let header_there = cut - starts[whole] >= 16;
        let expected = if header_there { 16 + lengths[whole] as u64 } else { 16 };
        match *error.kind() {
            ErrorKind::Truncated { part: TruncatedPart::Record(number), have, need, records, .. } => {
                assert_eq!((number, have), (whole as u64 + 1, (cut - starts[whole]) as u64));
                assert_eq!((need, records), (expected, whole as u64));
            }
            ref other => panic!("{other}"),
        }
    }
}

#[test]
fn a_pcapng_file_truncated_anywhere_yields_its_complete_records_then_an_error() {
    let packet = enhanced_packet(ORDER, 0, 5, 60, &[7; 59]);
    let file = pcapng(&[packet.clone(), block(ORDER, 5, &[1; 8]), packet.clone()]);
    let first = pcapng(&[]).len();
    let boundaries = [28, first, first + packet.len(), first + packet.len() + 20];
    for cut in 12..file.len() {
        let transcript = Transcript::of_bytes(&file[..cut]);
        assert_eq!(transcript.records.len(), usize::from(cut >= boundaries[2]));
        let inside = boundaries.iter().rev().find(|&&boundary| boundary <= cut).copied().unwrap_or(0);
        assert_eq!(transcript.error.is_none(), inside == cut, "cut at {cut}");
        if inside != cut {
            let (_, error) = error_of(file[..cut].to_vec());
            assert!(matches!(error.kind(), ErrorKind::Truncated { part: TruncatedPart::Block, .. }), "{error}");
            assert_eq!(error.offset(), Some(inside as u64));
        }
    }
}

#[test]
fn errors_name_the_file_the_place_and_the_remedy() {
    let mut file = pcap(&[record(60), record(60)]);
    file.truncate(24 + 76 + 36);
    assert_eq!(
        error_of(file).1.to_string(),
        "some.pcap: the file ends inside record 2 at offset 100: 36 of 76 bytes are there; it was cut short, and the \
         1 record before can be read"
    );

    let mut file = pcap(&[record(60), record(60)]);
    file[100 + 8..100 + 12].copy_from_slice(&2_000_000_000u32.to_le_bytes());
    assert_eq!(
        error_of(file).1.to_string(),
        "some.pcap: record 2 at offset 100 claims 2000000000 bytes, more than the 262144 that Ethernet (1) packets \
         may have; the file is damaged there, and the 1 record before can be read"
    );

    let file = pcapng(&[enhanced_packet(ORDER, 3, 0, 60, &[0; 60])]);
    assert_eq!(
        error_of(file).1.to_string(),
        "some.pcap: the block of type 0x6 at offset 48 holds a packet of interface 3, but the section has described 1 \
         so far; the file is damaged there, and the 0 records before can be read"
    );

    let error = open(b"PK\x03\x04 and so on".to_vec()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "some.pcap: not a capture that can be read: it starts with the bytes [50, 4b, 03, 04], which is neither pcap \
         nor pcapng, plain or in gzip or zstd; `editcap -F pcapng` converts many other formats"
    );
    assert_eq!((error.file(), error.offset()), ("some.pcap", Some(0)));

    assert!(matches!(open(Vec::new()).unwrap_err().kind(), ErrorKind::Empty));
    let error = Reader::open("no/such/file.pcap").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Open(_)));
    assert!(error.to_string().starts_with("no/such/file.pcap: cannot be opened: "), "{error}");
    assert_eq!(error.offset(), None);
}

#[test]
fn unknown_versions_are_rejected() {
    let mut file = pcap(&[]);
    file[6] = 5;
    assert!(matches!(error_of(file).1.kind(), ErrorKind::Version { major: 2, minor: 5 }));
    let mut file = pcapng(&[]);
    file[12] = 2;
    assert!(error_of(file).1.to_string().contains("starts a section of version 2.0"));
    let mut file = pcapng(&[]);
    file[8] = 0;
    assert!(error_of(file).1.to_string().contains("byte-order magic 0x1a2b3c00"));
}

#[test]
fn blocks_that_break_the_rules_are_named() {
    let with_length = |length: u32| {
        let mut block = enhanced_packet(ORDER, 0, 0, 60, &[0; 60]);
        block[4..8].copy_from_slice(&length.to_le_bytes());
        block
    };
    assert_eq!(block_problem(&[with_length(8)]), BlockProblem::TooShort { length: 8, minimum: 12 });
    assert_eq!(block_problem(&[with_length(93)]), BlockProblem::Unaligned { length: 93 });
    let limit = 16 << 20;
    assert_eq!(block_problem(&[with_length(limit + 4)]), BlockProblem::TooLong { length: limit + 4, limit });
    let mut differing = enhanced_packet(ORDER, 0, 0, 60, &[0; 60]);
    differing[88] = 0;
    assert_eq!(block_problem(&[differing]), BlockProblem::LengthsDiffer { header: 92, trailer: 0 });
    assert_eq!(block_problem(&[block(ORDER, 6, &[0; 16])]), BlockProblem::TooShort { length: 28, minimum: 32 });
    let mut long_packet = enhanced_packet(ORDER, 0, 0, 60, &[0; 60]);
    long_packet[20] = 61;
    assert_eq!(block_problem(&[long_packet]), BlockProblem::PacketTooLong { captured: 61, room: 60 });

    let interface = |options: &[u8]| block_problem(&[interface_description(ORDER, 1, 0, options)]);
    assert_eq!(interface(&option(ORDER, 9, &[20])), BlockProblem::Resolution { base: 10, power: 20 });
    assert_eq!(interface(&option(ORDER, 9, &[0xc0])), BlockProblem::Resolution { base: 2, power: 64 });
    let wrong = BlockProblem::OptionLength { code: 14, length: 4, expected: 8 };
    assert_eq!(interface(&option(ORDER, 14, &[0; 4])), wrong);
    assert_eq!(interface(&[2, 0, 5, 0, 1, 2, 3, 4]), BlockProblem::OptionTooLong { code: 2, length: 5 });

    let many = vec![interface_description(ORDER, 1, 0, &[]); 65_536];
    assert_eq!(block_problem(&many), BlockProblem::TooManyInterfaces(65_536));
}

#[test]
fn a_packet_may_be_as_long_as_its_link_type_allows() {
    for (link_type, limit) in [(1, 262_144), (249, 1 << 20), (279, 8 << 20), (231, 128 << 20)] {
        let interface = interface_description(ORDER, link_type, 0, &[]);
        let file = |length| {
            let packet = enhanced_packet(ORDER, 0, 0, length, &vec![1; length as usize]);
            [section_header(ORDER), interface.clone(), packet].concat()
        };
        let transcript = Transcript::of_bytes(&file(limit));
        assert_eq!(transcript.error, None);
        assert_eq!(transcript.records[0].data.len(), limit as usize);
        let (_, error) = error_of(file(limit + 1));
        assert!(matches!(error.kind(), ErrorKind::RecordTooLong { record: 1, .. }), "{error}");
    }
}

/// Yields some bytes, then fails.
struct Failing(io::Cursor<Vec<u8>>);

impl Read for Failing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(io::Error::other("the disk is on fire")),
            n => Ok(n),
        }
    }
}

#[test]
fn records_before_a_failing_read_are_delivered() {
    let mut file = pcap(&[record(60), record(60)]);
    file.truncate(150);
    let transcript = Transcript::of(Reader::new(Failing(io::Cursor::new(file)), "disk"));
    assert_eq!(transcript.records.len(), 1);
    assert_eq!(transcript.error.as_deref(), Some("disk: reading failed at offset 150: the disk is on fire"));
}

#[test]
fn files_are_read_again_from_the_start() {
    let scratch = scratch();
    let small = pcap(&vec![record(60); 3]);
    // Larger than the buffer, so that it has to be read again.
    let large = pcap(&vec![record(1500); 1000]);
    let mut cut = large.clone();
    cut.truncate(1_000_000);
    let sections = [pcapng(&[]), pcapng(&[enhanced_packet(ORDER, 0, 0, 60, &[0; 60])])].concat();
    let gzip = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&large).unwrap();
        encoder.finish().unwrap()
    };
    let cut_gzip = gzip[..gzip.len() / 2].to_vec();
    for file in [small, large, cut, sections, gzip, cut_gzip] {
        let path = scratch::write(&scratch, "capture", &file);
        let mut reader = Reader::open(&path).unwrap();
        let first = Transcript::rest_of(&mut reader);
        assert!(!first.records.is_empty());
        reader.rewind().unwrap();
        reader.next_record().unwrap();
        reader.rewind().unwrap();
        assert_eq!(reader.records(), 0);
        assert_eq!(Transcript::rest_of(&mut reader), first);
        let progress = reader.progress();
        assert_eq!(progress.total, Some(file.len() as u64));
        if first.error.is_none() {
            assert_eq!(progress.consumed, file.len() as u64);
        }
    }
}

#[test]
fn readers_and_writers_move_between_threads() {
    let reader = open(pcap(&[record(60)])).unwrap();
    let interfaces = reader.interfaces().to_vec();
    let writer = Writer::new(Vec::new(), "memory", WriterOptions::default(), &interfaces).unwrap();
    let copy = |mut reader: Reader, mut writer: Writer<Vec<u8>>| {
        writer.write(&reader.next_record().unwrap().unwrap()).unwrap();
        writer.finish().unwrap()
    };
    let file = std::thread::spawn(move || copy(reader, writer)).join().unwrap();
    assert_eq!(file.len(), 24 + 16 + 60);
}

#[test]
fn a_stream_cannot_be_read_again() {
    let mut reader = open(pcap(&vec![record(1500); 1000])).unwrap();
    while reader.next_record().unwrap().is_some() {}
    let error = reader.rewind().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Rewind(_)), "{error}");
    assert!(reader.next_record().unwrap().is_none());
}

#[test]
fn position_is_where_the_next_record_begins() {
    let mut reader = open(pcap(&[record(60), record(10)])).unwrap();
    let mut positions = vec![reader.position()];
    while reader.next_record().unwrap().is_some() {
        positions.push(reader.position());
    }
    assert_eq!(positions, [24, 100, 126]);
}

#[test]
fn interfaces_before_the_first_packet_are_known_from_the_start() {
    let another = interface_description(ORDER, 113, 96, &option(ORDER, 2, b"eth0"));
    let packet = enhanced_packet(ORDER, 1, 0, 60, &[0; 60]);
    let mut reader = open(pcapng(&[another.clone(), packet, another])).unwrap();
    assert_eq!(reader.interfaces().len(), 2);
    assert_eq!(reader.interfaces()[1].name.as_deref(), Some("eth0"));
    assert_eq!(reader.interfaces()[1].link_type, LinkType::LINUX_SLL);
    assert_eq!(reader.next_record().unwrap().unwrap().interface, 1);
    assert!(reader.next_record().unwrap().is_none());
    assert_eq!(reader.interfaces().len(), 3);
}

const RECORD: Record<'static> = Record { data: &[1; 60], timestamp: 0, original_length: 60, interface: 0 };

#[test]
fn the_writer_rejects_records_that_do_not_fit_the_format() {
    let ethernet = Interface::new(LinkType::ETHERNET);
    let cooked = Interface::new(LinkType::LINUX_SLL);
    let pcap = WriterOptions::default();
    let pcapng = WriterOptions { format: OutputFormat::Pcapng, ..pcap };
    let kind = |options, interfaces: &[Interface]| {
        Writer::new(Vec::new(), "out", options, interfaces).unwrap_err().to_string()
    };
    assert!(kind(pcap, &[]).starts_with("out: a pcap file needs an interface"));
    assert!(kind(pcap, &[ethernet.clone(), cooked.clone()]).contains("Ethernet (1) and Linux cooked (113)"));
    assert!(kind(pcapng, &[Interface::new(LinkType(65_536))]).contains("link type 65536 does not fit"));

    let mut writer = Writer::new(Vec::new(), "out", pcap, std::slice::from_ref(&ethernet)).unwrap();
    assert_eq!(writer.add_interface(&ethernet).unwrap(), 1);
    assert!(matches!(writer.add_interface(&cooked).unwrap_err().kind(), ErrorKind::LinkTypesDiffer(..)));
    let before = writer.bytes_written();
    let late = Record { timestamp: (1 << 32) * 1_000_000_000, ..RECORD };
    assert!(matches!(writer.write(&late).unwrap_err().kind(), ErrorKind::TimestampOutOfRange { .. }));
    let unknown = Record { interface: 2, ..RECORD };
    let error = writer.write(&unknown).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnknownInterface { interface: 2, known: 2 }));
    assert_eq!(writer.bytes_written(), before);
    writer.write(&Record { timestamp: (1 << 32) * 1_000_000_000 - 1, ..RECORD }).unwrap();
    assert_eq!(Transcript::of_bytes(&writer.finish().unwrap()).records.len(), 1);
}

#[test]
fn no_file_is_touched_when_the_options_are_wrong() {
    let scratch = scratch();
    let path = scratch::write(&scratch, "precious.pcap", b"precious");
    assert!(Writer::create(&path, WriterOptions::default(), &[]).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");

    let missing = scratch.path().join("no/such/folder.pcap");
    let error = Writer::create(&missing, WriterOptions::default(), &[Interface::new(LinkType::RAW)]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Create(_)));
    assert!(error.to_string().starts_with(&*missing.to_string_lossy()), "{error}");
}

/// Takes some bytes, then is full.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let n = buffer.len().min(self.0);
        self.0 -= n;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_that_names_the_file() {
    let ethernet = [Interface::new(LinkType::ETHERNET)];
    let mut writer = Writer::new(Full(1_000_000), "out.pcap", WriterOptions::default(), &ethernet).unwrap();
    let error = (0..100_000).find_map(|_| writer.write(&RECORD).err()).expect("7.6 MB do not fit into 1 MB");
    assert!(error.to_string().starts_with("out.pcap: writing failed, "), "{error}");
    assert!(error.offset().is_some_and(|offset| offset == 1_000_000));

    let writer = Writer::new(Full(10), "out.pcap", WriterOptions::default(), &ethernet).unwrap();
    assert!(matches!(writer.finish().map(|_| ()).unwrap_err().kind(), ErrorKind::Write { .. }));
}

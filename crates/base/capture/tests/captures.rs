//! The project's own captures and real ones, some of them malformed on purpose: the reader agrees with tcpdump and
//! capinfos, and these programs see the same capture in the written-back copy.

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use bellows_capture::{Reader, Writer, WriterOptions};
use bellows_testkit::{captures, programs, scratch};
use common::{Owned, Transcript};

/// Files that other programs read differently, or whose written-back copy they read differently, and the justification.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "rx_serviceid_oobr.pcap",
        "a record has more than a million microseconds. They carry over into the seconds; tcpdump's product with 1000 \
         runs over 32 bits",
    ),
    (
        "timestamp_invalid_nano.pcap",
        "two records have more than a thousand million nanoseconds. They carry over into the seconds, and are written \
         so; tcpdump and capinfos hand the two numbers on as they are",
    ),
    ("little-modified.pcap", "libpcap adds Ethernet's header to the snap length of modified files"),
    ("big-modified.pcap", "libpcap adds Ethernet's header to the snap length of modified files"),
    ("simple.pcapng", "capinfos shows no times where packets have none; the copy says 1970"),
    ("simple-cut.pcapng", "capinfos shows no times where packets have none; the copy says 1970"),
    ("other-blocks.pcapng", "capinfos takes blocks without a time for packets; the copy is without them"),
];

/// Files that tcpdump rejects and that can be read here.
const REFUSED: &[(&str, &str)] = &[
    ("link-types.pcapng", "libpcap knows one link type a file"),
    ("sections-both-orders.pcapng", "libpcap knows one byte order a file"),
    ("no-interfaces.pcapng", "libpcap wants an interface, also where there are no packets"),
    ("compressed.pcap.gz", "libpcap reads no compressed files"),
    ("compressed.pcap.zst", "libpcap reads no compressed files"),
];

fn has_known_difference(path: &Path) -> bool {
    DIFFERENCES.iter().any(|(name, _)| path.ends_with(name))
}

fn is_refused(path: &Path) -> bool {
    REFUSED.iter().any(|(name, _)| path.ends_with(name))
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "gz" || ending == "zst")
}

/// Writes the readable records of a file back, in the same kind of format.
fn write_back(path: &Path, copy: &Path) -> Result<(), bellows_capture::Error> {
    let mut reader = Reader::open(path)?;
    let mut writer =
        Writer::create(copy, WriterOptions::like(reader.format().expect("it is known")), reader.interfaces())?;
    while let Ok(Some(record)) = reader.next_record().map(|record| record.map(Owned::from)) {
        for interface in &reader.interfaces()[writer.interfaces()..] {
            writer.add_interface(interface)?;
        }
        writer.write(&record.borrow())?;
    }
    writer.finish()?;
    Ok(())
}

/// tcpdump's copy of a file: a pcap file with nanoseconds, in this machine's byte order.
fn tcpdump(test: &str, path: &Path) -> Option<Output> {
    programs::output(test, Command::new("tcpdump").args(["--time-stamp-precision=nano", "-w", "-", "-r"]).arg(path))
}

/// The records of tcpdump's output, and the snap length of its header.
fn naive_records(pcap: &[u8]) -> (u32, Vec<Owned>) {
    let field = |bytes: &[u8], at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(field(pcap, 0), 0xa1b2_3c4d);
    let (mut rest, mut records) = (&pcap[24..], Vec::new());
    while !rest.is_empty() {
        let length = field(rest, 8) as usize;
        records.push(Owned {
            data: rest[16..16 + length].to_vec(),
            timestamp: u64::from(field(rest, 0)) * 1_000_000_000 + u64::from(field(rest, 4)),
            original_length: field(rest, 12),
            interface: 0,
        });
        rest = &rest[16 + length..];
    }
    (field(pcap, 16), records)
}

#[test]
fn every_own_capture_is_read_or_its_error_names_file_and_offset() {
    is_read_or_its_error_names_file_and_offset(&captures::own());
}

#[test]
fn every_capture_is_read_or_its_error_names_file_and_offset() {
    const TEST: &str = "every_capture_is_read_or_its_error_names_file_and_offset";
    let Some(files) = captures::real(TEST) else { return };
    is_read_or_its_error_names_file_and_offset(&files);
}

fn is_read_or_its_error_names_file_and_offset(files: &[PathBuf]) {
    let scratch = scratch();
    for path in files {
        let mut reader = match Reader::open(path) {
            Ok(reader) => reader,
            Err(error) => {
                assert_eq!((error.file(), error.offset().is_some()), (&*path.to_string_lossy(), true), "{error}");
                continue;
            }
        };
        let transcript = Transcript::rest_of(&mut reader);
        match &transcript.error {
            Some(error) => assert!(error.starts_with(reader.name()) && error.contains(" at offset "), "{error}"),
            None => assert_eq!(reader.progress().consumed, reader.progress().total.unwrap()),
        }

        if is_compressed(path) {
            continue;
        }
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(&std::fs::read(path).unwrap()).unwrap();
        let compressed = scratch::write(&scratch, "capture", encoder.finish().unwrap());
        let plain = path.to_string_lossy();
        let mut again = Transcript::of(Reader::open(&compressed));
        again.error = again.error.map(|error| error.replace(&*compressed.to_string_lossy(), &plain));
        assert_eq!(again, transcript, "{plain}");
    }
}

#[test]
fn tcpdump_reads_the_same_records_of_own_captures() {
    tcpdump_agrees("tcpdump_reads_the_same_records_of_own_captures", &captures::own(), 600);
}

#[test]
fn tcpdump_reads_the_same_records() {
    const TEST: &str = "tcpdump_reads_the_same_records";
    let Some(files) = captures::real(TEST) else { return };
    tcpdump_agrees(TEST, &files, 1_000);
}

/// Compares all records of these files with those that tcpdump reads, and checks their minimum number.
fn tcpdump_agrees(test: &str, files: &[PathBuf], least: usize) {
    let mut compared = 0;
    for path in files {
        let Some(output) = tcpdump(test, path) else { return };
        if is_refused(path) {
            assert!(!output.status.success(), "tcpdump reads {}", path.display());
            continue;
        }
        let transcript = Transcript::of(Reader::open(path));
        assert_eq!(output.status.success(), transcript.error.is_none(), "{}: {:?}", path.display(), transcript.error);
        if !output.status.success() {
            continue;
        }
        let (snap_length, records) = naive_records(&output.stdout);
        assert_eq!(transcript.records.len(), records.len(), "{}", path.display());
        for (number, (ours, theirs)) in transcript.records.iter().zip(&records).enumerate() {
            // tcpdump truncates packets that are longer than the file's own snap length; this reader keeps them.
            let data = &ours.data[..ours.data.len().min(snap_length as usize)];
            assert_eq!(data, theirs.data, "record {number} of {}", path.display());
            assert_eq!(ours.original_length, theirs.original_length, "record {number} of {}", path.display());
            if !has_known_difference(path) {
                // tcpdump writes 32 bits of the seconds.
                let timestamp = ours.timestamp % (1_000_000_000 << 32);
                assert_eq!(timestamp, theirs.timestamp, "record {number} of {}", path.display());
            }
            compared += 1;
        }
    }
    assert!(compared >= least, "{compared} records were compared");
}

#[test]
fn own_captures_written_back_are_the_same() {
    is_the_same_when_written_back("own_captures_written_back_are_the_same", &captures::own());
}

#[test]
fn written_back_captures_are_the_same() {
    const TEST: &str = "written_back_captures_are_the_same";
    let Some(files) = captures::real(TEST) else { return };
    is_the_same_when_written_back(TEST, &files);
}

fn is_the_same_when_written_back(test: &str, files: &[PathBuf]) {
    let scratch = scratch();
    let (mut originals, mut copies) = (Vec::<PathBuf>::new(), Vec::new());
    for path in files {
        let copy = scratch.path().join(path.file_name().unwrap());
        if let Err(error) = write_back(path, &copy) {
            assert!(!copy.exists(), "{error}");
            continue;
        }
        let (mut original, mut again) = (Transcript::of(Reader::open(path)), Transcript::of(Reader::open(&copy)));
        let is_damaged = original.error.take().is_some();
        // A packet shorter than its captured bytes is damage, which is not written back.
        let mut is_mended = false;
        for record in &mut original.records {
            is_mended |= record.original_length < record.data.len() as u32;
            record.original_length = record.original_length.max(record.data.len() as u32);
        }
        for (after, before) in again.interfaces.iter_mut().zip(&original.interfaces) {
            after.resolution = before.resolution;
        }
        assert_eq!(again, original, "{}", path.display());
        if !has_known_difference(path) && !is_refused(path) && !is_damaged && !is_mended {
            originals.push(path.clone());
            copies.push(copy);
        }
    }

    for (path, copy) in originals.iter().zip(&copies) {
        let Some(original) = tcpdump(test, path) else { return };
        let Some(again) = tcpdump(test, copy) else { return };
        assert!(original.stdout == again.stdout, "tcpdump reads the copy of {} differently", path.display());
    }

    let Some(original) = capinfos(test, &originals) else { return };
    let Some(again) = capinfos(test, &copies) else { return };
    assert_eq!(original.len(), again.len());
    for path in &originals {
        let name = path.file_name().unwrap().to_str().unwrap();
        // capinfos leaves out some files.
        let Some(facts) = original.get(name) else { continue };
        assert_eq!(Some(facts), again.get(name), "capinfos on {name}");
        let count = Transcript::of(Reader::open(path)).records.len();
        assert_eq!(facts[1], count.to_string(), "capinfos on {name}");
    }
}

/// Encapsulation, packets, bytes, first and last time, and time order of each file.
fn capinfos(test: &str, files: &[PathBuf]) -> Option<BTreeMap<String, Vec<String>>> {
    let output = programs::output(
        test,
        Command::new("capinfos").args(["-T", "-r", "-S", "-E", "-c", "-d", "-a", "-e", "-o"]).args(files),
    )?;
    let text = String::from_utf8(output.stdout).expect("capinfos writes UTF-8");
    let facts: BTreeMap<_, _> = text
        .lines()
        .filter_map(|line| {
            // The copy of a pcapng file always has nanoseconds.
            let mut fields = line.split('\t').map(|field| match field.contains('.') {
                true => field.trim_end_matches('0').to_owned(),
                false => field.to_owned(),
            });
            let name = Path::new(&fields.next()?).file_name()?.to_string_lossy().into_owned();
            Some((name, fields.collect()))
        })
        .collect();
    // capinfos leaves out the files whose link types it does not know.
    assert!(facts.len() * 10 > files.len() * 9, "capinfos knows {} of {} files", facts.len(), files.len());
    Some(facts)
}

#[test]
fn files_compressed_by_gzip_and_zstd_are_read() {
    const TEST: &str = "files_compressed_by_gzip_and_zstd_are_read";
    let scratch = scratch();
    let path = scratch.path().join("large.pcap");
    let interface = [bellows_capture::Interface::new(bellows_capture::LinkType::ETHERNET)];
    let mut writer = Writer::create(&path, WriterOptions::default(), &interface).unwrap();
    let mut data = vec![0; 1500];
    for number in 0..5000u32 {
        data[..4].copy_from_slice(&number.to_be_bytes());
        data[4..].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(181).wrapping_add(number as u8));
        let record = Owned { data: data.clone(), timestamp: number.into(), original_length: 1500, interface: 0 };
        writer.write(&record.borrow()).unwrap();
    }
    writer.finish().unwrap();
    let expected = Transcript::of(Reader::open(&path));
    assert_eq!(expected.records.len(), 5000);

    for (program, arguments) in
        [("gzip", &["-c"][..]), ("zstd", &["-q", "-c"]), ("zstd", &["-q", "-c", "-19", "--long"])]
    {
        let Some(output) = programs::output(TEST, Command::new(program).args(arguments).arg(&path)) else { return };
        let compressed = scratch.path().join("compressed");
        File::create(&compressed).unwrap().write_all(&output.stdout).unwrap();
        let mut reader = Reader::open(&compressed).unwrap();
        assert_eq!(Transcript::rest_of(&mut reader), expected);
        assert_eq!(reader.progress().consumed, output.stdout.len() as u64);
    }
}

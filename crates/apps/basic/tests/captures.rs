//! Sends captures, the project's own and others, some of them malformed on purpose, through networks: every packet that
//! the capture crate reads arrives, errors in a file are reported, and the copy equals the original.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use bellows_basic::pcap_reader::PcapReader;
use bellows_basic::pcap_writer::PcapWriter;
use bellows_basic::sink::Sink;
use bellows_capture::{Format, LinkType, Reader, TimestampResolution};
use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, Counters, End, Engine, Io, Network, Outcome, Port, Ports, Settings, counters};
use bellows_packet::{LARGE_DATA_ROOM, Packet, pool};
use bellows_testkit::scratch::{TempDir, scratch};
use bellows_testkit::tree::root;
use bellows_testkit::{captures, programs};

/// Configured through JSON, so that each test gives only the keys that it tests.
fn configured<A: Configure>(config: serde_json::Value) -> Result<A, SettingError> {
    A::configure(serde_json::from_value(config).expect("the keys of an app"), &Context::default())
}

fn reader(path: &Path) -> Result<PcapReader, SettingError> {
    configured(serde_json::json!({ "path": path }))
}

/// A packet of a file: its bytes, time, length on the wire, and link type.
type Fact = (Vec<u8>, u64, u32, LinkType);

/// The result of the capture crate: the packets, the error after them if any, and the file's format. An error if there
/// is no valid header.
struct Expected {
    packets: Vec<Fact>,
    too_long: u64,
    damage: Option<String>,
    format: Format,
}

fn expected(path: &Path) -> Result<Expected, bellows_capture::Error> {
    let mut reader = Reader::open(path)?;
    let format = reader.format().unwrap();
    let (mut packets, mut too_long) = (Vec::new(), 0);
    let damage = loop {
        match reader.next_record() {
            Ok(Some(record)) if record.data.len() > LARGE_DATA_ROOM => too_long += 1,
            Ok(Some(record)) => {
                let (data, time, length) = (record.data.to_vec(), record.timestamp, record.original_length);
                let interface = record.interface as usize;
                packets.push((data, time, length, reader.interfaces()[interface].link_type));
            }
            Ok(None) => break None,
            Err(error) => break Some(error.to_string()),
        }
    };
    Ok(Expected { packets, too_long, damage, format })
}

/// Runs a network of two apps, and checks that no packet is left anywhere.
fn run<A: App, B: App>(from: A, to: B) -> Outcome {
    let network = Network::new().app("in", from).app("out", to).link("in.output -> out.input").expect("a link");
    let mut engine = Engine::new(network, Settings::default(), None).expect("a network that can start");
    let end = engine.run();
    assert_eq!(end, End::Done);
    engine.finish(end)
}

/// Checks that a run delivered the expected packets and reported the expected error.
fn check(path: &Path, outcome: &Outcome, expected: &Expected) {
    let link = &outcome.snapshot.links[0];
    let bytes: usize = expected.packets.iter().map(|packet| packet.0.len()).sum();
    let delivered = (link.received(), link.received_bytes(), link.txdrop);
    assert_eq!(delivered, (expected.packets.len() as u64, bytes as u64, 0), "{}", path.display());
    assert_eq!(outcome.snapshot.apps[0].drops["too_long"], expected.too_long, "{}", path.display());
    let said: Vec<_> = outcome.unfinished.iter().map(|(app, error)| (app.as_str(), error.as_str())).collect();
    let damage: Vec<_> = expected.damage.iter().map(|error| ("in", error.as_str())).collect();
    assert_eq!(said, damage, "{}", path.display());
    if let Some(error) = &expected.damage {
        assert!(error.contains(&*path.to_string_lossy()) && error.contains("offset"), "{error}");
    }
    assert!(outcome.panicked.is_empty());
}

/// Reads a file into a network, writes a copy, and compares it. True if the file has a capture's header.
fn goes_through(path: &Path, scratch: &TempDir) -> bool {
    let expected = match expected(path) {
        Ok(expected) => expected,
        Err(error) => {
            let mistake = reader(path).err().expect("a file that cannot be opened");
            assert_eq!((mistake.key, &mistake.message), (Some("path"), &error.to_string()));
            return false;
        }
    };
    check(path, &run(reader(path).unwrap(), Sink), &expected);

    let copy = scratch.path().join("copy");
    let (format, resolution) = match expected.format {
        Format::Pcapng { .. } => ("pcapng", "ns"),
        Format::Pcap { resolution: TimestampResolution::MICROSECONDS, .. } => ("pcap", "us"),
        Format::Pcap { .. } => ("pcap", "ns"),
    };
    let config = serde_json::json!({ "path": copy, "format": format, "resolution": resolution });
    check(path, &run(reader(path).unwrap(), configured::<PcapWriter>(config).unwrap()), &expected);
    let written = self::expected(&copy).expect("the copy has a header");
    assert!(written.damage.is_none(), "{}: {:?}", path.display(), written.damage);
    assert_eq!(std::mem::discriminant(&written.format), std::mem::discriminant(&expected.format));
    assert!(written.packets == valid(expected.packets), "{}: the copy differs", path.display());
    true
}

/// The packets with valid original lengths according to tcpdump: none is less than the captured length.
fn valid(mut packets: Vec<Fact>) -> Vec<Fact> {
    packets.iter_mut().for_each(|(data, _, length, _)| *length = (*length).max(data.len() as u32));
    packets
}

/// Sends each of these files through networks; nine of ten are captures.
fn go_through_and_back(files: &[PathBuf]) {
    let scratch = scratch();
    let readable = files.iter().filter(|path| goes_through(path, &scratch)).count();
    assert!(readable * 10 > files.len() * 9, "{readable} of {} files are captures", files.len());
}

#[test]
fn every_own_capture_goes_through_and_back() {
    go_through_and_back(&captures::own());
}

#[test]
fn every_capture_goes_through_and_back() {
    let Some(files) = captures::real("every_capture_goes_through_and_back") else { return };
    go_through_and_back(&files);
}

fn quickstart() -> PathBuf {
    root().join("examples/captures/quickstart.pcap")
}

/// Copies the project's own capture.
fn copy_of_quickstart(scratch: &TempDir) -> PathBuf {
    let copy = scratch.path().join("copy.pcap");
    let writer = configured::<PcapWriter>(serde_json::json!({ "path": copy, "resolution": "us" })).unwrap();
    let outcome = run(reader(&quickstart()).unwrap(), writer);
    assert!(outcome.unfinished.is_empty() && outcome.snapshot.links[0].packets > 1_000);
    copy
}

#[test]
fn the_records_of_a_copy_are_the_original_byte_for_byte() {
    const FILE_HEADER: usize = 24;
    let scratch = scratch();
    let (original, copy) = (std::fs::read(quickstart()).unwrap(), std::fs::read(copy_of_quickstart(&scratch)).unwrap());
    assert!(original[FILE_HEADER..] == copy[FILE_HEADER..]);
}

#[test]
fn tcpdump_reads_the_copy_as_it_reads_the_original() {
    const TEST: &str = "tcpdump_reads_the_copy_as_it_reads_the_original";
    let scratch = scratch();
    let copy = copy_of_quickstart(&scratch);
    let lines = |path: &Path| programs::output(TEST, Command::new("tcpdump").args(["-n", "-e", "-vv", "-r"]).arg(path));
    let (Some(original), Some(copy)) = (lines(&quickstart()), lines(&copy)) else { return };
    assert!(original.status.success() && copy.status.success());
    assert!(original.stdout.split(|byte| *byte == b'\n').count() > 1_000);
    assert!(original.stdout == copy.stdout, "tcpdump prints other lines of the copy");
}

#[test]
fn a_network_does_not_overwrite_the_file_that_it_reads() {
    let scratch = scratch();
    let path = scratch.path().join("both.pcap");
    std::fs::copy(quickstart(), &path).unwrap();
    let link = |network: Network| network.link("in.output -> out.input").unwrap();
    let refused = |network| Engine::new(network, Settings::default(), None).err().unwrap().to_string();
    for is_linked in [false, true] {
        // A file with two names is emptied instead of replaced.
        if is_linked {
            std::fs::hard_link(&path, scratch.path().join("other name")).unwrap();
        }
        let writer = || configured::<PcapWriter>(serde_json::json!({ "path": path })).unwrap();
        let error = refused(link(Network::new().app("in", reader(&path).unwrap()).app("out", writer())));
        assert!(error.contains("app `out`") && error.contains("reads or writes it"), "{error}");
        let error = refused(link(Network::new().app("out", writer()).app("in", reader(&path).unwrap())));
        assert!(error.contains("app `in`") && error.contains("is about to overwrite it"), "{error}");
        assert!(std::fs::read(&path).unwrap() == std::fs::read(quickstart()).unwrap());
        // Nothing of either app is left.
        let mut alone = reader(&path).unwrap();
        alone.start(None).unwrap();
    }
}

#[test]
fn a_file_that_another_network_writes_can_be_read() {
    let scratch = scratch();
    let path = scratch.path().join("both.pcap");
    let mut writer = configured::<PcapWriter>(serde_json::json!({ "path": path })).unwrap();
    writer.start(None).unwrap();
    writer.begin();
    std::fs::copy(quickstart(), &path).unwrap();
    assert!(File::open(&path).unwrap().try_lock_shared().is_err(), "the writer holds it");
    reader(&path).unwrap().start(None).unwrap();
    writer.stop().unwrap();
}

/// Holds all packets for a millisecond, and then drops them.
struct Hoard(VecDeque<Packet>);

counters! { Hoard;
    drop HOARDED = "hoarded", "packets that were kept for a while";
}

impl App for Hoard {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        self.0.extend(&mut io.input(0));
        io.wake_at(io.now() + 1_000_000);
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.0.drain(..).for_each(|packet| io.drop(packet, Hoard::HOARDED));
    }

    fn held(&self) -> usize {
        self.0.len()
    }
}

#[test]
fn a_pool_that_is_too_small_slows_the_reader_and_loses_nothing() {
    // Shared with the other tests of this process, which lose no packet because of that.
    pool::init(pool::Config { packets: 6_000, large_packets: 3, ..pool::Config::default() }).ok();
    let scratch = scratch();
    let path = scratch.path().join("in.pcap");
    let mut writer = bellows_capture::Writer::create(
        &path,
        bellows_capture::WriterOptions::default(),
        &[bellows_capture::Interface::new(LinkType::ETHERNET)],
    )
    .unwrap();
    for number in 0..20_000 {
        let data = &[1; 9_000][..if number % 1_000 == 0 { 9_000 } else { 60 }];
        let length = data.len() as u32;
        writer
            .write(&bellows_capture::Record { data, timestamp: number, original_length: length, interface: 0 })
            .unwrap();
    }
    writer.finish().unwrap();
    let outcome = run(reader(&path).unwrap(), Hoard(VecDeque::new()));
    assert_eq!(outcome.snapshot.links[0].received(), 20_000);
    assert_eq!((outcome.snapshot.apps[1].drops["hoarded"], outcome.snapshot.dropped()), (20_000, 20_000));
}

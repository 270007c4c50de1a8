//! `pcap-reader` on pipes: a capture may come in any pieces, and all of it arrives in order, also across reloads.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bellows_basic::pcap_reader::PcapReader;
use bellows_capture::{Interface, LinkType, OutputFormat, Record, Writer, WriterOptions};
use bellows_config::{Configure, Context};
use bellows_engine::{
    App, AppError, AppSpec, Control, End, Engine, Io, Network, Outcome, Port, Ports, ReloadError, Settings,
};
use bellows_rig::Rig;
use bellows_testkit::scratch::{TempDir, scratch};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::ioctl_fionread;

/// Longer than any step takes on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn fifo(folder: &TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    path
}

fn reader(path: &Path, keys: &str) -> PcapReader {
    let path = serde_json::to_string(path).unwrap();
    let config = serde_json::from_str(&format!(r#"{{"path": {path}{keys}}}"#)).unwrap();
    PcapReader::configure(config, &Context::default()).unwrap()
}

/// The data of packets with these lengths: each begins with its number.
fn packets(lengths: &[usize]) -> Vec<Vec<u8>> {
    let packet = |(number, length): (usize, &usize)| {
        let mut data = (number as u32).to_be_bytes().to_vec();
        data.resize(4 + length, number as u8);
        data
    };
    lengths.iter().enumerate().map(packet).collect()
}

/// A capture with these packets, and the offset where each record ends.
fn capture(packets: &[Vec<u8>], format: OutputFormat) -> Vec<u8> {
    let options = WriterOptions { format, ..WriterOptions::default() };
    let mut writer = Writer::new(Vec::new(), "memory", options, &[Interface::new(LinkType::ETHERNET)]).unwrap();
    for data in packets {
        writer.write(&Record { data, timestamp: 0, original_length: data.len() as u32, interface: 0 }).unwrap();
    }
    writer.finish().unwrap()
}

/// The packing of a capture.
#[derive(Clone, Copy, Debug)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

/// Packs bytes uncompressed, in blocks of `block` bytes.
fn packed(bytes: &[u8], packing: Packing, block: usize) -> Vec<u8> {
    let blocks: Vec<&[u8]> = bytes.chunks(block).collect();
    let last = |index: usize| u8::from(index + 1 == blocks.len());
    match packing {
        Packing::Plain => bytes.to_vec(),
        // RFC 1952, with stored blocks of RFC 1951.
        Packing::Gzip => {
            let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
            for (index, block) in blocks.iter().enumerate() {
                let length = block.len() as u16;
                packed.push(last(index));
                packed.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
                packed.extend(*block);
            }
            packed.extend(crc32(bytes).to_le_bytes());
            packed.extend((bytes.len() as u32).to_le_bytes());
            packed
        }
        // RFC 8878: a frame with a window of 1 MiB and raw blocks.
        Packing::Zstd => {
            let mut packed = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 10 << 3];
            for (index, block) in blocks.iter().enumerate() {
                packed.extend(&((block.len() as u32) << 3 | u32::from(last(index))).to_le_bytes()[..3]);
                packed.extend(*block);
            }
            packed
        }
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

/// Writes a piece, and waits until it has been read, so that the next one is read separately.
fn write_piece(pipe: &mut File, piece: &[u8]) {
    pipe.write_all(piece).unwrap();
    let deadline = Instant::now() + PATIENCE;
    while ioctl_fionread(&*pipe).unwrap() > 0 {
        assert!(Instant::now() < deadline, "nobody reads the pipe");
        thread::yield_now();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// A capture that comes in any pieces arrives whole and in order.
    #[test]
    fn all_packets_arrive_in_order_for_any_pieces(
        lengths in proptest::collection::vec(0usize..3_000, 0..40),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..25),
        format in prop_oneof![
            Just(OutputFormat::PcapMicroseconds), Just(OutputFormat::PcapNanoseconds), Just(OutputFormat::Pcapng)
        ],
        packing in prop_oneof![Just(Packing::Plain), Just(Packing::Gzip), Just(Packing::Zstd)],
        block in 1usize..4_000,
    ) {
        let folder = scratch();
        let path = fifo(&folder, "pipe");
        let sent = packets(&lengths);
        let bytes = packed(&capture(&sent, format), packing, block);
        let mut rig = Rig::new(reader(&path, ""), &[], &["output"]);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let writer = thread::spawn(move || {
            let mut pipe = File::options().write(true).open(path).unwrap();
            let mut from = 0;
            for to in cuts.into_iter().chain([bytes.len()]) {
                write_piece(&mut pipe, &bytes[from..to]);
                from = to;
            }
        });
        let mut received = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while !rig.is_done() {
            assert!(Instant::now() < deadline, "{} of {} packets", received.len(), sent.len());
            rig.breathe();
            received.extend(rig.received("output"));
        }
        writer.join().unwrap();
        prop_assert_eq!(received, sent);
        let outcome = rig.finish();
        prop_assert!(outcome.unfinished.is_empty(), "{:?}", outcome.unfinished);
    }
}

/// Keeps the bytes of all packets.
struct Keep(Arc<Mutex<Vec<Vec<u8>>>>);

impl App for Keep {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);

    fn push(&mut self, io: &Io<Self>) {
        for packet in &mut io.input(0) {
            self.0.lock().unwrap().push(packet.bytes().to_vec());
        }
    }
}

/// Cannot start.
struct NeverStarts;

impl App for NeverStarts {
    fn start(&mut self, _: Option<&mut Self>) -> Result<(), AppError> {
        Err("an app of this test is not to start".into())
    }
}

/// The packets that arrived so far.
#[derive(Clone, Default)]
struct Received(Arc<Mutex<Vec<Vec<u8>>>>);

impl Received {
    fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn wait_for(&self, packets: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.count() < packets {
            assert!(Instant::now() < deadline, "{} of {packets} packets", self.count());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A reader of a pipe whose packets come here.
    fn network(&self, path: &Path, keys: &str) -> Network {
        let mut network = Network::new();
        network.apps.push(AppSpec::new("in", "pcap-reader", &format!("{} {keys}", path.display()), reader(path, keys)));
        network.apps.push(AppSpec::new("keep", "keep", "", Keep(Arc::clone(&self.0))));
        network.link("in.output -> keep.input").unwrap()
    }
}

/// Runs a network on its own thread, and `beside` on this one.
fn run(network: Network, beside: impl FnOnce(&Control)) -> Outcome {
    let (sender, controls) = channel();
    let engine = thread::spawn(move || {
        let mut engine = Engine::new(network, Settings::default(), None).unwrap();
        sender.send(engine.control()).unwrap();
        let end = engine.run();
        engine.finish(end)
    });
    beside(&controls.recv().unwrap());
    let outcome = engine.join().unwrap();
    assert_eq!(outcome.snapshot.imbalances(), []);
    assert!(outcome.unfinished.is_empty(), "{:?}", outcome.unfinished);
    outcome
}

/// 200 packets, their capture, and an offset inside a record about halfway.
fn half_way() -> (Vec<Vec<u8>>, Vec<u8>, usize) {
    let sent = packets(&[100; 200]);
    let bytes = capture(&sent, OutputFormat::PcapNanoseconds);
    let half = bytes.len() / 2 + 7;
    (sent, bytes, half)
}

#[test]
fn a_reload_continues_the_same_pipe() {
    // The app is kept, or replaced by another one with other settings.
    for keys in ["", r#", "rate": "100Mpps""#] {
        let folder = scratch();
        let path = fifo(&folder, "pipe");
        let received = Received::default();
        let (sent, bytes, half) = half_way();
        let outcome = run(received.network(&path, ""), |control| {
            let mut pipe = File::options().write(true).open(&path).unwrap();
            write_piece(&mut pipe, &bytes[..half]);
            received.wait_for(50);
            let report = control.reload(received.network(&path, keys)).unwrap();
            assert_eq!((report.replaced.len(), report.unfinished.len()), (usize::from(!keys.is_empty()), 0));
            write_piece(&mut pipe, &bytes[half..]);
        });
        assert_eq!((outcome.end, &*received.0.lock().unwrap()), (End::Done, &sent), "{keys}");
    }
}

#[test]
fn a_reload_to_another_pipe_takes_all_that_comes_there() {
    let folder = scratch();
    let (before, after) = (fifo(&folder, "before"), fifo(&folder, "after"));
    let received = Received::default();
    let (sent, bytes, half) = half_way();
    let mut first = 0;
    let outcome = run(received.network(&before, ""), |control| {
        let mut old = File::options().write(true).open(&before).unwrap();
        write_piece(&mut old, &bytes[..half]);
        received.wait_for(90);
        let start = Instant::now();
        let report = control.reload(received.network(&after, "")).unwrap();
        assert_eq!((report.replaced.as_slice(), report.unfinished.len()), (&["in".to_owned()][..], 0));
        assert!(start.elapsed() < PATIENCE / 2, "the pipe that is still open holds it up");
        first = received.count();
        // The old pipe has no reader any more, so its writer gets an error.
        let gone = old.write_all(&bytes[half..]).and_then(|()| old.write_all(&[0; 1 << 17]));
        assert_eq!(gone.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
        let mut new = File::options().write(true).open(&after).unwrap();
        new.write_all(&bytes).unwrap();
    });
    let received = received.0.lock().unwrap();
    assert_eq!((outcome.end, &received[..first]), (End::Done, &sent[..first]));
    assert_eq!(&received[received.len() - sent.len()..], sent);
}

#[test]
fn a_reload_that_fails_leaves_the_pipe_reading() {
    for keys in ["", r#", "rate": "100Mpps""#] {
        let folder = scratch();
        let (path, other) = (fifo(&folder, "pipe"), fifo(&folder, "other"));
        let received = Received::default();
        let (sent, bytes, half) = half_way();
        let outcome = run(received.network(&path, ""), |control| {
            let mut pipe = File::options().write(true).open(&path).unwrap();
            write_piece(&mut pipe, &bytes[..half]);
            received.wait_for(50);
            for path in [&path, &other] {
                let mut network = received.network(path, keys);
                network.apps.push(AppSpec::new("never", "never", "", NeverStarts));
                let error = control.reload(network).unwrap_err();
                assert!(matches!(&error, ReloadError::App(app, _) if app == "never"), "{error}");
            }
            write_piece(&mut pipe, &bytes[half..]);
        });
        assert_eq!((outcome.end, &*received.0.lock().unwrap()), (End::Done, &sent), "{keys}");
    }
}

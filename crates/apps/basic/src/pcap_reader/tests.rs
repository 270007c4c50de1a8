use std::fs::File;

use bellows_capture::{Budget, Interface, LinkType, OutputFormat, Record, Writer, WriterOptions};
use bellows_engine::Settings;
use bellows_packet::{Meta, Packet};
use bellows_rig::Rig;
use bellows_testkit::scratch;
use proptest::prelude::*;
use rustix::fs::{CWD, Mode, mkfifoat};

use super::*;

/// A file to read, in a folder of its own.
struct Scratch {
    path: PathBuf,
    folder: scratch::TempDir,
}

impl Scratch {
    fn new(content: &[u8]) -> Scratch {
        let folder = scratch();
        Scratch { path: scratch::write(&folder, "capture", content), folder }
    }

    fn reader(&self, keys: &str) -> Result<PcapReader, SettingError> {
        reader_of(&self.path, keys)
    }

    fn rig(&self, keys: &str) -> Rig {
        Rig::new(self.reader(keys).unwrap(), &[], &["output"])
    }
}

fn reader_of(path: &Path, keys: &str) -> Result<PcapReader, SettingError> {
    let path = serde_json::to_string(path).unwrap();
    let config = serde_json::from_str(&format!(r#"{{"path": {path}{keys}}}"#));
    PcapReader::configure(config.expect("keys that can be read"), &Context::default())
}

const START: u64 = 1_700_000_000_000_000_000;

/// A pcapng file with packets of these times after START and these lengths, in turn from an Ethernet and a raw IP
/// interface.
fn capture(packets: &[(u64, usize)]) -> Vec<u8> {
    let interfaces = [Interface::new(LinkType::ETHERNET), Interface::new(LinkType::RAW)];
    let options = WriterOptions { format: OutputFormat::Pcapng, ..WriterOptions::default() };
    let mut writer = Writer::new(Vec::new(), "memory", options, &interfaces).unwrap();
    for (index, &(time, length)) in packets.iter().enumerate() {
        let data = &vec![index as u8; length][..];
        let record =
            Record { data, timestamp: START + time, original_length: length as u32 + 7, interface: index as u32 % 2 };
        writer.write(&record).unwrap();
    }
    writer.finish().unwrap()
}

/// The numbers of the packets sent since the last call.
fn numbers(rig: &mut Rig) -> Vec<u8> {
    rig.received("output").iter().map(|bytes| bytes[0]).collect()
}

#[test]
fn packets_carry_the_metadata_of_the_file() {
    let file = Scratch::new(&capture(&[(5, 60), (9, 100)]));
    let mut rig = file.rig("");
    rig.settle();
    let packets = rig.received_packets("output");
    let [first, second] = &packets[..] else { panic!("{packets:?}") };
    assert_eq!((first.bytes(), second.bytes()), (&[0; 60][..], &[1; 100][..]));
    let meta = |timestamp, original_length, ingress_port, link_type| {
        Some(Meta { timestamp: START + timestamp, original_length, ingress_port, link_type })
    };
    assert_eq!((first.meta(), second.meta()), (meta(5, 67, 0, 1), meta(9, 107, 1, 101)));
    let counters = rig.counts().counters;
    assert_eq!((counters[PROGRESS], counters["damaged"]), (counters[PROGRESS_TOTAL], 0));
    assert!(rig.is_done() && rig.finish().unfinished.is_empty());
}

#[test]
fn compressed_files_are_read_like_others() {
    let plain = capture(&[(0, 60); 3]);
    // A zstd frame (RFC 8878) of one raw block: magic, a header with the size in 4 bytes, the block's header and the
    // block itself.
    let mut zstd = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    zstd.extend((plain.len() as u32).to_le_bytes());
    zstd.extend(&((plain.len() as u32) << 3 | 1).to_le_bytes()[..3]);
    zstd.extend(plain);
    let mut rig = Scratch::new(&zstd).rig("");
    rig.settle();
    assert_eq!(numbers(&mut rig), [0, 1, 2]);
}

#[test]
fn recorded_time_is_kept_in_each_pass() {
    let file = Scratch::new(&capture(&[(0, 60), (2_000, 60), (2_000, 60), (5_000, 60)]));
    let mut rig = file.rig(r#", "speed": "recorded", "factor": 0.5, "repeat": 2"#);
    let mut sent = Vec::new();
    for time in (0..=20_000).step_by(1_000) {
        rig.set_time(1_000_000_000 + time);
        rig.settle();
        sent.extend(numbers(&mut rig).into_iter().map(|number| (time, number)));
    }
    let first = [(0, 0), (4_000, 1), (4_000, 2), (10_000, 3)];
    let second = first.map(|(time, number)| (time + 10_000, number));
    assert_eq!(sent, [first, second].concat());
    assert!(rig.is_done());
}

#[test]
fn a_rate_is_kept_for_any_recorded_times() {
    let file = Scratch::new(&capture(&[(1 << 40, 60), (0, 60), (5, 60)]));
    let mut rig = file.rig(r#", "rate": 1000"#);
    for (milliseconds, expected) in [(0, vec![0]), (1, vec![1]), (2, vec![2])] {
        assert!(!rig.is_done());
        rig.set_time(1_000_000_000 + milliseconds * 1_000_000);
        rig.settle();
        assert_eq!(numbers(&mut rig), expected);
    }
    assert!(rig.is_done());
}

#[test]
fn a_file_that_is_sent_forever_has_no_end_unless_it_is_empty() {
    let mut forever = Scratch::new(&capture(&[(0, 60); 3])).rig(r#", "repeat": "forever""#);
    (0..100).for_each(|_| assert!(forever.breathe()));
    assert!(numbers(&mut forever).chunks_exact(3).take(1_000).filter(|pass| *pass == [0, 1, 2]).count() == 1_000);
    assert_eq!(forever.counts().counters[PROGRESS_TOTAL], 0);

    let mut empty = Scratch::new(&capture(&[])).rig(r#", "repeat": "forever""#);
    empty.settle();
    assert!(empty.is_done());
}

#[test]
fn a_damaged_file_gives_its_whole_packets_and_an_error() {
    let whole = capture(&[(0, 60); 5]);
    let file = Scratch::new(&whole[..whole.len() - 1]);
    let mut rig = file.rig(r#", "repeat": "forever""#);
    rig.settle();
    assert_eq!(numbers(&mut rig), [0, 1, 2, 3]);
    assert_eq!(rig.counts().counters["damaged"], 1);
    assert!(rig.is_done());
    let outcome = rig.finish();
    let [(app, error)] = &outcome.unfinished[..] else { panic!("{outcome:?}") };
    let offset = format!("offset {}", whole.len() - 32 - 60);
    assert!(app == "app" && error.contains(&*file.path.to_string_lossy()) && error.contains(&offset), "{error}");
}

#[test]
fn a_packet_that_no_buffer_holds_is_dropped_and_counted() {
    let largest = LARGE_DATA_ROOM;
    let file = Scratch::new(&capture(&[(0, 60), (0, 9_000), (0, largest), (0, largest + 1), (0, 262_144), (0, 61)]));
    let mut rig = file.rig("");
    rig.settle();
    let packets = rig.received_packets("output");
    let lengths: Vec<usize> = packets.iter().map(Packet::len).collect();
    assert_eq!(lengths, [60, 9_000, largest, 61]);
    assert_eq!(packets[2].meta().map(|meta| meta.link_type), Some(1));
    assert_eq!(rig.counts().drops["too_long"], 2);
}

#[test]
fn a_successor_continues_in_the_file() {
    let file = Scratch::new(&capture(&[(0, 60); 3]));
    let mut old = file.reader("").unwrap();
    old.start(None).unwrap();
    let mut source = CaptureFile::open(&file.path).unwrap();
    source.reader.next_record().unwrap();
    old.source = Some(Box::new(source));
    let position = |reader: &PcapReader| reader.source.as_ref().unwrap().progress(Repeat::Times(1)).0;
    let first = position(&old);

    let mut new = file.reader(r#", "repeat": 2"#).unwrap();
    new.start(Some(&mut old)).unwrap();
    assert!(old.source.is_none());
    assert_eq!(position(&new), first);
    new.give_back(&mut old);
    assert!(new.source.is_none());
    assert_eq!(position(&old), first);
    new.start(None).unwrap();
    assert!(position(&new) < first, "a reader without a predecessor begins with the first packet");

    let mut elsewhere = Scratch::new(&capture(&[(0, 60)])).reader("").unwrap();
    assert!(elsewhere.start(Some(&mut old)).is_err(), "the file was removed after the check");
    assert!(old.source.is_some());
}

/// Whether a `pcap-writer` could overwrite it.
fn is_free(path: &Path) -> bool {
    let file = File::open(path).unwrap();
    let is_free = file.try_lock().is_ok();
    file.unlock().unwrap();
    is_free
}

#[test]
fn the_file_is_held_from_the_start_to_the_end() {
    let file = Scratch::new(&capture(&[(0, 60); 3]));
    let descriptors = |path: &Path| {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|link| link.ok()?.path().read_link().ok());
        links.filter(|link| link == path).count()
    };
    let mut old = file.reader("").unwrap();
    assert!(is_free(&file.path) && descriptors(&file.path) == 0, "a reader that is made only holds its file");
    old.start(None).unwrap();
    assert!(!is_free(&file.path));

    // One reload that fails, and one that succeeds.
    let mut new = file.reader("").unwrap();
    new.start(Some(&mut old)).unwrap();
    new.give_back(&mut old);
    drop(new);
    assert!(!is_free(&file.path));
    let mut new = file.reader("").unwrap();
    new.start(Some(&mut old)).unwrap();
    old.stop().unwrap();
    drop(old);
    assert!(!is_free(&file.path));
    new.stop().unwrap();
    assert!(is_free(&file.path) && descriptors(&file.path) == 0);
}

#[test]
fn changes_since_the_check_are_errors_of_the_start() {
    let file = Scratch::new(&capture(&[(0, 60)]));
    let path = &*file.path;
    let refused = |change: &dyn Fn()| {
        std::fs::write(path, capture(&[(0, 60)])).unwrap();
        let mut reader = file.reader("").unwrap();
        std::fs::remove_file(path).unwrap();
        change();
        let error = reader.start(None).err().unwrap().to_string();
        assert!(error.contains(&*path.to_string_lossy()), "{error}");
        let _ = std::fs::remove_file(path).or_else(|_| std::fs::remove_dir(path));
        error
    };
    let absent = refused(&|| ());
    assert!(absent.contains("it does not exist") && absent.contains("check the path"), "{absent}");
    let text = refused(&|| std::fs::write(path, "Not a capture.").unwrap());
    assert!(text.contains("not a capture") && text.contains("give a pcap or pcapng file"), "{text}");
    // The pipe has no writer: opening it in blocking mode would wait.
    let pipe = refused(&|| mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap());
    let folder = refused(&|| std::fs::create_dir(path).unwrap());
    for error in [pipe, folder] {
        assert!(error.contains("is not a regular file; give a capture file"), "{error}");
    }
}

/// A capture of Ethernet and raw IP packets in turn, each a UDP or, every third, a TCP packet; the last byte is a number.
fn mixed(count: usize) -> Vec<u8> {
    let interfaces = [Interface::new(LinkType::ETHERNET), Interface::new(LinkType::RAW)];
    let options = WriterOptions { format: OutputFormat::Pcapng, ..WriterOptions::default() };
    let mut writer = Writer::new(Vec::new(), "memory", options, &interfaces).unwrap();
    for number in 0..count {
        let protocol = if number % 3 == 0 { 6 } else { 17 };
        let mut data =
            [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00][..], &[0x45, 0, 0, 46, 0, 0, 0, 0, 64]].concat();
        data.push(protocol);
        data.resize(60, 0);
        data[59] = number as u8;
        let data = &data[if number % 2 == 0 { 0 } else { 14 }..];
        let timestamp = START + 1_000 * number as u64;
        let original_length = data.len() as u32 + 1_000;
        writer.write(&Record { data, timestamp, original_length, interface: number as u32 % 2 }).unwrap();
    }
    writer.finish().unwrap()
}

fn last_bytes(rig: &mut Rig) -> Vec<u8> {
    rig.received("output").iter().map(|bytes| *bytes.last().unwrap()).collect()
}

#[test]
fn only_packets_that_match_are_sent() {
    let file = Scratch::new(&mixed(240));
    for (keys, passes) in [("", 1), (r#", "repeat": 3"#, 3), (r#", "rate": "1Gpps", "repeat": 2"#, 2)] {
        for (filter, wanted) in [
            ("tcp", &(|number: u8| number.is_multiple_of(3)) as &dyn Fn(u8) -> bool),
            ("udp and len > 1050", &|number| number % 3 != 0 && number % 2 == 0),
            ("ether[0] = 2", &|number| number % 2 == 0),
            ("arp", &|_| false),
            ("", &|_| true),
        ] {
            let mut rig = file.rig(&format!(r#", "filter": "{filter}"{keys}"#));
            let mut now = 1_000_000_000;
            while !rig.is_done() {
                rig.set_time(now);
                rig.settle();
                now += 1_000_000;
            }
            let expected: Vec<u8> = (0..240).filter(|&number| wanted(number)).collect();
            assert_eq!(last_bytes(&mut rig), expected.repeat(passes), "{filter}{keys}");
            let left_out = rig.counts().drops["not_matched"];
            assert_eq!(left_out as usize, passes * (240 - expected.len()), "{filter}{keys}");
        }
    }
}

#[test]
fn a_filter_sees_no_byte_beyond_the_snap_length() {
    let mut frame = vec![2; 12];
    frame.extend([
        8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0, 53, 0, 8, 0, 0,
    ]);
    for (snap_length, count) in [(34, 0), (38, 1)] {
        let length = frame.len() as u32;
        let words = [0xa1b2_c3d4, 4 << 16 | 2, 0, 0, snap_length, 1, 1, 0, length, length];
        let file = Scratch::new(&[&words.map(u32::to_le_bytes).concat()[..], &frame].concat());
        let mut rig = file.rig(r#", "filter": "udp dst port 53""#);
        while !rig.is_done() {
            rig.settle();
        }
        // The packet that is sent is whole.
        assert_eq!(rig.received("output"), vec![frame.clone(); count], "{snap_length}");
    }
}

#[test]
fn packets_that_do_not_match_keep_their_time_and_take_no_share_of_a_rate() {
    let file = Scratch::new(&mixed(8));
    let mut rig = file.rig(r#", "filter": "udp", "speed": "recorded", "repeat": 2"#);
    let mut sent = Vec::new();
    for time in 0..20 {
        rig.set_time(1_000_000_000 + 1_000 * time);
        rig.settle();
        sent.extend(last_bytes(&mut rig).into_iter().map(|number| (time, number)));
    }
    // The first packet of each pass is one of TCP.
    let first = [1u8, 2, 4, 5, 7].map(|number| (u64::from(number), number));
    assert_eq!(sent, [first, first.map(|(time, number)| (time + 7, number))].concat());
    assert!(rig.is_done());

    let mut rig = file.rig(r#", "filter": "udp", "rate": 1000"#);
    for (milliseconds, number) in [1, 2, 4, 5, 7].into_iter().enumerate() {
        rig.set_time(1_000_000_000 + 1_000_000 * milliseconds as u64);
        rig.settle();
        assert_eq!(last_bytes(&mut rig), [number]);
    }
    assert!(rig.is_done());
}

#[test]
fn the_scope_decides_which_tag_a_second_test_looks_for() {
    let tagged = |tag: u8| {
        let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0x00, 0, tag, 0x08, 0x00][..], &[0; 42]].concat();
        frame[59] = tag;
        frame
    };
    let interfaces = [Interface::new(LinkType::ETHERNET)];
    let mut writer = Writer::new(Vec::new(), "memory", WriterOptions::default(), &interfaces).unwrap();
    for tag in [5, 6, 7] {
        let data = &tagged(tag)[..];
        writer.write(&Record { data, timestamp: START, original_length: 60, interface: 0 }).unwrap();
    }
    let file = Scratch::new(&writer.finish().unwrap());
    for (keys, expected) in [("", &[5][..]), (r#", "scope": "libpcap""#, &[5]), (r#", "scope": "lexical""#, &[5, 6])] {
        let mut rig = file.rig(&format!(r#", "filter": "vlan 5 or vlan 6"{keys}"#));
        rig.settle();
        assert_eq!(last_bytes(&mut rig), expected, "{keys}");
    }
}

#[test]
fn a_mistake_in_the_filter_has_a_place() {
    let file = Scratch::new(&mixed(1));
    let error = file.reader(r#", "filter": "tcp port 80 or ether proto""#).err().unwrap();
    assert_eq!((error.key, error.part.range), (Some("filter"), Some(26..26)));
}

#[test]
fn invalid_configs_name_their_key() {
    let file = Scratch::new(&capture(&[(0, 60)]));
    for (keys, key) in [
        (r#", "rate": 0"#, "rate"),
        (r#", "rate": 5, "speed": "recorded""#, "rate"),
        (r#", "factor": 2"#, "factor"),
        (r#", "factor": 0, "speed": "recorded""#, "factor"),
        (r#", "scope": "lexical""#, "scope"),
    ] {
        assert_eq!(file.reader(keys).err().and_then(|mistake| mistake.key), Some(key), "{keys}");
    }
    let text = Scratch::new(b"Not a capture.");
    let absent = text.folder.path().join("absent");
    let folder = text.folder.path();
    for (path, says) in [(&*text.path, "not a capture"), (&absent, "it does not exist"), (folder, "not a regular file")]
    {
        let mistake = reader_of(path, "").err().unwrap();
        assert_eq!(mistake.key, Some("path"));
        let message = &mistake.message;
        assert!(message.contains(&*path.to_string_lossy()) && message.contains(says), "{message}");
    }
    for repeat in ["0", "-1", "1.5", "\"for ever\""] {
        assert!(serde_json::from_str::<Repeat>(repeat).is_err(), "{repeat}");
    }
}

proptest! {
    /// For any burst size and number of passes, each pass sends all packets in order.
    #[test]
    fn every_packet_comes_in_every_pass(
        lengths in proptest::collection::vec(1usize..3_000, 1..200),
        burst in 1usize..300,
        passes in 1usize..5,
    ) {
        let packets: Vec<_> = lengths.iter().map(|&length| (0, length)).collect();
        let file = Scratch::new(&capture(&packets));
        let settings = Settings { burst, ..Settings::default() };
        let reader = file.reader(&format!(r#", "repeat": {passes}"#)).unwrap();
        let mut rig = Rig::with_settings(reader, &[], &["output"], settings);
        rig.settle();
        prop_assert!(rig.is_done());
        let received: Vec<usize> = rig.received("output").iter().map(Vec::len).collect();
        prop_assert_eq!(received, lengths.repeat(passes));
    }
}

#[test]
fn a_file_without_packets_does_not_hold_a_breath() {
    const BLOCK: usize = 64 << 10;
    const BLOCKS: usize = 512;
    let (one, two) = (capture(&[(0, 60)]), capture(&[(0, 60), (1, 60)]));
    // A statistics block, which a reader skips.
    let length = (BLOCK as u32).to_le_bytes();
    let block = [&5u32.to_le_bytes()[..], &length, &[0; BLOCK - 12], &length].concat();
    let file = Scratch::new(&[&one, &block.repeat(BLOCKS)[..], &two[one.len()..]].concat());
    for keys in ["", r#", "rate": "1Gpps""#, r#", "repeat": 2"#] {
        let mut rig = file.rig(keys);
        let (mut breaths, mut sent) = (0, 0);
        let mut now = 1_000_000_000;
        while !rig.is_done() {
            let before = rig.counts().counters[PROGRESS];
            rig.set_time(now);
            rig.breathe();
            let read = rig.counts().counters[PROGRESS] - before;
            let most = Budget::for_records(Settings::default().burst).left() + Budget::PIECE + BLOCK as u64;
            assert!(read <= most, "{keys}: {read} bytes in a breath");
            sent += rig.received("output").len();
            now += 1_000_000;
            breaths += 1;
            assert!(breaths < 10_000, "{keys}");
        }
        let passes = if keys.contains("repeat") { 2 } else { 1 };
        assert_eq!(sent, 2 * passes, "{keys}");
        assert!(breaths >= passes * BLOCKS * BLOCK / (2 << 20), "{keys}: {breaths} breaths");
    }
}

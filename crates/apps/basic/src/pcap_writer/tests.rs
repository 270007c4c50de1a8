use std::fs;
use std::path::PathBuf;

use bellows_capture::{LinkType, Reader};
use bellows_packet::{Meta, Packet};
use bellows_rig::Rig;
use bellows_testkit::scratch::{TempDir, scratch};
use bellows_testkit::skip;

use super::*;

/// A folder in which captures are written.
struct Scratch(TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(scratch())
    }

    fn writer(&self, name: &str, keys: &str) -> Result<PcapWriter, SettingError> {
        let config = serde_json::from_str(&format!(r#"{{"path": "{name}"{keys}}}"#));
        let context = Context::new(self.0.path().to_owned(), "out");
        PcapWriter::configure(config.expect("keys that can be read"), &context)
    }

    fn rig(&self, name: &str, keys: &str) -> Rig {
        Rig::new(self.writer(name, keys).unwrap(), &["input"], &[])
    }

    /// The packets of a file: bytes, time, length on the wire, link type.
    fn read(&self, name: &str) -> Vec<(Vec<u8>, u64, u32, LinkType)> {
        let mut reader = Reader::open(self.0.path().join(name)).unwrap();
        let mut records = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            let (data, interface) = (record.data.to_vec(), record.interface as usize);
            let facts = (record.timestamp, record.original_length);
            records.push((data, facts.0, facts.1, reader.interfaces()[interface].link_type));
        }
        records
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

const TIME: u64 = 1_700_000_000_123_456_789;

fn packet(bytes: &[u8], meta: Meta) -> Packet {
    let mut packet = Packet::from_bytes(bytes).unwrap();
    packet.set_meta(meta);
    packet
}

fn of_link_type(link_type: u32) -> Packet {
    packet(b"data", Meta { timestamp: TIME, original_length: 99, ingress_port: link_type, link_type })
}

#[test]
fn packets_are_written_with_their_metadata() {
    let scratch = Scratch::new();
    for (name, keys, time) in [
        ("a.pcap", "", TIME),
        ("b.pcap", r#", "resolution": "us""#, TIME / 1_000 * 1_000),
        ("c.pcapng", "", TIME),
        ("d.pcap", r#", "format": "pcapng""#, TIME),
    ] {
        let mut rig = scratch.rig(name, keys);
        rig.send_packets("input", [of_link_type(1), of_link_type(1)]);
        rig.settle();
        assert!(rig.finish().unfinished.is_empty());
        assert_eq!(scratch.read(name), vec![(b"data".to_vec(), time, 99, LinkType::ETHERNET); 2], "{name}{keys}");
    }
}

#[test]
fn packets_that_carry_nothing_are_frames_of_now() {
    let scratch = Scratch::new();
    for (keys, packet) in [("", Packet::from_bytes(b"data").unwrap()), (r#", "timestamps": "now""#, of_link_type(1))] {
        let before = wall_clock();
        let original_length = packet.meta().map_or(4, |meta| meta.original_length);
        let mut rig = scratch.rig("out.pcap", keys);
        rig.send_packets("input", [packet]);
        rig.settle();
        rig.finish();
        let records = scratch.read("out.pcap");
        let [(data, time, length, link_type)] = &records[..] else { panic!("{records:?}") };
        assert_eq!((&data[..], *length, *link_type), (&b"data"[..], original_length, LinkType::ETHERNET));
        assert!((before..=wall_clock()).contains(time));
    }
}

#[test]
fn a_pcap_file_has_the_link_type_of_its_first_packet_and_a_pcapng_file_any() {
    let scratch = Scratch::new();
    for (name, kept, dropped) in [("out.pcap", vec![101, 101], 2), ("out.pcapng", vec![101, 1, 101], 1)] {
        let mut rig = scratch.rig(name, "");
        rig.send_packets("input", [101, 1, 101, 1 << 30].map(of_link_type));
        rig.settle();
        assert_eq!(rig.counts().drops["link_type"], dropped);
        rig.finish();
        let link_types: Vec<u32> = scratch.read(name).iter().map(|record| record.3.0).collect();
        assert_eq!(link_types, kept);
    }
}

#[test]
fn a_time_beyond_the_range_of_pcap_is_a_counted_drop() {
    let scratch = Scratch::new();
    let mut rig = scratch.rig("out.pcap", "");
    let late = Meta { timestamp: u64::MAX, original_length: 4, ingress_port: 0, link_type: 1 };
    rig.send_packets("input", [packet(b"late", late), of_link_type(1)]);
    rig.settle();
    assert_eq!(rig.counts().drops["timestamp"], 1);
    rig.finish();
    assert_eq!(scratch.read("out.pcap").len(), 1);
}

#[test]
fn a_run_without_packets_leaves_a_valid_file() {
    let scratch = Scratch::new();
    for name in ["out.pcap", "out.pcapng"] {
        let mut rig = scratch.rig(name, "");
        rig.settle();
        rig.finish();
        let mut reader = Reader::open(scratch.0.path().join(name)).unwrap();
        assert!(reader.next_record().unwrap().is_none());
        assert_eq!(reader.interfaces()[0].link_type, LinkType::ETHERNET);
    }
}

#[test]
fn a_file_can_be_read_while_it_grows() {
    let scratch = Scratch::new();
    let mut rig = scratch.rig("out.pcap", "");
    rig.settle();
    rig.send("input", ["one"]);
    rig.settle();
    assert_eq!(fs::metadata(scratch.0.path().join("out.pcap")).unwrap().len(), 0);
    for second in 2..4 {
        rig.set_time(second * FLUSH_EVERY);
        rig.settle();
        assert_eq!(scratch.read("out.pcap").len() as u64, second - 1);
        rig.send("input", ["another"]);
        rig.settle();
    }
}

#[test]
fn long_packets_are_cut_and_counted() {
    let scratch = Scratch::new();
    let mut rig = scratch.rig("out.pcap", r#", "snaplen": 3"#);
    rig.send("input", ["abc", "abcd"]);
    rig.settle();
    assert_eq!(rig.counts().counters["cut"], 1);
    rig.finish();
    let records = scratch.read("out.pcap");
    assert_eq!(
        records.iter().map(|record| (&record.0[..], record.2)).collect::<Vec<_>>(),
        [(&b"abc"[..], 3), (b"abc", 4)]
    );
}

#[test]
fn full_files_give_way_and_the_oldest_are_removed() {
    for (keep, files) in [
        ("", vec!["out.1.pcap", "out.2.pcap", "out.3.pcap", "out.pcap"]),
        (r#", "keep": 2"#, vec!["out.3.pcap", "out.pcap"]),
        (r#", "keep": 1"#, vec!["out.pcap"]),
    ] {
        let scratch = Scratch::new();
        // A header of 24 bytes and two records of 16 + 4.
        let mut rig = scratch.rig("out.pcap", &format!(r#", "rotate": 64{keep}"#));
        rig.send_packets("input", (0..7).map(|_| of_link_type(101)));
        rig.settle();
        assert_eq!(rig.counts().counters["full_files"], 3);
        assert!(rig.finish().unfinished.is_empty());
        assert_eq!(scratch.files(), files);
        for file in files {
            let records = scratch.read(file);
            assert_eq!(records.len(), if file == "out.pcap" { 1 } else { 2 });
            assert!(records.iter().all(|record| record.3 == LinkType::RAW));
        }
    }
}

#[test]
fn a_full_disk_is_counted_drops_and_an_error() {
    let mut rig = Scratch::new().rig("/dev/full", "");
    rig.send("input", ["one", "two"]);
    rig.settle();
    rig.set_time(3 * FLUSH_EVERY);
    rig.settle();
    rig.send("input", ["three", "four"]);
    rig.settle();
    let outcome = rig.finish();
    let app = &outcome.snapshot.apps[0];
    assert_eq!((app.in_packets, app.drops["write_failed"], app.counters["written"]), (4, 4, 0));
    let [(_, error)] = &outcome.unfinished[..] else { panic!("{outcome:?}") };
    assert!(error.starts_with("/dev/full: writing failed, 0 bytes into the file"), "{error}");
    assert!(error.ends_with("4 packets could not be written; the capture contains 0 packets"), "{error}");
}

/// A small file system for one test.
struct Disk(PathBuf);

impl Disk {
    /// `None`, and the test is skipped, if this process may not mount a file system.
    fn new(test: &str, scratch: &Scratch, bytes: u64) -> Option<Disk> {
        let path = scratch.0.path().join("disk");
        fs::create_dir(&path).unwrap();
        let options = format!("size={bytes}");
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path);
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(Disk(path));
        }
        skip(test, "a small disk needs the right to mount one");
        None
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Sends `count` packets of 1,000 bytes.
fn send_many(rig: &mut Rig, count: usize) {
    for _ in 0..count / 100 {
        rig.send("input", (0..100).map(|_| [7; 1_000]));
        rig.settle();
    }
}

#[test]
fn packets_counted_as_written_are_in_the_file_when_the_disk_is_full() {
    const TEST: &str = "packets_counted_as_written_are_in_the_file_when_the_disk_is_full";
    for format in ["pcap", "pcapng"] {
        let scratch = Scratch::new();
        let Some(_disk) = Disk::new(TEST, &scratch, 1_000_000) else { return };
        let mut rig = scratch.rig("disk/out.pcap", &format!(r#", "format": "{format}""#));
        send_many(&mut rig, 2_000);
        let outcome = rig.finish();
        let app = &outcome.snapshot.apps[0];
        let (written, lost) = (app.counters["written"], app.drops["write_failed"]);
        assert_eq!((app.in_packets, written + lost), (2_000, 2_000));
        let records = scratch.read("disk/out.pcap");
        assert!(records.len() as u64 == written && written > 800, "{written}, {}", records.len());
        let [(_, error)] = &outcome.unfinished[..] else { panic!("{outcome:?}") };
        let size = fs::metadata(scratch.0.path().join("disk/out.pcap")).unwrap().len();
        let offset: u64 = error.split_once("failed, ").unwrap().1.split_once(' ').unwrap().0.parse().unwrap();
        assert!((size..size + 1_100).contains(&offset) && offset < 1_010_000, "{error}, {size}");
        assert!(error.contains(&format!("{lost} packets could not be written")), "{error}");
    }
}

#[test]
fn writing_continues_when_a_full_disk_has_room_again() {
    const TEST: &str = "writing_continues_when_a_full_disk_has_room_again";
    let scratch = Scratch::new();
    let Some(_disk) = Disk::new(TEST, &scratch, 1_000_000) else { return };
    let ballast = scratch.0.path().join("disk/ballast");
    fs::write(&ballast, vec![0; 600_000]).unwrap();
    let mut rig = scratch.rig("disk/out.pcap", "");
    send_many(&mut rig, 1_000);
    let lost = rig.counts().drops["write_failed"];
    assert!(lost > 100, "{lost}");
    fs::remove_file(&ballast).unwrap();
    rig.set_time(4 * FLUSH_EVERY);
    rig.settle();
    send_many(&mut rig, 100);
    let outcome = rig.finish();
    let app = &outcome.snapshot.apps[0];
    assert_eq!((app.drops["write_failed"], app.counters["written"]), (lost, 1_100 - lost));
    assert_eq!(scratch.read("disk/out.pcap").len() as u64, 1_100 - lost);
    assert_eq!(outcome.unfinished.len(), 1, "packets were lost");
}

#[test]
fn a_file_is_replaced_when_the_run_begins_and_never_if_it_does_not() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let scratch = Scratch::new();
    let path = |name: &str| scratch.0.path().join(name);
    fs::write(path("real.pcap"), "old").unwrap();
    fs::set_permissions(path("real.pcap"), fs::Permissions::from_mode(0o640)).unwrap();
    symlink("real.pcap", path("out.pcap")).unwrap();
    symlink("nowhere.pcap", path("new.pcap")).unwrap();
    let before = scratch.files();
    let old = fs::File::open(path("real.pcap")).unwrap();
    for name in ["out.pcap", "new.pcap", "absent.pcap"] {
        let mut writer = scratch.writer(name, "").unwrap();
        writer.start(None).unwrap();
        assert_eq!(scratch.files().len(), before.len() + 1);
        let mut second = scratch.writer(name, "").unwrap();
        assert!(second.start(None).unwrap_err().to_string().contains("reads or writes it"));
        writer.stop().unwrap();
        assert_eq!(scratch.files(), before);
        scratch.writer(name, "").unwrap().start(None).unwrap();
        assert_eq!(scratch.files(), before, "an app that is dropped leaves nothing either");
    }
    assert_eq!(fs::read(path("real.pcap")).unwrap(), b"old");

    for name in ["out.pcap", "new.pcap"] {
        let mut rig = scratch.rig(name, "");
        rig.send("input", ["one"]);
        rig.settle();
        rig.finish();
        assert_eq!(scratch.read(name).len(), 1);
        assert!(fs::symlink_metadata(path(name)).unwrap().is_symlink());
    }
    let new = fs::metadata(path("real.pcap")).unwrap();
    assert_eq!(new.permissions().mode() & 0o777, 0o640);
    assert!(old.metadata().unwrap().ino() != new.ino() && old.metadata().unwrap().len() == 3, "the old one is whole");

    fs::hard_link(path("real.pcap"), path("twin.pcap")).unwrap();
    scratch.rig("real.pcap", "").finish();
    assert_eq!(scratch.read("twin.pcap").len(), 0, "both names lead to the new capture");
    assert_eq!(fs::metadata(path("twin.pcap")).unwrap().nlink(), 2);
}

/// The permissions and the group of a file.
fn access(path: &std::path::Path) -> (u32, u32) {
    use std::os::unix::fs::MetadataExt;
    let found = fs::metadata(path).unwrap();
    (found.mode() & 0o7777, found.gid())
}

#[test]
fn files_of_a_rotation_have_the_given_mode_and_group() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let path = |name: &str| scratch.0.path().join(name);
    let own = access(scratch.0.path()).1;
    // Root may give files to any group, others only to their own.
    let group = if rustix::process::geteuid().is_root() { 12_345 } else { own };
    let keys = format!(r#", "mode": "0664", "group": {group}, "rotate": "1kB""#);
    // The old file is open to everybody, and belongs to another group.
    fs::write(path("out.pcap"), "old").unwrap();
    fs::set_permissions(path("out.pcap"), fs::Permissions::from_mode(0o666)).unwrap();
    let mut writer = scratch.writer("out.pcap", &keys).unwrap();
    writer.start(None).unwrap();
    let new = scratch.files().into_iter().find(|name| name.contains(".bellows-new-")).unwrap();
    assert_eq!(access(&path(&new)), (0o664, group), "before it holds anything");
    assert_eq!(access(&path("out.pcap")), (0o666, own), "what is there is not touched");
    writer.stop().unwrap();
    let mut rig = scratch.rig("out.pcap", &keys);
    rig.send("input", vec![[0; 500]; 5]);
    rig.settle();
    rig.finish();
    for name in ["out.pcap", "out.1.pcap", "out.2.pcap"] {
        assert_eq!(access(&path(name)), (0o664, group), "{name}");
    }
    // Each of the two keys leaves the other property unchanged.
    scratch.rig("out.pcap", r#", "mode": "600""#).finish();
    assert_eq!(access(&path("out.pcap")), (0o600, group));
    scratch.rig("out.pcap", &format!(r#", "group": {own}"#)).finish();
    assert_eq!(access(&path("out.pcap")), (0o600, own));
    scratch.rig("other.pcap", r#", "mode": "0777""#).finish();
    assert_eq!(access(&path("other.pcap")), (0o777, own), "whatever the umask");
}

#[test]
fn a_file_that_can_only_be_written_in_place_keeps_its_mode_or_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let path = |name: &str| scratch.0.path().join(name);
    fs::write(path("out.pcap"), "old").unwrap();
    fs::hard_link(path("out.pcap"), path("twin.pcap")).unwrap();
    fs::set_permissions(path("out.pcap"), fs::Permissions::from_mode(0o644)).unwrap();
    let error = scratch.writer("out.pcap", r#", "mode": "0640""#).unwrap().start(None).unwrap_err().to_string();
    assert!(error.contains("several names") && error.contains("mode 0644") && error.contains("chmod"), "{error}");
    assert_eq!(fs::read(path("out.pcap")).unwrap(), b"old");
    scratch.rig("out.pcap", r#", "mode": "0644""#).finish();
    assert_eq!(scratch.read("twin.pcap").len(), 0);
}

#[test]
fn an_impossible_mode_or_group_is_an_error_before_the_start() {
    let scratch = Scratch::new();
    let mistake = |name: &str, keys: &str| scratch.writer(name, keys).err().unwrap();
    for mode in ["0040", "0400", "0222", "0000"] {
        let mistake = mistake("out.pcap", &format!(r#", "mode": "{mode}""#));
        assert_eq!(mistake.key, Some("mode"), "{mode}");
        assert!(mistake.message.contains("owner") && mistake.help.contains("0600"), "{mistake:?}");
    }
    for (name, keys, key) in [
        ("-", r#", "mode": "0640""#, "mode"),
        ("-", r#", "group": 0"#, "group"),
        ("/dev/null", r#", "mode": "0640", "group": "root""#, "mode"),
    ] {
        let mistake = mistake(name, keys);
        assert_eq!(mistake.key, Some(key), "{name} {keys}");
        assert!(mistake.help.contains("leave"), "{mistake:?}");
    }
    let refused = |keys: &str| {
        let config = serde_json::from_str::<Config>(&format!(r#"{{"path": "out.pcap"{keys}}}"#));
        config.unwrap_err().to_string()
    };
    assert!(refused(r#", "mode": "rw-r--""#).contains("octal"));
    assert!(refused(r#", "mode": 416"#).contains("octal"));
    assert!(refused(r#", "group": "nobody at all""#).contains("getent group"));
}

#[test]
fn a_running_capture_keeps_its_mode_in_a_reload() {
    let scratch = Scratch::new();
    let mut old = scratch.writer("out.pcap", r#", "mode": "0640""#).unwrap();
    old.start(None).unwrap();
    old.begin();
    let mut other = scratch.writer("out.pcap", r#", "mode": "0600""#).unwrap();
    let error = other.start(Some(&mut old)).unwrap_err().to_string();
    assert!(error.contains("mode and group cannot change"), "{error}");
    scratch.writer("out.pcap", r#", "mode": "0640", "rotate": "1kB""#).unwrap().start(Some(&mut old)).unwrap();
}

#[test]
fn only_leftovers_of_killed_processes_are_removed() {
    let scratch = Scratch::new();
    for name in ["out.pcap.bellows-new-1-0", "out.pcap.bellows-new-mine", "other.pcap.bellows-new-1-0"] {
        fs::write(scratch.0.path().join(name), "left").unwrap();
    }
    scratch.rig("out.pcap", "").finish();
    assert_eq!(scratch.files(), ["other.pcap.bellows-new-1-0", "out.pcap", "out.pcap.bellows-new-mine"]);
}

#[test]
fn a_packet_that_has_grown_is_as_long_as_it_is() {
    let scratch = Scratch::new();
    let mut rig = scratch.rig("out.pcap", "");
    rig.send_packets(
        "input",
        [packet(b"longer", Meta { timestamp: TIME, original_length: 4, ingress_port: 0, link_type: 1 })],
    );
    rig.settle();
    rig.finish();
    assert_eq!(scratch.read("out.pcap")[0].2, 6);
}

#[test]
fn a_file_that_an_app_has_open_is_not_touched() {
    let scratch = Scratch::new();
    let mut first = scratch.rig("out.pcap", "");
    first.send("input", ["one"]);
    first.settle();
    let refused = |path: &str| scratch.writer(path, "").unwrap().start(None).unwrap_err().to_string();
    assert!(refused("out.pcap").contains("reads or writes it"));
    first.finish();
    assert_eq!(scratch.read("out.pcap").len(), 1);

    let reader = fs::File::open(scratch.0.path().join("out.pcap")).unwrap();
    reader.lock_shared().unwrap();
    assert!(refused("out.pcap").contains("reads or writes it"));
    assert_eq!(scratch.read("out.pcap").len(), 1);
}

#[test]
fn a_successor_continues_the_same_file() {
    let scratch = Scratch::new();
    let write = |writer: &mut PcapWriter, data: &[u8]| {
        let output = writer.output.as_mut().unwrap();
        assert_eq!(output.write(data, TIME, None, Rotation::default()), Ok(Written::Whole));
    };
    let mut old = scratch.writer("out.pcap", "").unwrap();
    old.start(None).unwrap();
    old.begin();
    write(&mut old, b"one");
    let mut new = scratch.writer("out.pcap", r#", "rotate": "1MB""#).unwrap();
    new.start(Some(&mut old)).unwrap();
    new.give_back(&mut old);
    write(&mut old, b"two");
    new.start(Some(&mut old)).unwrap();
    old.stop().unwrap();
    write(&mut new, b"three");
    let mut other = scratch.writer("out.pcap", r#", "snaplen": 60"#).unwrap();
    assert!(other.start(Some(&mut new)).unwrap_err().to_string().contains("cannot change"));
    new.stop().unwrap();
    assert_eq!(
        scratch.read("out.pcap").iter().map(|record| &record.0[..]).collect::<Vec<_>>(),
        [&b"one"[..], b"two", b"three"]
    );
}

#[test]
fn invalid_configs_name_their_key_and_touch_no_file() {
    let scratch = Scratch::new();
    for (name, keys, key) in [
        ("out.pcap", r#", "snaplen": 0"#, "snaplen"),
        ("out.pcap", r#", "rotate": 0"#, "rotate"),
        ("out.pcap", r#", "rotate": 1, "keep": 0"#, "keep"),
        ("out.pcap", r#", "keep": 3"#, "keep"),
        ("/dev/null", r#", "rotate": 100"#, "rotate"),
        ("out.pcapng", r#", "resolution": "us""#, "resolution"),
        ("out.pcap.gz", "", "path"),
        ("missing/out.pcap", "", "path"),
        (".", "", "path"),
    ] {
        assert_eq!(scratch.writer(name, keys).err().and_then(|mistake| mistake.key), Some(key), "{name}{keys}");
    }
    scratch.writer("out.pcap", "").unwrap();
    assert_eq!(scratch.files(), Vec::<String>::new());
}

//! Two networks in one process, joined through a socket: `virtio-user` in one, `vhost-user` in the other.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use bellows_engine::{App, Settings};
use bellows_packet::{Offload, Packet, pool};
use bellows_rig::Rig;
use bellows_testkit::scratch::{TempDir, scratch};
use bellows_wire::verify_checksums;
use fastrand::Rng;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use super::*;
use crate::port::samples::gso_packet;
use crate::vhost_user::VhostUser;

/// A socket in a folder that no other test has.
struct Socket(TempDir);

impl Socket {
    fn new() -> Socket {
        Socket(scratch())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("socket")
    }

    /// An app of either side, with these keys beside the socket.
    fn app<A: Configure>(&self, keys: &Value) -> A {
        let mut config = json!({ "socket": self.path() });
        let keys = keys.as_object().cloned().unwrap_or_default();
        config.as_object_mut().unwrap().extend(keys);
        A::configure(serde_json::from_value(config).unwrap(), &Context::default()).unwrap()
    }

    /// A network with one app, linked at both ends.
    fn rig<A: Configure>(&self, keys: &Value) -> Rig {
        Rig::new(self.app::<A>(keys), &["input"], &["output"])
    }
}

/// Both networks.
struct Joined {
    driver: Rig,
    device: Rig,
}

impl Joined {
    /// Both sides, once a packet has gone each way.
    fn new(socket: &Socket, driver: &Value, device: &Value) -> Joined {
        let mut joined = Joined { device: socket.rig::<VhostUser>(device), driver: socket.rig::<VirtioUser>(driver) };
        joined.greet();
        joined
    }

    /// Sends packets until one has come through each way, and then those that are on their way.
    fn greet(&mut self) {
        let (mut up, mut down) = (false, false);
        self.until(|joined| {
            if !up {
                joined.driver.send("input", [b"hello"]);
            }
            if !down {
                joined.device.send("input", [b"hello"]);
            }
            up |= !joined.device.received("output").is_empty();
            down |= !joined.driver.received("output").is_empty();
            up && down
        });
        for _ in 0..10 {
            self.breathe();
        }
        self.device.received("output");
        self.driver.received("output");
    }

    fn breathe(&mut self) {
        self.driver.breathe();
        self.device.breathe();
    }

    /// Breathes until something is so.
    fn until(&mut self, mut so: impl FnMut(&mut Joined) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            self.breathe();
            if so(self) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "driver: {:?}\ndevice: {:?}",
                self.driver.counts(),
                self.device.counts()
            );
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Sends packets one way and checks that they come out as they were and in their order.
    fn transfer(&mut self, up: bool, packets: &[Packet]) {
        let (from, _) = if up { (&mut self.driver, ()) } else { (&mut self.device, ()) };
        from.send_packets("input", packets.iter().map(|packet| packet.copy().unwrap()));
        let mut came: Vec<Packet> = Vec::new();
        self.until(|joined| {
            let to = if up { &mut joined.device } else { &mut joined.driver };
            came.extend(to.received_packets("output"));
            came.len() >= packets.len()
        });
        assert_eq!(came.len(), packets.len());
        for (came, sent) in came.iter().zip(packets) {
            assert!(came.bytes() == sent.bytes(), "a packet of {} bytes came with {}", sent.len(), came.len());
            assert_eq!(came.offload(), sent.offload());
        }
    }
}

fn packets(count: usize, longest: usize, random: &mut Rng) -> Vec<Packet> {
    let mut packet = || {
        let length = if random.u8(..) < 230 { random.usize(1..200) } else { random.usize(1..=longest) };
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(length).collect();
        Packet::from_bytes(&bytes).unwrap()
    };
    (0..count).map(|_| packet()).collect()
}

#[test]
fn every_packet_comes_through_both_ways_whatever_is_negotiated() {
    let mut random = Rng::with_seed(1);
    let options =
        ["packed", "mergeable", "in-order", "event-idx", "indirect", "any-layout", "version-1", "guest-checksum"];
    for turn in 0..24 {
        let socket = Socket::new();
        let disable: Vec<&str> = match turn {
            0 => Vec::new(),
            1 => options.to_vec(),
            _ => options.into_iter().filter(|_| random.bool()).collect(),
        };
        let size = [2, 16, 64, 256, 1024][turn % 5];
        let server = turn % 2 == 0;
        let [driver_mode, device_mode] = if server { ["server", "client"] } else { ["client", "server"] };
        let driver = json!({ "mode": driver_mode, "queue_size": size, "disable": disable });
        let device = json!({ "mode": device_mode, "disable": if random.bool() { vec!["packed"] } else { Vec::new() } });
        let mut joined = Joined::new(&socket, &driver, &device);
        // Without mergeable buffers, or with a short ring, there is no room for long ones.
        let longest = if disable.contains(&"mergeable") || size < 64 { 1_514 } else { 9_014 };
        for _ in 0..4 {
            for up in [true, false] {
                let packets = packets(random.usize(1..700), longest, &mut random);
                joined.transfer(up, &packets);
            }
        }
        let [driver, device] = [joined.driver.counts(), joined.device.counts()];
        for (name, counts) in [("driver", driver), ("device", device)] {
            let unexpected = counts.drops.iter().filter(|(reason, count)| **count > 0 && !reason.starts_with("no_d"));
            assert_eq!(unexpected.collect::<Vec<_>>(), [], "{name}, without {disable:?}");
            assert!(counts.counters.values().all(|count| *count == 0), "{name}: {:?}", counts.counters);
        }
    }
}

#[test]
fn several_queues_keep_the_packets_of_a_flow_in_order() {
    let socket = Socket::new();
    let keys = json!({ "queues": 4 });
    let mut joined = Joined::new(&socket, &keys, &keys);
    // 16 flows by their addresses, each with its numbers.
    let frame = |number: usize| {
        let mut frame = vec![2; 60];
        frame[5] = (number % 16) as u8;
        frame[12..14].copy_from_slice(&[0x88, 0xb5]);
        frame[14..16].copy_from_slice(&(number as u16).to_be_bytes());
        frame
    };
    for up in [true, false] {
        let from = if up { &mut joined.driver } else { &mut joined.device };
        from.send("input", (0..2_000).map(frame));
        let mut came: Vec<Vec<u8>> = Vec::new();
        joined.until(|joined| {
            let to = if up { &mut joined.device } else { &mut joined.driver };
            came.extend(to.received("output"));
            came.len() >= 2_000
        });
        for flow in 0..16 {
            let numbers: Vec<u16> = came
                .iter()
                .filter(|frame| frame[5] == flow)
                .map(|frame| u16::from_be_bytes([frame[14], frame[15]]))
                .collect();
            assert!(numbers.len() == 125 && numbers.is_sorted(), "flow {flow}: {numbers:?}");
        }
    }
}

#[test]
fn either_side_may_vanish_and_come_back() {
    let mut random = Rng::with_seed(3);
    for (driver_mode, device_mode) in [("client", "server"), ("server", "client")] {
        let socket = Socket::new();
        let (driver, device) = (json!({ "mode": driver_mode }), json!({ "mode": device_mode }));
        let mut joined = Joined::new(&socket, &driver, &device);
        for turn in 0..3 {
            // The device's network ends; what comes in at the other is dropped and counted.
            let Joined { driver: mut rig, device: gone } = joined;
            gone.finish();
            let before = rig.counts().drops["no_device"];
            let deadline = Instant::now() + Duration::from_secs(30);
            while rig.counts().drops["no_device"] == before {
                rig.send("input", [b"nobody there"]);
                rig.breathe();
                assert!(Instant::now() < deadline, "{:?}", rig.counts());
                std::thread::sleep(Duration::from_millis(1));
            }
            // It comes back with other options.
            let other = json!({ "mode": device_mode, "disable": if turn % 2 == 0 { vec!["packed"] } else { vec![] } });
            joined = Joined { driver: rig, device: socket.rig::<VhostUser>(&other) };
            joined.greet();
            joined.transfer(true, &packets(300, 1_514, &mut random));
            joined.transfer(false, &packets(300, 1_514, &mut random));

            // The driver's network ends and comes back.
            let Joined { driver: gone, device: mut rig } = joined;
            gone.finish();
            rig.send("input", [b"nobody there"]);
            rig.breathe();
            joined = Joined { driver: socket.rig::<VirtioUser>(&driver), device: rig };
            joined.greet();
            joined.transfer(true, &packets(300, 1_514, &mut random));
            joined.transfer(false, &packets(300, 1_514, &mut random));
        }
    }
}

#[test]
fn super_frames_pass_whole_or_are_cut_as_was_agreed() {
    let socket = Socket::new();
    let mut joined = Joined::new(&socket, &json!({}), &json!({}));
    for up in [true, false] {
        joined.transfer(up, &[gso_packet(40_000, 1_448), gso_packet(3_000, 500)]);
    }
    drop(joined);
    // Each side refuses GSO packets from the other, and then partial checksums too.
    for (turn, disable) in [["tso4", "guest-tso4"], ["checksum", "guest-checksum"]].into_iter().enumerate() {
        let socket = Socket::new();
        let mut joined = Joined::new(&socket, &json!({ "disable": disable }), &json!({}));
        for up in [true, false] {
            let from = if up { &mut joined.driver } else { &mut joined.device };
            from.send_packets("input", [gso_packet(40_000, 1_448)]);
            let mut came: Vec<Packet> = Vec::new();
            joined.until(|joined| {
                let to = if up { &mut joined.device } else { &mut joined.driver };
                came.extend(to.received_packets("output"));
                came.len() >= 40_000_usize.div_ceil(1_448)
            });
            let mut stream = Vec::new();
            for packet in &came {
                // Headers without options.
                stream.extend_from_slice(&packet.bytes()[54..]);
                let partial = packet.offload().is_some_and(|offload| offload.needs_checksum());
                assert_eq!(partial, turn == 0, "the checksum is left to a side that does it");
                assert!(partial || verify_checksums(packet.bytes()).is_ok());
            }
            assert_eq!(stream, gso_packet(40_000, 1_448).bytes()[54..]);
        }
    }
}

/// Runs something on a thread of its own, which must come to an end.
fn in_bounded_time(work: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    let ended = ended.recv_timeout(Duration::from_secs(60));
    assert!(ended.is_ok(), "it has failed, or hangs");
}

#[test]
fn what_an_app_says_of_a_checksum_holds_up_nobody() {
    in_bounded_time(|| {
        for disable in [&["checksum", "guest-checksum"][..], &["tso4", "guest-tso4"], &[]] {
            let socket = Socket::new();
            let mut joined = Joined::new(&socket, &json!({ "disable": disable }), &json!({}));
            for (flags, gso_type) in
                [(Offload::CHECKSUM_VALID, 0), (0, 0), (0xfe, 0), (0xff, 0), (1, 3), (2, 1), (1, 0x84)]
            {
                for up in [true, false] {
                    let from = if up { &mut joined.driver } else { &mut joined.device };
                    let mut packet = gso_packet(300, 1_448);
                    packet.set_offload(Offload { flags, gso_type, ..packet.offload().unwrap() });
                    let dropped = from.counts().drops["bad_offload"];
                    from.send_packets("input", [packet]);
                    joined.until(|joined| {
                        let (from, to) = match up {
                            true => (&joined.driver, &mut joined.device),
                            false => (&joined.device, &mut joined.driver),
                        };
                        !to.received("output").is_empty() || from.counts().drops["bad_offload"] > dropped
                    });
                }
            }
        }
    });
}

#[test]
fn a_packet_that_an_app_has_cut_or_stretched_is_looked_at_anew() {
    in_bounded_time(cut_and_stretched);
}

fn cut_and_stretched() {
    let socket = Socket::new();
    let mut joined = Joined::new(&socket, &json!({}), &json!({}));
    for up in [true, false] {
        let plain = |payload| {
            let mut packet = gso_packet(payload, 1_448);
            packet.set_offload(Offload { gso_type: 0, ..packet.offload().unwrap() });
            packet
        };
        // Padding is left out of a checksum, which is then no longer the receiver's to finish; a frame that is cut
        // short has none.
        let mut stretched = plain(100);
        stretched.append(&[0xdd; 7]);
        let mut whole = gso_packet(3_000, 1_448);
        whole.append(&[0xdd; 7]);
        let mut cut = plain(100);
        cut.truncate(100);
        let mut rewritten = gso_packet(3_000, 1_448);
        rewritten.bytes_mut()[23] = 17;
        let before = if up { &joined.driver } else { &joined.device }.counts().drops["bad_offload"];
        let from = if up { &mut joined.driver } else { &mut joined.device };
        from.send_packets("input", [cut, rewritten, stretched, whole]);
        let mut came: Vec<Packet> = Vec::new();
        joined.until(|joined| {
            let to = if up { &mut joined.device } else { &mut joined.driver };
            came.extend(to.received_packets("output"));
            came.len() >= 4
        });
        let lengths: Vec<_> = came.iter().map(|packet| (packet.len(), packet.has_offload())).collect();
        assert_eq!(lengths, [(161, false), (1_502, true), (1_502, true), (158, true)]);
        verify_checksums(&came[0].bytes()[..154]).unwrap();
        let from = if up { &joined.driver } else { &joined.device };
        assert_eq!(from.counts().drops["bad_offload"] - before, 2);
    }
}

#[test]
fn a_breath_makes_no_more_segments_than_the_burst_and_the_rest_follows() {
    let socket = Socket::new();
    let without = json!({ "disable": ["tso4", "guest-tso4"], "queue_size": 4096 });
    let mut joined = Joined::new(&socket, &without, &json!({}));
    for up in [true, false] {
        let Joined { driver, device } = &mut joined;
        let (from, to) = if up { (driver, device) } else { (device, driver) };
        from.send_packets("input", (0..3).map(|_| gso_packet(49_000, 48)));
        let (mut stream, mut breaths) = (Vec::new(), Vec::new());
        while stream.len() < 3 * 49_000 {
            from.breathe();
            // All that this breath has made.
            for _ in 0..40 {
                to.breathe();
            }
            let came = to.received_packets("output");
            came.iter().for_each(|packet| stream.extend_from_slice(&packet.bytes()[54..]));
            breaths.push(came.len());
            assert!(breaths.len() < 1_000, "{breaths:?}");
        }
        let burst = Settings::default().burst;
        assert!(breaths.iter().all(|count| *count <= burst), "a burst is {burst}: {breaths:?}");
        assert_eq!(stream, gso_packet(49_000, 48).bytes()[54..].repeat(3));
    }
}

#[test]
fn the_status_tells_who_is_there_and_what_went_through() {
    let socket = Socket::new();
    let mut driver = socket.rig::<VirtioUser>(&json!({ "disable": ["packed"], "mac": "02:00:00:00:00:07" }));
    let before = driver.status().unwrap();
    assert_eq!(
        (&before["kind"], &before["state"], &before["rings"]),
        (&json!("virtio-user"), &json!("waiting"), &json!([]))
    );
    let mut device = socket.rig::<VhostUser>(&json!({}));
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut time = 2_000_000_000;
    loop {
        driver.send("input", [[7; 100]]);
        driver.breathe();
        device.breathe();
        driver.set_time(time);
        time += 30_000_000;
        let now = driver.status().unwrap();
        if now["rings"][1]["counters"]["packets"].as_u64() > Some(2) {
            assert_eq!(
                (&now["state"], &now["mode"], &now["mac"]),
                (&json!("connected"), &json!("client"), &json!("02:00:00:00:00:07"))
            );
            let features: Vec<&str> = now["features"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            assert!(features.contains(&"mergeable") && !features.contains(&"packed"), "{features:?}");
            assert_eq!((&now["rings"][0]["direction"], &now["rings"][0]["size"]), (&json!("receive"), &json!(256)));
            for status in [now, device.status().unwrap()] {
                assert_eq!(status["confinement"]["denied"], json!({}), "a control thread made a call that it must not");
            }
            return;
        }
        assert!(Instant::now() < deadline, "{now}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn options_that_change_make_the_two_sides_agree_anew() {
    for (mode, other) in [("client", "server"), ("server", "client")] {
        let socket = Socket::new();
        let [mut old, mut new]: [VirtioUser; 2] =
            [json!({ "mode": mode }), json!({ "mode": mode, "disable": ["packed"] })].map(|keys| socket.app(&keys));
        let mut device = socket.rig::<VhostUser>(&json!({ "mode": other }));
        let mut wait = |app: &VirtioUser, packed: bool| {
            let deadline = Instant::now() + Duration::from_secs(30);
            loop {
                let told = app.status().unwrap().status();
                let features = told["features"].as_array().cloned().unwrap_or_default();
                if told["state"] == "connected" && features.contains(&json!("packed")) == packed {
                    return;
                }
                assert!(Instant::now() < deadline, "{told}");
                device.breathe();
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        old.start(None).unwrap();
        wait(&old, true);
        new.start(Some(&mut old)).unwrap();
        new.give_back(&mut old);
        drop(new);
        wait(&old, true);
        let mut new: VirtioUser = socket.app(&json!({ "mode": mode, "disable": ["packed"] }));
        new.start(Some(&mut old)).unwrap();
        drop(old);
        wait(&new, false);
    }
}

#[test]
fn a_mistake_in_the_config_is_explained() {
    for (keys, wanted) in [
        (json!({ "queue_size": 300 }), "cannot have 300 descriptors"),
        (json!({ "queue_size": 1 }), "cannot have 1 descriptors"),
        (json!({ "queues": 0 }), "0 pairs of queues is out of range"),
        (json!({ "mac": "03:00:00:00:00:00" }), "multicast"),
        (json!({ "socket": "/" }), "has no file name"),
    ] {
        let mut config = json!({ "socket": "/tmp/s" });
        config.as_object_mut().unwrap().extend(keys.as_object().cloned().unwrap());
        let mistake = VirtioUser::configure(serde_json::from_value(config).unwrap(), &Context::default()).err();
        let mistake = format!("{:?}", mistake.expect("a mistake"));
        assert!(mistake.contains(wanted), "{wanted} is not in {mistake}");
    }
}

#[test]
fn threads_that_cannot_be_started_are_an_error_that_names_the_socket() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "virtio_user::tests::starts_without_room_for_a_thread", "--ignored"]);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

#[test]
#[ignore = "needs a process of its own; run by threads_that_cannot_be_started_are_an_error_that_names_the_socket"]
fn starts_without_room_for_a_thread() {
    let socket = Socket::new();
    let (mut driver, mut device): (VirtioUser, VhostUser) = (socket.app(&json!({})), socket.app(&json!({})));
    // An engine has packets before it starts apps.
    pool::ensure().unwrap();
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let before = getrlimit(Resource::As);
    // Less than the smallest stack, and enough for messages.
    let room = Rlimit { current: Some(pages * 4096 + (48 << 10)), ..before };
    setrlimit(Resource::As, room).unwrap();
    let errors =
        [driver.start(None).map_err(|error| error.to_string()), device.start(None).map_err(|error| error.to_string())];
    setrlimit(Resource::As, before).unwrap();
    let wanted = format!("the socket {} cannot be used: ", socket.path().display());
    for error in errors {
        let error = error.unwrap_err();
        assert!(error.starts_with(&wanted) && error.contains("`ulimit -u`"), "{error}");
    }
}

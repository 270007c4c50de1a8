use std::collections::HashMap;

use bellows_engine::Settings;
use bellows_rig::Rig;
use bellows_testkit::wait::eventually;
use proptest::prelude::*;

use super::*;

const PORTS: [&str; 3] = ["a", "b", "c"];

fn bridge(config: &str) -> Result<Bridge, SettingError> {
    Bridge::configure(serde_json::from_str(config).unwrap(), &Context::default())
}

fn rig(config: &str) -> Rig {
    Rig::new(bridge(config).unwrap(), &PORTS, &PORTS)
}

/// A frame between two stations; 0 stands for broadcast.
fn frame(to: u16, from: u16) -> Vec<u8> {
    let address = |station: u16| match station {
        0 => [0xff; 6],
        _ => [2, 0, 0, 0, (station >> 8) as u8, station as u8],
    };
    [&address(to)[..], &address(from), &[0x88, 0xb5], &[0; 46]].concat()
}

/// The ports at which a frame arrives that one port has received.
fn sent(rig: &mut Rig, port: &str, frame: &[u8]) -> Vec<&'static str> {
    rig.send(port, [frame]);
    rig.settle();
    let reaches = |port: &&str| rig.received(port).iter().inspect(|received| assert!(*received == frame)).count() == 1;
    PORTS.into_iter().filter(reaches).collect()
}

#[test]
fn frames_go_where_their_destination_was_seen() {
    let mut rig = rig("{}");
    assert_eq!(sent(&mut rig, "a", &frame(2, 1)), ["b", "c"], "unknown");
    assert_eq!(sent(&mut rig, "b", &frame(1, 2)), ["a"]);
    assert_eq!(sent(&mut rig, "a", &frame(2, 1)), ["b"]);
    assert_eq!(sent(&mut rig, "c", &frame(2, 1)), ["b"], "the station 1 has moved");
    assert_eq!(sent(&mut rig, "b", &frame(1, 2)), ["c"]);
    assert_eq!(sent(&mut rig, "c", &frame(0, 1)), ["a", "b"], "broadcast");
    let counts = rig.counts();
    assert_eq!((counts.counters["learned"], counts.counters["moved"], counts.counters["flooded"]), (2, 1, 2));
    assert_eq!(counts.dropped(), 0);
}

#[test]
fn frames_that_must_not_leave_are_counted() {
    let mut rig = rig(r#"{"groups": [["a", "b"]]}"#);
    assert_eq!(sent(&mut rig, "a", &frame(9, 1)), ["c"]);
    assert_eq!(sent(&mut rig, "a", &frame(1, 3)), [""; 0], "its own port");
    assert_eq!(sent(&mut rig, "b", &frame(1, 2)), [""; 0], "the same group");
    assert_eq!(sent(&mut rig, "b", &[1, 2, 3]), [""; 0]);
    // Neither is an address of a station.
    let zero = [&[2; 6][..], &[0; 8]].concat();
    assert_eq!(sent(&mut rig, "b", &zero), ["c"]);
    assert_eq!(sent(&mut rig, "b", &[&[2; 6][..], &[1; 8]].concat()), ["c"]);
    let counts = rig.counts();
    assert_eq!((counts.drops["same_port"], counts.drops["too_short"], counts.counters["learned"]), (2, 1, 3));
    assert!(bridge(r#"{"table": "macs"}"#).err().unwrap().message.contains("no object `macs`"));
    assert!(Bridge::check_outputs(&serde_json::from_str(r#"{"groups": [["d"]]}"#).unwrap(), &PORTS).is_err());
}

#[test]
fn frames_from_too_many_ports_are_flooded() {
    let bridge = bridge("{}").unwrap();
    (0..1_023).for_each(|port| assert!(bridge.table.port(&format!("port {port}")).is_some()));
    let mut rig = Rig::new(bridge, &PORTS, &PORTS);
    // One of them has the last number.
    for (port, to, from) in [("a", 9, 1), ("b", 9, 2), ("c", 9, 3)] {
        assert_eq!(sent(&mut rig, port, &frame(to, from)).len(), 2);
    }
    let known = (1..=3).filter(|station| sent(&mut rig, "a", &frame(*station, 0x101)).len() < 2);
    assert_eq!(known.count(), 1);
    assert!(rig.counts().counters["unlearned"] >= 2 && rig.counts().dropped() <= 1);
}

#[test]
fn a_port_without_an_output_is_unreachable() {
    let mut rig = Rig::new(bridge("{}").unwrap(), &["a", "in"], &["a", "b"]);
    for (port, frame) in [("in", frame(9, 1)), ("a", frame(1, 2))] {
        rig.send(port, [frame]);
        rig.settle();
    }
    assert_eq!((rig.counts().drops["no_output"], rig.received("a").len(), rig.received("b").len()), (1, 1, 1));
}

#[test]
fn addresses_that_are_not_seen_again_are_forgotten() {
    let second = 1_000_000_000;
    let mut rig = rig("{}");
    rig.set_time(second);
    sent(&mut rig, "a", &frame(9, 1));
    sent(&mut rig, "b", &frame(9, 2));
    for minute in 1..=4 {
        rig.set_time((1 + 60 * minute) * second);
        assert_eq!(sent(&mut rig, "a", &frame(2, 1)), ["b"], "{minute}");
    }
    // 310 seconds after the last frame of one, 70 after that of the other.
    rig.set_time(312 * second);
    rig.settle();
    assert_eq!(sent(&mut rig, "c", &frame(2, 3)), ["a", "b"]);
    assert_eq!(sent(&mut rig, "c", &frame(1, 3)), ["a"]);
    // A long sleep of the engine.
    rig.set_time(4_000 * second);
    rig.settle();
    assert_eq!(sent(&mut rig, "c", &frame(1, 3)), ["a", "b"]);
}

#[test]
fn the_table_grows_and_forgets_nothing() {
    let stations = 1..=20_000u16;
    for lossless in [false, true] {
        let settings = Settings { lossless, ..Settings::default() };
        let mut rig = Rig::with_settings(bridge("{}").unwrap(), &PORTS, &PORTS, settings);
        let mut now = 1_000_000_000;
        for station in stations.clone().step_by(100) {
            rig.send("a", (station..station + 100).map(|station| frame(0, station)));
            rig.settle();
            // Engines of other tests may hold it up, because workers of all engines of a process are waited for.
            eventually("room for as many addresses again", || {
                now += 2_000_000;
                rig.set_time(now);
                rig.settle();
                let status = rig.status().unwrap();
                status["memory"].as_u64().unwrap() / 8 >= 2 * status["addresses"].as_u64().unwrap()
            });
            PORTS.iter().for_each(|port| drop(rig.received(port)));
        }
        rig.send("b", stations.clone().map(|station| frame(station, 30_000)));
        rig.settle();
        assert_eq!((rig.received("a").len(), rig.received("c").len()), (20_000, 0));
        assert_eq!((rig.counts().counters["learned"], rig.counts().counters["unlearned"]), (20_001, 0));
    }
}

proptest! {
    /// Against a map, frame by frame.
    #[test]
    fn frames_take_the_ports_of_a_map(frames in prop::collection::vec((0..3usize, 0..6u16, 1..6u16), 1..80)) {
        let mut rig = rig("{}");
        let mut seen: HashMap<u16, &str> = HashMap::new();
        for (port, to, from) in frames {
            let port = PORTS[port];
            let expected: Vec<&str> = match seen.get(&to) {
                Some(known) => [*known].into_iter().filter(|known| *known != port).collect(),
                None => PORTS.into_iter().filter(|other| *other != port).collect(),
            };
            seen.insert(from, port);
            prop_assert_eq!(sent(&mut rig, port, &frame(to, from)), expected);
        }
    }
}

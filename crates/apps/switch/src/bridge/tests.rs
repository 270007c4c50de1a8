use bellows_engine::Settings;
use bellows_rig::EventLog;
use bellows_rig::Rig;
use bellows_testkit::wait::eventually;

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
    assert_eq!((counts.drops["same_port"], counts.drops["same_group"], counts.drops["too_short"]), (1, 1, 1));
    assert_eq!(counts.counters["learned"], 3);
    assert!(bridge(r#"{"table": "macs"}"#).err().unwrap().message.contains("no object `macs`"));
    assert!(Bridge::check_outputs(&serde_json::from_str(r#"{"groups": [["d"]]}"#).unwrap(), &PORTS).is_err());
}

#[test]
fn frames_from_too_many_ports_are_flooded() {
    let bridge = bridge("{}").unwrap();
    let others: Vec<BridgePort> = (0..4_095).filter_map(|port| bridge.table.port(&format!("port {port}"))).collect();
    assert_eq!(others.len(), 4_095);
    let mut rig = Rig::new(bridge, &PORTS, &PORTS);
    // One of them has the last number.
    for (port, to, from) in [("a", 9, 1), ("b", 9, 2), ("c", 9, 3)] {
        assert_eq!(sent(&mut rig, port, &frame(to, from)).len(), 2);
    }
    let known = (1..=3).filter(|station| sent(&mut rig, "a", &frame(*station, 0x101)).len() < 2);
    assert_eq!(known.count(), 1);
    assert!(rig.counts().counters["table_full"] >= 2 && rig.counts().dropped() <= 1);
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
                status["memory"].as_u64().unwrap() / 16 >= 2 * status["addresses"].as_u64().unwrap()
            });
            PORTS.iter().for_each(|port| drop(rig.received(port)));
        }
        rig.send("b", stations.clone().map(|station| frame(station, 30_000)));
        rig.settle();
        assert_eq!((rig.received("a").len(), rig.received("c").len()), (20_000, 0));
        assert_eq!((rig.counts().counters["learned"], rig.counts().counters["table_full"]), (20_001, 0));
    }
}

/// A bridge with a table of its own object with these keys.
fn rig_with_table(config: &str, table: &str) -> Rig {
    let mut bridge = bridge(config).unwrap();
    let table = serde_json::from_str(table).unwrap();
    bridge.table = Arc::new(MacTable::configure(table, &Context::default()).unwrap());
    Rig::new(bridge, &PORTS, &PORTS)
}

#[test]
fn static_addresses_stay_where_the_file_has_them() {
    let table = r#"{"static": {"02:00:00:00:00:01": "b"}, "ageing": "1s"}"#;
    let mut strict = rig_with_table("{}", table);
    assert_eq!(sent(&mut strict, "a", &frame(1, 2)), ["b"], "known from the start");
    assert_eq!(sent(&mut strict, "c", &frame(2, 1)), [""; 0], "a violation");
    assert_eq!(sent(&mut strict, "b", &frame(2, 1)), ["a"]);
    strict.set_time(10_000_000_000);
    strict.settle();
    assert_eq!(sent(&mut strict, "a", &frame(1, 2)), ["b"], "it does not age");
    let counts = strict.counts();
    assert_eq!((counts.drops["move_violation"], counts.counters["moved"], counts.dropped()), (1, 0, 1));

    let mut lax = rig_with_table(r#"{"forward_violations": true}"#, table);
    assert_eq!(sent(&mut lax, "c", &frame(2, 1)), ["a", "b"]);
    assert_eq!(sent(&mut lax, "c", &frame(1, 2)), ["b"], "but it stays");
    assert_eq!((lax.counts().counters["violations_forwarded"], lax.counts().dropped()), (1, 0));
}

#[test]
fn an_address_in_a_loop_stays_at_its_port_for_a_time() {
    let mut rig = rig_with_table("{}", r#"{"max_moves": 2, "move_window": "10s", "move_hold": "5s"}"#);
    for port in ["a", "b", "c"] {
        assert_eq!(sent(&mut rig, port, &frame(9, 1)).len(), 2, "{port}");
    }
    assert_eq!(sent(&mut rig, "a", &frame(9, 1)), [""; 0]);
    assert_eq!(sent(&mut rig, "b", &frame(1, 2)), ["c"]);
    assert_eq!(sent(&mut rig, "c", &frame(9, 1)), ["a", "b"], "its own port");
    assert_eq!((rig.counts().drops["move_limited"], rig.counts().counters["moved"]), (1, 2));
    assert_eq!(rig.status().unwrap()["held"], 1);
    rig.set_time(7_000_000_000);
    assert_eq!(sent(&mut rig, "a", &frame(9, 1)), ["b", "c"]);
    assert_eq!(sent(&mut rig, "b", &frame(1, 2)), ["a"]);
}

#[test]
fn a_loop_is_an_event_but_not_a_flood_of_them() {
    let log = EventLog::begin();
    let mut rig = rig_with_table("{}", r#"{"max_moves": 1, "move_window": "1h", "move_hold": "1h"}"#);
    for from in 1..=3 {
        for port in ["a", "b", "a", "b"] {
            sent(&mut rig, port, &frame(9, from));
        }
    }
    let event = |station: &str| {
        let ports = ["b", "a"];
        serde_json::json!({
            "event": "station-moving", "app": "", "address": station, "port": ports[0], "other_port": ports[1],
        })
    };
    assert_eq!(log.take(), [event("02:00:00:00:00:01")]);
    assert_eq!(rig.status().unwrap()["held"], 3);
    let mut loops = |seconds: u64, from: u16| {
        rig.set_time(seconds * 1_000_000_000);
        for port in ["a", "b", "a"] {
            sent(&mut rig, port, &frame(9, from));
        }
        log.take()
    };
    assert_eq!(loops(20, 4), [0; 0], "an event in ten minutes");
    assert_eq!(loops(610, 5), [event("02:00:00:00:00:05")]);
}

#[test]
fn a_port_has_no_more_addresses_than_it_may() {
    let mut rig = rig(r#"{"ports": {"a": {"max_macs": 2}}}"#);
    for from in 1..=4 {
        assert_eq!(sent(&mut rig, "a", &frame(9, from)), ["b", "c"]);
    }
    sent(&mut rig, "b", &frame(0, 5));
    sent(&mut rig, "a", &frame(0, 5));
    assert_eq!(rig.status().unwrap()["ports"], serde_json::json!({"a": 2, "b": 1, "c": 0}));
    assert_eq!(rig.counts().counters["port_full"], 3);
    assert_eq!(limited(&rig, "port_full"), [3, 0, 0]);
    assert_eq!(sent(&mut rig, "c", &frame(5, 6)), ["b"], "no other port's address moves to a full one");
}

/// A counter at each port.
fn limited(rig: &Rig, name: &str) -> [u64; 3] {
    PORTS.map(|port| rig.status().unwrap()["limited"][port][name].as_u64().unwrap())
}

/// The number of addresses at each port.
fn at_ports(rig: &Rig) -> [u64; 3] {
    PORTS.map(|port| rig.status().unwrap()["ports"][port].as_u64().unwrap())
}

#[test]
fn a_port_that_fills_the_table_keeps_no_other_ports_stations_out() {
    let log = EventLog::begin();
    let mut rig = rig_with_table("{}", r#"{"capacity": 64}"#);
    let flood = |rig: &mut Rig| {
        rig.send("a", (0x1000..0x2000).map(|station| frame(0, station)));
        rig.settle();
        PORTS.iter().for_each(|port| drop(rig.received(port)));
    };
    flood(&mut rig);
    assert_eq!(at_ports(&rig), [64, 0, 0]);
    // Each of three ports is sure to have 21.
    for round in 0..3 {
        for (port, first) in [("b", 0x100), ("c", 0x200)] {
            (first..first + 15).for_each(|station| assert_eq!(sent(&mut rig, port, &frame(0, station)).len(), 2));
        }
        flood(&mut rig);
        assert_eq!(at_ports(&rig), [34, 15, 15], "{round}");
        for (port, first) in [("b", 0x100), ("c", 0x200)] {
            let is_known = |station: &u16| sent(&mut rig, "a", &frame(*station, 0x1000)) == [port];
            assert_eq!((first..first + 15).filter(is_known).count(), 15, "{port} {round}");
        }
    }
    let counts = rig.counts();
    assert_eq!((counts.counters["displaced"], counts.counters["learned"]), (30, 64 + 30));
    assert_eq!(limited(&rig, "displaced"), [0, 15, 15]);
    assert_eq!(limited(&rig, "table_full"), [counts.counters["table_full"], 0, 0]);
    let told = serde_json::json!({ "event": "table-full", "app": "", "table": "addresses", "port": "a" });
    assert_eq!(log.take(), [told]);
    // Nobody else has room that another one is sure of.
    rig.send("b", (0x3000..0x3100).map(|station| frame(0, station)));
    rig.settle();
    assert_eq!(at_ports(&rig), [64 - 21 - 15, 21, 15]);
}

#[test]
fn a_vlan_that_fills_the_table_keeps_no_other_vlans_stations_out() {
    let keys = r#"{"ports": {"a": {"trunk": "5-6"}, "b": {"access": 5}, "c": {"access": 6}}}"#;
    let mut rig = rig_with_table(keys, r#"{"capacity": 64}"#);
    let tagged = |vlan: u8, to: u16, from: u16| {
        let frame = frame(to, from);
        [&frame[..12], &[0x81, 0, 0, vlan], &frame[12..]].concat()
    };
    let flood = |rig: &mut Rig| {
        rig.send("a", (0x1000..0x2000).map(|station| tagged(5, 0, station)));
        rig.settle();
        PORTS.iter().for_each(|port| drop(rig.received(port)));
    };
    flood(&mut rig);
    for station in 0x100..0x110 {
        rig.send("a", [tagged(6, 0, station)]);
    }
    rig.settle();
    flood(&mut rig);
    rig.received("c");
    for station in 0x100..0x110 {
        rig.send("c", [frame(station, 1)]);
        rig.settle();
        assert_eq!(rig.received("a").len(), 1);
    }
    assert_eq!((rig.counts().counters["misses"], rig.counts().counters["flooded"]), (0, 2 * 4096 + 16));
}

#[test]
fn addresses_that_share_their_lines_keep_no_other_ports_station_out() {
    let victim = 0x0100_0000_0002_u64;
    let key = |number: u64| Key::new(victim + (number << 24), 0);
    let bytes = |to: Key, from: Key| [&to.mac()[..], &from.mac(), &[0x88, 0xb5], &[0; 46]].concat();
    let learned = |rig: &mut Rig, keys: &[Key], port: &str| {
        rig.send(port, keys.iter().map(|&key| bytes(SHORT_KEY, key)));
        rig.settle();
        PORTS.iter().for_each(|port| drop(rig.received(port)));
    };
    // By multiplicative hashing with a constant that everybody knows, as in a table without a secret.
    let known_line = |key: Key| (key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) / 4;
    let computed = (1..1 << 16).map(key).filter(|&other| known_line(other) == known_line(key(0))).take(40);
    // And by one who had learned the secret.
    let table = Arc::new(MacTable::configure(mac_table::Config::default(), &Context::default()).unwrap());
    let found = (1..1 << 16).map(key).filter(|&other| table.share_lines(other, key(0))).take(40);
    for mut attackers in [computed.collect::<Vec<_>>(), found.collect()] {
        assert_eq!(attackers.len(), 40);
        let bridge = Bridge { table: Arc::clone(&table), ..bridge("{}").unwrap() };
        let mut rig = Rig::new(bridge, &PORTS, &PORTS);
        for _ in 0..3 {
            attackers.reverse();
            learned(&mut rig, &attackers, "a");
            learned(&mut rig, &[key(0)], "b");
            learned(&mut rig, &attackers, "a");
            rig.send("c", [bytes(key(0), Key::new(0x0900_0000_0002, 0))]);
            rig.settle();
            assert_eq!((rig.received("a").len(), rig.received("b").len()), (0, 1), "it is known");
        }
    }
    let other = MacTable::configure(mac_table::Config::default(), &Context::default()).unwrap();
    let all = || (1..1 << 16).map(key).filter(|&key_of| table.share_lines(key_of, key(0)));
    assert!(all().filter(|&of| other.share_lines(of, key(0))).count() * 8 < all().count(), "each has its own secret");
}

#[test]
fn reserved_addresses_are_not_forwarded() {
    let lldp = [&[1, 0x80, 0xc2, 0, 0, 0x0e][..], &frame(0, 1)[6..]].concat();
    let beside = [&[1, 0x80, 0xc2, 0, 0, 0x10][..], &frame(0, 1)[6..]].concat();
    let mut strict = rig("{}");
    assert_eq!(sent(&mut strict, "a", &lldp), [""; 0]);
    assert_eq!(sent(&mut strict, "a", &beside), ["b", "c"]);
    assert_eq!((strict.counts().drops["reserved"], strict.counts().dropped()), (1, 1));
    assert_eq!(sent(&mut rig(r#"{"forward_reserved": true}"#), "a", &lldp), ["b", "c"]);
}

#[test]
fn floods_are_limited_for_each_port_and_kind() {
    let keys = r#"{"storm_broadcast": 100, "storm_multicast": "10", "storm_unknown": 50, "storm_burst": 3,
        "ports": {"b": {"storm_broadcast": 1000}}}"#;
    let mut rig = rig(keys);
    let multicast = [&[1, 0, 0x5e, 0, 0, 1][..], &frame(0, 1)[6..]].concat();
    for (port, frame, reason) in [
        ("a", frame(0, 1), "storm_broadcast"),
        ("a", multicast, "storm_multicast"),
        ("a", frame(9, 1), "storm_unknown"),
    ] {
        rig.send(port, vec![frame; 10]);
        rig.settle();
        assert_eq!((rig.received("b").len(), rig.received("c").len()), (3, 3), "{reason}");
        assert_eq!((rig.counts().drops[reason], limited(&rig, reason)), (7, [7, 0, 0]));
    }
    // Frames to stations that are known have no limit.
    sent(&mut rig, "b", &frame(1, 2));
    rig.send("a", vec![frame(2, 1); 100]);
    rig.settle();
    assert_eq!(rig.received("b").len(), 100);
    // In a hundredth of a second, one more from one port, ten from the other.
    rig.set_time(1_010_000_000);
    for (port, count) in [("a", 1), ("b", 3)] {
        rig.send(port, vec![frame(0, 1); 20]);
        rig.settle();
        assert_eq!(rig.received("c").len(), count, "{port}");
    }
    assert_eq!((rig.counts().counters["misses"], rig.counts().counters["hits"]), (3, 101));
    assert_eq!(
        (rig.counts().drops["storm_broadcast"], limited(&rig, "storm_broadcast")),
        (7 + 19 + 17, [7 + 19, 17, 0])
    );
}

#[test]
fn a_storm_is_an_event_with_its_port() {
    let log = EventLog::begin();
    let mut rig = rig(r#"{"storm_broadcast": 10, "storm_unknown": 10, "storm_burst": 3}"#);
    let told =
        |port: &str, limit: &str| serde_json::json!({ "event": "storm", "app": "", "port": port, "limit": limit });
    for (seconds, port, destination, expected) in [
        (1, "a", 0, vec![told("a", "storm_broadcast")]),
        (2, "a", 0, vec![]),
        (3, "b", 0, vec![told("b", "storm_broadcast")]),
        (4, "a", 9, vec![told("a", "storm_unknown")]),
        (602, "a", 0, vec![told("a", "storm_broadcast")]),
    ] {
        rig.set_time(seconds * 1_000_000_000);
        rig.send(port, vec![frame(destination, 1); 20]);
        rig.settle();
        assert_eq!(log.take(), expected, "{port} at {seconds} s");
    }
}

#[test]
fn limits_of_floods_outlast_the_upkeep_of_the_table() {
    let mut rig = rig_with_table(r#"{"storm_broadcast": 1, "storm_burst": 3}"#, r#"{"ageing": "1s"}"#);
    for (milliseconds, count) in [(0, 3), (100, 0), (200, 0), (1_000, 1)] {
        rig.set_time(1_000_000_000 + milliseconds * 1_000_000);
        rig.settle();
        rig.send("a", vec![frame(0, 1); 10]);
        rig.settle();
        assert_eq!(rig.received("b").len(), count, "{milliseconds} ms");
        rig.received("c");
    }
}

#[test]
fn a_reload_keeps_addresses_and_applies_the_keys() {
    let table = |keys: &str| MacTable::configure(serde_json::from_str(keys).unwrap(), &Context::default()).unwrap();
    let mut bridge = bridge("{}").unwrap();
    let running = Arc::new(table(r#"{"static": {"02:00:00:00:00:01": "b", "02:00:00:00:00:07": "b"}}"#));
    bridge.table = Arc::clone(&running);
    let mut rig = Rig::new(bridge, &PORTS, &PORTS);
    sent(&mut rig, "a", &frame(9, 2));
    let keys = r#"{"static": {"02:00:00:00:00:01": "c"}, "capacity": 64, "ageing": "2s"}"#;
    let bellows_config::Succession::Change(change) = table(keys).take_over(&running) else { panic!() };
    change();
    assert_eq!(sent(&mut rig, "b", &frame(2, 3)), ["a"], "it is still known");
    assert_eq!(sent(&mut rig, "b", &frame(1, 3)), ["c"], "it has another port");
    assert_eq!(sent(&mut rig, "b", &frame(7, 3)), ["a", "c"], "it is no longer static");
    assert_eq!(running.status()["capacity"], 64);
    rig.send("a", (100..200).map(|station| frame(0, station)));
    rig.settle();
    assert_eq!((running.status()["addresses"].as_u64(), rig.counts().counters["table_full"]), (Some(64), 39));
    PORTS.iter().for_each(|port| drop(rig.received(port)));
    for second in 2..12 {
        rig.set_time(second * 1_000_000_000);
        sent(&mut rig, "b", &frame(0, 3));
    }
    assert_eq!(running.status()["addresses"], 2, "the static one, and the one that sends");
}

#[test]
fn addresses_at_ports_that_are_gone_are_forgotten() {
    let table =
        MacTable::configure(serde_json::from_str(r#"{"ageing": "32s"}"#).unwrap(), &Context::default()).unwrap();
    let table = Arc::new(table);
    let (left, right) = (table.port("left").unwrap(), table.port("right").unwrap());
    let mut bridge = bridge("{}").unwrap();
    bridge.table = Arc::clone(&table);
    let mut rig = Rig::new(bridge, &["left"], &["left", "right"]);
    rig.send("left", [frame(0, 1)]);
    rig.settle();
    drop(left);
    rig.set_time(5_000_000_000);
    rig.settle();
    assert_eq!(table.status()["addresses"], 1, "the bridge has the port");
    drop((rig, right));
    let mut bridge = super::tests::bridge("{}").unwrap();
    bridge.table = Arc::clone(&table);
    let mut rig = Rig::new(bridge, &["other"], &["other"]);
    for second in 6..12 {
        rig.set_time(second * 1_000_000_000);
        rig.settle();
    }
    assert_eq!(table.status()["addresses"], 0);
}

#[test]
fn wrong_keys_name_their_place() {
    for (config, key) in [
        (r#"{"ports": {"a": {"access": 0}}}"#, "ports"),
        (r#"{"ports": {"a": {"access": 1, "trunk": "2"}}}"#, "ports"),
        (r#"{"ports": {"a": {"trunk": "2-"}}}"#, "ports"),
        (r#"{"ports": {"a": {"trunk": "20-10"}}}"#, "ports"),
        (r#"{"ports": {"a": {"trunk": "1-4095"}}}"#, "ports"),
        (r#"{"ports": {"a": {"native": 1}}}"#, "ports"),
        (r#"{"ports": {"a": {"access": 1}, "b": {}}}"#, "ports"),
        (r#"{"tpid": "any"}"#, "tpid"),
        (r#"{"storm_unknown": 0}"#, "storm_unknown"),
        (r#"{"ports": {"a": {"storm_multicast": 1e10}}}"#, "storm_multicast"),
        (r#"{"storm_burst": 0}"#, "storm_burst"),
    ] {
        assert_eq!(bridge(config).err().and_then(|error| error.key), Some(key), "{config}");
    }
    let check = |config: &str| Bridge::check_outputs(&serde_json::from_str(config).unwrap(), &PORTS);
    assert!(check(r#"{"ports": {"d": {}}}"#).unwrap_err().message.contains("`d` that is not linked"));
    assert!(check(r#"{"ports": {"a": {"access": 1}}}"#).unwrap_err().message.contains("`b` has no VLAN"));
    for (keys, key) in [
        (r#"{"max_moves": 0}"#, "max_moves"),
        (r#"{"move_hold": "2h"}"#, "move_hold"),
        (r#"{"move_window": "1ms"}"#, "move_window"),
        (r#"{"static": {"02:00:00:00:00": "a"}}"#, "static"),
    ] {
        let error = MacTable::configure(serde_json::from_str(keys).unwrap(), &Context::default()).err();
        assert_eq!(error.and_then(|error| error.key), Some(key), "{keys}");
    }
}

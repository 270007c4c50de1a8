//! The keys of the bridges of VPNs.

use crate::ends::{ALL, ANN, BEN, CONTROL, Pair, at, both, frame};

const CIRCUITS: &str = "circuits = [\"office\", \"customers.7\"]";

/// Both ends, with keys in the tables of their bridges.
fn with_bridge(keys: &str) -> Pair {
    Pair::up(&both(1_600, [CONTROL; 2]).replace(CIRCUITS, &format!("{CIRCUITS}\n{keys}")), None)
}

#[test]
fn a_vpn_that_learns_no_addresses_floods_all_frames() {
    let ports = ["lan", "office", "\"customers:7\""].map(|port| format!("bridge.ports.{port}.max_macs = 0"));
    let mut pair = with_bridge(&ports.join("\n"));
    pair.send("west", "office", &frame(ALL, ANN, None, 60));
    pair.send("east", "office", &frame(ALL, BEN, None, 60));
    pair.received();
    for _ in 0..3 {
        let (sent, tagged) = (frame(BEN, ANN, None, 60), frame(BEN, ANN, Some(7), 64));
        pair.send("west", "office", &sent);
        let everywhere = [("west.customers", &tagged), ("east.office", &sent), ("east.customers", &tagged)];
        assert_eq!(pair.received(), everywhere.map(|(place, frame)| at(place, frame)));
        let (sent, tagged) = (frame(ANN, BEN, None, 60), frame(ANN, BEN, Some(7), 64));
        pair.send("east", "customers", &tagged);
        let everywhere = [("west.office", &sent), ("west.customers", &tagged), ("east.office", &sent)];
        assert_eq!(pair.received(), everywhere.map(|(place, frame)| at(place, frame)));
    }
    for end in ["west/bridge-lan", "east/bridge-lan"] {
        let counts = ["learned", "hits", "flooded", "port_full"].map(|name| pair.count(end, name));
        assert_eq!(counts, [0, 0, 8, 8]);
    }
}

#[test]
fn a_circuit_has_no_more_addresses_than_its_bridge_lets_it() {
    let mut pair = with_bridge("bridge.ports.office.max_macs = 1");
    for station in [ANN, BEN] {
        pair.send("west", "office", &frame(ALL, station, None, 60));
    }
    pair.received();
    // The first one alone is known.
    let to = |station| frame(station, [2, 0, 0, 0, 1, 9], None, 60);
    pair.send("east", "office", &to(ANN));
    assert!(!pair.received().iter().any(|(place, _)| place == "west.customers"));
    pair.send("east", "office", &to(BEN));
    assert!(pair.received().iter().any(|(place, _)| place == "west.customers"));
}

#[test]
fn broadcasts_beyond_a_limit_do_not_cross_a_vpn() {
    let mut pair = with_bridge("bridge.storm_broadcast = \"10pps\"\nbridge.storm_burst = 5");
    for _ in 0..20 {
        pair.send("west", "office", &frame(ALL, ANN, None, 60));
    }
    let crossed = pair.received().into_iter().filter(|(place, _)| place == "east.office").count();
    assert_eq!((crossed, pair.count("west/bridge-lan", "storm_broadcast")), (5, 15));
    // Frames to one station have no limit.
    pair.send("west", "office", &frame(BEN, ANN, None, 60));
    assert!(pair.received().contains(&at("east.office", &frame(BEN, ANN, None, 60))));
    pair.run(1_000);
    pair.send("west", "office", &frame(ALL, ANN, None, 60));
    assert!(pair.received().contains(&at("east.office", &frame(ALL, ANN, None, 60))));
}

#[test]
fn frames_do_not_go_from_one_pseudowire_to_another() {
    let second = "pseudowires.other = { transport = \"four\", tunnel = \"gre\", vc_id = 20 }";
    let mut pair = with_bridge(second);
    let sent = frame(ALL, ANN, None, 60);
    pair.send("west", "office", &sent);
    let received = pair.received();
    // One for each pseudowire, and none comes back.
    let arrived = |place: &str| received.iter().filter(|(other, _)| other == place).count();
    assert_eq!(["west.office", "west.customers", "east.office", "east.customers"].map(arrived), [0, 1, 2, 2]);
    assert_eq!(pair.count("west/bridge-lan", "flooded"), 1);
}

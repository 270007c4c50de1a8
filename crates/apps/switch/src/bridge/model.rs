//! A naive bridge, with which random frames are compared: VLANs, groups, static addresses, moves, limits and ageing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bellows_config::{Configure, Context, SharedObject};
use bellows_rig::Rig;
use proptest::prelude::*;
use serde_json::json;

use super::Bridge;
use crate::mac_table::MacTable;

const PORTS: [&str; 4] = ["a", "b", "c", "d"];
const SECOND: u64 = 1_000_000_000;
/// The unit in which moves are timed.
const UNIT: u64 = 1 << 28;
const AGEING: u64 = 16 * SECOND;
const WINDOW: u64 = 6 * SECOND;
const HOLD: u64 = 3 * SECOND;

/// What the keys say.
#[derive(Clone, Copy, Debug)]
struct Keys {
    vlans: bool,
    group: bool,
    fixed: bool,
    max_moves: Option<u32>,
    max_macs: Option<u32>,
    forward_violations: bool,
}

/// A frame between stations: 0 is broadcast, 1 a reserved address.
#[derive(Clone, Copy, Debug)]
struct Sent {
    to: u8,
    from: u8,
    /// The control field of a tag.
    tag: Option<u16>,
}

#[derive(Clone, Debug)]
enum ModelStep {
    Burst(usize, Vec<Sent>),
    Pause(u64),
}

#[derive(Clone, Copy, Debug)]
struct Known {
    port: usize,
    step: u64,
    is_fixed: bool,
    moves: u32,
    since: u64,
    is_held: bool,
}

struct Naive {
    keys: Keys,
    known: HashMap<(u16, u8), Known>,
    start: u64,
    now: u64,
    counts: BTreeMap<&'static str, u64>,
}

fn mac(station: u8) -> [u8; 6] {
    match station {
        0 => [0xff; 6],
        1 => [1, 0x80, 0xc2, 0, 0, 0],
        _ => [2, 0, 0, 0, 0, station],
    }
}

fn bytes(frame: Sent, tag: Option<u16>, number: u32) -> Vec<u8> {
    let tag = tag.map_or(vec![], |control| [[0x81, 0], control.to_be_bytes()].concat());
    [&mac(frame.to)[..], &mac(frame.from), &tag, &[0x88, 0xb5], &number.to_be_bytes(), &[0; 42]].concat()
}

impl Naive {
    fn step(&self) -> u64 {
        (self.now - self.start) / (AGEING / 32)
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// The VLAN of a frame at a port.
    fn vlan(&self, port: usize, tag: Option<u16>) -> Option<u16> {
        let id = tag.map_or(0, |tag| tag & 0xfff);
        match (self.keys.vlans, port, id) {
            (false, ..) => Some(0),
            (true, 0 | 1, 0) => Some(5),
            (true, 2, 5..=7) => Some(id),
            (true, 3, 0) => Some(7),
            (true, 3, 5 | 7 | 9) => Some(id),
            _ => None,
        }
    }

    /// Whether a VLAN is one of a port, and has a tag there.
    fn leaves(&self, port: usize, vlan: u16) -> Option<bool> {
        match (port, vlan) {
            (0 | 1, 5) | (3, 7) => Some(false),
            (2, 5..=7) | (3, 5 | 9) => Some(true),
            _ => None,
        }
    }

    fn at_port(&self, port: usize) -> u32 {
        self.known.values().filter(|known| known.port == port).count() as u32
    }

    fn pause(&mut self, nanos: u64) {
        self.now += nanos;
        let step = self.step();
        self.known.retain(|_, known| known.is_fixed || step - known.step < 32);
    }

    /// Returns whether the frame is forwarded.
    fn learn(&mut self, key: (u16, u8), port: usize) -> bool {
        let (step, unit) = (self.step(), self.now / UNIT);
        let is_full = port == 0 && self.keys.max_macs.is_some_and(|max| self.at_port(port) >= max);
        let Some(known) = self.known.get(&key).copied() else {
            if is_full {
                self.count("port_full");
            } else {
                self.count("learned");
                let new = Known { port, step, is_fixed: false, moves: 0, since: 0, is_held: false };
                self.known.insert(key, new);
            }
            return true;
        };
        if known.port == port {
            self.known.insert(key, Known { step, ..known });
            return true;
        }
        if known.is_fixed {
            let forwards = self.keys.forward_violations;
            self.count(if forwards { "violations_forwarded" } else { "move_violation" });
            return forwards;
        }
        if is_full {
            self.count("port_full");
            return true;
        }
        let mut moved = Known { port, step, ..known };
        if let Some(max) = self.keys.max_moves {
            let elapsed = unit - known.since;
            if known.is_held && elapsed < HOLD.div_ceil(UNIT) {
                self.count("move_limited");
                return false;
            }
            if known.is_held || known.moves == 0 || elapsed >= WINDOW.div_ceil(UNIT) {
                moved = Known { moves: 1, since: unit, is_held: false, ..moved };
            } else if known.moves < max {
                moved.moves += 1;
            } else {
                self.known.insert(key, Known { is_held: true, since: unit, ..known });
                self.count("move_limited");
                return false;
            }
        }
        self.count("moved");
        self.known.insert(key, moved);
        true
    }

    /// The ports by which a frame leaves, and the frame there.
    fn forward(&mut self, port: usize, frame: Sent, number: u32) -> Vec<(usize, Vec<u8>)> {
        let Some(vlan) = self.vlan(port, frame.tag) else {
            self.count("vlan_not_allowed");
            return Vec::new();
        };
        let known = self.known.get(&(vlan, frame.to)).map(|known| known.port);
        if !self.learn((vlan, frame.from), port) {
            return Vec::new();
        }
        let Keys { vlans, group, .. } = self.keys;
        let in_group = |other: usize| group && port < 2 && other < 2;
        let all = match known {
            Some(other) if other == port => Err("same_port"),
            Some(other) if in_group(other) => Err("same_group"),
            Some(other) if vlans && self.leaves(other, vlan).is_none() => Err("vlan_not_allowed"),
            Some(other) => {
                self.count("hits");
                Ok(vec![other])
            }
            None if frame.to == 1 => Err("reserved"),
            None => {
                if frame.to > 1 {
                    self.count("misses");
                }
                let may = |other: &usize| {
                    let leaves = !vlans || self.leaves(*other, vlan).is_some();
                    *other != port && !in_group(*other) && leaves
                };
                match (0..PORTS.len()).filter(may).collect::<Vec<_>>() {
                    none if none.is_empty() => Err("no_output"),
                    all => {
                        self.count("flooded");
                        Ok(all)
                    }
                }
            }
        };
        let all = all.unwrap_or_else(|reason| {
            self.count(reason);
            Vec::new()
        });
        let priority = frame.tag.unwrap_or(0) & 0xf000;
        let tag = |other: usize| match self.leaves(other, vlan) {
            _ if !vlans => frame.tag,
            Some(true) => Some(priority | vlan),
            _ => None,
        };
        all.into_iter().map(|other| (other, bytes(frame, tag(other), number))).collect()
    }
}

fn rig(keys: Keys) -> Rig {
    let mut ports = json!({ "a": {}, "b": {}, "c": {}, "d": {} });
    if keys.vlans {
        ports = json!({
            "a": { "access": 5 }, "b": { "access": 5 }, "c": { "trunk": "5-7" }, "d": { "trunk": "9, 5", "native": 7 },
        });
    }
    if let Some(max) = keys.max_macs {
        ports["a"]["max_macs"] = json!(max);
    }
    let groups = if keys.group { json!([["a", "b"]]) } else { json!([]) };
    let config = json!({ "groups": groups, "ports": ports, "forward_violations": keys.forward_violations });
    let mut bridge = Bridge::configure(serde_json::from_value(config).unwrap(), &Context::default()).unwrap();
    let mut table = json!({ "ageing": "16s", "move_window": "6s", "move_hold": "3s", "static": {} });
    if let Some(max) = keys.max_moves {
        table["max_moves"] = json!(max);
    }
    if keys.fixed {
        let address = if keys.vlans { "02:00:00:00:00:02 vlan 5" } else { "02:00:00:00:00:02" };
        table["static"][address] = json!("c");
    }
    let table = serde_json::from_value(table).unwrap();
    bridge.table = Arc::new(MacTable::configure(table, &Context::default()).unwrap());
    Rig::new(bridge, &PORTS, &PORTS)
}

fn keys() -> impl Strategy<Value = Keys> {
    let limits = (prop::option::of(1u32..4), prop::option::of(0u32..4));
    (any::<[bool; 4]>(), limits).prop_map(|([vlans, group, fixed, forward_violations], (max_moves, max_macs))| Keys {
        vlans,
        group,
        fixed,
        max_moves,
        max_macs,
        forward_violations,
    })
}

fn steps() -> impl Strategy<Value = Vec<ModelStep>> {
    let id = prop_oneof![Just(0u16), 5u16..10];
    let tag = prop::option::of((id, 0u16..16).prop_map(|(id, priority)| priority << 12 | id));
    let frame = (0u8..7, 2u8..7, tag).prop_map(|(to, from, tag)| Sent { to, from, tag });
    let run = (frame, 1usize..4).prop_map(|(frame, count)| vec![frame; count]);
    let burst = prop::collection::vec(run, 1..6).prop_map(|runs| runs.concat());
    let pause = prop_oneof![0..SECOND, 0..4 * SECOND, 0..40 * SECOND];
    let step = prop_oneof![5 => (0..PORTS.len(), burst).prop_map(|(port, sent)| ModelStep::Burst(port, sent)), 2 => pause.prop_map(ModelStep::Pause)];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #[test]
    fn frames_take_the_ways_of_a_naive_bridge(keys in keys(), steps in steps()) {
        let mut rig = rig(keys);
        rig.set_time(SECOND);
        rig.settle();
        let mut naive = Naive { keys, known: HashMap::new(), start: SECOND, now: SECOND, counts: BTreeMap::new() };
        if keys.fixed {
            let fixed = Known { port: 2, step: 0, is_fixed: true, moves: 0, since: 0, is_held: false };
            naive.known.insert((if keys.vlans { 5 } else { 0 }, 2), fixed);
        }
        let mut number = 0;
        for step in steps {
            match step {
                ModelStep::Pause(nanos) => {
                    naive.pause(nanos);
                    rig.set_time(naive.now);
                    rig.settle();
                }
                ModelStep::Burst(port, sent) => {
                    let mut expected = vec![Vec::new(); PORTS.len()];
                    let mut frames = Vec::new();
                    for frame in sent {
                        number += 1;
                        frames.push(bytes(frame, frame.tag, number));
                        for (to, bytes) in naive.forward(port, frame, number) {
                            expected[to].push(bytes);
                        }
                    }
                    rig.send(PORTS[port], frames);
                    rig.settle();
                    for (name, expected) in PORTS.iter().zip(expected) {
                        prop_assert_eq!(rig.received(name), expected, "at {} from {}", name, PORTS[port]);
                    }
                }
            }
        }
        let counts = rig.counts();
        for (name, count) in counts.drops.iter().chain(&counts.counters) {
            prop_assert_eq!(*count, naive.counts.get(&**name).copied().unwrap_or(0), "{}", name);
        }
    }
}

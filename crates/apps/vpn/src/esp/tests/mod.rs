//! Two ends, a wire between them, and a model that builds packets field by field.

mod keys;
mod life;
mod model;
mod paths;
mod refusals;
mod registered;

use bellows_common::headers::ETHERNET;
use bellows_config::{Configure, Context, SettingError};
use bellows_exercise::packets::{ip, pair};
use bellows_rig::Rig;
use bellows_wire::{IpPair, IpProtocol};
use serde_json::{Value, json};

use super::Esp;
use super::plan::Way;
use super::register::{self, Claim, User};
use crate::tunnel::TRANSPORTS;
use crate::tunnel::tests::transport;

/// A key that no other test has.
fn key(algorithm: &str) -> String {
    let length = if algorithm == "aes-128-gcm" { 20 } else { 36 };
    (0..length).map(|_| format!("{:02x}", fastrand::u8(..))).collect()
}

/// Sets how far a key was used, as if a pair had used it before.
fn set_used(key: &str, way: Way, spi: u32, sequence: u64) {
    let keys = bellows_esp::Keys::parse(bellows_esp::Algorithm::Aes128Gcm, key).unwrap();
    let user = User::new();
    let claim = Claim { way, key: keys.fingerprint(), spi: bellows_esp::Spi::new(spi).unwrap(), is_extended: true };
    register::claim(user, &[claim]).unwrap();
    let slot = register::begin(user, &claim).unwrap();
    slot.progress(way).set(sequence, bellows_esp::Amount { packets: sequence, bytes: 0 });
    register::release(user, &[claim], false);
}

/// Keys of one direction.
fn direction(spi: u32, algorithm: &str) -> Value {
    json!({"spi": spi, "algorithm": algorithm, "key": key(algorithm)})
}

/// The keys of two ends of the pair `a` with these keys in both, over IPv6 or IPv4.
fn ends(is_v6: bool, algorithm: &str, more: &Value) -> [Value; 2] {
    let [there, back] = [direction(0x1001, algorithm), direction(0x1002, algorithm)];
    let (one, two) = match pair(is_v6) {
        IpPair::V4 { src, dst } => (src.to_string(), dst.to_string()),
        IpPair::V6 { src, dst } => (src.to_string(), dst.to_string()),
    };
    let end = |local: &str, remote: &str, inbound: &Value, outbound: &Value| {
        let mut association = more.as_object().unwrap().clone();
        association.insert("remote".to_owned(), remote.into());
        association.insert("inbound".to_owned(), inbound.clone());
        association.insert("outbound".to_owned(), outbound.clone());
        json!({"local": local, "associations": {"a": association}})
    };
    [end(&one, &two, &back, &there), end(&two, &one, &there, &back)]
}

/// The same keys for what the first end sends, and the second one receives.
fn with_direction(ends: &mut [Value; 2], change: impl Fn(&mut Value)) {
    change(&mut ends[0]["associations"]["a"]["outbound"]);
    change(&mut ends[1]["associations"]["a"]["inbound"]);
}

fn configure(config: &Value) -> Result<Esp, SettingError> {
    Esp::configure(serde_json::from_value(config.clone()).unwrap(), &Context::default())
}

fn rig_of(esp: Esp, config: &Value) -> Rig {
    let pairs = config["associations"].as_object().unwrap();
    let ports: Vec<&str> = TRANSPORTS.into_iter().chain(pairs.keys().map(String::as_str)).collect();
    Rig::new(esp, &ports, &ports)
}

fn rig(config: &Value) -> Rig {
    rig_of(configure(config).unwrap(), config)
}

/// An IP packet between addresses that a tunnel carries: behind an Ethernet header without addresses.
fn inner(is_v6: bool, payload: &[u8]) -> Vec<u8> {
    ip(pair(is_v6), IpProtocol(200), payload)
}

/// Has packets go from one rig to the other. Returns those that come out there.
fn carry(near: &mut Rig, far: &mut Rig, is_v6: bool, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    near.send("a", packets);
    near.settle();
    let wire = near.received(transport(is_v6));
    far.send(transport(is_v6), &wire);
    far.settle();
    far.received("a")
}

/// What one end seals a packet into.
fn sealed(near: &mut Rig, is_v6: bool, packet: &[u8]) -> Vec<u8> {
    near.send("a", [packet]);
    near.settle();
    near.received(transport(is_v6)).remove(0)
}

/// The counter of the only drop since the counts were these.
fn drop_of(rig: &mut Rig, before: u64) -> Option<String> {
    let counts = rig.counts();
    assert!(counts.dropped() <= before + 1);
    (counts.dropped() > before).then(|| {
        let drops = counts.drops.iter().filter(|(_, count)| **count > 0);
        drops.map(|(name, _)| name.to_string()).collect::<Vec<_>>().join(" ")
    })
}

/// The counter of the only drop of an app that receives a packet from the wire.
fn refusal(config: &Value, is_v6: bool, packet: &[u8]) -> Option<String> {
    let mut rig = rig(config);
    rig.send(transport(is_v6), [packet]);
    rig.settle();
    drop_of(&mut rig, 0)
}

//! The neighbours as other threads see them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

use bellows_engine::Status;
use bellows_sys::clock;
use bellows_vrf::neighbours::NeighbourKey;
use bellows_wire::MacAddr;
use serde_json::{Value, json};

/// The neighbours as other threads see them.
#[derive(Default)]
pub(super) struct Shown(pub(super) Mutex<HashMap<NeighbourKey, ShownNeighbour>>);

/// A neighbour as other threads see it.
#[derive(Clone)]
pub(super) struct ShownNeighbour {
    pub(super) interface: String,
    pub(super) address: IpAddr,
    pub(super) state: &'static str,
    pub(super) mac: Option<MacAddr>,
    /// When the state or the Ethernet address was last another one, in the engine's time.
    pub(super) since: u64,
    /// The number of packets that wait for it.
    pub(super) waiting: usize,
}

impl Status for Shown {
    fn status(&self) -> Value {
        let mut shown: Vec<ShownNeighbour> =
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).values().cloned().collect();
        shown.sort_unstable_by(|one, other| (&one.interface, one.address).cmp(&(&other.interface, other.address)));
        let neighbours: Vec<Value> = shown
            .into_iter()
            .map(|ShownNeighbour { interface, address, state, mac, since, waiting }| {
                let mac = mac.map(|mac| mac.to_string());
                let age = clock::now().saturating_sub(since) / 1_000_000_000;
                json!({
                    "interface": interface, "address": address.to_string(), "state": state, "mac": mac,
                    "age_seconds": age, "waiting": waiting,
                })
            })
            .collect();
        json!({ "neighbours": neighbours })
    }
}

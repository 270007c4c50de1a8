//! The neighbours as other threads see them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;

use bellows_engine::Status;
use bellows_sys::clock;
use bellows_vrf::neighbours::NeighbourKey;
use bellows_wire::MacAddr;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::vrf::requests::ReportedNeighbourState;

/// The neighbours as other threads see them.
#[derive(Default)]
pub(super) struct Shown(pub(super) Mutex<HashMap<NeighbourKey, ShownNeighbour>>);

/// A neighbour as other threads see it.
#[derive(Clone)]
pub(super) struct ShownNeighbour {
    pub(super) interface: String,
    pub(super) address: IpAddr,
    pub(super) state: ReportedNeighbourState,
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
        let neighbour = |ShownNeighbour { interface, address, state, mac, since, waiting }| ResolvedNeighbour {
            interface,
            address: address.to_string(),
            state,
            mac: mac.map(|mac: MacAddr| mac.to_string()),
            age_seconds: clock::now().saturating_sub(since) / 1_000_000_000,
            waiting,
        };
        json!(ResolverStatus { neighbours: shown.into_iter().map(neighbour).collect() })
    }
}

/// The status of an app that resolves neighbours.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `arp` and `nd`")]
pub(crate) struct ResolverStatus {
    /// The neighbours that it has asked for or heard of, in the order of interfaces and addresses.
    neighbours: Vec<ResolvedNeighbour>,
}

/// What the status says of a neighbour.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Neighbour that was asked for")]
struct ResolvedNeighbour {
    /// The interface on whose link it is.
    interface: String,
    /// Its IP address.
    address: String,
    /// Its state.
    state: ReportedNeighbourState,
    /// Its Ethernet address; null if it is not known.
    mac: Option<String>,
    /// Seconds since the state or the Ethernet address was another one.
    age_seconds: u64,
    /// Packets that wait for it.
    waiting: usize,
}

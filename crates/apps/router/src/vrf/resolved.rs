//! The neighbours that `arp` and `nd` have resolved, as other threads see them.

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

use super::requests::ReportedNeighbourState;

/// The neighbours as other threads see them.
#[derive(Default)]
pub(crate) struct Shown(pub(crate) Mutex<HashMap<NeighbourKey, ShownNeighbour>>);

/// A neighbour as other threads see it.
#[derive(Clone)]
pub(crate) struct ShownNeighbour {
    pub(crate) interface: String,
    pub(crate) address: IpAddr,
    pub(crate) state: ReportedNeighbourState,
    pub(crate) mac: Option<MacAddr>,
    /// When the state or the Ethernet address was last another one, in the engine's time.
    pub(crate) since: u64,
    /// The number of packets that wait for it.
    pub(crate) waiting: usize,
}

impl Shown {
    /// The neighbours, in the order of interfaces and addresses.
    pub(crate) fn neighbours(&self) -> Vec<ResolvedNeighbour> {
        let mut shown: Vec<ShownNeighbour> =
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).values().cloned().collect();
        shown.sort_unstable_by(|one, other| (&one.interface, one.address).cmp(&(&other.interface, other.address)));
        let neighbour = |ShownNeighbour { interface, address, state, mac, since, waiting }| ResolvedNeighbour {
            interface,
            address,
            state,
            mac: mac.map(|mac: MacAddr| mac.to_string()),
            age_seconds: clock::now().saturating_sub(since) / 1_000_000_000,
            waiting,
        };
        shown.into_iter().map(neighbour).collect()
    }
}

impl Status for Shown {
    fn status(&self) -> Value {
        json!(ResolverStatus { neighbours: self.neighbours() })
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
pub(crate) struct ResolvedNeighbour {
    /// The interface on whose link it is.
    pub(crate) interface: String,
    /// Its IP address.
    #[schemars(with = "String")]
    pub(crate) address: IpAddr,
    /// Its state.
    pub(crate) state: ReportedNeighbourState,
    /// Its Ethernet address; null if it is not known.
    pub(crate) mac: Option<String>,
    /// Seconds since the state or the Ethernet address was another one.
    pub(crate) age_seconds: u64,
    /// Packets that wait for it.
    pub(crate) waiting: usize,
}

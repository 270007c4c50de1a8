//! What `bellows show vhost` shows of the app.

use std::sync::{Arc, Mutex, PoisonError};

use bellows_engine::Status;
use bellows_virtio::driver::QueueCounters;
use bellows_virtio::ring::Direction;
use bellows_virtio::vhost::{DriverSide, FrontendStatus, Negotiated};
use serde_json::{Value, json};

use crate::virtio::{RingCounts, RingStatus, VirtioStatus};

/// What the queues have counted, as of the last tick: of each pair, receive and transmit.
#[derive(Default)]
pub(super) struct Totals(Mutex<Vec<[QueueCounters; 2]>>);

impl Totals {
    /// Called by the engine, which does not wait: who reads just now gets the totals of the last time.
    pub(super) fn set(&self, totals: impl Iterator<Item = [QueueCounters; 2]>) {
        if let Ok(mut kept) = self.0.try_lock() {
            kept.clear();
            kept.extend(totals);
        }
    }

    fn get(&self) -> Vec<[QueueCounters; 2]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The front end's state, as JSON.
pub(super) struct StatusJson {
    pub(super) frontend: Arc<FrontendStatus>,
    pub(super) totals: Arc<Totals>,
}

impl Status for StatusJson {
    fn status(&self) -> Value {
        let snapshot = self.frontend.snapshot();
        let DriverSide { negotiated } = snapshot.side;
        let (socket, mode) = (self.frontend.socket(), self.frontend.mode());
        let mut status = VirtioStatus::of("virtio-user", socket, mode, negotiated.is_some(), snapshot);
        if let Some(Negotiated { features, pairs, ring_size, mac }) = negotiated {
            status.features = Some(Some(features.names().collect()));
            status.mac = Some(mac.map(|mac| bellows_wire::MacAddr(mac).to_string()));
            let counters = self.totals.get().into_iter().flatten().chain(std::iter::repeat(QueueCounters::default()));
            let rings = counters.take(2 * usize::from(pairs)).enumerate();
            status.rings = rings.map(|(index, counters)| ring(index, ring_size, counters)).collect();
        }
        json!(status)
    }
}

fn ring(index: usize, size: u16, counters: QueueCounters) -> RingStatus {
    let QueueCounters { packets, bytes, kicks, empty, too_long, bad_header, no_buffer } = counters;
    let errors = [("empty", empty), ("too_long", too_long), ("bad_header", bad_header), ("no_buffer", no_buffer)];
    RingStatus {
        index,
        direction: Direction::of_queue(index).name(),
        state: "running",
        error: None,
        size,
        instance: None,
        counters: RingCounts { packets, bytes, chains: None, kicks, errors: errors.into_iter().collect() },
    }
}

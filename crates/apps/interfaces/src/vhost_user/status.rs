//! What `bellows show vhost` shows of the app.

use std::sync::Arc;

use bellows_engine::Status;
use bellows_virtio::Features;
use bellows_virtio::ring::{Counters, Direction};
use bellows_virtio::vhost::{BackendStatus, DeviceSide, QueueState, QueueStatus};
use serde_json::{Value, json};

use crate::virtio::{NotificationStatus, PeerMemory, RingCounts, RingStatus, VirtioStatus};

/// The back end's state, as JSON.
pub(super) struct StatusJson(pub(super) Arc<BackendStatus>);

impl Status for StatusJson {
    fn status(&self) -> Value {
        let snapshot = self.0.snapshot();
        let (means, slow_queues, since) = self.0.notifications();
        let names = |features: Features| features.names().collect::<Vec<_>>();
        // As the driver numbers them, of all pairs of the device.
        let number = |index: usize| 2 * usize::from(self.0.pairs()[index / 2]) + index % 2;
        let DeviceSide { connected, offered, features, protocol, regions, logging, queues } = snapshot.side.clone();
        let bytes = regions.iter().map(|(_, length)| length).sum();
        let slow_seconds = since.map(|since| since.as_secs());
        let mut status = VirtioStatus::of("vhost-user", self.0.socket(), self.0.mode(), connected, snapshot);
        status.offered = Some(names(offered));
        status.features = Some(features.map(names));
        status.protocol_features = Some(protocol.names().collect());
        status.memory = Some(PeerMemory { regions: regions.len(), bytes });
        status.logging = Some(logging);
        status.notifications = Some(NotificationStatus { by: means.name(), slow_queues, slow_seconds });
        status.rings = queues.iter().enumerate().map(|(index, queue)| ring(number(index), queue)).collect();
        json!(status)
    }
}

fn ring(index: usize, queue: &QueueStatus) -> RingStatus {
    let (state, error) = match &queue.state {
        QueueState::Stopped => ("stopped", None),
        QueueState::Disabled => ("disabled", None),
        QueueState::Running => ("running", None),
        QueueState::Failed(error) => ("failed", Some(error)),
    };
    let Counters { packets, bytes, chains, calls, empty, too_long, bad_header, no_large_buffer } = queue.counters;
    let errors =
        [("empty", empty), ("too_long", too_long), ("bad_header", bad_header), ("no_large_buffer", no_large_buffer)];
    RingStatus {
        index,
        direction: Direction::of_queue(index).name(),
        state,
        error: Some(error.map(ToString::to_string)),
        size: queue.size,
        instance: Some(queue.instance.to_string()),
        counters: RingCounts {
            packets,
            bytes,
            chains: Some(chains),
            kicks: calls,
            errors: errors.into_iter().collect(),
        },
    }
}

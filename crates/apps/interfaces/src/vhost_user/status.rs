//! What `bellows show vhost` shows of the app.

use std::sync::Arc;

use bellows_engine::Status;
use bellows_virtio::Features;
use bellows_virtio::ring::{Counters, Direction};
use bellows_virtio::vhost::{BackendStatus, DeviceSide, QueueState, QueueStatus};
use serde_json::{Value, json};

use crate::virtio::common_status;

/// The back end's state, as JSON.
pub(super) struct StatusJson(pub(super) Arc<BackendStatus>);

impl Status for StatusJson {
    fn status(&self) -> Value {
        let snapshot = self.0.snapshot();
        let DeviceSide { connected, offered, features, protocol, regions, logging, queues } = &snapshot.side;
        let mut status = common_status("vhost-user", self.0.socket(), self.0.mode(), *connected, &snapshot);
        let (means, slow, since) = self.0.notifications();
        let names = |features: Features| features.names().collect::<Vec<_>>();
        status["offered"] = json!(names(*offered));
        status["features"] = json!(features.map(names));
        status["protocol_features"] = json!(protocol.names().collect::<Vec<_>>());
        status["memory"] = json!({
            "regions": regions.len(),
            "bytes": regions.iter().map(|(_, length)| length).sum::<u64>(),
        });
        status["logging"] = json!(logging);
        status["notifications"] = json!({
            "by": means.name(), "slow_queues": slow, "slow_seconds": since.map(|since| since.as_secs()),
        });
        // As the driver numbers them, of all pairs of the device.
        let number = |index: usize| 2 * usize::from(self.0.pairs()[index / 2]) + index % 2;
        status["rings"] = queues.iter().enumerate().map(|(index, queue)| ring(number(index), queue)).collect();
        status
    }
}

fn ring(index: usize, queue: &QueueStatus) -> Value {
    let (state, error) = match &queue.state {
        QueueState::Stopped => ("stopped", None),
        QueueState::Disabled => ("disabled", None),
        QueueState::Running => ("running", None),
        QueueState::Failed(error) => ("failed", Some(error)),
    };
    let Counters { packets, bytes, chains, calls, empty, too_long, bad_header, no_large_buffer } = queue.counters;
    json!({
        "index": index,
        "direction": Direction::of_queue(index).name(),
        "state": state,
        "error": error,
        "size": queue.size,
        "instance": queue.instance,
        "counters": {
            "packets": packets,
            "bytes": bytes,
            "chains": chains,
            "kicks": calls,
            "errors": {
                "empty": empty,
                "too_long": too_long,
                "bad_header": bad_header,
                "no_large_buffer": no_large_buffer,
            },
        },
    })
}

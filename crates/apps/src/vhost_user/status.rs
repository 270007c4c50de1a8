//! What `bellows show vhost` shows of the app.

use std::sync::Arc;

use bellows_engine::Status;
use bellows_virtio::Features;
use bellows_virtio::ring::{Counters, Direction};
use bellows_virtio::vhost::{BackendStatus, Mode, QueueState, QueueStatus, Snapshot};
use serde_json::{Value, json};

use crate::virtio::add_guards;

/// The back end's state, as JSON.
pub(super) struct Told(pub(super) Arc<BackendStatus>);

impl Status for Told {
    fn status(&self) -> Value {
        let snapshot = self.0.snapshot();
        let Snapshot {
            connected,
            peer,
            connections,
            confinement,
            faults,
            offered,
            features,
            protocol,
            regions,
            logging,
            queues,
            errors,
            last_error,
            waits,
        } = snapshot;
        let mode = if self.0.mode() == Mode::Server { "server" } else { "client" };
        let state = match (connected, self.0.mode()) {
            (true, _) => "connected",
            (false, Mode::Server) => "listening",
            (false, Mode::Client) => "waiting",
        };
        let (means, slow) = self.0.notifications();
        let names = |features: Features| features.names().collect::<Vec<_>>();
        let mut status = json!({
            "kind": "vhost-user",
            "socket": self.0.socket(),
            "mode": mode,
            "state": state,
            "connections": connections,
            "offered": names(offered),
            "features": features.map(names),
            "protocol_features": protocol.names().collect::<Vec<_>>(),
            "memory": {
                "regions": regions.len(),
                "bytes": regions.iter().map(|(_, length)| length).sum::<u64>(),
            },
            "logging": logging,
            "notifications": { "by": means.name(), "slow_queues": slow },
            "rings": queues.iter().enumerate().map(|(index, queue)| ring(index, queue)).collect::<Vec<_>>(),
            "errors": errors.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect::<serde_json::Map<_, _>>(),
            "last_error": last_error,
            "waits": waits,
        });
        add_guards(&mut status, peer, &confinement, faults);
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

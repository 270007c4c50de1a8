//! What other threads see of a control channel.

use std::sync::{Mutex, PoisonError};

use bellows_engine::Status;
use bellows_sys::clock;
use serde_json::{Value, json};

use super::message::Message;
use super::peer::{Cause, Expected, State};

/// The status of a control channel.
pub(super) struct ChannelStatus {
    /// What this end tells the peer.
    own: Message,
    expected: Expected,
    seen: Mutex<Seen>,
}

/// The state and the peer, with times of the processor's clock.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) state: State,
    /// Since when.
    pub(super) since: u64,
    /// The last message, and when it came.
    pub(super) peer: Option<(Message, u64)>,
}

impl ChannelStatus {
    /// The status of a control channel that has heard nothing.
    pub(super) fn new(own: Message, expected: Expected) -> ChannelStatus {
        let seen = Seen { state: State::Down(Cause::NotHeard), since: clock::now(), peer: None };
        ChannelStatus { own, expected, seen: Mutex::new(seen) }
    }

    /// The present state.
    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Changes the state.
    pub(super) fn update(&self, update: impl FnOnce(&mut Seen)) {
        update(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The keys of a message.
fn fields(message: &Message) -> Value {
    let Message { heartbeat, mtu, description, vc_id } = message;
    json!({ "heartbeat_seconds": heartbeat, "mtu": mtu, "description": description, "vc_id": vc_id })
}

impl Status for ChannelStatus {
    fn status(&self) -> Value {
        let Seen { state, since, peer } = self.seen();
        let age = |time: u64| clock::now().saturating_sub(time) / 1_000_000_000;
        let peer = peer.map(|(message, at)| {
            let mut peer = fields(&message);
            peer["heard_seconds_ago"] = json!(age(at));
            peer["dead_after_seconds"] = json!(self.expected.patience(&message));
            peer
        });
        json!({
            "state": state.name(),
            "cause": state.cause().map(|cause| cause.to_string()),
            "since_seconds": age(since),
            "local": fields(&self.own),
            "peer": peer,
        })
    }
}

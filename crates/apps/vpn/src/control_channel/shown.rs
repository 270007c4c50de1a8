//! What other threads see of a control channel.

use std::sync::{Mutex, PoisonError};

use bellows_engine::Status;
use bellows_sys::clock;
use schemars::JsonSchema;
use serde::Serialize;
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

/// The status of a control channel.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `control-channel`")]
pub(super) struct ControlChannelStatus {
    /// Of the pseudowire: `up` or `down`.
    #[schemars(extend("enum" = ["up", "down"]))]
    state: &'static str,
    /// Why it is down; null if it is up.
    cause: Option<String>,
    /// For how long it has been in this state.
    since_seconds: u64,
    /// What this end tells the peer.
    local: MessageStatus,
    /// What the peer said last; null before.
    peer: Option<PeerStatus>,
}

/// What the status says of a message.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Message of a control channel")]
struct MessageStatus {
    /// The time within which the sender sends at least one message.
    heartbeat_seconds: u16,
    /// The MTU of its circuit; null if it was left out.
    mtu: Option<u16>,
    /// Its interface or pseudowire, in the words of its operator; null if left out.
    description: Option<String>,
    /// The number of the pseudowire; null if left out.
    vc_id: Option<u32>,
}

impl From<Message> for MessageStatus {
    fn from(Message { heartbeat, mtu, description, vc_id }: Message) -> MessageStatus {
        MessageStatus { heartbeat_seconds: heartbeat, mtu, description, vc_id }
    }
}

/// What the status says of the peer.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Peer of a control channel", extend("includes" = ["Message of a control channel"]))]
struct PeerStatus {
    #[serde(flatten)]
    message: MessageStatus,
    /// The time since the message came.
    last_seen_seconds: u64,
    /// The time without a further message after which it is dead.
    dead_after_seconds: u64,
}

impl Status for ChannelStatus {
    fn status(&self) -> Value {
        let Seen { state, since, peer } = self.seen();
        let age = |time: u64| clock::now().saturating_sub(time) / 1_000_000_000;
        let peer = peer.map(|(message, at)| PeerStatus {
            last_seen_seconds: age(at),
            dead_after_seconds: self.expected.patience(&message),
            message: message.into(),
        });
        json!(ControlChannelStatus {
            state: state.name(),
            cause: state.cause().map(|cause| cause.to_string()),
            since_seconds: age(since),
            local: self.own.clone().into(),
            peer,
        })
    }
}

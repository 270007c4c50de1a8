//! The other end of a pseudowire as its messages show it, and what follows for the pseudowire.

use std::fmt;

use super::message::Message;

const SECOND: u64 = 1_000_000_000;

/// Whether a pseudowire carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    Down(Cause),
}

/// Why a pseudowire is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// The peer has never been heard.
    NotHeard,
    /// The peer has not been heard for this number of seconds.
    Dead { seconds: u64 },
    /// The peer's MTU, and that of this end.
    Mtu { theirs: u16, ours: u16 },
    /// The peer's VC ID, and that of this end.
    VcId { theirs: u32, ours: u32 },
}

impl State {
    /// The name in a status.
    pub(super) fn name(self) -> &'static str {
        if self == State::Up { "up" } else { "down" }
    }

    /// Why it is down.
    pub(super) fn cause(self) -> Option<Cause> {
        match self {
            State::Up => None,
            State::Down(cause) => Some(cause),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::NotHeard => write!(formatter, "the peer has not been heard yet"),
            Cause::Dead { seconds } => write!(formatter, "the peer has not been heard for {seconds} s"),
            Cause::Mtu { theirs, ours } => write!(formatter, "the peer's MTU is {theirs}, that of this end {ours}"),
            Cause::VcId { theirs, ours } => write!(formatter, "the peer's VC ID is {theirs}, that of this end {ours}"),
        }
    }
}

/// What this end expects of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) mtu: u16,
    pub(super) vc_id: u32,
    /// The number of the peer's heartbeats after which it is dead.
    pub(super) dead_factor: u8,
    /// The longest heartbeat of the peer that counts, in seconds.
    pub(super) max_heartbeat: u16,
}

impl Expected {
    /// The seconds of silence after which the sender of a message is dead.
    pub(super) fn patience(&self, message: &Message) -> u64 {
        u64::from(message.heartbeat.min(self.max_heartbeat)) * u64::from(self.dead_factor)
    }
}

/// The peer.
#[derive(Clone, Debug, Default)]
pub(super) struct Peer {
    /// The last message, and when it came.
    pub(super) heard: Option<(Message, u64)>,
}

impl Peer {
    /// The time at which the peer is dead unless it is heard before.
    pub(super) fn dead_at(&self, expected: Expected) -> Option<u64> {
        let (message, at) = self.heard.as_ref()?;
        Some(at.saturating_add(expected.patience(message) * SECOND))
    }

    /// The state of the pseudowire.
    pub(super) fn state(&self, expected: Expected, now: u64) -> State {
        let Some((message, _)) = &self.heard else { return State::Down(Cause::NotHeard) };
        if self.dead_at(expected).is_some_and(|dead_at| dead_at <= now) {
            return State::Down(Cause::Dead { seconds: expected.patience(message) });
        }
        match (message.mtu, message.vc_id) {
            (Some(theirs), _) if theirs != expected.mtu => State::Down(Cause::Mtu { theirs, ours: expected.mtu }),
            (_, Some(theirs)) if theirs != expected.vc_id => State::Down(Cause::VcId { theirs, ours: expected.vc_id }),
            _ => State::Up,
        }
    }
}

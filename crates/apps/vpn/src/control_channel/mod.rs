//! `control-channel`: whether the other end of a pseudowire is there, and configured alike.
//!
//! | file | contents |
//! |---|---|
//! | `message.rs` | what the ends tell each other |
//! | `peer.rs` | the peer, and the state that follows from what it said |
//! | `shown.rs` | the status |

mod message;
mod peer;
mod shown;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bellows_common::limit::Limit;
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, Duration, OutputSchema, SettingError};
use bellows_engine::{App, AppError, Counters, Io, Port, Ports, Status, counters};
use bellows_events::{HeartbeatTooLong, LinkDown, LinkUp};
use bellows_packet::Packet;
use bellows_sys::clock;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::message::{MAX_DESCRIPTION, Malformed, Message};
use self::peer::{Cause, Expected, Peer, State};
use self::shown::{ChannelStatus, ControlChannelStatus};

/// Passes the frames of a pseudowire while its other end is there and configured alike.
///
/// Frames go from `tunnel` to `circuit` and from `circuit` to `tunnel`. `control` has the messages, without an Ethernet
/// header: link it with a session of the same tunnel that carries nothing else. By convention that is session
/// 4,294,967,294 (0xfffffffe) of L2TPv3, or the pseudowire's key of GRE + 32,768 (0x8000).
///
/// A message has the heartbeat, the MTU, a description and the VC ID, and is sent three times in each `heartbeat`. The
/// pseudowire is up from the peer's first message on. It is down when the peer has not been heard for `dead_factor` of
/// the heartbeats that the peer announced, up to `max_heartbeat` each, or while the peer's MTU or VC ID is another one
/// than that of this end. Frames are then dropped as `pseudowire_down`, in both directions; what the peer leaves out is
/// not compared. The log says when the state changes, at most once a second after the first ten times, and that a peer
/// has never been heard for `dead_factor` of this end's heartbeats; `bellows show status` prints the state and what the
/// peer said.
///
/// Malformed messages change nothing. A message has type, length and value of each field: 1 heartbeat (2 bytes,
/// seconds), 2 MTU (2 bytes), 3 description (text), 4 VC ID (4 bytes), where type and length have one byte each; others
/// are skipped. A reload keeps the state.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The MTU of the circuit, which must be that of the peer's.
    #[schemars(extend("x-unit" = "bytes"), range(min = 1, max = 65535))]
    pub mtu: u16,

    /// The number of the pseudowire (VC ID), which must be that of the peer.
    #[serde(default)]
    pub vc_id: u32,

    /// A description of this end for the peer's operator, up to 255 bytes. Without it, the name of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,

    /// The interval that is announced to the peer, from 1 to 65,535 whole seconds. Three messages are sent in it.
    #[serde(default = "heartbeat")]
    #[schemars(extend("x-unit" = "time"))]
    pub heartbeat: Duration,

    /// The number of the peer's heartbeats without a message after which it is dead, from 1 to 255.
    #[serde(default = "dead_factor")]
    #[schemars(range(min = 1))]
    pub dead_factor: u8,

    /// The longest heartbeat of the peer that counts, from 1 to 65,535 whole seconds: of a peer that announces a longer
    /// one, this counts. Without it, 60 s, or `heartbeat` if that is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "time"))]
    pub max_heartbeat: Option<Duration>,
}

/// The default of `heartbeat`.
pub fn heartbeat() -> Duration {
    Duration::from_secs(5)
}

/// The default of `dead_factor`.
pub fn dead_factor() -> u8 {
    3
}

/// The longest heartbeat of a peer that counts if no other is configured, in seconds. A number in a message is no reason
/// to wait for days.
const MAX_HEARTBEAT: u16 = 60;

/// The seconds of a heartbeat, which is the value of this key.
///
/// # Errors
/// If it is not 1 to 65,535 whole seconds.
pub(crate) fn heartbeat_seconds(key: &'static str, heartbeat: Duration) -> Result<u16, SettingError> {
    const SECOND: u64 = 1_000_000_000;
    let nanos = heartbeat.nanos();
    match u16::try_from(nanos / SECOND) {
        Ok(seconds @ 1..) if nanos.is_multiple_of(SECOND) => Ok(seconds),
        _ => {
            let message = format!("no message can tell a heartbeat of {heartbeat}");
            Err(SettingError::at(key, message, "give whole seconds, from 1s to 65535s"))
        }
    }
}

/// Messages in each heartbeat.
const MESSAGES: u64 = 3;

/// Watches the other end of a pseudowire.
pub struct ControlChannel {
    /// The app's name, for the log.
    name: String,
    /// The message of this end.
    message: Vec<u8>,
    /// The time between two messages, nanoseconds.
    interval: u64,
    /// The time after which a peer that was never heard is missed, nanoseconds, and when that is.
    patience: u64,
    missed_at: Option<u64>,
    expected: Expected,
    peer: Peer,
    state: State,
    /// When the next message is sent.
    send_at: u64,
    /// Lines in the log.
    lines: Limit,
    /// Whether the state has not been logged yet, and whether the log says last that the pseudowire is down.
    is_untold: bool,
    was_told_down: bool,
    /// Whether the log says that the peer's heartbeat is too long.
    was_told_of_heartbeat: bool,
    shown: Arc<ChannelStatus>,
}

counters! { ControlChannel;
    drop PSEUDOWIRE_DOWN = "pseudowire_down", "frames while the pseudowire is down; likely: the other end is off or differs, which `bellows show status` says";
    drop MALFORMED = "malformed", "messages that are not whole or have no heartbeat";
    count RECEIVED = "received", "messages of the peer", in "messages";
    count SENT = "sent", "messages to the peer", in "messages";
    count UNMADE = "unmade", "messages to the peer that were not made because the pool had no buffer", in "messages";
    count UP = "up", "times that the pseudowire came up", in "times";
    count DOWN = "down", "times that the pseudowire went down", in "times";
    count MTU_MISMATCH = "mtu_mismatch", "messages with another MTU than that of this end", in "messages";
    count VC_ID_MISMATCH = "vc_id_mismatch", "messages with another VC ID than that of this end", in "messages";
    count HEARTBEAT_TOO_LONG = "heartbeat_too_long", "messages with a longer heartbeat than `max_heartbeat`, which counts instead", in "messages";
    count UNKNOWN_FIELDS = "unknown_fields", "fields of messages that were skipped because their type is not known", in "fields";
}

/// The places of the ports, the same for inputs and outputs.
const TUNNEL: usize = 0;
const CIRCUIT: usize = 1;
const CONTROL: usize = 2;

impl App for ControlChannel {
    const INPUTS: Ports = Ports::Named(&[
        Port::required("tunnel", "frames from the other end"),
        Port::required("circuit", "frames for the other end"),
        Port::required("control", "messages of the other end"),
    ]);
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("tunnel", "frames for the other end"),
        Port::required("circuit", "frames from the other end"),
        Port::required("control", "messages for the other end"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    // Messages end here.
    const ENDS: bool = true;

    fn push(&mut self, io: &Io<Self>) {
        if !io.input(CONTROL).is_empty() {
            self.receive(io);
        }
        if self.state == State::Up {
            io.forward(TUNNEL, CIRCUIT);
            io.forward(CIRCUIT, TUNNEL);
        } else {
            io.drop_all(&mut io.input(TUNNEL), Self::PSEUDOWIRE_DOWN);
            io.drop_all(&mut io.input(CIRCUIT), Self::PSEUDOWIRE_DOWN);
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.look(io);
        if self.send_at <= io.now() {
            self.send(io);
        }
        let dead_at = self.peer.dead_at(self.expected).or(self.missed_at).filter(|&dead_at| dead_at > io.now());
        io.wake_at(dead_at.unwrap_or(u64::MAX).min(self.send_at));
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        if let Some(old) = old {
            (self.peer, self.state, self.lines) = (old.peer.clone(), old.state, old.lines);
            self.missed_at = old.missed_at;
            self.was_told_of_heartbeat = old.was_told_of_heartbeat;
            // What was reported of the app before it was started anew is forgotten.
            self.is_untold = old.is_untold || old.was_told_down;
            let seen = old.shown.seen();
            self.shown.update(|now| *now = seen);
        }
        Ok(())
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        Some(Arc::clone(&self.shown) as Arc<dyn Status>)
    }
}

impl ControlChannel {
    /// Takes the messages of the peer.
    #[cold]
    fn receive(&mut self, io: &Io<Self>) {
        let was_heard = self.is_heard(io.now());
        for packet in &mut io.input(CONTROL) {
            let Ok((message, unknown)) = Message::read(packet.bytes()) else {
                io.drop(packet, Self::MALFORMED);
                continue;
            };
            io.count(Self::RECEIVED, 1);
            io.count(Self::UNKNOWN_FIELDS, unknown);
            io.count(Self::MTU_MISMATCH, message.mtu.is_some_and(|mtu| mtu != self.expected.mtu).into());
            io.count(Self::VC_ID_MISMATCH, message.vc_id.is_some_and(|vc_id| vc_id != self.expected.vc_id).into());
            self.look_at_heartbeat(io, &message);
            self.shown.update(|now| now.peer = Some((message.clone(), clock::now())));
            self.peer.heard = Some((message, io.now()));
            // What one message of several says counts, too.
            self.look(io);
        }
        if let Some(dead_at) = self.peer.dead_at(self.expected) {
            io.wake_at(dead_at);
        }
        if !was_heard && self.is_heard(io.now()) {
            // So that the peer need not wait for the next one.
            self.send(io);
        }
    }

    /// Counts a heartbeat that is too long, and logs the first one in a row.
    fn look_at_heartbeat(&mut self, io: &Io<Self>, message: &Message) {
        let (seconds, limit) = (message.heartbeat, self.expected.max_heartbeat);
        if seconds <= limit {
            self.was_told_of_heartbeat = false;
            return;
        }
        io.count(Self::HEARTBEAT_TOO_LONG, 1);
        if self.was_told_of_heartbeat || !self.lines.admits(io.now()) {
            return;
        }
        self.lines.pay(io.now());
        self.was_told_of_heartbeat = true;
        let name = &self.name;
        let peer = message.description.as_deref().unwrap_or_default();
        HeartbeatTooLong { app: name, peer, seconds: seconds.into(), limit_seconds: limit.into() }.log(format_args!(
            "`{name}`: the peer {peer:?} announces a heartbeat of {seconds} s; {limit} s count, as `max_heartbeat` has it"
        ));
    }

    /// Whether the peer lives.
    fn is_heard(&self, now: u64) -> bool {
        self.peer.dead_at(self.expected).is_some_and(|dead_at| now < dead_at)
    }

    /// Follows what is known of the peer.
    fn look(&mut self, io: &Io<Self>) {
        let state = self.peer.state(self.expected, io.now());
        if state != self.state {
            match (self.state, state) {
                (_, State::Up) => io.count(Self::UP, 1),
                (State::Up, _) => io.count(Self::DOWN, 1),
                _ => {}
            }
            self.state = state;
            self.shown.update(|now| (now.state, now.since) = (state, clock::now()));
            self.is_untold = true;
        }
        let missed_at = *self.missed_at.get_or_insert(io.now().saturating_add(self.patience));
        if state == State::Down(Cause::NotHeard) && missed_at <= io.now() && !self.was_told_down {
            self.is_untold = true;
        }
        // The end of what was reported is always reported.
        let is_over = state == State::Up && self.was_told_down;
        if self.is_untold && (is_over || self.lines.admits(io.now())) {
            self.lines.pay(io.now());
            (self.is_untold, self.was_told_down) = (false, state != State::Up);
            self.log();
        }
    }

    /// Tells the log of the state.
    fn log(&self) {
        let name = &self.name;
        let help = match self.state {
            State::Up => {
                return LinkUp { app: name, port: name }.log(format_args!("`{name}`: the pseudowire is up"));
            }
            State::Down(Cause::NotHeard | Cause::Dead { .. }) => "see whether it runs, and the way to it",
            State::Down(Cause::Mtu { .. } | Cause::VcId { .. }) => "configure both ends alike",
        };
        if let Some(cause) = self.state.cause() {
            let message = format_args!("`{name}`: the pseudowire is down: {cause}; {help}");
            LinkDown { app: name, port: name }.log(message);
        }
    }

    /// Sends a message.
    fn send(&mut self, io: &Io<Self>) {
        self.send_at = io.now() + self.interval;
        let Some(packet) = Packet::from_bytes(&self.message) else { return io.count(Self::UNMADE, 1) };
        io.count(Self::SENT, 1);
        io.output(CONTROL).push(packet);
    }
}

impl Configure for ControlChannel {
    const NAME: &'static str = "control-channel";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<ControlChannelStatus>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured(
            "without a peer it drops all frames; use `bellows show run` in a network, not `bellows bench`",
        )
    }

    fn configure(config: Config, context: &Context) -> Result<ControlChannel, SettingError> {
        let heartbeat = heartbeat_seconds("heartbeat", config.heartbeat)?;
        let max_heartbeat = match config.max_heartbeat {
            Some(most) => heartbeat_seconds("max_heartbeat", most)?,
            None => MAX_HEARTBEAT.max(heartbeat),
        };
        let Config { mtu, vc_id, dead_factor, .. } = config;
        if mtu == 0 {
            return Err(SettingError::at("mtu", "no frame has an MTU of 0", "give a number from 1 to 65535"));
        }
        if dead_factor == 0 {
            let message = "with a factor of 0 the peer is always dead";
            return Err(SettingError::at("dead_factor", message, "give a number from 1 to 255"));
        }
        let description = config.description.unwrap_or_else(|| context.app.clone());
        if description.len() > MAX_DESCRIPTION {
            let message = format!("a description of {} bytes is too long", description.len());
            return Err(SettingError::at("description", message, format!("use at most {MAX_DESCRIPTION} bytes")));
        }
        let message = Message { heartbeat, mtu: Some(mtu), description: Some(description), vc_id: Some(vc_id) };
        let expected = Expected { mtu, vc_id, dead_factor, max_heartbeat };
        Ok(ControlChannel {
            name: context.app.clone(),
            message: message.to_bytes(),
            interval: config.heartbeat.nanos() / MESSAGES,
            patience: config.heartbeat.nanos().saturating_mul(dead_factor.into()),
            missed_at: None,
            expected,
            peer: Peer::default(),
            state: State::Down(Cause::NotHeard),
            send_at: 0,
            lines: Limit::new(1, 10),
            is_untold: false,
            was_told_down: false,
            was_told_of_heartbeat: false,
            shown: Arc::new(ChannelStatus::new(message, expected)),
        })
    }
}

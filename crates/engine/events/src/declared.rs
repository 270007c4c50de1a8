//! The events.

use std::fmt::Display;

use serde_json::Value;

use crate::{Event, Level};

/// The target of the log records of events.
pub const TARGET: &str = "bellows::event";

/// The field of a log record that has the event's name.
pub const NAME_FIELD: &str = "event";

/// What is declared of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventInfo {
    /// The name. It stays the same in all versions.
    pub name: &'static str,
    /// The level of its log record.
    pub level: Level,
    /// When it happens, in sentences.
    pub help: &'static str,
    /// Its fields, in order.
    pub fields: &'static [FieldInfo],
    /// What it changes in the health of the network, if anything.
    pub effect: Option<Effect>,
}

/// What is declared of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldInfo {
    /// The name.
    pub name: &'static str,
    /// The meaning, and the unit of a number.
    pub help: &'static str,
}

/// What an event changes: a condition of an app, or of one of its ports, makes a network degraded while it lasts. The
/// fields `app` and `port` say whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The condition of this name begins.
    Raises(&'static str),
    /// The condition of this name is over.
    Clears(&'static str),
}

/// The condition of an app that has an error which lasts.
const DEGRADED: &str = "app-degraded";

/// The condition of a port without its link.
const DOWN: &str = "link-down";

/// Declares events: for each its type, its description, and its place in the list of all.
macro_rules! events {
    ($lifetime:lifetime $(
        $(#[doc = $help:literal])+
        $Name:ident = $name:literal, $level:ident, $effect:expr => {
            $($(#[doc = $field_help:literal])+ $field:ident: $kind:ty,)+
        }
    )+) => {
        $(
            $(#[doc = $help])+
            #[derive(Clone, Copy, Debug)]
            pub struct $Name<$lifetime> {
                $($(#[doc = $field_help])+ pub $field: $kind,)+
            }

            impl $Name<'_> {
                /// What is declared of the event.
                pub const INFO: EventInfo = EventInfo {
                    name: $name,
                    level: Level::$level,
                    help: concat!($($help),+),
                    fields: &[$(FieldInfo { name: stringify!($field), help: concat!($($field_help),+) }),+],
                    effect: $effect,
                };

                /// Logs the event, with a message for people.
                pub fn log(self, message: impl Display) {
                    tracing::event!(
                        target: TARGET,
                        events!(@level $level),
                        event = $name,
                        $($field = self.$field,)+
                        "{}",
                        message
                    );
                }
            }
        )+

        /// All events, in the order of the documentation.
        pub const ALL: &[EventInfo] = &[$($Name::INFO),+];
    };
    (@level Error) => { tracing::Level::ERROR };
    (@level Warn) => { tracing::Level::WARN };
    (@level Info) => { tracing::Level::INFO };
}

events! { 'a
    /// A network runs: its apps have started.
    Started = "started", Info, None => {
        /// The network file.
        source: &'a str,
    }
    /// A network could not start, because an app could not.
    StartFailed = "start-failed", Error, None => {
        /// The network file.
        source: &'a str,
    }
    /// A reload has swapped a configuration in.
    Reloaded = "reloaded", Info, None => {
        /// Who asked for it: `request`, `signal` or `watch`; `undo` if the former one is put back.
        by: &'a str,
        /// Number of apps that go on as they were.
        kept: u64,
        /// Number of apps that were started anew.
        restarted: u64,
        /// Number of apps that are new.
        added: u64,
        /// Number of apps that are gone.
        removed: u64,
    }
    /// A reload was refused; the old configuration runs on.
    ReloadRefused = "reload-refused", Error, None => {
        /// Who asked for it: `request`, `signal` or `watch`.
        by: &'a str,
    }
    /// A reload has swapped a configuration in, and the former one is put back after the time unless the change is
    /// confirmed.
    ConfirmationAwaited = "confirmation-awaited", Info, None => {
        /// The network file that was swapped in.
        source: &'a str,
        /// The time.
        seconds: f64,
    }
    /// A change that awaited its confirmation stays.
    ChangeConfirmed = "change-confirmed", Info, None => {
        /// Who confirmed it: `request`.
        by: &'a str,
    }
    /// The configuration before a change that was not confirmed is back.
    ChangeUndone = "change-undone", Warn, None => {
        /// Why: `time` or `request`.
        by: &'a str,
    }
    /// The configuration before a change could not be put back; the changed one runs on. When the time is over, this is
    /// tried again every ten seconds, and logged again for another reason.
    UndoFailed = "undo-failed", Error, None => {
        /// Why it was to be put back: `time` or `request`.
        by: &'a str,
    }
    /// A route, a neighbour or a key that a command has saved could not be entered when the network started, or what is
    /// saved cannot be read.
    SavedLeftOut = "saved-left-out", Warn, None => {
        /// The file with what is saved.
        file: &'a str,
    }
    /// The run is to end: apps flush and finish.
    Stopping = "stopping", Info, None => {
        /// Why: `signal`, `request` or `duration`.
        by: &'a str,
    }
    /// The run has ended.
    Stopped = "stopped", Info, None => {
        /// How, as `end` in the report of a run: `done`, `stopped`, `closed` or `stalled`.
        end: &'a str,
        /// The exit code of the process.
        exit_code: u64,
    }
    /// The process ends at once, at a second signal or because the engine has failed.
    Aborted = "aborted", Error, None => {
        /// Why: `signal` or `panic`.
        by: &'a str,
    }
    /// The process has ended without ending its run. Noticed later: by the next run of the name, by a reader, or when
    /// its remains are removed. The time is that at which the process was last seen.
    Crashed = "crashed", Error, None => {
        /// The last app that an event named, if there is one.
        last_app: Option<&'a str>,
        /// The process that has ended.
        last_pid: u64,
    }
    /// An app has panicked. It is no longer called until a reload restarts it.
    AppFailed = "app-failed", Error, None => {
        /// The app.
        app: Option<&'a str>,
        /// The place in the source, `FILE:LINE`.
        place: Option<&'a str>,
    }
    /// An app works only in part, because of an error that lasts.
    AppDegraded = "app-degraded", Warn, Some(Effect::Raises(DEGRADED)) => {
        /// The app.
        app: &'a str,
    }
    /// The error of an app is over.
    AppRecovered = "app-recovered", Info, Some(Effect::Clears(DEGRADED)) => {
        /// The app.
        app: &'a str,
    }
    /// A port waits for the other side of its socket, which has not been there yet.
    PeerAwaited = "peer-awaited", Info, None => {
        /// The app.
        app: &'a str,
        /// The socket.
        port: &'a str,
    }
    /// A process is on the other side of a port's socket now: a guest, or another program.
    PeerConnected = "peer-connected", Info, None => {
        /// The app.
        app: &'a str,
        /// The socket.
        port: &'a str,
        /// The process, if known.
        peer_pid: Option<u64>,
        /// The number of its user, if known.
        peer_uid: Option<u64>,
    }
    /// The process on the other side of a port's socket is gone, or was disconnected.
    PeerDisconnected = "peer-disconnected", Info, None => {
        /// The app.
        app: &'a str,
        /// The socket.
        port: &'a str,
    }
    /// The other side of a port's socket has violated the protocol, or may not connect.
    PeerError = "peer-error", Warn, None => {
        /// The app.
        app: &'a str,
        /// The socket.
        port: &'a str,
        /// The name under which `bellows show vhost` counts the error.
        error: &'a str,
    }
    /// A link is up: the interface of a port is there and has a carrier, or a pseudowire has its other end. Not logged
    /// of a port that is up from its start on, unless it replaces one that was down.
    LinkUp = "link-up", Info, Some(Effect::Clears(DOWN)) => {
        /// The app.
        app: &'a str,
        /// The interface, or the name of the pseudowire.
        port: &'a str,
    }
    /// A link is down: the interface of a port is gone, down or without a carrier, or cannot be opened, or a pseudowire
    /// is without its other end.
    LinkDown = "link-down", Warn, Some(Effect::Raises(DOWN)) => {
        /// The app.
        app: &'a str,
        /// The interface, or the name of the pseudowire.
        port: &'a str,
    }
    /// The other end of a pseudowire announces a longer heartbeat than `max_heartbeat`, which counts instead.
    HeartbeatTooLong = "heartbeat-too-long", Warn, None => {
        /// The app.
        app: &'a str,
        /// The other end, in the words of its operator.
        peer: &'a str,
        /// The heartbeat, in seconds.
        seconds: u64,
        /// What counts instead, in seconds.
        limit_seconds: u64,
    }
    /// A key of an IPsec pair has reached its soft limit, and is to be replaced. Once for each key by what
    /// it has protected, and once by its time.
    KeyExpiring = "key-expiring", Warn, None => {
        /// The app.
        app: &'a str,
        /// The pair.
        pair: &'a str,
        /// What the key is for: `inbound` or `outbound`.
        direction: &'a str,
        /// The security parameters index.
        spi: u64,
        /// What has reached its limit: `packets`, `bytes` or `time`.
        limit: &'a str,
    }
    /// A key of an IPsec pair has reached a hard limit, or its sequence numbers are used up: its packets are dropped until
    /// it is replaced. Once for each key.
    KeyExpired = "key-expired", Error, None => {
        /// The app.
        app: &'a str,
        /// The pair.
        pair: &'a str,
        /// What the key is for: `inbound` or `outbound`.
        direction: &'a str,
        /// The security parameters index.
        spi: u64,
        /// What has reached its limit: `packets`, `bytes`, `time` or `sequence`.
        limit: &'a str,
    }
    /// A pair of IPsec has a new key in one direction. An old key that sent is gone at once; one that received stays for
    /// `grace_seconds`.
    KeyChanged = "key-changed", Info, None => {
        /// The app.
        app: &'a str,
        /// The pair.
        pair: &'a str,
        /// What the key is for: `inbound` or `outbound`.
        direction: &'a str,
        /// The security parameters index.
        spi: u64,
        /// The cipher.
        algorithm: &'a str,
        /// The index that the direction had before.
        old_spi: u64,
        /// What brought it: `command`, which is `bellows esp rekey` or another client of the control socket; `saved`, which is
        /// one of an earlier run; or `reload`.
        by: &'a str,
    }
    /// An old key of an IPsec pair is gone: the grace after its replacement is over, and packets with it are not received
    /// any more.
    KeyRetired = "key-retired", Info, None => {
        /// The app.
        app: &'a str,
        /// The pair.
        pair: &'a str,
        /// The security parameters index.
        spi: u64,
    }
    /// A reload has added a pair to an IPsec app that goes on.
    PairAdded = "pair-added", Info, None => {
        /// The app.
        app: &'a str,
        /// The pair.
        pair: &'a str,
        /// The security parameters index of what receives.
        inbound_spi: u64,
        /// The security parameters index of what sends.
        outbound_spi: u64,
    }
    /// A reload has removed a pair from an IPsec app that goes on, with all its keys.
    PairRemoved = "pair-removed", Info, None => {
        /// The app.
        app: &'a str,
        /// The pair.
        pair: &'a str,
    }
    /// The other end of an IPsec pair with `udp` sends from another port, to which packets go from now on: a translation of
    /// addresses on the way has chosen it. At most one event in ten seconds for each pair.
    PeerMoved = "peer-moved", Info, None => {
        /// The app.
        app: &'a str,
        /// The pair.
        pair: &'a str,
        /// The port of the last event; in the first one, that of the configuration.
        old_udp_port: u64,
        /// The port now.
        udp_port: u64,
    }
    /// A station has moved between ports of a bridge more often than `max_moves` allows, and stays at one for a time:
    /// perhaps there is a loop. At most one event in ten minutes for each table of addresses; the log has a line every
    /// ten seconds.
    StationMoving = "station-moving", Warn, None => {
        /// The bridge that has noticed it.
        app: &'a str,
        /// The station's Ethernet address.
        address: &'a str,
        /// The VLAN, in a bridge with VLANs.
        vlan: Option<u64>,
        /// The port where it stays.
        port: &'a str,
        /// The port where it has appeared as well.
        other_port: &'a str,
    }
    /// A port of a bridge brings more frames of a kind than its limit for storms, and those above it are dropped. At most
    /// one event in ten minutes for each port and kind.
    Storm = "storm", Warn, None => {
        /// The bridge.
        app: &'a str,
        /// The port that brings them.
        port: &'a str,
        /// The limit, which is also the reason of the drops: `storm_broadcast`, `storm_multicast` or `storm_unknown`.
        limit: &'a str,
    }
    /// A table that strangers fill is full, and one port, interface or source has more than its share of it: what is new
    /// there is not entered, or what it has entered makes room for others. At most one event in ten minutes for each of
    /// them.
    TableFull = "table-full", Warn, None => {
        /// The app.
        app: &'a str,
        /// What is in the table, such as `addresses` or `neighbours`.
        table: &'a str,
        /// The port, the interface of a router, or the source.
        port: &'a str,
    }
    /// Another station has claimed an IP address of a router. While it goes on, there is one event in ten minutes for
    /// each address.
    DuplicateAddress = "duplicate-address", Warn, None => {
        /// The app.
        app: &'a str,
        /// The interface that has the address.
        interface: &'a str,
        /// The address.
        address: &'a str,
        /// The Ethernet address of the station.
        station: &'a str,
    }
    /// A worker has not been seen outside of an app for two seconds, or takes no breaths.
    WorkerStalled = "worker-stalled", Warn, None => {
        /// The worker, if there are several.
        worker: Option<&'a str>,
        /// The app that does not return, if it is in one.
        app: Option<&'a str>,
        /// Seconds since it was last seen.
        seconds: f64,
    }
    /// A worker that was stalled breathes again.
    WorkerRecovered = "worker-recovered", Info, None => {
        /// The worker, if there are several.
        worker: Option<&'a str>,
        /// The app that has returned, if it was in one.
        app: Option<&'a str>,
        /// Seconds for which it was stalled.
        seconds: f64,
    }
    /// Breaths took longer than `breath_limit`, or the whole process stood still. At most one event in ten seconds.
    SlowBreath = "slow-breath", Warn, None => {
        /// The app that the slow breath was in, if known.
        app: Option<&'a str>,
    }
    /// The history has a hole: events were overwritten before they were read, or lines are damaged. Only readers print
    /// this; it is in no log.
    EventsMissing = "events-missing", Warn, None => {
        /// The network.
        of: &'a str,
        /// Number of events that are missing.
        events: u64,
        /// Number of lines that cannot be read.
        damaged_lines: u64,
    }
}

impl EventInfo {
    /// The event of this name.
    pub fn named(name: &str) -> Option<&'static EventInfo> {
        ALL.iter().find(|info| info.name == name)
    }

    /// Whether the run of the process that has logged it is over. That a run has crashed is logged by the next one.
    pub fn ends_run(name: &str) -> bool {
        [Stopped::INFO.name, Aborted::INFO.name, StartFailed::INFO.name].contains(&name)
    }

    /// The description, as sentences without line breaks.
    pub fn sentences(&self) -> String {
        tidy(self.help)
    }
}

impl Event {
    /// Whether the run of the process that wrote it is over with it. This includes a crash that a reader has deduced,
    /// which has the number of the process that has ended, unlike one that the next run has written.
    pub fn ends_run(&self) -> bool {
        let is_own_crash = || {
            let last_pid = self.fields.get("last_pid").and_then(Value::as_u64);
            self.name == Crashed::INFO.name && last_pid == Some(self.pid.into())
        };
        EventInfo::ends_run(&self.name) || is_own_crash()
    }
}

impl FieldInfo {
    /// The meaning, as a sentence without line breaks.
    pub fn sentences(&self) -> String {
        tidy(self.help)
    }
}

/// The lines of a documentation comment as one.
fn tidy(help: &str) -> String {
    help.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_words_with_a_description() {
        for (index, info) in ALL.iter().enumerate() {
            assert!(info.name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-'), "{info:?}");
            assert!(ALL[..index].iter().all(|other| other.name != info.name), "{info:?}");
            assert!(info.sentences().ends_with('.') && !info.fields.is_empty(), "{info:?}");
            for field in info.fields {
                assert!(field.sentences().ends_with('.') && field.name != NAME_FIELD, "{info:?}");
            }
        }
    }

    #[test]
    fn every_condition_can_begin_and_end() {
        for info in ALL {
            let fields: Vec<&str> = info.fields.iter().map(|field| field.name).collect();
            let other = match info.effect {
                Some(Effect::Raises(name)) => Effect::Clears(name),
                Some(Effect::Clears(name)) => Effect::Raises(name),
                None => continue,
            };
            assert!(fields.contains(&"app"), "{info:?}");
            assert!(ALL.iter().any(|info| info.effect == Some(other)), "{info:?}");
        }
    }
}

//! Where which counter lies.
//!
//! A generation of counters begins with those of the engine; then come the histograms, and the cells of each app and link, where
//! the [`Directory`](crate::Directory) says. What lies where among these is listed here, once: a list gives each counter's symbol,
//! name and meaning.

use serde::{Deserialize, Serialize};

use crate::counter::Counter;

/// Counters that lie one behind the other: for each its symbol, which is its position, its name in reports, and what it counts.
macro_rules! counters {
    ($list:ident: $($symbol:ident = $name:literal, $help:literal $(, $asked:ident)?;)*) => {
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "numbers the symbols")]
        enum Position {
            $($symbol,)*
        }

        $(
            #[doc = concat!("The counter `", $name, "`.")]
            pub const $symbol: usize = Position::$symbol as usize;
        )*

        /// All of them.
        pub const $list: &[Counter] = &[$(Counter::new($name, $help)$(.$asked())?,)*];
    };
}

/// Counters of the engine itself, from cell 0 on.
pub mod engine {
    use super::Counter;

    counters! { COUNTERS:
        BREATHS = "breaths", "breaths taken";
        IDLE_BREATHS = "idle_breaths", "breaths in which no packet moved";
        NAPS = "naps", "times the engine slept";
        NAP_NANOS = "nap_nanos", "time slept, in nanoseconds";
        RELOADS = "reloads", "configurations swapped in while running";
        FORGOTTEN_DROPS = "forgotten_drops",
            "packets dropped in apps and links that reloads removed and that are not listed any more";
        STARTED = "started", "when the run began, in nanoseconds since the Unix epoch";
        UPDATED = "updated", "when the gauges were last written, in nanoseconds since the Unix epoch";
        BUFFERS = "buffers", "packet buffers in the pool";
        BUFFERS_IN_USE = "buffers_in_use", "packet buffers that hold packets";
        METERED = "metered_breaths", "breaths in which the clocks of every call were booked";
        ALIVE = "alive", "when the engine was last seen outside of apps, in nanoseconds since the Unix epoch";
        DOING = "doing", "what the engine is doing: see the module `doing`";
        SLOW_BREATHS = "slow_breaths",
            "breaths, and what was done between two of them, that took longer than `breath_limit` in [engine]";
        STANDSTILLS = "standstills",
            "times that no breath was taken for longer than that because the process or the machine stood still";
    }

    /// The name of [`DOING`], which is no number for people: a snapshot tells it in words.
    pub const DOING_NAME: &str = COUNTERS[DOING].name;
}

/// What the engine's thread is doing, as one number: the activity in the upper half, one more than the app's position in the
/// lower half, 0 between calls. It is written before and after each call, so that a reader finds the app in which an engine
/// hangs, also when the process has been stopped or killed.
pub mod doing {
    use super::Activity;

    /// It is between two calls.
    pub const NOTHING: u64 = 0;
    /// It waits until something is due.
    pub const ASLEEP: u64 = 4 << 32;

    /// A call of an app's `pull`, `push` or `tick`, by the app's position.
    pub const fn calling(app: usize) -> u64 {
        app as u64 + 1
    }

    /// Any activity in an app.
    pub fn with(activity: Activity, app: usize) -> u64 {
        calling(app) | (activity as u64) << 32
    }
}

/// For what the engine has called an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// To move packets: `pull`, `push` or `tick`.
    Call,
    /// To ask it something: `held` or `exhausted`.
    Question,
    /// To start it or its successor in a reload.
    Start,
    /// To stop it.
    Stop,
}

/// Counters of each link, from the link's cell on.
pub mod link {
    use super::Counter;

    counters! { COUNTERS:
        PACKETS = "packets", "packets sent";
        BYTES = "bytes", "bytes sent";
        DROPS = "txdrop", "a link out of the app was full";
        WAITING = "waiting", "packets that were sent and wait to be received";
        WAITING_BYTES = "waiting_bytes", "bytes that were sent and wait to be received";
        REMOVED = "removed", "packets that waited in a link when a reload removed it";
    }
}

/// What is accounted for each app, from its accounting cell on: exact numbers first, then for each entry what the instrumented
/// breaths have booked.
pub mod account {
    /// The entries of an app by their positions in all tables.
    pub const NAMES: [&str; ENTRIES] = ["pull", "push", "tick"];
    /// How many there are.
    pub const ENTRIES: usize = 3;
    /// The position of `pull`.
    pub const PULL: usize = 0;
    /// The position of `push`.
    pub const PUSH: usize = 1;
    /// The position of `tick`.
    pub const TICK: usize = 2;

    /// Calls at each entry.
    pub const CALLS: usize = 0;
    /// Naps that the app ended.
    pub const NAPS: usize = ENTRIES;
    /// Whether it has panicked and is called no more.
    pub const FAILED: usize = ENTRIES + 1;
    /// How often it has panicked.
    pub const PANICS: usize = ENTRIES + 2;

    /// Buffers that it took from the pool.
    pub const TAKEN: usize = ENTRIES + 3;
    /// Buffers that it gave back.
    pub const FREED: usize = ENTRIES + 4;
    /// Drops of packets that never had a buffer.
    pub const UNMADE: usize = ENTRIES + 5;
    /// Packets that it got from others than links and the pool.
    pub const BROUGHT_IN: usize = ENTRIES + 6;
    /// Packets that it gave to others than links and the pool.
    pub const HANDED_OFF: usize = ENTRIES + 7;
    /// Packets inside it when the gauges were written.
    pub const HELD: usize = ENTRIES + 8;
    /// Packets that were nowhere then, in two's complement.
    pub const LEAKED: usize = ENTRIES + 9;
    /// Freed packets that were in no count then, in two's complement.
    pub const UNCOUNTED: usize = ENTRIES + 10;

    /// Packets received through links of the app that reloads removed.
    pub const PAST_IN: usize = ENTRIES + 11;
    /// Bytes received through them.
    pub const PAST_IN_BYTES: usize = ENTRIES + 12;
    /// Packets sent through links of the app that reloads removed.
    pub const PAST_OUT: usize = ENTRIES + 13;
    /// Bytes sent through them.
    pub const PAST_OUT_BYTES: usize = ENTRIES + 14;
    /// Packets dropped because they were full.
    pub const PAST_TXDROP: usize = ENTRIES + 15;
    const EXACT: usize = ENTRIES + 16;

    /// What the instrumented breaths book for each call, by name: calls, packets and clocks of those that took no longer than
    /// could be expected, calls and clocks of the others. Then come the packets of calls in which events were counted.
    pub const SAMPLE_NAMES: [&str; 5] = ["calls", "packets", "clocks", "outlier_calls", "outlier_clocks"];
    /// The first of those of the others.
    pub const OUTLIERS: usize = 3;
    /// Packets of calls in which events were counted.
    pub const COUNTED: usize = SAMPLE_NAMES.len();

    /// What is booked for each event: its count, for how long it was to be counted, and for how long it was.
    const OF_AN_EVENT: usize = 3;

    /// Where the samples of an entry begin.
    pub const fn samples(entry: usize, events: usize) -> usize {
        EXACT + entry * (COUNTED + 1 + OF_AN_EVENT * events)
    }

    /// Where those of an event begin.
    pub const fn event(entry: usize, events: usize, event: usize) -> usize {
        samples(entry, events) + COUNTED + 1 + OF_AN_EVENT * event
    }

    /// Cells of an app.
    pub const fn cells(events: usize) -> usize {
        samples(ENTRIES, events)
    }
}

/// The histograms, by position.
pub mod histogram {
    /// How long breaths took in which a packet moved.
    pub const BREATH: usize = 0;
    /// How long packets lived.
    pub const LATENCY: usize = 1;
    /// Their names.
    pub const NAMES: [&str; 2] = ["breath", "latency"];
}

/// Why packets are dropped in any app; these come before the app's own reasons, from its cell of drops on.
pub mod common {
    use super::Counter;

    counters! { DROPS:
        NO_BUFFER = "no_buffer", "the pool had no buffer for a packet or a copy";
        UNLINKED = "unlinked", "the output is not linked", asked;
        APP_FAILED = "app_failed", "the app has panicked: packets inside it, and those that came since";
        REMOVED = "removed", "packets inside the app when a reload removed or replaced it", asked;
    }
}

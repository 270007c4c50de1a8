//! Where which counter lies.
//!
//! A generation of counters begins with those of the engine; then come the histograms, and the cells of each app and link, where
//! the [`Directory`](crate::Directory) says. What lies where among these is listed here, once: a list gives each counter's symbol,
//! name and meaning.

use serde::{Deserialize, Serialize};

use crate::counter::Counter;

/// Counters that lie one behind the other: for each its symbol, which is its position, its name in reports, what it counts,
/// and its unit if that is not packets.
macro_rules! counters {
    ($list:ident: $($symbol:ident = $name:literal, $help:literal $(, in $unit:literal)? $(, [$asked:ident])?;)*) => {
        positions! { from 0; $($symbol, concat!("The counter `", $name, "`.");)* }

        /// All of them.
        pub const $list: &[Counter] = &[$(Counter::new($name, $help)$(.in_unit($unit))?$(.$asked())?,)*];
    };
}

/// Positions of cells that lie one behind the other, from the first on, and how many there are.
macro_rules! positions {
    (from $first:expr; $($symbol:ident, $help:expr;)*) => {
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "numbers the symbols")]
        enum Position {
            $($symbol,)*
        }

        $(
            #[doc = $help]
            pub const $symbol: usize = $first + Position::$symbol as usize;
        )*
    };
}

/// Counters of the engine itself, from cell 0 on.
pub mod engine {
    use super::Counter;

    counters! { COUNTERS:
        BREATHS = "breaths", "breaths taken", in "breaths";
        IDLE_BREATHS = "idle_breaths", "breaths in which no packet moved", in "breaths";
        SLEEPS = "sleeps", "times the engine slept", in "times";
        SLEEP_NS = "sleep_ns", "time slept, in nanoseconds", in "nanoseconds";
        RELOADS = "reloads", "configurations swapped in while running", in "reloads";
        FORGOTTEN_DROPS = "forgotten_drops",
            "packets dropped in apps and links that reloads removed and that are not listed any more";
        STARTED = "started", "when the run began, in nanoseconds since the Unix epoch", in "nanoseconds";
        UPDATED = "updated", "when the gauges were last written, in nanoseconds since the Unix epoch", in "nanoseconds";
        BUFFERS = "buffers", "packet buffers in the pool", in "buffers";
        BUFFERS_IN_USE = "buffers_in_use", "packet buffers that hold packets", in "buffers";
        SAMPLED = "sampled_breaths", "breaths in which the clocks of every call were recorded", in "breaths";
        ALIVE = "alive", "when the engine was last seen outside of apps, in nanoseconds since the Unix epoch", in "nanoseconds";
        DOING = "doing", "what the engine is doing: see the module `doing`", in "activity and app";
        SLOW_BREATHS = "slow_breaths",
            "breaths, and what was done between two of them, that took longer than `breath_limit` in [engine]", in "breaths";
        STANDSTILLS = "standstills",
            "times that no breath was taken for longer than that because the process or the machine stood still", in "times";
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
    /// To ask it something: `held` or `is_finished`.
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
        BYTES = "bytes", "bytes sent", in "bytes";
        DROPS = "txdrop", "a link out of the app was full";
        WAITING = "waiting", "packets that were sent and wait to be received";
        WAITING_BYTES = "waiting_bytes", "bytes that were sent and wait to be received", in "bytes";
        REMOVED = "removed", "packets that waited in a link when a reload removed it";
    }
}

/// What is accounted for each app, from its accounting cell on: exact numbers first, then for each entry what the sampled
/// breaths have recorded.
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

    positions! { from ENTRIES;
        SLEEPS, "Sleeps that the app ended.";
        FAILED, "Whether it has panicked and is called no more.";
        PANICS, "How often it has panicked.";
        TAKEN, "Buffers that it took from the pool.";
        FREED, "Buffers that it gave back.";
        UNMADE, "Drops of packets that never had a buffer.";
        BROUGHT_IN, "Packets that it got from others than links and the pool.";
        HANDED_OFF, "Packets that it gave to others than links and the pool.";
        HELD, "Packets inside it when the gauges were written.";
        LEAKED, "Packets that were nowhere then, in two's complement.";
        UNCOUNTED, "Freed packets that were in no count then, in two's complement.";
        PAST_IN, "Packets received through links of the app that reloads removed.";
        PAST_IN_BYTES, "Bytes received through them.";
        PAST_OUT, "Packets sent through links of the app that reloads removed.";
        PAST_OUT_BYTES, "Bytes sent through them.";
        PAST_TXDROP, "Packets dropped because they were full.";
        EXACT, "The first cell behind the exact numbers.";
    }

    /// What the sampled breaths record for each call, by name: calls, packets and clocks of those that took no longer than
    /// could be expected, calls and clocks of the others. Then come the packets of calls in which events were counted.
    pub const SAMPLE_NAMES: [&str; 5] = ["calls", "packets", "clocks", "outlier_calls", "outlier_clocks"];
    /// The first of those of the others.
    pub const OUTLIERS: usize = 3;
    /// Packets of calls in which events were counted.
    pub const COUNTED: usize = SAMPLE_NAMES.len();

    /// What is recorded for each event: its count, for how long it was to be counted, and for how long it was.
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
        UNLINKED = "unlinked", "the output is not linked", [asked];
        APP_FAILED = "app_failed", "the app has panicked: packets inside it, and those that came since";
        REMOVED = "removed", "packets inside the app when a reload removed or replaced it", [asked];
    }
}

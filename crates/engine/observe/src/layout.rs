//! The positions of all counters.
//!
//! A generation of counters begins with those of the first worker, which are also those of the engine. The histograms,
//! the cells of each app and link, and those of further workers follow, at the positions in the
//! [`Directory`](crate::Directory). The layout within these groups is listed here, once: a list gives each counter's
//! symbol, name and description.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::counter::Counter;

/// Consecutive counters: for each its symbol, which is its position, its name in reports, its description, its unit if
/// that is not packets, and whether it is `asked` or a `gauge`.
macro_rules! counters {
    ($list:ident: $($symbol:ident = $name:literal, $help:literal $(, in $unit:literal)? $(, [$nature:ident])?;)*) => {
        positions! { from 0; $($symbol, concat!("The counter `", $name, "`.");)* }

        /// All of them.
        pub const $list: &[Counter] = &[$(Counter::new($name, $help)$(.in_unit($unit))?$(.$nature())?,)*];
    };
}

/// Positions of consecutive cells, and their number.
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

/// Counters of a worker, from the worker's cell on: cell 0 for the first one.
pub mod engine {
    use super::Counter;

    /// Whose a counter of the engine is, and who counts it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Scope {
        /// Every worker counts for itself. The sum is that of the engine.
        Worker,
        /// A time that every worker writes for itself.
        WorkerTime,
        /// The process: the first worker counts.
        Process,
        /// The packet pool of the process: any worker may write. The last one written counts.
        Pool,
        /// A worker's activity, which is not a number for people: a snapshot shows it in words.
        Activity,
    }

    /// Lists the counters as `counters!` does, each with its scope.
    macro_rules! scoped {
        ($(
            $symbol:ident = $name:literal, $help:literal $(, in $unit:literal)? $(, [$nature:ident])?, of $scope:ident;
        )*) => {
            counters! { COUNTERS: $($symbol = $name, $help $(, in $unit)? $(, [$nature])?;)* }

            /// The scope of each.
            pub const SCOPES: [Scope; COUNTERS.len()] = [$(Scope::$scope),*];
        };
    }

    scoped! {
        BREATHS = "breaths", "breaths taken", in "breaths", of Worker;
        IDLE_BREATHS = "idle_breaths", "breaths in which no packet moved", in "breaths", of Worker;
        SLEEPS = "sleeps", "times the engine slept", in "times", of Worker;
        SLEEP_NS = "sleep_ns", "time slept, in nanoseconds", in "nanoseconds", of Worker;
        RELOADS = "reloads", "configurations swapped in while running", in "reloads", of Process;
        FORGOTTEN_DROPS = "forgotten_drops",
            "packets dropped in apps and links that reloads removed and that are not listed any more", of Process;
        STARTED = "started", "when the run began, in nanoseconds since the Unix epoch",
            in "nanoseconds since 1970", [gauge], of Process;
        UPDATED = "updated", "when the gauges were last written, in nanoseconds since the Unix epoch",
            in "nanoseconds since 1970", [gauge], of WorkerTime;
        BUFFERS = "buffers", "packet buffers in the pool, ordinary and large", in "buffers", [gauge], of Pool;
        BUFFERS_IN_USE = "buffers_in_use", "packet buffers that hold packets", in "buffers", [gauge], of Pool;
        BUFFERS_LENT = "buffers_lent", "packet buffers lent to the kernel, for frames that come and frames on their way",
            in "buffers", [gauge], of Pool;
        SAMPLED = "sampled_breaths", "breaths in which the clocks of every call were recorded", in "breaths", of Worker;
        ALIVE = "alive", "when the engine was last seen outside of apps, in nanoseconds since the Unix epoch",
            in "nanoseconds since 1970", [gauge], of WorkerTime;
        DOING = "doing", "the engine's current activity: see the module `doing`", in "activity and app",
            [gauge], of Activity;
        SLOW_BREATHS = "slow_breaths",
            "breaths, and work between two of them, that took longer than `breath_limit` in [engine]",
            in "breaths", of Worker;
        STANDSTILLS = "standstills",
            "times that no breath was taken for longer than that because the process or the machine stood still",
            in "times", of Worker;
        FROM_OTHER_NODES = "from_other_nodes",
            "packets that have come from workers on other memory nodes, as far as the workers' nodes are known",
            in "packets", of Worker;
        LARGE_BUFFERS = "large_buffers", "large packet buffers in the pool",
            in "buffers", [gauge], of Pool;
        LARGE_BUFFERS_IN_USE = "large_buffers_in_use",
            "large packet buffers that hold packets or are lent to the kernel", in "buffers", [gauge], of Pool;
    }

    /// The positions of the counters in one of these scopes.
    pub fn in_scopes(scopes: &[Scope]) -> impl Iterator<Item = usize> {
        (0..COUNTERS.len()).filter(|&position| scopes.contains(&SCOPES[position]))
    }

    /// The name of [`DOING`].
    pub const DOING_NAME: &str = COUNTERS[DOING].name;
}

/// The engine thread's current activity as one number: the activity in the upper half, one more than the app's position
/// in the lower half, 0 between calls. It is written before and after each call, so that a reader finds the app in
/// which an engine hangs, even if the process has been stopped or killed.
pub mod doing {
    use super::Activity;

    /// The engine is between two calls.
    pub const NOTHING: u64 = 0;
    /// The engine sleeps.
    pub const ASLEEP: u64 = 4 << 32;
    /// Stands for the position of an app that has none, because a reload is about to add it.
    pub const NEW_APP: usize = u32::MAX as usize - 1;

    /// A call of an app's `pull`, `push` or `tick`, by the app's position.
    pub const fn calling(app: usize) -> u64 {
        app as u64 + 1
    }

    /// Any activity in an app.
    pub fn with(activity: Activity, app: usize) -> u64 {
        calling(app) | (activity as u64) << 32
    }
}

/// The reasons for which the engine calls an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// To move packets: `pull`, `push` or `tick`.
    Call,
    /// To query it: `held` or `is_finished`.
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
        WAITING = "waiting", "packets that were sent and wait to be received", [gauge];
        WAITING_BYTES = "waiting_bytes", "bytes that were sent and wait to be received", in "bytes", [gauge];
        REMOVED = "removed", "packets that waited in a link when a reload removed it";
    }
}

/// The account of each app, from its accounting cell on: exact numbers first, then the record of the sampled breaths
/// for each entry.
pub mod account {
    use super::Counter;

    /// The entries of an app by their positions in all tables.
    pub const NAMES: [&str; ENTRIES] = ["pull", "push", "tick"];
    /// The number of entries.
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
        FAILED, "Whether it has panicked and is no longer called.";
        PANICS, "How often it has panicked.";
        TAKEN, "Buffers that it took from the pool.";
        FREED, "Buffers that it gave back.";
        UNBUFFERED_DROPS, "Drops of packets that never had a buffer.";
        BROUGHT_IN, "Packets that came in other than through links and the pool.";
        HANDED_OFF, "Packets that went out other than through links and the pool.";
        HELD, "Packets inside it when the gauges were written.";
        LEAKED, "Leaked packets at that time, in two's complement.";
        UNCOUNTED, "Freed packets without a count at that time, in two's complement.";
        PAST_IN, "Packets received through links of the app that reloads removed.";
        PAST_IN_BYTES, "Bytes received through them.";
        PAST_OUT, "Packets sent through links of the app that reloads removed.";
        PAST_OUT_BYTES, "Bytes sent through them.";
        PAST_TXDROP, "Packets dropped because they were full.";
        EXACT, "The first cell behind the exact numbers.";
    }

    /// The record of the sampled breaths for each call: calls, packets and clocks of calls other than outliers, then
    /// calls and clocks of the outliers. Packets of calls in which events were counted follow.
    pub const SAMPLES: [Counter; 5] = [
        Counter::new("calls", "calls that were timed, without outliers").in_unit("calls"),
        Counter::new(
            "packets",
            "packets taken (push) or sent (pull, tick) in the calls that were timed, without outliers",
        ),
        Counter::new("clocks", "clocks of the calls that were timed, without outliers").in_unit("clocks"),
        Counter::new("outlier_calls", "calls that were timed and took much longer than usual").in_unit("calls"),
        Counter::new("outlier_clocks", "clocks of the calls that took much longer than usual").in_unit("clocks"),
    ];
    /// The first cell of the outliers.
    pub const OUTLIERS: usize = 3;
    /// Packets of calls in which events were counted.
    pub const COUNTED: usize = SAMPLES.len();

    /// The record of each event: its count, the time for which it was to be counted, and the time for which it was
    /// counted.
    const CELLS_PER_EVENT: usize = 3;

    /// The first cell of an entry's samples.
    pub const fn samples(entry: usize, events: usize) -> usize {
        EXACT + entry * (COUNTED + 1 + CELLS_PER_EVENT * events)
    }

    /// The first cell of an event.
    pub const fn event(entry: usize, events: usize, event: usize) -> usize {
        samples(entry, events) + COUNTED + 1 + CELLS_PER_EVENT * event
    }

    /// Cells of an app.
    pub const fn cells(events: usize) -> usize {
        samples(ENTRIES, events)
    }
}

/// The histograms, by position.
pub mod histogram {
    /// The durations of breaths in which a packet moved.
    pub const BREATH: usize = 0;
    /// The lifetimes of packets.
    pub const LATENCY: usize = 1;
    /// Their names.
    pub const NAMES: [&str; 2] = ["breath", "latency"];
}

/// Drop reasons of all apps. They precede the app's own reasons, from its cell of drops on.
pub mod common {
    use super::Counter;

    counters! { DROPS:
        NO_BUFFER = "no_buffer", "the pool had no buffer for a packet or a copy";
        UNLINKED = "unlinked", "the output is not linked", [asked];
        APP_FAILED = "app_failed", "the app has panicked: packets inside it, and those received since";
        REMOVED = "removed", "packets inside the app when a reload removed or replaced it", [asked];
    }
}

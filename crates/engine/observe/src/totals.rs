//! The counts of apps and links, by their positions in a directory: what a [`Snapshot`](crate::Snapshot) has, without
//! names.

use std::collections::HashMap;

use crate::counter::Counter;
use crate::layout::engine::Scope;
use crate::layout::{account, engine, link};
use crate::slab::{AppEntry, CounterCells, CrossingEntry, Directory, LinkEntry, Liveness, WorkerEntry, sum};

/// A figure of a type: how it is declared, and where it is.
pub struct Figure<T> {
    /// Its name, description, unit and nature.
    pub counter: Counter,
    /// Its value.
    pub value: fn(&T) -> i128,
}

/// Declares the figures of a type: its fields, each with its description, its unit if that is not packets, and whether
/// it is a `gauge`. Before them, fields that are not among the figures.
macro_rules! figures {
    (
        $(#[$meta:meta])* $name:ident, with $($hidden:ident = $hidden_help:literal),+;
        $($field:ident: $type:ty = $help:literal $(, in $unit:literal)? $(, [$nature:ident])?;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $(#[doc = $help] pub $field: $type,)*
            $(#[doc = $hidden_help] pub $hidden: u64,)*
        }

        impl $name {
            /// Its figures, with their descriptions.
            pub const FIGURES: &[Figure<$name>] = &[$(Figure {
                counter: Counter::new(stringify!($field), $help)$(.in_unit($unit))?$(.$nature())?,
                value: |totals| totals.$field.into(),
            },)*];
        }
    };
}

figures! {
    /// The counts of a link.
    LinkTotals, with removed = "packets that waited in the link when a reload removed it";
    packets: u64 = "packets sent into the link";
    bytes: u64 = "bytes sent into the link", in "bytes";
    txdrop: u64 = "packets dropped because the link was full";
    waiting: u64 = "packets sent and not yet received", [gauge];
    waiting_bytes: u64 = "bytes sent and not yet received", in "bytes", [gauge];
}

figures! {
    /// The counts of an app: its traffic is the sum over its links.
    AppTotals, with
        txdrop = "packets dropped at full links of the app",
        dropped = "packets dropped for all reasons, those at full links included";
    in_packets: u64 = "packets received on all inputs";
    in_bytes: u64 = "bytes received on all inputs", in "bytes";
    out_packets: u64 = "packets sent on all outputs";
    out_bytes: u64 = "bytes sent on all outputs", in "bytes";
    made: u64 = "packets that the app made or brought in, including those dropped before they had a buffer";
    ended: u64 = "packets that ended in the app: it consumed them";
    held: u64 = "packets inside the app", [gauge];
    leaked: i64 =
        "packets that came in or were made and are not accounted for: not 0 in an app that has a bug", [gauge];
    uncounted: i64 =
        "packets freed without being counted, negative if more were counted: not 0 in an app that has a bug", [gauge];
    lost: u64 = "packets dropped for reasons that nobody asked for";
    panics: u64 = "panics of the app", in "times";
    failed: bool = "1 if the app has panicked and is no longer called", in "1 or 0", [gauge];
    sleeps: u64 = "sleeps of the engine that the app's descriptor ended", in "times";
}

impl LinkTotals {
    /// Packets received: those sent less those that wait.
    pub fn received(&self) -> u64 {
        self.packets.saturating_sub(self.waiting).saturating_sub(self.removed)
    }

    /// Bytes received: those sent less those that wait.
    pub fn received_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.waiting_bytes)
    }

    pub(crate) fn read(cells: &impl CounterCells, entry: &LinkEntry) -> LinkTotals {
        let count = |which: usize| cells.get(entry.cell + which);
        LinkTotals {
            packets: count(link::PACKETS),
            bytes: count(link::BYTES),
            txdrop: count(link::DROPS),
            waiting: count(link::WAITING),
            waiting_bytes: count(link::WAITING_BYTES),
            removed: count(link::REMOVED),
        }
    }

    /// Corrects what waits in a link between workers: all that was sent and has not been received.
    fn cross(&mut self, cells: &impl CounterCells, entry: &CrossingEntry) {
        let arrived = |cell: usize| cells.get(entry.arrived + cell);
        let received = arrived(link::PACKETS).wrapping_sub(arrived(link::WAITING));
        let received_bytes = arrived(link::BYTES).wrapping_sub(arrived(link::WAITING_BYTES));
        // Read after what was received, the number sent is at least as large, except in a damaged file.
        let sent = |cell: usize| cells.get(cells.directory().links[entry.link].cell + cell);
        self.packets = sent(link::PACKETS);
        self.bytes = sent(link::BYTES);
        self.waiting = self.packets.saturating_sub(received);
        self.waiting_bytes = self.bytes.saturating_sub(received_bytes);
    }
}

/// The traffic through all links of an app.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AppTraffic {
    pub(crate) in_packets: u64,
    pub(crate) in_bytes: u64,
    pub(crate) out_packets: u64,
    pub(crate) out_bytes: u64,
    pub(crate) dropped: u64,
}

impl AppTraffic {
    /// The traffic of each app that a link names. The counters of another process may have any value, so no sum may
    /// overflow.
    pub(crate) fn by_app<'a>(
        links: impl ExactSizeIterator<Item = (&'a str, &'a str, LinkTotals)>,
    ) -> HashMap<&'a str, AppTraffic> {
        let mut apps: HashMap<&str, AppTraffic> = HashMap::with_capacity(links.len());
        let add = |to: &mut u64, count: u64| *to = to.saturating_add(count);
        for (from, to, link) in links {
            let receiver = apps.entry(app_of(to)).or_default();
            add(&mut receiver.in_packets, link.received());
            add(&mut receiver.in_bytes, link.received_bytes());
            let sender = apps.entry(app_of(from)).or_default();
            add(&mut sender.out_packets, link.packets);
            add(&mut sender.out_bytes, link.bytes);
            add(&mut sender.dropped, link.txdrop);
        }
        apps
    }
}

/// The app of a link's end: names may contain dots, and the port follows the last one.
fn app_of(end: &str) -> &str {
    end.rsplit_once('.').map_or(end, |(app, _)| app)
}

/// A count of an app's links with that of links that reloads removed. If an app has taken over a link from another, its
/// past traffic is negative. The link's own counts are at least as large, except in a damaged file.
fn past(cells: &impl CounterCells, entry: &AppEntry, passed: u64, cell: usize) -> u64 {
    passed.saturating_add_signed(cells.get(entry.account + cell).cast_signed())
}

impl AppTotals {
    /// The totals of an app with this traffic. All counts are as another process has written them.
    pub(crate) fn read(cells: &impl CounterCells, entry: &AppEntry, passed: AppTraffic) -> AppTotals {
        let account = |cell: usize| cells.get(entry.account + cell);
        let past = |passed: u64, cell: usize| past(cells, entry, passed, cell);
        let txdrop = past(passed.dropped, account::PAST_TXDROP);
        let (mut dropped, mut lost) = (txdrop, txdrop);
        for (index, name) in entry.drops.iter().enumerate() {
            let count = cells.get(entry.cell + index);
            dropped = dropped.saturating_add(count);
            if count > 0 && entry.losses.contains_key(name) {
                lost = lost.saturating_add(count);
            }
        }
        let unbuffered = account(account::UNBUFFERED_DROPS);
        let consumed = account(account::FREED).saturating_sub(dropped.saturating_sub(unbuffered));
        // A buffer that an app without inputs gives back has never become a packet.
        let unused = if entry.brings_in { consumed } else { 0 };
        let made = sum([account(account::TAKEN), account(account::BROUGHT_IN), unbuffered].into_iter());
        let ended = if entry.ends && !entry.brings_in { consumed } else { 0 };
        AppTotals {
            in_packets: past(passed.in_packets, account::PAST_IN),
            in_bytes: past(passed.in_bytes, account::PAST_IN_BYTES),
            out_packets: past(passed.out_packets, account::PAST_OUT),
            out_bytes: past(passed.out_bytes, account::PAST_OUT_BYTES),
            made: made.saturating_sub(unused),
            ended: sum([ended, account(account::HANDED_OFF)].into_iter()),
            held: account(account::HELD),
            leaked: account(account::LEAKED).cast_signed(),
            uncounted: account(account::UNCOUNTED).cast_signed(),
            lost,
            txdrop,
            dropped,
            panics: account(account::PANICS),
            failed: account(account::FAILED) > 0,
            sleeps: account(account::SLEEPS),
        }
    }
}

/// The totals of all apps and links, by position.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The apps, and behind them the two sides of each crossing: the order of [`Directory::app`].
    pub apps: Vec<AppTotals>,
    /// The links.
    pub links: Vec<LinkTotals>,
}

impl Totals {
    /// The totals of these counters.
    pub fn of(cells: &impl CounterCells) -> Totals {
        let Directory { apps, crossings, links: link_entries, .. } = cells.directory();
        let links = Totals::links(cells);
        let ends = link_entries.iter().zip(&links).map(|(entry, totals)| (&*entry.from, &*entry.to, *totals));
        let passed = AppTraffic::by_app(ends);
        let of_apps = apps.iter().map(|entry| (entry, passed.get(&*entry.name).copied().unwrap_or_default()));
        let of_crossings = crossings.iter().flat_map(|entry| crossing_traffic(cells, entry));
        let apps = of_apps.chain(of_crossings).map(|(entry, passed)| AppTotals::read(cells, entry, passed)).collect();
        Totals { apps, links }
    }

    /// The totals of an app that reloads have removed.
    pub fn of_gone(cells: &impl CounterCells, entry: &AppEntry) -> AppTotals {
        AppTotals::read(cells, entry, AppTraffic::default())
    }

    /// The totals of the links.
    pub(crate) fn links(cells: &impl CounterCells) -> Vec<LinkTotals> {
        let Directory { links, crossings, .. } = cells.directory();
        let mut links: Vec<LinkTotals> = links.iter().map(|entry| LinkTotals::read(cells, entry)).collect();
        crossings.iter().for_each(|entry| links[entry.link].cross(cells, entry));
        links
    }
}

/// A counter of the engine: the sum over its workers where each worker counts, else that of the process.
pub fn engine_count(cells: &impl CounterCells, which: usize) -> u64 {
    let workers = &cells.directory().workers;
    match engine::SCOPES.get(which) {
        Some(Scope::WorkerTime) if which == engine::ALIVE => Liveness::of(cells).alive,
        Some(Scope::Worker) => sum(workers.iter().map(|worker| cells.get(worker.cell + which))),
        Some(Scope::WorkerTime | Scope::Pool) => {
            let updated = |worker: &&WorkerEntry| cells.get(worker.cell + engine::UPDATED);
            cells.get(workers.iter().max_by_key(updated).map_or(0, |worker| worker.cell) + which)
        }
        Some(Scope::Process | Scope::Activity) | None => cells.get(which),
    }
}

/// The events that were counted in the sampled calls of an app at an entry, such as instructions, in the directory's
/// order: extrapolated to all sampled calls, and unknown without a count.
pub fn sampled_events(cells: &impl CounterCells, app: &AppEntry, entry: usize) -> impl Iterator<Item = Option<u64>> {
    let events = cells.directory().events.len();
    let first = app.account + account::samples(entry, events);
    let [packets, counted] = [1, account::COUNTED].map(|offset| cells.get(first + offset));
    (0..events).map(move |event| {
        let cell = app.account + account::event(entry, events, event);
        let [count, enabled, running] = [0, 1, 2].map(|offset| cells.get(cell + offset));
        // Events are counted in some of the calls, and perhaps for a part of the time. A difference may be negative.
        let count = count.cast_signed().max(0).cast_unsigned();
        scaled(count, enabled, running).and_then(|count| scaled(count, packets, counted))
    })
}

/// A count over a part, extrapolated to the whole; unknown if the part is empty.
fn scaled(count: u64, whole: u64, part: u64) -> Option<u64> {
    let scaled = (u128::from(count) * u128::from(whole)).checked_div(u128::from(part))?;
    Some(scaled.try_into().unwrap_or(u64::MAX))
}

/// The traffic of the two sides of a link between workers.
pub(crate) fn crossing_traffic<'a>(
    cells: &impl CounterCells,
    entry: &'a CrossingEntry,
) -> [(&'a AppEntry, AppTraffic); 2] {
    let [leaving, arriving] = &entry.sides;
    let left = AppTraffic { in_packets: cells.get(leaving.account + account::HANDED_OFF), ..AppTraffic::default() };
    let (packets, bytes) = (cells.get(entry.arrived + link::PACKETS), cells.get(entry.arrived + link::BYTES));
    let arrived = AppTraffic { out_packets: packets, out_bytes: bytes, ..AppTraffic::default() };
    [(leaving, left), (arriving, arrived)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apps_traffic_is_the_sum_over_its_links() {
        let link =
            |packets, waiting| LinkTotals { packets, waiting, bytes: 10 * packets, txdrop: 1, ..LinkTotals::default() };
        let links = [
            ("a.x", "b.c.input", link(7, 2)),
            ("a.y", "b.c.other", link(5, 0)),
            ("b.c.output", "a.z", link(u64::MAX / 10, 0)),
        ];
        let passed = AppTraffic::by_app(links.into_iter());
        let (a, b) = (passed["a"], passed["b.c"]);
        assert_eq!((a.out_packets, a.out_bytes, a.dropped), (12, 120, 2));
        assert_eq!((b.in_packets, b.in_bytes), (10, 120));
        assert_eq!((b.out_packets, b.dropped, a.in_packets), (u64::MAX / 10, 1, u64::MAX / 10));
        let most = LinkTotals { packets: u64::MAX, ..LinkTotals::default() };
        let passed = AppTraffic::by_app([("a.x", "b.c", most), ("a.y", "b.d", most)].into_iter());
        assert_eq!(passed["a"].out_packets, u64::MAX, "a damaged file's counters do not wrap");
    }

    #[test]
    fn figures_are_declared_with_their_values() {
        let app = AppTotals { in_packets: 7, leaked: -2, failed: true, ..AppTotals::default() };
        let value = |name: &str| {
            AppTotals::FIGURES.iter().find(|figure| figure.counter.name == name).map(|figure| (figure.value)(&app))
        };
        assert_eq!(["in_packets", "leaked", "failed", "none"].map(value), [Some(7), Some(-2), Some(1), None]);
        let bytes = LinkTotals::FIGURES.iter().find(|figure| figure.counter.name == "waiting_bytes").unwrap();
        assert!(bytes.counter.gauge && bytes.counter.unit == "bytes");
    }
}

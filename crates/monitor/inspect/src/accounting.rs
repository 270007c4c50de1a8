//! The cost of each app of a network, from the growth of its counters between two samples.
//!
//! Calls are exact, and packets nearly always. Clocks, and everything else that takes time to read, come from the
//! sampled breaths alone, which stand for the others. The counters may be those of a crashed process, so they may have
//! any value.

use std::collections::BTreeMap;

use bellows_observe::{AppCounts, Snapshot};
use schemars::JsonSchema;
use serde::Serialize;

use crate::networks::{Change, Sample};

/// The entries through which the engine calls an app.
const ENTRIES: [&str; 3] = ["pull", "push", "tick"];

/// The minimum number of sampled calls for which clocks are shown.
pub const MIN_SAMPLED_CALLS: u64 = 16;

/// The record of the sampled breaths for some calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Sampled calls")]
pub struct Sampled {
    /// Calls.
    pub calls: u64,
    /// Packets taken or sent in them.
    ///
    /// Packets that these calls took from inputs or, for pulls and ticks, sent.
    pub packets: u64,
    /// Their clocks.
    pub clocks: u64,
    /// Calls that took far longer than usual, which the other keys exclude.
    pub outlier_calls: u64,
    /// The clocks of these.
    pub outlier_clocks: u64,
    /// Counted events.
    ///
    /// Event counts of the processor or the system for these calls.
    pub events: BTreeMap<String, u64>,
}

fn ratio(count: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| count as f64 / of as f64)
}

impl Sampled {
    /// The growth from one account to a later one of the same app.
    fn of(before: &AppCounts, after: &AppCounts, entry: &str) -> Sampled {
        let mut sampled = Sampled::default();
        for (name, value) in &after.account {
            let Some(what) = name.strip_prefix(entry).and_then(|name| name.strip_prefix('_')) else { continue };
            let grown = grown(&before.account, name, *value);
            match what {
                "calls" => sampled.calls = grown,
                "packets" => sampled.packets = grown,
                "clocks" => sampled.clocks = grown,
                "outlier_calls" => sampled.outlier_calls = grown,
                "outlier_clocks" => sampled.outlier_clocks = grown,
                event => drop(sampled.events.insert(event.to_owned(), grown)),
            }
        }
        sampled
    }

    fn is_enough(&self) -> bool {
        self.calls >= MIN_SAMPLED_CALLS
    }

    /// Clocks for each packet; `None` if there were too few calls, or no packets.
    pub fn clocks_per_packet(&self) -> Option<f64> {
        ratio(self.clocks, self.packets).filter(|_| self.is_enough())
    }

    /// Clocks for each call; `None` if there were too few.
    pub fn clocks_per_call(&self) -> Option<f64> {
        ratio(self.clocks, self.calls).filter(|_| self.is_enough())
    }

    /// Packets for each call; `None` if there were too few.
    pub fn packets_per_call(&self) -> Option<f64> {
        ratio(self.packets, self.calls).filter(|_| self.is_enough())
    }

    /// Occurrences of an event for each packet.
    pub fn per_packet(&self, event: &str) -> Option<f64> {
        ratio(*self.events.get(event)?, self.packets).filter(|_| self.is_enough())
    }

    /// Instructions for each cycle of the processor.
    pub fn instructions_per_cycle(&self) -> Option<f64> {
        ratio(*self.events.get("instructions")?, *self.events.get("cycles")?).filter(|_| self.is_enough())
    }
}

/// The calls of one app at one entry.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
pub struct CostRow {
    /// The app.
    pub app: String,
    /// Its type.
    pub kind: String,
    /// Its worker.
    pub worker: String,
    /// Its state, as in [App](#app).
    ///
    /// How it is called: `polling`, `slots` or `active`; `failed` if it has panicked.
    pub state: String,
    /// The entry: `pull`, `push` or `tick`.
    #[schemars(extend("enum" = ["pull", "push", "tick"]))]
    pub entry: &'static str,
    /// Number of calls; exact.
    pub calls: u64,
    /// Packets taken (`push`) or sent (`pull`, `tick`); null if unknown.
    pub packets: Option<u64>,
    /// Whether `packets` is estimated from samples, because the app sends at several entries; otherwise it is exact.
    pub packets_estimated: bool,
    /// Sleeps that ended because of the app's descriptor, in the first of its rows.
    pub sleeps: u64,
    /// The calls' share of all clocks spent in apps, from 0 to 1; null without samples.
    pub share: Option<f64>,
    /// The samples.
    pub sampled: Sampled,
    /// What the stages cost of which an app's pushes consist, if it does the work of several apps.
    pub stages: Vec<StageCost>,
}

/// A stage of an app's calls.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Cost of a stage")]
pub struct StageCost {
    /// The stage.
    pub stage: String,
    /// Clocks for each packet of the calls that were recorded.
    pub clocks_per_packet: f64,
}

/// The counter of packets whose stages were timed, and what the names of the stages' counters end in.
const RECORDED: &str = "recorded";
const STAGE_CLOCKS: &str = "_clocks";

/// The stages of an app that counts their clocks.
fn stages(before: &AppCounts, after: &AppCounts) -> Vec<StageCost> {
    let growth = |name: &str, after: u64| grown(&before.counters, name, after);
    let packets = after.counters.get(RECORDED).map_or(0, |&packets| growth(RECORDED, packets));
    let stages = after.counters.iter().filter_map(|(name, &clocks)| {
        let clocks_per_packet = ratio(growth(name, clocks), packets)?;
        Some(StageCost { stage: name.strip_suffix(STAGE_CLOCKS)?.to_owned(), clocks_per_packet })
    });
    stages.collect()
}

impl CostRow {
    /// The clocks of all these calls, estimated from the samples.
    pub fn clocks(&self) -> f64 {
        // Calls are written a little later than samples.
        ratio(self.sampled.clocks, self.sampled.calls).unwrap_or(0.0) * self.calls.max(self.sampled.calls) as f64
    }

    /// Packets for each call.
    pub fn packets_per_call(&self) -> Option<f64> {
        ratio(self.packets?, self.calls)
    }

    /// Whether it was called, other than by the first tick.
    pub fn is_used(&self) -> bool {
        is_used(self.entry, self.calls)
    }
}

/// Whether there were calls besides the first tick, which every app gets when a run begins.
fn is_used(entry: &str, calls: u64) -> bool {
    calls > u64::from(entry == "tick")
}

/// The growth of a counter.
fn grown(before: &BTreeMap<String, u64>, name: &str, after: u64) -> u64 {
    after.saturating_sub(before.get(name).copied().unwrap_or(0))
}

/// The cost of all apps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accounts {
    /// Three rows for each app, one for each entry, in the network's order; then those of the sides of each link between
    /// workers.
    pub rows: Vec<CostRow>,
    /// Clocks of all calls, estimated from the samples.
    pub clocks: f64,
}

impl Accounts {
    /// From the change between two samples.
    pub fn of(change: &Change) -> Accounts {
        let nothing = AppCounts::default();
        let mut rows: Vec<CostRow> = change
            .apps()
            .chain(change.crossings())
            .flat_map(|(before, after)| rows(before.unwrap_or(&nothing), after))
            .collect();
        // The first tick, which every app gets when a run begins, is not part of the app's cost.
        let clocks: f64 = rows.iter().filter(|row| row.is_used()).map(CostRow::clocks).sum();
        let samples = rows.iter().map(|row| row.sampled.calls).fold(0, u64::saturating_add);
        let are_enough = samples >= MIN_SAMPLED_CALLS && clocks > 0.0;
        for row in rows.iter_mut().filter(|row| are_enough && row.is_used() && row.sampled.calls > 0) {
            row.share = Some(row.clocks() / clocks);
        }
        Accounts { rows, clocks }
    }

    /// From the start of a run.
    pub fn of_run(counters: &Snapshot) -> Accounts {
        let now = Sample { counters: counters.clone(), at: counters.engine("updated") };
        Accounts::of(&Change::between(now.beginning(), now))
    }

    /// The cost of an app over all its entries.
    pub fn app(&self, name: &str) -> Cost {
        let (ticks, others): (Vec<&CostRow>, Vec<&CostRow>) =
            self.rows.iter().filter(|row| row.app == name).partition(|row| row.entry == "tick");
        let sum = |rows: &[&CostRow], of: fn(&Sampled) -> u64| {
            rows.iter().map(|row| of(&row.sampled)).fold(0, u64::saturating_add)
        };
        // Packets that a tick sends were taken by an earlier push, or would otherwise have been sent by a pull.
        let movers = if sum(&others, |sampled| sampled.packets) > 0 { &others } else { &ticks };
        let [calls, packets, clocks]: [fn(&Sampled) -> u64; 3] =
            [|sampled| sampled.calls, |sampled| sampled.packets, |sampled| sampled.clocks];
        let moved = Sampled { calls: sum(movers, calls), packets: sum(movers, packets), ..Sampled::default() };
        let all = sum(&ticks, clocks).saturating_add(sum(&others, clocks));
        Cost {
            share: ticks.iter().chain(&others).filter_map(|row| row.share).reduce(|one, other| one + other),
            clocks_per_packet: Sampled { clocks: all, ..moved.clone() }.clocks_per_packet(),
            packets_per_call: moved.packets_per_call(),
        }
    }
}

/// The cost of an app over all its entries.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Its share of all clocks spent in apps, from 0 to 1.
    pub share: Option<f64>,
    /// Clocks for each packet that it took from a link or brought in.
    pub clocks_per_packet: Option<f64>,
    /// The number of such packets for each call that takes or brings in packets.
    pub packets_per_call: Option<f64>,
}

/// The rows of an app, one for each entry.
fn rows(before: &AppCounts, after: &AppCounts) -> Vec<CostRow> {
    let calls = ENTRIES.map(|entry| grown(&before.calls, entry, after.calls.get(entry).copied().unwrap_or(0)));
    let sampled = ENTRIES.map(|entry| Sampled::of(before, after, entry));
    let growth = |of: fn(&AppCounts) -> u64| of(after).saturating_sub(of(before));
    let moved = Moved {
        taken: growth(|app| app.in_packets),
        sent: growth(|app| app.out_packets),
        calls,
        estimates: [0, 1, 2]
            .map(|entry| ratio(sampled[entry].packets, sampled[entry].calls).map(|each| each * calls[entry] as f64)),
    };
    let mut sleeps = growth(|app| app.sleeps);
    let row = |(entry, sampled): (usize, Sampled)| CostRow {
        app: after.name.clone(),
        kind: after.kind.clone(),
        worker: after.worker.clone(),
        state: after.state.clone(),
        entry: ENTRIES[entry],
        calls: calls[entry],
        packets: moved.packets(entry),
        packets_estimated: !moved.are_exact(entry),
        sleeps: if calls[entry] > 0 { std::mem::take(&mut sleeps) } else { 0 },
        share: None,
        sampled,
        stages: if entry == PUSH { stages(before, after) } else { Vec::new() },
    };
    sampled.into_iter().enumerate().map(row).collect()
}

/// The position of the push among the entries.
const PUSH: usize = 1;

/// The known packet counts of an app: exact totals of packets taken from links and sent, and the samples for each
/// entry.
struct Moved {
    taken: u64,
    sent: u64,
    calls: [u64; 3],
    estimates: [Option<f64>; 3],
}

impl Moved {
    /// Whether the packets of an entry are known exactly: those that pushes took, and all packets sent if only one
    /// entry was called.
    fn are_exact(&self, entry: usize) -> bool {
        let is_used = |entry: usize| is_used(ENTRIES[entry], self.calls[entry]);
        self.calls[entry] == 0 || entry == PUSH || [0, 1, 2].into_iter().all(|other| is_used(other) == (other == entry))
    }

    /// The packets of an entry, exact or estimated.
    fn packets(&self, entry: usize) -> Option<u64> {
        match entry {
            _ if self.calls[entry] == 0 => Some(0),
            PUSH => Some(self.taken),
            _ if self.are_exact(entry) => Some(self.sent),
            _ => {
                let own = self.estimates[entry]?;
                // Without pushes, pulls and ticks sent all packets.
                let all: f64 = self.estimates.iter().flatten().sum();
                let estimate = if self.calls[PUSH] == 0 && all > 0.0 { own / all * self.sent as f64 } else { own };
                Some((estimate.round() as u64).min(self.sent))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{SINK, any_apps, app, second};
    use proptest::prelude::*;

    fn row(accounts: &Accounts, app: &str, entry: &str) -> CostRow {
        accounts.rows.iter().find(|row| row.app == app && row.entry == entry).unwrap().clone()
    }

    #[test]
    fn clocks_are_those_of_the_samples_and_stand_for_all_calls() {
        let pulled = [("pull_calls", 200), ("pull_packets", 12_800), ("pull_clocks", 128_000)];
        let apps = vec![
            app("source", [0, 1_280_000], &[("pull", 20_000)], &pulled),
            app("sink", [1_280_000, 0], &[("push", 10_000)], &SINK),
        ];
        let accounts = Accounts::of(&second(vec![], apps));
        let (source, sink) = (row(&accounts, "source", "pull"), row(&accounts, "sink", "push"));
        assert_eq!((sink.sampled.clocks_per_packet(), sink.packets_per_call()), (Some(20.0), Some(128.0)));
        assert_eq!((source.sampled.clocks_per_packet(), source.sampled.clocks_per_call()), (Some(10.0), Some(640.0)));
        assert_eq!((source.packets, source.packets_estimated), (Some(1_280_000), false), "it sent all that was sent");
        // 20,000 calls of 640 clocks, and 10,000 of 2,560.
        assert_eq!((accounts.clocks, source.share), (38_400_000.0, Some(1.0 / 3.0)));
        assert!(!row(&accounts, "sink", "pull").is_used());
    }

    #[test]
    fn earlier_counts_are_subtracted() {
        let before =
            app("sink", [100, 0], &[("push", 10)], &[("push_calls", 1), ("push_packets", 9), ("push_clocks", 50)]);
        let after = app("sink", [12_900, 0], &[("push", 110)], &SINK.map(|(name, value)| (name, value + 50)));
        let change = second(vec![before], vec![after]);
        let sink = row(&Accounts::of(&change), "sink", "push");
        assert_eq!((sink.calls, sink.packets), (100, Some(12_800)));
        assert_eq!((sink.sampled.calls, sink.sampled.clocks), (149, 256_000));
    }

    #[test]
    fn an_app_whose_counters_shrank_is_another() {
        let old = app("sink", [1_000_000, 0], &[("push", 8_000)], &[("push_calls", 9_999), ("push_packets", 1)]);
        let mut other = app("sink", [12_800, 0], &[("push", 9_000)], &SINK);
        let change = second(vec![old.clone()], vec![other.clone()]);
        assert_eq!(row(&Accounts::of(&change), "sink", "push").packets, Some(12_800));
        other.account = old.account.clone();
        other.kind = "tee".to_owned();
        let change = second(vec![old], vec![other]);
        assert_eq!(row(&Accounts::of(&change), "sink", "push").sampled.calls, 9_999);
    }

    #[test]
    fn unknown_packet_counts_are_estimated() {
        let calls = [("pull", 1_000), ("tick", 1_000)];
        let sampled = [("pull_calls", 100), ("pull_packets", 600), ("tick_calls", 100), ("tick_packets", 200)];
        let accounts = Accounts::of(&second(vec![], vec![app("a", [0, 10_000], &calls, &sampled)]));
        let [pull, tick] = ["pull", "tick"].map(|entry| row(&accounts, "a", entry));
        assert_eq!((pull.packets, tick.packets, tick.packets_estimated), (Some(7_500), Some(2_500), true));

        let calls = [("push", 1_000), ("tick", 1_000), ("pull", 1)];
        let sampled = [("push_calls", 100), ("push_packets", 600), ("tick_calls", 100), ("tick_packets", 900)];
        let accounts = Accounts::of(&second(vec![], vec![app("a", [6_100, 6_000], &calls, &sampled)]));
        let [push, tick, pull] = ["push", "tick", "pull"].map(|entry| row(&accounts, "a", entry));
        assert_eq!((push.packets, push.packets_estimated), (Some(6_100), false));
        assert_eq!((tick.packets, pull.packets), (Some(6_000), None), "not more than were sent");
        let accounts = Accounts::of(&second(vec![], vec![app("a", [0, 9], &[("pull", 9), ("tick", 1)], &[])]));
        let [pull, tick] = ["pull", "tick"].map(|entry| row(&accounts, "a", entry));
        assert_eq!((pull.packets, pull.packets_estimated, tick.packets), (Some(9), false, None), "the first tick");
    }

    #[test]
    fn an_app_costs_what_its_calls_cost_together() {
        let sampled = [("push_calls", 100), ("push_packets", 100), ("push_clocks", 1_000), ("tick_calls", 50)];
        let sampled = [&sampled[..], &[("tick_packets", 100), ("tick_clocks", 500)]].concat();
        let delay = app("delay", [100, 100], &[("push", 100), ("tick", 50)], &sampled);
        let accounts = Accounts::of(&second(vec![], vec![delay, app("sink", [0, 0], &[], &[])]));
        let cost = accounts.app("delay");
        assert_eq!((cost.clocks_per_packet, cost.packets_per_call, cost.share), (Some(15.0), Some(1.0), Some(1.0)));
        assert_eq!((accounts.app("sink"), accounts.app("none")), (Cost::default(), Cost::default()));
    }

    #[test]
    fn too_few_samples_give_no_figures() {
        let few = [("push_calls", MIN_SAMPLED_CALLS - 1), ("push_packets", 100), ("push_clocks", 1_000)];
        let accounts = Accounts::of(&second(vec![], vec![app("sink", [100, 0], &[("push", 100)], &few)]));
        let sink = row(&accounts, "sink", "push");
        assert_eq!((sink.sampled.clocks_per_packet(), sink.sampled.clocks_per_call(), sink.share), (None, None, None));
        assert_eq!(sink.sampled.clocks, 1_000);
    }

    #[test]
    fn processor_events_are_given_per_packet() {
        let events = [("push_instructions", 25_600), ("push_cycles", 12_800), ("push_l3_misses", 1_280)];
        let accounts =
            Accounts::of(&second(vec![], vec![app("sink", [1, 0], &[("push", 100)], &[&SINK[..], &events].concat())]));
        let sampled = row(&accounts, "sink", "push").sampled;
        assert_eq!((sampled.per_packet("instructions"), sampled.per_packet("l3_misses")), (Some(2.0), Some(0.1)));
        assert_eq!((sampled.instructions_per_cycle(), sampled.per_packet("l1_hits")), (Some(2.0), None));
    }

    proptest! {
        /// With any counters, shares add up to one if anything was sampled.
        #[test]
        fn shares_add_up(before in any_apps(), after in any_apps()) {
            let accounts = Accounts::of(&second(before, after));
            let shares: Vec<f64> = accounts.rows.iter().filter_map(|row| row.share).collect();
            prop_assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
            prop_assert!(shares.is_empty() || (shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            for row in &accounts.rows {
                let app = accounts.app(&row.app);
                for figure in [app.clocks_per_packet, app.packets_per_call, row.packets_per_call(), row.share] {
                    prop_assert!(figure.is_none_or(|figure| figure.is_finite() && figure >= 0.0));
                }
            }
        }
    }
}

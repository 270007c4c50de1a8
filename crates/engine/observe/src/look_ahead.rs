//! Trials of look-ahead: whether an app waits for the data of its packets.
//!
//! In a trial the engine fetches the first line of all packets of a call before it makes the call, by prefetches and then
//! a read of each, or it does not: a coin decides. If the call and the prefetches together take less time than the call alone, then the app waits for data
//! that it could have prefetched. So a trial finds what a missing prefetch costs from outside, without event counters,
//! and whatever else makes a call slow.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use bellows_stats::{median, rank_sum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Calls that a log has room for: about ten seconds of a busy worker.
const CAPACITY: usize = 1 << 18;

/// Calls with fewer packets are no part of a trial: there is little to look ahead to.
pub const MIN_PACKETS: u64 = 8;

/// One call in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialCall {
    /// The app's position in the network.
    pub app: u32,
    /// Packets that the call took.
    pub packets: u16,
    /// The clocks of the prefetches before the call, if there were any.
    pub fetch: Option<u32>,
    /// The clocks of the call.
    pub clocks: u32,
}

/// The calls of one worker in a trial. One thread writes, others read.
pub struct TrialLog {
    /// Two words for each call.
    words: Box<[[AtomicU64; 2]]>,
    length: AtomicUsize,
}

/// The bit of a first word that says whether there were prefetches.
const FETCHED: u64 = 1 << 48;

impl Default for TrialLog {
    fn default() -> TrialLog {
        TrialLog { words: (0..CAPACITY).map(|_| Default::default()).collect(), length: AtomicUsize::new(0) }
    }
}

impl TrialLog {
    /// Adds a call, unless the log is full. Only one thread at a time may do so.
    pub fn add(&self, call: TrialCall) {
        let length = self.length.load(Relaxed);
        let Some([first, second]) = self.words.get(length) else { return };
        let fetched = if call.fetch.is_some() { FETCHED } else { 0 };
        first.store(u64::from(call.app) | u64::from(call.packets) << 32 | fetched, Relaxed);
        second.store(u64::from(call.fetch.unwrap_or(0)) | u64::from(call.clocks) << 32, Relaxed);
        self.length.store(length + 1, Release);
    }

    /// The calls so far.
    pub fn calls(&self) -> Vec<TrialCall> {
        let length = self.length.load(Acquire);
        let call = |[first, second]: &[AtomicU64; 2]| {
            let (first, second) = (first.load(Relaxed), second.load(Relaxed));
            TrialCall {
                app: first as u32,
                packets: (first >> 32) as u16,
                fetch: (first & FETCHED != 0).then_some(second as u32),
                clocks: (second >> 32) as u32,
            }
        };
        self.words.iter().take(length).map(call).collect()
    }

    /// The number of calls so far.
    pub fn len(&self) -> usize {
        self.length.load(Acquire)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Calls of each kind without which no app is accused, and without which none is cleared: that an app waits can show in
/// few calls, if the difference is large.
const MIN_CALLS_TO_ACCUSE: usize = 16;
const MIN_CALLS_TO_CLEAR: usize = 50;

/// The share of a call's clocks that prefetches must save, and the probability of error, for a verdict of waiting.
pub const MIN_SAVED: f64 = 0.1;
const MAX_P: f64 = 1e-4;

/// Clocks a packet that they must save.
const MIN_CLOCKS: f64 = 1.0;

/// What a trial found about an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LookAhead {
    /// There were too few calls with enough packets.
    Unknown,
    /// Prefetching all packets before the call saves no more than it costs.
    Sufficient,
    /// It saves much: the app waits for data that it could have prefetched.
    Missing,
}

/// The calls of one app in a trial, and what they say. All clocks are medians, for each packet.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Trial of an app")]
pub struct TrialResult {
    /// Its name.
    pub app: String,
    /// Calls without and with prefetches before them.
    pub calls: [usize; 2],
    /// The median.
    pub packets_per_call: f64,
    /// The median of the clocks a packet, of calls without prefetches.
    pub clocks: f64,
    /// That of the prefetches.
    pub fetch: f64,
    /// That of the calls after them.
    pub clocks_after: f64,
    /// The share of `clocks` that the prefetches save, less what they cost; negative if they cost more.
    pub saved: f64,
    /// The probability that calls alone take so much longer by chance; 1 if they do not take longer.
    pub p: f64,
    /// `missing` if the app waits for data of its packets, `sufficient` if not, `unknown` with fewer than 16 calls of
    /// each kind, or fewer than 50 without a finding.
    pub verdict: LookAhead,
}

impl TrialResult {
    /// Judges the calls of one app; `None` without any.
    pub fn of(app: &str, calls: &[TrialCall]) -> Option<TrialResult> {
        let per_packet = |clocks: u32, call: &TrialCall| f64::from(clocks) / f64::from(call.packets.max(1));
        let plain: Vec<f64> =
            calls.iter().filter(|call| call.fetch.is_none()).map(|call| per_packet(call.clocks, call)).collect();
        let fetched: Vec<(f64, f64)> = calls
            .iter()
            .filter_map(|call| Some((per_packet(call.fetch?, call), per_packet(call.clocks, call))))
            .collect();
        let middle = |values: &[f64]| median(values).map_or(0.0, |median| median.value);
        let of_fetched = |of: fn(&(f64, f64)) -> f64| fetched.iter().map(of).collect::<Vec<f64>>();
        let together = of_fetched(|(fetch, after)| fetch + after);
        let clocks = middle(&plain);
        let saved = clocks - middle(&together);
        let ranks = rank_sum(&plain, &together);
        // A call alone must take longer by its rank, too: with two speeds of the processor, medians may say anything.
        let p = ranks.filter(|ranks| ranks.larger > 0.5).map_or(1.0, |ranks| ranks.p);
        let is_missing = saved >= MIN_CLOCKS.max(MIN_SAVED * clocks) && p < MAX_P;
        let verdict = match plain.len().min(fetched.len()) {
            MIN_CALLS_TO_ACCUSE.. if is_missing => LookAhead::Missing,
            MIN_CALLS_TO_CLEAR.. => LookAhead::Sufficient,
            _ => LookAhead::Unknown,
        };
        let packets: Vec<f64> = calls.iter().map(|call| f64::from(call.packets)).collect();
        Some(TrialResult {
            app: app.to_owned(),
            calls: [plain.len(), fetched.len()],
            packets_per_call: median(&packets)?.value,
            clocks,
            fetch: middle(&of_fetched(|(fetch, _)| *fetch)),
            clocks_after: middle(&of_fetched(|(_, after)| *after)),
            saved: if clocks > 0.0 && !fetched.is_empty() { saved / clocks } else { 0.0 },
            p,
            verdict,
        })
    }

    /// Whether there were enough calls for a verdict.
    pub fn is_known(&self) -> bool {
        self.verdict != LookAhead::Unknown
    }

    /// Judges the calls of all apps, whose names are given by position: the apps that were called, in that order.
    pub fn of_all(apps: &[String], calls: impl IntoIterator<Item = TrialCall>) -> Vec<TrialResult> {
        let mut of_apps: BTreeMap<u32, Vec<TrialCall>> = BTreeMap::new();
        for call in calls {
            of_apps.entry(call.app).or_default().push(call);
        }
        of_apps.iter().filter_map(|(app, calls)| TrialResult::of(apps.get(*app as usize)?, calls)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls of 100 packets: `plain` clocks a packet, or `fetch` and `after`, with noise of a tenth and outliers.
    fn calls(count: usize, plain: f64, fetch: f64, after: f64) -> Vec<TrialCall> {
        let mut random = fastrand::Rng::with_seed(5);
        let mut noisy = |clocks: f64| {
            let outlier = if random.u8(..20) == 0 { 10.0 } else { 1.0 };
            (100.0 * clocks * (0.95 + 0.1 * random.f64()) * outlier) as u32
        };
        let call = |index: usize| {
            let is_fetched = index.is_multiple_of(2);
            let (fetch, clocks) = if is_fetched { (Some(noisy(fetch)), noisy(after)) } else { (None, noisy(plain)) };
            TrialCall { app: 3, packets: 100, fetch, clocks }
        };
        (0..count).map(call).collect()
    }

    fn verdict(count: usize, plain: f64, fetch: f64, after: f64) -> LookAhead {
        TrialResult::of("app", &calls(count, plain, fetch, after)).unwrap().verdict
    }

    #[test]
    fn an_app_that_waits_for_packets_is_found() {
        assert_eq!(verdict(1_000, 60.0, 15.0, 20.0), LookAhead::Missing);
        assert_eq!(verdict(1_000, 60.0, 30.0, 35.0), LookAhead::Sufficient, "the prefetches cost what they save");
        assert_eq!(verdict(1_000, 60.0, 1.0, 60.0), LookAhead::Sufficient, "the packets are near");
        assert_eq!(verdict(1_000, 60.0, 10.0, 47.0), LookAhead::Sufficient, "a small effect");
        assert_eq!(verdict(1_000, 2.0, 0.5, 0.8), LookAhead::Sufficient, "less than a clock");
        assert_eq!(verdict(24, 60.0, 15.0, 20.0), LookAhead::Unknown);
        assert_eq!(verdict(40, 60.0, 15.0, 20.0), LookAhead::Missing, "a few calls show a large effect");
        assert_eq!(verdict(80, 60.0, 30.0, 35.0), LookAhead::Unknown, "a few calls clear no app");
        assert_eq!(TrialResult::of("app", &[]), None);
    }

    /// Half of all calls meet a slow processor, so that either median may be that of the slow ones.
    #[test]
    fn medians_that_ranks_contradict_accuse_nobody() {
        let call = |index: usize| {
            let (is_fetched, is_slow) = (index.is_multiple_of(2), index % 100 < 50);
            // One in a hundred more of the plain calls is slow, and one in a hundred fewer of the others.
            let is_slow = if index % 100 == if is_fetched { 48 } else { 51 } { !is_slow } else { is_slow };
            let clocks = 100 * if is_slow { 30 } else { 12 };
            TrialCall { app: 3, packets: 100, fetch: is_fetched.then_some(200), clocks }
        };
        let result = TrialResult::of("app", &(0..2_000).map(call).collect::<Vec<_>>()).unwrap();
        assert!(result.saved > 0.5, "{result:?}");
        assert_eq!((result.verdict, result.p), (LookAhead::Sufficient, 1.0), "{result:?}");
    }

    #[test]
    fn results_have_the_medians_of_both_kinds() {
        let result = TrialResult::of_all(&["a", "b", "c", "d"].map(str::to_owned), calls(2_000, 60.0, 10.0, 20.0));
        let [result] = &result[..] else { panic!("one app was called") };
        assert_eq!((&*result.app, result.calls, result.packets_per_call), ("d", [1_000, 1_000], 100.0));
        for (found, expected) in [(result.clocks, 60.0), (result.fetch, 10.0), (result.clocks_after, 20.0)] {
            assert!((found / expected - 1.0).abs() < 0.02, "{result:?}");
        }
        assert!((result.saved - 0.5).abs() < 0.02 && result.p < 1e-100, "{result:?}");
        assert!(TrialResult::of_all(&[], calls(4, 1.0, 1.0, 1.0)).is_empty(), "an app without a name");
    }

    #[test]
    fn calls_of_one_kind_alone_decide_nothing() {
        let plain: Vec<TrialCall> =
            calls(2_000, 60.0, 1.0, 1.0).into_iter().filter(|call| call.fetch.is_none()).collect();
        let result = TrialResult::of("app", &plain).unwrap();
        assert_eq!((result.verdict, result.saved, result.p), (LookAhead::Unknown, 0.0, 1.0));
    }

    #[test]
    fn a_log_keeps_calls_as_they_are_until_it_is_full() {
        let log = TrialLog::default();
        assert!(log.is_empty());
        let all = [
            TrialCall { app: u32::MAX, packets: u16::MAX, fetch: Some(u32::MAX), clocks: u32::MAX },
            TrialCall { app: 0, packets: 0, fetch: None, clocks: 7 },
            TrialCall { app: 1, packets: 2, fetch: Some(0), clocks: 0 },
        ];
        all.iter().for_each(|call| log.add(*call));
        assert_eq!(log.calls(), all);
        (0..2 * CAPACITY).for_each(|_| log.add(all[1]));
        assert_eq!((log.len(), log.calls().len()), (CAPACITY, CAPACITY));
    }
}

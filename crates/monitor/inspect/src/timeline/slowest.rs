//! The slowest breaths, and their causes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Breath, Call, History};

/// The usual call of an app.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UsualCall {
    duration_ns: u64,
    packets: u64,
}

/// The usual durations of breaths, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreathPace {
    /// A whole breath.
    pub breath: u64,
    /// The time between its calls.
    pub between: u64,
}

/// The key of a median: an app at this entry, with or without packets.
type CallKind = (Arc<str>, &'static str, bool);

/// The usual durations: medians over a whole recording.
///
/// Breaths and calls that move packets are compared with others that do, and idle ones with idle ones.
#[derive(Clone, Debug, Default)]
pub struct Usual {
    /// Breaths that move packets.
    pub busy: BreathPace,
    idle: BreathPace,
    calls: HashMap<CallKind, UsualCall>,
    /// The time of each cause in breaths that were not picked for being slow, in nanoseconds.
    time: BTreeMap<Cause, u64>,
}

/// The lower median; 0 for an empty list.
pub fn median(mut numbers: Vec<u64>) -> u64 {
    let middle = numbers.len().saturating_sub(1) / 2;
    if numbers.is_empty() { 0 } else { *numbers.select_nth_unstable(middle).1 }
}

fn occasion(call: &Call) -> CallKind {
    (Arc::clone(&call.app), call.entry, call.packets > 0)
}

impl Usual {
    /// The usual durations of a recording. Breaths recorded because they were slow, or because a marked vector arrived,
    /// are left out, unless there are no others.
    pub fn of(history: &History) -> Usual {
        let sampled: Vec<&Breath> = history.breaths.iter().filter(|breath| breath.is_sample()).collect();
        let breaths = if sampled.is_empty() { history.breaths.iter().collect() } else { sampled };
        let mut calls: HashMap<_, (Vec<u64>, Vec<u64>)> = HashMap::new();
        for call in breaths.iter().flat_map(|breath| &breath.calls) {
            let (nanos, packets) = calls.entry(occasion(call)).or_default();
            nanos.push(call.duration_ns);
            packets.push(call.packets.into());
        }
        let pace = |is_busy: bool| {
            let breaths = || breaths.iter().filter(|breath| breath.is_busy() == is_busy);
            BreathPace {
                breath: median(breaths().map(|breath| breath.duration_ns).collect()),
                between: median(breaths().map(|breath| breath.between()).collect()),
            }
        };
        let habit = |(nanos, packets)| UsualCall { duration_ns: median(nanos), packets: median(packets) };
        let calls = calls.into_iter().map(|(key, samples)| (key, habit(samples))).collect();
        let mut usual = Usual { busy: pace(true), idle: pace(false), calls, time: BTreeMap::new() };
        usual.time = usual.times(&breaths);
        usual
    }

    /// The time of each cause in those of these breaths that move packets and are not slow.
    fn times(&self, breaths: &[&Breath]) -> BTreeMap<Cause, u64> {
        let mut times = BTreeMap::new();
        for breath in breaths.iter().filter(|breath| breath.is_busy() && !self.is_exceeded_by(breath)) {
            let calls = breath.calls.iter().map(|call| (Cause::of(call), call.duration_ns));
            for (cause, nanos) in calls.chain([(Cause::Between, breath.between())]) {
                let time: &mut u64 = times.entry(cause).or_default();
                *time = time.saturating_add(nanos);
            }
        }
        times
    }

    /// A cause's share of the time of breaths that are not slow, from 0 to 1.
    fn share(&self, cause: &Cause) -> f64 {
        let all: f64 = self.time.values().map(|nanos| *nanos as f64).sum();
        self.time.get(cause).map_or(0.0, |nanos| *nanos as f64 / all.max(1.0))
    }

    fn pace(&self, breath: &Breath) -> BreathPace {
        if breath.is_busy() { self.busy } else { self.idle }
    }

    /// Whether a breath takes much longer than the median of those that move packets.
    fn is_exceeded_by(&self, breath: &Breath) -> bool {
        breath.duration_ns > self.busy.breath.max(self.idle.breath).saturating_mul(NOTABLE_RATIO)
    }
}

/// A call of a slow breath, compared with the usual.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Call of a slow breath")]
pub struct ComparedCall {
    /// The app.
    pub app: Arc<str>,
    /// `pull`, `push` or `tick`.
    #[schemars(extend("enum" = ["pull", "push", "tick"]))]
    pub entry: &'static str,
    /// Its duration.
    pub duration_ns: u64,
    /// The packets that it took or sent.
    pub packets: u64,
    /// The median duration of the app's recorded calls; null if there are no others.
    pub usual_ns: Option<u64>,
    /// The median of their packets; null if there are no others.
    pub usual_packets: Option<u64>,
}

impl ComparedCall {
    fn of(call: &Call, usual: &Usual) -> ComparedCall {
        let habit = usual.calls.get(&occasion(call)).copied();
        ComparedCall {
            app: Arc::clone(&call.app),
            entry: call.entry,
            duration_ns: call.duration_ns,
            packets: call.packets.into(),
            usual_ns: habit.map(|habit| habit.duration_ns),
            usual_packets: habit.map(|habit| habit.packets),
        }
    }

    fn excess(&self) -> u64 {
        self.duration_ns.saturating_sub(self.usual_ns.unwrap_or(0))
    }

    /// Whether it took long because it had more to do: more packets than usual, and no more time for each.
    pub fn had_more_to_do(&self) -> bool {
        let (Some(nanos), Some(packets)) = (self.usual_ns, self.usual_packets) else { return false };
        let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
        self.packets > packets.saturating_mul(NOTABLE_RATIO)
            && product(self.duration_ns, packets.max(1)) <= product(nanos, self.packets) * u128::from(NOTABLE_RATIO)
    }
}

/// The ratio to the usual above which a deviation is mentioned.
const NOTABLE_RATIO: u64 = 2;

/// The cause of a slow breath.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
#[schemars(title = "Cause")]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum Cause {
    /// A call of an app.
    App {
        /// The app; absent for `between`.
        app: Arc<str>,
        /// `pull`, `push` or `tick`; absent for `between`.
        #[schemars(extend("enum" = ["pull", "push", "tick"]))]
        entry: &'static str,
    },
    /// Time between the calls. Most likely the system ran something else.
    Between,
}

impl Cause {
    fn of(call: &Call) -> Cause {
        Cause::App { app: Arc::clone(&call.app), entry: call.entry }
    }
}

/// One of the slowest breaths.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Slow breath")]
pub struct Slow {
    /// Its start: nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// Its duration.
    pub duration_ns: u64,
    /// Why it was slow; null if it took no more than twice the median.
    pub cause: Option<Cause>,
    /// The time between its calls.
    pub between_ns: u64,
    /// The median of this time.
    pub usual_between_ns: u64,
    /// Its calls, in order.
    pub calls: Vec<ComparedCall>,
}

impl Slow {
    fn of(breath: &Breath, usual: &Usual) -> Slow {
        let calls: Vec<ComparedCall> = breath.calls.iter().map(|call| ComparedCall::of(call, usual)).collect();
        let (duration_ns, between_ns) = (breath.duration_ns, breath.between());
        let usual_between_ns = usual.pace(breath).between;
        let between = between_ns.saturating_sub(usual_between_ns);
        let worst = breath.calls.iter().zip(&calls).max_by_key(|(_, compared)| compared.excess());
        let cause = match worst {
            _ if !usual.is_exceeded_by(breath) => None,
            Some((call, compared)) if compared.excess() > between => Some(Cause::of(call)),
            _ => Some(Cause::Between),
        };
        Slow { start_ns: breath.span.start, duration_ns, cause, between_ns, usual_between_ns, calls }
    }

    /// The call that made it slow, if the cause is a call.
    pub fn culprit(&self) -> Option<&ComparedCall> {
        let Some(Cause::App { app, entry }) = &self.cause else { return None };
        self.calls.iter().filter(|call| (&call.app, call.entry) == (app, *entry)).max_by_key(|call| call.excess())
    }
}

/// The slowest breaths, in descending order.
pub fn slowest(history: &History, usual: &Usual, most: usize) -> Vec<Slow> {
    let mut breaths: Vec<&Breath> = history.breaths.iter().collect();
    breaths.sort_by_key(|breath| Reverse(breath.duration_ns));
    breaths.truncate(most);
    breaths.into_iter().map(|breath| Slow::of(breath, usual)).collect()
}

/// A cause of slow breaths.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Suspect", extend("includes" = ["Cause"]))]
pub struct Suspect {
    /// The cause.
    #[serde(flatten)]
    pub cause: Cause,
    /// The number of breaths that it made slow.
    pub breaths: u64,
    /// Its share of the time of breaths that are not slow, from 0 to 1.
    ///
    /// Its share of the time of breaths that are not slow: random interruptions from outside hit it in this proportion.
    pub usual_share: f64,
}

/// The causes of all notably slow breaths, most frequent first.
pub fn suspects(history: &History, usual: &Usual) -> Vec<Suspect> {
    let mut causes = BTreeMap::new();
    for cause in history.breaths.iter().filter_map(|breath| Slow::of(breath, usual).cause) {
        *causes.entry(cause).or_insert(0) += 1;
    }
    let suspect = |(cause, breaths)| Suspect { usual_share: usual.share(&cause), cause, breaths };
    let mut suspects: Vec<Suspect> = causes.into_iter().map(suspect).collect();
    suspects.sort_by_key(|suspect| Reverse(suspect.breaths));
    suspects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{any_events, call, event, recorded};
    use bellows_observe::timeline::{Event, What};
    use proptest::prelude::*;

    /// Makes a breath of [`recorded`] slow: this is its duration, and that of `sink`'s call.
    fn stretch(breath: &mut [Event], sink: u64, all: u64, packets: u32) {
        let start = breath[2].start_ns;
        breath[1] = call(start + 400, sink, "sink", packets);
        breath[2] = event(start, all, What::Breath { every: 1, slow: true, caused: false });
    }

    fn verdicts(events: &[Event], most: usize) -> Vec<Slow> {
        let history = History::of(events);
        slowest(&history, &Usual::of(&history), most)
    }

    #[test]
    fn the_slow_app_is_named() {
        let events = recorded(100, |number, breath| match number {
            70 => stretch(breath, 50_000, 51_000, 128),
            71 => stretch(breath, 30_000, 31_000, 128),
            _ => {}
        });
        let slow = verdicts(&events, 3);
        let cause = Cause::App { app: "sink".into(), entry: "push" };
        assert_eq!(slow.iter().map(|slow| slow.duration_ns).collect::<Vec<_>>(), [51_000, 31_000, 1_000]);
        assert_eq!(slow.iter().map(|slow| slow.cause.as_ref()).collect::<Vec<_>>(), [Some(&cause), Some(&cause), None]);
        let culprit = slow[0].culprit().unwrap();
        assert_eq!((culprit.duration_ns, culprit.usual_ns), (50_000, Some(500)));
        assert!(!culprit.had_more_to_do() && slow[2].culprit().is_none());
        let history = History::of(&events);
        let suspects = suspects(&history, &Usual::of(&history));
        assert_eq!(suspects, [Suspect { cause, breaths: 2, usual_share: 0.5 }]);
    }

    #[test]
    fn more_packets_than_usual_explain_a_slow_call() {
        let slow = verdicts(
            &recorded(100, |number, breath| {
                if number == 5 {
                    stretch(breath, 4_000, 5_000, 1_024)
                }
            }),
            1,
        );
        assert!(slow[0].culprit().unwrap().had_more_to_do());
    }

    #[test]
    fn time_between_the_calls_belongs_to_no_app() {
        let slow = verdicts(
            &recorded(100, |number, breath| {
                if number == 5 {
                    stretch(breath, 600, 90_000, 128)
                }
            }),
            1,
        );
        assert_eq!((&slow[0].cause, slow[0].between_ns), (&Some(Cause::Between), 89_100));
    }

    #[test]
    fn an_app_that_was_not_called_before_can_be_the_cause() {
        let events = recorded(9, |number, breath| {
            if number == 5 {
                let start = breath[2].start_ns;
                breath.insert(2, call(start + 900, 20_000, "new", 1));
                breath[3] = event(start, 21_000, What::Breath { every: 1, slow: true, caused: false });
            }
        });
        assert_eq!(verdicts(&events, 1)[0].culprit().map(|call| &*call.app), Some("new"));
    }

    #[test]
    fn idle_breaths_do_not_make_those_with_packets_look_slow() {
        let events = recorded(100, |number, breath| {
            let start = breath[2].start_ns;
            match number % 10 {
                0 => {}
                5 if number == 55 => stretch(breath, 50_000, 51_000, 128),
                _ => {
                    *breath = vec![
                        call(start, 20, "source", 0),
                        event(start, 30, What::Breath { every: 1, slow: false, caused: false }),
                    ]
                }
            }
        });
        let slow = verdicts(&events, 2);
        assert_eq!(slow[0].culprit().and_then(|call| call.usual_ns), Some(500));
        assert_eq!((slow[1].duration_ns, &slow[1].cause), (1_000, &None));
    }

    proptest! {
        /// Damaged recordings have slowest breaths too.
        #[test]
        fn any_recording_has_slowest_breaths(events in any_events(), most in 0usize..9) {
            let history = History::of(&events);
            let usual = Usual::of(&history);
            let slow = slowest(&history, &usual, most);
            prop_assert_eq!(slow.len(), most.min(history.breaths.len()));
            prop_assert!(slow.is_sorted_by_key(|slow| Reverse(slow.duration_ns)));
            for slow in &slow {
                prop_assert_eq!(slow.culprit().is_some(), matches!(slow.cause, Some(Cause::App { .. })));
                let _ = slow.culprit().map(ComparedCall::had_more_to_do);
            }
            let suspects = suspects(&history, &usual);
            let all: u64 = suspects.iter().map(|suspect| suspect.breaths).sum();
            prop_assert!(suspects.iter().all(|suspect| (0.0..=1.0).contains(&suspect.usual_share)));
            prop_assert!(all <= history.breaths.len() as u64);
        }
    }
}

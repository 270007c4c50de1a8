//! All that a timeline has to say, of all workers: the numbers that the command prints and other readers show.

use std::cmp::Reverse;
use std::time::Duration;

use bellows_observe::Histogram;
use bellows_observe::timeline::{Event, Track};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::{History, Slow, Span, SpanRow, Suspect, Usual, rows, slowest, suspects};
use crate::networks::State;
use crate::reports::Subject;

/// The recording of one worker.
pub struct RecordedWorker {
    /// Its name.
    pub name: String,
    /// The part of the recording within the time span.
    pub history: History,
    /// The usual times in the whole recording.
    pub usual: Usual,
    /// The events within the time span.
    pub events: Vec<Event>,
}

/// The report on a recording.
pub struct Report {
    /// The network's name.
    pub name: String,
    /// Its user.
    pub user: String,
    /// Its state.
    pub state: State,
    /// Its workers.
    pub workers: Vec<RecordedWorker>,
    /// The start of the time span.
    pub start: u64,
}

/// Something of a worker, as JSON.
#[derive(JsonSchema, Serialize)]
pub struct Of<'a, T> {
    /// The worker.
    pub worker: &'a str,
    /// What it is.
    #[serde(flatten)]
    pub what: T,
}

/// A report as JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Timeline", extend("includes" = ["Network"]))]
pub struct ReportJson<'a> {
    #[serde(flatten)]
    subject: Subject,
    /// Start of the reported period: nanoseconds since the Unix epoch; null if nothing was recorded.
    start_ns: Option<u64>,
    /// Its length; 0 if nothing was recorded.
    duration_ns: u64,
    /// Median duration of the first worker's recorded breaths that moved packets; 0 without any.
    median_ns: u64,
    /// The workers.
    workers: Vec<WorkerMedian<'a>>,
    /// The period in spans of a second or more, of which the first and the last may be shorter, for one worker after the
    /// other.
    spans: Vec<Of<'a, SpanRow>>,
    /// The slowest breaths, the slowest first.
    slowest: Vec<Of<'a, Slow>>,
    /// The causes of breaths that took more than twice the worker's median, the most frequent first.
    suspects: Vec<Of<'a, Suspect>>,
    /// With `--all`: all events, for one worker after the other, in the order in which they were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Vec<Of<'a, &'a Event>>>,
}

/// The usual duration of a worker's breaths.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Median of a worker")]
struct WorkerMedian<'a> {
    /// The worker.
    name: &'a str,
    /// Median duration of its recorded breaths that moved packets; 0 without any.
    median_ns: u64,
}

impl RecordedWorker {
    fn of(track: Track) -> RecordedWorker {
        let history = History::of(&track.events);
        RecordedWorker { name: track.worker, usual: Usual::of(&history), history, events: track.events }
    }

    fn all<T>(&self, items: Vec<T>) -> impl Iterator<Item = Of<'_, T>> {
        items.into_iter().map(|what| Of { worker: &self.name, what })
    }
}

/// The first and the last of some spans together.
fn extent(spans: impl Iterator<Item = Span>) -> Option<Span> {
    spans.reduce(|one, other| Span { start: one.start.min(other.start), end: one.end.max(other.end) })
}

impl Report {
    /// A report on the last part of these recordings, or on all of it.
    pub fn of(name: String, user: String, state: State, tracks: Vec<Track>, last: Option<Duration>) -> Report {
        let mut workers: Vec<RecordedWorker> = tracks.into_iter().map(RecordedWorker::of).collect();
        let end = extent(workers.iter().filter_map(|worker| worker.history.span())).map_or(0, |span| span.end);
        let start = last.map_or(0, |last| end.saturating_sub(last.as_nanos().try_into().unwrap_or(u64::MAX)));
        for RecordedWorker { history, events, .. } in &mut workers {
            history.forget_before(start);
            events.retain(|event| event.start_ns.saturating_add(event.duration_ns) >= start);
        }
        Report { name, user, state, workers, start }
    }

    /// The length of the time span, as far as the recordings cover it.
    pub fn span(&self) -> Option<Span> {
        let seen = extent(self.workers.iter().filter_map(|worker| worker.history.span()))?;
        Some(seen.within(Span { start: self.start, end: seen.end }))
    }

    /// The number of recorded breaths.
    pub fn breaths(&self) -> u64 {
        self.workers.iter().map(|worker| worker.history.breaths.len() as u64).sum()
    }

    /// The durations of an app's calls that moved packets, in the breaths that were chosen at random.
    pub fn durations(&self, app: &str) -> Histogram {
        let breaths =
            self.workers.iter().flat_map(|worker| &worker.history.breaths).filter(|breath| breath.is_sample());
        let calls = breaths.flat_map(|breath| &breath.calls).filter(|call| &*call.app == app && call.packets > 0);
        Histogram::of_times(calls.map(|call| call.duration_ns))
    }

    /// The slowest breaths of all workers, in descending order.
    pub fn slowest(&self, most: usize) -> Vec<Of<'_, Slow>> {
        let of = |worker: &RecordedWorker| slowest(&worker.history, &worker.usual, most);
        let mut all: Vec<_> = self.workers.iter().flat_map(|worker| worker.all(of(worker))).collect();
        all.sort_by_key(|slow| Reverse(slow.what.duration_ns));
        all.truncate(most);
        all
    }

    /// The causes of all slow breaths of all workers, most frequent first.
    pub fn suspects(&self) -> Vec<Of<'_, Suspect>> {
        let of = |worker: &RecordedWorker| suspects(&worker.history, &worker.usual);
        let mut all: Vec<_> = self.workers.iter().flat_map(|worker| worker.all(of(worker))).collect();
        all.sort_by_key(|suspect| Reverse(suspect.what.breaths));
        all
    }

    /// The report as JSON, with this number of slowest breaths and, if wanted, with all events.
    pub fn json(&self, most: usize, all: bool) -> Value {
        let span = self.span();
        let rows = |worker: &RecordedWorker| span.map_or_else(Vec::new, |span| rows(&worker.history, span));
        let medians = self.workers.iter();
        let medians = medians.map(|worker| WorkerMedian { name: &worker.name, median_ns: worker.usual.busy.breath });
        json!(ReportJson {
            subject: Subject { name: self.name.clone(), user: self.user.clone(), state: self.state },
            start_ns: span.map(|span| span.start),
            duration_ns: span.map_or(0, Span::nanos),
            median_ns: self.workers.first().map_or(0, |first| first.usual.busy.breath),
            workers: medians.collect(),
            spans: self.workers.iter().flat_map(|worker| worker.all(rows(worker))).collect(),
            slowest: self.slowest(most),
            suspects: self.suspects(),
            events: all.then(|| {
                self.workers.iter().flat_map(|worker| worker.all(worker.events.iter().collect())).collect()
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use bellows_observe::timeline::What;

    use super::*;

    #[test]
    fn durations_are_those_of_calls_with_packets_in_sampled_breaths() {
        let call = |start_ns, duration_ns, app: &str, packets| Event {
            start_ns,
            duration_ns,
            what: What::Call { app: app.into(), entry: "push", packets },
        };
        let breath = |start_ns, duration_ns, slow| Event {
            start_ns,
            duration_ns,
            what: What::Breath { every: 256, slow, caused: false },
        };
        let events = vec![
            // The first breath may have lost calls, and does not count.
            breath(50, 10, false),
            call(100, 10, "filter", 4),
            call(110, 900, "other", 4),
            breath(100, 1_000, false),
            call(2_000, 3, "filter", 0),
            breath(2_000, 10, false),
            call(3_000, 5_000, "filter", 4),
            breath(3_000, 6_000, true),
            call(10_000, 12, "filter", 1),
            breath(10_000, 20, false),
        ];
        let tracks = vec![Track { worker: "main".to_owned(), events }];
        let report = Report::of("net".to_owned(), "ada".to_owned(), State::Running, tracks, None);
        let durations = report.durations("filter");
        assert_eq!((durations.count(), durations.maximum), (2, 12), "{durations:?}");
        assert_eq!(report.durations("nothing").count(), 0);
    }
}

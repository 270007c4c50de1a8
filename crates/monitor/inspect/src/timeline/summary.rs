//! A recording, span by span.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::slowest::median;
use super::{History, Incident, Late, Span};

/// The maximum number of rows of a summary: they fit on a terminal.
const MAX_ROWS: u64 = 20;

/// The length of rows in seconds: one of these, or a multiple of the last.
const SECONDS: [u64; 9] = [1, 2, 5, 10, 30, 60, 300, 600, 3600];

/// The events of a span of time.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Span")]
pub struct SpanRow {
    /// Its start: nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// Its length.
    pub duration_ns: u64,
    /// The number of recorded breaths.
    pub recorded: u64,
    /// The estimated number of all breaths.
    ///
    /// An estimate of all its breaths. Only those chosen at random are extrapolated.
    pub breaths: u64,
    /// The median duration of those that moved packets; null without any.
    pub median_ns: Option<u64>,
    /// The longest duration; null without breaths.
    pub longest_ns: Option<u64>,
    /// Packets dropped in the recorded breaths.
    pub dropped: u64,
    /// Sleeps that ended in the span.
    pub sleeps: u64,
    /// The time asleep.
    pub asleep_ns: u64,
    /// The number of packets that each reload dropped.
    pub reloads: Vec<u32>,
    /// The apps that panicked.
    pub panics: Vec<Arc<str>>,
    /// The breaths that ended in the span and took longer than `breath_limit`.
    pub late: Vec<Late>,
}

/// The span in rows of whole seconds, the first and last cut to it.
pub fn rows(history: &History, span: Span) -> Vec<SpanRow> {
    const SECOND: u64 = 1_000_000_000;
    let seconds = span.nanos().div_ceil(SECOND);
    let step = SECONDS.into_iter().find(|step| seconds.div_ceil(*step) < MAX_ROWS);
    let step = step.unwrap_or_else(|| seconds.div_ceil(MAX_ROWS - 1)).saturating_mul(SECOND);
    let first = span.start / step;
    let mut rows: Vec<SpanRow> = (first..=span.end.saturating_sub(1).max(span.start) / step)
        .map(|number| {
            let start = number.saturating_mul(step);
            let whole = Span { start, end: start.saturating_add(step) }.within(span);
            SpanRow { start_ns: whole.start, duration_ns: whole.nanos(), ..SpanRow::default() }
        })
        .collect();
    let last = rows.len() - 1;
    let index = |moment: u64| ((moment.clamp(span.start, span.end) / step - first) as usize).min(last);
    let mut durations = vec![Vec::new(); rows.len()];
    for breath in &history.breaths {
        let at = index(breath.span.start);
        let row = &mut rows[at];
        row.recorded += 1;
        row.longest_ns = row.longest_ns.max(Some(breath.duration_ns));
        let dropped = breath.drops.iter().map(|drops| u64::from(drops.packets));
        row.dropped = dropped.fold(row.dropped, u64::saturating_add);
        if breath.is_sample() {
            row.breaths = row.breaths.saturating_add(breath.every.into());
            if breath.is_busy() {
                durations[at].push(breath.duration_ns);
            }
        }
    }
    for (row, durations) in rows.iter_mut().zip(durations) {
        row.median_ns = (!durations.is_empty()).then(|| median(durations));
    }
    for (at, incident) in &history.incidents {
        match incident {
            Incident::Sleep => {
                rows[index(at.end)].sleeps += 1;
                for row in &mut rows[index(at.start)..=index(at.end)] {
                    let whole = Span { start: row.start_ns, end: row.start_ns + row.duration_ns };
                    row.asleep_ns = row.asleep_ns.saturating_add(at.within(whole).nanos()).min(row.duration_ns);
                }
            }
            Incident::Reload { dropped } => rows[index(at.start)].reloads.push(*dropped),
            Incident::Panic { app } => rows[index(at.start)].panics.push(Arc::clone(app)),
            Incident::Late(late) => rows[index(at.end)].late.push(late.clone()),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{any_events, event, recorded};
    use bellows_observe::timeline::What;
    use proptest::prelude::*;

    #[test]
    fn each_second_has_a_row() {
        let second = 1_000_000_000;
        let mut events = recorded(20_000, |number, breath| {
            if number == 15_000 {
                let start = breath[2].start_ns;
                breath.insert(2, event(start + 950, 0, What::Drops { app: "sink".into(), packets: 7 }));
                breath[3] = event(start, 9_000, What::Breath { every: 1, slow: true, caused: false });
            }
        });
        events.push(event(3 * second - second / 4, second / 2, What::Sleep));
        events.push(event(3 * second + second / 2, 0, What::Reload { dropped: 3 }));
        events.push(event(3 * second + second / 2, 0, What::Panic { app: "sink".into() }));
        let history = History::of(&events);
        let rows = rows(&history, Span { start: second, end: 3 * second + second / 2 });
        assert_eq!(rows.len(), 3);
        assert_eq!(
            rows.iter().map(|row| (row.start_ns, row.duration_ns)).collect::<Vec<_>>(),
            [(second, second), (2 * second, second), (3 * second, second / 2)]
        );
        assert_eq!((rows[0].recorded, rows[0].breaths, rows[0].dropped), (10_000, 1_000_000, 0));
        assert_eq!((rows[1].recorded, rows[1].breaths, rows[1].dropped), (10_000, 999_900, 7));
        assert_eq!((rows[1].median_ns, rows[1].longest_ns), (Some(1_000), Some(9_000)));
        assert_eq!((rows[1].sleeps, rows[1].asleep_ns), (0, second / 4));
        assert_eq!((rows[2].sleeps, rows[2].asleep_ns, rows[2].median_ns), (1, second / 4, None));
        assert_eq!((&*rows[2].reloads, &*rows[2].panics), (&[3][..], &["sink".into()][..]));
    }

    proptest! {
        /// For any recording, the rows are consecutive and few, and miss nothing.
        #[test]
        fn rows_cover_the_span(events in any_events()) {
            let history = History::of(&events);
            if let Some(span) = history.span() {
                let rows = rows(&history, span);
                prop_assert!(rows.len() as u64 <= MAX_ROWS);
                prop_assert_eq!(rows[0].start_ns, span.start);
                prop_assert!(rows.windows(2).all(|pair| pair[0].start_ns + pair[0].duration_ns == pair[1].start_ns));
                prop_assert_eq!(rows.last().map(|row| row.start_ns + row.duration_ns), Some(span.end));
                prop_assert_eq!(rows.iter().map(|row| row.recorded).sum::<u64>(), history.breaths.len() as u64);
                prop_assert!(rows.iter().all(|row| row.asleep_ns <= row.duration_ns));
            }
        }
    }
}

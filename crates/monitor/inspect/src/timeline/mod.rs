//! The recording of a worker's last breaths: a summary by spans, the slowest breaths with their causes, and a file for
//! trace viewers.
//!
//! The recording may be that of a crashed process and is untrusted: [`History::of`] puts events in order and makes
//! spans nest, and everything else relies on that. A span says when an event took place. Its duration is kept apart,
//! since the engine subtracts the cost of reading the clock.

mod export;
mod report;
mod slowest;
mod summary;

use std::sync::Arc;

use bellows_observe::timeline::{Event, Passage, What};
use schemars::JsonSchema;
use serde::Serialize;

pub use export::trace;
pub use report::{Of, RecordedWorker, Report, ReportJson};
pub use slowest::{Cause, ComparedCall, Slow, Suspect, Usual, slowest, suspects};
pub use summary::{SpanRow, rows};

/// A span of time, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its start.
    pub start: u64,
    /// Its end (exclusive), never before the start.
    pub end: u64,
}

impl Span {
    /// The span of an event. It is never empty, because some viewers cannot show empty spans.
    fn of(event: &Event) -> Span {
        Span { start: event.start_ns, end: event.start_ns.saturating_add(event.duration_ns.max(1)) }
    }

    /// Its length.
    pub fn nanos(self) -> u64 {
        self.end - self.start
    }

    /// Its intersection with another span. If they do not meet, an empty span at an end of the other.
    pub fn within(self, other: Span) -> Span {
        Span { start: self.start.clamp(other.start, other.end), end: self.end.clamp(other.start, other.end) }
    }
}

/// A call of an app in a recorded breath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its span.
    pub span: Span,
    /// Its duration.
    pub duration_ns: u64,
    /// The app.
    pub app: Arc<str>,
    /// `pull`, `push` or `tick`.
    pub entry: &'static str,
    /// The number of packets that it took or sent.
    pub packets: u32,
}

/// Packets that an app dropped in a recorded breath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drops {
    /// The time.
    pub at: u64,
    /// The app.
    pub app: Arc<str>,
    /// The number of packets.
    pub packets: u32,
}

/// A marked vector that left for another worker, or arrived from one, in a recorded breath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crossed {
    /// The time.
    pub at: u64,
    /// Whether it arrived.
    pub arrived: bool,
    /// The link, the number that departure and arrival have in common, and the packets.
    pub passage: Passage,
}

/// A recorded breath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breath {
    /// Its span.
    pub span: Span,
    /// Its duration.
    pub duration_ns: u64,
    /// The recording interval at that time: one breath in this many.
    pub every: u32,
    /// Whether it was recorded because it was slow.
    pub slow: bool,
    /// Whether it was recorded because a marked vector arrived in it.
    pub caused: bool,
    /// Its calls, in order. They lie within it and do not overlap.
    pub calls: Vec<Call>,
    /// The packets dropped in it.
    pub drops: Vec<Drops>,
    /// The marked vectors that left and arrived in it.
    pub crossed: Vec<Crossed>,
}

impl Breath {
    /// Whether it was chosen at random, so that it stands for others.
    pub fn is_sample(&self) -> bool {
        !self.slow && !self.caused
    }

    /// Time outside of its calls, in nanoseconds.
    pub fn between(&self) -> u64 {
        let called = self.calls.iter().map(|call| call.duration_ns).fold(0, u64::saturating_add);
        self.duration_ns.saturating_sub(called)
    }

    /// Whether a packet moved in it.
    pub fn is_busy(&self) -> bool {
        self.calls.iter().any(|call| call.packets > 0)
    }
}

/// An event other than a breath.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incident {
    /// The engine slept.
    Sleep,
    /// A new configuration was swapped in. This many packets were in removed parts.
    Reload {
        /// The packets.
        dropped: u32,
    },
    /// An app panicked.
    Panic {
        /// Its name.
        app: Arc<str>,
    },
    /// A breath exceeded `breath_limit`.
    Late(Late),
}

/// A breath that exceeded `breath_limit`. The watchdog found it, so it has no recorded calls.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Late breath")]
pub struct Late {
    /// Its duration.
    pub duration_ns: u64,
    /// The app in which the engine was most of the time; null if in none, or if unknown.
    pub app: Option<Arc<str>>,
    /// The time that the engine's thread was on a processor, in microseconds; null if unknown.
    pub on_processor_us: Option<u32>,
    /// Whether the process was stopped.
    pub standstill: bool,
}

/// A recording, in order.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The recorded breaths. They do not overlap.
    pub breaths: Vec<Breath>,
    /// All other events.
    pub incidents: Vec<(Span, Incident)>,
}

impl History {
    /// Puts the events of a recording, oldest first, in order.
    pub fn of(events: &[Event]) -> History {
        let mut history = History::default();
        let (mut calls, mut drops, mut crossed) = (Vec::new(), Vec::new(), Vec::new());
        for event in events {
            let span = Span::of(event);
            match &event.what {
                What::Call { app, entry, packets } => {
                    let (duration_ns, app) = (event.duration_ns, Arc::clone(app));
                    calls.push(Call { span, duration_ns, app, entry, packets: *packets });
                }
                What::Drops { app, packets } => {
                    drops.push(Drops { at: span.start, app: Arc::clone(app), packets: *packets });
                }
                What::Departure(passage) => {
                    crossed.push(Crossed { at: span.start, arrived: false, passage: passage.clone() });
                }
                What::Arrival(passage) => {
                    crossed.push(Crossed { at: span.start, arrived: true, passage: passage.clone() });
                }
                What::Breath { every, slow, caused } => {
                    let (calls, drops) = (std::mem::take(&mut calls), std::mem::take(&mut drops));
                    let (duration_ns, every, slow, caused) = (event.duration_ns, *every, *slow, *caused);
                    let crossed = std::mem::take(&mut crossed);
                    history.breaths.push(Breath { span, duration_ns, every, slow, caused, calls, drops, crossed });
                }
                What::Sleep => history.incidents.push((span, Incident::Sleep)),
                What::Reload { dropped } => history.incidents.push((span, Incident::Reload { dropped: *dropped })),
                What::Panic { app } => history.incidents.push((span, Incident::Panic { app: Arc::clone(app) })),
                What::Late { app, on_processor_us, standstill } => {
                    let (duration_ns, app) = (event.duration_ns, app.clone());
                    let (on_processor_us, standstill) = (*on_processor_us, *standstill);
                    let late = Late { duration_ns, app, on_processor_us, standstill };
                    history.incidents.push((span, Incident::Late(late)));
                }
            }
        }
        // The ring may have lost the first calls of its oldest breath, so their times are unknown.
        let is_cut = |event: &Event| match event.what {
            What::Call { .. } | What::Drops { .. } | What::Breath { .. } => true,
            What::Departure(_) | What::Arrival(_) => true,
            What::Sleep | What::Reload { .. } | What::Panic { .. } | What::Late { .. } => false,
        };
        if events.first().is_some_and(is_cut) && !history.breaths.is_empty() {
            history.breaths.remove(0);
        }
        history.put_in_order();
        history
    }

    /// Sorts everything by time and cuts off overlaps.
    fn put_in_order(&mut self) {
        self.breaths.sort_by_key(|breath| breath.span.start);
        self.incidents.sort_by_key(|(span, _)| span.start);
        let nexts: Vec<u64> = self.breaths.iter().skip(1).map(|next| next.span.start).chain([u64::MAX]).collect();
        for (breath, next) in self.breaths.iter_mut().zip(nexts) {
            breath.calls.sort_by_key(|call| call.span.start);
            // Because the clock's cost is subtracted, a breath may seem to end before its last call does.
            let last = breath.calls.last().map_or(0, |call| call.span.end.saturating_add(1));
            breath.span.end = breath.span.end.max(last).min(next);
            let mut room = breath.span;
            for call in &mut breath.calls {
                call.span = call.span.within(room);
                room.start = call.span.end;
            }
            for drops in &mut breath.drops {
                drops.at = drops.at.clamp(breath.span.start, breath.span.end);
            }
            for crossed in &mut breath.crossed {
                crossed.at = crossed.at.clamp(breath.span.start, breath.span.end);
            }
        }
    }

    /// From the first to the last recorded time; `None` if nothing was recorded.
    pub fn span(&self) -> Option<Span> {
        let spans =
            || self.breaths.iter().map(|breath| breath.span).chain(self.incidents.iter().map(|(span, _)| *span));
        let start = spans().map(|span| span.start).min()?;
        let end = spans().map(|span| span.end).max()?;
        Some(Span { start, end })
    }

    /// Removes events that ended before a time.
    pub fn forget_before(&mut self, moment: u64) {
        self.breaths.retain(|breath| breath.span.end >= moment);
        self.incidents.retain(|(span, _)| span.end >= moment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{any_events, call, event, recorded};
    use proptest::prelude::*;

    #[test]
    fn calls_belong_to_the_breath_that_follows_them() {
        let history = History::of(&recorded(3, |_, _| {}));
        assert_eq!(history.breaths.len(), 3);
        for breath in &history.breaths {
            let apps: Vec<&str> = breath.calls.iter().map(|call| &*call.app).collect();
            assert_eq!((apps, breath.between()), (vec!["source", "sink"], 200));
        }
        let cut = History::of(&recorded(3, |_, _| {})[2..]);
        assert_eq!(cut.breaths.len(), 2, "a breath that lost its first call is left out");
        assert_eq!(History::of(&[]).span(), None);
    }

    #[test]
    fn a_breath_spans_its_calls_and_those_have_their_own_time() {
        let mut events = vec![
            event(0, 0, What::Sleep),
            call(100, 300, "source", 1),
            call(450, 200, "sink", 1),
            event(90, 500, What::Breath { every: 1, slow: false, caused: false }),
        ];
        let history = History::of(&events);
        let breath = &history.breaths[0];
        assert_eq!((breath.span, breath.duration_ns, breath.between()), (Span { start: 90, end: 651 }, 500, 0));
        events.push(event(600, 10, What::Breath { every: 1, slow: false, caused: false }));
        let history = History::of(&events);
        let sink = &history.breaths[0].calls[1];
        assert_eq!((sink.span, sink.duration_ns), (Span { start: 450, end: 600 }, 200), "breaths do not overlap");
    }

    proptest! {
        /// For any events, breaths do not overlap and their calls lie within them.
        #[test]
        fn spans_nest(events in any_events()) {
            let history = History::of(&events);
            prop_assert!(history.breaths.windows(2).all(|pair| pair[0].span.end <= pair[1].span.start));
            for breath in &history.breaths {
                prop_assert!(breath.span.start <= breath.span.end);
                let mut free = breath.span.start;
                for call in &breath.calls {
                    prop_assert!(free <= call.span.start && call.span.start <= call.span.end);
                    free = call.span.end;
                }
                prop_assert!(free <= breath.span.end);
            }
        }
    }
}

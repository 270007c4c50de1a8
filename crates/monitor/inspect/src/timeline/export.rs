//! A recording in the Trace Event format, which Perfetto and `chrome://tracing` open.
//!
//! The document "Trace Event Format" of the Chromium project describes the format. Times are in microseconds since the
//! first event: times since 1970 would have more digits than a viewer's numbers can hold.

use std::collections::HashSet;
use std::fmt::Write;

use bellows_observe::timeline::Passage;
use serde::Serialize;
use serde_json::{Value, json};

use super::{Breath, History, Incident, Span};

/// One event of the format.
#[derive(Serialize)]
struct TraceEvent<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    /// The phase: `X` has a duration, `i` has none, `s` and `f` are the ends of an arrow, `C` is a counter's value, `M` a
    /// name.
    ph: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    pid: u32,
    tid: u32,
    /// The extent of an event without a duration: `t` for its thread, `p` for the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    /// The number that the ends of an arrow have in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u32>,
    /// The end of an arrow: `e` if it leads to the event around it, not to the next one.
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<&'static str>,
    args: Value,
}

/// An event, its start in nanoseconds, and its nesting depth.
type Timed<'a> = (u64, u8, TraceEvent<'a>);

/// Writes the events of one process.
struct EventWriter<'a> {
    pid: u32,
    /// The thread of the worker whose events are written, from 1.
    thread: u32,
    first: u64,
    events: Vec<Timed<'a>>,
}

impl<'a> EventWriter<'a> {
    /// Exact to the nanosecond for the first days.
    fn micros(nanos: u64) -> f64 {
        nanos as f64 / 1000.0
    }

    fn event(&self, name: &'a str, ph: &'static str, at: u64, args: Value) -> TraceEvent<'a> {
        let ts = Some(Self::micros(at - self.first));
        let (pid, tid) = (self.pid, self.thread);
        TraceEvent { name, cat: Some("engine"), ph, ts, dur: None, pid, tid, s: None, id: None, bp: None, args }
    }

    /// Events with a duration. An event that does not fit between those around it is left out.
    fn complete(&mut self, name: &'a str, category: &'static str, span: Span, depth: u8, args: Value) {
        if span.nanos() == 0 {
            return;
        }
        let event = self.event(name, "X", span.start, args);
        let event = TraceEvent { cat: Some(category), dur: Some(Self::micros(span.nanos())), ..event };
        self.events.push((span.start, depth, event));
    }

    fn instant(&mut self, name: &'a str, scope: &'static str, at: u64, args: Value) {
        let event = TraceEvent { s: Some(scope), ..self.event(name, "i", at, args) };
        self.events.push((at, 2, event));
    }

    fn breath(&mut self, breath: &'a Breath) {
        let args = json!({"recorded one in": breath.every, "slow": breath.slow, "caused": breath.caused});
        self.complete("breath", "breath", breath.span, 0, args);
        for call in &breath.calls {
            let args = json!({"entry": call.entry, "packets": call.packets});
            self.complete(&call.app, call.entry, call.span, 1, args);
        }
    }

    /// The ends of arrows: what crossed to another worker, if both ends are recorded.
    fn arrows(&mut self, breath: &'a Breath, joined: &HashSet<u32>) {
        for crossed in breath.crossed.iter().filter(|crossed| joined.contains(&crossed.passage.mark)) {
            let Passage { link, mark, packets } = &crossed.passage;
            // An arrow's end belongs to the event around it, which does not include its own end.
            let at = crossed.at.min(breath.span.end.saturating_sub(1)).max(breath.span.start);
            let (phase, bind) = if crossed.arrived { ("f", Some("e")) } else { ("s", None) };
            let event = self.event(CROSSING, phase, at, json!({"link": link, "packets": packets}));
            let event = TraceEvent { cat: Some(CROSSING), id: Some(*mark), bp: bind, ..event };
            self.events.push((at, 2, event));
        }
    }

    fn name(&self, what: &'static str, name: &str) -> TraceEvent<'static> {
        let args = json!({"name": name});
        let (pid, tid) = (self.pid, self.thread);
        TraceEvent { name: what, cat: None, ph: "M", ts: None, dur: None, pid, tid, s: None, id: None, bp: None, args }
    }
}

/// The name of an arrow.
const CROSSING: &str = "crossing";

/// The marks of vectors of which both the departure and the arrival are recorded.
fn joined(workers: &[(&str, &History)]) -> HashSet<u32> {
    let [mut left, mut arrived] = [HashSet::new(), HashSet::new()];
    let breaths = workers.iter().flat_map(|(_, history)| &history.breaths);
    for crossed in breaths.flat_map(|breath| &breath.crossed) {
        let side = if crossed.arrived { &mut arrived } else { &mut left };
        side.insert(crossed.passage.mark);
    }
    left.intersection(&arrived).copied().collect()
}

/// The recordings of the workers of the network `name` of process `pid`, as a file in the Trace Event format. Each worker
/// has a name.
pub fn trace(workers: &[(&str, &History)], name: &str, pid: u32) -> String {
    let starts = workers.iter().filter_map(|(_, history)| history.span()).map(|span| span.start);
    let first = starts.min().unwrap_or(0);
    let mut writer = EventWriter { pid, thread: 1, first, events: Vec::new() };
    let joined = joined(workers);
    let mut names = vec![writer.name("process_name", &format!("bellows {name}"))];
    for (thread, (worker, history)) in (1..).zip(workers) {
        writer.thread = thread;
        // The only worker is the engine.
        names.push(writer.name("thread_name", if workers.len() == 1 { "engine" } else { worker }));
        write_worker(&mut writer, history, &joined);
    }
    writer.events.sort_by_key(|(at, depth, _)| (*at, *depth));

    let origin =
        json!({"network": name, "bellows": env!("CARGO_PKG_VERSION"), "first_event_unix_ns": first.to_string()});
    let mut text = format!("{{\"displayTimeUnit\":\"ns\",\"otherData\":{origin},\"traceEvents\":[");
    let events = names.iter().chain(writer.events.iter().map(|(_, _, event)| event));
    for (index, event) in events.enumerate() {
        let _ = write!(text, "{}\n{}", if index > 0 { "," } else { "" }, json!(event));
    }
    text + "\n]}\n"
}

/// Writes the events of one worker.
fn write_worker<'a>(writer: &mut EventWriter<'a>, history: &'a History, joined: &HashSet<u32>) {
    // Breaths and sleeps share a thread, so they may not overlap.
    let mut awake = writer.first;
    let mut sleeps = history.incidents.iter().filter(|(_, incident)| *incident == Incident::Sleep).peekable();
    let mut nap_until = |writer: &mut EventWriter<'_>, awake: u64, moment: u64| {
        let mut awake = awake;
        while let Some((span, _)) = sleeps.next_if(|(span, _)| span.start < moment) {
            let span = span.within(Span { start: awake, end: moment });
            writer.complete("sleep", "sleep", span, 0, json!({}));
            awake = span.end;
        }
    };
    for breath in &history.breaths {
        nap_until(writer, awake, breath.span.start);
        writer.breath(breath);
        writer.arrows(breath, joined);
        awake = breath.span.end;
    }
    nap_until(writer, awake, u64::MAX);
    mark_incidents(writer, history);
    count_drops(writer, history);
}

fn mark_incidents<'a>(writer: &mut EventWriter<'a>, history: &'a History) {
    for (span, incident) in &history.incidents {
        match incident {
            Incident::Sleep => {}
            Incident::Reload { dropped } => {
                let args = json!({"dropped": dropped, "pause_ns": span.nanos()});
                writer.instant("reload", "p", span.start, args);
            }
            Incident::Panic { app } => writer.instant("panic", "p", span.start, json!({"app": app})),
            Incident::Late(late) => writer.instant("late breath", "p", span.start, json!(late)),
        }
    }
}

/// Marks where packets were dropped, and counts them.
fn count_drops<'a>(writer: &mut EventWriter<'a>, history: &'a History) {
    const COUNTER: &str = "dropped (recorded)";
    let count = |writer: &mut EventWriter<'a>, at: u64, packets: u64| {
        // The counter of each worker has a row of its own.
        let id = (writer.thread > 1).then_some(writer.thread);
        let event = TraceEvent { id, ..writer.event(COUNTER, "C", at, json!({"packets": packets})) };
        writer.events.push((at, 3, event));
    };
    let mut drops: Vec<_> = history.breaths.iter().flat_map(|breath| &breath.drops).collect();
    drops.sort_by_key(|drops| drops.at);
    let mut dropped = 0u64;
    if !drops.is_empty() {
        count(writer, writer.first, 0);
    }
    for drops in drops {
        writer.instant("drop", "t", drops.at, json!({"app": drops.app, "packets": drops.packets}));
        dropped = dropped.saturating_add(drops.packets.into());
        count(writer, drops.at, dropped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{any_events, call, event, recorded};
    use bellows_observe::timeline::{Event, What};
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Reads a file according to the document "Trace Event Format". Checks the requirements of each phase, that events
    /// are in order, and that events with a duration nest within their thread.
    fn read(text: &str) -> Vec<Value> {
        let file: Value = serde_json::from_str(text).unwrap();
        assert_eq!(file["displayTimeUnit"], json!("ns"));
        let events = file["traceEvents"].as_array().unwrap().clone();
        let nanos = |event: &Value, key: &str| {
            let micros = event[key].as_f64().unwrap_or_else(|| panic!("no {key} in {event}"));
            assert!(micros >= 0.0 && micros.is_finite(), "{event}");
            (micros * 1000.0).round() as u64
        };
        let mut last = 0;
        let mut open: HashMap<(u64, u64), Vec<u64>> = HashMap::new();
        for event in &events {
            assert!(event["name"].is_string() && event["args"].is_object(), "{event}");
            let thread = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
            let phase = event["ph"].as_str().unwrap();
            if phase == "M" {
                assert!(["process_name", "thread_name"].contains(&event["name"].as_str().unwrap()), "{event}");
                assert!(event["args"]["name"].is_string(), "{event}");
                continue;
            }
            let start = nanos(event, "ts");
            assert!(start >= last && event["cat"].is_string(), "{event}");
            last = start;
            match phase {
                "X" => {
                    let end = start + nanos(event, "dur");
                    assert!(end > start, "some viewers cannot show what is empty: {event}");
                    let around = open.entry(thread).or_default();
                    while around.pop_if(|outer| *outer <= start).is_some() {}
                    assert!(around.last().is_none_or(|outer| end <= *outer), "{event} leaves what it is in");
                    around.push(end);
                }
                "i" => assert!(["g", "p", "t"].contains(&event["s"].as_str().unwrap()), "{event}"),
                "s" | "f" => {
                    assert!(event["id"].is_u64(), "{event}");
                    assert_eq!(event["bp"] == json!("e"), phase == "f", "{event}");
                }
                "C" => assert!(event["args"].as_object().unwrap().values().all(Value::is_number), "{event}"),
                phase => panic!("{phase} is not written: {event}"),
            }
        }
        events
    }

    #[test]
    fn a_recording_becomes_a_file_that_viewers_open() {
        let mut events = recorded(2, |_, _| {});
        let odd = "a \"b\"\\\n\u{1b}ü";
        let end = events[6].start_ns;
        events.extend([
            event(end + 5_000, 20_000, What::Sleep),
            call(end + 30_123, 500, odd, 3),
            event(end + 30_700, 0, What::Drops { app: odd.into(), packets: 2 }),
            event(end + 30_001, 1_000, What::Breath { every: 7, slow: true, caused: false }),
            event(end + 40_000, 0, What::Reload { dropped: 1 }),
            event(end + 50_000, 0, What::Panic { app: odd.into() }),
        ]);
        let mut history = History::of(&events);
        history.forget_before(1_000_000_000);
        let events = read(&trace(&[("main", &history)], "router", 4711));
        let of = |name: &str, phase: &str| -> Vec<&Value> {
            events.iter().filter(|event| event["name"] == json!(name) && event["ph"] == json!(phase)).collect()
        };
        assert_eq!(of("process_name", "M")[0]["args"]["name"], json!("bellows router"));
        assert_eq!((of("breath", "X").len(), of("source", "X").len(), of("sleep", "X").len()), (3, 2, 1));
        let first = of("breath", "X")[0];
        assert_eq!((&first["ts"], &first["dur"], &first["pid"]), (&json!(0.0), &json!(1.0), &json!(4711)));
        let called = of(odd, "X")[0];
        assert_eq!(
            (&called["ts"], &called["dur"]),
            (&json!(130.123), &json!(0.5)),
            "microseconds since the first event"
        );
        assert_eq!(called["args"], json!({"entry": "push", "packets": 3}));
        assert_eq!(of("drop", "i")[0]["args"], json!({"app": odd, "packets": 2}));
        let counted: Vec<&Value> = events.iter().filter(|event| event["ph"] == json!("C")).collect();
        assert_eq!(counted.iter().map(|event| &event["args"]["packets"]).collect::<Vec<_>>(), [0, 2]);
        assert_eq!((of("reload", "i").len(), &of("panic", "i")[0]["args"]["app"]), (1, &json!(odd)));
    }

    #[test]
    fn an_arrow_leads_from_a_departure_to_its_arrival() {
        let passage = |mark: u32| Passage { link: "copy.out -> sink.in".into(), mark, packets: 9 };
        let breath = |start: u64, caused: bool| event(start, 1_000, What::Breath { every: 1, slow: false, caused });
        let main = History::of(&[
            event(0, 0, What::Sleep),
            call(1_100, 300, "source", 9),
            event(1_100, 0, What::Departure(passage(7))),
            event(1_200, 0, What::Departure(passage(8))),
            breath(1_000, false),
        ]);
        let disk = History::of(&[
            event(0, 0, What::Sleep),
            call(2_000, 400, "sink", 9),
            event(2_400, 0, What::Arrival(passage(7))),
            breath(2_000, true),
        ]);
        let events = read(&trace(&[("main", &main), ("disk", &disk)], "n", 1));
        let of = |phase: &str| -> Vec<&Value> { events.iter().filter(|event| event["ph"] == json!(phase)).collect() };
        let threads: Vec<&Value> = of("M").into_iter().skip(1).map(|name| &name["args"]["name"]).collect();
        assert_eq!(threads, [&json!("main"), &json!("disk")]);
        let ends: Vec<(&Value, &Value, &Value)> =
            [of("s"), of("f")].concat().iter().map(|end| (&end["id"], &end["tid"], &end["ts"])).collect();
        assert_eq!(
            ends,
            [(&json!(7), &json!(1), &json!(1.1)), (&json!(7), &json!(2), &json!(2.4))],
            "the arrival of the other is not recorded"
        );
        let caused: Vec<&Value> = of("X").into_iter().map(|event| &event["args"]["caused"]).collect();
        assert!(caused.contains(&&json!(true)) && caused.contains(&&json!(false)), "{caused:?}");
    }

    proptest! {
        /// Any recording gives a valid file. (A number of more than 53 bits has no nanoseconds.)
        #[test]
        fn every_recording_becomes_a_valid_file(events in any_events()) {
            let short = |event: Event| {
                let (start_ns, duration_ns) = (event.start_ns >> 16, event.duration_ns >> 16);
                Event { start_ns, duration_ns, ..event }
            };
            let history = History::of(&events.into_iter().map(short).collect::<Vec<_>>());
            read(&trace(&[("main", &history)], "n", 1));
            read(&trace(&[("main", &history), ("other", &history)], "n", 1));
        }

        #[test]
        fn no_recording_makes_it_panic(events in any_events()) {
            let _ = trace(&[("main", &History::of(&events))], "n", 1);
        }
    }
}

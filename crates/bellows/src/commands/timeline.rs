//! `bellows timeline`.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bellows_inspect::networks::{self, State};
use bellows_inspect::text::sanitize;
use bellows_inspect::timeline::{
    Breath, Cause, ComparedCall, History, Incident, Late, Row, Slow, Span, Usual, rows, slowest, suspects, trace,
};
use bellows_observe::RuntimeDir;
use bellows_observe::timeline::{Event, Recording};
use bellows_sys::clock;
use clap::Args;
use serde_json::{Value, json};

use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{Align, Table, UNKNOWN, count, nanos, percent, plural, scaled, span, time_of_day};

/// Show the slowest breaths of a network's last seconds
///
/// An engine records whole breaths, at a rate that adapts, and also all sleeps and reloads, in a ring buffer in its
/// folder: new events overwrite old ones. The time of a breath is compared with the median of all recorded breaths, and
/// the time of a call with the median of the same app's calls.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The network's name, if several run
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// How far to look back from the last event [default: 5s; with --export, all]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    last: Option<bellows_config::Duration>,
    /// Number of slowest breaths to list
    #[arg(long, value_name = "N", default_value_t = 5)]
    slowest: usize,
    /// List all breaths, calls and other events
    #[arg(long)]
    all: bool,
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Write a trace file for ui.perfetto.dev, or - for standard output
    ///
    /// The file is in the Trace Event format, which chrome://tracing opens too.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "all"])]
    export: Option<PathBuf>,
}

/// The maximum number of causes to list.
const MAX_CAUSES: usize = 6;

/// The reason for which there may be no timeline.
const NO_TIMELINE: &str = "without `sampling` in [engine] none is written";

/// How far to look back by default.
const DEFAULT_SPAN: Duration = Duration::from_secs(5);

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let runtime_dir = networks::pick(self.name.as_deref())?;
        let (name, user) = (runtime_dir.name(), runtime_dir.user());
        let recording = Recording::open(&runtime_dir).map_err(|error| {
            CommandError::Failed(format!("the timeline of `{name}` cannot be read: {error}; {NO_TIMELINE}"))
        })?;
        let mut events = recording.events();
        let mut history = History::of(&events);
        let usual = Usual::of(&history);
        let last = self.last.map(Duration::from).or(self.export.is_none().then_some(DEFAULT_SPAN));
        let end = history.span().map_or(0, |span| span.end);
        let start = last.map_or(0, |last| end.saturating_sub(last.as_nanos().try_into().unwrap_or(u64::MAX)));
        history.forget_before(start);
        events.retain(|event| event.start.saturating_add(event.duration) >= start);
        let view = View { name, user, state: networks::state(&runtime_dir), history, usual, events, start };
        let text = match &self.export {
            Some(file) => return view.export(file, &runtime_dir),
            None if self.json => format!("{:#}\n", view.json(&self)),
            None => view.render(&self, terminal::stdout_is_rich()),
        };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn only_reports(&self) -> bool {
        self.export.is_none()
    }
}

/// The report on a recording.
struct View {
    name: String,
    user: String,
    state: State,
    /// The part of the recording within the time span.
    history: History,
    /// The usual times in the whole recording.
    usual: Usual,
    /// The events within the time span.
    events: Vec<Event>,
    /// The start of the time span.
    start: u64,
}

impl View {
    /// The length of the time span, as far as the recording covers it.
    fn span(&self) -> Option<Span> {
        let seen = self.history.span()?;
        Some(seen.within(Span { start: self.start, end: seen.end }))
    }

    fn export(&self, file: &Path, runtime_dir: &RuntimeDir) -> Result<ExitCode, CommandError> {
        let pid = networks::open(runtime_dir.for_reading())?.directory().pid;
        let text = trace(&self.history, &self.name, pid);
        if file == Path::new("-") {
            terminal::print(&text)?;
            return Ok(ExitCode::SUCCESS);
        }
        fs::write(file, text).map_err(|error| {
            CommandError::Usage(format!("cannot write {}: {error}; check the folder", file.display()))
        })?;
        let seconds = self.span().map_or(0, Span::nanos);
        terminal::notice(&format!(
            "wrote {} of {} to {}; https://ui.perfetto.dev and chrome://tracing open it\n",
            plural(self.history.breaths.len() as u64, "breath"),
            span(Duration::from_nanos(seconds)),
            file.display()
        ));
        Ok(ExitCode::SUCCESS)
    }

    fn json(&self, arguments: &Arguments) -> Value {
        let span = self.span();
        let mut value = json!({
            "name": self.name,
            "user": self.user,
            "state": self.state,
            "start": span.map(|span| span.start),
            "nanos": span.map_or(0, Span::nanos),
            "median_ns": self.usual.busy.breath,
            "spans": span.map_or_else(Vec::new, |span| rows(&self.history, span)),
            "slowest": slowest(&self.history, &self.usual, arguments.slowest),
            "suspects": suspects(&self.history, &self.usual),
        });
        if arguments.all {
            value["events"] = json!(self.events);
        }
        value
    }

    fn render(&self, arguments: &Arguments, rich: bool) -> String {
        let Some(seen) = self.span() else {
            return format!("{}: nothing has been recorded yet\n", self.name);
        };
        let mut text = self.head(seen) + "\n\n" + &table(&rows(&self.history, seen)).render(rich);
        if !self.history.breaths.is_empty() && arguments.slowest > 0 {
            text += &self.slowest(arguments.slowest);
            text += &self.suspects(rich);
        }
        if arguments.all {
            text += &self.list();
        }
        text
    }

    fn head(&self, seen: Span) -> String {
        let recorded = plural(self.history.breaths.len() as u64, "breath");
        let state = match self.state {
            State::Running => "running",
            State::Stopped => "stopped",
            State::Crashed => "crashed",
        };
        let age = match clock::unix_ns().saturating_sub(seen.end) {
            age if age > 1_000_000_000 => format!(", {} ago", span(Duration::from_nanos(age))),
            _ => String::new(),
        };
        format!(
            "{} ({state}): {recorded} recorded in {}, until {} UTC{age}",
            self.name,
            span(Duration::from_nanos(seen.nanos())),
            moment(seen.end),
        )
    }

    fn slowest(&self, most: usize) -> String {
        let slow = slowest(&self.history, &self.usual, most);
        let took = |slow: &Slow| nanos(slow.nanos);
        let width = slow.iter().map(|slow| took(slow).chars().count()).max().unwrap_or(0);
        let mut text = format!(
            "\nthe slowest breaths (the median of those that move packets is {}):\n",
            nanos(self.usual.busy.breath)
        );
        for slow in &slow {
            let _ = writeln!(text, "  {:>width$}  at {}: {}", took(slow), moment(slow.start), self.why(slow));
        }
        text
    }

    /// The causes of all slow breaths.
    fn suspects(&self, rich: bool) -> String {
        let suspects = suspects(&self.history, &self.usual);
        let all: u64 = suspects.iter().map(|suspect| suspect.breaths).sum();
        if all == 0 {
            return String::new();
        }
        let mut table = Table::new(&[
            ("MADE SLOW BY", Align::Left),
            ("BREATHS", Align::Right),
            ("SHARE", Align::Right),
            ("USUAL SHARE OF THE TIME", Align::Right),
        ]);
        for suspect in suspects.iter().take(MAX_CAUSES) {
            let share = suspect.breaths as f64 / all as f64;
            table.row([name(&suspect.cause), count(suspect.breaths), percent(share), percent(suspect.usual_share)]);
        }
        format!(
            "\n{} took more than twice the median:\n{}\
             Delays from outside the apps, such as other processes, hit each app by its usual share of the time.\n",
            plural(all, "breath"),
            table.render(rich)
        )
    }

    /// The cause of a slow breath, in words.
    fn why(&self, slow: &Slow) -> String {
        match (&slow.cause, slow.culprit()) {
            (Some(Cause::Between), _) => format!(
                "none of the apps: {} passed between their calls, usually {}",
                nanos(slow.between_ns),
                nanos(slow.usual_between_ns)
            ),
            (_, Some(call)) => blame_call(call),
            (_, None) => "not unusual".to_owned(),
        }
    }

    fn list(&self) -> String {
        let breaths = self.history.breaths.iter().map(|breath| (breath.span.start, describe_breath(breath)));
        let incidents =
            self.history.incidents.iter().map(|(at, incident)| (at.start, describe_incident(*at, incident)));
        let mut events: Vec<(u64, String)> = breaths.chain(incidents).collect();
        events.sort_by_key(|(start, _)| *start);
        events.into_iter().fold("\n".to_owned(), |text, (_, event)| text + &event)
    }
}

/// A cause of slow breaths, in words.
fn name(cause: &Cause) -> String {
    match cause {
        Cause::App { app, entry } => format!("{entry} of {app}"),
        Cause::Between => "time between calls".to_owned(),
    }
}

/// The app's call that made a breath slow.
fn blame_call(call: &ComparedCall) -> String {
    let mut text = format!(
        "the {} of `{}` took {} for {}",
        call.entry,
        sanitize(&call.app),
        nanos(call.nanos),
        plural(call.packets, "packet")
    );
    match (call.usual_ns, call.usual_packets) {
        (Some(usual), Some(packets)) => {
            let _ = write!(text, ", usually {} for {}", nanos(usual), count(packets));
        }
        _ => text += ", the only one that was recorded",
    }
    text + if call.had_more_to_do() { ": it had more to do" } else { "" }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        ("FROM", Align::Left),
        ("RECORDED", Align::Right),
        ("BREATHS", Align::Right),
        ("MEDIAN", Align::Right),
        ("LONGEST", Align::Right),
        ("SLEEPS", Align::Right),
        ("ASLEEP", Align::Right),
        ("DROPPED", Align::Right),
        ("", Align::Left),
    ]);
    let or_unknown = |time: Option<u64>| time.map_or_else(|| UNKNOWN.to_owned(), nanos);
    for row in rows {
        table.row([
            to_millis(row.start),
            count(row.recorded),
            format!("~{}", scaled(row.breaths as f64)),
            or_unknown(row.median_ns),
            or_unknown(row.longest_ns),
            count(row.sleeps),
            percent(row.asleep_ns as f64 / row.nanos.max(1) as f64),
            count(row.dropped),
            incidents(row),
        ]);
    }
    table
}

/// The time of day in UTC, in the log's format, to the microsecond.
fn moment(at: u64) -> String {
    let mut time = time_of_day(at);
    time.truncate("12:34:56.123456".len());
    time
}

/// Like [`moment`], to the millisecond.
fn to_millis(at: u64) -> String {
    let mut time = moment(at);
    time.truncate("12:34:56.123".len());
    time
}

/// The reloads and panics of a span, in words.
fn incidents(row: &Row) -> String {
    let reloads = row.reloads.iter().map(|dropped| match dropped {
        0 => "reload".to_owned(),
        dropped => format!("reload ({} dropped)", plural((*dropped).into(), "packet")),
    });
    let panics = row.panics.iter().map(|app| format!("`{app}` panicked"));
    // One line has no room for all of them.
    let late = row.late.iter().max_by_key(|late| late.nanos).map(|longest| match row.late.len() {
        1 => describe_late(longest),
        number => format!("{}, the longest: {}", plural(number as u64, "late breath"), describe_late(longest)),
    });
    reloads.chain(panics).chain(late).collect::<Vec<_>>().join(", ")
}

/// A breath that exceeded `breath_limit`.
fn describe_late(late: &Late) -> String {
    let time = nanos(late.nanos);
    match &late.app {
        _ if late.standstill => format!("no breath for {time}, because the process stood still"),
        Some(app) => format!("a breath of {time} in `{}`", sanitize(app)),
        None => format!("a breath of {time} in none of the apps"),
    }
}

fn describe_breath(breath: &Breath) -> String {
    let how = if breath.slow { "kept because it was slow".to_owned() } else { format!("1 in {}", breath.every) };
    let mut text = format!("{}  breath {} ({how})\n", moment(breath.span.start), nanos(breath.nanos));
    for call in &breath.calls {
        let (at, packets) = (moment(call.span.start), plural(call.packets.into(), "packet"));
        let _ = writeln!(text, "{at}    {} {}  {}, {packets}", call.entry, sanitize(&call.app), nanos(call.nanos));
    }
    for drops in &breath.drops {
        let (at, packets) = (moment(drops.at), plural(drops.packets.into(), "packet"));
        let _ = writeln!(text, "{at}    {} dropped {packets}", sanitize(&drops.app));
    }
    text
}

fn describe_incident(at: Span, incident: &Incident) -> String {
    let what = match incident {
        Incident::Sleep => format!("sleep {}", nanos(at.nanos())),
        Incident::Reload { dropped } => {
            format!("reload in {}, {} dropped", nanos(at.nanos()), plural((*dropped).into(), "packet"))
        }
        Incident::Panic { app } => format!("panic of {}", sanitize(app)),
        Incident::Late(late) => {
            let on_processor = late.on_processor_micros.map(|micros| nanos(u64::from(micros) * 1_000));
            let on_processor = on_processor.map(|time| format!(", {time} of it on the processor"));
            format!("{}{}", describe_late(late), on_processor.unwrap_or_default())
        }
    };
    format!("{}  {what}\n", moment(at.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_inspect::testing::{any_events, call, event, recorded};
    use bellows_observe::timeline::What;
    use proptest::prelude::*;

    fn view(events: &[Event]) -> View {
        let mut history = History::of(events);
        let usual = Usual::of(&history);
        history.forget_before(1_000_000_000);
        View {
            name: "router".to_owned(),
            user: "ada".to_owned(),
            state: State::Crashed,
            history,
            usual,
            events: events.to_vec(),
            start: 1_000_000_000,
        }
    }

    fn arguments(all: bool) -> Arguments {
        Arguments { name: None, last: None, slowest: 2, all, json: false, export: None }
    }

    #[test]
    fn a_slow_app_is_named_with_its_usual_time() {
        let events = recorded(20_000, |number, breath| {
            let start = breath[2].start;
            if number % 5_000 == 70 {
                breath[1] = call(start + 400, 50_000, "sink", 128);
                breath[2] = event(start, 51_000, What::Breath { every: 1, slow: true });
            } else if number == 9_000 {
                breath[2] = event(start, 60_000, What::Breath { every: 1, slow: true });
                breath.push(event(start + 70_000, 0, What::Reload { dropped: 3 }));
            }
        });
        let text = view(&events).render(&arguments(false), false);
        for part in [
            "router (crashed): 20,000 breaths recorded in 2.00 s, until 00:00:02.999901 UTC, ",
            "00:00:01.000    10,000  ~1.00 M  1.00 µs  60.0 µs       0   0.0 %        0  reload (3 packets dropped)",
            "the slowest breaths (the median of those that move packets is 1.00 µs):",
            "60.0 µs  at 00:00:01.900000: none of the apps: 59.2 µs passed between their calls, usually 200 ns",
            "51.0 µs  at 00:00:01.007000: the push of `sink` took 50.0 µs for 128 packets, usually 500 ns for 128",
            "push of sink              4  80.0 %                   50.0 %\n",
            "time between calls        1  20.0 %                   20.0 %\n",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(text.lines().count() < 25, "{text}");
    }

    #[test]
    fn all_events_are_listed_if_asked_for() {
        let mut events = recorded(2, |_, _| {});
        events.push(event(1_000_150_000, 0, What::Panic { app: "sink".into() }));
        let text = view(&events).render(&arguments(true), false);
        let listed =
            "00:00:01.000100  breath 1.00 µs (1 in 100)\n00:00:01.000100    pull source  300 ns, 128 packets\n";
        assert!(text.contains(listed) && text.contains("  panic of sink\n"), "{text}");
        assert_eq!(view(&[]).render(&arguments(true), false), "router: nothing has been recorded yet\n");
    }

    proptest! {
        /// A damaged recording can be printed, and cannot control the terminal.
        #[test]
        fn any_recording_can_be_printed(events in any_events()) {
            let view = view(&events);
            let text = view.render(&arguments(true), false) + &view.json(&arguments(true)).to_string();
            prop_assert!(!text.contains('\u{1b}'), "{text}");
        }
    }
}

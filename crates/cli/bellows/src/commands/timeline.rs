//! `bellows timeline`.

use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bellows_inspect::networks::{self, Access, State};
use bellows_inspect::text::sanitize;
use bellows_inspect::timeline::{
    Breath, Cause, ComparedCall, Crossed, History, Incident, Late, Of, RecordedWorker, Report, Slow, Span, SpanRow,
    rows, trace,
};
use bellows_observe::RuntimeDir;
use bellows_observe::timeline::{Passage, Recording};
use bellows_sys::{FileError, clock};
use clap::Args;

use crate::arguments::NetworkName;
use crate::command_error::CommandError;
use crate::operating::network;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{Align, Table, UNKNOWN, count, nanos, percent, plural, scaled, span, time_of_day};

/// Show the slowest breaths of a network's last seconds
///
/// Each worker of an engine records whole breaths, at a rate that adapts, and also all sleeps and reloads, in a ring
/// buffer in the engine's folder: new events overwrite old ones. The time of a breath is compared with the median of the
/// worker's recorded breaths, and the time of a call with the median of the same app's calls. When a recorded breath
/// sends packets to another worker, the breath in which they arrive is recorded, too.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    network: NetworkName,
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
    /// The file is in the Trace Event format, which chrome://tracing opens too. Each worker has a track, and arrows lead
    /// from a breath that sends packets to another worker to the one in which they arrive.
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
    const READS: &'static [&'static str] = &["timeline NAME", "timeline -n NAME --all"];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let runtime_dir = network(self.network.get(), Access::Read)?;
        let (name, user) = (runtime_dir.name(), runtime_dir.user());
        let recording = Recording::open(&runtime_dir).map_err(|error| {
            CommandError::Failed(format!("the timeline of `{name}` cannot be read: {error}; {NO_TIMELINE}"))
        })?;
        let last = self.last.map(Duration::from).or(self.export.is_none().then_some(DEFAULT_SPAN));
        let state = networks::state(&runtime_dir);
        let report = Report::of(name, user, state, recording.tracks(), last);
        let text = match &self.export {
            Some(file) => return export(&report, file, &runtime_dir),
            None if self.json => format!("{:#}\n", report.json(self.slowest, self.all)),
            None => render(&report, &self, terminal::stdout_is_rich()),
        };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn only_reports(&self) -> bool {
        self.export.is_none()
    }
}

/// A worker's name in a sentence; empty if it is the only one.
fn on(report: &Report, worker: &str) -> String {
    if report.workers.len() == 1 { String::new() } else { format!("{}, ", sanitize(worker)) }
}

fn export(report: &Report, file: &Path, runtime_dir: &RuntimeDir) -> Result<ExitCode, CommandError> {
    let pid = networks::open(runtime_dir.for_reading())?.directory().pid;
    let workers: Vec<(&str, &History)> = report.workers.iter().map(|worker| (&*worker.name, &worker.history)).collect();
    let text = trace(&workers, &report.name, pid);
    if file == Path::new("-") {
        terminal::print(&text)?;
        return Ok(ExitCode::SUCCESS);
    }
    fs::write(file, text).map_err(|error| CommandError::Usage(FileError::writing(file, &error).to_string()))?;
    let seconds = report.span().map_or(0, Span::nanos);
    terminal::notice(&format!(
        "wrote {} of {} to {}; https://ui.perfetto.dev and chrome://tracing open it\n",
        plural(report.breaths(), "breath"),
        span(Duration::from_nanos(seconds)),
        file.display()
    ));
    Ok(ExitCode::SUCCESS)
}

fn render(report: &Report, arguments: &Arguments, rich: bool) -> String {
    let Some(seen) = report.span() else {
        return format!("{}: nothing has been recorded yet\n", report.name);
    };
    let mut text = head(report, seen) + "\n";
    for RecordedWorker { name, history, .. } in &report.workers {
        let recorded = plural(history.breaths.len() as u64, "breath");
        text += "\n";
        if report.workers.len() > 1 {
            let _ = writeln!(text, "worker {}: {recorded} recorded", sanitize(name));
        }
        text += &table(&rows(history, seen)).render(rich);
    }
    if report.breaths() > 0 && arguments.slowest > 0 {
        text += &describe_slowest(report, arguments.slowest);
        text += &describe_suspects(report, rich);
    }
    if arguments.all {
        text += &list(report);
    }
    text
}

fn head(report: &Report, seen: Span) -> String {
    let recorded = plural(report.breaths(), "breath");
    let state = match report.state {
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
        report.name,
        span(Duration::from_nanos(seen.nanos())),
        moment(seen.end),
    )
}

fn describe_slowest(report: &Report, most: usize) -> String {
    let slow = report.slowest(most);
    let took = |slow: &Of<'_, Slow>| nanos(slow.what.duration_ns);
    let width = slow.iter().map(|slow| took(slow).chars().count()).max().unwrap_or(0);
    let median = |worker: &RecordedWorker| match report.workers.len() {
        1 => nanos(worker.usual.busy.breath),
        _ => format!("{} for {}", nanos(worker.usual.busy.breath), sanitize(&worker.name)),
    };
    let medians: Vec<String> = report.workers.iter().map(median).collect();
    let mut text =
        format!("\nthe slowest breaths (the median of those that move packets is {}):\n", medians.join(", "));
    for slow in &slow {
        let on = on(report, slow.worker);
        let _ = writeln!(text, "  {:>width$}  {on}at {}: {}", took(slow), moment(slow.what.start_ns), why(&slow.what));
    }
    text
}

/// The causes of all slow breaths.
fn describe_suspects(report: &Report, rich: bool) -> String {
    let suspects = report.suspects();
    let all: u64 = suspects.iter().map(|suspect| suspect.what.breaths).sum();
    if all == 0 {
        return String::new();
    }
    let mut table = Table::new(&[
        ("MADE SLOW BY", Align::Left),
        ("BREATHS", Align::Right),
        ("SHARE", Align::Right),
        ("USUAL SHARE OF THE TIME", Align::Right),
    ]);
    for Of { worker, what: suspect } in suspects.iter().take(MAX_CAUSES) {
        let share = suspect.breaths as f64 / all as f64;
        table.row([
            format!("{}{}", on(report, worker), name(&suspect.cause)),
            count(suspect.breaths),
            percent(share),
            percent(suspect.usual_share),
        ]);
    }
    format!(
        "\n{} took more than twice the median:\n{}\
         Delays from outside the apps, such as other processes, hit each app by its usual share of the time.\n",
        plural(all, "breath"),
        table.render(rich)
    )
}

fn list(report: &Report) -> String {
    let mut departures = HashMap::new();
    for RecordedWorker { name, history, .. } in &report.workers {
        let crossed = history.breaths.iter().flat_map(|breath| &breath.crossed).filter(|crossed| !crossed.arrived);
        departures.extend(crossed.map(|crossed| (crossed.passage.mark, (&**name, crossed.at))));
    }
    let mut events: Vec<(u64, String)> = Vec::new();
    for RecordedWorker { name, history, .. } in &report.workers {
        let on = on(report, name);
        let breaths = history.breaths.iter();
        events.extend(breaths.map(|breath| (breath.span.start, describe_breath(breath, &on, &departures))));
        let incidents = history.incidents.iter();
        events.extend(incidents.map(|(at, incident)| (at.start, describe_incident(*at, incident, &on))));
    }
    events.sort_by_key(|(start, _)| *start);
    events.into_iter().fold("\n".to_owned(), |text, (_, event)| text + &event)
}

/// The cause of a slow breath, in words.
fn why(slow: &Slow) -> String {
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
        nanos(call.duration_ns),
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

fn table(rows: &[SpanRow]) -> Table {
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
            to_millis(row.start_ns),
            count(row.recorded),
            format!("~{}", scaled(row.breaths as f64)),
            or_unknown(row.median_ns),
            or_unknown(row.longest_ns),
            count(row.sleeps),
            percent(row.asleep_ns as f64 / row.duration_ns.max(1) as f64),
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
fn incidents(row: &SpanRow) -> String {
    let reloads = row.reloads.iter().map(|dropped| match dropped {
        0 => "reload".to_owned(),
        dropped => format!("reload ({} dropped)", plural((*dropped).into(), "packet")),
    });
    let panics = row.panics.iter().map(|app| format!("`{app}` panicked"));
    // One line has no room for all of them.
    let late = row.late.iter().max_by_key(|late| late.duration_ns).map(|longest| match row.late.len() {
        1 => describe_late(longest),
        number => format!("{}, the longest: {}", plural(number as u64, "late breath"), describe_late(longest)),
    });
    reloads.chain(panics).chain(late).collect::<Vec<_>>().join(", ")
}

/// A breath that exceeded `breath_limit`.
fn describe_late(late: &Late) -> String {
    let time = nanos(late.duration_ns);
    match &late.app {
        _ if late.standstill => format!("no breath for {time}, because the process stood still"),
        Some(app) => format!("a breath of {time} in `{}`", sanitize(app)),
        None => format!("a breath of {time} in none of the apps"),
    }
}

/// The worker and the time of each recorded departure, by its mark.
type Departures<'a> = HashMap<u32, (&'a str, u64)>;

fn describe_breath(breath: &Breath, on: &str, departures: &Departures<'_>) -> String {
    let how = match breath {
        Breath { slow: true, .. } => "kept because it was slow".to_owned(),
        Breath { caused: true, .. } => "kept because of what arrived".to_owned(),
        Breath { every, .. } => format!("1 in {every}"),
    };
    let mut text = format!("{}  {on}breath {} ({how})\n", moment(breath.span.start), nanos(breath.duration_ns));
    for call in &breath.calls {
        let (at, packets) = (moment(call.span.start), plural(call.packets.into(), "packet"));
        let _ =
            writeln!(text, "{at}    {} {}  {}, {packets}", call.entry, sanitize(&call.app), nanos(call.duration_ns));
    }
    for drops in &breath.drops {
        let (at, packets) = (moment(drops.at), plural(drops.packets.into(), "packet"));
        let _ = writeln!(text, "{at}    {} dropped {packets}", sanitize(&drops.app));
    }
    for crossed in &breath.crossed {
        let _ = writeln!(text, "{}    {}", moment(crossed.at), describe_crossed(crossed, departures));
    }
    text
}

/// A vector that left for another worker or arrived from one, in words.
fn describe_crossed(crossed: &Crossed, departures: &Departures<'_>) -> String {
    let Passage { link, mark, packets } = &crossed.passage;
    let (link, packets) = (sanitize(link), plural((*packets).into(), "packet"));
    match (crossed.arrived, departures.get(mark)) {
        (false, _) => format!("{packets} left through {link}, mark {mark}"),
        (true, Some((worker, at))) => {
            let ago = nanos(crossed.at.saturating_sub(*at));
            format!("{packets} arrived through {link}, mark {mark}, {ago} after they left {}", sanitize(worker))
        }
        (true, None) => format!("{packets} arrived through {link}, mark {mark}"),
    }
}

fn describe_incident(at: Span, incident: &Incident, on: &str) -> String {
    let what = match incident {
        Incident::Sleep => format!("sleep {}", nanos(at.nanos())),
        Incident::Reload { dropped } => {
            format!("reload in {}, {} dropped", nanos(at.nanos()), plural((*dropped).into(), "packet"))
        }
        Incident::Panic { app } => format!("panic of {}", sanitize(app)),
        Incident::Late(late) => {
            let on_processor = late.on_processor_us.map(|micros| nanos(u64::from(micros) * 1_000));
            let on_processor = on_processor.map(|time| format!(", {time} of it on the processor"));
            format!("{}{}", describe_late(late), on_processor.unwrap_or_default())
        }
    };
    format!("{}  {on}{what}\n", moment(at.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_inspect::testing::{any_events, call, event, recorded};
    use bellows_observe::timeline::{Event, Track, What};
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn view(events: &[Event]) -> Report {
        view_of(&[("main", events)])
    }

    fn view_of(tracks: &[(&str, &[Event])]) -> Report {
        let track =
            |(worker, events): &(&str, &[Event])| Track { worker: (*worker).to_owned(), events: events.to_vec() };
        let tracks: Vec<Track> = tracks.iter().map(track).collect();
        let mut view = Report::of("router".to_owned(), "ada".to_owned(), State::Crashed, tracks, None);
        view.start = 1_000_000_000;
        view.workers.iter_mut().for_each(|worker| worker.history.forget_before(view.start));
        view
    }

    fn arguments(all: bool) -> Arguments {
        Arguments { network: NetworkName::default(), last: None, slowest: 2, all, json: false, export: None }
    }

    #[test]
    fn a_slow_app_is_named_with_its_usual_time() {
        let events = recorded(20_000, |number, breath| {
            let start = breath[2].start_ns;
            if number % 5_000 == 70 {
                breath[1] = call(start + 400, 50_000, "sink", 128);
                breath[2] = event(start, 51_000, What::Breath { every: 1, slow: true, caused: false });
            } else if number == 9_000 {
                breath[2] = event(start, 60_000, What::Breath { every: 1, slow: true, caused: false });
                breath.push(event(start + 70_000, 0, What::Reload { dropped: 3 }));
            }
        });
        let text = render(&view(&events), &arguments(false), false);
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
        let text = render(&view(&events), &arguments(true), false);
        let listed =
            "00:00:01.000100  breath 1.00 µs (1 in 100)\n00:00:01.000100    pull source  300 ns, 128 packets\n";
        assert!(text.contains(listed) && text.contains("  panic of sink\n"), "{text}");
        assert_eq!(render(&view(&[]), &arguments(true), false), "router: nothing has been recorded yet\n");
    }

    #[test]
    fn each_worker_has_its_rows_and_a_breath_names_its_cause() {
        let passage = Passage { link: "copy.out -> sink.in".into(), mark: 7, packets: 128 };
        let mut main = recorded(100, |_, _| {});
        main.insert(2, event(1_000_000_050, 0, What::Departure(passage.clone())));
        let disk = [
            event(0, 0, What::Sleep),
            call(1_000_002_000, 80_000, "writer", 128),
            event(1_000_082_000, 0, What::Arrival(passage)),
            event(1_000_001_900, 81_000, What::Breath { every: 0, slow: false, caused: true }),
        ];
        let view = view_of(&[("main", &main), ("disk", &disk)]);
        let text = render(&view, &arguments(true), false);
        for part in [
            "router (crashed): 101 breaths recorded in 9.9 ms, until",
            "\nworker main: 100 breaths recorded\nFROM",
            "\nworker disk: 1 breath recorded\nFROM",
            "is 1.00 µs for main, 81.0 µs for disk):\n  81.0 µs  disk, at 00:00:01.000001: not unusual\n",
            "00:00:01.000000  main, breath 1.00 µs (1 in 100)\n",
            "    128 packets left through copy.out -> sink.in, mark 7\n",
            "00:00:01.000001  disk, breath 81.0 µs (kept because of what arrived)\n",
            "    128 packets arrived through copy.out -> sink.in, mark 7, 82.0 µs after they left main\n",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let json = view.json(2, true);
        assert_eq!(json["workers"][1], json!({"name": "disk", "median_ns": 81_000}));
        assert_eq!(
            (&json["slowest"][0]["worker"], &json["slowest"][0]["duration_ns"]),
            (&json!("disk"), &json!(81_000))
        );
        let of = |what: &str| -> Vec<&Value> {
            json["events"].as_array().unwrap().iter().filter(|event| event["what"] == json!(what)).collect()
        };
        assert_eq!(of("departure")[0]["mark"], of("arrival")[0]["mark"]);
        assert_eq!((&of("departure")[0]["worker"], &of("arrival")[0]["worker"]), (&json!("main"), &json!("disk")));
        let recorded: Vec<&Value> = json["spans"].as_array().unwrap().iter().map(|row| &row["worker"]).collect();
        assert_eq!(recorded, [&json!("main"), &json!("disk")]);
    }

    proptest! {
        /// A damaged recording can be printed, and cannot control the terminal.
        #[test]
        fn any_recording_can_be_printed(events in any_events()) {
            let view = view(&events);
            let text = render(&view, &arguments(true), false) + &view.json(2, true).to_string();
            prop_assert!(!text.contains('\u{1b}'), "{text}");
        }
    }
}

//! The contents of an update of `top`, and its columns.

use std::cmp::Ordering;
use std::fmt::Write;

use bellows_inspect::accounting::Accounts;
use bellows_inspect::networks::{self, Change, Hang, Rate, State, WorkerChange};
use bellows_inspect::text::sanitize;
use bellows_inspect::times::{self, Percentiles, TIMES};
use bellows_observe::{AppCounts, LinkCounts};
use clap::builder::PossibleValuesParser;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::text::{Align, bit_rate, count, figure, known, packet_rate, percent, scaled, shortened, span};

/// The contents of one update.
pub struct TopView {
    /// How the network ended, if it did. Its rates are then unknown.
    pub end: Option<&'static str>,
    /// Lines about the network as a whole.
    pub head: String,
    pub apps: Vec<AppRow>,
    pub links: Vec<LinkRow>,
    /// Whether the apps have several workers.
    pub has_workers: bool,
    summary: Summary,
}

#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
#[schemars(title = "Rates of an app")]
pub struct AppRow {
    /// Its name in the network.
    name: String,
    /// Its type.
    kind: String,
    /// Packets received on all inputs.
    in_packets_per_second: Option<f64>,
    /// Packets sent on all outputs.
    out_packets_per_second: Option<f64>,
    /// Packets dropped for any reason.
    drops_per_second: Option<f64>,
    /// Packets dropped since the last `bellows clear`, or the start of the run.
    dropped: u64,
    /// As in [Cost of an app](#cost-of-an-app).
    clocks_per_packet: Option<f64>,
    /// As in [Cost of an app](#cost-of-an-app).
    packets_per_call: Option<f64>,
    /// The share of all clocks spent in apps, from 0 to 1; null without samples.
    share: Option<f64>,
    /// Its worker.
    worker: String,
}

#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
#[schemars(title = "Rates of a link")]
pub struct LinkRow {
    /// `app.output`.
    from: String,
    /// `app.input`.
    to: String,
    /// Packets sent into it.
    packets_per_second: Option<f64>,
    /// Bits sent into it.
    bits_per_second: Option<f64>,
    /// Packets sent into it since the last `bellows clear`, or the start of the run.
    packets: u64,
    /// Packets sent and not yet received.
    waiting: u64,
    /// Packets dropped because it was full, in the same time.
    dropped: u64,
}

/// A column of a table: its text, and the number that it is sorted by. A column without a number is sorted by its text.
pub struct Column<Row> {
    /// Its name for `--sort`.
    pub name: &'static str,
    pub heading: &'static str,
    pub text: fn(&Row) -> String,
    pub number: Option<fn(&Row) -> Option<f64>>,
    /// How long a narrow terminal keeps it: columns of a lower rank go first.
    pub rank: u8,
    /// The text cut to a width, and the least width that it is cut to while other columns can go.
    pub cut: Option<(Cut<Row>, usize)>,
}

/// Cuts the text of a row to a width.
type Cut<Row> = fn(&Row, usize) -> String;

impl<Row> Column<Row> {
    const fn words(rank: u8, name: &'static str, heading: &'static str, text: fn(&Row) -> String) -> Column<Row> {
        Column { name, heading, text, number: None, rank, cut: None }
    }

    const fn cut_to(self, least: usize, cut: Cut<Row>) -> Column<Row> {
        Column { cut: Some((cut, least)), ..self }
    }

    const fn number(
        rank: u8,
        name: &'static str,
        heading: &'static str,
        text: fn(&Row) -> String,
        number: fn(&Row) -> Option<f64>,
    ) -> Column<Row> {
        Column { name, heading, text, number: Some(number), rank, cut: None }
    }

    pub fn align(&self) -> Align {
        if self.number.is_some() { Align::Right } else { Align::Left }
    }

    /// The order of two rows: numbers descending, text ascending, unknown values last.
    pub fn compare(&self, one: &Row, other: &Row) -> Ordering {
        let Some(number) = self.number else { return (self.text)(one).cmp(&(self.text)(other)) };
        let value = |row: &Row| number(row).unwrap_or(-1.0);
        value(other).total_cmp(&value(one))
    }
}

/// The last one is left out if there is only one worker.
pub const APPS: &[Column<AppRow>] = &[
    Column::<AppRow>::words(9, "app", "APP", |row| row.name.clone()).cut_to(16, |row, room| shortened(&row.name, room)),
    Column::words(0, "type", "TYPE", |row| row.kind.clone()),
    Column::number(
        5,
        "in-rate",
        "IN RATE",
        |row| known(row.in_packets_per_second, packet_rate),
        |row| row.in_packets_per_second,
    ),
    Column::number(
        2,
        "out-rate",
        "OUT RATE",
        |row| known(row.out_packets_per_second, packet_rate),
        |row| row.out_packets_per_second,
    ),
    Column::number(
        6,
        "drop-rate",
        "DROP RATE",
        |row| known(row.drops_per_second, packet_rate),
        |row| row.drops_per_second,
    ),
    Column::number(1, "dropped", "DROPPED", |row| count(row.dropped), |row| Some(row.dropped as f64)),
    Column::number(8, "clocks", "CLOCKS/PKT", |row| known(row.clocks_per_packet, figure), |row| row.clocks_per_packet),
    Column::number(4, "vector", "PKTS/CALL", |row| known(row.packets_per_call, figure), |row| row.packets_per_call),
    Column::number(7, "share", "SHARE", |row| known(row.share, percent), |row| row.share),
    Column::words(3, "worker", "WORKER", |row| row.worker.clone()),
];

pub const LINKS: &[Column<LinkRow>] = &[
    Column::<LinkRow>::words(9, "link", "LINK", |row| format!("{} -> {}", row.from, row.to)).cut_to(28, cut_link),
    Column::number(
        4,
        "packet-rate",
        "PACKET RATE",
        |row| known(row.packets_per_second, packet_rate),
        |row| row.packets_per_second,
    ),
    Column::number(3, "bit-rate", "BIT RATE", |row| known(row.bits_per_second, bit_rate), |row| row.bits_per_second),
    Column::number(0, "packets", "PACKETS", |row| count(row.packets), |row| Some(row.packets as f64)),
    Column::number(1, "waiting", "WAITING", |row| count(row.waiting), |row| Some(row.waiting as f64)),
    Column::number(2, "dropped", "DROPPED", |row| count(row.dropped), |row| Some(row.dropped as f64)),
];

/// Both ends of a link in this many columns. The shorter end leaves what it does not need to the other one.
fn cut_link(row: &LinkRow, room: usize) -> String {
    const ARROW: &str = " -> ";
    let Some(room) = room.checked_sub(ARROW.len()).filter(|room| *room >= 2) else {
        return shortened(&row.from, room);
    };
    let [from, to] = [&row.from, &row.to].map(|end| end.chars().count());
    let from = if from + to <= room { from } else { (room / 2).max(room.saturating_sub(to)).min(from) };
    format!("{}{ARROW}{}", shortened(&row.from, from), shortened(&row.to, room.saturating_sub(from)))
}

fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = APPS.iter().map(|column| column.name).collect();
    let links = LINKS.iter().map(|column| column.name);
    names.extend(links.filter(|name| APPS.iter().all(|column| column.name != *name)));
    names
}

/// The values of `--sort`.
pub fn column_names() -> PossibleValuesParser {
    PossibleValuesParser::new(names())
}

/// The long help of `--sort`.
pub fn sort_help() -> String {
    format!(
        "Sort by this column, numbers in descending and names in ascending order. Without it, rows are in the order of the \
         network file.\n\n\
         Columns: {}",
        names().join(", ")
    )
}

impl TopView {
    /// The changes from the last update to this one, and `total` since the counters were cleared. `problems` has a line
    /// for each.
    pub fn new(
        name: &str,
        state: State,
        end: Option<&'static str>,
        problems: &str,
        change: &Change,
        total: &Change,
    ) -> TopView {
        let rate = |value: f64| end.is_none().then_some(value);
        TopView {
            end,
            head: head(name, state, end, problems, change),
            apps: apps(change, total, rate),
            links: links(change, total, rate),
            has_workers: change.after.counters.workers.len() > 1,
            summary: Summary::of(name, state, end, change),
        }
    }

    /// One line of JSON.
    pub fn json(&self, user: &str) -> Value {
        json!(Update { user, summary: &self.summary, apps: &self.apps, links: &self.links })
    }
}

/// One line of JSON.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Update")]
pub struct Update<'v> {
    #[serde(flatten)]
    summary: &'v Summary,
    /// Its owner.
    user: &'v str,
    /// The apps.
    apps: &'v [AppRow],
    /// The links.
    links: &'v [LinkRow],
}

/// The network as a whole, for programs.
#[derive(Default, JsonSchema, Serialize)]
struct Summary {
    /// The network's name, as commands accept it.
    name: String,
    /// `running` or `stopped`; in the last line `ended` or `crashed`.
    #[schemars(extend("enum" = ["running", "stopped", "crashed", "ended"]))]
    state: &'static str,
    /// Time of the reading: nanoseconds since the Unix epoch.
    at_ns: u64,
    /// Time since the previous line, the interval of the rates.
    seconds: f64,
    /// Uptime of the network.
    uptime_seconds: f64,
    /// Names of the apps that have panicked and are not called any more.
    failed: Vec<String>,
    /// Null, unless the engine has been inside apps for 2 seconds.
    hang: Option<Hang>,
    /// Through the busiest link.
    packets_per_second: Option<f64>,
    /// Through the busiest link.
    bits_per_second: Option<f64>,
    /// The share of the time asleep, from 0 to 1.
    asleep: Option<f64>,
    /// The share of breaths without packets, from 0 to 1; null without breaths.
    idle_breaths: Option<f64>,
    /// The workers.
    #[schemars(with = "Option<Vec<WorkerChange<'static>>>")]
    workers: Value,
    /// Sleeps.
    sleeps_per_second: Option<f64>,
    /// As in [Engine](#engine), since the run began.
    slow_breaths: u64,
    /// As in [Engine](#engine), since the run began.
    standstills: u64,
    /// As in [Engine](#engine).
    buffers: u64,
    /// As in [Engine](#engine).
    buffers_in_use: u64,
    /// As in [Engine](#engine).
    buffers_lent: u64,
    /// The time from a packet's source to its end, within `seconds`.
    latency: Percentiles,
    /// The duration of breaths in which packets moved, within `seconds`.
    breath: Percentiles,
}

impl Summary {
    fn of(name: &str, state: State, end: Option<&'static str>, change: &Change) -> Summary {
        let counters = &change.after.counters;
        let busiest = change.busiest_link();
        let running = end.is_none();
        let rate = |value: f64| running.then_some(value);
        let [latency, breath] = ["latency", "breath"].map(|name| Percentiles::of(&change.histogram(name)));
        Summary {
            name: name.to_owned(),
            state: end.unwrap_or(state.name()),
            at_ns: change.after.at,
            seconds: change.seconds(),
            uptime_seconds: change.after.uptime().as_secs_f64(),
            failed: networks::failed(counters),
            hang: Hang::of(&change.after).filter(|_| state == State::Running),
            packets_per_second: rate(busiest.packets),
            bits_per_second: rate(busiest.bits),
            asleep: rate(change.asleep()),
            idle_breaths: change.idle_breaths().filter(|_| running),
            workers: if running { json!(change.workers().collect::<Vec<_>>()) } else { Value::Null },
            sleeps_per_second: rate(change.engine("sleeps")),
            slow_breaths: counters.engine("slow_breaths"),
            standstills: counters.engine("standstills"),
            buffers: counters.engine("buffers"),
            buffers_in_use: counters.engine("buffers_in_use"),
            buffers_lent: counters.engine("buffers_lent"),
            latency,
            breath,
        }
    }
}

fn head(name: &str, state: State, end: Option<&str>, problems: &str, change: &Change) -> String {
    let counters = &change.after.counters;
    let state = match end {
        None => format!(
            "{} {}\n{problems}{}",
            if state == State::Stopped { "stopped; uptime" } else { "running for" },
            span(change.after.uptime()),
            pace(change)
        ),
        Some(end) => format!("{end}, so its rates are not known\n"),
    };
    format!(
        "{name} (process {}, {}): {state}{}{}\n",
        counters.pid,
        sanitize(&counters.source).replace('\n', " "),
        networks::buffers(counters),
        networks::slow(counters).map(|slow| format!("; {slow}")).unwrap_or_default(),
    )
}

/// The load of a running engine.
fn pace(change: &Change) -> String {
    let mut text = format!("asleep {:.1} % of the time, ", 100.0 * change.asleep());
    if let Some(share) = change.idle_breaths() {
        let _ = write!(text, "{:.0} % of its breaths idle, ", 100.0 * share);
    }
    let _ = writeln!(text, "{} sleeps/s", scaled(change.engine("sleeps")));
    text += &networks::workers(change);
    let times = TIMES.iter().filter_map(|(name, _)| times::brief(name, &change.histogram(name), 2));
    let times: Vec<String> = times.collect();
    if !times.is_empty() {
        let _ = writeln!(text, "{}", times.join("; "));
    }
    let Rate { packets, bits, .. } = change.busiest_link();
    text + &format!("busiest link {}, {}; ", packet_rate(packets), bit_rate(bits))
}

fn apps(change: &Change, total: &Change, rate: impl Fn(f64) -> Option<f64>) -> Vec<AppRow> {
    let accounts = Accounts::of(change);
    let none = AppCounts::default();
    let row = |((before, app), (first, _)): ((Option<&AppCounts>, &AppCounts), (Option<&AppCounts>, _))| {
        let (before, first) = (before.unwrap_or(&none), first.unwrap_or(&none));
        let per_second = |of: fn(&AppCounts) -> u64| rate(change.per_second(of(before), of(app)));
        let cost = accounts.app(&app.name);
        AppRow {
            name: app.name.clone(),
            kind: app.kind.clone(),
            in_packets_per_second: per_second(|app| app.in_packets),
            out_packets_per_second: per_second(|app| app.out_packets),
            drops_per_second: per_second(AppCounts::dropped),
            dropped: app.dropped().saturating_sub(first.dropped()),
            clocks_per_packet: cost.clocks_per_packet,
            packets_per_call: cost.packets_per_call,
            share: cost.share,
            worker: app.worker.clone(),
        }
    };
    change.apps().zip(total.apps()).map(row).collect()
}

fn links(change: &Change, total: &Change, rate: impl Fn(f64) -> Option<f64>) -> Vec<LinkRow> {
    let row = |((link, now), (first, _)): ((&LinkCounts, Rate), (Option<&LinkCounts>, _))| {
        let grown = |of: fn(&LinkCounts) -> u64| of(link).saturating_sub(first.map_or(0, of));
        LinkRow {
            from: link.from.clone(),
            to: link.to.clone(),
            packets_per_second: rate(now.packets),
            bits_per_second: rate(now.bits),
            packets: grown(|link| link.packets),
            waiting: link.waiting,
            dropped: grown(|link| link.txdrop),
        }
    };
    change.links().zip(total.link_counts()).map(row).collect()
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An update of a network of this many apps in a row, with rising load.
    pub fn view(apps: usize) -> TopView {
        let name = |index: usize| format!("app{index}");
        let app = |index: usize| AppRow {
            name: name(index),
            kind: "tee".into(),
            in_packets_per_second: Some(index as f64),
            ..AppRow::default()
        };
        let link = |index: usize| LinkRow {
            from: name(index) + ".output",
            to: name(index + 1) + ".input",
            packets: index as u64,
            ..LinkRow::default()
        };
        TopView {
            end: None,
            head: "net (process 7): running\n".into(),
            apps: (0..apps).map(app).collect(),
            links: (0..apps - 1).map(link).collect(),
            has_workers: false,
            summary: Summary { name: "net".to_owned(), ..Summary::default() },
        }
    }

    impl AppRow {
        /// Gives the app another name.
        pub fn lengthen(&mut self, name: &dyn Fn(&str) -> String) {
            self.name = name(&self.name);
        }
    }

    impl LinkRow {
        /// Gives the apps of its ends other names.
        pub fn lengthen(&mut self, name: &dyn Fn(&str) -> String) {
            for end in [&mut self.from, &mut self.to] {
                let (app, port) = end.rsplit_once('.').unwrap();
                *end = format!("{}.{port}", name(app));
            }
        }
    }

    #[test]
    fn an_update_is_one_line_of_json() {
        let line = view(3).json("ada").to_string();
        assert!(!line.contains('\n'), "{line}");
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(
            (&value["apps"][2]["in_packets_per_second"], &value["links"][1]["packets"]),
            (&json!(2.0), &json!(1))
        );
    }
}

//! `bellows show run`: the cost of each app.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use bellows_inspect::accounting::{Accounts, CostRow, MIN_SAMPLED_CALLS};
use bellows_inspect::baseline::Since;
use bellows_inspect::compounds::{self, CompoundCost};
use bellows_inspect::networks::{self, Change, Sample, State};
use bellows_inspect::reports::{self, Costs, Subject};
use bellows_observe::RuntimeDir;
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::ShowPart;
use super::advice::{Advice, AdviceReport};
use crate::command_error::CommandError;
use crate::terminal;
use crate::text::{Align, Table, UNKNOWN, bit_rate, count, figure, known, packet_rate, percent, plural, scaled, span};

/// The options of the table.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Options of `show run` and `show counters`")]
pub struct RunOptions {
    /// Sort rows by this column, see --help [default: share]
    ///
    /// Columns: share (of all clocks), clocks (per packet), vector (packets per call), calls, packets, name, file (the
    /// order of the network file). Numbers are in descending order, names in ascending order.
    #[arg(long, value_enum, value_name = "COLUMN", hide_possible_values = true)]
    sort: Option<Sort>,
    /// Also show uncalled apps; for `show counters`, zeros
    #[arg(long)]
    all: bool,
    /// Name apps that wait for packet data [default: 5s]
    ///
    /// For `show run`: tries look-ahead for this time. For some calls, chosen at random, the network prefetches the packets first. If a call and the prefetches together
    /// take less time than a call without, then the app looks ahead too little. Packets and their order do not change.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5s")]
    advise: Option<bellows_config::Duration>,
}

impl RunOptions {
    /// Rejects options that belong to another part.
    pub fn check(&self, part: Option<ShowPart>) -> Result<(), CommandError> {
        if self.sort.is_some() && part != Some(ShowPart::Run) {
            return Err(CommandError::Usage("--sort is for `show run`".to_owned()));
        }
        if self.all && !matches!(part, Some(ShowPart::Run | ShowPart::Counters)) {
            return Err(CommandError::Usage("--all is for `show run` and `show counters`".to_owned()));
        }
        if self.advise.is_some() && part != Some(ShowPart::Run) {
            return Err(CommandError::Usage("--advise is for `show run`".to_owned()));
        }
        Ok(())
    }

    /// Whether to include rows that are 0.
    pub fn all(&self) -> bool {
        self.all
    }
}

/// The column to sort by, numbers in descending order, names in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Share of all clocks
    Share,
    /// Clocks a packet
    Clocks,
    /// Packets a call
    Vector,
    /// Calls
    Calls,
    /// Packets
    Packets,
    /// Name of the app
    Name,
    /// As in the network file
    File,
}

impl Sort {
    fn compare(self, one: &CostRow, other: &CostRow) -> Ordering {
        let falling = |of: fn(&CostRow) -> Option<f64>| {
            let value = |row: &CostRow| of(row).unwrap_or(-1.0);
            value(other).total_cmp(&value(one))
        };
        match self {
            Sort::Share => falling(|row| row.share),
            Sort::Clocks => falling(|row| row.sampled.clocks_per_packet()),
            Sort::Vector => falling(CostRow::packets_per_call),
            Sort::Calls => other.calls.cmp(&one.calls),
            Sort::Packets => other.packets.cmp(&one.packets),
            Sort::Name => one.app.cmp(&other.app),
            Sort::File => Ordering::Equal,
        }
    }
}

pub fn execute(runtime_dir: RuntimeDir, options: &RunOptions, json: bool) -> Result<ExitCode, CommandError> {
    let (name, user, state) = (runtime_dir.name(), runtime_dir.user(), networks::state(&runtime_dir));
    let advise = |duration: bellows_config::Duration| Advice::ask(&runtime_dir, duration.std());
    let advice = options.advise.map(advise).transpose()?;
    let mut observer = networks::open(runtime_dir)?;
    let now = Sample::settled(&mut observer);
    let since = Since::read(observer.runtime_dir(), &now);
    let cleared = since.is_clear();
    let change = Change::between(since.sample().clone(), now);
    let view = EngineView { name, user, state, cleared, accounts: Accounts::of(&change), change, advice };
    let text =
        if json { format!("{:#}\n", view.json(options)) } else { view.render(options, terminal::stdout_is_rich()) };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The costs of all apps, perhaps with a trial.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown costs")]
pub struct ShownCosts<'v> {
    #[serde(flatten)]
    costs: Costs<'v>,
    /// With `--advise`: the result of a trial of look-ahead.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<AdviceReport<'v>>,
}

/// The figures of an engine.
struct EngineView {
    name: String,
    user: String,
    state: State,
    /// Whether `bellows clear` has been run.
    cleared: bool,
    change: Change,
    accounts: Accounts,
    /// What a trial found, if one was asked for.
    advice: Option<Advice>,
}

impl EngineView {
    /// Sampled breaths.
    fn sampled(&self) -> u64 {
        self.change.engine_total("sampled_breaths")
    }

    fn rows(&self, options: &RunOptions) -> Vec<&CostRow> {
        let mut rows: Vec<&CostRow> = self.accounts.rows.iter().filter(|row| row.is_used() || options.all).collect();
        let sort = options.sort.unwrap_or(Sort::Share);
        rows.sort_by(|one, other| sort.compare(one, other));
        rows
    }

    fn json(&self, options: &RunOptions) -> Value {
        let EngineView { name, user, state, cleared, change, accounts, .. } = self;
        let subject = Subject { name: name.clone(), user: user.clone(), state: *state };
        let costs = Costs::of(&subject, *cleared, change, accounts, &self.rows(options));
        json!(ShownCosts { costs, advice: self.advice.as_ref().map(Advice::report) })
    }

    fn render(&self, options: &RunOptions, rich: bool) -> String {
        let rows = self.rows(options);
        let head = self.head();
        let advice = self.advice.as_ref().map_or(String::new(), |advice| format!("\n{}", advice.render(rich)));
        if rows.is_empty() {
            return format!("{head}\nno app has been called\n{advice}");
        }
        let sums = compounds::costs(&self.change, &self.accounts);
        let sums = if sums.is_empty() { String::new() } else { format!("{}\n", sum_table(&sums).render(rich)) };
        format!("{head}\n{}\n{sums}{}{advice}", table(&rows).render(rich), self.notes(&rows))
    }

    fn head(&self) -> String {
        let change = &self.change;
        let counters = &change.after.counters;
        let (time, since) = (span(Duration::from_secs_f64(change.seconds())), change.after.uptime());
        let state = match self.state {
            State::Running => "running",
            State::Stopped => "stopped; uptime",
            State::Crashed => "crashed after",
        };
        let state = match self.cleared {
            true => format!("{state} {}, counted for {time} since `bellows clear`", span(since)),
            false => format!("{state} {time}"),
        };
        let idle = change.idle_breaths().map_or(String::new(), |share| format!(" ({} idle)", percent(share)));
        let busiest = change.busiest_link();
        format!(
            "{} (process {}, schedule {}): {state}\n\
             {} breaths/s{idle}; in apps {} of the time, asleep {}, {} sleeps/s\n\
             busiest link {}, {}; dropped {}\n",
            self.name,
            counters.pid,
            counters.schedule,
            scaled(change.engine("breaths")),
            known(reports::in_apps(&self.change, &self.accounts), percent),
            percent(change.asleep()),
            scaled(change.engine("sleeps")),
            packet_rate(busiest.packets),
            bit_rate(busiest.bits),
            packet_rate(reports::drops_per_second(&self.change)),
        ) + &networks::workers(change)
    }

    /// Which figures are exact, and which are estimates.
    fn notes(&self, rows: &[&CostRow]) -> String {
        let sampled = self.sampled();
        if sampled == 0 {
            return "Calls and packets are exact. No breath was sampled so far, so clocks are not known.\n".to_owned();
        }
        let mut text = format!(
            "Calls and packets are exact{}; clocks, {} a second, are those of {} breaths chosen at random.",
            if rows.iter().any(|row| row.packets_estimated) { ", estimated after a ~" } else { "" },
            scaled(self.change.after.counters.ticks_per_second as f64),
            count(sampled),
        );
        let sum = |of: fn(&CostRow) -> u64| rows.iter().map(|row| of(row)).fold(0, u64::saturating_add);
        let (outliers, clocks) = (sum(|row| row.sampled.outlier_calls), sum(|row| row.sampled.outlier_clocks));
        if outliers > 0 {
            let hz = self.change.after.counters.ticks_per_second.max(1);
            let time = span(Duration::from_secs_f64(clocks as f64 / hz as f64));
            text += &format!(
                "\nLeft out: {} that took far longer than usual, {time} in all: interrupted, or slow; see `bellows timeline`.",
                plural(outliers, "call"),
            );
        }
        if rows.iter().any(|row| row.sampled.calls < MIN_SAMPLED_CALLS) {
            text += &format!("\n– stands for figures of fewer than {MIN_SAMPLED_CALLS} calls in these.");
        }
        text + "\n"
    }
}

/// The order and headings of events. Other events follow, under their own names.
const EVENTS: [(&str, &str); 6] = [
    ("instructions", "INSTR/PKT"),
    ("branch_misses", "BR MISS/PKT"),
    ("l1_hits", "L1/PKT"),
    ("l2_hits", "L2/PKT"),
    ("l3_hits", "L3/PKT"),
    ("l3_misses", "L3 MISS/PKT"),
];

/// Events without a column of their own: `instructions for each cycle` covers them.
const CYCLES: [&str; 2] = ["cycles", "ref_cycles"];

/// The counted events, and their headings.
fn events(rows: &[&CostRow]) -> Vec<(String, Cow<'static, str>)> {
    let known: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.sampled.events.keys())
        .map(String::as_str)
        .filter(|it| !CYCLES.contains(it))
        .collect();
    let named = EVENTS.iter().filter(|(event, _)| known.contains(event));
    let named = named.map(|(event, heading)| ((*event).to_owned(), Cow::Borrowed(*heading)));
    let others = known.iter().filter(|other| EVENTS.iter().all(|(event, _)| event != *other));
    let heading = |event: &str| Cow::Owned(event.to_uppercase().replace('_', " ") + "/PKT");
    named.chain(others.map(|event| ((*event).to_owned(), heading(event)))).collect()
}

/// The sums of compound apps. Packets are those that come in, so clocks are those of a packet's whole way.
fn sum_table(sums: &[CompoundCost]) -> Table {
    let mut table = Table::new(&[
        ("COMPOUND APP", Align::Left),
        ("PARTS", Align::Right),
        ("PACKETS", Align::Right),
        ("CLOCKS/PKT", Align::Right),
        ("SHARE", Align::Right),
    ]);
    for sum in sums {
        table.row([
            sum.name.clone(),
            sum.parts.to_string(),
            sum.packets.map_or_else(|| UNKNOWN.to_owned(), count),
            known(sum.clocks_per_packet, figure),
            known(sum.share, percent),
        ]);
    }
    table
}

/// The column of clocks for a packet.
const CLOCKS: usize = 6;

fn table(rows: &[&CostRow]) -> Table {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("ENTRY", Align::Left),
        ("CALLS", Align::Right),
        ("PACKETS", Align::Right),
        ("SLEEPS", Align::Right),
        ("CLOCKS/PKT", Align::Right),
        ("PKTS/CALL", Align::Right),
    ]);
    let with_workers = rows.iter().any(|row| row.worker != rows[0].worker);
    // Where no packets are moved, only the call has a cost.
    let with_calls = rows.iter().any(|row| row.sampled.packets == 0 && row.sampled.clocks_per_call().is_some());
    if with_calls {
        table.column("CLOCKS/CALL", Align::Right);
    }
    let events = events(rows);
    let with_ipc = rows.iter().any(|row| row.sampled.instructions_per_cycle().is_some());
    if with_ipc {
        table.column("IPC", Align::Right);
    }
    for (_, heading) in &events {
        table.column(heading.clone(), Align::Right);
    }
    table.column("SHARE", Align::Right);
    if with_workers {
        table.column("WORKER", Align::Left);
    }
    for row in rows {
        let sampled = &row.sampled;
        let mark = if row.packets_estimated { "~" } else { "" };
        let mut cells = vec![
            row.app.clone(),
            row.state.clone(),
            row.entry.to_owned(),
            count(row.calls),
            row.packets.map_or_else(|| UNKNOWN.to_owned(), |packets| format!("{mark}{}", count(packets))),
            count(row.sleeps),
            known(sampled.clocks_per_packet(), figure),
            row.packets_per_call().map_or_else(|| UNKNOWN.to_owned(), |each| format!("{mark}{}", figure(each))),
        ];
        if with_calls {
            cells.push(known(sampled.clocks_per_call(), figure));
        }
        if with_ipc {
            cells.push(known(sampled.instructions_per_cycle(), figure));
        }
        cells.extend(events.iter().map(|(event, _)| known(sampled.per_packet(event), figure)));
        cells.push(known(row.share, percent));
        if with_workers {
            cells.push(row.worker.clone());
        }
        let columns = cells.len();
        table.row(cells);
        for stage in &row.stages {
            let mut cells = vec![String::new(); columns];
            cells[0] = format!("  {}", stage.stage);
            cells[CLOCKS] = figure(stage.clocks_per_packet);
            table.row(cells);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_inspect::testing::{SINK, any_apps, app, second};
    use bellows_observe::AppCounts;
    use proptest::prelude::*;

    fn view(before: Vec<AppCounts>, after: Vec<AppCounts>) -> EngineView {
        let change = second(before, after);
        let accounts = Accounts::of(&change);
        EngineView {
            name: "router".to_owned(),
            user: "ada".to_owned(),
            state: State::Running,
            cleared: true,
            change,
            accounts,
            advice: None,
        }
    }

    fn options(sort: Option<Sort>, all: bool) -> RunOptions {
        RunOptions { sort, all, advise: None }
    }

    fn three() -> Vec<AppCounts> {
        let pulled = [("pull_calls", 200), ("pull_packets", 12_800), ("pull_clocks", 128_000)];
        let idle = [("push_calls", 3), ("push_packets", 3), ("push_clocks", 90)];
        vec![
            app("source", [0, 1_280_000], &[("pull", 20_000), ("tick", 1)], &pulled),
            app("rare", [7, 0], &[("push", 7)], &idle),
            app("sink", [1_280_000, 0], &[("push", 10_000)], &SINK),
        ]
    }

    #[test]
    fn an_app_that_does_the_work_of_several_shows_its_stages() {
        let mut forward = app("forward", [1_280_000, 1_280_000], &[("push", 10_000)], &SINK);
        let counters = [("recorded", 1_000), ("input_clocks", 5_000), ("rewrite_clocks", 6_500), ("unmade", 7)];
        forward.counters = counters.map(|(name, count)| (name.to_owned(), count)).into();
        let before = AppCounts { counters: forward.counters.clone(), ..AppCounts::default() };
        let shown = view(vec![AppCounts::default()], vec![forward.clone()]);
        let of_push = |row: &&Value| row["entry"] == "push";
        let rows = shown.json(&options(None, false))["rows"].as_array().unwrap().clone();
        let stages = &rows.iter().find(of_push).unwrap()["stages"];
        assert_eq!(stages[0], json!({ "stage": "input", "clocks_per_packet": 5.0 }), "{stages}");
        let text = shown.render(&options(None, false), false);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows.contains(&vec!["input", "5.00"]) && rows.contains(&vec!["rewrite", "6.50"]), "{text}");
        // Nothing was recorded meanwhile.
        let text = view(vec![AppCounts { name: forward.name.clone(), ..before }], vec![forward]);
        assert!(!text.render(&options(None, false), false).contains("input"));
    }

    fn order(view: &EngineView, sort: Option<Sort>) -> Vec<&str> {
        view.rows(&options(sort, false)).iter().map(|row| row.app.as_str()).collect()
    }

    #[test]
    fn the_table_says_where_the_clocks_go() {
        let text = view(vec![], three()).render(&options(None, false), false);
        let expected = "\
NAME    STATE   ENTRY   CALLS    PACKETS  SLEEPS  CLOCKS/PKT  PKTS/CALL   SHARE
sink    active  push   10,000  1,280,000       0        20.0        128  66.7 %
source  active  pull   20,000  1,280,000       0        10.0       64.0  33.3 %
rare    active  push        7          7       0           –       1.00   0.0 %

Calls and packets are exact; clocks, 1.00 G a second, are those of 1,000 breaths chosen at random.
– stands for figures of fewer than 16 calls in these.
";
        assert!(text.ends_with(expected), "{text}");
        assert!(
            text.contains("counted for 1.00 s since `bellows clear`\n100 k breaths/s (0.0 % idle); in apps 3.8 %"),
            "{text}"
        );
        let nothing = view(three(), three()).render(&options(None, false), false);
        assert!(nothing.ends_with("\n\nno app has been called\n"), "{nothing}");
    }

    #[test]
    fn compound_apps_have_sums() {
        let part = |name: &str| app(name, [1_280_000, 0], &[("push", 10_000)], &SINK);
        let view = view(vec![], vec![part("edge/in"), part("edge/out"), part("end")]);
        let text = view.render(&options(None, false), false);
        let expected = "
COMPOUND APP  PARTS  PACKETS  CLOCKS/PKT   SHARE
edge              2        –           –  66.7 %

Calls";
        assert!(text.contains(expected), "{text}");
        let json = view.json(&options(None, false));
        assert_eq!((&json["compounds"][0]["name"], &json["compounds"][0]["parts"]), (&json!("edge"), &json!(2)));
    }

    #[test]
    fn rows_are_sorted_as_asked() {
        let view = view(vec![], three());
        assert_eq!(order(&view, None), ["sink", "source", "rare"]);
        assert_eq!(order(&view, Some(Sort::Calls)), ["source", "sink", "rare"]);
        assert_eq!(order(&view, Some(Sort::Name)), ["rare", "sink", "source"]);
        assert_eq!(order(&view, Some(Sort::File)), ["source", "rare", "sink"]);
        assert_eq!(order(&view, Some(Sort::Vector)), ["sink", "source", "rare"]);
        assert_eq!(view.rows(&options(None, true)).len(), 9);
    }

    #[test]
    fn columns_depend_on_the_available_figures() {
        let events = [("push_instructions", 25_600), ("push_cycles", 12_800), ("push_branch_misses", 128)];
        let events = [&events[..], &[("push_page_faults", 64), ("push_ref_cycles", 9)]].concat();
        let waiting = [("pull_calls", 100), ("pull_clocks", 3_000)];
        let apps = vec![
            app("sink", [12_800, 0], &[("push", 100)], &[&SINK[..], &events].concat()),
            app("poll", [0, 0], &[("pull", 100)], &waiting),
        ];
        let text = view(vec![], apps).render(&options(None, false), false);
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap();
        let heading: Vec<&str> = line("NAME").split("  ").map(str::trim).filter(|word| !word.is_empty()).collect();
        assert_eq!(
            heading[6..],
            ["CLOCKS/PKT", "PKTS/CALL", "CLOCKS/CALL", "IPC", "INSTR/PKT", "BR MISS/PKT", "PAGE FAULTS/PKT", "SHARE"]
        );
        assert!(
            line("sink")
                .ends_with("20.0        128        2,560  2.00       2.00        0.010             5e-3  98.8 %"),
            "{text}"
        );
        assert!(
            line("poll").ends_with("–          0         30.0     –          –            –                –   1.2 %"),
            "{text}"
        );
    }

    proptest! {
        /// The counters of a damaged file can be printed, and cannot control the terminal.
        #[test]
        fn any_counters_can_be_printed(before in any_apps(), after in any_apps(), all in any::<bool>()) {
            let view = view(before, after);
            let text = view.render(&options(None, all), false) + &view.json(&options(Some(Sort::Clocks), all)).to_string();
            prop_assert!(!text.contains('\u{1b}') && !text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }
}

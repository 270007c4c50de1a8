//! `bellows ps`.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use bellows_engine::{Home, Observer};
use clap::Args;
use serde::Serialize;

use crate::failure::Failure;
use crate::observe::{self, Change, Sample, State};
use crate::terminal;
use crate::text::{Align, Table, packet_rate, span};

/// List the networks that run, and those that crashed and left their counters
#[derive(Debug, Args)]
pub struct Arguments {
    /// Remove what networks that crashed have left
    #[arg(long)]
    clean: bool,
    /// Print the list as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
    name: String,
    state: State,
    pid: Option<u32>,
    uptime_seconds: Option<f64>,
    packets_per_second: Option<f64>,
    network: String,
    schedule: String,
}

/// How long the rates are measured.
const MEASURED: Duration = Duration::from_millis(200);

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.clean {
        clean()?;
    }
    let lines = lines();
    if arguments.json {
        terminal::print(&format!("{:#}\n", serde_json::json!(lines)))?;
        return Ok(ExitCode::SUCCESS);
    }
    if lines.is_empty() {
        terminal::complain(&format!("no network is running; {}\n", observe::where_looked()));
    }
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("STATE", Align::Left),
        ("PID", Align::Right),
        ("UPTIME", Align::Right),
        ("RATE", Align::Right),
        ("NETWORK", Align::Left),
    ]);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    for line in lines {
        table.row([
            line.name,
            if line.state == State::Running { "running" } else { "crashed" }.to_owned(),
            or_dash(line.pid.map(|pid| pid.to_string())),
            or_dash(line.uptime_seconds.map(|seconds| span(Duration::from_secs_f64(seconds)))),
            or_dash(line.packets_per_second.map(packet_rate)),
            line.network,
        ]);
    }
    terminal::print(&table.render(terminal::stdout_is_rich()))?;
    Ok(ExitCode::SUCCESS)
}

fn clean() -> Result<(), Failure> {
    for home in Home::all().into_iter().filter(|home| observe::state(home) == State::Crashed) {
        let name = home.name();
        home.remove().map_err(|error| Failure::Failed(format!("cannot remove what `{name}` left: {error}")))?;
        terminal::complain(&format!("removed what `{name}` left\n"));
    }
    Ok(())
}

/// All engines, the rates of those that run measured at the same time.
fn lines() -> Vec<Line> {
    let mut engines: Vec<(String, Option<u32>, Option<Observer>)> =
        Home::all().into_iter().map(|home| (home.name(), home.process(), Observer::open(home).ok())).collect();
    let sample = |engines: &mut Vec<(String, Option<u32>, Option<Observer>)>| -> Vec<Option<Sample>> {
        engines.iter_mut().map(|(_, _, observer)| observer.as_mut().map(Sample::take)).collect()
    };
    let before = sample(&mut engines);
    if engines.iter().any(|(_, pid, _)| pid.is_some()) {
        thread::sleep(MEASURED);
    }
    let after = sample(&mut engines);
    let changes = before.into_iter().zip(after).map(|(before, after)| Some(Change::between(before?, after?)));
    let line = |((name, pid, _), change): ((String, Option<u32>, _), Option<Change>)| {
        let running = change.as_ref().filter(|_| pid.is_some());
        Line {
            name,
            state: if pid.is_some() { State::Running } else { State::Crashed },
            pid,
            uptime_seconds: running.map(|change| change.after.uptime().as_secs_f64()),
            packets_per_second: running.map(|change| change.busiest_link().packets),
            network: change.as_ref().map(|change| change.after.counters.source.clone()).unwrap_or_default(),
            schedule: change.as_ref().map(|change| change.after.counters.schedule.clone()).unwrap_or_default(),
        }
    };
    engines.into_iter().zip(changes).map(line).collect()
}

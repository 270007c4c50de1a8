//! `bellows show`.

mod breath;
mod hot;
mod latency;
mod run;
mod vhost;

use std::process::ExitCode;

use bellows_engine::Snapshot;
use clap::Args;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::observe::{self, Sample, State};
use crate::report;
use crate::terminal::{self, harmless};
use crate::text::{count, span};

/// Show the counters of a running network, or those that one left when it crashed, how it breathes, or where it spends its time
///
/// Without a part, all of them are shown. NAME is needed only if several networks run. For vhost it may also be that of an app.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The part: run (what each app costs), latency (how long packets and breaths take), hot (in which instructions the
    /// time is spent, by samples), apps, links, errors (what was dropped and why), config (the network file), breath (the
    /// calls of a breath in order, and their machine code) or vhost (virtio devices: their sockets, what was negotiated, the
    /// instance that serves each ring, and its counters)
    #[arg(value_name = "PART")]
    first: Option<String>,
    /// The network's name; for vhost, that of an app shows this one alone
    #[arg(value_name = "NAME")]
    second: Option<String>,
    /// Print all counters, or that part (run, latency, hot, breath, vhost), as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    run: run::Options,
    #[command(flatten)]
    hot: hot::Options,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    All,
    Apps,
    Links,
    Errors,
    Config,
    Breath,
    Run,
    Latency,
    Hot,
    Vhost,
}

impl Arguments {
    /// Which part of which network. A single word that names no part is a network's name.
    fn read(&self) -> Result<(Part, Option<&str>), Failure> {
        let part = match self.first.as_deref() {
            None => Some(Part::All),
            Some("apps") => Some(Part::Apps),
            Some("links") => Some(Part::Links),
            Some("errors") => Some(Part::Errors),
            Some("config") => Some(Part::Config),
            Some("breath") => Some(Part::Breath),
            Some("run") => Some(Part::Run),
            Some("latency") => Some(Part::Latency),
            Some("hot") => Some(Part::Hot),
            Some("vhost") => Some(Part::Vhost),
            Some(_) => None,
        };
        match (part, &self.second) {
            (Some(part), name) => Ok((part, name.as_deref())),
            (None, None) => Ok((Part::All, self.first.as_deref())),
            (None, Some(_)) => {
                let first = self.first.as_deref().unwrap_or_default();
                Err(Failure::Mistake(format!(
                    "there is no part `{first}`; there are run, latency, hot, apps, links, errors, config, \
                     breath and vhost"
                )))
            }
        }
    }
}

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (part, name) = arguments.read()?;
    if arguments.run.is_given() && part != Part::Run {
        return Err(Failure::Mistake("--sort and --all are for `show run`".to_owned()));
    }
    if arguments.hot.is_given() && part != Part::Hot {
        return Err(Failure::Mistake("--app, --for and --top are for `show hot`".to_owned()));
    }
    if part == Part::Vhost {
        return vhost::execute(name, arguments.json);
    }
    let home = observe::pick(name)?;
    match part {
        Part::Breath => return breath::execute(&home, arguments.json),
        Part::Run => return run::execute(home, &arguments.run, arguments.json),
        Part::Latency => return latency::execute(home, arguments.json),
        Part::Hot => return hot::execute(&home, &arguments.hot, arguments.json),
        Part::All | Part::Apps | Part::Links | Part::Errors | Part::Config | Part::Vhost => {}
    }
    let (name, state, pid) = (home.name(), observe::state(&home), home.process());
    let mut observer = observe::open(home)?;
    let sample = Sample::take(&mut observer);
    let counters = &sample.counters;
    if arguments.json {
        let mut value = json!(counters);
        value["name"] = json!(name);
        value["state"] = json!(state);
        value["config"] = Value::from(observer.directory().config.clone());
        terminal::print(&format!("{value:#}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rich = terminal::stdout_is_rich();
    if state == State::Crashed {
        terminal::complain(&format!("`{name}` (process {}) has crashed; this is what it left\n", counters.pid));
    }
    let text = match part {
        Part::All => {
            let head = match pid {
                Some(pid) => format!("{name}: running for {} (process {pid})", span(sample.uptime())),
                None => format!("{name}: crashed (process {})", counters.pid),
            };
            format!(
                "{head}, {}\n\n{}\n{}",
                harmless(&counters.source),
                report::counters(counters, rich),
                engine(counters)
            )
        }
        Part::Apps => report::apps(counters).render(rich),
        Part::Links => report::links(counters).render(rich),
        Part::Errors => {
            let drops = report::drops(counters);
            if drops.is_empty() { "nothing was dropped\n".to_owned() } else { drops.render(rich) }
        }
        Part::Config | Part::Breath | Part::Run | Part::Latency | Part::Hot | Part::Vhost => {
            let text = harmless(&observer.directory().config);
            if text.ends_with('\n') { text } else { text + "\n" }
        }
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The engine's own counters, in a line.
fn engine(counters: &Snapshot) -> String {
    format!(
        "schedule {}; {} breaths, {} of them idle; {} naps; {} of {} buffers in use; {} reloads\n",
        counters.schedule,
        count(counters.engine("breaths")),
        count(counters.engine("idle_breaths")),
        count(counters.engine("naps")),
        count(counters.engine("buffers_in_use")),
        count(counters.engine("buffers")),
        count(counters.engine("reloads")),
    )
}

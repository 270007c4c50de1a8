//! `bellows place`.

mod crossing;
mod expectation;
mod processors;
pub mod view;

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use bellows_config::{AssignError, Assignment, NetworkFiles, nearest};
use bellows_engine::MAIN;
use bellows_inspect::baseline::Since;
use bellows_inspect::crossings::CrossingMeter;
use bellows_inspect::networks::{self, Access, Change, Sample, State};
use bellows_inspect::placing::{Costs, PlacementPlan, Proposal};
use bellows_inspect::processors::{Machine, list};
use bellows_inspect::reports::Subject;
use bellows_observe::Observer;
use clap::Args;
use serde_json::json;

use self::expectation::Expectation;
use self::processors::Choice;
use self::view::{PlacementComparison, PlacementView};
use crate::arguments::NetworkName;
use crate::command_error::CommandError;
use crate::operating::network;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::plural;

/// Propose workers for a running network's apps, from their costs
///
/// Shows the present placement and a better one: the busiest worker has as little to do as possible, then as few packets
/// as possible cross from worker to worker. Costs are those of `show run`, since the start of the run or the last `bellows
/// clear`, so measure under the load that matters. Ports at network interfaces are placed beside the processors of their
/// interrupts, and workers on cores of their own in one memory node.
///
/// The cost of a crossing is that of the network's own crossings. If there are none, it is measured between processors
/// of the workers, which takes these from the network for about 10 ms.
///
/// --write changes `worker` and `cpu` in the network file and keeps its comments; `bellows reload NAME` then puts the
/// placement into effect, and --check compares the expected costs with those measured.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    network: NetworkName,
    /// Number of workers, with `main` [default: one for each processor that the network may use, at least 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MAX_WORKERS))]
    workers: Option<u16>,
    /// Processors to use, such as `0-3,8` [default: those that the network may use]
    #[arg(long, value_name = "LIST", value_parser = processor_list)]
    cpus: Option<Processors>,
    /// Leave the choice of processors to the kernel: propose and write no `cpu`
    #[arg(long, conflicts_with = "cpus")]
    no_cpus: bool,
    /// Leave this app on its worker (repeatable)
    #[arg(long, value_name = "APP")]
    keep: Vec<String>,
    /// Assume the cost of crossings, do not measure it
    #[arg(long)]
    assume_crossings: bool,
    /// Measure for this time [default: the counts so far, 2s after a reload and with --check; then up to 10s more until
    /// enough is measured]
    #[arg(long, value_name = "TIME")]
    time: Option<bellows_config::Duration>,
    /// Write the proposal into the network file
    #[arg(long)]
    write: bool,
    /// Compare the placement written last with what is measured
    #[arg(long, conflicts_with_all = ["write", "workers", "cpus", "no_cpus", "keep", "assume_crossings"])]
    check: bool,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

/// The maximum number of workers.
const MAX_WORKERS: i64 = 256;

/// The time to measure if the counts so far are of several configurations.
const MEASURED_TIME: bellows_config::Duration = bellows_config::Duration::from_secs(2);

/// The longest wait for enough samples, and the time between two looks at them.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(250);

/// A list of processors as an argument.
#[derive(Clone, Debug)]
struct Processors(Vec<usize>);

fn processor_list(text: &str) -> Result<Processors, String> {
    let mut processors = list(text);
    let is_list = text.chars().all(|letter| letter.is_ascii_digit() || matches!(letter, ',' | '-' | ' '));
    if processors.is_empty() || !is_list {
        return Err("give processors, counted from 0, such as `0-3,8`".to_owned());
    }
    processors.sort_unstable();
    processors.dedup();
    Ok(Processors(processors))
}

impl Execute for Arguments {
    const READS: &'static [&'static str] = &["place NAME --time 1s", "place -n NAME --check"];
    const CHANGES: &'static [&'static str] = &["place -n NAME --write"];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let runtime_dir = network(self.network.get(), Access::Read)?;
        if self.write {
            networks::refuse_foreign(&runtime_dir, "place --write", "only its user may change its placement")?;
        }
        let (name, user, state) = (runtime_dir.name(), runtime_dir.user(), networks::state(&runtime_dir));
        if state != State::Running {
            let state = if state == State::Stopped { "is stopped" } else { "has crashed" };
            let message = format!("`{name}` {state}; only the load of a running network can be placed");
            return Err(CommandError::Usage(message));
        }
        let mut observer = networks::open(runtime_dir)?;
        let network = Subject { name, user, state };
        if self.check { self.compare(&mut observer, network) } else { self.propose(&mut observer, network) }
    }
}

impl Arguments {
    /// The costs, since the start of the counts or over the time that was asked for.
    fn measure(&self, observer: &mut Observer) -> Result<(Change, Costs), CommandError> {
        let now = Sample::settled(observer);
        let since = Since::read(observer.runtime_dir(), &now);
        let so_far = Change::between(since.sample().clone(), now);
        let is_mixed = so_far.engine_total("reloads") > 0;
        let time = self.time.or((self.check || is_mixed).then_some(MEASURED_TIME));
        let mut change = match time {
            Some(time) => {
                thread::sleep(time.into());
                Change::between(so_far.after, Sample::settled(observer))
            }
            None => so_far,
        };
        let deadline = Instant::now() + PATIENCE;
        let lacking = loop {
            let lacking = match Costs::of(&change) {
                Ok(mut costs) => {
                    let apps = observer.directory().apps.iter();
                    costs.tie(apps.filter_map(|app| Some((&*app.name, app.moves_with.as_deref()?))));
                    return Ok((change, costs));
                }
                Err(lacking) => lacking,
            };
            if self.time.is_some() || Instant::now() > deadline {
                break lacking;
            }
            thread::sleep(LOOK);
            let now = Sample::settled(observer);
            if Change::between(change.after, now.clone()).busiest_link().packets == 0.0 {
                break lacking;
            }
            change = Change::between(change.before, now);
        };
        Err(CommandError::Usage(format!(
            "not enough is measured of `{}`: {lacking}; give it load and wait, or measure longer, such as --time 10s",
            observer.runtime_dir().name()
        )))
    }

    fn propose(&self, observer: &mut Observer, network: Subject) -> Result<ExitCode, CommandError> {
        let (change, mut costs) = self.measure(observer)?;
        self.check_kept(&costs)?;
        let machine = Machine::default();
        let choice = Choice::new(&machine, observer.runtime_dir(), self.cpus.as_ref().map(|list| &*list.0))?;
        let workers = self.worker_count(&choice, &costs)?;
        let proposal = self.search(&choice, &mut costs, workers);
        let mut today = costs.today();
        choice.find_pinned(&mut today);
        let mut proposed = proposal.plan;
        if !self.no_cpus {
            choice.assign(&costs, &mut proposed);
        }
        let mut warnings = self.warnings(&choice, &costs, &proposed);
        let view = PlacementView {
            network,
            pid: change.after.counters.pid,
            seconds: change.seconds(),
            ticks_per_second: change.after.counters.ticks_per_second,
            packets_per_second: change.busiest_link().packets,
            crossing: costs.crossing.clone(),
            idle_breaths: costs.idle_breaths,
            ports: choice.ports,
            today,
            proposed,
            is_exact: proposal.is_exact,
        };
        let written = match self.write {
            true => write(observer, &change, &view.proposed)?,
            false => Vec::new(),
        };
        if self.write && view.today.processor(MAIN) != view.proposed.processor(MAIN) {
            warnings.push(format!("the processor of `{MAIN}` takes effect when the network is started again"));
        }
        let text = match self.json {
            true => format!("{:#}\n", json!(view.report(&warnings, &written))),
            false => view.render(&warnings, terminal::stdout_is_rich()),
        };
        terminal::print(&text)?;
        if self.write {
            terminal::notice(&view.next(&written));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The best placement. The cost of a crossing becomes the one that it was found with.
    fn search(&self, choice: &Choice, costs: &mut Costs, workers: usize) -> Proposal {
        if self.assume_crossings {
            costs.assume("`--assume-crossings` asks for it");
            return costs.propose(workers, &self.keep);
        }
        let mut meter = CrossingMeter::new(crossing::measure);
        costs.propose_measured(workers, &self.keep, &mut meter, |costs, plan| choice.crossing_pairs(costs, plan))
    }

    fn check_kept(&self, costs: &Costs) -> Result<(), CommandError> {
        let Some(unknown) = self.keep.iter().find(|kept| costs.apps().all(|app| app != **kept)) else { return Ok(()) };
        let near = match nearest(unknown, costs.apps()) {
            Some(near) => format!("; did you mean `{near}`?"),
            None => format!("; there are {}", costs.apps().collect::<Vec<_>>().join(", ")),
        };
        Err(CommandError::Usage(format!("--keep: there is no app `{unknown}`{near}")))
    }

    /// The number of workers to place the apps on.
    fn worker_count(&self, choice: &Choice, costs: &Costs) -> Result<usize, CommandError> {
        let processors = if self.cpus.is_some() { choice.usable.len() } else { choice.usable.len().max(2) };
        let workers = self.workers.map_or(processors, usize::from);
        let kept = costs.workers_of(&self.keep);
        if kept > workers {
            return Err(CommandError::Usage(format!(
                "the apps of --keep are on {kept} workers, more than {workers}; keep fewer apps, or give --workers {kept}"
            )));
        }
        // More workers than apps would have nothing to do.
        Ok(workers.min(costs.apps().count().max(kept)).min(MAX_WORKERS as usize))
    }

    fn warnings(&self, choice: &Choice, costs: &Costs, proposed: &PlacementPlan) -> Vec<String> {
        let (workers, processors) = (proposed.workers.len(), choice.usable.len());
        let asked = self.workers.map_or(workers, usize::from).max(workers);
        let crowded = asked > processors;
        let crowded = crowded.then(|| {
            let (workers, processors) = (plural(asked as u64, "worker"), plural(processors as u64, "processor"));
            format!("{workers} share {processors}, so none has the time that is expected here")
        });
        let idle = costs.idle_breaths.filter(|share| *share > 0.5).map(|share| {
            format!(
                "no packet moved in {} of the breaths, and these are part of the costs; measure under load",
                crate::text::percent(share)
            )
        });
        crowded.into_iter().chain(idle).chain(choice.shared_cores(proposed)).collect()
    }

    fn compare(&self, observer: &mut Observer, network: Subject) -> Result<ExitCode, CommandError> {
        let name = network.name.clone();
        let now = Sample::take(observer);
        let expected = Expectation::read(observer.runtime_dir(), &now).ok_or_else(|| {
            CommandError::Usage(format!(
                "no placement has been written for this run of `{name}`; `bellows place {name} --write` writes one"
            ))
        })?;
        let (change, costs) = self.measure(observer)?;
        let mut measured = costs.today();
        Choice::new(&Machine::default(), observer.runtime_dir(), None)?.find_pinned(&mut measured);
        let running = measured.apps();
        let wanted = expected.plan.apps();
        let differs = |(app, worker): &(&String, &String)| running.get(*app) != Some(worker);
        if let Some((app, worker)) = wanted.iter().find(differs) {
            let is = running.get(app).map_or("is not part of the network".to_owned(), |is| format!("runs on `{is}`"));
            return Err(CommandError::Usage(format!(
                "the placement that was written is not in effect: `{app}` {is}, not on `{worker}`; \
                 `bellows reload {name}` reads the network file"
            )));
        }
        let packets_per_second = change.busiest_link().packets;
        let comparison = PlacementComparison {
            network,
            seconds: change.seconds(),
            packets_per_second,
            expected: expected.plan,
            measured,
        };
        let text = match self.json {
            true => format!("{:#}\n", json!(comparison)),
            false => comparison.render(terminal::stdout_is_rich()),
        };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes a placement into the network's files. Returns those that have changed.
fn write(observer: &Observer, change: &Change, plan: &PlacementPlan) -> Result<Vec<PathBuf>, CommandError> {
    let counters = &change.after.counters;
    let name = observer.runtime_dir().name();
    if counters.source.starts_with('<') || counters.source.is_empty() {
        return Err(CommandError::Usage(format!(
            "`{name}` came from standard input, so there is no file to write to; run it from a file"
        )));
    }
    // The network may have another working directory. Its own link leads there.
    let folder = std::fs::read_link(format!("/proc/{}/cwd", counters.pid)).unwrap_or_default();
    let path = folder.join(&counters.source);
    let files = NetworkFiles::read(&path)
        .map_err(|mistakes| CommandError::Diagnosed(mistakes.render(terminal::stderr_is_rich())))?;
    let failure = |error: AssignError| match error {
        AssignError::Write(..) => CommandError::Failed(error.to_string()),
        _ => CommandError::Usage(error.to_string()),
    };
    let settings = files.settings(&observer.directory().config).map_err(failure)?;
    let workers = plan.workers.iter().map(|load| (load.name.clone(), load.cpu)).collect();
    let mut apps = plan.apps();
    for made in observer.directory().apps.iter().filter(|app| app.is_made) {
        apps.remove(&made.name);
    }
    let edited = files.assigned(&Assignment { apps, workers }, &settings).map_err(failure)?;
    files.write(&edited).map_err(failure)?;
    Expectation::write(observer.runtime_dir(), &change.after, plan)?;
    Ok(edited.into_iter().map(|(path, _)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_lists_of_numbers() {
        assert_eq!(processor_list("3,0-1,1").unwrap().0, [0, 1, 3]);
        for wrong in ["", "a", "0,x", "3-1", "0;1"] {
            assert!(processor_list(wrong).is_err(), "{wrong}");
        }
    }
}

//! `bellows ps`.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use bellows_inspect::events::keep_crash;
use bellows_inspect::health::{Checkup, Health, NetworkHealth, checkup, health};
use bellows_inspect::networks::{self, Access, Change, Hang, Obstacle, Sample, State, failed};
use bellows_inspect::text::sanitize;
use bellows_observe::{Observer, RuntimeDir};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;

use crate::arguments::NameOptions;
use crate::command_error::{CommandError, EXIT_CODES};
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{Align, Table, packet_rate, span};

/// List running and crashed networks
///
/// When a crashed network is started again, its remains are kept as NAME@1, older ones as NAME@2 and so on, five at
/// most; every command that reads crashed networks accepts these names. The newest crash is always kept, and all
/// crashes are kept while there is room. After that, restarts within ten minutes of the previous start are removed
/// first, the oldest of them before the others, so that the first crash of a series is still there after a supervisor
/// has restarted the network a hundred times.
///
/// A user's networks are found wherever they were started: in $XDG_RUNTIME_DIR/bellows, /run/bellows/networks (of the
/// packaged service), /dev/shm/bellows-UID and /run/user/UID/bellows. If BELLOWS_RUNTIME_DIR is set, they are started and
/// found in that directory alone. Root also sees the networks of other users, as USER/NAME, and the other commands accept
/// these names.
///
/// The state is the health of a network: `running`; `degraded` if not all of it works (an app has panicked or has an
/// error that lasts, or an interface has no link); `stalled` if its process is stopped, an app does not return, or the
/// network has not started yet; `crashed` if its process has ended without ending its run.
#[derive(Debug, Args)]
#[command(visible_alias = "list", alias = "ls", after_long_help = EXIT_CODES)]
pub struct Arguments {
    /// Names of the networks to list [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    option: NameOptions,
    /// Print only the health, and exit with a code for the worst: 0 if all are running
    #[arg(long, conflicts_with_all = ["all", "clean"])]
    probe: bool,
    /// List kept crashes of restarted networks, too
    #[arg(long, short)]
    all: bool,
    /// Remove the remains of this user's crashed networks, kept crashes included
    #[arg(long)]
    clean: bool,
    /// Print the list as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

/// The exit code of a probe.
fn probe_code(health: Health) -> u8 {
    match health {
        Health::Running => 0,
        Health::Degraded => 10,
        Health::Stalled => 11,
        Health::Crashed => 12,
    }
}

/// A network in the list.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Listed network", extend("includes" = ["Network", "Health"]))]
pub struct NetworkRow {
    name: String,
    /// The user who owns it.
    user: String,
    state: State,
    /// Its process, also of a crashed one; null if it is not known.
    pid: Option<u32>,
    /// The time that it has been running; null if it has crashed.
    uptime_seconds: Option<f64>,
    /// Through the busiest link, over 0.2 s; null if it has crashed.
    packets_per_second: Option<f64>,
    /// The file.
    network: String,
    /// The schedule in use.
    schedule: String,
    /// Names of the apps that have panicked and are not called any more.
    failed: Vec<String>,
    /// Null, unless the engine has been inside apps for 2 seconds.
    hang: Option<Hang>,
    /// The health, and its reasons.
    #[serde(flatten)]
    checkup: Checkup,
}

impl NetworkRow {
    /// The notes below its line.
    fn remark(&self) -> Option<String> {
        let stopped = self.pid.filter(|_| self.state == State::Stopped);
        if let Some(pid) = stopped {
            return Some(format!("{}: {}\n", self.name, Obstacle::Stopped.advice(&self.name, pid)));
        }
        if self.state == State::Crashed {
            return None;
        }
        let unconfirmed = self.checkup.confirmation.as_ref().map(|waiting| sanitize(&waiting.sentence(&self.name)));
        let sentences: Vec<String> = self.checkup.reasons.iter().cloned().chain(unconfirmed).collect();
        (!sentences.is_empty()).then(|| format!("{}: {}\n", self.name, sentences.join("; ")))
    }
}

/// The time over which rates are measured.
const RATE_INTERVAL: Duration = Duration::from_millis(200);

impl Execute for Arguments {
    const READS_ALL: &'static [&'static str] = &["ps NAME", "ps --probe NAME"];

    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let names = self.option.and(&self.names);
        if self.clean {
            clean()?;
        }
        let mut runtime_dirs = if names.is_empty() { RuntimeDir::all() } else { named(&names)? };
        if self.probe {
            return self.probe(&runtime_dirs);
        }
        if self.all {
            let is_named = |runtime_dir: &RuntimeDir| {
                let name = runtime_dir.name();
                let name = name.rsplit_once('@').map_or(name.as_str(), |(name, _)| name);
                names.is_empty() || runtime_dirs.iter().any(|listed| listed.name() == name)
            };
            let more: Vec<RuntimeDir> = RuntimeDir::post_mortems().into_iter().filter(is_named).collect();
            runtime_dirs.extend(more);
            runtime_dirs.sort_by_cached_key(|runtime_dir| (runtime_dir.is_foreign(), runtime_dir.name()));
        }
        let lines = lines(runtime_dirs);
        if self.json {
            terminal::print(&format!("{:#}\n", serde_json::json!(lines)))?;
            return Ok(ExitCode::SUCCESS);
        }
        if lines.is_empty() {
            terminal::notice(&format!("no network is running; {}\n", networks::searched_places()));
        }
        let mut table = Table::new(&[
            ("NAME", Align::Left),
            ("STATE", Align::Left),
            ("PID", Align::Right),
            ("UPTIME", Align::Right),
            ("RATE", Align::Right),
            ("NETWORK", Align::Left),
        ]);
        let mut remarks = String::new();
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        for line in lines {
            let condition = line.checkup.health.name().to_owned();
            remarks.extend(line.remark());
            table.row([
                line.name,
                condition,
                or_dash(line.pid.map(|pid| pid.to_string())),
                or_dash(line.uptime_seconds.map(|seconds| span(Duration::from_secs_f64(seconds)))),
                or_dash(line.packets_per_second.map(packet_rate)),
                line.network,
            ]);
        }
        terminal::print(&(table.render(terminal::stdout_is_rich()) + &remarks))?;
        Ok(ExitCode::SUCCESS)
    }

    fn only_reports(&self) -> bool {
        !self.clean
    }
}

impl Arguments {
    /// Prints the health of networks, and returns the code of the worst.
    fn probe(&self, runtime_dirs: &[RuntimeDir]) -> Result<ExitCode, CommandError> {
        let probe = |runtime_dir: &RuntimeDir| NetworkHealth {
            name: runtime_dir.name(),
            user: runtime_dir.user(),
            checkup: health(runtime_dir),
        };
        let probes: Vec<NetworkHealth> = runtime_dirs.iter().map(probe).collect();
        let Some(worst) = probes.iter().map(|probe| probe.checkup.health).max() else {
            return Err(CommandError::Usage(format!("no network is running; {}", networks::searched_places())));
        };
        if self.json {
            terminal::print(&format!("{:#}\n", serde_json::json!(probes)))?;
        } else {
            let line = |NetworkHealth { name, checkup: Checkup { health, reasons, .. }, .. }: &NetworkHealth| {
                match &reasons[..] {
                    [] => format!("{name}: {health}\n"),
                    reasons => format!("{name}: {health}: {}\n", reasons.join("; ")),
                }
            };
            terminal::print(&probes.iter().map(line).collect::<String>())?;
        }
        Ok(ExitCode::from(probe_code(worst)))
    }
}

/// The networks of these names, each once.
fn named(names: &[String]) -> Result<Vec<RuntimeDir>, CommandError> {
    let mut runtime_dirs: Vec<RuntimeDir> = Vec::new();
    for name in names {
        let runtime_dir = networks::pick(Some(name), Access::Read)?;
        if runtime_dirs.iter().all(|known| known.name() != runtime_dir.name()) {
            runtime_dirs.push(runtime_dir);
        }
    }
    Ok(runtime_dirs)
}

/// The folders of this user's crashed networks, and whether each is the newest of its name.
fn remains() -> impl Iterator<Item = (RuntimeDir, bool)> {
    let newest = RuntimeDir::all().into_iter().map(|runtime_dir| (runtime_dir, true));
    let all = newest.chain(RuntimeDir::post_mortems().into_iter().map(|runtime_dir| (runtime_dir, false)));
    let own = all.filter(|(runtime_dir, _)| !runtime_dir.is_foreign());
    own.filter(|(runtime_dir, _)| networks::state(runtime_dir) == State::Crashed)
}

fn clean() -> Result<(), CommandError> {
    if remains().next().is_none() {
        return Ok(());
    }
    // A run that takes one of the names would have its folder removed.
    let _lock = RuntimeDir::lock_names().map_err(|error| CommandError::Failed(error.to_string()))?;
    for (runtime_dir, is_newest) in remains() {
        let name = runtime_dir.name();
        // Records the crash event now: the files from which the next run would record it are about to be deleted.
        if is_newest && let Err(error) = keep_crash(&runtime_dir) {
            terminal::warn(&format!("the events of `{name}` will not have its crash: {error}\n"));
        }
        runtime_dir.remove().map_err(|error| CommandError::Failed(format!("cannot remove `{name}`: {error}")))?;
        terminal::notice(&format!("removed the remains of `{name}`\n"));
    }
    Ok(())
}

/// An engine in the list.
struct Engine {
    name: String,
    user: String,
    state: State,
    pid: Option<u32>,
    runtime_dir: RuntimeDir,
    observer: Option<Observer>,
}

/// The engines of these folders. The rates of all running ones are measured at the same time.
fn lines(runtime_dirs: Vec<RuntimeDir>) -> Vec<NetworkRow> {
    let engine = |runtime_dir: RuntimeDir| Engine {
        name: runtime_dir.name(),
        user: runtime_dir.user(),
        state: networks::state(&runtime_dir),
        pid: runtime_dir.pid(),
        observer: Observer::open(runtime_dir.for_reading()).ok(),
        runtime_dir,
    };
    let mut engines: Vec<Engine> = runtime_dirs.into_iter().map(engine).collect();
    let sample = |engines: &mut Vec<Engine>| -> Vec<Option<Sample>> {
        engines.iter_mut().map(|engine| engine.observer.as_mut().map(Sample::take)).collect()
    };
    let before = sample(&mut engines);
    if engines.iter().any(|engine| engine.state.is_alive()) {
        thread::sleep(RATE_INTERVAL);
    }
    let after = sample(&mut engines);
    let changes = before.into_iter().zip(after).map(|(before, after)| Some(Change::between(before?, after?)));
    let line = |(engine, change): (Engine, Option<Change>)| {
        let Engine { name, user, state, pid, runtime_dir, .. } = engine;
        let checkup = checkup(&runtime_dir, state, change.as_ref().map(|change| &change.after));
        let alive = change.as_ref().filter(|_| state.is_alive());
        NetworkRow {
            name,
            user,
            state,
            pid,
            uptime_seconds: alive.map(|change| change.after.uptime().as_secs_f64()),
            packets_per_second: alive.map(|change| change.busiest_link().packets),
            network: change.as_ref().map(|change| change.after.counters.source.clone()).unwrap_or_default(),
            schedule: change.as_ref().map(|change| change.after.counters.schedule.clone()).unwrap_or_default(),
            failed: change.as_ref().map(|change| failed(&change.after.counters)).unwrap_or_default(),
            hang: alive.filter(|_| state == State::Running).and_then(|change| Hang::of(&change.after)),
            checkup,
        }
    };
    engines.into_iter().zip(changes).map(line).collect()
}

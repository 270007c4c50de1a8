//! Makes one run: from a campaign and a run's id to a row of results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bellows_sys::{clock, cpu};

use crate::campaign::{Campaign, Command};
use crate::journal::Journal;
use crate::machine::Facts;
use crate::plan::{Hash, Plan, RunId};
use crate::processes::{Ended, Finished, Processes, Stop, Surroundings};
use crate::register::Register;
use crate::row::{Failure, FailureKind, Row, Score};
use crate::score::{Captured, Output, ScoreReader};
use crate::strays::{end_strays, mark_of};
use crate::template::{Placeholder, PlaceholderValue, joined};
use crate::time;

/// Maximum number of bytes of standard error that a failure keeps.
const MAX_STDERR: usize = 2_000;

/// Why there is no row.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The end was requested.
    #[error("interrupted")]
    Stopped,
    /// A command of the campaign's setup or teardown failed.
    #[error("a command of `{stage}` failed: {failure}{}; fix it, then start the campaign again", stderr(.failure))]
    Stage {
        /// `setup` or `teardown`.
        stage: &'static str,
        /// How.
        failure: Failure,
    },
    /// The campaign's processors do not exist, or are not for this process.
    #[error("the campaign names processors {asked}, but this process may use {allowed}; change `cpus` in its file")]
    Cpus {
        /// The campaign's processors.
        asked: String,
        /// Those that the process may use.
        allowed: String,
    },
    /// The campaign's working folder does not exist.
    #[error("the working folder {0} does not exist; create it, or change `folder` in the campaign file")]
    Folder(PathBuf),
    /// The campaign compares builds that were not made.
    #[error("the campaign compares two builds; use `bellows campaign compare FILE OLD NEW`, which makes them")]
    NotBuilt,
    /// The run is not part of the campaign.
    #[error("the campaign has no run {0}")]
    NoRun(RunId),
    /// Processes of the campaign's commands still run.
    #[error("processes are left: {0}")]
    Remains(String),
    /// Another failure.
    #[error("cannot run commands: {0}")]
    Io(#[from] std::io::Error),
}

fn stderr(failure: &Failure) -> String {
    match failure.stderr.trim() {
        "" => String::new(),
        text => format!(" ({})", crate::diagnostics::visible(text)),
    }
}

/// Makes runs: on this machine, or somewhere else.
pub trait Executor {
    /// Makes ready for runs: the campaign's setup, versions and warm-up.
    ///
    /// # Errors
    /// Why no run can be made.
    fn begin(&mut self, first: RunId, stop: &Stop) -> Result<(), ExecuteError>;

    /// Makes a run. A run that fails is a row, too.
    ///
    /// # Errors
    /// Why there is no row.
    fn execute(&mut self, run: RunId, stop: &Stop) -> Result<Row, ExecuteError>;

    /// Tidies up after all runs: the campaign's teardown, also after an interruption.
    ///
    /// # Errors
    /// A command that failed.
    fn end(&mut self) -> Result<(), ExecuteError>;
}

/// Makes runs on this machine, one after the other.
pub struct LocalExecutor<'c> {
    campaign: &'c Campaign,
    plan: Plan,
    reader: ScoreReader,
    folder: PathBuf,
    facts: Facts,
    cpus: Vec<usize>,
    versions: BTreeMap<String, String>,
    processes: Processes,
    /// The results folder, which marks the processes of this runner.
    mark: Option<String>,
    /// The results folder and its register.
    register: Option<(PathBuf, Register)>,
    has_begun: bool,
}

impl<'c> LocalExecutor<'c> {
    /// An executor of a campaign whose commands run in a folder.
    ///
    /// # Errors
    /// If the folder or the campaign's processors do not exist.
    pub fn new(campaign: &'c Campaign, folder: &Path) -> Result<LocalExecutor<'c>, ExecuteError> {
        if campaign.build.as_ref().is_some_and(|build| build.versions.is_none()) {
            return Err(ExecuteError::NotBuilt);
        }
        let allowed = cpu::allowed();
        if !campaign.cpus.iter().all(|cpu| allowed.contains(cpu)) {
            let (asked, allowed) = (cpu::ranges(&campaign.cpus), cpu::ranges(&allowed));
            return Err(ExecuteError::Cpus { asked, allowed });
        }
        if !folder.is_dir() {
            return Err(ExecuteError::Folder(folder.to_owned()));
        }
        let cpus = if campaign.cpus.is_empty() { allowed } else { campaign.cpus.clone() };
        clock::calibrate();
        Ok(LocalExecutor {
            campaign,
            plan: Plan::new(campaign),
            reader: ScoreReader::new(campaign),
            folder: folder.to_owned(),
            facts: Facts::of(&cpus),
            cpus,
            versions: BTreeMap::new(),
            processes: Processes::new(),
            mark: None,
            register: None,
            has_begun: false,
        })
    }

    /// Marks all commands as those of the runner that has this journal, and ends commands that a runner before it has
    /// left because it was killed.
    #[must_use]
    pub fn with_journal(self, journal: &Journal) -> LocalExecutor<'c> {
        // The journal is locked, so that no other runner has commands with this mark.
        let folder = journal.folder();
        let mut executor = self.with_mark_of(folder);
        executor.register = Some((folder.to_owned(), Register::default()));
        executor
    }

    /// Marks all commands as those of the process that has locked a file or folder, and ends commands that a process
    /// before it has left because it was killed.
    #[must_use]
    pub fn with_mark_of(mut self, path: &Path) -> LocalExecutor<'c> {
        // Without one, nothing can be found later.
        self.mark = mark_of(path).ok();
        if let Some(mark) = &self.mark {
            end_strays(mark);
        }
        self
    }

    /// Runs a closure on a thread that may use the campaign's processors only; programs that it starts inherit them.
    fn on_cpus<T: Send>(&mut self, work: impl FnOnce(&mut Self) -> T + Send) -> std::io::Result<T> {
        if self.campaign.cpus.is_empty() {
            return Ok(work(self));
        }
        let cpus = self.cpus.clone();
        let result = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("campaign".to_owned());
            let spawned = thread.spawn_scoped(scope, move || cpu::allow(&cpus).map(|()| work(self)));
            spawned.map(std::thread::ScopedJoinHandle::join)
        });
        match result? {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Runs a command. `value` fills in its placeholders.
    fn command(
        &mut self,
        command: &Command,
        environment: &[(String, String)],
        value: impl Fn(&Placeholder) -> PlaceholderValue,
        stop: &Stop,
    ) -> std::io::Result<Finished> {
        let words: Vec<String> = match command {
            Command::Arguments(arguments) => arguments.iter().flat_map(|argument| argument.words(&value)).collect(),
            Command::Shell { shell } => vec!["sh".to_owned(), "-c".to_owned(), shell.shell(&value)],
        };
        let time_limit = self.campaign.time_limit;
        let mark = self.mark.as_deref();
        let surroundings = Surroundings { folder: &self.folder, environment, mark, time_limit, stop };
        self.processes.run(&words, &surroundings)
    }

    /// Runs the commands of the setup or the teardown.
    fn stage(&mut self, stage: &'static str, commands: &[Command], stop: &Stop) -> Result<(), ExecuteError> {
        for command in commands {
            let finished = self.command(command, &[], |_| PlaceholderValue::Text(String::new()), stop);
            match outcome(finished, false, self.campaign) {
                Ok(_) => {}
                Err(None) => return Err(ExecuteError::Stopped),
                Err(Some(failure)) => return Err(ExecuteError::Stage { stage, failure }),
            }
        }
        Ok(())
    }

    /// The first lines of what the campaign's version commands print.
    fn read_versions(&mut self, stop: &Stop) {
        for (name, command) in &self.campaign.versions {
            let mark = self.processes.mark();
            let finished = self.command(command, &[], |_| PlaceholderValue::Text(String::new()), stop);
            self.processes.end_from(mark);
            let version = match outcome(finished, false, self.campaign) {
                Ok(finished) => {
                    let Output { stdout, stderr } = finished.output;
                    // Some programs print their version to standard error.
                    let lines = [stdout, stderr].map(|captured| first_line(&captured.bytes));
                    lines.into_iter().find(|line| !line.is_empty()).unwrap_or_default()
                }
                Err(None) => return,
                Err(Some(failure)) => format!("unknown ({failure})"),
            };
            self.versions.insert(name.clone(), version);
        }
    }

    /// Makes a run. `name` and `block` are what its commands know it by.
    fn run(&mut self, run: RunId, name: &str, block: &str, stop: &Stop) -> Result<Row, ExecuteError> {
        let campaign = self.campaign;
        let levels = self.plan.levels(run).ok_or(ExecuteError::NoRun(run))?.to_vec();
        let value = |placeholder: &Placeholder| fill(campaign, &levels, [name, block], placeholder);
        let environment: Vec<(String, String)> = campaign
            .environment
            .iter()
            .map(|(name, template)| (name.clone(), template.fill(|placeholder| joined(value(placeholder)))))
            .collect();
        let mark = self.processes.mark();
        let mut prepared = Ok(());
        for command in &campaign.prepare {
            let finished = self.command(command, &environment, value, stop);
            prepared = outcome(finished, false, campaign).map(drop);
            if prepared.is_err() {
                break;
            }
        }
        let known = self.newest_record();
        let before = self.facts.before();
        let start = time::now();
        let started = std::time::Instant::now();
        let finished = match prepared {
            Ok(()) => {
                let mark = self.processes.mark();
                let finished = self.command(&campaign.command, &environment, value, stop);
                self.processes.end_from(mark);
                outcome(finished, self.reader.is_bench(), campaign)
            }
            Err(failure) => Err(failure.map(|failure| Failure { kind: FailureKind::Prepare, ..failure })),
        };
        let seconds = finished.as_ref().map_or(started.elapsed().as_secs_f64(), |finished| finished.seconds);
        let (machine, mut disturbed) = self.facts.after(&before, seconds, &campaign.disturbance);
        let result = match finished {
            Ok(finished) => Some(self.scores(&finished.output)),
            // What fails beside a request to end may have failed because of it.
            Err(Some(failure)) if !stop.is_set() => Some((self.reader.absent(), Some(failure))),
            Err(_) => None,
        };
        // Also if the run was stopped: what was prepared is to be undone.
        let unstoppable = Stop::new()?;
        for command in &campaign.tidy {
            let finished = self.command(command, &environment, value, &unstoppable);
            if let Err(Some(failure)) = outcome(finished, false, campaign) {
                disturbed.push(format!("a command of `tidy` failed: {failure}"));
            }
        }
        self.processes.end_from(mark);
        disturbed.extend(self.processes.remains());
        let (scores, failure) = result.ok_or(ExecuteError::Stopped)?;
        let labels = campaign.factors.iter().zip(&levels);
        let levels = labels.map(|(factor, level)| (factor.name.clone(), factor.levels[*level].label.clone())).collect();
        let (campaign, versions) = (self.plan.hash(), self.versions.clone());
        Ok(Row {
            run,
            campaign,
            levels,
            scores,
            failure,
            disturbed,
            start,
            seconds,
            machine,
            versions,
            registered: None,
            known,
        })
    }

    /// The newest record of the register. That the register is damaged shows when the row is recorded.
    fn newest_record(&mut self) -> Option<Hash> {
        let (folder, register) = self.register.as_mut()?;
        register.refresh(folder).ok()?;
        register.head()
    }

    /// The scores of an output, or a failure of the whole run.
    fn scores(&self, output: &Output) -> (Vec<Score>, Option<Failure>) {
        let with_stderr = |failure: Failure| Failure { stderr: end_of(&output.stderr), ..failure };
        match self.reader.read(output) {
            Ok(mut scores) => {
                for score in &mut scores {
                    score.failure = score.failure.take().map(with_stderr);
                }
                (scores, None)
            }
            Err(failure) => (self.reader.absent(), Some(with_stderr(failure))),
        }
    }
}

impl Executor for LocalExecutor<'_> {
    fn begin(&mut self, first: RunId, stop: &Stop) -> Result<(), ExecuteError> {
        let campaign = self.campaign;
        self.has_begun = true;
        self.on_cpus(|executor| {
            executor.stage("setup", &campaign.setup, stop)?;
            executor.read_versions(stop);
            for number in 1..=campaign.warmup {
                // A warm-up that fails is followed by a run that fails, which is recorded.
                executor.run(first, &format!("0.{number}"), "0", stop)?;
            }
            if stop.is_set() { Err(ExecuteError::Stopped) } else { Ok(()) }
        })?
    }

    fn execute(&mut self, run: RunId, stop: &Stop) -> Result<Row, ExecuteError> {
        self.on_cpus(|executor| executor.run(run, &run.to_string(), &run.block.to_string(), stop))?
    }

    fn end(&mut self) -> Result<(), ExecuteError> {
        if !std::mem::take(&mut self.has_begun) {
            return Ok(());
        }
        let campaign = self.campaign;
        let unstoppable = Stop::new()?;
        let result = self.on_cpus(|executor| executor.stage("teardown", &campaign.teardown, &unstoppable))?;
        self.processes.end_from(0);
        let remains = self.processes.remains();
        if remains.is_empty() { result } else { Err(ExecuteError::Remains(remains.join("; "))) }
    }
}

/// What a placeholder stands for in a run.
fn fill(
    campaign: &Campaign,
    levels: &[usize],
    [name, block]: [&str; 2],
    placeholder: &Placeholder,
) -> PlaceholderValue {
    let level = |name: &str| {
        let factor = campaign.factor(name)?;
        campaign.factors[factor].levels.get(levels[factor])
    };
    match placeholder {
        Placeholder::Run => PlaceholderValue::Text(name.to_owned()),
        Placeholder::Block => PlaceholderValue::Text(block.to_owned()),
        Placeholder::Label(name) => {
            PlaceholderValue::Text(level(name).map_or(String::new(), |level| level.label.clone()))
        }
        Placeholder::Value(name, key) => {
            let value = level(name).and_then(|level| level.values.get(key).cloned());
            value.unwrap_or(PlaceholderValue::Text(String::new()))
        }
    }
}

/// A command that succeeded; else why it failed, or nothing if it was stopped.
fn outcome(
    finished: std::io::Result<Finished>,
    is_bench: bool,
    campaign: &Campaign,
) -> Result<Finished, Option<Failure>> {
    /// The exit code of benchmarks with undecided figures, whose report is valid.
    const UNDECIDED: i32 = 3;
    let finished = match finished {
        Ok(finished) => finished,
        Err(error) => {
            let remedy = bellows_sys::remedy(&error, "check the command and the working folder");
            let why = format!("the command cannot be started: {error}; {remedy}");
            return Err(Some(Failure::new(FailureKind::NotStarted, why)));
        }
    };
    let (kind, why) = match finished.ended {
        Ended::Exited(0) => return Ok(finished),
        Ended::Exited(UNDECIDED) if is_bench => return Ok(finished),
        Ended::Stopped => return Err(None),
        Ended::Exited(code) => (FailureKind::ExitCode, format!("the command ended with exit code {code}")),
        Ended::Killed(signal) => (FailureKind::Signal, format!("the command was ended by signal {signal}")),
        Ended::TimeLimit => {
            let limit = campaign.time_limit.as_secs_f64();
            (FailureKind::TimeLimit, format!("the command took longer than {limit} s, the time limit"))
        }
    };
    Err(Some(Failure { stderr: end_of(&finished.output.stderr), ..Failure::new(kind, why) }))
}

/// The end of an output as text.
fn end_of(captured: &Captured) -> String {
    let bytes = &captured.bytes[captured.bytes.len().saturating_sub(MAX_STDERR)..];
    String::from_utf8_lossy(bytes).into_owned()
}

fn first_line(bytes: &[u8]) -> String {
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    String::from_utf8_lossy(&line[..line.len().min(200)]).trim().to_owned()
}

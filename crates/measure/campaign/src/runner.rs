//! Makes the runs of a campaign that are not recorded yet, one after the other.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::executor::{ExecuteError, Executor};
use crate::folder::JournalError;
use crate::journal::Journal;
use crate::plan::RunId;
use crate::processes::Stop;
use crate::row::Row;

/// How far a campaign is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CampaignProgress {
    /// The number of runs that are recorded.
    pub done: usize,
    /// The number of runs in all.
    pub all: usize,
    /// The number of recorded runs without a score.
    pub failed: usize,
    /// The time that the other runs will take. Nothing before the first run.
    pub left: Option<Duration>,
}

/// Learns of a campaign's progress.
pub trait Observer {
    /// What is done before the first run, such as a build: a sentence without a full stop.
    fn preparing(&mut self, _: &str) {}

    /// A run starts.
    fn started(&mut self, run: RunId, progress: &CampaignProgress);

    /// A run is recorded.
    fn recorded(&mut self, row: &Row, progress: &CampaignProgress);
}

/// Ignores everything.
impl Observer for () {
    fn started(&mut self, _: RunId, _: &CampaignProgress) {}

    fn recorded(&mut self, _: &Row, _: &CampaignProgress) {}
}

/// Why a campaign cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A run cannot be made.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// A result cannot be recorded.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// How a campaign ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The number of runs that are recorded of the plan.
    pub done: usize,
    /// The number of runs in all.
    pub all: usize,
    /// The number of runs that were made now.
    pub made: usize,
    /// The number of recorded runs without a score.
    pub failed: usize,
    /// Whether the campaign was interrupted.
    pub interrupted: bool,
}

/// Makes all runs of a campaign that its journal lacks, until they are made or the end is requested.
///
/// # Errors
/// Why the campaign cannot go on. All rows so far are recorded.
pub fn run(
    journal: &mut Journal,
    executor: &mut dyn Executor,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<Summary, RunError> {
    let pending = journal.pending();
    let all = journal.plan().runs_in_all();
    let before = all - pending.len();
    let mut summary = Summary { done: before, all, made: 0, failed: journal.failed(), interrupted: false };
    let Some(first) = pending.first() else { return Ok(summary) };
    let result = match executor.begin(*first, stop) {
        Ok(()) => each(journal, executor, stop, observer, &pending, &mut summary),
        Err(error) => Err(error.into()),
    };
    let ended = executor.end();
    match result {
        Err(RunError::Execute(ExecuteError::Stopped)) => summary.interrupted = true,
        other => other?,
    }
    ended?;
    Ok(summary)
}

fn each(
    journal: &mut Journal,
    executor: &mut dyn Executor,
    stop: &Stop,
    observer: &mut dyn Observer,
    pending: &[RunId],
    summary: &mut Summary,
) -> Result<(), RunError> {
    let mut estimate = Estimate::of(pending);
    for run in pending {
        if stop.is_set() {
            return Err(ExecuteError::Stopped.into());
        }
        let progress = |summary: &Summary, estimate: &Estimate| {
            let Summary { done, all, failed, .. } = *summary;
            CampaignProgress { done, all, failed, left: estimate.left() }
        };
        observer.started(*run, &progress(summary, &estimate));
        let start = Instant::now();
        let row = executor.execute(*run, stop)?;
        let mut shown = row.clone();
        summary.made += usize::from(journal.append(row)?);
        shown.registered = journal.registered();
        summary.done += 1;
        summary.failed = journal.failed();
        estimate.add(*run, start.elapsed());
        observer.recorded(&shown, &progress(summary, &estimate));
    }
    Ok(())
}

/// The time that runs will take: that which runs of their combination took, else the mean of all.
struct Estimate {
    combinations: HashMap<u32, Combination>,
    all: RunnerTaken,
}

#[derive(Clone, Copy, Default)]
struct RunnerTaken {
    time: Duration,
    runs: u32,
}

#[derive(Default)]
struct Combination {
    taken: RunnerTaken,
    pending: u32,
}

impl RunnerTaken {
    fn add(&mut self, time: Duration) {
        self.time += time;
        self.runs += 1;
    }

    fn mean(&self) -> Option<Duration> {
        self.time.checked_div(self.runs)
    }
}

impl Estimate {
    fn of(pending: &[RunId]) -> Estimate {
        let mut combinations: HashMap<u32, Combination> = HashMap::new();
        for run in pending {
            combinations.entry(run.combination).or_default().pending += 1;
        }
        Estimate { combinations, all: RunnerTaken::default() }
    }

    fn add(&mut self, run: RunId, time: Duration) {
        let combination = self.combinations.entry(run.combination).or_default();
        combination.pending = combination.pending.saturating_sub(1);
        combination.taken.add(time);
        self.all.add(time);
    }

    fn left(&self) -> Option<Duration> {
        let mean = self.all.mean()?;
        let left =
            |combination: &Combination| combination.taken.mean().unwrap_or(mean).saturating_mul(combination.pending);
        Some(self.combinations.values().map(left).fold(Duration::ZERO, Duration::saturating_add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_each_combination() {
        let run = |block, combination| RunId { block, combination };
        let mut estimate = Estimate::of(&[run(1, 1), run(1, 2), run(1, 3), run(2, 1), run(2, 2), run(2, 3)]);
        assert_eq!(estimate.left(), None);
        estimate.add(run(1, 1), Duration::from_secs(10));
        assert_eq!(estimate.left(), Some(Duration::from_secs(50)));
        estimate.add(run(1, 2), Duration::from_secs(2));
        // 10 and 2 of those that are known, and twice the mean of 6.
        assert_eq!(estimate.left(), Some(Duration::from_secs(24)));
        for (block, combination) in [(1, 3), (2, 1), (2, 2), (2, 3)] {
            estimate.add(run(block, combination), Duration::from_secs(1));
        }
        assert_eq!(estimate.left(), Some(Duration::ZERO));
    }
}

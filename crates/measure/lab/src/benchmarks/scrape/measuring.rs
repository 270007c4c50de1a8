//! The measuring process: phases with scrapes and phases without.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use bellows_sys::cpu;
use fastrand::Rng;
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::ScrapeCase;
use super::pairs::{Edge, Phase, PhasePair};
use super::service::{Scraped, apps_in};
use crate::steal::stolen;
use crate::workers::{fail, settle};

/// The minimum length of a phase.
const SHORTEST_PHASE: Duration = Duration::from_millis(250);

/// The time before the first phase, in which caches and free buffers settle.
const WARM_UP: Duration = Duration::from_millis(500);

/// A network lives for ten times as long as it should be needed, and this time more.
const LEAST: Duration = Duration::from_secs(60);

/// The time within which a counter and the clock should be read: no other thread ran between both.
const QUICK: Duration = Duration::from_micros(5);

/// How often they are read at most.
const READINGS: usize = 50;

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Measurements {
    pub(super) case: ScrapeCase,
    /// The engine's processor, and that of the server and its client.
    pub(super) engine: usize,
    pub(super) other: usize,
    /// The time between two scrapes.
    pub(super) period: Duration,
    /// The number of blocks of four phases.
    pub(super) blocks: usize,
    /// The folder for the network's file and the logs.
    pub(super) folder: PathBuf,
    /// The arguments that make this program a worker of this benchmark.
    pub(super) worker: Vec<String>,
}

/// The results of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ScrapeAnswer {
    pub(super) pairs: Vec<PhasePair>,
    /// The time of each scrape, in seconds.
    pub(super) scrapes: Vec<f64>,
    /// The size of the last answer.
    pub(super) bytes: usize,
}

/// The number of scrapes in a phase.
fn scrapes_in_phase(period: Duration) -> usize {
    SHORTEST_PHASE.as_nanos().div_ceil(period.as_nanos().max(1)) as usize
}

/// The length of a block of four phases.
pub(super) fn block(period: Duration) -> Duration {
    4 * phase(period)
}

/// The length of a phase: the smallest multiple of the period that is long enough.
fn phase(period: Duration) -> Duration {
    scrapes_in_phase(period) as u32 * period
}

/// Whether there are scrapes in each phase of a block. A drift of the machine's speed cancels out in both orders.
fn order(begins_without: bool) -> [bool; 4] {
    if begins_without { [false, true, true, false] } else { [true, false, false, true] }
}

/// Does the work of one process. A failure ends it.
pub(super) fn measure(task: &Measurements) -> ScrapeAnswer {
    // A second interrupt ends the benchmark at once.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // Rejects an engine's processor that does not exist. This process must leave it alone.
    settle(Some(task.engine));
    cpu::pin_to(task.other).unwrap_or_else(|error| fail(&format!("processor {}: {error}", task.other)));
    fs::create_dir_all(&task.folder)
        .unwrap_or_else(|error| fail(&format!("cannot create {}: {error}", task.folder.display())));
    let most = 10 * (block(task.period) * task.blocks as u32 + LEAST);
    let scraped = Scraped::start(&task.worker, &task.folder, &task.case.network(), [task.engine, task.other], most);
    let mut side = Measuring { task, scraped, random: Rng::new(), answer: ScrapeAnswer::default() };
    side.check_scrape();
    thread::sleep(WARM_UP);
    for _ in 0..task.blocks {
        side.block();
    }
    let Measuring { scraped, answer, .. } = side;
    drop(scraped);
    let _ = fs::remove_dir_all(&task.folder);
    answer
}

struct Measuring<'t> {
    task: &'t Measurements,
    scraped: Scraped,
    random: Rng,
    answer: ScrapeAnswer,
}

impl Measuring<'_> {
    /// Makes a first scrape, which takes longer than others, and checks that it has all apps.
    fn check_scrape(&self) {
        let answer = self.scraped.scrape().unwrap_or_else(|why| fail(&why));
        let (found, expected) = (apps_in(&answer), self.task.case.apps());
        if found != expected {
            fail(&format!("a scrape has {found} apps of a network with {expected}"));
        }
    }

    /// Four phases, which are two pairs.
    fn block(&mut self) {
        let order = order(self.random.bool());
        let mut before = self.edge();
        let mut phases = [Phase { rate: 0.0, stolen: 0.0 }; 4];
        for (phase, has_scrapes) in phases.iter_mut().zip(order) {
            self.pass_phase(has_scrapes);
            let after = self.edge();
            *phase = Phase::between(&before, &after);
            before = after;
        }
        for first in [0, 2] {
            let (one, other) = (phases[first], phases[first + 1]);
            let (with, without) = if order[first] { (one, other) } else { (other, one) };
            self.answer.pairs.push(PhasePair { without, with });
        }
        self.scraped.check().unwrap_or_else(|why| fail(&why));
    }

    /// Lets the time of a phase pass, and scrapes at a random time in the first half of each period. The rest of the
    /// period is for the answer, so that no work of it is left to the next phase.
    fn pass_phase(&mut self, has_scrapes: bool) {
        let (start, period) = (Instant::now(), self.task.period);
        if has_scrapes {
            for number in 0..scrapes_in_phase(period) {
                let wait = period.mul_f64(number as f64 + 0.5 * self.random.f64());
                sleep_until(start + wait);
                self.scrape();
            }
        }
        sleep_until(start + phase(period));
    }

    fn scrape(&mut self) {
        let start = Instant::now();
        let answer = self.scraped.scrape().unwrap_or_else(|why| fail(&why));
        self.answer.scrapes.push(start.elapsed().as_secs_f64());
        self.answer.bytes = answer.len();
    }

    /// Reads the counter and the clock, both at nearly the same time.
    fn edge(&self) -> Edge {
        let reading = || {
            let before = Instant::now();
            let packets = self.scraped.observer.link_packets(0);
            (before.elapsed(), packets, before)
        };
        let mut best = reading();
        for _ in 1..READINGS {
            if best.0 <= QUICK {
                break;
            }
            let next = reading();
            if next.0 < best.0 {
                best = next;
            }
        }
        let (took, packets, before) = best;
        Edge { packets, at: before + took / 2, stolen: stolen(self.task.engine).unwrap_or(0) }
    }
}

fn sleep_until(end: Instant) {
    thread::sleep(end.saturating_duration_since(Instant::now()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_has_whole_periods() {
        let lengths = |milliseconds| {
            let period = Duration::from_millis(milliseconds);
            (scrapes_in_phase(period), phase(period).as_millis(), block(period).as_millis())
        };
        assert_eq!(lengths(1_000), (1, 1_000, 4_000));
        assert_eq!(lengths(250), (1, 250, 1_000));
        assert_eq!(lengths(100), (3, 300, 1_200));
        assert_eq!(lengths(15_000), (1, 15_000, 60_000));
    }

    #[test]
    fn each_pair_has_a_phase_of_each_kind_and_a_drift_cancels_out() {
        for order in [order(false), order(true)] {
            assert_ne!(order[0], order[1]);
            assert_ne!(order[2], order[3]);
            let places = |kind: bool| (0..4).filter(|&place| order[place] == kind).sum::<usize>();
            assert_eq!(places(true), places(false));
        }
    }
}

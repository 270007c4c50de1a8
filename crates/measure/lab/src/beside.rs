//! A program that disturbs a measurement, to check whether its figures hold.
//!
//! It runs on another processor than the measurement, and writes to random lines of twice as much memory as the
//! last-level cache holds. This evicts the measured processes' data from that cache again and again, and keeps the
//! memory busy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bellows_sys::cpu;
use serde::{Deserialize, Serialize};

use crate::audience::Observer;
use crate::named::named;
use crate::slices::Turn;
use crate::workers::{Contender, ProcessError, Reply, Worker};

named! {
    /// How a measurement is disturbed.
    pub enum Beside {
        /// All the time.
        Thrash = "thrash",
        /// Now and then: for some milliseconds up to half a second, with pauses as long.
        Bursts = "bursts",
    }
}

/// Why the disturbance cannot run.
#[derive(Debug, thiserror::Error)]
pub enum BesideError {
    /// There is only one processor.
    #[error("--beside needs a second processor: only processor {0} may be used")]
    OneProcessor(usize),
    /// It cannot run on its processor.
    #[error("the disturbance cannot run on processor {0}: {1}")]
    Processor(usize, String),
    /// It could not be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
}

/// The task of the disturbing worker.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct BesideTask {
    beside: Beside,
    processor: usize,
}

/// A worker that disturbs until this value is dropped.
pub struct Disturbance {
    _worker: Worker,
    /// The processor that the worker runs on.
    pub processor: usize,
}

impl Disturbance {
    /// Starts a disturbance on a processor other than the measured one. `arguments` make this program call [`disturb`]
    /// as a worker.
    ///
    /// # Errors
    /// See [`BesideError`].
    pub fn start(
        beside: Beside,
        measured: Option<usize>,
        arguments: &[&str],
        observer: &dyn Observer,
    ) -> Result<Disturbance, BesideError> {
        let all = cpu::allowed();
        let measured = measured.or_else(|| all.last().copied()).unwrap_or_default();
        let processor = all.into_iter().find(|&cpu| cpu != measured).ok_or(BesideError::OneProcessor(measured))?;
        let mut worker = Worker::start(arguments, &BesideTask { beside, processor })?;
        let Reply { outcome, .. } = worker.reply::<()>(observer)?;
        outcome.map_err(|why| BesideError::Processor(processor, why))?;
        Ok(Disturbance { _worker: worker, processor })
    }
}

/// The size of the last-level cache in bytes as the kernel reports it, or a large default.
fn last_level() -> usize {
    const LARGE: usize = 64 << 20;
    let read = |index: usize| {
        let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size")).ok()?;
        text.trim().strip_suffix('K')?.parse::<usize>().ok().map(|kibibytes| kibibytes << 10)
    };
    (0..8).filter_map(read).max().unwrap_or(LARGE)
}

/// The maximum memory to write to, because the kernel may report a cache that many processors share.
const MAX_MEMORY: usize = 512 << 20;

/// Disturbs until the worker ends.
///
/// # Errors
/// When it cannot run on its processor.
pub fn disturb(task: BesideTask) -> Result<Box<dyn Contender>, String> {
    let BesideTask { beside, processor } = task;
    cpu::pin_to(processor).map_err(|error| error.to_string())?;
    let is_over = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&is_over);
    // The new thread inherits the affinity.
    std::thread::spawn(move || thrash(beside, (2 * last_level()).min(MAX_MEMORY), &end));
    Ok(Box::new(Thrashing(is_over)))
}

/// The worker's side: the thread that disturbs.
struct Thrashing(Arc<AtomicBool>);

impl Contender for Thrashing {
    /// Does nothing: the thread works all the time.
    fn turn(&mut self) -> Turn {
        Turn::default()
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}

fn thrash(beside: Beside, bytes: usize, is_over: &AtomicBool) -> u64 {
    const LINE: usize = 8;
    let mut words = vec![1u64; bytes / size_of::<u64>()];
    let lines = words.len() / LINE;
    let mut random = fastrand::Rng::new();
    let mut written = 0;
    while !is_over.load(Ordering::Relaxed) {
        let span = match beside {
            Beside::Thrash => Duration::from_millis(100),
            Beside::Bursts => Duration::from_millis(random.u64(5..500)),
        };
        let start = Instant::now();
        while start.elapsed() < span && !is_over.load(Ordering::Relaxed) {
            for _ in 0..1_000 {
                // The lines do not depend on each other, so many accesses are in flight at once.
                words[random.usize(..lines) * LINE] += 1;
            }
            written += 1_000;
        }
        if beside == Beside::Bursts && !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(span);
        }
    }
    std::hint::black_box(&words);
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_modes_write_until_they_are_stopped() {
        for beside in Beside::ALL {
            assert_eq!(beside.name().parse(), Ok(beside));
            let is_over = Arc::new(AtomicBool::new(false));
            let end = Arc::clone(&is_over);
            let other = std::thread::spawn(move || thrash(beside, 1 << 20, &is_over));
            // Long enough for the thread to start on a busy machine.
            std::thread::sleep(Duration::from_millis(500));
            end.store(true, Ordering::Relaxed);
            assert!(other.join().unwrap() > 0);
        }
        assert!("thrashing".parse::<Beside>().is_err());
        assert!(last_level() >= 1 << 20);
    }
}

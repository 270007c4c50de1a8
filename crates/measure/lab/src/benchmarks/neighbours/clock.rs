//! The app that measures breaths.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bellows_engine::{App, Io, Port, Ports};
use bellows_stats::nearest_rank;
use bellows_sys::{clock, cpu};

use super::victim::STAMP;

/// A histogram of breaths by clocks, with classes of a relative width of at most 1/32. [`bellows_observe::Histogram`]
/// is too coarse (1/16) for a limit of 1.5 times, and counts in shared cells.
#[derive(Clone, Debug)]
struct BreathHistogram(Box<[u64; CLASSES]>);

/// The durations of breaths.
#[derive(Clone, Debug)]
pub(super) struct Breaths {
    all: BreathHistogram,
    /// Breaths in which packets of the honest guest passed.
    loaded: BreathHistogram,
    /// Page faults of the engine's thread.
    pub(super) faults: u64,
}

/// The number of classes in each doubling, and in total.
const PARTS: u32 = 32;
const CLASSES: usize = (PARTS as usize) * 60;

fn class_of(clocks: u64) -> usize {
    let clocks = clocks.max(u64::from(PARTS));
    let doublings = clocks.ilog2() - PARTS.ilog2();
    let part = (clocks >> doublings) as usize - PARTS as usize;
    doublings as usize * PARTS as usize + part
}

/// The upper bound of a class.
fn longest_of(class: usize) -> u64 {
    let (doublings, part) = (class / PARTS as usize, class % PARTS as usize);
    (((part + PARTS as usize + 1) as u64) << doublings) - 1
}

impl BreathHistogram {
    fn new() -> BreathHistogram {
        BreathHistogram(Box::new([0; CLASSES]))
    }

    fn add(&mut self, clocks: u64) {
        self.0[class_of(clocks)] += 1;
    }

    /// The quantile `part` of the breaths in class `first` and above.
    fn quantile(&self, part: f64, first: usize) -> Option<u64> {
        let all: u64 = self.0[first..].iter().sum();
        let rank = nearest_rank(all, part);
        let mut before = 0;
        self.0[first..].iter().enumerate().find_map(|(class, count)| {
            before += count;
            (*count > 0 && before >= rank).then(|| longest_of(first + class))
        })
    }
}

impl Default for Breaths {
    fn default() -> Breaths {
        Breaths { all: BreathHistogram::new(), loaded: BreathHistogram::new(), faults: 0 }
    }
}

impl Breaths {
    /// Adds the breaths of another slice.
    pub(super) fn append(&mut self, others: &Breaths) {
        for (sum, others) in [(&mut self.all, &others.all), (&mut self.loaded, &others.loaded)] {
            sum.0.iter_mut().zip(others.0.iter()).for_each(|(sum, count)| *sum += count);
        }
        self.faults += others.faults;
    }

    /// The median of the breaths in which packets of the honest guest passed.
    pub(super) fn loaded(&self) -> Option<u64> {
        self.loaded.quantile(0.5, 0)
    }

    /// The number of breaths of at least `busy` clocks.
    pub(super) fn count(&self, busy: u64) -> u64 {
        self.all.0[class_of(busy)..].iter().sum()
    }

    /// The quantile `part` of the breaths of at least `busy` clocks.
    pub(super) fn quantile(&self, part: f64, busy: u64) -> Option<u64> {
        self.all.quantile(part, class_of(busy))
    }
}

/// State shared by the engine's thread and the guests' thread.
#[derive(Default)]
pub(super) struct ClockShared {
    /// The number of the current breath, counting breaths of at least [`MIN_NUMBERED`] clocks.
    breath: AtomicU64,
    /// Whether breaths should be recorded, and whether they are.
    wanted: AtomicBool,
    records: AtomicBool,
    recorded: Mutex<Option<Breaths>>,
    /// The path of the engine's thread in `/proc`.
    thread: OnceLock<PathBuf>,
}

impl ClockShared {
    /// The number of the current breath, from 1.
    pub(super) fn breath(&self) -> u64 {
        self.breath.load(Acquire)
    }

    /// Records breaths while `work` runs.
    pub(super) fn record(&self, work: impl FnOnce()) -> Breaths {
        self.switch(true);
        work();
        self.switch(false);
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_default()
    }

    /// Nanoseconds for which the engine's thread has waited while the system ran another one on its processor.
    pub(super) fn waited(&self) -> u64 {
        let read = || {
            let schedstat = std::fs::read_to_string(self.thread.get()?.join("schedstat")).ok()?;
            schedstat.split_whitespace().nth(1)?.parse().ok()
        };
        read().unwrap_or(0)
    }

    fn switch(&self, on: bool) {
        self.wanted.store(on, Release);
        while self.records.load(Acquire) != on {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Shorter breaths are not numbered: an idle engine takes several of them before it can see what another processor has
/// just written.
const MIN_NUMBERED: u64 = 1_000;

/// Measures breaths from one call to the next, and writes the breath's number into the packets that pass.
pub(super) struct Clock {
    shared: Arc<ClockShared>,
    breath: u64,
    last: u64,
    /// Page faults of this thread before breaths were recorded.
    faults: u64,
    /// Whether packets have passed in this breath.
    loaded: bool,
    /// The recorded breaths, while recording is on.
    breaths: Option<Breaths>,
}

impl Clock {
    pub(super) fn new(shared: Arc<ClockShared>) -> Clock {
        Clock { shared, breath: 0, last: 0, faults: 0, loaded: false, breaths: None }
    }

    #[cold]
    fn switch(&mut self, on: bool) {
        self.shared.thread.get_or_init(|| {
            // Without `/proc` nothing is counted.
            let thread = std::fs::read_link("/proc/thread-self").unwrap_or_default();
            Path::new("/proc").join(thread)
        });
        let faults = cpu::thread_faults().minor;
        let recorded = std::mem::replace(&mut self.breaths, on.then(Breaths::default));
        if let Some(mut recorded) = recorded {
            recorded.faults = faults - self.faults;
            *self.shared.recorded.lock().unwrap_or_else(PoisonError::into_inner) = Some(recorded);
        }
        self.shared.records.store(on, Release);
        (self.last, self.faults) = (0, faults);
    }
}

impl App for Clock {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets of the honest guest")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same, stamped")]);
    const PULLS: bool = true;

    fn pull(&mut self, _: &Io<Self>) {
        let now = clock::ticks();
        let took = now.saturating_sub(self.last);
        if let Some(breaths) = &mut self.breaths
            && self.last != 0
        {
            breaths.all.add(took);
            if self.loaded {
                breaths.loaded.add(took);
            }
        }
        self.loaded = false;
        self.last = now;
        if took >= MIN_NUMBERED {
            self.breath += 1;
            self.shared.breath.store(self.breath, Release);
        }
        let wanted = self.shared.wanted.load(Relaxed);
        if wanted != self.breaths.is_some() {
            self.switch(wanted);
        }
    }

    fn push(&mut self, io: &Io<Self>) {
        self.loaded = true;
        let mut output = io.output(0);
        for mut packet in &mut io.input(0) {
            if let Some(stamp) = packet.bytes_mut().get_mut(STAMP) {
                stamp.copy_from_slice(&self.breath.to_le_bytes());
            }
            output.push(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_contain_their_values() {
        let mut last = 0;
        for clocks in [1, 31, 32, 33, 63, 64, 65, 127, 128, 1_000, 12_345, 1 << 40] {
            let class = class_of(clocks);
            assert!(longest_of(class) >= clocks && class >= last, "{clocks}");
            assert!(longest_of(class) as f64 <= 1.032 * clocks.max(32) as f64, "{clocks} {}", longest_of(class));
            last = class;
        }
    }

    #[test]
    fn quantiles_are_of_busy_breaths() {
        let mut breaths = Breaths::default();
        for (count, clocks) in [(9_000, 200), (990, 5_000), (10, 100_000)] {
            (0..count).for_each(|_| breaths.all.add(clocks));
        }
        let near = |found: Option<u64>, expected: f64| {
            let found = found.unwrap() as f64;
            assert!((expected..1.04 * expected).contains(&found), "{found} for {expected}");
        };
        near(breaths.quantile(0.5, 0), 200.0);
        near(breaths.quantile(0.5, 400), 5_000.0);
        near(breaths.quantile(0.999, 400), 100_000.0);
        assert_eq!(breaths.count(400), 1_000);
        assert_eq!((breaths.quantile(0.5, 1 << 30), breaths.loaded()), (None, None));
    }
}

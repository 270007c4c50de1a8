//! Finds the levels of the memory hierarchy by measuring load latencies.
//!
//! The cache sizes that the system reports are often wrong: a virtual machine may see a last level that it shares with
//! many others, or none. So the levels are measured. A chain of dependent loads goes through working sets that grow
//! from 8 KiB to 64 MiB, line by line in an order that no prefetcher guesses, on the same kind of pages as packet
//! buffers. A level is a range in which the latency stays nearly the same while the working set doubles; where the
//! latency jumps, the level is full. The latency of memory is measured on lines that have just been evicted.

use std::fmt::{self, Display};
use std::hint::black_box;
use std::io;
use std::str::FromStr;

use bellows_packet::LINE;
use bellows_sys::memory::Words;
use bellows_sys::{cache, clock};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::callgrind;

/// The level of the memory hierarchy that packets are in when an app gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resident {
    /// The first-level cache.
    L1,
    /// The second-level cache.
    L2,
    /// The third-level cache.
    L3,
    /// Memory.
    Dram,
}

impl Resident {
    /// All levels, nearest first.
    pub const ALL: [Resident; 4] = [Resident::L1, Resident::L2, Resident::L3, Resident::Dram];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Resident::L1 => "l1",
            Resident::L2 => "l2",
            Resident::L3 => "l3",
            Resident::Dram => "dram",
        }
    }
}

impl Display for Resident {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// Text that does not name a level.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a level of the memory hierarchy; give l1, l2, l3 or dram")]
pub struct UnknownResident(String);

impl FromStr for Resident {
    type Err = UnknownResident;

    fn from_str(text: &str) -> Result<Resident, UnknownResident> {
        let found = Resident::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| UnknownResident(text.to_owned()))
    }
}

/// One measured level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// The largest working set that fits, in bytes; `None` for memory.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub capacity: Option<usize>,
    /// A working set well within this level and beyond the previous one, in bytes.
    pub working_set: usize,
    /// The latency of a load from that working set.
    pub nanoseconds: f64,
}

/// The levels that were found on this machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Levels {
    /// The levels, nearest first.
    found: Vec<(Resident, Level)>,
    /// The pages of the measurement: `hugetlb`, `thp` (both 2 MiB) or `4k`.
    pub pages: String,
    /// Whether the processor has an instruction to evict lines.
    evicts: bool,
}

/// How packets get into a level: by their number, and by what is done after writing them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residence {
    /// The level.
    pub level: Resident,
    /// The bytes of packets that the level holds besides other data.
    pub(crate) hold: usize,
    pub(crate) displacement: Displacement,
}

/// How packets leave the nearer levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Displacement {
    /// They stay in the first level.
    None,
    /// This number of other bytes is read.
    Read(usize),
    /// They are evicted from all caches.
    Evict,
}

/// A level that was not found on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no {level} was found on this machine, only {}; leave {level} out, or measure again when the machine is quieter",
    list(.found)
)]
pub struct NotFound {
    level: Resident,
    found: Vec<Resident>,
}

fn list(levels: &[Resident]) -> String {
    levels.iter().map(|level| level.name()).collect::<Vec<_>>().join(", ")
}

/// The smallest and the largest working set, and the number of steps per doubling.
const MIN_WORKING_SET: usize = 8 << 10;
const MAX_WORKING_SET: usize = 64 << 20;
const STEPS_PER_DOUBLING: u32 = 2;

/// Measurements of a working set in a row. The shortest counts, because interference only adds time.
const REPETITIONS: usize = 8;

/// Passes over all working sets up to `SMALL`, because other users of the caches may be quieter in another pass.
const PASSES: usize = 4;
const SMALL: usize = 16 << 20;

/// The number of loads that are timed together.
const LOADS: usize = 4_096;

/// The maximum number of untimed loads before the first timed one: enough to visit a working set of 4 MiB once.
const MAX_WARM_UP: usize = 4 << 20 >> 6;

/// The number of evicted lines, and of loads from them.
const EVICTED: usize = 1 << 16;
const EVICTED_LOADS: usize = 2_000;

/// The number of words in a line.
const WORDS: usize = LINE / size_of::<u64>();

/// One point of the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    /// The bytes of the working set.
    size: usize,
    nanoseconds: f64,
}

impl Levels {
    /// Measures the levels on the calling thread's processor. Takes a quarter of a second.
    ///
    /// # Errors
    /// When the system does not provide 64 MiB of memory.
    pub fn measure() -> Result<Levels, MeasureError> {
        let mut words = Words::new(MAX_WORKING_SET / size_of::<u64>()).map_err(MeasureError)?;
        let mut curve: Vec<Point> = sizes().map(|size| Point { size, nanoseconds: f64::INFINITY }).collect();
        for pass in 0..PASSES {
            for point in curve.iter_mut().filter(|point| pass == 0 || point.size <= SMALL) {
                point.nanoseconds = point.nanoseconds.min(load(&mut words, point.size));
            }
        }
        let memory = evicted_load(&mut words);
        Ok(Levels { found: find(&curve, memory), pages: words.pages().to_string(), evicts: cache::evict::<u64>([]) })
    }

    /// One of the levels.
    ///
    /// # Errors
    /// When the level was not found.
    pub fn get(&self, level: Resident) -> Result<Level, NotFound> {
        let found = self.found.iter().find(|(name, _)| *name == level);
        found.map(|(_, found)| *found).ok_or_else(|| NotFound { level, found: self.names() })
    }

    /// How packets get into a level.
    ///
    /// # Errors
    /// When the level was not found.
    pub fn residence(&self, level: Resident) -> Result<Residence, NotFound> {
        let found = self.get(level)?;
        let before = self.found.iter().rev().filter(|(name, _)| *name < level).find_map(|(_, level)| level.capacity);
        let displacement = match (level, before) {
            (Resident::L1, _) | (_, None) => Displacement::None,
            (Resident::Dram, _) if self.evicts => Displacement::Evict,
            (_, Some(before)) => Displacement::Read(2 * before),
        };
        Ok(Residence { level, hold: found.capacity.map_or(usize::MAX, |capacity| capacity / 2), displacement })
    }

    /// The levels of callgrind's two simulated caches. The second one serves as second and third level.
    pub fn simulated() -> Levels {
        let cache = |capacity| Level { capacity: Some(capacity), working_set: capacity / 2, nanoseconds: f64::NAN };
        let found = vec![
            (Resident::L1, cache(callgrind::L1)),
            (Resident::L2, cache(callgrind::LL / 16)),
            (Resident::L3, cache(callgrind::LL)),
            (Resident::Dram, Level { capacity: None, ..cache(4 * callgrind::LL) }),
        ];
        Levels { found, pages: "simulated".to_owned(), evicts: false }
    }

    /// The names of the levels, nearest first.
    pub fn names(&self) -> Vec<Resident> {
        self.found.iter().map(|(name, _)| *name).collect()
    }
}

/// The memory for the measurement is unavailable.
#[derive(Debug, thiserror::Error)]
#[error(
    "no memory to measure the levels of the memory hierarchy ({mebibytes} MiB): {0}; check the memory limits",
    mebibytes = MAX_WORKING_SET >> 20
)]
pub struct MeasureError(io::Error);

/// A text table.
impl Display for Levels {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, level) in &self.found {
            let holds = level.capacity.map_or(String::new(), bytes);
            writeln!(formatter, "{name:<4} {holds:>8} {:>7.1} ns", level.nanoseconds)?;
        }
        Ok(())
    }
}

/// Bytes in a suitable unit.
pub(crate) fn bytes(count: usize) -> String {
    match count {
        0..10_240 => format!("{count} B"),
        10_240..1_048_576 => format!("{:.0} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}

/// The sizes of the working sets, a geometric sequence.
fn sizes() -> impl Iterator<Item = usize> {
    let steps = (MAX_WORKING_SET / MIN_WORKING_SET).ilog2() * STEPS_PER_DOUBLING;
    (0..=steps).map(|step| {
        let size = MIN_WORKING_SET as f64 * (f64::from(step) / f64::from(STEPS_PER_DOUBLING)).exp2();
        size as usize / LINE * LINE
    })
}

/// The latency of a load from a working set of `size` bytes, in nanoseconds.
fn load(words: &mut [u64], size: usize) -> f64 {
    let lines = size / LINE;
    link(words, lines);
    let mut at = chase(words, 0, lines.min(MAX_WARM_UP));
    let mut once = || {
        let start = clock::ticks();
        at = chase(words, at, LOADS);
        clock::ticks() - start
    };
    nanoseconds((0..REPETITIONS).map(|_| once()).min(), LOADS)
}

/// The latency of a load from memory, in nanoseconds; `None` if lines cannot be evicted.
fn evicted_load(words: &mut [u64]) -> Option<f64> {
    link(words, EVICTED);
    let once = || {
        if !cache::evict([&words[..EVICTED * WORDS]]) {
            return None;
        }
        let start = clock::ticks();
        chase(words, 0, EVICTED_LOADS);
        Some(clock::ticks() - start)
    };
    let times: Option<Vec<u64>> = (0..REPETITIONS).map(|_| once()).collect();
    Some(nanoseconds(times?.into_iter().min(), EVICTED_LOADS))
}

fn nanoseconds(ticks: Option<u64>, loads: usize) -> f64 {
    ticks.unwrap_or(0) as f64 * 1e9 / clock::ticks_per_second() as f64 / loads as f64
}

/// Links `lines` lines into one cycle in random order (Sattolo 1986): the first word of each is the index of the next.
fn link(words: &mut [u64], lines: usize) {
    let mut random = Rng::with_seed(lines as u64);
    for line in 0..lines {
        words[line * WORDS] = (line * WORDS) as u64;
    }
    for line in (1..lines).rev() {
        words.swap(line * WORDS, random.usize(..line) * WORDS);
    }
}

/// Follows the cycle.
fn chase(words: &[u64], start: usize, loads: usize) -> usize {
    let mut at = start;
    for _ in 0..loads {
        at = words[at] as usize;
    }
    black_box(at)
}

/// Neighbouring working sets whose latencies differ by a larger factor are on different levels.
const JUMP: f64 = 1.3;

/// The minimum number of points of a level: its working set doubles.
const MIN_POINTS: usize = STEPS_PER_DOUBLING as usize + 1;

/// A latency of at least this share of memory's means that some loads come from memory.
const MEMORY_SHARE: f64 = 0.6;

/// The maximum number of caches.
const CACHES: usize = 3;

/// The minimum ratio of memory's latency to the first level's. With less there is no hierarchy.
const MIN_LATENCY_RATIO: f64 = 4.0;

/// The minimum latency of memory in nanoseconds, to recognize it if lines cannot be evicted.
const MEMORY: f64 = 50.0;

/// The levels in a curve, given the latency of memory.
fn find(curve: &[Point], memory: Option<f64>) -> Vec<(Resident, Level)> {
    let curve = smoothed(curve);
    let Some(first) = curve.first() else { return Vec::new() };
    // The end of the curve without its very last points, which no later points confirm.
    let last = curve[curve.len().saturating_sub(MIN_POINTS)].nanoseconds;
    let memory = memory
        .or(Some(last).filter(|&last| last > MEMORY))
        .filter(|memory| *memory > MIN_LATENCY_RATIO * first.nanoseconds);
    let limit = memory.map_or(f64::INFINITY, |memory| MEMORY_SHARE * memory);
    let cached = curve.partition_point(|point| point.nanoseconds < limit);
    let names = Resident::ALL.into_iter();
    let mut found: Vec<(Resident, Level)> = names.zip(plateaus(&curve[..cached]).into_iter().map(Level::of)).collect();
    if let Some(nanoseconds) = memory {
        let largest = found.last().and_then(|(_, level)| level.capacity).unwrap_or(0);
        found.push((
            Resident::Dram,
            Level { capacity: None, working_set: (4 * largest).max(MAX_WORKING_SET), nanoseconds },
        ));
    }
    found
}

/// Makes the curve monotonic: a larger working set cannot be faster, so higher values before it were disturbed.
fn smoothed(curve: &[Point]) -> Vec<Point> {
    let mut least = f64::INFINITY;
    let mut smoothed: Vec<Point> = curve
        .iter()
        .rev()
        .map(|point| {
            least = least.min(point.nanoseconds);
            Point { nanoseconds: least, ..*point }
        })
        .collect();
    smoothed.reverse();
    smoothed
}

/// The parts of the curve without a jump that are long enough, at most three.
fn plateaus(curve: &[Point]) -> Vec<&[Point]> {
    let mut plateaus: Vec<&[Point]> = curve
        .chunk_by(|one, next| next.nanoseconds < JUMP * one.nanoseconds)
        .filter(|plateau| plateau.len() >= MIN_POINTS)
        .collect();
    // One level can look like two, for example when small pages no longer fit into the TLB. Such pairs are the closest.
    while plateaus.len() > CACHES {
        let ratio = |pair: usize| middle(plateaus[pair + 1]) / middle(plateaus[pair]);
        let closest = (0..plateaus.len() - 1).min_by(|&one, &other| ratio(one).total_cmp(&ratio(other)));
        let second = plateaus.remove(closest.unwrap_or(0) + 1);
        let first = &mut plateaus[closest.unwrap_or(0)];
        let start = curve.partition_point(|point| point.size < first[0].size);
        let end = curve.partition_point(|point| point.size <= second[second.len() - 1].size);
        *first = &curve[start..end];
    }
    plateaus
}

fn middle(plateau: &[Point]) -> f64 {
    plateau[plateau.len() / 2].nanoseconds
}

impl Level {
    /// The cache of a part of the curve.
    fn of(plateau: &[Point]) -> Level {
        let (first, last) = (plateau[0].size, plateau[plateau.len() - 1].size);
        let ideal = (first as f64 * last as f64).sqrt();
        let distance = |point: &&Point| (point.size as f64 / ideal).ln().abs();
        let nearest = plateau.iter().min_by(|one, other| distance(one).total_cmp(&distance(other)));
        let Point { size, nanoseconds } = *nearest.unwrap_or(&plateau[0]);
        Level { capacity: Some(last), working_set: size, nanoseconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A simulated machine: the size and latency of each cache, and the latency of memory.
    #[derive(Clone, Debug)]
    struct SimulatedMachine {
        caches: Vec<(usize, f64)>,
        memory: f64,
    }

    impl SimulatedMachine {
        /// The latency of a load in a cycle through `size` bytes. A cache that is too small keeps hardly any of them.
        fn load(&self, size: usize) -> f64 {
            let below = |cache: usize| self.caches.get(cache + 1).map_or(self.memory, |next| next.1);
            let fits = self.caches.iter().position(|(capacity, _)| size <= 2 * capacity);
            match fits.map(|cache| (cache, self.caches[cache])) {
                None => self.memory,
                Some((_, (capacity, time))) if size <= capacity => time,
                Some((cache, (capacity, time))) => {
                    let missing = (size - capacity) as f64 / capacity as f64;
                    time * (1.0 - missing) + below(cache) * missing
                }
            }
        }

        fn curve(&self, noise: &[f64]) -> Vec<Point> {
            let noise = noise.iter().chain(std::iter::repeat(&0.0));
            sizes()
                .zip(noise)
                .map(|(size, noise)| Point { size, nanoseconds: self.load(size) * (1.0 + noise) })
                .collect()
        }
    }

    /// Machines with such a number of caches, each at least eight times as large and 1.5 times as slow as the one
    /// before, and memory.
    fn machine(caches: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = SimulatedMachine> {
        let steps = proptest::collection::vec((8.0..24.0f64, 2.2..5.0f64), caches);
        (20usize << 10..64 << 10, 0.8..2.0f64, steps, 2.5..8.0f64).prop_map(|(size, time, steps, memory)| {
            let mut caches = vec![(size, time)];
            for (larger, slower) in steps {
                let (size, time) = caches[caches.len() - 1];
                caches.push(((size as f64 * larger) as usize, time * slower));
            }
            // Memory must be slower than the last cache to be distinguishable.
            let slowest = caches[caches.len() - 1].1;
            SimulatedMachine { memory: (slowest * memory).max(60.0), caches }
        })
    }

    /// Noise: mostly small, sometimes large, never negative, because the shortest of several times counts.
    fn noise() -> impl Strategy<Value = Vec<f64>> {
        let three = (0.0..0.08f64, prop_oneof![9 => 0.0..0.08f64, 1 => 0.0..1.0f64], 0.0..0.08f64);
        let times = sizes().count().div_ceil(3);
        proptest::collection::vec(three, times).prop_map(|noise| noise.into_iter().flat_map(<[f64; 3]>::from).collect())
    }

    fn check(machine: &SimulatedMachine, found: &[(Resident, Level)]) -> Result<(), TestCaseError> {
        let names: Vec<Resident> = found.iter().map(|(name, _)| *name).collect();
        let expected = [&Resident::ALL[..machine.caches.len()], &[Resident::Dram]].concat();
        prop_assert_eq!(names, expected, "{:?}", found);
        let mut before = 0;
        for ((capacity, time), (_, level)) in machine.caches.iter().zip(found) {
            let ratio = level.capacity.unwrap() as f64 / *capacity as f64;
            prop_assert!((0.5..=2.0).contains(&ratio), "{:?}: capacity {}", level, capacity);
            prop_assert!(level.working_set > before && level.working_set <= *capacity, "{:?}", level);
            prop_assert!((0.85..1.3).contains(&(level.nanoseconds / time)), "{:?}: {} ns", level, time);
            before = *capacity;
        }
        prop_assert!(found[found.len() - 1].1.working_set > before);
        Ok(())
    }

    proptest! {
        /// Each cache is found with its latency, an approximate size, and a working set that fits into it but not into
        /// the one before.
        #[test]
        fn the_levels_of_a_noisy_curve_are_found(machine in machine(1..=2), noise in noise()) {
            check(&machine, &find(&machine.curve(&noise), Some(machine.memory)))?;
        }

        /// Without an instruction to evict lines, memory is at the end of the curve, if that is slow enough.
        #[test]
        fn memory_is_found_at_the_end_of_the_curve(machine in machine(1..=1), noise in noise()) {
            check(&machine, &find(&machine.curve(&noise), None))?;
        }

        /// A flat curve has one level and no memory.
        #[test]
        fn a_flat_curve_is_one_level(time in 0.5..3.0f64, noise in noise(), evicts in any::<bool>()) {
            let flat = SimulatedMachine { caches: vec![(MAX_WORKING_SET, time)], memory: time };
            let found = find(&flat.curve(&noise), evicts.then_some(time * 1.5));
            prop_assert_eq!(found.len(), 1, "{:?}", found);
            prop_assert_eq!(found[0].0, Resident::L1);
        }

        /// No curve causes a panic, and levels are in order.
        #[test]
        fn any_curve_is_read(times in proptest::collection::vec(0.0..1e3f64, 0..40), memory in prop::option::of(0.0..1e3f64)) {
            let curve: Vec<Point> = sizes().zip(times).map(|(size, nanoseconds)| Point { size, nanoseconds }).collect();
            let found = find(&curve, memory);
            prop_assert!(found.is_sorted_by(|one, next| one.0 < next.0 && one.1.working_set < next.1.working_set));
        }
    }

    /// Pages of 4 KiB make the second level look like two, and the third too.
    #[test]
    fn a_level_that_looks_like_two_is_merged() {
        let caches = vec![(48 << 10, 1.3), (256 << 10, 3.9), (1 << 20, 6.0), (6 << 20, 18.0), (24 << 20, 26.0)];
        let found = find(&SimulatedMachine { caches, memory: 110.0 }.curve(&[]), Some(110.0));
        let sizes: Vec<usize> = found.iter().filter_map(|(_, level)| level.capacity).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        assert!((1 << 20..2 << 20).contains(&sizes[1]) && sizes[2] >= 16 << 20, "{found:?}");
    }

    #[test]
    fn names_are_parsed() {
        for level in Resident::ALL {
            assert_eq!(level.to_string().parse(), Ok(level));
            assert_eq!(serde_json::to_value(level).unwrap(), level.name());
        }
        let error = "l4".parse::<Resident>().unwrap_err().to_string();
        assert_eq!(error, "`l4` is not a level of the memory hierarchy; give l1, l2, l3 or dram");
    }

    #[test]
    fn a_missing_level_is_reported_with_the_existing_ones() {
        let machine = SimulatedMachine { caches: vec![(32 << 10, 1.2), (2 << 20, 4.0)], memory: 90.0 };
        let levels = Levels { found: find(&machine.curve(&[]), Some(90.0)), pages: "thp".into(), evicts: true };
        assert_eq!(
            levels.get(Resident::L3).unwrap_err().to_string(),
            "no l3 was found on this machine, only l1, l2, dram; leave l3 out, or measure again when the machine is \
             quieter"
        );
        assert_eq!(serde_json::from_value::<Levels>(serde_json::to_value(&levels).unwrap()).unwrap(), levels);
        assert_eq!(
            levels.to_string(),
            "l1     32 KiB     1.2 ns\nl2    2.0 MiB     4.0 ns\ndram             90.0 ns\n"
        );
    }

    /// Packets get into each further level by leaving the one before, and into memory by eviction, if that is possible.
    #[test]
    fn packets_leave_the_levels_before() {
        let machine = SimulatedMachine { caches: vec![(32 << 10, 1.2), (2 << 20, 4.0)], memory: 90.0 };
        let mut levels = Levels { found: find(&machine.curve(&[]), Some(90.0)), pages: "thp".into(), evicts: true };
        let ways = |levels: &Levels| {
            levels.names().into_iter().map(|level| levels.residence(level).unwrap()).collect::<Vec<Residence>>()
        };
        let (l1, l2, dram) = (Resident::L1, Resident::L2, Resident::Dram);
        let evicting = Residence { level: dram, hold: usize::MAX, displacement: Displacement::Evict };
        let cached = [
            Residence { level: l1, hold: 16 << 10, displacement: Displacement::None },
            Residence { level: l2, hold: 1 << 20, displacement: Displacement::Read(64 << 10) },
        ];
        assert_eq!(ways(&levels), [&cached[..], &[evicting]].concat());
        levels.evicts = false;
        let washing = Residence { displacement: Displacement::Read(4 << 20), ..evicting };
        assert_eq!(ways(&levels), [&cached[..], &[washing]].concat());
        assert!(levels.residence(Resident::L3).is_err());
        let simulated = Levels::simulated();
        assert!(Resident::ALL.iter().all(|level| simulated.residence(*level).is_ok()));
        assert_ne!(
            simulated.residence(dram).unwrap().displacement,
            Displacement::Evict,
            "no simulated cache notices an eviction"
        );
    }

    /// A cycle visits each line once before it repeats.
    #[test]
    fn a_chase_visits_every_line() {
        let mut words = vec![0; 100 * WORDS];
        link(&mut words, 100);
        let mut visited = [false; 100];
        let mut at = 0;
        for _ in 0..100 {
            visited[at / WORDS] = true;
            at = chase(&words, at, 1);
        }
        assert!(visited.iter().all(|visited| *visited) && at == 0);
    }

    #[test]
    fn this_machine_shows_at_least_one_level() {
        let levels = Levels::measure().unwrap();
        let first = levels.get(Resident::L1).unwrap();
        assert!(first.nanoseconds > 0.0 && first.working_set <= MAX_WORKING_SET, "{levels}");
    }
}

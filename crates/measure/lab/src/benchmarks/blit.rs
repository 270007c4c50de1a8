//! `bench blit`: the speed of copies by a blitter, compared with `memcpy`.
//!
//! Packets are copied between two rows of buffers like those of a packet pool and of a guest: 2,240 bytes apart, with
//! the data at offset 192, or 12 bytes further on one of the two sides, where the virtio-net header ends. That side is
//! the source of every second copy and the destination of the others, so source and destination are never aligned to
//! each other. Both rows together fit into one level of the memory hierarchy, or have just been evicted from all
//! caches.
//!
//! In each process the copy methods take turns, round by round. A mix of sizes is shuffled for every round, because a
//! processor learns any order that it sees twice.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};
use std::str::FromStr;

use bellows_blit::Blitter;
use bellows_blit::plan::{Move, Plan};
use bellows_sys::cache;
use bellows_sys::memory::Words;
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::{Benchmark, Common, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::named::named;
use crate::report::{BenchError, Measurement, Report, chosen};
use crate::residence::{Levels, Resident};
use crate::timing::{clocks, lower_quartile, median_or_nan};
use crate::workers::{self, fail, settle};

/// The distance between buffers, the offset of the data, and the extra offset on one side.
const STRIDE: usize = 2_240;
const START: usize = 192;
const HEADER: usize = 12;

const LINE: usize = 64;

/// The simple mix: lengths, and how many of each.
const IMIX: [(usize, usize); 3] = [(60, 7), (576, 4), (1_500, 1)];

/// The maximum bytes of sources and destinations together.
const MAX_BYTES: usize = 8 << 20;

/// The maximum memory that they are spread over.
const MAX_SPREAD: usize = 96 << 20;

/// The minimum copies in a round: few enough for their list to leave room in the first-level cache.
const MIN_ROUND: usize = 512;

/// Repetitions of a round that are timed as one, if the sizes are not shuffled.
const REPETITIONS: usize = 4;

/// Copies in a round with evicted data. Few, because eviction takes long.
const COLD_ROUND: usize = 512;

/// The lengths of the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Size {
    /// Packets of one length.
    Bytes(usize),
    /// 60, 576 and 1,500 bytes as 7 : 4 : 1, in random order.
    Imix,
}

impl Size {
    /// The default sizes.
    pub const ALL: [Size; 11] = [
        Size::Bytes(32),
        Size::Bytes(60),
        Size::Bytes(64),
        Size::Bytes(128),
        Size::Bytes(256),
        Size::Bytes(512),
        Size::Bytes(1_024),
        Size::Bytes(1_500),
        Size::Bytes(4_096),
        Size::Bytes(9_000),
        Size::Imix,
    ];

    /// The lengths, repeated by their weights.
    fn lengths(self) -> Vec<usize> {
        match self {
            Size::Bytes(length) => vec![length],
            Size::Imix => IMIX.iter().flat_map(|&(length, times)| vec![length; times]).collect(),
        }
    }

    fn label(self) -> Value {
        match self {
            Size::Bytes(length) => json!(length),
            Size::Imix => json!("imix"),
        }
    }
}

impl Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Bytes(length) => formatter.pad(&length.to_string()),
            Size::Imix => formatter.pad("imix"),
        }
    }
}

/// Text that is not a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a size; give bytes from 1 to 65536, or imix")]
pub struct UnknownSize(String);

impl FromStr for Size {
    type Err = UnknownSize;

    fn from_str(text: &str) -> Result<Size, UnknownSize> {
        match (text, text.parse()) {
            ("imix", _) => Ok(Size::Imix),
            (_, Ok(length @ 1..=65_536)) => Ok(Size::Bytes(length)),
            _ => Err(UnknownSize(text.to_owned())),
        }
    }
}

named! {
    /// The level of the memory hierarchy that sources and destinations are in.
    pub enum Where {
        /// In the first-level cache.
        L1 = "l1",
        /// In the second-level cache.
        L2 = "l2",
        /// In the third-level cache.
        L3 = "l3",
        /// Evicted from all caches.
        Cold = "cold",
    }
}

impl Where {
    fn resident(self) -> Resident {
        match self {
            Where::L1 => Resident::L1,
            Where::L2 => Resident::L2,
            Where::L3 => Resident::L3,
            Where::Cold => Resident::Dram,
        }
    }
}

named! {
    /// When a blitter copies.
    enum BlitCase {
        /// The blitter decides for each copy.
        Copy = "copy",
        /// All copies wait for the barrier.
        Deferred = "deferred",
    }
}

impl BlitCase {
    fn blitter(self) -> Blitter {
        match self {
            BlitCase::Copy => Blitter::new(),
            BlitCase::Deferred => Blitter::deferring(),
        }
    }
}

/// Measure the speed of batched packet copies, compared with memcpy
///
/// Packets are copied from one row of buffers to another, by one call of memcpy per packet, and by a blitter with a
/// barrier after each batch. Cases: copy (the blitter decides when to do a copy), deferred (all copies are done at the
/// barrier). A ratio above 1 means that the blitter is faster; it is the median of the processes' ratios with its 95
/// percent confidence interval.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figures: Figures,
    /// Bytes per copy, or imix: 60, 576 and 1500 bytes as 7 : 4 : 1, shuffled
    #[arg(
        long,
        value_name = "BYTES,…",
        value_delimiter = ',',
        default_value = "32,60,64,128,256,512,1024,1500,4096,9000,imix"
    )]
    size: Vec<Size>,
    /// Copies between barriers
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,32,256",
        value_parser = whole(1..=1024)
    )]
    batch: Vec<usize>,
    /// Cache levels of sources and destinations
    #[arg(long = "where", value_name = "LEVEL,…", value_delimiter = ',', default_value = "l1,l2,l3,cold")]
    places: Vec<Where>,
    /// Rounds per process, of which the lower quartile counts
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = whole(1..=60_000))]
    rounds: usize,
}

/// All sizes and batches in one level, for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct BlitTask {
    place: Where,
    /// Bytes of sources and destinations together.
    hold: usize,
    cases: Vec<BlitCase>,
    options: Arguments,
}

/// One figure of one process, in clocks per copy.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct BlitFigure {
    size: Size,
    batch: usize,
    case: BlitCase,
    memcpy: f64,
    blit: f64,
}

/// The figures of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct BlitAnswer {
    figures: Vec<BlitFigure>,
}

/// Runs the benchmark. Its workers call [`measure`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cases = chosen(BlitCase::ALL, BlitCase::name, &options.figures.case)?;
    let levels = Levels::measure().map_err(BenchError::Levels)?;
    let mut notes = Vec::new();
    let mut tasks = Vec::new();
    for &place in &options.places {
        match levels.get(place.resident()) {
            Ok(level) => {
                let hold = level.capacity.map_or(MAX_BYTES, |capacity| capacity / 2);
                tasks.push(BlitTask { place, hold, cases: cases.clone(), options: options.clone() });
            }
            Err(missing) => notes.push(missing.to_string()),
        }
    }
    let report = lab.report(options, &tasks, options.figures.processes, |answers: &[Vec<BlitAnswer>]| {
        (tasks.iter().zip(answers).flat_map(|(task, answers)| figures(task, answers)).collect(), notes)
    })?;
    Ok(Finished::new(report, text))
}

/// The medians over the processes.
fn figures(task: &BlitTask, answers: &[BlitAnswer]) -> Vec<Measurement> {
    let mut found: BTreeMap<(BlitCase, Size, usize), Vec<BlitFigure>> = BTreeMap::new();
    for figure in answers.iter().flat_map(|answer| &answer.figures) {
        found.entry((figure.case, figure.size, figure.batch)).or_default().push(*figure);
    }
    let measurement = |((case, size, batch), figures): (&(BlitCase, Size, usize), &Vec<BlitFigure>)| {
        let each = |of: fn(&BlitFigure) -> f64| figures.iter().map(of).collect::<Vec<f64>>();
        let tenths = |clocks: f64| json!((clocks * 10.0).round() / 10.0);
        let labels = vec![
            ("size", size.label()),
            ("batch", json!(batch)),
            ("where", json!(task.place)),
            ("clocks", tenths(median_or_nan(&each(|figure| figure.blit)))),
            ("memcpy", tenths(median_or_nan(&each(|figure| figure.memcpy)))),
        ];
        Measurement::of(case.name(), "ratio", &each(|figure| figure.memcpy / figure.blit), labels)
    };
    found.iter().filter_map(measurement).collect()
}

/// Does one task, in a fresh process.
fn measure(task: BlitTask) -> BlitAnswer {
    settle(task.options.common.cpu);
    let mut figures = Vec::new();
    let mut random = Rng::new();
    for &size in &task.options.size {
        let moves = moves(size, &task, &mut random);
        let memory = moves.iter().map(|one| one.from.max(one.to) + one.room).max().unwrap_or(0);
        let mut words = Words::new(memory / size_of::<u64>() + 1).unwrap_or_else(|error| fail(&error));
        words.fill(1);
        let mut plan = Plan::new(words.bytes_mut(), &moves).unwrap_or_else(|error| fail(&format!("{error:?}")));
        for &batch in &task.options.batch {
            figures.extend(compare(&mut plan, size, batch, &task, &mut random));
        }
    }
    BlitAnswer { figures }
}

/// The copies of a round: from one row of buffers to another, both in random order, repeated if there are few buffers.
fn moves(size: Size, task: &BlitTask, random: &mut Rng) -> Vec<Move> {
    let lengths = size.lengths();
    let longest = lengths.iter().copied().max().unwrap_or(1);
    // An odd number of lines, so that buffers do not compete for the same cache sets.
    let stride = STRIDE.max(((START + HEADER + longest).div_ceil(LINE) | 1) * LINE);
    let lines: usize = lengths.iter().map(|length| length.div_ceil(LINE) + 1).sum();
    let taken = 2 * LINE * lines / lengths.len();
    let most = if task.place == Where::Cold { MAX_BYTES } else { task.hold.min(MAX_BYTES) } / taken;
    let pairs =
        most.clamp(1, MAX_SPREAD / (2 * stride)).min(if task.place == Where::L1 { MIN_ROUND } else { usize::MAX });
    let mut order = || {
        let mut order: Vec<usize> = (0..pairs).collect();
        random.shuffle(&mut order);
        order
    };
    let (sources, destinations) = (order(), order());
    let count = match task.place {
        Where::Cold => pairs,
        _ => MIN_ROUND.max(pairs),
    };
    let start_of = |row: usize, buffer: usize, further: bool| {
        (row * pairs + buffer) * stride + START + if further { HEADER } else { 0 }
    };
    (0..count)
        .map(|index| Move {
            from: start_of(0, sources[index % pairs], index % 2 == 1),
            to: start_of(1, destinations[index % pairs], index % 2 == 0),
            room: longest,
        })
        .collect()
}

/// Measures the copy methods in turn.
fn compare(plan: &mut Plan, size: Size, batch: usize, task: &BlitTask, random: &mut Rng) -> Vec<BlitFigure> {
    let BlitTask { place, cases, options, .. } = task;
    let (all, cold) = (plan.moves(), *place == Where::Cold);
    let round = if cold { COLD_ROUND.max(batch).min(all) } else { all };
    let lengths = size.lengths();
    let mut shuffled: Vec<usize> = lengths.iter().copied().cycle().take(all).collect();
    let mut blitters: Vec<(BlitCase, Blitter)> = cases.iter().map(|&case| (case, case.blitter())).collect();
    let mut samples = vec![Vec::new(); 1 + blitters.len()];
    for turn in 0..options.rounds.max(1) {
        for way in 0..samples.len() {
            let way = (way + turn) % samples.len();
            if lengths.len() > 1 || turn == 0 {
                random.shuffle(&mut shuffled);
                plan.set_lengths(shuffled.iter().copied());
            }
            let start = if cold { random.usize(..=all - round) } else { 0 };
            let moves = start..start + round;
            let mut copy = |plan: &mut Plan| match way.checked_sub(1).map(|way| &mut blitters[way].1) {
                None => plan.memcpy(moves.clone()),
                Some(blitter) if batch == 1 => plan.blit_singly(blitter, moves.clone()),
                Some(blitter) => plan.blit(blitter, moves.clone(), batch),
            };
            if cold {
                cache::evict(plan.ranges(moves.clone()));
            } else if lengths.len() == 1 {
                copy(plan);
            }
            let times = if cold || lengths.len() > 1 { 1 } else { REPETITIONS };
            samples[way].push(clocks(times, || copy(plan)) / round as f64);
        }
    }
    let [memcpy, rest @ ..] = samples.as_slice() else { return Vec::new() };
    let memcpy = lower_quartile(memcpy);
    let figure = |(case, samples): (BlitCase, &Vec<f64>)| BlitFigure {
        size,
        batch,
        case,
        memcpy,
        blit: lower_quartile(samples),
    };
    cases.iter().copied().zip(rest).map(figure).collect()
}

/// The text report: a table for each case and level, with a row for each size and a column for each batch.
fn text(report: &Report) -> String {
    let mut text = report.heading();
    let _ = writeln!(
        text,
        "ratio to memcpy (above 1: faster) with {}; in brackets the clocks per copy of memcpy and of the blitter",
        report.interval()
    );
    let key = |result: &Measurement| (result.case.clone(), result.labels["where"].clone());
    for part in report.results.chunk_by(|one, next| key(one) == key(next)) {
        let _ = writeln!(text, "\n{}, {}", part[0].case, part[0].labels["where"].as_str().unwrap_or_default());
        let mut batches: Vec<&Value> = part.iter().map(|result| &result.labels["batch"]).collect();
        batches.sort_by_key(|batch| batch.as_u64());
        batches.dedup();
        let _ = write!(text, "{:>6}", "size");
        for batch in &batches {
            let _ = write!(text, "  {:>38}", format!("batches of {batch}"));
        }
        text.push('\n');
        for line in part.chunk_by(|one, next| one.labels["size"] == next.labels["size"]) {
            let size = &line[0].labels["size"];
            let _ = write!(text, "{:>6}", size.as_str().map_or_else(|| size.to_string(), str::to_owned));
            for result in line {
                let Measurement { median, low, high, labels, .. } = result;
                let clocks = format!("({} : {})", labels["memcpy"], labels["clocks"]);
                let ratio = format!("{median:.2} ({low:.2} – {high:.2})");
                let _ = write!(text, "  {ratio} {clocks:>19}");
            }
            text.push('\n');
        }
    }
    text + &report.sentences_below()
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[],
    every: &["size", "batch", "where", "clocks", "memcpy"],
    rows: &[
        CaseRow::of(&["copy"], "ratio", "the time of `memcpy` over that of a blitter: above 1 the blitter is faster"),
        CaseRow::of(&["deferred"], "ratio", "the same for a blitter that defers all copies to the barrier"),
    ],
    labels: &[
        label(
            "size",
            LabelKind::Either(&[LabelKind::Integer, LabelKind::Word(&["imix"])]),
            "bytes of a copy, or `imix`: 60, 576 and 1,500 bytes as 7 : 4 : 1, in random order",
        ),
        label("batch", LabelKind::Integer, "copies between barriers"),
        label(
            "where",
            LabelKind::Word(&["l1", "l2", "l3", "cold"]),
            "where sources and destinations are: in a cache (`l1`, `l2`, `l3`), or in none (`cold`)",
        ),
        label("clocks", LabelKind::Decimal, "clocks of a copy by the blitter"),
        label("memcpy", LabelKind::Decimal, "clocks of a copy by `memcpy`"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "blit";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 1 --size 60 --where l1 --batch 32";
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "nonsense"], "no case has `nonsense` in its name; there are copy and deferred"),
        (&["--size", "60,0"], "`0` is not a size; give bytes from 1 to 65536, or imix"),
        (&["--where", "dram"], "there is no `dram`; give l1, l2, l3 or cold"),
        (&["--batch", "0"], "0 is not in 1..=1024"),
    ];
    const WORK: RunWorker = |_| workers::answer(measure);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::parsed;
    use bellows_sys::clock;

    fn task(place: Where, hold: usize) -> BlitTask {
        BlitTask { place, hold, cases: BlitCase::ALL.to_vec(), options: parsed(&["--rounds", "2"]) }
    }

    #[test]
    fn buffers_fit_into_their_level_and_lie_apart() {
        for size in Size::ALL {
            for (place, hold) in [(Where::L1, 24 << 10), (Where::L2, 512 << 10), (Where::Cold, MAX_BYTES)] {
                let moves = moves(size, &task(place, hold), &mut Rng::with_seed(1));
                let mut places: Vec<(usize, usize)> =
                    moves.iter().flat_map(|one| [(one.from, one.room), (one.to, one.room)]).collect();
                places.sort_unstable();
                // The next copy between the same buffers has the header on the other side.
                assert!(places.windows(2).all(|two| two[1].0 - two[0].0 <= HEADER || two[0].0 + two[0].1 < two[1].0));
                let mut buffers: Vec<usize> = moves.iter().map(|one| one.from / LINE).collect();
                buffers.sort_unstable();
                buffers.dedup();
                let bytes: usize = size.lengths().iter().sum::<usize>() / size.lengths().len();
                assert!(
                    place == Where::Cold || buffers.len() == 1 || 2 * bytes * buffers.len() <= hold,
                    "{size} {place:?}"
                );
                assert!(moves.iter().all(|one| one.from % LINE != one.to % LINE), "never both aligned alike");
            }
        }
    }

    #[test]
    fn every_copy_method_is_measured() {
        clock::calibrate();
        for place in [Where::L1, Where::Cold] {
            let mut task = task(place, 24 << 10);
            task.options.size = vec![Size::Bytes(60), Size::Imix];
            task.options.batch = vec![1, 32];
            let answer = measure(task.clone());
            assert_eq!(answer.figures.len(), 2 * 2 * 2);
            assert!(answer.figures.iter().all(|figure| figure.memcpy > 0.0 && figure.blit > 0.0));
            let results = figures(&task, &[answer.clone(), answer]);
            assert_eq!(results.len(), 8);
        }
    }

    #[test]
    fn sizes_and_places_are_parsed() {
        for size in Size::ALL {
            assert_eq!(size.to_string().parse(), Ok(size));
        }
        for place in Where::ALL {
            assert_eq!(place.name().parse(), Ok(place));
        }
        let error = "0".parse::<Size>().unwrap_err().to_string();
        assert_eq!(error, "`0` is not a size; give bytes from 1 to 65536, or imix");
        assert!("dram".parse::<Where>().is_err());
    }
}

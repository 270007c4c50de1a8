//! `bench fib`: look-ups of next hops in tables like the Internet's, changes of routes, and loading them.
//!
//! A process has one table and looks up batches of 128 keys. The crate's table takes turns with plain ones, and with those
//! of other programs, such as bench/peers/fib.c, which get the same routes and keys in a folder. At its end a process
//! checks everything that it has found.

mod changing;
mod contender;
mod reading;
mod replacing;
mod results;
pub(super) mod routes;
mod tables;

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::bench::{Benchmark, Common, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::beside::Beside;
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::named::named;
use crate::networks::Folder;
use crate::programs::OtherProgram;
use crate::report::{BenchError, chosen};
use crate::targets::conclusions;
use crate::workers;
use contender::{FibTask, FibWork, KeyFamily, ReaderLookUps, Structure, lay_out};
use results::Sides;
use routes::Prefixes;
use tables::{Intervals, KEY_SETS, Keys, LookUp, keys};

/// Keys that are looked up together.
const BATCH: usize = 128;

/// Timed passes over a set of keys in a turn.
const PASSES: usize = 3;

/// Changes in a turn.
const CHANGES: usize = 20_000;

/// Changes of one commit.
const COMMITS: [usize; 2] = [1, 100];

named! {
    /// What a case measures.
    enum FibCase {
        Ipv4 = "ipv4",
        Ipv6 = "ipv6",
        Changes = "changes",
        Replace = "replace",
        Load = "load",
    }
}

impl FibCase {
    fn kind(self) -> Option<KeyFamily> {
        match self {
            FibCase::Ipv4 => Some(KeyFamily::Ipv4),
            FibCase::Ipv6 => Some(KeyFamily::Ipv6),
            FibCase::Changes | FibCase::Replace | FibCase::Load => None,
        }
    }

    /// The work of each process, and its name.
    fn works(self, has_peers: bool) -> Vec<(FibWork, &'static str)> {
        let look_up = |kind, structure| FibWork::LookUp { kind, structure };
        match (self, self.kind()) {
            (FibCase::Replace, _) => vec![(FibWork::Replace, "bellows")],
            (FibCase::Load, _) => vec![(FibWork::Load, "bellows")],
            (_, Some(kind)) => {
                let mut works = vec![(look_up(kind, Structure::Own), "bellows")];
                if kind == KeyFamily::Ipv4 && !has_peers {
                    works.push((look_up(kind, Structure::Dir24), "plain DIR-24-8"));
                }
                if !has_peers {
                    works.push((look_up(kind, Structure::BinarySearch), "binary search"));
                }
                works
            }
            (_, None) => {
                let readers = [ReaderLookUps::Nothing, ReaderLookUps::Changing, ReaderLookUps::Others];
                let change = |commit| readers.map(|reader| (FibWork::Change { commit, reader }, "bellows"));
                COMMITS.into_iter().flat_map(change).collect()
            }
        }
    }
}

/// Measure look-ups of next hops, and changes of routes
///
/// Clocks a look-up in batches of 128 keys, over a table with as many prefixes of each length as the Internet's has
/// (901,899 of IPv4, 160,147 of IPv6), or over a file. Keys are uniform (of IPv6, below 2000::/3) or drawn by prefix: a
/// prefix, then an address in it; 1,048,576 different ones, and 32,768 and 256. Cases: ipv4 and ipv6, beside a plain
/// DIR-24-8 and a binary search, with the bytes of each table; changes, how many a second, alone and while another thread
/// looks up, and how many that one looks up beside changes of its own tables and beside those of others; replace, how much
/// longer than usual another thread's batches take when all routes are replaced; load, the time from a text to both
/// tables, and their memory with all routes.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figures: Figures,
    /// Turns per process, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole(1..=60_000))]
    rounds: usize,
    /// Next hops of the tables
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "256,4000", value_parser = whole(1..=32_766))]
    next_hops: Vec<usize>,
    /// A file with prefixes of both families as the first words of its lines, in place of the generated table
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// Disturb the measurement: thrash or bursts
    ///
    /// A process on another processor writes to twice as much memory as the last-level cache holds, all the time (thrash)
    /// or now and then (bursts): look-ups on a machine whose other processors are in use.
    #[arg(long, value_name = "HOW")]
    beside: Option<Beside>,
    /// Generate only one in so many prefixes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=1000), hide = true)]
    divisor: usize,
    /// Another program with tables, which takes turns with this one (see bench/peers/fib.c); one whose name ends in 6 is for
    /// IPv6
    #[arg(long, value_name = "NAME=PROGRAM ARGUMENT …", hide = true)]
    peer: Vec<OtherProgram>,
}

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let has_peers = !options.peer.is_empty();
    let cases = FibCase::ALL.into_iter().filter(|case| !has_peers || case.kind().is_some());
    let cases = chosen(cases, FibCase::name, &options.figures.case)?;
    let conditions: Vec<(FibCase, usize)> = cases
        .into_iter()
        .flat_map(|case| {
            let next_hops = if case.kind().is_some() { &options.next_hops[..] } else { &options.next_hops[..1] };
            next_hops.iter().map(move |&next_hops| (case, next_hops))
        })
        .collect();
    let programs = |case: FibCase| -> Vec<&OtherProgram> {
        options.peer.iter().filter(|peer| peer.name.ends_with('6') == (case == FibCase::Ipv6)).collect()
    };
    let sides = |(case, _): &(FibCase, usize)| case.works(has_peers).len() + programs(*case).len();
    let all = conditions.iter().map(sides).sum();
    let prefixes = contender::prefixes(options.routes.as_ref(), options.divisor).map_err(BenchError::Refused)?;
    let mut series = lab.series(options, all, options.figures.processes);
    if has_peers {
        series.bench = "peers fib";
    }
    let mut refused = Vec::new();
    for (case, next_hops) in conditions {
        let (works, programs) = (case.works(has_peers), programs(case));
        let folder = has_peers.then(|| Folder::new("fib")).transpose()?;
        let mut peers = Vec::new();
        if let Some(folder) = &folder {
            let written = match case.kind() {
                Some(KeyFamily::Ipv6) => write_table::<u128>(&prefixes, next_hops as u32, &folder.0),
                _ => write_table::<u32>(&prefixes, next_hops as u32, &folder.0),
            };
            written.map_err(|error| BenchError::Folder(folder.0.clone(), error))?;
            let further = [options.common.processor().to_string(), folder.0.display().to_string()];
            peers.extend(programs.iter().map(|program| program.with(further.clone())));
        }
        let task = |&(work, _): &(FibWork, &str)| FibTask {
            work,
            next_hops: next_hops as u32,
            routes: options.routes.clone(),
            divisor: options.divisor,
            cpu: options.common.cpu,
        };
        let names = works.iter().map(|(_, name)| *name).chain(programs.iter().map(|program| program.name.as_str()));
        let names: Vec<&str> = names.collect();
        series.group(
            &[options.rounds],
            &peers,
            |_| works.iter().map(task).collect(),
            |matches| {
                let sides = Sides { case, next_hops, matches, names, works: &works };
                refused.extend(sides.refused());
                sides.results()
            },
        )?;
    }
    let mut report = series.report_without(refused)?;
    report.notes.extend(conclusions(&report.results));
    Ok(Finished::after_rows(report))
}

/// Writes routes, keys and results for other programs.
fn write_table<A: Keys>(prefixes: &Prefixes, next_hops: u32, folder: &Path) -> std::io::Result<()> {
    let routes = tables::routes(A::of(prefixes), next_hops);
    let mut file = std::io::BufWriter::new(std::fs::File::create(folder.join("routes"))?);
    for (prefix, next) in &routes {
        writeln!(file, "{prefix} {next}")?;
    }
    file.flush()?;
    let mut plain = Intervals::of(&routes);
    for (at, &set) in KEY_SETS.iter().enumerate() {
        let keys = keys(set, A::of(prefixes));
        let mut next = vec![0; keys.len()];
        plain.look_up(&keys, &mut next);
        let bytes: Vec<u8> = keys.into_iter().flat_map(A::bytes).collect();
        std::fs::write(folder.join(format!("keys-{at}")), bytes)?;
        let bytes: Vec<u8> = next.into_iter().flat_map(u32::to_ne_bytes).collect();
        std::fs::write(folder.join(format!("next-{at}")), bytes)?;
    }
    Ok(())
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[],
    every: &[],
    rows: &[
        CaseRow::of(&["ipv4", "ipv6"], "clocks/look-up", "a look-up, in batches of 128")
            .with(&["next_hops", "keys", "count", "table"]),
        CaseRow::of(&["ipv4", "ipv6"], "MiB", "the memory of a table").with(&["next_hops", "table"]),
        CaseRow::of(&["ipv4", "ipv6"], "ratio", "a look-up in another table relative to one in Bellows'")
            .with(&["next_hops", "keys", "count", "of"]),
        CaseRow::of(&["changes"], "changes/s", "changes of routes")
            .with(&["commit", "beside_reader"])
            .sometimes(&["target", "verdict"]),
        CaseRow::of(&["changes"], "look-ups/s", "look-ups of a thread while another one changes routes")
            .with(&["commit", "tables"]),
        CaseRow::of(
            &["changes"],
            "ratio",
            "the look-ups beside changes of their own tables relative to those beside changes of others",
        )
        .with(&["commit", "of", "target", "verdict"]),
        CaseRow::of(
            &["replace"],
            "µs",
            "how much longer than usual a thread's look-ups take when all routes are replaced, in batches of 128 for each \
             family",
        )
        .with(&["what"])
        .sometimes(&["target", "verdict"]),
        CaseRow::of(&["load"], "ms", "from a text to both tables").with(&["what", "target", "verdict"]),
        CaseRow::of(&["load"], "MiB", "the memory of both tables with all routes").with(&["what", "target", "verdict"]),
    ],
    labels: &[
        label("next_hops", LabelKind::Integer, "next hops of the table"),
        label(
            "keys",
            LabelKind::Word(&["uniform", "by prefix"]),
            "how the keys are drawn: `uniform` (of IPv6, in 2000::/3) or `by prefix` (a prefix, then an address in it)",
        ),
        label("count", LabelKind::Integer, "how many different keys"),
        label(
            "table",
            LabelKind::Word(&["bellows", "plain DIR-24-8", "binary search"]),
            "`bellows`, or a naive table: `plain DIR-24-8` (IPv4 only) or `binary search`",
        ),
        label("commit", LabelKind::Integer, "the changes in each commit"),
        label("beside_reader", LabelKind::Flag, "whether another thread looks up meanwhile"),
        label(
            "tables",
            LabelKind::Word(&["changing", "unchanged"]),
            "the tables that the thread looks up are `changing`, or others change and they are `unchanged`",
        ),
        label(
            "what",
            LabelKind::Word(&[
                "longest batch",
                "first batch in new tables",
                "all batches until the caches are full",
                "time",
                "memory",
            ]),
            "the `longest batch` next to the swap (16 before it, 16 after it), the `first batch in new tables`, or \
             `all batches until the caches are full` together; of loading, `time` or `memory`",
        ),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "fib";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 1 --divisor 50 --next-hops 256";
    const REFUSED: &'static [RefusedOptions] = &[
        (
            &["--case", "nonsense"],
            "no case has `nonsense` in its name; there are ipv4, ipv6, changes, replace and load",
        ),
        (&["--routes", "/nonexistent"], "/nonexistent: No such file or directory"),
        (&["--next-hops", "0"], "0 is not in 1..=32766"),
        (&["--peer", "dpdk"], "give NAME=PROGRAM ARGUMENT"),
    ];
    const WORK: RunWorker = |_| workers::take_part(lay_out);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }

    fn beside(&self) -> Option<Beside> {
        self.beside
    }
}

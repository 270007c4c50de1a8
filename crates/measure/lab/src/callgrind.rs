//! Counts the instructions and cache misses of a part of the program with valgrind's callgrind.
//!
//! Callgrind runs a program on a simulated processor. It counts instructions and data accesses exactly, and simulates a
//! branch predictor and two levels of cache of a fixed size ([`CACHES`]). The counts are the same in every run and on
//! every machine whose processor offers the same instruction sets; they say nothing about time.
//!
//! A worker wraps the part to count in [`measured`]. The benchmark calls [`count`], which runs this program again under
//! valgrind:
//!
//! ```no_run
//! use bellows_lab::{callgrind, workers};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! if std::env::args().any(|argument| argument == "--measure") {
//!     return Ok(workers::answer(|turns: u64| {
//!         let numbers: Vec<u64> = (0..turns).collect();
//!         callgrind::measured(|| numbers.iter().sum::<u64>())
//!     })?);
//! }
//! let (counts, _sum): (callgrind::Counts, u64) = callgrind::count(&["--measure"], &1_000u64, &mut ())?;
//! for (name, count) in counts.named() {
//!     println!("{name:<16} {count:>8}");
//! }
//! # Ok(())
//! # }
//! ```

use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::{env, fs};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::audience::Observer;
use crate::processes::converse;
use crate::workers::{ProcessError, this_program};

/// The simulated caches, in words for a report.
pub const CACHES: &str = "simulated caches: L1 32 KiB each for instructions and data, last level 16 MiB";

/// The bytes of the simulated first-level data cache and of the last level. Fixed, because counts are compared across
/// machines, and because a virtual machine often reports wrong cache sizes.
pub(crate) const L1: usize = 32 << 10;
pub(crate) const LL: usize = 16 << 20;

/// The pattern for functions to count. Only [`bellows_measured_part`] matches.
const PART: &str = "*bellows_measured_part*";

/// The environment variables that a worker keeps, besides those that start with one of [`KEPT_PREFIXES`]. The others
/// are removed, because the length of the environment moves the stack and changes the cache misses.
const KEPT: [&str; 6] = ["PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "XDG_RUNTIME_DIR", "VALGRIND_LIB"];
const KEPT_PREFIXES: [&str; 2] = ["BELLOWS_", "RUST_"];

/// The counts of all measured parts of a process together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Instructions executed.
    pub instructions: u64,
    /// Conditional and indirect branches.
    pub branches: u64,
    /// Mispredicted branches.
    pub branch_misses: u64,
    /// Data reads.
    pub data_reads: u64,
    /// Data writes.
    pub data_writes: u64,
    /// Reads and writes that missed the simulated first-level data cache.
    pub l1_misses: u64,
    /// Fetches of instructions that missed the simulated first-level instruction cache.
    pub l1i_misses: u64,
    /// Accesses of any kind that missed the simulated last level too.
    pub ll_misses: u64,
}

impl Counts {
    /// Each count with its name.
    pub fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("instructions", self.instructions),
            ("branches", self.branches),
            ("branch_misses", self.branch_misses),
            ("data_reads", self.data_reads),
            ("data_writes", self.data_writes),
            ("l1_misses", self.l1_misses),
            ("l1i_misses", self.l1i_misses),
            ("ll_misses", self.ll_misses),
        ]
    }

    /// Parses the totals in callgrind's output.
    fn parse(output: &str) -> Result<Counts, FormatError> {
        let value = |key| output.lines().find_map(|line| line.strip_prefix(key)).ok_or(FormatError::Missing(key));
        let events: Vec<&str> = value("events:")?.split_ascii_whitespace().collect();
        let totals = value("totals:")?;
        let totals: Vec<u64> = totals
            .split_ascii_whitespace()
            .map(|number| number.parse().map_err(|_| FormatError::Number(number.to_owned())))
            .collect::<Result<_, _>>()?;
        if totals.len() > events.len() {
            return Err(FormatError::Columns { events: events.len(), totals: totals.len() });
        }
        // Callgrind leaves out zeros at the end of a line.
        let total = |wanted: &'static str| {
            let column = events.iter().position(|event| *event == wanted).ok_or(FormatError::Event(wanted))?;
            Ok(totals.get(column).copied().unwrap_or(0))
        };
        let sum = |wanted: &[&'static str]| {
            wanted.iter().try_fold(0u64, |sum, event| {
                let number: Result<u64, FormatError> = total(event);
                number.map(|number| sum.saturating_add(number))
            })
        };
        Ok(Counts {
            instructions: sum(&["Ir"])?,
            branches: sum(&["Bc", "Bi"])?,
            branch_misses: sum(&["Bcm", "Bim"])?,
            data_reads: sum(&["Dr"])?,
            data_writes: sum(&["Dw"])?,
            l1_misses: sum(&["D1mr", "D1mw"])?,
            l1i_misses: sum(&["I1mr"])?,
            ll_misses: sum(&["ILmr", "DLmr", "DLmw"])?,
        })
    }
}

/// An error in callgrind's output.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// A line is missing.
    #[error("there is no line `{0}`")]
    Missing(&'static str),
    /// A total is not a number.
    #[error("`{0}` in the line `totals:` is not a number")]
    Number(String),
    /// There are more totals than events.
    #[error("there are {totals} totals for {events} events")]
    Columns {
        /// The number of named columns.
        events: usize,
        /// The number of totals.
        totals: usize,
    },
    /// An event was not counted.
    #[error("the event `{0}` is not in the line `events:`")]
    Event(&'static str),
}

/// Why there are no counts.
#[derive(Debug, thiserror::Error)]
pub enum CallgrindError {
    /// Valgrind is not installed.
    #[error("valgrind is not installed; as root: apt-get install valgrind")]
    NotInstalled,
    /// The measuring process failed.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Callgrind's output cannot be read.
    #[error("callgrind's output {0} cannot be read: {1}; set TMPDIR to a folder that can be written to")]
    Output(PathBuf, std::io::Error),
    /// Callgrind's output has an unknown format.
    #[error("callgrind's output {0} has an unknown format: {1}; valgrind 3.19 is known to work")]
    Format(PathBuf, FormatError),
    /// Callgrind did not find the part to count.
    #[error(
        "callgrind has counted nothing: it finds the part to count by a symbol of this program, which a stripped \
         program lacks; build it again without `strip`"
    )]
    Nothing,
}

/// Runs a worker under callgrind, like [`processes::ask`](crate::processes::ask) without it. Returns the counts of all
/// [`measured`] parts together, and the worker's answer.
///
/// The process runs about 50 to 100 times slower.
///
/// # Errors
/// See [`CallgrindError`].
pub fn count<T: Serialize, A: DeserializeOwned>(
    arguments: &[&str],
    task: &T,
    observer: &mut dyn Observer,
) -> Result<(Counts, A), CallgrindError> {
    let output = Output::new();
    let program = this_program()?;
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--tool=callgrind", "--cache-sim=yes", "--branch-sim=yes"])
        // Size, associativity, line size.
        .args([format!("--I1={L1},8,64"), format!("--D1={L1},8,64"), format!("--LL={LL},16,64")])
        .args(["--collect-atstart=no", &format!("--toggle-collect={PART}")])
        .arg(output.option())
        .arg(&program)
        .args(arguments)
        .env_clear()
        .envs(env::vars_os().filter(|(name, _)| is_kept(&name.to_string_lossy())));
    let answer = match converse(&mut command, task, observer) {
        Err(ProcessError::Start(_, error)) if error.kind() == ErrorKind::NotFound => {
            return Err(CallgrindError::NotInstalled);
        }
        answer => answer?.0,
    };
    let counts = output.read()?;
    if counts.instructions == 0 { Err(CallgrindError::Nothing) } else { Ok((counts, answer)) }
}

fn is_kept(variable: &str) -> bool {
    KEPT.contains(&variable) || KEPT_PREFIXES.iter().any(|prefix| variable.starts_with(prefix))
}

/// Does some work, which callgrind counts if the process runs under it.
///
/// All calls in a process are counted together. Do not nest calls: the end of the inner one would end the counting.
pub fn measured<T>(work: impl FnOnce() -> T) -> T {
    let mut work = Some(work);
    let mut result = None;
    bellows_measured_part(&mut || result = work.take().map(|work| work()));
    result.unwrap_or_else(|| unreachable!("the part calls its argument"))
}

/// Callgrind finds this function by its name, so no other function may have this name.
#[inline(never)]
fn bellows_measured_part(work: &mut dyn FnMut()) {
    work();
    // Prevents a tail call, with which this function would end before the work begins.
    black_box(());
}

/// The file that callgrind writes, removed on drop.
struct Output(PathBuf);

impl Output {
    fn new() -> Output {
        // Valgrind follows what another user may have put in the place of a name that can be guessed.
        let name = format!("bellows-callgrind-{:016x}", RandomState::new().hash_one(process::id()));
        Output(env::temp_dir().join(name))
    }

    /// The option with the file's name. Percent signs are escaped, because valgrind expands them.
    fn option(&self) -> OsString {
        let mut option = OsString::from("--callgrind-out-file=");
        match self.0.to_str() {
            Some(path) => option.push(path.replace('%', "%%")),
            None => option.push(&self.0),
        }
        option
    }

    fn read(&self) -> Result<Counts, CallgrindError> {
        let Output(path) = self;
        let text = fs::read(path).map_err(|error| CallgrindError::Output(path.clone(), error))?;
        Counts::parse(&String::from_utf8_lossy(&text)).map_err(|error| CallgrindError::Format(path.clone(), error))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        let _ = fs::remove_file::<&Path>(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &str = "# callgrind format\nversion: 1\ncreator: callgrind-3.19.0\npart: 1\n\n\
        desc: Trigger: Program termination\n\npositions: line\n\
        events: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw Bc Bcm Bi Bim\n\
        summary: 9 9 9 9 9 9 9 9 9 9 9 9 9\n\n\
        fn=(1) bellows_lab::callgrind::bellows_measured_part\n16 9 9 9\ncalls=1 9\n\n\
        totals: 3450048 300006 300003 3 37505 70 1 12500 40 150009 25 6 2\n";

    const COUNTS: Counts = Counts {
        instructions: 3_450_048,
        branches: 150_015,
        branch_misses: 27,
        data_reads: 300_006,
        data_writes: 300_003,
        l1_misses: 37_575,
        l1i_misses: 3,
        ll_misses: 12_541,
    };

    #[test]
    fn the_totals_are_parsed_by_column_names() {
        assert_eq!(Counts::parse(SAMPLE), Ok(COUNTS));
        let names = COUNTS.named().map(|(name, _)| name);
        let fields = serde_json::to_value(COUNTS).unwrap();
        assert!(COUNTS.named().iter().all(|(name, count)| fields[name] == *count), "{names:?}");
    }

    #[test]
    fn missing_parts_are_named() {
        for (lost, error) in [
            ("totals:", FormatError::Missing("totals:")),
            ("events:", FormatError::Missing("events:")),
            ("Bim", FormatError::Columns { events: 12, totals: 13 }),
            ("12500", FormatError::Number("x".into())),
        ] {
            let spoilt = SAMPLE.replace(lost, if lost == "12500" { "x" } else { "" });
            assert_eq!(Counts::parse(&spoilt), Err(error), "without {lost}");
        }
        assert_eq!(Counts::parse("events: Ir\ntotals: 5"), Err(FormatError::Event("Bc")));
    }

    #[test]
    fn a_missing_valgrind_is_named_with_its_package() {
        assert!(CallgrindError::NotInstalled.to_string().contains("apt-get install valgrind"));
    }

    #[test]
    fn measured_returns_what_the_work_does() {
        let text = String::from("moved in");
        assert_eq!(measured(move || text.len()), 8);
    }

    #[test]
    fn a_percent_sign_in_a_path_is_escaped() {
        let output = Output(PathBuf::from("/tmp/50%p/out"));
        assert_eq!(output.option(), "--callgrind-out-file=/tmp/50%%p/out");
    }

    proptest! {
        /// The counts do not depend on the order of columns, other columns, or omitted zeros at the end.
        #[test]
        fn columns_may_come_in_any_order(
            columns in Just(["Ir", "Dr", "Dw", "I1mr", "D1mr", "D1mw", "ILmr", "DLmr", "DLmw", "Bc", "Bcm", "Bi", "Bim", "Ge"])
                .prop_map(|columns| columns.to_vec()).prop_shuffle(),
            values in proptest::collection::vec(0u64..1 << 40, 14),
            zeros in 0usize..14,
        ) {
            let mut totals = values;
            totals[14 - zeros..].fill(0);
            let printed: Vec<String> = totals[..14 - zeros].iter().map(u64::to_string).collect();
            let text = format!("x: y\nevents: {}\nfn=(1)\n1 2 3\ntotals: {}\n", columns.join(" "), printed.join(" "));
            let of = |event: &str| totals[columns.iter().position(|column| *column == event).unwrap()];
            let counts = Counts::parse(&text).unwrap();
            prop_assert_eq!(counts.instructions, of("Ir"));
            prop_assert_eq!(counts.branches, of("Bc") + of("Bi"));
            prop_assert_eq!(counts.branch_misses, of("Bcm") + of("Bim"));
            prop_assert_eq!((counts.data_reads, counts.data_writes), (of("Dr"), of("Dw")));
            prop_assert_eq!((counts.l1_misses, counts.l1i_misses), (of("D1mr") + of("D1mw"), of("I1mr")));
            prop_assert_eq!(counts.ll_misses, of("ILmr") + of("DLmr") + of("DLmw"));
        }

        /// Truncated or damaged output never causes a panic. Truncated output is never parsed as other counts unless
        /// the cut is within the totals.
        #[test]
        fn damaged_output_does_no_harm(cut in 0..SAMPLE.len(), byte in any::<u8>()) {
            let last = SAMPLE.find("totals:").unwrap() + "totals:".len();
            prop_assert!(cut >= last || Counts::parse(&SAMPLE[..cut]).is_err());
            let mut spoilt = SAMPLE.as_bytes().to_vec();
            spoilt[cut] = byte;
            let _ = Counts::parse(&String::from_utf8_lossy(&spoilt));
        }
    }
}

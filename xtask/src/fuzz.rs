//! `cargo xtask fuzz`: builds a fuzz target of `fuzz/`, gives it seeds, runs it, and prints a summary.
//!
//! The targets are for libFuzzer, built by the stable toolchain: the flags below enable the same coverage counters as
//! `cargo fuzz`, which needs a nightly toolchain.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::workspace::{cargo, host_triple};
use crate::{TaskError, tools};

/// Coverage counters for libFuzzer, and checks that a release build leaves out.
const RUSTFLAGS: &str = "--cfg fuzzing \
    -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 \
    -Cdebug-assertions";

const TARGETS: &str = "fuzz/fuzz_targets";
const MINUTES: f64 = 10.0;
/// Limits on memory and time; an input that exceeds one is reported as a crash.
const MEMORY_MIB: u32 = 2048;
const SECONDS_AN_INPUT: u32 = 10;

/// The source of a target's seeds.
struct Seeds {
    target: &'static str,
    folders: &'static [&'static str],
    /// Only files whose names end with this; all if empty.
    endings: &'static [&'static str],
}

const CAPTURES: &[&str] = &["examples/captures", "crates/base/capture/tests/captures", "../shared/captures"];

const SEEDS: &[Seeds] = &[
    Seeds { target: "capture_read", folders: CAPTURES, endings: &[".pcap", ".pcapng"] },
    Seeds { target: "router_graph", folders: CAPTURES, endings: &[".pcap", ".pcapng"] },
    Seeds { target: "config_parse", folders: &["examples"], endings: &[".toml"] },
    Seeds { target: "filter_parse", folders: &["crates/net/filter/tests/seeds"], endings: &[".txt"] },
];

/// Maximum length of a seed: libFuzzer learns little from longer ones and slowly.
const MAX_SEED_BYTES: u64 = 64 * 1024;

#[derive(Debug, PartialEq)]
enum FuzzRequest {
    List,
    Run { target: String, minutes: f64 },
}

impl FuzzRequest {
    fn parse(words: &[String]) -> Result<FuzzRequest, TaskError> {
        let mut target = None;
        let mut minutes = MINUTES;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--list" => return Ok(FuzzRequest::List),
                "--minutes" => minutes = self::minutes(words.next())?,
                option if option.starts_with('-') => {
                    return Err(TaskError::usage(format!("fuzz: '{option}' is not an option")));
                }
                name if target.is_none() => target = Some(name.to_owned()),
                other => {
                    return Err(TaskError::usage(format!("fuzz: one target at a time; '{other}' is a second one")));
                }
            }
        }
        match target {
            Some(target) => Ok(FuzzRequest::Run { target, minutes }),
            None => Err(TaskError::usage(format!("fuzz needs a target: {}", join(&targets()?)))),
        }
    }
}

/// The value of `--minutes`.
pub fn minutes(number: Option<&String>) -> Result<f64, TaskError> {
    let minutes = number.and_then(|number| number.parse().ok());
    let minutes = minutes.filter(|minutes: &f64| minutes.is_finite() && *minutes > 0.0);
    minutes.ok_or_else(|| TaskError::usage("--minutes needs a number above 0"))
}

/// Runs the task.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    match FuzzRequest::parse(words)? {
        FuzzRequest::List => {
            targets()?.iter().for_each(|target| println!("{target}"));
            Ok(())
        }
        FuzzRequest::Run { target, minutes } => fuzz(&target, minutes),
    }
}

/// The targets, one file each.
pub fn targets() -> Result<BTreeSet<String>, TaskError> {
    let files = fs::read_dir(TARGETS).map_err(|error| TaskError::failed(format!("cannot read {TARGETS}: {error}")))?;
    Ok(files
        .filter_map(|file| file.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_suffix(".rs").map(str::to_owned))
        .collect())
}

fn join(targets: &BTreeSet<String>) -> String {
    targets.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Fuzzes one target.
pub fn fuzz(target: &str, minutes: f64) -> Result<(), TaskError> {
    let targets = targets()?;
    if !targets.contains(target) {
        return Err(TaskError::usage(format!("there is no fuzz target '{target}'; choose from {}", join(&targets))));
    }
    let program = build(target)?;
    let corpus = folder("fuzz/corpus", target)?;
    let artifacts = folder("fuzz/artifacts", target)?;
    let seeds = copy_seeds(target, &corpus)?;
    println!("{seeds} seeds; corpus in {}", corpus.display());

    let old_artifacts = files_in(&artifacts)?;
    let start = Instant::now();
    let seconds = (minutes * 60.0).ceil() as u64;
    let mut command = Command::new(program);
    command
        .arg(&corpus)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-timeout={SECONDS_AN_INPUT}"))
        .arg("-print_final_stats=1")
        .env("PATH", tools::search_path());
    let (clean, stats) = watch(&mut command)?;

    let summary = format!(
        "fuzz {target}: {} runs in {:.0} s, {} inputs in the corpus, peak memory {} MiB",
        stats.runs,
        start.elapsed().as_secs_f64(),
        files_in(&corpus)?.len(),
        stats.peak_mib
    );
    let found: Vec<PathBuf> = files_in(&artifacts)?.difference(&old_artifacts).cloned().collect();
    if clean && found.is_empty() {
        println!("{summary}: no crash");
        Ok(())
    } else {
        for input in &found {
            println!("the input is in {}", input.display());
        }
        println!("{summary}: FAILED");
        Err(TaskError::failed(format!("fuzz target {target} failed; see its last output")))
    }
}

/// Builds a target and returns its program.
fn build(target: &str) -> Result<PathBuf, TaskError> {
    let triple = host_triple()?;
    let folder = crate::workspace::target_dir().join("fuzz");
    // With an explicit triple the flags do not apply to build scripts and procedural macros.
    let status =
        cargo(&["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", &triple, "--bin", target])
            .env("RUSTFLAGS", RUSTFLAGS)
            .env("CARGO_TARGET_DIR", &folder)
            .status()
            .map_err(|error| TaskError::failed(format!("cannot run cargo: {error}")))?;
    if !status.success() {
        return Err(TaskError::failed(format!("fuzz target {target} does not build")));
    }
    Ok(folder.join(triple).join("release").join(target))
}

fn folder(parent: &str, target: &str) -> Result<PathBuf, TaskError> {
    let folder = Path::new(parent).join(target);
    fs::create_dir_all(&folder)
        .map_err(|error| TaskError::failed(format!("cannot create {}: {error}", folder.display())))?;
    Ok(folder)
}

fn files_in(folder: &Path) -> Result<BTreeSet<PathBuf>, TaskError> {
    let files = fs::read_dir(folder)
        .map_err(|error| TaskError::failed(format!("cannot read {}: {error}", folder.display())))?;
    Ok(files.filter_map(|file| Some(file.ok()?.path())).filter(|path| path.is_file()).collect())
}

/// Copies the target's seeds into its corpus, under names that later runs find again; returns their number.
fn copy_seeds(target: &str, corpus: &Path) -> Result<usize, TaskError> {
    let mut planted = 0;
    for seeds in SEEDS.iter().filter(|seeds| seeds.target == target) {
        for path in seeds.folders.iter().flat_map(|folder| walk(Path::new(folder))) {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let wanted = seeds.endings.is_empty() || seeds.endings.iter().any(|ending| name.ends_with(ending));
            let small = fs::metadata(&path).is_ok_and(|file| file.len() <= MAX_SEED_BYTES);
            if wanted && small {
                fs::copy(&path, corpus.join(format!("seed-{name}")))
                    .map_err(|error| TaskError::failed(format!("cannot copy {}: {error}", path.display())))?;
                planted += 1;
            }
        }
    }
    Ok(planted)
}

/// All files below a folder; none if the folder does not exist.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // The type of the entry itself: symbolic links are not followed, to avoid cycles.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(walk(&entry.path())),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found
}

/// The statistics that libFuzzer prints at its end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stats {
    runs: u64,
    peak_mib: u64,
}

impl Stats {
    fn read_line(&mut self, line: &str) {
        let Some((name, value)) = line.strip_prefix("stat::").and_then(|stat| stat.split_once(':')) else { return };
        let Ok(value) = value.trim().parse() else { return };
        match name {
            "number_of_executed_units" => self.runs = value,
            "peak_rss_mb" => self.peak_mib = value,
            _ => {}
        }
    }
}

/// Runs the fuzzer, streams its output, and returns whether it succeeded and its statistics.
fn watch(command: &mut Command) -> Result<(bool, Stats), TaskError> {
    let failure = |error| TaskError::failed(format!("cannot run the fuzz target: {error}"));
    let mut fuzzer = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(failure)?;
    let mut stats = Stats::default();
    if let Some(output) = fuzzer.stderr.take() {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            eprintln!("{line}");
            stats.read_line(&line);
        }
    }
    let status = fuzzer.wait().map_err(failure)?;
    Ok((status.success(), stats))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<FuzzRequest, TaskError> {
        FuzzRequest::parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
    }

    #[test]
    fn a_target_and_its_minutes_are_understood() {
        let request = |minutes| FuzzRequest::Run { target: "config_parse".into(), minutes };
        assert_eq!(parse(&["config_parse"]).ok(), Some(request(MINUTES)));
        assert_eq!(parse(&["--minutes", "0.5", "config_parse"]).ok(), Some(request(0.5)));
        assert_eq!(parse(&["--list"]).ok(), Some(FuzzRequest::List));
    }

    #[test]
    fn invalid_options_are_rejected() {
        for words in [&["a", "b"] as &[&str], &["a", "--minutes"], &["a", "--minutes", "-1"], &["a", "--minute", "1"]] {
            assert!(matches!(parse(words), Err(TaskError::Usage(_))), "{words:?}");
        }
    }

    #[test]
    fn the_statistics_are_read() {
        let mut stats = Stats::default();
        for line in ["#2 INITED", "stat::number_of_executed_units: 16777216", "stat::peak_rss_mb:              443"] {
            stats.read_line(line);
        }
        assert_eq!(stats, Stats { runs: 16_777_216, peak_mib: 443 });
    }
}

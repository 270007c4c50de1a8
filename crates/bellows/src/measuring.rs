//! What the commands that measure share: the wait with its progress, its rows as they come and Ctrl-C, the report, and
//! what the command ends with.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bellows_config::Registry;
use bellows_lab::against::Comparison;
use bellows_lab::audience::Observer;
use bellows_lab::bench::{self, AgainstOptions, Benchmark, Common, Lab};
use bellows_lab::report::{BenchError, Report};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::command_error::{CommandError, INTERRUPTED, UNDECIDED};
use crate::terminal;

/// Someone who waits for a measurement at this terminal.
struct Watcher {
    start: Instant,
    /// Whether progress is shown.
    is_shown: bool,
    /// Whether rows are; a report in JSON comes as a whole.
    has_rows: bool,
    has_enough: Arc<AtomicBool>,
}

impl Observer for Watcher {
    fn progress(&mut self, done: usize, all: usize) {
        if self.is_shown {
            let left =
                time_left(self.start.elapsed(), done, all).map_or(String::new(), |left| format!(", {left} left"));
            terminal::show_status(&format!("measuring: {done} of {all} processes{left}"));
        }
    }

    fn show(&mut self, text: &str) {
        if self.has_rows {
            terminal::clear_status();
            // What cannot be written will be noticed when the rest of the report cannot.
            let _ = terminal::print(text);
        }
    }

    fn worker_stderr(&mut self, text: &str) {
        terminal::complain(&format!("{text}\n"));
    }

    fn should_stop(&self) -> bool {
        self.has_enough.load(Relaxed)
    }
}

/// How long the rest takes if it takes as long as what has been done, in words.
fn time_left(elapsed: Duration, done: usize, all: usize) -> Option<String> {
    if done == 0 || elapsed < Duration::from_secs(1) {
        return None;
    }
    let left = (elapsed.as_secs_f64() * (all - done.min(all)) as f64 / done as f64).ceil() as u64;
    Some(if left < 60 { format!("{left} s") } else { format!("{} min {} s", left / 60, left % 60) })
}

/// The arguments that, followed by a name, make this program a worker of a benchmark.
const WORKER: &[&str] = &["bench", "worker"];

/// Runs a benchmark, and prints its report.
///
/// # Errors
/// Why there is no report, and those of writing it.
pub fn measure(benchmark: &dyn Benchmark, registry: &Registry) -> Result<ExitCode, CommandError> {
    let Common { json, cpu, against: AgainstOptions { against, pairs } } = benchmark.common();
    let run = |observer: &mut dyn Observer| match &against {
        Some(other) => {
            let words = words_of_a_run(std::env::args_os().skip(1));
            let measured = benchmark.measured_labels();
            Comparison { other, pairs, words: &words, cpu, measured }.run(observer)
        }
        None => bench::run(benchmark, &mut Lab { worker: WORKER, registry, observer }),
    };
    let finished = watched(json, run).map_err(failure)?;
    let code = code(&finished.report);
    let text = if json { format!("{:#}\n", serde_json::json!(finished.report)) } else { finished.text() };
    terminal::print(&text)?;
    Ok(code)
}

/// The words of a command without those that say how runs are compared and reported.
fn words_of_a_run(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    const WITH_VALUE: [&str; 3] = ["--against", "--pairs", "--processes"];
    let mut words = words.into_iter();
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        if WITH_VALUE.contains(&name) {
            if name == text {
                let _value = words.next();
            }
        } else if name != "--json" {
            kept.push(word);
        }
    }
    kept
}

/// Runs a measurement that somebody watches. The first interrupt lets it end with what it has, the second ends it at once.
fn watched<T>(json: bool, run: impl FnOnce(&mut dyn Observer) -> T) -> T {
    let has_enough = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag down, and raises it.
        let _ = flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&has_enough));
        let _ = flag::register(signal, Arc::clone(&has_enough));
    }
    let (start, is_shown) = (Instant::now(), terminal::stderr_is_rich());
    let result = run(&mut Watcher { start, is_shown, has_rows: !json, has_enough });
    terminal::clear_status();
    result
}

/// What a benchmark that has no report ends the command with.
fn failure(error: BenchError) -> CommandError {
    match error {
        BenchError::Diagnosed(mistakes) => CommandError::Diagnosed(mistakes.render(terminal::stderr_is_rich())),
        error if error.is_interrupted() => CommandError::Interrupted(error.to_string()),
        error if error.is_mistake() => CommandError::Usage(error.to_string()),
        error => CommandError::Failed(error.to_string()),
    }
}

/// What a command ends with that has printed its report.
fn code(report: &Report) -> ExitCode {
    match report {
        report if report.interrupted => ExitCode::from(INTERRUPTED),
        report if report.failed => ExitCode::FAILURE,
        report if report.is_undecided() => ExitCode::from(UNDECIDED),
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compared_is_run_with_the_same_words() {
        let words = "bench engine --case chain --against other --pairs=9 --burst 32 --processes 6 --json";
        let kept = words_of_a_run(words.split(' ').map(OsString::from));
        assert_eq!(kept, ["bench", "engine", "--case", "chain", "--burst", "32"]);
    }

    #[test]
    fn the_time_left_is_that_of_what_is_done_for_what_is_not() {
        let left = |seconds, done, all| time_left(Duration::from_secs(seconds), done, all);
        assert_eq!(left(0, 1, 10), None, "too early to tell");
        assert_eq!(left(10, 0, 10), None);
        assert_eq!(left(10, 1, 4).as_deref(), Some("30 s"));
        assert_eq!(left(100, 10, 35).as_deref(), Some("4 min 10 s"));
        assert_eq!(left(10, 4, 4).as_deref(), Some("0 s"));
    }
}

//! The shared part of the commands that measure: the wait with its progress, rows as they come, Ctrl-C, the report and
//! the exit code.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bellows_config::Registry;
use bellows_lab::audience::Observer;
use bellows_lab::bench::{Lab, Requested};
use bellows_lab::report::{BenchError, Report};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::command_error::{CommandError, INTERRUPTED, UNDECIDED};
use crate::terminal;

/// The person at this terminal who waits for a measurement.
struct Watcher {
    start: Instant,
    /// Whether progress is shown.
    is_shown: bool,
    /// Whether rows are shown. A report in JSON is printed as a whole.
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
            // A write error will show up again when the rest of the report is written.
            let _ = terminal::print(text);
        }
    }

    fn worker_stderr(&mut self, text: &str) {
        terminal::notice(&format!("{text}\n"));
    }

    fn should_stop(&self) -> bool {
        self.has_enough.load(Relaxed)
    }
}

/// The estimated time left, in words: the rest takes as long in proportion as the part that is done.
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
/// The reason why there is no report, or a write error.
pub fn measure(benchmark: &dyn Requested, registry: &Registry) -> Result<ExitCode, CommandError> {
    let json = benchmark.common().json;
    let run = |observer: &mut dyn Observer| benchmark.run(&mut Lab { worker: WORKER, registry, observer });
    let finished = watched(json, run).map_err(failure)?;
    let code = code(&finished.report);
    let text = if json { format!("{:#}\n", serde_json::json!(finished.report)) } else { finished.text() };
    terminal::print(&text)?;
    Ok(code)
}

/// Runs a measurement for a person at a terminal. The first interrupt ends it with the results so far, the second one
/// ends it at once.
fn watched<T>(json: bool, run: impl FnOnce(&mut dyn Observer) -> T) -> T {
    let has_enough = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the first signal finds the flag down, and raises it.
        let _ = flag::register_conditional_shutdown(signal, INTERRUPTED.into(), Arc::clone(&has_enough));
        let _ = flag::register(signal, Arc::clone(&has_enough));
    }
    let (start, is_shown) = (Instant::now(), terminal::stderr_is_rich());
    let result = run(&mut Watcher { start, is_shown, has_rows: !json, has_enough });
    terminal::clear_status();
    result
}

/// The exit of a command without a report.
fn failure(error: BenchError) -> CommandError {
    match error {
        BenchError::Diagnosed(mistakes) => CommandError::Diagnosed(mistakes.render(terminal::stderr_is_rich())),
        error if error.is_interrupted() => CommandError::Interrupted(error.to_string()),
        error if error.is_mistake() => CommandError::Usage(error.to_string()),
        error => CommandError::Failed(error.to_string()),
    }
}

/// The exit of a command that has printed its report.
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
    fn the_time_left_is_extrapolated() {
        let left = |seconds, done, all| time_left(Duration::from_secs(seconds), done, all);
        assert_eq!(left(0, 1, 10), None, "too early to tell");
        assert_eq!(left(10, 0, 10), None);
        assert_eq!(left(10, 1, 4).as_deref(), Some("30 s"));
        assert_eq!(left(100, 10, 35).as_deref(), Some("4 min 10 s"));
        assert_eq!(left(10, 4, 4).as_deref(), Some("0 s"));
    }
}

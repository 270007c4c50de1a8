//! What the actions that make runs share: they print each run, and end at signals.

use std::sync::Arc;
use std::thread;

use bellows_campaign::{CampaignProgress, Observer, Row, RunId, Score, Stop};
use bellows_inspect::text::sanitize;
use serde_json::json;

use super::{say, shown, with_unit};
use crate::command_error::{CommandError, INTERRUPTED};
use crate::supervisor::catch_signals;
use crate::terminal;
use crate::text::span;

/// A request to stop that signals make.
pub fn stop_at_signals() -> Result<Arc<Stop>, CommandError> {
    let failed = |error: std::io::Error| CommandError::Failed(format!("a campaign cannot be stopped: {error}"));
    let stop = Arc::new(Stop::new().map_err(failed)?);
    let (mut signals, request) = (catch_signals()?, Arc::clone(&stop));
    thread::spawn(move || {
        for (number, _) in signals.forever().enumerate() {
            if number > 0 {
                // Rows are safe at any moment, and the next runner ends what is left.
                std::process::exit(INTERRUPTED.into());
            }
            say("tidying up; interrupt again to end at once");
            request.set();
        }
    });
    Ok(stop)
}

/// Prints each run when it is recorded.
pub struct Printer {
    form: Form,
}

/// How a run is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    /// Not at all: standard output has the report at the end.
    Nothing,
}

impl Printer {
    /// Prints lines of text, or of JSON.
    pub fn new(as_json: bool) -> Printer {
        Printer { form: if as_json { Form::Json } else { Form::Text } }
    }

    /// Shows progress at the terminal alone.
    pub fn quiet() -> Printer {
        Printer { form: Form::Nothing }
    }
}

impl Observer for Printer {
    fn preparing(&mut self, what: &str) {
        say(what);
    }

    fn started(&mut self, _: RunId, progress: &CampaignProgress) {
        if self.form != Form::Json && terminal::shows_stdout() {
            terminal::show_status(&line_of(progress));
        }
    }

    fn recorded(&mut self, row: &Row, progress: &CampaignProgress) {
        let text = match self.form {
            Form::Text => line(row, progress) + "\n",
            Form::Json => json!(row).to_string() + "\n",
            Form::Nothing => return,
        };
        if terminal::shows_stdout() {
            terminal::clear_status();
        }
        // The results are in their folder: a failure to print loses nothing.
        let _ = terminal::print(&text);
    }
}

/// How far a campaign is: `12 of 30, 1 min 05 s left`.
fn line_of(progress: &CampaignProgress) -> String {
    let left = progress.left.filter(|left| !left.is_zero());
    let left = left.map_or(String::new(), |left| format!(", {} left", span(left)));
    format!("{} of {}{left}", shown(progress.done), shown(progress.all))
}

/// A run: `12 of 30, 1 min 05 s left: md5sum, small: 812 µs`.
fn line(row: &Row, progress: &CampaignProgress) -> String {
    let levels = row.levels.values().map(String::as_str).collect::<Vec<_>>().join(", ");
    let scores: Vec<String> = row.scores.iter().filter_map(score_text).collect();
    let result = match row.first_failure() {
        Some(failure) => failure.to_string(),
        None => scores.join(", "),
    };
    let disturbed = match row.disturbed.is_empty() {
        true => String::new(),
        false => format!(" (disturbed: {})", row.disturbed.join("; ")),
    };
    sanitize(&format!("{}: {levels}: {result}{disturbed}", line_of(progress)).replace('\n', " "))
}

/// A score and its unit: `812.345 µs`.
fn score_text(score: &Score) -> Option<String> {
    Some(with_unit(score.value?, &score.unit))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_last_run_leaves_no_time() {
        let progress = |left| CampaignProgress { done: 30, all: 30, failed: 0, left };
        assert_eq!(line_of(&progress(Some(Duration::ZERO))), "30 of 30");
        assert_eq!(line_of(&progress(None)), "30 of 30");
        assert!(line_of(&progress(Some(Duration::from_secs(65)))).ends_with(" left"));
    }
}

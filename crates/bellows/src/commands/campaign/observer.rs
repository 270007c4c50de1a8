//! What the actions that make runs share: they print each run, and end at signals.

use std::sync::Arc;
use std::thread;

use bellows_campaign::{Observer, Progress, Row, RunId, Score, Stop};
use bellows_inspect::text::sanitize;
use serde_json::json;

use super::{say, shown};
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

    fn started(&mut self, _: RunId, progress: &Progress) {
        if self.form != Form::Json && terminal::shows_stdout() {
            terminal::show_status(&line_of(progress));
        }
    }

    fn recorded(&mut self, row: &Row, progress: &Progress) {
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
fn line_of(progress: &Progress) -> String {
    let left = progress.left.map_or(String::new(), |left| format!(", {} left", span(left)));
    format!("{} of {}{left}", shown(progress.done), shown(progress.all))
}

/// A run: `12 of 30, 1 min 05 s left: md5sum, small: 812 µs`.
fn line(row: &Row, progress: &Progress) -> String {
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

/// A score with six digits and its unit: `812.345 µs`.
fn score_text(score: &Score) -> Option<String> {
    let value = score.value?;
    let decimals = (5 - value.abs().max(1e-3).log10().floor() as i64).clamp(0, 9) as usize;
    let number = format!("{value:.decimals$}");
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { &number };
    Some(if score.unit == "1" { number.to_owned() } else { format!("{number} {}", score.unit).trim_end().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_have_six_digits() {
        let text = |value: f64, unit: &str| {
            score_text(&Score { name: String::new(), unit: unit.to_owned(), value: Some(value), failure: None }).unwrap()
        };
        assert_eq!(text(6.4975524129746836, "clocks/packet"), "6.49755 clocks/packet");
        assert_eq!(text(1.0225198231749384, "1"), "1.02252");
        assert_eq!(text(957_484_992.0, "b/s"), "957484992 b/s");
        assert_eq!(text(60.5, "Mpps"), "60.5 Mpps");
        assert_eq!(text(-0.0, ""), "-0");
        assert_eq!(text(0.000_012_345, "s"), "0.000012345 s");
    }
}

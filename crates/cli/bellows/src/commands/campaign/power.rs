//! `bellows campaign power`.

use std::process::ExitCode;

use bellows_campaign::{Effect, NeededRuns, Question, Results, needed_runs};
use bellows_inspect::text::sanitize;
use clap::Args;
use serde_json::json;

use super::{CampaignPlace, journal_error, with_unit};
use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::plural;

/// Say how many runs are needed to find a difference, from the scatter of those that are made
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    place: CampaignPlace,
    /// The factor whose levels are compared
    #[arg(long, value_name = "FACTOR")]
    by: String,
    /// The difference to be found: in the score's unit, or such as 5% of the mean of all scores
    #[arg(long, value_name = "EFFECT", value_parser = effect)]
    effect: Effect,
    /// The score, if there are several
    #[arg(long, value_name = "NAME")]
    score: Option<String>,
    /// The probability of finding it
    #[arg(long, value_name = "SHARE", default_value_t = 0.8)]
    power: f64,
    /// The probability of finding a difference between any two levels where there is none
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    level: f64,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  bellows campaign power sizes.toml --by version --effect 2%
  bellows campaign power sizes.results --by version --effect 0.5 --power 0.9";

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let results = Results::read(&self.place.folder()).map_err(journal_error)?;
        let Arguments { by, effect, score, power, level, .. } = self;
        let question = Question { factor: by, score, effect, power, level };
        let needed = needed_runs(&results, &question).map_err(|error| CommandError::Usage(error.to_string()))?;
        let text = if self.json { format!("{:#}\n", json!(needed)) } else { text_of(&needed, &question) };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn only_reports(&self) -> bool {
        true
    }
}

/// Reads an effect such as `0.5` or `2%`.
fn effect(text: &str) -> Result<Effect, String> {
    let (number, is_share) = match text.trim().strip_suffix('%') {
        Some(number) => (number, true),
        None => (text, false),
    };
    let number = number.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
    let number = number.ok_or("give a number above 0, in the score's unit, or a percentage such as 2%")?;
    Ok(if is_share { Effect::Share(number / 100.0) } else { Effect::Units(number) })
}

fn text_of(needed: &NeededRuns, question: &Question) -> String {
    let NeededRuns { runs, repeats, effect, unit, mean, deviation, from_runs, pairs, shown_so_far } = needed;
    let with_unit = |value: f64| with_unit(value, unit);
    let in_blocks = match repeats {
        Some(1) => ", which 1 block has,".to_owned(),
        Some(repeats) => format!(", which {} have,", plural(*repeats, "block")),
        None => String::new(),
    };
    let finds = if *runs == 1 { "finds" } else { "find" };
    let mut text = format!(
        "{} of each level of {}{in_blocks} {finds} a difference of {} with a probability of {}\n",
        plural(*runs, "run"),
        sanitize(&question.factor),
        with_unit(*effect),
        question.power
    );
    text += &format!(
        "  from {}: mean {}, standard deviation {}; level {}, corrected for {} of levels\n",
        plural(*from_runs as u64, "run"),
        with_unit(*mean),
        with_unit(*deviation),
        question.level,
        plural(*pairs, "pair")
    );
    if let Some(shown) = shown_so_far {
        text += &format!("  the runs so far find {}\n", with_unit(*shown));
    }
    sanitize(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_numbers_or_percentages() {
        assert_eq!(effect("0.5"), Ok(Effect::Units(0.5)));
        assert_eq!(effect("2%"), Ok(Effect::Share(0.02)));
        for wrong in ["", "%", "-1", "0", "inf", "2 percent"] {
            assert!(effect(wrong).unwrap_err().contains("2%"), "{wrong}");
        }
    }

    #[test]
    fn answers_are_sentences() {
        let needed = NeededRuns {
            runs: 17,
            repeats: Some(1),
            effect: 1e-6,
            unit: String::new(),
            mean: 6.8625,
            deviation: 0.5,
            from_runs: 60,
            pairs: 1,
            shown_so_far: None,
        };
        let question =
            Question { factor: "size".to_owned(), score: None, effect: Effect::Units(1e-6), power: 0.8, level: 0.05 };
        assert_eq!(
            text_of(&needed, &question),
            "17 runs of each level of size, which 1 block has, find a difference of 1e-6 with a probability of 0.8\n  \
             from 60 runs: mean 6.8625, standard deviation 0.5; level 0.05, corrected for 1 pair of levels\n"
        );
        let uneven = text_of(&NeededRuns { repeats: None, ..needed }, &question);
        assert!(uneven.starts_with("17 runs of each level of size find a "), "{uneven}");
    }
}

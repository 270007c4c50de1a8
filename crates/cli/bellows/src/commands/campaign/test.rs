//! `bellows campaign test`.

use std::process::ExitCode;

use bellows_campaign::{Campaign, Conclusion, Estimate, Verdict, verdicts};
use bellows_inspect::text::sanitize;
use clap::Args;
use serde_json::json;

use super::{CampaignPlace, journal_error, six_digits, with_unit};
use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;
use crate::text::{count, plural};

/// Say whether the runs confirm the registered hypotheses
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    place: CampaignPlace,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let loaded = self.place.load_hypotheses()?;
        let verdicts = verdicts(&self.place.folder(), &loaded.campaign).map_err(journal_error)?;
        let text = match self.json {
            true => format!("{:#}\n", json!(verdicts)),
            false => verdicts.iter().map(|verdict| verdict_text(verdict, &loaded.campaign)).collect(),
        };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn only_reports(&self) -> bool {
        true
    }
}

/// What runs say of a hypothesis.
fn verdict_text(verdict: &Verdict, campaign: &Campaign) -> String {
    let Verdict { hypothesis, runs, .. } = verdict;
    let unit = campaign.scores.iter().find(|score| score.name == hypothesis.score).map_or("", |score| &score.unit);
    let [first, second] = hypothesis.compare.each_ref().map(|levels| levels.join(":"));
    let estimate = |it: &Estimate| {
        let Estimate { difference, low, high, p, df, .. } = it;
        let [one, other] = it.runs.map(|runs| runs as u64);
        let df = *df as u64;
        let machines = match it.machines {
            1 => String::new(),
            machines => format!(" less what differs between {machines} machines"),
        };
        format!(
            "{first} - {second}: {} [{}, {}], {} percent; p {p:.3e}; {} and {}{machines}, {} of freedom",
            with_unit(*difference, unit),
            six_digits(*low),
            six_digits(*high),
            six_digits(100.0 * it.confidence),
            count(one),
            plural(other, "run"),
            plural(df, "degree")
        )
    };
    let conclusion = match verdict.conclusion {
        Conclusion::Confirmed => "confirmed",
        Conclusion::NotConfirmed => "not confirmed",
        Conclusion::Refused => "refused",
    };
    let dropped = if verdict.stated { "" } else { " (registered, and no longer in the file)" };
    let mut lines = vec![format!("{}: {conclusion}{dropped}", hypothesis.name)];
    lines.extend(verdict.refused.as_ref().map(|why| format!("  {why}")));
    if let (Some(it), Some(time)) = (&verdict.confirmation, &verdict.registered) {
        lines.push(format!("  runs since {time}: {}", estimate(it)));
        if let Some(p) = it.corrected_p {
            lines.push(format!("  p corrected for the campaign's hypotheses: {p:.3e}, limit {}", hypothesis.level));
        }
        let detectable = it.detectable.filter(|_| verdict.conclusion == Conclusion::NotConfirmed);
        lines.extend(
            detectable.map(|it| format!("  these runs would have shown {} in 4 of 5 cases", with_unit(it, unit))),
        );
    }
    if let Some(it) = &verdict.exploration {
        lines.push(format!("  exploration: {}, corrected for all pairs of {} means", estimate(it), it.means));
    }
    let others = [
        (runs.made_before, "made before it was registered"),
        (runs.explored, "looked at to find it"),
        (runs.beyond_plan, "beyond the planned number"),
        (runs.without_score, "without a score"),
    ];
    let others = others.into_iter().filter(|(number, _)| *number > 0);
    lines.extend(others.map(|(number, what)| format!("  {} {what}", plural(number as u64, "run"))));
    lines.extend(verdict.warnings.iter().map(|warning| format!("  warning: {warning}")));
    lines.iter().map(|line| sanitize(line) + "\n").collect()
}

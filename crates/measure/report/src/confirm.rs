//! What the runs say of registered hypotheses, in plain words.

use bellows_campaign::{Conclusion, Estimate, Hypothesis, ScoreDirection, Verdict};

use crate::model::{Confirmation, Tested};
use crate::source::ResultSource;
use crate::words::{
    self, counted, factor_name, label, listed, number, percent, probability, quoted, sentence, whole, with_unit,
};

/// The section of the report about hypotheses.
pub(crate) fn confirmation(source: &ResultSource) -> Confirmation {
    let hypotheses = source.verdicts.iter().map(|verdict| tested(verdict, source)).collect();
    Confirmation { note: source.unconfirmed.clone(), hypotheses }
}

fn tested(verdict: &Verdict, source: &ResultSource) -> Tested {
    let stated = source.info.iter().flat_map(|info| &info.scores).find(|score| score.name == verdict.hypothesis.score);
    let unit = stated.map_or("", |score| score.unit.as_str());
    let unit = if unit == "1" { String::new() } else { words_of(unit) };
    Tested {
        statement: statement(&verdict.hypothesis, &unit),
        findings: findings(verdict, &unit),
        unit,
        verdict: verdict.clone(),
    }
}

fn words_of(unit: &str) -> String {
    if unit.is_empty() { String::new() } else { label(unit) }
}

/// What a hypothesis states.
fn statement(hypothesis: &Hypothesis, unit: &str) -> String {
    let cell = |levels: &Vec<String>| {
        let named = hypothesis.term.iter().zip(levels);
        let words: Vec<String> =
            named.map(|(factor, level)| format!("{} {}", factor_name(factor), quoted(&label(level)))).collect();
        listed(&words)
    };
    let [first, second] = hypothesis.compare.each_ref().map(cell);
    let margin = (hypothesis.margin > 0.0).then(|| with_unit(&number(hypothesis.margin), unit));
    let more = margin.as_ref().map_or(String::new(), |margin| format!(" by more than {margin}"));
    let claim = match hypothesis.direction {
        ScoreDirection::Greater => format!("is greater with {first} than with {second}{more}"),
        ScoreDirection::Less => format!("is less with {first} than with {second}{more}"),
        ScoreDirection::Different => format!("differs between {first} and {second}{more}"),
        ScoreDirection::Equal => {
            format!("is equal with {first} and {second}, within {}", margin.unwrap_or_else(|| "no margin".to_owned()))
        }
    };
    let subset = hypothesis.subset.iter().map(|(factor, levels)| {
        let levels: Vec<String> = levels.iter().map(|level| quoted(&label(level))).collect();
        format!("{} is {}", factor_name(factor), levels.join(" or "))
    });
    let subset: Vec<String> = subset.collect();
    let subset = if subset.is_empty() { String::new() } else { format!(", where {}", listed(&subset)) };
    let score = quoted(&label(&hypothesis.score));
    sentence(&format!("the mean {score} {claim}{subset}"))
}

fn findings(verdict: &Verdict, unit: &str) -> Vec<String> {
    let level = percent(verdict.hypothesis.level);
    let mut sentences = Vec::new();
    match (verdict.conclusion, &verdict.confirmation) {
        (Conclusion::Confirmed, Some(it)) => sentences.push(format!(
            "Confirmed: runs that were made after it was registered say so, at the level of {level} percent. The \
             difference is {}.",
            estimate(it, unit)
        )),
        (_, Some(it)) if verdict.refused.is_none() => {
            sentences.push(format!(
                "Not confirmed at the level of {level} percent, which does not mean that it is wrong. The difference \
                 is {}.",
                estimate(it, unit)
            ));
            let detectable = it.detectable.map(|least| with_unit(&number(least), unit));
            sentences.extend(detectable.map(|least| {
                format!("These runs would probably have shown a difference of {least} (in 4 of 5 such campaigns).")
            }));
        }
        _ => sentences.push(sentence(&format!(
            "refused: {}",
            label(verdict.refused.as_deref().unwrap_or("no runs can confirm it"))
        ))),
    }
    if let Some(it) = verdict.confirmation.filter(|_| verdict.refused.is_none())
        && let Some(corrected) = it.corrected_p
    {
        sentences
            .push(format!("Corrected for all tested hypotheses of the campaign (Holm), {}.", probability(corrected)));
    }
    if let Some(it) = &verdict.exploration {
        sentences.push(format!(
            "Exploration, which confirms nothing: in the runs that cannot confirm it, the difference is {}, corrected \
             for all pairs of {}.",
            estimate(it, unit),
            counted(it.means, "mean", "means"),
        ));
    }
    let runs = &verdict.runs;
    let others = [
        (runs.made_before, "made before it was registered"),
        (runs.explored, "looked at to find it"),
        (runs.beyond_plan, "beyond the planned blocks"),
        (runs.without_score, "without a score"),
    ];
    let others = others.into_iter().filter(|(number, _)| *number > 0);
    let others: Vec<String> =
        others.map(|(number, what)| format!("{} {what}", counted(number, "run", "runs"))).collect();
    if !others.is_empty() {
        sentences.push(format!("Left out: {}.", listed(&others)));
    }
    if !verdict.stated {
        sentences.push("The campaign file states it no longer; it counts in the correction nevertheless.".to_owned());
    }
    sentences.extend(verdict.warnings.iter().map(|warning| sentence(&label(warning))));
    sentences
}

fn estimate(it: &Estimate, unit: &str) -> String {
    let Estimate { difference, low, high, confidence, p, df, machines, runs: [one, other], .. } = it;
    format!(
        "{} ({} percent confidence, {}, {} and {} runs{}, {} degrees of freedom)",
        words::estimate(*difference, *low, *high, unit),
        percent(*confidence),
        probability(*p),
        one,
        other,
        if *machines > 1 { format!(" less what differs between {machines} machines") } else { String::new() },
        whole(*df),
    )
}

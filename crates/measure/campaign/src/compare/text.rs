//! What a result says, as a sentence.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::compared::Compared;
use super::comparison::Comparison;
use super::judge::{Conclusion, Effect, Scale, conclude};
use super::pairs::LostPair;
use crate::campaign::Better;
use crate::diagnostics::listed;

/// Maximum number of pairs that are named.
const MAX_NAMED: usize = 5;

/// With fewer pairs, an interval that says nothing is due to their number.
const MIN_PAIRS: usize = 6;

/// A share, 10,000 percent, from which on the end of an interval says nothing.
const MAX_SHARE: f64 = 100.0;

impl Comparison {
    /// The lines of a result.
    pub(super) fn describe(&self, compared: &Compared, title: &str, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{title}: {}",
            self.sentence(compared, compared.conclusion, &compared.effect, compared.pairs)
        )?;
        let line = |formatter: &mut fmt::Formatter<'_>, text: &str| writeln!(formatter, "  {text}");
        if let Some(other) = &compared.undisturbed {
            let sentence = self.sentence(compared, other.conclusion, &other.effect, other.pairs);
            line(formatter, &format!("without the {} of a disturbed run: {sentence}", pairs(compared.disturbed)))?;
        }
        if let Some(caution) = self.caution(compared) {
            line(formatter, &caution)?;
        }
        if !compared.lost.is_empty() {
            line(formatter, &lost(&compared.lost))?;
        }
        Ok(())
    }

    /// Whether there are other scores, so that a title names this one.
    pub(super) fn has_others(&self, compared: &Compared) -> bool {
        self.results.iter().any(|it| (&it.score, &it.unit) != (&compared.score, &compared.unit))
    }

    /// The combination and the score, as far as there are others.
    pub(super) fn title(&self, compared: &Compared) -> String {
        let has_others = self.has_others(compared);
        let mut words: Vec<String> =
            compared.levels.iter().map(|(factor, level)| format!("{factor} {level}")).collect();
        let is_whole = compared.combinations > 1;
        if has_others || (words.is_empty() && !is_whole) {
            words.push(compared.score.clone());
        }
        if is_whole {
            words.push(format!("all {} together", compared.combinations));
        }
        words.join(", ")
    }

    fn sentence(&self, compared: &Compared, conclusion: Conclusion, effect: &Option<Effect>, count: usize) -> String {
        let Comparison { old, new, .. } = self;
        let failures = compared.failures;
        let failing = match conclusion {
            Conclusion::NewFails => Some((new, failures.new_alone, old, failures.old_alone)),
            Conclusion::OldFails => Some((old, failures.old_alone, new, failures.new_alone)),
            _ => None,
        };
        if let Some((one, lost, other, lost_by_other)) = failing {
            let of = |lost: usize| format!("{lost} of the {}", pairs(lost + failures.both));
            return match effect {
                _ if failures.both == 0 && lost_by_other == 0 => format!("{one} has no score, and {other} has some"),
                Some(it) => {
                    let conclusion = conclude(it, compared.better, 1.0 - self.confidence);
                    let otherwise = self.sentence(compared, conclusion, effect, count);
                    format!(
                        "{one} has no score in {} in which {other} has one, and the reverse in {}; otherwise {otherwise}",
                        of(lost),
                        of(lost_by_other)
                    )
                }
                None => format!("{one} has no score in {} in which {other} has one", of(lost)),
            };
        }
        let Some(effect) = effect else {
            return format!("{} with both scores, and at least 2 are needed; make more with `--repeats`", pairs(count));
        };
        let percent = 100.0 * self.confidence;
        let in_unit = |value: f64| format!("{} {}", number(value), compared.unit).trim_end().to_owned();
        let size = |value: f64| match effect.scale {
            Scale::Share => format!("{} %", share(value)),
            Scale::Unit => in_unit(value),
        };
        let bare = |value: f64| if effect.scale == Scale::Share { share(value) } else { number(value) };
        let interval = match () {
            () if effect.low > 0.0 => format!("{} to {}", bare(effect.low), size(effect.high)),
            () if effect.high < 0.0 => format!("{} to {}", bare(-effect.high), size(-effect.low)),
            () => format!("{} to {}", bare(effect.low), size(effect.high)),
        };
        let is_wide = is_too_wide(effect, effect.low) || is_too_wide(effect, effect.high);
        let interval = match effect.error {
            0.0 if compared.combinations > 1 => {
                format!("the pairs of each combination all differ by the same {}", size(effect.difference))
            }
            0.0 => format!("all {} differ by the same {}", pairs(count), size(effect.difference)),
            _ if is_wide && count < MIN_PAIRS => format!("{} are too few for an interval", pairs(count)),
            _ if is_wide => format!("{} scatter too much for an interval", pairs(count)),
            _ => format!("{percent} percent interval {interval}"),
        };
        // Means over several combinations are of different things.
        let means = match compared.combinations {
            1 if self.has_others(compared) => format!("; {} -> {}", number(effect.old), in_unit(effect.new)),
            1 => format!("; {} {} -> {}", compared.score, number(effect.old), in_unit(effect.new)),
            _ => String::new(),
        };
        let difference = size(effect.difference.abs());
        let shown = |word: &str| {
            let within = self.margin.filter(|_| compared.is_within_margin(1.0 - self.confidence));
            let of_margin = |margin: f64| match within {
                Some(_) => format!(", which is within {} %", share(margin)),
                None if effect.is_beyond(margin) => format!(", which is more than {} %", share(margin)),
                None => format!(", which may be more or less than {} %", share(margin)),
            };
            let within = self.margin.filter(|_| effect.scale == Scale::Share).map_or(String::new(), of_margin);
            format!("{new} is {difference} {word} ({interval}{means}; {}){within}", pairs(count))
        };
        match conclusion {
            Conclusion::Faster => shown("faster"),
            Conclusion::Slower => shown("slower"),
            Conclusion::Higher => shown("higher"),
            Conclusion::Lower => shown("lower"),
            Conclusion::Equal => {
                let margin = share(self.margin.unwrap_or_default());
                format!("equal within {margin} % ({interval}{means}; {})", pairs(count))
            }
            _ if effect.error == 0.0 && effect.difference != 0.0 => {
                // As many as have this probability by their signs.
                let needed = (2.0 / (1.0 - effect.confidence)).log2().ceil();
                format!(
                    "no difference that {} can show ({interval}{means}): at least {needed} are needed",
                    pairs(count)
                )
            }
            _ => {
                let detectable = effect.detectable.map_or(String::new(), |it| match is_too_wide(effect, it) {
                    true => "; make more with `--repeats`".to_owned(),
                    false => format!("; a difference of {} would have been found with a probability of 0.8", size(it)),
                });
                let margin = self.margin.filter(|_| effect.equal_p.is_some());
                let unequal = margin
                    .map_or(String::new(), |it| format!("; nor are they shown to be equal within {} %", share(it)));
                format!("no difference that {} can show ({interval}{means}){unequal}{detectable}", pairs(count))
            }
        }
    }

    /// What speaks against the sentence.
    pub(super) fn caution(&self, compared: &Compared) -> Option<String> {
        let (effect, level) = (compared.effect?, 1.0 - self.confidence);
        let (is_shown, by_ranks) = (effect.corrected_p <= level, effect.ranks_p? <= level);
        match (is_shown, by_ranks) {
            (true, false) => {
                let ranks = probability(effect.ranks_p?);
                Some(format!("the ranks of the differences do not show it (p {ranks}): few pairs decide; make more"))
            }
            (false, true) => {
                let ranks = probability(effect.ranks_p?);
                Some(format!("the ranks of the differences show one (p {ranks}): some pairs are far out; look at them"))
            }
            _ => None,
        }
    }

    /// Why all scores together have no answer, if there are several.
    fn unjudged(&self) -> Option<String> {
        let judged: Vec<&Compared> = self.results.iter().filter(|it| it.pairs > 1).collect();
        let is_other = |it: &&Compared| (&it.score, &it.unit) != (&judged[0].score, &judged[0].unit);
        if !judged.iter().any(is_other) {
            return None;
        }
        let names = |is_meant: &dyn Fn(&Compared) -> bool| {
            let names = judged.iter().filter(|it| is_meant(it)).map(|it| it.score.as_str());
            names.collect::<BTreeSet<&str>>()
        };
        let unknown = names(&|it| it.better.is_none());
        if !unknown.is_empty() {
            let (first, more) = listed_some(&unknown);
            return Some(format!(
                "all scores together: no answer, because the campaign does not say which are better of {first}{more}; \
                 add `better`"
            ));
        }
        let in_units = names(&|it| it.effect.is_some_and(|effect| effect.scale == Scale::Unit));
        let (first, more) = listed_some(&in_units);
        (!in_units.is_empty())
            .then(|| format!("all scores together: no answer, because some scores of {first}{more} are not above 0"))
    }

    /// What holds for all sentences.
    pub(super) fn foot(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = self.results.iter().filter(|it| it.effect.is_some()).count();
        if several > 1 {
            let percent = 100.0 * self.confidence;
            writeln!(
                formatter,
                "the intervals of the {several} comparisons hold together in {percent} of 100 cases; a difference counts \
                 if it does after Holm's correction for all of them"
            )?;
        }
        if self.results.iter().any(|it| it.better == Some(Better::Lower) && it.effect.is_some()) {
            writeln!(formatter, "faster means a lower score; percentages are those of the score")?;
        }
        if let Some(why) = self.unjudged() {
            writeln!(formatter, "{why}")?;
        }
        if self.margin.is_some() && self.results.iter().any(|it| it.effect.is_some_and(|it| it.scale == Scale::Unit)) {
            writeln!(formatter, "the margin is a share, and says nothing where scores are not all above 0")?;
        }
        if self.is_same {
            writeln!(formatter, "the versions are the same, so that a difference is one of the machine or of chance")?;
        }
        if self.disturbed_runs > 0 {
            writeln!(formatter, "disturbed runs: {} of {}", self.disturbed_runs, self.runs)?;
        }
        if self.single_runs > 0 {
            writeln!(formatter, "runs whose partner is not made yet: {}", self.single_runs)?;
        }
        Ok(())
    }
}

/// The first of several names, and how many more there are.
fn listed_some(names: &BTreeSet<&str>) -> (String, String) {
    let more = names.len().saturating_sub(MAX_NAMED);
    let named: Vec<&str> = names.iter().copied().take(MAX_NAMED).collect();
    (listed(named), if more > 0 { format!(" and {more} more") } else { String::new() })
}

/// Whether the end of an interval, or a difference that would have been found, says nothing.
pub(super) fn is_too_wide(effect: &Effect, value: f64) -> bool {
    !value.is_finite() || (effect.scale == Scale::Share && value > MAX_SHARE)
}

/// Pairs that do not count, and the first of them by name.
pub(super) fn lost(lost: &[LostPair]) -> String {
    let what = |pair: &LostPair| match (pair.is_of_two_machines, pair.has_old, pair.has_new) {
        (true, ..) => "on two machines",
        (_, true, _) => "without a score of NEW",
        (_, _, true) => "without a score of OLD",
        _ => "without any score",
    };
    let mut counts = BTreeMap::<&str, usize>::new();
    lost.iter().for_each(|pair| *counts.entry(what(pair)).or_default() += 1);
    let counts = counts.iter().map(|(what, count)| format!("{count} {what}"));
    let runs = lost.iter().flat_map(|pair| &pair.runs);
    let named = runs.clone().take(MAX_NAMED).map(|(run, why)| format!("{run} ({})", crate::diagnostics::visible(why)));
    let more = runs.count().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let (counts, named) = (counts.collect::<Vec<_>>().join(", "), named.collect::<Vec<_>>().join(", "));
    let verb = if lost.len() == 1 { "does" } else { "do" };
    format!("{} {verb} not count ({counts}): {named}{more}", pairs(lost.len()))
}

pub(super) fn pairs(count: usize) -> String {
    if count == 1 { "1 pair".to_owned() } else { format!("{count} pairs") }
}

/// A share in percent, with two significant digits below 1.
pub(super) fn share(value: f64) -> String {
    let percent = 100.0 * value;
    match percent.abs() {
        0.0 => "0".to_owned(),
        size if size >= 99_999.5 => format!("{percent:.1e}"),
        size if size >= 99.95 => format!("{percent:.0}"),
        size if size >= 0.095 => format!("{percent:.1}"),
        size if size >= 0.000_95 => format!("{percent:.*}", decimals(size, 2)),
        _ => format!("{percent:.1e}"),
    }
}

/// A number with four significant digits.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if !(1e-4..1e9).contains(&size) => format!("{value:.3e}"),
        size => format!("{value:.*}", decimals(size, 4)),
    }
}

/// The number of decimals for this number of significant digits.
fn decimals(size: f64, digits: i32) -> usize {
    (digits - 1 - size.log10().floor() as i32).max(0) as usize
}

fn probability(p: f64) -> String {
    if p >= 0.001 { format!("{p:.3}") } else { format!("{p:.1e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let shares = [0.0, 0.031_4, -0.0042, 0.000_123, 1.5, 0.999_4, -2e-9, 5e20].map(share);
        assert_eq!(shares, ["0", "3.1", "-0.4", "0.012", "150", "99.9", "-2.0e-7", "5.0e22"]);
        let numbers = [0.0, 812.34, 1_234_567.0, -0.012_345_6, 7.0, 1e-7, 3e12].map(number);
        assert_eq!(numbers, ["0", "812.3", "1234567", "-0.01235", "7.000", "1.000e-7", "3.000e12"]);
    }
}

//! What all combinations say together: the mean of their differences, in which each combination counts as much as the
//! others.

use std::collections::BTreeMap;

use bellows_stats::{holm, paired_in_sets};

use super::compared::Compared;
use super::judge::{Effect, Rules, Scale, conclude, differences, log_margin, shown};
use super::pairs::{Pair, Set};
use crate::campaign::Better;

/// The name of all scores together.
const ALL: &str = "all scores";

/// Sets that are judged together.
struct Group<'s> {
    score: String,
    unit: String,
    better: Option<Better>,
    scale: Scale,
    /// Whether it has several scores.
    is_all: bool,
    sets: Vec<&'s Set>,
}

/// What all combinations of each score say together, and all scores, if it is known of each what is better.
pub(super) fn wholes(sets: &[Set], scales: &[Scale], rules: Rules) -> Vec<Compared> {
    let groups = groups(sets, scales);
    let count = groups.len().max(1) as f64;
    let confidence = 1.0 - rules.level / count;
    let mut found: Vec<Compared> = groups.iter().filter_map(|group| judge(group, confidence, rules)).collect();
    let corrected = |p: fn(&Effect) -> Option<f64>| {
        let ps: Vec<f64> = found.iter().map(|it| it.effect.as_ref().and_then(p).unwrap_or(1.0)).collect();
        holm(&ps)
    };
    let (ps, equal) = (corrected(|effect| Some(effect.p)), corrected(|effect| effect.equal_p));
    for ((compared, p), equal) in found.iter_mut().zip(ps).zip(equal) {
        if let Some(effect) = &mut compared.effect {
            effect.corrected_p = p;
            effect.equal_p = effect.equal_p.map(|_| equal);
            compared.conclusion = conclude(effect, compared.better, rules.level);
        }
    }
    found
}

fn groups<'s>(sets: &'s [Set], scales: &[Scale]) -> Vec<Group<'s>> {
    let mut by_score: BTreeMap<(&str, &str), Vec<(&Set, Scale)>> = BTreeMap::new();
    for (set, scale) in sets.iter().zip(scales).filter(|(set, _)| set.pairs.len() > 1) {
        by_score.entry((&set.score, &set.unit)).or_default().push((set, *scale));
    }
    let is_known = |(set, scale): &(&Set, Scale)| set.better.is_some() && *scale == Scale::Share;
    let all = (by_score.len() > 1 && by_score.values().flatten().all(is_known)).then(|| Group {
        score: ALL.to_owned(),
        unit: String::new(),
        better: Some(Better::Higher),
        scale: Scale::Share,
        is_all: true,
        sets: by_score.values().flatten().map(|(set, _)| *set).collect(),
    });
    let several = by_score.iter().filter(|(_, sets)| sets.len() > 1);
    let same = several.filter(|(_, sets)| sets.iter().all(|(_, scale)| *scale == sets[0].1));
    let group = |((score, unit), sets): (&(&str, &str), &Vec<(&'s Set, Scale)>)| Group {
        score: (*score).to_owned(),
        unit: (*unit).to_owned(),
        better: sets[0].0.better,
        scale: sets[0].1,
        is_all: false,
        sets: sets.iter().map(|(set, _)| *set).collect(),
    };
    same.map(group).chain(all).collect()
}

/// What a group says, not yet corrected for the others.
fn judge(group: &Group<'_>, confidence: f64, rules: Rules) -> Option<Compared> {
    let is_all = group.is_all;
    let of_set = |set: &&Set| {
        // Together, more is better.
        let sign = if is_all && set.better == Some(Better::Lower) { -1.0 } else { 1.0 };
        differences(group.scale, &set.pairs).iter().map(|difference| sign * difference).collect::<Vec<f64>>()
    };
    let differences: Vec<Vec<f64>> = group.sets.iter().map(of_set).collect();
    let found = paired_in_sets(&differences.iter().map(Vec::as_slice).collect::<Vec<_>>(), confidence)?;
    let mean = |value: fn(&Pair) -> f64| {
        let of_set = |set: &&Set| {
            let scaled = |pair: &Pair| if group.scale == Scale::Share { value(pair).ln() } else { value(pair) };
            set.pairs.iter().map(scaled).sum::<f64>() / set.pairs.len() as f64
        };
        let mean = group.sets.iter().map(of_set).sum::<f64>() / group.sets.len() as f64;
        if group.scale == Scale::Share { mean.exp() } else { mean }
    };
    let margin = rules.margin.filter(|_| group.scale == Scale::Share);
    let effect = Effect {
        scale: group.scale,
        old: if is_all { 1.0 } else { mean(|pair| pair.old) },
        new: if is_all { found.difference.exp() } else { mean(|pair| pair.new) },
        difference: shown(group.scale, found.difference),
        low: shown(group.scale, found.low),
        high: shown(group.scale, found.high),
        confidence,
        p: found.p,
        corrected_p: found.p,
        ranks_p: None,
        medians: None,
        equal_p: margin.map(|margin| found.p_within(log_margin(margin))),
        detectable: None,
        error: found.error,
        df: found.df,
    };
    Some(Compared {
        levels: BTreeMap::new(),
        score: group.score.clone(),
        unit: group.unit.clone(),
        better: group.better,
        conclusion: conclude(&effect, group.better, rules.level),
        effect: Some(effect),
        combinations: group.sets.len(),
        pairs: group.sets.iter().map(|set| set.pairs.len()).sum(),
        disturbed: group.sets.iter().flat_map(|set| &set.pairs).filter(|pair| pair.is_disturbed).count(),
        lost: Vec::new(),
        undisturbed: None,
    })
}

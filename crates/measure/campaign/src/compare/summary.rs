//! The comparison in words: all results, or of many those that matter.

use std::collections::BTreeMap;
use std::fmt;

use super::compared::Compared;
use super::comparison::Comparison;
use super::judge::{Conclusion, Effect, Scale};
use super::names::Names;
use super::text::{is_too_wide, lost, pairs, share};

/// Maximum number of results that all have lines of their own in the plain form.
const MAX_LINES: usize = 12;

/// Maximum number of groups of results without a difference.
const MAX_GROUPS: usize = 40;

/// The kinds of results in the order of the text.
const ORDER: [Conclusion; 9] = [
    Conclusion::Slower,
    Conclusion::NewFails,
    Conclusion::Higher,
    Conclusion::Lower,
    Conclusion::Faster,
    Conclusion::Equal,
    Conclusion::OldFails,
    Conclusion::NoDifference,
    Conclusion::TooFewPairs,
];

/// Lines in plain words: what each combination says, and all together. Of more than 12 results, the plain form `{}` says
/// how many there are of each kind, and has the lines of those that differ; the alternate form `{:#}` has those of all.
impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [old, new] = match &self.versions {
            Some(versions) => versions.each_ref().map(ToString::to_string),
            None => [self.old.clone(), self.new.clone()],
        };
        match self.is_same {
            true => writeln!(formatter, "A/A check: {old} and {new} have the same contents")?,
            false => writeln!(formatter, "OLD {old}, NEW {new}")?,
        }
        if self.results.is_empty() {
            writeln!(formatter, "there are no pairs yet")?;
        }
        if self.results.len() > MAX_LINES && !formatter.alternate() {
            self.summarise(formatter)?;
        } else {
            for compared in self.results.iter().chain(&self.whole) {
                self.describe(compared, &self.title(compared), formatter)?;
            }
        }
        self.foot(formatter)
    }
}

impl Comparison {
    /// A short name of each result, in their order.
    pub fn names(&self) -> Vec<String> {
        let names = Names::new(&self.results);
        let name = |compared: &Compared| match names.levels(&compared.levels) {
            levels if levels.is_empty() || self.has_others(compared) => names.whole(compared),
            levels => levels,
        };
        self.results.iter().map(name).collect()
    }

    /// The answer in a line, the results that matter, and how sharp the others are.
    fn summarise(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "{}", self.answer())?;
        let names = Names::new(&self.results);
        let mut told: Vec<&Compared> = self.results.iter().filter(|it| self.is_told(it)).collect();
        told.sort_by(|one, other| rank(one).cmp(&rank(other)).then(size(other).total_cmp(&size(one))));
        for compared in told {
            self.describe(compared, &names.whole(compared), formatter)?;
        }
        let of = |wanted: Conclusion| -> Vec<&Compared> {
            let others = self.results.iter().filter(|it| it.conclusion == wanted && !self.is_told(it));
            others.collect()
        };
        for (title, group) in groups(&of(Conclusion::NoDifference), &names) {
            writeln!(formatter, "{title}: no difference; {}", sharpness(&group))?;
        }
        for (title, group) in groups(&of(Conclusion::TooFewPairs), &names) {
            writeln!(formatter, "{title}: too few pairs with both scores; make more with `--repeats`")?;
            if let Some(first) = group.iter().find(|it| !it.lost.is_empty()) {
                writeln!(formatter, "  {}: {}", names.score(first), lost(&first.lost))?;
            }
        }
        let is_silent = |it: &Compared| matches!(it.conclusion, Conclusion::NoDifference | Conclusion::TooFewPairs);
        for compared in self.whole.iter().filter(|it| self.whole.len() <= MAX_LINES || !is_silent(it)) {
            self.describe(compared, &self.title(compared), formatter)?;
        }
        Ok(())
    }

    /// How many results there are of each kind, in a line.
    pub fn answer(&self) -> String {
        let counted = |conclusion: Conclusion| {
            let found: Vec<&Compared> = self.results.iter().filter(|it| it.conclusion == conclusion).collect();
            let what = match conclusion {
                Conclusion::Slower => {
                    return Some(format!("slower: {} of {} figures", found.len(), self.results.len()));
                }
                Conclusion::NewFails => "without a score of the new version".to_owned(),
                Conclusion::Higher => "higher".to_owned(),
                Conclusion::Lower => "lower".to_owned(),
                Conclusion::Faster => "faster".to_owned(),
                Conclusion::Equal => format!("equal within {} %", share(self.margin.unwrap_or_default())),
                Conclusion::OldFails => "without a score of the old version".to_owned(),
                Conclusion::NoDifference => format!("no difference that {} can show", range(&found)),
                Conclusion::TooFewPairs => "without enough pairs".to_owned(),
            };
            let is_said = !found.is_empty() || conclusion == Conclusion::Faster;
            is_said.then(|| format!("{what}: {}", found.len()))
        };
        ORDER.into_iter().filter_map(counted).collect::<Vec<_>>().join("; ")
    }

    /// Whether a result has lines of its own: it says something, or its undisturbed pairs or its ranks do.
    fn is_told(&self, compared: &Compared) -> bool {
        let is_silent = |it: Conclusion| matches!(it, Conclusion::NoDifference | Conclusion::TooFewPairs);
        !is_silent(compared.conclusion)
            || compared.undisturbed.is_some_and(|other| !is_silent(other.conclusion))
            || self.caution(compared).is_some()
    }
}

/// The place of a result's kind in the text.
fn rank(compared: &Compared) -> usize {
    ORDER.iter().position(|it| *it == compared.conclusion).unwrap_or(ORDER.len())
}

/// The size of a difference, by which results of a kind are sorted; shares are before differences in units.
fn size(compared: &Compared) -> f64 {
    match compared.effect {
        Some(Effect { scale: Scale::Share, difference, .. }) => difference.ln_1p().abs(),
        _ => -1.0,
    }
}

/// The least and the greatest number of pairs.
fn range(results: &[&Compared]) -> String {
    let counts = || results.iter().map(|it| it.pairs);
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    if least == most { pairs(most) } else { format!("{least} to {}", pairs(most)) }
}

/// Results by combination or by score, whichever gives fewer groups, in the order of the results; each with its title.
fn groups<'c>(results: &[&'c Compared], names: &Names) -> Vec<(String, Vec<&'c Compared>)> {
    let by = |key: &dyn Fn(&Compared) -> String| {
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut groups: Vec<(String, Vec<&'c Compared>)> = Vec::new();
        for &compared in results {
            let place = *places.entry(key(compared)).or_insert_with_key(|key| {
                groups.push((key.clone(), Vec::new()));
                groups.len() - 1
            });
            groups[place].1.push(compared);
        }
        groups
    };
    let (combinations, scores) = (by(&|it| names.levels(&it.levels)), by(&|it| it.score.clone()));
    let mut groups = if scores.len() < combinations.len() { scores } else { combinations };
    if groups.len() > MAX_GROUPS {
        groups = vec![(String::new(), results.to_vec())];
    }
    for (title, group) in &mut groups {
        let count = if group.len() == 1 { "1 figure".to_owned() } else { format!("{} figures", group.len()) };
        *title = if title.is_empty() { count } else { format!("{title}, {count}") };
    }
    groups
}

/// Which differences would have been found.
fn sharpness(group: &[&Compared]) -> String {
    let effects = group.iter().filter_map(|it| it.effect.as_ref());
    let known: Vec<(&Effect, f64)> = effects.filter_map(|it| Some((it, it.detectable?))).collect();
    let (wide, narrow): (Vec<_>, Vec<_>) = known.into_iter().partition(|(effect, value)| is_too_wide(effect, *value));
    let shares = || narrow.iter().filter(|(effect, _)| effect.scale == Scale::Share).map(|(_, value)| *value);
    let (least, most) = (shares().fold(f64::INFINITY, f64::min), shares().fold(0.0, f64::max));
    let mut words = Vec::new();
    match shares().count() {
        0 => {}
        _ if share(least) == share(most) => words.push(format!("one of {} % would have been found", share(most))),
        _ => words.push(format!("differences from {} to {} % would have been found", share(least), share(most))),
    }
    let in_units = narrow.len() - shares().count();
    if in_units > 0 {
        words.push(format!("{in_units} with scores that are not above 0"));
    }
    let constant = group.len() - narrow.len() - wide.len();
    if constant > 0 {
        words.push(format!("{constant} without scatter"));
    }
    if !wide.is_empty() {
        words.push(match wide.len() == group.len() {
            true => format!("{} are too few to find any; make more with `--repeats`", range(group)),
            false => format!("{} with too few pairs to find any; make more with `--repeats`", wide.len()),
        });
    }
    words.join("; ")
}

//! Short names of figures: without the labels that all figures of a combination share.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::compared::Compared;

/// The combination of a result.
type Levels = BTreeMap<String, String>;

/// Short names of all figures.
pub(super) struct Names {
    /// By combination and score.
    short: HashMap<(Levels, String), String>,
    /// Whether levels are words that need no name of their factor.
    are_words: bool,
}

impl Names {
    pub(super) fn new(results: &[Compared]) -> Names {
        let mut combinations: BTreeMap<&Levels, BTreeSet<&str>> = BTreeMap::new();
        for compared in results {
            combinations.entry(&compared.levels).or_default().insert(&compared.score);
        }
        let is_word = |level: &String| level.starts_with(char::is_alphabetic) && level != "true" && level != "false";
        let are_words = combinations.keys().all(|levels| levels.len() == 1 && levels.values().all(is_word));
        let mut short = HashMap::new();
        for (levels, scores) in combinations {
            let scores: Vec<&str> = scores.into_iter().collect();
            let names = scores.iter().zip(shorten(&scores));
            short.extend(names.map(|(score, name)| ((levels.clone(), (*score).to_owned()), name)));
        }
        Names { short, are_words }
    }

    /// The levels of a combination.
    pub(super) fn levels(&self, levels: &Levels) -> String {
        let name = |(factor, level): (&String, &String)| match self.are_words {
            true => level.clone(),
            false => format!("{factor} {level}"),
        };
        levels.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// The combination, and the score as far as it has others.
    pub(super) fn whole(&self, compared: &Compared) -> String {
        let words = [self.levels(&compared.levels), self.score(compared)];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// The name of a score within its combination.
    pub(super) fn score(&self, compared: &Compared) -> String {
        let short = self.short.get(&(compared.levels.clone(), compared.score.clone()));
        short.map_or_else(|| compared.score.clone(), String::clone)
    }
}

/// The names of the figures of a combination without the labels that all have; the full names if these would be equal.
fn shorten(scores: &[&str]) -> Vec<String> {
    let parts: Vec<(&str, Vec<&str>, &str)> = scores.iter().map(|score| labels(score)).collect();
    let is_shared = |label: &str| scores.len() > 1 && parts.iter().all(|(_, labels, _)| labels.contains(&label));
    let short = parts.iter().map(|(case, labels, number)| {
        let own = labels.iter().filter(|label| !is_shared(label)).copied();
        format!("{}{number}", [*case].into_iter().chain(own).collect::<Vec<_>>().join(", "))
    });
    let short: Vec<String> = short.collect();
    match short.iter().collect::<BTreeSet<_>>().len() == scores.len() {
        true => short,
        false => scores.iter().map(|score| (*score).to_owned()).collect(),
    }
}

/// The case, the labels and the number of `case (label, label) #2`.
fn labels(score: &str) -> (&str, Vec<&str>, &str) {
    let (named, number) = score.split_at(score.rfind(" #").unwrap_or(score.len()));
    let inside = named.split_once(" (").and_then(|(case, rest)| Some((case, rest.strip_suffix(')')?)));
    let Some((case, inside)) = inside else { return (score, Vec::new(), "") };
    let (mut found, mut start, mut depth, mut is_quoted) = (Vec::new(), 0, 0usize, false);
    for (place, character) in inside.char_indices() {
        match character {
            '"' => is_quoted = !is_quoted,
            '(' | '[' | '{' if !is_quoted => depth += 1,
            ')' | ']' | '}' if !is_quoted => depth = depth.saturating_sub(1),
            ',' if !is_quoted && depth == 0 => {
                found.push(inside[start..place].trim_start());
                start = place + 1;
            }
            _ => {}
        }
    }
    found.push(inside[start..].trim_start());
    (case, found, number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_labels_are_left_out() {
        let scores = ["rx (burst 32, header 12, indirect true)", "tx (burst 32, header 10, indirect false) #2"];
        assert_eq!(shorten(&scores), ["rx, header 12, indirect true", "tx, header 10, indirect false #2"]);
        let scores = ["app (apps tag(a = 1, b = \"x, y\"), size 60)", "app (apps tag(a = 1), size 60)"];
        assert_eq!(shorten(&scores), ["app, apps tag(a = 1, b = \"x, y\")", "app, apps tag(a = 1)"]);
    }

    #[test]
    fn names_stay_different() {
        let scores = ["c (a 1, b 2, a 1)", "c (a 1, b 2)"];
        assert_eq!(shorten(&scores), scores);
        assert_eq!(shorten(&["idle (apps 30)"]), ["idle, apps 30"]);
        assert_eq!(shorten(&["time (", "x) #", ""]), ["time (", "x) #", ""]);
    }
}

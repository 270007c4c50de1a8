//! Hypotheses.

use std::collections::BTreeMap;

use toml::de::DeValue;

use super::{File, MAX_REPEATS};
use crate::campaign::{Exclusion, Factor, Hypothesis, Read, ScoreDirection, ScoreSpec};
use crate::diagnostics::{did_you_mean, listed, quoted};
use crate::plan;
use crate::table::{KeyTable, TableNode, items, text, word};

impl File<'_> {
    pub(super) fn hypotheses(
        &mut self,
        node: &TableNode<'_>,
        scores: &[ScoreSpec],
        exclusions: &[Exclusion],
    ) -> Vec<Hypothesis> {
        let nodes = match node.get_ref() {
            DeValue::Array(array) => array.iter().collect(),
            _ => vec![node],
        };
        let mut hypotheses: Vec<Hypothesis> = Vec::new();
        for node in nodes {
            let Some(hypothesis) = self.hypothesis(node, scores) else { continue };
            if hypotheses.iter().any(|other| other.name == hypothesis.name) {
                let message = format!("there are two hypotheses {}", quoted(&hypothesis.name));
                self.diagnostics.at(node.span(), message, "give each a `name` of its own");
            }
            self.check_cells(&hypothesis, node, exclusions);
            hypotheses.push(hypothesis);
        }
        hypotheses
    }

    /// Both means have runs.
    fn check_cells(&mut self, hypothesis: &Hypothesis, node: &TableNode<'_>, exclusions: &[Exclusion]) {
        let place = |name: &String| self.factors.iter().position(|factor| factor.name == *name);
        let label = |combination: &[usize], factor: usize| &self.factors[factor].levels[combination[factor]].label;
        let Some(term) = hypothesis.term.iter().map(place).collect::<Option<Vec<usize>>>() else { return };
        let subset = hypothesis.subset.iter().filter_map(|(name, levels)| Some((place(name)?, levels)));
        let subset: Vec<(usize, &Vec<String>)> = subset.collect();
        let mut have_runs = [false; 2];
        plan::each_combination(&self.factors, |combination| {
            let is_meant = subset.iter().all(|(factor, levels)| levels.contains(label(combination, *factor)));
            if !is_meant || exclusions.iter().any(|exclusion| exclusion.has(combination)) {
                return;
            }
            for (has_runs, levels) in have_runs.iter_mut().zip(&hypothesis.compare) {
                *has_runs |= term.iter().zip(levels).all(|(factor, level)| label(combination, *factor) == level);
            }
        });
        if let Some(without) = have_runs.iter().position(|has_runs| !has_runs) {
            let mean = listed(&hypothesis.compare[without]);
            let message = format!("all runs of the mean {mean} of {} are excluded", quoted(&hypothesis.name));
            self.diagnostics.at(node.span(), message, "compare other levels, or change `where` or `exclude`");
        }
    }

    fn hypothesis(&mut self, node: &TableNode<'_>, scores: &[ScoreSpec]) -> Option<Hypothesis> {
        let mut table = KeyTable::of("`hypothesis`", node, self.diagnostics)?;
        let name = table.text("name", self.diagnostics);
        let score = self.hypothesis_score(&mut table, scores);
        let term = self.term(&mut table);
        let compare = match (&term, table.take("compare")) {
            (Some(term), Some(node)) => self.compare(term, node),
            (Some(_), None) => {
                let help = "add compare = [\"first\", \"second\"]: the first mean minus the second";
                self.diagnostics.at(node.span(), "the hypothesis has no `compare`", help);
                None
            }
            (None, _) => None,
        };
        let subset = table.take("where").map_or(BTreeMap::new(), |node| self.subset(node));
        let directions = [
            ("greater", ScoreDirection::Greater),
            ("less", ScoreDirection::Less),
            ("different", ScoreDirection::Different),
            ("equal", ScoreDirection::Equal),
        ];
        let direction = table.choice("direction", &directions, self.diagnostics).unwrap_or(ScoreDirection::Different);
        let margin = table.float("margin", 0.0..=f64::MAX, self.diagnostics).unwrap_or(0.0);
        let level = table.float("level", 1e-9..=0.5, self.diagnostics).unwrap_or(0.05);
        let explored = table.number("explored", 0..=MAX_REPEATS, self.diagnostics).unwrap_or(0) as u32;
        let repeats = table.number("repeats", 1..=MAX_REPEATS, self.diagnostics).map(|repeats| repeats as u32);
        table.finish(self.diagnostics);
        if repeats.is_some_and(|repeats| repeats <= explored) {
            let help = "state more `repeats`: the blocks behind those that were explored can confirm it";
            self.diagnostics.at(node.span(), "no block is left that could confirm the hypothesis", help);
        }
        if direction == ScoreDirection::Equal && margin == 0.0 {
            let help = "add margin = …, the difference that does not matter, in the score's unit";
            self.diagnostics.at(node.span(), "that means are equal can be shown only within a `margin`", help);
        }
        let (Some(name), Some(term)) = (&name, &term) else {
            if name.is_none() {
                self.diagnostics.at(node.span(), "the hypothesis has no `name`", "add name = \"…\"");
            }
            return None;
        };
        if let Some(both) = term.iter().find(|factor| subset.contains_key(*factor)) {
            let message = format!("{} is a factor of the term, and chosen by `where`, too", quoted(both));
            self.diagnostics.at(node.span(), message, "remove it from one of them");
        }
        Some(Hypothesis {
            name: name.clone(),
            score: score?,
            term: term.clone(),
            compare: compare?,
            subset,
            direction,
            margin,
            level,
            explored,
            repeats,
        })
    }

    fn hypothesis_score(&mut self, table: &mut KeyTable<'_, '_>, scores: &[ScoreSpec]) -> Option<String> {
        let Some(node) = table.take("score") else {
            if let [only] = scores
                && !matches!(only.read, Read::Bench { case: None, .. })
            {
                return Some(only.name.clone());
            }
            let message = "the campaign may have several scores, and the hypothesis does not say which";
            self.diagnostics.at(table.span.clone(), message, "add score = \"name\"");
            return None;
        };
        let score = text("score", node, self.diagnostics)?;
        let is_any = scores.iter().any(|score| matches!(score.read, Read::Bench { case: None, .. }));
        if !is_any && !scores.iter().any(|other| other.name == score) {
            let help = did_you_mean(&score, scores.iter().map(|score| score.name.as_str()));
            self.diagnostics.at(node.span(), format!("there is no score {}", quoted(&score)), help);
        }
        Some(score)
    }

    fn term(&mut self, table: &mut KeyTable<'_, '_>) -> Option<Vec<String>> {
        let nodes = match (table.take("factor"), table.take("term")) {
            (Some(node), None) => vec![node],
            (None, Some(node)) => items("term", node, self.diagnostics)?,
            _ => Vec::new(),
        };
        if nodes.is_empty() {
            let help = "add factor = \"name\", or term = [\"name\", \"name\"] for the cells of an interaction";
            self.diagnostics.at(table.span.clone(), "a hypothesis has either `factor` or `term`", help);
            return None;
        }
        let mut term = Vec::new();
        for node in nodes {
            let name = text("factor", node, self.diagnostics)?;
            self.known_factor(&name, node.span())?;
            if term.contains(&name) {
                self.diagnostics.at(node.span(), format!("{} is there twice", quoted(&name)), "remove one");
                return None;
            }
            term.push(name);
        }
        Some(term)
    }

    fn compare(&mut self, term: &[String], node: &TableNode<'_>) -> Option<[Vec<String>; 2]> {
        let means = items("compare", node, self.diagnostics)?;
        let &[first, second] = means.as_slice() else {
            let help = "write compare = [first, second]; the difference is the first minus the second";
            self.diagnostics.at(node.span(), format!("`compare` has {} means, not two", means.len()), help);
            return None;
        };
        let [first, second] = [first, second].map(|mean| self.mean(term, mean));
        let (first, second) = (first?, second?);
        if first == second {
            self.diagnostics.at(node.span(), "`compare` has the same mean twice", "name two different ones");
            return None;
        }
        Some([first, second])
    }

    /// A level for each factor of the term: a word for one factor, else a table.
    fn mean(&mut self, term: &[String], node: &TableNode<'_>) -> Option<Vec<String>> {
        let index = |name: &str, factors: &[Factor]| factors.iter().position(|factor| factor.name == name);
        if let ([only], Some(label)) = (term, word(node)) {
            let factor = index(only, &self.factors)?;
            self.known_level(factor, node)?;
            return Some(vec![label]);
        }
        let mut table = KeyTable::of("a mean of several factors", node, self.diagnostics)?;
        let mut chosen = BTreeMap::new();
        for (name, span, node) in table.rest() {
            if !term.iter().any(|factor| factor == name) {
                let help = did_you_mean(name, term.iter().map(String::as_str));
                self.diagnostics.at(span, format!("{} is no factor of the term", quoted(name)), help);
                return None;
            }
            let factor = index(name, &self.factors)?;
            let level = self.known_level(factor, node)?;
            chosen.insert(name.to_owned(), self.factors[factor].levels[level].label.clone());
        }
        let levels: Option<Vec<String>> = term.iter().map(|factor| chosen.remove(factor)).collect();
        if levels.is_none() {
            let message = format!("a mean has a level for each of {}", listed(term));
            self.diagnostics.at(node.span(), message, "add the missing ones");
        }
        levels
    }

    fn subset(&mut self, node: &TableNode<'_>) -> BTreeMap<String, Vec<String>> {
        let Some(mut table) = KeyTable::of("`where`", node, self.diagnostics) else { return BTreeMap::new() };
        let mut subset = BTreeMap::new();
        for (name, span, node) in table.rest() {
            if let Some(factor) = self.known_factor(name, span)
                && let Some(levels) = self.known_levels(factor, node)
            {
                let labels = levels.into_iter().map(|level| self.factors[factor].levels[level].label.clone());
                subset.insert(name.to_owned(), labels.collect());
            }
        }
        subset
    }
}

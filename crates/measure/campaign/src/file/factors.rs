//! Factors, their levels, and combinations that are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use toml::de::DeValue;

use super::{File, is_name};
use crate::campaign::{Build, Exclusion, Factor, Level};
use crate::diagnostics::{did_you_mean, listed, quoted};
use crate::folder::{columns, is_column};
use crate::plan::{self, MAX_COMBINATIONS};
use crate::table::{KeyTable, TableNode, called, items, text, word};
use crate::template::PlaceholderValue;

/// Maximum number of factors.
const MAX_FACTORS: usize = 32;

/// The values of a version.
const VERSION_VALUES: [&str; 5] = ["program", "build", "source", "commit", "name"];

impl File<'_> {
    pub(super) fn factors(&mut self, node: Option<&TableNode<'_>>, build: Option<&((Build, String), Range<usize>)>) {
        if let Some(((_, name), _)) = build {
            let values: BTreeMap<_, _> =
                VERSION_VALUES.iter().map(|key| ((*key).to_owned(), PlaceholderValue::Text(String::new()))).collect();
            let levels = ["old", "new"].map(|label| Level { label: label.to_owned(), values: values.clone() });
            self.factors.push(Factor { name: name.clone(), levels: levels.into() });
        }
        let help = "add a table [factors] with lines such as size = [64, 1500]";
        let Some(node) = node else {
            if build.is_none() {
                self.diagnostics.whole("the campaign has no `factors`", help);
            }
            return;
        };
        let Some(mut table) = KeyTable::of("`factors`", node, self.diagnostics) else { return };
        let entries = table.rest();
        if entries.is_empty() || entries.len() > MAX_FACTORS {
            let message = format!("a campaign has 1 to {MAX_FACTORS} factors, this one {}", entries.len());
            return self.diagnostics.at(node.span(), message, help);
        }
        let mut product = 1 + usize::from(build.is_some());
        for (name, span, node) in entries {
            if self.factors.iter().any(|factor| factor.name == name) {
                let message = format!("{} is the factor of the two builds, too", quoted(name));
                self.diagnostics.at(span, message, "rename it, or write another `factor` in the table `build`");
                continue;
            }
            if !is_name(name) || is_column(name) {
                let message = format!("a factor cannot be called {}", quoted(name));
                let help = match is_column(name) {
                    true => format!("results have columns {}; take another name", listed(columns())),
                    false => "a name has letters, digits, `_` and `-` and begins with a letter".to_owned(),
                };
                self.diagnostics.at(span, message, help);
                continue;
            }
            let Some(levels) = items(name, node, self.diagnostics) else { continue };
            if levels.is_empty() {
                self.diagnostics.at(node.span(), format!("{} has no levels", quoted(name)), "add a level");
            }
            product = product.saturating_mul(levels.len().max(1));
            let levels = self.levels(name, &levels);
            self.factors.push(Factor { name: name.to_owned(), levels });
        }
        if product > MAX_COMBINATIONS {
            let message = format!("the factors have more than {MAX_COMBINATIONS} combinations");
            self.diagnostics.at(node.span(), message, "remove levels, or split the campaign into several");
        }
    }

    fn levels(&mut self, factor: &str, nodes: &[&TableNode<'_>]) -> Vec<Level> {
        let mut levels: Vec<Level> = Vec::new();
        let mut labels = BTreeSet::new();
        for node in nodes {
            let Some(level) = self.level(factor, node) else { continue };
            if !labels.insert(level.label.clone()) {
                let message = format!("{} has the level {} twice", quoted(factor), quoted(&level.label));
                self.diagnostics.at(node.span(), message, "remove one, or give it another label");
            }
            levels.push(level);
        }
        levels
    }

    fn level(&mut self, factor: &str, node: &TableNode<'_>) -> Option<Level> {
        if let Some(label) = word(node) {
            return Some(Level { label: self.label(label, node)?, values: BTreeMap::new() });
        }
        let DeValue::Table(table) = node.get_ref() else {
            let message = format!("a level of {} is a word or a table, not {}", quoted(factor), called(node.get_ref()));
            self.diagnostics.at(node.span(), message, "write \"word\" or { label = \"word\", key = \"value\" }");
            return None;
        };
        let mut table = KeyTable::new("a level", table, node.span());
        let Some(label) = table.take("label") else {
            let help = "add label = \"…\", its name in results";
            self.diagnostics.at(node.span(), format!("a level of {} has no `label`", quoted(factor)), help);
            return None;
        };
        let label = match word(label) {
            Some(word) => self.label(word, label)?,
            None => text("label", label, self.diagnostics)?,
        };
        let mut values = BTreeMap::new();
        for (key, span, node) in table.rest() {
            if !is_name(key) {
                let help = "a name has letters, digits, `_` and `-` and begins with a letter";
                self.diagnostics.at(span, format!("{} cannot be filled in", quoted(key)), help);
                continue;
            }
            if let Some(value) = self.value(key, node) {
                values.insert(key.to_owned(), value);
            }
        }
        Some(Level { label, values })
    }

    fn label(&mut self, label: String, node: &TableNode<'_>) -> Option<String> {
        let fault = match () {
            () if label.trim().is_empty() => "is empty",
            () if label.chars().any(char::is_control) => "has control characters",
            () if label.len() > 200 => "is longer than 200 bytes",
            // In tables it would look like another one.
            () if label.trim() != label => "begins or ends with a space",
            () => return Some(label),
        };
        let help = "write a short word, and longer values as { label = \"word\", value = \"…\" }";
        self.diagnostics.at(node.span(), format!("the label of a level {fault}"), help);
        None
    }

    fn value(&mut self, key: &str, node: &TableNode<'_>) -> Option<PlaceholderValue> {
        if let Some(text) = word(node) {
            return self.without_nul(text, node).map(PlaceholderValue::Text);
        }
        let DeValue::Array(array) = node.get_ref() else {
            let message = format!("{} is a text or a list of texts, not {}", quoted(key), called(node.get_ref()));
            self.diagnostics.at(node.span(), message, "write \"text\" or [\"text\", …]");
            return None;
        };
        let words: Option<Vec<String>> = array.iter().map(word).collect();
        let Some(words) = words else {
            let message = format!("{} is a list of something other than texts", quoted(key));
            self.diagnostics.at(node.span(), message, "write [\"text\", …]");
            return None;
        };
        let words: Vec<_> =
            words.into_iter().zip(array.iter()).map(|(word, node)| self.without_nul(word, node)).collect();
        words.into_iter().collect::<Option<_>>().map(PlaceholderValue::Words)
    }

    /// A text that can be passed to a program.
    pub(super) fn without_nul(&mut self, text: String, node: &TableNode<'_>) -> Option<String> {
        if text.contains('\0') {
            self.diagnostics.at(node.span(), "a NUL byte cannot be passed to a program", "remove it");
            return None;
        }
        Some(text)
    }

    pub(super) fn exclusions(&mut self, node: &TableNode<'_>, paired: Option<&str>) -> Vec<Exclusion> {
        let Some(nodes) = items("exclude", node, self.diagnostics) else { return Vec::new() };
        let mut exclusions = Vec::new();
        for node in nodes {
            let Some(mut table) = KeyTable::of("an exclusion", node, self.diagnostics) else { continue };
            let mut levels = Vec::new();
            let entries = table.rest();
            let all = entries.len();
            for (name, span, node) in entries {
                if paired == Some(name) {
                    let message = format!("without a level of {} the other runs have no partner", quoted(name));
                    self.diagnostics.at(span, message, "exclude by other factors");
                } else if let Some(factor) = self.known_factor(name, span)
                    && let Some(chosen) = self.known_levels(factor, node)
                {
                    levels.push((factor, chosen));
                }
            }
            if levels.len() == all {
                exclusions.push((Exclusion { levels }, node.span()));
            }
        }
        self.check_exclusions(&exclusions);
        exclusions.into_iter().map(|(exclusion, _)| exclusion).collect()
    }

    /// Each exclusion removes combinations, and leaves some.
    fn check_exclusions(&mut self, exclusions: &[(Exclusion, Range<usize>)]) {
        if !self.diagnostics.is_empty() {
            return;
        }
        let mut removed = vec![0usize; exclusions.len()];
        let mut left = 0;
        plan::each_combination(&self.factors, |combination| {
            match exclusions.iter().position(|(exclusion, _)| exclusion.has(combination)) {
                Some(first) => removed[first] += 1,
                None => left += 1,
            }
        });
        for ((exclusion, span), removed) in exclusions.iter().zip(removed) {
            let is_all =
                exclusion.levels.iter().all(|(factor, levels)| levels.len() == self.factors[*factor].levels.len());
            if is_all {
                let help = "name fewer levels, or more factors";
                self.diagnostics.at(span.clone(), "this exclusion removes all combinations", help);
            } else if removed == 0 {
                let message = "this exclusion removes nothing that those before it have not removed";
                self.diagnostics.at(span.clone(), message, "remove it");
            }
        }
        if left == 0 && self.diagnostics.is_empty() {
            let span = exclusions.last().map_or(0..0, |(_, span)| span.clone());
            self.diagnostics.at(span, "the exclusions together remove all combinations", "remove one of them");
        }
    }

    pub(super) fn known_factor(&mut self, name: &str, span: Range<usize>) -> Option<usize> {
        let found = self.factors.iter().position(|factor| factor.name == name);
        if found.is_none() {
            let help = did_you_mean(name, self.factors.iter().map(|factor| factor.name.as_str()));
            self.diagnostics.at(span, format!("there is no factor {}", quoted(name)), help);
        }
        found
    }

    /// One level, or a list of levels.
    pub(super) fn known_levels(&mut self, factor: usize, node: &TableNode<'_>) -> Option<Vec<usize>> {
        match node.get_ref() {
            DeValue::Array(array) if !array.is_empty() => {
                let levels: Vec<_> = array.iter().map(|node| self.known_level(factor, node)).collect();
                let mut levels: Vec<usize> = levels.into_iter().collect::<Option<_>>()?;
                levels.sort_unstable();
                levels.dedup();
                Some(levels)
            }
            _ => Some(vec![self.known_level(factor, node)?]),
        }
    }

    pub(super) fn known_level(&mut self, factor: usize, node: &TableNode<'_>) -> Option<usize> {
        let factor = &self.factors[factor];
        let labels = || factor.levels.iter().map(|level| level.label.as_str());
        let written = word(node);
        let found = written.as_deref().and_then(|label| factor.level(label));
        if found.is_none() {
            let (message, help) = match written {
                Some(label) => (
                    format!("{} has no level {}", quoted(&factor.name), quoted(&label)),
                    did_you_mean(&label, labels()),
                ),
                None => {
                    let message = format!("a level of {} is a word or a list of words", quoted(&factor.name));
                    (message, format!("there are {}", listed(labels())))
                }
            };
            self.diagnostics.at(node.span(), message, help);
        }
        found
    }
}

//! The numbers that a run gives.

use std::collections::{BTreeMap, HashSet};

use toml::de::DeValue;

use super::File;
use crate::campaign::{Better, Read, ScoreSpec, Stream};
use crate::diagnostics::quoted;
use crate::score::{compile, json_path};
use crate::table::{KeyTable, TableNode, called, text, word};

impl File<'_> {
    pub(super) fn scores(&mut self, node: Option<&TableNode<'_>>) -> Vec<ScoreSpec> {
        let help = "add a table [score] with `unit` and `json`, `pattern` or `reads`";
        let Some(node) = node else {
            self.diagnostics.whole("the campaign has no `score`", help);
            return Vec::new();
        };
        let nodes = match node.get_ref() {
            DeValue::Array(array) => array.iter().collect(),
            _ => vec![node],
        };
        if nodes.is_empty() {
            self.diagnostics.at(node.span(), "the campaign has no `score`", help);
        }
        let mut scores: Vec<ScoreSpec> = Vec::new();
        let mut names = HashSet::new();
        // Whether there are scores of each kind: each figure of a report, and one number.
        let mut has = [false; 2];
        for node in &nodes {
            let Some(score) = self.score(node) else { continue };
            let is_all = matches!(score.read, Read::Bench { case: None, .. });
            has[usize::from(is_all)] = true;
            if has[usize::from(!is_all)] || (is_all && nodes.len() > 1 && score.unit.is_empty()) {
                let message = "figures of a report without `case` stand beside such of other units alone";
                let help = "give each score a `case`, or each one a `unit`, or leave out the others";
                self.diagnostics.at(node.span(), message, help);
            }
            if !names.insert(score.name.clone()) {
                let message = format!("there are two scores {}", quoted(&score.name));
                self.diagnostics.at(node.span(), message, "give each score a `name` of its own");
            }
            scores.push(score);
        }
        scores
    }

    fn score(&mut self, node: &TableNode<'_>) -> Option<ScoreSpec> {
        let mut table = KeyTable::of("`score`", node, self.diagnostics)?;
        let name = table.text("name", self.diagnostics);
        let unit = table.text("unit", self.diagnostics);
        let better = table.choice("better", &[("higher", Better::Higher), ("lower", Better::Lower)], self.diagnostics);
        let from = table.choice("from", &[("stdout", Stream::Stdout), ("stderr", Stream::Stderr)], self.diagnostics);
        let (json, pattern, reads) = (table.take("json"), table.take("pattern"), table.take("reads"));
        let case = table.text("case", self.diagnostics);
        let labels = table.take("labels");
        let mean = table.choice("mean", &[("geometric", ())], self.diagnostics).is_some();
        let span = table.span.clone();
        table.finish(self.diagnostics);
        let read = match (json, pattern, reads) {
            (Some(node), None, None) => {
                let path = text("json", node, self.diagnostics)?;
                if let Err(why) = json_path(&path) {
                    self.diagnostics.at(node.span(), why, "write results[0].median or results[case=chain].median");
                }
                Read::Json(path)
            }
            (None, Some(node), None) => {
                let pattern = text("pattern", node, self.diagnostics)?;
                if let Err(why) = compile(&pattern) {
                    let help = "write a regular expression such as '(?<score>[0-9.]+) Mpps'";
                    self.diagnostics.at(node.span(), why, help);
                }
                Read::Pattern(pattern)
            }
            (None, None, Some(node)) => {
                let reader = text("reads", node, self.diagnostics)?;
                if reader != "bellows-bench" {
                    let message = format!("there is no reader {}", quoted(&reader));
                    self.diagnostics.at(node.span(), message, "write reads = \"bellows-bench\", or use `json`");
                }
                Read::Bench { case: case.clone(), labels: self.labels(labels), mean }
            }
            _ => {
                let message = "a score has exactly one of `json`, `pattern` and `reads`";
                let help = "write json = \"path\", pattern = 'regex with a named group' or reads = \"bellows-bench\"";
                self.diagnostics.at(span, message, help);
                return None;
            }
        };
        let is_bench = matches!(read, Read::Bench { .. });
        if !is_bench && (case.is_some() || labels.is_some()) {
            let help = "remove them, or add reads = \"bellows-bench\"";
            self.diagnostics.at(span.clone(), "`case` and `labels` choose figures of a report of Bellows", help);
        }
        if mean && (!is_bench || case.is_some() || unit.is_none()) {
            let help = "add reads = \"bellows-bench\" and a `unit`, and leave out `case`";
            self.diagnostics.at(span.clone(), "`mean` is that of all figures of a report with a unit", help);
        }
        if !is_bench && unit.as_deref().is_none_or(|unit| unit.trim().is_empty()) {
            self.diagnostics.at(span, "the score has no `unit`", "add unit = \"Mpps\", or unit = \"1\" without a unit");
        }
        let is_all = is_bench && case.is_none();
        let name = name.or(case).or_else(|| unit.clone().filter(|_| is_all)).unwrap_or_else(|| "score".to_owned());
        let (unit, from) = (unit.unwrap_or_default(), from.unwrap_or_default());
        Some(ScoreSpec { name, unit, better, read, from })
    }

    fn labels(&mut self, node: Option<&TableNode<'_>>) -> BTreeMap<String, String> {
        let Some(node) = node else { return BTreeMap::new() };
        let Some(mut table) = KeyTable::of("`labels`", node, self.diagnostics) else { return BTreeMap::new() };
        let mut labels = BTreeMap::new();
        for (name, _, node) in table.rest() {
            match word(node) {
                Some(word) => drop(labels.insert(name.to_owned(), word)),
                None => {
                    let message = format!("the label {} is a word, not {}", quoted(name), called(node.get_ref()));
                    self.diagnostics.at(node.span(), message, "write a text or a number");
                }
            }
        }
        labels
    }
}

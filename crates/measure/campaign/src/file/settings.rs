//! How runs are made: their time, their processors, and what disturbs them.

use std::collections::BTreeSet;
use std::time::Duration;

use toml::de::DeValue;

use super::File;
use crate::campaign::Disturbance;
use crate::table::{KeyTable, TableNode, word};

impl File<'_> {
    pub(super) fn duration(&mut self, key: &str, node: &TableNode<'_>) -> Option<Duration> {
        const MAX: f64 = 31_536_000.0;
        let parsed = match node.get_ref() {
            DeValue::String(text) => parse_duration(text),
            DeValue::Integer(_) | DeValue::Float(_) => word(node).and_then(|text| text.parse().ok()),
            _ => None,
        };
        match parsed.filter(|seconds| (0.001..=MAX).contains(seconds)) {
            Some(seconds) => Some(Duration::from_secs_f64(seconds)),
            None => {
                let help = "write \"90 s\", \"500 ms\", \"10 min\" or \"2 h\", at most a year";
                self.diagnostics.at(node.span(), format!("`{key}` is not a duration"), help);
                None
            }
        }
    }

    pub(super) fn cpus(&mut self, node: &TableNode<'_>) -> Vec<usize> {
        const MAX: usize = 1_024;
        let mut cpus = BTreeSet::new();
        let parsed: Option<()> = (|| {
            match node.get_ref() {
                DeValue::Array(array) => {
                    for node in array.iter() {
                        cpus.insert(word(node)?.parse().ok()?);
                    }
                }
                DeValue::Integer(_) => {
                    cpus.insert(word(node)?.parse().ok()?);
                }
                DeValue::String(text) => {
                    for part in text.split(',') {
                        let (first, last) = part.split_once('-').unwrap_or((part, part));
                        let [first, last] = [first, last].map(|end| end.trim().parse::<usize>().ok());
                        cpus.extend(first?..=last.filter(|last| *last < MAX)?);
                    }
                }
                _ => return None,
            }
            (!cpus.is_empty() && cpus.iter().all(|cpu| *cpu < MAX)).then_some(())
        })();
        if parsed.is_none() {
            let help = "write [0, 1] or \"0-3, 8\"";
            self.diagnostics.at(node.span(), "`cpus` is not a list of processors", help);
        }
        cpus.into_iter().collect()
    }

    pub(super) fn disturbance(&mut self, node: &TableNode<'_>) -> Disturbance {
        let default = Disturbance::default();
        let Some(mut table) = KeyTable::of("`disturbance`", node, self.diagnostics) else { return default };
        let steal = table.float("steal", 0.0..=1.0, self.diagnostics).unwrap_or(default.steal);
        let speed = table.float("speed", 0.0..=f64::MAX, self.diagnostics).unwrap_or(default.speed);
        table.finish(self.diagnostics);
        Disturbance { steal, speed }
    }
}

/// Seconds of a text such as `1.5 min`.
fn parse_duration(text: &str) -> Option<f64> {
    let text = text.trim();
    let split = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let number: f64 = text[..split].parse().ok()?;
    let scale = match text[split..].trim() {
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        _ => return None,
    };
    Some(number * scale)
}

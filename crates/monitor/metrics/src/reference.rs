//! The list of all families, for documentation.

use std::collections::BTreeMap;
use std::fmt::Write;

use bellows_observe::layout::{common, link};
use bellows_observe::{Counter, TypeEntry, drop_help};

use crate::declared::{
    ALL_DROPS, APP, ASLEEP, BUILD, CALLS, CLOCK, DEGRADED, DROPS, Declared, EVENTS, HEALTH, LEFT_OUT, NETWORK, SCRAPE,
    UP,
};
use crate::family::MetricFamily;

/// A family of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceEntry {
    /// The name of its samples; those of a histogram end in `_bucket`, `_count` and `_sum`.
    pub name: String,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: &'static str,
    /// Its unit; empty if it has none.
    pub unit: String,
    /// The names of its labels.
    pub labels: String,
    /// Its description.
    pub help: String,
}

impl ReferenceEntry {
    fn of(family: &MetricFamily<'_>, labels: &str) -> ReferenceEntry {
        ReferenceEntry {
            name: family.sample_name(),
            kind: family.kind.name(),
            unit: family.unit.clone().into_owned(),
            labels: labels.to_owned(),
            help: family.help.clone().into_owned(),
        }
    }
}

/// The families of every network, in the order of an exposition.
pub fn common_families() -> Vec<ReferenceEntry> {
    let Declared { process, pool, workers, apps, ports, links, samples, times } = Declared::new();
    const APP_LABELS: &str = "network, app, type";
    let mut entries = vec![
        ReferenceEntry::of(&BUILD, "version, revision, features"),
        ReferenceEntry::of(&UP, "network"),
        ReferenceEntry::of(&HEALTH, "network, state"),
        ReferenceEntry::of(&NETWORK, "network, user, pid, version, schedule, source"),
    ];
    entries.extend(process.iter().chain(&pool).map(|(_, family)| ReferenceEntry::of(family, "network")));
    entries.extend([&CLOCK, &ALL_DROPS].map(|family| ReferenceEntry::of(family, "network")));
    entries.extend(workers.iter().map(|(_, family)| ReferenceEntry::of(family, "network, worker")));
    entries.push(ReferenceEntry::of(&ASLEEP, "network, worker"));
    for [histogram, longest] in &times {
        entries.push(ReferenceEntry::of(histogram, "network, worker, le"));
        entries.push(ReferenceEntry::of(longest, "network, worker"));
    }
    entries.extend(ports.iter().map(|(_, family)| ReferenceEntry::of(family, "network, port, type")));
    entries.extend(links.iter().map(|(_, family)| ReferenceEntry::of(family, "network, link")));
    entries.push(ReferenceEntry::of(&APP, "network, app, type, worker"));
    entries.extend(apps.iter().map(|(_, family)| ReferenceEntry::of(family, APP_LABELS)));
    entries.push(ReferenceEntry::of(&DEGRADED, APP_LABELS));
    entries.push(ReferenceEntry::of(&DROPS, &format!("{APP_LABELS}, reason")));
    entries.push(ReferenceEntry::of(&CALLS, &format!("{APP_LABELS}, entry")));
    entries.extend(samples.iter().map(|family| ReferenceEntry::of(family, &format!("{APP_LABELS}, entry"))));
    entries.push(ReferenceEntry::of(&EVENTS, &format!("{APP_LABELS}, entry, event")));
    entries.extend([&LEFT_OUT, &SCRAPE].map(|family| ReferenceEntry::of(family, "")));
    entries
}

/// The families of the counters that these types of apps declare, by name.
pub fn families_of(types: &[TypeEntry]) -> Vec<ReferenceEntry> {
    let mut entries = BTreeMap::new();
    for entry in types {
        for counter in &entry.counters {
            let family = ReferenceEntry::of(&MetricFamily::of_type(&entry.kind, counter), "network, app, type");
            entries.entry(family.name.clone()).or_insert(family);
        }
    }
    entries.into_values().collect()
}

/// The list of all families and drop reasons, in Markdown.
pub fn markdown(types: &[TypeEntry]) -> String {
    let mut text = String::from("### Of every network\n\n");
    table(&mut text, &common_families());
    text += "\n### Of single types of apps\n\n";
    table(&mut text, &families_of(types));
    text += "\n### Reasons for drops\n\nEvery app has these:\n\n";
    let full = &link::COUNTERS[link::DROPS];
    let reasons = common::DROPS.iter().chain([full]);
    reasons_table(&mut text, reasons.map(|reason: &Counter| ("", reason.name, drop_help(reason.name).unwrap_or(""))));
    text += "\nAnd single types:\n\n";
    let reasons = types.iter().flat_map(|entry| {
        entry.drops.iter().map(|reason| (entry.kind.as_str(), reason.name.as_str(), reason.help.as_str()))
    });
    reasons_table(&mut text, reasons);
    text
}

fn table(text: &mut String, entries: &[ReferenceEntry]) {
    text.push_str("| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n");
    for ReferenceEntry { name, kind, unit, labels, help } in entries {
        let _ = writeln!(text, "| `{name}` | {kind} | {unit} | {labels} | {} |", cell(help));
    }
}

/// A table of drop reasons: each with its type, which is empty for all types.
fn reasons_table<'a>(text: &mut String, reasons: impl Iterator<Item = (&'a str, &'a str, &'a str)>) {
    let mut has_head = false;
    for (kind, reason, help) in reasons {
        let kind = if kind.is_empty() { String::new() } else { format!("| `{kind}` ") };
        if !has_head {
            let head = if kind.is_empty() {
                "| reason | meaning |\n|---|---|\n"
            } else {
                "| type | reason | meaning |\n|---|---|---|\n"
            };
            text.push_str(head);
            has_head = true;
        }
        let _ = writeln!(text, "{kind}| `{reason}` | {} |", cell(help));
    }
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_a_name_of_its_own_and_a_description() {
        let entries = common_families();
        let mut names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        for ReferenceEntry { name, help, kind, .. } in &entries {
            assert!(!help.is_empty() && !help.contains("nanoseconds"), "{name}: {help}");
            assert_eq!(name.ends_with("_total"), *kind == "counter", "{name}");
        }
    }

    #[test]
    fn types_are_listed_with_their_reasons() {
        const COUNTERS: &[Counter] = &[Counter::new("cut", "packets that | were cut")];
        const DROPS: &[Counter] = &[Counter::new("bad", "bad packets")];
        let text = markdown(&[TypeEntry::of("my-app", DROPS, COUNTERS)]);
        for line in [
            "| `bellows_my_app_cut_packets_total` | counter | packets | network, app, type | packets that \\| were cut |\n",
            "| `my-app` | `bad` | bad packets |\n",
            "| `txdrop` | a link out of the app was full |\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}

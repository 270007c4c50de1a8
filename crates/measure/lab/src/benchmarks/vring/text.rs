//! The report as text: tables of rings, and the conclusions below them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::option_names;
use crate::report::{Measurement, Report};
use crate::timing::median_or_nan;

/// Ratios within these bounds count as no difference.
const BOUNDS: std::ops::RangeInclusive<f64> = 0.98..=1.02;

/// For each direction, layout and size, the worst combination of options over the best.
pub(super) fn spreads(results: &[Measurement]) -> Vec<String> {
    let mut groups: BTreeMap<(String, String, u64), Vec<f64>> = BTreeMap::new();
    let by_blitter = |result: &&Measurement| result.labels.get("copies").is_some_and(|copies| copies == "blitter");
    let is_known = |result: &&Measurement| result.unit == "clocks/packet" && !result.undecided;
    for result in results.iter().filter(is_known).filter(by_blitter) {
        let size = result.labels.get("size").and_then(Value::as_u64).unwrap_or_default();
        let chain = result.labels.get("chain").map_or(String::new(), written);
        groups.entry((result.case.clone(), chain, size)).or_default().push(result.median);
    }
    let line = |((case, chain, size), medians): (&(String, String, u64), &Vec<f64>)| {
        let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
        let most = medians.iter().copied().fold(0.0, f64::max);
        let count = medians.len();
        let ratio = most / least;
        format!(
            "{case}, {chain}, {size} bytes: {least:.1} to {most:.1}; the worst of {count} is {ratio:.2} times the best"
        )
    };
    groups.iter().map(line).collect()
}

/// The blitter's gain over `memcpy` as a share of the gain of no copies at all, in packets of both directions per
/// second.
pub(super) fn recovered(results: &[Measurement]) -> Vec<String> {
    let mut groups: BTreeMap<(u64, String), BTreeMap<(String, String), f64>> = BTreeMap::new();
    for result in results.iter().filter(|result| result.unit == "clocks/packet" && !result.undecided) {
        let label = |name: &str| result.labels.get(name).map_or(String::new(), written);
        let size = result.labels.get("size").and_then(Value::as_u64).unwrap_or_default();
        let ring: Vec<String> = option_names().chain(["header", "chain"]).map(label).collect();
        groups.entry((size, ring.join(" "))).or_default().insert((label("copies"), result.case.clone()), result.median);
    }
    let mut shares: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for ((size, _), costs) in &groups {
        // A packet in and out again.
        let both = |how: &str| {
            let of = |case: &str| costs.get(&(how.to_owned(), case.to_owned()));
            Some(1.0 / (of("rx")? + of("tx")?))
        };
        if let (Some(none), Some(memcpy), Some(blitter)) = (both("none"), both("memcpy"), both("blitter")) {
            shares.entry(*size).or_default().push(100.0 * (blitter - memcpy) / (none - memcpy));
        }
    }
    let line = |(size, shares): (&u64, &Vec<f64>)| {
        let rings = shares.len();
        format!(
            "{size} bytes, in and out: the blitter gains {:.0} percent of what skipping all copies would gain over \
             memcpy, in packets per second (median of {rings} rings)",
            median_or_nan(shares)
        )
    };
    shares.iter().map(line).collect()
}

/// The conclusion from the ratios.
pub(super) fn conclusion(results: &[Measurement]) -> Option<String> {
    let ratios: Vec<&Measurement> =
        results.iter().filter(|result| result.unit == "ratio" && !result.undecided).collect();
    if ratios.is_empty() {
        return None;
    }
    let outside = ratios.iter().filter(|result| !BOUNDS.contains(&result.median)).count();
    let least = ratios.iter().map(|result| result.median).fold(f64::INFINITY, f64::min);
    let most = ratios.iter().map(|result| result.median).fold(0.0, f64::max);
    Some(format!(
        "after other traffic over before: from {least:.3} to {most:.3}; {outside} of {} medians lie outside {}–{}",
        ratios.len(),
        BOUNDS.start(),
        BOUNDS.end()
    ))
}

/// The title of a case's table.
fn title(case: &str) -> &'static str {
    match case {
        "rx" => "rx: to the driver, including freeing the packets; clocks/packet (minus the bare loop)",
        "tx" => "tx: from the driver, including allocating buffers; clocks/packet (minus the bare loop)",
        "other-sizes" => "after packets of other sizes over before; ratio",
        _ => "after packets in other chains over before; ratio",
    }
}

/// The part of the report below the rows that have already been shown.
pub(super) fn text_after_rows(report: &Report) -> String {
    let of = |case: &'static str| table(case, report.results.iter().filter(move |result| result.case == case), true);
    let mut text = ["other-sizes", "other-chains"].map(of).concat();
    if report.is_undecided() {
        text.push_str("\n?: undecided\n");
    }
    text.push('\n');
    text + &report.sentences()
}

/// The width of the longest name of a ring.
const NAME: usize = 82;

/// The width of a column, including a leading space.
const CELL: usize = 16;

/// A part of a table, with or without its title: a row for each ring and layout, a column for each size or direction.
pub(super) fn table<'a>(case: &str, results: impl Iterator<Item = &'a Measurement>, has_title: bool) -> String {
    let column = if ["rx", "tx"].contains(&case) { "size" } else { "direction" };
    let mut columns: Vec<String> = Vec::new();
    let mut rows: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    for result in results {
        let label = |name: &str| result.labels.get(name).map_or(String::new(), written);
        let value = label(column);
        if !columns.contains(&value) {
            columns.push(value.clone());
        }
        let on = option_names().filter(|name| result.labels.get(*name) == Some(&Value::Bool(true)));
        let on: String = on.map(|name| format!("{name} ")).collect();
        let copies = match label("copies").as_str() {
            "blitter" => String::new(),
            "none" => ", no copies".to_owned(),
            other => format!(", {other}"),
        };
        let name = format!("{on}header-{}, {}{copies}", label("header"), label("chain"));
        let decimals = if result.unit == "ratio" { 3 } else { 1 };
        let figure = if result.undecided { "?".to_owned() } else { format!("{:.decimals$}", result.median) };
        let overhead = result.overhead.map(|overhead| format!(" ({:.1})", overhead.median));
        let cell = figure + &overhead.unwrap_or_default();
        match rows.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cells)) => {
                cells.insert(value, cell);
            }
            None => rows.push((name, BTreeMap::from([(value, cell)]))),
        }
    }
    let mut text = String::new();
    if rows.is_empty() {
        return text;
    }
    if has_title {
        let heads: String = columns.iter().map(|column| format!("{column:>CELL$}")).collect();
        let _ = writeln!(text, "\n{}\n{:NAME$}{heads}", title(case), "");
    }
    for (name, cells) in rows {
        let cell = |column: &String| format!("{:>CELL$}", cells.get(column).map_or("–", String::as_str));
        let cells: String = columns.iter().map(cell).collect();
        let _ = writeln!(text, "{name:NAME$}{cells}");
    }
    text
}

fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

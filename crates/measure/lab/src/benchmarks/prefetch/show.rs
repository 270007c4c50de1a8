//! The routers of a group side by side, as the tables of `show run`.

use std::fmt::Write;

use super::variants::Variant;
use super::{Group, PrefetchCase};
use crate::turns::Match;

/// Width of a column.
const WIDTH: usize = 15;

/// Shares of change that are named in the signature.
const WORTH: f64 = 0.05;

/// The tables of a group: clocks a packet of each node with look-ahead and without it, and with each distance.
pub(super) fn side_by_side(group: &Group, matches: &[Match]) -> String {
    if matches.is_empty() {
        return String::new();
    }
    let how = if group.case == PrefetchCase::Load { "fixed load" } else { "full speed" };
    let (in_flight, routes) = (group.traffic.in_flight, group.traffic.routes);
    let s = if routes == 1 { "" } else { "s" };
    let mut text = format!("{in_flight} packets in flight, {routes} route{s}, {how}: clocks a packet\n");
    let is_distance = |variant: &Variant| matches!(variant, Variant::All(1..));
    let places = |wanted: bool| -> Vec<usize> {
        (0..group.variants.len()).filter(|&place| is_distance(&group.variants[place]) == wanted).collect()
    };
    table(group, matches, &places(false), &mut text);
    text += &signature(group, matches);
    let distances = places(true);
    if !distances.is_empty() {
        text.push('\n');
        table(group, matches, &distances, &mut text);
    }
    text + "\n"
}

fn table(group: &Group, matches: &[Match], variants: &[usize], text: &mut String) {
    let nodes = group.nodes();
    let mut line = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>WIDTH$}")).collect();
        let _ = writeln!(text, "{name:16}{cells}");
    };
    let names: Vec<String> = variants.iter().map(|&place| group.variants[place].name(&nodes)).collect();
    // Long names take two lines.
    let halves: Vec<(&str, &str)> = names.iter().map(|name| name.split_once(' ').unwrap_or(("", name))).collect();
    line("", halves.iter().map(|(first, _)| (*first).to_owned()).collect());
    line("Name", halves.iter().map(|(_, second)| (*second).to_owned()).collect());
    for (figure, node) in nodes.iter().copied().chain(["sum"]).enumerate() {
        let cell = |&variant: &usize| written(group.figure(matches, variant, figure), 1);
        line(node, variants.iter().map(cell).collect());
    }
    if group.case == PrefetchCase::Load {
        let cell = |&variant: &usize| written(group.figure(matches, variant, nodes.len() + 1), 2);
        line("Vectors/Call", variants.iter().map(cell).collect());
        let missed =
            |&variant: &usize| written(group.figure(matches, variant, nodes.len() + 2).map(|share| 100.0 * share), 2);
        line("missed, %", variants.iter().map(missed).collect());
    }
}

fn written(figure: Option<f64>, decimals: usize) -> String {
    figure.map_or("–".to_owned(), |figure| format!("{figure:.decimals$}"))
}

/// Which clocks rise and fall when a node does not look ahead, and what vectors a call do.
fn signature(group: &Group, matches: &[Match]) -> String {
    let nodes = group.nodes();
    let mut text = String::new();
    for (variant, kind) in group.variants.iter().enumerate() {
        let Variant::Without(without) = *kind else { continue };
        let change = |figure: usize| {
            let ratios = group.ratios(matches, variant, figure);
            bellows_stats::median(&ratios).map_or(0.0, |ratio| ratio.value - 1.0)
        };
        let own = change(without);
        let clear = nodes.iter().enumerate().filter(|&(node, _)| node != without && change(node).abs() >= WORTH);
        let others: Vec<String> = clear.map(|(node, name)| format!("{name} {:+.0} %", 100.0 * change(node))).collect();
        let _ = write!(text, "{}: its clocks {:+.0} %", kind.name(&nodes), 100.0 * own);
        if !others.is_empty() {
            let _ = write!(text, "; {}", others.join(", "));
        }
        if group.case == PrefetchCase::Load {
            let _ = write!(text, "; vectors/call {:+.0} %", 100.0 * change(nodes.len() + 1));
        }
        text.push('\n');
    }
    text
}

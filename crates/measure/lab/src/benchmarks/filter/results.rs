//! The figures of a comparison, and the ratios that have targets.

use serde_json::{Value, json};

use super::VECTOR;
use super::contender::{CompiledText, Residence};
use super::filters::{Filter, Packets};
use crate::report::Measurement;
use crate::targets::Target;
use crate::timing::median_or_nan;
use crate::turns::{self, Match};

/// The figures of one group of processes, over all matches.
pub(super) struct Results<'a> {
    pub(super) case: &'static str,
    pub(super) matches: &'a [Match],
}

impl Results<'_> {
    fn each(&self, side: usize, figure: usize) -> Vec<f64> {
        turns::figures(self.matches, side, figure)
    }

    /// The medians of ratios of neighbouring turns, of two figures given as (side, figure).
    fn ratios(&self, one: (usize, usize), other: (usize, usize)) -> Vec<f64> {
        turns::ratios(self.matches, one, other)
    }

    /// A ratio with a target. Its interval may be wide, as long as it is on one side of the target.
    fn targeted(&self, ratios: &[f64], target: Target, labels: Vec<(&'static str, Value)>) -> Option<Measurement> {
        Some(target.judge(Measurement::of(self.case, "ratio", ratios, labels)?, self.matches.len()))
    }

    /// The times to compile a text.
    pub(super) fn compiling(&self, text: CompiledText) -> Vec<Measurement> {
        let time = |(figure, compiled): (usize, &str)| {
            let bytes = text.expression().len();
            let labels = vec![("text", json!(text.label())), ("bytes", bytes.into()), ("compiled", compiled.into())];
            let time = Measurement::compared(self.case, "µs", &self.each(0, figure), labels)?;
            Some(text.target().judge(time, self.matches.len()))
        };
        ["first", "again"].into_iter().enumerate().filter_map(time).collect()
    }

    /// What a table of states adds.
    pub(super) fn states(&self, connections: u32) -> Vec<Measurement> {
        let clocks = |(figure, in_flight): (usize, &usize)| {
            let labels = vec![("connections", json!(connections)), ("in_flight", (*in_flight).into())];
            let clocks = Measurement::compared(self.case, "clocks/packet", &self.each(0, figure), labels)?;
            let is_hot = *in_flight == VECTOR;
            Some(if is_hot { Target::AtMost(40.0).judge(clocks, self.matches.len()) } else { clocks })
        };
        Residence::Both.in_flight().iter().enumerate().filter_map(clocks).collect()
    }

    /// The clocks of one side, which is `program` if there are several.
    pub(super) fn deciding(&self, side: usize, filter: Filter, program: Option<&str>) -> Vec<Measurement> {
        let clocks = |(figure, packets, in_flight)| {
            let program = program.map(|program| ("program", json!(program)));
            let labels = labels(filter, packets, in_flight, program);
            Measurement::compared(self.case, "clocks/packet", &self.each(side, figure), labels)
        };
        Residence::Both.figures().filter_map(clocks).collect()
    }

    /// A long list, the first side, relative to one of its items, the second.
    pub(super) fn list_of_item(&self, list: Filter) -> Vec<Measurement> {
        let ratio = |(figure, packets, in_flight)| {
            let labels = labels(list, packets, in_flight, Some(("of", json!("list to item"))));
            self.targeted(&self.ratios((0, figure), (1, figure)), Target::AtMost(2.0), labels)
        };
        Residence::Both.figures().filter_map(ratio).collect()
    }

    /// A side that met packets before, relative to the first one, which met none.
    pub(super) fn history(&self, side: usize, filter: Filter, before: Packets) -> Vec<Measurement> {
        let ratio = |(figure, packets, in_flight)| {
            let mut labels = labels(filter, packets, in_flight, Some(("first", json!(before.name()))));
            let clocks = median_or_nan(&self.each(0, figure));
            labels.push(("clocks", json!((clocks * 10.0).round() / 10.0)));
            let ratio = Measurement::compared(self.case, "ratio", &self.ratios((side, figure), (0, figure)), labels)?;
            Some(Target::Within(0.97, 1.03).judge(ratio, self.matches.len()))
        };
        Residence::Hot.figures().filter_map(ratio).collect()
    }

    /// A peer relative to this program, the first side.
    pub(super) fn beside_peer(&self, side: usize, filter: Filter, peer: &str) -> Vec<Measurement> {
        let times = if peer == DPDK { 1.5 } else { 5.0 };
        let ratio = |(figure, packets, in_flight)| {
            let of = json!(format!("{peer} to bellows"));
            let labels = labels(filter, packets, in_flight, Some(("of", of)));
            self.targeted(&self.ratios((side, figure), (0, figure)), Target::AtLeast(times), labels)
        };
        let mut found: Vec<Measurement> = Residence::Both.figures().filter_map(ratio).collect();
        if peer == DPDK && filter.is_of_pflua() {
            found.extend(self.dearer_to_cheaper(side, filter));
        }
        found
    }

    /// This program's dearer one of matching and other packets, relative to a peer's cheaper one.
    fn dearer_to_cheaper(&self, side: usize, filter: Filter) -> Vec<Measurement> {
        let ratio = |&residence: &usize| {
            let of_match = |found: &Match| {
                let figure = |side, packets| {
                    let is_it = |figure: &(usize, Packets, usize)| (figure.1, figure.2) == (packets, residence);
                    found.figure(side, 0, Residence::Both.figures().find(is_it)?.0)
                };
                let own = [figure(0, Packets::Matching)?, figure(0, Packets::Other)?];
                let others = [figure(side, Packets::Matching)?, figure(side, Packets::Other)?];
                Some(own[0].max(own[1]) / others[0].min(others[1]))
            };
            let ratios: Vec<f64> = self.matches.iter().filter_map(of_match).collect();
            let labels = vec![
                ("filter", json!(filter.label())),
                ("in_flight", residence.into()),
                ("of", json!("bellows' dearer to dpdk's cheaper")),
            ];
            self.targeted(&ratios, Target::AtMost(1.0), labels)
        };
        Residence::Both.in_flight().iter().filter_map(ratio).collect()
    }
}

/// The name of the peer whose code is machine code too.
const DPDK: &str = "dpdk";

fn labels(
    filter: Filter,
    packets: Packets,
    in_flight: usize,
    more: Option<(&'static str, Value)>,
) -> Vec<(&'static str, Value)> {
    let usual =
        [("filter", json!(filter.label())), ("packets", json!(packets.name())), ("in_flight", in_flight.into())];
    usual.into_iter().chain(more).collect()
}

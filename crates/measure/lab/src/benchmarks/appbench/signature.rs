//! The signature of a missing prefetch, as VPP's page on missing prefetches describes it.
//!
//! An app's cost jumps once packets no longer come from the second-level cache, and falls when their data is
//! prefetched. Under a fixed load its calls get more packets at a time, and its neighbours become cheaper, because more
//! packets share the fixed cost of a call.

use bellows_stats::Median;

use crate::residence::Resident;

/// An app's cost under one combination of conditions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The level that the packets come from, if it was chosen.
    pub resident: Option<Resident>,
    /// The prefetch distance.
    pub distance: usize,
    /// Clocks per packet.
    pub cost: Median,
    /// Packets per call, under a fixed load.
    pub vector: Option<f64>,
    /// Clocks per packet of all other apps together, under a fixed load.
    pub neighbours: Option<f64>,
}

/// The conclusion from all points.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// A prefetch is missing.
    Missing(Missing),
    /// Packets from far levels cost more, and prefetching does not help.
    Unhelped {
        /// The level at which they cost most.
        far: Resident,
    },
    /// No prefetch is missing.
    Fine {
        /// The farthest level for which several distances were measured.
        far: Option<Resident>,
        /// The app's own prefetch distance.
        distance: usize,
    },
}

/// A missing prefetch.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    /// The level with the largest effect.
    pub far: Option<Resident>,
    /// The current distance, and its cost.
    pub from: (usize, f64),
    /// The recommended distance, and its cost.
    pub to: (usize, f64),
    /// The current cost of packets from the second-level cache or a nearer one.
    pub near: Option<(Resident, f64)>,
    /// Packets per call with the current and with the recommended distance, if the current calls get more packets and
    /// the neighbours are cheaper.
    pub vectors: Option<(f64, f64)>,
}

/// The minimum difference to report: as a share of the cost, and in clocks per packet.
const WORTH: f64 = 0.1;
const CLOCKS: f64 = 1.0;

/// Whether one cost is clearly higher than another: outside the intervals, and by enough to matter.
fn is_clearly_more(more: &Median, less: &Median) -> bool {
    more.low > less.high && more.value - less.value > CLOCKS.max(WORTH * less.value)
}

/// Looks for the signature in the costs of an app whose own prefetch distance is `own`. Returns `None` if no condition
/// was varied.
pub fn find(points: &[Point], own: usize) -> Option<Finding> {
    let at = |resident: Option<Resident>| points.iter().filter(move |point| point.resident == resident);
    let mut residents: Vec<Option<Resident>> = points.iter().map(|point| point.resident).collect();
    residents.sort();
    residents.dedup();
    let as_it_is = |resident: Option<Resident>| {
        at(resident).find(|point| point.distance == own).or_else(|| at(resident).min_by_key(|point| point.distance))
    };
    let near = residents.iter().flatten().rfind(|level| **level <= Resident::L2).copied();
    let near = near.and_then(|level| Some((level, as_it_is(Some(level))?)));
    let far: Vec<Option<Resident>> =
        residents.iter().copied().filter(|level| level.is_none_or(|level| level > Resident::L2)).collect();
    let jumps = |point: &Point| near.is_none_or(|(_, near)| is_clearly_more(&point.cost, &near.cost));
    let missing = far.iter().filter_map(|&level| {
        let is = as_it_is(level).filter(|point| jumps(point))?;
        let best = at(level).min_by(|one, other| one.cost.value.total_cmp(&other.cost.value))?;
        if best.distance <= is.distance || !is_clearly_more(&is.cost, &best.cost) {
            return None;
        }
        // The shortest distance that is as good as the best, because data fetched too early may be evicted before use.
        let good = |point: &&Point| point.distance > is.distance && point.cost.low <= best.cost.high;
        let to = at(level).filter(good).min_by_key(|point| point.distance).unwrap_or(best);
        Some((is, to))
    });
    let saved = |(is, to): &(&Point, &Point)| is.cost.value - to.cost.value;
    if let Some((is, to)) = missing.max_by(|one, other| saved(one).total_cmp(&saved(other))) {
        let grew = match (is.vector, to.vector, is.neighbours, to.neighbours) {
            (Some(is), Some(to), Some(cheap), Some(dear)) if is > to && cheap < dear => Some((is, to)),
            _ => None,
        };
        return Some(Finding::Missing(Missing {
            far: is.resident,
            from: (is.distance, is.cost.value),
            to: (to.distance, to.cost.value),
            near: near.map(|(level, point)| (level, point.cost.value)),
            vectors: grew,
        }));
    }
    let varied = |level: &Option<Resident>| {
        at(*level).any(|point| Some(point.distance) != as_it_is(*level).map(|is| is.distance))
    };
    let last = far.iter().copied().rfind(varied)?;
    let is = as_it_is(last)?;
    let helps = at(last).any(|point| point.distance < is.distance && is_clearly_more(&point.cost, &is.cost));
    match (last, near) {
        (Some(level), Some(_)) if jumps(is) && !helps => Some(Finding::Unhelped { far: level }),
        _ => Some(Finding::Fine { far: last, distance: is.distance }),
    }
}

impl Finding {
    /// The finding as a sentence about an app.
    pub fn in_words(&self, app: &str) -> String {
        match self {
            Finding::Missing(missing) => missing.in_words(app),
            Finding::Unhelped { far } => format!(
                "`{app}` costs more with packets from {far}, but no prefetch distance makes it clearly cheaper: it \
                 does not process its packets in order, or it does not wait for their data"
            ),
            Finding::Fine { far, distance } => {
                let with = far.map_or(String::new(), |far| format!(" with packets from {far}"));
                format!("no prefetch is missing: no distance is clearly better than {distance}{with}")
            }
        }
    }
}

impl Missing {
    fn in_words(&self, app: &str) -> String {
        let Missing { far, from, to, near, vectors } = self;
        let with = far.map_or(String::new(), |far| format!(" with packets from {far}"));
        let jump = near.map_or(String::new(), |(level, cost)| format!(", against {cost:.1} with packets from {level}"));
        let grew = vectors.map_or(String::new(), |(is, to)| {
            format!("; its calls get {is:.0} packets at a time instead of {to:.0}, which makes its neighbours cheaper")
        });
        format!(
            "this is the signature of a missing prefetch: `{app}` costs {:.1} clocks per packet{with}{jump}, and {:.1} \
             with a prefetch distance of {} packets instead of {}{grew}; write `prefetch = {}` in its table",
            from.1, to.1, to.0, from.0, to.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(value: f64) -> Median {
        Median { value, low: value - 0.5, high: value + 0.5 }
    }

    fn points(table: &[(Resident, &[(usize, f64)])]) -> Vec<Point> {
        let point = |resident, &(distance, cost): &(usize, f64)| Point {
            resident: Some(resident),
            distance,
            cost: median(cost),
            vector: None,
            neighbours: None,
        };
        table.iter().flat_map(|(level, row)| row.iter().map(move |cell| point(*level, cell))).collect()
    }

    #[test]
    fn a_cost_that_jumps_beyond_the_second_level_and_falls_with_the_distance_is_a_missing_prefetch() {
        let points = points(&[
            (Resident::L2, &[(0, 20.0), (4, 19.0), (8, 19.2), (16, 19.1)]),
            (Resident::L3, &[(0, 35.0), (4, 24.0), (8, 21.0), (16, 21.2)]),
            (Resident::Dram, &[(0, 80.0), (4, 50.0), (8, 30.0), (16, 29.5)]),
        ]);
        let Some(Finding::Missing(missing)) = find(&points, 0) else { panic!("it is there") };
        assert_eq!((missing.far, missing.from), (Some(Resident::Dram), (0, 80.0)), "where it shows most");
        assert_eq!(missing.to, (8, 30.0), "the shortest that is as good as the best");
        let words = Finding::Missing(missing).in_words("reader");
        let expected = "`reader` costs 80.0 clocks per packet with packets from dram, against 20.0 with packets from \
                        l2, and 30.0 with a prefetch distance of 8 packets instead of 0; write `prefetch = 8` in its \
                        table";
        assert!(words.ends_with(expected), "{words}");
    }

    #[test]
    fn an_app_that_prefetches_by_itself_has_none_missing() {
        let points = points(&[
            (Resident::L2, &[(0, 20.0), (8, 19.0), (16, 19.1)]),
            (Resident::Dram, &[(0, 80.0), (8, 30.0), (16, 29.5)]),
        ]);
        assert_eq!(find(&points, 8), Some(Finding::Fine { far: Some(Resident::Dram), distance: 8 }));
        assert_eq!(find(&points[..3], 8), None, "no packet came from a far level");
    }

    #[test]
    fn an_app_that_no_distance_helps_is_reported() {
        let points = points(&[(Resident::L1, &[(0, 20.0), (8, 20.1)]), (Resident::L3, &[(0, 60.0), (8, 59.9)])]);
        assert_eq!(find(&points, 0), Some(Finding::Unhelped { far: Resident::L3 }));
    }

    #[test]
    fn a_cost_that_is_the_same_everywhere_has_no_signature() {
        let even = points(&[(Resident::L2, &[(0, 0.4), (8, 0.6)]), (Resident::Dram, &[(0, 0.5), (8, 0.5)])]);
        assert_eq!(find(&even, 0), Some(Finding::Fine { far: Some(Resident::Dram), distance: 0 }));
        let one = points(&[(Resident::L2, &[(0, 0.4)]), (Resident::Dram, &[(0, 40.5)])]);
        assert_eq!(find(&one, 0), None, "no distance was tried");
    }

    #[test]
    fn noise_is_not_a_signature() {
        let wide = |value: f64| Median { value, low: value - 30.0, high: value + 30.0 };
        let mut noisy = points(&[(Resident::L2, &[(0, 20.0), (8, 19.0)]), (Resident::Dram, &[(0, 60.0), (8, 40.0)])]);
        noisy[2].cost = wide(60.0);
        noisy[3].cost = wide(40.0);
        assert_eq!(find(&noisy, 0), Some(Finding::Unhelped { far: Resident::Dram }));
    }

    #[test]
    fn larger_calls_with_cheaper_neighbours_are_reported() {
        let loaded = |distance, cost, vector, neighbours| Point {
            resident: None,
            distance,
            cost: median(cost),
            vector: Some(vector),
            neighbours: Some(neighbours),
        };
        let vpp = [loaded(0, 55.3, 76.97, 189.8), loaded(4, 39.2, 50.09, 206.0)];
        let Some(finding @ Finding::Missing(_)) = find(&vpp, 0) else { panic!("VPP's own example") };
        let words = finding.in_words("ip4-input");
        assert!(
            words.contains("its calls get 77 packets at a time instead of 50, which makes its neighbours cheaper"),
            "{words}"
        );
        assert!(words.ends_with("write `prefetch = 4` in its table"), "{words}");
    }
}

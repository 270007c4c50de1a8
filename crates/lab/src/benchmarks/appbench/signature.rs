//! The signature of a missing prefetch, as VPP's page on missing prefetches shows it: an app's cost jumps once packets no longer
//! come from the second-level cache, and falls when their data is fetched some packets ahead. Under a fixed load its calls
//! get more packets at a time, and its neighbours cheaper, because a call's own cost is shared by more of them.

use bellows_stats::Median;

use crate::residence::Resident;

/// What an app costs under one set of conditions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where the packets come from, where that was laid down.
    pub resident: Option<Resident>,
    /// How far ahead they are fetched.
    pub distance: usize,
    /// Clocks a packet.
    pub cost: Median,
    /// Packets a call, under a fixed load.
    pub vector: Option<f64>,
    /// Clocks a packet of all other apps together, under a fixed load.
    pub neighbours: Option<f64>,
}

/// What the conditions say together.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// There is a prefetch missing.
    Missing(Missing),
    /// Packets from far cost more, and fetching them ahead does not help.
    Unhelped {
        /// From where they cost most.
        far: Resident,
    },
    /// The app does what can be done.
    Fine {
        /// From where packets were fetched.
        far: Option<Resident>,
        /// How far ahead that is.
        distance: usize,
    },
}

/// A missing prefetch.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    /// Where packets come from when it shows most.
    pub far: Option<Resident>,
    /// The distance as it is, and what that costs.
    pub from: (usize, f64),
    /// The distance to use, and what that costs.
    pub to: (usize, f64),
    /// What packets from the second-level cache, or a nearer one, cost as it is.
    pub near: Option<(Resident, f64)>,
    /// Packets a call as it is and with the distance to use, if more as it is and the neighbours cheaper.
    pub vectors: Option<(f64, f64)>,
}

/// What is worth a sentence: a part of the cost, and clocks a packet.
const WORTH: f64 = 0.1;
const CLOCKS: f64 = 1.0;

/// Whether one cost is clearly more than another: not by chance, and by enough to matter.
fn is_clearly_more(more: &Median, less: &Median) -> bool {
    more.low > less.high && more.value - less.value > CLOCKS.max(WORTH * less.value)
}

/// Looks for the signature in what an app costs that fetches packets `own` ahead by itself. Nothing is found where nothing
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
        // The shortest that cannot be told from the best: what is fetched too early may be gone when it is wanted.
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
    /// As a sentence about some app.
    pub fn in_words(&self, app: &str) -> String {
        match self {
            Finding::Missing(missing) => missing.in_words(app),
            Finding::Unhelped { far } => format!(
                "`{app}` costs more with packets from {far}, but no distance makes it clearly cheaper: it does not go over its packets one \
                 after the other, or it is not their data that it waits for"
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
            format!("; its calls get {is:.0} packets at a time in place of {to:.0}, which makes its neighbours cheaper")
        });
        format!(
            "this is the signature of a missing prefetch: `{app}` costs {:.1} clocks a packet{with}{jump}, and {:.1} when their data \
             is fetched {} packets ahead in place of {}{grew}; write `prefetch = {}` in its table",
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
        let expected = "`reader` costs 80.0 clocks a packet with packets from dram, against 20.0 with packets from l2, and 30.0 \
                        when their data is fetched 8 packets ahead in place of 0; write `prefetch = 8` in its table";
        assert!(words.ends_with(expected), "{words}");
    }

    #[test]
    fn an_app_that_prefetches_by_itself_has_none_missing() {
        let points = points(&[
            (Resident::L2, &[(0, 20.0), (8, 19.0), (16, 19.1)]),
            (Resident::Dram, &[(0, 80.0), (8, 30.0), (16, 29.5)]),
        ]);
        assert_eq!(find(&points, 8), Some(Finding::Fine { far: Some(Resident::Dram), distance: 8 }));
        assert_eq!(find(&points[..3], 8), None, "nothing came from far");
    }

    #[test]
    fn an_app_that_no_distance_helps_is_told_so() {
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
    fn what_chance_could_do_is_no_signature() {
        let wide = |value: f64| Median { value, low: value - 30.0, high: value + 30.0 };
        let mut noisy = points(&[(Resident::L2, &[(0, 20.0), (8, 19.0)]), (Resident::Dram, &[(0, 60.0), (8, 40.0)])]);
        noisy[2].cost = wide(60.0);
        noisy[3].cost = wide(40.0);
        assert_eq!(find(&noisy, 0), Some(Finding::Unhelped { far: Resident::Dram }));
    }

    #[test]
    fn calls_that_get_more_packets_while_neighbours_get_cheaper_are_told() {
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
            words.contains("its calls get 77 packets at a time in place of 50, which makes its neighbours cheaper"),
            "{words}"
        );
        assert!(words.ends_with("write `prefetch = 4` in its table"), "{words}");
    }
}

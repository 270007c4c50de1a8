//! The families of every network. Those of single types of apps follow from the types' own declarations.

use bellows_inspect::times::TIMES;
use bellows_observe::layout::engine::Scope;
use bellows_observe::layout::{account, engine, histogram};
use bellows_observe::{AppTotals, Counter, Figure, LinkTotals};

use crate::family::{FamilyKind, MetricFamily};

pub(crate) static UP: MetricFamily<'_> = MetricFamily::new(
    "bellows_network_up",
    FamilyKind::Gauge,
    "",
    "1 if the network's process lives and has counters, else 0",
);
pub(crate) static HEALTH: MetricFamily<'_> = MetricFamily::new(
    "bellows_network_health",
    FamilyKind::Gauge,
    "",
    "1 for the network's health, 0 for the others: running, degraded, stalled, crashed",
);
pub(crate) static NETWORK: MetricFamily<'_> =
    MetricFamily::new("bellows_network", FamilyKind::Info, "", "what the network is");
pub(crate) static CLOCK: MetricFamily<'_> = MetricFamily::new(
    "bellows_network_clock_hertz",
    FamilyKind::Gauge,
    "hertz",
    "frequency of the clock in which calls of apps are timed",
);
pub(crate) static ALL_DROPS: MetricFamily<'_> = MetricFamily::new(
    "bellows_network_dropped_packets",
    FamilyKind::Counter,
    "packets",
    "packets dropped by all apps and links, including those that reloads have removed",
);
pub(crate) static APP: MetricFamily<'_> = MetricFamily::new("bellows_app", FamilyKind::Info, "", "the app's worker");
pub(crate) static DEGRADED: MetricFamily<'_> = MetricFamily::new(
    "bellows_app_degraded",
    FamilyKind::Gauge,
    "",
    "1 while the app has a problem that lasts, such as a full disk or a port without a link; `bellows ps --probe` says which",
);
pub(crate) static DROPS: MetricFamily<'_> = MetricFamily::new(
    "bellows_app_dropped_packets",
    FamilyKind::Counter,
    "packets",
    "packets dropped by the app, by reason; `bellows apps TYPE` explains the reasons",
);
pub(crate) static CALLS: MetricFamily<'_> = MetricFamily::new(
    "bellows_app_calls",
    FamilyKind::Counter,
    "calls",
    "calls of the app at an entry: pull, push or tick",
);
pub(crate) static EVENTS: MetricFamily<'_> = MetricFamily::new(
    "bellows_app_sampled_events",
    FamilyKind::Gauge,
    "events",
    "events such as instructions in the calls that were timed, extrapolated from a part of them",
);
pub(crate) static ASLEEP: MetricFamily<'_> =
    MetricFamily::new("bellows_worker_asleep", FamilyKind::Gauge, "", "1 if the worker sleeps, else 0");
pub(crate) static BUILD: MetricFamily<'_> =
    MetricFamily::new("bellows_build", FamilyKind::Info, "", "the program that reads the counters");
pub(crate) static LEFT_OUT: MetricFamily<'_> = MetricFamily::new(
    "bellows_scrape_left_out",
    FamilyKind::Gauge,
    "",
    "networks, apps, links, workers and counters that are not among the metrics above, because another user has too many \
     or a program declares a counter otherwise than one before it",
);
pub(crate) const SCRAPE: MetricFamily<'_> = MetricFamily::new(
    "bellows_scrape_duration_seconds",
    FamilyKind::Gauge,
    "seconds",
    "time to read the counters of all networks and to write the metrics above",
);

/// The directions of a port's traffic.
pub(crate) const PORTS: &[Figure<AppTotals>] = &[
    // What an app sends into the network comes from outside.
    Figure {
        counter: Counter::new("received_packets", "packets that came into the network through the port"),
        value: |totals| totals.out_packets as i128,
    },
    Figure {
        counter: Counter::new("received_bytes", "bytes that came into the network through the port").in_unit("bytes"),
        value: |totals| totals.out_bytes as i128,
    },
    Figure {
        counter: Counter::new("sent_packets", "packets that left the network through the port, or were dropped by it"),
        value: |totals| totals.in_packets as i128,
    },
    Figure {
        counter: Counter::new("sent_bytes", "bytes that left the network through the port, or were dropped by it")
            .in_unit("bytes"),
        value: |totals| totals.in_bytes as i128,
    },
    Figure {
        counter: Counter::new("dropped_packets", "packets that the port dropped for any reason"),
        value: |totals| totals.dropped as i128,
    },
];

/// The counters of the engine in these scopes, with their positions.
fn engine_families(subject: &str, scopes: &[Scope]) -> Vec<(usize, MetricFamily<'static>)> {
    engine::in_scopes(scopes)
        .map(|position| (position, MetricFamily::of(subject, &engine::COUNTERS[position])))
        .collect()
}

/// Families of figures, each with its value.
pub(crate) type Figures<T> = Vec<(fn(&T) -> i128, MetricFamily<'static>)>;

fn figures<T>(subject: &str, figures: &[Figure<T>]) -> Figures<T> {
    figures.iter().map(|figure| (figure.value, MetricFamily::of(subject, &figure.counter))).collect()
}

/// The families that follow from declarations.
pub(crate) struct Declared {
    /// Counters of the process, by their positions among the engine's.
    pub(crate) process: Vec<(usize, MetricFamily<'static>)>,
    /// Those of the packet pool.
    pub(crate) pool: Vec<(usize, MetricFamily<'static>)>,
    /// Those of each worker.
    pub(crate) workers: Vec<(usize, MetricFamily<'static>)>,
    pub(crate) apps: Figures<AppTotals>,
    pub(crate) ports: Figures<AppTotals>,
    pub(crate) links: Figures<LinkTotals>,
    /// The record of the calls that were timed, in its order.
    pub(crate) samples: Vec<MetricFamily<'static>>,
    /// The histograms in their order, and the longest time of each.
    pub(crate) times: Vec<[MetricFamily<'static>; 2]>,
}

impl Declared {
    pub(crate) fn new() -> Declared {
        let sample = |counter: &Counter| {
            let mut family = MetricFamily::of("app", counter);
            family.name = family.name.replacen("bellows_app_", "bellows_app_sampled_", 1).into();
            family
        };
        let times = |name: &&str| {
            let what = TIMES.iter().find(|(known, _)| known == name).map_or("", |(_, what)| what);
            let family = |name: String, kind: FamilyKind, help: String| MetricFamily {
                name: name.into(),
                help: help.into(),
                scale: crate::family::Scale::Nanoseconds,
                ..MetricFamily::new("", kind, "seconds", "")
            };
            [
                family(format!("bellows_{name}_seconds"), FamilyKind::Histogram, format!("duration: {what}")),
                family(
                    format!("bellows_{name}_longest_seconds"),
                    FamilyKind::Gauge,
                    format!("longest duration: {what}"),
                ),
            ]
        };
        Declared {
            process: engine_families("network", &[Scope::Process]),
            pool: engine_families("pool", &[Scope::Pool]),
            workers: engine_families("worker", &[Scope::Worker, Scope::WorkerTime]),
            apps: figures("app", AppTotals::FIGURES),
            ports: figures("port", PORTS),
            links: figures("link", LinkTotals::FIGURES),
            samples: account::SAMPLES.iter().map(sample).collect(),
            times: histogram::NAMES.iter().map(times).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_of_the_engine_is_in_a_family() {
        let declared = Declared::new();
        let all = [&declared.process, &declared.pool, &declared.workers];
        let mut positions: Vec<usize> = all.into_iter().flatten().map(|(position, _)| *position).collect();
        positions.sort_unstable();
        let wanted: Vec<usize> = (0..engine::COUNTERS.len()).filter(|position| *position != engine::DOING).collect();
        assert_eq!(positions, wanted);
    }
}

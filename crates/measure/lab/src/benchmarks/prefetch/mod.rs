//! `bench prefetch`: what look-ahead is worth to the nodes of a router, and whether its lack is found.
//!
//! A process has one pool of packets and one table of routes, and several routers that differ only in how far their
//! nodes look ahead. The routers take turns, so their packets have the same places in memory and in the caches. Between
//! the nodes the clock is read for each vector.
//!
//! | module | what it holds |
//! |---|---|
//! | `packet_pool` | the packets, and the app that sends them again and again |
//! | `variants` | the routers |
//! | `contender` | the processes that measure |
//! | `show` | the routers side by side |
//! | `picture` | clocks by packets in flight, as SVG |
//! | `hot` | the share of samples at the first use of packet data |
//! | `live` | a whole router in a network |
//! | `verdict` | runs in which a trial of look-ahead must find a node, or none |

mod contender;
mod hot;
mod live;
mod packet_pool;
pub(in crate::benchmarks) mod picture;
mod show;
mod variants;
mod verdict;

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::bench::{Benchmark, Common, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::benchmarks::router::circulation::VECTOR;
use crate::benchmarks::router::traffic::{Family, Traffic};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::named::named;
use crate::report::{BenchError, Measurement, Report, chosen};
use crate::turns::{self, Match};
use crate::workers;
use contender::{PrefetchTask, PrefetchWork, figures, lay_out};
use variants::{First, Variant, nodes};

/// Measure what look-ahead is worth to the nodes of a router
///
/// Frames of 60 bytes with random destinations, in vectors of 128, go round through a router. Case `nodes`: clocks a
/// packet of each node at full speed, as it is, without look-ahead in one node, and with other distances in all nodes.
/// Case `load`: the same at a fixed load, and packets a call. Case `hot`: the share of the first node in samples of a
/// timer, and of those the shares at its first use of packet data and at its hottest instruction, with look-ahead and
/// without. The processor's debug registers tell which instruction uses packet data; a slow one's samples are at the one
/// behind it, so both count. Case `verdict`: runs with packets from memory
/// in which the first node does not look ahead, or all nodes do; a trial, as `show run --advise` makes it, must find the
/// node if it costs 20 percent more, and accuse none otherwise. Case `live`: the same with the app `router` in a network
/// that holds its packets until they have left the caches.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Fresh processes per figure; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = whole(1..=1000))]
    processes: usize,
    /// Turns; the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = whole(1..=10_000))]
    rounds: usize,
    /// The family of the packets
    #[arg(long, value_name = "FAMILY", value_enum, default_value_t = IpFamily::Ip4)]
    family: IpFamily,
    /// The first node that packets come to
    #[arg(long, value_name = "NODE", value_enum, default_value_t = First::Ethernet)]
    first: First,
    /// Evict packets from all caches before they come again
    #[arg(long)]
    memory: bool,
    /// Draw the clocks of the first node in this SVG file
    ///
    /// By packets in flight, with look-ahead and without.
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
    /// Packets in flight
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [256, 4_096, 65_536], value_parser = in_flight)]
    in_flight: Vec<usize>,
    /// Routes
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 131_072, 1_000_000], value_parser = whole(1..=4_000_000))]
    routes: Vec<usize>,
    /// Distances of all nodes, packets
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_values_t = [1, 2, 4, 8, 16], value_parser = whole(1..=64))]
    ahead: Vec<usize>,
    /// Load, relative to the slowest router
    ///
    /// A share of what the slowest router carries at full speed, in the case `load`.
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, value_parser = share)]
    load: f64,
    /// Runs of each kind in the cases `verdict` and `live`
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole(1..=1_000))]
    runs: usize,
    /// Seconds of a trial, and of sampling
    ///
    /// A trial is that of the cases `verdict` and `live`; the case `hot` takes samples.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, value_parser = seconds)]
    seconds: f64,
}

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum IpFamily {
    Ip4,
    Ip6,
}

fn in_flight(text: &str) -> Result<usize, String> {
    let packets = text.parse().ok().filter(|packets| (VECTOR..=1 << 20).contains(packets));
    packets
        .map(|packets: usize| packets.next_multiple_of(VECTOR))
        .ok_or_else(|| format!("give a number from {VECTOR} to 1048576"))
}

fn share(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|share| (0.01..=1.0).contains(share)).ok_or("give a number from 0.01 to 1".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|time| (0.05..=60.0).contains(time)).ok_or("give a number from 0.05 to 60".to_owned())
}

named! {
    /// What a case measures.
    enum PrefetchCase {
        Nodes = "nodes",
        Load = "load",
        Hot = "hot",
        Verdict = "verdict",
        Live = "live",
    }
}

/// One combination of conditions.
#[derive(Clone, Debug)]
struct Group {
    case: PrefetchCase,
    traffic: Traffic,
    first: First,
    variants: Vec<Variant>,
}

impl Arguments {
    fn traffic(&self, routes: usize, in_flight: usize) -> Traffic {
        let family = if self.family == IpFamily::Ip4 { Family::Ip4 } else { Family::Ip6 };
        Traffic { family, routes: routes as u32, is_internet: false, in_flight }
    }

    /// The number of routes in the cases that have only one, and in the picture.
    fn middle_routes(&self) -> usize {
        self.routes.get(self.routes.len() / 2).copied().unwrap_or(1)
    }

    /// The place of a group in the picture, if it has one.
    fn spot(&self, group: &Group, matches: &[Match]) -> Option<picture::Spot> {
        if group.case != PrefetchCase::Nodes || group.traffic.routes as usize != self.middle_routes() {
            return None;
        }
        // Without look-ahead in the first node.
        let clocks = |kind| {
            let variant = group.variants.iter().position(|variant| *variant == kind)?;
            bellows_stats::median(&group.values(matches, variant, 0))
        };
        let clocks = [clocks(Variant::AsIs)?, clocks(Variant::Without(0))?];
        Some(picture::Spot { in_flight: group.traffic.in_flight, clocks })
    }

    /// The groups of processes of a case.
    fn groups(&self, case: PrefetchCase) -> Vec<Group> {
        let nodes = nodes(self.traffic(1, VECTOR).family, self.first);
        let mut variants = Variant::without_each(&nodes);
        if case == PrefetchCase::Nodes {
            variants.extend(self.ahead.iter().map(|&distance| Variant::All(distance)));
        }
        let all = self.routes.iter().flat_map(|&routes| self.in_flight.iter().map(move |&flying| (routes, flying)));
        // Under a load, and for a verdict, with packets that are far away.
        let farthest = self.in_flight.iter().max().copied().unwrap_or(VECTOR);
        let routes = self.middle_routes();
        let group = |(routes, in_flight)| Group {
            case,
            traffic: self.traffic(routes, in_flight),
            first: self.first,
            variants: variants.clone(),
        };
        match case {
            PrefetchCase::Nodes => all.map(group).collect(),
            PrefetchCase::Load | PrefetchCase::Hot | PrefetchCase::Live => vec![group((routes, farthest))],
            // Each node that packets can come to first.
            PrefetchCase::Verdict => {
                [First::Ethernet, First::Ip].map(|first| Group { first, ..group((routes, farthest)) }).into()
            }
        }
    }
}

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cases = chosen(PrefetchCase::ALL, PrefetchCase::name, &options.case)?;
    if options.picture.is_some() && !cases.contains(&PrefetchCase::Nodes) {
        return Err(BenchError::Refused("--picture draws the case `nodes`, which --case leaves out".to_owned()));
    }
    let groups: Vec<Group> = cases.iter().flat_map(|&case| options.groups(case)).collect();
    let processes = |group: &Group| match group.case {
        PrefetchCase::Verdict | PrefetchCase::Live => verdict::KINDS.len() * options.runs,
        PrefetchCase::Hot => hot::KINDS.len() * options.processes,
        _ => options.processes,
    };
    let mut session = lab.session(options, groups.iter().map(processes).sum());
    let (mut results, mut notes, mut failed) = (Vec::new(), Vec::new(), false);
    let mut spots = Vec::new();
    for group in groups {
        if matches!(group.case, PrefetchCase::Verdict | PrefetchCase::Live) {
            let found = verdict::run(options, &group, &mut session)?;
            session.show(&found.text);
            results.extend(found.results);
            notes.extend(found.note);
            failed |= found.failed;
            continue;
        }
        if group.case == PrefetchCase::Hot {
            let (text, found) = hot::run(options, &group, &mut session)?;
            session.show(&text);
            results.extend(found);
            continue;
        }
        let work = match group.case {
            PrefetchCase::Load => PrefetchWork::Load(group.variants.clone(), options.load),
            _ => PrefetchWork::Compare(group.variants.clone()),
        };
        let task = PrefetchTask {
            traffic: group.traffic,
            first: group.first,
            memory: options.memory,
            what: work,
            cpu: options.common.cpu,
        };
        let matches = session.matches(options.processes, &[options.rounds], &[], |_| vec![task.clone()])?;
        if results.is_empty() {
            let heading = session.heading(Arguments::NAME, options.processes);
            session.show(&heading);
        }
        session.show(&show::side_by_side(&group, &matches));
        spots.extend(options.spot(&group, &matches));
        results.extend(measurements(&group, &matches));
    }
    if let Some(path) = &options.picture {
        let memory = if options.memory { ", packets from memory" } else { "" };
        let (node, routes) = (nodes(options.traffic(1, VECTOR).family, options.first)[0], options.middle_routes());
        let s = if routes == 1 { "" } else { "s" };
        let title = format!("{node}, {routes} route{s}{memory}");
        spots.sort_by_key(|spot| spot.in_flight);
        std::fs::write(path, picture::svg(&title, &spots))
            .map_err(|error| BenchError::Refused(format!("cannot write {}: {error}", path.display())))?;
    }
    let report = Report::of_turns(Arguments::NAME, session.info(), options.processes, results);
    Ok(Finished::after_rows(Report { notes, failed, ..report }))
}

impl Group {
    fn nodes(&self) -> Vec<&'static str> {
        match self.case {
            PrefetchCase::Live => live::APPS.to_vec(),
            _ => nodes(self.traffic.family, self.first),
        }
    }

    /// The conditions of a variant, and what is measured.
    fn labels(&self, variant: &Variant, node: &str) -> Vec<(&'static str, Value)> {
        let (without, ahead) = match *variant {
            Variant::AsIs => ("none", Value::Null),
            Variant::Without(without) => (self.nodes()[without], Value::Null),
            Variant::All(0) => ("all", 0.into()),
            Variant::All(distance) => ("none", distance.into()),
        };
        let mut labels = vec![("node", json!(node)), ("without", json!(without))];
        // A network has its own routes and packets.
        if self.case != PrefetchCase::Live {
            labels.extend([("routes", self.traffic.routes.into()), ("in_flight", self.traffic.in_flight.into())]);
        }
        if !ahead.is_null() {
            labels.push(("ahead", ahead));
        }
        labels
    }

    /// The median of a figure of a variant.
    fn figure(&self, matches: &[Match], variant: usize, figure: usize) -> Option<f64> {
        let values = self.values(matches, variant, figure);
        bellows_stats::median(&values).map(|median| median.value)
    }

    /// A figure of a variant in each process.
    fn values(&self, matches: &[Match], variant: usize, figure: usize) -> Vec<f64> {
        let index = variant * figures(self.nodes().len()) + figure;
        turns::figures(matches, 0, index)
    }

    /// A figure of a variant over that of the first one, in each process.
    fn ratios(&self, matches: &[Match], variant: usize, figure: usize) -> Vec<f64> {
        let index = variant * figures(self.nodes().len()) + figure;
        turns::ratios(matches, (0, index), (0, figure))
    }
}

/// The figures of all variants of a group.
fn measurements(group: &Group, matches: &[Match]) -> Vec<Measurement> {
    let nodes = group.nodes();
    let names: Vec<&str> = nodes.iter().copied().chain(["sum"]).collect();
    let mut found = Vec::new();
    for (variant, kind) in group.variants.iter().enumerate() {
        for (figure, node) in names.iter().enumerate() {
            let labels = group.labels(kind, node);
            let clocks = group.values(matches, variant, figure);
            found.extend(Measurement::of(group.case.name(), "clocks/packet", &clocks, labels.clone()));
            if variant > 0 {
                let ratios = group.ratios(matches, variant, figure);
                found.extend(Measurement::of(group.case.name(), "ratio", &ratios, labels));
            }
        }
        if group.case == PrefetchCase::Load {
            let labels = group.labels(kind, "all");
            let calls = group.values(matches, variant, names.len());
            found.extend(Measurement::of(group.case.name(), "packets/call", &calls, labels.clone()));
            let missed = group.values(matches, variant, names.len() + 1);
            found.extend(Measurement::of(group.case.name(), "missed share", &missed, labels));
        }
    }
    found
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[],
    every: &["node", "without"],
    rows: &[
        CaseRow::of(&["nodes"], "clocks/packet", "a node of a router, or the sum of all")
            .with(&["routes", "in_flight"])
            .sometimes(&["ahead"]),
        CaseRow::of(&["nodes"], "ratio", "the same relative to the router as it is")
            .with(&["routes", "in_flight"])
            .sometimes(&["ahead"]),
        CaseRow::of(&["load"], "clocks/packet", "a node, or the sum of all, at a fixed load")
            .with(&["routes", "in_flight"])
            .sometimes(&["ahead"]),
        CaseRow::of(&["load"], "ratio", "the same relative to the router as it is")
            .with(&["routes", "in_flight"])
            .sometimes(&["ahead"]),
        CaseRow::of(&["load"], "packets/call", "packets of a call")
            .with(&["routes", "in_flight"])
            .sometimes(&["ahead"]),
        CaseRow::of(&["load"], "missed share", "the share of packets that the router did not take in time")
            .with(&["routes", "in_flight"])
            .sometimes(&["ahead"]),
        CaseRow::of(&["hot"], "share of samples", "the share of the nodes' samples that the first node has")
            .with(&["routes", "in_flight"]),
        CaseRow::of(&["hot"], "share at the first use", "the share of these at its first use of packet data")
            .with(&["routes", "in_flight"]),
        CaseRow::of(&["hot"], "share at one instruction", "the share of these at its hottest instruction")
            .with(&["routes", "in_flight"]),
        CaseRow::of(&["verdict"], "share of runs", "the share of runs in which a trial of look-ahead accused the node")
            .with(&["routes", "in_flight"]),
        CaseRow::of(&["live"], "share of runs", "the same of an app of a network"),
    ],
    labels: &[
        label(
            "node",
            LabelKind::Text,
            "the node, or app of the network; `sum` for all nodes together, `all` for the router as a whole",
        ),
        label("without", LabelKind::Text, "the node or app that does not look ahead, `none` or `all`"),
        label("ahead", LabelKind::Integer, "the distance of all nodes, if it is not their own"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "prefetch";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--case nodes --processes 1 --rounds 1 --in-flight 256,4096 --routes 8 --ahead 4";
    const MORE: &'static [&'static str] = &[
        "--case load --processes 1 --rounds 1 --in-flight 256 --routes 8",
        "--case verdict --runs 1 --seconds 0.05 --in-flight 256 --routes 8",
        "--case live --runs 1 --seconds 0.05",
    ];
    // Where samples may be taken, which a test of its own does.
    const RARE: &'static [&'static str] = &["hot"];
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "nonsense"], "no case has `nonsense` in its name; there are nodes, load, hot, verdict and live"),
        (&["--case", "hot", "--picture", "x.svg"], "--picture draws the case `nodes`, which --case leaves out"),
    ];
    const WORK: RunWorker = |_| workers::take_part(lay_out);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}

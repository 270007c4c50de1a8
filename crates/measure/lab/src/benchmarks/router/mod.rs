//! `bench router`: what the nodes of a router cost a packet.
//!
//! A process has a router whose packets go round: what leaves it is restored, waits until all others have been through,
//! and comes again. Between the nodes the clock is read for each vector. The floor and the naive loop go over packets of
//! their own with the same destinations, in the same turns.

mod bare;
pub(super) mod circulation;
pub(super) mod contender;
pub(super) mod traffic;

use std::path::PathBuf;

use serde_json::{Value, json};

use super::fib::routes::Prefixes;
use crate::bench::{Benchmark, Common, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::report::{BenchError, Measurement, chosen};
use crate::turns::{self, Match};
use crate::workers;
use contender::{FLOOR, FORWARD, NAIVE, NODES, RouterTask, SUM, lay_out};
use traffic::{Family, Traffic};

/// Measure what the nodes of a router cost a packet
///
/// Clocks a packet for frames of 60 bytes in vectors of 128 with random destinations, with 256 and with 32,768 packets in
/// flight. `sum` is that of ip4-input, ip4-lookup, ip4-rewrite and interface-output, or of their IPv6 twins;
/// ethernet-input has a row of its own. `forward` is that of ip4-forward or ip6-forward and interface-output. `floor` is a prefetched read of each header line and one table load for each key,
/// `naive` a router in one loop without look-ahead, both in the same turns. Cases: ip4 and ip6, with 1, 131,072 and
/// 393,216 routes; internet4 and internet6, with as many prefixes of each length as the Internet's tables have, or those
/// of a file, and destinations drawn by prefix; checksum, ip4-input that trusts the checksums of headers over ip4-input
/// that verifies them; look-ahead, ip4-input without prefetching over ip4-input with it, if it is the first to see
/// packets, which come from memory.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figures: Figures,
    /// Turns per process, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = whole(1..=10_000))]
    rounds: usize,
    /// A file with prefixes of both families as the first words of its lines, in place of the generated table
    #[arg(long, value_name = "FILE")]
    routes: Option<PathBuf>,
    /// Show the floor and the naive loop beside the sum
    #[arg(long)]
    floor: bool,
}

/// What a case measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouterCase {
    Route(Family),
    Internet(Family),
    Checksum,
    LookAhead,
}

impl RouterCase {
    const ALL: [RouterCase; 6] = [
        RouterCase::Route(Family::Ip4),
        RouterCase::Route(Family::Ip6),
        RouterCase::Internet(Family::Ip4),
        RouterCase::Internet(Family::Ip6),
        RouterCase::Checksum,
        RouterCase::LookAhead,
    ];

    fn name(self) -> &'static str {
        match self {
            RouterCase::Route(Family::Ip4) => "ip4",
            RouterCase::Route(Family::Ip6) => "ip6",
            RouterCase::Internet(Family::Ip4) => "internet4",
            RouterCase::Internet(Family::Ip6) => "internet6",
            RouterCase::Checksum => "checksum",
            RouterCase::LookAhead => "look-ahead",
        }
    }

    /// The traffic of its groups of processes.
    ///
    /// # Errors
    /// If the routes are in a file that cannot be read.
    fn traffic(self, prefixes: impl Fn() -> Result<Prefixes, String>) -> Result<Vec<Traffic>, String> {
        let of = |family, routes, in_flight| Traffic { family, routes, is_internet: false, in_flight };
        Ok(match self {
            RouterCase::Checksum | RouterCase::LookAhead => {
                IN_FLIGHT.map(|in_flight| of(Family::Ip4, 1, in_flight)).into()
            }
            RouterCase::Route(family) => {
                ROUTES.into_iter().flat_map(|routes| IN_FLIGHT.map(|in_flight| of(family, routes, in_flight))).collect()
            }
            RouterCase::Internet(family) => {
                let Prefixes { ipv4, ipv6 } = prefixes()?;
                let routes = if family == Family::Ip4 { ipv4.len() } else { ipv6.len() } as u32;
                IN_FLIGHT.map(|in_flight| Traffic { is_internet: true, ..of(family, routes, in_flight) }).into()
            }
        })
    }
}

const ROUTES: [u32; 3] = [1, 131_072, 393_216];
const IN_FLIGHT: [usize; 2] = [256, 32_768];

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cases = chosen(RouterCase::ALL, RouterCase::name, &options.figures.case)?;
    let mut groups: Vec<(RouterCase, Traffic)> = Vec::new();
    for case in cases {
        let traffic = case.traffic(|| contender::prefixes(options.routes.as_deref())).map_err(BenchError::Refused)?;
        groups.extend(traffic.into_iter().map(|traffic| (case, traffic)));
    }
    let sides = |case| if matches!(case, RouterCase::Checksum | RouterCase::LookAhead) { 2 } else { 1 };
    let all = groups.iter().map(|(case, _)| sides(*case)).sum();
    let mut series = lab.series(options, all, options.figures.processes);
    for (case, traffic) in groups {
        let task = |prefetch, verifies| RouterTask {
            traffic,
            routes: options.routes.clone(),
            prefetch,
            verifies,
            is_cold: case == RouterCase::LookAhead,
            cpu: options.common.cpu,
        };
        let tasks = |_| match case {
            RouterCase::Route(_) | RouterCase::Internet(_) => vec![task(None, true)],
            RouterCase::Checksum => vec![task(None, true), task(None, false)],
            RouterCase::LookAhead => vec![task(None, true), task(Some(0), true)],
        };
        series.group(&[options.rounds], &[], tasks, |matches| match case {
            RouterCase::Route(_) | RouterCase::Internet(_) => routed(case, traffic, options.floor, matches),
            RouterCase::Checksum | RouterCase::LookAhead => other_input(case, traffic, matches),
        })?;
    }
    Ok(Finished::after_rows(series.report()))
}

fn labels(traffic: Traffic, node: &str) -> Vec<(&'static str, Value)> {
    vec![("routes", traffic.routes.into()), ("in_flight", traffic.in_flight.into()), ("node", json!(node))]
}

/// The clocks of the nodes, and ratios of their sum.
fn routed(case: RouterCase, traffic: Traffic, with_floor: bool, matches: &[Match]) -> Vec<Measurement> {
    let each = |figure| turns::figures(matches, 0, figure);
    let clocks = |(figure, node): (usize, &str)| {
        Measurement::of(case.name(), "clocks/packet", &each(figure), labels(traffic, node))
    };
    let nodes = NODES.into_iter().enumerate();
    let mut found: Vec<Measurement> = nodes.chain([(SUM, "sum"), (FORWARD, "forward")]).filter_map(clocks).collect();
    if with_floor {
        found.extend([(FLOOR, "floor"), (NAIVE, "naive")].into_iter().filter_map(clocks));
        for (figure, of, name) in [
            (SUM, FLOOR, "sum to floor"),
            (SUM, NAIVE, "sum to naive"),
            (FORWARD, NAIVE, "forward to naive"),
            (FORWARD, SUM, "forward to sum"),
        ] {
            let ratios = turns::ratios(matches, (0, figure), (0, of));
            found.extend(Measurement::of(case.name(), "ratio", &ratios, labels(traffic, name)));
        }
    }
    found
}

/// The input node of the second side over that of the first.
fn other_input(case: RouterCase, traffic: Traffic, matches: &[Match]) -> Vec<Measurement> {
    const INPUT: usize = 1;
    let ratios = turns::ratios(matches, (1, INPUT), (0, INPUT));
    Measurement::of(case.name(), "ratio", &ratios, labels(traffic, NODES[INPUT])).into_iter().collect()
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[],
    every: &["node", "routes", "in_flight"],
    rows: &[
        CaseRow::of(
            &["ip4", "ip6", "internet4", "internet6"],
            "clocks/packet",
            "a node of a router, or the sum of nodes",
        ),
        CaseRow::of(
            &["ip4", "ip6", "internet4", "internet6"],
            "ratio",
            "with `--floor`: the sum or `forward` relative to the floor, the naive loop or the sum",
        ),
        CaseRow::of(
            &["checksum"],
            "ratio",
            "the input node that trusts the checksums of headers over that which verifies them",
        ),
        CaseRow::of(
            &["look-ahead"],
            "ratio",
            "the input node without prefetching over that with it, for packets that come from memory",
        ),
    ],
    labels: &[label(
        "node",
        LabelKind::Word(&[
            "ethernet-input",
            "input",
            "lookup",
            "rewrite",
            "output",
            "sum",
            "floor",
            "naive",
            "sum to floor",
            "sum to naive",
            "forward",
            "forward to naive",
            "forward to sum",
        ]),
        "`ethernet-input`, `input`, `lookup`, `rewrite`, `output`, or the `sum` of all but the first one; `forward`, one \
         loop in place of these and the output; with `--floor` also \
         `floor` (a prefetched read of each header line and one table load for each key), `naive` (a router in one loop), and \
         the ratios `sum to floor`, `sum to naive`, `forward to naive` and `forward to sum`",
    )],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "router";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 1 --case look-ahead";
    const MORE: &'static [&'static str] = &[
        "--processes 1 --rounds 1 --case ip --floor",
        "--processes 1 --rounds 1 --case internet --floor --routes routes.txt",
        "--processes 1 --rounds 1 --case checksum",
    ];
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "nonsense"], "no case has `nonsense` in its name; there are ip4, ip6"),
        (&["--case", "internet4", "--routes", "/nonexistent"], "/nonexistent: No such file or directory"),
    ];
    const WORK: RunWorker = |_| workers::take_part(lay_out);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}

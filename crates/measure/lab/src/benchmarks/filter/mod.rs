//! `bench filter`: what a filter costs a packet, and what compiling it costs.
//!
//! A process compiles one filter and decides frames of 64 bytes in vectors of 128: such that match, such that do not,
//! and both at random; hot, which is one vector again and again, and with 8,192 packets in flight. Processes take turns
//! of about a millisecond ([`turns`](crate::turns)). At its end a process checks that the filter matched what it should
//! have matched.
//!
//! - A long list is measured beside one item of it.
//! - Histories: a filter that met only some packets first is measured beside one that met nothing before.
//! - A table of states is measured as the difference between a filter with and without it, in a network.
//! - Other programs with filters, such as bench/peers/filter.c, take turns with the same frames, which they read from
//!   captures.

mod contender;
mod filters;
mod peers;
mod results;
mod states;

use crate::bench::{Benchmark, Common, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::networks::Folder;
use crate::programs::OtherProgram;
use crate::report::{BenchError, Measurement, chosen};
use crate::targets::conclusions;
use crate::turns::Match;
use crate::workers;
use contender::{CompiledText, FilterTask, FilterWork, Residence, lay_out};
use filters::{Filter, Packets};
use peers::{peer, write_packets};
use results::Results;
use states::CONNECTIONS;

/// Packets in a vector, and packets in flight.
const VECTOR: usize = 128;
const IN_FLIGHT: usize = 8_192;

/// The maximum number of turns to compile a long text.
const LONG_TURNS: usize = 2;

/// What a case measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterCase {
    Filter(Filter),
    /// A long list, beside one item of it.
    List {
        list: Filter,
        item: Filter,
    },
    History,
    States,
    Compile,
}

impl FilterCase {
    const ALL: [FilterCase; 10] = [
        FilterCase::Filter(Filter::Document),
        FilterCase::Filter(Filter::Portrange),
        FilterCase::Filter(Filter::TcpPort),
        FilterCase::Filter(Filter::SrcNet),
        FilterCase::Filter(Filter::Host),
        FilterCase::List { list: Filter::Ports, item: Filter::Port },
        FilterCase::List { list: Filter::Prefixes, item: Filter::Prefix },
        FilterCase::History,
        FilterCase::States,
        FilterCase::Compile,
    ];

    fn name(self) -> &'static str {
        match self {
            FilterCase::Filter(filter) | FilterCase::List { list: filter, .. } => match filter {
                Filter::Document => "document",
                Filter::Portrange => "portrange",
                Filter::TcpPort => "tcp-port",
                Filter::SrcNet => "src-net",
                Filter::Host => "host",
                Filter::Port | Filter::Ports => "ports",
                Filter::Prefix | Filter::Prefixes => "prefixes",
            },
            FilterCase::History => "history",
            FilterCase::States => "states",
            FilterCase::Compile => "compile",
        }
    }

    /// The filter, if there is one.
    fn filter(self) -> Option<Filter> {
        match self {
            FilterCase::Filter(filter) | FilterCase::List { list: filter, .. } => Some(filter),
            FilterCase::History | FilterCase::States | FilterCase::Compile => None,
        }
    }

    /// Whether peers can run it: libpcap takes a minute to compile the list of prefixes, and DPDK refuses more than 4,096
    /// instructions.
    fn is_for_peers(self) -> bool {
        self.filter().is_some_and(|filter| filter != Filter::Prefixes)
    }
}

/// Measure what a filter costs a packet, and what compiling it costs
///
/// Clocks a packet over frames of 64 bytes in vectors of 128 that match, do not match (`other`) or both at random
/// (`mixed`), with one vector that stays in the first-level cache and with 8,192 packets in flight. Cases: document, the
/// filter of the document that measures Snabb's app PcapFilter; portrange, tcp-port, src-net and host, filters of the
/// pflua project; ports and prefixes, lists of 200 ports and of 1,000 prefixes, as a ratio to one of them; history, the
/// filters that first met only matching, only other or only foreign packets (ARP, IPv6, UDP, ICMP), as a ratio to those
/// that met nothing before; states, the clocks that a table of states adds for a packet of an established TCP connection,
/// of which there are 1, 1,000 or 100,000; compile, the time from the text to machine code, the first time in a process and again, of
/// the document's filter and of texts of 64 KiB.
#[derive(Clone, Debug, PartialEq, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figures: Figures,
    /// Turns of about 2 ms per process, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = whole(1..=60_000))]
    rounds: usize,
    /// Another program with filters, which takes turns with this one (see bench/peers/filter.c)
    #[arg(long, value_name = "NAME=PROGRAM ARGUMENT …", hide = true)]
    peer: Vec<OtherProgram>,
}

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let names: Vec<&str> = options.peer.iter().map(|peer| peer.name.as_str()).collect();
    let cases = FilterCase::ALL.into_iter().filter(|case| names.is_empty() || case.is_for_peers());
    let cases = chosen(cases, FilterCase::name, &options.figures.case)?;
    let groups: Vec<FilterGroup> = cases.into_iter().flat_map(|case| groups(case, !names.is_empty())).collect();
    let sides = groups.iter().map(|group| group.tasks.len() + names.len()).sum();
    let mut series = lab.series(options, sides, options.figures.processes);
    if !names.is_empty() {
        series.bench = "peers filter";
    }
    let folder = (!names.is_empty()).then(|| Folder::new("filter")).transpose()?;
    let mut refused = Vec::new();
    for group in &groups {
        let mut peers = Vec::new();
        if let (Some(folder), Some(filter)) = (&folder, group.case.filter()) {
            write_packets(filter, &folder.0).map_err(BenchError::Capture)?;
            peers.extend(
                options.peer.iter().map(|program| peer(program, filter, &folder.0, options.common.processor())),
            );
        }
        let rounds = options.rounds.min(group.max_rounds);
        let task = |&work: &FilterWork| FilterTask { work, rounds, cpu: options.common.cpu };
        let tasks = |_| group.tasks.iter().map(task).collect();
        let matches = series.group(&[rounds], &peers, tasks, |matches| group.results(matches, &names))?;
        refused.extend(matches.first().into_iter().flat_map(|found| group.refused(found, &names)));
    }
    let mut report = series.report_without(refused)?;
    report.notes.extend(conclusions(&report.results));
    Ok(Finished::after_rows(report))
}

/// Processes that are compared. With peers, these follow the tasks.
struct FilterGroup {
    case: FilterCase,
    tasks: Vec<FilterWork>,
    max_rounds: usize,
}

/// The comparisons of a case.
fn groups(case: FilterCase, has_peers: bool) -> Vec<FilterGroup> {
    let decide = |filter| FilterWork::Decide { filter, before: None, residence: Residence::Both };
    let group = |tasks| FilterGroup { case, tasks, max_rounds: usize::MAX };
    match case {
        FilterCase::Filter(filter) => vec![group(vec![decide(filter)])],
        FilterCase::List { list, .. } if has_peers => vec![group(vec![decide(list)])],
        FilterCase::List { list, item } => vec![group(vec![decide(list), decide(item)])],
        FilterCase::History => {
            let befores = [None, Some(Packets::Matching), Some(Packets::Other), Some(Packets::Foreign)];
            let work = |filter| befores.map(|before| FilterWork::Decide { filter, before, residence: Residence::Hot });
            Filter::SHORT.into_iter().map(|filter| group(work(filter).into())).collect()
        }
        FilterCase::States => {
            CONNECTIONS.into_iter().map(|connections| group(vec![FilterWork::States(connections)])).collect()
        }
        FilterCase::Compile => {
            let turns = |text| if text == CompiledText::Document { usize::MAX } else { LONG_TURNS };
            let of = |text| FilterGroup { max_rounds: turns(text), ..group(vec![FilterWork::Compile(text)]) };
            CompiledText::ALL.into_iter().map(of).collect()
        }
    }
}

impl FilterGroup {
    /// Why sides could not take part.
    fn refused(&self, found: &Match, peers: &[&str]) -> Vec<String> {
        let names = self.tasks.iter().map(|_| "bellows").chain(peers.iter().copied());
        let sides = found.sides.iter().zip(names);
        let case = self.case.name();
        sides.filter_map(|(side, name)| Some(format!("{case} by {name}: {}", side.refused.as_ref()?))).collect()
    }

    /// The figures over all matches, and the ratios of turns.
    fn results(&self, matches: &[Match], peers: &[&str]) -> Vec<Measurement> {
        let results = Results { case: self.case.name(), matches };
        let own = (!peers.is_empty()).then_some("bellows");
        let mut found = Vec::new();
        for (side, &task) in self.tasks.iter().enumerate() {
            found.extend(match task {
                FilterWork::Compile(text) => results.compiling(text),
                FilterWork::States(connections) => results.states(connections),
                FilterWork::Decide { filter, before: Some(before), .. } => results.history(side, filter, before),
                // Its clocks are a label of the ratios.
                FilterWork::Decide { .. } if self.case == FilterCase::History => Vec::new(),
                FilterWork::Decide { filter, .. } => results.deciding(side, filter, own),
            });
        }
        if let Some(filter) = self.case.filter() {
            for (side, peer) in (self.tasks.len()..).zip(peers) {
                found.extend(results.deciding(side, filter, Some(peer)));
            }
            for (side, peer) in (self.tasks.len()..).zip(peers) {
                found.extend(results.beside_peer(side, filter, peer));
            }
            if self.tasks.len() > 1 {
                found.extend(results.list_of_item(filter));
            }
        }
        found
    }
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &["The `notes` sum up the verdicts."],
    every: &[],
    rows: &[
        CaseRow::of(
            &["document", "portrange", "tcp-port", "src-net", "host"],
            "clocks/packet",
            "the decision of a filter",
        )
        .with(&["filter", "packets", "in_flight"]),
        CaseRow::of(&["ports", "prefixes"], "clocks/packet", "the decision of a long list, and that of one of its items")
            .with(&["filter", "packets", "in_flight"]),
        CaseRow::of(&["ports", "prefixes"], "ratio", "the list relative to the item").with(&[
            "filter",
            "packets",
            "in_flight",
            "of",
            "target",
            "verdict",
        ]),
        CaseRow::of(
            &["history"],
            "ratio",
            "the decision of a filter that first met only some packets, relative to that of one that met nothing before",
        )
        .with(&["filter", "packets", "in_flight", "first", "clocks", "target", "verdict"]),
        CaseRow::of(&["states"], "clocks/packet", "what a table of states adds for a packet of an established connection")
            .with(&["connections", "in_flight"])
            .sometimes(&["target", "verdict"]),
        CaseRow::of(&["compile"], "µs", "from the text of a filter to its machine code")
            .with(&["text", "bytes", "compiled", "target", "verdict"]),
    ],
    labels: &[
        label("filter", LabelKind::Text, "the expression; of a long list, how many items of which kind"),
        label(
            "packets",
            LabelKind::Word(&["matching", "other", "mixed"]),
            "the packets: `matching`, `other` (none matches) or `mixed`",
        ),
        label(
            "first",
            LabelKind::Word(&["matching", "other", "foreign"]),
            "which packets the filter met first: `matching`, `other` or `foreign` (other protocols)",
        ),
        label("clocks", LabelKind::Decimal, "the cost of a decision without a history"),
        label("connections", LabelKind::Integer, "established connections in the table"),
        label(
            "text",
            LabelKind::Word(&["document", "ports", "carried ports", "portranges", "hosts", "alternating", "groups"]),
            "the text: `document` is that of the case; the others are as long as a text may be, lists of `ports`, of ports \
             after a single word `port` (`carried ports`), of `portranges`, of `hosts`, of ports and hosts in turn \
             (`alternating`), and of `groups` in parentheses",
        ),
        label("bytes", LabelKind::Integer, "length of the text"),
        label("compiled", LabelKind::Word(&["first", "again"]), "`first` in a process, or `again`"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "filter";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 1";
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "nonsense"], "no case has `nonsense` in its name; there are document, portrange"),
        (&["--peer", "libpcap"], "give NAME=PROGRAM ARGUMENT"),
    ];
    const WORK: RunWorker = |_| workers::take_part(lay_out);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}

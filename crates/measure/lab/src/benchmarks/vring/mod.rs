//! `bench vring`: the cost per packet of a virtio-net ring, for every combination of its options.
//!
//! One process is both the driver and the device. The driver fills a ring in shared memory with a batch of packets, or
//! of buffers for them; then the device's single call for that batch is timed; then the driver takes back the used
//! chains. The driver's work and reading the clock are not counted.
//!
//! Several rings live at the same time, each in its own process, and take turns ([`turns`]), so that they
//! can be compared. Whether a ring's speed depends on earlier traffic is measured against a ring without other traffic:
//! the ratio of the cost after to the cost before, divided by the same ratio of the other ring.
//!
//! The call includes what the app `vhost-user` does with the packets: allocating their buffers when the driver
//! transmits (`tx`), and freeing them when it receives (`rx`). Transmitted packets are freed later by their last
//! receiver; the cost of freeing is the condition `free` of both.
//!
//! Each figure is measured beside a bare loop, which moves the same descriptors and bytes without the ring's checks;
//! its turns follow those of the ring in the same process.

mod bare;
mod contender;
mod text;

use bellows_blit::How;
use bellows_virtio::Features;
use clap::builder::PossibleValuesParser;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::{Benchmark, Common, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::named::named;
use crate::report::{BenchError, Measurement, Report, chosen};
use crate::timing::median_or_nan;
use crate::turns::{self, Match, beside_bare_loop};
use crate::workers;

use contender::{HISTORY_SIZE, lay_out};
use text::{conclusion, recovered, spreads, table, text_after_rows};

/// The longest packet that fits into one buffer of the driver.
const MAX_PACKET: usize = bellows_packet::DATA_ROOM;

/// The number of descriptors in a ring: the default of QEMU and DPDK.
const RING: u16 = 256;

/// The maximum number of packets in a batch: a chain of two descriptors for each must fit into the ring.
const MAX_BATCH: usize = RING as usize / 2;

/// The options with their own machine code, by their names in labels. The header length has its own label.
const OPTIONS: [(&str, Features); 6] = [
    ("packed", Features::RING_PACKED),
    ("mergeable", Features::MRG_RXBUF),
    ("in-order", Features::IN_ORDER),
    ("event-idx", Features::EVENT_IDX),
    ("indirect", Features::INDIRECT_DESC),
    ("offloads", OFFLOADS),
];

/// Checksum offloads in both directions. GSO is left out, because a driver would lay out its buffers differently for
/// it.
const OFFLOADS: Features = Features(Features::CSUM.0 | Features::GUEST_CSUM.0);

/// The names of the options, for the command line.
fn option_names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(name, _)| *name)
}

/// Measure the cost per packet of a virtio-net ring, by its options
///
/// A driver and a device share memory in one process. The driver makes a batch available, and the device's single call
/// for it is timed; the driver's work is not counted. Cases: rx, packets to the driver, including freeing them as the
/// app vhost-user does; tx, packets from the driver, including allocating their buffers. The condition `free` is the
/// cost of freeing, for comparisons with whole loops. In brackets is what the engine adds to a bare loop, which moves
/// the same descriptors and bytes without the ring's checks, in the same processes. Rows are the options with their own
/// machine code and the layout of packets in descriptors: in a single one; the header in one and the data in the next
/// (chained); the same in an indirect table (indirect).
///
/// other-sizes and other-chains: whether a ring's speed depends on earlier traffic. One ring is measured with packets
/// of 60 bytes, then gets other packets, then is measured again, beside a ring without other packets. A ratio of 1
/// means that earlier traffic makes no difference.
///
/// Several rings at a time live in their own processes and take turns of a millisecond or two; each has several fresh
/// processes, and a figure is the median over them with its 95 percent confidence interval. The whole benchmark takes
/// some minutes; the options restrict it.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Only rings with these options
    #[arg(long, value_name = "OPTION,…", value_delimiter = ',', value_parser = PossibleValuesParser::new(option_names()))]
    with: Vec<String>,
    /// Only rings without these options
    #[arg(long, value_name = "OPTION,…", value_delimiter = ',', value_parser = PossibleValuesParser::new(option_names()))]
    without: Vec<String>,
    /// Layout of packets in descriptors
    #[arg(long, value_name = "CHAIN,…", value_delimiter = ',', default_value = "single,chained,indirect")]
    chain: Vec<Chain>,
    /// How rings copy packets: blitter, memcpy, none
    ///
    /// With all three, and rings in both directions, the report states the blitter's gain.
    #[arg(long, value_name = "HOW,…", value_delimiter = ',', default_value = "blitter")]
    copies: Vec<Copies>,
    /// Lengths of packets in bytes
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "60,256,1500",
        value_parser = whole(1..=MAX_PACKET as u64)
    )]
    size: Vec<usize>,
    /// Packets in a batch
    #[arg(
        long,
        value_name = "N",
        default_value_t = MAX_BATCH,
        value_parser = whole(1..=MAX_BATCH as u64)
    )]
    batch: usize,
    /// Fresh processes per ring; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = whole(1..=1000))]
    processes: usize,
    /// Timed batches in all turns; of each turn the lower quartile counts
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = whole(4..=10_000_000))]
    rounds: usize,
}

named! {
    /// How a ring copies packets.
    pub enum Copies {
        /// By a blitter, as usual.
        Blitter = "blitter",
        /// By one call of the C library's `memcpy` per packet.
        Memcpy = "memcpy",
        /// No copies.
        None = "none",
    }
}

impl Copies {
    fn how(self) -> How {
        match self {
            Copies::Blitter => How::Blitter,
            Copies::Memcpy => How::Memcpy,
            Copies::None => How::Nothing,
        }
    }
}

named! {
    /// The cases.
    enum VringCase {
        Rx = "rx",
        Tx = "tx",
        OtherSizes = "other-sizes",
        OtherChains = "other-chains",
    }
}

named! {
    /// The layout of a packet in descriptors.
    pub enum Chain {
        /// In one descriptor.
        Single = "single",
        /// The header in one descriptor, the data in another.
        Chained = "chained",
        /// As chained, but in an indirect table.
        Indirect = "indirect",
    }
}

/// A ring: its direction, its features, the layout of its packets, and its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ring {
    receive: bool,
    features: u64,
    chain: Chain,
    copies: Copies,
}

impl Ring {
    fn features(self) -> Features {
        Features(self.features)
    }

    fn header(self) -> u32 {
        if self.features().has_any(Features::VERSION_1 | Features::MRG_RXBUF) { 12 } else { 10 }
    }

    fn is_packed(self) -> bool {
        self.features().has(Features::RING_PACKED)
    }

    fn direction(self) -> &'static str {
        if self.receive { "rx" } else { "tx" }
    }

    fn labels(self, options: &Arguments) -> Vec<(&'static str, Value)> {
        let mut labels: Vec<(&'static str, Value)> =
            OPTIONS.iter().map(|(name, feature)| (*name, self.features().has(*feature).into())).collect();
        labels.extend([("header", self.header().into()), ("chain", self.chain.name().into())]);
        labels.extend([("copies", self.copies.name().into()), ("batch", options.batch.into())]);
        labels
    }
}

/// Every ring with its own machine code in a direction, with every layout of packets.
fn rings(options: &Arguments, receive: bool) -> Vec<Ring> {
    let mut rings = Vec::new();
    for bits in 0..1_u32 << OPTIONS.len() {
        let chosen = OPTIONS.iter().enumerate().filter(|(number, _)| bits & (1 << number) != 0);
        let set = chosen.fold(Features::NONE, |set, (_, (_, feature))| set | *feature);
        if !receive && set.has(Features::MRG_RXBUF) {
            // Mergeable buffers make no difference when the driver transmits.
            continue;
        }
        let named = |names: &[String]| -> Vec<bool> {
            let find = |name: &String| OPTIONS.iter().find(|(known, _)| known == name);
            names.iter().filter_map(find).map(|(_, feature)| set.has(*feature)).collect()
        };
        if named(&options.with).contains(&false) || named(&options.without).contains(&true) {
            continue;
        }
        let legacy = set | Features::ANY_LAYOUT;
        let short = legacy.check().is_ok() && !set.has(Features::MRG_RXBUF);
        for features in [Some(set | Features::VERSION_1), short.then_some(legacy)].into_iter().flatten() {
            let possible = |chain: &Chain| *chain != Chain::Indirect || features.has(Features::INDIRECT_DESC);
            for &chain in options.chain.iter().filter(|chain| possible(chain)) {
                let of = |&copies: &Copies| Ring { receive, features: features.0, chain, copies };
                rings.extend(options.copies.iter().map(of));
            }
        }
    }
    rings
}

/// One ring for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct VringTask {
    ring: Ring,
    costs: bool,
    history: Option<RingHistory>,
    options: Arguments,
}

/// The traffic of a ring between the stages of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum RingHistory {
    /// Other packets.
    Others,
    /// The same packets: the ring that others are compared with.
    Nothing,
}

/// Rings of one direction that take turns.
struct RingGroup<'a> {
    rings: &'a [Ring],
    costs: bool,
    history: bool,
}

/// The maximum number of rings in a group: a multiple of the copy methods, and few enough for their memory.
const GROUP: usize = 12;

/// Timed batches of a turn, and untimed ones before them to warm the caches.
const BATCHES: usize = 32;
const WARM_UP: usize = 8;

/// The figures for each size: clocks of the device's call, of freeing the packets afterwards, and of all that counts.
const FIGURES: usize = 3;

impl RingGroup<'_> {
    fn tasks(&self, options: &Arguments) -> Vec<VringTask> {
        let RingGroup { rings, costs, history } = *self;
        let of = |ring, costs, history| VringTask { ring, costs, history, options: options.clone() };
        let tasks = rings.iter().map(|&ring| of(ring, costs, history.then_some(RingHistory::Others)));
        tasks.chain(history.then(|| of(rings[0], false, Some(RingHistory::Nothing)))).collect()
    }

    fn turns(&self, options: &Arguments) -> Vec<usize> {
        vec![options.rounds.div_ceil(BATCHES); if self.history { 3 } else { 1 }]
    }

    /// The figures of one ring of the group.
    fn costs(&self, side: usize, matches: &[Match], options: &Arguments) -> Vec<Measurement> {
        let ring = self.rings[side];
        let of = |(number, &size): (usize, &usize)| {
            let each = |figure: usize| turns::figures(matches, side, FIGURES * number + figure);
            let (calls, frees) = (each(0), each(1));
            let whole = |(call, free): (&f64, &f64)| call + if ring.receive { *free } else { 0.0 };
            let values: Vec<f64> = calls.iter().zip(&frees).map(whole).collect();
            let mut labels = ring.labels(options);
            labels.extend([("size", size.into()), ("free", json!((median_or_nan(&frees) * 10.0).round() / 10.0))]);
            let found = Measurement::compared(ring.direction(), "clocks/packet", &values, labels)?;
            let loops = FIGURES * options.size.len() + usize::from(self.history);
            Some(beside_bare_loop(found, matches, side, FIGURES * number + 2, loops + number))
        };
        options.size.iter().enumerate().filter_map(of).collect()
    }

    /// The cost of a ring after other packets over its cost before, relative to the ring without other packets.
    fn changed(&self, case: VringCase, side: usize, matches: &[Match], options: &Arguments) -> Option<Measurement> {
        let ring = self.rings[side];
        let figure = if self.costs { FIGURES * options.size.len() } else { 0 };
        let control = (self.rings.len(), 0);
        let stage = if case == VringCase::OtherSizes { 1 } else { 2 };
        let ratio = |found: &Match| {
            // The control has no other figures, so its figure is the first. Costs are measured in the first stage only.
            let at = |stage| found.ratio((side, if stage == 0 { figure } else { 0 }), control, stage);
            Some(at(stage)? / at(stage - 1)?)
        };
        let ratios: Vec<f64> = matches.iter().filter_map(ratio).collect();
        let mut labels = ring.labels(options);
        labels.extend([("direction", ring.direction().into()), ("size", HISTORY_SIZE.into())]);
        Measurement::compared(case.name(), "ratio", &ratios, labels)
    }
}

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cases = chosen(VringCase::ALL, VringCase::name, &options.case)?;
    let history = cases.contains(&VringCase::OtherSizes) || cases.contains(&VringCase::OtherChains);
    let directions = [true, false].map(|receive| {
        let costs = cases.contains(if receive { &VringCase::Rx } else { &VringCase::Tx });
        (if costs || history { rings(options, receive) } else { Vec::new() }, costs)
    });
    let groups: Vec<RingGroup<'_>> = directions
        .iter()
        .flat_map(|(rings, costs)| rings.chunks(GROUP).map(|rings| RingGroup { rings, costs: *costs, history }))
        .collect();
    if groups.is_empty() {
        return Err(BenchError::NoRing);
    }
    let processes: usize = groups.iter().map(|group| group.tasks(options).len()).sum();
    let mut session = lab.session(options, processes * options.processes);
    let (mut results, mut changes, mut shown) = (Vec::new(), [Vec::new(), Vec::new()], None);
    for group in &groups {
        let turns = group.turns(options);
        let matches = session.matches(options.processes, &turns, &[], |_| group.tasks(options))?;
        let sides = 0..group.rings.len();
        if group.costs {
            let found: Vec<Measurement> = sides.clone().flat_map(|side| group.costs(side, &matches, options)).collect();
            if shown.is_none() {
                let heading = session.heading(Arguments::NAME, options.processes);
                session.show(&heading);
            }
            let direction = group.rings[0].direction();
            session.show(&table(direction, found.iter(), shown.replace(direction) != Some(direction)));
            results.extend(found);
        }
        for (case, changes) in [VringCase::OtherSizes, VringCase::OtherChains].into_iter().zip(&mut changes) {
            if cases.contains(&case) {
                changes.extend(sides.clone().filter_map(|side| group.changed(case, side, &matches, options)));
            }
        }
    }
    if shown.is_none() {
        let heading = session.heading(Arguments::NAME, options.processes);
        session.show(&heading);
    }
    results.extend(changes.into_iter().flatten());
    let mut report = Report::of_turns(Arguments::NAME, session.info(), options.processes, results);
    let notes = spreads(&report.results).into_iter().chain(recovered(&report.results));
    report.notes = notes.chain(conclusion(&report.results)).collect();
    Ok(Finished::new(report, text_after_rows))
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[],
    every: &[
        "packed",
        "mergeable",
        "in-order",
        "event-idx",
        "indirect",
        "offloads",
        "header",
        "chain",
        "size",
        "copies",
        "batch",
    ],
    rows: &[
        CaseRow::of(
            &["rx"],
            "clocks/packet",
            "cost of a device's ring per packet to the driver, including freeing the packet",
        )
        .with(&["free"]),
        CaseRow::of(&["tx"], "clocks/packet", "cost of a device's ring per packet from the driver").with(&["free"]),
        CaseRow::of(
            &["other-sizes"],
            "ratio",
            "the cost for one ring after other packets relative to before, beside a ring without them",
        )
        .with(&["direction"]),
        CaseRow::of(
            &["other-chains"],
            "ratio",
            "the cost for one ring after other chains relative to before, beside a ring without them",
        )
        .with(&["direction"]),
    ],
    labels: &[
        label("packed", LabelKind::Flag, "whether the ring is packed"),
        label("mergeable", LabelKind::Flag, "whether buffers are mergeable"),
        label("in-order", LabelKind::Flag, "whether the device uses buffers in order"),
        label("event-idx", LabelKind::Flag, "whether notifications are suppressed by index"),
        label("indirect", LabelKind::Flag, "whether indirect tables are negotiated"),
        label("offloads", LabelKind::Flag, "whether checksum offloads are negotiated"),
        label("header", LabelKind::Integer, "bytes of the header of a packet: 10 or 12"),
        label(
            "chain",
            LabelKind::Word(&["single", "chained", "indirect"]),
            "the descriptors of a packet: a `single` one; one for the header and one for the data (`chained`); these in an \
             `indirect` table",
        ),
        label(
            "copies",
            LabelKind::Word(&["blitter", "memcpy", "none"]),
            "how the ring copies: by a `blitter`, by `memcpy`, or not at all (`none`)",
        ),
        label("batch", LabelKind::Integer, "packets of a batch"),
        label("free", LabelKind::Decimal, "clocks to free a packet"),
        label("direction", LabelKind::Word(&["rx", "tx"]), "to the driver (`rx`) or from it (`tx`)"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "vring";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 4 --case rx --with packed,in-order \
                                --without event-idx,indirect,offloads,mergeable --chain single --size 60";
    const MORE: &'static [&'static str] =
        &["--processes 1 --rounds 4 --with packed,in-order --without event-idx,indirect,offloads,mergeable --size 60"];
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "loop"], "no case has `loop` in its name; there are rx, tx, other-sizes and other-chains"),
        (&["--with", "warp"], "[possible values: packed, mergeable, in-order, event-idx, indirect, offloads]"),
        (&["--chain", "iron"], "there is no `iron`; give single, chained or indirect"),
        (&["--batch", "129"], "129 is not in 1..=128"),
        (&["--with=packed", "--without=packed"], "none of these chains fits into a ring with these options"),
    ];
    const WORK: RunWorker = |_| workers::take_part(lay_out);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::parsed;

    fn count(options: &Arguments, receive: bool) -> usize {
        rings(options, receive).len()
    }

    #[test]
    fn every_ring_with_its_own_machine_code_is_measured() {
        let single: Arguments = parsed(&["--chain", "single"]);
        // Six options, and three of them with the short header.
        assert_eq!((count(&single, true), count(&single, false)), (64 + 8, 32 + 8));
        let all: Arguments = parsed(&[]);
        assert_eq!(count(&all, true), 2 * 72 + 36);
        for name in option_names() {
            let with = Arguments { with: vec![name.to_owned()], ..single.clone() };
            let without = Arguments { without: vec![name.to_owned()], ..single.clone() };
            assert_eq!(count(&with, true) + count(&without, true), 72, "{name}");
        }
        let labels = |ring: Ring| json!(ring.labels(&single)).to_string();
        let labels: std::collections::BTreeSet<String> = rings(&single, true).into_iter().map(labels).collect();
        assert_eq!(labels.len(), 72, "each has labels of its own");
        let three = Arguments { copies: Copies::ALL.to_vec(), ..single };
        assert_eq!(count(&three, true), 3 * 72);
    }
}

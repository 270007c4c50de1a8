//! One process's measurement: rounds of reference and production that alternate.

use std::collections::BTreeMap;

use bellows_pmu::{Group, Pmu, Reading};
use bellows_sys::clock;
use serde::{Deserialize, Serialize};

use super::bed::{Account, Bed, Books};
use super::{Options, Run};
use crate::callgrind::{self, Counts};
use crate::timing::yardstick;

/// The event that is always counted.
pub(super) const CLOCKS: &str = "clocks";

/// What a packet costs in one run: how often each event happened.
pub type Costs = BTreeMap<String, f64>;

/// What one process found out about one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// What a packet costs.
    pub costs: Costs,
    /// Packets that were measured.
    pub packets: u64,
    /// Packets that came to what is measured, that left it, and that it dropped, by reason.
    pub came: u64,
    /// See `came`.
    pub left: u64,
    /// See `came`.
    pub drops: BTreeMap<String, u64>,
    /// What the instrumented breaths booked, and the packets that came in them.
    pub accounts: Vec<Account>,
    /// See `accounts`.
    pub booked: u64,
}

/// What one process found out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// Without the app, where that can be.
    pub reference: Option<Tally>,
    /// With it.
    pub production: Option<Tally>,
    /// The names of the apps that are measured.
    pub measured: Vec<String>,
    /// How fast the processor ran: clocks of a step of the yardstick.
    pub step: f64,
    /// Why the processor's own counters were not read.
    pub no_pmu: Option<String>,
}

impl Comparison {
    /// With what callgrind counted in one run.
    pub(super) fn counted(mut self, run: Run, counts: &Counts) -> Comparison {
        let tally = match run {
            Run::Reference => &mut self.reference,
            Run::Production => &mut self.production,
        };
        if let Some(tally) = tally {
            let per_packet = |(name, count): (&str, u64)| (name.to_owned(), count as f64 / tally.packets as f64);
            tally.costs = counts.named().map(per_packet).into();
        }
        self
    }

    /// With the run that another process did.
    pub(super) fn joined(self, other: Comparison) -> Comparison {
        Comparison {
            reference: self.reference.or(other.reference),
            production: other.production.or(self.production),
            ..self
        }
    }
}

/// Breaths after which packets that come through at all have come.
const FIRST_BREATHS: u64 = 64;

/// How long packets may take, in nanoseconds.
const PATIENCE: u64 = 500_000_000;

/// Sees whether packets go through; nothing is measured.
pub(super) fn attempt(bed: &mut Bed) -> Result<Comparison, String> {
    let start = clock::now();
    let books = loop {
        bed.engine.breathe_times(FIRST_BREATHS);
        let books = bed.books();
        if verdict(bed, &books).is_none() || clock::now() > start + PATIENCE || books.panicked.is_some() {
            break books;
        }
    };
    verdict(bed, &books).map_or(Ok(Comparison::default()), Err)
}

/// Why what an app does cannot be measured, in a sentence with the way out.
fn verdict(bed: &Bed, books: &Books) -> Option<String> {
    let Books { came, left, waiting, .. } = books;
    let measured = bed.measured.join(" | ");
    let why = if let Some(app) = &books.panicked {
        format!("`{app}` panicked; run it in a network to see where")
    } else if *came == 0 {
        format!(
            "no packet came to `{measured}` within half a second; see that what feeds it sends packets at once and for ever"
        )
    } else if came == waiting {
        format!(
            "`{measured}` takes no packets: all {came} that came wait before it; link the input that it reads with --in, or \
             change its config"
        )
    } else if *left == 0 && books.drops.is_empty() && !bed.is_end() {
        format!(
            "`{measured}` has taken {came} packets and passed none on within half a second, nor dropped any: there is nothing \
             to measure in a steady state; change its config so that packets come out sooner"
        )
    } else {
        return None;
    };
    Some(why)
}

/// How much one round takes, about, in nanoseconds.
const ROUND: u64 = 1_000_000;

/// A process has at least so many rounds, if it has the packets.
const ROUNDS: u64 = 40;

/// Rounds of the live accounting.
const BOOKED_ROUNDS: u64 = 10;

/// What one round counted.
#[derive(Clone, Debug)]
struct Round {
    clocks: u64,
    counts: Vec<f64>,
    packets: u64,
}

impl Round {
    fn clocks_a_packet(&self) -> f64 {
        self.clocks as f64 / self.packets.max(1) as f64
    }
}

/// What counts beside the clock.
struct Meter {
    group: Option<Group>,
    no_pmu: Option<String>,
}

impl Meter {
    fn open() -> Meter {
        match Pmu::probe() {
            Err(why) => Meter { group: None, no_pmu: Some(why.to_string()) },
            Ok(pmu) => match Group::open(pmu.events()) {
                Ok(group) => Meter { group: Some(group), no_pmu: None },
                Err(error) => Meter { group: None, no_pmu: Some(error.to_string()) },
            },
        }
    }

    fn names(&self) -> Vec<&'static str> {
        self.group.iter().flat_map(Group::events).map(|event| event.name()).collect()
    }

    fn reading(&self) -> Option<Reading> {
        self.group.as_ref().map(Group::reading)
    }

    /// One round of so many breaths.
    fn round(&self, bed: &mut Bed, breaths: u64) -> Round {
        bellows_packet::tidy();
        let came = bed.books().came;
        let before = self.reading();
        let start = clock::ticks();
        bed.engine.breathe_times(breaths);
        let clocks = clock::ticks() - start;
        let counts = match (self.reading(), before) {
            (Some(after), Some(before)) => {
                after.since(&before).iter().map(|count| count.map_or(f64::NAN, |count| count as f64)).collect()
            }
            _ => Vec::new(),
        };
        Round { clocks, counts, packets: bed.books().came - came }
    }
}

/// A round of each run, and how fast the processor ran between them.
struct Pair {
    reference: Option<Round>,
    production: Round,
    step: f64,
}

impl Pair {
    fn clocks_a_packet(&self) -> f64 {
        self.production.clocks_a_packet() + self.reference.as_ref().map_or(0.0, Round::clocks_a_packet)
    }
}

/// Measures both runs in turn.
pub(super) fn compare(
    options: &Options,
    mut reference: Option<Bed>,
    mut production: Bed,
) -> Result<Comparison, String> {
    let meter = Meter::open();
    let breaths = breaths(options, reference.as_mut(), &mut production);
    let mut pairs = Vec::new();
    let mut measured = 0;
    while measured < options.packets {
        let step = yardstick();
        let pair = if pairs.len() % 2 == 0 {
            let first = reference.as_mut().map(|bed| meter.round(bed, breaths));
            Pair { reference: first, production: meter.round(&mut production, breaths), step }
        } else {
            let first = meter.round(&mut production, breaths);
            Pair { reference: reference.as_mut().map(|bed| meter.round(bed, breaths)), production: first, step }
        };
        let moved = pair.production.packets.min(pair.reference.as_ref().map_or(u64::MAX, |round| round.packets));
        if moved == 0 {
            let books = production.books();
            let dry = format!("packets ceased to come after {}; let their source send for ever", books.came);
            return Err(verdict(&production, &books).unwrap_or(dry));
        }
        measured += moved;
        pairs.push(pair);
    }
    let names = meter.names();
    let quiet = quieter_half(pairs);
    let (reference_tally, production_tally) = (reference.as_ref().map(tally), tally(&production));
    let accounts = |bed: &mut Bed| {
        let before = bed.books();
        bed.engine.breathe_times(breaths * BOOKED_ROUNDS);
        let after = bed.books();
        let since = |(after, before): (Account, Account)| Account {
            clocks: after.clocks - before.clocks,
            packets: after.packets - before.packets,
            calls: after.calls - before.calls,
            moved: after.moved - before.moved,
            app: after.app,
        };
        let accounts: Vec<Account> = after.accounts.into_iter().zip(before.accounts).map(since).collect();
        (accounts, after.booked - before.booked)
    };
    let fill = |tally: Tally, bed: &mut Bed, rounds: Vec<&Round>| {
        let (accounts, booked) = accounts(bed);
        let packets: u64 = rounds.iter().map(|round| round.packets).sum();
        Tally { costs: costs(&names, &rounds), packets, accounts, booked, ..tally }
    };
    let rounds: Vec<&Round> = quiet.iter().filter_map(|pair| pair.reference.as_ref()).collect();
    let reference = reference.as_mut().zip(reference_tally).map(|(bed, tally)| fill(tally, bed, rounds));
    let rounds: Vec<&Round> = quiet.iter().map(|pair| &pair.production).collect();
    let measured = production.measured.clone();
    let production = fill(production_tally, &mut production, rounds);
    let step = quiet.iter().map(|pair| pair.step).sum::<f64>() / quiet.len() as f64;
    Ok(Comparison { reference, production: Some(production), measured, step, no_pmu: meter.no_pmu })
}

/// The half of the rounds in which reference and production together took least: what disturbs a round makes it longer.
fn quieter_half(mut pairs: Vec<Pair>) -> Vec<Pair> {
    pairs.sort_by(|one, other| one.clocks_a_packet().total_cmp(&other.clocks_a_packet()));
    pairs.truncate(pairs.len().div_ceil(2));
    pairs
}

fn tally(bed: &Bed) -> Tally {
    let Books { came, left, drops, .. } = bed.books();
    Tally { came, left, drops, ..Tally::default() }
}

/// What a packet costs in these rounds.
fn costs(names: &[&str], rounds: &[&Round]) -> Costs {
    let packets: u64 = rounds.iter().map(|round| round.packets).sum();
    let a_packet = |count: f64| count / packets as f64;
    let clocks = a_packet(rounds.iter().map(|round| round.clocks as f64).sum());
    let counted = names.iter().enumerate().map(|(index, name)| {
        let count = rounds.iter().map(|round| round.counts.get(index).copied().unwrap_or(f64::NAN)).sum();
        ((*name).to_owned(), a_packet(count))
    });
    counted.chain([(CLOCKS.to_owned(), clocks)]).collect()
}

/// How many breaths a round has: as many as take about a millisecond in the slower run, and few enough for a good many rounds.
fn breaths(options: &Options, reference: Option<&mut Bed>, production: &mut Bed) -> u64 {
    let mut slowest = 1;
    let mut packets = 1;
    for bed in reference.into_iter().chain([production]) {
        bed.engine.breathe_times(FIRST_BREATHS);
        let came = bed.books().came;
        let start = clock::now();
        bed.engine.breathe_times(FIRST_BREATHS);
        slowest = slowest.max((clock::now() - start) / FIRST_BREATHS);
        packets = packets.max((bed.books().came - came) / FIRST_BREATHS);
    }
    let all = options.packets / packets;
    (ROUND / slowest).clamp(1, (all / ROUNDS).max(1))
}

/// Has callgrind count one run. What comes before is the same each time.
pub(super) fn count(options: &Options, run: Run, mut bed: Bed) -> Result<Comparison, String> {
    bed.engine.breathe_times(FIRST_BREATHS);
    let before = bed.books().came;
    let breaths = options.packets.div_ceil(options.burst as u64);
    callgrind::measured(|| bed.engine.breathe_times(breaths));
    let books = bed.books();
    if let Some(why) = verdict(&bed, &books) {
        return Err(why);
    }
    let tally = Some(Tally { packets: books.came - before, ..tally(&bed) });
    let comparison = Comparison { measured: bed.measured.clone(), ..Comparison::default() };
    Ok(match run {
        Run::Reference => Comparison { reference: tally, ..comparison },
        Run::Production => Comparison { production: tally, ..comparison },
    })
}

//! The measurement of one process: alternating rounds of the baseline and the network with the app.

use std::collections::BTreeMap;

use bellows_engine::TrialResult;
use bellows_packet::pool;
use bellows_pmu::{Group, Pmu, Reading};
use bellows_sys::clock;
use serde::{Deserialize, Serialize};

use super::testbed::{Recording, Testbed, Totals};
use super::{AppbenchOptions, Run};
use crate::callgrind::{self, Counts};
use crate::supply::Footprint;
use crate::timing::{CYCLES_PER_STEP, median_or_nan, quieter_half};
use crate::workers::panicked;

/// The event that is always counted.
pub(super) const CLOCKS: &str = "clocks";

/// Cycles of the core, estimated from the clocks where the processor does not count them.
pub(super) const CYCLES: &str = "estimated_cycles";

/// Events per packet in one network.
pub type Costs = BTreeMap<String, f64>;

/// The results of one process for one network.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Events per packet.
    pub costs: Costs,
    /// The number of measured packets.
    pub packets: u64,
    /// Packets that entered the measured apps.
    pub entered: u64,
    /// Packets that left them.
    pub left: u64,
    /// Packets that they dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Packets that were offered and not accepted in time.
    pub missed: u64,
    /// The records of the sampled breaths.
    pub recorded: Recording,
}

/// The results of one process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// Without the app, if that is possible.
    pub baseline: Option<Tally>,
    /// With the app.
    pub with_app: Option<Tally>,
    /// The names of the measured apps.
    pub measured: Vec<String>,
    /// The memory footprint of a round's packets.
    pub footprint: Option<Footprint>,
    /// The share of breaths in the network with the app in which a packet moved.
    pub busy: f64,
    /// Why the processor's own counters were not read.
    pub no_pmu: Option<String>,
    /// What a trial of look-ahead has found about the measured apps.
    #[serde(default)]
    pub trials: Vec<TrialResult>,
}

impl Comparison {
    /// Adds callgrind's counts of one network.
    pub(super) fn counted(mut self, run: Run, counts: &Counts) -> Comparison {
        let tally = match run {
            Run::Baseline => &mut self.baseline,
            Run::WithApp => &mut self.with_app,
        };
        if let Some(tally) = tally {
            let per_packet = |(name, count): (&str, u64)| (name.to_owned(), count as f64 / tally.packets as f64);
            tally.costs = counts.named().map(per_packet).into();
        }
        self
    }

    /// Adds the network that another process measured.
    pub(super) fn joined(self, other: Comparison) -> Comparison {
        Comparison { baseline: other.baseline.or(self.baseline), with_app: other.with_app.or(self.with_app), ..other }
    }
}

/// Untimed breaths at the start, enough for the first packets to pass.
const FIRST_BREATHS: u64 = 64;

/// How long to wait for packets, in nanoseconds.
const TIMEOUT: u64 = 500_000_000;

/// Checks that packets pass, without measuring.
pub(super) fn dry_run(testbed: &mut Testbed) -> Result<Comparison, String> {
    let start = clock::now();
    let totals = loop {
        testbed.pass(FIRST_BREATHS)?;
        let totals = testbed.totals();
        if unmeasurable(testbed, &totals).is_none() || clock::now() > start + TIMEOUT || totals.panicked.is_some() {
            break totals;
        }
    };
    unmeasurable(testbed, &totals).map_or(Ok(Comparison::default()), Err)
}

/// The reason why an app cannot be measured, with advice; `None` if it can.
fn unmeasurable(testbed: &Testbed, totals: &Totals) -> Option<String> {
    let Totals { entered, left, waiting, .. } = totals;
    let measured = testbed.measured.join(" | ");
    let why = if let Some(app) = &totals.panicked {
        panic_of(app)
    } else if *entered == 0 {
        format!(
            "no packet reached `{measured}` within half a second; make sure that its source starts at once and does \
             not end"
        )
    } else if entered == waiting {
        format!(
            "`{measured}` takes no packets: all {entered} packets wait in its input links; link the input that it \
             reads with --in, or change its config"
        )
    } else if *left == 0
        && 2 * pool::usage().in_use as u64 > entered - totals.dropped().min(*entered)
        && totals.dropped() < *entered
    {
        format!(
            "`{measured}` keeps its packets: it passed on none of {entered} within half a second, so there is no \
             steady state to measure; change its config so that packets come out sooner"
        )
    } else {
        return None;
    };
    Some(why)
}

/// The message and place of an app's panic.
fn panic_of(app: &str) -> String {
    match panicked() {
        Some(panic) => format!("`{app}` panicked: {panic}"),
        None => format!("`{app}` panicked"),
    }
}

/// Fails if an app has panicked, because its figures are meaningless then.
fn check_no_panic(testbed: &Testbed) -> Result<(), String> {
    testbed.totals().panicked.map_or(Ok(()), |app| Err(panic_of(&app)))
}

/// The maximum time that a process measures, in nanoseconds.
const MAX_TIME: u64 = 5_000_000_000;

/// The approximate duration of a round, in nanoseconds.
const ROUND_TIME: u64 = 1_000_000;

/// The minimum number of rounds of a process, if it has enough packets.
const MIN_ROUNDS: u64 = 40;

/// The minimum number of sampled breaths for each network.
const MIN_SAMPLED: u64 = 4;

/// Breaths of a round under a fixed load.
const LOADED_BREATHS: u64 = 10_000;

/// The live accounting is measured with the packets divided by this.
const RECORDED_DIVISOR: u64 = 2;

/// The counts of one round.
#[derive(Clone, Debug, Default)]
struct Round {
    clocks: u64,
    counts: Vec<f64>,
    packets: u64,
    breaths: u64,
    /// Breaths in which a packet moved.
    busy: u64,
}

impl Round {
    fn clocks_per_packet(&self) -> f64 {
        self.clocks as f64 / self.packets.max(1) as f64
    }
}

/// Reads the clock and the event counters.
struct Meter {
    /// The cost of reading the clock twice, in clocks.
    clock_cost: u64,
    group: Option<Group>,
    no_pmu: Option<String>,
}

impl Meter {
    fn open() -> Meter {
        let opened = match Pmu::probe() {
            Err(why) => Err(why.to_string()),
            Ok(pmu) => Group::open(pmu.events()).map_err(|error| error.to_string()),
        };
        let (group, no_pmu) = match opened {
            Ok(group) => (Some(group), None),
            Err(why) => (None, Some(why)),
        };
        Meter { clock_cost: clock::cost(), group, no_pmu }
    }

    fn names(&self) -> Vec<&'static str> {
        self.group.iter().flat_map(Group::events).map(|event| event.name()).collect()
    }

    fn reading(&self) -> Option<Reading> {
        self.group.as_ref().map(Group::reading)
    }

    /// One round of `breaths` breaths, or of the packets that fill as many breaths.
    fn round(&self, testbed: &mut Testbed, breaths: u64) -> Result<Round, String> {
        let mut round = Round { counts: vec![0.0; self.names().len()], ..Round::default() };
        if !testbed.has_rounds() {
            bellows_packet::sort_free_buffers();
            let entered = testbed.totals().entered;
            self.time(&mut round, || testbed.engine.breathe_times(breaths));
            round.breaths = breaths;
            round.packets = testbed.totals().entered - entered;
            return Ok(round);
        }
        let start = clock::now();
        while round.breaths < breaths && clock::now() < start + TIMEOUT {
            let ready = testbed.ready()?;
            let before = round.busy;
            self.time(&mut round, || testbed.send_ready());
            round.breaths += (round.busy - before).max(1);
            round.packets += ready - testbed.left();
        }
        Ok(round)
    }

    /// Adds the cost of some breaths to a round.
    fn time(&self, round: &mut Round, breathe: impl FnOnce() -> u64) {
        let before = self.reading();
        let start = clock::ticks();
        round.busy += breathe();
        round.clocks += (clock::ticks() - start).saturating_sub(self.clock_cost);
        if let (Some(after), Some(before)) = (self.reading(), before) {
            for (sum, count) in round.counts.iter_mut().zip(after.since(&before).iter()) {
                *sum += count.map_or(f64::NAN, |count| count as f64);
            }
        }
    }
}

/// A round of each network, and the processor's speed between them.
struct Pair {
    baseline: Option<Round>,
    with_app: Round,
    step: f64,
}

impl Pair {
    fn clocks_per_packet(&self) -> f64 {
        self.with_app.clocks_per_packet() + self.baseline.as_ref().map_or(0.0, Round::clocks_per_packet)
    }
}

/// Makes the networks of a measurement, with or without sampled breaths.
pub(super) trait TestbedFactory {
    /// Whether there is a baseline.
    fn has_baseline(&self) -> bool;

    /// Makes one network.
    fn make(&self, run: Run, sampling: bool) -> Result<Testbed, String>;

    /// Makes both networks in the given order.
    fn both(&self, sampling: bool, with_app_first: bool) -> Result<(Option<Testbed>, Testbed), String> {
        let baseline = || self.has_baseline().then(|| self.make(Run::Baseline, sampling)).transpose();
        if with_app_first {
            let with_app = self.make(Run::WithApp, sampling)?;
            return Ok((baseline()?, with_app));
        }
        Ok((baseline()?, self.make(Run::WithApp, sampling)?))
    }
}

/// Measures both networks in turn, and then what the live accounting records for them.
pub(super) fn compare(
    options: &AppbenchOptions,
    testbeds: &impl TestbedFactory,
    with_app_first: bool,
) -> Result<Comparison, String> {
    if options.offered.is_some() {
        return load(options.packets(), testbeds, with_app_first);
    }
    let meter = Meter::open();
    let (mut baseline, mut with_app) = testbeds.both(false, with_app_first)?;
    let breaths = breaths(options.packets(), baseline.as_mut(), &mut with_app)?;
    let pairs = alternate(options.packets(), &meter, breaths, baseline.as_mut(), &mut with_app)?;
    baseline.iter().chain([&with_app]).try_for_each(check_no_panic)?;
    let names = meter.names();
    let quiet = quieter_half(pairs, Pair::clocks_per_packet);
    let step = median_or_nan(&quiet.iter().map(|pair| pair.step).collect::<Vec<f64>>());
    let filled = |testbed: &Testbed, rounds: Vec<&Round>| Tally {
        costs: estimated(costs(&names, &rounds), step),
        packets: rounds.iter().map(|round| round.packets).sum(),
        ..tally(testbed)
    };
    let rounds = quiet.iter().filter_map(|pair| pair.baseline.as_ref()).collect();
    let baseline_tally = baseline.as_ref().map(|testbed| filled(testbed, rounds));
    let with_app_tally = filled(&with_app, quiet.iter().map(|pair| &pair.with_app).collect());
    let busy = quiet.iter().map(|pair| pair.with_app.busy).sum::<u64>() as f64 / (breaths * quiet.len() as u64) as f64;
    let footprint = with_app.footprint();
    drop((baseline, with_app));

    let (mut baseline, mut with_app) = testbeds.both(true, with_app_first)?;
    let (in_baseline, in_with_app) =
        record(options.packets() / RECORDED_DIVISOR, breaths, baseline.as_mut(), &mut with_app)?;
    let trials = with_app.try_look_ahead(breaths)?;
    baseline.iter().chain([&with_app]).try_for_each(check_no_panic)?;
    Ok(Comparison {
        trials,
        baseline: baseline_tally.map(|tally| Tally { recorded: in_baseline, ..tally }),
        with_app: Some(Tally { recorded: in_with_app, ..with_app_tally }),
        measured: with_app.measured,
        busy,
        footprint,
        no_pmu: meter.no_pmu,
    })
}

/// What the live accounting records for both networks under a fixed load. Nothing else is measured, because the load
/// fixes the clocks per packet.
fn load(packets: u64, testbeds: &impl TestbedFactory, with_app_first: bool) -> Result<Comparison, String> {
    let (mut baseline, mut with_app) = testbeds.both(true, with_app_first)?;
    let (in_baseline, in_with_app) = record(packets, LOADED_BREATHS, baseline.as_mut(), &mut with_app)?;
    baseline.iter().chain([&with_app]).try_for_each(check_no_panic)?;
    let filled = |testbed: &Testbed, recorded| Tally {
        recorded,
        missed: testbed.missed(),
        packets: testbed.totals().entered,
        ..tally(testbed)
    };
    Ok(Comparison {
        baseline: baseline.as_ref().map(|testbed| filled(testbed, in_baseline)),
        with_app: Some(filled(&with_app, in_with_app)),
        footprint: with_app.footprint(),
        measured: with_app.measured,
        busy: 1.0,
        ..Comparison::default()
    })
}

/// Runs rounds of both networks until each has had its packets or the time is up.
fn alternate(
    packets: u64,
    meter: &Meter,
    breaths: u64,
    mut baseline: Option<&mut Testbed>,
    with_app: &mut Testbed,
) -> Result<Vec<Pair>, String> {
    let mut pairs = Vec::new();
    let (mut measured, start) = (0, clock::now());
    let mut last = start;
    while measured < packets && (clock::now() < start + MAX_TIME || pairs.is_empty()) {
        let step = clock::calibration_step();
        let mut without = || baseline.as_mut().map(|testbed| meter.round(testbed, breaths)).transpose();
        // The first network finds the caches as the other left them, so the order alternates.
        let pair = if pairs.len() % 2 == 0 {
            let first = without()?;
            Pair { baseline: first, with_app: meter.round(with_app, breaths)?, step }
        } else {
            let first = meter.round(with_app, breaths)?;
            Pair { baseline: without()?, with_app: first, step }
        };
        let moved = pair.with_app.packets.min(pair.baseline.as_ref().map_or(u64::MAX, |round| round.packets));
        if moved > 0 {
            measured += moved;
            last = clock::now();
            pairs.push(pair);
        } else if clock::now() > last + TIMEOUT {
            let totals = with_app.totals();
            let ended = format!(
                "the source ended after {} packets; let it repeat (`repeat = \"forever\"` of a pcap-reader), or \
                 measure fewer with --packets",
                totals.entered
            );
            return Err(unmeasurable(with_app, &totals).unwrap_or(ended));
        }
    }
    Ok(pairs)
}

/// What the sampled breaths record for both networks, which run in turn until each has had `packets` packets.
fn record(
    packets: u64,
    breaths: u64,
    baseline: Option<&mut Testbed>,
    with_app: &mut Testbed,
) -> Result<(Recording, Recording), String> {
    let mut testbeds: Vec<&mut Testbed> = baseline.into_iter().chain([with_app]).collect();
    let pass =
        |testbeds: &mut [&mut Testbed], breaths: u64| testbeds.iter_mut().try_for_each(|testbed| testbed.pass(breaths));
    pass(&mut testbeds, FIRST_BREATHS)?;
    let before: Vec<Totals> = testbeds.iter().map(|testbed| testbed.totals()).collect();
    let entered = |testbeds: &[&mut Testbed]| testbeds.last().map_or(u64::MAX, |testbed| testbed.totals().entered);
    let (wanted, start) = (entered(&testbeds) + packets, clock::now());
    let (mut last, mut last_entered) = (start, 0);
    let is_enough = |testbeds: &[&mut Testbed]| {
        let sampled =
            |(testbed, before): (&&mut Testbed, &Totals)| testbed.totals().sampled >= before.sampled + MIN_SAMPLED;
        testbeds.iter().zip(&before).all(sampled)
    };
    while (last_entered < wanted || !is_enough(&testbeds))
        && clock::now() < (start + MAX_TIME / RECORDED_DIVISOR).min(last + TIMEOUT)
    {
        pass(&mut testbeds, breaths)?;
        let so_far = entered(&testbeds);
        if so_far > last_entered {
            (last, last_entered) = (clock::now(), so_far);
        }
    }
    let mut recordings =
        testbeds.iter().zip(&before).map(|(testbed, before)| testbed.totals().recording.since(&before.recording)).rev();
    let with_app = recordings.next().unwrap_or_default();
    Ok((recordings.next().unwrap_or_default(), with_app))
}

fn tally(testbed: &Testbed) -> Tally {
    let Totals { entered, left, drops, .. } = testbed.totals();
    Tally { entered, left, drops, ..Tally::default() }
}

/// Events per packet in these rounds.
fn costs(names: &[&str], rounds: &[&Round]) -> Costs {
    let packets: u64 = rounds.iter().map(|round| round.packets).sum();
    let per_packet = |count: f64| count / packets as f64;
    let clocks = per_packet(rounds.iter().map(|round| round.clocks as f64).sum());
    let counted = names.iter().enumerate().map(|(index, name)| {
        let count = rounds.iter().map(|round| round.counts.get(index).copied().unwrap_or(f64::NAN)).sum();
        ((*name).to_owned(), per_packet(count))
    });
    // An event that was not counted in every round has no sum.
    counted.filter(|(_, cost)| cost.is_finite()).chain([(CLOCKS.to_owned(), clocks)]).collect()
}

/// The approximate number of packets in a round with prepared packets.
const PACKETS_PER_ROUND: u64 = 8_192;

/// Adds estimated cycles of the core if cycles were not counted.
fn estimated(mut costs: Costs, step: f64) -> Costs {
    if let Some(clocks) = costs.get(CLOCKS).copied()
        && cfg!(target_arch = "x86_64")
        && !costs.contains_key("cycles")
        && step > 0.0
    {
        costs.insert(CYCLES.to_owned(), clocks * CYCLES_PER_STEP / step);
    }
    costs
}

/// The number of breaths in a round: about a millisecond of the slower network, but few enough for [`MIN_ROUNDS`]
/// rounds.
fn breaths(packets: u64, baseline: Option<&mut Testbed>, with_app: &mut Testbed) -> Result<u64, String> {
    let mut slowest = 1;
    let mut each = 1;
    for testbed in baseline.into_iter().chain([&mut *with_app]) {
        testbed.pass(FIRST_BREATHS)?;
        let entered = testbed.totals().entered;
        let start = clock::now();
        testbed.pass(FIRST_BREATHS)?;
        slowest = slowest.max((clock::now() - start) / FIRST_BREATHS);
        each = each.max((testbed.totals().entered - entered) / FIRST_BREATHS);
    }
    let most = (packets / each / MIN_ROUNDS).max(1);
    let wanted = if with_app.has_rounds() { PACKETS_PER_ROUND / each } else { ROUND_TIME / slowest };
    Ok(wanted.clamp(1, most))
}

/// Runs one network under callgrind. The untimed start is the same each time.
pub(super) fn count(packets: u64, burst: usize, run: Run, mut testbed: Testbed) -> Result<Comparison, String> {
    testbed.pass(FIRST_BREATHS)?;
    let mut measured = 0;
    if testbed.has_rounds() {
        while measured < packets {
            let ready = testbed.ready()?;
            callgrind::measured(|| testbed.send_ready());
            measured += ready - testbed.left();
            if ready == testbed.left() {
                break;
            }
        }
    } else {
        let before = testbed.totals().entered;
        let breaths = packets.div_ceil(burst as u64);
        callgrind::measured(|| testbed.engine.breathe_times(breaths));
        measured = testbed.totals().entered - before;
    }
    let totals = testbed.totals();
    if let Some(why) = unmeasurable(&testbed, &totals) {
        return Err(why);
    }
    let tally = Some(Tally { packets: measured, ..tally(&testbed) });
    let comparison = Comparison {
        measured: testbed.measured.clone(),
        busy: 1.0,
        footprint: testbed.footprint(),
        ..Comparison::default()
    };
    Ok(match run {
        Run::Baseline => Comparison { baseline: tally, ..comparison },
        Run::WithApp => Comparison { with_app: tally, ..comparison },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(clocks: u64, packets: u64) -> Round {
        Round { clocks, packets, counts: vec![clocks as f64 / 2.0, f64::NAN], breaths: 1, busy: 1 }
    }

    fn pair(baseline: u64, with_app: u64) -> Pair {
        Pair { baseline: Some(round(baseline, 100)), with_app: round(with_app, 100), step: 1.0 }
    }

    #[test]
    fn costs_are_averaged_over_all_packets_of_the_rounds() {
        let rounds = [round(100, 100), round(500, 200)];
        let costs = costs(&["cycles", "l3_misses"], &rounds.iter().collect::<Vec<_>>());
        assert_eq!(costs[CLOCKS], 2.0);
        assert_eq!(costs["cycles"], 1.0);
        assert!(!costs.contains_key("l3_misses"), "it was not counted in every round");
    }

    #[test]
    fn disturbed_rounds_do_not_count() {
        let pairs = vec![pair(200, 240), pair(9_000, 240), pair(201, 241), pair(200, 7_000)];
        let quiet = quieter_half(pairs, Pair::clocks_per_packet);
        let clocks: Vec<u64> = quiet.iter().map(|pair| pair.with_app.clocks).collect();
        assert_eq!(clocks, [240, 241]);
        assert_eq!(quieter_half(vec![pair(1, 2)], Pair::clocks_per_packet).len(), 1, "one is better than none");
    }

    /// Random disturbances of both networks do not look like a difference: choosing the quieter half favours neither.
    #[test]
    fn the_choice_of_rounds_favours_neither_run() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut noisy = || 1_000 + random.u64(0..30) + if random.bool() { random.u64(0..2_000) } else { 0 };
        let (mut baseline, mut with_app) = (0, 0);
        for _ in 0..2_000 {
            for pair in quieter_half((0..40).map(|_| pair(noisy(), noisy())).collect(), Pair::clocks_per_packet) {
                baseline += pair.baseline.as_ref().map_or(0, |round| round.clocks);
                with_app += pair.with_app.clocks;
            }
        }
        let ratio = with_app as f64 / baseline as f64;
        assert!((0.995..1.005).contains(&ratio), "{ratio}");
    }
}

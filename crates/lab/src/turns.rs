//! Processes that are compared live at the same time and take turns.
//!
//! The speed of a machine changes within seconds: other tenants of a host use its caches and its memory, other programs
//! its processors. Two processes that are measured one after the other meet different machines. Therefore all processes of
//! a comparison, its *sides*, are started together, lay out what they measure, and then wait. They take turns of about a
//! millisecond on one processor: the process that started them gives one side its turn, the side works and answers, and the
//! next side follows. Whatever disturbs one side for longer than some milliseconds
//! disturbs the others equally, and the ratio of neighbouring turns is free of it.
//!
//! - *What a turn times.* A turn begins with work that is not timed and that brings the side's memory back into the caches.
//!   The timed part consists of slices of some ten microseconds (`slices`), and the turn's figure is the median slice. A
//!   slice in which the host took the processor away, or in which the kernel ran another program, is much longer
//!   than its neighbours: such a gap in the time-stamp counter does not reach the median, and is added up as *lost*
//!   time. No kernel counter sees the host, and those that exist have ticks of ten milliseconds.
//! - *Which turns count.* A *round* is one turn of each side. Of all rounds the quieter half counts, chosen by the time that
//!   all sides took together, so that the choice favours none of them.
//! - *The order.* Every side goes first as often as every other, and each order occurs forwards and backwards.
//! - *What an interval holds.* Every `Match` has fresh processes, because identical processes differ: their memory lies
//!   elsewhere. A match yields one figure, and the confidence interval is that of the median over the matches.
//! - *Stages.* A figure that may be compared with itself, before and after something happened to one side, is measured in two
//!   stages. The ratio of the sides' ratios is then free of what makes the processes different, too.

use std::process::Command;

use bellows_sys::cpu;
use serde::Serialize;

use crate::audience::Audience;
use crate::machine::Machine;
use crate::report::{Circumstances, Measurement, Overhead, Ratio};
use crate::slices::Turn;
use crate::timing::{middle, quieter_half};
use crate::workers::{ProcessError, Reply, Worker};

/// All that one side did.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Why it took no part.
    pub(crate) refused: Option<String>,
    /// Its turns in each stage.
    stages: Vec<Vec<Turn>>,
}

/// One comparison: fresh processes, which took their turns together.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    pub(crate) sides: Vec<Record>,
    /// The rounds of each stage that count.
    quiet: Vec<Vec<usize>>,
}

impl Match {
    fn of(sides: Vec<Record>, stages: usize) -> Match {
        let quiet = (0..stages).map(|stage| quiet_rounds(&sides, stage)).collect();
        Match { sides, quiet }
    }

    /// A figure of one side in the rounds that count; empty if it took no part.
    fn figures(&self, side: usize, stage: usize, figure: usize) -> Vec<f64> {
        let turns = &self.sides[side].stages[stage];
        self.quiet[stage].iter().filter_map(|&round| turns.get(round)?.figures.get(figure).copied()).collect()
    }

    /// The median of a figure of one side.
    pub(crate) fn figure(&self, side: usize, stage: usize, figure: usize) -> Option<f64> {
        let figures = self.figures(side, stage, figure);
        (!figures.is_empty()).then(|| middle(&figures))
    }

    /// A figure of one side over one of another: the median ratio of turns in the same round. Each is given as (side, figure).
    pub(crate) fn ratio(&self, one: (usize, usize), other: (usize, usize), stage: usize) -> Option<f64> {
        self.compared(one, other, stage, |one, other| one / other)
    }

    /// What is made of two figures: the median of what turns in the same round give.
    fn compared(
        &self,
        one: (usize, usize),
        other: (usize, usize),
        stage: usize,
        of: fn(f64, f64) -> f64,
    ) -> Option<f64> {
        let (ones, others) = (self.figures(one.0, stage, one.1), self.figures(other.0, stage, other.1));
        let both: Vec<f64> = ones.iter().zip(&others).map(|(&one, &other)| of(one, other)).collect();
        (!both.is_empty()).then(|| middle(&both))
    }

    /// The median share of the turns' time that others had.
    pub(crate) fn lost(&self) -> f64 {
        let turns = || self.sides.iter().flat_map(|side| side.stages.iter().flatten());
        let (lost, took) =
            turns().fold((0.0, 0.0), |(lost, took), turn| (lost + turn.lost * turn.took, took + turn.took));
        if took > 0.0 { lost / took } else { 0.0 }
    }
}

/// A figure of the first stage beside its bare loop, which is measured in the same turns by the same side: the loop, the
/// figure over it, and what the engine adds to it.
pub(crate) fn beside_bare_loop(
    found: Measurement,
    matches: &[Match],
    side: usize,
    figure: usize,
    bare: usize,
) -> Measurement {
    let each = |of: &dyn Fn(&Match) -> Option<f64>| matches.iter().filter_map(of).collect::<Vec<f64>>();
    let loops = each(&|found| found.figure(side, 0, bare));
    if loops.is_empty() {
        return found;
    }
    let compared = |of: fn(f64, f64) -> f64| each(&|found| found.compared((side, figure), (side, bare), 0, of));
    let of_reference = Ratio::of(&compared(|one, other| one / other));
    let overhead = Overhead::of(&compared(|one, other| one - other));
    Measurement { reference: Some(middle(&loops)), of_reference, overhead, ..found }
}

/// The half of a stage's rounds in which all sides together took least. Each side counts equally, however long its turns are.
fn quiet_rounds(sides: &[Record], stage: usize) -> Vec<usize> {
    let sides: Vec<(&[Turn], f64)> = sides
        .iter()
        .map(|side| side.stages[stage].as_slice())
        .filter(|turns| !turns.is_empty())
        .map(|turns| (turns, middle(&turns.iter().map(|turn| turn.took).collect::<Vec<f64>>()).max(1.0)))
        .collect();
    let rounds = sides.iter().map(|(turns, _)| turns.len()).min().unwrap_or(0);
    let together = |round: usize| sides.iter().map(|(turns, usual)| turns[round].took / usual).sum::<f64>();
    quieter_half((0..rounds).collect(), |&round| together(round))
}

/// The order of some sides in a round: each goes first in turn, and each order occurs backwards too.
fn order(sides: usize, round: usize) -> impl Iterator<Item = usize> {
    let first = round / 2;
    (0..sides).map(move |place| {
        let place = if round.is_multiple_of(2) { place } else { sides - 1 - place };
        (first + place) % sides
    })
}

/// The comparisons of a benchmark, one after the other.
pub(crate) struct Session<'a> {
    /// Make this program take part in a comparison.
    arguments: &'a [&'a str],
    /// The processor to measure on.
    cpu: Option<usize>,
    audience: &'a mut dyn Audience,
    /// Processes that are done, and all.
    done: usize,
    all: usize,
    /// The share of the time that others had in each match.
    lost: Vec<f64>,
    machine: Option<Machine>,
    interrupted: bool,
}

/// Another program that takes part in a match, by the same [protocol](crate::workers). Its task is `null`.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
}

impl<'a> Session<'a> {
    /// One of so many processes in all.
    pub(crate) fn new(
        arguments: &'a [&'a str],
        cpu: Option<usize>,
        all: usize,
        audience: &'a mut dyn Audience,
    ) -> Session<'a> {
        audience.progress(0, all);
        Session { arguments, cpu, audience, done: 0, all, lost: Vec::new(), machine: None, interrupted: false }
    }

    /// Lets fresh processes do some tasks in so many matches. `tasks` gets the match's number; `turns` is how many turns each
    /// side takes in each stage. Returns the matches that were ended; all, unless the audience has had enough.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub(crate) fn matches<T: Serialize>(
        &mut self,
        processes: usize,
        turns: &[usize],
        peers: &[Peer],
        tasks: impl Fn(usize) -> Vec<T>,
    ) -> Result<Vec<Match>, ProcessError> {
        let mut matches = Vec::new();
        for number in 0..processes {
            if self.is_over() {
                break;
            }
            let tasks = tasks(number);
            let Some(found) = self.one_match(&tasks, peers, turns, number)? else { break };
            self.done += tasks.len() + peers.len();
            self.audience.progress(self.done, self.all);
            self.lost.push(found.lost());
            matches.push(found);
        }
        Ok(matches)
    }

    /// Whether the audience has had enough.
    pub(crate) fn is_over(&mut self) -> bool {
        self.interrupted |= self.audience.is_enough();
        self.interrupted
    }

    /// The machine that the processes found, if there has been one.
    pub(crate) fn machine(&self) -> Machine {
        self.machine.clone().unwrap_or_else(Machine::here)
    }

    /// Shows a finished part of the report to people.
    pub(crate) fn show(&mut self, text: &str) {
        self.audience.show(text);
    }

    pub(crate) fn circumstances(self) -> Circumstances {
        let machine = self.machine();
        let lost = if self.lost.is_empty() { 0.0 } else { middle(&self.lost) };
        Circumstances { machine, lost, interrupted: self.interrupted }
    }

    /// One match, unless the audience had enough before its end.
    fn one_match<T: Serialize>(
        &mut self,
        tasks: &[T],
        peers: &[Peer],
        turns: &[usize],
        number: usize,
    ) -> Result<Option<Match>, ProcessError> {
        let count = tasks.len() + peers.len();
        let mut workers: Vec<Option<Worker>> = (0..count).map(|_| None).collect();
        // Whoever is started first gets other memory: each in turn.
        for index in order(count, number) {
            workers[index] = Some(match tasks.get(index) {
                Some(task) => Worker::start(self.arguments, task)?,
                None => {
                    let Peer { program, arguments } = &peers[index - tasks.len()];
                    Worker::run(Command::new(program).args(arguments), &())?
                }
            });
        }
        let mut workers: Vec<Worker> = workers.into_iter().flatten().collect();
        let mut sides = Vec::new();
        for worker in &mut workers {
            let Reply { machine, outcome } = match worker.reply::<()>(self.audience) {
                Err(ProcessError::Interrupted) => {
                    self.interrupted = true;
                    return Ok(None);
                }
                reply => reply?,
            };
            if let Some(machine) = machine {
                self.machine.get_or_insert(machine);
            }
            sides.push(Record { refused: outcome.err(), stages: vec![Vec::new(); turns.len()] });
        }
        let audience: &dyn Audience = &*self.audience;
        if !take_turns(&mut workers, &mut sides, turns, self.cpu, audience)? {
            self.interrupted = true;
            return Ok(None);
        }
        for (worker, side) in workers.into_iter().zip(&sides) {
            if side.refused.is_none() {
                let said = worker.finish()?;
                if !said.is_empty() {
                    self.audience.said(&said);
                }
            }
        }
        Ok(Some(Match::of(sides, turns.len())))
    }
}

/// Lets all sides take their turns. Says whether they did, or the audience had enough.
///
/// Whoever hands out the turns is on the sides' processor, where waking a side is cheapest: it sleeps while they work.
fn take_turns(
    workers: &mut [Worker],
    sides: &mut [Record],
    turns: &[usize],
    processor: Option<usize>,
    audience: &dyn Audience,
) -> Result<bool, ProcessError> {
    let before = cpu::allowed();
    let pinned = processor.or_else(|| before.last().copied()).is_some_and(|processor| cpu::pin_to(processor).is_ok());
    let result = play(workers, sides, turns, audience);
    if pinned {
        let _ = cpu::allow(&before);
    }
    result
}

fn play(
    workers: &mut [Worker],
    sides: &mut [Record],
    turns: &[usize],
    audience: &dyn Audience,
) -> Result<bool, ProcessError> {
    let takes_part: Vec<bool> = sides.iter().map(|side| side.refused.is_none()).collect();
    for (stage, &turns) in turns.iter().enumerate() {
        if stage > 0 {
            for (worker, _) in workers.iter_mut().zip(&takes_part).filter(|(_, takes_part)| **takes_part) {
                worker.advance()?;
            }
        }
        for round in 0..turns {
            if audience.is_enough() {
                return Ok(false);
            }
            for side in order(workers.len(), round).filter(|&side| takes_part[side]) {
                sides[side].stages[stage].push(workers[side].turn()?);
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(took: f64) -> Turn {
        Turn { figures: vec![took / 10.0], took, lost: 0.0 }
    }

    fn side(turns: &[f64]) -> Record {
        Record { refused: None, stages: vec![turns.iter().copied().map(turn).collect()] }
    }

    #[test]
    fn every_side_goes_first_and_each_order_occurs_backwards() {
        for sides in 1..6 {
            let orders: Vec<Vec<usize>> = (0..2 * sides).map(|round| order(sides, round).collect()).collect();
            for pair in orders.chunks(2) {
                let backwards: Vec<usize> = pair[0].iter().rev().copied().collect();
                assert!(sides == 1 || pair[1] == backwards, "{orders:?}");
            }
            for side in 0..sides {
                assert_eq!(orders.iter().filter(|order| order[0] == side).count(), 2, "{orders:?}");
                assert!(orders.iter().all(|order| order.iter().filter(|&&other| other == side).count() == 1));
            }
        }
    }

    #[test]
    fn disturbed_rounds_do_not_count_and_the_choice_favours_no_side() {
        let disturbed = Match::of(vec![side(&[100.0, 900.0, 102.0, 101.0]), side(&[51.0, 50.0, 300.0, 50.0])], 1);
        assert_eq!(disturbed.quiet, [vec![3, 0]]);
        assert_eq!(disturbed.figure(0, 0, 0), Some(10.05));
        assert_eq!(disturbed.ratio((1, 0), (0, 0), 0), Some((50.0 / 101.0 + 51.0 / 100.0) / 2.0));

        // Sides that are disturbed at random look alike.
        let mut random = fastrand::Rng::with_seed(1);
        let mut noisy = || -> Vec<f64> { (0..2_000).map(|_| 1_000.0 + random.f64().powi(4) * 1_000.0).collect() };
        let alike = Match::of(vec![side(&noisy()), side(&noisy())], 1);
        let ratio = alike.ratio((1, 0), (0, 0), 0).unwrap();
        assert!((0.995..1.005).contains(&ratio), "{ratio}");
    }

    /// What changes the machine's speed by a factor of two, and lasts longer than a round, is no difference between sides.
    #[test]
    fn a_machine_that_changes_its_speed_changes_no_ratio() {
        let mut random = fastrand::Rng::with_seed(2);
        let speeds: Vec<f64> = (0..400).map(|round| if round / 25 % 3 == 0 { 2.0 } else { 1.0 }).collect();
        let mut measured =
            |cost: f64| -> Vec<f64> { speeds.iter().map(|speed| cost * speed * (1.0 + 0.1 * random.f64())).collect() };
        let sides = vec![side(&measured(1_000.0)), side(&measured(1_030.0))];
        let ratio = Match::of(sides, 1).ratio((1, 0), (0, 0), 0).unwrap();
        assert!((1.02..1.04).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_bare_loop_is_subtracted_turn_by_turn() {
        let turn = |engine: f64, bare: f64| Turn { figures: vec![engine, bare], took: engine + bare, lost: 0.0 };
        // A machine that slows down: the figures differ from turn to turn by more than the engine adds.
        let turns = |scale: f64| (0..8).map(|at| scale + f64::from(at)).map(|at| turn(1.5 * at, at)).collect();
        let found = |scale| Match::of(vec![Record { refused: None, stages: vec![turns(scale)] }], 1);
        let figure = Measurement::of("source-sink", "clocks/packet", &[3.0], Vec::new()).unwrap();
        let beside = beside_bare_loop(figure.clone(), &[found(10.0), found(20.0), found(40.0)], 0, 0, 1);
        // Of the quieter half: 11.5, 21.5 and 41.5 in the median.
        assert_eq!((beside.reference, beside.of_reference.map(|ratio| ratio.median)), (Some(21.5), Some(1.5)));
        assert_eq!(beside.overhead, Some(Overhead { median: 10.75, low: 5.75, high: 20.75 }));
        assert_eq!(beside_bare_loop(figure.clone(), &[found(10.0)], 0, 0, 2), figure, "there is no such loop");
    }

    #[test]
    fn a_side_that_was_refused_has_no_figures_and_disturbs_no_other() {
        let found = Match::of(vec![side(&[100.0, 101.0]), side(&[])], 1);
        assert_eq!((found.figure(0, 0, 0), found.figure(1, 0, 0)), (Some(10.0), None));
        assert_eq!(found.ratio((1, 0), (0, 0), 0), None);
    }
}

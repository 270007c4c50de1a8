//! Compares processes that live at the same time and take turns.
//!
//! The speed of a machine changes within seconds: other tenants of a host use its caches and memory, other programs its
//! processors. Two processes that are measured one after the other see different machines. Therefore all processes of a
//! comparison, its *sides*, are started together, lay out their measurement, and then wait. They take turns of about a
//! millisecond on one processor: the benchmark requests a turn from one side, the side works and answers, and the next
//! side follows. A disturbance of more than some milliseconds affects all sides equally, and cancels out in the ratio
//! of neighbouring turns.
//!
//! - *Timing.* A turn begins with untimed work that reloads the side's memory into the caches. The timed part consists
//!   of slices of some ten microseconds (`slices`), and the turn's figure is the median slice. A slice in which the
//!   host took the processor away, or in which the kernel ran another program, is much longer than its neighbours: such
//!   a gap in the time-stamp counter does not affect the median, and is added up as *lost* time. Kernel counters would
//!   not do: none sees the host reliably, and their ticks are ten milliseconds.
//! - *Choice of turns.* A *round* is one turn of each side. Only the quieter half of the rounds counts, chosen by the
//!   time that all sides took together, so that the choice favours none of them.
//! - *Order.* Every side goes first equally often, and each order occurs forwards and backwards.
//! - *Interval.* Every `Match` has fresh processes, because identical processes differ in the placement of their
//!   memory. A match yields one figure, and the confidence interval is that of the median over the matches.
//! - *Stages.* To compare a side with itself before and after an event, its figure is measured in two stages. In the
//!   ratio of the sides' ratios the differences between processes cancel out too. A stage may have some of the sides
//!   alone: one side can be compared with another one in each stage.

use std::collections::HashSet;
use std::process::Command;

use bellows_sys::cpu;
use serde::Serialize;

use crate::audience::Observer;
use crate::machine::Machine;
use crate::report::{BenchError, Measurement, Overhead, Ratio, Report, ReportTable, SessionInfo};
use crate::slices::Turn;
use crate::timing::{median_or_nan, quieter_half};
use crate::workers::{ProcessError, Reply, Worker};

/// The turns of one side.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Why the side could not take part.
    pub(crate) refused: Option<String>,
    /// The turns of each stage.
    stages: Vec<Vec<Turn>>,
}

/// One comparison of fresh processes that took turns.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    pub(crate) sides: Vec<Record>,
    /// The indices of the quieter rounds of each stage, which count.
    quiet: Vec<Vec<usize>>,
}

/// A part of a match: who takes turns, and how many each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stage {
    pub(crate) turns: usize,
    /// The sides; `None` for all.
    pub(crate) sides: Option<Vec<usize>>,
}

impl Stage {
    fn has(&self, side: usize) -> bool {
        self.sides.as_ref().is_none_or(|sides| sides.contains(&side))
    }
}

impl Record {
    /// A side that took these turns in each stage.
    #[cfg(test)]
    pub(crate) fn of(stages: Vec<Vec<Turn>>) -> Record {
        Record { refused: None, stages }
    }
}

impl Match {
    pub(crate) fn of(sides: Vec<Record>, stages: usize) -> Match {
        let quiet = (0..stages).map(|stage| quiet_rounds(&sides, stage)).collect();
        Match { sides, quiet }
    }

    /// A figure of one side in the rounds that count; empty if the side did not take part.
    fn figures(&self, side: usize, stage: usize, figure: usize) -> Vec<f64> {
        let turns = &self.sides[side].stages[stage];
        self.quiet[stage].iter().filter_map(|&round| turns.get(round)?.figures.get(figure).copied()).collect()
    }

    /// The median of a figure of one side.
    pub(crate) fn figure(&self, side: usize, stage: usize, figure: usize) -> Option<f64> {
        let figures = self.figures(side, stage, figure);
        (!figures.is_empty()).then(|| median_or_nan(&figures))
    }

    /// A figure of one side in all rounds of a stage, in their order.
    pub(crate) fn course(&self, side: usize, stage: usize, figure: usize) -> Vec<f64> {
        self.sides[side].stages[stage].iter().filter_map(|turn| turn.figures.get(figure).copied()).collect()
    }

    /// The median ratio of two figures, each given as (side, figure), over turns in the same round.
    pub(crate) fn ratio(&self, one: (usize, usize), other: (usize, usize), stage: usize) -> Option<f64> {
        self.compared(one, other, stage, |one, other| one / other)
    }

    /// The median of a function of two figures, over turns in the same round.
    fn compared(
        &self,
        one: (usize, usize),
        other: (usize, usize),
        stage: usize,
        of: fn(f64, f64) -> f64,
    ) -> Option<f64> {
        let (ones, others) = (self.figures(one.0, stage, one.1), self.figures(other.0, stage, other.1));
        let both: Vec<f64> = ones.iter().zip(&others).map(|(&one, &other)| of(one, other)).collect();
        (!both.is_empty()).then(|| median_or_nan(&both))
    }

    /// The share of the turns' time lost to the host and to other programs.
    pub(crate) fn lost(&self) -> f64 {
        let turns = || self.sides.iter().flat_map(|side| side.stages.iter().flatten());
        let (lost, took) =
            turns().fold((0.0, 0.0), |(lost, took), turn| (lost + turn.lost * turn.took, took + turn.took));
        if took > 0.0 { lost / took } else { 0.0 }
    }
}

/// A figure of one side in the first stage of each match; empty if the side did not take part.
pub(crate) fn figures(matches: &[Match], side: usize, figure: usize) -> Vec<f64> {
    matches.iter().filter_map(|found| found.figure(side, 0, figure)).collect()
}

/// The ratio of two figures, each given as (side, figure), in the first stage of each match.
pub(crate) fn ratios(matches: &[Match], one: (usize, usize), other: (usize, usize)) -> Vec<f64> {
    matches.iter().filter_map(|found| found.ratio(one, other, 0)).collect()
}

/// Adds to a figure of the first stage that of its bare loop, which the same side measures in the same turns: the
/// loop's figure, the ratio and the difference.
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
    Measurement { reference: Some(median_or_nan(&loops)), of_reference, overhead, ..found }
}

/// The half of a stage's rounds with the shortest total time. Each side has equal weight, whatever the length of its
/// turns.
fn quiet_rounds(sides: &[Record], stage: usize) -> Vec<usize> {
    let sides: Vec<(&[Turn], f64)> = sides
        .iter()
        .map(|side| side.stages[stage].as_slice())
        .filter(|turns| !turns.is_empty())
        .map(|turns| (turns, median_or_nan(&turns.iter().map(|turn| turn.took).collect::<Vec<f64>>()).max(1.0)))
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
pub(crate) struct MatchSession<'a> {
    /// The arguments that make this program a worker.
    arguments: Vec<&'a str>,
    /// The processor to measure on.
    cpu: Option<usize>,
    observer: &'a mut dyn Observer,
    /// The number of finished processes, and of all.
    done: usize,
    all: usize,
    /// The share of lost time in each match.
    lost: Vec<f64>,
    machine: Option<Machine>,
    /// What finished processes have said.
    said: HashSet<String>,
    interrupted: bool,
}

/// Another program that takes part in a match with the same [protocol](crate::workers). Its task is `null`.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
}

impl<'a> MatchSession<'a> {
    /// A session with `all` processes in total.
    pub(crate) fn new(
        arguments: Vec<&'a str>,
        cpu: Option<usize>,
        all: usize,
        observer: &'a mut dyn Observer,
    ) -> MatchSession<'a> {
        observer.progress(0, all);
        MatchSession {
            arguments,
            cpu,
            observer,
            done: 0,
            all,
            lost: Vec::new(),
            machine: None,
            said: HashSet::new(),
            interrupted: false,
        }
    }

    /// Runs `processes` matches of fresh processes. `tasks` gets the match's number; `turns` is the number of turns of
    /// each side in each stage. Returns the finished matches, which are all unless the benchmark is interrupted.
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
        let stages: Vec<Stage> = turns.iter().map(|&turns| Stage { turns, sides: None }).collect();
        self.staged(processes, peers, |number| (tasks(number), stages.clone()))
    }

    /// Runs `processes` matches of fresh processes. `plan` gets the match's number, and returns the tasks of its sides and
    /// its stages, as many in each match. Returns the finished matches as [`MatchSession::matches`] does.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub(crate) fn staged<T: Serialize>(
        &mut self,
        processes: usize,
        peers: &[Peer],
        plan: impl Fn(usize) -> (Vec<T>, Vec<Stage>),
    ) -> Result<Vec<Match>, ProcessError> {
        let mut matches = Vec::new();
        for number in 0..processes {
            if self.is_over() {
                break;
            }
            let (tasks, stages) = plan(number);
            let Some(found) = self.one_match(&tasks, peers, &stages, number)? else { break };
            self.done += tasks.len() + peers.len();
            self.observer.progress(self.done, self.all);
            self.lost.push(found.lost());
            matches.push(found);
        }
        Ok(matches)
    }

    /// Whether the benchmark has been interrupted.
    pub(crate) fn is_over(&mut self) -> bool {
        self.interrupted |= self.observer.should_stop();
        self.interrupted
    }

    /// The machine, as a worker reported it, or as this process sees it.
    pub(crate) fn machine(&self) -> Machine {
        self.machine.clone().unwrap_or_else(Machine::here)
    }

    /// The heading of the text report, if a figure is taken from this number of processes.
    pub(crate) fn heading(&self, bench: &str, processes: usize) -> String {
        Report::new(bench, self.machine(), processes, Vec::new()).heading()
    }

    /// Shows a finished part of the text report.
    pub(crate) fn show(&mut self, text: &str) {
        self.observer.show(text);
    }

    pub(crate) fn info(self) -> SessionInfo {
        let machine = self.machine();
        let lost = if self.lost.is_empty() { 0.0 } else { median_or_nan(&self.lost) };
        SessionInfo { machine, lost, interrupted: self.interrupted }
    }

    /// Runs one match. `None` if it was interrupted.
    fn one_match<T: Serialize>(
        &mut self,
        tasks: &[T],
        peers: &[Peer],
        stages: &[Stage],
        number: usize,
    ) -> Result<Option<Match>, ProcessError> {
        let count = tasks.len() + peers.len();
        let mut workers: Vec<Option<Worker>> = (0..count).map(|_| None).collect();
        // The order of starting affects the placement of memory, so it rotates.
        for index in order(count, number) {
            workers[index] = Some(match tasks.get(index) {
                Some(task) => Worker::start(&self.arguments, task)?,
                None => {
                    let Peer { program, arguments } = &peers[index - tasks.len()];
                    Worker::run(Command::new(program).args(arguments), &())?
                }
            });
        }
        let mut workers: Vec<Worker> = workers.into_iter().flatten().collect();
        let mut sides = Vec::new();
        for worker in &mut workers {
            let Reply { machine, outcome } = match worker.reply::<()>(self.observer) {
                Err(ProcessError::Interrupted) => {
                    self.interrupted = true;
                    return Ok(None);
                }
                reply => reply?,
            };
            if let Some(machine) = machine {
                self.machine.get_or_insert(machine);
            }
            sides.push(Record { refused: outcome.err(), stages: vec![Vec::new(); stages.len()] });
        }
        let observer: &dyn Observer = &*self.observer;
        if !take_turns(&mut workers, &mut sides, stages, self.cpu, observer)? {
            self.interrupted = true;
            return Ok(None);
        }
        for (worker, side) in workers.into_iter().zip(&sides) {
            if side.refused.is_none() {
                let said = worker.finish()?;
                // The processes of all matches say the same.
                if !said.is_empty() && self.said.insert(said.clone()) {
                    self.observer.worker_stderr(&said);
                }
            }
        }
        Ok(Some(Match::of(sides, stages.len())))
    }
}

/// Groups of processes that take turns, one group after the other. The figures of each are rows of one table, which are
/// shown as soon as they are known.
pub(crate) struct Series<'a> {
    /// The name of the benchmark in the report.
    pub(crate) bench: &'a str,
    session: MatchSession<'a>,
    /// Matches of a group.
    processes: usize,
    table: ReportTable,
    results: Vec<Measurement>,
}

impl<'a> Series<'a> {
    pub(crate) fn new(bench: &'a str, processes: usize, session: MatchSession<'a>) -> Series<'a> {
        Series { bench, session, processes, table: ReportTable::default(), results: Vec::new() }
    }

    /// Runs the matches of a group, as [`MatchSession::matches`] does, and shows the figures that `summarise` finds in them.
    ///
    /// # Errors
    /// See [`ProcessError`].
    pub(crate) fn group<T: Serialize>(
        &mut self,
        turns: &[usize],
        peers: &[Peer],
        tasks: impl Fn(usize) -> Vec<T>,
        summarise: impl FnOnce(&[Match]) -> Vec<Measurement>,
    ) -> Result<Vec<Match>, ProcessError> {
        let matches = self.session.matches(self.processes, turns, peers, tasks)?;
        let found = summarise(&matches);
        self.session.show(&self.table.part(self.bench, self.session.machine(), self.processes, &found));
        self.results.extend(found);
        Ok(matches)
    }

    /// The report of all figures.
    pub(crate) fn report(self) -> Report {
        Report::of_turns(self.bench, self.session.info(), self.processes, self.results)
    }

    /// The report, which notes why sides were refused.
    ///
    /// # Errors
    /// When there is no figure, because all sides were refused or the benchmark was interrupted.
    pub(crate) fn report_without(self, mut refused: Vec<String>) -> Result<Report, BenchError> {
        if self.results.is_empty() {
            return Err(refused.pop().map_or(ProcessError::Interrupted.into(), BenchError::Refused));
        }
        Ok(Report { notes: refused, ..self.report() })
    }
}

/// Lets all sides take their turns. Returns false if interrupted.
///
/// The calling thread runs on the sides' processor, where waking a side is cheapest. It sleeps while they work.
fn take_turns(
    workers: &mut [Worker],
    sides: &mut [Record],
    stages: &[Stage],
    processor: Option<usize>,
    observer: &dyn Observer,
) -> Result<bool, ProcessError> {
    let before = cpu::allowed();
    let pinned = processor.or_else(|| before.last().copied()).is_some_and(|processor| cpu::pin_to(processor).is_ok());
    let result = run_rounds(workers, sides, stages, observer);
    if pinned {
        let _ = cpu::allow(&before);
    }
    result
}

fn run_rounds(
    workers: &mut [Worker],
    sides: &mut [Record],
    stages: &[Stage],
    observer: &dyn Observer,
) -> Result<bool, ProcessError> {
    let takes_part: Vec<bool> = sides.iter().map(|side| side.refused.is_none()).collect();
    let mut has_begun = vec![false; workers.len()];
    for (number, stage) in stages.iter().enumerate() {
        for side in (0..workers.len()).filter(|&side| takes_part[side] && stage.has(side)) {
            // The first stage of a side begins as it was laid out.
            if std::mem::replace(&mut has_begun[side], true) {
                workers[side].advance()?;
            }
        }
        for round in 0..stage.turns {
            if observer.should_stop() {
                return Ok(false);
            }
            for side in order(workers.len(), round).filter(|&side| takes_part[side] && stage.has(side)) {
                sides[side].stages[number].push(workers[side].turn()?);
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
        Record::of(vec![turns.iter().copied().map(turn).collect()])
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

    /// A change of the machine's speed by a factor of two that lasts longer than a round does not look like a
    /// difference.
    #[test]
    fn a_change_of_the_machines_speed_changes_no_ratio() {
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
    fn a_refused_side_has_no_figures_and_disturbs_no_other() {
        let found = Match::of(vec![side(&[100.0, 101.0]), side(&[])], 1);
        assert_eq!((found.figure(0, 0, 0), found.figure(1, 0, 0)), (Some(10.0), None));
        assert_eq!(found.ratio((1, 0), (0, 0), 0), None);
    }
}

//! Processes that are compared live at the same time and take turns.
//!
//! The speed of a machine changes within seconds: other tenants of a host use its caches and its memory, other programs
//! its processors. Two processes that are measured one after the other meet different machines. Therefore all processes of
//! a comparison, its *sides*, are started together, lay out what they measure, and then wait. They take turns of about a
//! millisecond on one processor: the process that started them writes a line to one side's standard input, the side works
//! and answers with a line, and the next side follows. Whatever disturbs one side for longer than some milliseconds
//! disturbs the others equally, and the ratio of neighbouring turns is free of it.
//!
//! - *What a turn times.* A turn begins with work that is not timed and that brings the side's memory back into the caches.
//!   The timed part consists of slices of some ten microseconds (`sliced`), and the turn's figure is the median slice. A
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

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command};
use std::thread::JoinHandle;

use bellows_sys::{clock, cpu};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::processes::{Audience, ProcessError, collected, measuring, this_program};
use crate::report::Machine;
use crate::timing::{middle, quieter_half};

/// What one side did in one turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// What it measured.
    pub figures: Vec<f64>,
    /// How long all that was timed took, in clocks.
    pub took: f64,
    /// The share of that which others had.
    pub lost: f64,
}

impl Turn {
    /// The figures of a turn that consisted of these parts.
    pub(crate) fn of(figures: Vec<f64>, parts: &[Sliced]) -> Turn {
        let took: f64 = parts.iter().map(|part| part.took).sum();
        let lost = parts.iter().map(|part| part.lost).sum::<f64>() / took.max(1.0);
        Turn { figures, took, lost }
    }
}

/// What some slices of the same work took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sliced {
    /// Clocks of a unit of work, in the median slice.
    pub(crate) clocks: f64,
    /// Clocks of all slices.
    took: f64,
    /// Clocks by which slices were longer that took more than twice as long as the median.
    lost: f64,
}

impl Sliced {
    /// Of slices of so many units of work, which took so many clocks.
    pub(crate) fn of(slices: &[(u64, f64)]) -> Sliced {
        let each = |&(units, clocks): &(u64, f64)| clocks / units as f64;
        let clocks = middle(&slices.iter().map(each).collect::<Vec<f64>>());
        let long = slices.iter().filter(|slice| each(slice) > 2.0 * clocks);
        let lost = long.map(|&(units, took)| took - clocks * units as f64).sum();
        Sliced { clocks, took: slices.iter().map(|(_, took)| took).sum(), lost }
    }
}

/// Times some slices of the same work.
pub(crate) fn sliced(slices: usize, mut slice: impl FnMut()) -> Sliced {
    sliced_units(slices.max(1) as u64, slices.max(1), |_| slice())
}

/// Times some units of work in so many slices. Those that have nothing to do are left out.
pub(crate) fn sliced_units(units: u64, slices: usize, mut work: impl FnMut(u64)) -> Sliced {
    let cost = clock::cost();
    let slices = slices as u64;
    let times: Vec<(u64, f64)> = (0..slices)
        .map(|slice| units * (slice + 1) / slices - units * slice / slices)
        .filter(|units| *units > 0)
        .map(|units| {
            let start = clock::ticks();
            work(units);
            (units, (clock::ticks() - start).saturating_sub(cost) as f64)
        })
        .collect();
    Sliced::of(&times)
}

/// One side of a comparison, laid out and warm, in a process of its own.
pub trait Side {
    /// Takes a turn.
    fn turn(&mut self) -> Turn;

    /// Does what lies between two stages.
    fn advance(&mut self) {}

    /// Ends.
    ///
    /// # Errors
    /// What makes all that was measured worthless.
    fn finish(self: Box<Self>) -> Result<(), String> {
        Ok(())
    }
}

/// What a side says first: on which machine it is, or why it cannot take part.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    machine: Machine,
    refused: Option<String>,
}

const TURN: &str = "turn";
const ADVANCE: &str = "advance";

/// Takes part in a comparison, in a process of its own: reads the task from standard input, lays out what it asks for, and takes a
/// turn whenever it is told to, until standard input ends.
///
/// # Errors
/// When the task cannot be read or an answer not be written.
pub fn take_part<T: DeserializeOwned>(
    lay_out: impl FnOnce(T) -> Result<Box<dyn Side>, String>,
) -> Result<(), std::io::Error> {
    let mut lines = std::io::stdin().lock().lines();
    let Some(task) = lines.next() else { return Ok(()) };
    let mut answers = std::io::stdout().lock();
    let laid_out = lay_out(serde_json::from_str(&task?)?);
    let refused = laid_out.as_ref().err().cloned();
    say(&mut answers, &Greeting { machine: Machine::here(), refused })?;
    let Ok(mut side) = laid_out else { return Ok(()) };
    for line in lines {
        match line?.as_str() {
            ADVANCE => {
                side.advance();
                say(&mut answers, &())?;
            }
            _ => say(&mut answers, &side.turn())?,
        }
    }
    let ended: Result<(), String> = side.finish();
    say(&mut answers, &ended)
}

fn say(answers: &mut impl Write, answer: &impl Serialize) -> Result<(), std::io::Error> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    answers.write_all(&line)?;
    answers.flush()
}

/// A side as the process sees it that lets it take turns.
struct Player {
    child: Child,
    /// Closed to end it.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// What it writes to its standard error.
    said: Option<JoinHandle<String>>,
}

impl Player {
    fn start(mut command: Command, task: &str) -> Result<Player, ProcessError> {
        let mut child = measuring(&mut command)?;
        let (orders, answers, errors) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(answers), Some(errors)) = (answers, errors) else { unreachable!("both are pipes") };
        let said = Some(collected(errors));
        let mut player = Player { child, orders, answers: BufReader::new(answers), said };
        player.order(task);
        Ok(player)
    }

    /// Sends a line. A side that has ended is noticed when it does not answer.
    fn order(&mut self, order: &str) {
        if let Some(orders) = &mut self.orders {
            let _ = orders.write_all(format!("{order}\n").as_bytes()).and_then(|()| orders.flush());
        }
    }

    fn answer<A: DeserializeOwned>(&mut self) -> Result<A, ProcessError> {
        let mut line = String::new();
        match self.answers.read_line(&mut line) {
            Ok(length) if length > 0 => serde_json::from_str(&line).map_err(ProcessError::Answer),
            _ => Err(self.failure()),
        }
    }

    /// Why there is no answer.
    fn failure(&mut self) -> ProcessError {
        self.orders = None;
        match self.child.wait() {
            Ok(status) => ProcessError::Failed(status, self.said()),
            Err(error) => ProcessError::Start("a measuring process".into(), error),
        }
    }

    fn said(&mut self) -> String {
        self.said.take().and_then(|said| said.join().ok()).unwrap_or_default().trim().to_owned()
    }

    /// Ends it. Returns what it wrote to its standard error.
    fn finish(mut self) -> Result<String, ProcessError> {
        self.orders = None;
        let ended: Result<(), String> = self.answer()?;
        match (self.child.wait(), ended) {
            (Ok(status), Ok(())) if status.success() => Ok(self.said()),
            (Ok(status), ended) => {
                let said = self.said();
                Err(ProcessError::Failed(status, ended.err().unwrap_or(said)))
            }
            (Err(error), _) => Err(ProcessError::Start("a measuring process".into(), error)),
        }
    }
}

impl Drop for Player {
    /// One that has not ended by itself has nobody left to work for.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

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
        let (ones, others) = (self.figures(one.0, stage, one.1), self.figures(other.0, stage, other.1));
        let ratios: Vec<f64> = ones.iter().zip(&others).map(|(one, other)| one / other).collect();
        (!ratios.is_empty()).then(|| middle(&ratios))
    }

    /// The median share of the turns' time that others had.
    pub(crate) fn lost(&self) -> f64 {
        let turns = || self.sides.iter().flat_map(|side| side.stages.iter().flatten());
        let (lost, took) =
            turns().fold((0.0, 0.0), |(lost, took), turn| (lost + turn.lost * turn.took, took + turn.took));
        if took > 0.0 { lost / took } else { 0.0 }
    }
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

/// What a session found out beside figures.
pub(crate) struct Circumstances {
    pub(crate) machine: Machine,
    /// The share of the measured time that others had.
    pub(crate) lost: f64,
    /// Whether it ended before all was measured.
    pub(crate) interrupted: bool,
}

/// Another program that takes part in a match, by the same lines.
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
        let program = this_program()?;
        let count = tasks.len() + peers.len();
        let mut players: Vec<Option<Player>> = (0..count).map(|_| None).collect();
        // Whoever is started first gets other memory: each in turn.
        for index in order(count, number) {
            let player = match tasks.get(index) {
                Some(task) => {
                    let mut command = Command::new(&program);
                    command.args(self.arguments);
                    Player::start(command, &serde_json::to_string(task).map_err(ProcessError::Answer)?)?
                }
                None => {
                    let Peer { program, arguments } = &peers[index - tasks.len()];
                    let mut command = Command::new(program);
                    command.args(arguments);
                    Player::start(command, "begin")?
                }
            };
            players[index] = Some(player);
        }
        let mut players: Vec<Player> = players.into_iter().flatten().collect();
        let mut sides = Vec::new();
        for (index, player) in players.iter_mut().enumerate() {
            let refused = match tasks.get(index) {
                Some(_) => {
                    let Greeting { machine, refused } = player.answer()?;
                    self.machine.get_or_insert(machine);
                    refused
                }
                None => player.answer::<()>().map(|()| None)?,
            };
            sides.push(Record { refused, stages: vec![Vec::new(); turns.len()] });
        }
        let audience: &dyn Audience = &*self.audience;
        if !take_turns(&mut players, &mut sides, turns, self.cpu, audience)? {
            self.interrupted = true;
            return Ok(None);
        }
        for (player, side) in players.into_iter().zip(&sides) {
            if side.refused.is_none() {
                let said = player.finish()?;
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
    players: &mut [Player],
    sides: &mut [Record],
    turns: &[usize],
    processor: Option<usize>,
    audience: &dyn Audience,
) -> Result<bool, ProcessError> {
    let before = cpu::allowed();
    let pinned = processor.or_else(|| before.last().copied()).is_some_and(|processor| cpu::pin_to(processor).is_ok());
    let result = play(players, sides, turns, audience);
    if pinned {
        let _ = cpu::allow(&before);
    }
    result
}

fn play(
    players: &mut [Player],
    sides: &mut [Record],
    turns: &[usize],
    audience: &dyn Audience,
) -> Result<bool, ProcessError> {
    let takes_part: Vec<bool> = sides.iter().map(|side| side.refused.is_none()).collect();
    for (stage, &turns) in turns.iter().enumerate() {
        if stage > 0 {
            for (player, _) in players.iter_mut().zip(&takes_part).filter(|(_, takes_part)| **takes_part) {
                player.order(ADVANCE);
                player.answer::<()>()?;
            }
        }
        for round in 0..turns {
            if audience.is_enough() {
                return Ok(false);
            }
            for side in order(players.len(), round).filter(|&side| takes_part[side]) {
                players[side].order(TURN);
                sides[side].stages[stage].push(players[side].answer()?);
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
    fn time_that_others_had_does_not_reach_the_median_slice() {
        let mut slices = vec![(1, 100.0); 30];
        slices.extend([(1, 5_000.0), (2, 410.0), (1, 110.0)]);
        let sliced = Sliced::of(&slices);
        assert_eq!((sliced.clocks, sliced.lost), (100.0, 4_900.0 + 210.0));
        let turn = Turn::of(vec![sliced.clocks], &[sliced, Sliced::of(&[(1, 100.0); 10])]);
        assert_eq!(turn.took, 3_000.0 + 5_520.0 + 1_000.0);
        assert!((turn.lost - 5_110.0 / 9_520.0).abs() < 1e-12);
    }

    #[test]
    fn every_slice_is_worked_off() {
        let mut worked = 0;
        assert!(sliced(7, || worked += 1).clocks >= 0.0);
        assert_eq!(worked, 7);
        let mut slices = Vec::new();
        sliced_units(7, 3, |units| slices.push(units));
        assert_eq!(slices, [2, 2, 3]);
        slices.clear();
        sliced_units(2, 20, |units| slices.push(units));
        assert_eq!(slices, [1, 1]);
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
    fn a_side_that_was_refused_has_no_figures_and_disturbs_no_other() {
        let found = Match::of(vec![side(&[100.0, 101.0]), side(&[])], 1);
        assert_eq!((found.figure(0, 0, 0), found.figure(1, 0, 0)), (Some(10.0), None));
        assert_eq!(found.ratio((1, 0), (0, 0), 0), None);
    }
}

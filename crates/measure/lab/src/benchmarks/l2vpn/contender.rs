//! The processes that measure; among them an end with a history of phases.

use std::time::Duration;

use bellows_engine::Schedule;
use bellows_packet::{pool, sort_free_buffers};
use bellows_sys::clock;
use serde::{Deserialize, Serialize};

use super::ends::Ends;
use super::part;
use super::phases::{self, Phase, PhaseDirection, Size};
use crate::slices::{Turn, sliced};
use crate::workers::{Contender, fail, settle};

/// Breaths in a slice, timed slices of a turn, and untimed ones before them to reload the caches.
const BREATHS: usize = 2;
pub(super) const SLICES: usize = 20;
pub(super) const WARM_UP: usize = 8;

/// Breaths of a phase before it is measured.
const BEFORE: usize = 96;

/// Buffers, of which the packets of a turn need some that are made in advance.
const BUFFERS: usize = 32_768;

/// The work of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum L2vpnWork {
    Visit(PhaseTask),
    Part(part::PartTask),
}

/// A visit to phases.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PhaseTask {
    /// The phases to go through, as places in [`phases::ALL`].
    pub(super) phases: Vec<usize>,
    /// Seconds without traffic before the first phase.
    pub(super) idle_seconds: f64,
    pub(super) schedule: Schedule,
    pub(super) cpu: Option<usize>,
}

/// Lays out the work of one process.
///
/// # Errors
/// If the end does not get ready.
pub(super) fn lay_out(work: L2vpnWork) -> Result<Box<dyn Contender>, String> {
    settle(match &work {
        L2vpnWork::Visit(task) => task.cpu,
        L2vpnWork::Part(task) => task.cpu,
    });
    let buffers = pool::Config { packets: BUFFERS, ..pool::Config::default() };
    pool::init(buffers).unwrap_or_else(|error| fail(&error));
    Ok(match work {
        L2vpnWork::Visit(task) => Box::new(Visit::new(&task)?),
        L2vpnWork::Part(task) => Box::new(part::MeasuredPart::new(&task)?),
    })
}

/// An end that goes through phases.
struct Visit {
    ends: Ends,
    phases: Vec<Phase>,
    /// The place of the phase that runs.
    at: usize,
    /// Packets that it has had, and those that had arrived before it.
    sent: usize,
    arrived_before: u64,
    /// Packets dropped before the first phase, when the ends met, and frames flooded before the current one.
    dropped_before: u64,
    flooded_before: u64,
    /// What went wrong.
    failure: Option<String>,
}

impl Visit {
    fn new(task: &PhaseTask) -> Result<Visit, String> {
        let phases: Vec<Phase> = task.phases.iter().map(|&place| phases::at(place)).collect::<Result<_, _>>()?;
        let mut ends = Ends::new(task.schedule, |_| Ok(&[]))?;
        let end = clock::now() + Duration::from_secs_f64(task.idle_seconds).as_nanos() as u64;
        while clock::now() < end {
            ends.breathe(BREATHS * SLICES);
        }
        let dropped_before = ends.snapshot().dropped();
        let mut visit =
            Visit { ends, phases, at: 0, sent: 0, arrived_before: 0, dropped_before, flooded_before: 0, failure: None };
        visit.begin();
        Ok(visit)
    }

    /// Begins the phase at the current place.
    fn begin(&mut self) {
        let Some(&phase) = self.phases.get(self.at) else { return };
        self.ends.learn(phase);
        self.arrived_before = self.arrived(phase);
        self.flooded_before = self.flooded();
        self.ends.begin(phase, phase.packets());
        self.ends.prepare(BEFORE);
        self.sent = self.ends.breathe(BEFORE);
        // As the engine does, but less often than phases change here.
        sort_free_buffers();
    }

    /// Packets that have left by the port to which most of a phase's go.
    fn arrived(&self, phase: Phase) -> u64 {
        let port = if phase.direction == PhaseDirection::Encap { "uplink" } else { phase.wire.circuit() };
        let name = format!("to-{port}.input");
        self.ends.snapshot().links.iter().filter(|link| link.to == name).map(|link| link.packets).sum()
    }

    /// Frames that the bridge has flooded, because it does not know their station.
    fn flooded(&self) -> u64 {
        let apps = self.ends.snapshot().apps;
        apps.iter().filter_map(|app| app.counters.get("flooded")).sum()
    }

    /// Checks that the packets of the phase have arrived, and nowhere else.
    fn check(&mut self) {
        let Some(&phase) = self.phases.get(self.at) else { return };
        let [from_circuit, from_tunnel] = phase.packets();
        let share = |packets: usize| self.sent * packets / (from_circuit + from_tunnel);
        let expected = match phase.direction {
            PhaseDirection::Encap => share(from_circuit),
            // Two fragments are one frame.
            PhaseDirection::Decap if phase.size == Size::Fragmented => share(from_tunnel) / 2,
            PhaseDirection::Decap => share(from_tunnel),
        };
        self.ends.pause();
        self.ends.breathe(BREATHS * SLICES);
        let arrived = self.arrived(phase) - self.arrived_before;
        // A station may have no place in a table whose part for it is full.
        let allowed = self.sent as u64 / 200;
        let (snapshot, flooded) = (self.ends.snapshot(), self.flooded() - self.flooded_before);
        if arrived < expected as u64 || snapshot.dropped() > self.dropped_before || flooded > allowed {
            let drops =
                snapshot.apps.iter().flat_map(|app| app.drops.iter().map(move |(why, count)| (app, why, count)));
            let drops = drops.filter(|(.., count)| **count > 0);
            let drops: Vec<String> = drops.map(|(app, why, count)| format!("{} {why} {count}", app.name)).collect();
            let (name, drops) = (phase.name(), drops.join(", "));
            let arrived = format!("{arrived} of {expected} packets arrived, {flooded} frames were flooded");
            self.failure.get_or_insert(format!("{name}: {arrived}; dropped: {drops}"));
        }
    }
}

impl Contender for Visit {
    fn turn(&mut self) -> Turn {
        self.ends.prepare(BREATHS * (WARM_UP + SLICES));
        let warm_up = self.ends.breathe(BREATHS * WARM_UP);
        let mut packets = 0;
        let time = sliced(SLICES, || packets += self.ends.breathe(BREATHS));
        self.sent += warm_up + packets;
        Turn::of(vec![time.clocks / (packets as f64 / SLICES as f64)], &[time])
    }

    fn advance(&mut self) {
        self.check();
        self.at += 1;
        self.begin();
    }

    fn finish(mut self: Box<Self>) -> Result<(), String> {
        self.check();
        self.failure.take().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(phases: Vec<usize>) -> PhaseTask {
        PhaseTask { phases, idle_seconds: 0.0, schedule: Schedule::default(), cpu: None }
    }

    /// In each phase, all packets arrive where they should, after all others.
    #[test]
    fn an_end_goes_through_all_phases_and_loses_nothing() {
        let mut visit = Box::new(Visit::new(&task((0..phases::ALL.len()).collect())).unwrap());
        for place in 0..phases::ALL.len() {
            if place > 0 {
                visit.advance();
            }
            assert_eq!(visit.at, place);
            assert!(visit.turn().figures[0] > 0.0);
            assert_eq!(visit.failure, None);
        }
        assert_eq!(visit.finish(), Ok(()));
    }

    #[test]
    fn packets_that_do_not_arrive_are_told() {
        let mut visit = Box::new(Visit::new(&task(vec![0])).unwrap());
        visit.turn();
        visit.sent += 1_000_000;
        let error = visit.finish().unwrap_err();
        assert!(error.starts_with("encap-ip6-64: ") && error.contains("packets arrived"), "{error}");
        assert_eq!(Visit::new(&task(vec![99])).err().unwrap(), "there is no phase 99");
    }
}

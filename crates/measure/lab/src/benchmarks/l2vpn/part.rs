//! The cost of one app of the end by itself, and of the whole: from a source through it to sinks, less from a source to a
//! sink, in the same process.
//!
//! An app gets the packets that it got in the whole end, with their tags, by the same link and as many in a breath. It
//! stays in its network, whose other apps have nothing to do meanwhile: what it shares with them is as it was.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bellows_engine::{LinkEnd, LinkSpec, Network, Schedule};
use bellows_packet::Packet;
use serde::{Deserialize, Serialize};

use super::contender::{SLICES, WARM_UP};
use super::ends::{Ends, UPLINK, put};
use super::phases::{self, BULK, Phase, PhaseDirection};
use super::traffic::Valve;
use crate::slices::{Turn, sliced};
use crate::workers::Contender;

/// The source and the sink of an app by itself, and those without an app between them.
const PART: &str = "part";
const BARE: &str = "bare";

/// Breaths in a slice.
const BREATHS: usize = 8;

/// Breaths whose packets are recorded, behind some in which the way to the app fills.
const RECORDED: usize = 12;
const FILLED: usize = 16;

/// Breaths that show which links a phase uses.
const COUNTED: usize = 64;

/// A link by which packets of a phase come to an app, and those by which they leave it, as places among the links of the
/// network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Flow {
    link: usize,
    leave: Vec<usize>,
}

/// The measurement of an app, or of the whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PartTask {
    /// The place of the phase in [`phases::ALL`].
    pub(super) phase: usize,
    /// The app, by its link; `None` for the whole.
    pub(super) flow: Option<Flow>,
    pub(super) schedule: Schedule,
    pub(super) cpu: Option<usize>,
}

/// The links that a phase uses one way.
///
/// # Errors
/// If the end does not get ready.
pub(super) fn flows(phase: Phase) -> Result<Vec<Flow>, String> {
    let mut links = Vec::new();
    let mut ends = Ends::new(Schedule::default(), |network| {
        links.clone_from(&network.links);
        Ok(&[])
    })?;
    ends.learn(phase);
    ends.begin(phase, phase.one_way());
    ends.breathe(FILLED);
    let packets = |ends: &Ends| ends.snapshot().links.iter().map(|link| link.packets).collect::<Vec<u64>>();
    let before = packets(&ends);
    ends.breathe(COUNTED);
    let after = packets(&ends);
    // Control messages are fewer.
    let is_used = |&link: &usize| after[link] - before[link] >= COUNTED as u64;
    let used: Vec<usize> = (0..links.len()).filter(is_used).collect();
    let leave = |app: &str| used.iter().copied().filter(|&link| links[link].from.app == app).collect::<Vec<usize>>();
    let flow = |&link: &usize| Flow { link, leave: leave(&links[link].to.app) };
    // Sinks are no part of the end.
    Ok(used.iter().map(flow).filter(|flow| !flow.leave.is_empty()).collect())
}

/// Puts a valve into the link by which packets come to an app, and others into those by which they leave it. They are shut
/// together: then the app gets what is in the stock, and what it sends ends behind it.
fn surround(network: &mut Network, flow: &Flow, valve: &Valve) -> Result<(), String> {
    let end = |app: &str, port: &str| LinkEnd { app: app.to_owned(), port: port.to_owned() };
    for &link in [&flow.link].into_iter().chain(&flow.leave) {
        let is_in_front = link == flow.link;
        let name = if is_in_front { format!("from-{PART}") } else { format!("left-{link}") };
        let cut = network.links.get_mut(link).ok_or_else(|| format!("there is no link {link}"))?;
        let to = std::mem::replace(&mut cut.to, end(&name, "input"));
        network.links.push(LinkSpec { from: end(&name, "output"), to });
        let own = || Valve { is_shut: Arc::clone(&valve.is_shut), ..Valve::default() };
        put(network, &name, "valve", if is_in_front { valve.clone() } else { own() });
    }
    Ok(())
}

/// The worker's side: an app, or the whole, and a source whose packets go to a sink.
pub(super) struct MeasuredPart {
    ends: Ends,
    /// The sources, and the packets of both in a breath.
    sources: [&'static str; 2],
    per_breath: usize,
    turns: usize,
}

impl MeasuredPart {
    /// Lays out the measurement.
    ///
    /// # Errors
    /// If the end does not get ready, or no packet comes to the app.
    pub(super) fn new(task: &PartTask) -> Result<MeasuredPart, String> {
        let phase = phases::at(task.phase)?;
        let valve = Valve::default();
        let mut ends = Ends::new(task.schedule, |network| {
            if let Some(flow) = &task.flow {
                surround(network, flow, &valve)?;
            }
            network.links.push(LinkSpec {
                from: LinkEnd { app: format!("from-{BARE}"), port: "output".to_owned() },
                to: LinkEnd { app: format!("to-{BARE}"), port: "input".to_owned() },
            });
            Ok(&[BARE])
        })?;
        ends.add(PART, &valve);
        ends.learn(phase);
        ends.begin(phase, phase.one_way());
        let (source, per_breath) = match task.flow {
            Some(_) => {
                ends.breathe(FILLED);
                valve.is_shut.store(true, Relaxed);
                let packets = ends.record(PART, RECORDED);
                let per_breath = packets.len() / RECORDED;
                if per_breath == 0 {
                    return Err("no packet came to the app".to_owned());
                }
                ends.pause();
                ends.breathe(FILLED);
                ends.supply(BARE, packets.iter().map_while(Packet::copy).collect());
                ends.supply(PART, packets);
                (PART, per_breath)
            }
            None => {
                let source = if phase.direction == PhaseDirection::Encap { phase.wire.circuit() } else { UPLINK };
                ends.supply(BARE, ends.copies(source));
                ends.set_rate(source, 0);
                (source, BULK)
            }
        };
        Ok(MeasuredPart { ends, sources: [source, BARE], per_breath, turns: 0 })
    }
}

impl Contender for MeasuredPart {
    fn turn(&mut self) -> Turn {
        self.turns += 1;
        let mut measure = |source: usize| {
            self.ends.set_rate(self.sources[source], self.per_breath);
            self.ends.breathe(BREATHS * WARM_UP);
            let time = sliced(SLICES, || {
                self.ends.breathe(BREATHS);
            });
            self.ends.set_rate(self.sources[source], 0);
            time
        };
        // Neither is always the first.
        let (with, bare) = match self.turns.is_multiple_of(2) {
            true => (measure(0), measure(1)),
            false => {
                let bare = measure(1);
                (measure(0), bare)
            }
        };
        Turn::of(vec![(with.clocks - bare.clocks) / (BREATHS * BULK) as f64], &[with, bare])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the phase with this name.
    fn named(name: &str) -> usize {
        phases::ALL.iter().position(|phase| phase.name() == name).unwrap()
    }

    #[test]
    fn each_phase_has_several_apps_on_its_way() {
        // Packets of ESP can come only once.
        let is_sealed = |phase: &Phase| phase.direction == PhaseDirection::Decap && phase.wire.is_encrypted();
        for phase in phases::ALL.into_iter().filter(|phase| !is_sealed(phase)) {
            let flows = flows(phase).unwrap();
            assert!(flows.len() >= 4, "{}: {flows:?}", phase.name());
        }
    }

    #[test]
    fn an_app_gets_by_itself_what_it_gets_in_the_whole_and_loses_nothing() {
        for phase in ["encap-ip6-64", "decap-ip4-64"].map(named) {
            let task = |flow| PartTask { phase, flow, schedule: Schedule::default(), cpu: None };
            for flow in flows(phases::ALL[phase]).unwrap().into_iter().map(Some).chain([None]) {
                check(&task(flow));
            }
        }
    }

    /// Checks that an app, or the whole, gets what is sent in some turns, and that nothing is lost.
    fn check(task: &PartTask) {
        let mut part = MeasuredPart::new(task).unwrap();
        let (before, turns) = (part.ends.snapshot(), 2);
        for _ in 0..turns {
            assert!(part.turn().figures[0].is_finite());
        }
        let after = part.ends.snapshot();
        let sent = |name: &str| {
            let link = |snapshot: &bellows_observe::Snapshot| {
                snapshot.links.iter().find(|link| link.from == name).map_or(0, |link| link.packets)
            };
            link(&after) - link(&before)
        };
        let expected = (turns * (WARM_UP + SLICES) * BREATHS * BULK) as u64;
        let found = [sent(&format!("from-{}.output", part.sources[0])), sent("from-bare.output")];
        assert_eq!(found, [expected; 2], "{task:?}, {} in a breath", part.per_breath);
        assert_eq!(after.dropped(), before.dropped(), "{task:?}");
        if let Some(Flow { leave, .. }) = &task.flow {
            let left: u64 = leave.iter().map(|link| after.links[*link].packets - before.links[*link].packets).sum();
            // On a slow machine the router asks a neighbour meanwhile whether it is still there.
            assert!((expected..=expected + 3).contains(&left), "{leave:?}: {left} of {expected}");
        }
    }
}

//! The end of apps that a reload has taken out, on the thread that asked for it: the engine does not wait for their disks.

use bellows_observe::layout::{common, engine as cells};
use bellows_pmu::OpenError;

use crate::app::answer;
use crate::engine::stop_contained;
use crate::io::Core;
use crate::meter::Meter;
use crate::world::World;

/// Where the counts of an app go that does not run on.
pub(crate) struct Successor {
    /// Its position in the configuration that it was in.
    pub(crate) app: usize,
    /// The first cell of the row that has its counts now; none if it is not listed any more.
    pub(crate) cell: Option<usize>,
    /// Whether its own counters go there, beside its drops.
    pub(crate) counters: bool,
}

/// What is to be added to a counter of the configuration that runs; wrapping, so that it can be taken off, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LateCount {
    pub(crate) cell: usize,
    pub(crate) count: u64,
}

/// What came of the end of apps.
#[derive(Default)]
pub(crate) struct Retired {
    /// Those that could not finish, and why.
    pub(crate) unfinished: Vec<(String, String)>,
    /// What they counted.
    pub(crate) late: Vec<LateCount>,
}

/// Ends and stops apps of a configuration that has been replaced.
pub(crate) fn retire(world: World, successors: &[Successor]) -> Retired {
    let mut retired = Retired::default();
    // The engine's core is its thread's alone. Declared before the world, which is dropped first.
    let core = quiet_core();
    let mut world = world;
    if let Ok(core) = &core {
        core.settle_buffers();
        world.seat(core);
    }
    for successor in successors {
        if core.is_ok() {
            end(&mut world, successor, &mut retired.late);
        }
        if let Err(why) = stop_contained(&mut *world.apps[successor.app]) {
            retired.unfinished.push((world.outline.apps[successor.app].name.clone(), why));
        }
    }
    retired
}

/// A core for calls outside of breaths, on this thread.
fn quiet_core() -> Result<Core, OpenError> {
    Ok(Core::new(1, false, Meter::new(&[])?))
}

/// Tells an app that it ends, and finds out what it has counted meanwhile.
fn end(world: &mut World, successor: &Successor, late: &mut Vec<LateCount>) {
    let World { apps, places, traits, .. } = &mut *world;
    let (app, place) = (&mut apps[successor.app], &places[successor.app]);
    let slab = &place.fabric().slab;
    let drops = place.own_counters - place.cell;
    let rows = if successor.counters { drops + traits[successor.app].counters.len() } else { drops };
    let counts = || (place.cell..place.cell + rows).map(|cell| slab.get(cell)).collect::<Vec<u64>>();
    let (before, held) = (counts(), answer(|| app.held()).unwrap_or(0));
    // One that panics over it says the rest when it is stopped.
    let _ = answer(|| app.end(place));
    let freed = held.saturating_sub(answer(|| app.held()).unwrap_or(0)) as u64;
    let mut grown: Vec<u64> = counts().iter().zip(&before).map(|(now, before)| now.wrapping_sub(*before)).collect();
    // What it held has been counted as removed already. What it has dropped of that has another reason now.
    let dropped = grown[..drops].iter().fold(0, |sum: u64, grown| sum.wrapping_add(*grown));
    grown[common::REMOVED] = grown[common::REMOVED].wrapping_sub(freed.min(dropped));
    match successor.cell {
        Some(first) => {
            let changed = grown.iter().enumerate().filter(|(_, grown)| **grown != 0);
            late.extend(changed.map(|(index, &count)| LateCount { cell: first + index, count }));
        }
        None => {
            let count = grown[..drops].iter().fold(0, |sum: u64, grown| sum.wrapping_add(*grown));
            late.extend((count != 0).then_some(LateCount { cell: cells::FORGOTTEN_DROPS, count }));
        }
    }
}

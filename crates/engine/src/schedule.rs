//! The ways to take a breath.
//!
//! A breath pulls each app that brings packets in, then pushes each app whose inputs hold some, in topological
//! order. Every schedule does just that; they differ in how the calls are found.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::app::{Call, Entry, Place};
use crate::io::Core;
use crate::world::World;

/// How the engine takes a breath.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// The textbook loop over boxed apps: the baseline, and the oracle for the others.
    Nested,
    /// One array of functions and the links to test before each.
    #[default]
    Flat,
}

impl Schedule {
    /// All of them.
    pub const ALL: [Schedule; 2] = [Schedule::Nested, Schedule::Flat];
}

impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Schedule::Nested => "nested",
            Schedule::Flat => "flat",
        })
    }
}

/// A word names no schedule.
#[derive(Clone, Debug, thiserror::Error)]
#[error("there is no schedule `{0}`; there are nested and flat")]
pub struct UnknownSchedule(String);

impl FromStr for Schedule {
    type Err = UnknownSchedule;

    fn from_str(text: &str) -> Result<Schedule, UnknownSchedule> {
        Schedule::ALL
            .into_iter()
            .find(|schedule| schedule.to_string() == text)
            .ok_or_else(|| UnknownSchedule(text.to_owned()))
    }
}

/// One call of the flat schedule.
struct Step {
    call: Call,
    app: usize,
    /// The first link to test, and all of them if they are more than one.
    first: u32,
    others: Box<[u32]>,
}

/// A breath as one array for each half.
pub(crate) struct Flat {
    pulls: Vec<Step>,
    pushes: Vec<Step>,
}

impl Flat {
    pub(crate) fn compile(world: &World) -> Flat {
        let step = |app: usize, entry: Entry| {
            let inputs: Vec<u32> =
                world.wirings[app].inputs.iter().copied().filter(|&link| link != crate::world::OPEN).collect();
            Step {
                call: world.apps[app].entry(entry),
                app,
                first: inputs.first().copied().unwrap_or(0),
                others: inputs.get(1..).unwrap_or_default().into(),
            }
        };
        Flat {
            pulls: world.pulls.iter().map(|&app| step(app, Entry::Pull)).collect(),
            pushes: world.pushes.iter().map(|&app| step(app, Entry::Push)).collect(),
        }
    }

    /// Calls what is to be called. The apps that panicked are added to `failed`.
    pub(crate) fn breathe(&self, core: &Core, world: &mut World, entry: Entry, failed: &mut Vec<usize>) {
        let World { apps, wirings, fabric, .. } = world;
        let steps = match entry {
            Entry::Pull => &self.pulls,
            Entry::Push | Entry::Tick => &self.pushes,
        };
        for step in steps {
            if entry == Entry::Push {
                let waits = |link: u32| fabric.waiting[link as usize].get() > 0;
                if !waits(step.first) && !step.others.iter().any(|&link| waits(link)) {
                    continue;
                }
            }
            let wiring = &wirings[step.app];
            if core.lossless && !core.admit(wiring.budget(fabric), entry) {
                continue;
            }
            // SAFETY: compile() took the function from this very app, and a configuration whose apps change is
            // compiled again; the app is borrowed exclusively with the world.
            let alive = unsafe { (step.call)(apps[step.app].address(), Place { core, fabric, wiring }) };
            if !alive {
                failed.push(step.app);
            }
        }
    }
}

/// The same by the textbook.
pub(crate) fn breathe_nested(core: &Core, world: &mut World, entry: Entry, failed: &mut Vec<usize>) {
    let World { apps, wirings, fabric, pulls, pushes, .. } = world;
    for &mut app in if entry == Entry::Pull { pulls } else { pushes } {
        let wiring = &wirings[app];
        if entry == Entry::Push && !wiring.has_input(fabric) {
            continue;
        }
        if core.lossless && !core.admit(wiring.budget(fabric), entry) {
            continue;
        }
        if !apps[app].call(entry, Place { core, fabric, wiring }) {
            failed.push(app);
        }
    }
}

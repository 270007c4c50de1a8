//! The ways to take a breath.
//!
//! A breath pulls each app that brings packets in, then pushes each app whose inputs hold some, in topological
//! order. Every schedule does just that; they differ in how the calls are found.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bellows_codemem::Symbol;
use serde::{Deserialize, Serialize};

use crate::app::{Call, Entry};
use crate::engine::Settings;
use crate::io::Core;
use crate::listing::{self, Listing};
use crate::meter::{metered_pull, metered_push};
use crate::native::Native;
use crate::place::Place;
use crate::slots::Slot;
use crate::world::{Layout, Outline, World};

/// How the engine takes a breath.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// The textbook loop over boxed apps, each of which is called and looks for itself whether it has anything to do: the
    /// baseline, and the oracle for the others.
    Nested,
    /// One array of functions and the words to test before each.
    Flat,
    /// Straight-line machine code, assembled for the network. Only on x86-64, and only where the system lets code be made;
    /// elsewhere `flat` takes its place.
    Native,
}

impl Schedule {
    /// All of them.
    pub const ALL: [Schedule; 3] = [Schedule::Nested, Schedule::Flat, Schedule::Native];
}

impl Default for Schedule {
    /// [`Native`](Schedule::Native) where there is code for it.
    fn default() -> Schedule {
        if cfg!(target_arch = "x86_64") { Schedule::Native } else { Schedule::Flat }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Schedule::Nested => "nested",
            Schedule::Flat => "flat",
            Schedule::Native => "native",
        })
    }
}

/// A word names no schedule.
#[derive(Clone, Debug, thiserror::Error)]
#[error("there is no schedule `{0}`; there are nested, flat and native")]
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

/// One call of a breath.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) call: Call,
    /// The app's position in the network.
    pub(crate) app: usize,
    /// What is tested before: the first of the app's slots (to pull; with none it is always called), or of the words that
    /// say how many packets its links hold (to push), and how many.
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// What a stretch of a breath's code serves.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no code is generated there"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stretch {
    /// The function's beginning.
    Entry,
    /// The test before a pull, or the call itself where there is no test: its position among the pulls.
    Pull(usize),
    /// The call of a pull that has slots.
    CallPull(usize),
    /// What is looked at after the pulls.
    PullsDone,
    /// The test of the links of several pushes at once: the positions of the first and the last among the pushes.
    Links(usize, usize),
    /// A push: its position among the pushes.
    Push(usize),
    /// The end of a breath.
    Tail,
    /// The end of a breath in which an app was called.
    BusyTail,
    /// The function's end.
    Leave,
    /// The end of a breath in which a pull panicked.
    Halfway,
}

/// How the breaths of one configuration are taken.
pub(crate) struct Breath {
    /// The schedule in use.
    pub(crate) schedule: Schedule,
    /// Why it is not the one that was asked for.
    pub(crate) refusal: Option<String>,
    pulls: Vec<Step>,
    pushes: Vec<Step>,
    native: Option<Native>,
    /// What explains the steps: apps and links, the types of the apps, and the links by their numbers.
    outline: Arc<Outline>,
    types: Vec<&'static str>,
    links: Vec<Option<usize>>,
}

impl Breath {
    /// Compiles the breath of a configuration.
    pub(crate) fn compile(layout: &Layout<'_>, settings: &Settings) -> Breath {
        let schedule = settings.schedule;
        let (pulls, pushes) = (layout.pulls(settings.lossless), layout.pushes(settings.lossless));
        let assemble = || Native::assemble(layout, &pulls, &pushes, settings.perf_map);
        let native = (schedule == Schedule::Native).then(assemble).transpose();
        let (schedule, refusal, native) = match native {
            Ok(native) => (schedule, None, native),
            Err(refusal) => (Schedule::Flat, Some(refusal), None),
        };
        let types = layout.apps.iter().map(|app| app.type_name()).collect();
        let (outline, links) = (Arc::clone(layout.outline), layout.links.to_vec());
        Breath { schedule, refusal, pulls, pushes, native, outline, types, links }
    }

    fn app(&self, step: &Step) -> &str {
        &self.outline.apps[step.app].name
    }

    /// The links whose packets an app pushes.
    fn links(&self, step: &Step) -> Vec<String> {
        let spec = |number: &Option<usize>| number.map(|link| self.outline.links[link].to_string());
        self.links[step.first..][..step.count].iter().filter_map(spec).collect()
    }

    /// What a stretch of the code serves, in words.
    fn name(&self, stretch: Stretch) -> String {
        match stretch {
            Stretch::Entry => "entry".to_owned(),
            Stretch::Pull(pull) => format!("pull {}", self.app(&self.pulls[pull])),
            Stretch::CallPull(pull) => format!("call pull {}", self.app(&self.pulls[pull])),
            Stretch::PullsDone => "pulls done".to_owned(),
            Stretch::Links(first, last) => {
                let [first, last] = [first, last].map(|push| self.app(&self.pushes[push]));
                format!("test links into {first} to {last}")
            }
            Stretch::Push(push) => {
                let step = &self.pushes[push];
                format!("push {} [{}]", self.app(step), self.links(step).join(", "))
            }
            Stretch::Tail => "tail".to_owned(),
            Stretch::BusyTail => "tail of a breath with calls".to_owned(),
            Stretch::Leave => "leave".to_owned(),
            Stretch::Halfway => "a pull panicked".to_owned(),
        }
    }

    fn calls(&self) -> Vec<listing::Call> {
        let call = |entry: &str, step: &Step, tests: Vec<String>| listing::Call {
            entry: entry.to_owned(),
            app: self.app(step).to_owned(),
            function: format!("{}::{entry}", self.types[step.app]),
            tests,
        };
        let pull = |step: &Step| call("pull", step, (0..step.count).map(|slot| format!("slot {slot}")).collect());
        let push = |step: &Step| call("push", step, self.links(step));
        self.pulls.iter().map(pull).chain(self.pushes.iter().map(push)).collect()
    }

    /// The breath, explained.
    pub(crate) fn listing(&self) -> Listing {
        let calls = self.calls();
        let steps = self.pulls.iter().chain(&self.pushes).zip(&calls);
        let functions: HashMap<usize, &str> = steps.map(|(step, call)| (step.call as usize, &*call.function)).collect();
        let function = |address: usize| functions.get(&address).map(|name| (*name).to_owned());
        let code = self.native.as_ref().map(|native| native.listing(|stretch| self.name(stretch), function));
        Listing {
            schedule: self.schedule.to_string(),
            refusal: self.refusal.clone(),
            assembling_nanos: self.native.as_ref().map_or(0, |native| native.assembling().as_nanos() as u64),
            code: code.unwrap_or_default(),
            calls,
        }
    }

    /// The stretches of the code, for `perf`.
    pub(crate) fn symbols(&self) -> Vec<Symbol> {
        self.native.as_ref().map(|native| native.symbols(|stretch| self.name(stretch))).unwrap_or_default()
    }

    /// Takes up to `most` breaths, but at least one; ends after one that was interrupted, or when `attention` is not 0.
    /// Returns how many.
    ///
    /// # Safety
    /// This breath was compiled for the apps that sit in the places of this world, which is seated on this core.
    pub(crate) unsafe fn take(&self, core: &Core, world: &World, attention: &AtomicU32, most: u64) -> u64 {
        if let Some(native) = &self.native {
            // SAFETY: the caller's promise.
            return unsafe { native.take(core, world.fabric(), attention, most) };
        }
        let mut taken = 0;
        loop {
            match self.schedule {
                // SAFETY: the caller's promise.
                Schedule::Nested => unsafe { nested(core, world) },
                // SAFETY: as above.
                _ => unsafe { self.flat(core, world) },
            }
            taken += 1;
            if taken >= most || core.interrupt.get() != 0 || attention.load(Relaxed) != 0 {
                return taken;
            }
        }
    }

    /// Takes one instrumented breath.
    ///
    /// # Safety
    /// As for [`Breath::take`].
    pub(crate) unsafe fn take_metered(&self, core: &Core, world: &World) {
        match &self.native {
            // SAFETY: the caller's promise.
            Some(native) => unsafe { native.take_metered(core, world.fabric()) },
            None => self.walk(core, world, |place, call, entry| {
                let metered = if entry == Entry::Pull { metered_pull } else { metered_push };
                // SAFETY: walk() hands out calls with their places; the rest is the caller's promise.
                unsafe { metered(place, call) }
            }),
        }
    }

    /// Safety: as for [`Breath::take`].
    #[inline(always)]
    unsafe fn flat(&self, core: &Core, world: &World) {
        // SAFETY: walk() hands out calls with their places; the rest is the caller's promise.
        self.walk(core, world, |place, call, _| unsafe { call(place) });
    }

    /// Goes over one breath's calls, each with the place of its app.
    #[inline(always)]
    fn walk(&self, core: &Core, world: &World, mut call: impl FnMut(&Place, Call, Entry)) {
        let slots = &world.fabric().slots;
        for step in &self.pulls {
            if step.count == 0 || slots[step.first..][..step.count].iter().any(Slot::is_ready) {
                call(&world.places[step.app], step.call, Entry::Pull);
            }
        }
        if core.failures.get() > 0 {
            core.halfway.set(true);
            return;
        }
        self.walk_pushes(world, &mut call);
        core.end_breath();
    }

    #[inline(always)]
    fn walk_pushes(&self, world: &World, call: &mut impl FnMut(&Place, Call, Entry)) {
        let waiting = &world.fabric().waiting;
        for step in &self.pushes {
            if waiting[step.first..][..step.count].iter().any(|waiting| waiting.get() > 0) {
                call(&world.places[step.app], step.call, Entry::Push);
            }
        }
    }

    /// Finishes a breath that ended halfway. Who watches packets sees these, too.
    ///
    /// # Safety
    /// As for [`Breath::take`].
    #[cold]
    pub(crate) unsafe fn finish(&self, core: &Core, world: &World) {
        // SAFETY: walk() hands out calls with their places; the rest is the caller's promise.
        self.walk_pushes(world, &mut |place, call, _| unsafe { metered_push(place, call) });
        core.end_breath();
    }
}

/// A breath by the textbook.
///
/// Safety: as for [`Breath::take`].
unsafe fn nested(core: &Core, world: &World) {
    for &app in &world.pulls {
        // SAFETY: place and app belong together; the rest is the caller's promise.
        unsafe { world.textbook[app].breathe(Entry::Pull, &world.places[app]) }
    }
    if core.failures.get() > 0 {
        core.halfway.set(true);
        return;
    }
    for &app in &world.pushes {
        // SAFETY: as above.
        unsafe { world.textbook[app].breathe(Entry::Push, &world.places[app]) }
    }
    core.end_breath();
}

//! The schedules: how a breath is executed.
//!
//! A breath pulls each app that brings packets in, then pushes each app whose inputs hold packets, in topological
//! order. All schedules do the same; they differ in how they find the calls.

#[cfg(target_arch = "x86_64")]
mod native;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_native.rs"]
mod native;
pub(crate) mod sampled;
mod trial;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bellows_codemem::Symbol;
use bellows_observe::listing::{self, Listing};

use self::native::Native;
use self::sampled::{sampled_pull, sampled_push};
use crate::app::erased::{AppBox, Call, EntryPoint, NestedCall};
use crate::network::topology::Topology;
use crate::runtime::links::LinkTable;
use crate::runtime::node::Node;
use crate::runtime::slots::BreathSlot;
use crate::runtime::state::ThreadState;
use crate::settings::{Schedule, Settings};

/// One call of a breath.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) call: Call,
    /// The app's position in the network.
    pub(crate) app: usize,
    /// What is tested before the call, as a first index and a count: slots of the app for a pull (with none it is
    /// always called), words with the packet counts of its input links for a push.
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// The input from which a breath is compiled.
pub(crate) struct Layout<'a> {
    pub(crate) topology: &'a Arc<Topology>,
    pub(crate) apps: &'a [AppBox],
    pub(crate) nodes: &'a [Node],
    pub(crate) pulls: &'a [usize],
    pub(crate) pushes: &'a [usize],
    /// For each app the numbers of its input links.
    pub(crate) input_links: &'a [Range<usize>],
    /// For each link number the position of the link in the topology.
    pub(crate) links: &'a [Option<usize>],
}

impl Layout<'_> {
    /// The pulls of a breath.
    fn pulls(&self, lossless: bool) -> Vec<Step> {
        let step = |&app: &usize| Step {
            call: self.apps[app].entry(EntryPoint::Pull, lossless),
            app,
            first: self.nodes[app].first_slot,
            count: self.nodes[app].slots,
        };
        self.pulls.iter().map(step).collect()
    }

    /// The pushes of a breath.
    fn pushes(&self, lossless: bool) -> Vec<Step> {
        let step = |&app: &usize| Step {
            call: self.apps[app].entry(EntryPoint::Push, lossless),
            app,
            first: self.input_links[app].start,
            count: self.input_links[app].len(),
        };
        self.pushes.iter().map(step).collect()
    }
}

/// The purpose of a section of a breath's code.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "no code is generated there"))]
#[derive(Clone, Copy, Debug)]
pub(crate) enum CodeSection {
    /// The function's prologue.
    Entry,
    /// The test before a pull, or the call itself if there is no test: its position among the pulls.
    Pull(usize),
    /// The call of a pull that has slots.
    CallPull(usize),
    /// The check after the pulls.
    PullsDone,
    /// The test of the links of several pushes at once: the first and the last position among the pushes.
    Links(usize, usize),
    /// A push: its position among the pushes.
    Push(usize),
    /// The end of a breath.
    Tail,
    /// The end of a breath in which an app was called.
    BusyTail,
    /// The function's epilogue.
    Leave,
    /// The end of a breath in which a pull panicked.
    PullPanicked,
}

/// The compiled breath of one configuration.
pub(crate) struct Breath {
    /// The schedule in use.
    pub(crate) schedule: Schedule,
    /// The fallback reason, if it is not the requested schedule.
    pub(crate) fallback_reason: Option<String>,
    pulls: Vec<Step>,
    pushes: Vec<Step>,
    native: Option<Native>,
    /// The nested schedule's call for each app.
    nested: Vec<&'static dyn NestedCall>,
    /// For explaining the steps: apps and links, the types of the apps, and the links by number.
    topology: Arc<Topology>,
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
        let (schedule, fallback_reason, native) = match native {
            Ok(native) => (schedule, None, native),
            Err(fallback_reason) => (Schedule::Flat, Some(fallback_reason), None),
        };
        let nested = layout.apps.iter().map(|app| app.nested_call()).collect();
        let types = layout.apps.iter().map(|app| app.type_name()).collect();
        let (topology, links) = (Arc::clone(layout.topology), layout.links.to_vec());
        Breath { schedule, fallback_reason, pulls, pushes, native, nested, topology, types, links }
    }

    fn app(&self, step: &Step) -> String {
        self.topology.app_name(step.app)
    }

    /// The input links of an app.
    fn links(&self, step: &Step) -> Vec<String> {
        let spec = |number: &Option<usize>| number.map(|link| self.topology.link(link).to_string());
        self.links[step.first..][..step.count].iter().filter_map(spec).collect()
    }

    /// The name of a section of the code.
    fn name(&self, section: CodeSection) -> String {
        match section {
            CodeSection::Entry => "entry".to_owned(),
            CodeSection::Pull(pull) => format!("pull {}", self.app(&self.pulls[pull])),
            CodeSection::CallPull(pull) => format!("call pull {}", self.app(&self.pulls[pull])),
            CodeSection::PullsDone => "pulls done".to_owned(),
            CodeSection::Links(first, last) => {
                let [first, last] = [first, last].map(|push| self.app(&self.pushes[push]));
                format!("test links into {first} to {last}")
            }
            CodeSection::Push(push) => {
                let step = &self.pushes[push];
                format!("push {} [{}]", self.app(step), self.links(step).join(", "))
            }
            CodeSection::Tail => "tail".to_owned(),
            CodeSection::BusyTail => "tail of a breath with calls".to_owned(),
            CodeSection::Leave => "leave".to_owned(),
            CodeSection::PullPanicked => "a pull panicked".to_owned(),
        }
    }

    fn calls(&self) -> Vec<listing::ListedCall> {
        let call = |entry: &str, step: &Step, tests: Vec<String>| listing::ListedCall {
            entry: entry.to_owned(),
            app: self.app(step),
            function: format!("{}::{entry}", self.types[step.app]),
            tests,
        };
        let pull = |step: &Step| call("pull", step, (0..step.count).map(|slot| format!("slot {slot}")).collect());
        let push = |step: &Step| call("push", step, self.links(step));
        self.pulls.iter().map(pull).chain(self.pushes.iter().map(push)).collect()
    }

    /// The listing of the breath.
    pub(crate) fn listing(&self) -> Listing {
        let calls = self.calls();
        let steps = self.pulls.iter().chain(&self.pushes).zip(&calls);
        let functions: HashMap<usize, &str> = steps.map(|(step, call)| (step.call as usize, &*call.function)).collect();
        let function = |address: usize| functions.get(&address).map(|name| (*name).to_owned());
        let code = self.native.as_ref().map(|native| native.listing(|section| self.name(section), function));
        Listing {
            worker: String::new(),
            schedule: self.schedule.to_string(),
            fallback_reason: self.fallback_reason.clone(),
            assembling_ns: self.native.as_ref().map_or(0, |native| native.assembling().as_nanos() as u64),
            code: code.unwrap_or_default(),
            calls,
            app_code: Vec::new(),
            further: Vec::new(),
        }
    }

    /// The sections of the code, for `perf`.
    pub(crate) fn symbols(&self) -> Vec<Symbol> {
        self.native.as_ref().map(|native| native.symbols(|section| self.name(section))).unwrap_or_default()
    }

    /// Takes up to `max_breaths` breaths, but at least one; ends after a breath that was interrupted, or when
    /// `attention` is not 0. Returns the number of breaths.
    ///
    /// # Safety
    /// This breath was compiled for the apps of these nodes, which are attached to this state and this link table.
    pub(crate) unsafe fn take(
        &self,
        state: &ThreadState,
        nodes: &[Node],
        table: &LinkTable,
        attention: &AtomicU32,
        max_breaths: u64,
    ) -> u64 {
        if let Some(native) = &self.native {
            // SAFETY: the caller's promise.
            return unsafe { native.take(state, table, attention, max_breaths) };
        }
        let mut taken = 0;
        loop {
            match self.schedule {
                // SAFETY: the caller's promise.
                Schedule::Nested => unsafe { self.nested(state, nodes) },
                // SAFETY: as above.
                _ => unsafe { self.flat(state, nodes, table) },
            }
            taken += 1;
            if taken >= max_breaths || state.interrupt.get() != 0 || attention.load(Relaxed) != 0 {
                return taken;
            }
        }
    }

    /// Takes one sampled breath.
    ///
    /// # Safety
    /// As for [`Breath::take`].
    pub(crate) unsafe fn take_sampled(&self, state: &ThreadState, nodes: &[Node], table: &LinkTable) {
        match &self.native {
            // SAFETY: the caller's promise.
            Some(native) => unsafe { native.take_sampled(state, table) },
            None => self.walk(state, nodes, table, |node, call, entry| {
                let sampled = if entry == EntryPoint::Pull { sampled_pull } else { sampled_push };
                // SAFETY: walk() passes each call with the node of its app; the rest is the caller's promise.
                unsafe { sampled(node, call) }
            }),
        }
    }

    /// Safety: as for [`Breath::take`].
    #[inline(always)]
    unsafe fn flat(&self, state: &ThreadState, nodes: &[Node], table: &LinkTable) {
        // SAFETY: walk() passes each call with the node of its app; the rest is the caller's promise.
        self.walk(state, nodes, table, |node, call, _| unsafe { call(node) });
    }

    /// Visits one breath's calls, each with the node of its app.
    #[inline(always)]
    fn walk(
        &self,
        state: &ThreadState,
        nodes: &[Node],
        table: &LinkTable,
        mut call: impl FnMut(&Node, Call, EntryPoint),
    ) {
        let slots = &table.slots;
        for step in &self.pulls {
            if step.count == 0 || slots[step.first..][..step.count].iter().any(BreathSlot::is_ready) {
                call(&nodes[step.app], step.call, EntryPoint::Pull);
            }
        }
        if state.failures.get() > 0 {
            state.pushes_pending.set(true);
            return;
        }
        self.walk_pushes(nodes, table, &mut call);
        state.end_breath();
    }

    #[inline(always)]
    fn walk_pushes(&self, nodes: &[Node], table: &LinkTable, call: &mut impl FnMut(&Node, Call, EntryPoint)) {
        let waiting = &table.waiting;
        for step in &self.pushes {
            if waiting[step.first..][..step.count].iter().any(|waiting| waiting.get() > 0) {
                call(&nodes[step.app], step.call, EntryPoint::Push);
            }
        }
    }

    /// Finishes a breath whose pushes are pending. Traces and taps see these calls, too.
    ///
    /// # Safety
    /// As for [`Breath::take`].
    #[cold]
    pub(crate) unsafe fn finish(&self, state: &ThreadState, nodes: &[Node], table: &LinkTable) {
        // SAFETY: walk() passes each call with the node of its app; the rest is the caller's promise.
        self.walk_pushes(nodes, table, &mut |node, call, _| unsafe { sampled_push(node, call) });
        state.end_breath();
    }

    /// The nested schedule.
    ///
    /// Safety: as for [`Breath::take`].
    unsafe fn nested(&self, state: &ThreadState, nodes: &[Node]) {
        for step in &self.pulls {
            // SAFETY: node and app belong together; the rest is the caller's promise.
            unsafe { self.nested[step.app].breathe(EntryPoint::Pull, &nodes[step.app]) }
        }
        if state.failures.get() > 0 {
            state.pushes_pending.set(true);
            return;
        }
        for step in &self.pushes {
            // SAFETY: as above.
            unsafe { self.nested[step.app].breathe(EntryPoint::Push, &nodes[step.app]) }
        }
        state.end_breath();
    }
}

//! The thread's part of a configuration: its apps, laid out for running.

use std::cell::Cell;
use std::collections::HashSet;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_arena::Fixed;
use bellows_observe::layout::{account, common, engine as cells, link};
use bellows_observe::timeline::Names;
use bellows_observe::{Directory, Slab};
use bellows_packet::Vector;
use bellows_sys::cache::{lines, prefetch_to_write};
use bellows_wiring::{OPEN, number_links, push_order};

use crate::app::AppInfo;
use crate::app::erased::AppBox;
use crate::dispatch::{Breath, Layout};
use crate::network::topology::Topology;
use crate::panics::catch_panic;
use crate::runtime::links::{FreeVectors, Link, LinkTable};
use crate::runtime::node::Node;
use crate::runtime::slots::BreathSlot;
use crate::runtime::state::ThreadState;
use crate::settings::Settings;

/// A worker's part of one configuration, laid out for the thread that runs it: everything that a breath touches.
///
/// Apps and links have the same positions on all workers. The two sides of each crossing follow the apps, what has
/// arrived of each crossing follows the links.
pub(crate) struct Graph {
    pub(crate) topology: Arc<Topology>,
    /// The apps; stand-ins for those of other workers.
    pub(crate) apps: Vec<AppBox>,
    pub(crate) nodes: Fixed<[Node]>,
    /// The positions of the worker's own apps, and of its sides of crossings.
    pub(crate) own: Vec<usize>,
    table: Fixed<LinkTable>,
    /// The apps to pull and the apps to push, in order.
    pulls: Vec<usize>,
    pushes: Vec<usize>,
    /// For each app the numbers of its input links.
    input_links: Vec<Range<usize>>,
    /// For each link of the worker its number in the table.
    numbers: Vec<Option<usize>>,
    /// For each number in the table its link.
    links: Vec<Option<usize>>,
    pub(crate) breath: Arc<Breath>,
}

/// What all workers' graphs of a configuration have in common.
pub(super) struct Blueprint<'a> {
    pub(super) topology: &'a Arc<Topology>,
    pub(super) directory: &'a Directory,
    /// The links of each app, as positions in the network.
    pub(super) wiring: &'a [(Vec<u32>, Vec<u32>)],
    /// The constants and the number of slots of each app.
    pub(super) infos: &'a [(AppInfo, usize)],
    /// The apps at the ends of each link.
    pub(super) arcs: &'a [(usize, usize)],
    pub(super) settings: &'a Settings,
    pub(super) names: Option<&'a Names>,
}

impl Blueprint<'_> {
    /// The links of an app on its worker. What arrives from another worker arrives through a link of this one.
    fn local_wiring(&self, app: usize) -> (Vec<u32>, Vec<u32>) {
        let Topology { apps, links, crossings, .. } = &**self.topology;
        let arrived = |crossing: usize| (links.len() + crossing) as u32;
        match app.checked_sub(apps.len()) {
            None => {
                let (inputs, outputs) = &self.wiring[app];
                let local = |&link: &u32| match link {
                    OPEN => OPEN,
                    link => self.topology.crossing_of(link as usize).map_or(link, arrived),
                };
                (inputs.iter().map(local).collect(), outputs.clone())
            }
            Some(side) if side % 2 == 0 => (vec![crossings[side / 2] as u32], Vec::new()),
            Some(side) => (Vec::new(), vec![arrived(side / 2)]),
        }
    }

    /// The links of one worker, as the apps at their two ends.
    fn local_arcs(&self, worker: usize) -> Vec<(usize, usize)> {
        let arcs = self.arcs.iter().enumerate().flat_map(|(link, &(from, to))| match self.topology.crossing_of(link) {
            None => vec![(from, to)],
            Some(crossing) => {
                let [sender, receiver] = [0, 1].map(|side| self.topology.side(crossing, side));
                vec![(from, sender), (receiver, to)]
            }
        });
        arcs.filter(|(from, _)| self.topology.homes[*from] == worker).collect()
    }
}

/// A graph without its links, which need the block of counters.
pub(super) struct Sketch {
    worker: usize,
    topology: Arc<Topology>,
    apps: Vec<AppBox>,
    nodes: Fixed<[Node]>,
    own: Vec<usize>,
    pulls: Vec<usize>,
    pushes: Vec<usize>,
    input_links: Vec<Range<usize>>,
    numbers: Vec<Option<usize>>,
    links: Vec<Option<usize>>,
    slots: usize,
    pub(super) breath: Arc<Breath>,
}

impl Sketch {
    /// Lays out a worker's part of a network; `apps` has stand-ins for the apps of other workers.
    pub(super) fn new(blueprint: &Blueprint<'_>, worker: usize, apps: Vec<AppBox>) -> Sketch {
        let Blueprint { topology, directory, infos, settings, names, .. } = *blueprint;
        let is_own = |app: &usize| topology.homes[*app] == worker;
        let own: Vec<usize> = (0..apps.len()).filter(is_own).collect();
        let local = |app: usize| if is_own(&app) { blueprint.local_wiring(app) } else { Default::default() };
        let wiring: Vec<(Vec<u32>, Vec<u32>)> = (0..apps.len()).map(local).collect();
        let pulls: Vec<usize> = own.iter().copied().filter(|&app| infos[app].0.pulls).collect();
        let is_linked = |app: &usize| wiring[*app].0.iter().any(|&link| link != OPEN);
        let order = push_order(apps.len(), &blueprint.local_arcs(worker), &pulls);
        let pushes: Vec<usize> = order.into_iter().filter(is_linked).collect();
        let count = topology.links.len() + topology.crossings.len();
        let (input_links, numbers, size) = number_links(&wiring, &pushes, count);
        let present: HashSet<u32> = wiring.iter().flat_map(|(inputs, _)| inputs.iter().copied()).collect();
        let number = |(link, number): (usize, usize)| present.contains(&(link as u32)).then_some(number);
        let numbers: Vec<Option<usize>> = numbers.into_iter().enumerate().map(number).collect();
        let mut links = vec![None; size];
        let numbered = numbers.iter().enumerate().filter_map(|(link, number)| Some((link, (*number)?)));
        numbered.for_each(|(link, number)| links[number] = Some(link));

        let number = |&link: &u32| numbers.get(link as usize).copied().flatten().map_or(OPEN, |number| number as u32);
        let mut first_slot = 0;
        let node = |app: usize| {
            let (info, slots) = infos[app];
            let slots = if is_own(&app) { slots } else { 0 };
            // The directory lists all apps and the sides of all crossings.
            let (cell, account, drops) =
                directory.app(app).map_or((0, 0, 0), |entry| (entry.cell, entry.account, entry.drops.len()));
            first_slot += slots;
            Node {
                app: Cell::new(std::ptr::null_mut()),
                calls: Default::default(),
                taken: Cell::new(0),
                freed: Cell::new(0),
                usual: Default::default(),
                state: NonNull::dangling(),
                links: NonNull::dangling(),
                activity: NonNull::dangling(),
                inputs: wiring[app].0.iter().map(number).collect(),
                outputs: wiring[app].1.iter().map(number).collect(),
                index: app,
                first_slot: first_slot - slots,
                slots,
                account,
                cell,
                own_drops: cell + common::DROPS.len(),
                own_counters: cell + drops,
                closed: Cell::new(false),
                deadline: Cell::new(if is_own(&app) && app < topology.apps.len() { 0 } else { u64::MAX }),
                prefetch: info.prefetch,
                max_fan_out: info.max_fan_out,
                name: names.map_or(0, |names| names.position(&topology.app_name(app))),
            }
        };
        let nodes: Fixed<[Node]> = (0..apps.len()).map(node).collect();
        let layout = Layout {
            topology,
            apps: &apps,
            nodes: &nodes,
            pulls: &pulls,
            pushes: &pushes,
            input_links: &input_links,
            links: &links,
        };
        let breath = Arc::new(Breath::compile(&layout, settings));

        let (topology, slots) = (Arc::clone(topology), first_slot);
        Sketch { worker, topology, apps, nodes, own, pulls, pushes, input_links, numbers, links, slots, breath }
    }

    /// The graph, whose counters are in this block.
    pub(super) fn finish(self, slab: &Arc<Slab>) -> Graph {
        let Sketch { worker, topology, apps, nodes, own, pulls, pushes, input_links, numbers, links, slots, breath } =
            self;
        let directory = &slab.directory;
        let position_of = |link: usize| link.checked_sub(topology.links.len());
        let cell_of = |link: usize| match position_of(link) {
            Some(crossing) => directory.crossings[crossing].arrived,
            None => directory.links[link].cell,
        };
        let empty = |link: &Option<usize>| Link {
            vector: Cell::new(Vector::none()),
            bytes: Cell::new(0),
            cell: link.map_or(0, cell_of),
            index: link.map_or(0, |link| position_of(link).map_or(link, |crossing| topology.crossings[crossing])),
        };
        let table = Fixed::new(LinkTable {
            links: links.iter().map(empty).collect(),
            waiting: links.iter().map(|_| Cell::new(0)).collect(),
            slots: (0..slots).map(|_| BreathSlot::default()).collect(),
            slab: Arc::clone(slab),
            position: worker as u32,
        });
        Graph { topology, apps, nodes, own, table, pulls, pushes, input_links, numbers, links, breath }
    }
}

impl Graph {
    /// The number of a link in the table.
    ///
    /// # Panics
    /// If the worker does not have the link.
    pub(crate) fn number(&self, link: usize) -> usize {
        self.numbers[link].unwrap_or_else(|| panic!("link {link} is not on this worker"))
    }

    /// The numbers of the worker's links.
    fn own_numbers(&self) -> impl Iterator<Item = usize> {
        self.numbers.iter().flatten().copied()
    }

    #[inline(always)]
    pub(crate) fn table(&self) -> &LinkTable {
        &self.table
    }

    /// The counters.
    #[inline(always)]
    pub(crate) fn slab(&self) -> &Arc<Slab> {
        &self.table.slab
    }

    /// Prefetches the lines that a commit writes. They lie in the cache of the processor that laid out the graph.
    /// Fetching them all at once, and for writing, costs much less than a read miss and then a write miss for each.
    /// `starts` says which apps start.
    pub(crate) fn prefetch(&self, starts: impl Iterator<Item = bool>) {
        fn prefetch<T: ?Sized>(value: &T) {
            lines(std::ptr::from_ref(value).cast(), size_of_val(value)).for_each(prefetch_to_write);
        }
        prefetch(&*self.nodes);
        prefetch(&*self.table.links);
        prefetch(&*self.table.slots);
        prefetch(self.table.slab.cells());
        let starting = self.apps.iter().zip(starts).enumerate().filter(|(_, (_, starts))| *starts);
        starting.filter(|(app, _)| self.own.contains(app)).for_each(|(_, (app, _))| prefetch(&**app));
    }

    /// Attaches the nodes to the thread that is about to run the graph.
    pub(crate) fn attach(&mut self, state: &ThreadState) {
        let links = NonNull::from(self.table());
        let activity = NonNull::from(&self.table.slab.cells()[self.table.worker().cell + cells::DOING]);
        for (node, app) in self.nodes.iter_mut().zip(&self.apps) {
            node.state = NonNull::from(state);
            node.links = links;
            node.activity = activity;
            node.app.set(app.address());
        }
    }

    /// Takes breaths, as [`Breath::take`] does. The graph must be [attached](Graph::attach) to this state.
    #[inline]
    pub(crate) fn take(&self, state: &ThreadState, attention: &AtomicU32, max_breaths: u64) -> u64 {
        // SAFETY: the breath was compiled for the apps of these nodes; after apps panic or are swapped, it is compiled
        // again before it is used.
        unsafe { self.breath.take(state, &self.nodes, &self.table, attention, max_breaths) }
    }

    /// Takes a sampled breath, as [`Breath::take_sampled`] does.
    pub(crate) fn take_sampled(&self, state: &ThreadState) {
        // SAFETY: as above.
        unsafe { self.breath.take_sampled(state, &self.nodes, &self.table) }
    }

    /// Finishes a breath whose pushes are pending.
    pub(crate) fn finish(&self, state: &ThreadState) {
        // SAFETY: as above.
        unsafe { self.breath.finish(state, &self.nodes, &self.table) }
    }

    /// Replaces an app that panicked by a stand-in, for good. The breath must be compiled again before it is taken.
    pub(crate) fn replace_failed(&mut self, app: usize, stand_in: AppBox) -> AppBox {
        let node = &self.nodes[app];
        node.app.set(stand_in.address());
        node.deadline.set(u64::MAX);
        self.slab().set(node.account + account::FAILED, 1);
        self.slab().add(node.account + account::PANICS, 1);
        for slot in node.slots(self.table()) {
            // The watched value may panic when it is dropped.
            let _ = catch_panic(|| slot.never());
        }
        std::mem::replace(&mut self.apps[app], stand_in)
    }

    /// Compiles the breath again for the current apps.
    pub(crate) fn recompile(&mut self, settings: &Settings) {
        let Graph { topology, apps, nodes, pulls, pushes, input_links, links, .. } = self;
        let layout = Layout { topology, apps, nodes, pulls, pushes, input_links, links };
        self.breath = Arc::new(Breath::compile(&layout, settings));
    }

    /// Writes the counts of an app's node, and the result of its books if the number of packets that it holds is known.
    pub(crate) fn write_books(&self, app: usize, held: Option<usize>) {
        let (node, slab) = (&self.nodes[app], self.slab());
        for (entry, calls) in node.calls.iter().enumerate() {
            slab.set(node.account + account::CALLS + entry, calls.get());
        }
        slab.set(node.account + account::TAKEN, node.taken.get());
        slab.set(node.account + account::FREED, node.freed.get());
        let Some(held) = held else { return };
        slab.set(node.account + account::HELD, held as u64);
        let books = node.discrepancy(held as u64);
        slab.set(node.account + account::LEAKED, books.leaked.cast_unsigned());
        slab.set(node.account + account::UNCOUNTED, books.uncounted.cast_unsigned());
    }

    /// Writes how much waits in each link.
    pub(crate) fn write_waiting(&self, free_vectors: &FreeVectors) {
        for number in self.own_numbers() {
            let cell = self.table.links[number].cell;
            let vector = self.table.take(number as u32);
            self.slab().set(cell + link::WAITING, vector.len() as u64);
            self.slab().set(cell + link::WAITING_BYTES, vector.bytes());
            self.table.put(number as u32, vector, free_vectors);
        }
    }

    /// The links in which packets wait.
    pub(crate) fn waiting_links(&self) -> Vec<String> {
        let links = self.numbers.iter().enumerate().filter_map(|(link, number)| Some((link, (*number)?)));
        let waiting = links.filter(|(_, number)| self.table.waiting[*number].get() > 0);
        waiting.map(|(link, _)| self.topology.link(link).to_string()).collect()
    }
}

impl Drop for Graph {
    /// Contains panics of apps and watched values that are dropped.
    fn drop(&mut self) {
        for app in self.apps.drain(..) {
            let _ = catch_panic(|| drop(app));
        }
        for slot in self.table.slots.iter() {
            let _ = catch_panic(|| slot.never());
        }
    }
}

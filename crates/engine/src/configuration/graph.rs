//! The thread's part of a configuration: its apps, laid out for running.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_arena::Fixed;
use bellows_observe::layout::{account, common, engine as cells, link};
use bellows_observe::timeline::Names;
use bellows_observe::{Directory, RuntimeDir, Slab};
use bellows_packet::{LINE, Vector, prefetch_to_write};
use bellows_wiring::{End, OPEN, WiredApp, links_by_port, number_links, push_order};

use super::positions;
use crate::app::erased::AppBox;
use crate::dispatch::{Breath, Layout};
use crate::network::AppSpec;
use crate::network::topology::Topology;
use crate::panics::catch_panic;
use crate::runtime::links::{FreeVectors, Link, LinkTable};
use crate::runtime::node::Node;
use crate::runtime::slots::Slot;
use crate::runtime::state::ThreadState;
use crate::settings::Settings;

/// One configuration laid out for the thread that runs it: everything that a breath touches.
pub(crate) struct Graph {
    pub(crate) topology: Arc<Topology>,
    pub(crate) apps: Vec<AppBox>,
    pub(crate) nodes: Fixed<[Node]>,
    table: Fixed<LinkTable>,
    /// The apps to pull and the apps to push, in order.
    pulls: Vec<usize>,
    pushes: Vec<usize>,
    /// For each app the numbers of its input links.
    input_links: Vec<Range<usize>>,
    /// For each link of the network its number in the table.
    pub(crate) numbers: Vec<usize>,
    /// For each number in the table its link of the network.
    links: Vec<Option<usize>>,
    pub(crate) breath: Arc<Breath>,
}

impl Graph {
    #[expect(clippy::too_many_arguments, reason = "one call, which gathers them")]
    pub(super) fn lay_out(
        topology: Topology,
        apps: Vec<AppSpec>,
        slots: &[usize],
        mut directory: Directory,
        generation: u64,
        runtime_dir: Option<&RuntimeDir>,
        settings: &Settings,
        names: Option<&Names>,
    ) -> io::Result<Graph> {
        let wired: Vec<WiredApp<'_>> = apps.iter().map(AppSpec::wired).collect();
        let wiring = links_by_port(&wired, &topology.links);
        let positions = positions(&topology);
        let app_at = |end: &End| positions.get(&*end.app).copied().unwrap_or_default();
        let arcs: Vec<_> = topology.links.iter().map(|link| (app_at(&link.from), app_at(&link.to))).collect();
        let pulls: Vec<usize> = (0..apps.len()).filter(|&app| apps[app].info.pulls).collect();
        let is_linked = |app: &usize| wiring[*app].0.iter().any(|&link| link != OPEN);
        let pushes: Vec<usize> = push_order(apps.len(), &arcs, &pulls).into_iter().filter(is_linked).collect();
        let (input_links, numbers, size) = number_links(&wiring, &pushes, topology.links.len());
        let mut links = vec![None; size];
        numbers.iter().enumerate().for_each(|(link, &number)| links[number] = Some(link));

        let numbered = |ports: &[u32]| -> Box<[u32]> {
            ports.iter().map(|&link| numbers.get(link as usize).map_or(OPEN, |&number| number as u32)).collect()
        };
        let mut first_slot = 0;
        let node = |(index, app): (usize, &AppSpec)| {
            let entry = &directory.apps[index];
            let own_drops = entry.cell + common::DROPS.len();
            first_slot += slots[index];
            Node {
                app: Cell::new(std::ptr::null_mut()),
                calls: Default::default(),
                taken: Cell::new(0),
                freed: Cell::new(0),
                usual: Default::default(),
                state: NonNull::dangling(),
                links: NonNull::dangling(),
                doing: NonNull::dangling(),
                inputs: numbered(&wiring[index].0),
                outputs: numbered(&wiring[index].1),
                index,
                first_slot: first_slot - slots[index],
                slots: slots[index],
                account: entry.account,
                cell: entry.cell,
                own_drops,
                own_counters: own_drops + app.info.drops.len(),
                closed: Cell::new(false),
                deadline: Cell::new(0),
                prefetch: app.info.prefetch,
                max_fan_out: app.info.max_fan_out,
                name: names.map_or(0, |names| names.position(&app.name)),
            }
        };
        let nodes: Fixed<[Node]> = apps.iter().enumerate().map(node).collect();
        let apps: Vec<AppBox> = apps.into_iter().map(|app| AppBox::from(app.app)).collect();
        let topology = Arc::new(topology);
        let layout = Layout {
            topology: &topology,
            apps: &apps,
            nodes: &nodes,
            pulls: &pulls,
            pushes: &pushes,
            input_links: &input_links,
            links: &links,
        };
        let breath = Arc::new(Breath::compile(&layout, settings));
        directory.schedule = breath.schedule.to_string();
        directory.fallback_reason = breath.fallback_reason.clone().unwrap_or_default();

        let empty = |link: &Option<usize>| Link {
            vector: Cell::new(Vector::none()),
            bytes: Cell::new(0),
            cell: link.map_or(0, |link| directory.links[link].cell),
            index: link.unwrap_or_default(),
        };
        let table = Fixed::new(LinkTable {
            links: links.iter().map(empty).collect(),
            waiting: (0..size).map(|_| Cell::new(0)).collect(),
            slots: (0..first_slot).map(|_| Slot::default()).collect(),
            slab: Arc::new(Slab::create(directory, generation, runtime_dir)?),
        });
        Ok(Graph { topology, apps, nodes, table, pulls, pushes, input_links, numbers, links, breath })
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
        fn lines<T: ?Sized>(value: &T) {
            let start = std::ptr::from_ref(value).cast::<u8>();
            (0..size_of_val(value)).step_by(LINE).for_each(|offset| prefetch_to_write(start.wrapping_add(offset)));
        }
        lines(&*self.nodes);
        lines(&*self.table.links);
        lines(&*self.table.slots);
        lines(self.table.slab.cells());
        self.apps.iter().zip(starts).filter(|(_, starts)| *starts).for_each(|(app, _)| lines(&**app));
    }

    /// Attaches the nodes to the thread that is about to run the graph.
    pub(crate) fn attach(&mut self, state: &ThreadState) {
        let links = NonNull::from(self.table());
        let doing = NonNull::from(&self.table.slab.cells()[cells::DOING]);
        for (node, app) in self.nodes.iter_mut().zip(&self.apps) {
            node.state = NonNull::from(state);
            node.links = links;
            node.doing = doing;
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
        for &number in &self.numbers {
            let cell = self.table.links[number].cell;
            let vector = self.table.take(number as u32);
            self.slab().set(cell + link::WAITING, vector.len() as u64);
            self.slab().set(cell + link::WAITING_BYTES, vector.bytes());
            self.table.put(number as u32, vector, free_vectors);
        }
    }

    /// The links in which packets wait.
    pub(crate) fn waiting_links(&self) -> Vec<String> {
        let links = self.numbers.iter().zip(&self.topology.links);
        let waiting = links.filter(|(number, _)| self.table.waiting[**number].get() > 0);
        waiting.map(|(_, link)| link.to_string()).collect()
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

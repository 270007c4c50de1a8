//! What a worker shows: its gauges and its apps' books, and traces and taps.

use std::cell::RefMut;

use bellows_observe::layout::engine as cells;
use bellows_packet::pool;
use bellows_sys::clock;
use bellows_watch::Watch;

use super::Worker;
use crate::configuration::Graph;
use crate::panics::catch_panic;
use crate::runtime::links::LinkTable;

impl Worker {
    /// Writes the gauges of the worker, and checks its apps' books.
    pub(crate) fn write_gauges(&mut self) {
        // A stand-in replaces an app that panics in `held`, and holds nothing.
        let held = loop {
            if let Some(held) = self.query_apps(|app| app.held()) {
                break held;
            }
        };
        self.write_gauges_with(held.into_iter().map(|(app, held)| (app, Some(held))));
    }

    /// Writes the gauges, given the number of packets that each app holds, if known.
    pub(crate) fn write_gauges_with(&self, held: impl Iterator<Item = (usize, Option<usize>)>) {
        let table = self.graph.table();
        table.set(cells::BREATHS, self.breaths);
        table.set(cells::IDLE_BREATHS, self.breaths - self.state.moved.get());
        held.for_each(|(app, held)| self.graph.write_books(app, held));
        self.graph.write_waiting(&self.state.free_vectors);
        let usage = pool::usage();
        table.set(cells::BUFFERS, (usage.packets + usage.large_packets) as u64);
        table.set(cells::BUFFERS_IN_USE, usage.in_use as u64);
        table.set(cells::BUFFERS_LENT, usage.lent as u64);
        table.set(cells::LARGE_BUFFERS, usage.large_packets as u64);
        table.set(cells::LARGE_BUFFERS_IN_USE, usage.large_in_use as u64);
        let now = clock::unix_ns();
        table.set(cells::UPDATED, now);
        table.set(cells::ALIVE, now);
    }

    /// Writes the gauges through a shared reference: an app that panics is not asked again.
    pub(crate) fn show_gauges(&self) {
        let Graph { apps, own, .. } = &self.graph;
        self.write_gauges_with(own.iter().map(|&app| (app, catch_panic(|| apps[app].held()))));
    }

    /// The traces and taps of this worker, and the links that they look at.
    pub(crate) fn watch(&self) -> (RefMut<'_, Watch>, &LinkTable) {
        (self.state.sampler.watch.borrow_mut(), self.graph.table())
    }

    /// Samples every breath while there is a trace or tap.
    pub(crate) fn watch_if_needed(&self) {
        let sampler = &self.state.sampler;
        sampler.set_watching(!sampler.watch.borrow().is_empty());
    }
}

//! The end of a graph: another one replaces it, or its apps leave and stop.

use std::mem;

use bellows_observe::layout::{Activity, doing, engine as cells};
use bellows_sys::clock;

use super::Worker;
use crate::app::erased::try_stop;
use crate::configuration::Graph;
use crate::panics::catch_panic;

impl Worker {
    /// Runs another graph from now on. Returns the old one.
    pub(crate) fn swap_graph(&mut self, mut graph: Graph) -> Graph {
        graph.attach(&self.state);
        // Positions of apps are those of the old graph.
        self.state.sampler.trials.end();
        self.state.next_deadline.set(0);
        self.idle_since = None;
        self.has_closed = false;
        mem::replace(&mut self.graph, graph)
    }

    /// The graph of a worker that works no more.
    pub(crate) fn into_graph(self) -> Graph {
        self.graph
    }

    /// Has the apps that [leave](crate::App::LEAVES) called in the next breath. Returns whether there are any.
    #[cold]
    pub(crate) fn prepare_to_leave(&self) -> bool {
        let Graph { apps, nodes, own, .. } = &self.graph;
        let mut leaving = own.iter().filter(|&&app| apps[app].has_last_tick()).peekable();
        let is_needed = leaving.peek().is_some();
        leaving.for_each(|&app| nodes[app].deadline.set(0));
        if is_needed {
            self.state.leaving.set(true);
            self.state.next_deadline.set(0);
        }
        is_needed
    }

    /// The apps have left.
    pub(crate) fn has_left(&self) {
        self.state.leaving.set(false);
    }

    /// Calls `end` of every app: its last call with packets.
    pub(crate) fn end(&mut self) {
        let Graph { apps, nodes, own, .. } = &mut self.graph;
        for &app in &*own {
            let (node, table) = (&nodes[app], nodes[app].links());
            table.set(cells::ALIVE, clock::unix_ns());
            table.set(cells::DOING, doing::with(Activity::Stop, app));
            self.state.snapshot_buffer_use();
            // If it panics, `stop` reports the rest.
            let _ = catch_panic(|| apps[app].end(node));
            node.end_call();
        }
    }

    /// Stops the apps. Returns those that could not finish, with the reason.
    pub(crate) fn stop(&mut self) -> Vec<(String, String)> {
        let Graph { apps, nodes, own, topology, .. } = &mut self.graph;
        let mut unfinished = Vec::new();
        for &app in &*own {
            let table = nodes[app].links();
            table.set(cells::ALIVE, clock::unix_ns());
            table.set(cells::DOING, doing::with(Activity::Stop, app));
            if let Err(why) = try_stop(&mut *apps[app]) {
                unfinished.push((topology.app_name(app), why));
            }
        }
        self.graph.table().set(cells::DOING, doing::NOTHING);
        unfinished
    }
}

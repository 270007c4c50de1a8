//! Whether a worker has nothing left to do.

use super::Worker;
use crate::configuration::Graph;
use crate::panics::catch_panic;

/// Checks for idleness between two complete ones of a worker that is out of work.
const OUT_OF_WORK_CHECKS: u32 = 64;

impl Worker {
    /// Whether the worker itself has nothing left to do: its apps are finished and hold nothing, and nothing will move
    /// what waits in its links.
    pub(crate) fn is_out_of_work(&mut self) -> bool {
        let is_app = |app: usize| app < self.graph.topology.apps.len();
        let apps = &self.graph.apps;
        let unfinished = self.unfinished_app;
        if catch_panic(|| apps.get(unfinished).is_some_and(|app| !app.is_finished())).unwrap_or(false) {
            return false;
        }
        let apps: Vec<usize> = self.graph.own.iter().copied().filter(|&app| is_app(app)).collect();
        let Some(answers) = self.query_apps(|app| (app.is_finished(), app.held())) else { return false };
        let mut answers = answers.into_iter().filter(|(app, _)| apps.contains(app));
        let mut held = 0;
        let unfinished = answers.find(|(_, (finished, holds))| {
            held += holds;
            !finished
        });
        if let Some((app, _)) = unfinished {
            self.unfinished_app = app;
            return false;
        }
        held == 0 && (self.graph.waiting_links().is_empty() || !self.will_wake())
    }

    /// Whether the worker is out of work, for one that is idle time and again: one that was and has not moved a packet
    /// since is checked now and then only.
    pub(crate) fn is_still_out_of_work(&mut self) -> bool {
        if self.checks_to_skip > 0 && self.was_out_of_work() {
            self.checks_to_skip -= 1;
            return true;
        }
        self.checks_to_skip = OUT_OF_WORK_CHECKS;
        let is_out_of_work = self.is_out_of_work();
        self.out_of_work_at = is_out_of_work.then(|| self.moved());
        is_out_of_work
    }

    /// Whether the worker was out of work at its last verdict, and nothing has moved since.
    pub(crate) fn was_out_of_work(&self) -> bool {
        self.out_of_work_at == Some(self.moved()) && !self.state.progress.get()
    }

    /// Whether anything will wake the worker besides other workers.
    pub(crate) fn will_wake(&self) -> bool {
        let apps = self.graph.nodes.iter().take(self.graph.topology.apps.len());
        let mut slots = apps.flat_map(|node| node.slots(self.graph.table()));
        self.has_deadline() || slots.any(|slot| slot.watched_descriptors().is_some())
    }

    /// Whether every app in which packets end has [declared](crate::Io::close) that it takes no more.
    #[cold]
    pub(super) fn is_closed(&self) -> bool {
        self.state.closed.set(false);
        let ends = self.ends();
        ends.iter().all(|closed| *closed) && !ends.is_empty()
    }

    /// For each linked app in which packets end, whether it has declared that it takes no more.
    pub(crate) fn ends(&self) -> Vec<bool> {
        let Graph { nodes, own, .. } = &self.graph;
        // The sides of crossings do not count.
        let entry = |app: usize| self.graph.slab().directory.apps.get(app);
        let nodes = own.iter().map(|&app| &nodes[app]).filter(|node| entry(node.index).is_some_and(|entry| entry.ends));
        nodes.filter(|node| node.has_linked_input()).map(|node| node.closed.get()).collect()
    }
}

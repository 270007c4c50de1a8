//! The process' part of a configuration: what of the one before it continues, and the start of the apps that are new.

use std::sync::Arc;

use bellows_observe::layout::{Activity, account, common, doing, engine as cells};
use bellows_observe::{Slab, Succession};
use bellows_packet::{BufferUse, buffer_use};
use bellows_sys::clock;

use super::Graph;
use super::retire::Successor;
use crate::app::erased::{start_contained, stop_contained};
use crate::app::{AppError, Status};
use crate::network::topology::Origin;
use crate::panics::contain;

/// What of the configuration before continues in a new one, and what its apps tell other threads.
pub(crate) struct Plan {
    pub(crate) origins: Vec<Origin>,
    /// For each link the one of the old configuration that it continues.
    pub(crate) link_origins: Vec<Option<usize>>,
    /// Where the counters of the old configuration go.
    pub(crate) succession: Succession,
    /// What the apps tell other threads, those that do; from their start on.
    pub(crate) statuses: Vec<Option<Arc<dyn Status>>>,
    /// How many of the apps had started when one could not.
    started: usize,
}

impl Plan {
    pub(super) fn new(
        graph: &Graph,
        origins: Vec<Origin>,
        link_origins: Vec<Option<usize>>,
        succession: Succession,
    ) -> Plan {
        Plan { origins, link_origins, succession, statuses: vec![None; graph.apps.len()], started: 0 }
    }

    /// Starts each app; `old` hands out those whose places they take.
    ///
    /// If one cannot start, or panics, those before it have given back what they took, and are to be
    /// [stopped](Plan::stop_started): not here, because an engine that reloads has no time for that.
    pub(crate) fn start(&mut self, graph: &mut Graph, mut old: Option<&mut Graph>) -> Result<(), (String, AppError)> {
        for index in 0..graph.apps.len() {
            self.tell_start(graph, index, old.as_deref());
            let buffers = buffer_use();
            let result = match (self.origins[index], &mut old) {
                (Origin::Kept(_), _) => Ok(()),
                (Origin::Replaces(app), Some(old)) => {
                    start_contained(&mut *graph.apps[index], Some(&mut *old.apps[app]))
                }
                _ => start_contained(&mut *graph.apps[index], None),
            };
            book_start(graph, index, buffer_use().since(buffers));
            if let Err(error) = result {
                if let Some(old) = &mut old {
                    self.undo_starts(graph, index, old);
                }
                self.started = index;
                return Err((graph.topology.apps[index].name.clone(), error));
            }
        }
        for ((status, app), origin) in self.statuses.iter_mut().zip(&graph.apps).zip(&self.origins) {
            if origin.is_new() {
                *status = contain(|| app.status()).flatten();
            }
        }
        Ok(())
    }

    /// Tells readers of the counters that an app is being started. In a reload they still see those of the old configuration,
    /// in which an app that is new has no row.
    fn tell_start(&self, graph: &Graph, index: usize, old: Option<&Graph>) {
        let tell = |slab: &Slab, position: usize| {
            slab.set(cells::ALIVE, clock::unix_ns());
            slab.set(cells::DOING, doing::with(Activity::Start, position));
        };
        match (self.origins[index], old) {
            (Origin::Kept(_), _) => return,
            (Origin::Replaces(app), Some(old)) => tell(old.slab(), app),
            (_, Some(old)) => {
                let slab = old.slab();
                slab.name_newcomer(&graph.topology.apps[index].name);
                tell(slab, slab.directory.apps.len());
            }
            (_, None) => {}
        }
        tell(graph.slab(), index);
    }

    /// The app of this index could not start: those before it give back what they took. What has become of packets meanwhile
    /// is on the accounts of those that run on.
    fn undo_starts(&self, graph: &mut Graph, failed: usize, old: &mut Graph) {
        for index in 0..=failed {
            let Origin::Replaces(app) = self.origins[index] else { continue };
            let buffers = buffer_use();
            if index < failed {
                let _ = contain(|| graph.apps[index].give_back(&mut *old.apps[app]));
            }
            let change = buffer_use().since(buffers);
            let (node, successor) = (&old.nodes[app], &graph.nodes[index]);
            let kept = contain(|| graph.apps[index].held()).unwrap_or(0) as u64;
            node.record(BufferUse {
                taken: change.taken + successor.taken.get(),
                freed: change.freed + successor.freed.get() + kept,
            });
            let lost = change.freed + kept + graph.slab().get(successor.cell + common::REMOVED);
            old.slab().add(node.cell + common::REMOVED, lost);
        }
        old.slab().set(cells::DOING, doing::NOTHING);
    }

    /// Takes the apps that have panicked for such as are to be started anew, though they have not changed. Returns their names.
    pub(crate) fn revive(&mut self, graph: &Graph, old: &Graph) -> Vec<String> {
        let mut revived = Vec::new();
        for (origin, identity) in self.origins.iter_mut().zip(&graph.topology.apps) {
            let Some(app) = origin.before() else { continue };
            if old.slab().get(old.nodes[app].account + account::FAILED) > 0 {
                *origin = Origin::Replaces(app);
                revived.push(identity.name.clone());
            }
        }
        revived
    }

    /// Tells the apps that are new, in a reload beside the `old` graph, that the run begins. Returns those that panicked over
    /// it.
    pub(crate) fn begin(&self, graph: &mut Graph, old: Option<&Graph>) -> Vec<usize> {
        let new: Vec<usize> = (0..graph.apps.len()).filter(|&index| self.origins[index].is_new()).collect();
        let mut begin = |index: usize| {
            self.tell_start(graph, index, old);
            let buffers = buffer_use();
            let has_begun = contain(|| graph.apps[index].begin()).is_some();
            book_start(graph, index, buffer_use().since(buffers));
            has_begun
        };
        let panicked = new.into_iter().filter(|&index| !begin(index)).collect();
        for graph in old.into_iter().chain([&*graph]) {
            graph.slab().set(cells::DOING, doing::NOTHING);
        }
        panicked
    }

    /// The apps of the configuration before that do not run on, and where what they still count goes.
    pub(crate) fn successors(&self, graph: &Graph) -> Vec<Successor> {
        let replaced = self.origins.iter().enumerate().filter_map(|(index, origin)| match *origin {
            // What else an app counts may be a gauge of the new one's by now.
            Origin::Replaces(app) => Some(Successor { app, cell: Some(graph.nodes[index].cell), counters: false }),
            _ => None,
        });
        let removed = self.succession.removed_apps();
        replaced.chain(removed.map(|(app, cell)| Successor { app, cell, counters: true })).collect()
    }

    /// Stops the apps that had started before one could not.
    pub(crate) fn stop_started(&mut self, graph: &mut Graph) {
        for index in 0..std::mem::take(&mut self.started) {
            if self.origins[index].is_new() {
                // The reason for giving up is reported; what an app that never ran cannot finish is not.
                let _ = stop_contained(&mut *graph.apps[index]);
            }
        }
    }
}

/// Puts what an app has made or freed when it was started on its account. What it has freed was inside the app whose place it
/// takes.
fn book_start(graph: &Graph, index: usize, change: BufferUse) {
    let node = &graph.nodes[index];
    let freed = change.freed.saturating_sub(change.taken);
    node.record(BufferUse { taken: change.taken.saturating_sub(change.freed), freed });
    graph.slab().add(node.cell + common::REMOVED, freed);
}

//! The end of apps that a reload has taken out, on the thread that asked for it: the engine does not wait for their disks.

use bellows_observe::layout::{common, engine as cells};
use bellows_pmu::OpenError;

use super::Graph;
use crate::app::erased::stop_contained;
use crate::panics::contain;
use crate::runtime::sampling::Sampler;
use crate::runtime::state::ThreadState;

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
pub(crate) fn retire(graph: Graph, successors: &[Successor]) -> Retired {
    let mut retired = Retired::default();
    // The state of the engine's thread is its alone. Declared before the graph, which is dropped first.
    let state = quiet_state();
    let mut graph = graph;
    if let Ok(state) = &state {
        state.settle_buffers();
        graph.attach(state);
    }
    for successor in successors {
        if state.is_ok() {
            end(&mut graph, successor, &mut retired.late);
        }
        if let Err(why) = stop_contained(&mut *graph.apps[successor.app]) {
            retired.unfinished.push((graph.topology.apps[successor.app].name.clone(), why));
        }
    }
    retired
}

/// A state for calls outside of breaths, on this thread.
fn quiet_state() -> Result<ThreadState, OpenError> {
    Ok(ThreadState::new(1, false, Sampler::new(&[])?))
}

/// Tells an app that it ends, and finds out what it has counted meanwhile.
fn end(graph: &mut Graph, successor: &Successor, late: &mut Vec<LateCount>) {
    let Graph { apps, nodes, .. } = graph;
    let (app, node) = (&mut apps[successor.app], &nodes[successor.app]);
    let slab = &node.links().slab;
    let entry = &slab.directory.apps[successor.app];
    let drops = entry.drops.len();
    let rows = if successor.counters { drops + entry.counters.len() } else { drops };
    let counts = || (node.cell..node.cell + rows).map(|cell| slab.get(cell)).collect::<Vec<u64>>();
    let (before, held) = (counts(), contain(|| app.held()).unwrap_or(0));
    // One that panics over it says the rest when it is stopped.
    let _ = contain(|| app.end(node));
    let freed = held.saturating_sub(contain(|| app.held()).unwrap_or(0)) as u64;
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

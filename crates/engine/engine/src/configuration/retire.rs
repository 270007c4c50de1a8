//! The end of apps that a reload removed or replaced, on the thread that requested the reload: the engine does not wait
//! for their disks.

use bellows_observe::layout::{common, engine as cells};
use bellows_pmu::OpenError;
use bellows_shared::Readers;

use super::Graph;
use crate::app::erased::try_stop;
use crate::panics::catch_panic;
use crate::runtime::sampling::Sampler;
use crate::runtime::state::ThreadState;

/// An app that does not run on, and where its late counts go.
pub(crate) struct RetiredApp {
    /// Its position in the old configuration.
    pub(crate) app: usize,
    /// The first cell of the row that continues its counters; `None` if it is no longer listed.
    pub(crate) cell: Option<usize>,
    /// Whether its other counters go there too, besides its drops.
    pub(crate) counters: bool,
}

/// A count to add to a counter of the running configuration; it wraps, so that it can also subtract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LateCount {
    pub(crate) cell: usize,
    pub(crate) count: u64,
}

/// The result of ending apps.
#[derive(Default)]
pub(crate) struct RetireReport {
    /// The apps that could not finish, with the reason.
    pub(crate) unfinished: Vec<(String, String)>,
    /// Their late counts.
    pub(crate) late: Vec<LateCount>,
}

/// Ends and stops apps of a replaced configuration.
pub(crate) fn retire(graphs: Vec<Graph>, retired_apps: &[RetiredApp]) -> RetireReport {
    let mut report = RetireReport::default();
    // The apps may read shared values once more, while workers go on and replace them.
    let _reader = Readers::of_process().register(|| ());
    // The workers have their own state. Declared before the graphs, so that the graphs are dropped first.
    let state = detached_state();
    let mut graphs = graphs;
    if let Ok(state) = &state {
        state.snapshot_buffer_use();
        graphs.iter_mut().for_each(|graph| graph.attach(state));
    }
    for retired_app in retired_apps {
        let Some(graph) = graphs.iter_mut().find(|graph| graph.own.contains(&retired_app.app)) else { continue };
        if state.is_ok() {
            end(graph, retired_app, &mut report.late);
        }
        if let Err(why) = try_stop(&mut *graph.apps[retired_app.app]) {
            report.unfinished.push((graph.topology.apps[retired_app.app].name.clone(), why));
        }
    }
    report
}

/// A thread state for calls outside of breaths, on this thread.
fn detached_state() -> Result<ThreadState, OpenError> {
    Ok(ThreadState::new(1, false, Sampler::new(&[])?))
}

/// Calls `end` of an app, and collects what it counted meanwhile.
fn end(graph: &mut Graph, retired_app: &RetiredApp, late: &mut Vec<LateCount>) {
    let Graph { apps, nodes, .. } = graph;
    let (app, node) = (&mut apps[retired_app.app], &nodes[retired_app.app]);
    let slab = &node.links().slab;
    let entry = &slab.directory.apps[retired_app.app];
    let drops = entry.drops.len();
    let rows = if retired_app.counters { drops + entry.counters.len() } else { drops };
    let counts = || (node.cell..node.cell + rows).map(|cell| slab.get(cell)).collect::<Vec<u64>>();
    let (before, held) = (counts(), catch_panic(|| app.held()).unwrap_or(0));
    // If it panics, `stop` reports the rest.
    let _ = catch_panic(|| app.end(node));
    let freed = held.saturating_sub(catch_panic(|| app.held()).unwrap_or(0)) as u64;
    let mut grown: Vec<u64> = counts().iter().zip(&before).map(|(now, before)| now.wrapping_sub(*before)).collect();
    // Held packets already count as removed. Those that the app dropped now have another reason.
    let dropped = grown[..drops].iter().fold(0, |sum: u64, grown| sum.wrapping_add(*grown));
    grown[common::REMOVED] = grown[common::REMOVED].wrapping_sub(freed.min(dropped));
    match retired_app.cell {
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

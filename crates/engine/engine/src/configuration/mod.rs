//! One configuration: a network laid out for the workers that run it, and its difference from the one before.
//!
//! A configuration is prepared apart from the engine, on any thread; committing it only moves the kept apps and links.
//!
//! | module | contents |
//! |---|---|
//! | `graph` | a worker's part: apps, nodes, links, and the breath over them |
//! | `parts` | the graphs of all workers together, while none of them runs |
//! | `plan` | the process' part: what a reload keeps, and the start of the other apps |
//! | `hand_over` | moves kept apps and links from one configuration to the next |
//! | `retire` | the end of apps that a reload removed or replaced |

mod graph;
mod hand_over;
mod parts;
mod plan;
mod retire;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use bellows_observe::timeline::Names;
use bellows_observe::{AppDescription, Directory, LinkDescription, RuntimeDir, Slab};
use bellows_wiring::{LinkEnd, WiredApp, links_by_port};

pub(crate) use self::graph::Graph;
use self::graph::{Blueprint, Sketch};
pub(crate) use self::hand_over::{hand_over, overfull};
pub(crate) use self::parts::Parts;
pub(crate) use self::plan::ReconfigurationPlan;
pub(crate) use self::retire::{LateCount, retire};
use crate::app::crossing::{Inbound, Outbound, crossing};
use crate::app::erased::{AppBox, DynApp, FailedApp, erase};
use crate::app::{App, AppInfo};
use crate::network::topology::{AppAction, Topology};
use crate::network::{AppSpec, Network, WorkerSpec};
use crate::panics::catch_panic;
use crate::settings::Settings;

/// A configuration that is ready to run.
pub(crate) struct Configuration {
    pub(crate) topology: Arc<Topology>,
    pub(crate) slab: Arc<Slab>,
    /// A graph for each worker.
    pub(crate) graphs: Vec<Graph>,
    pub(crate) plan: ReconfigurationPlan,
}

/// The running configuration and the parameters of a reload; empty at the first start.
pub(crate) struct ReloadParams<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) directory: &'a Directory,
    /// Apps to restart even if they did not change.
    pub(crate) restart: &'a [String],
    /// The generation of the new configuration.
    pub(crate) generation: u64,
}

/// The entry of an app with this many slots in the counters' directory.
fn app_description(app: &AppSpec, slots: usize, worker: usize) -> AppDescription<'_> {
    AppDescription {
        name: &app.name,
        kind: &app.kind,
        state: match (app.info.pulls, slots) {
            (true, 0) => "polling",
            (true, _) => "slots",
            (false, _) => "active",
        },
        drops: app.info.drops,
        counters: app.info.counters,
        ends: app.info.ends,
        brings_in: app.info.inputs.is_none(),
        worker,
        moves_with: app.moves_with.as_deref(),
        is_made: app.is_made,
    }
}

impl Configuration {
    /// Lays out a network that has no [wiring errors](Network::wiring_errors), as a successor of the running
    /// configuration.
    pub(crate) fn prepare(
        network: Network,
        params: &ReloadParams<'_>,
        runtime_dir: Option<&RuntimeDir>,
        settings: &Settings,
        names: Option<&Names>,
    ) -> io::Result<Configuration> {
        let mut topology = Topology::of(&network);
        if let Some(main) = params.topology.workers.first() {
            // Its thread stays as it was.
            topology.workers[0] = main.clone();
        }
        let mut app_actions = topology.app_actions(params.topology);
        for (action, app) in app_actions.iter_mut().zip(&topology.apps) {
            match *action {
                AppAction::Keep(old) if params.restart.contains(&app.name) => *action = AppAction::Replace(old),
                _ => {}
            }
        }
        let kept_links = topology.kept_links(params.topology);
        let slots: Vec<usize> = network.apps.iter().map(|app| catch_panic(|| app.app.slots()).unwrap_or(0)).collect();
        let homes = topology.homes.iter().copied();
        let outlines = network.apps.iter().zip(&slots).zip(homes);
        let outlines = outlines.map(|((app, &slots), home)| app_description(app, slots, home));
        let links = network.links.iter().enumerate().map(|(index, link)| LinkDescription {
            from: link.from.to_string(),
            to: link.to.to_string(),
            workers: topology.ends(index),
        });
        let events = settings.events().iter().map(ToString::to_string).collect();
        let workers: Vec<String> = topology.workers.iter().map(|worker| worker.name.clone()).collect();
        let (mut directory, succession) = Directory::lay_out_after(
            params.directory,
            &workers,
            outlines.zip(app_actions.iter().map(|action| action.old_app())),
            links.zip(kept_links.iter().copied()),
            events,
        );
        for (entry, worker) in directory.workers.iter_mut().zip(&topology.workers) {
            entry.node = worker.node();
        }
        directory.source = network.source;
        directory.config = network.text;
        let topology = Arc::new(topology);
        let (graphs, slab) =
            lay_out(&topology, network.apps, &slots, directory, params.generation, runtime_dir, settings, names)?;
        let plan = ReconfigurationPlan::new(app_actions, kept_links, succession);
        Ok(Configuration { topology, slab, graphs, plan })
    }
}

/// Lays out the graphs of all workers, and their counters.
#[expect(clippy::too_many_arguments, reason = "one call, which gathers them")]
fn lay_out(
    topology: &Arc<Topology>,
    apps: Vec<AppSpec>,
    slots: &[usize],
    mut directory: Directory,
    generation: u64,
    runtime_dir: Option<&RuntimeDir>,
    settings: &Settings,
    names: Option<&Names>,
) -> io::Result<(Vec<Graph>, Arc<Slab>)> {
    let wired: Vec<WiredApp<'_>> = apps.iter().map(AppSpec::wired).collect();
    let wiring = links_by_port(&wired, &topology.links);
    let positions = positions(topology);
    let app_at = |end: &LinkEnd| positions.get(&*end.app).copied().unwrap_or_default();
    let arcs: Vec<_> = topology.links.iter().map(|link| (app_at(&link.from), app_at(&link.to))).collect();
    let mut infos: Vec<(AppInfo, usize)> = apps.iter().zip(slots).map(|(app, &slots)| (app.info, slots)).collect();
    let mut apps: Vec<Box<dyn DynApp>> = apps.into_iter().map(|app| app.app).collect();
    let nodes: Vec<Option<usize>> = topology.workers.iter().map(WorkerSpec::node).collect();
    for &link in &topology.crossings {
        let name = names.map_or(0, |names| names.position(&topology.links[link].to_string()));
        let (outbound, inbound) = crossing(name, topology.ends(link).map(|worker| nodes[worker]))?;
        let slots = [App::slots(&outbound), App::slots(&inbound)];
        infos.extend([(AppInfo::of::<Outbound>(), slots[0]), (AppInfo::of::<Inbound>(), slots[1])]);
        apps.push(erase(outbound));
        apps.push(erase(inbound));
    }
    let mut parts: Vec<Vec<AppBox>> = topology.workers.iter().map(|_| Vec::with_capacity(apps.len())).collect();
    for (app, &home) in apps.into_iter().zip(&topology.homes) {
        for part in &mut parts {
            part.push(AppBox::from(erase(FailedApp)));
        }
        let place = parts[home].len() - 1;
        parts[home][place] = AppBox::from(app);
    }
    let blueprint =
        Blueprint { topology, directory: &directory, wiring: &wiring, infos: &infos, arcs: &arcs, settings, names };
    let sketch = |(worker, apps)| bellows_arena::on_node(nodes[worker], || Sketch::new(&blueprint, worker, apps));
    let sketches: Vec<Sketch> = parts.into_iter().enumerate().map(sketch).collect();
    directory.schedule = sketches.first().map_or_else(String::new, |sketch| sketch.breath.schedule.to_string());
    directory.fallback_reason =
        sketches.iter().find_map(|sketch| sketch.breath.fallback_reason.clone()).unwrap_or_default();
    let slab = Arc::new(Slab::create(directory, generation, runtime_dir)?);
    let finish = |(sketch, &node): (Sketch, _)| bellows_arena::on_node(node, || sketch.finish(&slab));
    Ok((sketches.into_iter().zip(&nodes).map(finish).collect(), slab))
}

/// The positions of apps by name.
fn positions(topology: &Topology) -> HashMap<&str, usize> {
    topology.apps.iter().enumerate().map(|(index, app)| (&*app.name, index)).collect()
}

//! One configuration: a network laid out for the thread that runs it, and its difference from the one before.
//!
//! A configuration is prepared apart from the engine, on any thread; committing it only moves the kept apps and links.
//!
//! | module | contents |
//! |---|---|
//! | `graph` | the thread's part: apps, nodes, links, and the breath over them |
//! | `plan` | the process' part: what a reload keeps, and the start of the other apps |
//! | `hand_over` | moves kept apps and links from one graph to the next |
//! | `retire` | the end of apps that a reload removed or replaced |

mod graph;
mod hand_over;
mod plan;
mod retire;

use std::collections::HashMap;
use std::io;

use bellows_observe::timeline::Names;
use bellows_observe::{AppDescription, Directory, RuntimeDir};

pub(crate) use self::graph::Graph;
pub(crate) use self::hand_over::hand_over;
pub(crate) use self::plan::Plan;
pub(crate) use self::retire::{LateCount, retire};
use crate::network::topology::{AppAction, Topology};
use crate::network::{AppSpec, Network};
use crate::panics::catch_panic;
use crate::settings::Settings;

/// A configuration that is ready to run.
pub(crate) struct Configuration {
    pub(crate) graph: Graph,
    pub(crate) plan: Plan,
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
fn app_description(app: &AppSpec, slots: usize) -> AppDescription<'_> {
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
        let topology = Topology::of(&network);
        let mut app_actions = topology.app_actions(params.topology);
        for (action, app) in app_actions.iter_mut().zip(&topology.apps) {
            match *action {
                AppAction::Keep(old) if params.restart.contains(&app.name) => *action = AppAction::Replace(old),
                _ => {}
            }
        }
        let kept_links = topology.kept_links(params.topology);
        let slots: Vec<usize> = network.apps.iter().map(|app| catch_panic(|| app.app.slots()).unwrap_or(0)).collect();
        let outlines = network.apps.iter().zip(&slots).map(|(app, &slots)| app_description(app, slots));
        let ends = network.links.iter().map(|link| (link.from.to_string(), link.to.to_string()));
        let events = settings.events().iter().map(ToString::to_string).collect();
        let (mut directory, succession) = Directory::lay_out_after(
            params.directory,
            outlines.zip(app_actions.iter().map(|action| action.old_app())),
            ends.zip(kept_links.iter().copied()),
            events,
        );
        directory.source = network.source;
        directory.config = network.text;
        let (apps, generation) = (network.apps, params.generation);
        let graph = Graph::lay_out(topology, apps, &slots, directory, generation, runtime_dir, settings, names)?;
        let plan = Plan::new(&graph, app_actions, kept_links, succession);
        Ok(Configuration { graph, plan })
    }
}

/// The positions of apps by name.
fn positions(topology: &Topology) -> HashMap<&str, usize> {
    topology.apps.iter().enumerate().map(|(index, app)| (&*app.name, index)).collect()
}

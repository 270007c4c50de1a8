//! One configuration: laid out for the thread that runs it, and what it changes.
//!
//! A configuration is made apart from the engine, on any thread; committing it then only moves what stays.
//!
//! | module | what it holds |
//! |---|---|
//! | `graph` | the thread's part: apps, nodes, links, and the breath over them |
//! | `plan` | the process' part: what continues what, and the start of the apps that are new |
//! | `hand_over` | what stays moves from one graph to the next |
//! | `retire` | the end of apps that a reload has taken out |

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
use crate::network::topology::{Origin, Topology};
use crate::network::{AppSpec, Network};
use crate::panics::contain;
use crate::settings::Settings;

/// A configuration that is ready to run.
pub(crate) struct Configuration {
    pub(crate) graph: Graph,
    pub(crate) plan: Plan,
}

/// What a configuration follows.
pub(crate) struct Before<'a> {
    pub(crate) topology: &'a Topology,
    pub(crate) directory: &'a Directory,
    /// Apps that are not to run on as they are, though they have not changed.
    pub(crate) restart: &'a [String],
    /// The new configuration's generation.
    pub(crate) generation: u64,
}

/// What the counters' directory says of an app that has so many slots.
fn outline(app: &AppSpec, slots: usize) -> AppDescription<'_> {
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
    /// Lays out a network that has no [faults](Network::faults), in relation to the one that runs now.
    pub(crate) fn prepare(
        network: Network,
        before: &Before<'_>,
        runtime_dir: Option<&RuntimeDir>,
        settings: &Settings,
        names: Option<&Names>,
    ) -> io::Result<Configuration> {
        let topology = Topology::of(&network);
        let mut origins = topology.origins(before.topology);
        for (origin, app) in origins.iter_mut().zip(&topology.apps) {
            match *origin {
                Origin::Kept(old) if before.restart.contains(&app.name) => *origin = Origin::Replaces(old),
                _ => {}
            }
        }
        let link_origins = topology.link_origins(before.topology);
        let slots: Vec<usize> = network.apps.iter().map(|app| contain(|| app.app.slots()).unwrap_or(0)).collect();
        let outlines = network.apps.iter().zip(&slots).map(|(app, &slots)| outline(app, slots));
        let ends = network.links.iter().map(|link| (link.from.to_string(), link.to.to_string()));
        let events = settings.events().iter().map(ToString::to_string).collect();
        let (mut directory, succession) = Directory::lay_out_after(
            before.directory,
            outlines.zip(origins.iter().map(|origin| origin.before())),
            ends.zip(link_origins.iter().copied()),
            events,
        );
        directory.source = network.source;
        directory.config = network.text;
        let (apps, generation) = (network.apps, before.generation);
        let graph = Graph::lay_out(topology, apps, &slots, directory, generation, runtime_dir, settings, names)?;
        let plan = Plan::new(&graph, origins, link_origins, succession);
        Ok(Configuration { graph, plan })
    }
}

/// The positions of apps by their names.
fn positions(topology: &Topology) -> HashMap<&str, usize> {
    topology.apps.iter().enumerate().map(|(index, app)| (&*app.name, index)).collect()
}

//! One configuration, laid out for running: links, how they are wired to the apps, and their counters.
//!
//! A world is made apart from the engine, on any thread; committing it then only moves what stays.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use bellows_packet::Vector;

use crate::app::{AppError, Erased, Ports, Traits, answer};
use crate::counters::{Directory, Slab, common};
use crate::engine::{start_contained, stop_contained};
use crate::home::Home;
use crate::network::{AppSpec, LinkSpec, Network, Side};
use crate::order::push_order;
use crate::schedule::Schedule;

/// Stands for the link of a port that is not linked.
pub(crate) const OPEN: u32 = u32::MAX;

/// A link: one vector, filled by one app and emptied by one app.
///
/// It has memory only while it holds packets; see [`Core::borrow_vector`](crate::io::Core::borrow_vector).
pub(crate) struct Link {
    pub(crate) vector: Cell<Vector>,
    /// The bytes in it, as far as they are in the counters.
    pub(crate) bytes: Cell<u64>,
    /// The first of its counters.
    pub(crate) cell: usize,
}

/// All links, and the counters of links and apps.
pub(crate) struct Fabric {
    pub(crate) links: Box<[Link]>,
    /// How many packets each link holds: together, so that many can be tested at once.
    pub(crate) waiting: Box<[Cell<u32>]>,
    pub(crate) slab: Arc<Slab>,
}

/// How one app sits in the network.
pub(crate) struct Wiring {
    /// Its links by port, or [`OPEN`].
    pub(crate) inputs: Box<[u32]>,
    pub(crate) outputs: Box<[u32]>,
    /// The first of its counters: the common reasons for drops, then its own reasons, then what else it counts.
    pub(crate) cell: usize,
    pub(crate) own_drops: usize,
    pub(crate) own_counters: usize,
    /// When it wants a tick, in nanoseconds of the engine's clock; at first, at once.
    pub(crate) deadline: Cell<u64>,
    pub(crate) prefetch: usize,
    pub(crate) gain: usize,
}

impl Wiring {
    pub(crate) fn has_input(&self, fabric: &Fabric) -> bool {
        self.inputs.iter().any(|&link| fabric.waiting.get(link as usize).is_some_and(|waiting| waiting.get() > 0))
    }

    /// How many packets the app may be given so that all that it can make of them fits on every output.
    pub(crate) fn budget(&self, fabric: &Fabric) -> usize {
        let room = |&link: &u32| {
            fabric.waiting.get(link as usize).map(|waiting| bellows_packet::CAPACITY - waiting.get() as usize)
        };
        self.outputs.iter().filter_map(room).min().map_or(usize::MAX, |room| room / self.gain)
    }
}

/// What a configuration is, without its apps: enough to compare it with another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    /// Name, kind, fingerprint.
    pub(crate) apps: Vec<(String, String, String)>,
    pub(crate) links: Vec<LinkSpec>,
}

impl Outline {
    pub(crate) fn of(network: &Network) -> Outline {
        let identity = |app: &AppSpec| (app.name.clone(), app.kind.clone(), app.fingerprint.clone());
        Outline { apps: network.apps.iter().map(identity).collect(), links: network.links.clone() }
    }
}

/// Where an app of a new configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is new.
    New,
    /// It is this app of the old configuration, unchanged.
    Kept(usize),
    /// It takes the place of this app of the old configuration.
    Replaces(usize),
}

/// A configuration that is ready to run.
pub(crate) struct World {
    pub(crate) outline: Outline,
    pub(crate) apps: Vec<Box<dyn Erased>>,
    pub(crate) traits: Vec<Traits>,
    pub(crate) wirings: Vec<Wiring>,
    pub(crate) fabric: Fabric,
    /// The apps to pull, in order.
    pub(crate) pulls: Vec<usize>,
    /// The apps to push, in order.
    pub(crate) pushes: Vec<usize>,
    pub(crate) origins: Vec<Origin>,
    /// For each link the one of the old configuration that it continues.
    pub(crate) link_origins: Vec<Option<usize>>,
}

impl World {
    /// Lays out a network that has no [faults](Network::faults), in relation to the one that runs now.
    pub(crate) fn prepare(
        network: Network,
        old: &Outline,
        generation: u64,
        home: Option<&Home>,
        schedule: Schedule,
    ) -> io::Result<World> {
        let outline = Outline::of(&network);
        let Network { apps, links, source, text } = network;
        let laid_out = apps.iter().map(|app| (app.name.as_str(), app.kind.as_str(), app.traits));
        let ends = links.iter().map(|link| (link.from.to_string(), link.to.to_string()));
        let mut directory = Directory::lay_out(laid_out, ends);
        directory.source = source;
        directory.config = text;
        directory.schedule = schedule.to_string();
        let slab = Arc::new(Slab::create(directory, generation, home)?);

        let wirings: Vec<Wiring> =
            apps.iter().enumerate().map(|(index, app)| wire(app, &links, slab.directory.apps[index].cell)).collect();
        let fabric = Fabric {
            links: slab
                .directory
                .links
                .iter()
                .map(|entry| Link { vector: Cell::new(Vector::none()), bytes: Cell::new(0), cell: entry.cell })
                .collect(),
            waiting: links.iter().map(|_| Cell::new(0)).collect(),
            slab,
        };
        let position = |name: &str| apps.iter().position(|app| app.name == name).unwrap_or_default();
        let graph: Vec<_> = links.iter().map(|link| (position(&link.from.app), position(&link.to.app))).collect();
        let pulls: Vec<usize> = (0..apps.len()).filter(|&app| apps[app].traits.pulls).collect();
        let pushes = push_order(apps.len(), &graph, &pulls);
        let pushes = pushes.into_iter().filter(|&app| wirings[app].inputs.iter().any(|&link| link != OPEN)).collect();
        let origins = outline
            .apps
            .iter()
            .map(|(name, kind, fingerprint)| {
                match old.apps.iter().position(|(old_name, old_kind, _)| old_name == name && old_kind == kind) {
                    Some(app) if old.apps[app].2 == *fingerprint => Origin::Kept(app),
                    Some(app) => Origin::Replaces(app),
                    None => Origin::New,
                }
            })
            .collect();
        let link_origins = links.iter().map(|link| old.links.iter().position(|other| other == link)).collect();
        let traits = apps.iter().map(|app| app.traits).collect();
        let apps = apps.into_iter().map(|app| app.app).collect();
        Ok(World { outline, apps, traits, wirings, fabric, pulls, pushes, origins, link_origins })
    }

    /// Starts each app; `old` hands out those whose places they take.
    ///
    /// If one cannot start, or panics, those before it have given back what they took, and have been stopped.
    pub(crate) fn start(&mut self, mut old: Option<&mut World>) -> Result<(), (String, AppError)> {
        for index in 0..self.apps.len() {
            let result = match (self.origins[index], &mut old) {
                (Origin::Kept(_), _) => Ok(()),
                (Origin::Replaces(app), Some(old)) => {
                    start_contained(&mut *self.apps[index], Some(&mut *old.apps[app]))
                }
                _ => start_contained(&mut *self.apps[index], None),
            };
            if let Err(error) = result {
                for earlier in 0..index {
                    if let (Origin::Replaces(app), Some(old)) = (self.origins[earlier], &mut old) {
                        let _ = answer(|| self.apps[earlier].give_back(&mut *old.apps[app]));
                    }
                    if !matches!(self.origins[earlier], Origin::Kept(_)) {
                        // The reason for giving up is reported; what an app that never ran cannot finish is not.
                        let _ = stop_contained(&mut *self.apps[earlier]);
                    }
                }
                return Err((self.outline.apps[index].0.clone(), error));
            }
        }
        Ok(())
    }
}

/// Finds an app's links.
fn wire(app: &AppSpec, links: &[LinkSpec], cell: usize) -> Wiring {
    let side = |side: Side, ports: Ports| -> Box<[u32]> {
        let mine = links.iter().enumerate().filter(|(_, link)| link.end(side).app == app.name);
        match ports {
            Ports::Any { .. } => mine.map(|(index, _)| index as u32).collect(),
            Ports::Named(ports) => {
                let link_at = |name| mine.clone().find(|(_, link)| link.end(side).port == name);
                ports.iter().map(|port| link_at(port.name).map_or(OPEN, |(index, _)| index as u32)).collect()
            }
        }
    };
    let own_drops = cell + common::DROPS.len();
    Wiring {
        inputs: side(Side::Input, app.traits.inputs),
        outputs: side(Side::Output, app.traits.outputs),
        cell,
        own_drops,
        own_counters: own_drops + app.traits.drops.len(),
        deadline: Cell::new(0),
        prefetch: app.traits.prefetch,
        gain: app.traits.gain.max(1),
    }
}

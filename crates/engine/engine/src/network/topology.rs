//! The topology of a configuration, and the difference between two topologies.

use std::any::TypeId;
use std::collections::HashMap;

use bellows_observe::CROSSING_SIDES;
use bellows_wiring::LinkSpec;

use super::{AppSpec, Network, ObjectSpec, WorkerSpec};

/// The identity of an app across configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppIdentity {
    pub(crate) name: String,
    pub(crate) kind: String,
    fingerprint: String,
    of_type: TypeId,
}

/// The apps and links of a configuration, without the apps themselves: enough to compare it with another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Topology {
    pub(crate) apps: Vec<AppIdentity>,
    pub(crate) links: Vec<LinkSpec>,
    pub(crate) workers: Vec<WorkerSpec>,
    pub(crate) objects: Vec<ObjectSpec>,
    /// The worker of each app. Those of the two sides of each crossing follow.
    pub(crate) homes: Vec<usize>,
    /// The workers at the two ends of each link.
    ends: Vec<[usize; 2]>,
    /// The links between workers, as positions among the links.
    pub(crate) crossings: Vec<usize>,
}

/// The ends of one link on the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LinkPlace {
    /// The worker that sends, and the link's position there.
    pub(crate) from: (usize, usize),
    /// The worker that receives, and the link's position there.
    pub(crate) to: (usize, usize),
}

impl Topology {
    pub(crate) fn of(network: &Network) -> Topology {
        let identity = |app: &AppSpec| AppIdentity {
            name: app.name.clone(),
            kind: app.kind.clone(),
            fingerprint: app.fingerprint.clone(),
            of_type: app.app.type_id(),
        };
        let workers = network.all_workers();
        let home = |app: &AppSpec| workers.iter().position(|worker| worker.name == app.worker).unwrap_or_default();
        let mut homes: Vec<usize> = network.apps.iter().map(home).collect();
        let known = network.apps.iter().zip(&homes).map(|(app, home)| (&*app.name, *home));
        let known: HashMap<&str, usize> = known.collect();
        let workers_at =
            |link: &LinkSpec| [&link.from, &link.to].map(|end| known.get(&*end.app).copied().unwrap_or_default());
        let ends: Vec<[usize; 2]> = network.links.iter().map(workers_at).collect();
        let crossings: Vec<usize> = (0..ends.len()).filter(|&link| ends[link][0] != ends[link][1]).collect();
        homes.extend(crossings.iter().flat_map(|&link| ends[link]));
        let apps = network.apps.iter().map(identity).collect();
        Topology {
            apps,
            links: network.links.clone(),
            workers,
            objects: network.objects.clone(),
            homes,
            ends,
            crossings,
        }
    }

    /// The position of a side of a crossing among the apps: 0 for the one that sends.
    pub(crate) fn side(&self, crossing: usize, side: usize) -> usize {
        self.apps.len() + 2 * crossing + side
    }

    /// The crossing of a link, if its ends are on different workers.
    pub(crate) fn crossing_of(&self, link: usize) -> Option<usize> {
        self.crossings.binary_search(&link).ok()
    }

    /// The ends of a link on its workers.
    pub(crate) fn place(&self, link: usize) -> LinkPlace {
        let [from, to] = self.ends[link];
        let arrived = self.crossing_of(link).map_or(link, |crossing| self.links.len() + crossing);
        LinkPlace { from: (from, link), to: (to, arrived) }
    }

    /// The workers at the two ends of a link.
    pub(crate) fn ends(&self, link: usize) -> [usize; 2] {
        self.ends[link]
    }

    /// A link by position. What has arrived of each link between workers follows the links of the network.
    pub(crate) fn link(&self, position: usize) -> &LinkSpec {
        let crossing = position.checked_sub(self.links.len());
        &self.links[crossing.map_or(position, |crossing| self.crossings[crossing])]
    }

    /// The name of an app, or of a side of a crossing.
    pub(crate) fn app_name(&self, position: usize) -> String {
        match position.checked_sub(self.apps.len()) {
            None => self.apps[position].name.clone(),
            Some(side) => format!("{}, {}", self.links[self.crossings[side / 2]], CROSSING_SIDES[side % 2]),
        }
    }

    /// For each app what a reload from `old` does to it.
    pub(crate) fn app_actions(&self, old: &Topology) -> Vec<AppAction> {
        let known: HashMap<&str, usize> = old.apps.iter().enumerate().map(|(index, app)| (&*app.name, index)).collect();
        let action = |app: &AppIdentity| match known.get(&*app.name) {
            Some(&index) if old.apps[index] == *app => AppAction::Keep(index),
            Some(&index) if old.apps[index].of_type == app.of_type && old.apps[index].kind == app.kind => {
                AppAction::Replace(index)
            }
            _ => AppAction::Start,
        };
        self.apps.iter().map(action).collect()
    }

    /// For each link the same link of `old`, if there is one.
    pub(crate) fn kept_links(&self, old: &Topology) -> Vec<Option<usize>> {
        let known: HashMap<&LinkSpec, usize> =
            old.links.iter().enumerate().map(|(index, link)| (link, index)).collect();
        self.links.iter().map(|link| known.get(link).copied()).collect()
    }
}

/// What a reload does to an app of the new configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppAction {
    /// Starts a new app.
    Start,
    /// Keeps this app of the old configuration, unchanged.
    Keep(usize),
    /// Starts an app that replaces this app of the old configuration.
    Replace(usize),
}

impl AppAction {
    /// The app of the old configuration whose counters this one continues.
    pub(crate) fn old_app(self) -> Option<usize> {
        match self {
            AppAction::Start => None,
            AppAction::Keep(app) | AppAction::Replace(app) => Some(app),
        }
    }

    /// Whether the app is started.
    pub(crate) fn starts_app(self) -> bool {
        !matches!(self, AppAction::Keep(_))
    }
}

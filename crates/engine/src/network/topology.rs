//! The topology of a configuration, and the difference between two topologies.

use std::any::TypeId;
use std::collections::HashMap;

use bellows_wiring::LinkSpec;

use super::{AppSpec, Network};

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
}

impl Topology {
    pub(crate) fn of(network: &Network) -> Topology {
        let identity = |app: &AppSpec| AppIdentity {
            name: app.name.clone(),
            kind: app.kind.clone(),
            fingerprint: app.fingerprint.clone(),
            of_type: app.app.type_id(),
        };
        Topology { apps: network.apps.iter().map(identity).collect(), links: network.links.clone() }
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

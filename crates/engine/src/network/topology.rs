//! What a configuration is, without its apps, and what of another one it continues.

use std::any::TypeId;
use std::collections::HashMap;

use bellows_wiring::LinkSpec;

use super::{AppSpec, Network};

/// What identifies an app from one configuration to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AppIdentity {
    pub(crate) name: String,
    pub(crate) kind: String,
    fingerprint: String,
    of_type: TypeId,
}

/// What a configuration is, without its apps: enough to compare it with another.
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

    /// For each app where it comes from, if this configuration follows `old`.
    pub(crate) fn origins(&self, old: &Topology) -> Vec<Origin> {
        let known: HashMap<&str, usize> = old.apps.iter().enumerate().map(|(index, app)| (&*app.name, index)).collect();
        let origin = |app: &AppIdentity| match known.get(&*app.name) {
            Some(&index) if old.apps[index] == *app => Origin::Kept(index),
            Some(&index) if old.apps[index].of_type == app.of_type && old.apps[index].kind == app.kind => {
                Origin::Replaces(index)
            }
            _ => Origin::New,
        };
        self.apps.iter().map(origin).collect()
    }

    /// For each link the one of `old` that it continues.
    pub(crate) fn link_origins(&self, old: &Topology) -> Vec<Option<usize>> {
        let known: HashMap<&LinkSpec, usize> =
            old.links.iter().enumerate().map(|(index, link)| (link, index)).collect();
        self.links.iter().map(|link| known.get(link).copied()).collect()
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

impl Origin {
    /// The app of the old configuration whose counts this one takes over.
    pub(crate) fn before(self) -> Option<usize> {
        match self {
            Origin::New => None,
            Origin::Kept(app) | Origin::Replaces(app) => Some(app),
        }
    }

    /// Whether this is another app than before.
    pub(crate) fn is_new(self) -> bool {
        !matches!(self, Origin::Kept(_))
    }
}

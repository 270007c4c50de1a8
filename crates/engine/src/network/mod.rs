//! A network: named apps, and links between their ports.

pub(crate) mod topology;

use std::fmt;

use bellows_wiring::{LinkSpec, LinkSyntaxError, WiredApp, WiringError, wiring_errors};

use crate::app::erased::DynApp;
use crate::app::{App, AppInfo};

/// One app of a network, made but not started.
pub struct AppSpec {
    /// Its name in links and reports.
    pub name: String,
    /// Its type's name.
    pub kind: String,
    /// Two apps of one name, kind and fingerprint are the same: a reload keeps the old one.
    pub fingerprint: String,
    pub(crate) info: AppInfo,
    pub(crate) app: Box<dyn DynApp>,
}

impl AppSpec {
    /// An app of any type under a name.
    pub fn new<A: App>(name: &str, kind: &str, fingerprint: &str, app: A) -> AppSpec {
        AppSpec {
            name: name.to_owned(),
            kind: kind.to_owned(),
            fingerprint: fingerprint.to_owned(),
            info: AppInfo::of::<A>(),
            app: Box::new(app),
        }
    }

    /// What the engine knows of its type.
    pub fn info(&self) -> AppInfo {
        self.info
    }

    /// Has the inputs' iterators fetch the packets' data so many packets ahead, at most 64, in place of what the app
    /// [says](App::PREFETCH). A reload takes an app with another distance for another app.
    #[must_use]
    pub fn prefetching(mut self, packets: usize) -> AppSpec {
        self.info.prefetch = packets;
        self.fingerprint.push_str(&format!(" prefetching {packets}"));
        self
    }
}

impl fmt::Debug for AppSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.name, self.kind)
    }
}

/// Apps and links, the description of what an engine runs.
#[derive(Debug, Default)]
pub struct Network {
    /// The apps, in order.
    pub apps: Vec<AppSpec>,
    /// The links, in order.
    pub links: Vec<LinkSpec>,
    /// File that it was read from, for reports; may be empty.
    pub source: String,
    /// Its text, for reports; may be empty.
    pub text: String,
}

impl Network {
    /// A network of nothing.
    pub fn new() -> Network {
        Network::default()
    }

    /// Adds an app, for networks that are built by a program rather than read from a file.
    pub fn app<A: App>(mut self, name: &str, app: A) -> Network {
        self.apps.push(AppSpec::new(name, std::any::type_name::<A>(), "", app));
        self
    }

    /// Adds a link, written as `app.output -> app.input`.
    ///
    /// # Errors
    /// When the text is no link. Whether its ends exist is found by [`Network::faults`].
    pub fn link(mut self, link: &str) -> Result<Network, LinkSyntaxError> {
        self.links.push(link.parse()?);
        Ok(self)
    }

    /// Everything that is wrong with the way the network is put together; empty if it can run.
    pub fn faults(&self) -> Vec<WiringError> {
        let apps: Vec<WiredApp<'_>> = self.apps.iter().map(AppSpec::wired).collect();
        wiring_errors(&apps, &self.links)
    }
}

impl AppSpec {
    pub(crate) fn wired(&self) -> WiredApp<'_> {
        WiredApp { name: &self.name, ports: Some((&self.kind, self.info.inputs, self.info.outputs)) }
    }
}

//! Reloads: replace the running network by another.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use bellows_observe::Reloaded;
use bellows_sys::way_out;
use bellows_wiring::WiringError;

use super::Control;
use super::shared::{Mailbox, OldConfiguration, Reply, Request, lock};
use crate::app::AppError;
use crate::configuration::{Configuration, ReloadParams, retire};
use crate::network::Network;
use crate::network::topology::{AppAction, Topology};
use crate::panics::catch_panic;
use crate::runtime::attention::request;

/// Why a reload failed. The old configuration runs on, except after [`Unpublished`](ReloadError::Unpublished).
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The new network has wiring errors.
    #[error("{}", .0.iter().map(WiringError::to_string).collect::<Vec<_>>().join("\n"))]
    Wiring(Vec<WiringError>),
    /// An app cannot start.
    #[error("app `{0}`: {1}; the old configuration runs on")]
    App(String, AppError),
    /// The counters cannot be created.
    #[error(
        "cannot create the counters: {0}; {help}; the old configuration runs on",
        help = way_out(.0, "free some memory or space on the tmpfs")
    )]
    Counters(io::Error),
    /// The new configuration runs, but other processes cannot see its counters.
    #[error(
        "the new configuration runs, but its counters cannot be published: {0}; {help}",
        help = way_out(.0, "make the runtime directory writable and reload again")
    )]
    Unpublished(io::Error),
    /// The run is over.
    #[error("the run is over")]
    Over,
}

impl Control {
    /// Replaces the running network. Apps and links that did not change keep their state and their packets.
    ///
    /// The calling thread lays out the new configuration; the engine commits it between two breaths; the calling thread
    /// ends the apps that were removed or replaced. An app whose configuration changed may take over resources of the
    /// old app.
    ///
    /// Blocks until the run begins. Must not be called on the engine's own thread.
    ///
    /// # Errors
    /// See [`ReloadError`].
    pub fn reload(&self, network: Network) -> Result<Reloaded, ReloadError> {
        self.reload_restarting(network, &[])
    }

    /// As [`Control::reload`], and also restarts the named apps even if they did not change. Apps that panicked are
    /// always restarted.
    ///
    /// # Errors
    /// See [`ReloadError`].
    pub fn reload_restarting(&self, network: Network, restart: &[String]) -> Result<Reloaded, ReloadError> {
        let start = Instant::now();
        let errors = network.wiring_errors();
        if !errors.is_empty() {
            return Err(ReloadError::Wiring(errors));
        }
        let mut current = lock(&self.shared.current);
        let runtime_dir = self.shared.runtime_dir.as_deref();
        let generation = current.generation + 1;
        let names = self.shared.names.as_deref();
        let slab = Arc::clone(&lock(&self.shared.view).slab);
        let params = ReloadParams { topology: &current.topology, directory: &slab.directory, restart, generation };
        let new = Configuration::prepare(network, &params, runtime_dir, &self.shared.settings, names);
        let new = new.map_err(ReloadError::Counters)?;
        let topology = Arc::clone(&new.graph.topology);
        let mut report = compare(&current.topology, &new);
        let retired_apps = new.plan.retired_apps(&new.graph);

        let (sender, receiver) = channel();
        match &mut *lock(&self.shared.mailbox) {
            Mailbox::Open(request) => *request = Some(Request { configuration: Box::new(new), reply: sender }),
            Mailbox::Closed => {
                if let Some(runtime_dir) = runtime_dir {
                    runtime_dir.discard(generation);
                }
                return Err(ReloadError::Over);
            }
        }
        self.shared.attention.raise(request::COMMIT);
        let reply = receiver.recv();
        report.swap_ns = start.elapsed().as_nanos() as u64;
        current.generation = generation;
        if !matches!(reply, Ok(Reply::Committed { .. }))
            && let Some(runtime_dir) = runtime_dir
        {
            runtime_dir.discard(generation);
        }
        match reply {
            Ok(Reply::Committed { old, revived, dropped, pause }) => {
                for names in [&mut report.kept, &mut report.replaced] {
                    names.retain(|name| !revived.contains(name));
                }
                report.revived = revived;
                current.topology = topology;
                self.shared.renew_map_for_perf();
                let published = runtime_dir.map_or(Ok(()), |runtime_dir| runtime_dir.publish(generation));
                report.dropped = dropped;
                report.pause_ns = pause.as_nanos() as u64;
                let OldConfiguration { graph, statuses } = *old;
                let retired = retire(graph, &retired_apps);
                // The last reference to the status of a removed app.
                let _ = catch_panic(|| drop(statuses));
                report.unfinished = retired.unfinished;
                if !retired.late.is_empty() {
                    lock(&self.shared.late).extend(retired.late);
                    self.shared.attention.raise(request::LATE_COUNTS);
                }
                published.map_err(ReloadError::Unpublished)?;
                Ok(report)
            }
            Ok(Reply::Failed { app, error, mut configuration }) => {
                let Configuration { graph, plan } = &mut *configuration;
                plan.stop_started(graph);
                drop(configuration);
                Err(ReloadError::App(app, error))
            }
            Err(_) => Err(ReloadError::Over),
        }
    }
}

/// The differences between two configurations.
fn compare(old: &Topology, new: &Configuration) -> Reloaded {
    let Configuration { graph: new, plan } = new;
    let mut report = Reloaded::default();
    let mut stays = vec![false; old.apps.len()];
    for (action, identity) in plan.app_actions.iter().zip(&new.topology.apps) {
        let names = match *action {
            AppAction::Keep(app) => {
                stays[app] = true;
                &mut report.kept
            }
            AppAction::Replace(app) => {
                stays[app] = true;
                &mut report.replaced
            }
            AppAction::Start => &mut report.added,
        };
        names.push(identity.name.clone());
    }
    let gone = old.apps.iter().zip(&stays).filter(|(_, stays)| !**stays);
    report.removed = gone.map(|(identity, _)| identity.name.clone()).collect();
    let added = new.topology.links.iter().zip(&plan.kept_links).filter(|(_, kept)| kept.is_none());
    report.links_added = added.map(|(link, _)| link.to_string()).collect();
    let stays: HashSet<usize> = plan.kept_links.iter().flatten().copied().collect();
    let removed = old.links.iter().enumerate().filter(|(index, _)| !stays.contains(index));
    report.links_removed = removed.map(|(_, link)| link.to_string()).collect();
    report
}

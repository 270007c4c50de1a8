//! Reloads: another network takes the place of the one that runs.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use bellows_observe::Reloaded;
use bellows_sys::way_out;
use bellows_wiring::WiringError;

use super::Control;
use super::shared::{Mailbox, Old, Reply, Request, lock};
use crate::app::AppError;
use crate::configuration::{Before, Configuration, retire};
use crate::network::Network;
use crate::network::topology::{Origin, Topology};
use crate::panics::contain;
use crate::runtime::attention::request;

/// Why a reload did not happen. The old configuration runs on.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The new network is not put together right.
    #[error("{}", .0.iter().map(WiringError::to_string).collect::<Vec<_>>().join("\n"))]
    Faults(Vec<WiringError>),
    /// An app cannot start.
    #[error("app `{0}`: {1}; the old configuration runs on")]
    App(String, AppError),
    /// The counters cannot be made.
    #[error(
        "cannot make the counters: {0}; {help}; the old configuration runs on",
        help = way_out(.0, "see that memory and room on the tmpfs are left")
    )]
    Counters(io::Error),
    /// The new configuration runs, but other processes cannot see its counters.
    #[error(
        "the new configuration runs, but its counters cannot be published: {0}; {help}",
        help = way_out(.0, "see that the directory of the run is writable, and reload again")
    )]
    Unpublished(io::Error),
    /// There is nothing to reload any more.
    #[error("the run is over")]
    Over,
}

impl Control {
    /// Replaces the running network. What did not change keeps its state and its packets.
    ///
    /// The new configuration is laid out on the calling thread; the engine swaps it in between two breaths, and the
    /// calling thread ends what is gone. An app whose configuration changed may take over the resources of the old.
    ///
    /// Waits for the run to begin if it has not; must not be called on the engine's own thread.
    ///
    /// # Errors
    /// See [`ReloadError`].
    pub fn reload(&self, network: Network) -> Result<Reloaded, ReloadError> {
        self.reload_restarting(network, &[])
    }

    /// As [`Control::reload`], but the apps of these names do not run on though they have not changed: new ones take their
    /// places. Apps that have panicked are started again in any case.
    ///
    /// # Errors
    /// See [`ReloadError`].
    pub fn reload_restarting(&self, network: Network, restart: &[String]) -> Result<Reloaded, ReloadError> {
        let start = Instant::now();
        let faults = network.faults();
        if !faults.is_empty() {
            return Err(ReloadError::Faults(faults));
        }
        let mut current = lock(&self.shared.current);
        let runtime_dir = self.shared.runtime_dir.as_deref();
        let generation = current.generation + 1;
        let names = self.shared.names.as_deref();
        let slab = Arc::clone(&lock(&self.shared.view).slab);
        let before = Before { topology: &current.topology, directory: &slab.directory, restart, generation };
        let new = Configuration::prepare(network, &before, runtime_dir, &self.shared.settings, names);
        let new = new.map_err(ReloadError::Counters)?;
        let topology = Arc::clone(&new.graph.topology);
        let mut report = compare(&current.topology, &new);
        let successors = new.plan.successors(&new.graph);

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
        self.shared.attention.ask(request::COMMIT);
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
                let Old { graph, statuses } = *old;
                let retired = retire(graph, &successors);
                // The last hold on what an app that is gone told.
                let _ = contain(|| drop(statuses));
                report.unfinished = retired.unfinished;
                if !retired.late.is_empty() {
                    lock(&self.shared.late).extend(retired.late);
                    self.shared.attention.ask(request::LATE_COUNTS);
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

/// What changes from one configuration to the next.
fn compare(old: &Topology, new: &Configuration) -> Reloaded {
    let Configuration { graph: new, plan } = new;
    let mut report = Reloaded::default();
    let mut stays = vec![false; old.apps.len()];
    for (origin, identity) in plan.origins.iter().zip(&new.topology.apps) {
        let names = match *origin {
            Origin::Kept(app) => {
                stays[app] = true;
                &mut report.kept
            }
            Origin::Replaces(app) => {
                stays[app] = true;
                &mut report.replaced
            }
            Origin::New => &mut report.added,
        };
        names.push(identity.name.clone());
    }
    let gone = old.apps.iter().zip(&stays).filter(|(_, stays)| !**stays);
    report.removed = gone.map(|(identity, _)| identity.name.clone()).collect();
    let added = new.topology.links.iter().zip(&plan.link_origins).filter(|(_, origin)| origin.is_none());
    report.links_added = added.map(|(link, _)| link.to_string()).collect();
    let stays: HashSet<usize> = plan.link_origins.iter().flatten().copied().collect();
    let removed = old.links.iter().enumerate().filter(|(index, _)| !stays.contains(index));
    report.links_removed = removed.map(|(_, link)| link.to_string()).collect();
    report
}

//! Reloads: replace the running network by another.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use bellows_observe::{Reloaded, RuntimeDir};
use bellows_packet::return_free_buffers;
use bellows_sys::remedy;
use bellows_wiring::WiringError;

use super::Control;
use super::shared::{ControlRequest, Mailbox, OldConfiguration, Reply, lock};
use crate::app::AppError;
use crate::configuration::{Configuration, Parts, ReloadParams, retire};
use crate::crew::{Member, WorkerError};
use crate::network::topology::{AppAction, Topology};
use crate::network::{MAIN, Network, WorkerSpec};
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
        help = remedy(.0, "free some memory or space on the tmpfs")
    )]
    Counters(io::Error),
    /// The new configuration runs, but other processes cannot see its counters.
    #[error(
        "the new configuration runs, but its counters cannot be published: {0}; {help}",
        help = remedy(.0, "make the runtime directory writable and reload again")
    )]
    Unpublished(io::Error),
    /// A new worker cannot start.
    #[error("{0}; the old configuration runs on")]
    Worker(#[from] WorkerError),
    /// In a lossless network, links between workers that are to be within one hold more packets than such a link, and
    /// their receivers do not take them.
    #[error(
        "the links {} hold too many packets for one worker, and they are not taken in time; reload when the apps that \
         receive them can go on; the old configuration runs on",
        .0.join(", ")
    )]
    Overfull(Vec<String>),
    /// The run is over.
    #[error("the run is over")]
    Over,
}

/// The time that links have to be emptied, and the interval of attempts.
const EMPTYING: Duration = Duration::from_secs(1);
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(1);

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
        let result = self.replace(network, restart);
        // Those of packets in removed apps, which this thread has freed and does not need.
        return_free_buffers();
        result
    }

    fn replace(&self, network: Network, restart: &[String]) -> Result<Reloaded, ReloadError> {
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
        let mut new = new.map_err(ReloadError::Counters)?;
        let topology = Arc::clone(&new.topology);
        let mut report = compare(&current.topology, &new);
        let Configuration { graphs, plan, .. } = &mut new;
        let retired_apps = plan.retired_apps(&Parts::new(graphs.iter_mut().collect()));
        // A worker that moves to another processor gets a new thread.
        let is_new = |worker: &&WorkerSpec| worker.name != MAIN && !current.topology.workers.contains(worker);
        let hired = topology.workers.iter().filter(is_new);
        let is_known = |name: &str| current.topology.workers.iter().any(|worker| worker.name == name);
        let hire = |worker: &WorkerSpec| {
            // A worker that moves takes its timeline along.
            let timelines = self.shared.timelines().filter(|_| !is_known(&worker.name));
            Member::hire(worker, &self.shared.settings, timelines)
        };
        let hired = hired.map(hire).collect::<Result<Vec<_>, _>>();
        let reply = hired.map(|hired| self.submit(new, hired));
        let discard = || {
            let Some(runtime_dir) = runtime_dir else { return };
            runtime_dir.discard(generation);
            forget_workers(runtime_dir, &topology, &current.topology);
        };
        let reply = match reply {
            Ok(Some(reply)) => reply,
            Ok(None) => {
                discard();
                return Err(ReloadError::Over);
            }
            Err(error) => {
                discard();
                return Err(error.into());
            }
        };
        report.swap_ns = start.elapsed().as_nanos() as u64;
        if !matches!(reply, Reply::Committed { .. }) {
            discard();
        }
        current.generation = generation;
        match reply {
            Reply::Committed { old, revived, dropped, pause } => {
                for names in [&mut report.kept, &mut report.replaced] {
                    names.retain(|name| !revived.contains(name));
                }
                report.revived = revived;
                if let Some(runtime_dir) = runtime_dir {
                    forget_workers(runtime_dir, &current.topology, &topology);
                }
                current.topology = topology;
                self.shared.renew_map_for_perf();
                let published = runtime_dir.map_or(Ok(()), |runtime_dir| runtime_dir.publish(generation));
                report.dropped = dropped;
                report.pause_ns = pause.as_nanos() as u64;
                let OldConfiguration { graphs, statuses } = *old;
                let retired = retire(graphs, &retired_apps);
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
            Reply::Failed { app, error, mut configuration } => {
                let Configuration { graphs, plan, .. } = &mut *configuration;
                plan.stop_started(&mut Parts::new(graphs.iter_mut().collect()));
                drop(configuration);
                Err(ReloadError::App(app, error))
            }
            Reply::Overfull { links, .. } => Err(ReloadError::Overfull(links)),
        }
    }

    /// Submits a configuration, and waits for the reply. Tries again while links must be emptied first. `None` if the
    /// run is over.
    fn submit(&self, configuration: Configuration, hired: Vec<Member>) -> Option<Reply> {
        let (mut configuration, mut hired) = (Box::new(configuration), hired);
        let deadline = Instant::now() + EMPTYING;
        loop {
            let (sender, receiver) = channel();
            match &mut *lock(&self.shared.mailbox) {
                Mailbox::Open(request) => *request = Some(ControlRequest { configuration, hired, reply: sender }),
                Mailbox::Closed => return None,
            }
            self.shared.attention.raise(request::COMMIT);
            match receiver.recv().ok()? {
                Reply::Overfull { configuration: again, hired: threads, .. } if Instant::now() < deadline => {
                    (configuration, hired) = (again, threads);
                    thread::sleep(ATTEMPT_INTERVAL);
                }
                reply => return Some(reply),
            }
        }
    }
}

/// Removes the timelines of workers that only the configuration which does not run has.
fn forget_workers(runtime_dir: &RuntimeDir, other: &Topology, running: &Topology) {
    let runs = |worker: &WorkerSpec| running.workers.iter().any(|known| known.name == worker.name);
    let gone = other.workers.iter().filter(|worker| !runs(worker));
    gone.for_each(|worker| runtime_dir.forget_worker(&worker.name));
}

/// The differences between two configurations.
fn compare(old: &Topology, new: &Configuration) -> Reloaded {
    let Configuration { topology: new, plan, .. } = new;
    let mut report = Reloaded::default();
    let mut stays = vec![false; old.apps.len()];
    for (action, identity) in plan.app_actions.iter().zip(&new.apps) {
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
    let added = new.links.iter().zip(&plan.kept_links).filter(|(_, kept)| kept.is_none());
    report.links_added = added.map(|(link, _)| link.to_string()).collect();
    let stays: HashSet<usize> = plan.kept_links.iter().flatten().copied().collect();
    let removed = old.links.iter().enumerate().filter(|(index, _)| !stays.contains(index));
    report.links_removed = removed.map(|(_, link)| link.to_string()).collect();
    report
}

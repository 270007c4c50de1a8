//! A network: named apps, and links between their ports.

pub(crate) mod topology;

use std::sync::Arc;
use std::{fmt, io};

use bellows_sys::{cpu, numa};
use bellows_wiring::{LinkSpec, LinkSyntaxError, WiredApp, WiringError, wiring_errors};

use crate::app::erased::{DynApp, erase};
use crate::app::{App, AppInfo, Status};

/// One app of a network, constructed but not started.
pub struct AppSpec {
    /// Its name in links and reports.
    pub name: String,
    /// Its type's name.
    pub kind: String,
    /// Two apps of equal name, kind and fingerprint are the same: a reload keeps the old one.
    pub fingerprint: String,
    /// The worker that runs it; [`MAIN`] unless another one is named.
    pub worker: String,
    /// The app with which it moves to another worker, if there is one: its cost depends on their being together.
    pub moves_with: Option<String>,
    /// Whether no file names it, because the loader has added it.
    pub is_made: bool,
    pub(crate) info: AppInfo,
    pub(crate) app: Box<dyn DynApp>,
}

/// The name of the first worker: the thread that runs the engine.
pub const MAIN: &str = "main";

/// A worker: a thread that runs a part of the apps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerSpec {
    /// Its name.
    pub name: String,
    /// The processor that it runs on, counted from 0. By default the kernel chooses.
    pub cpu: Option<usize>,
    /// The memory node that its buffers and its other memory are on. By default that of its processor, if it has one.
    pub numa: Option<usize>,
}

impl WorkerSpec {
    /// Its memory node, if the machine has several.
    pub(crate) fn node(&self) -> Option<usize> {
        let node = || self.numa.or_else(|| self.cpu.and_then(numa::node_of));
        if numa::are_several() { node() } else { None }
    }

    /// Makes the calling thread that of this worker: it runs on its processor, or on those of its memory node, or on any
    /// that the process may use, and its memory is on that node.
    ///
    /// # Errors
    /// Those of [`cpu::pin_to`].
    pub fn settle(&self) -> io::Result<()> {
        let of_node = self.numa.map(numa::allowed_cpus).filter(|cpus| !cpus.is_empty());
        match self.cpu {
            Some(cpu) => cpu::pin_to(cpu)?,
            None => cpu::allow(&of_node.unwrap_or_else(cpu::allowed_to_process))?,
        }
        bellows_arena::set_node(self.node());
        Ok(())
    }
}

impl AppSpec {
    /// Names an app of any type.
    pub fn new<A: App>(name: &str, kind: &str, fingerprint: &str, app: A) -> AppSpec {
        AppSpec {
            name: name.to_owned(),
            kind: kind.to_owned(),
            fingerprint: fingerprint.to_owned(),
            worker: MAIN.to_owned(),
            moves_with: None,
            is_made: false,
            info: AppInfo::of::<A>(),
            app: erase(app),
        }
    }

    /// Assigns the app to a worker. A reload that assigns it to another one keeps its state.
    #[must_use]
    pub fn on_worker(mut self, worker: &str) -> AppSpec {
        self.worker = worker.to_owned();
        self
    }

    /// The constants of its type.
    pub fn info(&self) -> AppInfo {
        self.info
    }

    /// Overrides the app's [prefetch distance](App::PREFETCH): input iterators prefetch packet data this many packets
    /// ahead, at most 64. A reload treats an app with another distance as changed.
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

/// An object that several apps use.
#[derive(Clone)]
pub struct ObjectSpec {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Its description of itself.
    pub status: Arc<dyn Status>,
}

impl ObjectSpec {
    /// An object with its name and type.
    pub fn new(name: &str, kind: &str, status: Arc<dyn Status>) -> ObjectSpec {
        ObjectSpec { name: name.to_owned(), kind: kind.to_owned(), status }
    }
}

impl fmt::Debug for ObjectSpec {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.name, self.kind)
    }
}

/// The apps and links that an engine runs.
#[derive(Debug, Default)]
pub struct Network {
    /// The apps, in order.
    pub apps: Vec<AppSpec>,
    /// The links, in order.
    pub links: Vec<LinkSpec>,
    /// The workers. Those that only apps name follow. The first one, [`MAIN`], need not be listed.
    pub workers: Vec<WorkerSpec>,
    /// The objects that several apps use, for reports: the apps have them.
    pub objects: Vec<ObjectSpec>,
    /// The file that it was read from, for reports; may be empty.
    pub source: String,
    /// Its text, for reports; may be empty.
    pub text: String,
}

impl Network {
    /// An empty network.
    pub fn new() -> Network {
        Network::default()
    }

    /// Adds an app, for networks built by a program rather than read from a file.
    pub fn app<A: App>(mut self, name: &str, app: A) -> Network {
        self.apps.push(AppSpec::new(name, std::any::type_name::<A>(), "", app));
        self
    }

    /// Assigns the app that was added last to a worker.
    #[must_use]
    pub fn on_worker(mut self, worker: &str) -> Network {
        if let Some(app) = self.apps.pop() {
            self.apps.push(app.on_worker(worker));
        }
        self
    }

    /// Adds a link, written as `app.output -> app.input`.
    ///
    /// # Errors
    /// If the text is no link. [`Network::wiring_errors`] checks whether its ends exist.
    pub fn link(mut self, link: &str) -> Result<Network, LinkSyntaxError> {
        self.links.push(link.parse()?);
        Ok(self)
    }

    /// All workers: first the one that runs the engine, then the listed ones, then those that only apps name.
    pub(crate) fn all_workers(&self) -> Vec<WorkerSpec> {
        let unlisted = |name: &str| WorkerSpec { name: name.to_owned(), ..WorkerSpec::default() };
        let named = self.apps.iter().map(|app| unlisted(&app.worker));
        let main = self.workers.iter().find(|worker| worker.name == MAIN);
        let mut workers = vec![main.cloned().unwrap_or_else(|| unlisted(MAIN))];
        for worker in self.workers.iter().cloned().chain(named) {
            if !workers.iter().any(|known| known.name == worker.name) {
                workers.push(worker);
            }
        }
        workers
    }

    /// All wiring errors of the network; empty if it can run.
    pub fn wiring_errors(&self) -> Vec<WiringError> {
        let apps: Vec<WiredApp<'_>> = self.apps.iter().map(AppSpec::wired).collect();
        wiring_errors(&apps, &self.links)
    }
}

impl AppSpec {
    pub(crate) fn wired(&self) -> WiredApp<'_> {
        WiredApp { name: &self.name, ports: Some((&self.kind, self.info.inputs, self.info.outputs)) }
    }
}

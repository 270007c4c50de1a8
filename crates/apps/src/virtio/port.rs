//! An app at a vhost-user socket, whichever side of the virtio-net device it is.

use std::sync::Arc;

use bellows_engine::{App, AppError, Counters, Io, Ports, Status};
use bellows_packet::Vector;
use bellows_virtio::vhost::Bell;

use super::finish::Budget;
use super::outgoing::{Outgoing, Void};
use super::{Control, NOTED_WITHIN};

/// The slot of the control thread. Two for each pair of queues follow.
pub(crate) const CONTROL: usize = 0;

/// One side of a virtio-net device, while it runs: from [`App::start`] to [`App::stop`].
pub trait Role: Send + Sized + 'static {
    /// What it is started with.
    type Config: Clone + PartialEq + Send;
    /// The app's inputs.
    const INPUTS: Ports;
    /// The app's outputs.
    const OUTPUTS: Ports;
    /// What the app counts.
    const COUNTERS: Counters<VirtioPort<Self>>;

    /// How many pairs of queues it may have.
    fn pairs(config: &Self::Config) -> u16;

    /// Starts it, in the place of one that runs if there is one.
    ///
    /// # Errors
    /// The socket cannot be served.
    fn start(config: Self::Config, before: Option<&Self>) -> Result<Self, AppError>;

    /// Takes over from the one before, when the configuration changes.
    fn begin(&self);

    /// Goes on where another was to take over and did not.
    fn resume(&self);

    /// Its state, for readers.
    fn status(&self) -> Arc<dyn Status>;

    /// How the control thread calls, and what it has said so far.
    fn control(&self) -> (Arc<Bell>, u32);

    /// Exchanges rings with the control thread, if that wants something.
    fn sync(&mut self, io: &Io<VirtioPort<Self>>);

    /// Watches the queues that there are now.
    fn attach(&mut self, io: &Io<VirtioPort<Self>>);

    /// Brings packets from the other side. Hot.
    fn pull(&mut self, io: &Io<VirtioPort<Self>>);

    /// Takes packets to the other side. Hot.
    fn push(&mut self, io: &Io<VirtioPort<Self>>);

    /// Brings the status up to date.
    fn note(&mut self);

    /// What is the same for both sides.
    fn session(&mut self) -> &mut Session;

    /// What waits for each queue to the other side.
    fn outgoing(&self) -> impl Iterator<Item = &Outgoing>;

    /// The same, to change it; and what each may have finished in a breath.
    fn outgoing_mut(&mut self) -> (impl Iterator<Item = &mut Outgoing>, Budget);
}

/// What both sides keep while they run.
pub struct Session {
    /// Where a call collects what comes from the other side.
    pub(crate) packets: Vector,
    /// Whether a tick is due that brings the status up to date.
    noting: bool,
    /// The pair that is pulled first, each in turn.
    pub(crate) first: usize,
    /// What each pair may have finished in a breath.
    pub(crate) share: Budget,
    pub(crate) void: Void,
}

impl Session {
    pub(crate) fn new() -> Session {
        Session { packets: Vector::new(), noting: false, first: 0, share: Budget::share(1, 1), void: Void::default() }
    }

    /// Asks for a tick that brings the status up to date.
    #[inline]
    pub(crate) fn will_note<R: Role>(&mut self, io: &Io<VirtioPort<R>>) {
        if !self.noting {
            self.noting = true;
            io.wake_at(io.now() + NOTED_WITHIN);
        }
    }
}

/// An app that is one side of a virtio-net device at a vhost-user socket.
pub struct VirtioPort<R: Role> {
    pub(crate) config: R::Config,
    running: Option<R>,
    /// Whether the slots are set, which each engine does anew.
    watching: bool,
}

impl<R: Role> VirtioPort<R> {
    pub(crate) fn new(config: R::Config) -> VirtioPort<R> {
        VirtioPort { config, running: None, watching: false }
    }

    /// Gives each queue its share of what may be finished; returns how many packets wait.
    #[inline]
    fn refill(running: &mut R) -> usize {
        let (queues, share) = running.outgoing_mut();
        queues.fold(0, |held, queue| {
            queue.finisher.refill(share);
            held + queue.held()
        })
    }
}

impl<R: Role> App for VirtioPort<R> {
    const INPUTS: Ports = R::INPUTS;
    const OUTPUTS: Ports = R::OUTPUTS;
    const PULLS: bool = true;
    // What goes to the other side does not come back.
    const MAX_FAN_OUT: usize = 0;
    const ENDS: bool = true;
    const COUNTERS: Counters<Self> = R::COUNTERS;

    fn slots(&self) -> usize {
        1 + 2 * usize::from(R::pairs(&self.config))
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        let running = match old {
            Some(old) if old.config == self.config && old.running.is_some() => old.running.take(),
            Some(VirtioPort { running: Some(running), .. }) => Some(R::start(self.config.clone(), Some(running))?),
            _ => Some(R::start(self.config.clone(), None)?),
        };
        self.running = running;
        Ok(())
    }

    fn give_back(&mut self, old: &mut Self) {
        match &old.running {
            None => old.running = self.running.take(),
            // This one ends when it is dropped, which is not done between two breaths.
            Some(running) => running.resume(),
        }
    }

    fn begin(&mut self) {
        if let Some(running) = &self.running {
            running.begin();
        }
    }

    fn stop(&mut self) -> Result<(), AppError> {
        self.running = None;
        Ok(())
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        self.running.as_ref().map(R::status)
    }

    fn held(&self) -> usize {
        self.running.iter().flat_map(R::outgoing).map(Outgoing::held).sum()
    }

    fn tick(&mut self, io: &Io<Self>) {
        if let Some(running) = &mut self.running {
            if !self.watching {
                self.watching = true;
                let (bell, said) = running.control();
                io.slot(CONTROL).watch(Arc::new(Control(bell)), u32::MAX, said);
                running.attach(io);
            }
            running.session().noting = false;
            running.note();
        }
    }

    fn pull(&mut self, io: &Io<Self>) {
        if let Some(running) = &mut self.running {
            running.sync(io);
            running.pull(io);
            // Packets that wait inside are nobody else's to push.
            if Self::refill(running) > 0 {
                running.push(io);
            }
        }
    }

    fn push(&mut self, io: &Io<Self>) {
        if let Some(running) = &mut self.running {
            running.sync(io);
            running.push(io);
            // If nothing is pulled in the next breath, it begins here.
            Self::refill(running);
        }
    }
}

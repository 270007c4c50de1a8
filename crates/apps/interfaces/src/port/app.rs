//! The app of all ports.

use std::sync::Arc;

use bellows_engine::{App, AppError, Counters, DropReason, Input, Io, Ports, Status};
use bellows_handover::Bell;
use bellows_packet::Vector;
use bellows_wire::flow::{self, Directions};

use super::finish::Budget;
use super::outgoing::{Outgoing, Void};
use super::{Control, NOTED_AT_REST, NOTED_WITHIN};

/// The slot of the control thread; those of queues follow.
const CONTROL: usize = 0;

/// What differs between ports: one side of a virtio-net device, or an interface, while it runs: from [`App::start`] to [`App::stop`].
pub trait Role: Send + Sized + 'static {
    /// The checked configuration.
    type Config: Clone + PartialEq + Send;
    /// The app's inputs.
    const INPUTS: Ports;
    /// The app's outputs.
    const OUTPUTS: Ports;
    /// The app's counters.
    const COUNTERS: Counters<PortApp<Self>>;

    /// The number of slots, besides that of the control thread, which is the first.
    fn slots(config: &Self::Config) -> usize;

    /// Starts as the app of this name, in place of `before` if that is running.
    ///
    /// # Errors
    /// The socket or the interface cannot be used.
    fn start(app: &str, config: Self::Config, before: Option<&Self>) -> Result<Self, AppError>;

    /// Takes over from the predecessor when the configuration changes.
    fn begin(&self);

    /// Continues after a successor has failed to start.
    fn resume(&self);

    /// The state that `bellows show status` prints.
    fn status(&self) -> Arc<dyn Status>;

    /// The control thread's bell.
    fn doorbell(&self) -> Arc<Bell>;

    /// The value of the bell's word that has been handled.
    fn expected(&self) -> u32;

    /// Exchanges queues with the control thread if it asks for that. True if the queues may be others now.
    fn exchange(&mut self) -> bool;

    /// Watches the present queues, and [listens](Role::listen) to them.
    fn attach(&mut self, io: &Io<PortApp<Self>>);

    /// Watches for packets from the other side, or ceases to if the output is not linked and the other side does not mind
    /// that nobody takes them.
    fn listen(&mut self, io: &Io<PortApp<Self>>) {
        let _ = io;
    }

    /// Whether the app is finished if its output is not linked, and holds nothing. A guest may still do something then.
    fn may_end(&self) -> bool {
        false
    }

    /// Brings packets from the other side. Hot.
    fn pull(&mut self, io: &Io<PortApp<Self>>);

    /// Takes packets to the other side. Hot.
    fn push(&mut self, io: &Io<PortApp<Self>>);

    /// Updates the status, and counters that are not worth a look in each call.
    fn note(&mut self, io: &Io<PortApp<Self>>);

    /// The state that both sides have.
    fn session(&self) -> &PortSession;

    /// The same, mutable.
    fn session_mut(&mut self) -> &mut PortSession;
}

/// The state of either side while it runs.
pub struct PortSession {
    /// Collects the packets of a call from the other side.
    pub(crate) packets: Vector,
    /// The tick that will update the status.
    noting: Noting,
    /// The pair that is pulled first; the next one in each call.
    pub(crate) first: usize,
    /// The segments and checksums that each pair may finish in a breath.
    share: Budget,
    /// The packets for the other side, of each pair.
    pub(crate) outgoing: Vec<Outgoing>,
    /// The pairs that take packets.
    open: Vec<u16>,
    pub(crate) void: Void,
}

impl PortSession {
    /// The state for this many pairs of queues.
    pub(crate) fn new(pairs: usize) -> PortSession {
        PortSession {
            packets: Vector::new(),
            noting: Noting::Never,
            first: 0,
            share: Budget::share(1, 1),
            outgoing: (0..pairs).map(|_| Outgoing::new()).collect(),
            open: Vec::with_capacity(pairs),
            void: Void::default(),
        }
    }

    /// Makes room for the packets of this many pairs.
    pub(crate) fn grow(&mut self, pairs: usize) {
        let more = pairs.saturating_sub(self.outgoing.len());
        self.outgoing.extend((0..more).map(|_| Outgoing::new()));
    }

    /// Sets the pairs that take packets.
    pub(crate) fn set_open(&mut self, burst: usize, open: impl Iterator<Item = usize>) {
        self.open.clear();
        self.open.extend(open.map(|pair| pair as u16));
        self.share = Budget::share(burst, self.open.len());
    }

    /// Number of pairs that take packets.
    #[inline]
    pub(crate) fn open(&self) -> usize {
        self.open.len()
    }

    /// Distributes packets over the pairs that take packets, all packets of a flow to one pair. Packets stay in the
    /// link when all queues are full, and in a lossless network when the queue of the next packet is full. Otherwise
    /// packets whose queue is full are dropped for the given reason.
    pub(crate) fn share_out<A: App>(&mut self, io: &Io<A>, input: &mut Input<'_, A>, queue_full: DropReason<A>) {
        let PortSession { open, outgoing, .. } = self;
        outgoing.iter_mut().for_each(|queue| queue.waiting.compact());
        while let Some(next) = input.packets().first() {
            let pair = open[flow::share(flow::hash(next.bytes(), Directions::Together).unwrap_or(0), open.len())];
            let room = |pair: u16, outgoing: &[Outgoing]| outgoing[usize::from(pair)].waiting.room();
            if room(pair, outgoing) == 0 && (io.is_lossless() || open.iter().all(|&pair| room(pair, outgoing) == 0)) {
                break;
            }
            let Some(packet) = input.into_iter().next() else { break };
            if let Err(packet) = outgoing[usize::from(pair)].waiting.push(packet) {
                io.drop(packet, queue_full);
            }
        }
    }

    /// Gives each queue its share of what may be finished; returns the number of packets that wait.
    #[inline]
    fn refill(&mut self) -> usize {
        self.outgoing.iter_mut().fold(0, |held, queue| {
            queue.finisher.refill(self.share);
            held + queue.held()
        })
    }

    /// Asks for a tick that updates the status: soon if something has happened, and otherwise within a second, because
    /// a port that is asked in every breath must not keep an idle engine awake.
    #[inline]
    pub(crate) fn will_note<R: Role>(&mut self, io: &Io<PortApp<R>>, has_happened: bool) {
        let noting = if has_happened { Noting::Soon } else { Noting::Later };
        if self.noting < noting {
            self.noting = noting;
            match noting {
                Noting::Soon => io.wake_at(io.now() + NOTED_WITHIN),
                _ => io.wake_each(NOTED_AT_REST),
            }
        }
    }
}

/// The tick that will update the status of a port.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Noting {
    Never,
    Later,
    Soon,
}

/// An app through which packets enter and leave the network.
pub struct PortApp<R: Role> {
    /// The app's name, for the log.
    name: String,
    pub(crate) config: R::Config,
    running: Option<R>,
    /// Whether the output is linked, as the present slots know it.
    receives: bool,
    /// Whether the slots are set; each engine sets them anew.
    watching: bool,
}

impl<R: Role> PortApp<R> {
    pub(crate) fn new(name: &str, config: R::Config) -> PortApp<R> {
        PortApp { name: name.to_owned(), config, running: None, receives: true, watching: false }
    }

    /// Exchanges rings with the control thread, if it asks for that.
    #[inline]
    fn sync(running: &mut R, io: &Io<Self>) {
        if running.exchange() {
            running.attach(io);
        }
        io.slot(CONTROL).expect(running.expected());
    }
}

impl<R: Role> App for PortApp<R> {
    const INPUTS: Ports = R::INPUTS;
    const OUTPUTS: Ports = R::OUTPUTS;
    const PULLS: bool = true;
    // Packets for the other side do not come back.
    const MAX_FAN_OUT: usize = 0;
    const ENDS: bool = true;
    const COUNTERS: Counters<Self> = R::COUNTERS;

    fn slots(&self) -> usize {
        1 + R::slots(&self.config)
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        let running = match old {
            Some(old) if old.config == self.config && old.running.is_some() => old.running.take(),
            Some(PortApp { running: Some(running), .. }) => {
                Some(R::start(&self.name, self.config.clone(), Some(running))?)
            }
            _ => Some(R::start(&self.name, self.config.clone(), None)?),
        };
        self.running = running;
        Ok(())
    }

    fn give_back(&mut self, old: &mut Self) {
        match &old.running {
            None => old.running = self.running.take(),
            // This one ends when it is dropped, and that does not happen between two breaths.
            Some(running) => running.resume(),
        }
    }

    fn begin(&mut self) {
        if let Some(running) = &self.running {
            running.begin();
        }
    }

    fn end(&mut self, io: &Io<Self>) {
        if let Some(running) = &mut self.running {
            running.note(io);
        }
        // What the slots watch belongs to queues that are closed next.
        (0..self.slots()).for_each(|slot| io.slot(slot).never());
    }

    fn stop(&mut self) -> Result<(), AppError> {
        self.running = None;
        Ok(())
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        self.running.as_ref().map(R::status)
    }

    /// A port of an interface without a linked output is as good as a sink.
    fn is_finished(&self) -> bool {
        !self.receives && self.running.as_ref().is_some_and(Role::may_end)
    }

    fn held(&self) -> usize {
        self.running.iter().flat_map(|running| &running.session().outgoing).map(Outgoing::held).sum()
    }

    fn tick(&mut self, io: &Io<Self>) {
        let received = std::mem::replace(&mut self.receives, io.is_linked(0));
        if let Some(running) = &mut self.running {
            if !self.watching {
                self.watching = true;
                io.slot(CONTROL).watch(Arc::new(Control(running.doorbell())), u32::MAX, running.expected());
                running.attach(io);
            } else if received != self.receives {
                running.listen(io);
            }
            running.session_mut().noting = Noting::Never;
            running.note(io);
        }
    }

    fn pull(&mut self, io: &Io<Self>) {
        if let Some(running) = &mut self.running {
            Self::sync(running, io);
            running.pull(io);
            // Packets that wait inside are nobody else's to push.
            if running.session_mut().refill() > 0 {
                running.push(io);
            }
        }
    }

    fn push(&mut self, io: &Io<Self>) {
        if let Some(running) = &mut self.running {
            Self::sync(running, io);
            running.push(io);
            // If nothing is pulled in the next breath, it begins here.
            running.session_mut().refill();
        }
    }
}

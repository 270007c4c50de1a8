//! The device as the driver's process sees it: rings that are lent to the engine and taken back. `requests.rs`
//! implements each request.
//!
//! A request that concerns a running ring first takes the ring back from the engine; then the request is done, and the
//! ring is created anew and lent again. So a ring never changes while it runs.

mod requests;
mod retired;

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bellows_ipc::mapping::PeerMemory;
use bellows_ipc::notify::Notifier;
use bellows_packet::LargeShare;

use crate::inflight::InflightRegion;
use crate::log::Log;
use crate::ring::{Direction, ReceiveRing, RingError, SetupError, TransmitRing};
use crate::{Features, Memory};

use super::channel::Channel;
use super::message::{ProtocolFeatures, VhostMessage, flags};
use super::port::{LentRing, Ring};
use super::ports::Ports;
use super::queue::{Queue, Unusable};
use super::regions::Regions;
use super::request::VhostRequest;
use super::status::DeviceStatus;
use super::status::QueueState;
use super::{BackendConfig, ProtocolError};
use bellows_handover::{Lender, Recalled};

use retired::Retired;

/// Time for the engine to give a ring back before the status says so.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the driver's process is notified of changes in the log.
const LOG_PULSE: Duration = Duration::from_millis(100);

/// The reply to a request.
pub(super) enum Reply {
    /// Success, if an acknowledgement is wanted.
    Done,
    /// A body, and maybe a descriptor; always sent.
    Body(Vec<u8>, Option<File>),
}

impl Reply {
    fn number(number: u64) -> Reply {
        Reply::Body(number.to_le_bytes().into(), None)
    }
}

/// One device, and the state that its driver's process has set so far.
pub(super) struct Device {
    config: BackendConfig,
    lender: Lender<LentRing>,
    status: Arc<DeviceStatus>,
    /// The limits on mapping the files of the driver's process.
    memory: PeerMemory,
    /// The ports with its pairs, and its notifiers.
    ports: Arc<Ports>,
    /// The quota of large buffers for the driver's packets.
    share: Arc<LargeShare>,
    session: DeviceSession,
    retired: Retired,
}

/// The state of one connection.
#[derive(Default)]
struct DeviceSession {
    /// The features that the driver may choose from. They and the number of queues stay as they were at its beginning.
    offered: Features,
    features: Features,
    negotiated: bool,
    protocol: ProtocolFeatures,
    regions: Regions,
    memory: Arc<Memory>,
    queues: Vec<Queue>,
    log: Option<Arc<Log>>,
    inflight: Option<Arc<InflightRegion>>,
}

impl DeviceSession {
    fn with_queues(queues: usize) -> DeviceSession {
        DeviceSession { queues: (0..queues).map(|_| Queue::default()).collect(), ..DeviceSession::default() }
    }
}

impl Device {
    pub(super) fn new(
        config: BackendConfig,
        lender: Lender<LentRing>,
        status: Arc<DeviceStatus>,
        ports: Arc<Ports>,
    ) -> Device {
        let memory = PeerMemory::limited(config.policy.any_file);
        let share = Arc::new(LargeShare::new());
        let (session, retired) = (DeviceSession::default(), Retired::default());
        Device { config, lender, status, memory, ports, share, session, retired }
    }

    /// Begins a connection, with the pairs that ports have now. Returns the number of queues.
    pub(super) fn connect(&mut self) -> usize {
        let pairs = self.ports.pairs();
        let offered = self.config.offered(pairs);
        self.status.offer(offered);
        self.session = DeviceSession { offered, ..DeviceSession::with_queues(2 * pairs) };
        2 * pairs
    }

    /// Number of pairs of queues of the connection.
    fn pairs(&self) -> usize {
        self.session.queues.len() / 2
    }

    /// Notifies the driver of used buffers.
    fn call(&self, queue: usize) -> Notifier {
        self.ports.call(queue)
    }

    /// Notifies the driver's process that a ring was stopped.
    fn error_call(&self, queue: usize) -> Notifier {
        self.ports.error_call(queue)
    }

    /// Notifies the driver's process of changes in the log.
    fn log_call(&self) -> Notifier {
        self.ports.log_call()
    }

    /// Ends all notifications of a queue.
    fn clear_notifiers(&self, queue: usize) {
        for notifier in [self.call(queue), self.error_call(queue)] {
            // Removing an event does not fail.
            let _ = notifier.set(None);
        }
    }

    /// How often [`poll_state`](Device::poll_state) must be called even if nothing happens.
    pub(super) fn pulse(&self) -> Option<Duration> {
        let log = (self.session.log.is_some() && self.log_call().is_set()).then_some(LOG_PULSE);
        let queues = self.session.queues.iter().enumerate();
        let queues = queues.filter_map(|(index, queue)| queue.pulse(self.session.features, Direction::of_queue(index)));
        self.retired.pulse().into_iter().chain(log).chain(queues).min()
    }

    /// Frees retired memory that is no longer used, and returns how soon to call it again if there is some left.
    pub(super) fn free_memory(&mut self) -> Option<Duration> {
        self.retired.free();
        self.retired.pulse()
    }

    /// Replaces the memory.
    fn replace_memory(&mut self, memory: Memory) {
        self.retired.add(std::mem::replace(&mut self.session.memory, Arc::new(memory)));
    }

    /// Handles a request and replies to it.
    pub(super) fn answer(&mut self, message: VhostMessage, channel: &mut Channel) -> Result<(), ProtocolError> {
        if message.flags & flags::REPLY != 0 {
            return Err(ProtocolError::Unexpected(message.request));
        }
        let (number, wants_reply) = (message.request, message.needs_reply());
        let request = VhostRequest::of(number);
        let done = match request {
            Some(request) => request.handle(self, &message.body, message.files, self.session.protocol),
            None => Err(ProtocolError::Unknown(number)),
        };
        let started = self.start(request.is_some_and(VhostRequest::changes_memory));
        self.tell();
        let may_ack = wants_reply && self.session.protocol.has(ProtocolFeatures::REPLY_ACK);
        match done {
            Ok(Reply::Body(body, file)) => {
                let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
                channel.send(number, flags::REPLY, &body, &files)
            }
            Ok(Reply::Done) if may_ack => channel.send(number, flags::REPLY, &u64::from(!started).to_le_bytes(), &[]),
            Ok(Reply::Done) => Ok(()),
            Err(error) if may_ack && error.is_refusal() && !request.is_some_and(VhostRequest::has_own_reply) => {
                self.status.common.protocol_error(&error);
                channel.send(number, flags::REPLY, &1_u64.to_le_bytes(), &[])
            }
            Err(error) => Err(error),
        }
    }

    /// Handles events that come without a message.
    pub(super) fn poll_state(&mut self) {
        while let Some((index, lent)) = self.lender.given_up() {
            self.take_back(index, &lent);
            self.tell();
        }
        if self.session.log.as_ref().is_some_and(|log| log.take_news()) {
            self.log_call().notify();
        }
        self.retired.free();
        // A queue may have been disabled for long enough.
        let features = self.session.features;
        let mut queues = self.session.queues.iter().enumerate();
        if queues.any(|(index, queue)| queue.is_ready(features, Direction::of_queue(index))) {
            self.start(false);
            self.tell();
        }
    }

    /// Resets everything after the driver's process has gone.
    pub(super) fn disconnect(&mut self) {
        self.pause_all();
        self.replace_memory(Memory::default());
        (0..self.session.queues.len()).for_each(|queue| self.clear_notifiers(queue));
        let _ = self.log_call().set(None);
        self.session = DeviceSession::with_queues(self.session.queues.len());
        self.tell();
    }

    /// Resets everything after a panic of the thread.
    pub(super) fn recover(&mut self) {
        self.session.queues.fill_with(Queue::default);
        // Asks for each ring that the engine may have.
        self.session.queues.iter_mut().for_each(|queue| queue.running = true);
        self.disconnect();
    }

    fn queue(&self, request: VhostRequest, queue: u32) -> Result<usize, ProtocolError> {
        let queues = self.session.queues.len();
        let index = usize::try_from(queue).ok().filter(|index| *index < queues);
        index.ok_or(ProtocolError::Queue { request: request.name(), queue, queues })
    }

    fn pause_all(&mut self) {
        let all: Vec<usize> = (0..self.session.queues.len()).collect();
        self.pause(&all);
    }

    /// Takes rings back from the engine. Waits until it has given them back.
    fn pause(&mut self, queues: &[usize]) {
        let running: Vec<usize> = queues.iter().copied().filter(|queue| self.session.queues[*queue].running).collect();
        running.iter().for_each(|queue| self.lender.want(*queue));
        for queue in running {
            match self.lender.recall(queue, PATIENCE, || self.report_delay(queue)) {
                Recalled::Back(lent) => self.take_back(queue, &lent),
                // The engine keeps it until its own end; this thread ends, too.
                Recalled::Ended | Recalled::Nothing => self.session.queues[queue].running = false,
            }
        }
        self.status.common.update(|snapshot| snapshot.waits = None);
    }

    fn report_delay(&self, queue: usize) {
        let message = format!(
            "the app of {} has not given ring {queue} back for {} seconds: is its engine stopped, or busy elsewhere?",
            self.status.socket().display(),
            PATIENCE.as_secs()
        );
        self.status.common.update(|snapshot| snapshot.waits = Some(message));
    }

    /// Records the position of a ring that came back.
    fn take_back(&mut self, index: usize, lent: &LentRing) {
        let queue = &mut self.session.queues[index];
        queue.running = false;
        queue.base = lent.ring.position().base();
        self.status.settle(index, lent.ring.counters());
        if let Some(error) = lent.error() {
            // Memory with a hole reads as zeros, which may look like any error.
            let error = if self.session.memory.is_broken() { RingError::MemoryGone } else { error };
            self.fail(index, error.name(), error.to_string());
        }
    }

    fn fail(&mut self, index: usize, name: &'static str, message: String) {
        self.error_call(index).notify();
        let queue = &mut self.session.queues[index];
        queue.failed = Some(message.clone());
        self.status.common.count(name, message);
    }

    /// Lends the engine every ring that can run. False if one of them turned out to be impossible.
    ///
    /// While memory regions are exchanged a ring may have none for a moment. That is not an error.
    fn start(&mut self, about_memory: bool) -> bool {
        let ready = |device: &Device, index: usize| {
            device.session.queues[index].is_ready(device.session.features, Direction::of_queue(index))
        };
        if self.session.memory.regions().is_empty() {
            return true;
        }
        let mut good = true;
        for index in 0..self.session.queues.len() {
            if !ready(self, index) {
                continue;
            }
            match self.make_ring(index) {
                Ok(ring) => {
                    let instance = ring.instance();
                    self.status.common.update(|snapshot| snapshot.side.queues[index].instance = instance);
                    self.session.queues[index].running = true;
                    self.lender.offer(index, LentRing::new(ring));
                }
                Err(error @ Unusable::Setup(SetupError::Outside { .. })) if about_memory => {
                    self.session.queues[index].failed = Some(error.to_string());
                }
                Err(error) => {
                    good = false;
                    self.fail(index, "ring_unusable", error.to_string());
                }
            }
        }
        good
    }

    fn make_ring(&self, index: usize) -> Result<Ring, Unusable> {
        let session = &self.session;
        let queue = &session.queues[index];
        let (setup, inflight) =
            queue.setup(&session.memory, session.features, session.inflight.as_ref(), index, self.call(index))?;
        let logged = queue.logged(&setup);
        let mut ring = match index % 2 {
            0 => Ring::Receive(ReceiveRing::new(setup)?),
            _ => {
                let mut ring = TransmitRing::new(setup)?;
                ring.set_share(Arc::clone(&self.share));
                ring.set_discarding(!queue.is_enabled(session.features));
                Ring::Transmit(ring)
            }
        };
        let log = session.log.clone().filter(|_| session.features.has(Features::LOG_ALL));
        ring.note_in(log, logged, inflight);
        Ok(ring)
    }

    /// Updates the status.
    fn tell(&self) {
        let session = &self.session;
        self.status.common.update(|snapshot| {
            let side = &mut snapshot.side;
            side.features = session.negotiated.then_some(session.features);
            side.protocol = session.protocol;
            side.logging = session.log.is_some() && session.features.has(Features::LOG_ALL);
            let regions = session.memory.regions();
            side.regions = regions.iter().map(|region| (region.guest(), region.length())).collect();
            for (said, queue) in side.queues.iter_mut().zip(&session.queues) {
                said.state = queue.state(session.features);
                said.size = queue.size;
                if said.state != QueueState::Running {
                    said.instance.clear();
                }
            }
        });
    }
}

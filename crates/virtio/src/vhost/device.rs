//! The device as the driver's process sees it: what each request does.
//!
//! Whatever concerns a ring that runs takes it back from the engine first, is done, and then the ring is made anew and
//! lent again; so a ring never changes while it runs.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use bellows_sys::socket::is_event;
use bellows_sys::wake::Event;

use crate::inflight::InflightRegion;
use crate::log::Log;
use crate::ring::{ReceiveRing, SetupError, TransmitRing};
use crate::{Features, Memory};

use super::channel::Channel;
use super::handover::{Lender, Recalled};
use super::message::{
    Body, InflightMessage, MOST_FILES, Message, NO_FILE, ProtocolFeatures, RegionMessage, Request, VringAddresses,
    VringState, flags,
};
use super::port::{Lent, Ring};
use super::queue::Queue;
use super::regions::Regions;
use super::status::QueueState;
use super::{BackendStatus, ProtocolError};

/// How long the engine may take to give a ring back before the status says so.
const PATIENCE: Duration = Duration::from_secs(2);

/// How often the driver's process is told that there is something new in the log.
const LOG_PULSE: Duration = Duration::from_millis(100);

/// Bytes in the configuration space, as far as the protocol reaches.
const CONFIG_SPACE: usize = 256;

/// In the configuration space: the link is up.
const LINK_UP: u16 = 1;

/// What is sent back.
enum Reply {
    /// Only that it worked, if that is wanted.
    Done,
    /// A body, and maybe a descriptor, in any case.
    Body(Vec<u8>, Option<File>),
}

impl Reply {
    fn number(number: u64) -> Reply {
        Reply::Body(number.to_le_bytes().into(), None)
    }
}

/// One device, and what its driver's process has said so far.
pub(super) struct Device {
    offered: Features,
    pairs: usize,
    mac: Option<[u8; 6]>,
    lender: Lender<Lent>,
    status: Arc<BackendStatus>,
    session: Session,
}

/// What is known of one connection.
#[derive(Default)]
struct Session {
    features: Features,
    negotiated: bool,
    protocol: ProtocolFeatures,
    regions: Regions,
    memory: Arc<Memory>,
    queues: Vec<Queue>,
    log: Option<Arc<Log>>,
    log_call: Option<Event>,
    inflight: Option<Arc<InflightRegion>>,
}

impl Device {
    pub(super) fn new(
        offered: Features,
        pairs: usize,
        mac: Option<[u8; 6]>,
        lender: Lender<Lent>,
        status: Arc<BackendStatus>,
    ) -> Device {
        let queues = (0..2 * pairs).map(|_| Queue::default()).collect();
        Device { offered, pairs, mac, lender, status, session: Session { queues, ..Session::default() } }
    }

    /// How often [`look_around`](Device::look_around) is to be called even if nothing happens.
    pub(super) fn pulse(&self) -> Option<Duration> {
        (self.session.log.is_some() && self.session.log_call.is_some()).then_some(LOG_PULSE)
    }

    /// Does what a message asks for and replies to it.
    pub(super) fn answer(&mut self, message: Message, channel: &mut Channel) -> Result<(), ProtocolError> {
        if message.flags & flags::REPLY != 0 {
            return Err(ProtocolError::Unexpected(message.request));
        }
        let (request, wants_reply) = (message.request, message.needs_reply());
        let done = self.handle(message);
        let started = self.start();
        self.tell();
        let may_ack = wants_reply && self.session.protocol.has(ProtocolFeatures::REPLY_ACK);
        match done {
            Ok(Reply::Body(body, file)) => {
                let files: Vec<_> = file.iter().map(AsFd::as_fd).collect();
                channel.send(request, flags::REPLY, &body, &files)
            }
            Ok(Reply::Done) if may_ack => channel.send(request, flags::REPLY, &u64::from(!started).to_le_bytes(), &[]),
            Ok(Reply::Done) => Ok(()),
            Err(error) if may_ack && error.is_refusal() => {
                self.status.protocol_error(&error);
                channel.send(request, flags::REPLY, &1_u64.to_le_bytes(), &[])
            }
            Err(error) => Err(error),
        }
    }

    /// Sees to what happened without a message.
    pub(super) fn look_around(&mut self) {
        while let Some((index, lent)) = self.lender.given_up() {
            self.take_back(index, &lent);
            self.tell();
        }
        if let (Some(log), Some(call)) = (&self.session.log, &self.session.log_call)
            && log.take_news()
        {
            call.raise();
        }
    }

    /// The driver's process has gone: all is as at the start.
    pub(super) fn disconnect(&mut self) {
        self.pause_all();
        let queues = (0..2 * self.pairs).map(|_| Queue::default()).collect();
        self.session = Session { queues, ..Session::default() };
        self.tell();
    }

    fn handle(&mut self, mut message: Message) -> Result<Reply, ProtocolError> {
        let request = Request::of(message.request).ok_or(ProtocolError::Unknown(message.request))?;
        let files = std::mem::take(&mut message.files);
        self.check_files(request, files.len())?;
        self.check_negotiated(request)?;
        let body = Body::new(request.name(), &message.body);
        match request {
            Request::SET_MEM_TABLE => return self.set_memory(body, files),
            Request::ADD_MEM_REG => return self.add_region(body, files),
            Request::SET_VRING_KICK | Request::SET_VRING_CALL | Request::SET_VRING_ERR => {
                return self.set_event(request, body, files);
            }
            Request::SET_LOG_BASE => return self.set_log(body, one(request, files)?),
            Request::SET_LOG_FD => return self.set_log_call(one(request, files)?),
            Request::SET_INFLIGHT_FD => return self.set_inflight(body, &one(request, files)?),
            _ => {}
        }
        // What REM_MEM_REG may have brought is closed.
        drop(files);
        match request {
            Request::GET_FEATURES => body.end().map(|()| Reply::number(self.offered.0)),
            Request::SET_FEATURES => self.set_features(body),
            Request::SET_OWNER => body.end().map(|()| Reply::Done),
            Request::RESET_OWNER | Request::RESET_DEVICE => self.reset(body),
            Request::SET_VRING_NUM => self.set_size(body),
            Request::SET_VRING_ADDR => self.set_addresses(body),
            Request::SET_VRING_BASE => self.set_base(body),
            Request::GET_VRING_BASE => self.get_base(body),
            Request::GET_PROTOCOL_FEATURES => body.end().map(|()| Reply::number(ProtocolFeatures::BACKEND.0)),
            Request::SET_PROTOCOL_FEATURES => self.set_protocol_features(body),
            Request::GET_QUEUE_NUM => body.end().map(|()| Reply::number(self.pairs as u64)),
            Request::SET_VRING_ENABLE => self.set_enabled(body),
            Request::GET_CONFIG => self.get_config(body),
            Request::SET_CONFIG => set_config(body),
            Request::GET_INFLIGHT_FD => self.get_inflight(body),
            Request::GET_MAX_MEM_SLOTS => body.end().map(|()| Reply::number(Regions::MOST as u64)),
            Request::REM_MEM_REG => self.remove_region(body),
            _ => Err(ProtocolError::Unknown(request as u32)),
        }
    }

    fn check_files(&self, request: Request, files: usize) -> Result<(), ProtocolError> {
        let allowed = match request {
            Request::SET_MEM_TABLE => files <= MOST_FILES,
            Request::SET_VRING_KICK | Request::SET_VRING_CALL | Request::SET_VRING_ERR => files <= 1,
            Request::SET_LOG_BASE | Request::SET_LOG_FD | Request::SET_INFLIGHT_FD | Request::ADD_MEM_REG => files == 1,
            // "The front-end may pass one, which is to be closed."
            Request::REM_MEM_REG => files <= 1,
            _ => files == 0,
        };
        if allowed { Ok(()) } else { Err(ProtocolError::Files { request: request.name(), files }) }
    }

    fn check_negotiated(&self, request: Request) -> Result<(), ProtocolError> {
        let (needed, feature) = match request {
            Request::GET_QUEUE_NUM => (ProtocolFeatures::MQ, "MQ"),
            Request::GET_CONFIG | Request::SET_CONFIG => (ProtocolFeatures::CONFIG, "CONFIG"),
            Request::SET_LOG_BASE | Request::SET_LOG_FD => (ProtocolFeatures::LOG_SHMFD, "LOG_SHMFD"),
            Request::GET_INFLIGHT_FD | Request::SET_INFLIGHT_FD => (ProtocolFeatures::INFLIGHT_SHMFD, "INFLIGHT_SHMFD"),
            Request::RESET_DEVICE => (ProtocolFeatures::RESET_DEVICE, "RESET_DEVICE"),
            Request::GET_MAX_MEM_SLOTS | Request::ADD_MEM_REG | Request::REM_MEM_REG => {
                (ProtocolFeatures::CONFIGURE_MEM_SLOTS, "CONFIGURE_MEM_SLOTS")
            }
            _ => return Ok(()),
        };
        if self.session.protocol.has(needed) {
            Ok(())
        } else {
            Err(ProtocolError::NotNegotiated { request: request.name(), feature })
        }
    }

    fn set_features(&mut self, mut body: Body<'_>) -> Result<Reply, ProtocolError> {
        let features = Features(body.u64()?);
        body.end()?;
        if !self.offered.has(features) {
            return Err(ProtocolError::NotOffered(features.without(self.offered).0));
        }
        if features != self.session.features {
            self.pause_all();
        }
        self.session.features = features;
        self.session.negotiated = true;
        Ok(Reply::Done)
    }

    fn set_protocol_features(&mut self, mut body: Body<'_>) -> Result<Reply, ProtocolError> {
        let protocol = ProtocolFeatures(body.u64()?);
        body.end()?;
        if !ProtocolFeatures::BACKEND.has(protocol) {
            return Err(ProtocolError::NotOffered(protocol.0 & !ProtocolFeatures::BACKEND.0));
        }
        self.session.protocol = protocol;
        Ok(Reply::Done)
    }

    fn reset(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        body.end()?;
        self.pause_all();
        self.session.queues.fill_with(Queue::default);
        self.session.features = Features::NONE;
        self.session.negotiated = false;
        Ok(Reply::Done)
    }

    fn set_memory(&mut self, mut body: Body<'_>, files: Vec<File>) -> Result<Reply, ProtocolError> {
        let request = Request::SET_MEM_TABLE.name();
        let count = body.u32()?;
        let _padding = body.u32()?;
        if count == 0 || count as usize > MOST_FILES {
            return Err(ProtocolError::Value { request, value: count.into() });
        }
        let regions = (0..count).map(|_| RegionMessage::read(&mut body)).collect::<Result<Vec<_>, _>>()?;
        body.end()?;
        if files.len() != regions.len() {
            return Err(ProtocolError::Files { request, files: files.len() });
        }
        self.pause_all();
        // What there was is obsolete, whether the new regions are good for something or not.
        self.session.regions = Regions::default();
        self.session.memory = Arc::default();
        for (region, file) in regions.into_iter().zip(files) {
            self.session.regions.add(region, file)?;
        }
        self.map()
    }

    fn add_region(&mut self, mut body: Body<'_>, files: Vec<File>) -> Result<Reply, ProtocolError> {
        let _padding = body.u64()?;
        let region = RegionMessage::read(&mut body)?;
        body.end()?;
        let file = one(Request::ADD_MEM_REG, files)?;
        self.pause_all();
        self.session.regions.add(region, file)?;
        self.map().inspect_err(|_| self.session.regions.forget_last())
    }

    fn remove_region(&mut self, mut body: Body<'_>) -> Result<Reply, ProtocolError> {
        let _padding = body.u64()?;
        let region = RegionMessage::read(&mut body)?;
        body.end()?;
        self.pause_all();
        self.session.regions.remove(region)?;
        self.map()
    }

    fn map(&mut self) -> Result<Reply, ProtocolError> {
        self.session.memory = Arc::new(self.session.regions.map()?);
        self.session.queues.iter_mut().for_each(Queue::forgive);
        Ok(Reply::Done)
    }

    fn set_size(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let state = VringState::read(body)?;
        let index = self.queue(Request::SET_VRING_NUM, state.index)?;
        let size = u16::try_from(state.number).ok().filter(|size| (1..=32_768).contains(size));
        let value = state.number.into();
        let size = size.ok_or(ProtocolError::Value { request: Request::SET_VRING_NUM.name(), value })?;
        self.pause(&[index]);
        self.session.queues[index].size = size;
        self.session.queues[index].forgive();
        Ok(Reply::Done)
    }

    fn set_addresses(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let addresses = VringAddresses::read(body)?;
        let index = self.queue(Request::SET_VRING_ADDR, addresses.index)?;
        self.pause(&[index]);
        self.session.queues[index].addresses = Some(addresses);
        self.session.queues[index].forgive();
        Ok(Reply::Done)
    }

    fn set_base(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let state = VringState::read(body)?;
        let index = self.queue(Request::SET_VRING_BASE, state.index)?;
        self.pause(&[index]);
        self.session.queues[index].base = state.number;
        self.session.queues[index].forgive();
        Ok(Reply::Done)
    }

    fn get_base(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let state = VringState::read(body)?;
        let index = self.queue(Request::GET_VRING_BASE, state.index)?;
        self.pause(&[index]);
        let session = &mut self.session;
        let queue = &mut session.queues[index];
        queue.stop();
        queue.forget_inflight(session.inflight.as_ref(), index, session.features);
        Ok(Reply::Body(VringState { index: state.index, number: queue.base }.bytes(), None))
    }

    fn set_event(&mut self, request: Request, mut body: Body<'_>, files: Vec<File>) -> Result<Reply, ProtocolError> {
        let value = body.u64()?;
        body.end()?;
        let expected = usize::from(value & NO_FILE == 0);
        if files.len() != expected {
            return Err(ProtocolError::Files { request: request.name(), files: files.len() });
        }
        let index = self.queue(request, value as u32 & 0xff)?;
        let file = files.into_iter().next();
        if let Some(file) = &file {
            check_event(request, file)?;
        }
        if request == Request::SET_VRING_ERR {
            self.session.queues[index].error_call = file.map(to_event);
            return Ok(Reply::Done);
        }
        self.pause(&[index]);
        let queue = &mut self.session.queues[index];
        if request == Request::SET_VRING_CALL {
            queue.call = file;
        } else {
            queue.start(file);
        }
        Ok(Reply::Done)
    }

    fn set_enabled(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let state = VringState::read(body)?;
        let request = Request::SET_VRING_ENABLE;
        let index = self.queue(request, state.index)?;
        if state.number > 1 {
            return Err(ProtocolError::Value { request: request.name(), value: state.number.into() });
        }
        if state.number == 0 {
            self.pause(&[index]);
        }
        self.session.queues[index].enabled = Some(state.number == 1);
        Ok(Reply::Done)
    }

    /// The configuration space of a network device (specification, 5.1.4).
    fn get_config(&self, mut body: Body<'_>) -> Result<Reply, ProtocolError> {
        let (offset, size, flags) = (body.u32()?, body.u32()?, body.u32()?);
        // What the front end sends as a placeholder.
        let _ = body.rest();
        let mut space = [0; CONFIG_SPACE];
        space[..6].copy_from_slice(&self.mac.unwrap_or_default());
        space[6..8].copy_from_slice(&LINK_UP.to_le_bytes());
        space[8..10].copy_from_slice(&(self.pairs as u16).to_le_bytes());
        let part = space.get(offset as usize..).and_then(|space| space.get(..size as usize));
        // An empty part is how the protocol says no.
        let part = part.unwrap_or_default();
        let header = [offset.to_le_bytes(), (part.len() as u32).to_le_bytes(), flags.to_le_bytes()].concat();
        Ok(Reply::Body([&header[..], part].concat(), None))
    }

    fn set_log(&mut self, mut body: Body<'_>, file: File) -> Result<Reply, ProtocolError> {
        let (length, offset) = (body.u64()?, body.u64()?);
        body.end()?;
        let request = Request::SET_LOG_BASE.name();
        let log = Log::new(&file, offset, length).map_err(|source| ProtocolError::Map { request, source })?;
        self.pause_all();
        self.session.log = Some(Arc::new(log));
        // A body is expected, and not looked at.
        Ok(Reply::number(0))
    }

    fn set_log_call(&mut self, file: File) -> Result<Reply, ProtocolError> {
        check_event(Request::SET_LOG_FD, &file)?;
        self.session.log_call = Some(to_event(file));
        Ok(Reply::Done)
    }

    fn get_inflight(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let request = Request::GET_INFLIGHT_FD.name();
        let asked = InflightMessage::read(body)?;
        if asked.queues == 0 || usize::from(asked.queues) > 2 * self.pairs {
            return Err(ProtocolError::Value { request, value: asked.queues.into() });
        }
        if asked.queue_size == 0 || asked.queue_size > 32_768 {
            return Err(ProtocolError::Value { request, value: asked.queue_size.into() });
        }
        let file = InflightRegion::create(asked.queues, asked.queue_size);
        let file = file.map_err(|source| ProtocolError::Map { request, source })?;
        let length = InflightRegion::length(asked.queues, asked.queue_size);
        Ok(Reply::Body(InflightMessage { length, offset: 0, ..asked }.bytes(), Some(file)))
    }

    fn set_inflight(&mut self, body: Body<'_>, file: &File) -> Result<Reply, ProtocolError> {
        let InflightMessage { length, offset, queues, queue_size } = InflightMessage::read(body)?;
        let region = InflightRegion::map(file, offset, length, queues, queue_size);
        let request = Request::SET_INFLIGHT_FD.name();
        let region = region.map_err(|source| ProtocolError::Map { request, source })?;
        self.pause_all();
        self.session.inflight = Some(Arc::new(region));
        Ok(Reply::Done)
    }

    fn queue(&self, request: Request, queue: u32) -> Result<usize, ProtocolError> {
        let queues = self.session.queues.len();
        let index = usize::try_from(queue).ok().filter(|index| *index < queues);
        index.ok_or(ProtocolError::Queue { request: request.name(), queue, queues })
    }

    fn pause_all(&mut self) {
        let all: Vec<usize> = (0..self.session.queues.len()).collect();
        self.pause(&all);
    }

    /// Takes rings back from the engine. Waits until it has given them.
    fn pause(&mut self, queues: &[usize]) {
        let running: Vec<usize> = queues.iter().copied().filter(|queue| self.session.queues[*queue].running).collect();
        running.iter().for_each(|queue| self.lender.want(*queue));
        for queue in running {
            match self.lender.recall(queue, PATIENCE, || self.complain(queue)) {
                Recalled::Back(lent) => self.take_back(queue, &lent),
                // The engine keeps it until its end; we are at ours.
                Recalled::Ended | Recalled::Nothing => self.session.queues[queue].running = false,
            }
        }
        self.status.update(|snapshot| snapshot.waits = None);
    }

    fn complain(&self, queue: usize) {
        let message = format!(
            "the app of {} has not given ring {queue} back for {} seconds: is its engine stopped, or busy elsewhere?",
            self.status.socket().display(),
            PATIENCE.as_secs()
        );
        self.status.update(|snapshot| snapshot.waits = Some(message));
    }

    /// Notes where a ring was when it came back.
    fn take_back(&mut self, index: usize, lent: &Lent) {
        let queue = &mut self.session.queues[index];
        queue.running = false;
        queue.base = lent.ring.position().base();
        self.status.settle(index, lent.ring.counters());
        if let Some(error) = lent.error() {
            self.fail(index, error.name(), error.to_string());
        }
    }

    fn fail(&mut self, index: usize, name: &'static str, message: String) {
        let queue = &mut self.session.queues[index];
        if let Some(call) = &queue.error_call {
            call.raise();
        }
        queue.failed = Some(message.clone());
        self.status.count(name, message);
    }

    /// Lends the engine every ring that can run. False if one of them turned out to be one that cannot.
    fn start(&mut self) -> bool {
        let ready = |device: &Device, index: usize| device.session.queues[index].is_ready(device.session.features);
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
                    self.status.update(|snapshot| snapshot.queues[index].instance = instance);
                    self.session.queues[index].running = true;
                    self.lender.offer(index, Lent::new(ring));
                }
                Err(error) => {
                    good = false;
                    self.fail(index, "ring_unusable", error.to_string());
                }
            }
        }
        good
    }

    fn make_ring(&self, index: usize) -> Result<Ring, SetupError> {
        let session = &self.session;
        let setup = session.queues[index].setup(&session.memory, session.features, session.inflight.as_ref(), index)?;
        Ok(match index % 2 {
            0 => Ring::Receive(ReceiveRing::new(setup)?),
            _ => Ring::Transmit(TransmitRing::new(setup)?),
        })
    }

    /// Writes the status.
    fn tell(&self) {
        let session = &self.session;
        self.status.update(|snapshot| {
            snapshot.features = session.negotiated.then_some(session.features);
            snapshot.protocol = session.protocol;
            snapshot.logging = session.log.is_some() && session.features.has(Features::LOG_ALL);
            let regions = session.memory.regions();
            snapshot.regions = regions.iter().map(|region| (region.guest(), region.length())).collect();
            for (said, queue) in snapshot.queues.iter_mut().zip(&session.queues) {
                said.state = queue.state(session.features);
                said.size = queue.size;
                if said.state != QueueState::Running {
                    said.instance.clear();
                }
            }
        });
    }
}

/// The configuration space has nothing that a driver may write; legacy drivers write their address there all the same.
fn set_config(mut body: Body<'_>) -> Result<Reply, ProtocolError> {
    let (_offset, size, _flags) = (body.u32()?, body.u32()?, body.u32()?);
    if body.rest().len() != size as usize {
        return Err(body.error());
    }
    Ok(Reply::Done)
}

/// The only file of a request.
fn one(request: Request, files: Vec<File>) -> Result<File, ProtocolError> {
    let count = files.len();
    let only = files.into_iter().next().filter(|_| count == 1);
    only.ok_or(ProtocolError::Files { request: request.name(), files: count })
}

/// A descriptor must be an event: anything else could make us wait, or worse.
fn check_event(request: Request, file: &File) -> Result<(), ProtocolError> {
    if is_event(file.as_fd()) { Ok(()) } else { Err(ProtocolError::NotAnEvent { request: request.name() }) }
}

fn to_event(file: File) -> Event {
    Event::from(OwnedFd::from(file))
}

//! The implementation of each request.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use bellows_ipc::notify::Notifier;
use bellows_ipc::socket::is_event;

use crate::inflight::InflightRegion;
use crate::log::Log;
use crate::vhost::ProtocolError;
use crate::vhost::closer::UntrustedFd;
use crate::vhost::message::{
    Body, InflightMessage, MAX_FILES, NO_FILE, ProtocolFeatures, RegionMessage, VringAddresses, VringState,
};
use crate::vhost::queue::Queue;
use crate::vhost::regions::Regions;
use crate::vhost::request::VhostRequest;
use crate::{Features, Memory};

use super::{Device, Reply};

/// Bytes of the configuration space in the protocol.
const CONFIG_SPACE: usize = 256;

/// Configuration space: the link is up.
const LINK_UP: u16 = 1;

impl Device {
    pub(in crate::vhost) fn get_features(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        body.end().map(|()| Reply::number(self.session.offered.0))
    }

    pub(in crate::vhost) fn get_protocol_features(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        body.end().map(|()| Reply::number(ProtocolFeatures::BACKEND.0))
    }

    pub(in crate::vhost) fn get_queues(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        body.end().map(|()| Reply::number(self.pairs() as u64))
    }

    pub(in crate::vhost) fn get_memory_slots(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        body.end().map(|()| Reply::number(Regions::MAX as u64))
    }

    pub(in crate::vhost) fn set_owner(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        body.end().map(|()| Reply::Done)
    }

    pub(in crate::vhost) fn set_features(&mut self, mut body: Body<'_>) -> Result<Reply, ProtocolError> {
        let features = Features(body.u64()?);
        body.end()?;
        let offered = self.session.offered;
        if !offered.has(features) {
            return Err(ProtocolError::NotOffered(features.without(offered).0));
        }
        if features != self.session.features {
            self.pause_all();
        }
        self.session.features = features;
        self.session.negotiated = true;
        Ok(Reply::Done)
    }

    pub(in crate::vhost) fn set_protocol_features(&mut self, mut body: Body<'_>) -> Result<Reply, ProtocolError> {
        let protocol = ProtocolFeatures(body.u64()?);
        body.end()?;
        if !ProtocolFeatures::BACKEND.has(protocol) {
            return Err(ProtocolError::NotOffered(protocol.0 & !ProtocolFeatures::BACKEND.0));
        }
        self.session.protocol = protocol;
        Ok(Reply::Done)
    }

    pub(in crate::vhost) fn reset(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        body.end()?;
        self.pause_all();
        // The rings start anew at their SET_VRING_BASE.
        let session = &mut self.session;
        for (index, queue) in session.queues.iter().enumerate() {
            queue.forget_inflight(session.inflight.as_ref(), index, session.features);
        }
        (0..self.session.queues.len()).for_each(|queue| self.clear_notifiers(queue));
        self.session.queues.fill_with(Queue::default);
        self.session.features = Features::NONE;
        self.session.negotiated = false;
        Ok(Reply::Done)
    }

    pub(in crate::vhost) fn set_memory(
        &mut self,
        request: VhostRequest,
        mut body: Body<'_>,
        files: Vec<UntrustedFd>,
    ) -> Result<Reply, ProtocolError> {
        let request = request.name();
        let count = body.u32()?;
        let _padding = body.u32()?;
        if count == 0 || count as usize > MAX_FILES {
            return Err(ProtocolError::Value { request, value: count.into() });
        }
        let regions = (0..count).map(|_| RegionMessage::read(&mut body)).collect::<Result<Vec<_>, _>>()?;
        body.end()?;
        if files.len() != regions.len() {
            return Err(ProtocolError::Files { request, files: files.len() });
        }
        self.pause_all();
        // The old regions are obsolete, whether or not the new ones are usable.
        let old = std::mem::take(&mut self.session.regions);
        self.replace_memory(Memory::default());
        for (region, file) in regions.into_iter().zip(files) {
            self.session.regions.add(&self.memory, region, &file, &old)?;
        }
        self.map()
    }

    pub(in crate::vhost) fn add_region(
        &mut self,
        request: VhostRequest,
        mut body: Body<'_>,
        files: Vec<UntrustedFd>,
    ) -> Result<Reply, ProtocolError> {
        let _padding = body.u64()?;
        let region = RegionMessage::read(&mut body)?;
        body.end()?;
        let file = one(request, files)?;
        self.pause_all();
        match self.session.regions.add(&self.memory, region, &file, &Regions::default())? {
            true => self.map().inspect_err(|_| self.session.regions.forget_last()),
            false => Ok(Reply::Done),
        }
    }

    pub(in crate::vhost) fn remove_region(
        &mut self,
        _: VhostRequest,
        mut body: Body<'_>,
        files: Vec<UntrustedFd>,
    ) -> Result<Reply, ProtocolError> {
        drop(files);
        let _padding = body.u64()?;
        let region = RegionMessage::read(&mut body)?;
        body.end()?;
        self.pause_all();
        self.session.regions.remove(region)?;
        self.map()
    }

    fn map(&mut self) -> Result<Reply, ProtocolError> {
        let memory = self.session.regions.memory()?;
        self.replace_memory(memory);
        self.session.queues.iter_mut().for_each(Queue::clear_error);
        Ok(Reply::Done)
    }

    pub(in crate::vhost) fn set_size(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let state = VringState::read(body)?;
        let index = self.queue(VhostRequest::SET_VRING_NUM, state.index)?;
        let size = u16::try_from(state.number).ok().filter(|size| (1..=32_768).contains(size));
        let value = state.number.into();
        let size = size.ok_or(ProtocolError::Value { request: VhostRequest::SET_VRING_NUM.name(), value })?;
        self.pause(&[index]);
        self.session.queues[index].size = size;
        self.session.queues[index].clear_error();
        Ok(Reply::Done)
    }

    pub(in crate::vhost) fn set_addresses(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let addresses = VringAddresses::read(body)?;
        let index = self.queue(VhostRequest::SET_VRING_ADDR, addresses.index)?;
        self.pause(&[index]);
        self.session.queues[index].addresses = Some(addresses);
        self.session.queues[index].clear_error();
        Ok(Reply::Done)
    }

    pub(in crate::vhost) fn set_base(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let state = VringState::read(body)?;
        let index = self.queue(VhostRequest::SET_VRING_BASE, state.index)?;
        self.pause(&[index]);
        self.session.queues[index].base = state.number;
        self.session.queues[index].clear_error();
        Ok(Reply::Done)
    }

    pub(in crate::vhost) fn get_base(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let state = VringState::read(body)?;
        let index = self.queue(VhostRequest::GET_VRING_BASE, state.index)?;
        self.pause(&[index]);
        let session = &mut self.session;
        let queue = &mut session.queues[index];
        queue.stop();
        queue.forget_inflight(session.inflight.as_ref(), index, session.features);
        Ok(Reply::Body(VringState { index: state.index, number: queue.base }.bytes(), None))
    }

    pub(in crate::vhost) fn set_event(
        &mut self,
        request: VhostRequest,
        mut body: Body<'_>,
        files: Vec<UntrustedFd>,
    ) -> Result<Reply, ProtocolError> {
        let value = body.u64()?;
        body.end()?;
        let expected = usize::from(value & NO_FILE == 0);
        if files.len() != expected {
            return Err(ProtocolError::Files { request: request.name(), files: files.len() });
        }
        let index = self.queue(request, value as u32 & 0xff)?;
        let file = files.into_iter().next().map(|file| known_event(request, file)).transpose()?;
        if request == VhostRequest::SET_VRING_ERR {
            set(request, &self.error_call(index), file)?;
            return Ok(Reply::Done);
        }
        self.pause(&[index]);
        if request == VhostRequest::SET_VRING_CALL {
            set(request, &self.call(index), file)?;
        } else {
            self.session.queues[index].start(file);
        }
        Ok(Reply::Done)
    }

    pub(in crate::vhost) fn set_enabled(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let state = VringState::read(body)?;
        let request = VhostRequest::SET_VRING_ENABLE;
        let index = self.queue(request, state.index)?;
        if state.number > 1 {
            return Err(ProtocolError::Value { request: request.name(), value: state.number.into() });
        }
        if self.session.queues[index].enable(state.number == 1) {
            self.pause(&[index]);
        }
        Ok(Reply::Done)
    }

    /// The configuration space of a network device (specification, 5.1.4).
    pub(in crate::vhost) fn get_config(&mut self, mut body: Body<'_>) -> Result<Reply, ProtocolError> {
        let (offset, size, flags) = (body.u32()?, body.u32()?, body.u32()?);
        // The front end's placeholder.
        let _ = body.rest();
        let mut space = [0; CONFIG_SPACE];
        space[..6].copy_from_slice(&self.config.mac.unwrap_or_default());
        space[6..8].copy_from_slice(&LINK_UP.to_le_bytes());
        space[8..10].copy_from_slice(&(self.pairs() as u16).to_le_bytes());
        let part = space.get(offset as usize..).and_then(|space| space.get(..size as usize));
        // An empty part means a refusal in the protocol.
        let part = part.unwrap_or_default();
        let header = [offset.to_le_bytes(), (part.len() as u32).to_le_bytes(), flags.to_le_bytes()].concat();
        Ok(Reply::Body([&header[..], part].concat(), None))
    }

    /// The configuration space has no writable fields; legacy drivers still write their address there.
    pub(in crate::vhost) fn set_config(&mut self, mut body: Body<'_>) -> Result<Reply, ProtocolError> {
        let (_offset, size, _flags) = (body.u32()?, body.u32()?, body.u32()?);
        if body.rest().len() != size as usize {
            return Err(body.error());
        }
        Ok(Reply::Done)
    }

    pub(in crate::vhost) fn set_log(
        &mut self,
        request: VhostRequest,
        mut body: Body<'_>,
        files: Vec<UntrustedFd>,
    ) -> Result<Reply, ProtocolError> {
        let (length, offset) = (body.u64()?, body.u64()?);
        body.end()?;
        let file = one(request, files)?;
        let request = request.name();
        let log =
            Log::of(&self.memory, &file, offset, length).map_err(|source| ProtocolError::Map { request, source })?;
        self.pause_all();
        self.session.log = Some(Arc::new(log));
        // A body is expected, but not read.
        Ok(Reply::number(0))
    }

    pub(in crate::vhost) fn set_log_call(
        &mut self,
        request: VhostRequest,
        _: Body<'_>,
        files: Vec<UntrustedFd>,
    ) -> Result<Reply, ProtocolError> {
        let file = known_event(request, one(request, files)?)?;
        set(request, &self.log_call(), Some(file))?;
        Ok(Reply::Done)
    }

    pub(in crate::vhost) fn get_inflight(&mut self, body: Body<'_>) -> Result<Reply, ProtocolError> {
        let request = VhostRequest::GET_INFLIGHT_FD.name();
        let size = body.size();
        let asked = InflightMessage::read(body)?;
        if asked.queues == 0 || usize::from(asked.queues) > self.session.queues.len() {
            return Err(ProtocolError::Value { request, value: asked.queues.into() });
        }
        if asked.queue_size == 0 || asked.queue_size > 32_768 {
            return Err(ProtocolError::Value { request, value: asked.queue_size.into() });
        }
        let file = InflightRegion::create(asked.queues, asked.queue_size);
        let file = file.map_err(|source| ProtocolError::Map { request, source })?;
        let length = InflightRegion::length(asked.queues, asked.queue_size);
        let mut reply = InflightMessage { length, offset: 0, ..asked }.bytes();
        // Padded like the request: front ends expect the structure with their compiler's layout.
        reply.resize(size, 0);
        Ok(Reply::Body(reply, Some(file)))
    }

    pub(in crate::vhost) fn set_inflight(
        &mut self,
        request: VhostRequest,
        body: Body<'_>,
        files: Vec<UntrustedFd>,
    ) -> Result<Reply, ProtocolError> {
        let InflightMessage { length, offset, queues, queue_size } = InflightMessage::read(body)?;
        let file = one(request, files)?;
        let region = InflightRegion::of(&self.memory, &file, offset, length, queues, queue_size);
        let request = request.name();
        let region = region.map_err(|source| ProtocolError::Map { request, source })?;
        self.pause_all();
        self.session.inflight = Some(Arc::new(region));
        Ok(Reply::Done)
    }
}

/// The only file of a request.
fn one(request: VhostRequest, files: Vec<UntrustedFd>) -> Result<UntrustedFd, ProtocolError> {
    let count = files.len();
    let only = files.into_iter().next().filter(|_| count == 1);
    only.ok_or(ProtocolError::Files { request: request.name(), files: count })
}

/// Checks that a descriptor is an event: anything else could make us wait, or worse. An event can be closed anywhere.
fn known_event(request: VhostRequest, file: UntrustedFd) -> Result<File, ProtocolError> {
    match is_event(file.as_fd()) {
        Ok(true) => Ok(file.into_known()),
        Ok(false) => Err(ProtocolError::NotAnEvent { request: request.name() }),
        Err(source) => Err(ProtocolError::Map { request: request.name(), source }),
    }
}

/// Sets the event of a notifier.
fn set(request: VhostRequest, notifier: &Notifier, file: Option<File>) -> Result<(), ProtocolError> {
    let request = request.name();
    notifier.set(file.map(Into::into)).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => ProtocolError::NotAnEvent { request },
        _ => ProtocolError::Map { request, source: error },
    })
}

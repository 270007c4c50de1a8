//! The driver's requests to a device.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use crate::Features;
use crate::ring::Position;

use super::channel::{Channel, Incoming, PATIENCE};
use super::message::{Body, MAX_FILES, NO_FILE, ProtocolFeatures, RegionMessage, VringAddresses, VringState, flags};
use super::request::VhostRequest;
use super::{FrontendConfig, Negotiated, ProtocolError, QueueLayout, SharedFile};

/// Bytes before the data in GET_CONFIG.
const CONFIG_HEADER: usize = 12;

/// Negotiates the features of both sides.
pub(super) fn negotiate(channel: &mut Channel, config: &FrontendConfig) -> Result<Agreed, ProtocolError> {
    let mut talk = Negotiation { channel, acknowledged: false };
    let offered = Features(talk.number(VhostRequest::GET_FEATURES)?);
    let wanted = config.features.with(Features::PROTOCOL_FEATURES);
    let mut features = (offered & wanted).coherent();
    let mut protocol = ProtocolFeatures::default();
    if features.has(Features::PROTOCOL_FEATURES) {
        protocol.0 = talk.number(VhostRequest::GET_PROTOCOL_FEATURES)? & ProtocolFeatures::FRONTEND.0;
        talk.set(VhostRequest::SET_PROTOCOL_FEATURES, &protocol.0.to_le_bytes(), &[])?;
        talk.acknowledged = protocol.has(ProtocolFeatures::REPLY_ACK);
    }
    talk.set(VhostRequest::SET_OWNER, &[], &[])?;
    let mut pairs = 1;
    if features.has(Features::MQ) && protocol.has(ProtocolFeatures::MQ) {
        let most = talk.number(VhostRequest::GET_QUEUE_NUM)?.max(1);
        pairs = config.pairs.min(most.try_into().unwrap_or(u16::MAX));
    }
    if pairs == 1 {
        features = features.without(Features::MQ);
    }
    let mut mac = config.mac;
    if mac.is_none() && features.has(Features::MAC) && protocol.has(ProtocolFeatures::CONFIG) {
        mac = talk.mac()?;
    }
    talk.set(VhostRequest::SET_FEATURES, &features.0.to_le_bytes(), &[])?;
    let negotiated = Negotiated { features, pairs, ring_size: config.ring_size, mac };
    Ok(Agreed { negotiated, acknowledged: talk.acknowledged })
}

/// The result of the negotiation, and whether the other side acknowledges requests.
pub(super) struct Agreed {
    pub(super) negotiated: Negotiated,
    acknowledged: bool,
}

/// Gives the device the memory and rings, and starts the rings.
pub(super) fn hand_over(
    channel: &mut Channel,
    agreed: &Agreed,
    memory: &[SharedFile],
    queues: &[QueueLayout],
) -> Result<(), ProtocolError> {
    let mut talk = Negotiation { channel, acknowledged: agreed.acknowledged };
    let features = agreed.negotiated.features;
    talk.share(memory)?;
    // Calls first: DPDK creates a pair of queues when the first message about it is a call.
    for (index, queue) in (0..).zip(queues) {
        talk.event(VhostRequest::SET_VRING_CALL, index, queue.call.as_ref())?;
    }
    for (index, queue) in (0..).zip(queues) {
        talk.vring(VhostRequest::SET_VRING_NUM, index, queue.size.into())?;
        talk.vring(VhostRequest::SET_VRING_BASE, index, Position::start(features).base())?;
        let addresses = VringAddresses {
            index,
            flags: 0,
            descriptors: queue.areas.descriptors,
            used: queue.areas.device,
            available: queue.areas.driver,
            log: 0,
        };
        talk.set(VhostRequest::SET_VRING_ADDR, &addresses.bytes(), &[])?;
        talk.event(VhostRequest::SET_VRING_KICK, index.into(), queue.kick.as_ref())?;
    }
    if features.has(Features::PROTOCOL_FEATURES) {
        for (index, _) in (0..).zip(queues) {
            talk.vring(VhostRequest::SET_VRING_ENABLE, index, 1)?;
        }
    }
    Ok(())
}

/// A dialogue in which we send the requests.
struct Negotiation<'a> {
    channel: &'a mut Channel,
    /// Whether the other side acknowledges requests.
    acknowledged: bool,
}

impl Negotiation<'_> {
    /// Sends a request that has no reply of its own.
    fn set(&mut self, request: VhostRequest, body: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), ProtocolError> {
        if !self.acknowledged {
            return self.channel.send(request as u32, 0, body, files);
        }
        self.channel.send(request as u32, flags::NEED_REPLY, body, files)?;
        match self.number_of(request)? {
            0 => Ok(()),
            _ => Err(ProtocolError::Refused(request.name())),
        }
    }

    fn vring(&mut self, request: VhostRequest, index: u32, number: u32) -> Result<(), ProtocolError> {
        self.set(request, &VringState { index, number }.bytes(), &[])
    }

    fn event(&mut self, request: VhostRequest, index: u64, file: Option<&File>) -> Result<(), ProtocolError> {
        let value = if file.is_some() { index } else { index | NO_FILE };
        let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        self.set(request, &value.to_le_bytes(), &files)
    }

    fn share(&mut self, memory: &[SharedFile]) -> Result<(), ProtocolError> {
        if memory.is_empty() || memory.len() > MAX_FILES {
            return Err(ProtocolError::Regions(MAX_FILES));
        }
        let mut body = (memory.len() as u64).to_le_bytes().to_vec();
        for SharedFile { offset, length, address, .. } in memory {
            let region = RegionMessage { guest: *address, length: *length, user: *address, offset: *offset };
            region.write(&mut body);
        }
        let files: Vec<_> = memory.iter().map(|shared| shared.file.as_fd()).collect();
        self.set(VhostRequest::SET_MEM_TABLE, &body, &files)
    }

    fn number(&mut self, request: VhostRequest) -> Result<u64, ProtocolError> {
        self.channel.send(request as u32, 0, &[], &[])?;
        self.number_of(request)
    }

    fn number_of(&mut self, request: VhostRequest) -> Result<u64, ProtocolError> {
        let reply = self.reply(request)?;
        let mut body = Body::new(request.name(), &reply);
        let number = body.u64()?;
        body.end().map(|()| number)
    }

    /// The device's network address, if it reports one.
    fn mac(&mut self) -> Result<Option<[u8; 6]>, ProtocolError> {
        let request = VhostRequest::GET_CONFIG;
        let mut body = [0_u32, 6, 0].map(u32::to_le_bytes).concat();
        body.extend([0; 6]);
        self.channel.send(request as u32, 0, &body, &[])?;
        let reply = self.reply(request)?;
        // An empty part means a refusal in the protocol.
        Ok(reply.get(CONFIG_HEADER..).and_then(|mac| mac.try_into().ok()))
    }

    /// The body of the reply to a request.
    fn reply(&mut self, request: VhostRequest) -> Result<Vec<u8>, ProtocolError> {
        let unanswered = ProtocolError::Unanswered { request: request.name(), seconds: PATIENCE.as_secs() };
        let asked = Instant::now();
        loop {
            let left = PATIENCE.saturating_sub(asked.elapsed());
            match self.channel.receive(Some(left))? {
                Incoming::Message(reply) => {
                    let is_reply = reply.request == request as u32 && reply.flags & flags::REPLY != 0;
                    return if is_reply { Ok(reply.body) } else { Err(ProtocolError::Unexpected(reply.request)) };
                }
                Incoming::Closed => return Err(ProtocolError::Refused(request.name())),
                Incoming::Interrupted if left.is_zero() || self.channel.is_to_end() => return Err(unanswered),
                Incoming::Interrupted => self.channel.clear_signal(),
            }
        }
    }
}

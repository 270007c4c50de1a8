//! The messages of the vhost-user protocol and the layout of their bodies (little-endian machines), and its features.

use super::ProtocolError;
use super::closer::UntrustedFd;

/// Bytes of the header before each body: type, flags, size.
pub(super) const HEADER: usize = 12;

/// Maximum length of a body in the protocol; longer messages are not read.
pub(super) const MAX_BODY: usize = 1024;

/// Maximum number of descriptors of a message.
pub(super) const MAX_FILES: usize = 8;

/// Bits of a header's flags.
pub(super) mod flags {
    pub(crate) const VERSION: u32 = 1;
    pub(crate) const VERSION_MASK: u32 = 3;
    pub(crate) const REPLY: u32 = 1 << 2;
    pub(crate) const NEED_REPLY: u32 = 1 << 3;
}

/// In the bodies of SET_VRING_KICK, CALL and ERR: there is no descriptor.
pub(super) const NO_FILE: u64 = 0x100;

/// In the flags of SET_VRING_ADDR: writes into the ring itself are logged too.
pub(super) const VRING_LOG: u32 = 1;

/// Lists the features: for each its constant, its bit and its name.
macro_rules! features {
    ($($(#[$doc:meta])* $feature:ident = $bit:literal, $name:literal;)*) => {
        /// Features of the protocol itself.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ProtocolFeatures(pub u64);

        impl ProtocolFeatures {
            $($(#[$doc])* pub const $feature: ProtocolFeatures = ProtocolFeatures(1 << $bit);)*

            /// All features of the back end.
            pub const BACKEND: ProtocolFeatures = ProtocolFeatures($(1 << $bit)|*);

            const NAMED: &'static [(&'static str, ProtocolFeatures)] = &[$(($name, ProtocolFeatures::$feature)),*];
        }
    };
}

features! {
    /// Several pairs of queues.
    MQ = 0, "mq";
    /// The dirty log is a shared file.
    LOG_SHMFD = 1, "log-shmfd";
    /// Any request may ask for a reply.
    REPLY_ACK = 3, "reply-ack";
    /// The device's configuration space can be read.
    CONFIG = 9, "config";
    /// A device's unfinished work is recorded where its successor finds it.
    INFLIGHT_SHMFD = 12, "inflight-shmfd";
    /// The device can be reset.
    RESET_DEVICE = 13, "reset-device";
    /// Memory regions are added and removed one by one.
    CONFIGURE_MEM_SLOTS = 15, "configure-mem-slots";
}

impl ProtocolFeatures {
    /// The features that the front end uses.
    pub const FRONTEND: ProtocolFeatures = ProtocolFeatures(Self::MQ.0 | Self::REPLY_ACK.0 | Self::CONFIG.0);

    /// Whether all of `wanted` are in the set.
    pub const fn has(self, wanted: ProtocolFeatures) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// The names of the features that have one.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMED.iter().filter(move |(_, feature)| self.has(*feature)).map(|(name, _)| *name)
    }
}

/// A received message.
#[derive(Debug)]
pub(super) struct VhostMessage {
    pub(super) request: u32,
    pub(super) flags: u32,
    pub(super) body: Vec<u8>,
    pub(super) files: Vec<UntrustedFd>,
}

impl VhostMessage {
    /// Whether the sender wants a reply with the result.
    pub(super) fn needs_reply(&self) -> bool {
        self.flags & flags::NEED_REPLY != 0
    }
}

/// The header of a message.
pub(super) fn header(request: u32, flags: u32, size: usize) -> [u8; HEADER] {
    let mut bytes = [0; HEADER];
    bytes[..4].copy_from_slice(&request.to_le_bytes());
    bytes[4..8].copy_from_slice(&(flags | flags::VERSION).to_le_bytes());
    bytes[8..].copy_from_slice(&(size as u32).to_le_bytes());
    bytes
}

/// Reads a body from start to end. Each message knows its length; missing or extra bytes are an error.
pub(super) struct Body<'a> {
    request: &'static str,
    size: usize,
    rest: &'a [u8],
}

impl<'a> Body<'a> {
    pub(super) fn new(request: &'static str, bytes: &'a [u8]) -> Body<'a> {
        Body { request, size: bytes.len(), rest: bytes }
    }

    /// Length of the body in bytes.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn error(&self) -> ProtocolError {
        ProtocolError::Size { request: self.request, size: self.size }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], ProtocolError> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.error())?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn u16(&mut self) -> Result<u16, ProtocolError> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, ProtocolError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, ProtocolError> {
        self.take().map(u64::from_le_bytes)
    }

    /// The rest of the body.
    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Checks that nothing is left.
    pub(super) fn end(self) -> Result<(), ProtocolError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.error()) }
    }
}

/// Index and number: SET_VRING_NUM, SET_VRING_BASE, GET_VRING_BASE, SET_VRING_ENABLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VringState {
    pub(super) index: u32,
    pub(super) number: u32,
}

impl VringState {
    pub(super) fn read(mut body: Body<'_>) -> Result<VringState, ProtocolError> {
        let state = VringState { index: body.u32()?, number: body.u32()? };
        body.end().map(|()| state)
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        [self.index.to_le_bytes(), self.number.to_le_bytes()].concat()
    }
}

/// SET_VRING_ADDR; addresses of the front end's process, except that of the log, which is a guest address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VringAddresses {
    pub(super) index: u32,
    pub(super) flags: u32,
    pub(super) descriptors: u64,
    pub(super) used: u64,
    pub(super) available: u64,
    pub(super) log: u64,
}

impl VringAddresses {
    pub(super) fn read(mut body: Body<'_>) -> Result<VringAddresses, ProtocolError> {
        let addresses = VringAddresses {
            index: body.u32()?,
            flags: body.u32()?,
            descriptors: body.u64()?,
            used: body.u64()?,
            available: body.u64()?,
            log: body.u64()?,
        };
        body.end().map(|()| addresses)
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        let mut bytes = [self.index.to_le_bytes(), self.flags.to_le_bytes()].concat();
        for address in [self.descriptors, self.used, self.available, self.log] {
            bytes.extend(address.to_le_bytes());
        }
        bytes
    }
}

/// One memory region: in SET_MEM_TABLE, ADD_MEM_REG and REM_MEM_REG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionMessage {
    pub(super) guest: u64,
    pub(super) length: u64,
    pub(super) user: u64,
    pub(super) offset: u64,
}

impl RegionMessage {
    pub(super) fn read(body: &mut Body<'_>) -> Result<RegionMessage, ProtocolError> {
        Ok(RegionMessage { guest: body.u64()?, length: body.u64()?, user: body.u64()?, offset: body.u64()? })
    }

    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        for number in [self.guest, self.length, self.user, self.offset] {
            bytes.extend(number.to_le_bytes());
        }
    }
}

/// GET_INFLIGHT_FD and SET_INFLIGHT_FD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InflightMessage {
    pub(super) length: u64,
    pub(super) offset: u64,
    pub(super) queues: u16,
    pub(super) queue_size: u16,
}

impl InflightMessage {
    pub(super) fn read(mut body: Body<'_>) -> Result<InflightMessage, ProtocolError> {
        let message =
            InflightMessage { length: body.u64()?, offset: body.u64()?, queues: body.u16()?, queue_size: body.u16()? };
        // Some front ends send the structure with their compiler's padding.
        let padding = body.rest();
        if padding.is_empty() || padding.len() == 4 { Ok(message) } else { Err(body.error()) }
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        let mut bytes = [self.length.to_le_bytes(), self.offset.to_le_bytes()].concat();
        bytes.extend(self.queues.to_le_bytes());
        bytes.extend(self.queue_size.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_read_as_they_were_written_and_no_byte_more_or_less() {
        let addresses =
            VringAddresses { index: 1, flags: 1, descriptors: 0x1000, used: 0x2000, available: 0x3000, log: 4 };
        let bytes = addresses.bytes();
        assert_eq!(VringAddresses::read(Body::new("SET_VRING_ADDR", &bytes)).unwrap(), addresses);
        for length in 0..bytes.len() {
            let error = VringAddresses::read(Body::new("SET_VRING_ADDR", &bytes[..length])).unwrap_err();
            assert_eq!(error.to_string(), format!("SET_VRING_ADDR has {length} bytes, which is the wrong size"));
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(VringAddresses::read(Body::new("x", &longer)).unwrap_err().name(), "message_size");

        let inflight = InflightMessage { length: 1 << 40, offset: 64, queues: 2, queue_size: 256 };
        assert_eq!(InflightMessage::read(Body::new("x", &inflight.bytes())).unwrap(), inflight);
        let state = VringState { index: 3, number: 0x8000 };
        assert_eq!(VringState::read(Body::new("x", &state.bytes())).unwrap(), state);
        let region = RegionMessage { guest: 1, length: 2, user: 3, offset: 4 };
        let mut bytes = Vec::new();
        region.write(&mut bytes);
        assert_eq!(RegionMessage::read(&mut Body::new("x", &bytes)).unwrap(), region);
    }
}

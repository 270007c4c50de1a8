//! Messages of netlink: a header, a body, and attributes (`linux/netlink.h`, `netlink(7)`).

use std::fmt;
use std::io;

use bellows_netdev::netlink::{NetlinkFamily, Socket};
use bellows_sys::capability::{Set, missing};

pub(crate) const REQUEST: u16 = 1;
pub(crate) const ACKNOWLEDGE: u16 = 4;
/// The whole table.
pub(crate) const DUMP: u16 = 0x300;
pub(crate) const EXCLUSIVE: u16 = 0x200;
pub(crate) const CREATE: u16 = 0x400;

const KIND_ERROR: u16 = 2;
const KIND_DONE: u16 = 3;

/// The table changed while it was sent.
const INTERRUPTED: u16 = 0x10;
/// The error repeats the request's header alone.
const CAPPED: u16 = 0x100;
/// The error has attributes.
const HAS_ATTRIBUTES: u16 = 0x200;
/// The kernel's explanation.
const ERROR_TEXT: u16 = 1;

const HEADER_LEN: usize = 16;
const ATTRIBUTE_HEADER_LEN: usize = 4;
/// Bits of an attribute's kind that are no flags.
const KIND_MASK: u16 = 0x3fff;

/// How often a table is read again that changed meanwhile.
const DUMP_ATTEMPTS: u32 = 16;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The text of an attribute; the zero byte at its end is not part of it.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A message with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetlinkMessage<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    sequence: u32,
    pub(crate) body: &'a [u8],
}

/// The messages in received bytes. Ends at the first that is damaged.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = NetlinkMessage<'_>> {
    std::iter::from_fn(move || {
        let len = u32_at(bytes, 0)? as usize;
        let body = bytes.get(HEADER_LEN..len)?;
        let (kind, flags, sequence) = (u16_at(bytes, 4)?, u16_at(bytes, 6)?, u32_at(bytes, 8)?);
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(NetlinkMessage { kind, flags, sequence, body })
    })
}

/// The attributes in the rest of a body: their kinds and contents. Ends at the first that is damaged.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let content = bytes.get(ATTRIBUTE_HEADER_LEN..len)?;
        let kind = u16_at(bytes, 2)? & KIND_MASK;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

/// A message to the kernel, being written.
#[derive(Clone, Debug)]
pub(crate) struct NetlinkRequest {
    bytes: Vec<u8>,
}

impl NetlinkRequest {
    /// A request with a body, to which attributes can be added.
    pub(crate) fn new(kind: u16, flags: u16, body: &[u8]) -> NetlinkRequest {
        let mut request = NetlinkRequest { bytes: vec![0; HEADER_LEN] };
        request.bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        request.bytes[6..8].copy_from_slice(&(REQUEST | flags).to_ne_bytes());
        request.append(body);
        request
    }

    /// Appends bytes, and zeroes to a multiple of four.
    fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Adds an attribute. Its content has less than 64 KiB.
    pub(crate) fn attribute(mut self, kind: u16, content: &[u8]) -> NetlinkRequest {
        let len = ATTRIBUTE_HEADER_LEN + content.len();
        debug_assert!(len <= usize::from(u16::MAX));
        self.bytes.extend_from_slice(&(len as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.append(content);
        self
    }

    /// Adds a text with a zero byte at its end.
    pub(crate) fn text(self, kind: u16, text: &str) -> NetlinkRequest {
        self.attribute(kind, &[text.as_bytes(), b"\0"].concat())
    }

    /// The bytes to send. The answers have the same sequence number.
    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.bytes.len() as u32;
        self.bytes[0..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }

    fn is_dump(&self) -> bool {
        u16_at(&self.bytes, 6).is_some_and(|flags| flags & DUMP == DUMP)
    }
}

/// An error with which the kernel answered a request: the cause of an [`io::Error`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestError {
    action: String,
    errno: i32,
    text: Option<String>,
}

impl RequestError {
    /// The number of the system's error, such as `ENODEV`.
    pub fn errno(&self) -> i32 {
        self.errno
    }

    /// The kernel's explanation, if it gave one.
    pub fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// The request error behind an error of this crate, if it is one.
    pub fn of(error: &io::Error) -> Option<&RequestError> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let error = io::Error::from_raw_os_error(self.errno);
        write!(formatter, "cannot {}: {error}", self.action)?;
        if let Some(text) = &self.text {
            write!(formatter, " ({text})")?;
        }
        match error.kind() {
            io::ErrorKind::PermissionDenied => match missing(Set::NET_ADMIN) {
                Some(missing) => write!(formatter, "; {missing}"),
                None => formatter.write_str("; the network namespace belongs to another user namespace"),
            },
            _ => Ok(()),
        }
    }
}

impl std::error::Error for RequestError {}

impl From<RequestError> for io::Error {
    fn from(error: RequestError) -> io::Error {
        io::Error::new(io::Error::from_raw_os_error(error.errno).kind(), error)
    }
}

/// The end of an answer: success, or the number and the text of an error.
type Outcome = Result<(), (i32, Option<String>)>;

/// The outcome that a message states; `None` if it is another message.
fn outcome(message: &NetlinkMessage<'_>) -> Option<Outcome> {
    /// The length of the number, and of the number with the request's header.
    const NUMBER_LEN: usize = 4;
    const REPEATED_LEN: usize = NUMBER_LEN + HEADER_LEN;

    let attributes_at = match message.kind {
        KIND_DONE => NUMBER_LEN,
        KIND_ERROR if message.flags & CAPPED != 0 => REPEATED_LEN,
        // The whole request, whose length is in its header.
        KIND_ERROR => NUMBER_LEN + (u32_at(message.body, NUMBER_LEN).unwrap_or(0) as usize).next_multiple_of(4),
        _ => return None,
    };
    // Errors are negative numbers.
    let number = u32_at(message.body, 0).unwrap_or(0).cast_signed();
    let errno = number.min(0).saturating_neg();
    if errno == 0 {
        return Some(Ok(()));
    }
    let rest = message.body.get(attributes_at..).filter(|_| message.flags & HAS_ATTRIBUTES != 0);
    let explanation = attributes(rest.unwrap_or_default()).find(|(kind, _)| *kind == ERROR_TEXT);
    Some(Err((errno, explanation.map(|(_, content)| text(content)))))
}

/// A connection for requests.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    sequence: u32,
}

impl Connection {
    pub(crate) fn open(family: NetlinkFamily) -> io::Result<Connection> {
        Ok(Connection { socket: Socket::open(family)?, sequence: 0 })
    }

    /// Sends a request that asks for an acknowledgement or for a table, and gives each message of the answer to `each`.
    /// A table that changes while it is read is read again.
    ///
    /// `action` describes the request for the error, after the word "cannot".
    pub(crate) fn exchange<T: Default>(
        &mut self,
        action: impl Fn() -> String,
        request: &NetlinkRequest,
        mut each: impl FnMut(&mut T, &NetlinkMessage<'_>),
    ) -> io::Result<T> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut result = T::default();
            if self.attempt(&action, request, |message| each(&mut result, message))? || !request.is_dump() {
                return Ok(result);
            }
        }
        let message = format!("cannot {}: the table changes faster than it is read", action());
        Err(io::Error::new(io::ErrorKind::Interrupted, message))
    }

    /// Sends a request for a table, and gives each message of the answer to `each` as it comes. Returns whether the
    /// table stayed as it was meanwhile.
    pub(crate) fn dump(
        &mut self,
        action: impl Fn() -> String,
        request: &NetlinkRequest,
        each: impl FnMut(&NetlinkMessage<'_>),
    ) -> io::Result<bool> {
        self.attempt(&action, request, each)
    }

    /// Whether the answer is consistent.
    fn attempt(
        &mut self,
        action: &impl Fn() -> String,
        request: &NetlinkRequest,
        mut each: impl FnMut(&NetlinkMessage<'_>),
    ) -> io::Result<bool> {
        let failed = |error: io::Error| io::Error::new(error.kind(), format!("cannot {}: {error}", action()));
        // What is left of an earlier answer would fill the socket's buffer.
        while self.socket.receive().is_ok() {}
        self.sequence = self.sequence.wrapping_add(1);
        self.socket.send(&request.clone().finish(self.sequence)).map_err(failed)?;
        let mut is_consistent = true;
        loop {
            let bytes = match self.socket.receive() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(failed(io::Error::other("the kernel's answer is incomplete")));
                }
                received => received.map_err(failed)?,
            };
            for message in messages(bytes).filter(|message| message.sequence == self.sequence) {
                is_consistent &= message.flags & INTERRUPTED == 0;
                match outcome(&message) {
                    None => each(&message),
                    Some(Ok(())) => return Ok(is_consistent),
                    Some(Err((errno, text))) => return Err(RequestError { action: action(), errno, text }.into()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_can_be_parsed(bytes in vec(any::<u8>(), 0..200), small in vec(0u8..24, 0..200)) {
            for bytes in [&bytes, &small] {
                for message in messages(bytes) {
                    let _ = outcome(&message);
                    prop_assert!(message.body.len() + HEADER_LEN <= bytes.len());
                }
                let total: usize = attributes(bytes).map(|(_, content)| content.len() + ATTRIBUTE_HEADER_LEN).sum();
                prop_assert!(total <= bytes.len());
            }
        }

        #[test]
        fn what_is_written_is_read(
            kind: u16,
            body in vec(any::<u8>(), 0..9),
            contents in vec((0..=KIND_MASK, vec(any::<u8>(), 0..40)), 0..6),
            sequence: u32,
        ) {
            let body = [body.clone(), vec![0; body.len().next_multiple_of(4) - body.len()]].concat();
            let mut request = NetlinkRequest::new(kind, ACKNOWLEDGE, &body);
            for (kind, content) in &contents {
                request = request.attribute(*kind, content);
            }
            let bytes = request.finish(sequence);
            let read: Vec<_> = messages(&bytes).collect();
            prop_assert_eq!(read.len(), 1);
            let message = read[0];
            prop_assert_eq!((message.kind, message.flags, message.sequence), (kind, REQUEST | ACKNOWLEDGE, sequence));
            let (start, rest) = message.body.split_at(body.len());
            prop_assert_eq!(start, &body[..]);
            let read: Vec<_> = attributes(rest).map(|(kind, content)| (kind, content.to_vec())).collect();
            prop_assert_eq!(read, contents);
        }
    }

    /// An answer as the kernel sends it: the number, the request's header or all of it, and an explanation.
    fn answer(errno: i32, is_capped: bool, explanation: Option<&str>) -> Vec<u8> {
        let request = NetlinkRequest::new(16, ACKNOWLEDGE, &[1; 8]).text(3, "name").finish(1);
        let repeated = if is_capped { &request[..HEADER_LEN] } else { &request[..] };
        let body = [&(-errno).to_ne_bytes()[..], repeated].concat();
        let flags = if is_capped { CAPPED } else { 0 } | if explanation.is_some() { HAS_ATTRIBUTES } else { 0 };
        let mut answer = NetlinkRequest::new(KIND_ERROR, flags, &body);
        if let Some(explanation) = explanation {
            answer = answer.attribute(2, &[0; 4]).text(ERROR_TEXT, explanation);
        }
        answer.finish(1)
    }

    #[test]
    fn errors_have_the_kernels_explanation() {
        for is_capped in [false, true] {
            for explanation in [None, Some("mtu less than device minimum")] {
                let bytes = answer(22, is_capped, explanation);
                let message = messages(&bytes).next().unwrap();
                assert_eq!(outcome(&message), Some(Err((22, explanation.map(str::to_owned)))));
                let bytes = answer(0, is_capped, explanation);
                assert_eq!(outcome(&messages(&bytes).next().unwrap()), Some(Ok(())));
            }
        }
        let error = RequestError { action: "set the MTU".into(), errno: 22, text: Some("too small".into()) };
        assert_eq!(error.to_string(), "cannot set the MTU: Invalid argument (os error 22) (too small)");
        let error = io::Error::from(error);
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let cause = RequestError::of(&error).unwrap();
        assert_eq!((cause.errno(), cause.text()), (22, Some("too small")));
        assert_eq!(RequestError::of(&io::Error::other("other")), None);
    }
}

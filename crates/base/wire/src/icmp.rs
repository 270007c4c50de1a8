//! ICMP (RFC 792) and ICMPv6 (RFC 4443): the common header of all messages, and echo.

use std::ops::Range;

use crate::view::{Error, view};
use crate::{IpPair, IpProtocol, Sum};

/// Message types of echo, and the errors about packets (RFC 792, RFC 4443).
pub mod message_type {
    #![allow(missing_docs, reason = "the names say it")]
    pub const V4_UNREACHABLE: u8 = 3;
    pub const V4_TIME_EXCEEDED: u8 = 11;
    pub const V4_PARAMETER_PROBLEM: u8 = 12;
    pub const V6_UNREACHABLE: u8 = 1;
    pub const V6_TOO_BIG: u8 = 2;
    pub const V6_TIME_EXCEEDED: u8 = 3;
    pub const V6_PARAMETER_PROBLEM: u8 = 4;
    pub const V4_ECHO_REPLY: u8 = 0;
    pub const V4_ECHO_REQUEST: u8 = 8;
    pub const V6_ECHO_REQUEST: u8 = 128;
    pub const V6_ECHO_REPLY: u8 = 129;
}

view! {
    /// An ICMP or ICMPv6 message, which ends where the IP payload ends.
    IcmpMessage: "ICMP", 8 bytes, ranges in field, payload at payload {
        /// The type of message; ICMP and ICMPv6 have different numbers.
        message_type, set_message_type: u8 = TYPE 0..1;
        /// The code within the type.
        code, set_code: u8 = CODE 1..2;
        /// The checksum; in ICMPv6 it covers a pseudo-header too.
        checksum, set_checksum: u16 = CHECKSUM 2..4;
        /// For echo messages: the identifier.
        identifier, set_identifier: u16 = IDENTIFIER 4..6;
        /// For echo messages: the sequence number.
        sequence, set_sequence: u16 = SEQUENCE 6..8;
    }
}

fn payload(bytes: &[u8]) -> Range<usize> {
    field::HEADER_LEN..bytes.len()
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> IcmpMessage<T> {
    /// Computes and writes the checksum: ICMP's for IPv4 addresses, ICMPv6's for IPv6 addresses.
    pub fn fill_checksum(&mut self, addresses: &IpPair) {
        self.set_checksum(0);
        let pseudo_header = match addresses {
            IpPair::V4 { .. } => Sum::new(),
            IpPair::V6 { .. } => addresses.pseudo_header(IpProtocol::ICMPV6, self.bytes().len()),
        };
        let checksum = pseudo_header.add_bytes(self.bytes()).finish();
        self.set_checksum(checksum);
    }
}

/// The fields of an echo message, to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Echo {
    /// Whether it is a reply; otherwise a request.
    pub reply: bool,
    /// The requester's identifier.
    pub identifier: u16,
    /// The sequence number.
    pub sequence: u16,
}

impl Echo {
    /// Writes the header's 8 bytes to the start of the message: ICMP's for IPv4 addresses, ICMPv6's for IPv6 addresses.
    /// The payload must be in place, because the checksum covers it.
    ///
    /// # Errors
    /// If the message is shorter than the header.
    pub fn emit(&self, message: &mut [u8], addresses: &IpPair) -> Result<(), Error> {
        let mut view = IcmpMessage::new_checked(message)?;
        view.set_message_type(match (addresses, self.reply) {
            (IpPair::V4 { .. }, false) => message_type::V4_ECHO_REQUEST,
            (IpPair::V4 { .. }, true) => message_type::V4_ECHO_REPLY,
            (IpPair::V6 { .. }, false) => message_type::V6_ECHO_REQUEST,
            (IpPair::V6 { .. }, true) => message_type::V6_ECHO_REPLY,
        });
        view.set_code(0);
        view.set_identifier(self.identifier);
        view.set_sequence(self.sequence);
        view.fill_checksum(addresses);
        Ok(())
    }
}

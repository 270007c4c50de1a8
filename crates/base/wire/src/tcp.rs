//! TCP segments (RFC 9293): the fixed header; options are skipped.

use std::ops::Range;

use crate::view::{Error, expect, need, view};
use crate::{IpPair, IpProtocol};

/// The control bits.
pub mod flags {
    #![allow(missing_docs, reason = "the names are those of RFC 9293, section 3.1")]
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const URG: u8 = 0x20;
    pub const ECE: u8 = 0x40;
    pub const CWR: u8 = 0x80;
}

view! {
    /// A TCP segment, which ends where the IP payload ends.
    TcpSegment: "TCP", 20 bytes, ranges in field, checked by check, payload at payload {
        /// The source port.
        src_port, set_src_port: u16 = SRC_PORT 0..2;
        /// The destination port.
        dst_port, set_dst_port: u16 = DST_PORT 2..4;
        /// The sequence number of the first byte.
        sequence, set_sequence: u32 = SEQUENCE 4..8;
        /// The acknowledgment number: the next sequence number that the sender expects.
        acknowledgment, set_acknowledgment: u32 = ACKNOWLEDGMENT 8..12;
        /// Four bits of header length in units of 4 bytes, four reserved bits.
        data_offset, set_data_offset: u8 = DATA_OFFSET 12..13;
        /// The control bits, see [`crate::tcp::flags`].
        flags, set_flags: u8 = FLAGS 13..14;
        /// The receive window, before scaling.
        window, set_window: u16 = WINDOW 14..16;
        /// The checksum over pseudo-header, header and payload.
        checksum, set_checksum: u16 = CHECKSUM 16..18;
        /// The urgent pointer: the end of urgent data, relative to the sequence number.
        urgent, set_urgent: u16 = URGENT 18..20;
    }
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    let header_len = payload(bytes).start;
    expect(header_len >= field::HEADER_LEN, "TCP", "header length", header_len, "20 bytes at least")?;
    need("TCP", bytes, header_len)
}

fn payload(bytes: &[u8]) -> Range<usize> {
    usize::from(TcpSegment(bytes).data_offset() >> 4) * 4..bytes.len()
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> TcpSegment<T> {
    /// Computes and writes the checksum.
    pub fn fill_checksum(&mut self, addresses: &IpPair) {
        self.set_checksum(0);
        let pseudo_header = addresses.pseudo_header(IpProtocol::TCP, self.bytes().len());
        let checksum = pseudo_header.add_bytes(self.bytes()).finish();
        self.set_checksum(checksum);
    }
}

/// The fields of a TCP header without options, to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpHeader {
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
    /// The sequence number of the first byte.
    pub sequence: u32,
    /// The acknowledgment number: the next sequence number that the sender expects.
    pub acknowledgment: u32,
    /// The control bits, see [`crate::tcp::flags`].
    pub flags: u8,
    /// The receive window, before scaling.
    pub window: u16,
}

impl TcpHeader {
    /// Writes the header's 20 bytes to the start of the segment. The payload must be in place, because the checksum
    /// covers it.
    ///
    /// # Errors
    /// If the segment is shorter than the header.
    pub fn emit(&self, segment: &mut [u8], addresses: &IpPair) -> Result<(), Error> {
        need("TCP", segment, field::HEADER_LEN)?;
        let mut view = TcpSegment(segment);
        view.set_src_port(self.src_port);
        view.set_dst_port(self.dst_port);
        view.set_sequence(self.sequence);
        view.set_acknowledgment(self.acknowledgment);
        view.set_data_offset((field::HEADER_LEN as u8 / 4) << 4);
        view.set_flags(self.flags);
        view.set_window(self.window);
        view.set_urgent(0);
        view.fill_checksum(addresses);
        Ok(())
    }
}

//! UDP datagrams (RFC 768).

use std::ops::Range;

use crate::view::{Error, expect, len_u16, need, view};
use crate::{IpPair, IpProtocol};

view! {
    /// A UDP datagram, without bytes after its length.
    UdpDatagram: "UDP", 8 bytes, ranges in field, checked by check, payload at payload {
        /// The source port.
        src_port, set_src_port: u16 = SRC_PORT 0..2;
        /// The destination port.
        dst_port, set_dst_port: u16 = DST_PORT 2..4;
        /// Length of header and payload, in bytes.
        datagram_len, set_datagram_len: u16 = LEN 4..6;
        /// The checksum over pseudo-header, header and payload; 0 for none.
        checksum, set_checksum: u16 = CHECKSUM 6..8;
    }
}

fn check(bytes: &[u8]) -> Result<(), Error> {
    let len = payload(bytes).end;
    expect(len >= field::HEADER_LEN, "UDP", "length", len, "8 bytes at least")?;
    need("UDP", bytes, len)
}

fn payload(bytes: &[u8]) -> Range<usize> {
    field::HEADER_LEN..usize::from(UdpDatagram(bytes).datagram_len())
}

impl<T: AsRef<[u8]>> UdpDatagram<T> {
    /// Header and payload: the bytes that the checksum covers after the pseudo-header.
    pub fn datagram(&self) -> &[u8] {
        self.bytes().get(..self.datagram_len().into()).unwrap_or_default()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> UdpDatagram<T> {
    /// Computes and writes the checksum.
    pub fn fill_checksum(&mut self, addresses: &IpPair) {
        self.set_checksum(0);
        let pseudo_header = addresses.pseudo_header(IpProtocol::UDP, self.datagram_len().into());
        let checksum = pseudo_header.add_bytes(self.datagram()).finish_udp();
        self.set_checksum(checksum);
    }
}

/// The fields of a UDP header, to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpHeader {
    /// The source port.
    pub src_port: u16,
    /// The destination port.
    pub dst_port: u16,
}

impl UdpHeader {
    /// Writes the header's 8 bytes to the start of the datagram, whose length becomes the UDP length. The payload must
    /// be in place, because the checksum covers it.
    ///
    /// # Errors
    /// If the datagram is shorter than the header or longer than 65,535 bytes.
    pub fn emit(&self, datagram: &mut [u8], addresses: &IpPair) -> Result<(), Error> {
        need("UDP", datagram, field::HEADER_LEN)?;
        let len = len_u16("UDP", "length", datagram.len())?;
        let mut view = UdpDatagram(datagram);
        view.set_src_port(self.src_port);
        view.set_dst_port(self.dst_port);
        view.set_datagram_len(len);
        view.fill_checksum(addresses);
        Ok(())
    }
}

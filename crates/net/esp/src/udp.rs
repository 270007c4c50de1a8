//! ESP in UDP, for paths that translate addresses (RFC 3948).
//!
//! IKE and ESP share a port. A payload that begins with four zero bytes is a message of IKE, because no SPI is 0.

use std::ops::Range;

/// The port of IKE and ESP in UDP.
pub const PORT: u16 = 4_500;

/// The length of a UDP header in bytes.
pub const UDP_HEADER: usize = 8;

/// The payload of a packet that keeps the translation of addresses alive: discard it.
pub const KEEPALIVE: [u8; 1] = [0xff];

/// The bytes in front of a message of IKE.
pub const NON_ESP_MARKER: [u8; 4] = [0; 4];

/// What the payload of a UDP packet to [`PORT`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// An ESP packet: the whole payload.
    Esp,
    /// A message of IKE, at this place of the payload.
    Ike(Range<usize>),
    /// A [`KEEPALIVE`].
    Keepalive,
    /// Nothing of these: shorter than an SPI.
    TooShort,
}

/// What the payload of a UDP packet is. Hot.
#[inline]
pub fn classify(payload: &[u8]) -> Payload {
    match payload.first_chunk() {
        Some(&NON_ESP_MARKER) => Payload::Ike(NON_ESP_MARKER.len()..payload.len()),
        Some(_) => Payload::Esp,
        None if payload == KEEPALIVE => Payload::Keepalive,
        None => Payload::TooShort,
    }
}

/// The UDP header in front of an ESP packet of this length. Its checksum is 0, which stands for none: the ICV is stronger.
///
/// IPv6 allows this for tunnels (RFC 6935). Hot.
#[inline]
pub fn header(source: u16, destination: u16, esp: usize) -> Result<[u8; UDP_HEADER], TooLong> {
    let length = u16::try_from(esp.saturating_add(UDP_HEADER)).map_err(|_| TooLong(esp))?;
    let mut header = [0; UDP_HEADER];
    header[..2].copy_from_slice(&source.to_be_bytes());
    header[2..4].copy_from_slice(&destination.to_be_bytes());
    header[4..6].copy_from_slice(&length.to_be_bytes());
    Ok(header)
}

/// The packet does not fit into UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an ESP packet of {0} bytes does not fit into UDP, which takes {max}", max = u16::MAX as usize - UDP_HEADER)]
pub struct TooLong(pub usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_told_apart() {
        assert_eq!(classify(&[0xff]), Payload::Keepalive);
        assert_eq!(classify(&[0, 0, 0, 0]), Payload::Ike(4..4));
        assert_eq!(classify(&[0, 0, 0, 0, 1, 2]), Payload::Ike(4..6));
        assert_eq!(classify(&[0, 0, 1, 0]), Payload::Esp);
        assert_eq!(classify(&[0xff; 4]), Payload::Esp);
        for short in [&[][..], &[0], &[0xfe], &[0xff, 0xff], &[0, 0, 0]] {
            assert_eq!(classify(short), Payload::TooShort);
        }
    }

    #[test]
    fn headers_have_ports_length_and_no_checksum() {
        assert_eq!(header(PORT, 0x1234, 100), Ok([0x11, 0x94, 0x12, 0x34, 0, 108, 0, 0]));
        assert_eq!(header(1, 2, 65_527).unwrap()[4..6], [0xff, 0xff]);
        assert_eq!(header(1, 2, 65_528), Err(TooLong(65_528)));
        assert_eq!(header(1, 2, usize::MAX), Err(TooLong(usize::MAX)));
    }
}

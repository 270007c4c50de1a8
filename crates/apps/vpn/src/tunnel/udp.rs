//! Headers behind one of UDP: VXLAN and Geneve, whose network identifiers are at the same place.

use bellows_config::SettingError;

use super::{Checksum, Payload, Refusal, TunnelHeaders};

/// Bytes of the header of UDP.
pub(crate) const HEADER: usize = 8;

/// Where the network identifier is behind it: 3 bytes, of 4.
pub(crate) const NUMBER_AT: usize = 4;

/// A header behind that of UDP, and the bits of it that matter in received ones.
pub(crate) struct Udp<'h> {
    pub(crate) port: u16,
    pub(crate) header: &'h [u8],
    pub(crate) mask: &'h [u8],
    /// Where it says how long its options are, and by which bits.
    pub(crate) options: Option<(usize, u8)>,
}

impl Udp<'_> {
    /// The headers of a session.
    ///
    /// # Errors
    /// If there is no such port.
    pub(crate) fn shape(
        &self,
        number: u32,
        payload: Payload,
        checksum: Checksum,
    ) -> Result<TunnelHeaders, SettingError> {
        if self.port == 0 {
            return Err(SettingError::at("sessions", "there is no port 0", "give a number from 1 to 65535"));
        }
        let port = self.port.to_be_bytes();
        let header = [&[0, 0], &port[..], &[0; 4], self.header].concat();
        let mask = [&[0, 0, 0xff, 0xff], &[0; 4][..], self.mask].concat();
        Ok(TunnelHeaders {
            id: Some(number),
            id_at: Some(HEADER + NUMBER_AT),
            send: header.clone(),
            expect: header,
            mask,
            options: self.options.map(|(at, bits)| (HEADER + at, bits)),
            in_order: false,
            cookie: 0..0,
            payload,
            checksum,
            is_udp: true,
        })
    }
}

/// The checksum of packets that are sent: by default there is one over IPv6, which needs it (RFC 8200, section 8.1; RFC
/// 8926, section 3.3).
pub(crate) fn checksum(key: Option<bool>, is_v6: bool) -> Checksum {
    if key.unwrap_or(is_v6) { Checksum::Udp } else { Checksum::None }
}

/// The bytes of a network identifier.
///
/// # Errors
/// If it has more than 24 bits.
pub(crate) fn number(number: u32) -> Result<[u8; 3], SettingError> {
    match number.to_be_bytes() {
        [0, bytes @ ..] => Ok(bytes),
        _ => {
            let message = format!("a network identifier of {number} is too large");
            Err(SettingError::at("sessions", message, "give a number from 0 to 16777215"))
        }
    }
}

/// A network identifier: the first three bytes.
pub(crate) fn read_number(bytes: &[u8]) -> u32 {
    bytes.iter().take(3).fold(0, |number, &byte| number << 8 | u32::from(byte))
}

/// The first bytes behind a header of UDP.
///
/// # Errors
/// If there are fewer.
pub(crate) fn behind<const N: usize>(payload: &[u8]) -> Result<&[u8; N], Refusal> {
    payload.get(HEADER..).and_then(<[u8]>::first_chunk).ok_or(Refusal::Malformed)
}

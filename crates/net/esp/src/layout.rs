//! Where the fields of an ESP packet are (RFC 4303, section 2; RFC 4106, section 3).
//!
//! ```text
//! SPI 4 | sequence number 4 | IV 8 | payload | padding 0-3 | padding length 1 | next header 1 | ICV 16
//!                                    ^------------- encrypted --------------------------------^
//! ```

use std::ops::Range;

/// The length in bytes of everything in front of the payload: SPI, sequence number and IV.
pub const HEADER: usize = 4 + 4 + IV;

/// The length of the ICV in bytes.
pub const ICV: usize = 16;

/// The maximum length in bytes of everything behind the payload: padding, its length, next header and ICV.
pub const MAX_TRAILER: usize = 3 + TAIL + ICV;

/// The next header of a packet without contents, which the receiver discards (RFC 4303, section 2.6).
pub const NEXT_HEADER_DUMMY: u8 = 59;

pub(crate) const IV: usize = 8;

/// The length of padding length and next header.
pub(crate) const TAIL: usize = 2;

/// What the length of the encrypted part is a multiple of.
pub(crate) const ALIGNMENT: usize = 4;

/// The minimum length of an ESP packet in bytes.
pub(crate) const MIN_ESP: usize = HEADER + ALIGNMENT + ICV;

/// The length in bytes of everything behind a payload of this length.
pub const fn trailer_length(payload: usize) -> usize {
    padding(payload) + TAIL + ICV
}

/// The length in bytes of the ESP packet around a payload of this length.
pub const fn sealed_length(payload: usize) -> usize {
    HEADER + payload + trailer_length(payload)
}

pub(crate) const fn padding(payload: usize) -> usize {
    ALIGNMENT.wrapping_sub(payload.wrapping_add(TAIL)) % ALIGNMENT
}

/// The bytes that the ICV protects and that are not encrypted: the SPI and the sequence number, with extended numbers
/// all 64 bits of it (RFC 4106, section 5).
pub(crate) struct Aad {
    bytes: [u8; 12],
    length: usize,
}

impl Aad {
    #[inline]
    pub fn new(spi: u32, sequence: u64, is_extended: bool) -> Aad {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&spi.to_be_bytes());
        let length = match is_extended {
            true => {
                bytes[4..].copy_from_slice(&sequence.to_be_bytes());
                12
            }
            false => {
                bytes[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
                8
            }
        };
        Aad { bytes, length }
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Views of an ESP packet of at least [`MIN_ESP`] bytes.
pub(crate) struct Fields<'a> {
    pub header: &'a mut [u8; HEADER],
    pub encrypted: &'a mut [u8],
    pub icv: &'a mut [u8; ICV],
}

impl<'a> Fields<'a> {
    /// The fields of a packet; `None` if it is shorter than header and ICV.
    #[inline]
    pub fn of(esp: &'a mut [u8]) -> Option<Fields<'a>> {
        let (header, rest) = esp.split_first_chunk_mut()?;
        let (encrypted, icv) = rest.split_last_chunk_mut()?;
        Some(Fields { header, encrypted, icv })
    }

    #[inline]
    pub fn iv(&self) -> [u8; IV] {
        *self.header.last_chunk().expect("the IV ends the header")
    }
}

/// Writes padding, its length and the next header behind the payload in the encrypted part.
#[inline]
pub(crate) fn write_tail(encrypted: &mut [u8], payload: usize, next_header: u8) {
    let padding = padding(payload);
    for (byte, value) in encrypted[payload..].iter_mut().zip((1..=padding as u8).chain([padding as u8, next_header])) {
        *byte = value;
    }
}

/// The payload and the next header of a decrypted part; `None` if its padding is not as RFC 4303, section 2.4, has it.
#[inline]
pub(crate) fn read_tail(decrypted: &[u8]) -> Option<(Range<usize>, u8)> {
    let (rest, &[length, next_header]) = decrypted.split_last_chunk()?;
    let payload = rest.len().checked_sub(length.into())?;
    let is_counted = rest[payload..].iter().zip(1..=u8::MAX).all(|(byte, value)| *byte == value);
    is_counted.then_some((0..payload, next_header))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encrypted_part_is_aligned_and_no_longer_than_it_must_be() {
        for payload in 0..100 {
            let encrypted = sealed_length(payload) - HEADER - ICV;
            assert_eq!(encrypted % ALIGNMENT, 0);
            assert!((payload + TAIL..payload + TAIL + ALIGNMENT).contains(&encrypted));
            assert!(trailer_length(payload) <= MAX_TRAILER);
        }
        assert_eq!(sealed_length(0), MIN_ESP);
    }

    #[test]
    fn tails_are_read_back() {
        for payload in 0..100 {
            let mut encrypted = vec![0xee; payload + padding(payload) + TAIL];
            write_tail(&mut encrypted, payload, 41);
            assert_eq!(read_tail(&encrypted), Some((0..payload, 41)));
            assert!(encrypted[..payload].iter().all(|byte| *byte == 0xee));
        }
    }

    #[test]
    fn padding_of_any_length_is_read_if_it_counts() {
        for length in 0..=255_u8 {
            let mut decrypted: Vec<u8> = [7; 5].into_iter().chain(1..=length).chain([length, 4]).collect();
            assert_eq!(read_tail(&decrypted), Some((0..5, 4)));
            if length > 0 {
                decrypted[5 + usize::from(length) / 2] ^= 0x80;
                assert_eq!(read_tail(&decrypted), None);
            }
        }
        for short in [&[][..], &[0], &[1, 4], &[1, 2, 3, 4, 5, 4, 4]] {
            assert_eq!(read_tail(short), None);
        }
    }
}

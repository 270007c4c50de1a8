//! The security parameters index, which names a security association.

use std::fmt;

/// The highest reserved index (RFC 4303, section 2.1).
const LAST_RESERVED: u32 = 255;

/// An index outside the reserved range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spi(u32);

impl Spi {
    /// An index; an error if it is reserved (0 to 255).
    pub const fn new(number: u32) -> Result<Spi, SpiError> {
        match number {
            0..=LAST_RESERVED => Err(SpiError(number)),
            _ => Ok(Spi(number)),
        }
    }

    /// The number on the wire.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The index at the start of an ESP packet, which may be reserved; `None` if the packet is shorter than that.
    pub fn peek(esp: &[u8]) -> Option<u32> {
        esp.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }
}

impl fmt::Debug for Spi {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Spi({self})")
    }
}

impl fmt::Display for Spi {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#010x}", self.0)
    }
}

/// The index is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SPI {0} is reserved (RFC 4303, section 2.1); choose one from 256 on")]
pub struct SpiError(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_indexes_are_refused() {
        assert_eq!(Spi::new(0), Err(SpiError(0)));
        assert_eq!(Spi::new(255), Err(SpiError(255)));
        assert_eq!(Spi::new(256).map(Spi::get), Ok(256));
        assert_eq!(Spi::new(u32::MAX).unwrap().to_string(), "0xffffffff");
    }

    #[test]
    fn the_index_of_a_packet_is_its_first_word() {
        assert_eq!(Spi::peek(&[0, 0, 1, 2, 9]), Some(258));
        assert_eq!(Spi::peek(&[0, 0, 1]), None);
    }
}

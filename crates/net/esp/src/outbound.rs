//! A security association that sends.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use crate::cipher::Cipher;
use crate::keys::Keys;
use crate::layout::{self, Aad, Fields, HEADER, ICV, IV, TAIL};
use crate::lifetime::{Amount, Lifetime, Limit, Meter};
use crate::progress::KeyProgress;
use crate::spi::Spi;

/// What can be chosen for an [`Outbound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboundSettings {
    /// Whether sequence numbers have 64 bits, of which the packets have the lower 32 (ESN). Both ends must agree.
    pub is_extended: bool,
    /// The distance from a packet's sequence number to its IV. It is random by default, so that no IV comes again when
    /// sequence numbers do, after the state of a key was lost.
    pub iv_offset: u64,
    /// When to stop.
    pub lifetime: Lifetime,
}

impl Default for OutboundSettings {
    fn default() -> OutboundSettings {
        OutboundSettings { is_extended: true, iv_offset: random(), lifetime: Lifetime::default() }
    }
}

/// A security association that seals packets.
///
/// It uses each sequence number once. The IV is the sequence number and an offset that is random for each run, so no
/// nonce is used twice: use keys for one `Outbound` at a time, and in one direction only. A packet that is refused uses
/// no number, and its bytes stay as they are.
pub struct Outbound {
    spi: Spi,
    cipher: Cipher,
    is_extended: bool,
    /// The number of the last packet.
    sequence: u64,
    max_sequence: u64,
    iv_offset: u64,
    meter: Meter,
    progress: KeyProgress,
}

impl Outbound {
    /// A security association with new keys.
    pub fn new(spi: Spi, keys: &Keys, settings: OutboundSettings) -> Outbound {
        Outbound::with_cipher(spi, Cipher::new(keys), settings, KeyProgress::new())
    }

    /// One with a cipher that is ready, whose key goes on behind what it was used for before.
    pub fn with_cipher(spi: Spi, cipher: Cipher, settings: OutboundSettings, progress: KeyProgress) -> Outbound {
        let OutboundSettings { is_extended, iv_offset, lifetime } = settings;
        let max_sequence = if is_extended { u64::MAX } else { u32::MAX.into() };
        let (sequence, meter) = (progress.sequence(), Meter::new(lifetime, progress.used()));
        Outbound { spi, cipher, is_extended, sequence, max_sequence, iv_offset, meter, progress }
    }

    /// Its index.
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// The sequence number of the last packet; 0 before the first.
    pub fn last_sequence(&self) -> u64 {
        self.sequence
    }

    /// What its key has sealed, also before.
    pub fn used(&self) -> Amount {
        self.meter.used()
    }

    /// The soft limit, if it was reached: returned once.
    pub fn take_soft_limit(&mut self) -> Option<Limit> {
        self.meter.take_soft()
    }

    /// Seals the bytes `payload` of the buffer, and returns where the ESP packet is. Hot.
    ///
    /// The ESP header takes the [`HEADER`] bytes in front of the payload, the trailer the
    /// [`trailer_length`](crate::trailer_length) bytes behind it. `next_header` is the protocol of the payload: 4 or 41
    /// for a whole IP packet (tunnel mode), that of the IP packet's contents in transport mode.
    pub fn seal(
        &mut self,
        buffer: &mut [u8],
        payload: Range<usize>,
        next_header: u8,
    ) -> Result<Range<usize>, SealError> {
        let esp = place(buffer.len(), &payload)?;
        let length = payload.len();
        let Some(Fields { header, encrypted, icv }) = Fields::of(&mut buffer[esp.clone()]) else {
            return Err(SealError::Range);
        };
        let sequence = self.take_sequence(encrypted.len())?;
        let iv = sequence.wrapping_add(self.iv_offset).to_be_bytes();
        header[..4].copy_from_slice(&self.spi.get().to_be_bytes());
        header[4..8].copy_from_slice(&(sequence as u32).to_be_bytes());
        header[HEADER - IV..].copy_from_slice(&iv);
        layout::write_tail(encrypted, length, next_header);
        let aad = Aad::new(self.spi.get(), sequence, self.is_extended);
        self.cipher.seal(&iv, aad.bytes(), encrypted, icv);
        Ok(esp)
    }

    /// The sequence number of the next packet, with `bytes` encrypted bytes, if there may be one.
    #[inline]
    fn take_sequence(&mut self, bytes: usize) -> Result<u64, SealError> {
        if self.sequence >= self.max_sequence {
            return Err(SealError::SequenceExhausted);
        }
        self.meter.check(bytes).map_err(SealError::Expired)?;
        self.meter.count(bytes);
        self.sequence += 1;
        self.progress.set(self.sequence, self.meter.used());
        Ok(self.sequence)
    }
}

impl fmt::Debug for Outbound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Outbound")
            .field("spi", &self.spi)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

/// A number that nobody can foretell.
fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// The place of the ESP packet around the payload, in a buffer of this length.
#[inline]
fn place(buffer: usize, payload: &Range<usize>) -> Result<Range<usize>, SealError> {
    if payload.start > payload.end || payload.end > buffer {
        return Err(SealError::Range);
    }
    let start = payload.start.checked_sub(HEADER).ok_or(SealError::Headroom)?;
    let behind = layout::padding(payload.len()) + TAIL + ICV;
    if buffer - payload.end < behind {
        return Err(SealError::Tailroom);
    }
    Ok(start..payload.end + behind)
}

/// Why a packet is not sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The payload is not within the buffer.
    #[error("the payload's range is not within the buffer")]
    Range,
    /// Too little room in front of the payload.
    #[error("less than {HEADER} bytes in front of the payload; reserve them for the ESP header")]
    Headroom,
    /// Too little room behind the payload.
    #[error("too few bytes behind the payload; reserve {} for the ESP trailer", layout::MAX_TRAILER)]
    Tailroom,
    /// The last sequence number was used.
    #[error("all sequence numbers are used; replace the keys")]
    SequenceExhausted,
    /// A hard limit was reached.
    #[error("the hard limit of {0} is reached; replace the keys")]
    Expired(Limit),
}

impl SealError {
    /// A name for a counter.
    pub const fn name(self) -> &'static str {
        match self {
            SealError::Range => "bad_range",
            SealError::Headroom => "no_headroom",
            SealError::Tailroom => "no_tailroom",
            SealError::SequenceExhausted => "sequence_exhausted",
            SealError::Expired(_) => "expired",
        }
    }
}

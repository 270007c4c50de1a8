//! A security association that receives.

use std::fmt;
use std::ops::Range;

use crate::cipher::{BadIcv, Cipher};
use crate::keys::Keys;
use crate::layout::{self, ALIGNMENT, Aad, Fields, HEADER, ICV, MIN_ESP, NEXT_HEADER_DUMMY};
use crate::lifetime::{Amount, Lifetime, Limit, Meter};
use crate::progress::KeyProgress;
use crate::sequence;
use crate::spi::Spi;
use crate::window::{MAX_WINDOW, MIN_WINDOW, ReplayWindow, Stale};

/// How many upper halves a resynchronisation tries.
const RESYNC_TRIES: u64 = 8;

/// What can be chosen for an [`Inbound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InboundSettings {
    /// Whether sequence numbers have 64 bits, of which the packets have the lower 32 (ESN). Both ends must agree.
    pub is_extended: bool,
    /// The packets of the replay window, [`MIN_WINDOW`] to [`MAX_WINDOW`]: how far a packet may be overtaken.
    pub window: u32,
    /// With extended sequence numbers: the consecutive failures of authentication after which higher upper halves are
    /// tried, once, because more than 2^32 packets may have been lost (RFC 4303, appendix A2.3). 0: never.
    pub resync_after: u32,
    /// When to stop.
    pub lifetime: Lifetime,
}

impl Default for InboundSettings {
    fn default() -> InboundSettings {
        InboundSettings { is_extended: true, window: 1_024, resync_after: 1_024, lifetime: Lifetime::default() }
    }
}

/// The settings are no good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The replay window has a wrong size.
    #[error("a replay window of {0} packets; choose {MIN_WINDOW} to {MAX_WINDOW}")]
    Window(u32),
    /// The last sequence number does not fit.
    #[error("the last sequence number {0} needs more than 32 bits; use extended sequence numbers")]
    LastSequence(u64),
}

/// A security association that opens packets.
///
/// The sequence number is checked before a packet is decrypted, and marked as seen after it has been authenticated.
pub struct Inbound {
    spi: Spi,
    cipher: Cipher,
    is_extended: bool,
    window: ReplayWindow,
    resync_after: u32,
    /// Consecutive failures of authentication.
    failures: u64,
    resyncs: u64,
    meter: Meter,
    /// What its key had received before.
    before: Amount,
    progress: KeyProgress,
}

/// A packet that was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Where the payload is in the bytes of the ESP packet.
    pub payload: Range<usize>,
    /// The payload's protocol.
    pub next_header: u8,
    /// The packet's sequence number, with its upper half.
    pub sequence: u64,
}

impl Opened {
    /// Whether the packet hides the traffic's pattern and has no contents: discard it (RFC 4303, section 2.6).
    pub fn is_dummy(&self) -> bool {
        self.next_header == NEXT_HEADER_DUMMY
    }
}

impl Inbound {
    /// A security association with new keys.
    pub fn new(spi: Spi, keys: &Keys, settings: InboundSettings) -> Result<Inbound, SettingsError> {
        Inbound::with_cipher(spi, Cipher::new(keys), settings, KeyProgress::new())
    }

    /// One with a cipher that is ready. All sequence numbers up to the highest one that was accepted before count as
    /// seen.
    pub fn with_cipher(
        spi: Spi,
        cipher: Cipher,
        settings: InboundSettings,
        progress: KeyProgress,
    ) -> Result<Inbound, SettingsError> {
        let InboundSettings { is_extended, window, resync_after, lifetime } = settings;
        let last_sequence = progress.sequence();
        if !(MIN_WINDOW..=MAX_WINDOW).contains(&window) {
            return Err(SettingsError::Window(window));
        }
        if !is_extended && last_sequence > u32::MAX.into() {
            return Err(SettingsError::LastSequence(last_sequence));
        }
        let window = ReplayWindow::new(window, last_sequence);
        let before = progress.used();
        let meter = Meter::new(lifetime, before);
        Ok(Inbound { spi, cipher, is_extended, window, resync_after, failures: 0, resyncs: 0, meter, before, progress })
    }

    /// Its index.
    pub fn spi(&self) -> Spi {
        self.spi
    }

    /// The highest sequence number that was authenticated; 0 before the first.
    pub fn last_sequence(&self) -> u64 {
        self.window.last()
    }

    /// What was authenticated with its key, also before.
    pub fn used(&self) -> Amount {
        self.meter.used()
    }

    /// How many packets in a row were not authentic, until now.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    /// Whether any packet was authentic since it was made.
    pub fn has_opened(&self) -> bool {
        self.meter.used() != self.before
    }

    /// How often it found the upper half of the sequence number again.
    pub fn resyncs(&self) -> u64 {
        self.resyncs
    }

    /// The soft limit, if it was reached: returned once.
    pub fn take_soft_limit(&mut self) -> Option<Limit> {
        self.meter.take_soft()
    }

    /// Opens an ESP packet in place: `esp` begins with the SPI and ends with the ICV. Hot.
    ///
    /// After [`OpenError::BadIcv`] and [`OpenError::BadPadding`] its bytes behind the header are not what they were.
    pub fn open(&mut self, esp: &mut [u8]) -> Result<Opened, OpenError> {
        let Some(fields) = Fields::of(esp).filter(|fields| fields.encrypted.len() >= ALIGNMENT) else {
            return Err(OpenError::TooShort);
        };
        if !fields.encrypted.len().is_multiple_of(ALIGNMENT) {
            return Err(OpenError::Misaligned);
        }
        if Spi::peek(fields.header) != Some(self.spi.get()) {
            return Err(OpenError::UnknownSpi);
        }
        let sequence = self.sequence(&fields)?;
        self.window.check(sequence).map_err(|stale| match stale {
            Stale::Replayed => OpenError::Replayed,
            Stale::TooOld => OpenError::TooOld,
        })?;
        self.meter.check(fields.encrypted.len()).map_err(OpenError::Expired)?;
        let sequence = match self.authenticate(fields, sequence) {
            Ok(sequence) => sequence,
            Err(BadIcv) => return Err(OpenError::BadIcv),
        };
        self.failures = 0;
        self.window.accept(sequence);
        let decrypted = &esp[HEADER..esp.len() - ICV];
        self.meter.count(decrypted.len());
        self.progress.set(self.window.last(), self.meter.used());
        let (payload, next_header) = layout::read_tail(decrypted).ok_or(OpenError::BadPadding)?;
        Ok(Opened { payload: HEADER + payload.start..HEADER + payload.end, next_header, sequence })
    }

    /// The whole sequence number of a packet.
    #[inline]
    fn sequence(&self, fields: &Fields<'_>) -> Result<u64, OpenError> {
        let [_, _, _, _, low @ ..] = *fields.header.first_chunk::<8>().expect("the header is longer");
        let low = u32::from_be_bytes(low);
        match self.is_extended {
            true => sequence::infer(self.window.last(), self.window.size(), low).ok_or(OpenError::TooOld),
            false => Ok(low.into()),
        }
    }

    /// Decrypts a packet and returns its sequence number, which differs from the expected one after a resynchronisation.
    #[inline]
    fn authenticate(&mut self, fields: Fields<'_>, sequence: u64) -> Result<u64, BadIcv> {
        let opened = match self.is_to_resync() {
            true => self.resync(fields, sequence),
            false => self.decrypt(fields, sequence).map(|()| sequence),
        };
        if opened.is_err() {
            self.failures = self.failures.saturating_add(1);
        }
        opened
    }

    /// Whether higher upper halves are to be tried: once after a number of failures, so that a flood of bad packets
    /// costs the tries only once in that number of packets.
    #[inline]
    fn is_to_resync(&self) -> bool {
        let after = u64::from(self.resync_after);
        self.is_extended && after != 0 && self.failures >= after && self.failures % (after + 1) == after
    }

    /// Decrypts with the expected sequence number, and with higher upper halves.
    #[cold]
    fn resync(&mut self, fields: Fields<'_>, expected: u64) -> Result<u64, BadIcv> {
        let Fields { header, encrypted, icv } = fields;
        let ciphertext = encrypted.to_vec();
        for step in 0..=RESYNC_TRIES {
            let Some(sequence) = expected.checked_add(step << 32) else { break };
            encrypted.copy_from_slice(&ciphertext);
            let fields = Fields { header: &mut *header, encrypted: &mut *encrypted, icv: &mut *icv };
            if self.decrypt(fields, sequence).is_ok() {
                self.resyncs += u64::from(step > 0);
                return Ok(sequence);
            }
        }
        Err(BadIcv)
    }

    #[inline]
    fn decrypt(&self, fields: Fields<'_>, sequence: u64) -> Result<(), BadIcv> {
        let iv = fields.iv();
        let aad = Aad::new(self.spi.get(), sequence, self.is_extended);
        self.cipher.open(&iv, aad.bytes(), fields.encrypted, fields.icv)
    }
}

impl fmt::Debug for Inbound {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Inbound")
            .field("spi", &self.spi)
            .field("last_sequence", &self.window.last())
            .finish_non_exhaustive()
    }
}

/// Why a packet is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Shorter than the shortest ESP packet.
    #[error("shorter than {MIN_ESP} bytes, the shortest ESP packet")]
    TooShort,
    /// The encrypted part is not a multiple of 4 bytes (RFC 4303, section 2.4).
    #[error("the encrypted part is not a multiple of {ALIGNMENT} bytes")]
    Misaligned,
    /// No security association has this SPI.
    #[error("no security association has this SPI")]
    UnknownSpi,
    /// The sequence number was seen.
    #[error("the sequence number was seen before")]
    Replayed,
    /// The sequence number is below the replay window.
    #[error("the sequence number is below the replay window")]
    TooOld,
    /// The packet is not the sender's, or was changed.
    #[error("the integrity check value is wrong")]
    BadIcv,
    /// The padding is not 1, 2, 3 and so on, or longer than the packet: the sender is at fault.
    #[error("the padding is not as RFC 4303 has it")]
    BadPadding,
    /// A hard limit was reached.
    #[error("the hard limit of {0} is reached; replace the keys")]
    Expired(Limit),
}

impl OpenError {
    /// A name for a counter.
    pub const fn name(self) -> &'static str {
        match self {
            OpenError::TooShort => "too_short",
            OpenError::Misaligned => "misaligned",
            OpenError::UnknownSpi => "unknown_spi",
            OpenError::Replayed => "replayed",
            OpenError::TooOld => "too_old",
            OpenError::BadIcv => "bad_icv",
            OpenError::BadPadding => "bad_padding",
            OpenError::Expired(_) => "expired",
        }
    }
}

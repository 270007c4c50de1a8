//! One direction of a pair, read from its keys and ready to become a security association.

use std::path::Path;

use bellows_config::SettingError;
use bellows_esp::{
    Algorithm, Amount, Cipher, Fingerprint, Inbound, InboundSettings, Keys, Lifetime, MAX_WINDOW, MIN_WINDOW, Outbound,
    OutboundSettings, Spi,
};
use zeroize::Zeroizing;

use super::config::{Direction, Limits};

/// Which of the two associations of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Inbound,
    Outbound,
}

impl Way {
    /// Its key.
    pub(super) fn key(self) -> &'static str {
        match self {
            Way::Inbound => "inbound",
            Way::Outbound => "outbound",
        }
    }
}

/// All that makes an association what it is, with a number in place of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) spi: Spi,
    pub(super) algorithm: Algorithm,
    pub(super) fingerprint: Fingerprint,
    pub(super) is_extended: bool,
    pub(super) window: u32,
    pub(super) resync_after: u32,
    pub(super) soft: Limits,
    pub(super) hard: Limits,
}

/// An association that can be created.
pub(super) struct Plan {
    pub(super) spec: Spec,
    cipher: Cipher,
}

/// Reads the text file that a key names.
pub(super) type ReadText<'r> = &'r dyn Fn(&Path) -> Result<String, SettingError>;

impl Plan {
    /// Reads one direction of a pair.
    ///
    /// # Errors
    /// If a value is out of its range, or the key is none.
    pub(super) fn read(direction: &Direction, way: Way, read_text: ReadText<'_>) -> Result<Plan, SettingError> {
        let wrong = |message: String, help: &str| SettingError::at("associations", message, help);
        let spi = Spi::new(direction.spi).map_err(|error| wrong(error.to_string(), "").in_entry("spi"))?;
        if way == Way::Outbound && (direction.window.is_some() || direction.resync_after.is_some()) {
            let message = "`window` and `resync_after` are of `inbound` alone".to_owned();
            return Err(wrong(message, "the other end has its own; remove them here"));
        }
        let InboundSettings { window, resync_after, .. } = InboundSettings::default();
        let window = direction.window.unwrap_or(window);
        if !(MIN_WINDOW..=MAX_WINDOW).contains(&window) {
            let help = format!("choose {MIN_WINDOW} to {MAX_WINDOW}");
            return Err(wrong(format!("a replay window of {window} packets"), &help).in_entry("window"));
        }
        let keys = read_keys(direction, read_text)?;
        let spec = Spec {
            spi,
            algorithm: keys.algorithm(),
            fingerprint: keys.fingerprint(),
            is_extended: direction.esn,
            window,
            resync_after: direction.resync_after.unwrap_or(resync_after),
            soft: direction.soft,
            hard: direction.hard,
        };
        Ok(Plan { spec, cipher: Cipher::new(&keys) })
    }

    /// The association that receives, above this sequence number.
    pub(super) fn inbound(self, last_sequence: u64) -> Inbound {
        let Spec { spi, is_extended, window, resync_after, .. } = self.spec;
        let last_sequence = if is_extended { last_sequence } else { last_sequence.min(u32::MAX.into()) };
        let settings = InboundSettings { is_extended, window, resync_after, last_sequence, lifetime: self.lifetime() };
        Inbound::with_cipher(spi, self.cipher, settings).expect("the window was checked, and the number fits")
    }

    /// The association that sends, above this sequence number.
    pub(super) fn outbound(self, last_sequence: u64) -> Outbound {
        let Spec { spi, is_extended, .. } = self.spec;
        let settings = OutboundSettings { is_extended, last_sequence, lifetime: self.lifetime() };
        Outbound::with_cipher(spi, self.cipher, settings)
    }

    fn lifetime(&self) -> Lifetime {
        let amount = |limits: Limits| Amount {
            packets: limits.packets.unwrap_or(u64::MAX),
            bytes: limits.bytes.unwrap_or(u64::MAX),
        };
        Lifetime { soft: amount(self.spec.soft), hard: amount(self.spec.hard) }
    }
}

/// The key of a direction.
fn read_keys(direction: &Direction, read_text: ReadText<'_>) -> Result<Keys, SettingError> {
    let algorithm = Algorithm::from(direction.algorithm);
    let (text, from) = match (&direction.key, &direction.key_file) {
        (Some(key), None) => (Zeroizing::new(key.text().to_owned()), None),
        (None, Some(path)) => {
            let text = read_text(path).map_err(|error| error.in_entry("key_file"))?;
            (Zeroizing::new(text), Some(path))
        }
        (given, _) => {
            let number = if given.is_some() { "two keys" } else { "no key" };
            let message = format!("the association has {number}");
            return Err(SettingError::at("associations", message, "give either `key` or `key_file`"));
        }
    };
    Keys::parse(algorithm, text.trim()).map_err(|error| match from {
        None => SettingError::at("associations", error.to_string(), "").in_entry("key"),
        Some(path) => {
            SettingError::at("associations", format!("`{}`: {error}", path.display()), "").in_entry("key_file")
        }
    })
}

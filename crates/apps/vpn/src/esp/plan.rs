//! One direction of a pair, read from its keys and ready to become a security association.

use std::path::Path;

use bellows_config::SettingError;
use bellows_esp::{
    Algorithm, Amount, Cipher, Fingerprint, Inbound, InboundSettings, Keys, Lifetime, MAX_WINDOW, MIN_WINDOW, Outbound,
    OutboundSettings, Spi,
};
use bellows_sys::stack;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::config::{Direction, Limits};
use super::records::Slot;
use super::register::Claim;

/// Which of the two associations of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
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

    pub(super) fn other(self) -> Way {
        match self {
            Way::Inbound => Way::Outbound,
            Way::Outbound => Way::Inbound,
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

impl Spec {
    /// The use of the key in a direction.
    pub(super) fn claim(&self, way: Way) -> Claim {
        Claim { way, key: self.fingerprint, spi: self.spi, is_extended: self.is_extended }
    }
}

/// An association that can be created.
pub(super) struct AssociationPlan {
    pub(super) spec: Spec,
    cipher: Cipher,
}

/// Reads the file with a key.
pub(super) type ReadSecret<'r> = &'r dyn Fn(&Path) -> Result<Zeroizing<String>, SettingError>;

impl AssociationPlan {
    /// Reads one direction of a pair.
    ///
    /// # Errors
    /// If a value is out of its range, or the key is none.
    pub(super) fn read(
        direction: &Direction,
        way: Way,
        read_secret: ReadSecret<'_>,
    ) -> Result<AssociationPlan, SettingError> {
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
        let made = make_cipher(direction, read_secret);
        // Ciphers are built on the stack.
        stack::wipe();
        let (cipher, algorithm, fingerprint) = made?;
        let spec = Spec {
            spi,
            algorithm,
            fingerprint,
            is_extended: direction.esn,
            window,
            resync_after: direction.resync_after.unwrap_or(resync_after),
            soft: direction.soft,
            hard: direction.hard,
        };
        Ok(AssociationPlan { spec, cipher })
    }

    /// The association that receives, which goes on with what its key was used for before.
    pub(super) fn inbound(self, slot: &Slot) -> Inbound {
        let Spec { spi, is_extended, window, resync_after, .. } = self.spec;
        let settings = InboundSettings { is_extended, window, resync_after, lifetime: self.lifetime() };
        let inbound = Inbound::with_cipher(spi, self.cipher, settings, slot.progress(Way::Inbound));
        inbound.expect("the window was checked, and the register has checked that the number fits")
    }

    /// The association that sends, which goes on likewise.
    pub(super) fn outbound(self, slot: &Slot) -> Outbound {
        let Spec { spi, is_extended, .. } = self.spec;
        let settings = OutboundSettings { is_extended, iv_offset: slot.iv_offset(), lifetime: self.lifetime() };
        Outbound::with_cipher(spi, self.cipher, settings, slot.progress(Way::Outbound))
    }

    fn lifetime(&self) -> Lifetime {
        let amount = |limits: Limits| Amount {
            packets: limits.packets.unwrap_or(u64::MAX),
            bytes: limits.bytes.unwrap_or(u64::MAX),
        };
        Lifetime { soft: amount(self.spec.soft), hard: amount(self.spec.hard) }
    }
}

/// The cipher with the key of a direction, whose copies on the stack are below the caller's frame.
#[inline(never)]
fn make_cipher(
    direction: &Direction,
    read_secret: ReadSecret<'_>,
) -> Result<(Cipher, Algorithm, Fingerprint), SettingError> {
    let keys = read_keys(direction, read_secret)?;
    Ok((Cipher::new(&keys), keys.algorithm(), keys.fingerprint()))
}

/// The key of a direction.
fn read_keys(direction: &Direction, read_secret: ReadSecret<'_>) -> Result<Keys, SettingError> {
    let algorithm = Algorithm::from(direction.algorithm);
    let (text, from) = match (&direction.key, &direction.key_file) {
        (Some(key), None) => (Zeroizing::new(key.text().to_owned()), None),
        (None, Some(path)) => (read_secret(path).map_err(|error| error.in_entry("key_file"))?, Some(path)),
        (given, _) => {
            const HELP: &str = "give either `key` or `key_file`";
            let wrong = |message| SettingError::at("associations", message, HELP);
            return Err(match given {
                Some(_) => wrong("the association has two keys"),
                None => wrong("the association has no key").of_absence(),
            });
        }
    };
    Keys::parse(algorithm, text.trim()).map_err(|error| match from {
        None => SettingError::at("associations", error.to_string(), "").in_entry("key"),
        Some(path) => {
            SettingError::at("associations", format!("`{}`: {error}", path.display()), "").in_entry("key_file")
        }
    })
}

//! The ciphers of ESP in this crate, by name.

use std::fmt;
use std::str::FromStr;

/// The length of a salt in bytes: the constant first part of every nonce.
pub(crate) const SALT: usize = 4;

/// A cipher with its key length. All have an ICV of 16 bytes, a salt of 4 and an IV of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// AES-GCM with a key of 16 bytes (RFC 4106).
    Aes128Gcm,
    /// AES-GCM with a key of 32 bytes (RFC 4106).
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 7634), with a key of 32 bytes.
    ChaCha20Poly1305,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 3] = [Algorithm::Aes128Gcm, Algorithm::Aes256Gcm, Algorithm::ChaCha20Poly1305];

    /// The name that [`Algorithm::from_str`] reads, such as `aes-128-gcm`.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Aes128Gcm => "aes-128-gcm",
            Algorithm::Aes256Gcm => "aes-256-gcm",
            Algorithm::ChaCha20Poly1305 => "chacha20-poly1305",
        }
    }

    /// The length of the key in bytes, without the salt.
    pub const fn key_length(self) -> usize {
        match self {
            Algorithm::Aes128Gcm => 16,
            Algorithm::Aes256Gcm | Algorithm::ChaCha20Poly1305 => 32,
        }
    }

    /// The length of key and salt in bytes: the key material (RFC 4106, section 8.1; RFC 7634, section 2).
    pub const fn material_length(self) -> usize {
        self.key_length() + SALT
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(text: &str) -> Result<Algorithm, UnknownAlgorithm> {
        let found = Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        found.ok_or_else(|| UnknownAlgorithm(text.to_owned()))
    }
}

/// The text does not name an algorithm.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a cipher; use aes-128-gcm, aes-256-gcm or chacha20-poly1305")]
pub struct UnknownAlgorithm(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_the_error_lists_all() {
        let error = "aes-gcm".parse::<Algorithm>().unwrap_err().to_string();
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            assert!(error.contains(algorithm.name()), "{error}");
        }
    }
}

//! Key material: parsed from text, never shown, zeroed when dropped.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::algorithm::{Algorithm, SALT};

/// The key and the salt of one security association.
///
/// The bytes are on the heap, so that moving a value leaves no copy behind, and are zeroed when it is dropped. Neither
/// `Debug` nor an error shows any of them. There is no `Clone`: build the security association from a reference.
pub struct Keys {
    algorithm: Algorithm,
    /// The key, then the salt. Its capacity is its length, so that it is never moved.
    material: Zeroizing<Vec<u8>>,
}

impl Keys {
    /// Reads the key followed by the salt, in one text of hexadecimal digits, with or without `0x` in front: the key
    /// material of RFC 4106 and RFC 7634, as `ip xfrm` takes it.
    pub fn parse(algorithm: Algorithm, text: &str) -> Result<Keys, KeyError> {
        let mut keys = Keys::empty(algorithm);
        keys.append(text, SecretPart::Material, algorithm.material_length())?;
        Ok(keys)
    }

    /// Reads the key and the salt from two texts.
    pub fn parse_parts(algorithm: Algorithm, key: &str, salt: &str) -> Result<Keys, KeyError> {
        let mut keys = Keys::empty(algorithm);
        keys.append(key, SecretPart::Key, algorithm.key_length())?;
        keys.append(salt, SecretPart::Salt, SALT)?;
        Ok(keys)
    }

    /// Copies the key followed by the salt. The caller's own bytes stay as they are.
    pub fn from_bytes(algorithm: Algorithm, material: &[u8]) -> Result<Keys, KeyError> {
        let expected = algorithm.material_length();
        if material.len() != expected {
            return Err(KeyError::Length { part: SecretPart::Material, algorithm, expected, found: material.len() });
        }
        let mut keys = Keys::empty(algorithm);
        keys.material.extend_from_slice(material);
        Ok(keys)
    }

    /// The cipher that they are for.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// A number that distinguishes keys, the same in each process, and reveals nothing about a key that is random: the
    /// first half of a hash (SHA-256).
    pub fn fingerprint(&self) -> Fingerprint {
        let hash = Sha256::new_with_prefix(b"a key of ESP\0")
            .chain_update(self.algorithm.name())
            .chain_update([0])
            .chain_update(&self.material[..])
            .finalize();
        Fingerprint(u128::from_be_bytes(*hash.first_chunk().expect("a hash has 32 bytes")))
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.material[..self.algorithm.key_length()]
    }

    pub(crate) fn salt(&self) -> [u8; SALT] {
        *self.material.last_chunk().expect("the material ends with a salt")
    }

    fn empty(algorithm: Algorithm) -> Keys {
        Keys { algorithm, material: Zeroizing::new(Vec::with_capacity(algorithm.material_length())) }
    }

    /// Appends the bytes of a text, which must be `expected`.
    fn append(&mut self, text: &str, part: SecretPart, expected: usize) -> Result<(), KeyError> {
        let prefix = if text.starts_with("0x") || text.starts_with("0X") { 2 } else { 0 };
        let digits = &text.as_bytes()[prefix..];
        if let Some(at) = digits.iter().position(|digit| !digit.is_ascii_hexdigit()) {
            return Err(KeyError::NotHexadecimal { part, position: prefix + at + 1 });
        }
        if digits.len() % 2 == 1 {
            return Err(KeyError::OddDigits { part, digits: digits.len() });
        }
        let found = digits.len() / 2;
        if found != expected {
            return Err(KeyError::Length { part, algorithm: self.algorithm, expected, found });
        }
        self.material.extend(digits.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])));
        Ok(())
    }
}

/// A number of 128 bits that distinguishes secrets and reveals nothing about them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// That of a secret, in this process alone: a hash whose own keys are random numbers of the process.
    pub fn of(secret: &(impl std::hash::Hash + ?Sized)) -> Fingerprint {
        static HASHERS: OnceLock<[RandomState; 2]> = OnceLock::new();
        let hashers = HASHERS.get_or_init(|| [RandomState::new(), RandomState::new()]);
        let [high, low] = hashers.each_ref().map(|hasher| u128::from(hasher.hash_one(secret)));
        Fingerprint(high << 64 | low)
    }
}

impl From<u128> for Fingerprint {
    fn from(number: u128) -> Fingerprint {
        Fingerprint(number)
    }
}

impl From<Fingerprint> for u128 {
    fn from(Fingerprint(number): Fingerprint) -> u128 {
        number
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Fingerprint({self})")
    }
}

/// The value of a hexadecimal digit.
fn value(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Keys({}, not shown)", self.algorithm)
    }
}

/// Which text is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretPart {
    /// The key and the salt in one text.
    Material,
    /// The key alone.
    Key,
    /// The salt alone.
    Salt,
}

impl fmt::Display for SecretPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            SecretPart::Material => "key with salt",
            SecretPart::Key => "key",
            SecretPart::Salt => "salt",
        })
    }
}

/// The text is not a key. The message has no part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A character is not a hexadecimal digit.
    #[error(
        "{part}: byte {position} of the text is not a hexadecimal digit; write digits 0-9 and a-f without separators"
    )]
    NotHexadecimal {
        /// The text.
        part: SecretPart,
        /// Its byte, counted from 1.
        position: usize,
    },
    /// The last byte has one digit.
    #[error("{part}: {digits} hexadecimal digits are not whole bytes; write two digits for each byte")]
    OddDigits {
        /// The text.
        part: SecretPart,
        /// The number of digits.
        digits: usize,
    },
    /// Too few or too many bytes.
    #[error(
        "{part}: {algorithm} needs {expected} bytes ({digits} hexadecimal digits), the text has {found}{hint}",
        digits = 2 * expected, hint = hint(*part, *expected, *found)
    )]
    Length {
        /// The text.
        part: SecretPart,
        /// The cipher.
        algorithm: Algorithm,
        /// The bytes that it needs.
        expected: usize,
        /// The bytes in the text.
        found: usize,
    },
}

/// What has been forgotten, most likely.
fn hint(part: SecretPart, expected: usize, found: usize) -> &'static str {
    match part {
        SecretPart::Material if found + SALT == expected => "; the 4 bytes of the salt follow the key",
        SecretPart::Key if found == expected + SALT => "; the salt is a text of its own",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "000102030405060708090a0b0c0d0e0F";

    #[test]
    fn one_text_and_two_give_the_same() {
        let one = Keys::parse(Algorithm::Aes128Gcm, &format!("0x{KEY}DEADbeef")).unwrap();
        let two = Keys::parse_parts(Algorithm::Aes128Gcm, KEY, "0xdeadbeef").unwrap();
        for keys in [one, two] {
            assert_eq!(keys.key(), (0..16).collect::<Vec<u8>>());
            assert_eq!(keys.salt(), [0xde, 0xad, 0xbe, 0xef]);
        }
    }

    #[test]
    fn every_length_but_the_right_one_is_refused() {
        for algorithm in Algorithm::ALL {
            for found in 0..80 {
                let text = "a5".repeat(found);
                let outcome = Keys::parse(algorithm, &text);
                assert_eq!(outcome.is_ok(), found == algorithm.material_length());
                assert_eq!(Keys::from_bytes(algorithm, &vec![1; found]).is_ok(), outcome.is_ok());
            }
        }
    }

    #[test]
    fn errors_state_the_place_and_the_remedy_but_not_the_key() {
        let parse = |text: &str| Keys::parse(Algorithm::Aes128Gcm, text).unwrap_err().to_string();
        let errors = [
            (
                parse(KEY),
                "aes-128-gcm needs 20 bytes (40 hexadecimal digits), the text has 16; the 4 bytes of the salt",
            ),
            (parse(&format!("0x{KEY}zq")), "byte 35 of the text"),
            (parse(&format!("{KEY}€€")), "byte 33 of the text"),
            (parse("000"), "3 hexadecimal digits are not whole bytes"),
            (parse(""), "the text has 0"),
        ];
        for (error, expected) in errors {
            assert!(error.contains(expected), "{error}");
            for secret in ["0102", "zq", "€", "0e0F"] {
                assert!(!error.contains(secret), "{error}");
            }
        }
        let error = Keys::parse_parts(Algorithm::Aes128Gcm, &format!("{KEY}00000000"), "00000000").unwrap_err();
        assert!(error.to_string().ends_with("the salt is a text of its own"), "{error}");
    }

    #[test]
    fn fingerprints_tell_keys_apart() {
        let of = |algorithm, byte| Keys::from_bytes(algorithm, &vec![byte; algorithm.material_length()]).unwrap();
        let [aes, chacha] = [Algorithm::Aes256Gcm, Algorithm::ChaCha20Poly1305];
        assert_eq!(of(aes, 1).fingerprint(), of(aes, 1).fingerprint());
        assert_ne!(of(aes, 1).fingerprint(), of(aes, 2).fingerprint());
        assert_ne!(of(aes, 1).fingerprint(), of(chacha, 1).fingerprint());
    }

    #[test]
    fn nothing_is_shown() {
        let keys = Keys::parse_parts(Algorithm::Aes128Gcm, KEY, "deadbeef").unwrap();
        assert_eq!(format!("{keys:?}"), "Keys(aes-128-gcm, not shown)");
    }
}

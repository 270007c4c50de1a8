//! A key, ready for use: the ciphers of `ring`.

use bellows_sys::stack;
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroize;

use crate::algorithm::{Algorithm, SALT};
use crate::keys::Keys;
use crate::layout::{ICV, IV};

const NONCE: usize = SALT + IV;

/// A key, expanded. It is on the heap, and its memory is zeroed when it is dropped.
pub struct Cipher {
    salt: [u8; SALT],
    /// One key. `ring` does not zero it, but a vector lends the memory of a value that it has dropped.
    key: Vec<LessSafeKey>,
}

/// The ICV is wrong. The bytes that were to be opened are no longer the ciphertext, and no plaintext either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadIcv;

impl Cipher {
    /// Expands a key.
    pub fn new(keys: &Keys) -> Cipher {
        let key = expand(keys);
        stack::wipe();
        Cipher { salt: keys.salt(), key }
    }

    /// The instructions that AES-GCM uses on this processor.
    pub fn instructions() -> &'static str {
        instructions()
    }

    /// Encrypts `data` in place. The caller never uses an IV twice. Hot.
    #[inline]
    pub fn seal(&self, iv: &[u8; IV], aad: &[u8], data: &mut [u8], icv: &mut [u8; ICV]) {
        let tag = self.key().seal_in_place_separate_tag(self.nonce(iv), Aad::from(aad), data);
        let tag = tag.expect("a packet is shorter than the limit of the cipher, 2^36 bytes");
        icv.copy_from_slice(tag.as_ref());
    }

    /// Decrypts `data` in place, if its ICV is right. Hot.
    #[inline]
    pub fn open(&self, iv: &[u8; IV], aad: &[u8], data: &mut [u8], icv: &[u8; ICV]) -> Result<(), BadIcv> {
        let opened = self.key().open_in_place_separate_tag(self.nonce(iv), Aad::from(aad), (*icv).into(), data, 0..);
        opened.map(|_| ()).map_err(|_| BadIcv)
    }

    #[inline]
    fn key(&self) -> &LessSafeKey {
        self.key.first().expect("the key is there until it is dropped")
    }

    #[inline]
    fn nonce(&self, iv: &[u8; IV]) -> Nonce {
        let mut nonce = [0; NONCE];
        nonce[..SALT].copy_from_slice(&self.salt);
        nonce[SALT..].copy_from_slice(iv);
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Expands a key, and leaves copies of it on the stack.
#[inline(never)]
fn expand(keys: &Keys) -> Vec<LessSafeKey> {
    let algorithm = match keys.algorithm() {
        Algorithm::Aes128Gcm => &aead::AES_128_GCM,
        Algorithm::Aes256Gcm => &aead::AES_256_GCM,
        Algorithm::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
    };
    let key = UnboundKey::new(algorithm, keys.key()).expect("keys have the length of their algorithm");
    vec![LessSafeKey::new(key)]
}

impl Drop for Cipher {
    fn drop(&mut self) {
        self.salt.zeroize();
        self.key.clear();
        // All bytes, also those that the key's algorithm does not use: they may have come from the stack.
        self.key.spare_capacity_mut().zeroize();
    }
}

/// What `ring` chooses, for AES-GCM.
#[cfg(target_arch = "x86_64")]
fn instructions() -> &'static str {
    let has_aes = is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq");
    let has_wide = is_x86_feature_detected!("vaes") && is_x86_feature_detected!("vpclmulqdq");
    match has_aes {
        true if has_wide && is_x86_feature_detected!("avx2") => "VAES, VPCLMULQDQ and AVX2",
        true if is_x86_feature_detected!("avx") && is_x86_feature_detected!("movbe") => "AES-NI, PCLMULQDQ and AVX",
        true => "AES-NI and PCLMULQDQ",
        false => "none for AES",
    }
}

/// What `ring` chooses, for AES-GCM.
#[cfg(target_arch = "aarch64")]
fn instructions() -> &'static str {
    use std::arch::is_aarch64_feature_detected;
    match is_aarch64_feature_detected!("aes") && is_aarch64_feature_detected!("pmull") {
        true => "AES and PMULL",
        false => "none for AES",
    }
}

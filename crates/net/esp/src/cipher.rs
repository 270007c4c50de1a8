//! A key, ready for use, in one of two implementations.

use aes_gcm::aead::inout::InOutBuf;
use aes_gcm::aead::{AeadInOut, KeyInit};

use crate::algorithm::{Algorithm, SALT};
use crate::keys::Keys;
use crate::layout::{ICV, IV};

const NONCE: usize = SALT + IV;

/// Who computes the ciphers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implementation {
    /// `graviola`: the faster one, for processors with AES, PCLMULQDQ, AVX2, BMI1 and ADX (x86-64), or with NEON, AES
    /// and PMULL (aarch64). It uses VAES with AVX-512 if the processor has both.
    Graviola,
    /// `aes-gcm` and `chacha20poly1305`, for all processors.
    RustCrypto,
}

impl Implementation {
    /// Those that this processor can run, the best first.
    pub fn available() -> &'static [Implementation] {
        match graviola::util::is_cpu_supported() {
            true => &[Implementation::Graviola, Implementation::RustCrypto],
            false => &[Implementation::RustCrypto],
        }
    }

    /// The instructions that it uses on this processor for AES-GCM.
    pub fn instructions(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Implementation::Graviola if has_avx512() => "VAES and AVX-512",
            #[cfg(target_arch = "x86_64")]
            Implementation::Graviola => "AES-NI, PCLMULQDQ and AVX2",
            #[cfg(not(target_arch = "x86_64"))]
            Implementation::Graviola => "NEON, AES and PMULL",
            Implementation::RustCrypto => "those of `aes-gcm`",
        }
    }
}

/// Whether the processor has the wide instructions that `graviola` asks for.
#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("vaes")
        && is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
}

/// A key, expanded. It is on the heap and zeroed when dropped.
pub struct Cipher {
    salt: [u8; SALT],
    key: CipherKey,
}

/// Each variant has a box of its own. One box for all would have room for the largest, and the rest of it would be a copy
/// of the stack, where there may be the remains of another key.
enum CipherKey {
    AesGraviola(Box<graviola::aead::AesGcm>),
    ChaChaGraviola(Box<graviola::aead::ChaCha20Poly1305>),
    Aes128(Box<aes_gcm::Aes128Gcm>),
    Aes256(Box<aes_gcm::Aes256Gcm>),
    ChaCha(Box<chacha20poly1305::ChaCha20Poly1305>),
}

/// The ICV is wrong. The bytes that were to be opened are no longer the ciphertext, and no plaintext either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadIcv;

impl Cipher {
    /// A cipher by the best implementation that this processor can run.
    pub fn new(keys: &Keys) -> Cipher {
        Cipher::by(Implementation::available()[0], keys)
    }

    /// A cipher by this implementation.
    ///
    /// # Panics
    ///
    /// If the processor cannot run it: use one of [`Implementation::available`].
    pub fn by(implementation: Implementation, keys: &Keys) -> Cipher {
        const LENGTH: &str = "keys have the length of their algorithm";
        let bytes = keys.key();
        let key = match (implementation, keys.algorithm()) {
            (Implementation::Graviola, Algorithm::Aes128Gcm | Algorithm::Aes256Gcm) => {
                CipherKey::AesGraviola(Box::new(graviola::aead::AesGcm::new(bytes)))
            }
            (Implementation::Graviola, Algorithm::ChaCha20Poly1305) => CipherKey::ChaChaGraviola(Box::new(
                graviola::aead::ChaCha20Poly1305::new(bytes.try_into().expect(LENGTH)),
            )),
            (Implementation::RustCrypto, Algorithm::Aes128Gcm) => {
                CipherKey::Aes128(Box::new(aes_gcm::Aes128Gcm::new_from_slice(bytes).expect(LENGTH)))
            }
            (Implementation::RustCrypto, Algorithm::Aes256Gcm) => {
                CipherKey::Aes256(Box::new(aes_gcm::Aes256Gcm::new_from_slice(bytes).expect(LENGTH)))
            }
            (Implementation::RustCrypto, Algorithm::ChaCha20Poly1305) => {
                CipherKey::ChaCha(Box::new(chacha20poly1305::ChaCha20Poly1305::new_from_slice(bytes).expect(LENGTH)))
            }
        };
        Cipher { salt: keys.salt(), key }
    }

    /// Encrypts `data` in place. The caller never uses an IV twice. Hot.
    #[inline]
    pub fn seal(&self, iv: &[u8; IV], aad: &[u8], data: &mut [u8], icv: &mut [u8; ICV]) {
        let nonce = self.nonce(iv);
        match &self.key {
            CipherKey::AesGraviola(key) => key.encrypt(&nonce, aad, data, icv),
            CipherKey::ChaChaGraviola(key) => key.encrypt(&nonce, aad, data, icv),
            CipherKey::Aes128(key) => seal_portably(&**key, &nonce, aad, data, icv),
            CipherKey::Aes256(key) => seal_portably(&**key, &nonce, aad, data, icv),
            CipherKey::ChaCha(key) => seal_portably(&**key, &nonce, aad, data, icv),
        }
    }

    /// Decrypts `data` in place, if its ICV is right. Hot.
    #[inline]
    pub fn open(&self, iv: &[u8; IV], aad: &[u8], data: &mut [u8], icv: &[u8; ICV]) -> Result<(), BadIcv> {
        let nonce = self.nonce(iv);
        match &self.key {
            CipherKey::AesGraviola(key) => key.decrypt(&nonce, aad, data, icv).map_err(|_| BadIcv),
            CipherKey::ChaChaGraviola(key) => key.decrypt(&nonce, aad, data, icv).map_err(|_| BadIcv),
            CipherKey::Aes128(key) => open_portably(&**key, &nonce, aad, data, icv),
            CipherKey::Aes256(key) => open_portably(&**key, &nonce, aad, data, icv),
            CipherKey::ChaCha(key) => open_portably(&**key, &nonce, aad, data, icv),
        }
    }

    #[inline]
    fn nonce(&self, iv: &[u8; IV]) -> [u8; NONCE] {
        let mut nonce = [0; NONCE];
        nonce[..SALT].copy_from_slice(&self.salt);
        nonce[SALT..].copy_from_slice(iv);
        nonce
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.salt);
    }
}

type Nonce<K> = aes_gcm::aead::Nonce<K>;
type Tag<K> = aes_gcm::aead::Tag<K>;

fn seal_portably<K: AeadInOut>(key: &K, nonce: &[u8; NONCE], aad: &[u8], data: &mut [u8], icv: &mut [u8; ICV])
where
    for<'a> &'a Nonce<K>: From<&'a [u8; NONCE]>,
    Tag<K>: Into<[u8; ICV]>,
{
    let tag = key.encrypt_inout_detached(nonce.into(), aad, InOutBuf::from(data));
    *icv = tag.expect("a packet is shorter than the limit of the cipher, 2^36 bytes").into();
}

fn open_portably<K: AeadInOut>(
    key: &K,
    nonce: &[u8; NONCE],
    aad: &[u8],
    data: &mut [u8],
    icv: &[u8; ICV],
) -> Result<(), BadIcv>
where
    for<'a> &'a Nonce<K>: From<&'a [u8; NONCE]>,
    for<'a> &'a Tag<K>: From<&'a [u8; ICV]>,
{
    key.decrypt_inout_detached(nonce.into(), aad, InOutBuf::from(data), icv.into()).map_err(|_| BadIcv)
}

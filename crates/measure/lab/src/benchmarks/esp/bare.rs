//! The ciphers of ESP alone, by each library that can be chosen for them.

use bellows_esp::{Algorithm, ICV};
use bellows_packet::Packet;
use graviola::aead::{AesGcm, ChaCha20Poly1305};
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};

use super::contender::ETHERNET;

/// As long as the additional data of ESP with extended sequence numbers.
const AAD: [u8; 12] = [7; 12];

const KEY: [u8; 32] = [0x5a; 32];

/// A cipher that seals and opens what is behind the Ethernet header of packets; the ICV is at their end.
pub(super) trait BareCipher {
    /// Seals packets with consecutive nonces from this one.
    fn seal(&self, number: u64, packets: &mut [Packet]);

    /// Opens them again. Returns whether all were authentic.
    fn open(&self, number: u64, packets: &mut [Packet]) -> bool;
}

/// A cipher by each library that this processor can run, with its name.
pub(super) fn ciphers(algorithm: Algorithm) -> Vec<(&'static str, Box<dyn BareCipher>)> {
    let key = &KEY[..algorithm.key_length()];
    let ring = match algorithm {
        Algorithm::Aes128Gcm => &aead::AES_128_GCM,
        Algorithm::Aes256Gcm => &aead::AES_256_GCM,
        Algorithm::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
    };
    let ring = LessSafeKey::new(UnboundKey::new(ring, key).expect("the key has the length of its algorithm"));
    let mut ciphers: Vec<(_, Box<dyn BareCipher>)> = vec![("ring", Box::new(ring))];
    if graviola::util::is_cpu_supported() {
        ciphers.push((
            "graviola",
            match algorithm {
                Algorithm::Aes128Gcm | Algorithm::Aes256Gcm => Box::new(AesGcm::new(key)),
                Algorithm::ChaCha20Poly1305 => Box::new(ChaCha20Poly1305::new(KEY)),
            },
        ));
    }
    ciphers
}

/// One key of one library.
trait BareKey {
    fn seal(&self, nonce: [u8; 12], data: &mut [u8], icv: &mut [u8; ICV]);
    fn open(&self, nonce: [u8; 12], data: &mut [u8], icv: &[u8; ICV]) -> bool;
}

impl BareKey for LessSafeKey {
    fn seal(&self, nonce: [u8; 12], data: &mut [u8], icv: &mut [u8; ICV]) {
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.seal_in_place_separate_tag(nonce, Aad::from(AAD), data);
        icv.copy_from_slice(tag.expect("a short packet").as_ref());
    }

    fn open(&self, nonce: [u8; 12], data: &mut [u8], icv: &[u8; ICV]) -> bool {
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.open_in_place_separate_tag(nonce, Aad::from(AAD), (*icv).into(), data, 0..).is_ok()
    }
}

impl BareKey for AesGcm {
    fn seal(&self, nonce: [u8; 12], data: &mut [u8], icv: &mut [u8; ICV]) {
        self.encrypt(&nonce, &AAD, data, icv);
    }

    fn open(&self, nonce: [u8; 12], data: &mut [u8], icv: &[u8; ICV]) -> bool {
        self.decrypt(&nonce, &AAD, data, icv).is_ok()
    }
}

impl BareKey for ChaCha20Poly1305 {
    fn seal(&self, nonce: [u8; 12], data: &mut [u8], icv: &mut [u8; ICV]) {
        self.encrypt(&nonce, &AAD, data, icv);
    }

    fn open(&self, nonce: [u8; 12], data: &mut [u8], icv: &[u8; ICV]) -> bool {
        self.decrypt(&nonce, &AAD, data, icv).is_ok()
    }
}

impl<K: BareKey> BareCipher for K {
    fn seal(&self, number: u64, packets: &mut [Packet]) {
        for (number, packet) in (number..).zip(packets) {
            if let Some((data, icv)) = packet.bytes_mut()[ETHERNET..].split_last_chunk_mut() {
                BareKey::seal(self, nonce(number), data, icv);
            }
        }
    }

    fn open(&self, number: u64, packets: &mut [Packet]) -> bool {
        (number..).zip(packets).all(|(number, packet)| {
            let parts = packet.bytes_mut()[ETHERNET..].split_last_chunk_mut();
            parts.is_some_and(|(data, icv)| BareKey::open(self, nonce(number), data, icv))
        })
    }
}

fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [7; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

//! The ciphers of ESP by several libraries: nanoseconds a packet, in place, with a detached tag and 8 bytes of additional
//! data. `cargo run --release --manifest-path bench/peers/ciphers/Cargo.toml`

#[path = "../../../../crates/net/esp/examples/ciphers/turns.rs"]
mod turns;

use aes_gcm::aead::{AeadInOut, KeyInit, inout::InOutBuf};
use turns::{Contender, FRONT, HOT, compare};

const KEY: [u8; 32] = [0x5a; 32];

/// ESP encrypts 1,504 bytes of a packet of 1,500 in a tunnel.
const LENGTHS: [usize; 5] = [64, 128, 512, 1_500, 1_504];

/// One key of one library.
trait Cipher {
    fn seal(&self, nonce: &[u8; 12], aad: &[u8; 8], data: &mut [u8]) -> [u8; 16];
    fn open(&self, nonce: &[u8; 12], aad: &[u8; 8], data: &mut [u8], tag: &[u8; 16]) -> bool;
}

/// A key with the number of the next packet, which is its nonce.
struct Bare<C> {
    cipher: C,
    number: u64,
}

fn nonce(number: u64) -> [u8; 12] {
    let mut nonce = [7; 12];
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

impl<C: Cipher> Contender for Bare<C> {
    fn seal(&mut self, packets: &mut [Vec<u8>], length: usize) {
        for (number, packet) in (self.number..).zip(packets) {
            let (data, tag) = packet[FRONT..].split_at_mut(length);
            tag[..16].copy_from_slice(&self.cipher.seal(&nonce(number), &number.to_be_bytes(), data));
        }
    }

    fn open(&mut self, packets: &mut [Vec<u8>], length: usize) {
        for (number, packet) in (self.number..).zip(&mut *packets) {
            let (data, tag) = packet[FRONT..].split_at_mut(length);
            let tag = tag.first_chunk().expect("room for a tag");
            assert!(self.cipher.open(&nonce(number), &number.to_be_bytes(), data, tag));
        }
        self.number += packets.len() as u64;
    }
}

macro_rules! ring_like {
    ($library:ident) => {
        impl Cipher for $library::aead::LessSafeKey {
            fn seal(&self, nonce: &[u8; 12], aad: &[u8; 8], data: &mut [u8]) -> [u8; 16] {
                let nonce = $library::aead::Nonce::assume_unique_for_key(*nonce);
                let tag = self.seal_in_place_separate_tag(nonce, $library::aead::Aad::from(aad), data);
                tag.expect("a short message").as_ref().try_into().expect("a tag of 16 bytes")
            }

            fn open(&self, nonce: &[u8; 12], aad: &[u8; 8], data: &mut [u8], tag: &[u8; 16]) -> bool {
                let nonce = $library::aead::Nonce::assume_unique_for_key(*nonce);
                ring_like!(@open $library, self, nonce, aad, data, tag)
            }
        }
    };
    (@open ring, $key:ident, $nonce:ident, $aad:ident, $data:ident, $tag:ident) => {
        $key.open_in_place_separate_tag($nonce, ring::aead::Aad::from($aad), (*$tag).into(), $data, 0..).is_ok()
    };
    (@open aws_lc_rs, $key:ident, $nonce:ident, $aad:ident, $data:ident, $tag:ident) => {
        $key.open_in_place_separate_tag($nonce, aws_lc_rs::aead::Aad::from($aad), $tag, $data).is_ok()
    };
}

ring_like!(ring);
ring_like!(aws_lc_rs);

macro_rules! rust_crypto {
    ($($cipher:ty),*) => {
        $(
            impl Cipher for $cipher {
                fn seal(&self, nonce: &[u8; 12], aad: &[u8; 8], data: &mut [u8]) -> [u8; 16] {
                    let tag = self.encrypt_inout_detached(nonce.into(), aad, InOutBuf::from(data));
                    tag.expect("a short message").into()
                }

                fn open(&self, nonce: &[u8; 12], aad: &[u8; 8], data: &mut [u8], tag: &[u8; 16]) -> bool {
                    self.decrypt_inout_detached(nonce.into(), aad, InOutBuf::from(data), tag.into()).is_ok()
                }
            }
        )*
    };
}

rust_crypto!(aes_gcm::Aes128Gcm, aes_gcm::Aes256Gcm, chacha20poly1305::ChaCha20Poly1305);

macro_rules! graviola {
    ($($cipher:ty),*) => {
        $(
            impl Cipher for $cipher {
                fn seal(&self, nonce: &[u8; 12], aad: &[u8; 8], data: &mut [u8]) -> [u8; 16] {
                    let mut tag = [0; 16];
                    self.encrypt(nonce, aad, data, &mut tag);
                    tag
                }

                fn open(&self, nonce: &[u8; 12], aad: &[u8; 8], data: &mut [u8], tag: &[u8; 16]) -> bool {
                    self.decrypt(nonce, aad, data, tag).is_ok()
                }
            }
        )*
    };
}

graviola!(graviola::aead::AesGcm, graviola::aead::ChaCha20Poly1305);

fn bare<C: Cipher + 'static>(cipher: C) -> Box<dyn Contender> {
    Box::new(Bare { cipher, number: 1 })
}

macro_rules! ring_keys {
    ($library:ident, $algorithm:ident, $length:expr) => {
        bare($library::aead::LessSafeKey::new(
            $library::aead::UnboundKey::new(&$library::aead::$algorithm, &KEY[..$length]).expect("a key"),
        ))
    };
}

fn main() {
    let names = ["ring", "aws-lc-rs", "graviola", "RustCrypto"];
    println!("| cipher | bytes | {} |", names.map(|name| format!("{name} seal / open")).join(" | "));
    println!("|---|---|{}", "---|".repeat(names.len()));
    let ciphers: [(&str, Vec<Box<dyn Contender>>); 3] = [
        (
            "AES-128-GCM",
            vec![
                ring_keys!(ring, AES_128_GCM, 16),
                ring_keys!(aws_lc_rs, AES_128_GCM, 16),
                bare(graviola::aead::AesGcm::new(&KEY[..16])),
                bare(aes_gcm::Aes128Gcm::new_from_slice(&KEY[..16]).expect("a key")),
            ],
        ),
        (
            "AES-256-GCM",
            vec![
                ring_keys!(ring, AES_256_GCM, 32),
                ring_keys!(aws_lc_rs, AES_256_GCM, 32),
                bare(graviola::aead::AesGcm::new(&KEY)),
                bare(aes_gcm::Aes256Gcm::new_from_slice(&KEY).expect("a key")),
            ],
        ),
        (
            "ChaCha20-Poly1305",
            vec![
                ring_keys!(ring, CHACHA20_POLY1305, 32),
                ring_keys!(aws_lc_rs, CHACHA20_POLY1305, 32),
                bare(graviola::aead::ChaCha20Poly1305::new(KEY)),
                bare(chacha20poly1305::ChaCha20Poly1305::new_from_slice(&KEY).expect("a key")),
            ],
        ),
    ];
    for (name, mut contenders) in ciphers {
        for length in LENGTHS {
            let costs = compare(&mut contenders, HOT, length);
            let cells: Vec<String> = costs.iter().map(|cost| format!("{:.0} / {:.0}", cost.seal, cost.open)).collect();
            println!("| {name} | {length} | {} |", cells.join(" | "));
        }
    }
}

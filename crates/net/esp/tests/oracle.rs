//! Packets of every length, beside packets that are put together here by the portable ciphers.

mod support;

use aes_gcm::aead::{AeadInOut, KeyInit};
use bellows_esp::{Algorithm, Implementation, sealed_length};
use support::{SPI, ends, keys, seal};

const MAX_LENGTH: usize = 9_000;

/// The ESP packet with extended sequence numbers, written down field by field from RFC 4303 and RFC 4106.
fn model(algorithm: Algorithm, material: &[u8], [sequence, iv]: [u64; 2], payload: &[u8], next_header: u8) -> Vec<u8> {
    let mut inner = payload.to_vec();
    let mut padding = 0;
    while !(inner.len() + 2).is_multiple_of(4) {
        padding += 1;
        inner.push(padding);
    }
    inner.extend([padding, next_header]);
    let (key, salt) = material.split_at(material.len() - 4);
    let nonce: [u8; 12] = [salt, &iv.to_be_bytes()].concat().try_into().unwrap();
    let aad = [&SPI.to_be_bytes()[..], &sequence.to_be_bytes()].concat();
    let data = &mut inner[..];
    let tag = match algorithm {
        Algorithm::Aes128Gcm => {
            aes_gcm::Aes128Gcm::new_from_slice(key).unwrap().encrypt_inout_detached(&nonce.into(), &aad, data.into())
        }
        Algorithm::Aes256Gcm => {
            aes_gcm::Aes256Gcm::new_from_slice(key).unwrap().encrypt_inout_detached(&nonce.into(), &aad, data.into())
        }
        Algorithm::ChaCha20Poly1305 => chacha20poly1305::ChaCha20Poly1305::new_from_slice(key)
            .unwrap()
            .encrypt_inout_detached(&nonce.into(), &aad, data.into()),
    };
    let header = [&SPI.to_be_bytes()[..], &(sequence as u32).to_be_bytes(), &iv.to_be_bytes()].concat();
    [&header[..], &inner, &tag.unwrap()].concat()
}

fn material(algorithm: Algorithm) -> Vec<u8> {
    // As `support::keys` has it; the test fails if it differs.
    (0..algorithm.material_length() as u8).map(|byte| byte.wrapping_mul(37) ^ 0x5a).collect()
}

fn check(algorithm: Algorithm) {
    assert_eq!(keys(algorithm).algorithm(), algorithm);
    let material = material(algorithm);
    let mut ends: Vec<_> =
        Implementation::available().iter().map(|implementation| ends(algorithm, *implementation)).collect();
    let mut random = fastrand::Rng::with_seed(algorithm as u64);
    let mut payload = vec![0; MAX_LENGTH];
    for length in 0..=MAX_LENGTH {
        let payload = &mut payload[..length];
        random.fill(payload);
        let (next_header, sequence) = (random.u8(..), length as u64 + 1);
        for (outbound, inbound) in &mut ends {
            let mut esp = seal(outbound, payload, next_header);
            let iv = u64::from_be_bytes(*esp[8..].first_chunk().unwrap());
            let expected = model(algorithm, &material, [sequence, iv], payload, next_header);
            assert_eq!(expected.len(), sealed_length(length));
            assert!(esp == expected, "{algorithm} of {length} bytes differs");
            let opened = inbound.open(&mut esp).unwrap();
            assert_eq!((opened.sequence, opened.next_header), (sequence, next_header));
            assert!(esp[opened.payload] == *payload, "{algorithm} of {length} bytes differs when opened");
        }
    }
}

#[test]
fn aes_128_gcm_at_every_length() {
    check(Algorithm::Aes128Gcm);
}

#[test]
fn aes_256_gcm_at_every_length() {
    check(Algorithm::Aes256Gcm);
}

#[test]
fn chacha20_poly1305_at_every_length() {
    check(Algorithm::ChaCha20Poly1305);
}

//! The ciphers and packets of every length, beside the same by other ciphers (`aes-gcm`, `chacha20poly1305`).

mod support;

use aes_gcm::aead::{AeadInOut, KeyInit};
use bellows_esp::{Algorithm, Cipher, ICV, sealed_length};
use support::{SPI, ends, keys, material, seal};

const MAX_LENGTH: usize = 9_000;

/// Encrypts `data` in place and returns its ICV.
fn encrypt(algorithm: Algorithm, iv: [u8; 8], aad: &[u8], data: &mut [u8]) -> [u8; ICV] {
    let material = material(algorithm);
    let (key, salt) = material.split_at(algorithm.key_length());
    let nonce: [u8; 12] = [salt, &iv].concat().try_into().unwrap();
    let tag = match algorithm {
        Algorithm::Aes128Gcm => {
            aes_gcm::Aes128Gcm::new_from_slice(key).unwrap().encrypt_inout_detached(&nonce.into(), aad, data.into())
        }
        Algorithm::Aes256Gcm => {
            aes_gcm::Aes256Gcm::new_from_slice(key).unwrap().encrypt_inout_detached(&nonce.into(), aad, data.into())
        }
        Algorithm::ChaCha20Poly1305 => chacha20poly1305::ChaCha20Poly1305::new_from_slice(key)
            .unwrap()
            .encrypt_inout_detached(&nonce.into(), aad, data.into()),
    };
    tag.unwrap().into()
}

/// The ESP packet with extended sequence numbers, written down field by field from RFC 4303 and RFC 4106.
fn model(algorithm: Algorithm, [sequence, iv]: [u64; 2], payload: &[u8], next_header: u8) -> Vec<u8> {
    let mut inner = payload.to_vec();
    let mut padding = 0;
    while !(inner.len() + 2).is_multiple_of(4) {
        padding += 1;
        inner.push(padding);
    }
    inner.extend([padding, next_header]);
    let aad = [&SPI.to_be_bytes()[..], &sequence.to_be_bytes()].concat();
    let icv = encrypt(algorithm, iv.to_be_bytes(), &aad, &mut inner);
    let header = [&SPI.to_be_bytes()[..], &(sequence as u32).to_be_bytes(), &iv.to_be_bytes()].concat();
    [&header[..], &inner, &icv].concat()
}

fn check(algorithm: Algorithm) {
    let (mut outbound, mut inbound) = ends(algorithm);
    let mut random = fastrand::Rng::with_seed(algorithm as u64);
    let mut payload = vec![0; MAX_LENGTH];
    for length in 0..=MAX_LENGTH {
        let payload = &mut payload[..length];
        random.fill(payload);
        let (next_header, sequence) = (random.u8(..), length as u64 + 1);
        let mut esp = seal(&mut outbound, payload, next_header);
        let iv = u64::from_be_bytes(*esp[8..].first_chunk().unwrap());
        let expected = model(algorithm, [sequence, iv], payload, next_header);
        assert_eq!(expected.len(), sealed_length(length));
        assert!(esp == expected, "{algorithm} of {length} bytes differs");
        let opened = inbound.open(&mut esp).unwrap();
        assert_eq!((opened.sequence, opened.next_header), (sequence, next_header));
        assert!(esp[opened.payload] == *payload, "{algorithm} of {length} bytes differs when opened");
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

/// The bytes with one bit changed.
fn changed<const N: usize>(mut bytes: [u8; N], random: &mut fastrand::Rng) -> [u8; N] {
    bytes[random.usize(..N)] ^= 1 << random.u32(..8);
    bytes
}

#[test]
fn what_is_not_as_it_was_sealed_does_not_open() {
    for algorithm in Algorithm::ALL {
        let cipher = Cipher::new(&keys(algorithm));
        let mut random = fastrand::Rng::with_seed(algorithm as u64);
        for length in 0..=2_000 {
            let plain: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let (iv, aad) = (random.u64(..).to_be_bytes(), random.u128(..).to_be_bytes());
            let aad: [u8; 12] = *aad.first_chunk().unwrap();
            let mut sealed = plain.clone();
            let icv = encrypt(algorithm, iv, &aad, &mut sealed);
            let (mut data, mut own_icv) = (plain.clone(), [0; ICV]);
            cipher.seal(&iv, &aad, &mut data, &mut own_icv);
            assert!(data == sealed && own_icv == icv, "{algorithm}: {length} bytes are sealed in another way");

            let refuses = |iv: &[u8; 8], aad: &[u8], sealed: &[u8], icv: &[u8; ICV]| {
                let mut data = sealed.to_vec();
                let is_refused = cipher.open(iv, aad, &mut data, icv).is_err();
                // By chance the first 16 bytes are never the same.
                is_refused && (length < 16 || data != plain)
            };
            assert!(refuses(&iv, &aad, &sealed, &changed(icv, &mut random)), "{algorithm}, {length}: ICV");
            assert!(refuses(&iv, &changed(aad, &mut random), &sealed, &icv), "{algorithm}, {length}: AAD");
            assert!(refuses(&iv, &aad[..8], &sealed, &icv), "{algorithm}, {length}: shorter AAD");
            assert!(refuses(&changed(iv, &mut random), &aad, &sealed, &icv), "{algorithm}, {length}: IV");
            if length > 0 {
                let mut other = sealed.clone();
                other[random.usize(..length)] ^= 1 << random.u32(..8);
                assert!(refuses(&iv, &aad, &other, &icv), "{algorithm}, {length}: data");
            }
            cipher.open(&iv, &aad, &mut sealed, &icv).unwrap();
            assert!(sealed == plain, "{algorithm}: {length} bytes are opened in another way");
        }
    }
}

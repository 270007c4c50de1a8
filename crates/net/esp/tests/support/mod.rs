//! What several tests need.

#![allow(dead_code, reason = "each test uses a part of it")]

use bellows_esp::{
    Algorithm, Cipher, HEADER, Inbound, InboundSettings, KeyProgress, Keys, MAX_TRAILER, Outbound, OutboundSettings,
    Spi,
};

pub const SPI: u32 = 0x1234_5678;

pub fn spi() -> Spi {
    Spi::new(SPI).unwrap()
}

/// Bytes of hexadecimal digits; spaces are left out.
pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> =
        text.chars().filter(|digit| *digit != ' ').map(|digit| digit.to_digit(16).unwrap()).collect();
    assert_eq!(digits.len() % 2, 0);
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// A key followed by its salt.
pub fn material(algorithm: Algorithm) -> Vec<u8> {
    (0..algorithm.material_length() as u8).map(|byte| byte.wrapping_mul(37) ^ 0x5a).collect()
}

pub fn keys(algorithm: Algorithm) -> Keys {
    Keys::from_bytes(algorithm, &material(algorithm)).unwrap()
}

pub fn outbound(algorithm: Algorithm, settings: OutboundSettings) -> Outbound {
    outbound_after(algorithm, settings, 0)
}

pub fn inbound(algorithm: Algorithm, settings: InboundSettings) -> Inbound {
    inbound_after(algorithm, settings, 0)
}

/// One whose key was used up to this number.
pub fn outbound_after(algorithm: Algorithm, settings: OutboundSettings, last: u64) -> Outbound {
    Outbound::with_cipher(spi(), Cipher::new(&keys(algorithm)), settings, KeyProgress::after(last))
}

/// One that has accepted packets up to this number.
pub fn inbound_after(algorithm: Algorithm, settings: InboundSettings, last: u64) -> Inbound {
    Inbound::with_cipher(spi(), Cipher::new(&keys(algorithm)), settings, KeyProgress::after(last)).unwrap()
}

/// Both ends.
pub fn ends(algorithm: Algorithm) -> (Outbound, Inbound) {
    (outbound(algorithm, OutboundSettings::default()), inbound(algorithm, InboundSettings::default()))
}

/// The ESP packet around a payload.
pub fn seal(outbound: &mut Outbound, payload: &[u8], next_header: u8) -> Vec<u8> {
    let mut buffer = vec![0xcc; HEADER + payload.len() + MAX_TRAILER];
    buffer[HEADER..HEADER + payload.len()].copy_from_slice(payload);
    let esp = outbound.seal(&mut buffer, HEADER..HEADER + payload.len(), next_header).unwrap();
    assert_eq!(esp.start, 0);
    buffer.truncate(esp.end);
    buffer
}

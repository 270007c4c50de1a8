//! Arbitrary bytes, and packets of a peer that were changed, cut or repeated, for a security association that receives:
//! only what the peer has sealed is opened, each packet once.

#![no_main]

use std::collections::BTreeSet;

use bellows_esp::{
    Algorithm, Cipher, HEADER, Inbound, InboundSettings, KeyProgress, Keys, MAX_TRAILER, Outbound, OutboundSettings,
    Spi, udp,
};
use libfuzzer_sys::fuzz_target;

/// What arrives next: the sequence number's distance from the one before, a payload, and how the packet is changed.
type Arrival = (i16, Vec<u8>, Option<(u16, u8)>, Option<u16>);

fuzz_target!(|input: (u8, bool, u16, Vec<u8>, Vec<Arrival>)| {
    let (cipher, is_extended, window, mut strange, arrivals) = input;
    let algorithm = Algorithm::ALL[usize::from(cipher) % Algorithm::ALL.len()];
    let keys = Keys::from_bytes(algorithm, &vec![cipher; algorithm.material_length()]).expect("keys of this length");
    let spi = Spi::new(0x1234_5678).expect("not reserved");
    let mut last = u64::from(u32::MAX) - 40_000;
    let window = 32 + u32::from(window) % (4_096 - 31);
    let settings = InboundSettings { is_extended, window, resync_after: 3, ..Default::default() };
    let mut inbound =
        Inbound::with_cipher(spi, Cipher::new(&keys), settings, KeyProgress::after(last)).expect("good settings");
    let _ = udp::classify(&strange);
    assert!(inbound.open(&mut strange).is_err(), "nobody has sealed this");
    let mut seen = BTreeSet::new();
    for (step, payload, change, cut) in arrivals {
        let number = last.saturating_add_signed(step.into());
        let number = if is_extended { number } else { number.min(u32::MAX.into()) };
        let settings = OutboundSettings { is_extended, ..Default::default() };
        let mut outbound = Outbound::with_cipher(spi, Cipher::new(&keys), settings, KeyProgress::after(number - 1));
        let mut buffer = vec![0; HEADER + payload.len() + MAX_TRAILER];
        buffer[HEADER..HEADER + payload.len()].copy_from_slice(&payload);
        let esp = outbound.seal(&mut buffer, HEADER..HEADER + payload.len(), 4).expect("room and a number");
        buffer.truncate(esp.end);
        let original = buffer.clone();
        if let Some((at, bits)) = change {
            let at = usize::from(at) % buffer.len();
            buffer[at] ^= bits;
        }
        buffer.truncate(cut.map_or(buffer.len(), usize::from));
        let is_changed = buffer != original;
        if let Ok(opened) = inbound.open(&mut buffer) {
            assert!(!is_changed, "a changed packet was opened");
            assert_eq!(opened.sequence, number);
            assert_eq!(buffer[opened.payload], payload[..]);
            assert!(seen.insert(number), "a packet was opened twice");
            last = last.max(number);
        }
    }
});

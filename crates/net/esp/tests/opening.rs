//! Security associations that receive: what they refuse, and the replay window.

mod support;

use std::collections::BTreeSet;

use bellows_esp::{
    Algorithm, Cipher, HEADER, ICV, Inbound, InboundSettings, KeyProgress, NEXT_HEADER_DUMMY, OpenError,
    OutboundSettings, SettingsError, Spi,
};
use proptest::prelude::*;
use support::{SPI, ends, inbound, inbound_after, keys, outbound, outbound_after, seal, spi};

const ALGORITHM: Algorithm = Algorithm::Aes128Gcm;

/// An ESP packet of any contents, sealed by a cipher of the same keys.
fn forge(algorithm: Algorithm, sequence: u64, inner: &[u8]) -> Vec<u8> {
    let cipher = Cipher::new(&keys(algorithm));
    let iv = sequence.to_be_bytes();
    let mut data = inner.to_vec();
    let mut icv = [0; ICV];
    cipher.seal(&iv, &[&SPI.to_be_bytes()[..], &iv].concat(), &mut data, &mut icv);
    [&SPI.to_be_bytes()[..], &(sequence as u32).to_be_bytes(), &iv, &data, &icv].concat()
}

#[test]
fn a_changed_bit_anywhere_is_refused_and_moves_nothing() {
    for algorithm in Algorithm::ALL {
        let (mut sender, mut receiver) = ends(algorithm);
        let esp = seal(&mut sender, &[7; 61], 4);
        for bit in 0..esp.len() * 8 {
            let mut changed = esp.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            // A lower half of 1 with the highest bit looks like a number that was not sent for long.
            let expected = match bit / 8 {
                0..4 => OpenError::UnknownSpi,
                4..8 if changed[4..8] == [0; 4] => OpenError::Replayed,
                4..8 if u32::from_be_bytes(changed[4..8].try_into().unwrap()) > u32::MAX - 1_023 => OpenError::TooOld,
                _ => OpenError::BadIcv,
            };
            assert_eq!(receiver.open(&mut changed), Err(expected), "bit {bit}");
            assert_eq!(receiver.last_sequence(), 0);
        }
        assert_eq!(receiver.used().packets, 0);
        receiver.open(&mut esp.clone()).unwrap();
        assert_eq!(receiver.open(&mut esp.clone()), Err(OpenError::Replayed));
    }
}

#[test]
fn shorter_packets_are_refused() {
    let mut sender = outbound(ALGORITHM, OutboundSettings::default());
    let mut receiver = inbound(ALGORITHM, InboundSettings::default());
    let esp = seal(&mut sender, &[7; 61], 4);
    for length in 0..esp.len() {
        let error = receiver.open(&mut esp.clone()[..length]).unwrap_err();
        let expected = match length {
            0..36 => OpenError::TooShort,
            _ if length % 4 != 0 => OpenError::Misaligned,
            _ => OpenError::BadIcv,
        };
        assert_eq!(error, expected, "{length} bytes");
    }
    let mut longer = [&esp[..], &[0; 4]].concat();
    assert_eq!(receiver.open(&mut longer), Err(OpenError::BadIcv));
}

#[test]
fn padding_is_checked_after_authentication() {
    let mut receiver = inbound(ALGORITHM, InboundSettings::default());
    let good: [(&[u8], usize); 3] =
        [(&[9, 9, 0, 4], 2), (&[1, 2, 2, 4], 0), (&[9, 9, 9, 9, 9, 1, 2, 3, 4, 5, 5, 4], 5)];
    let bad: [&[u8]; 4] = [&[1, 2, 3, 4], &[2, 1, 2, 4], &[0, 0, 2, 4], &[9, 9, 255, 4]];
    let mut sequence = 0;
    for (inner, length) in good {
        sequence += 1;
        let opened = receiver.open(&mut forge(ALGORITHM, sequence, inner)).unwrap();
        assert_eq!((opened.payload, opened.next_header), (HEADER..HEADER + length, 4));
    }
    for inner in bad {
        sequence += 1;
        let mut esp = forge(ALGORITHM, sequence, inner);
        assert_eq!(receiver.open(&mut esp.clone()), Err(OpenError::BadPadding), "{inner:?}");
        // It was authentic, so its number is used.
        assert_eq!(receiver.open(&mut esp), Err(OpenError::Replayed));
    }
    // 255 bytes of padding, the most there can be.
    let inner: Vec<u8> = [8; 3].into_iter().chain(1..=255).chain([255, 4]).collect();
    let opened = receiver.open(&mut forge(ALGORITHM, sequence + 1, &inner)).unwrap();
    assert_eq!(opened.payload.len(), 3);
}

#[test]
fn dummies_are_known() {
    let mut sender = outbound(ALGORITHM, OutboundSettings::default());
    let mut receiver = inbound(ALGORITHM, InboundSettings::default());
    assert!(receiver.open(&mut seal(&mut sender, &[0xff; 33], NEXT_HEADER_DUMMY)).unwrap().is_dummy());
    assert!(!receiver.open(&mut seal(&mut sender, &[0xff; 33], 4)).unwrap().is_dummy());
}

#[test]
fn jumbo_frames_pass() {
    for algorithm in Algorithm::ALL {
        let mut sender = outbound(algorithm, OutboundSettings::default());
        let mut receiver = inbound(algorithm, InboundSettings::default());
        for length in [9_000, 9_216, 65_535, 65_536, 73_600] {
            let opened = receiver.open(&mut seal(&mut sender, &vec![3; length], 143)).unwrap();
            assert_eq!(opened.payload.len(), length);
        }
    }
}

#[test]
fn settings_are_checked() {
    let new = |settings| Inbound::new(spi(), &keys(ALGORITHM), settings).map(drop);
    let default = InboundSettings::default();
    for window in [0, 31, 4_097, u32::MAX] {
        assert_eq!(new(InboundSettings { window, ..default }), Err(SettingsError::Window(window)));
    }
    for window in [32, 33, 4_096] {
        assert_eq!(new(InboundSettings { window, ..default }), Ok(()));
    }
    let last = 1 << 32;
    let after = |settings| {
        let cipher = Cipher::new(&keys(ALGORITHM));
        Inbound::with_cipher(spi(), cipher, settings, KeyProgress::after(last)).map(drop)
    };
    assert_eq!(after(default), Ok(()));
    let short = InboundSettings { is_extended: false, ..default };
    assert_eq!(after(short), Err(SettingsError::LastSequence(last)));
}

/// What arrives: the packet at this distance from the highest one so far, maybe changed.
fn arrivals() -> impl Strategy<Value = Vec<(i64, bool)>> {
    let distance = prop_oneof![6 => -40..40_i64, 2 => -5_000..5_000_i64, 1 => -(1_i64 << 31)..1_i64 << 31];
    proptest::collection::vec((distance, prop::bool::weighted(0.2)), 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn exactly_the_new_packets_within_or_above_the_window_are_accepted(
        is_extended: bool,
        window in prop_oneof![Just(32_u32), Just(4_096), 32..=4_096_u32],
        start in prop_oneof![Just(0_u64), 0..10_000_u64, (1_u64 << 32) - 10_000..(1_u64 << 32) - 1],
        arrivals in arrivals(),
    ) {
        let settings = InboundSettings { is_extended, window, ..InboundSettings::default() };
        let mut receiver = inbound_after(ALGORITHM, settings, start);
        let mut seen = BTreeSet::new();
        let mut last = start;
        for (distance, is_changed) in arrivals {
            let max = if is_extended { u64::MAX } else { u32::MAX.into() };
            let number = last.saturating_add_signed(distance).clamp(1, max);
            let settings = OutboundSettings { is_extended, ..OutboundSettings::default() };
            let mut esp = seal(&mut outbound_after(ALGORITHM, settings, number - 1), &[5; 6], 4);
            if is_changed {
                esp[HEADER] ^= 0x40;
            }
            let outcome = receiver.open(&mut esp);
            let is_new = number > start && !seen.contains(&number);
            let is_in_window = number > last || last - number < u64::from(window);
            if is_new && is_in_window && !is_changed {
                prop_assert_eq!(outcome.map(|opened| opened.sequence), Ok(number));
                seen.insert(number);
                last = last.max(number);
            } else {
                let error = outcome.unwrap_err();
                // An extended number below the window looks like one that is 2^32 higher, and is not authentic as such.
                let expected: &[OpenError] = match (is_in_window, is_new) {
                    (false, _) if is_extended => &[OpenError::BadIcv, OpenError::TooOld],
                    (false, _) => &[OpenError::TooOld],
                    (true, false) => &[OpenError::Replayed],
                    (true, true) => &[OpenError::BadIcv],
                };
                prop_assert!(expected.contains(&error), "{} after {}: {}", number, last, error);
            }
            prop_assert_eq!(receiver.last_sequence(), last);
        }
        prop_assert_eq!(receiver.used().packets, seen.len() as u64);
    }

    #[test]
    fn arbitrary_bytes_are_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), has_spi: bool, low: u32) {
        if has_spi && bytes.len() >= 8 {
            bytes[..4].copy_from_slice(&SPI.to_be_bytes());
            bytes[4..8].copy_from_slice(&low.to_be_bytes());
        }
        let mut receiver = inbound(ALGORITHM, InboundSettings::default());
        prop_assert!(receiver.open(&mut bytes).is_err());
        prop_assert_eq!(receiver.last_sequence(), 0);
    }
}

#[test]
fn every_error_has_a_name_of_its_own() {
    let errors = [
        OpenError::TooShort,
        OpenError::Misaligned,
        OpenError::UnknownSpi,
        OpenError::Replayed,
        OpenError::TooOld,
        OpenError::BadIcv,
        OpenError::BadPadding,
        OpenError::Expired(bellows_esp::Limit::Bytes),
    ];
    let names: BTreeSet<&str> = errors.iter().map(|error| error.name()).collect();
    assert_eq!(names.len(), errors.len());
    assert!(Spi::new(SPI).is_ok());
}

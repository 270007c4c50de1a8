//! Security associations that send: room, numbers and lifetimes.

mod support;

use bellows_esp::{
    Algorithm, Amount, Cipher, HEADER, Inbound, InboundSettings, KeyProgress, Lifetime, Limit, OpenError, Outbound,
    OutboundSettings, SealError, sealed_length, trailer_length,
};
use support::{inbound, inbound_after, keys, outbound, outbound_after, seal, spi};

const ALGORITHM: Algorithm = Algorithm::Aes128Gcm;

#[test]
fn headers_and_trailers_go_where_room_is_reserved_and_nowhere_else() {
    let mut sender = outbound(ALGORITHM, OutboundSettings::default());
    let mut receiver = inbound(ALGORITHM, InboundSettings::default());
    for length in 0..70 {
        let (front, behind) = (HEADER + 5, trailer_length(length) + 3);
        let mut buffer = vec![0xaa; front + length + behind];
        let esp = sender.seal(&mut buffer, front..front + length, 41).unwrap();
        assert_eq!(esp, 5..5 + sealed_length(length));
        assert!(buffer[..5].iter().chain(&buffer[esp.end..]).all(|byte| *byte == 0xaa));
        let opened = receiver.open(&mut buffer[esp]).unwrap();
        assert_eq!(opened.payload, HEADER..HEADER + length);
        assert_eq!(opened.next_header, 41);
    }
}

#[test]
fn a_refused_packet_is_left_alone_and_uses_no_number() {
    let mut sender = outbound(ALGORITHM, OutboundSettings::default());
    let mut buffer: Vec<u8> = (0..100).collect();
    let before = buffer.clone();
    let backwards = std::ops::Range { start: 30, end: 20 };
    for (payload, error) in [
        (HEADER - 1..50, SealError::Headroom),
        (HEADER..100 - trailer_length(84) + 4, SealError::Tailroom),
        (50..101, SealError::Range),
        (usize::MAX - 1..usize::MAX, SealError::Range),
        (backwards, SealError::Range),
    ] {
        assert_eq!(sender.seal(&mut buffer, payload, 4), Err(error));
        assert!(!error.name().is_empty() && !error.to_string().is_empty());
    }
    assert_eq!(buffer, before);
    assert_eq!((sender.last_sequence(), sender.used()), (0, Amount { packets: 0, bytes: 0 }));
}

#[test]
fn numbers_begin_with_1_and_ivs_at_their_offset() {
    for (is_extended, iv_offset) in [(false, 0), (true, 7 << 32), (true, u64::MAX - 1)] {
        let settings = OutboundSettings { is_extended, iv_offset, ..OutboundSettings::default() };
        let mut sender = outbound(ALGORITHM, settings);
        for number in 1..=3_u8 {
            let esp = seal(&mut sender, b"abc", 4);
            assert_eq!(esp[4..8], [0, 0, 0, number]);
            assert_eq!(esp[8..HEADER], u64::from(number).wrapping_add(iv_offset).to_be_bytes());
        }
    }
}

#[test]
fn each_association_has_ivs_of_its_own() {
    let ivs = |_| {
        let mut sender = outbound(ALGORITHM, OutboundSettings::default());
        std::iter::repeat_with(move || seal(&mut sender, b"abc", 4)[8..HEADER].to_vec()).take(10)
    };
    let all: Vec<_> = (0..100).flat_map(ivs).collect();
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), all.len());
}

#[test]
fn a_successor_goes_on_with_numbers_windows_and_limits() {
    let hard = Amount { packets: 5, ..Amount::UNLIMITED };
    let lifetime = Lifetime { hard, ..Lifetime::default() };
    let cipher = || Cipher::new(&keys(ALGORITHM));
    let (sent, received) = (KeyProgress::new(), KeyProgress::new());
    let sender = || {
        let settings = OutboundSettings { lifetime, ..OutboundSettings::default() };
        Outbound::with_cipher(spi(), cipher(), settings, sent.clone())
    };
    let receiver = || {
        let settings = InboundSettings { lifetime, ..InboundSettings::default() };
        Inbound::with_cipher(spi(), cipher(), settings, received.clone()).unwrap()
    };
    let mut seen = Vec::new();
    for number in 1..=5 {
        let mut esp = seal(&mut sender(), b"abc", 4);
        seen.push(esp.clone());
        assert_eq!(receiver().open(&mut esp).unwrap().sequence, number);
        for old in &seen {
            assert_eq!(receiver().open(&mut old.clone()), Err(OpenError::Replayed));
        }
    }
    assert_eq!(sender().seal(&mut [0; 64], 16..20, 4), Err(SealError::Expired(Limit::Packets)));
    let mut unlimited = outbound_after(ALGORITHM, OutboundSettings::default(), 5);
    assert_eq!(receiver().open(&mut seal(&mut unlimited, b"abc", 4)), Err(OpenError::Expired(Limit::Packets)));
}

#[test]
fn the_last_number_is_used_once() {
    for (is_extended, max) in [(false, u64::from(u32::MAX)), (true, u64::MAX)] {
        let settings = OutboundSettings { is_extended, ..OutboundSettings::default() };
        let mut sender = outbound_after(ALGORITHM, settings, max - 2);
        let settings = InboundSettings { is_extended, ..InboundSettings::default() };
        let mut receiver = inbound_after(ALGORITHM, settings, max - 2);
        for number in [max - 1, max] {
            assert_eq!(receiver.open(&mut seal(&mut sender, b"abc", 4)).unwrap().sequence, number);
        }
        for _ in 0..3 {
            let mut buffer = [7; 64];
            assert_eq!(sender.seal(&mut buffer, 16..20, 4), Err(SealError::SequenceExhausted));
            assert_eq!(buffer, [7; 64]);
        }
        assert_eq!(sender.last_sequence(), max);
    }
}

#[test]
fn numbers_beyond_32_bits_go_on_with_extended_ones() {
    let last_sequence = u64::from(u32::MAX) - 1;
    let settings = OutboundSettings { iv_offset: 0, ..OutboundSettings::default() };
    let mut sender = outbound_after(ALGORITHM, settings, last_sequence);
    let mut receiver = inbound_after(ALGORITHM, InboundSettings::default(), last_sequence);
    for number in last_sequence + 1..last_sequence + 5 {
        let mut esp = seal(&mut sender, b"abc", 4);
        assert_eq!(esp[4..8], (number as u32).to_be_bytes());
        assert_eq!(esp[8..16], number.to_be_bytes());
        assert_eq!(receiver.open(&mut esp).unwrap().sequence, number);
    }
}

#[test]
fn lifetimes_of_packets_and_bytes() {
    // A payload of 10 bytes is 12 encrypted.
    for (soft, hard, soft_at, hard_at, limit) in [
        (Amount { packets: 3, ..Amount::UNLIMITED }, Amount { packets: 5, ..Amount::UNLIMITED }, 3, 5, Limit::Packets),
        (Amount { bytes: 25, ..Amount::UNLIMITED }, Amount { bytes: 59, ..Amount::UNLIMITED }, 3, 4, Limit::Bytes),
        (Amount { bytes: 24, ..Amount::UNLIMITED }, Amount { bytes: 60, ..Amount::UNLIMITED }, 2, 5, Limit::Bytes),
    ] {
        let lifetime = Lifetime { soft, hard };
        let mut sender = outbound(ALGORITHM, OutboundSettings { lifetime, ..OutboundSettings::default() });
        let mut receiver = inbound(ALGORITHM, InboundSettings { lifetime, ..InboundSettings::default() });
        for packet in 1..=hard_at {
            receiver.open(&mut seal(&mut sender, &[0; 10], 4)).unwrap();
            let expected = (packet == soft_at).then_some(limit);
            assert_eq!(sender.take_soft_limit(), expected);
            assert_eq!(receiver.take_soft_limit(), expected);
        }
        assert_eq!(sender.seal(&mut [0; 64], 16..26, 4), Err(SealError::Expired(limit)));
        assert_eq!(sender.last_sequence(), hard_at, "no number is used");
        let mut unlimited = outbound_after(ALGORITHM, OutboundSettings::default(), hard_at);
        let error = receiver.open(&mut seal(&mut unlimited, &[0; 10], 4)).unwrap_err();
        assert_eq!(error, OpenError::Expired(limit));
        assert_eq!(receiver.last_sequence(), hard_at);
    }
}

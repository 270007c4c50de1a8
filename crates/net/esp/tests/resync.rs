//! More than 2^32 packets are lost: the upper half of the sequence number is found again (RFC 4303, appendix A2.3).

mod support;

use bellows_esp::{Algorithm, HEADER, InboundSettings, OpenError, Outbound, OutboundSettings};
use support::{inbound_after, outbound_after, seal};

const ALGORITHM: Algorithm = Algorithm::Aes256Gcm;
const AFTER: u32 = 10;

fn settings() -> InboundSettings {
    InboundSettings { resync_after: AFTER, ..InboundSettings::default() }
}

fn sender(last_sequence: u64) -> Outbound {
    outbound_after(ALGORITHM, OutboundSettings::default(), last_sequence)
}

#[test]
fn it_follows_up_to_eight_times_two_to_the_32_lost_packets() {
    for laps in 1..=9_u64 {
        let mut receiver = inbound_after(ALGORITHM, settings(), 1_000);
        let mut sender = sender(1_000 + (laps << 32));
        for _ in 0..AFTER {
            assert_eq!(receiver.open(&mut seal(&mut sender, b"payload", 4)), Err(OpenError::BadIcv));
        }
        let mut esp = seal(&mut sender, b"payload", 4);
        let outcome = receiver.open(&mut esp);
        if laps == 9 {
            assert_eq!(outcome, Err(OpenError::BadIcv));
            assert_eq!((receiver.last_sequence(), receiver.resyncs()), (1_000, 0));
            continue;
        }
        let opened = outcome.unwrap();
        assert_eq!(opened.sequence, sender.last_sequence());
        assert_eq!(&esp[opened.payload], b"payload");
        assert_eq!((receiver.last_sequence(), receiver.resyncs()), (sender.last_sequence(), 1));
        for _ in 0..AFTER {
            receiver.open(&mut seal(&mut sender, b"payload", 4)).unwrap();
        }
    }
}

#[test]
fn a_good_packet_in_between_starts_the_count_again() {
    let mut receiver = inbound_after(ALGORITHM, settings(), 1_000);
    let (mut near, mut far) = (sender(1_000), sender(1_000_000 + (1 << 32)));
    for _ in 0..5 {
        for _ in 1..AFTER {
            assert_eq!(receiver.open(&mut seal(&mut far, b"payload", 4)), Err(OpenError::BadIcv));
        }
        receiver.open(&mut seal(&mut near, b"payload", 4)).unwrap();
    }
    assert_eq!(receiver.resyncs(), 0);
}

#[test]
fn the_expected_number_is_tried_first() {
    let mut receiver = inbound_after(ALGORITHM, settings(), 1_000);
    let mut near = sender(1_000);
    for _ in 0..AFTER {
        let mut changed = seal(&mut near, b"payload", 4);
        changed[HEADER] ^= 1;
        assert_eq!(receiver.open(&mut changed), Err(OpenError::BadIcv));
    }
    receiver.open(&mut seal(&mut near, b"payload", 4)).unwrap();
    assert_eq!((receiver.last_sequence(), receiver.resyncs()), (1_000 + u64::from(AFTER) + 1, 0));
}

#[test]
fn packets_that_are_not_the_senders_never_move_it() {
    let mut receiver = inbound_after(ALGORITHM, settings(), 1_000);
    let mut far = sender(1_000 + (1 << 32));
    for _ in 0..10 * AFTER {
        let mut changed = seal(&mut far, b"payload", 4);
        changed[HEADER + 3] ^= 1;
        assert_eq!(receiver.open(&mut changed), Err(OpenError::BadIcv));
    }
    assert_eq!((receiver.last_sequence(), receiver.resyncs()), (1_000, 0));
    // Neither do old packets of the sender.
    let mut old = sender(1_000 - 50);
    for _ in 0..50 {
        assert_eq!(receiver.open(&mut seal(&mut old, b"payload", 4)), Err(OpenError::Replayed));
    }
}

#[test]
fn it_is_only_tried_where_it_can_help_and_is_wanted() {
    for settings in
        [InboundSettings { is_extended: false, ..settings() }, InboundSettings { resync_after: 0, ..settings() }]
    {
        let mut receiver = inbound_after(ALGORITHM, settings, 1_000);
        let mut far = sender(1_000 + (1 << 32));
        for _ in 0..3 * AFTER {
            assert_eq!(receiver.open(&mut seal(&mut far, b"payload", 4)), Err(OpenError::BadIcv));
        }
    }
}

#[test]
fn failures_are_counted_until_a_packet_is_authentic() {
    let mut receiver = inbound_after(ALGORITHM, settings(), 1_000);
    let mut far = sender(1_000 + (9 << 32));
    for failures in 1..=3 * u64::from(AFTER) {
        assert_eq!(receiver.open(&mut seal(&mut far, b"payload", 4)), Err(OpenError::BadIcv));
        assert_eq!((receiver.failures(), receiver.has_opened()), (failures, false));
    }
    receiver.open(&mut seal(&mut sender(1_000), b"payload", 4)).unwrap();
    assert_eq!((receiver.failures(), receiver.has_opened()), (0, true));
}

//! A stream is split into the same frames, whatever the pieces are in which it is read.

use bellows_exercise::frames::split;
use bellows_netif::unix::MAX_RECEIVED;
use proptest::collection::vec;
use proptest::prelude::*;

/// A stream of frames, with their lengths.
fn stream(lengths: &[usize]) -> Vec<u8> {
    let frame = |(index, length): (usize, &usize)| {
        let prefix = (*length as u32).to_be_bytes();
        prefix.into_iter().chain(std::iter::repeat_n(index as u8, *length)).collect::<Vec<u8>>()
    };
    lengths.iter().enumerate().flat_map(frame).collect()
}

/// Lengths around all limits, and usual ones.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        8 => 1..1_600usize,
        2 => 60_000..=MAX_RECEIVED,
        1 => Just(MAX_RECEIVED),
        1 => Just(1usize),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn frames_do_not_depend_on_the_reads(
        lengths in vec(length(), 0..12),
        end in vec(any::<u8>(), 0..9),
        pieces in vec(prop_oneof![1..9u16, 1_000..3_000u16, Just(u16::MAX)], 0..6),
    ) {
        let mut bytes = stream(&lengths);
        bytes.extend(end);
        split(&bytes, &pieces);
    }

    #[test]
    fn any_bytes_can_be_split(bytes in vec(prop_oneof![Just(0u8), 0..4u8, any::<u8>()], 0..300), pieces in vec(0..40u16, 0..6)) {
        split(&bytes, &pieces);
    }
}

#[test]
fn a_length_beyond_the_limits_ends_the_stream() {
    for (length, is_fine) in [(0, false), (1, true), (MAX_RECEIVED, true), (MAX_RECEIVED + 1, false)] {
        let mut splitter = bellows_netif::unix::FrameSplitter::new();
        let prefix = (length as u32).to_be_bytes();
        splitter
            .fill(|room| {
                room[..4].copy_from_slice(&prefix);
                Ok(4)
            })
            .unwrap();
        assert_eq!(splitter.next_frame().is_ok(), is_fine, "{length}");
    }
}

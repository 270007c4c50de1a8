//! The checksum against a model that adds byte by byte, and against the examples of the RFCs.

use bellows_wire::checksum::{Sum, update, update_udp};
use bellows_wire::{IpPair, IpProtocol};
use proptest::prelude::*;

/// RFC 1071 to the letter: add 16-bit words, add each carry back, complement.
fn model(data: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for (index, byte) in data.iter().enumerate() {
        sum += u32::from(*byte) << if index % 2 == 0 { 8 } else { 0 };
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    !(sum as u16)
}

fn checksum(data: &[u8]) -> u16 {
    Sum::new().add_bytes(data).finish()
}

/// Random bytes, and runs of 0x00 and 0xff, where the two zeros of ones' complement meet.
fn bytes(len: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), Just(0), Just(0xff)];
    proptest::collection::vec(byte, len)
}

proptest! {
    #[test]
    fn a_sum_over_a_slice_equals_the_model(data in bytes(0..300), start in 0_usize..8) {
        // An arbitrary start also moves the slice's alignment.
        let data = &data[start.min(data.len())..];
        prop_assert_eq!(checksum(data), model(data));
    }

    #[test]
    fn a_sum_over_pieces_equals_the_sum_over_the_whole(data in bytes(0..300), cut in 0_usize..150) {
        let (head, tail) = data.split_at((cut * 2).min(data.len() & !1));
        prop_assert_eq!(Sum::new().add_bytes(head).add_bytes(tail).finish(), model(&data));
    }

    #[test]
    fn integers_add_as_their_bytes_do(short: u16, long: u64) {
        let data = [&short.to_be_bytes()[..], &long.to_be_bytes()].concat();
        prop_assert_eq!(Sum::new().add_u16(short).add_u64(long).finish(), model(&data));
    }

    #[test]
    fn words_add_as_their_bytes_do(words: [[u8; 4]; 5], before in bytes(0..40)) {
        let before = &before[..before.len() & !1];
        let data = [before, words.as_flattened()].concat();
        prop_assert_eq!(Sum::new().add_bytes(before).add_words(&words).finish(), model(&data));
    }

    #[test]
    fn data_with_its_own_checksum_sums_to_zero(data in bytes(0..300)) {
        prop_assert_eq!(Sum::new().add_bytes(&data).add_u16(model(&data)).finish(), 0);
    }

    #[test]
    fn an_update_equals_a_new_sum(mut data in bytes(2..200), at in 0_usize..100, new in bytes(0..16)) {
        data.push(1); // RFC 1624 holds for data that is not all zero, like every IP header.
        data.push(0);
        let at = (at * 2).min(data.len() - 2) & !1;
        let len = new.len().min(data.len() - 2 - at);
        let (old_checksum, old) = (model(&data), data[at..at + len].to_vec());
        data[at..at + len].copy_from_slice(&new[..len]);
        prop_assume!(data.iter().any(|byte| *byte != 0));
        prop_assert_eq!(update(old_checksum, &old, &new[..len]), model(&data));
    }

    #[test]
    fn an_update_of_udp_equals_a_new_sum_and_is_never_zero(mut data in bytes(20), new: u64) {
        let nonzero = |checksum| if checksum == 0 { 0xffff } else { checksum };
        data[0] = 17;
        let (old_checksum, old) = (nonzero(model(&data)), data[8..16].to_vec());
        data[8..16].copy_from_slice(&new.to_be_bytes());
        prop_assert_eq!(update_udp(old_checksum, &old, &data[8..16]), nonzero(model(&data)));
        prop_assert_eq!(update_udp(0, &old, &data[8..16]), 0);
    }

    #[test]
    fn a_pseudo_header_sums_like_its_bytes(src: [u8; 16], dst: [u8; 16], protocol: u8, len: u16) {
        let [len_high, len_low] = len.to_be_bytes();
        let drawn = [&src[..], &dst, &[0, 0, len_high, len_low, 0, 0, 0, protocol]].concat();
        let pair = IpPair::V6 { src: src.into(), dst: dst.into() };
        prop_assert_eq!(pair.pseudo_header(IpProtocol(protocol), len.into()).finish(), model(&drawn));

        let (src, dst): ([u8; 4], [u8; 4]) = (src[..4].try_into().unwrap(), dst[..4].try_into().unwrap());
        let drawn = [&src[..], &dst, &[0, protocol, len_high, len_low]].concat();
        let pair = IpPair::V4 { src: src.into(), dst: dst.into() };
        prop_assert_eq!(pair.pseudo_header(IpProtocol(protocol), len.into()).finish(), model(&drawn));
    }
}

#[test]
fn the_example_of_rfc_1071_section_3() {
    assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
}

#[test]
fn the_example_of_rfc_1624_section_4() {
    // The field 0x5555 becomes 0x3285 in a header whose checksum is 0xdd2f: the corner that RFC 1141 got wrong.
    assert_eq!(update(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0x0000);
}

#[test]
fn the_largest_words_do_not_overflow() {
    assert_eq!(checksum(&vec![0xff; 1 << 20]), 0);
}

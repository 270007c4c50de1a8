//! The checks of usual IPv6 headers.

use bellows_packet::{Frames, Packet};
use bellows_sys::simd::{Loop, Simd};

use super::header::{ETHERNET, load_words};
use super::{BATCH, LookAhead, STEP, UNUSUAL, USUAL};

/// Bytes of an Ethernet and an IPv6 header.
const HEADERS: usize = ETHERNET + 40;

/// The next header of hop-by-hop options (RFC 8200, section 4.3).
pub const HOP_BY_HOP: u8 = 0;

/// Numbers packets by whether their headers are usual and right. Hot.
pub fn check(simd: Simd, packets: &[Packet], ahead: usize, numbers: &mut [u16]) {
    simd.run(Check { packets, ahead, numbers });
}

struct Check<'p> {
    packets: &'p [Packet],
    ahead: usize,
    numbers: &'p mut [u16],
}

impl Loop for Check<'_> {
    type Result = ();

    #[inline(always)]
    fn run(self) {
        let Check { packets, ahead, numbers } = self;
        // As for IPv4: the headers of a batch, which is always checked whole.
        let (mut rows, mut lengths) = ([[0; 4]; BATCH], [0; BATCH]);
        let mut look_ahead = LookAhead::begin(packets, ahead, Packet::prefetch);
        for (packets, numbers) in packets.chunks(BATCH).zip(numbers.chunks_mut(BATCH)) {
            let Some(frames) = Frames::<[u8; HEADERS]>::with_lengths(packets, &mut lengths) else {
                check_each(packets, numbers);
                continue;
            };
            for (frames, rows) in frames.chunks(STEP).zip(rows.chunks_mut(STEP)) {
                look_ahead.step(Packet::prefetch);
                frames.iter().zip(rows).for_each(|(header, row)| *row = load_words(header, ETHERNET));
            }
            let checked = std::array::from_fn::<_, BATCH, _>(|index| {
                if are_right(rows[index], lengths[index]) { USUAL } else { UNUSUAL }
            });
            match numbers.as_mut_array() {
                Some(numbers) => *numbers = checked,
                None => numbers.copy_from_slice(&checked[..numbers.len()]),
            }
        }
    }
}

/// As [`check`], if some packets may be too short for a header.
#[cold]
#[inline(never)]
fn check_each(packets: &[Packet], numbers: &mut [u16]) {
    for (packet, number) in packets.iter().zip(numbers) {
        let is_right = |header: &[u8; HEADERS]| are_right(load_words(header, ETHERNET), packet.len() as u32);
        *number = if packet.bytes().first_chunk().is_some_and(is_right) { USUAL } else { UNUSUAL };
    }
}

/// Whether the first four words of a header without hop-by-hop options are right. There is no branch in it. Hot.
#[inline(always)]
fn are_right(row: [u32; 4], length: u32) -> bool {
    // Version, traffic class, flow label; payload length, next header, hop limit; half of the source.
    let [first, second, source, source_rest] = row;
    let payload_length = (second & 0xff) << 8 | (second >> 8 & 0xff);
    // Multicast addresses begin with ff, the loopback address with zeros.
    (first & 0xf0 == 0x60)
        & (payload_length <= length.wrapping_sub(HEADERS as u32))
        & (second >> 16 & 0xff != u32::from(HOP_BY_HOP))
        & (second >> 24 != 0)
        & (source & 0xff != 0xff)
        & (source | source_rest != 0)
}

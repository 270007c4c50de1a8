//! The checks of usual IPv6 headers.

use bellows_packet::{Frames, Packet};
use bellows_sys::simd::{Loop, Simd};

use super::columns::Columns;
use super::header::{ETHERNET, load_words};
use super::{BATCH, FEW, LookAhead, STEP, UNUSUAL, USUAL};

/// Bytes of an Ethernet and an IPv6 header.
const HEADERS: usize = ETHERNET + 40;

/// The next header of hop-by-hop options (RFC 8200, section 4.3).
pub const HOP_BY_HOP: u8 = 0;

/// Numbers packets by whether their headers are usual and right. Returns whether any may have bytes behind it. Hot.
pub fn check(simd: Simd, columns: &mut Columns, packets: &[Packet], ahead: usize, numbers: &mut [u16]) -> bool {
    simd.run(Check { columns, packets, ahead, numbers })
}

struct Check<'p> {
    columns: &'p mut Columns,
    packets: &'p [Packet],
    ahead: usize,
    numbers: &'p mut [u16],
}

impl Loop for Check<'_> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Check { columns, packets, ahead, numbers } = self;
        let mut is_longer = false;
        let mut look_ahead = LookAhead::begin(packets, ahead, Packet::prefetch);
        for (packets, numbers) in packets.chunks(BATCH).zip(numbers.chunks_mut(BATCH)) {
            let frames =
                (packets.len() > FEW).then(|| Frames::<[u8; HEADERS]>::with_lengths(packets, &mut columns.lengths));
            let Some(frames) = frames.flatten() else {
                is_longer |= check_each(packets, numbers);
                continue;
            };
            for (frames, rows) in frames.chunks(STEP).zip(columns.rows.chunks_mut(STEP)) {
                look_ahead.step(Packet::prefetch);
                frames.iter().zip(rows).for_each(|(header, row)| *row = load_words(header, ETHERNET));
            }
            is_longer |= columns.number(numbers, |row, _, length| are_right(row, length), behind);
        }
        is_longer
    }
}

/// As [`check`], packet by packet.
#[inline(never)]
fn check_each(packets: &[Packet], numbers: &mut [u16]) -> bool {
    let mut is_longer = false;
    for (packet, number) in packets.iter().zip(numbers) {
        let is_right = |header: &[u8; HEADERS]| {
            let (row, length) = (load_words(header, ETHERNET), packet.len() as u32);
            is_longer |= behind(row, length) != 0;
            are_right(row, length)
        };
        *number = if packet.bytes().first_chunk().is_some_and(is_right) { USUAL } else { UNUSUAL };
    }
    is_longer
}

/// The payload length in the words of a header. Hot.
#[inline(always)]
fn payload_length(second: u32) -> u32 {
    (second & 0xff) << 8 | (second >> 8 & 0xff)
}

/// Bytes of a frame behind a packet whose header is right. Hot.
#[inline(always)]
fn behind([_, second, ..]: [u32; 4], length: u32) -> u32 {
    length.wrapping_sub(HEADERS as u32 + payload_length(second))
}

/// Whether the first four words of a header without hop-by-hop options are right. There is no branch in it. Hot.
#[inline(always)]
fn are_right(row: [u32; 4], length: u32) -> bool {
    // Version, traffic class, flow label; payload length, next header, hop limit; half of the source.
    let [first, second, source, source_rest] = row;
    let payload_length = payload_length(second);
    // Multicast addresses begin with ff, the loopback address with zeros.
    (first & 0xf0 == 0x60)
        & (payload_length <= length.wrapping_sub(HEADERS as u32))
        & (second >> 16 & 0xff != u32::from(HOP_BY_HOP))
        & (source & 0xff != 0xff)
        & (source | source_rest != 0)
}

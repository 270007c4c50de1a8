//! The checks of usual IPv4 headers.

use bellows_packet::{Frames, Packet};
use bellows_sys::simd::{Loop, Simd};

use super::columns::Columns;
use super::header::{ETHERNET, load_u32, load_words};
use super::{BATCH, FEW, LookAhead, STEP, UNUSUAL, USUAL};

/// Bytes of an Ethernet and an IPv4 header.
pub const HEADERS: usize = ETHERNET + 20;

/// Numbers packets by whether their headers are usual and right. Returns whether any may have bytes behind it. Hot.
pub fn check<const VERIFY: bool>(
    simd: Simd,
    columns: &mut Columns,
    packets: &[Packet],
    ahead: usize,
    numbers: &mut [u16],
) -> bool {
    simd.run(Check::<VERIFY> { columns, packets, ahead, numbers })
}

struct Check<'p, const VERIFY: bool> {
    columns: &'p mut Columns,
    packets: &'p [Packet],
    ahead: usize,
    numbers: &'p mut [u16],
}

impl<const VERIFY: bool> Loop for Check<'_, VERIFY> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Check { columns, packets, ahead, numbers } = self;
        let mut is_longer = false;
        let mut look_ahead = LookAhead::begin(packets, ahead, Packet::prefetch);
        for (packets, numbers) in packets.chunks(BATCH).zip(numbers.chunks_mut(BATCH)) {
            // One by one, a few are quicker.
            let frames = (packets.len() > FEW).then(|| Frames::with_lengths(packets, &mut columns.lengths));
            let Some(frames) = frames.flatten() else {
                is_longer |= check_each::<VERIFY>(packets, numbers);
                continue;
            };
            let rows = columns.rows.chunks_mut(STEP).zip(columns.words.chunks_mut(STEP));
            for (frames, (rows, destinations)) in frames.chunks(STEP).zip(rows) {
                look_ahead.step(Packet::prefetch);
                for (header, (row, destination)) in frames.iter().zip(rows.iter_mut().zip(destinations)) {
                    (*row, *destination) = words_of(header);
                }
            }
            is_longer |= columns.number(numbers, are_right::<VERIFY>, behind);
        }
        is_longer
    }
}

/// As [`check`], packet by packet.
#[inline(never)]
fn check_each<const VERIFY: bool>(packets: &[Packet], numbers: &mut [u16]) -> bool {
    let mut is_longer = false;
    for (packet, number) in packets.iter().zip(numbers) {
        let length = packet.len() as u32;
        let is_right = |header| {
            let (row, destination) = words_of(header);
            is_longer |= behind(row, length) != 0;
            are_right::<VERIFY>(row, destination, length)
        };
        *number = if packet.bytes().first_chunk().is_some_and(is_right) { USUAL } else { UNUSUAL };
    }
    is_longer
}

/// The total length in the words of a header. Hot.
#[inline(always)]
fn total_length(first: u32) -> u32 {
    (first >> 8 & 0xff00) | first >> 24
}

/// Bytes of a frame behind a packet whose header is right. Hot.
#[inline(always)]
fn behind([first, ..]: [u32; 4], length: u32) -> u32 {
    length.wrapping_sub(ETHERNET as u32 + total_length(first))
}

/// The words of an IPv4 header. Hot.
#[inline(always)]
fn words_of(header: &[u8; HEADERS]) -> ([u32; 4], u32) {
    (load_words(header, ETHERNET), load_u32(header, ETHERNET + 16))
}

/// Whether the words of a header without options are right. There is no branch in it. Hot.
#[inline(always)]
fn are_right<const VERIFY: bool>(row: [u32; 4], destination: u32, length: u32) -> bool {
    let [first, second, third, source] = row;
    let total_length = total_length(first);
    // The offset, without the flags, is 1.
    let hides_tcp = second & 0xff1f_0000 == 0x0100_0000;
    let network = source & 0xff;
    let is_right = (first & 0xff == 0x45)
        & (total_length.wrapping_sub(20) <= length.wrapping_sub(HEADERS as u32))
        & !hides_tcp
        & (network.wrapping_sub(1) < 223)
        & (network != 127);
    if VERIFY { is_right & has_right_checksum([first, second, third, source, destination]) } else { is_right }
}

/// Whether the words of a header add up to all ones (RFC 1071). Hot.
#[inline(always)]
fn has_right_checksum(words: [u32; 5]) -> bool {
    let low = words.iter().fold(0, |sum: u32, &word| sum.wrapping_add(word));
    let high = words.iter().fold(0, |sum, word| sum + (word >> 16));
    // Without the upper halves, the sum of the words is that of the lower halves.
    let sum = low.wrapping_sub(high << 16) + high;
    // The sum of ten 16-bit words, of which the version is not 0: all ones are 0xffff, or a multiple of it.
    let sum = (sum & 0xffff) + (sum >> 16);
    sum == 0xffff
}

/// Whether a header without options is right.
#[cfg(test)]
pub fn is_right<const VERIFY: bool>(header: &[u8; HEADERS], length: usize) -> bool {
    let (row, destination) = words_of(header);
    are_right::<VERIFY>(row, destination, length as u32)
}

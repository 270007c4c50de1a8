//! The checks of usual IPv4 headers.

use bellows_packet::Packet;
use bellows_sys::simd::{Loop, Simd};

use super::header::{ETHERNET, load_u32, load_u64};
use super::{BATCH, UNUSUAL, USUAL};

/// Bytes of an Ethernet and an IPv4 header.
pub const HEADERS: usize = ETHERNET + 20;

/// The headers of a batch, word by word, so that the checks of several packets are made together.
struct Headers {
    /// Version, header length, traffic class, total length; identification, fragment offset; time to live, protocol,
    /// checksum; source; destination.
    words: [[u32; BATCH]; 5],
    /// Bytes of the frame.
    length: [u32; BATCH],
}

/// Numbers packets by whether their headers are usual and right. Hot.
pub fn check<const VERIFY: bool>(packets: &[Packet], ahead: usize, numbers: &mut [u16]) {
    Simd::chosen().run(Check::<VERIFY> { packets, ahead, numbers });
}

struct Check<'p, const VERIFY: bool> {
    packets: &'p [Packet],
    ahead: usize,
    numbers: &'p mut [u16],
}

impl<const VERIFY: bool> Loop for Check<'_, VERIFY> {
    type Result = ();

    #[inline(always)]
    fn run(self) {
        let Check { packets, ahead, numbers } = self;
        packets.iter().take(ahead).for_each(Packet::prefetch);
        let mut headers = Headers { words: [[0; BATCH]; 5], length: [0; BATCH] };
        for (batch, numbers) in numbers.chunks_mut(BATCH).enumerate() {
            let rest = &packets[(batch * BATCH).min(packets.len())..];
            headers.read(rest, ahead);
            numbers.copy_from_slice(&headers.check::<VERIFY>()[..numbers.len()]);
        }
    }
}

impl Headers {
    /// Reads the headers of the next packets. Those of packets that are too short are zeros. Hot.
    #[inline(always)]
    fn read(&mut self, packets: &[Packet], ahead: usize) {
        for index in 0..packets.len().min(BATCH) {
            if ahead > 0
                && let Some(packet) = packets.get(index + ahead)
            {
                packet.prefetch();
            }
            let packet = &packets[index];
            let words = packet.bytes().first_chunk::<HEADERS>().map_or([0; 5], words_of);
            self.words.iter_mut().zip(words).for_each(|(column, word)| column[index] = word);
            self.length[index] = packet.len() as u32;
        }
    }

    /// The numbers of a whole batch, so that no part of the loop is left over. Hot.
    #[inline(always)]
    fn check<const VERIFY: bool>(&self) -> [u16; BATCH] {
        std::array::from_fn(|index| {
            let words = self.words.each_ref().map(|column| column[index]);
            if are_right::<VERIFY>(words, self.length[index]) { USUAL } else { UNUSUAL }
        })
    }
}

/// The words of an IPv4 header. Hot.
#[inline(always)]
fn words_of(header: &[u8; HEADERS]) -> [u32; 5] {
    let (first, second) = (load_u64(header, ETHERNET), load_u64(header, ETHERNET + 8));
    [first as u32, (first >> 32) as u32, second as u32, (second >> 32) as u32, load_u32(header, ETHERNET + 16)]
}

/// Whether the words of a header without options are right. There is no branch in it. Hot.
#[inline(always)]
fn are_right<const VERIFY: bool>(words: [u32; 5], length: u32) -> bool {
    let [first, second, third, source, _] = words;
    let total_length = (first >> 8 & 0xff00) | first >> 24;
    // The offset, without the flags, is 1.
    let hides_tcp = second & 0xff1f_0000 == 0x0100_0000;
    let network = source & 0xff;
    let is_right = (first & 0xff == 0x45)
        & (total_length.wrapping_sub(20) <= length.wrapping_sub(HEADERS as u32))
        & !hides_tcp
        & (third & 0xff != 0)
        & (network.wrapping_sub(1) < 223)
        & (network != 127);
    if VERIFY { is_right & has_right_checksum(words) } else { is_right }
}

/// Whether the words of a header add up to all ones (RFC 1071). Hot.
#[inline(always)]
fn has_right_checksum(words: [u32; 5]) -> bool {
    let sum = words.iter().fold(0, |sum, word| sum + (word & 0xffff) + (word >> 16));
    // The sum of ten 16-bit words, of which the version is not 0: all ones are 0xffff, or a multiple of it.
    let sum = (sum & 0xffff) + (sum >> 16);
    sum == 0xffff
}

/// Whether a header without options is right.
#[cfg(test)]
pub fn is_right<const VERIFY: bool>(header: &[u8; HEADERS], length: usize) -> bool {
    are_right::<VERIFY>(words_of(header), length as u32)
}

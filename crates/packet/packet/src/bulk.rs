//! Loops over whole vectors: fill, copy and free packets.
//!
//! Each is one plain loop, compiled for the baseline and for newer instruction sets. The choice is made once per
//! process. The target feature covers the whole loop, because an intrinsic that is not inlined costs more than it
//! saves.

use std::sync::OnceLock;

use bellows_pool::LINE;
use bellows_sys::simd::{Level, Simd};

use crate::packet::{MOVED, Packet, SPECIAL, copy_short, pointer};

type CacheLine = [u8; LINE];

/// The instances of the loops for one processor.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// Makes a packet in each buffer: `fill(buffers, template lines, word, slots)`.
    ///
    /// Safety: each buffer is the data of a free ordinary buffer with room for the lines, and there are as many
    /// slots as buffers.
    pub(crate) fill: unsafe fn(&[usize], &[CacheLine], u64, *mut Packet),
    /// Copies each packet into a buffer: `copy(packets, buffers, slots)`. Returns the sum of their lengths.
    ///
    /// Safety: as for `fill`; there are as many packets as buffers, each fits, and none has metadata, a mark or an
    /// offload.
    pub(crate) copy: unsafe fn(&[Packet], &[usize], *mut Packet) -> u64,
    /// Collects the address that a new packet's data has in each packet's buffer: `buffer_starts(packets, addresses)`.
    /// False, with meaningless addresses, if a packet is special (large or marked).
    pub(crate) buffer_starts: fn(&[Packet], &mut [usize]) -> bool,
}

static CHOSEN: OnceLock<Kernels> = OnceLock::new();

#[inline(always)]
pub(crate) fn kernels() -> &'static Kernels {
    match CHOSEN.get() {
        Some(kernels) => kernels,
        None => choose_once(),
    }
}

#[cold]
fn choose_once() -> &'static Kernels {
    CHOSEN.get_or_init(|| kernels_for(Simd::chosen()))
}

/// The loops for an instruction set, which the processor must have.
fn kernels_for(simd: Simd) -> Kernels {
    match simd.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => {
            Kernels { fill: x86::fill_avx512, copy: x86::copy_avx512, buffer_starts: x86::buffer_starts_avx512_checked }
        }
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => {
            Kernels { fill: x86::fill_avx2, copy: x86::copy_avx2, buffer_starts: x86::buffer_starts_avx2_checked }
        }
        _ => Kernels { fill: fill_baseline, copy: copy_baseline, buffer_starts: buffer_starts_baseline },
    }
}

/// Number of packets processed together.
const GROUP: usize = 8;

/// Loads one word of each line that is about to be written and discards it.
///
/// On some processors (measured: Sapphire Rapids) a buffer that is written repeatedly but never read drops out of the
/// L1 cache for good in about half of all processes, and each store then costs four more clocks. One load keeps it
/// there in every process.
///
/// Safety: each buffer has 8 readable bytes.
#[inline(always)]
unsafe fn touch_all(buffers: &[usize]) {
    for &data in buffers {
        // SAFETY: the caller's promise.
        unsafe { pointer(data).cast::<u64>().read_volatile() };
    }
}

/// Safety: as for [`Kernels::fill`].
#[inline(always)]
unsafe fn fill<const LINES: usize>(buffers: &[usize], lines: &[CacheLine], word: u64, slots: *mut Packet) {
    let count = if LINES == 0 { lines.len() } else { LINES };
    let lines = &lines[..count];
    for (group, buffers) in buffers.chunks(GROUP).enumerate() {
        // SAFETY: the caller vouches for the buffers and the slots; each buffer fills one slot.
        unsafe {
            touch_all(buffers);
            for (index, &data) in buffers.iter().enumerate() {
                let data = pointer(data);
                for (line, bytes) in lines.iter().enumerate() {
                    data.as_ptr().cast::<CacheLine>().add(line).write_unaligned(*bytes);
                }
                slots.add(group * GROUP + index).write(Packet::from_free_buffer(data, word));
            }
        }
    }
}

/// One instance each for templates of one line, of two lines, and of any other length.
///
/// Safety: as for [`Kernels::fill`].
#[inline(always)]
unsafe fn fill_any(buffers: &[usize], lines: &[CacheLine], word: u64, slots: *mut Packet) {
    // SAFETY: the caller's promise is passed on.
    unsafe {
        match lines.len() {
            1 => fill::<1>(buffers, lines, word, slots),
            2 => fill::<2>(buffers, lines, word, slots),
            _ => fill::<0>(buffers, lines, word, slots),
        }
    }
}

/// Safety: as for [`Kernels::fill`].
unsafe fn fill_baseline(buffers: &[usize], lines: &[CacheLine], word: u64, slots: *mut Packet) {
    // SAFETY: the caller's promise is passed on.
    unsafe { fill_any(buffers, lines, word, slots) }
}

/// Safety: as for [`Kernels::copy`].
#[inline(always)]
unsafe fn copy(packets: &[Packet], buffers: &[usize], slots: *mut Packet) -> u64 {
    let mut total = 0;
    for (index, (packet, &data)) in packets.iter().zip(buffers).enumerate() {
        let data = pointer(data);
        let bytes = packet.bytes();
        // SAFETY: the caller vouches for the buffers, which the packets fit into, and for the slots.
        unsafe {
            copy_short(bytes, std::slice::from_raw_parts_mut(data.as_ptr(), bytes.len()));
            slots.add(index).write(Packet::from_free_buffer(data, packet.word_of_copy()));
        }
        total += bytes.len() as u64;
    }
    total
}

/// Safety: as for [`Kernels::copy`].
unsafe fn copy_baseline(packets: &[Packet], buffers: &[usize], slots: *mut Packet) -> u64 {
    // SAFETY: the caller's promise is passed on.
    unsafe { copy(packets, buffers, slots) }
}

#[inline(always)]
fn buffer_starts(packets: &[Packet], addresses: &mut [usize]) -> bool {
    let mut words = 0;
    for (packet, address) in packets.iter().zip(addresses.iter_mut()) {
        *address = packet.address();
        words |= packet.word();
    }
    if words & (SPECIAL | MOVED) == MOVED {
        bellows_pool::starts_of(addresses);
    }
    words & SPECIAL == 0
}

fn buffer_starts_baseline(packets: &[Packet], addresses: &mut [usize]) -> bool {
    buffer_starts(packets, addresses)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    /// Safety: AVX-512F, and as for [`Kernels::fill`].
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn fill_avx512(buffers: &[usize], lines: &[CacheLine], word: u64, slots: *mut Packet) {
        let [line] = lines else {
            // SAFETY: the caller's promise is passed on.
            return unsafe { fill_any(buffers, lines, word, slots) };
        };
        let (groups, rest) = buffers.as_chunks::<GROUP>();
        // SAFETY: the line is 64 readable bytes; the caller vouches for the buffers and the slots. Each group of eight
        // buffers fills eight slots: two registers of four handles {data, word and tag}.
        unsafe {
            let content = _mm512_loadu_si512(line.as_ptr().cast());
            let words = _mm512_set1_epi64(word.cast_signed());
            let first_four = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
            let last_four = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
            let mut out = slots.cast::<__m512i>();
            for group in groups {
                touch_all(group);
                for &data in group {
                    _mm512_storeu_si512(pointer(data).as_ptr().cast(), content);
                }
                let addresses = _mm512_loadu_si512(group.as_ptr().cast());
                _mm512_storeu_si512(out, _mm512_permutex2var_epi64(addresses, first_four, words));
                _mm512_storeu_si512(out.add(1), _mm512_permutex2var_epi64(addresses, last_four, words));
                out = out.add(2);
            }
            fill::<1>(rest, lines, word, out.cast());
        }
    }

    /// Safety: AVX-512F and BW, BMI2, and as for [`Kernels::copy`].
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,bmi2")]
    pub(super) unsafe fn copy_avx512(packets: &[Packet], buffers: &[usize], slots: *mut Packet) -> u64 {
        let mut total = 0;
        for (index, (packet, &data)) in packets.iter().zip(buffers).enumerate() {
            let data = pointer(data);
            let bytes = packet.bytes();
            // SAFETY: the caller vouches for the buffers, which the packets fit into, and for the slots. Only the bytes
            // of the packet are read and written: the mask excludes the others.
            unsafe {
                if bytes.len() <= LINE {
                    let mask = _bzhi_u64(u64::MAX, bytes.len() as u32);
                    let line = _mm512_maskz_loadu_epi8(mask, bytes.as_ptr().cast());
                    _mm512_mask_storeu_epi8(data.as_ptr().cast(), mask, line);
                } else {
                    data.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                }
                slots.add(index).write(Packet::from_free_buffer(data, packet.word_of_copy()));
            }
            total += bytes.len() as u64;
        }
        total
    }

    /// Safety: AVX2, and as for [`Kernels::copy`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn copy_avx2(packets: &[Packet], buffers: &[usize], slots: *mut Packet) -> u64 {
        // SAFETY: the caller's promise is passed on.
        unsafe { copy(packets, buffers, slots) }
    }

    /// Safety: AVX2, and as for [`Kernels::fill`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn fill_avx2(buffers: &[usize], lines: &[CacheLine], word: u64, slots: *mut Packet) {
        let [line] = lines else {
            // SAFETY: the caller's promise is passed on.
            return unsafe { fill_any(buffers, lines, word, slots) };
        };
        let (groups, rest) = buffers.as_chunks::<GROUP>();
        // SAFETY: as in fill_avx512, with two halves of a line and registers of two handles.
        unsafe {
            let first = _mm256_loadu_si256(line.as_ptr().cast());
            let second = _mm256_loadu_si256(line.as_ptr().add(LINE / 2).cast());
            let words = _mm256_set1_epi64x(word.cast_signed());
            let mut out = slots.cast::<__m256i>();
            for group in groups {
                touch_all(group);
                for half in group.as_chunks::<4>().0 {
                    for &data in half {
                        let data = pointer(data).as_ptr();
                        _mm256_storeu_si256(data.cast(), first);
                        _mm256_storeu_si256(data.add(LINE / 2).cast(), second);
                    }
                    let addresses = _mm256_loadu_si256(half.as_ptr().cast());
                    let (even, odd) =
                        (_mm256_unpacklo_epi64(addresses, words), _mm256_unpackhi_epi64(addresses, words));
                    _mm256_storeu_si256(out, _mm256_permute2x128_si256::<0x20>(even, odd));
                    _mm256_storeu_si256(out.add(1), _mm256_permute2x128_si256::<0x31>(even, odd));
                    out = out.add(2);
                }
            }
            fill::<1>(rest, lines, word, out.cast());
        }
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    fn buffer_starts_avx512(packets: &[Packet], addresses: &mut [usize]) -> bool {
        buffer_starts(packets, addresses)
    }

    pub(super) fn buffer_starts_avx512_checked(packets: &[Packet], addresses: &mut [usize]) -> bool {
        // SAFETY: kernels_for() selects this function only if the processor has AVX-512.
        unsafe { buffer_starts_avx512(packets, addresses) }
    }

    #[target_feature(enable = "avx2")]
    fn buffer_starts_avx2(packets: &[Packet], addresses: &mut [usize]) -> bool {
        buffer_starts(packets, addresses)
    }

    pub(super) fn buffer_starts_avx2_checked(packets: &[Packet], addresses: &mut [usize]) -> bool {
        // SAFETY: kernels_for() selects this function only if the processor has AVX2.
        unsafe { buffer_starts_avx2(packets, addresses) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mark;
    use crate::vector::{CAPACITY, Template, Vector};
    use proptest::prelude::*;

    /// The addresses of `count` free buffers, and the packets that own them.
    fn buffers(count: usize) -> (Vec<usize>, Vec<Packet>) {
        let packets: Vec<Packet> = Packet::allocate_burst(count).collect();
        (packets.iter().map(Packet::address).collect(), packets)
    }

    /// Runs a loop that writes packets into slots, and returns their contents. The buffers stay with `owners`.
    fn written(owners: &[Packet], run: impl FnOnce(*mut Packet)) -> Vec<(Vec<u8>, u32)> {
        let mut slots = Vec::with_capacity(CAPACITY);
        run(slots.as_mut_ptr());
        // SAFETY: the loop under test has written one packet per buffer.
        unsafe { slots.set_len(owners.len()) };
        slots
            .into_iter()
            .map(|packet: Packet| {
                let content = (packet.bytes().to_vec(), packet.tag());
                std::mem::forget(packet);
                content
            })
            .collect()
    }

    proptest! {
        /// Each instance of the fill loop makes `count` packets that hold the template.
        #[test]
        fn filled_packets_hold_the_template(bytes in proptest::collection::vec(any::<u8>(), 1..300), count in 0usize..70) {
            let mut lines = vec![[0; LINE]; bytes.len().div_ceil(LINE)];
            lines.as_flattened_mut()[..bytes.len()].copy_from_slice(&bytes);
            for simd in Simd::available() {
                let kernels = kernels_for(simd);
                let (buffers, owners) = buffers(count);
                // SAFETY: the buffers are free, and there are enough slots.
                let made = written(&owners, |slots| unsafe { (kernels.fill)(&buffers, &lines, bytes.len() as u64, slots) });
                prop_assert_eq!(made, vec![(bytes.clone(), 0); count], "{}", simd.name());
            }
        }

        /// Each instance of the copy loop copies bytes and tags, and writes nothing past the end of a packet.
        #[test]
        fn copies_hold_what_the_packets_hold(lengths in proptest::collection::vec(0usize..200, 0..40), trim in 0usize..20) {
            for simd in Simd::available() {
                let kernels = kernels_for(simd);
                let packets: Vec<Packet> = lengths.iter().enumerate().map(|(index, &length)| {
                    let mut packet = Packet::from_bytes(&vec![index as u8; length]).unwrap();
                    packet.trim_front(trim);
                    packet.set_tag(index as u32);
                    packet
                }).collect();
                let (buffers, mut owners) = buffers(packets.len());
                for owner in &mut owners {
                    owner.append(&[0xee; 256]);
                }
                let mut total = 0;
                // SAFETY: the buffers are free, the packets fit, and there are enough slots.
                let made = written(&owners, |slots| unsafe { total = (kernels.copy)(&packets, &buffers, slots) });
                prop_assert_eq!(total, packets.iter().map(|packet| packet.len() as u64).sum::<u64>(), "{}", simd.name());
                let expected: Vec<_> = packets.iter().map(|packet| (packet.bytes().to_vec(), packet.tag())).collect();
                prop_assert_eq!(&made, &expected, "{}", simd.name());
                for (owner, (bytes, _)) in owners.iter().zip(&made) {
                    prop_assert!(owner.bytes()[bytes.len()..].iter().all(|&byte| byte == 0xee), "{}", simd.name());
                }
            }
        }

        /// Each instance of the free loop collects the start of every buffer, wherever the data begins, and rejects
        /// marked packets.
        #[test]
        fn starts_are_noted_unless_a_packet_is_special(
            count in 1usize..70,
            moves in proptest::collection::vec((0usize..70, -64i32..=64), 0..4),
            marked in 0usize..140,
        ) {
            for simd in Simd::available() {
                let kernels = kernels_for(simd);
                let mut packets: Vec<Packet> = (0..count).map(|_| Packet::from_bytes(&[7; 64]).unwrap()).collect();
                let starts: Vec<usize> = packets.iter().map(Packet::address).collect();
                for &(packet, by) in moves.iter().filter(|(packet, _)| *packet < count) {
                    match usize::try_from(by) {
                        Ok(bytes) => packets[packet].trim_front(bytes),
                        Err(_) => _ = packets[packet].prepend(by.unsigned_abs() as usize),
                    }
                }
                if let Some(packet) = packets.get_mut(marked) {
                    packet.mark(Mark { id: 1, ..Mark::default() });
                }
                let mut addresses = vec![0; count];
                prop_assert_eq!((kernels.buffer_starts)(&packets, &mut addresses), marked >= count, "{}", simd.name());
                if marked >= count {
                    prop_assert_eq!(&addresses, &starts, "{}", simd.name());
                }
            }
        }
    }

    #[test]
    fn a_template_longer_than_a_buffer_is_refused() {
        assert!(Template::new(&[0; 2_048]).is_some());
        assert!(Template::new(&[0; 2_049]).is_none());
        assert_eq!(crate::push_filled(&mut Vector::none(), 5, &Template::new(b"x").unwrap()), 0);
    }
}

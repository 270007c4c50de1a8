//! The loops over whole vectors: filling, copying and freeing packets.
//!
//! Each exists once as a plain loop, compiled for the baseline and again for what newer processors have; the
//! choice is made once a process. The whole loop lies under the target feature, because an intrinsic that is
//! not inlined costs more than it saves.

use std::sync::OnceLock;

use crate::LINE;
use crate::packet::{Packet, SPECIAL};

type Line = [u8; LINE];

/// Instances of the loops for one processor.
#[derive(Clone, Copy)]
pub(crate) struct Kernels {
    /// Makes a packet in each buffer: `fill(buffers, template lines, word, slots)`.
    ///
    /// Safety: each buffer is the data of a free ordinary buffer with room for the lines, and there are as many
    /// slots as buffers.
    pub(crate) fill: unsafe fn(&[usize], &[Line], u32, *mut Packet),
    /// Notes the address of each packet's data: `home(packets, addresses)`. False, with addresses that mean
    /// nothing, if one of the packets is special (large, or its data has moved).
    pub(crate) home: fn(&[Packet], &mut [usize]) -> bool,
    /// What the kernels were compiled for.
    pub(crate) name: &'static str,
}

pub(crate) fn kernels() -> Kernels {
    static CHOSEN: OnceLock<Kernels> = OnceLock::new();
    *CHOSEN.get_or_init(choose)
}

/// The instruction set that the vector loops use on this processor: `avx512`, `avx2` or `baseline`.
///
/// The environment variable `BELLOWS_SIMD`, with one of these names, asks for a lesser one than the processor has.
pub fn instruction_set() -> &'static str {
    kernels().name
}

fn choose() -> Kernels {
    let baseline = Kernels { fill: fill_baseline, home: home_baseline, name: "baseline" };
    #[cfg(target_arch = "x86_64")]
    {
        let wanted = std::env::var("BELLOWS_SIMD").unwrap_or_default();
        let avx512 = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
        if avx512 && !["avx2", "baseline"].contains(&wanted.as_str()) {
            return Kernels { fill: x86::fill_avx512, home: x86::home_avx512_checked, name: "avx512" };
        }
        if is_x86_feature_detected!("avx2") && wanted != "baseline" {
            return Kernels { fill: x86::fill_avx2, home: x86::home_avx2_checked, name: "avx2" };
        }
    }
    baseline
}

/// Safety: as for [`Kernels::fill`].
#[inline(always)]
unsafe fn fill<const LINES: usize>(buffers: &[usize], lines: &[Line], word: u32, slots: *mut Packet) {
    let count = if LINES == 0 { lines.len() } else { LINES };
    let lines = &lines[..count];
    for (index, &data) in buffers.iter().enumerate() {
        // SAFETY: the caller vouches for the buffers and the slots; index < buffers.len().
        unsafe {
            let data = crate::pool::pointer(data);
            for (line, bytes) in lines.iter().enumerate() {
                data.as_ptr().cast::<Line>().add(line).write_unaligned(*bytes);
            }
            slots.add(index).write(Packet::from_free_buffer(data, word));
        }
    }
}

/// One instance for templates of one line, one of two, one for the rest.
///
/// Safety: as for [`Kernels::fill`].
#[inline(always)]
unsafe fn fill_any(buffers: &[usize], lines: &[Line], word: u32, slots: *mut Packet) {
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
unsafe fn fill_baseline(buffers: &[usize], lines: &[Line], word: u32, slots: *mut Packet) {
    // SAFETY: the caller's promise is passed on.
    unsafe { fill_any(buffers, lines, word, slots) }
}

#[inline(always)]
fn home(packets: &[Packet], addresses: &mut [usize]) -> bool {
    let mut words = 0;
    for (packet, address) in packets.iter().zip(addresses) {
        *address = packet.address();
        words |= packet.word();
    }
    words & SPECIAL == 0
}

fn home_baseline(packets: &[Packet], addresses: &mut [usize]) -> bool {
    home(packets, addresses)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use std::arch::x86_64::*;

    /// Safety: AVX-512F, and as for [`Kernels::fill`].
    #[target_feature(enable = "avx512f,avx512vl")]
    pub(super) unsafe fn fill_avx512(buffers: &[usize], lines: &[Line], word: u32, slots: *mut Packet) {
        let [line] = lines else {
            // SAFETY: the caller's promise is passed on.
            return unsafe { fill_any(buffers, lines, word, slots) };
        };
        let (groups, rest) = buffers.as_chunks::<8>();
        // SAFETY: the line is 64 readable bytes; the caller vouches for the buffers and the slots, of which each
        // group of eight fills as many: two registers of four handles {data, word and tag}.
        unsafe {
            let content = _mm512_loadu_si512(line.as_ptr().cast());
            let words = _mm512_set1_epi64(i64::from(word));
            let first_four = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
            let last_four = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
            let mut out = slots.cast::<__m512i>();
            for group in groups {
                for &data in group {
                    _mm512_storeu_si512(crate::pool::pointer(data).as_ptr().cast(), content);
                }
                let addresses = _mm512_loadu_si512(group.as_ptr().cast());
                _mm512_storeu_si512(out, _mm512_permutex2var_epi64(addresses, first_four, words));
                _mm512_storeu_si512(out.add(1), _mm512_permutex2var_epi64(addresses, last_four, words));
                out = out.add(2);
            }
            fill::<1>(rest, lines, word, out.cast());
        }
    }

    /// Safety: AVX2, and as for [`Kernels::fill`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn fill_avx2(buffers: &[usize], lines: &[Line], word: u32, slots: *mut Packet) {
        // SAFETY: the caller's promise is passed on.
        unsafe { fill_any(buffers, lines, word, slots) }
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    fn home_avx512(packets: &[Packet], addresses: &mut [usize]) -> bool {
        home(packets, addresses)
    }

    pub(super) fn home_avx512_checked(packets: &[Packet], addresses: &mut [usize]) -> bool {
        // SAFETY: choose() hands this function out only where it has found AVX-512F and VL.
        unsafe { home_avx512(packets, addresses) }
    }

    #[target_feature(enable = "avx2")]
    fn home_avx2(packets: &[Packet], addresses: &mut [usize]) -> bool {
        home(packets, addresses)
    }

    pub(super) fn home_avx2_checked(packets: &[Packet], addresses: &mut [usize]) -> bool {
        // SAFETY: choose() hands this function out only where it has found AVX2.
        unsafe { home_avx2(packets, addresses) }
    }
}

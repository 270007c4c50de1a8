//! The loops for x86-64.

use std::arch::x86_64::*;
use std::ptr;

use crate::Copy;
use crate::kernels::short;

/// Whether two ranges of a length have a byte in common.
#[inline(always)]
fn overlap(destination: *mut u8, source: *const u8, length: usize) -> bool {
    destination.addr().wrapping_sub(source.addr()).wrapping_add(length) < 2 * length
}

/// Safety: AVX-512 F, VL and BW, BMI2, and as for [`Kernel::run`](crate::kernels::Kernel::run).
#[target_feature(enable = "avx512f,avx512vl,avx512bw,bmi2")]
pub(crate) unsafe fn run_avx512(copies: &[Copy]) {
    for &Copy { destination, source, length } in copies {
        // SAFETY: the caller's promise is passed on; a mask of the length leaves out what is beyond.
        unsafe {
            if length <= 64 {
                let mask = _bzhi_u64(u64::MAX, length as u32);
                let line = _mm512_maskz_loadu_epi8(mask, source.cast());
                _mm512_mask_storeu_epi8(destination.cast(), mask, line);
            } else if length <= 128 {
                let mask = _bzhi_u64(u64::MAX, length as u32 - 64);
                let first = _mm512_loadu_si512(source.cast());
                let second = _mm512_maskz_loadu_epi8(mask, source.add(64).cast());
                _mm512_storeu_si512(destination.cast(), first);
                _mm512_mask_storeu_epi8(destination.add(64).cast(), mask, second);
            } else if overlap(destination, source, length) {
                ptr::copy(source, destination, length);
            } else {
                lines_avx512(destination, source, length);
            }
        }
    }
}

/// Safety: as for [`run_avx512`], and the ranges do not overlap.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,bmi2")]
unsafe fn lines_avx512(destination: *mut u8, source: *const u8, length: usize) {
    let mut at = 0;
    // SAFETY: each access is within the length.
    unsafe {
        while at + 128 <= length {
            let first = _mm512_loadu_si512(source.add(at).cast());
            let second = _mm512_loadu_si512(source.add(at + 64).cast());
            _mm512_storeu_si512(destination.add(at).cast(), first);
            _mm512_storeu_si512(destination.add(at + 64).cast(), second);
            at += 128;
        }
        if at + 64 <= length {
            _mm512_storeu_si512(destination.add(at).cast(), _mm512_loadu_si512(source.add(at).cast()));
            at += 64;
        }
        let mask = _bzhi_u64(u64::MAX, (length - at) as u32);
        let line = _mm512_maskz_loadu_epi8(mask, source.add(at).cast());
        _mm512_mask_storeu_epi8(destination.add(at).cast(), mask, line);
    }
}

/// Safety: AVX2, and as for [`Kernel::run`](crate::kernels::Kernel::run).
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn run_avx2(copies: &[Copy]) {
    for &Copy { destination, source, length } in copies {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            if length < 32 {
                short(destination, source, length);
            } else if length <= 64 {
                let last = length - 32;
                let (one, two) = (_mm256_loadu_si256(source.cast()), _mm256_loadu_si256(source.add(last).cast()));
                _mm256_storeu_si256(destination.cast(), one);
                _mm256_storeu_si256(destination.add(last).cast(), two);
            } else if overlap(destination, source, length) {
                ptr::copy(source, destination, length);
            } else {
                lines_avx2(destination, source, length);
            }
        }
    }
}

/// Safety: as for [`run_avx2`], and the ranges do not overlap and are longer than 64 bytes.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn lines_avx2(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: each access is within the length.
    unsafe {
        let pair = |at: usize| {
            let first = _mm256_loadu_si256(source.add(at).cast());
            let second = _mm256_loadu_si256(source.add(at + 32).cast());
            _mm256_storeu_si256(destination.add(at).cast(), first);
            _mm256_storeu_si256(destination.add(at + 32).cast(), second);
        };
        let mut at = 0;
        while at + 64 < length {
            pair(at);
            at += 64;
        }
        pair(length - 64);
    }
}

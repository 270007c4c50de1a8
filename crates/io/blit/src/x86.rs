//! The loops for features of x86-64 processors beyond the baseline, and inline copies for code compiled without them.

use std::arch::asm;

use crate::Copy;
use crate::kernels::{Steps, Tiny, alike, mixed};

/// With a mask: all lengths take the same instructions.
struct Masked;

impl Tiny for Masked {
    #[inline(always)]
    unsafe fn copy(destination: *mut u8, source: *const u8, length: usize) {
        // SAFETY: the mask excludes everything beyond the length, which the caller says can be read and written. Only
        // the loops below use this, on processors that have the instructions.
        unsafe {
            asm!(
                "bzhi {mask:e}, {mask:e}, {length:e}",
                "kmovd k1, {mask:e}",
                "vmovdqu8 ymm16 {{k1}} {{z}}, [{source}]",
                "vmovdqu8 [{destination}] {{k1}}, ymm16",
                mask = inout(reg) u32::MAX => _,
                length = in(reg) length,
                source = in(reg) source,
                destination = in(reg) destination,
                out("k1") _,
                out("ymm16") _,
                options(nostack),
            );
        }
    }
}

// The loops for AVX-512 are compiled for AVX2: otherwise the compiler would merge two registers of half a line into one
// of a line, which is slower. From AVX-512 they only use the mask.

/// Safety: AVX-512 F, VL and BW, BMI2 and LZCNT, and as for [`Kernel::alike`](crate::choice::Kernel::alike).
#[target_feature(enable = "avx2,bmi2,lzcnt")]
pub(crate) unsafe fn alike_avx512(copies: &[Copy]) {
    // SAFETY: the caller's promise is passed on.
    unsafe { alike::<Masked>(copies) }
}

/// Safety: as for [`alike_avx512`].
#[target_feature(enable = "avx2,bmi2,lzcnt")]
pub(crate) unsafe fn mixed_avx512(copies: &[Copy]) {
    // SAFETY: the caller's promise is passed on.
    unsafe { mixed::<Masked>(copies) }
}

/// Safety: AVX2, LZCNT, and as for [`Kernel::alike`](crate::choice::Kernel::alike).
#[target_feature(enable = "avx2,lzcnt")]
pub(crate) unsafe fn alike_avx2(copies: &[Copy]) {
    // SAFETY: the caller's promise is passed on.
    unsafe { alike::<Steps>(copies) }
}

/// Safety: as for [`alike_avx2`].
#[target_feature(enable = "avx2,lzcnt")]
pub(crate) unsafe fn mixed_avx2(copies: &[Copy]) {
    // SAFETY: the caller's promise is passed on.
    unsafe { mixed::<Steps>(copies) }
}

// A function under a target feature cannot be inlined into code compiled without it, and calling it costs as much as
// such a copy. These are 4, 8 and 16 instructions. They use registers that only exist with AVX-512: their upper halves
// slow down no other code, so nothing has to be cleared afterwards.

/// Copies 32 to 64 bytes.
///
/// Safety: AVX-512 VL; the source can be read and the destination written; and the length.
#[inline(always)]
pub(crate) unsafe fn block_ends(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the first and the last 32 bytes are within the length. Everything is read before anything is written.
    unsafe {
        asm!(
            "vmovdqu64 ymm16, [{source}]",
            "vmovdqu64 ymm17, [{source} + {length} - 32]",
            "vmovdqu64 [{destination}], ymm16",
            "vmovdqu64 [{destination} + {length} - 32], ymm17",
            source = in(reg) source,
            destination = in(reg) destination,
            length = in(reg) length,
            out("ymm16") _,
            out("ymm17") _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies 64 to 128 bytes.
///
/// Safety: AVX-512 VL; the source can be read and the destination written; and the length.
#[inline(always)]
pub(crate) unsafe fn line_ends(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: as above, with 64 bytes.
    unsafe {
        asm!(
            "vmovdqu64 ymm16, [{source}]",
            "vmovdqu64 ymm17, [{source} + 32]",
            "vmovdqu64 ymm18, [{source} + {length} - 64]",
            "vmovdqu64 ymm19, [{source} + {length} - 32]",
            "vmovdqu64 [{destination}], ymm16",
            "vmovdqu64 [{destination} + 32], ymm17",
            "vmovdqu64 [{destination} + {length} - 64], ymm18",
            "vmovdqu64 [{destination} + {length} - 32], ymm19",
            source = in(reg) source,
            destination = in(reg) destination,
            length = in(reg) length,
            out("ymm16") _,
            out("ymm17") _,
            out("ymm18") _,
            out("ymm19") _,
            options(nostack, preserves_flags),
        );
    }
}

/// Copies 128 to 256 bytes.
///
/// Safety: AVX-512 VL; the source can be read and the destination written; and the length.
#[inline(always)]
pub(crate) unsafe fn two_line_ends(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: as above, with 128 bytes.
    unsafe {
        asm!(
            "vmovdqu64 ymm16, [{source}]",
            "vmovdqu64 ymm17, [{source} + 32]",
            "vmovdqu64 ymm18, [{source} + 64]",
            "vmovdqu64 ymm19, [{source} + 96]",
            "vmovdqu64 ymm20, [{source} + {length} - 128]",
            "vmovdqu64 ymm21, [{source} + {length} - 96]",
            "vmovdqu64 ymm22, [{source} + {length} - 64]",
            "vmovdqu64 ymm23, [{source} + {length} - 32]",
            "vmovdqu64 [{destination}], ymm16",
            "vmovdqu64 [{destination} + 32], ymm17",
            "vmovdqu64 [{destination} + 64], ymm18",
            "vmovdqu64 [{destination} + 96], ymm19",
            "vmovdqu64 [{destination} + {length} - 128], ymm20",
            "vmovdqu64 [{destination} + {length} - 96], ymm21",
            "vmovdqu64 [{destination} + {length} - 64], ymm22",
            "vmovdqu64 [{destination} + {length} - 32], ymm23",
            source = in(reg) source,
            destination = in(reg) destination,
            length = in(reg) length,
            out("ymm16") _,
            out("ymm17") _,
            out("ymm18") _,
            out("ymm19") _,
            out("ymm20") _,
            out("ymm21") _,
            out("ymm22") _,
            out("ymm23") _,
            options(nostack, preserves_flags),
        );
    }
}

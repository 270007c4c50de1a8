//! Short copies with registers of 32 bytes, for code that is compiled without them.
//!
//! A function under a target feature cannot be inlined into code without it, and a call costs as much as such a copy.
//! So these are the instructions: 4, 8 or 16.

use std::arch::asm;

use crate::portable::LINE;

/// Copies the first and the last bytes, which may overlap: a register for each offset from the start and from the end.
/// Reads everything before it writes. `after` is the last instruction, and the registers after it change, too.
macro_rules! ends {
    (
        $move:literal, $destination:ident, $source:ident, $length:ident,
        $($first:tt: $start:literal),*; $($second:tt: $end:literal),*; $after:literal $($changed:tt)*
    ) => {
        asm!(
            $(concat!($move, " ", $first, ", [{source} + ", $start, "]"),)*
            $(concat!($move, " ", $second, ", [{source} + {length} - ", $end, "]"),)*
            $(concat!($move, " [{destination} + ", $start, "], ", $first),)*
            $(concat!($move, " [{destination} + {length} - ", $end, "], ", $second),)*
            $after,
            source = in(reg) $source,
            destination = in(reg) $destination,
            length = in(reg) $length,
            $(out($first) _,)*
            $(out($second) _,)*
            $(out($changed) _,)*
            options(nostack, preserves_flags),
        )
    };
}

/// With AVX-512 VL. The upper halves of these registers slow down no other code, so they are not cleared.
///
/// Safety: the processor has it; the source can be read and the destination written, and the length is from 32 bytes to
/// [`REACH`](crate::REACH).
#[inline(always)]
pub(crate) unsafe fn copy_avx512(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: each branch accesses only the first and the last 32, 64 or 128 bytes, which are within the length.
    unsafe {
        if length <= LINE {
            ends!("vmovdqu64", destination, source, length, "ymm16": 0; "ymm17": 32; "");
        } else if length <= 2 * LINE {
            ends!("vmovdqu64", destination, source, length,
                "ymm16": 0, "ymm17": 32; "ymm18": 64, "ymm19": 32; "");
        } else {
            ends!("vmovdqu64", destination, source, length,
                "ymm16": 0, "ymm17": 32, "ymm18": 64, "ymm19": 96;
                "ymm20": 128, "ymm21": 96, "ymm22": 64, "ymm23": 32; "");
        }
    }
}

/// With AVX. The upper halves of all registers are cleared, because they slow down code compiled without AVX. (So all
/// change, also those that hold values of code that is compiled with AVX.)
///
/// Safety: as for [`copy_avx512`].
#[inline(always)]
pub(crate) unsafe fn copy_avx2(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: as above.
    unsafe {
        if length <= LINE {
            ends!("vmovdqu", destination, source, length, "ymm0": 0; "ymm1": 32;
                "vzeroupper" "ymm2" "ymm3" "ymm4" "ymm5" "ymm6" "ymm7"
                "ymm8" "ymm9" "ymm10" "ymm11" "ymm12" "ymm13" "ymm14" "ymm15");
        } else if length <= 2 * LINE {
            ends!("vmovdqu", destination, source, length,
                "ymm0": 0, "ymm1": 32; "ymm2": 64, "ymm3": 32;
                "vzeroupper" "ymm4" "ymm5" "ymm6" "ymm7"
                "ymm8" "ymm9" "ymm10" "ymm11" "ymm12" "ymm13" "ymm14" "ymm15");
        } else {
            ends!("vmovdqu", destination, source, length,
                "ymm0": 0, "ymm1": 32, "ymm2": 64, "ymm3": 96;
                "ymm4": 128, "ymm5": 96, "ymm6": 64, "ymm7": 32;
                "vzeroupper" "ymm8" "ymm9" "ymm10" "ymm11" "ymm12" "ymm13" "ymm14" "ymm15");
        }
    }
}

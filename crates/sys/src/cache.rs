//! Putting data out of the processor's caches, for measurements that are to find it in memory.

/// Bytes in a line of the caches, on every processor that Bellows knows.
pub const LINE: usize = 64;

/// Puts values out of every cache, into memory: all lines that hold a byte of them. The values do not change. Returns
/// when it is done.
///
/// False, and nothing has been done, on a processor that has no instruction for it.
pub fn evict<'a, T: 'a>(slices: impl IntoIterator<Item = &'a [T]>) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        x86::evict(slices);
        true
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = slices;
        false
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    use super::LINE;

    pub(super) fn evict<'a, T: 'a>(slices: impl IntoIterator<Item = &'a [T]>) {
        let evict_line: unsafe fn(usize) = if has_clflushopt() { clflushopt } else { clflush };
        for slice in slices.into_iter().filter(|slice| size_of_val(*slice) > 0) {
            let start = slice.as_ptr().addr();
            for line in start / LINE..(start + size_of_val(slice)).div_ceil(LINE) {
                // SAFETY: a byte of this line is one of the slice, so it can be read; clflushopt was asked for above.
                unsafe { evict_line(line * LINE) };
            }
        }
        // SAFETY: MFENCE, of SSE2, waits for both instructions.
        unsafe { asm!("mfence", options(nostack, preserves_flags)) };
    }

    /// CPUID leaf 7, EBX bit 23.
    fn has_clflushopt() -> bool {
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 23) != 0
    }

    /// Starts to evict a line; several such instructions work at the same time.
    ///
    /// Safety: the processor has the instruction, and the line is mapped and readable.
    unsafe fn clflushopt(address: usize) {
        // SAFETY: changes where the line lies, not what it holds; the rest is the caller's promise.
        unsafe { asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags)) };
    }

    /// Evicts a line, one after the other.
    ///
    /// Safety: the line is mapped and readable. (SSE2, which every x86-64 processor has.)
    unsafe fn clflush(address: usize) {
        // SAFETY: as above.
        unsafe { asm!("clflush [{}]", in(reg) address, options(nostack, preserves_flags)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_evicted_stays_as_it_is() {
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let before = bytes.clone();
        let parts = [&bytes[..], &[], &bytes[1..2], &bytes[63..65], &bytes[99_999..]];
        assert_eq!(evict(parts), cfg!(target_arch = "x86_64"));
        evict([&[[7u64; 3]; 5][..], &[]]);
        evict([&[(); 5][..]]);
        assert_eq!(bytes, before);
    }
}

//! The processor's caches: prefetching what will be used, and evicting data, for measurements that must find it in
//! memory.

/// Bytes of a cache line, on every processor that Bellows supports.
pub const LINE: usize = 64;

/// Prefetches the cache line at an address. Any address is allowed; an invalid one is ignored.
#[inline(always)]
pub fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHT0 never faults and changes nothing that a program can see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Loads a byte and discards it, so that its line counts as read: on some processors (measured: Sapphire Rapids), lines
/// that are written again and again but never read drop out of the first-level cache for good in about half of all
/// processes.
#[inline(always)]
pub fn touch(byte: &u8) {
    // SAFETY: the byte can be read, because it is borrowed.
    unsafe { std::ptr::from_ref(byte).read_volatile() };
}

/// As [`prefetch`], into the second-level cache: more lines can be under way there than to the first level, which has
/// buffers for some 16 or 24.
#[inline(always)]
pub fn prefetch_to_second_level(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHT1 never faults and changes nothing that a program can see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// As [`prefetch`], and takes the line away from other processors, so that it can be written at once.
#[inline(always)]
pub fn prefetch_to_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHW never faults and changes nothing that a program can see; where it does not exist it does
    // nothing. (The intrinsic compiles to PREFETCHT0 unless the whole program targets processors that have PREFETCHW.)
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The address of each line of `bytes` bytes, given that of the first byte, which begins a line.
#[inline(always)]
pub fn lines(start: *const u8, bytes: usize) -> impl Iterator<Item = *const u8> {
    (0..bytes).step_by(LINE).map(move |offset| start.wrapping_add(offset))
}

/// Evicts values from every cache to memory: all lines that contain a byte of them. The values do not change. Returns
/// when it is done.
///
/// Returns false, and does nothing, on a processor without an instruction for it.
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
                // SAFETY: a byte of this line belongs to the slice, so it can be read; clflushopt was checked above.
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

    /// Starts to evict a line; several such instructions run at the same time.
    ///
    /// Safety: the processor has the instruction, and the line is mapped and readable.
    unsafe fn clflushopt(address: usize) {
        // SAFETY: changes the place of the line, not its contents; the rest is the caller's promise.
        unsafe { asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags)) };
    }

    /// Evicts a line; these instructions run one after the other.
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
    fn evicted_values_do_not_change() {
        let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        let before = bytes.clone();
        let parts = [&bytes[..], &[], &bytes[1..2], &bytes[63..65], &bytes[99_999..]];
        assert_eq!(evict(parts), cfg!(target_arch = "x86_64"));
        evict([&[[7u64; 3]; 5][..], &[]]);
        evict([&[(); 5][..]]);
        assert_eq!(bytes, before);
    }
}

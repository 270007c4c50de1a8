//! Short copies for any processor.

/// Half a line, which is moved as a whole: the compiler splits it where registers are shorter.
#[cfg(target_arch = "x86_64")]
type Block = std::arch::x86_64::__m256i;
#[cfg(not(target_arch = "x86_64"))]
type Block = [u64; 4];

/// Bytes of a block: the minimum length of a short copy.
pub(crate) const BLOCK: usize = size_of::<Block>();

/// Maximum length of a short copy: the C library, whose registers may be longer, is quicker with more.
pub(crate) const REACH: usize = 2 * BLOCK;

/// Copies the first and the last block, which may overlap. Reads everything before it writes.
///
/// Safety: the source can be read and the destination written, and the length is from [`BLOCK`] to [`REACH`].
#[inline(always)]
pub(crate) unsafe fn copy(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: both blocks are within the length.
    unsafe {
        let (one, two) =
            (source.cast::<Block>().read_unaligned(), source.add(length - BLOCK).cast::<Block>().read_unaligned());
        destination.cast::<Block>().write_unaligned(one);
        destination.add(length - BLOCK).cast::<Block>().write_unaligned(two);
    }
}

//! Short copies for any processor.

/// Half a line, which is moved as a whole: the compiler splits it where registers are shorter.
#[cfg(target_arch = "x86_64")]
type Block = std::arch::x86_64::__m256i;
#[cfg(not(target_arch = "x86_64"))]
type Block = [u64; 4];

/// Bytes of a block: the minimum length of a short copy.
pub(crate) const BLOCK: usize = size_of::<Block>();

/// Bytes of a line.
pub(crate) const LINE: usize = 2 * BLOCK;

/// Copies the first and the last bytes, which may overlap: one, two or four blocks each. Reads everything before it
/// writes.
///
/// Safety: the source can be read and the destination written, and the length is from [`BLOCK`] to
/// [`REACH`](crate::REACH).
#[inline(always)]
pub(crate) unsafe fn copy(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: each branch accesses only the first and the last one, two or four blocks, which are within the length.
    unsafe {
        if length <= LINE {
            let (one, two) = (load(source), load(source.add(length - BLOCK)));
            store(destination, one);
            store(destination.add(length - BLOCK), two);
        } else if length <= 2 * LINE {
            let (one, two) = (load_line(source), load_line(source.add(length - LINE)));
            store_line(destination, one);
            store_line(destination.add(length - LINE), two);
        } else {
            let (one, two) = (load_line(source), load_line(source.add(LINE)));
            let last = length - 2 * LINE;
            let (three, four) = (load_line(source.add(last)), load_line(source.add(last + LINE)));
            store_line(destination, one);
            store_line(destination.add(LINE), two);
            store_line(destination.add(last), three);
            store_line(destination.add(last + LINE), four);
        }
    }
}

/// Safety: a block can be read.
#[inline(always)]
unsafe fn load(source: *const u8) -> Block {
    // SAFETY: the caller's promise.
    unsafe { source.cast::<Block>().read_unaligned() }
}

/// Safety: a block can be written.
#[inline(always)]
unsafe fn store(destination: *mut u8, block: Block) {
    // SAFETY: the caller's promise.
    unsafe { destination.cast::<Block>().write_unaligned(block) }
}

/// (Two blocks instead of an array, because arrays are moved through the stack.)
///
/// Safety: a line can be read.
#[inline(always)]
unsafe fn load_line(source: *const u8) -> (Block, Block) {
    // SAFETY: the caller's promise.
    unsafe { (load(source), load(source.add(BLOCK))) }
}

/// Safety: a line can be written.
#[inline(always)]
unsafe fn store_line(destination: *mut u8, line: (Block, Block)) {
    // SAFETY: the caller's promise.
    unsafe {
        store(destination, line.0);
        store(destination.add(BLOCK), line.1);
    }
}

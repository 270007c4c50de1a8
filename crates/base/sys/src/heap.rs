//! The heap of a process whose threads must not slow each other down, and which handles secrets.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;

/// Bytes of the lines that some processors fetch together.
const LINES: usize = 128;

/// The largest blocks that are zeroed, in bytes. Larger ones are tables, some of which are never touched as a whole, and
/// buffers that grow in their place; none of them has the texts of keys.
const MAX_ZEROED: usize = 1 << 20;

/// The system's allocator, with whole cache lines for each block: what one thread writes never shares a line with what
/// another one reads. Otherwise the order of allocations would decide whether two workers take a line from each other
/// with each packet.
///
/// Blocks of up to 1 MiB are zeroed when they are given back, also when they grow or shrink: texts and buffers of all
/// libraries may have been copies of a key.
///
/// ```
/// #[global_allocator]
/// static HEAP: bellows_sys::heap::WholeLines = bellows_sys::heap::WholeLines;
///
/// assert!(std::ptr::from_ref(&*Box::new(1u8)).addr().is_multiple_of(128));
/// ```
pub struct WholeLines;

/// The layout of the system's block around a block of this layout: whole lines, and room in front of them for the
/// address of the system's block. `None` if the block needs no room of ours, because its alignment is wider, or if that
/// exceeds the address space.
///
/// A system's allocator has lists of free blocks by size, but searches for one of an alignment.
fn around(layout: Layout) -> Option<Layout> {
    if layout.align() > LINES {
        return None;
    }
    let size = layout.size().checked_next_multiple_of(LINES)?.checked_add(LINES)?;
    Layout::from_size_align(size, align_of::<*mut u8>()).ok()
}

/// The first whole line in the system's block that does not begin with the block.
fn first_line(block: *mut u8) -> *mut u8 {
    block.wrapping_add(LINES - block.addr() % LINES)
}

/// The first whole line in the system's block, behind the address of that, which is written there.
///
/// # Safety
/// The block is null, or was allocated with a layout [around](around) that of ours, and belongs to the caller.
unsafe fn enter(block: *mut u8) -> *mut u8 {
    if block.is_null() {
        return block;
    }
    let start = first_line(block);
    // SAFETY: the block is aligned to an address and has a line more than is asked for. So the next line that does not
    // begin with the block has room in front for an address, and all asked for behind.
    unsafe { start.cast::<*mut u8>().sub(1).write(block) };
    start
}

// SAFETY: each block is within one of the system's, which has the layout around the caller's and nothing else but its own
// address in it; so a block is given back with the layout that it was allocated with. Blocks of a wider alignment are
// the system's own.
unsafe impl GlobalAlloc for WholeLines {
    // Not inlined, because the crate of a command that has this heap may be compiled without optimisation.

    #[inline(never)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; the size around is not 0.
        unsafe {
            match around(layout) {
                Some(around) => enter(System.alloc(around)),
                None => System.alloc(layout),
            }
        }
    }

    #[inline(never)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above. What is written is in front of the block.
        unsafe {
            match around(layout) {
                Some(around) => enter(System.alloc_zeroed(around)),
                None => System.alloc_zeroed(layout),
            }
        }
    }

    #[inline(never)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise: the block was allocated with this layout, so it has this size, and the address in
        // front of it is that of the system's block, which has the layout around.
        unsafe {
            if layout.size() <= MAX_ZEROED {
                block.write_bytes(0, layout.size());
                // The compiler must not leave out what is written to a block that is given back.
                black_box(block);
            }
            match around(layout) {
                Some(around) => System.dealloc(block.cast::<*mut u8>().sub(1).read(), around),
                None => System.dealloc(block, layout),
            }
        }
    }

    /// A large block is left to the system, to grow in its place or to move its pages instead of its contents. Of others
    /// no copy may stay.
    #[inline(never)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.size() <= MAX_ZEROED {
            let Ok(new) = Layout::from_size_align(size, layout.align()) else { return std::ptr::null_mut() };
            // SAFETY: the caller's promise: the block was allocated with this layout, and the size is not 0. Both blocks
            // have the bytes that are copied, and are different ones.
            unsafe {
                let moved = self.alloc(new);
                if !moved.is_null() {
                    moved.copy_from_nonoverlapping(block, layout.size().min(size));
                    self.dealloc(block, layout);
                }
                return moved;
            }
        }
        let Some(old) = around(layout) else {
            // SAFETY: the caller's promise; the block is the system's own.
            return unsafe { System.realloc(block, layout, size) };
        };
        let new = Layout::from_size_align(size, layout.align()).ok().and_then(around);
        let Some(new) = new else { return std::ptr::null_mut() };
        // SAFETY: the caller's promise: the address in front of the block is that of the system's block, which has the
        // layout around. In the new one, which has at least as many bytes behind its first whole line as are asked for,
        // the contents are as far from the start as before, at most a line. They are moved to that whole line before
        // the address is written in front of it, where contents may have been.
        unsafe {
            let start = block.cast::<*mut u8>().sub(1).read();
            let distance = block.addr() - start.addr();
            let moved = System.realloc(start, old, new.size());
            if moved.is_null() {
                return moved;
            }
            let contents = moved.add(distance);
            if contents != first_line(moved) {
                contents.copy_to(first_line(moved), layout.size().min(size));
            }
            enter(moved)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use proptest::prelude::*;

    use super::*;

    /// Whether memory that may have been given back has this pattern, as the kernel reads it into a buffer.
    fn has(pattern: &[u8], address: usize, size: usize, buffer: &mut [u8]) -> bool {
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        // The pages of a large block are gone.
        memory.read_exact_at(&mut buffer[..size], address as u64).is_ok()
            && buffer[..size].windows(pattern.len()).any(|it| it == pattern)
    }

    /// Frees, grows and shrinks blocks, and looks at the memory that they had. Beyond what is zeroed the pattern is found:
    /// the test can fail.
    #[test]
    fn blocks_are_zeroed_when_they_are_given_back() {
        let pattern: Vec<u8> = (0..16).map(|at| 0xc3 ^ (at * 17)).collect();
        let mut buffer = vec![0; 4 << 20];
        let mut has = |address, size| has(&pattern, address, size, &mut buffer);
        let all = [40, 100, 1_000, 5_000, 70_000, 1 << 20];
        for (size, align) in all.into_iter().flat_map(|size| [(size, 1), (size, 4_096)]) {
            let layout = Layout::from_size_align(size, align).unwrap();
            for to in [0, size / 2 + 1, size + 1, size * 3] {
                // SAFETY: the size is not 0, the pattern fits, and the block is given back with its layout.
                unsafe {
                    let block = WholeLines.alloc(layout);
                    let address = block.addr();
                    for start in [0, size - pattern.len()] {
                        block.add(start).copy_from_nonoverlapping(pattern.as_ptr(), pattern.len());
                    }
                    assert!(has(address, size));
                    if to == 0 {
                        WholeLines.dealloc(block, layout);
                        assert!(!has(address, size), "{size}, {align}");
                        continue;
                    }
                    let moved = WholeLines.realloc(block, layout, to);
                    assert!(has(moved.addr(), to.min(size)));
                    assert!(moved == block || !has(address, size), "{size} to {to}, {align}");
                    WholeLines.dealloc(moved, Layout::from_size_align(to, align).unwrap());
                }
            }
        }
    }

    proptest! {
        /// Blocks are whole lines, have room for what was asked for, and keep their contents when they grow or shrink.
        #[test]
        fn blocks_are_whole_lines(sizes in prop::collection::vec(1usize..3_000, 1..40), align in 0u32..9) {
            let align = 1 << align;
            let mut blocks: Vec<(*mut u8, Layout, u8)> = Vec::new();
            for (number, &size) in sizes.iter().enumerate() {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the size is not 0, and `size` bytes are written and read of a block with at least as many.
                unsafe {
                    let block = if number % 2 == 0 { WholeLines.alloc(layout) } else { WholeLines.alloc_zeroed(layout) };
                    prop_assert!(!block.is_null() && block.addr().is_multiple_of(LINES.max(align)));
                    prop_assert!(number % 2 == 0 || (0..size).all(|at| *block.add(at) == 0));
                    block.write_bytes(number as u8, size);
                    blocks.push((block, layout, number as u8));
                }
            }
            let mut lines: Vec<_> = blocks.iter().map(|(block, layout, _)| {
                let start = block.addr() / LINES;
                start..start + layout.size().div_ceil(LINES)
            }).collect();
            lines.sort_by_key(|lines| lines.start);
            prop_assert!(lines.is_sorted_by(|one, next| one.end <= next.start));
            for (block, layout, byte) in blocks {
                // Also beyond the size from which on the system maps pages for a block alone.
                let factor = if layout.size() % 64 == 0 { 200 } else { 3 };
                let size = if layout.size() % 2 == 0 { layout.size() * factor } else { layout.size() / 2 + 1 };
                // SAFETY: the block was allocated with this layout, and is given back with that of its new size.
                unsafe {
                    let block = WholeLines.realloc(block, layout, size);
                    prop_assert!(block.addr().is_multiple_of(LINES.max(align)));
                    prop_assert!((0..size.min(layout.size())).all(|at| *block.add(at) == byte));
                    let layout = Layout::from_size_align(size, align).unwrap();
                    // All of it can be written, without harm to what is in front of it.
                    block.write_bytes(byte, size);
                    let block = WholeLines.realloc(block, layout, size * 2);
                    prop_assert!((0..size).all(|at| *block.add(at) == byte));
                    WholeLines.dealloc(block, Layout::from_size_align(size * 2, align).unwrap());
                }
            }
        }
    }
}

//! The heap of a process whose threads must not slow each other down.

use std::alloc::{GlobalAlloc, Layout, System};

/// Bytes of the lines that some processors fetch together.
const LINES: usize = 128;

/// The system's allocator, with whole cache lines for each block: what one thread writes never shares a line with what
/// another one reads. Otherwise the order of allocations would decide whether two workers take a line from each other
/// with each packet.
///
/// ```
/// #[global_allocator]
/// static HEAP: bellows_sys::heap::WholeLines = bellows_sys::heap::WholeLines;
///
/// assert!(std::ptr::from_ref(&*Box::new(1u8)).addr().is_multiple_of(128));
/// ```
pub struct WholeLines;

/// The layout in whole lines; as it is if that exceeds the address space.
fn whole_lines(layout: Layout) -> Layout {
    layout.align_to(LINES).map_or(layout, |aligned| aligned.pad_to_align())
}

// SAFETY: every call goes to the system's allocator, with a layout that contains the caller's, and is the same for the
// same layout: so a block is given back with the layout that it was allocated with. `realloc` is the trait's own, which
// allocates, copies and gives back through these.
unsafe impl GlobalAlloc for WholeLines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; the size is not 0, because that of `layout` is not.
        unsafe { System.alloc(whole_lines(layout)) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(whole_lines(layout)) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise, and the block was allocated with this layout, see above.
        unsafe { System.dealloc(block, whole_lines(layout)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
                let size = layout.size() / 2 + 1;
                // SAFETY: the block was allocated with this layout, and is given back with that of its new size.
                unsafe {
                    let block = WholeLines.realloc(block, layout, size);
                    prop_assert!((0..size.min(layout.size())).all(|at| *block.add(at) == byte));
                    WholeLines.dealloc(block, Layout::from_size_align(size, align).unwrap());
                }
            }
        }
    }
}

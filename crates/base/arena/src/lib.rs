//! Memory at the same place in every process.
//!
//! The cost of a loop depends on the addresses of its tables, vectors and lists of free buffers: which cache sets they
//! share, and how many pages they cover. A general allocator places them differently in each process. Here blocks are
//! allocated one after the other, in whole pages, from a reservation that begins at a huge page: a program that
//! allocates the same blocks in the same order finds each at the same place in its huge page.
//!
//! Blocks are allocated when vectors, magazines and tables are created, which is rare: one lock protects everything.
//!
//! On a machine with several memory nodes, a thread may have a [node](set_node): then its blocks come from a reservation
//! on that node.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZero;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use bellows_sys::cache::LINE;
use bellows_sys::memory::Reservation;
use bellows_sys::numa;
use bellows_sys::switches::NO_ARENA;

/// Blocks begin and end at multiples of this.
const PAGE: usize = 4096;

/// Address space reserved at a time. Not more, because huge pages from the system's reserve are taken at once.
const STEP: usize = 16 << 20;

/// Longer blocks get their own reservation, so that little of one is wasted when the next is made.
const MAX_SHARED_BLOCK: usize = STEP / 4;

static ARENA: LazyLock<Mutex<Arena>> = LazyLock::new(|| Mutex::new(Arena::new()));

thread_local! {
    /// The memory node of the thread's blocks; by default they are wherever they are first touched.
    static NODE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// From now on the calling thread's blocks are on this memory node, as long as it has memory. Has no effect on a machine
/// with one node.
pub fn set_node(node: Option<usize>) {
    NODE.set(node.filter(|_| numa::are_several()));
}

/// The calling thread's memory node.
pub fn node() -> Option<usize> {
    NODE.get()
}

/// Allocates what `make` allocates on a memory node, for a worker there. With `None`, as the calling thread does anyway.
pub fn on_node<T>(node: Option<usize>, make: impl FnOnce() -> T) -> T {
    /// The node comes back even if there is a panic.
    struct NodeGuard(Option<usize>);
    impl Drop for NodeGuard {
        fn drop(&mut self) {
            NODE.set(self.0);
        }
    }
    let _before = NodeGuard(NODE.get());
    if node.is_some() {
        set_node(node);
    }
    make()
}

fn arena() -> MutexGuard<'static, Arena> {
    ARENA.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Converts an address in a reservation, the arena's or another one, to a pointer.
///
/// The code that makes the reservation exposes its provenance.
///
/// # Safety
/// The address is not 0.
#[inline(always)]
pub unsafe fn pointer(address: usize) -> NonNull<u8> {
    let pointer = std::ptr::with_exposed_provenance_mut::<u8>(address);
    debug_assert!(!pointer.is_null());
    // SAFETY: the caller's promise.
    unsafe { NonNull::new_unchecked(pointer) }
}

/// Allocates a zeroed block of at least `size` bytes, which must not be 0, at the start of a page.
///
/// Like an allocator it never unwinds: a caller with packets in registers needs no unwind path for them.
#[cold]
#[inline(never)]
pub extern "C" fn take(size: usize) -> NonNull<u8> {
    let length = length(size);
    let taken = arena().take(length);
    let Some(ArenaBlock { address, used }) = taken else { return take_from_allocator(size) };
    // SAFETY: blocks are in mappings, none of which begins at 0.
    let block = unsafe { pointer(address) };
    if used {
        // SAFETY: the arena gave these `length` bytes of a mapping to this caller alone.
        unsafe { block.write_bytes(0, length) };
    }
    block
}

fn take_from_allocator(size: usize) -> NonNull<u8> {
    let Ok(layout) = Layout::from_size_align(size, PAGE) else { handle_alloc_error(Layout::new::<[u8; PAGE]>()) };
    // SAFETY: the size is not 0.
    NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Frees a block. Never unwinds, as above.
///
/// # Safety
/// The block came from [`take`] with this size, has not been freed, and is not used any more.
#[cold]
#[inline(never)]
pub unsafe extern "C" fn give(block: NonNull<u8>, size: usize) {
    let address = block.addr().get();
    let mut arena = arena();
    if let Some(space) = arena.owner(address) {
        return space.blocks.give(address, length(size));
    }
    drop(arena);
    // SAFETY: a block outside the reservations came from take_from_allocator(), with this layout.
    unsafe { dealloc(block.as_ptr(), Layout::from_size_align_unchecked(size, PAGE)) };
}

/// The length of the block for `size` bytes: whole pages, in steps of at most a quarter.
///
/// Not powers of two: then vectors, of a little more than four pages, would be eight pages apart, and those of a long
/// chain would share an eighth of the second-level cache.
fn length(size: usize) -> usize {
    let pages = size.div_ceil(PAGE);
    pages.next_multiple_of((pages.next_power_of_two() / 8).max(1)) * PAGE
}

struct Arena {
    /// The first is wherever it is first touched.
    spaces: Vec<Space>,
    /// Whether every block comes from the global allocator, which memory checkers watch.
    off: bool,
}

impl Arena {
    fn new() -> Arena {
        Arena { spaces: vec![Space::default()], off: NO_ARENA.is_set() }
    }

    /// A block on the thread's node. `None` if the system has no memory of this kind.
    fn take(&mut self, length: usize) -> Option<ArenaBlock> {
        if self.off {
            return None;
        }
        let node = NODE.get();
        let place = self.spaces.iter().position(|space| space.node == node).unwrap_or_else(|| {
            self.spaces.push(Space { node, ..Space::default() });
            self.spaces.len() - 1
        });
        self.spaces[place].take(length)
    }

    /// The space that a block is in.
    fn owner(&mut self, address: usize) -> Option<&mut Space> {
        self.spaces.iter_mut().find(|space| space.owns(address))
    }

    fn owns(&self, address: usize) -> bool {
        self.spaces.iter().any(|space| space.owns(address))
    }
}

/// The blocks on one memory node.
#[derive(Default)]
struct Space {
    node: Option<usize>,
    blocks: Blocks,
    reservations: Vec<Reservation>,
}

impl Space {
    fn take(&mut self, length: usize) -> Option<ArenaBlock> {
        self.blocks.take(length).or_else(|| self.reserve(length))
    }

    /// Makes a reservation and allocates its first block.
    fn reserve(&mut self, length: usize) -> Option<ArenaBlock> {
        let shared = length <= MAX_SHARED_BLOCK;
        let reservation = Reservation::new(if shared { STEP } else { length }).ok()?;
        if let Some(node) = self.node {
            // Memory elsewhere is slower, but it works.
            let _ = reservation.prefer_node(0..reservation.length(), node);
        }
        let start = reservation.start().as_ptr().expose_provenance();
        if shared {
            self.blocks.fresh = start + length..start + reservation.length();
        }
        self.reservations.push(reservation);
        Some(ArenaBlock { address: start, used: false })
    }

    fn owns(&self, address: usize) -> bool {
        self.reservations.iter().any(|reservation| {
            let start = reservation.start().addr().get();
            (start..start + reservation.length()).contains(&address)
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct ArenaBlock {
    address: usize,
    /// Whether it was used before; if not, it is zeroed.
    used: bool,
}

/// The free addresses, which alone decide the place of a block.
#[derive(Default)]
struct Blocks {
    /// Never allocated yet.
    fresh: Range<usize>,
    /// Freed, by length; the last freed is reused first.
    free: BTreeMap<usize, Vec<usize>>,
}

impl Blocks {
    fn take(&mut self, length: usize) -> Option<ArenaBlock> {
        if let Some(address) = self.free.get_mut(&length).and_then(Vec::pop) {
            return Some(ArenaBlock { address, used: true });
        }
        let address = self.fresh.start;
        (length <= self.fresh.len()).then(|| self.fresh.start += length)?;
        Some(ArenaBlock { address, used: false })
    }

    fn give(&mut self, address: usize, length: usize) {
        self.free.entry(length).or_default().push(address);
    }
}

/// Offset of a small block's contents in its page (cache colouring), a multiple of their alignment.
///
/// Blocks begin at pages; if all small contents began there, too, they would share a few sets of the first-level cache.
/// The contents of each page begin seven lines later than those of the page before, with a period of 32 pages. A block
/// from the global allocator has no room for that.
fn colour(block: NonNull<u8>, size: usize, align: usize) -> usize {
    let address = block.addr().get();
    if size > PAGE / 2 || !arena().owns(address) { 0 } else { address / PAGE * 7 % 32 * LINE / align * align }
}

/// A value or a slice at a fixed address: in a block of the arena.
///
/// It is owned and dropped like the contents of a [`Box`], with two differences. It is at the same place of a huge page
/// in every process that creates the same vectors and `Fixed` values in the same order. And moving the owner does not
/// move the contents: pointers from [`Fixed::pointer`] stay valid until the owner is dropped. So generated code can
/// contain the address.
///
/// ```
/// use bellows_arena::Fixed;
///
/// let squares: Fixed<[u64]> = (0..100).map(|number| number * number).collect();
/// let place = Fixed::pointer(&squares);
/// let moved = Box::new(squares);
/// assert_eq!(moved[9], 81);
/// assert_eq!(Fixed::pointer(&moved), place);
/// assert_eq!(place.cast::<u8>().addr().get() % 64, 0);
/// ```
///
/// A type with an alignment of more than a page is a compile-time error:
///
/// ```compile_fail
/// #[repr(align(8192))]
/// struct TwoPages([u8; 8192]);
///
/// bellows_arena::Fixed::new(TwoPages([0; 8192]));
/// ```
///
/// Each takes at least a page; a slice without elements, or with zero-sized elements, takes none.
pub struct Fixed<T: ?Sized> {
    content: NonNull<T>,
    _owned: PhantomData<T>,
}

// SAFETY: the content is owned as by a box, and blocks can be given back on any thread.
unsafe impl<T: ?Sized + Send> Send for Fixed<T> {}
// SAFETY: through a shared reference there is only a shared reference to the content.
unsafe impl<T: ?Sized + Sync> Sync for Fixed<T> {}

impl<T> Fixed<T> {
    /// Moves a value into the arena.
    pub fn new(value: T) -> Fixed<T> {
        let content = place::<T>(1);
        // SAFETY: the block is large enough and aligned for one T and holds none yet.
        unsafe { content.write(value) };
        Fixed { content, _owned: PhantomData }
    }

    /// A value of zeros.
    ///
    /// # Safety
    /// All bytes zero must be a valid `T`.
    pub unsafe fn zeroed() -> Fixed<T> {
        Fixed { content: place::<T>(1), _owned: PhantomData }
    }
}

impl<T: ?Sized> Fixed<T> {
    /// Address of the contents, valid until `this` is dropped.
    ///
    /// Accesses through the pointer must respect existing references: none while there is a `&mut T` from [`DerefMut`],
    /// no write while there is a `&T`.
    pub fn pointer(this: &Fixed<T>) -> NonNull<T> {
        this.content
    }
}

/// Zeroed memory for `count` values; if they have no size, only an aligned address.
fn place<T>(count: usize) -> NonNull<T> {
    const { assert!(align_of::<T>() <= PAGE, "blocks begin at pages") };
    match size_of::<T>() * count {
        0 => NonNull::without_provenance(const { NonZero::new(PAGE).unwrap() }),
        size => {
            let block = take(size);
            // SAFETY: a block of the arena is at least a page, and a small one's contents end before the page does.
            unsafe { block.add(colour(block, size, align_of::<T>())).cast() }
        }
    }
}

impl<T> From<Vec<T>> for Fixed<[T]> {
    fn from(mut values: Vec<T>) -> Fixed<[T]> {
        let (count, first) = (values.len(), place::<T>(values.len()));
        // SAFETY: the values are moved into memory that has room for them (a vector's size does not overflow), and the
        // vector no longer owns them.
        unsafe {
            first.copy_from_nonoverlapping(NonNull::new_unchecked(values.as_mut_ptr()), count);
            values.set_len(0);
        }
        Fixed { content: NonNull::slice_from_raw_parts(first, count), _owned: PhantomData }
    }
}

impl<T> FromIterator<T> for Fixed<[T]> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Fixed<[T]> {
        values.into_iter().collect::<Vec<T>>().into()
    }
}

impl<T: ?Sized> Deref for Fixed<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the contents are valid until drop, and borrowed as the owner is.
        unsafe { self.content.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for Fixed<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, exclusively.
        unsafe { self.content.as_mut() }
    }
}

impl<T: ?Sized> Drop for Fixed<T> {
    #[inline(always)]
    fn drop(&mut self) {
        let size = size_of_val(&**self);
        // SAFETY: the contents are dropped once, here, and not used afterwards; the block was allocated with this size,
        // and none for the size 0.
        unsafe {
            self.content.drop_in_place();
            if size > 0 {
                let content = self.content.cast::<u8>();
                give(content.sub(content.addr().get() % PAGE), size);
            }
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Fixed<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::rc::Rc;

    /// Allocates a block of `size` bytes, or frees an allocated one.
    #[derive(Clone, Debug)]
    enum Step {
        Take(usize),
        Give(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (1usize..9 * PAGE).prop_map(Step::Take),
            2 => any::<usize>().prop_map(Step::Give),
        ];
        vec(step, 1..80)
    }

    /// The free blocks in the order in which they were freed, and the start of the untouched addresses.
    #[derive(Default)]
    struct Model {
        free: Vec<(usize, usize)>,
        next: usize,
    }

    impl Model {
        fn take(&mut self, length: usize) -> ArenaBlock {
            if let Some(last) = self.free.iter().rposition(|block| block.1 == length) {
                return ArenaBlock { address: self.free.remove(last).0, used: true };
            }
            self.next += length;
            ArenaBlock { address: self.next - length, used: false }
        }
    }

    const SPACE: usize = 40 * PAGE;

    proptest! {
        /// Wherever the space begins, the same requests get the same places in it, those of a naive list.
        #[test]
        fn places_follow_from_the_requests(steps in steps(), base in 0usize..1 << 30) {
            let base = base * PAGE;
            let mut blocks = Blocks { fresh: base..base + SPACE, ..Blocks::default() };
            let (mut model, mut taken) = (Model::default(), Vec::new());
            for step in steps {
                match step {
                    Step::Take(size) => {
                        let length = length(size);
                        let Some(block) = blocks.take(length) else {
                            prop_assert!(model.next + length > SPACE);
                            prop_assert!(model.free.iter().all(|free| free.1 != length));
                            continue;
                        };
                        let place = ArenaBlock { address: block.address - base, ..block };
                        prop_assert_eq!(place, model.take(length));
                        prop_assert_eq!(place.address % PAGE, 0);
                        prop_assert!(place.address + length <= SPACE);
                        prop_assert!(taken.iter().all(|&(other, end)| place.address >= end || place.address + length <= other));
                        taken.push((place.address, place.address + length));
                    }
                    Step::Give(which) if !taken.is_empty() => {
                        let (place, end) = taken.swap_remove(which % taken.len());
                        blocks.give(base + place, end - place);
                        model.free.push((place, end - place));
                    }
                    Step::Give(_) => {}
                }
            }
        }

        /// Blocks begin at pages, are zeroed whatever their last owner left, and belong to one owner at a time.
        #[test]
        fn blocks_are_zeroed_and_exclusive(steps in steps()) {
            let mut taken: Vec<(NonNull<u8>, usize, u8)> = Vec::new();
            // SAFETY: only for blocks that are taken, with the size that they were taken with.
            let bytes = |block: NonNull<u8>, size| unsafe { std::slice::from_raw_parts_mut(block.as_ptr(), size) };
            for (number, step) in steps.into_iter().chain((0..80).map(|_| Step::Give(0))).enumerate() {
                match step {
                    Step::Take(size) => {
                        let block = take(size);
                        prop_assert_eq!(block.addr().get() % PAGE, 0);
                        prop_assert!(bytes(block, size).iter().all(|&byte| byte == 0));
                        bytes(block, size).fill(number as u8 | 0x80);
                        taken.push((block, size, number as u8 | 0x80));
                    }
                    Step::Give(which) if !taken.is_empty() => {
                        let (block, size, mark) = taken.swap_remove(which % taken.len());
                        prop_assert!(bytes(block, size).iter().all(|&byte| byte == mark));
                        // SAFETY: taken above, and removed from the list of those taken.
                        unsafe { give(block, size) };
                    }
                    Step::Give(_) => {}
                }
            }
        }

        /// A block is at most a quarter longer than necessary, beyond whole pages.
        #[test]
        fn lengths_are_whole_pages_and_little_is_wasted(size in 1usize..1 << 40) {
            let (length, pages) = (length(size), size.next_multiple_of(PAGE));
            prop_assert!(length % PAGE == 0 && length >= size);
            prop_assert!(length - pages < pages / 4 + PAGE);
        }

        /// A table contains what a vector contains, drops each element once, and can be changed in place.
        #[test]
        fn tables_have_the_contents_of_vectors(numbers in vec(any::<u32>(), 0..3_000)) {
            let alive = Rc::new(());
            let mut table: Fixed<[(u32, Rc<()>)]> = numbers.iter().map(|&number| (number, Rc::clone(&alive))).collect();
            prop_assert_eq!(Rc::strong_count(&alive), numbers.len() + 1);
            table.iter_mut().for_each(|entry| entry.0 ^= 1);
            let expected: Vec<u32> = numbers.iter().map(|number| number ^ 1).collect();
            prop_assert_eq!(table.iter().map(|entry| entry.0).collect::<Vec<_>>(), expected);
            drop(table);
            prop_assert_eq!(Rc::strong_count(&alive), 1);
        }
    }

    #[test]
    fn a_block_longer_than_a_reservation_gets_its_own() {
        let mut arena = Arena { off: false, ..Arena::new() };
        let first = arena.take(PAGE).unwrap();
        let long = arena.take(2 * STEP).unwrap();
        let second = arena.take(PAGE).unwrap();
        assert_eq!((second.address - first.address, arena.spaces[0].reservations.len()), (PAGE, 2));
        arena.spaces[0].blocks.give(long.address, 2 * STEP);
        assert_eq!(arena.take(2 * STEP), Some(ArenaBlock { used: true, ..long }));
    }

    #[test]
    fn a_spent_reservation_is_followed_by_another() {
        let mut arena = Arena { off: false, ..Arena::new() };
        let blocks: Vec<ArenaBlock> = (0..9).map(|_| arena.take(MAX_SHARED_BLOCK).unwrap()).collect();
        assert_eq!(arena.spaces[0].reservations.len(), 3);
        assert!(blocks.iter().all(|block| arena.owns(block.address) && !block.used));
    }

    #[test]
    fn each_node_has_blocks_of_its_own_and_gets_them_back() {
        let mut arena = Arena { off: false, ..Arena::new() };
        // A machine with one node has no others.
        let mut on = |node| {
            NODE.set(node);
            arena.take(PAGE).unwrap().address
        };
        let (anywhere, first, second) = (on(None), on(Some(0)), on(Some(1)));
        assert_eq!((on(None) - anywhere, on(Some(0)) - first, on(Some(1)) - second), (PAGE, PAGE, PAGE));
        NODE.set(None);
        arena.owner(second).unwrap().blocks.give(second, PAGE);
        assert!(arena.take(PAGE).unwrap().address != second);
        NODE.set(Some(1));
        assert_eq!(arena.take(PAGE), Some(ArenaBlock { address: second, used: true }));
        NODE.set(None);
        on_node(Some(7), || assert_eq!(NODE.get(), Some(7).filter(|_| numa::are_several())));
        assert_eq!(NODE.get(), None);
    }

    #[test]
    fn without_reservations_blocks_come_from_the_allocator() {
        let mut arena = Arena { off: true, ..Arena::new() };
        assert_eq!(arena.take(PAGE), None);
        let block = take_from_allocator(5);
        assert_eq!(block.addr().get() % PAGE, 0);
        assert!(!super::arena().owns(block.addr().get()));
        // SAFETY: taken above with this size.
        unsafe { give(block, 5) };
    }

    #[test]
    fn zero_sized_values_take_no_memory_and_are_dropped() {
        thread_local! { static DROPPED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) } }
        struct Empty;
        impl Drop for Empty {
            fn drop(&mut self) {
                DROPPED.set(DROPPED.get() + 1);
            }
        }
        drop(Fixed::from_iter([Empty, Empty]));
        drop(Fixed::new(Empty));
        assert_eq!(DROPPED.get(), 3);
        let none: Fixed<[String]> = Vec::new().into();
        assert!(none.is_empty());
    }

    #[test]
    fn one_value_of_any_alignment_can_be_fixed() {
        #[repr(align(4096))]
        #[derive(Debug, PartialEq)]
        struct Page([u8; 4096]);
        let mut page = Fixed::new(Page([7; 4096]));
        page.0[0] = 8;
        assert_eq!((page.0[0], page.0[4095]), (8, 7));
        #[repr(align(256))]
        struct Lines([u8; 256]);
        let small: Vec<Fixed<Lines>> = (0..32).map(|_| Fixed::new(Lines([1; 256]))).collect();
        assert!(small.iter().all(|lines| Fixed::pointer(lines).is_aligned() && lines.0 == [1; 256]));
        assert_eq!(format!("{:?}", Fixed::new("text")), "\"text\"");
    }

    #[test]
    fn a_table_can_be_dropped_by_another_thread() {
        let table: Fixed<[String]> = ["a", "b"].map(str::to_owned).into_iter().collect();
        let joined = std::thread::spawn(move || table.concat()).join().unwrap();
        assert_eq!(joined, "ab");
    }
}

//! A device's record of unfinished work, so that its successor can continue (vhost-user, "Inflight I/O tracking").
//!
//! Our rings keep no descriptor between two batches, so the record is only the position of the device. A split ring
//! itself contains the position. On a packed ring only the device knows it, and it gives a batch back with many stores:
//! first the used descriptors after the first one, and then the first one, which makes all of them visible to the
//! driver. A device that is killed between two of these stores leaves descriptors that are neither available nor used.
//! So before the first store, all used descriptors of the batch are recorded in their entries, and one store of eight
//! bytes records that there is such a batch. A successor that finds one, with the first descriptor unchanged since the
//! driver wrote it, writes the batch again and continues after it.
//!
//! The layout of the region is that of the specification, one part for each queue: a header, then an entry for each
//! descriptor.
//!
//! | offset | split | packed |
//! |---|---|---|
//! | 0 | features (8) | features (8) |
//! | 8 | version (2) | version (2) |
//! | 10 | number of descriptors (2) | number of descriptors (2) |
//! | 12 | head of the last batch (2) | first free entry (2) |
//! | 14 | used index (2) | first free entry, before the batch (2) |
//! | 16 | entries of 16 bytes | used index (2) |
//! | 18 | | used index, before the batch (2) |
//! | 20 | | wrap counter (1), and before the batch (1), padding |
//! | 32 | | entries of 32 bytes: used in the batch (1), at 16 the used descriptor's id (2), flags (2) and length (4) |

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU64, Ordering};

use bellows_ipc::mapping::{PeerMemory, SharedMapping};
use bellows_ipc::memfd;

use crate::Features;
use crate::position::Position;

/// Alignment of the parts.
const ALIGNMENT: u64 = 64;
const SPLIT_HEADER: u64 = 16;
const SPLIT_ENTRY: u64 = 16;
const PACKED_HEADER: u64 = 32;
const PACKED_ENTRY: u64 = 32;

const VERSION: usize = 8;
const COUNT: usize = 10;
const SPLIT_USED: usize = 14;
const FREE: usize = 12;
const OLD_FREE: usize = 14;
/// Used index and wrap counter, and those before the batch: eight bytes that are written at once.
const USED: usize = 16;

/// In an entry: whether the batch has a used descriptor there, and its second word.
const ENTRY_USED: usize = 0;
const ENTRY_WORD: usize = 16;

/// In the flags of a packed descriptor.
const AVAIL_FLAG: u16 = 1 << 7;
const USED_FLAG: u16 = 1 << 15;

/// Maximum length of a region: the maximum number of queues, with the maximum number of descriptors each.
const MAX_LENGTH: u64 = 1 << 37;

/// The region of all queues.
#[derive(Debug)]
pub struct InflightRegion {
    mapping: SharedMapping,
    queues: u16,
    queue_size: u16,
    /// Bytes for each queue.
    part: u64,
}

impl InflightRegion {
    /// Bytes of a region for either ring format.
    pub fn length(queues: u16, queue_size: u16) -> u64 {
        part(true, queue_size) * u64::from(queues)
    }

    /// Creates the file of an empty region.
    ///
    /// # Errors
    /// Those of `memfd_create(2)`.
    pub fn create(queues: u16, queue_size: u16) -> io::Result<File> {
        memfd::sealed(InflightRegion::length(queues, queue_size))
    }

    /// Maps a region of a memory file.
    ///
    /// # Errors
    /// `InvalidInput` if it has no queues, is too small for its queues, longer than the maximum or outside its file;
    /// and the errors of `mmap(2)`.
    pub fn map(file: &File, offset: u64, length: u64, queues: u16, queue_size: u16) -> io::Result<InflightRegion> {
        InflightRegion::of(&PeerMemory::default(), file, offset, length, queues, queue_size)
    }

    /// Maps a region that a peer has sent.
    ///
    /// # Errors
    /// The errors of [`map`](InflightRegion::map) and [`PeerMemory`].
    pub fn of(
        peer: &PeerMemory,
        file: &File,
        offset: u64,
        length: u64,
        queues: u16,
        queue_size: u16,
    ) -> io::Result<InflightRegion> {
        let refuse = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        if queues == 0 || queue_size == 0 {
            return refuse(format!("a region cannot have {queues} queues of {queue_size} descriptors"));
        }
        let file = peer.check(file)?;
        let there = file.length();
        if offset.checked_add(length).is_none_or(|end| end > there) || !offset.is_multiple_of(8) {
            return refuse(format!("the region is {length} bytes at {offset}, but its file has {there} bytes"));
        }
        if length > MAX_LENGTH {
            return refuse(format!("the region is {length} bytes, but the maximum is {MAX_LENGTH}"));
        }
        let part_length = length / u64::from(queues) / ALIGNMENT * ALIGNMENT;
        if part_length < part(false, queue_size) {
            return refuse(format!("{length} bytes are too few for {queues} queues of {queue_size} descriptors"));
        }
        Ok(InflightRegion { mapping: file.map(offset, length)?, queues, queue_size, part: part_length })
    }
}

/// Bytes for one queue.
fn part(packed: bool, queue_size: u16) -> u64 {
    let (header, entry) = if packed { (PACKED_HEADER, PACKED_ENTRY) } else { (SPLIT_HEADER, SPLIT_ENTRY) };
    (header + entry * u64::from(queue_size)).next_multiple_of(ALIGNMENT)
}

/// Access of a successor to the ring itself.
pub trait RingAccess {
    /// The used index of a split ring.
    fn used_index(&self) -> Option<u16>;

    /// The flags of a descriptor of a packed ring.
    fn flags(&self, index: u16) -> Option<u16>;

    /// Writes the second word of a used descriptor: length, id, flags (specification, 2.8.8).
    fn write_used(&self, index: u16, word: u64);
}

/// The position in a packed ring: descriptor and wrap counter, before and after the batch that is being given back;
/// equal if there is none.
struct Progress {
    old: (u16, bool),
    new: (u16, bool),
}

impl Progress {
    fn read(word: u64) -> Progress {
        let [a, b, c, d, wrap, old_wrap, ..] = word.to_ne_bytes();
        Progress {
            old: (u16::from_ne_bytes([c, d]), old_wrap & 1 == 1),
            new: (u16::from_ne_bytes([a, b]), wrap & 1 == 1),
        }
    }

    fn word(self) -> u64 {
        let ([a, b], [c, d]) = (self.new.0.to_ne_bytes(), self.old.0.to_ne_bytes());
        u64::from_ne_bytes([a, b, c, d, self.new.1.into(), self.old.1.into(), 0, 0])
    }
}

/// Offset of the entry of a descriptor of a packed ring.
fn entry(index: u16) -> usize {
    (PACKED_HEADER + u64::from(index) * PACKED_ENTRY) as usize
}

fn following(index: u16, size: u16) -> u16 {
    if index + 1 < size { index + 1 } else { 0 }
}

/// For tests: ends a device between two stores.
pub mod kill {
    #[cfg(debug_assertions)]
    thread_local! {
        static LEFT: std::cell::Cell<Option<usize>> = const { std::cell::Cell::new(None) };
    }

    /// Makes a device on this thread panic after this number of stores; only stores that matter to a successor count.
    #[cfg(debug_assertions)]
    pub fn after(stores: Option<usize>) {
        LEFT.set(stores);
    }

    /// Called before such a store. Does nothing in builds without debug assertions.
    #[inline(always)]
    pub(crate) fn point() {
        #[cfg(debug_assertions)]
        if let Some(left) = LEFT.get() {
            assert!(left > 0, "killed by a test");
            LEFT.set(Some(left - 1));
        }
    }
}

/// The part of one queue.
#[derive(Debug)]
pub struct Inflight {
    region: Arc<InflightRegion>,
    start: usize,
    packed: bool,
}

impl Inflight {
    /// The part of a queue for a ring with these features and this size; `None` if the region has no such part or one
    /// that is too small.
    pub fn new(region: &Arc<InflightRegion>, queue: usize, features: Features, size: u16) -> Option<Inflight> {
        let packed = features.has(Features::RING_PACKED);
        let fits = queue < region.queues.into() && size <= region.queue_size && part(packed, size) <= region.part;
        let start = queue * region.part as usize;
        fits.then(|| Inflight { region: Arc::clone(region), start, packed })
    }

    /// The position at which a ring continues after its device was killed; `position` if nothing was recorded here.
    /// Completes a batch that was not fully given back.
    pub fn resume(&self, size: u16, position: Position, ring: &impl RingAccess) -> Position {
        let noted = self.get(VERSION) == 1 && self.get(COUNT) == size;
        let noted = match position {
            _ if !noted => None,
            Position::Split { .. } => ring.used_index().map(|used| Position::Split { avail: used, used }),
            Position::Packed { .. } => self.noted(size, ring),
        };
        if noted.is_none() {
            self.prepare(size);
        }
        let position = noted.unwrap_or(position);
        self.publish(position);
        position
    }

    /// The recorded position of a packed ring.
    fn noted(&self, size: u16, ring: &impl RingAccess) -> Option<Position> {
        let Progress { old, new } = Progress::read(self.double(USED).load(Ordering::Acquire));
        if old.0 >= size || new.0 >= size {
            return None;
        }
        let left = if old.1 { AVAIL_FLAG } else { USED_FLAG };
        if old != new && ring.flags(old.0)? & (AVAIL_FLAG | USED_FLAG) == left {
            self.give_back(size, old.0, new.0, ring);
        }
        let (used, used_wrap) = new;
        Some(Position::Packed { avail: used, avail_wrap: used_wrap, used, used_wrap })
    }

    /// Writes the used descriptors of a batch into the ring, the first one last.
    fn give_back(&self, size: u16, from: u16, to: u16, ring: &impl RingAccess) {
        let word = |index: u16| self.double(entry(index) + ENTRY_WORD).load(Ordering::Relaxed);
        let mut at = following(from, size);
        while at != to && at != from {
            if self.byte(entry(at) + ENTRY_USED).load(Ordering::Relaxed) == 1 {
                ring.write_used(at, word(at));
            }
            at = following(at, size);
        }
        ring.write_used(from, word(from));
    }

    /// Writes an empty part: all entries are free and each points to the next.
    fn prepare(&self, size: u16) {
        let (header, entry) = if self.packed { (PACKED_HEADER, PACKED_ENTRY) } else { (SPLIT_HEADER, SPLIT_ENTRY) };
        for index in 0..size {
            let at = (header + u64::from(index) * entry) as usize;
            self.byte(at).store(0, Ordering::Relaxed);
            // The link of a split entry is at 6, that of a packed one at 2.
            let link = at + if self.packed { 2 } else { 6 };
            self.put(link, if self.packed { index.wrapping_add(1) } else { 0 });
        }
        self.put(FREE, 0);
        self.put(OLD_FREE, 0);
        self.put(COUNT, size);
        self.put(VERSION, 1);
    }

    /// Records a batch before the first of its used descriptors is written: the position before it and after it, and
    /// the second words of the used descriptors by index, in the order of the ring.
    pub fn announce(&self, now: Position, next: Position, size: u16, used: impl Iterator<Item = (u16, u64)>) {
        let (Position::Packed { used: from, used_wrap, .. }, Position::Packed { used: to, used_wrap: next_wrap, .. }) =
            (now, next)
        else {
            return;
        };
        let mut at = from;
        for (index, word) in used {
            while at != index {
                self.mark(at, 0);
                at = following(at, size);
            }
            kill::point();
            self.double(entry(at) + ENTRY_WORD).store(word, Ordering::Relaxed);
            self.mark(at, 1);
            at = following(at, size);
        }
        while at != to && at != from {
            self.mark(at, 0);
            at = following(at, size);
        }
        kill::point();
        let progress = Progress { old: (from, used_wrap), new: (to, next_wrap) };
        self.double(USED).store(progress.word(), Ordering::Release);
    }

    fn mark(&self, index: u16, used: u8) {
        kill::point();
        self.byte(entry(index) + ENTRY_USED).store(used, Ordering::Relaxed);
    }

    /// Records the position. Called after each batch.
    #[inline]
    pub fn publish(&self, position: Position) {
        kill::point();
        match position {
            Position::Split { used, .. } => self.put(SPLIT_USED, used),
            Position::Packed { used, used_wrap, .. } => {
                let progress = Progress { old: (used, used_wrap), new: (used, used_wrap) };
                self.double(USED).store(progress.word(), Ordering::Release);
            }
        }
    }

    /// Forgets the position: the ring has stopped in order, and the next start gives a position.
    pub fn forget(&self) {
        self.put(VERSION, 0);
    }

    fn get(&self, offset: usize) -> u16 {
        self.word(offset).load(Ordering::Relaxed)
    }

    fn put(&self, offset: usize, value: u16) {
        self.word(offset).store(value, Ordering::Relaxed);
    }

    fn word(&self, offset: usize) -> &AtomicU16 {
        debug_assert!(offset.is_multiple_of(2) && offset as u64 + 2 <= self.region.part);
        // SAFETY: new() has checked that the part has room for the header and all entries of the ring's size, and
        // offsets are within it; the region starts at a multiple of 8 and parts at multiples of 64, offsets are even.
        // Other processes' writes are as atomic as ours.
        unsafe { AtomicU16::from_ptr(self.region.mapping.start().as_ptr().add(self.start + offset).cast()) }
    }

    fn double(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset as u64 + 8 <= self.region.part);
        // SAFETY: as above, and offsets are multiples of 8.
        unsafe { AtomicU64::from_ptr(self.region.mapping.start().as_ptr().add(self.start + offset).cast()) }
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        debug_assert!((offset as u64) < self.region.part);
        // SAFETY: as above.
        unsafe { AtomicU8::from_ptr(self.region.mapping.start().as_ptr().add(self.start + offset)) }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const SPLIT: Features = Features::VERSION_1;
    const PACKED: Features = Features(Features::VERSION_1.0 | Features::RING_PACKED.0);

    fn region(queues: u16, size: u16) -> (File, Arc<InflightRegion>) {
        let file = InflightRegion::create(queues, size).unwrap();
        let length = InflightRegion::length(queues, size);
        let region = InflightRegion::map(&file, 0, length, queues, size).unwrap();
        (file, Arc::new(region))
    }

    fn packed(used: u16, wrap: bool) -> Position {
        Position::Packed { avail: used, avail_wrap: wrap, used, used_wrap: wrap }
    }

    /// A ring in this state, and the words written into it.
    #[derive(Default)]
    struct Ring {
        used_index: Option<u16>,
        flags: Option<u16>,
        written: std::cell::RefCell<Vec<(u16, u64)>>,
    }

    impl RingAccess for Ring {
        fn used_index(&self) -> Option<u16> {
            self.used_index
        }

        fn flags(&self, index: u16) -> Option<u16> {
            assert_eq!(index, 200);
            self.flags
        }

        fn write_used(&self, index: u16, word: u64) {
            self.written.borrow_mut().push((index, word));
        }
    }

    #[test]
    fn a_packed_ring_continues_after_the_last_batch_and_completes_it() {
        let (_file, region) = region(2, 256);
        let inflight = Inflight::new(&region, 1, PACKED, 256).unwrap();
        // Nothing recorded: the front end's position counts.
        assert_eq!(inflight.resume(256, packed(7, true), &Ring::default()), packed(7, true));
        inflight.publish(packed(200, true));
        drop(inflight);

        let next = Inflight::new(&region, 1, PACKED, 256).unwrap();
        assert_eq!(next.resume(256, packed(0, true), &Ring::default()), packed(200, true));
        let batch = [(200, 1), (201, 2), (204, 3), (255, 4), (1, 5)];
        for (flags, is_completed) in [
            // Unchanged since the driver wrote it, given back, and made available again.
            (AVAIL_FLAG, true),
            (AVAIL_FLAG | USED_FLAG, false),
            (USED_FLAG, false),
        ] {
            next.publish(packed(200, true));
            next.announce(packed(200, true), packed(4, false), 256, batch.into_iter());
            let successor = Inflight::new(&region, 1, PACKED, 256).unwrap();
            let ring = Ring { flags: Some(flags), ..Ring::default() };
            assert_eq!(successor.resume(256, packed(0, true), &ring), packed(4, false));
            let completed = [(201, 2), (204, 3), (255, 4), (1, 5), (200, 1)];
            let expected = if is_completed { &completed[..] } else { &[] };
            assert_eq!(ring.written.into_inner(), expected);
        }
        next.forget();
        assert_eq!(next.resume(256, packed(9, false), &Ring::default()), packed(9, false));
        // Another size, or nonsense in the file, counts as nothing recorded.
        assert_eq!(next.resume(128, packed(3, true), &Ring::default()), packed(3, true));
        next.publish(packed(500, true));
        assert_eq!(next.resume(128, packed(3, true), &Ring::default()), packed(3, true));
    }

    #[test]
    fn a_split_ring_continues_at_its_used_index() {
        let (_file, region) = region(2, 256);
        let inflight = Inflight::new(&region, 0, SPLIT, 256).unwrap();
        let start = Position::Split { avail: 5, used: 5 };
        let at = |used: u16| Ring { used_index: Some(used), ..Ring::default() };
        assert_eq!(inflight.resume(256, start, &at(9)), start);
        inflight.publish(Position::Split { avail: 80, used: 80 });
        let there = Position::Split { avail: 81, used: 81 };
        assert_eq!(inflight.resume(256, start, &at(81)), there);
    }

    #[test]
    fn the_file_is_laid_out_as_the_specification_says() {
        let (file, region) = region(2, 128);
        let at = |offset: u64| {
            let mut bytes = [0; 2];
            file.read_exact_at(&mut bytes, offset).unwrap();
            u16::from_le_bytes(bytes)
        };
        let second = InflightRegion::length(1, 128);
        assert_eq!(second, (32 + 32 * 128_u64).next_multiple_of(64));
        let inflight = Inflight::new(&region, 1, PACKED, 128).unwrap();
        inflight.resume(128, packed(0, true), &Ring::default());
        inflight.publish(packed(100, false));
        inflight.announce(packed(100, false), packed(102, true), 128, [(100, 9 << 48 | 8 << 32 | 7)].into_iter());
        let fields = [8, 10, 12, 14, 16, 18, 20].map(|offset| at(second + offset));
        assert_eq!(fields, [1, 128, 0, 0, 102, 100, 1]);
        let entry = second + 32 + 32 * 100;
        assert_eq!([0, 16, 18, 20, 22].map(|offset| at(entry + offset) & 0xff), [1, 7, 0, 8, 9]);
        assert_eq!(at(second + 32 + 2), 1);
        assert_eq!(at(second + 32 + 32 * 126 + 2), 127);
        assert_eq!(at(8), 0, "the first queue's part is untouched");
        let inflight = Inflight::new(&region, 0, SPLIT, 128).unwrap();
        inflight.resume(128, Position::Split { avail: 3, used: 3 }, &Ring::default());
        assert_eq!([8, 10, 14].map(at), [1, 128, 3]);
    }

    #[test]
    fn regions_that_are_too_small_are_refused() {
        let file = InflightRegion::create(2, 64).unwrap();
        let length = InflightRegion::length(2, 64);
        for (offset, length, queues, size) in [
            (0, length, 0, 64),
            (0, length, 2, 0),
            (0, length, 2, 4096),
            (0, length + 1, 2, 64),
            (8, length, 2, 64),
            (u64::MAX - 7, 8, 1, 1),
            (0, 0, 1, 1),
            (4, 1024, 1, 1),
        ] {
            assert!(InflightRegion::map(&file, offset, length, queues, size).is_err(), "{offset} {length} {queues}");
        }
        let region = Arc::new(InflightRegion::map(&file, 0, length, 2, 64).unwrap());
        assert!(Inflight::new(&region, 2, PACKED, 64).is_none());
        assert!(Inflight::new(&region, 1, PACKED, 65).is_none());
        assert!(Inflight::new(&region, 1, SPLIT, 64).is_some());
    }
}

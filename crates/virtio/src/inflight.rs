//! Where a device keeps what it has begun, so that its successor can go on (vhost-user, "Inflight I/O tracking").
//!
//! A ring of ours holds no descriptor between two batches, so there is never a descriptor to note; what is kept is how far
//! the device has come. On a split ring the ring itself says that. On a packed ring only the device knows, and these few
//! bytes are all that is left when its process is gone.
//!
//! The region is laid out as the specification says, one part for each queue: a header, then an entry for each descriptor.
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
//! | 32 | | entries of 32 bytes |

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, Ordering, compiler_fence};

use bellows_sys::mapping::SharedMapping;
use bellows_sys::memfd;

use crate::Features;
use crate::ring::Position;

/// Parts are aligned to this.
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
const USED: usize = 16;
const OLD_USED: usize = 18;
const WRAP: usize = 20;
const OLD_WRAP: usize = 21;

/// In the flags of a packed descriptor.
const AVAIL_FLAG: u16 = 1 << 7;
const USED_FLAG: u16 = 1 << 15;

/// No region needs to be longer: all queues that there can be, and as many descriptors in each as can be.
const LONGEST: u64 = 1 << 37;

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
    /// How many bytes a region needs that holds either kind of ring.
    pub fn length(queues: u16, queue_size: u16) -> u64 {
        part(true, queue_size) * u64::from(queues)
    }

    /// Makes the file of an empty region.
    ///
    /// # Errors
    /// Those of `memfd_create(2)`.
    pub fn create(queues: u16, queue_size: u16) -> io::Result<File> {
        memfd::sealed(InflightRegion::length(queues, queue_size))
    }

    /// Maps a region.
    ///
    /// # Errors
    /// `InvalidInput` when it has no queues, is too small for its queues or longer than any, or is not in its file; those of `mmap(2)`.
    pub fn map(file: &File, offset: u64, length: u64, queues: u16, queue_size: u16) -> io::Result<InflightRegion> {
        let refuse = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        if queues == 0 || queue_size == 0 {
            return refuse(format!("{queues} queues of {queue_size} descriptors"));
        }
        let there = file.metadata()?.len();
        if offset.checked_add(length).is_none_or(|end| end > there) || !offset.is_multiple_of(8) {
            return refuse(format!("the region is {length} bytes at {offset}, its file has {there}"));
        }
        if length > LONGEST {
            return refuse(format!("the region is {length} bytes; none needs more than {LONGEST}"));
        }
        let part_length = length / u64::from(queues) / ALIGNMENT * ALIGNMENT;
        if part_length < part(false, queue_size) {
            return refuse(format!("{length} bytes are too few for {queues} queues of {queue_size} descriptors"));
        }
        Ok(InflightRegion { mapping: SharedMapping::new(file, offset, length)?, queues, queue_size, part: part_length })
    }
}

/// Bytes for one queue.
fn part(packed: bool, queue_size: u16) -> u64 {
    let (header, entry) = if packed { (PACKED_HEADER, PACKED_ENTRY) } else { (SPLIT_HEADER, SPLIT_ENTRY) };
    (header + entry * u64::from(queue_size)).next_multiple_of(ALIGNMENT)
}

/// The part of one queue.
#[derive(Debug)]
pub struct Inflight {
    region: Arc<InflightRegion>,
    start: usize,
    packed: bool,
}

impl Inflight {
    /// The part of a queue, for a ring with these features and of this size; `None` if the region has none, or too small a
    /// one.
    pub fn new(region: &Arc<InflightRegion>, queue: usize, features: Features, size: u16) -> Option<Inflight> {
        let packed = features.has(Features::RING_PACKED);
        let fits = queue < region.queues.into() && size <= region.queue_size && part(packed, size) <= region.part;
        let start = queue * region.part as usize;
        fits.then(|| Inflight { region: Arc::clone(region), start, packed })
    }

    /// Where a ring goes on whose device ended without saying so; the given position if nothing was noted here. The closures
    /// read the ring: the used index of a split ring, and the flags of a descriptor of a packed one.
    pub fn resume(
        &self,
        size: u16,
        position: Position,
        used_index: impl FnOnce() -> Option<u16>,
        flags: impl FnOnce(u16) -> Option<u16>,
    ) -> Position {
        let noted = self.get(VERSION) == 1 && self.get(COUNT) == size;
        let noted = match position {
            _ if !noted => None,
            Position::Split { .. } => used_index().map(|used| Position::Split { avail: used, used }),
            Position::Packed { .. } => self.noted(size, flags),
        };
        if noted.is_none() {
            self.prepare(size);
        }
        let position = noted.unwrap_or(position);
        self.publish(position);
        position
    }

    /// What is noted of a packed ring. A batch that had been announced counts if its first descriptor was given back.
    fn noted(&self, size: u16, flags: impl FnOnce(u16) -> Option<u16>) -> Option<Position> {
        let (old, old_wrap) = (self.get(OLD_USED), self.byte(OLD_WRAP).load(Ordering::Relaxed) & 1 == 1);
        let (new, new_wrap) = (self.get(USED), self.byte(WRAP).load(Ordering::Relaxed) & 1 == 1);
        if old >= size || new >= size {
            return None;
        }
        let (used, used_wrap) = if (old, old_wrap) == (new, new_wrap) {
            (old, old_wrap)
        } else {
            let both = AVAIL_FLAG | USED_FLAG;
            let given_back = flags(old)? & both == if old_wrap { both } else { 0 };
            if given_back { (new, new_wrap) } else { (old, old_wrap) }
        };
        Some(Position::Packed { avail: used, avail_wrap: used_wrap, used, used_wrap })
    }

    /// Writes an empty part: all entries free, each pointing to the next.
    fn prepare(&self, size: u16) {
        let (header, entry) = if self.packed { (PACKED_HEADER, PACKED_ENTRY) } else { (SPLIT_HEADER, SPLIT_ENTRY) };
        for index in 0..size {
            let at = (header + u64::from(index) * entry) as usize;
            self.byte(at).store(0, Ordering::Relaxed);
            // The split entry's link is at 6, the packed one's at 2.
            let link = at + if self.packed { 2 } else { 6 };
            self.put(link, if self.packed { index.wrapping_add(1) } else { 0 });
        }
        self.put(FREE, 0);
        self.put(OLD_FREE, 0);
        self.put(COUNT, size);
        self.put(VERSION, 1);
    }

    /// Says where the ring will be when the batch has been given back. Called before its first descriptor is.
    #[inline]
    pub fn announce(&self, next: Position) {
        if let Position::Packed { used, used_wrap, .. } = next {
            self.put(USED, used);
            self.byte(WRAP).store(used_wrap.into(), Ordering::Relaxed);
            compiler_fence(Ordering::Release);
        }
    }

    /// Says where the ring is. Called after each batch.
    #[inline]
    pub fn publish(&self, position: Position) {
        compiler_fence(Ordering::Release);
        match position {
            Position::Split { used, .. } => self.put(SPLIT_USED, used),
            Position::Packed { used, used_wrap, .. } => {
                self.announce(position);
                self.put(OLD_USED, used);
                self.byte(OLD_WRAP).store(used_wrap.into(), Ordering::Relaxed);
            }
        }
    }

    /// Forgets the position: the ring has ended in an orderly way, and whoever starts it again says where.
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
        // SAFETY: new() has checked that the part holds the header and all entries of the ring's size, and offsets lie
        // within; the region starts at a multiple of 8 and parts at multiples of 64, offsets are even. Other processes'
        // writes are as atomic as ours.
        unsafe { AtomicU16::from_ptr(self.region.mapping.start().as_ptr().add(self.start + offset).cast()) }
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

    #[test]
    fn a_packed_ring_goes_on_where_it_was_before_or_after_the_batch() {
        let (_file, region) = region(2, 256);
        let never = |_| -> Option<u16> { unreachable!() };
        let inflight = Inflight::new(&region, 1, PACKED, 256).unwrap();
        // Nothing noted: the front end's word counts.
        assert_eq!(inflight.resume(256, packed(7, true), || None, never), packed(7, true));
        inflight.publish(packed(200, true));
        drop(inflight);

        let next = Inflight::new(&region, 1, PACKED, 256).unwrap();
        assert_eq!(next.resume(256, packed(0, true), || None, never), packed(200, true));
        next.announce(packed(4, false));
        for (flags, goes_on) in [
            (AVAIL_FLAG | USED_FLAG, packed(4, false)),
            (AVAIL_FLAG, packed(200, true)),
            (USED_FLAG, packed(200, true)),
            (0, packed(200, true)),
        ] {
            next.publish(packed(200, true));
            next.announce(packed(4, false));
            let flags = |index| {
                assert_eq!(index, 200);
                Some(flags)
            };
            let successor = Inflight::new(&region, 1, PACKED, 256).unwrap();
            assert_eq!(successor.resume(256, packed(0, true), || None, flags), goes_on);
        }
        next.forget();
        assert_eq!(next.resume(256, packed(9, false), || None, never), packed(9, false));
        // Another size, or nonsense in the file, is nothing noted.
        assert_eq!(next.resume(128, packed(3, true), || None, never), packed(3, true));
        next.publish(packed(500, true));
        assert_eq!(next.resume(128, packed(3, true), || None, never), packed(3, true));
    }

    #[test]
    fn a_split_ring_goes_on_where_its_used_index_is() {
        let (_file, region) = region(2, 256);
        let inflight = Inflight::new(&region, 0, SPLIT, 256).unwrap();
        let start = Position::Split { avail: 5, used: 5 };
        assert_eq!(inflight.resume(256, start, || Some(9), |_| None), start);
        inflight.publish(Position::Split { avail: 80, used: 80 });
        let there = Position::Split { avail: 81, used: 81 };
        assert_eq!(inflight.resume(256, start, || Some(81), |_| None), there);
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
        inflight.resume(128, packed(0, true), || None, |_| None);
        inflight.publish(packed(100, false));
        inflight.announce(packed(101, true));
        let fields = [8, 10, 12, 14, 16, 18, 20].map(|offset| at(second + offset));
        assert_eq!(fields, [1, 128, 0, 0, 101, 100, 1]);
        assert_eq!(at(second + 32 + 2), 1);
        assert_eq!(at(second + 32 + 32 * 126 + 2), 127);
        assert_eq!(at(8), 0, "the first queue's part is untouched");
        let inflight = Inflight::new(&region, 0, SPLIT, 128).unwrap();
        inflight.resume(128, Position::Split { avail: 3, used: 3 }, || None, |_| None);
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

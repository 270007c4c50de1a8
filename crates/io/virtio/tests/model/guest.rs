//! The guest's memory, and its shadow.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bellows_ipc::mapping::SharedMapping;
use bellows_ipc::memfd;
use bellows_virtio::log::Log;
use bellows_virtio::{Memory, RegionSpec};

use super::random::Random;

/// One region: its guest address, its file, and this side's own mapping.
struct Region {
    start: u64,
    mapping: SharedMapping,
    length: usize,
    file: File,
    /// The expected contents of the region.
    shadow: Vec<u8>,
}

/// The guest addresses of the regions. The first two are adjacent, and buffers may cross from one into the other; they
/// are in different files. The third is for rings.
const REGIONS: [(u64, usize); 3] = [(ARENA, 128 << 10), (ARENA + (128 << 10), 128 << 10), (RINGS, RINGS_LENGTH)];

const ARENA: u64 = 0x1000_0000;
const ARENA_LENGTH: u64 = 256 << 10;
/// The address at which the second region begins.
pub const BORDER: u64 = ARENA + (128 << 10);
const RINGS: u64 = 0x4_0000_0000;
const RINGS_LENGTH: usize = 40 << 10;

/// An address outside all regions.
pub const NOWHERE: u64 = 0x9_0000_0000;

/// The guest's memory as the driver uses it.
///
/// The driver writes into both memory and shadow. The device's expected writes go into the shadow alone, and at every
/// step both must be equal: so each byte that the device has not written, or should not have, is found.
pub struct Guest {
    regions: Vec<Region>,
    /// The device's view of it.
    pub memory: Arc<Memory>,
    /// The buffers in use, and the end of each.
    buffers: BTreeMap<u64, u64>,
    /// Where the next area of a ring may begin.
    rings: u64,
    /// The log of the pages that the device has written, and the expected ones.
    log: File,
    written: BTreeSet<u64>,
}

impl Guest {
    /// Memory full of random bytes.
    pub fn new(random: &mut Random) -> Guest {
        let regions: Vec<Region> = REGIONS
            .iter()
            .map(|&(start, length)| {
                // The region does not begin with its file.
                let file = memfd::sealed(OFFSET + length as u64).unwrap();
                let mapping = SharedMapping::new(&file, OFFSET, length as u64).unwrap();
                Region { start, mapping, length, file, shadow: vec![0; length] }
            })
            .collect();
        let spec = |region: &Region| RegionSpec {
            guest: region.start,
            length: region.length as u64,
            user: region.start + USER,
            offset: OFFSET,
            file: region.file.try_clone().unwrap(),
        };
        let memory = Arc::new(Memory::map(regions.iter().map(spec).collect()).unwrap());
        let log = memfd::create(LOG_LENGTH).unwrap();
        let buffers = BTreeMap::new();
        let mut guest = Guest { regions, memory, buffers, rings: RINGS, log, written: BTreeSet::new() };
        for (start, length) in REGIONS {
            guest.write(start, &random.bytes(length));
        }
        guest
    }

    /// The files of the regions.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.regions.iter().map(|region| &region.file)
    }

    /// Frees all buffers and rings.
    pub fn reset(&mut self) {
        self.buffers.clear();
        self.written.clear();
        self.rings = RINGS;
    }

    /// The region that contains an address, and the offset in it.
    fn region(&mut self, address: u64) -> (&mut Region, usize) {
        let holds = |region: &&mut Region| address.wrapping_sub(region.start) < region.length as u64;
        let region = self.regions.iter_mut().find(holds).unwrap_or_else(|| panic!("no region at {address:#x}"));
        let offset = (address - region.start) as usize;
        (region, offset)
    }

    /// Calls `work` for the parts of a range in one region each: region, offset in it, and offset in the range.
    fn parts(&mut self, address: u64, length: usize, mut work: impl FnMut(&mut Region, usize, std::ops::Range<usize>)) {
        let mut done = 0;
        while done < length {
            let (region, offset) = self.region(address + done as u64);
            let here = (region.length - offset).min(length - done);
            work(region, offset, done..done + here);
            done += here;
        }
    }

    /// The driver writes.
    pub fn write(&mut self, address: u64, bytes: &[u8]) {
        self.parts(address, bytes.len(), |region, offset, range| {
            region.shadow[offset..][..range.len()].copy_from_slice(&bytes[range.clone()]);
            // SAFETY: the part is inside the region, which is mapped completely for as long as it lives.
            unsafe {
                let to = region.mapping.start().as_ptr().add(offset);
                std::ptr::copy_nonoverlapping(bytes[range.clone()].as_ptr(), to, range.len());
            }
        });
    }

    /// Expects a write of the device.
    pub fn expect(&mut self, address: u64, bytes: &[u8]) {
        self.expect_logged(address, bytes.len());
        self.become_right(address, bytes);
    }

    /// Expects the pages of these bytes in the log.
    pub fn expect_logged(&mut self, address: u64, length: usize) {
        if length > 0 {
            self.written.extend(address / PAGE..=(address + length as u64 - 1) / PAGE);
        }
    }

    /// A new view of the log.
    pub fn log(&self) -> Arc<Log> {
        Arc::new(Log::new(&self.log, 0, LOG_LENGTH).unwrap())
    }

    /// Compares the log with the expected one, and empties both.
    ///
    /// # Panics
    /// If a page is missing, or there is one of a buffer that was not written.
    pub fn check_log(&mut self) {
        let mut logged = BTreeSet::new();
        for (start, length) in REGIONS {
            let first = start / PAGE / 8;
            let mut bytes = vec![0; (length as u64).div_ceil(8 * PAGE) as usize];
            self.log.read_exact_at(&mut bytes, first).unwrap();
            let bits = (0..8 * bytes.len()).filter(|bit| bytes[bit / 8] & (1 << (bit % 8)) != 0);
            logged.extend(bits.map(|bit| 8 * first + bit as u64));
            self.log.write_all_at(&vec![0; bytes.len()], first).unwrap();
        }
        let written = std::mem::take(&mut self.written);
        assert!(written.is_subset(&logged), "of the pages {written:?} only {logged:?} are in the log");
        // For the ring a device may log more than it wrote: everything between the first and the last entry.
        let buffers = |pages: BTreeSet<u64>| pages.into_iter().filter(|page| *page < RINGS / PAGE).collect::<Vec<_>>();
        assert_eq!(buffers(logged), buffers(written), "the pages of buffers in the log");
    }

    fn become_right(&mut self, address: u64, bytes: &[u8]) {
        self.parts(address, bytes.len(), |region, offset, range| {
            region.shadow[offset..][..range.len()].copy_from_slice(&bytes[range]);
        });
    }

    /// The contents of the memory.
    pub fn read(&mut self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.parts(address, length, |region, offset, range| {
            // SAFETY: as above.
            unsafe {
                let from = region.mapping.start().as_ptr().add(offset);
                std::ptr::copy_nonoverlapping(from, bytes[range.clone()].as_mut_ptr(), range.len());
            }
        });
        bytes
    }

    pub fn read_u16(&mut self, address: u64) -> u16 {
        u16::from_le_bytes(self.read(address, 2).try_into().unwrap())
    }

    pub fn read_u32(&mut self, address: u64) -> u32 {
        u32::from_le_bytes(self.read(address, 4).try_into().unwrap())
    }

    pub fn write_u16(&mut self, address: u64, value: u16) {
        self.write(address, &value.to_le_bytes());
    }

    /// Accepts the current contents: bytes that belong to the device, and whose meaning the driver has checked.
    pub fn accept(&mut self, address: u64, length: usize) {
        let bytes = self.read(address, length);
        self.become_right(address, &bytes);
    }

    /// Compares every byte with its expected value.
    ///
    /// # Panics
    /// If one differs.
    pub fn check(&mut self) {
        for region in &mut self.regions {
            // SAFETY: the mapping is as long as the region, and nothing writes to it while the slice is used: the
            // device runs on this thread.
            let there = unsafe { std::slice::from_raw_parts(region.mapping.start().as_ptr(), region.length) };
            if there != region.shadow {
                let offset = (0..region.length).find(|&offset| there[offset] != region.shadow[offset]).unwrap();
                let around = offset.saturating_sub(8)..(offset + 24).min(region.length);
                panic!(
                    "memory at {:#x} is not what it ought to be: from 8 bytes before, {:02x?} in place of {:02x?}",
                    region.start + offset as u64,
                    &there[around.clone()],
                    &region.shadow[around]
                );
            }
        }
    }

    /// A buffer at a random address that overlaps no other; `None` if none was found.
    pub fn allocate(&mut self, length: usize, random: &mut Random) -> Option<u64> {
        let length = length as u64;
        let last = ARENA + ARENA_LENGTH - length;
        for _ in 0..8 {
            let alignment = random.of(&[1, 1, 2, 16, 64]);
            let address = match random.one_in(24) {
                // Across the border, or right before it, or right after it.
                true => (BORDER - random.between(0, length as usize) as u64).min(last),
                false => random.between(ARENA as usize, last as usize) as u64 / alignment * alignment,
            };
            if self.is_free(address, length) {
                self.buffers.insert(address, address + length);
                return Some(address);
            }
        }
        None
    }

    /// Takes a range that is known to be free.
    pub fn claim(&mut self, address: u64, length: u64) {
        assert!(self.is_free(address, length), "claimed what is in use");
        self.buffers.insert(address, address + length);
    }

    fn is_free(&self, address: u64, length: u64) -> bool {
        let before = self.buffers.range(..=address).next_back();
        let behind = self.buffers.range(address..).next();
        before.is_none_or(|(_, end)| *end <= address) && behind.is_none_or(|(start, _)| address + length <= *start)
    }

    pub fn free(&mut self, address: u64) {
        self.buffers.remove(&address).expect("freed once");
    }

    /// Zeroed memory for an area of a ring, at any address with its alignment.
    pub fn area(&mut self, length: usize, alignment: u64, random: &mut Random) -> u64 {
        let address = (self.rings + random.between(0, 99) as u64).next_multiple_of(alignment);
        self.rings = address + length as u64;
        assert!(self.rings <= RINGS + RINGS_LENGTH as u64, "the rings do not fit into their region");
        self.write(address, &vec![0; length]);
        address
    }
}

/// Bytes of a page in the log, and of a log for all regions: a bit for each page.
const PAGE: u64 = 4096;
const LOG_LENGTH: u64 = (RINGS + RINGS_LENGTH as u64) / PAGE / 8 + 8;

/// Offset of a region in its file.
const OFFSET: u64 = 4096;

/// Difference between a guest address and one of the driver's process.
const USER: u64 = 0x7f00_0000_0000;

//! The memory that the driver's side shares with the device.
//!
//! The process on the other side is untrusted: the contents may change at any time, and are accessed only through raw
//! pointers, each value read once.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bellows_ipc::mapping::{CheckedFile, PeerMemory, SharedMapping, holes};

/// A region as the driver's side describes it (vhost-user, "Memory regions description").
#[derive(Debug)]
pub struct RegionSpec {
    /// Its first guest address.
    pub guest: u64,
    /// Its length in bytes.
    pub length: u64,
    /// Its first address in the driver's process.
    pub user: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// Its file.
    pub file: File,
}

/// The reason why memory cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// A region is empty, or exceeds the address space.
    #[error("the memory region at {guest:#x} has a length of {length} bytes, which is invalid")]
    Length {
        /// Its first address.
        guest: u64,
        /// Its length in bytes.
        length: u64,
    },
    /// Two regions overlap.
    #[error("the memory region at {guest:#x} overlaps another")]
    Overlap {
        /// The first address of the later one.
        guest: u64,
    },
    /// The file is shorter than the region.
    #[error("the memory region at {guest:#x} ends beyond its file: it needs {needed} bytes, the file has {there}")]
    Short {
        /// The region's first address.
        guest: u64,
        /// The end of the region in its file.
        needed: u64,
        /// The length of the file.
        there: u64,
    },
    /// The system cannot map it.
    #[error("cannot map the memory region at {guest:#x}: {source}")]
    Map {
        /// The region's first address.
        guest: u64,
        /// The system's error.
        source: io::Error,
    },
}

/// Maximum time to map pages of a region that exist already, so that the engine takes no page faults for them.
const MAX_FAULT_IN: Duration = Duration::from_millis(50);

/// One region of the driver's memory, mapped here. A clone shares the mapping.
#[derive(Clone, Debug)]
pub struct Region {
    guest: u64,
    length: u64,
    user: u64,
    mapping: Arc<SharedMapping>,
}

impl Region {
    /// Maps a region of a memory file.
    ///
    /// # Errors
    /// The reason why that is impossible.
    pub fn map(spec: RegionSpec) -> Result<Region, MapError> {
        let RegionSpec { guest, length, user, offset, file } = spec;
        let peer = PeerMemory::default();
        let file = peer.check(&file).map_err(|source| MapError::Map { guest, source })?;
        Region::of(&file, guest, length, user, offset)
    }

    /// Maps a region of a file that has been checked.
    ///
    /// # Errors
    /// The reason why that is impossible.
    pub fn of(file: &CheckedFile<'_>, guest: u64, length: u64, user: u64, offset: u64) -> Result<Region, MapError> {
        let end = offset.checked_add(length);
        if length == 0 || guest.checked_add(length).is_none() || user.checked_add(length).is_none() {
            return Err(MapError::Length { guest, length });
        }
        let needed = end.ok_or(MapError::Length { guest, length })?;
        let system = |source| MapError::Map { guest, source };
        let there = file.length();
        if there < needed {
            return Err(MapError::Short { guest, needed, there });
        }
        let mapping = file.map(offset, length).map_err(system)?;
        mapping.bring_in(file.present(), MAX_FAULT_IN);
        Ok(Region { guest, length, user, mapping: Arc::new(mapping) })
    }

    /// The same mapping at other addresses; `None` if they exceed the address space.
    pub fn moved(&self, guest: u64, user: u64) -> Option<Region> {
        guest.checked_add(self.length)?;
        user.checked_add(self.length)?;
        Some(Region { guest, user, ..self.clone() })
    }

    /// Its first guest address.
    pub fn guest(&self) -> u64 {
        self.guest
    }

    /// Length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether part of the mapping is gone.
    pub fn is_broken(&self) -> bool {
        self.mapping.is_broken()
    }

    /// The address of the mapping.
    pub fn host(&self) -> NonNull<u8> {
        self.mapping.start()
    }
}

/// All regions. Shared by the rings that use them; unmapped when the last one is dropped.
#[derive(Debug, Default)]
pub struct Memory {
    /// By ascending guest address.
    regions: Vec<Region>,
    /// The number of holes that the process had met when the regions were last checked to be whole.
    holes: AtomicU32,
}

impl Memory {
    /// Maps regions.
    ///
    /// # Errors
    /// The first region that cannot be mapped, and the reason.
    pub fn map(specs: Vec<RegionSpec>) -> Result<Memory, MapError> {
        Memory::new(specs.into_iter().map(Region::map).collect::<Result<_, _>>()?)
    }

    /// Creates a memory of regions that are already mapped.
    ///
    /// # Errors
    /// The first region that overlaps another.
    pub fn new(mut regions: Vec<Region>) -> Result<Memory, MapError> {
        regions.sort_by_key(|region| region.guest);
        match regions.windows(2).find(|pair| pair[0].guest + pair[0].length > pair[1].guest) {
            Some(pair) => Err(MapError::Overlap { guest: pair[1].guest }),
            // One of them may have had a hole before, so the first check is a thorough one.
            None => Ok(Memory { regions, holes: AtomicU32::new(holes().wrapping_sub(1)) }),
        }
    }

    /// The regions, by ascending address.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The region that contains an address.
    pub fn region(&self, guest: u64) -> Option<&Region> {
        let index = self.regions.partition_point(|region| region.guest <= guest);
        let region = self.regions.get(index.checked_sub(1)?)?;
        (guest - region.guest < region.length).then_some(region)
    }

    /// The host address of `length` bytes at a guest address; `None` unless one region contains them all.
    pub fn translate(&self, guest: u64, length: u64) -> Option<NonNull<u8>> {
        let region = self.region(guest)?;
        let offset = guest - region.guest;
        // SAFETY: offset < length of the region, which is mapped whole.
        (length <= region.length - offset).then(|| unsafe { region.host().add(offset as usize) })
    }

    /// The guest address for an address of the driver's process.
    pub fn guest_of_user(&self, user: u64) -> Option<u64> {
        let region = self.regions.iter().find(|region| user.wrapping_sub(region.user) < region.length)?;
        Some(user - region.user + region.guest)
    }

    /// The guest addresses of a mapped byte: several if the driver's side shares part of a file more than once.
    pub fn guests_of_host(&self, host: *const u8) -> impl Iterator<Item = u64> + '_ {
        self.regions.iter().filter_map(move |region| {
            let offset = (host as u64).wrapping_sub(region.host().as_ptr() as u64);
            (offset < region.length).then(|| region.guest + offset)
        })
    }

    /// Whether part of the memory is gone because its file was truncated. Only one comparison, as long as no mapping of
    /// the process has met a hole.
    #[inline]
    pub fn is_broken(&self) -> bool {
        let holes = holes();
        holes != self.holes.load(Relaxed) && self.look_for_holes(holes)
    }

    #[cold]
    fn look_for_holes(&self, holes: u32) -> bool {
        let broken = self.regions.iter().any(Region::is_broken);
        if !broken {
            self.holes.store(holes, Relaxed);
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_is_shared_twice_has_both_addresses() {
        let file = bellows_ipc::memfd::create(8192).unwrap();
        let region = Region::map(RegionSpec { guest: 0x1000, length: 8192, user: 0x1000, offset: 0, file }).unwrap();
        let alias = region.moved(0x10_0000, 0x10_0000).unwrap();
        let host = region.host().as_ptr();
        let memory = Memory::new(vec![region, alias]).unwrap();
        assert_eq!(memory.guests_of_host(host.wrapping_add(5)).collect::<Vec<_>>(), [0x1005, 0x10_0005]);
        assert_eq!(memory.guests_of_host(host.wrapping_add(8192)).count(), 0);
        assert_eq!(memory.guests_of_host(host.wrapping_sub(1)).count(), 0);
    }
}

//! The memory of a session: regions, each a mapped file, and addresses in them.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bellows_ipc::mapping::{PeerMemory, SharedMapping, holes};
use bellows_ipc::memfd;

/// Maximum time to map pages that exist already, so that the engine takes no page faults for them.
const MAX_FAULT_IN: Duration = Duration::from_millis(50);

/// A region.
#[derive(Debug)]
pub struct Region {
    mapping: SharedMapping,
    length: u64,
}

impl Region {
    /// Maps a region that a client shares.
    ///
    /// # Errors
    /// If the file is shorter, and those of [`PeerMemory::check`] and of mapping it.
    pub fn map(peer: &PeerMemory, file: &File, length: u64) -> io::Result<Region> {
        let file = peer.check(file)?;
        if length == 0 || file.length() < length {
            let message = format!("the region has {length} bytes and its file {}", file.length());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mapping = file.map(0, length)?;
        mapping.bring_in(file.present(), MAX_FAULT_IN);
        Ok(Region { mapping, length })
    }

    /// Creates a region to share, and its file, whose length nobody can change.
    ///
    /// # Errors
    /// Those of creating and mapping it.
    pub fn create(length: u64) -> io::Result<(Region, File)> {
        let file = memfd::sealed(length)?;
        let mapping = SharedMapping::new(&file, 0, length)?;
        // Neither our engine nor the other side's must take page faults for it.
        mapping.make();
        Ok((Region { mapping, length }, file))
    }

    /// Its length in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// All regions, shared by the rings. Unmapped when the last one is dropped.
#[derive(Debug)]
pub struct Regions {
    list: Vec<Region>,
    /// The number of holes that the process had met when the regions were last checked to be whole.
    holes: AtomicU32,
}

impl Regions {
    /// These regions, in order.
    pub fn new(list: Vec<Region>) -> Regions {
        // One of them may have had a hole before, so the first check is a thorough one.
        Regions { list, holes: AtomicU32::new(holes().wrapping_sub(1)) }
    }

    /// The address of `length` bytes at an offset of a region; `None` unless it contains them all.
    #[inline(always)]
    pub(crate) fn bytes(&self, region: u16, offset: u32, length: u32) -> Option<NonNull<u8>> {
        let region = self.list.get(usize::from(region))?;
        // The sum of two 32-bit numbers does not wrap around in 64.
        (u64::from(offset) + u64::from(length) <= region.length).then(|| region.address(offset))
    }

    /// Whether part of the memory is gone because a file was truncated. Only one comparison, as long as no mapping of the
    /// process has met a hole.
    #[inline]
    pub(crate) fn are_broken(&self) -> bool {
        let holes = holes();
        holes != self.holes.load(Relaxed) && self.look_for_holes(holes)
    }

    #[cold]
    fn look_for_holes(&self, holes: u32) -> bool {
        let broken = self.list.iter().any(|region| region.mapping.is_broken());
        if !broken {
            self.holes.store(holes, Relaxed);
        }
        broken
    }
}

impl Region {
    /// The address of an offset, which is at most the length.
    #[inline(always)]
    #[expect(unsafe_code, reason = "an address in the mapping")]
    fn address(&self, offset: u32) -> NonNull<u8> {
        // SAFETY: the only caller has compared the offset with the length, which is mapped whole.
        unsafe { self.mapping.start().add(offset as usize) }
    }
}

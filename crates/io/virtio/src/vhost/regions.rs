//! The memory regions of a driver's process, which are shared all at once or one by one.

use bellows_ipc::mapping::PeerMemory;

use crate::{MapError, Memory, Region};

use super::ProtocolError;
use super::closer::UntrustedFd;
use super::message::RegionMessage;

/// The shared regions.
#[derive(Default)]
pub(super) struct Regions(Vec<Shared>);

struct Shared {
    message: RegionMessage,
    /// Device and inode of the file.
    file: (u64, u64),
    region: Region,
    /// Number of additions minus removals.
    times: u32,
}

impl Regions {
    /// Maximum number of regions.
    pub(super) const MAX: usize = 64;

    /// Adds a region, and returns whether it is new. A region that is mapped already, here or in `old`, is not mapped
    /// again, so its pages stay faulted in.
    ///
    /// The same region may be added several times, and is gone when it was removed as often: QEMU (7.2, and others)
    /// adds and removes each region once for every pair of queues.
    pub(super) fn add(
        &mut self,
        peer: &PeerMemory,
        message: RegionMessage,
        file: &UntrustedFd,
        old: &Regions,
    ) -> Result<bool, ProtocolError> {
        let RegionMessage { guest, length, user, offset } = message;
        let file = peer.check(file).map_err(|source| MapError::Map { guest, source })?;
        let file_id = file.identity();
        if let Some(known) = self.0.iter_mut().find(|known| known.message == message && known.file == file_id) {
            known.times = known.times.saturating_add(1);
            return Ok(false);
        }
        if self.0.len() == Regions::MAX {
            return Err(ProtocolError::Regions(Regions::MAX));
        }
        let same =
            |known: &&Shared| known.file == file_id && (known.message.offset, known.message.length) == (offset, length);
        // A mapping with a hole stays broken even if the file is whole again.
        let known = self.0.iter().chain(&old.0).filter(|known| !known.region.is_broken()).find(same);
        let region = match known.and_then(|known| known.region.moved(guest, user)) {
            Some(region) => region,
            None => Region::of(&file, guest, length, user, offset)?,
        };
        self.0.push(Shared { message, file: file_id, region, times: 1 });
        Ok(true)
    }

    /// Forgets the last region, which turned out to be unusable.
    pub(super) fn forget_last(&mut self) {
        self.0.pop();
    }

    /// Removes a region, identified by its addresses and its length.
    pub(super) fn remove(&mut self, message: RegionMessage) -> Result<(), ProtocolError> {
        let key = |region: &RegionMessage| (region.guest, region.length, region.user);
        let index = self.0.iter().position(|known| key(&known.message) == key(&message));
        let index = index.ok_or(ProtocolError::NoRegion { guest: message.guest })?;
        self.0[index].times -= 1;
        if self.0[index].times == 0 {
            self.0.remove(index);
        }
        Ok(())
    }

    /// All of them as a memory.
    pub(super) fn memory(&self) -> Result<Memory, MapError> {
        Memory::new(self.0.iter().map(|known| known.region.clone()).collect())
    }
}

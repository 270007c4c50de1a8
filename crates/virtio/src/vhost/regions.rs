//! The memory regions of a driver's process, which come all at once or one by one.

use std::fs::File;

use crate::{MapError, Memory, RegionSpec};

use super::ProtocolError;
use super::message::RegionMessage;

/// The regions, each with its file.
#[derive(Default)]
pub(super) struct Regions(Vec<(RegionMessage, File)>);

impl Regions {
    /// How many there can be.
    pub(super) const MOST: usize = 64;

    pub(super) fn add(&mut self, region: RegionMessage, file: File) -> Result<(), ProtocolError> {
        if self.0.len() == Regions::MOST {
            return Err(ProtocolError::Regions(Regions::MOST));
        }
        self.0.push((region, file));
        Ok(())
    }

    /// The one that was added last turned out to be good for nothing.
    pub(super) fn forget_last(&mut self) {
        self.0.pop();
    }

    /// Removes a region, which is known by its addresses and its length.
    pub(super) fn remove(&mut self, region: RegionMessage) -> Result<(), ProtocolError> {
        let key = |region: &RegionMessage| (region.guest, region.length, region.user);
        let index = self.0.iter().position(|(known, _)| key(known) == key(&region));
        let index = index.ok_or(ProtocolError::NoRegion { guest: region.guest })?;
        self.0.remove(index);
        Ok(())
    }

    /// All of them, mapped.
    pub(super) fn map(&self) -> Result<Memory, MapError> {
        let specs = self.0.iter().map(|(region, file)| {
            let RegionMessage { guest, length, user, offset } = *region;
            let file = file.try_clone().map_err(|source| MapError::Map { guest, source })?;
            Ok(RegionSpec { guest, length, user, offset, file })
        });
        Memory::map(specs.collect::<Result<_, _>>()?)
    }
}

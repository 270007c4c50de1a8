//! A slow and literal driver for the virtio 1.2 specification: the model against which rings are tested.
//!
//! It shares no code with the crate that it tests. Where that counts in wrapping 16-bit numbers or in descriptors with
//! a wrap bit, this counts from 0 in 64 bits and derives the ring's numbers.
//!
//! - [`guest`]: the guest's memory, and a shadow with its expected contents.
//! - [`chains`]: layouts of packets in descriptors.
//! - [`features`]: sets of features.
//! - [`frames`]: packets whose headers may have offloads, and their true claims.
//! - [`split`], [`packed`]: the driver's side of a ring of either format.
//! - [`raw`]: a ring whose descriptors a test writes itself, valid or not.
//! - [`random`]: pseudo-random numbers from a seed.

#![allow(dead_code, reason = "each test uses a part of the model")]

pub mod chains;
pub mod features;
pub mod frames;
pub mod guest;
pub mod packed;
pub mod random;
pub mod raw;
pub mod split;

use bellows_virtio::Features;
use bellows_virtio::ring::{Areas, Position};

use chains::Chain;
use guest::Guest;

/// The driver's side of a ring.
pub trait Driver {
    /// The ring's areas, for the device.
    fn areas(&self) -> Areas;

    /// Number of descriptors that further chains may take.
    fn free(&self) -> usize;

    /// Writes a chain into the ring, not yet visible to the device. Returns the id under which it will come back.
    fn add(&mut self, guest: &mut Guest, chain: &Chain) -> u16;

    /// Makes the added chains available. Returns whether the device asks for a notification.
    fn publish(&mut self, guest: &mut Guest) -> bool;

    /// Sets the used chains for which the device must notify.
    fn set_notify_mode(&mut self, guest: &mut Guest, mode: NotifyMode);

    /// Accepts the device's request for notifications, which is checked when chains are made available.
    ///
    /// # Panics
    /// If it uses an option that was not negotiated.
    fn accept_suppression(&self, guest: &mut Guest);

    /// Takes back the chains that the device has used since the last time.
    ///
    /// # Panics
    /// If the device wrote something invalid.
    fn reap(&mut self, guest: &mut Guest) -> Reaped;

    /// The position for a device that starts now, after the driver has seen everything that the last one used.
    fn position(&self) -> Position;
}

/// The used chains for which the driver wants notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotifyMode {
    /// Each.
    Always,
    /// None.
    Never,
    /// The one after this many more (split: chains; packed: descriptors). Only with the event index.
    After(u16),
    /// One that is already this far back. Only with the event index.
    Passed(u16),
}

/// A chain that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    pub id: u16,
    /// The length that the device reports; `None` for a chain without a report because a later one of its batch stands
    /// for it.
    pub length: Option<u32>,
}

/// What the driver finds when it checks the ring.
#[derive(Debug)]
pub struct Reaped {
    pub used: Vec<Used>,
    /// Whether the device had to notify the driver.
    pub call_due: bool,
}

/// A driver for a ring of the negotiated format, at a random place in the guest's memory.
pub fn driver(guest: &mut Guest, features: Features, size: u16, random: &mut random::Random) -> Box<dyn Driver> {
    if features.has(Features::RING_PACKED) {
        Box::new(packed::PackedDriver::new(guest, features, size, random))
    } else {
        Box::new(split::SplitDriver::new(guest, features, size, random))
    }
}

/// The flags of descriptors (specification, 2.7.5 and 2.8).
pub mod flag {
    pub const NEXT: u16 = 1;
    pub const WRITE: u16 = 2;
    pub const INDIRECT: u16 = 4;
    pub const AVAIL: u16 = 1 << 7;
    pub const USED: u16 = 1 << 15;
}

/// The 16 bytes of a descriptor: address, length, and two words, which are (flags, next) in a split ring and (id,
/// flags) in a packed one.
pub fn descriptor(address: u64, length: u32, words: [u16; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[12..14].copy_from_slice(&words[0].to_le_bytes());
    bytes[14..].copy_from_slice(&words[1].to_le_bytes());
    bytes
}

//! A driver as the virtio 1.2 specification describes it, word for word and slowly: the model against which rings are tested.
//!
//! It shares no line with the crate that it tests, and where that counts in wrapping 16-bit numbers or in descriptors with a
//! wrap bit, this counts from 0 upwards in 64 bits and makes the ring's numbers from that.
//!
//! - [`guest`]: the guest's memory, and a shadow of it that holds what it ought to be.
//! - [`chains`]: how packets are laid out over descriptors.
//! - [`features`]: sets of features.
//! - [`frames`]: packets whose headers may ask for something, and what they may ask for.
//! - [`split`], [`packed`]: the driver's side of a ring of either kind.
//! - [`raw`]: a ring whose descriptors a test writes itself, whether a driver may or not.
//! - [`random`]: numbers that a seed determines.

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

    /// How many more descriptors a chain may take.
    fn free(&self) -> usize;

    /// Writes a chain into the ring, where the device must not see it yet. Returns the id under which it will come back.
    fn add(&mut self, guest: &mut Guest, chain: &Chain) -> u16;

    /// Makes available what was added. Returns whether the device asks to be told.
    fn publish(&mut self, guest: &mut Guest) -> bool;

    /// Says which used chains the device is to tell of.
    fn wish(&mut self, guest: &mut Guest, wish: Wish);

    /// Takes for right what the device says about when it wants to be told, which is looked at when something is made available.
    ///
    /// # Panics
    /// If it says what was not negotiated.
    fn accept_suppression(&self, guest: &mut Guest);

    /// Takes back what the device has used since the last time.
    ///
    /// # Panics
    /// If the device wrote what it must not.
    fn reap(&mut self, guest: &mut Guest) -> Reaped;

    /// Where a device that starts now has to go on, after the driver has seen all that the last one used.
    fn position(&self) -> Position;
}

/// Of which used chains the driver wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Of each.
    Always,
    /// Of none.
    Never,
    /// Of the one behind the next so many (split: chains; packed: descriptors). Only with the event index.
    After(u16),
    /// Of one that lies so far back already. Only with the event index.
    Passed(u16),
}

/// A chain that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    pub id: u16,
    /// The length that the device reports; `None` for a chain for which it reports nothing because a later one of its batch
    /// stands for it.
    pub length: Option<u32>,
}

/// What the driver finds when it looks.
#[derive(Debug)]
pub struct Reaped {
    pub used: Vec<Used>,
    /// Whether the device had to tell the driver.
    pub call_due: bool,
}

/// A driver for a ring of the kind that was negotiated, at a random place in the guest's memory.
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

/// The 16 bytes of a descriptor: address, length, and two words, which are (flags, next) in a split ring and
/// (id, flags) in a packed one.
pub fn descriptor(address: u64, length: u32, words: [u16; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&address.to_le_bytes());
    bytes[8..12].copy_from_slice(&length.to_le_bytes());
    bytes[12..14].copy_from_slice(&words[0].to_le_bytes());
    bytes[14..].copy_from_slice(&words[1].to_le_bytes());
    bytes
}

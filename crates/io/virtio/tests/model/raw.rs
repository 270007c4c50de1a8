//! A ring into which a test writes anything, descriptor by descriptor.

use std::sync::Arc;

use bellows_packet::pool;
use bellows_virtio::Features;
use bellows_virtio::ring::{Areas, Position, Setup};

use super::descriptor;
use super::flag::AVAIL;
use super::guest::Guest;
use super::random::Random;

/// A ring of either format in its own guest, at whose start a device begins.
pub struct RawRing {
    pub guest: Guest,
    pub areas: Areas,
    pub features: Features,
    pub size: u16,
}

impl RawRing {
    /// A ring of zeros. Creates the packet pool, with its default size if there is none.
    pub fn new(features: Features, size: u16, random: &mut Random) -> RawRing {
        pool::ensure().unwrap();
        let mut guest = Guest::new(random);
        let length = usize::from(size);
        let areas = Areas {
            descriptors: guest.area(16 * length, 16, random),
            driver: guest.area(6 + 2 * length, 4, random),
            device: guest.area(6 + 8 * length, 4, random),
        };
        RawRing { guest, areas, features, size }
    }

    /// The ring's setup for a device.
    pub fn setup(&self) -> Setup {
        Setup {
            memory: Arc::clone(&self.guest.memory),
            features: self.features,
            size: self.size,
            areas: self.areas,
            position: Position::start(self.features),
            call: None,
            kick: None,
        }
    }

    pub fn packed(&self) -> bool {
        self.features.has(Features::RING_PACKED)
    }

    /// Writes a descriptor of the ring. `next` is the next descriptor of a split ring's chain; in a packed ring the
    /// descriptor is available at once.
    pub fn write(&mut self, index: u16, address: u64, length: u32, flags: u16, next: u16) {
        let words = if self.packed() { [index, flags | AVAIL] } else { [flags, next] };
        let at = self.areas.descriptors + 16 * u64::from(index);
        self.guest.write(at, &descriptor(address, length, words));
    }

    /// Writes an entry of the table at an address.
    pub fn write_entry(&mut self, table: u64, index: u16, address: u64, length: u32, flags: u16, next: u16) {
        let words = if self.packed() { [0, flags] } else { [flags, next] };
        self.guest.write(table + 16 * u64::from(index), &descriptor(address, length, words));
    }

    /// Writes a head into an entry of a split ring's available ring. A packed ring has none.
    pub fn write_head(&mut self, entry: u16, head: u16) {
        if !self.packed() {
            self.guest.write_u16(self.areas.driver + 4 + 2 * u64::from(entry), head);
        }
    }

    /// Sets the number of written entries of a split ring's available ring.
    pub fn write_index(&mut self, count: u16) {
        if !self.packed() {
            self.guest.write_u16(self.areas.driver + 2, count);
        }
    }
}

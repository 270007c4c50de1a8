//! The device's side of one ring: a loop that takes packets out of the driver's buffers, or puts them there.
//!
//! There is one loop for each direction, generic over the options that driver and device have negotiated, and compiled once
//! for every combination of them ([`Options`]). When a ring is [set up](Setup) the instance for its combination is chosen, once;
//! nothing in it asks what was negotiated. So a ring costs what its own options cost, and what other rings, or this one's
//! drivers before, have done makes no difference.
//!
//! Copies go through a [`Blitter`], and all of them are done before anything is published: before the index of a split ring moves, and
//! before the first used descriptor of a packed one is written, behind which a driver sees no others.
//!
//! Everything that is read from the driver's memory is read once, checked, and believed no further. A driver that breaks
//! the rules stops its ring with a [`RingError`].
//!
//! | file | what it holds |
//! |---|---|
//! | `options.rs` | the options, and the table of instances |
//! | `core.rs` | what all loops share: heads, chains, used buffers |
//! | `transmit.rs`, `receive.rs` | the two loops |
//! | `notify.rs` | notifications both ways |
//! | `guest.rs` | access to the driver's memory |

mod core;
mod error;
mod guest;
mod notify;
mod options;
mod receive;
mod transmit;

use std::ptr::NonNull;
use std::sync::Arc;

use bellows_blit::{Blitter, How};
use bellows_packet::{LargeShare, Packet, Vector};
use bellows_sys::notify::Notifier;
use bellows_sys::wake::PeerEvent;

use self::core::{Core, WriteLog};
use crate::features::Features;
use crate::inflight::Inflight;
use crate::log::Log;
use crate::memory::Memory;

pub use self::core::{STEPS_PER_CALL, STEPS_PER_PACKET};
pub use error::{RingError, SetupError};
pub use notify::Doorbell;
pub use options::{Direction, Options};

pub use crate::position::Position;

/// Where a ring's three areas lie, as the guest counts (specification, 2.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    /// The descriptor table, or the packed ring.
    pub descriptors: u64,
    /// What the driver writes: the available ring, or the driver event suppression.
    pub driver: u64,
    /// What the device writes: the used ring, or the device event suppression.
    pub device: u64,
}

/// All that a ring is made of.
pub struct Setup {
    /// The driver's memory.
    pub memory: Arc<Memory>,
    /// What was negotiated.
    pub features: Features,
    /// How many descriptors it has.
    pub size: u16,
    /// Where it lies.
    pub areas: Areas,
    /// Where it goes on.
    pub position: Position,
    /// By which the driver is told of used buffers.
    pub call: Option<Notifier>,
    /// By which the driver tells of available ones.
    pub kick: Option<PeerEvent>,
}

impl Setup {
    /// Checks all that a loop relies on, and finds the areas.
    fn check(&self) -> Result<[NonNull<u8>; 3], SetupError> {
        self.features.check()?;
        let packed = self.features.has(Features::RING_PACKED);
        let size = self.size;
        if size == 0 || size > 32_768 || !packed && !size.is_power_of_two() {
            return Err(SetupError::Size { size });
        }
        let position = |index: u16| if index < size { Ok(()) } else { Err(SetupError::Position { index, size }) };
        match self.position {
            Position::Packed { avail, used, .. } if packed => position(avail).and(position(used))?,
            Position::Split { .. } if !packed => {}
            // A position of the other kind of ring.
            _ => return Err(SetupError::Position { index: u16::MAX, size }),
        }
        let count = u64::from(size);
        // Lengths with the event indices, whether negotiated or not: split rings have room for them by their layout's alignment.
        let (driver, device, driver_alignment) =
            if packed { (4, 4, 4) } else { (4 + 2 * count + 2, 4 + 8 * count + 2, 2) };
        let Areas { descriptors, driver: driver_at, device: device_at } = self.areas;
        Ok([
            self.area("descriptor", descriptors, 16 * count, 16)?,
            self.area("driver", driver_at, driver, driver_alignment)?,
            self.area("device", device_at, device, 4)?,
        ])
    }

    fn area(&self, area: &'static str, address: u64, length: u64, alignment: u64) -> Result<NonNull<u8>, SetupError> {
        let found = self.memory.translate(address, length).ok_or(SetupError::Outside { area, address })?;
        // A region may itself start anywhere.
        let aligned = |address: u64| address.is_multiple_of(alignment);
        if aligned(address) && aligned(found.as_ptr() as u64) {
            Ok(found)
        } else {
            Err(SetupError::Alignment { area, address, alignment })
        }
    }
}

/// What a ring has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that went through.
    pub packets: u64,
    /// Their bytes, without headers.
    pub bytes: u64,
    /// Chains that were used.
    pub chains: u64,
    /// Times the driver was told.
    pub calls: u64,
    /// Chains with a header and no data; used and dropped.
    pub empty: u64,
    /// Packets longer than the longest; used and dropped.
    pub too_long: u64,
    /// Packets whose header asks for what cannot be or was not negotiated; used and dropped.
    pub bad_header: u64,
    /// Long packets for which this device's [share](LargeShare) of large buffers has none left; used and dropped.
    pub no_large_buffer: u64,
}

/// Why [`ReceiveRing::receive`] took no more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// There were no more.
    Done,
    /// The driver has made no buffer available.
    Full,
    /// The next packet fits into no buffer of this driver.
    TooLong,
    /// The next packet has something left to do that this driver has not agreed to do.
    Offload,
    /// The driver's chains are so long that the call has looked at enough of them: the next call goes on.
    Spent,
}

/// What a call did that gives packets to the other side: [`ReceiveRing::receive`], and the driver's
/// [`TransmitQueue::transmit`](crate::driver::TransmitQueue::transmit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken<S = Stop> {
    /// How many packets it took.
    pub count: usize,
    /// Why no more.
    pub stop: S,
}

macro_rules! common {
    ($direction:expr, $choose:path $(, $field:ident: $value:expr)?) => {
        /// Sets up a ring and chooses the loop for its options.
        ///
        /// # Errors
        /// What no ring can be.
        pub fn new(setup: Setup) -> Result<Self, SetupError> {
            let areas = setup.check()?;
            let options = Options::new(setup.features, $direction);
            Ok(Self { run: $choose(options), core: Box::new(Core::new(setup, options, areas)) $(, $field: $value)? })
        }

        /// The options for which the running loop was compiled.
        pub fn options(&self) -> Options {
            self.core.options
        }

        /// The name of the running loop.
        pub fn instance(&self) -> String {
            format!("{} {}", $direction.name(), self.core.options)
        }

        /// What was negotiated.
        pub fn features(&self) -> Features {
            self.core.features
        }

        /// How many descriptors it has.
        pub fn size(&self) -> u16 {
            self.core.size
        }

        /// Where it goes on.
        pub fn position(&self) -> Position {
            self.core.position()
        }

        /// What it has counted.
        pub fn counters(&self) -> Counters {
            self.core.counters
        }

        /// What has stopped it.
        pub fn error(&self) -> Option<RingError> {
            self.core.error
        }

        /// How much of its burst the last call has spent, in packets: one for each chain, and more for one that is long.
        pub fn spent(&self) -> usize {
            self.core.spent
        }

        /// How many chains its calls have used, and how many descriptors and pieces they have looked at on walks. For tests of
        /// [`STEPS_PER_PACKET`] and [`STEPS_PER_CALL`].
        #[cfg(debug_assertions)]
        pub fn steps(&self) -> u64 {
            self.core.steps
        }

        /// By what an engine sees that there is something to do.
        pub fn doorbell(&self) -> Arc<Doorbell> {
            Arc::clone(&self.core.doorbell)
        }

        /// Does its copies in another way, for experiments.
        pub fn set_copies(&mut self, how: How) {
            self.core.blitter = Blitter::how(how);
        }

        /// From now on marks what is written in a log, or no longer. `used` is where what is written into the ring itself is
        /// logged, if it is (vhost-user, `VHOST_VRING_F_LOG`): the guest's address of the used ring, or of a packed ring.
        pub fn set_log(&mut self, log: Option<Arc<Log>>, used: Option<u64>) {
            self.core.log = log.map(|log| WriteLog::new(log, used));
        }

        /// From now on says after each batch where the ring is, or no longer.
        pub fn set_inflight(&mut self, inflight: Option<Inflight>) {
            self.core.inflight = inflight;
            if let Some(inflight) = &self.core.inflight {
                inflight.publish(self.core.position());
            }
        }

        /// What every call looks at first.
        #[inline(always)]
        fn ready(&mut self) -> Result<(), RingError> {
            if self.core.memory.is_broken() {
                self.core.error = Some(RingError::MemoryGone);
            }
            match self.core.error {
                Some(error) => Err(error),
                None => Ok(()),
            }
        }
    };
}

/// The device's side of a transmit queue: packets come from the driver.
pub struct TransmitRing {
    core: Box<Core>,
    run: transmit::Loop,
    discarding: bool,
}

impl TransmitRing {
    common!(Direction::Transmit, options::transmit, discarding: false);

    /// Makes large packets on an account of its own, so that packets which nobody takes cost other devices nothing.
    pub fn set_share(&mut self, share: Arc<LargeShare>) {
        self.core.share = Some(share);
    }

    /// From now on packets are only fetched to be discarded: the caller drops them.
    pub fn set_discarding(&mut self, discarding: bool) {
        self.discarding = discarding;
    }

    /// Whether packets are to be dropped: the driver has disabled the queue.
    #[inline]
    pub fn is_discarding(&self) -> bool {
        self.discarding
    }

    /// Brings at most `most` packets from the driver, as many as the vector has room for. Returns how many buffers were used. Hot.
    ///
    /// # Errors
    /// What has stopped the ring, in this call or before. Packets before the one that did are delivered first.
    #[inline]
    pub fn transmit(&mut self, packets: &mut Vector, most: usize) -> Result<usize, RingError> {
        self.ready()?;
        let count = (self.run)(&mut self.core, packets, most);
        match self.core.error {
            Some(error) if count == 0 => Err(error),
            _ => Ok(count),
        }
    }
}

/// The device's side of a receive queue: packets go to the driver.
pub struct ReceiveRing {
    core: Box<Core>,
    run: receive::Loop,
}

impl ReceiveRing {
    common!(Direction::Receive, options::receive);

    /// Gives packets to the driver, the first ones first; the caller then frees those that were taken. Hot.
    ///
    /// # Errors
    /// What has stopped the ring, in this call or before. Packets before the one that did are delivered first.
    #[inline]
    pub fn receive(&mut self, packets: &[Packet]) -> Result<Taken, RingError> {
        self.ready()?;
        let taken = (self.run)(&mut self.core, packets);
        match self.core.error {
            Some(error) if taken.count == 0 => Err(error),
            _ => Ok(taken),
        }
    }
}

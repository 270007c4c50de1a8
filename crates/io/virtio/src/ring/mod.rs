//! The device's side of one ring: a loop that takes packets out of the driver's buffers, or writes packets into them.
//!
//! There is one loop for each direction, generic over the negotiated options, and compiled for every combination of
//! them ([`RingOptions`]). When a ring is [set up](Setup) the instance for its combination is chosen, once; no instance
//! tests negotiated options. So a ring only costs what its own options cost, and other rings and earlier drivers of
//! this one have no influence.
//!
//! Copies go through a [`Blitter`], and are all done before anything is published: before the index of a split ring
//! moves, and before the first used descriptor of a packed one is written, without which a driver does not read the
//! ones after it.
//!
//! The driver's memory is untrusted: each value is read once and checked. A driver that violates the specification
//! stops its ring with a [`RingError`].
//!
//! | file | contents |
//! |---|---|
//! | `options.rs` | the options, and the table of instances |
//! | `core.rs` | the common part of all loops: heads, chains, used buffers |
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
use bellows_ipc::notify::Notifier;
use bellows_packet::{LargeShare, Packet, Vector};
use bellows_sys::wake::PeerEvent;

use self::core::{Core, WriteLog};
use crate::features::Features;
use crate::inflight::Inflight;
use crate::log::Log;
use crate::memory::Memory;

pub use self::core::{STEPS_PER_CALL, STEPS_PER_PACKET};
pub use error::{RingError, SetupError};
pub use notify::Doorbell;
pub use options::{Direction, RingOptions};

pub use crate::position::Position;

/// The guest addresses of a ring's three areas (specification, 2.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    /// The descriptor table, or the packed ring.
    pub descriptors: u64,
    /// The area that the driver writes: the available ring, or the driver event suppression.
    pub driver: u64,
    /// The area that the device writes: the used ring, or the device event suppression.
    pub device: u64,
}

/// The parts of a ring.
pub struct Setup {
    /// The driver's memory.
    pub memory: Arc<Memory>,
    /// The negotiated features.
    pub features: Features,
    /// Number of descriptors.
    pub size: u16,
    /// Its areas.
    pub areas: Areas,
    /// The position at which it continues.
    pub position: Position,
    /// Notifies the driver of used buffers.
    pub call: Option<Notifier>,
    /// Notifications from the driver of available buffers.
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
            // A position of the other ring format.
            _ => return Err(SetupError::Position { index: u16::MAX, size }),
        }
        let count = u64::from(size);
        // The lengths include the event indices, whether negotiated or not: the alignment of split rings leaves room
        // for them.
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
        // A region may start at any address.
        let aligned = |address: u64| address.is_multiple_of(alignment);
        if aligned(address) && aligned(found.as_ptr() as u64) {
            Ok(found)
        } else {
            Err(SetupError::Alignment { area, address, alignment })
        }
    }
}

/// The counters of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets moved.
    pub packets: u64,
    /// Their bytes, without headers.
    pub bytes: u64,
    /// Chains used.
    pub chains: u64,
    /// Notifications of the driver.
    pub calls: u64,
    /// Chains with a header and no data; used and dropped.
    pub empty: u64,
    /// Packets longer than the maximum; used and dropped.
    pub too_long: u64,
    /// Packets whose header is invalid or asks for options that were not negotiated; used and dropped.
    pub bad_header: u64,
    /// Long packets that found this device's [share](LargeShare) of large buffers empty; used and dropped.
    pub no_large_buffer: u64,
}

/// The reason why [`ReceiveRing::receive`] took no more packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// There were no more.
    Done,
    /// The driver has no buffer available.
    Full,
    /// The next packet does not fit into any buffer of this driver.
    TooLong,
    /// The next packet has an offload that this driver has not negotiated.
    Offload,
    /// The driver's chains are so long that the call's budget is spent: the next call continues.
    Spent,
}

/// The result of a call that sends packets to the other side: [`ReceiveRing::receive`], and the driver's
/// [`TransmitQueue::transmit`](crate::driver::TransmitQueue::transmit).
pub type Taken<S = Stop> = bellows_ports::Taken<S>;

macro_rules! common {
    ($direction:expr, $choose:path $(, $field:ident: $value:expr)?) => {
        /// Sets up a ring and chooses the loop for its options.
        ///
        /// # Errors
        /// The setup is impossible.
        pub fn new(setup: Setup) -> Result<Self, SetupError> {
            let areas = setup.check()?;
            let options = RingOptions::new(setup.features, $direction);
            Ok(Self { run: $choose(options), core: Box::new(Core::new(setup, options, areas)) $(, $field: $value)? })
        }

        /// The options of the instance that runs.
        pub fn options(&self) -> RingOptions {
            self.core.options
        }

        /// The name of the instance that runs.
        pub fn instance(&self) -> String {
            format!("{} {}", $direction.name(), self.core.options)
        }

        /// The negotiated features.
        pub fn features(&self) -> Features {
            self.core.features
        }

        /// Number of descriptors.
        pub fn size(&self) -> u16 {
            self.core.size
        }

        /// The position at which it continues.
        pub fn position(&self) -> Position {
            self.core.position()
        }

        /// Its counters.
        pub fn counters(&self) -> Counters {
            self.core.counters
        }

        /// The error that has stopped it.
        pub fn error(&self) -> Option<RingError> {
            self.core.error
        }

        /// Packets of its burst that the last call has spent: one for each chain, and more for a long one.
        pub fn spent(&self) -> usize {
            self.core.spent
        }

        /// The number of chains that its calls have used, plus the descriptors and pieces that their walks have
        /// visited. For tests of [`STEPS_PER_PACKET`] and [`STEPS_PER_CALL`].
        #[cfg(debug_assertions)]
        pub fn steps(&self) -> u64 {
            self.core.steps
        }

        /// The doorbell by which an engine sees that there is something to do.
        pub fn doorbell(&self) -> Arc<Doorbell> {
            Arc::clone(&self.core.doorbell)
        }

        /// Whether a call has not returned, but panicked. Nobody knows how far it came, so the ring must not be used any
        /// more.
        pub(crate) fn is_interrupted(&self) -> bool {
            self.core.is_in_call
        }

        /// Changes how copies are done, for experiments.
        pub fn set_copies(&mut self, how: How) {
            self.core.blitter = Blitter::how(how);
        }

        /// Sets the log in which writes are marked from now on, if any. `used` is the address where writes into the
        /// ring itself are logged, if they are (vhost-user, `VHOST_VRING_F_LOG`): the guest address of the used ring,
        /// or of a packed ring.
        pub fn set_log(&mut self, log: Option<Arc<Log>>, used: Option<u64>) {
            self.core.log = log.map(|log| WriteLog::new(log, used));
        }

        /// Sets the record of the position, if any: it is updated after each batch from now on.
        pub fn set_inflight(&mut self, inflight: Option<Inflight>) {
            self.core.inflight = inflight;
            if let Some(inflight) = &self.core.inflight {
                inflight.publish(self.core.position());
            }
        }

        /// The first check of every call.
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

    /// Leaves the ring as a call does that panics.
    #[cfg(test)]
    pub(crate) fn interrupt(&mut self) {
        self.core.is_in_call = true;
    }

    /// Sets the quota of large buffers, so that packets which nobody takes do not cost other devices their buffers.
    pub fn set_share(&mut self, share: Arc<LargeShare>) {
        self.core.share = Some(share);
    }

    /// From now on packets are only fetched to be discarded: the caller drops them.
    pub fn set_discarding(&mut self, discarding: bool) {
        self.discarding = discarding;
    }

    /// Whether packets must be dropped: the driver has disabled the queue.
    #[inline]
    pub fn is_discarding(&self) -> bool {
        self.discarding
    }

    /// Receives at most `most` packets from the driver, as many as the vector has room for. Returns how many buffers
    /// were used. Hot.
    ///
    /// # Errors
    /// The error that has stopped the ring, in this call or before. Packets before the error are delivered first.
    #[inline]
    pub fn transmit(&mut self, packets: &mut Vector, most: usize) -> Result<usize, RingError> {
        self.ready()?;
        self.core.is_in_call = true;
        let count = (self.run)(&mut self.core, packets, most);
        self.core.is_in_call = false;
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

    /// Sends packets to the driver, in order; the caller then frees those that were taken. Hot.
    ///
    /// # Errors
    /// The error that has stopped the ring, in this call or before. Packets before the error are delivered first.
    #[inline]
    pub fn receive(&mut self, packets: &[Packet]) -> Result<Taken, RingError> {
        self.ready()?;
        self.core.is_in_call = true;
        let taken = (self.run)(&mut self.core, packets);
        self.core.is_in_call = false;
        match self.core.error {
            Some(error) if taken.count == 0 => Err(error),
            _ => Ok(taken),
        }
    }
}

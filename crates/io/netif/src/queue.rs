//! Queues of frames between the engine and an interface or a socket.

use std::io;
use std::sync::Arc;

use bellows_netdev::PortError;
use bellows_packet::Vector;
use bellows_ports::{Accepted, QueueBell, SendQueue};
use schemars::JsonSchema;
use serde::Serialize;

/// One queue of an interface or a socket, in both directions.
///
/// The engine calls it and never waits in it. A control thread opens and drops it.
pub trait Queue: SendQueue<Error = QueueError> + Send + 'static {
    /// The bell that says whether frames have arrived.
    type Bell: QueueBell;

    /// The bell. The same one for the life of the queue.
    fn bell(&self) -> Arc<Self::Bell>;

    /// Adds up to `most` packets that have arrived to the end of `packets`, which is empty and has room for them.
    ///
    /// # Errors
    /// Why the queue brings no packets. Those that it added before are valid.
    fn receive(&mut self, packets: &mut Vector, most: usize) -> Result<(), QueueError>;

    /// Sets whether frames are received from now on. What the kernel does with others is no drop. False if the other side
    /// would wait for somebody to take them.
    ///
    /// # Errors
    /// Why the kernel refuses. Nothing has changed, and a ring that nobody reads fills, which costs nothing more.
    fn set_receiving(&mut self, receives: bool) -> io::Result<bool> {
        let _ = receives;
        Ok(false)
    }

    /// Whether nothing says that frames have arrived, so that the queue must be asked in every breath and the engine never
    /// sleeps.
    fn is_polled(&self) -> bool {
        false
    }

    /// Sends what was taken since the last call of it. Called after each series of [`SendQueue::send`].
    ///
    /// # Errors
    /// Why nothing can be sent. Packets that were taken are sent later or counted as [`QueueCounts::not_sent`].
    fn flush(&mut self) -> Result<(), QueueError>;

    /// Whether it can send. The queues that can come first.
    fn sends(&self) -> bool {
        true
    }

    /// Whether packets that were taken wait for room on the other side. [`flush`](Queue::flush) is then called in every
    /// breath.
    fn has_unsent(&self) -> bool {
        false
    }

    /// The offloads that the other side accepts.
    fn accepted(&self) -> Accepted;

    /// What the queue has counted since it was opened. May ask the kernel: meant to be called now and then.
    fn counts(&mut self) -> QueueCounts;
}

/// Why a queue cannot receive or send now.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The interface is down. The queue works again when it is up.
    #[error("the interface is down")]
    Down,
    /// The interface or the other side is gone, and with it the queue.
    #[error("the interface or the other side is gone")]
    Gone,
    /// The system has refused something. The queue is opened anew.
    #[error("{0}")]
    System(#[from] io::Error),
}

impl QueueError {
    /// The error of a descriptor that passes frames, other than one that concerns a frame alone.
    #[cold]
    pub(crate) fn from_port(error: PortError) -> QueueError {
        match error {
            PortError::Down => QueueError::Down,
            PortError::Gone => QueueError::Gone,
            PortError::Other(error) => QueueError::System(error),
            error => QueueError::System(io::Error::other(error)),
        }
    }
}

/// Declares the counts of a queue: the field, the counter's name, and its help.
macro_rules! queue_counts {
    ($($field:ident, $help:literal $(in $unit:literal)?;)*) => {
        /// What a queue has counted.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
        pub struct QueueCounts {
            $(
                #[doc = concat!("Number of ", $help, ".")]
                pub $field: u64,
            )*
        }

        impl QueueCounts {
            /// The counts' names, texts and units (`None` for packets), in the order of [`QueueCounts::values`].
            pub const NAMES: &[(&str, &str, Option<&str>)] =
                &[$((stringify!($field), $help, queue_counts!(@unit $($unit)?)),)*];

            /// The number of counts that are drops, which are the first.
            pub const DROPS: usize = 9;

            /// The counts.
            pub fn values(&self) -> [u64; QueueCounts::NAMES.len()] {
                [$(self.$field,)*]
            }

            /// The sums of two.
            pub fn plus(&self, other: &QueueCounts) -> QueueCounts {
                QueueCounts { $($field: self.$field + other.$field,)* }
            }
        }
    };
    (@unit) => { None };
    (@unit $unit:literal) => { Some($unit) };
}

queue_counts! {
    kernel_dropped, "packets that the kernel dropped because this app did not take them in time";
    kernel_refused, "packets that the kernel dropped for other reasons, such as their length";
    rx_too_long, "packets from the other side that are longer than 73,600 bytes, or than the ring allows";
    rx_bad_header, "packets from the other side whose header is invalid or does not match them";
    rx_no_buffer, "packets from the other side for which the pool had no buffer";
    not_sent, "packets that the kernel took and then did not send";
    missed, "packets that the device dropped because this app did not take them in time (DPDK's `imissed`)";
    no_mbuf, "packets that the driver dropped because the pool had no buffer (DPDK's `rx_nombuf`)";
    errors, "packets that the device received with errors (DPDK's `ierrors`)";
    send_errors, "packets that the driver refused, which are tried again, or failed to send (DPDK's `oerrors`)";
    checksums_finished, "packets whose partial checksum was recognized and finished (`finish_checksums`)";
    vlan_tags_restored, "packets whose VLAN tag the kernel had stripped";
    copied, "packets that were copied because the kernel could not use the packet pool, or has them in pieces";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_names_in_their_order() {
        let counts = QueueCounts { kernel_dropped: 3, copied: 4, ..QueueCounts::default() };
        let sum = counts.plus(&counts);
        let named: Vec<_> = QueueCounts::NAMES.iter().map(|(name, ..)| *name).zip(sum.values()).collect();
        assert_eq!(named.first(), Some(&("kernel_dropped", 6)));
        assert_eq!(named.last(), Some(&("copied", 8)));
    }
}

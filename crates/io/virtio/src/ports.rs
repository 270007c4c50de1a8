//! Queues and bells as ports use them.

use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;

use bellows_packet::Packet;
use bellows_ports::{QueueBell, Rejection, SendQueue, Taken};

use crate::driver::{DeviceError, TransmitQueue, UsedBell};
use crate::ring::{Doorbell, ReceiveRing, RingError, Stop};

impl SendQueue for ReceiveRing {
    type Error = RingError;

    #[inline]
    fn send(&mut self, packets: &[Packet]) -> Result<Taken, RingError> {
        let Taken { count, stop } = self.receive(packets)?;
        let stop = match stop {
            Stop::Done | Stop::Spent => None,
            Stop::Full => Some(Rejection::Full),
            Stop::TooLong => Some(Rejection::TooLong),
            Stop::Offload => Some(Rejection::Offload),
        };
        Ok(Taken { count, stop })
    }

    #[inline]
    fn spent(&self) -> usize {
        ReceiveRing::spent(self).max(1)
    }
}

/// The driver chooses the layout of its buffers, so the device cannot make a packet cost more.
impl SendQueue for TransmitQueue {
    type Error = DeviceError;

    #[inline]
    fn send(&mut self, packets: &[Packet]) -> Result<Taken, DeviceError> {
        self.transmit(packets)
    }
}

macro_rules! bells {
    ($($bell:ty),*) => {$(
        impl QueueBell for $bell {
            #[inline]
            fn word(&self) -> Option<&AtomicU32> {
                Some(<$bell>::word(self))
            }

            #[inline]
            fn mask(&self) -> u32 {
                <$bell>::mask(self)
            }

            #[inline]
            fn quiet(&self) -> u32 {
                <$bell>::quiet(self)
            }

            fn descriptor(&self) -> Option<BorrowedFd<'_>> {
                <$bell>::descriptor(self)
            }

            fn arm(&self) {
                <$bell>::arm(self);
            }

            fn disarm(&self) {
                <$bell>::disarm(self);
            }
        }
    )*};
}

bells!(Doorbell, UsedBell);

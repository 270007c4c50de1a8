//! The bells of queues: how the engine sees that a queue has work.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_engine::{App, Io, Watched};
use bellows_virtio::driver::UsedBell;
use bellows_virtio::ring::Doorbell;

/// The bell of a queue: a word that the other side writes.
pub(crate) trait QueueBell: Send + Sync + 'static {
    /// The word.
    fn word(&self) -> &AtomicU32;
    /// The bits of the word that count.
    fn mask(&self) -> u32;
    /// The value of these bits while there is nothing new.
    fn quiet(&self) -> u32;
    /// A descriptor that becomes readable while the engine sleeps.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    /// Called when the engine is about to sleep.
    fn arm(&self);
    /// Called when it is awake.
    fn disarm(&self);
}

macro_rules! bells {
    ($($bell:ty),*) => {$(
        impl QueueBell for $bell {
            #[inline]
            fn word(&self) -> &AtomicU32 {
                <$bell>::word(self)
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

struct Watch<B>(Arc<B>);

impl<B: QueueBell> Watched for Watch<B> {
    fn word(&self) -> Option<&AtomicU32> {
        Some(self.0.word())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.descriptor()
    }

    fn arm(&self) {
        self.0.arm();
    }

    fn disarm(&self) {
        self.0.disarm();
    }
}

/// Lets a slot watch a queue; with `None`, nothing.
pub(crate) fn watch<A: App, B: QueueBell>(io: &Io<A>, slot: usize, bell: Option<&Arc<B>>) {
    match bell {
        Some(bell) => io.slot(slot).watch(Arc::new(Watch(Arc::clone(bell))), bell.mask(), bell.quiet()),
        None => io.slot(slot).never(),
    }
}

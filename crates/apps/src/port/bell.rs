//! Slots that watch the bells of queues.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_engine::{App, Io, Watched};
use bellows_ports::QueueBell;
use bellows_sys::wake::AnyReadable;

struct Watch<B>(Arc<B>);

impl<B: QueueBell> Watched for Watch<B> {
    fn word(&self) -> Option<&AtomicU32> {
        self.0.word()
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

/// The bells of several queues: the queues are asked in every breath, and the engine sleeps until any has work.
pub(crate) struct AnyBell<B> {
    pub(crate) any: AnyReadable,
    pub(crate) bells: Vec<Arc<B>>,
}

impl<B: QueueBell> QueueBell for AnyBell<B> {
    fn word(&self) -> Option<&AtomicU32> {
        None
    }

    fn mask(&self) -> u32 {
        0
    }

    fn quiet(&self) -> u32 {
        0
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.any.as_fd())
    }

    fn arm(&self) {
        self.bells.iter().for_each(|bell| bell.arm());
    }

    fn disarm(&self) {
        self.bells.iter().for_each(|bell| bell.disarm());
    }
}

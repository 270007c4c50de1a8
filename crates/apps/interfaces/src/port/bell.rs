//! Slots that watch the bells of queues.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_engine::{App, Io, Watched};
use bellows_ports::QueueBell;

struct Watch<B>(Arc<B>);

impl<B: QueueBell> Watched for Watch<B> {
    fn word(&self) -> Option<&AtomicU32> {
        self.0.word()
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.0.descriptor().into_iter().collect()
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
pub(crate) struct AnyBell<B>(pub(crate) Vec<Arc<B>>);

impl<B: QueueBell> Watched for AnyBell<B> {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.0.iter().filter_map(|bell| bell.descriptor()).collect()
    }

    fn arm(&self) {
        self.0.iter().for_each(|bell| bell.arm());
    }

    fn disarm(&self) {
        self.0.iter().for_each(|bell| bell.disarm());
    }
}

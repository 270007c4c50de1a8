//! A thread that looks up in both tables while another one changes them.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use bellows_fib::{Fib, Prefix};
use bellows_shared::Readers;
use bellows_sys::cpu;

use super::BATCH;
use super::routes::Prefixes;
use super::tables::{KEY_SETS, KeySet, Keys, keys, rib, routes};

/// The keys that the thread looks up.
const READ: KeySet = KEY_SETS[2];

/// Look-ups before those that count.
const WARM_UP: u64 = 1 << 17;

/// Both tables, filled.
pub(super) struct Tables {
    pub(super) ipv4: Fib<u32>,
    pub(super) ipv6: Fib<u128>,
}

impl Tables {
    pub(super) fn new(prefixes: &Prefixes, next_hops: u32) -> Result<Arc<Tables>, std::io::Error> {
        Ok(Arc::new(Tables { ipv4: filled(&prefixes.ipv4, next_hops)?, ipv6: filled(&prefixes.ipv6, next_hops)? }))
    }
}

fn filled<A: Keys>(prefixes: &[Prefix<A>], next_hops: u32) -> Result<Fib<A>, std::io::Error> {
    let fib = Fib::with_readers(Arc::new(Readers::new()))?;
    let mut changes = fib.lock();
    changes.replace(rib(&routes(prefixes, next_hops)));
    changes.commit()?;
    drop(changes);
    Ok(fib)
}

/// What is done about each batch that a thread looks up.
pub(super) trait BatchWatch: Send + 'static {
    /// Looks up a batch of each family, which returns the addresses of the tables.
    fn batch(&mut self, look_up: impl FnOnce() -> [usize; 2]);
}

/// Nothing.
pub(super) struct Unwatched;

impl BatchWatch for Unwatched {
    fn batch(&mut self, look_up: impl FnOnce() -> [usize; 2]) {
        look_up();
    }
}

/// A thread that looks up during turns, and parks between them, when it must not disturb other processes.
pub(super) struct Looking {
    thread: JoinHandle<()>,
    shared: Arc<ReadingShared>,
}

#[derive(Default)]
struct ReadingShared {
    is_turn: AtomicBool,
    stop: AtomicBool,
    /// Look-ups so far.
    count: AtomicU64,
}

impl Looking {
    /// A thread that will look up keys by prefix.
    pub(super) fn at(tables: Arc<Tables>, prefixes: &Prefixes, watch: impl BatchWatch) -> Looking {
        let (ipv4, ipv6) = (keys(READ, &prefixes.ipv4), keys(READ, &prefixes.ipv6));
        let shared = Arc::new(ReadingShared::default());
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || look_up_in_turns(&tables, (&ipv4, &ipv6), watch, &shared)
        });
        Looking { thread, shared }
    }

    /// Begins a turn. Returns when the thread has its keys in the caches again.
    pub(super) fn begin(&self) {
        self.shared.is_turn.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        let begin = self.count();
        while self.count() < begin + WARM_UP {
            if self.thread.is_finished() {
                crate::workers::fail(&"the thread that looks up has ended");
            }
            thread::yield_now();
        }
    }

    /// Ends a turn.
    pub(super) fn end(&self) {
        self.shared.is_turn.store(false, Ordering::Relaxed);
    }

    /// The look-ups so far.
    pub(super) fn count(&self) -> u64 {
        self.shared.count.load(Ordering::Relaxed)
    }

    /// Ends the thread.
    pub(super) fn finish(self) -> Result<(), String> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        match self.thread.join() {
            Err(_) => Err("the thread that looks up has panicked".to_owned()),
            Ok(()) if self.shared.count.load(Ordering::Relaxed) == 0 => {
                Err("the other thread has looked up nothing".to_owned())
            }
            Ok(()) => Ok(()),
        }
    }
}

/// On another processor than the one that changes routes, if there is one.
fn look_up_in_turns(
    tables: &Tables,
    (ipv4, ipv6): (&[u32], &[u128]),
    mut watch: impl BatchWatch,
    shared: &ReadingShared,
) {
    // If it cannot be moved, both share a processor, and the figure shows it.
    let _ = cpu::pin_to(0);
    let (mut readers, mut next) = ((tables.ipv4.reader(), tables.ipv6.reader()), [0; BATCH]);
    for (ipv4, ipv6) in ipv4.chunks(BATCH).zip(ipv6.chunks(BATCH)).cycle() {
        while !shared.is_turn.load(Ordering::Relaxed) && !shared.stop.load(Ordering::Relaxed) {
            // Nothing is in use meanwhile.
            readers.0.read(|_| ());
            readers.1.read(|_| ());
            thread::park();
        }
        if shared.stop.load(Ordering::Relaxed) {
            break;
        }
        watch.batch(|| {
            let ipv4 = readers.0.read(|tables| {
                tables.look_up(ipv4, &mut next);
                ptr::from_ref(tables).addr()
            });
            let ipv6 = readers.1.read(|tables| {
                tables.look_up(ipv6, &mut next);
                ptr::from_ref(tables).addr()
            });
            [ipv4, ipv6]
        });
        shared.count.fetch_add(2 * BATCH as u64, Ordering::Relaxed);
    }
}

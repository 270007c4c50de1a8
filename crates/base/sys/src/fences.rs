//! A pair of fences for two threads, of which one passes its fence often and the other one rarely.
//!
//! Each thread stores something, passes its fence, and loads what the other one stores. Then at least one of them sees
//! the other's store, as with a full fence on both sides. [`often`] costs nothing, because [`rarely`] has the kernel
//! interrupt all threads of the process that run: `membarrier(2)`, since Linux 4.14. Without it both are full fences.

use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::{AtomicBool, compiler_fence, fence};

use rustix::thread::{MembarrierCommand, membarrier};

/// Whether `rarely` interrupts the other threads.
static INTERRUPTS: AtomicBool = AtomicBool::new(false);

/// Prepares the process. Call it before the threads share what they store and load; before that, both fences are full.
pub fn prepare() {
    if !INTERRUPTS.load(Acquire) && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() {
        INTERRUPTS.store(true, Release);
    }
}

/// The fence of the thread that passes it often.
#[inline(always)]
pub fn often() {
    if INTERRUPTS.load(Acquire) {
        compiler_fence(SeqCst);
    } else {
        fence(SeqCst);
    }
}

/// The fence of the thread that passes it rarely: takes microseconds.
#[cold]
pub fn rarely() {
    fence(SeqCst);
    if INTERRUPTS.load(Acquire) {
        // It can only fail for lack of memory, which the other command does not need.
        let interrupted = membarrier(MembarrierCommand::PrivateExpedited);
        let _ = interrupted.or_else(|_| membarrier(MembarrierCommand::Global));
        fence(SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::atomic::{AtomicU32, AtomicUsize};
    use std::thread;

    use super::*;

    /// The number of rounds in which neither of two threads saw the other's store.
    fn blind_rounds(rounds: usize, fences: [fn(); 2]) -> usize {
        let words: Vec<[AtomicU32; 2]> = (0..rounds).map(|_| Default::default()).collect();
        let arrived = [const { AtomicUsize::new(0) }; 2];
        let act = |own: usize| {
            let saw = |(round, pair): (usize, &[AtomicU32; 2])| {
                arrived[own].store(round + 1, Release);
                while arrived[1 - own].load(Acquire) <= round {
                    std::hint::spin_loop();
                }
                pair[own].store(1, Relaxed);
                fences[own]();
                pair[1 - own].load(Relaxed) == 1
            };
            words.iter().enumerate().map(saw).collect::<Vec<bool>>()
        };
        let [one, other] = thread::scope(|scope| {
            let act = &act;
            [0, 1].map(|own| scope.spawn(move || act(own))).map(|thread| thread.join().unwrap())
        });
        one.iter().zip(&other).filter(|(one, other)| !**one && !**other).count()
    }

    #[test]
    fn one_of_two_threads_sees_the_other() {
        // A process that has not prepared.
        assert_eq!(blind_rounds(2_000, [often, rarely]), 0);
        prepare();
        assert_eq!(blind_rounds(2_000, [often, rarely]), 0);
    }
}

//! How the first of several workers learns that all of them have nothing left to do.
//!
//! Each of the others publishes its verdict about itself. A verdict may be out of date at once, because another worker
//! may have sent it packets. So the first worker takes verdicts only as a reason to pause all workers, which costs, and
//! to look at the workers themselves. It does so once for each state in which all verdicts are that there is nothing to
//! do. For a worker whose verdict stays the same while it moves packets, the first worker announces that it
//! waits for the end, so that such a worker informs it, and others do not touch the first worker's cache lines.

use std::marker::PhantomData;
use std::mem;

use crate::atomics::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use crate::atomics::{AtomicBool, AtomicU32, fence};

/// What a worker last found out about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// It has work, or may have some later.
    Works,
    /// It has nothing left to do, unless another worker sends it packets.
    OutOfWork,
    /// Its apps in which packets end take no more.
    Closed,
}

/// What makes sure that no end is missed. Tests break one rule at a time and see that the model checker finds it.
pub trait VerdictRules {
    /// Whether a worker informs the first one that it has moved packets though its verdict is the same.
    const TELLS_MOVES: bool = true;
    /// Whether that is another state.
    const COUNTS_MOVES: bool = true;
    /// Whether the first worker announces that it waits for the end before it looks at the verdicts.
    const ANNOUNCES_FIRST: bool = true;
    /// Whether there are fences between the announcement and the look, and between a change and the look at the
    /// announcement.
    const HAS_FENCES: bool = true;
}

/// The rules by which no end is missed.
pub struct Sound;

impl VerdictRules for Sound {}

/// The verdict that a worker publishes.
pub struct Published<R = Sound> {
    verdict: AtomicU32,
    /// How often it has changed, or been the same after packets moved.
    changes: AtomicU32,
    _rules: PhantomData<R>,
}

impl<R: VerdictRules> Default for Published<R> {
    fn default() -> Published<R> {
        Published { verdict: AtomicU32::new(Verdict::Works as u32), changes: AtomicU32::new(0), _rules: PhantomData }
    }
}

impl<R: VerdictRules> Published<R> {
    /// Publishes the verdict of this worker, and whether packets have moved since the last one. Returns whether the
    /// first worker must look at all verdicts.
    pub fn publish(&self, verdict: Verdict, has_moved: bool, announced: &Announced<R>) -> bool {
        if self.verdict.load(Relaxed) == verdict as u32 && !has_moved {
            // Idle workers look here all the time: nobody's cache line is taken away.
            return false;
        }
        let has_changed = self.verdict.swap(verdict as u32, AcqRel) != verdict as u32;
        if has_changed || has_moved && R::COUNTS_MOVES {
            self.changes.fetch_add(1, AcqRel);
        }
        verdict != Verdict::Works && (has_changed || R::TELLS_MOVES && announced.is_waiting())
    }

    /// The last verdict.
    pub fn verdict(&self) -> Verdict {
        match self.verdict.load(Acquire) {
            word if word == Verdict::OutOfWork as u32 => Verdict::OutOfWork,
            word if word == Verdict::Closed as u32 => Verdict::Closed,
            _ => Verdict::Works,
        }
    }
}

/// Whether the first worker waits for the end: all have nothing left to do as far as it knows.
pub struct Announced<R = Sound> {
    waits: AtomicBool,
    _rules: PhantomData<R>,
}

impl<R: VerdictRules> Default for Announced<R> {
    fn default() -> Announced<R> {
        Announced { waits: AtomicBool::new(false), _rules: PhantomData }
    }
}

impl<R: VerdictRules> Announced<R> {
    fn set(&self, waits: bool) {
        // The same again is the same for workers, and takes no cache line away from them.
        if self.waits.load(Relaxed) != waits {
            self.waits.store(waits, Relaxed);
        }
        if waits && R::HAS_FENCES {
            fence(SeqCst);
        }
    }

    fn is_waiting(&self) -> bool {
        if R::HAS_FENCES {
            fence(SeqCst);
        }
        self.waits.load(Relaxed)
    }
}

/// What the first worker knows of all others.
pub struct Overview {
    /// The state at the last look at the workers themselves.
    looked_at: (u32, Verdict, u64),
}

impl Default for Overview {
    fn default() -> Overview {
        Overview { looked_at: (0, Verdict::Works, 0) }
    }
}

impl Overview {
    /// Whether to pause all workers and look whether the run is over: all verdicts are that there is nothing to do, and
    /// that is news. `own` is that of the first worker, which has moved packets `moved` times; `for_each` visits the
    /// other ones.
    pub fn is_news<R: VerdictRules>(
        &mut self,
        own: Verdict,
        moved: u64,
        announced: &Announced<R>,
        for_each: impl FnOnce(&mut dyn FnMut(&Published<R>)),
    ) -> bool {
        if R::ANNOUNCES_FIRST {
            announced.set(own != Verdict::Works);
        }
        let (mut changes, mut all_out_of_work) = (0u32, own != Verdict::Works);
        for_each(&mut |other| {
            changes = changes.wrapping_add(other.changes.load(Acquire));
            all_out_of_work &= other.verdict() != Verdict::Works;
        });
        announced.set(all_out_of_work);
        let state = (changes, own, moved);
        all_out_of_work && mem::replace(&mut self.looked_at, state) != state
    }
}

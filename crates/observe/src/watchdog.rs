//! Slow breaths: finds them, says in which app they were, and tells a process that stood still from slow work.
//!
//! A breath that takes long cannot be timed by itself: reading the clock before and after each would cost as much as a
//! dozen packets. So two look at it. The *engine* compares two moments that it knows anyway (it reads the clock when
//! nothing moves, in sampled breaths, and when it wakes up): if more time has passed than a breath may take, one
//! of the breaths between may have been slow. The *watchdog*, a thread of its own, asks the engine four times in the
//! time that a breath may take for a sign, by a bit of the word that each breath tests as it is. While it waits for the
//! sign, the same breath is being taken, and it notes what the engine is doing. A breath without a question pays
//! nothing; one that is asked returns to the engine's loop and reads the clock, forty times a second by default.
//!
//! Time in which the whole process stood still (it was stopped, or the machine was) is known from the watchdog, which
//! did not run either, and from the engine's thread, which did not use the processor. No app is blamed for it.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellows_sys::{clock, cpu};

use crate::slab::{CurrentCall, Liveness};
use crate::slow::{SlowBreath, SlowBreaths};

/// Slow breaths that wait to be [taken](Watchdog::take); more are counted only.
const MAX_UNREPORTED: usize = 16;

/// What breaths usually take may at least grow by this at once, in nanoseconds.
const MIN_GROWTH: u64 = 1_000;

/// Stands for a time that is about to be known, and is later than any.
const JUST_NOW: u64 = u64::MAX;

/// The watchdog looks no more often than this, in nanoseconds.
const MIN_INTERVAL: u64 = 1_000_000;

/// What the watchdog has seen since it asked.
#[derive(Default)]
struct Seen {
    /// What the engine was doing, and how often it was seen so.
    doing: Vec<(Option<CurrentCall>, u32)>,
    closed: bool,
    untold: VecDeque<SlowBreath>,
    more: u64,
}

/// What the engine and the watchdog share. Times are those of [`clock::now`].
pub struct Watchdog {
    limit: u64,
    /// When the engine was asked for a sign; 0 if it has given it, [`JUST_NOW`] if that is not known yet.
    asked: AtomicU64,
    /// When the watchdog wants to look next; 0 if there is none.
    next: AtomicU64,
    /// How much later than it wanted to it looked when it was last late, and when that was.
    late: AtomicU64,
    late_at: AtomicU64,
    seen: Mutex<Seen>,
    close: Condvar,
}

impl Watchdog {
    /// One that watches for breaths longer than this; for none if it is no time at all.
    pub fn new(limit: Duration) -> Watchdog {
        Watchdog {
            limit: limit.as_nanos().try_into().unwrap_or(u64::MAX),
            asked: AtomicU64::new(0),
            next: AtomicU64::new(0),
            late: AtomicU64::new(0),
            late_at: AtomicU64::new(0),
            seen: Mutex::default(),
            close: Condvar::new(),
        }
    }

    /// The longest that a breath may take, in nanoseconds; `u64::MAX` if nobody wants to know.
    #[inline]
    pub fn limit(&self) -> u64 {
        if self.limit == 0 { u64::MAX } else { self.limit }
    }

    fn interval(&self) -> u64 {
        (self.limit / 4).max(MIN_INTERVAL)
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the engine until the run is over. `ask` has it give a sign between two breaths, `pulse` says what it
    /// does.
    pub fn watch(&self, ask: impl Fn(), pulse: impl Fn() -> Option<Liveness>) {
        if self.limit == 0 {
            return;
        }
        let mut wait = self.interval();
        let mut next = clock::now().saturating_add(wait);
        self.next.store(next, Release);
        loop {
            let seen = self.lock();
            let seen = self.close.wait_timeout_while(seen, Duration::from_nanos(wait), |seen| !seen.closed);
            if seen.unwrap_or_else(PoisonError::into_inner).0.closed {
                return;
            }
            let now = clock::now();
            let ask = || {
                ask();
                clock::now()
            };
            let is_asleep = self.look(next, now, &ask, &pulse);
            // One that sleeps is looked at less often, but not so rarely that a slow breath is over before.
            wait = if is_asleep { (2 * wait).min(self.limit.max(MIN_INTERVAL)) } else { self.interval() };
            next = now.saturating_add(wait);
            self.next.store(next, Release);
        }
    }

    /// One look, by the watchdog's thread, which wanted to look then. `ask` returns the time. Whether the engine sleeps.
    fn look(&self, wanted: u64, now: u64, ask: &impl Fn() -> u64, pulse: &impl Fn() -> Option<Liveness>) -> bool {
        let late = now.saturating_sub(wanted);
        if late > self.limit / 2 {
            self.late.store(late, Relaxed);
            self.late_at.store(now, Release);
        }
        self.next.store(now.saturating_add(self.interval()), Release);
        if self.asked.load(Acquire) == 0 {
            self.lock().doing.clear();
            // Before it has been asked the engine may begin another breath, so the time is taken when it has been.
            self.asked.store(JUST_NOW, Release);
            let asked = ask();
            let _ = self.asked.compare_exchange(JUST_NOW, asked, AcqRel, Relaxed);
            return false;
        }
        // Somebody who exchanges the configuration is seen at the next look.
        let Some(pulse) = pulse() else { return false };
        let seen = &mut self.lock().doing;
        if pulse.asleep {
            seen.clear();
            return true;
        }
        match seen.iter_mut().find(|(doing, _)| *doing == pulse.doing) {
            Some((_, times)) => *times = times.saturating_add(1),
            None => seen.push((pulse.doing, 1)),
        }
        false
    }

    /// The run is over.
    pub fn close(&self) {
        self.lock().closed = true;
        self.close.notify_all();
    }

    /// Keeps a slow breath for whoever tells of it.
    pub fn keep(&self, slow: SlowBreath) {
        let mut seen = self.lock();
        if seen.untold.len() < MAX_UNREPORTED {
            seen.untold.push_back(slow);
        } else {
            seen.more += 1;
        }
    }

    /// What nobody has told of yet.
    pub fn take(&self) -> SlowBreaths {
        let mut seen = self.lock();
        SlowBreaths { first: seen.untold.drain(..).collect(), more: std::mem::take(&mut seen.more) }
    }

    /// In which app the engine was most often seen since it was asked.
    fn culprit(&self) -> Option<CurrentCall> {
        let seen = self.lock();
        seen.doing.iter().max_by_key(|(_, times)| *times).and_then(|(doing, _)| doing.clone())
    }

    /// For how long of the time from `then` to `now` the watchdog did not run although it wanted to.
    fn standstill(&self, then: u64, now: u64) -> u64 {
        // First: a look that has been noted has said before whether it was late, and one that has not is about to find
        // out.
        let next = self.next.load(Acquire);
        let late_at = self.late_at.load(Acquire);
        let late = self.late.load(Relaxed);
        let past = if late_at > then { late.min(late_at - then) } else { 0 };
        let present = if next > 0 { now.saturating_sub(next.max(then)) } else { 0 };
        past.saturating_add(present).min(now.saturating_sub(then))
    }
}

/// What the engine's thread knows of its own time. Times are those of [`clock::now`].
#[derive(Default)]
pub struct Pace {
    /// A moment at which the engine was between two breaths, and awake; and how many breaths it had taken by then.
    since: u64,
    breaths: u64,
    /// How long a breath usually takes, by such moments between which none was slow.
    usual: u64,
    /// When the thread's use of the processor was looked at last, how much that was, and how long the engine has slept
    /// since.
    looked: u64,
    on_processor: u64,
    slept: u64,
}

impl Pace {
    /// One that begins now.
    pub fn begin(now: u64, breaths: u64) -> Pace {
        Pace { since: now, breaths, usual: 0, looked: now, on_processor: cpu::thread_time(), slept: 0 }
    }

    /// The engine has slept from one moment to another, between two breaths.
    pub fn slept(&mut self, from: u64, to: u64, breaths: u64) {
        self.slept += to.saturating_sub(from);
        (self.since, self.breaths) = (to, breaths);
    }

    /// It is now, and so many breaths have been taken. Whether one of those since the last such moment may have been
    /// slow.
    #[inline]
    pub fn is_late(&self, now: u64, watchdog: &Watchdog) -> bool {
        now.saturating_sub(self.since) > watchdog.limit()
    }

    /// It is now, and no breath was slow.
    #[inline]
    pub fn go_on(&mut self, now: u64, breaths: u64) {
        // A sampled breath may have begun with calls long before it was taken.
        if now < self.since {
            return;
        }
        let each = now.saturating_sub(self.since).checked_div(breaths - self.breaths);
        // One that was interrupted is not usual; if all take longer, that is soon known.
        self.usual = each.unwrap_or(self.usual).min(2 * self.usual + MIN_GROWTH);
        (self.since, self.breaths) = (now, breaths);
    }

    /// Finds out whether a breath was slow, when [`Pace::is_late`] says that it may have been.
    #[cold]
    pub fn judge(&mut self, now: u64, breaths: u64, watchdog: &Watchdog) -> Option<SlowBreath> {
        let (then, taken) = (self.since, breaths - self.breaths);
        let gap = now.saturating_sub(then);
        let asked = watchdog.asked.load(Acquire);
        let is_watched = watchdog.next.load(Relaxed) > 0;
        // The breath that was being taken when the watchdog asked has lasted until now, if it has.
        let certain = if asked == 0 { 0 } else { now.saturating_sub(asked.max(then)) };
        let nanos = match taken {
            0 | 1 => gap,
            // Without a watchdog nobody knows whether one was slow or all of them.
            _ if !is_watched => 0,
            // All others took what they usually do.
            _ => gap.saturating_sub((taken - 1).saturating_mul(self.usual)).max(certain),
        };
        let slow = (nanos > watchdog.limit()).then(|| {
            // The engine cannot have been on the processor while the process stood still.
            let idle = self.off_processor(now);
            let stood_still = if is_watched { watchdog.standstill(then, now).min(idle).min(nanos) } else { 0 };
            SlowBreath {
                nanos,
                // Less than a quarter of what is slow is how the system schedules threads, and no standstill.
                stood_still: if stood_still > watchdog.limit() / 4 { stood_still } else { 0 },
                on_processor: is_watched.then(|| nanos - idle.min(nanos)),
                doing: watchdog.culprit(),
            }
        });
        self.sign(now, watchdog);
        if slow.is_none() {
            self.go_on(now, breaths);
        }
        (self.since, self.breaths) = (now, breaths);
        slow
    }

    /// How long the thread was neither on a processor nor meant to sleep since that was looked at last.
    fn off_processor(&self, now: u64) -> u64 {
        let awake = now.saturating_sub(self.looked).saturating_sub(self.slept);
        awake.saturating_sub(cpu::thread_time().saturating_sub(self.on_processor))
    }

    /// Gives the watchdog its sign.
    pub fn sign(&mut self, now: u64, watchdog: &Watchdog) {
        watchdog.asked.store(0, Release);
        (self.looked, self.on_processor, self.slept) = (now, cpu::thread_time(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Activity;

    const MS: u64 = 1_000_000;

    fn watchdog() -> Watchdog {
        clock::calibrate();
        Watchdog::new(Duration::from_millis(100))
    }

    fn pulse(app: &str) -> Option<Liveness> {
        let doing = (!app.is_empty()).then(|| CurrentCall { app: app.to_owned(), activity: Activity::Call });
        Some(Liveness { doing, asleep: app == "asleep", alive: 0 })
    }

    /// Looks as the watchdog does every 25 ms, from one moment to another.
    fn looks(watchdog: &Watchdog, from: u64, to: u64, app: &str) {
        let mut last = from;
        while last + 25 * MS <= to {
            last += 25 * MS;
            watchdog.look(last, last, &|| last, &|| pulse(app));
        }
    }

    #[test]
    fn a_slow_breath_is_told_with_the_app_that_was_seen() {
        let watchdog = watchdog();
        let start = clock::now();
        let mut pace = Pace::begin(start, 0);
        pace.go_on(start + MS, 1_000);
        looks(&watchdog, start, start + 300 * MS, "slow");
        let now = start + 301 * MS;
        assert!(pace.is_late(now, &watchdog));
        let slow = pace.judge(now, 1_010, &watchdog).unwrap();
        assert_eq!(slow.doing.as_ref().map(|doing| &*doing.app), Some("slow"));
        assert!((299 * MS..=300 * MS).contains(&slow.nanos), "{slow:?}");
        assert_eq!(slow.stood_still, 0, "the watchdog was there all the time");
        assert!(!pace.is_late(now + 100 * MS, &watchdog) && pace.is_late(now + 101 * MS, &watchdog));
    }

    #[test]
    fn many_breaths_are_not_one() {
        let watchdog = watchdog();
        let start = clock::now();
        let mut pace = Pace::begin(start, 0);
        // Breaths of 2 ms, after breaths that took nothing; the watchdog asks in the middle of one.
        pace.go_on(start + MS, 100_000);
        looks(&watchdog, start, start + 25 * MS, "");
        let (mut now, mut breaths) = (start + MS, 100_000);
        for _ in 0..20 {
            (now, breaths) = (now + 26 * MS, breaths + 13);
            assert!(!pace.is_late(now, &watchdog));
            pace.sign(now, &watchdog);
            pace.go_on(now, breaths);
        }
        let late = now + 200 * MS;
        assert!(pace.is_late(late, &watchdog));
        assert_eq!(pace.judge(late, breaths + 100, &watchdog), None);
        // Nobody watches: one breath is known by itself, one among others is not.
        let watchdog = Watchdog::new(Duration::from_millis(100));
        let mut pace = Pace::begin(start, 0);
        assert_eq!(pace.judge(start + 200 * MS, 2, &watchdog), None);
        assert_eq!(pace.judge(start + 400 * MS, 3, &watchdog).unwrap().nanos, 200 * MS);
    }

    #[test]
    fn a_breath_that_was_interrupted_hides_no_other() {
        let watchdog = watchdog();
        let start = clock::now();
        let mut pace = Pace::begin(start, 0);
        pace.go_on(start + MS, 1_000);
        pace.go_on(start + 90 * MS, 1_001);
        looks(&watchdog, start, start + 90 * MS, "");
        pace.sign(start + 90 * MS, &watchdog);
        let slow = pace.judge(start + 390 * MS, 1_065, &watchdog).unwrap();
        assert!(slow.nanos > 299 * MS, "{slow:?}");
    }

    #[test]
    fn sleep_is_no_breath() {
        let watchdog = watchdog();
        let start = clock::now();
        let mut pace = Pace::begin(start, 0);
        looks(&watchdog, start, start + 500 * MS, "asleep");
        pace.slept(start, start + 500 * MS, 64);
        let now = start + 501 * MS;
        assert!(!pace.is_late(now, &watchdog));
        pace.sign(now, &watchdog);
        // The engine sleeps when it is asked, and is slow when it has woken up.
        looks(&watchdog, now, now + 200 * MS, "asleep");
        pace.slept(now, now + 200 * MS, 64);
        looks(&watchdog, now + 200 * MS, now + 400 * MS, "slow");
        let slow = pace.judge(now + 400 * MS, 70, &watchdog).unwrap();
        assert_eq!((slow.nanos, slow.doing.unwrap().app), (200 * MS, "slow".to_owned()));
    }

    /// The engine's thread is this one, which does not get the time that passes here: off the processor.
    #[test]
    fn a_standstill_is_nobodys_fault() {
        for watchdog_is_first in [false, true] {
            let watchdog = watchdog();
            let start = clock::now();
            let mut pace = Pace::begin(start, 0);
            looks(&watchdog, start, start + 50 * MS, "busy");
            pace.sign(start + 50 * MS, &watchdog);
            pace.go_on(start + 50 * MS, 1_000);
            let now = start + 2_050 * MS;
            if watchdog_is_first {
                watchdog.look(start + 75 * MS, now - MS, &|| now - MS, &|| pulse("busy"));
            }
            let still = pace.judge(now, 1_100, &watchdog).unwrap();
            assert!(still.is_standstill(Duration::from_millis(100)), "{still:?}");
            assert!(still.nanos > 1_900 * MS && still.on_processor < Some(100 * MS), "{still:?}");
        }
    }

    #[test]
    fn an_app_is_slow_on_the_processor_even_if_nobody_could_watch() {
        let watchdog = watchdog();
        // The clock begins with the process.
        while clock::now() < 25 * MS {
            std::hint::spin_loop();
        }
        let start = clock::now();
        let mut pace = Pace::begin(start, 0);
        looks(&watchdog, start - 25 * MS, start, "busy");
        pace.sign(start, &watchdog);
        let before = cpu::thread_time();
        while cpu::thread_time() - before < 60 * MS {
            std::hint::spin_loop();
        }
        // All of the 60 ms are those of the breath.
        let now = start + 60 * MS;
        let tight = Watchdog::new(Duration::from_millis(40));
        tight.next.store(start + 10 * MS, Relaxed);
        let slow = pace.judge(now, 1, &tight).unwrap();
        assert!(!slow.is_standstill(Duration::from_millis(40)), "{slow:?}");
        assert_eq!((slow.stood_still, slow.on_processor), (0, Some(60 * MS)));
    }

    #[test]
    fn what_nobody_takes_is_counted() {
        let watchdog = watchdog();
        let slow = |nanos| SlowBreath { nanos, stood_still: 0, on_processor: None, doing: None };
        (0..20).for_each(|number| watchdog.keep(slow(number)));
        let SlowBreaths { first, more } = watchdog.take();
        assert_eq!((first.len(), first[15].nanos, more), (16, 15, 4));
        assert_eq!(watchdog.take(), SlowBreaths::default());
    }
}

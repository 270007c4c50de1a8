//! Slow breaths: detects them, names the app, and distinguishes slow work from a process that stood still.
//!
//! A breath cannot be timed directly: reading the clock before and after each would cost as much as a dozen packets. So
//! there are two checks. The *engine* compares two times that it reads anyway (when nothing moves, in sampled breaths,
//! and when it wakes up): if more than `breath_limit` has passed, one of the breaths in between may have been slow. The
//! *watchdog*, a thread of its own, requests a sign of life from the engine four times in each `breath_limit`, by a bit
//! of the word that each breath tests anyway. While it waits for the sign, the same breath is running, and the watchdog
//! records the engine's activity. A breath without a request costs nothing extra; a breath with one returns to the
//! engine's loop and reads the clock, forty times a second by default.
//!
//! While the engine sleeps, the watchdog dozes: it has no checks, and the engine sets an alarm for it when it wakes up.
//!
//! There are two signs that the whole process stood still (it was stopped, or the machine was): the watchdog did not
//! run either, and the engine's thread did not use the processor. No app is blamed for this time.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, fence};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bellows_sys::wake::{Alarm, sleep_until_readable};
use bellows_sys::{clock, cpu};

use crate::slab::{CurrentCall, Liveness};
use crate::slow::{SlowBreath, SlowBreaths};

/// The maximum number of slow breaths that wait to be [taken](Watchdog::take); further ones are only counted.
const MAX_UNREPORTED: usize = 16;

/// The minimum step by which the usual duration of a breath can grow, in nanoseconds.
const MIN_GROWTH: u64 = 1_000;

/// The placeholder for a time that is about to be set, later than any other.
const JUST_NOW: u64 = u64::MAX;

/// The minimum interval of the watchdog, in nanoseconds.
const MIN_INTERVAL: u64 = 1_000_000;

/// The maximum time from the engine's wake-up to the first check, in nanoseconds.
const MAX_DOZE: u64 = 25_000_000;

/// The watchdog's observations since its last request.
#[derive(Default)]
struct Seen {
    /// The engine's activities, and how often each was seen.
    doing: Vec<(Option<CurrentCall>, u32)>,
    closed: bool,
    untold: VecDeque<SlowBreath>,
    more: u64,
}

/// The state shared by the engine and the watchdog. Times are those of [`clock::now`].
pub struct Watchdog {
    limit: u64,
    /// The time of the request for a sign of life; 0 if the engine has given it, [`JUST_NOW`] if the time is not set
    /// yet.
    asked: AtomicU64,
    /// The time of the watchdog's next check; 0 if there is none, and the maximum while it dozes.
    next: AtomicU64,
    /// Whether it dozes: there is no check until the engine wakes up and sets the alarm.
    dozes: AtomicBool,
    alarm: OnceLock<Alarm>,
    /// The delay of the watchdog's last late check, and the time of that check.
    late: AtomicU64,
    late_at: AtomicU64,
    seen: Mutex<Seen>,
    close: Condvar,
}

impl Watchdog {
    /// Creates a watchdog for breaths longer than this; a limit of zero disables it.
    pub fn new(limit: Duration) -> Watchdog {
        Watchdog {
            limit: limit.as_nanos().try_into().unwrap_or(u64::MAX),
            asked: AtomicU64::new(0),
            next: AtomicU64::new(0),
            dozes: AtomicBool::new(false),
            alarm: OnceLock::new(),
            late: AtomicU64::new(0),
            late_at: AtomicU64::new(0),
            seen: Mutex::default(),
            close: Condvar::new(),
        }
    }

    /// The limit on the duration of a breath, in nanoseconds; `u64::MAX` if disabled.
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

    /// Checks the engine until the run is over. `ask` requests a sign of life between two breaths, `pulse` returns its
    /// activity. `awake` is called by each check that finds the engine awake.
    pub fn watch(&self, ask: impl Fn(), pulse: impl Fn() -> Option<Liveness>, awake: impl Fn()) {
        if self.limit == 0 {
            return;
        }
        if let Ok(alarm) = Alarm::new() {
            let _ = self.alarm.set(alarm);
        }
        let ask = || {
            ask();
            clock::now()
        };
        let mut is_asleep = false;
        loop {
            let next = match is_asleep && self.doze(&pulse) {
                // The engine has set it.
                true => self.next.load(Acquire),
                false => self.wait(),
            };
            if self.lock().closed {
                return;
            }
            is_asleep = self.check(next, clock::now(), &ask, &pulse);
            if !is_asleep {
                awake();
            }
        }
    }

    /// Waits until the next check. Returns when it was due.
    fn wait(&self) -> u64 {
        let interval = self.interval();
        let next = clock::now().saturating_add(interval);
        self.next.store(next, Release);
        let wait = Duration::from_nanos(interval);
        drop(self.close.wait_timeout_while(self.lock(), wait, |seen| !seen.closed));
        next
    }

    /// Sleeps until the engine has woken up and the alarm that it sets then is raised, or the run is over. False at once
    /// if the engine is awake by now, or there is no alarm.
    fn doze(&self, pulse: &impl Fn() -> Option<Liveness>) -> bool {
        let Some(alarm) = self.alarm.get() else { return false };
        self.next.store(u64::MAX, Release);
        self.dozes.store(true, Relaxed);
        // Either this sees that the engine is awake, or the engine sees `dozes` after it has said that it is awake.
        fence(SeqCst);
        if !pulse().is_some_and(|pulse| pulse.asleep) && self.dozes.swap(false, AcqRel) {
            return false;
        }
        loop {
            let _ = sleep_until_readable(&[alarm.as_fd()], None);
            alarm.clear();
            if !self.dozes.load(Acquire) || self.lock().closed {
                return true;
            }
        }
    }

    /// Whether it dozes: the engine sleeps, or has just woken up.
    pub fn dozes(&self) -> bool {
        fence(SeqCst);
        self.dozes.load(Acquire)
    }

    /// The engine has woken up, and said so.
    #[inline]
    pub fn wake(&self) {
        fence(SeqCst);
        if self.dozes.load(Relaxed) {
            self.rouse();
        }
    }

    #[cold]
    fn rouse(&self) {
        if let (true, Some(alarm)) = (self.dozes.swap(false, AcqRel), self.alarm.get()) {
            let wait = self.interval().min(MAX_DOZE);
            self.next.store(clock::now().saturating_add(wait), Release);
            alarm.set(Duration::from_nanos(wait));
        }
    }

    /// One check, due at this time, on the watchdog's thread. `ask` returns the time. Returns whether the engine
    /// sleeps.
    fn check(&self, wanted: u64, now: u64, ask: &impl Fn() -> u64, pulse: &impl Fn() -> Option<Liveness>) -> bool {
        let late = now.saturating_sub(wanted);
        if late > self.limit / 2 {
            self.late.store(late, Relaxed);
            self.late_at.store(now, Release);
        }
        self.next.store(now.saturating_add(self.interval()), Release);
        // If the configuration is being exchanged, the next check sees it.
        let pulse = pulse();
        if pulse.as_ref().is_some_and(|pulse| pulse.asleep) {
            self.lock().doing.clear();
            return true;
        }
        if self.asked.load(Acquire) == 0 {
            self.lock().doing.clear();
            // The engine may begin another breath before the request, so the time is taken after it.
            self.asked.store(JUST_NOW, Release);
            let asked = ask();
            let _ = self.asked.compare_exchange(JUST_NOW, asked, AcqRel, Relaxed);
            return false;
        }
        let Some(pulse) = pulse else { return false };
        let seen = &mut self.lock().doing;
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
        if let Some(alarm) = self.alarm.get() {
            alarm.set(Duration::ZERO);
        }
    }

    /// Keeps a slow breath until it is reported.
    pub fn keep(&self, slow: SlowBreath) {
        let mut seen = self.lock();
        if seen.untold.len() < MAX_UNREPORTED {
            seen.untold.push_back(slow);
        } else {
            seen.more += 1;
        }
    }

    /// Takes the slow breaths that have not been reported yet.
    pub fn take(&self) -> SlowBreaths {
        let mut seen = self.lock();
        SlowBreaths { first: seen.untold.drain(..).collect(), more: std::mem::take(&mut seen.more) }
    }

    /// The app in which the engine was seen most often since the request.
    fn culprit(&self) -> Option<CurrentCall> {
        let seen = self.lock();
        seen.doing.iter().max_by_key(|(_, times)| *times).and_then(|(doing, _)| doing.clone())
    }

    /// The time between `then` and `now` for which the watchdog did not run although it was due.
    fn standstill(&self, then: u64, now: u64) -> u64 {
        // This must be read first: a recorded check has already stored whether it was late, and an outstanding one is
        // about to.
        let next = self.next.load(Acquire);
        let late_at = self.late_at.load(Acquire);
        let late = self.late.load(Relaxed);
        let past = if late_at > then { late.min(late_at - then) } else { 0 };
        let present = if next > 0 { now.saturating_sub(next.max(then)) } else { 0 };
        past.saturating_add(present).min(now.saturating_sub(then))
    }
}

/// The engine thread's own timing. Times are those of [`clock::now`].
#[derive(Default)]
pub struct Pace {
    /// The last time at which the engine was known to be between two breaths and awake, and the number of breaths by
    /// then.
    since: u64,
    breaths: u64,
    /// The usual duration of a breath, measured between such times without a slow breath.
    usual: u64,
    /// The last reading of the thread's processor time, its result, and the time slept since.
    read_at: u64,
    on_processor: u64,
    slept: u64,
}

impl Pace {
    /// Creates one that begins now.
    pub fn begin(now: u64, breaths: u64) -> Pace {
        Pace { since: now, breaths, usual: 0, read_at: now, on_processor: cpu::thread_time(), slept: 0 }
    }

    /// Records a sleep between two breaths.
    pub fn slept(&mut self, from: u64, to: u64, breaths: u64) {
        self.slept += to.saturating_sub(from);
        (self.since, self.breaths) = (to, breaths);
    }

    /// Records the time and the number of breaths. Returns whether one of the breaths since the last such record may
    /// have been slow.
    #[inline]
    pub fn is_late(&self, now: u64, watchdog: &Watchdog) -> bool {
        now.saturating_sub(self.since) > watchdog.limit()
    }

    /// Records the time. No breath was slow.
    #[inline]
    pub fn go_on(&mut self, now: u64, breaths: u64) {
        // A sampled breath may have begun with calls long before it was counted.
        if now < self.since {
            return;
        }
        let each = now.saturating_sub(self.since).checked_div(breaths - self.breaths);
        // An interrupted breath is not usual; if all take longer, the estimate soon follows.
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
        // A breath that was running at the watchdog's request and is still unanswered has lasted until now.
        let certain = if asked == 0 { 0 } else { now.saturating_sub(asked.max(then)) };
        let nanos = match taken {
            0 | 1 => gap,
            // Without a watchdog, one slow breath cannot be told from many slower ones.
            _ if !is_watched => 0,
            // All others took their usual time.
            _ => gap.saturating_sub((taken - 1).saturating_mul(self.usual)).max(certain),
        };
        let slow = (nanos > watchdog.limit()).then(|| {
            // The engine cannot have been on the processor while the process stood still.
            let idle = self.off_processor(now);
            let stood_still = if is_watched { watchdog.standstill(then, now).min(idle).min(nanos) } else { 0 };
            SlowBreath {
                worker: None,
                nanos,
                // Less than a quarter of the limit is normal scheduling, not a standstill.
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

    /// The time for which the thread was neither on a processor nor meant to sleep since the last reading.
    fn off_processor(&self, now: u64) -> u64 {
        let awake = now.saturating_sub(self.read_at).saturating_sub(self.slept);
        awake.saturating_sub(cpu::thread_time().saturating_sub(self.on_processor))
    }

    /// Gives the watchdog its sign of life.
    pub fn sign(&mut self, now: u64, watchdog: &Watchdog) {
        watchdog.asked.store(0, Release);
        (self.read_at, self.on_processor, self.slept) = (now, cpu::thread_time(), 0);
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
        Some(Liveness { worker: None, doing, asleep: app == "asleep", alive: 0 })
    }

    /// Runs the watchdog's checks every 25 ms, from one time to another.
    fn check_until(watchdog: &Watchdog, from: u64, to: u64, app: &str) {
        let mut last = from;
        while last + 25 * MS <= to {
            last += 25 * MS;
            watchdog.check(last, last, &|| last, &|| pulse(app));
        }
    }

    #[test]
    fn a_slow_breath_is_reported_with_its_app() {
        let watchdog = watchdog();
        let start = clock::now();
        let mut pace = Pace::begin(start, 0);
        pace.go_on(start + MS, 1_000);
        check_until(&watchdog, start, start + 300 * MS, "slow");
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
        // Breaths of 2 ms, after breaths that took no time; the watchdog's request comes in the middle of one.
        pace.go_on(start + MS, 100_000);
        check_until(&watchdog, start, start + 25 * MS, "");
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
        // Without a watchdog: a single breath can be timed, one among others cannot.
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
        check_until(&watchdog, start, start + 90 * MS, "");
        pace.sign(start + 90 * MS, &watchdog);
        let slow = pace.judge(start + 390 * MS, 1_065, &watchdog).unwrap();
        assert!(slow.nanos > 299 * MS, "{slow:?}");
    }

    #[test]
    fn sleep_is_no_breath() {
        let watchdog = watchdog();
        let start = clock::now();
        let mut pace = Pace::begin(start, 0);
        check_until(&watchdog, start, start + 500 * MS, "asleep");
        pace.slept(start, start + 500 * MS, 64);
        let now = start + 501 * MS;
        assert!(!pace.is_late(now, &watchdog));
        pace.sign(now, &watchdog);
        // The engine sleeps at the request, and is slow after it has woken up.
        check_until(&watchdog, now, now + 200 * MS, "asleep");
        pace.slept(now, now + 200 * MS, 64);
        check_until(&watchdog, now + 200 * MS, now + 400 * MS, "slow");
        let slow = pace.judge(now + 400 * MS, 70, &watchdog).unwrap();
        assert_eq!((slow.nanos, slow.doing.unwrap().app), (200 * MS, "slow".to_owned()));
    }

    /// The engine's thread is this one, which does not get the time that passes here: off the processor.
    #[test]
    fn a_standstill_is_no_apps_fault() {
        for watchdog_is_first in [false, true] {
            let watchdog = watchdog();
            let start = clock::now();
            let mut pace = Pace::begin(start, 0);
            check_until(&watchdog, start, start + 50 * MS, "busy");
            pace.sign(start + 50 * MS, &watchdog);
            pace.go_on(start + 50 * MS, 1_000);
            let now = start + 2_050 * MS;
            if watchdog_is_first {
                watchdog.check(start + 75 * MS, now - MS, &|| now - MS, &|| pulse("busy"));
            }
            let still = pace.judge(now, 1_100, &watchdog).unwrap();
            assert!(still.is_standstill(Duration::from_millis(100)), "{still:?}");
            assert!(still.nanos > 1_900 * MS && still.on_processor < Some(100 * MS), "{still:?}");
        }
    }

    #[test]
    fn an_app_is_slow_on_the_processor_even_without_a_watchdog() {
        let watchdog = watchdog();
        // The clock begins with the process.
        while clock::now() < 25 * MS {
            std::hint::spin_loop();
        }
        let start = clock::now();
        let mut pace = Pace::begin(start, 0);
        check_until(&watchdog, start - 25 * MS, start, "busy");
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
    fn the_watchdog_of_a_sleeping_engine_dozes_until_the_engine_wakes_up() {
        use std::time::Instant;
        let watchdog = Watchdog::new(Duration::from_millis(8));
        let (asleep, asked, found) = (AtomicBool::new(true), AtomicU64::new(0), AtomicU64::new(0));
        let until = |what: &str, condition: &dyn Fn() -> bool| {
            let end = Instant::now() + Duration::from_secs(20);
            while !condition() {
                assert!(Instant::now() < end, "{what}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let pulse = || Some(Liveness { asleep: asleep.load(SeqCst), ..Liveness::default() });
        let (awake, ask) = (|| _ = found.fetch_add(1, SeqCst), || _ = asked.fetch_add(1, SeqCst));
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| watchdog.watch(ask, pulse, awake));
            for round in 0..5 {
                until("it dozes", &|| watchdog.dozes());
                let (asked_before, found_before) = (asked.load(SeqCst), found.load(SeqCst));
                assert!(round > 0 || asked_before == 0, "a sleeping engine is not asked");
                // An engine that wakes up and sleeps on costs one check.
                watchdog.wake();
                assert!(watchdog.next.load(SeqCst) < u64::MAX);
                until("it dozes again", &|| watchdog.dozes());
                assert_eq!((asked.load(SeqCst), found.load(SeqCst)), (asked_before, found_before));
                asleep.store(false, SeqCst);
                watchdog.wake();
                until("it asks", &|| asked.load(SeqCst) > asked_before && found.load(SeqCst) > found_before + 3);
                watchdog.asked.store(0, SeqCst);
                asleep.store(true, SeqCst);
            }
            until("it dozes", &|| watchdog.dozes());
            watchdog.close();
            until("it ends", &|| thread.is_finished());
        });
    }

    #[test]
    fn slow_breaths_beyond_the_queue_are_counted() {
        let watchdog = watchdog();
        let slow = |nanos| SlowBreath { worker: None, nanos, stood_still: 0, on_processor: None, doing: None };
        (0..20).for_each(|number| watchdog.keep(slow(number)));
        let SlowBreaths { first, more } = watchdog.take();
        assert_eq!((first.len(), first[15].nanos, more), (16, 15, 4));
        assert_eq!(watchdog.take(), SlowBreaths::default());
    }
}

//! The time-stamp counter and the nanoseconds made from it.
//!
//! Reading `CLOCK_MONOTONIC` costs about as much as moving a dozen packets; reading the time-stamp
//! counter costs a third of that. The counter is used where the processor promises that it runs at
//! one rate in every state (CPUID leaf 0x8000_0007, EDX bit 8, "invariant TSC"); elsewhere
//! [`ticks`] falls back to `CLOCK_MONOTONIC` itself, at 1 GHz.

use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Ticks to nanoseconds: `ns = (ticks * scale) >> 32`.
struct Calibration {
    invariant: bool,
    hz: u64,
    scale: u64,
    origin: u64,
}

static CALIBRATION: OnceLock<Calibration> = OnceLock::new();

fn calibration() -> &'static Calibration {
    CALIBRATION.get_or_init(|| {
        let invariant = has_invariant_tsc();
        let hz = if invariant { measure_tsc_hz() } else { 1_000_000_000 };
        let scale = ((1_000_000_000u128 << 32) / u128::from(hz)) as u64;
        // One millisecond ago, so that no reading on another processor is negative.
        let origin = raw_ticks(invariant).saturating_sub(hz / 1000);
        Calibration { invariant, hz, scale, origin }
    })
}

/// Calibrates the clock now, so that the first [`now`] in a hot loop does not.
///
/// Takes about 20 ms, once a process.
pub fn calibrate() {
    calibration();
}

/// The frequency of [`ticks`], in Hz.
pub fn ticks_per_second() -> u64 {
    calibration().hz
}

/// Whether [`ticks`] reads the time-stamp counter rather than `CLOCK_MONOTONIC`.
pub fn ticks_are_tsc() -> bool {
    calibration().invariant
}

/// The raw tick counter. Only the difference between two readings is meaningful.
#[inline]
pub fn ticks() -> u64 {
    raw_ticks(calibration().invariant)
}

/// Ticks between two readings of the counter, one right after the other: the cost of a measurement, which it includes.
/// Measured once a process.
pub fn cost() -> u64 {
    static COST: OnceLock<u64> = OnceLock::new();
    *COST.get_or_init(|| {
        let once = || {
            let before = ticks();
            ticks().wrapping_sub(before)
        };
        (0..1_000).map(|_| once()).min().unwrap_or(0)
    })
}

/// The processor's current speed: ticks per step of a dependency chain that touches no memory. Takes some microseconds.
///
/// A processor's frequency changes from second to second; dividing by this figure cancels it out.
pub fn calibration_step() -> f64 {
    const STEPS: u64 = 5_000;
    let mut number = black_box(1u64);
    let start = ticks();
    for _ in 0..STEPS {
        // No optimizer can combine several of these steps.
        number = number.wrapping_mul(number).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(number);
    (ticks() - start) as f64 / STEPS as f64
}

/// Nanoseconds since shortly before the first call in the process. Never goes backwards on one thread.
#[inline]
pub fn now() -> u64 {
    at(ticks())
}

/// The result of [`now`] at the time of this reading of [`ticks`].
#[inline]
pub fn at(ticks: u64) -> u64 {
    let calibration = calibration();
    scale(ticks.saturating_sub(calibration.origin), calibration.scale)
}

/// Converts a number of ticks to nanoseconds.
#[inline]
pub fn ticks_to_ns(ticks: u64) -> u64 {
    scale(ticks, calibration().scale)
}

#[inline]
fn scale(ticks: u64, scale: u64) -> u64 {
    ((u128::from(ticks) * u128::from(scale)) >> 32) as u64
}

/// Wall-clock time in nanoseconds since the Unix epoch (0 for a clock set before it).
pub fn unix_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64)
}

/// The wall clock for many readings in a short time: reading the system's clock can take ten times as long as reading
/// the processor's.
#[derive(Clone, Copy, Debug)]
pub struct UnixClock {
    /// [`unix_ns`] and [`now`] at the same time.
    unix: u64,
    now: u64,
}

impl UnixClock {
    /// Reads the system's clock.
    pub fn read() -> UnixClock {
        // In this order: the first reading of the processor's clock calibrates it, which takes milliseconds.
        let now = now();
        UnixClock { unix: unix_ns(), now }
    }

    /// As [`unix_ns`], without the clock's adjustments since [`UnixClock::read`].
    pub fn ns(&self) -> u64 {
        self.unix.saturating_add(now().saturating_sub(self.now))
    }
}

fn monotonic_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[inline]
fn raw_ticks(invariant: bool) -> u64 {
    if invariant { raw_tsc() } else { monotonic_ns() }
}

/// The time-stamp counter, at any rate; 0 on processors without one.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn raw_tsc() -> u64 {
    // SAFETY: RDTSC exists on every x86-64 processor and touches no memory. (Where the kernel
    // forbids it, PR_TSC_SIGSEGV, the process is in a sandbox that no packet engine runs in.)
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
pub(crate) fn raw_tsc() -> u64 {
    0
}

#[cfg(target_arch = "x86_64")]
fn has_invariant_tsc() -> bool {
    use std::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_invariant_tsc() -> bool {
    false
}

/// Counts ticks against `CLOCK_MONOTONIC` over 20 ms.
///
/// Each end is the tightest of several readings of both clocks, so that a preemption between the
/// two does not spoil it.
fn measure_tsc_hz() -> u64 {
    let reading = || {
        (0..16)
            .map(|_| {
                let before = raw_ticks(true);
                let nanos = monotonic_ns();
                let after = raw_ticks(true);
                (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), nanos)
            })
            .min()
            .unwrap_or_default()
    };
    let (_, first_ticks, first_ns) = reading();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let (_, last_ticks, last_ns) = reading();
    let nanos = last_ns.saturating_sub(first_ns).max(1);
    let ticks = last_ticks.wrapping_sub(first_ticks);
    (u128::from(ticks) * 1_000_000_000 / u128::from(nanos)).max(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_keep_pace_with_the_monotonic_clock() {
        let error = || {
            let (start, reference) = (now(), monotonic_ns());
            std::thread::sleep(std::time::Duration::from_millis(50));
            let (elapsed, expected) = (now() - start, monotonic_ns() - reference);
            elapsed.abs_diff(expected) as f64 / expected as f64
        };
        // The thread may lose its processor between the two readings.
        let errors = [(); 5].map(|()| error());
        assert!(errors.iter().any(|error| *error < 0.02), "{errors:?}");
    }

    /// Each step takes some clocks, so the optimizer has not removed any.
    #[test]
    fn the_optimizer_keeps_every_step() {
        let shortest = (0..20).map(|_| calibration_step()).fold(f64::INFINITY, f64::min);
        assert!((1.0..100.0).contains(&(shortest * 2.6e9 / ticks_per_second() as f64)), "{shortest} ticks");
    }

    #[test]
    fn time_does_not_go_backwards() {
        let mut last = now();
        for _ in 0..10_000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }

    #[test]
    fn the_unix_clock_follows_the_systems_clock() {
        let distance = || {
            let clock = UnixClock::read();
            std::thread::sleep(std::time::Duration::from_millis(5));
            clock.ns().abs_diff(unix_ns())
        };
        // The thread may lose its processor between the two readings of one clock, or of both.
        let distances = [(); 20].map(|()| distance());
        assert!(distances.iter().any(|distance| *distance < 1_000_000), "{distances:?} ns");
    }
}

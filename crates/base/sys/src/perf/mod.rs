//! Counters of the kernel's perf subsystem: opening them, and reading them with and without a system call.
//!
//! A [`Counter`] counts one event for one thread. Counters opened with a leader are on the processor together or not at
//! all, and are read together. [`Counter::page`] maps the page that the kernel publishes about a counter; if the page
//! allows it, [`Page::sample`] reads the processor's register directly. The kernel fills a [`SampleRing`] with samples
//! of a thread's execution.
//!
//! # Sources
//!
//! `perf_event_open(2)`; Linux, `include/uapi/linux/perf_event.h`, whose `struct perf_event_mmap_page` describes the
//! protocol of [`CounterPage::sample`]; Intel SDM volume 2, RDPMC.

mod ring;

pub use ring::SampleRing;

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The source of an event: `type` of `perf_event_attr`. Devices in `/sys/bus/event_source/devices` have further
/// numbers, in their file `type`.
pub mod kind {
    /// Generic events of processors.
    pub const HARDWARE: u32 = 0;
    /// Events of the kernel itself.
    pub const SOFTWARE: u32 = 1;
    /// Events of this processor, by the numbers in its manual.
    pub const RAW: u32 = 4;
    /// Accesses to an address, which the processor's debug registers find.
    pub const BREAKPOINT: u32 = 5;
}

/// The numbers of generic and software events: `config` of `perf_event_attr`.
pub mod config {
    /// Cycles of the core.
    pub const CYCLES: u64 = 0;
    /// Instructions retired.
    pub const INSTRUCTIONS: u64 = 1;
    /// Mispredicted branches.
    pub const BRANCH_MISSES: u64 = 5;
    /// Cycles at a constant rate while the core is not halted.
    pub const REF_CYCLES: u64 = 9;
    /// Time on a processor, in nanoseconds, by the processor's clock.
    pub const CPU_CLOCK: u64 = 0;
    /// Time on a processor, in nanoseconds.
    pub const TASK_CLOCK: u64 = 1;
    /// Page faults.
    pub const PAGE_FAULTS: u64 = 2;
    /// Switches to another thread.
    pub const CONTEXT_SWITCHES: u64 = 3;
    /// Moves to another processor.
    pub const CPU_MIGRATIONS: u64 = 4;
    /// Page faults that need no input.
    pub const MINOR_FAULTS: u64 = 5;
    /// Page faults that wait for input.
    pub const MAJOR_FAULTS: u64 = 6;
}

/// The event to count, and the processor modes to count it in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// The source of the event ([`kind`]).
    pub kind: u32,
    /// Its number ([`config`], or the processor's manual).
    pub config: u64,
    /// Counts only in user mode.
    pub user_only: bool,
}

/// `struct perf_event_attr` as of Linux 4.8 (`PERF_ATTR_SIZE_VER5`), which every later kernel accepts.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const _: () = assert!(size_of::<Attributes>() == 112);

const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;

const FORMAT_TIME_ENABLED: u64 = 1 << 0;
const FORMAT_TIME_RUNNING: u64 = 1 << 1;
const FORMAT_GROUP: u64 = 1 << 3;

/// The format that [`Counter::read`] expects.
const FORMAT: u64 = FORMAT_GROUP | FORMAT_TIME_ENABLED | FORMAT_TIME_RUNNING;

/// Maximum number of counters of a group for [`Counter::read`].
pub const MAX_GROUP_EVENTS: usize = 16;

const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// An event that is counted, from opening until it is dropped.
#[derive(Debug)]
pub struct Counter {
    descriptor: OwnedFd,
}

impl Counter {
    /// Starts to count for the calling thread, alone or together with `leader` and its other counters.
    ///
    /// # Errors
    /// `ENOENT` and others if there is no such event; `EACCES` and `EPERM` if it is not permitted; `EINVAL` if the
    /// processor cannot count it together with the leader's; `EMFILE` without free descriptors; others of
    /// `perf_event_open(2)`.
    pub fn open(what: &EventSpec, leader: Option<&Counter>) -> io::Result<Counter> {
        let attributes = Attributes {
            kind: what.kind,
            config: what.config,
            read_format: FORMAT,
            flags: modes(what),
            ..Attributes::default()
        };
        Counter::open_for(0, attributes, leader)
    }

    fn open_for(thread: i32, mut attributes: Attributes, leader: Option<&Counter>) -> io::Result<Counter> {
        attributes.size = size_of::<Attributes>() as u32;
        let group = leader.map_or(-1, |leader| leader.descriptor.as_raw_fd());
        let any_cpu = -1;
        // SAFETY: the kernel reads `size` bytes of the attributes, which is their length, and writes nothing into them
        // but their size when it rejects it; the other arguments are numbers.
        let descriptor = unsafe {
            let number = libc::SYS_perf_event_open;
            libc::syscall(number, &raw mut attributes, thread, any_cpu, group, CLOSE_ON_EXEC)
        };
        match i32::try_from(descriptor) {
            // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
            Ok(descriptor @ 0..) => Ok(Counter { descriptor: unsafe { OwnedFd::from_raw_fd(descriptor) } }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Reads the counts of this leader and of its other counters, at most [`MAX_GROUP_EVENTS`], in that order and in
    /// one system call; returns their number. Allocates nothing.
    ///
    /// # Errors
    /// Those of `read(2)`, such as `ENOSPC` if there are more counters.
    pub fn read(&self, samples: &mut [CounterSample]) -> io::Result<usize> {
        let mut bytes = [0u8; 8 * (3 + MAX_GROUP_EVENTS)];
        let got = rustix::io::read(&self.descriptor, &mut bytes)?;
        let mut words =
            bytes[..got].chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
        let (Some(_), Some(enabled), Some(running)) = (words.next(), words.next(), words.next()) else { return Ok(0) };
        let counts =
            samples.iter_mut().zip(words).map(|(sample, count)| *sample = CounterSample { count, enabled, running });
        Ok(counts.count())
    }

    /// Maps the page that the kernel publishes about this counter.
    ///
    /// # Errors
    /// Those of `mmap(2)`; `EPERM` if the user's locked memory would exceed its limit.
    pub fn page(&self) -> io::Result<Page> {
        let length = crate::code::page_size();
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anyone uses.
        let start = unsafe { mmap(null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &self.descriptor, 0)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Page { start, length })
    }
}

fn modes(what: &EventSpec) -> u64 {
    if what.user_only { EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR } else { 0 }
}

/// A count, and how long it was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSample {
    /// Number of events while the event was counted.
    pub count: u64,
    /// Time for which the counter was enabled, in nanoseconds.
    pub enabled: u64,
    /// Time for which it was on the processor: less if there are more counters than the processor has.
    pub running: u64,
}

/// The page that the kernel publishes about a counter, up to the fields that this crate reads: `struct
/// perf_event_mmap_page`.
///
/// The kernel writes it on the processor on which the counter runs, and makes `lock` odd while it writes.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CounterPage {
    version: AtomicU32,
    compatible: AtomicU32,
    /// Changes before and after each update.
    pub lock: AtomicU32,
    /// The number of the register that counts, from 1; 0 if there is none.
    pub index: AtomicU32,
    /// The number to add to the register (signed).
    pub offset: AtomicU64,
    /// Time for which the counter had been enabled at the last update, in nanoseconds.
    pub time_enabled: AtomicU64,
    /// Time for which it had been on the processor at the last update.
    pub time_running: AtomicU64,
    /// The capabilities: [`CounterPage::CAN_RDPMC`], [`CounterPage::HAS_TIME`].
    pub capabilities: AtomicU64,
    /// Width of the register in bits.
    pub width: AtomicU16,
    /// Converts the time-stamp counter to nanoseconds since the last update: `time_offset + (tsc * time_mult >>
    /// time_shift)`.
    pub time_shift: AtomicU16,
    /// See `time_shift`.
    pub time_mult: AtomicU32,
    /// See `time_shift`.
    pub time_offset: AtomicU64,
}

const _: () = assert!(std::mem::offset_of!(CounterPage, time_offset) == 56);

impl CounterPage {
    /// The register can be read with RDPMC.
    pub const CAN_RDPMC: u64 = 1 << 2;
    /// The fields `time_…` after `width` are valid.
    pub const HAS_TIME: u64 = 1 << 3;

    /// Reads the counter: its register through `register`, which gets the register's number, and the time-stamp counter
    /// through `tsc`, which is needed only while the counter shares the processor's registers with others. Hot.
    ///
    /// Reads again if the kernel has changed the page meanwhile. A counter without a register has counted `offset`.
    #[inline]
    pub fn sample(&self, register: impl Fn(u32) -> u64, tsc: impl Fn() -> u64) -> CounterSample {
        loop {
            let lock = self.lock.load(Acquire);
            let mut enabled = self.time_enabled.load(Relaxed);
            let mut running = self.time_running.load(Relaxed);
            let index = self.index.load(Relaxed);
            let mut count = self.offset.load(Relaxed);
            let capabilities = self.capabilities.load(Relaxed);
            if index != 0 && capabilities & CounterPage::CAN_RDPMC != 0 {
                count = count.wrapping_add(sign_extended(register(index - 1), self.width.load(Relaxed)));
            }
            if enabled != running && capabilities & CounterPage::HAS_TIME != 0 {
                let since = self.time_since_update(tsc());
                enabled = enabled.wrapping_add(since);
                running = running.wrapping_add(if index != 0 { since } else { 0 });
            }
            // The reads above stay before the second read of the lock.
            fence(Acquire);
            if self.lock.load(Relaxed) == lock && lock.is_multiple_of(2) {
                return CounterSample { count, enabled, running };
            }
            std::hint::spin_loop();
        }
    }

    /// Nanoseconds from the last update to this value of the time-stamp counter.
    #[inline]
    fn time_since_update(&self, tsc: u64) -> u64 {
        let shift = self.time_shift.load(Relaxed).min(63);
        let product = u128::from(tsc) * u128::from(self.time_mult.load(Relaxed));
        self.time_offset.load(Relaxed).wrapping_add((product >> shift) as u64)
    }
}

/// Sign-extends the value of a register with `width` bits.
#[inline]
fn sign_extended(value: u64, width: u16) -> u64 {
    let unused = 64 - u32::from(width.clamp(1, 64));
    ((value << unused).cast_signed() >> unused).cast_unsigned()
}

/// A mapped [`CounterPage`].
#[derive(Debug)]
pub struct Page {
    start: NonNull<CounterPage>,
    length: usize,
}

impl Page {
    /// The page's fields.
    #[inline]
    pub fn content(&self) -> &CounterPage {
        // SAFETY: the mapping is a page long, at a page's address, filled by the kernel, lives as long as self, and is
        // read through atomics only.
        unsafe { self.start.as_ref() }
    }

    /// Whether [`Page::sample`] can read the counter while it is on the processor.
    pub fn can_sample(&self) -> bool {
        cfg!(target_arch = "x86_64") && self.content().capabilities.load(Relaxed) & CounterPage::CAN_RDPMC != 0
    }

    /// Reads the counter without a system call, on the thread that opened it: a value of this type cannot leave that
    /// thread.
    ///
    /// Only for a counter that [`Page::can_sample`]; any other is read as of the kernel's last update. Hot: about 30
    /// clocks.
    #[inline]
    pub fn sample(&self) -> CounterSample {
        // SAFETY: this page is mapped, and the function is only called after the page has allowed RDPMC.
        self.content().sample(|number| unsafe { read_register(number) }, crate::clock::raw_tsc)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and the borrow of content() has ended.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Reads a counter's register.
///
/// # Safety
/// A counter's page that allows it must be mapped; otherwise the instruction faults.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn read_register(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: RDPMC writes these two registers and touches no memory; the caller knows that the kernel permits it.
    unsafe { std::arch::asm!("rdpmc", in("ecx") number, out("eax") low, out("edx") high, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn read_register(_number: u32) -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Release;

    fn software(config: u64) -> EventSpec {
        EventSpec { kind: kind::SOFTWARE, config, user_only: false }
    }

    #[test]
    fn unknown_events_are_errors() {
        assert!(Counter::open(&software(u64::MAX), None).is_err());
        assert!(Counter::open(&EventSpec { kind: u32::MAX, config: 0, user_only: true }, None).is_err());
    }

    #[test]
    fn an_undisturbed_page_adds_the_register_to_the_offset() {
        let page = CounterPage {
            index: 3.into(),
            offset: 1_000.into(),
            time_enabled: 50.into(),
            time_running: 50.into(),
            capabilities: CounterPage::CAN_RDPMC.into(),
            width: 48.into(),
            ..CounterPage::default()
        };
        let register = |number| {
            assert_eq!(number, 2);
            (1 << 48) - 10
        };
        let sample = page.sample(register, || unreachable!("nothing shares the register"));
        assert_eq!(sample, CounterSample { count: 990, enabled: 50, running: 50 });
        page.index.store(0, Relaxed);
        assert_eq!(page.sample(|_| unreachable!("it is on no register"), || 0).count, 1_000);
    }

    #[test]
    fn a_page_that_forbids_it_is_read_without_the_instruction() {
        let page = CounterPage { index: 1.into(), offset: 7.into(), ..CounterPage::default() };
        assert_eq!(page.sample(|_| unreachable!("RDPMC is forbidden"), || 0).count, 7);
    }

    proptest! {
        #[test]
        fn a_register_is_sign_extended(value: i64, width in 1u16..=64) {
            let fits = value >> (width - 1) == 0 || value >> (width - 1) == -1;
            let register = value.cast_unsigned() & (u64::MAX >> (64 - width));
            let back = sign_extended(register, width);
            prop_assert_eq!(back.cast_signed() == value, fits);
            prop_assert_eq!(back & (u64::MAX >> (64 - width)), register);
        }

        /// The time follows the arithmetic of the manual page, which avoids wide numbers.
        #[test]
        fn shared_registers_are_timed_up_to_now(
            tsc: u64, mult: u32, shift in 0u16..=32, offset: u64, is_on: bool, enabled: u32, missed in 1u32..
        ) {
            let page = CounterPage {
                index: u32::from(is_on).into(),
                capabilities: (CounterPage::CAN_RDPMC | CounterPage::HAS_TIME).into(),
                width: 48.into(),
                time_enabled: (u64::from(enabled) + u64::from(missed)).into(),
                time_running: u64::from(enabled).into(),
                time_shift: shift.into(),
                time_mult: mult.into(),
                time_offset: offset.into(),
                ..CounterPage::default()
            };
            let sample = page.sample(|_| 0, || tsc);
            let (quotient, rest) = (tsc >> shift, tsc & ((1 << shift) - 1));
            let mult = u64::from(mult);
            let since = offset.wrapping_add(quotient.wrapping_mul(mult)).wrapping_add((rest * mult) >> shift);
            let before = u64::from(enabled);
            prop_assert_eq!(sample.enabled, (before + u64::from(missed)).wrapping_add(since));
            prop_assert_eq!(sample.running, before.wrapping_add(if is_on { since } else { 0 }));
        }
    }

    /// A kernel that moves a counter on and off its registers: in every state that it publishes, offset and register
    /// add up to one number, and the two times are equal.
    struct Kernel {
        page: CounterPage,
        registers: [AtomicU64; 4],
        /// Number of its steps; an update has [`Kernel::UPDATE`] of them.
        steps: AtomicU64,
        /// Whether the counter sometimes has no register.
        rests: bool,
    }

    impl Kernel {
        const TOTAL: u64 = 1 << 40;
        const UPDATE: u64 = 6;

        fn new(rests: bool) -> Kernel {
            let page = CounterPage {
                capabilities: (CounterPage::CAN_RDPMC | CounterPage::HAS_TIME).into(),
                width: 48.into(),
                offset: Kernel::TOTAL.into(),
                ..CounterPage::default()
            };
            Kernel { page, registers: Default::default(), steps: 0.into(), rests }
        }

        fn step(&self) {
            let step = self.steps.fetch_add(1, Relaxed);
            let turn = step / Kernel::UPDATE + 1;
            let index = if self.rests { (turn % 5) as u32 } else { 1 };
            // Registers of 48 bits, whose upper half is negative.
            let register = turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) & ((1 << 48) - 1);
            match step % Kernel::UPDATE {
                0 => {
                    self.page.lock.fetch_add(1, Relaxed);
                    fence(Release);
                }
                1 => {
                    let counted = index.checked_sub(1).map_or(0, |number| {
                        self.registers[number as usize].store(register, Relaxed);
                        sign_extended(register, 48)
                    });
                    self.page.offset.store(Kernel::TOTAL.wrapping_sub(counted), Relaxed);
                }
                2 => self.page.index.store(index, Relaxed),
                3 => self.page.time_enabled.store(turn, Relaxed),
                4 => self.page.time_running.store(turn, Relaxed),
                _ => drop(self.page.lock.fetch_add(1, Release)),
            }
        }

        fn register(&self, number: u32) -> u64 {
            self.registers[number as usize].load(Relaxed)
        }
    }

    proptest! {
        /// The kernel may continue its update while the register and the clock are read, and may have begun one before.
        #[test]
        fn a_page_that_changes_while_it_is_read_is_read_again(
            before in 0u64..40, meanwhile in proptest::collection::vec(0u64..20, 0..8)
        ) {
            let kernel = Kernel::new(false);
            (0..Kernel::UPDATE + before).for_each(|_| kernel.step());
            let readings = AtomicU64::new(0);
            let go_on = || {
                // At the end of the plan, the update is completed.
                let left = (Kernel::UPDATE - kernel.steps.load(Relaxed) % Kernel::UPDATE) % Kernel::UPDATE;
                let planned = meanwhile.get(readings.fetch_add(1, Relaxed) as usize).copied();
                (0..planned.unwrap_or(left)).for_each(|_| kernel.step());
            };
            let register = |number| {
                go_on();
                kernel.register(number)
            };
            let sample = kernel.page.sample(register, || 0);
            prop_assert_eq!(sample.count, Kernel::TOTAL);
            prop_assert_eq!(sample.enabled, sample.running);
            prop_assert!(sample.enabled >= before / Kernel::UPDATE);
        }
    }

    #[test]
    fn a_page_that_another_thread_changes_is_never_read_half() {
        let kernel = Kernel::new(true);
        let is_done = AtomicBool::new(false);
        let (count, times_differ) = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    (0..Kernel::UPDATE).for_each(|_| kernel.step());
                    (0..50).for_each(|_| std::hint::spin_loop());
                }
            });
            let (mut last, mut readings, mut changes) =
                (kernel.page.sample(|number| kernel.register(number), || 0), 0, 0);
            while (readings < 100_000 || changes < 10) && last.count == Kernel::TOTAL && last.enabled == last.running {
                let sample = kernel.page.sample(|number| kernel.register(number), || 0);
                readings += 1;
                changes += u32::from(sample.enabled != last.enabled);
                last = sample;
            }
            is_done.store(true, Relaxed);
            (last.count, last.enabled != last.running)
        });
        assert_eq!(count, Kernel::TOTAL, "offset and register of different moments");
        assert!(!times_differ, "times of different moments");
    }
}

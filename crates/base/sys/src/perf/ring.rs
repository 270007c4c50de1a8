//! Samples of a thread's execution, taken by the kernel and passed on through a ring in shared memory.

use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{Attributes, Counter, CounterSample, EventSpec, FORMAT, config, kind, modes};

/// The contents of each sample, in this order: the instruction, user-mode registers, a copy of the user-mode stack.
const SAMPLE_INSTRUCTION: u64 = 1 << 0;
const SAMPLE_USER_REGISTERS: u64 = 1 << 12;
const SAMPLE_USER_STACK: u64 = 1 << 13;

/// The stack pointer and the instruction pointer, as numbered in `asm/perf_regs.h`.
#[cfg(target_arch = "x86_64")]
const REGISTERS: u64 = 1 << 7 | 1 << 8;
#[cfg(target_arch = "aarch64")]
const REGISTERS: u64 = 1 << 31 | 1 << 32;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const REGISTERS: u64 = 0;

/// The positions in the first page, in 64-bit words: `data_head` and `data_tail` of `struct perf_event_mmap_page`.
const HEAD: usize = 1024 / 8;
const TAIL: usize = 1032 / 8;

/// Reads and writes of an address: `HW_BREAKPOINT_RW` in `linux/hw_breakpoint.h`.
const READ_OR_WRITE: u32 = 3;

/// The `ioctl` that lets an event write into the ring of another one: `PERF_EVENT_IOC_SET_OUTPUT`.
const SET_OUTPUT: libc::c_ulong = 0x2405;

/// A ring that the kernel fills with samples of one thread, until it is dropped.
///
/// A timer that runs while the thread does takes the samples, or the processor when the thread uses certain words of its
/// memory. The kernel leaves out samples that do not fit, and says so in a separate record.
#[derive(Debug)]
pub struct SampleRing {
    /// The kernel fills the ring as long as this is open.
    counter: Counter,
    /// Further events that fill it.
    others: Vec<Counter>,
    mapping: NonNull<AtomicU64>,
    page: usize,
    /// Room for records in bytes: a power of two.
    size: usize,
}

// SAFETY: the mapping belongs to the value, and can be used from any thread.
unsafe impl Send for SampleRing {}

impl SampleRing {
    /// Samples a thread of any process each time that it was on a processor for `period`, with the top `stack` bytes of
    /// its stack (a multiple of 8 below 64 KiB). The ring gets `bytes` or less: as much as the user may lock in memory.
    ///
    /// # Errors
    /// `EACCES` and `EPERM` if this is not permitted to this user, or not for kernel mode; `ESRCH` if there is no such
    /// thread; others of `perf_event_open(2)` and `mmap(2)`.
    pub fn open(thread: i32, period: Duration, stack: u32, user_only: bool, bytes: usize) -> io::Result<SampleRing> {
        let what = EventSpec { kind: kind::SOFTWARE, config: config::CPU_CLOCK, user_only };
        let period = period.as_nanos().clamp(1, u64::MAX.into()) as u64;
        let counter = Counter::open_for(thread, sampled(&what, period, stack), None)?;
        SampleRing::filled_by(counter, Vec::new(), bytes)
    }

    /// Samples a thread of this process each time that it reads or writes one of these aligned words of its memory, of 8
    /// bytes each; in the order in which it does. On x86-64, the sampled instruction is the one behind the access.
    ///
    /// # Errors
    /// As [`SampleRing::open`]; also `ENOSPC` if the processor watches fewer words at a time (x86-64: 4), and `EINVAL`
    /// or others if it cannot watch any.
    pub fn watch(thread: i32, words: &[usize], stack: u32, bytes: usize) -> io::Result<SampleRing> {
        let what = EventSpec { kind: kind::BREAKPOINT, config: 0, user_only: true };
        let open = |word: &usize| {
            let attributes = Attributes {
                breakpoint_type: READ_OR_WRITE,
                config1: *word as u64,
                config2: size_of::<u64>() as u64,
                ..sampled(&what, 1, stack)
            };
            Counter::open_for(thread, attributes, None)
        };
        let mut counters = words.iter().map(open).collect::<io::Result<Vec<Counter>>>()?;
        let first = counters.pop().ok_or(io::ErrorKind::InvalidInput)?;
        let ring = SampleRing::filled_by(first, counters, bytes)?;
        for other in &ring.others {
            let [from, to] = [other, &ring.counter].map(|counter| counter.descriptor.as_raw_fd());
            // SAFETY: both are descriptors of events, and the call takes no pointer.
            if unsafe { libc::ioctl(from, SET_OUTPUT, to) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(ring)
    }

    /// The ring of an event, into which others may write, too.
    fn filled_by(counter: Counter, others: Vec<Counter>, bytes: usize) -> io::Result<SampleRing> {
        let page = crate::code::page_size();
        let mut size = bytes.max(page).next_power_of_two();
        let mapping = loop {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anyone uses.
            let mapping = unsafe { mmap(null_mut(), page + size, access, MapFlags::SHARED, &counter.descriptor, 0) };
            match mapping {
                Ok(mapping) => break NonNull::new(mapping.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
                Err(rustix::io::Errno::PERM) if size > page => size /= 2,
                Err(error) => return Err(error.into()),
            }
        };
        Ok(SampleRing { counter, others, mapping, page, size })
    }

    /// Appends the records that the kernel has written since the last call to `records`: whole records, each of which
    /// begins with a `struct perf_event_header`.
    pub fn take(&mut self, records: &mut Vec<u8>) {
        let (head, tail) = (self.position(HEAD).load(Acquire), self.position(TAIL).load(Relaxed));
        for range in filled(tail, head, self.size) {
            // SAFETY: the range is in the ring, which begins a page after the mapping's start. The kernel published its
            // contents with the head that was acquired above, and does not write there again before the tail moves.
            let bytes = unsafe {
                let data = self.mapping.as_ptr().cast::<u8>().add(self.page);
                std::slice::from_raw_parts(data.add(range.start), range.len())
            };
            records.extend_from_slice(bytes);
        }
        self.position(TAIL).store(head, Release);
    }

    /// Time for which the thread was on a processor since this was opened.
    ///
    /// # Errors
    /// Those of `read(2)`.
    pub fn busy(&self) -> io::Result<Duration> {
        let mut sample = [CounterSample::default()];
        self.counter.read(&mut sample)?;
        Ok(Duration::from_nanos(sample[0].count))
    }

    fn position(&self, word: usize) -> &AtomicU64 {
        // SAFETY: the mapping's first page contains these words, aligned, and lives as long as self; the kernel
        // accesses them as whole words.
        unsafe { self.mapping.add(word).as_ref() }
    }
}

impl Drop for SampleRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no borrow of it outlives self.
        let _ = unsafe { munmap(self.mapping.as_ptr().cast(), self.page + self.size) };
    }
}

/// An event that is sampled each `period` times.
fn sampled(what: &EventSpec, period: u64, stack: u32) -> Attributes {
    Attributes {
        kind: what.kind,
        config: what.config,
        sample_period: period,
        sample_type: SAMPLE_INSTRUCTION | SAMPLE_USER_REGISTERS | SAMPLE_USER_STACK,
        read_format: FORMAT,
        sample_regs_user: REGISTERS,
        sample_stack_user: stack,
        flags: modes(what),
        ..Attributes::default()
    }
}

/// The ranges of the bytes between two positions in a ring of `size` bytes, a power of two: after `tail`, and from the
/// ring's start. Impossible positions count as those of an empty ring.
fn filled(tail: u64, head: u64, size: usize) -> [Range<usize>; 2] {
    let length = head.wrapping_sub(tail);
    if length > size as u64 {
        return [0..0, 0..0];
    }
    let start = (tail % size as u64) as usize;
    let end = start + length as usize;
    [start..end.min(size), 0..end.saturating_sub(size)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A byte of every position is where the ring puts it, and nothing else is read.
        #[test]
        fn positions_follow_one_another_around_the_ring(tail: u64, length in 0usize..40, exponent in 0u32..5) {
            let size = 1usize << exponent;
            let found: Vec<usize> = filled(tail, tail.wrapping_add(length as u64), size).into_iter().flatten().collect();
            let expected = (0..length).map(|index| (tail.wrapping_add(index as u64) % size as u64) as usize);
            let expected: Vec<usize> = if length > size { Vec::new() } else { expected.collect() };
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn an_impossible_sample_is_an_error() {
        let period = Duration::from_millis(1);
        assert!(SampleRing::open(i32::MAX, period, 1024, true, 1 << 16).is_err(), "there is no such thread");
        assert!(SampleRing::open(0, period, 7, true, 1 << 16).is_err(), "a stack has whole words");
    }
}

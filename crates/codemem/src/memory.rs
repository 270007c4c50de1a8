//! Memory for machine code: first a draft to write, then sealed code to run.

use std::io;
use std::ops::RangeInclusive;

use bellows_sys::code::{Reserved, Sealed, page_size};

use crate::place::{places, taken, within_reach};

/// Stops whoever runs into it (`int3`).
const TRAP: u8 = 0xcc;

/// How often the gaps are looked up anew when other threads keep filling them.
const ROUNDS: usize = 8;

/// Why there is no executable memory.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The machine is not an x86-64.
    #[error(
        "generated code needs the 32-bit relative call of an x86-64, which this machine does not have: do without it"
    )]
    Machine,
    /// No place at all is within reach of all targets.
    #[error(
        "no place for {capacity} bytes of code reaches all of {from:#x} to {to:#x}, because a call spans 2 GiB: \
         generate less code, for targets closer together"
    )]
    OutOfReach {
        /// Bytes asked for.
        capacity: usize,
        /// The lowest target.
        from: usize,
        /// The highest target.
        to: usize,
    },
    /// Everything within reach is taken.
    #[error(
        "no gap of {capacity} bytes within 2 GiB of the program's text at {from:#x} to {to:#x}: \
         make the program reserve less memory near its text, or do without generated code"
    )]
    NoGap {
        /// Bytes asked for.
        capacity: usize,
        /// The lowest target.
        from: usize,
        /// The highest target.
        to: usize,
    },
    /// The process cannot see what memory it has.
    #[error("/proc/self/maps cannot be read, so there is no telling where code can lie: {0}; mount /proc")]
    Maps(#[source] io::Error),
    /// The kernel gives no memory.
    #[error(
        "no memory for {capacity} bytes of code at {address:#x} ({source}): \
         raise the limit on address space (ulimit -v), on descriptors (ulimit -n) or on mappings (vm.max_map_count)"
    )]
    Memory {
        /// Bytes asked for.
        capacity: usize,
        /// Where they were to lie.
        address: usize,
        /// What the kernel answered.
        source: io::Error,
    },
    /// The code is longer than the room for it.
    #[error("the code has {length} bytes and its place only {capacity}: ask for {length}")]
    TooLong {
        /// Bytes of code.
        length: usize,
        /// Bytes of room.
        capacity: usize,
    },
    /// A policy forbids executable memory.
    #[error(
        "the kernel lets nothing be made executable ({source}): a hardening policy (the sysctl vm.memfd_noexec, a seccomp \
         filter, SELinux) forbids it; lift it for this program, or do without generated code"
    )]
    Sealing {
        /// What the kernel answered.
        source: io::Error,
    },
}

/// A place within reach of the whole program text, to write machine code for.
///
/// Its address is known before the code is written, because relative calls are relative to it.
#[derive(Debug)]
pub struct Draft {
    place: Reserved,
}

impl Draft {
    /// Room for at least `capacity` bytes of code, from whose every byte a 32-bit relative call reaches every byte of
    /// `targets`, and the other way round.
    ///
    /// It lies below the targets if there is room, else above them, and never where the heap or the stack will grow.
    ///
    /// # Errors
    /// When the machine has no such call, when there is no gap within reach, or when the kernel gives no memory.
    pub fn near(targets: RangeInclusive<usize>, capacity: usize) -> Result<Draft, Refused> {
        if !cfg!(target_arch = "x86_64") {
            return Err(Refused::Machine);
        }
        let (from, to) = (*targets.start(), *targets.end());
        let page = page_size();
        let (length, reach) = capacity
            .max(1)
            .checked_next_multiple_of(page)
            .and_then(|length| Some((length, within_reach(&targets, length)?)))
            .ok_or(Refused::OutOfReach { capacity, from, to })?;
        for _ in 0..ROUNDS {
            let maps = std::fs::read("/proc/self/maps").map_err(Refused::Maps)?;
            let taken = taken(&String::from_utf8_lossy(&maps), page);
            for address in places(taken, &reach, &targets, length, page) {
                match Reserved::at(address, length) {
                    Ok(place) => return Ok(Draft { place }),
                    // Another thread was faster.
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(source) => return Err(Refused::Memory { capacity, address, source }),
                }
            }
        }
        Err(Refused::NoGap { capacity, from, to })
    }

    /// Where the code will lie: the address of a page.
    pub fn address(&self) -> usize {
        self.place.address()
    }

    /// How many bytes of code there is room for: whole pages.
    pub fn capacity(&self) -> usize {
        self.place.len()
    }

    /// Puts the code in place, with traps behind it: from here on it can be run, and not be changed.
    ///
    /// # Errors
    /// When the code is longer than the room, when a policy of the system forbids executable memory, or when there is none.
    pub fn seal(self, code: &[u8]) -> Result<Code, Refused> {
        self.seal_by(code, Reserved::seal)
    }

    /// As [`Draft::seal`], but where `perf` finds the code in its [map](crate::PerfMap), which it asks only for memory without
    /// a file behind it. Such memory is written before it is made executable, which interrupts the threads that run beside.
    ///
    /// # Errors
    /// As for [`Draft::seal`].
    pub fn seal_for_perf(self, code: &[u8]) -> Result<Code, Refused> {
        self.seal_by(code, Reserved::seal_anonymous)
    }

    fn seal_by(
        self,
        code: &[u8],
        seal: impl FnOnce(Reserved, &[u8], u8) -> io::Result<Sealed>,
    ) -> Result<Code, Refused> {
        let (length, capacity, address) = (code.len(), self.capacity(), self.address());
        if length > capacity {
            return Err(Refused::TooLong { length, capacity });
        }
        let memory = seal(self.place, code, TRAP).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => Refused::Sealing { source },
            _ => Refused::Memory { capacity, address, source },
        })?;
        Ok(Code { memory, length })
    }
}

/// Sealed machine code. It is unmapped when dropped, so whoever runs it must hold on to it.
#[derive(Debug)]
pub struct Code {
    memory: Sealed,
    length: usize,
}

impl Code {
    /// Where the first byte lies: the address of a page.
    pub fn address(&self) -> usize {
        self.memory.address()
    }

    /// The code as it was given to [`Draft::seal`], without the traps behind it.
    pub fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[..self.length]
    }
}

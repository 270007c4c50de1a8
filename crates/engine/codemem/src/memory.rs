//! Memory for machine code: first a draft to write, then sealed code to run.

use std::io;
use std::ops::RangeInclusive;

use bellows_sys::code::{Reserved, Sealed, page_size};

use crate::place::{places, taken, within_reach};

/// Fills unused bytes, and traps if it is executed (`int3`).
const TRAP: u8 = 0xcc;

/// Maximum number of searches for a gap, if other threads keep taking the gaps.
const ROUNDS: usize = 8;

/// The reason why there is no executable memory.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The machine is not an x86-64.
    #[error(
        "generated code needs the 32-bit relative call of an x86-64, which this machine does not have: do without it"
    )]
    Machine,
    /// No address at all is within reach of all targets.
    #[error(
        "no place for {capacity} bytes of code reaches all of {from:#x} to {to:#x}, because a call spans 2 GiB: \
         generate less code, for targets closer together"
    )]
    OutOfReach {
        /// Bytes requested.
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
        /// Bytes requested.
        capacity: usize,
        /// The lowest target.
        from: usize,
        /// The highest target.
        to: usize,
    },
    /// The process cannot read its memory map.
    #[error("/proc/self/maps cannot be read, so free places for code are unknown: {0}; mount /proc")]
    Maps(#[source] io::Error),
    /// The kernel has no memory for the code.
    #[error(
        "no memory for {capacity} bytes of code at {address:#x} ({source}): \
         raise the limit on address space (ulimit -v), on descriptors (ulimit -n) or on mappings (vm.max_map_count)"
    )]
    Memory {
        /// Bytes requested.
        capacity: usize,
        /// Their address.
        address: usize,
        /// The kernel's error.
        source: io::Error,
    },
    /// The code is longer than its place.
    #[error("the code has {length} bytes and its place only {capacity}: ask for {length}")]
    TooLong {
        /// Length of the code in bytes.
        length: usize,
        /// Length of the place in bytes.
        capacity: usize,
    },
    /// A policy forbids executable memory.
    #[error(
        "the kernel allows no executable memory ({source}): a hardening policy (the sysctl vm.memfd_noexec, a seccomp \
         filter, SELinux) forbids it; lift it for this program, or do without generated code"
    )]
    Sealing {
        /// The kernel's error.
        source: io::Error,
    },
}

/// A place for machine code, within reach of the whole program text.
///
/// Its address is known before the code is written, because relative calls depend on it.
#[derive(Debug)]
pub struct Draft {
    place: Reserved,
}

impl Draft {
    /// Reserves a place for at least `capacity` bytes of code. A 32-bit relative call reaches every byte of `targets`
    /// from its every byte, and the reverse.
    ///
    /// It is below the targets if there is room, else above them, and never where the heap or the stack will grow.
    ///
    /// # Errors
    /// The machine has no such call, there is no gap within reach, or the kernel has no memory.
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

    /// The address of the code, at the start of a page.
    pub fn address(&self) -> usize {
        self.place.address()
    }

    /// The capacity in bytes: whole pages.
    pub fn capacity(&self) -> usize {
        self.place.len()
    }

    /// Puts the code in its place, followed by traps: from now on it can be run, and not be changed.
    ///
    /// # Errors
    /// The code is longer than its place, a policy of the system forbids executable memory, or there is none.
    pub fn seal(self, code: &[u8]) -> Result<Code, Refused> {
        self.seal_by(code, Reserved::seal)
    }

    /// As [`Draft::seal`], but so that `perf` looks up the code in its [map](crate::PerfMap), which it only does for
    /// memory without a file. Such memory is written before it is made executable, which interrupts the other threads.
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

/// Sealed machine code. It is unmapped when dropped, so it must outlive its execution.
#[derive(Debug)]
pub struct Code {
    memory: Sealed,
    length: usize,
}

impl Code {
    /// Address of the first byte, at the start of a page.
    pub fn address(&self) -> usize {
        self.memory.address()
    }

    /// The code as it was given to [`Draft::seal`], without the traps after it.
    pub fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[..self.length]
    }
}

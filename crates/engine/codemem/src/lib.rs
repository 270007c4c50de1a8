//! Executable memory near the program's text, written and then sealed; and the map that names its code for `perf`.
//!
//! Generated code that calls the program's functions is fastest and shortest with direct calls, whose displacement has
//! 32 bits. So it must be within 2 GiB of all of them. [`Draft::near`] finds a place there. The code is written to a
//! sealed memory file and mapped as executable: it is never writable while it is mapped, and adding code beside code
//! that runs interrupts no thread. `perf` does not look up code in such memory; [`Draft::seal_for_perf`] uses memory
//! without a file instead, and interrupts threads.
//!
//! | module | contents |
//! |---|---|
//! | `memory` | [`Draft`], [`Code`], and the errors: [`Refused`] |
//! | `place` | the free places within reach of the targets, as a pure function of `/proc/self/maps` |
//! | `perf` | [`PerfMap`], a file with a line for each [`Symbol`] |
//! | `assembler` | on x86-64: writing code from start to end, with jumps to labels, and listing it |
//!
//! ```
//! # #[cfg(target_arch = "x86_64")]
//! # fn main() -> Result<(), bellows_codemem::Refused> {
//! use bellows_codemem::Draft;
//!
//! extern "sysv64" fn twice(number: u64) -> u64 {
//!     2 * number
//! }
//!
//! // jmp twice
//! let target = twice as *const () as usize;
//! let draft = Draft::near(target..=target, 5)?;
//! let displacement = target as i64 - (draft.address() as i64 + 5);
//! let mut jump = vec![0xe9];
//! jump.extend(i32::try_from(displacement).expect("near").to_le_bytes());
//! let code = draft.seal(&jump)?;
//!
//! // SAFETY: the code is a jump to a function of this type, and lives until it has returned.
//! let function: extern "sysv64" fn(u64) -> u64 = unsafe { std::mem::transmute(code.address()) };
//! assert_eq!(function(21), 42);
//! # Ok(())
//! # }
//! # #[cfg(not(target_arch = "x86_64"))]
//! # fn main() {}
//! ```
//!
//! # The place of the code
//!
//! The code is right below the program, with a free page between them; if that is taken, in the next gap below; else in
//! a gap above, at its upper end. 256 MiB above the heap and below the stack stay free for them. Other threads may map
//! memory at any time: a place that was taken meanwhile is skipped, never replaced.
//!
//! # Sources
//!
//! `proc_pid_maps(5)`, `mmap(2)`, `memfd_create(2)`, `F_ADD_SEALS` in `fcntl(2)`, `vm.memfd_noexec` in `sysctl/vm`;
//! Linux, `tools/perf/Documentation/jit-interface.txt`.

#![forbid(unsafe_code)]

#[cfg(target_arch = "x86_64")]
pub mod assembler;
mod memory;
mod perf;
mod place;

pub use memory::{Code, Draft, Refused};
pub use perf::{PerfMap, Symbol};

//! Safe faces of the system calls that a packet engine needs.
//!
//! This is the only crate of the project that talks to the kernel directly. Each module wraps one
//! facility so that the crates above it need no `unsafe` to use it:
//!
//! | module | what it gives |
//! |---|---|
//! | [`access`] | what may be done with a file, without doing it |
//! | [`cache`] | putting data out of the processor's caches |
//! | [`clock`] | the time-stamp counter, its frequency, and nanoseconds made from it |
//! | [`code`] | memory at a wanted address that is written, then sealed and run |
//! | [`confine`] | a thread that restricts itself to the system calls that its work needs |
//! | [`mapping`] | files of other processes, mapped; what happens when they are cut short under us |
//! | [`memfd`] | files that live in memory alone, to be shared with other processes |
//! | [`memory`] | large private mappings on the best pages to be had, and what they turned out to be |
//! | [`notify`] | raising events of other processes, without ever waiting for one of them |
//! | [`perf`] | counters of the kernel's perf subsystem, read with and without a system call |
//! | [`simd`] | the instruction set that loops over data use, decided once |
//! | [`shared`] | a file of 64-bit cells on tmpfs that one process writes and any process reads |
//! | [`socket`] | Unix sockets that carry descriptors, without ever waiting |
//! | [`untrusted`] | directories of other users, who may change them at any time |
//! | [`wake`] | an event descriptor, and sleeping until one of several descriptors or a deadline |
//! | [`way_out`] | what a person can do about an error |
//! | [`cpu`] | pinning a thread, asking what the processor is |

pub mod access;
pub mod cache;
pub mod clock;
pub mod code;
pub mod confine;
pub mod cpu;
pub mod mapping;
pub mod memfd;
pub mod memory;
pub mod notify;
pub mod perf;
pub mod shared;
mod signal;
pub mod simd;
pub mod socket;
pub mod untrusted;
pub mod wake;
mod way_out;

pub use way_out::way_out;

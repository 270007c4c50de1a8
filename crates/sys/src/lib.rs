//! Safe wrappers around the system calls that a packet engine needs.
//!
//! This is the only crate of the project that calls the kernel directly. Each module wraps one facility, so that other
//! crates need no `unsafe` to use it:
//!
//! | module | contents |
//! |---|---|
//! | [`access`] | file permissions, checked without opening the file |
//! | [`cache`] | evicting data from the processor's caches |
//! | [`clock`] | the time-stamp counter, its frequency, and nanoseconds computed from it |
//! | [`code`] | memory at a chosen address that is written, then sealed and run |
//! | [`confine`] | a thread that restricts itself to the system calls that its work needs |
//! | [`live_frames`] | frames that the kernel generates and sends, for measurements |
//! | [`mapping`] | mappings of other processes' files, safe against truncation |
//! | [`memfd`] | memory files, to share with other processes |
//! | [`memory`] | large private mappings on the best available pages |
//! | [`notify`] | raising events of other processes without ever waiting for them |
//! | [`perf`] | counters of the kernel's perf subsystem, read with and without a system call |
//! | [`simd`] | the instruction set of loops over data, chosen once |
//! | [`shared`] | a file of 64-bit cells on tmpfs that one process writes and any process reads |
//! | [`socket`] | Unix sockets that pass descriptors, never blocking |
//! | [`untrusted`] | directories of other users, who may change them at any time |
//! | [`wake`] | an event descriptor, and sleeping until one of several descriptors or a deadline |
//! | [`way_out`] | advice for a person about a system error |
//! | [`cpu`] | pinning a thread, identifying the processor |

pub mod access;
pub mod cache;
pub mod clock;
pub mod code;
pub mod confine;
pub mod cpu;
pub mod live_frames;
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

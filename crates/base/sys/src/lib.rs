//! Safe wrappers around the system calls that all parts of a packet engine need. Each module wraps one facility, so that
//! other crates need no `unsafe` to use it. Those for network interfaces are in `bellows-netdev`, those for memory and
//! events that processes share in `bellows-ipc`:
//!
//! | module | contents |
//! |---|---|
//! | [`access`] | file permissions, checked without opening the file |
//! | [`atomic_file`] | files that are replaced as a whole, so that a reader finds the old contents or the new ones |
//! | [`cache`] | evicting data from the processor's caches |
//! | [`calendar`] | dates and times as texts |
//! | [`capability`] | capabilities of threads: what is missing, and giving up the rest |
//! | [`clock`] | the time-stamp counter, its frequency, and nanoseconds computed from it |
//! | [`code`] | memory at a chosen address that is written, then sealed and run |
//! | [`fences`] | fences for two threads, free for the one that passes its own often |
//! | [`heap`] | an allocator that gives each block cache lines of its own, and zeroes what is given back |
//! | [`keyed_hash`] | a hash with a secret key, for tables whose keys strangers choose |
//! | [`memory`] | large private mappings on the best available pages |
//! | [`namespace`] | network namespaces |
//! | [`numa`] | memory nodes: which there are, and asking for memory of one |
//! | [`perf`] | counters of the kernel's perf subsystem, read with and without a system call |
//! | [`private_file`] | files with secrets, which nobody else may read |
//! | [`private_folder`] | a user's own folder where everyone may create files |
//! | [`signal`] | signal handlers that are chained before others |
//! | [`simd`] | the instruction set of loops over data, chosen once |
//! | [`shared`] | a file of 64-bit cells on tmpfs that one process writes and any process reads |
//! | [`stack`] | overwriting what a secret left on the stack |
//! | [`switches`] | environment variables that take something away, for measurements and memory checkers |
//! | [`text`] | text of others: characters that must not reach a terminal, a log, or a reader of lines |
//! | [`untrusted`] | directories of other users, who may change them at any time |
//! | [`wake`] | an event descriptor, and sleeping until one of several descriptors or a deadline |
//! | [`FileError`] | the sentence about a file that cannot be used |
//! | [`remedy`] | advice for a person about a system error |
//! | [`cpu`] | pinning a thread, identifying the processor |

pub mod access;
pub mod atomic_file;
pub mod cache;
pub mod calendar;
pub mod capability;
pub mod clock;
pub mod code;
pub mod cpu;
pub mod fences;
mod file_error;
pub mod heap;
pub mod keyed_hash;
pub mod memory;
pub mod namespace;
pub mod numa;
pub mod perf;
pub mod private_file;
pub mod private_folder;
mod remedy;
pub mod shared;
pub mod signal;
pub mod simd;
pub mod stack;
pub mod switches;
pub mod text;
pub mod untrusted;
pub mod wake;

pub use file_error::{FileError, reason};
pub use remedy::remedy;

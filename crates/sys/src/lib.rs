//! Safe wrappers around the system calls that a packet engine needs.
//!
//! This is the only crate of the project that calls the kernel directly. Each module wraps one facility, so that other
//! crates need no `unsafe` to use it:
//!
//! | module | contents |
//! |---|---|
//! | [`access`] | file permissions, checked without opening the file |
//! | [`atomic_file`] | files that are replaced as a whole, so that a reader finds the old contents or the new ones |
//! | [`bpf`] | XDP programs that give frames to AF_XDP sockets, and frames that the kernel sends for measurements |
//! | [`cache`] | evicting data from the processor's caches |
//! | [`calendar`] | dates and times as texts |
//! | [`capability`] | capabilities of threads: what is missing, and giving up the rest |
//! | [`clock`] | the time-stamp counter, its frequency, and nanoseconds computed from it |
//! | [`code`] | memory at a chosen address that is written, then sealed and run |
//! | [`confine`] | a thread that restricts itself to the system calls that its work needs |
//! | [`datagrams`] | frames as datagrams of Unix sockets, many for each system call |
//! | [`ethtool`] | drivers of network interfaces: speed, queues, offloads |
//! | [`fences`] | fences for two threads, free for the one that passes its own often |
//! | [`heap`] | an allocator that gives each block cache lines of its own |
//! | [`keyed_hash`] | a hash with a secret key, for tables whose keys strangers choose |
//! | [`mapping`] | mappings of other processes' files, safe against truncation |
//! | [`memfd`] | memory files, to share with other processes |
//! | [`memory`] | large private mappings on the best available pages |
//! | [`namespace`] | network namespaces |
//! | [`netlink`] | sockets to the kernel's tables of interfaces |
//! | [`notify`] | raising events of other processes without ever waiting for them |
//! | [`numa`] | memory nodes: which there are, and asking for memory of one |
//! | [`packet_socket`] | the frames of a network interface, through a ring in shared memory |
//! | [`perf`] | counters of the kernel's perf subsystem, read with and without a system call |
//! | [`simd`] | the instruction set of loops over data, chosen once |
//! | [`shared`] | a file of 64-bit cells on tmpfs that one process writes and any process reads |
//! | [`socket`] | Unix sockets that pass descriptors, never blocking |
//! | [`tap`] | TAP devices: network interfaces whose other side is a program |
//! | [`untrusted`] | directories of other users, who may change them at any time |
//! | [`wake`] | an event descriptor, and sleeping until one of several descriptors or a deadline |
//! | [`way_out`] | advice for a person about a system error |
//! | [`xdp`] | AF_XDP sockets and their rings |
//! | [`cpu`] | pinning a thread, identifying the processor |

pub mod access;
pub mod atomic_file;
pub mod bpf;
pub mod cache;
pub mod calendar;
pub mod capability;
pub mod clock;
pub mod code;
pub mod confine;
pub mod cpu;
pub mod datagrams;
pub mod ethtool;
pub mod fences;
pub mod heap;
pub mod keyed_hash;
pub mod mapping;
pub mod memfd;
pub mod memory;
mod messages;
pub mod namespace;
pub mod netlink;
pub mod notify;
pub mod numa;
pub mod packet_socket;
pub mod perf;
mod port_error;
mod ring_mapping;
pub mod shared;
mod signal;
pub mod simd;
pub mod socket;
pub mod tap;
#[cfg(test)]
mod test_net;
pub mod untrusted;
pub mod wake;
mod way_out;
pub mod xdp;

pub use messages::VIRTIO_HEADER;
pub use port_error::{PortError, PortOpenError};
pub use way_out::way_out;

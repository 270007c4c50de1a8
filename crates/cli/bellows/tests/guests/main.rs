//! Guests under QEMU and DPDK's drivers, at the ports for virtual machines and for shared memory.

mod dpdk;
mod memif;
mod memory_nodes;
mod qemu;
mod unix_socket;

#[path = "../support/mod.rs"]
mod support;

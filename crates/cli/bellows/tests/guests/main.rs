//! Guests under QEMU and DPDK's driver, at the ports for virtual machines.

mod dpdk;
mod memory_nodes;
mod qemu;
mod unix_socket;

#[path = "../support/mod.rs"]
mod support;

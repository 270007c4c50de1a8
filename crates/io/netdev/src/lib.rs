//! Safe wrappers around the system calls for network interfaces. `bellows-netif` makes ports of them; the code that needs
//! `unsafe` is here, apart from it.
//!
//! | module | contents |
//! |---|---|
//! | [`bpf`] | XDP programs that give frames to AF_XDP sockets, and frames that the kernel sends for measurements |
//! | [`datagrams`] | frames as datagrams of Unix sockets, many for each system call |
//! | [`ethtool`] | drivers of network interfaces: speed, queues, offloads |
//! | [`netlink`] | sockets to the kernel's tables of interfaces |
//! | [`packet_socket`] | the frames of a network interface, through a ring in shared memory |
//! | [`tap`] | TAP devices: network interfaces whose other side is a program |
//! | [`xdp`] | AF_XDP sockets and their rings |

pub mod bpf;
pub mod datagrams;
pub mod ethtool;
mod messages;
pub mod netlink;
pub mod packet_socket;
mod port_error;
mod ring_mapping;
pub mod tap;
#[cfg(test)]
mod test_net;
pub mod xdp;

pub use messages::VIRTIO_HEADER;
pub use port_error::{PortError, PortOpenError};

//! Apps to the outside: network interfaces of the host, Unix sockets, and virtual machines.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod af_xdp;
pub mod dpdk;
mod port;
pub mod raw_socket;
pub mod tap;
pub mod unix_socket;
pub mod vhost_user;
mod virtio;
pub mod virtio_user;

use bellows_config::Registry;

pub use port::queues::Queues;
pub use virtio::VirtioStatus;

/// The catalogue with the apps of this crate.
///
/// The code that the engine has for the type of each app is compiled in this crate, too.
pub fn register(registry: Registry) -> Registry {
    registry
        .with::<af_xdp::AfXdp>()
        .with::<dpdk::Dpdk>()
        .with::<raw_socket::RawSocket>()
        .with::<tap::Tap>()
        .with::<unix_socket::UnixSocket>()
        .with::<vhost_user::VhostUser>()
        .with::<virtio_user::VirtioUser>()
}

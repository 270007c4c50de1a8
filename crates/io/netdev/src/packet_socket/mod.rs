//! Packet sockets (`packet(7)`): the frames of one network interface, beside the host's own network stack.
//!
//! A [`Receiver`] gets frames through a ring in memory that the kernel shares with it. A frame takes no system call,
//! unless it is longer than a slot of the ring. A [`Sender`] passes many frames in one call, through a ring as well.
//!
//! With a virtio-net header in front of each frame, the kernel passes GSO packets and frames with partial checksums as
//! they are. Without it, it says that a checksum is missing, and GSO packets have no segment size.

mod fanout;
mod layout;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;
mod transmit_ring;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{PACKET_VERSION, SOL_PACKET, c_int, sockaddr_ll, socklen_t};

use self::layout::SlotLayout;
use self::receiver::RECEIVE_BUFFER;
use self::sender::SEND_BUFFER;
use crate::PortOpenError;
use crate::messages::last_error;

pub use fanout::{Fanout, FanoutMode};
pub use receiver::{Frame, NextFrame, PacketType, Receiver, ReceiverOptions, Statistics, Vlan};
pub use sender::{Sender, SenderOptions, Sent};

/// The advice for most steps of opening a socket.
const USUAL: &str = "packet sockets need CAP_NET_RAW in the network namespace: run as root, or grant it to the program \
                     with `setcap cap_net_raw+ep PROGRAM`";

/// The version of the rings (`enum tpacket_versions`).
const TPACKET_V2: c_int = 1;

/// Every protocol, in network byte order (`ETH_P_ALL`).
const ALL_PROTOCOLS: u16 = (libc::ETH_P_ALL as u16).to_be();

/// Whether sockets get buffers of the usual sizes without `CAP_NET_ADMIN`: the limits `net.core.rmem_max` and
/// `net.core.wmem_max`, in bytes, allow them.
pub fn has_usual_buffers() -> bool {
    let allows = |name: &str, wanted: usize| {
        let limit = std::fs::read_to_string(format!("/proc/sys/net/core/{name}"));
        limit.is_ok_and(|limit| limit.trim().parse().is_ok_and(|limit: usize| limit >= wanted))
    };
    allows("rmem_max", RECEIVE_BUFFER) && allows("wmem_max", SEND_BUFFER)
}

/// Opens a packet socket that receives nothing until it is bound to a protocol. Frames of other interfaces therefore
/// never arrive.
fn open() -> Result<OwnedFd, PortOpenError> {
    let flags = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the call has no pointers.
    let descriptor = unsafe { libc::socket(libc::AF_PACKET, flags, 0) };
    if descriptor < 0 {
        return Err(PortOpenError::at("open a packet socket", USUAL)(last_error()));
    }
    // SAFETY: the descriptor was just opened, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Lets an interface receive frames for other hosts, too, as long as the socket is open.
fn make_promiscuous(socket: &OwnedFd, interface: u32) -> Result<(), PortOpenError> {
    let membership = libc::packet_mreq {
        mr_ifindex: interface.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let error = PortOpenError::at("make the interface promiscuous", USUAL);
    set(socket, SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership).map_err(error)
}

/// An interface receives frames for other hosts, too, until this is dropped. The kernel counts all users who want that.
#[derive(Debug)]
pub struct Promiscuity {
    _socket: OwnedFd,
}

impl Promiscuity {
    /// Asks for it, for an interface by its number.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV` if there is no such interface.
    pub fn new(interface: u32) -> Result<Promiscuity, PortOpenError> {
        let socket = open()?;
        make_promiscuous(&socket, interface)?;
        Ok(Promiscuity { _socket: socket })
    }
}

/// Binds a socket to an interface and a protocol, which is in network byte order.
fn bind(socket: BorrowedFd<'_>, interface: u32, protocol: u16) -> io::Result<()> {
    let address = sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol,
        sll_ifindex: interface.cast_signed(),
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = size_of::<sockaddr_ll>() as socklen_t;
    // SAFETY: the address is valid for the call, and has this length.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result == 0 { Ok(()) } else { Err(last_error().into()) }
}

/// The interface that a socket is bound to. `None` if it does not exist any more.
fn bound_interface(socket: BorrowedFd<'_>) -> Option<u32> {
    // SAFETY: all fields are integers, for which zeros are valid.
    let mut address: sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut length = size_of::<sockaddr_ll>() as socklen_t;
    // SAFETY: the address has this length, and both are valid for writes during the call.
    let result = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) };
    u32::try_from(address.sll_ifindex).ok().filter(|index| result == 0 && *index > 0)
}

/// Sets an option to a value that has the C layout which the option asks for.
fn set<T: Plain>(socket: impl AsFd, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    let (value, length) = (std::ptr::from_ref(value).cast(), size_of::<T>() as socklen_t);
    // SAFETY: the value is valid for reads of this length, and has no padding.
    let result = unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, value, length) };
    if result == 0 { Ok(()) } else { Err(last_error().into()) }
}

/// Chooses the version of the rings, before one exists.
fn choose_ring_version(socket: &OwnedFd) -> Result<(), PortOpenError> {
    let error = PortOpenError::at("choose version 2 of rings", "use a kernel with CONFIG_PACKET");
    set_flag(socket, PACKET_VERSION, TPACKET_V2).map_err(error)
}

/// Makes a ring: `PACKET_RX_RING` or `PACKET_TX_RING`.
fn make_ring(socket: &OwnedFd, kind: c_int, layout: SlotLayout) -> io::Result<()> {
    let SlotLayout { slot_length, block_length, blocks, .. } = layout;
    // `struct tpacket_req`: sizes and numbers of blocks and slots. The layout has checked that these are below 2^31.
    let request = [block_length, blocks, slot_length, layout.slots()].map(|number| number as u32);
    set(socket, SOL_PACKET, kind, &request)
}

/// Sets an integer option of packet sockets.
fn set_flag(socket: impl AsFd, name: c_int, value: c_int) -> io::Result<()> {
    set(socket, SOL_PACKET, name, &value)
}

/// Reads an option of packet sockets.
fn get<T: Plain + Default>(socket: impl AsFd, name: c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut length = size_of::<T>() as socklen_t;
    let (to, descriptor) = ((&raw mut value).cast(), socket.as_fd().as_raw_fd());
    // SAFETY: the value is valid for writes of this length, and every content of it is valid, also a part of it.
    let result = unsafe { libc::getsockopt(descriptor, SOL_PACKET, name, to, &raw mut length) };
    if result == 0 { Ok(value) } else { Err(last_error().into()) }
}

/// Values that pass to and from the kernel as they are in memory.
///
/// # Safety
/// They consist of integers without padding between them, so that every content is valid.
unsafe trait Plain {}

// SAFETY: it is an integer.
unsafe impl Plain for c_int {}
// SAFETY: an int, two u16 and eight bytes follow one another without padding.
unsafe impl Plain for libc::packet_mreq {}
// SAFETY: they are integers.
unsafe impl<const N: usize> Plain for [u32; N] {}

//! Sending frames, many for each system call.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libc::{PACKET_QDISC_BYPASS, PACKET_VNET_HDR};
use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force};

use super::{USUAL, bind, open, set_flag};
use crate::messages::{Messages, VIRTIO_HEADER};
use crate::{PortError, PortOpenError};

/// How to open a [`Sender`].
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// Whether each frame has a virtio-net header (`PACKET_VNET_HDR`), so that GSO packets and frames with partial
    /// checksums can be sent. Between virtual interfaces it costs 5 percent of the time that a small frame takes.
    pub virtio_header: bool,
    /// Whether frames bypass the interface's queueing discipline (`PACKET_QDISC_BYPASS`). They then bypass packet
    /// sockets that capture outgoing frames, too: `tcpdump` on the same interface does not see them. The kernel does
    /// not segment GSO packets then, so that an interface which cannot do so drops them ([`PortError::Dropped`]).
    ///
    /// Saves nothing on interfaces without a queue, such as veth.
    pub bypass_qdisc: bool,
    /// Bytes of the kernel's buffers that may be in flight, with their administration: up to 1 KiB for a small frame.
    /// Without `CAP_NET_ADMIN` at most twice `net.core.wmem_max`.
    pub send_buffer: usize,
}

impl Default for SenderOptions {
    fn default() -> SenderOptions {
        SenderOptions { virtio_header: false, bypass_qdisc: false, send_buffer: 4 << 20 }
    }
}

/// The result of sending frames.
#[derive(Debug)]
pub struct Sent {
    /// Number of frames, from the first one on, that the kernel has taken.
    pub taken: usize,
    /// Why the frame after them was not sent. `None` if all were.
    pub error: Option<PortError>,
}

/// A packet socket that sends through one interface, and receives nothing.
pub struct Sender {
    socket: OwnedFd,
    messages: Messages,
}

impl Sender {
    /// Opens a socket for an interface, by its number.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV` if there is no such interface.
    pub fn open(interface: u32, options: &SenderOptions) -> Result<Sender, PortOpenError> {
        let socket = open()?;
        if options.virtio_header {
            let error = PortOpenError::at("put a virtio-net header in front of frames", USUAL);
            set_flag(&socket, PACKET_VNET_HDR, 1).map_err(error)?;
        }
        if options.bypass_qdisc {
            let error = PortOpenError::at("bypass the queueing discipline", USUAL);
            set_flag(&socket, PACKET_QDISC_BYPASS, 1).map_err(error)?;
        }
        if set_socket_send_buffer_size_force(&socket, options.send_buffer).is_err() {
            let error = PortOpenError::at("set the size of the send buffer", USUAL);
            set_socket_send_buffer_size(&socket, options.send_buffer).map_err(error)?;
        }
        bind(socket.as_fd(), interface, 0)
            .map_err(PortOpenError::at("bind a packet socket to the interface", USUAL))?;
        Ok(Sender { socket, messages: Messages::new(options.virtio_header) })
    }

    /// Sends frames in order, without waiting, until the kernel refuses one.
    ///
    /// A frame may be longer than the MTU only if its header makes it a GSO packet. Without `virtio_header` in the
    /// options, headers are ignored; with it, frames without a header of their own get one of zeros.
    ///
    /// [`PortError::Full`] means that the kernel has no room; [`PortError::Dropped`] that a queue dropped the frame after
    /// these: the interface's, or that of the processor's received frames behind a veth interface
    /// (`net.core.netdev_max_backlog`).
    pub fn send<'a>(&mut self, frames: impl IntoIterator<Item = (Option<[u8; VIRTIO_HEADER]>, &'a [u8])>) -> Sent {
        let frames = frames.into_iter().map(|(header, bytes)| (header.unwrap_or_default(), bytes));
        let (taken, error) = self.messages.send(self.socket.as_fd(), frames);
        Sent { taken, error: error.map(PortError::of) }
    }
}

/// Writable if the kernel has room for frames.
impl AsFd for Sender {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sender").field("socket", &self.socket).finish_non_exhaustive()
    }
}

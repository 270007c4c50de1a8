//! Sending frames, many for each system call.

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};

use libc::{PACKET_QDISC_BYPASS, PACKET_VNET_HDR};
use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force};

use super::transmit_ring::TransmitRing;
use super::{USUAL, bind, open, set_flag};
use crate::messages::{Messages, VIRTIO_HEADER};
use crate::{PortError, PortOpenError};

/// How to open a [`Sender`].
#[derive(Clone, Debug)]
pub struct SenderOptions {
    /// The MTU of the interface. Longer frames are sent as well, at a higher cost.
    pub mtu: usize,
    /// Whether virtio-net headers count (`PACKET_VNET_HDR`), so that GSO packets and frames with partial checksums can
    /// be sent.
    pub virtio_header: bool,
    /// Whether frames bypass the interface's queueing discipline (`PACKET_QDISC_BYPASS`). They then bypass packet
    /// sockets that capture outgoing frames, too: `tcpdump` on the same interface does not see them. The kernel does
    /// not segment GSO packets then, so that an interface which cannot do so drops them ([`PortError::Dropped`]).
    ///
    /// Saves nothing on interfaces without a queue, such as veth.
    pub bypass_qdisc: bool,
    /// Bytes of the kernel's buffers that may be in flight, with their administration: up to 1 KiB for a small frame. Of
    /// frames up to the MTU, only 256 or a few more are in flight, so this limits the longer ones. Without
    /// `CAP_NET_ADMIN` at most twice `net.core.wmem_max`.
    pub send_buffer: usize,
}

impl Default for SenderOptions {
    fn default() -> SenderOptions {
        SenderOptions { mtu: 1500, virtio_header: false, bypass_qdisc: false, send_buffer: SEND_BUFFER }
    }
}

/// The usual size of the buffers in flight.
pub(super) const SEND_BUFFER: usize = 4 << 20;

/// The result of sending frames.
#[derive(Debug)]
pub struct Sent {
    /// Number of frames, from the first one on, that the kernel has taken.
    pub taken: usize,
    /// Why the frame after them was not sent. `None` if all were.
    pub error: Option<PortError>,
}

/// Packet sockets that send through one interface, and receive nothing.
pub struct Sender {
    /// Frames up to the MTU go through the ring, in which nobody checks their length.
    ring: TransmitRing,
    /// Others go through calls on a second socket: GSO packets, and frames for which the interface must make an
    /// exception, such as those with a VLAN tag. A socket with a ring cannot send otherwise.
    socket: OwnedFd,
    messages: Messages,
    /// Whether headers count.
    virtio_header: bool,
}

impl Sender {
    /// Opens sockets for an interface, by its number.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV` if there is no such interface.
    pub fn open(interface: u32, options: &SenderOptions) -> Result<Sender, PortOpenError> {
        let bind_to = |socket: &OwnedFd| {
            let error = PortOpenError::at("bind a packet socket to the interface", USUAL);
            bind(socket.as_fd(), interface, 0).map_err(error)
        };
        let ring = TransmitRing::new(open_with(options)?, options.mtu.saturating_add(ETHERNET_HEADER))?;
        bind_to(&ring.socket)?;
        let socket = open_with(options)?;
        if options.virtio_header {
            let error = PortOpenError::at("put a virtio-net header in front of frames", USUAL);
            set_flag(&socket, PACKET_VNET_HDR, 1).map_err(error)?;
        }
        bind_to(&socket)?;
        let SenderOptions { virtio_header, .. } = *options;
        Ok(Sender { ring, socket, messages: Messages::new(virtio_header), virtio_header })
    }

    /// Sends frames in order, without waiting, until the kernel refuses one.
    ///
    /// A frame may be longer than the MTU only if its header makes it a GSO packet. Without `virtio_header` in the
    /// options, headers are ignored; with it, frames without a header of their own get one of zeros.
    ///
    /// [`PortError::Full`] means that the kernel has no room; [`PortError::Dropped`] that a queue dropped the frame after
    /// these: the interface's, or that of the processor's received frames behind a veth interface
    /// (`net.core.netdev_max_backlog`).
    #[inline]
    pub fn send<'a>(&mut self, frames: impl IntoIterator<Item = (Option<[u8; VIRTIO_HEADER]>, &'a [u8])>) -> Sent {
        let longest = self.ring.frame_length();
        let fits = |frame: &([u8; VIRTIO_HEADER], &[u8])| frame.1.len() <= longest;
        let with_headers = self.virtio_header;
        let header = |header: Option<_>| header.filter(|_| with_headers).unwrap_or_default();
        let mut frames = frames.into_iter().map(|(own, bytes)| (header(own), bytes)).peekable();
        let mut taken = 0;
        // Both sockets send before their calls return, so the frames stay in order.
        while let Some(next) = frames.peek() {
            let (count, error) = if fits(next) {
                self.ring.send(std::iter::from_fn(|| frames.next_if(fits)))
            } else {
                self.messages.send(self.socket.as_fd(), std::iter::from_fn(|| frames.next_if(|frame| !fits(frame))))
            };
            taken += count;
            if let Some(error) = error {
                return Sent { taken, error: Some(PortError::of(error)) };
            }
        }
        Sent { taken, error: None }
    }
}

/// Length of an Ethernet header, which no MTU includes.
const ETHERNET_HEADER: usize = 14;

/// Opens a socket, and sets what both sockets have in common.
fn open_with(options: &SenderOptions) -> Result<OwnedFd, PortOpenError> {
    let socket = open()?;
    if options.bypass_qdisc {
        let error = PortOpenError::at("bypass the queueing discipline", USUAL);
        set_flag(&socket, PACKET_QDISC_BYPASS, 1).map_err(error)?;
    }
    if set_socket_send_buffer_size_force(&socket, options.send_buffer).is_err() {
        let error = PortOpenError::at("set the size of the send buffer", USUAL);
        set_socket_send_buffer_size(&socket, options.send_buffer).map_err(error)?;
    }
    Ok(socket)
}

impl fmt::Debug for Sender {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sender").field("socket", &self.socket).finish_non_exhaustive()
    }
}

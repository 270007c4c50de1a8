//! Receiving frames through a ring of slots (`PACKET_RX_RING`, version 2).
//!
//! Version 2 has one status word for each frame, so that a frame can be taken as soon as it is there. Version 3 collects
//! frames of any length in blocks, and passes on a block that is not full only after a millisecond or more.
//!
//! Slots are as long as ordinary frames. A longer frame, such as a GSO packet, is also queued at the socket
//! (`PACKET_COPY_THRESH`), and read from there by one system call, which costs little beside its copy.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::Duration;

use libc::{
    PACKET_COPY_THRESH, PACKET_FANOUT, PACKET_IGNORE_OUTGOING, PACKET_RX_RING, PACKET_STATISTICS, PACKET_VNET_HDR,
    SO_BUSY_POLL, SOL_PACKET, SOL_SOCKET, c_int, sockaddr_ll, tpacket2_hdr,
};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, socket_error, socket_recv_buffer_size,
};
use rustix::net::{RecvAncillaryBuffer, RecvFlags, recvmsg};

use super::fanout::Fanout;
use super::layout::{FRAME_OFFSET, LINE, SlotLayout, SlotPosition};
use super::{
    ALL_PROTOCOLS, USUAL, bind, bound_interface, choose_ring_version, get, make_promiscuous, make_ring, open, set,
    set_flag,
};
use crate::messages::VIRTIO_HEADER;
use crate::ring_mapping::RingMapping;
use crate::{PortError, PortOpenError};
use bellows_sys::cache::{lines, prefetch};

/// Bits of the status word (`linux/if_packet.h`).
mod status {
    pub(super) const KERNEL: u32 = 0;
    pub(super) const USER: u32 = 1 << 0;
    pub(super) const COPY: u32 = 1 << 1;
    pub(super) const CHECKSUM_NOT_READY: u32 = 1 << 3;
    pub(super) const VLAN_VALID: u32 = 1 << 4;
    pub(super) const VLAN_TPID_VALID: u32 = 1 << 6;
    pub(super) const CHECKSUM_VALID: u32 = 1 << 7;
}

/// The type of a VLAN tag whose type the kernel does not report: IEEE 802.1Q.
const VLAN_TPID: u16 = 0x8100;

/// Slots to look ahead. They come from the cache of the processor that received the frames.
const AHEAD: usize = 4;

/// Maximum length of a frame that is read from the socket's queue: a GSO packet has at most 64 KiB and
/// its headers, unless the interface's `gso_max_size` was raised.
const MAX_QUEUED: usize = 73_600;

/// How to open a [`Receiver`].
#[derive(Clone, Debug)]
pub struct ReceiverOptions {
    /// Number of slots of the ring, rounded up to whole blocks of 256 KiB.
    pub slots: usize,
    /// Length of the longest frame that fits in a slot: the MTU, and 18 bytes for Ethernet's header and a VLAN tag.
    pub frame_length: usize,
    /// Whether each frame has a virtio-net header (`PACKET_VNET_HDR`).
    pub virtio_header: bool,
    /// Whether the interface receives frames for other hosts, too. The kernel ends this when the socket is closed.
    pub promiscuous: bool,
    /// Whether to receive the frames that this host sends through the interface, too.
    pub outgoing: bool,
    /// The group of sockets that share the interface's frames.
    pub fanout: Option<Fanout>,
    /// Bytes of the kernel's buffers for frames that are longer than a slot, with their administration: up to 100 KiB
    /// for a GSO packet of 64 KiB. Frames beyond it are truncated. Without `CAP_NET_ADMIN` at most twice
    /// `net.core.rmem_max`: see [`Receiver::receive_buffer`].
    pub receive_buffer: usize,
    /// Time for which `poll(2)` and the like poll the driver (`SO_BUSY_POLL`). Raising it needs `CAP_NET_ADMIN`.
    pub busy_poll: Option<Duration>,
}

impl Default for ReceiverOptions {
    fn default() -> ReceiverOptions {
        ReceiverOptions {
            slots: 2048,
            frame_length: 1518,
            virtio_header: false,
            promiscuous: false,
            outgoing: false,
            fanout: None,
            receive_buffer: RECEIVE_BUFFER,
            busy_poll: None,
        }
    }
}

/// The usual size of the buffers for long frames.
pub(super) const RECEIVE_BUFFER: usize = 16 << 20;

/// Counts of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that the kernel put into the ring.
    pub received: u32,
    /// Frames that the kernel dropped: because the ring was full, or because the frame has offloads that a virtio-net
    /// header cannot describe.
    pub dropped: u32,
}

/// The tag of a VLAN, in host byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// The type of the tag: 0x8100 (IEEE 802.1Q) or 0x88a8 (802.1ad).
    pub tpid: u16,
    /// Priority, drop eligibility and number of the VLAN.
    pub tci: u16,
}

/// Whom a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketType {
    /// This host.
    Host,
    /// All hosts.
    Broadcast,
    /// A group of hosts.
    Multicast,
    /// Another host. Only with promiscuous interfaces.
    OtherHost,
    /// This host has sent it. Only if the options ask for such frames.
    Outgoing,
    /// Something else.
    Other,
}

impl PacketType {
    fn of(number: u8) -> PacketType {
        match number {
            libc::PACKET_HOST => PacketType::Host,
            libc::PACKET_BROADCAST => PacketType::Broadcast,
            libc::PACKET_MULTICAST => PacketType::Multicast,
            libc::PACKET_OTHERHOST => PacketType::OtherHost,
            libc::PACKET_OUTGOING => PacketType::Outgoing,
            _ => PacketType::Other,
        }
    }
}

/// The beginning of each slot: `struct tpacket2_hdr` and, aligned to 16 bytes, `struct sockaddr_ll`.
#[repr(C)]
struct SlotHeader {
    frame: tpacket2_hdr,
    address: sockaddr_ll,
}

const _: () = assert!(size_of::<tpacket2_hdr>() == 32 && size_of::<SlotHeader>() == 52);

/// A packet socket that receives the frames of one interface.
pub struct Receiver {
    /// The socket, the ring, and the offset of the next frame's slot.
    next: Arc<NextFrame>,
    layout: SlotLayout,
    /// The slot of the next frame, and the one to prefetch then.
    position: SlotPosition,
    ahead: SlotPosition,
    has_virtio_header: bool,
    takes_outgoing: bool,
    /// A frame that was queued at the socket.
    queued: Vec<u8>,
    /// An error that a call met which does not return it.
    error: Option<Errno>,
}

/// The place of a [`Receiver`]'s next frame, for another thread or owner than the receiver's.
///
/// It keeps the socket and its ring: the kernel closes them, which may take it milliseconds, when the last owner is
/// dropped.
#[derive(Debug)]
pub struct NextFrame {
    socket: OwnedFd,
    ring: RingMapping,
    /// The offset of the next frame's slot, which is always that of a slot.
    offset: AtomicUsize,
}

impl NextFrame {
    /// The status word of the frame that is the next one now. [`NextFrame::ARRIVED`] is set in it when the frame is
    /// there. Polling it takes no system call.
    #[inline(always)]
    pub fn word(&self) -> &AtomicU32 {
        // SAFETY: the slot is in the ring, whose mapping lives as long as self. Slots are aligned to cache lines, and
        // begin with this word, which the kernel accesses as a whole.
        unsafe { AtomicU32::from_ptr(self.slot().cast::<u32>().as_ptr()) }
    }

    /// The bit of the word that says that the frame is there.
    pub const ARRIVED: u32 = status::USER;

    /// The error of the socket since the last call, if there was one: see [`Receiver::take_error`], which may leave out
    /// an error that was taken here.
    pub fn take_error(&self) -> Option<PortError> {
        self.take(None)
    }

    /// As [`NextFrame::take_error`]; if there is none, the other one.
    fn take(&self, other: Option<Errno>) -> Option<PortError> {
        let error = match socket_error(&self.socket) {
            Ok(Ok(())) => other?,
            Ok(Err(error)) | Err(error) => error,
        };
        if error == Errno::NETDOWN && bound_interface(self.socket.as_fd()).is_none() {
            return Some(PortError::Gone);
        }
        Some(PortError::of(error))
    }

    #[inline(always)]
    fn slot(&self) -> NonNull<u8> {
        // SAFETY: offsets of slots are in the ring.
        unsafe { self.ring.start().add(self.offset.load(Relaxed)) }
    }
}

/// Readable if there is a frame, or an error.
impl AsFd for NextFrame {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Receiver {
    /// Opens a socket for an interface, by its number. It receives from then on. It may be down.
    ///
    /// # Errors
    /// `EPERM` without `CAP_NET_RAW`; `ENODEV` if there is no such interface; `ENOMEM` and `EINVAL` for an impossible
    /// ring; `EINVAL` and `ENOSPC` for a fanout group of another mode, or one that is full.
    pub fn open(interface: u32, options: &ReceiverOptions) -> Result<Receiver, PortOpenError> {
        let layout = SlotLayout::new(options.slots, options.frame_length).ok_or(io::ErrorKind::InvalidInput);
        let layout = layout.map_err(PortOpenError::at("lay out the ring", "choose fewer slots"))?;
        let socket = open()?;
        configure(&socket, layout, options)?;
        let error = PortOpenError::at("map the ring", "choose fewer slots");
        let ring = RingMapping::new(&socket, 0, layout.length(), false).map_err(error)?;
        let ahead = (0..AHEAD).fold(SlotPosition::default(), |position, _| layout.next(position));
        let receiver = Receiver {
            next: Arc::new(NextFrame { socket, ring, offset: AtomicUsize::new(0) }),
            layout,
            position: SlotPosition::default(),
            ahead,
            has_virtio_header: options.virtio_header,
            takes_outgoing: options.outgoing,
            queued: Vec::new(),
            error: None,
        };
        receiver.attach(interface, options)?;
        Ok(receiver)
    }

    /// Binds the socket to its interface, where it then receives.
    fn attach(&self, interface: u32, options: &ReceiverOptions) -> Result<(), PortOpenError> {
        let error = PortOpenError::at("bind a packet socket to the interface", USUAL);
        bind(self.next.socket.as_fd(), interface, ALL_PROTOCOLS).map_err(error)?;
        if options.promiscuous {
            make_promiscuous(&self.next.socket, interface)?;
        }
        if let Some(fanout) = options.fanout {
            let advice = "all sockets of a group have the same mode, flags and interface, which must be up; choose \
                          another number for the group";
            let error = PortOpenError::at("join the fanout group", advice);
            set(&self.next.socket, SOL_PACKET, PACKET_FANOUT, &[fanout.argument(options.outgoing)]).map_err(error)?;
        }
        Ok(())
    }

    /// The status word of the next frame, which is 0 until the frame is there. Polling it takes no system call.
    #[inline(always)]
    pub fn word(&self) -> &AtomicU32 {
        self.next.word()
    }

    /// The place of the next frame, for another thread that waits for frames.
    pub fn next(&self) -> Arc<NextFrame> {
        Arc::clone(&self.next)
    }

    /// The next frame, if there is one. It is released when it is dropped; the kernel then reuses its slot.
    #[inline]
    pub fn next_frame(&mut self) -> Option<Frame<'_>> {
        loop {
            let status = self.word().load(Acquire);
            if status & status::USER == 0 {
                return None;
            }
            self.prefetch();
            // SAFETY: the header is in the slot, aligned. The kernel wrote it before it set the status that was
            // acquired above. Only the kernel writes slots, and this one not again before its status is set to
            // KERNEL, which release() does, when the frame is dropped.
            let header = unsafe { self.next.slot().cast::<SlotHeader>().read() };
            let packet_type = PacketType::of(header.address.sll_pkttype);
            let is_queued = status & status::COPY != 0;
            // A group of sockets gets outgoing frames from kernels that do not know its flag.
            if packet_type == PacketType::Outgoing && !self.takes_outgoing {
                self.release(is_queued);
                continue;
            }
            return Some(Frame::new(self, status, header.frame, packet_type));
        }
    }

    /// Gives the slot of the next frame back to the kernel. `is_queued`: the frame is still queued at the socket.
    #[inline(always)]
    fn release(&mut self, is_queued: bool) {
        if is_queued || !self.queued.is_empty() {
            self.release_queued(is_queued);
        }
        self.word().store(status::KERNEL, Release);
        self.position = self.layout.next(self.position);
        self.next.offset.store(self.layout.offset(self.position), Relaxed);
        self.ahead = self.layout.next(self.ahead);
    }

    #[cold]
    fn release_queued(&mut self, is_queued: bool) {
        self.queued.clear();
        if is_queued {
            let _ = self.read_queued(&mut []);
        }
    }

    /// The counts since the last call. A full ring makes the kernel drop frames.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`; none is expected.
    pub fn statistics(&self) -> io::Result<Statistics> {
        // `struct tpacket_stats`, whose first count includes the second. The kernel sets both to 0.
        let [all, dropped] = get(&self.next.socket, PACKET_STATISTICS)?;
        Ok(Statistics { received: all.wrapping_sub(dropped), dropped })
    }

    /// Sets whether frames reach the ring from now on. Others are not counted as dropped.
    ///
    /// # Errors
    /// `ENOENT` if they reach it already; `ENOMEM`.
    pub fn set_receiving(&self, receives: bool) -> io::Result<()> {
        const RETURN_CONSTANT: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        if receives {
            return set(&self.next.socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, &[0_u32]);
        }
        let mut nothing = libc::sock_filter { code: RETURN_CONSTANT, jt: 0, jf: 0, k: 0 };
        let program = libc::sock_fprog { len: 1, filter: &raw mut nothing };
        let length = size_of::<libc::sock_fprog>() as libc::socklen_t;
        let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
        let socket = std::os::fd::AsRawFd::as_raw_fd(&self.next.socket);
        // SAFETY: the value has the layout that the option asks for; it and its only instruction outlive the call, which
        // copies them.
        let result = unsafe { libc::setsockopt(socket, level, name, (&raw const program).cast(), length) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// The error since the last call, if there was one: [`PortError::Down`] if the interface was set down, or was when
    /// this was opened; [`PortError::Gone`] if it was deleted, or moved to another network namespace. Frames come again
    /// by themselves when the interface is set up.
    ///
    /// The descriptor is readable while there is an error.
    pub fn take_error(&mut self) -> Option<PortError> {
        let other = self.error.take();
        self.next.take(other)
    }

    /// Bytes of the kernel's buffers for frames that are longer than a slot, with their administration, as granted.
    ///
    /// # Errors
    /// Those of `getsockopt(2)`; none is expected.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        Ok(socket_recv_buffer_size(&self.next.socket)?)
    }

    /// The number of the socket's fanout group, for other sockets to join.
    pub fn fanout_group(&self) -> Option<u16> {
        let [argument] = get(&self.next.socket, PACKET_FANOUT).ok()?;
        (argument != 0).then_some(argument as u16)
    }

    /// Number of slots of the ring.
    pub fn slots(&self) -> usize {
        self.layout.slots()
    }

    /// Reads the next frame that was queued at the socket into a buffer. Returns its length, which may be more than
    /// the buffer's.
    #[cold]
    fn read_queued(&mut self, into: &mut [u8]) -> Option<usize> {
        let mut header = [0; VIRTIO_HEADER];
        let skipped = if self.has_virtio_header { VIRTIO_HEADER } else { 0 };
        let mut parts = [IoSliceMut::new(&mut header[..skipped]), IoSliceMut::new(into)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        // A call returns a pending error of the socket in place of a frame.
        for _ in 0..2 {
            match recvmsg(&self.next.socket, &mut parts, &mut RecvAncillaryBuffer::default(), flags) {
                Ok(message) => return message.bytes.checked_sub(skipped),
                Err(Errno::AGAIN) => return None,
                Err(error) => self.error = Some(error),
            }
        }
        None
    }

    #[inline(always)]
    fn prefetch(&self) {
        let start = self.next.ring.start().as_ptr().wrapping_add(self.layout.offset(self.ahead));
        lines(start, 3 * LINE).for_each(prefetch);
    }
}

/// Sets the options that must be set before the ring exists, and makes the ring.
fn configure(socket: &OwnedFd, layout: SlotLayout, options: &ReceiverOptions) -> Result<(), PortOpenError> {
    choose_ring_version(socket)?;
    if options.virtio_header {
        let error = PortOpenError::at("put a virtio-net header in front of frames", USUAL);
        set_flag(socket, PACKET_VNET_HDR, 1).map_err(error)?;
    }
    if !options.outgoing {
        let error = PortOpenError::at("ignore outgoing frames", "use Linux 4.20 or newer");
        set_flag(socket, PACKET_IGNORE_OUTGOING, 1).map_err(error)?;
    }
    set_flag(socket, PACKET_COPY_THRESH, 1).map_err(PortOpenError::at("ask for copies of long frames", USUAL))?;
    if set_socket_recv_buffer_size_force(socket, options.receive_buffer).is_err() {
        let error = PortOpenError::at("set the size of the receive buffer", USUAL);
        set_socket_recv_buffer_size(socket, options.receive_buffer).map_err(error)?;
    }
    if let Some(time) = options.busy_poll {
        let microseconds = c_int::try_from(time.as_micros()).unwrap_or(c_int::MAX);
        let error = PortOpenError::at("set the time of busy polling", "raising it needs CAP_NET_ADMIN");
        set(socket, SOL_SOCKET, SO_BUSY_POLL, &microseconds).map_err(error)?;
    }
    make_ring(socket, PACKET_RX_RING, layout).map_err(PortOpenError::at("make the ring", "choose fewer slots"))
}

/// Readable if there is a frame, or an error.
impl AsFd for Receiver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.next.socket.as_fd()
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Receiver");
        debug.field("socket", &self.next.socket).field("slots", &self.slots()).finish_non_exhaustive()
    }
}

/// A frame that was received. Its slot is released when it is dropped.
pub struct Frame<'a> {
    receiver: &'a mut Receiver,
    status: u32,
    header: tpacket2_hdr,
    packet_type: PacketType,
    /// Where the frame begins in its slot, and how much of it is there: checked to be within the slot.
    start: usize,
    captured: usize,
    /// Whether the frame is queued at the socket.
    is_queued: bool,
}

impl<'a> Frame<'a> {
    #[inline(always)]
    fn new(receiver: &'a mut Receiver, status: u32, header: tpacket2_hdr, packet_type: PacketType) -> Frame<'a> {
        let (start, captured) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        // The kernel never gives others. In front of the frame is at least the virtio-net header.
        let is_inside = start >= size_of::<SlotHeader>() + VIRTIO_HEADER
            && start.saturating_add(captured) <= receiver.layout.slot_length;
        Frame {
            receiver,
            status,
            header,
            packet_type,
            start: if is_inside { start } else { FRAME_OFFSET },
            captured: if is_inside { captured } else { 0 },
            is_queued: status & status::COPY != 0,
        }
    }

    /// Number of bytes that can be read, at most 73,600: less than the original length if the frame was truncated,
    /// because it was longer than a slot and the receive buffer was full.
    #[inline]
    pub fn length(&self) -> usize {
        if self.is_queued { self.original_length().min(MAX_QUEUED) } else { self.captured }
    }

    /// Number of bytes that the frame had, without a VLAN tag that the kernel removed.
    #[inline]
    pub fn original_length(&self) -> usize {
        self.header.tp_len as usize
    }

    /// The frame from its Ethernet header on, without a VLAN tag that the kernel removed.
    ///
    /// The first call for a frame that is longer than a slot copies it; [`Frame::copy_to`] saves that.
    #[inline]
    pub fn bytes(&mut self) -> &[u8] {
        if self.is_queued || !self.receiver.queued.is_empty() {
            return self.queued_bytes();
        }
        self.captured_bytes()
    }

    /// Copies the frame, or as much of it as fits, and releases it. Returns the number of bytes.
    #[inline]
    pub fn copy_to(mut self, into: &mut [u8]) -> usize {
        if self.is_queued {
            self.is_queued = false;
            let length = into.len();
            if let Some(original) = self.receiver.read_queued(into) {
                return original.min(length);
            }
        }
        let bytes = self.bytes();
        let length = bytes.len().min(into.len());
        into[..length].copy_from_slice(&bytes[..length]);
        length
    }

    /// The virtio-net header, whose offsets count from the frame's first byte. `None` if the options did not ask for
    /// it. The fields are little-endian.
    #[inline]
    pub fn virtio_header(&self) -> Option<[u8; VIRTIO_HEADER]> {
        if !self.receiver.has_virtio_header {
            return None;
        }
        // SAFETY: the header lies in front of the frame in the slot, after the slot's own header: Frame::new checked
        // that. The kernel does not write it before the slot is released, which ends this borrow.
        Some(unsafe { self.receiver.next.slot().add(self.start - VIRTIO_HEADER).cast().read() })
    }

    /// The VLAN tag that the kernel removed from the frame, after the two addresses.
    #[inline]
    pub fn vlan(&self) -> Option<Vlan> {
        if self.status & status::VLAN_VALID == 0 {
            return None;
        }
        let has_type = self.status & status::VLAN_TPID_VALID != 0;
        let tpid = if has_type { self.header.tp_vlan_tpid } else { VLAN_TPID };
        Some(Vlan { tpid, tci: self.header.tp_vlan_tci })
    }

    /// Whom the frame is for.
    #[inline]
    pub fn packet_type(&self) -> PacketType {
        self.packet_type
    }

    /// Whether the frame's checksum is only partial, because the sender left it to the interface. Then the virtio-net
    /// header says where it is.
    #[inline]
    pub fn has_partial_checksum(&self) -> bool {
        self.status & status::CHECKSUM_NOT_READY != 0
    }

    /// Whether the kernel or the interface has found the frame's checksum valid.
    #[inline]
    pub fn has_valid_checksum(&self) -> bool {
        self.status & status::CHECKSUM_VALID != 0
    }

    /// When the kernel received the frame, since the Unix epoch.
    #[inline]
    pub fn time(&self) -> Duration {
        Duration::new(self.header.tp_sec.into(), self.header.tp_nsec)
    }

    /// Releases the frame. Dropping it does the same.
    #[inline]
    pub fn release(self) {}

    #[inline(always)]
    fn captured_bytes(&self) -> &[u8] {
        // SAFETY: Frame::new checked that the bytes are in the slot. The kernel wrote them before it set the status,
        // and neither it nor anyone else writes them before the slot is released, which ends this borrow.
        unsafe { std::slice::from_raw_parts(self.receiver.next.slot().add(self.start).as_ptr(), self.captured) }
    }

    /// The frame that is or was queued at the socket.
    #[cold]
    fn queued_bytes(&mut self) -> &[u8] {
        if self.is_queued {
            let mut queued = std::mem::take(&mut self.receiver.queued);
            queued.resize(self.length(), 0);
            self.is_queued = false;
            let read = self.receiver.read_queued(&mut queued);
            queued.truncate(read.unwrap_or(0));
            self.receiver.queued = queued;
            if read.is_none() {
                return self.captured_bytes();
            }
        }
        &self.receiver.queued
    }
}

impl Drop for Frame<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.receiver.release(self.is_queued);
    }
}

impl fmt::Debug for Frame<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Frame");
        debug.field("length", &self.length()).field("original_length", &self.original_length());
        debug.field("packet_type", &self.packet_type).field("vlan", &self.vlan()).finish_non_exhaustive()
    }
}

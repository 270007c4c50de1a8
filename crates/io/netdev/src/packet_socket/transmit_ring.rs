//! Sending frames through a ring of slots (`PACKET_TX_RING`, version 2), many for each system call.
//!
//! Each slot begins with a virtio-net header, also for frames without offloads: its header length tells the kernel to
//! copy the whole frame into its own buffer. Otherwise the kernel copies the Ethernet header alone and refers to the
//! slot for the rest, which the receiving side of a virtual interface then has to copy. On veth that takes a quarter
//! longer for 64 bytes, and twice as long for 1,500.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, PACKET_TX_RING, PACKET_VNET_HDR};
use rustix::io::Errno;

use super::layout::{FRAME_OFFSET, SlotLayout, SlotPosition};
use super::{USUAL, choose_ring_version, make_ring, set_flag};
use crate::PortOpenError;
use crate::messages::{VIRTIO_HEADER, last_error};
use crate::ring_mapping::RingMapping;

/// The status word of a slot (`linux/if_packet.h`). While the kernel has a frame it is `TP_STATUS_SENDING`.
mod status {
    pub(super) const AVAILABLE: u32 = 0;
    pub(super) const SEND_REQUEST: u32 = 1 << 0;
    pub(super) const WRONG_FORMAT: u32 = 1 << 2;
}

/// Number of slots, rounded up to whole blocks: few enough that the processor's first cache holds what small frames use
/// of them. A slot is in use until the kernel is done with its frame, and slots are used in order, so this limits the
/// frames that wait in a queueing discipline.
const SLOTS: usize = 256;

/// Where a slot has the length of its data: `tp_len` of `struct tpacket2_hdr`.
const LENGTH_OFFSET: usize = 4;

/// Where the data begin, which are the virtio-net header and the frame: behind `struct tpacket2_hdr`.
const DATA_OFFSET: usize = size_of::<libc::tpacket2_hdr>();

const _: () = assert!(DATA_OFFSET + VIRTIO_HEADER <= FRAME_OFFSET, "a slot has room for the frame and these");

/// Where a virtio-net header has the number of bytes that the kernel copies: `hdr_len` of `struct virtio_net_hdr`.
const HEADER_LENGTH: std::ops::Range<usize> = 2..4;

/// A ring of frames to send, with its socket.
pub(super) struct TransmitRing {
    pub(super) socket: OwnedFd,
    ring: RingMapping,
    layout: SlotLayout,
    /// The slot of the next frame. The kernel looks for its next frame there, too.
    position: SlotPosition,
    /// The longest frame for a slot.
    frame_length: usize,
}

impl TransmitRing {
    /// Makes the ring of a socket, for frames of up to this length.
    ///
    /// # Errors
    /// `ENOMEM` and `EINVAL` for an impossible ring.
    pub(super) fn new(socket: OwnedFd, frame_length: usize) -> Result<TransmitRing, PortOpenError> {
        let frame_length = frame_length.min(u16::MAX.into());
        let advice = "choose a smaller MTU";
        let layout = SlotLayout::new(SLOTS, frame_length).ok_or(io::ErrorKind::InvalidInput);
        let layout = layout.map_err(PortOpenError::at("lay out the ring", advice))?;
        choose_ring_version(&socket)?;
        let error = PortOpenError::at("put a virtio-net header in front of frames", USUAL);
        set_flag(&socket, PACKET_VNET_HDR, 1).map_err(error)?;
        make_ring(&socket, PACKET_TX_RING, layout).map_err(PortOpenError::at("make the ring", advice))?;
        let ring = RingMapping::new(&socket, 0, layout.length(), false);
        let ring = ring.map_err(PortOpenError::at("map the ring", advice))?;
        Ok(TransmitRing { socket, ring, layout, position: SlotPosition::default(), frame_length })
    }

    /// The longest frame for a slot.
    #[inline]
    pub(super) fn frame_length(&self) -> usize {
        self.frame_length
    }

    /// Sends frames of up to [`frame_length`](TransmitRing::frame_length) bytes in order, until there is none, the kernel
    /// refuses one, or it has no room. Returns the number that it took, and the error of the frame after them.
    #[inline]
    pub(super) fn send<'a>(
        &mut self,
        frames: impl IntoIterator<Item = ([u8; VIRTIO_HEADER], &'a [u8])>,
    ) -> (usize, Option<Errno>) {
        let mut frames = frames.into_iter();
        let mut taken = 0;
        loop {
            let first = self.position;
            let mut written = 0;
            let mut error = None;
            while written < SLOTS {
                // The iterator must not be asked for a frame for which there is no slot.
                if self.word(self.position).load(Acquire) != status::AVAILABLE {
                    error = Some(Errno::AGAIN);
                    break;
                }
                let Some((header, bytes)) = frames.next() else { break };
                self.write(header, bytes);
                written += 1;
            }
            let (sent, refusal) = self.kick(first, written);
            taken += sent;
            if refusal.is_some() || error.is_some() || written < SLOTS {
                return (taken, refusal.or(error));
            }
        }
    }

    /// Writes a frame into the next slot, which is available.
    ///
    /// # Panics
    /// If the frame is longer than a slot.
    #[inline]
    fn write(&mut self, mut header: [u8; VIRTIO_HEADER], bytes: &[u8]) {
        header[HEADER_LENGTH].copy_from_slice(&(bytes.len() as u16).to_le_bytes());
        let length = VIRTIO_HEADER + bytes.len();
        assert!(DATA_OFFSET + length <= self.layout.slot_length);
        let slot = self.slot(self.position);
        // SAFETY: the slot is in the ring, whose mapping lives as long as self, and the length, the header and the
        // frame lie inside of it, as asserted. Slots are aligned to cache lines, so the length is aligned. No reference
        // to these bytes exists, and the kernel reads them only when the status asks for sending.
        unsafe {
            slot.add(LENGTH_OFFSET).cast::<u32>().write(length as u32);
            slot.add(DATA_OFFSET).cast().write(header);
            slot.add(DATA_OFFSET + VIRTIO_HEADER).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len());
        }
        self.word(self.position).store(status::SEND_REQUEST, Release);
        self.position = self.layout.next(self.position);
    }

    /// Makes the kernel send the frames in `written` slots from the first one on, and takes back those that it does not
    /// take. Returns the number that it took, and the error of the frame after them.
    #[inline]
    fn kick(&mut self, first: SlotPosition, written: usize) -> (usize, Option<Errno>) {
        let (mut next, mut sent) = (first, 0);
        while sent < written {
            let (buffer, address) = (std::ptr::null(), std::ptr::null());
            let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
            // SAFETY: the call has a buffer of no bytes and no address.
            let result = unsafe { libc::sendto(self.socket.as_raw_fd(), buffer, 0, flags, address, 0) };
            let error = (result < 0).then(last_error);
            let before = sent;
            while sent < written
                && !matches!(self.word(next).load(Acquire), status::SEND_REQUEST | status::WRONG_FORMAT)
            {
                next = self.layout.next(next);
                sent += 1;
            }
            if error.is_some() || sent == before {
                self.take_back(next, written - sent);
                return (sent, (sent < written).then_some(error.unwrap_or(Errno::AGAIN)));
            }
        }
        (sent, None)
    }

    /// Takes back frames that the kernel has not taken, from a slot on.
    #[cold]
    fn take_back(&mut self, from: SlotPosition, count: usize) {
        let mut position = from;
        for _ in 0..count {
            self.word(position).store(status::AVAILABLE, Relaxed);
            position = self.layout.next(position);
        }
        self.position = from;
    }

    /// The status word of a slot.
    #[inline(always)]
    fn word(&self, position: SlotPosition) -> &AtomicU32 {
        // SAFETY: the slot is in the ring, whose mapping lives as long as self. Slots are aligned to cache lines, and
        // begin with this word, which the kernel accesses as a whole.
        unsafe { AtomicU32::from_ptr(self.slot(position).cast::<u32>().as_ptr()) }
    }

    #[inline(always)]
    fn slot(&self, position: SlotPosition) -> NonNull<u8> {
        // SAFETY: offsets of slots are in the ring.
        unsafe { self.ring.start().add(self.layout.offset(position)) }
    }
}

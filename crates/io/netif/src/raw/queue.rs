//! A queue of packet sockets: one that receives, and one that sends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use bellows_netdev::PortError;
use bellows_netdev::packet_socket::{Frame, NextFrame, Receiver, Sender, Vlan};
use bellows_packet::{DATA_ROOM, LARGE_DATA_ROOM, LargeShare, Offload, Packet, Vector};
use bellows_ports::offload::{admit, header_for};
use bellows_ports::{Accepted, QueueBell, Rejection, SendQueue, Taken};
use bellows_wire::offload::Transport;

use super::FanoutGroup;
use super::cut::Cut;
use crate::release::wait_for_other_owners;
use crate::virtio_header::{from_header, to_header};
use crate::{Queue, QueueCounts, QueueError};

/// Where the type of a frame stands, and a VLAN tag in front of it.
const TYPE_OFFSET: usize = 12;
/// Length of a VLAN tag.
const TAG_LENGTH: usize = 4;

/// Time for which a frame that the interface drops is sent again and again. Its queue may be full for a moment; but a
/// frame may also be one that the interface never takes, and the next ones must not wait for it.
const INSIST: Duration = Duration::from_millis(2);

/// The sockets of a queue.
pub(super) struct Sockets {
    pub(super) receiver: Receiver,
    pub(super) sender: Sender,
    /// The fanout group that the sockets of other ports are in, too. Dropped after the receiver.
    pub(super) group: Option<Arc<FanoutGroup>>,
}

/// One queue of an interface: frames come through a ring in memory, and are sent by system calls.
pub struct RawQueue {
    bell: Arc<RawBell>,
    sockets: Sockets,
    /// Whether somebody behind the sending socket segments GSO packets; `None` if packets must have no offloads.
    segments: Option<Arc<AtomicBool>>,
    share: Arc<LargeShare>,
    /// The rest of a GSO packet that is segmented here.
    cut: Option<Cut>,
    /// Since when the interface has taken no frame, if it drops what it gets.
    refusing: Option<Instant>,
    /// Whether the kernel leaves frames out.
    is_deaf: bool,
    counts: QueueCounts,
}

/// The bell of a [`RawQueue`]: the status word of the ring's next frame.
pub struct RawBell {
    next: Arc<NextFrame>,
    /// In place of that word while a packet is being segmented: always ready.
    unfinished: AtomicU32,
}

impl QueueBell for RawBell {
    #[inline]
    fn word(&self) -> Option<&AtomicU32> {
        Some(if self.unfinished.load(Relaxed) == 0 { self.next.word() } else { &self.unfinished })
    }

    fn mask(&self) -> u32 {
        NextFrame::ARRIVED
    }

    fn quiet(&self) -> u32 {
        0
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.next.as_fd())
    }

    /// Takes an error from the socket, which would keep the descriptor readable. Nothing is lost: the control thread
    /// learns from elsewhere that the interface is down or gone.
    fn arm(&self) {
        let _ = self.next.take_error();
    }
}

impl RawQueue {
    pub(super) fn new(sockets: Sockets, segments: Option<Arc<AtomicBool>>, share: Arc<LargeShare>) -> RawQueue {
        let bell = Arc::new(RawBell { next: sockets.receiver.next(), unfinished: AtomicU32::new(0) });
        let counts = QueueCounts::default();
        RawQueue { bell, sockets, segments, share, cut: None, refusing: None, is_deaf: false, counts }
    }

    /// Keeps the fanout group that it shares with other ports.
    pub(super) fn join(&mut self, group: Option<Arc<FanoutGroup>>) {
        self.sockets.group = group;
    }

    /// The fanout group of its receiving socket.
    pub(super) fn fanout_group(&self) -> Option<u16> {
        self.sockets.receiver.fanout_group()
    }

    /// Number of slots of its ring.
    pub(super) fn slots(&self) -> usize {
        self.sockets.receiver.slots()
    }

    /// Does what the kernel has left undone in a packet that arrived, or keeps it as a GSO packet to be cut.
    #[cold]
    fn finish(&mut self, mut packet: Packet, offload: Offload) -> Option<Packet> {
        if offload.is_gso() {
            self.cut = Cut::new(packet, offload);
            return None;
        }
        // It was found in the same way when the offload was admitted.
        let finished = Transport::find(packet.bytes()).and_then(|found| found.finish(packet.bytes_mut()));
        packet.clear_offload();
        self.counts.checksums_finished += 1;
        finished.is_ok().then_some(packet)
    }

    /// The packet of an interface that has dropped the first frame of a call: tried again for a while.
    #[cold]
    fn refused(&mut self, taken: usize) -> Taken {
        let since = *self.refusing.get_or_insert_with(Instant::now);
        if taken == 0 && since.elapsed() > INSIST {
            // Those that follow are given up at once, until it takes one.
            self.counts.not_sent += 1;
            return Taken { count: 1, stop: None };
        }
        Taken { count: taken, stop: Some(Rejection::Full) }
    }
}

/// Copies a frame into a packet. `None` if there is no buffer, or the frame is incomplete; this is counted.
#[inline(always)]
fn copy(
    frame: Frame<'_>,
    fresh: &mut impl Iterator<Item = Packet>,
    share: &LargeShare,
    counts: &mut QueueCounts,
) -> Option<Packet> {
    let length = frame.length();
    if length <= DATA_ROOM && length == frame.original_length() {
        let Some(mut packet) = fresh.next() else {
            counts.rx_no_buffer += 1;
            return None;
        };
        let copied = frame.copy_to(packet.extend(length));
        packet.truncate(copied);
        return Some(packet);
    }
    copy_long(frame, share, counts)
}

/// Copies a frame that is too long for an ordinary buffer.
#[cold]
fn copy_long(frame: Frame<'_>, share: &LargeShare, counts: &mut QueueCounts) -> Option<Packet> {
    let (length, original) = (frame.length(), frame.original_length());
    // A shorter length: the frame was longer than a slot, and the socket's buffer was full.
    if length < original || original > LARGE_DATA_ROOM {
        counts.rx_too_long += 1;
        return None;
    }
    let Some(mut packet) = Packet::with_room_of(share, length) else {
        counts.rx_no_buffer += 1;
        return None;
    };
    let copied = frame.copy_to(packet.extend(length));
    if copied < length {
        counts.rx_too_long += 1;
        return None;
    }
    Some(packet)
}

/// Puts a tag that the kernel removed back into the frame.
#[cold]
fn restore(packet: &mut Packet, vlan: Vlan) {
    let bytes = packet.prepend(TAG_LENGTH);
    if bytes.len() < TYPE_OFFSET + TAG_LENGTH {
        return;
    }
    bytes.copy_within(TAG_LENGTH..TAG_LENGTH + TYPE_OFFSET, 0);
    bytes[TYPE_OFFSET..TYPE_OFFSET + 2].copy_from_slice(&vlan.tpid.to_be_bytes());
    bytes[TYPE_OFFSET + 2..TYPE_OFFSET + TAG_LENGTH].copy_from_slice(&vlan.tci.to_be_bytes());
}

impl Queue for RawQueue {
    type Bell = RawBell;

    fn bell(&self) -> Arc<RawBell> {
        Arc::clone(&self.bell)
    }

    fn receive(&mut self, packets: &mut Vector, most: usize) -> Result<(), QueueError> {
        let most = most.min(packets.room() + packets.len());
        let mut fresh = Packet::allocate_burst(most);
        loop {
            if let Some(cut) = &mut self.cut {
                if !cut.go_on(packets, most, &mut self.counts) {
                    break;
                }
                self.cut = None;
            }
            if packets.len() >= most {
                break;
            }
            let Some(frame) = self.sockets.receiver.next_frame() else { break };
            let header = frame.virtio_header().map(from_header).unwrap_or_default();
            let vlan = frame.vlan();
            let Some(mut packet) = copy(frame, &mut fresh, &self.share, &mut self.counts) else { continue };
            let has_offload = header.needs_checksum() || header.is_gso();
            if has_offload {
                // Still a claim. Here, so that a restored tag shifts its offsets.
                packet.set_offload(header);
            }
            if let Some(vlan) = vlan {
                restore(&mut packet, vlan);
                self.counts.vlan_tags_restored += 1;
            }
            if has_offload {
                let claim = packet.offload().unwrap_or_default();
                if !admit(&mut packet, claim, Accepted::ALL) {
                    self.counts.rx_bad_header += 1;
                    continue;
                }
                if let (None, Some(offload)) = (&self.segments, packet.offload()) {
                    match self.finish(packet, offload) {
                        Some(finished) => packet = finished,
                        None => continue,
                    }
                }
            }
            // There is room: it was checked above.
            let _ = packets.push(packet);
        }
        self.bell.unfinished.store(u32::from(self.cut.is_some()), Relaxed);
        Ok(())
    }

    fn set_receiving(&mut self, receives: bool) -> io::Result<bool> {
        if self.is_deaf == receives {
            self.sockets.receiver.set_receiving(receives)?;
            self.is_deaf = !receives;
        }
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), QueueError> {
        Ok(())
    }

    fn accepted(&self) -> Accepted {
        let Some(segments) = &self.segments else { return Accepted::default() };
        let segments = segments.load(Relaxed);
        Accepted { checksums: true, tcp4: segments, tcp6: segments }
    }

    fn counts(&mut self) -> QueueCounts {
        // Reading resets the kernel's count.
        let dropped = self.sockets.receiver.statistics().map_or(0, |statistics| statistics.dropped);
        self.counts.kernel_dropped += if self.is_deaf { 0 } else { u64::from(dropped) };
        self.counts
    }
}

impl SendQueue for RawQueue {
    type Error = QueueError;

    fn send(&mut self, packets: &[Packet]) -> Result<Taken, QueueError> {
        let accepted = self.accepted();
        let mut is_rejected = false;
        let frames = packets.iter().map_while(|packet| {
            if !packet.has_offload() {
                return Some((None, packet.bytes()));
            }
            let header = header_for(packet, accepted);
            is_rejected = header.is_none();
            header.map(|header| (Some(to_header(header)), packet.bytes()))
        });
        let sent = self.sockets.sender.send(frames.fuse());
        let taken = sent.taken;
        if taken > 0 {
            self.refusing = None;
        }
        let stop = match sent.error {
            None => is_rejected.then_some(Rejection::Offload),
            Some(PortError::Full) => Some(Rejection::Full),
            Some(PortError::Dropped) => return Ok(self.refused(taken)),
            Some(PortError::TooLong) => Some(Rejection::TooLong),
            Some(PortError::Invalid) => {
                // It will never be valid.
                self.counts.not_sent += 1;
                return Ok(Taken { count: taken + 1, stop: None });
            }
            // The next call brings the error again.
            Some(_) if taken > 0 => None,
            Some(error) => return Err(QueueError::from_port(error)),
        };
        Ok(Taken { count: taken, stop })
    }
}

impl Drop for RawQueue {
    fn drop(&mut self) {
        wait_for_other_owners(&self.bell);
    }
}

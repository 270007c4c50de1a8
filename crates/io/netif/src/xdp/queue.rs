//! One queue of an interface through an AF_XDP socket.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bellows_netdev::xdp::{
    self, CHUNK, CompletionRing, CopyMemory, FillRing, Kick, METADATA_LENGTH, MORE, PACKET_HEADROOM, Rings, RxCounts,
    RxRing, Socket, TxRing, checksum_request, position,
};
use bellows_packet::{DATA_ROOM, LARGE_DATA_ROOM, LargeShare, Loans, Offload, Packet, Vector};
use bellows_ports::offload::header_for;
use bellows_ports::{Accepted, QueueBell, Rejection, SendQueue, Taken};
use bellows_wire::EtherType;
use bellows_wire::offload::Transport;

use super::memory::Membership;
use super::program::Attachment;
use crate::release::wait_for_other_owners;
use crate::{Queue, QueueCounts, QueueError};

/// Maximum bytes of one descriptor to send. The data of an ordinary buffer fit into one.
const PIECE: usize = DATA_ROOM;

/// Maximum number of descriptors of a frame to send. In copy mode, the kernel puts each into a fragment of its packet
/// (`MAX_SKB_FRAGS`), the first one beside them.
const MAX_PIECES: usize = 17;

/// Bytes of metadata before a frame whose checksum somebody else finishes.
const METADATA: usize = METADATA_LENGTH as usize;

/// Bytes of an Ethernet header, and of a VLAN tag.
const HEADER: usize = 14;
const VLAN_TAG: usize = 4;

/// The shortest frame that is sent.
const MIN_FRAME: usize = HEADER;

/// Buffers that are given to the kernel at a time, if it has others.
const REFILL: u32 = 64;

/// How many packets ahead the check of checksums prefetches: more lines than can be under way to the first-level cache.
const AHEAD: usize = 24;

/// Entries of a ring that are read together.
const BLOCK: usize = 64;

/// Where frames are, in memory that the kernel knows.
pub(super) enum Buffers {
    /// In the packet pool.
    Pool(Loans),
    /// In memory of the socket's own.
    Copies { memory: CopyMemory, free: Vec<u64> },
    /// The queue is being dropped.
    None,
}

impl Buffers {
    /// Copies to and from this memory.
    pub(super) fn copies(memory: CopyMemory) -> Buffers {
        let free = (0..memory.chunks()).map(|chunk| (chunk * CHUNK) as u64).rev().collect();
        Buffers::Copies { memory, free }
    }

    /// Gives the kernel up to `count` empty buffers.
    #[inline]
    fn fill(&mut self, ring: &mut FillRing, count: u32) {
        match self {
            Buffers::Pool(loans) => {
                // The kernel leaves room before the frame, which is then exactly where a packet's data begin.
                loans.lend(count as usize, |lent| ring.push_all(lent.map(|data| data - u64::from(PACKET_HEADROOM))));
            }
            Buffers::None => {}
            // Half of the chunks are for sending.
            Buffers::Copies { memory, free } => {
                let spare = free.len().saturating_sub(memory.chunks() / 2);
                for chunk in free.drain(free.len() - spare.min(count as usize)..) {
                    ring.push(chunk);
                }
            }
        }
    }

    /// A sent buffer, or a piece of one, comes back.
    #[inline]
    fn end(&mut self, at: u64) {
        match self {
            Buffers::Pool(loans) => {
                loans.end(at);
            }
            Buffers::Copies { free, .. } => free.push(at - at % CHUNK as u64),
            Buffers::None => {}
        }
    }
}

/// A frame of several descriptors that is being received.
#[derive(Debug, Default)]
enum Frame {
    #[default]
    None,
    /// The bytes so far.
    Whole(Packet),
    /// It is dropped.
    Dropped,
}

/// The bell of a queue: the kernel's count of received frames.
///
/// It keeps the socket. So when the queue is dropped before its bell, the bell gets the buffers, and drops them after
/// the socket and its mapping, which keeps a socket open as well.
pub struct XdpBell {
    socket: Arc<Socket>,
    counts: RxCounts,
    /// The interface is polled by calls, so there must be some.
    polls: bool,
    // Dropped last.
    _grace: Grace,
    buffers: Mutex<Option<Buffers>>,
}

impl QueueBell for XdpBell {
    #[inline]
    fn word(&self) -> Option<&AtomicU32> {
        (!self.polls).then(|| self.counts.produced())
    }

    #[inline]
    fn mask(&self) -> u32 {
        u32::MAX
    }

    #[inline]
    fn quiet(&self) -> u32 {
        self.counts.consumed()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}

/// How a queue works.
#[derive(Clone, Copy, Debug)]
pub(super) struct XdpQueueOptions {
    /// Frames may have several descriptors.
    pub(super) multi_buffer: bool,
    /// Partial checksums are recognized and finished.
    pub(super) finish_checksums: bool,
    /// The kernel or the device finishes checksums of frames to send.
    pub(super) transmit_checksums: bool,
    /// Each call polls the interface.
    pub(super) polls: bool,
    /// Number of buffers that wait for frames.
    pub(super) waiting: u32,
    /// The number of the queue.
    pub(super) number: u32,
    /// The interface has a transmit queue of this number.
    pub(super) transmits: bool,
    /// Number of frames that one call sends.
    pub(super) sends: u32,
}

/// One queue of an interface.
///
/// Its fields are dropped in their order: no other socket shares the memory through this one any more, the socket and
/// its rings are closed, and the bell drops the buffers.
pub struct XdpQueue {
    _membership: Option<Membership>,
    socket: Arc<Socket>,
    rx: RxRing,
    fill: FillRing,
    tx: TxRing,
    completion: CompletionRing,
    /// Detaches the program when all queues are gone.
    program: Arc<Attachment>,
    options: XdpQueueOptions,
    is_zero_copy: bool,
    share: LargeShare,
    frame: Frame,
    /// Entries of the transmit ring that are set aside for packets that were taken and not kept yet.
    reserved: u32,
    /// Entries of the transmit ring that the kernel has not been notified of.
    unpublished: u32,
    /// Entries that the kernel may not have taken.
    unsent: bool,
    /// The lowest number of a queue that turned out to send nothing.
    limit: Arc<AtomicU32>,
    /// The MTU of the interface.
    mtu: Arc<AtomicU32>,
    counts: QueueCounts,
    /// Whether frames are left to the kernel.
    is_deaf: bool,
    /// Frames that the kernel dropped meanwhile, and all that it has dropped.
    ignored: u64,
    dropped: u64,
    /// Present until the queue is dropped.
    buffers: Buffers,
    bell: Arc<XdpBell>,
}

impl Drop for XdpQueue {
    fn drop(&mut self) {
        // If the engine does not give the bell up, the bell's last owner closes the socket.
        wait_for_other_owners(&self.bell);
        let buffers = std::mem::replace(&mut self.buffers, Buffers::None);
        *self.bell.buffers.lock().unwrap_or_else(PoisonError::into_inner) = Some(buffers);
    }
}

/// A driver that receives without a copy may go on for a moment after the socket is closed, until the kernel has told
/// it.
struct Grace {
    is_zero_copy: bool,
}

impl Drop for Grace {
    fn drop(&mut self) {
        const TIME: Duration = Duration::from_secs(1);
        if self.is_zero_copy {
            std::thread::sleep(TIME);
        }
    }
}

impl XdpQueue {
    /// # Errors
    /// Out of descriptors.
    pub(super) fn new(
        (socket, membership): (Arc<Socket>, Option<Membership>),
        (limit, mtu): (Arc<AtomicU32>, Arc<AtomicU32>),
        rings: Rings,
        buffers: Buffers,
        program: Arc<Attachment>,
        options: XdpQueueOptions,
    ) -> io::Result<XdpQueue> {
        let Rings { fill, completion, rx, tx } = rings;
        let is_zero_copy = socket.is_zero_copy()?;
        let grace = Grace { is_zero_copy };
        let bell = XdpBell {
            socket: Arc::clone(&socket),
            counts: rx.counts(),
            polls: options.polls,
            _grace: grace,
            buffers: Mutex::new(None),
        };
        let mut queue = XdpQueue {
            _membership: membership,
            socket,
            rx,
            fill,
            tx,
            completion,
            program,
            options,
            is_zero_copy,
            share: LargeShare::new(),
            frame: Frame::None,
            reserved: 0,
            unpublished: 0,
            unsent: false,
            limit,
            mtu,
            counts: QueueCounts::default(),
            is_deaf: false,
            ignored: 0,
            dropped: 0,
            buffers,
            bell: Arc::new(bell),
        };
        queue.refill();
        queue.note();
        Ok(queue)
    }

    /// Gives the kernel buffers to receive into.
    #[inline]
    fn refill(&mut self) {
        let free = self.fill.free();
        let waiting = self.fill.size() - free;
        let wanted = self.options.waiting.saturating_sub(waiting);
        if wanted >= REFILL.min(self.options.waiting / 2).max(1) {
            self.buffers.fill(&mut self.fill, wanted.min(free));
            self.fill.publish();
        }
    }

    /// Counts the buffers that the kernel has.
    #[inline]
    fn note(&mut self) {
        if let Buffers::Pool(loans) = &mut self.buffers {
            loans.note();
        }
    }

    /// Takes back what was sent.
    #[inline]
    fn reclaim(&mut self) {
        let count = self.completion.available();
        let mut read = 0;
        while read < count {
            let mut positions = [0; BLOCK];
            let positions = &mut positions[..BLOCK.min((count - read) as usize)];
            self.completion.read(read, positions);
            read += positions.len() as u32;
            let mut rest = &*positions;
            while let [first, others @ ..] = rest {
                let done = match &mut self.buffers {
                    Buffers::Pool(loans) => loans.end_all(rest),
                    Buffers::Copies { .. } | Buffers::None => 0,
                };
                rest = &rest[done..];
                if done == 0 {
                    self.buffers.end(*first);
                    rest = others;
                }
            }
        }
        if count > 0 {
            self.completion.release(count);
        }
    }

    /// Takes the frames of entries of the receive ring, after the next `read`, some at a time. Returns how many entries it
    /// has taken: at most `most`, at least one. There are as many, and room for as many packets.
    #[inline]
    fn take_frames(&mut self, read: u32, most: usize, packets: &mut Vector) -> u32 {
        let (mut positions, mut lengths) = ([0; BLOCK], [0; BLOCK]);
        let count = most.min(BLOCK);
        let (positions, lengths) = (&mut positions[..count], &mut lengths[..count]);
        let has_more = self.rx.read(read, positions, lengths);
        let mut done = 0;
        if let Buffers::Pool(loans) = &mut self.buffers
            && !has_more
            && matches!(self.frame, Frame::None)
        {
            while done < count {
                let taken = loans.receive_all(&positions[done..], &lengths[done..], packets);
                if taken == 0 {
                    break;
                }
                done += taken;
            }
        }
        for index in done as u32..count as u32 {
            self.take_frame(read + index, packets);
        }
        count as u32
    }

    /// Takes the frame, or the part of one, of the entry after the next `index`.
    #[inline(never)]
    fn take_frame(&mut self, index: u32, packets: &mut Vector) {
        let descriptor = self.rx.get(index);
        let (at, length) = (position(descriptor.address), descriptor.length as usize);
        match &mut self.buffers {
            Buffers::Pool(loans) if !descriptor.more && matches!(self.frame, Frame::None) => {
                if !loans.receive(at, length, packets) {
                    self.counts.rx_too_long += 1;
                }
            }
            _ => self.take_part(at, length, descriptor.more, packets),
        }
    }

    /// A frame, or a part of one, that does not simply become a packet: it is copied.
    #[cold]
    fn take_part(&mut self, at: u64, length: usize, more: bool, packets: &mut Vector) {
        if matches!(self.frame, Frame::None) {
            // A frame of one part needs no more room than it has bytes.
            let room = if more { LARGE_DATA_ROOM } else { length };
            self.frame = match Packet::with_room_of(&self.share, room) {
                Some(packet) => Frame::Whole(packet),
                None => {
                    self.counts.rx_no_buffer += 1;
                    Frame::Dropped
                }
            };
        }
        let done = match (&mut self.frame, &mut self.buffers) {
            (Frame::Whole(packet), Buffers::Pool(loans)) => loans.receive_part(at, length, packet),
            (Frame::Whole(packet), Buffers::Copies { memory, .. }) => {
                length <= packet.tailroom() && memory.read(at, packet.extend(length))
            }
            _ => true,
        };
        match &mut self.buffers {
            Buffers::Pool(loans) if matches!(self.frame, Frame::Dropped) => {
                loans.end(at);
            }
            Buffers::Pool(_) | Buffers::None => {}
            Buffers::Copies { free, .. } => free.push(at - at % CHUNK as u64),
        }
        if !done {
            self.counts.rx_too_long += 1;
            self.frame = Frame::Dropped;
        }
        if !more && let Frame::Whole(packet) = std::mem::take(&mut self.frame) {
            self.counts.copied += 1;
            // There is room: the caller has checked.
            let _ = packets.push(packet);
        }
    }

    /// Finishes checksums that a sender on this machine left to a device.
    #[inline(never)]
    fn finish_checksums(&mut self, packets: &mut Vector) {
        let packets = packets.as_mut_slice();
        for index in 0..packets.len() {
            packets.get(index + AHEAD).inspect(|packet| packet.prefetch());
            let packet = &mut packets[index];
            if may_be_ip(packet.bytes())
                && let Some(found) = Transport::find_partial(packet.bytes())
            {
                let finished = found.finish(packet.bytes_mut()).is_ok();
                self.counts.checksums_finished += u64::from(finished);
            }
        }
    }

    /// Puts the pieces of a packet into the transmit ring, which has room for them. Its buffer goes along, or a copy.
    #[inline]
    fn push_pieces(&mut self, packet: Packet, pieces: u32, options: u32) {
        match &mut self.buffers {
            Buffers::Pool(loans) if pieces == 1 => {
                self.tx.push(loans.position(&packet), packet.len() as u32, options);
                loans.send(packet, 1);
            }
            _ => self.push_piecewise(packet, pieces, options),
        }
    }

    /// As [`XdpQueue::push_pieces`], for several pieces, or copies.
    #[cold]
    fn push_piecewise(&mut self, packet: Packet, pieces: u32, options: u32) {
        for (number, piece) in (0..pieces).zip(packet.bytes().chunks(PIECE)) {
            let options = options | if number + 1 < pieces { MORE } else { 0 };
            let at = match &mut self.buffers {
                Buffers::Pool(loans) => loans.position(&packet) + u64::from(number) * PIECE as u64,
                Buffers::Copies { memory, free } => {
                    // There are enough: the caller has checked.
                    let Some(chunk) = free.pop() else { return };
                    memory.write(chunk, piece);
                    chunk
                }
                Buffers::None => return,
            };
            self.tx.push(at, piece.len() as u32, options);
        }
        match &mut self.buffers {
            Buffers::Pool(loans) => loans.send(packet, pieces as u8),
            _ => self.counts.copied += 1,
        }
    }

    /// Makes the kernel send.
    fn kick(&mut self) -> Result<(), QueueError> {
        // In copy mode a call sends a limited number of frames.
        let calls = self.tx.size() / self.options.sends + 1;
        for _ in 0..calls {
            let before = self.tx.free();
            match self.socket.kick()? {
                Kick::Done if !self.is_zero_copy && before < self.tx.size() && self.tx.free() == before => {
                    let number = self.options.number;
                    self.limit.fetch_min(number, Relaxed);
                    let error = format!("the kernel sends nothing through queue {number}, which now only receives");
                    return Err(QueueError::System(io::Error::other(error)));
                }
                Kick::Done => {
                    self.unsent = false;
                    return Ok(());
                }
                Kick::Again if self.tx.free() == before => return Ok(()),
                Kick::Again => {}
                Kick::Down => return Err(QueueError::Down),
                Kick::Gone => return Err(QueueError::Gone),
            }
        }
        Ok(())
    }
}

/// Whether a frame is one of IP, or has a VLAN tag, behind which it may be.
#[inline(always)]
fn may_be_ip(frame: &[u8]) -> bool {
    let Some([.., high, low]) = frame.first_chunk::<HEADER>() else { return false };
    let ether_type = EtherType(u16::from_be_bytes([*high, *low]));
    matches!(ether_type, EtherType::IPV4 | EtherType::IPV6 | EtherType::VLAN | EtherType::SERVICE_VLAN)
}

/// Whether a frame is too long only by its VLAN tag, which the kernel allows beyond the MTU.
#[cold]
fn fits_with_tag(frame: &[u8], longest: usize) -> bool {
    frame.len() <= longest + VLAN_TAG && frame[HEADER - 2..HEADER] == EtherType::VLAN.0.to_be_bytes()
}

/// The number of pieces of a packet to send.
#[inline]
fn examine(packet: &Packet, accepted: Accepted) -> Result<usize, Rejection> {
    let offload = match packet.has_offload() {
        true => header_for(packet, accepted).ok_or(Rejection::Offload)?,
        false => Offload::default(),
    };
    if offload.needs_checksum() && packet.headroom() < METADATA {
        return Err(Rejection::Offload);
    }
    Ok(pieces(packet))
}

#[inline]
fn pieces(packet: &Packet) -> usize {
    if packet.len() <= PIECE { 1 } else { packet.len().div_ceil(PIECE) }
}

/// Whether each of these packets takes one descriptor, and is sent without offloads.
#[inline]
fn are_plain(packets: &[Packet], longest: usize) -> bool {
    let (mut has_offload, mut lengths) = (false, [usize::MAX, 0]);
    for packet in packets {
        has_offload |= packet.has_offload();
        lengths = [lengths[0].min(packet.len()), lengths[1].max(packet.len())];
    }
    !has_offload && lengths[0] >= MIN_FRAME && lengths[1] <= longest.min(PIECE)
}

impl SendQueue for XdpQueue {
    type Error = QueueError;

    const KEEPS: bool = true;

    #[inline]
    fn send(&mut self, packets: &[Packet]) -> Result<Taken, QueueError> {
        self.reclaim();
        let accepted = self.accepted();
        // AF_XDP itself sends what is longer, which other ways to the interface refuse.
        let longest = HEADER + self.mtu.load(Relaxed) as usize;
        let max_pieces = if self.options.multi_buffer { MAX_PIECES } else { 1 };
        let mut free = self.tx.free() as usize;
        if let Buffers::Copies { free: chunks, .. } = &self.buffers {
            free = free.min(chunks.len());
        }
        free = free.saturating_sub(self.reserved as usize);
        if are_plain(packets, longest) {
            let count = packets.len().min(free);
            self.reserved += count as u32;
            return Ok(Taken { count, stop: (count < packets.len()).then_some(Rejection::Full) });
        }
        let mut taken = Taken { count: 0, stop: None };
        for packet in packets {
            let pieces = match examine(packet, accepted) {
                Ok(found) => found,
                Err(rejection) => {
                    taken.stop = Some(rejection);
                    break;
                }
            };
            if pieces > max_pieces || packet.len() > longest && !fits_with_tag(packet.bytes(), longest) {
                taken.stop = Some(Rejection::TooLong);
                break;
            }
            if pieces > free {
                taken.stop = Some(Rejection::Full);
                break;
            }
            if packet.len() >= MIN_FRAME {
                free -= pieces;
                self.reserved += pieces as u32;
            }
            taken.count += 1;
        }
        Ok(taken)
    }

    #[inline]
    fn keep(&mut self, mut packet: Packet) {
        let pieces = pieces(&packet) as u32;
        if packet.len() < MIN_FRAME || pieces > self.reserved {
            self.counts.not_sent += 1;
            return;
        }
        self.reserved -= pieces;
        self.unpublished += pieces;
        let mut options = 0;
        if packet.has_offload()
            && let Some(offload) = packet.offload().filter(Offload::needs_checksum)
        {
            // Apps see offsets from the packet's start, and so does the kernel.
            let request = checksum_request(offload.checksum_start, offload.checksum_offset);
            packet.prepend(METADATA)[..METADATA].copy_from_slice(&request);
            packet.trim_front(METADATA);
            options = xdp::METADATA;
        }
        self.push_pieces(packet, pieces, options);
    }

    #[inline]
    fn keep_first(&mut self, packets: &mut Vector, count: usize) {
        let count = count.min(packets.len());
        if let Buffers::Pool(loans) = &mut self.buffers
            && count <= self.reserved as usize
            && are_plain(&packets.as_slice()[..count], PIECE)
        {
            let describe = |loans: &Loans, packets: &[Packet]| {
                self.tx.push_all(packets.iter().map(|packet| (loans.position(packet), packet.len() as u32)));
            };
            if loans.send_first(packets, count, describe) {
                self.reserved -= count as u32;
                self.unpublished += count as u32;
                return;
            }
        }
        packets.drain(count).for_each(|packet| self.keep(packet));
    }
}

impl Queue for XdpQueue {
    type Bell = XdpBell;

    fn bell(&self) -> Arc<XdpBell> {
        Arc::clone(&self.bell)
    }

    #[inline]
    fn receive(&mut self, packets: &mut Vector, most: usize) -> Result<(), QueueError> {
        let mut available = self.rx.available();
        if available == 0 && self.options.polls {
            match self.socket.wake()? {
                Kick::Gone => return Err(QueueError::Gone),
                Kick::Down => return Err(QueueError::Down),
                Kick::Done | Kick::Again => available = self.rx.available(),
            }
        }
        let mut read = 0;
        while read < available && packets.len() < most {
            read += self.take_frames(read, (most - packets.len()).min((available - read) as usize), packets);
        }
        if read > 0 {
            self.rx.release(read);
        }
        // The frames are in the cache of the processor that the driver runs on. Their lines arrive while others are read.
        let ahead = if self.options.finish_checksums { AHEAD } else { usize::MAX };
        packets.as_slice().iter().take(ahead).for_each(Packet::prefetch);
        self.refill();
        if self.fill.needs_wakeup() && !self.options.polls {
            self.socket.wake()?;
        }
        self.note();
        if self.options.finish_checksums {
            self.finish_checksums(packets);
        }
        Ok(())
    }

    fn set_receiving(&mut self, receives: bool) -> io::Result<bool> {
        if self.is_deaf != receives {
            return Ok(true);
        }
        let (sockets, number) = (&self.program.sockets, self.options.number);
        // Without an entry, the kernel gets the frames.
        if receives { sockets.insert(number, self.socket.as_fd()) } else { sockets.remove(number) }?;
        self.is_deaf = !receives;
        Ok(true)
    }

    #[inline]
    fn flush(&mut self) -> Result<(), QueueError> {
        if self.unpublished > 0 {
            self.unpublished = 0;
            self.unsent = true;
            self.tx.publish();
            self.note();
        }
        if self.unsent && self.tx.needs_wakeup() {
            return self.kick();
        }
        // A driver that needs no call takes the frames by and by.
        self.unsent = self.unsent && self.tx.free() < self.tx.size();
        Ok(())
    }

    fn sends(&self) -> bool {
        self.options.transmits
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        self.unsent
    }

    #[inline]
    fn accepted(&self) -> Accepted {
        Accepted { checksums: self.options.transmit_checksums, ..Accepted::default() }
    }

    fn counts(&mut self) -> QueueCounts {
        let kernel = self.socket.statistics().unwrap_or_default();
        let dropped = kernel.rx_ring_full + kernel.fill_ring_empty;
        let more = dropped.saturating_sub(std::mem::replace(&mut self.dropped, dropped));
        self.ignored += if self.is_deaf { more } else { 0 };
        QueueCounts {
            kernel_dropped: dropped.saturating_sub(self.ignored),
            kernel_refused: kernel.rx_dropped.saturating_sub(kernel.fill_ring_empty),
            not_sent: self.counts.not_sent + kernel.tx_invalid,
            ..self.counts
        }
    }
}

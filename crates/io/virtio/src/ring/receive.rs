//! The receive loop, which writes packets into a ring for the driver.

use bellows_packet::{Offload, Packet};
use bellows_ports::offload;

use super::core::{AHEAD, Core, MAX_PIECES, Progress, Spot};
use super::error::RingError;
use super::guest::{Window, read_u32, read_u64, write_u16, write_u32, write_u64};
use super::options::RingKind;
use super::{Stop, Taken};

/// One instance of the loop; sends the packets in order.
pub(super) type Loop = fn(&mut Core, &[Packet]) -> Taken;

/// The loop.
pub(super) fn receive<K: RingKind>(core: &mut Core, packets: &[Packet]) -> Taken {
    // The cost of long chains beyond one packet each is kept there, because here it would take a register from the
    // loop.
    core.spent = 0;
    let waiting = if K::PACKED { Ok(0) } else { core.waiting_split() };
    let mut waiting = match waiting {
        Ok(waiting) => usize::from(waiting),
        Err(error) => {
            core.fail(error);
            return Taken { count: 0, stop: Stop::Full };
        }
    };
    let mut progress = core.begin::<K>();
    let mut window = core.window;
    let mut bytes = 0;
    let mut count = 0;
    let mut stop = Stop::Done;
    while let Some(packet) = packets.get(count) {
        if packet.has_offload() && !(K::OFFLOADS && passes(core, packet)) {
            stop = Stop::Offload;
            break;
        }
        // A driver that offers a buffer again before it was given back gets no more in this call than the ring has.
        let is_full = if K::PACKED { progress.chains >= core.size.into() } else { waiting == 0 };
        let head = if is_full { Ok(None) } else { core.head::<K>(progress.available::<K>()) };
        let (head, descriptor) = match head {
            Ok(Some(found)) => found,
            Ok(None) => {
                stop = Stop::Full;
                break;
            }
            Err(error) => {
                core.fail(error);
                stop = Stop::Full;
                break;
            }
        };
        if K::PACKED || waiting > usize::from(AHEAD) {
            core.look_ahead::<K, true>(&window, progress.available::<K>());
        }
        let length = packet.len();
        let spot = core.locate::<K, true>(&window, head, descriptor);
        if let Some(spot) = spot.filter(|spot| spot.room as usize >= length) {
            core.step(1);
            // SAFETY: locate() has checked that header and data are mapped, with room for the packet.
            unsafe { put_spot::<K>(core, packet, spot) };
            core.complete::<K, true>(&mut progress, spot.chain, (K::HEADER + length) as u32);
            waiting = waiting.wrapping_sub(1);
        } else {
            if core.spent >= packets.len() {
                stop = Stop::Spent;
                break;
            }
            let put = put_scattered::<K>(core, progress, packet, waiting);
            window = core.window;
            core.charge(length);
            match put {
                Ok(Put::Done(after)) => {
                    waiting = waiting.wrapping_sub(after.chains - progress.chains);
                    progress = after;
                }
                Ok(Put::Stopped(why)) => {
                    stop = why;
                    break;
                }
                Err(error) => {
                    core.fail(error);
                    stop = Stop::Full;
                    break;
                }
            }
        }
        bytes += length as u64;
        count += 1;
    }
    core.counters.packets += count as u64;
    core.counters.bytes += bytes;
    core.spent += count;
    core.finish::<K, true>(progress);
    Taken { count, stop }
}

/// Whether the driver accepts the packet's offload; stores the offload for its header.
#[inline(never)]
fn passes(core: &mut Core, packet: &Packet) -> bool {
    let header = offload::header_for(packet, core.features.accepted_by_driver());
    core.offload = header.unwrap_or_default();
    header.is_some()
}

/// Safety: header and data of the spot are mapped, with room for the packet.
#[inline(always)]
unsafe fn put_spot<K: RingKind>(core: &mut Core, packet: &Packet, spot: Spot) {
    let data = packet.bytes();
    core.will_write(spot.header, K::HEADER);
    core.will_write(spot.data, data.len());
    // SAFETY: the caller promises a valid target, as long as the core keeps the memory mapped; the packet is borrowed
    // until finish() has done the copies.
    unsafe {
        if K::OFFLOADS && packet.has_offload() {
            put_offload::<K>(core, spot.header);
        } else {
            write_header::<K>(spot.header, (0, 0), 1);
        }
        core.blitter.copy(spot.data, data.as_ptr(), data.len());
    }
}

/// Writes the header of a packet that has an offload.
///
/// Safety: the header is mapped at `target`.
#[inline(never)]
unsafe fn put_offload<K: RingKind>(core: &Core, target: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { write_header::<K>(target, encode_offload(core.offload), 1) };
}

/// A packet's header: its first eight bytes as a number, and the two after them. The packet has [passed](passes).
#[inline(always)]
fn encode(core: &Core, packet: &Packet) -> (u64, u16) {
    if packet.has_offload() { encode_offload(core.offload) } else { (0, 0) }
}

fn encode_offload(offload: Offload) -> (u64, u16) {
    let Offload { flags, gso_type, header_length, segment_size, checksum_start, checksum_offset } = offload;
    let low = u64::from(flags)
        | u64::from(gso_type) << 8
        | u64::from(header_length) << 16
        | u64::from(segment_size) << 32
        | u64::from(checksum_start) << 48;
    (low, checksum_offset)
}

/// Writes a header, unless it is there already: a driver's buffers come back with the header of the packet before,
/// which is usually the same, and a line that is only read is not taken away from the driver's processor.
///
/// Safety: the header is mapped at `target`.
#[inline(always)]
unsafe fn write_header<K: RingKind>(target: *mut u8, (low, high): (u64, u16), buffers: u16) {
    let low = low.to_le();
    // SAFETY: the caller's promise.
    unsafe {
        if K::HEADER == 12 {
            let high = (u32::from(high) | u32::from(buffers) << 16).to_le();
            if read_u64(target) != low || read_u32(target.add(8)) != high {
                write_u64(target, low);
                write_u32(target.add(8), high);
            }
        } else {
            write_u64(target, low);
            write_u16(target.add(8), high.to_le());
        }
    }
}

/// The result for a packet that does not go into one descriptor.
enum Put {
    /// It is queued; this is the progress of the call.
    Done(Progress),
    Stopped(Stop),
}

/// Puts a packet into a chain of several descriptors, or, if the driver merges buffers, into several chains; the window
/// moves with them.
///
/// The progress is passed and returned by value: behind a reference it would live in memory throughout the loop, and
/// would be read as a whole right after parts of it were written.
#[inline(never)]
fn put_scattered<K: RingKind>(
    core: &mut Core,
    progress: Progress,
    packet: &Packet,
    waiting: usize,
) -> Result<Put, RingError> {
    let mut window = core.window;
    let put = put_chains::<K>(core, &mut window, progress, packet, waiting);
    core.window = window;
    put
}

/// The same, with a window that moves.
#[inline(always)]
fn put_chains<K: RingKind>(
    core: &mut Core,
    window: &mut Window,
    mut progress: Progress,
    packet: &Packet,
    waiting: usize,
) -> Result<Put, RingError> {
    core.pieces.clear();
    core.chains.clear();
    let needed = (K::HEADER + packet.len()) as u64;
    let mut at = progress.available::<K>();
    let (mut capacity, mut descriptors) = (0, 0);
    while capacity < needed {
        if core.pieces.len() >= MAX_PIECES {
            return Ok(Put::Stopped(Stop::TooLong));
        }
        let exhausted = !K::PACKED && core.chains.len() == waiting;
        let head = if exhausted { None } else { core.head::<K>(at)? };
        let Some((head, first)) = head else { return Ok(Put::Stopped(Stop::Full)) };
        let chain = match (K::PACKED, K::INDIRECT) {
            (false, false) => core.walk::<false, false, true>(window, head, first),
            (false, true) => core.walk::<false, true, true>(window, head, first),
            (true, false) => core.walk::<true, false, true>(window, head, first),
            (true, true) => core.walk::<true, true, true>(window, head, first),
        }?;
        capacity += chain.length;
        descriptors += usize::from(chain.descriptors);
        core.chains.push(chain);
        at.advance::<K>(chain.descriptors, core.size);
        if !K::MERGEABLE || descriptors >= usize::from(core.size) {
            break;
        }
    }
    if core.chains[0].length < K::HEADER as u64 {
        return Err(RingError::NoHeader);
    }
    if capacity < needed {
        return Ok(Put::Stopped(Stop::TooLong));
    }
    scatter::<K>(core, packet);
    let mut left = needed;
    for index in 0..core.chains.len() {
        let chain = core.chains[index];
        let written = left.min(chain.length);
        left -= written;
        core.complete::<K, true>(&mut progress, chain, written as u32);
    }
    Ok(Put::Done(progress))
}

/// Queues the copies of header and data into the pieces, which have room for both.
#[inline(always)]
fn scatter<K: RingKind>(core: &mut Core, packet: &Packet) {
    let encoded = if K::OFFLOADS { encode(core, packet) } else { (0, 0) };
    let mut header = [0; 12];
    header[..8].copy_from_slice(&encoded.0.to_le_bytes());
    header[8..10].copy_from_slice(&encoded.1.to_le_bytes());
    header[10..].copy_from_slice(&(core.chains.len() as u16).to_le_bytes());
    let mut header = &header[..K::HEADER];
    let mut data = packet.bytes();
    for index in 0..core.pieces.len() {
        let piece = core.pieces[index];
        let (mut target, mut length) = (piece.host, piece.length as usize);
        if !header.is_empty() {
            let (first, rest) = header.split_at(header.len().min(length));
            core.will_write(target, first.len());
            for (offset, byte) in first.iter().enumerate() {
                // SAFETY: the offset is below the piece's length, and all of the piece is mapped.
                unsafe { target.add(offset).write_volatile(*byte) };
            }
            target = target.wrapping_add(first.len());
            length -= first.len();
            header = rest;
        }
        let (first, rest) = data.split_at(data.len().min(length));
        if !first.is_empty() {
            core.will_write(target, first.len());
            // SAFETY: the piece has room for as many bytes and is mapped as long as the core keeps the memory; the
            // packet is borrowed until finish() has done the copies.
            unsafe { core.blitter.copy(target, first.as_ptr(), first.len()) };
        }
        data = rest;
    }
}

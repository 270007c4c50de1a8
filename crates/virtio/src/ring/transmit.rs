//! From the driver: the loop that takes packets out of a ring.

use bellows_packet::{LARGEST_ROOM, Offload, Packet, ROOM, Vector};

use super::core::{Chain, Core};
use super::error::RingError;
use super::guest::{Descriptor, INDIRECT, NEXT, Window, read_u16, read_u64};
use super::options::Kind;
use crate::features::Features;

/// One instance of the loop: at most so many packets, into the vector. Returns how many chains were taken.
pub(super) type Loop = fn(&mut Core, &mut Vector, usize) -> usize;

/// The bytes of a header that say what is left to do to a packet.
const OFFLOAD: usize = size_of::<Offload>();

/// The loop.
pub(super) fn transmit<K: Kind>(core: &mut Core, packets: &mut Vector, most: usize) -> usize {
    let most = match waiting::<K>(core, most.min(packets.room())) {
        Ok(0) => return 0,
        Ok(most) => most,
        Err(error) => {
            core.fail(error);
            return 0;
        }
    };
    let mut progress = core.begin();
    let mut window = core.window;
    let mut fresh = Packet::fresh(most);
    let mut bytes = 0;
    let mut made = 0;
    for _ in 0..most {
        let (head, descriptor) = match core.head::<K>(progress.available) {
            Ok(Some(found)) => found,
            Ok(None) => break,
            Err(error) => {
                core.fail(error);
                break;
            }
        };
        // Without a buffer the chain stays where it is: there will be one later.
        let Some(packet) = fresh.next() else { break };
        let taken = match single::<K>(&mut window, descriptor) {
            Some(source) => {
                let chain = Chain {
                    id: if K::PACKED { descriptor.link } else { head },
                    descriptors: 1,
                    length: descriptor.length.into(),
                };
                // SAFETY: single() found the header and the data, at most as much as an ordinary packet has room for, to be
                // mapped at the address that it returned.
                Ok((chain, unsafe { take_single::<K>(core, packet, source, descriptor.length as usize) }))
            }
            None => take_chain::<K>(core, &mut window, head, descriptor, packet),
        };
        match taken {
            Ok((chain, Taken::Packet(packet))) => {
                bytes += packet.len() as u64;
                made += 1;
                // There is room: at most as many as there was are asked for.
                let _ = packets.push(packet);
                core.complete::<K, false>(&mut progress, chain, 0);
            }
            Ok((chain, Taken::Dropped)) => core.complete::<K, false>(&mut progress, chain, 0),
            Ok((_, Taken::NoBuffer)) => break,
            Err(error) => {
                core.fail(error);
                break;
            }
        }
    }
    drop(fresh);
    core.window = window;
    core.counters.packets += made;
    core.counters.bytes += bytes;
    core.finish::<K, false>(progress);
    progress.chains
}

/// What became of a chain.
enum Taken {
    Packet(Packet),
    /// It holds nothing that can be passed on; counted.
    Dropped,
    /// The pool has no buffer that is large enough.
    NoBuffer,
}

/// How many chains wait, at most `most`; for a packed ring `most` if there is one at all.
#[inline(always)]
fn waiting<K: Kind>(core: &Core, most: usize) -> Result<usize, RingError> {
    if K::PACKED {
        let first = if most == 0 { None } else { core.head::<K>(core.available)? };
        Ok(if first.is_some() { most } else { 0 })
    } else {
        Ok(usize::from(core.waiting_split()?).min(most))
    }
}

/// Where the buffer of a chain is that consists of one ordinary descriptor and holds a header and data for an ordinary packet.
#[inline(always)]
fn single<K: Kind>(window: &mut Window, descriptor: Descriptor) -> Option<*const u8> {
    let simple = descriptor.flags & (NEXT | INDIRECT | super::guest::WRITE) == 0;
    let data = (descriptor.length as usize).wrapping_sub(K::HEADER + 1);
    if simple && data < ROOM {
        window.find(descriptor.address, descriptor.length).map(|found| found.cast_const())
    } else {
        None
    }
}

/// Safety: `length` bytes are mapped at `source`: a header, and from 1 to [`ROOM`] bytes of data.
#[inline(always)]
unsafe fn take_single<K: Kind>(core: &mut Core, mut packet: Packet, source: *const u8, length: usize) -> Taken {
    let data = length - K::HEADER;
    let target = packet.extend(data).as_mut_ptr();
    // SAFETY: the source by the caller's promise, valid as long as the core keeps the memory mapped; the target is the packet's
    // buffer, which is not freed before finish() has done the copies (the vector that gets it is borrowed until then).
    unsafe { core.blitter.copy(target, source.add(K::HEADER), data) };
    if K::OFFLOADS {
        // SAFETY: the header is mapped.
        let offload = unsafe { decode(read_u64(source), read_u16(source.add(8))) };
        if !apply(core, &mut packet, offload) {
            return Taken::Dropped;
        }
    }
    Taken::Packet(packet)
}

/// Takes what lies in several buffers.
#[inline(never)]
fn take_chain<K: Kind>(
    core: &mut Core,
    window: &mut Window,
    head: u16,
    first: Descriptor,
    ordinary: Packet,
) -> Result<(Chain, Taken), RingError> {
    core.pieces.clear();
    let chain = match (K::PACKED, K::INDIRECT) {
        (false, false) => core.walk::<false, false, false>(window, head, first),
        (false, true) => core.walk::<false, true, false>(window, head, first),
        (true, false) => core.walk::<true, false, false>(window, head, first),
        (true, true) => core.walk::<true, true, false>(window, head, first),
    }?;
    let data = chain.length.checked_sub(K::HEADER as u64).ok_or(RingError::NoHeader)? as usize;
    if data == 0 {
        core.counters.empty += 1;
        return Ok((chain, Taken::Dropped));
    }
    if data > LARGEST_ROOM {
        core.counters.too_long += 1;
        return Ok((chain, Taken::Dropped));
    }
    let mut packet = ordinary;
    if data > ROOM {
        let Some(large) = Packet::with_room(data) else { return Ok((chain, Taken::NoBuffer)) };
        packet = large;
    }
    let mut target = packet.extend(data).as_mut_ptr();
    let mut header = [0; OFFLOAD];
    let mut skip = K::HEADER;
    for index in 0..core.pieces.len() {
        let piece = core.pieces[index];
        let length = piece.length as usize;
        let skipped = skip.min(length);
        if K::OFFLOADS && skipped > 0 {
            let at = K::HEADER - skip;
            for (offset, byte) in header.iter_mut().skip(at).take(skipped).enumerate() {
                // SAFETY: the offset is below the piece's length, and all of the piece is mapped.
                *byte = unsafe { piece.host.add(offset).read_volatile() };
            }
        }
        skip -= skipped;
        if length > skipped {
            // SAFETY: the piece is mapped; the packet has room for all pieces together less the header, as computed above.
            unsafe {
                core.blitter.copy(target, piece.host.add(skipped), length - skipped);
                target = target.add(length - skipped);
            }
        }
    }
    if K::OFFLOADS {
        let [a, b, c, d, e, f, g, h, i, j] = header;
        let offload = decode(u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u16::from_ne_bytes([i, j]));
        if !apply(core, &mut packet, offload) {
            return Ok((chain, Taken::Dropped));
        }
    }
    Ok((chain, Taken::Packet(packet)))
}

/// The fields of a header from its first ten bytes as they lie in memory (specification, 5.1.6).
#[inline(always)]
fn decode(low: u64, high: u16) -> Offload {
    let low = u64::from_le(low);
    Offload {
        flags: low as u8,
        gso_type: (low >> 8) as u8,
        header_length: (low >> 16) as u16,
        segment_size: (low >> 32) as u16,
        checksum_start: (low >> 48) as u16,
        checksum_offset: u16::from_le(high),
    }
}

/// Gives a packet what its header asks for. False, and counted, if the header makes no sense.
#[inline(always)]
fn apply(core: &mut Core, packet: &mut Packet, offload: Offload) -> bool {
    if offload.flags & Offload::NEEDS_CHECKSUM == 0 && offload.gso_type == Offload::GSO_NONE {
        return true;
    }
    apply_wanted(core, packet, offload)
}

#[inline(never)]
fn apply_wanted(core: &mut Core, packet: &mut Packet, offload: Offload) -> bool {
    // What else the field says is for the other direction.
    let offload = Offload { flags: offload.flags & Offload::NEEDS_CHECKSUM, ..offload };
    let negotiated = match offload.gso_type & !Offload::GSO_ECN {
        Offload::GSO_NONE => offload.gso_type == Offload::GSO_NONE,
        Offload::GSO_TCP4 => core.features.has(Features::HOST_TSO4),
        Offload::GSO_TCP6 => core.features.has(Features::HOST_TSO6),
        _ => false,
    };
    if !negotiated || !core.features.has(Features::CSUM) || !offload.check(packet.len()) {
        core.counters.bad_header += 1;
        return false;
    }
    packet.set_offload(offload);
    true
}

const _: () = assert!(OFFLOAD == 10);

//! The transmit loop, which takes the driver's packets out of a ring.

use std::ptr;

use bellows_packet::{DATA_ROOM, LARGE_DATA_ROOM, Offload, Packet, Vector};
use bellows_ports::offload;

use super::core::{AHEAD, Chain, Core, Cursor, Piece, Progress, Spot};
use super::error::RingError;
use super::guest::{Window, read_u16, read_u64};
use super::options::RingKind;

/// One instance of the loop: takes at most this many packets into the vector. Returns how many chains were taken.
pub(super) type Loop = fn(&mut Core, &mut Vector, usize) -> usize;

/// The bytes of a header that describe the packet's offload.
const OFFLOAD: usize = size_of::<Offload>();

/// The loop.
pub(super) fn transmit<K: RingKind>(core: &mut Core, packets: &mut Vector, most: usize) -> usize {
    core.spent = 0;
    let burst = most.min(packets.room());
    let available = match waiting::<K>(core, burst) {
        Ok(0) => return 0,
        Ok(available) => available,
        Err(error) => {
            core.fail(error);
            return 0;
        }
    };
    let mut progress = core.begin::<K>();
    let mut fresh = Packet::allocate_burst(available);
    let before = (packets.len(), packets.bytes());
    core.spare = burst - available;
    // Chains that may be taken.
    let mut most = available;
    loop {
        // Chains in a common layout, in a loop from which nothing else takes registers. Each step takes one chain, or
        // is the last: the packets from the pool, the chains and the ring's index advance together.
        let window = core.window;
        let mut met_another = false;
        while progress.chains < most {
            let at = progress.available::<K>();
            let (head, descriptor) = match core.head::<K>(at) {
                Ok(Some(found)) => found,
                Ok(None) => break,
                Err(error) => {
                    core.fail(error);
                    break;
                }
            };
            if K::PACKED || progress.chains + usize::from(AHEAD) < most {
                core.look_ahead::<K, false>(&window, at);
            }
            let spot = core.locate::<K, false>(&window, head, descriptor);
            let Some(spot) = spot.filter(|spot| (1..=DATA_ROOM).contains(&(spot.room as usize))) else {
                met_another = true;
                break;
            };
            // Without a buffer the chain stays in the ring: there will be a buffer later.
            let Some(packet) = fresh.next_of(spot.room as usize) else { break };
            core.step(1);
            // SAFETY: locate() has checked that header and data are mapped; the packet is as long as the data.
            if let Some(packet) = unsafe { take_spot::<K>(core, packet, spot) } {
                // There is room: no more packets are requested than fit.
                let _ = packets.push(packet);
            }
            core.complete::<K, false>(&mut progress, spot.chain, 0);
        }
        if !met_another {
            break;
        }
        let Some(packet) = fresh.next() else { break };
        let Some((after, cost)) = take_other::<K>(core, packets, progress, packet) else { break };
        progress = after;
        most = most.saturating_sub(cost);
    }
    drop(fresh);
    core.counters.packets += (packets.len() - before.0) as u64;
    core.counters.bytes += packets.bytes() - before.1;
    core.spent += progress.chains;
    core.finish::<K, false>(progress);
    progress.chains
}

/// Takes one chain of any kind, and moves the window with it. Returns the progress of the call, and by how many chains
/// fewer it may take; `None` if the call is at its end.
#[inline(never)]
fn take_other<K: RingKind>(
    core: &mut Core,
    packets: &mut Vector,
    mut progress: Progress,
    ordinary: Packet,
) -> Option<(Progress, usize)> {
    let mut window = core.window;
    let taken = take_chain::<K>(core, &mut window, progress.available::<K>(), ordinary);
    core.window = window;
    let length = match &taken {
        Ok(ChainTaken::Packet(chain, _) | ChainTaken::Dropped(chain)) => {
            chain.length.saturating_sub(K::HEADER as u64).min(LARGE_DATA_ROOM as u64) as usize
        }
        Ok(ChainTaken::Nothing) | Err(_) => 0,
    };
    let cost = core.charge(length);
    // Its cost beyond one packet is first taken from the spare packets of the burst.
    let spared = cost.min(core.spare);
    core.spare -= spared;
    let chain = match taken {
        Ok(ChainTaken::Packet(chain, packet)) => {
            let _ = packets.push(packet);
            chain
        }
        Ok(ChainTaken::Dropped(chain)) => chain,
        Ok(ChainTaken::Nothing) => return None,
        Err(error) => {
            core.fail(error);
            return None;
        }
    };
    core.complete::<K, false>(&mut progress, chain, 0);
    Some((progress, cost - spared))
}

/// The result of taking a chain.
enum ChainTaken {
    Packet(Chain, Packet),
    /// It has nothing to pass on; counted.
    Dropped(Chain),
    /// It stays in the ring: the driver has taken it back.
    Nothing,
}

/// The number of chains that wait, at most `most`; for a packed ring `most` if there is one at all.
#[inline(always)]
fn waiting<K: RingKind>(core: &Core, most: usize) -> Result<usize, RingError> {
    if K::PACKED {
        let first = if most == 0 { None } else { core.head::<K>(core.available)? };
        Ok(if first.is_some() { most } else { 0 })
    } else {
        Ok(usize::from(core.waiting_split()?).min(most))
    }
}

/// Takes a chain in a common layout into a packet. `None`, and counted, if its header is invalid.
///
/// The packet is passed and returned by value, so that it can live in registers.
///
/// Safety: header and data of the spot are mapped, and the packet has as many bytes as the data.
#[inline(always)]
unsafe fn take_spot<K: RingKind>(core: &mut Core, mut packet: Packet, spot: Spot) -> Option<Packet> {
    let data = spot.room as usize;
    let target = packet.bytes_mut().as_mut_ptr();
    if K::OFFLOADS {
        // SAFETY: the header is mapped.
        let low = unsafe { read_u64(spot.header) };
        if has_offload(low) {
            // SAFETY: all ten bytes of the header are; the data by the caller's promise.
            return unsafe {
                let header = decode(low, read_u16(spot.header.add(8)));
                take_with_offload(core, packet, spot.data, header)
            };
        }
    }
    // SAFETY: the caller promises a valid source, as long as the core keeps the memory mapped; the target is the
    // packet's buffer, which is not freed before finish() has done the copies (the vector that gets it is borrowed
    // until then).
    unsafe { core.blitter.copy(target, spot.data, data) };
    Some(packet)
}

/// Takes the packet of an available chain with several buffers.
#[inline(always)]
fn take_chain<K: RingKind>(
    core: &mut Core,
    window: &mut Window,
    at: Cursor,
    ordinary: Packet,
) -> Result<ChainTaken, RingError> {
    core.pieces.clear();
    // Values read from it before are discarded.
    let Some((head, first)) = core.head::<K>(at)? else { return Ok(ChainTaken::Nothing) };
    let chain = match (K::PACKED, K::INDIRECT) {
        (false, false) => core.walk::<false, false, false>(window, head, first),
        (false, true) => core.walk::<false, true, false>(window, head, first),
        (true, false) => core.walk::<true, false, false>(window, head, first),
        (true, true) => core.walk::<true, true, false>(window, head, first),
    }?;
    let data = chain.length.checked_sub(K::HEADER as u64).ok_or(RingError::NoHeader)? as usize;
    if data == 0 {
        core.counters.empty += 1;
        return Ok(ChainTaken::Dropped(chain));
    }
    if data > LARGE_DATA_ROOM {
        core.counters.too_long += 1;
        return Ok(ChainTaken::Dropped(chain));
    }
    let mut packet = ordinary;
    if data > DATA_ROOM {
        let Some(large) = core.large_packet(data) else {
            core.counters.no_large_buffer += 1;
            return Ok(ChainTaken::Dropped(chain));
        };
        packet = large;
    }
    let mut target = packet.extend(data).as_mut_ptr();
    let header = if K::OFFLOADS { gather_header(&core.pieces) } else { (0, 0) };
    let mut skip = K::HEADER;
    for piece in &core.pieces {
        let length = piece.length as usize;
        let skipped = skip.min(length);
        skip -= skipped;
        if length > skipped {
            // SAFETY: the piece is mapped; the packet has room for all pieces together minus the header, as computed
            // above, and is not freed before the copies are done.
            unsafe {
                core.blitter.copy(target, piece.host.add(skipped), length - skipped);
                target = target.add(length - skipped);
            }
        }
    }
    if has_offload(header.0) {
        // The bytes to check must be there, and a packet that is dropped must not be written to later.
        core.blitter.barrier();
        let admitted = admit(core, packet, decode(header.0, header.1));
        return Ok(admitted.map_or(ChainTaken::Dropped(chain), |packet| ChainTaken::Packet(chain, packet)));
    }
    Ok(ChainTaken::Packet(chain, packet))
}

/// The header at the start of the pieces, which contain one.
fn gather_header(pieces: &[Piece]) -> (u64, u16) {
    let mut header = [0; OFFLOAD];
    let bytes = pieces.iter().flat_map(|piece| {
        // SAFETY: all of a piece is mapped.
        (0..piece.length as usize).map(|offset| unsafe { piece.host.add(offset).read_volatile() })
    });
    header.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    let [a, b, c, d, e, f, g, h, i, j] = header;
    (u64::from_ne_bytes([a, b, c, d, e, f, g, h]), u16::from_ne_bytes([i, j]))
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

/// Whether a header asks for an offload, by its first eight bytes as they lie in memory: a flag, or a kind of
/// segmentation.
#[inline(always)]
fn has_offload(low: u64) -> bool {
    u64::from_le(low) & (u64::from(Offload::NEEDS_CHECKSUM) | 0xff << 8) != 0
}

/// Copies a packet whose header has an offload, and then checks header and copy: the driver can change its own bytes at
/// any time, but not the copy. `None`, and counted, if the packet must be dropped.
///
/// Safety: the source is mapped and as long as the packet.
#[inline(never)]
unsafe fn take_with_offload(core: &mut Core, mut packet: Packet, source: *const u8, header: Offload) -> Option<Packet> {
    let bytes = packet.bytes_mut();
    // SAFETY: the caller's promise; the target is a slice of the same length, and no memory of a driver's.
    unsafe { ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), bytes.len()) };
    admit(core, packet, header)
}

/// Applies the header's offload to a packet that has been copied. `None`, and counted, if the packet must be dropped.
fn admit(core: &mut Core, mut packet: Packet, header: Offload) -> Option<Packet> {
    if offload::admit(&mut packet, header, core.features.accepted_by_device()) {
        return Some(packet);
    }
    core.counters.bad_header += 1;
    None
}

const _: () = assert!(OFFLOAD == 10 && Offload::GSO_NONE == 0);

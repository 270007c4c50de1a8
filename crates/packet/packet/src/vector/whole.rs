//! Work on whole vectors: freeing, filling and copying.

use std::mem;

use bellows_pool::{DATA_ROOM, LINE, free_many, with_free_buffers};

use super::Vector;
use crate::bulk::kernels;
use crate::packet::{LARGE, LENGTH_MASK, MARKED, META, OFFLOAD, Packet};

/// The initial content of many packets: up to one ordinary buffer of bytes, stored in whole cache lines.
#[derive(Clone, Debug)]
pub struct Template {
    lines: Vec<[u8; LINE]>,
    word: u64,
    fill: unsafe fn(&[usize], &[[u8; LINE]], u64, *mut Packet),
}

impl Template {
    /// A template with these bytes; `None` if there are more than [`DATA_ROOM`], the size of an ordinary buffer.
    pub fn new(bytes: &[u8]) -> Option<Template> {
        if bytes.len() > DATA_ROOM {
            return None;
        }
        let mut lines = vec![[0; LINE]; bytes.len().div_ceil(LINE)];
        lines.as_flattened_mut()[..bytes.len()].copy_from_slice(bytes);
        Some(Template { lines, word: bytes.len() as u64, fill: kernels().fill })
    }

    /// Length in bytes of packets made from the template.
    #[expect(clippy::len_without_is_empty, reason = "as for packets")]
    pub fn len(&self) -> usize {
        self.word as usize
    }
}

/// Frees all packets of a vector at once: the fast way for sinks.
///
/// Hot: one pass over the handles, without reading the data.
#[inline]
pub fn free_all(vector: &mut Vector) {
    match free_plain(vector.as_slice()) {
        0 => vector.forget_all(),
        left => free_special(vector, left),
    }
}

/// Frees packets up to the first group with a special packet. Returns the number of packets left. The caller must
/// forget the freed ones.
#[inline(always)]
fn free_plain(packets: &[Packet]) -> usize {
    // SAFETY: the loop writes the address of each packet's buffer, which only that packet owns, or reports a special
    // packet, and runs no other code; the callers forget the freed packets.
    unsafe { free_many(packets, kernels().buffer_starts) }
}

/// Ends the marks of packets. Returns whether any packet had one.
fn end_marks(packets: &mut [Packet]) -> bool {
    let marked = packets.iter_mut().filter(|packet| packet.is_marked());
    marked.map(Packet::end_mark).count() > 0
}

/// Frees the last `left` packets of a vector, some of which are special; the packets before them have been freed.
#[cold]
fn free_special(vector: &mut Vector, mut left: usize) {
    let length = vector.len();
    if end_marks(&mut vector.as_mut_slice()[length - left..]) {
        left = free_plain(&vector.as_slice()[length - left..]);
    }
    free_one_by_one(vector, left);
}

/// Frees the last `left` packets of a vector one by one; the packets before them have been freed.
fn free_one_by_one(vector: &mut Vector, left: usize) {
    let done = vector.len() - left;
    let mut drain = vector.drain(usize::MAX);
    drain.by_ref().take(done).for_each(mem::forget);
    drain.for_each(drop);
}

/// Adds up to `count` packets made from a template to the end of a vector, as many as the vector and the pool have room
/// for.
///
/// Returns the number of packets added. Hot.
#[inline]
pub fn push_filled(vector: &mut Vector, count: usize, template: &Template) -> usize {
    with_free_buffers(count.min(vector.room()), |buffers, _| {
        // SAFETY: the buffers are free ordinary ones with room for the template's lines (Template::new checks); the
        // vector has room behind its end for all packets asked for.
        unsafe {
            (template.fill)(buffers, &template.lines, template.word, vector.free_slots());
            vector.pushed(buffers.len(), (buffers.len() * template.len()) as u64);
        }
    })
}

/// Adds a copy of each packet to the end of a vector, until the vector or the pool has no more room.
///
/// Returns the number of packets added. Hot.
#[inline]
pub fn push_copies(vector: &mut Vector, packets: &[Packet]) -> usize {
    let packets = &packets[..packets.len().min(vector.room())];
    let words = packets.iter().fold(0, |words, packet| words | packet.word());
    // The lengths combined are no less than the longest, and seldom more than a buffer if none is.
    let may_be_long = words & LENGTH_MASK > DATA_ROOM as u64;
    if words & (LARGE | META | MARKED | OFFLOAD) != 0
        || may_be_long && packets.iter().any(|packet| packet.len() > DATA_ROOM)
    {
        return packets.iter().map_while(Packet::copy).map_while(|copy| vector.push(copy).ok()).count();
    }
    let copy = kernels().copy;
    with_free_buffers(packets.len(), |buffers, done| {
        let packets = &packets[done..][..buffers.len()];
        // SAFETY: the buffers are free ordinary ones that the packets fit into, and no packet has metadata, a mark or
        // an offload, as checked above; the vector has room for all packets behind its end.
        unsafe {
            let bytes = copy(packets, buffers, vector.free_slots());
            vector.pushed(buffers.len(), bytes);
        }
    })
}

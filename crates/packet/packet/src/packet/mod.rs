//! The packet: a handle that owns one buffer.

mod burst;
mod together;

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;

use bellows_pool::{ANYONE, AccountNumber, DATA_OFFSET, DATA_ROOM, HEADROOM, LARGE_DATA_ROOM, LINE, LargeShare};
use bellows_sys::cache::prefetch;

pub use self::burst::Burst;
pub use self::together::{narrow_all, prepend_all, trim_front_all};
use crate::mark::{self, Mark, MarkedEventKind};
use crate::offload::Offload;

/// Where the fields of a handle are, for generated code that reads them.
pub mod handle {
    use super::Packet;

    /// Bytes of a handle.
    pub const SIZE: usize = size_of::<Packet>();
    /// Offset of the address of the packet's data.
    pub const DATA: usize = std::mem::offset_of!(Packet, data);
    /// Offset of the word whose low bits are the length of the data.
    pub const WORD: usize = std::mem::offset_of!(Packet, word);
    /// These bits of the word.
    pub const LENGTH_MASK: u32 = super::LENGTH_MASK as u32;
}

const LENGTH_BITS: u32 = 20;
pub(crate) const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
const TAG_SHIFT: u32 = 32;

/// Turns an address that the pool handed out, or another address in the same buffer, into a pointer.
#[inline(always)]
pub(crate) fn pointer(address: usize) -> NonNull<u8> {
    // SAFETY: the addresses in this crate are those of buffers, which lie in the pool's mapping; none begins at 0.
    unsafe { bellows_arena::pointer(address) }
}

/// Flag: the buffer is of the large class.
pub(crate) const LARGE: u64 = 1 << LENGTH_BITS;

/// Flag: the metadata line holds a [`Meta`].
pub(crate) const META: u64 = 2 << LENGTH_BITS;

/// Flag: the data does not start where a new packet's data does, or did not at some time.
pub(crate) const MOVED: u64 = 4 << LENGTH_BITS;

/// Flag: the metadata line holds a mark.
pub(crate) const MARKED: u64 = 8 << LENGTH_BITS;

/// Flag: the metadata line holds an offload.
pub(crate) const OFFLOAD: u64 = 16 << LENGTH_BITS;

/// Flags of packets that cannot be freed together with others.
pub(crate) const SPECIAL: u64 = LARGE | MARKED;

/// Metadata of a packet that few apps need. It lies in the buffer, not in the handle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Meta {
    /// Time at which the packet was received or recorded: nanoseconds since the Unix epoch; 0 if unknown.
    pub timestamp: u64,
    /// Length of the packet on the wire; more than its length if it was truncated.
    pub original_length: u32,
    /// Interface of its source on which it arrived.
    pub ingress_port: u32,
    /// Link type of its outermost header, as numbered by pcap (1 for Ethernet).
    pub link_type: u32,
}

/// The metadata line: the first cache line of a buffer.
#[repr(C)]
struct MetadataLine {
    meta: Meta,
    mark: Mark,
    offload: Offload,
}

const _: () = assert!(size_of::<MetadataLine>() <= LINE && align_of::<MetadataLine>() <= LINE);

/// A packet: a 16-byte handle that owns one buffer of the packet pool. Dropping the packet frees the buffer.
///
/// The handle carries what most apps need (length, flags, tag), so an app that does not read the data never touches the
/// buffer. [`crate::free_all`] frees many packets faster than dropping them one by one.
///
/// Handles can be sent to other threads. The buffer goes into the cache of the thread that drops the packet.
///
/// The handle is two words, so that it travels in two registers.
#[repr(C)]
pub struct Packet {
    data: NonNull<u8>,
    /// From the low end: 20 bits of length, 12 bits of flags, 32 bits of tag.
    word: u64,
}

// The loops that write handles eight at a time rely on this.
const _: () = assert!(LARGE_DATA_ROOM <= LENGTH_MASK as usize);
const _: () = assert!(size_of::<Packet>() == 16 && std::mem::offset_of!(Packet, word) == 8);

// SAFETY: a packet owns its buffer alone, and the pool takes buffers back on any thread.
unsafe impl Send for Packet {}
// SAFETY: through a shared reference the buffer can only be read.
unsafe impl Sync for Packet {}

impl Packet {
    /// Allocates up to `count` packets of length 0, with room for 2,048 bytes each.
    ///
    /// Their buffers hold whatever they held before.
    #[inline]
    pub fn allocate_burst(count: usize) -> Burst {
        Burst::new(count)
    }

    /// Allocates a packet of length 0 with room for at least `room` bytes; `None` when the pool has no such buffer
    /// free, or `room` exceeds [`LARGE_DATA_ROOM`].
    #[inline]
    pub fn with_room(room: usize) -> Option<Packet> {
        Packet::with_room_for(room, || ANYONE)
    }

    /// As [`Packet::with_room`], with large buffers charged to an account: `None` also when the account has used up its
    /// share.
    #[inline]
    pub fn with_room_of(share: &LargeShare, room: usize) -> Option<Packet> {
        Packet::with_room_for(room, || share.owner())
    }

    #[inline]
    fn with_room_for(room: usize, owner: impl FnOnce() -> AccountNumber) -> Option<Packet> {
        if room <= DATA_ROOM {
            Packet::allocate_burst(1).next()
        } else if room <= LARGE_DATA_ROOM {
            bellows_pool::take_large(owner()).map(|data| Packet::from_free_buffer(pointer(data), LARGE))
        } else {
            None
        }
    }

    /// The account that this packet's buffer is charged to.
    fn owner(&self) -> AccountNumber {
        if self.is_large() { bellows_pool::owner_of(self.address()) } else { ANYONE }
    }

    /// Allocates a packet with these bytes; `None` as for [`Packet::with_room`].
    #[inline]
    pub fn from_bytes(bytes: &[u8]) -> Option<Packet> {
        let mut packet = Packet::with_room(bytes.len())?;
        packet.append(bytes);
        Some(packet)
    }

    /// `data` must be the start of the data of a buffer that is free and of the class that the word's flags name,
    /// and the length in the word must fit into it.
    #[inline(always)]
    pub(crate) fn from_free_buffer(data: NonNull<u8>, word: u64) -> Packet {
        Packet { data, word }
    }

    /// A packet of length 0 in an ordinary buffer that was taken from the pool: the start of its data.
    #[inline(always)]
    pub(crate) fn in_taken_buffer(data: usize) -> Packet {
        Packet::from_free_buffer(pointer(data), 0)
    }

    /// This empty packet with its data at an address in its buffer, where the bytes are already. `None` if they would
    /// begin before the headroom or end behind the buffer.
    #[inline]
    pub(crate) fn with_data_at(mut self, address: usize, length: usize) -> Option<Packet> {
        let start = self.address();
        if address == start && length <= DATA_ROOM {
            self.word |= length as u64;
            return Some(self);
        }
        let end = address.checked_add(length)?;
        if address < start - HEADROOM || end > start + DATA_ROOM {
            return None;
        }
        self.data = pointer(address);
        self.word |= length as u64 | MOVED;
        Some(self)
    }

    #[inline(always)]
    pub(crate) fn word(&self) -> u64 {
        self.word
    }

    /// The word of a copy in an ordinary buffer: length and tag.
    #[inline(always)]
    pub(crate) fn word_of_copy(&self) -> u64 {
        self.word & !(LARGE | META | MOVED | MARKED | OFFLOAD)
    }

    #[inline(always)]
    pub(crate) fn address(&self) -> usize {
        self.data.as_ptr() as usize
    }

    pub(crate) fn is_large(&self) -> bool {
        self.word & LARGE != 0
    }

    /// Length of the data in bytes.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "a packet of no bytes is not a case that code asks for")]
    pub fn len(&self) -> usize {
        (self.word & LENGTH_MASK) as usize
    }

    /// Where the data begins.
    #[inline(always)]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.data
    }

    /// A number that one app passes to the next with the packet: an adjacency index, a flow hash.
    #[inline(always)]
    pub fn tag(&self) -> u32 {
        (self.word >> TAG_SHIFT) as u32
    }

    /// Sets the tag.
    #[inline(always)]
    pub fn set_tag(&mut self, tag: u32) {
        self.word = self.word & ((1 << TAG_SHIFT) - 1) | u64::from(tag) << TAG_SHIFT;
    }

    /// The data.
    #[inline(always)]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: data..data+len lies in the buffer that this packet owns (every method that changes either
        // checks), and the pool's memory is always initialised (mapped zeroed).
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.len()) }
    }

    /// The data, to be changed in place.
    #[inline(always)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for bytes(), and the packet is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.len()) }
    }

    /// Bytes that can be prepended. Hot, for packets that have not moved.
    #[inline(always)]
    pub fn headroom(&self) -> usize {
        if self.word & MOVED == 0 { DATA_OFFSET - LINE } else { self.headroom_by_address() }
    }

    #[inline(never)]
    fn headroom_by_address(&self) -> usize {
        self.room_in_front()
    }

    #[inline(always)]
    fn room_in_front(&self) -> usize {
        self.address() - (bellows_pool::start_of(self.address(), self.is_large()) - DATA_OFFSET) - LINE
    }

    /// Bytes that can be appended. Hot, for packets that are neither large nor have moved.
    #[inline(always)]
    pub fn tailroom(&self) -> usize {
        if self.word & (LARGE | MOVED) == 0 { DATA_ROOM - self.len() } else { self.tailroom_by_address() }
    }

    #[inline(never)]
    fn tailroom_by_address(&self) -> usize {
        let room = if self.is_large() { LARGE_DATA_ROOM } else { DATA_ROOM };
        self.buffer_data() + room - self.address() - self.len()
    }

    /// Start of the data of a new packet in this buffer.
    #[inline]
    fn buffer_data(&self) -> usize {
        match self.word & MOVED {
            0 => self.address(),
            _ => bellows_pool::start_of(self.address(), self.is_large()),
        }
    }

    /// Appends bytes to the data.
    ///
    /// # Panics
    /// If there are more bytes than [`Packet::tailroom`].
    #[inline]
    pub fn append(&mut self, bytes: &[u8]) {
        let start = self.len();
        self.extend(bytes.len()).copy_from_slice(bytes);
        debug_assert_eq!(self.len(), start + bytes.len());
    }

    /// Extends the data by `count` bytes at the end and returns these bytes; they hold whatever the buffer held before.
    ///
    /// # Panics
    /// If `count` is more than [`Packet::tailroom`].
    #[inline]
    pub fn extend(&mut self, count: usize) -> &mut [u8] {
        assert!(count <= self.tailroom(), "{count} bytes do not fit behind a packet with {} free", self.tailroom());
        let start = self.len();
        self.word += count as u64;
        &mut self.bytes_mut()[start..]
    }

    /// Truncates the data to `length` bytes; does nothing if it is not longer.
    #[inline]
    pub fn truncate(&mut self, length: usize) {
        if length < self.len() {
            self.word = (self.word & !LENGTH_MASK) | length as u64;
        }
    }

    /// Removes `count` bytes from the front, or all if there are fewer. The fields of an offload are adjusted; if some
    /// of the bytes belonged to a partial checksum, the offload is dropped.
    #[inline]
    pub fn trim_front(&mut self, count: usize) {
        let count = count.min(self.len());
        // SAFETY: count <= len, so the pointer stays in the buffer or points just past its data, where
        // bellows_pool::start_of still finds the buffer.
        self.data = unsafe { self.data.add(count) };
        self.word = (self.word - count as u64) | MOVED;
        if self.has_offload() {
            self.shift_offload(-(count as i64));
        }
    }

    /// Keeps only a part of the data. The fields of an offload are adjusted as by [`Packet::trim_front`]. Hot.
    ///
    /// # Panics
    /// If the packet has no such part.
    #[inline(always)]
    pub fn narrow(&mut self, part: Range<usize>) {
        assert!(part.start <= part.end && part.end <= self.len(), "no bytes {part:?} in a packet of {}", self.len());
        // SAFETY: the part begins at or before the end of the data, so the pointer stays in the buffer or points just
        // past its data, where bellows_pool::start_of still finds the buffer.
        self.data = unsafe { self.data.add(part.start) };
        self.word = (self.word & !LENGTH_MASK) | (part.end - part.start) as u64 | MOVED;
        if self.has_offload() {
            self.shift_offload(-(part.start as i64));
        }
    }

    /// Extends the data by `count` bytes at the front and returns all of it. The fields of an offload are adjusted.
    ///
    /// # Panics
    /// If `count` is more than [`Packet::headroom`].
    #[inline]
    pub fn prepend(&mut self, count: usize) -> &mut [u8] {
        assert!(count <= self.headroom(), "{count} bytes do not fit before a packet with {} free", self.headroom());
        // SAFETY: headroom() counts the bytes between the metadata line and the data, inside this buffer.
        self.data = unsafe { self.data.sub(count) };
        self.word = (self.word + count as u64) | MOVED;
        if self.has_offload() {
            self.shift_offload(count as i64);
        }
        self.bytes_mut()
    }

    fn metadata_line(&self) -> *mut MetadataLine {
        let address = self.buffer_data() - DATA_OFFSET;
        pointer(address).as_ptr().cast()
    }

    /// The metadata line for writing. Sets `flag`, which says that a part of it is valid.
    #[inline(always)]
    fn flag_metadata_line(&mut self, flag: u64) -> *mut MetadataLine {
        self.word |= flag;
        self.metadata_line()
    }

    /// The metadata, if the packet has any.
    #[inline]
    pub fn meta(&self) -> Option<Meta> {
        // SAFETY: the flag says that set_meta wrote there; the line is aligned to 64 and belongs to this packet.
        (self.word & META != 0).then(|| unsafe { (*self.metadata_line()).meta })
    }

    /// Sets the metadata.
    #[inline]
    pub fn set_meta(&mut self, meta: Meta) {
        // SAFETY: the first line of the buffer is aligned to 64, large enough (asserted above), and this packet's own.
        unsafe { (*self.flag_metadata_line(META)).meta = meta };
    }

    /// Whether the packet has an offload.
    #[inline(always)]
    pub fn has_offload(&self) -> bool {
        self.word & OFFLOAD != 0
    }

    /// The offload, as the sender of the packet claims it.
    #[inline]
    pub fn offload(&self) -> Option<Offload> {
        // SAFETY: the flag says that set_offload wrote there; the line is aligned to 64 and belongs to this packet.
        self.has_offload().then(|| unsafe { (*self.metadata_line()).offload })
    }

    /// Sets the offload: work that is left to the device or driver that sends the packet on.
    #[inline]
    pub fn set_offload(&mut self, offload: Offload) {
        // SAFETY: as for set_meta().
        unsafe { (*self.flag_metadata_line(OFFLOAD)).offload = offload };
    }

    /// Removes the offload. Touches the handle only.
    #[inline(always)]
    pub fn clear_offload(&mut self) {
        self.word &= !OFFLOAD;
    }

    #[cold]
    fn shift_offload(&mut self, by: i64) {
        match self.offload().and_then(|offload| offload.shifted(by)) {
            Some(offload) => self.set_offload(offload),
            None => self.clear_offload(),
        }
    }

    /// The bytes of the buffer from its start to the end of the data: what the packet occupies in the caches.
    pub fn buffer(&self) -> &[u8] {
        let start = bellows_pool::start_of(self.address(), self.is_large()) - DATA_OFFSET;
        // SAFETY: the buffer belongs to this packet alone, which is borrowed, and the data ends within it. The pool's
        // memory is always initialised (mapped zeroed).
        unsafe { std::slice::from_raw_parts(pointer(start).as_ptr(), self.address() + self.len() - start) }
    }

    /// Marks the packet: from now on the thread's log records its events, see [`MarkedEvent`](crate::MarkedEvent).
    pub fn mark(&mut self, mark: Mark) {
        // SAFETY: as for set_meta().
        unsafe { (*self.flag_metadata_line(MARKED)).mark = mark };
    }

    /// Whether the packet is marked.
    #[inline(always)]
    pub fn is_marked(&self) -> bool {
        self.word & MARKED != 0
    }

    /// The packet's mark, if it has one.
    #[inline]
    pub fn marked(&self) -> Option<Mark> {
        // SAFETY: the flag says that mark() wrote there; the line is aligned to 64 and belongs to this packet.
        self.is_marked().then(|| unsafe { (*self.metadata_line()).mark })
    }

    /// Removes the mark, if there is one; the log then records that the packet was freed. For apps that keep a packet
    /// to send copies of it.
    pub fn end_mark(&mut self) {
        if let Some(mark) = self.marked() {
            self.word &= !MARKED;
            mark::log_event(mark, MarkedEventKind::Freed);
        }
    }

    /// Copies the packet: data, tag, metadata, offload and a mark with a number. `None` when the pool has no buffer
    /// free. A large buffer is charged to the account of the original.
    #[inline]
    pub fn copy(&self) -> Option<Packet> {
        let mut copy = Packet::with_room_for(self.len(), || self.owner())?;
        self.copy_into(&mut copy);
        Some(copy)
    }

    /// Makes `copy`, a packet of length 0, a copy of this packet: data, tag, metadata, offload and a mark with a
    /// number. Hot.
    ///
    /// # Panics
    /// If `copy` has less tailroom than this packet is long.
    #[inline(always)]
    pub fn copy_into(&self, copy: &mut Packet) {
        copy.word &= !(LENGTH_MASK | META | MARKED | OFFLOAD);
        copy_short(self.bytes(), copy.extend(self.len()));
        copy.set_tag(self.tag());
        if let Some(meta) = self.meta() {
            copy.set_meta(meta);
        }
        if let Some(offload) = self.offload() {
            copy.set_offload(offload);
        }
        if let Some(mark) = self.marked().filter(|mark| mark.id != 0) {
            copy.mark(mark);
            mark::log_event(mark, MarkedEventKind::Copied);
        }
    }

    /// Frees a packet that is large or marked.
    #[cold]
    fn end(&mut self) {
        self.end_mark();
        // SAFETY: the buffer is this packet's alone, of the class that its flag names, and this is the packet's end.
        unsafe { bellows_pool::free(self.address(), self.is_large()) };
    }

    /// Prefetches the first cache line of the data, for an app that reads it soon.
    #[inline(always)]
    pub fn prefetch(&self) {
        prefetch(self.data.as_ptr());
    }
}

/// Copies between slices of equal length; 16 to 64 bytes without a function call.
///
/// The overlapping 16-byte pieces cover each length between 16 and 64 and touch nothing beyond it.
#[inline(always)]
pub(crate) fn copy_short(from: &[u8], to: &mut [u8]) {
    #[inline(always)]
    fn piece(from: &[u8], to: &mut [u8], at: usize) {
        to[at..at + 16].copy_from_slice(&from[at..at + 16]);
    }
    let length = from.len();
    match length {
        33..=64 => {
            piece(from, to, 0);
            piece(from, to, 16);
            piece(from, to, length - 32);
            piece(from, to, length - 16);
        }
        16..=32 => {
            piece(from, to, 0);
            piece(from, to, length - 16);
        }
        _ => to.copy_from_slice(from),
    }
}

impl Drop for Packet {
    #[inline(always)]
    fn drop(&mut self) {
        if self.word & (LARGE | MARKED) == 0 {
            // SAFETY: as in end(), for an ordinary buffer.
            unsafe { bellows_pool::free(self.address(), false) };
        } else {
            self.end();
        }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Packet")
            .field("length", &self.len())
            .field("tag", &self.tag())
            .field("meta", &self.meta())
            .field("offload", &self.offload())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HEADROOM;
    use proptest::prelude::*;

    proptest! {
        /// Headroom, length and tailroom agree with the bounds of the buffer, and both ways to compute the tailroom
        /// agree.
        #[test]
        fn rooms_end_where_the_buffer_does(
            large: bool,
            length in 0usize..=DATA_ROOM,
            steps in proptest::collection::vec((0u8..5, 0usize..200), 0..8),
        ) {
            bellows_pool::ensure().unwrap();
            let room = if large { LARGE_DATA_ROOM } else { DATA_ROOM };
            let mut packet = Packet::with_room(room).unwrap();
            let home = packet.address();
            packet.extend(length);
            let (mut start, mut end) = (HEADROOM, HEADROOM + length);
            for (step, count) in steps {
                let after = packet.tailroom();
                match step {
                    0 if count <= packet.headroom() => {
                        packet.prepend(count);
                        start -= count;
                    }
                    1 => {
                        packet.trim_front(count);
                        start = (start + count).min(end);
                    }
                    2 => {
                        let count = count.min(after);
                        packet.extend(count);
                        end += count;
                    }
                    3 => {
                        let part = count.min(packet.len() / 2)..packet.len() - count.min(packet.len() / 2);
                        (start, end) = (start + part.start, start + part.end);
                        packet.narrow(part);
                    }
                    _ => {
                        packet.truncate(count);
                        end = end.min(start + count);
                    }
                }
                prop_assert_eq!((packet.headroom(), packet.len()), (start, end - start));
                prop_assert_eq!(packet.tailroom(), HEADROOM + room - end);
                prop_assert_eq!(packet.tailroom(), packet.tailroom_by_address());
                let [buffer, bytes] = [packet.buffer(), packet.bytes()].map(<[u8]>::as_ptr_range);
                prop_assert_eq!(buffer.end, bytes.end);
                prop_assert_eq!(bytes.start.addr() - buffer.start.addr(), packet.headroom() + LINE);
                prop_assert_eq!(bellows_pool::start_of(packet.address(), large), home);
            }
        }
    }

    #[test]
    #[should_panic(expected = "1 bytes do not fit behind a packet with 0 free")]
    fn a_full_packet_takes_no_more() {
        let mut packet = Packet::from_bytes(&[0; DATA_ROOM]).unwrap();
        packet.extend(1);
    }
}

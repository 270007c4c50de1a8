//! Adjacencies: what it takes to send packets to a neighbour, and the tags by which packets carry their index.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use bellows_arena::Fixed;
pub use bellows_shared::SeqSnapshot;
use bellows_shared::{SeqLockHead, SeqLockWords};
use bellows_sys::cache::prefetch;
use bellows_sys::clock;
use bellows_wire::EtherType;

use crate::family::IpFamily;

/// The tag of a packet within a router: the interface that received it, and a number whose meaning depends on the link.
///
/// | link | number |
/// |---|---|
/// | to a look-up | none |
/// | from a look-up to a rewrite | index of the [adjacency](Adjacencies) |
/// | to an app that sends ICMP errors | the [error](crate::IcmpError) |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u32);

impl Tag {
    /// Bits of the number.
    pub const NUMBER_BITS: u32 = 20;

    const NUMBER: u32 = (1 << Tag::NUMBER_BITS) - 1;

    /// The tag of a packet that this interface received; 0 for packets of the router's own.
    #[inline(always)]
    pub const fn received_on(interface: u16) -> Tag {
        Tag((interface as u32) << Tag::NUMBER_BITS)
    }

    /// The interface that received the packet; 0 for packets of the router's own.
    #[inline(always)]
    pub const fn interface(self) -> u16 {
        (self.0 >> Tag::NUMBER_BITS) as u16
    }

    /// The lower 20 bits: an adjacency's index or an ICMP error, see the table above.
    #[inline(always)]
    pub const fn number(self) -> u32 {
        self.0 & Tag::NUMBER
    }

    /// The tag with another number, of which the lower 20 bits count.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, number: u32) -> Tag {
        Tag(self.0 & !Tag::NUMBER | number & Tag::NUMBER)
    }
}

/// The meaning of the lowest adjacency indices, to which routes lead that no neighbour is behind.
pub mod special {
    /// No route.
    pub const NO_ROUTE: u32 = 0;
    /// The route is a black hole: packets are dropped without an answer.
    pub const BLACKHOLE: u32 = 1;
    /// The route says that the destination is unreachable.
    pub const UNREACHABLE: u32 = 2;
    /// The route says that the destination is prohibited.
    pub const PROHIBIT: u32 = 3;
    /// The packet is for this router.
    pub const LOCAL: u32 = 4;
    /// A multicast group that nobody here belongs to.
    pub const MULTICAST: u32 = 5;
    /// An address that no packet on a wire may be sent to (RFC 1812, section 5.3.7; RFC 4291, section 2.5).
    pub const MARTIAN: u32 = 6;
    /// The first index of an adjacency in the table.
    pub const FIRST: u32 = 16;
}

/// The maximum number of adjacencies.
pub const MAX_ADJACENCIES: usize = 1 << Tag::NUMBER_BITS;

/// Bytes of a link-layer header that an adjacency has room for: Ethernet with two VLAN tags, and two more.
pub const MAX_HEADER: usize = 24;

const WORDS: usize = 7;

/// Where the parts of a state word are.
const KIND_BITS: u32 = 4;
const INTERFACE_SHIFT: u32 = KIND_BITS;
const MTU_SHIFT: u32 = INTERFACE_SHIFT + 12;
const LENGTH_SHIFT: u32 = MTU_SHIFT + 16;

/// The code of [`AdjacencyKind::Incomplete`] in a state word if the next hop's family is not that of the packets.
const INCOMPLETE_OTHER: u64 = 4;

/// The bits of a state word by which an adjacency is [usual](AdjacencyState::is_usual), and what they are then.
const USUAL_BITS: u64 = 0xff << LENGTH_SHIFT | ((1 << KIND_BITS) - 1);
const USUAL: u64 = (ETHERNET as u64) << LENGTH_SHIFT | AdjacencyKind::Complete as u64;

/// Bytes of an Ethernet header without tags.
const ETHERNET: usize = 14;

/// What an adjacency is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AdjacencyKind {
    /// Nothing: the index is free.
    Unused = 0,
    /// A neighbour whose link-layer address is known.
    Complete = 1,
    /// A neighbour whose link-layer address is not known.
    Incomplete = 2,
    /// The neighbours on a link that have no adjacency of their own yet: the packet's destination is the neighbour.
    Glean = 3,
}

/// An adjacency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// What it is for.
    pub kind: AdjacencyKind,
    /// The number of the interface.
    pub interface: u16,
    /// The longest IP packet that the link carries, bytes.
    pub mtu: u16,
    /// Bytes of the header, up to [`MAX_HEADER`].
    pub length: u8,
    /// The link-layer header, if it is complete.
    pub header: [u8; MAX_HEADER],
    /// The neighbour's IP address, unless it is [`AdjacencyKind::Glean`].
    pub next_hop: Option<IpAddr>,
}

impl Adjacency {
    /// The family of the packets that are sent with the header. That of a next hop may be another one (RFC 8950).
    pub fn packets(&self) -> IpFamily {
        let end = usize::from(self.length).clamp(2, MAX_HEADER);
        let protocol = EtherType(u16::from_be_bytes([self.header[end - 2], self.header[end - 1]]));
        if protocol == EtherType::IPV6 { IpFamily::V6 } else { IpFamily::V4 }
    }
}

/// The part of an adjacency that says whether and how packets are sent. Hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdjacencyState(u64);

impl AdjacencyState {
    /// That of an adjacency which is being replaced is the one of an unused one.
    #[inline(always)]
    pub fn of(seen: SeqSnapshot) -> AdjacencyState {
        AdjacencyState(if seen.is_changing() { 0 } else { seen.value() })
    }

    /// Whether the neighbour's link-layer address is known, and the header is one of Ethernet without tags.
    #[inline(always)]
    pub fn is_usual(self) -> bool {
        self.0 & USUAL_BITS == USUAL
    }

    /// Whether the neighbour's link-layer address is known.
    #[inline(always)]
    pub fn is_complete(self) -> bool {
        self.code() == AdjacencyKind::Complete as u64
    }

    #[inline(always)]
    fn code(self) -> u64 {
        self.0 & ((1 << KIND_BITS) - 1)
    }

    /// Whether there is such an adjacency at all.
    #[inline(always)]
    pub fn is_used(self) -> bool {
        self.code() != AdjacencyKind::Unused as u64
    }

    /// Whether the link-layer address of a neighbour with an address of the packets' family is not known.
    #[inline(always)]
    pub fn is_unresolved(self) -> bool {
        (self.code() == AdjacencyKind::Incomplete as u64) | self.is_glean()
    }

    /// Whether the neighbour is the packet's destination.
    #[inline(always)]
    pub fn is_glean(self) -> bool {
        self.code() == AdjacencyKind::Glean as u64
    }

    /// The number of the interface.
    #[inline(always)]
    pub fn interface(self) -> u16 {
        (self.0 >> INTERFACE_SHIFT & 0xfff) as u16
    }

    /// The longest IP packet that the link carries, bytes.
    #[inline(always)]
    pub fn mtu(self) -> u16 {
        (self.0 >> MTU_SHIFT) as u16
    }

    /// Bytes of the link-layer header.
    #[inline(always)]
    pub fn length(self) -> u8 {
        (self.0 >> LENGTH_SHIFT) as u8
    }

    fn kind(self) -> AdjacencyKind {
        match self.code() {
            1 => AdjacencyKind::Complete,
            2 | INCOMPLETE_OTHER => AdjacencyKind::Incomplete,
            3 => AdjacencyKind::Glean,
            _ => AdjacencyKind::Unused,
        }
    }
}

/// What the adjacencies of several packets have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InCommon {
    /// All are [usual](AdjacencyState::is_usual), and no packet is too long for its link.
    pub are_usual: bool,
    /// The number of the interface, if all have the same one.
    pub interface: Option<u16>,
}

impl InCommon {
    /// What the states have in common that were seen for packets of these frames' lengths, bytes. There is neither a branch
    /// in it nor a number of another size, so that compilers make vectors of it. Hot: to be called in a [loop for the
    /// processor](bellows_sys::simd::Loop).
    #[inline(always)]
    pub fn of(seen: &[SeqSnapshot], lengths: &[u32]) -> InCommon {
        let first = seen.first().map_or(0, |seen| seen.bits());
        let (mut unusual, mut differences) = (0, 0);
        for (&seen, &length) in seen.iter().zip(lengths) {
            let bits = seen.bits();
            let longest = ETHERNET as u64 + (bits >> MTU_SHIFT & 0xffff);
            // The sign is that of a packet that is too long.
            let sign = longest.wrapping_sub(length.into()) & 1 << 63;
            unusual |= (bits & (USUAL_BITS | SeqSnapshot::CHANGING)) ^ USUAL | sign;
            differences |= bits ^ first;
        }
        let is_same = differences & (0xfff << INTERFACE_SHIFT) == 0;
        InCommon { are_usual: unusual == 0, interface: is_same.then_some(AdjacencyState(first).interface()) }
    }
}

/// One adjacency on a cache line of its own, so that a packet costs one line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
struct AdjacencyLine {
    state_word: SeqLockHead,
    /// Bytes 0 to 8 and 6 to 14 of the header, the two stores of an Ethernet header without tags; bytes 8 to 24; the next
    /// hop's address, and whether there is one (4 or 6).
    words: SeqLockWords<WORDS>,
}

const _: () = assert!(size_of::<AdjacencyLine>() == 64);

/// The adjacencies of a router. Workers read them while control threads replace them, and neither waits.
///
/// A packet carries the index of its adjacency from the look-up to the rewriting. So an index that is given back must not
/// be that of another neighbour while such packets are on their way: they find an unused one, and are dropped. Who
/// [removes](Adjacencies::remove) an adjacency has waited for the workers ([`VrfChanges`](crate::VrfChanges)); but an app in
/// between may hold packets, or a lossless network hold them back. The table therefore has more indices than adjacencies, an
/// index is used again after all others, and not within ten seconds.
#[derive(Debug)]
pub struct Adjacencies {
    /// On huge pages, because packets come to any of them.
    lines: Fixed<[AdjacencyLine]>,
    capacity: usize,
    /// Nanoseconds for which an index rests.
    rest: u64,
    free: Mutex<Free>,
}

/// The free indices: those never used, from `next` on, and those given back.
#[derive(Debug)]
struct Free {
    next: usize,
    /// Each with the time, the one that was given back first at the front.
    returned: VecDeque<(u32, u64)>,
}

/// The least number of indices besides those that can be in use, if the tag has bits for them.
const MIN_SPARE: usize = 1_024;

/// The time after which an index is used again, nanoseconds.
const REST_NS: u64 = 10_000_000_000;

/// Why there is no room for an adjacency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exhausted {
    /// So many are in use.
    #[error("all {0} adjacencies are in use")]
    Used(usize),
    /// All others were in use a moment ago, and packets may be on their way with them.
    #[error("all free adjacencies were in use within the last ten seconds: try again")]
    Resting,
}

impl Free {
    fn used(&self) -> usize {
        self.next - special::FIRST as usize - self.returned.len()
    }
}

impl Adjacencies {
    /// A table of `capacity` adjacencies besides the [special] ones, at most [`MAX_ADJACENCIES`] in all.
    pub fn new(capacity: usize) -> Adjacencies {
        Adjacencies::with_rest(capacity, capacity.max(MIN_SPARE), REST_NS)
    }

    /// The same with `spare` spare indices, each of which is not used again for the time `rest`.
    pub(crate) fn with_rest(capacity: usize, spare: usize, rest: u64) -> Adjacencies {
        let first = special::FIRST as usize;
        let capacity = capacity.min(MAX_ADJACENCIES - first);
        let length = (first + capacity + spare).min(MAX_ADJACENCIES);
        let lines = std::iter::repeat_with(AdjacencyLine::default).take(length).collect();
        Adjacencies { lines, capacity, rest, free: Mutex::new(Free { next: first, returned: VecDeque::new() }) }
    }

    /// The number of adjacencies in use.
    pub fn used(&self) -> usize {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).used()
    }

    /// The number of adjacencies that there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Enters an adjacency, and returns its index.
    ///
    /// # Errors
    /// If there is no room.
    pub fn add(&self, adjacency: &Adjacency) -> Result<u32, Exhausted> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.used() >= self.capacity {
            return Err(Exhausted::Used(self.capacity));
        }
        let index = if free.next < self.lines.len() {
            free.next += 1;
            free.next as u32 - 1
        } else {
            let now = clock::now();
            let has_rested = |&mut (_, since): &mut (u32, u64)| now.saturating_sub(since) >= self.rest;
            free.returned.pop_front_if(has_rested).ok_or(Exhausted::Resting)?.0
        };
        self.write(index, adjacency);
        Ok(index)
    }

    /// Replaces an adjacency. Packets that are being sent meanwhile get the old header or the new one.
    pub fn set(&self, index: u32, adjacency: &Adjacency) {
        let _free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(index, adjacency);
    }

    /// Frees an index that no route leads to any more.
    pub fn remove(&self, index: u32) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let unused = Adjacency {
            kind: AdjacencyKind::Unused,
            interface: 0,
            mtu: 0,
            length: 0,
            header: [0; MAX_HEADER],
            next_hop: None,
        };
        self.write(index, &unused);
        free.returned.push_back((index, clock::now()));
    }

    /// Writes a line. The caller has the lock.
    fn write(&self, index: u32, adjacency: &Adjacency) {
        let Some(line) = self.lines.get(index as usize) else { return };
        let is_other = adjacency.next_hop.is_some_and(|next| IpFamily::of(next) != adjacency.packets());
        let code = match adjacency.kind {
            AdjacencyKind::Incomplete if is_other => INCOMPLETE_OTHER,
            kind => kind as u64,
        };
        let state = code
            | u64::from(adjacency.interface & 0xfff) << INTERFACE_SHIFT
            | u64::from(adjacency.mtu) << MTU_SHIFT
            | u64::from(adjacency.length) << LENGTH_SHIFT;
        let part = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| adjacency.header[at + index]));
        let (address, family) = match adjacency.next_hop {
            Some(IpAddr::V4(address)) => (u128::from(u32::from(address)), 4),
            Some(IpAddr::V6(address)) => (u128::from(address), 6),
            None => (0, 0),
        };
        let words = [part(0), part(6), part(8), part(16), address as u64, (address >> 64) as u64, family];
        // Only owners of the lock write, so nobody else is faster.
        let replaced = line.state_word.replace(line.state_word.load(), state, &line.words, &words);
        debug_assert!(replaced, "two writers");
    }

    /// The adjacency of an index.
    pub fn get(&self, index: u32) -> Option<Adjacency> {
        let line = self.lines.get(index as usize)?;
        loop {
            let seen = line.state_word.load();
            let Some(words) = line.state_word.read::<WORDS, WORDS>(seen, &line.words) else {
                std::hint::spin_loop();
                continue;
            };
            let state = AdjacencyState(seen.value());
            let [first, _, second, third, low, high, family] = words;
            let mut header = [0; MAX_HEADER];
            let (chunks, _) = header.as_chunks_mut::<8>();
            chunks.iter_mut().zip([first, second, third]).for_each(|(chunk, word)| *chunk = word.to_ne_bytes());
            let address = u128::from(high) << 64 | u128::from(low);
            let next_hop = match family {
                4 => Some(IpAddr::V4((low as u32).into())),
                6 => Some(IpAddr::V6(Ipv6Addr::from(address))),
                _ => None,
            };
            let (kind, interface, mtu, length) = (state.kind(), state.interface(), state.mtu(), state.length());
            return (kind != AdjacencyKind::Unused).then_some(Adjacency {
                kind,
                interface,
                mtu,
                length,
                header,
                next_hop,
            });
        }
    }

    /// The state of an adjacency, or that of an unused one if there is no such index. Hot.
    #[inline(always)]
    pub fn state(&self, index: u32) -> AdjacencyState {
        self.lines.get(index as usize).map_or(AdjacencyState(0), |line| AdjacencyState::of(line.state_word.load()))
    }

    /// Bytes 0 to 8 and 6 to 14 of an adjacency's header, in memory order, and its state now: they belong together if
    /// that is complete. Hot.
    #[inline(always)]
    pub fn header(&self, index: u32) -> ([u64; 2], AdjacencyState) {
        let Some(line) = self.lines.get(index as usize) else { return ([0; 2], AdjacencyState(0)) };
        let seen = line.state_word.load();
        let words = line.state_word.read::<WORDS, 2>(seen, &line.words);
        words.map_or(([0; 2], AdjacencyState(0)), |words| (words, AdjacencyState::of(seen)))
    }

    /// The same for loops, which keep it in registers.
    #[inline(always)]
    pub fn table(&self) -> AdjacencyTable<'_> {
        AdjacencyTable(&self.lines)
    }
}

/// Adjacencies, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct AdjacencyTable<'a>(&'a [AdjacencyLine]);

impl AdjacencyTable<'_> {
    /// The state word of an adjacency, for [`AdjacencyTable::header_of`]: that of an unused one if there is no such
    /// index. Hot.
    #[inline(always)]
    pub fn state_word(self, index: u32) -> SeqSnapshot {
        self.0.get(index as usize).map_or(SeqSnapshot::default(), |line| line.state_word.load())
    }

    /// The header of an adjacency, as [`Adjacencies::header`], and whether it is that of when the state word was seen,
    /// unless that [is changing](SeqSnapshot::is_changing). Hot.
    #[inline(always)]
    pub fn header_of(self, index: u32, seen: SeqSnapshot) -> ([u64; 2], bool) {
        self.0.get(index as usize).map_or(([0; 2], false), |line| line.state_word.read_if_same(seen, &line.words))
    }

    /// Prefetches an adjacency. Hot.
    #[inline(always)]
    pub fn prefetch(self, index: u32) {
        if let Some(line) = self.0.get(index as usize) {
            prefetch((&raw const *line).cast());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(number: u16) -> Adjacency {
        let mut header = [0; MAX_HEADER];
        header.as_chunks_mut::<2>().0.fill(number.to_be_bytes());
        Adjacency {
            kind: AdjacencyKind::Complete,
            interface: number & 0xfff,
            mtu: number,
            length: 14,
            header,
            next_hop: Some(IpAddr::V4(u32::from(number).into())),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let table = Adjacencies::new(4);
        let v6 = Adjacency {
            next_hop: Some("2001:db8::1".parse().unwrap()),
            kind: AdjacencyKind::Incomplete,
            ..numbered(7)
        };
        let glean = Adjacency { next_hop: None, kind: AdjacencyKind::Glean, ..numbered(8) };
        let wanted = [numbered(0xfffe), v6, glean];
        let indices = wanted.map(|adjacency| table.add(&adjacency).unwrap());
        assert_eq!(indices.map(|index| table.get(index).unwrap()), wanted);
        let (header, state) = table.header(indices[0]);
        assert_eq!((state.interface(), state.mtu(), state.length()), (0xffe, 0xfffe, 14));
        assert!(state.is_complete() && state == table.state(indices[0]));
        assert_eq!(
            (state.is_usual(), header.map(u64::to_ne_bytes)),
            (true, [[0xff, 0xfe, 0xff, 0xfe, 0xff, 0xfe, 0xff, 0xfe]; 2])
        );
        assert!(indices[1..].iter().all(|&index| !table.state(index).is_complete()));
        // The headers of these are none of IPv6.
        let kinds = |index| {
            let state = table.state(index);
            (state.is_used(), state.is_unresolved(), state.is_glean())
        };
        assert_eq!(indices.map(kinds), [(true, false, false), (true, false, false), (true, true, true)]);
        table.set(indices[1], &Adjacency { next_hop: Some([10, 0, 0, 1].into()), ..v6 });
        assert_eq!(kinds(indices[1]), (true, true, false));
        assert_eq!(kinds(special::NO_ROUTE), (false, false, false));
    }

    #[test]
    fn indices_are_used_again_when_no_other_is_left_and_they_have_rested() {
        let table = Adjacencies::with_rest(2, 1, 0);
        let first = table.add(&numbered(1)).unwrap();
        table.remove(first);
        let (second, third) = (table.add(&numbered(2)).unwrap(), table.add(&numbered(3)).unwrap());
        assert!(second != first && third != first && table.get(first).is_none() && table.used() == 2);
        assert_eq!(table.add(&numbered(4)), Err(Exhausted::Used(2)));
        table.remove(third);
        assert_eq!(table.add(&numbered(5)), Ok(first), "the one that has rested longest");
        assert!(table.get(special::NO_ROUTE).is_none() && table.get(u32::MAX).is_none());

        let table = Adjacencies::with_rest(2, 0, u64::MAX);
        let first = table.add(&numbered(1)).unwrap();
        table.remove(first);
        table.add(&numbered(2)).unwrap();
        assert_eq!(table.add(&numbered(3)), Err(Exhausted::Resting));
        assert_eq!((table.used(), Adjacencies::new(2).lines.len()), (1, 16 + 2 + MIN_SPARE));
        assert_eq!(Adjacencies::new(1 << 20).lines.len(), MAX_ADJACENCIES);
    }

    #[test]
    fn an_adjacency_is_replaced_whole() {
        let table = Adjacencies::new(1);
        let index = table.add(&numbered(0)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| (0..20_000).for_each(|number| table.set(index, &numbered(number))));
            loop {
                let ([first, second], state) = table.header(index);
                if !state.is_complete() {
                    continue;
                }
                assert_eq!((first, first as u16), (second, state.mtu().swap_bytes()));
                let whole = table.get(index).unwrap();
                assert_eq!(whole, numbered(whole.mtu));
                if state.mtu() == 19_999 {
                    break;
                }
            }
        });
    }
}

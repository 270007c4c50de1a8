//! The connections of a table: groups of words that all threads read and replace.

use std::net::IpAddr;
use std::ops::Range;

use bellows_arena::Fixed;
use bellows_shared::{SeqLockHead, SeqLockWords, SeqSnapshot};
use bellows_sys::cache::prefetch;
use bellows_sys::keyed_hash::{self, KeyedHash};
use bellows_wire::connection::{ConnectionKind, Key, Member, WORDS};
use bellows_wire::tcp::flags;

/// Connections in a bucket: the heads of one cache line.
pub(super) const WAYS: usize = 8;

/// Nanoseconds of a unit of time, 67 ms, as a power of two.
const UNIT_SHIFT: u32 = 26;

/// If even that one of a full bucket which has been idle the longest was used at most this number of units ago, two
/// seconds, it matters who began the connections.
const PRESSED: u32 = 30;

/// How often a change is tried again that another thread was faster with.
const TRIES: usize = 4;

/// The parts of a head: the tag in the lowest bits, the end that began, the stage, the protocol, the time.
const TAG_BITS: u32 = 16;
const STAGE_SHIFT: u32 = TAG_BITS + 1;
const PROTOCOL_SHIFT: u32 = STAGE_SHIFT + 3;
const TIME_SHIFT: u32 = PROTOCOL_SHIFT + 2;
const TIMES: u32 = 1 << (SeqLockHead::BITS - TIME_SHIFT);

/// How far a connection has come. A stage of 0 is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// Only one end has sent.
    Opening = 1,
    /// The other end has answered.
    Answered = 2,
    /// The first end has sent again.
    Established = 3,
    /// TCP after FIN or RST.
    Closing = 4,
}

/// What decides about the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Protocol {
    Tcp = 0,
    Udp = 1,
    Icmp = 2,
    Other = 3,
}

/// The parts of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeadState {
    tag: u16,
    /// Whether the first end of the key sent the first packet.
    first_began: bool,
    pub(super) stage: Stage,
    pub(super) protocol: Protocol,
    /// The time of the last packet.
    time: u32,
}

impl HeadState {
    #[inline(always)]
    fn of(value: u64) -> Option<HeadState> {
        let stage = match value >> STAGE_SHIFT & 7 {
            1 => Stage::Opening,
            2 => Stage::Answered,
            3 => Stage::Established,
            4 => Stage::Closing,
            _ => return None,
        };
        let protocol = match value >> PROTOCOL_SHIFT & 3 {
            0 => Protocol::Tcp,
            1 => Protocol::Udp,
            2 => Protocol::Icmp,
            _ => Protocol::Other,
        };
        let first_began = value >> TAG_BITS & 1 == 1;
        Some(HeadState { tag: value as u16, first_began, stage, protocol, time: (value >> TIME_SHIFT) as u32 })
    }

    #[inline(always)]
    fn value(self) -> u64 {
        u64::from(self.tag)
            | u64::from(self.first_began) << TAG_BITS
            | (self.stage as u64) << STAGE_SHIFT
            | (self.protocol as u64) << PROTOCOL_SHIFT
            | u64::from(self.time) << TIME_SHIFT
    }

    /// The state of a connection that a packet begins. `None` for a reset, which begins none.
    fn begun_by(member: &Member, tag: u16, time: u32) -> Option<HeadState> {
        let (protocol, stage) = match member.kind {
            ConnectionKind::Tcp(set) if set & flags::RST != 0 => return None,
            ConnectionKind::Tcp(set) if set & flags::FIN != 0 => (Protocol::Tcp, Stage::Closing),
            ConnectionKind::Tcp(_) => (Protocol::Tcp, Stage::Opening),
            ConnectionKind::Udp => (Protocol::Udp, Stage::Opening),
            ConnectionKind::Echo => (Protocol::Icmp, Stage::Opening),
            ConnectionKind::Other => (Protocol::Other, Stage::Opening),
        };
        Some(HeadState { tag, first_began: member.is_from_first, stage, protocol, time })
    }

    /// The state after a packet. `None` if it begins a new connection of the same key.
    #[inline(always)]
    fn after(self, member: &Member, time: u32) -> Option<HeadState> {
        let set = if let ConnectionKind::Tcp(set) = member.kind { set } else { 0 };
        if set & (flags::FIN | flags::RST) != 0 {
            return Some(HeadState { stage: Stage::Closing, time, ..self });
        }
        let is_from_beginner = member.is_from_first == self.first_began;
        let stage = match self.stage {
            Stage::Closing if set & (flags::SYN | flags::ACK) == flags::SYN => return None,
            Stage::Opening if !is_from_beginner => Stage::Answered,
            Stage::Answered if is_from_beginner && set & flags::SYN == 0 => Stage::Established,
            stage => stage,
        };
        Some(HeadState { stage, time, ..self })
    }

    /// The time since the last packet. Other workers may be a little ahead.
    #[inline(always)]
    fn idle(self, now: u32) -> u32 {
        let idle = now.wrapping_sub(self.time) % TIMES;
        if idle < TIMES / 2 { idle } else { 0 }
    }
}

/// Timeouts in units of time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) tcp_established: u32,
    pub(super) tcp_transitory: u32,
    /// By protocol; that of TCP is not used.
    pub(super) others: [u32; 4],
}

impl Timeouts {
    /// So many nanoseconds in units of time, of which a part counts as a whole.
    pub(super) fn units(nanos: u64) -> u32 {
        nanos.div_ceil(1 << UNIT_SHIFT) as u32
    }

    #[inline(always)]
    fn has_expired(&self, state: HeadState, now: u32) -> bool {
        let timeout = match (state.protocol, state.stage) {
            (Protocol::Tcp, Stage::Established) => self.tcp_established,
            (Protocol::Tcp, _) => self.tcp_transitory,
            (other, _) => self.others[other as usize],
        };
        state.idle(now) > timeout
    }
}

/// The time in units.
#[inline(always)]
pub(super) fn units(now: u64) -> u32 {
    (now >> UNIT_SHIFT) as u32 % TIMES
}

/// A cache line of heads.
#[repr(align(64))]
#[derive(Default)]
struct Bucket([SeqLockHead; WAYS]);

/// A table of a fixed size. A connection is in the bucket that its hash selects.
///
/// Two threads that enter a connection at the same time may both do so: the first one in the bucket counts, and the
/// other expires.
pub(super) struct Connections {
    // On huge pages, because packets come to any of them.
    buckets: Fixed<[Bucket]>,
    keys: Fixed<[SeqLockWords<WORDS>]>,
    /// Nobody outside knows which connections share a bucket.
    hash: KeyedHash,
    timeouts: Timeouts,
}

/// Where a connection is, if it is in the table: the tag, the bucket, and a head of the bucket that had this tag when it
/// was looked for ([`WAYS`] if there was none), from the lowest bit on. One word is written and read as a whole.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place(u64);

impl Place {
    const BUCKET_SHIFT: u32 = 16;
    const WAY_SHIFT: u32 = 48;

    /// The bucket and the tag that a hash chooses. Keys of IPv4 and of IPv6 with equal first words are different.
    #[inline(always)]
    fn of(hash: u64, mask: u64) -> Place {
        Place((hash & mask) << Self::BUCKET_SHIFT | (WAYS as u64) << Self::WAY_SHIFT | hash >> 48)
    }

    #[inline(always)]
    fn for_version(self, is_v6: bool) -> Place {
        Place(self.0 & !1 | u64::from(is_v6))
    }

    #[inline(always)]
    fn at_way(self, way: u32) -> Place {
        Place(self.0 & ((1 << Self::WAY_SHIFT) - 1) | u64::from(way) << Self::WAY_SHIFT)
    }

    #[inline(always)]
    fn tag(self) -> u16 {
        self.0 as u16
    }

    #[inline(always)]
    pub(super) fn bucket(self) -> usize {
        (self.0 >> Self::BUCKET_SHIFT) as u32 as usize
    }

    /// The way that a connection takes if it is free, so that most are found at first sight.
    #[inline(always)]
    fn preferred(self) -> usize {
        // Not the lowest bit of the tag, which says the version.
        (self.tag() >> 1) as usize % WAYS
    }

    #[inline(always)]
    fn way(self) -> usize {
        (self.0 >> Self::WAY_SHIFT) as usize
    }
}

/// The words of a key, to be hashed.
#[inline(always)]
fn words(key: &Key) -> keyed_hash::KeyWords<'_> {
    match key.both_words() {
        Ok(two) => keyed_hash::KeyWords::Two(two),
        Err(five) => keyed_hash::KeyWords::Five(five),
    }
}

/// All words of a key, of which one of IPv4 needs not all.
fn whole(key: &Key) -> [u64; WORDS] {
    match key.both_words() {
        Ok(&[ports, addresses]) => [ports, addresses, 0, 0, 0],
        Err(five) => *five,
    }
}

/// The end that began a connection: its address, of IPv6 the network, because a station there has all of its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Beginner {
    address: u64,
    is_v6: bool,
}

impl Beginner {
    /// That of a connection with these words (see [`Key::words`]).
    fn of(words: &[u64; WORDS], is_v6: bool, is_first: bool) -> Beginner {
        let address = match (is_v6, is_first) {
            (false, true) => words[1] >> 32,
            (false, false) => words[1] & u64::from(u32::MAX),
            (true, true) => words[1],
            (true, false) => words[3],
        };
        Beginner { address, is_v6 }
    }

    fn address(self) -> IpAddr {
        match self.is_v6 {
            false => IpAddr::from((self.address as u32).to_be_bytes()),
            true => IpAddr::from((u128::from(self.address) << 64).to_be_bytes()),
        }
    }
}

/// A place that a connection may take: its rank, what becomes of the connection, the head, and what was seen of it.
type Candidate<'c> = (u32, Entered, &'c SeqLockHead, &'c SeqLockWords<WORDS>, SeqSnapshot);

/// What became of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It took a free place.
    New,
    /// It took the place of one that had expired.
    Expired,
    /// It took the place of one that was not established, or that an end with several others had begun.
    Evicted,
    /// All places are those of established connections, or its own end has begun more than others.
    Refused,
    /// The packet begins no connection.
    Nothing,
}

impl Connections {
    /// An empty table of a power of two of buckets.
    pub(super) fn new(buckets: usize, timeouts: Timeouts) -> Connections {
        Connections {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            keys: (0..buckets * WAYS).map(|_| SeqLockWords::default()).collect(),
            hash: KeyedHash::new(),
            timeouts,
        }
    }

    pub(super) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// The memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>() + self.keys.len() * size_of::<SeqLockWords<WORDS>>()
    }

    /// The places of the connections of packets. Their memory is prefetched: first all buckets, then all keys. Hot.
    #[inline(always)]
    pub(super) fn places(&self, members: &[Member], places: &mut Vec<Place>) {
        places.clear();
        let mask = self.buckets.len() as u64 - 1;
        self.hash.each(members.iter().map(|member| words(&member.key)), |hash| {
            let place = Place::of(hash, mask);
            prefetch((&raw const self.buckets[place.bucket()]).cast());
            places.push(place);
        });
        for (place, member) in places.iter_mut().zip(members) {
            let found = place.for_version(member.key.is_v6());
            let mut way = found.preferred();
            if self.buckets[found.bucket()].0[way].load().value() as u16 != found.tag() {
                let ways = self.ways(found);
                way = if ways == 0 { WAYS } else { ways.trailing_zeros() as usize };
            }
            // Of no way the first, whose key is not read.
            prefetch((&raw const self.keys[found.bucket() * WAYS + way % WAYS]).cast());
            *place = found.at_way(way as u32);
        }
    }

    /// The heads of a bucket that have a tag: a bit for each.
    #[inline(always)]
    fn ways(&self, place: Place) -> u32 {
        let heads = self.buckets[place.bucket()].0.iter().enumerate();
        // Without a branch, because which one it is cannot be predicted.
        heads.fold(0, |ways, (way, head)| ways | u32::from(head.load().value() as u16 == place.tag()) << way)
    }

    /// A connection that has not expired. Hot.
    #[inline(always)]
    fn find(&self, key: &Key, place: Place, now: u32) -> Option<(&SeqLockHead, SeqSnapshot, HeadState)> {
        // Where it was when its memory was prefetched.
        if let Some(found) = self.at(key, place, place.way(), now) {
            return Some(found);
        }
        let mut ways = self.ways(place);
        while ways != 0 {
            if let Some(found) = self.at(key, place, ways.trailing_zeros() as usize, now) {
                return Some(found);
            }
            ways &= ways - 1;
        }
        None
    }

    /// The connection of a head, if it is that of the key and has not expired.
    #[inline(always)]
    fn at(&self, key: &Key, place: Place, way: usize, now: u32) -> Option<(&SeqLockHead, SeqSnapshot, HeadState)> {
        let bucket = place.bucket();
        let head = self.buckets[bucket].0.get(way)?;
        let seen = head.load();
        let state = HeadState::of(seen.value()).filter(|state| state.tag == place.tag())?;
        let is_it = head.belongs_to(seen, &self.keys[bucket * WAYS + way], key.words());
        (is_it && !self.timeouts.has_expired(state, now)).then_some((head, seen, state))
    }

    /// Whether a packet belongs to an established connection that it does not change, because another one came at the
    /// same time. These are most packets. Hot.
    #[inline(always)]
    fn is_established(&self, member: &Member, place: Place, now: u32) -> bool {
        const TAG: u64 = (1 << TAG_BITS) - 1;
        const TIME: u64 = TIMES as u64 - 1;
        const PARTS: u64 = TAG | 7 << STAGE_SHIFT | TIME << TIME_SHIFT;
        let bucket = place.bucket();
        let Some(head) = self.buckets[bucket].0.get(place.way()) else { return false };
        let seen = head.load();
        let expected =
            u64::from(place.tag()) | (Stage::Established as u64) << STAGE_SHIFT | u64::from(now) << TIME_SHIFT;
        let ends = matches!(member.kind, ConnectionKind::Tcp(set) if set & (flags::FIN | flags::RST) != 0);
        let keys = &self.keys[bucket * WAYS + place.way()];
        seen.value() & PARTS == expected
            && !ends
            && match member.key.both_words() {
                Ok(two) => head.belongs_to(seen, keys, two),
                Err(five) => head.belongs_to(seen, keys, five),
            }
    }

    /// Whether a packet belongs to a connection in the table, which goes on with it. Hot.
    #[inline(always)]
    pub(super) fn pass(&self, member: &Member, place: Place, now: u32) -> bool {
        if self.is_established(member, place, now) {
            return true;
        }
        let Some((head, mut seen, mut state)) = self.find(&member.key, place, now) else { return false };
        if member.is_error {
            return true;
        }
        for _ in 0..TRIES {
            let Some(next) = state.after(member, now) else { return false };
            let Err(changed) = (if next == state { Ok(()) } else { head.update(seen, next.value()) }) else { break };
            let Some(other) = HeadState::of(changed.value()).filter(|_| changed.has_words_of(seen)) else { break };
            (seen, state) = (changed, other);
        }
        true
    }

    /// Enters the connection that a packet begins. Hot.
    #[inline(never)]
    pub(super) fn enter(&self, member: &Member, place: Place, now: u32) -> Entered {
        let begun = if member.is_error { None } else { HeadState::begun_by(member, place.tag(), now) };
        let Some(begun) = begun else { return Entered::Nothing };
        let bucket = place.bucket();
        let (heads, keys) = (&self.buckets[bucket].0, &self.keys[bucket * WAYS..]);
        for _ in 0..TRIES {
            let mut best: Option<Candidate<'_>> = None;
            for (way, (head, words)) in heads.iter().zip(keys).enumerate() {
                let seen = head.load();
                if seen.is_changing() {
                    continue;
                }
                let state = HeadState::of(seen.value());
                let has_expired = state.is_some_and(|state| self.timeouts.has_expired(state, now));
                let (rank, entered) = match state {
                    Some(state) if state.tag == place.tag() && head.belongs_to(seen, words, member.key.words()) => {
                        match (has_expired, state.stage) {
                            (true, _) => (u32::MAX, Entered::Expired),
                            // Its ends begin anew.
                            (false, Stage::Closing) => (u32::MAX, Entered::New),
                            // Another thread has just entered it.
                            (false, _) => return Entered::Nothing,
                        }
                    }
                    None if way == place.preferred() => (u32::MAX - 1, Entered::New),
                    None => (u32::MAX - 2, Entered::New),
                    Some(_) if has_expired => (u32::MAX - 3, Entered::Expired),
                    Some(HeadState { stage: Stage::Established, .. }) => continue,
                    Some(state) => (state.idle(now), Entered::Evicted),
                };
                if best.is_none_or(|(highest, ..)| rank > highest) {
                    best = Some((rank, entered, head, words, seen));
                }
            }
            let is_pressed = best.is_none_or(|(rank, entered, ..)| entered == Entered::Evicted && rank < PRESSED);
            if is_pressed {
                best = self.gives_way(member, place, now);
            }
            let Some((_, entered, head, words, seen)) = best else { break };
            if head.replace(seen, begun.value(), words, member.key.words()) {
                return entered;
            }
        }
        Entered::Refused
    }

    /// The connections of a bucket that is full: who began each, and its head.
    fn begun(
        &self,
        place: Place,
    ) -> impl Iterator<Item = (Beginner, HeadState, &SeqLockHead, &SeqLockWords<WORDS>, SeqSnapshot)> {
        let bucket = place.bucket();
        let heads = self.buckets[bucket].0.iter().zip(&self.keys[bucket * WAYS..]);
        heads.filter_map(|(head, words)| {
            let seen = head.load();
            let state = HeadState::of(seen.value())?;
            let key: [u64; WORDS] = head.read(seen, words)?;
            Some((Beginner::of(&key, state.tag & 1 == 1, state.first_began), state, head, words, seen))
        })
    }

    /// The connection of a full bucket whose place a new one takes: of those that are not established, unless the new one's
    /// beginner has begun more than that one's, and else of those of a beginner with two more at least. So whoever fills
    /// the table keeps no others out. Those of the beginner with the most go first, and of them that which has been idle
    /// the longest.
    #[cold]
    fn gives_way(&self, member: &Member, place: Place, now: u32) -> Option<Candidate<'_>> {
        let all: Vec<_> = self.begun(place).collect();
        let count = |of: Beginner| all.iter().filter(|(beginner, ..)| *beginner == of).count();
        let begins = Beginner::of(&whole(&member.key), member.key.is_v6(), member.is_from_first);
        let own = count(begins);
        let has_several = |beginner: Beginner| count(beginner) >= own + 2;
        let are_all_established = all.iter().all(|(_, state, ..)| state.stage == Stage::Established);
        let may_go = |beginner: Beginner| match are_all_established {
            true => has_several(beginner),
            false => beginner == begins || count(beginner) >= own,
        };
        let rank = |beginner: Beginner, state: HeadState| {
            (if has_several(beginner) { count(beginner) } else { 0 }, state.idle(now))
        };
        let candidates = all.iter().filter(|(beginner, state, ..)| {
            may_go(*beginner) && (are_all_established || state.stage != Stage::Established)
        });
        let (_, _, head, words, seen) = *candidates.max_by_key(|(beginner, state, ..)| rank(*beginner, *state))?;
        Some((0, Entered::Evicted, head, words, seen))
    }

    /// Who has begun more than half of the connections of a bucket.
    pub(super) fn fullest(&self, place: Place) -> Option<IpAddr> {
        let all: Vec<Beginner> = self.begun(place).map(|(beginner, ..)| beginner).collect();
        let count = |of: Beginner| all.iter().filter(|beginner| **beginner == of).count();
        let most = all.iter().max_by_key(|beginner| count(**beginner))?;
        (count(*most) > WAYS / 2).then(|| most.address())
    }

    /// Removes the connections of some buckets that have expired. Returns their number.
    pub(super) fn expire(&self, buckets: Range<usize>, now: u32) -> usize {
        let heads = self.buckets[buckets].iter().flat_map(|bucket| &bucket.0);
        heads
            .filter(|head| {
                let seen = head.load();
                let is_old = HeadState::of(seen.value()).is_some_and(|state| self.timeouts.has_expired(state, now));
                // One that is used again meanwhile stays.
                is_old && !seen.is_changing() && head.update(seen, 0).is_ok()
            })
            .count()
    }

    /// The states of all connections.
    pub(super) fn states(&self) -> impl Iterator<Item = HeadState> {
        self.buckets.iter().flat_map(|bucket| &bucket.0).filter_map(|head| HeadState::of(head.load().value()))
    }
}

//! The datagrams that are being reassembled, and their fragments.
//!
//! All memory is allocated when the app starts. Datagrams are in a hash table whose places strangers cannot predict,
//! and in the order of their first fragments' arrival, one list for each family. So the next one to time out is the
//! first of a list.
//!
//! Room is made by those who have the most: of all links (the interface and the VLANs of a frame) that with the most
//! bytes or datagrams, of its sources likewise, and of their datagrams the oldest. Links and sources have classes by a
//! secret hash, so that who sends from many addresses takes room from its own link alone.

use bellows_arena::Fixed;
use bellows_packet::Packet;
use bellows_sys::keyed_hash::{KeyWords, KeyedHash};

use super::assemble::Sum;
use super::header::{DatagramKey, Piece, V4, V6};

/// No index.
const NONE: u32 = u32::MAX;

/// What a table has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Datagrams.
    pub(super) datagrams: usize,
    /// Fragments of a datagram.
    pub(super) fragments: usize,
    /// Bytes of packet buffers.
    pub(super) bytes: usize,
    /// Nanoseconds of each family.
    pub(super) timeouts: [u64; 2],
}

/// Why fragments are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Overlap,
    Duplicate,
    TooManyFragments,
    TooLong,
    Congestion,
    Evicted,
    NoMemory,
}

/// What became of a fragment.
#[derive(Debug)]
pub(super) enum Taken {
    /// It waits for others.
    Kept,
    /// It was the last one that its datagram needed.
    Complete(Complete),
    Dropped(Packet, Why),
}

/// A datagram whose fragments are all there. The caller frees it.
#[derive(Debug)]
pub(super) struct Complete(u32);

/// A datagram.
#[derive(Clone, Debug)]
struct Datagram {
    key: DatagramKey,
    /// Its place in the hash table.
    place: u32,
    /// When its first fragment arrived.
    since: u64,
    /// The next one in its place of the hash table, or the next free one.
    chain: u32,
    older: u32,
    newer: u32,
    /// Its class, and its neighbours there.
    class: u16,
    older_of_class: u32,
    newer_of_class: u32,
    /// Its fragments by their offsets.
    first: u32,
    last: u32,
    count: u32,
    /// Bytes of data that are there, and in all if that is known.
    received: u32,
    total: Option<u32>,
    /// The codepoints of congestion notification that were seen, as bits.
    congestion: u8,
    /// Why its further fragments are dropped, if they are.
    aborted: Option<Why>,
}

/// A fragment.
struct Fragment {
    packet: Option<Packet>,
    start: u32,
    end: u32,
    /// Where its data begins in the frame, and bytes of its headers that count for the datagram's length.
    data: u32,
    counted: u32,
    next: u32,
}

/// The datagrams of a family in the order of their arrival.
#[derive(Clone, Copy)]
struct ArrivalQueue {
    oldest: u32,
    newest: u32,
}

impl ArrivalQueue {
    const EMPTY: ArrivalQueue = ArrivalQueue { oldest: NONE, newest: NONE };
}

/// Classes of links, and of the sources of each.
const LINKS: usize = SOURCES;
const SOURCES: usize = 64;

/// What a class of links or of sources has in the table: datagrams, and bytes.
type Load = [usize; 2];
const DATAGRAMS: usize = 0;
const BYTES: usize = 1;

/// What all links and sources have in the table.
struct Loads {
    links: Vec<Load>,
    /// Those of a link one after the other.
    sources: Vec<Load>,
    queues: Vec<ArrivalQueue>,
}

impl Loads {
    fn none() -> Loads {
        let count = LINKS * SOURCES;
        Loads { links: vec![[0; 2]; LINKS], sources: vec![[0; 2]; count], queues: vec![ArrivalQueue::EMPTY; count] }
    }

    fn both(&mut self, class: u16) -> [&mut Load; 2] {
        let class = usize::from(class) % (LINKS * SOURCES);
        [&mut self.links[class / SOURCES], &mut self.sources[class]]
    }

    /// The class that has the most, and its oldest datagram.
    fn heaviest(&self, what: usize) -> u32 {
        let most = |loads: &[Load]| (0..).zip(loads).max_by_key(|(_, load)| load[what]).map_or(0, |(at, _)| at);
        let link: usize = most(&self.links);
        let sources = link * SOURCES..(link + 1) * SOURCES;
        let source: usize = most(&self.sources[sources.clone()]);
        self.queues[sources.start + source].oldest
    }
}

/// A datagram that has made room for another one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Evicted {
    pub(super) key: DatagramKey,
    pub(super) class: u16,
}

/// The datagrams that are being reassembled.
pub(super) struct ReassemblyTable {
    limits: Limits,
    hash: KeyedHash,
    /// These are on huge pages, because fragments come to any of them.
    places: Fixed<[u32]>,
    datagrams: Fixed<[Datagram]>,
    fragments: Fixed<[Fragment]>,
    free_datagram: u32,
    free_fragment: u32,
    queues: [ArrivalQueue; 2],
    loads: Loads,
    /// The last one that has made room.
    evicted: Option<Evicted>,
    used: usize,
    held: usize,
    bytes: usize,
}

/// Bytes of an ordinary packet buffer with its headroom and metadata, the smallest that a fragment takes.
pub(super) const BUFFER: usize = 2_240;

impl ReassemblyTable {
    /// A table without memory.
    pub(super) fn new(limits: Limits) -> ReassemblyTable {
        ReassemblyTable {
            limits,
            hash: KeyedHash::new(),
            places: Vec::new().into(),
            datagrams: Vec::new().into(),
            fragments: Vec::new().into(),
            free_datagram: 0,
            free_fragment: 0,
            queues: [ArrivalQueue::EMPTY; 2],
            loads: Loads::none(),
            evicted: None,
            used: 0,
            held: 0,
            bytes: 0,
        }
    }

    /// Allocates the memory, unless it is there.
    pub(super) fn allocate(&mut self) {
        if !self.places.is_empty() {
            return;
        }
        let limits = self.limits;
        let next = |index: usize, count| if index + 1 < count { index as u32 + 1 } else { NONE };
        let datagram = |index| Datagram::new(DatagramKey::V4([0; 2]), 0, 0, next(index, limits.datagrams), NONE, 0);
        let most = limits.bytes / BUFFER;
        let fragment =
            |index: usize| Fragment { packet: None, start: 0, end: 0, data: 0, counted: 0, next: next(index, most) };
        self.places = vec![NONE; (2 * limits.datagrams).next_power_of_two()].into();
        self.datagrams = (0..limits.datagrams).map(datagram).collect();
        self.fragments = (0..most).map(fragment).collect();
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    /// The number of datagrams, with those that are aborted.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// The number of fragments.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Bytes of the fragments' buffers.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The last datagram that has made room since the last call.
    pub(super) fn take_evicted(&mut self) -> Option<Evicted> {
        self.evicted.take()
    }

    /// When the next datagram times out.
    pub(super) fn next_timeout(&self) -> Option<u64> {
        let due =
            |(queue, timeout): (&ArrivalQueue, u64)| Some(self.datagrams.get(queue.oldest as usize)?.since + timeout);
        self.queues.iter().zip(self.limits.timeouts).filter_map(due).min()
    }

    /// Takes a fragment in, with the [hash](ReassemblyTable::hash) of its key, that an interface received. `free` gets other fragments that are dropped for it.
    pub(super) fn take(
        &mut self,
        packet: Packet,
        (piece, hash): (&Piece, u64),
        (interface, now): (u16, u64),
        mut free: impl FnMut(Packet, Why),
    ) -> Taken {
        let place = self.place(hash);
        let index = match self.find(place, &piece.key) {
            Some(index) => index,
            None => self.begin(place, piece.key, (interface, now), &mut free),
        };
        let cost = cost(&packet);
        if let Some(why) = self.datagrams[index as usize].aborted {
            return Taken::Dropped(packet, why);
        }
        let (start, end) = (piece.offset, piece.offset + piece.length());
        let before = match self.neighbour(index, start, end, piece, &packet) {
            Ok(before) => before,
            Err(Why::Duplicate) => return Taken::Dropped(packet, Why::Duplicate),
            Err(why) => {
                self.abort(index, why, free);
                return Taken::Dropped(packet, why);
            }
        };
        // Others make room, or this very one.
        while self.bytes + cost > self.limits.bytes || self.free_fragment == NONE {
            let Some(oldest) = self.evict(BYTES, &mut free) else { return Taken::Dropped(packet, Why::Evicted) };
            if oldest == index {
                return Taken::Dropped(packet, Why::Evicted);
            }
        }
        let (data, counted) = (piece.data, piece.counted);
        self.insert(index, before, Fragment { packet: Some(packet), start, end, data, counted, next: NONE });
        self.bytes += cost;
        let datagram = &mut self.datagrams[index as usize];
        self.loads.both(datagram.class).into_iter().for_each(|load| load[BYTES] += cost);
        datagram.congestion |= piece.congestion();
        if !piece.more {
            datagram.total = Some(end);
        }
        if datagram.total == Some(datagram.received) { Taken::Complete(Complete(index)) } else { Taken::Kept }
    }

    /// The fragment in front of the place of a new one, or [`NONE`].
    fn neighbour(&self, index: u32, start: u32, end: u32, piece: &Piece, packet: &Packet) -> Result<u32, Why> {
        let datagram = &self.datagrams[index as usize];
        let last_end = self.fragments.get(datagram.last as usize).map_or(0, |last| last.end);
        // Most arrive in order.
        let mut before = datagram.last;
        if start < last_end {
            before = NONE;
            let mut next = datagram.first;
            while let Some(fragment) = self.fragments.get(next as usize).filter(|fragment| fragment.start < end) {
                if fragment.end > start {
                    let is_same = (fragment.start, fragment.end) == (start, end)
                        && fragment.bytes() == &packet.bytes()[piece.data as usize..piece.end as usize]
                        && piece.more == (datagram.total != Some(end));
                    return Err(if is_same { Why::Duplicate } else { Why::Overlap });
                }
                before = next;
                next = fragment.next;
            }
        }
        // The end of the datagram is where the last fragment ends, and nowhere else.
        let is_behind = datagram.total.is_some_and(|total| end > total || !piece.more && end != total);
        if is_behind || !piece.more && last_end > end {
            return Err(Why::Overlap);
        }
        if datagram.count as usize >= self.limits.fragments {
            return Err(Why::TooManyFragments);
        }
        Ok(before)
    }

    /// Enters a fragment behind another one. There is a free place.
    fn insert(&mut self, index: u32, before: u32, mut fragment: Fragment) {
        let at = self.free_fragment;
        self.free_fragment = self.fragments[at as usize].next;
        let datagram = &mut self.datagrams[index as usize];
        datagram.received += fragment.end - fragment.start;
        datagram.count += 1;
        self.held += 1;
        fragment.next = match self.fragments.get_mut(before as usize) {
            Some(before) => std::mem::replace(&mut before.next, at),
            None => std::mem::replace(&mut datagram.first, at),
        };
        if fragment.next == NONE {
            datagram.last = at;
        }
        self.fragments[at as usize] = fragment;
    }

    /// Drops the fragments of a datagram, and those that are still to come.
    fn abort(&mut self, index: u32, why: Why, mut free: impl FnMut(Packet, Why)) {
        self.datagrams[index as usize].aborted = Some(why);
        while let Some((packet, _)) = self.pop(index) {
            free(packet, why);
        }
    }

    /// Forgets a datagram.
    fn abandon(&mut self, index: u32, why: Why, free: &mut impl FnMut(Packet, Why)) {
        while let Some((packet, _)) = self.pop(index) {
            free(packet, why);
        }
        self.remove(index);
    }

    /// Takes the first fragment out of a datagram, and where its data begins.
    fn pop(&mut self, index: u32) -> Option<(Packet, usize)> {
        let datagram = &mut self.datagrams[index as usize];
        let at = datagram.first;
        let fragment = self.fragments.get_mut(at as usize)?;
        let (packet, data) = (fragment.packet.take()?, fragment.data as usize);
        datagram.first = std::mem::replace(&mut fragment.next, self.free_fragment);
        datagram.count -= 1;
        if datagram.first == NONE {
            datagram.last = NONE;
        }
        self.free_fragment = at;
        self.held -= 1;
        let cost = cost(&packet);
        self.bytes -= cost;
        self.loads.both(datagram.class).into_iter().for_each(|load| load[BYTES] -= cost);
        Some((packet, data))
    }

    /// The first fragment of a complete datagram, and what all of them make.
    pub(super) fn first(&self, complete: &Complete) -> Option<(&Packet, Sum)> {
        let datagram = &self.datagrams[complete.0 as usize];
        let first = self.fragments.get(datagram.first as usize)?;
        let sum = Sum {
            data: first.data,
            counted: first.counted,
            length: datagram.received,
            congestion: datagram.congestion,
        };
        Some((first.packet.as_ref()?, sum))
    }

    /// Whether there is a datagram with a key, which has this hash.
    pub(super) fn has(&self, key: &DatagramKey, hash: u64) -> bool {
        self.used > 0 && self.find(self.place(hash), key).is_some()
    }

    /// Takes the fragments out of a complete datagram in order, each with the place of its data, and frees it.
    pub(super) fn finish(&mut self, complete: Complete, mut each: impl FnMut(Packet, usize)) {
        while let Some((packet, data)) = self.pop(complete.0) {
            each(packet, data);
        }
        self.remove(complete.0);
    }

    /// Forgets up to `most` datagrams whose time is over. Of each that was not aborted `expired` gets the fragments
    /// one by one, the first one with whether it is that of the datagram. Returns the number of those.
    pub(super) fn expire(&mut self, now: u64, most: usize, mut expired: impl FnMut(Packet, bool)) -> usize {
        let mut count = 0;
        for _ in 0..most {
            let timeouts = self.limits.timeouts;
            let is_due = |family: &usize| {
                let oldest = self.datagrams.get(self.queues[*family].oldest as usize);
                oldest.is_some_and(|datagram| datagram.since + timeouts[*family] <= now)
            };
            let Some(family) = [V4, V6].into_iter().find(is_due) else { break };
            let index = self.queues[family].oldest;
            let datagram = &self.datagrams[index as usize];
            count += usize::from(datagram.aborted.is_none());
            let mut is_first = self.fragments.get(datagram.first as usize).is_some_and(|first| first.start == 0);
            while let Some((packet, _)) = self.pop(index) {
                expired(packet, std::mem::take(&mut is_first));
            }
            self.remove(index);
        }
        count
    }

    /// Forgets the oldest datagram of the class that has the most. Returns it.
    fn evict(&mut self, what: usize, free: &mut impl FnMut(Packet, Why)) -> Option<u32> {
        let index = self.loads.heaviest(what);
        let datagram = self.datagrams.get(index as usize)?;
        self.evicted = Some(Evicted { key: datagram.key, class: datagram.class });
        self.abandon(index, Why::Evicted, free);
        Some(index)
    }

    /// The class of a link and a source.
    fn class(&self, key: &DatagramKey, interface: u16) -> u16 {
        // Of IPv6, a station has all addresses of a network.
        let (source, vlans) = match key {
            DatagramKey::V4([addresses, rest]) => (addresses >> 32, *rest as u32),
            DatagramKey::V6([network, .., rest]) => (*network, *rest as u32),
        };
        let words = [[u64::from(interface) << 32 | u64::from(vlans), 0], [source, 1 + key.family() as u64]];
        // The link, and then the source.
        let mut class = 0;
        let each = |hash: u64| class = class * SOURCES + hash as usize % SOURCES;
        self.hash.each(words.iter().map(KeyWords::Two), each);
        class as u16
    }

    /// Hashes keys, and adds their hashes to others. Hot: those of many keys overlap.
    pub(super) fn hash<'k>(&self, keys: impl Iterator<Item = &'k DatagramKey>, hashes: &mut Vec<u64>) {
        let words = keys.map(|key| match key {
            DatagramKey::V4(words) => KeyWords::Two(words),
            DatagramKey::V6(words) => KeyWords::Five(words),
        });
        self.hash.each(words, |hash| hashes.push(hash));
    }

    /// The place of a hash.
    fn place(&self, hash: u64) -> usize {
        hash as usize & (self.places.len() - 1)
    }

    fn find(&self, place: usize, key: &DatagramKey) -> Option<u32> {
        let mut index = self.places[place];
        while let Some(datagram) = self.datagrams.get(index as usize) {
            if datagram.key == *key {
                return Some(index);
            }
            index = datagram.chain;
        }
        None
    }

    /// Enters a datagram. If there is no room, another one is forgotten.
    fn begin(
        &mut self,
        place: usize,
        key: DatagramKey,
        (interface, now): (u16, u64),
        free: &mut impl FnMut(Packet, Why),
    ) -> u32 {
        if self.free_datagram == NONE {
            self.evict(DATAGRAMS, free);
        }
        let class = self.class(&key, interface);
        let index = self.free_datagram;
        let queue = &mut self.queues[key.family()];
        let older = std::mem::replace(&mut queue.newest, index);
        let datagram = &mut self.datagrams[index as usize];
        self.free_datagram = datagram.chain;
        let chain = std::mem::replace(&mut self.places[place], index);
        *datagram = Datagram::new(key, place as u32, now, chain, older, class);
        let queue_of_class = &mut self.loads.queues[usize::from(class)];
        datagram.older_of_class = std::mem::replace(&mut queue_of_class.newest, index);
        let older_of_class = datagram.older_of_class;
        match self.datagrams.get_mut(older_of_class as usize) {
            Some(older) => older.newer_of_class = index,
            None => queue_of_class.oldest = index,
        }
        self.loads.both(class).into_iter().for_each(|load| load[DATAGRAMS] += 1);
        match self.datagrams.get_mut(older as usize) {
            Some(older) => older.newer = index,
            None => queue.oldest = index,
        }
        self.used += 1;
        index
    }

    /// Removes a datagram without fragments.
    fn remove(&mut self, index: u32) {
        let Datagram { key, place, chain, older, newer, class, older_of_class, newer_of_class, .. } =
            self.datagrams[index as usize];
        let place = place as usize;
        self.loads.both(class).into_iter().for_each(|load| load[DATAGRAMS] -= 1);
        let queue = &mut self.loads.queues[usize::from(class)];
        match self.datagrams.get_mut(older_of_class as usize) {
            Some(older) => older.newer_of_class = newer_of_class,
            None => queue.oldest = newer_of_class,
        }
        match self.datagrams.get_mut(newer_of_class as usize) {
            Some(newer) => newer.older_of_class = older_of_class,
            None => queue.newest = older_of_class,
        }
        let queue = &mut self.queues[key.family()];
        match self.datagrams.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => queue.oldest = newer,
        }
        match self.datagrams.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => queue.newest = older,
        }
        if self.places[place] == index {
            self.places[place] = chain;
        } else {
            let mut before = self.places[place];
            while let Some(datagram) = self.datagrams.get_mut(before as usize) {
                if datagram.chain == index {
                    datagram.chain = chain;
                    break;
                }
                before = datagram.chain;
            }
        }
        self.datagrams[index as usize].chain = self.free_datagram;
        self.free_datagram = index;
        self.used -= 1;
    }
}

impl Datagram {
    fn new(key: DatagramKey, place: u32, since: u64, chain: u32, older: u32, class: u16) -> Datagram {
        Datagram {
            key,
            place,
            since,
            chain,
            older,
            newer: NONE,
            class,
            older_of_class: NONE,
            newer_of_class: NONE,
            first: NONE,
            last: NONE,
            count: 0,
            received: 0,
            total: None,
            congestion: 0,
            aborted: None,
        }
    }
}

impl Fragment {
    /// Its data.
    fn bytes(&self) -> &[u8] {
        self.packet.as_ref().and_then(|packet| packet.bytes().get(self.data as usize..)).unwrap_or_default()
    }
}

/// Bytes of a packet's buffer.
fn cost(packet: &Packet) -> usize {
    BUFFER.max(packet.headroom() + packet.len() + packet.tailroom())
}

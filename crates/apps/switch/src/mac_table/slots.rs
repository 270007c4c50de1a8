//! The entries of a table of MAC addresses: pairs of words that all threads read and change one by one.

use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::thread;
use std::time::Duration;

use bellows_arena::Fixed;
use bellows_sys::cache::prefetch;
use bellows_sys::keyed_hash::{KeyWords, KeyedHash};

use super::entry::{Entry, Hashed, Key, PORTS, PortNumber, VLANS, Value};

/// Entries in a cache line.
pub(super) const IN_A_LINE: usize = 4;

/// Lines in which an address can be, once by each of two parts of its hash. Their number is a power of two.
const LINES_OF_A_KEY: usize = 4;

/// Lines that a search for an entry that gives way looks through: about two microseconds.
const SEARCHED: usize = 128;

/// The value of an entry that is being entered or removed. It belongs to the thread that does so.
const BUSY: u64 = 1;

/// How long a thread that may wait does so for one that enters or removes an address.
const PAUSE: Duration = Duration::from_micros(50);

/// An entry: its key and its value. Both are 0 if it is free.
///
/// Who enters a key first claims a free entry by its value, then sets the key and the value. Who removes one claims it as
/// well, then clears both. So nobody else changes an entry that is neither free nor whole, and none stays so. Since each
/// value has a check of its key, a reader that is late sees that the value is not that of its key.
#[derive(Default)]
struct Pair {
    key: AtomicU64,
    value: AtomicU64,
}

impl Pair {
    /// Claims an entry, if it still has this value.
    fn claim(&self, value: u64) -> bool {
        // Who claims what another one has released sees all that it wrote.
        self.value.compare_exchange(value, BUSY, Acquire, Relaxed).is_ok()
    }

    /// Ends a claim.
    fn release(&self, key: Key, value: u64) {
        self.key.store(key.0, Release);
        self.value.store(value, Release);
    }
}

/// A cache line of entries.
#[repr(align(64))]
#[derive(Default)]
struct Line([Pair; IN_A_LINE]);

/// A table of a fixed size. An address is in the line that its hash selects, or in one of three neighbours; if all of
/// these are full, in four lines that another part of the hash selects. If those are full as well, one of the entries
/// there moves to its own other lines.
///
/// Two threads that enter an address at the same time while an entry of its lines expires may both enter it: the first
/// one in the lines counts, and the other expires.
pub(super) struct Slots {
    /// On huge pages, because frames come to any of them.
    lines: Fixed<[Line]>,
    /// Nobody outside knows which addresses share lines.
    secret: KeyedHash,
    /// A hash shifted by this is a line.
    shift: u32,
    used: AtomicUsize,
    /// How many addresses are at each port.
    at_ports: Box<[AtomicU32]>,
    /// How many are in each VLAN, and the number of VLANs that have some.
    in_vlans: Box<[AtomicU32]>,
    vlans: AtomicUsize,
    /// Whether an address has ever been in its second lines.
    overflows: AtomicBool,
    /// Where the next search for an entry that gives way begins.
    search: AtomicUsize,
}

/// The first lines of keys. A loop that has it by value keeps its parts in registers.
#[derive(Clone, Copy)]
pub(super) struct FirstLines<'s> {
    lines: &'s [Line],
    shift: u32,
}

impl<'s> FirstLines<'s> {
    /// That of a hash. Hot.
    #[inline(always)]
    fn of(self, hash: u64) -> &'s Line {
        &self.lines[(hash >> self.shift) as usize & (self.lines.len() - 1)]
    }

    /// The port of a destination, and whether it counts: both keys are in their first lines, and the source is
    /// [known](Slots::knows). Hot: there is no branch, because no one is taken nearly always.
    #[inline(always)]
    pub(super) fn look_up_if_knows(
        self,
        [destination, source]: [Hashed; 2],
        port: PortNumber,
        age: u32,
    ) -> (PortNumber, bool) {
        let find = |hashed: Hashed| find_in(self.of(hashed.hash), hashed.key);
        let ((has_destination, to), (has_source, from)) = (find(destination), find(source));
        let stays = from.stays(Value::seen(source.hash, port, age));
        (to.any_port(), has_destination & to.is_of(destination.hash) & has_source & stays)
    }
}

/// What became of an entry that was to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is another one now; what it was before.
    Done { before: Option<Entry>, after: Entry },
    /// It stays as it was.
    Kept,
    /// There is no room in its lines.
    NoRoom,
    /// Nothing has changed, because another thread enters or removes an address in its lines.
    Busy,
}

impl Slots {
    /// An empty table of a power of two of lines, at least four.
    pub(super) fn new(lines: usize) -> Slots {
        debug_assert!(lines.is_power_of_two() && lines >= LINES_OF_A_KEY);
        let counters = |count: usize| (0..count).map(|_| AtomicU32::new(0)).collect();
        Slots {
            lines: (0..lines).map(|_| Line::default()).collect(),
            secret: KeyedHash::new(),
            shift: u64::BITS - lines.ilog2(),
            used: AtomicUsize::new(0),
            at_ports: counters(PORTS),
            in_vlans: counters(VLANS),
            vlans: AtomicUsize::new(0),
            overflows: AtomicBool::new(false),
            search: AtomicUsize::new(0),
        }
    }

    /// A key with its hash.
    pub(super) fn hashed(&self, key: Key) -> Hashed {
        Hashed { key, hash: self.secret.hash(KeyWords::One(&[key.0])) }
    }

    /// Hashes pairs of keys, and prefetches their first lines. Hot.
    #[inline(always)]
    pub(super) fn hash(&self, keys: impl Iterator<Item = [Key; 2]>, hashes: &mut [[u64; 2]]) {
        let (mut hashes, first) = (hashes.iter_mut(), self.first_lines());
        self.secret.each_pair(keys.map(|pair| pair.map(|key| key.0)), |pair| {
            pair.iter().for_each(|&hash| prefetch(std::ptr::from_ref(first.of(hash)).cast()));
            if let Some(hashes) = hashes.next() {
                *hashes = pair;
            }
        });
    }

    /// Prefetches the lines where a key can be that is not in its first line.
    #[inline(always)]
    pub(super) fn prefetch_others(&self, hash: u64) {
        let first = self.line_of(hash);
        (1..LINES_OF_A_KEY).for_each(|other| prefetch((&raw const self.lines[first ^ other]).cast()));
    }

    /// The first lines of keys, for a loop.
    #[inline(always)]
    pub(super) fn first_lines(&self) -> FirstLines<'_> {
        FirstLines { lines: &self.lines, shift: self.shift }
    }

    /// The number of entries.
    pub(super) fn used(&self) -> usize {
        // A thread may count an entry that is gone before another one counts that it came.
        usize::try_from(self.used.load(Relaxed) as isize).unwrap_or(0)
    }

    /// The number of entries with a port.
    pub(super) fn at_port(&self, port: PortNumber) -> u32 {
        u32::try_from(self.at_ports[usize::from(port) % PORTS].load(Relaxed) as i32).unwrap_or(0)
    }

    /// The number of entries in a VLAN.
    pub(super) fn in_vlan(&self, vlan: u16) -> u32 {
        u32::try_from(self.in_vlans[usize::from(vlan) % VLANS].load(Relaxed) as i32).unwrap_or(0)
    }

    /// The number of VLANs that have entries.
    pub(super) fn vlans(&self) -> usize {
        usize::try_from(self.vlans.load(Relaxed) as isize).unwrap_or(0)
    }

    /// Counts an entry that is in the place of another one.
    fn count(&self, before: Option<Entry>, after: Option<Entry>) {
        if let Some(after) = after {
            self.used.fetch_add(1, Relaxed);
            self.at_ports[usize::from(after.port) % PORTS].fetch_add(1, Relaxed);
            if self.in_vlans[usize::from(after.key.vlan()) % VLANS].fetch_add(1, Relaxed) == 0 {
                self.vlans.fetch_add(1, Relaxed);
            }
        }
        if let Some(before) = before {
            self.used.fetch_sub(1, Relaxed);
            self.at_ports[usize::from(before.port) % PORTS].fetch_sub(1, Relaxed);
            if self.in_vlans[usize::from(before.key.vlan()) % VLANS].fetch_sub(1, Relaxed) == 1 {
                self.vlans.fetch_sub(1, Relaxed);
            }
        }
    }

    pub(super) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// The number of entries for which there is room.
    pub(super) fn len(&self) -> usize {
        self.lines.len() * IN_A_LINE
    }

    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.lines)
    }

    /// The number of the line of a hash. Hot.
    #[inline(always)]
    fn line_of(&self, hash: u64) -> usize {
        (hash >> self.shift) as usize & (self.lines.len() - 1)
    }

    /// The pair of a key, and its value. Hot.
    #[inline(always)]
    fn find(&self, Hashed { key, hash }: Hashed) -> Option<Value> {
        let first = self.line_of(hash);
        match find_in(&self.lines[first], key) {
            (true, value) => Some(value),
            (false, _) => self.find_in_others(Hashed { key, hash }, first),
        }
    }

    #[inline(never)]
    fn find_in_others(&self, Hashed { key, hash }: Hashed, first: usize) -> Option<Value> {
        let find = |line: usize| {
            let (is_there, value) = find_in(&self.lines[line], key);
            is_there.then_some(value)
        };
        let near = (1..LINES_OF_A_KEY).find_map(|other| find(first ^ other));
        if near.is_some() || !self.overflows.load(Relaxed) {
            return near;
        }
        let second = self.second_line_of(hash);
        (0..LINES_OF_A_KEY).find_map(|other| find(second ^ other))
    }

    /// The line by the other part of a hash, which the check has no bits of.
    #[inline]
    fn second_line_of(&self, hash: u64) -> usize {
        self.line_of(hash.rotate_left(22))
    }

    /// The port of a key other than 0. Hot.
    #[inline(always)]
    pub(super) fn look_up(&self, hashed: Hashed) -> Option<PortNumber> {
        self.find(hashed)?.port(hashed.hash)
    }

    /// Whether a key is known at a port with this age, or for good, so that nothing is to be changed. Hot.
    #[inline(always)]
    pub(super) fn knows(&self, hashed: Hashed, port: PortNumber, age: u32) -> bool {
        self.find(hashed).is_some_and(|value| value.stays(Value::seen(hashed.hash, port, age)))
    }

    /// The places of a key in the order in which they are taken.
    fn places(&self, hash: u64) -> impl Iterator<Item = &Pair> {
        [self.line_of(hash), self.second_line_of(hash)]
            .into_iter()
            .flat_map(move |first| (0..LINES_OF_A_KEY).flat_map(move |other| &self.lines[first ^ other].0))
    }

    #[cfg(test)]
    pub(super) fn share_lines(&self, one: Key, other: Key) -> bool {
        let [one, other] = [one, other].map(|key| self.line_of(self.hashed(key).hash) / LINES_OF_A_KEY);
        one == other
    }

    /// Changes the entry of a key to what `decide` makes of it, or enters it.
    #[cold]
    pub(super) fn change(&self, hashed: Hashed, decide: impl Fn(Option<Entry>) -> Option<Entry>) -> Change {
        self.change_moving(hashed, decide, |entry| !entry.is_static)
    }

    /// Changes an entry, and makes room for it by moving one of those that may move. A copy of the table line by line, or a
    /// look-up on another thread, may miss what moves, so what frames bring moves no static entry.
    fn change_moving(
        &self,
        hashed: Hashed,
        decide: impl Fn(Option<Entry>) -> Option<Entry>,
        may_move: fn(&Entry) -> bool,
    ) -> Change {
        match self.change_in_place(hashed, &decide) {
            Change::NoRoom if self.moves_one(hashed, may_move) => self.change_in_place(hashed, &decide),
            change => change,
        }
    }

    /// Moves an entry that has a place of a key to its own other lines, if one has room there.
    fn moves_one(&self, Hashed { hash, .. }: Hashed, may_move: fn(&Entry) -> bool) -> bool {
        let start_of = |line: usize| line & !(LINES_OF_A_KEY - 1);
        let both = |hash: u64| [self.line_of(hash), self.second_line_of(hash)].map(start_of);
        both(hash).into_iter().any(|start| {
            let mut pairs = self.pairs(start..start + LINES_OF_A_KEY).filter(|(_, entry)| may_move(entry));
            pairs.any(|(pair, entry)| {
                let hash = self.hashed(entry.key).hash;
                let other = both(hash).into_iter().find(|other| *other != start);
                other.is_some_and(|other| self.moves_to(other, pair, entry, hash))
            })
        })
    }

    /// Moves an entry to lines where it may be as well, if they have room.
    fn moves_to(&self, start: usize, pair: &Pair, entry: Entry, hash: u64) -> bool {
        let places = self.lines[start..start + LINES_OF_A_KEY].iter().flat_map(|line| &line.0);
        let is_free = |place: &&Pair| place.key.load(Acquire) == 0 && place.value.load(Acquire) == 0;
        let Some(place) = places.into_iter().find(is_free) else { return false };
        self.overflows.store(true, Release);
        if !place.claim(0) {
            return false;
        }
        place.release(entry.key, entry.value(hash).0);
        self.count(None, Some(entry));
        let is_moved = self.remove_pair(pair, entry);
        if !is_moved {
            // It was used meanwhile: that one is right.
            self.remove_pair(place, entry);
        }
        is_moved
    }

    fn change_in_place(&self, hashed: Hashed, decide: &impl Fn(Option<Entry>) -> Option<Entry>) -> Change {
        let Hashed { key, hash } = hashed;
        // Others may change the lines meanwhile; there are not many places.
        for _ in 0..LINES_OF_A_KEY * IN_A_LINE {
            // One look at each place, so that threads that enter the same key choose the same place: between two looks,
            // places before it might be taken, and the key be entered behind them.
            let (mut free, mut known, mut is_busy) = (None, None, false);
            for (number, place) in self.places(hash).enumerate() {
                if number == LINES_OF_A_KEY * IN_A_LINE && free.is_some() && !self.overflows.load(Acquire) {
                    break;
                }
                let other = place.key.load(Acquire);
                if other == key.0 {
                    known = Some(place);
                    break;
                }
                let value = place.value.load(Acquire);
                is_busy |= free.is_none() && value == BUSY;
                free = free.or((other == 0 && value == 0).then_some((number, place)));
            }
            if let Some(place) = known {
                let value = place.value.load(Acquire);
                if let Some(before) = Value(value).entry(hashed) {
                    let Some(after) = decide(Some(before)) else { return Change::Kept };
                    let new = after.value(hash).0;
                    if place.value.compare_exchange(value, new, AcqRel, Relaxed).is_err() {
                        continue;
                    }
                    if place.key.load(Acquire) != key.0 {
                        // The entry was removed since, and the value is that of a key that has the same check.
                        if place.claim(new) {
                            let key = Key(place.key.load(Relaxed));
                            place.release(Key::default(), 0);
                            self.count(Some(Entry { key, ..before }), None);
                        }
                        continue;
                    }
                    if before.port != after.port {
                        self.count(Some(before), Some(after));
                    }
                    return Change::Done { before: Some(before), after };
                }
                // The key is being entered or removed.
                is_busy = true;
            }
            if is_busy {
                // Perhaps with this key.
                std::hint::spin_loop();
                continue;
            }
            let Some((number, place)) = free else { return Change::NoRoom };
            if number >= LINES_OF_A_KEY * IN_A_LINE {
                // Before anybody can find the key there.
                self.overflows.store(true, Release);
            }
            let Some(after) = decide(None) else { return Change::Kept };
            if place.claim(0) {
                place.release(key, after.value(hash).0);
                self.count(None, Some(after));
                return Change::Done { before: None, after };
            }
        }
        Change::Busy
    }

    /// Changes the entry of a key as [`change`](Self::change) does, but any other may move for it, and waits while its lines
    /// are busy.
    pub(super) fn change_waiting(&self, hashed: Hashed, decide: impl Fn(Option<Entry>) -> Option<Entry>) -> Change {
        loop {
            match self.change_moving(hashed, &decide, |_| true) {
                Change::Busy => thread::sleep(PAUSE),
                outcome => return outcome,
            }
        }
    }

    /// Enters what must not be missing, in the place of an entry that can be learned again if there is no other.
    /// Returns false if there is not even such a place.
    pub(super) fn enter(&self, entry: Entry) -> bool {
        let hashed = self.hashed(entry.key);
        for _ in 0..LINES_OF_A_KEY * IN_A_LINE {
            if self.change_waiting(hashed, |_| Some(entry)) != Change::NoRoom {
                return true;
            }
            if self.remove_one_beside(hashed, |other, _| (!other.is_static).then_some(())).is_none() {
                return false;
            }
        }
        false
    }

    /// Removes one of the entries that share the lines of a key: that of the highest rank, if `rank` gives one to any. It
    /// gets an entry, and all of them.
    pub(super) fn remove_one_beside<R: Ord>(
        &self,
        Hashed { hash, .. }: Hashed,
        rank: impl Fn(&Entry, &[Entry]) -> Option<R>,
    ) -> Option<Entry> {
        let first = self.line_of(hash) & !(LINES_OF_A_KEY - 1);
        let (pairs, all): (Vec<&Pair>, Vec<Entry>) = self.pairs(first..first + LINES_OF_A_KEY).unzip();
        let ranked = pairs.into_iter().zip(&all).filter_map(|(pair, entry)| Some((rank(entry, &all)?, pair, entry)));
        let (_, pair, entry) = ranked.max_by(|(one, ..), (other, ..)| one.cmp(other))?;
        self.remove_pair(pair, *entry).then_some(*entry)
    }

    /// Removes one entry for which `gives_way` holds, wherever it is. `None` if the part of the table that is looked
    /// through has none; the next call looks through another one.
    pub(super) fn remove_one(&self, gives_way: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let start = self.search.fetch_add(SEARCHED, Relaxed);
        let lines = (start..start + SEARCHED.min(self.lines.len())).map(|line| line & (self.lines.len() - 1));
        for line in lines {
            for (pair, entry) in self.pairs(line..line + 1).filter(|(_, entry)| gives_way(entry)) {
                if self.remove_pair(pair, entry) {
                    return Some(entry);
                }
            }
        }
        None
    }

    /// The entries of some lines.
    pub(super) fn entries(&self, lines: Range<usize>) -> impl Iterator<Item = Entry> {
        self.pairs(lines).map(|(_, entry)| entry)
    }

    fn pairs(&self, lines: Range<usize>) -> impl Iterator<Item = (&Pair, Entry)> {
        let pairs = self.lines[lines].iter().flat_map(|line| &line.0);
        pairs.filter_map(|pair| {
            let key = Key(pair.key.load(Acquire));
            let value = Value(pair.value.load(Acquire));
            if key.0 == 0 { None } else { Some((pair, value.entry(self.hashed(key))?)) }
        })
    }

    /// Removes some entries of some lines. Returns their number.
    pub(super) fn remove(&self, lines: Range<usize>, is_meant: impl Fn(Entry) -> bool) -> usize {
        let meant = self.pairs(lines).filter(|(_, entry)| is_meant(*entry));
        meant.filter(|(pair, entry)| self.remove_pair(pair, *entry)).count()
    }

    /// Removes an entry, unless it is used again meanwhile.
    fn remove_pair(&self, pair: &Pair, entry: Entry) -> bool {
        let value = entry.value(self.hashed(entry.key).hash);
        let is_same = pair.claim(value.0);
        if is_same {
            pair.release(Key::default(), 0);
            self.count(Some(entry), None);
        }
        is_same
    }
}

/// Whether a key is in a line, and its value, or any. Hot: all places are compared, because the one that is right cannot
/// be predicted.
#[inline(always)]
fn find_in(Line(pairs): &Line, key: Key) -> (bool, Value) {
    let next = |place, index: usize| if pairs[index].key.load(Relaxed) == key.0 { index } else { place };
    let place = (0..IN_A_LINE).rev().fold(IN_A_LINE, next);
    (place < IN_A_LINE, Value(pairs[place % IN_A_LINE].value.load(Relaxed)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::super::entry::{AGES, MAX_MOVES, PORTS};
    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Enter(Entry),
        Remove(u32),
    }

    /// A station of a few, in two VLANs.
    fn key(station: u64) -> Key {
        Key::new(station / 2 * 0x0100_0000_0002, (station % 2) as u16 * 4094)
    }

    fn entry() -> impl Strategy<Value = Entry> {
        let flags = (any::<bool>(), any::<bool>(), 0..=MAX_MOVES, any::<u16>());
        (2u64..120, 0..PORTS as u16, 0..AGES, flags).prop_map(|(station, port, age, flags)| {
            let (is_static, is_held, moves, since) = flags;
            Entry { key: key(station), port, age, is_static, is_held, moves, since }
        })
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![9 => entry().prop_map(Step::Enter), 1 => (0..AGES).prop_map(Step::Remove)]
    }

    /// Where nothing else has room for what frames bring, entries move to their other lines, but for static ones.
    #[test]
    fn static_entries_stay_in_their_lines() {
        let slots = Slots::new(64);
        let entry = |station, is_static| {
            let [port, since] = [1, 0];
            Entry { key: key(station), port, age: 0, is_static, is_held: false, moves: 0, since }
        };
        let places = |is_static: bool| {
            let line = |line: usize| slots.entries(line..line + 1).map(move |entry| (line, entry));
            let kept = (0..slots.lines()).flat_map(line).filter(|(_, entry)| entry.is_static == is_static);
            kept.map(|(line, entry)| (entry.key.0, line)).collect::<std::collections::BTreeMap<u64, usize>>()
        };
        for station in 2..34 {
            assert!(slots.enter(entry(station, true)));
        }
        let before = places(true);
        let mut moved = 0;
        for station in 34..2_000 {
            let learned = places(false);
            slots.change(slots.hashed(key(station)), |_| Some(entry(station, false)));
            let after = places(false);
            moved += learned.iter().filter(|(key, line)| after.get(key) != Some(line)).count();
            assert_eq!(places(true), before);
        }
        assert!(moved > 0);
    }

    proptest! {
        /// Against a map.
        #[test]
        fn entries_are_those_of_a_map(steps in prop::collection::vec(step(), 0..300)) {
            let slots = Slots::new(8);
            let mut model: HashMap<Key, Entry> = HashMap::new();
            for step in steps {
                match step {
                    Step::Enter(entry) => {
                        let before = model.get(&entry.key).copied();
                        let change = slots.change(slots.hashed(entry.key), |it| { assert_eq!(it, before); Some(entry) });
                        if change == Change::NoRoom {
                            prop_assert!(before.is_none());
                            prop_assert!(slots.places(slots.hashed(entry.key).hash).all(|place| place.key.load(Relaxed) != 0));
                            continue;
                        }
                        prop_assert_eq!(change, Change::Done { before, after: entry });
                        model.insert(entry.key, entry);
                        prop_assert_eq!(slots.change(slots.hashed(entry.key), |_| None), Change::Kept);
                    }
                    Step::Remove(age) => {
                        let before = model.len();
                        model.retain(|_, entry| entry.age != age);
                        let removed = slots.remove(0..slots.lines(), |entry| entry.age == age);
                        prop_assert_eq!(removed, before - model.len());
                    }
                }
                let found: HashMap<Key, Entry> =
                    slots.entries(0..slots.lines()).map(|entry| (entry.key, entry)).collect();
                prop_assert_eq!(&found, &model);
                prop_assert_eq!(slots.used(), model.len());
                for port in model.values().map(|entry| entry.port) {
                    let there = model.values().filter(|entry| entry.port == port).count();
                    prop_assert_eq!(slots.at_port(port) as usize, there);
                }
                for vlan in [0, 4094] {
                    let there = model.keys().filter(|key| key.vlan() == vlan).count();
                    prop_assert_eq!(slots.in_vlan(vlan) as usize, there);
                }
                let vlans: std::collections::HashSet<u16> = model.keys().map(|key| key.vlan()).collect();
                prop_assert_eq!(slots.vlans(), vlans.len());
                for key in (2..120).map(key) {
                    let known = model.get(&key).copied();
                    let key = slots.hashed(key);
                    prop_assert_eq!(slots.look_up(key), known.map(|entry| entry.port));
                    if let Some(entry) = known {
                        prop_assert!(slots.knows(key, entry.port, entry.age));
                        prop_assert!(!slots.knows(key, entry.port ^ 1, entry.age));
                        let (port, counts) = slots.first_lines().look_up_if_knows([key; 2], entry.port, entry.age);
                        prop_assert!(!counts || port == entry.port);
                        prop_assert!(!slots.first_lines().look_up_if_knows([key; 2], entry.port ^ 1, entry.age).1);
                        prop_assert_eq!(slots.knows(key, entry.port, entry.age ^ 1), entry.is_static);
                    }
                }
            }
        }
    }

    #[test]
    fn a_table_that_is_more_than_half_full_has_room_for_more() {
        let slots = Slots::new(256);
        for station in 2..702 {
            let entry = Entry { key: key(2 * station), ..Entry::default() };
            let change = slots.change(slots.hashed(entry.key), |_| Some(entry));
            assert_eq!(change, Change::Done { before: None, after: entry }, "{station}");
        }
        assert_eq!((slots.used(), slots.at_port(0), slots.entries(0..256).count()), (700, 700, 700));
        assert!((2..702).all(|station| slots.look_up(slots.hashed(key(2 * station))).is_some()));
    }

    /// Threads that enter the same keys at different ports: each reader sees one of them, and none is lost.
    #[test]
    fn threads_enter_each_key_once() {
        let slots = Slots::new(64);
        std::thread::scope(|scope| {
            for port in 0..3 {
                let slots = &slots;
                scope.spawn(move || {
                    for round in 0..200u32 {
                        for key in (2..102).map(key) {
                            let entry = Entry { key, port, age: round % AGES, ..Entry::default() };
                            assert_ne!(slots.change_waiting(slots.hashed(key), |_| Some(entry)), Change::NoRoom);
                            assert!(slots.look_up(slots.hashed(key)).is_some_and(|port| port < 3));
                        }
                    }
                });
            }
        });
        assert_eq!((slots.entries(0..slots.lines()).count(), slots.used()), (100, 100));
        assert_eq!((0..3).map(|port| slots.at_port(port)).sum::<u32>(), 100);
    }

    /// Whoever enters or removes a key may be held up between any two words for as long as it likes.
    #[test]
    fn a_thread_that_is_held_up_loses_no_place() {
        let slots = Slots::new(4);
        let [one, other] = [2, 40].map(|station| Entry { key: key(station), port: 1, ..Entry::default() });
        let hashed = slots.hashed(one.key);
        let moved = Entry { port: 2, ..one };
        let change = || slots.change(hashed, |_| Some(moved));
        let place = slots.places(hashed.hash).next().unwrap();
        let held_up = |when: &str| {
            assert_eq!(change(), Change::Busy, "{when}");
            assert_eq!((slots.remove(0..4, |_| true), slots.look_up(hashed)), (0, None), "{when}");
        };
        assert!(place.claim(0));
        held_up("an entry is claimed");
        place.key.store(one.key.0, Release);
        held_up("an entry has its key");
        place.value.store(one.value(hashed.hash).0, Release);
        slots.count(None, Some(one));
        assert_eq!(change(), Change::Done { before: Some(one), after: moved });
        assert!(place.claim(moved.value(hashed.hash).0));
        held_up("an entry is to be removed");
        place.key.store(0, Release);
        held_up("an entry has lost its key");
        place.value.store(0, Release);
        slots.count(Some(moved), None);
        assert_eq!(change(), Change::Done { before: None, after: moved });
        assert!(slots.enter(other) && slots.remove(0..4, |_| true) == 2 && slots.used() == 0);
    }

    #[test]
    fn what_must_not_be_missing_takes_the_place_of_another() {
        let slots = Slots::new(4);
        let entry = |station, is_static| Entry { key: key(station), is_static, ..Entry::default() };
        assert!((2..18).all(|station| slots.enter(entry(station, false))));
        assert!((20..36).all(|station| slots.enter(entry(station, true))));
        assert!(!slots.enter(entry(40, true)) && slots.enter(entry(20, true)));
        assert!(slots.entries(0..4).all(|entry| entry.is_static) && slots.used() == 16);
    }

    /// Keys are entered and removed all the time, each at a port of its own: nobody finds one at another's port.
    #[test]
    fn no_thread_takes_the_value_of_another_key() {
        let slots = Slots::new(4);
        let port = |key: Key| (key.0 % 4_093) as PortNumber;
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let slots = &slots;
                scope.spawn(move || {
                    for round in 0..4_000u64 {
                        let key = key(2 + (round * 7 + thread * 31) % 100);
                        slots.change(slots.hashed(key), |_| Some(Entry { key, port: port(key), ..Entry::default() }));
                        for other in (2..102).map(super::tests::key) {
                            assert!(slots.look_up(slots.hashed(other)).is_none_or(|found| found == port(other)));
                        }
                        slots.remove(0..4, |entry| entry.key == key && entry.port == port(key));
                    }
                });
            }
        });
        slots.remove(0..4, |_| true);
        let is_free = |pair: &Pair| pair.key.load(Relaxed) == 0 && pair.value.load(Relaxed) == 0;
        assert!(slots.lines.iter().flat_map(|line| &line.0).all(is_free), "no place is lost");
        assert_eq!(slots.used(), 0);
    }
}

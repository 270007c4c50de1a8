//! The entries of a table of MAC addresses: pairs of words that all threads read and change one by one.

use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use bellows_sys::cache::prefetch;

use super::entry::{Entry, Key, PORTS, PortNumber, Value};

/// Entries in a cache line.
pub(super) const IN_A_LINE: usize = 4;

/// Lines in which an address can be. Their number is a power of two.
const LINES_OF_A_KEY: usize = 4;

/// The value of an entry that is being removed.
const REMOVED: u64 = 1;

/// An entry: its key and its value. Both are 0 if it is free.
///
/// Who enters a key first claims a free entry by its key, then sets the value; until then the key is unknown. Who removes
/// one first takes its value, then its key. Since each value has a check of its key, a reader that is late sees that the
/// value is not that of its key.
#[derive(Default)]
struct Pair {
    key: AtomicU64,
    value: AtomicU64,
}

/// A cache line of entries.
#[repr(align(64))]
#[derive(Default)]
struct Line([Pair; IN_A_LINE]);

/// A table of a fixed size. An address is in the line that its hash selects, or in one of three neighbours.
///
/// Two threads that enter an address at the same time while an entry of its lines expires may both enter it: the first
/// one in the lines counts, and the other expires.
pub(super) struct Slots {
    lines: Box<[Line]>,
    /// A hash shifted by this is a line.
    shift: u32,
    used: AtomicUsize,
    /// How many addresses are at each port.
    at_ports: Box<[AtomicU32]>,
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
}

impl Slots {
    /// An empty table of a power of two of lines, at least four.
    pub(super) fn new(lines: usize) -> Slots {
        debug_assert!(lines.is_power_of_two() && lines >= LINES_OF_A_KEY);
        Slots {
            lines: (0..lines).map(|_| Line::default()).collect(),
            shift: u64::BITS - lines.ilog2(),
            used: AtomicUsize::new(0),
            at_ports: (0..PORTS).map(|_| AtomicU32::new(0)).collect(),
        }
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

    /// Counts an entry that is in the place of another one.
    fn count(&self, before: Option<Entry>, after: Option<Entry>) {
        if let Some(after) = after {
            self.used.fetch_add(1, Relaxed);
            self.at_ports[usize::from(after.port) % PORTS].fetch_add(1, Relaxed);
        }
        if let Some(before) = before {
            self.used.fetch_sub(1, Relaxed);
            self.at_ports[usize::from(before.port) % PORTS].fetch_sub(1, Relaxed);
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

    /// Prefetches the entries of a key. Hot.
    #[inline(always)]
    pub(super) fn prefetch(&self, key: Key) {
        prefetch(std::ptr::from_ref(&self.lines[self.line_of(key.hash())]).cast());
    }

    /// The pair of a key, and its value. Hot.
    #[inline(always)]
    fn find(&self, key: Key, hash: u64) -> Option<Value> {
        let first = self.line_of(hash);
        match find_in(&self.lines[first], key) {
            Some(value) => Some(value),
            None => self.find_in_others(key, first),
        }
    }

    #[inline(never)]
    fn find_in_others(&self, key: Key, first: usize) -> Option<Value> {
        (1..LINES_OF_A_KEY).find_map(|other| find_in(&self.lines[first ^ other], key))
    }

    /// The port of a key other than 0. Hot.
    #[inline(always)]
    pub(super) fn look_up(&self, key: Key) -> Option<PortNumber> {
        let hash = key.hash();
        self.find(key, hash)?.port(hash)
    }

    /// Whether a key is known at a port with this age, or for good, so that nothing is to be changed. Hot.
    #[inline(always)]
    pub(super) fn knows(&self, key: Key, port: PortNumber, age: u32) -> bool {
        let hash = key.hash();
        self.find(key, hash).is_some_and(|value| value.stays(Value::seen(hash, port, age)))
    }

    /// The port of a key, if another one is [known](Slots::knows), and both are in their first lines. Hot.
    #[inline(always)]
    pub(super) fn look_up_if_knows(&self, key: Key, other: Key, port: PortNumber, age: u32) -> Option<PortNumber> {
        let [hash, other_hash] = [key, other].map(Key::hash);
        let value = find_in(&self.lines[self.line_of(hash)], key)?;
        let known = find_in(&self.lines[self.line_of(other_hash)], other)?;
        let found = value.port(hash)?;
        known.stays(Value::seen(other_hash, port, age)).then_some(found)
    }

    /// The places of a key in the order in which they are taken.
    fn places(&self, key: Key) -> impl Iterator<Item = &Pair> {
        let first = self.line_of(key.hash());
        (0..LINES_OF_A_KEY).flat_map(move |other| &self.lines[first ^ other].0)
    }

    /// Changes the entry of a key to what `decide` makes of it, or enters it.
    #[cold]
    pub(super) fn change(&self, key: Key, decide: impl Fn(Option<Entry>) -> Option<Entry>) -> Change {
        // Others may change the lines meanwhile; there are not many places.
        for _ in 0..LINES_OF_A_KEY * IN_A_LINE {
            // One look at each place, so that threads that enter the same key choose the same place: between two looks,
            // places before it might be taken, and the key be entered behind them.
            let (mut free, mut known) = (None, None);
            for place in self.places(key) {
                let other = place.key.load(Acquire);
                if other == key.0 {
                    known = Some(place);
                    break;
                }
                free = free.or((other == 0 && place.value.load(Acquire) == 0).then_some(place));
            }
            let Some(place) = known.or(free) else { return Change::NoRoom };
            let value = if known.is_some() { place.value.load(Acquire) } else { 0 };
            let before = Value(value).entry(key);
            // A value without an entry is that of a key which is being entered or removed.
            if before.is_none() && value != 0 {
                std::hint::spin_loop();
                continue;
            }
            let Some(after) = decide(before) else { return Change::Kept };
            if known.is_none() && place.key.compare_exchange(0, key.0, Release, Relaxed).is_err() {
                continue;
            }
            // Who reads a 0 that a remover has written sees what it did to the key as well.
            if place.value.compare_exchange(value, after.value().0, AcqRel, Relaxed).is_ok() {
                if known.is_some() && place.key.load(Acquire) != key.0 {
                    // The entry was removed between the looks at its key and at its value. Nobody else takes the value
                    // of another key away.
                    let _ = place.value.compare_exchange(after.value().0, 0, Release, Relaxed);
                    continue;
                }
                if before.map(|before| before.port) != Some(after.port) {
                    self.count(before, Some(after));
                }
                return Change::Done { before, after };
            }
        }
        Change::NoRoom
    }

    /// Enters what must not be missing, in the place of an entry that can be learned again if there is no other.
    /// Returns false if there is not even such a place.
    pub(super) fn enter(&self, entry: Entry) -> bool {
        for _ in 0..LINES_OF_A_KEY * IN_A_LINE {
            if self.change(entry.key, |_| Some(entry)) != Change::NoRoom {
                return true;
            }
            let first = self.line_of(entry.key.hash()) & !(LINES_OF_A_KEY - 1);
            let lines = first..first + LINES_OF_A_KEY;
            let Some(other) = self.entries(lines.clone()).find(|other| !other.is_static) else { return false };
            self.remove(lines, |it| it.key == other.key && !it.is_static);
        }
        false
    }

    /// The entries of some lines.
    pub(super) fn entries(&self, lines: Range<usize>) -> impl Iterator<Item = Entry> {
        self.pairs(lines).map(|(_, entry)| entry)
    }

    fn pairs(&self, lines: Range<usize>) -> impl Iterator<Item = (&Pair, Entry)> {
        let pairs = self.lines[lines].iter().flat_map(|line| &line.0);
        pairs.filter_map(|pair| {
            let key = Key(pair.key.load(Acquire));
            Some((pair, Value(pair.value.load(Acquire)).entry(key)?)).filter(|_| key.0 != 0)
        })
    }

    /// Removes some entries of some lines. Returns their number.
    pub(super) fn remove(&self, lines: Range<usize>, is_meant: impl Fn(Entry) -> bool) -> usize {
        let mut removed = 0;
        for (pair, entry) in self.pairs(lines).filter(|(_, entry)| is_meant(*entry)) {
            // An entry that is used again meanwhile stays.
            if pair.value.compare_exchange(entry.value().0, REMOVED, Release, Relaxed).is_ok() {
                pair.key.store(0, Release);
                pair.value.store(0, Release);
                self.count(Some(entry), None);
                removed += 1;
            }
        }
        removed
    }
}

/// The value of a key in a line. Hot: all places are compared, because the one that is right cannot be predicted.
#[inline(always)]
fn find_in(Line(pairs): &Line, key: Key) -> Option<Value> {
    let is_here = |index: usize| usize::from(pairs[index].key.load(Relaxed) == key.0) << index;
    let here = is_here(0) | is_here(1) | is_here(2) | is_here(3);
    let pair = pairs.get(here.trailing_zeros() as usize)?;
    Some(Value(pair.value.load(Relaxed)))
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
                        let change = slots.change(entry.key, |it| { assert_eq!(it, before); Some(entry) });
                        if change == Change::NoRoom {
                            prop_assert!(before.is_none());
                            prop_assert!(slots.places(entry.key).all(|place| place.key.load(Relaxed) != 0));
                            continue;
                        }
                        prop_assert_eq!(change, Change::Done { before, after: entry });
                        model.insert(entry.key, entry);
                        prop_assert_eq!(slots.change(entry.key, |_| None), Change::Kept);
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
                for key in (2..120).map(key) {
                    let known = model.get(&key).copied();
                    prop_assert_eq!(slots.look_up(key), known.map(|entry| entry.port));
                    if let Some(entry) = known {
                        prop_assert!(slots.knows(key, entry.port, entry.age));
                        prop_assert!(!slots.knows(key, entry.port ^ 1, entry.age));
                        let from_itself = slots.look_up_if_knows(key, key, entry.port, entry.age);
                        prop_assert!(from_itself.is_none_or(|port| port == entry.port));
                        prop_assert_eq!(slots.look_up_if_knows(key, key, entry.port ^ 1, entry.age), None);
                        prop_assert_eq!(slots.knows(key, entry.port, entry.age ^ 1), entry.is_static);
                    }
                }
            }
        }
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
                            assert_ne!(slots.change(key, |_| Some(entry)), Change::NoRoom);
                            assert!(slots.look_up(key).is_some_and(|port| port < 3));
                        }
                    }
                });
            }
        });
        assert_eq!((slots.entries(0..slots.lines()).count(), slots.used()), (100, 100));
        assert_eq!((0..3).map(|port| slots.at_port(port)).sum::<u32>(), 100);
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
                        slots.change(key, |_| Some(Entry { key, port: port(key), ..Entry::default() }));
                        for other in (2..102).map(super::tests::key) {
                            assert!(slots.look_up(other).is_none_or(|found| found == port(other)));
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

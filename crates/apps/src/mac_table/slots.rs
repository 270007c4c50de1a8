//! The entries of a table of MAC addresses: words that all threads read and change one by one.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The number of a port in a table.
pub(crate) type PortNumber = u16;

/// Ports have numbers below this.
pub(super) const PORTS: usize = 1 << PORT_BITS;

/// Ages are counted modulo this.
pub(super) const AGES: u32 = 1 << AGE_BITS;

const PORT_BITS: u32 = 10;
const AGE_BITS: u32 = 6;
const ADDRESS_SHIFT: u32 = PORT_BITS + AGE_BITS;

/// Entries in a cache line.
pub(super) const IN_A_LINE: usize = 8;

/// A cache line of entries. An entry is the address, the port and the age, from the highest bit on; 0 is none.
#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; IN_A_LINE]);

/// A table of a fixed size. An address is in the line that its hash selects, or in the neighbour of that.
///
/// Each entry is one word, so a reader never sees half of one. Two threads that learn an address at the same time while
/// an entry of its line expires may both enter it: the first one in the line counts, and the other expires.
pub(super) struct Slots(Box<[Line]>);

/// What became of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    /// It was at this port before.
    Known,
    /// It was at another port.
    Moved,
    /// It is new.
    New,
    /// There is no room for it.
    Full,
}

/// The parts of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) address: u64,
    pub(super) port: PortNumber,
    pub(super) age: u32,
}

impl Entry {
    fn of(word: u64) -> Option<Entry> {
        let (port, age) = ((word >> AGE_BITS) as u16 % PORTS as u16, word as u32 % AGES);
        (word != 0).then_some(Entry { address: word >> ADDRESS_SHIFT, port, age })
    }

    fn word(self) -> u64 {
        self.address << ADDRESS_SHIFT | u64::from(self.port) << AGE_BITS | u64::from(self.age)
    }
}

impl Slots {
    /// An empty table of a power of two of lines, at least two.
    pub(super) fn new(lines: usize) -> Slots {
        Slots((0..lines).map(|_| Line::default()).collect())
    }

    pub(super) fn lines(&self) -> usize {
        self.0.len()
    }

    /// The number of entries for which there is room.
    pub(super) fn len(&self) -> usize {
        self.0.len() * IN_A_LINE
    }

    /// The lines of an address: that of its hash first. Hot.
    #[inline(always)]
    fn lines_of(&self, address: u64) -> [&Line; 2] {
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let line = hash as usize & (self.0.len() - 1);
        [&self.0[line], &self.0[line ^ 1]]
    }

    /// The place of an address, and the word there. Hot.
    #[inline(always)]
    fn find(&self, address: u64) -> Option<(&AtomicU64, u64)> {
        let places = self.lines_of(address).into_iter().flat_map(|line| &line.0);
        places.map(|place| (place, place.load(Relaxed))).find(|(_, word)| word >> ADDRESS_SHIFT == address)
    }

    /// The port of an address other than 0. Hot.
    #[inline(always)]
    pub(super) fn look_up(&self, address: u64) -> Option<PortNumber> {
        self.find(address).and_then(|(_, word)| Entry::of(word)).map(|entry| entry.port)
    }

    /// Enters an address, which is not 0. `has_room` is whether a new one may be entered. Hot.
    #[inline(always)]
    pub(super) fn learn(&self, entry: Entry, has_room: bool) -> Learned {
        let word = entry.word();
        match self.find(entry.address) {
            Some((_, known)) if known == word => Learned::Known,
            _ => self.change(entry, has_room),
        }
    }

    #[cold]
    fn change(&self, entry: Entry, has_room: bool) -> Learned {
        // Others may change the lines meanwhile; there are not many places.
        for _ in 0..2 * IN_A_LINE {
            // One look at each place, so that threads that enter the same address choose the same place: between two
            // looks, places before it might be taken, and the address be entered behind them.
            let mut free = None;
            let mut known = None;
            for place in self.lines_of(entry.address).into_iter().flat_map(|line| &line.0) {
                let word = place.load(Relaxed);
                if word >> ADDRESS_SHIFT == entry.address {
                    known = Some((place, word));
                    break;
                }
                free = free.or((word == 0).then_some(place));
            }
            let (place, before) = match (known, free) {
                (Some(known), _) => known,
                (None, Some(free)) if has_room => (free, 0),
                _ => break,
            };
            if place.compare_exchange(before, entry.word(), Relaxed, Relaxed).is_ok() {
                return match Entry::of(before) {
                    None => Learned::New,
                    Some(before) if before.port == entry.port => Learned::Known,
                    Some(_) => Learned::Moved,
                };
            }
        }
        Learned::Full
    }

    /// The entries of some lines, each with its place.
    fn places(&self, lines: Range<usize>) -> impl Iterator<Item = (&AtomicU64, Entry)> {
        let places = self.0[lines].iter().flat_map(|line| &line.0);
        places.filter_map(|place| Some((place, Entry::of(place.load(Relaxed))?)))
    }

    /// The entries of some lines.
    pub(super) fn entries(&self, lines: Range<usize>) -> impl Iterator<Item = Entry> {
        self.places(lines).map(|(_, entry)| entry)
    }

    /// Removes the entries of some lines that are too old. Returns their number.
    pub(super) fn expire(&self, lines: Range<usize>, is_old: impl Fn(Entry) -> bool) -> usize {
        let old = self.places(lines).filter(|(_, entry)| is_old(*entry));
        // An entry that is used again meanwhile stays.
        old.filter(|(place, entry)| place.compare_exchange(entry.word(), 0, Relaxed, Relaxed).is_ok()).count()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Learn(Entry),
        Expire(u32),
    }

    fn step() -> impl Strategy<Value = Step> {
        let entry = (1u64..60, 0..PORTS as u16, 0..AGES).prop_map(|(address, port, age)| Entry { address, port, age });
        prop_oneof![9 => entry.prop_map(Step::Learn), 1 => (0..AGES).prop_map(Step::Expire)]
    }

    proptest! {
        /// Against a map.
        #[test]
        fn entries_are_those_of_a_map(steps in prop::collection::vec(step(), 0..300)) {
            let slots = Slots::new(4);
            let mut model: HashMap<u64, Entry> = HashMap::new();
            for step in steps {
                match step {
                    Step::Learn(entry) => {
                        let learned = slots.learn(entry, true);
                        let before = model.get(&entry.address).copied();
                        let expected = match before {
                            Some(before) if before.port == entry.port => Learned::Known,
                            Some(_) => Learned::Moved,
                            None if learned == Learned::Full => {
                                let lines = slots.lines_of(entry.address);
                                prop_assert!(lines.iter().all(|line| line.0.iter().all(|place| place.load(Relaxed) != 0)));
                                continue;
                            }
                            None => Learned::New,
                        };
                        prop_assert_eq!(learned, expected);
                        model.insert(entry.address, entry);
                    }
                    Step::Expire(age) => {
                        let removed = slots.expire(0..slots.lines(), |entry| entry.age == age);
                        let before = model.len();
                        model.retain(|_, entry| entry.age != age);
                        prop_assert_eq!(removed, before - model.len());
                    }
                }
                let found: HashMap<u64, Entry> =
                    slots.entries(0..slots.lines()).map(|entry| (entry.address, entry)).collect();
                prop_assert_eq!(&found, &model);
                for address in 1..60 {
                    prop_assert_eq!(slots.look_up(address), model.get(&address).map(|entry| entry.port));
                }
            }
        }
    }

    /// Threads that learn the same addresses at different ports: each reader sees one of them, and none is lost.
    #[test]
    fn threads_enter_each_address_once() {
        let slots = Slots::new(64);
        std::thread::scope(|scope| {
            for port in 0..3 {
                let slots = &slots;
                scope.spawn(move || {
                    for round in 0..200u32 {
                        for address in 1..=100 {
                            let learned = slots.learn(Entry { address, port, age: round % AGES }, true);
                            assert_ne!(learned, Learned::Full);
                            assert!(slots.look_up(address).is_some_and(|port| port < 3));
                        }
                    }
                });
            }
        });
        assert_eq!(slots.entries(0..slots.lines()).count(), 100);
    }
}

//! The states of neighbours: who is asked for an address, and for how long the answer holds.
//!
//! The rules are those of RFC 4861, section 7.3, for both families, in a form for a router whose packets do not report
//! which neighbours they use: a neighbour is asked again, by its own Ethernet address, before its answer is too old.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use bellows_wire::MacAddr;

/// A neighbour: the number of the interface whose link it is on, and its address.
pub type NeighbourKey = (u16, IpAddr);

/// How long neighbours are waited for, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourLimits {
    /// Neighbours, whether or not their addresses are known.
    pub neighbours: usize,
    /// Those of them that have not answered yet.
    pub incomplete: usize,
    /// The room beyond both for next hops of routes, so that packets to the links of interfaces cannot take it.
    pub for_routes: usize,
    /// Nanoseconds for which an answer holds.
    pub reachable: u64,
    /// Nanoseconds between two questions.
    pub retransmit: u64,
    /// Questions without an answer, after which a neighbour is gone.
    pub attempts: u8,
}

impl Default for NeighbourLimits {
    fn default() -> NeighbourLimits {
        NeighbourLimits {
            neighbours: 50_000,
            incomplete: 1_024,
            for_routes: 1_024,
            // RFC 4861, section 10: RETRANS_TIMER, MAX_MULTICAST_SOLICIT.
            retransmit: 1_000_000_000,
            attempts: 3,
            reachable: 30_000_000_000,
        }
    }
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighbourState {
    /// It has not answered yet.
    Incomplete,
    /// It has answered.
    Reachable,
    /// Its address is known, but not whether it receives what is sent there: it is asked soon.
    Delay,
    /// It has answered, and is asked again.
    Probe,
    /// Its address was configured.
    Permanent,
}

impl NeighbourState {
    /// The name, as `ip neighbour` writes it in lower case.
    pub fn name(self) -> &'static str {
        match self {
            NeighbourState::Incomplete => "incomplete",
            NeighbourState::Reachable => "reachable",
            NeighbourState::Delay => "delay",
            NeighbourState::Probe => "probe",
            NeighbourState::Permanent => "permanent",
        }
    }
}

/// What to do with a packet to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Send it there.
    Known(MacAddr),
    /// Keep it, and ask for the address.
    Ask,
    /// Keep it. The neighbour has been asked.
    Waiting,
    /// Drop it: too many neighbours are waited for, or there are too many.
    Full,
}

/// For what a neighbour is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is the destination of a packet: anybody may want any number of these.
    Destination,
    /// It is the next hop of a route.
    NextHop,
}

/// How an address was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The neighbour answered a question.
    Answer,
    /// The neighbour asked this router, which must know its address to answer.
    Question,
    /// The neighbour told everybody. Only what is known already is updated, so that nobody fills the table.
    Announcement,
}

/// What became of an address that was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// It is new, or another one than before.
    Changed,
    /// It is the one that was known.
    Confirmed,
    /// It is of no interest here, or its neighbour has a configured one.
    Ignored,
    /// There is no room for it.
    Full,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Ask this neighbour: all stations, or its own address.
    Ask(NeighbourKey, Option<MacAddr>),
    /// This neighbour is gone. Its address may have been known.
    Gone(NeighbourKey, Option<MacAddr>),
}

/// RFC 4861, section 10: DELAY_FIRST_PROBE_TIME, nanoseconds.
const DELAY_NS: u64 = 5_000_000_000;

#[derive(Clone, Copy, Debug)]
struct Entry {
    state: NeighbourState,
    mac: Option<MacAddr>,
    /// Questions since the last answer.
    asked: u8,
    /// When something is due.
    deadline: u64,
}

/// The neighbours of a family.
#[derive(Debug)]
pub struct Neighbours {
    limits: NeighbourLimits,
    entries: HashMap<NeighbourKey, Entry>,
    deadlines: BTreeSet<(u64, NeighbourKey)>,
    incomplete: usize,
    outline: Outline,
}

/// A hash of few bits of each neighbour, so that floods of packets about strangers cost a look at a byte each.
#[derive(Debug)]
struct Outline {
    /// Nobody may know which addresses have the same hash.
    secret: u64,
    /// The neighbours with each hash, up to a number that stays.
    counts: Box<[u8]>,
}

/// Bits of a neighbour's hash.
const OUTLINE_BITS: u32 = 16;

impl Outline {
    fn new() -> Outline {
        Outline { secret: RandomState::new().hash_one(0) | 1, counts: vec![0; 1 << OUTLINE_BITS].into() }
    }

    #[inline]
    fn place(&self, (interface, address): NeighbourKey) -> usize {
        let word = match address {
            IpAddr::V4(address) => u32::from(address).into(),
            IpAddr::V6(address) => {
                let bits = u128::from(address);
                ((bits >> 64) as u64).rotate_left(23) ^ bits as u64
            }
        };
        // Multiply-shift, of which two keys seldom have the same hash.
        ((word ^ u64::from(interface) << 48).wrapping_mul(self.secret) >> (64 - OUTLINE_BITS)) as usize
    }

    fn add(&mut self, key: NeighbourKey) {
        let place = self.place(key);
        self.counts[place] = self.counts[place].saturating_add(1);
    }

    fn remove(&mut self, key: NeighbourKey) {
        let place = self.place(key);
        if self.counts[place] < u8::MAX {
            self.counts[place] -= 1;
        }
    }
}

impl Neighbours {
    /// No neighbours.
    pub fn new(limits: NeighbourLimits) -> Neighbours {
        let (entries, deadlines) = (HashMap::new(), BTreeSet::new());
        Neighbours { limits, entries, deadlines, incomplete: 0, outline: Outline::new() }
    }

    /// False if there is no such neighbour; true if there is one, and seldom otherwise. Hot.
    #[inline]
    pub fn may_know(&self, key: NeighbourKey) -> bool {
        self.outline.counts[self.outline.place(key)] > 0
    }

    /// The number of neighbours.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no neighbours.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All neighbours, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (NeighbourKey, NeighbourState, Option<MacAddr>)> {
        self.entries.iter().map(|(&key, entry)| (key, entry.state, entry.mac))
    }

    /// Enters a neighbour whose address is configured.
    pub fn enter(&mut self, key: NeighbourKey, mac: MacAddr) {
        self.remove(key);
        let permanent = Entry { state: NeighbourState::Permanent, mac: Some(mac), asked: 0, deadline: u64::MAX };
        self.entries.insert(key, permanent);
        self.outline.add(key);
    }

    /// Takes over a neighbour whose address is known from others, in the state that it has there. Returns whether it
    /// did: not without room, and not in place of one that is known here.
    pub fn adopt(&mut self, key: NeighbourKey, from: &Neighbours, known: NeighbourKey, now: u64) -> bool {
        let Some(&Entry { state, mac: Some(mac), asked, deadline }) = from.entries.get(&known) else { return false };
        if self.is_full() || self.entries.contains_key(&key) {
            return false;
        }
        if state == NeighbourState::Permanent {
            self.enter(key, mac);
        } else {
            // Another configuration may hold answers for a shorter time.
            self.put(key, state, Some(mac), asked, deadline.min(now.saturating_add(self.limits.reachable)));
        }
        true
    }

    /// Forgets a neighbour. Returns its address, if it was known.
    pub fn remove(&mut self, key: NeighbourKey) -> Option<MacAddr> {
        let entry = self.entries.remove(&key)?;
        self.outline.remove(key);
        self.deadlines.remove(&(entry.deadline, key));
        self.incomplete -= usize::from(entry.state == NeighbourState::Incomplete);
        entry.mac
    }

    /// What to do with a packet to a neighbour.
    pub fn want(&mut self, key: NeighbourKey, need: Need, now: u64) -> Wanted {
        let more = if need == Need::NextHop { self.limits.for_routes } else { 0 };
        let NeighbourLimits { neighbours, incomplete, .. } = self.limits;
        // A flood of packets to strangers finds no room, and needs no look-up.
        let known = if self.may_know(key) { self.entries.get(&key) } else { None };
        match known {
            Some(&Entry { mac: Some(mac), .. }) => Wanted::Known(mac),
            Some(_) => Wanted::Waiting,
            None if self.entries.len() >= neighbours.saturating_add(more) => Wanted::Full,
            None if self.incomplete >= incomplete.saturating_add(more) => Wanted::Full,
            None => {
                self.put(key, NeighbourState::Incomplete, None, 1, now.saturating_add(self.limits.retransmit));
                Wanted::Ask
            }
        }
    }

    /// Takes in an address that was heard from a neighbour.
    pub fn hear(&mut self, key: NeighbourKey, mac: MacAddr, heard: Heard, now: u64) -> Learned {
        let known = self.entries.get(&key).copied();
        let learned = match known {
            Some(Entry { state: NeighbourState::Permanent, .. }) => return Learned::Ignored,
            Some(Entry { mac: Some(before), .. }) if before == mac => Learned::Confirmed,
            Some(_) => Learned::Changed,
            None if heard != Heard::Question => return Learned::Ignored,
            None if self.is_full() => return Learned::Full,
            None => Learned::Changed,
        };
        self.put_reachable(key, mac, now);
        learned
    }

    /// The time at which something is due next.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    /// The next thing that is due. Call again until there is none.
    pub fn due(&mut self, now: u64) -> Option<Due> {
        let &(deadline, key) = self.deadlines.first()?;
        if deadline > now {
            return None;
        }
        let entry = self.entries.get(&key).copied()?;
        if entry.asked >= self.limits.attempts {
            return Some(Due::Gone(key, self.remove(key)));
        }
        let state = if entry.mac.is_some() { NeighbourState::Probe } else { NeighbourState::Incomplete };
        self.put(key, state, entry.mac, entry.asked + 1, now.saturating_add(self.limits.retransmit));
        Some(Due::Ask(key, entry.mac))
    }

    /// A neighbour's state, and its address if that is known.
    pub fn state(&self, key: NeighbourKey) -> Option<(NeighbourState, Option<MacAddr>)> {
        self.entries.get(&key).map(|entry| (entry.state, entry.mac))
    }

    /// Enters an address that the neighbour has confirmed.
    pub(crate) fn put_reachable(&mut self, key: NeighbourKey, mac: MacAddr, now: u64) {
        self.put(key, NeighbourState::Reachable, Some(mac), 0, now.saturating_add(self.limits.reachable));
    }

    /// Enters an address that the neighbour has not confirmed. Packets do not report that they use it, so it is taken
    /// for used.
    pub(crate) fn put_stale(&mut self, key: NeighbourKey, mac: Option<MacAddr>, now: u64) {
        self.put(key, NeighbourState::Delay, mac, 0, now.saturating_add(DELAY_NS));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.limits.neighbours
    }

    fn put(&mut self, key: NeighbourKey, state: NeighbourState, mac: Option<MacAddr>, asked: u8, deadline: u64) {
        self.remove(key);
        self.incomplete += usize::from(state == NeighbourState::Incomplete);
        self.entries.insert(key, Entry { state, mac, asked, deadline });
        self.outline.add(key);
        self.deadlines.insert((deadline, key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;
    const ONE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn key(number: u8) -> NeighbourKey {
        (1, IpAddr::from([192, 0, 2, number]))
    }

    fn all_due(neighbours: &mut Neighbours, now: u64) -> Vec<Due> {
        std::iter::from_fn(|| neighbours.due(now)).collect()
    }

    #[test]
    fn a_neighbour_that_does_not_answer_is_asked_three_times() {
        let mut neighbours = Neighbours::new(NeighbourLimits::default());
        assert_eq!(neighbours.want(key(1), Need::Destination, 0), Wanted::Ask);
        assert_eq!(neighbours.want(key(1), Need::Destination, 0), Wanted::Waiting);
        assert_eq!(all_due(&mut neighbours, SECOND - 1), []);
        assert_eq!(all_due(&mut neighbours, SECOND), [Due::Ask(key(1), None)]);
        assert_eq!(all_due(&mut neighbours, 2 * SECOND), [Due::Ask(key(1), None)]);
        assert_eq!(all_due(&mut neighbours, 3 * SECOND), [Due::Gone(key(1), None)]);
        assert!(neighbours.is_empty() && neighbours.next_deadline().is_none());
    }

    #[test]
    fn an_answer_holds_and_is_asked_for_again_before_it_is_too_old() {
        let mut neighbours = Neighbours::new(NeighbourLimits::default());
        neighbours.want(key(1), Need::Destination, 0);
        assert_eq!(neighbours.hear(key(1), ONE, Heard::Answer, SECOND / 2), Learned::Changed);
        assert_eq!(neighbours.want(key(1), Need::Destination, SECOND), Wanted::Known(ONE));
        let old = SECOND / 2 + 30 * SECOND;
        assert_eq!(all_due(&mut neighbours, old - 1), []);
        assert_eq!(all_due(&mut neighbours, old), [Due::Ask(key(1), Some(ONE))]);
        assert_eq!(neighbours.want(key(1), Need::Destination, old), Wanted::Known(ONE), "it is used while it is asked");
        assert_eq!(neighbours.hear(key(1), ONE, Heard::Answer, old), Learned::Confirmed);
        let old = old + 30 * SECOND;
        for question in 0..3 {
            assert_eq!(all_due(&mut neighbours, old + question * SECOND), [Due::Ask(key(1), Some(ONE))]);
        }
        assert_eq!(all_due(&mut neighbours, old + 3 * SECOND), [Due::Gone(key(1), Some(ONE))]);
    }

    #[test]
    fn nobody_who_is_known_is_taken_for_a_stranger() {
        let mut neighbours = Neighbours::new(NeighbourLimits::default());
        let keys: Vec<NeighbourKey> = (0..200).map(key).collect();
        assert!(!keys.iter().any(|&key| neighbours.may_know(key)), "an empty table knows nobody");
        for &key in &keys {
            neighbours.put_reachable(key, ONE, 0);
            neighbours.put_reachable(key, OTHER, 1);
        }
        assert!(keys.iter().all(|&key| neighbours.may_know(key)));
        assert!(keys[..100].iter().all(|&key| neighbours.remove(key) == Some(OTHER)));
        assert!(keys[100..].iter().all(|&key| neighbours.may_know(key)));
        assert!(keys[100..].iter().all(|&key| neighbours.remove(key) == Some(OTHER)));
        assert!(!keys.iter().any(|&key| neighbours.may_know(key)), "those who are gone are strangers");
    }

    #[test]
    fn a_neighbour_keeps_its_state_when_others_take_it_over() {
        let mut old = Neighbours::new(NeighbourLimits::default());
        old.hear(key(1), ONE, Heard::Question, 0);
        old.put_stale(key(2), Some(OTHER), 0);
        old.want(key(3), Need::Destination, 0);
        old.put_stale(key(4), Some(ONE), 0);
        assert_eq!(all_due(&mut old, 6 * SECOND).len(), 3);
        old.put_stale(key(2), Some(OTHER), 6 * SECOND);
        let mut new = Neighbours::new(NeighbourLimits { reachable: 20 * SECOND, ..NeighbourLimits::default() });
        let adopted = [1, 2, 3, 4, 2].map(|number| new.adopt(key(number), &old, key(number), 6 * SECOND));
        assert_eq!(adopted, [true, true, false, true, false], "once each, if its address is known");
        let states = [1, 2, 3, 4].map(|number| new.state(key(number)));
        let expected = [(NeighbourState::Reachable, ONE), (NeighbourState::Delay, OTHER), (NeighbourState::Probe, ONE)];
        let [reachable, delay, probe] = expected.map(|(state, mac)| Some((state, Some(mac))));
        assert_eq!(states, [reachable, delay, None, probe]);
        assert_eq!(all_due(&mut new, 7 * SECOND), [Due::Ask(key(4), Some(ONE))], "it has been asked once");
        assert_eq!(all_due(&mut new, 8 * SECOND), [Due::Ask(key(4), Some(ONE))]);
        assert_eq!(all_due(&mut new, 9 * SECOND), [Due::Gone(key(4), Some(ONE))]);
        assert_eq!(all_due(&mut new, 11 * SECOND), [Due::Ask(key(2), Some(OTHER))]);
        all_due(&mut new, 12 * SECOND);
        all_due(&mut new, 13 * SECOND);
        all_due(&mut new, 14 * SECOND);
        assert_eq!(all_due(&mut new, 26 * SECOND), [Due::Ask(key(1), Some(ONE))], "answers hold for 20 seconds now");
    }

    #[test]
    fn announcements_change_what_is_known_and_enter_nothing() {
        let mut neighbours = Neighbours::new(NeighbourLimits::default());
        assert_eq!(neighbours.hear(key(1), ONE, Heard::Announcement, 0), Learned::Ignored);
        assert_eq!(neighbours.hear(key(1), ONE, Heard::Answer, 0), Learned::Ignored);
        assert_eq!(neighbours.hear(key(1), ONE, Heard::Question, 0), Learned::Changed);
        assert_eq!(neighbours.hear(key(1), OTHER, Heard::Announcement, 0), Learned::Changed);
        neighbours.enter(key(1), ONE);
        assert_eq!(neighbours.hear(key(1), OTHER, Heard::Question, 0), Learned::Ignored);
        assert_eq!(all_due(&mut neighbours, u64::MAX - 1), [], "what is configured stays");
    }

    #[test]
    fn a_flood_takes_no_room_from_known_neighbours() {
        let limits = NeighbourLimits { neighbours: 20, incomplete: 5, ..NeighbourLimits::default() };
        let mut neighbours = Neighbours::new(limits);
        for number in 0..10 {
            assert_eq!(neighbours.hear(key(number), ONE, Heard::Question, 0), Learned::Changed);
        }
        let wanted: Vec<Wanted> = (100..110).map(|number| neighbours.want(key(number), Need::Destination, 0)).collect();
        assert_eq!(wanted, [[Wanted::Ask; 5], [Wanted::Full; 5]].concat());
        for number in 10..15 {
            assert_eq!(neighbours.hear(key(number), ONE, Heard::Question, 0), Learned::Changed);
        }
        assert_eq!(neighbours.hear(key(99), ONE, Heard::Question, 0), Learned::Full);
        assert!((0..10).all(|number| neighbours.want(key(number), Need::Destination, 0) == Wanted::Known(ONE)));
        all_due(&mut neighbours, SECOND);
        all_due(&mut neighbours, 2 * SECOND);
        all_due(&mut neighbours, 3 * SECOND);
        assert_eq!((neighbours.len(), neighbours.want(key(100), Need::Destination, 3 * SECOND)), (15, Wanted::Ask));
    }

    #[test]
    fn next_hops_of_routes_have_room_of_their_own() {
        let limits = NeighbourLimits { neighbours: 8, incomplete: 4, for_routes: 2, ..NeighbourLimits::default() };
        let mut neighbours = Neighbours::new(limits);
        let want = |neighbours: &mut Neighbours, number, need| neighbours.want(key(number), need, 0);
        (0..4).for_each(|number| assert_eq!(want(&mut neighbours, number, Need::Destination), Wanted::Ask));
        assert_eq!(want(&mut neighbours, 5, Need::Destination), Wanted::Full);
        assert_eq!(
            [5, 6, 7].map(|number| want(&mut neighbours, number, Need::NextHop)),
            [Wanted::Ask, Wanted::Ask, Wanted::Full]
        );
        (10..12).for_each(|number| assert_eq!(neighbours.hear(key(number), ONE, Heard::Question, 0), Learned::Changed));
        assert_eq!(neighbours.hear(key(12), ONE, Heard::Question, 0), Learned::Full);
        [5, 6].iter().for_each(|&it| assert_eq!(neighbours.hear(key(it), ONE, Heard::Answer, 0), Learned::Changed));
        assert_eq!(
            [7, 8, 9].map(|number| want(&mut neighbours, number, Need::NextHop)),
            [Wanted::Ask, Wanted::Ask, Wanted::Full]
        );
    }

    proptest! {
        #[test]
        fn whatever_happens_the_books_agree(steps in prop::collection::vec((0u8..6, 0u8..16, 0u64..4), 0..200)) {
            let limits = NeighbourLimits { neighbours: 8, incomplete: 3, for_routes: 2, ..NeighbourLimits::default() };
            let mut neighbours = Neighbours::new(limits);
            let mut now = 0;
            for (step, number, seconds) in steps {
                now += seconds * SECOND;
                match step {
                    0 => drop(neighbours.want(key(number), Need::Destination, now)),
                    1 => drop(neighbours.hear(key(number), ONE, Heard::Question, now)),
                    2 => drop(neighbours.hear(key(number), OTHER, Heard::Answer, now)),
                    3 => drop(neighbours.remove(key(number))),
                    5 => drop(neighbours.want(key(number), Need::NextHop, now)),
                    _ => drop(all_due(&mut neighbours, now)),
                }
                let incomplete = neighbours.iter().filter(|(_, state, _)| *state == NeighbourState::Incomplete).count();
                prop_assert!(neighbours.len() <= 10 && incomplete <= 5 && incomplete == neighbours.incomplete);
                prop_assert_eq!(neighbours.deadlines.len(), neighbours.len());
                prop_assert!(neighbours.iter().all(|(_, state, mac)| mac.is_none() == (state == NeighbourState::Incomplete)));
                prop_assert!(neighbours.next_deadline().is_none_or(|deadline| step != 4 || deadline > now));
            }
        }
    }
}

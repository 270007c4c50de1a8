//! The states of neighbours: who is asked for an address, and for how long the answer holds.
//!
//! The rules are those of RFC 4861, section 7.3, for both families, in a form for a router whose packets do not report
//! which neighbours they use: a neighbour is asked again, by its own Ethernet address, before its answer is too old.

mod watch;

use std::collections::{BTreeSet, HashMap};

use bellows_wire::MacAddr;

pub use crate::outline::NeighbourKey;
use crate::outline::{Counts, Outline};

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
    /// It is watched, and does not answer.
    Failed,
}

impl NeighbourState {
    /// The number of states.
    const COUNT: usize = NeighbourState::Failed as usize + 1;

    /// The name, as `ip neighbour` writes it in lower case.
    pub fn name(self) -> &'static str {
        match self {
            NeighbourState::Incomplete => "incomplete",
            NeighbourState::Reachable => "reachable",
            NeighbourState::Delay => "delay",
            NeighbourState::Probe => "probe",
            NeighbourState::Permanent => "permanent",
            NeighbourState::Failed => "failed",
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
    /// This neighbour is gone, or has [failed](NeighbourState::Failed) if it is watched. Its address may have been known.
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
    /// Whether as many packets as there may be wait for an answer.
    is_awaited: bool,
}

/// The neighbours of a family.
#[derive(Debug)]
pub struct Neighbours {
    limits: NeighbourLimits,
    entries: HashMap<NeighbourKey, Entry>,
    deadlines: BTreeSet<(u64, NeighbourKey)>,
    /// Those that have not answered yet and are not watched.
    incomplete: usize,
    /// Those that are watched, all of which have entries.
    watched: BTreeSet<NeighbourKey>,
    /// The number of neighbours in each state.
    by_state: [usize; NeighbourState::COUNT],
    /// When the last one of the watched neighbours that were to be asked has its turn.
    turn: u64,
    outline: Outline,
}

/// What a glance tells of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Glance {
    /// There is no such neighbour, nor room for one: it would be [`Wanted::Full`].
    Full,
    /// As many packets as there may be wait for it. Seldom there is no such neighbour.
    Awaited,
    /// Who wants to know must look closer.
    Open,
}

impl Neighbours {
    /// No neighbours.
    pub fn new(limits: NeighbourLimits) -> Neighbours {
        Neighbours {
            limits,
            entries: HashMap::new(),
            deadlines: BTreeSet::new(),
            incomplete: 0,
            watched: BTreeSet::new(),
            by_state: [0; NeighbourState::COUNT],
            turn: 0,
            outline: Outline::new(),
        }
    }

    /// False if there is no such neighbour; true if there is one, and seldom otherwise. Hot.
    #[inline]
    pub fn may_know(&self, key: NeighbourKey) -> bool {
        self.outline.counts(key).all > 0
    }

    /// What can be told of a neighbour that is [wanted](Neighbours::want) without a look at it. Hot.
    #[inline]
    pub fn glance(&self, key: NeighbourKey, need: Need) -> Glance {
        match self.outline.counts(key) {
            Counts { all: 0, .. } if self.has_no_room(need) => Glance::Full,
            Counts { all: 0 | u8::MAX, .. } => Glance::Open,
            Counts { all, awaited } if all == awaited => Glance::Awaited,
            _ => Glance::Open,
        }
    }

    /// Notes that as many packets as there may be wait for a neighbour, until it answers or is gone.
    pub fn set_awaited(&mut self, key: NeighbourKey) {
        if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.mac.is_none() && !entry.is_awaited) {
            entry.is_awaited = true;
            self.outline.set_awaited(key, true);
        }
    }

    /// Whether nobody can be waited for besides those who are.
    #[inline]
    fn has_no_room(&self, need: Need) -> bool {
        let more = if need == Need::NextHop { self.limits.for_routes } else { 0 };
        let NeighbourLimits { neighbours, incomplete, .. } = self.limits;
        self.unwatched() >= neighbours.saturating_add(more) || self.incomplete >= incomplete.saturating_add(more)
    }

    /// The number of neighbours that are not watched.
    fn unwatched(&self) -> usize {
        self.entries.len() - self.watched.len()
    }

    /// The number of neighbours.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of neighbours in a state.
    pub fn in_state(&self, state: NeighbourState) -> usize {
        self.by_state[state as usize]
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
        let state = NeighbourState::Permanent;
        let permanent = Entry { state, mac: Some(mac), asked: 0, deadline: u64::MAX, is_awaited: false };
        self.entries.insert(key, permanent);
        self.by_state[state as usize] += 1;
        self.outline.add(key);
    }

    /// Takes over a neighbour whose address is known from others, or that has failed there, in the state that it has
    /// there. Returns whether it did: not without room, and not in place of one that is known here. One that has failed
    /// is watched.
    pub fn adopt(&mut self, key: NeighbourKey, from: &Neighbours, known: NeighbourKey, now: u64) -> bool {
        let Some(&Entry { state, mac, asked, deadline, .. }) = from.entries.get(&known) else { return false };
        if self.entries.contains_key(&key) {
            return false;
        }
        if state == NeighbourState::Failed {
            self.watched.insert(key);
            self.put(key, state, None, 0, deadline.min(now.saturating_add(self.watch_interval())));
            return true;
        }
        let Some(mac) = mac.filter(|_| !self.is_full()) else { return false };
        if state == NeighbourState::Permanent {
            self.enter(key, mac);
        } else {
            // Another configuration may hold answers for a shorter time.
            self.put(key, state, Some(mac), asked, deadline.min(now.saturating_add(self.limits.reachable)));
        }
        true
    }

    /// Forgets a neighbour. Returns its address, if it was known.
    fn remove(&mut self, key: NeighbourKey) -> Option<MacAddr> {
        let entry = self.entries.remove(&key)?;
        self.outline.remove(key, entry.is_awaited);
        self.deadlines.remove(&(entry.deadline, key));
        self.by_state[entry.state as usize] -= 1;
        if entry.state == NeighbourState::Incomplete && !self.watched.contains(&key) {
            self.incomplete -= 1;
        }
        entry.mac
    }

    /// What to do with a packet to a neighbour.
    pub fn want(&mut self, key: NeighbourKey, need: Need, now: u64) -> Wanted {
        // A flood of packets to strangers finds no room, and needs no look-up.
        let known = if self.may_know(key) { self.entries.get(&key) } else { None };
        match known {
            Some(&Entry { mac: Some(mac), .. }) => Wanted::Known(mac),
            Some(&Entry { asked: 1.., .. }) => Wanted::Waiting,
            None if self.has_no_room(need) => Wanted::Full,
            // A watched one that has failed, or whose turn has not come, is asked at once if a packet needs it.
            None | Some(_) => {
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
        if entry.state == NeighbourState::Failed {
            self.put_failed(key, now);
            return Some(Due::Ask(key, None));
        }
        if entry.asked >= self.limits.attempts {
            let known = self.remove(key);
            if self.watched.contains(&key) {
                self.put_failed(key, now);
            }
            return Some(Due::Gone(key, known));
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
        let is_watched = self.watched.contains(&key);
        let holds = if is_watched { self.limits.reachable.min(self.watch_interval()) } else { self.limits.reachable };
        self.put(key, NeighbourState::Reachable, Some(mac), 0, now.saturating_add(holds));
    }

    /// A watched neighbour does not answer, and is asked again later.
    fn put_failed(&mut self, key: NeighbourKey, now: u64) {
        let again = now.saturating_add(self.watch_interval());
        self.put(key, NeighbourState::Failed, None, 0, again);
    }

    /// Enters an address that the neighbour has not confirmed. Packets do not report that they use it, so it is taken
    /// for used.
    pub(crate) fn put_stale(&mut self, key: NeighbourKey, mac: Option<MacAddr>, now: u64) {
        self.put(key, NeighbourState::Delay, mac, 0, now.saturating_add(DELAY_NS));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.unwatched() >= self.limits.neighbours
    }

    fn put(&mut self, key: NeighbourKey, state: NeighbourState, mac: Option<MacAddr>, asked: u8, deadline: u64) {
        // Packets go on to wait while the neighbour is asked again.
        let is_awaited = mac.is_none() && self.entries.get(&key).is_some_and(|entry| entry.is_awaited);
        self.remove(key);
        self.by_state[state as usize] += 1;
        if state == NeighbourState::Incomplete && !self.watched.contains(&key) {
            self.incomplete += 1;
        }
        self.entries.insert(key, Entry { state, mac, asked, deadline, is_awaited });
        self.outline.add(key);
        if is_awaited {
            self.outline.set_awaited(key, true);
        }
        self.deadlines.insert((deadline, key));
    }
}

#[cfg(test)]
mod tests;

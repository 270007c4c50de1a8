//! The states of neighbours: who is asked for an address, and for how long the answer holds.
//!
//! The rules are those of RFC 4861, section 7.3, for both families, in a form for a router whose packets do not report
//! which neighbours they use: a neighbour is asked again, by its own Ethernet address, before its answer is too old.

mod room;
mod watch;

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use bellows_wire::MacAddr;

use self::room::{Class, Newcomer, Room};
pub use crate::neighbour_filter::NeighbourKey;
use crate::neighbour_filter::{HashCounts, NeighbourFilter};

/// How long neighbours are waited for, and how many there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighbourLimits {
    /// Neighbours, whether or not their addresses are known.
    pub neighbours: usize,
    /// Those of them that have not answered yet.
    pub incomplete: usize,
    /// Interfaces, each of which is sure to have its share of the neighbours, and of those that its packets ask for.
    pub interfaces: usize,
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
            interfaces: 1,
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
    /// It is the destination of a packet of the router's own to the link, such as an answer: stations cause many of these.
    Answer,
}

/// How an address was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The neighbour answered a question.
    Answer,
    /// The neighbour asked this router, which must know its address to answer.
    Question,
    /// The neighbour announced itself to all. Only what is known already is updated, so that nobody fills the table.
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

/// How long a neighbour that a packet wanted stays before another one of its link takes its place, nanoseconds. So a flood
/// does not have the tables changed all the time.
const STAY_NS: u64 = 10_000_000_000;

/// The time after which a search for one to displace that found none is repeated, nanoseconds.
const STUCK_NS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug)]
struct NeighbourEntry {
    state: NeighbourState,
    mac: Option<MacAddr>,
    /// Questions since the last answer.
    asked: u8,
    /// When something is due.
    deadline: u64,
    /// Whether as many packets as there may be wait for an answer.
    is_awaited: bool,
    /// Whose room it takes; `None` if it is watched.
    class: Option<Class>,
    filed: Filed,
}

/// How a neighbour came.
#[derive(Clone, Copy, Debug)]
struct Filed {
    /// The number of neighbours before, and the time.
    number: u64,
    since: u64,
    /// Whether a packet wanted to know where it is.
    is_wanted: bool,
    /// Whether it was wanted as a next hop.
    is_hop: bool,
    /// The interface that the packet came from, 0 for the router itself.
    origin: u16,
}

/// A neighbour that has made room for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displaced {
    /// Its address was known.
    Known(NeighbourKey),
    /// It was asked for because of packets from this interface.
    Asked(NeighbourKey, u16),
}

/// Tells whether a neighbour must stay, such as the next hop of a route.
struct Stays(Box<dyn Fn(NeighbourKey) -> bool + Send>);

impl fmt::Debug for Stays {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Stays")
    }
}

/// The neighbours of a family.
#[derive(Debug)]
pub struct Neighbours {
    limits: NeighbourLimits,
    entries: HashMap<NeighbourKey, NeighbourEntry>,
    deadlines: BTreeSet<(u64, NeighbourKey)>,
    /// The room that those take which are not watched.
    room: Room,
    /// Those that were displaced lately.
    displaced: Vec<Displaced>,
    stays: Stays,
    /// The number of neighbours so far, and the time of the last packet or message.
    number: u64,
    now: u64,
    /// Those that are watched, all of which have entries.
    watched: BTreeSet<NeighbourKey>,
    /// The number of neighbours in each state.
    by_state: [usize; NeighbourState::COUNT],
    /// When the last one of the watched neighbours that were to be asked has its turn.
    turn: u64,
    filter: NeighbourFilter,
}

/// What a glance shows of a neighbour.
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
            room: Room::default(),
            displaced: Vec::new(),
            stays: Stays(Box::new(|_| false)),
            number: 0,
            now: 0,
            watched: BTreeSet::new(),
            by_state: [0; NeighbourState::COUNT],
            turn: 0,
            filter: NeighbourFilter::new(),
        }
    }

    /// Sets who is never displaced.
    pub fn keep(&mut self, stays: impl Fn(NeighbourKey) -> bool + Send + 'static) {
        self.stays = Stays(Box::new(stays));
    }

    /// Those that were displaced since the last call.
    pub fn take_displaced(&mut self) -> Vec<Displaced> {
        std::mem::take(&mut self.displaced)
    }

    /// False if there is no such neighbour; true if there is one, and seldom otherwise. Hot.
    #[inline]
    pub fn may_know(&self, key: NeighbourKey) -> bool {
        self.filter.counts(key).all > 0
    }

    /// What is known of a neighbour that is [wanted](Neighbours::want) without a look at it. Hot.
    #[inline]
    pub fn glance(&self, key: NeighbourKey, need: Need, origin: u16, now: u64) -> Glance {
        match self.filter.counts(key) {
            HashCounts { all: 0, .. } if self.has_no_room(key.0, need, origin, now) => Glance::Full,
            HashCounts { all: 0 | u8::MAX, .. } => Glance::Open,
            HashCounts { all, awaited } if all == awaited => Glance::Awaited,
            _ => Glance::Open,
        }
    }

    /// Notes that as many packets as there may be wait for a neighbour, until it answers or is gone.
    pub fn set_awaited(&mut self, key: NeighbourKey) {
        if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.mac.is_none() && !entry.is_awaited) {
            entry.is_awaited = true;
            self.filter.set_awaited(key, true);
        }
    }

    /// Whether nobody can be waited for besides those who are.
    #[inline]
    fn has_no_room(&self, interface: u16, need: Need, origin: u16, now: u64) -> bool {
        self.has_too_many_asked(need, origin)
            || self.room.all >= self.limits.neighbours.saturating_add(self.more(need))
                && self.room.is_stuck(interface, now)
    }

    /// Whether as many are asked for as may be, and none of them for those who want more than their share.
    #[inline]
    fn has_too_many_asked(&self, need: Need, origin: u16) -> bool {
        self.room.incomplete >= self.limits.incomplete.saturating_add(self.more(need))
            && (need == Need::NextHop || self.room.asked_from(origin) >= self.share_of_asked())
    }

    /// The room beyond that of other neighbours.
    #[inline]
    fn more(&self, need: Need) -> usize {
        if need == Need::NextHop { self.limits.for_routes } else { 0 }
    }

    /// The share of an interface, and that of the neighbours that its packets ask for. The router itself has one as well.
    fn share(&self) -> usize {
        self.limits.neighbours / self.limits.interfaces.max(1)
    }

    #[inline]
    fn share_of_asked(&self) -> usize {
        self.limits.incomplete / (self.limits.interfaces + 1)
    }

    /// Whether there is room for one more whose address is not known, perhaps because another one gives way.
    fn makes_room_to_ask(&mut self, interface: u16, need: Need, origin: u16) -> bool {
        if self.has_too_many_asked(need, origin) {
            return false;
        }
        if self.room.incomplete >= self.limits.incomplete.saturating_add(self.more(need)) {
            let Some((oldest, from)) = self.room.oldest_asked(origin) else { return false };
            self.remove(oldest);
            self.displaced.push(Displaced::Asked(oldest, from));
        }
        self.makes_room(interface, Newcomer::Wanted, self.more(need))
    }

    /// Whether there is room for one more, perhaps because another one gives way.
    fn makes_room(&mut self, interface: u16, newcomer: Newcomer, more: usize) -> bool {
        if self.room.all < self.limits.neighbours.saturating_add(more) {
            return true;
        }
        let is_wanted = newcomer == Newcomer::Wanted;
        if is_wanted && self.room.is_stuck(interface, self.now) {
            return false;
        }
        let may_go = |key: NeighbourKey, stays_for_a_time: bool| {
            let is_old = |entry: &NeighbourEntry| entry.filed.since.saturating_add(STAY_NS) <= self.now;
            (!stays_for_a_time || self.entries.get(&key).is_some_and(is_old)) && !(self.stays.0)(key)
        };
        let Some(other) = self.room.gives_way(interface, self.share(), newcomer, may_go) else {
            if is_wanted {
                self.room.set_stuck(interface, self.now.saturating_add(STUCK_NS));
            }
            return false;
        };
        self.remove(other);
        self.displaced.push(Displaced::Known(other));
        true
    }

    /// Whether there is room for a station that announces itself.
    pub(crate) fn makes_room_for(&mut self, key: NeighbourKey, mac: MacAddr, now: u64) -> bool {
        self.now = self.now.max(now);
        self.makes_room(key.0, Newcomer::Told(mac), 0)
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
        let filed = self.filed();
        let permanent = NeighbourEntry {
            state,
            mac: Some(mac),
            asked: 0,
            deadline: u64::MAX,
            is_awaited: false,
            class: None,
            filed,
        };
        self.entries.insert(key, permanent);
        self.file(key);
        self.by_state[state as usize] += 1;
        self.filter.add(key);
    }

    /// Takes over a neighbour whose address is known from others, or that has failed there, in the state that it has
    /// there. Returns whether it did: not without room, and not in place of one that is known here. One that has failed
    /// is watched.
    pub fn adopt(&mut self, key: NeighbourKey, from: &Neighbours, known: NeighbourKey, now: u64) -> bool {
        let Some(&NeighbourEntry { state, mac, asked, deadline, filed, .. }) = from.entries.get(&known) else {
            return false;
        };
        if self.entries.contains_key(&key) {
            return false;
        }
        if state == NeighbourState::Failed {
            self.watched.insert(key);
            self.put(key, state, None, 0, deadline.min(now.saturating_add(self.watch_interval())));
            return true;
        }
        let Some(mac) = mac.filter(|&mac| self.makes_room_for(key, mac, now)) else { return false };
        if state == NeighbourState::Permanent {
            self.enter(key, mac);
        } else {
            // Another configuration may hold answers for a shorter time.
            self.put(key, state, Some(mac), asked, deadline.min(now.saturating_add(self.limits.reachable)));
            if filed.is_wanted {
                self.set_wanted(key);
            }
        }
        true
    }

    /// Forgets a neighbour. Returns its address, if it was known.
    fn remove(&mut self, key: NeighbourKey) -> Option<MacAddr> {
        let entry = self.entries.remove(&key)?;
        self.filter.remove(key, entry.is_awaited);
        self.deadlines.remove(&(entry.deadline, key));
        self.by_state[entry.state as usize] -= 1;
        if let Some(class) = entry.class {
            self.room.leave(key, class, entry.filed.number);
        }
        entry.mac
    }

    /// What to do with a packet to a neighbour, which came from the interface `origin`, or from the router itself (0).
    pub fn want(&mut self, key: NeighbourKey, need: Need, origin: u16, now: u64) -> Wanted {
        self.now = self.now.max(now);
        // A flood of packets to strangers finds no room, and needs no look-up.
        let known = if self.may_know(key) { self.entries.get(&key).copied() } else { None };
        match known {
            Some(NeighbourEntry { mac: Some(mac), filed, .. }) => {
                if !filed.is_wanted && need != Need::Answer {
                    self.set_wanted(key);
                }
                Wanted::Known(mac)
            }
            Some(NeighbourEntry { asked: 1.., .. }) => Wanted::Waiting,
            None if !self.makes_room_to_ask(key.0, need, origin) => Wanted::Full,
            // A watched one that has failed, or whose turn has not come, is asked at once if a packet needs it.
            None | Some(_) => {
                let (is_wanted, is_hop) = (need != Need::Answer, need == Need::NextHop);
                let filed = Filed { is_wanted, is_hop, origin, ..self.filed() };
                let deadline = now.saturating_add(self.limits.retransmit);
                self.put_as(key, NeighbourState::Incomplete, None, 1, deadline, filed);
                Wanted::Ask
            }
        }
    }

    /// Takes in an address that was heard from a neighbour.
    pub fn hear(&mut self, key: NeighbourKey, mac: MacAddr, heard: Heard, now: u64) -> Learned {
        let known = self.entries.get(&key).copied();
        let learned = match known {
            Some(NeighbourEntry { state: NeighbourState::Permanent, .. }) => return Learned::Ignored,
            Some(NeighbourEntry { mac: Some(before), .. }) if before == mac => Learned::Confirmed,
            Some(_) => Learned::Changed,
            None if heard != Heard::Question => return Learned::Ignored,
            None if !self.makes_room_for(key, mac, now) => return Learned::Full,
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

    /// How a neighbour comes that announces itself.
    fn filed(&mut self) -> Filed {
        self.number += 1;
        Filed { number: self.number, since: self.now, is_wanted: false, is_hop: false, origin: 0 }
    }

    fn put(&mut self, key: NeighbourKey, state: NeighbourState, mac: Option<MacAddr>, asked: u8, deadline: u64) {
        let filed = self.entries.get(&key).map(|entry| entry.filed);
        let filed = filed.unwrap_or_else(|| self.filed());
        self.put_as(key, state, mac, asked, deadline, filed);
    }

    fn put_as(
        &mut self,
        key: NeighbourKey,
        state: NeighbourState,
        mac: Option<MacAddr>,
        asked: u8,
        deadline: u64,
        filed: Filed,
    ) {
        // Packets go on to wait while the neighbour is asked again.
        let is_awaited = mac.is_none() && self.entries.get(&key).is_some_and(|entry| entry.is_awaited);
        self.remove(key);
        self.by_state[state as usize] += 1;
        self.entries.insert(key, NeighbourEntry { state, mac, asked, deadline, is_awaited, class: None, filed });
        self.file(key);
        self.filter.add(key);
        if is_awaited {
            self.filter.set_awaited(key, true);
        }
        self.deadlines.insert((deadline, key));
    }

    /// A packet wanted to know where a neighbour is.
    fn set_wanted(&mut self, key: NeighbourKey) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.filed.is_wanted = true;
            self.file(key);
        }
    }

    /// Has a neighbour take the room of those of its class.
    fn file(&mut self, key: NeighbourKey) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        let NeighbourEntry { state, mac, filed, .. } = *entry;
        let class = match (state, mac) {
            _ if self.watched.contains(&key) => None,
            (NeighbourState::Permanent, _) => Some(Class::Fixed),
            (_, Some(_)) if filed.is_wanted => Some(Class::Wanted),
            (_, Some(mac)) => Some(Class::Told(mac)),
            (NeighbourState::Incomplete, None) if filed.is_hop => Some(Class::AskedHop),
            (NeighbourState::Incomplete, None) => Some(Class::Asked { origin: filed.origin }),
            (_, None) => Some(Class::Fixed),
        };
        let before = std::mem::replace(&mut entry.class, class);
        if let Some(before) = before {
            self.room.leave(key, before, filed.number);
        }
        if let Some(class) = class {
            self.room.enter(key, class, filed.number);
        }
    }
}

#[cfg(test)]
mod tests;

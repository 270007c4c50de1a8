//! What `arp` and `nd` have in common: neighbours, packets that wait for them, and the adjacencies of both.
//!
//! | file | contents |
//! |---|---|
//! | `figures.rs` | how many neighbours and routes there are, as gauges |
//! | `shown.rs` | the neighbours as other threads see them |
//! | `upkeep.rs` | what reaches the tables, and which next hops are watched |

mod figures;
#[cfg(test)]
mod tests;
mod upkeep;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use bellows_common::full_table::FullTable;
use bellows_common::limit::SharedLimit;
use bellows_common::nexts::NextVectors;
use bellows_config::Duration;
use bellows_engine::{App, Io, Status};
use bellows_packet::Packet;
use bellows_sys::clock;
use bellows_vrf::adjacency::AdjacencyKind;
use bellows_vrf::neighbours::{
    Displaced, Due, Glance, Learned, Need, NeighbourKey, NeighbourLimits, NeighbourState, Neighbours, Wanted,
};
use bellows_vrf::{Interface, IpFamily, Tag, Vrf};
use bellows_wire::MacAddr;

pub(crate) use self::figures::Figures;
use self::upkeep::NeighbourChange;
use super::{ETHERNET, UNUSUAL};
use crate::vrf::RoutingDomain;
use crate::vrf::resolved::Shown;

/// Packets that wait for a neighbour. Linux keeps about as many of the smallest size.
const MAX_WAITING: usize = 3;

/// Packets a second that wait in place of older ones, and how many at once after a pause: each costs several look-ups.
const REPLACED: u32 = 10_000;
const REPLACED_AT_ONCE: u32 = 1_250;

/// Neighbours that are asked or gone in a tick; others follow in the next breath. Their questions fit into a link.
pub(crate) const MAX_DUE: usize = 256;

/// The neighbours of one family, and the packets that wait for them.
pub(crate) struct Resolver {
    pub(crate) domain: Arc<RoutingDomain>,
    /// The app's name.
    app: String,
    family: IpFamily,
    neighbours: Neighbours,
    /// Who has filled the room for neighbours, and for those that are asked for.
    full: FullTable,
    full_awaited: FullTable,
    /// Packets that waited for neighbours that were displaced.
    displaced: (u64, Vec<Packet>),
    waiting: HashMap<NeighbourKey, Vec<Packet>>,
    held: usize,
    /// That of packets that wait in place of older ones.
    replacements: SharedLimit,
    /// Changes that the tables do not have yet: the last one of each neighbour, so that a neighbour which changes while
    /// the tables are locked takes no more room.
    changes: BTreeMap<NeighbourKey, NeighbourChange>,
    /// Whether flows are to be moved off next hops that have failed, or back.
    is_moving_flows: bool,
    /// The version of the list of next hops to watch that was followed last.
    watch_version: Option<u64>,
    /// The last next hop of the list so far, while it is being followed.
    watched_up_to: Option<NeighbourKey>,
    /// When next hops begin to be watched.
    watches_from: u64,
    /// The output of each interface, by its number.
    outputs: Vec<u16>,
    /// When the gauges are set next.
    next_figures: u64,
    shown: Arc<Shown>,
    /// Neighbours that are shown otherwise than they are. Only these are shown anew: a change among many must not cost
    /// more than one among few.
    unshown: HashSet<NeighbourKey>,
    /// How many neighbours have been forgotten by request.
    forgotten: u64,
}

/// How many neighbours a resolver of a routing domain knows, and for how long an answer holds.
pub(crate) fn limits(tables: &Vrf, reachable: Duration) -> NeighbourLimits {
    let neighbours = tables.max_neighbours();
    let for_routes = tables.room_for_routes();
    NeighbourLimits { neighbours, for_routes, reachable: reachable.nanos(), ..NeighbourLimits::default() }
}

/// What became of a packet to a neighbour that the look-up did not know.
pub(crate) enum Resolved {
    /// It has its header, and leaves by this output.
    Send(usize, Packet),
    /// It waits, and the neighbour must be asked now.
    Ask(NeighbourKey),
    /// It waits.
    Waits,
    /// It finds no room, because too many neighbours or packets are waited for.
    Full(Packet),
    /// Its adjacency has gone.
    Gone(Packet),
}

impl Resolver {
    /// For neighbours with addresses of a family.
    pub(crate) fn new(domain: Arc<RoutingDomain>, family: IpFamily, limits: NeighbourLimits) -> Resolver {
        let shown: Arc<Shown> = Arc::default();
        domain.add_resolver(Arc::downgrade(&shown));
        let interfaces = domain.tables().interfaces().len();
        let mut neighbours = Neighbours::new(NeighbourLimits { interfaces, ..limits });
        let routes = Arc::clone(&domain);
        neighbours.keep(move |key| routes.tables().may_lead_to(key));
        Resolver {
            domain,
            app: String::new(),
            family,
            neighbours,
            full: FullTable::new("neighbours"),
            full_awaited: FullTable::new("awaited neighbours"),
            displaced: (0, Vec::new()),
            waiting: HashMap::new(),
            held: 0,
            replacements: SharedLimit::new(REPLACED, REPLACED_AT_ONCE, interfaces),
            changes: BTreeMap::new(),
            is_moving_flows: false,
            watch_version: None,
            watched_up_to: None,
            watches_from: 0,
            outputs: Vec::new(),
            next_figures: 0,
            shown,
            unshown: HashSet::new(),
            forgotten: 0,
        }
    }

    /// Sets the name of the app, for events.
    pub(crate) fn set_app(&mut self, name: &str) {
        name.clone_into(&mut self.app);
    }

    /// Finds the outputs of the interfaces.
    #[cold]
    pub(crate) fn rewire<A: App>(&mut self, io: &Io<A>, next_vectors: &mut NextVectors) {
        let find = |name: &str| (0..io.outputs()).find(|&output| io.output_name(output) == Some(name));
        let interfaces = self.domain.tables().interfaces().iter();
        let output = |interface: &Interface| find(&interface.port).map_or(UNUSUAL, |output| output as u16);
        self.outputs = std::iter::once(UNUSUAL).chain(interfaces.map(output)).collect();
        next_vectors.resize(io.outputs());
    }

    /// The output of an interface, if it is linked.
    pub(crate) fn output(&self, interface: u16) -> Option<usize> {
        self.outputs.get(usize::from(interface)).filter(|&&output| output != UNUSUAL).map(|&output| output.into())
    }

    /// See [`Neighbours::may_know`].
    #[inline]
    pub(crate) fn may_know(&self, key: NeighbourKey) -> bool {
        self.neighbours.may_know(key)
    }

    /// The number of packets that wait.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// The number of watched next hops that do not answer.
    pub(crate) fn failed(&self) -> u64 {
        self.neighbours.failed() as u64
    }

    /// Watches no next hops before this time: the router has no address to ask them with.
    pub(crate) fn watch_from(&mut self, time: u64) {
        self.watches_from = time;
    }

    pub(crate) fn status(&self) -> Arc<dyn Status> {
        Arc::clone(&self.shown) as Arc<dyn Status>
    }

    /// Takes in a packet whose adjacency is not complete. `destination` is that of its header; one whose next hop has an
    /// address of the resolver's family, but itself has not, has none.
    pub(crate) fn resolve(&mut self, packet: Packet, index: u32, destination: IpAddr, now: u64) -> Resolved {
        self.forget(now);
        let Some(adjacency) = self.domain.tables().adjacencies().get(index) else { return Resolved::Gone(packet) };
        let next_hop = adjacency.next_hop.unwrap_or(destination);
        if next_hop.is_ipv4() != destination.is_ipv4() || next_hop.is_unspecified() {
            return Resolved::Gone(packet);
        }
        let key = (adjacency.interface, next_hop);
        let need = if adjacency.next_hop.is_some() { Need::NextHop } else { Need::Destination };
        let origin = Tag(packet.tag()).interface();
        let wanted = self.neighbours.want(key, need, origin, now);
        self.follow_displaced(now);
        if let Wanted::Known(mac) = wanted
            && adjacency.kind != AdjacencyKind::Complete
        {
            // The tables had no room for it, or lost it with an address that a command had entered.
            self.changes.insert(key, NeighbourChange::Known(mac));
        }
        self.take_in(packet, key, wanted, origin, now)
    }

    /// Whether [`Resolver::resolve`] would find all of these packets [`Resolved::Full`]: a flood is, and is dropped at once.
    /// `destination` is that of a packet's header, if it has a whole one.
    pub(crate) fn are_too_many(
        &self,
        packets: &[Packet],
        now: u64,
        destination: impl Fn(&Packet) -> Option<IpAddr>,
    ) -> bool {
        let mut last = (u32::MAX, None);
        let mut full = None;
        let are_too_many = packets.iter().all(|packet| {
            let (index, origin) = (Tag(packet.tag()).number(), Tag(packet.tag()).interface());
            if index != last.0 {
                last = (index, self.unresolved(index));
            }
            let (Some((interface, next_hop)), Some(destination)) = (last.1, destination(packet)) else { return false };
            let need = if next_hop.is_some() { Need::NextHop } else { Need::Destination };
            let next_hop = next_hop.unwrap_or(destination);
            if next_hop.is_ipv4() != destination.is_ipv4() || next_hop.is_unspecified() {
                return false;
            }
            match self.neighbours.glance((interface, next_hop), need, origin, now) {
                Glance::Full => {
                    full = Some(origin);
                    true
                }
                Glance::Awaited => !self.replacements.admits(origin, now),
                Glance::Open => false,
            }
        });
        if let Some(origin) = full.filter(|_| are_too_many) {
            self.tell_awaited(origin, now);
        }
        are_too_many
    }

    /// Tells that packets from an interface ask for too many neighbours.
    fn tell_awaited(&self, origin: u16, now: u64) {
        self.full_awaited.tell(&self.app, origin.into(), now, || {
            (self.name_of(origin), "its packets to others that are not known are dropped; is somebody scanning a link?")
        });
    }

    /// The name of an interface, or of the router itself.
    fn name_of(&self, number: u16) -> String {
        self.domain.tables().interface(number).map_or_else(|| "router".to_owned(), |interface| interface.name.clone())
    }

    /// Takes those that were displaced out of the tables.
    fn follow_displaced(&mut self, now: u64) {
        for displaced in self.neighbours.take_displaced() {
            let key = match displaced {
                Displaced::Known(key) => {
                    self.changes.insert(key, NeighbourChange::Gone);
                    self.tell_full(key.0, now);
                    key
                }
                Displaced::Asked(key, origin) => {
                    self.tell_awaited(origin, now);
                    key
                }
            };
            self.unshown.insert(key);
            let waited = self.waiting.remove(&key).unwrap_or_default();
            self.displaced.0 += 1;
            self.displaced.1.extend(waited);
        }
    }

    /// Tells that neighbours on the link of an interface have filled the table.
    fn tell_full(&self, interface: u16, now: u64) {
        self.full.tell(&self.app, interface.into(), now, || {
            let outcome = "stations there are answered, but not all of them are learned; is one of them claiming many \
                           addresses? If not, raise `neighbours` of the routing domain";
            (self.name_of(interface), outcome)
        });
    }

    /// How many neighbours were displaced since the last call, and the packets that waited for them.
    pub(crate) fn take_displaced(&mut self) -> (u64, Vec<Packet>) {
        let taken = std::mem::take(&mut self.displaced);
        self.held -= taken.1.len();
        taken
    }

    /// The interface and the next hop of an adjacency that is not complete; none if that is the packet's destination.
    fn unresolved(&self, index: u32) -> Option<(u16, Option<IpAddr>)> {
        let adjacency = self.domain.tables().adjacencies().get(index)?;
        (adjacency.kind != AdjacencyKind::Complete).then_some((adjacency.interface, adjacency.next_hop))
    }

    /// Takes in a packet to a neighbour.
    pub(crate) fn resolve_neighbour(&mut self, packet: Packet, key: NeighbourKey, now: u64) -> Resolved {
        // Routes lead to neighbours that somebody entered, but not to their link-local addresses.
        if let Some(mac) = self.domain.tables().permanent_mac(key) {
            return self.send(key, mac, packet);
        }
        let wanted = self.neighbours.want(key, Need::Answer, key.0, now);
        self.follow_displaced(now);
        self.take_in(packet, key, wanted, key.0, now)
    }

    fn take_in(&mut self, packet: Packet, key: NeighbourKey, wanted: Wanted, origin: u16, now: u64) -> Resolved {
        match wanted {
            Wanted::Known(mac) => self.send(key, mac, packet),
            Wanted::Full => Resolved::Full(packet),
            Wanted::Ask | Wanted::Waiting => {
                let waiting = self.waiting.entry(key).or_default();
                if waiting.len() >= MAX_WAITING {
                    if !self.replacements.admits(origin, now) {
                        return Resolved::Full(packet);
                    }
                    self.replacements.pay(origin, now);
                    // The last ones are still wanted (RFC 4861, section 7.2.2; RFC 1122, section 2.3.2.2).
                    let oldest = waiting.remove(0);
                    waiting.push(packet);
                    return Resolved::Full(oldest);
                }
                waiting.push(packet);
                if waiting.len() >= MAX_WAITING {
                    self.neighbours.set_awaited(key);
                }
                self.held += 1;
                self.unshown.insert(key);
                if wanted == Wanted::Ask { Resolved::Ask(key) } else { Resolved::Waits }
            }
        }
    }

    /// Writes the header of a packet to a neighbour.
    fn send(&self, key: NeighbourKey, mac: MacAddr, mut packet: Packet) -> Resolved {
        let (Some(output), Some(interface)) = (self.output(key.0), self.domain.tables().interface(key.0)) else {
            return Resolved::Gone(packet);
        };
        let packets = if is_ipv4(&packet) { IpFamily::V4 } else { IpFamily::of(key.1) };
        let adjacency = interface.neighbour(key.0, key.1, Some(mac), packets);
        let header = &adjacency.header[..adjacency.length.into()];
        if super::set_header(&mut packet, header) { Resolved::Send(output, packet) } else { Resolved::Gone(packet) }
    }

    /// Takes in what `hear` tells the neighbours. Returns the packets that waited for the neighbour, if its address is
    /// new.
    pub(crate) fn learn(
        &mut self,
        key: NeighbourKey,
        now: u64,
        hear: impl FnOnce(&mut Neighbours) -> Learned,
    ) -> (Learned, Vec<Resolved>) {
        let before = self.neighbours.state(key);
        let learned = hear(&mut self.neighbours);
        self.follow_displaced(now);
        let state = self.neighbours.state(key);
        if state != before {
            self.unshown.insert(key);
        }
        if learned == Learned::Full {
            self.tell_full(key.0, now);
        }
        let Some((_, Some(mac))) = state else { return (learned, Vec::new()) };
        if learned != Learned::Changed {
            return (learned, Vec::new());
        }
        self.changes.insert(key, NeighbourChange::Known(mac));
        let waited = self.waiting.remove(&key).unwrap_or_default();
        self.held -= waited.len();
        (learned, waited.into_iter().map(|packet| self.send(key, mac, packet)).collect())
    }

    /// The next thing that is due, with the packets that waited for a neighbour that is gone.
    pub(crate) fn due(&mut self, now: u64) -> Option<(Due, Vec<Packet>)> {
        let due = self.neighbours.due(now)?;
        let (Due::Ask(key, _) | Due::Gone(key, _)) = due;
        self.unshown.insert(key);
        let mut waited = Vec::new();
        if let Due::Gone(key, mac) = due {
            waited = self.waiting.remove(&key).unwrap_or_default();
            self.held -= waited.len();
            if matches!(self.neighbours.state(key), Some((NeighbourState::Failed, _))) {
                self.changes.insert(key, NeighbourChange::Failed);
            } else if mac.is_some() {
                self.changes.insert(key, NeighbourChange::Gone);
            }
        }
        Some((due, waited))
    }

    /// Forgets neighbours by request, which then are asked anew; the tables do not have them any more. Those for which
    /// packets wait are being asked.
    #[inline]
    pub(crate) fn forget(&mut self, now: u64) {
        for key in self.domain.forgotten().since(&mut self.forgotten) {
            if !self.waiting.contains_key(&key) && self.neighbours.forget(key, now) {
                self.changes.insert(key, NeighbourChange::Gone);
                self.unshown.insert(key);
            }
        }
    }

    /// Takes over the neighbours of the resolver that this one replaces, as far as their interfaces are still there.
    pub(crate) fn succeed(&mut self, old: &Resolver) {
        if Arc::ptr_eq(&self.domain, &old.domain) {
            // What the other one has forgotten by request may be known again.
            self.forgotten = old.forgotten;
        }
        for (known, _, mac) in old.neighbours.iter() {
            let same = old.domain.tables().same_neighbour(known, self.domain.tables());
            if let Some(key) = same
                && self.neighbours.adopt(key, &old.neighbours, known, clock::now())
            {
                self.changes.insert(key, mac.map_or(NeighbourChange::Failed, NeighbourChange::Known));
                self.unshown.insert(key);
            }
        }
    }
}

/// Whether a packet behind an Ethernet header, which may be empty yet, is one of IPv4.
pub(crate) fn is_ipv4(packet: &Packet) -> bool {
    packet.bytes().get(ETHERNET).is_some_and(|byte| byte >> 4 == 4)
}

//! What `arp` and `nd` have in common: neighbours, packets that wait for them, and the adjacencies of both.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use bellows_config::Duration;
use bellows_engine::{App, Io, Status};
use bellows_packet::Packet;
use bellows_sys::clock;
use bellows_vrf::adjacency::Kind;
use bellows_vrf::neighbours::{Due, Glance, Learned, Need, NeighbourKey, NeighbourLimits, Neighbours, Wanted};
use bellows_vrf::{Interface, IpFamily, Tag, Vrf};
use bellows_wire::MacAddr;
use serde_json::{Value, json};

use super::{ETHERNET, UNUSUAL};
use crate::lanes::Lanes;
use crate::limit::Limit;
use crate::vrf::RoutingDomain;

/// Packets that wait for a neighbour. Linux keeps about as many of the smallest size.
const MAX_WAITING: usize = 3;

/// Packets a second that wait in place of older ones, and how many at once after a pause: each costs several look-ups.
const REPLACED: u32 = 10_000;
const REPLACED_AT_ONCE: u32 = 1_250;

/// Neighbours that are asked or gone in a tick; others follow in the next breath. Their questions fit into a link.
pub(crate) const MAX_DUE: usize = 256;

/// The time after which changes that found the tables locked are tried again.
const RETRY_NS: u64 = 1_000_000;

/// The neighbours of one family, and the packets that wait for them.
pub(crate) struct Resolver {
    pub(crate) domain: Arc<RoutingDomain>,
    neighbours: Neighbours,
    waiting: HashMap<NeighbourKey, Vec<Packet>>,
    held: usize,
    /// That of packets that wait in place of older ones.
    replacements: Limit,
    /// Changes that the tables do not have yet: the last one of each neighbour, so that a neighbour which changes while
    /// the tables are locked takes no more room.
    changes: BTreeMap<NeighbourKey, Option<MacAddr>>,
    /// The output of each interface, by its number.
    outputs: Vec<u16>,
    shown: Arc<Shown>,
    /// Neighbours that are shown otherwise than they are. Only these are shown anew: a change among many must not cost
    /// more than one among few.
    unshown: HashSet<NeighbourKey>,
    /// How many neighbours have been forgotten by request.
    forgotten: u64,
}

/// The neighbours as other threads see them.
#[derive(Default)]
pub(crate) struct Shown(Mutex<HashMap<NeighbourKey, ShownNeighbour>>);

/// A neighbour as other threads see it.
#[derive(Clone)]
struct ShownNeighbour {
    interface: String,
    address: IpAddr,
    state: &'static str,
    mac: Option<MacAddr>,
    /// When the state or the Ethernet address was last another one, in the engine's time.
    since: u64,
    /// The number of packets that wait for it.
    waiting: usize,
}

impl Status for Shown {
    fn status(&self) -> Value {
        let mut shown: Vec<ShownNeighbour> =
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).values().cloned().collect();
        shown.sort_unstable_by(|one, other| (&one.interface, one.address).cmp(&(&other.interface, other.address)));
        let neighbours: Vec<Value> = shown
            .into_iter()
            .map(|ShownNeighbour { interface, address, state, mac, since, waiting }| {
                let mac = mac.map(|mac| mac.to_string());
                let age = clock::now().saturating_sub(since) / 1_000_000_000;
                json!({
                    "interface": interface, "address": address.to_string(), "state": state, "mac": mac,
                    "age_seconds": age, "waiting": waiting,
                })
            })
            .collect();
        json!({ "neighbours": neighbours })
    }
}

/// How many neighbours a resolver of a routing domain knows, and for how long an answer holds.
pub(crate) fn limits(tables: &Vrf, reachable: Duration) -> NeighbourLimits {
    let neighbours = tables.max_neighbours();
    let for_routes = tables.adjacencies().capacity().saturating_sub(neighbours);
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
    pub(crate) fn new(domain: Arc<RoutingDomain>, limits: NeighbourLimits) -> Resolver {
        let shown: Arc<Shown> = Arc::default();
        let status: Arc<dyn Status> = Arc::clone(&shown) as Arc<dyn Status>;
        domain.add_resolver(Arc::downgrade(&status));
        Resolver {
            domain,
            neighbours: Neighbours::new(limits),
            waiting: HashMap::new(),
            held: 0,
            replacements: Limit::new(REPLACED, REPLACED_AT_ONCE),
            changes: BTreeMap::new(),
            outputs: Vec::new(),
            shown,
            unshown: HashSet::new(),
            forgotten: 0,
        }
    }

    /// Finds the outputs of the interfaces.
    #[cold]
    pub(crate) fn rewire<A: App>(&mut self, io: &Io<A>, lanes: &mut Lanes) {
        let find = |name: &str| (0..io.outputs()).find(|&output| io.output_name(output) == Some(name));
        let interfaces = self.domain.tables().interfaces().iter();
        let output = |interface: &Interface| find(&interface.port).map_or(UNUSUAL, |output| output as u16);
        self.outputs = std::iter::once(UNUSUAL).chain(interfaces.map(output)).collect();
        lanes.resize(io.outputs());
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

    pub(crate) fn status(&self) -> Arc<dyn Status> {
        Arc::clone(&self.shown) as Arc<dyn Status>
    }

    /// Takes in a packet whose adjacency is not complete. `destination` is that of its header; one whose next hop has an
    /// address of the resolver's family, but itself has not, has none.
    pub(crate) fn resolve(&mut self, packet: Packet, index: u32, destination: IpAddr, now: u64) -> Resolved {
        self.forget();
        let Some(adjacency) = self.domain.tables().adjacencies().get(index) else { return Resolved::Gone(packet) };
        let next_hop = adjacency.next_hop.unwrap_or(destination);
        if next_hop.is_ipv4() != destination.is_ipv4() || next_hop.is_unspecified() {
            return Resolved::Gone(packet);
        }
        let key = (adjacency.interface, next_hop);
        let need = if adjacency.next_hop.is_some() { Need::NextHop } else { Need::Destination };
        let wanted = self.neighbours.want(key, need, now);
        if let Wanted::Known(mac) = wanted
            && adjacency.kind != Kind::Complete
        {
            // The tables had no room for it, or lost it with an address that a command had entered.
            self.changes.insert(key, Some(mac));
        }
        self.take_in(packet, key, wanted, now)
    }

    /// Whether [`Resolver::resolve`] would find all of these packets [`Resolved::Full`]: a flood is, and is dropped at once.
    /// `destination` is that of a packet's header, if it has a whole one.
    pub(crate) fn are_too_many(
        &self,
        packets: &[Packet],
        now: u64,
        destination: impl Fn(&Packet) -> Option<IpAddr>,
    ) -> bool {
        let replaces = self.replacements.admits(now);
        let mut last = (u32::MAX, None);
        packets.iter().all(|packet| {
            let index = Tag(packet.tag()).number();
            if index != last.0 {
                last = (index, self.unresolved(index));
            }
            let (Some((interface, next_hop)), Some(destination)) = (last.1, destination(packet)) else { return false };
            let need = if next_hop.is_some() { Need::NextHop } else { Need::Destination };
            let next_hop = next_hop.unwrap_or(destination);
            if next_hop.is_ipv4() != destination.is_ipv4() || next_hop.is_unspecified() {
                return false;
            }
            match self.neighbours.glance((interface, next_hop), need) {
                Glance::Full => true,
                Glance::Awaited => !replaces,
                Glance::Open => false,
            }
        })
    }

    /// The interface and the next hop of an adjacency that is not complete; none if that is the packet's destination.
    fn unresolved(&self, index: u32) -> Option<(u16, Option<IpAddr>)> {
        let adjacency = self.domain.tables().adjacencies().get(index)?;
        (adjacency.kind != Kind::Complete).then_some((adjacency.interface, adjacency.next_hop))
    }

    /// Takes in a packet to a neighbour.
    pub(crate) fn resolve_neighbour(&mut self, packet: Packet, key: NeighbourKey, now: u64) -> Resolved {
        // Routes lead to neighbours that somebody entered, but not to their link-local addresses.
        if let Some(mac) = self.domain.tables().permanent_mac(key) {
            return self.send(key, mac, packet);
        }
        let wanted = self.neighbours.want(key, Need::Destination, now);
        self.take_in(packet, key, wanted, now)
    }

    fn take_in(&mut self, packet: Packet, key: NeighbourKey, wanted: Wanted, now: u64) -> Resolved {
        match wanted {
            Wanted::Known(mac) => self.send(key, mac, packet),
            Wanted::Full => Resolved::Full(packet),
            Wanted::Ask | Wanted::Waiting => {
                let waiting = self.waiting.entry(key).or_default();
                if waiting.len() >= MAX_WAITING {
                    if !self.replacements.admits(now) {
                        return Resolved::Full(packet);
                    }
                    self.replacements.pay(now);
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
        hear: impl FnOnce(&mut Neighbours) -> Learned,
    ) -> (Learned, Vec<Resolved>) {
        let before = self.neighbours.state(key);
        let learned = hear(&mut self.neighbours);
        let state = self.neighbours.state(key);
        if state != before {
            self.unshown.insert(key);
        }
        let Some((_, Some(mac))) = state else { return (learned, Vec::new()) };
        if learned != Learned::Changed {
            return (learned, Vec::new());
        }
        self.changes.insert(key, Some(mac));
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
            if mac.is_some() {
                self.changes.insert(key, None);
            }
        }
        Some((due, waited))
    }

    /// Puts changes into the tables, unless another thread is changing them, and shows the neighbours. Wakes the app
    /// when something is due. Returns the number of neighbours that found no room in the tables.
    pub(crate) fn upkeep<A: App>(&mut self, io: &Io<A>) -> u64 {
        self.forget();
        let mut refused = 0;
        if !self.changes.is_empty() && !self.publish(&mut refused) {
            io.wake_at(io.now() + RETRY_NS);
        }
        if let Some(deadline) = self.neighbours.next_deadline() {
            io.wake_at(deadline);
        }
        self.show(io);
        refused
    }

    /// Shows the neighbours that have changed, unless another thread is reading.
    fn show<A: App>(&mut self, io: &Io<A>) {
        if self.unshown.is_empty() {
            return;
        }
        let Ok(mut shown) = self.shown.0.try_lock() else { return io.wake_at(io.now() + RETRY_NS) };
        for key in self.unshown.drain() {
            let Some((state, mac)) = self.neighbours.state(key) else {
                shown.remove(&key);
                continue;
            };
            let (number, address) = key;
            let interface = self.domain.tables().interface(number).map_or_else(String::new, |it| it.name.clone());
            let (state, waiting) = (state.name(), self.waiting.get(&key).map_or(0, Vec::len));
            let same = shown.get(&key).filter(|before| before.state == state && before.mac == mac);
            let since = same.map_or(io.now(), |same| same.since);
            shown.insert(key, ShownNeighbour { interface, address, state, mac, since, waiting });
        }
    }

    /// Forgets neighbours by request, which then are asked anew; the tables do not have them any more. Those for which
    /// packets wait are being asked.
    #[inline]
    pub(crate) fn forget(&mut self) {
        for key in self.domain.forgotten().since(&mut self.forgotten) {
            if !self.waiting.contains_key(&key) && self.neighbours.remove(key).is_some() {
                self.changes.insert(key, None);
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
            if let (Some(key), Some(mac)) = (same, mac)
                && self.neighbours.adopt(key, &old.neighbours, known, clock::now())
            {
                self.changes.insert(key, Some(mac));
                self.unshown.insert(key);
            }
        }
    }

    /// Returns whether the tables have all changes.
    fn publish(&mut self, refused: &mut u64) -> bool {
        let domain = Arc::clone(&self.domain);
        let Some(mut tables) = domain.tables().try_lock() else { return false };
        let changes = std::mem::take(&mut self.changes);
        // Those that are gone make room for those that are new.
        for (&(interface, address), _) in changes.iter().filter(|(_, mac)| mac.is_none()) {
            tables.unresolve(interface, address);
        }
        for ((interface, address), mac) in changes {
            // Without room for an adjacency, packets go on to come here.
            let Some(mac) = mac else { continue };
            *refused += u64::from(tables.resolve(interface, address, mac).is_err());
        }
        tables.commit().is_ok()
    }
}

/// Whether a packet behind an Ethernet header, which may be empty yet, is one of IPv4.
pub(crate) fn is_ipv4(packet: &Packet) -> bool {
    packet.bytes().get(ETHERNET).is_some_and(|byte| byte >> 4 == 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_vrf::Vrf;
    use bellows_vrf::interface::InterfaceAddress;
    use bellows_vrf::neighbours::{Heard, NeighbourState};

    #[test]
    fn a_neighbour_that_was_forgotten_and_is_known_again_survives_a_reload() {
        let address = InterfaceAddress { address: IpAddr::from([10, 0, 1, 1]), length: 24 };
        let interface = Interface {
            name: "a".to_owned(),
            port: "a".to_owned(),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: vec![address],
        };
        let domain = Arc::new(RoutingDomain::new(Vrf::new(vec![interface], 16, 1).unwrap()));
        let resolver = || Resolver::new(Arc::clone(&domain), NeighbourLimits::default());
        let (key, mac) = ((1, IpAddr::from([10, 0, 1, 7])), MacAddr([4, 0, 0, 0, 0, 9]));
        let mut old = resolver();
        domain.forgotten().forget([key]);
        old.forget();
        assert_eq!(old.neighbours.hear(key, mac, Heard::Question, 0), Learned::Changed);
        // This one has not answered yet.
        let heard = (1, IpAddr::from([10, 0, 1, 8]));
        assert_eq!(old.neighbours.hear_solicitation(heard, mac, clock::now()), Learned::Changed);
        let mut new = resolver();
        new.succeed(&old);
        new.forget();
        assert_eq!(new.neighbours.state(heard), Some((NeighbourState::Delay, Some(mac))));
        assert_eq!(new.neighbours.state(key).and_then(|(_, known)| known), Some(mac));
    }
}

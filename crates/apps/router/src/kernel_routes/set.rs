//! The routes of a kernel's table as they were last heard of.
//!
//! Routes are kept by prefix and metric, with numbers for what they do, because many do the same: a table of a million
//! routes takes some 60 bytes for each.

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bellows_netif::route::{Insertion, KernelRoute, RouteKind, Special, Way};
use bellows_vrf::route::IpPrefix;

/// The prefix and the metric of routes.
pub(super) type KernelRouteKey = (IpPrefix, u32);

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Deed {
    pub(super) kind: RouteKind,
    pub(super) ways: Vec<Way>,
    pub(super) special: Option<Special>,
    /// Who entered the route.
    pub(super) protocol: u8,
    /// The longest packet that takes it, or 0.
    pub(super) mtu: u32,
    /// The next hop object that it leads to.
    pub(super) object: Option<u32>,
}

impl Deed {
    /// Whether both lead to the same next hops. The kernel says which ones are dead only when its table is read.
    fn is_same(&self, other: &Deed) -> bool {
        let are_same = || self.ways.iter().zip(&other.ways).all(|(way, other)| way.is_same(other));
        let (own, others) = ((self.kind, self.condition()), (other.kind, other.condition()));
        own == others && self.ways.len() == other.ways.len() && are_same()
    }

    /// The same for IPv4, which has routes that differ only in who entered them or how long packets may be.
    fn is_same_of_v4(&self, other: &Deed) -> bool {
        self.is_same(other) && (self.protocol, self.mtu) == (other.protocol, other.mtu)
    }

    /// What packets must have besides the destination, if only some take the route. The kernel has routes with and
    /// without a condition side by side.
    fn condition(&self) -> Option<Special> {
        self.special.filter(|special| matches!(special, Special::TypeOfService | Special::Source))
    }

    /// Whether this one has all ways of the other.
    fn covers(&self, other: &Deed) -> bool {
        self.kind == RouteKind::Unicast
            && other.kind == RouteKind::Unicast
            && self.condition() == other.condition()
            && other.ways.iter().all(|way| self.ways.iter().any(|own| own.is_same(way)))
    }
}

/// What has become of the routes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Standing {
    /// The routing domain does not have them yet.
    New,
    /// The routing domain has them.
    Followed,
    /// The routing domain has a route of its own to the prefix with this metric.
    Static,
    /// They lead to devices that are not those of the router's interfaces.
    OtherDevice,
    /// Their devices are down.
    NoLink,
    /// Their next hop cannot be a neighbour: an address of the router, or of a whole link, or one of IPv6 on an interface
    /// without an IPv6 address.
    BadNextHop,
    /// They depend on the type of service or the source, add a header, or leave the decision to another table.
    Unsupported,
    /// No router forwards packets to their destinations: loopback, link-local, multicast and reserved addresses.
    Reserved,
    /// There is no room for their next hops.
    NoRoom,
}

impl Standing {
    /// Whether routes wait for something to go in the routing domain: another route, or next hops that take the room.
    fn waits(self) -> bool {
        matches!(self, Standing::Static | Standing::NoRoom)
    }

    /// The reasons why routes are not followed, by their names.
    pub(super) const REASONS: [(Standing, &str); 8] = [
        (Standing::New, "new"),
        (Standing::Static, "static_route"),
        (Standing::OtherDevice, "other_device"),
        (Standing::NoLink, "no_link"),
        (Standing::BadNextHop, "bad_next_hop"),
        (Standing::Unsupported, "unsupported"),
        (Standing::Reserved, "reserved"),
        (Standing::NoRoom, "no_room"),
    ];
}

/// The numbers of routes with the same prefix and metric, in the kernel's order.
#[derive(Debug)]
enum Numbers {
    One(u32),
    Several(Vec<u32>),
}

impl Numbers {
    fn as_slice(&self) -> &[u32] {
        match self {
            Numbers::One(number) => std::slice::from_ref(number),
            Numbers::Several(numbers) => numbers,
        }
    }
}

#[derive(Debug)]
struct RouteEntry {
    numbers: Numbers,
    /// The reading of the table that last had it.
    generation: u32,
    standing: Standing,
}

/// What routes do, by number.
#[derive(Debug, Default)]
struct Deeds {
    numbers: HashMap<Arc<Deed>, u32>,
    deeds: Vec<(Option<Arc<Deed>>, u32)>,
    free: Vec<u32>,
    /// How many of them lead to next hop objects, by the numbers of these.
    objects: HashMap<u32, usize>,
}

impl Deeds {
    fn of(&self, number: u32) -> Option<&Arc<Deed>> {
        self.deeds.get(number as usize)?.0.as_ref()
    }

    fn take(&mut self, deed: Deed) -> u32 {
        if let Some(&number) = self.numbers.get(&deed) {
            self.deeds[number as usize].1 += 1;
            return number;
        }
        if let Some(object) = deed.object {
            *self.objects.entry(object).or_default() += 1;
        }
        let deed = Arc::new(deed);
        let entry = (Some(Arc::clone(&deed)), 1);
        let number = match self.free.pop() {
            Some(number) => {
                self.deeds[number as usize] = entry;
                number
            }
            None => {
                self.deeds.push(entry);
                self.deeds.len() as u32 - 1
            }
        };
        self.numbers.insert(deed, number);
        number
    }

    fn release(&mut self, number: u32) {
        let Some((deed, uses)) = self.deeds.get_mut(number as usize) else { return };
        *uses -= 1;
        if *uses == 0
            && let Some(deed) = deed.take()
        {
            self.numbers.remove(&deed);
            self.free.push(number);
            if let Some(object) = deed.object
                && let Some(deeds) = self.objects.get_mut(&object)
            {
                *deeds -= 1;
                if *deeds == 0 {
                    self.objects.remove(&object);
                }
            }
        }
    }
}

/// The number of families, and of standings.
const FAMILIES: usize = 2;
const STANDINGS: usize = Standing::NoRoom as usize + 1;

/// The routes of a table.
#[derive(Debug)]
pub(super) struct RouteSet {
    entries: HashMap<KernelRouteKey, RouteEntry>,
    deeds: Deeds,
    generation: u32,
    limit: usize,
    /// Routes that found no room since the last reading.
    beyond_limit: u64,
    counts: [[usize; STANDINGS]; FAMILIES],
    /// The keys that may be entered later without a word from the kernel ([`Standing::waits`]).
    waiting: BTreeSet<KernelRouteKey>,
    /// Whether events may still come that the last reading has taken in already.
    is_behind: bool,
}

impl RouteSet {
    /// An empty set with room for `limit` prefixes.
    pub(super) fn new(limit: usize) -> RouteSet {
        RouteSet {
            entries: HashMap::new(),
            deeds: Deeds::default(),
            generation: 0,
            limit,
            beyond_limit: 0,
            counts: Default::default(),
            waiting: BTreeSet::new(),
            is_behind: false,
        }
    }

    /// Sets the number of prefixes that there is room for, from the next new one on.
    pub(super) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// The number of prefixes with this standing: IPv4, IPv6.
    pub(super) fn count(&self, standing: Standing) -> [usize; FAMILIES] {
        self.counts.map(|of_family| of_family[standing as usize])
    }

    /// Routes that found no room since the last reading of the table began.
    pub(super) fn beyond_limit(&self) -> u64 {
        self.beyond_limit
    }

    /// Whether routes found no room, and there is room now.
    pub(super) fn has_room_again(&self) -> bool {
        self.beyond_limit > 0 && self.entries.len() < self.limit - self.limit / 16
    }

    /// Whether routes lead to a next hop object.
    pub(super) fn leads_to(&self, object: u32) -> bool {
        self.deeds.objects.contains_key(&object)
    }

    /// All keys.
    pub(super) fn keys(&self) -> Vec<KernelRouteKey> {
        self.entries.keys().copied().collect()
    }

    /// Up to `most` keys that wait for something in the routing domain, in order, behind one of them.
    pub(super) fn waiting(&self, behind: Option<KernelRouteKey>, most: usize) -> Vec<KernelRouteKey> {
        let from = behind.map_or(Bound::Unbounded, Bound::Excluded);
        self.waiting.range((from, Bound::Unbounded)).take(most).copied().collect()
    }

    /// The table is read from its beginning.
    pub(super) fn begin_reading(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.beyond_limit = 0;
    }

    /// Takes in a route of the table that is being read. Returns its key if something has changed, or is to be tried
    /// again.
    pub(super) fn read(&mut self, route: KernelRoute) -> Option<KernelRouteKey> {
        let (key, deed) = parts(route)?;
        let (generation, number) = (self.generation, self.deeds.take(deed));
        let Some(entry) = self.entries.get_mut(&key) else { return self.enter(key, number) };
        if entry.generation == generation {
            // The next one of several.
            let last = entry.numbers.as_slice().len();
            return self.put(key, last, number).then_some(key);
        }
        entry.generation = generation;
        let is_same = matches!(entry.numbers, Numbers::One(old) if old == number);
        let is_due = entry.standing != Standing::Followed;
        let old = std::mem::replace(&mut entry.numbers, Numbers::One(number));
        old.as_slice().iter().for_each(|&old| self.deeds.release(old));
        (is_due || !is_same).then_some(key)
    }

    /// The whole table was read: removes what it did not have. Returns the keys.
    pub(super) fn end_reading(&mut self) -> Vec<KernelRouteKey> {
        self.is_behind = true;
        let generation = self.generation;
        let gone = self.entries.iter().filter(|(_, entry)| entry.generation != generation).map(|(key, _)| *key);
        let gone: Vec<KernelRouteKey> = gone.collect();
        for key in &gone {
            self.set_numbers(*key, Vec::new());
        }
        gone
    }

    /// All events that waited during the last reading have been taken in.
    pub(super) fn catch_up(&mut self) {
        self.is_behind = false;
    }

    /// Takes in a route that was added. Returns its key, unless there is no room for it, and whether the routes with it
    /// are surely as the kernel has them.
    pub(super) fn added(&mut self, route: KernelRoute, insertion: Insertion) -> Option<(KernelRouteKey, bool)> {
        let (key, deed) = parts(route)?;
        let is_v6 = matches!(key.0, IpPrefix::V6(_));
        if !self.entries.contains_key(&key) {
            let number = self.deeds.take(deed);
            return self.enter(key, number).map(|key| (key, true));
        }
        // The table may have been read after the event. IPv6 reports all ways of a route whose ways have become more,
        // and IPv4 has no route twice.
        let repeats = |known: &Deed| match is_v6 {
            true => deed.is_same(known) || deed.covers(known),
            false => deed.is_same_of_v4(known),
        };
        let is_repeated = |number: u32| self.deeds.of(number).is_some_and(|known| repeats(known));
        let (repeated, mut numbers): (Vec<u32>, Vec<u32>) =
            self.numbers(key).into_iter().partition(|&number| is_repeated(number));
        // What it replaced may have gone before the table was read.
        let may_be_gone = self.is_behind || !repeated.is_empty();
        let is_sure = is_v6 || insertion != Insertion::Replace || numbers.is_empty() || !may_be_gone;
        let mut gone = repeated;
        let condition = deed.condition();
        let is_peer = |number: &u32| self.deeds.of(*number).is_some_and(|known| known.condition() == condition);
        let place = match insertion {
            Insertion::Replace if is_v6 => {
                let (replaced, others): (Vec<u32>, Vec<u32>) = numbers.into_iter().partition(is_peer);
                gone.extend(replaced);
                numbers = others;
                0
            }
            Insertion::Replace => {
                // One whose next hop object has changed is in the place where it was.
                let has_object = |number: &&u32| {
                    deed.object.is_some() && self.deeds.of(**number).is_some_and(|known| known.object == deed.object)
                };
                let updated = numbers.iter().find(has_object).copied();
                let place =
                    numbers.iter().position(|number| updated.map_or_else(|| is_peer(number), |it| it == *number));
                gone.extend(place.map(|place| numbers.remove(place)));
                place.unwrap_or(0)
            }
            Insertion::First if !is_v6 => 0,
            Insertion::First | Insertion::Last => numbers.len(),
        };
        let number = self.deeds.take(deed);
        numbers.insert(place, number);
        gone.into_iter().for_each(|old| self.deeds.release(old));
        self.keep(key, numbers);
        Some((key, is_sure))
    }

    /// Takes in a route that was removed. Returns its key if there are routes with it; the routes are as the kernel has
    /// them only if one of them was the route.
    pub(super) fn removed(&mut self, route: KernelRoute) -> Option<(KernelRouteKey, bool)> {
        let (key, deed) = parts(route)?;
        let entry = self.entries.get(&key)?;
        let numbers = entry.numbers.as_slice();
        let find = |is: &dyn Fn(&Deed) -> bool| {
            numbers.iter().position(|&number| self.deeds.of(number).is_some_and(|known| is(known)))
        };
        let is_v4 = matches!(key.0, IpPrefix::V4(_));
        if let Some(place) = find(&|known| if is_v4 { known.is_same_of_v4(&deed) } else { known.is_same(&deed) }) {
            let mut numbers = self.numbers(key);
            let gone = numbers.remove(place);
            self.deeds.release(gone);
            self.keep(key, numbers);
            return Some((key, true));
        }
        let place = if is_v4 { None } else { find(&|known| known.covers(&deed)) };
        let Some(place) = place else { return Some((key, false)) };
        let mut numbers = self.numbers(key);
        let mut left = self.deeds.of(numbers[place]).map(|known| Deed::clone(known))?;
        left.ways.retain(|way| !deed.ways.iter().any(|gone| gone.is_same(way)));
        let number = self.deeds.take(left);
        let old = std::mem::replace(&mut numbers[place], number);
        self.deeds.release(old);
        self.keep(key, numbers);
        Some((key, true))
    }

    /// What the kernel does with packets to a prefix by routes with this metric; `None` if there are none.
    pub(super) fn deed(&self, key: KernelRouteKey) -> Option<Deed> {
        let entry = self.entries.get(&key)?;
        let deeds: Vec<&Arc<Deed>> =
            entry.numbers.as_slice().iter().filter_map(|&number| self.deeds.of(number)).collect();
        // A route with a condition says nothing about other packets.
        let for_all = deeds.iter().find(|deed| deed.condition().is_none());
        let mut first = Deed::clone(for_all.or(deeds.first())?);
        // IPv4 uses the first one, and IPv6 all that forward.
        if matches!(key.0, IpPrefix::V6(_)) && first.kind == RouteKind::Unicast && first.special.is_none() {
            for other in deeds.into_iter().filter(|other| other.kind == RouteKind::Unicast && other.special.is_none()) {
                first.ways.extend(&other.ways);
            }
            first.ways.sort_unstable();
            first.ways.dedup();
        }
        Some(first)
    }

    /// The standing of a key; `None` if there is none.
    pub(super) fn standing(&self, key: KernelRouteKey) -> Option<Standing> {
        self.entries.get(&key).map(|entry| entry.standing)
    }

    /// Notes what has become of the routes of a key. Those that the kernel has no more are forgotten.
    pub(super) fn set_standing(&mut self, key: KernelRouteKey, standing: Standing) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        if entry.standing.waits() {
            self.waiting.remove(&key);
        }
        let counts = &mut self.counts[family(key)];
        counts[entry.standing as usize] -= 1;
        if entry.numbers.as_slice().is_empty() {
            self.entries.remove(&key);
            return;
        }
        entry.standing = standing;
        counts[standing as usize] += 1;
        if standing.waits() {
            self.waiting.insert(key);
        }
    }

    fn enter(&mut self, key: KernelRouteKey, number: u32) -> Option<KernelRouteKey> {
        if self.entries.len() >= self.limit {
            self.beyond_limit += 1;
            self.deeds.release(number);
            return None;
        }
        let (numbers, generation, standing) = (Numbers::One(number), self.generation, Standing::New);
        self.entries.insert(key, RouteEntry { numbers, generation, standing });
        self.counts[family(key)][standing as usize] += 1;
        Some(key)
    }

    fn numbers(&self, key: KernelRouteKey) -> Vec<u32> {
        self.entries.get(&key).map_or(Vec::new(), |entry| entry.numbers.as_slice().to_vec())
    }

    /// Puts a number among those of a key. Returns whether that makes a difference now.
    fn put(&mut self, key: KernelRouteKey, place: usize, number: u32) -> bool {
        let mut numbers = self.numbers(key);
        let has_condition = |&number: &u32| self.deeds.of(number).is_some_and(|deed| deed.condition().is_some());
        let is_first = numbers.iter().all(has_condition);
        numbers.insert(place.min(numbers.len()), number);
        self.keep(key, numbers);
        is_first || matches!(key.0, IpPrefix::V6(_))
    }

    /// Sets the numbers of a key, whose uses are counted already.
    fn keep(&mut self, key: KernelRouteKey, numbers: Vec<u32>) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.generation = self.generation;
            entry.numbers = match numbers.as_slice() {
                [one] => Numbers::One(*one),
                _ => Numbers::Several(numbers),
            };
        }
    }

    /// Sets the numbers of a key, and gives up those that it had.
    fn set_numbers(&mut self, key: KernelRouteKey, numbers: Vec<u32>) {
        for old in self.numbers(key) {
            self.deeds.release(old);
        }
        self.keep(key, numbers);
    }
}

fn family(key: KernelRouteKey) -> usize {
    usize::from(matches!(key.0, IpPrefix::V6(_)))
}

/// The key of a route and what it does; `None` for routes that are no part of forwarding.
fn parts(route: KernelRoute) -> Option<(KernelRouteKey, Deed)> {
    let KernelRoute { destination, length, metric, kind, ways, special, protocol, mtu, object, .. } = route;
    if kind == RouteKind::Local {
        return None;
    }
    Some(((IpPrefix::of(destination, length)?, metric), Deed { kind, ways, special, protocol, mtu, object }))
}

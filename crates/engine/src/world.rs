//! One configuration, laid out for running: links, how they are wired to the apps, and their counters.
//!
//! A world is made apart from the engine, on any thread; committing it then only moves what stays.

use std::any::TypeId;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_observe::layout::{Activity, account, common, doing, engine as cells};
use bellows_observe::timeline::Names;
use bellows_observe::{AppEntry, AppOutline, Directory, Home, LinkEntry, MOST_GONE, Removed, Slab};
use bellows_packet::{BufferUse, Fixed, LINE, Vector, buffer_use, prefetch};
use bellows_sys::clock;

use crate::app::{AppError, Entry, Occupant, Ports, Status, Textbook, Traits, answer};
use crate::engine::{Settings, start_contained, stop_contained};
use crate::io::Core;
use crate::network::{AppSpec, End, LinkSpec, Network, Side};
use crate::order::push_order;
use crate::place::{OPEN, Place};
use crate::retire::Successor;
use crate::schedule::{Breath, Step};
use crate::slots::Slot;

/// A link: one vector, filled by one app and emptied by one app.
///
/// It has memory only while it holds packets; see [`Core::borrow_vector`](crate::io::Core::borrow_vector).
pub(crate) struct Link {
    pub(crate) vector: Cell<Vector>,
    /// The bytes in it, as far as they are in the counters.
    pub(crate) bytes: Cell<u64>,
    /// The first of its counters.
    pub(crate) cell: usize,
    /// Its position in the network.
    pub(crate) index: usize,
}

/// All links and slots, and the counters of links and apps.
///
/// Links are numbered in the order in which a breath empties them, those that one app empties side by side, with gaps so
/// that eight can be tested at once; see [`words`].
pub(crate) struct Fabric {
    pub(crate) links: Fixed<[Link]>,
    /// How many packets each link holds: together, so that many can be tested at once.
    pub(crate) waiting: Fixed<[Cell<u32>]>,
    pub(crate) slots: Fixed<[Slot]>,
    pub(crate) slab: Arc<Slab>,
}

/// What identifies an app from one configuration to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) kind: String,
    fingerprint: String,
    of_type: TypeId,
}

/// What a configuration is, without its apps: enough to compare it with another.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outline {
    pub(crate) apps: Vec<Identity>,
    pub(crate) links: Vec<LinkSpec>,
}

impl Outline {
    pub(crate) fn of(network: &Network) -> Outline {
        let identity = |app: &AppSpec| Identity {
            name: app.name.clone(),
            kind: app.kind.clone(),
            fingerprint: app.fingerprint.clone(),
            of_type: app.app.type_id(),
        };
        Outline { apps: network.apps.iter().map(identity).collect(), links: network.links.clone() }
    }

    /// For each app where it comes from, if this configuration follows `old`.
    fn origins(&self, old: &Outline) -> Vec<Origin> {
        let known: HashMap<&str, usize> = old.apps.iter().enumerate().map(|(index, app)| (&*app.name, index)).collect();
        let origin = |app: &Identity| match known.get(&*app.name) {
            Some(&index) if old.apps[index] == *app => Origin::Kept(index),
            Some(&index) if old.apps[index].of_type == app.of_type && old.apps[index].kind == app.kind => {
                Origin::Replaces(index)
            }
            _ => Origin::New,
        };
        self.apps.iter().map(origin).collect()
    }

    /// For each link the one of `old` that it continues.
    fn link_origins(&self, old: &Outline) -> Vec<Option<usize>> {
        let known: HashMap<&LinkSpec, usize> =
            old.links.iter().enumerate().map(|(index, link)| (link, index)).collect();
        self.links.iter().map(|link| known.get(link).copied()).collect()
    }
}

/// Where the counters of an app or a link go that is no more.
pub(crate) struct Burial {
    /// Its position in the old directory: in the lists of what runs, or in those of what is gone.
    pub(crate) from: usize,
    /// The cells of its row in the new directory (those of an app's account, and the others), if it still has one.
    pub(crate) to: Option<(usize, usize)>,
}

/// Where the counters of all apps and links go that are no more once a configuration runs.
#[derive(Default)]
pub(crate) struct Burials {
    /// Apps that it removes, and those that were gone before.
    pub(crate) apps: Vec<Burial>,
    pub(crate) gone_apps: Vec<Burial>,
    /// The same of links.
    pub(crate) links: Vec<Burial>,
    pub(crate) gone_links: Vec<Burial>,
    /// For each link that it removes the accounts in the new directory of the apps that sent and received.
    pub(crate) ends: Vec<[Option<usize>; 2]>,
    /// Links that stay, as positions in the old directory, of which other apps have got the ends (sends, receives): what has
    /// passed through them so far is the gone app's and not the new one's.
    pub(crate) changed_ends: Vec<(usize, Side, ChangedEnd)>,
}

/// The accounts of two apps of one name, in the new directory.
#[derive(Clone, Copy)]
pub(crate) struct ChangedEnd {
    /// That of the one that is gone, if it is listed.
    pub(crate) gone: Option<usize>,
    pub(crate) new: usize,
}

/// What a configuration removes from the one before it, as positions in that one's directory.
struct Removal {
    apps: Vec<usize>,
    links: Vec<usize>,
}

/// What tells one app that is gone from another: one that comes and goes under a name is the same.
fn app_key(entry: &AppEntry) -> (&str, &str, &[String], &[String]) {
    (&entry.name, &entry.kind, &entry.drops, &entry.counters)
}

fn link_key(entry: &LinkEntry) -> (&str, &str) {
    (&entry.from, &entry.to)
}

/// Each item once, the last of them if there are more than are listed.
fn last<'a, T, K: Hash + Eq>(items: impl Iterator<Item = &'a T>, key: impl Fn(&'a T) -> K) -> Vec<&'a T> {
    let mut known = HashSet::new();
    let mut items: Vec<&T> = items.filter(|item| known.insert(key(item))).collect();
    items.drain(..items.len().saturating_sub(MOST_GONE));
    items
}

impl Removal {
    fn find(origins: &[Origin], link_origins: &[Option<usize>], old: &Directory) -> Removal {
        let mut app_stays = vec![false; old.apps.len()];
        for origin in origins {
            if let Origin::Kept(app) | Origin::Replaces(app) = *origin {
                app_stays[app] = true;
            }
        }
        let mut link_stays = vec![false; old.links.len()];
        link_origins.iter().flatten().for_each(|&link| link_stays[link] = true);
        let gone = |stays: Vec<bool>| (0..stays.len()).filter(|&index| !stays[index]).collect();
        Removal { apps: gone(app_stays), links: gone(link_stays) }
    }

    /// What the next directory lists as gone.
    fn listed<'a>(&self, old: &'a Directory) -> Removed<'a> {
        let apps = old.gone_apps.iter().chain(self.apps.iter().map(|&app| &old.apps[app]));
        let links = old.gone_links.iter().chain(self.links.iter().map(|&link| &old.links[link]));
        Removed { apps: last(apps, app_key), links: last(links, link_key) }
    }

    fn burials(&self, old: &Outline, origins: &[Origin], before: &Directory, after: &Directory) -> Burials {
        if self.apps.is_empty() && self.links.is_empty() && before.gone_apps.is_empty() && before.gone_links.is_empty()
        {
            return Burials::default();
        }
        let apps: HashMap<_, _> =
            after.gone_apps.iter().map(|entry| (app_key(entry), (entry.account, entry.cell))).collect();
        let links: HashMap<_, _> =
            after.gone_links.iter().map(|entry| (link_key(entry), (entry.cell, entry.cell))).collect();
        let app = |from: usize, entry: &AppEntry| Burial { from, to: apps.get(&app_key(entry)).copied() };
        let link = |from: usize, entry: &LinkEntry| Burial { from, to: links.get(&link_key(entry)).copied() };
        // Where the account of each app of the old configuration goes.
        let mut accounts: HashMap<&str, usize> = HashMap::new();
        for &index in &self.apps {
            let entry = &before.apps[index];
            accounts.extend(apps.get(&app_key(entry)).map(|(account, _)| (&*entry.name, *account)));
        }
        for (origin, entry) in origins.iter().zip(&after.apps) {
            if let Origin::Kept(_) | Origin::Replaces(_) = origin {
                accounts.insert(&entry.name, entry.account);
            }
        }
        let mut new_accounts: HashMap<&str, usize> = HashMap::new();
        for (origin, entry) in origins.iter().zip(&after.apps) {
            if *origin == Origin::New {
                new_accounts.insert(&entry.name, entry.account);
            }
        }
        let removed: HashSet<usize> = self.links.iter().copied().collect();
        let stay = (0..old.links.len()).filter(|link| !removed.contains(link));
        let changed_ends = stay.flat_map(|index| {
            let spec = &old.links[index];
            let changed = |(side, end): (Side, &End)| {
                let new = *new_accounts.get(&*end.app)?;
                Some((index, side, ChangedEnd { gone: accounts.get(&*end.app).copied(), new }))
            };
            [(Side::Output, &spec.from), (Side::Input, &spec.to)].map(changed).into_iter().flatten().collect::<Vec<_>>()
        });
        let changed_ends = changed_ends.collect();
        let ends = self.links.iter().map(|&index| {
            let spec = &old.links[index];
            [&spec.from, &spec.to].map(|end| accounts.get(&*end.app).copied())
        });
        Burials {
            changed_ends,
            ends: ends.collect(),
            apps: self.apps.iter().map(|&index| app(index, &before.apps[index])).collect(),
            gone_apps: before.gone_apps.iter().enumerate().map(|(index, entry)| app(index, entry)).collect(),
            links: self.links.iter().map(|&index| link(index, &before.links[index])).collect(),
            gone_links: before.gone_links.iter().enumerate().map(|(index, entry)| link(index, entry)).collect(),
        }
    }
}

/// Where an app of a new configuration comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It is new.
    New,
    /// It is this app of the old configuration, unchanged.
    Kept(usize),
    /// It takes the place of this app of the old configuration.
    Replaces(usize),
}

/// What a configuration follows.
pub(crate) struct Before<'a> {
    pub(crate) outline: &'a Outline,
    pub(crate) directory: &'a Directory,
    /// Apps that are not to run on as they are, though they have not changed.
    pub(crate) restart: &'a [String],
    /// The new configuration's generation.
    pub(crate) generation: u64,
}

/// A configuration that is ready to run.
pub(crate) struct World {
    pub(crate) outline: Arc<Outline>,
    pub(crate) traits: Vec<Traits>,
    pub(crate) places: Fixed<[Place]>,
    pub(crate) apps: Vec<Occupant>,
    pub(crate) textbook: Vec<&'static dyn Textbook>,
    /// What the apps tell other threads, those that do; from their start on.
    pub(crate) statuses: Vec<Option<Arc<dyn Status>>>,
    fabric: Fixed<Fabric>,
    /// The apps to pull, in order.
    pub(crate) pulls: Vec<usize>,
    /// The apps to push, in order.
    pub(crate) pushes: Vec<usize>,
    /// For each app the numbers of the links that it empties.
    words: Vec<Range<usize>>,
    /// For each link of the outline its number in the fabric.
    pub(crate) numbers: Vec<usize>,
    /// For each number in the fabric the link of the outline that has it.
    links: Vec<Option<usize>>,
    pub(crate) breath: Arc<Breath>,
    pub(crate) origins: Vec<Origin>,
    /// For each link of the outline the one of the old outline that it continues.
    pub(crate) link_origins: Vec<Option<usize>>,
    /// Where the counters of what it removes go.
    pub(crate) burials: Burials,
    /// How many of the apps had started when one could not.
    started: usize,
}

impl World {
    /// Lays out a network that has no [faults](Network::faults), in relation to the one that runs now.
    pub(crate) fn prepare(
        network: Network,
        before: &Before<'_>,
        home: Option<&Home>,
        settings: &Settings,
        names: Option<&Names>,
    ) -> io::Result<World> {
        let &Before { outline: old, directory: old_directory, restart, generation } = before;
        let outline = Arc::new(Outline::of(&network));
        let Network { apps, links, source, text } = network;
        let slots: Vec<usize> = apps.iter().map(|app| answer(|| app.app.slots()).unwrap_or(0)).collect();
        let laid_out = apps.iter().zip(&slots);
        let laid_out = laid_out.map(|(app, &slots)| AppOutline {
            name: &app.name,
            kind: &app.kind,
            state: match (app.traits.pulls, slots) {
                (true, 0) => "polling",
                (true, _) => "slots",
                (false, _) => "active",
            },
            drops: app.traits.drops,
            counters: app.traits.counters,
            ends: app.traits.ends,
            brings_in: app.traits.inputs.is_none(),
        });
        let ends = links.iter().map(|link| (link.from.to_string(), link.to.to_string()));
        let mut origins = outline.origins(old);
        for (origin, identity) in origins.iter_mut().zip(&outline.apps) {
            match *origin {
                Origin::Kept(app) if restart.contains(&identity.name) => *origin = Origin::Replaces(app),
                _ => {}
            }
        }
        let link_origins = outline.link_origins(old);
        let removal = Removal::find(&origins, &link_origins, old_directory);
        let events = settings.events().iter().map(ToString::to_string).collect();
        let mut directory = Directory::lay_out(laid_out, ends, &removal.listed(old_directory), events);
        let burials = removal.burials(old, &origins, old_directory, &directory);
        directory.source = source;
        directory.config = text;

        let wiring = wiring(&apps, &links);
        let position: HashMap<&str, usize> = apps.iter().enumerate().map(|(index, app)| (&*app.name, index)).collect();
        let app_at = |end: &End| position.get(&*end.app).copied().unwrap_or_default();
        let graph: Vec<_> = links.iter().map(|link| (app_at(&link.from), app_at(&link.to))).collect();
        let pulls: Vec<usize> = (0..apps.len()).filter(|&app| apps[app].traits.pulls).collect();
        let pushes = push_order(apps.len(), &graph, &pulls);
        let is_linked = |app: &usize| wiring[*app].0.iter().any(|&link| link != OPEN);
        let pushes: Vec<usize> = pushes.into_iter().filter(is_linked).collect();
        let (words, numbers, size) = words(&wiring, &pushes, links.len());

        let mut first_slot = 0;
        let numbered = |ports: &[u32]| -> Box<[u32]> {
            ports.iter().map(|&link| numbers.get(link as usize).map_or(OPEN, |&number| number as u32)).collect()
        };
        let places: Fixed<[Place]> = apps
            .iter()
            .enumerate()
            .map(|(index, app)| {
                let entry = &directory.apps[index];
                let slots = slots[index];
                first_slot += slots;
                let own_drops = entry.cell + common::DROPS.len();
                Place {
                    app: Cell::new(std::ptr::null_mut()),
                    calls: Default::default(),
                    taken: Cell::new(0),
                    freed: Cell::new(0),
                    usual: Default::default(),
                    core: NonNull::dangling(),
                    fabric: NonNull::dangling(),
                    doing: NonNull::dangling(),
                    inputs: numbered(&wiring[index].0),
                    outputs: numbered(&wiring[index].1),
                    index,
                    first_slot: first_slot - slots,
                    slots,
                    account: entry.account,
                    cell: entry.cell,
                    own_drops,
                    own_counters: own_drops + app.traits.drops.len(),
                    closed: Cell::new(false),
                    deadline: Cell::new(0),
                    prefetch: app.traits.prefetch,
                    gain: app.traits.gain,
                    name: names.map_or(0, |names| names.position(&app.name)),
                }
            })
            .collect();
        let traits = apps.iter().map(|app| app.traits).collect();
        let apps: Vec<Occupant> = apps.into_iter().map(|app| Occupant::from(app.app)).collect();
        let mut links_by_number = vec![None; size];
        numbers.iter().enumerate().for_each(|(link, &number)| links_by_number[number] = Some(link));
        let layout = Layout {
            outline: &outline,
            apps: &apps,
            places: &places,
            pulls: &pulls,
            pushes: &pushes,
            words: &words,
            links: &links_by_number,
        };
        let breath = Breath::compile(&layout, settings);
        directory.schedule = breath.schedule.to_string();
        directory.refusal = breath.refusal.clone().unwrap_or_default();

        let empty = |link: &Option<usize>| Link {
            vector: Cell::new(Vector::none()),
            bytes: Cell::new(0),
            cell: link.map_or(0, |link| directory.links[link].cell),
            index: link.unwrap_or_default(),
        };
        let fabric = Fabric {
            links: links_by_number.iter().map(empty).collect(),
            waiting: (0..size).map(|_| Cell::new(0)).collect(),
            slots: (0..first_slot).map(|_| Slot::default()).collect(),
            slab: Arc::new(Slab::create(directory, generation, home)?),
        };
        Ok(World {
            origins,
            link_origins,
            burials,
            outline,
            traits,
            places,
            textbook: apps.iter().map(|app| app.textbook()).collect(),
            statuses: vec![None; apps.len()],
            apps,
            fabric: Fixed::new(fabric),
            pulls,
            pushes,
            words,
            numbers,
            links: links_by_number,
            breath: Arc::new(breath),
            started: 0,
        })
    }

    #[inline(always)]
    pub(crate) fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// Asks the processor to fetch what a commit touches: all of it at once, because it lies in the cache of the processor
    /// that has just laid it out, from which line after line takes long.
    pub(crate) fn prefetch(&self) {
        fn lines<T>(slice: &[T]) {
            let start = slice.as_ptr().cast::<u8>();
            (0..size_of_val(slice)).step_by(LINE).for_each(|offset| prefetch(start.wrapping_add(offset)));
        }
        lines(&self.places);
        lines(&self.fabric.links);
        lines(&self.fabric.slots);
        lines(self.fabric.slab.cells());
        self.apps.iter().for_each(|app| prefetch(app.address().cast()));
    }

    /// Gives each app its place in a world that an engine is about to run.
    pub(crate) fn seat(&mut self, core: &Core) {
        let fabric = NonNull::from(self.fabric());
        let doing = NonNull::from(&self.fabric().slab.cells()[cells::DOING]);
        for (place, app) in self.places.iter_mut().zip(&self.apps) {
            place.core = NonNull::from(core);
            place.fabric = fabric;
            place.doing = doing;
            place.app.set(app.address());
        }
    }

    /// Takes breaths, as [`Breath::take`] does. The world must be [seated](World::seat) on this core.
    #[inline]
    pub(crate) fn take(&self, core: &Core, attention: &AtomicU32, most: u64) -> u64 {
        // SAFETY: the breath was compiled for the apps in this world's places; while apps panic or are swapped, it is
        // compiled again before it is used.
        unsafe { self.breath.take(core, self, attention, most) }
    }

    /// Takes an instrumented breath, as [`Breath::take_metered`] does.
    pub(crate) fn take_metered(&self, core: &Core) {
        // SAFETY: as above.
        unsafe { self.breath.take_metered(core, self) }
    }

    /// Finishes a breath that ended halfway.
    pub(crate) fn finish(&self, core: &Core) {
        // SAFETY: as above.
        unsafe { self.breath.finish(core, self) }
    }

    /// Puts another app into a place, for good. The breath is to be compiled again before it is taken.
    pub(crate) fn replace(&mut self, app: usize, successor: Occupant) -> Occupant {
        self.places[app].app.set(successor.address());
        self.places[app].deadline.set(u64::MAX);
        self.fabric().slab.set(self.places[app].account + account::FAILED, 1);
        self.fabric().slab.add(self.places[app].account + account::PANICS, 1);
        // Other threads may still be asking it; whoever is the last ends it.
        let status = self.statuses[app].take();
        let _ = answer(|| drop(status));
        for slot in self.places[app].slots(self.fabric()) {
            // What it watches may panic at its end.
            let _ = answer(|| slot.never());
        }
        std::mem::replace(&mut self.apps[app], successor)
    }

    /// Compiles the breath again, for the apps that are here now.
    pub(crate) fn recompile(&mut self, settings: &Settings) {
        self.textbook = self.apps.iter().map(|app| app.textbook()).collect();
        let World { outline, apps, places, pulls, pushes, words, links, .. } = self;
        let layout = Layout { outline, apps, places, pulls, pushes, words, links };
        self.breath = Arc::new(Breath::compile(&layout, settings));
    }

    /// Starts each app; `old` hands out those whose places they take.
    ///
    /// If one cannot start, or panics, those before it have given back what they took, and are to be
    /// [stopped](World::stop_started): not here, because an engine that reloads has no time for that.
    pub(crate) fn start(&mut self, mut old: Option<&mut World>) -> Result<(), (String, AppError)> {
        for index in 0..self.apps.len() {
            self.tell_start(index, old.as_deref());
            let buffers = buffer_use();
            let result = match (self.origins[index], &mut old) {
                (Origin::Kept(_), _) => Ok(()),
                (Origin::Replaces(app), Some(old)) => {
                    start_contained(&mut *self.apps[index], Some(&mut *old.apps[app]))
                }
                _ => start_contained(&mut *self.apps[index], None),
            };
            self.book_start(index, buffer_use().since(buffers));
            if let Err(error) = result {
                if let Some(old) = &mut old {
                    self.undo_starts(index, old);
                }
                self.started = index;
                return Err((self.outline.apps[index].name.clone(), error));
            }
        }
        for ((status, app), origin) in self.statuses.iter_mut().zip(&self.apps).zip(&self.origins) {
            if !matches!(origin, Origin::Kept(_)) {
                *status = answer(|| app.status()).flatten();
            }
        }
        Ok(())
    }

    /// Tells readers of the counters that an app is being started. In a reload they still see those of the old configuration,
    /// in which an app that is new has no row.
    fn tell_start(&self, index: usize, old: Option<&World>) {
        let tell = |slab: &Slab, position: usize| {
            slab.set(cells::ALIVE, clock::unix_nanos());
            slab.set(cells::DOING, doing::with(Activity::Start, position));
        };
        match (self.origins[index], old) {
            (Origin::Kept(_), _) => return,
            (Origin::Replaces(app), Some(old)) => tell(&old.fabric().slab, app),
            (_, Some(old)) => {
                let slab = &old.fabric().slab;
                slab.name_newcomer(&self.outline.apps[index].name);
                tell(slab, slab.directory.apps.len());
            }
            (_, None) => {}
        }
        tell(&self.fabric().slab, index);
    }

    /// Puts what an app has made or freed when it was started on its account. What it has freed was inside the app whose place
    /// it takes.
    fn book_start(&self, index: usize, change: BufferUse) {
        let place = &self.places[index];
        let freed = change.freed.saturating_sub(change.taken);
        place.book(BufferUse { taken: change.taken.saturating_sub(change.freed), freed });
        self.fabric().slab.add(place.cell + common::REMOVED, freed);
    }

    /// The app of this index could not start: those before it give back what they took. What has become of packets meanwhile
    /// is on the accounts of those that run on.
    fn undo_starts(&mut self, failed: usize, old: &mut World) {
        for index in 0..=failed {
            let Origin::Replaces(app) = self.origins[index] else { continue };
            let buffers = buffer_use();
            if index < failed {
                let _ = answer(|| self.apps[index].give_back(&mut *old.apps[app]));
            }
            let change = buffer_use().since(buffers);
            let (place, successor) = (&old.places[app], &self.places[index]);
            let kept = answer(|| self.apps[index].held()).unwrap_or(0) as u64;
            place.book(BufferUse {
                taken: change.taken + successor.taken.get(),
                freed: change.freed + successor.freed.get() + kept,
            });
            let lost = change.freed + kept + self.fabric().slab.get(successor.cell + common::REMOVED);
            old.fabric().slab.add(place.cell + common::REMOVED, lost);
        }
        old.fabric().slab.set(cells::DOING, doing::NOTHING);
    }

    /// Takes the apps that have panicked for such as are to be started anew, though they have not changed. Returns their names.
    pub(crate) fn revive(&mut self, old: &World) -> Vec<String> {
        let mut revived = Vec::new();
        for (origin, identity) in self.origins.iter_mut().zip(&self.outline.apps) {
            let (Origin::Kept(app) | Origin::Replaces(app)) = *origin else { continue };
            if old.fabric().slab.get(old.places[app].account + account::FAILED) > 0 {
                *origin = Origin::Replaces(app);
                revived.push(identity.name.clone());
            }
        }
        revived
    }

    /// Writes what is counted in an app's place, and of its books what they are worth now that it holds so many packets.
    pub(crate) fn write_books(&self, app: usize, held: Option<usize>) {
        let (place, slab) = (&self.places[app], &self.fabric().slab);
        for (entry, calls) in place.calls.iter().enumerate() {
            slab.set(place.account + account::CALLS + entry, calls.get());
        }
        slab.set(place.account + account::TAKEN, place.taken.get());
        slab.set(place.account + account::FREED, place.freed.get());
        let Some(held) = held else { return };
        slab.set(place.account + account::HELD, held as u64);
        let books = place.books(&self.traits[app], held as u64);
        slab.set(place.account + account::LEAKED, books.leaked.cast_unsigned());
        slab.set(place.account + account::UNCOUNTED, books.uncounted.cast_unsigned());
    }

    /// Tells the apps that are new here, in a reload beside the `old` configuration, that the run begins. Returns those that
    /// panicked over it.
    pub(crate) fn begin(&mut self, old: Option<&World>) -> Vec<usize> {
        let is_new = |index: &usize| !matches!(self.origins[*index], Origin::Kept(_));
        let new: Vec<usize> = (0..self.apps.len()).filter(is_new).collect();
        let mut begin = |index: usize| {
            self.tell_start(index, old);
            let buffers = buffer_use();
            let has_begun = answer(|| self.apps[index].begin()).is_some();
            self.book_start(index, buffer_use().since(buffers));
            has_begun
        };
        let panicked = new.into_iter().filter(|&index| !begin(index)).collect();
        for world in old.into_iter().chain([&*self]) {
            world.fabric().slab.set(cells::DOING, doing::NOTHING);
        }
        panicked
    }

    /// The apps of the configuration before that do not run on here, and where what they still count goes.
    pub(crate) fn successors(&self) -> Vec<Successor> {
        let replaced = self.origins.iter().enumerate().filter_map(|(index, origin)| match *origin {
            // What else an app counts may be a gauge of the new one's by now.
            Origin::Replaces(app) => Some(Successor { app, cell: Some(self.places[index].cell), counters: false }),
            _ => None,
        });
        let removed = self.burials.apps.iter();
        let removed =
            removed.map(|&Burial { from, to }| Successor { app: from, cell: to.map(|(_, cell)| cell), counters: true });
        replaced.chain(removed).collect()
    }

    /// Stops the apps that had started before one could not.
    pub(crate) fn stop_started(&mut self) {
        for index in 0..std::mem::take(&mut self.started) {
            if !matches!(self.origins[index], Origin::Kept(_)) {
                // The reason for giving up is reported; what an app that never ran cannot finish is not.
                let _ = stop_contained(&mut *self.apps[index]);
            }
        }
    }
}

impl Drop for World {
    /// Whatever panics at its end, an app or what it watches, ends alone.
    fn drop(&mut self) {
        for app in self.apps.drain(..) {
            let _ = answer(|| drop(app));
        }
        for slot in self.fabric.slots.iter() {
            let _ = answer(|| slot.never());
        }
    }
}

/// What a breath is compiled from.
pub(crate) struct Layout<'a> {
    pub(crate) outline: &'a Arc<Outline>,
    pub(crate) apps: &'a [Occupant],
    pub(crate) places: &'a [Place],
    pulls: &'a [usize],
    pushes: &'a [usize],
    words: &'a [Range<usize>],
    /// For each number the position of the link that has it in the outline.
    pub(crate) links: &'a [Option<usize>],
}

impl Layout<'_> {
    /// The pulls of a breath.
    pub(crate) fn pulls(&self, lossless: bool) -> Vec<Step> {
        let step = |&app: &usize| Step {
            call: self.apps[app].entry(Entry::Pull, lossless),
            app,
            first: self.places[app].first_slot,
            count: self.places[app].slots,
        };
        self.pulls.iter().map(step).collect()
    }

    /// The pushes of a breath.
    pub(crate) fn pushes(&self, lossless: bool) -> Vec<Step> {
        let step = |&app: &usize| Step {
            call: self.apps[app].entry(Entry::Push, lossless),
            app,
            first: self.words[app].start,
            count: self.words[app].len(),
        };
        self.pushes.iter().map(step).collect()
    }
}

/// For each app the links of its inputs and of its outputs, by port, as positions in the network or [`OPEN`].
fn wiring(apps: &[AppSpec], links: &[LinkSpec]) -> Vec<(Vec<u32>, Vec<u32>)> {
    let side = |side: Side, ports: fn(&AppSpec) -> Ports| -> Vec<Vec<u32>> {
        let mut of_app: HashMap<&str, Vec<(&str, u32)>> = HashMap::new();
        for (index, link) in links.iter().enumerate() {
            let end = link.end(side);
            of_app.entry(&end.app).or_default().push((&end.port, index as u32));
        }
        let ports_of = |app: &AppSpec| {
            let mine = of_app.get(&*app.name).map_or(&[][..], Vec::as_slice);
            match ports(app) {
                Ports::Any { .. } => mine.iter().map(|(_, link)| *link).collect(),
                Ports::Named(ports) => {
                    let link_at = |name| mine.iter().find(|(port, _)| *port == name);
                    ports.iter().map(|port| link_at(port.name).map_or(OPEN, |(_, link)| *link)).collect()
                }
            }
        };
        apps.iter().map(ports_of).collect()
    };
    let inputs = side(Side::Input, |app| app.traits.inputs);
    let outputs = side(Side::Output, |app| app.traits.outputs);
    inputs.into_iter().zip(outputs).collect()
}

/// How many links a breath tests at once.
pub(crate) const GROUP: usize = 8;

/// Numbers the links in the order in which the apps empty them: for each app the numbers of those that it empties, for
/// each link of the network its number, and how many numbers there are.
///
/// The links of one app lie side by side, within one group of [`GROUP`] if they fit into one; an app with more has groups
/// to itself. So some numbers stay unused: links that are always empty.
fn words(wiring: &[(Vec<u32>, Vec<u32>)], pushes: &[usize], links: usize) -> (Vec<Range<usize>>, Vec<usize>, usize) {
    let mut ranges = vec![0..0; wiring.len()];
    let mut numbers = vec![0; links];
    let mut next: usize = 0;
    for &app in pushes {
        let mine = wiring[app].0.iter().filter(|&&link| link != OPEN);
        let count = mine.clone().count();
        if next % GROUP + count > GROUP {
            next = next.next_multiple_of(GROUP);
        }
        for (offset, &link) in mine.enumerate() {
            numbers[link as usize] = next + offset;
        }
        ranges[app] = next..next + count;
        next += count;
        if count > GROUP {
            next = next.next_multiple_of(GROUP);
        }
    }
    (ranges, numbers, next.next_multiple_of(GROUP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every link has a number of its own, an app's lie side by side, and none straddles a group without need.
        #[test]
        fn links_are_numbered_so_that_groups_can_be_tested_at_once(counts in proptest::collection::vec(1usize..20, 0..40)) {
            let mut links = 0;
            let wiring: Vec<(Vec<u32>, Vec<u32>)> = counts
                .iter()
                .map(|&count| {
                    links += count as u32;
                    ((links - count as u32..links).chain([OPEN]).collect(), Vec::new())
                })
                .collect();
            let pushes: Vec<usize> = (0..counts.len()).rev().collect();
            let (ranges, numbers, size) = words(&wiring, &pushes, links as usize);
            let mut used = numbers.clone();
            used.sort();
            used.dedup();
            prop_assert_eq!(used.len(), links as usize);
            prop_assert!(size % GROUP == 0 && used.iter().all(|&number| number < size));
            for (app, range) in ranges.iter().enumerate() {
                let mine: Vec<usize> = wiring[app].0.iter().filter(|&&l| l != OPEN).map(|&l| numbers[l as usize]).collect();
                prop_assert_eq!(mine, range.clone().collect::<Vec<_>>());
                prop_assert!(range.start / GROUP == (range.end - 1) / GROUP || range.start % GROUP == 0 && range.len() > GROUP);
            }
        }
    }
}

//! One configuration, laid out for running: links, how they are wired to the apps, and their counters.
//!
//! A world is made apart from the engine, on any thread; committing it then only moves what stays.

use std::any::TypeId;
use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_packet::{Fixed, LINE, Vector, prefetch};

use crate::app::{AppError, Entry, Occupant, Ports, Status, Textbook, Traits, answer};
use crate::counters::{Directory, Slab, account, common};
use crate::engine::{Settings, start_contained, stop_contained};
use crate::home::Home;
use crate::io::Core;
use crate::network::{AppSpec, End, LinkSpec, Network, Side};
use crate::order::push_order;
use crate::place::{OPEN, Place};
use crate::schedule::{Breath, Step};
use crate::slots::Slot;
use crate::timeline::Names;

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
    /// How many of the apps had started when one could not.
    started: usize,
}

impl World {
    /// Lays out a network that has no [faults](Network::faults), in relation to the one that runs now.
    pub(crate) fn prepare(
        network: Network,
        old: &Outline,
        generation: u64,
        home: Option<&Home>,
        settings: &Settings,
        names: Option<&Names>,
    ) -> io::Result<World> {
        let outline = Arc::new(Outline::of(&network));
        let Network { apps, links, source, text } = network;
        let slots: Vec<usize> = apps.iter().map(|app| answer(|| app.app.slots()).unwrap_or(0)).collect();
        let laid_out = apps.iter().zip(&slots);
        let laid_out = laid_out.map(|(app, &slots)| (app.name.as_str(), app.kind.as_str(), app.traits, slots > 0));
        let ends = links.iter().map(|link| (link.from.to_string(), link.to.to_string()));
        let mut directory = Directory::lay_out(laid_out, ends, settings.events());
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
                    usual: Default::default(),
                    core: NonNull::dangling(),
                    fabric: NonNull::dangling(),
                    inputs: numbered(&wiring[index].0),
                    outputs: numbered(&wiring[index].1),
                    index,
                    first_slot: first_slot - slots,
                    slots,
                    account: entry.account,
                    cell: entry.cell,
                    own_drops,
                    own_counters: own_drops + app.traits.drops.len(),
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
            origins: outline.origins(old),
            link_origins: outline.link_origins(old),
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
        for (place, app) in self.places.iter_mut().zip(&self.apps) {
            place.core = NonNull::from(core);
            place.fabric = fabric;
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
        // Other threads may still be asking it; whoever is the last ends it.
        let status = self.statuses[app].take();
        let _ = answer(|| drop(status));
        for slot in self.places[app].slots(self.fabric()) {
            // What it watches may panic at its end.
            let _ = answer(|| slot.never());
        }
        std::mem::replace(&mut self.apps[app], successor)
    }

    /// Whether stand-ins sit here, kept from a configuration in which apps panicked: the breath was compiled for the apps.
    pub(crate) fn has_stand_ins(&self) -> bool {
        self.apps.iter().zip(&self.outline.apps).any(|(app, identity)| (**app).type_id() != identity.of_type)
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
            let result = match (self.origins[index], &mut old) {
                (Origin::Kept(_), _) => Ok(()),
                (Origin::Replaces(app), Some(old)) => {
                    start_contained(&mut *self.apps[index], Some(&mut *old.apps[app]))
                }
                _ => start_contained(&mut *self.apps[index], None),
            };
            if let Err(error) = result {
                for earlier in 0..index {
                    if let (Origin::Replaces(app), Some(old)) = (self.origins[earlier], &mut old) {
                        let _ = answer(|| self.apps[earlier].give_back(&mut *old.apps[app]));
                    }
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

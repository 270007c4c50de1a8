//! Moves kept apps and links from one configuration to the next, between two breaths of all workers.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::sync::Arc;

use bellows_observe::layout::{account, common, link as counters};
use bellows_packet::{BufferUse, CAPACITY, Vector};

use super::{Parts, ReconfigurationPlan};
use crate::network::topology::{AppAction, Topology};
use crate::panics::catch_panic;
use crate::runtime::links::{FreeVectors, TXDROP, with_drop_reason};
use crate::runtime::node::Node;

/// Moves kept apps and links from the running configuration to a new one. Returns the number of packets dropped.
pub(crate) fn hand_over(old: &mut Parts<'_>, new: &mut Parts<'_>, plan: &ReconfigurationPlan) -> u64 {
    let surplus: u64 = overfull(old, new, plan).into_iter().map(|crossing| drop_surplus(old, crossing)).sum();
    let dropped = surplus + drop_held(old, plan);
    let (from, to) = (Arc::clone(old.slab()), Arc::clone(new.slab()));
    plan.succession.carry_over(&from, &to, |link| old.waiting_in(link));
    let links = plan.succession.removed_links().map(|link| old.waiting_in(link).0);
    let dropped = dropped + links.sum::<u64>();

    for (index, action) in plan.app_actions.iter().enumerate() {
        let Some(app) = action.old_app() else { continue };
        let after = new.node(index);
        continue_counts(old.node(app), after);
        if action.starts_app() {
            to.set(after.account + account::FAILED, 0);
        }
    }
    for (index, kept) in plan.kept_links.iter().enumerate() {
        let Some(link) = *kept else { continue };
        hand_over_link(old, link, new, index);
    }
    let topologies = [Arc::clone(old.topology()), Arc::clone(new.topology())];
    let relinked = relinked(&topologies, plan);
    for (index, action) in plan.app_actions.iter().enumerate() {
        let AppAction::Keep(app) = *action else { continue };
        mem::swap(new.app_mut(index), old.app_mut(app));
        let (before, after) = (old.node(app), new.node(index));
        // An app whose links are others, or in another order, gets a tick before the next breath.
        let is_relinked = relinked.contains(&*topologies[1].apps[index].name);
        after.deadline.set(if is_relinked { 0 } else { before.deadline.get() });
        let slots = before.slots(old.home(app).table()).iter().zip(after.slots(new.home(index).table()));
        slots.for_each(|(before, after)| after.take_over(before));
    }
    dropped
}

/// The apps at the ends of links that only one of two configurations has, or that follow each other in another order.
fn relinked<'a>([old, new]: &'a [Arc<Topology>; 2], plan: &ReconfigurationPlan) -> HashSet<&'a str> {
    let removed = plan.succession.removed_links().map(|link| &old.links[link]);
    let added = new.links.iter().zip(&plan.kept_links).filter_map(|(link, kept)| kept.is_none().then_some(link));
    let mut relinked: HashSet<&str> = removed.chain(added).flat_map(|link| [&*link.from.app, &*link.to.app]).collect();
    // The old position of the last link at each side of each app.
    let mut last = HashMap::new();
    for (link, kept) in new.links.iter().zip(&plan.kept_links) {
        for side in [(0, &*link.from.app), (1, &*link.to.app)] {
            if last.insert(side, *kept) > Some(*kept) {
                relinked.insert(side.1);
            }
        }
    }
    relinked
}

/// Continues the counts of calls and buffers.
fn continue_counts(before: &Node, after: &Node) {
    for (before, after) in before.calls.iter().zip(&after.calls) {
        after.set(before.get());
    }
    after.record(BufferUse { taken: before.taken.get(), freed: before.freed.get() });
}

/// The packets in a link, oldest first: those that have arrived at the worker that receives, those between the workers,
/// and those that have not left the one that sends. A link within a worker has only the last ones.
struct Contents {
    arrived: Vector,
    between: Vec<Vector>,
    unsent: Vector,
}

impl Contents {
    fn take(parts: &mut Parts<'_>, link: usize) -> Contents {
        let place = parts.topology().place(link);
        let take = |parts: &Parts<'_>, (worker, position): (usize, usize)| {
            let graph = parts.graph(worker);
            let number = graph.number(position);
            graph.table().waiting[number].set(0);
            graph.table().take(number as u32)
        };
        let mut contents = Contents { arrived: Vector::none(), between: Vec::new(), unsent: take(parts, place.from) };
        if let Some(crossing) = parts.topology().crossing_of(link) {
            contents.arrived = take(parts, place.to);
            contents.between = parts.inbound(crossing).map(|side| side.drain().collect()).unwrap_or_default();
        }
        contents
    }

    /// The packets between the workers and those that have not left: their number, and their bytes.
    fn not_arrived(&self) -> (u64, u64) {
        let vectors = || self.between.iter().chain([&self.unsent]);
        (vectors().map(|vector| vector.len() as u64).sum(), vectors().map(Vector::bytes).sum())
    }

    /// All packets in one vector, and those that do not fit.
    fn join(self) -> (Vector, Vec<Vector>) {
        let mut all = self.arrived;
        let mut surplus = Vec::new();
        for mut vector in self.between.into_iter().chain([self.unsent]) {
            if all.is_empty() {
                all = vector;
            } else if !vector.is_empty() {
                all.append(&mut vector, usize::MAX);
                surplus.extend((!vector.is_empty()).then_some(vector));
            }
        }
        (all, surplus)
    }
}

/// Moves the packets of a kept link.
fn hand_over_link(old: &mut Parts<'_>, link: usize, new: &mut Parts<'_>, index: usize) {
    let contents = Contents::take(old, link);
    let place = new.topology().place(index);
    let free_vectors = FreeVectors::new();
    let put = |parts: &Parts<'_>, (worker, position): (usize, usize), vector: Vector| {
        let graph = parts.graph(worker);
        if !vector.is_empty() {
            graph.table().put(graph.number(position) as u32, vector, &free_vectors);
        }
    };
    let Some(crossing) = new.topology().crossing_of(index) else {
        let (vector, surplus) = contents.join();
        debug_assert!(surplus.is_empty(), "it was dropped before");
        return put(new, place.from, vector);
    };
    if let Some(before) = old.topology().crossing_of(link) {
        for side in [0, 1] {
            let (from, to) = (old.topology().side(before, side), new.topology().side(crossing, side));
            continue_counts(old.node(from), new.node(to));
        }
    }
    let (packets, bytes) = contents.not_arrived();
    let Contents { arrived, between, unsent } = contents;
    let unsent_packets = unsent.len() as u64;
    put(new, place.to, arrived);
    put(new, place.from, unsent);
    for vector in between {
        // The rings have equally many places.
        let kept = new.outbound(crossing).is_some_and(|side| side.preload(vector).is_ok());
        debug_assert!(kept, "a new ring is empty");
    }
    // What has been received is what was sent less what waits, on either side of a reload.
    let slab = new.slab();
    let entry = &slab.directory.crossings[crossing];
    let sent = slab.directory.links[index].cell;
    slab.set(entry.arrived + counters::PACKETS, slab.get(sent + counters::PACKETS).wrapping_sub(packets));
    slab.set(entry.arrived + counters::BYTES, slab.get(sent + counters::BYTES).wrapping_sub(bytes));
    let [outbound, inbound] = &entry.sides;
    let left = slab.get(sent + counters::PACKETS).wrapping_sub(unsent_packets);
    slab.set(outbound.account + account::HANDED_OFF, left);
    slab.set(inbound.account + account::BROUGHT_IN, slab.get(entry.arrived + counters::PACKETS));
}

/// Drops the packets of a crossing that do not fit into one vector, as if they had never been sent; the others have
/// arrived. Returns the number dropped.
fn drop_surplus(old: &mut Parts<'_>, crossing: usize) -> u64 {
    let link = old.topology().crossings[crossing];
    let (vector, surplus) = Contents::take(old, link).join();
    let packets = surplus.iter().map(|vector| vector.len() as u64).sum();
    let bytes = surplus.iter().map(Vector::bytes).sum::<u64>();
    let (topology, slab) = (old.topology(), old.slab());
    let (sent, arrived) = (slab.directory.links[link].cell, slab.directory.crossings[crossing].arrived);
    for (counter, count) in [(counters::PACKETS, packets), (counters::BYTES, bytes)] {
        slab.add(sent + counter, count.wrapping_neg());
        slab.set(arrived + counter, slab.get(sent + counter));
    }
    slab.add(sent + counters::DROPS, packets);
    let sender = &topology.links[link].from.app;
    if let Some(sender) = topology.apps.iter().position(|app| app.name == *sender) {
        old.node(sender).record(BufferUse { taken: 0, freed: packets });
    }
    with_drop_reason(TXDROP as usize, || drop(surplus));
    let (worker, position) = topology.place(link).to;
    let graph = old.graph(worker);
    graph.table().put(graph.number(position) as u32, vector, &FreeVectors::new());
    packets
}

/// The kept links that no longer cross workers and hold more packets than fit into one vector, as positions among the
/// crossings of the old configuration.
pub(crate) fn overfull(old: &Parts<'_>, new: &Parts<'_>, plan: &ReconfigurationPlan) -> Vec<usize> {
    let kept = plan.kept_links.iter().enumerate().filter_map(|(index, kept)| Some((index, (*kept)?)));
    let crossed = kept.filter(|(index, _)| new.topology().crossing_of(*index).is_none());
    let crossed = crossed.filter(|(_, link)| old.waiting_in(*link).0 > CAPACITY as u64);
    crossed.filter_map(|(_, link)| old.topology().crossing_of(link)).collect()
}

/// Counts packets as dropped that are inside removed apps, or that a replacing app did not take over. Returns their
/// number.
fn drop_held(old: &Parts<'_>, plan: &ReconfigurationPlan) -> u64 {
    let replaced = plan.app_actions.iter().filter_map(|action| match *action {
        AppAction::Replace(app) => Some((app, false)),
        _ => None,
    });
    let mut dropped = 0;
    for (app, is_gone) in replaced.chain(plan.succession.removed_apps().map(|(app, _)| (app, true))) {
        let held = catch_panic(|| old.app(app).held()).unwrap_or(0);
        if is_gone {
            old.home(app).write_books(app, Some(held));
        }
        let (node, slab, held) = (old.node(app), old.slab(), held as u64);
        node.record(BufferUse { taken: 0, freed: held });
        slab.add(node.cell + common::REMOVED, held);
        slab.set(node.account + account::FREED, node.freed.get());
        slab.set(node.account + account::HELD, 0);
        dropped += held;
    }
    dropped
}

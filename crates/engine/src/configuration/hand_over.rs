//! What stays moves from one graph to the next, between two breaths.

use std::mem;
use std::sync::Arc;

use bellows_observe::layout::{account, common};
use bellows_packet::BufferUse;

use super::{Configuration, Graph};
use crate::network::topology::Origin;
use crate::panics::contain;
use crate::runtime::links::SpareVectors;

/// Moves what stays from the graph that runs to a new configuration. Returns how many packets have no place in it.
pub(crate) fn hand_over(old: &mut Graph, new: &mut Configuration, spare: &SpareVectors) -> u64 {
    let Configuration { graph: new, plan } = new;
    let dropped = drop_held(old, plan);
    let (from, to) = (Arc::clone(old.slab()), Arc::clone(new.slab()));
    plan.succession.carry_over(&from, &to, |link| old.table().waiting_in(old.numbers[link]));
    let links = plan.succession.removed_links().map(|link| old.table().waiting_in(old.numbers[link]).0);
    let dropped = dropped + links.sum::<u64>();

    for (index, origin) in plan.origins.iter().enumerate() {
        let Some(app) = origin.before() else { continue };
        let (before, after) = (&old.nodes[app], &new.nodes[index]);
        for (before, after) in before.calls.iter().zip(&after.calls) {
            after.set(before.get());
        }
        after.record(BufferUse { taken: before.taken.get(), freed: before.freed.get() });
        if origin.is_new() {
            to.set(after.account + account::FAILED, 0);
        }
    }
    for (index, origin) in plan.link_origins.iter().enumerate() {
        let Some(link) = *origin else { continue };
        let before = old.numbers[link];
        new.table().put(new.numbers[index] as u32, old.table().take(before as u32), spare);
        old.table().waiting[before].set(0);
    }
    for (index, origin) in plan.origins.iter().enumerate() {
        let Origin::Kept(app) = *origin else { continue };
        mem::swap(&mut new.apps[index], &mut old.apps[app]);
        let (before, after) = (&old.nodes[app], &new.nodes[index]);
        after.deadline.set(before.deadline.get());
        for (before, after) in before.slots(old.table()).iter().zip(after.slots(new.table())) {
            after.take_over(before);
        }
    }
    dropped
}

/// Counts packets inside the apps that go as dropped, and those that a successor has not taken over. Returns how many.
fn drop_held(old: &Graph, plan: &super::Plan) -> u64 {
    let replaced = plan.origins.iter().filter_map(|origin| match *origin {
        Origin::Replaces(app) => Some((app, false)),
        _ => None,
    });
    let mut dropped = 0;
    for (app, is_gone) in replaced.chain(plan.succession.removed_apps().map(|(app, _)| (app, true))) {
        let held = contain(|| old.apps[app].held()).unwrap_or(0);
        if is_gone {
            old.write_books(app, Some(held));
        }
        let (node, slab, held) = (&old.nodes[app], old.slab(), held as u64);
        node.record(BufferUse { taken: 0, freed: held });
        slab.add(node.cell + common::REMOVED, held);
        slab.set(node.account + account::FREED, node.freed.get());
        slab.set(node.account + account::HELD, 0);
        dropped += held;
    }
    dropped
}

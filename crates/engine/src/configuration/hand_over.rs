//! Moves kept apps and links from one graph to the next, between two breaths.

use std::mem;
use std::sync::Arc;

use bellows_observe::layout::{account, common};
use bellows_packet::BufferUse;

use super::{Configuration, Graph};
use crate::network::topology::AppAction;
use crate::panics::catch_panic;
use crate::runtime::links::FreeVectors;

/// Moves kept apps and links from the running graph to a new configuration. Returns the number of packets dropped.
pub(crate) fn hand_over(old: &mut Graph, new: &mut Configuration, free_vectors: &FreeVectors) -> u64 {
    let Configuration { graph: new, plan } = new;
    let dropped = drop_held(old, plan);
    let (from, to) = (Arc::clone(old.slab()), Arc::clone(new.slab()));
    plan.succession.carry_over(&from, &to, |link| old.table().waiting_in(old.numbers[link]));
    let links = plan.succession.removed_links().map(|link| old.table().waiting_in(old.numbers[link]).0);
    let dropped = dropped + links.sum::<u64>();

    for (index, action) in plan.app_actions.iter().enumerate() {
        let Some(app) = action.old_app() else { continue };
        let (before, after) = (&old.nodes[app], &new.nodes[index]);
        for (before, after) in before.calls.iter().zip(&after.calls) {
            after.set(before.get());
        }
        after.record(BufferUse { taken: before.taken.get(), freed: before.freed.get() });
        if action.starts_app() {
            to.set(after.account + account::FAILED, 0);
        }
    }
    for (index, kept) in plan.kept_links.iter().enumerate() {
        let Some(link) = *kept else { continue };
        let before = old.numbers[link];
        new.table().put(new.numbers[index] as u32, old.table().take(before as u32), free_vectors);
        old.table().waiting[before].set(0);
    }
    for (index, action) in plan.app_actions.iter().enumerate() {
        let AppAction::Keep(app) = *action else { continue };
        mem::swap(&mut new.apps[index], &mut old.apps[app]);
        let (before, after) = (&old.nodes[app], &new.nodes[index]);
        // An app whose links are others gets a tick before the next breath.
        let same = has_same_links(old, &before.inputs, new, &after.inputs, &plan.kept_links)
            && has_same_links(old, &before.outputs, new, &after.outputs, &plan.kept_links);
        after.deadline.set(if same { before.deadline.get() } else { 0 });
        for (before, after) in before.slots(old.table()).iter().zip(after.slots(new.table())) {
            after.take_over(before);
        }
    }
    dropped
}

/// Whether the ports of an app have the same links in two graphs; `kept` names the link of the old graph for each link
/// of the new one.
fn has_same_links(old: &Graph, before: &[u32], new: &Graph, after: &[u32], kept: &[Option<usize>]) -> bool {
    let link = |graph: &Graph, number: u32| graph.table().links.get(number as usize).map(|link| link.index);
    let is_same = |(&before, &after): (&u32, &u32)| match (link(old, before), link(new, after)) {
        (None, None) => true,
        (Some(before), Some(after)) => kept[after] == Some(before),
        _ => false,
    };
    before.len() == after.len() && before.iter().zip(after).all(is_same)
}

/// Counts packets as dropped that are inside removed apps, or that a replacing app did not take over. Returns their
/// number.
fn drop_held(old: &Graph, plan: &super::Plan) -> u64 {
    let replaced = plan.app_actions.iter().filter_map(|action| match *action {
        AppAction::Replace(app) => Some((app, false)),
        _ => None,
    });
    let mut dropped = 0;
    for (app, is_gone) in replaced.chain(plan.succession.removed_apps().map(|(app, _)| (app, true))) {
        let held = catch_panic(|| old.apps[app].held()).unwrap_or(0);
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

//! Calls of apps in sampled breaths, and what is recorded for each.
//!
//! The sampled body of a breath makes every call through [`sampled`], which reads the clock before and after the call
//! and counts the packets that it moved. The thread's [sampler](crate::runtime::sampling) chooses the breaths that are
//! sampled and those that are recorded.

use bellows_observe::layout::{account, link};
use bellows_packet::Mark;
use bellows_pmu::Reading;
use bellows_sys::clock;
use bellows_watch::{self as watch, Network};
use bellows_wiring::OPEN;

use super::trial;
use crate::app::erased::Call;
use crate::runtime::node::Node;

/// A call in a sampled breath.
///
/// Safety: as for the [`Call`] that it makes.
pub(crate) type SampledCall = unsafe extern "C" fn(&Node, Call);

/// Makes a call and records it as a pull.
///
/// Safety: as for the [`Call`] that it makes.
pub(crate) unsafe extern "C" fn sampled_pull(node: &Node, call: Call) {
    // SAFETY: the caller's promise.
    unsafe { sampled(node, call, account::PULL) }
}

/// Makes a call and records it as a push.
///
/// Safety: as for the [`Call`] that it makes.
pub(crate) unsafe extern "C" fn sampled_push(node: &Node, call: Call) {
    // SAFETY: the caller's promise.
    unsafe { sampled(node, call, account::PUSH) }
}

/// Makes a call and records it as a tick.
///
/// Safety: as for the [`Call`] that it makes.
pub(crate) unsafe extern "C" fn sampled_tick(node: &Node, call: Call) {
    // SAFETY: the caller's promise.
    unsafe { sampled(node, call, account::TICK) }
}

/// Safety: as for the [`Call`] that it makes.
#[inline(always)]
unsafe fn sampled(node: &Node, call: Call, entry: usize) {
    let sampler = &node.state().sampler;
    let before = CallCounts::of(node, entry);
    if sampler.watching.get() {
        sampler.before_watched(node.links(), &watched_call(node, entry));
    }
    let chosen = if sampler.trials.is_trying() { trial::choose(node, entry) } else { None };
    let counted = sampler.reading();
    let start = clock::ticks();
    // SAFETY: the caller's promise.
    unsafe { call(node) }
    let end = clock::ticks();
    let counted = counted.zip(sampler.reading());
    let packets = record_call(node, entry, start, end, before, counted);
    if let Some(chosen) = chosen {
        trial::record(node, &chosen, packets, sampler.clocks(start, end));
    }
}

/// Counts of an app before a call.
struct CallCounts {
    calls: u64,
    packets: u64,
    dropped: u64,
}

impl CallCounts {
    #[inline]
    fn of(node: &Node, entry: usize) -> CallCounts {
        CallCounts { calls: node.calls[entry].get(), packets: packets_passed(node, entry), dropped: dropped(node) }
    }
}

/// A number that grows by one with each packet that a call takes (a push) or sends (a pull or tick).
#[inline]
fn packets_passed(node: &Node, entry: usize) -> u64 {
    let table = node.links();
    if entry == account::PUSH {
        let waiting = |&link: &u32| table.waiting.get(link as usize).map_or(0, |waiting| u64::from(waiting.get()));
        return node.inputs.iter().map(waiting).sum::<u64>().wrapping_neg();
    }
    node.outputs.iter().map(|&link| table.sent(link)).fold(0, u64::wrapping_add)
}

/// The number of packets that an app has dropped for any reason.
#[inline]
fn dropped(node: &Node) -> u64 {
    let table = node.links();
    let own = (node.cell..node.own_counters).map(|cell| table.slab.get(cell));
    let full = |&link: &u32| table.links.get(link as usize).map_or(0, |to| table.slab.get(to.cell + link::DROPS));
    own.chain(node.outputs.iter().map(full)).fold(0, u64::wrapping_add)
}

/// Whether packets that an app sends in a call came into the network with this call.
fn brings_in(node: &Node, entry: usize) -> bool {
    !node.crosses() && (entry == account::PULL || entry == account::TICK && node.inputs.is_empty())
}

/// A call, as traces and taps see it.
fn watched_call(node: &Node, entry: usize) -> watch::Call<'_> {
    watch::Call { app: node.index, outputs: &node.outputs, brings_in: brings_in(node, entry) }
}

/// Records a call. Returns the number of packets that it moved.
#[inline(never)]
fn record_call(
    node: &Node,
    entry: usize,
    start: u64,
    end: u64,
    before: CallCounts,
    counted: Option<(Reading, Reading)>,
) -> u64 {
    let sampler = &node.state().sampler;
    sampler.count_call();
    if node.calls[entry].get() == before.calls {
        // In a lossless network, an app whose outputs have no room was not called after all.
        return 0;
    }
    let packets = packets_passed(node, entry).wrapping_sub(before.packets);
    if sampler.is_recording() {
        let slab = &node.links().slab;
        let first = node.account + account::samples(entry, sampler.events().len());
        let mut is_outlier = true;
        for call in node.usual[entry].judge(sampler.clocks(start, end), packets) {
            is_outlier = call.is_outlier;
            if is_outlier {
                slab.add(first + account::OUTLIERS, 1);
                slab.add(first + account::OUTLIERS + 1, call.clocks);
            } else {
                slab.add(first, 1);
                slab.add(first + 1, call.packets);
                slab.add(first + 2, call.clocks);
            }
        }
        if let Some((from, to)) = counted.filter(|_| !is_outlier) {
            sampler.record_events(slab, node.account, entry, packets, &to.since(&from));
        }
    }
    if sampler.is_on_timeline() {
        sampler.on_timeline(|timeline| {
            timeline.call(node.name, entry, start, sampler.clocks(start, end), packets);
            let drops = dropped(node).wrapping_sub(before.dropped);
            if drops > 0 {
                timeline.drops(node.name, end, drops);
            }
            sampler.record_passages(timeline, start, end);
        });
    }
    if sampler.is_marking() && packets > 0 && brings_in(node, entry) {
        mark_one(node, start);
    }
    if sampler.watching.get() {
        sampler.after_watched(node.links(), &watched_call(node, entry), start, end);
    }
    packets
}

/// Marks the last of the packets that an app just brought in, so that its end is logged.
fn mark_one(node: &Node, created: u64) {
    let table = node.links();
    let holds = |link: &&u32| **link != OPEN && table.waiting[**link as usize].get() > 0;
    let mut holding = node.outputs.iter().filter(holds);
    // If several outputs hold packets, one may hold older packets.
    let (Some(&link), None) = (holding.next(), holding.next()) else { return };
    table.with_packets(link, |packets| {
        if let Some(packet) = packets.last_mut().filter(|packet| !packet.is_marked()) {
            packet.mark(Mark { created, id: 0 });
        }
    });
}

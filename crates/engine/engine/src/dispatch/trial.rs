//! The chosen call of a breath in a trial of look-ahead.

use std::hint::black_box;

use bellows_observe::layout::account;
use bellows_observe::look_ahead::{MIN_PACKETS, TrialCall};
use bellows_packet::Packet;
use bellows_sys::clock;
use bellows_watch::Network;

use crate::runtime::node::Node;

/// The chosen call, before it is made: the clocks of the prefetches, if its packets were prefetched.
pub(super) struct ChosenCall {
    fetch: Option<u64>,
}

/// Looks at a call before it is made. Returns it if it is the chosen one, and then prefetches its packets if the coin
/// says so.
#[cold]
pub(super) fn choose(node: &Node, entry: usize) -> Option<ChosenCall> {
    let sampler = &node.state().sampler;
    let table = node.links();
    let waiting = |link: u32| table.waiting.get(link as usize).map_or(0, |waiting| u64::from(waiting.get()));
    let packets: u64 = node.inputs.iter().map(|&link| waiting(link)).sum();
    let could_be = entry == account::PUSH && packets >= MIN_PACKETS && !node.crosses();
    if !could_be || !sampler.trials.is_chosen(node.index) {
        return None;
    }
    if !sampler.trials.prefetches() {
        return Some(ChosenCall { fetch: None });
    }
    let start = clock::ticks();
    for &link in node.inputs.iter().filter(|link| waiting(**link) > 0) {
        table.with_packets(link, |packets| fetch(packets));
    }
    Some(ChosenCall { fetch: Some(sampler.clocks(start, clock::ticks())) })
}

/// Brings the first line of packets into the nearest cache. A processor drops prefetches while it has too many under way,
/// and the others may still be under way at the end, so a byte of each packet is read as well.
fn fetch(packets: &[Packet]) {
    packets.iter().for_each(Packet::prefetch);
    black_box(packets.iter().fold(0, |read, packet| read ^ packet.bytes().first().copied().unwrap_or(0)));
}

/// Records the chosen call, with the packets and clocks that it took.
pub(super) fn record(node: &Node, call: &ChosenCall, packets: u64, clocks: u64) {
    if packets < MIN_PACKETS {
        return;
    }
    let short = |clocks: u64| u32::try_from(clocks).unwrap_or(u32::MAX);
    node.state().sampler.trials.add(TrialCall {
        app: node.index as u32,
        packets: u16::try_from(packets).unwrap_or(u16::MAX),
        fetch: call.fetch.map(short),
        clocks: short(clocks),
    });
}

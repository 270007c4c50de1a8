//! The rewriting of batches in which not all packets are usual.
//!
//! Floods are mixed with packets to forward. So the usual ones of a batch are found without a branch, and rewritten by a
//! loop over their places; a second loop goes over the places of the others, and decides about those that floods are made
//! of: packets whose time runs out, that are too long, or whose next hop is not resolved.

use bellows_packet::{FramesMut, Packet};
use bellows_vrf::adjacency::{AdjacencyState, AdjacencyTable, SeqSnapshot};
use bellows_vrf::{IcmpError, Reason, Tag};

use super::RewriteTargets;
use crate::forwarding::{BATCH, ETHERNET, Family, Headers, UNUSUAL};

/// What is known of the packets of a batch.
pub(super) struct KnownFacts<'b, F: Family> {
    pub(super) ttl_words: &'b [F::TtlWords],
    pub(super) state_words: &'b [SeqSnapshot],
    /// The output of each packet's interface.
    pub(super) numbers: &'b mut [u16],
}

/// The places of packets in a batch: first those of the usual ones, then those of the others.
pub(crate) struct Places([[u8; BATCH]; 2]);

impl Places {
    pub(crate) const NONE: Places = Places([[0; BATCH]; 2]);

    /// Writes the places of usual packets and of others. Returns how many there are of each. Hot.
    #[inline(always)]
    pub(crate) fn separate(&mut self, numbers: &[u16]) -> [usize; 2] {
        let [usual, others] = &mut self.0;
        let (mut usual_count, mut others_count) = (0, 0);
        for (place, &number) in numbers.iter().enumerate().take(BATCH) {
            let is_other = usize::from(number == UNUSUAL);
            usual[usual_count % BATCH] = place as u8;
            others[others_count % BATCH] = place as u8;
            usual_count += 1 - is_other;
            others_count += is_other;
        }
        [usual_count, others_count]
    }

    /// The places of the other packets, of which there are so many. Hot.
    #[inline(always)]
    pub(crate) fn others(&self, count: usize) -> impl Iterator<Item = usize> {
        self.0[1][..count].iter().map(|&place| place.into())
    }

    /// The places of the usual packets, of which there are so many. Hot.
    #[inline(always)]
    pub(crate) fn usual(&self, count: usize) -> impl Iterator<Item = usize> {
        self.0[0][..count].iter().map(|&place| place.into())
    }
}

/// Rewrites the usual packets of a batch, and numbers those whose way is clear without a closer look. Hot.
#[inline(always)]
pub(super) fn rewrite_mixed<F: Family>(
    frames: &mut FramesMut<'_, F::Headers>,
    known: &mut KnownFacts<'_, F>,
    places: &mut Places,
    targets: RewriteTargets<'_>,
) {
    mark_others::<F>(frames.packets(), known);
    let [usual, others] = places.separate(known.numbers);
    let [usual_places, other_places] = &places.0;
    divert::<F>(frames, known, &other_places[..others], targets);
    write_usual::<F>(frames, known, &usual_places[..usual], targets.adjacencies.table());
}

/// Numbers packets that are not usual as such. Hot.
#[inline(always)]
fn mark_others<F: Family>(packets: &[Packet], known: &mut KnownFacts<'_, F>) {
    let rows = packets.iter().zip(known.state_words).zip(known.ttl_words).zip(&mut *known.numbers);
    for (((packet, &state_word), &ttl_words), number) in rows {
        let state = AdjacencyState::of(state_word);
        let is_usual = state.is_usual()
            & (packet.len() <= ETHERNET + usize::from(state.mtu()))
            & (Tag(packet.tag()).interface() != 0)
            & F::ttl_ok(ttl_words);
        *number = if is_usual { *number } else { UNUSUAL };
    }
}

/// Rewrites usual packets. One whose adjacency has changed meanwhile is not usual any more. Hot.
#[inline(never)]
fn write_usual<F: Family>(
    frames: &mut FramesMut<'_, F::Headers>,
    known: &mut KnownFacts<'_, F>,
    places: &[u8],
    table: AdjacencyTable<'_>,
) {
    for place in places.iter().map(|&place| usize::from(place)) {
        let (tag, headers) = frames.at_mut(place);
        let (header, is_same) = table.header_of(Tag(tag).number(), known.state_words[place]);
        if is_same {
            headers.set_ethernet(header);
            F::set_ttl_words(headers, F::decremented(known.ttl_words[place]));
        } else {
            known.numbers[place] = UNUSUAL;
        }
    }
}

/// Numbers and tags packets as the decision about each of them would, if that is certain. Hot.
#[inline(never)]
fn divert<F: Family>(
    frames: &mut FramesMut<'_, F::Headers>,
    known: &mut KnownFacts<'_, F>,
    places: &[u8],
    targets: RewriteTargets<'_>,
) {
    for place in places.iter().map(|&place| usize::from(place)) {
        let (state, ttl_words) = (AdjacencyState::of(known.state_words[place]), known.ttl_words[place]);
        if let Some((output, number)) = diverted::<F>(frames, place, state, ttl_words, targets) {
            let tag = Tag(frames.packets()[place].tag());
            frames.set_tag(place, tag.with(number).0);
            known.numbers[place] = output;
        }
    }
}

/// Where a packet goes whose time runs out, that is too long, or whose next hop is not resolved, and the number for its
/// tag. There is neither if somebody has to look at it more closely. Hot.
#[inline(always)]
pub(crate) fn diverted<F: Family>(
    frames: &mut FramesMut<'_, F::Headers>,
    place: usize,
    state: AdjacencyState,
    ttl_words: F::TtlWords,
    targets: RewriteTargets<'_>,
) -> Option<(u16, u32)> {
    let packet = &frames.packets()[place];
    let (length, has_offload) = (packet.len(), packet.has_offload());
    let (tag, headers) = frames.at_mut(place);
    let tag = Tag(tag);
    if has_offload | (tag.interface() == 0) {
        return None;
    }
    let mtu = usize::from(state.mtu());
    // Time comes before length (RFC 1812, section 5.3.1).
    let (output, number) = if state.is_complete() && F::ttl_expired(headers) {
        (targets.error, const { IcmpError::of(Reason::TimeExceeded).number() })
    } else if length > ETHERNET + mtu {
        // Padding behind the packet does not count.
        let is_too_big = F::length(headers).min(length - ETHERNET) > mtu;
        if !(state.is_used() && F::ttl_ok(ttl_words) && is_too_big && !F::may_fragment(headers, false)) {
            return None;
        }
        (targets.error, IcmpError { reason: Reason::TooBig, value: state.mtu() }.number())
    } else if state.is_unresolved() && F::ttl_ok(ttl_words) && targets.resolve != UNUSUAL {
        F::set_ttl_words(headers, F::decremented(ttl_words));
        (targets.resolve, tag.number())
    } else {
        return None;
    };
    (output != UNUSUAL).then_some((output, number))
}

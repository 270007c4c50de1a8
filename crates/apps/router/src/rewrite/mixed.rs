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

/// The places of a batch, a bit each.
#[derive(Clone, Copy)]
pub(crate) struct Places([u64; BATCH / 64]);

impl Places {
    /// The places of usual packets, and those of others. Hot.
    #[inline(always)]
    pub(crate) fn separate(numbers: &[u16]) -> [Places; 2] {
        let numbers = &numbers[..numbers.len().min(BATCH)];
        let (groups, rest) = numbers.as_chunks::<4>();
        let mut others = [0; BATCH / 64];
        for (index, group) in groups.iter().enumerate() {
            others[index / 16] |= top_bits(*group) << (index % 16 * 4);
        }
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        if let Some(word) = others.get_mut(groups.len() / 16) {
            *word |= top_bits(last) << (groups.len() % 16 * 4);
        }
        let in_word = |index: usize| numbers.len().saturating_sub(index * 64).min(64) as u32;
        let all = |index| u64::MAX.checked_shr(64 - in_word(index)).unwrap_or(0);
        [Places(std::array::from_fn(|index| !others[index] & all(index))), Places(others)]
    }

    /// The places, in order. Hot.
    #[inline(always)]
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(index, mut word)| {
            std::iter::from_fn(move || {
                let place = (word != 0).then(|| index * 64 + word.trailing_zeros() as usize);
                word &= word.wrapping_sub(1);
                place
            })
        })
    }
}

/// The top bits of four numbers, which tell whether each is [`UNUSUAL`]. The products of four single bits and four powers
/// of two meet in no other bit.
#[inline(always)]
fn top_bits(group: [u16; 4]) -> u64 {
    let word = group.iter().rev().fold(0, |word, &number| word << 16 | u64::from(number));
    let bits = word >> 15 & 0x0001_0001_0001_0001;
    bits.wrapping_mul(1 << 48 | 1 << 33 | 1 << 18 | 1 << 3) >> 48 & 0xf
}

/// Rewrites the usual packets of a batch, and numbers those whose way is clear without a closer look. Hot.
#[inline(always)]
pub(super) fn rewrite_mixed<F: Family>(
    frames: &mut FramesMut<'_, F::Headers>,
    known: &mut KnownFacts<'_, F>,
    targets: RewriteTargets<'_>,
) {
    mark_others::<F>(frames.packets(), known);
    let [usual, others] = Places::separate(known.numbers);
    divert::<F>(frames, known, others, targets);
    write_usual::<F>(frames, known, usual, targets.adjacencies.table());
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
    places: Places,
    table: AdjacencyTable<'_>,
) {
    for place in places.iter() {
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
    places: Places,
    targets: RewriteTargets<'_>,
) {
    for place in places.iter() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_of_a_loop_with_a_branch() {
        let mut random = fastrand::Rng::with_seed(7);
        for count in 0..=BATCH {
            for share in [0, 1, 128, 255, 256] {
                let number = |random: &mut fastrand::Rng| {
                    if random.u16(..256) < share { UNUSUAL } else { random.u16(..UNUSUAL) }
                };
                let numbers: Vec<u16> = (0..count).map(|_| number(&mut random)).collect();
                let places =
                    |is_other| (0..count).filter(|&place| (numbers[place] == UNUSUAL) == is_other).collect::<Vec<_>>();
                let found = Places::separate(&numbers).map(|places| places.iter().collect::<Vec<_>>());
                assert_eq!(found, [places(false), places(true)], "{numbers:?}");
            }
        }
    }
}

//! What neighbours of IPv6 say (RFC 4861, sections 7.2.3 and 7.2.5).

use bellows_wire::MacAddr;

use crate::neighbours::{Learned, NeighbourKey, NeighbourState, Neighbours};

/// What a neighbour advertisement says (RFC 4861, section 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// The link-layer address, if it names one.
    pub mac: Option<MacAddr>,
    /// Whether it answers a solicitation, so that the neighbour receives what is sent to it.
    pub is_solicited: bool,
    /// Whether the address replaces another one that is known.
    pub overrides: bool,
}

impl Neighbours {
    /// Takes in a neighbour advertisement (RFC 4861, section 7.2.5). Nobody becomes a neighbour by it.
    pub fn hear_advertisement(&mut self, key: NeighbourKey, said: Advertisement, now: u64) -> Learned {
        let Some((state, known)) = self.state(key) else { return Learned::Ignored };
        let (Some(mac), true) = (said.mac.or(known), state != NeighbourState::Permanent) else {
            return Learned::Ignored;
        };
        let differs = known != Some(mac);
        if known.is_some() && differs && !said.overrides {
            // Two stations claim the address. The one that was known is asked soon, which settles it.
            if state == NeighbourState::Reachable {
                self.put_stale(key, known, now);
            }
            return Learned::Ignored;
        }
        if said.is_solicited {
            self.put_reachable(key, mac, now);
        } else if differs {
            self.put_stale(key, Some(mac), now);
        }
        if differs { Learned::Changed } else { Learned::Confirmed }
    }

    /// Takes in the link-layer address of a neighbour that sent a solicitation (RFC 4861, sections 6.2.6 and 7.2.3). It
    /// shows where the neighbour is, but not that it receives what is sent to it.
    pub fn hear_solicitation(&mut self, key: NeighbourKey, mac: MacAddr, now: u64) -> Learned {
        match self.state(key) {
            Some((NeighbourState::Permanent, _)) => Learned::Ignored,
            Some((_, Some(known))) if known == mac => Learned::Confirmed,
            None if !self.makes_room_for(key, mac, now) => Learned::Full,
            Some(_) | None => {
                self.put_stale(key, Some(mac), now);
                Learned::Changed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neighbours::Need;
    use crate::neighbours::{Due, NeighbourLimits, Wanted};

    const SECOND: u64 = 1_000_000_000;
    const ONE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn key() -> NeighbourKey {
        (1, "2001:db8::1".parse().unwrap())
    }

    /// A neighbour in a state, with the address `ONE` unless it is incomplete.
    fn neighbour(state: NeighbourState) -> Neighbours {
        let mut neighbours = Neighbours::new(NeighbourLimits::default());
        match state {
            NeighbourState::Incomplete => _ = neighbours.want(key(), Need::Destination, 1, 0),
            NeighbourState::Permanent => neighbours.enter(key(), ONE),
            _ => {
                neighbours.put_reachable(key(), ONE, 0);
                if state != NeighbourState::Reachable {
                    neighbours.put_stale(key(), Some(ONE), 0);
                }
                if state == NeighbourState::Probe {
                    neighbours.due(100 * SECOND);
                }
            }
        }
        assert_eq!(neighbours.state(key()).unwrap().0, state);
        neighbours
    }

    #[test]
    fn advertisements_change_states_as_the_rfc_says() {
        use NeighbourState::{Delay, Incomplete, Permanent, Probe, Reachable};
        // The state, the address, whether solicited, whether it overrides; the state and the address then.
        for (state, mac, is_solicited, overrides, after, address) in [
            (Incomplete, None, true, true, Incomplete, None),
            (Incomplete, Some(ONE), true, false, Reachable, Some(ONE)),
            (Incomplete, Some(ONE), false, false, Delay, Some(ONE)),
            (Reachable, Some(OTHER), true, false, Delay, Some(ONE)),
            (Probe, Some(OTHER), true, false, Probe, Some(ONE)),
            (Delay, Some(OTHER), false, false, Delay, Some(ONE)),
            (Delay, Some(ONE), true, false, Reachable, Some(ONE)),
            (Probe, None, true, false, Reachable, Some(ONE)),
            (Probe, Some(ONE), false, false, Probe, Some(ONE)),
            (Probe, Some(OTHER), true, true, Reachable, Some(OTHER)),
            (Reachable, Some(OTHER), false, true, Delay, Some(OTHER)),
            (Reachable, Some(ONE), false, true, Reachable, Some(ONE)),
            (Permanent, Some(OTHER), true, true, Permanent, Some(ONE)),
        ] {
            let mut neighbours = neighbour(state);
            let said = Advertisement { mac, is_solicited, overrides };
            let learned = neighbours.hear_advertisement(key(), said, SECOND);
            assert_eq!(neighbours.state(key()), Some((after, address)), "{state:?} {said:?}");
            let before = (state != Incomplete).then_some(ONE);
            assert_eq!(learned == Learned::Changed, before != address, "{state:?} {said:?}");
        }
    }

    #[test]
    fn nobody_becomes_a_neighbour_by_an_advertisement() {
        let mut neighbours = Neighbours::new(NeighbourLimits::default());
        let said = Advertisement { mac: Some(ONE), is_solicited: true, overrides: true };
        assert_eq!(neighbours.hear_advertisement(key(), said, 0), Learned::Ignored);
        assert!(neighbours.is_empty());
    }

    #[test]
    fn who_solicits_is_known_and_asked_soon() {
        let mut neighbours = Neighbours::new(NeighbourLimits { neighbours: 1, ..NeighbourLimits::default() });
        assert_eq!(neighbours.hear_solicitation(key(), ONE, 0), Learned::Changed);
        assert_eq!(neighbours.want(key(), Need::Destination, 1, 0), Wanted::Known(ONE));
        assert_eq!(neighbours.due(5 * SECOND - 1), None);
        assert_eq!(neighbours.due(5 * SECOND), Some(Due::Ask(key(), Some(ONE))));
        assert_eq!(neighbours.hear_solicitation(key(), ONE, 5 * SECOND), Learned::Confirmed);
        assert_eq!(neighbours.state(key()).unwrap().0, NeighbourState::Probe, "it has not answered");
        assert_eq!(neighbours.hear_solicitation(key(), OTHER, 5 * SECOND), Learned::Changed);
        assert_eq!(neighbours.state(key()).unwrap(), (NeighbourState::Delay, Some(OTHER)));
        assert_eq!(neighbours.hear_solicitation((2, key().1), ONE, 0), Learned::Full);
        for state in [NeighbourState::Incomplete, NeighbourState::Permanent] {
            let mut neighbours = neighbour(state);
            let is_changed = neighbours.hear_solicitation(key(), OTHER, 0) == Learned::Changed;
            assert_eq!(is_changed, state == NeighbourState::Incomplete);
        }
    }
}

//! Which session a packet belongs to.

use std::collections::HashMap;

use bellows_common::headers::{Ends, Guesses, is_v6};
use bellows_wire::IpPair;

use super::Protocol;
use super::session::Session;

/// The sessions of an app, by the addresses of received packets and their numbers.
pub(super) struct Index {
    exact: HashMap<(IpPair, Option<u32>), usize>,
    /// Sessions by what they send.
    sent: HashMap<(IpPair, Option<u32>), usize>,
    /// Those of IPv4 and IPv6.
    families: [FamilySessions; 2],
    are_plain: bool,
}

/// The sessions of a family.
struct FamilySessions {
    guesses: Guesses,
    /// Where numbers are, and the bits of their 4 bytes, if all sessions have theirs at the same place.
    number: Option<(usize, u64)>,
}

impl Index {
    /// Fails with the places of two sessions that are the same.
    pub(super) fn new<P: Protocol>(sessions: &[Session]) -> Result<Index, (usize, usize)> {
        let mut exact = HashMap::new();
        for (place, session) in sessions.iter().enumerate() {
            if let Some(other) = exact.insert((session.received, session.shape.id), place) {
                return Err((other, place));
            }
        }
        // Those to a station that sends all to one number are equal.
        let sent = sessions.iter().enumerate().filter_map(|(place, session)| {
            let seen = P::read(&session.shape.send).ok()?;
            Some(((session.addresses, seen.id), place))
        });
        Ok(Index {
            sent: sent.collect(),
            exact,
            families: [false, true].map(|is_v6| FamilySessions::new(sessions, is_v6)),
            are_plain: sessions.iter().all(Session::is_plain),
        })
    }

    /// Whether all sessions are [plain](Session::is_plain).
    pub(super) fn are_plain(&self) -> bool {
        self.are_plain
    }

    /// The session of received packets with these addresses and this number.
    pub(super) fn find(&self, addresses: IpPair, id: Option<u32>) -> Option<usize> {
        self.exact.get(&(addresses, id)).copied()
    }

    /// The session that sends packets with these addresses and this number.
    pub(super) fn find_sender(&self, addresses: IpPair, id: Option<u32>) -> Option<usize> {
        self.sent.get(&(addresses, id)).copied()
    }

    /// The only session that a packet can belong to, if its header is a usual one. Hot.
    #[inline(always)]
    pub(super) fn guess(&self, frame: &[u8]) -> usize {
        let is_v6 = is_v6(frame);
        let FamilySessions { guesses, number } = &self.families[usize::from(is_v6)];
        let number = number.map_or(0, |(at, mask)| Ends::number(frame, is_v6, at) & mask);
        guesses.guess(Ends::read(frame, is_v6, number))
    }
}

impl FamilySessions {
    fn new(sessions: &[Session], is_v6: bool) -> FamilySessions {
        let is_of = |session: &Session| matches!(session.received, IpPair::V6 { .. }) == is_v6;
        let sessions: Vec<_> = (0u16..).zip(sessions).filter(|(_, session)| is_of(session)).collect();
        // The bytes of the number, and those of its bits that matter.
        let number = |session: &Session| {
            let at = session.shape.id_at?;
            let part = |bytes: &[u8]| {
                bytes.get(at..at + 4).map(|bytes| bytes.iter().fold(0, |all, &byte| all << 8 | u64::from(byte)))
            };
            Some((at, part(&session.shape.mask)?, part(&session.shape.expect)?))
        };
        let place = |session: &Session| number(session).map(|(at, mask, _)| (at, mask));
        let first = sessions.first().and_then(|(_, session)| place(session));
        let common = first.filter(|_| sessions.iter().all(|(_, session)| place(session) == first));
        let ends = |session: &Session| {
            let number = number(session).filter(|_| common.is_some()).map_or(0, |(_, mask, bytes)| bytes & mask);
            Ends::of(session.received, number)
        };
        let entries: Vec<_> = sessions.iter().map(|(place, session)| (*place, ends(session))).collect();
        FamilySessions { guesses: Guesses::new(&entries), number: common }
    }
}

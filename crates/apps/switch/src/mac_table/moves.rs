//! How often an address may move from port to port.

use super::entry::{Entry, PortNumber};

/// Nanoseconds of a unit of time, 0.27 s, as a power of two. Times are counted modulo 65,536 units, 4.9 hours.
const UNIT_SHIFT: u32 = 28;

/// So many nanoseconds in units of time, rounded up.
pub(super) fn units(nanos: u64) -> u16 {
    u16::try_from(nanos.div_ceil(1 << UNIT_SHIFT)).unwrap_or(u16::MAX)
}

/// A time in units.
pub(super) fn at(now: u64) -> u16 {
    (now >> UNIT_SHIFT) as u16
}

/// The limit of moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MoveLimit {
    /// The most moves within the window; `None` for any number.
    pub(super) max: Option<u32>,
    /// In units.
    pub(super) window: u16,
    /// How long an address then stays, in units.
    pub(super) hold: u16,
}

/// What becomes of an address that appears at another port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// It moves.
    To(Entry),
    /// It has moved too often: from now on it stays for a time.
    Hold(Entry),
    /// It stays.
    Stay,
}

impl MoveLimit {
    /// The limit as one word.
    pub(super) fn word(self) -> u64 {
        // No limit is one of 0.
        u64::from(self.max.unwrap_or(0)) << 32 | u64::from(self.window) << 16 | u64::from(self.hold)
    }

    /// The limit of a word.
    pub(super) fn of_word(word: u64) -> MoveLimit {
        let max = (word >> 32) as u32;
        MoveLimit { max: (max > 0).then_some(max), window: (word >> 16) as u16, hold: word as u16 }
    }

    /// What becomes of an entry whose address appears at another port.
    pub(super) fn of(&self, entry: Entry, port: PortNumber, age: u32, now: u16) -> Move {
        let moved = Entry { port, age, ..entry };
        let Some(max) = self.max else {
            return Move::To(Entry { moves: 0, is_held: false, ..moved });
        };
        let elapsed = now.wrapping_sub(entry.since);
        let first = Entry { moves: 1, since: now, is_held: false, ..moved };
        match entry {
            Entry { is_held: true, .. } if elapsed < self.hold => Move::Stay,
            Entry { is_held: true, .. } | Entry { moves: 0, .. } => Move::To(first),
            _ if elapsed >= self.window => Move::To(first),
            _ if entry.moves < max => Move::To(Entry { moves: entry.moves + 1, ..moved }),
            _ => Move::Hold(Entry { is_held: true, since: now, ..entry }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_moves_too_often_stays_for_a_time() {
        let limit = MoveLimit { max: Some(2), window: 100, hold: 50 };
        let mut entry = Entry::default();
        let mut appears = |port, now| match limit.of(entry, port, 0, now) {
            Move::To(next) => {
                entry = next;
                "moves"
            }
            Move::Hold(next) => {
                entry = next;
                "is held"
            }
            Move::Stay => "stays",
        };
        // The time passes its end and begins again.
        let start = u16::MAX - 120;
        assert_eq!(
            [(1, 0), (0, 99), (1, 100), (0, 101), (1, 150), (1, 199), (1, 200), (0, 249), (1, 250), (1, 260), (1, 270)]
                .map(|(port, time)| appears(port, start.wrapping_add(time))),
            ["moves", "moves", "moves", "moves", "is held", "stays", "moves", "moves", "is held", "stays", "stays"]
        );
        let free = MoveLimit { max: None, ..limit };
        assert_eq!([limit, free].map(|limit| MoveLimit::of_word(limit.word())), [limit, free]);
        assert!((0..1_000).all(|time| matches!(free.of(entry, time % 2 + 7, 0, time), Move::To(_))));
    }

    #[test]
    fn times_have_units() {
        assert_eq!((units(0), units(1), units(1 << 28), units(u64::MAX)), (0, 1, 1, u16::MAX));
        assert_eq!((at(0), at(1 << 28), at((1 << 44) + (5 << 28))), (0, 1, 5));
    }
}

//! The position of a ring, and its encoding when one device takes over from another.

use crate::Features;

/// The position at which a ring continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// A split ring: free-running indices.
    Split {
        /// The next chain to take.
        avail: u16,
        /// The next used entry to write.
        used: u16,
    },
    /// A packed ring: descriptors, with the wrap counters (specification, 2.8.1).
    Packed {
        /// The next descriptor to take.
        avail: u16,
        /// The driver's wrap counter there.
        avail_wrap: bool,
        /// The next descriptor to write as used.
        used: u16,
        /// The device's wrap counter there.
        used_wrap: bool,
    },
}

/// The lower half of the base at a packed ring's start; the upper half is 0.
const START: u32 = 0x8000;

impl Position {
    /// The start of a new ring.
    pub fn start(features: Features) -> Position {
        if features.has(Features::RING_PACKED) {
            Position::Packed { avail: 0, avail_wrap: true, used: 0, used_wrap: true }
        } else {
            Position::Split { avail: 0, used: 0 }
        }
    }

    /// Decodes the base of vhost-user's `SET_VRING_BASE`. DPDK's front end only gives the next descriptor to take in a
    /// packed ring, and always as the first one of the first round: then nothing is in flight. The same is true of
    /// every split ring.
    pub fn from_base(features: Features, base: u32) -> Position {
        let (low, high) = (base as u16, (base >> 16) as u16);
        if !features.has(Features::RING_PACKED) {
            return Position::Split { avail: low, used: low };
        }
        let half = |half: u16| (half & 0x7fff, half >> 15 != 0);
        let (avail, avail_wrap) = half(low);
        let (used, used_wrap) = half(if base == START { low } else { high });
        Position::Packed { avail, avail_wrap, used, used_wrap }
    }

    /// Encodes the answer to vhost-user's `GET_VRING_BASE`.
    pub fn base(self) -> u32 {
        let half = |index: u16, wrap: bool| u32::from(index & 0x7fff) | u32::from(wrap) << 15;
        match self {
            Position::Split { avail, .. } => avail.into(),
            Position::Packed { avail, avail_wrap, used, used_wrap } => {
                half(avail, avail_wrap) | half(used, used_wrap) << 16
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKED: Features = Features(Features::VERSION_1.0 | Features::RING_PACKED.0);

    fn packed(avail: u16, avail_wrap: bool, used: u16, used_wrap: bool) -> Position {
        Position::Packed { avail, avail_wrap, used, used_wrap }
    }

    #[test]
    fn a_base_is_decoded() {
        for position in [
            packed(0, true, 0, true),
            packed(5, true, 5, true),
            packed(5, false, 3, false),
            // The used half is 0: descriptor 0 in the second round.
            packed(5, false, 0, false),
            packed(0, false, 0, false),
            packed(2, false, 250, true),
        ] {
            assert_eq!(Position::from_base(PACKED, position.base()), position);
        }
        // The base that DPDK gives for a ring that starts.
        assert_eq!(Position::from_base(PACKED, 0x8000), packed(0, true, 0, true));
        assert_eq!(Position::from_base(Features::VERSION_1, 0x1_8005), Position::Split { avail: 0x8005, used: 0x8005 });
    }
}

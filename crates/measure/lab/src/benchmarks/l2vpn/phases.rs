//! The phases of traffic, and their orders.

use fastrand::Rng;

/// The pseudowires of the end, which differ in their tunnels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wire {
    /// L2TPv3 over IPv6, a port of the bridge.
    Basel,
    /// GRE over IPv4 with ESP, a port of the bridge.
    Bern,
    /// GRE over IPv6 with ESP, a port of the bridge.
    Zurich,
    /// GRE over IPv4 from a VLAN of the trunk, without a bridge.
    Line,
}

impl Wire {
    pub(super) const ALL: [Wire; 4] = [Wire::Basel, Wire::Bern, Wire::Zurich, Wire::Line];

    /// The name of its site, which is that of its port at the other ends.
    pub(super) fn site(self) -> &'static str {
        match self {
            Wire::Basel => "basel",
            Wire::Bern => "bern",
            Wire::Zurich => "zurich",
            Wire::Line => "line",
        }
    }

    /// The port of this end that has its frames.
    pub(super) fn circuit(self) -> &'static str {
        if self == Wire::Line { "customers" } else { "office" }
    }

    /// Whether its packets are encrypted, so that each can come only once.
    pub(super) fn is_encrypted(self) -> bool {
        matches!(self, Wire::Bern | Wire::Zurich)
    }

    fn family(self) -> &'static str {
        if matches!(self, Wire::Basel | Wire::Zurich) { "ip6" } else { "ip4" }
    }
}

/// Where most of the packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PhaseDirection {
    /// Into tunnels.
    Encap,
    /// Out of tunnels.
    Decap,
}

/// The lengths of frames, without the tag of a trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Fixed(usize),
    /// Seven frames of 60 bytes, four of 590, one of 1,514.
    Imix,
    /// Frames whose packets are longer than the uplink's MTU, so that each becomes two fragments.
    Fragmented,
}

impl Size {
    /// The lengths of some frames, in random order.
    pub(super) fn lengths(self, frames: usize) -> Vec<usize> {
        match self {
            Size::Fixed(length) => vec![length; frames],
            Size::Fragmented => vec![FRAGMENTED; frames],
            Size::Imix => {
                let mix = [60, 60, 60, 60, 60, 60, 60, 590, 590, 590, 590, 1_514];
                let mut lengths: Vec<usize> = mix.iter().copied().cycle().take(frames).collect();
                Rng::with_seed(7).shuffle(&mut lengths);
                lengths
            }
        }
    }
}

/// Bytes of a frame that becomes two fragments: its packet of L2TPv3 is longer than 1,600 bytes.
const FRAGMENTED: usize = 1_814;

/// A mix of traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Phase {
    pub(super) direction: PhaseDirection,
    pub(super) wire: Wire,
    pub(super) size: Size,
    /// Stations on each side.
    pub(super) stations: usize,
}

/// Packets in a breath of the direction that has most of them, and of the other one.
pub(super) const BULK: usize = 112;
pub(super) const BACK: usize = 16;

const fn phase(direction: PhaseDirection, wire: Wire, size: Size, stations: usize) -> Phase {
    Phase { direction, wire, size, stations }
}

/// All phases, in which each property occurs with both directions and, where it can, with both families.
pub(super) const ALL: [Phase; 12] = {
    use PhaseDirection::{Decap, Encap};
    use Size::{Fixed, Fragmented, Imix};
    use Wire::{Basel, Bern, Line, Zurich};
    [
        phase(Encap, Basel, Fixed(64), 1),
        phase(Encap, Basel, Imix, 1_000),
        phase(Encap, Basel, Fragmented, 1),
        phase(Encap, Zurich, Fixed(1_500), 1),
        phase(Encap, Bern, Imix, 1_000),
        phase(Encap, Line, Fixed(512), 1),
        phase(Decap, Basel, Fixed(1_500), 1_000),
        phase(Decap, Basel, Fragmented, 1),
        phase(Decap, Zurich, Fixed(64), 1_000),
        phase(Decap, Bern, Fixed(512), 1),
        phase(Decap, Line, Fixed(64), 1),
        phase(Decap, Line, Imix, 1),
    ]
};

impl Phase {
    /// The name: direction, family, encryption, size, stations.
    pub(super) fn name(self) -> String {
        let direction = if self.direction == PhaseDirection::Encap { "encap" } else { "decap" };
        let esp = if self.wire.is_encrypted() { "-esp" } else { "" };
        let size = match self.size {
            Size::Fixed(length) => length.to_string(),
            Size::Imix => "imix".to_owned(),
            Size::Fragmented => "fragments".to_owned(),
        };
        let stations = if self.stations > 1 { format!("-{}-macs", self.stations) } else { String::new() };
        format!("{direction}-{}{esp}-{size}{stations}", self.wire.family())
    }

    /// Packets in a breath from the circuit, and from the tunnel.
    pub(super) fn packets(self) -> [usize; 2] {
        match self.direction {
            PhaseDirection::Encap => [BULK, BACK],
            PhaseDirection::Decap => [BACK, BULK],
        }
    }

    /// Those of the direction that has most of them, and none of the other one.
    pub(super) fn one_way(self) -> [usize; 2] {
        match self.direction {
            PhaseDirection::Encap => [BULK, 0],
            PhaseDirection::Decap => [0, BULK],
        }
    }
}

/// The phase at a place.
///
/// # Errors
/// If there is none.
pub(super) fn at(place: usize) -> Result<Phase, String> {
    ALL.get(place).copied().ok_or_else(|| format!("there is no phase {place}"))
}

/// `count` random orders of phases.
pub(super) fn orders(seed: u64, count: usize, phases: &[usize]) -> Vec<Vec<usize>> {
    let mut random = Rng::with_seed(seed);
    let mut order = || {
        let mut order = phases.to_vec();
        random.shuffle(&mut order);
        order
    };
    (0..count).map(|_| order()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn phases_have_names_of_their_own_and_all_properties() {
        let names: BTreeSet<String> = ALL.map(Phase::name).into();
        assert_eq!(names.len(), ALL.len());
        for property in ["encap", "decap", "ip4", "ip6", "esp", "fragments", "imix", "64", "512", "1500", "1000-macs"] {
            assert!(names.iter().any(|name| name.contains(property)), "{property}");
        }
        assert!(ALL.iter().all(|phase| phase.packets().iter().sum::<usize>() == BULK + BACK));
    }

    #[test]
    fn a_seed_tells_the_orders() {
        let phases: Vec<usize> = (0..ALL.len()).collect();
        let found = orders(1, 30, &phases);
        assert_eq!(found, orders(1, 30, &phases));
        assert_ne!(found, orders(2, 30, &phases));
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), 30, "no order comes twice");
        for mut order in found {
            order.sort_unstable();
            assert_eq!(order, phases);
        }
    }

    #[test]
    fn a_mix_has_its_shares_in_random_order() {
        let lengths = Size::Imix.lengths(1_200);
        let count = |length| lengths.iter().filter(|&&other| other == length).count();
        assert_eq!([60, 590, 1_514].map(count), [700, 400, 100]);
        assert_ne!(lengths[..12], lengths[12..24]);
        assert_eq!(Size::Fixed(64).lengths(3), [64; 3]);
    }
}

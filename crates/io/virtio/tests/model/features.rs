//! Sets of features.

use bellows_virtio::Features;

/// The options in which rings differ.
pub const RING_OPTIONS: [Features; 7] = [
    Features::RING_PACKED,
    Features::MRG_RXBUF,
    Features::IN_ORDER,
    Features::EVENT_IDX,
    Features::INDIRECT_DESC,
    Features::ANY_LAYOUT,
    Features::VERSION_1,
];

/// Offloads of both directions.
pub const OFFLOADS: [Features; 6] = [
    Features::CSUM,
    Features::HOST_TSO4,
    Features::HOST_TSO6,
    Features::GUEST_CSUM,
    Features::GUEST_TSO4,
    Features::GUEST_TSO6,
];

/// All sets of some options, whether they may be negotiated or not.
pub fn subsets(options: &[Features]) -> impl Iterator<Item = Features> {
    (0..1_u32 << options.len()).map(|bits| {
        let chosen = options.iter().enumerate().filter(|(number, _)| bits & (1 << number) != 0);
        chosen.fold(Features::NONE, |set, (_, option)| set | *option)
    })
}

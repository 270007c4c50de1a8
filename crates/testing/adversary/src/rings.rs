//! A driver's memory and its writes there, from bytes.

use bellows_virtio::Features;
use bellows_virtio::ring::Areas;

/// The memory has two regions of this length, side by side from [`START`] on; rings are in the first one.
pub const REGION: usize = 8192;
/// See [`REGION`].
pub const START: u64 = 0x1_0000;

/// Bytes of the input that are the initial contents of the memory.
const IMAGE: usize = 2048;

/// One ring, and the writes of its driver. The bytes: one each for the options, the size and the position, then the
/// initial contents of the memory (rings, tables, a few buffers), and then the writes between the device's calls: an
/// offset, a length, and bytes.
pub struct RingInput<'a> {
    /// The negotiated features.
    pub features: Features,
    /// Whether it is a receive queue.
    pub receives: bool,
    /// Number of descriptors.
    pub size: u16,
    /// Its areas.
    pub areas: Areas,
    /// Its position at the start, as a base of vhost-user.
    pub base: u32,
    /// The initial contents of the memory; the rest is zeros.
    pub image: &'a [u8],
    rest: &'a [u8],
}

impl<'a> RingInput<'a> {
    /// Parses an input; `None` if it has fewer than three bytes.
    pub fn parse(data: &'a [u8]) -> Option<RingInput<'a>> {
        let [options, size, position, rest @ ..] = data else { return None };
        let features = features(*options);
        let packed = features.has(Features::RING_PACKED);
        let size = if packed { u16::from(size % 40) + 1 } else { 1 << (size % 6) };
        let base = match packed {
            true => (u32::from(*position) % u32::from(size)) | (u32::from(position & 0x80) << 8),
            false => u32::from(*position) << 8,
        };
        let areas = Areas { descriptors: START, driver: START + 768, device: START + 896 };
        let (image, rest) = rest.split_at(rest.len().min(IMAGE));
        Some(RingInput { features, receives: options & 0x80 != 0, size, areas, base, image, rest })
    }

    /// The writes in order: where and what. Parts may be outside the memory.
    pub fn steps(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let mut rest = self.rest;
        std::iter::from_fn(move || {
            let [low, high, length, behind @ ..] = rest else { return None };
            let (bytes, behind) = behind.split_at(usize::from(*length % 32).min(behind.len()));
            rest = behind;
            Some((usize::from(u16::from_le_bytes([*low, *high])) % (2 * REGION), bytes))
        })
    }
}

/// Options by bits: those of the ring, and offloads.
fn features(bits: u8) -> Features {
    let options = [
        Features::RING_PACKED,
        Features::MRG_RXBUF,
        Features::IN_ORDER,
        Features::EVENT_IDX,
        Features::INDIRECT_DESC,
        Features::VERSION_1,
        Features::CSUM | Features::GUEST_CSUM | Features::HOST_TSO4 | Features::GUEST_TSO4,
    ];
    let chosen = options.iter().enumerate().filter(|(number, _)| bits & (1 << number) != 0);
    chosen.fold(Features::NONE, |set, (_, option)| set | *option).coherent()
}

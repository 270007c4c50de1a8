//! Bytes as a driver's memory, and what it does there.

use bellows_virtio::Features;
use bellows_virtio::ring::Areas;

/// The memory is two regions of so many bytes, side by side from this address on; rings lie in the first one.
pub const REGION: usize = 8192;
/// See [`REGION`].
pub const START: u64 = 0x1_0000;

/// How much of the input is the memory's beginning.
const IMAGE: usize = 2048;

/// One ring, and what its driver does. The bytes: one each for the options, the size and the position, then the memory's
/// beginning (rings, tables, a few buffers) as it is, and then what is written there between the device's calls: an offset,
/// a length, and bytes.
pub struct RingInput<'a> {
    /// What was negotiated.
    pub features: Features,
    /// Whether it is a receive queue's.
    pub receives: bool,
    /// Descriptors.
    pub size: u16,
    /// Where it lies.
    pub areas: Areas,
    /// Where it begins, as vhost-user says it.
    pub base: u32,
    /// The memory's beginning; the rest is zeros.
    pub image: &'a [u8],
    rest: &'a [u8],
}

impl<'a> RingInput<'a> {
    /// That of some bytes; `None` of fewer than three.
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

    /// What is written where, one after the other. Parts may lie behind the memory.
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

//! The layout of a ring: slots in blocks.

/// Cache lines, of which a slot has an odd number, to spread slots over the cache sets.
pub(super) const LINE: usize = 64;

/// Where a frame begins in its slot, at most: the slot's header, padding to 16 bytes and the virtio-net header
/// (`tpacket_rcv` in `net/packet/af_packet.c`: 52 bytes and 16, aligned to 16, and 10).
pub(super) const FRAME_OFFSET: usize = 96;

/// Bytes of a block, which the kernel allocates as a unit: large enough to waste little at its end.
const BLOCK: usize = 256 << 10;

/// The place of a slot in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotPosition {
    pub(super) block: usize,
    pub(super) slot: usize,
}

/// How slots are laid out in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotLayout {
    pub(super) slot_length: usize,
    pub(super) block_length: usize,
    pub(super) slots_per_block: usize,
    pub(super) blocks: usize,
}

impl SlotLayout {
    /// A layout with at least `slots` slots for frames of this length. `None` if it is too large.
    pub(super) fn new(slots: usize, frame_length: usize) -> Option<SlotLayout> {
        let lines = frame_length.checked_add(FRAME_OFFSET)?.div_ceil(LINE) | 1;
        let slot_length = lines.checked_mul(LINE)?;
        let page = bellows_sys::code::page_size();
        let block_length = slot_length.max(BLOCK).checked_next_multiple_of(page)?;
        let slots_per_block = block_length / slot_length;
        let blocks = slots.max(1).div_ceil(slots_per_block);
        let layout = SlotLayout { slot_length, block_length, slots_per_block, blocks };
        let length = block_length.checked_mul(blocks)?;
        (i32::try_from(length).is_ok() && i32::try_from(layout.slots()).is_ok()).then_some(layout)
    }

    pub(super) fn slots(&self) -> usize {
        self.blocks * self.slots_per_block
    }

    pub(super) fn length(&self) -> usize {
        self.blocks * self.block_length
    }

    /// The offset of a slot in the ring: always less than [`SlotLayout::length`] by at least a slot.
    #[inline(always)]
    pub(super) fn offset(&self, position: SlotPosition) -> usize {
        position.block * self.block_length + position.slot * self.slot_length
    }

    /// The slot after another one.
    #[inline(always)]
    pub(super) fn next(&self, position: SlotPosition) -> SlotPosition {
        if position.slot + 1 < self.slots_per_block {
            return SlotPosition { slot: position.slot + 1, ..position };
        }
        SlotPosition { block: if position.block + 1 < self.blocks { position.block + 1 } else { 0 }, slot: 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Slots do not overlap, lie in the ring, and are all met on a way around it.
        #[test]
        fn slots_follow_one_another_around_the_ring(slots in 1usize..3000, frame_length in 1usize..100_000) {
            let layout = SlotLayout::new(slots, frame_length).unwrap();
            prop_assert!(layout.slots() >= slots && layout.slots() < slots + layout.slots_per_block);
            prop_assert!(layout.slot_length >= frame_length + FRAME_OFFSET && layout.slot_length.is_multiple_of(LINE));
            let (mut position, mut end) = (SlotPosition::default(), 0);
            for _ in 0..layout.slots() {
                let offset = layout.offset(position);
                prop_assert!(offset >= end);
                end = offset + layout.slot_length;
                let (block, last) = (offset / layout.block_length, (end - 1) / layout.block_length);
                prop_assert_eq!(block, last, "in one block");
                position = layout.next(position);
            }
            prop_assert!(end <= layout.length());
            prop_assert_eq!(position, SlotPosition::default());
        }
    }
}

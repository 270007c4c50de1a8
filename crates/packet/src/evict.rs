//! Putting packets out of the processor's caches, for measurements.

use bellows_sys::cache;

use bellows_pool::DATA_OFFSET;

use crate::packet::{LARGE, Packet, pointer};

/// Puts packets out of every cache, into memory: their data, and what lies before it in their buffers. Their handles stay
/// where they are. Returns when it is done.
///
/// False, and nothing has been done, on a processor that has no instruction for it.
pub fn evict(packets: &[Packet]) -> bool {
    cache::evict(packets.iter().map(occupied))
}

/// The packet's buffer from its start to the end of the data.
fn occupied(packet: &Packet) -> &[u8] {
    let start = bellows_pool::start_of(packet.address(), packet.word() & LARGE != 0) - DATA_OFFSET;
    let length = packet.address() + packet.len() - start;
    // SAFETY: the buffer belongs to this packet alone, which is borrowed, and the data ends within it. The pool's memory
    // is always initialised (mapped zeroed).
    unsafe { std::slice::from_raw_parts(pointer(start).as_ptr(), length) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DATA_ROOM, HEADROOM, LARGE_DATA_ROOM, Meta};
    use proptest::prelude::*;

    proptest! {
        /// Whatever was done to a packet: what is evicted begins with its buffer and ends with its data, and all that it
        /// holds stays.
        #[test]
        fn a_packet_is_evicted_from_its_buffers_start_to_its_end(
            length in prop_oneof![0..=DATA_ROOM, 0..=LARGE_DATA_ROOM],
            front in 0usize..200,
            prepended in 0..=HEADROOM,
        ) {
            let mut packet = Packet::from_bytes(&vec![7; length]).unwrap();
            packet.set_meta(Meta { timestamp: 5, ..Meta::default() });
            packet.trim_front(front);
            packet.prepend(prepended);
            let before = packet.bytes().to_vec();
            let range = occupied(&packet).as_ptr_range();
            prop_assert_eq!(range.end, packet.bytes().as_ptr_range().end);
            prop_assert_eq!(packet.bytes().as_ptr().addr() - range.start.addr(), packet.headroom() + crate::LINE);
            prop_assert_eq!(evict(std::slice::from_ref(&packet)), cfg!(target_arch = "x86_64"));
            prop_assert_eq!(packet.bytes(), before);
            prop_assert_eq!(packet.meta().map(|meta| meta.timestamp), Some(5));
        }
    }
}

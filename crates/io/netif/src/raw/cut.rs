//! GSO packets that are segmented when they arrive.

use bellows_packet::{Offload, Packet, Vector};
use bellows_wire::offload::{Checksums, GsoKind, GsoPacket};

use crate::QueueCounts;

/// A GSO packet that is being cut into segments.
pub(super) struct Cut {
    whole: Packet,
    kind: GsoKind,
    segment_size: u16,
    /// Index of the next segment.
    next: usize,
}

impl Cut {
    /// Takes a packet whose offload was [admitted](bellows_ports::offload::admit). `None` if it is no GSO packet.
    pub(super) fn new(whole: Packet, offload: Offload) -> Option<Cut> {
        let kind = match offload.gso_type & !Offload::GSO_ECN {
            Offload::GSO_TCP4 => GsoKind::Tcp4,
            Offload::GSO_TCP6 => GsoKind::Tcp6,
            _ => return None,
        };
        Some(Cut { whole, kind, segment_size: offload.segment_size, next: 0 })
    }

    /// Adds segments with whole checksums until there are `most` packets. True if the packet is completely cut.
    pub(super) fn go_on(&mut self, packets: &mut Vector, most: usize, counts: &mut QueueCounts) -> bool {
        // It was admitted as a GSO packet, and has not changed.
        let Ok(whole) = GsoPacket::new(self.whole.bytes(), self.kind, self.segment_size) else { return true };
        for segment in whole.segments(Checksums::Whole).skip(self.next) {
            if packets.len() >= most {
                return false;
            }
            self.next += 1;
            let Some(mut made) = Packet::with_room(segment.len()) else {
                counts.rx_no_buffer += 1;
                continue;
            };
            segment.write(made.extend(segment.len()));
            // There is room: `most` is no more.
            let _ = packets.push(made);
        }
        true
    }
}

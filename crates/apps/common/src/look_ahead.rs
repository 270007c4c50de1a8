//! Prefetches in loops over the packets of a vector.

use bellows_packet::Packet;

/// Packets that are prefetched together.
pub const STEP: usize = 16;

/// The look-ahead of a loop over packets: prefetches of those that are this number of packets further on.
#[derive(Clone, Copy, Debug)]
pub struct LookAhead<'p> {
    packets: &'p [Packet],
    distance: usize,
}

impl<'p> LookAhead<'p> {
    /// The look-ahead in these packets; none if the distance is 0. Prefetches the first packets. Hot.
    #[inline(always)]
    pub fn begin(packets: &'p [Packet], distance: usize, prefetch: impl Fn(&Packet)) -> LookAhead<'p> {
        packets.iter().take(distance).for_each(prefetch);
        LookAhead { packets, distance }
    }

    /// Prefetches, before packets in a step are read. Hot.
    #[inline(always)]
    pub fn step(&mut self, prefetch: impl Fn(&Packet)) {
        if self.distance > 0 {
            let next = self.packets.get(self.distance..).unwrap_or_default();
            match next.first_chunk::<STEP>() {
                Some(next) => next.iter().for_each(prefetch),
                None => next.iter().for_each(prefetch),
            }
            self.packets = self.packets.get(STEP..).unwrap_or_default();
        }
    }
}

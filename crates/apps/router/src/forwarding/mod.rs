//! The hot loops of a router's apps. Each goes over the packets of a vector, does what is usual, and numbers the packets
//! by their outputs; unusual ones get the number [`UNUSUAL`], and the app looks at them one by one.
//!
//! | module | loop |
//! |---|---|
//! | `sort` | frames of an interface by their protocols |
//! | `check4`, `check6` | headers |
//! | `columns` | the headers of a batch, for checks |
//! | `look` | destinations before a look-up, and adjacencies after it |
//! | `repeated` | look-ups of vectors with many packets for the router itself |
//! | `rewrite` | hops and link-layer headers |
//! | `mixed` | the same in vectors with packets that are not usual |
//! | `redirect` | packets that leave by the interface that received them: not hot |
//! | `resolver` | neighbours, and packets that wait for them: not hot |
//! | `conflicts` | stations that claim an address of the router: not hot |
//! | `family`, `header` | what differs between IPv4 and IPv6; fields of headers |

pub(crate) mod check4;
pub(crate) mod check6;
pub(crate) mod columns;
pub(crate) mod conflicts;
pub(crate) mod family;
pub(crate) mod header;
pub(crate) mod look;
#[cfg(test)]
mod loop_tests;
pub(crate) mod mixed;
pub(crate) mod redirect;
pub(crate) mod repeated;
pub(crate) mod resolver;
pub(crate) mod rewrite;
pub(crate) mod sort;
#[cfg(test)]
mod tests;

use bellows_packet::Packet;

pub(crate) use header::ETHERNET;

pub(crate) use bellows_common::lanes::UNUSUAL;

/// Writes a link-layer header in place of an Ethernet header without tags. False if there is no room for it.
pub(crate) fn set_header(packet: &mut Packet, header: &[u8]) -> bool {
    let more = header.len().saturating_sub(ETHERNET);
    if packet.headroom() < more || packet.len() < ETHERNET {
        return false;
    }
    let frame = if more > 0 { packet.prepend(more) } else { packet.bytes_mut() };
    frame[..header.len()].copy_from_slice(header);
    true
}

/// The number of a packet that goes the usual way: to the first output.
pub(crate) const USUAL: u16 = 0;

/// Packets whose headers are handled together.
pub(crate) const BATCH: usize = 128;

/// Vectors of so many packets are checked packet by packet.
const FEW: usize = 8;

/// Packets that are prefetched together.
const STEP: usize = 16;

/// The look-ahead of a loop over packets: prefetches of those that are this number of packets further on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LookAhead<'p> {
    packets: &'p [Packet],
    distance: usize,
}

impl<'p> LookAhead<'p> {
    /// The look-ahead in these packets; none if the distance is 0. Prefetches the first packets. Hot.
    #[inline(always)]
    pub(crate) fn begin(packets: &'p [Packet], distance: usize, prefetch: impl Fn(&Packet)) -> LookAhead<'p> {
        packets.iter().take(distance).for_each(prefetch);
        LookAhead { packets, distance }
    }

    /// Prefetches, before packets in a step are read. Hot.
    #[inline(always)]
    pub(crate) fn step(&mut self, prefetch: impl Fn(&Packet)) {
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

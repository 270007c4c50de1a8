//! Fragments of packets, for apps whose own packets, or those of others, are too long.
//!
//! | file | contents |
//! |---|---|
//! | `v4.rs`, `v6.rs` | the fragments of a family |

mod v4;
mod v6;

use std::ops::Range;

use bellows_packet::{Burst, CAPACITY, Packet, Vector};
use bellows_sys::cache;

use self::v6::Identifications;
use crate::ip_frame::{IpFrame, Version};
use crate::segmentation::NoBuffer;

/// Why a packet is not fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFragmented {
    /// It is not too long.
    Fits,
    /// It must not be fragmented.
    DontFragment,
    /// Its headers are not right, or its offset is beyond the longest packet.
    Malformed,
    /// Its IPv4 header has a wrong checksum.
    BadChecksum,
}

/// How a packet becomes fragments.
#[derive(Clone, Copy)]
pub struct Fragmentation {
    version: Version,
    /// Where the IP header, the data of the first fragment, and what is behind the packet begin in the frame.
    at: u32,
    data: u32,
    end: u32,
    /// Bytes of data in the first fragment, and in each of the others but the last.
    first: u32,
    others: u32,
}

impl Fragmentation {
    /// The plan for the IP packet of a frame, by a node that is its source or not.
    ///
    /// # Errors
    /// Why it is not fragmented.
    #[inline]
    pub fn of(frame: &[u8], ip: IpFrame, mtu: u16, is_source: bool) -> Result<Fragmentation, NotFragmented> {
        match ip.version {
            Version::V4 => v4::plan(frame, ip.at, mtu.into()),
            Version::V6 => v6::plan(frame, ip.at, mtu.into(), is_source),
        }
    }

    /// Where the IP packet ends in the frame.
    #[inline]
    pub fn end(&self) -> usize {
        self.end as usize
    }

    /// The number of fragments.
    #[inline]
    pub fn count(&self) -> usize {
        let data = self.end - self.data;
        // Most packets become two: a division takes as long as the rest.
        match data <= self.first + self.others {
            true => 1 + usize::from(data > self.first),
            false => 1 + (data - self.first).div_ceil(self.others) as usize,
        }
    }

    /// Where the IP header, the data and its end are.
    fn places(&self) -> (usize, Range<usize>) {
        (self.at as usize, self.data as usize..self.end as usize)
    }

    /// The parts of the data in the fragments behind the first, in order. Hot.
    #[inline(always)]
    fn later_parts(&self) -> impl Iterator<Item = Range<usize>> {
        let (length, others) = ((self.end - self.data) as usize, self.others as usize);
        let mut end = self.first as usize;
        // Without the division that `step_by` has.
        std::iter::from_fn(move || {
            let start = end;
            end = length.min(start + others);
            (start < length).then_some(start..end)
        })
    }

    /// Prefetches the beginning of the data that will be copied. Hot.
    #[inline(always)]
    pub fn prefetch(&self, frame: &[u8]) {
        let start = frame.as_ptr().wrapping_add((self.data + self.first) as usize);
        cache::lines(start, PREFETCHED).for_each(cache::prefetch);
    }
}

/// Bytes of each packet's data that are prefetched: the processor finds out itself that there are more.
const PREFETCHED: usize = 4 * cache::LINE;

/// Makes fragments of packets.
pub struct Fragmenter {
    identifications: Identifications,
}

/// Why a packet is not fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfragmented {
    /// It must not be, or would become too many fragments.
    Whole,
    /// There are no buffers for the fragments.
    NoBuffer,
}

impl Default for Fragmenter {
    fn default() -> Fragmenter {
        Fragmenter::new()
    }
}

impl Fragmenter {
    /// One with identifications of its own.
    pub fn new() -> Fragmenter {
        Fragmenter { identifications: Identifications::new() }
    }

    /// Makes a packet behind an Ethernet header, of which this node is the source, the first of its fragments, and adds the
    /// others to `others`, which is empty. One that fits stays as it is.
    ///
    /// # Errors
    /// If it is not fragmented. It is unchanged then.
    pub fn fragment(&mut self, packet: &mut Packet, mtu: u16, others: &mut Vector) -> Result<(), Unfragmented> {
        let ip = IpFrame::find(packet.bytes()).ok_or(Unfragmented::Whole)?;
        match Fragmentation::of(packet.bytes(), ip, mtu, true) {
            Ok(plan) if plan.count() <= CAPACITY => {
                let mut buffers = Packet::allocate_burst(plan.count() - 1);
                self.carry_out(packet, &plan, &mut buffers, others).map_err(|NoBuffer| Unfragmented::NoBuffer)
            }
            Err(NotFragmented::Fits) => Ok(()),
            Ok(_) | Err(NotFragmented::DontFragment | NotFragmented::Malformed | NotFragmented::BadChecksum) => {
                Err(Unfragmented::Whole)
            }
        }
    }

    /// Makes a packet the first of its fragments, and adds the others to `others`, which is empty, in buffers that were
    /// taken together.
    ///
    /// # Errors
    /// There are no buffers. The packet is unchanged then.
    pub fn carry_out(
        &mut self,
        packet: &mut Packet,
        plan: &Fragmentation,
        buffers: &mut Burst,
        others: &mut Vector,
    ) -> Result<(), NoBuffer> {
        let result = match plan.version {
            Version::V4 => v4::split(packet, plan, buffers, others),
            Version::V6 => v6::split(packet, plan, &mut self.identifications, (buffers, others)),
        };
        // Nobody has seen them.
        result.inspect_err(|_| others.drain(usize::MAX).for_each(drop))
    }
}

/// Copies the front of a packet to that of a fragment. What is behind it may change, too, because copies whose length the
/// compiler knows are short. Hot.
#[inline(always)]
fn copy_front(packet: &[u8], length: usize, fragment: &mut [u8]) {
    const SHORT: usize = 64;
    match (packet.first_chunk::<SHORT>(), fragment.first_chunk_mut::<SHORT>()) {
        (Some(from), Some(to)) if length <= SHORT => *to = *from,
        _ => fragment[..length].copy_from_slice(&packet[..length]),
    }
}

//! Fragments of IPv6 packets, which only their source makes (RFC 8200, section 4.5).

use bellows_packet::{Burst, Packet, Vector};
use bellows_sys::keyed_hash::{KeyWords, KeyedHash};
use bellows_wire::IpProtocol;
use bellows_wire::ipv6::{Ipv6Packet, field};

use super::{Fragmentation, NotFragmented};
use crate::ip_frame::Version;
use crate::segmentation::{NoBuffer, copy_metadata, next_packet};

/// Bytes of a fragment header.
const HEADER: usize = 8;

/// The number of counters of identifications.
const COUNTERS: usize = 256;

/// The identifications of datagrams: strangers cannot predict them, and those between two addresses repeat only after
/// all others (RFC 7739, section 5.3).
pub(super) struct Identifications {
    hash: KeyedHash,
    counters: [u32; COUNTERS],
}

impl Identifications {
    pub(super) fn new() -> Identifications {
        Identifications { hash: KeyedHash::new(), counters: [0; COUNTERS] }
    }

    /// The next one for the addresses of a header.
    fn next(&mut self, addresses: &[u8; 32]) -> u32 {
        let (words, _) = addresses.as_chunks::<8>();
        let mut key = [0; 5];
        key.iter_mut().zip(words).for_each(|(to, word)| *to = u64::from_be_bytes(*word));
        let hash = self.hash.hash(KeyWords::Five(&key));
        let counter = &mut self.counters[(hash >> 32) as usize % COUNTERS];
        *counter = counter.wrapping_add(1);
        (hash as u32).wrapping_add(*counter)
    }
}

/// Where the parts of a packet are that only the source or all nodes read.
struct Chain {
    /// The byte that names the header behind the per-fragment headers.
    next_at: usize,
    /// The end of the per-fragment headers.
    end: usize,
}

/// Finds the per-fragment headers: those up to a routing header, else up to hop-by-hop options. `None` if the packet is
/// a fragment, or its headers are malformed.
fn chain(ip: &[u8]) -> Option<Chain> {
    let mut found = Chain { next_at: field::NEXT_HEADER.start, end: field::HEADER_LEN };
    let (mut next_at, mut end) = (found.next_at, found.end);
    loop {
        let kind = IpProtocol(*ip.get(next_at)?);
        match kind {
            IpProtocol::IPV6_FRAGMENT => return None,
            IpProtocol::IPV6_HOP_BY_HOP | IpProtocol::IPV6_DESTINATION | IpProtocol::IPV6_ROUTE => {}
            _ => return Some(found),
        }
        next_at = end;
        end += 8 + 8 * usize::from(*ip.get(end + 1)?);
        if end > ip.len() {
            return None;
        }
        if kind != IpProtocol::IPV6_DESTINATION {
            found = Chain { next_at, end };
        }
    }
}

/// How a packet whose IPv6 header is at a place of the frame becomes fragments of at most `mtu` bytes, if this node is
/// its source.
///
/// # Errors
/// Why it does not.
pub(super) fn plan(frame: &[u8], at: usize, mtu: usize, is_source: bool) -> Result<Fragmentation, NotFragmented> {
    let ip = &frame[at..];
    let view = Ipv6Packet::new_checked(ip).map_err(|_| NotFragmented::Malformed)?;
    let total = field::HEADER_LEN + view.payload().len();
    if total <= mtu {
        return Err(NotFragmented::Fits);
    }
    if !is_source {
        return Err(NotFragmented::DontFragment);
    }
    let Some(chain) = chain(&ip[..total]) else { return Err(NotFragmented::DontFragment) };
    let chunk = mtu.saturating_sub(chain.end + HEADER) & !7;
    if chunk == 0 {
        return Err(NotFragmented::Malformed);
    }
    let [at, data, end, chunk] = [at, at + chain.end, at + total, chunk].map(|place| place as u32);
    Ok(Fragmentation { version: Version::V6, at, data, end, first: chunk, others: chunk })
}

/// Adds the fragments behind the first to `others`, and makes the packet the first one.
///
/// # Errors
/// If the pool is empty, or the packet has no headroom for the fragment header. The packet is unchanged then.
pub(super) fn split(
    packet: &mut Packet,
    plan: &Fragmentation,
    identifications: &mut Identifications,
    (buffers, others): (&mut Burst, &mut Vector),
) -> Result<(), NoBuffer> {
    if packet.headroom() < HEADER {
        return Err(NoBuffer);
    }
    let frame = packet.bytes();
    let (at, data) = plan.places();
    let ip = &frame[at..data.end];
    let (Some(chain), Some(addresses)) = (chain(ip), ip.get(field::SRC.start..).and_then(<[u8]>::first_chunk)) else {
        return Ok(());
    };
    let (next_header, identification) = (ip[chain.next_at], identifications.next(addresses));
    let front = data.start;
    let header = |offset: usize, more: bool| {
        let position = (offset as u16 | u16::from(more)).to_be_bytes();
        let [a, b, c, d] = identification.to_be_bytes();
        [next_header, 0, position[0], position[1], a, b, c, d]
    };
    for part in plan.later_parts() {
        let mut fragment = next_packet(buffers, front + HEADER + part.len())?;
        fragment.append(&frame[..front]);
        fragment.append(&header(part.start, part.end < data.len()));
        fragment.append(&frame[front + part.start..front + part.end]);
        finish_header(&mut fragment.bytes_mut()[at..], chain.next_at);
        copy_metadata(packet, &mut fragment);
        others.push(fragment).map_err(|_| NoBuffer)?;
    }
    packet.truncate(front + plan.first as usize);
    packet.clear_offload();
    let frame = packet.prepend(HEADER);
    frame.copy_within(HEADER..HEADER + front, 0);
    frame[front..front + HEADER].copy_from_slice(&header(0, true));
    finish_header(&mut frame[at..], chain.next_at);
    Ok(())
}

/// Writes the length, and that a fragment header follows.
fn finish_header(ip: &mut [u8], next_at: usize) {
    let length = (ip.len() - field::HEADER_LEN) as u16;
    ip[field::PAYLOAD_LEN].copy_from_slice(&length.to_be_bytes());
    ip[next_at] = IpProtocol::IPV6_FRAGMENT.0;
}

//! What the nodes of a router have in common. A node goes over the packets of a vector in a loop, does what is usual, and
//! numbers the packets by their outputs; unusual ones get the number [`UNUSUAL`], and the node looks at them one by one.
//!
//! Each node is one file, which holds all versions of its decision: about a batch of packets at a time, about single ones
//! where there are few, and with care about the unusual ones. Property tests (`loop_tests.rs`, `tests.rs`) hold them together.
//!
//! Here are the [families](Family), the fields of headers, and the [columns](Columns) of a batch.
//! `resolver` has neighbours and the packets that wait for them, `conflicts` stations that claim an address of the router;
//! they are not hot.

pub(crate) mod conflicts;
#[cfg(test)]
mod loop_tests;
pub(crate) mod resolver;
#[cfg(test)]
pub(crate) mod tests;

use std::net::Ipv6Addr;

use bellows_packet::{Packet, Start};
use bellows_shared::Breath;
use bellows_vrf::{Reason, Vrf};
use bellows_wire::EtherType;

pub(crate) use bellows_common::headers::ETHERNET;
pub(crate) use bellows_common::look_ahead::{LookAhead, STEP};
pub(crate) use bellows_common::nexts::UNUSUAL;

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

/// [`USUAL`] for a packet whose header is right.
#[inline(always)]
pub(crate) fn usual_if(is_right: bool) -> u16 {
    if is_right { USUAL } else { UNUSUAL }
}

/// Packets whose headers are handled together.
pub(crate) const BATCH: usize = 128;

/// Vectors of up to this number of packets are checked packet by packet.
pub(crate) const FEW: usize = 8;

/// Eight bytes, the first one in the lowest bits; 0 if they are not in the header. Hot.
#[inline(always)]
pub(crate) fn load_u64<const N: usize>(header: &[u8; N], at: usize) -> u64 {
    header.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// Four bytes, as [`load_u64`]. Hot.
#[inline(always)]
pub(crate) fn load_u32<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    header.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Four words of four bytes, as [`load_u32`]. Hot.
#[inline(always)]
pub(crate) fn load_words<const N: usize>(header: &[u8; N], at: usize) -> [u32; 4] {
    let bytes = header.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; 16]);
    std::array::from_fn(|word| load_u32(&bytes, 4 * word))
}

/// Stores a word, unless it does not fit into the header. Hot.
#[inline(always)]
pub(crate) fn store<const N: usize, const W: usize>(header: &mut [u8; N], at: usize, word: [u8; W]) {
    if let Some(bytes) = header.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *bytes = word;
    }
}

/// EtherTypes as they are loaded.
pub(crate) const TYPE_IP4: u32 = loaded(EtherType::IPV4);
/// See [`TYPE_IP4`].
pub(crate) const TYPE_IP6: u32 = loaded(EtherType::IPV6);
/// See [`TYPE_IP4`].
pub(crate) const TYPE_ARP: u32 = loaded(EtherType::ARP);

/// The two bytes of an EtherType, the first one in the lowest bits.
pub(crate) const fn loaded(kind: EtherType) -> u32 {
    u16::from_le_bytes(kind.0.to_be_bytes()) as u32
}

/// Packets whose headers are checked at once: a part of a batch.
const BLOCK: usize = 32;

/// The headers of up to [`BATCH`] packets. Those behind the last packet are old ones.
pub struct Columns {
    /// Four words of each.
    pub(crate) rows: [[u32; 4]; BATCH],
    /// Another word of each.
    pub(crate) words: [u32; BATCH],
    /// Bytes of the frame.
    pub(crate) lengths: [u32; BATCH],
}

impl Columns {
    /// Room for headers, which loops use again and again: to clear it for each vector takes a tenth of a check's time.
    pub(crate) fn new() -> Box<Columns> {
        Box::new(Columns { rows: [[0; 4]; BATCH], words: [0; BATCH], lengths: [0; BATCH] })
    }

    /// Numbers the packets of a batch by what `number` says of their headers. Blocks are checked whole, so that no part of
    /// the loop is left over. `behind` is the bytes behind a packet that is right. Returns whether any packet may have some.
    /// Hot.
    #[inline(always)]
    pub(crate) fn number(
        &self,
        numbers: &mut [u16],
        number: impl Fn([u32; 4], u32, u32) -> u16,
        behind: impl Fn([u32; 4], u32) -> u32,
    ) -> bool {
        let rows = self.rows.iter().zip(&self.lengths).take(numbers.len());
        let is_longer = rows.fold(0, |all, (row, length)| all | behind(*row, *length)) != 0;
        let blocks = self
            .rows
            .as_chunks::<BLOCK>()
            .0
            .iter()
            .zip(self.words.as_chunks::<BLOCK>().0)
            .zip(self.lengths.as_chunks::<BLOCK>().0);
        for (((rows, words), lengths), numbers) in blocks.zip(numbers.chunks_mut(BLOCK)) {
            // Not by `array::from_fn`, whose closure compilers may leave a function without the loop's instructions.
            let mut checked = [0; BLOCK];
            for (checked, ((&row, &word), &length)) in checked.iter_mut().zip(rows.iter().zip(words).zip(lengths)) {
                *checked = number(row, word, length);
            }
            match numbers.as_mut_array() {
                Some(numbers) => *numbers = checked,
                None => numbers.copy_from_slice(&checked[..numbers.len()]),
            }
        }
        is_longer
    }
}

/// A family of the Internet Protocol, whose header is behind an Ethernet header.
pub trait Family: Send + 'static {
    /// An address, the first byte in the highest bits.
    type Address: Copy + Default + Eq + Send + 'static;

    /// The names of the family's apps.
    const LOOKUP: &'static str;
    /// See [`Family::LOOKUP`].
    const REWRITE: &'static str;

    /// The headers that are read at once: Ethernet's, and IP's without options.
    type Headers: Headers;

    /// The words of a header that [`Family::decrement_ttl`] looks at.
    type TtlWords: Copy + Default + Send + 'static;

    /// These words. Hot.
    fn ttl_words(headers: &Self::Headers) -> Self::TtlWords;

    /// Whether [`Family::decrement_ttl`] is true for the header of these words, without a branch. Hot.
    fn ttl_ok(words: Self::TtlWords) -> bool;

    /// The words as [`Family::decrement_ttl`] makes them, if it is true. Hot.
    fn decremented(words: Self::TtlWords) -> Self::TtlWords;

    /// Writes decremented words. Hot.
    fn set_ttl_words(headers: &mut Self::Headers, words: Self::TtlWords);

    /// Takes a hop off the packet's time to live or hop limit. False, and nothing is changed, if none is left behind it,
    /// or if the source is one of few that may have to stay on their link. Hot.
    #[inline(always)]
    fn decrement_ttl(headers: &mut Self::Headers) -> bool {
        let words = Self::ttl_words(headers);
        let ttl_ok = Self::ttl_ok(words);
        if ttl_ok {
            Self::set_ttl_words(headers, Self::decremented(words));
        }
        ttl_ok
    }

    /// The destination.
    fn destination(headers: &Self::Headers) -> Self::Address;

    /// Looks up the adjacencies of destinations.
    fn look_up(vrf: &Vrf, breath: &impl Breath, destinations: &[Self::Address], adjacencies: &mut [u32]);

    /// Whether no hop is left behind this one, and the source may be told so.
    fn ttl_expired(headers: &Self::Headers) -> bool;

    /// Whether any packet may go a hop further. It may leave by the interface that received it, and so stay on its link.
    ///
    /// # Errors
    /// Why the packet must not be forwarded.
    fn check_ttl(headers: &Self::Headers, stays_on_link: bool) -> Result<(), Refusal>;

    /// Bytes of the packet without its Ethernet header, as its header says.
    fn length(headers: &Self::Headers) -> usize;

    /// Whether the packet may be fragmented here; `is_own` says whether this router is its source.
    fn may_fragment(headers: &Self::Headers, is_own: bool) -> bool;

    /// The error that senders get whose destination has an `unreachable` route, as from Linux.
    const UNREACHABLE: Reason;
}

/// The first bytes of a frame, in an array of the family's size.
pub trait Headers: Start {
    /// The headers at the start of a frame. `None` if it is too short.
    fn of(frame: &[u8]) -> Option<&Self>;
    /// See [`Headers::of`].
    fn of_mut(frame: &mut [u8]) -> Option<&mut Self>;
    /// Writes an Ethernet header in front of the IP header: bytes 0 to 8 and 6 to 14, in memory order. Hot.
    fn set_ethernet(&mut self, words: [u64; 2]);
}

impl<const N: usize> Headers for [u8; N] {
    #[inline(always)]
    fn of(frame: &[u8]) -> Option<&Self> {
        frame.first_chunk()
    }

    #[inline(always)]
    fn of_mut(frame: &mut [u8]) -> Option<&mut Self> {
        frame.first_chunk_mut()
    }

    #[inline(always)]
    fn set_ethernet(&mut self, [first, second]: [u64; 2]) {
        store(self, 0, first.to_ne_bytes());
        store(self, 6, second.to_ne_bytes());
    }
}

/// Why a packet must not be forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its time to live or hop limit runs out here.
    TimeExceeded,
    /// Its source is known on its own link alone, and it would leave that: its sender is told.
    BeyondScope,
    /// Its source is no station's, or known on its own link alone: nobody is told.
    SourceScope,
}

/// IPv4 (RFC 791).
pub struct V4;

/// Where the IPv4 header is.
const V4_AT: usize = ETHERNET;

impl Family for V4 {
    type Address = u32;
    type Headers = [u8; ETHERNET + 20];
    const LOOKUP: &'static str = "ip4-lookup";
    const REWRITE: &'static str = "ip4-rewrite";

    #[inline(always)]
    fn destination(headers: &Self::Headers) -> u32 {
        u32::from_be(load_u32(headers, V4_AT + 16).to_le())
    }

    #[inline]
    fn look_up(vrf: &Vrf, breath: &impl Breath, destinations: &[u32], adjacencies: &mut [u32]) {
        vrf.look_up_v4(breath, destinations, adjacencies);
    }

    /// Time to live, protocol, checksum.
    type TtlWords = u32;

    #[inline(always)]
    fn ttl_words(headers: &Self::Headers) -> u32 {
        V4::ttl_words_from(load_u32(headers, V4_AT + 8), load_u32(headers, V4_AT + 12))
    }

    #[inline(always)]
    fn ttl_ok(words: u32) -> bool {
        words & 0xff > 1
    }

    #[inline(always)]
    fn decremented(words: u32) -> u32 {
        // RFC 1141: the sum grows by what the header loses, in its first byte. It is never all ones, as in a new header.
        let carry = u32::from(words >= 0xfffe_0000) << 16;
        words.wrapping_sub(1).wrapping_add(1 << 16).wrapping_add(carry)
    }

    #[inline(always)]
    fn set_ttl_words(headers: &mut Self::Headers, words: u32) {
        store(headers, V4_AT + 8, words.to_le_bytes());
    }

    fn ttl_expired(headers: &Self::Headers) -> bool {
        headers[V4_AT + 8] <= 1 && headers[V4_AT + 12..V4_AT + 14] != [169, 254]
    }

    fn check_ttl(headers: &Self::Headers, _: bool) -> Result<(), Refusal> {
        // RFC 3927, section 2.7.
        if headers[V4_AT + 12..V4_AT + 14] == [169, 254] {
            return Err(Refusal::SourceScope);
        }
        if headers[V4_AT + 8] > 1 { Ok(()) } else { Err(Refusal::TimeExceeded) }
    }

    fn length(headers: &Self::Headers) -> usize {
        u16::from_be_bytes([headers[V4_AT + 2], headers[V4_AT + 3]]).into()
    }

    fn may_fragment(headers: &Self::Headers, _: bool) -> bool {
        headers[V4_AT + 6] & 0x40 == 0
    }

    const UNREACHABLE: Reason = Reason::HostUnreachable;
}

impl V4 {
    /// The words of [`Family::ttl_words`], given those of the header and the source. Hot.
    #[inline(always)]
    pub(crate) fn ttl_words_from(words: u32, source: u32) -> u32 {
        // RFC 3927, section 2.7: a packet from the link alone has no hop left.
        let is_link_local = source as u16 == u16::from_le_bytes([169, 254]);
        words & if is_link_local { !0xff } else { !0 }
    }
}

/// IPv6 (RFC 8200).
pub struct V6;

/// Where the IPv6 header is.
const V6_AT: usize = ETHERNET;

impl Family for V6 {
    type Address = u128;
    type Headers = [u8; ETHERNET + 40];
    const LOOKUP: &'static str = "ip6-lookup";
    const REWRITE: &'static str = "ip6-rewrite";

    #[inline(always)]
    fn destination(headers: &Self::Headers) -> u128 {
        let [high, low] = [24, 32].map(|at| u64::from_be(load_u64(headers, V6_AT + at).to_le()));
        u128::from(high) << 64 | u128::from(low)
    }

    #[inline]
    fn look_up(vrf: &Vrf, breath: &impl Breath, destinations: &[u128], adjacencies: &mut [u32]) {
        vrf.look_up_v6(breath, destinations, adjacencies);
    }

    /// Next header, hop limit, the start of the source.
    type TtlWords = u32;

    #[inline(always)]
    fn ttl_words(headers: &Self::Headers) -> u32 {
        load_u32(headers, V6_AT + 6)
    }

    #[inline(always)]
    fn ttl_ok(words: u32) -> bool {
        // All zeros: unspecified, loopback and their like; all ones in front: link-local and multicast.
        let source = (words.swap_bytes() & 0xffff).wrapping_sub(1);
        (words & 0xff00 > 0x100) & (source < 0xfe7f)
    }

    #[inline(always)]
    fn decremented(words: u32) -> u32 {
        words.wrapping_sub(0x100)
    }

    #[inline(always)]
    fn set_ttl_words(headers: &mut Self::Headers, words: u32) {
        store(headers, V6_AT + 6, words.to_le_bytes());
    }

    fn ttl_expired(headers: &Self::Headers) -> bool {
        // Global unicast addresses, and unique local ones (RFC 4291, section 2.4; RFC 4193, section 3.1).
        headers[V6_AT + 7] <= 1 && matches!(headers[V6_AT + 8], 0x20..=0x3f | 0xfc | 0xfd)
    }

    fn check_ttl(headers: &Self::Headers, stays_on_link: bool) -> Result<(), Refusal> {
        let source = Ipv6Addr::from_octets(std::array::from_fn(|at| headers[V6_AT + 8 + at]));
        // RFC 4291, sections 2.5.2, 2.5.3, 2.5.6 and 2.7; RFC 4007, section 9.
        if source.is_unspecified() || source.is_loopback() || source.is_multicast() {
            return Err(Refusal::SourceScope);
        }
        if source.is_unicast_link_local() && !stays_on_link {
            return Err(Refusal::BeyondScope);
        }
        if headers[V6_AT + 7] > 1 { Ok(()) } else { Err(Refusal::TimeExceeded) }
    }

    const UNREACHABLE: Reason = Reason::NoRoute;

    fn length(headers: &Self::Headers) -> usize {
        40 + usize::from(u16::from_be_bytes([headers[V6_AT + 4], headers[V6_AT + 5]]))
    }

    fn may_fragment(_: &Self::Headers, is_own: bool) -> bool {
        // RFC 8200, section 5.
        is_own
    }
}

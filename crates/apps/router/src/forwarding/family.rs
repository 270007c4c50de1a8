//! What differs between the IPv4 and IPv6 apps of a router.

use std::net::Ipv6Addr;

use bellows_packet::Start;
use bellows_shared::Breath;
use bellows_vrf::{Reason, Vrf};

use super::header::{ETHERNET, load_u32, load_u64, store};

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

    /// The words of a header that [`Family::age`] looks at.
    type Hops: Copy + Default + Send + 'static;

    /// These words. Hot.
    fn hops(headers: &Self::Headers) -> Self::Hops;

    /// Whether [`Family::age`] is true for the header of these words, without a branch. Hot.
    fn has_hops(hops: Self::Hops) -> bool;

    /// The words as [`Family::age`] makes them, if it is true. Hot.
    fn aged(hops: Self::Hops) -> Self::Hops;

    /// Writes aged words. Hot.
    fn set_hops(headers: &mut Self::Headers, hops: Self::Hops);

    /// Takes a hop off the packet's time to live or hop limit. False, and nothing is changed, if none is left behind it,
    /// or if the source is one of few that may have to stay on their link. Hot.
    #[inline(always)]
    fn age(headers: &mut Self::Headers) -> bool {
        let hops = Self::hops(headers);
        let has_hops = Self::has_hops(hops);
        if has_hops {
            Self::set_hops(headers, Self::aged(hops));
        }
        has_hops
    }

    /// The destination.
    fn destination(headers: &Self::Headers) -> Self::Address;

    /// Looks up the adjacencies of destinations.
    fn look_up(vrf: &Vrf, breath: &impl Breath, destinations: &[Self::Address], adjacencies: &mut [u32]);

    /// Whether no hop is left behind this one, and the source may be told so.
    fn has_run_out(headers: &Self::Headers) -> bool;

    /// Whether any packet may go a hop further. It may leave by the interface that received it, and so stay on its link.
    ///
    /// # Errors
    /// Why the packet must not be forwarded.
    fn check_hops(headers: &Self::Headers, stays_on_link: bool) -> Result<(), Refusal>;

    /// Bytes of the packet without its Ethernet header, as its header says.
    fn length(headers: &Self::Headers) -> usize;

    /// Whether the packet may be fragmented here; `is_own` tells whether this router is its source.
    fn may_fragment(headers: &Self::Headers, is_own: bool) -> bool;

    /// What senders are told whose destination has an `unreachable` route, as Linux tells them.
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
    type Hops = u32;

    #[inline(always)]
    fn hops(headers: &Self::Headers) -> u32 {
        // RFC 3927, section 2.7: a packet from the link alone has no hop left.
        let is_link_local = load_u32(headers, V4_AT + 12) as u16 == u16::from_le_bytes([169, 254]);
        load_u32(headers, V4_AT + 8) & if is_link_local { !0xff } else { !0 }
    }

    #[inline(always)]
    fn has_hops(hops: u32) -> bool {
        hops & 0xff > 1
    }

    #[inline(always)]
    fn aged(hops: u32) -> u32 {
        // RFC 1141: the sum grows by what the header loses, in its first byte. It is never all ones, as in a new header.
        let carry = u32::from(hops >= 0xfffe_0000) << 16;
        hops.wrapping_sub(1).wrapping_add(1 << 16).wrapping_add(carry)
    }

    #[inline(always)]
    fn set_hops(headers: &mut Self::Headers, hops: u32) {
        store(headers, V4_AT + 8, hops.to_le_bytes());
    }

    fn has_run_out(headers: &Self::Headers) -> bool {
        headers[V4_AT + 8] <= 1 && headers[V4_AT + 12..V4_AT + 14] != [169, 254]
    }

    fn check_hops(headers: &Self::Headers, _: bool) -> Result<(), Refusal> {
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
    type Hops = u32;

    #[inline(always)]
    fn hops(headers: &Self::Headers) -> u32 {
        load_u32(headers, V6_AT + 6)
    }

    #[inline(always)]
    fn has_hops(hops: u32) -> bool {
        // All zeros: unspecified, loopback and their like; all ones in front: link-local and multicast.
        let source = (hops.swap_bytes() & 0xffff).wrapping_sub(1);
        (hops & 0xff00 > 0x100) & (source < 0xfe7f)
    }

    #[inline(always)]
    fn aged(hops: u32) -> u32 {
        hops.wrapping_sub(0x100)
    }

    #[inline(always)]
    fn set_hops(headers: &mut Self::Headers, hops: u32) {
        store(headers, V6_AT + 6, hops.to_le_bytes());
    }

    fn has_run_out(headers: &Self::Headers) -> bool {
        // Global unicast addresses, and unique local ones (RFC 4291, section 2.4; RFC 4193, section 3.1).
        headers[V6_AT + 7] <= 1 && matches!(headers[V6_AT + 8], 0x20..=0x3f | 0xfc | 0xfd)
    }

    fn check_hops(headers: &Self::Headers, stays_on_link: bool) -> Result<(), Refusal> {
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

//! Clear IP packets: what a tunnel carries, and what transport mode protects a part of.

use bellows_common::headers::{ETHERNET, HEADERS_V6, ether_type, read};
use bellows_wire::{EtherType, IpProtocol};

/// Why a clear packet cannot be protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    TooShort,
    NotIp,
    Malformed,
    Fragment,
}

/// An IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Inner {
    pub(super) is_v6: bool,
    /// Bytes of the packet.
    pub(super) length: usize,
    pub(super) traffic_class: u8,
    /// Whether it must not be fragmented by routers.
    pub(super) dont_fragment: bool,
}

impl Inner {
    /// Reads the packet at the start of these bytes, which may be longer. Hot.
    #[inline(always)]
    pub(super) fn read(ip: &[u8]) -> Option<Inner> {
        let header = ip.first_chunk::<20>()?;
        let half = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let inner = match header[0] >> 4 {
            4 => {
                let (start, length) = (usize::from(header[0] & 15) * 4, half(2));
                let inner =
                    Inner { is_v6: false, length, traffic_class: header[1], dont_fragment: header[6] & 0x40 != 0 };
                Some(inner).filter(|_| start >= 20 && length >= start)
            }
            6 => {
                let traffic_class = header[0] << 4 | header[1] >> 4;
                Some(Inner { is_v6: true, length: 40 + half(4), traffic_class, dont_fragment: true })
            }
            _ => None,
        };
        inner.filter(|inner| inner.length <= ip.len())
    }

    /// Reads the packet behind an Ethernet header, whose EtherType must be right. Hot.
    #[inline(always)]
    pub(super) fn behind_ethernet(frame: &[u8]) -> Result<Inner, Unfit> {
        if frame.len() < ETHERNET {
            return Err(Unfit::TooShort);
        }
        let kind = ether_type(frame).ok_or(Unfit::NotIp)?;
        let inner = Inner::read(&frame[ETHERNET..]).ok_or(Unfit::Malformed)?;
        if inner.kind() == kind { Ok(inner) } else { Err(Unfit::Malformed) }
    }

    /// Its EtherType.
    pub(super) fn kind(&self) -> EtherType {
        if self.is_v6 { EtherType::IPV6 } else { EtherType::IPV4 }
    }

    /// Its number as the next header of ESP.
    pub(super) fn next_header(&self) -> u8 {
        if self.is_v6 { IpProtocol::IPV6.0 } else { IpProtocol::IPV4.0 }
    }

    /// Its source and destination.
    pub(super) fn addresses<'p>(&self, ip: &'p [u8]) -> [&'p [u8]; 2] {
        if self.is_v6 { [&ip[8..24], &ip[24..40]] } else { [&ip[12..16], &ip[16..20]] }
    }
}

/// Where transport mode puts ESP into a packet behind an Ethernet header: behind the options of IPv4, and behind those
/// extension headers of IPv6 that routers read (RFC 4303, section 3.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Where what is protected begins.
    pub(super) start: usize,
    /// Where the header before it says what follows.
    pub(super) next_header_at: usize,
}

impl Split {
    /// The place in the frame of a packet. Hot for packets without options and extension headers.
    #[inline(always)]
    pub(super) fn of(frame: &[u8], inner: &Inner) -> Result<Split, Unfit> {
        if inner.is_v6 {
            return Split::of_v6(&frame[..ETHERNET + inner.length]);
        }
        if read(frame, ETHERNET + 6) & 0x3fff != 0 {
            return Err(Unfit::Fragment);
        }
        Ok(Split { start: ETHERNET + usize::from(frame[ETHERNET] & 15) * 4, next_header_at: ETHERNET + 9 })
    }

    #[inline(always)]
    fn of_v6(frame: &[u8]) -> Result<Split, Unfit> {
        let mut split = Split { start: HEADERS_V6, next_header_at: ETHERNET + 6 };
        while is_for_routers(frame, &split)? {
            split = split.behind(frame).ok_or(Unfit::Malformed)?;
        }
        Ok(split)
    }

    /// The place behind all extension headers of IPv6 up to a protocol at `start`.
    pub(super) fn before(frame: &[u8], start: usize) -> Option<Split> {
        let mut split = Split { start: HEADERS_V6, next_header_at: ETHERNET + 6 };
        while split.start < start {
            split = split.behind(frame)?;
        }
        Some(split)
    }

    /// The place behind an extension header.
    fn behind(&self, frame: &[u8]) -> Option<Split> {
        let header = frame.get(self.start..)?.first_chunk::<8>()?;
        let length = match IpProtocol(frame[self.next_header_at]) {
            IpProtocol::IPV6_FRAGMENT => 8,
            IpProtocol::AH => 8 + 4 * usize::from(header[1]),
            _ => 8 + 8 * usize::from(header[1]),
        };
        Some(Split { start: self.start + length, next_header_at: self.start }).filter(|it| it.start <= frame.len())
    }
}

/// Whether the next extension header of IPv6 stays in front of ESP. Options for the destination do if a routing header
/// follows them.
#[inline(always)]
fn is_for_routers(frame: &[u8], split: &Split) -> Result<bool, Unfit> {
    match IpProtocol(frame[split.next_header_at]) {
        IpProtocol::IPV6_HOP_BY_HOP | IpProtocol::IPV6_ROUTE => Ok(true),
        IpProtocol::IPV6_FRAGMENT => Err(Unfit::Fragment),
        IpProtocol::IPV6_DESTINATION => {
            let next = frame.get(split.start).ok_or(Unfit::Malformed)?;
            Ok(IpProtocol(*next) == IpProtocol::IPV6_ROUTE)
        }
        _ => Ok(false),
    }
}

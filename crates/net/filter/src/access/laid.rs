//! A packet as the expressions of an access list see it.
//!
//! Its parts are in places of their own, in which [`generate`](crate::generate) looks for them. The first is a usual
//! packet: an Ethernet header without tags, an IP header without options and extension headers, and the upper layer.

use crate::interpret::PacketView;
use crate::place::{
    self, AUTHENTICATION, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, HOST_IDENTITY, MOBILITY, NO_NEXT_HEADER, ROUTING,
    SHIM6,
};
use crate::plan::possible::Presented;

/// Why something is not known of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Unknown {
    /// It is in another fragment.
    Fragment,
    /// The packet was cut off, or is too short for the headers that it says to have.
    Missing,
    /// There are too many headers, or ones that hide what is behind them.
    Headers,
}

impl Unknown {
    /// All reasons, by their numbers.
    pub const ALL: [Unknown; 3] = [Unknown::Fragment, Unknown::Missing, Unknown::Headers];
}

/// The maximum number of headers that are followed: VLAN tags, MPLS labels, and extension headers, of each kind.
const MAX_HEADERS: usize = 16;

/// The most bytes that an IPv4 packet has behind its header.
const MAX_LENGTH: u16 = 65_515;

const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const PPPOE_SESSION: u16 = 0x8864;

/// A packet as expressions see it.
pub(super) struct Laid<'a> {
    packet: PacketView<'a>,
    /// The EtherType behind tags, labels and sessions.
    ether_type: Option<u16>,
    /// Bytes of VLAN tags behind the addresses.
    tags: usize,
    network: &'a [u8],
    /// The number of the upper layer, its bytes as far as they are known, and its length.
    protocol: Option<u8>,
    upper: &'a [u8],
    length: Option<u16>,
    /// A bit for each extension header that there is, and whether there may be more.
    headers: u64,
    has_all_headers: bool,
    /// Why something is not known.
    pub(super) unknown: Option<Unknown>,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|&bytes| u16::from_be_bytes(bytes))
}

fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8 | 0x9100)
}

impl<'a> Laid<'a> {
    pub(super) fn of(packet: PacketView<'a>) -> Laid<'a> {
        let mut laid = Laid {
            packet,
            ether_type: None,
            tags: 0,
            network: &[],
            protocol: None,
            upper: &[],
            length: None,
            headers: 0,
            has_all_headers: false,
            unknown: None,
        };
        laid.unknown = laid.link().err();
        laid
    }

    /// Looks for the network header.
    fn link(&mut self) -> Result<(), Unknown> {
        let frame = self.packet.bytes;
        let mut at = ETHERNET - 2;
        let mut ether_type = be16(frame, at).ok_or(Unknown::Missing)?;
        let mut is_first = true;
        for _ in 0..=MAX_HEADERS {
            if is_tag(ether_type) {
                at += 4;
                self.tags += if is_first { 4 } else { 0 };
                ether_type = be16(frame, at).ok_or(Unknown::Missing)?;
                continue;
            }
            let payload = frame.get(at + 2..).ok_or(Unknown::Missing)?;
            if u32::from(ether_type) >= place::FIRST_TYPE {
                return self.payload(ether_type, payload);
            }
            // A length. Behind a header of LLC and SNAP is an EtherType (RFC 1042, IEEE 802.1H).
            let header = payload.get(..8);
            match header.ok_or(Unknown::Missing)? {
                [0xaa, 0xaa, 0x03, 0, 0, 0 | 0xf8, ..] => {
                    (at, is_first) = (at + 8, false);
                    ether_type = be16(frame, at).ok_or(Unknown::Missing)?;
                }
                _ => {
                    (self.ether_type, self.network) = (Some(ether_type), payload);
                    return Ok(());
                }
            }
        }
        Err(Unknown::Headers)
    }

    fn payload(&mut self, ether_type: u16, payload: &'a [u8]) -> Result<(), Unknown> {
        self.network = payload;
        match ether_type {
            PPPOE_SESSION => {
                let (protocol, at) = match *payload.get(6..8).ok_or(Unknown::Missing)? {
                    // A compressed field ends with its first odd byte (RFC 1661, section 6.5).
                    [odd, _] if odd & 1 == 1 => (u16::from(odd), 7),
                    [high, low] => (u16::from_be_bytes([high, low]), 8),
                    _ => return Err(Unknown::Missing),
                };
                match protocol {
                    0x21 => self.ip(IPV4, &payload[at..]),
                    0x57 => self.ip(IPV6, &payload[at..]),
                    // Control protocols.
                    0x8000.. => {
                        self.ether_type = Some(ether_type);
                        Ok(())
                    }
                    // Compressed, encrypted, or in parts.
                    _ => Err(Unknown::Headers),
                }
            }
            0x8847 | 0x8848 => {
                let labels = payload.chunks_exact(4).take(MAX_HEADERS);
                let last = labels.enumerate().find(|(_, label)| label[2] & 1 == 1);
                let (last, _) = last.ok_or(Unknown::Headers)?;
                let inner = &payload[4 * (last + 1)..];
                // As far as it can be known (RFC 4928).
                match inner.first().ok_or(Unknown::Missing)? >> 4 {
                    4 => self.ip(IPV4, inner),
                    6 => self.ip(IPV6, inner),
                    _ => Err(Unknown::Headers),
                }
            }
            _ => self.ip(ether_type, payload),
        }
    }

    fn ip(&mut self, ether_type: u16, payload: &'a [u8]) -> Result<(), Unknown> {
        (self.ether_type, self.network) = (Some(ether_type), payload);
        match ether_type {
            IPV4 => self.ipv4(payload),
            IPV6 => self.ipv6(payload),
            _ => Ok(()),
        }
    }

    fn ipv4(&mut self, payload: &'a [u8]) -> Result<(), Unknown> {
        let fixed = payload.first_chunk::<20>().ok_or(Unknown::Missing)?;
        let header = usize::from(fixed[0] & 0xf) * 4;
        let total = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if fixed[0] >> 4 != 4 || header < 20 || total < header {
            return Err(Unknown::Missing);
        }
        let rest = payload.get(header..).ok_or(Unknown::Missing)?;
        let flags = u16::from_be_bytes([fixed[6], fixed[7]]);
        let is_later = flags & 0x1fff != 0;
        let more = flags & 0x2000 != 0;
        let walk = Walk { next: fixed[9], rest, left: total - header, is_part: more };
        if !is_later {
            return self.walk(walk, false);
        }
        if fixed[9] == AUTHENTICATION {
            self.headers |= 1 << AUTHENTICATION;
        } else {
            (self.protocol, self.has_all_headers) = (Some(fixed[9]), true);
        }
        Err(Unknown::Fragment)
    }

    fn ipv6(&mut self, payload: &'a [u8]) -> Result<(), Unknown> {
        let (fixed, rest) = payload.split_first_chunk::<40>().ok_or(Unknown::Missing)?;
        if fixed[0] >> 4 != 6 {
            return Err(Unknown::Missing);
        }
        let left = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        self.walk(Walk { next: fixed[6], rest, left, is_part: false }, true)
    }

    /// Follows headers up to the upper layer.
    fn walk(&mut self, mut walk: Walk<'a>, is_ipv6: bool) -> Result<(), Unknown> {
        for _ in 0..=MAX_HEADERS {
            let is_fragment = is_ipv6 && walk.next == FRAGMENT;
            let unit = match walk.next {
                AUTHENTICATION => 4,
                HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS if is_ipv6 => 8,
                MOBILITY | HOST_IDENTITY | SHIM6 if is_ipv6 && walk.byte(0)? != NO_NEXT_HEADER => {
                    // What is behind is for those that know this header.
                    return Err(Unknown::Headers);
                }
                upper => {
                    self.protocol = Some(upper);
                    self.has_all_headers = true;
                    self.upper = &walk.rest[..walk.rest.len().min(walk.left)];
                    // How long the parts are together is not known; no byte of them is out of the question.
                    self.length = Some(if walk.is_part { MAX_LENGTH } else { walk.left as u16 });
                    let is_cut = walk.left > walk.rest.len();
                    return match (walk.is_part, is_cut) {
                        (true, _) => Err(Unknown::Fragment),
                        (false, true) => Err(Unknown::Missing),
                        (false, false) => Ok(()),
                    };
                }
            };
            self.headers |= 1 << walk.next;
            let next = walk.byte(0)?;
            let length = match is_fragment {
                true => 8,
                false if unit == 4 => 8 + 4 * usize::from(walk.byte(1)?),
                false => 8 + 8 * usize::from(walk.byte(1)?),
            };
            if is_fragment {
                let offset = u16::from_be_bytes([walk.byte(2)?, walk.byte(3)?]);
                if offset & 0xfff8 != 0 {
                    walk.byte(7)?;
                    // Only the first fragment has what is behind another extension header.
                    match next {
                        HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS | AUTHENTICATION => {
                            self.headers |= 1 << next;
                        }
                        MOBILITY | HOST_IDENTITY | SHIM6 => {}
                        upper => (self.protocol, self.has_all_headers) = (Some(upper), true),
                    }
                    return Err(Unknown::Fragment);
                }
                walk.is_part |= offset & 1 != 0;
            }
            walk.skip(next, length)?;
        }
        Err(Unknown::Headers)
    }
}

/// The way along the headers of a packet.
struct Walk<'a> {
    /// The number of the next header.
    next: u8,
    rest: &'a [u8],
    /// How many bytes the packet has from here on.
    left: usize,
    /// Whether other fragments follow.
    is_part: bool,
}

impl Walk<'_> {
    /// Why the packet does not have what its headers say that it has.
    fn missing(&self) -> Unknown {
        if self.is_part { Unknown::Fragment } else { Unknown::Missing }
    }

    fn byte(&self, at: usize) -> Result<u8, Unknown> {
        self.rest.get(at).copied().filter(|_| at < self.left).ok_or(self.missing())
    }

    fn skip(&mut self, next: u8, length: usize) -> Result<(), Unknown> {
        let missing = self.missing();
        self.left = self.left.checked_sub(length).ok_or(missing)?;
        self.rest = self.rest.get(length..).ok_or(missing)?;
        self.next = next;
        Ok(())
    }
}

impl Laid<'_> {
    /// A byte of the usual packet.
    fn usual(&self, at: usize) -> Option<u8> {
        let half = |number: Option<u16>, index: usize| Some(number?.to_be_bytes()[index]);
        let (length, protocol, upper, before) = match self.ether_type? {
            IPV4 => (16, 23, 34, 20),
            IPV6 => (18, 20, 54, 0),
            ether_type if matches!(at, 12 | 13) => return half(Some(ether_type), at - 12),
            _ => return None,
        };
        match at {
            12 | 13 => half(self.ether_type, at - 12),
            _ if at == length || at == length + 1 => {
                half(self.length.and_then(|length| length.checked_add(before)), at - length)
            }
            _ if at == protocol => self.protocol,
            _ => self.upper.get(at.checked_sub(upper)?).copied(),
        }
    }
}

impl Presented for Laid<'_> {
    fn byte(&self, at: u32) -> Option<u8> {
        let within = (at & ((1 << place::SHIFT) - 1)) as usize;
        let frame = self.packet.bytes;
        match at & !((1 << place::SHIFT) - 1) {
            0 => self.usual(within),
            place::NETWORK => self.network.get(within).copied(),
            place::FRAME => frame.get(within).copied(),
            place::UNTAGGED if within < ETHERNET - 2 => frame.get(within).copied(),
            place::UNTAGGED => frame.get(within + self.tags).copied(),
            place::HEADERS if within < 64 && self.headers >> within & 1 == 1 => Some(1),
            place::HEADERS => self.has_all_headers.then_some(0),
            _ => None,
        }
    }

    fn wire_length(&self) -> u32 {
        self.packet.wire_length
    }
}

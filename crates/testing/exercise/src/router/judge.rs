//! What a router may do with a frame, as the RFCs say it: written for plainness, from their texts alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP packet in a frame without tags, or with a priority tag. Nothing of it is checked but its lengths.
#[derive(Clone, Debug)]
pub struct Datagram<'f> {
    /// Its bytes, without those behind its end.
    pub packet: &'f [u8],
    /// Its source.
    pub source: IpAddr,
    /// Its destination.
    pub destination: IpAddr,
    /// Its time to live, or hop limit.
    pub hops: u8,
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The EtherType and what follows it. A tag of VLAN 0 is only a priority (IEEE 802.1Q, 9.6).
fn contents(frame: &[u8]) -> Option<(u16, &[u8])> {
    if frame.len() < 14 {
        return None;
    }
    match word(frame, 12) {
        0x8100 if frame.len() >= 18 && word(frame, 14) & 0xfff == 0 => Some((word(frame, 16), &frame[18..])),
        other => Some((other, &frame[14..])),
    }
}

impl Datagram<'_> {
    /// The IP packet in a frame, if there is one.
    pub fn of(frame: &[u8]) -> Option<Datagram<'_>> {
        let (kind, bytes) = contents(frame)?;
        match kind {
            0x0800 if bytes.len() >= 20 => {
                let length = usize::from(word(bytes, 2)).clamp(20, bytes.len());
                let address =
                    |at: usize| IpAddr::V4(Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]));
                Some(Datagram {
                    packet: &bytes[..length],
                    source: address(12),
                    destination: address(16),
                    hops: bytes[8],
                })
            }
            0x86dd if bytes.len() >= 40 => {
                let length = (usize::from(word(bytes, 4)) + 40).min(bytes.len());
                let address =
                    |at: usize| IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap()));
                Some(Datagram {
                    packet: &bytes[..length],
                    source: address(8),
                    destination: address(24),
                    hops: bytes[7],
                })
            }
            _ => None,
        }
    }

    fn header(&self) -> usize {
        if self.source.is_ipv4() { usize::from(self.packet[0] & 15) * 4 } else { 40 }
    }

    /// What follows the header.
    pub fn payload(&self) -> &[u8] {
        self.packet.get(self.header()..).unwrap_or_default()
    }

    /// The options of its header, if it is one of IPv4.
    pub fn options(&self) -> &[u8] {
        let end = if self.source.is_ipv4() { self.header() } else { 0 };
        self.packet.get(20..end).unwrap_or_default()
    }

    /// The protocol and the ports of TCP or UDP right behind the fixed header, unless it is part of an IPv4 packet.
    pub fn ports(&self) -> Option<(u8, u16, u16)> {
        let protocol = if self.source.is_ipv4() { self.packet[9] } else { self.packet[6] };
        let payload = self.payload().get(..4).filter(|_| matches!(protocol, 6 | 17) && !self.is_fragment())?;
        Some((protocol, word(payload, 0), word(payload, 2)))
    }

    /// Whether it is part of an IPv4 packet.
    pub fn is_fragment(&self) -> bool {
        self.source.is_ipv4() && word(self.packet, 6) & 0x3fff != 0
    }

    /// Whether its source is good on its link only.
    pub fn is_link_local(&self) -> bool {
        matches!(self.source, IpAddr::V6(source) if source.is_unicast_link_local())
    }

    /// The packet that this one, an ICMP error, is about.
    pub fn quoted_by_error(&self) -> Option<&[u8]> {
        let payload = self.payload();
        let is_error = match self.source {
            IpAddr::V4(_) => self.packet[9] == 1 && matches!(payload.first()?, 3 | 4 | 5 | 11 | 12),
            IpAddr::V6(_) => self.packet[6] == 58 && *payload.first()? < 128,
        };
        is_error.then(|| payload.get(8..)).flatten()
    }

    /// The protocol behind extension headers, and its first bytes. `None` if they are cut off, or in another fragment.
    fn upper_layer(&self) -> Option<(u8, &[u8])> {
        if self.source.is_ipv4() {
            return Some((self.packet[9], self.payload()));
        }
        let (mut next, mut rest) = (self.packet[6], self.payload());
        loop {
            let length = match next {
                0 | 43 | 60 => 8 + 8 * usize::from(*rest.get(1)?),
                44 if word(rest.get(..8)?, 2) & 0xfff8 == 0 => 8,
                44 => return None,
                _ => return Some((next, rest)),
            };
            (next, rest) = (*rest.first()?, rest.get(length..)?);
        }
    }
}

/// Whether a frame that arrives at an interface with this Ethernet address is a packet that may be forwarded by a router
/// with links of these broadcast addresses.
///
/// # Errors
/// What it is.
pub fn may_be_forwarded(frame: &[u8], own: [u8; 6], broadcasts: &[Ipv4Addr]) -> Result<(), &'static str> {
    let (kind, bytes) = contents(frame).ok_or("a runt")?;
    // RFC 1812, 5.3.4: nor what was a broadcast of the link layer.
    if frame[..6] != own {
        return Err("a frame for others");
    }
    match kind {
        0x0800 => is_good_v4(bytes, broadcasts),
        0x86dd => is_good_v6(bytes),
        _ => Err("another protocol"),
    }
}

/// RFC 1812, 5.2.2 and 5.3.7, and RFC 6890 on special addresses.
fn is_good_v4(bytes: &[u8], broadcasts: &[Ipv4Addr]) -> Result<(), &'static str> {
    if bytes.len() < 20 {
        return Err("an IPv4 packet without a whole header");
    }
    let (header, total) = (usize::from(bytes[0] & 15) * 4, usize::from(word(bytes, 2)));
    if bytes[0] >> 4 != 4 {
        return Err("an IPv4 packet of another version");
    }
    if header < 20 || total < header || bytes.len() < total {
        return Err("an IPv4 packet with a wrong length");
    }
    let sum: u32 = (0..header).step_by(2).map(|at| u32::from(word(bytes, at))).sum();
    if !sum.is_multiple_of(0xffff) {
        return Err("an IPv4 packet with a wrong checksum");
    }
    if bytes[8] < 2 {
        return Err("an IPv4 packet at the end of its life");
    }
    // RFC 1858 and RFC 3128: it could overlap the header that filters have seen.
    if bytes[9] == 6 && word(bytes, 6) & 0x1fff == 1 {
        return Err("a fragment inside of a TCP header");
    }
    let [source, destination] =
        [12, 16].map(|at| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]));
    if is_never_a_station(source) {
        return Err("an IPv4 packet from an address that no station has");
    }
    if is_never_a_station(destination) {
        return Err("an IPv4 packet to an address that no station has");
    }
    // RFC 3927, 2.7.
    if source.is_link_local() || destination.is_link_local() {
        return Err("an IPv4 packet with an address of one link");
    }
    // RFC 2644.
    if broadcasts.contains(&destination) {
        return Err("an IPv4 packet to all stations of a link");
    }
    Ok(())
}

fn is_never_a_station(address: Ipv4Addr) -> bool {
    matches!(address.octets()[0], 0 | 127 | 224..)
}

/// RFC 8200, section 3, and RFC 4291, section 2.5.
fn is_good_v6(bytes: &[u8]) -> Result<(), &'static str> {
    if bytes.len() < 40 {
        return Err("an IPv6 packet without a whole header");
    }
    if bytes[0] >> 4 != 6 {
        return Err("an IPv6 packet of another version");
    }
    if bytes.len() < 40 + usize::from(word(bytes, 4)) {
        return Err("an IPv6 packet with a wrong length");
    }
    if bytes[7] < 2 {
        return Err("an IPv6 packet at the end of its life");
    }
    let [source, destination] = [8, 24].map(|at| Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap()));
    for (address, words) in [
        (source, ["an IPv6 packet from an address that no station has", "an IPv6 packet from a link alone"]),
        (destination, ["an IPv6 packet to an address that no station has", "an IPv6 packet to a link alone"]),
    ] {
        if address.is_unspecified()
            || address.is_loopback()
            || address.is_multicast()
            || address.to_ipv4_mapped().is_some()
        {
            return Err(words[0]);
        }
        if address.is_unicast_link_local() {
            return Err(words[1]);
        }
    }
    Ok(())
}

/// Whether an ICMP error may be sent about a frame (RFC 1812, 4.3.2.7; RFC 4443, 2.4).
///
/// # Errors
/// What it is.
pub fn may_be_answered(frame: &[u8], own: [u8; 6]) -> Result<(), &'static str> {
    let packet = Datagram::of(frame).ok_or("no IP packet")?;
    let is_multicast = packet.destination.is_multicast();
    if frame[..6] != own && !is_multicast {
        return Err("a frame for others");
    }
    // What a later fragment of IPv6 is a part of cannot be seen.
    let (protocol, payload) = match packet.upper_layer() {
        None if packet.source.is_ipv6() => (59, &[][..]),
        upper => upper.ok_or("a fragment after the first")?,
    };
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            if word(packet.packet, 6) & 0x1fff != 0 {
                return Err("a fragment after the first");
            }
            if protocol == 1 && payload.first().is_none_or(|kind| matches!(kind, 3 | 4 | 5 | 11 | 12)) {
                return Err("an ICMP error");
            }
            if is_never_a_station(source) {
                return Err("a source that is no station");
            }
            if is_multicast || destination.is_broadcast() || frame[0] & 1 != 0 {
                return Err("a broadcast");
            }
        }
        (IpAddr::V6(source), _) => {
            // Packet Too Big, and an option of a kind that asks for it, may be about multicasts.
            let kind = payload.first().copied();
            if protocol == 58 && kind.is_none_or(|kind| kind < 128 || kind == 137) {
                return Err("an ICMPv6 error");
            }
            if source.is_unspecified() || source.is_multicast() || source.is_loopback() {
                return Err("a source that is no station");
            }
            let asks = [0, 60].contains(&packet.packet[6]);
            if (is_multicast || frame[0] & 1 != 0) && !asks {
                return Err("a multicast");
            }
        }
        _ => {}
    }
    Ok(())
}

//! Link layers, up to the EtherType and the choice of the next layer.

use super::{Cut, LinkLayer, Part, SummaryLine, Written, arp, ip, llc, put};
use crate::{EtherType, MacAddr};

/// Smaller EtherTypes are lengths of IEEE 802.3 frames.
const MAX_802_3_LENGTH: u16 = 1500;

/// The "jumbo" EtherType (draft-ietf-isis-ext-eth): LLC follows, as after a length.
const JUMBO: EtherType = EtherType(0x8870);

pub(super) fn packet(line: &mut SummaryLine<'_>, link: LinkLayer, part: Part<'_>) -> Written {
    match link {
        LinkLayer::Ethernet => ethernet(line, part),
        LinkLayer::Ip => ip::either(line, part),
        LinkLayer::LinuxCooked => cooked(line, part),
        LinkLayer::LinuxCooked2 => cooked_2(line, part),
        LinkLayer::Loopback => loopback(line, part),
    }
}

/// The addresses of a frame.
#[derive(Clone, Copy)]
pub(super) struct Stations {
    pub src: MacAddr,
    pub dst: MacAddr,
}

pub(super) fn ethernet(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    let frame = part.of("ether");
    let (dst, src, ether_type) = (frame.mac(0)?, frame.mac(6)?, frame.ether_type(12)?);
    let stations = Stations { src, dst };
    let (ether_type, payload) = skip_tags(ether_type, frame.skip(14))?;
    if ether_type.0 <= MAX_802_3_LENGTH || ether_type == JUMBO {
        // Padding may follow after this length.
        let length = if ether_type == JUMBO { payload.length } else { ether_type.0.into() };
        return llc::packet(line, payload.limit(length.min(payload.length)), Some(stations));
    }
    if by_type(line, ether_type, payload)? {
        return Ok(());
    }
    let (EtherType(number), name) = (ether_type, type_name(ether_type));
    put!(line, "{src} > {dst}, ethertype {name} (0x{number:04x}), length {}:", frame.length);
    Ok(())
}

/// Skips the VLAN tags in front of a payload.
fn skip_tags<'a>(mut ether_type: EtherType, mut part: Part<'a>) -> Result<(EtherType, Part<'a>), Cut> {
    while matches!(ether_type.0, 0x8100 | 0x88a8 | 0x9100 | 0x9200) {
        ether_type = part.of("vlan").ether_type(2)?;
        part = part.skip(4);
    }
    Ok((ether_type, part))
}

/// Writes a packet of this type, if the type is known.
pub(super) fn by_type(line: &mut SummaryLine<'_>, ether_type: EtherType, part: Part<'_>) -> Result<bool, Cut> {
    match ether_type {
        EtherType::IPV4 => ip::v4(line, part)?,
        EtherType::IPV6 => ip::v6(line, part)?,
        EtherType::ARP | EtherType(0x8035) => arp::packet(line, part)?,
        EtherType(other) => match super::name(SHORT, other) {
            Some(name) => put!(line, "{name}, length {}", part.length),
            None => return Ok(false),
        },
    }
    Ok(true)
}

/// Types that are named but not decoded.
const SHORT: &[(u16, &str)] = &[
    (0x6003, "DECnet"),
    (0x809b, "AppleTalk"),
    (0x80f3, "AppleTalk ARP"),
    (0x8137, "IPX"),
    (0x8809, "slow protocols"),
    (0x8847, "MPLS"),
    (0x8848, "MPLS multicast"),
    (0x8863, "PPPoE D"),
    (0x8864, "PPPoE S"),
    (0x888e, "EAPOL"),
    (0x88ca, "TIPC"),
    (0x88cc, "LLDP"),
    (0x88f7, "PTP"),
    (0x8902, "CFM"),
    (0x9000, "Loopback"),
];

/// The name of a type in the header of a frame that is not decoded.
pub(super) fn type_name(ether_type: EtherType) -> &'static str {
    match ether_type.0 {
        0x0800 => "IPv4",
        0x0806 => "ARP",
        0x0600 => "NS",
        0x1000 => "Trail",
        0x6001 => "MOP DL",
        0x6002 => "MOP RC",
        0x6004 => "LAT",
        0x6007 => "SCA",
        0x8100 => "802.1Q",
        0x86dd => "IPv6",
        0x88a8 => "802.1Q-QinQ",
        0x893a => "IEEE1905.1",
        0x9100 => "802.1Q-9100",
        0x9200 => "802.1Q-9200",
        _ => "Unknown",
    }
}

fn cooked(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    let header = part.of("sll");
    let ether_type = header.ether_type(14)?;
    if let Some(payload) = cooked_payload(line, ether_type, header.skip(16))? {
        put!(line, "{:>3} ", direction(header.u16(0)?));
        put_cooked_header(line, ether_type, header, header.u16(4)?)?;
        put!(line, "length {}:", 16 + payload.length);
    }
    Ok(())
}

fn cooked_2(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    let header = part.of("sll2");
    header.get(0, 20)?;
    let ether_type = header.ether_type(0)?;
    // tcpdump writes the interface's name first; the number means nothing on another machine.
    put!(line, "{:<5} {:<3} ", "?", direction(header.u8(10)?.into()));
    if let Some(payload) = cooked_payload(line, ether_type, header.skip(20))? {
        put!(line, "ifindex {} ", header.u32(4)?);
        put_cooked_header(line, ether_type, header.skip(6), header.u8(11)?.into())?;
        put!(line, "length {}:", 20 + payload.length);
    }
    Ok(())
}

/// The direction of a packet in Linux's numbering.
fn direction(number: u16) -> &'static str {
    ["In", "B", "M", "P", "Out"].get(usize::from(number)).unwrap_or(&"?")
}

/// Linux's number for IEEE 802.2 in a cooked header.
const COOKED_LLC: EtherType = EtherType(4);

/// Writes the payload of a cooked header, or returns it if its type is unknown.
fn cooked_payload<'a>(
    line: &mut SummaryLine<'_>,
    mut ether_type: EtherType,
    mut part: Part<'a>,
) -> Result<Option<Part<'a>>, Cut> {
    while ether_type == EtherType::VLAN {
        ether_type = part.of("vlan").ether_type(2)?;
        if ether_type.0 <= MAX_802_3_LENGTH {
            ether_type = COOKED_LLC;
        }
        put!(line, "ethertype {}, ", type_name(ether_type));
        part = part.skip(4);
    }
    let known = match ether_type {
        COOKED_LLC => llc::packet(line, part, None).map(|()| true)?,
        EtherType(0..=MAX_802_3_LENGTH) => true,
        _ => by_type(line, ether_type, part)?,
    };
    Ok((!known).then_some(part))
}

/// Writes a cooked header with the address at its seventh byte.
fn put_cooked_header(line: &mut SummaryLine<'_>, ether_type: EtherType, header: Part<'_>, address_len: u16) -> Written {
    if address_len == 6 {
        put!(line, "{} ", header.mac(6)?);
    }
    let (EtherType(number), name) = (ether_type, type_name(ether_type));
    put!(line, "ethertype {name} (0x{number:04x}), ");
    Ok(())
}

fn loopback(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    let header = part.of("null");
    let family = header.u32(0)?;
    // The file does not give its byte order; families are small numbers.
    let family = if family > 0xffff { family.swap_bytes() } else { family };
    let payload = header.skip(4);
    match family {
        2 => ip::v4(line, payload),
        // Each BSD and Darwin has its own number for IPv6.
        24 | 28 | 30 => ip::v6(line, payload),
        other => {
            put!(line, "AF {other}, length {}", payload.length);
            Ok(())
        }
    }
}

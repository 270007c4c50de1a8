//! IEEE 802.2 LLC and SNAP, and their most frequent payload, the spanning tree protocol.

use super::link::{self, Stations};
use super::{Cut, Part, SummaryLine, Written, ip, name, put};
use crate::EtherType;

/// Service access points.
const SAPS: &[(u16, &str)] = &[
    (0x00, "Null"),
    (0x04, "SNA"),
    (0x06, "IP"),
    (0x42, "STP"),
    (0xaa, "SNAP"),
    (0xe0, "IPX"),
    (0xf0, "NetBeui"),
    (0xfe, "OSI"),
    (0xff, "Global"),
];

const COMMANDS: &[(u16, &str)] = &[
    (0x03, "ui"),
    (0x0f, "dm"),
    (0x43, "disc"),
    (0x63, "ua"),
    (0x6f, "sabme"),
    (0x87, "frmr"),
    (0xaf, "xid"),
    (0xe3, "test"),
];

/// Unnumbered information, the control field of datagrams.
const UI: u16 = 3;

/// An LLC header.
#[derive(Clone, Copy)]
struct Header {
    dsap: u8,
    ssap: u8,
    response: bool,
    control: u16,
    len: usize,
}

impl Header {
    fn is_unnumbered(self) -> bool {
        self.control & 3 == 3
    }
}

fn header(part: Part<'_>) -> Result<Header, Cut> {
    let (dsap, ssap, control) = (part.u8(0)?, part.u8(1)?, part.u8(2)?);
    let (control, len) = match control & 3 {
        3 => (control.into(), 3),
        // Numbered frames have two control bytes, the lower one first.
        _ => (part.u16(2)?.swap_bytes(), 4),
    };
    Ok(Header { dsap: dsap & !1, ssap: ssap & !1, response: ssap & 1 != 0, control, len })
}

pub(super) fn packet(line: &mut SummaryLine<'_>, part: Part<'_>, stations: Option<Stations>) -> Written {
    let part = part.of("llc");
    let header = header(part)?;
    let payload = part.skip(header.len);
    if part.bytes.starts_with(&[0xff, 0xff]) {
        put!(line, "IPX, length {}", part.length);
        return Ok(());
    }
    match (header.dsap, header.ssap, header.control) {
        (0xaa, 0xaa, UI) => snap(line, payload, stations),
        (0x42, 0x42, UI) => spanning_tree(line, payload.of("stp")),
        (0x06, 0x06, UI) => ip::v4(line, payload),
        (0xe0, 0xe0, UI) => short(line, "IPX", payload),
        (0xfe, 0xfe, UI) => short(line, "OSI", payload),
        _ => frame(line, header, part, stations),
    }
}

fn short(line: &mut SummaryLine<'_>, name: &str, part: Part<'_>) -> Written {
    put!(line, "{name}, length {}", part.length);
    Ok(())
}

/// A frame of an unknown user, or of LLC itself.
fn frame(line: &mut SummaryLine<'_>, header: Header, part: Part<'_>, stations: Option<Stations>) -> Written {
    if let Some(Stations { src, .. }) = stations {
        put!(line, "{src} ");
    }
    if header.ssap != header.dsap {
        put_sap(line, "SSAP", header.ssap);
    }
    match stations {
        Some(Stations { dst, .. }) => put!(line, "> {dst} "),
        None if header.ssap != header.dsap => put!(line, "> "),
        None => {}
    }
    put_sap(line, "DSAP", header.dsap);
    let number = header.control >> 9;
    let poll = header.control & if header.is_unnumbered() { 0x10 } else { 0x100 } != 0;
    let flags = match (header.response, poll) {
        (false, false) => "Command",
        (true, false) => "Response",
        (false, true) => "Poll",
        (true, true) => "Final",
    };
    if header.is_unnumbered() {
        return unnumbered(line, header.control & !0x10, flags, part);
    }
    if header.control & 1 != 0 {
        let which = ["Receiver Ready", "Receiver not Ready", "Reject", "?"][usize::from(header.control >> 2 & 3)];
        put!(line, "Supervisory, {which}, rcv seq {number}");
    } else {
        put!(line, "Information, send seq {}, rcv seq {number}", header.control >> 1 & 0x7f);
    }
    put!(line, ", Flags [{flags}], length {}", part.length);
    Ok(())
}

fn put_sap(line: &mut SummaryLine<'_>, which: &str, sap: u8) {
    match name(SAPS, sap) {
        Some(name) => put!(line, "{name} "),
        None => put!(line, "Unknown {which} 0x{sap:02x} "),
    }
}

fn unnumbered(line: &mut SummaryLine<'_>, command: u16, flags: &str, part: Part<'_>) -> Written {
    match name(COMMANDS, command) {
        Some(name) => put!(line, "Unnumbered, {name}"),
        None => put!(line, "Unnumbered, {command:02x}"),
    }
    put!(line, ", Flags [{flags}], length {}", part.length);
    Ok(())
}

/// Organisations that assign protocol numbers. For 0 and for frames bridged by Cisco, these are EtherTypes.
const CISCO: u32 = 0x00000c;
const CISCO_BRIDGED: u32 = 0x0000f8;

fn snap(line: &mut SummaryLine<'_>, part: Part<'_>, stations: Option<Stations>) -> Written {
    let part = part.of("snap");
    part.get(0, 5)?;
    let (organisation, protocol) = (part.u32(0)? >> 8, part.u16(3)?);
    let payload = part.skip(5);
    match (organisation, protocol) {
        (CISCO, 0x0109 | 0x010b | 0x010c) => return spanning_tree(line, payload.of("stp")),
        (CISCO, 0x2000) => return short(line, "CDP", payload),
        (CISCO, 0x2003) => return short(line, "VTP", payload),
        (CISCO, 0x2004) => return short(line, "DTP", payload),
        (CISCO, 0x0111) => return short(line, "UDLD", payload),
        _ => {}
    }
    if matches!(organisation, 0 | CISCO_BRIDGED) && link::by_type(line, EtherType(protocol), payload)? {
        return Ok(());
    }
    if let Some(Stations { src, dst }) = stations {
        put!(line, "{src} > {dst} ");
    }
    let (who, what) = match organisation {
        0 => ("Ethernet", "ethertype"),
        CISCO | CISCO_BRIDGED => ("Cisco", "pid"),
        _ => ("Unknown", "pid"),
    };
    put!(line, "SNAP, oui {who} (0x{organisation:06x}), {what} Unknown (0x{protocol:04x}), length {}:", payload.length);
    Ok(())
}

/// Flags of a rapid spanning tree, from the lowest bit on; the port's role takes two bits.
const PROPOSAL: u8 = 0x02;
const FLAGS: [(u8, &str); 6] = [
    (0x01, "Topology change"),
    (PROPOSAL, "Proposal"),
    (0x10, "Learn"),
    (0x20, "Forward"),
    (0x40, "Agreement"),
    (0x80, "Topology change ACK"),
];

fn spanning_tree(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    let (protocol, version) = (part.u16(0)?, part.u8(2)?);
    let standard = match version {
        0 => "802.1d",
        2 => "802.1w",
        3 => "802.1s",
        4 => "802.1aq",
        _ => "",
    };
    match standard {
        _ if protocol != 0 => put!(line, "unknown STP version, length {}", part.length),
        "" => put!(line, "STP Unknown STP protocol (0x{version:02x})"),
        _ => put!(line, "STP {standard}"),
    }
    if protocol != 0 || standard.is_empty() {
        return Ok(());
    }
    match (part.u8(3)?, version) {
        (0x80, _) => {
            put!(line, ", Topology Change");
            return Ok(());
        }
        (0x00, _) => bridge(line, ", Config", part)?,
        (0x02, 2) => bridge(line, ", Rapid STP", part)?,
        (0x02, 0) => {
            put!(line, ", Rapid STP");
            return Ok(());
        }
        (0x02, 3 | 4) => {
            put!(line, ", Rapid STP");
            if !describes_instances(part)? {
                put!(line, " (invalid)");
                return Ok(());
            }
            put_flags(line, ", CIST Flags [", part.u8(4)?);
        }
        (other, _) => {
            put!(line, ", Unknown BPDU Type (0x{other:02x})");
            return Ok(());
        }
    }
    put!(line, ", length {}", part.length);
    Ok(())
}

/// Whether a multiple spanning tree's description has room for its mandatory part and for its claimed length.
fn describes_instances(part: Part<'_>) -> Result<bool, Cut> {
    if part.length < 102 {
        return Ok(false);
    }
    Ok(part.u8(35)? == 0 && 38 + usize::from(part.u16(36)?) <= part.length)
}

/// The fields of a bridge's identity.
fn bridge(line: &mut SummaryLine<'_>, what: &str, part: Part<'_>) -> Written {
    put!(line, "{what}");
    put_flags(line, ", Flags [", part.u8(4)?);
    put!(line, ", bridge-id {:04x}.{}.{:04x}", part.u16(17)?, part.mac(19)?, part.u16(25)?);
    Ok(())
}

fn put_flags(line: &mut SummaryLine<'_>, before: &str, flags: u8) {
    put!(line, "{before}");
    let mut separator = "";
    for (_, name) in FLAGS.iter().filter(|(flag, _)| flags & flag != 0) {
        put!(line, "{separator}{name}");
        separator = ", ";
    }
    put!(line, "{}]", if separator.is_empty() { "none" } else { "" });
}

//! Other protocols above IP: some decoded, the others by name.

use super::ip::IpEnds;
use super::{Cut, Part, SummaryLine, Written, ip, link, name, put};
use crate::{EtherType, IpProtocol};

pub(super) const IGMP: IpProtocol = IpProtocol(2);
pub(super) const IPV4: IpProtocol = IpProtocol(4);
pub(super) const DCCP: IpProtocol = IpProtocol(33);
pub(super) const IPV6: IpProtocol = IpProtocol(41);
pub(super) const SCTP: IpProtocol = IpProtocol(132);
pub(super) const ETHERNET: IpProtocol = IpProtocol(143);

/// Protocols that are named but not decoded.
const SHORT: &[(u16, &str)] = &[
    (8, "EGP"),
    (9, "IGRP"),
    (33, "DCCP"),
    (46, "RSVP"),
    (55, "MOBILE"),
    (88, "EIGRP"),
    (89, "OSPF"),
    (103, "PIM"),
    (112, "VRRP"),
    (113, "PGM"),
    (132, "SCTP"),
];

pub(super) fn protocol(
    line: &mut SummaryLine<'_>,
    protocol: IpProtocol,
    version: u8,
    part: Part<'_>,
    ends: IpEnds<'_>,
) -> Written {
    match protocol {
        IpProtocol(47) => return gre(line, part.of("gre")),
        IpProtocol(50) => return esp(line, part.of("esp")),
        IpProtocol(108) => {
            put!(line, "IPComp(cpi=0x{:04x})", part.of("ipcomp").u16(2)?);
            return Ok(());
        }
        DCCP | SCTP => {
            ends.put(line);
            put!(line, " ");
        }
        IpProtocol(77) => {
            put!(line, " nd {}", part.length);
            return Ok(());
        }
        IpProtocol(59) => {
            put!(line, "no next header");
            return Ok(());
        }
        IpProtocol(62 | 135) if version == 6 => {
            put!(line, "mobility, length {}", part.length);
            return Ok(());
        }
        _ => {}
    }
    match name(SHORT, protocol.0) {
        Some(name) => put!(line, "{name}, length {}", part.length),
        None => put!(line, " ip-proto-{} {}", protocol.0, part.length),
    }
    Ok(())
}

/// Writes an encapsulating security payload (RFC 4303). Everything after its first two numbers is encrypted.
fn esp(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    // Numbers without further bytes are no payload.
    part.get(0, 9)?;
    put!(line, "ESP(spi=0x{:08x},seq=0x{:x}), length {}", part.u32(0)?, part.u32(4)?, part.length);
    Ok(())
}

/// Writes an authentication header (RFC 4302), and returns the bytes after it.
pub(super) fn authentication_header<'a>(
    line: &mut SummaryLine<'_>,
    part: Part<'a>,
) -> Result<(IpProtocol, Part<'a>), Cut> {
    let next = IpProtocol(part.u8(0)?);
    put!(line, "AH");
    let len = 4 * (usize::from(part.u8(1)?) + 2);
    put!(line, "(");
    let reserved = part.u16(2)?;
    if reserved != 0 {
        put!(line, "reserved=0x{reserved:x}[MustBeZero],");
    }
    put!(line, "spi=0x{:08x},", part.u32(4)?);
    put!(line, "seq=0x{:x},icv=0x", part.u32(8)?);
    for at in 12..len {
        put!(line, "{:02x}", part.u8(at)?);
    }
    put!(line, "): ");
    Ok((next, part.skip(len)))
}

/// Writes a GRE header (RFC 2784, RFC 2890) and its payload.
fn gre(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    let flags = part.u16(0)?;
    put!(line, "GREv{}", flags & 7);
    let ether_type = part.ether_type(2)?;
    // Version 1 is that of PPTP; source routes are deprecated.
    if flags & 0x4007 != 0 {
        put!(line, ", length {}", part.length);
        return Ok(());
    }
    let mut rest = part.skip(4);
    if flags & 0x8000 != 0 {
        put!(line, ", off 0x{:x}", rest.u16(2)?);
        rest = rest.skip(4);
    }
    for (flag, name) in [(0x2000, "key=0x"), (0x1000, "seq ")] {
        if flags & flag != 0 {
            let number = rest.u32(0)?;
            match flag {
                0x2000 => put!(line, ", {name}{number:x}"),
                _ => put!(line, ", {name}{number}"),
            }
            rest = rest.skip(4);
        }
    }
    put!(line, ", length {}: ", part.length);
    match ether_type {
        EtherType(0x6558) => line.nested(|line| link::ethernet(line, rest)),
        EtherType::IPV4 => ip::v4(line, rest),
        EtherType::IPV6 => ip::v6(line, rest),
        EtherType(other) => {
            put!(line, "gre-proto-0x{other:x}");
            Ok(())
        }
    }
}

/// Writes an IGMP message (RFC 1112, RFC 2236, RFC 3376).
pub(super) fn igmp(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    let length = part.length;
    match part.u8(0)? {
        0x11 if length >= 12 => igmp_query_3(line, part)?,
        0x11 => {
            put!(line, "igmp query");
            match part.u8(1)? {
                0 => put!(line, " v1"),
                100 => put!(line, " v2"),
                tenths => put!(line, " v2 [max resp time {tenths}]"),
            }
            if part.u32(4)? != 0 {
                put!(line, " [gaddr {}]", part.ipv4(4)?);
            }
            put_odd_len(line, length);
        }
        0x12 => {
            put!(line, "igmp v1 report {}", part.ipv4(4)?);
            put_odd_len(line, length);
        }
        0x13 => put!(line, "igmp dvmrp"),
        0x14 => put!(line, "igmp pimv1"),
        0x16 => put!(line, "igmp v2 report {}", part.ipv4(4)?),
        0x17 => put!(line, "igmp leave {}", part.ipv4(4)?),
        0x22 if length < 16 || !length.is_multiple_of(4) => put!(line, "igmp v3 report [invalid len {length}]"),
        0x22 => {
            put!(line, "igmp v3 report");
            put!(line, ", {} group record(s)", part.u16(6)?);
        }
        other => put!(line, "igmp-{other}"),
    }
    Ok(())
}

fn put_odd_len(line: &mut SummaryLine<'_>, length: usize) {
    if length != 8 {
        put!(line, " [len {length}]");
    }
}

fn igmp_query_3(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    put!(line, "igmp query v3");
    if !part.length.is_multiple_of(4) {
        put!(line, " [invalid len {}]", part.length);
        return Ok(());
    }
    match u32::from(part.u8(1)?) {
        100 => {}
        // From 128 on it is a number with an exponent.
        code => put_response_time(line, if code < 128 { code } else { (code & 15 | 16) << ((code >> 4 & 7) + 3) }),
    }
    if part.u32(4)? == 0 {
        return Ok(());
    }
    put!(line, " [gaddr {}", part.ipv4(4)?);
    match usize::from(part.u16(10)?) {
        0 => {}
        sources if part.length < 12 + 4 * sources => put!(line, " [invalid number of sources]"),
        sources => put!(line, ", {sources} source(s)"),
    }
    put!(line, "]");
    Ok(())
}

/// Writes a time in tenths of seconds: `1.5s`, or from a minute on `51m12s`.
fn put_response_time(line: &mut SummaryLine<'_>, tenths: u32) {
    put!(line, " [max resp time ");
    if tenths < 600 {
        put!(line, "{}.{}s]", tenths / 10, tenths % 10);
        return;
    }
    let mut seconds = tenths / 10;
    for (unit, length) in [("h", 3600), ("m", 60), ("s", 1)] {
        if seconds >= length {
            put!(line, "{}{unit}", seconds / length);
            seconds %= length;
        }
    }
    put!(line, "]");
}

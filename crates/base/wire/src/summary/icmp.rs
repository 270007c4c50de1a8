//! ICMP (RFC 792, RFC 1191).

use super::{Part, SummaryLine, Written, name, put};
use crate::IpProtocol;

/// Messages described by their name alone.
const PLAIN: &[(u16, &str)] = &[
    (4, "source quench"),
    (9, "router advertisement"),
    (10, "router solicitation"),
    (13, "time stamp query"),
    (14, "time stamp reply"),
    (15, "information request"),
    (16, "information reply"),
    (17, "address mask request"),
    (18, "address mask"),
];

/// The start of the packet quoted in an error message.
const QUOTE: usize = 8;

pub(super) fn message(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    let (kind, code) = (part.u8(0)?, part.u8(1)?);
    // The line's start is written once it is known that the message can be read.
    let start = line.text.len();
    put!(line, "ICMP ");
    let written = match kind {
        0 | 8 => echo(line, part, kind == 8),
        3 => unreachable(line, part, code),
        5 => redirect(line, part, code),
        11 => time_exceeded(line, part, code),
        12 => parameter_problem(line, part, code),
        _ => {
            match name(PLAIN, kind) {
                Some(name) => put!(line, "{name}"),
                None => put!(line, "type-#{kind}"),
            }
            Ok(())
        }
    };
    if written.is_err() {
        line.text.truncate(start);
    }
    written?;
    put!(line, ", length {}", part.length);
    Ok(())
}

fn echo(line: &mut SummaryLine<'_>, part: Part<'_>, request: bool) -> Written {
    let which = if request { "request" } else { "reply" };
    put!(line, "echo {which}, id {}, seq {}", part.u16(4)?, part.u16(6)?);
    Ok(())
}

fn unreachable(line: &mut SummaryLine<'_>, part: Part<'_>, code: u8) -> Written {
    let dst = part.ipv4(QUOTE + 16)?;
    match code {
        0 => put!(line, "net {dst} unreachable"),
        1 => put!(line, "host {dst} unreachable"),
        2 => put!(line, "{dst} protocol {} unreachable", part.u8(QUOTE + 9)?),
        3 => {
            let header_len = usize::from(part.u8(QUOTE)? & 15) * 4;
            let (protocol, port) = (IpProtocol(part.u8(QUOTE + 9)?), part.u16(QUOTE + header_len + 2)?);
            match protocol {
                IpProtocol::TCP => put!(line, "{dst} tcp port {port} unreachable"),
                IpProtocol::UDP => put!(line, "{dst} udp port {port} unreachable"),
                other => put!(line, "{dst} protocol {} port {port} unreachable", other.0),
            }
        }
        4 => match part.u16(6)? {
            0 => put!(line, "{dst} unreachable - need to frag"),
            mtu => put!(line, "{dst} unreachable - need to frag (mtu {mtu})"),
        },
        5 => put!(line, "{dst} unreachable - source route failed"),
        6 => put!(line, "net {dst} unreachable - unknown"),
        7 => put!(line, "host {dst} unreachable - unknown"),
        8 => put!(line, "{dst} unreachable - source host isolated"),
        9 => put!(line, "net {dst} unreachable - admin prohibited"),
        10 => put!(line, "host {dst} unreachable - admin prohibited"),
        11 => put!(line, "net {dst} unreachable - tos prohibited"),
        12 => put!(line, "host {dst} unreachable - tos prohibited"),
        13 => put!(line, "host {dst} unreachable - admin prohibited filter"),
        14 => put!(line, "host {dst} unreachable - host precedence violation"),
        15 => put!(line, "host {dst} unreachable - precedence cutoff"),
        other => put!(line, "{dst} unreachable - #{other}"),
    }
    Ok(())
}

fn redirect(line: &mut SummaryLine<'_>, part: Part<'_>, code: u8) -> Written {
    let (dst, gateway) = (part.ipv4(QUOTE + 16)?, part.ipv4(4)?);
    match code {
        0 => put!(line, "redirect {dst} to net {gateway}"),
        1 => put!(line, "redirect {dst} to host {gateway}"),
        2 => put!(line, "redirect-tos {dst} to net {gateway}"),
        3 => put!(line, "redirect-tos {dst} to host {gateway}"),
        other => put!(line, "redirect-#{other} {dst} to {gateway}"),
    }
    Ok(())
}

fn time_exceeded(line: &mut SummaryLine<'_>, part: Part<'_>, code: u8) -> Written {
    part.ipv4(QUOTE + 16)?;
    match code {
        0 => put!(line, "time exceeded in-transit"),
        1 => put!(line, "ip reassembly time exceeded"),
        other => put!(line, "time exceeded-#{other}"),
    }
    Ok(())
}

fn parameter_problem(line: &mut SummaryLine<'_>, part: Part<'_>, code: u8) -> Written {
    match code {
        0 => put!(line, "parameter problem - octet {}", part.u8(4)?),
        other => put!(line, "parameter problem - code {other}"),
    }
    Ok(())
}

//! ICMPv6 (RFC 4443), neighbour discovery (RFC 4861) and multicast listeners (RFC 2710, RFC 3810).

use super::{Part, SummaryLine, Written, name, put};
use crate::IpProtocol;

const TYPES: &[(u16, &str)] = &[
    (1, "destination unreachable"),
    (2, "packet too big"),
    (3, "time exceeded in-transit"),
    (4, "parameter problem"),
    (128, "echo request"),
    (129, "echo reply"),
    (130, "multicast listener query"),
    (131, "multicast listener report"),
    (132, "multicast listener done"),
    (133, "router solicitation"),
    (134, "router advertisement"),
    (135, "neighbor solicitation"),
    (136, "neighbor advertisement"),
    (137, "redirect"),
    (143, "multicast listener report v2"),
];

/// The start of the packet quoted in an error message.
const QUOTE: usize = 8;

pub(super) fn message(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    if part.length == 0 {
        put!(line, "ICMP6, length 0 (invalid)");
        return Ok(());
    }
    let kind = part.u8(0)?;
    match name(TYPES, kind) {
        Some(name) => put!(line, "ICMP6, {name}"),
        None => put!(line, "ICMP6, unknown icmp6 type ({kind})"),
    }
    let code = part.u8(1)?;
    match kind {
        // The quoted packet applies to the known codes only.
        1 if code > 4 => {
            put!(line, ", unknown unreach code ({code})");
            return Ok(());
        }
        1 => unreachable(line, part, code)?,
        2 => put!(line, ", mtu {}", part.u32(4)?),
        3 => time_exceeded(line, part, code)?,
        4 => parameter_problem(line, part, code)?,
        128 | 129 => put!(line, ", id {}, seq {}", part.u16(4)?, part.u16(6)?),
        130 if part.length >= 28 => listener_query_2(line, part)?,
        130 if part.length != 24 => put!(line, " unknown-version (len {}) ", part.length),
        130..=132 => listener(line, part)?,
        135 => put!(line, ", who has {}", part.ipv6(8)?),
        136 => put!(line, ", tgt is {}", part.ipv6(8)?),
        137 => put!(line, ", {} to {}", part.ipv6(24)?, part.ipv6(8)?),
        143 if part.length < 8 => put!(line, " [invalid len {}]", part.length),
        143 => put!(line, ", {} group record(s)", part.u16(6)?),
        _ => {}
    }
    put!(line, ", length {}", part.length);
    Ok(())
}

fn unreachable(line: &mut SummaryLine<'_>, part: Part<'_>, code: u8) -> Written {
    let reasons =
        ["unreachable route", " unreachable prohibited", "beyond scope", "unreachable address", "unreachable port"];
    put!(line, ", {}", reasons.get(usize::from(code)).unwrap_or(&""));
    let dst = part.ipv6(QUOTE + 24)?;
    match code {
        2 => put!(line, " {dst}, source address {}", part.ipv6(QUOTE + 8)?),
        4 => {
            let protocol = match IpProtocol(part.u8(QUOTE + 6)?) {
                IpProtocol::TCP => "tcp",
                IpProtocol::UDP => "udp",
                // Ports after extension headers are not searched.
                _ => return part.cut(),
            };
            put!(line, ", {dst} {protocol} port {}", part.u16(QUOTE + 42)?);
        }
        _ => put!(line, " {dst}"),
    }
    Ok(())
}

fn time_exceeded(line: &mut SummaryLine<'_>, part: Part<'_>, code: u8) -> Written {
    match code {
        0 => put!(line, " for {}", part.ipv6(QUOTE + 24)?),
        1 => put!(line, " (reassembly)"),
        other => put!(line, ", unknown code ({other})"),
    }
    Ok(())
}

fn parameter_problem(line: &mut SummaryLine<'_>, part: Part<'_>, code: u8) -> Written {
    part.ipv6(QUOTE + 24)?;
    let octet = part.u32(4)?;
    match code {
        0 => put!(line, ", erroneous - octet {octet}"),
        1 => put!(line, ", next header - octet {octet}"),
        2 => put!(line, ", option - octet {octet}"),
        3 => put!(line, ", incomplete header chain - octet {octet}"),
        other => put!(line, ", code-#{other}"),
    }
    Ok(())
}

fn listener(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    if part.get(0, 24).is_ok() {
        put!(line, "max resp delay: {} addr: {}", part.u16(4)?, part.ipv6(8)?);
    }
    Ok(())
}

fn listener_query_2(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    put!(line, " v2");
    put!(line, " [gaddr {}", part.ipv6(8)?);
    match usize::from(part.u16(26)?) {
        0 => {}
        sources if part.length < 28 + 16 * sources => put!(line, " [invalid number of sources]"),
        sources => put!(line, ", {sources} source(s)"),
    }
    put!(line, "]");
    Ok(())
}

//! TCP (RFC 9293) and its options.

use super::ip::IpEnds;
use super::{Cut, Part, SummaryLine, Written, name, put};
use crate::tcp::flags;

const HEADER_LEN: usize = 20;

/// The flags in tcpdump's order, which dates from the time when there were fewer.
const FLAGS: [(u8, char); 8] = [
    (flags::FIN, 'F'),
    (flags::SYN, 'S'),
    (flags::RST, 'R'),
    (flags::PSH, 'P'),
    (flags::ACK, '.'),
    (flags::URG, 'U'),
    (flags::ECE, 'E'),
    (flags::CWR, 'W'),
];

pub(super) fn segment(line: &mut SummaryLine<'_>, part: Part<'_>, ends: IpEnds<'_>) -> Written {
    let (Ok(src_port), Ok(dst_port)) = (part.u16(0), part.u16(2)) else {
        ends.put(line);
        return part.cut();
    };
    ends.put_with_ports(line, src_port, dst_port);
    part.get(0, HEADER_LEN)?;
    let header_len = usize::from(part.u8(12)? >> 4) * 4;
    if header_len < HEADER_LEN {
        let payload = part.length as i64 - header_len as i64;
        put!(line, " tcp {payload} [bad hdr length {header_len} - too short, < {HEADER_LEN}]");
        return Ok(());
    }
    let set = part.u8(13)?;
    put_flags(line, set);
    if header_len > part.length {
        put!(line, " [bad hdr length {header_len} - too long, > {}]", part.length);
        return Ok(());
    }
    let (sequence, length) = (part.u32(4)?, part.length - header_len);
    if length > 0 || set & (flags::SYN | flags::FIN | flags::RST) != 0 {
        put!(line, ", seq {sequence}");
    }
    if length > 0 {
        put!(line, ":{}", sequence.wrapping_add(length as u32));
    }
    if set & flags::ACK != 0 {
        put!(line, ", ack {}", part.u32(8)?);
    }
    put!(line, ", win {}", part.u16(14)?);
    if set & flags::URG != 0 {
        put!(line, ", urg {}", part.u16(18)?);
    }
    if header_len > HEADER_LEN && !put_options(line, part.skip(HEADER_LEN).limit(header_len - HEADER_LEN))? {
        return Ok(());
    }
    put!(line, ", length {length}");
    if length > 0 && part.bytes.len() < header_len {
        put!(line, " [remaining caplen({}) < header length({header_len})]", part.bytes.len());
        return part.cut();
    }
    Ok(())
}

fn put_flags(line: &mut SummaryLine<'_>, set: u8) {
    put!(line, "Flags [");
    for (_, letter) in FLAGS.iter().filter(|(flag, _)| set & flag != 0) {
        put!(line, "{letter}");
    }
    put!(line, "{}]", if set == 0 { "none" } else { "" });
}

/// Writes the options; returns false at a bad option, after which the rest is not decoded.
fn put_options(line: &mut SummaryLine<'_>, mut part: Part<'_>) -> Result<bool, Cut> {
    let mut separator = "";
    put!(line, ", options [");
    while part.length > 0 {
        put!(line, "{separator}");
        let taken = match part.u8(0)? {
            0 => {
                put!(line, "eol");
                break;
            }
            1 => {
                put!(line, "nop");
                Some(1)
            }
            kind => put_option(line, kind, part)?,
        };
        let Some(taken) = taken else {
            put!(line, "[bad opt]{}", if separator.is_empty() { "" } else { "]" });
            return Ok(false);
        };
        part = part.skip(taken);
        separator = ",";
    }
    put!(line, "]");
    Ok(true)
}

const NAMES: &[(u16, &str)] = &[
    (2, "mss"),
    (3, "wscale"),
    (4, "sackOK"),
    (5, "sack"),
    (6, "echo"),
    (7, "echoreply"),
    (8, "TS"),
    (19, "md5"),
    (28, "uto"),
    (29, "tcp-ao"),
    (30, "mptcp"),
    (34, "tfo"),
];

fn put_option_name(line: &mut SummaryLine<'_>, kind: u8) {
    match name(NAMES, kind) {
        Some(name) => put!(line, "{name}"),
        None => put!(line, "unknown-{kind}"),
    }
}

/// Writes an option with a length. Returns the number of bytes that it needs, whatever its length field says; `None` if
/// there are fewer.
fn put_option(line: &mut SummaryLine<'_>, kind: u8, part: Part<'_>) -> Result<Option<usize>, Cut> {
    let said = if part.length < 2 { 0 } else { usize::from(part.u8(1)?) };
    if said < 2 || said > part.length {
        return Ok(None);
    }
    put_option_name(line, kind);
    let data = part.skip(2);
    let needed = match kind {
        2 => 2,
        3 => 1,
        4 => 0,
        6 | 7 => 4,
        8 => 8,
        _ => said - 2,
    };
    if data.length < needed {
        return Ok(None);
    }
    match kind {
        2 => put!(line, " {}", data.u16(0)?),
        3 => put!(line, " {}", data.u8(0)?),
        4 => {}
        5 if needed % 8 != 0 => put!(line, " invalid sack"),
        5 => {
            put!(line, " {} ", needed / 8);
            for at in (0..needed).step_by(8) {
                put!(line, "{{{}:{}}}", data.u32(at)?, data.u32(at + 4)?);
            }
        }
        6 | 7 => put!(line, " {}", data.u32(0)?),
        8 => put!(line, " val {} ecr {}", data.u32(0)?, data.u32(4)?),
        _ => {
            put!(line, "{}", if needed > 0 { " 0x" } else { "" });
            for at in 0..needed {
                put!(line, "{:02x}", data.u8(at)?);
            }
        }
    }
    if said != needed + 2 {
        put!(line, "[len {said}]");
    }
    Ok(Some(2 + needed))
}

//! UDP (RFC 768).

use super::ip::IpEnds;
use super::{Part, SummaryLine, Written, put};

const HEADER_LEN: usize = 8;

/// Writes a datagram; `fragment` if it is the first of several fragments.
pub(super) fn datagram(line: &mut SummaryLine<'_>, part: Part<'_>, ends: IpEnds<'_>, fragment: bool) -> Written {
    let (Ok(src_port), Ok(dst_port)) = (part.u16(0), part.u16(2)) else {
        ends.put(line);
        put!(line, "{}", if ends.written { "" } else { " " });
        return part.cut();
    };
    ends.put_with_ports(line, src_port, dst_port);
    if part.length < HEADER_LEN {
        put!(line, "truncated-udp {}", part.length);
        return Ok(());
    }
    let said = usize::from(part.u16(4)?);
    // A datagram that is too long for its length field has 0 there (RFC 2675, section 4).
    let length = if said == 0 && part.length > 65_535 { part.length } else { said };
    if length < HEADER_LEN {
        put!(line, "truncated-udplength {length}");
        return Ok(());
    }
    part.get(0, HEADER_LEN)?;
    match length > part.length && !fragment {
        true => put!(line, "UDP, bad length {} > {}", length - HEADER_LEN, part.length - HEADER_LEN),
        false => put!(line, "UDP, length {}", length - HEADER_LEN),
    }
    Ok(())
}

//! IPv4 and IPv6, and the demultiplexing of their payload.

use std::fmt::Display;

use super::{Cut, Part, SummaryLine, Written, icmp, icmpv6, link, other, put, tcp, udp};
use crate::IpProtocol;

/// The addresses of a packet, for upper layers that write ports beside the addresses.
#[derive(Clone, Copy)]
pub(super) struct IpEnds<'a> {
    pub src: &'a dyn Display,
    pub dst: &'a dyn Display,
    /// Whether they have been written.
    pub written: bool,
}

impl IpEnds<'_> {
    /// `src.1 > dst.2: `, or `1 > 2: ` if the addresses have been written.
    pub(super) fn put_with_ports(&self, line: &mut SummaryLine<'_>, src_port: u16, dst_port: u16) {
        match self.written {
            true => put!(line, "{src_port} > {dst_port}: "),
            false => put!(line, "{}.{src_port} > {}.{dst_port}: ", self.src, self.dst),
        }
    }

    /// `src > dst:`, unless it has been written.
    pub(super) fn put(&self, line: &mut SummaryLine<'_>) {
        if !self.written {
            put!(line, "{} > {}:", self.src, self.dst);
        }
    }
}

/// The fields of a packet's header that the upper layer needs.
#[derive(Clone, Copy)]
struct Carried<'a> {
    ends: IpEnds<'a>,
    version: u8,
    /// Whether it is the first of several fragments.
    fragment: bool,
}

/// Ports are written beside the addresses, so the layer that reads the ports writes both.
fn has_ports(protocol: IpProtocol) -> bool {
    matches!(protocol, IpProtocol::TCP | IpProtocol::UDP | other::SCTP | other::DCCP)
}

/// IPv4 or IPv6.
pub(super) fn either(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    match part.of("raw").u8(0)? >> 4 {
        4 => v4(line, part),
        6 => v6(line, part),
        version => {
            put!(line, "unknown ip {version}");
            Ok(())
        }
    }
}

pub(super) fn v4(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    line.nested(|line| v4_packet(line, part.of("ip")))
}

fn v4_packet(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    match part.u8(0)? >> 4 {
        4 => put!(line, "IP "),
        6 => {
            put!(line, "IP6, wrong link-layer encapsulation (invalid)");
            return Ok(());
        }
        version => {
            put!(line, "IP{version} (invalid)");
            return Ok(());
        }
    }
    part.get(0, 20)?;
    let (header_len, total_len) = (usize::from(part.u8(0)? & 15) * 4, usize::from(part.u16(2)?));
    if header_len < 20 {
        put!(line, "bad-hlen {header_len}");
        return Ok(());
    }
    if part.length < total_len {
        put!(line, "truncated-ip - {} bytes missing! ", total_len - part.length);
    }
    if total_len < header_len {
        put!(line, "bad-len {total_len}");
        return Ok(());
    }
    let fragment = part.u16(6)?;
    let protocol = IpProtocol(part.u8(9)?);
    let (src, dst) = (part.ipv4(12)?, part.ipv4(16)?);
    let mut ends = IpEnds { src: &src, dst: &dst, written: false };
    if fragment & 0x1fff != 0 {
        put!(line, "{src} > {dst}: ip-proto-{}", protocol.0);
        return Ok(());
    }
    if !has_ports(protocol) {
        ends.put(line);
        put!(line, " ");
        ends.written = true;
    }
    let packet = part.limit(total_len);
    let there = packet.bytes.len();
    if there < header_len {
        put!(line, " [remaining caplen({there}) < header length({header_len})]");
        return part.cut();
    }
    demultiplex(line, protocol, packet.skip(header_len), Carried { ends, version: 4, fragment: fragment & 0x2000 != 0 })
}

pub(super) fn v6(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    line.nested(|line| v6_packet(line, part.of("ip6")))
}

fn v6_packet(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    part.get(0, 40)?;
    put!(line, "IP6 ");
    let version = part.u8(0)? >> 4;
    if version != 6 {
        put!(line, "version error: {version} != 6");
        return Ok(());
    }
    let payload_len = usize::from(part.u16(4)?);
    if payload_len > part.length - 40 {
        put!(line, "truncated-ip6 - {} bytes missing!", payload_len + 40 - part.length);
    }
    let protocol = IpProtocol(part.u8(6)?);
    let (src, dst) = (part.ipv6(8)?, part.ipv6(24)?);
    let ends = IpEnds { src: &src, dst: &dst, written: false };
    // A jumbogram has a length of 0. A hop-by-hop option gives its real length.
    let packet = if payload_len == 0 { part } else { part.limit(payload_len + 40) };
    let part = packet.skip(40);
    let headers = Headers { part, first: true, options_seen: false, fragment: false, jumbo: payload_len == 0 };
    headers.write(line, protocol, ends)
}

/// An IPv6 packet after its header, while its extension headers are read.
struct Headers<'a> {
    /// The remaining bytes.
    part: Part<'a>,
    /// Whether no extension header has been read yet.
    first: bool,
    /// Whether one of those already read had hop-by-hop options.
    options_seen: bool,
    /// Whether one of them marks the first of several fragments.
    fragment: bool,
    /// Whether the packet's length is still to be found in a hop-by-hop option.
    jumbo: bool,
}

impl Headers<'_> {
    /// Writes the extension headers, and the payload after them.
    fn write(mut self, line: &mut SummaryLine<'_>, mut protocol: IpProtocol, mut ends: IpEnds<'_>) -> Written {
        if !has_ports(protocol) {
            ends.put(line);
            put!(line, " ");
            ends.written = true;
        }
        loop {
            let len = match protocol {
                IpProtocol::IPV6_HOP_BY_HOP => self.hop_by_hop_options(line)?,
                IpProtocol::IPV6_DESTINATION => {
                    let len = options_len(self.part.of("dstopt"))?;
                    put!(line, "DSTOPT ");
                    Some(len)
                }
                IpProtocol::IPV6_FRAGMENT => self.fragment(line)?,
                IpProtocol::IPV6_ROUTE => routing_header(line, self.part)?,
                _ => return self.payload(line, protocol, ends),
            };
            // Without a length nothing more can be read.
            let Some(len) = len else { return Ok(()) };
            protocol = IpProtocol(self.part.u8(0)?);
            self.part = self.part.skip(len);
            self.first = false;
        }
    }

    fn hop_by_hop_options(&mut self, line: &mut SummaryLine<'_>) -> Result<Option<usize>, Cut> {
        if !self.first {
            let problem = if self.options_seen { "was already found" } else { "don't follow the IPv6 header" };
            put!(line, "[The Hop-by-Hop Options header {problem}] (invalid)");
            return Ok(None);
        }
        self.options_seen = true;
        let part = self.part.of("hbhopt");
        let len = options_len(part)?;
        put!(line, "HBH ");
        match jumbo_len(part.limit(len).skip(2))? {
            None if self.jumbo => {
                put!(line, "[No valid Jumbo Payload Hop-by-Hop option found] (invalid)");
                return Ok(None);
            }
            Some(jumbo) if self.jumbo => {
                if part.length < jumbo {
                    put!(line, "truncated-ip6 - {} bytes missing!", jumbo - part.length);
                }
                self.part = part.limit(jumbo);
                self.jumbo = false;
            }
            _ => {}
        }
        Ok(Some(len))
    }

    fn fragment(&mut self, line: &mut SummaryLine<'_>) -> Result<Option<usize>, Cut> {
        let part = self.part.of("frag6");
        let offset = part.u16(2)? & 0xfff8;
        put!(line, "frag ({offset}|{}) ", part.length.saturating_sub(8));
        self.fragment = true;
        // A fragment that is not the first has no headers.
        Ok((offset == 0 && part.bytes.len() > 8).then_some(8))
    }

    fn payload(self, line: &mut SummaryLine<'_>, protocol: IpProtocol, ends: IpEnds<'_>) -> Written {
        let part = match (self.jumbo, self.first) {
            (false, _) => self.part,
            // A real length of 0.
            (true, true) => self.part.limit(0),
            (true, false) => return self.part.of("ip6").cut(),
        };
        demultiplex(line, protocol, part, Carried { ends, version: 6, fragment: self.fragment })
    }
}

/// The length of an options header, which must be complete.
fn options_len(part: Part<'_>) -> Result<usize, Cut> {
    let len = 8 * (usize::from(part.u8(1)?) + 1);
    part.get(0, len).map(|_| len)
}

/// The length of a jumbogram (RFC 2675), if a header of hop-by-hop options has it.
fn jumbo_len(mut options: Part<'_>) -> Result<Option<usize>, Cut> {
    let mut jumbo = None;
    while options.length > 0 {
        let kind = options.u8(0)?;
        let len = if kind == 0 { 1 } else { usize::from(options.u8(1)?) + 2 };
        options.get(0, len)?;
        if (kind, len, jumbo) == (0xc2, 6, None) {
            // A length that would fit into the usual field is not allowed.
            jumbo = usize::try_from(options.u32(2)?).ok().filter(|len| *len > usize::from(u16::MAX));
        }
        options = options.skip(len);
    }
    Ok(jumbo)
}

/// Writes a routing header (RFC 8200, section 4.4; RFC 8754) and returns its length, unless it cannot be read.
fn routing_header(line: &mut SummaryLine<'_>, part: Part<'_>) -> Result<Option<usize>, Cut> {
    if part.bytes.is_empty() {
        return part.of("ip6").cut();
    }
    let part = part.of("rt6");
    put!(line, "RT6");
    let units = usize::from(part.u8(1)?);
    put!(line, " (len={units}");
    let kind = part.u8(2)?;
    put!(line, ", type={kind}{}", if kind == 0 { " [Deprecated]" } else { "" });
    put!(line, ", segleft={}", part.u8(3)?);
    if !matches!(kind, 0 | 2 | 4) {
        put!(line, " (unknown type) (invalid)");
        return Ok(None);
    }
    if kind == 4 {
        put!(line, ", last-entry={}", part.u8(4)?);
        match part.u8(5)? {
            0 => {}
            flags => put!(line, ", flags=0x{flags:x}"),
        }
        put!(line, ", tag={:x}", part.u16(6)?);
    } else if part.u32(4)? != 0 {
        put!(line, ", rsv=0x{:x}", part.u32(4)?);
    }
    if units % 2 == 1 {
        put!(line, " (invalid length {units}) (invalid)");
        return Ok(None);
    }
    for segment in 0..units / 2 {
        put!(line, ", [{segment}]{}", part.ipv6(8 + 16 * segment)?);
    }
    put!(line, ") ");
    Ok(Some(8 * (units + 1)))
}

/// Passes a payload to the function for its protocol.
fn demultiplex(line: &mut SummaryLine<'_>, protocol: IpProtocol, part: Part<'_>, carried: Carried<'_>) -> Written {
    let Carried { ends, version, fragment } = carried;
    match (protocol, version) {
        (IpProtocol::TCP, _) => tcp::segment(line, part.of("tcp"), ends),
        (IpProtocol::UDP, _) => udp::datagram(line, part.of("udp"), ends, fragment),
        (IpProtocol::ICMP, 4) => icmp::message(line, part.of("icmp")),
        (IpProtocol::ICMPV6, 6) => icmpv6::message(line, part.of("icmp6")),
        (IpProtocol::ICMP, _) => wrong_version(line, "ICMP", 4),
        (IpProtocol::ICMPV6, _) => wrong_version(line, "ICMPv6", 6),
        (other::IGMP, 4) => other::igmp(line, part.of("igmp")),
        (other::IGMP, _) => wrong_version(line, "IGMP", 4),
        (other::ETHERNET, 4) => wrong_version(line, "Ethernet", 6),
        (other::ETHERNET, _) => line.nested(|line| link::ethernet(line, part)),
        (other::IPV4, _) => v4(line, part),
        (other::IPV6, _) => v6(line, part),
        (IpProtocol::AH, _) => {
            let (next, payload) = other::authentication_header(line, part.of("ah"))?;
            // The addresses have been written, because AH itself has no ports.
            line.nested(|line| demultiplex(line, next, payload, carried))
        }
        _ => other::protocol(line, protocol, version, part, ends),
    }
}

fn wrong_version(line: &mut SummaryLine<'_>, name: &str, version: u8) -> Written {
    put!(line, "[{name} requires IPv{version}] (invalid)");
    Ok(())
}

//! ARP and reverse ARP (RFC 826, RFC 903, RFC 2390).

use super::{Cut, Part, SummaryLine, Written, link, put};
use crate::EtherType;

/// Trailer encapsulation (RFC 893), which also uses IPv4 addresses.
const TRAIL: EtherType = EtherType(0x1000);

/// The offsets and lengths of the four addresses.
struct Addresses<'a> {
    part: Part<'a>,
    hardware_len: usize,
    protocol_len: usize,
}

impl<'a> Addresses<'a> {
    fn sender_mac(&self) -> Result<&'a [u8], Cut> {
        self.part.get(8, self.hardware_len)
    }

    fn target_mac(&self) -> Result<&'a [u8], Cut> {
        self.part.get(8 + self.hardware_len + self.protocol_len, self.hardware_len)
    }

    fn put_sender_ip(&self, line: &mut SummaryLine<'_>) -> Written {
        put!(line, "{}", self.part.ipv4(8 + self.hardware_len)?);
        Ok(())
    }

    fn put_target_ip(&self, line: &mut SummaryLine<'_>) -> Written {
        put!(line, "{}", self.part.ipv4(8 + 2 * self.hardware_len + self.protocol_len)?);
        Ok(())
    }
}

fn put_mac(line: &mut SummaryLine<'_>, address: &[u8]) {
    for (index, byte) in address.iter().enumerate() {
        put!(line, "{}{byte:02x}", if index > 0 { ":" } else { "" });
    }
}

pub(super) fn packet(line: &mut SummaryLine<'_>, part: Part<'_>) -> Written {
    let part = part.of("arp");
    let (hardware, protocol, operation) = (part.u16(0)?, part.ether_type(2)?, part.u16(6)?);
    let (hardware_len, protocol_len) = (part.u8(4)?.into(), part.u8(5)?.into());
    let addresses = Addresses { part, hardware_len, protocol_len };
    part.get(0, 8 + 2 * (hardware_len + protocol_len))?;
    put!(line, "ARP, ");
    if !matches!(protocol, EtherType::IPV4 | TRAIL) || protocol_len != 4 || hardware_len == 0 {
        match hardware {
            1 => put!(line, "Ethernet (len {hardware_len}), "),
            _ => put!(line, "Unknown Hardware ({hardware}) (len {hardware_len}), "),
        }
        match link::type_name(protocol) {
            "Unknown" => put!(line, "Unknown Protocol (0x{:04x}) (len {protocol_len})", protocol.0),
            name => put!(line, "{name} (len {protocol_len})"),
        }
    } else if !put_operation(line, operation, &addresses)? {
        return Ok(());
    }
    put!(line, ", length {}", part.length);
    Ok(())
}

/// Writes the operation; returns false if it is unknown.
fn put_operation(line: &mut SummaryLine<'_>, operation: u16, addresses: &Addresses<'_>) -> Result<bool, Cut> {
    match operation {
        1 => {
            put!(line, "Request who-has ");
            addresses.put_target_ip(line)?;
            // A request asks for the target's address. A requester that already knows it wants it confirmed.
            let target = addresses.target_mac()?;
            if target.iter().any(|byte| *byte != 0) {
                put!(line, " (");
                put_mac(line, target);
                put!(line, ")");
            }
            put!(line, " tell ");
            addresses.put_sender_ip(line)?;
        }
        2 => {
            put!(line, "Reply ");
            addresses.put_sender_ip(line)?;
            put!(line, " is-at ");
            put_mac(line, addresses.sender_mac()?);
        }
        3 | 8 => {
            put!(line, "{} Request who-is ", if operation == 3 { "Reverse" } else { "Inverse" });
            put_mac(line, addresses.target_mac()?);
            put!(line, " tell ");
            put_mac(line, addresses.sender_mac()?);
        }
        4 => {
            put!(line, "Reverse Reply ");
            put_mac(line, addresses.target_mac()?);
            put!(line, " at ");
            addresses.put_target_ip(line)?;
        }
        9 => {
            put!(line, "Inverse Reply ");
            put_mac(line, addresses.sender_mac()?);
            put!(line, " at ");
            addresses.put_sender_ip(line)?;
        }
        other => {
            put!(line, "{}", if other == 10 { "NACK Reply" } else { "Unknown" });
            if other != 10 {
                put!(line, " ({other})");
            }
            return Ok(false);
        }
    }
    Ok(true)
}

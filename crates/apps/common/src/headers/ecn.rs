//! Marks of congestion (ECN, RFC 3168) in tunnels (RFC 6040).

use bellows_wire::EtherType;

use super::{ETHERNET, read};

/// The bits of the traffic class.
pub const ECN: u8 = 3;
const CE: u8 = 3;
const NOT_ECT: u8 = 0;

/// What becomes of the ECN bits of a packet that comes out of a tunnel (RFC 6040, section 4.2). `None`: it is dropped.
#[inline(always)]
pub fn decapsulated_ecn(inner: u8, outer: u8) -> Option<u8> {
    match (inner & ECN, outer & ECN) {
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (_, CE) => Some(CE),
        // ECT(1) says more than ECT(0).
        (2, 1) => Some(1),
        (inner, _) => Some(inner),
    }
}

/// Sets the ECN bits of an IP packet.
#[inline]
pub fn set_ecn(ip: &mut [u8], is_v6: bool, ecn: u8) {
    if is_v6 {
        ip[1] = ip[1] & !(ECN << 4) | ecn << 4;
        return;
    }
    let old = [ip[0], ip[1]];
    ip[1] = ip[1] & !ECN | ecn;
    let checksum = bellows_wire::checksum::update(u16::from_be_bytes([ip[10], ip[11]]), &old, &[ip[0], ip[1]]);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The fixed header of an IP packet in a frame, with its ECN bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    start: usize,
    is_v6: bool,
    /// With the ECN bits.
    pub traffic_class: u8,
}

impl Marked {
    /// The one behind an Ethernet header and its VLAN tags, if it is whole. Hot.
    #[inline(always)]
    pub fn find(frame: &[u8], ethernet: usize) -> Option<Marked> {
        let mut at = ethernet + ETHERNET - 2;
        loop {
            match EtherType(read(frame, at)) {
                EtherType::VLAN | EtherType::SERVICE_VLAN => at += 4,
                kind => return Marked::read(frame, at + 2, kind),
            }
        }
    }

    /// The one of an EtherType, if it is whole. Hot.
    #[inline(always)]
    pub fn read(frame: &[u8], start: usize, kind: EtherType) -> Option<Marked> {
        let is_v6 = kind == EtherType::IPV6;
        let header = frame.get(start..start + length(is_v6))?;
        let is_ip = (is_v6 || kind == EtherType::IPV4) && header[0] >> 4 == if is_v6 { 6 } else { 4 };
        let traffic_class = if is_v6 { header[0] << 4 | header[1] >> 4 } else { header[1] };
        is_ip.then_some(Marked { start, is_v6, traffic_class })
    }

    /// Where it ends.
    #[inline]
    pub fn end(&self) -> usize {
        self.start + length(self.is_v6)
    }

    /// Gives it the ECN bits with which it comes out of a tunnel with this traffic class. False if it is to be dropped.
    #[inline]
    pub fn take_out(self, frame: &mut [u8], outer: u8) -> bool {
        let Some(ecn) = decapsulated_ecn(self.traffic_class, outer) else { return false };
        if ecn != self.traffic_class & ECN {
            set_ecn(&mut frame[self.start..], self.is_v6, ecn);
        }
        true
    }
}

/// Bytes of a fixed header.
#[inline(always)]
fn length(is_v6: bool) -> usize {
    if is_v6 { 40 } else { 20 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ecn_comes_out_as_rfc_6040_has_it() {
        // Rows: inner Not-ECT, ECT(1), ECT(0), CE. Columns: outer Not-ECT, ECT(1), ECT(0), CE.
        let table = [
            (0, [Some(0), Some(0), Some(0), None]),
            (1, [Some(1), Some(1), Some(1), Some(3)]),
            (2, [Some(2), Some(1), Some(2), Some(3)]),
            (3, [Some(3), Some(3), Some(3), Some(3)]),
        ];
        for (inner, row) in table {
            for (outer, expected) in (0..).zip(row) {
                assert_eq!(decapsulated_ecn(inner | 0x88, outer | 0x40), expected, "{inner} in {outer}");
            }
        }
    }
}

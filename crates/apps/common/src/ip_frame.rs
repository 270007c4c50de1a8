//! Where the IP packet of an Ethernet frame is.

use bellows_wire::EtherType;

use crate::headers::ETHERNET;

/// Bytes of a VLAN tag, and the maximum number of tags in front of an IP packet.
const TAG: usize = 4;
const MAX_TAGS: usize = 2;

/// The version of an IP packet, by its EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// An IP packet in a frame. Its header has not been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpFrame {
    /// By the EtherType in front of it.
    pub version: Version,
    /// Where the IP header begins.
    pub at: usize,
    /// The VLANs, 12 bits for each tag, and the number of tags above 24 bits.
    pub vlans: u32,
}

impl IpFrame {
    /// Finds the IP packet behind up to two VLAN tags. `None` if there is none.
    #[inline]
    pub fn find(frame: &[u8]) -> Option<IpFrame> {
        let mut vlans = 0;
        for tags in 0..=MAX_TAGS {
            let at = ETHERNET + TAG * tags;
            let version = match EtherType(u16::from_be_bytes(*frame.get(at - 2..)?.first_chunk()?)) {
                EtherType::IPV4 => Version::V4,
                EtherType::IPV6 => Version::V6,
                EtherType::VLAN | EtherType::SERVICE_VLAN => {
                    let id = u16::from_be_bytes(*frame.get(at..)?.first_chunk()?) & 0xfff;
                    vlans = vlans << 12 | u32::from(id);
                    continue;
                }
                _ => return None,
            };
            return Some(IpFrame { version, at, vlans: vlans | (tags as u32) << 24 });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packet_is_behind_up_to_two_tags() {
        let frame = |types: &[u8]| [&[0; 12], types].concat();
        let find = |types| IpFrame::find(&frame(types)).map(|it| (it.version, it.at, it.vlans));
        assert_eq!(find(&[8, 0]), Some((Version::V4, 14, 0)));
        assert_eq!(find(&[0x81, 0, 0xe0, 7, 0x86, 0xdd]), Some((Version::V6, 18, 1 << 24 | 7)));
        assert_eq!(find(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0]), Some((Version::V4, 22, 2 << 24 | 1 << 12 | 2)));
        for other in [&[8, 6][..], &[8], &[0x81, 0, 0], &[0x81, 0, 0, 1, 0x81, 0, 0, 1, 0x81, 0, 0, 1, 8, 0]] {
            assert_eq!(find(other), None, "{other:02x?}");
        }
    }
}

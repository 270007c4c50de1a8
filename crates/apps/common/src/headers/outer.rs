//! The outermost IP header of a packet, read field by field.

use bellows_wire::ipv4::Ipv4Packet;
use bellows_wire::ipv6::Ipv6Packet;
use bellows_wire::{IpPair, IpProtocol};

use super::ETHERNET;

/// Why a packet has no whole payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotWhole {
    /// Its headers are not right, or say that it is longer than it is.
    Malformed,
    /// It is a fragment of one.
    Fragment,
}

/// An IP packet behind an Ethernet header.
pub struct Outer {
    /// Its source and destination.
    pub addresses: IpPair,
    /// The first protocol that is no extension header.
    pub protocol: IpProtocol,
    /// The traffic class, or type of service.
    pub traffic_class: u8,
    /// Where the bytes of that protocol begin.
    pub start: usize,
    /// Where they end.
    pub end: usize,
}

impl Outer {
    /// Reads it.
    ///
    /// # Errors
    /// If it is not whole.
    pub fn read(frame: &[u8]) -> Result<Outer, NotWhole> {
        let ip = frame.get(ETHERNET..).ok_or(NotWhole::Malformed)?;
        match ip.first().map(|first| first >> 4) {
            Some(4) => {
                let packet = Ipv4Packet::new_checked(ip).map_err(|_| NotWhole::Malformed)?;
                if packet.more_fragments() || packet.fragment_offset() != 0 {
                    return Err(NotWhole::Fragment);
                }
                let end = ETHERNET + usize::from(packet.total_len());
                let (addresses, traffic_class) = (packet.addresses(), packet.traffic_class());
                let start = end - packet.payload().len();
                Ok(Outer { addresses, protocol: packet.protocol(), traffic_class, start, end })
            }
            Some(6) => {
                let packet = Ipv6Packet::new_checked(ip).map_err(|_| NotWhole::Malformed)?;
                let upper = packet.upper_layer().map_err(|_| NotWhole::Malformed)?;
                if upper.fragment.is_some_and(|fragment| fragment.more || fragment.offset != 0) {
                    return Err(NotWhole::Fragment);
                }
                let end = ETHERNET + 40 + packet.payload().len();
                let (addresses, traffic_class) = (packet.addresses(), packet.traffic_class());
                let start = end - upper.payload.len();
                Ok(Outer { addresses, protocol: upper.protocol, traffic_class, start, end })
            }
            _ => Err(NotWhole::Malformed),
        }
    }
}

//! Packets of IPv4 for the router.

use std::net::Ipv4Addr;

use bellows_common::ipv4_options::{FIXED_HEADER, Records, Station};
use bellows_vrf::{IcmpError, Reason};
use bellows_wire::icmp::{IcmpMessage, message_type};
use bellows_wire::ipv4::Ipv4Packet;
use bellows_wire::{IpPair, IpProtocol, Sum};

use super::{Family, HOPS, Kind, Message, Own};
use crate::ipv6_options::BadOptions;

/// The local packets of IPv4.
pub struct V4;

impl Family for V4 {
    const NAME: &'static str = "ip4-local";

    fn kind(ip: &[u8]) -> Result<Kind, bellows_wire::Error> {
        let view = Ipv4Packet::new_checked(ip)?;
        let message = match view.protocol() {
            _ if view.more_fragments() || view.fragment_offset() != 0 => Message::Fragment,
            IpProtocol::ICMP => {
                let icmp = IcmpMessage::new_checked(view.payload())?;
                match icmp.message_type() {
                    _ if Sum::new().add_bytes(view.payload()).finish() != 0 => Message::BadChecksum,
                    message_type::V4_ECHO_REQUEST => match Records::find(view.header()) {
                        Ok(_) => Message::Echo,
                        Err(at) => {
                            let error = IcmpError { reason: Reason::ParameterProblem, value: at as u16 };
                            Message::BadOptions(BadOptions::Told(error))
                        }
                    },
                    _ => Message::Other,
                }
            }
            IpProtocol::TCP | IpProtocol::UDP => Message::Port,
            _ => Message::Protocol(0),
        };
        Ok(Kind { source: view.src().into(), destination: view.dst().into(), message })
    }

    fn is_echo_request(ip: &[u8]) -> bool {
        let is = |header: &[u8; 21]| {
            header[0] == 0x45
                && (header[6] & 0x3f, header[7]) == (0, 0)
                && header[9] == IpProtocol::ICMP.0
                && header[20] == message_type::V4_ECHO_REQUEST
        };
        ip.first_chunk().is_some_and(is)
    }

    /// With the same options, in which the router is entered as well (RFC 1812, section 4.3.3.6).
    fn reply(ip: &mut [u8], own: Own<'_>) -> Result<usize, bellows_wire::Error> {
        let mut view = Ipv4Packet::new_checked(&mut *ip)?;
        let length = view.total_len().into();
        let (src, dst): (Ipv4Addr, Ipv4Addr) = (view.src(), view.dst());
        view.set_src(dst);
        view.set_dst(src);
        view.set_ttl(HOPS);
        view.fill_checksum();
        let header = view.header().len();
        let mut icmp = IcmpMessage::new_checked(view.payload_mut())?;
        icmp.set_message_type(message_type::V4_ECHO_REPLY);
        icmp.fill_checksum(&IpPair::V4 { src: dst, dst: src });
        if header > FIXED_HEADER {
            enter(&mut ip[..header], dst, own);
        }
        Ok(length)
    }
}

/// Enters the router with an address in the options of a header; those that are for the way of the request alone are
/// taken out.
#[cold]
fn enter(header: &mut [u8], address: Ipv4Addr, own: Own<'_>) {
    if let Ok(records) = Records::find(header) {
        records.keep_alone(header);
        records.fill_in(header, &Station { address, is_own: &|address| own(address.into()) });
    }
}

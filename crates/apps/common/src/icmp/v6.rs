//! ICMPv6 errors (RFC 4443).

use std::net::{IpAddr, Ipv6Addr};

use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::{IcmpError, Interface, Reason, Word};
use bellows_wire::ipv6::{Ipv6Header, Ipv6Packet};
use bellows_wire::ndp::{self, MAX_DRAFT, MessageDraft};
use bellows_wire::{EtherType, IpPair, IpProtocol, MacAddr};

use super::{Family, Unanswered, compose};

/// The errors of IPv6.
pub struct V6;

/// Bytes of the two headers of an error.
const HEADERS: usize = 40 + 8;

/// The offset of the field of the fixed header that names the next header.
const NEXT_HEADER: u32 = 6;

/// The hops that an error may take.
const HOP_LIMIT: u8 = 64;

impl Family for V6 {
    const NAME: &'static str = "ip6-icmp-error";
    const ETHER_TYPE: EtherType = EtherType::IPV6;
    // RFC 4443, section 2.4 (c): the minimum MTU.
    const MAX_LENGTH: usize = 1280;

    #[inline]
    fn may_answer(ip: &[u8], error: IcmpError, _: Option<&Interface>) -> Result<(), Unanswered> {
        // RFC 4443, section 2.4 (e).
        let header = ip.first_chunk::<40>().ok_or(Unanswered::Malformed)?;
        let [source, destination] = [8, 24].map(|at| {
            let octets: [u8; 16] = std::array::from_fn(|index| header[at + index]);
            Ipv6Addr::from(octets)
        });
        if destination.is_multicast() && !V6::may_be_about_many(error) {
            return Err(Unanswered::AboutMany);
        }
        if source.is_unspecified() || source.is_multicast() || source.is_loopback() {
            return Err(Unanswered::AboutSource);
        }
        let Ok(view) = Ipv6Packet::new_checked(ip) else { return Err(Unanswered::Malformed) };
        let upper = match view.upper_layer() {
            Ok(upper) => upper,
            // The chain goes on in another fragment (RFC 8200, section 4.5).
            Err(_) if error.reason == Reason::IncompleteHeaders => return Ok(()),
            // A chain of headers that cannot be followed may hide an error.
            Err(_) => return Err(Unanswered::Malformed),
        };
        // A later fragment does not show what it is a part of, and is answered (RFC 4443 has no rule against it).
        if upper.fragment.as_ref().is_some_and(|fragment| fragment.offset != 0) {
            return Ok(());
        }
        // Types below 128 are errors; 137 are redirects.
        let is_error = upper.payload.first().is_none_or(|&kind| kind < 128 || kind == 137);
        if upper.protocol == IpProtocol::ICMPV6 && is_error {
            return Err(Unanswered::AboutError);
        }
        Ok(())
    }

    /// Path-MTU discovery, and options that must be known.
    #[inline]
    fn may_be_about_many(error: IcmpError) -> bool {
        error.reason == Reason::TooBig || error.reason == Reason::Unrecognized
    }

    type Address = Ipv6Addr;

    /// A link-local address for a link-local sender, else a global one.
    fn choose(own: impl Iterator<Item = InterfaceAddress> + Clone, sender: Ipv6Addr) -> Option<Ipv6Addr> {
        let find = |wants_link_local: bool| {
            own.clone().find_map(|own| match own.address {
                IpAddr::V6(address) if address.is_unicast_link_local() == wants_link_local => Some(address),
                _ => None,
            })
        };
        let is_link_local = sender.is_unicast_link_local();
        find(is_link_local).or_else(|| find(!is_link_local).filter(|_| is_link_local))
    }

    #[inline]
    fn is_good_elsewhere(own: IpAddr) -> bool {
        matches!(own, IpAddr::V6(own) if !own.is_unicast_link_local())
    }

    fn choose_for_redirect(own: impl Iterator<Item = InterfaceAddress> + Clone, _: Ipv6Addr) -> Option<Ipv6Addr> {
        // RFC 4861, section 8.1: hosts believe no other.
        let mut addresses = own.map(|own| own.address);
        addresses.find_map(|own| match own {
            IpAddr::V6(address) if address.is_unicast_link_local() => Some(address),
            _ => None,
        })
    }

    #[inline]
    fn sender(ip: &[u8]) -> Option<Ipv6Addr> {
        Some((*ip.get(8..)?.first_chunk::<16>()?).into())
    }

    fn write(ip: &[u8], error: IcmpError, own: Ipv6Addr, to: &mut [u8]) -> Option<usize> {
        let sender = V6::sender(ip)?;
        let total = 40 + usize::from(u16::from_be_bytes(*ip.get(4..)?.first_chunk()?));
        let addresses = IpPair::V6 { src: own, dst: sender };
        let quoted = &ip[..total.min(ip.len()).min(V6::MAX_LENGTH - HEADERS)];
        let length = compose(to, 40, quoted, error.reason.v6(), word(error), &addresses)?;
        let header = Ipv6Header {
            src: own,
            dst: sender,
            next_header: IpProtocol::ICMPV6,
            hop_limit: HOP_LIMIT,
            traffic_class: 0,
            flow_label: 0,
        };
        header.emit(&mut to[..length]).ok()?;
        Some(length)
    }

    #[inline]
    fn destination(ip: &[u8]) -> Option<Ipv6Addr> {
        Some(Ipv6Addr::from(*ip.get(24..)?.first_chunk::<16>()?))
    }

    /// RFC 4861, sections 4.5 and 8.2.
    fn write_redirect(
        ip: &[u8],
        own: Ipv6Addr,
        next_hop: IpAddr,
        mac: Option<MacAddr>,
        to: &mut [u8],
    ) -> Option<usize> {
        let sender = V6::sender(ip)?;
        let (IpAddr::V6(target), destination) = (next_hop, V6::destination(ip)?) else { return None };
        let mut draft = MessageDraft::new(Reason::Redirect.v6().kind, 0);
        draft.put(&target.octets()).put(&destination.octets());
        mac.into_iter().for_each(|mac| _ = draft.put_link_layer(ndp::option_type::TARGET_LINK_LAYER, mac));
        // As much of the packet as fits, in whole units.
        let total = (40 + usize::from(u16::from_be_bytes(*ip.get(4..)?.first_chunk()?))).min(ip.len());
        let quoted = total.min(MAX_DRAFT - 40 - 8 - 8) / 8 * 8;
        let units = (quoted / 8 + 1) as u8;
        draft.put(&[ndp::option_type::REDIRECTED, units, 0, 0, 0, 0, 0, 0]).put(&ip[..quoted]);
        let message = draft.finish(&IpPair::V6 { src: own, dst: sender });
        let length = 40 + message.len();
        to.get_mut(40..length)?.copy_from_slice(message);
        let header = Ipv6Header {
            src: own,
            dst: sender,
            next_header: IpProtocol::ICMPV6,
            hop_limit: ndp::HOP_LIMIT,
            traffic_class: 0,
            flow_label: 0,
        };
        header.emit(&mut to[..length]).ok()?;
        Some(length)
    }

    fn addresses(ip: &[u8]) -> Option<[Ipv6Addr; 2]> {
        let octets = ip.get(8..40)?.as_chunks::<16>().0;
        octets.first_chunk::<2>().map(|both| both.map(Ipv6Addr::from))
    }
}

/// The word behind the checksum.
fn word(error: IcmpError) -> u32 {
    match (error.reason.v6().word, u32::from(error.value)) {
        (Word::NextHeader, 0) => NEXT_HEADER,
        (Word::Mtu | Word::Pointer | Word::NextHeader, value) => value,
        (Word::Unused | Word::NextHop, _) => 0,
    }
}

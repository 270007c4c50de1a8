//! Routes and neighbours in messages of rtnetlink (`linux/rtnetlink.h`, `linux/neighbour.h`).
//!
//! A message that does not describe a route whole describes none, because half of one would lead packets astray.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bellows_wire::MacAddr;

use super::{AF_INET, AF_INET6, KernelNeighbour, KernelRoute, RouteKind, Special, Way};
use crate::netlink::{NetlinkMessage, attributes, u16_at, u32_at};

pub(super) const RTM_NEWROUTE: u16 = 24;
pub(super) const RTM_DELROUTE: u16 = 25;
pub(super) const RTM_GETROUTE: u16 = 26;
pub(super) const RTM_NEWNEIGH: u16 = 28;
pub(super) const RTM_DELNEIGH: u16 = 29;
pub(super) const RTM_GETNEIGH: u16 = 30;
const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;

/// The length of `rtmsg`.
pub(super) const ROUTE_LEN: usize = 12;
/// The length of `nhmsg`.
const NEXT_HOP_OBJECT_LEN: usize = 8;
/// The length of `ndmsg`.
pub(super) const NEIGHBOUR_LEN: usize = 12;

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;
const RTA_ENCAP_TYPE: u16 = 21;
const RTA_NH_ID: u16 = 30;

/// Among the metrics.
const RTAX_MTU: u16 = 2;

const NHA_ID: u16 = 1;

/// A copy of a route for one destination, which IPv6 keeps for exceptions.
const RTM_F_CLONED: u32 = 0x200;

const RTNH_F_DEAD: u8 = 1;
const RTNH_F_LINKDOWN: u8 = 16;
/// The length of `rtnexthop`.
const NEXT_HOP_LEN: usize = 8;

const NUD_PERMANENT: u16 = 0x80;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;

/// An address in an attribute, by its length.
fn address(content: &[u8]) -> Option<IpAddr> {
    match content.len() {
        4 => Some(Ipv4Addr::from(*content.first_chunk::<4>()?).into()),
        16 => Some(Ipv6Addr::from(*content.first_chunk::<16>()?).into()),
        _ => None,
    }
}

/// The route in a message of the kernel; `None` if it is about something else.
pub(super) fn route(message: &NetlinkMessage<'_>) -> Option<KernelRoute> {
    if !matches!(message.kind, RTM_NEWROUTE | RTM_DELROUTE) || message.body.len() < ROUTE_LEN {
        return None;
    }
    let (header, rest) = message.body.split_at(ROUTE_LEN);
    let (unspecified, bits): (IpAddr, u8) = match header[0] {
        AF_INET => (Ipv4Addr::UNSPECIFIED.into(), 32),
        AF_INET6 => (Ipv6Addr::UNSPECIFIED.into(), 128),
        _ => return None,
    };
    let (length, source_length, service, flags) = (header[1], header[2], header[3], u32_at(header, 8)?);
    if length > bits || flags & RTM_F_CLONED != 0 {
        return None;
    }
    let mut route = KernelRoute {
        table: header[4].into(),
        destination: unspecified,
        length,
        metric: 0,
        kind: kind(header[7])?,
        ways: Vec::new(),
        special: (service != 0).then_some(Special::TypeOfService),
        protocol: header[5],
        mtu: 0,
        object: None,
    };
    if source_length != 0 {
        route.special = Some(Special::Source);
    }
    let mut single = Way { device: 0, gateway: None, weight: 1, is_dead: is_dead(flags as u8) };
    for (kind, content) in attributes(rest) {
        match kind {
            RTA_DST => route.destination = address(content).filter(|it| it.is_ipv4() == unspecified.is_ipv4())?,
            RTA_SRC => route.special = Some(Special::Source),
            RTA_PRIORITY => route.metric = u32_at(content, 0)?,
            RTA_TABLE => route.table = u32_at(content, 0)?,
            RTA_METRICS => {
                let mtu = attributes(content).find(|(kind, _)| *kind == RTAX_MTU);
                route.mtu = mtu.map_or(Some(0), |(_, content)| u32_at(content, 0))?;
            }
            RTA_MULTIPATH => next_hops(content, &mut route)?,
            RTA_NH_ID => route.object = Some(u32_at(content, 0)?),
            _ => next_hop_attribute(kind, content, &mut single, &mut route.special)?,
        }
    }
    if route.kind != RouteKind::Unicast {
        // IPv6 names the loopback interface.
        route.ways.clear();
    } else if single.device != 0 {
        route.ways.push(single);
    }
    if route.kind == RouteKind::Unicast && route.ways.is_empty() {
        route.special = Some(route.object.map(|_| Special::NextHopObject)?);
    }
    // The kernel may list them in another order later.
    route.ways.sort_unstable();
    Some(route)
}

fn kind(number: u8) -> Option<RouteKind> {
    Some(match number {
        1 => RouteKind::Unicast,
        2..=5 => RouteKind::Local,
        6 => RouteKind::Blackhole,
        7 => RouteKind::Unreachable,
        8 => RouteKind::Prohibit,
        9 => RouteKind::Throw,
        _ => return None,
    })
}

fn is_dead(flags: u8) -> bool {
    flags & (RTNH_F_DEAD | RTNH_F_LINKDOWN) != 0
}

/// Takes in an attribute of a way. `None` if it is damaged.
fn next_hop_attribute(kind: u16, content: &[u8], way: &mut Way, special: &mut Option<Special>) -> Option<()> {
    match kind {
        RTA_OIF => way.device = u32_at(content, 0)?,
        RTA_GATEWAY => way.gateway = Some(address(content)?),
        // The family, and an address.
        RTA_VIA => way.gateway = Some(address(content.get(2..)?)?),
        RTA_ENCAP_TYPE if u16_at(content, 0)? != 0 => *special = Some(Special::Encapsulation),
        _ => {}
    }
    Some(())
}

/// Takes in the ways of a route with several. `None` if they are damaged.
fn next_hops(mut bytes: &[u8], route: &mut KernelRoute) -> Option<()> {
    while !bytes.is_empty() {
        let length = usize::from(u16_at(bytes, 0)?);
        let entry = bytes.get(..length).filter(|entry| entry.len() >= NEXT_HOP_LEN)?;
        let (flags, hops) = (entry[2], entry[3]);
        let mut way =
            Way { device: u32_at(entry, 4)?, gateway: None, weight: u16::from(hops) + 1, is_dead: is_dead(flags) };
        for (kind, content) in attributes(&entry[NEXT_HOP_LEN..]) {
            next_hop_attribute(kind, content, &mut way, &mut route.special)?;
        }
        route.ways.push(way);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(())
}

/// The number of the next hop object that a message of the kernel is about; `None` if it is about something else.
pub(super) fn next_hop_object(message: &NetlinkMessage<'_>) -> Option<u32> {
    let rest = message.body.get(NEXT_HOP_OBJECT_LEN..)?;
    let is_object = matches!(message.kind, RTM_NEWNEXTHOP | RTM_DELNEXTHOP);
    let (_, content) = attributes(rest).filter(|_| is_object).find(|(kind, _)| *kind == NHA_ID)?;
    u32_at(content, 0)
}

/// The neighbour in a message of the kernel; `None` if it is about something else. One that is not permanent, or that
/// is gone, has no Ethernet address here.
pub(super) fn neighbour(message: &NetlinkMessage<'_>) -> Option<KernelNeighbour> {
    if !matches!(message.kind, RTM_NEWNEIGH | RTM_DELNEIGH) || message.body.len() < NEIGHBOUR_LEN {
        return None;
    }
    let (header, rest) = message.body.split_at(NEIGHBOUR_LEN);
    if !matches!(header[0], AF_INET | AF_INET6) {
        return None;
    }
    let (device, state) = (u32_at(header, 4)?, u16_at(header, 8)?);
    let find = |wanted| attributes(rest).find(|(kind, _)| *kind == wanted).map(|(_, content)| content);
    let is_permanent = message.kind == RTM_NEWNEIGH && state & NUD_PERMANENT != 0;
    let mac = find(NDA_LLADDR).filter(|_| is_permanent).and_then(|content| content.try_into().ok().map(MacAddr));
    Some(KernelNeighbour { device, address: address(find(NDA_DST)?)?, mac })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::{NetlinkRequest, messages};

    /// `rtmsg`: family, lengths of prefixes, type of service, table, protocol, scope, type, flags.
    fn header(family: u8, length: u8, kind: u8) -> [u8; ROUTE_LEN] {
        [family, length, 0, 0, 254, 4, 0, kind, 0, 0, 0, 0]
    }

    fn parsed(request: NetlinkRequest) -> Option<KernelRoute> {
        let bytes = request.finish(0);
        messages(&bytes).next().and_then(|message| route(&message))
    }

    fn new_route(family: u8, length: u8, kind: u8) -> NetlinkRequest {
        NetlinkRequest::new(RTM_NEWROUTE, 0, &header(family, length, kind))
    }

    #[test]
    fn routes_are_read() {
        let plain = new_route(AF_INET, 24, 1)
            .attribute(RTA_DST, &[203, 0, 113, 0])
            .attribute(RTA_GATEWAY, &[192, 0, 2, 1])
            .attribute(RTA_OIF, &7u32.to_ne_bytes())
            .attribute(RTA_PRIORITY, &5u32.to_ne_bytes());
        let route = parsed(plain).unwrap();
        let way = Way { device: 7, gateway: Some([192, 0, 2, 1].into()), weight: 1, is_dead: false };
        assert_eq!((route.destination, route.length, route.metric), ([203, 0, 113, 0].into(), 24, 5));
        assert_eq!(
            (route.table, route.kind, &route.ways[..], route.special),
            (254, RouteKind::Unicast, &[way][..], None)
        );

        let hop = |device: u32, hops: u8, flags: u8, gateway: u8| {
            let mut hop = vec![16, 0, flags, hops];
            hop.extend(device.to_ne_bytes());
            hop.extend([8, 0, RTA_GATEWAY as u8, 0, 192, 0, 2, gateway]);
            hop
        };
        let several = [hop(9, 2, 0, 3), hop(7, 0, RTNH_F_LINKDOWN, 1)].concat();
        let route = parsed(new_route(AF_INET, 0, 1).attribute(RTA_MULTIPATH, &several)).unwrap();
        let dead = Way { is_dead: true, ..way };
        let other = Way { device: 9, gateway: Some([192, 0, 2, 3].into()), weight: 3, is_dead: false };
        assert_eq!(route.ways, [dead, other]);

        // `struct rtattr`: RTAX_LOCK, then RTAX_MTU.
        let metrics = [[8u16, 1].map(u16::to_ne_bytes).concat(), 4u32.to_ne_bytes().to_vec()].concat();
        let metrics = [metrics, [8u16, 2].map(u16::to_ne_bytes).concat(), 1400u32.to_ne_bytes().to_vec()].concat();
        let with_mtu = |metrics: &[u8]| {
            parsed(new_route(AF_INET, 0, 1).attribute(RTA_OIF, &7u32.to_ne_bytes()).attribute(RTA_METRICS, metrics))
        };
        assert_eq!(with_mtu(&metrics).map(|route| route.mtu), Some(1400));
        assert_eq!(with_mtu(&metrics[..8]).map(|route| route.mtu), Some(0));

        let via = new_route(AF_INET, 8, 1)
            .attribute(RTA_DST, &[10, 0, 0, 0])
            .attribute(RTA_VIA, &[&10u16.to_ne_bytes()[..], &[0xfe; 16]].concat())
            .attribute(RTA_OIF, &7u32.to_ne_bytes())
            .attribute(RTA_TABLE, &1000u32.to_ne_bytes());
        let route = parsed(via).unwrap();
        assert_eq!((route.ways[0].gateway.unwrap().is_ipv6(), route.table), (true, 1000));

        let refused =
            new_route(AF_INET6, 32, 7).attribute(RTA_DST, &[0x20; 16]).attribute(RTA_OIF, &1u32.to_ne_bytes());
        let route = parsed(refused).unwrap();
        assert_eq!((route.kind, route.ways.len()), (RouteKind::Unreachable, 0));

        let object = new_route(AF_INET, 0, 1).attribute(RTA_NH_ID, &[1, 0, 0, 0]);
        let route = parsed(object).unwrap();
        assert_eq!((route.special, route.object, route.protocol), (Some(Special::NextHopObject), Some(1), 4));
    }

    #[test]
    fn next_hop_objects_have_numbers() {
        let of = |kind: u16, attribute: u16, content: &[u8]| {
            let bytes =
                NetlinkRequest::new(kind, 0, &[AF_INET, 0, 0, 0, 0, 0, 0, 0]).attribute(attribute, content).finish(0);
            messages(&bytes).next().and_then(|message| next_hop_object(&message))
        };
        let number = 77u32.to_ne_bytes();
        assert_eq!((of(104, 1, &number), of(105, 1, &number)), (Some(77), Some(77)));
        assert_eq!((of(106, 1, &number), of(104, 2, &number), of(105, 1, &[1, 2])), (None, None, None));
    }

    #[test]
    fn half_a_route_is_none() {
        assert_eq!(parsed(new_route(AF_INET, 33, 1).attribute(RTA_OIF, &[7, 0, 0, 0])), None);
        assert_eq!(parsed(new_route(AF_INET, 0, 1)), None, "no way");
        assert_eq!(parsed(new_route(AF_INET, 8, 6).attribute(RTA_DST, &[1; 16])), None, "of another family");
        assert_eq!(parsed(new_route(AF_INET, 0, 1).attribute(RTA_MULTIPATH, &[4, 0, 0, 0])), None);
        assert_eq!(parsed(new_route(AF_INET, 0, 1).attribute(RTA_OIF, &[7, 0])), None);
    }

    #[test]
    fn permanent_neighbours_have_an_address() {
        let body = |state: u16| {
            let mut body = vec![AF_INET, 0, 0, 0, 7, 0, 0, 0];
            body.extend(state.to_ne_bytes());
            body.extend([0, 1]);
            body
        };
        let of = |kind, state| {
            let request = NetlinkRequest::new(kind, 0, &body(state)).attribute(NDA_DST, &[192, 0, 2, 7]);
            let bytes = request.attribute(NDA_LLADDR, &[2, 0, 0, 0, 0, 7]).finish(0);
            messages(&bytes).next().and_then(|message| neighbour(&message)).unwrap()
        };
        let known = of(RTM_NEWNEIGH, NUD_PERMANENT);
        assert_eq!(
            (known.device, known.address, known.mac),
            (7, [192, 0, 2, 7].into(), Some(MacAddr([2, 0, 0, 0, 0, 7])))
        );
        assert_eq!((of(RTM_NEWNEIGH, 2).mac, of(RTM_DELNEIGH, NUD_PERMANENT).mac), (None, None));
    }

    proptest! {
        #[test]
        fn any_attributes_can_be_parsed(
            body in vec(0u8..20, 0..20),
            contents in vec((0u16..32, vec(0u8..24, 0..60)), 0..20),
            kind in 24u16..31,
        ) {
            let mut request = NetlinkRequest::new(kind, 0, &body);
            for (kind, content) in &contents {
                request = request.attribute(*kind, content);
            }
            let bytes = request.finish(0);
            for message in messages(&bytes) {
                if let Some(route) = route(&message) {
                    let bits = if route.destination.is_ipv4() { 32 } else { 128 };
                    prop_assert!(route.length <= bits);
                    prop_assert!(route.ways.iter().all(|way| (1..=256).contains(&way.weight)));
                    let has_ways = route.kind == RouteKind::Unicast && route.special != Some(Special::NextHopObject);
                    prop_assert!(has_ways || route.ways.is_empty());
                }
                let _ = (neighbour(&message), next_hop_object(&message));
            }
        }
    }
}

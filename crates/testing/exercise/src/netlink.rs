//! Messages of the kernel about routes, neighbours and interfaces.

use bellows_netif::route::{KernelRoute, RouteEvent, RouteKind, Special, events};

/// The kinds of messages that are read, and two that are not: `RTM_NEWLINK` … `RTM_DELADDR`, `RTM_NEWROUTE` …
/// `RTM_DELNEIGH`, `RTM_NEWNEXTHOP` and `RTM_DELNEXTHOP` (`linux/rtnetlink.h`).
const KINDS: [u16; 12] = [16, 17, 20, 21, 24, 25, 26, 28, 29, 3, 104, 105];

/// Reads any bytes as messages: as they are, and as the bodies of messages, whose lengths and kinds `choice` selects.
/// Returns the number of changes that they report.
pub fn read(choice: u8, bytes: &[u8]) -> usize {
    let kind = KINDS[usize::from(choice) % KINDS.len()];
    let flags = u16::from(choice) << 4;
    let mut framed = Vec::with_capacity(bytes.len() + 32);
    // Two messages, so that what comes behind one is read as well.
    for part in [bytes, &bytes[..bytes.len() / 2]] {
        let length = (part.len() + 16) as u32;
        framed.extend(length.to_ne_bytes());
        framed.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        framed.extend([0; 8]);
        framed.extend(part);
        framed.resize(framed.len().next_multiple_of(4), 0);
    }
    let all = events(bytes).chain(events(&framed));
    all.inspect(check).count()
}

fn check(event: &RouteEvent) {
    match event {
        RouteEvent::Added(route, _) | RouteEvent::Removed(route) => check_route(route),
        RouteEvent::Interface(index, Some(interface)) => {
            assert_eq!(interface.index, *index);
            assert!(!interface.name.contains('\0'));
        }
        RouteEvent::Neighbour(_)
        | RouteEvent::Interface(..)
        | RouteEvent::AddressRemoved(_)
        | RouteEvent::NextHopObject(_)
        | RouteEvent::Overrun => {}
    }
}

/// A route is whole: half of one would lead packets astray.
fn check_route(route: &KernelRoute) {
    let bits = if route.destination.is_ipv4() { 32 } else { 128 };
    assert!(route.length <= bits, "{route:?}");
    assert!(route.ways.iter().all(|way| (1..=256).contains(&way.weight)), "{route:?}");
    assert!(route.ways.is_sorted(), "{route:?}");
    let has_ways = route.kind == RouteKind::Unicast && route.special != Some(Special::NextHopObject);
    assert!(has_ways || route.ways.is_empty(), "{route:?}");
    assert!(!has_ways || !route.ways.is_empty() || route.special.is_some(), "{route:?}");
}

//! Interfaces in messages of rtnetlink (`linux/if_link.h`).
//!
//! An attribute that is missing or has an unexpected length leaves its field empty, because later kernels may change
//! any of them.

use bellows_wire::MacAddr;

use super::{Interface, OperationalState, Statistics, XdpMode, XdpProgram};
use crate::netlink::{NetlinkMessage, attributes, text, u32_at, u64_at};

pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;

/// The length of `ifinfomsg`.
pub(crate) const HEADER_LEN: usize = 16;

pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_MASTER: u16 = 10;
const IFLA_WIRELESS: u16 = 11;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_STATS64: u16 = 23;
pub(crate) const IFLA_NET_NS_FD: u16 = 28;
const IFLA_PROMISCUITY: u16 = 30;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_XDP: u16 = 43;
const IFLA_MIN_MTU: u16 = 50;
const IFLA_MAX_MTU: u16 = 51;
pub(crate) const IFLA_ALT_IFNAME: u16 = 53;

const IFLA_INFO_KIND: u16 = 1;

const IFLA_XDP_ATTACHED: u16 = 2;
const IFLA_XDP_PROG_ID: u16 = 4;
const IFLA_XDP_DRV_PROG_ID: u16 = 5;
const IFLA_XDP_SKB_PROG_ID: u16 = 6;
const IFLA_XDP_HW_PROG_ID: u16 = 7;
const XDP_ATTACHED_DRV: u8 = 1;
const XDP_ATTACHED_SKB: u8 = 2;
const XDP_ATTACHED_HW: u8 = 3;

pub(crate) const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 1 << 3;
const IFF_LOWER_UP: u32 = 1 << 16;

/// The interface in a message of the kernel; `None` if the message is about something else. Messages about a bridge's
/// ports and about wireless events have the same kinds, and do not describe the interface.
pub(crate) fn interface(message: &NetlinkMessage<'_>) -> Option<Interface> {
    if !matches!(message.kind, RTM_NEWLINK | RTM_DELLINK) || message.body.len() < HEADER_LEN {
        return None;
    }
    let (header, rest) = message.body.split_at(HEADER_LEN);
    let is_other_family = header[0] != 0;
    if is_other_family || attributes(rest).any(|(kind, _)| kind == IFLA_WIRELESS) {
        return None;
    }
    let flags = u32_at(header, 8)?;
    let mut interface = Interface {
        index: u32_at(header, 4)?,
        is_up: flags & IFF_UP != 0,
        has_link: flags & IFF_LOWER_UP != 0,
        is_loopback: flags & IFF_LOOPBACK != 0,
        ..Interface::default()
    };
    for (kind, content) in attributes(rest) {
        set_attribute(&mut interface, kind, content);
    }
    // A number of another namespace means nothing here.
    if attributes(rest).any(|(kind, _)| kind == IFLA_LINK_NETNSID) {
        interface.lower = None;
    }
    Some(interface)
}

fn set_attribute(interface: &mut Interface, kind: u16, content: &[u8]) {
    let number = || u32_at(content, 0).unwrap_or(0);
    match kind {
        IFLA_IFNAME => interface.name = text(content),
        IFLA_IFALIAS => interface.alias = Some(text(content)),
        IFLA_ADDRESS => interface.mac = content.try_into().ok().map(MacAddr),
        IFLA_MTU => interface.mtu = number(),
        IFLA_MIN_MTU => interface.min_mtu = number(),
        IFLA_MAX_MTU => interface.max_mtu = number(),
        IFLA_PROMISCUITY => interface.is_promiscuous = number() > 0,
        IFLA_LINK => interface.lower = u32_at(content, 0).filter(|&lower| lower != 0 && lower != interface.index),
        IFLA_MASTER => interface.master = u32_at(content, 0),
        IFLA_NUM_RX_QUEUES => interface.rx_queues = number(),
        IFLA_NUM_TX_QUEUES => interface.tx_queues = number(),
        IFLA_OPERSTATE => interface.state = content.first().map_or_else(OperationalState::default, state),
        IFLA_LINKINFO => {
            let kind = attributes(content).find(|(kind, _)| *kind == IFLA_INFO_KIND);
            interface.kind = kind.map(|(_, content)| text(content));
        }
        IFLA_XDP => interface.xdp = xdp(content),
        IFLA_STATS64 => interface.statistics = statistics(content),
        _ => {}
    }
}

fn state(number: &u8) -> OperationalState {
    match number {
        1 => OperationalState::NotPresent,
        2 => OperationalState::Down,
        3 => OperationalState::LowerLayerDown,
        4 => OperationalState::Testing,
        5 => OperationalState::Dormant,
        6 => OperationalState::Up,
        _ => OperationalState::Unknown,
    }
}

fn xdp(content: &[u8]) -> Vec<XdpProgram> {
    let by_mode = attributes(content).filter_map(|(kind, content)| {
        let mode = match kind {
            IFLA_XDP_DRV_PROG_ID => XdpMode::Native,
            IFLA_XDP_SKB_PROG_ID => XdpMode::Generic,
            IFLA_XDP_HW_PROG_ID => XdpMode::Offload,
            _ => return None,
        };
        Some(XdpProgram { mode, id: u32_at(content, 0)? })
    });
    let programs: Vec<_> = by_mode.collect();
    if programs.is_empty() { only_xdp(content).into_iter().collect() } else { programs }
}

/// The program as kernels before 4.19 describe it: one number, and the mode apart from it.
fn only_xdp(content: &[u8]) -> Option<XdpProgram> {
    let find = |wanted| attributes(content).find(|(kind, _)| *kind == wanted).map(|(_, content)| content);
    let mode = match *find(IFLA_XDP_ATTACHED)?.first()? {
        XDP_ATTACHED_DRV => XdpMode::Native,
        XDP_ATTACHED_SKB => XdpMode::Generic,
        XDP_ATTACHED_HW => XdpMode::Offload,
        _ => return None,
    };
    Some(XdpProgram { mode, id: u32_at(find(IFLA_XDP_PROG_ID)?, 0)? })
}

/// Counters that a kernel does not have are zero.
fn statistics(content: &[u8]) -> Statistics {
    /// Compressed frames, which only serial lines had: received and sent.
    const COMPRESSED: usize = 2;
    let mut at = 0;
    let mut next = || {
        at += size_of::<u64>();
        u64_at(content, at - size_of::<u64>()).unwrap_or(0)
    };
    // Fields are evaluated in the order in which they are written, which is the kernel's.
    Statistics {
        rx_packets: next(),
        tx_packets: next(),
        rx_bytes: next(),
        tx_bytes: next(),
        rx_errors: next(),
        tx_errors: next(),
        rx_dropped: next(),
        tx_dropped: next(),
        multicast: next(),
        collisions: next(),
        rx_length_errors: next(),
        rx_over_errors: next(),
        rx_crc_errors: next(),
        rx_frame_errors: next(),
        rx_fifo_errors: next(),
        rx_missed_errors: next(),
        tx_aborted_errors: next(),
        tx_carrier_errors: next(),
        tx_fifo_errors: next(),
        tx_heartbeat_errors: next(),
        tx_window_errors: next(),
        rx_nohandler: {
            for _ in 0..COMPRESSED {
                next();
            }
            next()
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::{NetlinkRequest, messages};

    proptest! {
        #[test]
        fn any_attributes_can_be_parsed(
            body in vec(any::<u8>(), 0..40),
            contents in vec((0u16..64, vec(0u8..12, 0..60)), 0..20),
            is_new: bool,
        ) {
            let mut request = NetlinkRequest::new(if is_new { RTM_NEWLINK } else { RTM_DELLINK }, 0, &body);
            for (kind, content) in &contents {
                request = request.attribute(*kind, content);
            }
            let bytes = request.finish(0);
            for message in messages(&bytes) {
                let _ = interface(&message);
            }
        }

        #[test]
        fn statistics_are_the_kernels(numbers in vec(any::<u64>(), 0..26)) {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
            let statistics = statistics(&bytes);
            let number = |at: usize| numbers.get(at).copied().unwrap_or(0);
            let read = [
                statistics.rx_packets, statistics.tx_bytes, statistics.rx_dropped, statistics.tx_dropped,
                statistics.rx_missed_errors, statistics.tx_window_errors, statistics.rx_nohandler,
            ];
            prop_assert_eq!(read, [0, 3, 6, 7, 15, 20, 23].map(number));
        }
    }

    /// The interface in a message with these attributes.
    fn parsed(family: u8, contents: &[(u16, &[u8])]) -> Option<Interface> {
        let mut body = [0; HEADER_LEN];
        body[0] = family;
        body[4..8].copy_from_slice(&7u32.to_ne_bytes());
        body[8..12].copy_from_slice(&(IFF_UP | IFF_LOWER_UP).to_ne_bytes());
        let mut request = NetlinkRequest::new(RTM_NEWLINK, 0, &body);
        for (kind, content) in contents {
            request = request.attribute(*kind, content);
        }
        let bytes = request.finish(0);
        interface(&messages(&bytes).next().unwrap())
    }

    #[test]
    fn messages_about_other_things_are_no_interfaces() {
        const AF_BRIDGE: u8 = 7;
        let name: (u16, &[u8]) = (IFLA_IFNAME, b"one\0");
        let interface = parsed(0, &[name, (IFLA_ADDRESS, &[1; 4])]).unwrap();
        assert_eq!((interface.index, &*interface.name, interface.mac), (7, "one", None));
        assert!(interface.is_up && interface.has_link && !interface.is_loopback && !interface.is_promiscuous);
        assert_eq!(parsed(AF_BRIDGE, &[name]), None);
        assert_eq!(parsed(0, &[name, (IFLA_WIRELESS, &[0; 8])]), None);
    }

    #[test]
    fn programs_of_old_and_of_several_modes_are_found() {
        let nested = |contents: &[(u16, &[u8])]| {
            let mut bytes = Vec::new();
            for (kind, content) in contents {
                bytes.extend((4 + content.len() as u16).to_ne_bytes());
                bytes.extend(kind.to_ne_bytes());
                bytes.extend_from_slice(content);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            xdp(&bytes)
        };
        let one: &[u8] = &1u32.to_ne_bytes();
        let two: &[u8] = &2u32.to_ne_bytes();
        let program = |mode, id| XdpProgram { mode, id };
        assert_eq!(nested(&[(IFLA_XDP_ATTACHED, &[0])]), []);
        let old = [(IFLA_XDP_ATTACHED, &[XDP_ATTACHED_SKB][..]), (IFLA_XDP_PROG_ID, one)];
        assert_eq!(nested(&old), [program(XdpMode::Generic, 1)]);
        let new = [old[0], old[1], (IFLA_XDP_SKB_PROG_ID, one)];
        assert_eq!(nested(&new), [program(XdpMode::Generic, 1)]);
        let both = [(IFLA_XDP_ATTACHED, &[4][..]), (IFLA_XDP_DRV_PROG_ID, one), (IFLA_XDP_HW_PROG_ID, two)];
        assert_eq!(nested(&both), [program(XdpMode::Native, 1), program(XdpMode::Offload, 2)]);
    }
}

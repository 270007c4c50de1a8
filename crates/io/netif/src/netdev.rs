//! What an interface's driver can do for XDP and `AF_XDP`, and which queues it uses, with the netlink family `netdev`
//! (`linux/netdev.h`, Linux 6.3).

use std::io;

use bellows_netdev::netlink::NetlinkFamily;

use crate::netlink::{
    ACKNOWLEDGE, Connection, DUMP, NetlinkMessage, NetlinkRequest, RequestError, attributes, u16_at, u32_at, u64_at,
};

/// The family that knows the others' numbers: `linux/genetlink.h`.
const CONTROL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_CMD_QUEUE_GET: u8 = 10;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_ZC_MAX_SEGS: u16 = 4;
const NETDEV_A_DEV_XDP_RX_METADATA_FEATURES: u16 = 5;
const NETDEV_A_DEV_XSK_FEATURES: u16 = 6;

const NETDEV_A_QUEUE_ID: u16 = 1;
const NETDEV_A_QUEUE_IFINDEX: u16 = 2;
const NETDEV_A_QUEUE_TYPE: u16 = 3;
const NETDEV_A_QUEUE_XSK: u16 = 7;
const NETDEV_QUEUE_TYPE_RX: u32 = 0;
const NETDEV_QUEUE_TYPE_TX: u32 = 1;

/// The length of `genlmsghdr`: a command, a version, two reserved bytes.
const HEADER_LEN: usize = 4;
const VERSION: u8 = 1;

/// `ENOENT`, the answer for a family that does not exist.
const NO_ENTRY: i32 = 2;
/// `ENODEV`, the answer for an interface that does not exist.
const NO_DEVICE: i32 = 19;
/// `EOPNOTSUPP`, the answer for a command that does not exist.
const NOT_SUPPORTED: i32 = 95;

/// What a driver can do with XDP programs, and for `AF_XDP` sockets.
///
/// Some of it depends on the interface's settings: a veth redirects to a peer only while the peer has a program or GRO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// Runs programs in the driver: passes, drops, aborts and sends back.
    pub basic: bool,
    /// Redirects frames.
    pub redirect: bool,
    /// Sends frames that other interfaces redirect to it.
    pub ndo_xmit: bool,
    /// Zero copy for `AF_XDP`.
    pub zero_copy: bool,
    /// Runs programs in the device.
    pub offload: bool,
    /// Programs see frames of several buffers.
    pub rx_sg: bool,
    /// Sends redirected frames of several buffers.
    pub ndo_xmit_sg: bool,
    /// Most buffers of a frame with zero copy; `None` if there is no zero copy, or the kernel does not report it.
    pub zc_max_segs: Option<u32>,
    /// What programs can learn about a received frame.
    pub rx_metadata: RxMetadata,
    /// What an `AF_XDP` socket can ask for when it sends; `None` before Linux 6.8.
    pub xsk: Option<XskFeatures>,
}

/// What XDP programs can learn about a received frame from the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxMetadata {
    /// The time of its arrival.
    pub timestamp: bool,
    /// A hash over its addresses.
    pub hash: bool,
    /// The VLAN tag that the device has removed.
    pub vlan_tag: bool,
}

/// What an `AF_XDP` socket can ask the device to do with a frame that it sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XskFeatures {
    /// Tell when it was sent.
    pub tx_timestamp: bool,
    /// Finish its checksum.
    pub tx_checksum: bool,
    /// Send it at a given time (Linux 6.15).
    pub tx_launch_time: bool,
}

/// What the driver of an interface of this thread's network namespace can do; `None` if the interface does not exist,
/// or if the kernel does not report it (before Linux 6.3).
///
/// # Errors
/// The kernel does not answer.
pub fn xdp_features(index: u32) -> io::Result<Option<XdpFeatures>> {
    let mut connection = Connection::open(NetlinkFamily::Generic)?;
    let Some(family) = family(&mut connection)? else { return Ok(None) };
    let request = request(family, NETDEV_CMD_DEV_GET).attribute(NETDEV_A_DEV_IFINDEX, &index.to_ne_bytes());
    let action = || format!("read the XDP features of interface {index}");
    let answer = connection.exchange(action, &request, |found, message| *found = features(message));
    optional(answer, NO_DEVICE)
}

/// A queue that an interface uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedQueue {
    /// Its number among those of the same direction.
    pub number: u32,
    /// The direction.
    pub direction: QueueDirection,
    /// Whether an `AF_XDP` socket is bound to it (Linux 6.15; earlier kernels do not report it).
    pub has_xsk: bool,
}

/// The direction of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueDirection {
    /// It receives.
    Rx,
    /// It sends.
    Tx,
}

/// The queues that an interface of this thread's network namespace uses; empty while it is down, or if it does not
/// exist. `None` if the kernel does not report it (before Linux 6.8).
///
/// Unlike `bellows_netdev::ethtool::channels` it works for all drivers, but only while the interface is up.
///
/// # Errors
/// The kernel does not answer, or interfaces change faster than they are read.
pub fn queues(index: u32) -> io::Result<Option<Vec<UsedQueue>>> {
    let mut connection = Connection::open(NetlinkFamily::Generic)?;
    let Some(family) = family(&mut connection)? else { return Ok(None) };
    let body = [NETDEV_CMD_QUEUE_GET, VERSION, 0, 0];
    let request = NetlinkRequest::new(family, DUMP, &body).attribute(NETDEV_A_QUEUE_IFINDEX, &index.to_ne_bytes());
    let action = || format!("list the queues of interface {index}");
    let answer = connection.exchange(action, &request, |found: &mut Option<Vec<_>>, message| {
        found.get_or_insert_default().extend(queue(message));
    });
    match answer {
        Err(error) if errno(&error) == Some(NO_DEVICE) => Ok(Some(Vec::new())),
        answer => Ok(optional(answer.map(Some), NOT_SUPPORTED)?.map(Option::unwrap_or_default)),
    }
}

/// The queue in a message; `None` if it is incomplete.
fn queue(message: &NetlinkMessage<'_>) -> Option<UsedQueue> {
    let number = |wanted| u32_at(find(message, wanted)?, 0);
    let direction = match number(NETDEV_A_QUEUE_TYPE)? {
        NETDEV_QUEUE_TYPE_RX => QueueDirection::Rx,
        NETDEV_QUEUE_TYPE_TX => QueueDirection::Tx,
        _ => return None,
    };
    let has_xsk = find(message, NETDEV_A_QUEUE_XSK).is_some();
    Some(UsedQueue { number: number(NETDEV_A_QUEUE_ID)?, direction, has_xsk })
}

/// The number of the family `netdev`; `None` if the kernel does not have it.
fn family(connection: &mut Connection) -> io::Result<Option<u16>> {
    let request = request(CONTROL, CTRL_CMD_GETFAMILY).text(CTRL_ATTR_FAMILY_NAME, "netdev");
    let action = || "find the netlink family netdev".to_owned();
    let answer = connection.exchange(action, &request, |found, message| {
        *found = find(message, CTRL_ATTR_FAMILY_ID).and_then(|content| u16_at(content, 0));
    });
    optional(answer, NO_ENTRY)
}

/// Without the error that says that there is no such thing.
fn optional<T>(answer: io::Result<Option<T>>, absent: i32) -> io::Result<Option<T>> {
    match answer {
        Err(error) if errno(&error) == Some(absent) => Ok(None),
        answer => answer,
    }
}

fn errno(error: &io::Error) -> Option<i32> {
    RequestError::of(error).map(RequestError::errno)
}

fn request(family: u16, command: u8) -> NetlinkRequest {
    NetlinkRequest::new(family, ACKNOWLEDGE, &[command, VERSION, 0, 0])
}

/// The content of the message's first attribute of a kind.
fn find<'a>(message: &NetlinkMessage<'a>, wanted: u16) -> Option<&'a [u8]> {
    let mut attributes = attributes(message.body.get(HEADER_LEN..)?);
    attributes.find(|(kind, _)| *kind == wanted).map(|(_, content)| content)
}

/// The features in a message; `None` if it has none.
fn features(message: &NetlinkMessage<'_>) -> Option<XdpFeatures> {
    let bits = |wanted| find(message, wanted).and_then(|content| u64_at(content, 0));
    let features = bits(NETDEV_A_DEV_XDP_FEATURES)?;
    let rx_metadata = bits(NETDEV_A_DEV_XDP_RX_METADATA_FEATURES).unwrap_or(0);
    let has = |set: u64, number: u32| set >> number & 1 != 0;
    Some(XdpFeatures {
        basic: has(features, 0),
        redirect: has(features, 1),
        ndo_xmit: has(features, 2),
        zero_copy: has(features, 3),
        offload: has(features, 4),
        rx_sg: has(features, 5),
        ndo_xmit_sg: has(features, 6),
        zc_max_segs: find(message, NETDEV_A_DEV_XDP_ZC_MAX_SEGS).and_then(|content| u32_at(content, 0)),
        rx_metadata: RxMetadata {
            timestamp: has(rx_metadata, 0),
            hash: has(rx_metadata, 1),
            vlan_tag: has(rx_metadata, 2),
        },
        xsk: bits(NETDEV_A_DEV_XSK_FEATURES).map(|bits| XskFeatures {
            tx_timestamp: has(bits, 0),
            tx_checksum: has(bits, 1),
            tx_launch_time: has(bits, 2),
        }),
    })
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::messages;

    proptest! {
        #[test]
        fn any_attributes_can_be_parsed(contents in vec((0u16..8, vec(any::<u8>(), 0..10)), 0..8)) {
            let mut request = request(CONTROL, NETDEV_CMD_DEV_GET);
            for (kind, content) in &contents {
                request = request.attribute(*kind, content);
            }
            let bytes = request.finish(0);
            let message = messages(&bytes).next().unwrap();
            let _ = queue(&message);
            let found = features(&message);
            let first = contents.iter().find(|(kind, _)| *kind == NETDEV_A_DEV_XDP_FEATURES);
            prop_assert_eq!(found.is_some(), first.is_some_and(|(_, content)| content.len() >= 8));
        }
    }

    #[test]
    fn features_are_bits() {
        let request = request(CONTROL, NETDEV_CMD_DEV_GET)
            .attribute(NETDEV_A_DEV_XDP_FEATURES, &0b010_1011u64.to_ne_bytes())
            .attribute(NETDEV_A_DEV_XDP_ZC_MAX_SEGS, &8u32.to_ne_bytes())
            .attribute(NETDEV_A_DEV_XSK_FEATURES, &0b10u64.to_ne_bytes());
        let bytes = request.finish(0);
        let expected = XdpFeatures {
            basic: true,
            redirect: true,
            zero_copy: true,
            rx_sg: true,
            zc_max_segs: Some(8),
            xsk: Some(XskFeatures { tx_checksum: true, ..XskFeatures::default() }),
            ..XdpFeatures::default()
        };
        assert_eq!(features(&messages(&bytes).next().unwrap()), Some(expected));
    }
}

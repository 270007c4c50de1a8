//! Network interfaces: finding, changing and watching them, with `rtnetlink(7)`.
//!
//! [`Interfaces`] asks for interfaces and changes them, [`Monitor`] reports each change. Both work in the network
//! namespace of the thread that opened them. A request waits while the kernel carries out other changes of interfaces,
//! for example while another program deletes one.

mod monitor;
pub(crate) mod parse;
mod requests;

use bellows_wire::MacAddr;
pub use monitor::{Event, Monitor};
pub use requests::Interfaces;

pub use crate::netlink::RequestError;

/// A network interface at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its number, which stays the same when the interface is renamed. In another namespace it may have another number,
    /// and a deleted interface that returns has a new one.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its description (`ip link set NAME alias TEXT`).
    pub alias: Option<String>,
    /// Its hardware address; `None` if that has not 6 bytes, as for a tunnel.
    pub mac: Option<MacAddr>,
    /// The greatest length of a packet after the Ethernet header, in bytes.
    pub mtu: u32,
    /// The smallest MTU that can be set.
    pub min_mtu: u32,
    /// The greatest MTU that can be set; 0 if the driver has no limit.
    pub max_mtu: u32,
    /// Whether an administrator has set it up (`IFF_UP`).
    pub is_up: bool,
    /// Whether it has a link: a cable, a peer that is up, a program that has opened the TAP (`IFF_LOWER_UP`).
    pub has_link: bool,
    /// Whether it is a loopback interface.
    pub is_loopback: bool,
    /// Whether it receives the frames of all addresses, because an administrator, a packet socket or a bridge wants it.
    pub is_promiscuous: bool,
    /// The state of RFC 2863.
    pub state: OperationalState,
    /// The kind of virtual interface, such as `veth`, `tun` or `bridge`; `None` for a device's.
    pub kind: Option<String>,
    /// The interface that this one is a port of, such as a bridge.
    pub master: Option<u32>,
    /// The interface of the same namespace that this one belongs to: that of a VLAN, the peer of a veth.
    pub lower: Option<u32>,
    /// Number of receive queues that were allocated. Fewer may be in use, see `bellows_netdev::ethtool::channels`.
    pub rx_queues: u32,
    /// The same for sending.
    pub tx_queues: u32,
    /// The XDP programs that are attached: none, one, or one in the device and another in the kernel.
    pub xdp: Vec<XdpProgram>,
    /// What the kernel has counted since the interface was made.
    pub statistics: Statistics,
}

/// An XDP program that is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpProgram {
    /// Where it runs.
    pub mode: XdpMode,
    /// The number by which `bpf(2)` finds it (`bpftool prog show id N`).
    pub id: u32,
}

/// Where an XDP program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// In the driver.
    Native,
    /// In the kernel's receive path, for drivers without XDP.
    Generic,
    /// In the device.
    Offload,
}

/// The operational state of an interface (RFC 2863).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OperationalState {
    /// The driver does not report it.
    #[default]
    Unknown,
    /// The device is missing.
    NotPresent,
    /// There is no link, or the interface is not up.
    Down,
    /// A lower interface is down.
    LowerLayerDown,
    /// The interface is being tested.
    Testing,
    /// It waits for something outside, such as authentication.
    Dormant,
    /// It can pass packets.
    Up,
}

/// The counters of an interface (`rtnl_link_stats64` of `linux/if_link.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kernel's names, which its documentation explains")]
pub struct Statistics {
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub multicast: u64,
    pub collisions: u64,
    pub rx_length_errors: u64,
    pub rx_over_errors: u64,
    pub rx_crc_errors: u64,
    pub rx_frame_errors: u64,
    pub rx_fifo_errors: u64,
    pub rx_missed_errors: u64,
    pub tx_aborted_errors: u64,
    pub tx_carrier_errors: u64,
    pub tx_fifo_errors: u64,
    pub tx_heartbeat_errors: u64,
    pub tx_window_errors: u64,
    pub rx_nohandler: u64,
}

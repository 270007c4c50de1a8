//! The keys of a VPN's end.

use std::collections::BTreeMap;

use bellows_config::Duration;
use bellows_switch::bridge;
use bellows_switch::vlan::mux;
use bellows_vpn::control_channel;
use bellows_vpn::esp::config::Direction;
use bellows_vpn::tunnel::DontFragment;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An end of layer-2 VPNs: it connects Ethernet ports of several sites through pseudowires over IPv4 or IPv6 (RFC 4664).
///
/// Each VPLS (virtual private LAN service) joins circuits of this site with pseudowires to other sites: by a bridge, or,
/// if it has one circuit and one pseudowire, directly. The pseudowires of a VPLS are a split-horizon group, so its sites
/// must be a full mesh. A pseudowire is a session of L2TPv3 or GRE between the ends of a transport. Its control channel
/// finds out whether the other end is there, and configured alike.
///
/// Inputs and outputs have the names of interfaces: link each one's `output` to the VPN's input of its name, and the VPN's
/// output to its `input`. Uplinks are interfaces of a `router`, which resolves neighbours, answers pings, and fragments
/// and reassembles the packets of tunnels; it is the part `router`, and routes between uplinks as any router does. All
/// other interfaces are circuits, or trunks whose VLANs are circuits.
///
/// docs/l2vpn.md has a picture, a complete configuration, and the other end on Linux.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The interfaces by their names, which are those of ports: uplinks, and ports of circuits. Names here and below
    /// have letters, digits, `-` and `_`.
    pub interfaces: BTreeMap<String, Interface>,

    /// The routes of the uplinks, in the language of `ip route` as those of a `router`: `"default via 192.0.2.1"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,

    /// The ends of the VPNs by their names: this one, which has `local = true`, and others. Other ends may have the same
    /// list; those that no transport names do no harm.
    pub peers: BTreeMap<String, Peer>,

    /// The pairs of addresses between which pseudowires go.
    pub transports: BTreeMap<String, Transport>,

    /// The VPNs by their names.
    pub vpls: BTreeMap<String, Vpls>,
}

/// An interface: an uplink if it has `mac`, else a port of circuits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// The Ethernet address of an uplink.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,

    /// The IP addresses of an uplink, each with the length of the prefix on its link: `["192.0.2.2/24"]`. Those of the
    /// local peer's endpoints are among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,

    /// Of an uplink, the longest IP packet. Of a port, the longest frame without the 14 bytes of its Ethernet header; VLAN
    /// tags count.
    #[serde(default = "mtu")]
    #[schemars(extend("x-unit" = "bytes"), range(min = 68, max = 65535))]
    pub mtu: u16,

    /// The VLAN of an uplink's frames, from 1 to 4,094. Without one, they have no tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,

    /// Neighbours of an uplink whose Ethernet addresses are known: `{ "192.0.2.1" = "02:00:00:00:00:07" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub neighbours: BTreeMap<String, String>,

    /// The port is a trunk, with the keys of `vlan-mux`, which may be none: `trunk = {}`. Its VLANs are the circuits
    /// `NAME.VLAN`, as in `"customers.100"`; its frames without a VLAN are the circuit `NAME`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trunk: Option<mux::Config>,
}

fn mtu() -> u16 {
    1500
}

/// An end of the VPNs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Peer {
    /// It is this end.
    pub local: bool,

    /// Its addresses, by names: `{ v4 = "192.0.2.2", v6 = "2001:db8::2" }`.
    pub endpoints: BTreeMap<String, String>,
}

/// A pair of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Transport {
    /// The endpoint of this end: `"PEER.ENDPOINT"`.
    pub local: String,

    /// The endpoint of the other end, of the same family.
    pub remote: String,

    /// The flag "don't fragment" of its packets over IPv4: `"set"` or `"clear"`, so that routers on the way may fragment them.
    #[serde(default)]
    pub df: DontFragment,

    /// Whether its packets have the ECN bits of the IP packets in their frames, so that their receivers learn of congestion
    /// on the way (RFC 6040, normal mode). The other end must know of it.
    #[serde(default)]
    pub copy_ecn: bool,

    /// Protection of all packets of the transport by ESP, in transport mode. Others between the endpoints are then none of
    /// a pseudowire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipsec: Option<Ipsec>,
}

/// The security associations of a transport, which the app `esp` has. Keys are in files: `key_file`, not `key`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ipsec {
    /// What receives.
    pub inbound: Direction,

    /// What sends.
    pub outbound: Direction,
}

/// A VPN.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vpls {
    /// The longest frame without the 14 bytes of its Ethernet header. All circuits of the VPN must have it; those of VLANs
    /// have 4 bytes less than their trunk. Control channels compare it with that of the other end.
    #[serde(default = "mtu")]
    #[schemars(extend("x-unit" = "bytes"), range(min = 68, max = 65535))]
    pub mtu: u16,

    /// The circuits of this site: interfaces `"NAME"`, and VLANs of trunks `"NAME.VLAN"`.
    pub circuits: Vec<String>,

    /// The pseudowires to other sites, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pseudowires: BTreeMap<String, Pseudowire>,

    /// The keys of the `bridge`. Its ports are the pseudowires by their names, the circuits `NAME`, and `NAME:VLAN` for
    /// `NAME.VLAN`; the split-horizon group of the pseudowires comes first of its `groups`. One circuit and one pseudowire have no bridge.
    #[serde(default)]
    pub bridge: bridge::Config,
}

/// A connection to another site.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pseudowire {
    /// The transport.
    pub transport: String,

    /// The kind of tunnel: `"l2tpv3"` over IPv6 (RFC 8159), or `"gre"`.
    pub tunnel: Kind,

    /// The number of the pseudowire (VC ID): 1 to 32,767 for GRE, whose key it is (RFC 2890); 0 for L2TPv3, of which each
    /// transport can have one.
    #[serde(default)]
    #[schemars(range(max = 32767))]
    pub vc_id: u16,

    /// The cookie in packets of L2TPv3 that are sent: 8 or 16 hexadecimal digits. It is `expect_cookie` of the other end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_cookie: Option<String>,

    /// The cookie that is expected in received packets of L2TPv3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_cookie: Option<String>,

    /// Of GRE: whether received frames must have sequence numbers (RFC 2890), and those that were overtaken are dropped as
    /// `out_of_order`. The other end must number them, as Linux does with `oseq`; Bellows does not.
    #[serde(default)]
    pub in_order: bool,

    /// The control channel, with keys that may be left out: `control_channel = {}`. Without it, frames are sent without a
    /// look at the other end, as to one on Linux. Both ends have one, or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_channel: Option<ControlChannel>,
}

/// The kind of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Kind {
    /// The app `gre`.
    Gre,
    /// The app `keyed-tunnel`.
    L2tpv3,
}

/// The control channel of a pseudowire.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ControlChannel {
    /// The interval that is announced to the other end, from 1 to 65,535 whole seconds. Three messages are sent in it.
    #[serde(default = "control_channel::heartbeat")]
    #[schemars(extend("x-unit" = "time"))]
    pub heartbeat: Duration,

    /// The number of the other end's heartbeats without a message after which it is dead, from 1 to 255.
    #[serde(default = "control_channel::dead_factor")]
    #[schemars(range(min = 1))]
    pub dead_factor: u8,

    /// The longest heartbeat of the other end that counts, from 1 to 65,535 whole seconds. Without it, 60 s, or
    /// `heartbeat` if that is longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "time"))]
    pub max_heartbeat: Option<Duration>,

    /// A description of this end for the other end's operator, up to 255 bytes. Without it, `VPLS.PSEUDOWIRE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

impl Interface {
    /// Whether it is an uplink.
    pub(super) fn is_uplink(&self) -> bool {
        self.mac.is_some()
    }
}

impl Vpls {
    /// Whether one circuit and one pseudowire are connected without a bridge.
    pub(super) fn is_cross_connect(&self) -> bool {
        (self.circuits.len(), self.pseudowires.len()) == (1, 1)
    }
}

impl Kind {
    /// The name in keys, and of apps.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Gre => "gre",
            Kind::L2tpv3 => "l2tpv3",
        }
    }

    /// The name of the protocol in rules of `dispatch`.
    pub(super) fn protocol(self) -> &'static str {
        match self {
            Kind::Gre => "gre",
            Kind::L2tpv3 => "l2tp",
        }
    }
}

//! The keys of a routing domain and of its interfaces.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::dispatch;
use crate::ipv6_link::Advertise;
use crate::policy::ReversePath;

/// A routing domain (*virtual routing and forwarding*): interfaces, routes, and neighbours.
///
/// The apps of a router name it with `vrf`: `ethernet-input`, `ip4-lookup`, `ip4-rewrite`, and so on. Networks on the
/// links of interfaces, and the interfaces' own addresses, have routes by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The interfaces by their names.
    pub interfaces: BTreeMap<String, InterfaceConfig>,

    /// Routes in the language of `ip route`: `"198.51.100.0/24 via 192.0.2.1"`, `"default via 192.0.2.1 dev lan metric 5"`,
    /// `"blackhole 203.0.113.0/24"`, with an IPv6 next hop `"198.51.100.0/24 via inet6 fe80::1 dev lan"`; with several ways `"198.51.100.0/24 nexthop via 192.0.2.1 nexthop via 192.0.2.2 weight
    /// 2"`. A next hop must be on a link of the interface, by its `addresses` or by a route `"203.0.113.1/32 dev lan"`;
    /// `"default via 203.0.113.1 dev lan onlink"` says that it answers there all the same.
    /// `mtu 1400` is the longest packet that takes the route, if it is less than the interface's `mtu`.
    ///
    /// `"kernel:main"` in their place, or among them, follows a table of Linux' routes, by its name or number, through
    /// an app `kernel-routes`, which the app `router` has by itself.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany")]
    pub routes: Vec<String>,

    /// A text file with one more route on each line, plain or compressed with gzip. Empty lines and those that begin with
    /// `#` do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,

    /// The maximum number of neighbours of each family that are learned, from 16 to 1,000,000; each interface is sure of its
    /// part. There is room for a quarter more, up to 16,384, which next hops of routes and neighbours that were entered
    /// always find.
    #[schemars(extend("x-unit" = "neighbours"), range(min = 16, max = 1000000))]
    pub neighbours: Neighbours,

    /// What the router has besides forwarding, such as the ends of tunnels: rules as those of `dispatch`, for packets whose
    /// destination is the router. The app `router` has a pair of ports `ip4-NAME` and `ip6-NAME` for those that lead to
    /// `NAME`, by the family of the packets: `[{ to = "tunnels", protocol = "l2tp" }]`. What it is given there is sent as
    /// the router's own. Packets of a service that is not linked are handled as if there were none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<dispatch::Rule>,

    /// Workers that forward as well, besides that of the router: each has the apps that most packets pass, and the app
    /// `router` has a port `PORT-WORKER` for each port and each of them, such as `lan-two`, to be linked to a port app with
    /// queues of its own. What takes more than forwarding goes to the router's own worker: packets for the router, ARP and
    /// neighbour discovery, ICMP errors, options, and fragments to reassemble.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<String>,

    /// Whether one loop checks headers, looks routes up and rewrites usual packets, with `ip4-forward` and `ip6-forward`.
    /// By default it does, unless an interface has `access_in` or `access_out`. With `false` all packets pass apps of the
    /// single stages, which costs more and shows what is between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuse: Option<bool>,

    /// The network namespace of the host's devices and routes: a name of `ip netns`, or a path such as
    /// `/proc/PID/ns/net`. By default that of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_namespace: Option<PathBuf>,
}

/// A number of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct Neighbours(pub(super) u32);

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours(50_000)
    }
}

pub(super) const NEIGHBOURS: std::ops::RangeInclusive<u32> = 16..=1_000_000;

/// An interface of a router: a port, or a VLAN of one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InterfaceConfig {
    /// Its Ethernet address.
    pub mac: String,

    /// Its IP addresses, each with the length of the prefix on its link: `["192.0.2.1/24", "2001:db8::1/64"]`. With an IPv6
    /// address and no link-local one, it has the link-local address that `mac` stands for (RFC 4291, appendix A).
    #[serde(default)]
    pub addresses: Vec<String>,

    /// The longest IP packet that it sends, from 68 bytes; an interface with an IPv6 address needs 1,280 or more.
    #[serde(default = "default_mtu")]
    #[schemars(extend("x-unit" = "bytes"), range(min = 68, max = 65535))]
    pub mtu: u16,

    /// The port that its frames come from and go to, if that has another name than the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,

    /// The VLAN of its frames, from 1 to 4,094. Without one, frames have no tag, or one of VLAN 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,

    /// The provider's VLAN around `vlan` (IEEE 802.1ad), from 1 to 4,094.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub service_vlan: Option<u16>,

    /// Neighbours whose Ethernet addresses are known: `{ "192.0.2.7" = "02:00:00:00:00:07" }`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub neighbours: BTreeMap<String, String>,

    /// Whether stations that ask where the router is (ARP, neighbour solicitations) are answered only if their address is on
    /// the interface's link. By default others are answered as well, up to 1,000 a second, and not learned: Linux asks with
    /// the address that a packet is sent from, such as that of a loopback.
    #[serde(default, skip_serializing_if = "is_default")]
    pub strict_neighbours: bool,

    /// Router advertisements, by which hosts on the link configure themselves (RFC 4861). Without it, none are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertise>,

    /// Whether senders on the link are told when another station there is a better first hop: ICMP redirects (RFC 1812,
    /// section 5.2.7.2; RFC 4861, section 8).
    #[serde(default = "yes")]
    pub redirects: bool,

    /// The name of a TAP device, of at most 15 bytes, through which the host's network stack sends and receives on this
    /// interface. The app `router` creates it with the interface's addresses and MTU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,

    /// What the sources of packets must be (RFC 3704), checked by `ip4-reverse-path` and `ip6-reverse-path`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub reverse_path: ReversePath,

    /// Rules for IP packets that come in, checked by `access-list`: `["permit tcp dst port 22", "reject udp"]`. The
    /// first one that matches counts; packets that match none are denied. Without rules all pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_in: Vec<String>,

    /// Rules of the same kind for IP packets that are routed out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub access_out: Vec<String>,
}

fn yes() -> bool {
    true
}

/// A text, or a list of them.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "this must be a route, or a list of routes")]
#[schemars(inline)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    })
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The beginning of a text that names a table of the kernel among routes.
pub const KERNEL: &str = "kernel:";

fn default_mtu() -> u16 {
    1500
}

/// The minimum MTU of IPv6 (RFC 8200, section 5).
pub(super) const MIN_MTU_V6: u16 = 1280;

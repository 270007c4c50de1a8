//! The keys of `esp`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::secret::Secret;
use crate::path_mtu::{self, Bounds};

/// Protects IP packets by ESP (RFC 4303): the data plane of IPsec, in tunnel and transport mode.
///
/// Each pair of security associations is a port of its name, which takes and gives clear IP packets behind an Ethernet
/// header whose addresses are 0, unless `dst_mac` is given. `ip4` and `ip6` have what is on the wire, behind an Ethernet
/// header of which only the EtherType is written; link them to services of a `router` for protocol `"esp"`, and for UDP
/// to port 4500.
///
/// There is no IKE: keys come from this table, from files, or from `bellows esp rekey`. A key goes on with its sequence
/// numbers, its replay window and its limits after any reload or restart. A reload that changes `inbound` also receives
/// with the old keys for `grace_seconds`. docs/ipsec.md explains all of this.
///
/// Offloads are finished before a packet is sealed. Fragments are not opened; link `reassemble` in front. ICMP errors
/// about packets of a pair that come in by `ip4` and `ip6` tell the MTU of its path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The address of this end for all pairs that do not name one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,

    /// How long packets with the old keys are received after `inbound` was changed.
    #[serde(default = "grace")]
    #[schemars(extend("x-unit" = "seconds"))]
    pub grace_seconds: u32,

    /// The longest packet that is sent, with its headers, from 68 bytes, over IPv6 from 1,280. It is the path's MTU unless a
    /// router on the way says that one of its links has less (RFC 4301, section 8.2); what is learned holds for ten minutes.
    #[serde(default = "path_mtu::no_limit")]
    #[schemars(extend("x-unit" = "bytes"), range(min = 68))]
    pub mtu: u16,

    /// The least MTU of a path that routers of IPv4 are believed, from 68 bytes; those of IPv6 are believed 1,280.
    #[serde(default = "path_mtu::min_path_mtu")]
    #[schemars(extend("x-unit" = "bytes"), range(min = 68))]
    pub min_path_mtu: u16,

    /// The pairs of security associations, by the names of their ports.
    pub associations: BTreeMap<String, Association>,
}

impl Config {
    /// The defaults, for pairs of this end.
    pub fn between(local: String, associations: BTreeMap<String, Association>) -> Config {
        Config {
            local: Some(local),
            grace_seconds: grace(),
            mtu: path_mtu::no_limit(),
            min_path_mtu: path_mtu::min_path_mtu(),
            associations,
        }
    }

    pub(super) fn bounds(&self) -> Bounds {
        Bounds { mtu: self.mtu, min_path_mtu: self.min_path_mtu }
    }
}

/// A pair of security associations.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Association {
    /// The address of the other end.
    pub remote: String,

    /// The address of this end. Without it, `local` of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,

    /// `"tunnel"`: whole packets of IPv4 and IPv6, in new ones between the ends. `"transport"`: what packets between the
    /// ends carry.
    #[serde(default)]
    pub mode: Mode,

    /// What receives.
    pub inbound: Direction,

    /// What sends.
    pub outbound: Direction,

    /// Packets are in UDP (RFC 3948), for paths that translate addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<Udp>,

    /// The hop limit, or time to live, of packets that a tunnel sends, from 1 to 255.
    #[serde(default = "hop_limit")]
    #[schemars(range(min = 1))]
    pub hop_limit: u8,

    /// The DSCP of packets that a tunnel sends, from 0 to 63. Without it, that of the packet inside. ECN follows RFC 6040.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 63))]
    pub dscp: Option<u8>,

    /// The flag "don't fragment" of IPv4 packets that a tunnel sends: `"copy"` that of the packet inside (IPv6 counts as
    /// set), `"set"` or `"clear"`.
    #[serde(default)]
    pub df: DontFragment,

    /// The Ethernet address to which packets come out of the port: that of a router's interface, which takes no others.
    /// Without it, 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-type" = "Ethernet address"))]
    pub dst_mac: Option<String>,

    /// The networks behind this end: the sources of packets that a tunnel sends, and the destinations of those that come
    /// out of it. Without any, all addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub local_networks: Vec<String>,

    /// The networks behind the other end, likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remote_networks: Vec<String>,
}

/// A security association: one direction of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct Direction {
    /// The security parameters index, from 256 on. The receiver chooses it; new keys need a new one.
    #[schemars(range(min = 256))]
    pub spi: u32,

    /// `"aes-128-gcm"`, `"aes-256-gcm"` or `"chacha20-poly1305"`, each with an ICV of 16 bytes.
    pub algorithm: Algorithm,

    /// The key with the 4 bytes of the salt behind it, in hexadecimal digits. Each key is for one direction of one pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,

    /// The file with the key, in place of `key`. Nobody else may be able to read it (mode 0600). It is read at the start and at
    /// each reload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_file: Option<PathBuf>,

    /// Whether sequence numbers have 64 bits (ESN). Both ends must agree.
    #[serde(default = "yes")]
    pub esn: bool,

    /// Of `inbound`: how far a packet may be overtaken by others, from 32 to 4,096. Default: 1,024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "packets"), range(min = 32, max = 4096))]
    pub window: Option<u32>,

    /// Of `inbound` with `esn`: after how many failures in a row higher upper halves of the sequence number are tried;
    /// 0 for never. Default: 1,024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "packets"))]
    pub resync_after: Option<u32>,

    /// From here on the keys should be replaced: a warning in the log, and the counter `soft_limits`.
    #[serde(default, skip_serializing_if = "Limits::are_none")]
    pub soft: Limits,

    /// Beyond this, packets are dropped as `lifetime`.
    #[serde(default, skip_serializing_if = "Limits::are_none")]
    pub hard: Limits,
}

/// How much keys may protect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "Limits of keys")]
pub struct Limits {
    /// Packets; absent without this limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Encrypted bytes; absent without this limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Seconds that the keys are in use; absent without this limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
}

impl Limits {
    fn are_none(&self) -> bool {
        *self == Limits::default()
    }
}

/// Encapsulation in UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(inline)]
pub struct Udp {
    /// The port of this end.
    #[schemars(range(min = 1))]
    pub local_port: u16,
    /// The port to which packets are sent until an authentic one comes from another port of the other end, which is then
    /// that of a translation of addresses on the way. Packets are received from any.
    #[schemars(range(min = 1))]
    pub remote_port: u16,
    /// A keepalive is sent when nothing else was for so long; 0 for none.
    #[schemars(extend("x-unit" = "seconds"))]
    pub keepalive_seconds: u32,
}

impl Default for Udp {
    fn default() -> Udp {
        Udp { local_port: bellows_esp::udp::PORT, remote_port: bellows_esp::udp::PORT, keepalive_seconds: 20 }
    }
}

/// What of a packet is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Mode {
    /// The whole packet.
    #[default]
    Tunnel,
    /// What it carries.
    Transport,
}

/// A flag of IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum DontFragment {
    /// That of the packet inside.
    #[default]
    Copy,
    /// Set.
    Set,
    /// Not set.
    Clear,
}

/// A cipher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum Algorithm {
    /// AES-GCM with a key of 16 bytes (RFC 4106).
    #[serde(rename = "aes-128-gcm")]
    Aes128Gcm,
    /// AES-GCM with a key of 32 bytes (RFC 4106).
    #[serde(rename = "aes-256-gcm")]
    Aes256Gcm,
    /// ChaCha20-Poly1305 (RFC 7634), with a key of 32 bytes.
    #[serde(rename = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

impl From<Algorithm> for bellows_esp::Algorithm {
    fn from(algorithm: Algorithm) -> bellows_esp::Algorithm {
        match algorithm {
            Algorithm::Aes128Gcm => bellows_esp::Algorithm::Aes128Gcm,
            Algorithm::Aes256Gcm => bellows_esp::Algorithm::Aes256Gcm,
            Algorithm::ChaCha20Poly1305 => bellows_esp::Algorithm::ChaCha20Poly1305,
        }
    }
}

fn grace() -> u32 {
    300
}

/// The default of `hop_limit`.
pub fn hop_limit() -> u8 {
    64
}

fn yes() -> bool {
    true
}

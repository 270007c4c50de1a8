//! `geneve`: Ethernet or IP over Geneve.

use bellows_config::{BenchSetup, SettingError};
use bellows_wire::{EtherType, IpProtocol};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gre::Carried;
use crate::tunnel::udp::{self, NUMBER_AT, Udp};
use crate::tunnel::{self, Protocol, Refusal, Seen, Tunnel, TunnelHeaders};

/// Carries Ethernet frames or IP packets over IPv4 or IPv6 by Geneve (RFC 8926).
///
/// Each session is a port of its name, to one other end. `ip4` and `ip6` have packets in tunnels, behind an Ethernet
/// header of which only the EtherType is written; link them to a service of a `router` for UDP to port 6081.
///
/// No options are sent. Received options are skipped, unless one of them is critical: then the packet is refused, and so
/// are control messages. The source port of UDP tells flows apart. A received checksum of UDP is verified unless it
/// is 0. On Linux: `ip link add type geneve id … remote …`, with `udp6zerocsumrx` if `checksum` is `false` over IPv6.
///
/// Offloads are finished before a packet goes into a tunnel. Sent IPv4 packets have the flag "don't
/// fragment", unless `df` clears it. ICMP errors about packets of a session that come in by `ip4` and `ip6` tell the MTU of
/// its path; docs/tunnels.md has what becomes of longer packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Config(tunnel::Config<Session>);

tunnel::keys!(Config, Session);

/// A session of Geneve.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// The address of the other end.
    pub remote: String,

    /// The address of this end. Without it, `local` of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,

    /// The virtual network identifier, from 0 to 16,777,215.
    #[schemars(range(max = 16777215))]
    pub vni: u32,

    /// The port of both ends.
    #[serde(default = "port")]
    #[schemars(range(min = 1))]
    pub port: u16,

    /// Whether packets are sent with a checksum of UDP; otherwise it is 0. Without this key, they have one over IPv6, where
    /// most receivers drop others (RFC 8200, section 8.1), and none over IPv4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<bool>,

    /// What it carries: `"ethernet"` or `"ip"`.
    #[serde(default)]
    pub payload: Carried,

    /// The Ethernet address to which packets of IP come out of the port: that of a router's interface, which takes no
    /// others. Without it, 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-type" = "Ethernet address"))]
    pub dst_mac: Option<String>,
}

fn port() -> u16 {
    6_081
}

/// Geneve.
pub struct Generic;

/// Puts packets into Geneve tunnels.
pub type Geneve = Tunnel<Generic>;

/// Bytes of the header without options, and the units of their length.
const HEADER: usize = 8;
const UNIT: usize = 4;

/// The length of options in the first byte, and the version.
const OPTIONS: u8 = 0x3f;

/// Flags in the second byte: a control message, and options that must be known.
const CONTROL: u8 = 0x80;
const CRITICAL: u8 = 0x40;

/// Where the header is, and in it the EtherType, behind that of IP.
const ETHER_TYPE_AT: usize = udp::HEADER + 2;

impl Protocol for Generic {
    const NAME: &'static str = "geneve";
    const PROTOCOL: IpProtocol = IpProtocol::UDP;
    type Config = Config;

    fn shape(session: &Session, is_v6: bool) -> Result<TunnelHeaders, SettingError> {
        let number = udp::number(session.vni)?;
        let payload = session.payload.shape(ETHER_TYPE_AT, session.dst_mac.as_deref())?;
        let type_mask = if session.payload == Carried::Ethernet { 0xff } else { 0 };
        let header = [&[0, 0], &session.payload.ether_type().to_be_bytes()[..], &number, &[0]].concat();
        let mask = [0xff, CONTROL | CRITICAL, type_mask, type_mask, 0xff, 0xff, 0xff, 0];
        let udp = Udp { port: session.port, header: &header, mask: &mask, options: Some((0, OPTIONS)) };
        let checksum = udp::checksum(session.checksum, is_v6);
        udp.shape(session.vni, payload, checksum)
    }

    fn read(payload: &[u8]) -> Result<Seen, Refusal> {
        let header = udp::behind::<HEADER>(payload)?;
        let options = usize::from(header[0] & OPTIONS) * UNIT;
        if header[0] & !OPTIONS != 0 || header[1] & (CONTROL | CRITICAL) != 0 {
            return Err(Refusal::BadHeader);
        }
        let id = Some(udp::read_number(&header[NUMBER_AT..]));
        Ok(Seen { id, options, sequence: None, carries: Some(EtherType(u16::from_be_bytes([header[2], header[3]]))) })
    }

    fn bench() -> BenchSetup {
        tunnel::bench(Self::NAME, ["vni = 7"; 2])
    }
}

#[cfg(test)]
mod tests;

//! `vxlan`: Ethernet over VXLAN.

use bellows_config::{BenchSetup, SettingError};
use bellows_wire::{EtherType, IpProtocol};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tunnel::udp::{self, NUMBER_AT, Udp};
use crate::tunnel::{self, Payload, Protocol, Refusal, Seen, Tunnel, TunnelHeaders};

/// Carries Ethernet frames over IPv4 or IPv6 by VXLAN (RFC 7348).
///
/// Each session is a port of its name, to one other end. `ip4` and `ip6` have packets in tunnels, behind an Ethernet
/// header of which only the EtherType is written; link them to a service of a `router` for UDP to port 4789. For a
/// network of more than two ends, link the sessions to a `bridge`, as a split-horizon group.
///
/// The source port of UDP tells flows apart. A received checksum of UDP is verified unless it is 0. On Linux: `ip link
/// add type vxlan id … remote … dstport 4789`, with `udp6zerocsumrx` if `checksum` is `false` over IPv6.
///
/// Offloads are finished before a frame goes into a tunnel. Sent IPv4 packets have the flag "don't
/// fragment", unless `df` clears it. ICMP errors about packets of a session that come in by `ip4` and `ip6` tell the MTU of
/// its path; docs/tunnels.md has what becomes of longer packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Config(tunnel::Config<Session>);

tunnel::keys!(Config, Session);

/// A session of VXLAN.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// The address of the other end.
    pub remote: String,

    /// The address of this end. Without it, `local` of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,

    /// The VXLAN network identifier, from 0 to 16,777,215.
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
}

fn port() -> u16 {
    4_789
}

/// VXLAN.
pub struct Extensible;

/// Puts frames into VXLAN tunnels.
pub type Vxlan = Tunnel<Extensible>;

/// The flag of a valid network identifier, the first byte of the header.
const VALID: u8 = 0x08;

/// Bytes of the header.
const HEADER: usize = 8;

impl Protocol for Extensible {
    const NAME: &'static str = "vxlan";
    const PROTOCOL: IpProtocol = IpProtocol::UDP;
    type Config = Config;

    fn shape(session: &Session, is_v6: bool) -> Result<TunnelHeaders, SettingError> {
        let number = udp::number(session.vni)?;
        let header = [&[VALID, 0, 0, 0], &number[..], &[0]].concat();
        // Reserved bits are not looked at (RFC 7348, section 5).
        let mask = [VALID, 0, 0, 0, 0xff, 0xff, 0xff, 0];
        let udp = Udp { port: session.port, header: &header, mask: &mask, options: None };
        let checksum = udp::checksum(session.checksum, is_v6);
        udp.shape(session.vni, Payload::Ethernet, checksum)
    }

    fn read(payload: &[u8]) -> Result<Seen, Refusal> {
        let header = udp::behind::<HEADER>(payload)?;
        if header[0] & VALID == 0 {
            return Err(Refusal::BadHeader);
        }
        let id = Some(udp::read_number(&header[NUMBER_AT..]));
        Ok(Seen { id, options: 0, sequence: None, carries: Some(EtherType::BRIDGED_ETHERNET) })
    }

    fn bench() -> BenchSetup {
        tunnel::bench(Self::NAME, ["vni = 7"; 2])
    }
}

#[cfg(test)]
mod tests;

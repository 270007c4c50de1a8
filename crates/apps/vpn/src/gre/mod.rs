//! `gre`: Ethernet or IP over GRE.

use bellows_common::addresses::read_dst_mac;
use bellows_config::{BenchSetup, SettingError};
use bellows_wire::{EtherType, IpProtocol};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tunnel::{self, Checksum, Payload, Protocol, Refusal, Seen, Tunnel, TunnelHeaders};

/// Carries Ethernet frames or IP packets over IPv4 or IPv6 by GRE (RFC 2784, with the key of RFC 2890).
///
/// Each session is a port of its name. `ip4` and `ip6` have packets in tunnels, behind an Ethernet header of which
/// only the EtherType is written; link them to a service of a `router` for protocol 47. A session that carries IP
/// takes and gives packets behind an Ethernet header as well, whose addresses are 0 unless `dst_mac` is given.
///
/// A received packet belongs to the session with its addresses and its key, and must have the same flags: with a
/// `checksum`, which is verified, or without. Sequence numbers are skipped unless `in_order` is set, and none are sent.
/// Packets with a routing field are refused. On Linux: `ip link add type ip6gretap` or `gretap` for frames, `ip6gre` or
/// `gre` for IP, with `oseq` if `in_order` is set.
///
/// Offloads are finished before a packet goes into a tunnel. Sent IPv4 packets have the flag "don't
/// fragment", unless `df` clears it. ICMP errors about packets of a session that come in by `ip4` and `ip6` tell the MTU of
/// its path; docs/tunnels.md has what becomes of longer packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Config(tunnel::Config<Session>);

tunnel::keys!(Config, Session);

/// A session of GRE.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Session {
    /// The address of the other end.
    pub remote: String,

    /// The address of this end. Without it, `local` of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,

    /// The key in both directions. Without it, packets have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,

    /// Whether packets have a checksum in both directions.
    #[serde(default)]
    pub checksum: bool,

    /// Whether received packets must have sequence numbers (RFC 2890), and those that were overtaken are dropped as
    /// `out_of_order`. When the other end starts anew, its packets are dropped until their numbers are behind those before.
    #[serde(default)]
    pub in_order: bool,

    /// What it carries: `"ethernet"` or `"ip"`.
    #[serde(default)]
    pub payload: Carried,

    /// The Ethernet address to which packets of IP come out of the port: that of a router's interface, which takes no
    /// others. Without it, 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-type" = "Ethernet address"))]
    pub dst_mac: Option<String>,
}

/// What a session carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Carried {
    /// Frames.
    #[default]
    Ethernet,
    /// IPv4 and IPv6 packets.
    Ip,
}

impl Carried {
    /// The EtherType in the headers: that of each packet is written later.
    pub(crate) fn ether_type(self) -> u16 {
        match self {
            Carried::Ethernet => EtherType::BRIDGED_ETHERNET.0,
            Carried::Ip => 0,
        }
    }

    /// Packets whose EtherType is `ether_type_at` bytes behind the header of IP, and which come out to an address.
    pub(crate) fn shape(self, ether_type_at: usize, dst_mac: Option<&str>) -> Result<Payload, SettingError> {
        let wrong = |message, help| SettingError::at("sessions", message, help).in_entry("dst_mac");
        match self {
            Carried::Ethernet if dst_mac.is_some() => {
                let message = "frames have destinations of their own".to_owned();
                Err(wrong(message, "leave it out, or set `payload` to \"ip\""))
            }
            Carried::Ethernet => Ok(Payload::Ethernet),
            Carried::Ip => {
                let dst_mac = read_dst_mac(dst_mac).map_err(|(message, help)| wrong(message, help))?;
                Ok(Payload::Ip { ether_type_at, dst_mac })
            }
        }
    }
}

/// GRE.
pub struct Generic;

/// Puts packets into GRE tunnels.
pub type Gre = Tunnel<Generic>;

/// Flags in the first two bytes, and the version.
const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
const VERSION: u16 = 0x0007;

/// Bytes of the flags and the protocol, and of each field that flags announce.
const FIXED: usize = 4;
const FIELD: usize = 4;

impl Protocol for Generic {
    const NAME: &'static str = "gre";
    const PROTOCOL: IpProtocol = IpProtocol::GRE;
    type Config = Config;

    fn shape(session: &Session, _: bool) -> Result<TunnelHeaders, SettingError> {
        let payload = session.payload.shape(2, session.dst_mac.as_deref())?;
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let flags = flag(session.checksum, CHECKSUM) | flag(session.key.is_some(), KEY);
        let mut header = [flags.to_be_bytes(), session.payload.ether_type().to_be_bytes()].concat();
        let mut mask = match session.payload {
            Carried::Ethernet => vec![0xff; FIXED],
            Carried::Ip => vec![0xff, 0xff, 0, 0],
        };
        let checksum = if session.checksum { Checksum::Gre } else { Checksum::None };
        if session.checksum {
            header.extend([0; FIELD]);
            mask.extend([0; FIELD]);
        }
        let id_at = session.key.map(|key| {
            let at = header.len();
            header.extend(key.to_be_bytes());
            mask.extend([0xff; FIELD]);
            at
        });
        let (send, expect) = (header.clone(), header);
        Ok(TunnelHeaders {
            id: session.key,
            id_at,
            send,
            expect,
            mask,
            options: Some((0, (SEQUENCE >> 8) as u8)),
            in_order: session.in_order,
            cookie: 0..0,
            payload,
            checksum,
            is_udp: false,
        })
    }

    fn read(payload: &[u8]) -> Result<Seen, Refusal> {
        let fixed = payload.first_chunk::<FIXED>().ok_or(Refusal::Malformed)?;
        let flags = u16::from_be_bytes([fixed[0], fixed[1]]);
        if flags & VERSION != 0 {
            return Err(Refusal::BadHeader);
        }
        // Others change the length of the header, or must be 0 (RFC 2784, section 2.3).
        if flags & !(CHECKSUM | KEY | SEQUENCE) != 0 {
            return Err(Refusal::BadFlags);
        }
        let mut at = FIXED + if flags & CHECKSUM != 0 { FIELD } else { 0 };
        let mut field = |flag: u16| {
            if flags & flag == 0 {
                return Ok(None);
            }
            let bytes = payload.get(at..).and_then(<[u8]>::first_chunk).ok_or(Refusal::Malformed)?;
            at += FIELD;
            Ok(Some(u32::from_be_bytes(*bytes)))
        };
        let (id, sequence) = (field(KEY)?, field(SEQUENCE)?);
        let options = if sequence.is_some() { FIELD } else { 0 };
        let carries = Some(EtherType(u16::from_be_bytes([fixed[2], fixed[3]])));
        Ok(Seen { id, options, sequence, carries })
    }

    fn bench() -> BenchSetup {
        tunnel::bench(Self::NAME, ["key = 7"; 2])
    }
}

#[cfg(test)]
mod tests;

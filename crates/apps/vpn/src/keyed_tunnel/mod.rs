//! `keyed-tunnel`: Ethernet over L2TPv3 without a control connection.

use std::ops::Range;

use bellows_config::{BenchSetup, SettingError};
use bellows_wire::{EtherType, IpProtocol};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::tunnel::{self, Checksum, Payload, Protocol, Refusal, Seen, Tunnel, TunnelHeaders};

/// Carries Ethernet frames over IPv6 or IPv4 in keyed tunnels: static sessions of L2TPv3 directly over IP (RFC 3931,
/// section 4.1.1; RFC 8159).
///
/// Each session is a port of its name, for frames. `ip4` and `ip6` have packets in tunnels, behind an Ethernet header
/// of which only the EtherType is written; link them to a service of a `router` for protocol 115. A packet is taken
/// out of its tunnel if its addresses, its session and its cookie are those of a session. There is no negotiation:
/// both ends are configured. On Linux: `ip l2tp add tunnel … encap ip` and `ip l2tp add session … l2spec_type none`.
///
/// Offloads are finished before a frame goes into a tunnel. Sent IPv4 packets have the flag "don't
/// fragment", unless `df` clears it. ICMP errors about packets of a session that come in by `ip4` and `ip6` tell the MTU of
/// its path; docs/tunnels.md has what becomes of longer packets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Config(tunnel::Config<KeyedTunnelSession>);

tunnel::keys!(Config, KeyedTunnelSession);

/// A session of a keyed tunnel.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyedTunnelSession {
    /// The address of the other end.
    pub remote: String,

    /// The address of this end. Without it, `local` of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,

    /// The session that is expected in received packets, from 1 to 4,294,967,295. Without it, 4,294,967,295: the addresses
    /// alone identify the session (RFC 8159, section 3).
    #[serde(default = "any_session")]
    #[schemars(range(min = 1))]
    pub expect_session: u32,

    /// The session in packets that are sent. Without it, that of `expect_session`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub send_session: Option<u32>,

    /// The cookie that is expected in received packets: 8 or 16 hexadecimal digits. Without it, they have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_cookie: Option<String>,

    /// The cookie in packets that are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_cookie: Option<String>,

    /// What is between the cookie and the frame: `"none"`, or the `"default"` sublayer of four bytes (RFC 3931, section
    /// 4.6), which is sent without a sequence number, and whose sequence number is not looked at.
    #[serde(default)]
    pub sublayer: Sublayer,
}

/// The session whose number is not looked at: the default of `expect_session`.
pub fn any_session() -> u32 {
    u32::MAX
}

/// What is between a cookie and a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Sublayer {
    /// Nothing.
    #[default]
    None,
    /// Four bytes with a sequence number.
    Default,
}

/// L2TPv3 over IP.
pub struct Keyed;

/// Puts frames into keyed tunnels.
pub type KeyedTunnel = Tunnel<Keyed>;

/// Bytes of the session.
const SESSION: usize = 4;

/// Bytes of the sublayer.
const SUBLAYER: usize = 4;

impl Protocol for Keyed {
    const NAME: &'static str = "keyed-tunnel";
    const PROTOCOL: IpProtocol = IpProtocol(115);
    type Config = Config;

    fn shape(session: &KeyedTunnelSession, _: bool) -> Result<TunnelHeaders, SettingError> {
        let (expected, sent) = (session.expect_session, session.send_session.unwrap_or(session.expect_session));
        if expected == 0 || sent == 0 {
            let message = "a session of 0 is that of control messages";
            return Err(SettingError::at("sessions", message, "give a number from 1 to 4294967295"));
        }
        let sublayer: &[u8] = if session.sublayer == Sublayer::Default { &[0; SUBLAYER] } else { &[] };
        let header = |number: u32, cookie: &[u8]| [&number.to_be_bytes()[..], cookie, sublayer].concat();
        let cookie = read_cookie(session.expect_cookie.as_deref())?;
        let send = header(sent, &read_cookie(session.send_cookie.as_deref())?);
        let expect = header(expected, &cookie);
        let cookie: Range<usize> = SESSION..SESSION + cookie.len();
        let mut mask = vec![0xff; expect.len()];
        mask[cookie.end..].fill(0);
        let (id, payload, checksum) = (Some(expected), Payload::Ethernet, Checksum::None);
        Ok(TunnelHeaders {
            id,
            id_at: Some(0),
            send,
            expect,
            mask,
            options: None,
            in_order: false,
            cookie,
            payload,
            checksum,
            is_udp: false,
        })
    }

    fn read(payload: &[u8]) -> Result<Seen, Refusal> {
        let number = payload.first_chunk().ok_or(Refusal::Malformed)?;
        match u32::from_be_bytes(*number) {
            // Control messages (RFC 3931, section 4.1.1.2).
            0 => Err(Refusal::NoSession),
            id => Ok(Seen { id: Some(id), options: 0, sequence: None, carries: Some(EtherType::BRIDGED_ETHERNET) }),
        }
    }

    fn bench() -> BenchSetup {
        tunnel::bench(Self::NAME, ["send_cookie = \"0011223344556677\"", "expect_cookie = \"0011223344556677\""])
    }
}

/// The bytes of a cookie, none without one.
///
/// # Errors
/// If it is not one of 4 or 8 bytes.
pub fn read_cookie(text: Option<&str>) -> Result<Vec<u8>, SettingError> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let pairs = digits.as_chunks::<2>().0.iter();
    let bytes = pairs.map(|pair| {
        let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
        Some((high? << 4 | low?) as u8)
    });
    match bytes.collect::<Option<Vec<u8>>>() {
        Some(bytes) if matches!(digits.len(), 8 | 16) => Ok(bytes),
        _ => {
            let help = "write 8 or 16 hexadecimal digits, as in 0123456789abcdef";
            Err(SettingError::at("sessions", format!("`{text}` is no cookie"), help))
        }
    }
}

#[cfg(test)]
mod tests;

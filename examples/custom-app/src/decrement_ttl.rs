//! `decrement-ttl`: decrements the time to live, as a router does.

use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_wire::{EtherType, EthernetFrame, Ipv4Packet, Ipv6Packet, checksum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Takes hops off the time to live (IPv4, RFC 1812 section 5.3.1) or hop limit (IPv6, RFC 8200 section 3) of each
/// packet.
///
/// A packet with no hops left is dropped as `expired`. Frames that are not IP, or have a VLAN tag, pass unchanged.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How many hops to take off.
    #[schemars(extend("x-unit" = "hops"), range(min = 1))]
    pub by: u8,
}

impl Default for Config {
    fn default() -> Config {
        Config { by: 1 }
    }
}

/// Takes hops off the time to live.
pub struct DecrementTtl {
    by: u8,
}

counters! { DecrementTtl;
    drop EXPIRED = "expired", "packets with no hops left";
    count NOT_IP = "not_ip", "frames that are not IP, or have a VLAN tag; passed unchanged";
}

impl App for DecrementTtl {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "Ethernet frames")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "frames that have not expired")]);
    const PREFETCH: usize = 8;
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for mut packet in &mut io.input(0) {
            match age(packet.bytes_mut(), self.by) {
                Some(Age::Expired) => io.drop(packet, DecrementTtl::EXPIRED),
                Some(Age::Alive) => output.push(packet),
                None => {
                    io.count(DecrementTtl::NOT_IP, 1);
                    output.push(packet);
                }
            }
        }
    }
}

impl Configure for DecrementTtl {
    const NAME: &'static str = "decrement-ttl";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<DecrementTtl, SettingError> {
        Ok(DecrementTtl { by: config.by })
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Age {
    Alive,
    Expired,
}

/// Takes hops off a frame; `None` if the frame is not IP.
fn age(frame: &mut [u8], by: u8) -> Option<Age> {
    let mut frame = EthernetFrame::new_checked(frame).ok()?;
    let left = match frame.ether_type() {
        EtherType::IPV4 => {
            let mut packet = Ipv4Packet::new_checked(frame.payload_mut()).ok()?;
            let (before, protocol) = (packet.ttl(), packet.protocol().0);
            let left = before.saturating_sub(by);
            packet.set_ttl(left);
            // An incremental update keeps the checksum of a damaged header wrong; recomputing it would hide the damage.
            let sum = checksum::update(packet.checksum(), &[before, protocol], &[left, protocol]);
            packet.set_checksum(sum);
            left
        }
        EtherType::IPV6 => {
            let mut packet = Ipv6Packet::new_checked(frame.payload_mut()).ok()?;
            let left = packet.hop_limit().saturating_sub(by);
            packet.set_hop_limit(left);
            left
        }
        _ => return None,
    };
    Some(if left == 0 { Age::Expired } else { Age::Alive })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_rig::Rig;
    use bellows_wire::{IpProtocol, Ipv4Header};

    /// A frame whose checksum was computed from scratch.
    fn ipv4(ttl: u8) -> Vec<u8> {
        let mut frame = vec![0; 34];
        frame[12..14].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
        let header = Ipv4Header {
            src: [192, 0, 2, 1].into(),
            dst: [192, 0, 2, 2].into(),
            protocol: IpProtocol::UDP,
            ttl,
            traffic_class: 0,
            identification: 0,
            dont_fragment: true,
        };
        header.emit(&mut frame[14..]).unwrap();
        frame
    }

    fn rig(by: u8) -> Rig {
        let app = DecrementTtl::configure(Config { by }, &Context::default()).unwrap();
        Rig::new(app, &["input"], &["output"])
    }

    #[test]
    fn hops_are_taken_off_and_the_checksum_stays_right() {
        let mut rig = rig(3);
        rig.send("input", [ipv4(64)]);
        rig.breathe();
        assert_eq!(rig.received("output"), [ipv4(61)]);
    }

    #[test]
    fn a_packet_with_no_hops_left_is_dropped_and_counted() {
        let mut rig = rig(3);
        rig.send("input", [ipv4(4), ipv4(3), ipv4(0)]);
        rig.breathe();
        assert_eq!(rig.received("output"), [ipv4(1)]);
        assert_eq!(rig.counts().drops["expired"], 2);
    }

    #[test]
    fn frames_that_are_not_ip_pass_unchanged() {
        let mut rig = rig(1);
        let arp = [&[0xff; 12][..], &[0x08, 0x06], &[0; 28]].concat();
        rig.send("input", [&arp[..], b"short"]);
        rig.breathe();
        assert_eq!(rig.received("output"), [arp, b"short".to_vec()]);
        assert_eq!(rig.counts().counters["not_ip"], 2);
    }
}

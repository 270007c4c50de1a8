//! `split`: one stream shared out to many.

use bellows_config::{Configure, Context, Mistake};
use bellows_engine::{App, Io, Output, Port, Ports};
use bellows_wire::{EtherType, EthernetFrame, IpProtocol, Ipv4Packet, Ipv6Packet, ethernet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sends each packet to one of the outputs.
///
/// Outputs may have any names; as many as are linked share the packets, in the order of the links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How to choose the output.
    pub by: By,
}

/// How to choose the output of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// One packet to each output in turn.
    #[default]
    RoundRobin,
    /// Packets of one flow to one output, and those of its other direction too. A flow has two IP addresses, a
    /// protocol, and for TCP and UDP two ports; fragments go by addresses and protocol alone, and so part from the
    /// unfragmented packets of their flow. Frames without IP go by their Ethernet addresses and EtherType; what is no
    /// Ethernet frame goes to the first output. VLAN tags make no difference.
    Flow,
}

/// Sends each packet to one of the outputs.
pub struct Split {
    by: By,
    /// The output whose turn it is.
    next: usize,
}

impl App for Split {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to be shared out")]);
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "a share of the packets" };
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        let mut outputs: Vec<Output<'_>> = (0..io.outputs()).map(|index| io.output(index)).collect();
        let count = outputs.len();
        for packet in &mut io.input(0) {
            let index = match self.by {
                By::RoundRobin => self.take_turn(count),
                By::Flow => share(flow_hash(packet.bytes()).unwrap_or(0), count),
            };
            outputs[index].push(packet);
        }
    }
}

impl Split {
    #[inline]
    fn take_turn(&mut self, count: usize) -> usize {
        let turn = self.next;
        self.next = if turn + 1 < count { turn + 1 } else { 0 };
        turn
    }
}

/// Which of `count` outputs a hash falls on. Hot.
#[inline]
fn share(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> 64) as usize
}

/// A number that the packets of one flow share in both directions; `None` for what is no Ethernet frame. Hot.
fn flow_hash(frame: &[u8]) -> Option<u64> {
    let (ether_type, payload) = ethernet::skip_vlan_tags(frame).ok()?;
    let of_ip = match ether_type {
        EtherType::IPV4 => ipv4_hash(payload),
        EtherType::IPV6 => ipv6_hash(payload),
        _ => None,
    };
    of_ip.or_else(|| {
        let ethernet = EthernetFrame::new_checked(frame).ok()?;
        let number = |mac: [u8; 6]| mac.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Some(symmetric(number(ethernet.src().0), number(ethernet.dst().0), u64::from(ether_type.0)))
    })
}

fn ipv4_hash(bytes: &[u8]) -> Option<u64> {
    let packet = Ipv4Packet::new_checked(bytes).ok()?;
    let fragment = packet.more_fragments() || packet.fragment_offset() > 0;
    let (src_port, dst_port) = ports(packet.protocol(), packet.payload(), fragment);
    let end = |address: std::net::Ipv4Addr, port: u16| u64::from(address.to_bits()) << 16 | u64::from(port);
    let (src, dst) = (end(packet.src(), src_port), end(packet.dst(), dst_port));
    Some(symmetric(src, dst, u64::from(packet.protocol().0)))
}

fn ipv6_hash(bytes: &[u8]) -> Option<u64> {
    let packet = Ipv6Packet::new_checked(bytes).ok()?;
    let (protocol, (src_port, dst_port)) = match packet.upper_layer() {
        Ok(upper) => (upper.protocol, ports(upper.protocol, upper.payload, upper.fragment.is_some())),
        Err(_) => (packet.next_header(), (0, 0)),
    };
    let end = |address: std::net::Ipv6Addr, port: u16| {
        let bits = address.to_bits();
        mix(mix(bits as u64) ^ (bits >> 64) as u64) ^ u64::from(port)
    };
    let (src, dst) = (end(packet.src(), src_port), end(packet.dst(), dst_port));
    Some(symmetric(src, dst, u64::from(protocol.0)))
}

/// The ports of TCP and UDP; zeros for the rest.
fn ports(protocol: IpProtocol, bytes: &[u8], fragment: bool) -> (u16, u16) {
    match *bytes {
        [a, b, c, d, ..] if !fragment && matches!(protocol, IpProtocol::TCP | IpProtocol::UDP) => {
            (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        }
        _ => (0, 0),
    }
}

fn symmetric(one: u64, other: u64, kind: u64) -> u64 {
    mix(mix(mix(one.min(other)) ^ one.max(other)) ^ kind)
}

/// Spreads every bit over the whole word (the finalizer of SplitMix64).
#[inline]
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

impl Configure for Split {
    const NAME: &'static str = "split";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<Split, Mistake> {
        Ok(Split { by: config.by, next: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_engine::Settings;
    use bellows_engine::testing::Rig;
    use bellows_wire::{MacAddr, UdpFrame};
    use proptest::prelude::*;
    use std::net::IpAddr;

    const OUTPUTS: [&str; 3] = ["a", "b", "c"];

    fn rig(by: By, settings: Settings) -> Rig {
        let split = Split::configure(Config { by }, &Context::default()).unwrap();
        Rig::with_settings(split, &["input"], &OUTPUTS, settings)
    }

    #[test]
    fn round_robin_deals_packets_like_cards() {
        for lossless in [false, true] {
            let mut rig = rig(By::RoundRobin, Settings { lossless, ..Settings::default() });
            rig.send("input", (0..3000u32).map(u32::to_be_bytes));
            rig.settle();
            for (share, output) in (0..).zip(OUTPUTS) {
                let expected =
                    (0..3000u32).filter(|number| number % 3 == share).map(|number| number.to_be_bytes().to_vec());
                assert!(rig.received(output).into_iter().eq(expected), "{output}");
            }
        }
    }

    fn frame(src: IpAddr, dst: IpAddr, src_port: u16, dst_port: u16, vlan: Option<u16>) -> Vec<u8> {
        let (src_mac, dst_mac) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr::BROADCAST);
        let headers = UdpFrame { src_mac, dst_mac, vlan, src, dst, src_port, dst_port, ttl: 64 };
        headers.build(80, |_| {}).unwrap()
    }

    fn any_pair() -> impl Strategy<Value = (IpAddr, IpAddr)> {
        let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(src, dst)| (IpAddr::from(src), IpAddr::from(dst)));
        let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(src, dst)| (IpAddr::from(src), IpAddr::from(dst)));
        prop_oneof![v4, v6]
    }

    proptest! {
        #[test]
        fn both_directions_of_a_flow_have_one_hash(
            (src, dst) in any_pair(),
            ports: (u16, u16),
            vlan in prop::option::of(0u16..4095),
        ) {
            let there = flow_hash(&frame(src, dst, ports.0, ports.1, vlan));
            let back = flow_hash(&frame(dst, src, ports.1, ports.0, None));
            prop_assert!(there.is_some());
            prop_assert_eq!(there, back);
        }

        #[test]
        fn any_bytes_find_an_output(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..100),
        ) {
            let mut rig = rig(By::Flow, Settings::default());
            rig.send("input", &frames);
            rig.settle();
            let received: usize = OUTPUTS.iter().map(|output| rig.received(output).len()).sum();
            prop_assert_eq!(received, frames.len());
        }
    }

    #[test]
    fn flows_spread_evenly_and_stay_in_order() {
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let mut rig = rig(By::Flow, Settings::default());
        // 300 flows that differ in one byte or in the port alone, ten packets each.
        for number in 0..10u8 {
            let frames = (0..150u8).flat_map(|flow| {
                let mut by_address = frame(address(flow), address(250), 1000, 53, None);
                let mut by_port = frame(address(200), address(250), 1000 + u16::from(flow), 53, None);
                by_address[79] = number;
                by_port[79] = number;
                [by_address, by_port]
            });
            rig.send("input", frames);
        }
        rig.settle();
        for output in OUTPUTS {
            let packets = rig.received(output);
            assert!((700..1300).contains(&packets.len()), "{} of 3,000 packets", packets.len());
            let mut flows = std::collections::HashMap::<&[u8], Vec<u8>>::new();
            for packet in &packets {
                flows.entry(&packet[..42]).or_default().push(packet[79]);
            }
            assert!(flows.values().all(|numbers| numbers[..] == (0..10).collect::<Vec<u8>>()));
        }
    }

    #[test]
    fn fragments_stay_together() {
        let mut first = frame([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 1000, 53, None);
        let mut second = frame([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 7, 8, None);
        first[20] = 0x20; // more fragments
        second[21] = 1; // offset 8
        assert_eq!(flow_hash(&first), flow_hash(&second));
    }
}

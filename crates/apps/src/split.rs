//! `split`: distributes one stream over many outputs.

use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, Io, Output, Port, Ports};
use bellows_wire::flow;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sends each packet to one of the outputs.
///
/// Outputs may have any names; those that are linked share the packets, in the order of the links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How the app chooses the output.
    pub by: By,
}

/// How the app chooses the output of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// One packet to each output in turn.
    #[default]
    RoundRobin,
    /// Packets of one flow, in both directions, to one output. A flow is two IP addresses, a protocol, and for TCP and
    /// UDP two ports. Fragments are assigned by addresses and protocol alone, so they may take another output than the
    /// unfragmented packets of their flow. Frames without IP are assigned by their Ethernet addresses and EtherType;
    /// packets that are not Ethernet frames go to the first output. VLAN tags are ignored.
    Flow,
}

/// Sends each packet to one of the outputs.
pub struct Split {
    by: By,
    /// The output that is next.
    next: usize,
}

impl App for Split {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to distribute")]);
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "a share of the packets" };
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        let mut outputs: Vec<Output<'_>> = (0..io.outputs()).map(|index| io.output(index)).collect();
        let count = outputs.len();
        for packet in &mut io.input(0) {
            let index = match self.by {
                By::RoundRobin => self.take_turn(count),
                By::Flow => flow::share(flow::hash(packet.bytes()).unwrap_or(0), count),
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

impl Configure for Split {
    const NAME: &'static str = "split";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<Split, SettingError> {
        Ok(Split { by: config.by, next: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_engine::Settings;
    use bellows_rig::Rig;
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
            let there = flow::hash(&frame(src, dst, ports.0, ports.1, vlan));
            let back = flow::hash(&frame(dst, src, ports.1, ports.0, None));
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
        // 300 flows that differ in one byte or only in the port, ten packets each.
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
        assert_eq!(flow::hash(&first), flow::hash(&second));
    }
}

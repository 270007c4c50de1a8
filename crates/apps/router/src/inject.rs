//! `inject`: sends frames of the host behind a router.

use std::sync::Arc;

use bellows_common::headers::ETHERNET;
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Ports, counters};
use bellows_packet::Packet;
use bellows_vrf::Interface;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::router_bench::{Behind, OUT, row};
use crate::vrf::RoutingDomain;

/// Sends the frames of the host behind a router through the ports of its interfaces, as they are.
///
/// Inputs have the names of interfaces; link the `tap` of each. Outputs have the names of ports. Frames get the VLAN
/// tags of their interface. The host finds its neighbours itself, and its packets are neither routed nor checked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,
}

/// Sends frames of the host.
pub struct Inject {
    domain: Arc<RoutingDomain>,
    /// The interface and the output of each input.
    ways: Vec<Option<InjectWay>>,
}

struct InjectWay {
    /// The index among the interfaces.
    interface: usize,
    output: usize,
}

counters! { Inject;
    drop NO_PORT = "no_port", "frames of inputs without an interface of their name, or whose port is not linked";
    drop TOO_SHORT = "too_short", "frames without a whole Ethernet header";
    drop NO_HEADROOM = "no_headroom", "frames without room for the VLAN tags of their interface";
    drop OFFLOAD = "offload", "frames to be tagged whose checksum or segmentation is left to the port";
}

impl App for Inject {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "frames of the host for an interface" };
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "frames of a port" };
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        if self.ways.len() != io.inputs() {
            self.rewire(io);
        }
        for index in io.waiting_inputs() {
            let mut input = io.input(index);
            let Some(way) = &self.ways[index] else {
                for packet in &mut input {
                    io.drop(packet, Inject::NO_PORT);
                }
                continue;
            };
            let interface = &self.domain.tables().interfaces()[way.interface];
            if interface.tags.is_empty() {
                drop(input);
                io.forward(index, way.output);
                continue;
            }
            let mut output = io.output(way.output);
            for mut packet in &mut input {
                match () {
                    () if packet.len() < ETHERNET => io.drop(packet, Inject::TOO_SHORT),
                    () if packet.has_offload() => io.drop(packet, Inject::OFFLOAD),
                    () if !add_tags(&mut packet, interface) => io.drop(packet, Inject::NO_HEADROOM),
                    () => output.push(packet),
                }
            }
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.rewire(io);
    }
}

/// Bytes of the addresses of a frame, and of a VLAN tag.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// Puts the tags of an interface behind the addresses of a frame. False if there is no room for them.
fn add_tags(packet: &mut Packet, interface: &Interface) -> bool {
    let more = TAG * interface.tags.len();
    if packet.headroom() < more {
        return false;
    }
    let frame = packet.prepend(more);
    frame.copy_within(more..more + ADDRESSES, 0);
    for (tag, place) in interface.tags.iter().zip(frame[ADDRESSES..].chunks_exact_mut(TAG)) {
        place[..2].copy_from_slice(&tag.protocol.to_be_bytes());
        place[2..].copy_from_slice(&tag.id.to_be_bytes());
    }
    true
}

impl Inject {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>) -> Inject {
        Inject { domain, ways: Vec::new() }
    }

    /// Finds the interface and the output of each input.
    #[cold]
    fn rewire(&mut self, io: &Io<Self>) {
        let interfaces = self.domain.tables().interfaces();
        let way = |input: usize| {
            let name = io.input_name(input)?;
            let interface = interfaces.iter().position(|interface| interface.name == name)?;
            let port = interfaces[interface].port.as_str();
            let output = (0..io.outputs()).find(|&output| io.output_name(output) == Some(port))?;
            Some(InjectWay { interface, output })
        };
        self.ways = (0..io.inputs()).map(way).collect();
    }
}

impl Configure for Inject {
    const NAME: &'static str = "inject";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Rows(vec![BenchRow { inputs: &[OUT], outputs: &[OUT], ..row("ip4", Behind::Wire) }])
    }

    fn configure(config: Config, context: &Context) -> Result<Inject, SettingError> {
        Ok(Inject::new(context.object("vrf", &config.vrf)?))
    }
}

#[cfg(test)]
mod tests {
    use bellows_rig::Rig;
    use bellows_vrf::Vrf;
    use bellows_vrf::interface::VlanTag;
    use bellows_wire::MacAddr;

    use super::*;

    fn rig() -> Rig {
        let tag = |protocol, id| VlanTag { protocol, id };
        let interface = |name: &str, tags: &[VlanTag]| Interface {
            name: name.to_owned(),
            port: "port".to_owned(),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            tags: tags.to_vec(),
            addresses: Vec::new(),
        };
        let interfaces = vec![
            interface("plain", &[]),
            interface("five", &[tag(0x8100, 5)]),
            interface("both", &[tag(0x88a8, 7), tag(0x8100, 6)]),
        ];
        let domain = Arc::new(RoutingDomain::new(Vrf::new(interfaces, 16, 1).unwrap()));
        Rig::new(Inject::new(domain), &["plain", "five", "both", "unknown"], &["port"])
    }

    #[test]
    fn frames_get_the_tags_of_their_interface() {
        let frame: Vec<u8> = (0..60).collect();
        for (input, tags) in
            [("plain", &[][..]), ("five", &[0x81, 0, 0, 5][..]), ("both", &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 6])]
        {
            let mut rig = rig();
            rig.send(input, [&frame]);
            rig.settle();
            assert_eq!(rig.received("port"), [[&frame[..12], tags, &frame[12..]].concat()], "{input}");
        }
    }

    #[test]
    fn frames_that_cannot_be_sent_are_counted() {
        let mut rig = rig();
        rig.send("five", [vec![0; 13]]);
        rig.send("unknown", [vec![0; 60]]);
        rig.settle();
        let drops = rig.counts().drops;
        assert_eq!((drops["too_short"], drops["no_port"], rig.received("port").len()), (1, 1, 0));
    }
}

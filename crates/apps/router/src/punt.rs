//! `punt`: takes packets to the host behind a router.

use std::sync::Arc;

use bellows_common::limit::SharedLimit;
use bellows_common::nexts::{NextVectors, UNUSUAL};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Ports, counters};
use bellows_packet::Packet;
use bellows_vrf::Tag;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::vrf::RoutingDomain;

// A full table of the Internet comes in some 30,000 packets.
fn rate() -> u32 {
    20_000
}

fn burst() -> u32 {
    1_000
}

/// Takes packets to the host behind a router: those for the router itself that the router does not answer.
///
/// Inputs may have any names: those of `ip4-local` and `ip6-local`, of `arp`, and the output `other` of
/// `ethernet-input`. Outputs have the names of interfaces; link each to a `tap`. A packet goes to the output of the
/// interface in its tag, with an Ethernet header without VLAN tags. The host gets up to `rate` packets a second, after
/// `burst` at once; packets beyond that are dropped, so that a flood keeps neither the host nor its routing daemons
/// busy. Each interface is sure to have its part of one half of the rate.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,

    /// The maximum number of packets a second, from 1 to 10,000,000.
    #[serde(default = "rate")]
    #[schemars(extend("x-unit" = "packets/s"), range(min = 1, max = 10000000))]
    pub rate: u32,

    /// The number of packets that pass at once after a pause, from 1 to 100,000.
    #[serde(default = "burst")]
    #[schemars(extend("x-unit" = "packets"), range(min = 1, max = 100000))]
    pub burst: u32,
}

impl Config {
    /// The defaults, for a routing domain.
    pub fn of(vrf: &str) -> Config {
        Config { vrf: vrf.to_owned(), rate: rate(), burst: burst() }
    }
}

/// Takes packets to the host.
pub struct Punt {
    domain: Arc<RoutingDomain>,
    limit: SharedLimit,
    /// The output of each interface, by its number.
    outputs: Vec<u16>,
    next_vectors: NextVectors,
}

counters! { Punt;
    drop RATE_LIMITED = "rate_limited", "packets beyond the limit";
    drop NO_HOST = "no_host", "packets of interfaces that have no device on the host, or whose output is not linked; likely: the interface lacks `host`";
    drop TOO_SHORT = "too_short", "packets without a whole Ethernet header";
    count PUNTED = "punted", "packets to the host";
}

impl App for Punt {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "packets for the host, tagged with their interface" };
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "packets of an interface" };
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 4;

    fn push(&mut self, io: &Io<Self>) {
        if self.outputs.is_empty() {
            self.rewire(io);
        }
        for index in io.waiting_inputs() {
            let mut punted = 0;
            for mut packet in &mut io.input(index) {
                let number = Tag(packet.tag()).interface();
                let output = self.outputs.get(usize::from(number)).copied().filter(|&output| output != UNUSUAL);
                match output {
                    None => io.drop(packet, Punt::NO_HOST),
                    Some(_) if !self.limit.admits(number, io.now()) => io.drop(packet, Punt::RATE_LIMITED),
                    Some(_) if !self.address(number, &mut packet) => io.drop(packet, Punt::TOO_SHORT),
                    Some(output) => {
                        self.limit.pay(number, io.now());
                        punted += 1;
                        self.next_vectors.push(output.into(), packet);
                    }
                }
            }
            io.count(Punt::PUNTED, punted);
            self.next_vectors.send(io);
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.rewire(io);
    }
}

impl Punt {
    /// The app for a routing domain, with a limit of packets a second and at once.
    pub fn new(domain: Arc<RoutingDomain>, rate: u32, burst: u32) -> Punt {
        let limit = SharedLimit::new(rate, burst, domain.tables().interfaces().len());
        Punt { domain, limit, outputs: Vec::new(), next_vectors: NextVectors::new() }
    }

    /// Finds the outputs of the interfaces.
    #[cold]
    fn rewire(&mut self, io: &Io<Self>) {
        let find = |name: &str| (0..io.outputs()).find(|&output| io.output_name(output) == Some(name));
        let outputs = self.domain.tables().interfaces().iter();
        let outputs = outputs.map(|interface| find(&interface.name).map_or(UNUSUAL, |output| output as u16));
        // There is no interface 0.
        self.outputs = std::iter::once(UNUSUAL).chain(outputs).collect();
        self.next_vectors.resize(io.outputs());
    }

    /// Addresses a frame to one station to the interface's device: another interface may have received it. False if the
    /// packet is no frame.
    fn address(&self, number: u16, packet: &mut Packet) -> bool {
        let Some(interface) = self.domain.tables().interface(number) else { return false };
        if packet.len() < bellows_common::headers::ETHERNET {
            return false;
        }
        let frame = packet.bytes_mut();
        if frame[0] & 1 == 0 {
            frame[..6].copy_from_slice(&interface.mac.0);
        }
        true
    }
}

impl Configure for Punt {
    const NAME: &'static str = "punt";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured(
            "its rate is limited, so most packets of a measurement would be dropped; `bellows bench router` measures a router \
             without a host",
        )
    }

    fn configure(config: Config, context: &Context) -> Result<Punt, SettingError> {
        if !(1..=10_000_000).contains(&config.rate) {
            return Err(SettingError::at("rate", "the rate is out of range", "give a number from 1 to 10000000"));
        }
        if !(1..=100_000).contains(&config.burst) {
            return Err(SettingError::at("burst", "the burst is out of range", "give a number from 1 to 100000"));
        }
        Ok(Punt::new(context.object("vrf", &config.vrf)?, config.rate, config.burst))
    }
}

#[cfg(test)]
mod tests {
    use bellows_rig::Rig;
    use bellows_vrf::{Interface, Vrf};
    use bellows_wire::MacAddr;

    use super::*;

    fn domain() -> Arc<RoutingDomain> {
        let interface = |name: &str, number: u8| Interface {
            name: name.to_owned(),
            port: "port".to_owned(),
            mac: MacAddr([2, 0, 0, 0, 0, number]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: Vec::new(),
        };
        Arc::new(RoutingDomain::new(Vrf::new(vec![interface("a", 1), interface("b", 2)], 16, 1).unwrap()))
    }

    fn packet(interface: u16, destination: [u8; 6], length: usize) -> Packet {
        let mut frame = vec![0; length];
        let bytes = length.min(6);
        frame[..bytes].copy_from_slice(&destination[..bytes]);
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(interface).0);
        packet
    }

    #[test]
    fn packets_go_to_the_device_of_their_interface() {
        let mut rig = Rig::new(Punt::new(domain(), 1000, 1000), &["ip4", "arp"], &["a", "b"]);
        let many = [1, 0, 0x5e, 0, 0, 5];
        rig.send_packets("ip4", [packet(1, [2, 0, 0, 0, 0, 1], 60), packet(2, [2, 0, 0, 0, 0, 1], 60)]);
        rig.send_packets("arp", [packet(2, many, 60), packet(2, many, 13), packet(3, many, 60), packet(0, many, 60)]);
        rig.settle();
        let of = |rig: &mut Rig, output: &str| -> Vec<Vec<u8>> {
            rig.received(output).iter().map(|frame| frame[..6].to_vec()).collect()
        };
        assert_eq!(of(&mut rig, "a"), [[2, 0, 0, 0, 0, 1]]);
        assert_eq!(of(&mut rig, "b"), [[2, 0, 0, 0, 0, 2], many]);
        let counts = rig.counts();
        assert_eq!((counts.drops["no_host"], counts.drops["too_short"], counts.counters["punted"]), (2, 1, 3));
    }

    #[test]
    fn packets_beyond_the_limit_are_dropped() {
        let mut rig = Rig::new(Punt::new(domain(), 100, 10), &["input"], &["a"]);
        let send = |rig: &mut Rig, count: usize| {
            rig.send_packets("input", (0..count).map(|_| packet(1, [2; 6], 60)));
            rig.settle();
            rig.received("a").len()
        };
        rig.set_time(1_000_000_000);
        assert_eq!(send(&mut rig, 50), 10);
        rig.set_time(1_050_000_000);
        assert_eq!(send(&mut rig, 50), 5);
        rig.set_time(9_000_000_000);
        assert_eq!(send(&mut rig, 50), 10);
        assert_eq!(rig.counts().drops["rate_limited"], 125);
    }
}

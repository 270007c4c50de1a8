//! `interface-output`: sends what leaves through an interface of a router.

use std::sync::Arc;

use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_packet::Packet;
use bellows_sys::simd::{Loop, Simd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::router_bench::{Behind, OUT, row};
use crate::vrf::RoutingDomain;

/// Sends the frames of all inputs to a port of a router.
///
/// Inputs may have any names: those of `ip4-rewrite`, `ip6-rewrite`, `arp`, `nd`, and of the host. Frames that are longer
/// than all interfaces of the port allow are dropped, unless they are segmented late.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,

    /// The port of the interfaces.
    pub port: String,
}

/// Sends the frames of a port.
pub struct InterfaceOutput {
    max_length: usize,
}

counters! { InterfaceOutput;
    drop TOO_LONG = "too_long", "frames that are longer than the largest MTU of the port's interfaces allows; likely: the `mtu` of an interface is above that of its port";
}

impl App for InterfaceOutput {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "frames that leave" };
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the frames")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        for index in io.waiting_inputs() {
            let mut input = io.input(index);
            let longest = Simd::chosen().run(Longest(input.packets()));
            if longest <= self.max_length {
                drop(input);
                io.forward(index, 0);
                continue;
            }
            let mut output = io.output(0);
            for packet in &mut input {
                if packet.len() <= self.max_length || packet.has_offload() {
                    output.push(packet);
                } else {
                    io.drop(packet, InterfaceOutput::TOO_LONG);
                }
            }
        }
    }
}

/// The length of the longest packet. Hot.
struct Longest<'p>(&'p [Packet]);

impl Loop for Longest<'_> {
    type Result = usize;

    #[inline(always)]
    fn run(self) -> usize {
        self.0.iter().fold(0, |longest: u32, packet| longest.max(packet.len() as u32)) as usize
    }
}

impl InterfaceOutput {
    /// The app for a port of a routing domain. `None` if no interface has it.
    pub fn new(domain: &RoutingDomain, port: &str) -> Option<InterfaceOutput> {
        let interfaces = domain.tables().interfaces().iter().filter(|interface| interface.port == port);
        let longest = interfaces.map(|interface| interface.header_length() + usize::from(interface.mtu)).max();
        longest.map(|max_length| InterfaceOutput { max_length })
    }
}

impl Configure for InterfaceOutput {
    const NAME: &'static str = "interface-output";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        let row = row("ip4", Behind::Wire);
        let keys = format!("{}, port = \"{OUT}\"", row.keys);
        BenchSetup::Rows(vec![BenchRow { keys, ..row }])
    }

    fn configure(config: Config, context: &Context) -> Result<InterfaceOutput, SettingError> {
        let domain: Arc<RoutingDomain> = context.object("vrf", &config.vrf)?;
        InterfaceOutput::new(&domain, &config.port).ok_or_else(|| {
            let message = format!("no interface of `{}` has the port `{}`", config.vrf, config.port);
            SettingError::at("port", message, "give the port of an interface").of_absence()
        })
    }
}

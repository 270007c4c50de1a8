//! `dispatch`: distributes packets by addresses, protocol and port.

mod rules;
#[cfg(test)]
mod tests;

use bellows_common::nexts::{Next, NextVectors, UNUSUAL};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_packet::Packet;
use bellows_sys::simd::{Loop, Simd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::rules::Rules;
pub use self::rules::{Protocol, Rule};

/// Sends IP packets to outputs by their addresses, protocol and port.
///
/// A packet goes to the output of the first rule whose fields are all those of the packet. Packets that match no rule, or
/// one whose output is not linked, go to `other`, or are dropped if that is not linked either. The fields are those behind IPv4 options and IPv6 extension headers;
/// fragments have no port, and those of IPv6 no protocol. Packets are behind an Ethernet header without tags.
///
/// An ICMP error that says that a packet was too long for a link, and that matches no rule itself, goes where answers to
/// the packet that it quotes would go, so that a tunnel learns the MTU of its path.
///
/// Rules in a row that have the same fields are looked up together, so that a long list costs no more than a short one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The rules, in their order.
    pub rules: Vec<Rule>,
}

/// Tells packets apart.
pub struct Dispatch {
    rules: Rules,
    /// The output of each rule.
    outputs: Vec<u16>,
    names: Vec<String>,
    other: Option<u16>,
    next_vectors: NextVectors,
}

/// The name of the output for packets that match no rule.
const OTHER: &str = "other";

counters! { Dispatch;
    drop NO_MATCH = "no_match", "packets that match no rule, if `other` is not linked; likely: a rule is missing";
    drop NO_OUTPUT = "no_output", "packets that match a rule whose output is not linked, if `other` is not either";
}

impl App for Dispatch {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "IP packets behind an Ethernet header")]);
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "the outputs of rules, and `other`" };
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        if self.outputs.is_empty() {
            self.rewire(io);
        }
        let Dispatch { rules, outputs, other, next_vectors, .. } = self;
        let mut input = io.input(0);
        let packets = input.packets_mut();
        let numbers = next_vectors.nexts(packets.len());
        Simd::chosen().run(Sort { rules, outputs, packets, ahead: io.prefetch(), numbers });
        next_vectors.send_all(io, 0, input, |packet| match (rules.find(packet.bytes()), &other) {
            (Some(rule), _) if outputs[rule] != UNUSUAL => Next::To(outputs[rule].into()),
            (_, Some(other)) => Next::To(usize::from(*other)),
            (Some(_), None) => Next::Drop(Dispatch::NO_OUTPUT),
            (None, None) => Next::Drop(Dispatch::NO_MATCH),
        });
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.rewire(io);
    }
}

impl Dispatch {
    /// Finds the outputs.
    #[cold]
    fn rewire(&mut self, io: &Io<Self>) {
        let find = |name: &str| (0..io.outputs()).find(|&output| io.output_name(output) == Some(name));
        self.outputs = self.names.iter().map(|name| find(name).map_or(UNUSUAL, |output| output as u16)).collect();
        self.other = find(OTHER).map(|output| output as u16);
        self.next_vectors.resize(io.outputs());
    }
}

/// Numbers packets by the outputs of their rules.
struct Sort<'a> {
    rules: &'a Rules,
    outputs: &'a [u16],
    packets: &'a [Packet],
    ahead: usize,
    numbers: &'a mut [u16],
}

impl Loop for Sort<'_> {
    type Result = ();

    #[inline(always)]
    fn run(self) {
        let Sort { rules, outputs, packets, ahead, numbers } = self;
        packets.iter().take(ahead).for_each(Packet::prefetch);
        for (at, number) in numbers.iter_mut().enumerate().take(packets.len()) {
            if let Some(packet) = packets.get(at + ahead) {
                packet.prefetch();
            }
            let rule = rules.guess(packets[at].bytes());
            *number = outputs.get(rule).copied().unwrap_or(UNUSUAL);
        }
    }
}

impl Configure for Dispatch {
    const NAME: &'static str = "dispatch";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        let keys = "rules = [{ to = \"output\", protocol = \"udp\" }]".to_owned();
        BenchSetup::Rows(vec![BenchRow { keys, outputs: &["output"], ..BenchRow::default() }])
    }

    fn check_outputs(config: &Config, outputs: &[&str]) -> Result<(), SettingError> {
        let is_unknown = |name: &&&str| **name != OTHER && config.rules.iter().all(|rule| rule.to != **name);
        let Some(name) = outputs.iter().find(is_unknown) else { return Ok(()) };
        let message = format!("no rule leads to the output `{name}`");
        Err(SettingError::at("rules", message, "add a rule with it as `to`, or remove its link").of_absence())
    }

    fn configure(config: Config, _: &Context) -> Result<Dispatch, SettingError> {
        if let Some(place) = config.rules.iter().position(|rule| rule.to == OTHER) {
            let message = format!("a rule cannot lead to `{OTHER}`, which is for all other packets");
            return Err(SettingError::at("rules", message, "rename its output").in_item(place));
        }
        let rules = Rules::new(&config.rules)?;
        let names = config.rules.into_iter().map(|rule| rule.to).collect();
        Ok(Dispatch { rules, outputs: Vec::new(), names, other: None, next_vectors: NextVectors::new() })
    }
}

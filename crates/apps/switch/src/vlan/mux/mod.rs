//! `vlan-mux`: a trunk with several VLANs, and a port for each of them.

use bellows_common::nexts::{Next, NextVectors, UNUSUAL, forward_changed};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, BenchStep, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Ports, counters};
use bellows_packet::Packet;
use bellows_sys::simd::{Loop, Simd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::vlan::header::TagProtocols;
use crate::vlan::header::{
    ID, Outer, OuterTag, Priorities, are_untagged, check_vlan, inner, outer, pop_all, push_all, tag, untag,
};

/// Splits a trunk into its VLANs, and joins them (IEEE 802.1Q).
///
/// Ports are pairs of an input and an output of the same name. `trunk` has the frames of all VLANs with their tags,
/// `vlan5` those of VLAN 5 without, and `native` those without a VLAN, unchanged. `vlan5-7` has the frames of VLAN 7
/// within VLAN 5 (Q-in-Q) without both tags; `vlan5` then has the others of VLAN 5. A frame of a VLAN whose port is not
/// linked is dropped.
///
/// From the trunk to the port of a VLAN, the outermost tag is popped, or both; in the other direction they are pushed,
/// outside of others. A tag of VLAN 0, which has a priority alone, belongs to frames without a VLAN: from the port of a
/// VLAN, it becomes the tag of the VLAN. A frame from `native` must not have the tag of a VLAN, because on the trunk it
/// would belong to that VLAN. Offloads move with the header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The tag protocol identifiers of tags on the trunk: `"802.1q"` (0x8100), `"802.1ad"` (0x88a8), `"any"` of both, or
    /// `"0x9100"`. New tags then have the first.
    pub tpid: TagProtocols,

    /// The tag protocol identifiers of inner tags, for ports such as `vlan5-7`.
    pub inner_tpid: TagProtocols,

    /// Keep priorities other than 0, those of the outermost tag: such a frame leaves by the port of its VLAN with a tag
    /// of VLAN 0.
    pub keep_priority: bool,

    /// The priority code point of all frames to the trunk, from 0 to 7. Without it, priorities are kept; those of frames
    /// without a tag are 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 7))]
    pub priority: Option<u8>,

    /// New priority code points for the priorities 0 to 7 of frames to the trunk: a list of eight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_map: Option<Vec<u8>>,

    /// Whether all frames to the trunk may be dropped first (drop eligible indicator). Without it, that is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop_eligible: Option<bool>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            tpid: TagProtocols::Customer,
            inner_tpid: TagProtocols::Customer,
            keep_priority: false,
            priority: None,
            priority_map: None,
            drop_eligible: None,
        }
    }
}

/// Splits and joins VLANs.
pub struct VlanMux {
    tagging: Tagging,
    keep_priority: bool,
    /// What each input is.
    inputs: Vec<PortKind>,
    outputs: Outputs,
    trunk: Option<u16>,
    next_vectors: NextVectors,
}

/// How frames are tagged.
#[derive(Clone, Copy)]
struct Tagging {
    protocols: [u16; 2],
    inner_protocols: [u16; 2],
    priorities: Priorities,
}

/// The outputs of VLANs.
struct Outputs {
    /// The output of each VLAN, 0 for `native`; [`UNUSUAL`] for those that have none.
    single: Box<[u16; VLANS]>,
    /// For each VLAN the place of the VLANs within it, from 1 on; 0 for none.
    places: Box<[u16; VLANS]>,
    /// The outputs of VLANs within others.
    stacked: Vec<Box<[u16; VLANS]>>,
}

/// Values of a VLAN's identifier.
const VLANS: usize = ID as usize + 1;

/// What a port is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortKind {
    Trunk,
    Native,
    Vlan(u16),
    /// A VLAN, and one within it.
    Stacked(u16, u16),
    Unknown,
}

impl PortKind {
    fn of(name: &str) -> PortKind {
        let vlan = |digits: &str| match digits.starts_with(['0', '+']) {
            true => None,
            false => check_vlan(digits.parse().ok()?).ok(),
        };
        let vlans = name.strip_prefix("vlan").and_then(|vlans| match vlans.split_once('-') {
            Some((outer, inner)) => Some(PortKind::Stacked(vlan(outer)?, vlan(inner)?)),
            None => vlan(vlans).map(PortKind::Vlan),
        });
        match name {
            "trunk" => PortKind::Trunk,
            "native" => PortKind::Native,
            _ => vlans.unwrap_or(PortKind::Unknown),
        }
    }
}

impl Outputs {
    fn none() -> Outputs {
        let none = |number| Box::new([number; VLANS]);
        Outputs { single: none(UNUSUAL), places: none(0), stacked: Vec::new() }
    }

    /// Enters the output of a port.
    fn enter(&mut self, kind: PortKind, output: u16) {
        match kind {
            PortKind::Native => self.single[0] = output,
            PortKind::Vlan(vlan) => self.single[usize::from(vlan)] = output,
            PortKind::Stacked(outer, inner) => {
                let place = &mut self.places[usize::from(outer)];
                if *place == 0 {
                    self.stacked.push(Box::new([UNUSUAL; VLANS]));
                    *place = self.stacked.len() as u16;
                }
                self.stacked[usize::from(*place) - 1][usize::from(inner)] = output;
            }
            PortKind::Trunk | PortKind::Unknown => {}
        }
    }

    /// The output of the VLAN of an inner tag within another VLAN. Hot.
    #[inline(always)]
    fn within(&self, vlan: u16, frame: &[u8], protocols: [u16; 2]) -> Option<u16> {
        let place = usize::from(self.places[usize::from(vlan & ID)]);
        let outputs = self.stacked.get(place.wrapping_sub(1))?;
        match inner(frame, protocols) {
            Outer::Tagged(tag) => Some(outputs[usize::from(tag.id())]).filter(|&output| output != UNUSUAL),
            _ => None,
        }
    }
}

counters! { VlanMux;
    drop TOO_SHORT = "too_short", "packets without a whole Ethernet header or tag";
    drop UNKNOWN_VLAN = "unknown_vlan", "frames from the trunk of a VLAN whose port is not linked; likely: the ends of the trunk do not agree on VLANs or `tpid`; link the port `vlanN`";
    drop UNTAGGED = "untagged", "frames from the trunk without a VLAN, if `native` is not linked; likely: the other end of the trunk has a native VLAN; link `native`";
    drop NATIVE_TAGGED = "native_tagged", "frames from `native` with the tag of a VLAN";
    drop NO_TRUNK = "no_trunk", "frames to the trunk, if it is not linked";
    drop NO_HEADROOM = "no_headroom", "packets without room for a tag";
    drop UNKNOWN_PORT = "unknown_port", "frames from inputs with other names";
}

impl App for VlanMux {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "`trunk`, `native`, `vlan1` to `vlan4094`, and `vlan1-1`" };
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "`trunk`, `native`, `vlan1` to `vlan4094`, and `vlan1-1`" };
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        if self.inputs.len() != io.inputs() {
            self.rewire(io);
        }
        for index in 0..self.inputs.len() {
            match self.inputs[index] {
                PortKind::Trunk => self.split(io, index),
                PortKind::Native => self.join(io, index, Vlans::None),
                PortKind::Vlan(vlan) => self.join(io, index, Vlans::One(vlan)),
                PortKind::Stacked(outer, inner) => self.join(io, index, Vlans::Two(outer, inner)),
                PortKind::Unknown => io.drop_all(&mut io.input(index), VlanMux::UNKNOWN_PORT),
            }
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.rewire(io);
    }
}

impl VlanMux {
    /// Finds the ports.
    #[cold]
    fn rewire(&mut self, io: &Io<Self>) {
        let kind = |input| io.input_name(input).map_or(PortKind::Unknown, PortKind::of);
        self.inputs = (0..io.inputs()).map(kind).collect();
        self.outputs = Outputs::none();
        self.trunk = None;
        for output in 0..io.outputs() {
            match io.output_name(output).map_or(PortKind::Unknown, PortKind::of) {
                PortKind::Trunk => self.trunk = Some(output as u16),
                kind => self.outputs.enter(kind, output as u16),
            }
        }
        self.next_vectors.resize(io.outputs());
    }

    /// Sends frames of the trunk to their VLANs.
    fn split(&mut self, io: &Io<Self>, index: usize) {
        let VlanMux { tagging, keep_priority, outputs, next_vectors, .. } = self;
        let mut input = io.input(index);
        let packets = input.packets_mut();
        let numbers = next_vectors.nexts(packets.len());
        let (ahead, keep_priority) = (io.prefetch(), *keep_priority);
        let pop = PopAll { outputs, tagging, keep_priority, packets: &mut *packets, ahead, numbers: &mut *numbers };
        if !Simd::chosen().run(pop) {
            match outputs.stacked.is_empty() {
                true => outputs.split_each::<false>(packets, tagging, keep_priority, numbers),
                false => outputs.split_each::<true>(packets, tagging, keep_priority, numbers),
            }
        }
        next_vectors.send_all(io, index, input, |packet| match outer(packet.bytes(), tagging.protocols) {
            Outer::TooShort => Next::Drop(VlanMux::TOO_SHORT),
            Outer::Tagged(tag) if tag.id() != 0 => Next::Drop(VlanMux::UNKNOWN_VLAN),
            _ => Next::Drop(VlanMux::UNTAGGED),
        });
    }

    /// Sends frames of a VLAN, or those without, to the trunk.
    fn join(&mut self, io: &Io<Self>, index: usize, vlans: Vlans) {
        let VlanMux { tagging, trunk, next_vectors, .. } = self;
        let ahead = io.prefetch();
        let mut input = match trunk {
            Some(trunk) => {
                let push =
                    |packets: &mut [Packet]| Simd::chosen().run(PushAll { tagging: &*tagging, vlans, packets, ahead });
                let Some(input) = forward_changed(io, index, (*trunk).into(), push) else { return };
                input
            }
            None => io.input(index),
        };
        let packets = input.packets_mut();
        let number = trunk.unwrap_or(UNUSUAL);
        tagging.join_each(packets, vlans, number, next_vectors.nexts(packets.len()));
        let known = if matches!(vlans, Vlans::Two(..)) { tagging.inner_protocols } else { tagging.protocols };
        next_vectors.send_all(io, index, input, |packet| match outer(packet.bytes(), known) {
            _ if trunk.is_none() => Next::Drop(VlanMux::NO_TRUNK),
            Outer::TooShort => Next::Drop(VlanMux::TOO_SHORT),
            Outer::Tagged(_) if vlans == Vlans::None => Next::Drop(VlanMux::NATIVE_TAGGED),
            _ => Next::Drop(VlanMux::NO_HEADROOM),
        });
    }
}

/// The VLANs of a port's frames on the trunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Vlans {
    None,
    One(u16),
    /// One, and one within it.
    Two(u16, u16),
}

impl Outputs {
    /// Untags frames, of which some may be unusual, and numbers them by the outputs of their VLANs.
    #[inline(never)]
    fn split_each<const STACKED: bool>(
        &self,
        packets: &mut [Packet],
        tagging: &Tagging,
        keep_priority: bool,
        numbers: &mut [u16],
    ) {
        for (packet, number) in packets.iter_mut().zip(numbers) {
            *number = match outer(packet.bytes(), tagging.protocols) {
                Outer::TooShort => UNUSUAL,
                Outer::Untagged => self.single[0],
                Outer::Tagged(old) if old.id() == 0 => self.single[0],
                Outer::Tagged(old) => {
                    let within =
                        if STACKED { self.within(old.id(), packet.bytes(), tagging.inner_protocols) } else { None };
                    let single = self.single[usize::from(old.id())];
                    if within.is_some() {
                        untag::<2>(packet, old, keep_priority);
                    } else if single != UNUSUAL {
                        untag::<1>(packet, old, keep_priority);
                    }
                    within.unwrap_or(single)
                }
            };
        }
    }
}

impl Tagging {
    /// Tags frames, of which some may be unusual, and gives them the number of the trunk.
    #[inline(never)]
    fn join_each(&self, packets: &mut [Packet], vlans: Vlans, trunk: u16, numbers: &mut [u16]) {
        let Tagging { protocols: [protocol, _], inner_protocols: [inner_protocol, _], priorities } = self;
        let (protocol, inner_protocol) = (*protocol, *inner_protocol);
        for (packet, number) in packets.iter_mut().zip(numbers) {
            let is_sent = match vlans {
                Vlans::None => match outer(packet.bytes(), self.protocols) {
                    Outer::TooShort => false,
                    Outer::Tagged(tag) => tag.id() == 0,
                    Outer::Untagged => true,
                },
                Vlans::One(vlan) => tag(packet, self.protocols, priorities, (protocol, vlan), None),
                Vlans::Two(outer, inner) => {
                    tag(packet, self.inner_protocols, priorities, (inner_protocol, inner), Some((protocol, outer)))
                }
            };
            *number = if is_sent { trunk } else { UNUSUAL };
        }
    }
}

/// Pops the tags of frames that all have those of linked VLANs, as many each, and numbers them by their outputs. False, and
/// none has changed, if not all are like that.
struct PopAll<'a> {
    outputs: &'a Outputs,
    tagging: &'a Tagging,
    keep_priority: bool,
    packets: &'a mut [Packet],
    ahead: usize,
    numbers: &'a mut [u16],
}

impl Loop for PopAll<'_> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let PopAll { outputs, tagging, keep_priority, packets, ahead, numbers } = self;
        let (protocols, inner_protocols) = (tagging.protocols, tagging.inner_protocols);
        // The VLAN of a frame's outermost tag, if that can be popped.
        let vlan = |frame: &[u8]| match outer(frame, protocols) {
            Outer::Tagged(tag) if !keep_priority | (tag.priority() == 0) => tag.id(),
            _ => 0,
        };
        let mut places = numbers.iter_mut();
        let mut enter = |vlan: u16, number: u16| {
            if let Some(place) = places.next() {
                *place = number;
            }
            (vlan != 0) & (number != UNUSUAL)
        };
        if outputs.stacked.is_empty() {
            return pop_all::<1, _>(packets, ahead, |start: &[u8; 18]| {
                let vlan = vlan(start);
                enter(vlan, outputs.single[usize::from(vlan)])
            });
        }
        pop_all::<2, _>(packets, ahead, |start: &[u8; 22]| {
            let vlan = vlan(start);
            enter(vlan, outputs.within(vlan, start, inner_protocols).unwrap_or(UNUSUAL))
        })
    }
}

/// Tags frames from the port of a VLAN that have no tag, or looks at those from `native`. False, and none has changed, if
/// not all are like that.
struct PushAll<'a> {
    tagging: &'a Tagging,
    vlans: Vlans,
    packets: &'a mut [Packet],
    ahead: usize,
}

impl Loop for PushAll<'_> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let PushAll { tagging: Tagging { protocols, inner_protocols, priorities }, vlans, packets, ahead } = self;
        let tag = |protocol: u16, vlan: u16| OuterTag { protocol, control: priorities.control(0, vlan) };
        match vlans {
            Vlans::None => are_untagged(packets, ahead, *protocols),
            Vlans::One(vlan) => push_all(packets, ahead, *protocols, [tag(protocols[0], vlan)]),
            Vlans::Two(outer, inner) => {
                let tags = [tag(protocols[0], outer), tag(inner_protocols[0], inner)];
                push_all(packets, ahead, *inner_protocols, tags)
            }
        }
    }
}

impl Configure for VlanMux {
    const NAME: &'static str = "vlan-mux";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        const TRUNK: &[&str] = &["trunk"];
        const VLAN: &[&str] = &["vlan5"];
        let before = vec![BenchStep::new("vlan-tag", "vlan = 5", "input", "output")];
        let join = BenchRow { label: "to the trunk", inputs: VLAN, outputs: TRUNK, ..BenchRow::default() };
        let split = BenchRow { label: "from the trunk", inputs: TRUNK, outputs: VLAN, before, ..BenchRow::default() };
        let stacked = vec![BenchStep::new(
            "vlan-tag",
            "vlan = 5, service_vlan = 6, service_tpid = \"802.1q\"",
            "input",
            "output",
        )];
        const STACKED: &[&str] = &["vlan6-5"];
        let two = BenchRow {
            label: "from the trunk, two tags",
            inputs: TRUNK,
            outputs: STACKED,
            before: stacked,
            ..BenchRow::default()
        };
        BenchSetup::Rows(vec![join, split, two])
    }

    fn check_outputs(_: &Config, outputs: &[&str]) -> Result<(), SettingError> {
        let unknown = outputs.iter().find(|name| PortKind::of(name) == PortKind::Unknown);
        let Some(name) = unknown else { return Ok(()) };
        let help = "name outputs `trunk`, `native`, `vlan1` to `vlan4094`, or `vlan5-7` for VLAN 7 within VLAN 5";
        Err(SettingError::at("tpid", format!("an output cannot be called `{name}`"), help))
    }

    fn configure(config: Config, _: &Context) -> Result<VlanMux, SettingError> {
        let priorities = Priorities::new(config.priority, config.priority_map.as_deref(), config.drop_eligible)?;
        let (protocols, inner_protocols) = (config.tpid.numbers(), config.inner_tpid.numbers());
        Ok(VlanMux {
            tagging: Tagging { protocols, inner_protocols, priorities },
            keep_priority: config.keep_priority,
            inputs: Vec::new(),
            outputs: Outputs::none(),
            trunk: None,
            next_vectors: NextVectors::new(),
        })
    }
}

#[cfg(test)]
mod tests;

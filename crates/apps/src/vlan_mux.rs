//! `vlan-mux`: a trunk with several VLANs, and a port for each of them.

use bellows_config::{Bench, BenchFiles, BenchRow, BenchStep, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Ports, counters};
use bellows_packet::Packet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lanes::{Lanes, UNUSUAL, Verdict};
pub use crate::vlan_header::TagProtocols;
use crate::vlan_header::{ID, Outer, OuterTag, check_vlan, outer, push, set, untag};

/// Splits a trunk into its VLANs, and joins them (IEEE 802.1Q).
///
/// Ports are pairs of an input and an output of the same name. `trunk` has the frames of all VLANs with their tags,
/// `vlan5` those of VLAN 5 without, and `native` those without a VLAN, unchanged. A frame of a VLAN whose port is not
/// linked is dropped.
///
/// From the trunk to the port of a VLAN, the outermost tag is popped; in the other direction one is pushed, outside of
/// others (Q-in-Q). A tag of VLAN 0, which has a priority alone, belongs to frames without a VLAN: from the port of a
/// VLAN, it becomes the tag of the VLAN. A frame from `native` must not have the tag of a VLAN, because on the trunk it
/// would belong to that VLAN. Offloads move with the header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The tag protocol identifiers of tags on the trunk: `"802.1q"` (0x8100), `"802.1ad"` (0x88a8), or `"any"` of
    /// both. New tags then have the first.
    pub tpid: TagProtocols,

    /// Keep priorities other than 0: such a frame leaves by the port of its VLAN with a tag of VLAN 0.
    pub keep_priority: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config { tpid: TagProtocols::Customer, keep_priority: false }
    }
}

/// Splits and joins VLANs.
pub struct VlanMux {
    protocols: [u16; 2],
    keep_priority: bool,
    /// What each input is.
    inputs: Vec<PortKind>,
    /// The output of each VLAN, 0 for `native`; [`UNUSUAL`] for those that have none.
    outputs: Box<[u16; VLANS]>,
    trunk: Option<u16>,
    lanes: Lanes,
}

/// Values of a VLAN's identifier.
const VLANS: usize = ID as usize + 1;

/// What a port is, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortKind {
    Trunk,
    Native,
    Vlan(u16),
    Unknown,
}

impl PortKind {
    fn of(name: &str) -> PortKind {
        match name {
            "trunk" => PortKind::Trunk,
            "native" => PortKind::Native,
            _ => {
                let digits = name.strip_prefix("vlan").filter(|digits| !digits.starts_with(['0', '+']));
                let vlan = digits.and_then(|digits| check_vlan(digits.parse().ok()?).ok());
                vlan.map_or(PortKind::Unknown, PortKind::Vlan)
            }
        }
    }
}

counters! { VlanMux;
    drop TOO_SHORT = "too_short", "packets without a whole Ethernet header or tag";
    drop UNKNOWN_VLAN = "unknown_vlan", "frames from the trunk of a VLAN whose port is not linked";
    drop UNTAGGED = "untagged", "frames from the trunk without a VLAN, if `native` is not linked";
    drop NATIVE_TAGGED = "native_tagged", "frames from `native` with the tag of a VLAN";
    drop NO_TRUNK = "no_trunk", "frames to the trunk, if it is not linked";
    drop NO_HEADROOM = "no_headroom", "packets without room for a tag";
    drop UNKNOWN_PORT = "unknown_port", "frames from inputs with other names";
}

impl App for VlanMux {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "`trunk`, `native`, and `vlan1` to `vlan4094`" };
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "`trunk`, `native`, and `vlan1` to `vlan4094`" };
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        if self.inputs.len() != io.inputs() {
            self.rewire(io);
        }
        for index in 0..self.inputs.len() {
            match self.inputs[index] {
                PortKind::Trunk => self.split(io, index),
                PortKind::Native => self.join(io, index, 0),
                PortKind::Vlan(vlan) => self.join(io, index, vlan),
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
        self.outputs.fill(UNUSUAL);
        self.trunk = None;
        for output in 0..io.outputs() {
            match io.output_name(output).map_or(PortKind::Unknown, PortKind::of) {
                PortKind::Trunk => self.trunk = Some(output as u16),
                PortKind::Native => self.outputs[0] = output as u16,
                PortKind::Vlan(vlan) => self.outputs[usize::from(vlan)] = output as u16,
                PortKind::Unknown => {}
            }
        }
        self.lanes.resize(io.outputs());
    }

    /// Sends frames of the trunk to their VLANs.
    fn split(&mut self, io: &Io<Self>, index: usize) {
        let VlanMux { protocols, keep_priority, outputs, lanes, .. } = self;
        let mut input = io.input(index);
        let packets = input.packets_mut();
        let numbers = lanes.numbers(packets.len());
        split_all(packets, io.prefetch(), *protocols, *keep_priority, outputs, numbers);
        lanes.send_all(io, index, input, |packet| match outer(packet.bytes(), *protocols) {
            Outer::TooShort => Verdict::Drop(VlanMux::TOO_SHORT),
            Outer::Tagged(tag) if tag.id() != 0 => Verdict::Drop(VlanMux::UNKNOWN_VLAN),
            _ => Verdict::Drop(VlanMux::UNTAGGED),
        });
    }

    /// Sends frames of a VLAN to the trunk, or those without for VLAN 0.
    fn join(&mut self, io: &Io<Self>, index: usize, vlan: u16) {
        let VlanMux { protocols, trunk, lanes, .. } = self;
        let mut input = io.input(index);
        let packets = input.packets_mut();
        let number = trunk.unwrap_or(UNUSUAL);
        join_all(packets, io.prefetch(), *protocols, vlan, number, lanes.numbers(packets.len()));
        lanes.send_all(io, index, input, |packet| match outer(packet.bytes(), *protocols) {
            _ if trunk.is_none() => Verdict::Drop(VlanMux::NO_TRUNK),
            Outer::TooShort => Verdict::Drop(VlanMux::TOO_SHORT),
            Outer::Tagged(_) if vlan == 0 => Verdict::Drop(VlanMux::NATIVE_TAGGED),
            _ => Verdict::Drop(VlanMux::NO_HEADROOM),
        });
    }
}

/// Untags frames, and numbers them by the outputs of their VLANs. Hot.
#[inline(never)]
fn split_all(
    packets: &mut [Packet],
    ahead: usize,
    protocols: [u16; 2],
    keep_priority: bool,
    outputs: &[u16; VLANS],
    numbers: &mut [u16],
) {
    packets.iter().take(ahead).for_each(Packet::prefetch);
    for (index, number) in numbers.iter_mut().enumerate().take(packets.len()) {
        if let Some(packet) = packets.get(index + ahead) {
            packet.prefetch();
        }
        let packet = &mut packets[index];
        *number = match outer(packet.bytes(), protocols) {
            Outer::TooShort => UNUSUAL,
            Outer::Untagged => outputs[0],
            Outer::Tagged(tag) => {
                let output = outputs[usize::from(tag.id())];
                if tag.id() != 0 && output != UNUSUAL {
                    untag(packet, tag, keep_priority);
                }
                output
            }
        };
    }
}

/// Tags frames, and gives them the number of the trunk. Hot.
#[inline(never)]
fn join_all(packets: &mut [Packet], ahead: usize, protocols: [u16; 2], vlan: u16, trunk: u16, numbers: &mut [u16]) {
    packets.iter().take(ahead).for_each(Packet::prefetch);
    let protocol = protocols[0];
    for (index, number) in numbers.iter_mut().enumerate().take(packets.len()) {
        if let Some(packet) = packets.get(index + ahead) {
            packet.prefetch();
        }
        let packet = &mut packets[index];
        let is_sent = match outer(packet.bytes(), protocols) {
            Outer::TooShort => false,
            Outer::Tagged(tag) if vlan == 0 => tag.id() == 0,
            Outer::Untagged if vlan == 0 => true,
            Outer::Tagged(tag) if tag.id() == 0 => {
                set(packet, OuterTag { protocol, control: tag.priority() | vlan });
                true
            }
            Outer::Tagged(tag) => push(packet, OuterTag { protocol, control: tag.priority() | vlan }),
            Outer::Untagged => push(packet, OuterTag { protocol, control: vlan }),
        };
        *number = if is_sent { trunk } else { UNUSUAL };
    }
}

impl Configure for VlanMux {
    const NAME: &'static str = "vlan-mux";
    type Config = Config;

    fn bench(_: &BenchFiles) -> Bench {
        const TRUNK: &[&str] = &["trunk"];
        const VLAN: &[&str] = &["vlan5"];
        let before = vec![BenchStep::new("vlan-tag", "vlan = 5", "input", "output")];
        let join = BenchRow { label: "to the trunk", inputs: VLAN, outputs: TRUNK, ..BenchRow::default() };
        let split = BenchRow { label: "from the trunk", inputs: TRUNK, outputs: VLAN, before, ..BenchRow::default() };
        Bench::Rows(vec![join, split])
    }

    fn check_outputs(_: &Config, outputs: &[&str]) -> Result<(), SettingError> {
        let unknown = outputs.iter().find(|name| PortKind::of(name) == PortKind::Unknown);
        let Some(name) = unknown else { return Ok(()) };
        let help = "name outputs `trunk`, `native`, or `vlan1` to `vlan4094`";
        Err(SettingError::at("tpid", format!("an output cannot be called `{name}`"), help))
    }

    fn configure(config: Config, _: &Context) -> Result<VlanMux, SettingError> {
        Ok(VlanMux {
            protocols: config.tpid.numbers(),
            keep_priority: config.keep_priority,
            inputs: Vec::new(),
            outputs: Box::new([UNUSUAL; VLANS]),
            trunk: None,
            lanes: Lanes::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use bellows_rig::Rig;
    use proptest::prelude::*;

    const PORTS: [&str; 4] = ["trunk", "native", "vlan5", "vlan4094"];

    fn rig(tpid: TagProtocols, keep_priority: bool, outputs: &[&str]) -> Rig {
        let app = VlanMux::configure(Config { tpid, keep_priority }, &Context::default()).unwrap();
        Rig::new(app, &PORTS, outputs)
    }

    /// The output and the frame, or the reason for its drop.
    type Fate = Result<(&'static str, Vec<u8>), &'static str>;

    /// What a naive multiplexer does with a frame.
    fn naive(tpid: TagProtocols, keep: bool, port: &str, frame: &[u8]) -> Fate {
        if frame.len() < 14 {
            return Err("too_short");
        }
        let kind = &frame[12..14];
        let is_tag = match tpid {
            TagProtocols::Customer => kind == [0x81, 0],
            TagProtocols::Service => kind == [0x88, 0xa8],
            TagProtocols::Any => kind == [0x81, 0] || kind == [0x88, 0xa8],
        };
        if is_tag && frame.len() < 18 {
            return Err("too_short");
        }
        let control = if is_tag { u16::from_be_bytes([frame[14], frame[15]]) } else { 0 };
        let (id, priority) = (control & 0xfff, control & 0xf000);
        let with = |kind: &[u8], control: u16, rest: &[u8]| [&frame[..12], kind, &control.to_be_bytes(), rest].concat();
        let new: &[u8] = if tpid == TagProtocols::Service { &[0x88, 0xa8] } else { &[0x81, 0] };
        let vlan = match port {
            "trunk" => {
                let to = match id {
                    0 => return Ok(("native", frame.to_vec())),
                    5 => "vlan5",
                    4094 => "vlan4094",
                    _ => return Err("unknown_vlan"),
                };
                let untagged = [&frame[..12], &frame[16..]].concat();
                let kept = with(kind, priority, &frame[16..]);
                return Ok((to, if keep && priority != 0 { kept } else { untagged }));
            }
            "native" if id != 0 => return Err("native_tagged"),
            "native" => return Ok(("trunk", frame.to_vec())),
            "vlan5" => 5,
            _ => 4094,
        };
        let rest = if is_tag && id == 0 { &frame[16..] } else { &frame[12..] };
        Ok(("trunk", with(new, priority | vlan, rest)))
    }

    fn frames() -> impl Strategy<Value = Vec<u8>> {
        let kinds = prop_oneof![Just([0x81, 0]), Just([0x88, 0xa8]), Just([8, 0]), any::<[u8; 2]>()];
        let ids = prop_oneof![Just(0u16), Just(5), Just(4094), Just(6), 0u16..4096];
        let tag = (kinds.clone(), ids, 0u16..16).prop_map(|(kind, id, priority)| (kind, id | priority << 12));
        let length = prop_oneof![20 => Just(usize::MAX), 1 => 0usize..20];
        (prop::collection::vec(tag, 1..3), kinds, length).prop_map(|(tags, kind, length)| {
            let tags = tags.iter().flat_map(|(kind, control)| [*kind, control.to_be_bytes()].concat());
            let mut frame: Vec<u8> = [3; 12].into_iter().chain(tags).chain(kind).chain([9; 40]).collect();
            frame.truncate(length);
            frame
        })
    }

    proptest! {
        #[test]
        fn frames_go_where_a_naive_multiplexer_sends_them(
            tpid in prop_oneof![Just(TagProtocols::Customer), Just(TagProtocols::Service), Just(TagProtocols::Any)],
            keep: bool,
            sent in prop::collection::vec((0usize..4, frames()), 0..200),
        ) {
            let mut rig = rig(tpid, keep, &PORTS);
            let mut expected: BTreeMap<&str, Vec<Vec<u8>>> = PORTS.into_iter().map(|port| (port, Vec::new())).collect();
            let mut drops = BTreeMap::<&str, u64>::new();
            for (index, port) in PORTS.into_iter().enumerate() {
                let of_port = sent.iter().filter(|(at, _)| *at == index);
                let frames: Vec<&Vec<u8>> = of_port.map(|(_, frame)| frame).collect();
                for frame in &frames {
                    match naive(tpid, keep, port, frame) {
                        Ok((to, frame)) => expected.get_mut(to).unwrap().push(frame),
                        Err(reason) => *drops.entry(reason).or_default() += 1,
                    }
                }
                rig.send(port, frames);
            }
            rig.settle();
            for port in PORTS {
                prop_assert_eq!(&rig.received(port), &expected[port], "{}", port);
            }
            let counts = rig.counts().drops;
            for (reason, count) in drops {
                prop_assert_eq!(counts[reason], count, "{}", reason);
            }
            rig.finish();
        }
    }

    #[test]
    fn ports_that_are_missing_have_counters() {
        let mut rig = rig(TagProtocols::Customer, false, &["vlan5"]);
        let frame = |rest: &[u8]| [&[7; 12], rest].concat();
        rig.send("trunk", [frame(&[8, 0]), frame(&[0x81, 0, 0, 6, 8, 0]), frame(&[0x81, 0, 0, 5, 8, 0])]);
        rig.send("vlan5", [frame(&[8, 0])]);
        rig.settle();
        let drops = rig.counts().drops;
        assert_eq!((drops["untagged"], drops["unknown_vlan"], drops["no_trunk"]), (1, 1, 1));
        assert_eq!(rig.received("vlan5"), [frame(&[8, 0])]);
    }

    #[test]
    fn names_of_ports_are_checked() {
        let check = |name| VlanMux::check_outputs(&Config::default(), &["trunk", name]).is_ok();
        assert!(["native", "vlan1", "vlan4094"].into_iter().all(check));
        assert!(!["vlan0", "vlan4095", "vlan05", "vlan", "vlan+5", "other"].into_iter().any(check));
    }
}

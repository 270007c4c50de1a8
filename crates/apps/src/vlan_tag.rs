//! `vlan-tag`: puts frames into a VLAN.

use bellows_config::{Bench, BenchFiles, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_packet::Packet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::lanes::{Lanes, UNUSUAL, Verdict};
pub use crate::vlan_header::TagProtocol;
use crate::vlan_header::{Outer, OuterTag, TagProtocols, check_vlan, outer, parts, priority, push, set};

/// Puts frames into a VLAN: pushes a tag in front of their EtherType (IEEE 802.1Q).
///
/// A frame with tags gets one more outside of them (Q-in-Q), with the priority of its outermost tag. A tag of VLAN 0, which
/// has a priority alone, is not pushed behind another: it becomes the tag of the VLAN. Frames without a tag have the
/// priority 0. Offloads move with the header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The VLAN, from 1 to 4,094.
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: u16,

    /// The tag protocol identifier: `"0x8100"` for customers' tags (802.1Q), `"0x88a8"` for providers' (802.1ad).
    #[serde(default)]
    pub tpid: TagProtocol,

    /// The priority code point of all frames, from 0 to 7. Without it, priorities are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 7))]
    pub priority: Option<u8>,

    /// New priority code points for the priorities 0 to 7: a list of eight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_map: Option<Vec<u8>>,

    /// Whether all frames may be dropped first (drop eligible indicator). Without it, that is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop_eligible: Option<bool>,
}

/// Pushes tags.
pub struct VlanTag {
    tagging: Tagging,
    lanes: Lanes,
}

/// How frames are tagged.
struct Tagging {
    protocol: u16,
    vlan: u16,
    /// The new priority part of a control field for each old one.
    priorities: [u16; 16],
}

counters! { VlanTag;
    drop TOO_SHORT = "too_short", "packets without a whole Ethernet header";
    drop NO_HEADROOM = "no_headroom", "packets without room for a tag";
}

impl App for VlanTag {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "Ethernet frames")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "frames of the VLAN")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        let VlanTag { tagging, lanes } = self;
        lanes.resize(io.outputs());
        let mut input = io.input(0);
        let packets = input.packets_mut();
        tagging.tag_all(packets, io.prefetch(), lanes.numbers(packets.len()));
        lanes.send_all(io, 0, input, |packet| {
            let is_short = outer(packet.bytes(), [tagging.protocol; 2]) == Outer::TooShort;
            Verdict::Drop(if is_short { VlanTag::TOO_SHORT } else { VlanTag::NO_HEADROOM })
        });
    }
}

impl Tagging {
    /// Tags frames, and numbers them by their outputs. Hot.
    #[inline(never)]
    fn tag_all(&self, packets: &mut [Packet], ahead: usize, numbers: &mut [u16]) {
        packets.iter().take(ahead).for_each(Packet::prefetch);
        for (index, number) in numbers.iter_mut().enumerate().take(packets.len()) {
            if let Some(packet) = packets.get(index + ahead) {
                packet.prefetch();
            }
            *number = if self.tag(&mut packets[index]) { 0 } else { UNUSUAL };
        }
    }

    /// Tags a frame. False if it stays as it is.
    #[inline(always)]
    fn tag(&self, packet: &mut Packet) -> bool {
        // Tags of any kind have a priority.
        let tag = |priority: u16| OuterTag {
            protocol: self.protocol,
            control: self.priorities[usize::from(priority >> 12)] | self.vlan,
        };
        match outer(packet.bytes(), TagProtocols::Any.numbers()) {
            Outer::TooShort => false,
            Outer::Tagged(old) if old.id() == 0 => {
                set(packet, tag(old.priority()));
                true
            }
            Outer::Tagged(old) => push(packet, tag(old.priority())),
            Outer::Untagged => push(packet, tag(0)),
        }
    }
}

impl Configure for VlanTag {
    const NAME: &'static str = "vlan-tag";
    type Config = Config;

    fn bench(_: &BenchFiles) -> Bench {
        Bench::with_keys("vlan = 5")
    }

    fn configure(config: Config, _: &Context) -> Result<VlanTag, SettingError> {
        let vlan = check_vlan(config.vlan)?;
        let is_wrong = |code_point: &u8| *code_point > 7;
        if config.priority.iter().any(is_wrong) {
            return Err(SettingError::at("priority", "there is no such priority", "give a number from 0 to 7"));
        }
        if config.priority.is_some() && config.priority_map.is_some() {
            let message = "`priority` and `priority_map` exclude each other";
            return Err(SettingError::at("priority_map", message, "leave one of them out"));
        }
        let map: Option<[u8; 8]> = match config.priority_map {
            Some(map) if map.iter().any(is_wrong) || map.len() != 8 => {
                let message = "a map of priorities is a list of eight numbers from 0 to 7";
                return Err(SettingError::at("priority_map", message, "write, for example, [0, 0, 2, 3, 4, 5, 6, 7]"));
            }
            map => map.and_then(|map| map.try_into().ok()),
        };
        let new = |old: u16| {
            let (code_point, drop_eligible) = parts(old << 12);
            let mapped = map.map_or(code_point, |map| map[usize::from(code_point)]);
            priority(config.priority.unwrap_or(mapped), config.drop_eligible.unwrap_or(drop_eligible))
        };
        let priorities = std::array::from_fn(|old| new(old as u16));
        let tagging = Tagging { protocol: config.tpid.number(), vlan, priorities };
        Ok(VlanTag { tagging, lanes: Lanes::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_packet::Offload;
    use bellows_rig::Rig;
    use proptest::prelude::*;

    fn configure(text: &str) -> Result<VlanTag, SettingError> {
        VlanTag::configure(serde_json::from_str(text).unwrap(), &Context::default())
    }

    /// What becomes of a frame whose bytes behind the addresses are these.
    fn tagged(config: &str, rest: &[u8]) -> Vec<Vec<u8>> {
        let mut rig = Rig::new(configure(config).unwrap(), &["input"], &["output"]);
        rig.send("input", [[&[7; 12], rest].concat()]);
        rig.settle();
        let sent = rig.received("output");
        assert!(sent.iter().all(|frame| frame[..12] == [7; 12]));
        sent.iter().map(|frame| frame[12..].to_vec()).collect()
    }

    #[test]
    fn tags_are_pushed_and_priorities_kept_set_or_mapped() {
        let five = r#"{"vlan": 5}"#;
        let plain = [8, 0, 1, 2];
        assert_eq!(tagged(five, &plain), [[0x81, 0, 0, 5, 8, 0, 1, 2]]);
        // Priority 6, and drop eligible.
        let with_priority = [0x81, 0, 0xd0, 0, 8, 0];
        assert_eq!(tagged(five, &with_priority), [[0x81, 0, 0xd0, 5, 8, 0]]);
        let inner = [0x81, 0, 0xd0, 9, 8, 0];
        let service = r#"{"vlan": 5, "tpid": "0x88a8"}"#;
        assert_eq!(tagged(service, &inner), [[0x88, 0xa8, 0xd0, 5, 0x81, 0, 0xd0, 9, 8, 0]]);
        let set = r#"{"vlan": 4094, "priority": 3, "drop_eligible": false}"#;
        assert_eq!(tagged(set, &with_priority), [[0x81, 0, 0x6f, 0xfe, 8, 0]]);
        let mapped = r#"{"vlan": 5, "priority_map": [1, 1, 2, 3, 4, 5, 0, 7]}"#;
        assert_eq!(tagged(mapped, &with_priority), [[0x81, 0, 0x10, 5, 8, 0]]);
        assert_eq!(tagged(mapped, &plain), [[0x81, 0, 0x20, 5, 8, 0, 1, 2]]);
        assert_eq!(tagged(five, &[8]), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn offloads_move_with_the_header() {
        let mut rig = Rig::new(configure(r#"{"vlan": 5}"#).unwrap(), &["input"], &["output"]);
        let mut packet = Packet::from_bytes(&[8; 100]).unwrap();
        let offload = Offload { flags: 1, header_length: 42, checksum_start: 34, checksum_offset: 6, ..Offload::default() };
        packet.set_offload(offload);
        let mut crowded = Packet::from_bytes(&[8; 100]).unwrap();
        crowded.prepend(crowded.headroom() - 3);
        rig.send_packets("input", [packet, crowded]);
        rig.send("input", [[1; 13]]);
        rig.settle();
        let sent = rig.received_packets("output");
        assert_eq!(sent[0].offload(), Some(Offload { header_length: 46, checksum_start: 38, ..offload }));
        let drops = rig.counts().drops;
        assert_eq!((sent.len(), drops["no_headroom"], drops["too_short"]), (1, 1, 1));
        assert_eq!(rig.counts().out_bytes, 104);
    }

    #[test]
    fn impossible_settings_are_refused_by_key() {
        for (text, key) in [
            (r#"{"vlan": 0}"#, "vlan"),
            (r#"{"vlan": 4095}"#, "vlan"),
            (r#"{"vlan": 1, "priority": 8}"#, "priority"),
            (r#"{"vlan": 1, "priority_map": [0, 1]}"#, "priority_map"),
            (r#"{"vlan": 1, "priority": 1, "priority_map": [0, 1, 2, 3, 4, 5, 6, 7]}"#, "priority_map"),
        ] {
            assert_eq!(configure(text).err().unwrap().key, Some(key), "{text}");
        }
    }

    proptest! {
        /// A tag that is pushed and popped leaves no trace.
        #[test]
        fn untagging_is_the_opposite(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 18..100), 0..300),
            vlan in 1u16..4095,
        ) {
            let mut tag = Rig::new(configure(&format!("{{\"vlan\": {vlan}}}")).unwrap(), &["input"], &["output"]);
            let untag = crate::vlan_untag::Config { vlan: Some(vlan), ..Default::default() };
            let app = crate::vlan_untag::VlanUntag::configure(untag, &Context::default()).unwrap();
            let mut untag = Rig::new(app, &["input"], &["output"]);
            // A tag of VLAN 0 would be replaced.
            let frames: Vec<Vec<u8>> = frames.into_iter().filter(|frame| !matches!(frame[12], 0x81 | 0x88)).collect();
            tag.send("input", &frames);
            tag.settle();
            untag.send_packets("input", tag.received_packets("output"));
            untag.settle();
            prop_assert_eq!(untag.received("output"), frames);
        }
    }
}

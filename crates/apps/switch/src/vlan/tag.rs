//! `vlan-tag`: puts frames into a VLAN.

use bellows_common::nexts::{Next, NextVectors, UNUSUAL, forward_changed};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_packet::Packet;
use bellows_sys::simd::{Loop, Simd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::vlan::header::TagProtocol;
use crate::vlan::header::{
    Outer, OuterTag, Priorities, TagOf, TagProtocols, check_vlan, check_vlan_of, outer, push_all, tag,
};

/// Puts frames into a VLAN: pushes a tag in front of their EtherType (IEEE 802.1Q).
///
/// A frame with tags gets one more outside of them (Q-in-Q), with the priority of its outermost tag. A tag of VLAN 0,
/// which has a priority alone, is not pushed behind another: it becomes the tag of the VLAN. Frames without a tag have
/// the priority 0. With `service_vlan` two tags are pushed at once, with the same priority. Offloads move with the
/// header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The VLAN, from 1 to 4,094.
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: u16,

    /// The tag protocol identifier: `"802.1q"` for customers' tags (0x8100), `"802.1ad"` for providers' (0x88a8), or
    /// `"0x9100"`, which these had before.
    #[serde(default)]
    pub tpid: TagProtocol,

    /// The VLAN of a provider's tag outside of that of `vlan`, from 1 to 4,094. By default there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub service_vlan: Option<u16>,

    /// The tag protocol identifier of the provider's tag.
    #[serde(default = "service")]
    pub service_tpid: TagProtocol,

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

fn service() -> TagProtocol {
    TagProtocol::Service
}

/// Pushes tags.
pub struct VlanTag {
    tagging: Tagging,
    next_vectors: NextVectors,
}

/// How frames are tagged.
struct Tagging {
    own: TagOf,
    outside: Option<TagOf>,
    priorities: Priorities,
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
        let VlanTag { tagging, next_vectors } = self;
        next_vectors.resize(io.outputs());
        let tag =
            |packets: &mut [Packet]| Simd::chosen().run(TagAll { tagging: &*tagging, packets, ahead: io.prefetch() });
        let Some(mut input) = forward_changed(io, 0, 0, tag) else { return };
        let packets = input.packets_mut();
        tagging.tag_each(packets, next_vectors.nexts(packets.len()));
        next_vectors.send_all(io, 0, input, |packet| {
            let is_short = outer(packet.bytes(), KNOWN) == Outer::TooShort;
            Next::Drop(if is_short { VlanTag::TOO_SHORT } else { VlanTag::NO_HEADROOM })
        });
    }
}

impl Tagging {
    /// Tags frames, some of which have a tag or something else that is unusual, and numbers them by their outputs.
    #[inline(never)]
    fn tag_each(&self, packets: &mut [Packet], numbers: &mut [u16]) {
        for (packet, number) in packets.iter_mut().zip(numbers) {
            let is_tagged = tag(packet, KNOWN, &self.priorities, self.own, self.outside);
            *number = if is_tagged { 0 } else { UNUSUAL };
        }
    }
}

/// Tags of any kind have a priority.
const KNOWN: [u16; 2] = TagProtocols::Any.numbers();

/// Tags frames that have no tag. False, and none has changed, if not all are like that.
struct TagAll<'a> {
    tagging: &'a Tagging,
    packets: &'a mut [Packet],
    ahead: usize,
}

impl Loop for TagAll<'_> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let TagAll { tagging, packets, ahead } = self;
        let tag = |(protocol, vlan): TagOf| OuterTag { protocol, control: tagging.priorities.control(0, vlan) };
        match tagging.outside.map(tag) {
            None => push_all(packets, ahead, KNOWN, [tag(tagging.own)]),
            Some(outside) => push_all(packets, ahead, KNOWN, [outside, tag(tagging.own)]),
        }
    }
}

impl Configure for VlanTag {
    const NAME: &'static str = "vlan-tag";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        let two = BenchRow { label: "two tags", keys: "vlan = 5, service_vlan = 6".to_owned(), ..BenchRow::default() };
        BenchSetup::Rows(vec![BenchRow { keys: "vlan = 5".to_owned(), ..BenchRow::default() }, two])
    }

    fn configure(config: Config, _: &Context) -> Result<VlanTag, SettingError> {
        let vlan = check_vlan(config.vlan)?;
        let service = config.service_vlan.map(|vlan| check_vlan_of("service_vlan", vlan)).transpose()?;
        let outside = service.map(|vlan| (config.service_tpid.number(), vlan));
        let priorities = Priorities::new(config.priority, config.priority_map.as_deref(), config.drop_eligible)?;
        let tagging = Tagging { own: (config.tpid.number(), vlan), outside, priorities };
        Ok(VlanTag { tagging, next_vectors: NextVectors::new() })
    }
}

#[cfg(test)]
mod tests {
    use bellows_packet::Offload;
    use bellows_rig::Rig;
    use proptest::prelude::*;

    use super::*;

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
        let service = r#"{"vlan": 5, "tpid": "802.1ad"}"#;
        assert_eq!(tagged(service, &inner), [[0x88, 0xa8, 0xd0, 5, 0x81, 0, 0xd0, 9, 8, 0]]);
        let set = r#"{"vlan": 4094, "priority": 3, "drop_eligible": false}"#;
        assert_eq!(tagged(set, &with_priority), [[0x81, 0, 0x6f, 0xfe, 8, 0]]);
        let two = r#"{"vlan": 5, "service_vlan": 9}"#;
        assert_eq!(tagged(two, &plain), [[0x88, 0xa8, 0, 9, 0x81, 0, 0, 5, 8, 0, 1, 2]]);
        assert_eq!(tagged(two, &with_priority), [[0x88, 0xa8, 0xd0, 9, 0x81, 0, 0xd0, 5, 8, 0]]);
        let old = r#"{"vlan": 5, "service_vlan": 9, "service_tpid": "0x9100"}"#;
        assert_eq!(tagged(old, &inner), [[0x91, 0, 0xd0, 9, 0x81, 0, 0xd0, 5, 0x81, 0, 0xd0, 9, 8, 0]]);
        let mapped = r#"{"vlan": 5, "priority_map": [1, 1, 2, 3, 4, 5, 0, 7]}"#;
        assert_eq!(tagged(mapped, &with_priority), [[0x81, 0, 0x10, 5, 8, 0]]);
        assert_eq!(tagged(mapped, &plain), [[0x81, 0, 0x20, 5, 8, 0, 1, 2]]);
        assert_eq!(tagged(five, &[8]), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn offloads_move_with_the_header() {
        let mut rig = Rig::new(configure(r#"{"vlan": 5}"#).unwrap(), &["input"], &["output"]);
        let mut packet = Packet::from_bytes(&[8; 100]).unwrap();
        let moved = Offload { flags: 1, header_length: 42, checksum_start: 34, ..Offload::default() };
        let offload = Offload { checksum_offset: 6, ..moved };
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
            (r#"{"vlan": 1, "service_vlan": 0}"#, "service_vlan"),
            (r#"{"vlan": 1, "priority": 8}"#, "priority"),
            (r#"{"vlan": 1, "priority_map": [0, 1]}"#, "priority_map"),
            (r#"{"vlan": 1, "priority": 1, "priority_map": [0, 1, 2, 3, 4, 5, 6, 7]}"#, "priority_map"),
        ] {
            assert_eq!(configure(text).err().unwrap().key, Some(key), "{text}");
        }
    }

    proptest! {
        /// Tags that are pushed and popped leave no trace.
        #[test]
        fn untagging_is_the_opposite(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 18..100), 0..300),
            vlan in 1u16..4095,
            service_vlan in prop::option::of(1u16..4095),
        ) {
            let keys = serde_json::json!({ "vlan": vlan, "service_vlan": service_vlan });
            let mut tag = Rig::new(configure(&keys.to_string()).unwrap(), &["input"], &["output"]);
            let untag = crate::vlan::untag::Config { vlan: Some(vlan), service_vlan, ..Default::default() };
            let app = crate::vlan::untag::VlanUntag::configure(untag, &Context::default()).unwrap();
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

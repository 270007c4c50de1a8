//! `vlan-untag`: takes frames out of a VLAN.

use bellows_common::nexts::{Next, NextVectors, UNUSUAL, forward_changed};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, BenchStep, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_packet::Packet;
use bellows_sys::simd::{Loop, Simd};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use crate::vlan::header::TagProtocols;
use crate::vlan::header::{Outer, OuterTag, check_vlan, check_vlan_of, inner, outer, pop_all, untag};

/// Takes frames out of a VLAN: pops their outermost tag (IEEE 802.1Q).
///
/// Frames of other VLANs, without a tag, or with one of VLAN 0, which has a priority alone, go to `other` unchanged; if
/// it is not linked, they are dropped. Without `vlan`, a tag of VLAN 0 is popped as well. With `service_vlan` two tags
/// are popped at once; other inner tags stay. Offloads move with the header.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The VLAN, from 1 to 4,094. Without it, the tags of all VLANs are popped.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,

    /// The tag protocol identifiers of tags: `"802.1q"` (0x8100), `"802.1ad"` (0x88a8), `"any"` of both, or `"0x9100"`.
    pub tpid: TagProtocols,

    /// The VLAN of a provider's tag outside of that of `vlan`, from 1 to 4,094: frames with both tags lose both. By
    /// default the outermost tag is that of `vlan`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub service_vlan: Option<u16>,

    /// The tag protocol identifiers of the provider's tag.
    pub service_tpid: TagProtocols,

    /// Keep priorities other than 0, those of the outermost tag: such a frame leaves with a tag of VLAN 0.
    pub keep_priority: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            vlan: None,
            tpid: TagProtocols::Any,
            service_vlan: None,
            service_tpid: TagProtocols::Any,
            keep_priority: false,
        }
    }
}

/// Pops tags.
pub struct VlanUntag {
    untagging: Untagging,
    next_vectors: NextVectors,
}

/// How frames are untagged.
struct Untagging {
    protocols: [u16; 2],
    /// 0 for all.
    vlan: u16,
    /// The protocols and the VLAN of the tag outside.
    service: Option<([u16; 2], u16)>,
    keep_priority: bool,
}

counters! { VlanUntag;
    drop TOO_SHORT = "too_short", "packets without a whole Ethernet header or tag";
    drop UNTAGGED = "untagged", "frames without a VLAN, if `other` is not linked; likely: the other end sends this VLAN without a tag, or with another `tpid`";
    drop UNKNOWN_VLAN = "unknown_vlan", "frames of other VLANs, if `other` is not linked; likely: the ends do not agree on `vlan`";
}

/// The places of the outputs.
const OUTPUT: u16 = 0;
const OTHER: usize = 1;

impl App for VlanUntag {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "Ethernet frames")]);
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("output", "frames of the VLAN, without its tag"),
        Port::optional("other", "all other frames"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        let VlanUntag { untagging, next_vectors } = self;
        next_vectors.resize(io.outputs());
        let untag = |packets: &mut [Packet]| {
            Simd::chosen().run(UntagAll { untagging: &*untagging, packets, ahead: io.prefetch() })
        };
        let Some(mut input) = forward_changed(io, 0, OUTPUT.into(), untag) else { return };
        let packets = input.packets_mut();
        untagging.untag_each(packets, next_vectors.nexts(packets.len()));
        next_vectors.send_all(io, 0, input, |packet| match untagging.innermost(packet.bytes()) {
            Outer::TooShort => Next::Drop(VlanUntag::TOO_SHORT),
            _ if io.is_linked(OTHER) => Next::To(OTHER),
            Outer::Tagged(tag) if tag.id() != 0 => Next::Drop(VlanUntag::UNKNOWN_VLAN),
            _ => Next::Drop(VlanUntag::UNTAGGED),
        });
    }
}

impl Untagging {
    /// Untags frames, of which some may be unusual, and numbers them by their outputs.
    #[inline(never)]
    fn untag_each(&self, packets: &mut [Packet], numbers: &mut [u16]) {
        for (packet, number) in packets.iter_mut().zip(numbers) {
            *number = if self.untag(packet) { OUTPUT } else { UNUSUAL };
        }
    }

    /// Whether a tag is that of the VLAN. Without a VLAN, priorities alone are popped as well. Hot.
    #[inline(always)]
    fn is_meant(&self, tag: OuterTag) -> bool {
        self.vlan == 0 || tag.id() == self.vlan
    }

    /// Untags a frame. False if it is not one of the VLAN.
    #[inline(always)]
    fn untag(&self, packet: &mut Packet) -> bool {
        match self.service {
            None => match outer(packet.bytes(), self.protocols) {
                Outer::Tagged(tag) if self.is_meant(tag) => untag::<1>(packet, tag, self.keep_priority),
                _ => return false,
            },
            Some((protocols, vlan)) => {
                match (outer(packet.bytes(), protocols), inner(packet.bytes(), self.protocols)) {
                    (Outer::Tagged(outer), Outer::Tagged(inner)) if outer.id() == vlan && self.is_meant(inner) => {
                        untag::<2>(packet, outer, self.keep_priority);
                    }
                    _ => return false,
                }
            }
        }
        true
    }

    /// The tag by which a frame is none of the VLAN, if it has one.
    fn innermost(&self, frame: &[u8]) -> Outer {
        match self.service {
            None => outer(frame, self.protocols),
            Some((protocols, vlan)) => match outer(frame, protocols) {
                // That of another provider's VLAN says enough; its own has an inner one.
                Outer::Tagged(tag) if tag.id() == vlan && inner(frame, self.protocols) == Outer::TooShort => {
                    Outer::TooShort
                }
                outer => outer,
            },
        }
    }
}

/// Untags frames that are all of the VLAN and lose their tags. False, and none has changed, if not all are like that.
struct UntagAll<'a> {
    untagging: &'a Untagging,
    packets: &'a mut [Packet],
    ahead: usize,
}

impl Loop for UntagAll<'_> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let UntagAll { untagging, packets, ahead } = self;
        let is_popped = |tag: OuterTag| !untagging.keep_priority | (tag.priority() == 0);
        let (protocols, vlan) = match untagging.service {
            None => {
                return pop_all::<1, _>(packets, ahead, |start: &[u8; 18]| match outer(start, untagging.protocols) {
                    Outer::Tagged(tag) => untagging.is_meant(tag) & is_popped(tag),
                    _ => false,
                });
            }
            Some(service) => service,
        };
        pop_all::<2, _>(packets, ahead, |start: &[u8; 22]| {
            match (outer(start, protocols), inner(start, untagging.protocols)) {
                (Outer::Tagged(outer), Outer::Tagged(inner)) => {
                    (outer.id() == vlan) & untagging.is_meant(inner) & is_popped(outer)
                }
                _ => false,
            }
        })
    }
}

impl Configure for VlanUntag {
    const NAME: &'static str = "vlan-untag";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        let outputs: &[&str] = &["output", "other"];
        let tagged = |label, keys: &str| BenchRow {
            label,
            keys: keys.to_owned(),
            before: vec![BenchStep::new("vlan-tag", "vlan = 5, service_vlan = 6", "input", "output")],
            ..BenchRow::default()
        };
        BenchSetup::Rows(vec![
            tagged("", ""),
            tagged("two tags", "vlan = 5, service_vlan = 6"),
            BenchRow { label: "no tags", outputs, ..BenchRow::default() },
        ])
    }

    fn configure(config: Config, _: &Context) -> Result<VlanUntag, SettingError> {
        let vlan = config.vlan.map(check_vlan).transpose()?.unwrap_or(0);
        let service = config.service_vlan.map(|vlan| check_vlan_of("service_vlan", vlan)).transpose()?;
        if service.is_some() && vlan == 0 {
            let help = "give `vlan` as well, or `vlan` in place of `service_vlan` to pop the outer tag alone";
            return Err(SettingError::at("service_vlan", "`service_vlan` is around no `vlan`", help));
        }
        let service = service.map(|vlan| (config.service_tpid.numbers(), vlan));
        let untagging =
            Untagging { protocols: config.tpid.numbers(), vlan, service, keep_priority: config.keep_priority };
        Ok(VlanUntag { untagging, next_vectors: NextVectors::new() })
    }
}

#[cfg(test)]
mod tests {
    use bellows_rig::Rig;

    use super::*;

    /// Where a frame goes, whose bytes behind the addresses are these, and what they are then.
    fn untagged(config: &str, outputs: &[&str], rest: &[u8]) -> (String, Vec<u8>) {
        let app = VlanUntag::configure(serde_json::from_str(config).unwrap(), &Context::default()).unwrap();
        let mut rig = Rig::new(app, &["input"], outputs);
        rig.send("input", [[&[7; 12], rest].concat()]);
        rig.settle();
        let sent = outputs.iter().find_map(|name| Some(((*name).to_owned(), rig.received(name).pop()?[12..].to_vec())));
        sent.unwrap_or_else(|| {
            let dropped = rig.counts().drops.into_iter().find(|(_, count)| *count > 0).unwrap();
            (dropped.0, Vec::new())
        })
    }

    #[test]
    fn tags_of_the_vlan_are_popped() {
        let both = &["output", "other"][..];
        let one = &["output"][..];
        let tag = [0x81, 0, 0xa0, 5, 8, 0];
        let service = [0x88, 0xa8, 0, 5, 0x81, 0, 0x20, 6, 8, 0];
        let two = [0x88, 0xa8, 0xe0, 5, 0x81, 0, 0x20, 6, 8, 0];
        for (config, outputs, frame, place, left) in [
            ("{}", one, &tag[..], "output", &[8, 0][..]),
            (r#"{"vlan": 5}"#, one, &tag, "output", &[8, 0]),
            (r#"{"vlan": 5, "keep_priority": true}"#, one, &tag, "output", &[0x81, 0, 0xa0, 0, 8, 0]),
            ("{}", one, &service, "output", &[0x81, 0, 0x20, 6, 8, 0]),
            (r#"{"keep_priority": true}"#, one, &service, "output", &[0x81, 0, 0x20, 6, 8, 0]),
            (r#"{"tpid": "802.1q"}"#, one, &service, "untagged", &[]),
            (r#"{"tpid": "802.1q"}"#, both, &service, "other", &service),
            (r#"{"vlan": 6}"#, one, &tag, "unknown_vlan", &[]),
            (r#"{"vlan": 6}"#, both, &tag, "other", &tag),
            ("{}", one, &[8, 0], "untagged", &[]),
            ("{}", one, &[0x81, 0, 0xa0, 0, 8, 0], "output", &[8, 0]),
            (r#"{"keep_priority": true}"#, one, &[0x81, 0, 0xa0, 0, 8, 0], "output", &[0x81, 0, 0xa0, 0, 8, 0]),
            (r#"{"vlan": 5}"#, one, &[0x81, 0, 0xa0, 0, 8, 0], "untagged", &[]),
            (r#"{"vlan": 5}"#, both, &[0x81, 0, 0xa0, 0, 8, 0], "other", &[0x81, 0, 0xa0, 0, 8, 0]),
            (r#"{"vlan": 6, "service_vlan": 5}"#, one, &service, "output", &[8, 0]),
            (
                r#"{"vlan": 6, "service_vlan": 5, "keep_priority": true}"#,
                one,
                &two,
                "output",
                &[0x88, 0xa8, 0xe0, 0, 8, 0],
            ),
            (r#"{"vlan": 7, "service_vlan": 5}"#, one, &service, "unknown_vlan", &[]),
            (r#"{"vlan": 6, "service_vlan": 6}"#, both, &service, "other", &service),
            (r#"{"vlan": 6, "service_vlan": 5}"#, one, &[0x88, 0xa8, 0, 5, 8, 0], "unknown_vlan", &[]),
            (r#"{"vlan": 6, "service_vlan": 5}"#, both, &service[..7], "too_short", &[]),
            (r#"{"vlan": 6, "service_vlan": 5, "service_tpid": "0x9100"}"#, one, &service, "untagged", &[]),
            ("{}", both, &[0x81, 0, 0], "too_short", &[]),
            ("{}", both, &[8], "too_short", &[]),
        ] {
            let expected = (place.to_owned(), left.to_vec());
            assert_eq!(untagged(config, outputs, frame), expected, "{config} {outputs:?} {frame:02x?}");
        }
    }

    #[test]
    fn a_vlan_that_does_not_exist_is_refused() {
        let config = Config { vlan: Some(4095), ..Config::default() };
        assert_eq!(VlanUntag::configure(config, &Context::default()).err().unwrap().key, Some("vlan"));
        let alone = Config { service_vlan: Some(5), ..Config::default() };
        assert_eq!(VlanUntag::configure(alone, &Context::default()).err().unwrap().key, Some("service_vlan"));
    }
}

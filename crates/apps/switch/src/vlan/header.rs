//! VLAN tags of frames (IEEE 802.1Q): reading, pushing and popping the outermost one or two.

use bellows_config::SettingError;
use bellows_packet::{Frames, Packet, Start, prepend_all, trim_front_all};
use bellows_wire::EtherType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes of the addresses in front of the tags, and of a tag.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// The tag protocol identifier that providers' tags had before IEEE 802.1ad. It is registered for nothing.
const OLD_SERVICE_VLAN: u16 = 0x9100;

/// The VLAN identifier in a tag's control field, the priority code point, and the drop eligible indicator.
pub(crate) const ID: u16 = 0x0fff;
const PRIORITY_SHIFT: u32 = 13;
const DROP_ELIGIBLE: u16 = 0x1000;

/// The VLANs that frames can belong to. 0 is none, 4,095 reserved.
pub(crate) const VLANS: std::ops::RangeInclusive<u16> = 1..=4094;

/// A tag protocol identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum TagProtocol {
    /// A customer's tag (IEEE 802.1Q).
    #[default]
    #[serde(rename = "802.1q")]
    Customer,
    /// A provider's tag (IEEE 802.1ad).
    #[serde(rename = "802.1ad")]
    Service,
    /// A provider's tag of equipment from before IEEE 802.1ad.
    #[serde(rename = "0x9100")]
    Old,
}

impl TagProtocol {
    /// The EtherType of the tag.
    pub(crate) fn number(self) -> u16 {
        match self {
            TagProtocol::Customer => EtherType::VLAN.0,
            TagProtocol::Service => EtherType::SERVICE_VLAN.0,
            TagProtocol::Old => OLD_SERVICE_VLAN,
        }
    }
}

/// Which tag protocol identifiers are those of tags; all others are EtherTypes like any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum TagProtocols {
    /// Those of customers' tags (IEEE 802.1Q).
    #[serde(rename = "802.1q")]
    Customer,
    /// Those of providers' tags (IEEE 802.1ad).
    #[serde(rename = "802.1ad")]
    Service,
    /// Those of providers' tags of equipment from before IEEE 802.1ad.
    #[serde(rename = "0x9100")]
    Old,
    /// Those of 802.1q and of 802.1ad.
    #[serde(rename = "any")]
    Any,
}

impl TagProtocols {
    /// The two that are accepted, which may be the same.
    pub(crate) const fn numbers(self) -> [u16; 2] {
        match self {
            TagProtocols::Customer => [EtherType::VLAN.0; 2],
            TagProtocols::Service => [EtherType::SERVICE_VLAN.0; 2],
            TagProtocols::Old => [OLD_SERVICE_VLAN; 2],
            TagProtocols::Any => [EtherType::VLAN.0, EtherType::SERVICE_VLAN.0],
        }
    }
}

/// A tag: its protocol identifier and its control field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OuterTag {
    pub(crate) protocol: u16,
    pub(crate) control: u16,
}

impl OuterTag {
    /// The VLAN; 0 if the tag has a priority alone.
    #[inline(always)]
    pub(crate) fn id(self) -> u16 {
        self.control & ID
    }

    /// The tag as it is in a frame.
    #[inline(always)]
    fn bytes(self) -> [u8; TAG] {
        let [[a, b], [c, d]] = [self.protocol, self.control].map(u16::to_be_bytes);
        [a, b, c, d]
    }

    /// The priority and drop eligibility.
    #[inline(always)]
    pub(crate) fn priority(self) -> u16 {
        self.control & !ID
    }
}

/// What is behind the addresses of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outer {
    TooShort,
    Untagged,
    Tagged(OuterTag),
}

/// Reads the outermost tag, if its protocol identifier is one of these. Hot.
#[inline(always)]
pub(crate) fn outer(frame: &[u8], protocols: [u16; 2]) -> Outer {
    read_behind::<0>(frame, protocols)
}

/// Reads the tag behind the outermost one. Hot.
#[inline(always)]
pub(crate) fn inner(frame: &[u8], protocols: [u16; 2]) -> Outer {
    read_behind::<1>(frame, protocols)
}

/// Reads the tag behind the first `TAGS` tags.
#[inline(always)]
fn read_behind<const TAGS: usize>(frame: &[u8], protocols: [u16; 2]) -> Outer {
    let at = ADDRESSES + TAGS * TAG;
    let word = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
    let Some(protocol) = word(at) else { return Outer::TooShort };
    if protocol != protocols[0] && protocol != protocols[1] {
        return Outer::Untagged;
    }
    match (word(at + 2), word(at + TAG)) {
        (Some(control), Some(_)) => Outer::Tagged(OuterTag { protocol, control }),
        _ => Outer::TooShort,
    }
}

/// Pushes tags in front of others, the outermost first. False if there is no room for them. The frame has an Ethernet
/// header. Hot.
#[inline(always)]
pub(crate) fn push<const TAGS: usize>(packet: &mut Packet, tags: [OuterTag; TAGS]) -> bool {
    let length = TAGS * TAG;
    if packet.headroom() < length {
        return false;
    }
    let Some(header) = packet.prepend(length).get_mut(..ADDRESSES + length) else { return false };
    header.copy_within(length.., 0);
    for (place, tag) in header[ADDRESSES..].as_chunks_mut::<TAG>().0.iter_mut().zip(tags) {
        *place = tag.bytes();
    }
    true
}

/// Pops the `TAGS` outermost tags of a frame that has them. Hot.
#[inline(always)]
pub(crate) fn pop<const TAGS: usize>(packet: &mut Packet) {
    let length = TAGS * TAG;
    if let Some(header) = packet.bytes_mut().get_mut(..ADDRESSES + length) {
        header.copy_within(..ADDRESSES, length);
        packet.trim_front(length);
    }
}

/// Pushes tags in front of frames that have none of the `known` protocol identifiers. False, and none has changed, if one
/// has, or is too short, or has no room or an offload. Hot: to be called in a
/// [loop for the processor](bellows_sys::simd::Loop).
#[inline(always)]
pub(crate) fn push_all<const TAGS: usize>(
    packets: &mut [Packet],
    ahead: usize,
    known: [u16; 2],
    tags: [OuterTag; TAGS],
) -> bool {
    let length = TAGS * TAG;
    if !are_untagged(packets, ahead, known) || !prepend_all(packets, length) {
        return false;
    }
    let tags = tags.map(OuterTag::bytes);
    for packet in packets {
        if let Some(header) = packet.bytes_mut().get_mut(..ADDRESSES + length) {
            header.copy_within(length.., 0);
            header[ADDRESSES..].copy_from_slice(tags.as_flattened());
        }
    }
    true
}

/// Whether all frames have an Ethernet header, and none a tag of one of these protocol identifiers. Hot: to be called in a
/// [loop for the processor](bellows_sys::simd::Loop).
#[inline(always)]
pub(crate) fn are_untagged(packets: &[Packet], ahead: usize, known: [u16; 2]) -> bool {
    let known = known.map(u16::to_be_bytes).map(u16::from_ne_bytes);
    all_start(packets, ahead, |start: &[u8; ADDRESSES + 2]| {
        let protocol = u16::from_ne_bytes([start[ADDRESSES], start[ADDRESSES + 1]]);
        (protocol != known[0]) & (protocol != known[1])
    })
}

/// Pops the `TAGS` outermost tags of frames whose first bytes are all as wanted. False, and none has changed, if those
/// of one are not, or if it has an offload. Hot: to be called in a [loop for the processor](bellows_sys::simd::Loop).
#[inline(always)]
pub(crate) fn pop_all<const TAGS: usize, S: Start>(
    packets: &mut [Packet],
    ahead: usize,
    is_wanted: impl FnMut(&S) -> bool,
) -> bool {
    let length = TAGS * TAG;
    debug_assert!(S::LENGTH >= ADDRESSES + length, "no byte of an address leaves the frame");
    let have_offload = packets.iter().fold(false, |any, packet| any | packet.has_offload());
    if have_offload || !all_start(packets, ahead, is_wanted) {
        return false;
    }
    for packet in &mut *packets {
        if let Some(header) = packet.bytes_mut().get_mut(..ADDRESSES + length) {
            header.copy_within(..ADDRESSES, length);
        }
    }
    trim_front_all(packets, length)
}

/// Whether the first bytes of all packets are as wanted. Hot.
#[inline(always)]
fn all_start<S: Start>(packets: &[Packet], ahead: usize, mut is_wanted: impl FnMut(&S) -> bool) -> bool {
    let Some(frames) = Frames::<S>::of(packets) else { return false };
    packets.iter().take(ahead).for_each(Packet::prefetch);
    let mut are_wanted = true;
    for (at, start) in frames.iter().enumerate() {
        if let Some(packet) = packets.get(at + ahead) {
            packet.prefetch();
        }
        are_wanted &= is_wanted(start);
    }
    are_wanted
}

/// Replaces the outermost tag of a frame that has one. Hot.
#[inline(always)]
pub(crate) fn set(packet: &mut Packet, tag: OuterTag) {
    if let Some(header) = packet.bytes_mut().first_chunk_mut::<{ ADDRESSES + TAG }>() {
        header[ADDRESSES..].copy_from_slice(&tag.bytes());
    }
}

/// Pops the `TAGS` outermost tags, of which the first is `tag`, or keeps its priority in a tag of VLAN 0 if it has
/// one and that is wanted. Hot.
#[inline(always)]
pub(crate) fn untag<const TAGS: usize>(packet: &mut Packet, tag: OuterTag, keep_priority: bool) {
    if keep_priority && tag.priority() != 0 {
        if TAGS == 2 {
            pop::<1>(packet);
        }
        set(packet, OuterTag { control: tag.priority(), ..tag });
    } else {
        pop::<TAGS>(packet);
    }
}

/// The priorities of new tags: the priority part of a control field for each old one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Priorities([u16; 16]);

impl Priorities {
    /// All priorities as they are, or those that the keys `priority`, `priority_map` and `drop_eligible` say.
    ///
    /// # Errors
    /// If these are not right.
    pub(crate) fn new(
        code_point: Option<u8>,
        map: Option<&[u8]>,
        drop_eligible: Option<bool>,
    ) -> Result<Priorities, SettingError> {
        let is_wrong = |code_point: &u8| *code_point > 7;
        if code_point.iter().any(is_wrong) {
            return Err(SettingError::at("priority", "there is no such priority", "give a number from 0 to 7"));
        }
        if code_point.is_some() && map.is_some() {
            let message = "`priority` and `priority_map` exclude each other";
            return Err(SettingError::at("priority_map", message, "leave one of them out"));
        }
        let map: Option<[u8; 8]> = match map {
            Some(map) if map.iter().any(is_wrong) || map.len() != 8 => {
                let message = "a map of priorities is a list of eight numbers from 0 to 7";
                return Err(SettingError::at("priority_map", message, "write, for example, [0, 0, 2, 3, 4, 5, 6, 7]"));
            }
            map => map.and_then(|map| map.try_into().ok()),
        };
        let new = |old: u16| {
            let (old_point, was_eligible) = parts(old << 12);
            let mapped = map.map_or(old_point, |map| map[usize::from(old_point)]);
            priority(code_point.unwrap_or(mapped), drop_eligible.unwrap_or(was_eligible))
        };
        Ok(Priorities(std::array::from_fn(|old| new(old as u16))))
    }

    /// The control field of a VLAN's tag, given the priority part of the one before, or 0. Hot.
    #[inline(always)]
    pub(crate) fn control(&self, priority: u16, vlan: u16) -> u16 {
        self.0[usize::from(priority >> 12)] | vlan
    }
}

/// A protocol identifier and a VLAN.
pub(crate) type TagOf = (u16, u16);

/// Gives a frame the tag of a VLAN, and outside of it that of another. A tag of VLAN 0 with one of the `known` protocol
/// identifiers becomes that of the VLAN. False if the frame has no whole header, or no room. Hot.
#[inline(always)]
pub(crate) fn tag(
    packet: &mut Packet,
    known: [u16; 2],
    priorities: &Priorities,
    own: TagOf,
    outside: Option<TagOf>,
) -> bool {
    let (priority, is_priority_alone) = match outer(packet.bytes(), known) {
        Outer::TooShort => return false,
        Outer::Untagged => (0, false),
        Outer::Tagged(old) => (old.priority(), old.id() == 0),
    };
    let tag = |(protocol, vlan): TagOf| OuterTag { protocol, control: priorities.control(priority, vlan) };
    match (outside.map(tag), is_priority_alone) {
        (None, false) => push(packet, [tag(own)]),
        (Some(outside), false) => push(packet, [outside, tag(own)]),
        (outside, true) => {
            set(packet, tag(own));
            outside.is_none_or(|outside| push(packet, [outside]))
        }
    }
}

/// The priority part of a control field.
fn priority(code_point: u8, drop_eligible: bool) -> u16 {
    u16::from(code_point) << PRIORITY_SHIFT | if drop_eligible { DROP_ELIGIBLE } else { 0 }
}

/// The code point and the drop eligibility of the priority part of a control field.
fn parts(priority: u16) -> (u8, bool) {
    ((priority >> PRIORITY_SHIFT) as u8, priority & DROP_ELIGIBLE != 0)
}

/// Checks the number of a VLAN.
///
/// # Errors
/// If there is no such VLAN.
pub(crate) fn check_vlan(vlan: u16) -> Result<u16, SettingError> {
    check_vlan_of("vlan", vlan)
}

/// As [`check_vlan`], for another key.
///
/// # Errors
/// If there is no such VLAN.
pub(crate) fn check_vlan_of(key: &'static str, vlan: u16) -> Result<u16, SettingError> {
    if VLANS.contains(&vlan) {
        return Ok(vlan);
    }
    let help = format!("give a number from {} to {}", VLANS.start(), VLANS.end());
    Err(SettingError::at(key, format!("there is no VLAN {vlan}"), help))
}

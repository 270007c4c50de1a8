//! VLAN tags of frames (IEEE 802.1Q): reading, pushing and popping the outermost one.

use bellows_config::SettingError;
use bellows_packet::Packet;
use bellows_wire::EtherType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes of the addresses in front of the tags, and of a tag.
const ADDRESSES: usize = 12;
const TAG: usize = 4;

/// The VLAN identifier in a tag's control field, the priority code point, and the drop eligible indicator.
pub(crate) const ID: u16 = 0x0fff;
const PRIORITY_SHIFT: u32 = 13;
const DROP_ELIGIBLE: u16 = 0x1000;

/// The VLANs that frames can belong to. 0 is none, 4,095 reserved.
const VLANS: std::ops::RangeInclusive<u16> = 1..=4094;

/// A tag protocol identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum TagProtocol {
    /// A customer's tag (IEEE 802.1Q).
    #[default]
    #[serde(rename = "0x8100")]
    Customer,
    /// A provider's tag (IEEE 802.1ad).
    #[serde(rename = "0x88a8")]
    Service,
}

impl TagProtocol {
    /// The number.
    pub(crate) fn number(self) -> u16 {
        match self {
            TagProtocol::Customer => EtherType::VLAN.0,
            TagProtocol::Service => EtherType::SERVICE_VLAN.0,
        }
    }
}

/// Which tag protocol identifiers are those of tags; all others are EtherTypes like any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum TagProtocols {
    /// Those of customers' tags (IEEE 802.1Q).
    #[serde(rename = "0x8100")]
    Customer,
    /// Those of providers' tags (IEEE 802.1ad).
    #[serde(rename = "0x88a8")]
    Service,
    /// Both.
    #[serde(rename = "any")]
    Any,
}

impl TagProtocols {
    /// The two that are accepted, which may be the same.
    pub(crate) fn numbers(self) -> [u16; 2] {
        match self {
            TagProtocols::Customer => [EtherType::VLAN.0; 2],
            TagProtocols::Service => [EtherType::SERVICE_VLAN.0; 2],
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
    let Some(header) = frame.first_chunk::<{ ADDRESSES + 2 }>() else { return Outer::TooShort };
    let protocol = u16::from_be_bytes([header[ADDRESSES], header[ADDRESSES + 1]]);
    if protocol != protocols[0] && protocol != protocols[1] {
        return Outer::Untagged;
    }
    match frame.first_chunk::<{ ADDRESSES + TAG + 2 }>() {
        Some(header) => {
            let control = u16::from_be_bytes([header[ADDRESSES + 2], header[ADDRESSES + 3]]);
            Outer::Tagged(OuterTag { protocol, control })
        }
        None => Outer::TooShort,
    }
}

/// Pushes a tag in front of others. False if there is no room for it. The frame has an Ethernet header. Hot.
#[inline(always)]
pub(crate) fn push(packet: &mut Packet, tag: OuterTag) -> bool {
    if packet.headroom() < TAG {
        return false;
    }
    let frame = packet.prepend(TAG);
    let Some(header) = frame.first_chunk_mut::<{ ADDRESSES + TAG }>() else { return false };
    let addresses: [u8; ADDRESSES] = std::array::from_fn(|at| header[TAG + at]);
    header[..ADDRESSES].copy_from_slice(&addresses);
    header[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tag.protocol.to_be_bytes());
    header[ADDRESSES + 2..].copy_from_slice(&tag.control.to_be_bytes());
    true
}

/// Pops the outermost tag of a frame that has one. Hot.
#[inline(always)]
pub(crate) fn pop(packet: &mut Packet) {
    if let Some(header) = packet.bytes_mut().first_chunk_mut::<{ ADDRESSES + TAG }>() {
        let addresses: [u8; ADDRESSES] = std::array::from_fn(|at| header[at]);
        header[TAG..].copy_from_slice(&addresses);
        packet.trim_front(TAG);
    }
}

/// Changes the control field of the outermost tag of a frame that has one. Hot.
#[inline(always)]
pub(crate) fn set(packet: &mut Packet, tag: OuterTag) {
    if let Some(header) = packet.bytes_mut().first_chunk_mut::<{ ADDRESSES + TAG }>() {
        header[ADDRESSES..ADDRESSES + 2].copy_from_slice(&tag.protocol.to_be_bytes());
        header[ADDRESSES + 2..].copy_from_slice(&tag.control.to_be_bytes());
    }
}

/// Pops the outermost tag, or keeps its priority in a tag of VLAN 0 if it has one and that is wanted. Hot.
#[inline(always)]
pub(crate) fn untag(packet: &mut Packet, tag: OuterTag, keep_priority: bool) {
    if keep_priority && tag.priority() != 0 {
        set(packet, OuterTag { control: tag.priority(), ..tag });
    } else {
        pop(packet);
    }
}

/// The priority part of a control field.
pub(crate) fn priority(code_point: u8, drop_eligible: bool) -> u16 {
    u16::from(code_point) << PRIORITY_SHIFT | if drop_eligible { DROP_ELIGIBLE } else { 0 }
}

/// The code point and the drop eligibility of the priority part of a control field.
pub(crate) fn parts(priority: u16) -> (u8, bool) {
    ((priority >> PRIORITY_SHIFT) as u8, priority & DROP_ELIGIBLE != 0)
}

/// Checks the number of a VLAN.
///
/// # Errors
/// If there is no such VLAN.
pub(crate) fn check_vlan(vlan: u16) -> Result<u16, SettingError> {
    if VLANS.contains(&vlan) {
        return Ok(vlan);
    }
    let help = format!("give a number from {} to {}", VLANS.start(), VLANS.end());
    Err(SettingError::at("vlan", format!("there is no VLAN {vlan}"), help))
}

//! Ethernet II frames and IEEE 802.1Q tags.

use std::ops::Range;

use crate::MacAddr;
use crate::view::{Error, expect, view};

/// The protocol in an Ethernet frame. Values below 0x0600 are lengths of IEEE 802.3 frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// Internet Protocol version 4.
    pub const IPV4: Self = Self(0x0800);
    /// Address Resolution Protocol.
    pub const ARP: Self = Self(0x0806);
    /// An Ethernet frame inside a tunnel (Transparent Ethernet Bridging).
    pub const BRIDGED_ETHERNET: Self = Self(0x6558);
    /// A customer's VLAN tag (802.1Q C-tag).
    pub const VLAN: Self = Self(0x8100);
    /// A provider's VLAN tag (802.1ad S-tag), with the same layout.
    pub const SERVICE_VLAN: Self = Self(0x88a8);
    /// Internet Protocol version 6.
    pub const IPV6: Self = Self(0x86dd);
}

crate::view::impl_field! {
    EtherType: 2, |bytes| EtherType(u16::from_be_bytes(bytes)), |kind: EtherType| kind.0.to_be_bytes();
}

view! {
    /// An Ethernet II frame, without its frame check sequence.
    EthernetFrame: "Ethernet", 14 bytes, ranges in field, payload at payload {
        /// The destination address.
        dst, set_dst: MacAddr = DST 0..6;
        /// The source address.
        src, set_src: MacAddr = SRC 6..12;
        /// The protocol of the payload.
        ether_type, set_ether_type: EtherType = ETHER_TYPE 12..14;
    }
}

fn payload(bytes: &[u8]) -> Range<usize> {
    field::HEADER_LEN..bytes.len()
}

/// The fields of an Ethernet II header, to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EthernetHeader {
    /// The destination address.
    pub dst: MacAddr,
    /// The source address.
    pub src: MacAddr,
    /// The protocol of the payload.
    pub ether_type: EtherType,
}

impl EthernetHeader {
    /// Writes the header's 14 bytes to the start of the frame.
    ///
    /// # Errors
    /// If the frame is shorter than the header.
    pub fn emit(&self, frame: &mut [u8]) -> Result<(), Error> {
        let mut view = EthernetFrame::new_checked(frame)?;
        view.set_dst(self.dst);
        view.set_src(self.src);
        view.set_ether_type(self.ether_type);
        Ok(())
    }
}

view! {
    /// An IEEE 802.1Q VLAN tag: the payload of a frame, or of another tag, whose EtherType is [`EtherType::VLAN`] or
    /// [`EtherType::SERVICE_VLAN`].
    VlanTag: "VLAN tag", 4 bytes, ranges in vlan_field, payload at vlan_payload {
        /// The tag control information: priority, drop eligibility and VLAN identifier.
        control, set_control: u16 = CONTROL 0..2;
        /// The protocol of the payload.
        ether_type, set_ether_type: EtherType = ETHER_TYPE 2..4;
    }
}

fn vlan_payload(bytes: &[u8]) -> Range<usize> {
    vlan_field::HEADER_LEN..bytes.len()
}

impl<T: AsRef<[u8]>> VlanTag<T> {
    /// The VLAN identifier, 0 to 4095; 0 means priority only.
    pub fn id(&self) -> u16 {
        self.control() & 0x0fff
    }

    /// The priority code point, 0 to 7.
    pub fn priority(&self) -> u8 {
        (self.control() >> 13) as u8
    }

    /// Whether the frame may be dropped first.
    pub fn drop_eligible(&self) -> bool {
        self.control() & 0x1000 != 0
    }
}

/// The fields of a VLAN tag, to write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanHeader {
    /// The VLAN identifier (low 12 bits).
    pub id: u16,
    /// The priority code point (low 3 bits).
    pub priority: u8,
    /// Whether the frame may be dropped first.
    pub drop_eligible: bool,
    /// The protocol of the payload.
    pub ether_type: EtherType,
}

impl VlanHeader {
    /// Writes the tag's 4 bytes after its EtherType.
    ///
    /// # Errors
    /// If there are fewer bytes.
    pub fn emit(&self, bytes: &mut [u8]) -> Result<(), Error> {
        let mut view = VlanTag::new_checked(bytes)?;
        let priority = u16::from(self.priority) << 13;
        view.set_control(priority | u16::from(self.drop_eligible) << 12 | self.id & 0x0fff);
        view.set_ether_type(self.ether_type);
        Ok(())
    }
}

/// The maximum number of VLAN tags that [`skip_vlan_tags`] skips; a frame with more is rejected.
pub const MAX_VLAN_TAGS: usize = 8;

/// The EtherType and payload after all VLAN tags of a frame.
///
/// # Errors
/// If the frame ends within its headers, or has more than [`MAX_VLAN_TAGS`] tags.
pub fn skip_vlan_tags(frame: &[u8]) -> Result<(EtherType, &[u8]), Error> {
    let mut ether_type = EthernetFrame::new_checked(frame)?.ether_type();
    let mut payload = &frame[payload(frame)];
    let mut tags = 0_usize;
    while matches!(ether_type, EtherType::VLAN | EtherType::SERVICE_VLAN) {
        tags += 1;
        expect(tags <= MAX_VLAN_TAGS, "Ethernet", "the number of VLAN tags", tags, "8 at most")?;
        ether_type = VlanTag::new_checked(payload)?.ether_type();
        payload = &payload[vlan_payload(payload)];
    }
    Ok((ether_type, payload))
}

//! The VLANs of ports (IEEE 802.1Q).

use bellows_config::SettingError;
use bellows_packet::Packet;

use super::config::PortConfig;
use crate::vlan::header::{ID, Outer, OuterTag, VLANS, check_vlan, outer, pop, push, set};

/// The key of ports.
const PORTS: &str = "ports";

const WORDS: usize = (ID as usize + 1) / u64::BITS as usize;

/// The VLANs of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Membership {
    /// That of frames without a tag; 0 for none.
    untagged: u16,
    is_trunk: bool,
    /// Those of frames with tags, a bit each.
    tagged: Box<[u64; WORDS]>,
}

impl Default for Membership {
    /// That of a port without VLANs.
    fn default() -> Membership {
        Membership { untagged: 0, is_trunk: false, tagged: Box::new([0; WORDS]) }
    }
}

/// How the frames of a VLAN leave a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    Not,
    Untagged,
    Tagged,
}

impl Membership {
    /// Reads the keys of a port.
    ///
    /// # Errors
    /// If they are not right.
    pub(super) fn read(port: &PortConfig) -> Result<Membership, SettingError> {
        let wrong = |message: String, help: &str| SettingError::at(PORTS, message, help);
        let vlan = |vlan: u16| check_vlan(vlan).map_err(|error| wrong(error.message, &error.help));
        match (&port.access, &port.trunk, &port.native) {
            (Some(access), None, None) => Ok(Membership { untagged: vlan(*access)?, ..Membership::default() }),
            (None, Some(list), native) => {
                let untagged = native.map_or(Ok(0), vlan)?;
                let mut tagged = Box::new([0; WORDS]);
                let unreadable = || {
                    let (first, last) = (VLANS.start(), VLANS.end());
                    wrong(
                        format!("`{list}` is no list of VLANs"),
                        &format!("write, for example, \"5,10-20\": VLANs are {first} to {last}"),
                    )
                };
                for range in list.split(',') {
                    for vlan in read_range(range.trim()).ok_or_else(unreadable)? {
                        // The native VLAN leaves without a tag.
                        if vlan != untagged {
                            tagged[usize::from(vlan) / 64] |= 1 << (vlan % 64);
                        }
                    }
                }
                Ok(Membership { untagged, is_trunk: true, tagged })
            }
            (Some(_), _, _) => {
                Err(wrong("`access` excludes `trunk` and `native`".to_owned(), "leave it out, or the others"))
            }
            (None, None, _) => {
                let help = "give it either `access` or `trunk`";
                Err(wrong("the port has no VLAN, but others have".to_owned(), help))
            }
        }
    }

    #[inline]
    fn has_tagged(&self, vlan: u16) -> bool {
        self.tagged[usize::from(vlan & ID) / 64] >> (vlan % 64) & 1 == 1
    }

    /// The VLAN of a received frame whose tag has this identifier, or 0 for none. 0 if it is not allowed. Hot.
    #[inline]
    pub(super) fn vlan_of(&self, id: u16) -> u16 {
        match id {
            0 => self.untagged,
            _ if self.has_tagged(id) || (self.is_trunk && id == self.untagged) => id,
            _ => 0,
        }
    }

    /// How frames of a VLAN leave. Hot.
    #[inline]
    pub(super) fn leaves(&self, vlan: u16) -> Leaves {
        match vlan {
            _ if vlan == self.untagged => Leaves::Untagged,
            _ if self.has_tagged(vlan) => Leaves::Tagged,
            _ => Leaves::Not,
        }
    }
}

/// A VLAN, or the first and the last of several.
fn read_range(text: &str) -> Option<std::ops::RangeInclusive<u16>> {
    let vlan = |text: &str| check_vlan(text.trim().parse().ok()?).ok();
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let range = vlan(first)?..=vlan(last)?;
    (!range.is_empty()).then_some(range)
}

/// Gives a frame of a VLAN the tag with which it leaves, or takes its tag. Returns false if there is no room for a tag.
/// The frame has a whole header. Hot.
#[inline]
pub(super) fn retag(packet: &mut Packet, protocols: [u16; 2], vlan: u16, is_tagged: bool) -> bool {
    match (outer(packet.bytes(), protocols), is_tagged) {
        (Outer::Tagged(tag), true) if tag.id() == vlan => true,
        (Outer::Tagged(tag), true) => {
            set(packet, OuterTag { protocol: protocols[0], control: tag.priority() | vlan });
            true
        }
        (Outer::Tagged(_), false) => {
            pop::<1>(packet);
            true
        }
        (Outer::Untagged, true) => push(packet, [OuterTag { protocol: protocols[0], control: vlan }]),
        (Outer::Untagged | Outer::TooShort, _) => true,
    }
}

//! The options of a virtio-net device (specification, 5.1.3 and 6).

use std::fmt;
use std::ops::{BitAnd, BitOr, Not};

use bellows_ports::Accepted;

/// A set of feature bits.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(pub u64);

impl Features {
    /// No feature.
    pub const NONE: Features = Features(0);
    /// `checksum`: the device accepts packets with a partial checksum.
    pub const CSUM: Features = Features(1 << 0);
    /// `guest-checksum`: the driver accepts packets with a partial checksum.
    pub const GUEST_CSUM: Features = Features(1 << 1);
    /// The device reports its MAC address.
    pub const MAC: Features = Features(1 << 5);
    /// `guest-tso4`: the driver accepts TCP GSO packets over IPv4.
    pub const GUEST_TSO4: Features = Features(1 << 7);
    /// `guest-tso6`: the driver accepts TCP GSO packets over IPv6.
    pub const GUEST_TSO6: Features = Features(1 << 8);
    /// `tso4`: the device accepts TCP GSO packets over IPv4.
    pub const HOST_TSO4: Features = Features(1 << 11);
    /// `tso6`: the device accepts TCP GSO packets over IPv6.
    pub const HOST_TSO6: Features = Features(1 << 12);
    /// `mergeable`: a received packet may be spread over several of the driver's buffers.
    pub const MRG_RXBUF: Features = Features(1 << 15);
    /// `multiqueue`: more than one pair of queues.
    pub const MQ: Features = Features(1 << 22);
    /// vhost-user's log of the pages that the device writes (`VHOST_F_LOG_ALL`).
    pub const LOG_ALL: Features = Features(1 << 26);
    /// `any-layout`: descriptors need not separate the header from the data.
    pub const ANY_LAYOUT: Features = Features(1 << 27);
    /// `indirect`: a descriptor may point to a table of descriptors.
    pub const INDIRECT_DESC: Features = Features(1 << 28);
    /// `event-idx`: each side gives the index at which it wants to be notified.
    pub const EVENT_IDX: Features = Features(1 << 29);
    /// vhost-user has protocol features to negotiate (`VHOST_USER_F_PROTOCOL_FEATURES`).
    pub const PROTOCOL_FEATURES: Features = Features(1 << 30);
    /// `version-1`: virtio 1.0 or later, and its header of 12 bytes.
    pub const VERSION_1: Features = Features(1 << 32);
    /// `packed`: the ring is packed.
    pub const RING_PACKED: Features = Features(1 << 34);
    /// `in-order`: buffers are used in the order in which they are made available.
    pub const IN_ORDER: Features = Features(1 << 35);

    /// All features of the device.
    pub const DEVICE: Features = Features(
        Self::CSUM.0
            | Self::GUEST_CSUM.0
            | Self::MAC.0
            | Self::GUEST_TSO4.0
            | Self::GUEST_TSO6.0
            | Self::HOST_TSO4.0
            | Self::HOST_TSO6.0
            | Self::MRG_RXBUF.0
            | Self::MQ.0
            | Self::LOG_ALL.0
            | Self::ANY_LAYOUT.0
            | Self::INDIRECT_DESC.0
            | Self::EVENT_IDX.0
            | Self::PROTOCOL_FEATURES.0
            | Self::VERSION_1.0
            | Self::RING_PACKED.0
            | Self::IN_ORDER.0,
    );

    /// The options with a name in configurations and reports, in the order of reports.
    pub const NAMED: &'static [(&'static str, Features)] = &[
        ("packed", Self::RING_PACKED),
        ("mergeable", Self::MRG_RXBUF),
        ("in-order", Self::IN_ORDER),
        ("event-idx", Self::EVENT_IDX),
        ("indirect", Self::INDIRECT_DESC),
        ("any-layout", Self::ANY_LAYOUT),
        ("version-1", Self::VERSION_1),
        ("checksum", Self::CSUM),
        ("guest-checksum", Self::GUEST_CSUM),
        ("tso4", Self::HOST_TSO4),
        ("tso6", Self::HOST_TSO6),
        ("guest-tso4", Self::GUEST_TSO4),
        ("guest-tso6", Self::GUEST_TSO6),
        ("multiqueue", Self::MQ),
    ];

    /// The option of this name.
    pub fn named(name: &str) -> Option<Features> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, feature)| *feature)
    }

    /// The names of the options in the set, if they have one.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMED.iter().filter(move |(_, feature)| self.has(*feature)).map(|(name, _)| *name)
    }

    /// Whether all of `wanted` are in the set.
    #[inline]
    pub const fn has(self, wanted: Features) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// Whether any of `wanted` is in the set.
    #[inline]
    pub const fn has_any(self, wanted: Features) -> bool {
        self.0 & wanted.0 != 0
    }

    /// The set without `unwanted`.
    pub const fn without(self, unwanted: Features) -> Features {
        Features(self.0 & !unwanted.0)
    }

    /// The set with `wanted`.
    pub const fn with(self, wanted: Features) -> Features {
        Features(self.0 | wanted.0)
    }

    /// The set without options that need a missing one, so that an offer stays coherent when options are turned off.
    pub fn coherent(self) -> Features {
        NEEDS.iter().fold(self, |set, need| if set.has(need.0) && !set.has(need.1) { set.without(need.0) } else { set })
    }

    /// The offloads that the driver has negotiated to accept.
    pub fn accepted_by_driver(self) -> Accepted {
        let [checksums, tcp4, tcp6] = [Self::GUEST_CSUM, Self::GUEST_TSO4, Self::GUEST_TSO6].map(|one| self.has(one));
        Accepted { checksums, tcp4, tcp6 }
    }

    /// The offloads that the device has negotiated to accept.
    pub fn accepted_by_device(self) -> Accepted {
        let [checksums, tcp4, tcp6] = [Self::CSUM, Self::HOST_TSO4, Self::HOST_TSO6].map(|one| self.has(one));
        Accepted { checksums, tcp4, tcp6 }
    }

    /// Checks whether a driver may negotiate exactly this set (specification, 5.1.3.1 and 6.1).
    ///
    /// # Errors
    /// An option is in the set without another one that it needs.
    pub fn check(self) -> Result<(), Conflict> {
        match NEEDS.iter().find(|need| self.has(need.0) && !self.has(need.1)) {
            Some(&(option, needed)) => Err(Conflict { option, needed }),
            None => Ok(()),
        }
    }
}

/// The options that each option needs. The order lets one pass remove every option whose need is missing.
const NEEDS: &[(Features, Features)] = &[
    (Features::RING_PACKED, Features::VERSION_1),
    (Features::IN_ORDER, Features::VERSION_1),
    (Features::HOST_TSO4, Features::CSUM),
    (Features::HOST_TSO6, Features::CSUM),
    (Features::GUEST_TSO4, Features::GUEST_CSUM),
    (Features::GUEST_TSO6, Features::GUEST_CSUM),
];

/// An option that was negotiated without another one that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the driver accepted {option} without {needed}, which it needs")]
pub struct Conflict {
    /// The option that was negotiated.
    pub option: Features,
    /// The option that was not.
    pub needed: Features,
}

impl BitOr for Features {
    type Output = Features;

    fn bitor(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

impl BitAnd for Features {
    type Output = Features;

    fn bitand(self, other: Features) -> Features {
        Features(self.0 & other.0)
    }
}

impl Not for Features {
    type Output = Features;

    fn not(self) -> Features {
        Features(!self.0)
    }
}

/// The names, joined by spaces; bits without a name as one hexadecimal number.
impl fmt::Display for Features {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = *self;
        let mut separator = "";
        for (name, feature) in Self::NAMED.iter().filter(|(_, feature)| self.has(*feature)) {
            write!(formatter, "{separator}{name}")?;
            separator = " ";
            rest = rest.without(*feature);
        }
        if rest != Features::NONE || separator.is_empty() {
            write!(formatter, "{separator}{:#x}", rest.0)?;
        }
        Ok(())
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Features({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_features_and_back() {
        for (name, feature) in Features::NAMED {
            assert_eq!(Features::named(name), Some(*feature));
            assert_eq!(feature.names().collect::<Vec<_>>(), [*name]);
        }
        assert_eq!(Features::named("mergable"), None);
        assert_eq!((Features::RING_PACKED | Features::MAC).to_string(), "packed 0x20");
        assert_eq!(Features::NONE.to_string(), "0x0");
    }

    #[test]
    fn options_without_their_need_conflict_and_leave_an_offer() {
        let set = Features::RING_PACKED | Features::HOST_TSO4 | Features::CSUM;
        assert_eq!(set.check(), Err(Conflict { option: Features::RING_PACKED, needed: Features::VERSION_1 }),);
        assert_eq!(set.coherent(), Features::HOST_TSO4 | Features::CSUM);
        assert_eq!(Features::DEVICE.coherent(), Features::DEVICE);
        assert_eq!(Features::DEVICE.check(), Ok(()));
    }
}

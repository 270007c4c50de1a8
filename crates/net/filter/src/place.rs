//! Where the expressions of access lists find the parts of a packet, and the numbers of headers in front of the upper
//! layer.

// IPv6 extension headers (IANA, "IPv6 Extension Header Types").
pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const AUTHENTICATION: u8 = 51;
pub(crate) const NO_NEXT_HEADER: u8 = 59;
pub(crate) const DESTINATION_OPTIONS: u8 = 60;
pub(crate) const MOBILITY: u8 = 135;
pub(crate) const HOST_IDENTITY: u8 = 139;
pub(crate) const SHIM6: u8 = 140;

/// The bytes from the network header on.
pub(crate) const NETWORK: u32 = 1 << 24;
/// The frame.
pub(crate) const FRAME: u32 = 2 << 24;
/// The frame without its VLAN tags.
pub(crate) const UNTAGGED: u32 = 3 << 24;
/// For each number of an extension header, 1 if there is one.
pub(crate) const HEADERS: u32 = 4 << 24;
/// The distance of two places.
pub(crate) const SHIFT: u32 = 24;

/// The least EtherType; lower numbers are lengths.
pub(crate) const FIRST_TYPE: u32 = 1501;
/// MPLS labels of multicast packets.
pub(crate) const MPLS_MULTICAST: u32 = 0x8848;
/// What may be next to the header of IPv6 and is not the upper layer, or need not be.
pub(crate) const NOT_USUAL: [u8; 9] = [
    HOP_BY_HOP,
    ROUTING,
    FRAGMENT,
    AUTHENTICATION,
    NO_NEXT_HEADER,
    DESTINATION_OPTIONS,
    MOBILITY,
    HOST_IDENTITY,
    SHIM6,
];

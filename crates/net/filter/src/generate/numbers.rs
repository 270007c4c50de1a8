//! The numbers of the protocols that tests name.

/// EtherTypes.
pub(super) mod ethertype {
    pub(crate) const IP: u32 = 0x0800;
    pub(crate) const ARP: u32 = 0x0806;
    pub(crate) const TRANSPARENT_BRIDGING: u32 = 0x6558;
    pub(crate) const MOPDL: u32 = 0x6001;
    pub(crate) const MOPRC: u32 = 0x6002;
    pub(crate) const DECNET: u32 = 0x6003;
    pub(crate) const LAT: u32 = 0x6004;
    pub(crate) const SCA: u32 = 0x6007;
    pub(crate) const RARP: u32 = 0x8035;
    pub(crate) const ATALK: u32 = 0x809b;
    pub(crate) const AARP: u32 = 0x80f3;
    pub(crate) const VLAN: u32 = 0x8100;
    pub(crate) const IPX: u32 = 0x8137;
    pub(crate) const IP6: u32 = 0x86dd;
    pub(crate) const MPLS: u32 = 0x8847;
    pub(crate) const PPPOE_DISCOVERY: u32 = 0x8863;
    pub(crate) const PPPOE_SESSION: u32 = 0x8864;
    pub(crate) const PROVIDER_VLAN: u32 = 0x88a8;
    pub(crate) const LOOPBACK: u32 = 0x9000;
    pub(crate) const OLD_PROVIDER_VLAN: u32 = 0x9100;
    pub(crate) const NS: u32 = 0x0600;
}

/// LLC service access points, which stand for protocols where EtherTypes do.
pub(super) mod sap {
    pub(crate) const IP: u32 = 0x06;
    pub(crate) const STP: u32 = 0x42;
    pub(crate) const SNAP: u32 = 0xaa;
    pub(crate) const IPX: u32 = 0xe0;
    pub(crate) const NETBEUI: u32 = 0xf0;
    pub(crate) const OSI: u32 = 0xfe;
}

/// IP protocols.
pub(super) mod ip_protocol {
    pub(crate) const ICMP: u32 = 1;
    pub(crate) const IGMP: u32 = 2;
    pub(crate) const TCP: u32 = 6;
    pub(crate) const IGRP: u32 = 9;
    pub(crate) const UDP: u32 = 17;
    pub(crate) const FRAGMENT: u32 = 44;
    pub(crate) const ESP: u32 = 50;
    pub(crate) const AH: u32 = 51;
    pub(crate) const ICMP6: u32 = 58;
    pub(crate) const NONE: u32 = 59;
    pub(crate) const PIM: u32 = 103;
    pub(crate) const VRRP: u32 = 112;
    pub(crate) const SCTP: u32 = 132;
    pub(crate) const HOP_OPTIONS: u32 = 0;
    pub(crate) const ROUTING: u32 = 43;
    pub(crate) const DESTINATION_OPTIONS: u32 = 60;
}

/// OSI protocols, and PDU types of IS-IS.
pub(super) mod osi {
    pub(crate) const CLNP: u32 = 0x81;
    pub(crate) const ESIS: u32 = 0x82;
    pub(crate) const ISIS: u32 = 0x83;
    pub(crate) const L1_HELLO: u32 = 15;
    pub(crate) const L2_HELLO: u32 = 16;
    pub(crate) const POINT_TO_POINT_HELLO: u32 = 17;
    pub(crate) const L1_LSP: u32 = 18;
    pub(crate) const L2_LSP: u32 = 20;
    pub(crate) const L1_CSNP: u32 = 24;
    pub(crate) const L2_CSNP: u32 = 25;
    pub(crate) const L1_PSNP: u32 = 26;
    pub(crate) const L2_PSNP: u32 = 27;
}

/// The largest length in the type field of Ethernet; greater values are types.
pub(super) const MAX_ETHERNET_LENGTH: u32 = 1500;

pub(super) const GENEVE_PORT: u32 = 6081;

/// The type of a Linux cooked header for packets of 802.2, and for Novell's of 802.3.
pub(super) const COOKED_802_2: u32 = 4;

pub(super) const COOKED_802_3: u32 = 1;

/// The packet type of a Linux cooked header for sent packets.
pub(super) const COOKED_OUTGOING: u32 = 4;

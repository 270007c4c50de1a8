//! Protocol headers as typed views of bytes, and the Internet checksum.
//!
//! The crate has three layers, and each uses only those before it:
//!
//! 1. [`checksum`]: sums over byte slices, whole and incremental.
//! 2. One module for each protocol: [`ethernet`], [`arp`], [`ipv4`], [`ipv6`], [`udp`], [`tcp`], [`icmp`], [`ndp`],
//!    [`mld`]; [`ip`] has the shared parts of IPv4 and IPv6. All have the same shape: a `field` module that names the
//!    byte ranges of the header as its RFC draws them, a view such as [`UdpDatagram`] that reads and writes these fields
//!    in place, and a plain struct such as [`UdpHeader`] whose `emit` writes a whole header, including lengths and
//!    checksum.
//! 3. Whole frames: [`verify`] checks every checksum in a frame, [`frame`] builds UDP frames of a given size,
//!    [`summary`] describes a packet on one line, like tcpdump, [`offload`] finishes checksums and segments TCP GSO
//!    packets, [`flow`] computes the flow of a frame, [`connection`] finds the connection of a packet.
//!
//! A view's `new_checked` checks once that the header lies within the bytes. After that no accessor panics, for any
//! bytes and anything that the setters wrote: a payload with invalid bounds is empty. Lengths are in bytes, values in
//! host byte order. Frames have no frame check sequence.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod view;

pub mod arp;
pub mod checksum;
pub mod connection;
pub mod ethernet;
pub mod flow;
pub mod frame;
pub mod icmp;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
mod mac;
pub mod mld;
pub mod ndp;
pub mod offload;
pub mod summary;
pub mod tcp;
pub mod udp;
pub mod verify;

pub use arp::{ArpHeader, ArpOperation, ArpPacket};
pub use checksum::Sum;
pub use ethernet::{EtherType, EthernetFrame, EthernetHeader, VlanHeader, VlanTag};
pub use frame::{FrameError, Stamp, UdpFrame};
pub use icmp::{Echo, IcmpMessage};
pub use ip::{IpPair, IpProtocol};
pub use ipv4::{Ipv4Header, Ipv4Packet};
pub use ipv6::{Fragment, Ipv6Header, Ipv6Packet, UpperLayer};
pub use mac::{MacAddr, MacAddrError};
pub use tcp::{TcpHeader, TcpSegment};
pub use udp::{UdpDatagram, UdpHeader};
pub use verify::{ChecksumError, Layer, Verified, verify_checksums, verify_ip_checksums};
pub use view::Error;

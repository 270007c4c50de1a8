//! Protocol headers as typed views of bytes, and the Internet checksum.
//!
//! The crate has three layers, and each uses only those before it:
//!
//! 1. [`checksum`]: sums over byte slices, whole and incremental.
//! 2. One module for each protocol: [`ethernet`], [`arp`], [`ipv4`], [`ipv6`], [`udp`], [`tcp`], [`icmp`]; what IPv4
//!    and IPv6 share is in [`ip`]. All have the same shape: a `field` module that names the byte ranges of the header
//!    as its RFC draws them, a view such as [`UdpDatagram`] that reads and writes these fields in place, and a plain
//!    struct such as [`UdpHeader`] whose `emit` writes a whole header, lengths and checksum included.
//! 3. Whole frames: [`verify`] checks every checksum in a frame, [`frame`] builds UDP frames of a given size, [`summary`]
//!    describes a packet in a line, as tcpdump does, [`offload`] finishes checksums and cuts TCP GSO packets into segments, [`flow`] tells which flow a frame belongs to.
//!
//! A view's `new_checked` tests once that the header lies within the bytes; from then on no accessor panics, whatever
//! the bytes say and whatever the setters wrote: a payload whose bounds make no sense is empty. Lengths are in bytes,
//! values in host byte order. Frames carry no frame check sequence.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod view;

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod flow;
pub mod frame;
pub mod icmp;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
mod mac;
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

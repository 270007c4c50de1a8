//! UDP frames of a given size: templates for a traffic source, and the stamp that numbers the copies.

use std::fmt;
use std::net::IpAddr;

use crate::checksum::Sum;
use crate::{EtherType, EthernetHeader, IpPair, IpProtocol, Ipv4Header, Ipv6Header, MacAddr, UdpHeader, VlanHeader};
use crate::{ethernet, ipv4, ipv6, udp};

/// The maximum length of an IPv4 packet, and of the payload of an IPv6 packet.
const MAX_LEN: usize = u16::MAX as usize;

/// The largest VLAN identifier; IEEE 802.1Q reserves 4095.
const MAX_VLAN_ID: u16 = 4094;

/// The header fields of a UDP frame: Ethernet, an optional VLAN tag, IPv4 or IPv6, UDP.
///
/// IPv4 packets have the "don't fragment" flag, so their identification may stay 0 (RFC 6864).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpFrame {
    /// The sender's Ethernet address.
    pub src_mac: MacAddr,
    /// The receiver's Ethernet address.
    pub dst_mac: MacAddr,
    /// The VLAN identifier, 0 to 4094, if the frame has a tag.
    pub vlan: Option<u16>,
    /// The sender's IP address.
    pub src: IpAddr,
    /// The receiver's IP address, of the same family.
    pub dst: IpAddr,
    /// The sender's UDP port.
    pub src_port: u16,
    /// The receiver's UDP port.
    pub dst_port: u16,
    /// Time to live, or hop limit.
    pub ttl: u8,
}

/// The reasons why a frame cannot be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The frame cannot have this length, in bytes without the frame check sequence.
    Length {
        /// The requested length.
        len: usize,
        /// The minimum: the headers, and 8 bytes more if the frame is to have a number.
        minimum: usize,
        /// The maximum of IP's 16-bit length field.
        maximum: usize,
    },
    /// One address is IPv4, the other IPv6.
    MixedFamilies {
        /// The sender's.
        src: IpAddr,
        /// The receiver's.
        dst: IpAddr,
    },
    /// The VLAN identifier is over 4094.
    VlanId(u16),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::Length { len, minimum, maximum } => {
                write!(
                    f,
                    "a frame of {len} bytes cannot be built: with these headers it takes {minimum} to {maximum} bytes"
                )
            }
            FrameError::MixedFamilies { src, dst } => {
                write!(f, "source {src} and destination {dst} differ in family: give two IPv4 or two IPv6 addresses")
            }
            FrameError::VlanId(id) => write!(f, "VLAN {id} does not exist: give an identifier from 0 to {MAX_VLAN_ID}"),
        }
    }
}

impl std::error::Error for FrameError {}

impl UdpFrame {
    /// Length of all headers in bytes: the offset of the UDP payload, and the minimum frame length.
    pub fn header_len(&self) -> usize {
        let ip_header = if self.src.is_ipv4() { ipv4::field::HEADER_LEN } else { ipv6::field::HEADER_LEN };
        self.link_header_len() + ip_header + udp::field::HEADER_LEN
    }

    /// The maximum length of a frame with these headers, in bytes.
    pub fn max_len(&self) -> usize {
        let uncounted = if self.src.is_ipv4() { 0 } else { ipv6::field::HEADER_LEN };
        self.link_header_len() + uncounted + MAX_LEN
    }

    fn link_header_len(&self) -> usize {
        let tag = if self.vlan.is_some() { ethernet::vlan_field::HEADER_LEN } else { 0 };
        ethernet::field::HEADER_LEN + tag
    }

    /// A frame of `len` bytes, without the frame check sequence, with correct lengths and checksums. `fill` receives
    /// the zeroed payload to fill it.
    ///
    /// # Errors
    /// If the headers contradict each other, or do not allow this length.
    pub fn build(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<Vec<u8>, FrameError> {
        self.check(len, self.header_len())?;
        let mut frame = vec![0; len];
        fill(&mut frame[self.header_len()..]);
        self.emit(&mut frame)?;
        Ok(frame)
    }

    /// Writes the headers in front of an existing payload: [`Self::build`] without a vector of its own. Every byte
    /// before [`Self::header_len`] is written.
    ///
    /// # Errors
    /// Like [`Self::build`], with the frame's length.
    pub fn emit(&self, frame: &mut [u8]) -> Result<(), FrameError> {
        let len = frame.len();
        let addresses = self.check(len, self.header_len())?;
        // The headers can only fail over lengths.
        self.emit_headers(frame, &addresses).map_err(|_| self.length_error(len, self.header_len()))
    }

    fn emit_headers(&self, frame: &mut [u8], addresses: &IpPair) -> Result<(), crate::Error> {
        let (src_port, dst_port) = (self.src_port, self.dst_port);
        let ip_type = if self.src.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let ether_type = if self.vlan.is_some() { EtherType::VLAN } else { ip_type };
        let udp_at = self.header_len() - udp::field::HEADER_LEN;
        UdpHeader { src_port, dst_port }.emit(&mut frame[udp_at..], addresses)?;
        let packet = &mut frame[self.link_header_len()..];
        let (traffic_class, identification, flow_label) = (0, 0, 0);
        let (protocol, ttl) = (IpProtocol::UDP, self.ttl);
        match *addresses {
            IpPair::V4 { src, dst } => {
                Ipv4Header { src, dst, protocol, ttl, traffic_class, identification, dont_fragment: true }
                    .emit(packet)?;
            }
            IpPair::V6 { src, dst } => {
                Ipv6Header { src, dst, next_header: protocol, hop_limit: ttl, traffic_class, flow_label }
                    .emit(packet)?;
            }
        }
        if let Some(id) = self.vlan {
            VlanHeader { id, priority: 0, drop_eligible: false, ether_type: ip_type }
                .emit(&mut frame[ethernet::field::HEADER_LEN..])?;
        }
        EthernetHeader { dst: self.dst_mac, src: self.src_mac, ether_type }.emit(frame)
    }

    fn check(&self, len: usize, minimum: usize) -> Result<IpPair, FrameError> {
        let addresses =
            IpPair::new(self.src, self.dst).ok_or(FrameError::MixedFamilies { src: self.src, dst: self.dst })?;
        if let Some(id) = self.vlan.filter(|id| *id > MAX_VLAN_ID) {
            return Err(FrameError::VlanId(id));
        }
        if len < minimum || len > self.max_len() { Err(self.length_error(len, minimum)) } else { Ok(addresses) }
    }

    fn length_error(&self, len: usize, minimum: usize) -> FrameError {
        FrameError::Length { len, minimum, maximum: self.max_len() }
    }
}

/// Numbers the copies of a template: writes a 64-bit big-endian number to the start of the UDP payload and updates the
/// checksum, without reading the rest of the frame again.
#[derive(Debug, Clone, Copy)]
pub struct Stamp {
    /// The offset of the UDP checksum, right before the payload.
    checksum_at: usize,
    /// The sum over everything that the UDP checksum covers except the number.
    rest: Sum,
}

impl Stamp {
    /// The length of the number in bytes.
    pub const LEN: usize = 8;

    /// The stamp for copies of `template`, which `headers` built.
    ///
    /// # Errors
    /// If the payload is shorter than [`Self::LEN`], or `headers` cannot have built the template.
    pub fn new(headers: &UdpFrame, template: &[u8]) -> Result<Self, FrameError> {
        let payload_at = headers.header_len();
        headers.check(template.len(), payload_at + Self::LEN)?;
        let checksum = u16::from_be_bytes([template[payload_at - 2], template[payload_at - 1]]);
        let number = Sum::new().add_bytes(&template[payload_at..payload_at + Self::LEN]);
        Ok(Stamp { checksum_at: payload_at - 2, rest: Sum::new().add_u16(!checksum).subtract(number) })
    }

    /// Numbers a copy of the template, replacing any earlier number. A frame that is too short for the number is not a
    /// copy and stays unchanged. Hot.
    pub fn write(&self, frame: &mut [u8], number: u64) {
        if let Some(place) = frame.get_mut(self.checksum_at..self.checksum_at + 2 + Self::LEN) {
            let checksum = self.rest.add_u64(number).finish_udp();
            place[..2].copy_from_slice(&checksum.to_be_bytes());
            place[2..].copy_from_slice(&number.to_be_bytes());
        }
    }

    /// The number of a copy; `None` if the frame is too short for it.
    pub fn read(&self, frame: &[u8]) -> Option<u64> {
        let place = frame.get(self.checksum_at + 2..self.checksum_at + 2 + Self::LEN)?;
        place.try_into().map(u64::from_be_bytes).ok()
    }
}

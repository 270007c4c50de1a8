//! Frames of several protocols and flows.

use std::net::{Ipv4Addr, Ipv6Addr};

use bellows_wire::{
    ArpHeader, ArpOperation, Echo, Error, EtherType, EthernetHeader, IpPair, IpProtocol, Ipv4Header, Ipv6Header,
    MacAddr, TcpHeader, UdpHeader, ethernet, icmp, ipv4, ipv6, tcp, udp,
};
use fastrand::Rng;

use super::{TrafficError, random};

/// The number of flows, between hosts on this side of a router and hosts beyond it.
const FLOWS: u16 = 64;

/// The length of the shortest Ethernet frame, without its frame check sequence. Shorter frames are padded.
const SHORTEST: usize = 60;

const ROUTER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// The protocol of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameProtocol {
    Tcp,
    Udp,
    Icmp,
    Arp,
}

impl FrameProtocol {
    pub(super) fn named(name: &str) -> Option<FrameProtocol> {
        match name {
            "tcp" => Some(FrameProtocol::Tcp),
            "udp" => Some(FrameProtocol::Udp),
            "icmp" => Some(FrameProtocol::Icmp),
            "arp" => Some(FrameProtocol::Arp),
            _ => None,
        }
    }

    /// The bytes of payload: for TCP bare acknowledgements, medium and full segments; for UDP short messages and
    /// QUIC's; for ICMP those of `ping`.
    fn payload(self, random: &mut Rng) -> usize {
        let sizes: &[usize] = match self {
            FrameProtocol::Tcp => &[0, 0, 0, 0, 536, 1_440, 1_440, 1_440],
            FrameProtocol::Udp => &[40, 80, 160, 320, 1_200, 1_200],
            FrameProtocol::Icmp => &[56],
            FrameProtocol::Arp => &[0],
        };
        sizes[random.usize(..sizes.len())]
    }
}

/// The version of IP of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IpVersion {
    V4,
    V6,
}

/// The length of the frames of [`flows`], in which both versions of IP fit, and their number.
const SMALL: usize = 64;
const SMALL_FLOWS: u16 = 1_024;

/// A small UDP frame of each flow over one version of IP, in random order.
pub(super) fn flows(version: IpVersion) -> Result<Vec<Vec<u8>>, TrafficError> {
    let headers = ethernet::field::HEADER_LEN + version.header() + udp::field::HEADER_LEN;
    let frame = |number| Ok(Flow::of(number, version).frame(FrameProtocol::Udp, number, &vec![0; SMALL - headers])?);
    let mut frames = (0..SMALL_FLOWS).map(frame).collect::<Result<Vec<_>, TrafficError>>()?;
    random().shuffle(&mut frames);
    Ok(frames)
}

impl IpVersion {
    /// The length of its header.
    fn header(self) -> usize {
        match self {
            IpVersion::V4 => ipv4::field::HEADER_LEN,
            IpVersion::V6 => ipv6::field::HEADER_LEN,
        }
    }
}

/// Frames of these protocols, each of a random flow, of which every fourth is over IPv6.
pub(super) fn frames(protocols: &[FrameProtocol]) -> Result<Vec<Vec<u8>>, TrafficError> {
    let mut random = random();
    let mut frame = |(number, &protocol): (usize, &FrameProtocol)| {
        let flow = random.u16(..FLOWS);
        let flow = Flow::of(flow, if flow % 4 == 3 { IpVersion::V6 } else { IpVersion::V4 });
        let payload: Vec<u8> = (0..protocol.payload(&mut random)).map(|_| random.u8(..)).collect();
        let mut frame = flow.frame(protocol, number as u16, &payload)?;
        frame.resize(frame.len().max(SHORTEST), 0);
        Ok(frame)
    };
    protocols.iter().enumerate().map(&mut frame).collect()
}

struct Flow {
    number: u16,
    mac: MacAddr,
    addresses: IpPair,
}

impl Flow {
    /// A flow by its number. The addresses are those that RFC 2544 and RFC 5180 reserve for benchmarks.
    fn of(number: u16, version: IpVersion) -> Flow {
        let [high, low] = number.to_be_bytes();
        let addresses = match version {
            IpVersion::V6 => {
                let address = |side| Ipv6Addr::new(0x2001, 2, 0, side, 0, 0, 0, number + 1);
                IpPair::V6 { src: address(0), dst: address(1) }
            }
            IpVersion::V4 => {
                let (src, dst) =
                    (Ipv4Addr::new(198, 18, high, low.wrapping_add(1)), Ipv4Addr::new(198, 19, low, high + 1));
                IpPair::V4 { src, dst }
            }
        };
        Flow { number, mac: MacAddr([2, 0, 0, 1, high, low]), addresses }
    }

    fn frame(&self, protocol: FrameProtocol, number: u16, payload: &[u8]) -> Result<Vec<u8>, Error> {
        let (src_port, dst_port) = (49_152 + self.number, [80, 443, 53, 8_080][usize::from(self.number / 4 % 4)]);
        let addresses = &self.addresses;
        match protocol {
            FrameProtocol::Tcp => {
                let (sequence, acknowledgment) = (u32::from(number) << 11, u32::from(number) << 7);
                let flags = tcp::flags::ACK | if payload.is_empty() { 0 } else { tcp::flags::PSH };
                let header = TcpHeader { src_port, dst_port, sequence, acknowledgment, flags, window: 64_240 };
                let emit = |segment: &mut [u8]| header.emit(segment, addresses);
                self.packet(IpProtocol::TCP, number, tcp::field::HEADER_LEN, payload, emit)
            }
            FrameProtocol::Udp => {
                let emit = |datagram: &mut [u8]| UdpHeader { src_port, dst_port }.emit(datagram, addresses);
                self.packet(IpProtocol::UDP, number, udp::field::HEADER_LEN, payload, emit)
            }
            FrameProtocol::Icmp => {
                let is_v4 = matches!(addresses, IpPair::V4 { .. });
                let protocol = if is_v4 { IpProtocol::ICMP } else { IpProtocol::ICMPV6 };
                let echo = Echo { reply: false, identifier: self.number, sequence: number };
                let emit = |message: &mut [u8]| echo.emit(message, addresses);
                self.packet(protocol, number, icmp::field::HEADER_LEN, payload, emit)
            }
            FrameProtocol::Arp => self.arp(),
        }
    }

    /// An IP packet in a frame to the router.
    fn packet(
        &self,
        protocol: IpProtocol,
        identification: u16,
        header: usize,
        payload: &[u8],
        emit: impl FnOnce(&mut [u8]) -> Result<(), Error>,
    ) -> Result<Vec<u8>, Error> {
        let (ether_type, ip_header) = match self.addresses {
            IpPair::V4 { .. } => (EtherType::IPV4, ipv4::field::HEADER_LEN),
            IpPair::V6 { .. } => (EtherType::IPV6, ipv6::field::HEADER_LEN),
        };
        let upper = ethernet::field::HEADER_LEN + ip_header;
        let mut frame = vec![0; upper + header];
        frame.extend(payload);
        emit(&mut frame[upper..])?;
        let packet = &mut frame[ethernet::field::HEADER_LEN..];
        match self.addresses {
            IpPair::V4 { src, dst } => {
                Ipv4Header { src, dst, protocol, ttl: 64, traffic_class: 0, identification, dont_fragment: true }
                    .emit(packet)?;
            }
            IpPair::V6 { src, dst } => {
                let flow_label = self.number.into();
                Ipv6Header { src, dst, next_header: protocol, hop_limit: 64, traffic_class: 0, flow_label }
                    .emit(packet)?;
            }
        }
        EthernetHeader { dst: ROUTER, src: self.mac, ether_type }.emit(&mut frame)?;
        Ok(frame)
    }

    /// An ARP request of a host for its router's address.
    fn arp(&self) -> Result<Vec<u8>, Error> {
        let [.., high, low] = self.mac.0;
        let mut frame = vec![0; ethernet::field::HEADER_LEN];
        EthernetHeader { dst: MacAddr::BROADCAST, src: self.mac, ether_type: EtherType::ARP }.emit(&mut frame)?;
        frame.resize(SHORTEST, 0);
        ArpHeader {
            operation: ArpOperation::REQUEST,
            sender_mac: self.mac,
            sender_ip: Ipv4Addr::new(198, 18, high, low + 1),
            target_mac: MacAddr([0; 6]),
            target_ip: Ipv4Addr::new(198, 18, 255, 254),
        }
        .emit(&mut frame[ethernet::field::HEADER_LEN..])?;
        Ok(frame)
    }
}

//! The flow of a frame, and hashes of it.
//!
//! A [`Flow`] has two IP addresses, a protocol, and for TCP, UDP and SCTP two ports. Fragments have no ports, so all
//! fragments of a datagram have one flow. Frames without IP have a flow of their Ethernet addresses and EtherType. Up to
//! [`MAX_VLAN_TAGS`] VLAN tags are skipped. Lengths and checksums are not checked, so truncated and damaged packets stay
//! with their flow.
//!
//! [`Flow::of`] reads the outer headers, [`Flow::of_inner`] those inside tunnels. [`Flow::hash`] is a fast hash;
//! [`Flow::write`] makes the input of another hash, such as that of receive-side scaling. [`hash`] and [`write()`] do both steps
//! at once, for many packets: a flow that is a value of its own goes through memory, which takes longer than the hash.

mod tunnel;
pub(crate) mod walk;

use crate::{EtherType, IpProtocol, MacAddr, ethernet, ipv4, ipv6};

pub use tunnel::MAX_TUNNELS;
pub use walk::MAX_VLAN_TAGS;

/// Whether the two directions of a flow have one hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// Each direction has a hash of its own.
    Apart,
    /// Both directions have the same hash.
    Together,
}

/// Packets between two IPv4 addresses, each field in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Flow {
    /// The source address.
    pub src: [u8; 4],
    /// The destination address.
    pub dst: [u8; 4],
    /// The ports, the source's first; zeros if there are none.
    pub ports: [u8; 4],
    /// The protocol of the payload.
    pub protocol: IpProtocol,
}

/// Packets between two IPv6 addresses, each field in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Flow {
    /// The source address.
    pub src: [u8; 16],
    /// The destination address.
    pub dst: [u8; 16],
    /// The ports, the source's first; zeros if there are none.
    pub ports: [u8; 4],
    /// The first protocol that is not an extension header; the fragment header for all fragments.
    pub protocol: IpProtocol,
}

/// Frames without IP between two Ethernet addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EthernetFlow {
    /// The source address.
    pub src: MacAddr,
    /// The destination address.
    pub dst: MacAddr,
    /// The EtherType after the VLAN tags.
    pub ether_type: EtherType,
}

/// The flow of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// Packets between two IPv4 addresses.
    Ipv4(Ipv4Flow),
    /// Packets between two IPv6 addresses.
    Ipv6(Ipv6Flow),
    /// Frames without IP between two Ethernet addresses.
    Ethernet(EthernetFlow),
}

/// The maximum number of bytes that [`Flow::write`] writes: two IPv6 addresses and two ports.
pub const MAX_BYTES: usize = 36;

/// The frame up to the ports of TCP and UDP in IPv4 without options.
const IPV4_HEAD: usize = ethernet::field::HEADER_LEN + ipv4::field::HEADER_LEN + 4;

/// The frame up to the ports of TCP and UDP in IPv6 without extension headers.
const IPV6_HEAD: usize = ethernet::field::HEADER_LEN + ipv6::field::HEADER_LEN + 4;

/// EtherType, version and header length of an IPv4 packet without options, and the bits that say so.
const IPV4_START: (u32, u32) = (0x0800_4500, 0xffff_ff00);

/// EtherType and version of an IPv6 packet, and the bits that say so.
const IPV6_START: (u32, u32) = (0x86dd_6000, 0xffff_f000);

/// "More fragments" and the fragment's offset.
pub(crate) const FRAGMENT: u16 = 0x3fff;

/// Some bytes of a header.
#[inline(always)]
pub(crate) fn at<const N: usize, const LEN: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

/// Whether the short way knows the protocol.
#[inline(always)]
fn is_plain(protocol: u8) -> bool {
    protocol == IpProtocol::TCP.0 || protocol == IpProtocol::UDP.0
}

impl Ipv4Flow {
    /// The flow of TCP or UDP directly behind an Ethernet header and an IPv4 header without options.
    #[inline(always)]
    fn plain(frame: &[u8]) -> Option<Ipv4Flow> {
        let head = frame.first_chunk::<IPV4_HEAD>()?;
        // One load and one test each, without a swap of bytes: the fragment's word, time to live, protocol.
        let start = u32::from_le_bytes(at(head, 12)) & IPV4_START.1.swap_bytes();
        let rest = u32::from_le_bytes(at(head, 20));
        let protocol = (rest >> 24) as u8;
        let is_other = start ^ IPV4_START.0.swap_bytes() | rest & u32::from(FRAGMENT.swap_bytes());
        if is_other != 0 || !is_plain(protocol) {
            return None;
        }
        Some(Ipv4Flow { src: at(head, 26), dst: at(head, 30), ports: at(head, 34), protocol: IpProtocol(protocol) })
    }

    #[inline(always)]
    fn hash(self, directions: Directions) -> u32 {
        let address = |bytes: [u8; 4]| u64::from(u32::from_le_bytes(bytes));
        let (src_port, dst_port) = ports(self.ports);
        let (src, dst) = (address(self.src) | src_port << 32, address(self.dst) | dst_port << 32);
        combine(src, dst, self.protocol.0.into(), directions)
    }

    #[inline(always)]
    fn write(self, directions: Directions, to: &mut [u8; MAX_BYTES]) -> usize {
        let (src, dst, ports) = ordered(self.src, self.dst, self.ports, directions);
        to[..4].copy_from_slice(&src);
        to[4..8].copy_from_slice(&dst);
        to[8..12].copy_from_slice(&ports);
        12
    }
}

impl Ipv6Flow {
    /// The flow of TCP or UDP directly behind an Ethernet header and an IPv6 header.
    #[inline(always)]
    fn plain(frame: &[u8]) -> Option<Ipv6Flow> {
        let head = frame.first_chunk::<IPV6_HEAD>()?;
        let protocol = head[20];
        if u32::from_be_bytes(at(head, 12)) & IPV6_START.1 != IPV6_START.0 || !is_plain(protocol) {
            return None;
        }
        Some(Ipv6Flow { src: at(head, 22), dst: at(head, 38), ports: at(head, 54), protocol: IpProtocol(protocol) })
    }

    #[inline(always)]
    fn hash(self, directions: Directions) -> u32 {
        let short = |bytes: [u8; 16]| {
            let [prefix, interface] = [0, 8].map(|start| u64::from_le_bytes(at(&bytes, start)));
            fold(prefix ^ KEYS[2], interface ^ KEYS[3])
        };
        let (src_port, dst_port) = ports(self.ports);
        combine(short(self.src) ^ src_port, short(self.dst) ^ dst_port, self.protocol.0.into(), directions)
    }

    #[inline(always)]
    fn write(self, directions: Directions, to: &mut [u8; MAX_BYTES]) -> usize {
        let (src, dst, ports) = ordered(self.src, self.dst, self.ports, directions);
        to[..16].copy_from_slice(&src);
        to[16..32].copy_from_slice(&dst);
        to[32..].copy_from_slice(&ports);
        36
    }
}

impl EthernetFlow {
    fn hash(self, directions: Directions) -> u32 {
        let address = |MacAddr([a, b, c, d, e, f]): MacAddr| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        combine(address(self.src), address(self.dst), self.ether_type.0, directions)
    }

    fn write(self, directions: Directions, to: &mut [u8; MAX_BYTES]) -> usize {
        let (src, dst, _) = ordered(self.src.0, self.dst.0, [0; 4], directions);
        to[..6].copy_from_slice(&dst);
        to[6..12].copy_from_slice(&src);
        to[12..14].copy_from_slice(&self.ether_type.0.to_be_bytes());
        14
    }
}

/// Source and destination port, as numbers that differ if the ports do.
#[inline(always)]
fn ports([a, b, c, d]: [u8; 4]) -> (u64, u64) {
    (u16::from_le_bytes([a, b]).into(), u16::from_le_bytes([c, d]).into())
}

impl Flow {
    /// The flow by the outermost headers; `None` if the frame is shorter than an Ethernet header.
    pub fn of(frame: &[u8]) -> Option<Flow> {
        walk::ethernet(frame).map(|walked| walked.flow)
    }

    /// The flow by the headers of the packet inside a tunnel; that of the outer headers if the frame is no tunnel, or
    /// what is inside cannot be read. `None` if the frame is shorter than an Ethernet header.
    ///
    /// The tunnels are VXLAN, Geneve, GTP-U, GRE, and IP in IP (each version in each). Up to [`MAX_TUNNELS`] tunnels may
    /// lie in one another; the flow of a frame with more is that inside the last of these.
    pub fn of_inner(frame: &[u8]) -> Option<Flow> {
        tunnel::inner_flow(frame)
    }

    /// A hash that is the same in every process and on every machine. All bits of it are equally good.
    pub fn hash(self, directions: Directions) -> u32 {
        match self {
            Flow::Ipv4(flow) => flow.hash(directions),
            Flow::Ipv6(flow) => flow.hash(directions),
            Flow::Ethernet(flow) => flow.hash(directions),
        }
    }

    /// Writes the flow as bytes in network order, as input for another hash, and returns their number. If both directions
    /// are to have one hash, the end with the lower address, or else the lower port, comes first.
    ///
    /// For IP these are source and destination address and the ports, which is what receive-side scaling hashes; the
    /// ports are zeros in packets without ports. For other frames: destination and source address, EtherType.
    pub fn write(self, directions: Directions, to: &mut [u8; MAX_BYTES]) -> usize {
        match self {
            Flow::Ipv4(flow) => flow.write(directions, to),
            Flow::Ipv6(flow) => flow.write(directions, to),
            Flow::Ethernet(flow) => flow.write(directions, to),
        }
    }
}

/// Takes the short way to a flow if there is one, and evaluates an expression of it.
macro_rules! of_flow {
    ($frame:expr, $flow:ident => $value:expr) => {
        if let Some($flow) = Ipv4Flow::plain($frame) {
            Some($value)
        } else if let Some($flow) = Ipv6Flow::plain($frame) {
            Some($value)
        } else {
            walk::outer_flow($frame).map(|$flow| $value)
        }
    };
}

/// The [hash](Flow::hash) of a frame by its outermost headers; `None` if it is shorter than an Ethernet header. Hot.
///
/// TCP and UDP directly behind an Ethernet header and an IP header without options take a short way.
#[inline(always)]
pub fn hash(frame: &[u8], directions: Directions) -> Option<u32> {
    of_flow!(frame, flow => flow.hash(directions))
}

/// [Writes](Flow::write) the flow of a frame by its outermost headers; `None` if it is shorter than an Ethernet header.
/// Hot.
#[inline(always)]
pub fn write(frame: &[u8], directions: Directions, to: &mut [u8; MAX_BYTES]) -> Option<usize> {
    of_flow!(frame, flow => flow.write(directions, to))
}

/// The ends of a flow, source first, and their ports. If both directions are to have one hash, the lower end comes first.
#[inline(always)]
fn ordered<const N: usize>(
    src: [u8; N],
    dst: [u8; N],
    ports: [u8; 4],
    directions: Directions,
) -> ([u8; N], [u8; N], [u8; 4]) {
    let [a, b, c, d] = ports;
    if directions == Directions::Together && (src, [a, b]) > (dst, [c, d]) {
        (dst, src, [c, d, a, b])
    } else {
        (src, dst, ports)
    }
}

/// The hash of words for both ends and of the kind of the flow. If both words are masked with the same key, the ends may
/// be exchanged.
///
/// After the first product, flows in a grid (some hosts talking to some others) are a grid in the hash. The second one
/// breaks it up.
#[inline(always)]
fn combine(src: u64, dst: u64, kind: u16, directions: Directions) -> u32 {
    let dst_key = match directions {
        Directions::Apart => KEYS[1],
        Directions::Together => KEYS[0],
    };
    fold(fold(src ^ KEYS[0], dst ^ dst_key) ^ u64::from(kind), KEYS[2]) as u32
}

/// Arbitrary numbers with about as many ones as zeros: the fractions of the square roots of 2, 3, 5 and 7.
const KEYS: [u64; 4] = [0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// The product of two words, its halves folded into one. The low bits of the lower half and the high bits of the upper
/// half depend on few bits of the factors; each meets a bit of the other half that depends on nearly all of them.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// Maps a hash to one of `count` places. Hot.
#[inline]
pub fn share(hash: u32, count: usize) -> usize {
    ((u64::from(hash) * count as u64) >> 32) as usize
}

//! The flow of a frame, and hashes of it.
//!
//! A [`Flow`] has two IP addresses, a protocol, and for TCP, UDP and SCTP two ports. Fragments have no ports, so all
//! fragments of a datagram have one flow. Frames without IP have a flow of their Ethernet addresses and EtherType. Up to
//! [`MAX_VLAN_TAGS`] VLAN tags are skipped. Lengths and checksums are not checked, so truncated and damaged packets stay
//! with their flow.
//!
//! [`Flow::of`] reads the outer headers, [`Flow::of_inner`] those inside tunnels. [`Flow::hash`] is a fast hash;
//! [`Flow::words`] is the input of another hash, such as that of receive-side scaling. [`hash`] and [`words`] do both steps
//! at once, for many packets: a flow that is a value of its own goes through memory, which takes longer than the hash.

mod tunnel;
mod walk;

use crate::{EtherType, IpProtocol, ethernet, ipv4, ipv6};

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

/// Packets between two IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv4Flow {
    /// The source address.
    pub src: u32,
    /// The destination address.
    pub dst: u32,
    /// The ports, the source's in the upper half; 0 if there are none.
    pub ports: u32,
    /// The protocol of the payload.
    pub protocol: IpProtocol,
}

/// Packets between two IPv6 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ipv6Flow {
    /// The source address.
    pub src: u128,
    /// The destination address.
    pub dst: u128,
    /// The ports, the source's in the upper half; 0 if there are none.
    pub ports: u32,
    /// The first protocol that is not an extension header; the fragment header for all fragments.
    pub protocol: IpProtocol,
}

/// Frames without IP between two Ethernet addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EthernetFlow {
    /// The source address, 48 bits.
    pub src: u64,
    /// The destination address, 48 bits.
    pub dst: u64,
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

/// The number of words that a flow is hashed as: two IPv6 addresses and two ports.
pub const WORDS: usize = 9;

/// The frame up to the ports of TCP and UDP in IPv4 without options.
const IPV4_HEAD: usize = ethernet::field::HEADER_LEN + ipv4::field::HEADER_LEN + 4;

/// The frame up to the ports of TCP and UDP in IPv6 without extension headers.
const IPV6_HEAD: usize = ethernet::field::HEADER_LEN + ipv6::field::HEADER_LEN + 4;

/// EtherType, version and header length of an IPv4 packet without options.
const IPV4_START: u32 = 0x0800_4500;

/// EtherType and version of an IPv6 packet.
const IPV6_START: u32 = 0x86dd_6000;

/// "More fragments" and the fragment's offset.
const FRAGMENT: u16 = 0x3fff;

/// Some bytes of a header.
#[inline(always)]
fn at<const N: usize, const LEN: usize>(bytes: &[u8; LEN], at: usize) -> [u8; N] {
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
        let start = u32::from_be_bytes(at(head, 12));
        let fragment = u16::from_be_bytes(at(head, 20)) & FRAGMENT;
        let protocol = head[23];
        if start & 0xffff_ff00 != IPV4_START || fragment != 0 || !is_plain(protocol) {
            return None;
        }
        let [src, dst, ports] = [26, 30, 34].map(|start| u32::from_be_bytes(at(head, start)));
        Some(Ipv4Flow { src, dst, ports, protocol: IpProtocol(protocol) })
    }

    #[inline(always)]
    fn hash(self, directions: Directions) -> u64 {
        let end = |address: u32, port: u32| end(u64::from(address) << 16 | u64::from(port), self.protocol.0.into());
        combine(end(self.src, self.ports >> 16), end(self.dst, self.ports & 0xffff), directions)
    }

    #[inline(always)]
    fn words(self, directions: Directions) -> [u32; WORDS] {
        let (src, dst, ports) = ordered(self.src, self.dst, self.ports, directions);
        [src, dst, ports, 0, 0, 0, 0, 0, 0]
    }
}

impl Ipv6Flow {
    /// The flow of TCP or UDP directly behind an Ethernet header and an IPv6 header.
    #[inline(always)]
    fn plain(frame: &[u8]) -> Option<Ipv6Flow> {
        let head = frame.first_chunk::<IPV6_HEAD>()?;
        let start = u32::from_be_bytes(at(head, 12));
        let protocol = head[20];
        if start & 0xffff_f000 != IPV6_START || !is_plain(protocol) {
            return None;
        }
        let [src, dst] = [22, 38].map(|start| u128::from_be_bytes(at(head, start)));
        Some(Ipv6Flow { src, dst, ports: u32::from_be_bytes(at(head, 54)), protocol: IpProtocol(protocol) })
    }

    #[inline(always)]
    fn hash(self, directions: Directions) -> u64 {
        let short = |address: u128| fold(address as u64 ^ KEYS[2], (address >> 64) as u64 ^ KEYS[3]);
        let end = |address: u128, port: u32| short(address) ^ end(port.into(), self.protocol.0.into());
        combine(end(self.src, self.ports >> 16), end(self.dst, self.ports & 0xffff), directions)
    }

    #[inline(always)]
    fn words(self, directions: Directions) -> [u32; WORDS] {
        let (src, dst, ports) = ordered(self.src, self.dst, self.ports, directions);
        let word = |address: u128, index: u32| (address >> (96 - 32 * index)) as u32;
        let [a, b, c, d] = [0, 1, 2, 3].map(|index| word(src, index));
        let [e, f, g, h] = [0, 1, 2, 3].map(|index| word(dst, index));
        [a, b, c, d, e, f, g, h, ports]
    }
}

impl EthernetFlow {
    fn hash(self, directions: Directions) -> u64 {
        combine(end(self.src, self.ether_type.0), end(self.dst, self.ether_type.0), directions)
    }

    fn words(self, directions: Directions) -> [u32; WORDS] {
        let (src, dst, _) = ordered(self.src, self.dst, 0, directions);
        let middle = (dst as u32) << 16 | (src >> 32) as u32;
        [(dst >> 16) as u32, middle, src as u32, u32::from(self.ether_type.0) << 16, 0, 0, 0, 0, 0]
    }
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
    pub fn hash(self, directions: Directions) -> u64 {
        match self {
            Flow::Ipv4(flow) => flow.hash(directions),
            Flow::Ipv6(flow) => flow.hash(directions),
            Flow::Ethernet(flow) => flow.hash(directions),
        }
    }

    /// The flow as words in network order, and zeros behind them. If both directions are to have one hash, the end with
    /// the lower address, or else the lower port, comes first.
    ///
    /// For IP these are source and destination address and the ports, which is what receive-side scaling hashes; the
    /// word of the ports is 0 in packets without ports. For other frames: destination and source address, EtherType.
    pub fn words(self, directions: Directions) -> [u32; WORDS] {
        match self {
            Flow::Ipv4(flow) => flow.words(directions),
            Flow::Ipv6(flow) => flow.words(directions),
            Flow::Ethernet(flow) => flow.words(directions),
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
pub fn hash(frame: &[u8], directions: Directions) -> Option<u64> {
    of_flow!(frame, flow => flow.hash(directions))
}

/// The [words](Flow::words) of a frame by its outermost headers; `None` if it is shorter than an Ethernet header. Hot.
#[inline(always)]
pub fn words(frame: &[u8], directions: Directions) -> Option<[u32; WORDS]> {
    of_flow!(frame, flow => flow.words(directions))
}

/// The ends of a flow, source first, and their ports. If both directions are to have one hash, the lower end comes first.
#[inline(always)]
fn ordered<T: Copy + PartialOrd>(src: T, dst: T, ports: u32, directions: Directions) -> (T, T, u32) {
    if directions == Directions::Together && (src, ports >> 16) > (dst, ports & 0xffff) {
        (dst, src, ports.rotate_left(16))
    } else {
        (src, dst, ports)
    }
}

/// A word for one end of a flow: its address, 48 bits, and the kind of the flow.
#[inline(always)]
fn end(address: u64, kind: u16) -> u64 {
    u64::from(kind) << 48 | address
}

/// The hash of the words of both ends: their product, its halves folded into one. If both words are masked with the same
/// key, the ends may be exchanged.
#[inline(always)]
fn combine(src: u64, dst: u64, directions: Directions) -> u64 {
    let dst_key = match directions {
        Directions::Apart => KEYS[1],
        Directions::Together => KEYS[0],
    };
    fold(src ^ KEYS[0], dst ^ dst_key)
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
pub fn share(hash: u64, count: usize) -> usize {
    ((u128::from(hash) * count as u128) >> 64) as usize
}

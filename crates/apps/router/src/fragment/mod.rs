//! `fragment`: fragments packets that are too long.

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use bellows_common::fragmenter::{Fragmentation, Fragmenter, NotFragmented};
use bellows_common::headers::ETHERNET;
use bellows_common::ip_frame::IpFrame;
use bellows_common::segmentation::{kind_of, segment};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, DropReason, Input, Io, Output, Port, Ports, counters};
use bellows_packet::{Burst, CAPACITY, Offload, Packet, Vector};
use bellows_vrf::{IcmpError, Reason, Tag};
use bellows_wire::offload::{GsoKind, GsoPacket, finish_checksum};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::vrf::RoutingDomain;

/// Fragments IP packets that are longer than `mtu` bytes.
///
/// Packets may be behind up to two VLAN tags. IPv4 packets become fragments (RFC 791), unless they must not be
/// fragmented. IPv6 packets are fragmented by their sources alone (RFC 8200, section 4.5): set `fragment_ipv6` where
/// this network is the source, for example the end of a tunnel. Packets that must not be fragmented go to `error`,
/// tagged for `ip4-icmp-error` and `ip6-icmp-error`; if it is not linked, they are dropped as `dont_fragment`. Frames
/// that are not IP pass, whatever their length.
///
/// Offloads are finished where they must be: a partial checksum is completed before its packet is fragmented, and a GSO
/// packet whose segments are too long is segmented first.
///
/// With `vrf`, the MTU is that of the packet's adjacency, and the router is the source of IPv6 packets that it has not
/// received. This is how the app is used in a `router`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The longest IP packet, from 68 bytes. It is needed unless `vrf` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "bytes"), range(min = 68, max = 65535))]
    pub mtu: Option<u16>,

    /// Whether to fragment IPv6 packets, because this network is their source. It needs an `mtu` of 1,280 or more.
    pub fragment_ipv6: bool,

    /// The routing domain of a router: the name of an object of type `vrf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
}

impl Config {
    /// The MTU is that of the adjacencies of a routing domain.
    pub fn of(vrf: &str) -> Config {
        Config { mtu: None, fragment_ipv6: false, vrf: Some(vrf.to_owned()) }
    }
}

/// The minimum MTU of IPv4 (RFC 791, section 3.2) and of IPv6 (RFC 8200, section 5).
const MIN_MTU_V4: u16 = 68;
const MIN_MTU_V6: u16 = 1280;

/// Fragments packets.
pub struct Fragment {
    limit: Limit,
    fragmenter: Fragmenter,
    /// The segments of a GSO packet behind its first, and the fragments of a packet behind its first. Empty between two
    /// packets.
    segments: Vector,
    fragments: Vector,
    /// What becomes of the packets of an input, as far as they have been looked at. Empty between two inputs.
    fates: Vec<Fate>,
}

/// Where the MTU of a packet is from.
enum Limit {
    Fixed { mtu: u16, fragment_ipv6: bool },
    Adjacency(Arc<RoutingDomain>),
}

counters! { Fragment;
    drop DONT_FRAGMENT = "dont_fragment", "packets that must not be fragmented, if `error` is not linked";
    drop MALFORMED = "malformed", "packets whose headers are not right, or whose offset is beyond the longest packet";
    drop BAD_CHECKSUM = "bad_checksum", "IPv4 packets to be fragmented whose header has a wrong checksum";
    drop BAD_OFFLOAD = "bad_offload", "packets to be fragmented whose offload cannot be finished";
    drop TOO_MANY = "too_many_fragments", "packets that would become more than 1,024 fragments";
    drop NO_MEMORY = "no_memory", "packets for whose fragments the pool has no buffers, or their headers no room";
    drop NO_ADJACENCY = "no_adjacency", "packets whose adjacency has gone";
    count OKS = "frag_oks", "packets that were fragmented (ipFragOKs)";
    count CREATES = "frag_creates", "fragments that were made (ipFragCreates)";
    count SEGMENTED = "segmented", "GSO packets that were segmented because their segments are too long";
    count NOT_IP = "not_ip", "frames longer than the MTU that are not IP; passed unchanged";
}

/// The places of the outputs.
const OUTPUT: usize = 0;
const ERROR: usize = 1;

impl App for Fragment {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "Ethernet frames")]);
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("output", "frames with packets of at most `mtu` bytes"),
        Port::optional("error", "packets whose sender is to be told that they are too long"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        let input = io.input(0);
        // Packet data is not touched if all frames are short.
        if let Limit::Fixed { mtu, .. } = self.limit {
            let longest = input.packets().iter().fold(0, |longest, packet| longest.max(packet.len()));
            if longest <= ETHERNET + usize::from(mtu) {
                drop(input);
                io.forward(0, OUTPUT);
                return;
            }
        }
        self.fragment_all(io, input);
    }
}

/// What becomes of a packet.
#[derive(Clone, Copy)]
enum Fate {
    Pass,
    NotIp,
    Drop(DropReason<Fragment>),
    /// The sender is told the MTU.
    Tell(u16),
    Fragment(Fragmentation),
    /// It is segmented, and then fragmented: the type of GSO packet, and the number of fragments in all.
    Segment(GsoKind, usize),
}

impl Fate {
    /// The number of packets that it makes, at most.
    fn count(&self) -> usize {
        match self {
            Fate::Fragment(plan) => plan.count(),
            Fate::Segment(_, count) => *count,
            _ => 1,
        }
    }
}

impl Fragment {
    fn new(limit: Limit) -> Fragment {
        let (segments, fragments) = (Vector::new(), Vector::new());
        let fates = Vec::with_capacity(CAPACITY);
        Fragment { limit, fragmenter: Fragmenter::new(), segments, fragments, fates }
    }

    fn fragment_all(&mut self, io: &Io<Self>, mut input: Input<'_, Self>) {
        let (mut output, mut error) = (io.output(OUTPUT), io.output(ERROR));
        let mut fates = std::mem::take(&mut self.fates);
        let made = self.decide(io, input.packets(), output.room(), &mut fates);
        let mut buffers = Packet::allocate_burst(made);
        // Those for which there is no room stay in the input.
        for (fate, mut packet) in fates.drain(..).zip(&mut input) {
            match fate {
                _ if fate.count() > CAPACITY => io.drop(packet, Self::TOO_MANY),
                Fate::Pass => output.push(packet),
                Fate::NotIp => {
                    io.count(Self::NOT_IP, 1);
                    output.push(packet);
                }
                Fate::Drop(reason) => io.drop(packet, reason),
                Fate::Tell(mtu) if io.is_linked(ERROR) => {
                    let told = IcmpError { reason: Reason::TooBig, value: mtu };
                    packet.set_tag(Tag(packet.tag()).with(told.number()).0);
                    error.push(packet);
                }
                Fate::Tell(_) => io.drop(packet, Self::DONT_FRAGMENT),
                Fate::Fragment(plan) => self.send(io, packet, &plan, &mut buffers, &mut output),
                Fate::Segment(kind, _) => self.segment(io, packet, kind, &mut output),
            }
        }
        self.fates = fates;
    }

    /// Decides what becomes of packets, as many as an output has room for: all fragments of one are sent at once, and
    /// fit into an empty output. Returns the number of fragments behind the first ones. Hot.
    fn decide(&self, io: &Io<Self>, packets: &[Packet], mut room: usize, fates: &mut Vec<Fate>) -> usize {
        let mut made = 0;
        let ahead = io.prefetch();
        packets.iter().take(ahead).for_each(Packet::prefetch);
        for (index, packet) in packets.iter().enumerate() {
            if let Some(packet) = packets.get(index + ahead) {
                packet.prefetch();
            }
            let fate = self.fate(packet);
            let count = fate.count();
            if count > room && count <= CAPACITY && (count > 1 || io.is_lossless()) {
                break;
            }
            if count <= CAPACITY {
                room = room.saturating_sub(count);
                if let Fate::Fragment(plan) = &fate {
                    plan.prefetch(packet.bytes());
                    made += count - 1;
                }
            }
            fates.push(fate);
        }
        made
    }

    fn fate(&self, packet: &Packet) -> Fate {
        self.limit_of(packet).map_or(Fate::Drop(Self::NO_ADJACENCY), |(mtu, is_source)| fate(packet, mtu, is_source))
    }

    /// The MTU of a packet, and whether this node is the source of an IPv6 packet. `None` if there is no adjacency.
    fn limit_of(&self, packet: &Packet) -> Option<(u16, bool)> {
        match &self.limit {
            Limit::Fixed { mtu, fragment_ipv6 } => Some((*mtu, *fragment_ipv6)),
            Limit::Adjacency(domain) => {
                let tag = Tag(packet.tag());
                let mtu = domain.tables().adjacencies().state(tag.number()).mtu();
                (mtu > 0).then_some((mtu, tag.interface() == 0))
            }
        }
    }

    /// Sends the fragments of a packet.
    fn send(
        &mut self,
        io: &Io<Self>,
        mut packet: Packet,
        plan: &Fragmentation,
        buffers: &mut Burst,
        output: &mut Output<'_>,
    ) {
        if let Some(offload) = packet.offload().filter(Offload::needs_checksum) {
            let (start, offset) = (offload.checksum_start.into(), offload.checksum_offset.into());
            if finish_checksum(&mut packet.bytes_mut()[..plan.end()], start, offset).is_err() {
                return io.drop(packet, Self::BAD_OFFLOAD);
            }
        }
        let Fragment { fragmenter, fragments, .. } = self;
        if fragmenter.carry_out(&mut packet, plan, buffers, fragments).is_err() {
            return io.drop(packet, Self::NO_MEMORY);
        }
        io.count(Self::OKS, 1);
        io.count(Self::CREATES, 1 + fragments.len() as u64);
        output.push(packet);
        fragments.drain(usize::MAX).for_each(|fragment| output.push(fragment));
    }

    /// Sends the fragments of the segments of a GSO packet.
    fn segment(&mut self, io: &Io<Self>, mut packet: Packet, kind: GsoKind, output: &mut Output<'_>) {
        let size = packet.offload().map_or(0, |offload| offload.segment_size);
        let mut segments = std::mem::replace(&mut self.segments, Vector::none());
        if segment(&mut packet, kind, size, &mut segments).is_err() {
            segments.drain(usize::MAX).for_each(drop);
            io.drop(packet, Self::NO_MEMORY);
        } else {
            io.count(Self::SEGMENTED, 1);
            for packet in std::iter::once(packet).chain(segments.drain(usize::MAX)) {
                match self.fate(&packet) {
                    Fate::Fragment(plan) => {
                        let mut buffers = Packet::allocate_burst(plan.count() - 1);
                        self.send(io, packet, &plan, &mut buffers, output);
                    }
                    Fate::Drop(reason) => io.drop(packet, reason),
                    _ => output.push(packet),
                }
            }
        }
        self.segments = segments;
    }
}

/// What becomes of a packet.
fn fate(packet: &Packet, mtu: u16, is_source: bool) -> Fate {
    let frame = packet.bytes();
    if frame.len() <= ETHERNET + usize::from(mtu) {
        return Fate::Pass;
    }
    let Some(ip) = IpFrame::find(frame) else { return Fate::NotIp };
    let plan = Fragmentation::of(frame, ip, mtu, is_source);
    let gso = packet.offload().filter(Offload::is_gso);
    match (plan, gso) {
        (Err(NotFragmented::Malformed), _) => Fate::Drop(Fragment::MALFORMED),
        (Err(NotFragmented::BadChecksum), _) => Fate::Drop(Fragment::BAD_CHECKSUM),
        (Err(NotFragmented::Fits), _) => Fate::Pass,
        (Err(NotFragmented::DontFragment), None) => Fate::Tell(mtu),
        (Ok(plan), None) => Fate::Fragment(plan),
        (plan, Some(offload)) => fate_of_gso(frame, offload, plan.is_ok(), ip, mtu),
    }
}

/// What becomes of a GSO packet, which is in effect as long as its segments.
fn fate_of_gso(frame: &[u8], offload: Offload, may_fragment: bool, ip: IpFrame, mtu: u16) -> Fate {
    let Some(kind) = kind_of(offload) else { return Fate::Drop(Fragment::BAD_OFFLOAD) };
    let Ok(gso) = GsoPacket::new(frame, kind, offload.segment_size) else {
        return Fate::Drop(Fragment::BAD_OFFLOAD);
    };
    // As `ip4-rewrite` has it: if one called a packet too long that fits for the other, it would go round for ever.
    let length = gso.longest_segment() - ip.at;
    if length <= usize::from(mtu) {
        return Fate::Pass;
    }
    if !may_fragment {
        return Fate::Tell(mtu);
    }
    // No fragment but the last has less than this much of a segment.
    let least = usize::from(mtu).saturating_sub(gso.header_len() - ip.at + 8 + 8).max(8);
    Fate::Segment(kind, gso.count() * (1 + length.div_ceil(least)))
}

impl Configure for Fragment {
    const NAME: &'static str = "fragment";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        let row =
            |label, mtu: u16, traffic| BenchRow { label, keys: format!("mtu = {mtu}"), traffic, ..BenchRow::default() };
        BenchSetup::Rows(vec![
            row("all fit", 1500, "60"),
            row("each becomes 2", 1280, "may-fragment:1514"),
            row("each becomes 3", 576, "may-fragment:1514"),
        ])
    }

    fn configure(config: Config, context: &Context) -> Result<Fragment, SettingError> {
        let wrong = |key, message: String, help: &str| Err(SettingError::at(key, message, help));
        match (config.mtu, config.vrf) {
            (Some(_), Some(_)) => {
                wrong("vrf", "`mtu` and `vrf` exclude each other".to_owned(), "leave one of them out")
            }
            (None, None) => {
                wrong("mtu", "there is no limit for packets".to_owned(), "give `mtu`, or the `vrf` of a router")
            }
            (None, Some(_)) if config.fragment_ipv6 => wrong(
                "fragment_ipv6",
                "a router fragments its own IPv6 packets alone".to_owned(),
                "leave it out, or give `mtu` instead of `vrf`",
            ),
            (None, Some(vrf)) => Ok(Fragment::new(Limit::Adjacency(context.object("vrf", &vrf)?))),
            (Some(mtu), None) if mtu < MIN_MTU_V4 => {
                wrong("mtu", format!("an `mtu` of {mtu} is too small"), "give a number from 68 to 65535")
            }
            (Some(mtu), None) if config.fragment_ipv6 && mtu < MIN_MTU_V6 => {
                wrong("mtu", format!("an `mtu` of {mtu} is too small for IPv6"), "give 1280 or more")
            }
            (Some(mtu), None) => Ok(Fragment::new(Limit::Fixed { mtu, fragment_ipv6: config.fragment_ipv6 })),
        }
    }
}

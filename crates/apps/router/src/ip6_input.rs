//! `ip6-input`: checks IPv6 headers.
//!
//! As in `ip4_input.rs`, there are three versions of one decision, which property tests hold together: `check` for a
//! batch, `check_each` for a few packets, and `judge` for all that is not a usual header.

use std::net::Ipv6Addr;

use bellows_common::headers::{ETHERNET, cut_trailer};
use bellows_common::nexts::{Next, NextVectors};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, DropReason, Io, Port, Ports, counters};
use bellows_packet::{Frames, Packet};
use bellows_sys::simd::{Loop, Simd};
use bellows_vrf::{IcmpError, Tag};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forwarding::{BATCH, Columns, FEW, LookAhead, STEP, UNUSUAL, USUAL, load_words, usual_if};
use crate::ipv6_options::{BadOptions, check_options};
use crate::router_bench::{Behind, row};

/// Checks IPv6 headers as RFC 8200 demands, and drops packets that a router must not forward.
///
/// Checked are the version, the length, the hop-by-hop options, and that the source may be that of a
/// packet on a wire. What is behind a packet in its frame is removed: padding, and trailers of the link. Hop-by-hop options that a router does not know are treated as their types say. Packets whose sender
/// is to be told why they are dropped go to `error`, if it is linked. The app has no keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

/// Checks IPv6 headers.
pub struct Ip6Input {
    next_vectors: NextVectors,
    columns: Box<Columns>,
}

counters! { Ip6Input;
    drop TOO_SHORT = "too_short", "packets without a whole IPv6 header";
    drop BAD_LENGTH = "bad_length", "packets that end before their payload length, and jumbograms";
    drop VERSION = "version", "packets that are not of version 6";
    drop BAD_SOURCE = "src_martian", "packets whose source is multicast, the loopback address, or an IPv4-mapped one";
    drop BAD_OPTIONS = "bad_options", "packets whose hop-by-hop options do not fit, or must be known but are not";
    count OPTIONS = "options", "packets with hop-by-hop options";
}

/// Bytes of an IPv6 header without extension headers.
const IPV6_HEADER: usize = 40;

/// The places of the outputs.
const OUTPUT: u16 = 0;
const ERROR: usize = 1;

impl App for Ip6Input {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "IPv6 packets behind an Ethernet header")]);
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("output", "packets to look up"),
        Port::optional("error", "packets whose sender is to be told"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        self.next_vectors.resize(io.outputs());
        let mut input = io.input(0);
        let packets = input.packets();
        let numbers = self.next_vectors.nexts(packets.len());
        if check(Simd::chosen(), &mut self.columns, packets, io.prefetch(), numbers) {
            input.packets_mut().iter_mut().for_each(cut_trailer);
        }
        self.next_vectors.send_all(io, 0, input, |packet| judge(io, packet));
    }
}

/// Bytes of an Ethernet and an IPv6 header.
const HEADERS: usize = ETHERNET + 40;

/// The next header of hop-by-hop options (RFC 8200, section 4.3).
const HOP_BY_HOP: u8 = 0;

/// Numbers packets by whether their headers are usual and right. Returns whether any may have bytes behind it. Hot.
pub(crate) fn check(simd: Simd, columns: &mut Columns, packets: &[Packet], ahead: usize, numbers: &mut [u16]) -> bool {
    simd.run(Check { columns, packets, ahead, numbers })
}

struct Check<'p> {
    columns: &'p mut Columns,
    packets: &'p [Packet],
    ahead: usize,
    numbers: &'p mut [u16],
}

impl Loop for Check<'_> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Check { columns, packets, ahead, numbers } = self;
        let mut is_longer = false;
        let mut look_ahead = LookAhead::begin(packets, ahead, Packet::prefetch);
        for (packets, numbers) in packets.chunks(BATCH).zip(numbers.chunks_mut(BATCH)) {
            let frames =
                (packets.len() > FEW).then(|| Frames::<[u8; HEADERS]>::with_lengths(packets, &mut columns.lengths));
            let Some(frames) = frames.flatten() else {
                is_longer |= check_each(packets, numbers);
                continue;
            };
            read(&frames, &mut look_ahead, columns);
            is_longer |= columns.number(numbers, |row, _, length| usual_if(are_right(row, length)), behind);
        }
        is_longer
    }
}

/// Reads headers into columns. Hot.
#[inline(always)]
pub(crate) fn read(frames: &Frames<'_, [u8; HEADERS]>, look_ahead: &mut LookAhead<'_>, columns: &mut Columns) {
    for (frames, rows) in frames.chunks(STEP).zip(columns.rows.chunks_mut(STEP)) {
        look_ahead.step(Packet::prefetch);
        frames.iter().zip(rows).for_each(|(header, row)| *row = load_words(header, ETHERNET));
    }
}

/// As [`check`], packet by packet.
#[inline(never)]
fn check_each(packets: &[Packet], numbers: &mut [u16]) -> bool {
    let mut is_longer = false;
    for (packet, number) in packets.iter().zip(numbers) {
        let is_right = |header: &[u8; HEADERS]| {
            let (row, length) = (load_words(header, ETHERNET), packet.len() as u32);
            is_longer |= behind(row, length) != 0;
            are_right(row, length)
        };
        *number = if packet.bytes().first_chunk().is_some_and(is_right) { USUAL } else { UNUSUAL };
    }
    is_longer
}

/// The payload length in the words of a header. Hot.
#[inline(always)]
fn payload_length(second: u32) -> u32 {
    (second & 0xff) << 8 | (second >> 8 & 0xff)
}

/// Bytes of a frame behind a packet whose header is right. Hot.
#[inline(always)]
pub(crate) fn behind([_, second, ..]: [u32; 4], length: u32) -> u32 {
    length.wrapping_sub(HEADERS as u32 + payload_length(second))
}

/// Whether the first four words of a header without hop-by-hop options are right. There is no branch in it. Hot.
#[inline(always)]
pub(crate) fn are_right(row: [u32; 4], length: u32) -> bool {
    // Version, traffic class, flow label; payload length, next header, hop limit; half of the source.
    let [first, second, source, source_rest] = row;
    let payload_length = payload_length(second);
    // Multicast addresses begin with ff, the loopback address with zeros.
    (first & 0xf0 == 0x60)
        & (payload_length <= length.wrapping_sub(HEADERS as u32))
        & (second >> 16 & 0xff != u32::from(HOP_BY_HOP))
        & (source & 0xff != 0xff)
        & (source | source_rest != 0)
}

/// What becomes of a packet whose header is not a usual one that is right.
fn judge(io: &Io<Ip6Input>, packet: &mut Packet) -> Next<Ip6Input> {
    let (error, reason) = match look_closely(packet.bytes()) {
        Ok(has_options) => {
            io.count(Ip6Input::OPTIONS, has_options.into());
            return Next::To(OUTPUT.into());
        }
        Err(Fault::Silent(reason)) => return Next::Drop(reason),
        Err(Fault::Told(error, reason)) => (error, reason),
    };
    if !io.is_linked(ERROR) {
        return Next::Drop(reason);
    }
    packet.set_tag(Tag(packet.tag()).with(error.number()).0);
    Next::To(ERROR)
}

/// What is wrong with a packet, and whether its sender is told.
enum Fault {
    Silent(DropReason<Ip6Input>),
    Told(IcmpError, DropReason<Ip6Input>),
}

/// Whether a packet has hop-by-hop options.
///
/// # Errors
/// Why it is dropped.
fn look_closely(frame: &[u8]) -> Result<bool, Fault> {
    let ip = frame.get(ETHERNET..).unwrap_or_default();
    let (fixed, payload) = ip.split_first_chunk::<IPV6_HEADER>().ok_or(Fault::Silent(Ip6Input::TOO_SHORT))?;
    if fixed[0] >> 4 != 6 {
        return Err(Fault::Silent(Ip6Input::VERSION));
    }
    let payload_length = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let payload = payload.get(..payload_length).ok_or(Fault::Silent(Ip6Input::BAD_LENGTH))?;
    let source = Ipv6Addr::from_octets(std::array::from_fn(|at| fixed[8 + at]));
    let destination_is_multicast = fixed[24] == 0xff;
    if source.is_multicast() || source.is_loopback() || source.to_ipv4_mapped().is_some() {
        return Err(Fault::Silent(Ip6Input::BAD_SOURCE));
    }
    if fixed[6] != HOP_BY_HOP {
        return Ok(false);
    }
    // A jumbogram has a payload length of 0 and options (RFC 2675), for which no link here is long enough.
    if payload_length == 0 {
        return Err(Fault::Silent(Ip6Input::BAD_LENGTH));
    }
    match check_options(payload, IPV6_HEADER, &[ROUTER_ALERT], destination_is_multicast) {
        Ok(()) => Ok(true),
        Err(BadOptions::Silent) => Err(Fault::Silent(Ip6Input::BAD_OPTIONS)),
        Err(BadOptions::Told(error)) => Err(Fault::Told(error, Ip6Input::BAD_OPTIONS)),
    }
}

/// The kind of the hop-by-hop option that is known besides padding: Router Alert (RFC 2711).
const ROUTER_ALERT: u8 = 5;

impl Configure for Ip6Input {
    const NAME: &'static str = "ip6-input";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Rows(vec![BenchRow { keys: String::new(), ..row("ip6", Behind::EthernetInput) }])
    }

    fn configure(_: Config, _: &Context) -> Result<Ip6Input, SettingError> {
        Ok(Ip6Input { next_vectors: NextVectors::new(), columns: Columns::new() })
    }
}

//! `ip4-input`: checks IPv4 headers.
//!
//! There are three versions of one decision, which property tests hold together: `check` looks at the headers of a batch
//! in columns, `check_each` at those of a few packets one by one, and `judge` decides with care about all that is not
//! a usual header.

use bellows_common::headers::{ETHERNET, cut_trailer};
use bellows_common::ipv4_options::{FIXED_HEADER, Ipv4Option, kind, options};
use bellows_common::nexts::{Next, NextVectors};
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, DropReason, Io, Port, Ports, counters};
use bellows_packet::{Frames, Packet};
use bellows_sys::simd::{Loop, Simd};
use bellows_vrf::{IcmpError, Reason, Tag};
use bellows_wire::Sum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forwarding::{BATCH, Columns, FEW, LookAhead, STEP, UNUSUAL, USUAL, load_u32, load_words, usual_if};
use crate::router_bench::{Behind, row};

/// Checks IPv4 headers as RFC 1812, section 5.2.2, demands, and drops packets that a router must not forward.
///
/// Checked are the version, the lengths, the header's checksum, the fragment offset, the options, and
/// that the source is an address of one host. What is behind a packet in its frame is removed: padding, and trailers of
/// the link. Packets with options go to `options`, or to `output` if that is not linked;
/// those with a source route are refused (RFC 7126, section 4.3). Packets whose sender is to be told why they are dropped
/// go to `error`, if it is linked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// What becomes of the header's checksum.
    pub checksum: Checksum,
}

/// What becomes of a header's checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Checksum {
    /// It is verified.
    #[default]
    Verify,
    /// It is taken for correct, because the interface has verified it.
    Trusted,
}

/// Checks IPv4 headers.
pub struct Ip4Input {
    checksum: Checksum,
    next_vectors: NextVectors,
    columns: Box<Columns>,
}

counters! { Ip4Input;
    drop TOO_SHORT = "too_short", "packets without a whole IPv4 header, or with a total length below it";
    drop BAD_LENGTH = "bad_length", "packets that end before their total length";
    drop VERSION = "version", "packets that are not of version 4";
    drop HEADER_TOO_SHORT = "hdr_too_short", "packets with a header length below 20 bytes";
    drop BAD_CHECKSUM = "bad_checksum", "packets with a wrong header checksum";
    drop FRAGMENT_OFFSET_ONE = "fragment_offset_one", "fragments at offset 8, which can hide a TCP header (RFC 1858)";
    drop BAD_SOURCE = "src_martian", "packets whose source is not one host: multicast, broadcast, loopback, 0/8, 240/4";
    drop SOURCE_ROUTE = "source_route", "packets with a source route, if `error` is not linked";
    drop BAD_OPTIONS = "bad_options", "packets whose options do not fit into the header, if `error` is not linked";
    count OPTIONS = "options", "packets with options";
}

/// The places of the outputs.
const OUTPUT: usize = 0;
const ERROR: usize = 1;
const OPTIONS: usize = 2;

impl App for Ip4Input {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "IPv4 packets behind an Ethernet header")]);
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("output", "packets to look up"),
        Port::optional("error", "packets whose sender is to be told"),
        Port::optional("options", "packets with options, for `ip4-options`"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 8;

    fn push(&mut self, io: &Io<Self>) {
        self.next_vectors.resize(io.outputs());
        let mut input = io.input(0);
        let (packets, ahead) = (input.packets(), io.prefetch());
        let numbers = self.next_vectors.nexts(packets.len());
        let is_longer = match self.checksum {
            Checksum::Verify => check::<true>(Simd::chosen(), &mut self.columns, packets, ahead, numbers),
            Checksum::Trusted => check::<false>(Simd::chosen(), &mut self.columns, packets, ahead, numbers),
        };
        if is_longer {
            input.packets_mut().iter_mut().for_each(cut_trailer);
        }
        let verifies = self.checksum == Checksum::Verify;
        self.next_vectors.send_all(io, 0, input, |packet| judge(io, packet, verifies));
    }
}

/// Bytes of an Ethernet and an IPv4 header.
const HEADERS: usize = ETHERNET + 20;

/// Numbers packets by whether their headers are usual and right. Returns whether any may have bytes behind it. Hot.
pub(crate) fn check<const VERIFY: bool>(
    simd: Simd,
    columns: &mut Columns,
    packets: &[Packet],
    ahead: usize,
    numbers: &mut [u16],
) -> bool {
    simd.run(Check::<VERIFY> { columns, packets, ahead, numbers })
}

struct Check<'p, const VERIFY: bool> {
    columns: &'p mut Columns,
    packets: &'p [Packet],
    ahead: usize,
    numbers: &'p mut [u16],
}

impl<const VERIFY: bool> Loop for Check<'_, VERIFY> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        let Check { columns, packets, ahead, numbers } = self;
        let mut is_longer = false;
        let mut look_ahead = LookAhead::begin(packets, ahead, Packet::prefetch);
        for (packets, numbers) in packets.chunks(BATCH).zip(numbers.chunks_mut(BATCH)) {
            // One by one, a few are quicker.
            let frames = (packets.len() > FEW).then(|| Frames::with_lengths(packets, &mut columns.lengths));
            let Some(frames) = frames.flatten() else {
                is_longer |= check_each::<VERIFY>(packets, numbers);
                continue;
            };
            read(&frames, &mut look_ahead, columns);
            is_longer |=
                columns.number(numbers, |row, word, length| usual_if(are_right::<VERIFY>(row, word, length)), behind);
        }
        is_longer
    }
}

/// Reads headers into columns. Hot.
#[inline(always)]
pub(crate) fn read(frames: &Frames<'_, [u8; HEADERS]>, look_ahead: &mut LookAhead<'_>, columns: &mut Columns) {
    let rows = columns.rows.chunks_mut(STEP).zip(columns.words.chunks_mut(STEP));
    for (frames, (rows, destinations)) in frames.chunks(STEP).zip(rows) {
        look_ahead.step(Packet::prefetch);
        for (header, (row, destination)) in frames.iter().zip(rows.iter_mut().zip(destinations)) {
            (*row, *destination) = words_of(header);
        }
    }
}

/// As [`check`], packet by packet.
#[inline(never)]
fn check_each<const VERIFY: bool>(packets: &[Packet], numbers: &mut [u16]) -> bool {
    let mut is_longer = false;
    for (packet, number) in packets.iter().zip(numbers) {
        let length = packet.len() as u32;
        let is_right = |header| {
            let (row, destination) = words_of(header);
            is_longer |= behind(row, length) != 0;
            are_right::<VERIFY>(row, destination, length)
        };
        *number = if packet.bytes().first_chunk().is_some_and(is_right) { USUAL } else { UNUSUAL };
    }
    is_longer
}

/// The total length in the words of a header. Hot.
#[inline(always)]
fn total_length(first: u32) -> u32 {
    (first >> 8 & 0xff00) | first >> 24
}

/// Bytes of a frame behind a packet whose header is right. Hot.
#[inline(always)]
pub(crate) fn behind([first, ..]: [u32; 4], length: u32) -> u32 {
    length.wrapping_sub(ETHERNET as u32 + total_length(first))
}

/// The words of an IPv4 header. Hot.
#[inline(always)]
fn words_of(header: &[u8; HEADERS]) -> ([u32; 4], u32) {
    (load_words(header, ETHERNET), load_u32(header, ETHERNET + 16))
}

/// Whether the words of a header without options are right. There is no branch in it. Hot.
#[inline(always)]
pub(crate) fn are_right<const VERIFY: bool>(row: [u32; 4], destination: u32, length: u32) -> bool {
    let [first, second, third, source] = row;
    let total_length = total_length(first);
    // The offset, without the flags, is 1.
    let hides_tcp = second & 0xff1f_0000 == 0x0100_0000;
    let network = source & 0xff;
    let is_right = (first & 0xff == 0x45)
        & (total_length.wrapping_sub(20) <= length.wrapping_sub(HEADERS as u32))
        & !hides_tcp
        & (network.wrapping_sub(1) < 223)
        & (network != 127);
    if VERIFY { is_right & has_right_checksum([first, second, third, source, destination]) } else { is_right }
}

/// Whether the words of a header add up to all ones (RFC 1071). Hot.
#[inline(always)]
fn has_right_checksum(words: [u32; 5]) -> bool {
    let low = words.iter().fold(0, |sum: u32, &word| sum.wrapping_add(word));
    let high = words.iter().fold(0, |sum, word| sum + (word >> 16));
    // Without the upper halves, the sum of the words is that of the lower halves.
    let sum = low.wrapping_sub(high << 16) + high;
    // The sum of ten 16-bit words, of which the version is not 0: all ones are 0xffff, or a multiple of it.
    let sum = (sum & 0xffff) + (sum >> 16);
    sum == 0xffff
}

/// Whether a header without options is right.
#[cfg(test)]
fn is_right<const VERIFY: bool>(header: &[u8; HEADERS], length: usize) -> bool {
    let (row, destination) = words_of(header);
    are_right::<VERIFY>(row, destination, length as u32)
}

/// What becomes of a packet whose header is not a usual one that is right.
fn judge(io: &Io<Ip4Input>, packet: &mut Packet, verifies: bool) -> Next<Ip4Input> {
    let header = match header_of(packet, verifies) {
        Ok(header) => header,
        Err(reason) => return Next::Drop(reason),
    };
    let has_options = header.len() > FIXED_HEADER;
    let found = options(header).find_map(fault);
    match found {
        Some((_, reason)) if !io.is_linked(ERROR) => Next::Drop(reason),
        Some((error, _)) => {
            packet.set_tag(Tag(packet.tag()).with(error.number()).0);
            Next::To(ERROR)
        }
        None => {
            io.count(Ip4Input::OPTIONS, has_options.into());
            Next::To(if has_options && io.is_linked(OPTIONS) { OPTIONS } else { OUTPUT })
        }
    }
}

/// Why a packet with an option is refused.
fn fault(option: Result<Ipv4Option, usize>) -> Option<(IcmpError, DropReason<Ip4Input>)> {
    match option {
        Ok(Ipv4Option { kind: kind::LOOSE_SOURCE_ROUTE | kind::STRICT_SOURCE_ROUTE, .. }) => {
            Some((IcmpError::of(Reason::SourceRoute), Ip4Input::SOURCE_ROUTE))
        }
        Ok(_) => None,
        Err(at) => Some((IcmpError { reason: Reason::ParameterProblem, value: at as u16 }, Ip4Input::BAD_OPTIONS)),
    }
}

/// The header of a packet that deserves an answer at all.
fn header_of(packet: &Packet, verifies: bool) -> Result<&[u8], DropReason<Ip4Input>> {
    let frame = packet.bytes();
    let ip = frame.get(ETHERNET..).unwrap_or_default();
    let fixed = ip.first_chunk::<20>().ok_or(Ip4Input::TOO_SHORT)?;
    let header_length = usize::from(fixed[0] & 0xf) * 4;
    let total_length = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    let source = [fixed[12], fixed[13], fixed[14], fixed[15]];
    let destination = [fixed[16], fixed[17], fixed[18], fixed[19]];
    if fixed[0] >> 4 != 4 {
        return Err(Ip4Input::VERSION);
    }
    if header_length < 20 {
        return Err(Ip4Input::HEADER_TOO_SHORT);
    }
    if total_length < header_length {
        return Err(Ip4Input::TOO_SHORT);
    }
    if total_length > ip.len() {
        return Err(Ip4Input::BAD_LENGTH);
    }
    let header = &ip[..header_length];
    if verifies && Sum::new().add_bytes(header).finish() != 0 {
        return Err(Ip4Input::BAD_CHECKSUM);
    }
    if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x1fff == 1 {
        return Err(Ip4Input::FRAGMENT_OFFSET_ONE);
    }
    // A host that asks for its address has none yet (RFC 2131, section 4.1).
    let asks_for_address = source == [0; 4] && destination == [255; 4];
    if matches!(source[0], 0 | 127 | 224..) && !asks_for_address {
        return Err(Ip4Input::BAD_SOURCE);
    }
    Ok(header)
}

impl Configure for Ip4Input {
    const NAME: &'static str = "ip4-input";
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Rows(vec![BenchRow { keys: String::new(), ..row("ip4", Behind::EthernetInput) }])
    }

    fn configure(config: Config, _: &Context) -> Result<Ip4Input, SettingError> {
        Ok(Ip4Input { checksum: config.checksum, next_vectors: NextVectors::new(), columns: Columns::new() })
    }
}

#[cfg(test)]
mod tests {
    use bellows_rig::Rig;
    use bellows_wire::ipv4::Ipv4Header;
    use proptest::prelude::*;

    use super::*;

    /// A packet behind an Ethernet header, with `payload` bytes of payload.
    fn frame(payload: usize) -> Vec<u8> {
        let mut frame = vec![0; HEADERS + payload];
        let header = Ipv4Header {
            src: [192, 0, 2, 1].into(),
            dst: [198, 51, 100, 1].into(),
            protocol: bellows_wire::IpProtocol::UDP,
            ttl: 64,
            traffic_class: 0,
            identification: 7,
            dont_fragment: false,
        };
        header.emit(&mut frame[ETHERNET..]).unwrap();
        frame
    }

    #[test]
    fn what_is_behind_a_packet_is_removed() {
        for (count, trailer) in [(1, 6), (300, 6), (300, 1466)] {
            let mut rig =
                Rig::new(Ip4Input::configure(Config::default(), &Context::default()).unwrap(), &["input"], &["output"]);
            let frames: Vec<Vec<u8>> = (0..count).map(|payload| frame(payload % 50)).collect();
            // One alone among others, too.
            let is_longer = |at: usize| count == 1 || trailer != 6 || at == 201;
            let sent = frames
                .iter()
                .enumerate()
                .map(|(at, frame)| [&frame[..], &vec![0xee; if is_longer(at) { trailer } else { 0 }]].concat());
            rig.send("input", sent);
            rig.settle();
            assert_eq!(rig.received("output"), frames);
        }
    }

    /// The frame with other bytes in the header, and with the checksum of that.
    fn with(change: impl FnOnce(&mut [u8])) -> Vec<u8> {
        let mut frame = frame(26);
        let ip = &mut frame[ETHERNET..];
        change(ip);
        ip[10..12].fill(0);
        let length = ip.len().min(usize::from(ip[0] & 0xf) * 4);
        let checksum = Sum::new().add_bytes(&ip[..length]).finish();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    /// The drops of one packet: none if it passes.
    fn fate(config: Config, frame: &[u8], error: bool) -> (Vec<String>, usize, Vec<IcmpError>) {
        let app = Ip4Input::configure(config, &Context::default()).unwrap();
        let outputs: &[&str] = if error { &["output", "error"] } else { &["output"] };
        let mut rig = Rig::new(app, &["input"], outputs);
        rig.send("input", [frame]);
        rig.settle();
        let counts = rig.counts();
        let drops = counts.drops.iter().filter(|(_, count)| **count > 0).map(|(name, _)| name.to_string()).collect();
        let errors = if error { rig.received_packets("error") } else { Vec::new() };
        let errors = errors.iter().map(|packet| IcmpError::from_number(Tag(packet.tag()).number())).collect();
        (drops, rig.received("output").len(), errors)
    }

    #[test]
    fn what_a_router_must_not_forward_is_dropped_by_name() {
        let options = |bytes: &'static [u8]| {
            move |ip: &mut [u8]| {
                ip[0] = 0x40 | (5 + bytes.len() / 4) as u8;
                ip[20..20 + bytes.len()].copy_from_slice(bytes);
            }
        };
        let cases: Vec<(&str, Vec<u8>)> = vec![
            ("too_short", frame(0)[..HEADERS - 1].to_vec()),
            ("too_short", Vec::new()),
            ("too_short", with(|ip| ip[2..4].copy_from_slice(&19u16.to_be_bytes()))),
            ("bad_length", with(|ip| ip[2..4].copy_from_slice(&47u16.to_be_bytes()))),
            ("version", with(|ip| ip[0] = 0x65)),
            ("hdr_too_short", with(|ip| ip[0] = 0x44)),
            ("bad_length", frame(26)[..HEADERS].to_vec()),
            ("fragment_offset_one", with(|ip| ip[7] = 1)),
            ("fragment_offset_one", with(|ip| ip[6..8].copy_from_slice(&0x2001u16.to_be_bytes()))),
            ("src_martian", with(|ip| ip[12] = 0)),
            ("src_martian", with(|ip| ip[12] = 127)),
            ("src_martian", with(|ip| ip[12] = 224)),
            ("src_martian", with(|ip| ip[12] = 255)),
            ("source_route", with(options(&[131, 3, 4, 0]))),
            ("source_route", with(options(&[1, 137, 3, 4]))),
            ("bad_options", with(options(&[7, 9, 4, 0]))),
            ("bad_options", with(options(&[7, 1, 4, 0]))),
            ("bad_options", with(options(&[1, 1, 1, 7]))),
            ("bad_checksum", {
                let mut frame = frame(26);
                frame[ETHERNET + 11] ^= 1;
                frame
            }),
        ];
        for (name, frame) in cases {
            let (drops, passed, _) = fate(Config::default(), &frame, false);
            assert_eq!((drops, passed), (vec![name.to_owned()], 0), "{frame:02x?}");
        }
    }

    #[test]
    fn senders_are_told_if_anybody_tells_them() {
        let cases = [
            (
                with(|ip| {
                    ip[0] = 0x46;
                    ip[20..24].copy_from_slice(&[1, 1, 131, 2]);
                }),
                IcmpError::of(Reason::SourceRoute),
            ),
            (
                with(|ip| {
                    ip[0] = 0x46;
                    ip[20..24].copy_from_slice(&[1, 7, 200, 4]);
                }),
                IcmpError { reason: Reason::ParameterProblem, value: 22 },
            ),
        ];
        for (frame, error) in cases {
            assert_eq!(fate(Config::default(), &frame, true), (vec![], 0, vec![error]));
        }
    }

    #[test]
    fn unusual_packets_that_are_right_pass() {
        for frame in [
            frame(0),
            // A packet for the router itself may have no hop left (RFC 1812, section 4.2.2.9).
            with(|ip| ip[8] = 0),
            [frame(0), vec![0; 26]].concat(),
            with(|ip| ip[6..8].copy_from_slice(&0x2002u16.to_be_bytes())),
            with(|ip| ip[12..20].copy_from_slice(&[0, 0, 0, 0, 255, 255, 255, 255])),
            with(|ip| {
                ip[0] = 0x47;
                ip[20..28].copy_from_slice(&[148, 4, 0, 0, 7, 3, 4, 0]);
            }),
        ] {
            assert_eq!(fate(Config::default(), &frame, true), (vec![], 1, vec![]), "{frame:02x?}");
        }
    }

    #[test]
    fn a_trusted_checksum_is_not_looked_at() {
        let mut wrong = frame(26);
        wrong[ETHERNET + 11] ^= 1;
        let (drops, passed, _) = fate(Config { checksum: Checksum::Trusted }, &wrong, false);
        assert_eq!((drops.len(), passed), (0, 1));
    }

    proptest! {
        #[test]
        fn the_quick_check_passes_what_the_thorough_one_passes(
            changes in prop::collection::vec((0usize..20, any::<u8>()), 0..4),
            fill in any::<bool>(),
            length in HEADERS..80,
        ) {
            let mut bytes = frame(length - HEADERS);
            for (at, byte) in changes {
                bytes[ETHERNET + at] = byte;
            }
            let ip = &mut bytes[ETHERNET..];
            if fill {
                ip[10..12].fill(0);
                let checksum = Sum::new().add_bytes(&ip[..20]).finish();
                ip[10..12].copy_from_slice(&checksum.to_be_bytes());
            }
            let packet = Packet::from_bytes(&bytes).unwrap();
            let thorough = header_of(&packet, true).is_ok_and(|header| header.len() == 20);
            // The exception for hosts without an address is left to the thorough check.
            let quick = is_right::<true>(bytes.first_chunk().unwrap(), length);
            prop_assert_eq!(quick, thorough && bytes[ETHERNET + 12] != 0);
        }
    }
}

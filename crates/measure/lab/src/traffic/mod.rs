//! The packets that a measurement sends: sizes, protocols, or the frames of a capture.
//!
//! ```
//! use bellows_lab::traffic::Traffic;
//!
//! let traffic: Traffic = "tcp:80,udp:15,icmp:3,arp:2".parse()?;
//! let frames = traffic.frames()?;
//! assert_eq!(frames, traffic.frames()?, "the same every time");
//! # Ok::<(), bellows_lab::traffic::TrafficError>(())
//! ```

mod protocols;

use std::fmt::{self, Display};
use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bellows_capture::{LinkType, Reader};
use bellows_packet::LARGE_DATA_ROOM;
use bellows_sys::FileError;
use bellows_wire::{EtherType, EthernetHeader, FrameError, MacAddr, Sum, UdpFrame};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use protocols::{FrameProtocol, IpVersion};

/// The kinds of traffic and their syntax, for help texts.
pub const HELP: &str = "\
Traffic:
  60
      UDP over IPv4 in frames of 60 bytes, one flow
  64:7,570:4,1518:1
      the same in several sizes with weights (default 1), in random order
  imix
      the simple IMIX: 60:7,590:4,1514:1
  64-1518
      the same in up to 1024 sizes spread evenly over a range, in random order
  may-fragment:1400-1514
      sizes as above, in packets that routers may fragment (DF is clear)
  ipv4, ipv6
      UDP in frames of 64 bytes, 1024 flows over IPv4 or over IPv6
  ethernet
      frames of 60 bytes that are not IP, one flow
  stations:1024
      the same between so many stations, 2 to 65536, in random order: half of them send, from 02:00:00:00:00:00 on, and \
the others receive, from 02:00:00:01:00:00 on
  protocols
      tcp:80,udp:15,icmp:3,arp:2: 64 flows over IPv4 and IPv6, with typical sizes for each protocol and valid checksums; \
other weights or fewer protocols are written alike
  FILE
      the first 65536 frames of a capture file, pcap or pcapng, plain or compressed; write ./ before a name without a \
dot or a slash

Sizes count the whole frame without the frame check sequence, 42 to 65549 bytes. Traffic is the same every time.";

/// The approximate number of frames to which a list of sizes or protocols is repeated before it is shuffled: enough
/// that a processor does not learn their order.
const MIN_FRAMES: usize = 1_024;

/// The maximum number of stations.
const MAX_STATIONS: u32 = 1 << 16;

/// The maximum sum of weights.
const MAX_WEIGHTS: u64 = 4_096;

/// The maximum number of frames to read from a capture, and the maximum bytes.
const MAX_CAPTURED: usize = 65_536;
const MAX_BYTES: usize = 256 << 20;

/// The kinds of numbers, for messages.
const SIZE: &str = "size; give 42 to 65549 bytes";
const STATIONS: &str = "number of stations; give 2 to 65536";
const WEIGHT: &str = "weight; give a whole number above 0";

const IMIX: [(u32, u32); 3] = [(60, 7), (590, 4), (1514, 1)];

const PROTOCOLS: [(FrameProtocol, u32); 4] =
    [(FrameProtocol::Tcp, 80), (FrameProtocol::Udp, 15), (FrameProtocol::Icmp, 3), (FrameProtocol::Arp, 2)];

/// A kind of traffic. [`HELP`] describes its text form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Traffic {
    text: String,
    kind: TrafficKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TrafficKind {
    /// Sizes with their weights.
    Sizes(Vec<(u32, u32)>),
    /// A range of sizes.
    Range(u32, u32),
    /// Protocols with their weights.
    Protocols(Vec<(FrameProtocol, u32)>),
    /// Sizes, alone or as a range, of packets that may be fragmented.
    MayFragment(Box<TrafficKind>),
    /// Small frames that are not IP.
    Ethernet,
    /// Small frames that are not IP, between as many stations.
    Stations(u32),
    /// Small frames of many flows, over one version of IP.
    Flows(IpVersion),
    /// The frames of a file.
    Capture(PathBuf),
}

/// Why traffic is invalid.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// The text has an unknown form.
    #[error(
        "`{0}` is not a kind of traffic; give a size (60), sizes with weights (64:7,570:4,1518:1 or imix), a range of \
         sizes (64-1518), frames that are not IP (ethernet, or stations:1024), flows over one version of IP (ipv4 or ipv6), protocols \
         with weights (tcp:80,udp:20 or protocols), or a capture file (./{0})"
    )]
    Unknown(String),
    /// A frame cannot have this size.
    #[error(transparent)]
    Size(#[from] FrameError),
    /// The file of a capture cannot be read.
    #[error(transparent)]
    File(FileError),
    /// A number is invalid or out of range.
    #[error("`{0}` in `{1}` is not a {2}")]
    Number(String, String, &'static str),
    /// The weights are too large.
    #[error("the weights in `{0}` add up to {1}; give weights that add up to at most {MAX_WEIGHTS}")]
    Weights(String, u64),
    /// The range is empty.
    #[error("the range `{0}` ends before it begins; give the smaller size first")]
    Range(String),
    /// A protocol is unknown.
    #[error("`{0}` in `{1}` is not a known protocol; there are tcp, udp, icmp and arp")]
    Protocol(String, String),
    /// The capture cannot be read.
    #[error(transparent)]
    Capture(#[from] bellows_capture::Error),
    /// The capture does not contain Ethernet frames.
    #[error("{0}: its packets are not Ethernet frames (link type {1}); give a capture of an Ethernet interface")]
    LinkType(String, u32),
    /// The capture is empty.
    #[error("{0}: the capture has no packet of up to {LARGE_DATA_ROOM} bytes; give another capture")]
    Empty(String),
    /// The headers do not fit into their frame.
    #[error("a frame cannot be built: {0}")]
    Headers(#[from] bellows_wire::Error),
}

impl Display for Traffic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.text)
    }
}

impl From<Traffic> for String {
    fn from(traffic: Traffic) -> String {
        traffic.text
    }
}

impl TryFrom<String> for Traffic {
    type Error = TrafficError;

    fn try_from(text: String) -> Result<Traffic, TrafficError> {
        text.parse()
    }
}

impl FromStr for Traffic {
    type Err = TrafficError;

    /// Does not check yet whether a file exists.
    fn from_str(text: &str) -> Result<Traffic, TrafficError> {
        let kind = TrafficKind::parse(text)?;
        kind.check_sizes()?;
        Ok(Traffic { text: text.to_owned(), kind })
    }
}

impl TrafficKind {
    fn check_sizes(&self) -> Result<(), TrafficError> {
        match self {
            TrafficKind::Sizes(sizes) => sizes.iter().try_for_each(|(size, _)| frame(*size).map(drop)),
            TrafficKind::Range(first, last) => [first, last].into_iter().try_for_each(|size| frame(*size).map(drop)),
            TrafficKind::MayFragment(sizes) => sizes.check_sizes(),
            _ => Ok(()),
        }
    }

    fn frames(&self) -> Result<Vec<Vec<u8>>, TrafficError> {
        match self {
            TrafficKind::Sizes(sizes) if sizes.len() == 1 => sizes.iter().map(|(size, _)| frame(*size)).collect(),
            TrafficKind::Sizes(sizes) => mixed(sizes).into_iter().map(frame).collect(),
            TrafficKind::Range(first, last) => spread(*first, *last).into_iter().map(frame).collect(),
            TrafficKind::MayFragment(sizes) => Ok(sizes.frames()?.into_iter().map(without_flag).collect()),
            TrafficKind::Ethernet => Ok(vec![ethernet()?]),
            TrafficKind::Stations(count) => stations(*count),
            TrafficKind::Protocols(weights) => protocols::frames(&mixed(weights)),
            TrafficKind::Flows(version) => protocols::flows(*version),
            TrafficKind::Capture(path) => captured(path),
        }
    }

    fn parse(text: &str) -> Result<TrafficKind, TrafficError> {
        let all = |allowed: &dyn Fn(char) -> bool| text.starts_with(allowed) && text.chars().all(allowed);
        match text {
            "imix" => Ok(TrafficKind::Sizes(IMIX.to_vec())),
            "protocols" => Ok(TrafficKind::Protocols(PROTOCOLS.to_vec())),
            "ethernet" => Ok(TrafficKind::Ethernet),
            "ipv4" => Ok(TrafficKind::Flows(IpVersion::V4)),
            "ipv6" => Ok(TrafficKind::Flows(IpVersion::V6)),
            _ if let Some(sizes) = text.strip_prefix("may-fragment:") => match TrafficKind::parse(sizes) {
                Ok(sizes @ (TrafficKind::Sizes(_) | TrafficKind::Range(..))) => {
                    Ok(TrafficKind::MayFragment(Box::new(sizes)))
                }
                Ok(_) => Err(TrafficError::Unknown(text.to_owned())),
                Err(error) => Err(error),
            },
            _ if let Some(count) = text.strip_prefix("stations:") => {
                let count = number(count, text, STATIONS)?;
                let wrong = || TrafficError::Number(count.to_string(), text.to_owned(), STATIONS);
                (2..=MAX_STATIONS).contains(&count).then_some(TrafficKind::Stations(count)).ok_or_else(wrong)
            }
            _ if all(&|char| char.is_ascii_digit() || ":,".contains(char)) => {
                weighted(text, |size| number(size, text, SIZE)).map(TrafficKind::Sizes)
            }
            _ if all(&|char| char.is_ascii_digit() || char == '-') => {
                let (first, last) = text.split_once('-').unwrap_or((text, ""));
                let (first, last) = (number(first, text, SIZE)?, number(last, text, SIZE)?);
                if first > last {
                    Err(TrafficError::Range(text.to_owned()))
                } else {
                    Ok(TrafficKind::Range(first, last))
                }
            }
            _ if is_protocols(text) => {
                let unknown = |name: &str| TrafficError::Protocol(name.to_owned(), text.to_owned());
                weighted(text, |name| FrameProtocol::named(name).ok_or_else(|| unknown(name)))
                    .map(TrafficKind::Protocols)
            }
            _ if text.contains(['/', '.']) => Ok(TrafficKind::Capture(PathBuf::from(text))),
            _ => Err(TrafficError::Unknown(text.to_owned())),
        }
    }
}

/// Whether a list names at least one protocol, so that it is a list of protocols.
fn is_protocols(text: &str) -> bool {
    text.split(',').any(|item| FrameProtocol::named(item.split(':').next().unwrap_or(item)).is_some())
}

/// Parses a list of items with weights, and divides the weights by their greatest common divisor.
fn weighted<T>(text: &str, thing: impl Fn(&str) -> Result<T, TrafficError>) -> Result<Vec<(T, u32)>, TrafficError> {
    let item = |item: &str| {
        let (name, weight) = item.split_once(':').unwrap_or((item, "1"));
        Ok((thing(name)?, number(weight, text, WEIGHT)?))
    };
    let mut items = text.split(',').map(item).collect::<Result<Vec<(T, u32)>, TrafficError>>()?;
    let common = items.iter().fold(0, |common, (_, weight)| divisor(*weight, common));
    let total: u64 = items.iter().map(|(_, weight)| u64::from(*weight / common)).sum();
    if total > MAX_WEIGHTS {
        return Err(TrafficError::Weights(text.to_owned(), total));
    }
    items.iter_mut().for_each(|(_, weight)| *weight /= common);
    Ok(items)
}

/// Parses a number above 0.
fn number(digits: &str, text: &str, what: &'static str) -> Result<u32, TrafficError> {
    let number = digits.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| TrafficError::Number(digits.to_owned(), text.to_owned(), what))
}

/// The greatest common divisor (Euclid).
fn divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { divisor(other, one % other) }
}

impl Traffic {
    /// The frames in the order in which they are repeated; at least one.
    ///
    /// # Errors
    /// See [`TrafficError`].
    pub fn frames(&self) -> Result<Vec<Vec<u8>>, TrafficError> {
        self.kind.frames()
    }
}

/// A random number generator with a fixed seed.
fn random() -> Rng {
    Rng::with_seed(0x0be1_1035)
}

/// Each item repeated by its weight, to about [`MIN_FRAMES`] items, in random order.
fn mixed<T: Copy>(weights: &[(T, u32)]) -> Vec<T> {
    let once = || weights.iter().flat_map(|&(thing, weight)| std::iter::repeat_n(thing, weight as usize));
    let total = once().count().max(1);
    let mut things: Vec<T> = (0..(MIN_FRAMES / total).max(1)).flat_map(|_| once()).collect();
    random().shuffle(&mut things);
    things
}

/// Sizes spread evenly from `first` to `last`, in random order.
fn spread(first: u32, last: u32) -> Vec<u32> {
    let count = (last - first + 1).min(MIN_FRAMES as u32);
    let step = f64::from(last - first) / f64::from((count - 1).max(1));
    let mut sizes: Vec<u32> = (0..count).map(|index| first + (f64::from(index) * step).round() as u32).collect();
    random().shuffle(&mut sizes);
    sizes
}

/// A UDP frame over IPv4, between addresses that RFC 2544 reserves for benchmarks.
fn frame(size: u32) -> Result<Vec<u8>, TrafficError> {
    let headers = UdpFrame {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        vlan: None,
        src: IpAddr::from([198, 18, 0, 1]),
        dst: IpAddr::from([198, 19, 0, 1]),
        src_port: 49_152,
        dst_port: 9,
        ttl: 64,
    };
    let pattern = |payload: &mut [u8]| payload.iter_mut().zip(0u32..).for_each(|(byte, index)| *byte = index as u8);
    Ok(headers.build(size as usize, pattern)?)
}

/// A frame of [`frame`] without the flag "don't fragment".
fn without_flag(mut frame: Vec<u8>) -> Vec<u8> {
    // The words of flags and of the checksum.
    const FLAGS: usize = 14 + 6;
    const CHECKSUM: usize = 14 + 10;
    frame[FLAGS] &= !0x40;
    frame[CHECKSUM..CHECKSUM + 2].fill(0);
    let checksum = Sum::new().add_bytes(&frame[14..34]).finish();
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// A frame of the EtherType for experiments (IEEE 802).
fn ethernet() -> Result<Vec<u8>, TrafficError> {
    let mut frame = frame(60)?;
    EthernetHeader {
        dst: MacAddr([2, 0, 0, 0, 0, 2]),
        src: MacAddr([2, 0, 0, 0, 0, 1]),
        ether_type: EtherType(0x88b5),
    }
    .emit(&mut frame)?;
    Ok(frame)
}

/// Frames from one half of the stations to the other half. Each sends and receives as often as any other of its half.
fn stations(count: u32) -> Result<Vec<Vec<u8>>, TrafficError> {
    let receivers = count / 2;
    let mut random = random();
    let mut shuffled = |first: u32, count: u32| {
        let mut stations: Vec<u32> = (first..first + count).collect();
        random.shuffle(&mut stations);
        stations
    };
    let senders = shuffled(0, count - receivers);
    let receivers = shuffled(MAX_STATIONS, receivers);
    let pairs = senders.iter().cycle().zip(receivers.iter().cycle());
    let address = |number: u32| {
        let [a, b, c, d] = number.to_be_bytes();
        MacAddr([2, 0, a, b, c, d])
    };
    let usual = ethernet()?;
    let frame = |(sender, receiver): (&u32, &u32)| {
        let mut frame = usual.clone();
        let header = EthernetHeader { dst: address(*receiver), src: address(*sender), ether_type: EtherType(0x88b5) };
        header.emit(&mut frame).map(|_| frame).map_err(TrafficError::from)
    };
    pairs.take(MIN_FRAMES.max(senders.len())).map(frame).collect()
}

/// The first frames of a file, except those that do not fit into a packet.
fn captured(path: &Path) -> Result<Vec<Vec<u8>>, TrafficError> {
    let file = File::open(path).map_err(|error| TrafficError::File(FileError::reading(path, &error)))?;
    let mut reader = Reader::from_file(file, path.to_string_lossy())?;
    let mut frames = Vec::new();
    let mut bytes = 0;
    while frames.len() < MAX_CAPTURED && bytes < MAX_BYTES {
        let Some(record) = reader.next_record()? else { break };
        let interface = record.interface as usize;
        if (1..=LARGE_DATA_ROOM).contains(&record.data.len()) {
            bytes += record.data.len();
            frames.push(record.data.to_vec());
        }
        let link_type = reader.interfaces().get(interface).map_or(LinkType::ETHERNET, |interface| interface.link_type);
        if link_type != LinkType::ETHERNET {
            return Err(TrafficError::LinkType(path.display().to_string(), link_type.0));
        }
    }
    if frames.is_empty() { Err(TrafficError::Empty(path.display().to_string())) } else { Ok(frames) }
}

#[cfg(test)]
mod tests;

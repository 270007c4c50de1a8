//! The common parts of all capture formats: records, interfaces, link types, resolutions.

use std::fmt;

/// A captured packet. The reader's records borrow its buffer until the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The captured bytes, from the link-layer header on.
    pub data: &'a [u8],
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    pub timestamp: u64,
    /// Length of the packet on the wire; larger than `data.len()` if the capture truncated it. It may be smaller in a
    /// damaged file, and is then that of the file, as for tcpdump; a writer makes it no smaller.
    pub original_length: u32,
    /// Index into [`Reader::interfaces`](crate::Reader::interfaces). Always 0 in pcap files.
    pub interface: u32,
}

/// A capture interface. A pcap file has exactly one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The type of the outermost header of each packet.
    pub link_type: LinkType,
    /// The maximum number of bytes kept of a packet, according to the file; 0 if there was no limit. Some files contain
    /// longer packets anyway, which are read completely.
    pub snap_length: u32,
    /// The unit of timestamps in the file.
    pub resolution: TimestampResolution,
    /// The six bits above the link type in a pcap file, unchanged: 1 if the length of a frame check sequence is given,
    /// and from the third bit on that length in units of 2 bytes. See [`fcs_length`](Self::fcs_length).
    pub link_flags: u8,
    /// The interface's name, such as `eth0`, if the file has one; cut after 1,024 bytes.
    pub name: Option<String>,
}

impl Interface {
    /// An interface without name or snap length, with timestamps in nanoseconds.
    pub fn new(link_type: LinkType) -> Self {
        Self { link_type, snap_length: 0, resolution: TimestampResolution::NANOSECONDS, link_flags: 0, name: None }
    }

    /// How many of a record's bytes libpcap reads: it takes none beyond the file's snap length, and none for no limit.
    pub fn visible(&self, length: usize) -> usize {
        match i32::try_from(self.snap_length) {
            Ok(1..) => length.min(self.snap_length as usize),
            _ => length,
        }
    }

    /// Bytes of frame check sequence at the end of each packet, if given in the file.
    pub fn fcs_length(&self) -> Option<u8> {
        (self.link_flags & 1 != 0).then_some((self.link_flags >> 2 & 15) * 2)
    }

    /// Flags for a frame check sequence of `length` bytes; `None` if pcap cannot express this length.
    pub(crate) fn flags_of_fcs_length(length: u8) -> u8 {
        if length.is_multiple_of(2) && length < 32 { 1 | (length / 2) << 2 } else { 0 }
    }
}

/// A `LINKTYPE_` number from [the registry](https://www.tcpdump.org/linktypes.html).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkType(pub u32);

impl LinkType {
    /// BSD loopback: a 4-byte address family in the byte order of the capturing machine.
    pub const NULL: Self = Self(0);
    /// Ethernet.
    pub const ETHERNET: Self = Self(1);
    /// IPv4 or IPv6 without a link-layer header.
    pub const RAW: Self = Self(101);
    /// Linux "cooked" capture.
    pub const LINUX_SLL: Self = Self(113);
    /// IPv4 without a link-layer header.
    pub const IPV4: Self = Self(228);
    /// IPv6 without a link-layer header.
    pub const IPV6: Self = Self(229);
    /// D-Bus messages.
    pub const DBUS: Self = Self(231);
    /// USB packets as USBPcap captures them.
    pub const USBPCAP: Self = Self(249);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);
    /// Elektrobit High Speed Capture and Replay.
    pub const EBHSCR: Self = Self(279);

    /// The maximum length of a record of this link type. These are libpcap's limits, so that a file is accepted here
    /// exactly if tcpdump accepts it.
    pub fn max_length(self) -> u32 {
        match self {
            Self::DBUS => 128 << 20,
            Self::EBHSCR => 8 << 20,
            Self::USBPCAP => 1 << 20,
            _ => 256 << 10,
        }
    }

    fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NULL => "BSD loopback",
            Self::ETHERNET => "Ethernet",
            Self::RAW => "raw IP",
            Self::LINUX_SLL => "Linux cooked",
            Self::IPV4 => "raw IPv4",
            Self::IPV6 => "raw IPv6",
            Self::DBUS => "D-Bus",
            Self::USBPCAP => "USBPcap",
            Self::LINUX_SLL2 => "Linux cooked v2",
            Self::EBHSCR => "EBHSCR",
            _ => return None,
        })
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "link type {}", self.0),
        }
    }
}

/// The unit of timestamps in a file, as a fraction of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimestampResolution {
    /// 10 to the minus this power; at most 19.
    PowerOfTen(u8),
    /// 2 to the minus this power; at most 63.
    PowerOfTwo(u8),
}

impl TimestampResolution {
    /// The resolution of classic pcap files, and the default of pcapng interfaces.
    pub const MICROSECONDS: Self = Self::PowerOfTen(6);
    /// The unit of [`Record::timestamp`].
    pub const NANOSECONDS: Self = Self::PowerOfTen(9);
}

impl fmt::Display for TimestampResolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PowerOfTen(0) | Self::PowerOfTwo(0) => f.write_str("s"),
            Self::PowerOfTen(3) => f.write_str("ms"),
            Self::PowerOfTen(6) => f.write_str("µs"),
            Self::PowerOfTen(9) => f.write_str("ns"),
            Self::PowerOfTen(power) => write!(f, "10^-{power} s"),
            Self::PowerOfTwo(power) => write!(f, "2^-{power} s"),
        }
    }
}

/// Byte order of the numbers in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Endianness {
    /// Least significant byte first: the default for writing.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Classic pcap.
    Pcap {
        /// Byte order of the file.
        endianness: Endianness,
        /// Microseconds or nanoseconds.
        resolution: TimestampResolution,
        /// Whether records have the longer headers of the "modified" format (magic `a1b2cd34`).
        modified: bool,
    },
    /// pcapng. Each [`Interface`] has its own resolution.
    Pcapng {
        /// Byte order of the current section.
        endianness: Endianness,
    },
}

impl Format {
    /// Byte order of the file, or of the current section of a pcapng file.
    pub fn endianness(self) -> Endianness {
        match self {
            Self::Pcap { endianness, .. } | Self::Pcapng { endianness } => endianness,
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pcap { resolution, modified: false, .. } => write!(f, "pcap ({resolution})")?,
            Self::Pcap { resolution, modified: true, .. } => write!(f, "modified pcap ({resolution})")?,
            Self::Pcapng { .. } => f.write_str("pcapng")?,
        }
        match self.endianness() {
            Endianness::Little => f.write_str(", little-endian"),
            Endianness::Big => f.write_str(", big-endian"),
        }
    }
}

/// The compression of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Uncompressed.
    None,
    /// gzip (RFC 1952), including several consecutive members.
    Gzip,
    /// Zstandard (RFC 8878), including several consecutive frames, and skippable frames.
    Zstd,
}

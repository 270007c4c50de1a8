//! Errors of capture files.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::format::{Compression, LinkType};

/// An error with the name of its file. It is one pointer wide, so that it costs the hot path nothing.
#[derive(Debug)]
pub struct Error(Box<Detail>);

#[derive(Debug)]
struct Detail {
    file: Arc<str>,
    kind: ErrorKind,
}

impl Error {
    pub(crate) fn new(file: &Arc<str>, kind: impl Into<ErrorKind>) -> Self {
        Self(Box::new(Detail { file: file.clone(), kind: kind.into() }))
    }

    /// The file's name, as given to the reader or writer.
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// The kind of error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The offset in the (decompressed) file, in bytes: the start of the record, block or header concerned. `None` if
    /// the error has no place in the file: for example, the file cannot be opened.
    pub fn offset(&self) -> Option<u64> {
        use ErrorKind::*;
        match self.0.kind {
            Read { offset, .. }
            | Decompress { offset, .. }
            | Truncated { offset, .. }
            | RecordTooLong { offset, .. }
            | Block { offset, .. }
            | Write { offset, .. } => Some(offset),
            Empty | UnknownFormat { .. } | Version { .. } => Some(0),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.file, self.0.kind)
    }
}

impl std::error::Error for Error {
    // The message of the kind is part of this error's own, so the source is that of the kind.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0.kind)
    }
}

/// The part of a file in an [`ErrorKind::Truncated`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncatedPart {
    /// The header at the start of a pcap file.
    FileHeader,
    /// A record of a pcap file, counted from 1.
    Record(u64),
    /// A pcapng block.
    Block,
}

impl fmt::Display for TruncatedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FileHeader => f.write_str("the file header"),
            Self::Record(number) => write!(f, "record {number}"),
            Self::Block => f.write_str("a block"),
        }
    }
}

/// A malformed pcapng block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockProblem {
    /// The total length is less than the block's own fields need.
    #[error("claims a length of {length} bytes, but needs at least {minimum}")]
    TooShort {
        /// Total length in the block's header.
        length: u32,
        /// The minimum for this type of block.
        minimum: u32,
    },
    /// The total length is not a multiple of 4.
    #[error("claims a length of {length} bytes, which is not a multiple of 4")]
    Unaligned {
        /// Total length in the block's header.
        length: u32,
    },
    /// The total length exceeds the limit.
    #[error("claims a length of {length} bytes, more than the {limit} that are accepted")]
    TooLong {
        /// Total length in the block's header.
        length: u32,
        /// The limit.
        limit: u32,
    },
    /// The total lengths at the block's two ends differ.
    #[error("gives its length as {header} bytes at its start and {trailer} at its end")]
    LengthsDiffer {
        /// At the start.
        header: u32,
        /// At the end.
        trailer: u32,
    },
    /// The packet would extend beyond the block.
    #[error("claims {captured} bytes of packet, but has room for {room}")]
    PacketTooLong {
        /// The captured length in the block.
        captured: u32,
        /// Bytes of the block after its fixed fields.
        room: u32,
    },
    /// A section header with another byte-order magic.
    #[error("has the byte-order magic {0:#010x} in place of 0x1a2b3c4d")]
    ByteOrderMagic(u32),
    /// An unknown version of a section.
    #[error("starts a section of version {major}.{minor}; versions 1.0 and 1.2 can be read")]
    SectionVersion {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },
    /// A packet of an interface that the section has not described.
    #[error("holds a packet of interface {interface}, but the section has described {known} so far")]
    UnknownInterface {
        /// Interface number within the section.
        interface: u32,
        /// The number of interfaces described so far.
        known: u32,
    },
    /// Too many interfaces.
    #[error("describes an interface beyond the {0} that are accepted in a file")]
    TooManyInterfaces(u32),
    /// An option extends beyond the block.
    #[error("has an option {code} of {length} bytes that reaches beyond its end")]
    OptionTooLong {
        /// Option code.
        code: u16,
        /// Length of its value.
        length: u16,
    },
    /// An option whose value must have a fixed size has another.
    #[error("has an option {code} of {length} bytes; it must have {expected}")]
    OptionLength {
        /// Option code.
        code: u16,
        /// Length of its value.
        length: u16,
        /// The required length.
        expected: u16,
    },
    /// A timestamp resolution too fine for a 64-bit clock.
    #[error("gives a timestamp resolution of {base}^-{power} s, too fine for 64-bit timestamps")]
    Resolution {
        /// 2 or 10.
        base: u8,
        /// The negative power.
        power: u8,
    },
}

/// The error of a file. Offsets count bytes from the start of the (decompressed) file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file could not be opened.
    #[error("cannot be opened: {0}")]
    Open(#[source] io::Error),

    /// Reading failed.
    #[error("reading failed at offset {offset}: {source}")]
    Read {
        /// The number of bytes read before.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },

    /// The compressed data are damaged or truncated. All complete records before were delivered.
    #[error(
        "the {} data are damaged or cut short after {offset} decompressed bytes: {source}; \
         what comes before can be read",
        match compression { Compression::Gzip => "gzip", _ => "zstd" }
    )]
    Decompress {
        /// gzip or zstd.
        compression: Compression,
        /// The length of the decompressed data before.
        offset: u64,
        /// The decompressor's error.
        source: io::Error,
    },

    /// The file is empty.
    #[error("the file is empty, not even the header of a capture is there")]
    Empty,

    /// Neither pcap nor pcapng.
    #[error(
        "not a capture that can be read: it starts with the bytes {start:02x?}, which is neither pcap nor pcapng, plain \
         or in gzip or zstd; `editcap -F pcapng` converts many other formats"
    )]
    UnknownFormat {
        /// The first bytes, up to four.
        start: Vec<u8>,
    },

    /// A pcap version other than 2.0 to 2.4.
    #[error("version {major}.{minor} of pcap cannot be read, only 2.0 to 2.4; `editcap -F pcap` may convert it")]
    Version {
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
    },

    /// The file ends too early. All complete records before were delivered.
    #[error(
        "the file ends inside {part} at offset {offset}: {have} of {need} bytes are there; it was cut short, and the {} before can be read",
        Count(*records)
    )]
    Truncated {
        /// The part in which the file ends.
        part: TruncatedPart,
        /// The start of this part.
        offset: u64,
        /// Its available bytes.
        have: u64,
        /// Its full length (of the header alone, if that is truncated).
        need: u64,
        /// Records that were delivered before.
        records: u64,
    },

    /// A record claims more bytes than its link type allows.
    #[error(
        "record {record} at offset {offset} claims {length} bytes, more than the {limit} that {link_type} packets may have; \
         the file is damaged there, and the {} before can be read",
        Count(record - 1)
    )]
    RecordTooLong {
        /// The record's number, from 1.
        record: u64,
        /// The start of the record.
        offset: u64,
        /// The claimed length.
        length: u32,
        /// The limit.
        limit: u32,
        /// The link type that determines the limit.
        link_type: LinkType,
    },

    /// A pcapng block is malformed.
    #[error(
        "the block of type {block_type:#x} at offset {offset} {problem}; the file is damaged there, and the {} before can be read",
        Count(*records)
    )]
    Block {
        /// The start of the block.
        offset: u64,
        /// Its type.
        block_type: u32,
        /// Records that were delivered before.
        records: u64,
        /// The problem of the block.
        problem: BlockProblem,
    },

    /// The source cannot be read again from the start.
    #[error("cannot be read again from the start ({0}); give a regular file to read it several times")]
    Rewind(#[source] io::Error),

    /// The file could not be created.
    #[error("cannot be created: {0}")]
    Create(#[source] io::Error),

    /// Writing failed.
    #[error("writing failed, {offset} bytes into the file: {source}")]
    Write {
        /// The number of bytes written before.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },

    /// A pcap file was requested without an interface.
    #[error("a pcap file needs an interface to tell its link type; give one, or write pcapng")]
    NoInterface,

    /// A pcap file was requested with interfaces of different link types.
    #[error("a pcap file has one link type, but the interfaces have {0} and {1}; write pcapng, or a file for each")]
    LinkTypesDiffer(LinkType, LinkType),

    /// A link type that does not fit into the format (no such type is registered).
    #[error("{0} does not fit into the file; {1} bits are the most it can have")]
    LinkTypeTooLarge(LinkType, u32),

    /// A record of an interface that the writer does not know.
    #[error("a record is from interface {interface}, but the file has {known}; add the interface first")]
    UnknownInterface {
        /// The record's interface.
        interface: u32,
        /// The number of interfaces in the file.
        known: u32,
    },

    /// A time that does not fit into pcap's 32-bit seconds. Nothing was written; the next record may fit.
    #[error("a timestamp of {timestamp} ns lies beyond 2106-02-07, the last day of pcap files; write pcapng")]
    TimestampOutOfRange {
        /// Nanoseconds since 1970.
        timestamp: u64,
    },
}

impl From<Box<ErrorKind>> for ErrorKind {
    fn from(kind: Box<ErrorKind>) -> Self {
        *kind
    }
}

/// "no record", "1 record", "2 records".
struct Count(u64);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("1 record"),
            n => write!(f, "{n} records"),
        }
    }
}

//! Reading and writing capture files: classic pcap and pcapng.
//!
//! The crate knows only files: no engine, no packet buffers, no protocols. A [`Reader`] returns [`Record`]s that borrow
//! the bytes of its own buffer; a [`Writer`] accepts records from anywhere.
//!
//! ```text
//!   Reader ──▶ pcap | pcapng ──▶ Buffer ──▶ Source: plain, gzip, zstd ──▶ a file or any Read
//!   Writer ──▶ pcap | pcapng ──▶ BufWriter ─────────────────────────────▶ a file or any Write
//! ```
//!
//! The reader supports pcap in both byte orders, with microseconds, nanoseconds or the longer record headers of the
//! "modified" format (magic `a1b2cd34`), versions 2.0 to 2.4; and pcapng with any number of sections and interfaces, in
//! both byte orders, with every timestamp resolution and offset, from enhanced, simple and (obsolete) packet blocks.
//! Either may be compressed with gzip or zstd. Formats are recognised by their first bytes, never by the file's name.
//!
//! Not kept are comments, packet flags, name resolution, statistics and decryption secrets of pcapng files, and the
//! interface, protocol and direction in the record headers of modified pcap.
//!
//! ```
//! use bellows_capture::{Interface, LinkType, OutputFormat, Reader, Record, Writer, WriterOptions};
//!
//! # fn main() -> Result<(), bellows_capture::Error> {
//! let options = WriterOptions { format: OutputFormat::Pcapng, ..WriterOptions::default() };
//! let mut writer = Writer::new(Vec::new(), "memory", options, &[Interface::new(LinkType::ETHERNET)])?;
//! writer.write(&Record { data: &[0xff; 60], timestamp: 1_700_000_000_123_456_789, original_length: 1514, interface: 0 })?;
//! let file = writer.finish()?;
//!
//! let mut reader = Reader::new(std::io::Cursor::new(file), "memory")?;
//! while let Some(record) = reader.next_record()? {
//!     assert_eq!(record.data.len(), 60);
//!     assert_eq!(record.timestamp, 1_700_000_000_123_456_789);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Time
//!
//! A timestamp is a `u64`: nanoseconds since 1970-01-01 00:00 UTC, which lasts until the year 2554. Times outside this
//! range (a pcapng interface can have any offset) become the nearest end of the range; finer resolutions are truncated
//! to nanoseconds. A simple packet block has no time and is read as 0.
//!
//! # Memory
//!
//! A reader uses 256 KiB, and more only as long as a single record or block needs it *and the file really contains
//! those bytes*: buffers grow with the data, not with the claims of length fields. A record may have
//! [`LinkType::max_length`] bytes (256 KiB for most link types, the limits of libpcap), a pcapng block 16 MiB, a file
//! 65,536 interfaces. Compressed files are decompressed as a stream, zstd with a window of up to 128 MiB.
//!
//! # Duration of a call
//!
//! A capture may contain gigabytes between two packets, and a compressed one may contain them in a few bytes. Callers
//! that cannot wait for the next packet give [`Reader::next_within`] a [`Budget`].
//!
//! # Sources
//!
//! pcap: [draft-ietf-opsawg-pcap](https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/) and `pcap-savefile(5)`;
//! pcapng: [draft-ietf-opsawg-pcapng](https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcapng/).

#![forbid(unsafe_code)]

mod budget;
mod buffer;
mod bytes;
mod error;
mod format;
mod pcap;
mod pcapng;
mod reader;
mod source;
mod step;
mod writer;

pub use budget::Budget;
pub use error::{BlockProblem, Error, ErrorKind, TruncatedPart};
pub use format::{Compression, Endianness, Format, Interface, LinkType, Record, TimestampResolution};
pub use reader::{Found, Progress, Reader};
pub use writer::{OutputFormat, Writer, WriterOptions};

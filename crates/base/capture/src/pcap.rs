//! Classic pcap: a file header, then records, each a fixed header and the packet's bytes.

use crate::budget::Budget;
use crate::buffer::{Buffer, Filled};
use crate::error::{ErrorKind, TruncatedPart};
use crate::format::{Endianness, Format, Interface, LinkType, TimestampResolution};
use crate::step::{Located, Step};

pub(crate) const FILE_HEADER: usize = 24;
pub(crate) const RECORD_HEADER: usize = 16;
/// In the "modified" format an interface index, protocol and packet type follow the usual fields.
const MODIFIED_RECORD_HEADER: usize = 24;

pub(crate) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(crate) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const MAGIC_MODIFIED: u32 = 0xa1b2_cd34;

/// The bits above these in the header's link type field are flags.
pub(crate) const LINK_TYPE_BITS: u32 = 26;

/// The order of a record's two lengths.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lengths {
    /// The captured length first, since version 2.4.
    CapturedFirst,
    /// The original length first, before version 2.3.
    OriginalFirst,
    /// Either first, in version 2.3: programs disagreed. The smaller is the captured length.
    SmallerIsCaptured,
}

/// The part of a file's header that is needed to read its records.
pub(crate) struct Pcap {
    endianness: Endianness,
    header_length: usize,
    /// Nanoseconds in one unit of a timestamp's second half.
    nanoseconds: u64,
    lengths: Lengths,
    link_type: LinkType,
    max_length: u32,
    pub(crate) format: Format,
}

/// The byte order, the resolution, and whether the format is the modified one, if `start` is the start of a pcap file.
fn recognise(start: &[u8]) -> Option<(Endianness, TimestampResolution, bool)> {
    let start: [u8; 4] = start.get(..4)?.try_into().ok()?;
    [(Endianness::Little, u32::from_le_bytes(start)), (Endianness::Big, u32::from_be_bytes(start))]
        .into_iter()
        .find_map(|(endianness, magic)| match magic {
            MAGIC_MICROSECONDS => Some((endianness, TimestampResolution::MICROSECONDS, false)),
            MAGIC_NANOSECONDS => Some((endianness, TimestampResolution::NANOSECONDS, false)),
            MAGIC_MODIFIED => Some((endianness, TimestampResolution::MICROSECONDS, true)),
            _ => None,
        })
}

impl Pcap {
    /// Whether bytes are the start of a pcap file.
    pub(crate) fn is_start(bytes: &[u8]) -> bool {
        recognise(bytes).is_some()
    }

    /// Reads the file header, if it is one and the budget suffices.
    pub(crate) fn open(buffer: &mut Buffer, budget: &mut Budget) -> Result<Option<(Self, Interface)>, Box<ErrorKind>> {
        let Some((endianness, resolution, modified)) = recognise(buffer.bytes()) else { return Ok(None) };
        match buffer.fill(FILE_HEADER, budget)? {
            Filled::Whole => {}
            Filled::NotYet => return Ok(None),
            Filled::Short => {
                return Err(Box::new(ErrorKind::Truncated {
                    part: TruncatedPart::FileHeader,
                    offset: 0,
                    have: buffer.bytes().len() as u64,
                    need: FILE_HEADER as u64,
                    records: 0,
                }));
            }
        }
        let header = buffer.bytes();
        let lengths = match (endianness.u16(header, 4), endianness.u16(header, 6)) {
            (2, 4) => Lengths::CapturedFirst,
            (2, 3) => Lengths::SmallerIsCaptured,
            // DG/UX wrote 543.0.
            (2, 0..=2) | (543, 0) => Lengths::OriginalFirst,
            (major, minor) => return Err(Box::new(ErrorKind::Version { major, minor })),
        };
        let snap_length = endianness.u32(header, 16);
        let link = endianness.u32(header, 20);
        let link_type = LinkType(link & ((1 << LINK_TYPE_BITS) - 1));
        let link_flags = (link >> LINK_TYPE_BITS) as u8;
        buffer.consume(FILE_HEADER);

        let pcap = Self {
            endianness,
            header_length: if modified { MODIFIED_RECORD_HEADER } else { RECORD_HEADER },
            nanoseconds: if resolution == TimestampResolution::NANOSECONDS { 1 } else { 1000 },
            lengths,
            link_type,
            max_length: link_type.max_length(),
            format: Format::Pcap { endianness, resolution, modified },
        };
        Ok(Some((pcap, Interface { link_type, snap_length, resolution, link_flags, name: None })))
    }

    /// Finds the next record after `records` others.
    #[inline]
    pub(crate) fn next(&self, buffer: &mut Buffer, records: u64, budget: &mut Budget) -> Result<Step, Box<ErrorKind>> {
        if buffer.bytes().len() < self.header_length {
            match self.fill(buffer, self.header_length, records, budget)? {
                Filled::Whole => {}
                Filled::Short => return Ok(Step::End),
                Filled::NotYet => return Ok(Step::Pause),
            }
        }
        let Some(header) = buffer.bytes().first_chunk::<RECORD_HEADER>() else { return Ok(Step::End) };
        let endianness = self.endianness;
        let seconds = endianness.u32(header, 0);
        let fraction = endianness.u32(header, 4);
        let mut captured = endianness.u32(header, 8);
        let mut original = endianness.u32(header, 12);
        if self.lengths != Lengths::CapturedFirst && (self.lengths == Lengths::OriginalFirst || captured > original) {
            (captured, original) = (original, captured);
        }
        if captured > self.max_length {
            return Err(self.too_long(buffer, records, captured));
        }
        let total = self.header_length + captured as usize;
        if buffer.bytes().len() < total && self.fill(buffer, total, records, budget)? == Filled::NotYet {
            return Ok(Step::Pause);
        }
        let at = buffer.consume(total) + self.header_length;
        Ok(Step::Packet(Located {
            at,
            length: captured as usize,
            // Cannot overflow: less than 2^32 s and 2^32 µs.
            timestamp: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.nanoseconds,
            original_length: original,
            interface: 0,
        }))
    }

    /// Reads until `need` bytes of a record are available; fewer if the file ends before the record begins.
    #[cold]
    fn fill(
        &self,
        buffer: &mut Buffer,
        need: usize,
        records: u64,
        budget: &mut Budget,
    ) -> Result<Filled, Box<ErrorKind>> {
        let filled = buffer.fill(need, budget)?;
        let have = buffer.bytes().len();
        if filled != Filled::Short || have == 0 {
            return Ok(filled);
        }
        Err(Box::new(ErrorKind::Truncated {
            part: TruncatedPart::Record(records + 1),
            offset: buffer.position(),
            have: have as u64,
            need: need as u64,
            records,
        }))
    }

    #[cold]
    fn too_long(&self, buffer: &Buffer, records: u64, length: u32) -> Box<ErrorKind> {
        Box::new(ErrorKind::RecordTooLong {
            record: records + 1,
            offset: buffer.position(),
            length,
            limit: self.max_length,
            link_type: self.link_type,
        })
    }
}

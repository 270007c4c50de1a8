//! pcapng: sections of blocks, some of which contain packets.

use crate::budget::Budget;
use crate::buffer::{Buffer, Filled};
use crate::error::{BlockProblem, ErrorKind, TruncatedPart};
use crate::format::{Endianness, Interface, LinkType, TimestampResolution};
use crate::step::{Located, Step};

pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE_DESCRIPTION: u32 = 1;
const PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
pub(crate) const ENHANCED_PACKET: u32 = 6;

pub(crate) const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;

pub(crate) const OPTION_IF_NAME: u16 = 2;
pub(crate) const OPTION_IF_TSRESOL: u16 = 9;
pub(crate) const OPTION_IF_FCSLEN: u16 = 13;
const OPTION_IF_TSOFFSET: u16 = 14;

/// Type and total length before a block's body, and the total length again after it.
const BLOCK_OVERHEAD: u32 = 12;
const BODY: usize = 8;
/// Fixed fields of the bodies.
const SECTION_HEADER_FIELDS: u32 = 16;
const INTERFACE_FIELDS: u32 = 8;
const PACKET_FIELDS: u32 = 20;
const SIMPLE_PACKET_FIELDS: u32 = 4;

const MAX_BLOCK: u32 = 16 << 20;
/// Room for options besides a packet of the maximum length for its link type.
const MAX_PACKET_OPTIONS: u32 = 128 << 10;
const MAX_INTERFACES: usize = 65_536;
pub(crate) const MAX_NAME: usize = 1024;

/// The conversion of an interface's timestamps to nanoseconds.
struct Clock {
    unit: Unit,
    /// Seconds to add.
    offset: i64,
}

enum Unit {
    /// Nanoseconds are ticks times this.
    Multiply(u64),
    /// Nanoseconds are ticks divided by this.
    Divide(u64),
    /// Ticks are seconds times 2 to this power.
    Shift(u8),
}

impl Clock {
    fn new(resolution: TimestampResolution, offset: i64) -> Result<Self, BlockProblem> {
        let unit = match resolution {
            TimestampResolution::PowerOfTen(power @ ..=9) => Unit::Multiply(10u64.pow(9 - u32::from(power))),
            TimestampResolution::PowerOfTen(power @ ..=19) => Unit::Divide(10u64.pow(u32::from(power) - 9)),
            TimestampResolution::PowerOfTen(power) => return Err(BlockProblem::Resolution { base: 10, power }),
            TimestampResolution::PowerOfTwo(power @ ..=63) => Unit::Shift(power),
            TimestampResolution::PowerOfTwo(power) => return Err(BlockProblem::Resolution { base: 2, power }),
        };
        Ok(Self { unit, offset })
    }

    #[inline]
    fn nanoseconds(&self, ticks: u64) -> u64 {
        match self {
            Self { unit: Unit::Multiply(factor), offset: 0 } => ticks.saturating_mul(*factor),
            _ => self.nanoseconds_of_any(ticks),
        }
    }

    fn nanoseconds_of_any(&self, ticks: u64) -> u64 {
        let since_offset = match self.unit {
            Unit::Multiply(factor) => u128::from(ticks) * u128::from(factor),
            Unit::Divide(divisor) => u128::from(ticks / divisor),
            Unit::Shift(power) => (u128::from(ticks) * 1_000_000_000) >> power,
        };
        // At most 2^64 * 10^9, which fits into 127 bits.
        let nanoseconds = since_offset as i128 + i128::from(self.offset) * 1_000_000_000;
        nanoseconds.clamp(0, u64::MAX.into()) as u64
    }
}

/// The state within a file: the current section.
pub(crate) struct Pcapng {
    pub(crate) endianness: Endianness,
    /// Index of the section's first interface among all interfaces of the file.
    first_interface: usize,
    /// One for each of the file's interfaces.
    clocks: Vec<Clock>,
    max_block: u32,
}

/// A complete block in the buffer, with the context for error messages.
struct BufferedBlock {
    block_type: u32,
    length: u32,
    offset: u64,
    records: u64,
}

/// The next item in the file.
enum Next {
    Block(BufferedBlock),
    End,
    /// The budget is spent.
    Pause,
}

impl BufferedBlock {
    #[cold]
    fn error(&self, problem: BlockProblem) -> Box<ErrorKind> {
        let Self { block_type, offset, records, .. } = *self;
        Box::new(ErrorKind::Block { offset, block_type, records, problem })
    }

    /// Bytes of the body after `fields` bytes of fixed fields.
    #[inline]
    fn room(&self, fields: u32) -> Result<u32, Box<ErrorKind>> {
        self.length
            .checked_sub(BLOCK_OVERHEAD + fields)
            .ok_or_else(|| self.error(BlockProblem::TooShort { length: self.length, minimum: BLOCK_OVERHEAD + fields }))
    }
}

impl Pcapng {
    /// Recognises the start of a pcapng file.
    pub(crate) fn open(buffer: &Buffer) -> Option<Self> {
        let starts = buffer.bytes().starts_with(&SECTION_HEADER.to_le_bytes());
        starts.then_some(Self {
            endianness: Endianness::Little,
            first_interface: 0,
            clocks: Vec::new(),
            max_block: MAX_BLOCK,
        })
    }

    /// Reads up to the first packet, to know its interfaces, as far as the budget allows.
    pub(crate) fn find_first(
        &mut self,
        buffer: &mut Buffer,
        interfaces: &mut Vec<Interface>,
        budget: &mut Budget,
    ) -> Result<(), Box<ErrorKind>> {
        while !self.at_packet(buffer, budget)? {
            if let Step::End | Step::Pause = self.step(buffer, interfaces, 0, budget)? {
                break;
            }
        }
        Ok(())
    }

    fn at_packet(&self, buffer: &mut Buffer, budget: &mut Budget) -> Result<bool, Box<ErrorKind>> {
        Ok((buffer.bytes().len() >= 4 || buffer.fill(4, budget)? == Filled::Whole)
            && matches!(self.endianness.u32(buffer.bytes(), 0), PACKET | SIMPLE_PACKET | ENHANCED_PACKET))
    }

    /// Finds the next packet after `records` others.
    #[inline]
    pub(crate) fn next(
        &mut self,
        buffer: &mut Buffer,
        interfaces: &mut Vec<Interface>,
        records: u64,
        budget: &mut Budget,
    ) -> Result<Step, Box<ErrorKind>> {
        loop {
            match self.step(buffer, interfaces, records, budget)? {
                Step::Other if budget.is_spent() => return Ok(Step::Pause),
                Step::Other => {}
                found => return Ok(found),
            }
        }
    }

    /// Processes one block.
    #[inline]
    fn step(
        &mut self,
        buffer: &mut Buffer,
        interfaces: &mut Vec<Interface>,
        records: u64,
        budget: &mut Budget,
    ) -> Result<Step, Box<ErrorKind>> {
        let block = match self.block(buffer, records, budget)? {
            Next::Block(block) => block,
            Next::End => return Ok(Step::End),
            Next::Pause => return Ok(Step::Pause),
        };
        let located = match block.block_type {
            ENHANCED_PACKET => self.packet(buffer, &block, interfaces)?,
            PACKET | SIMPLE_PACKET | SECTION_HEADER | INTERFACE_DESCRIPTION => {
                match self.rarer_block(buffer, &block, interfaces)? {
                    Some(located) => located,
                    None => {
                        budget.charge(block.length.into());
                        return Ok(Step::Other);
                    }
                }
            }
            _ => {
                buffer.consume(block.length as usize);
                budget.charge(block.length.into());
                return Ok(Step::Other);
            }
        };
        Ok(Step::Packet(located))
    }

    #[cold]
    fn rarer_block(
        &mut self,
        buffer: &mut Buffer,
        block: &BufferedBlock,
        interfaces: &mut Vec<Interface>,
    ) -> Result<Option<Located>, Box<ErrorKind>> {
        match block.block_type {
            PACKET => return self.packet(buffer, block, interfaces).map(Some),
            SIMPLE_PACKET => return self.simple_packet(buffer, block, interfaces).map(Some),
            SECTION_HEADER => self.section(buffer, block, interfaces.len())?,
            _ => self.interface(buffer, block, interfaces)?,
        }
        buffer.consume(block.length as usize);
        Ok(None)
    }

    /// Reads the complete next block into the buffer, and validates its lengths.
    #[inline]
    fn block(&mut self, buffer: &mut Buffer, records: u64, budget: &mut Budget) -> Result<Next, Box<ErrorKind>> {
        if buffer.bytes().len() < BLOCK_OVERHEAD as usize {
            match fill(buffer, BLOCK_OVERHEAD as usize, records, budget)? {
                Filled::Whole => {}
                Filled::Short => return Ok(Next::End),
                Filled::NotYet => return Ok(Next::Pause),
            }
        }
        let Some(start) = buffer.bytes().first_chunk::<{ BLOCK_OVERHEAD as usize }>() else { return Ok(Next::End) };
        // The section header's type reads the same in both byte orders.
        let block_type = self.endianness.u32(start, 0);
        if block_type == SECTION_HEADER {
            self.endianness = section_endianness(start, buffer.position(), records)?;
        }
        let length = self.endianness.u32(start, 4);
        let block = BufferedBlock { block_type, length, offset: buffer.position(), records };
        if length < BLOCK_OVERHEAD || !length.is_multiple_of(4) || length > self.max_block {
            return Err(self.bad_length(&block));
        }
        if buffer.bytes().len() < length as usize && fill(buffer, length as usize, records, budget)? == Filled::NotYet {
            return Ok(Next::Pause);
        }
        let trailer = self.endianness.u32(buffer.bytes(), length as usize - 4);
        if trailer != length {
            return Err(block.error(BlockProblem::LengthsDiffer { header: length, trailer }));
        }
        Ok(Next::Block(block))
    }

    #[cold]
    fn bad_length(&self, block: &BufferedBlock) -> Box<ErrorKind> {
        let length = block.length;
        block.error(if length < BLOCK_OVERHEAD {
            BlockProblem::TooShort { length, minimum: BLOCK_OVERHEAD }
        } else if length > self.max_block {
            BlockProblem::TooLong { length, limit: self.max_block }
        } else {
            BlockProblem::Unaligned { length }
        })
    }

    /// An enhanced packet, or its predecessor, the packet block: their fields differ only in the width of the
    /// interface.
    #[inline]
    fn packet(
        &self,
        buffer: &mut Buffer,
        block: &BufferedBlock,
        interfaces: &[Interface],
    ) -> Result<Located, Box<ErrorKind>> {
        let room = block.room(PACKET_FIELDS)?;
        let Some(fields) = buffer.bytes()[BODY..].first_chunk::<{ PACKET_FIELDS as usize }>() else {
            return Err(block.error(BlockProblem::TooShort { length: block.length, minimum: PACKET_FIELDS }));
        };
        let endianness = self.endianness;
        let id = match block.block_type {
            ENHANCED_PACKET => endianness.u32(fields, 0),
            _ => endianness.u16(fields, 0).into(),
        };
        let ticks = u64::from(endianness.u32(fields, 4)) << 32 | u64::from(endianness.u32(fields, 8));
        let captured = endianness.u32(fields, 12);
        let original_length = endianness.u32(fields, 16);

        let index = self.first_interface.saturating_add(id as usize);
        let (Some(clock), Some(interface)) = (self.clocks.get(index), interfaces.get(index)) else {
            return Err(self.unknown_interface(block, id));
        };
        if captured > room {
            return Err(block.error(BlockProblem::PacketTooLong { captured, room }));
        }
        check_length(captured, interface.link_type, block)?;
        Ok(Located {
            at: buffer.consume(block.length as usize) + BODY + PACKET_FIELDS as usize,
            length: captured as usize,
            timestamp: clock.nanoseconds(ticks),
            original_length,
            interface: index as u32,
        })
    }

    /// A simple packet is from the section's first interface, whose snap length limits its captured length.
    fn simple_packet(
        &self,
        buffer: &mut Buffer,
        block: &BufferedBlock,
        interfaces: &[Interface],
    ) -> Result<Located, Box<ErrorKind>> {
        let room = block.room(SIMPLE_PACKET_FIELDS)?;
        let original_length = self.endianness.u32(buffer.bytes(), BODY);
        let index = self.first_interface;
        let Some(interface) = interfaces.get(index) else { return Err(self.unknown_interface(block, 0)) };
        let captured = match interface.snap_length {
            // libpcap also treats a snap length beyond 31 bits as no limit.
            0 | 0x8000_0000.. => original_length.min(interface.link_type.max_length()),
            snap_length => original_length.min(snap_length),
        };
        if captured > room {
            return Err(block.error(BlockProblem::PacketTooLong { captured, room }));
        }
        check_length(captured, interface.link_type, block)?;
        Ok(Located {
            at: buffer.consume(block.length as usize) + BODY + SIMPLE_PACKET_FIELDS as usize,
            length: captured as usize,
            timestamp: 0,
            original_length,
            interface: index as u32,
        })
    }

    #[cold]
    fn unknown_interface(&self, block: &BufferedBlock, interface: u32) -> Box<ErrorKind> {
        let known = (self.clocks.len() - self.first_interface) as u32;
        block.error(BlockProblem::UnknownInterface { interface, known })
    }

    fn section(&mut self, buffer: &Buffer, block: &BufferedBlock, interfaces: usize) -> Result<(), Box<ErrorKind>> {
        block.room(SECTION_HEADER_FIELDS)?;
        let body = &buffer.bytes()[BODY..];
        match (self.endianness.u16(body, 4), self.endianness.u16(body, 6)) {
            // Some programs wrote 1.2 instead of 1.0, with further types of blocks.
            (1, 0 | 2) => {}
            (major, minor) => return Err(block.error(BlockProblem::SectionVersion { major, minor })),
        }
        self.first_interface = interfaces;
        Ok(())
    }

    fn interface(
        &mut self,
        buffer: &Buffer,
        block: &BufferedBlock,
        interfaces: &mut Vec<Interface>,
    ) -> Result<(), Box<ErrorKind>> {
        let room = block.room(INTERFACE_FIELDS)?;
        if interfaces.len() == MAX_INTERFACES {
            return Err(block.error(BlockProblem::TooManyInterfaces(MAX_INTERFACES as u32)));
        }
        let body = &buffer.bytes()[BODY..];
        let mut interface = Interface {
            link_type: LinkType(self.endianness.u16(body, 0).into()),
            snap_length: self.endianness.u32(body, 4),
            resolution: TimestampResolution::MICROSECONDS,
            link_flags: 0,
            name: None,
        };
        let options = &body[INTERFACE_FIELDS as usize..][..room as usize];
        let clock = self
            .interface_options(options, &mut interface)
            .and_then(|offset| Clock::new(interface.resolution, offset))
            .map_err(|problem| block.error(problem))?;
        let max_packet_block = interface.link_type.max_length() + BLOCK_OVERHEAD + PACKET_FIELDS + MAX_PACKET_OPTIONS;
        self.max_block = self.max_block.max(max_packet_block);
        self.clocks.push(clock);
        interfaces.push(interface);
        Ok(())
    }

    /// Reads options into `interface`, and returns the offset of its timestamps in seconds.
    fn interface_options(&self, mut options: &[u8], interface: &mut Interface) -> Result<i64, BlockProblem> {
        let endianness = self.endianness;
        let mut offset = 0;
        while let Some((header, rest)) = options.split_first_chunk::<4>() {
            let (code, length) = (endianness.u16(header, 0), endianness.u16(header, 2));
            if code == 0 {
                break;
            }
            let Some(value) = rest.get(..length.into()) else {
                return Err(BlockProblem::OptionTooLong { code, length });
            };
            let fixed = |expected| {
                if length == expected { Ok(()) } else { Err(BlockProblem::OptionLength { code, length, expected }) }
            };
            match code {
                OPTION_IF_NAME => {
                    let mut name = String::from_utf8_lossy(value).into_owned();
                    name.truncate(name.trim_end_matches('\0').len().min(name.floor_char_boundary(MAX_NAME)));
                    interface.name = Some(name);
                }
                OPTION_IF_TSRESOL => {
                    fixed(1)?;
                    interface.resolution = match value[0] {
                        power @ 0..=127 => TimestampResolution::PowerOfTen(power),
                        power => TimestampResolution::PowerOfTwo(power & 127),
                    };
                }
                OPTION_IF_FCSLEN => {
                    fixed(1)?;
                    interface.link_flags = Interface::flags_of_fcs_length(value[0]);
                }
                OPTION_IF_TSOFFSET => {
                    fixed(8)?;
                    let halves = (endianness.u32(value, 0), endianness.u32(value, 4));
                    let (high, low) = match endianness {
                        Endianness::Big => halves,
                        Endianness::Little => (halves.1, halves.0),
                    };
                    offset = (u64::from(high) << 32 | u64::from(low)) as i64;
                }
                _ => {}
            }
            options = rest.get(usize::from(length).next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(offset)
    }
}

#[inline]
fn check_length(captured: u32, link_type: LinkType, block: &BufferedBlock) -> Result<(), Box<ErrorKind>> {
    if captured <= link_type.max_length() {
        return Ok(());
    }
    Err(Box::new(ErrorKind::RecordTooLong {
        record: block.records + 1,
        offset: block.offset,
        length: captured,
        limit: link_type.max_length(),
        link_type,
    }))
}

fn section_endianness(
    start: &[u8; BLOCK_OVERHEAD as usize],
    offset: u64,
    records: u64,
) -> Result<Endianness, Box<ErrorKind>> {
    [Endianness::Little, Endianness::Big]
        .into_iter()
        .find(|endianness| endianness.u32(start, BODY) == BYTE_ORDER_MAGIC)
        .ok_or_else(|| {
            let problem = BlockProblem::ByteOrderMagic(Endianness::Little.u32(start, BODY));
            Box::new(ErrorKind::Block { offset, block_type: SECTION_HEADER, records, problem })
        })
}

/// Reads until `need` bytes of a block are available; fewer if the file ends before the block begins.
#[cold]
fn fill(buffer: &mut Buffer, need: usize, records: u64, budget: &mut Budget) -> Result<Filled, Box<ErrorKind>> {
    let filled = buffer.fill(need, budget)?;
    let have = buffer.bytes().len();
    if filled != Filled::Short || have == 0 {
        return Ok(filled);
    }
    Err(Box::new(ErrorKind::Truncated {
        part: TruncatedPart::Block,
        offset: buffer.position(),
        have: have as u64,
        need: need as u64,
        records,
    }))
}

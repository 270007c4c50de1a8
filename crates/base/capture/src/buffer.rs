//! A window on the decompressed bytes of a file, in which the parsers find complete records.

use std::io;

use crate::budget::Budget;
use crate::error::ErrorKind;
use crate::format::Compression;
use crate::source::{ByteSource, SourceTaken};

/// Fits into a second-level cache, and is large enough that system calls cost nothing per packet.
const CAPACITY: usize = Budget::PIECE as usize;

pub(crate) struct Buffer {
    /// `None` only while a rewind replaces it.
    source: Option<ByteSource>,
    data: Vec<u8>,
    start: usize,
    end: usize,
    /// Offset of `data[0]` in the file.
    base: u64,
    /// Whether reading failed. A decompressor must not be called again after that.
    failed: bool,
}

/// The result of asking for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The bytes are there.
    Whole,
    /// The file ends earlier.
    Short,
    /// The budget is spent. The bytes read so far stay.
    NotYet,
}

impl Buffer {
    pub(crate) fn new(source: ByteSource) -> Self {
        Self { source: Some(source), data: vec![0; CAPACITY], start: 0, end: 0, base: 0, failed: false }
    }

    /// The available bytes from the current position on.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// Advances the position, and returns the range of the skipped bytes in the buffer. They stay until the next
    /// `fill`.
    #[inline(always)]
    pub(crate) fn consume(&mut self, length: usize) -> usize {
        debug_assert!(length <= self.end - self.start);
        let at = self.start;
        self.start += length;
        at
    }

    /// Consumed bytes.
    #[inline(always)]
    pub(crate) fn slice(&self, at: usize, length: usize) -> &[u8] {
        &self.data[at..at + length]
    }

    /// Offset of the current position in the file.
    pub(crate) fn position(&self) -> u64 {
        self.base + self.start as u64
    }

    pub(crate) fn compression(&self) -> Compression {
        self.source.as_ref().map_or(Compression::None, ByteSource::compression)
    }

    /// Bytes of the file before the current position or, if compressed, those that have been decompressed.
    pub(crate) fn file_position(&self) -> u64 {
        match &self.source {
            Some(source) if source.compression() != Compression::None => source.consumed(),
            _ => self.position(),
        }
    }

    /// Reads until `need` bytes are available. Memory grows with the actual data, never with `need` alone.
    #[cold]
    pub(crate) fn fill(&mut self, need: usize, budget: &mut Budget) -> Result<Filled, Box<ErrorKind>> {
        while self.end - self.start < need {
            if budget.is_spent() {
                return Ok(Filled::NotYet);
            }
            self.make_room(need);
            let Some(source) = &mut self.source else { return Ok(Filled::Short) };
            // A step is as large as the usual buffer, even if the buffer has grown.
            let room = (self.end + CAPACITY).min(self.data.len());
            match source.take(&mut self.data[self.end..room]) {
                Ok(SourceTaken::Bytes { count: 0, .. }) => return Ok(Filled::Short),
                Ok(SourceTaken::Bytes { count, work }) => {
                    budget.charge(work);
                    self.end += count;
                }
                Ok(SourceTaken::Nothing) => budget.charge(Budget::EMPTY_STEP),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed = true;
                    let offset = self.base + self.end as u64;
                    return Err(Box::new(match self.compression() {
                        Compression::None => ErrorKind::Read { offset, source: error },
                        compression => ErrorKind::Decompress { compression, offset, source: error },
                    }));
                }
            }
        }
        Ok(Filled::Whole)
    }

    /// A small file is never moved in the buffer, so that `rewind` finds it there complete.
    fn make_room(&mut self, need: usize) {
        let room = self.data.len() - self.end;
        if self.start > 0 && (room < CAPACITY / 2 || self.start + need > self.data.len()) {
            self.data.copy_within(self.start..self.end, 0);
            self.base += self.start as u64;
            self.end -= self.start;
            self.start = 0;
        }
        if need > self.data.len() && self.end == self.data.len() {
            self.data.resize((self.data.len() * 2).min(need), 0);
        } else if self.data.len() > CAPACITY && need.max(self.end) <= CAPACITY {
            self.data.truncate(CAPACITY);
            self.data.shrink_to_fit();
        }
    }

    /// Goes back to the start of the file.
    pub(crate) fn rewind(&mut self) -> io::Result<()> {
        if self.base > 0 || self.failed {
            let source = self.source.take().ok_or_else(|| io::Error::other("an earlier attempt failed"))?;
            self.source = Some(source.rewind()?);
            (self.end, self.base, self.failed) = (0, 0, false);
        }
        self.start = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::source::Input;

    fn buffer(length: u64) -> Buffer {
        Buffer::new(ByteSource::new(Input::stream(io::repeat(7).take(length))).unwrap())
    }

    #[test]
    fn memory_grows_with_the_data_and_not_with_the_claim() {
        let mut buffer = buffer(CAPACITY as u64 + 1);
        assert_eq!(buffer.fill(1 << 40, &mut Budget::unlimited()).unwrap(), Filled::Short);
        assert_eq!(buffer.bytes().len(), CAPACITY + 1);
        assert_eq!(buffer.data.len(), 2 * CAPACITY);
    }

    #[test]
    fn a_large_record_is_read_in_steps() {
        let mut buffer = buffer(100 * CAPACITY as u64);
        let mut calls = 0;
        loop {
            let mut budget = Budget::for_records(1);
            let before = buffer.bytes().len();
            calls += 1;
            let filled = buffer.fill(20 * CAPACITY, &mut budget).unwrap();
            assert!(buffer.bytes().len() - before <= 2 * CAPACITY);
            if filled == Filled::Whole {
                break;
            }
            assert_eq!((filled, budget.left()), (Filled::NotYet, 0));
        }
        assert!(calls >= 10, "{calls}");
    }

    #[test]
    fn memory_is_given_back_when_a_large_record_is_done() {
        let mut buffer = buffer(100 * CAPACITY as u64);
        let mut budget = Budget::unlimited();
        assert_eq!(buffer.fill(20 * CAPACITY, &mut budget).unwrap(), Filled::Whole);
        assert!(buffer.data.len() >= 20 * CAPACITY);
        while buffer.fill(60, &mut budget).unwrap() == Filled::Whole {
            buffer.consume(60);
        }
        assert_eq!(buffer.data.len(), CAPACITY);
        assert_eq!(buffer.position() + buffer.bytes().len() as u64, 100 * CAPACITY as u64);
    }
}

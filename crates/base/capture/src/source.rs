//! The source of the bytes: a file or stream, decompressed if necessary.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::budget::Budget;
use crate::format::Compression;

/// The number of compressed bytes to read at a time.
const COMPRESSED_BUFFER: usize = 64 << 10;

/// The largest accepted zstd window: that of the `zstd` command without `--long` beyond 27.
const ZSTD_WINDOW: u64 = 128 << 20;

/// The maximum number of compressed bytes for one step of the gzip decompressor: a file may contain gigabytes of empty
/// members.
const GZIP_STEP: usize = 16 << 10;

/// The file or stream itself, with a count of the bytes read.
pub(crate) struct Input {
    raw: Raw,
    /// Bytes that may be read before it reports that it would block.
    allowance: usize,
    /// The first bytes, read to recognise the compression and read again after that.
    head: [u8; 4],
    head_start: usize,
    head_end: usize,
    consumed: u64,
}

enum Raw {
    File(File),
    Stream(Box<dyn Read + Send>),
}

impl Raw {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(buffer),
            Self::Stream(stream) => stream.read(buffer),
        }
    }
}

impl Input {
    pub(crate) fn file(file: File) -> Self {
        Self::new(Raw::File(file))
    }

    pub(crate) fn stream(stream: impl Read + Send + 'static) -> Self {
        Self::new(Raw::Stream(Box::new(stream)))
    }

    fn new(raw: Raw) -> Self {
        Self { raw, allowance: usize::MAX, head: [0; 4], head_start: 0, head_end: 0, consumed: 0 }
    }

    fn read_head(&mut self) -> io::Result<&[u8]> {
        while self.head_end < self.head.len() {
            match self.raw.read(&mut self.head[self.head_end..]) {
                Ok(0) => break,
                Ok(n) => self.head_end += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(&self.head[..self.head_end])
    }

    fn rewind(&mut self) -> io::Result<()> {
        match &mut self.raw {
            Raw::File(file) => file.rewind()?,
            Raw::Stream(_) => return Err(io::Error::new(io::ErrorKind::NotSeekable, "it is a stream")),
        }
        (self.head_start, self.head_end, self.consumed) = (0, 0, 0);
        self.allowance = usize::MAX;
        Ok(())
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.allowance == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let most = buffer.len().min(self.allowance);
        let buffer = &mut buffer[..most];
        let head = &self.head[self.head_start..self.head_end];
        let n = if head.is_empty() {
            self.raw.read(buffer)?
        } else {
            let n = head.len().min(buffer.len());
            buffer[..n].copy_from_slice(&head[..n]);
            self.head_start += n;
            n
        };
        self.consumed += n as u64;
        if self.allowance != usize::MAX {
            self.allowance -= n;
        }
        Ok(n)
    }
}

/// The result of one step.
pub(crate) enum SourceTaken {
    /// The number of bytes, 0 at the end of the file, and the cost of the step, which may be larger.
    Bytes { count: usize, work: u64 },
    /// No bytes yet.
    Nothing,
}

impl SourceTaken {
    fn bytes(count: usize, least_work: u64) -> SourceTaken {
        SourceTaken::Bytes { count, work: least_work.max(count as u64) }
    }
}

/// The decompressed bytes.
pub(crate) enum ByteSource {
    Plain(Input),
    Gzip(Box<MultiGzDecoder<BufReader<Input>>>),
    Zstd(Box<ZstdReader>),
}

impl ByteSource {
    /// Recognises the compression of `input` by its first bytes.
    pub(crate) fn new(mut input: Input) -> io::Result<Self> {
        Ok(match *input.read_head()? {
            [0x1f, 0x8b, ..] => {
                Self::Gzip(Box::new(MultiGzDecoder::new(BufReader::with_capacity(COMPRESSED_BUFFER, input))))
            }
            // A frame, or a skippable frame.
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Self::Zstd(Box::new(ZstdReader::new(input))),
            _ => Self::Plain(input),
        })
    }

    /// The same file from the start.
    pub(crate) fn rewind(self) -> io::Result<Self> {
        let mut input = match self {
            Self::Plain(input) => input,
            Self::Gzip(decoder) => decoder.into_inner().into_inner(),
            Self::Zstd(decoder) => decoder.source.into_inner(),
        };
        input.rewind()?;
        Self::new(input)
    }

    pub(crate) fn compression(&self) -> Compression {
        match self {
            Self::Plain(_) => Compression::None,
            Self::Gzip(_) => Compression::Gzip,
            Self::Zstd(_) => Compression::Zstd,
        }
    }

    /// Bytes read from the file itself, before decompression.
    pub(crate) fn consumed(&self) -> u64 {
        match self {
            Self::Plain(input) => input.consumed,
            Self::Gzip(decoder) => decoder.get_ref().get_ref().consumed,
            Self::Zstd(decoder) => decoder.source.get_ref().consumed,
        }
    }
}

impl ByteSource {
    /// Takes a step: reads or decompresses one piece. The length of a step is limited for any file.
    pub(crate) fn take(&mut self, buffer: &mut [u8]) -> io::Result<SourceTaken> {
        match self {
            Self::Plain(input) => input.read(buffer).map(|count| SourceTaken::bytes(count, 0)),
            Self::Gzip(decoder) => {
                decoder.get_mut().get_mut().allowance = GZIP_STEP;
                let before = decoder.get_ref().get_ref().consumed;
                match decoder.read(buffer) {
                    // The decoder keeps its state, and continues there.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && is_used_up(decoder) => {
                        Ok(SourceTaken::Nothing)
                    }
                    read => {
                        // A part of a step without output costs the same part of a whole step.
                        let taken = decoder.get_ref().get_ref().consumed - before;
                        let least = taken.saturating_mul(Budget::EMPTY_STEP / GZIP_STEP as u64);
                        read.map(|count| SourceTaken::bytes(count, least))
                    }
                }
            }
            Self::Zstd(decoder) => decoder.take(buffer),
        }
    }
}

/// Whether the step has used up its limit, so that it was not the file that blocked.
fn is_used_up(decoder: &MultiGzDecoder<BufReader<Input>>) -> bool {
    decoder.get_ref().get_ref().allowance == 0
}

/// Consecutive Zstandard frames, with verified checksums.
pub(crate) struct ZstdReader {
    source: BufReader<Input>,
    decoder: FrameDecoder,
    inside_frame: bool,
    /// Remaining bytes to skip of a frame without data.
    to_skip: u64,
}

impl ZstdReader {
    fn new(input: Input) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW);
        Self { source: BufReader::with_capacity(COMPRESSED_BUFFER, input), decoder, inside_frame: false, to_skip: 0 }
    }

    /// Starts the next frame. Returns `false` at the end of the file.
    fn start_frame(&mut self) -> io::Result<bool> {
        if self.source.fill_buf()?.is_empty() {
            return Ok(false);
        }
        match self.decoder.reset(&mut self.source) {
            Ok(()) => self.inside_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                self.to_skip = length.into();
            }
            Err(error) => return Err(io::Error::other(error)),
        }
        Ok(true)
    }

    /// Skips a piece of a frame that contains no data.
    fn skip(&mut self) -> io::Result<()> {
        let there = self.source.fill_buf()?.len();
        if there == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends inside a skippable frame"));
        }
        let skipped = self.to_skip.min(there as u64);
        self.source.consume(skipped as usize);
        self.to_skip -= skipped;
        Ok(())
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.inside_frame = false;
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum of a frame is wrong"));
        }
        Ok(())
    }

    /// Starts a frame, decompresses a block, or skips a piece.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<SourceTaken> {
        if self.to_skip > 0 {
            self.skip()?;
            return Ok(SourceTaken::Nothing);
        }
        if !self.inside_frame {
            return Ok(if self.start_frame()? { SourceTaken::Nothing } else { SourceTaken::bytes(0, 0) });
        }
        let mut least = 0;
        if self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
            least = Budget::EMPTY_STEP;
            self.decoder
                .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                .map_err(io::Error::other)?;
        }
        if self.decoder.can_collect() > 0 {
            return self.decoder.read(buffer).map(|count| SourceTaken::bytes(count, least));
        }
        if self.decoder.is_finished() {
            self.end_frame()?;
        }
        Ok(SourceTaken::Nothing)
    }
}

//! Where the bytes come from: a file or stream, decompressed on the way if need be.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use crate::format::Compression;

/// Compressed bytes read at a time.
const COMPRESSED_BUFFER: usize = 64 << 10;

/// The largest zstd window that is accepted: that of the `zstd` command without `--long` beyond 27.
const ZSTD_WINDOW: u64 = 128 << 20;

/// The file or stream itself, with a count of the bytes taken from it.
pub(crate) struct Input {
    raw: Raw,
    /// The first bytes, read to tell the compression and to be read again.
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
        Self { raw, head: [0; 4], head_start: 0, head_end: 0, consumed: 0 }
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
        Ok(())
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
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
        Ok(n)
    }
}

/// The decompressed bytes.
pub(crate) enum Source {
    Plain(Input),
    Gzip(Box<MultiGzDecoder<BufReader<Input>>>),
    Zstd(Box<ZstdReader>),
}

impl Source {
    /// Looks at the first bytes to tell how `input` is compressed.
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

    /// The same file from its start again.
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

    /// Bytes taken from the file itself, before decompression.
    pub(crate) fn consumed(&self) -> u64 {
        match self {
            Self::Plain(input) => input.consumed,
            Self::Gzip(decoder) => decoder.get_ref().get_ref().consumed,
            Self::Zstd(decoder) => decoder.source.get_ref().consumed,
        }
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(input) => input.read(buffer),
            Self::Gzip(decoder) => decoder.read(buffer),
            Self::Zstd(decoder) => decoder.read(buffer),
        }
    }
}

/// Zstandard frames one after the other, with their checksums verified.
pub(crate) struct ZstdReader {
    source: BufReader<Input>,
    decoder: FrameDecoder,
    inside_frame: bool,
}

impl ZstdReader {
    fn new(input: Input) -> Self {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(ZSTD_WINDOW);
        Self { source: BufReader::with_capacity(COMPRESSED_BUFFER, input), decoder, inside_frame: false }
    }

    /// Starts the next frame, skipping those that carry no data. `false` at the end of the file.
    fn start_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => {
                    self.inside_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends inside a skippable frame"));
                    }
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.inside_frame = false;
        let stored = self.decoder.get_checksum_from_data();
        if stored.is_some() && stored != self.decoder.get_calculated_checksum() {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the checksum of a frame is wrong"));
        }
        Ok(())
    }
}

impl Read for ZstdReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.inside_frame && !self.start_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                self.decoder
                    .decode_blocks(&mut self.source, BlockDecodingStrategy::UptoBlocks(1))
                    .map_err(io::Error::other)?;
            }
            if self.decoder.can_collect() > 0 {
                return self.decoder.read(buffer);
            }
            self.end_frame()?;
        }
    }
}

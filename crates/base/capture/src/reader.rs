//! The reader for all formats.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::budget::Budget;
use crate::buffer::{Buffer, Filled};
use crate::error::{Error, ErrorKind};
use crate::format::{Compression, Format, Interface, Record};
use crate::pcap::Pcap;
use crate::pcapng::Pcapng;
use crate::source::{ByteSource, Input};
use crate::step::{Located, Step};

/// The result of [`Reader::next_within`].
#[derive(Debug)]
pub enum Found<'a> {
    /// The next record.
    Record(Record<'a>),
    /// The end of the file.
    End,
    /// The budget was spent before a record was found: call again.
    Pause,
}

/// The budget for opening a file by its path.
const START: Budget = Budget::for_records(256);

/// The progress of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the (possibly compressed) file that were consumed.
    pub consumed: u64,
    /// Size of the file, if it is a regular one.
    pub total: Option<u64>,
}

/// Reads the records of a capture file in order.
///
/// After an error the reader is at its end; [`rewind`](Self::rewind) starts anew.
pub struct Reader {
    name: Arc<str>,
    buffer: Buffer,
    size: Option<u64>,
    layout: Layout,
    interfaces: Vec<Interface>,
    records: u64,
}

enum Layout {
    /// The start of the file is still to be read, or to be read again. In the second case, this was the format.
    Start(Option<Format>),
    Pcap(Pcap),
    Pcapng(Pcapng),
    /// The reader has returned an error.
    Failed(Option<Format>),
}

impl Reader {
    /// Opens the file at `path` and reads up to its first packet, but at most a MiB; the rest is read with the first
    /// record. (With a large window, zstd returns the first byte only after decompressing that much.)
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or read, is not a capture, or the bytes read so far are damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let name = path.as_ref().to_string_lossy();
        let file = File::open(&path).map_err(|error| Error::new(&name.as_ref().into(), ErrorKind::Open(error)))?;
        Self::from_file(file, name)
    }

    /// Reads an open file from its first byte, like [`open`](Self::open). Errors call it `name`.
    ///
    /// # Errors
    ///
    /// Like [`open`](Self::open).
    pub fn from_file(file: File, name: impl AsRef<str>) -> Result<Self, Error> {
        let name: Arc<str> = name.as_ref().into();
        let metadata = file.metadata().map_err(|error| Error::new(&name, ErrorKind::Open(error)))?;
        let size = metadata.is_file().then_some(metadata.len());
        Self::from_input(Input::file(file), size, name, START)
    }

    /// Reads from any source. Errors call it `name`.
    ///
    /// On a live pcapng stream this waits for the first packet, since interfaces may be described until then.
    ///
    /// # Errors
    ///
    /// Like [`open`](Self::open).
    pub fn new(stream: impl Read + Send + 'static, name: impl AsRef<str>) -> Result<Self, Error> {
        Self::from_input(Input::stream(stream), None, name.as_ref().into(), Budget::unlimited())
    }

    fn from_input(input: Input, size: Option<u64>, name: Arc<str>, mut budget: Budget) -> Result<Self, Error> {
        let source =
            ByteSource::new(input).map_err(|source| Error::new(&name, ErrorKind::Read { offset: 0, source }))?;
        let mut buffer = Buffer::new(source);
        let mut interfaces = Vec::new();
        let failed = |kind| Error::new(&name, kind);
        let layout = Layout::read(&mut buffer, &mut interfaces, &mut budget).map_err(failed)?;
        let mut layout = layout.unwrap_or(Layout::Start(None));
        if let Layout::Pcapng(pcapng) = &mut layout {
            pcapng.find_first(&mut buffer, &mut interfaces, &mut budget).map_err(failed)?;
        }
        Ok(Self { name, buffer, size, layout, interfaces, records: 0 })
    }

    /// The next record, or `None` at the end of the file. Allocates and makes a system call only once in 256 KiB.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is damaged here. All records before were delivered, and none follow.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        match self.next_within(&mut Budget::unlimited())? {
            Found::Record(record) => Ok(Some(record)),
            // No file is long enough to exhaust that budget.
            Found::End | Found::Pause => Ok(None),
        }
    }

    /// Like [`next_record`](Self::next_record), but returns when a budget is spent before a record was found, and
    /// continues there at the next call. For any file, a call does no more work than the budget allows, plus one step.
    ///
    /// # Errors
    ///
    /// Like [`next_record`](Self::next_record).
    #[inline]
    pub fn next_within(&mut self, budget: &mut Budget) -> Result<Found<'_>, Error> {
        let found = match &mut self.layout {
            Layout::Pcap(pcap) => pcap.next(&mut self.buffer, self.records, budget),
            Layout::Pcapng(pcapng) => pcapng.next(&mut self.buffer, &mut self.interfaces, self.records, budget),
            Layout::Start(_) => self.first(budget),
            Layout::Failed(_) => Ok(Step::End),
        };
        match found {
            Ok(Step::Packet(Located { at, length, timestamp, original_length, interface })) => {
                self.records += 1;
                let data = self.buffer.slice(at, length);
                Ok(Found::Record(Record { data, timestamp, original_length, interface }))
            }
            Ok(Step::End) => Ok(Found::End),
            Ok(Step::Pause | Step::Other) => Ok(Found::Pause),
            Err(kind) => Err(self.fail(kind)),
        }
    }

    /// Reads the start of a file and its first record.
    #[cold]
    fn first(&mut self, budget: &mut Budget) -> Result<Step, Box<ErrorKind>> {
        let Some(layout) = Layout::read(&mut self.buffer, &mut self.interfaces, budget)? else {
            return Ok(Step::Pause);
        };
        self.layout = layout;
        match &mut self.layout {
            Layout::Pcap(pcap) => pcap.next(&mut self.buffer, 0, budget),
            Layout::Pcapng(pcapng) => pcapng.next(&mut self.buffer, &mut self.interfaces, 0, budget),
            Layout::Start(_) | Layout::Failed(_) => Ok(Step::End),
        }
    }

    #[cold]
    fn fail(&mut self, kind: Box<ErrorKind>) -> Error {
        self.layout = Layout::Failed(self.format());
        Error::new(&self.name, kind)
    }

    /// Goes back to the first record. A file that fits into the buffer is not read again. The start of the file is read
    /// again with the first record: errors in it are reported then, and interfaces are known again after that.
    ///
    /// # Errors
    ///
    /// If the source is not a regular file. After an error the reader is at its end.
    pub fn rewind(&mut self) -> Result<(), Error> {
        self.records = 0;
        match self.buffer.rewind() {
            Ok(()) => {
                self.interfaces.clear();
                self.layout = Layout::Start(self.format());
                Ok(())
            }
            Err(error) => Err(self.fail(Box::new(ErrorKind::Rewind(error)))),
        }
    }

    /// The interfaces described so far. Those before the first packet, and within the first MiB of a file opened by its
    /// path, are known from the start. A pcapng file may describe more between packets, and each of its sections adds
    /// its own.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The file's format, with the byte order of the current section of a pcapng file. `None` if it is not known yet,
    /// because a file opened by its path starts with much compressed data.
    pub fn format(&self) -> Option<Format> {
        match &self.layout {
            Layout::Pcap(pcap) => Some(pcap.format),
            Layout::Pcapng(pcapng) => Some(Format::Pcapng { endianness: pcapng.endianness }),
            Layout::Start(format) | Layout::Failed(format) => *format,
        }
    }

    /// The compression of the file.
    pub fn compression(&self) -> Compression {
        self.buffer.compression()
    }

    /// The file's name, as in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Records delivered since the start or the last [`rewind`](Self::rewind).
    pub fn records(&self) -> u64 {
        self.records
    }

    /// The start of the next record or block, in bytes from the start of the decompressed file.
    pub fn position(&self) -> u64 {
        self.buffer.position()
    }

    /// The reader's progress, for a progress bar. A compressed file is read ahead by up to some hundred KiB.
    pub fn progress(&self) -> Progress {
        Progress { consumed: self.buffer.file_position(), total: self.size }
    }
}

impl Layout {
    /// Recognises the format by the first bytes; `None` if the budget is spent before they are read.
    fn read(
        buffer: &mut Buffer,
        interfaces: &mut Vec<Interface>,
        budget: &mut Budget,
    ) -> Result<Option<Self>, Box<ErrorKind>> {
        if buffer.fill(4, budget)? == Filled::NotYet {
            return Ok(None);
        }
        if Pcap::is_start(buffer.bytes()) {
            let opened = Pcap::open(buffer, budget)?;
            return Ok(opened.map(|(pcap, interface)| {
                interfaces.push(interface);
                Self::Pcap(pcap)
            }));
        }
        if let Some(pcapng) = Pcapng::open(buffer) {
            return Ok(Some(Self::Pcapng(pcapng)));
        }
        let start = buffer.bytes();
        Err(Box::new(match start {
            [] => ErrorKind::Empty,
            _ => ErrorKind::UnknownFormat { start: start[..start.len().min(4)].to_vec() },
        }))
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("name", &self.name)
            .field("format", &self.format())
            .field("interfaces", &self.interfaces)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

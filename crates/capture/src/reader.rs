//! The reader of any capture file.

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
use crate::source::{Input, Source};
use crate::step::{Located, Step};

/// What [`Reader::next_within`] has found.
#[derive(Debug)]
pub enum Found<'a> {
    /// The next record.
    Record(Record<'a>),
    /// The end of the file.
    End,
    /// No record before the budget was spent: ask again.
    Pause,
}

/// What is done at once when a file is opened by its path.
const START: Budget = Budget::for_records(256);

/// How far a file was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the file, compressed as it may be, that were used.
    pub consumed: u64,
    /// Size of the file, if it is a regular one.
    pub total: Option<u64>,
}

/// Reads the records of a capture file, one after the other.
///
/// After an error the reader is at its end; [`rewind`](Self::rewind) makes it start anew.
pub struct Reader {
    name: Arc<str>,
    buffer: Buffer,
    size: Option<u64>,
    layout: Layout,
    interfaces: Vec<Interface>,
    records: u64,
}

enum Layout {
    /// The first bytes are to be read, or to be read anew; then the format was this.
    Start(Option<Format>),
    Pcap(Pcap),
    Pcapng(Pcapng),
    /// An error was found.
    Failed(Option<Format>),
}

impl Reader {
    /// Opens the file at `path` and reads what comes before its first packet: a MiB of work at most, the rest is done
    /// with the first record. (With a large window, zstd yields the first byte when as much has been decompressed.)
    ///
    /// # Errors
    ///
    /// If the file cannot be opened or read, is not a capture, or its first bytes are damaged, as far as they were
    /// read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let name = path.as_ref().to_string_lossy();
        let file = File::open(&path).map_err(|error| Error::new(&name.as_ref().into(), ErrorKind::Open(error)))?;
        Self::from_file(file, name)
    }

    /// Reads a file that is open and stands at its first byte, as [`open`](Self::open) does; `name` stands for it in
    /// errors.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn from_file(file: File, name: impl AsRef<str>) -> Result<Self, Error> {
        let name: Arc<str> = name.as_ref().into();
        let metadata = file.metadata().map_err(|error| Error::new(&name, ErrorKind::Open(error)))?;
        let size = metadata.is_file().then_some(metadata.len());
        Self::from_input(Input::file(file), size, name, START)
    }

    /// Reads from anything; `name` stands for it in errors.
    ///
    /// On a live pcapng stream this waits for the first packet, since interfaces may be described until then.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn new(stream: impl Read + Send + 'static, name: impl AsRef<str>) -> Result<Self, Error> {
        Self::from_input(Input::stream(stream), None, name.as_ref().into(), Budget::unlimited())
    }

    fn from_input(input: Input, size: Option<u64>, name: Arc<str>, mut budget: Budget) -> Result<Self, Error> {
        let source = Source::new(input).map_err(|source| Error::new(&name, ErrorKind::Read { offset: 0, source }))?;
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

    /// The next record, or `None` at the end of the file. Neither allocates nor makes a system call, but once in 256 KiB.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is damaged here. All records before were delivered; none follows.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        match self.next_within(&mut Budget::unlimited())? {
            Found::Record(record) => Ok(Some(record)),
            // No file is long enough to spend that budget.
            Found::End | Found::Pause => Ok(None),
        }
    }

    /// As [`next_record`](Self::next_record), but gives up when a budget is spent before a record was found, and goes
    /// on from there when it is asked again. However a file is made, a call does no more work than the budget says, and
    /// one step more.
    ///
    /// # Errors
    ///
    /// As [`next_record`](Self::next_record).
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

    /// Goes back to the first record. A file small enough to lie in the buffer whole is not read again. What comes
    /// before the first record is read with it, so what is wrong with it is told then, and interfaces are known again
    /// then.
    ///
    /// # Errors
    ///
    /// If the reader is not on a regular file. After an error the reader is at its end.
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

    /// The interfaces that were described so far. All that come before the first packet, and within the first MiB of a
    /// file that was opened by its path, are there from the start; pcapng files may describe more between packets, and
    /// each section of a file adds its own.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The file's format; the byte order is that of the current section of a pcapng file. `None` if that is not known
    /// yet, because the file was opened by its path and much of it has to be decompressed first.
    pub fn format(&self) -> Option<Format> {
        match &self.layout {
            Layout::Pcap(pcap) => Some(pcap.format),
            Layout::Pcapng(pcapng) => Some(Format::Pcapng { endianness: pcapng.endianness }),
            Layout::Start(format) | Layout::Failed(format) => *format,
        }
    }

    /// How the file is compressed.
    pub fn compression(&self) -> Compression {
        self.buffer.compression()
    }

    /// The file's name, as it stands in errors.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Records delivered since the start or the last [`rewind`](Self::rewind).
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Where the next record or block begins, in bytes from the start of the decompressed file.
    pub fn position(&self) -> u64 {
        self.buffer.position()
    }

    /// How far the file was read, for a progress bar. A compressed file is read ahead by up to some hundred KiB.
    pub fn progress(&self) -> Progress {
        Progress { consumed: self.buffer.file_position(), total: self.size }
    }
}

impl Layout {
    /// Tells the format by the first bytes; `None` if the budget is spent before they are there.
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

//! The file that is written, or the files, one after the other.

use std::collections::HashMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use bellows_capture::{Error, ErrorKind, Interface, LinkType, OutputFormat, Record, Writer, WriterOptions};
use bellows_engine::AppError;
use bellows_packet::Meta;

/// Interfaces of a pcapng file. Without a limit, packets of ever new ports would fill the memory.
const MOST_INTERFACES: usize = 1_024;

/// When a file gives way to the next one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rotation {
    /// The most bytes of a file; `None` for no limit.
    pub(super) limit: Option<u64>,
    /// How many files to keep, the one being written included.
    pub(super) keep: Option<u64>,
}

/// How much of a packet was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Whole,
    Cut,
}

/// Why a packet was not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    LinkType,
    Timestamp,
    Failed,
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("{}: cannot be created: {source}; check the folder's permissions, or give another path", .path.display())]
    Create { path: PathBuf, source: io::Error },
    #[error("{}: is being read or written by an app of this or another network; give another path", .path.display())]
    InUse { path: PathBuf },
    #[error(
        "{}: is being written, and its format, resolution and snaplen cannot change until it is finished; give \
         another path",
        .path.display()
    )]
    OtherFormat { path: PathBuf },
    #[error("{}: cannot give way to the next file: {source}; check the folder's permissions", .path.display())]
    Rotate { path: PathBuf, source: io::Error },
}

/// Where a packet came from: its port, if it carries one, and its link type.
type Origin = (Option<u32>, LinkType);

/// A file that is being written.
pub(super) struct Output {
    path: PathBuf,
    options: WriterOptions,
    /// The file while it is empty: what comes first in it depends on the first packet.
    blank: Option<File>,
    writer: Option<Writer<File>>,
    /// Why nothing can be written any more.
    failure: Option<AppError>,
    /// Those of the file, in order, and which of them the packets of an origin belong to.
    interfaces: Vec<Interface>,
    numbers: HashMap<Origin, u32>,
    /// The origin of the last packet and its interface: most packets come from where the one before did.
    last: Option<(Origin, u32)>,
    full_files: u64,
}

impl Output {
    /// Creates the file, or empties it.
    pub(super) fn open(path: &Path, options: WriterOptions) -> Result<Output, OpenError> {
        Ok(Output {
            path: path.to_owned(),
            options,
            blank: Some(create(path)?),
            writer: None,
            failure: None,
            interfaces: Vec::new(),
            numbers: HashMap::new(),
            last: None,
            full_files: 0,
        })
    }

    /// How many files have given way to another.
    pub(super) fn full_files(&self) -> u64 {
        self.full_files
    }

    /// Writes a packet. Makes a system call once in 256 KiB only. Hot.
    #[inline]
    pub(super) fn write(
        &mut self,
        data: &[u8],
        timestamp: u64,
        meta: Option<Meta>,
        rotation: Rotation,
    ) -> Result<Written, Refusal> {
        let (origin, original_length) = match meta {
            // A pcap file does not tell ports apart.
            Some(meta) => {
                let port = self.is_pcapng().then_some(meta.ingress_port);
                ((port, LinkType(meta.link_type)), meta.original_length)
            }
            None => ((None, LinkType::ETHERNET), data.len() as u32),
        };
        let interface = match self.last {
            Some((last, interface)) if last == origin => interface,
            _ => self.interface_of(origin)?,
        };
        if let Some(limit) = rotation.limit {
            self.make_room(data.len(), limit, rotation.keep);
        }
        let Some(writer) = &mut self.writer else { return Err(Refusal::Failed) };
        match writer.write(&Record { data, timestamp, original_length, interface }) {
            Ok(()) if data.len() > self.kept(origin.1) => Ok(Written::Cut),
            Ok(()) => Ok(Written::Whole),
            Err(error) => Err(self.refuse(error)),
        }
    }

    fn is_pcapng(&self) -> bool {
        self.options.format == OutputFormat::Pcapng
    }

    /// The most bytes that are kept of a packet.
    fn kept(&self, link_type: LinkType) -> usize {
        match self.options.snap_length {
            0 => link_type.max_length() as usize,
            snap_length => snap_length.min(link_type.max_length()) as usize,
        }
    }

    #[cold]
    fn refuse(&mut self, error: Error) -> Refusal {
        match error.kind() {
            ErrorKind::TimestampOutOfRange { .. } => Refusal::Timestamp,
            _ => self.fail(error.into()),
        }
    }

    /// Gives the file up.
    #[cold]
    fn fail(&mut self, error: AppError) -> Refusal {
        self.failure = Some(error);
        if let Some(writer) = self.writer.take() {
            cut_back(writer);
        }
        self.last = None;
        Refusal::Failed
    }

    /// Finds the interface of packets from somewhere, or adds it to the file.
    #[cold]
    fn interface_of(&mut self, origin: Origin) -> Result<u32, Refusal> {
        if self.failure.is_some() {
            return Err(Refusal::Failed);
        }
        let number = match self.numbers.get(&origin) {
            Some(&number) => number,
            None => self.add_interface(origin)?,
        };
        self.last = Some((origin, number));
        Ok(number)
    }

    fn add_interface(&mut self, origin: Origin) -> Result<u32, Refusal> {
        let (port, link_type) = origin;
        let (most, bits) = if self.is_pcapng() { (MOST_INTERFACES, 16) } else { (1, 26) };
        if self.interfaces.len() >= most || link_type.0 >> bits != 0 {
            return Err(Refusal::LinkType);
        }
        let interface = Interface { name: port.map(|port| format!("port {port}")), ..Interface::new(link_type) };
        let number = self.interfaces.len() as u32;
        self.interfaces.push(interface.clone());
        let added = match (self.blank.take(), &mut self.writer) {
            (Some(file), _) => self.begin(file),
            (None, Some(writer)) => writer.add_interface(&interface).map(drop),
            (None, None) => Ok(()),
        };
        added.map_err(|error| self.fail(error.into()))?;
        self.numbers.insert(origin, number);
        Ok(number)
    }

    /// Writes the start of a file.
    fn begin(&mut self, file: File) -> Result<(), Error> {
        self.writer = Some(Writer::new(file, self.path.to_string_lossy(), self.options, &self.interfaces)?);
        Ok(())
    }

    /// Begins the next file if the one being written is full.
    fn make_room(&mut self, length: usize, limit: u64, keep: Option<u64>) {
        let record = if self.is_pcapng() { 32 + length.next_multiple_of(4) } else { 16 + length };
        let full = |writer: &Writer<File>| writer.records() > 0 && writer.bytes_written() + record as u64 > limit;
        if self.writer.as_ref().is_some_and(full)
            && let Err(error) = self.rotate(keep)
        {
            self.fail(error);
        }
    }

    #[cold]
    fn rotate(&mut self, keep: Option<u64>) -> Result<(), AppError> {
        self.close()?;
        self.full_files += 1;
        let failed = |source| OpenError::Rotate { path: self.path.clone(), source };
        fs::rename(&self.path, numbered(&self.path, self.full_files)).map_err(failed)?;
        // Those that are numbered, and the one that follows.
        if let Some(too_old) =
            keep.and_then(|keep| (self.full_files + 1).checked_sub(keep)).filter(|&number| number > 0)
        {
            match fs::remove_file(numbered(&self.path, too_old)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error).into()),
                _ => {}
            }
        }
        let file = create(&self.path)?;
        Ok(self.begin(file)?)
    }

    /// Writes what is in the buffer, and lets others have the file.
    fn close(&mut self) -> Result<(), Error> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        if let Err(error) = writer.flush() {
            cut_back(writer);
            return Err(error);
        }
        let file = writer.finish()?;
        // Closing it would leave it locked for as long as a process that is just being spawned has it, too.
        let _ = file.unlock();
        Ok(())
    }

    /// Hands what was written to the system.
    pub(super) fn flush(&mut self) {
        if let Some(Err(error)) = self.writer.as_mut().map(Writer::flush) {
            self.fail(error.into());
        }
    }

    /// Writes what is in the buffer, and says what went wrong since the start.
    pub(super) fn finish(mut self) -> Result<(), AppError> {
        if let Some(file) = self.blank.take() {
            self.interfaces.push(Interface::new(LinkType::ETHERNET));
            self.begin(file)?;
        }
        self.close()?;
        self.failure.map_or(Ok(()), Err)
    }
}

/// Cuts a file that could not be written to its end back to the last whole packet.
fn cut_back(writer: Writer<File>) {
    let (file, whole) = writer.abandon();
    // A device cannot be cut, and needs not to be.
    let _ = file.set_len(whole);
}

/// Creates a file or empties it, unless an app has it open.
fn create(path: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Create { path: path.to_owned(), source };
    // Not emptied before it is known that nobody uses it.
    let file = File::options().write(true).create(true).truncate(false).open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_file() {
        // A file system without locks does without this protection.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(OpenError::InUse { path: path.to_owned() });
        }
        file.set_len(0).map_err(failed)?;
    }
    Ok(file)
}

/// The name of a file that was full: `out.pcap` becomes `out.7.pcap`.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

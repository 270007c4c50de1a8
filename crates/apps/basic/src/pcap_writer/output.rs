//! The output file, or the files of a rotation.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::mem;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bellows_capture::{Error, ErrorKind, Interface, LinkType, OutputFormat, Record, Writer, WriterOptions};
use bellows_engine::AppError;
use bellows_events::{AppDegraded, AppRecovered};
use bellows_packet::{LARGE_DATA_ROOM, Meta};
use bellows_sys::access::{FileAccess, FileAccessError};
use bellows_sys::{FileError, remedy};
use tracing::{error, warn};

use super::place::{Sink, Staged, stage};

/// Maximum number of interfaces of a pcapng file, so that packets from ever new ports cannot fill the memory.
const MAX_INTERFACES: usize = 1_024;

/// When a file is rotated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rotation {
    /// Maximum bytes of a file; `None` for no limit.
    pub(super) limit: Option<u64>,
    /// Number of files to keep, including the current one.
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
pub(super) enum NotWritten {
    LinkType,
    Timestamp,
    Failed,
}

/// Why a file cannot be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error("{}", FileError::writing(path, source))]
    Create { path: PathBuf, source: io::Error },
    #[error("{}: {source}", .path.display())]
    Access { path: PathBuf, source: FileAccessError },
    #[error(
        "{}: can only be written in place, because {why}, and then keeps its mode {mode:04o} and its group {group}; \
         change them with `chmod` and `chgrp`, leave `mode` and `group` out, or give another path",
        .path.display()
    )]
    InPlace { path: PathBuf, why: &'static str, mode: u32, group: u32 },
    #[error("{}: another app of this or another network reads or writes it; give another path", .path.display())]
    InUse { path: PathBuf },
    #[error(
        "{}: is being written, and its format, resolution, snaplen, mode and group cannot change until it is finished; \
         give another path",
        .path.display()
    )]
    OtherFormat { path: PathBuf },
    #[error(
        "{}: cannot be rotated: {source}; {}",
        .path.display(),
        remedy(.source, "check the folder's permissions")
    )]
    Rotate { path: PathBuf, source: io::Error },
    #[error("standard output cannot be written: {0}; {help}", help = remedy(.0, "send it on with `| tcpdump -n -r -`"))]
    Stdout(io::Error),
    #[error(
        "standard output is a terminal, which cannot show a capture; send it on with `| tcpdump -n -r -`, or give the \
         path of a file"
    )]
    Terminal,
    #[error("another `pcap-writer` writes to standard output; give one of them the path of a file")]
    StdoutTaken,
}

/// Where a packet came from: its port, if it has one, and its link type.
type Origin = (Option<u32>, LinkType);

/// A file that is being written.
pub(super) struct Output {
    /// The app, for the log.
    app: String,
    /// Its name in the network file.
    name: String,
    /// The file, after symbolic links.
    path: PathBuf,
    options: WriterOptions,
    /// The permissions and group of the files.
    access: FileAccess,
    /// What to do when the run begins.
    staged: Option<Staged>,
    /// The file while it is empty: its header depends on the first packet.
    blank: Option<Sink>,
    writer: Option<Writer<Sink>>,
    /// Whether the next file of a rotation could not be created, and is tried again.
    is_between: bool,
    /// Packets lost since writing began to fail; `None` while it works.
    trouble: Option<u64>,
    /// The first error.
    failure: Option<String>,
    /// Whether writing has failed for good.
    has_failed: bool,
    /// Whether that is because the reader of the pipe is gone.
    reader_is_gone: bool,
    /// Packets lost because writing failed, and how many of them the app's counters do not contain yet.
    lost: u64,
    uncounted: u64,
    /// Packets in earlier files of the rotation.
    before: u64,
    /// The interfaces of the file, in order, and the interface of each origin.
    interfaces: Vec<Interface>,
    numbers: HashMap<Origin, u32>,
    /// The origin of the last packet and its interface: most packets have the same origin as the one before.
    last: Option<(Origin, u32)>,
    /// Full files that were replaced by a new one, and how many of them the app's counters do not contain yet.
    full_files: u64,
    uncounted_files: u64,
}

impl Output {
    /// Prepares to write a file. An existing file is not touched before [`begin`](Output::begin).
    pub(super) fn open(path: &Path, options: WriterOptions, access: FileAccess) -> Result<Output, OpenError> {
        let (sink, staged) = stage(path, access)?;
        let target = staged.target.clone();
        let output = Output::new(path.display().to_string(), target, options, Some(staged), sink);
        Ok(Output { access, ..output })
    }

    /// Prepares to write to standard output.
    pub(super) fn stdout(options: WriterOptions) -> Result<Output, OpenError> {
        let sink = Sink::stdout().map_err(OpenError::Stdout)?;
        Ok(Output::new("standard output".to_owned(), PathBuf::new(), options, None, sink))
    }

    /// The same, of this app.
    pub(super) fn of_app(self, app: &str) -> Output {
        Output { app: app.to_owned(), ..self }
    }

    /// Logs an error that lasts once more: a reload forgets those of the apps before.
    pub(super) fn tell_trouble(&self) {
        if let (Some(_), Some(failure)) = (self.trouble, &self.failure) {
            AppDegraded { app: &self.app }.log(format_args!("{failure}; packets are still not written"));
        }
    }

    fn new(name: String, path: PathBuf, options: WriterOptions, staged: Option<Staged>, sink: Sink) -> Output {
        Output {
            app: String::new(),
            name,
            path,
            options,
            access: FileAccess::default(),
            staged,
            blank: Some(sink),
            writer: None,
            is_between: false,
            trouble: None,
            failure: None,
            has_failed: false,
            reader_is_gone: false,
            lost: 0,
            uncounted: 0,
            before: 0,
            interfaces: Vec::new(),
            numbers: HashMap::new(),
            last: None,
            full_files: 0,
            uncounted_files: 0,
        }
    }

    /// Puts the new file in place of the old one, when the run begins.
    pub(super) fn begin(&mut self) {
        let (Some(mut staged), Some(sink)) = (self.staged.take(), &mut self.blank) else { return };
        if let Err((is_at, source)) = staged.begin(sink) {
            let place = is_at.display();
            self.failure = Some(format!("{}: cannot be replaced: {source}; the capture is in {place}", self.name));
            error!("{}: cannot be replaced: {source}; the capture is written to {place}", self.name);
            self.path = is_at;
        }
    }

    /// Whether the run has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.staged.is_none()
    }

    /// Whether the reader of the pipe is gone.
    pub(super) fn reader_is_gone(&self) -> bool {
        self.reader_is_gone
    }

    /// Number of packets in the files.
    pub(super) fn written(&self) -> u64 {
        self.before + self.writer.as_ref().map_or(0, Writer::records_taken)
    }

    /// Packets lost from the buffer since the last call.
    pub(super) fn take_uncounted(&mut self) -> u64 {
        mem::take(&mut self.uncounted)
    }

    /// Whether packets may be written now: a full pipe is not.
    pub(super) fn accepts(&mut self) -> bool {
        let Some(writer) = &mut self.writer else { return true };
        if !writer.sink_mut().is_pipe() || self.has_failed || writer.has_room(LARGE_DATA_ROOM) {
            return true;
        }
        self.flush();
        self.writer.as_ref().is_none_or(|writer| writer.has_room(LARGE_DATA_ROOM))
    }

    /// Number of full files that were replaced by a new one since the last call.
    pub(super) fn take_full_files(&mut self) -> u64 {
        mem::take(&mut self.uncounted_files)
    }

    /// Writes a packet. Makes a system call only once in 256 KiB. Hot.
    #[inline]
    pub(super) fn write(
        &mut self,
        data: &[u8],
        timestamp: u64,
        meta: Option<Meta>,
        rotation: Rotation,
    ) -> Result<Written, NotWritten> {
        let (origin, original_length) = match meta {
            // A pcap file does not distinguish ports.
            Some(meta) => {
                let port = self.is_pcapng().then_some(meta.ingress_port);
                ((port, LinkType(meta.link_type)), meta.original_length.max(data.len() as u32))
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
        let stuck = self.trouble.is_some();
        let Some(writer) = self.writer.as_mut().filter(|writer| !stuck || writer.has_room(data.len())) else {
            return Err(self.lose_one());
        };
        match writer.write(&Record { data, timestamp, original_length, interface }) {
            Ok(()) if data.len() > self.kept(origin.1) => Ok(Written::Cut),
            Ok(()) => Ok(Written::Whole),
            Err(error) => Err(self.refuse(error)),
        }
    }

    fn is_pcapng(&self) -> bool {
        self.options.format == OutputFormat::Pcapng
    }

    /// Maximum number of bytes to keep of a packet.
    fn kept(&self, link_type: LinkType) -> usize {
        match self.options.snap_length {
            0 => link_type.max_length() as usize,
            snap_length => snap_length.min(link_type.max_length()) as usize,
        }
    }

    #[cold]
    fn refuse(&mut self, error: Error) -> NotWritten {
        match error.kind() {
            ErrorKind::TimestampOutOfRange { .. } => NotWritten::Timestamp,
            _ => {
                self.handle_write_error(&error);
                self.lose_one()
            }
        }
    }

    #[cold]
    fn lose_one(&mut self) -> NotWritten {
        self.lost += 1;
        self.trouble = self.trouble.map(|lost| lost + 1);
        NotWritten::Failed
    }

    /// Handles a failed write: truncates the file to whole packets, and keeps the rest in the buffer for the next
    /// attempt.
    #[cold]
    fn handle_write_error(&mut self, error: &Error) {
        let kind = match error.kind() {
            ErrorKind::Write { source, .. } => source.kind(),
            _ => io::ErrorKind::Other,
        };
        let mut is_over = kind == io::ErrorKind::BrokenPipe;
        self.reader_is_gone |= is_over;
        if let Some(writer) = &mut self.writer {
            if writer.sink_mut().is_pipe() && kind == io::ErrorKind::WouldBlock {
                return;
            }
            if writer.sink_mut().is_regular {
                let whole = writer.step_back();
                is_over |= writer.sink_mut().cut(whole).is_err();
            }
        }
        let help = match error.kind() {
            ErrorKind::Write { source, .. } if source.kind() == io::ErrorKind::FileTooLarge => {
                "the file has reached the size limit of this process or of the file system; raise it with `ulimit -f`, or write \
                 several files with `rotate`"
            }
            ErrorKind::Write { source, .. } => remedy(source, "check whether the file is writable"),
            _ => "check whether the file is writable",
        };
        self.report_failure(format!("{error}"), help, is_over);
    }

    /// Records an error, and logs it once.
    fn report_failure(&mut self, what: String, help: &str, is_over: bool) {
        if self.trouble.is_none() {
            let outlook =
                if is_over { "packets are dropped from now on" } else { "writing is tried again every second" };
            AppDegraded { app: &self.app }.log(format_args!("{what}; {help}; {outlook}"));
            self.trouble = Some(0);
        }
        self.failure.get_or_insert(what);
        if is_over {
            self.give_up();
        }
    }

    /// Gives up writing: the packets in the buffer are lost.
    fn give_up(&mut self) {
        self.has_failed = true;
        self.last = None;
        if let Some(writer) = self.writer.take() {
            let taken = writer.records_taken();
            let lost = writer.records() - taken;
            self.before += taken;
            self.lost += lost;
            self.uncounted += lost;
            drop(writer.abandon());
        }
    }

    /// Finds the interface of an origin, or adds it to the file.
    #[cold]
    fn interface_of(&mut self, origin: Origin) -> Result<u32, NotWritten> {
        if self.has_failed {
            return Err(self.lose_one());
        }
        let number = match self.numbers.get(&origin) {
            Some(&number) => number,
            None => self.add_interface(origin)?,
        };
        self.last = Some((origin, number));
        Ok(number)
    }

    fn add_interface(&mut self, origin: Origin) -> Result<u32, NotWritten> {
        let (port, link_type) = origin;
        let (most, bits) = if self.is_pcapng() { (MAX_INTERFACES, 16) } else { (1, 26) };
        if self.interfaces.len() >= most || link_type.0 >> bits != 0 {
            return Err(NotWritten::LinkType);
        }
        let interface = Interface { name: port.map(|port| format!("port {port}")), ..Interface::new(link_type) };
        let number = self.interfaces.len() as u32;
        self.interfaces.push(interface.clone());
        let added = match (self.blank.take(), &mut self.writer) {
            (Some(file), _) => self.begin_file(file),
            (None, Some(writer)) => writer.add_interface(&interface).map(drop),
            (None, None) => Ok(()),
        };
        added.map_err(|error| self.refuse(error))?;
        self.numbers.insert(origin, number);
        Ok(number)
    }

    /// Writes the start of a file.
    fn begin_file(&mut self, sink: Sink) -> Result<(), Error> {
        self.writer = Some(Writer::new(sink, &self.name, self.options, &self.interfaces)?);
        Ok(())
    }

    /// Starts the next file if the current one is full.
    fn make_room(&mut self, length: usize, limit: u64, keep: Option<u64>) {
        let record = if self.is_pcapng() { 32 + length.next_multiple_of(4) } else { 16 + length };
        let full = |writer: &Writer<Sink>| writer.records() > 0 && writer.bytes_written() + record as u64 > limit;
        if self.trouble.is_none() && self.writer.as_ref().is_some_and(full) {
            self.rotate(keep);
        }
    }

    #[cold]
    fn rotate(&mut self, keep: Option<u64>) {
        if !self.flush() {
            return;
        }
        self.close();
        self.full_files += 1;
        self.uncounted_files += 1;
        let failed = |source| OpenError::Rotate { path: self.path.clone(), source };
        let mut renamed = fs::rename(&self.path, numbered(&self.path, self.full_files)).map_err(failed);
        // The numbered files, and the current one.
        if let Some(too_old) =
            keep.and_then(|keep| (self.full_files + 1).checked_sub(keep)).filter(|&number| number > 0)
        {
            match fs::remove_file(numbered(&self.path, too_old)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => renamed = renamed.and(Err(failed(error))),
                _ => {}
            }
        }
        match renamed {
            Ok(()) => {
                self.is_between = true;
                self.next_file();
            }
            Err(error) => self.report_failure(error.to_string(), "no more packets can be written", true),
        }
    }

    /// Starts the next file of a rotation. Returns whether it could be created.
    fn next_file(&mut self) -> bool {
        let made = create(&self.path, self.access)
            .and_then(|file| Sink::of(file).map_err(|source| OpenError::Create { path: self.path.clone(), source }));
        match made {
            Ok(sink) => {
                self.is_between = false;
                self.begin_file(sink).is_ok()
            }
            Err(error) => {
                self.report_failure(error.to_string(), "the next file could not be created", false);
                false
            }
        }
    }

    /// Releases a file that is completely written.
    fn close(&mut self) {
        if let Some(writer) = self.writer.take() {
            self.before += writer.records_taken();
            drop(writer.abandon());
        }
    }

    /// Flushes the buffer to the system. Returns whether all of it was written.
    pub(super) fn flush(&mut self) -> bool {
        if self.is_between && !self.next_file() {
            return false;
        }
        match self.writer.as_mut().map(Writer::flush) {
            Some(Err(error)) => {
                self.handle_write_error(&error);
                return false;
            }
            Some(Ok(())) => {}
            None => return !self.has_failed,
        }
        if let Some(lost) = self.trouble.take() {
            let message = format_args!("{}: writing works again; {lost} packets were dropped", self.name);
            AppRecovered { app: &self.app }.log(message);
        }
        true
    }

    /// Ends the run: writes the buffer, and counts the packets that cannot be written as lost.
    pub(super) fn end(&mut self) {
        if let Some(mut sink) = self.blank.take() {
            self.interfaces.push(Interface::new(LinkType::ETHERNET));
            sink.patient = true;
            if let Err(error) = self.begin_file(sink) {
                self.handle_write_error(&error);
            }
        }
        if let Some(writer) = &mut self.writer {
            writer.sink_mut().patient = true;
        }
        if self.flush() {
            self.close();
        } else {
            self.give_up();
        }
    }

    /// Ends, and reports what went wrong since the start.
    pub(super) fn finish(mut self) -> Result<(), AppError> {
        if !self.has_begun() {
            return Ok(());
        }
        self.end();
        let Some(failure) = self.failure.take() else { return Ok(()) };
        if self.lost == 0 && !self.has_failed {
            warn!("{failure}; all packets were written in the end");
            return Ok(());
        }
        let packets = |count: u64| if count == 1 { "1 packet".to_owned() } else { format!("{count} packets") };
        let before = packets(self.written());
        Err(format!("{failure}; {} could not be written; the capture contains {before}", packets(self.lost)).into())
    }
}

/// Creates a file or empties it, unless an app has it open.
fn create(path: &Path, access: FileAccess) -> Result<File, OpenError> {
    let failed = |source| OpenError::Create { path: path.to_owned(), source };
    // Not truncated before it is known that no app uses it.
    let file = options_for(access).create(true).truncate(false).open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.is_file() {
        // A file system without locks has no such protection.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(OpenError::InUse { path: path.to_owned() });
        }
        file.set_len(0).map_err(failed)?;
    }
    access.apply(&file).map_err(|source| OpenError::Access { path: path.to_owned(), source })?;
    Ok(file)
}

/// The options to create a file that is to have these permissions: until it has them, only its owner can open it.
pub(super) fn options_for(access: FileAccess) -> OpenOptions {
    let mut options = File::options();
    options.write(true);
    if access.mode.is_some() {
        options.mode(0o600);
    }
    options
}

/// The name of a rotated file: `out.pcap` becomes `out.7.pcap`.
fn numbered(path: &Path, number: u64) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!(".{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

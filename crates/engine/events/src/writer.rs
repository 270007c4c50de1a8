//! Writes the events of a network into two files of a fixed size.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::record::{Draft, Event, Id, MAX_LINE};

/// The size at which a file becomes the older one, in bytes.
pub const FILE_SIZE: u64 = 64 << 10;

/// The maximum size of a file: what readers take of it, in bytes.
pub const MAX_FILE: u64 = FILE_SIZE + MAX_LINE as u64;

/// Writes events, one on each line, into a file. A full file becomes the older one, and replaces that. So the last
/// [`FILE_SIZE`] bytes of events are always there, and both files together are never larger than twice of that.
///
/// There is one writer at a time, the process that runs the network. The next one goes on with the numbers of the last.
/// An event is written by one call. What a process that died, or a full disk, has left of a line stays a line of its
/// own. Files that somebody has removed, with their folder or without, are made again.
#[derive(Debug)]
pub struct Writer {
    current: PathBuf,
    older: PathBuf,
    file: Option<File>,
    size: u64,
    /// Whether the file ends within a line.
    is_torn: bool,
    next: Id,
    pid: u32,
}

impl Writer {
    /// Opens the files, and returns the last event in them. The time is in nanoseconds since the Unix epoch.
    ///
    /// # Errors
    /// Those of creating and reading files.
    pub fn open(current: PathBuf, older: PathBuf, time_ns: u64) -> io::Result<(Writer, Option<Event>)> {
        let content = read(&current)?;
        let last = last_event(&content);
        let last = match last {
            Some(last) => Some(last),
            None => last_event(&read(&older)?),
        };
        let next = match &last {
            Some(Event { id: Id { log, number }, .. }) => Id { log: *log, number: number + 1 },
            None => Id { log: time_ns / 1_000_000, number: 1 },
        };
        let is_torn = content.last().is_some_and(|&byte| byte != b'\n');
        let pid = std::process::id();
        let mut writer = Writer { current, older, file: None, size: content.len() as u64, is_torn, next, pid };
        writer.file = Some(open(&writer.current)?);
        Ok((writer, last))
    }

    /// Skips the numbers of events that could not be kept, so that readers know.
    pub fn skip(&mut self, events: u64) {
        self.next.number = self.next.number.saturating_add(events);
    }

    /// Writes an event.
    ///
    /// # Errors
    /// Those of writing: a full disk. The event is lost, and its number is not used again.
    pub fn write(&mut self, draft: Draft) -> io::Result<Event> {
        self.write_for(self.pid, draft)
    }

    /// Writes an event for another process: one that has ended.
    ///
    /// # Errors
    /// Those of [`Writer::write`].
    pub fn write_for(&mut self, pid: u32, draft: Draft) -> io::Result<Event> {
        let event = Event::new(self.next, pid, draft);
        self.skip(1);
        if self.file.as_ref().is_some_and(is_removed) {
            (self.file, self.size, self.is_torn) = (None, 0, false);
        }
        let mut line = event.line();
        if self.is_torn {
            line.insert(0, b'\n');
        }
        if self.size + line.len() as u64 > FILE_SIZE {
            self.rotate()?;
            line.drain(..usize::from(line[0] == b'\n'));
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open(&self.current)?),
        };
        // A part may have been written before an error.
        let result = file.write_all(&line);
        self.size = file.metadata().map_or(self.size, |metadata| metadata.len());
        self.is_torn = result.is_err();
        result.map(|()| event)
    }

    /// Begins a new file.
    fn rotate(&mut self) -> io::Result<()> {
        self.file = None;
        match fs::rename(&self.current, &self.older) {
            // It was removed.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => result?,
        }
        (self.size, self.is_torn) = (0, false);
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    match (open(), path.parent()) {
        (Err(error), Some(folder)) if error.kind() == ErrorKind::NotFound => {
            DirBuilder::new().mode(0o700).create(folder)?;
            open()
        }
        (result, _) => result,
    }
}

/// Whether nobody can find the file any more.
fn is_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

/// The end of a file that may be missing.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(2 * MAX_FILE).read_to_end(&mut content)?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    Ok(content)
}

fn last_event(content: &[u8]) -> Option<Event> {
    content.rsplit(|&byte| byte == b'\n').find_map(Event::of_line)
}

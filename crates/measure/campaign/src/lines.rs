//! Reads files of JSON Lines, one line at a time, however long the file is.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use serde::Deserialize;

use crate::folder::{JournalError, io_error, unused, write_whole};

/// Maximum length of a line, in bytes.
const MAX_LINE: u64 = 64 << 20;

/// Why a line is not what it should be.
pub(crate) enum LineError {
    /// It is no such value. The last line of a file may be, after a crash.
    Json(serde_json::Error),
    /// It is, but its contents are wrong, as this text says.
    Wrong(String),
    /// It does not agree with the register, as this text says.
    Disagreement(String),
}

impl From<serde_json::Error> for LineError {
    fn from(error: serde_json::Error) -> LineError {
        LineError::Json(error)
    }
}

/// Calls a function with the number, from 1, and the bytes of each whole line. Returns the length of all whole lines: a
/// last line without an end, or that is no JSON, was being written.
///
/// # Errors
/// If the file cannot be read, or a line before the last is wrong.
pub(crate) fn each_line(
    path: &Path,
    file: impl Read,
    mut each: impl FnMut(usize, &[u8]) -> Result<(), LineError>,
) -> Result<u64, JournalError> {
    let damaged = |line, why| JournalError::Damaged { path: path.to_owned(), line, why };
    let mut reader = BufReader::with_capacity(1 << 20, file);
    let mut line = Vec::new();
    let mut whole = 0;
    for number in 1.. {
        line.clear();
        reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line).map_err(io_error("read", path))?;
        if line.len() as u64 == MAX_LINE && line.last() != Some(&b'\n') {
            return Err(damaged(number, "the line is longer than 64 MiB".to_owned()));
        }
        if line.last() != Some(&b'\n') {
            break;
        }
        match each(number, &line) {
            Ok(()) => whole += line.len() as u64,
            // A disk may lose the middle of what was written last.
            Err(LineError::Json(_)) if reader.fill_buf().is_ok_and(<[u8]>::is_empty) => break,
            Err(LineError::Json(error)) => {
                return Err(damaged(number, format!("the line is no {}: {error}", what(path))));
            }
            Err(LineError::Wrong(why)) => return Err(damaged(number, why)),
            Err(LineError::Disagreement(why)) => {
                return Err(JournalError::Disagreement { path: path.to_owned(), line: number, why });
            }
        }
    }
    Ok(whole)
}

fn what(path: &Path) -> &'static str {
    if path.ends_with(crate::folder::REGISTER) { "record of a hypothesis" } else { "row of results" }
}

/// The same for a file that there may not be.
pub(crate) fn each_line_of(
    path: &Path,
    each: impl FnMut(usize, &[u8]) -> Result<(), LineError>,
) -> Result<u64, JournalError> {
    match File::open(path) {
        Ok(file) => each_line(path, file, each),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(io_error("open", path)(error)),
    }
}

/// All values of a file that there may not be, and the length of its whole lines.
pub(crate) fn read_all<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<(Vec<T>, u64), JournalError> {
    let mut values = Vec::new();
    let whole = each_line_of(path, |_, line| {
        values.push(serde_json::from_slice(line)?);
        Ok(())
    })?;
    Ok((values, whole))
}

/// Calls a function with each whole line of a file, and moves what a crash left of its last line to a file beside it.
/// Returns what was done, as a sentence.
pub(crate) fn recover(
    path: &Path,
    file: &mut File,
    each: impl FnMut(usize, &[u8]) -> Result<(), LineError>,
) -> Result<Option<String>, JournalError> {
    file.seek(SeekFrom::Start(0)).map_err(io_error("read", path))?;
    let whole = each_line(path, &*file, each)?;
    let length = file.metadata().map_err(io_error("read", path))?.len();
    if whole >= length {
        return Ok(None);
    }
    let mut torn = Vec::new();
    file.seek(SeekFrom::Start(whole)).and_then(|_| file.read_to_end(&mut torn)).map_err(io_error("read", path))?;
    let aside = unused(path, "torn");
    write_whole(&aside, &torn)?;
    file.set_len(whole).and_then(|()| file.sync_all()).map_err(io_error("shorten", path))?;
    Ok(Some(format!(
        "the last line of {} was written in part; its {} bytes are now in {}, and its run is made again",
        path.display(),
        torn.len(),
        aside.display()
    )))
}

//! Reads both files of a network as they were at one time.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use crate::writer::MAX_FILE;

/// How often to try, while the writer begins files faster than they are read.
const ATTEMPTS: usize = 10;

/// One of the two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentFile {
    /// That to which events are written.
    Current,
    /// That which was full before.
    Older,
}

/// The content of both files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The older events.
    pub older: Vec<u8>,
    /// The newer events.
    pub current: Vec<u8>,
}

/// The identity of a file; `None` if there is none.
type Identity = Option<(u64, u64)>;

/// Opens a file; `None` if it is missing.
fn open_part(
    open: &impl Fn(ContentFile) -> io::Result<File>,
    part: ContentFile,
) -> io::Result<(Option<File>, Identity)> {
    match open(part) {
        Ok(file) => {
            let metadata = file.metadata()?;
            Ok((Some(file), Some((metadata.dev(), metadata.ino()))))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((None, None)),
        Err(error) => Err(error),
    }
}

fn read_part(file: Option<&mut File>) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    if let Some(file) = file {
        // Who owns it may have made it larger.
        file.take(MAX_FILE).read_to_end(&mut content)?;
    }
    Ok(content)
}

impl Content {
    /// Reads both files, which this opens for reading. A writer that goes on meanwhile costs no event: if it has begun
    /// a new file, both are read again.
    ///
    /// # Errors
    /// Those of opening and reading files, except that a missing file is empty.
    pub fn read(open: impl Fn(ContentFile) -> io::Result<File>) -> io::Result<Content> {
        let mut content = Content::default();
        for _ in 0..ATTEMPTS {
            // It stays open until the end, so that no other file gets its number.
            let (mut older, before) = open_part(&open, ContentFile::Older)?;
            let (mut current, _) = open_part(&open, ContentFile::Current)?;
            content = Content { older: read_part(older.as_mut())?, current: read_part(current.as_mut())? };
            let (_, after) = open_part(&open, ContentFile::Older)?;
            if before == after {
                break;
            }
        }
        Ok(content)
    }
}

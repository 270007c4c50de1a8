//! A pipe from a process, of whose bytes the start and the end are kept.

use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::score::Captured;

/// Maximum number of bytes of an output that are kept of its start, and again of its end.
pub(crate) const MAX_KEPT: usize = 4 << 20;

/// The start and the end of an output.
#[derive(Default)]
pub(crate) struct Kept {
    start: Vec<u8>,
    end: Vec<u8>,
    left_out: u64,
}

impl Kept {
    fn push(&mut self, bytes: &[u8]) {
        let (first, rest) = bytes.split_at(bytes.len().min(MAX_KEPT - self.start.len()));
        self.start.extend_from_slice(first);
        self.end.extend_from_slice(rest);
        // Seldom, so that each byte is moved once on average.
        if self.end.len() >= 2 * MAX_KEPT {
            self.shorten();
        }
    }

    fn shorten(&mut self) {
        let excess = self.end.len().saturating_sub(MAX_KEPT);
        self.end.drain(..excess);
        self.left_out += excess as u64;
    }

    pub(crate) fn take(&mut self) -> Captured {
        self.shorten();
        let Kept { start: mut bytes, end, left_out } = std::mem::take(self);
        if left_out > 0 {
            // What is before and after the gap is not one line.
            bytes.push(b'\n');
        }
        bytes.extend_from_slice(&end);
        Captured { bytes, left_out }
    }
}

/// A pipe from a process.
pub(crate) struct Pipe {
    pub(crate) file: fs::File,
    pub(crate) kept: Kept,
}

impl Pipe {
    pub(crate) fn new(descriptor: OwnedFd) -> io::Result<Pipe> {
        let flags = fcntl_getfl(&descriptor)?;
        fcntl_setfl(&descriptor, flags | OFlags::NONBLOCK)?;
        Ok(Pipe { file: descriptor.into(), kept: Kept::default() })
    }

    /// Reads what there is, up to a number of bytes. Returns whether there may be more later.
    pub(crate) fn read(&mut self, buffer: &mut [u8], mut most: usize) -> bool {
        while most > 0 {
            match self.file.read(buffer) {
                Ok(0) => return false,
                Ok(length) => {
                    self.kept.push(&buffer[..length]);
                    most = most.saturating_sub(length);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_and_the_end_of_an_output_are_kept() {
        let mut kept = Kept::default();
        let bytes: Vec<u8> = (0..100_000_000u32).map(|index| (index % 251) as u8).collect();
        for chunk in bytes.chunks(65_521) {
            kept.push(chunk);
            assert!(kept.start.len() + kept.end.len() < 4 * MAX_KEPT);
        }
        let Captured { bytes: parts, left_out } = kept.take();
        assert_eq!((parts.len(), left_out), (2 * MAX_KEPT + 1, (bytes.len() - 2 * MAX_KEPT) as u64));
        assert!(parts.starts_with(&bytes[..MAX_KEPT]) && parts[MAX_KEPT] == b'\n');
        assert!(parts.ends_with(&bytes[bytes.len() - MAX_KEPT..]));
    }

    #[test]
    fn an_output_without_a_gap_is_whole() {
        for length in [0, 1, MAX_KEPT, MAX_KEPT + 1, 2 * MAX_KEPT] {
            let mut kept = Kept::default();
            let bytes = vec![7; length];
            kept.push(&bytes);
            assert_eq!(kept.take(), Captured { bytes, left_out: 0 }, "{length}");
        }
    }
}

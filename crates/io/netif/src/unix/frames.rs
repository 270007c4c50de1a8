//! Splits the bytes of a stream into frames.

use std::io;

use super::MAX_RECEIVED;

/// Length of the number in front of each frame.
pub(super) const PREFIX: usize = 4;

/// Maximum number of bytes that one call reads.
pub(super) const MAX_READ: usize = 64 * 1_024;

/// Room for the longest frame that is incomplete, and for a read behind it.
const ROOM: usize = MAX_READ + PREFIX + MAX_RECEIVED;

/// Why a stream cannot be split any further: its frames are lost from here on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame without bytes.
    #[error("the other side has sent a frame of length 0; is it another protocol than QEMU's `-netdev stream`?")]
    Empty,
    /// A frame that is longer than any packet.
    #[error(
        "the other side has sent a frame of length {0}, and the maximum is {max}; is it another protocol than QEMU's \
         `-netdev stream`?",
        max = MAX_RECEIVED
    )]
    TooLong(u32),
}

/// The bytes of a stream that were read and not taken yet.
#[derive(Debug)]
pub struct FrameSplitter {
    bytes: Box<[u8]>,
    /// The bytes that are valid.
    start: usize,
    end: usize,
}

impl FrameSplitter {
    /// Creates an empty one.
    pub fn new() -> FrameSplitter {
        FrameSplitter { bytes: vec![0; ROOM].into(), start: 0, end: 0 }
    }

    /// Reads once, at most 64 KiB. All complete frames must have been taken before. Returns the number of bytes read.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let room = &mut self.bytes[self.end..];
        let most = room.len().min(MAX_READ);
        let count = read(&mut room[..most])?.min(most);
        self.end += count;
        Ok(count)
    }

    /// The next complete frame; `None` if more bytes must be read first.
    ///
    /// # Errors
    /// See [`FrameError`]; the same one from then on.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let there = &self.bytes[self.start..self.end];
        let Some((prefix, rest)) = there.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let announced = u32::from_be_bytes(*prefix);
        let length = announced as usize;
        if length == 0 {
            return Err(FrameError::Empty);
        }
        if length > MAX_RECEIVED {
            return Err(FrameError::TooLong(announced));
        }
        let Some(frame) = rest.get(..length) else { return Ok(None) };
        self.start += PREFIX + length;
        Ok(Some(frame))
    }
}

impl Default for FrameSplitter {
    fn default() -> FrameSplitter {
        FrameSplitter::new()
    }
}

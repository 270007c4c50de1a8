//! Frames on their way into a stream.

use std::io;

use super::MAX_SENT;
use super::frames::PREFIX;

/// Bytes that are gathered for one call, at least.
const GATHERED: usize = 64 * 1_024;

/// Frames, each after its length, that the socket has not taken completely.
///
/// The socket may take a part of a frame. The rest is kept until it has gone, too: otherwise the other side would take
/// the next frame for it.
#[derive(Debug)]
pub(super) struct Unsent {
    /// Begins with a frame.
    bytes: Vec<u8>,
    /// Number of bytes that the socket has taken.
    sent: usize,
}

impl Unsent {
    pub(super) fn new() -> Unsent {
        Unsent { bytes: Vec::with_capacity(GATHERED + PREFIX + MAX_SENT), sent: 0 }
    }

    /// Whether nothing waits.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the bytes must be written before more are gathered.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= GATHERED
    }

    /// Gathers a frame, of at most [`MAX_SENT`] bytes.
    #[inline]
    pub(super) fn push(&mut self, frame: &[u8]) {
        // Frames are short: see above.
        self.bytes.extend_from_slice(&(frame.len() as u32).to_be_bytes());
        self.bytes.extend_from_slice(frame);
    }

    /// Writes until nothing is left, or there is an error.
    ///
    /// # Errors
    /// Those of `write`.
    pub(super) fn write(&mut self, mut write: impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        while self.sent < self.bytes.len() {
            self.sent += write(&self.bytes[self.sent..])?;
        }
        self.bytes.clear();
        self.sent = 0;
        Ok(())
    }

    /// Gives up what has not been sent; the number of frames of which at least a part is lost.
    pub(super) fn discard(&mut self) -> u64 {
        let (mut start, mut lost) = (0, 0);
        while let Some(prefix) = self.bytes[start..].first_chunk::<PREFIX>() {
            start += PREFIX + u32::from_be_bytes(*prefix) as usize;
            lost += u64::from(start > self.sent);
        }
        self.bytes.clear();
        self.sent = 0;
        lost
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A socket that takes a few bytes at a time, and now and then none, gets all of them in order.
        #[test]
        fn partial_writes_lose_nothing(
            frames in vec(vec(any::<u8>(), 1..50), 1..20),
            takes in vec(0..40usize, 1..40),
            until in 0..600usize,
        ) {
            let (mut unsent, mut written, mut expected) = (Unsent::new(), Vec::new(), Vec::new());
            let mut ends = Vec::new();
            let mut takes = takes.iter().cycle();
            for frame in &frames {
                expected.extend((frame.len() as u32).to_be_bytes());
                expected.extend(frame);
                ends.push(expected.len());
                unsent.push(frame);
                let _ = unsent.write(|bytes| {
                    let left = until.saturating_sub(written.len());
                    let count = bytes.len().min(*takes.next().unwrap()).min(left);
                    written.extend(&bytes[..count]);
                    if count == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(count) }
                });
                prop_assert_eq!(unsent.is_empty(), written.len() == expected.len());
            }
            prop_assert!(expected.starts_with(&written));
            let lost = ends.iter().filter(|end| **end > written.len()).count() as u64;
            prop_assert_eq!(unsent.discard(), lost);
            prop_assert!(unsent.is_empty());
        }
    }
}

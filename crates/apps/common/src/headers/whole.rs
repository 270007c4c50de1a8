//! Headers as words: templates of those that are sent, and patterns of those that are received.
//!
//! A header is written as a whole: its first 32 or 64 bytes, and its last 32, which overlap them. So no copy has a length
//! that is not known to the compiler. A received one is compared in the same way, or, if it is long, with the first 96
//! bytes of a frame, of which a mask leaves out those behind it; few frames with such a header are shorter.

/// Bytes of the first part of a long header, and of the parts of a short one.
pub const LONG: usize = 64;
const SHORT: usize = 32;

/// The shortest header, with that of Ethernet.
pub const MIN: usize = SHORT;

/// The longest one.
pub const MAX: usize = LONG + SHORT;

/// A header to be written.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    head: [u8; LONG],
    tail: [u8; SHORT],
    length: usize,
}

impl Template {
    /// A header of `MIN` to `MAX` bytes.
    pub fn new(header: &[u8]) -> Template {
        assert!((MIN..=MAX).contains(&header.len()), "a header of {} bytes", header.len());
        let (mut head, mut tail) = ([0; LONG], [0; SHORT]);
        let first = header.len().min(LONG);
        head[..first].copy_from_slice(&header[..first]);
        tail.copy_from_slice(&header[header.len() - SHORT..]);
        Template { head, tail, length: header.len() }
    }

    /// Whether it has 64 bytes or more, so that frames with it are taken to have [`MAX`]; otherwise [`LONG`]. Hot.
    #[inline(always)]
    pub fn is_long(&self) -> bool {
        self.length >= LONG
    }

    /// Writes it to the start of a frame, of [`MAX`] bytes if it is [long](Template::is_long), otherwise of [`LONG`]. Hot.
    #[inline(always)]
    pub fn write_start<const N: usize>(&self, start: &mut [u8; N]) {
        if N >= MAX {
            start[..LONG].copy_from_slice(&self.head);
        } else {
            start[..SHORT].copy_from_slice(&self.head[..SHORT]);
        }
        let at = (self.length - SHORT).min(N - SHORT);
        start[at..at + SHORT].copy_from_slice(&self.tail);
    }

    /// Writes it to the start of a frame, which is as long. Hot.
    #[inline(always)]
    pub fn write(&self, frame: &mut [u8]) {
        if self.length >= LONG {
            if let Some(head) = frame.first_chunk_mut() {
                *head = self.head;
            }
        } else if let (Some(head), Some(first)) = (frame.first_chunk_mut::<SHORT>(), self.head.first_chunk()) {
            *head = *first;
        }
        if let Some(tail) = frame.get_mut(self.length - SHORT..).and_then(<[u8]>::first_chunk_mut) {
            *tail = self.tail;
        }
    }
}

/// What a received header must be: the bits that matter, and what they are.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// Behind the header there are zeros.
    parts: [RegisterWords; PARTS],
    masks: [RegisterWords; PARTS],
    /// The last bytes of the header, and where they begin.
    tail: RegisterWords,
    tail_mask: RegisterWords,
    tail_at: usize,
    length: usize,
}

impl Pattern {
    /// A header of `MIN` to `MAX` bytes, of which the bits count that are set in a mask as long.
    pub fn new(header: &[u8], mask: &[u8]) -> Pattern {
        assert!((MIN..=MAX).contains(&header.len()), "a header of {} bytes", header.len());
        let tail_at = header.len() - SHORT;
        let [tail, ..] = parts(&header[tail_at..]);
        let [tail_mask, ..] = parts(&mask[tail_at..]);
        Pattern { parts: parts(header), masks: parts(mask), tail, tail_mask, tail_at, length: header.len() }
    }

    /// Whether it has more than [`LONG`] bytes. Hot.
    #[inline(always)]
    pub fn is_long(&self) -> bool {
        self.length > LONG
    }

    /// Whether a frame begins with it. Hot.
    #[inline(always)]
    pub fn is_start_of(&self, frame: &[u8]) -> bool {
        if self.is_long() {
            return frame.first_chunk::<MAX>().map_or_else(|| self.is_start_of_short(frame), |start| self.is_in(start));
        }
        let tail = frame.get(self.tail_at..).and_then(<[u8]>::first_chunk);
        let (Some(head), Some(tail)) = (frame.first_chunk(), tail) else { return false };
        let mut differences = Differences::none();
        differences.add_part(&self.parts[0], &self.masks[0], head);
        differences.add_part(&self.tail, &self.tail_mask, tail);
        differences.are_none()
    }

    /// Whether it is in as many bytes as it has, or more. Hot.
    #[inline(always)]
    fn is_in<const N: usize>(&self, start: &[u8; N]) -> bool {
        let mut differences = Differences::none();
        differences.add(self, start);
        differences.are_none()
    }

    /// As [`Pattern::is_start_of`], for a frame of any length.
    #[cold]
    fn is_start_of_short(&self, frame: &[u8]) -> bool {
        let mut start = [0; MAX];
        let length = frame.len().min(MAX);
        start[..length].copy_from_slice(&frame[..length]);
        frame.len() >= self.length && self.is_in(&start)
    }
}

/// The bits in which frames differ from a pattern, of those that matter.
#[derive(Clone, Copy, Debug)]
pub struct Differences(RegisterWords);

impl Differences {
    /// Those of no frame.
    #[inline(always)]
    pub fn none() -> Differences {
        Differences([0; _])
    }

    /// Adds those of a frame with these first bytes, [`LONG`] or [`MAX`] if the pattern is [long](Pattern::is_long). Hot.
    #[inline(always)]
    pub fn add<const N: usize>(&mut self, pattern: &Pattern, start: &[u8; N]) {
        for (at, part) in start.as_chunks().0.iter().enumerate() {
            self.add_part(&pattern.parts[at], &pattern.masks[at], part);
        }
    }

    /// Adds those of a part. Hot.
    #[inline(always)]
    fn add_part(&mut self, expected: &RegisterWords, mask: &RegisterWords, part: &[u8; SHORT]) {
        let words = part.as_chunks().0;
        for (place, different) in self.0.iter_mut().enumerate() {
            let word = u64::from_le_bytes(words[place]);
            *different |= (word ^ expected[place]) & mask[place];
        }
    }

    /// Whether there are none. Hot.
    #[inline(always)]
    pub fn are_none(&self) -> bool {
        self.0 == [0; _]
    }
}

/// Words of a part of 32 bytes: what one register has.
type RegisterWords = [u64; SHORT / 8];

/// The parts of a pattern.
const PARTS: usize = MAX / SHORT;

/// Up to `MAX` bytes as words of parts, with zeros behind them.
fn parts(bytes: &[u8]) -> [RegisterWords; PARTS] {
    let mut all = [0; MAX];
    all[..bytes.len()].copy_from_slice(bytes);
    let word = |at: usize| all.as_chunks().0.get(at).map_or(0, |word| u64::from_le_bytes(*word));
    std::array::from_fn(|part| std::array::from_fn(|at| word(part * SHORT / 8 + at)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn templates_are_written_and_patterns_compared_as_bytes_are(
            header in prop::collection::vec(any::<u8>(), MIN..=MAX),
            mask in prop::collection::vec(prop::sample::select(vec![0u8, 0xff, 0xf0, 1]), MAX),
            behind in prop::collection::vec(any::<u8>(), 0..80),
            change in prop::option::of((0usize..MAX, any::<u8>())),
            cut in 0usize..200,
        ) {
            let template = Template::new(&header);
            let mut frame = [vec![0xaa; header.len()], behind.clone()].concat();
            template.write(&mut frame);
            let written = [header.clone(), behind].concat();
            prop_assert_eq!(&frame, &written);
            let mut start = [0xaa; MAX];
            match (template.is_long(), start.first_chunk_mut::<LONG>()) {
                (false, Some(start)) => template.write_start(start),
                _ => template.write_start(&mut start),
            }
            prop_assert_eq!(&start[..header.len()], &header[..]);
            prop_assert!(start[header.len()..].iter().all(|&byte| byte == 0xaa));
            if let Some((at, byte)) = change && at < frame.len() {
                frame[at] = byte;
            }
            frame.truncate(cut.max(1));
            let mask = &mask[..header.len()];
            let is_start = frame.len() >= header.len()
                && header.iter().zip(&frame).zip(mask).all(|((one, other), mask)| (one ^ other) & mask == 0);
            prop_assert_eq!(Pattern::new(&header, mask).is_start_of(&frame), is_start);
        }
    }
}

//! Headers as words: templates of those that are sent, and patterns of those that are received.
//!
//! A header is written, or compared, as a whole: its first 32 or 64 bytes, and its last 32, which overlap them. So no
//! copy has a length that is not known to the compiler.

/// Bytes of the first part of a long header, and of the parts of a short one.
const LONG: usize = 64;
const SHORT: usize = 32;

/// The shortest and the longest header, with that of Ethernet.
pub(crate) const MIN: usize = SHORT;
pub(crate) const MAX: usize = LONG + SHORT;

/// A header to be written.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    head: [u8; LONG],
    tail: [u8; SHORT],
    length: usize,
}

impl Template {
    /// A header of [`MIN`] to [`MAX`] bytes.
    pub(crate) fn new(header: &[u8]) -> Template {
        let (head, tail) = ends(header);
        Template { head, tail, length: header.len() }
    }

    /// Writes it to the start of a frame, which is as long. Hot.
    #[inline(always)]
    pub(crate) fn write(&self, frame: &mut [u8]) {
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

/// What a received header must be.
#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    head: [Masked; LONG / 8],
    tail: [Masked; SHORT / 8],
    length: usize,
}

/// A word, and those of its bits that matter.
#[derive(Clone, Copy, Debug, Default)]
struct Masked {
    word: u64,
    mask: u64,
}

impl Masked {
    /// The bits that differ. Hot.
    #[inline(always)]
    fn differences(self, bytes: [u8; 8]) -> u64 {
        (u64::from_le_bytes(bytes) ^ self.word) & self.mask
    }
}

impl Pattern {
    /// A header of [`MIN`] to [`MAX`] bytes, of which the bits count that are set in a mask as long.
    pub(crate) fn new(header: &[u8], mask: &[u8]) -> Pattern {
        let ((head, tail), (head_mask, tail_mask)) = (ends(header), ends(mask));
        Pattern { head: masked(&head, &head_mask), tail: masked(&tail, &tail_mask), length: header.len() }
    }

    /// Whether a frame begins with it. Hot.
    #[inline(always)]
    pub(crate) fn is_start_of(&self, frame: &[u8]) -> bool {
        let Some(tail) = frame.get(self.length - SHORT..).and_then(<[u8]>::first_chunk::<SHORT>) else { return false };
        let mut differences = differences(&self.tail, tail);
        if self.length >= LONG {
            let Some(head) = frame.first_chunk::<LONG>() else { return false };
            differences |= self::differences(&self.head, head);
        } else {
            let Some(head) = frame.first_chunk::<SHORT>() else { return false };
            differences |= self::differences(&self.head, head);
        }
        differences == 0
    }
}

/// The bits in which words differ from bytes, of as many as there are of both. Hot.
#[inline(always)]
fn differences(words: &[Masked], bytes: &[u8]) -> u64 {
    words.iter().zip(bytes.as_chunks().0).fold(0, |all, (word, &bytes)| all | word.differences(bytes))
}

fn masked<const N: usize>(bytes: &[u8], mask: &[u8]) -> [Masked; N] {
    let word = |bytes: &[u8], at: usize| bytes.as_chunks().0.get(at).map_or(0, |chunk| u64::from_le_bytes(*chunk));
    std::array::from_fn(|at| Masked { word: word(bytes, at), mask: word(mask, at) })
}

/// The first bytes of a header, with zeros behind a short one, and its last ones.
fn ends(header: &[u8]) -> ([u8; LONG], [u8; SHORT]) {
    assert!((MIN..=MAX).contains(&header.len()), "a header of {} bytes", header.len());
    let (mut head, mut tail) = ([0; LONG], [0; SHORT]);
    let first = header.len().min(LONG);
    head[..first].copy_from_slice(&header[..first]);
    tail.copy_from_slice(&header[header.len() - SHORT..]);
    (head, tail)
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
            prop_assert_eq!(&frame, &[header.clone(), behind].concat());
            if let Some((at, byte)) = change && at < frame.len() {
                frame[at] = byte;
            }
            frame.truncate(cut.max(1));
            let mask = &mask[..header.len()];
            // A short header is compared in two parts of 32 bytes.
            let is_start = frame.len() >= header.len()
                && header.iter().zip(&frame).zip(mask).all(|((one, other), mask)| (one ^ other) & mask == 0);
            prop_assert_eq!(Pattern::new(&header, mask).is_start_of(&frame), is_start);
        }
    }
}

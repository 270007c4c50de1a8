//! Headers as words: templates of those that are sent, and patterns of those that are received.
//!
//! A header is written, or compared, as a whole: its first 32 or 64 bytes, and its last 32, which overlap them. So no
//! copy has a length that is not known to the compiler.

/// Bytes of the first part of a long header, and of the parts of a short one.
const LONG: usize = 64;
const SHORT: usize = 32;

/// The shortest header, with that of Ethernet.
pub const MIN: usize = SHORT;

/// The longest one.
pub const MAX: usize = LONG + SHORT;

/// A header to be written.
#[derive(Clone, Debug)]
pub struct Template {
    head: [u8; LONG],
    tail: [u8; SHORT],
    length: usize,
}

impl Template {
    /// A header of `MIN` to `MAX` bytes.
    pub fn new(header: &[u8]) -> Template {
        let (head, tail) = ends(header);
        Template { head, tail, length: header.len() }
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
#[derive(Clone, Debug)]
pub struct Pattern {
    heads: [RegisterWords; LONG / SHORT],
    head_masks: [RegisterWords; LONG / SHORT],
    tail: RegisterWords,
    tail_mask: RegisterWords,
    length: usize,
}

impl Pattern {
    /// A header of `MIN` to `MAX` bytes, of which the bits count that are set in a mask as long.
    pub fn new(header: &[u8], mask: &[u8]) -> Pattern {
        let ((head, tail), (head_mask, tail_mask)) = (ends(header), ends(mask));
        Pattern {
            heads: [words(&head[..SHORT]), words(&head[SHORT..])],
            head_masks: [words(&head_mask[..SHORT]), words(&head_mask[SHORT..])],
            tail: words(&tail),
            tail_mask: words(&tail_mask),
            length: header.len(),
        }
    }

    /// Whether a frame begins with it. Hot.
    #[inline(always)]
    pub fn is_start_of(&self, frame: &[u8]) -> bool {
        let Some(tail) = frame.get(self.length - SHORT..).and_then(<[u8]>::first_chunk::<SHORT>) else { return false };
        let Some(head) = frame.first_chunk::<SHORT>() else { return false };
        let mut all = differences(&self.tail, &self.tail_mask, tail);
        merge(&mut all, differences(&self.heads[0], &self.head_masks[0], head));
        if self.length >= LONG {
            let Some(head) = frame.get(SHORT..).and_then(<[u8]>::first_chunk) else { return false };
            merge(&mut all, differences(&self.heads[1], &self.head_masks[1], head));
        }
        all == [0; _]
    }
}

/// Words of a part of 32 bytes: what one register has.
type RegisterWords = [u64; SHORT / 8];

/// The bits in which words differ from bytes, of those in a mask. Hot.
#[inline(always)]
fn differences(words: &RegisterWords, mask: &RegisterWords, bytes: &[u8; SHORT]) -> RegisterWords {
    let bytes = bytes.as_chunks().0;
    std::array::from_fn(|at| (u64::from_le_bytes(bytes[at]) ^ words[at]) & mask[at])
}

/// Adds differences to others. Hot.
#[inline(always)]
fn merge(all: &mut RegisterWords, more: RegisterWords) {
    all.iter_mut().zip(more).for_each(|(all, more)| *all |= more);
}

/// 32 bytes as words.
fn words(bytes: &[u8]) -> RegisterWords {
    std::array::from_fn(|at| bytes.as_chunks().0.get(at).map_or(0, |chunk| u64::from_le_bytes(*chunk)))
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

//! Words that threads read and replace together, without waiting.

use crate::atomics::{AtomicU64, Ordering, fence};

/// The first word of a group: [`SeqLockHead::BITS`] bits of its own and the version of the [other words](SeqLockWords).
///
/// A thread that replaces the words makes the version odd meanwhile. A reader looks at the version before and after it
/// reads (a sequence lock), and neither waits for the other: who comes too late gives up (Boehm, "Can Seqlocks Get Along
/// With Programming Language Memory Models?", 2012). A reader would take new words for old ones if they were replaced
/// 32,768 times while it reads.
#[derive(Debug, Default)]
pub struct SeqLockHead(AtomicU64);

/// What a head was at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeqSnapshot(u64);

/// The other words of a group.
#[derive(Debug)]
pub struct SeqLockWords<const N: usize>([AtomicU64; N]);

impl<const N: usize> Default for SeqLockWords<N> {
    fn default() -> SeqLockWords<N> {
        SeqLockWords(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl SeqSnapshot {
    /// The bits of the head's own.
    #[inline(always)]
    pub fn value(self) -> u64 {
        self.0 & SeqLockHead::MASK
    }

    /// Whether the words are being replaced.
    #[inline(always)]
    pub fn is_changing(self) -> bool {
        self.0 & SeqSnapshot::CHANGING != 0
    }

    /// The bit of [`SeqSnapshot::bits`] that says so.
    pub const CHANGING: u64 = 1 << SeqLockHead::BITS;

    /// The bits of the head's own, and above them what distinguishes versions, for loops over many.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Whether the words were the same at another time.
    #[inline(always)]
    pub fn has_words_of(self, other: SeqSnapshot) -> bool {
        self.version() == other.version()
    }

    #[inline(always)]
    fn version(self) -> u64 {
        self.0 >> SeqLockHead::BITS
    }
}

impl SeqLockHead {
    /// The number of bits that a head has of its own.
    pub const BITS: u32 = 48;

    const MASK: u64 = (1 << SeqLockHead::BITS) - 1;

    /// What it is now.
    #[inline(always)]
    pub fn load(&self) -> SeqSnapshot {
        SeqSnapshot(self.0.load(Ordering::Acquire))
    }

    /// Whether the first words were these when the head was seen.
    #[inline(always)]
    pub fn belongs_to<const N: usize>(&self, seen: SeqSnapshot, words: &SeqLockWords<N>, expected: &[u64]) -> bool {
        let are_equal = words.0.iter().zip(expected).all(|(word, &expected)| word.load(Ordering::Relaxed) == expected);
        fence(Ordering::Acquire);
        are_equal && !seen.is_changing() && SeqSnapshot(self.0.load(Ordering::Relaxed)).has_words_of(seen)
    }

    /// The first words as they were when the head was seen, or `None` if they have been replaced since. Hot.
    #[inline(always)]
    pub fn read<const N: usize, const M: usize>(&self, seen: SeqSnapshot, words: &SeqLockWords<N>) -> Option<[u64; M]> {
        const { assert!(M <= N) };
        let values = std::array::from_fn(|index| words.0[index].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (!seen.is_changing() && SeqSnapshot(self.0.load(Ordering::Relaxed)).has_words_of(seen)).then_some(values)
    }

    /// The first words, and whether nothing has been replaced since the head was seen. Hot: there is no branch in it.
    #[inline(always)]
    pub fn read_if_same<const N: usize, const M: usize>(
        &self,
        seen: SeqSnapshot,
        words: &SeqLockWords<N>,
    ) -> ([u64; M], bool) {
        const { assert!(M <= N) };
        let values = std::array::from_fn(|index| words.0[index].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (values, SeqSnapshot(self.0.load(Ordering::Relaxed)) == seen)
    }

    /// Sets the bits of the head's own, unless it has changed.
    ///
    /// # Errors
    /// With what it is now.
    #[inline(always)]
    pub fn update(&self, seen: SeqSnapshot, value: u64) -> Result<(), SeqSnapshot> {
        let new = seen.0 & !SeqLockHead::MASK | value & SeqLockHead::MASK;
        // The words stay, so that what their writer released goes on with this word.
        self.0.compare_exchange(seen.0, new, Ordering::Relaxed, Ordering::Acquire).map(drop).map_err(SeqSnapshot)
    }

    /// Replaces the head and the first words, unless the head has changed or is being replaced. Returns whether it did.
    #[inline]
    pub fn replace<const N: usize>(&self, seen: SeqSnapshot, value: u64, words: &SeqLockWords<N>, new: &[u64]) -> bool {
        let changing = seen.0.wrapping_add(1 << SeqLockHead::BITS);
        if seen.is_changing()
            || self.0.compare_exchange(seen.0, changing, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return false;
        }
        // A reader that sees one of the new words sees the odd version after it.
        fence(Ordering::Release);
        words.0.iter().zip(new).for_each(|(word, &new)| word.store(new, Ordering::Relaxed));
        let version = changing.wrapping_add(1 << SeqLockHead::BITS) & !SeqLockHead::MASK;
        self.0.store(version | value & SeqLockHead::MASK, Ordering::Release);
        true
    }
}

//! Tables that decide whether a number is in a set, in a few loads and without a branch.

use bellows_arena::Fixed;

use crate::plan::values::{FastMap, Interval};

/// Words of tables, one behind the other.
#[derive(Default)]
pub(super) struct Tables {
    words: Vec<u32>,
}

/// Three levels: 16, 8 and 8 bits of the number. Offsets in bytes from the start of all tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trie {
    /// Numbers of blocks of the second level, 2 bytes each, by the high 16 bits.
    pub top: usize,
    /// Blocks of 256 numbers of blocks of the third level, 2 bytes each, by the next 8 bits.
    pub middle: usize,
    /// Blocks of 256 bits, by the low 8 bits.
    pub bottom: usize,
}

/// A hash table of tuples. Offsets in bytes from the start of all tables.
#[derive(Clone, Copy, Debug)]
pub(super) struct TupleTable {
    /// The hash of the tuple in each slot.
    pub hashes: usize,
    /// The words of the tuple in each slot, 16 bytes each, in the order of the packet's bytes.
    pub tuples: usize,
    /// Slots, a power of two.
    pub slots: usize,
    /// Where the hash starts.
    pub seed: u32,
}

/// The second place of a tuple in a table: these bits of its hash.
pub(super) const SECOND_PLACE: u32 = 16;

/// The maximum number of slots: two places need as many bits of the hash.
const MAX_SLOTS: usize = 1 << SECOND_PLACE;

impl Tables {
    /// The words of all tables: on huge pages, because packets come to any of them.
    pub(super) fn into_words(self) -> Fixed<[u32]> {
        self.words.into()
    }

    pub(super) fn add(&mut self, words: impl IntoIterator<Item = u32>) -> usize {
        // Each table starts at a cache line.
        self.words.resize(self.words.len().next_multiple_of(16), 0);
        let start = self.words.len();
        self.words.extend(words);
        start * size_of::<u32>()
    }

    fn add_halves(&mut self, halves: &[u16]) -> usize {
        self.add(halves.chunks(2).map(|pair| u32::from(pair[0]) | u32::from(*pair.get(1).unwrap_or(&0)) << 16))
    }

    /// A bit for each number up to `max`.
    pub(super) fn bitmap(&mut self, set: &[Interval], max: u32) -> usize {
        let mut words = vec![0; max as usize / 32 + 1];
        for &(low, high) in set.iter().filter(|(low, _)| *low <= max) {
            for number in low..=high.min(max) {
                words[number as usize / 32] |= 1 << (number % 32);
            }
        }
        self.add(words)
    }

    /// A trie; `None` if it needs too many blocks.
    pub(super) fn trie(&mut self, set: &[Interval]) -> Option<Trie> {
        let mut builder = TrieBuilder::default();
        let mut top = vec![0; 1 << 16];
        for &(low, high) in set {
            let (first, last) = (low >> 16, high >> 16);
            let whole_from = if low & 0xffff == 0 { first } else { first + 1 };
            let whole_to = if high & 0xffff == 0xffff { last + 1 } else { last };
            for chunk in whole_from..whole_to.max(whole_from) {
                top[chunk as usize] = 1;
            }
        }
        // Chunks that are neither whole nor empty.
        let mut at = 0;
        while let Some(&(low, high)) = set.get(at) {
            for chunk in [low >> 16, high >> 16] {
                if top[chunk as usize] == 0 {
                    let from = set.partition_point(|&(_, high)| high >> 16 < chunk);
                    let to = set.partition_point(|&(low, _)| low >> 16 <= chunk);
                    top[chunk as usize] = builder.middle_block(&set[from..to], chunk << 16)?;
                }
            }
            at += 1;
        }
        Some(Trie {
            top: self.add_halves(&top),
            middle: self.add_halves(&builder.middle),
            bottom: self.add(builder.bottom),
        })
    }

    /// A table of tuples, whose words are as a packet's bytes, read with the lowest one first. `None` if there are too
    /// many, or if their hashes do not distinguish them.
    pub(super) fn tuples(&mut self, tuples: &[Vec<u32>], hash: impl Fn(u32, &[u32]) -> u32) -> Option<TupleTable> {
        let slots = (tuples.len() * 5 / 2).next_power_of_two().max(4);
        if slots > MAX_SLOTS {
            return None;
        }
        (1..32u32).find_map(|round| {
            let seed = round.wrapping_mul(0x9e37_79b9);
            let places = placed(tuples, slots, |tuple| hash(seed, tuple))?;
            // A free slot has a hash that leads to other slots.
            let free = |slot: usize| (slot as u32 ^ 1) * 0x1_0001;
            let hashes = places.iter().enumerate().map(|(slot, place)| match place {
                Some(tuple) => hash(seed, &tuples[*tuple]),
                None => free(slot),
            });
            let hashes: Vec<u32> = hashes.collect();
            let words = places.iter().flat_map(|place| {
                let words: &[u32] = place.map_or(&[], |tuple| &tuples[tuple]);
                (0..4).map(move |word| words.get(word).copied().unwrap_or(0))
            });
            let words: Vec<u32> = words.collect();
            Some(TupleTable { hashes: self.add(hashes), tuples: self.add(words), slots, seed })
        })
    }
}

/// The tuple in each slot: each in one of its two places. `None` if that is not possible.
fn placed(tuples: &[Vec<u32>], slots: usize, hash: impl Fn(&[u32]) -> u32) -> Option<Vec<Option<usize>>> {
    const MAX_MOVES: usize = 200;
    let hashes: Vec<u32> = tuples.iter().map(|tuple| hash(tuple)).collect();
    let mut sorted = hashes.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return None;
    }
    let places = |tuple: usize| {
        let hash = hashes[tuple];
        [hash, hash >> SECOND_PLACE].map(|place| place as usize & (slots - 1))
    };
    let mut table = vec![None; slots];
    for tuple in 0..tuples.len() {
        let (mut tuple, mut place) = (tuple, places(tuple)[0]);
        let mut moves = 0;
        while let Some(other) = table[place].replace(tuple) {
            moves += 1;
            if moves > MAX_MOVES {
                return None;
            }
            tuple = other;
            let [first, second] = places(other);
            place = if place == first { second } else { first };
        }
    }
    Some(table)
}

/// The blocks of a trie. The first one of each level is empty, the second one full.
struct TrieBuilder {
    middle: Vec<u16>,
    bottom: Vec<u32>,
    known_middle: FastMap<Vec<u16>, u16>,
    known_bottom: FastMap<[u32; 8], u16>,
}

impl Default for TrieBuilder {
    fn default() -> TrieBuilder {
        let middle = [[0; 256], [1; 256]].concat();
        let bottom = [[0; 8], [u32::MAX; 8]].concat();
        let known_middle = [(vec![0; 256], 0), (vec![1; 256], 1)].into_iter().collect();
        let known_bottom = [([0; 8], 0), ([u32::MAX; 8], 1)].into_iter().collect();
        TrieBuilder { middle, bottom, known_middle, known_bottom }
    }
}

impl TrieBuilder {
    /// The block of the 65,536 numbers from `base` on.
    fn middle_block(&mut self, set: &[Interval], base: u32) -> Option<u16> {
        let mut block = vec![0; 256];
        for &(low, high) in set {
            let (low, high) = (low.max(base), high.min(base | 0xffff));
            for chunk in low >> 8..=high >> 8 {
                let index = chunk as usize & 0xff;
                let (from, to) = (chunk << 8, chunk << 8 | 0xff);
                if low <= from && to <= high {
                    block[index] = 1;
                } else if block[index] == 0 {
                    block[index] = self.bottom_block(set, from)?;
                }
            }
        }
        if let Some(&known) = self.known_middle.get(&block) {
            return Some(known);
        }
        let number = u16::try_from(self.middle.len() / 256).ok()?;
        self.middle.extend_from_slice(&block);
        self.known_middle.insert(block, number);
        Some(number)
    }

    /// The block of the 256 numbers from `base` on.
    fn bottom_block(&mut self, set: &[Interval], base: u32) -> Option<u16> {
        let mut bits = [0; 8];
        let from = set.partition_point(|&(_, high)| high < base);
        for &(low, high) in set[from..].iter().take_while(|(low, _)| *low <= base | 0xff) {
            for number in low.max(base)..=high.min(base | 0xff) {
                bits[(number & 0xff) as usize / 32] |= 1 << (number % 32);
            }
        }
        if let Some(&known) = self.known_bottom.get(&bits) {
            return Some(known);
        }
        let number = u16::try_from(self.bottom.len() / 8).ok()?;
        self.bottom.extend_from_slice(&bits);
        self.known_bottom.insert(bits, number);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn half(words: &[u32], offset: usize, index: usize) -> u16 {
        (words[offset / 4 + index / 2] >> (16 * (index % 2))) as u16
    }

    fn is_in(words: &[u32], trie: Trie, number: u32) -> bool {
        let middle = usize::from(half(words, trie.top, (number >> 16) as usize));
        let bottom = usize::from(half(words, trie.middle, middle * 256 + (number >> 8 & 0xff) as usize));
        words[trie.bottom / 4 + bottom * 8 + (number & 0xff) as usize / 32] >> (number % 32) & 1 == 1
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_trie_holds_its_set(
            starts in vec((any::<u32>(), 0u32..27), 1..40), near in vec((0usize..40, -3i64..3), 0..100),
        ) {
            let mut set: Vec<Interval> =
                starts.iter().map(|&(low, bits)| (low, low.saturating_add((1 << bits) - 1))).collect();
            set.sort_unstable();
            set.dedup_by(|next, last| {
                let touches = next.0 <= last.1.saturating_add(1);
                last.1 = if touches { last.1.max(next.1) } else { last.1 };
                touches
            });
            let mut tables = Tables::default();
            tables.bitmap(&[(3, 7)], 100);
            let trie = tables.trie(&set).unwrap();
            let words = tables.into_words();
            let edges = set.iter().flat_map(|&(low, high)| [low, high, low.wrapping_sub(1), high.wrapping_add(1)]);
            let near = near.iter().map(|&(at, by)| (i64::from(set[at % set.len()].0) + by) as u32);
            for number in edges.chain(near).chain([0, u32::MAX]) {
                let expected = set.iter().any(|&(low, high)| (low..=high).contains(&number));
                prop_assert_eq!(is_in(&words, trie, number), expected, "{}", number);
            }
        }
    }
}

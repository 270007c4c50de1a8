//! The search within a node of a tree, and what else is done on many keys at a time.

use crate::entry::BATCH;

/// The words of a node: one of its own, then separators.
pub(crate) const WORDS: usize = 16;

/// A number for each key of a batch, and room for a vector to reach beyond the last one.
pub(crate) type Column = [u32; BATCH + WORDS];

/// How nodes are searched, and which keys go on.
pub(crate) trait Search {
    /// How many of the separators, all words but the first, are below `key`. Hot.
    fn rank(node: &[u32; WORDS], key: u32) -> u32;

    /// Keeps those of the first `count` keys that have a bit in the first column: moves their numbers to the front of all
    /// columns, in order. Returns how many there are. Hot.
    ///
    /// A vector at a time, also because a store to a place that depends on all loads before would hold up later loads.
    #[inline(always)]
    fn keep<const COLUMNS: usize>(bit: u32, mut columns: [&mut Column; COLUMNS], count: usize) -> usize {
        let mut left = 0;
        for at in 0..count.min(BATCH) {
            let stays = columns[0][at] & bit != 0;
            columns.iter_mut().for_each(|column| column[left] = column[at]);
            left += usize::from(stays);
        }
        left
    }
}

/// For every processor.
pub(crate) struct Baseline;

impl Search for Baseline {
    #[inline(always)]
    fn rank(node: &[u32; WORDS], key: u32) -> u32 {
        node[1..].iter().map(|&separator| u32::from(separator < key)).sum()
    }
}

/// For processors with AVX2. Used only in functions that are compiled for these.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Search for Avx2 {
    #[inline(always)]
    fn rank(node: &[u32; WORDS], key: u32) -> u32 {
        // SAFETY: the processor has AVX2 wherever this is used.
        unsafe { rank_avx2(node, key) }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn rank_avx2(node: &[u32; WORDS], key: u32) -> u32 {
    use std::arch::x86_64::*;
    let key = _mm256_set1_epi32(key.cast_signed());
    let is_not_below = |half: &[u32]| {
        // SAFETY: the load is of half a node, which is as long.
        let words = unsafe { _mm256_loadu_si256(half.as_ptr().cast()) };
        // A separator is not below the key where it is the maximum.
        let equal = _mm256_cmpeq_epi32(_mm256_max_epu32(words, key), words);
        _mm256_movemask_ps(_mm256_castsi256_ps(equal)).cast_unsigned()
    };
    let (low, high) = node.split_at(WORDS / 2);
    let are_not_below = is_not_below(low) | is_not_below(high) << (WORDS / 2);
    (!are_not_below & 0xfffe).count_ones()
}

/// For processors with AVX-512. Used only in functions that are compiled for these.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Search for Avx512 {
    #[inline(always)]
    fn rank(node: &[u32; WORDS], key: u32) -> u32 {
        // SAFETY: the processor has AVX-512 wherever this is used.
        unsafe { rank_avx512(node, key) }
    }

    #[inline(always)]
    fn keep<const COLUMNS: usize>(bit: u32, columns: [&mut Column; COLUMNS], count: usize) -> usize {
        // SAFETY: as above.
        unsafe { keep_avx512(bit, columns, count) }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,popcnt,bmi2")]
#[inline]
fn keep_avx512<const COLUMNS: usize>(bit: u32, mut columns: [&mut Column; COLUMNS], count: usize) -> usize {
    use std::arch::x86_64::*;
    let count = count.min(BATCH);
    let bit = _mm512_set1_epi32(bit.cast_signed());
    let mut left = 0;
    for at in (0..count).step_by(WORDS) {
        let present = u32::MAX.checked_shr(32_u32.saturating_sub((count - at) as u32)).unwrap_or(0) as u16;
        // SAFETY: the vector begins in front of a key, and a column is a vector longer than that.
        let first = unsafe { _mm512_loadu_si512(columns[0].as_ptr().add(at).cast()) };
        let stays = _mm512_test_epi32_mask(first, bit) & present;
        for column in &mut columns {
            // SAFETY: as above; no more have been kept than were there.
            unsafe {
                let words = _mm512_loadu_si512(column.as_ptr().add(at).cast());
                _mm512_storeu_si512(column.as_mut_ptr().add(left).cast(), _mm512_maskz_compress_epi32(stays, words));
            }
        }
        left += stays.count_ones() as usize;
    }
    left
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,popcnt")]
#[inline]
fn rank_avx512(node: &[u32; WORDS], key: u32) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: the load is of a node, which is as long.
    let words = unsafe { _mm512_loadu_si512(node.as_ptr().cast()) };
    let key = _mm512_set1_epi32(key.cast_signed());
    u32::from(_mm512_mask_cmplt_epu32_mask(0xfffe, words, key)).count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_keep_alike() {
        let mut random = fastrand::Rng::with_seed(6);
        for _ in 0..2_000 {
            let columns: [Column; 2] = std::array::from_fn(|_| std::array::from_fn(|_| random.u32(..)));
            let (count, bit) = (random.usize(..=BATCH), 1 << random.u32(..32));
            let kept: Vec<usize> = (0..count).filter(|&at| columns[0][at] & bit != 0).collect();
            let check = |keep: fn(u32, [&mut Column; 2], usize) -> usize| {
                let [mut one, mut other] = columns;
                assert_eq!(keep(bit, [&mut one, &mut other], count), kept.len());
                for (place, &at) in kept.iter().enumerate() {
                    assert_eq!((one[place], other[place]), (columns[0][at], columns[1][at]));
                }
            };
            check(Baseline::keep);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("bmi2") {
                check(Avx512::keep);
            }
        }
    }

    #[test]
    fn all_ways_rank_alike() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..2_000 {
            let spread = random.u32(1..=32);
            let mut node: [u32; WORDS] = std::array::from_fn(|_| random.u32(..) >> (32 - spread));
            node[1..].sort_unstable();
            node[random.usize(1..WORDS)..].fill(u32::MAX);
            for key in node.into_iter().flat_map(|word| [word, word.wrapping_add(1)]).chain([0, u32::MAX]) {
                let rank = Baseline::rank(&node, key);
                assert_eq!(rank as usize, node[1..].partition_point(|&separator| separator < key));
                #[cfg(target_arch = "x86_64")]
                {
                    assert!(!is_x86_feature_detected!("avx2") || Avx2::rank(&node, key) == rank);
                    assert!(!is_x86_feature_detected!("avx512f") || Avx512::rank(&node, key) == rank);
                }
            }
        }
    }
}

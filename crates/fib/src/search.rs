//! The search within a node of a tree.

/// The words of a node: one of its own, then separators.
pub(crate) const WORDS: usize = 16;

/// How a node is searched.
pub(crate) trait Search {
    /// How many of the separators, all words but the first, are below `key`. Hot.
    fn rank(node: &[u32; WORDS], key: u32) -> u32;
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
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,popcnt")]
#[inline]
fn rank_avx512(node: &[u32; WORDS], key: u32) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: the load is of a node, which is as long.
    let words = unsafe { _mm512_loadu_si512(node.as_ptr().cast()) };
    let are_below = _mm512_cmplt_epu32_mask(words, _mm512_set1_epi32(key.cast_signed()));
    (u32::from(are_below) >> 1).count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! The search within a node of a tree.

/// How a node is searched.
pub(crate) trait Search {
    /// How many of the numbers, which ascend, are not above `key`. Hot.
    fn rank<const COUNT: usize>(numbers: &[u32; COUNT], key: u32) -> u32;
}

/// For every processor.
pub(crate) struct Baseline;

impl Search for Baseline {
    #[inline(always)]
    fn rank<const COUNT: usize>(numbers: &[u32; COUNT], key: u32) -> u32 {
        numbers.iter().map(|&number| u32::from(number <= key)).sum()
    }
}

/// For processors with AVX2. Used only in functions that are compiled for these.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Search for Avx2 {
    #[inline(always)]
    fn rank<const COUNT: usize>(numbers: &[u32; COUNT], key: u32) -> u32 {
        let (eights, rest) = numbers.as_chunks::<8>();
        // SAFETY: the processor has AVX2 wherever this is used.
        let ranks = eights.iter().map(|eight| unsafe { rank_of_eight(eight, key) });
        ranks.sum::<u32>() + rest.iter().map(|&number| u32::from(number <= key)).sum::<u32>()
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn rank_of_eight(numbers: &[u32; 8], key: u32) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: the load is of the array.
    let numbers = unsafe { _mm256_loadu_si256(numbers.as_ptr().cast()) };
    let key = _mm256_set1_epi32(key.cast_signed());
    // A number is not above the key where the key is the maximum.
    let is_at_most = _mm256_cmpeq_epi32(_mm256_max_epu32(numbers, key), key);
    _mm256_movemask_ps(_mm256_castsi256_ps(is_at_most)).count_ones()
}

//! The search within a line of separators, and what else is done on many keys at a time.

use crate::entry::BATCH;

/// The words of a vector.
pub(crate) const WORDS: usize = 16;

/// A number for each key of a batch, and room for a vector to reach beyond the last one.
pub(crate) type Column = [u32; BATCH + WORDS];

/// How lines of separators are searched, and which keys go on.
pub(crate) trait Search {
    /// How many of 16 or 32 separators are below `key`. Hot.
    fn rank<const SEPARATORS: usize>(separators: &[u16; SEPARATORS], key: u16) -> u32;

    /// Keeps those of the first `count` keys whose number in the first column has this value under the mask: moves their
    /// numbers to the front of all columns, in order. Returns how many there are. Hot.
    ///
    /// A vector at a time, also because a store to a place that depends on all loads before would hold up later loads.
    #[inline(always)]
    fn keep<const COLUMNS: usize>(
        (mask, value): (u32, u32),
        mut columns: [&mut Column; COLUMNS],
        count: usize,
    ) -> usize {
        let mut left = 0;
        for at in 0..count.min(BATCH) {
            let stays = columns[0][at] & mask == value;
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
    fn rank<const SEPARATORS: usize>(separators: &[u16; SEPARATORS], key: u16) -> u32 {
        separators.iter().map(|&separator| u32::from(separator < key)).sum()
    }
}

/// For processors with AVX2. Used only in functions that are compiled for these.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx2;

#[cfg(target_arch = "x86_64")]
impl Search for Avx2 {
    #[inline(always)]
    fn rank<const SEPARATORS: usize>(separators: &[u16; SEPARATORS], key: u16) -> u32 {
        // SAFETY: the processor has AVX2 wherever this is used.
        separators.as_chunks().0.iter().map(|part| unsafe { rank_avx2(part, key) }).sum()
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn rank_avx2(separators: &[u16; 16], key: u16) -> u32 {
    use std::arch::x86_64::*;
    let key = _mm256_set1_epi16(key.cast_signed());
    // SAFETY: the load is of all separators.
    let separators = unsafe { _mm256_loadu_si256(separators.as_ptr().cast()) };
    // A separator is not below the key where it is the maximum.
    let are_not_below = _mm256_cmpeq_epi16(_mm256_max_epu16(separators, key), separators);
    // Two bits for each of them.
    (!_mm256_movemask_epi8(are_not_below)).count_ones() / 2
}

/// For processors with AVX-512. Used only in functions that are compiled for these.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Search for Avx512 {
    #[inline(always)]
    fn rank<const SEPARATORS: usize>(separators: &[u16; SEPARATORS], key: u16) -> u32 {
        // SAFETY: the processor has AVX-512 wherever this is used.
        match separators.as_chunks().0 {
            [all] => unsafe { rank_avx512(all, key) },
            parts => parts.iter().map(|part| unsafe { rank_avx512(part, key) }).sum(),
        }
    }

    #[inline(always)]
    fn keep<const COLUMNS: usize>(wanted: (u32, u32), columns: [&mut Column; COLUMNS], count: usize) -> usize {
        // SAFETY: as above.
        unsafe { keep_avx512(wanted, columns, count) }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,popcnt,bmi2")]
#[inline]
fn keep_avx512<const COLUMNS: usize>(
    (mask, value): (u32, u32),
    mut columns: [&mut Column; COLUMNS],
    count: usize,
) -> usize {
    use std::arch::x86_64::*;
    let count = count.min(BATCH);
    let (mask, value) = (_mm512_set1_epi32(mask.cast_signed()), _mm512_set1_epi32(value.cast_signed()));
    let mut left = 0;
    for at in (0..count).step_by(WORDS) {
        let present = u32::MAX.checked_shr(32_u32.saturating_sub((count - at) as u32)).unwrap_or(0) as u16;
        // SAFETY: the vector begins in front of a key, and a column is a vector longer than that.
        let first = unsafe { _mm512_loadu_si512(columns[0].as_ptr().add(at).cast()) };
        let stays = _mm512_cmpeq_epi32_mask(_mm512_and_si512(first, mask), value) & present;
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
#[target_feature(enable = "avx512f,avx512bw,avx512vl,popcnt")]
#[inline]
fn rank_avx512(separators: &[u16; 16], key: u16) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: the load is of all separators.
    let separators = unsafe { _mm256_loadu_si256(separators.as_ptr().cast()) };
    u32::from(_mm256_cmplt_epu16_mask(separators, _mm256_set1_epi16(key.cast_signed()))).count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_keep_alike() {
        let mut random = fastrand::Rng::with_seed(6);
        for _ in 0..2_000 {
            let columns: [Column; 2] = std::array::from_fn(|_| std::array::from_fn(|_| random.u32(..)));
            let (count, mask) = (random.usize(..=BATCH), 3 << random.u32(..31));
            let value = random.u32(..) & mask;
            let kept: Vec<usize> = (0..count).filter(|&at| columns[0][at] & mask == value).collect();
            let check = |keep: fn((u32, u32), [&mut Column; 2], usize) -> usize| {
                let [mut one, mut other] = columns;
                assert_eq!(keep((mask, value), [&mut one, &mut other], count), kept.len());
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

    fn check_ranks<const SEPARATORS: usize>() {
        let mut random = fastrand::Rng::with_seed(5);
        for _ in 0..2_000 {
            let spread = random.u32(1..=16);
            let mut separators: [u16; SEPARATORS] = std::array::from_fn(|_| random.u16(..) >> (16 - spread));
            separators.sort_unstable();
            separators[random.usize(1..SEPARATORS)..].fill(u16::MAX);
            for key in separators.into_iter().flat_map(|word| [word, word.wrapping_add(1)]).chain([0, u16::MAX]) {
                let rank = Baseline::rank(&separators, key);
                assert_eq!(rank as usize, separators.partition_point(|&separator| separator < key));
                #[cfg(target_arch = "x86_64")]
                {
                    assert!(!is_x86_feature_detected!("avx2") || Avx2::rank(&separators, key) == rank);
                    assert!(!is_x86_feature_detected!("avx512bw") || Avx512::rank(&separators, key) == rank);
                }
            }
        }
    }

    #[test]
    fn all_ways_rank_alike() {
        check_ranks::<16>();
        check_ranks::<32>();
    }
}

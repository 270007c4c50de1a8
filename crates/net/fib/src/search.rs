//! The search within a line of separators, and what else is done on many keys at a time.

use crate::entry::BATCH;

/// The words of a vector.
pub(crate) const WORDS: usize = 16;

/// A number for each key of a batch.
pub(crate) type Column = [u32; BATCH];

/// Places of keys in a batch, and room for a vector behind the last one.
pub(crate) type Places = [u32; BATCH + WORDS];

/// How lines of separators are searched, and the keys of a step found.
pub(crate) trait Search {
    /// How many of 16 or 32 separators are below `key`. Hot.
    fn rank<const SEPARATORS: usize>(separators: &[u16; SEPARATORS], key: u16) -> u32;

    /// How many of the first numbers, as many as `COUNT`, are below `key`. Hot.
    fn rank_of_first<const COUNT: usize>(numbers: &[u16; 16], key: u16) -> u32;

    /// Does work out of line, with the same instructions: what is rare must not take registers from what is not.
    fn apart<R>(work: impl FnOnce() -> R) -> R;

    /// Writes bits 0 to 31 and 32 to 63 of as many keys as a batch has, counted from the highest. Hot.
    #[inline(always)]
    fn split(keys: &[u128], high: &mut Column, low: &mut Column) {
        split_each(keys, high, low);
    }

    /// Writes the places of those numbers of a column that have this value under the mask, in order. Returns how many there
    /// are. Hot.
    #[inline(always)]
    fn places((mask, value): (u32, u32), column: &Column, places: &mut Places) -> usize {
        let mut count = 0;
        for (at, number) in column.iter().enumerate() {
            places[count] = at as u32;
            count += usize::from(number & mask == value);
        }
        count
    }
}

/// Splits keys one by one.
#[inline(always)]
fn split_each(keys: &[u128], high: &mut [u32], low: &mut [u32]) {
    for ((&key, high), low) in keys.iter().zip(high).zip(low) {
        (*high, *low) = ((key >> 96) as u32, (key >> 64) as u32);
    }
}

/// For every processor.
pub(crate) struct Baseline;

impl Search for Baseline {
    #[inline(always)]
    fn rank<const SEPARATORS: usize>(separators: &[u16; SEPARATORS], key: u16) -> u32 {
        separators.iter().map(|&separator| u32::from(separator < key)).sum()
    }

    #[inline(always)]
    fn rank_of_first<const COUNT: usize>(numbers: &[u16; 16], key: u16) -> u32 {
        numbers.iter().take(COUNT).map(|&number| u32::from(number < key)).sum()
    }

    #[inline(never)]
    fn apart<R>(work: impl FnOnce() -> R) -> R {
        work()
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
        separators.as_chunks().0.iter().map(|part| unsafe { below_avx2(part, key) }.count_ones() / 2).sum()
    }

    #[inline(always)]
    fn rank_of_first<const COUNT: usize>(numbers: &[u16; 16], key: u16) -> u32 {
        // SAFETY: as above.
        (unsafe { below_avx2(numbers, key) } & ((1 << (2 * COUNT)) - 1)).count_ones() / 2
    }

    #[inline(always)]
    fn split(keys: &[u128], high: &mut Column, low: &mut Column) {
        // SAFETY: as above.
        unsafe { split_avx2(keys, high, low) }
    }

    #[inline(always)]
    fn places(wanted: (u32, u32), column: &Column, places: &mut Places) -> usize {
        // SAFETY: as above.
        unsafe { places_avx2(wanted, column, places) }
    }

    #[inline(always)]
    fn apart<R>(work: impl FnOnce() -> R) -> R {
        // SAFETY: as above.
        unsafe { apart_avx2(work) }
    }
}

/// The places of the bits that are set in a byte.
#[cfg(target_arch = "x86_64")]
static SET: [[u8; 8]; 256] = {
    let mut all = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut count) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 != 0 {
                all[byte][count] = bit as u8;
                count += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    all
};

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn places_avx2((mask, value): (u32, u32), column: &Column, places: &mut Places) -> usize {
    use std::arch::x86_64::*;
    let (mask, value) = (_mm256_set1_epi32(mask.cast_signed()), _mm256_set1_epi32(value.cast_signed()));
    let mut count = 0;
    for at in (0..BATCH).step_by(8) {
        // SAFETY: the vector is in front of the end of a batch.
        let numbers = unsafe { _mm256_loadu_si256(column.as_ptr().add(at).cast()) };
        let wanted = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(numbers, mask), value));
        let wanted = _mm256_movemask_ps(wanted) as u8;
        // SAFETY: the load is of all eight places; no more were found than were looked at, and there is room for a vector
        // more.
        unsafe {
            let set = _mm256_cvtepu8_epi32(_mm_loadl_epi64(SET[usize::from(wanted)].as_ptr().cast()));
            let here = _mm256_add_epi32(set, _mm256_set1_epi32(at as i32));
            _mm256_storeu_si256(places.as_mut_ptr().add(count).cast(), here);
        }
        count += wanted.count_ones() as usize;
    }
    count
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn split_avx2(keys: &[u128], high: &mut Column, low: &mut Column) {
    use std::arch::x86_64::*;
    // Of two halves of a vector, the words in turns; then in their order.
    let order = _mm256_setr_epi32(1, 5, 3, 7, 0, 4, 2, 6);
    let (whole, rest) = keys.as_chunks::<4>();
    for (at, keys) in whole.iter().take(BATCH / 4).enumerate() {
        // SAFETY: the loads are of four keys, and the stores of four numbers before the end of a batch.
        unsafe {
            let (first, second) = (keys.as_ptr().cast(), keys.as_ptr().add(2).cast());
            let (first, second) = (_mm256_loadu_si256(first), _mm256_loadu_si256(second));
            // The upper halves of the keys 0, 2, 1 and 3.
            let split = _mm256_permutevar8x32_epi32(_mm256_unpackhi_epi64(first, second), order);
            _mm_storeu_si128(high.as_mut_ptr().add(4 * at).cast(), _mm256_castsi256_si128(split));
            _mm_storeu_si128(low.as_mut_ptr().add(4 * at).cast(), _mm256_extracti128_si256::<1>(split));
        }
    }
    split_each(rest, &mut high[4 * whole.len()..], &mut low[4 * whole.len()..]);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2,popcnt")]
#[inline(never)]
fn apart_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Two bits for each separator, which are set if it is below `key`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,popcnt")]
#[inline]
fn below_avx2(separators: &[u16; 16], key: u16) -> u32 {
    use std::arch::x86_64::*;
    let key = _mm256_set1_epi16(key.cast_signed());
    // SAFETY: the load is of all separators.
    let separators = unsafe { _mm256_loadu_si256(separators.as_ptr().cast()) };
    // A separator is not below the key where it is the maximum.
    let are_not_below = _mm256_cmpeq_epi16(_mm256_max_epu16(separators, key), separators);
    !_mm256_movemask_epi8(are_not_below).cast_unsigned()
}

/// For processors with AVX-512. Used only in functions that are compiled for these.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Avx512;

#[cfg(target_arch = "x86_64")]
impl Search for Avx512 {
    #[inline(always)]
    fn rank<const SEPARATORS: usize>(separators: &[u16; SEPARATORS], key: u16) -> u32 {
        // SAFETY: the processor has AVX-512 wherever this is used.
        unsafe {
            match separators.first_chunk::<32>() {
                Some(all) if SEPARATORS == 32 => rank_of_32(all, key),
                _ => separators.as_chunks().0.iter().map(|part| below_avx512(part, key).count_ones()).sum(),
            }
        }
    }

    #[inline(always)]
    fn rank_of_first<const COUNT: usize>(numbers: &[u16; 16], key: u16) -> u32 {
        // SAFETY: as above.
        (unsafe { below_avx512(numbers, key) } & ((1 << COUNT) - 1)).count_ones()
    }

    #[inline(always)]
    fn apart<R>(work: impl FnOnce() -> R) -> R {
        // SAFETY: as above.
        unsafe { apart_avx512(work) }
    }

    #[inline(always)]
    fn split(keys: &[u128], high: &mut Column, low: &mut Column) {
        // SAFETY: as above.
        unsafe { split_avx512(keys, high, low) }
    }

    #[inline(always)]
    fn places(wanted: (u32, u32), column: &Column, places: &mut Places) -> usize {
        // SAFETY: as above.
        unsafe { places_avx512(wanted, column, places) }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,popcnt")]
#[inline]
fn places_avx512((mask, value): (u32, u32), column: &Column, places: &mut Places) -> usize {
    use std::arch::x86_64::*;
    let (mask, value) = (_mm512_set1_epi32(mask.cast_signed()), _mm512_set1_epi32(value.cast_signed()));
    let mut here = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let mut count = 0;
    for at in (0..BATCH).step_by(WORDS) {
        // SAFETY: the vector is in front of the end of a batch.
        let numbers = unsafe { _mm512_loadu_si512(column.as_ptr().add(at).cast()) };
        let wanted = _mm512_cmpeq_epi32_mask(_mm512_and_si512(numbers, mask), value);
        // SAFETY: no more were found than were looked at, and there is room for a vector more.
        unsafe {
            let place = places.as_mut_ptr().add(count).cast();
            _mm512_storeu_si512(place, _mm512_maskz_compress_epi32(wanted, here));
        }
        count += wanted.count_ones() as usize;
        here = _mm512_add_epi32(here, _mm512_set1_epi32(WORDS as i32));
    }
    count
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
#[inline]
fn split_avx512(keys: &[u128], high: &mut Column, low: &mut Column) {
    use std::arch::x86_64::*;
    // Of two vectors of four keys each, the words with the highest bits, then those below.
    let words = _mm512_setr_epi32(3, 7, 11, 15, 19, 23, 27, 31, 2, 6, 10, 14, 18, 22, 26, 30);
    let (whole, rest) = keys.as_chunks::<8>();
    for (at, keys) in whole.iter().take(BATCH / 8).enumerate() {
        // SAFETY: the loads are of eight keys, and the stores of eight numbers before the end of a batch.
        unsafe {
            let (first, second) = (keys.as_ptr().cast(), keys.as_ptr().add(4).cast());
            let split = _mm512_permutex2var_epi32(_mm512_loadu_si512(first), words, _mm512_loadu_si512(second));
            _mm256_storeu_si256(high.as_mut_ptr().add(8 * at).cast(), _mm512_castsi512_si256(split));
            _mm256_storeu_si256(low.as_mut_ptr().add(8 * at).cast(), _mm512_extracti64x4_epi64::<1>(split));
        }
    }
    split_each(rest, &mut high[8 * whole.len()..], &mut low[8 * whole.len()..]);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx2,bmi2,popcnt")]
#[inline(never)]
fn apart_avx512<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// A bit for each separator, which is set if it is below `key`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
fn below_avx512(separators: &[u16; 16], key: u16) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: the load is of all separators.
    let separators = unsafe { _mm256_loadu_si256(separators.as_ptr().cast()) };
    _mm256_cmplt_epu16_mask(separators, _mm256_set1_epi16(key.cast_signed())).into()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,popcnt")]
#[inline]
fn rank_of_32(separators: &[u16; 32], key: u16) -> u32 {
    use std::arch::x86_64::*;
    // SAFETY: the load is of all separators.
    let separators = unsafe { _mm512_loadu_si512(separators.as_ptr().cast()) };
    _mm512_cmplt_epu16_mask(separators, _mm512_set1_epi16(key.cast_signed())).count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_find_the_same_places() {
        let mut random = fastrand::Rng::with_seed(6);
        for _ in 0..2_000 {
            let column: Column = std::array::from_fn(|_| random.u32(..));
            let mask = 3 << random.u32(..31);
            let value = random.u32(..) & mask;
            let expected: Vec<u32> = (0..BATCH as u32).filter(|&at| column[at as usize] & mask == value).collect();
            let check = |find: fn((u32, u32), &Column, &mut Places) -> usize| {
                let mut places: Places = [0; _];
                let count = find((mask, value), &column, &mut places);
                assert_eq!(places[..count], expected);
            };
            check(Baseline::places);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt") {
                check(Avx2::places);
            }
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx512f") {
                check(Avx512::places);
            }
        }
    }

    #[test]
    fn all_ways_split_alike() {
        let mut random = fastrand::Rng::with_seed(7);
        for count in 0..=BATCH {
            let keys: Vec<u128> = (0..count).map(|_| random.u128(..)).collect();
            let check = |split: fn(&[u128], &mut Column, &mut Column)| {
                let (mut high, mut low) = ([0; _], [0; _]);
                split(&keys, &mut high, &mut low);
                assert!(high.iter().zip(&keys).all(|(&high, key)| high == (key >> 96) as u32));
                assert!(low.iter().zip(&keys).all(|(&low, key)| low == (key >> 64) as u32));
            };
            check(Baseline::split);
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                check(Avx2::split);
            }
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx512f") {
                check(Avx512::split);
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
                let first = separators.first_chunk().unwrap();
                let rank = Baseline::rank_of_first::<10>(first, key);
                assert_eq!(rank as usize, first[..10].iter().filter(|&&separator| separator < key).count());
                #[cfg(target_arch = "x86_64")]
                {
                    assert!(!is_x86_feature_detected!("avx2") || Avx2::rank_of_first::<10>(first, key) == rank);
                    assert!(!is_x86_feature_detected!("avx512bw") || Avx512::rank_of_first::<10>(first, key) == rank);
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

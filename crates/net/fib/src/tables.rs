//! Compiled tables, and look-ups in them.

use std::marker::PhantomData;
use std::sync::OnceLock;

use bellows_sys::simd::{Level, Simd};

use crate::cells::Cells;
use crate::entry::BATCH;
use crate::search::{self, Search};
use crate::{AddressFamily, NO_ROUTE};

/// What is compiled from the routes of a family.
pub struct Tables<A> {
    /// The root, then the nodes.
    pub(crate) cells: Cells,
    family: PhantomData<A>,
}

impl<A: AddressFamily> Tables<A> {
    /// Tables in this memory, which has been [prepared](crate::layout::Layout::prepare).
    pub(crate) fn of(cells: Cells) -> Tables<A> {
        assert!(cells.length() >= A::place(A::FIRST), "what look-ups read without a check is there");
        Tables { cells, family: PhantomData }
    }

    /// Looks up addresses: writes the number of the longest prefix's best route, or [`NO_ROUTE`], to the place of each. Of
    /// slices of different lengths only the common part counts. Hot.
    pub fn look_up(&self, keys: &[A], next: &mut [u32]) {
        match SearchWay::chosen() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the way is chosen only if the processor has these instructions.
            SearchWay::Avx512 => unsafe { look_up_avx512(self, keys, next) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            SearchWay::Avx2 => unsafe { look_up_avx2(self, keys, next) },
            SearchWay::Baseline => look_up::<A, search::Baseline>(self, keys, next),
        }
    }
}

/// The instructions that look-ups are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SearchWay {
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Baseline,
}

impl SearchWay {
    /// The way that this process uses.
    #[inline(always)]
    fn chosen() -> SearchWay {
        static CHOSEN: OnceLock<SearchWay> = OnceLock::new();
        *CHOSEN.get_or_init(|| SearchWay::best(Simd::chosen().level()))
    }

    #[cfg(target_arch = "x86_64")]
    fn best(level: Level) -> SearchWay {
        let has_bits = is_x86_feature_detected!("bmi2") && is_x86_feature_detected!("popcnt");
        match level {
            Level::Avx512 if has_bits => SearchWay::Avx512,
            Level::Avx2 if has_bits => SearchWay::Avx2,
            _ => SearchWay::Baseline,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn best(_: Level) -> SearchWay {
        SearchWay::Baseline
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx2,bmi2,popcnt")]
fn look_up_avx512<A: AddressFamily>(tables: &Tables<A>, keys: &[A], next: &mut [u32]) {
    look_up::<A, search::Avx512>(tables, keys, next);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi2,popcnt")]
fn look_up_avx2<A: AddressFamily>(tables: &Tables<A>, keys: &[A], next: &mut [u32]) {
    look_up::<A, search::Avx2>(tables, keys, next);
}

#[inline(always)]
pub(crate) fn look_up<A: AddressFamily, S: Search>(tables: &Tables<A>, keys: &[A], next: &mut [u32]) {
    for (keys, next) in keys.chunks(BATCH).zip(next.chunks_mut(BATCH)) {
        let count = keys.len().min(next.len());
        let (keys, next) = (&keys[..count], &mut next[..count]);
        A::look_up::<S>(&tables.cells, keys, next);
    }
}

// An entry without a route becomes this number.
const _: () = assert!(NO_ROUTE == 0_u32.wrapping_sub(1));

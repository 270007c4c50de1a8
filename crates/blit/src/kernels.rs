//! The loops over a queue, and the choice among them.

use std::ptr;
use std::sync::OnceLock;

use crate::Copy;

/// A loop over a queue, for one kind of processor.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    /// Does the copies one after the other, each as by `memmove`.
    ///
    /// Safety: the processor has the instructions; the sources can be read and the destinations written.
    pub(crate) run: unsafe fn(&[Copy]),
    /// What it was compiled for.
    pub(crate) name: &'static str,
}

/// The one that this process uses.
pub(crate) fn kernel() -> Kernel {
    static CHOSEN: OnceLock<Kernel> = OnceLock::new();
    *CHOSEN.get_or_init(choose)
}

fn choose() -> Kernel {
    let wanted = std::env::var("BELLOWS_SIMD").unwrap_or_default();
    let candidates = candidates();
    *candidates.iter().find(|kernel| kernel.name == wanted).unwrap_or(&candidates[0])
}

/// Those that this processor can run, the best first.
pub(crate) fn candidates() -> Vec<Kernel> {
    let mut candidates = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("bmi2")
        {
            candidates.push(Kernel { run: crate::x86::run_avx512, name: "avx512" });
        }
        if is_x86_feature_detected!("avx2") {
            candidates.push(Kernel { run: crate::x86::run_avx2, name: "avx2" });
        }
    }
    candidates.push(Kernel { run: run_baseline, name: "baseline" });
    candidates
}

/// The loop for any processor.
///
/// Safety: as for [`Kernel::run`].
unsafe fn run_baseline(copies: &[Copy]) {
    for &Copy { destination, source, length } in copies {
        // SAFETY: the caller's promise.
        unsafe {
            match length {
                0..=32 => short(destination, source, length),
                33..=64 => ends::<[u64; 4]>(destination, source, length),
                _ => ptr::copy(source, destination, length),
            }
        }
    }
}

/// At most 32 bytes.
///
/// Safety: the source can be read and the destination written.
#[inline(always)]
pub(crate) unsafe fn short(destination: *mut u8, source: *const u8, length: usize) {
    // SAFETY: the caller's promise; `ends` gets a type that is not longer.
    unsafe {
        match length {
            16.. => ends::<[u64; 2]>(destination, source, length),
            8.. => ends::<u64>(destination, source, length),
            4.. => ends::<u32>(destination, source, length),
            2.. => ends::<u16>(destination, source, length),
            1 => ends::<u8>(destination, source, length),
            0 => {}
        }
    }
}

/// From one to two times the size of `T`: the first and the last so many bytes, which may overlap. Both are read before
/// one is written.
///
/// Safety: the source can be read and the destination written, and the length is in that range.
#[inline(always)]
unsafe fn ends<T: std::marker::Copy>(destination: *mut u8, source: *const u8, length: usize) {
    let last = length - size_of::<T>();
    // SAFETY: the first and the last bytes are within the length.
    unsafe {
        let (first, second) = (source.cast::<T>().read_unaligned(), source.add(last).cast::<T>().read_unaligned());
        destination.cast::<T>().write_unaligned(first);
        destination.add(last).cast::<T>().write_unaligned(second);
    }
}

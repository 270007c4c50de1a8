//! The choice among the loops: once for a process, by what its processor has.

use std::sync::OnceLock;

use crate::Copy;
use crate::kernels::{Steps, alike, mixed};
#[cfg(target_arch = "x86_64")]
use crate::x86;

/// A loop over a queue. Each copy is as by `memmove`; what comes first is left to the loop.
///
/// Safety: the processor has the instructions; the sources can be read and the destinations written.
pub(crate) type Run = unsafe fn(&[Copy]);

/// The loops for one kind of processor.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    /// For copies whose lengths can be foretold: they are nearly all the same.
    pub(crate) alike: Run,
    /// For lengths that follow no pattern.
    pub(crate) mixed: Run,
    /// Whether the processor has the registers that copies inline use.
    pub(crate) wide: bool,
    /// What the loops were compiled for.
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
            && is_x86_feature_detected!("lzcnt")
        {
            let (alike, mixed) = (x86::alike_avx512, x86::mixed_avx512);
            candidates.push(Kernel { alike, mixed, wide: true, name: "avx512" });
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("lzcnt") {
            let (alike, mixed) = (x86::alike_avx2, x86::mixed_avx2);
            candidates.push(Kernel { alike, mixed, wide: false, name: "avx2" });
        }
    }
    let (alike, mixed) = (alike_baseline, mixed_baseline);
    candidates.push(Kernel { alike, mixed, wide: false, name: "baseline" });
    candidates
}

/// Safety: as for [`Run`].
unsafe fn alike_baseline(copies: &[Copy]) {
    // SAFETY: the caller's promise is passed on.
    unsafe { alike::<Steps>(copies) }
}

/// Safety: as for [`Run`].
unsafe fn mixed_baseline(copies: &[Copy]) {
    // SAFETY: the caller's promise is passed on.
    unsafe { mixed::<Steps>(copies) }
}

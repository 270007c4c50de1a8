//! Chooses the loops: once a process, by the processor's features.

use std::sync::OnceLock;

use bellows_sys::simd::{Level, Simd};

use crate::Copy;
use crate::kernels::{Steps, alike, mixed};
#[cfg(target_arch = "x86_64")]
use crate::x86;

/// A loop over a queue. Each copy is like `memmove`; the order is up to the loop.
///
/// Safety: the processor has the instructions; the sources can be read and the destinations written.
pub(crate) type Run = unsafe fn(&[Copy]);

/// The loops for one kind of processor.
#[derive(Clone, Copy)]
pub(crate) struct Kernel {
    /// For copies with predictable lengths: nearly all are the same.
    pub(crate) alike: Run,
    /// For lengths without a pattern.
    pub(crate) mixed: Run,
    /// Whether the processor has the registers for inline copies.
    pub(crate) wide: bool,
}

/// The kernel that this process uses.
pub(crate) fn kernel() -> Kernel {
    static CHOSEN: OnceLock<Kernel> = OnceLock::new();
    *CHOSEN.get_or_init(|| kernel_for(Simd::chosen()))
}

/// The kernel for an instruction set, which the processor has.
pub(crate) fn kernel_for(simd: Simd) -> Kernel {
    match simd.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => Kernel { alike: x86::alike_avx512, mixed: x86::mixed_avx512, wide: true },
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => Kernel { alike: x86::alike_avx2, mixed: x86::mixed_avx2, wide: false },
        _ => Kernel { alike: alike_baseline, mixed: mixed_baseline, wide: false },
    }
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

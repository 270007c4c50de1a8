//! The instruction set of loops over data in this process, chosen once.

use std::sync::OnceLock;

use crate::switches::Switch;

/// `BELLOWS_SIMD`: the name of the instruction set of this process.
pub static SIMD: Switch = Switch::new("BELLOWS_SIMD", || Simd::available().into_iter().map(Simd::name).collect());

/// An instruction set that this processor has. Loops compiled for it may run if there is a value for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Simd(Level);

/// The instruction sets that loops are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// The instructions of every processor of the architecture.
    Baseline,
    /// AVX2 and LZCNT.
    Avx2,
    /// AVX-512 F, VL and BW, with BMI2 and LZCNT.
    Avx512,
}

/// A loop that [`Simd::run`] compiles for each instruction set. (A closure would not be inlined there.)
///
/// The same may happen to a closure in it that `for_each`, `fold` or `array::from_fn` call: the compiler may leave it a
/// function for any processor, which costs a call for each element or block. So write `for` loops where it matters, and look
/// for such functions in the built program: `nm -C target/release/bellows | grep from_fn`.
pub trait Loop {
    /// What it returns.
    type Result;

    /// The loop. It must be `#[inline(always)]`, and so must the functions that it calls.
    fn run(self) -> Self::Result;
}

impl Simd {
    /// The instruction sets that this processor has, the best first.
    pub fn available() -> Vec<Simd> {
        let mut levels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("lzcnt") {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("bmi2")
            {
                levels.push(Simd(Level::Avx512));
            }
            levels.push(Simd(Level::Avx2));
        }
        levels.push(Simd(Level::Baseline));
        levels
    }

    /// The instruction set that this process uses: the best, or the lesser one that the environment variable
    /// `BELLOWS_SIMD` names.
    pub fn chosen() -> Simd {
        static CHOSEN: OnceLock<Simd> = OnceLock::new();
        *CHOSEN.get_or_init(|| {
            let wanted = SIMD.value();
            let available = Simd::available();
            *available.iter().find(|simd| Some(simd.name()) == wanted).unwrap_or(&available[0])
        })
    }

    /// The level that loops are compiled for.
    pub fn level(self) -> Level {
        self.0
    }

    /// Runs a loop that is compiled for this instruction set.
    #[inline(always)]
    pub fn run<L: Loop>(self, work: L) -> L::Result {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: there is a value of this level only if the processor has these instructions.
            Level::Avx512 => unsafe { run_avx512(work) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Level::Avx2 => unsafe { run_avx2(work) },
            _ => work.run(),
        }
    }

    /// `avx512`, `avx2` or `baseline`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Baseline => "baseline",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx2,bmi2,lzcnt")]
fn run_avx512<L: Loop>(work: L) -> L::Result {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,lzcnt")]
fn run_avx2<L: Loop>(work: L) -> L::Result {
    work.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_comes_first_and_every_processor_has_the_baseline() {
        let names: Vec<&str> = Simd::available().into_iter().map(Simd::name).collect();
        assert_eq!(names.last(), Some(&"baseline"));
        assert!(["avx512", "avx2", "baseline"].ends_with(&names), "{names:?}");
        assert!(Simd::available().contains(&Simd::chosen()));
    }

    #[test]
    fn every_instruction_set_computes_the_same() {
        struct Add<'n>(&'n [u32]);
        impl Loop for Add<'_> {
            type Result = u32;

            #[inline(always)]
            fn run(self) -> u32 {
                self.0.iter().fold(0, |sum: u32, number| sum.wrapping_add(number.swap_bytes()))
            }
        }
        let numbers: Vec<u32> = (0..1000).map(|number| number * number).collect();
        let sums = Simd::available().into_iter().map(|simd| simd.run(Add(&numbers)));
        assert!(sums.into_iter().all(|sum| sum == Add(&numbers).run()));
    }
}

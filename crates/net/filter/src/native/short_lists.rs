//! Tests whether a number is in one of a few intervals: all of them at once, without a branch.

use bellows_codemem::assembler::{Instruction, Written, memory};
use iced_x86::Code as Op;
use iced_x86::Register::{self, R11, XMM0, XMM1, XMM2, XMM3, YMM0, YMM1, YMM2, YMM3};

use super::writer::Writer;
use crate::plan::values::Interval;

/// Intervals in a list, at most: with more, the loads of a trie cost less.
pub(super) const MAX_INTERVALS: usize = 16;

/// Lanes of a vector: of AVX2, and of SSE.
const LONG: usize = 8;
const SHORT: usize = 4;

/// For each group of as many intervals as a vector has lanes their first numbers, then the distances to their last
/// ones.
fn words<const LANES: usize>(set: &[Interval]) -> Vec<u32> {
    let lanes = |group: &[Interval], word: fn(Interval) -> u32| -> [u32; LANES] {
        // A short group repeats its first interval.
        std::array::from_fn(|lane| word(*group.get(lane).unwrap_or(&group[0])))
    };
    set.chunks(LANES)
        .flat_map(|group| [lanes(group, |(low, _)| low), lanes(group, |(low, high)| high - low)].concat())
        .collect()
}

impl Writer<'_> {
    /// Whether vectors have 8 lanes. Their upper halves are only cleared at the end of the loop over groups.
    fn has_long_vectors(&self) -> bool {
        self.groups.is_some()
    }

    /// The table of a list.
    pub(super) fn short_list(&self, set: &[Interval]) -> Vec<u32> {
        if self.has_long_vectors() { words::<LONG>(set) } else { words::<SHORT>(set) }
    }

    /// Writes the test of the number in a register against a list of this many intervals, whose table is at `r11`.
    /// "Not equal" says that the number is in it.
    ///
    /// The number is in an interval if its distance from the start is no more than that of the end.
    pub(super) fn in_short_list(&mut self, number: Register, intervals: usize) -> Written {
        if self.has_long_vectors() { self.in_list_avx(number, intervals) } else { self.in_list_sse(number, intervals) }
    }

    fn in_list_avx(&mut self, number: Register, intervals: usize) -> Written {
        const ROW: usize = LONG * size_of::<u32>();
        let code = self.code();
        code.registers(Op::VEX_Vmovd_xmm_rm32, XMM0, number)?;
        code.registers(Op::VEX_Vpbroadcastd_ymm_xmmm32, YMM0, XMM0)?;
        for group in 0..intervals.div_ceil(LONG) {
            let (starts, distances) = (memory(R11, 2 * group * ROW), memory(R11, (2 * group + 1) * ROW));
            let found = if group == 0 { YMM3 } else { YMM2 };
            code.put(Instruction::with3(Op::VEX_Vpsubd_ymm_ymm_ymmm256, YMM1, YMM0, starts)?)?;
            code.put(Instruction::with3(Op::VEX_Vpminud_ymm_ymm_ymmm256, found, YMM1, distances)?)?;
            code.put(Instruction::with3(Op::VEX_Vpcmpeqd_ymm_ymm_ymmm256, found, found, YMM1)?)?;
            if group > 0 {
                code.put(Instruction::with3(Op::VEX_Vpor_ymm_ymm_ymmm256, YMM3, YMM3, YMM2)?)?;
            }
        }
        code.registers(Op::VEX_Vptest_ymm_ymmm256, YMM3, YMM3)
    }

    fn in_list_sse(&mut self, number: Register, intervals: usize) -> Written {
        const ROW: usize = SHORT * size_of::<u32>();
        let code = self.code();
        code.registers(Op::Movd_xmm_rm32, XMM0, number)?;
        code.put(Instruction::with3(Op::Pshufd_xmm_xmmm128_imm8, XMM0, XMM0, 0)?)?;
        for group in 0..intervals.div_ceil(SHORT) {
            code.registers(Op::Movdqa_xmm_xmmm128, XMM1, XMM0)?;
            code.load(Op::Movdqu_xmm_xmmm128, XMM2, memory(R11, 2 * group * ROW))?;
            code.registers(Op::Psubd_xmm_xmmm128, XMM1, XMM2)?;
            code.load(Op::Movdqu_xmm_xmmm128, XMM2, memory(R11, (2 * group + 1) * ROW))?;
            code.registers(Op::Pminud_xmm_xmmm128, XMM2, XMM1)?;
            code.registers(Op::Pcmpeqd_xmm_xmmm128, XMM2, XMM1)?;
            let join = if group == 0 { Op::Movdqa_xmm_xmmm128 } else { Op::Por_xmm_xmmm128 };
            code.registers(join, XMM3, XMM2)?;
        }
        code.registers(Op::Ptest_xmm_xmmm128, XMM3, XMM3)
    }
}

//! Tests whether a number is in one of a few intervals: all of them at once, without a branch.

use bellows_codemem::assembler::{Instruction, Written, memory};
use iced_x86::Code as Op;
use iced_x86::Register::{self, R11, XMM0, XMM1, XMM2, XMM3};

use super::writer::Writer;
use crate::plan::values::Interval;

/// Intervals in a list, at most: with more, the loads of a trie cost less.
pub(super) const MAX_INTERVALS: usize = 16;

/// Intervals that are tested with one instruction, and the bytes of the first numbers of as many.
const LANES: usize = 4;
const ROW: usize = LANES * size_of::<u32>();

/// For each group of intervals their first numbers, then the distances to their last numbers.
pub(super) fn words(set: &[Interval]) -> Vec<u32> {
    let lanes = |group: &[Interval], word: fn(Interval) -> u32| -> [u32; LANES] {
        // A short group repeats its first interval.
        std::array::from_fn(|lane| word(*group.get(lane).unwrap_or(&group[0])))
    };
    set.chunks(LANES)
        .flat_map(|group| [lanes(group, |(low, _)| low), lanes(group, |(low, high)| high - low)].concat())
        .collect()
}

impl Writer<'_> {
    /// Writes the test of the number in a register against a list of this many intervals, whose table is at `r11`.
    /// "Not equal" says that the number is in it.
    pub(super) fn in_short_list(&mut self, number: Register, intervals: usize) -> Written {
        let code = self.code();
        code.registers(Op::Movd_xmm_rm32, XMM0, number)?;
        code.put(Instruction::with3(Op::Pshufd_xmm_xmmm128_imm8, XMM0, XMM0, 0)?)?;
        for group in 0..intervals.div_ceil(LANES) {
            // The number is in an interval if its distance from the start is no more than that of the end.
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

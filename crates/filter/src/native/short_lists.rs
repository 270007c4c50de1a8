//! Tests whether a number is in one of a few intervals: all of them at once, without a branch.

use std::error::Error;

use bellows_codemem::assembler::{Written, memory};
use iced_x86::Code as Op;
use iced_x86::Instruction;
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

/// The instructions of the test: those of SSE 4.1 take their left operand as the target.
struct Ops {
    insert: Op,
    spread: Op,
    load: Op,
    subtract: Op,
    minimum: Op,
    compare: Op,
    or: Op,
    test: Op,
    is_avx: bool,
}

const SSE: Ops = Ops {
    insert: Op::Movd_xmm_rm32,
    spread: Op::Pshufd_xmm_xmmm128_imm8,
    load: Op::Movdqu_xmm_xmmm128,
    subtract: Op::Psubd_xmm_xmmm128,
    minimum: Op::Pminud_xmm_xmmm128,
    compare: Op::Pcmpeqd_xmm_xmmm128,
    or: Op::Por_xmm_xmmm128,
    test: Op::Ptest_xmm_xmmm128,
    is_avx: false,
};

/// Where other code uses the upper halves of vectors, instructions of SSE would have to preserve them.
const AVX: Ops = Ops {
    insert: Op::VEX_Vmovd_xmm_rm32,
    spread: Op::VEX_Vpshufd_xmm_xmmm128_imm8,
    load: Op::VEX_Vmovdqu_xmm_xmmm128,
    subtract: Op::VEX_Vpsubd_xmm_xmm_xmmm128,
    minimum: Op::VEX_Vpminud_xmm_xmm_xmmm128,
    compare: Op::VEX_Vpcmpeqd_xmm_xmm_xmmm128,
    or: Op::VEX_Vpor_xmm_xmm_xmmm128,
    test: Op::VEX_Vptest_xmm_xmmm128,
    is_avx: true,
};

impl Ops {
    /// `to` = `to` `op` `from`.
    fn join(&self, op: Op, to: Register, from: Register) -> Result<Instruction, Box<dyn Error>> {
        Ok(if self.is_avx { Instruction::with3(op, to, to, from)? } else { Instruction::with2(op, to, from)? })
    }
}

impl Writer<'_> {
    /// Writes the test of the number in a register against a list of this many intervals, whose table is at `r11`.
    /// "Not equal" says that the number is in it.
    pub(super) fn in_short_list(&mut self, number: Register, intervals: usize) -> Written {
        let ops = if self.groups.is_some() { AVX } else { SSE };
        let code = self.code();
        code.registers(ops.insert, XMM0, number)?;
        code.put(Instruction::with3(ops.spread, XMM0, XMM0, 0)?)?;
        for group in 0..intervals.div_ceil(LANES) {
            // The number is in an interval if its distance from the start is no more than that of the end.
            code.put(Instruction::with3(ops.spread, XMM1, XMM0, 0)?)?;
            code.load(ops.load, XMM2, memory(R11, 2 * group * ROW))?;
            code.put(ops.join(ops.subtract, XMM1, XMM2)?)?;
            // The first list of lanes is not joined to others.
            let found = if group == 0 { XMM3 } else { XMM2 };
            code.load(ops.load, found, memory(R11, (2 * group + 1) * ROW))?;
            code.put(ops.join(ops.minimum, found, XMM1)?)?;
            code.put(ops.join(ops.compare, found, XMM1)?)?;
            if group > 0 {
                code.put(ops.join(ops.or, XMM3, XMM2)?)?;
            }
        }
        code.registers(ops.test, XMM3, XMM3)
    }
}

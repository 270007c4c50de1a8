//! Instructions with a VEX prefix, which stands for the bytes that select the opcode's table, and for a REX prefix.
//!
//! Source: the same manual, volume 2, section 2.3.

use iced_x86::Code as Op;

use super::Class::{Double, Vector, WideVector};
use super::Fields::{Plain, RegReg, RegRm, RegVvvvRm};
use super::{Fields, Form, Instruction, REX_B, REX_R, REX_W, REX_X};

/// What a VEX prefix says beyond what other prefixes say.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vex {
    /// Whether vectors have 256 bits: VEX.L.
    pub is_wide: bool,
    /// The number of the register for the first source, or 0.
    pub vvvv: u8,
}

impl Vex {
    /// Appends the prefix and the opcode of a form.
    pub(super) fn put(self, instruction: &mut Instruction, form: Form, rex: u8) {
        let [_, first, second, opcode] = form.opcode.to_be_bytes();
        let map = match [first, second] {
            [0, 0x0f] => 1,
            [0x0f, 0x38] => 2,
            _ => 3,
        };
        let prefix = match form.prefix {
            0x66 => 1,
            0xf3 => 2,
            0xf2 => 3,
            _ => 0,
        };
        // The bits of registers are inverted, since with other ones the first byte is LES or LDS in 32-bit code.
        let low = (!self.vvvv & 0xf) << 3 | u8::from(self.is_wide) << 2 | prefix;
        if map == 1 && rex & (REX_W | REX_X | REX_B) == 0 {
            instruction.push(0xc5);
            instruction.push((!rex & REX_R) << 5 | low);
        } else {
            instruction.push(0xc4);
            instruction.push((!rex & (REX_R | REX_X | REX_B)) << 5 | map);
            instruction.push((rex & REX_W) << 4 | low);
        }
        instruction.push(opcode);
    }
}

/// The form of an instruction with a VEX prefix in the table.
#[rustfmt::skip]
pub(super) fn form(op: Op) -> Option<Form> {
    let vex = |is_wide, prefix, opcode, fields: Fields| {
        Form { vex: Some(Vex { is_wide, vvvv: 0 }), ..Form::prefixed(prefix, opcode, fields) }
    };
    let vex_128 = |prefix, opcode, fields| vex(false, prefix, opcode, fields);
    let vex_256 = |prefix, opcode, fields| vex(true, prefix, opcode, fields);
    Some(match op {
        Op::VEX_Vzeroupper => vex_128(0, 0x0f77, Plain),
        Op::VEX_Vmovd_xmm_rm32 => vex_128(0x66, 0x0f6e, RegRm(Vector, Double)),
        Op::VEX_Vmovdqu_ymm_ymmm256 => vex_256(0xf3, 0x0f6f, RegRm(WideVector, WideVector)),
        Op::VEX_Vpbroadcastd_ymm_xmmm32 => vex_256(0x66, 0x0f_3858, RegRm(WideVector, Vector)),
        Op::VEX_Vpbroadcastq_ymm_xmmm64 => vex_256(0x66, 0x0f_3859, RegRm(WideVector, Vector)),
        Op::VEX_Vpmovmskb_r32_ymm => vex_256(0x66, 0x0fd7, RegReg(Double, WideVector)),
        Op::VEX_Vptest_ymm_ymmm256 => vex_256(0x66, 0x0f_3817, RegRm(WideVector, WideVector)),
        Op::VEX_Vpcmpgtd_ymm_ymm_ymmm256 => vex_256(0x66, 0x0f66, RegVvvvRm(WideVector)),
        Op::VEX_Vpunpckhqdq_ymm_ymm_ymmm256 => vex_256(0x66, 0x0f6d, RegVvvvRm(WideVector)),
        Op::VEX_Vpcmpeqd_ymm_ymm_ymmm256 => vex_256(0x66, 0x0f76, RegVvvvRm(WideVector)),
        Op::VEX_Vpand_ymm_ymm_ymmm256 => vex_256(0x66, 0x0fdb, RegVvvvRm(WideVector)),
        Op::VEX_Vpor_ymm_ymm_ymmm256 => vex_256(0x66, 0x0feb, RegVvvvRm(WideVector)),
        Op::VEX_Vpsubd_ymm_ymm_ymmm256 => vex_256(0x66, 0x0ffa, RegVvvvRm(WideVector)),
        Op::VEX_Vpminud_ymm_ymm_ymmm256 => vex_256(0x66, 0x0f_383b, RegVvvvRm(WideVector)),
        _ => return None,
    })
}

//! Writes machine code from start to end, and disassembles it.

use std::error::Error;

use iced_x86::{Code, Decoder, DecoderOptions, Encoder, Formatter, MemoryOperand, Mnemonic, NasmFormatter, Register};

pub use iced_x86::Instruction;

/// The result of writing an instruction: an error if it cannot be encoded.
pub type Written = Result<(), Box<dyn Error>>;

/// A jump target in the code of one assembler, known or not yet.
#[derive(Default)]
pub struct Label {
    position: Option<usize>,
    /// The last branch to it while it is not known, plus 1: they are in a list.
    last_branch: usize,
}

/// A jump or a call, whose displacement is written at the end.
struct Branch {
    /// The offset where it ends.
    end: usize,
    /// The size of its displacement, which is in its last bytes.
    size: usize,
    target: JumpTarget,
}

enum JumpTarget {
    Known(usize),
    /// The branch before it to the same label, plus 1; 0 if it is the first.
    Unknown(usize),
}

/// The start of a part of the code.
pub struct Mark<T> {
    /// Bytes from the start of the code.
    pub offset: usize,
    /// The purpose of the part.
    pub part: T,
}

/// Complete code.
pub struct Assembled<T> {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its parts.
    pub marks: Vec<Mark<T>>,
}

/// Writes code for an address from start to end, and marks its parts.
pub struct Assembler<T> {
    encoder: Encoder,
    /// Number of bytes written.
    position: usize,
    address: usize,
    marks: Vec<Mark<T>>,
    branches: Vec<Branch>,
}

/// Memory at an offset from a register.
pub fn memory(base: Register, displacement: usize) -> MemoryOperand {
    match displacement {
        0 => MemoryOperand::with_base(base),
        _ => MemoryOperand::with_base_displ(base, displacement as i64),
    }
}

impl<T> Assembler<T> {
    /// An assembler for code at this address.
    pub fn new(address: usize) -> Assembler<T> {
        Assembler::with_room(address, 0)
    }

    /// An assembler for code of about as many parts, each of some instructions and a jump.
    pub fn with_room(address: usize, parts: usize) -> Assembler<T> {
        let mut encoder = Encoder::new(64);
        encoder.set_buffer(Vec::with_capacity(parts * 32));
        Assembler {
            encoder,
            position: 0,
            address,
            marks: Vec::with_capacity(parts),
            branches: Vec::with_capacity(parts),
        }
    }

    /// Number of bytes written so far.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Marks the start of a part of the code.
    pub fn mark(&mut self, part: T) {
        self.marks.push(Mark { offset: self.position(), part });
    }

    /// Writes an instruction.
    pub fn put(&mut self, instruction: Instruction) -> Written {
        // Displacements of branches follow when all labels are known.
        self.position += self.encoder.encode(&instruction, 0)?;
        Ok(())
    }

    /// Writes an instruction with one register.
    pub fn register(&mut self, op: Code, operand: Register) -> Written {
        self.put(Instruction::with1(op, operand)?)
    }

    /// Writes an instruction with two registers.
    pub fn registers(&mut self, op: Code, to: Register, from: Register) -> Written {
        self.put(Instruction::with2(op, to, from)?)
    }

    /// Writes an instruction that reads memory.
    pub fn load(&mut self, op: Code, to: Register, from: MemoryOperand) -> Written {
        self.put(Instruction::with2(op, to, from)?)
    }

    /// Writes an instruction that stores a register.
    pub fn store(&mut self, op: Code, to: MemoryOperand, from: Register) -> Written {
        self.put(Instruction::with2(op, to, from)?)
    }

    /// Writes an instruction with memory and an immediate number.
    pub fn immediate(&mut self, op: Code, to: MemoryOperand, value: i32) -> Written {
        self.put(Instruction::with2(op, to, value)?)
    }

    /// Writes a direct call of a function, which must be within 2 GiB.
    pub fn call(&mut self, function: usize) -> Written {
        self.branch(Code::Call_rel32_64, JumpTarget::Known(function.wrapping_sub(self.address)))
    }

    /// Writes a jump; for a short one, the label must be within 127 bytes.
    pub fn jump(&mut self, op: Code, label: &mut Label) -> Written {
        match label.position {
            Some(target) => self.branch(op, JumpTarget::Known(target)),
            None => {
                self.branch(op, JumpTarget::Unknown(label.last_branch))?;
                label.last_branch = self.branches.len();
                Ok(())
            }
        }
    }

    fn branch(&mut self, op: Code, target: JumpTarget) -> Written {
        self.put(Instruction::with_branch(op, 0)?)?;
        let size = self.encoder.get_constant_offsets().immediate_size();
        self.branches.push(Branch { end: self.position, size, target });
        Ok(())
    }

    /// Sets the label to this place.
    pub fn place(&mut self, label: &mut Label) {
        label.position = Some(self.position);
        while let Some(index) = std::mem::take(&mut label.last_branch).checked_sub(1) {
            if let JumpTarget::Unknown(before) = self.branches[index].target {
                label.last_branch = before;
            }
            self.branches[index].target = JumpTarget::Known(self.position);
        }
    }

    /// Creates a label for this place.
    pub fn here(&self) -> Label {
        Label { position: Some(self.position), last_branch: 0 }
    }

    /// Aligns to a multiple of `alignment` bytes, with a few long no-op instructions.
    pub fn align(&mut self, alignment: usize) -> Written {
        loop {
            let no_op: &[u8] = match self.position().next_multiple_of(alignment) - self.position() {
                0 => return Ok(()),
                8.. => &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
                5.. => &[0x0f, 0x1f, 0x44, 0, 0],
                _ => &[0x90],
            };
            no_op.iter().for_each(|&byte| self.encoder.write_u8(byte));
            self.position += no_op.len();
        }
    }

    /// The code with all its jumps, and its parts.
    ///
    /// # Errors
    /// A label is too far away for a jump to it, or has no place.
    pub fn finish(mut self) -> Result<Assembled<T>, Box<dyn Error>> {
        let mut bytes = self.encoder.take_buffer();
        for Branch { end, size, target } in self.branches {
            let JumpTarget::Known(target) = target else {
                return Err("a jump leads to a label without a place".into());
            };
            let distance = target.wrapping_sub(end).cast_signed();
            let displacement = &mut bytes[end - size..end];
            match size {
                1 => displacement.copy_from_slice(&i8::try_from(distance)?.to_le_bytes()),
                _ => displacement.copy_from_slice(&i32::try_from(distance)?.to_le_bytes()),
            }
        }
        Ok(Assembled { bytes, marks: self.marks })
    }
}

/// One instruction of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeLine {
    /// Its address.
    pub address: usize,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The instruction, as NASM writes it.
    pub text: String,
    /// The part that starts here, if any.
    pub label: Option<String>,
}

/// A listing of the code. `name` names its parts, `function` the functions that it calls, by address.
pub fn listing<T>(
    code: &[u8],
    address: usize,
    marks: &[Mark<T>],
    name: impl Fn(&T) -> String,
    function: impl Fn(usize) -> Option<String>,
) -> Vec<CodeLine> {
    let mut decoder = Decoder::with_ip(64, code, address as u64, DecoderOptions::NONE);
    let mut formatter = NasmFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    let mut marks = marks.iter().peekable();
    let mut lines = Vec::new();
    while decoder.can_decode() {
        let offset = decoder.position();
        let instruction = decoder.decode();
        let mut label = None;
        while let Some(mark) = marks.next_if(|mark| mark.offset <= offset) {
            label = Some(name(&mark.part));
        }
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        if instruction.mnemonic() == Mnemonic::Call
            && let Some(name) = function(instruction.near_branch_target() as usize)
        {
            text = format!("call {name}");
        }
        let bytes = code[offset..offset + instruction.len()].to_vec();
        lines.push(CodeLine { address: address + offset, bytes, text, label });
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jumps forward and back, short and near, reach their labels.
    #[test]
    fn jumps_reach_their_labels() {
        let mut writer = Assembler::<()>::new(0x10_0000);
        let [mut start, mut short, mut near] = [Label::default(), Label::default(), Label::default()];
        writer.place(&mut start);
        writer.jump(Code::Je_rel8_64, &mut short).unwrap();
        writer.jump(Code::Jne_rel32_64, &mut near).unwrap();
        writer.jump(Code::Je_rel8_64, &mut short).unwrap();
        writer.place(&mut short);
        (0..200).for_each(|_| writer.put(Instruction::with(Code::Cmc)).unwrap());
        writer.place(&mut near);
        writer.jump(Code::Jmp_rel32_64, &mut start).unwrap();
        let code = writer.finish().unwrap().bytes;
        let targets: Vec<u64> = Decoder::with_ip(64, &code, 0x10_0000, DecoderOptions::NONE)
            .iter()
            .filter(|instruction| instruction.mnemonic() != Mnemonic::Cmc)
            .map(|instruction| instruction.near_branch_target())
            .collect();
        let at = |label: &Label| 0x10_0000 + label.position.unwrap() as u64;
        assert_eq!(targets, [at(&short), at(&near), at(&short), at(&start)]);

        let mut writer = Assembler::<()>::new(0x10_0000);
        let mut far = Label::default();
        writer.jump(Code::Je_rel8_64, &mut far).unwrap();
        (0..128).for_each(|_| writer.put(Instruction::with(Code::Cmc)).unwrap());
        writer.place(&mut far);
        assert!(writer.finish().is_err(), "128 bytes are too far for a short jump");
    }

    #[test]
    fn code_that_cannot_be_encoded_is_an_error() {
        use Register::{AH, EAX, R8D, RAX};
        let written = |instruction: Result<Instruction, _>| -> Written { Assembler::<()>::new(0).put(instruction?) };
        for instruction in [
            Instruction::with2(Code::Mov_r32_rm32, EAX, RAX),
            Instruction::with2(Code::Movzx_r32_rm8, R8D, AH),
            Instruction::with2(Code::Add_rm32_imm8, EAX, 128),
            Instruction::with2(Code::Lea_r64_m, RAX, MemoryOperand::with_base_displ(RAX, 1 << 31)),
        ] {
            assert!(written(instruction.clone()).is_err(), "{instruction:?}");
        }
        assert!(Assembler::<()>::new(0).jump(Code::Mov_r32_rm32, &mut Label::default()).is_err());
        let mut writer = Assembler::<()>::new(0);
        writer.jump(Code::Jmp_rel32_64, &mut Label::default()).unwrap();
        assert!(writer.finish().is_err(), "the label has no place");
    }

    #[test]
    fn a_listing_names_parts_and_calls() {
        let mut writer = Assembler::new(0x10_0000);
        writer.mark("begin");
        writer.registers(Code::Xor_r32_rm32, Register::EAX, Register::EAX).unwrap();
        writer.align(16).unwrap();
        writer.mark("end");
        writer.call(0x10_2000).unwrap();
        writer.put(Instruction::with(Code::Retnq)).unwrap();
        let Assembled { bytes: code, marks } = writer.finish().unwrap();
        let name = |address| (address == 0x10_2000).then(|| "helper".to_owned());
        let lines = listing(&code, 0x10_0000, &marks, |part| format!("the {part}"), name);
        let labels: Vec<(usize, &str)> =
            lines.iter().filter_map(|line| Some((line.address, line.label.as_deref()?))).collect();
        assert_eq!(labels, [(0x10_0000, "the begin"), (0x10_0010, "the end")]);
        assert_eq!((&*lines[0].text, &lines[0].bytes[..]), ("xor eax, eax", &[0x33, 0xc0][..]));
        let last: Vec<&str> = lines.iter().rev().take(2).map(|line| &*line.text).collect();
        assert_eq!(last, ["ret", "call helper"]);
        assert_eq!(lines.iter().map(|line| line.bytes.len()).sum::<usize>(), code.len());
    }
}

//! An assembler of BPF instructions, with labels: only the instructions that the programs of this crate use.
//!
//! Sources: RFC 9669; Linux, `include/uapi/linux/bpf.h`.

/// One instruction, or one half of a 16-byte instruction: `struct bpf_insn`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u8,
    /// The destination in the low half, the source in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// A register of the BPF machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Register(u8);

/// The result of calls and of the program; calls change it, and registers 1 to 5.
pub(super) const R0: Register = Register(0);
/// The program's argument, and the first of calls.
pub(super) const R1: Register = Register(1);
/// The second argument of calls.
pub(super) const R2: Register = Register(2);
/// The third argument of calls.
pub(super) const R3: Register = Register(3);
/// The fourth argument of calls.
pub(super) const R4: Register = Register(4);
/// The fifth argument of calls.
pub(super) const R5: Register = Register(5);
/// Kept across calls, as are the next three.
pub(super) const R6: Register = Register(6);
/// See [`R6`].
pub(super) const R7: Register = Register(7);
/// See [`R6`].
pub(super) const R8: Register = Register(8);
/// See [`R6`].
pub(super) const R9: Register = Register(9);

/// The width of a load from memory: the size bits of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Byte = 0x10,
    Half = 0x08,
    Word = 0x00,
}

/// A condition of a jump, of unsigned 64-bit numbers: the operation bits of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Equal = 0x10,
    Above = 0x20,
    NotEqual = 0x50,
    Below = 0xa0,
    BelowOrEqual = 0xb0,
}

/// An operation of two 64-bit numbers: the operation bits of its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add = 0x00,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    Move = 0xb0,
}

/// The classes of instructions, and bits of their codes.
mod code {
    pub const LOAD_IMMEDIATE_64: u8 = 0x18;
    pub const LOAD: u8 = 0x61;
    pub const OPERATION_64: u8 = 0x07;
    pub const TO_BIG_ENDIAN: u8 = 0xdc;
    pub const JUMP: u8 = 0x05;
    pub const CALL: u8 = 0x85;
    pub const EXIT: u8 = 0x95;
    /// The second operand is a register instead of the immediate.
    pub const FROM_REGISTER: u8 = 0x08;
}

/// The source of a 64-bit immediate that is a map's descriptor: `BPF_PSEUDO_MAP_FD`.
const PSEUDO_MAP: Register = Register(1);

/// A place in the program that jumps go to. It must be placed after all jumps to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label(usize);

/// A jump is longer than its 16 bits can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JumpTooFar;

/// A program being written.
#[derive(Default)]
pub(super) struct Assembler {
    instructions: Vec<Instruction>,
    places: Vec<Option<usize>>,
    /// The jumps, by the position of the instruction, with their labels.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// Appends an instruction.
    fn emit(&mut self, code: u8, destination: Register, source: Register, offset: i16, immediate: i32) {
        let registers = destination.0 | source.0 << 4;
        self.instructions.push(Instruction { code, registers, offset, immediate });
    }

    /// A new label without a place.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Gives a label the place of the next instruction.
    pub fn place(&mut self, label: Label) {
        self.places[label.0] = Some(self.instructions.len());
    }

    /// Loads `width` from memory at `base + offset`, zero-extended, in the byte order of memory.
    pub fn load(&mut self, width: Width, destination: Register, base: Register, offset: i16) {
        self.emit(code::LOAD | width as u8, destination, base, offset, 0);
    }

    /// Loads a number in network byte order from memory at `base + offset`.
    pub fn load_network(&mut self, width: Width, destination: Register, base: Register, offset: i16) {
        self.load(width, destination, base, offset);
        match width {
            Width::Byte => {}
            Width::Half => self.emit(code::TO_BIG_ENDIAN, destination, R0, 0, 16),
            Width::Word => self.emit(code::TO_BIG_ENDIAN, destination, R0, 0, 32),
        }
    }

    /// Loads a 64-bit number.
    pub fn load_number(&mut self, destination: Register, number: u64) {
        self.load_wide(destination, R0, number);
    }

    /// Loads the address of the map with this descriptor.
    pub fn load_map(&mut self, destination: Register, map: i32) {
        self.load_wide(destination, PSEUDO_MAP, u64::from(map.cast_unsigned()));
    }

    fn load_wide(&mut self, destination: Register, source: Register, number: u64) {
        self.emit(code::LOAD_IMMEDIATE_64, destination, source, 0, (number as u32).cast_signed());
        self.emit(0, R0, R0, 0, ((number >> 32) as u32).cast_signed());
    }

    /// `destination = destination OPERATION number`, with the number sign-extended to 64 bits.
    pub fn compute(&mut self, operation: Operation, destination: Register, number: i32) {
        self.emit(code::OPERATION_64 | operation as u8, destination, R0, 0, number);
    }

    /// `destination = destination OPERATION source`.
    pub fn compute_with(&mut self, operation: Operation, destination: Register, source: Register) {
        self.emit(code::OPERATION_64 | code::FROM_REGISTER | operation as u8, destination, source, 0, 0);
    }

    /// Jumps.
    pub fn jump(&mut self, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.emit(code::JUMP, R0, R0, 0, 0);
    }

    /// Jumps if the condition holds for a register and a number, which is sign-extended to 64 bits.
    pub fn jump_if(&mut self, left: Register, condition: Condition, right: i32, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.emit(code::JUMP | condition as u8, left, R0, 0, right);
    }

    /// Jumps if the condition holds for two registers.
    pub fn jump_if_register(&mut self, left: Register, condition: Condition, right: Register, label: Label) {
        self.jumps.push((self.instructions.len(), label));
        self.emit(code::JUMP | code::FROM_REGISTER | condition as u8, left, right, 0, 0);
    }

    /// Calls a function of the kernel: `enum bpf_func_id`.
    pub fn call(&mut self, function: i32) {
        self.emit(code::CALL, R0, R0, 0, function);
    }

    /// Ends the program with the result in [`R0`].
    pub fn exit(&mut self) {
        self.emit(code::EXIT, R0, R0, 0, 0);
    }

    /// The program, with the distances of all jumps.
    ///
    /// # Errors
    /// A jump is too long, because the program has tens of thousands of instructions.
    ///
    /// # Panics
    /// If a label of a jump has no place.
    pub fn finish(mut self) -> Result<Vec<Instruction>, JumpTooFar> {
        for &(jump, label) in &self.jumps {
            let place = self.places[label.0].expect("each label is placed");
            let distance = place as i64 - (jump as i64 + 1);
            self.instructions[jump].offset = i16::try_from(distance).map_err(|_| JumpTooFar)?;
        }
        Ok(self.instructions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(code: u8, registers: u8, offset: i16, immediate: i32) -> Instruction {
        Instruction { code, registers, offset, immediate }
    }

    /// The codes as RFC 9669 writes them.
    #[test]
    fn instructions_have_their_codes() {
        let mut assembler = Assembler::default();
        let end = assembler.label();
        assembler.load(Width::Word, R2, R1, 16);
        assembler.load_network(Width::Half, R3, R2, 12);
        assembler.load_network(Width::Byte, R3, R2, 9);
        assembler.compute(Operation::Move, R0, -1);
        assembler.compute_with(Operation::Add, R2, R0);
        assembler.load_number(R9, 0x0102_0304_8506_0708);
        assembler.load_map(R1, 7);
        assembler.jump_if(R7, Condition::Equal, 0x8100, end);
        assembler.jump_if_register(R4, Condition::Above, R3, end);
        assembler.jump(end);
        assembler.place(end);
        assembler.call(51);
        assembler.exit();
        let expected = [
            instruction(0x61, 0x12, 16, 0),
            instruction(0x69, 0x23, 12, 0),
            instruction(0xdc, 0x03, 0, 16),
            instruction(0x71, 0x23, 9, 0),
            instruction(0xb7, 0x00, 0, -1),
            instruction(0x0f, 0x02, 0, 0),
            instruction(0x18, 0x09, 0, 0x8506_0708_u32.cast_signed()),
            instruction(0x00, 0x00, 0, 0x0102_0304),
            instruction(0x18, 0x11, 0, 7),
            instruction(0x00, 0x00, 0, 0),
            instruction(0x15, 0x07, 2, 0x8100),
            instruction(0x2d, 0x34, 1, 0),
            instruction(0x05, 0x00, 0, 0),
            instruction(0x85, 0x00, 0, 51),
            instruction(0x95, 0x00, 0, 0),
        ];
        assert_eq!(assembler.finish().unwrap(), expected);
    }

    #[test]
    fn a_jump_that_is_too_long_is_an_error() {
        for (between, fits) in [(0x7fff, true), (0x8000, false)] {
            let mut assembler = Assembler::default();
            let end = assembler.label();
            assembler.jump(end);
            (0..between).for_each(|_| assembler.exit());
            assembler.place(end);
            assert_eq!(assembler.finish().is_ok(), fits);
        }
    }
}

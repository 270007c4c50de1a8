//! A filter as a graph of blocks: what expressions become, and what is run or compiled.
//!
//! Values have 32 bits and no sign; arithmetic wraps around. A load outside the captured bytes rejects the packet at
//! once, whatever the rest of the filter says, also under `not`; so does a division by zero. That is the machine of
//! the BSD packet filter (McCanne and Jacobson 1993), whose verdicts these are.

use std::fmt;
use std::ops::Range;

/// A filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Graph {
    /// The blocks. The filter starts with the first one.
    ///
    /// An edge leads to a block with a higher index, except from a block that ends with [`BlockEnd::Again`].
    pub blocks: Vec<Block>,
    /// Number of registers. All are 0 at the start.
    pub registers: usize,
}

/// The index of a block.
pub type BlockIndex = usize;

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(pub u16);

/// Steps that are taken one after the other, and where to go then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The steps.
    pub steps: Vec<Step>,
    /// The end.
    pub end: BlockEnd,
    /// The part of the expression that it decides: bytes of its text.
    pub part: Range<usize>,
}

/// Sets a register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The register.
    pub target: Register,
    /// Its new value.
    pub value: Value,
}

/// An operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A number.
    Constant(u32),
    /// The value of a register.
    Register(Register),
}

/// Number of bytes that are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Width {
    /// One byte.
    Byte,
    /// Two bytes, the higher one first.
    Half,
    /// Four bytes, the highest one first.
    Word,
}

/// The value of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// An operand.
    Copy(Operand),
    /// Bytes of the packet from `base` + `offset` on. The sum does not wrap around: beyond 32 bits it is outside.
    Load {
        /// Number of bytes.
        width: Width,
        /// What is added to the offset.
        base: Option<Register>,
        /// Bytes from the start of the packet, or from the base.
        offset: u32,
    },
    /// The length of the packet on the wire in bytes.
    Length,
    /// An operation on two operands.
    Binary {
        /// The operation.
        operation: Operation,
        /// The left operand.
        left: Operand,
        /// The right operand.
        right: Operand,
    },
}

/// An operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Sum.
    Add,
    /// Difference.
    Subtract,
    /// Product.
    Multiply,
    /// Quotient; rejects the packet if the right operand is 0.
    Divide,
    /// Remainder; rejects the packet if the right operand is 0.
    Remainder,
    /// Bits that are set in both.
    And,
    /// Bits that are set in one or both.
    Or,
    /// Bits that are set in one.
    Xor,
    /// Shift to the left; 0 from 32 bits on.
    ShiftLeft,
    /// Shift to the right; 0 from 32 bits on.
    ShiftRight,
}

/// How two operands are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComparisonOperator {
    /// Whether they are equal.
    Equal,
    /// Whether the left one is greater.
    Greater,
    /// Whether the left one is greater, or they are equal.
    GreaterOrEqual,
    /// Whether a bit is set in both.
    AnyBit,
}

/// The end of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockEnd {
    /// Goes on with one of two blocks.
    Branch {
        /// The comparison.
        comparison: ComparisonOperator,
        /// The left operand.
        left: Operand,
        /// The right operand.
        right: Operand,
        /// The next block if it holds.
        yes: BlockIndex,
        /// The next block otherwise.
        no: BlockIndex,
    },
    /// Goes on with one block.
    Goto(BlockIndex),
    /// Goes back to a block with a lower or the same index: a loop over headers. Each round must load from further
    /// back in the packet; after [`MAX_ROUNDS`] rounds the packet is rejected.
    Again(BlockIndex),
    /// The packet matches.
    Accept,
    /// The packet does not match.
    Reject,
}

/// The maximum number of rounds of all loops of a filter over one packet.
pub const MAX_ROUNDS: u32 = 65_536;

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Constant(number @ 0..10) => write!(f, "{number}"),
            Operand::Constant(number) => write!(f, "{number:#x}"),
            Operand::Register(register) => write!(f, "{register}"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Copy(from) => write!(f, "{from}"),
            Value::Load { width, base, offset } => {
                f.write_str(match width {
                    Width::Byte => "byte",
                    Width::Half => "half",
                    Width::Word => "word",
                })?;
                match base {
                    Some(base) => write!(f, " [{base} + {offset}]"),
                    None => write!(f, " [{offset}]"),
                }
            }
            Value::Length => f.write_str("length"),
            Value::Binary { operation, left, right } => write!(f, "{left} {operation} {right}"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Add => "+",
            Operation::Subtract => "-",
            Operation::Multiply => "*",
            Operation::Divide => "/",
            Operation::Remainder => "%",
            Operation::And => "&",
            Operation::Or => "|",
            Operation::Xor => "^",
            Operation::ShiftLeft => "<<",
            Operation::ShiftRight => ">>",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.target, self.value)
    }
}

impl fmt::Display for BlockEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlockEnd::Branch { comparison, left, right, yes, no } => {
                match comparison {
                    ComparisonOperator::Equal => write!(f, "if {left} == {right}")?,
                    ComparisonOperator::Greater => write!(f, "if {left} > {right}")?,
                    ComparisonOperator::GreaterOrEqual => write!(f, "if {left} >= {right}")?,
                    ComparisonOperator::AnyBit => write!(f, "if {left} & {right} != 0")?,
                }
                write!(f, ": {yes}, else {no}")
            }
            BlockEnd::Goto(to) => write!(f, "go to {to}"),
            BlockEnd::Again(to) => write!(f, "again from {to}"),
            BlockEnd::Accept => f.write_str("match"),
            BlockEnd::Reject => f.write_str("no match"),
        }
    }
}

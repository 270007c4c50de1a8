//! The machine of the BSD packet filter: an accumulator, an index register and 16 words of memory.
//!
//! Expressions are compiled for this machine first, because its loads and their order decide the verdict on a packet
//! that is cut off. [`simplify`](mod@simplify) then makes the changes that libpcap makes, which alter that order, and
//! [`lower`] turns the result into a [graph](crate::graph).
#![forbid(unsafe_code)]

pub(crate) mod lower;
pub(crate) mod ops;
pub mod program;
pub(crate) mod simplify;
#[cfg(test)]
mod tests;

use std::ops::Range;

use self::ops::Ops;
use crate::graph::{ComparisonOperator, Operation, Width};

/// Number of words of memory.
pub(crate) const MEMORY_WORDS: usize = 16;

/// The index of a block.
pub(crate) type BlockId = usize;

/// An instruction that does not jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// A removed instruction. It stays in its list, because some changes depend on the position in the list.
    Nothing,
    /// Accumulator := `packet[k]`.
    Load(Width, u32),
    /// Accumulator := `packet[index + k]`.
    LoadIndexed(Width, u32),
    /// Accumulator := length on the wire.
    LoadLength,
    /// Accumulator := k.
    LoadConstant(u32),
    /// Accumulator := `memory[k]`.
    LoadMemory(u8),
    /// Index := k.
    IndexConstant(u32),
    /// Index := `memory[k]`.
    IndexMemory(u8),
    /// Index := 4 × the low four bits of the byte `packet[k]`: the length of an IPv4 header.
    IndexHeaderLength(u32),
    /// `Memory[k]` := accumulator.
    Store(u8),
    /// `Memory[k]` := index.
    StoreIndex(u8),
    /// Accumulator := accumulator ∘ k.
    Constant(Operation, u32),
    /// Accumulator := accumulator ∘ index.
    Index(Operation),
    /// Accumulator := −accumulator.
    Negate,
    /// Index := accumulator.
    ToIndex,
    /// Accumulator := index.
    FromIndex,
}

/// What the accumulator is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Right {
    Constant(u32),
    Index,
}

/// The end of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// Compares the accumulator.
    Test { comparison: ComparisonOperator, right: Right, yes: BlockId, no: BlockId },
    /// Goes on with a block.
    Goto(BlockId),
    /// Goes back to a block: a loop.
    Again(BlockId),
    /// The packet matches.
    Accept,
    /// The packet does not match.
    Reject,
}

/// Instructions, and where to go then.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    pub(crate) ops: Ops,
    pub(crate) end: End,
    /// The part of the text that it decides.
    pub(crate) part: Range<usize>,
}

/// A program as a graph of blocks.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) blocks: Vec<Block>,
    pub(crate) root: BlockId,
}

impl Block {
    /// The blocks that can follow, without going back.
    pub(crate) fn next(&self) -> [Option<BlockId>; 2] {
        match self.end {
            End::Test { yes, no, .. } => [Some(yes), Some(no)],
            End::Goto(next) => [Some(next), None],
            End::Again(_) | End::Accept | End::Reject => [None, None],
        }
    }
}

impl Flow {
    /// Whether every packet matches, or none, if that is so.
    pub(crate) fn constant(&self) -> Option<bool> {
        match self.blocks[self.root].end {
            End::Accept => Some(true),
            End::Reject => Some(false),
            _ => None,
        }
    }

    /// The reachable blocks, each before those that can follow it.
    pub(crate) fn layout(&self) -> Vec<BlockId> {
        let mut is_seen = vec![false; self.blocks.len()];
        let mut finished = Vec::new();
        let mut stack = vec![(self.root, false)];
        while let Some((block, is_finished)) = stack.pop() {
            if is_finished {
                finished.push(block);
            } else if !std::mem::replace(&mut is_seen[block], true) {
                stack.push((block, true));
                // The last one pushed is visited first: those that follow a failed test.
                stack.extend(self.blocks[block].next().into_iter().flatten().map(|next| (next, false)));
            }
        }
        finished.reverse();
        finished
    }
}

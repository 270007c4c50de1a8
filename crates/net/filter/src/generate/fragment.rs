//! Control flow: blocks whose ways out lead nowhere yet, joined by `and` and `or`; and words of memory.

use super::{Generator, Made};
use crate::classic::ops::Ops;
use crate::classic::{Block, BlockId, End, MEMORY_WORDS, Op, Right};
use crate::graph::ComparisonOperator;

/// Ways out of blocks that lead nowhere yet, as a list: its first and its last one. A way is twice its block, plus 1 if
/// the test fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exits {
    pub(super) first: usize,
    pub(super) last: usize,
}

impl Exits {
    pub(super) fn one(way: usize) -> Exits {
        Exits { first: way, last: way }
    }
}

/// The end of a list of ways.
pub(super) const NO_EXIT: usize = usize::MAX;

/// Blocks whose ways out lead nowhere yet.
#[derive(Debug)]
pub(super) struct Fragment {
    pub(super) head: BlockId,
    pub(super) yes: Exits,
    pub(super) no: Exits,
}

impl Fragment {
    pub(super) fn negated(self) -> Fragment {
        Fragment { head: self.head, yes: self.no, no: self.yes }
    }
}

impl Generator<'_> {
    pub(super) fn end_block(&mut self, end: End) -> BlockId {
        self.blocks.push(Block { ops: Ops::default(), end, part: self.place.clone() });
        self.blocks.len() - 1
    }

    /// A block that ends with a test.
    pub(super) fn test(&mut self, ops: Ops, comparison: ComparisonOperator, right: Right) -> Fragment {
        let block = self.blocks.len();
        let end = End::Test { comparison, right, yes: block, no: block };
        self.blocks.push(Block { ops, end, part: self.place.clone() });
        Fragment { head: block, yes: Exits::one(2 * block), no: Exits::one(2 * block + 1) }
    }

    /// The ways of two lists.
    fn joined(&mut self, first: Exits, second: Exits) -> Exits {
        self.next_exit.resize(2 * self.blocks.len(), NO_EXIT);
        self.next_exit[first.last] = second.first;
        Exits { first: first.first, last: second.last }
    }

    pub(super) fn patch(&mut self, exits: Exits, target: BlockId) {
        let mut way = exits.first;
        loop {
            match &mut self.blocks[way / 2].end {
                End::Test { yes, no, .. } => *(if way.is_multiple_of(2) { yes } else { no }) = target,
                End::Goto(next) => *next = target,
                End::Again(_) | End::Accept | End::Reject => {}
            }
            if way == exits.last {
                return;
            }
            way = self.next_exit[way];
        }
    }

    pub(super) fn and(&mut self, first: Fragment, second: Fragment) -> Fragment {
        self.patch(first.yes, second.head);
        Fragment { head: first.head, yes: second.yes, no: self.joined(first.no, second.no) }
    }

    pub(super) fn or(&mut self, first: Fragment, second: Fragment) -> Fragment {
        self.patch(first.no, second.head);
        Fragment { head: first.head, yes: self.joined(first.yes, second.yes), no: second.no }
    }

    /// All of several tests.
    pub(super) fn all(&mut self, fragments: impl IntoIterator<Item = Fragment>) -> Option<Fragment> {
        fragments.into_iter().reduce(|first, second| self.and(first, second))
    }

    pub(super) fn constant(&mut self, holds: bool) -> Fragment {
        self.test(Ops::of(&[Op::LoadConstant(u32::from(!holds))]), ComparisonOperator::Equal, Right::Constant(0))
    }

    pub(super) fn after(&mut self, condition: Option<Fragment>, test: Fragment) -> Fragment {
        match condition {
            Some(condition) => self.and(condition, test),
            None => test,
        }
    }

    pub(super) fn take_word(&mut self) -> Made<u8> {
        for _ in 0..MEMORY_WORDS {
            let word = self.next_word;
            if !std::mem::replace(&mut self.used_words[usize::from(word)], true) {
                return Ok(word);
            }
            self.next_word = (self.next_word + 1) % MEMORY_WORDS as u8;
        }
        self.mistake(
            format!("this needs more than {MEMORY_WORDS} intermediate results"),
            "write shorter arithmetic, or use `geneve` and `protochain` less often",
        )
    }

    pub(super) fn free_word(&mut self, word: u8) {
        self.used_words[usize::from(word)] = false;
    }
}

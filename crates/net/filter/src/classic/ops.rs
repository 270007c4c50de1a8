//! The instructions of a block.
//!
//! Most blocks have one or two: those stay in the block, because a long expression has hundreds of thousands of blocks.

use std::ops::{Deref, DerefMut};

use super::Op;

/// Instructions that stay in the block.
const FEW: usize = 4;

/// A list of instructions.
#[derive(Clone, Debug)]
pub(crate) enum Ops {
    Few([Op; FEW], u8),
    Many(Vec<Op>),
}

impl Default for Ops {
    fn default() -> Ops {
        Ops::Few([Op::Nothing; FEW], 0)
    }
}

impl Deref for Ops {
    type Target = [Op];

    #[inline]
    fn deref(&self) -> &[Op] {
        match self {
            Ops::Few(ops, count) => &ops[..usize::from(*count)],
            Ops::Many(ops) => ops,
        }
    }
}

impl DerefMut for Ops {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Op] {
        match self {
            Ops::Few(ops, count) => &mut ops[..usize::from(*count)],
            Ops::Many(ops) => ops,
        }
    }
}

impl Ops {
    /// These instructions.
    pub(crate) fn of(ops: &[Op]) -> Ops {
        let mut all = Ops::default();
        all.extend(ops.iter().copied());
        all
    }

    #[inline]
    pub(crate) fn push(&mut self, op: Op) {
        match self {
            Ops::Few(ops, count) => match ops.get_mut(usize::from(*count)) {
                Some(place) => {
                    *place = op;
                    *count += 1;
                }
                None => {
                    let mut many = ops.to_vec();
                    many.push(op);
                    *self = Ops::Many(many);
                }
            },
            Ops::Many(ops) => ops.push(op),
        }
    }

    pub(crate) fn extend(&mut self, ops: impl IntoIterator<Item = Op>) {
        ops.into_iter().for_each(|op| self.push(op));
    }

    pub(crate) fn clear(&mut self) {
        *self = Ops::default();
    }

    /// Leaves out the removed ones.
    pub(crate) fn compact(&mut self) {
        if self.contains(&Op::Nothing) {
            let kept = std::mem::take(self);
            self.extend(kept.iter().copied().filter(|&op| op != Op::Nothing));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_one_of_a_vector() {
        let op = |number| if number % 3 == 0 { Op::Nothing } else { Op::LoadConstant(number) };
        for count in 0..10 {
            let mut expected: Vec<Op> = (0..count).map(op).collect();
            let mut ops = Ops::of(&expected);
            assert_eq!(ops[..], expected);
            if let Some(first) = ops.first_mut() {
                *first = Op::Negate;
                expected[0] = Op::Negate;
            }
            ops.extend([Op::LoadLength, Op::Nothing]);
            expected.extend([Op::LoadLength, Op::Nothing]);
            ops.compact();
            expected.retain(|&op| op != Op::Nothing);
            assert_eq!(ops[..], expected);
            ops.clear();
            assert!(ops.is_empty());
        }
    }
}

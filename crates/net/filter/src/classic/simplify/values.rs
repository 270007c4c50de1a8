//! Numbers of values: equal numbers are equal values.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::{ConstantError, ValueId};
use crate::graph::{Operation, Width};

/// A fast hasher for small keys of integers.
#[derive(Default)]
pub(super) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

pub(super) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

/// How a value comes about.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Origin {
    Constant(u32),
    Length,
    Load(Width, u32),
    LoadIndexed(Width, u32, ValueId),
    HeaderLength(u32),
    Negated(ValueId),
    /// An operation, whether its right operand is in the instruction, and both operands.
    Operation(Operation, bool, ValueId, ValueId),
}

/// The values of a pass.
#[derive(Default)]
pub(super) struct Values {
    pub(super) known: Map<Origin, ValueId>,
    pub(super) constants: Vec<Option<u32>>,
}

impl Values {
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.constants.clear();
        self.constants.push(None);
    }

    pub(super) fn number(&mut self, origin: Origin) -> ValueId {
        *self.known.entry(origin).or_insert_with(|| {
            self.constants.push(match origin {
                Origin::Constant(number) => Some(number),
                _ => None,
            });
            (self.constants.len() - 1) as ValueId
        })
    }

    pub(super) fn constant(&mut self, number: u32) -> ValueId {
        self.number(Origin::Constant(number))
    }

    pub(super) fn is_constant(&self, value: ValueId) -> Option<u32> {
        self.constants[value as usize]
    }
}

/// The result of an operation on constants.
pub(super) fn fold(operation: Operation, left: u32, right: u32) -> Result<u32, ConstantError> {
    Ok(match operation {
        Operation::Add => left.wrapping_add(right),
        Operation::Subtract => left.wrapping_sub(right),
        Operation::Multiply => left.wrapping_mul(right),
        Operation::Divide => left.checked_div(right).ok_or(ConstantError::DivisionByZero)?,
        Operation::Remainder => left.checked_rem(right).ok_or(ConstantError::RemainderByZero)?,
        Operation::And => left & right,
        Operation::Or => left | right,
        Operation::Xor => left ^ right,
        Operation::ShiftLeft => left.checked_shl(right).unwrap_or(0),
        Operation::ShiftRight => left.checked_shr(right).unwrap_or(0),
    })
}

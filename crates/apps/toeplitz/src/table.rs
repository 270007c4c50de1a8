//! The hash by tables, on any processor.

use crate::{Input, MIN_KEY, SHORT, WORDS};

/// The bits of an input that are looked up at a time: with eight, the tables would fill the first-level cache.
const BITS: usize = 4;

/// For each place of four bits in an input, the hash of each value.
pub(crate) type Tables = [[[u32; 1 << BITS]; 32 / BITS]; WORDS];

/// The tables of a key.
pub(crate) fn tables(key: &[u8; MIN_KEY]) -> Box<Tables> {
    let mut tables = Box::new([[[0; 1 << BITS]; 32 / BITS]; WORDS]);
    for (places, bytes) in tables.iter_mut().zip(key.windows(8).step_by(4)) {
        let bits = bytes.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
        for (place, table) in places.iter_mut().enumerate() {
            for (value, hash) in table.iter_mut().enumerate() {
                let ones = (0..BITS).filter(|bit| value >> (BITS - 1 - bit) & 1 == 1);
                *hash = ones.fold(0, |hash, bit| hash ^ (bits >> (32 - BITS * place - bit)) as u32);
            }
        }
    }
    tables
}

/// Hot.
pub(crate) fn hash(tables: &Tables, inputs: &[Input], hashes: &mut [u32]) {
    for (input, hash) in inputs.iter().zip(hashes) {
        *hash = 0;
        let bytes = if input.is_long { &input.bytes[..] } else { &input.bytes[..SHORT] };
        for (word, places) in bytes.as_chunks().0.iter().zip(tables) {
            let word = u32::from_be_bytes(*word);
            for (place, table) in places.iter().enumerate() {
                *hash ^= table[(word >> (32 - BITS - BITS * place)) as usize % (1 << BITS)];
            }
        }
    }
}

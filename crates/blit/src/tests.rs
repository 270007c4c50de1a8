//! Every loop against a model that copies byte by byte.

use super::*;
use crate::kernels::candidates;

/// What is in no source.
const GUARD: u8 = 0xee;

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8 % 200).collect()
}

#[test]
fn every_length_at_every_alignment() {
    for kernel in candidates() {
        let mut blitter = Blitter::with(kernel, false);
        let source = pattern(64 + 300);
        let mut destination = vec![GUARD; 64 + 300 + 64];
        for length in 0..=300 {
            for from in 0..64 {
                let to = (from * 29 + length) % 64;
                destination.fill(GUARD);
                // SAFETY: both vectors have room, and live until the barrier.
                unsafe { blitter.copy(destination.as_mut_ptr().add(to), source.as_ptr().add(from), length) };
                blitter.barrier();
                assert_eq!(destination[to..to + length], source[from..from + length], "{}", kernel.name);
                assert!(destination[..to].iter().chain(&destination[to + length..]).all(|&byte| byte == GUARD));
            }
        }
    }
}

//! The stack of a thread that has handled a secret.

use std::hint::black_box;

/// Bytes that are overwritten: more than the functions need that read keys and compute ciphers.
const DEPTH: usize = 64 << 10;

/// Overwrites what functions that have returned to the caller left on the stack of this thread: copies of a secret that
/// was in their variables, or that the compiler put there. Not for secrets in variables of the caller, which zeroes them.
///
/// ```
/// fn sum_of_key() -> u32 {
///     let key = [7u8; 32];
///     key.iter().map(|byte| u32::from(*byte)).sum()
/// }
/// assert_eq!(sum_of_key(), 224);
/// bellows_sys::stack::wipe();
/// ```
#[inline(never)]
pub fn wipe() {
    let mut below = [0u8; DEPTH];
    black_box(&mut below);
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERN: [u8; 16] = *b"a secret pattern";

    /// Leaves a pattern on the stack, this deep.
    #[inline(never)]
    fn leave(depth: usize) -> usize {
        let mut copy = [0u8; 64];
        for (byte, pattern) in black_box(&mut copy).iter_mut().zip(PATTERN.into_iter().cycle()) {
            // Other bytes than the constant's, so that it is found only here.
            *byte = pattern ^ 0x80;
        }
        let place = std::ptr::from_ref(&copy).addr();
        let lowest = if depth == 0 { place } else { leave(depth - 1).min(place) };
        black_box(&copy);
        lowest
    }

    /// How often the pattern is in the memory of this process between two addresses.
    fn count(from: usize, to: usize) -> usize {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; to - from];
        std::fs::File::open("/proc/self/mem").unwrap().read_exact_at(&mut bytes, from as u64).unwrap();
        bytes.windows(16).filter(|window| window.iter().zip(PATTERN).all(|(byte, one)| *byte == one ^ 0x80)).count()
    }

    #[test]
    fn what_functions_left_on_the_stack_is_overwritten() {
        // Deep, so that reading the memory afterwards does not overwrite all of it.
        let top = 0u8;
        let top = std::ptr::from_ref(black_box(&top)).addr();
        let lowest = leave(200);
        assert!(top - lowest > 4_000 && top - lowest < DEPTH, "{}", top - lowest);
        assert!(count(lowest, top) > 0, "the test can fail: without wiping, the pattern is there");
        leave(200);
        wipe();
        assert_eq!(count(lowest, top), 0);
    }
}

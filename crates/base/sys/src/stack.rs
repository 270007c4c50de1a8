//! The stack and the vector registers of a thread that has handled a secret.

use std::hint::black_box;

/// Bytes that are overwritten: more than the functions need that read keys and compute ciphers.
const DEPTH: usize = 64 << 10;

/// Overwrites what functions that have returned to the caller left on the stack of this thread: copies of a secret that
/// was in their variables, or that the compiler put there. Not for secrets in variables of the caller, which zeroes them.
/// Vector registers, which ciphers and copies fill, are zeroed, too, and so is the stack of signals, on which the kernel
/// has stored them if there was a signal meanwhile.
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
    zero_vector_registers();
    zero_signal_stack();
}

/// Zeroes the alternative stack of this thread's signals, if it has one.
fn zero_signal_stack() {
    // SAFETY: a value of zeros is one of this type.
    let mut stack: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes to the variable alone.
    let is_known = unsafe { libc::sigaltstack(std::ptr::null(), &raw mut stack) } == 0;
    if is_known && stack.ss_flags == 0 && !stack.ss_sp.is_null() {
        // SAFETY: the memory is that of the thread's alternative stack. No handler runs on it now, as its flags say, and
        // one that begins meanwhile ends before this goes on. Nothing else refers to it.
        unsafe { std::ptr::write_bytes(stack.ss_sp.cast::<u8>(), 0, stack.ss_size) };
    }
}

/// Zeroes the vector registers, of which no function expects anything after a call.
#[cfg(target_arch = "x86_64")]
fn zero_vector_registers() {
    use std::arch::asm;

    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the processor has these instructions, and they change registers alone that a call may change.
        unsafe {
            asm!(
                "vpxord zmm16, zmm16, zmm16",
                "vpxord zmm17, zmm17, zmm17",
                "vpxord zmm18, zmm18, zmm18",
                "vpxord zmm19, zmm19, zmm19",
                "vpxord zmm20, zmm20, zmm20",
                "vpxord zmm21, zmm21, zmm21",
                "vpxord zmm22, zmm22, zmm22",
                "vpxord zmm23, zmm23, zmm23",
                "vpxord zmm24, zmm24, zmm24",
                "vpxord zmm25, zmm25, zmm25",
                "vpxord zmm26, zmm26, zmm26",
                "vpxord zmm27, zmm27, zmm27",
                "vpxord zmm28, zmm28, zmm28",
                "vpxord zmm29, zmm29, zmm29",
                "vpxord zmm30, zmm30, zmm30",
                "vpxord zmm31, zmm31, zmm31",
                clobber_abi("C"),
                options(nomem, nostack, preserves_flags),
            );
        }
    }
    if is_x86_feature_detected!("avx") {
        // SAFETY: as above.
        unsafe { asm!("vzeroall", clobber_abi("C"), options(nomem, nostack, preserves_flags)) };
    } else {
        // SAFETY: as above; every processor of the architecture has this instruction.
        unsafe {
            asm!(
                "pxor xmm0, xmm0",
                "pxor xmm1, xmm1",
                "pxor xmm2, xmm2",
                "pxor xmm3, xmm3",
                "pxor xmm4, xmm4",
                "pxor xmm5, xmm5",
                "pxor xmm6, xmm6",
                "pxor xmm7, xmm7",
                "pxor xmm8, xmm8",
                "pxor xmm9, xmm9",
                "pxor xmm10, xmm10",
                "pxor xmm11, xmm11",
                "pxor xmm12, xmm12",
                "pxor xmm13, xmm13",
                "pxor xmm14, xmm14",
                "pxor xmm15, xmm15",
                clobber_abi("C"),
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

/// Does nothing: which registers other architectures have is not known here.
#[cfg(not(target_arch = "x86_64"))]
fn zero_vector_registers() {}

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

    #[test]
    fn the_stack_of_signals_is_zeroed() {
        // Threads of the standard library have one.
        std::thread::spawn(|| {
            // SAFETY: a value of zeros is one of this type, and the call writes to the variable alone.
            let stack = unsafe {
                let mut stack: libc::stack_t = std::mem::zeroed();
                assert_eq!(libc::sigaltstack(std::ptr::null(), &raw mut stack), 0);
                stack
            };
            assert!(!stack.ss_sp.is_null() && stack.ss_size > 4096);
            let last = stack.ss_sp.cast::<u8>().wrapping_add(stack.ss_size - PATTERN.len()).cast::<[u8; 16]>();
            // SAFETY: these are the last bytes of the thread's stack of signals, of which no handler runs.
            unsafe { last.write_volatile(PATTERN) };
            wipe();
            // SAFETY: as above.
            assert_eq!(unsafe { last.read_volatile() }, [0; 16]);
        })
        .join()
        .unwrap();
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
        let lowest = leave(100);
        assert!(top - lowest > 4_000 && top - lowest < DEPTH, "{}", top - lowest);
        assert!(count(lowest, top) > 0, "the test can fail: without wiping, the pattern is there");
        leave(100);
        wipe();
        assert_eq!(count(lowest, top), 0);
    }
}

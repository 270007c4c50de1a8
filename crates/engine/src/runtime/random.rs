//! Random numbers that need not be good: xorshift64*, Vigna 2016.

use bellows_sys::clock;

pub(crate) struct Random(u64);

impl Random {
    /// Other numbers in each process.
    pub(crate) fn new() -> Random {
        Random(clock::ticks() | 1)
    }

    /// A number below `bound`, which is small and not 0; all are equally likely, or nearly so.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) % bound
    }
}

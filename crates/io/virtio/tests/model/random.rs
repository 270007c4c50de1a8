//! Pseudo-random numbers from a seed (SplitMix64).

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `least` to `most`, inclusive.
    pub fn between(&mut self, least: usize, most: usize) -> usize {
        assert!(least <= most, "nothing lies between {least} and {most}");
        least + (self.next() % (most - least + 1) as u64) as usize
    }

    /// True once in this many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.between(1, times) == 1
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.between(0, choices.len() - 1)]
    }

    pub fn word(&mut self) -> u16 {
        self.next() as u16
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let words = (0..count.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        let mut bytes: Vec<u8> = words.collect();
        bytes.truncate(count);
        bytes
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.between(0, last));
        }
    }
}

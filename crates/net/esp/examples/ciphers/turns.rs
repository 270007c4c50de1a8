//! Contenders that seal and open the same buffers in turns.

use std::hint::black_box;
use std::time::Instant;

use bellows_stats::median;

/// The packets that contenders seal and open, if they are to stay in the cache of the core.
pub const HOT: usize = 64;

/// The room in front of the data, for headers, and behind it, for trailers and tags.
pub const FRONT: usize = 16;
const BEHIND: usize = 32;

/// The turns of each contender. Each begins at another place of the round.
const ROUNDS: usize = 61;

/// The bytes that a turn seals and opens, at least: about a tenth of a millisecond.
const BYTES: usize = 400_000;

/// One way to protect packets. `open` undoes what `seal` has done.
pub trait Contender {
    /// Seals `length` bytes of each packet, at [`FRONT`].
    fn seal(&mut self, packets: &mut [Vec<u8>], length: usize);

    /// Opens them again.
    fn open(&mut self, packets: &mut [Vec<u8>], length: usize);
}

/// Nanoseconds a packet.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub seal: f64,
    pub open: f64,
}

/// The medians of each contender's turns with `count` packets of `length` bytes.
pub fn compare(contenders: &mut [Box<dyn Contender>], count: usize, length: usize) -> Vec<Cost> {
    let mut packets = vec![vec![0; FRONT + length + BEHIND]; count];
    let repeats = BYTES / (length + 100) / count + 1;
    let mut samples = vec![(Vec::new(), Vec::new()); contenders.len()];
    for round in 0..ROUNDS {
        for turn in 0..contenders.len() {
            let index = (round + turn) % contenders.len();
            let contender = &mut contenders[index];
            let (mut sealed, mut opened) = (0.0, 0.0);
            // The first pass is not timed: it fetches the code and the keys.
            for repeat in 0..=repeats {
                let start = Instant::now();
                contender.seal(&mut packets, length);
                let middle = Instant::now();
                contender.open(&mut packets, length);
                let end = Instant::now();
                black_box(&mut packets);
                if repeat > 0 {
                    sealed += (middle - start).as_secs_f64();
                    opened += (end - middle).as_secs_f64();
                }
            }
            let nanos = 1e9 / (repeats * count) as f64;
            samples[index].0.push(sealed * nanos);
            samples[index].1.push(opened * nanos);
        }
    }
    let middle = |samples: &[f64]| median(samples).map_or(f64::NAN, |median| median.value);
    samples.iter().map(|(seal, open)| Cost { seal: middle(seal), open: middle(open) }).collect()
}

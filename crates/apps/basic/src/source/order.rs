//! The order of packet sizes.

use fastrand::Rng;

/// Maximum number of packets of a shuffled order that are laid out in advance.
const MAX_LAID_OUT: usize = 1 << 16;

/// Maximum number of shuffled rounds that are laid out in advance.
const MAX_ROUNDS: usize = 256;

/// Separates the random numbers of the order from those of the payload.
const SALT: u64 = 0x6f72_6465_7273;

/// Which size is next, and how many packets of it follow one another.
pub(super) enum Order {
    /// Each size in its turn: the number of consecutive packets of it.
    InTurn { runs: Vec<usize>, turn: usize },
    /// Rounds in random order: in each, every size comes as often as its weight says.
    Shuffled(Shuffled),
}

/// Rounds are shuffled once, when the order is made. Each round to send is one of these, chosen at random and started
/// at a random place. So a packet of any size has the same probability at every place, and a consumer in step with the
/// rounds sees all sizes in proportion.
pub(super) struct Shuffled {
    /// The rounds, each written twice in a row, so that it can start anywhere.
    laid_out: Vec<PacketPlace>,
    /// Number of packets of a round.
    length: usize,
    /// The rest of the round that is being sent.
    at: usize,
    end: usize,
    random: Rng,
}

/// A packet of a round that is laid out.
#[derive(Clone, Copy)]
struct PacketPlace {
    kind: u8,
    /// Maximum number of consecutive packets of this size from here.
    run: u16,
}

/// Adds a round.
fn lay_out(round: &[u8], laid_out: &mut Vec<PacketPlace>) {
    let first = laid_out.len();
    let mut run = 0u16;
    let mut last = None;
    for &kind in round.iter().rev() {
        run = if last == Some(kind) { run.saturating_add(1) } else { 1 };
        last = Some(kind);
        laid_out.push(PacketPlace { kind, run });
    }
    laid_out[first..].reverse();
}

impl Order {
    /// Each size in turn, as many packets as its weight.
    pub(super) fn in_turn(weights: &[u32]) -> Order {
        Order::InTurn { runs: weights.iter().map(|&weight| weight as usize).collect(), turn: weights.len() }
    }

    /// Rounds in which each of at most 256 sizes has as many packets as its weight.
    ///
    /// # Errors
    /// The maximum number of packets of a round, if the weights add up to more.
    pub(super) fn shuffled(weights: &[u32], seed: u64) -> Result<Order, usize> {
        let divisor = weights.iter().copied().reduce(greatest_common_divisor).unwrap_or(1).max(1);
        let length: usize = weights.iter().map(|&weight| (weight / divisor) as usize).sum();
        if length > MAX_LAID_OUT {
            return Err(MAX_LAID_OUT);
        }
        let mut random = Rng::with_seed(seed ^ SALT);
        let kinds = (0..=u8::MAX).zip(weights);
        let mut round: Vec<u8> =
            kinds.flat_map(|(kind, &weight)| std::iter::repeat_n(kind, (weight / divisor) as usize)).collect();
        let rounds = (MAX_LAID_OUT / length.max(1)).clamp(1, MAX_ROUNDS);
        let mut laid_out = Vec::with_capacity(2 * length * rounds);
        for _ in 0..rounds {
            random.shuffle(&mut round);
            lay_out(&round.repeat(2), &mut laid_out);
        }
        Ok(Order::Shuffled(Shuffled { laid_out, length, at: 0, end: 0, random }))
    }

    /// The next size, and how many packets of it follow one another. Hot.
    #[inline]
    pub(super) fn next_run(&mut self) -> (usize, usize) {
        match self {
            Order::InTurn { runs, turn } => {
                *turn = if *turn + 1 < runs.len() { *turn + 1 } else { 0 };
                (*turn, runs[*turn])
            }
            Order::Shuffled(shuffled) => shuffled.next_run(),
        }
    }
}

impl Shuffled {
    #[inline]
    fn next_run(&mut self) -> (usize, usize) {
        if self.at == self.end {
            let round = self.random.usize(..self.laid_out.len() / (2 * self.length));
            self.at = 2 * self.length * round + self.random.usize(..self.length);
            self.end = self.at + self.length;
        }
        let PacketPlace { kind, run } = self.laid_out[self.at];
        let run = usize::from(run).min(self.end - self.at);
        self.at += run;
        (kind.into(), run)
    }
}

fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kinds(order: &mut Order) -> impl Iterator<Item = usize> {
        std::iter::from_fn(|| Some(order.next_run())).flat_map(|(kind, run)| std::iter::repeat_n(kind, run))
    }

    #[test]
    fn kinds_take_turns() {
        let mut order = Order::in_turn(&[2, 1, 3]);
        assert_eq!(kinds(&mut order).take(9).collect::<Vec<_>>(), [0, 0, 1, 2, 2, 2, 0, 0, 1]);
        let mut order = Order::in_turn(&[u32::MAX]);
        assert_eq!((order.next_run(), order.next_run()), ((0, u32::MAX as usize), (0, u32::MAX as usize)));
    }

    proptest! {
        /// Every round has each size as often as its weight says, and no place in it prefers a size.
        #[test]
        fn shuffled_rounds_keep_the_weights(weights in prop::collection::vec(1u32..40, 1..20), seed: u64) {
            let mut order = Order::shuffled(&weights, seed).unwrap();
            let divisor = weights.iter().copied().reduce(greatest_common_divisor).unwrap();
            let length = weights.iter().map(|weight| (weight / divisor) as usize).sum::<usize>();
            let all: Vec<usize> = kinds(&mut order).take(length * 2_000).collect();
            for round in all.chunks(length) {
                for (kind, weight) in weights.iter().enumerate() {
                    let count = round.iter().filter(|&&other| other == kind).count();
                    prop_assert_eq!(count, (weight / divisor) as usize);
                }
            }
            for place in [0, length / 2, length - 1] {
                let first = all.iter().skip(place).step_by(length).filter(|&&kind| kind == 0).count();
                let expected = 2_000.0 * f64::from(weights[0] / divisor) / length as f64;
                prop_assert!((first as f64 - expected).abs() < 6.0 * expected.sqrt() + 1.0, "{first} of {expected}");
            }
        }
    }

    #[test]
    fn too_long_rounds_are_refused() {
        assert_eq!(Order::shuffled(&[1 << 16, 1], 0).err(), Some(1 << 16));
        assert!(Order::shuffled(&[1 << 31, 1 << 30], 0).is_ok(), "what has a divisor is made smaller");
    }
}

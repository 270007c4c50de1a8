//! Verdicts on the packets of a vector.

use std::sync::Arc;

use bellows_filter::Matches;
use bellows_packet::Packet;

use super::programs::Programs;

/// Decides which filters packets match.
pub(super) struct Decider {
    filters: usize,
    programs: Arc<Programs>,
    matches: Matches,
}

impl Decider {
    /// Without expressions there is one filter, which matches nothing.
    pub fn new(programs: &Arc<Programs>) -> Decider {
        Decider {
            filters: programs.sources().len().max(1),
            programs: Arc::clone(programs),
            matches: Matches::default(),
        }
    }

    /// Which packets match, if there is one filter, and it is the same for all packets. Hot.
    #[inline]
    pub fn one(&mut self, packets: &[Packet]) -> Option<&Matches> {
        let program = self.programs.only().filter(|_| self.filters == 1)?;
        program.matches(packets, &mut self.matches);
        Some(&self.matches)
    }

    /// The number of the first filter that matches each packet, or the number of filters where none does. Hot.
    pub fn first(&mut self, packets: &[Packet], numbers: &mut [u16]) {
        let Decider { filters, programs, matches } = self;
        programs.each(packets, |program, range| {
            let numbers = &mut numbers[range.clone()];
            match program {
                Some(program) if *filters == 1 => {
                    program.matches(&packets[range], matches);
                    spread(matches, numbers);
                }
                Some(program) => program.first(&packets[range], numbers),
                None => numbers.fill(*filters as u16),
            }
        });
    }

    /// For each packet a bit for each filter that matches. Hot.
    pub fn all(&self, packets: &[Packet], sets: &mut [u64]) {
        self.programs.each(packets, |program, range| {
            let sets = &mut sets[range.clone()];
            match program {
                Some(program) => program.all(&packets[range], sets),
                None => sets.fill(0),
            }
        });
    }
}

/// 0 for packets that match and 1 for others.
#[inline]
pub(super) fn spread(matches: &Matches, numbers: &mut [u16]) {
    for (numbers, &word) in numbers.chunks_mut(64).zip(matches.words()) {
        for (index, number) in numbers.iter_mut().enumerate() {
            *number = u16::from(word >> index & 1 == 0);
        }
    }
}

//! The numbers of short prefixes: what addresses have that are in no longer one.
//!
//! A change compiles the routes of a part of a table, and needs the number of the prefix around it. Searching all routes
//! for that prefix would take most of the time of a change.

use crate::layout::AddressFamily;
use crate::sweep::Window;
use crate::{Prefix, Rib};

/// An entry for each prefix of up to as many bits as the root has, 0 without a route.
pub(crate) struct Short<A> {
    /// The place of a prefix is its bits behind a one, so that half the place is that of the prefix one bit shorter.
    entries: Vec<u32>,
    family: std::marker::PhantomData<A>,
}

impl<A: AddressFamily> Short<A> {
    /// The entries of these routes.
    pub fn of(rib: &Rib<A>) -> Short<A> {
        let mut short = Short { entries: vec![0; 2 << A::ROOT_WIDTH], family: std::marker::PhantomData };
        if rib.is_empty() {
            return short;
        }
        for (prefix, _) in rib.iter().filter(|(prefix, _)| prefix.length() <= A::ROOT_WIDTH) {
            short.update(rib, prefix);
        }
        short
    }

    /// Follows the routes to a prefix, of any length.
    pub fn update(&mut self, rib: &Rib<A>, prefix: Prefix<A>) {
        if let Some(place) = place(prefix) {
            self.entries[place] = rib.best(prefix).map_or(0, |route| route.next + 1);
        }
    }

    /// The entry of the longest prefix that covers this one, itself included, or `None` if this is no short one.
    pub fn covering(&self, prefix: Prefix<A>) -> Option<u32> {
        let mut place = place(prefix)?;
        while place > 0 && self.entries[place] == 0 {
            place /= 2;
        }
        Some(self.entries[place])
    }
}

fn place<A: AddressFamily>(prefix: Prefix<A>) -> Option<usize> {
    let width = prefix.length();
    let bits = || prefix.address().bits(Window { offset: 0, width }) as usize;
    (width <= A::ROOT_WIDTH).then(|| 1 << width | bits())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Route;

    fn check<A: AddressFamily>(random: &mut fastrand::Rng, address: impl Fn(&mut fastrand::Rng) -> A) {
        let mut rib = Rib::default();
        let mut short = Short::of(&rib);
        for _ in 0..300 {
            let prefix = Prefix::of(address(random), random.u8(..=A::ROOT_WIDTH + 2)).unwrap();
            match random.u32(..3) {
                0 => drop(rib.remove(prefix, None)),
                next => drop(rib.insert(prefix, Route { metric: random.u32(..2), next })),
            }
            short.update(&rib, prefix);
            let prefix = Prefix::of(address(random), random.u8(..=A::ROOT_WIDTH)).unwrap();
            let expected = rib.covering(prefix).map_or(0, |(_, route)| route.next + 1);
            assert_eq!(short.covering(prefix), Some(expected));
            assert_eq!(Short::of(&rib).covering(prefix), Some(expected));
        }
        assert_eq!(short.covering(Prefix::of(A::ZERO, A::ROOT_WIDTH + 1).unwrap()), None);
    }

    #[test]
    fn covering_entries_are_those_of_the_routes() {
        let mut random = fastrand::Rng::with_seed(10);
        check::<u32>(&mut random, |random| random.u32(..) & 0x8100_c300);
        check::<u128>(&mut random, |random| random.u128(..) & 0x8103 << 112);
    }
}

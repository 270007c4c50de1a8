//! Changes of routes, alone or while another thread looks up.

use std::sync::Arc;

use bellows_fib::Route;
use bellows_sys::clock;
use fastrand::Rng;

use super::CHANGES;
use super::contender::ReaderLookUps;
use super::reading::{Looking, Tables, Unwatched};
use super::routes::Prefixes;
use crate::slices::{Sliced, Turn};
use crate::workers::Contender;

/// Both tables while their routes change.
pub(super) struct Changing {
    prefixes: Prefixes,
    next_hops: u32,
    commit: usize,
    random: Rng,
    tables: Arc<Tables>,
    reader: Option<Looking>,
}

impl Changing {
    /// So many changes in a commit, and what another thread looks up meanwhile.
    pub(super) fn new(
        prefixes: Prefixes,
        next_hops: u32,
        commit: usize,
        reader: ReaderLookUps,
    ) -> Result<Changing, std::io::Error> {
        let tables = Tables::new(&prefixes, next_hops)?;
        let read = match reader {
            ReaderLookUps::Nothing => None,
            ReaderLookUps::Changing => Some(Arc::clone(&tables)),
            ReaderLookUps::Others => Some(Tables::new(&prefixes, next_hops)?),
        };
        let reader = read.map(|tables| Looking::at(tables, &prefixes, Unwatched));
        Ok(Changing { prefixes, next_hops, commit, random: Rng::with_seed(4), tables, reader })
    }
}

impl Contender for Changing {
    fn turn(&mut self) -> Turn {
        let Changing { prefixes, next_hops, commit, random, tables, reader } = self;
        let (mut ipv4, mut ipv6) = (tables.ipv4.lock(), tables.ipv6.lock());
        let all = prefixes.ipv4.len() + prefixes.ipv6.len();
        let before = reader.as_ref().map_or(0, |reader| {
            reader.begin();
            reader.count()
        });
        let start = clock::ticks();
        for change in 1..=CHANGES {
            let route = Route { metric: 0, next: random.u32(..*next_hops) };
            let place = random.usize(..all);
            // The numbers are valid.
            let _ = match place.checked_sub(prefixes.ipv4.len()) {
                None => ipv4.insert(prefixes.ipv4[place], route),
                Some(place) => ipv6.insert(prefixes.ipv6[place], route),
            };
            if change % *commit == 0 && (ipv4.commit().is_err() || ipv6.commit().is_err()) {
                crate::workers::fail(&"there is no memory for changes");
            }
        }
        let took = (clock::ticks() - start) as f64;
        let a_second = |count: u64| count as f64 * clock::ticks_per_second() as f64 / took;
        let mut figures = vec![a_second(CHANGES as u64)];
        figures.extend(reader.as_ref().map(|reader| {
            reader.end();
            a_second(reader.count() - before)
        }));
        Turn::of(figures, &[Sliced::of(&[(CHANGES as u64, took)])])
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        self.reader.map_or(Ok(()), Looking::finish)
    }
}

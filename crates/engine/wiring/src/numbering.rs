//! The links of each app, and the numbers of links in a thread's table.

use std::collections::HashMap;
use std::ops::Range;

use crate::errors::WiredApp;
use crate::link::{LinkSpec, Side};
use crate::port::Ports;

/// Stands for the link of a port that is not linked.
pub const OPEN: u32 = u32::MAX;

/// The number of links that a breath tests at once.
pub const GROUP: usize = 8;

/// For each app, the links of its inputs and outputs by port, as positions in the network or [`OPEN`].
pub fn links_by_port(apps: &[WiredApp<'_>], links: &[LinkSpec]) -> Vec<(Vec<u32>, Vec<u32>)> {
    let side = |side: Side| -> Vec<Vec<u32>> {
        let mut of_app: HashMap<&str, Vec<(&str, u32)>> = HashMap::new();
        for (index, link) in links.iter().enumerate() {
            let end = link.end(side);
            of_app.entry(&end.app).or_default().push((&end.port, index as u32));
        }
        let ports_of = |app: &WiredApp<'_>| {
            let mine = of_app.get(app.name).map_or(&[][..], Vec::as_slice);
            match app.ports(side) {
                None | Some(Ports::Any { .. }) => mine.iter().map(|(_, link)| *link).collect(),
                Some(Ports::Named(ports)) => {
                    let link_at = |name| mine.iter().find(|(port, _)| *port == name);
                    ports.iter().map(|port| link_at(port.name).map_or(OPEN, |(_, link)| *link)).collect()
                }
            }
        };
        apps.iter().map(ports_of).collect()
    };
    side(Side::Input).into_iter().zip(side(Side::Output)).collect()
}

/// Numbers the links in the order in which a breath pushes their receivers.
///
/// Returns the numbers of each app's input links, the number of each link, and the count of numbers.
///
/// The numbers of one app's links are adjacent, and lie within one group of [`GROUP`] if they fit. An app with more
/// links has groups to itself. Unused numbers count as links that are always empty.
pub fn number_links(
    wiring: &[(Vec<u32>, Vec<u32>)],
    pushes: &[usize],
    links: usize,
) -> (Vec<Range<usize>>, Vec<usize>, usize) {
    let mut ranges = vec![0..0; wiring.len()];
    let mut numbers = vec![0; links];
    let mut next: usize = 0;
    for &app in pushes {
        let mine = wiring[app].0.iter().filter(|&&link| link != OPEN);
        let count = mine.clone().count();
        if next % GROUP + count > GROUP {
            next = next.next_multiple_of(GROUP);
        }
        for (offset, &link) in mine.enumerate() {
            numbers[link as usize] = next + offset;
        }
        ranges[app] = next..next + count;
        next += count;
        if count > GROUP {
            next = next.next_multiple_of(GROUP);
        }
    }
    (ranges, numbers, next.next_multiple_of(GROUP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every link has its own number, an app's numbers are adjacent, and no app straddles a group unless it must.
        #[test]
        fn links_are_numbered_so_that_groups_can_be_tested_at_once(counts in proptest::collection::vec(1usize..20, 0..40)) {
            let mut links = 0;
            let wiring: Vec<(Vec<u32>, Vec<u32>)> = counts
                .iter()
                .map(|&count| {
                    links += count as u32;
                    ((links - count as u32..links).chain([OPEN]).collect(), Vec::new())
                })
                .collect();
            let pushes: Vec<usize> = (0..counts.len()).rev().collect();
            let (ranges, numbers, size) = number_links(&wiring, &pushes, links as usize);
            let mut used = numbers.clone();
            used.sort();
            used.dedup();
            prop_assert_eq!(used.len(), links as usize);
            prop_assert!(size % GROUP == 0 && used.iter().all(|&number| number < size));
            for (app, range) in ranges.iter().enumerate() {
                let mine: Vec<usize> = wiring[app].0.iter().filter(|&&l| l != OPEN).map(|&l| numbers[l as usize]).collect();
                prop_assert_eq!(mine, range.clone().collect::<Vec<_>>());
                prop_assert!(range.start / GROUP == (range.end - 1) / GROUP || range.start % GROUP == 0 && range.len() > GROUP);
            }
        }
    }
}

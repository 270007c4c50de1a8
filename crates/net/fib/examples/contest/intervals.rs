//! Routes as intervals of addresses, of which each has one result.

use bellows_fib::{NO_ROUTE, Prefix};

use super::Known;

/// Where an interval begins, as the first bits of 128, and the number of its addresses' route. It ends where the next one
/// begins.
pub type Interval = (u128, u32);

/// The intervals of all addresses. Neighbours have different numbers.
pub fn of<A: Known>(routes: &[(Prefix<A>, u32)]) -> Vec<Interval> {
    let mut routes = routes.to_vec();
    routes.sort_unstable();
    let mut intervals = vec![(0, NO_ROUTE)];
    // The last address of each prefix that the present address is within, and the numbers of their routes.
    let mut within: Vec<Interval> = Vec::new();
    for (prefix, number) in routes {
        let first = prefix.address().widened();
        leave(&mut intervals, &mut within, Some(first));
        begin(&mut intervals, first, number);
        within.push((first | u128::MAX.checked_shr(prefix.length().into()).unwrap_or(0), number));
    }
    leave(&mut intervals, &mut within, None);
    intervals
}

/// Ends the prefixes that end before an address, or all.
fn leave(intervals: &mut Vec<Interval>, within: &mut Vec<Interval>, before: Option<u128>) {
    while let Some((last, _)) = within.pop_if(|(last, _)| before.is_none_or(|before| *last < before)) {
        if let Some(next) = last.checked_add(1) {
            begin(intervals, next, within.last().map_or(NO_ROUTE, |&(_, number)| number));
        }
    }
}

/// Begins an interval. One that began at the same address had no address.
pub fn begin(intervals: &mut Vec<Interval>, first: u128, number: u32) {
    intervals.pop_if(|(begin, _)| *begin == first);
    if intervals.last().is_none_or(|&(_, before)| before != number) {
        intervals.push((first, number));
    }
}

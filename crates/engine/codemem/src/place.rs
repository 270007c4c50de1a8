//! Finds places for code in the address space: within reach, and free.

use std::ops::{Range, RangeInclusive};

/// Maximum distance between a call and its target: the range of a signed 32-bit displacement, minus a margin for parts
/// of a target that are beside its address.
const REACH: usize = (1 << 31) - (1 << 20);

/// Minimum address of code: a null pointer with an offset must fault.
const LOWEST: usize = 1 << 20;

/// Free space above the heap and below the main stack, for them to grow.
const GROWTH: usize = 256 << 20;

/// The addresses from which all of `length` bytes reach, and are reached by, every byte of `targets`; `None` if there
/// is no such address.
pub fn within_reach(targets: &RangeInclusive<usize>, length: usize) -> Option<RangeInclusive<usize>> {
    let first = targets.end().saturating_sub(REACH).max(LOWEST);
    let last = targets.start().saturating_add(REACH).checked_sub(length)?;
    (first <= last).then_some(first..=last)
}

/// The parts of the address space that are taken according to the lines of a `/proc/PID/maps`, each with a page on
/// either side that must stay free, and with its room to grow. Invalid lines are ignored.
pub fn taken(maps: &str, page: usize) -> Vec<Range<usize>> {
    maps.lines().filter_map(|line| taken_by(line, page)).collect()
}

fn taken_by(line: &str, page: usize) -> Option<Range<usize>> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let name = fields.nth(4);
    let below = if name == Some("[stack]") { GROWTH } else { page };
    let above = match name {
        Some("[heap]") => GROWTH,
        // The program's part of the address space ends above its stack, and no line gives its end.
        Some("[stack]") => usize::MAX,
        _ => page,
    };
    Some(start.saturating_sub(below)..end.saturating_add(above))
}

/// The places where `length` bytes are free and start within `reach`: one address for each gap, the highest in the gap,
/// because mappings that grow into a gap grow from below. The places below the start of `targets` come first, then
/// those above it, where the heap is; the nearest first.
pub fn places(
    mut taken: Vec<Range<usize>>,
    reach: &RangeInclusive<usize>,
    targets: &RangeInclusive<usize>,
    length: usize,
    page: usize,
) -> Vec<usize> {
    taken.retain(|range| !range.is_empty());
    taken.sort_unstable_by_key(|range| range.start);
    taken.push(usize::MAX..usize::MAX);
    let mut free_from = 0;
    let mut places = Vec::new();
    for Range { start, end } in taken {
        places.extend(place_in(free_from..start, reach, length, page));
        free_from = free_from.max(end);
    }
    places.sort_unstable_by_key(|place| (place > targets.start(), place.abs_diff(*targets.start())));
    places
}

fn place_in(gap: Range<usize>, reach: &RangeInclusive<usize>, length: usize, page: usize) -> Option<usize> {
    let highest = gap.end.checked_sub(length)?.min(*reach.end());
    let place = highest - highest % page;
    (place >= gap.start && reach.contains(&place)).then_some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const PAGE: usize = 4096;

    fn call_reaches(end_of_call: usize, target: usize) -> bool {
        i32::try_from(target as i128 - end_of_call as i128).is_ok()
    }

    /// Addresses at which errors are likely: near the ends of the address space, and of the range of a call.
    fn address() -> impl Strategy<Value = usize> {
        prop_oneof![
            any::<usize>(),
            0..4usize << 31,
            (0..4usize << 31).prop_map(|distance| usize::MAX - distance),
            (0..8usize << 31).prop_map(|distance| (1 << 46) + distance),
        ]
    }

    proptest! {
        #[test]
        fn from_within_reach_every_byte_calls_every_target(
            start in address(), span in 0..5usize << 30, length in 1..5usize << 30,
        ) {
            let targets = start..=start.saturating_add(span);
            let reach = within_reach(&targets, length);
            for place in reach.iter().flat_map(|reach| [*reach.start(), *reach.end()]) {
                prop_assert!(place >= LOWEST);
                let end = place.checked_add(length).expect("inside the address space");
                for target in [*targets.start(), *targets.end()] {
                    prop_assert!(call_reaches(place, target) && call_reaches(end, target));
                }
            }
            // Away from the ends of the address space, only the margin may be missing.
            if (2 * REACH..usize::MAX - 2 * REACH - span).contains(&start) {
                prop_assert_eq!(reach.is_none(), span + length > 2 * REACH);
            }
        }

        #[test]
        fn a_place_is_found_exactly_where_a_naive_search_finds_one(
            taken in vec((0..64 * PAGE, 0..64 * PAGE), 0..12),
            reach in (0..64 * PAGE, 0..64 * PAGE),
            target in 0..64 * PAGE,
            length in 1..12 * PAGE,
        ) {
            let target_itself = target..target + 1;
            let taken: Vec<Range<usize>> =
                taken.into_iter().map(|(start, end)| start..end).chain([target_itself]).collect();
            let reach = reach.0.min(reach.1)..=reach.0.max(reach.1);
            let fits = |place: usize| {
                reach.contains(&place)
                    && place.is_multiple_of(PAGE)
                    && taken.iter().all(|range| range.is_empty() || place + length <= range.start || range.end <= place)
            };
            let found = places(taken.clone(), &reach, &(target..=target), length, PAGE);
            for &place in &found {
                prop_assert!(fits(place), "{place:#x}");
            }
            let naive: Vec<usize> = (0..64).map(|page| page * PAGE).filter(|&place| fits(place)).collect();
            prop_assert_eq!(found.is_empty(), naive.is_empty());
            let nearest_below = naive.iter().rev().find(|&&place| place <= target);
            if let Some(nearest) = nearest_below {
                prop_assert_eq!(found.first(), Some(nearest));
            }
        }

        #[test]
        fn no_line_is_too_odd_to_read(maps in ".{0,200}", numbers in vec("[0-9a-f]{0,20}", 6), name in ".{0,20}") {
            taken(&maps, PAGE);
            let [start, end, offset, device, inode, access] = numbers.as_slice() else { unreachable!() };
            let line = format!("{start}-{end} {access} {offset} {device} {inode} {name}");
            for range in taken(&line, PAGE) {
                places(vec![range], &(0..=usize::MAX), &(0..=0), PAGE, PAGE);
            }
        }
    }

    #[test]
    fn targets_too_far_apart_leave_no_place() {
        assert_eq!(within_reach(&(1 << 40..=(1 << 40) + (4 << 30)), 1), None);
        assert_eq!(within_reach(&(1 << 40..=1 << 40), usize::MAX), None);
        assert!(within_reach(&(1 << 40..=(1 << 40) + (3 << 30)), PAGE).is_some());
    }

    /// The map of a program whose heap follows directly, as with address randomization turned off.
    const MAPS: &str = "\
555555554000-555555600000 r-xp 00000000 fe:00 42                         /usr/bin/a program
555555600000-555555700000 rw-p 00000000 00:00 0                          [heap]
7ffff7fc1000-7ffff7fc3000 r-xp 00000000 00:00 0                          [vdso]
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn heap_and_stack_keep_room_to_grow() {
        let taken = taken(MAPS, PAGE);
        assert_eq!(taken.len(), 5);
        let heap = 0x5555_5570_0000;
        assert!(taken.iter().any(|range| range.contains(&heap) && range.contains(&(heap + GROWTH - 1))));
        let stack = 0x7fff_fffd_e000;
        assert!(taken.iter().any(|range| range.contains(&(stack - GROWTH)) && range.contains(&(usize::MAX - 1))));
    }

    #[test]
    fn the_first_place_is_right_below_the_program() {
        let targets = 0x5555_5556_0000..=0x5555_555f_0000;
        let reach = within_reach(&targets, 2 * PAGE).unwrap();
        let places = places(taken(MAPS, PAGE), &reach, &targets, 2 * PAGE, PAGE);
        let [below, above] = places[..] else { panic!("{places:x?}") };
        assert_eq!(below, 0x5555_5555_4000 - 3 * PAGE, "a page stays free between");
        assert!(above > 0x5555_5570_0000 + GROWTH);
    }
}

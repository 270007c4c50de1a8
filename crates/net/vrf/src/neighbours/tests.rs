//! The states of neighbours over time, and books that agree.

use std::net::IpAddr;

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const ONE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

const STATES: [NeighbourState; NeighbourState::COUNT] = [
    NeighbourState::Incomplete,
    NeighbourState::Reachable,
    NeighbourState::Delay,
    NeighbourState::Probe,
    NeighbourState::Permanent,
    NeighbourState::Failed,
];

fn key(number: u8) -> NeighbourKey {
    (1, IpAddr::from([192, 0, 2, number]))
}

fn all_due(neighbours: &mut Neighbours, now: u64) -> Vec<Due> {
    std::iter::from_fn(|| neighbours.due(now)).collect()
}

#[test]
fn a_neighbour_that_does_not_answer_is_asked_three_times() {
    let mut neighbours = Neighbours::new(NeighbourLimits::default());
    assert_eq!(neighbours.want(key(1), Need::Destination, 1, 0), Wanted::Ask);
    assert_eq!(neighbours.want(key(1), Need::Destination, 1, 0), Wanted::Waiting);
    assert_eq!(all_due(&mut neighbours, SECOND - 1), []);
    assert_eq!(all_due(&mut neighbours, SECOND), [Due::Ask(key(1), None)]);
    assert_eq!(all_due(&mut neighbours, 2 * SECOND), [Due::Ask(key(1), None)]);
    assert_eq!(all_due(&mut neighbours, 3 * SECOND), [Due::Gone(key(1), None)]);
    assert!(neighbours.is_empty() && neighbours.next_deadline().is_none());
}

#[test]
fn an_answer_holds_and_is_asked_for_again_before_it_is_too_old() {
    let mut neighbours = Neighbours::new(NeighbourLimits::default());
    neighbours.want(key(1), Need::Destination, 1, 0);
    assert_eq!(neighbours.hear(key(1), ONE, Heard::Answer, SECOND / 2), Learned::Changed);
    assert_eq!(neighbours.want(key(1), Need::Destination, 1, SECOND), Wanted::Known(ONE));
    let old = SECOND / 2 + 30 * SECOND;
    assert_eq!(all_due(&mut neighbours, old - 1), []);
    assert_eq!(all_due(&mut neighbours, old), [Due::Ask(key(1), Some(ONE))]);
    assert_eq!(neighbours.want(key(1), Need::Destination, 1, old), Wanted::Known(ONE), "it is used while it is asked");
    assert_eq!(neighbours.hear(key(1), ONE, Heard::Answer, old), Learned::Confirmed);
    let old = old + 30 * SECOND;
    for question in 0..3 {
        assert_eq!(all_due(&mut neighbours, old + question * SECOND), [Due::Ask(key(1), Some(ONE))]);
    }
    assert_eq!(all_due(&mut neighbours, old + 3 * SECOND), [Due::Gone(key(1), Some(ONE))]);
}

#[test]
fn nobody_who_is_known_is_taken_for_a_stranger() {
    let mut neighbours = Neighbours::new(NeighbourLimits::default());
    let keys: Vec<NeighbourKey> = (0..200).map(key).collect();
    assert!(!keys.iter().any(|&key| neighbours.may_know(key)), "an empty table knows nobody");
    for &key in &keys {
        neighbours.put_reachable(key, ONE, 0);
        neighbours.put_reachable(key, OTHER, 1);
    }
    assert!(keys.iter().all(|&key| neighbours.may_know(key)));
    assert!(keys[..100].iter().all(|&key| neighbours.remove(key) == Some(OTHER)));
    assert!(keys[100..].iter().all(|&key| neighbours.may_know(key)));
    assert!(keys[100..].iter().all(|&key| neighbours.remove(key) == Some(OTHER)));
    assert!(!keys.iter().any(|&key| neighbours.may_know(key)), "those who are gone are strangers");
}

#[test]
fn a_glance_tells_who_finds_no_room_and_for_whom_enough_packets_wait() {
    let limits = NeighbourLimits { incomplete: 1, for_routes: 1, ..NeighbourLimits::default() };
    let mut neighbours = Neighbours::new(limits);
    let glance = |neighbours: &Neighbours, number, need| neighbours.glance(key(number), need, 1, 0);
    assert_eq!(glance(&neighbours, 1, Need::Destination), Glance::Open, "there is room");
    assert_eq!(neighbours.want(key(1), Need::Destination, 1, 0), Wanted::Ask);
    assert_eq!(glance(&neighbours, 1, Need::Destination), Glance::Open, "no packet waits yet");
    // Others may have the same hash.
    let strangers: Vec<u8> = (2..200).filter(|&number| !neighbours.may_know(key(number))).collect();
    assert!(strangers.len() > 190);
    assert!(strangers.iter().all(|&number| glance(&neighbours, number, Need::Destination) == Glance::Full));
    assert!(strangers.iter().all(|&number| glance(&neighbours, number, Need::NextHop) == Glance::Open));
    (0..2).for_each(|_| neighbours.set_awaited(key(1)));
    assert_eq!(glance(&neighbours, 1, Need::Destination), Glance::Awaited);
    assert_eq!(all_due(&mut neighbours, SECOND).len(), 1);
    assert_eq!(glance(&neighbours, 1, Need::Destination), Glance::Awaited, "it is asked again");
    assert_eq!(neighbours.hear(key(1), ONE, Heard::Answer, SECOND), Learned::Changed);
    neighbours.set_awaited(key(1));
    assert_eq!(glance(&neighbours, 1, Need::Destination), Glance::Open, "nothing waits for who is known");
    assert_eq!(neighbours.want(key(2), Need::Destination, 1, SECOND), Wanted::Ask);
    neighbours.set_awaited(key(2));
    all_due(&mut neighbours, 2 * SECOND);
    all_due(&mut neighbours, 3 * SECOND);
    all_due(&mut neighbours, 4 * SECOND);
    assert_eq!(glance(&neighbours, 2, Need::Destination), Glance::Open, "it is gone");
    assert!(neighbours.filter.all_counts().iter().all(|counts| counts.awaited == 0));
}

#[test]
fn a_neighbour_keeps_its_state_when_others_take_it_over() {
    let mut old = Neighbours::new(NeighbourLimits::default());
    old.hear(key(1), ONE, Heard::Question, 0);
    old.put_stale(key(2), Some(OTHER), 0);
    old.want(key(3), Need::Destination, 1, 0);
    old.put_stale(key(4), Some(ONE), 0);
    assert_eq!(all_due(&mut old, 6 * SECOND).len(), 3);
    old.put_stale(key(2), Some(OTHER), 6 * SECOND);
    let mut new = Neighbours::new(NeighbourLimits { reachable: 20 * SECOND, ..NeighbourLimits::default() });
    let adopted = [1, 2, 3, 4, 2].map(|number| new.adopt(key(number), &old, key(number), 6 * SECOND));
    assert_eq!(adopted, [true, true, false, true, false], "once each, if its address is known");
    let states = [1, 2, 3, 4].map(|number| new.state(key(number)));
    let expected = [(NeighbourState::Reachable, ONE), (NeighbourState::Delay, OTHER), (NeighbourState::Probe, ONE)];
    let [reachable, delay, probe] = expected.map(|(state, mac)| Some((state, Some(mac))));
    assert_eq!(states, [reachable, delay, None, probe]);
    assert_eq!(all_due(&mut new, 7 * SECOND), [Due::Ask(key(4), Some(ONE))], "it has been asked once");
    assert_eq!(all_due(&mut new, 8 * SECOND), [Due::Ask(key(4), Some(ONE))]);
    assert_eq!(all_due(&mut new, 9 * SECOND), [Due::Gone(key(4), Some(ONE))]);
    assert_eq!(all_due(&mut new, 11 * SECOND), [Due::Ask(key(2), Some(OTHER))]);
    all_due(&mut new, 12 * SECOND);
    all_due(&mut new, 13 * SECOND);
    all_due(&mut new, 14 * SECOND);
    assert_eq!(all_due(&mut new, 26 * SECOND), [Due::Ask(key(1), Some(ONE))], "answers hold for 20 seconds now");
}

#[test]
fn announcements_change_what_is_known_and_enter_nothing() {
    let mut neighbours = Neighbours::new(NeighbourLimits::default());
    assert_eq!(neighbours.hear(key(1), ONE, Heard::Announcement, 0), Learned::Ignored);
    assert_eq!(neighbours.hear(key(1), ONE, Heard::Answer, 0), Learned::Ignored);
    assert_eq!(neighbours.hear(key(1), ONE, Heard::Question, 0), Learned::Changed);
    assert_eq!(neighbours.hear(key(1), OTHER, Heard::Announcement, 0), Learned::Changed);
    neighbours.enter(key(1), ONE);
    assert_eq!(neighbours.hear(key(1), OTHER, Heard::Question, 0), Learned::Ignored);
    assert_eq!(all_due(&mut neighbours, u64::MAX - 1), [], "what is configured stays");
}

#[test]
fn a_flood_takes_no_room_from_known_neighbours() {
    let limits = NeighbourLimits { neighbours: 20, incomplete: 5, ..NeighbourLimits::default() };
    let mut neighbours = Neighbours::new(limits);
    for number in 0..10 {
        assert_eq!(neighbours.hear(key(number), ONE, Heard::Question, 0), Learned::Changed);
    }
    let wanted: Vec<Wanted> = (100..110).map(|number| neighbours.want(key(number), Need::Destination, 1, 0)).collect();
    assert_eq!(wanted, [[Wanted::Ask; 5], [Wanted::Full; 5]].concat());
    for number in 10..15 {
        assert_eq!(neighbours.hear(key(number), ONE, Heard::Question, 0), Learned::Changed);
    }
    assert_eq!(neighbours.hear(key(99), ONE, Heard::Question, 0), Learned::Full);
    assert!((0..10).all(|number| neighbours.want(key(number), Need::Destination, 1, 0) == Wanted::Known(ONE)));
    all_due(&mut neighbours, SECOND);
    all_due(&mut neighbours, 2 * SECOND);
    all_due(&mut neighbours, 3 * SECOND);
    assert_eq!((neighbours.len(), neighbours.want(key(100), Need::Destination, 1, 3 * SECOND)), (15, Wanted::Ask));
}

#[test]
fn next_hops_of_routes_have_room_of_their_own() {
    let limits = NeighbourLimits { neighbours: 8, incomplete: 4, for_routes: 2, ..NeighbourLimits::default() };
    let mut neighbours = Neighbours::new(limits);
    let want = |neighbours: &mut Neighbours, number, need| neighbours.want(key(number), need, 1, 0);
    (0..4).for_each(|number| assert_eq!(want(&mut neighbours, number, Need::Destination), Wanted::Ask));
    assert_eq!(want(&mut neighbours, 5, Need::Destination), Wanted::Full);
    assert_eq!(
        [5, 6, 7].map(|number| want(&mut neighbours, number, Need::NextHop)),
        [Wanted::Ask, Wanted::Ask, Wanted::Full]
    );
    (10..12).for_each(|number| assert_eq!(neighbours.hear(key(number), ONE, Heard::Question, 0), Learned::Changed));
    assert_eq!(neighbours.hear(key(12), ONE, Heard::Question, 0), Learned::Full);
    [5, 6].iter().for_each(|&it| assert_eq!(neighbours.hear(key(it), ONE, Heard::Answer, 0), Learned::Changed));
    assert_eq!(
        [7, 8, 9].map(|number| want(&mut neighbours, number, Need::NextHop)),
        [Wanted::Ask, Wanted::Ask, Wanted::Full]
    );
}

/// A neighbour on the link of an interface.
fn on_link(interface: u16, number: u32) -> NeighbourKey {
    (interface, IpAddr::from((0x0a00_0000 | number).to_be_bytes()))
}

fn station(number: u32) -> MacAddr {
    let [a, b, c, d] = number.to_be_bytes();
    MacAddr([2, 1, a, b, c, d])
}

/// Three interfaces with room for 30 neighbours, of which those of one station on the first have taken all.
fn filled_by_one() -> Neighbours {
    let limits = NeighbourLimits { neighbours: 30, interfaces: 3, ..NeighbourLimits::default() };
    let mut neighbours = Neighbours::new(limits);
    let heard: Vec<Learned> =
        (0..60).map(|number| neighbours.hear(on_link(1, number), ONE, Heard::Question, 0)).collect();
    assert_eq!(heard, [[Learned::Changed; 30], [Learned::Full; 30]].concat());
    neighbours
}

#[test]
fn a_station_with_many_addresses_keeps_nobody_on_other_interfaces_out() {
    let mut neighbours = filled_by_one();
    for interface in [2, 3] {
        for number in 0..10 {
            let learned = neighbours.hear(on_link(interface, number), station(number), Heard::Question, 0);
            assert_eq!(learned, Learned::Changed, "{number} on {interface}");
        }
    }
    let displaced = neighbours.take_displaced();
    let oldest: Vec<Displaced> = (0..20).map(|number| Displaced::Known(on_link(1, number))).collect();
    assert_eq!(displaced, oldest, "the oldest of who has more than its share");
    let more = neighbours.hear(on_link(2, 99), station(99), Heard::Question, 0);
    assert_eq!(more, Learned::Full, "each has its share now");
    assert_eq!(neighbours.hear(on_link(1, 200), ONE, Heard::Question, 0), Learned::Full);
    assert_eq!((neighbours.len(), neighbours.take_displaced().len()), (30, 0));
    let is_known = |number| neighbours.state(on_link(2, number)).is_some();
    assert!((0..10).all(is_known));
}

#[test]
fn a_station_with_many_addresses_keeps_nobody_on_its_own_link_out() {
    let mut neighbours = filled_by_one();
    // One that was there before has only one address, and another one comes.
    for number in 100..110 {
        let learned = neighbours.hear(on_link(1, number), station(number), Heard::Question, 0);
        assert_eq!(learned, Learned::Changed);
    }
    let displaced = neighbours.take_displaced();
    assert!(displaced.iter().all(|it| matches!(it, Displaced::Known(key) if neighbours.state(*key).is_none())));
    assert_eq!(displaced.len(), 10);
    // Whom a packet wants takes the place of one of whom none has been seen, and stays.
    assert_eq!(neighbours.want(on_link(1, 200), Need::Destination, 2, 0), Wanted::Ask);
    assert_eq!(neighbours.hear(on_link(1, 200), station(200), Heard::Answer, 0), Learned::Changed);
    for number in 300..400 {
        neighbours.hear(on_link(1, number), station(number), Heard::Question, 0);
    }
    assert!(neighbours.state(on_link(1, 200)).is_some() && neighbours.len() == 30);
    // Of stations with an address each nobody gives way to another one, so that a flood changes nothing.
    neighbours.take_displaced();
    for number in 400..500 {
        neighbours.hear(on_link(1, number), station(number), Heard::Question, 0);
    }
    assert_eq!(neighbours.take_displaced(), []);
}

#[test]
fn those_whom_packets_wanted_make_room_after_a_time_and_next_hops_stay() {
    let mut neighbours = filled_by_one();
    neighbours.keep(|key| key == on_link(1, 0));
    let want = |neighbours: &mut Neighbours, number, now| {
        let wanted = neighbours.want(on_link(1, number), Need::Destination, 2, now);
        neighbours.hear(on_link(1, number), ONE, Heard::Answer, now);
        wanted
    };
    assert!((100..129).all(|number| want(&mut neighbours, number, 0) == Wanted::Ask));
    assert_eq!(neighbours.state(on_link(1, 0)).map(|(_, mac)| mac), Some(Some(ONE)), "a route leads to it");
    assert_eq!(want(&mut neighbours, 200, SECOND), Wanted::Full);
    assert_eq!(neighbours.glance(on_link(1, 201), Need::Destination, 2, SECOND), Glance::Full, "at a glance");
    assert_eq!(neighbours.glance(on_link(1, 201), Need::Destination, 2, 2 * SECOND), Glance::Open);
    assert_eq!(want(&mut neighbours, 200, 11 * SECOND), Wanted::Ask);
    assert!(neighbours.state(on_link(1, 100)).is_none() && neighbours.len() == 30, "the first one has made room");
    // Other interfaces have their share at once.
    assert_eq!(neighbours.hear(on_link(2, 1), OTHER, Heard::Question, 11 * SECOND), Learned::Changed);
    assert!(neighbours.state(on_link(1, 101)).is_none() && neighbours.state(on_link(1, 0)).is_some());
}

#[test]
fn packets_of_one_interface_to_strangers_leave_room_for_those_of_others() {
    let limits = NeighbourLimits { incomplete: 12, interfaces: 2, ..NeighbourLimits::default() };
    let mut neighbours = Neighbours::new(limits);
    let want = |neighbours: &mut Neighbours, link, number, origin| {
        neighbours.want(on_link(link, number), Need::Destination, origin, 0)
    };
    // Somebody scans both links.
    let scan: Vec<Wanted> = (0..40).map(|number| want(&mut neighbours, 1 + number as u16 % 2, number, 1)).collect();
    assert_eq!(scan, [[Wanted::Ask; 12].as_slice(), &[Wanted::Full; 28]].concat());
    assert_eq!(neighbours.glance(on_link(1, 100), Need::Destination, 1, 0), Glance::Full);
    assert_eq!(neighbours.glance(on_link(1, 100), Need::Destination, 2, 0), Glance::Open);
    let others: Vec<Wanted> = (100..106).map(|number| want(&mut neighbours, 1, number, 2)).collect();
    assert_eq!(others, [[Wanted::Ask; 4].as_slice(), &[Wanted::Full; 2]].concat());
    let oldest: Vec<Displaced> =
        (0..4).map(|number| Displaced::Asked(on_link(1 + number as u16 % 2, number), 1)).collect();
    assert_eq!(neighbours.take_displaced(), oldest);
    assert!((200..204).all(|number| want(&mut neighbours, 2, number, 0) == Wanted::Ask), "the router itself");
    assert_eq!(neighbours.hear(on_link(1, 100), ONE, Heard::Answer, 0), Learned::Changed);
}

/// Neighbours that are watched from the beginning on.
fn watched(numbers: std::ops::Range<u8>) -> Neighbours {
    let mut neighbours = Neighbours::new(NeighbourLimits::default());
    neighbours.watch(&numbers.map(key).collect::<Vec<_>>(), None, None, 0);
    neighbours
}

#[test]
fn a_watched_neighbour_is_asked_without_packets_and_again_when_it_has_failed() {
    let mut neighbours = watched(1..2);
    assert_eq!(all_due(&mut neighbours, SECOND / 1_000 - 1), []);
    for second in 0..3 {
        assert_eq!(all_due(&mut neighbours, SECOND / 1_000 + second * SECOND), [Due::Ask(key(1), None)]);
    }
    let failed = SECOND / 1_000 + 3 * SECOND;
    assert_eq!(all_due(&mut neighbours, failed), [Due::Gone(key(1), None)]);
    assert_eq!((neighbours.state(key(1)), neighbours.failed()), (Some((NeighbourState::Failed, None)), 1));
    assert_eq!(all_due(&mut neighbours, failed + 5 * SECOND - 1), []);
    for time in 1..4 {
        assert_eq!(all_due(&mut neighbours, failed + 5 * time * SECOND), [Due::Ask(key(1), None)]);
        assert_eq!(neighbours.failed(), 1);
    }
    let back = failed + 16 * SECOND;
    assert_eq!(neighbours.hear(key(1), ONE, Heard::Answer, back), Learned::Changed);
    assert_eq!((neighbours.want(key(1), Need::NextHop, 1, back), neighbours.failed()), (Wanted::Known(ONE), 0));
    // Its answers hold for five seconds, and three questions are asked.
    for second in 0..3 {
        assert_eq!(all_due(&mut neighbours, back + (5 + second) * SECOND), [Due::Ask(key(1), Some(ONE))]);
    }
    assert_eq!(all_due(&mut neighbours, back + 8 * SECOND), [Due::Gone(key(1), Some(ONE))]);
    // A packet has it asked at once, and is told after three questions that there is none.
    assert_eq!(neighbours.want(key(1), Need::NextHop, 1, back + 9 * SECOND), Wanted::Ask);
    assert_eq!(
        (neighbours.want(key(1), Need::NextHop, 1, back + 9 * SECOND), neighbours.failed()),
        (Wanted::Waiting, 0)
    );
    assert_eq!(all_due(&mut neighbours, back + 10 * SECOND), [Due::Ask(key(1), None)]);
    assert_eq!(all_due(&mut neighbours, back + 11 * SECOND), [Due::Ask(key(1), None)]);
    assert_eq!(all_due(&mut neighbours, back + 12 * SECOND), [Due::Gone(key(1), None)]);
    neighbours.watch(&[], None, None, back + 12 * SECOND);
    assert!(neighbours.is_empty() && neighbours.failed() == 0, "nobody wants to know any more");
}

#[test]
fn watched_neighbours_take_turns_and_no_room_of_others() {
    let limits = NeighbourLimits { neighbours: 8, incomplete: 1, for_routes: 0, ..NeighbourLimits::default() };
    let mut neighbours = Neighbours::new(limits);
    let keys: Vec<NeighbourKey> =
        (0..8_000_u32).map(|number| (1, IpAddr::from((10 << 24 | number).to_be_bytes()))).collect();
    // Page by page, as they are read.
    let pages: Vec<&[NeighbourKey]> = keys.chunks(1_000).collect();
    for _ in 0..2 {
        let mut after = None;
        for page in &pages {
            neighbours.watch(page, after, page.last().copied(), 0);
            after = page.last().copied();
        }
        neighbours.watch(&[], after, None, 0);
    }
    assert_eq!((neighbours.len(), neighbours.want(key(1), Need::Destination, 1, 0)), (8_000, Wanted::Ask));
    // A thousand are asked in each second: those whose turn it is, and those before them up to three times.
    for (second, count) in [(1, 1_000), (2, 2_000), (3, 3_000)] {
        let asked =
            all_due(&mut neighbours, second * SECOND).iter().filter(|due| **due != Due::Ask(key(1), None)).count();
        assert_eq!(asked, count + usize::from(second == 3), "{second}");
    }
    neighbours.watch(&[], None, None, 3 * SECOND);
    assert!(neighbours.len() <= 3_000 && neighbours.failed() == 0);
    // Their answers hold for as long as all take to be asked.
    let mut neighbours = Neighbours::new(limits);
    neighbours.watch(&keys, None, None, 0);
    neighbours.hear(keys[0], ONE, Heard::Answer, 0);
    neighbours.hear(keys[0], ONE, Heard::Answer, 0);
    assert!(!all_due(&mut neighbours, 8 * SECOND - 1).contains(&Due::Ask(keys[0], Some(ONE))));
    assert!(all_due(&mut neighbours, 8 * SECOND).contains(&Due::Ask(keys[0], Some(ONE))));
}

#[test]
fn who_is_watched_anew_keeps_its_state_and_is_asked_soon() {
    let mut neighbours = Neighbours::new(NeighbourLimits::default());
    neighbours.hear(key(1), ONE, Heard::Question, 0);
    neighbours.put_stale(key(2), Some(ONE), 0);
    neighbours.want(key(3), Need::Destination, 1, 0);
    neighbours.enter(key(4), ONE);
    let before: Vec<_> = (1..5).map(|number| neighbours.state(key(number))).collect();
    neighbours.watch(&[1, 2, 3, 4].map(key), None, None, 0);
    assert_eq!((1..5).map(|number| neighbours.state(key(number))).collect::<Vec<_>>(), before);
    assert_eq!((neighbours.room.incomplete, neighbours.room.all), (0, 0));
    assert_eq!(all_due(&mut neighbours, SECOND / 1_000), [Due::Ask(key(1), Some(ONE))]);
    assert!(neighbours.forget(key(2), SECOND) && neighbours.forget(key(3), SECOND));
    assert_eq!(neighbours.state(key(2)), Some((NeighbourState::Incomplete, None)), "it is asked anew");
    neighbours.watch(&[], None, None, 0);
    assert_eq!([1, 2, 3, 4].map(|number| neighbours.state(key(number)).is_some()), [true, false, false, true]);
}

#[test]
fn one_that_has_failed_stays_failed_for_who_takes_over() {
    let mut old = watched(1..3);
    for second in 1..5 {
        all_due(&mut old, second * SECOND);
    }
    assert_eq!(old.failed(), 2);
    let mut new = Neighbours::new(NeighbourLimits { neighbours: 0, ..NeighbourLimits::default() });
    assert!(new.adopt(key(1), &old, key(1), 4 * SECOND) && !new.adopt(key(1), &old, key(2), 4 * SECOND));
    assert_eq!((new.state(key(1)), new.failed()), (Some((NeighbourState::Failed, None)), 1));
    assert_eq!(all_due(&mut new, 9 * SECOND), [Due::Ask(key(1), None)]);
}

proptest! {
    #[test]
    fn whatever_happens_the_books_agree(steps in prop::collection::vec((0u8..9, 0u8..16, 0u64..4), 0..200)) {
        let limits = NeighbourLimits { neighbours: 8, incomplete: 3, for_routes: 2, ..NeighbourLimits::default() };
        let mut neighbours = Neighbours::new(limits);
        let (mut now, mut watched, mut has_unwatched) = (0, BTreeSet::new(), false);
        for (step, number, seconds) in steps {
            now += seconds * SECOND;
            match step {
                0 => drop(neighbours.want(key(number), Need::Destination, 1, now)),
                1 => drop(neighbours.hear(key(number), ONE, Heard::Question, now)),
                2 => drop(neighbours.hear(key(number), OTHER, Heard::Answer, now)),
                3 => drop(neighbours.forget(key(number), now)),
                5 => drop(neighbours.want(key(number), Need::NextHop, 1, now)),
                6 => neighbours.set_awaited(key(number)),
                7 | 8 => {
                    if watched.remove(&key(number)) {
                        has_unwatched = true;
                    } else {
                        watched.insert(key(number));
                    }
                    let all: Vec<NeighbourKey> = watched.iter().copied().collect();
                    neighbours.watch(&all, None, None, now);
                }
                _ => drop(all_due(&mut neighbours, now)),
            }
            let displaced = neighbours.take_displaced();
            let in_state = |wanted| neighbours.iter().filter(move |(_, state, _)| *state == wanted).map(|(key, ..)| key);
            let incomplete = in_state(NeighbourState::Incomplete).filter(|key| !watched.contains(key)).count();
            prop_assert_eq!(incomplete, neighbours.room.incomplete);
            // Those that are watched no more may be too many for a while.
            let unwatched = neighbours.len() - watched.len();
            prop_assert_eq!((unwatched, unwatched), (neighbours.room.all, neighbours.room.on_link(1)));
            for (key, entry) in &neighbours.entries {
                prop_assert_eq!(entry.class.is_none(), watched.contains(key));
            }
            for displaced in displaced {
                let (Displaced::Known(key) | Displaced::Asked(key, _)) = displaced;
                prop_assert!(!watched.contains(&key), "{:?}", key);
            }
            prop_assert!(has_unwatched || unwatched <= 10 && incomplete <= 5);
            prop_assert!(watched.iter().all(|&key| neighbours.state(key).is_some()) && watched == neighbours.watched);
            prop_assert!(in_state(NeighbourState::Failed).all(|key| watched.contains(&key)));
            for state in STATES {
                prop_assert_eq!(in_state(state).count(), neighbours.in_state(state), "{:?}", state);
            }
            let mut counts = vec![HashCounts::default(); neighbours.filter.all_counts().len()];
            for (&key, entry) in &neighbours.entries {
                let place = &mut counts[neighbours.filter.place(key)];
                place.all += 1;
                place.awaited += u8::from(entry.is_awaited);
                prop_assert!(!entry.is_awaited || entry.mac.is_none());
            }
            prop_assert!(*counts == *neighbours.filter.all_counts());
            for (number, need) in (0..16).flat_map(|number| [(number, Need::Destination), (number, Need::NextHop)]) {
                let is_awaited = neighbours.entries.get(&key(number)).is_some_and(|entry| entry.is_awaited);
                let glance = neighbours.glance(key(number), need, 1, 0);
                let is_known = neighbours.state(key(number)).is_some();
                prop_assert!(glance != Glance::Full || !is_known && neighbours.has_no_room(1, need, 1, now));
                prop_assert!(glance != Glance::Awaited || !is_known || is_awaited);
            }
            prop_assert_eq!(neighbours.deadlines.len(), neighbours.len());
            let has_none = |state| matches!(state, NeighbourState::Incomplete | NeighbourState::Failed);
            prop_assert!(neighbours.iter().all(|(_, state, mac)| mac.is_none() == has_none(state)));
            prop_assert!(neighbours.next_deadline().is_none_or(|deadline| step != 4 || deadline > now));
        }
    }
}

//! Counts the kernel's own events end to end: every machine has them.

use std::time::Instant;

use bellows_pmu::{Event, Group, MAX_EVENTS, OpenError};
use bellows_testkit::skip;

/// Touches this many untouched pages, for each of which the kernel must handle a separate fault.
const TOUCHED: u64 = 31;

fn touch() {
    touch_in(&mut fresh());
}

/// Distance between pages, so that no huge page contains two.
const FAR: usize = 2 << 20;

/// So much memory that the allocator maps it anew.
fn fresh() -> Vec<u8> {
    Vec::with_capacity((TOUCHED as usize + 1) * FAR)
}

fn touch_in(memory: &mut Vec<u8>) {
    for page in memory.spare_capacity_mut().chunks_mut(FAR).take(TOUCHED as usize) {
        std::hint::black_box(page[FAR / 2].write(1));
    }
}

/// Counts for this thread, or reports that this machine does not allow it.
fn open(test: &str, events: &[Event]) -> Option<Group> {
    match Group::open(events) {
        Ok(group) => Some(group),
        Err(error @ (OpenError::NotPermitted { .. } | OpenError::Kernel { .. })) => {
            skip(test, error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn touched_pages_are_counted_for_this_thread_alone() {
    let Some(group) = open("touched pages", &[Event::PageFaults, Event::MinorFaults, Event::MajorFaults]) else {
        return;
    };
    let before = group.reading();
    std::thread::spawn(touch).join().unwrap();
    let between = group.reading();
    // The allocation may take page faults, too.
    let mut memory = fresh();
    let start = group.reading();
    touch_in(&mut memory);
    let after = group.reading();
    let (other, own) = (between.since(&before).get(0).unwrap(), after.since(&start).get(0).unwrap());
    assert!(other < TOUCHED, "{other} page faults of another thread");
    // A memory checker has its own records about each page, on its own pages.
    assert!((TOUCHED..3 * TOUCHED).contains(&own), "{own} page faults for {TOUCHED} pages");
    let all = after.since(&before);
    assert_eq!(all.get(0).unwrap(), all.get(1).unwrap() + all.get(2).unwrap(), "faults are minor or major");
}

#[test]
fn the_clock_runs_while_the_thread_does() {
    let Some(group) = open("the clock", &[Event::TaskClock]) else { return };
    let start = Instant::now();
    let before = group.reading();
    let busy = bellows_sys::cpu::thread_time();
    while bellows_sys::cpu::thread_time() - busy < 20_000_000 {}
    let spent = group.reading().since(&before).get(0).unwrap();
    let passed = start.elapsed().as_nanos() as u64;
    // The kernel has several clocks, which exclude different parts of the time of interrupts.
    assert!((10_000_000..passed + passed / 100).contains(&spent), "{spent} ns of {passed}");
}

#[test]
fn sums_of_intervals_are_the_total() {
    let Some(group) = open("sums", &[Event::PageFaults, Event::TaskClock]) else { return };
    let start = group.reading();
    let mut last = start;
    let mut sum = bellows_pmu::Counts::default();
    for _ in 0..20 {
        touch();
        let now = group.reading();
        sum += &now.since(&last);
        last = now;
    }
    assert_eq!(sum, last.since(&start));
}

#[test]
fn a_group_may_be_empty_or_full_but_no_fuller() {
    let group = Group::open(&[]).unwrap();
    assert_eq!(group.reading().since(&group.reading()).iter().count(), 0);
    let error = Group::open(&[Event::PageFaults; MAX_EVENTS + 1]).unwrap_err();
    assert!(matches!(error, OpenError::TooMany(17)), "{error}");
    let Some(group) = open("a full group", &[Event::PageFaults; MAX_EVENTS]) else { return };
    let before = group.reading();
    touch();
    let counts = group.reading().since(&before);
    assert!(counts.iter().all(|count| count == counts.get(0)), "one event sixteen times has one count");
    assert!(counts.get(0).unwrap() >= TOUCHED);
}

/// On any machine, the processor's events are counted, or the error says why not.
#[test]
fn the_processors_events_are_counted_or_refused_in_a_sentence() {
    match bellows_pmu::Pmu::probe() {
        Ok(pmu) => {
            let group = Group::open(pmu.events()).unwrap();
            let before = group.reading();
            let mut work = 0u64;
            (0..10_000_000u64).for_each(|number| work = std::hint::black_box(work.wrapping_add(number)));
            let counts = group.reading().since(&before);
            let instructions = pmu.events().iter().position(|event| *event == Event::Instructions).unwrap();
            assert!(counts.get(instructions).is_none_or(|count| count > 10_000_000), "{counts:?}");
        }
        Err(why) => {
            let error = Group::open(&[Event::PageFaults, Event::Cycles]).unwrap_err();
            assert_eq!(error.to_string(), format!("`cycles` cannot be counted: {why}"));
        }
    }
}

//! Samples a thread of this process from another one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use bellows_pmu::{SampleError, Sampler};
use bellows_testkit::skip;
use bellows_testkit::wait::Defer;

/// The function in which the busy thread spends most of its time: its code and its stack are known.
#[inline(never)]
fn spin(is_done: &AtomicBool) -> u64 {
    let mut turns = 0u64;
    while !is_done.load(Ordering::Relaxed) {
        (0..1_000u64).for_each(|turn| turns = std::hint::black_box(turns.wrapping_add(turn)));
    }
    turns
}

#[test]
fn samples_of_a_busy_thread_have_its_function_and_its_stack() {
    let is_done = AtomicBool::new(false);
    let observed = std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        let is_done = &is_done;
        scope.spawn(move || {
            let marker = std::hint::black_box(MARKER);
            sender.send((thread_id(), &raw const marker as u64)).unwrap();
            spin(is_done);
            std::hint::black_box(&marker);
        });
        let (thread, marker) = receiver.recv().unwrap();
        let _done = Defer(|| is_done.store(true, Ordering::Relaxed));
        observe(thread, marker)
    });
    match observed {
        Ok(Observed { busy, seen, within, marked }) => {
            assert!(busy >= Some(seen * PERIOD / 2), "{busy:?} for {seen} samples");
            assert!(seen >= 100, "{seen} samples");
            assert!(within > seen / 2, "{within} of {seen} samples in the function that spins");
            assert!(marked > seen / 2, "{marked} of {seen} samples with the caller's variable on the stack");
        }
        Err(error @ (SampleError::NotPermitted { .. } | SampleError::Kernel { .. })) => {
            skip("samples_of_a_busy_thread_have_its_function_and_its_stack", error);
        }
        Err(error) => panic!("{error}"),
    }
}

/// Time between two samples.
const PERIOD: Duration = Duration::from_micros(251);

const MARKER: u64 = 0x6265_6c6c_6f77_7321;

#[derive(Default)]
struct Observed {
    busy: Option<Duration>,
    seen: u32,
    within: u32,
    marked: u32,
}

fn observe(thread: i32, marker: u64) -> Result<Observed, SampleError> {
    let mut sampler = Sampler::open(thread, PERIOD)?;
    let here = spin as *const () as u64;
    let mut observed = Observed::default();
    let deadline = Instant::now() + Duration::from_secs(30);
    while observed.seen < 100 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
        sampler.take(|sample| {
            observed.seen += 1;
            let is_within = !sample.in_kernel && (here..here + 500).contains(&sample.instruction);
            observed.within += u32::from(is_within);
            observed.marked += u32::from(sample.stack.words().any(|word| word == (marker, MARKER)));
        });
    }
    observed.busy = sampler.busy();
    Ok(observed)
}

/// Two words, each in a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Word(AtomicU64);

/// Reads one word and writes another one, again and again.
#[inline(never)]
fn use_both(words: &[Word; 2], is_done: &AtomicBool) {
    while !is_done.load(Ordering::Relaxed) {
        let found = words[0].0.load(Ordering::Relaxed);
        words[1].0.store(found + 1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn each_use_of_a_watched_word_is_sampled_in_its_order() {
    let (words, is_done) = (<[Word; 2]>::default(), AtomicBool::new(false));
    let seen = std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        let (words, is_done) = (&words, &is_done);
        scope.spawn(move || {
            sender.send(thread_id()).unwrap();
            use_both(words, is_done);
        });
        let _done = Defer(|| is_done.store(true, Ordering::Relaxed));
        let addresses = words.each_ref().map(|word| (&raw const word.0).addr());
        let mut sampler = Sampler::watch(receiver.recv().unwrap(), &addresses)?;
        let (mut seen, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(30));
        while seen.len() < 30 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
            sampler.take(|sample| {
                // The first word may be watched alone for a while.
                if seen.len() == 1 && seen[0] == sample.instruction {
                    seen.clear();
                }
                seen.push(sample.instruction);
            });
        }
        Ok(seen)
    });
    match seen {
        Ok(seen) => {
            let here = use_both as *const () as u64;
            assert!(seen.len() >= 30 && seen.iter().all(|next| (here..here + 500).contains(next)), "{seen:x?}");
            assert!(seen.iter().zip(&seen[2..]).all(|(one, after_next)| one == after_next), "{seen:x?}");
        }
        Err(error @ (SampleError::NotPermitted { .. } | SampleError::Kernel { .. })) => {
            skip("each_use_of_a_watched_word_is_sampled_in_its_order", error);
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_thread_that_is_not_there_is_an_error() {
    let error = Sampler::open(i32::MAX, Duration::from_millis(1)).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, SampleError::Gone(_)) || text.contains("perf_event_open"), "{text}");
}

/// The kernel's number of this thread.
fn thread_id() -> i32 {
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    link.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

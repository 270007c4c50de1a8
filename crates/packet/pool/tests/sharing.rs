//! Threads that share the smallest pool: whatever they take, free and pass on, none waits for buffers that others have.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bellows_pool::{Buffers, Config, free, init, return_free_buffers, share_free_buffers, sort_free_buffers, usage};
use bellows_testkit::soak;
use proptest::prelude::*;

const THREADS: usize = 3;
const PACKETS: usize = 64 * THREADS;

/// A thread that finds no buffers gets one within this time, if there is a free one.
const PATIENCE: Duration = Duration::from_secs(5);

static ALONE: Mutex<()> = Mutex::new(());

fn set_up() {
    init(Config { packets: PACKETS, large_packets: 0, ..Config::default() }).unwrap();
}

fn take(count: usize) -> Vec<usize> {
    let mut buffers = Buffers::new(count);
    std::iter::from_fn(|| buffers.take()).collect()
}

fn free_all(packets: Vec<usize>) {
    // SAFETY: each was taken from the pool, and is freed by its last owner.
    packets.into_iter().for_each(|data| unsafe { free(data, false) });
}

/// What one thread does, again and again.
#[derive(Clone, Copy, Debug)]
struct Habit {
    /// Packets that it makes at a time, of which it must get one.
    burst: usize,
    /// Packets that it keeps until it passes them on.
    kept: usize,
    /// The thread that it passes them to, which may be itself.
    to: usize,
    /// Whether it sleeps between two rounds.
    sleeps: bool,
}

fn habit() -> impl Strategy<Value = Habit> {
    // All threads together never keep all buffers.
    (1usize..24, 0usize..24, 0..THREADS, any::<bool>()).prop_map(|(burst, kept, to, sleeps)| Habit {
        burst,
        kept,
        to,
        sleeps,
    })
}

fn live(habit: Habit, sender: &Sender<Vec<usize>>, receiver: &Receiver<Vec<usize>>, rounds: usize) -> Duration {
    let mut kept = Vec::new();
    let mut longest = Duration::ZERO;
    for _ in 0..rounds {
        let start = Instant::now();
        let made = loop {
            receiver.try_iter().for_each(free_all);
            share_free_buffers();
            let made = take(habit.burst);
            if !made.is_empty() || start.elapsed() > PATIENCE {
                break made;
            }
            thread::yield_now();
        };
        longest = longest.max(start.elapsed());
        kept.extend(made);
        if kept.len() > habit.kept {
            sender.send(std::mem::take(&mut kept)).unwrap();
        }
        if habit.sleeps {
            return_free_buffers();
            thread::sleep(Duration::from_micros(50));
        }
    }
    free_all(kept);
    longest
}

proptest! {
    #![proptest_config(ProptestConfig { cases: soak::cases(24), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_starves_whatever_the_others_do(habits in proptest::array::uniform3(habit())) {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        set_up();
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel()).unzip();
        let running = AtomicUsize::new(THREADS);
        let longest = thread::scope(|scope| {
            let start = |(receiver, habit): (Receiver<Vec<usize>>, Habit)| {
                let (sender, running) = (senders[habit.to].clone(), &running);
                scope.spawn(move || {
                    let longest = live(habit, &sender, &receiver, 200);
                    running.fetch_sub(1, Relaxed);
                    while running.load(Relaxed) > 0 {
                        receiver.try_iter().for_each(free_all);
                        share_free_buffers();
                        thread::yield_now();
                    }
                    (longest, receiver)
                })
            };
            let threads: Vec<_> = receivers.into_iter().zip(habits).map(start).collect();
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            // What was sent to a thread that had ended.
            ended.iter().for_each(|(_, receiver)| receiver.try_iter().for_each(free_all));
            ended.iter().map(|(longest, _)| *longest).max().unwrap_or_default()
        });
        return_free_buffers();
        prop_assert!(longest < PATIENCE, "a thread waited {longest:?} for a buffer");
        prop_assert_eq!(usage().in_use, 0);
        // Whatever happened, no buffer is lost.
        let all = take(PACKETS + 1);
        prop_assert_eq!(all.len(), PACKETS);
        free_all(all);
        return_free_buffers();
    }
}

/// What the property would find if threads did not share.
#[test]
fn a_thread_that_keeps_all_buffers_gives_them_to_one_that_finds_none() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    set_up();
    free_all(take(PACKETS));
    sort_free_buffers();
    // Nobody wants them.
    share_free_buffers();
    let elsewhere = |count| thread::scope(|scope| scope.spawn(move || take(count)).join().unwrap());
    assert_eq!(elsewhere(1).len(), 0);
    // Now somebody does.
    share_free_buffers();
    let taken = elsewhere(PACKETS);
    assert_eq!(taken.len(), PACKETS);
    free_all(taken);
    return_free_buffers();
}

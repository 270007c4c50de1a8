//! All interleavings of readers and a writer: `cargo test -p bellows-shared --features loom`.
#![cfg(feature = "loom")]

use std::sync::Arc;

use bellows_shared::{Breath, Published, Reader, Readers, SeqLockHead, SeqLockWords};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;

struct Call;
// SAFETY: the threads below pass only while they have no call.
unsafe impl Breath for Call {}

/// A number of which `loom` reports each access that races with another.
struct Number(UnsafeCell<u32>);
// SAFETY: `loom` looks at each access; a race ends the test.
unsafe impl Sync for Number {}

/// A value whose end is a write that `loom` compares with all reads.
struct Value(Arc<Number>);

impl Value {
    fn new(number: u32) -> Value {
        Value(Arc::new(Number(UnsafeCell::new(number))))
    }

    fn number(&self) -> u32 {
        // SAFETY: `loom` reports a race.
        self.0.0.with(|number| unsafe { *number })
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: `loom` reports a race.
        self.0.0.with_mut(|number| unsafe { *number = u32::MAX });
    }
}

/// When a thread passes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Passes {
    Between,
    /// While it has a reference.
    Within,
}

/// Takes two breaths, in each of which the value is read twice.
fn breathe(published: &Published<Value>, reader: &Reader, passes: Passes) {
    let mut last = 0;
    for _ in 0..2 {
        let call = Call;
        let value = published.read(&call);
        let seen = value.number();
        if passes == Passes::Within {
            reader.quiescent();
        }
        assert!(seen >= last && value.number() == seen, "{seen} after {last}");
        last = seen;
        reader.quiescent();
    }
}

fn check(passes: Passes) {
    loom::model(move || {
        let readers = Arc::new(Readers::new());
        let published = Arc::new(Published::with_readers(Value::new(1), Arc::clone(&readers)));
        // Leaked, so that a test that finds a race ends there.
        let published = std::mem::ManuallyDrop::new(published);
        let reader = readers.register(|| ());
        let reading = {
            let published = Arc::clone(&published);
            thread::spawn(move || breathe(&published, &reader, passes))
        };
        let mut writer = published.lock();
        writer.replace(Value::new(2));
        writer.reclaim();
        drop(writer);
        reading.join().unwrap();
        let mut writer = published.lock();
        assert_eq!((writer.reclaim(), writer.get().number()), (0, 2));
    });
}

#[test]
fn a_replaced_value_is_freed_after_its_last_reader() {
    check(Passes::Between);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_thread_that_passes_within_a_breath_is_found() {
    check(Passes::Within);
}

#[test]
fn writers_take_turns() {
    loom::model(|| {
        let readers = Arc::new(Readers::new());
        let published = Arc::new(Published::with_readers(Value::new(1), Arc::clone(&readers)));
        let add = |published: &Published<Value>| {
            let mut writer = published.lock();
            let next = writer.get().number() + 1;
            writer.replace(Value::new(next));
            writer.reclaim();
        };
        let other = {
            let published = Arc::clone(&published);
            thread::spawn(move || add(&published))
        };
        add(&published);
        other.join().unwrap();
        assert_eq!(published.lock().get().number(), 3);
    });
}

/// A group of two words, which are both the number in its head.
type Group = (SeqLockHead, SeqLockWords<2>);

fn replace(group: &Group, number: u64) -> bool {
    group.0.replace(group.0.load(), number, &group.1, &[number; 2])
}

#[test]
fn words_that_are_replaced_together_are_seen_together() {
    // One comparison in each model, which has few interleavings then.
    for expected in [[0, 0], [1, 1], [0, 1], [1, 0]] {
        loom::model(move || {
            let group = Arc::new((SeqLockHead::default(), SeqLockWords::<2>::default()));
            let writer = {
                let group = Arc::clone(&group);
                thread::spawn(move || assert!(replace(&group, 1)))
            };
            let seen = group.0.load();
            if group.0.belongs_to(seen, &group.1, &expected) {
                assert_eq!(expected, [seen.value(); 2]);
            }
            writer.join().unwrap();
        });
    }
}

#[test]
fn words_are_read_whole_or_not_at_all() {
    loom::model(|| {
        let group = Arc::new((SeqLockHead::default(), SeqLockWords::<2>::default()));
        let writer = {
            let group = Arc::clone(&group);
            thread::spawn(move || assert!(replace(&group, 1)))
        };
        let seen = group.0.load();
        if let Some(words) = group.0.read::<2, 2>(seen, &group.1) {
            assert_eq!(words, [seen.value(); 2]);
        }
        writer.join().unwrap();
    });
}

#[test]
fn one_of_two_writers_replaces_words_at_a_time() {
    loom::model(|| {
        let group = Arc::new((SeqLockHead::default(), SeqLockWords::<2>::default()));
        let other = {
            let group = Arc::clone(&group);
            thread::spawn(move || replace(&group, 1))
        };
        assert!(replace(&group, 2) | other.join().unwrap());
        let last = group.0.load();
        assert!(group.0.belongs_to(last, &group.1, &[last.value(); 2]));
    });
}

/// What a reader of a group may leave out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Omission {
    Nothing,
    /// It does not look at the version again after it has read the words.
    SecondLook,
    /// It looks again, but perhaps before it has read the words.
    Fence,
}

/// A group of two words as [`SeqLockHead`] and [`SeqLockWords`] have it, with a reader that may omit a step: whether
/// the words of the version that it saw first are these.
fn naive_reader(omission: Omission) {
    // As above, one comparison in each model.
    for expected in [[0, 1], [1, 0]] {
        loom::model(move || {
            let group = Arc::new((AtomicU64::new(0), [AtomicU64::new(0), AtomicU64::new(0)]));
            let writer = {
                let group = Arc::clone(&group);
                thread::spawn(move || {
                    let (version, words) = &*group;
                    version.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).unwrap();
                    fence(Ordering::Release);
                    words.iter().for_each(|word| word.store(1, Ordering::Relaxed));
                    version.store(2, Ordering::Release);
                })
            };
            let (version, words) = &*group;
            let seen = version.load(Ordering::Acquire);
            let are_equal = words.iter().zip(expected).all(|(word, expected)| word.load(Ordering::Relaxed) == expected);
            if omission != Omission::Fence {
                fence(Ordering::Acquire);
            }
            let is_same = omission == Omission::SecondLook || version.load(Ordering::Relaxed) == seen;
            assert!(!(are_equal && is_same && seen % 2 == 0), "torn words");
            writer.join().unwrap();
        });
    }
}

#[test]
fn a_reader_that_omits_nothing_is_never_torn() {
    naive_reader(Omission::Nothing);
}

#[test]
#[should_panic(expected = "torn words")]
fn a_reader_that_does_not_look_again_is_found() {
    naive_reader(Omission::SecondLook);
}

#[test]
#[should_panic(expected = "torn words")]
fn a_reader_without_a_fence_is_found() {
    naive_reader(Omission::Fence);
}

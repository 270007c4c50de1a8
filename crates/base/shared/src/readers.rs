//! The threads that read shared values, and the breaths that they have passed.

use std::sync::{Arc, OnceLock, PoisonError};

use crate::atomics::{AtomicBool, AtomicU64, Mutex, Ordering};

/// A thread that reads shared values in its breaths, for as long as this exists.
///
/// It [passes](Reader::quiescent) between two breaths when it is asked to.
pub struct Reader(Arc<ReaderState>);

struct ReaderState {
    /// The number of times that it was asked to pass.
    asked: AtomicU64,
    /// How often it had been asked when it last passed.
    passed: AtomicU64,
    has_ended: AtomicBool,
    /// Makes the thread pass soon, also if it sleeps.
    ask: Box<dyn Fn() + Send + Sync>,
}

impl Reader {
    /// Between two breaths: the thread has no reference to a shared value now.
    pub fn quiescent(&self) {
        // What was replaced before the thread was asked is what it reads from here on.
        let asked = self.0.asked.load(Ordering::Acquire);
        self.0.passed.store(asked, Ordering::Release);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
    }
}

impl ReaderState {
    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    fn has_passed(&self, number: u64) -> bool {
        self.has_ended() || self.passed.load(Ordering::Acquire) >= number
    }
}

/// A list of readers.
#[derive(Default)]
pub struct Readers(Mutex<Vec<Arc<ReaderState>>>);

impl Readers {
    /// An empty list.
    pub fn new() -> Readers {
        Readers(Mutex::new(Vec::new()))
    }

    /// The list of all workers of the process.
    pub fn of_process() -> &'static Arc<Readers> {
        static READERS: OnceLock<Arc<Readers>> = OnceLock::new();
        READERS.get_or_init(|| Arc::new(Readers::new()))
    }

    /// Adds a reader; `ask` makes its thread [pass](Reader::quiescent) soon.
    pub fn register(&self, ask: impl Fn() + Send + Sync + 'static) -> Reader {
        let state = Arc::new(ReaderState {
            asked: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            has_ended: AtomicBool::new(false),
            ask: Box::new(ask),
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&state));
        Reader(state)
    }

    /// Asks all readers to pass.
    pub fn start_grace_period(&self) -> GracePeriod {
        let mut readers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        readers.retain(|reader| !reader.has_ended());
        let ask = |reader: &Arc<ReaderState>| {
            let number = reader.asked.fetch_add(1, Ordering::AcqRel) + 1;
            (reader.ask)();
            (Arc::clone(reader), number)
        };
        GracePeriod(readers.iter().map(ask).collect())
    }
}

/// The readers that have yet to pass since they were [asked](Readers::start_grace_period).
pub struct GracePeriod(
    /// Each reader with the number of its request.
    Vec<(Arc<ReaderState>, u64)>,
);

impl GracePeriod {
    /// The number of readers that have yet to pass, as far as is known.
    pub fn readers(&self) -> usize {
        self.0.len()
    }

    /// Whether all readers have passed.
    pub fn is_over(&mut self) -> bool {
        self.0.retain(|(reader, number)| !reader.has_passed(*number));
        self.0.is_empty()
    }
}

#![doc = include_str!("../README.md")]
//!
//! | module | contents |
//! |---|---|
//! | `seqlock` | words that threads read and replace together |
//! | `published` | a value that workers read and one writer at a time replaces |
//! | `readers` | the threads that read, and the breaths that they have passed |
//!
//! ```
//! use bellows_shared::{Breath, Published, Readers};
//!
//! /// What an engine hands to an app for a call.
//! struct Call;
//! // SAFETY: the reader below passes only while there is no call.
//! unsafe impl Breath for Call {}
//!
//! let readers = std::sync::Arc::new(Readers::new());
//! let reader = readers.register(|| ());
//! let routes = Published::with_readers(vec![1], std::sync::Arc::clone(&readers));
//! {
//!     let call = Call;
//!     let seen = routes.read(&call);
//!     routes.lock().replace(vec![1, 2]);
//!     assert_eq!((seen.len(), routes.lock().reclaim()), (1, 1), "the old value is still in use");
//! }
//! reader.quiescent();
//! assert_eq!(routes.lock().reclaim(), 0);
//! ```

mod atomics;
mod published;
mod readers;
mod seqlock;

pub use published::{Published, Writer};
pub use readers::{GracePeriod, Reader, Readers};
pub use seqlock::{SeqLockHead, SeqLockWords, SeqSnapshot};

/// A proof that the thread is within a breath.
///
/// # Safety
/// While a value of the type exists, its thread is registered as a [`Reader`] with [all](Readers::of_process) readers
/// of the values that it reads, and neither [passes](Reader::quiescent) nor drops the [`Reader`]. The value does not
/// leave the thread.
pub unsafe trait Breath {}

//! Samples of a thread's execution, taken by the kernel.

use std::io::{self, ErrorKind};
use std::time::Duration;

use bellows_sys::perf::SampleRing;

use crate::probe::paranoia;
use crate::record::{Moment, PerfRecord, records};

/// Bytes of the stack in each sample.
const STACK: u32 = 8 << 10;

/// Maximum bytes of samples that the kernel keeps until they are taken, if the user may lock that much.
const KEPT: usize = 4 << 20;

/// Samples one thread, also of another process, with the kernel's timer: no performance counters are needed.
///
/// A sample gives the next instruction at that moment. As with every timer, this is the instruction after the slow one,
/// or one of the next.
#[derive(Debug)]
pub struct Sampler {
    ring: SampleRing,
    user_only: bool,
    lost: u64,
    records: Vec<u8>,
}

/// The reason why a thread cannot be sampled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SampleError {
    /// It does not exist, or no longer.
    #[error("there is no thread {0}")]
    Gone(i32),
    /// The user is not permitted.
    #[error("thread {thread} may not be sampled: {}", remedy(*.paranoid))]
    NotPermitted {
        /// The thread.
        thread: i32,
        /// `kernel.perf_event_paranoid`, if it can be read.
        paranoid: Option<i32>,
    },
    /// The kernel refuses for another reason.
    #[error("thread {thread} cannot be sampled: perf_event_open: {error}")]
    Kernel {
        /// The thread.
        thread: i32,
        /// The kernel's error.
        error: io::Error,
    },
}

fn remedy(paranoid: Option<i32>) -> String {
    match paranoid {
        Some(paranoid @ 3..) => format!(
            "kernel.perf_event_paranoid is {paranoid}; allow it with `sysctl kernel.perf_event_paranoid=2` or with the \
             capability CAP_PERFMON"
        ),
        _ => "be the user who runs it, or root; in a container, its seccomp profile must allow perf_event_open"
            .to_owned(),
    }
}

/// Why the kernel does not sample a thread.
fn refused(thread: i32, error: io::Error) -> SampleError {
    // ESRCH has no error kind of its own.
    const NO_SUCH_PROCESS: i32 = 3;
    match error.kind() {
        _ if error.raw_os_error() == Some(NO_SUCH_PROCESS) => SampleError::Gone(thread),
        ErrorKind::PermissionDenied => SampleError::NotPermitted { thread, paranoid: paranoia() },
        _ => SampleError::Kernel { thread, error },
    }
}

impl Sampler {
    /// Starts to sample a thread each time that it was on a processor for `period`.
    ///
    /// # Errors
    /// It does not exist, or it is not permitted.
    pub fn open(thread: i32, period: Duration) -> Result<Sampler, SampleError> {
        let open = |user_only| SampleRing::open(thread, period, STACK, user_only, KEPT);
        let (ring, user_only) = match open(false) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => (open(true), true),
            opened => (opened, false),
        };
        let ring = ring.map_err(|error| refused(thread, error))?;
        Ok(Sampler { ring, user_only, lost: 0, records: Vec::new() })
    }

    /// Starts to sample a thread of this process each time that it reads or writes one of these aligned words of its
    /// memory, of 8 bytes each: up to 4 on x86-64. There, a sample gives the instruction behind the access, exactly.
    /// The first samples may be of the first words alone, because each word begins to be watched by itself.
    ///
    /// # Errors
    /// It does not exist, it is not permitted, or there are more words than the processor can watch.
    pub fn watch(thread: i32, words: &[usize]) -> Result<Sampler, SampleError> {
        let ring = SampleRing::watch(thread, words, STACK, KEPT).map_err(|error| refused(thread, error))?;
        Ok(Sampler { ring, user_only: true, lost: 0, records: Vec::new() })
    }

    /// Whether samples are taken in user mode only, because the user has no access to the kernel.
    pub fn is_user_only(&self) -> bool {
        self.user_only
    }

    /// Number of samples for which there was no room, among those due until the last call of [`Sampler::take`].
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Time for which the thread was on a processor since sampling began; `None` if the kernel does not tell.
    pub fn busy(&self) -> Option<Duration> {
        self.ring.busy().ok()
    }

    /// Returns the samples taken since the last call.
    ///
    /// For a user with the usual limits the kernel keeps about sixty: those of 15 ms, at 4,000 a second.
    pub fn take(&mut self, mut see: impl FnMut(&Moment<'_>)) {
        self.records.clear();
        self.ring.take(&mut self.records);
        for record in records(&self.records) {
            match record {
                PerfRecord::Sample(sample) => see(&sample),
                PerfRecord::Lost(count) => self.lost = self.lost.saturating_add(count),
                PerfRecord::Other => {}
            }
        }
    }
}

//! A change that is undone unless it is confirmed in time.

use std::fs;
use std::time::{Duration, Instant};

use bellows_config::Texts;
use bellows_inspect::confirmation::{CONFIRMATION, Published};
use bellows_observe::RuntimeDir;
use bellows_sys::{atomic_file, clock};

use crate::arguments::NetworkFile;

/// The times that a change may wait for its confirmation.
const MIN_TIME: Duration = Duration::from_secs(1);
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);

/// The interval of attempts to put the former network back, after the first has failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Checks the time of a request.
///
/// # Errors
/// If it is too short or too long: a sentence.
pub fn time(confirm_ns: u64) -> Result<Duration, String> {
    let time = Duration::from_nanos(confirm_ns);
    if (MIN_TIME..=MAX_TIME).contains(&time) {
        return Ok(time);
    }
    Err("a change waits from 1 second to 24 hours for its confirmation; give `--confirm` such a time, as `60s`"
        .to_owned())
}

/// The network before a change.
#[derive(Clone)]
pub struct Former {
    pub file: NetworkFile,
    /// The texts that it was read from, without secrets.
    pub read: Texts,
    /// The same with all secrets.
    pub texts: Texts,
}

/// The change, and the network before it.
pub struct Unconfirmed {
    /// What is put back.
    pub former: Former,
    deadline: Instant,
    until_ns: u64,
    /// When the former network is to be put back: at the deadline, or later if that has failed.
    next: Instant,
    /// Why it could not be put back at the deadline.
    failure: Option<String>,
    /// Whether a thread is putting it back.
    is_being_undone: bool,
}

impl Unconfirmed {
    /// A change that begins to wait.
    pub fn new(former: Former, time: Duration) -> Unconfirmed {
        let deadline = Instant::now() + time;
        let until_ns = clock::unix_ns().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Unconfirmed { former, deadline, until_ns, next: deadline, failure: None, is_being_undone: false }
    }

    /// The time until the former network is to be put back; `None` if that is being done.
    pub fn until_undone(&self) -> Option<Duration> {
        (!self.is_being_undone).then(|| self.next.saturating_duration_since(Instant::now()))
    }

    /// Whether the former network is to be put back now. True once: whoever asks does it.
    pub fn is_due(&mut self) -> bool {
        let is_due = self.until_undone().is_some_and(|time| time.is_zero());
        self.is_being_undone |= is_due;
        is_due
    }

    /// Whether the time is over.
    pub fn is_over(&self) -> bool {
        self.deadline <= Instant::now()
    }

    /// The time that is left, in seconds, rounded up.
    pub fn seconds_left(&self) -> u64 {
        let left = self.deadline.saturating_duration_since(Instant::now());
        left.as_secs() + u64::from(left.subsec_nanos() > 0)
    }

    /// Notes that the former network could not be put back at the deadline. Returns whether the reason is another one
    /// than before.
    pub fn failed(&mut self, why: &str) -> bool {
        self.next = Instant::now() + RETRY_INTERVAL;
        self.is_being_undone = false;
        let is_new = self.failure.as_deref() != Some(why);
        self.failure = Some(why.to_owned());
        is_new
    }
}

/// Tells other processes of a change that waits, or that none does.
pub fn publish(unconfirmed: Option<&Unconfirmed>, runtime_dir: &RuntimeDir) {
    let path = runtime_dir.file(CONFIRMATION);
    let Some(Unconfirmed { until_ns, failure, .. }) = unconfirmed else {
        let _ = fs::remove_file(path);
        return;
    };
    let published = Published { until_ns: *until_ns, failure: failure.clone() };
    let content = serde_json::to_vec(&published).unwrap_or_default();
    if let Err(error) = atomic_file::write(&path, &content, None) {
        tracing::warn!(
            "`ps` and `show` will not tell that a change awaits its confirmation: {}: {error}",
            path.display()
        );
    }
}

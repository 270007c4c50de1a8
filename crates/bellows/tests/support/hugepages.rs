//! Hugepages for a test, given back when it is over.

use std::fs;
use std::sync::{Mutex, MutexGuard};

use super::support::skip;

const FILE: &str = "/proc/sys/vm/nr_hugepages";

/// Pages of 2 MiB that are there for a test.
pub struct Hugepages {
    before: usize,
    _alone: MutexGuard<'static, ()>,
}

impl Hugepages {
    /// Has the system set so many aside. Where it may not or cannot, the test is skipped.
    pub fn reserve(test: &str, count: usize) -> Option<Hugepages> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = number(FILE)?;
        let hugepages = Hugepages { before, _alone: alone };
        // Every Bellows that starts meanwhile takes some.
        let _ = fs::write(FILE, (before + 2 * count).to_string());
        let free = number("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or(0);
        if free < count {
            // A machine in which they may not be set aside has no fault of its own: nobody can be asked to mend it.
            skip(test, &format!("{count} free hugepages are needed and there are {free}; {FILE} sets them aside"));
            return None;
        }
        Some(hugepages)
    }
}

impl Drop for Hugepages {
    fn drop(&mut self) {
        let _ = fs::write(FILE, self.before.to_string());
    }
}

fn number(file: &str) -> Option<usize> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

//! Hugepages for a test, returned when it is over.

use std::fs;
use std::sync::{Mutex, MutexGuard};

const FILE: &str = "/proc/sys/vm/nr_hugepages";

/// Reserved pages of 2 MiB.
pub struct Hugepages {
    before: usize,
    _alone: MutexGuard<'static, ()>,
}

impl Hugepages {
    /// Reserves hugepages so that at least `count` are free. Only one caller in a process has them at a time.
    ///
    /// # Errors
    ///
    /// The remedy, if this process may not reserve them or there is no memory for them.
    pub fn reserve(count: usize) -> Result<Hugepages, String> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = number(FILE).unwrap_or(0);
        let hugepages = Hugepages { before, _alone: alone };
        // Every program that starts meanwhile may take some.
        let _ = fs::write(FILE, (before + 2 * count).to_string());
        let free = number("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages").unwrap_or(0);
        match free >= count {
            true => Ok(hugepages),
            false => Err(format!("{count} free hugepages are needed and there are {free}; set them aside in {FILE}")),
        }
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

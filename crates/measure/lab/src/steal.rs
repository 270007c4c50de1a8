//! Steal time: the time that the host of a virtual machine takes away.

/// Ticks per second of `/proc/stat` (`USER_HZ`), on every architecture that Bellows runs on.
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

/// The steal time of a processor, in ticks. `None` if the system does not report it.
pub(crate) fn stolen(cpu: usize) -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&format!("cpu{cpu}")))?;
    line.split_whitespace().nth(8)?.parse().ok()
}

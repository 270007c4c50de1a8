//! Time that the host of a virtual machine takes away.

/// Ticks in a second of the clock in which the kernel counts for users, on every architecture that Bellows runs on.
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

/// How many ticks of its clock the system counts as taken away from a processor by the host. None is as good as always none.
pub(crate) fn stolen(cpu: usize) -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&format!("cpu{cpu}")))?;
    line.split_whitespace().nth(8)?.parse().ok()
}

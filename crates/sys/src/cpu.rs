//! Processors: which one a thread runs on, and what it is called.

use std::io;

/// Binds the calling thread to one processor.
///
/// # Errors
/// What `sched_setaffinity(2)` says: `EINVAL` when the machine (or the container) has no such processor.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)?;
    Ok(())
}

/// The processors on which the calling thread may run, in ascending order.
pub fn allowed() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

/// The processor's name as the kernel gives it, or the architecture where it gives none.
pub fn model() -> String {
    std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// Processor time that the whole process has used so far, user and system, in nanoseconds.
pub fn process_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Processor time that the calling thread has used so far, user and system, in nanoseconds.
pub fn thread_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_can_be_pinned_to_each_processor_it_may_use() {
        std::thread::spawn(|| {
            for cpu in allowed() {
                pin_to(cpu).unwrap();
                assert_eq!(allowed(), [cpu]);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn pinning_to_a_processor_that_is_not_there_is_an_error() {
        assert!(pin_to(1_000_000).is_err());
        assert!(pin_to(rustix::thread::CpuSet::MAX_CPU - 1).is_err());
    }
}

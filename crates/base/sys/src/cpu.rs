//! Processors: which one a thread runs on, and its name.

use std::io;

/// Pins the calling thread to one processor.
///
/// # Errors
/// Those of `sched_setaffinity(2)`: `EINVAL` if the machine (or the container) has no such processor.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)?;
    Ok(())
}

/// Lets the calling thread run on these processors, as returned by [`allowed`].
///
/// # Errors
/// Those of `sched_setaffinity(2)`: `EINVAL` if the machine has none of them.
pub fn allow(cpus: &[usize]) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus.iter().filter(|&&cpu| cpu < rustix::thread::CpuSet::MAX_CPU) {
        set.set(cpu);
    }
    rustix::thread::sched_setaffinity(None, &set)?;
    Ok(())
}

/// Page faults: how often a thread touched memory that had no page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Faults that the kernel handled at once.
    pub minor: u64,
    /// Faults that had to read a disk.
    pub major: u64,
}

/// The page faults of the calling thread since it started. One system call.
pub fn thread_faults() -> Faults {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes into a structure of the right type, of which all zero is a value too.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    let count = |faults: libc::c_long| u64::try_from(faults).unwrap_or(0);
    Faults { minor: count(usage.ru_minflt), major: count(usage.ru_majflt) }
}

/// Parses the number of a processor that the process may run on.
///
/// # Errors
/// If it may not, a text that lists the processors it may run on.
pub fn parse(text: &str) -> Result<usize, String> {
    let number: usize = text.parse().map_err(|_| "give the number of a processor, counted from 0".to_owned())?;
    let allowed = allowed();
    if allowed.contains(&number) {
        return Ok(number);
    }
    let allowed = ranges(&allowed);
    Err(format!("there is no processor {number} for this process; it may use {allowed}"))
}

/// The processors on which the calling thread may run, in ascending order.
pub fn allowed() -> Vec<usize> {
    allowed_to(None)
}

/// The processors on which the process's first thread may run.
pub fn allowed_to_process() -> Vec<usize> {
    allowed_to(Some(rustix::process::getpid()))
}

fn allowed_to(thread: Option<rustix::process::Pid>) -> Vec<usize> {
    match rustix::thread::sched_getaffinity(thread) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

/// A list of processors as text: `0-3, 8`.
pub fn ranges(cpus: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let text = |(first, last): (usize, usize)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The processor's name from the kernel, or the architecture if there is none.
pub fn model() -> String {
    std::fs::read_to_string("/proc/cpuinfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("model name"))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
        .unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

/// The vendor and model of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `GenuineIntel`, `AuthenticAMD`, …
    pub vendor: [u8; 12],
    /// The family, with the extended part added.
    pub family: u32,
    /// The model, with the extended part in its upper digit.
    pub model: u32,
}

/// The processor's identity from CPUID; `None` on processors other than x86-64.
#[cfg(target_arch = "x86_64")]
pub fn identity() -> Option<Identity> {
    use std::arch::x86_64::__cpuid;
    let leaf = __cpuid(0);
    let mut vendor = [0; 12];
    for (place, word) in vendor.chunks_exact_mut(4).zip([leaf.ebx, leaf.edx, leaf.ecx]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let signature = __cpuid(1).eax;
    let (family, extended_family) = (signature >> 8 & 0xf, signature >> 20 & 0xff);
    let (model, extended_model) = (signature >> 4 & 0xf, signature >> 16 & 0xf);
    Some(Identity {
        vendor,
        family: if family == 0xf { family + extended_family } else { family },
        model: if matches!(family, 6 | 0xf) { extended_model << 4 | model } else { model },
    })
}

/// The processor's identity from CPUID; `None` on processors other than x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub fn identity() -> Option<Identity> {
    None
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
    fn faults_are_counted_when_memory_is_touched_for_the_first_time() {
        const PAGES: usize = 64;
        let page = rustix::param::page_size();
        let file = bellows_ipc::memfd::create((PAGES * page) as u64).unwrap();
        let mapping = bellows_ipc::mapping::SharedMapping::new(&file, 0, (PAGES * page) as u64).unwrap();
        let before = thread_faults();
        let touch = || {
            for index in 0..PAGES {
                // SAFETY: inside of the mapping, of which nobody else knows.
                unsafe { mapping.start().add(index * page).write_volatile(1) };
            }
        };
        touch();
        let first = thread_faults();
        touch();
        let second = thread_faults();
        // The kernel may make several pages at once.
        let [first, second] = [first.minor - before.minor, second.minor - first.minor];
        assert!(first >= 1 && second < first.max(8), "{first} {second}");
    }

    #[test]
    fn a_thread_can_be_pinned_to_each_processor_it_may_use() {
        std::thread::spawn(|| {
            let all = allowed();
            for &cpu in &all {
                pin_to(cpu).unwrap();
                assert_eq!(allowed(), [cpu]);
            }
            allow(&all).unwrap();
            assert_eq!(allowed(), all);
            assert!(allow(&[]).is_err());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn processors_in_a_row_are_listed_as_a_range() {
        assert_eq!(ranges(&[0, 1]), "0, 1");
        assert_eq!(ranges(&[0, 1, 2, 3, 8, 10, 11]), "0-3, 8, 10, 11");
        assert_eq!((ranges(&[5]), ranges(&[])), ("5".to_owned(), String::new()));
    }

    #[test]
    fn the_identity_is_that_of_proc_cpuinfo() {
        let Some(identity) = identity() else { return };
        let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let value = |key: &str| {
            let line = text.lines().find(|line| line.split(':').next().is_some_and(|name| name.trim() == key)).unwrap();
            line.split_once(':').unwrap().1.trim().to_owned()
        };
        assert_eq!(value("vendor_id").as_bytes(), identity.vendor);
        assert_eq!(value("cpu family"), identity.family.to_string());
        assert_eq!(value("model"), identity.model.to_string());
    }

    #[test]
    fn pinning_to_a_processor_that_is_not_there_is_an_error() {
        assert!(pin_to(1_000_000).is_err());
        assert!(pin_to(rustix::thread::CpuSet::MAX_CPU - 1).is_err());
    }
}

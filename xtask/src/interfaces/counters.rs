//! Counters of interfaces, processors and processes, from `/proc` (`proc(5)`).

use std::fs;

use crate::TaskError;

/// Ticks a second of the times in `/proc`: `USER_HZ`, 100 on all Linux systems of this kind.
pub const TICKS: f64 = 100.0;

/// The packets that an interface has received and sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    pub received: u64,
    pub sent: u64,
}

impl Interface {
    /// The counters of an interface in the network namespace of a process: a number, or `self`.
    pub fn of(process: &str, name: &str) -> Result<Interface, TaskError> {
        let place = format!("/proc/{process}/net/dev");
        let text = fs::read_to_string(&place).map_err(|error| TaskError::failed(format!("{place}: {error}")))?;
        Interface::parse(&text, name).ok_or_else(|| TaskError::failed(format!("{place}: no counters of {name}")))
    }

    fn parse(text: &str, name: &str) -> Option<Interface> {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(':'))?;
        // Eight columns of what it has received, then eight of what it has sent; packets are the second of each.
        let numbers: Vec<&str> = line.split_whitespace().collect();
        Some(Interface { received: numbers.get(1)?.parse().ok()?, sent: numbers.get(9)?.parse().ok()? })
    }
}

/// The time of a processor so far, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// Software interrupts.
    pub softirq: u64,
    /// Taken away by the host for other virtual machines.
    pub stolen: u64,
    pub idle: u64,
}

impl Processor {
    pub fn of(number: usize) -> Result<Processor, TaskError> {
        let text = fs::read_to_string("/proc/stat").unwrap_or_default();
        Processor::parse(&text, number)
            .ok_or_else(|| TaskError::failed(format!("/proc/stat does not know processor {number}")))
    }

    fn parse(text: &str, number: usize) -> Option<Processor> {
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("cpu{number} ")))?;
        let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        Some(Processor { idle: *ticks.get(3)?, softirq: *ticks.get(6)?, stolen: *ticks.get(7)? })
    }
}

/// The time of a process so far, all its threads together, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    pub user: u64,
    /// In the kernel; this contains the software interrupts that interrupted the process.
    pub system: u64,
}

impl Process {
    pub fn of(pid: u32) -> Result<Process, TaskError> {
        let place = format!("/proc/{pid}/stat");
        let text = fs::read_to_string(&place).map_err(|error| TaskError::failed(format!("{place}: {error}")))?;
        Process::parse(&text).ok_or_else(|| TaskError::failed(format!("{place}: no times in `{text}`")))
    }

    fn parse(text: &str) -> Option<Process> {
        // The name before it may contain blanks and brackets. The user time is the 14th word of the line.
        let mut words = text.rsplit_once(") ")?.1.split_whitespace().skip(11);
        Some(Process { user: words.next()?.parse().ok()?, system: words.next()?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_found_by_their_whole_name() {
        let text = "\
Inter-|   Receive                            |  Transmit
 face |bytes packets errs drop fifo frame ... |bytes packets errs drop fifo colls ...
    lo: 0 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0
source: 6400     100    0    3    0     0          0         0 12800 200    0    0    0     0       0          0
 source2:1 7 0 0 0 0 0 0 2 9 0 0 0 0 0 0
";
        assert_eq!(Interface::parse(text, "source"), Some(Interface { received: 100, sent: 200 }));
        assert_eq!(Interface::parse(text, "source2"), Some(Interface { received: 7, sent: 9 }));
        assert_eq!(Interface::parse(text, "sour"), None);
        assert_eq!(Interface::parse("source: 1 2", "source"), None);
        assert!(Interface::of("self", "lo").is_ok());
    }

    #[test]
    fn processors_and_processes_have_their_times() {
        let text = "cpu  1 2 3 4 5 6 7 8 9 10\ncpu1 10 20 30 40 50 60 70 80 0 0\ncpu11 1 1 1 1 1 1 1 1 0 0\nintr 7\n";
        assert_eq!(Processor::parse(text, 1), Some(Processor { softirq: 70, stolen: 80, idle: 40 }));
        assert_eq!(Processor::parse(text, 2), None);
        let text = "7 (a ) b) R 1 7 7 0 -1 4194304 100 0 0 0 123 456 0 0 20 0 1 0 1 1 1";
        assert_eq!(Process::parse(text), Some(Process { user: 123, system: 456 }));
        assert_eq!(Process::parse("7 (a"), None);
        assert!(Process::of(std::process::id()).is_ok() && Processor::of(0).is_ok());
    }
}

//! Memory nodes: which the process may use, and the processors of each.
//!
//! On a machine with several sockets each has its own memory, and the memory of another one is slower to reach. The
//! kernel calls each a node.

use std::io;
use std::sync::OnceLock;

use crate::cpu;

/// A node with processors, and with memory that the process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number in the kernel.
    pub number: usize,
    /// Its processors, in ascending order.
    pub cpus: Vec<usize>,
}

/// The nodes that have processors and whose memory the process may use, in ascending order, as they were when first asked
/// for. At most one, or none, on a kernel without memory nodes. Nodes with memory alone are left out: it is that of a
/// device or of an extension, and slower from every processor.
pub fn nodes() -> &'static [NumaNode] {
    static NODES: OnceLock<Vec<NumaNode>> = OnceLock::new();
    NODES.get_or_init(read)
}

/// Whether there are several nodes, so that it matters where memory is.
pub fn are_several() -> bool {
    nodes().len() > 1
}

/// The node of a processor.
pub fn node_of(cpu: usize) -> Option<usize> {
    nodes().iter().find(|node| node.cpus.contains(&cpu)).map(|node| node.number)
}

/// The node of the processor that the calling thread runs on at the moment.
pub fn current() -> Option<usize> {
    // SAFETY: the call takes no arguments and touches no memory of the caller.
    let cpu = unsafe { libc::sched_getcpu() };
    node_of(usize::try_from(cpu).ok()?)
}

/// The processors of a node on which the process may run.
pub fn allowed_cpus(node: usize) -> Vec<usize> {
    let allowed = cpu::allowed_to_process();
    let cpus = nodes().iter().find(|known| known.number == node).map_or(&[][..], |node| &node.cpus);
    cpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect()
}

/// Asks for memory of this node, as long as it has any, for pages of this process that are first touched from now on.
/// The range begins at a page.
///
/// # Errors
/// Those of `mbind(2)`: `EINVAL` if there is no such node, `ENOSYS` on a kernel without memory nodes.
pub(crate) fn prefer(start: usize, length: usize, node: usize) -> io::Result<()> {
    const MPOL_PREFERRED: libc::c_int = 1;
    const WORDS: usize = 16;
    let mut mask = [0_u64; WORDS];
    let word = mask.get_mut(node / 64).ok_or(io::ErrorKind::InvalidInput)?;
    *word |= 1 << (node % 64);
    // One more bit than the mask has: the kernel takes the last one off.
    let bits = WORDS * 64 + 1;
    // SAFETY: the policy concerns the place of pages, not their contents; the kernel checks the range, and reads a mask
    // of this many bits.
    let result = unsafe { libc::syscall(libc::SYS_mbind, start, length, MPOL_PREFERRED, mask.as_ptr(), bits, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn read() -> Vec<NumaNode> {
    let folder = "/sys/devices/system/node";
    let list = |path: String| std::fs::read_to_string(path).map(|text| parse_list(&text)).unwrap_or_default();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:")).map(parse_list);
    let is_allowed = |node: &usize| allowed.as_ref().is_none_or(|allowed| allowed.contains(node));
    let present = list(format!("{folder}/has_memory"));
    let node = |number| NumaNode { number, cpus: list(format!("{folder}/node{number}/cpulist")) };
    present.into_iter().filter(is_allowed).map(node).filter(|node| !node.cpus.is_empty()).collect()
}

/// Parses the kernel's lists of numbers: `0-3,8`.
fn parse_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<usize>().ok()?..=last.trim().parse::<usize>().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use bellows_testkit::skip;

    use super::*;
    use crate::memory::Reservation;

    #[test]
    fn lists_of_the_kernel_are_parsed() {
        assert_eq!(parse_list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(parse_list(" 5"), [5]);
        assert_eq!((parse_list("\n"), parse_list("")), (vec![], vec![]));
    }

    #[test]
    fn this_thread_runs_on_a_node() {
        let test = "this_thread_runs_on_a_node";
        if nodes().is_empty() {
            return skip(test, "the kernel has no memory nodes");
        }
        let current = current().unwrap();
        assert!(!allowed_cpus(current).is_empty());
        assert!(nodes().is_sorted_by_key(|node| node.number));
        for cpu in allowed_cpus(current) {
            assert_eq!(node_of(cpu), Some(current));
        }
    }

    #[test]
    fn memory_is_asked_for_on_a_node_that_exists() {
        let test = "memory_is_asked_for_on_a_node_that_exists";
        let Some(node) = nodes().first() else { return skip(test, "the kernel has no memory nodes") };
        let memory = Reservation::new(1 << 20).unwrap();
        if let Err(error) = memory.prefer_node(0..memory.length(), node.number) {
            assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)), "{error}");
            return skip(test, "the system forbids mbind(2)");
        }
        let absent = nodes().last().unwrap().number + 900;
        assert_eq!(memory.prefer_node(0..4096, absent).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(memory.prefer_node(0..4096, 100_000).is_err());
        assert!(memory.prefer_node(0..memory.length() + 1, node.number).is_err());
    }
}

//! Capabilities: what a thread may do without being root, what it lacks, and giving up what is not needed.
//!
//! The kernel keeps capabilities for each thread (see `capabilities(7)`). A thread inherits those of the thread that
//! starts it, and no call changes those of another. [`retain_in_process`] therefore interrupts each thread with a
//! signal, whose handler reduces the thread's sets.

mod process;

use std::fmt;
use std::io;
use std::ops::{BitAnd, BitOr, Sub};
use std::path::{Path, PathBuf};

pub use process::retain_in_process;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    set_capabilities,
};

/// A set of capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Set(CapabilitySet);

impl Set {
    /// No capability.
    pub const EMPTY: Set = Set(CapabilitySet::empty());
    /// Change interfaces, attach XDP programs, create TAP interfaces.
    pub const NET_ADMIN: Set = Set(CapabilitySet::NET_ADMIN);
    /// Open `AF_PACKET` and `AF_XDP` sockets.
    pub const NET_RAW: Set = Set(CapabilitySet::NET_RAW);
    /// Load BPF programs and create their maps (Linux 5.8).
    pub const BPF: Set = Set(CapabilitySet::BPF);
    /// Pin memory beyond the limit of [`memlock_limit`].
    pub const IPC_LOCK: Set = Set(CapabilitySet::IPC_LOCK);
    /// Open files whatever their permissions are.
    pub const DAC_OVERRIDE: Set = Set(CapabilitySet::DAC_OVERRIDE);
    /// Read files and folders whatever their permissions are.
    pub const DAC_READ_SEARCH: Set = Set(CapabilitySet::DAC_READ_SEARCH);
    /// Count and sample events of other processes and of the kernel (Linux 5.8).
    pub const PERFMON: Set = Set(CapabilitySet::PERFMON);
    /// Take capabilities out of the bounding set.
    pub const SETPCAP: Set = Set(CapabilitySet::SETPCAP);
    /// Enter namespaces, and most things that have no capability of their own.
    pub const SYS_ADMIN: Set = Set(CapabilitySet::SYS_ADMIN);
    /// Raise scheduling priorities.
    pub const SYS_NICE: Set = Set(CapabilitySet::SYS_NICE);
    /// Raise resource limits.
    pub const SYS_RESOURCE: Set = Set(CapabilitySet::SYS_RESOURCE);

    /// The capabilities in either set. `|` does the same, outside of constants.
    #[must_use]
    pub const fn union(self, other: Set) -> Set {
        Set(self.0.union(other.0))
    }

    /// Whether all capabilities of the other set are in this one.
    pub const fn contains(self, other: Set) -> bool {
        self.0.contains(other.0)
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The capabilities' names without `CAP_`, in the kernel's order; the number of one that is not known here.
    pub fn names(self) -> impl Iterator<Item = String> {
        singles(self.0).map(|one| match one.iter_names().next() {
            Some((name, _)) => name.to_owned(),
            None => one.bits().trailing_zeros().to_string(),
        })
    }

    /// From a mask as `/proc/PID/status` has it: bit N is capability N.
    const fn from_mask(mask: u64) -> Set {
        Set(CapabilitySet::from_bits_retain(mask))
    }
}

impl BitOr for Set {
    type Output = Set;

    fn bitor(self, other: Set) -> Set {
        self.union(other)
    }
}

impl BitAnd for Set {
    type Output = Set;

    fn bitand(self, other: Set) -> Set {
        Set(self.0 & other.0)
    }
}

impl Sub for Set {
    type Output = Set;

    fn sub(self, other: Set) -> Set {
        Set(self.0 - other.0)
    }
}

impl fmt::Display for Set {
    /// Writes names separated by commas: `CAP_NET_RAW, CAP_BPF`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return formatter.write_str("none");
        }
        for (number, name) in self.names().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(formatter, "{separator}CAP_{name}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Set {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Set({self})")
    }
}

/// The set's members, each as a set of one.
fn singles(set: CapabilitySet) -> impl Iterator<Item = CapabilitySet> {
    (0..u64::BITS).map(|number| CapabilitySet::from_bits_retain(1 << number)).filter(move |one| set.contains(*one))
}

/// The capabilities that the calling thread can use now.
///
/// # Panics
/// Never on Linux, where `capget(2)` for the own thread cannot fail.
pub fn effective() -> Set {
    Set(own_sets().effective)
}

/// The capabilities that the calling thread has, whether they are effective or not.
///
/// # Panics
/// Like [`effective`].
pub fn permitted() -> Set {
    Set(own_sets().permitted)
}

fn own_sets() -> CapabilitySets {
    capabilities(None).expect("capget() of the own thread")
}

/// Gives up all other capabilities of the calling thread: in its effective, permitted, inheritable and ambient sets,
/// and in the bounding set if it has `CAP_SETPCAP`. Threads that it starts later have no more than these. Never adds
/// any.
///
/// # Errors
/// Those of `capset(2)`: `EPERM` in a thread that a filter of system calls confines.
pub fn retain(keep: Set) -> io::Result<()> {
    Ok(reduce(keep.0)?)
}

/// What [`retain`] does. Also called in a signal handler: it makes direct system calls, and neither allocates nor locks.
fn reduce(keep: CapabilitySet) -> Result<(), Errno> {
    let sets = capabilities(None)?;
    // First, because it takes a capability that the thread may be about to give up.
    if sets.effective.contains(CapabilitySet::SETPCAP) {
        for one in singles(!keep) {
            match capability_is_in_bounding_set(one) {
                Ok(true) => remove_capability_from_bounding_set(one)?,
                Ok(false) => {}
                // The kernel has no capability with this number, and none with a greater one.
                Err(_) => break,
            }
        }
    }
    // The kernel takes out of the ambient set what is no longer both permitted and inheritable.
    let (effective, permitted) = (sets.effective & keep, sets.permitted & keep);
    set_capabilities(None, CapabilitySets { effective, permitted, inheritable: sets.inheritable & keep })
}

/// The limit on memory that this process may pin, in bytes (`RLIMIT_MEMLOCK`, `ulimit -l`); `None` if there is none.
/// It does not apply to a process with [`Set::IPC_LOCK`].
pub fn memlock_limit() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// Runs `work` on a thread without capabilities, and returns its result: what a process could do that has none.
///
/// # Errors
/// Those of starting a thread and of [`retain`].
pub fn without<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().spawn_scoped(scope, || {
            retain(Set::EMPTY)?;
            Ok(work())
        })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread without capabilities panicked")))
    })
}

/// The capabilities that the calling thread needs and lacks; `None` if it lacks none.
pub fn missing(needed: Set) -> Option<Missing> {
    let missing = needed - effective();
    let program = std::fs::read_link("/proc/self/exe").ok();
    (!missing.is_empty()).then_some(Missing { capabilities: missing, needed, program })
}

/// Capabilities that are missing. Its text names them, and the commands that grant them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The missing ones.
    pub capabilities: Set,
    /// All that are needed: `setcap` replaces those that a file has.
    needed: Set,
    program: Option<PathBuf>,
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.capabilities.names().count() == 1 { "is" } else { "are" };
        let file: Vec<_> = self.needed.names().map(|name| format!("cap_{}", name.to_lowercase())).collect();
        let container: Vec<_> = self.needed.names().map(|name| format!("--cap-add {name}")).collect();
        let program = self.program.as_deref().map_or_else(|| "PROGRAM".to_owned(), quoted);
        write!(
            formatter,
            "{} {verb} missing; grant what is needed with `sudo setcap {}+ep {program}`, to a container with `{}`, or run \
             as root",
            self.capabilities,
            file.join(","),
            container.join(" ")
        )
    }
}

impl std::error::Error for Missing {}

/// A path as a word for a shell.
fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    let is_plain = |character: char| character.is_alphanumeric() || "/._-+,:@%".contains(character);
    if path.chars().all(is_plain) { path.into_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sets_are_sets_of_numbers(one: u64, other: u64) {
            let (a, b) = (Set::from_mask(one), Set::from_mask(other));
            prop_assert_eq!(a | b, Set::from_mask(one | other));
            prop_assert_eq!(a & b, Set::from_mask(one & other));
            prop_assert_eq!(a - b, Set::from_mask(one & !other));
            prop_assert_eq!(a.contains(b), one & other == other);
            prop_assert_eq!(a.names().count(), one.count_ones() as usize);
            prop_assert_eq!(a.is_empty(), one == 0);
        }
    }

    #[test]
    fn sets_print_the_kernels_names() {
        assert_eq!((Set::BPF | Set::NET_RAW).to_string(), "CAP_NET_RAW, CAP_BPF");
        assert_eq!(Set::EMPTY.to_string(), "none");
        assert_eq!(Set::from_mask(1 | 1 << 63).to_string(), "CAP_CHOWN, CAP_63");
        assert_eq!(format!("{:?}", Set::SYS_ADMIN), "Set(CAP_SYS_ADMIN)");
    }

    #[test]
    fn missing_capabilities_come_with_the_commands_that_grant_them() {
        let needed = Set::NET_RAW | Set::NET_ADMIN;
        let program = Some("/opt/my programs/it's".into());
        let missing = Missing { capabilities: Set::NET_RAW, needed, program };
        assert_eq!(
            missing.to_string(),
            r"CAP_NET_RAW is missing; grant what is needed with `sudo setcap cap_net_admin,cap_net_raw+ep '/opt/my programs/it'\''s'`, to a container with `--cap-add NET_ADMIN --cap-add NET_RAW`, or run as root"
        );
        let missing = Missing { capabilities: needed, needed, program: Some("/usr/bin/bellows".into()) };
        assert!(missing.to_string().starts_with("CAP_NET_ADMIN, CAP_NET_RAW are missing"), "{missing}");
        assert!(missing.to_string().contains("+ep /usr/bin/bellows`"), "{missing}");
    }

    #[test]
    fn a_thread_gives_up_capabilities_for_itself() {
        let before = permitted();
        let keep = Set::NET_RAW | Set::SETPCAP;
        let after = std::thread::spawn(move || {
            retain(keep).unwrap();
            let first = (effective(), permitted());
            let inner = std::thread::spawn(permitted).join().unwrap();
            // There is no way back.
            retain(before).unwrap();
            assert_eq!((effective(), permitted()), first);
            assert_eq!(inner, first.1);
            // The bounding set, too.
            let bounding = capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN).unwrap();
            assert!(!(bounding && before.contains(Set::SETPCAP)));
            retain(Set::EMPTY).unwrap();
            assert_eq!(missing(keep).unwrap().capabilities, keep);
            assert_eq!(missing(Set::EMPTY), None);
            first
        });
        let (effective_after, permitted_after) = after.join().unwrap();
        assert_eq!(permitted_after, before & keep);
        assert!(permitted_after.contains(effective_after));
        assert_eq!(permitted(), before, "the other threads keep theirs");
    }

    #[test]
    fn the_memlock_limit_is_that_of_the_kernel() {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max locked memory")).unwrap();
        let soft = line.split_whitespace().nth(3).unwrap();
        assert_eq!(memlock_limit(), soft.parse().ok(), "{line}");
    }
}

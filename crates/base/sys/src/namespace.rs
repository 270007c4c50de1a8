//! Network namespaces: each has interfaces, addresses and routes of its own.
//!
//! A thread is in one network namespace. The threads that it starts, and the sockets that it opens, belong to the same
//! namespace for good, wherever the thread goes later (see `network_namespaces(7)`).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use crate::remedy;

/// Where `ip netns add NAME` keeps namespaces.
const NAMED: &str = "/run/netns";

/// The network namespace of the calling thread. The descriptor keeps the namespace alive.
///
/// # Errors
/// There is no `/proc`.
pub fn current() -> io::Result<OwnedFd> {
    open_path(Path::new("/proc/thread-self/ns/net"))
}

/// Opens a network namespace by path, such as `/run/netns/NAME` or `/proc/PID/ns/net`; a name without a slash means one
/// of `ip netns`.
///
/// # Errors
/// There is no such file, or it may not be opened.
pub fn open_network(namespace: impl AsRef<Path>) -> io::Result<OwnedFd> {
    open_path(&path_of(namespace.as_ref()))
}

/// Moves the calling thread into a network namespace, named as for [`open_network`].
///
/// # Errors
/// The namespace, and why the thread cannot enter it: the file is missing or is no network namespace, or the thread
/// lacks `CAP_SYS_ADMIN`.
pub fn enter_network(namespace: impl AsRef<Path>) -> io::Result<()> {
    let path = path_of(namespace.as_ref());
    enter(open_path(&path)?).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

/// Moves the calling thread into a network namespace that is open.
///
/// # Errors
/// The thread lacks `CAP_SYS_ADMIN`, or the file is no network namespace.
pub fn enter(namespace: impl AsFd) -> io::Result<()> {
    let entered = move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
    entered.map_err(|error| explained("cannot enter the network namespace", error))
}

/// Moves the calling thread into a new network namespace, which has a loopback interface that is down. The namespace
/// ends with the last thread, socket and descriptor that is in it.
///
/// # Errors
/// The thread lacks `CAP_SYS_ADMIN`, or there are too many namespaces.
pub fn enter_new_network() -> io::Result<()> {
    // SAFETY: the table of descriptors stays shared, which is what would be unsafe to change.
    let entered = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
    entered.map_err(|error| explained("cannot make a network namespace", error))
}

fn path_of(namespace: &Path) -> PathBuf {
    if namespace.parent() == Some(Path::new("")) { Path::new(NAMED).join(namespace) } else { namespace.to_owned() }
}

fn open_path(path: &Path) -> io::Result<OwnedFd> {
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(|error| {
        let error = io::Error::from(error);
        let usual = match (error.kind(), path.parent()) {
            (io::ErrorKind::NotFound, Some(folder)) if folder.as_os_str() == OsStr::new(NAMED) => {
                "`ip netns list` lists the names"
            }
            _ => remedy(&error, "give the path of a network namespace, such as /proc/PID/ns/net"),
        };
        io::Error::new(error.kind(), format!("cannot open the network namespace {}: {error}; {usual}", path.display()))
    })
}

fn explained(what: &str, error: Errno) -> io::Error {
    let advice = match error {
        Errno::PERM => {
            "it takes CAP_SYS_ADMIN; run as root, or start the program in the namespace with `ip netns exec`"
        }
        Errno::INVAL => "the file is no network namespace; give /run/netns/NAME or /proc/PID/ns/net",
        Errno::NOSPC => "there are too many; raise the limit with `sysctl user.max_net_namespaces`",
        _ => "check the path",
    };
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{what}: {error}; {advice}"))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::thread::spawn;

    use bellows_testkit::skips::is_skipped;
    use rustix::fs::fstat;

    use super::*;
    use crate::capability::{Set, missing, retain};

    fn lacks_privilege(test: &str) -> bool {
        is_skipped(test, missing(Set::SYS_ADMIN).map(|missing| missing.to_string()))
    }

    /// The number that identifies the namespace of the calling thread.
    fn number() -> u64 {
        fstat(current().unwrap()).unwrap().st_ino
    }

    #[test]
    fn a_thread_moves_alone() {
        if lacks_privilege("a_thread_moves_alone") {
            return;
        }
        let first = number();
        let work = move || {
            let before = current().unwrap();
            enter_new_network().unwrap();
            let second = number();
            assert_ne!(second, first);
            assert_eq!(spawn(number).join().unwrap(), second, "threads inherit the namespace");
            let path = format!("/proc/self/fd/{}", before.as_raw_fd());
            let new = current().unwrap();
            enter_network(&path).unwrap();
            assert_eq!(number(), first);
            enter(new).unwrap();
            assert_eq!(number(), second);
        };
        spawn(work).join().unwrap();
        assert_eq!(number(), first);
    }

    #[test]
    fn errors_name_the_namespace_and_the_remedy() {
        assert_eq!(path_of(Path::new("blue")), Path::new("/run/netns/blue"));
        assert_eq!(path_of(Path::new("./blue")), Path::new("./blue"));
        let error = enter_network("there-is-none").unwrap_err().to_string();
        assert!(error.contains("/run/netns/there-is-none") && error.contains("ip netns list"), "{error}");
        let error = enter_network("/no/such/path").unwrap_err().to_string();
        assert!(error.contains("/no/such/path") && error.contains("check the path"), "{error}");
        if lacks_privilege("errors_name_the_namespace_and_the_remedy") {
            return;
        }
        let error = enter_network("/proc/self/status").unwrap_err().to_string();
        assert!(error.contains("/proc/self/status") && error.contains("no network namespace"), "{error}");
        let work = || {
            retain(Set::NET_ADMIN).unwrap();
            [enter_network("/proc/self/ns/net").unwrap_err(), enter_new_network().unwrap_err()]
        };
        for error in spawn(work).join().unwrap() {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains("CAP_SYS_ADMIN"), "{error}");
        }
    }
}

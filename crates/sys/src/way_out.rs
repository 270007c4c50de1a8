//! What a person can do about an error of the system.

use std::io;

use rustix::io::Errno;

/// The way out of an error of the system, as a clause of an error message; `usual` for one that can have many causes.
///
/// ```
/// let error = std::io::Error::from_raw_os_error(24);
/// assert!(bellows_sys::way_out(&error, "check the path").contains("ulimit -n"));
/// ```
pub fn way_out<'a>(error: &io::Error, usual: &'a str) -> &'a str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => "this process has no descriptor left; raise its limit with `ulimit -n`",
        Some(Errno::NFILE) => "the system has no descriptor left; raise it with `sysctl fs.file-max`",
        Some(Errno::NOSPC) => "the disk is full; make room on it, or give a path on another one",
        Some(Errno::DQUOT) => "the quota of this user is used up; remove files, or give a path on another disk",
        Some(Errno::FBIG) => {
            "the file has reached the limit of this process or of the file system; raise it with `ulimit -f`"
        }
        Some(Errno::ROFS) => "the file system is mounted read-only; give a path on another one",
        Some(Errno::ACCESS | Errno::PERM) => {
            "this user may not; check the permissions of the file and of all folders above it"
        }
        Some(Errno::NOENT) => "check the path, and that all folders above it are there",
        Some(Errno::NOTDIR) => "a part of the path is a file and no folder; check the path",
        Some(Errno::ISDIR) => "it is a folder; give the name of a file in it",
        Some(Errno::NAMETOOLONG) => "give a shorter path",
        Some(Errno::LOOP) => "the path's symbolic links lead in a circle; mend them, or give another path",
        Some(Errno::NOMEM) => "the memory is used up; free some",
        Some(Errno::PIPE) => "whoever read it has ended; keep the reader running, or write to a file",
        Some(Errno::NXIO | Errno::NODEV) => "there is no such device; check the path",
        _ => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_have_ways_out_of_their_own() {
        for (errno, word) in
            [(24, "ulimit -n"), (23, "file-max"), (28, "full"), (27, "ulimit -f"), (30, "read-only"), (32, "reader")]
        {
            let error = io::Error::from_raw_os_error(errno);
            assert!(way_out(&error, "usual").contains(word), "{error}");
        }
        assert_eq!(way_out(&io::Error::other("something"), "usual"), "usual");
    }
}

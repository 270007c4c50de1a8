//! Advice for a person about a system error.

use std::io;

use rustix::io::Errno;

/// The advice for a system error, as a clause of an error message; `usual` for an error with many possible causes.
///
/// ```
/// let error = std::io::Error::from_raw_os_error(24);
/// assert!(bellows_sys::remedy(&error, "check the path").contains("ulimit -n"));
/// ```
pub fn remedy<'a>(error: &io::Error, usual: &'a str) -> &'a str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE) => "this process has no free descriptor; raise its limit with `ulimit -n`",
        Some(Errno::NFILE) => "the system has no free descriptor; raise the limit with `sysctl fs.file-max`",
        Some(Errno::NOSPC) => "the disk is full; free some space, or give a path on another disk",
        Some(Errno::DQUOT) => "the quota of this user is exhausted; remove files, or give a path on another disk",
        Some(Errno::FBIG) => {
            "the file has reached the size limit of this process or of the file system; raise it with `ulimit -f`"
        }
        Some(Errno::ROFS) => "the file system is mounted read-only; give a path on another one",
        Some(Errno::ACCESS | Errno::PERM) => "check the permissions of the file and of all folders above it",
        Some(Errno::NOENT) => "check the path, and that all folders above it exist",
        Some(Errno::NOTDIR) => "a part of the path is a file, not a folder; check the path",
        Some(Errno::ISDIR) => "it is a folder; give the name of a file in it",
        Some(Errno::NAMETOOLONG) => "give a shorter path",
        Some(Errno::LOOP) => "the path's symbolic links form a loop; fix them, or give another path",
        Some(Errno::NOMEM) => "free some memory",
        Some(Errno::PIPE) => "the reader has ended; keep it running, or write to a file",
        Some(Errno::NXIO | Errno::NODEV) => "there is no such device; check the path",
        _ => usual,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_have_remedies_of_their_own() {
        for (errno, word) in
            [(24, "ulimit -n"), (23, "file-max"), (28, "full"), (27, "ulimit -f"), (30, "read-only"), (32, "reader")]
        {
            let error = io::Error::from_raw_os_error(errno);
            assert!(remedy(&error, "usual").contains(word), "{error}");
        }
        assert_eq!(remedy(&io::Error::other("something"), "usual"), "usual");
    }
}

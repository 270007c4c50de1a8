//! The map in which `perf` looks up the names of generated code.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use bellows_sys::atomic_file;

/// A named piece of generated code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Address of its first byte.
    pub start: usize,
    /// Length in bytes.
    pub size: usize,
    /// Its name for `perf`, at least three characters: `perf` ignores shorter names.
    pub name: String,
}

/// The file `/tmp/perf-PID.map`, which tells `perf` the names of a process's generated code.
///
/// It must outlive the process, because `perf report` reads it later; nothing removes it. `perf` accepts it only from
/// its owner, unless the owner is root: if another user (also root) runs `perf report`, it needs `--force`.
#[derive(Debug)]
pub struct PerfMap {
    path: PathBuf,
}

impl PerfMap {
    /// The map of this process. Nothing is written yet.
    pub fn for_this_process() -> PerfMap {
        PerfMap { path: format!("/tmp/perf-{}.map", std::process::id()).into() }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the contents of the file. A reader sees either all of the old or all of the new contents.
    ///
    /// Anyone can create files in `/tmp`: the new file is readable only by its owner, and a symbolic link in its place
    /// is replaced, not followed (see [`atomic_file`]).
    ///
    /// # Errors
    /// Those of writing and renaming files; `PermissionDenied` if the existing file is another user's.
    pub fn write(&self, symbols: &[Symbol]) -> io::Result<()> {
        atomic_file::write(&self.path, lines(symbols).as_bytes(), Some(0o600))
    }
}

/// One line for each symbol; a name cannot start another one.
fn lines(symbols: &[Symbol]) -> String {
    let mut lines = String::new();
    for Symbol { start, size, name } in symbols {
        let name = name.replace(char::is_control, "?");
        let _ = writeln!(lines, "{start:x} {size:x} {name}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use bellows_testkit::scratch;

    use super::*;

    fn symbol(start: usize, size: usize, name: &str) -> Symbol {
        Symbol { start, size, name: name.into() }
    }

    #[test]
    fn the_file_holds_the_last_symbols_written_and_nothing_stays_beside_it() {
        let folder = scratch();
        let map = PerfMap { path: folder.path().join("perf-1.map") };
        map.write(&[symbol(0x5555_0000_1000, 0x2a, "breath"), symbol(0x5555_0000_102a, 16, "push of a splitter")])
            .unwrap();
        assert_eq!(
            fs::read_to_string(map.path()).unwrap(),
            "555500001000 2a breath\n55550000102a 10 push of a splitter\n"
        );
        map.write(&[symbol(0x1000, 1, "other")]).unwrap();
        assert_eq!(fs::read_to_string(map.path()).unwrap(), "1000 1 other\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(fs::metadata(map.path()).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_concurrent_reader_keeps_a_whole_file() {
        let folder = scratch();
        let map = PerfMap { path: folder.path().join("perf-1.map") };
        map.write(&[symbol(0x1000, 1, "first")]).unwrap();
        let reader = File::open(map.path()).unwrap();
        map.write(&[]).unwrap();
        assert_eq!(io::read_to_string(reader).unwrap(), "1000 1 first\n");
        assert_eq!(fs::read(map.path()).unwrap(), b"");
    }

    #[test]
    fn a_link_in_its_place_is_replaced_and_not_followed() {
        let folder = scratch();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let map = PerfMap { path: folder.path().join("perf-1.map") };
        for link in [symlink::<&Path, &Path>, |from, to| fs::hard_link(from, to)] {
            let _ = fs::remove_file(map.path());
            link(&victim, map.path()).unwrap();
            map.write(&[symbol(0x1000, 1, "code")]).unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            let metadata = fs::symlink_metadata(map.path()).unwrap();
            assert!(metadata.is_file() && metadata.nlink() == 1);
        }
    }

    #[test]
    fn a_failed_replacement_leaves_nothing_behind() {
        let folder = scratch();
        let map = PerfMap { path: folder.path().join("perf-1.map") };
        fs::create_dir(map.path()).unwrap();
        assert!(map.write(&[]).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(PerfMap { path: folder.path().join("none/perf-1.map") }.write(&[]).is_err());
    }

    #[test]
    fn a_name_cannot_start_another_line() {
        assert_eq!(lines(&[symbol(1, 2, "app \"a\n3 4 b\r\0\"")]), "1 2 app \"a?3 4 b??\"\n");
    }

    #[test]
    fn the_file_is_where_perf_looks_for_it() {
        let expected = format!("/tmp/perf-{}.map", std::process::id());
        assert_eq!(PerfMap::for_this_process().path(), Path::new(&expected));
    }
}

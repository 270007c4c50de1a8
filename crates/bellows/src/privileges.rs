//! Giving up privileges that a running network does not need.

use std::path::{Path, PathBuf};

use bellows_sys::capability::{Set, permitted, retain_in_process, without};
use rustix::fs::{Access, AtFlags, CWD, accessat};

/// The files that a running network opens.
pub struct LaterFiles<'a> {
    /// Files that a reload reads again.
    pub read: &'a [PathBuf],
    /// Folders in which apps create files.
    pub written: &'a [PathBuf],
}

/// Gives up the capabilities of all threads except those that the network needs: to open its interfaces again, and to
/// open further files if these belong to another user.
pub fn give_up(interfaces: Set, files: &LaterFiles<'_>) {
    let keep = interfaces | for_files(files);
    let surplus = permitted() - keep;
    if surplus.is_empty() {
        return;
    }
    match retain_in_process(keep) {
        Ok(_) => tracing::debug!("gave up all capabilities except: {keep}"),
        Err(error) => tracing::warn!("capabilities that are not needed could not be given up ({surplus}): {error}"),
    }
}

/// The capabilities without which the files could not be opened.
fn for_files(files: &LaterFiles<'_>) -> Set {
    let all = |paths: &[PathBuf], access: Access| paths.iter().all(|path| is_permitted(path, access));
    let readable = || all(files.read, Access::READ_OK);
    let writable = || all(files.written, Access::WRITE_OK | Access::EXEC_OK);
    // With no thread to find out, nothing is kept.
    let (readable, writable) = without(|| (readable(), writable())).unwrap_or((true, true));
    let needed = |is_permitted: bool, set: Set| if is_permitted { Set::EMPTY } else { set };
    (needed(readable, Set::DAC_READ_SEARCH) | needed(writable, Set::DAC_OVERRIDE)) & permitted()
}

/// By the effective user, as opening it would be.
fn is_permitted(path: &Path, access: Access) -> bool {
    accessat(CWD, path, access, AtFlags::EACCESS) != Err(rustix::io::Errno::ACCESS)
}

//! Finding the shared object that joins Bellows to DPDK, and opening it.

use std::env;
use std::ffi::{CStr, CString, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::table::{ENTRY, Table};

/// The object's name.
const NAME: &str = "libbellows-dpdk.so";

/// The variable that names the object. Ignored if the program has more rights than who runs it.
const VARIABLE: &str = "BELLOWS_DPDK";

/// The folders of packages and of the administrator.
const FOLDERS: [&str; 2] = ["/usr/local/lib/bellows", "/usr/lib/bellows"];

/// There is no such object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingLibrary {
    /// The places where it was looked for.
    pub places: Vec<PathBuf>,
}

impl MissingLibrary {
    /// What to do about it.
    pub const REMEDY: &'static str = "install the package bellows-dpdk; or, in Bellows' source with Debian's libdpdk-dev, run `cargo xtask dpdk` and set BELLOWS_DPDK to the file that it names";
}

impl std::fmt::Display for MissingLibrary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let places: Vec<String> = self.places.iter().map(|place| place.display().to_string()).collect();
        write!(f, "devices of DPDK need {NAME}, which is not there; looked for: {}", places.join(", "))
    }
}

/// Whether the kernel says that the environment must not be trusted (`AT_SECURE`).
fn is_privileged() -> bool {
    // SAFETY: the call only reads the process's auxiliary vector.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Where the object may be, in the order in which they are tried.
fn places() -> Vec<PathBuf> {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty() && !is_privileged()) {
        return vec![path.into()];
    }
    let mut folders: Vec<PathBuf> = Vec::new();
    if let Ok(program) = env::current_exe()
        && let Some(folder) = program.parent()
    {
        folders.push(folder.to_owned());
        folders.extend(folder.parent().map(|above| above.join("lib/bellows")));
    }
    folders
        .extend(FOLDERS.map(PathBuf::from).into_iter().filter(|folder| !folders.contains(folder)).collect::<Vec<_>>());
    folders.into_iter().map(|folder| folder.join(NAME)).collect()
}

/// Finds the shared object: the file that the variable `BELLOWS_DPDK` names; else `libbellows-dpdk.so` beside the program,
/// in `../lib/bellows` from there, in `/usr/local/lib/bellows`, or in `/usr/lib/bellows`.
///
/// # Errors
/// It is in none of these places.
pub fn find_library() -> Result<PathBuf, MissingLibrary> {
    let places = places();
    places.iter().find(|place| place.is_file()).cloned().ok_or(MissingLibrary { places })
}

/// Opens the object, once: it stays open as long as the process lives.
///
/// # Errors
/// A sentence: why it cannot be opened, and what to do.
pub(crate) fn open() -> Result<&'static Table, String> {
    static TABLE: OnceLock<&'static Table> = OnceLock::new();
    if let Some(table) = TABLE.get() {
        return Ok(table);
    }
    let path = find_library().map_err(|missing| format!("{missing}; {}", MissingLibrary::REMEDY))?;
    let table = open_at(&path).map_err(|error| {
        format!(
            "{}: {error}; build it anew with `cargo xtask dpdk`, or install the package bellows-dpdk",
            path.display()
        )
    })?;
    Ok(TABLE.get_or_init(|| table))
}

fn open_at(path: &Path) -> Result<&'static Table, String> {
    let file = CString::new(path.as_os_str().as_bytes()).map_err(|_| "its name has a zero byte".to_owned())?;
    // SAFETY: the constructors of the object and of DPDK's libraries run. They are those that the user has installed, and
    // only register drivers.
    let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if library.is_null() {
        return Err(last_error());
    }
    // SAFETY: the library is open, and stays so.
    let entry: *mut c_void = unsafe { libc::dlsym(library, ENTRY.as_ptr()) };
    if entry.is_null() {
        return Err(last_error());
    }
    // SAFETY: the symbol of this name is a function of this type in all versions.
    let entry = unsafe { mem::transmute::<*mut c_void, extern "C" fn() -> *const Table>(entry) };
    // SAFETY: the function returns a table that lasts as long as the library.
    unsafe { Table::checked(entry()) }
}

/// The dynamic linker's last error on this thread.
fn last_error() -> String {
    // SAFETY: the call returns null, or a text that lasts until the next call on this thread.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it cannot be opened".to_owned();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_that_is_none_is_refused_with_the_linkers_words() {
        let error = open_at(Path::new("/nowhere/libbellows-dpdk.so")).map(drop).unwrap_err();
        assert!(error.contains("/nowhere/libbellows-dpdk.so"), "{error}");
        let error = open_at(&env::current_exe().unwrap()).map(drop).unwrap_err();
        assert!(!error.is_empty());
    }

    #[test]
    fn the_places_are_those_that_the_documentation_lists() {
        let missing = MissingLibrary { places: places() };
        let text = missing.to_string();
        for place in ["lib/bellows/libbellows-dpdk.so", "/usr/local/lib/bellows/", "/usr/lib/bellows/"] {
            assert!(env::var_os(VARIABLE).is_some() || text.contains(place), "{text}");
        }
    }
}

//! The shared object with which Bellows opens DPDK, for the DPDK that is installed.

use std::path::{Path, PathBuf};

use bellows_testkit::dpdk;

use crate::workspace::target_dir;
use crate::{TaskError, tools};

/// The object's name.
const NAME: &str = "libbellows-dpdk.so";

/// Builds it into a folder, or into the target folder.
pub fn run(arguments: &[String]) -> Result<(), TaskError> {
    let folder = match arguments {
        [] => target_dir().join("dpdk"),
        [folder] if !folder.starts_with('-') => PathBuf::from(folder),
        _ => return Err(TaskError::usage("dpdk takes at most a folder")),
    };
    tools::provide([&tools::CC, &tools::PKG_CONFIG, &tools::DPDK_LIBRARIES]);
    if let Some(missing) = dpdk::missing_for_build() {
        return Err(TaskError::failed(missing));
    }
    let object = folder.join(NAME);
    dpdk::build(Path::new("packaging/dpdk/shim.c"), &object).map_err(TaskError::failed)?;
    let object = object.canonicalize().unwrap_or(object);
    println!("{}", object.display());
    println!(
        "== Bellows finds it beside its program and in /usr/local/lib/bellows, or by BELLOWS_DPDK={}",
        object.display()
    );
    Ok(())
}

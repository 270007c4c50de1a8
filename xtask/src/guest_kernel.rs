//! The kernel of the guests for tests: Debian's, unpacked into the target folder and not installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{tools, workspace};

/// Debian's metapackage for the current kernel for virtual machines.
pub const PACKAGE: &str = "linux-image-cloud-amd64";

/// The folder in which the tests look for it.
pub fn folder() -> PathBuf {
    workspace::target_dir().join("peers/kernel")
}

/// Fetches and unpacks the kernel unless it exists. It needs no privileges except for package lists, which only root
/// can update.
pub fn provide() -> Result<(), String> {
    let folder = folder();
    if folder.join("boot").is_dir() {
        return Ok(());
    }
    let found = newest_package().or_else(|why| match tools::is_root() {
        true => run(Command::new("apt-get").args(["-qq", "update"])).and_then(|_| newest_package()),
        false => Err(format!("{why}; as root: apt-get update")),
    });
    let package = found?;
    println!("== guest kernel: {package} into {}", folder.display());
    let unpacked = folder.with_extension("new");
    // Removes the leftovers of an interrupted run.
    let _ = fs::remove_dir_all(&unpacked);
    fs::create_dir_all(&unpacked).map_err(|error| format!("cannot make {}: {error}", unpacked.display()))?;
    run(Command::new("apt-get")
        .args(["-qq", "-o", "APT::Sandbox::User=root", "download", &package])
        .current_dir(&unpacked))?;
    let archive = archive_in(&unpacked).ok_or_else(|| format!("apt-get download {package} brought no file"))?;
    run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&unpacked))?;
    let _ = fs::remove_file(archive);
    fs::rename(&unpacked, &folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))
}

/// The package with a version in its name, on which the metapackage depends.
fn newest_package() -> Result<String, String> {
    let said = run(Command::new("apt-cache").args(["depends", PACKAGE]))?;
    dependency(&said).ok_or_else(|| format!("apt-cache names no kernel for {PACKAGE}"))
}

fn dependency(said: &str) -> Option<String> {
    let depends = said.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    depends.map(str::trim).find(|name| name.starts_with("linux-image-")).map(str::to_owned)
}

fn archive_in(folder: &Path) -> Option<PathBuf> {
    let mut files = fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.find(|file| file.extension().is_some_and(|extension| extension == "deb"))
}

/// The output of a program, if it succeeds.
fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.env("LC_ALL", "C").env("PATH", tools::search_path()).output();
    let output = output.map_err(|error| format!("cannot run {name}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_the_dependency_of_the_metapackage() {
        let said = "linux-image-cloud-amd64\n  PreDepends: base\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        assert_eq!(dependency(said).as_deref(), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(dependency("linux-image-cloud-amd64\n  Recommends: firmware\n"), None);
    }
}

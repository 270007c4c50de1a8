//! The clean system: created once with `debootstrap`, copied for each run, and removed after the run.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{USER, host};
use crate::TaskError;
use crate::tools::{self, Tool};

/// The packages that the README requires beside the Rust toolchain: a C compiler, and certificates for Cargo's server.
pub const PREREQUISITES: [&str; 2] = ["build-essential", "ca-certificates"];

/// The folder of the captures for some tests, beside the project.
const CAPTURES: &str = "../shared/captures";

/// The folder of packages that an earlier run has fetched.
const ARCHIVES: &str = "var/cache/apt/archives";

/// The folder of the base system that each run copies. It is created if missing.
pub fn base(folder: &Path, suite: &str) -> Result<PathBuf, TaskError> {
    let base = folder.join(format!("base-{suite}"));
    if base.is_dir() {
        return Ok(base);
    }
    let new = folder.join(format!("base-{suite}.new"));
    remove(&new)?;
    let archives = host::archives(suite);
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", suite]).arg(&new);
    debootstrap.args(archives.iter().find(|archive| archive.release == suite).map(|archive| &archive.uri));
    if let Some(proxy) = host::apt_proxy() {
        debootstrap.env("http_proxy", proxy);
    }
    run(&mut debootstrap)?;
    let root = Root { path: new.clone(), folder: folder.to_owned(), keep: true };
    root.copy_settings(suite, &archives)?;
    let install = format!(
        "set -e; export DEBIAN_FRONTEND=noninteractive; apt-get -qq update; \
         apt-get -qq -o Dpkg::Use-Pty=0 install --yes --no-install-recommends {}; \
         useradd --create-home --shell /bin/sh {USER}; apt-get -qq clean; rm -rf /var/lib/apt/lists/*",
        PREREQUISITES.join(" ")
    );
    println!("== prerequisites of the Rust toolchain: apt-get install {}", PREREQUISITES.join(" "));
    super::run_inside(&root, "none", "root", "/", &install, |_| {})?;
    fs::rename(&new, &base).map_err(|error| cannot("make", &base, &error))?;
    Ok(base)
}

/// Removes the leftovers of killed runs.
pub fn remove_leftovers(folder: &Path) -> Result<(), TaskError> {
    let entries = fs::read_dir(folder).map_err(|error| cannot("read", folder, &error))?;
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(process) = name.strip_prefix("root-").and_then(|id| id.parse::<u32>().ok()) else { continue };
        if !entry.path().join(KEPT).exists() && !Path::new("/proc").join(process.to_string()).exists() {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// A file in the root of a system that marks it to be kept.
const KEPT: &str = ".kept";

/// A clean system. Dropping this value removes it.
pub struct Root {
    path: PathBuf,
    folder: PathBuf,
    keep: bool,
}

impl Root {
    /// Copies the base.
    pub fn copy(base: &Path, folder: &Path) -> Result<Root, TaskError> {
        let path = folder.join(format!("root-{}", std::process::id()));
        remove(&path)?;
        let root = Root { path, folder: folder.to_owned(), keep: false };
        run(Command::new("cp").args(["--archive", "--reflink=auto", "--"]).arg(base).arg(&root.path))?;
        let suite = base.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("base-"));
        let suite = suite.unwrap_or_default();
        root.copy_settings(suite, &host::archives(suite))?;
        root.provide_archives();
        Ok(root)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets whether the system is kept when this value is dropped.
    pub fn keep(&mut self, keep: bool) {
        self.keep = keep;
        if keep {
            // Without the mark, the next run removes the system.
            let _ = fs::write(self.path.join(KEPT), "");
        }
    }

    /// Configures package sources and name resolution as on this machine.
    fn copy_settings(&self, suite: &str, archives: &[host::Archive]) -> Result<(), TaskError> {
        let write = |path: &str, text: &str| {
            let path = self.path.join(path);
            fs::write(&path, text).map_err(|error| cannot("write", &path, &error))
        };
        if !archives.is_empty() {
            let mut sources = String::new();
            for host::Archive { uri, release } in archives {
                let _ = writeln!(sources, "deb {uri} {release} main");
            }
            write("etc/apt/sources.list", &sources)?;
        } else {
            println!("apt has no archive of Debian {suite} here: using debootstrap's");
        }
        write("etc/apt/apt.conf.d/99host", &host::apt_settings())?;
        for (folder, is_wanted) in KEYRINGS {
            for file in files(Path::new(folder)).into_iter().filter(|file| is_wanted(file)) {
                let Some(name) = file.file_name() else { continue };
                copy(&file, &self.path.join("etc/apt/trusted.gpg.d").join(name))?;
            }
        }
        for file in ["etc/resolv.conf", "etc/hosts", "etc/ssl/certs/ca-certificates.crt"] {
            let to = self.path.join(file);
            if to.parent().is_some_and(Path::is_dir) && Path::new("/").join(file).is_file() {
                copy(&Path::new("/").join(file), &to)?;
            }
        }
        Ok(())
    }

    /// Puts packages into apt's cache. apt checks them as if it had just fetched them.
    fn provide_archives(&self) {
        link_packages(&self.folder.join("archives"), &self.path.join(ARCHIVES));
    }

    /// Saves the packages for the next run.
    pub fn save_archives(&self) {
        let saved = self.folder.join("archives");
        // Without them the next run fetches them again.
        let _ = fs::create_dir_all(&saved);
        link_packages(&self.path.join(ARCHIVES), &saved);
    }

    /// Clones the last commit into the home folder of a user, with the captures beside it and Cargo's
    /// downloads. Returns its path inside.
    pub fn clone_project(&self, user: &str) -> Result<String, TaskError> {
        let home = if user == "root" { "root".to_owned() } else { format!("home/{user}") };
        let outside = self.path.join(&home);
        let project = outside.join("bellows");
        let changed = Command::new("git").args(["status", "--porcelain"]).output();
        if changed.is_ok_and(|output| !output.stdout.is_empty()) {
            println!("there are uncommitted changes: the clone does not contain them");
        }
        run(Command::new("git").args(["clone", "--quiet", "--no-hardlinks", ".", "--"]).arg(&project))?;
        if Path::new(CAPTURES).is_dir() {
            let shared = outside.join("shared");
            fs::create_dir_all(&shared).map_err(|error| cannot("make", &shared, &error))?;
            run(Command::new("cp").args(["--recursive", "--dereference", "--", CAPTURES]).arg(&shared))?;
        }
        if let Some(cargo) = host::cargo_home() {
            self.copy_downloads(&cargo, &outside.join(".cargo"))?;
        }
        if user != "root" {
            run(Command::new("chown").args(["--recursive", "--reference"]).arg(&outside).arg(&outside))?;
        }
        Ok(format!("/{home}/bellows"))
    }

    /// Copies Cargo's settings and the crates that the project needs; the clean system builds them itself.
    fn copy_downloads(&self, from: &Path, to: &Path) -> Result<(), TaskError> {
        let make = |folder: &Path| fs::create_dir_all(folder).map_err(|error| cannot("make", folder, &error));
        make(&to.join("registry/cache"))?;
        for name in ["config.toml", "config"] {
            if from.join(name).is_file() {
                copy(&from.join(name), &to.join(name))?;
            }
        }
        if from.join("registry/index").is_dir() {
            run(Command::new("cp")
                .args(["--recursive", "--"])
                .arg(from.join("registry/index"))
                .arg(to.join("registry")))?;
        }
        let wanted = locked_crates(&fs::read_to_string("Cargo.lock").unwrap_or_default());
        for registry in files(&from.join("registry/cache")) {
            let Some(name) = registry.file_name() else { continue };
            let to = to.join("registry/cache").join(name);
            make(&to)?;
            for file in files(&registry) {
                let Some(name) = file.file_name().and_then(|name| name.to_str()) else { continue };
                if wanted.contains(name) {
                    copy(&file, &to.join(name))?;
                }
            }
        }
        Ok(())
    }

    /// The first of a tool's programs that is installed.
    pub fn find(&self, tool: &Tool) -> Option<PathBuf> {
        let folders = ["usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin"];
        let places = tool.programs.iter().flat_map(|program| match program.strip_prefix('/') {
            Some(file) => vec![PathBuf::from(file)],
            None => folders.map(|folder| Path::new(folder).join(program)).into(),
        });
        // The target of a link may exist only inside the system.
        let mut places = places.filter(|place| self.path.join(place).symlink_metadata().is_ok());
        places.next().map(|place| Path::new("/").join(place))
    }

    pub fn has(&self, tool: &Tool) -> bool {
        self.find(tool).is_some()
    }

    /// The installed packages.
    pub fn packages(&self) -> BTreeSet<String> {
        installed(&fs::read_to_string(self.path.join("var/lib/dpkg/status")).unwrap_or_default())
    }

    /// Those of these packages that were installed explicitly, not as dependencies.
    pub fn explicitly_installed<'a>(&self, packages: &[&'a str]) -> Vec<&'a str> {
        let states = fs::read_to_string(self.path.join("var/lib/apt/extended_states")).unwrap_or_default();
        let automatic = automatic(&states);
        packages.iter().copied().filter(|package| !automatic.contains(package)).collect()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        if !self.keep
            && let Err(failure) = remove(&self.path)
        {
            eprintln!("xtask: {failure}");
        }
    }
}

type IsWanted = fn(&Path) -> bool;

/// The folder of apt's keys for archives; Debian's own are in the system already.
const KEYRINGS: [(&str, IsWanted); 3] = [
    ("/etc/apt/trusted.gpg.d", is_foreign_key),
    ("/etc/apt/keyrings", is_foreign_key),
    ("/usr/share/keyrings", is_foreign_key),
];

fn is_foreign_key(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    (name.ends_with(".gpg") || name.ends_with(".asc")) && !name.starts_with("debian-")
}

fn link_packages(from: &Path, to: &Path) {
    for file in files(from).iter().filter(|file| file.extension().is_some_and(|extension| extension == "deb")) {
        if let Some(name) = file.file_name() {
            // An existing file is kept.
            let _ = fs::hard_link(file, to.join(name));
        }
    }
}

/// Removes a folder and its contents, unless something is mounted there.
fn remove(folder: &Path) -> Result<(), TaskError> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    if mounts.lines().filter_map(|line| line.split(' ').nth(4)).any(|place| Path::new(place).starts_with(folder)) {
        return Err(TaskError::failed(format!("{} contains a mount: umount it first", folder.display())));
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(cannot("remove", folder, &error)),
        _ => Ok(()),
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    entries.map(|entry| entry.path()).collect()
}

fn copy(from: &Path, to: &Path) -> Result<(), TaskError> {
    // The path may be a link that leads out of the folder.
    let _ = fs::remove_file(to);
    fs::copy(from, to).map(drop).map_err(|error| cannot("write", to, &error))
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> TaskError {
    TaskError::failed(format!("cannot {what} {}: {error}", path.display()))
}

fn run(command: &mut Command) -> Result<(), TaskError> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.env("PATH", tools::search_path()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(TaskError::failed(format!("{name}: {status}"))),
        Err(error) => Err(TaskError::failed(format!("cannot run {name}: {error}"))),
    }
}

/// The files of the crates in a `Cargo.lock`.
fn locked_crates(lock: &str) -> BTreeSet<String> {
    let value =
        |line: &str, key: &str| Some(line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"')?.to_owned());
    let mut crates = BTreeSet::new();
    let mut name = String::new();
    for line in lock.lines() {
        if let Some(value) = value(line, "name") {
            name = value;
        } else if let Some(version) = value(line, "version") {
            crates.insert(format!("{name}-{version}.crate"));
        }
    }
    crates
}

/// The installed packages in dpkg's status file.
fn installed(status: &str) -> BTreeSet<String> {
    let packages =
        status.split("\n\n").filter(|entry| entry.lines().any(|line| line == "Status: install ok installed"));
    packages
        .filter_map(|entry| entry.lines().find_map(|line| line.strip_prefix("Package: ")))
        .map(str::to_owned)
        .collect()
}

/// The packages that apt has installed as dependencies.
fn automatic(states: &str) -> BTreeSet<&str> {
    let packages = states.split("\n\n").filter(|entry| entry.lines().any(|line| line == "Auto-Installed: 1"));
    packages.filter_map(|entry| entry.lines().find_map(|line| line.strip_prefix("Package: "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_read_from_the_lock_file() {
        let lock = "version = 4\n\n[[package]]\nname = \"clap\"\nversion = \"4.5.1\"\nsource = \"x\"\n";
        assert!(locked_crates(lock).contains("clap-4.5.1.crate"));
    }

    #[test]
    fn packages_are_installed_and_asked_for_or_not() {
        let status = "Package: a\nStatus: install ok installed\n\nPackage: b\nStatus: deinstall ok config-files\n\n\
                      Package: c\nStatus: install ok installed\nDepends: b\n";
        assert_eq!(installed(status), BTreeSet::from(["a".to_owned(), "c".to_owned()]));
        let states = "Package: c\nArchitecture: amd64\nAuto-Installed: 1\n\nPackage: a\nAuto-Installed: 0\n";
        assert_eq!(automatic(states), BTreeSet::from(["c"]));
    }

    #[test]
    fn debians_own_keys_are_not_copied() {
        assert!(!is_foreign_key(Path::new("/k/debian-archive-keyring.gpg")));
        assert!(is_foreign_key(Path::new("/k/company.asc")));
        assert!(!is_foreign_key(Path::new("/k/README")));
    }
}

//! `cargo xtask record-quickstart`: records the capture for a newcomer's first run.

use std::fs;
use std::path::{Path, PathBuf};

use bellows_testkit::netns;

use crate::tools::{self, Tool};
use crate::{TaskError, capture_check, netlab, workspace};

const CAPTURE: &str = "examples/captures/quickstart.pcap";
const README: &str = "examples/README.md";
/// The lines of the README around the table of the capture's contents.
const TABLE_START: &str = "<!-- what quickstart.pcap holds; `cargo xtask record-quickstart` writes this table -->\n";
const TABLE_END: &str = "<!-- end of the table -->\n";

/// Tells this program that it already runs in its own namespaces; not for users.
const INSIDE: &str = "--inside-namespaces";

pub const TOOLS: &[Tool] = &[
    Tool { programs: &["unshare"], package: "util-linux", purpose: "the recording" },
    Tool { programs: &["taskset"], package: "util-linux", purpose: "the recording" },
    Tool { programs: &["ip"], package: "iproute2", purpose: "the recording" },
    Tool { programs: &["ethtool"], package: "ethtool", purpose: "the recording" },
    Tool { programs: &["tcpdump"], package: "tcpdump", purpose: "the recording" },
    Tool { programs: &["dnsmasq"], package: "dnsmasq-base", purpose: "the name server" },
    Tool { programs: &["busybox"], package: "busybox-static", purpose: "the web server" },
    Tool { programs: &["dig"], package: "bind9-dnsutils", purpose: "the clients" },
    Tool { programs: &["curl"], package: "curl", purpose: "the clients" },
    Tool { programs: &["ping"], package: "iputils-ping", purpose: "the clients" },
];

/// Runs the task.
pub fn run(words: &[String]) -> Result<(), TaskError> {
    match words {
        [] => record(),
        [inside, scratch] if inside == INSIDE => netlab::record(Path::new(scratch)),
        [other, ..] => Err(TaskError::usage(format!("record-quickstart: '{other}' is not an option"))),
    }
}

fn record() -> Result<(), TaskError> {
    if !tools::is_root() {
        return Err(TaskError::failed("record-quickstart creates network namespaces: run it as root"));
    }
    let missing = tools::provide(TOOLS);
    if !missing.is_empty() {
        return Err(TaskError::failed(format!("missing: {}", tools::packages(&missing).join(" "))));
    }
    let scratch = Scratch::new()?;
    in_namespaces(&scratch)?;
    let recorded = scratch.0.join(netlab::CAPTURE);
    let table = capture_check::describe(&recorded)?;
    print!("{table}");
    let readme = fs::read_to_string(README).map_err(|error| TaskError::failed(format!("{README}: {error}")))?;
    let readme = with_table(&readme, &table).ok_or_else(|| {
        TaskError::failed(format!("{README} lacks the lines around the table:\n{TABLE_START}{TABLE_END}"))
    })?;
    fs::copy(&recorded, CAPTURE).map_err(|error| TaskError::failed(format!("cannot write {CAPTURE}: {error}")))?;
    fs::write(README, readme).map_err(|error| TaskError::failed(format!("cannot write {README}: {error}")))?;
    println!("\nwrote {CAPTURE}, and the table in {README}");
    Ok(())
}

/// One CPU for all hosts: with several, packets may be recorded out of time order.
fn first_cpu() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or("0").trim();
    allowed.chars().take_while(char::is_ascii_digit).collect()
}

/// Runs the recording in its own namespaces.
fn in_namespaces(scratch: &Scratch) -> Result<(), TaskError> {
    let status = netns::in_own_namespaces(&["taskset", "--cpu-list", &first_cpu()])
        .map_err(TaskError::failed)?
        .args(["record-quickstart", INSIDE])
        .arg(&scratch.0)
        .status()
        .map_err(|error| TaskError::failed(format!("cannot run setpriv and unshare: {error}")))?;
    if status.success() {
        Ok(())
    } else {
        Err(TaskError::failed(format!(
            "the recording failed ({status}); network namespaces need CAP_SYS_ADMIN, which containers often lack"
        )))
    }
}

/// Puts the table between its two lines.
fn with_table(readme: &str, table: &str) -> Option<String> {
    let (before, rest) = readme.split_once(TABLE_START)?;
    let (_, after) = rest.split_once(TABLE_END)?;
    Some(format!("{before}{TABLE_START}\n{table}\n{TABLE_END}{after}"))
}

/// A folder that is removed when this value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch, TaskError> {
        let folder = workspace::target_dir().join("quickstart");
        // Removes the folder of a recording that was killed.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)
            .and_then(|()| folder.canonicalize())
            .map(Scratch)
            .map_err(|error| TaskError::failed(format!("cannot create {}: {error}", folder.display())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // The folder is in the target folder, so leftovers do no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_table_replaces_the_old_one() {
        let old = format!("# Captures\n{TABLE_START}\n| old |\n\n{TABLE_END}The end.\n");
        let new = with_table(&old, "| new |\n");
        assert_eq!(new, Some(format!("# Captures\n{TABLE_START}\n| new |\n\n{TABLE_END}The end.\n")));
        assert_eq!(with_table("# Captures\n", "| new |\n"), None);
    }

    #[test]
    fn the_readme_describes_the_capture_that_is_there() {
        let readme = fs::read_to_string(Path::new("..").join(README)).expect("examples/README.md is there");
        let capture = fs::metadata(Path::new("..").join(CAPTURE)).expect("the capture is there");
        assert!(with_table(&readme, "").is_some());
        assert!(readme.contains(&format!(" {} bytes:\n", capture.len())));
    }
}

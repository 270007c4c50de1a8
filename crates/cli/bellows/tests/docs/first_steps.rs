//! The page for newcomers, `docs/first-steps.md`: all its files are written and all its commands run, in their order.

use std::fs;
use std::process::Command;

use crate::support::root;
use bellows_testkit::programs::{has_program, search_path};
use bellows_testkit::skips::{is_left_out, is_skipped};
use bellows_testkit::wait::output;
use bellows_testkit::{guest, netns, page, scratch};

/// The heading at which the part for root begins.
const FOR_ROOT: &str = "## A virtual machine";

/// Both parts of the page as scripts.
fn scripts() -> [String; 2] {
    let text = fs::read_to_string(root().join("docs/first-steps.md")).unwrap();
    let (first, second) = text.split_once(FOR_ROOT).expect("the heading");
    [first, second].map(page::script)
}

/// Runs a script by a command line, with `bellows` on the path. Fails the test with its output if a command of it fails.
fn run(mut command: Command, script: &str) -> String {
    let folder = scratch();
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bellows"), bin.join("bellows")).unwrap();
    let path = format!("{}:{}", bin.display(), search_path().to_str().unwrap());
    fs::write(folder.path().join("script"), script).unwrap();
    command.args(["bash", "-x", "script"]).current_dir(folder.path());
    command.env("PATH", path).env("XDG_RUNTIME_DIR", folder.path()).env("NO_COLOR", "1");
    if let Ok(kernel) = guest::kernel() {
        command.env("KERNEL", kernel);
    }
    let output = output(&mut command).unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{}\n{said}", output.status);
    said
}

/// A command that runs another one.
fn launcher(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

#[test]
fn captures_and_running_networks() {
    let test = "captures_and_running_networks";
    if !has_program(test, "tcpdump") {
        return;
    }
    let said = run(launcher(&["env"]), &scripts()[0]);
    for part in
        ["mix.toml: fine", "10,000 packets match", "load  running", "CLOCKS/PKT", "packet 1, ", "3 packets captured"]
    {
        assert!(said.contains(part), "no `{part}` in {said}");
    }
}

#[test]
fn a_machine_an_interface_workers_and_monitors() {
    let test = "a_machine_an_interface_workers_and_monitors";
    if is_left_out(test) || is_skipped(test, netns::missing(&["unshare"])) || is_skipped(test, guest::missing()) {
        return;
    }
    let with_loopback = "ip link set lo up; exec \"$@\"";
    let said = run(launcher(&["unshare", "--net", "--", "sh", "-c", with_loopback, "sh"]), &scripts()[1]);
    for part in [
        "5 packets received",
        "machine (vhost-user)",
        r#""health":"running""#,
        r#"bellows_port_received_packets_total{network="machine""#,
        "raw-socket",
        "worker second",
        "PLACEMENT",
    ] {
        assert!(said.contains(part), "no `{part}` in {said}");
    }
}

#[test]
fn the_page_has_both_parts() {
    let [first, second] = scripts();
    assert!(first.contains("bellows run mix.toml") && second.contains("qemu-system-x86_64"));
    assert!(!second.contains("mix.toml"), "the parts are independent");
}

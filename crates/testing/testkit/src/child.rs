//! Tests that run in a process of their own, because they cannot undo what they do.

use std::process::Command;
use std::thread;

use crate::wait::PATIENCE;

const DONE: &str = "the test in the child process is done";

/// Runs an ignored test of this program in a child process. It has to call [`done`].
pub fn run(test: &str) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    let output = child.args(["--exact", test, "--ignored", "--nocapture"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains(DONE), "{text}");
}

/// Says that the test in the child process has come to its end.
pub fn done() {
    println!("{DONE}");
}

/// Ends a child that hangs. Not by a watchdog outside: valgrind has no `pidfd_open`.
pub fn abort_later() {
    thread::spawn(|| {
        thread::sleep(PATIENCE);
        std::process::abort();
    });
}

//! Commands whose system calls are watched.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

/// The same command under strace, which writes the system calls to a log.
pub fn traced(inner: &Command, log: &Path, folder: &Path) -> Command {
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-s", "4096", "-o"]).arg(log).arg("--").arg(inner.get_program());
    command.args(inner.get_args()).current_dir(folder);
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// The system calls of a log of strace, each when it ended: its name, and its arguments with the result.
fn calls(log: &str) -> Vec<(String, String)> {
    let call = |text: &str| {
        let (name, arguments) = text.split_once('(')?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_name.then(|| (name.to_owned(), arguments.to_owned()))
    };
    let mut begun: HashMap<&str, String> = HashMap::new();
    let mut calls = Vec::new();
    for line in log.lines() {
        // `PID name(arguments) = result`, in two lines if another thread's call came in between.
        let (thread, rest) = line.split_at(line.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(0));
        let rest = rest.trim_start();
        if let Some(start) = rest.strip_suffix(" <unfinished ...>") {
            begun.insert(thread, start.to_owned());
            continue;
        }
        let resumed = rest.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>"));
        let whole = match resumed {
            Some((_, end)) => begun.remove(thread).unwrap_or_default() + end,
            None => rest.to_owned(),
        };
        calls.extend(call(&whole));
    }
    // Calls that never end, as that which ends the process.
    calls.extend(begun.values().filter_map(|start| call(start)));
    calls
}

/// Fails the test unless files of the runtime directory were only read, maps of counters cannot be written, and no
/// socket was connected. Returns the number of maps of counters.
pub fn assert_reads_only(log: &str, runtime: &str) -> usize {
    let mut counters: HashMap<String, bool> = HashMap::new();
    let mut maps = 0;
    for (name, arguments) in calls(log) {
        match name.as_str() {
            "open" | "openat" | "openat2" if arguments.contains(runtime) => {
                assert!(arguments.contains("O_RDONLY"), "{name}({arguments}");
                assert!(!arguments.contains("O_CREAT") && !arguments.contains("control\""), "{name}({arguments}");
                if let Some((_, descriptor)) = arguments.rsplit_once("= ") {
                    let descriptor = descriptor.split(' ').next().unwrap().split('<').next().unwrap().to_owned();
                    counters.insert(descriptor, arguments.contains("/counters\""));
                }
            }
            "close" => {
                counters.remove(arguments.split([')', '<']).next().unwrap());
            }
            "mmap" => {
                let parts: Vec<&str> = arguments.split(", ").collect();
                let descriptor = parts[4].split('<').next().unwrap();
                if counters.get(descriptor) == Some(&true) {
                    assert_eq!(parts[2], "PROT_READ", "mmap({arguments}");
                    maps += 1;
                }
            }
            "connect" | "sendto" | "sendmsg" => {
                assert!(!arguments.contains("AF_UNIX") && !arguments.contains(runtime), "{name}({arguments}");
            }
            "unlink" | "unlinkat" | "rename" | "renameat" | "renameat2" | "mkdir" | "mkdirat" | "kill" | "tgkill"
            | "ptrace" | "process_vm_readv" | "process_vm_writev" => {
                assert!(!arguments.contains(runtime), "{name}({arguments}");
                assert!(!["kill", "tgkill", "ptrace"].contains(&&*name), "{name}({arguments}");
            }
            _ => {}
        }
    }
    maps
}

//! A reader maps counters read-only and asks no engine.

use std::collections::HashMap;
use std::process::Command;

use bellows_testkit::programs::has_program;
use bellows_testkit::wait::output;

use crate::exposition::BUSY;
use crate::http::get;
use crate::support::{Sandbox, Signal};

/// The system calls of a log of strace: thread, name, arguments, result.
fn calls(log: &str) -> Vec<(String, String)> {
    let line = |line: &str| {
        // `PID name(arguments) = result`
        let rest = line.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start();
        let (name, arguments) = rest.split_once('(')?;
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_name.then(|| (name.to_owned(), arguments.to_owned()))
    };
    log.lines().filter_map(line).collect()
}

/// Fails the test unless files of the runtime directory were only read, maps of counters cannot be written, and no
/// socket was connected. Returns the number of maps of counters.
fn assert_reads_only(log: &str, runtime: &str) -> usize {
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

#[test]
fn a_reader_maps_counters_read_only_and_connects_to_no_engine() {
    const TEST: &str = "a_reader_maps_counters_read_only_and_connects_to_no_engine";
    if !has_program(TEST, "strace") {
        return;
    }
    let sandbox = Sandbox::new();
    let network = sandbox.write("busy.toml", BUSY);
    let running = sandbox.start(&[&network]);
    let runtime = sandbox.path("run").display().to_string();
    let log = sandbox.path("calls");
    let traced = |words: &[&str]| {
        let inner = sandbox.command(words);
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-s", "4096", "-o"]).arg(&log).arg("--").arg(inner.get_program());
        command.args(inner.get_args()).current_dir(sandbox.path(""));
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    };
    let said = output(&mut traced(&["metrics"])).unwrap();
    assert!(said.status.success() && said.stdout.starts_with(b"# HELP"), "{said:?}");
    let calls = std::fs::read_to_string(&log).unwrap();
    assert_eq!(assert_reads_only(&calls, &runtime), 1, "{calls}");

    // A server, scraped: the same map is used again.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut child = traced(&["metrics", "--listen", &port]).spawn().unwrap();
    let _watchdog = bellows_testkit::wait::Watchdog::new(&child);
    bellows_testkit::eventually("the server", || std::net::TcpStream::connect(&port).is_ok());
    for path in ["/metrics", "/health", "/metrics", "/metrics"] {
        assert_eq!(get(&port, path, "").status, 200);
    }
    // Its child is the server.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let server: u32 = children.split_whitespace().next().unwrap().parse().unwrap();
    Command::new("kill").args(["-TERM", &server.to_string()]).status().unwrap();
    child.wait().unwrap();
    let calls = std::fs::read_to_string(&log).unwrap();
    assert_eq!(assert_reads_only(&calls, &runtime), 1, "{calls}");
    running.signal(Signal::TERM);
    assert_eq!(running.wait().code, Some(0));
}

//! A reader maps counters read-only and asks no engine.

use std::process::Command;

use bellows_testkit::programs::has_program;
use bellows_testkit::wait::output;

use crate::metrics::exposition::BUSY;
use crate::support::metrics::get;
use crate::support::strace::{assert_reads_only, traced};
use crate::support::{Sandbox, Signal};

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
    let traced = |words: &[&str]| traced(&sandbox.command(words), &log, &sandbox.path(""));
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

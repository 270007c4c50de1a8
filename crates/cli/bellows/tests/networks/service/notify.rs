//! The notifications of the service manager about a run (`sd_notify(3)`); it is a socket here.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use bellows_testkit::wait::Watchdog;
use rustix::time::{ClockId, clock_gettime};

use crate::support::{ENDLESS, Sandbox, Signal};

/// A message: the assignments of variables, by name.
#[derive(Debug)]
struct Message(Vec<(String, String)>);

impl Message {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// A service manager with one service.
struct Manager {
    socket: UnixDatagram,
    child: Child,
    _watchdog: Watchdog,
}

impl Manager {
    fn start(sandbox: &Sandbox, socket: UnixDatagram, address: &str, watchdog: Option<Duration>) -> Manager {
        let network = sandbox.write("network.toml", ENDLESS);
        let mut command = sandbox.command(&["run", &network, "--name", "edge"]);
        command.env("NOTIFY_SOCKET", address).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(limit) = watchdog {
            command.env("WATCHDOG_USEC", limit.as_micros().to_string());
        }
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let child = command.spawn().unwrap();
        let watchdog = Watchdog::new(&child);
        Manager { socket, child, _watchdog: watchdog }
    }

    fn at_path(sandbox: &Sandbox, watchdog: Option<Duration>) -> Manager {
        let path = sandbox.path("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        Manager::start(sandbox, socket, path.to_str().unwrap(), watchdog)
    }

    /// The next message.
    fn next(&self) -> Message {
        let mut buffer = [0; 4096];
        let length = self.socket.recv(&mut buffer).unwrap();
        let text = std::str::from_utf8(&buffer[..length]).unwrap();
        let assignment = |line: &str| {
            let (name, value) = line.split_once('=').unwrap_or_else(|| panic!("{line} in {text}"));
            (name.to_owned(), value.to_owned())
        };
        Message(text.lines().map(assignment).collect())
    }

    /// The next message that sets a variable.
    fn next_with(&self, name: &str) -> Message {
        loop {
            let message = self.next();
            if message.get(name).is_some() {
                return message;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        crate::support::signal(&self.child, signal);
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn monotonic_usec() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1_000
}

#[test]
fn the_service_manager_is_told_of_start_reload_and_stop() {
    let sandbox = Sandbox::new();
    let mut manager = Manager::at_path(&sandbox, None);
    let ready = manager.next();
    assert_eq!(ready.get("READY"), Some("1"), "{ready:?}");
    assert!(ready.get("STATUS").unwrap().contains("as `edge`"), "{ready:?}");
    // It is ready: others can reach it.
    sandbox.bellows(&["ps", "edge", "--probe"]).success();

    // As `Type=notify-reload` wants it: the time of the message is not before that of the signal.
    let asked = monotonic_usec();
    manager.signal(Signal::HUP);
    let reloading = manager.next_with("RELOADING");
    let at: u64 = reloading.get("MONOTONIC_USEC").unwrap().parse().unwrap();
    assert!((asked..=monotonic_usec()).contains(&at), "{asked}: {reloading:?}");
    assert_eq!(manager.next_with("READY").get("READY"), Some("1"));

    // `systemctl reload` with ExecReload=, and a file with a mistake.
    sandbox.write("network.toml", "links = nonsense");
    assert_eq!(sandbox.bellows(&["reload", "edge"]).code, Some(2));
    manager.next_with("RELOADING");
    let ready = manager.next_with("READY");
    assert!(ready.get("STATUS").unwrap().ends_with("the last reload was refused"), "{ready:?}");

    // Reloads that several clients want at once are notified one after another.
    sandbox.write("network.toml", ENDLESS);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| sandbox.bellows(&["reload", "edge"]).success());
        }
    });
    let told: Vec<bool> = std::iter::repeat_with(|| manager.next())
        .filter(|message| message.get("RELOADING").or(message.get("READY")).is_some())
        .map(|message| message.get("READY").is_some())
        .take(8)
        .collect();
    assert_eq!(told, [false, true].repeat(4), "whether each message was that a reload is over");

    manager.signal(Signal::TERM);
    let stopping = manager.next_with("STOPPING");
    assert_eq!(stopping.get("STOPPING"), Some("1"), "{stopping:?}");
    assert!(manager.child.wait().unwrap().success());
}

#[test]
fn an_abstract_socket_is_reached_too() {
    let sandbox = Sandbox::new();
    let name = format!("bellows-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    let manager = Manager::start(&sandbox, socket, &format!("@{name}"), None);
    assert_eq!(manager.next().get("READY"), Some("1"));
}

/// `tests/own_apps/hangs.rs` has a run whose engine hangs.
#[test]
fn the_watchdog_hears_from_a_run_three_times_in_its_limit() {
    let sandbox = Sandbox::new();
    let manager = Manager::at_path(&sandbox, Some(Duration::from_millis(900)));
    manager.next_with("READY");
    let start = Instant::now();
    for _ in 0..6 {
        manager.next_with("WATCHDOG");
    }
    let time = start.elapsed();
    assert!(time > Duration::from_millis(1_200) && time < Duration::from_secs(10), "{time:?}");
}

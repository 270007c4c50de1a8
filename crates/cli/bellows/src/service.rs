//! The service manager: its notifications about a run (`sd_notify(3)`), and its watchdog.
//!
//! Without the variables `NOTIFY_SOCKET` and `WATCHDOG_USEC` all of this does nothing.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// The maximum length of a status in bytes.
const MAX_STATUS: usize = 512;

/// The service manager of this process, if it has one.
pub struct Service {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Mutex<Watchdog>>,
    /// Whether the run is to end. Held while the service manager is notified of it, or of a reload.
    is_stopping: Mutex<bool>,
}

/// The watchdog of the service manager.
struct Watchdog {
    /// The time between two signs of life: a third of the limit, so that one may come late.
    interval: Duration,
    next: Instant,
}

impl Service {
    /// The service manager that the environment names.
    pub fn of_environment() -> Service {
        let variable = |name: &str| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let socket = variable("NOTIFY_SOCKET").and_then(|name| match connect(&name) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!("the service manager cannot be told anything: NOTIFY_SOCKET={name:?}: {error}");
                None
            }
        });
        let text = |name: &str| variable(name).and_then(|value| value.into_string().ok());
        let limit = watchdog_limit(text("WATCHDOG_USEC").as_deref(), text("WATCHDOG_PID").as_deref(), process::id());
        let watchdog = limit.filter(|_| socket.is_some());
        let watchdog = watchdog.map(|limit| Watchdog { interval: limit / 3, next: Instant::now() });
        Service { socket, watchdog: watchdog.map(Mutex::new), is_stopping: Mutex::new(false) }
    }

    fn is_stopping(&self) -> MutexGuard<'_, bool> {
        self.is_stopping.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run has started, or a reload is over. Not sent when the run is to end.
    pub fn ready(&self, status: &str) {
        let is_stopping = self.is_stopping();
        if !*is_stopping {
            self.tell(&format!("READY=1\n{}", status_line(status)));
        }
    }

    /// A reload begins. [`ready`](Service::ready) ends it. Not sent when the run is to end.
    pub fn reloading(&self) {
        let is_stopping = self.is_stopping();
        if *is_stopping {
            return;
        }
        let now = clock_gettime(ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n{}", status_line("reloading")));
    }

    /// The run is to end.
    pub fn stopping(&self, status: &str) {
        let mut is_stopping = self.is_stopping();
        *is_stopping = true;
        self.tell(&format!("STOPPING=1\n{}", status_line(status)));
    }

    /// What the run does now, in words.
    pub fn status(&self, status: &str) {
        self.tell(&status_line(status));
    }

    /// Gives the watchdog a sign of life, if one is due and all workers breathe. To be called
    /// at least as often as they are [due](Service::interval).
    pub fn breathe(&self, is_alive: impl FnOnce() -> bool) {
        let Some(watchdog) = &self.watchdog else { return };
        let mut watchdog = watchdog.lock().unwrap_or_else(PoisonError::into_inner);
        if watchdog.next <= Instant::now() && is_alive() {
            watchdog.next = Instant::now() + watchdog.interval;
            self.tell("WATCHDOG=1\n");
        }
    }

    /// The time between two signs of life, if the service manager wants them.
    pub fn interval(&self) -> Option<Duration> {
        let watchdog = self.watchdog.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(watchdog.interval)
    }

    /// Sends assignments of variables. A service manager that does not read costs nothing but what it does not read.
    fn tell(&self, state: &str) {
        if let Some((socket, manager)) = &self.socket {
            let _ = socket.send_to_addr(state.as_bytes(), manager);
        }
    }
}

/// A socket to the service manager, whose address is a path, or a name in the abstract namespace after `@`.
fn connect(name: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => return Err(io::Error::new(io::ErrorKind::Unsupported, "it is neither a path nor an abstract name")),
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

/// The limit of the watchdog, if there is one and it is meant for this process.
fn watchdog_limit(micros: Option<&str>, pid: Option<&str>, own_pid: u32) -> Option<Duration> {
    if pid.is_some_and(|pid| pid.parse() != Ok(own_pid)) {
        return None;
    }
    let micros = micros?.parse().ok().filter(|micros| *micros > 0)?;
    Some(Duration::from_micros(micros))
}

/// The assignment of a status, in one line.
fn status_line(status: &str) -> String {
    let first = status.lines().next().unwrap_or_default();
    format!("STATUS={}\n", &first[..first.floor_char_boundary(MAX_STATUS)])
}

#[cfg(test)]
mod tests {
    use bellows_testkit::scratch;

    use super::*;

    #[test]
    fn a_watchdog_of_another_process_is_not_ours() {
        let limit = |micros, pid| watchdog_limit(micros, pid, 7);
        assert_eq!(limit(Some("3000000"), None), Some(Duration::from_secs(3)));
        assert_eq!(limit(Some("3000000"), Some("7")), Some(Duration::from_secs(3)));
        for (micros, pid) in [
            (Some("3000000"), Some("8")),
            (None, Some("7")),
            (Some("0"), None),
            (Some("soon"), None),
            (Some("1"), Some("")),
        ] {
            assert_eq!(limit(micros, pid), None, "{micros:?} {pid:?}");
        }
    }

    #[test]
    fn a_reload_that_ends_after_the_run_is_not_told() {
        let folder = scratch();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let socket = Some(connect(path.as_os_str()).unwrap());
        let service = Service { socket, watchdog: None, is_stopping: Mutex::new(false) };
        service.ready("runs");
        service.reloading();
        service.stopping("stops");
        service.ready("runs");
        service.reloading();
        service.status("hangs");
        let mut buffer = [0; 1024];
        let message = |length: usize, buffer: &[u8]| String::from_utf8_lossy(&buffer[..length]).into_owned();
        let told: Vec<String> =
            std::iter::from_fn(|| Some(message(manager.recv(&mut buffer).ok()?, &buffer))).collect();
        let first: Vec<&str> = told.iter().filter_map(|message| message.lines().next()).collect();
        assert_eq!(first, ["READY=1", "RELOADING=1", "STOPPING=1", "STATUS=hangs"]);
    }

    #[test]
    fn a_status_is_one_line() {
        assert_eq!(status_line("one\ntwo"), "STATUS=one\n");
        assert_eq!(status_line(""), "STATUS=\n");
        assert!(status_line(&"ä".repeat(1_000)).len() <= MAX_STATUS + "STATUS=\n".len());
    }

    #[test]
    fn addresses_are_paths_and_abstract_names() {
        assert!(connect("/run/systemd/notify".as_ref()).is_ok() && connect("@bellows/test".as_ref()).is_ok());
        assert!(connect("vsock:2:1234".as_ref()).is_err() && connect("".as_ref()).is_err());
    }
}

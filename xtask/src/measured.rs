//! Programs that are measured: their priority, and their processor time.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than a program takes to start on a slow and busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// The time that the threads of a process have run, and waited for a processor, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduled(HashMap<OsString, [f64; 2]>);

impl Scheduled {
    pub fn of(pid: u32) -> Scheduled {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let thread = |task: fs::DirEntry| {
            let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap_or(0.0));
            (task.file_name(), [numbers.next().unwrap_or(0.0), numbers.next().unwrap_or(0.0)])
        };
        Scheduled(tasks.map(thread).collect())
    }

    /// The run and wait time since then of the thread that has run most.
    pub fn since(&self, then: &Scheduled) -> [f64; 2] {
        let threads = self.0.iter().map(|(thread, now)| {
            let then = then.0.get(thread).copied().unwrap_or_default();
            [now[0] - then[0], now[1] - then[1]]
        });
        threads.max_by(|one, other| one[0].total_cmp(&other[0])).unwrap_or_default()
    }
}

/// Puts a program into its own session, which gives it its own share of a processor, and removes the priority that
/// [`raise_own_priority`] has given to its parent. It dies with this process, even if it is stopped.
pub const SESSION: [&str; 7] = ["chrt", "--other", "0", "setsid", "setpriv", "--pdeathsig", "KILL"];

/// Gives this process and its helper programs priority over the measured ones, which use all remaining time.
pub fn raise_own_priority() {
    let _ = Command::new("chrt").args(["--rr", "--all-tasks", "--pid", "1", &std::process::id().to_string()]).output();
}

/// Gives the session of a program priority over all others, if permitted.
pub fn raise_session_priority(pid: u32) {
    let deadline = Instant::now() + TIMEOUT;
    while session_of(pid) != Some(pid) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    let _ = fs::write(format!("/proc/{pid}/autogroup"), "-20");
}

/// The session of a process: its parent's until it has its own.
fn session_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split_whitespace().nth(3)?.parse().ok()
}

/// Stops or continues a process.
pub fn signal(pid: u32, signal: &str) {
    let _ = Command::new("kill").args([signal, &pid.to_string()]).status();
}

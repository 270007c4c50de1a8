//! Captures by `tcpdump` in a network namespace.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{ChildStderr, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::inside;
use crate::programs::Background;
use crate::wait::Watchdog;

/// A running `tcpdump` that writes a file.
pub struct Capture {
    tcpdump: Background,
    messages: BufReader<ChildStderr>,
    _watchdog: Watchdog,
}

impl Capture {
    /// Starts a capture of whole frames, and waits until it sees all further frames. `filter` is an expression of
    /// tcpdump's; an empty one selects all frames.
    ///
    /// # Errors
    ///
    /// Why tcpdump does not start; its messages are on standard error.
    pub fn start(namespace: &str, interface: &str, filter: &str, path: &Path) -> Result<Capture, String> {
        Capture::of_frames_up_to(0, namespace, interface, filter, path)
    }

    /// As [`Capture::start`], of frames up to this length, of which there is room for many more.
    ///
    /// # Errors
    ///
    /// As for [`Capture::start`].
    pub fn of_frames_up_to(
        length: u32,
        namespace: &str,
        interface: &str,
        filter: &str,
        path: &Path,
    ) -> Result<Capture, String> {
        let mut command = inside(namespace);
        command
            .args([
                "tcpdump",
                "-i",
                interface,
                "-n",
                "-s",
                &length.to_string(),
                "-B",
                "16384",
                "--immediate-mode",
                "-Z",
                "root",
                "-w",
            ])
            .arg(path);
        let mut tcpdump = Background::start(command.arg(filter).stderr(Stdio::piped()))?;
        let stderr = tcpdump.0.stderr.take().ok_or("tcpdump has no standard error")?;
        let _watchdog = Watchdog::new(&tcpdump.0);
        let mut capture = Capture { tcpdump, messages: BufReader::new(stderr), _watchdog };
        capture.wait_for("listening on")?;
        Ok(capture)
    }

    /// Waits until tcpdump prints something, and returns that line.
    fn wait_for(&mut self, wanted: &str) -> Result<String, String> {
        let mut line = String::new();
        while self.messages.read_line(&mut line).is_ok_and(|length| length > 0) {
            if line.contains(wanted) {
                return Ok(line);
            }
            eprint!("tcpdump: {line}");
            line.clear();
        }
        Err(format!("tcpdump ended without saying '{wanted}'; see its messages above"))
    }

    /// Ends tcpdump; the file is then complete.
    ///
    /// # Errors
    ///
    /// If tcpdump has ended before, or has missed frames.
    pub fn stop(&mut self) -> Result<(), String> {
        if let Ok(Some(status)) = self.tcpdump.0.try_wait() {
            return Err(format!("tcpdump ended before the traffic did ({status})"));
        }
        kill_process(Pid::from_child(&self.tcpdump.0), Signal::INT)
            .map_err(|error| format!("cannot interrupt tcpdump: {error}"))?;
        let dropped = self.wait_for("dropped by kernel")?;
        // tcpdump writes the rest of the file after that message.
        self.tcpdump.0.wait().map_err(|error| format!("cannot wait for tcpdump: {error}"))?;
        if dropped.starts_with("0 ") {
            Ok(())
        } else {
            Err(format!("the capture has lost packets: {}", dropped.trim()))
        }
    }
}

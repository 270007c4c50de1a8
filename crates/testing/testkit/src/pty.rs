//! A pseudoterminal in which a command runs, and the picture on it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::wait::eventually;

/// A terminal of this size. Dropping it kills the command.
pub struct Pty {
    side: File,
    child: Child,
    written: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Pty {
    /// Runs a command in a session of its own with this controlling terminal.
    pub fn run(command: &Command, columns: u16, rows: u16) -> Pty {
        let side = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&side).unwrap();
        unlockpt(&side).unwrap();
        let name = ptsname(&side, Vec::new()).unwrap().into_string().unwrap();
        let terminal = || OpenOptions::new().read(true).write(true).open(&name).unwrap();
        let mut session = Command::new("setsid");
        session.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args()).env("TERM", "xterm");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => session.env(name, value),
                None => session.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            session.current_dir(folder);
        }
        let side = File::from(side);
        let child = session.stdin(terminal()).stdout(terminal()).stderr(terminal());
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&side, size).unwrap();
        let child = child.spawn().unwrap();
        let written = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, log) = (side.try_clone().unwrap(), Arc::clone(&written));
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Reading fails when the last process has closed the terminal.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                log.lock().unwrap().extend(&buffer[..count]);
            }
        });
        Pty { side, child, written, reader: Some(reader) }
    }

    /// Gives the terminal another size.
    pub fn resize(&self, columns: u16, rows: u16) {
        tcsetwinsize(&self.side, Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) {
        self.side.write_all(keys.as_bytes()).unwrap();
    }

    /// Everything that was written to the terminal.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// The lines of the last complete picture: from the top left corner to the point where the rest is cleared.
    pub fn screen(&self) -> Vec<String> {
        let text = self.text();
        let whole = text.rsplit_once("\x1b[J").map_or("", |(whole, _)| whole);
        let picture = whole.rsplit_once("\x1b[H").map_or("", |(_, picture)| picture);
        picture.split('\n').map(without_escapes).collect()
    }

    /// Waits until the picture satisfies a condition.
    pub fn wait_for_screen(&self, what: &str, is_so: impl Fn(&[String]) -> bool) {
        eventually(&format!("{what}; the last picture: {:#?}", self.screen()), || is_so(&self.screen()));
    }

    /// Waits for the command's end and returns its exit code.
    pub fn wait(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        // The last output may not have been read yet.
        self.reader.take().unwrap().join().unwrap();
        (code, self.text())
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn without_escapes(line: &str) -> String {
    let mut plain = String::new();
    let mut in_escape = false;
    for c in line.chars() {
        match (in_escape, c) {
            (true, c) => in_escape = !c.is_ascii_alphabetic(),
            (false, '\x1b') => in_escape = true,
            // The terminal inserts some before line feeds.
            (false, '\r') => {}
            (false, c) => plain.push(c),
        }
    }
    plain
}

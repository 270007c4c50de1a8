//! Runs the built command, each test in a folder and with a runtime directory of its own.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod examples;
pub mod guest;
pub mod json_reference;
pub mod metrics;
pub mod site;
pub mod strace;
pub mod stuck;
pub mod tunnel;
pub mod vhost;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread;

use bellows::json_reference::Found;
use bellows_testkit::wait::{Watchdog, output};
use bellows_testkit::{eventually, scratch};
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};
use serde_json::Value;

/// A network that makes packets until it is stopped.
pub const ENDLESS: &str = r#"
links = ["source.output -> end.input"]
[apps.source]
app = "source"
size = 60
rate = "100kpps"
[apps.end]
app = "sink"
"#;

/// A network that is idle for a long time: one packet an hour.
pub const IDLE: &str = r#"
links = ["source.output -> end.input"]
[apps.source]
app = "source"
size = 60
rate = 0.0003
[apps.end]
app = "sink"
"#;

pub use bellows_testkit::tree::root;

/// A folder with network files and a runtime directory.
pub struct Sandbox {
    folder: scratch::TempDir,
    program: PathBuf,
    /// A program that runs the command, with its arguments; empty if nothing does.
    launcher: Vec<String>,
}

/// The output and exit code of a command.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// Standard output as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:#?}"))
    }

    /// Fails the test if it is the report of a run, or counters, with unbalanced books.
    fn balanced(self) -> Said {
        if let Ok(report) = serde_json::from_str::<Value>(&self.stdout)
            && report.get("imbalances").is_some()
        {
            json_reference::compare(&["run", "--json"], &self.stdout, &mut Found::new());
            assert_books(&report);
        }
        self
    }

    /// Fails the test unless the command succeeded.
    pub fn success(self) -> Said {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
        Said { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }.balanced()
    }
}

/// Fails the test unless every packet of a finished run is accounted for: for each app, packets in and made are those
/// out, dropped, ended and held; for each link, packets sent have been received or wait.
pub fn assert_books(report: &Value) {
    let number = |of: &Value, key: &str| of[key].as_u64().unwrap_or_else(|| panic!("no {key} in {of:#}"));
    let list = |of: &Value| of.as_array().unwrap_or_else(|| panic!("no list in {report:#}")).clone();
    let apps = [list(&report["apps"]), list(&report["gone"]["apps"])].concat();
    let mut all = [0; 2];
    for app in &apps {
        let drops = app["drops"].as_object().unwrap().values().map(|drops| drops.as_u64().unwrap());
        let came = number(app, "in_packets") + number(app, "made");
        let gone = number(app, "out_packets") + drops.sum::<u64>() + number(app, "ended") + number(app, "held");
        assert_eq!(came, gone, "the books of {} in {report:#}", app["name"]);
        all[0] += number(app, "in_packets");
        all[1] += number(app, "out_packets");
    }
    let waiting: u64 = list(&report["links"]).iter().map(|link| number(link, "waiting")).sum();
    let removed: u64 = list(&report["gone"]["links"]).iter().map(|link| number(link, "removed")).sum();
    assert_eq!(all[0] + waiting + removed, all[1], "what was sent and received in {report:#}");
    assert_eq!(report["imbalances"], Value::from(Vec::<u64>::new()));
}

/// Sends a signal to a process that was started here.
pub fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

impl Sandbox {
    pub fn new() -> Sandbox {
        Sandbox::of(env!("CARGO_BIN_EXE_bellows").into())
    }

    /// A command for this test program itself, which runs as a command if the variable `COMMAND` is set.
    pub fn own() -> Sandbox {
        Sandbox::of(std::env::current_exe().unwrap())
    }

    /// A command for another program.
    pub fn of(program: PathBuf) -> Sandbox {
        let folder = scratch();
        fs::create_dir(folder.path().join("run")).unwrap();
        Sandbox { folder, program, launcher: Vec::new() }
    }

    /// The same, with every command run by another program, which becomes the command: `ip netns exec`, `setpriv`.
    pub fn launched_by(mut self, words: &[&str]) -> Sandbox {
        self.launcher = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file and returns its path as an argument.
    pub fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    /// The same for a file that only this user can read.
    pub fn write_secret(&self, name: &str, text: &str) -> String {
        scratch::write_secret(self.path(name), text).display().to_string()
    }

    pub fn command(&self, words: &[&str]) -> Command {
        let mut launched = self.launcher.iter().map(OsStr::new).chain([self.program.as_os_str()]);
        let mut command = Command::new(launched.next().unwrap());
        command
            .args(launched)
            .args(words)
            .current_dir(self.folder.path())
            .env("BELLOWS_RUNTIME_DIR", self.path("run/bellows"))
            .env("BELLOWS_STATE_DIR", self.path("state"));
        // The folder of the examples' sockets.
        command.env("XDG_RUNTIME_DIR", self.path("run"));
        // The tests may run under any locale.
        command.env("LC_ALL", "C.UTF-8");
        command.env("COMMAND", "1").env_remove("RUST_BACKTRACE").env_remove("NO_COLOR").stdin(Stdio::null());
        command
    }

    /// Runs the command to its end. JSON that it prints must be as its reference says.
    pub fn bellows(&self, words: &[&str]) -> Said {
        self.bellows_noting(words, &mut Found::new())
    }

    /// The same. Notes the keys of the JSON.
    pub fn bellows_noting(&self, words: &[&str], found: &mut Found) -> Said {
        let said: Said = output(&mut self.command(words)).unwrap().into();
        json_reference::compare(words, &said.stdout, found);
        said
    }

    /// Runs `place` with these words until enough is measured, which takes longer on a busy machine.
    pub fn place(&self, words: &[&str]) -> Said {
        let mut said = None;
        eventually("enough samples", || {
            let place = self.bellows(&[&["place"], words].concat());
            let is_lacking = place.stderr.contains("not enough is measured");
            said = Some(place);
            !is_lacking
        });
        said.unwrap()
    }

    /// Starts `run` with these arguments and waits until others can see the network running.
    pub fn start(&self, words: &[&str]) -> Running<'_> {
        let mut command = self.command(&[&["run"], words].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::new(&child);
        let mut log = BufReader::new(child.stderr.take().unwrap());
        // A report may be longer than a pipe holds, and it ends before anybody asks for it.
        let report = read_to_end(child.stdout.take().unwrap());
        let mut seen = String::new();
        // Warnings may come before.
        let running = loop {
            if let Some(found) = seen.find("running `") {
                break found;
            }
            let length = log.read_line(&mut seen).unwrap();
            assert!(length > 0, "it ended: {seen}");
        };
        let name = seen[running..].split('`').nth(3).unwrap_or_else(|| panic!("no name in {seen}")).to_owned();
        let running = Running {
            sandbox: self,
            child: Some(child),
            _watchdog: watchdog,
            log: Some(log),
            report: Some(report),
            name,
            seen,
        };
        eventually("the control socket", || running.folder().join("control").exists());
        running
    }
}

/// Reads all that comes, on a thread.
fn read_to_end(mut from: impl Read + Send + 'static) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text
    })
}

/// A `run` in the background. It is killed when it is dropped.
pub struct Running<'a> {
    sandbox: &'a Sandbox,
    child: Option<Child>,
    _watchdog: Watchdog,
    log: Option<BufReader<std::process::ChildStderr>>,
    report: Option<thread::JoinHandle<String>>,
    pub name: String,
    seen: String,
}

impl Running<'_> {
    /// The engine's folder.
    pub fn folder(&self) -> PathBuf {
        self.sandbox.path("run").join("bellows").join(&self.name)
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn signal(&self, signal: Signal) {
        self::signal(self.child.as_ref().unwrap(), signal);
    }

    /// Reads the log until it contains a text.
    pub fn wait_for_log(&mut self, wanted: &str) {
        while !self.seen.contains(wanted) {
            let length = self.log.as_mut().unwrap().read_line(&mut self.seen).unwrap();
            assert!(length > 0, "`{wanted}` is not in {}", self.seen);
        }
        self.seen = self.seen.split_once(wanted).unwrap().1.to_owned();
    }

    /// Whether it has not ended.
    pub fn is_alive(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> Said {
        let mut child = self.child.take().unwrap();
        let log = self.log.take().unwrap();
        let reader = read_to_end(log);
        let stdout = self.report.take().unwrap().join().unwrap();
        let code = child.wait().unwrap().code();
        let stderr = std::mem::take(&mut self.seen) + &reader.join().unwrap();
        Said { code, stdout, stderr }.balanced()
    }

    /// Counters as `show --json` has them.
    pub fn counters(&self) -> Value {
        self.sandbox.bellows(&["show", &self.name, "--json"]).success().json()
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Some(child) = &mut self.child else { return };
        let ended = child.try_wait();
        let _ = child.kill();
        let _ = child.wait();
        if thread::panicking() {
            let mut rest = std::mem::take(&mut self.seen);
            let _ = self.log.take().map(|mut log| log.read_to_string(&mut rest));
            eprintln!("`{}` had ended: {ended:?}. Its log:\n{rest}", self.name);
        }
    }
}

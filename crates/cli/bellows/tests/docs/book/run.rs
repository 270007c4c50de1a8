//! Runs the commands of a page.
//!
//! Each is a line of bash in a folder like a checkout, with `bellows` on the path. Pages that change the machine's
//! networks or files run as root in namespaces of their own, in which the folders that they change are copies.

use std::env;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use bellows_testkit::programs::{self, search_path};
use bellows_testkit::skips::{is_skipped, skip};
use bellows_testkit::wait::{PATIENCE, Watchdog, output};
use bellows_testkit::{netns, page};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::book::pages::{How, Page, Place, RUNS, Special};
use crate::book::text;
use crate::support::examples::checkout;
use crate::support::{Sandbox, root};

/// Set for the process in its own namespaces.
const INSIDE: &str = "BELLOWS_BOOK_INSIDE";

/// Makes copies of the folders that pages change, in a mount namespace.
const PRIVATE: &str = "
mount -t tmpfs tmpfs /run
mkdir -p /run/etc /run/user/1000
cp -a --one-file-system /etc/. /run/etc
mount --bind /run/etc /etc
for folder in /var/lib /usr/local/bin /usr/lib/sysusers.d /usr/lib/tmpfiles.d; do
    test ! -d $folder || mount -t tmpfs tmpfs $folder
done
mount -t sysfs sysfs /sys
ip link set lo up
";

/// Runs all commands of a page that are not excepted.
pub fn page(test: &str, page: &Page) {
    if is_skipped(test, programs::missing(&[&["bash"][..], page.programs].concat())) {
        return;
    }
    match page.place {
        Place::Folder => run(test, page),
        Place::Namespaces if env::var_os(INSIDE).is_some() => {
            assert_eq!(std::process::id(), 1, "the first process of its namespaces");
            run(test, page);
        }
        Place::Namespaces => {
            if is_skipped(test, netns::missing(&["unshare", "setpriv", "mount"])) {
                return;
            }
            let mut command = netns::in_own_namespaces(&[]).unwrap();
            command.args([&*format!("book::{test}"), "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
            let output = output(&mut command).unwrap();
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && said.contains(" 1 passed"), "{}\n{said}", output.status);
        }
    }
}

fn run(test: &str, page: &Page) {
    let mut shell = Shell::new(page);
    for command in page::commands(&text(page.name)) {
        let special = page.special(&command);
        let place = format!("docs/{}.md:{}", page.name, command.line);
        if special.is_some_and(|special| matches!(special.how, How::WithRelease(_))) && !has_release() {
            skip(test, format!("{place}: there is no release build, which `{}` would make for minutes", command.text));
            continue;
        }
        let start = Instant::now();
        shell.step(&place, &command.text, special.unwrap_or(&Special::new("", How::Ends(0))));
        eprintln!("{place}: {:.1?}", start.elapsed());
    }
    shell.end();
}

/// Whether the workspace has a release build.
fn has_release() -> bool {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(target).join("release/bellows").exists()
}

/// The folder in which a page's commands run, and what goes on in the background.
struct Shell {
    sandbox: Sandbox,
    services: Vec<Service>,
    logs: usize,
}

/// A command that runs until it is ended, in a process group of its own.
struct Service {
    /// Where it stands, and what it is.
    place: String,
    command: String,
    child: Child,
    log: PathBuf,
}

impl Drop for Service {
    fn drop(&mut self) {
        // Only while its leader has not been waited for, its number stands for this group.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Service {
    /// What it has said.
    fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Ends it as Ctrl-C does, unless it has ended by itself.
    fn end(&mut self) {
        let status = self.child.try_wait().unwrap().unwrap_or_else(|| {
            let _watchdog = Watchdog::after(PATIENCE, &self.child);
            kill_process_group(Pid::from_child(&self.child), Signal::INT).unwrap();
            self.child.wait().unwrap()
        });
        check(&self.place, &self.command, status, &[0], &self.said());
    }
}

/// Fails the test unless a command has ended with one of these codes, and without a panic.
fn check(place: &str, command: &str, status: ExitStatus, codes: &[i32], said: &str) {
    let is_right = status.code().is_some_and(|code| codes.contains(&code));
    assert!(is_right, "{place}: `{command}` ended with {status}, not with {codes:?}:\n{said}");
    assert!(!said.contains("panicked at"), "{place}: `{command}` panicked:\n{said}");
}

/// The network file that a command runs.
fn network_file(command: &str) -> Option<String> {
    let mut words = page::words(command).into_iter();
    (words.next()? == "bellows" && words.next()? == "run").then(|| words.next())?
}

impl Shell {
    /// A checkout with what the page needs, and its networks running.
    fn new(page: &Page) -> Shell {
        let sandbox = checkout(Sandbox::new());
        let release = sandbox.path("target/release");
        fs::create_dir_all(&release).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_bellows"), release.join("bellows")).unwrap();
        let text = text(page.name);
        let blocks = page::blocks(&text);
        let tables = blocks.iter().filter(|block| block.info.is_some_and(|info| info.starts_with("toml")));
        for (number, block) in (1..).zip(tables) {
            sandbox.write(&format!("block-{number}.toml"), &format!("{}\n", block.lines.join("\n")));
        }
        for (name, text) in page.files {
            sandbox.write(name, text);
        }
        let mut shell = Shell { sandbox, services: Vec::new(), logs: 0 };
        let place = format!("the set-up of docs/{}.md", page.name);
        if page.place == Place::Namespaces {
            shell.run(&place, PRIVATE, &[0]);
        }
        shell.run(&place, page.set_up, &[0]);
        for (name, file) in page.networks {
            shell.start(&place, &format!("bellows run {file} --name {name}"), "", RUNS);
        }
        shell
    }

    /// A command line of bash.
    fn bash(&self, line: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("set -euo pipefail\n{line}")]);
        let folder = self.sandbox.path("");
        let run = self.sandbox.path("run");
        let path = format!("{}:{}", folder.join("target/release").display(), search_path().to_str().unwrap());
        command.current_dir(&folder).env("PATH", path).env("ROOT", root());
        command.env("XDG_RUNTIME_DIR", &run).env("BELLOWS_RUNTIME_DIR", run.join("bellows"));
        command.env("BELLOWS_STATE_DIR", self.sandbox.path("state"));
        command.env("LC_ALL", "C.UTF-8").env("NO_COLOR", "1").env_remove("RUST_BACKTRACE").env_remove("COMMAND");
        command.stdin(Stdio::null());
        command
    }

    /// Runs a line to its end. Returns its output.
    fn run(&self, place: &str, line: &str, codes: &[i32]) -> String {
        let output = output(&mut self.bash(line)).unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        check(place, line, output.status, codes, &said);
        said.into_owned()
    }

    /// Starts a command, with lines before it, and waits until a condition holds, which may read `$LOG`.
    fn start(&mut self, place: &str, command: &str, before: &str, condition: &str) {
        self.logs += 1;
        let log = self.sandbox.path(&format!("{}.log", self.logs));
        let file = File::create(&log).unwrap();
        let mut bash = self.bash(&format!("{before}{command}"));
        bash.stdout(file.try_clone().unwrap()).stderr(file).process_group(0);
        let child = bash.spawn().unwrap();
        let mut service = Service { place: place.to_owned(), command: command.to_owned(), child, log };
        let mut condition = self.bash(condition);
        condition.env("LOG", &service.log).stdout(Stdio::null()).stderr(Stdio::null());
        let (mut has_ended, deadline) = (None, Instant::now() + PATIENCE);
        while !condition.status().unwrap().success() && has_ended.is_none() {
            assert!(
                Instant::now() < deadline,
                "{place}: `{command}` is not at work within {PATIENCE:?}:\n{}",
                service.said()
            );
            thread::sleep(Duration::from_millis(10));
            has_ended = service.child.try_wait().unwrap();
        }
        if let Some(status) = has_ended {
            panic!("{place}: `{command}` ended with {status} instead of going on:\n{}", service.said());
        }
        self.services.push(service);
    }

    /// Ends all services of which this is true, the last one first.
    fn end_services(&mut self, is_to_end: impl Fn(&Service) -> bool) {
        for number in (0..self.services.len()).rev() {
            if is_to_end(&self.services[number]) {
                self.services.remove(number).end();
            }
        }
    }

    /// Runs one command of the page.
    fn step(&mut self, place: &str, command: &str, special: &Special) {
        if let Some((name, file)) = special.network {
            self.start(place, &format!("bellows run {file} --name {name}"), "", RUNS);
        }
        let line = |command: &str| format!("{}{command}", special.before);
        match special.how {
            How::Ends(code) => drop(self.run(place, &line(command), &[code])),
            How::Says(text) => {
                let said = self.run(place, &line(command), &[0]);
                assert!(said.contains(text), "{place}: `{command}` does not say `{text}`:\n{said}");
            }
            // Code 3 says that a figure is undecided.
            How::Benchmark => drop(self.run(place, &line(&shortened(command)), &[0, 3])),
            How::With(more) | How::WithRelease(more) => {
                drop(self.run(place, &line(&format!("{command} {more}")), &[0]));
            }
            How::Serves(condition) => {
                let file = network_file(command);
                self.end_services(|service| file.is_some() && network_file(&service.command) == file);
                self.start(place, command, special.before, condition);
            }
            How::InGuest | How::InContainer { .. } | How::Elsewhere { .. } => {}
        }
        if let Some((name, file)) = special.network {
            self.end_services(|service| service.command == format!("bellows run {file} --name {name}"));
        }
        if !special.after.is_empty() {
            self.run(place, special.after, &[0]);
        }
    }

    /// Ends what still runs.
    fn end(mut self) {
        self.end_services(|_| true);
    }
}

/// The command line of a benchmark with few processes, rounds and packets: the same words, with other values where it has
/// these options, and with further options where it has not. It is for the words of the page, and not for its figures.
fn shortened(command: &str) -> String {
    let words: Vec<&str> = command.split(' ').collect();
    let options: &[(&str, &str)] = match words[1..] {
        // A busy machine seems to have no third-level cache at times.
        ["appbench", ..] if words.contains(&"--resident") => {
            &[("--processes", "1"), ("--packets", "20000"), ("--resident", "l1,dram")]
        }
        ["appbench", ..] => &[("--processes", "1"), ("--packets", "20000")],
        ["bench", "apps", ..] => {
            &[("--processes", "1"), ("--packets", "2000"), ("--resident", "l1,dram"), ("--case", "tee")]
        }
        ["bench", "engine", ..] => &[("--processes", "1"), ("--rounds", "2"), ("--pairs", "1")],
        ["bench", "history", ..] => &[
            ("--processes", "1"),
            ("--rounds", "2"),
            ("--tees", "2"),
            ("--idle-seconds", "0.01"),
            ("--schedule", "flat"),
        ],
        ["bench", "scrape", ..] => &[("--processes", "1"), ("--seconds", "1"), ("--period", "100ms")],
        _ => panic!("`{command}` is no benchmark that can be shortened"),
    };
    let mut short = words.clone();
    for (option, value) in options {
        match words.iter().position(|word| word == option) {
            Some(at) => short[at + 1] = value,
            None => short.extend([option, value]),
        }
    }
    short.join(" ")
}

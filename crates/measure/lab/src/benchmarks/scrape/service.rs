//! A network and its metrics, as two commands serve them, and their client.
//!
//! Both commands end with the process that has started them, whatever ends that: the kernel kills them. It does not if
//! their program has capabilities from its file; so the network also ends by itself, and the server alone is idle.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bellows_observe::{Observer, RuntimeDir};
use bellows_sys::cpu;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};

use super::ScrapeTask;
use crate::workers::{fail, this_program};

/// How long a command may take to start.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait before looking again whether a command has started.
const PAUSE: Duration = Duration::from_millis(10);

/// How long an answer may take.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// The network's name.
const NAME: &str = "scraped";

/// A command to become.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Launch {
    /// The process that asks for it.
    parent: u32,
    /// The processors that it may use.
    processors: Vec<usize>,
    /// Its arguments.
    words: Vec<String>,
}

impl Launch {
    /// Becomes the command, which ends with its parent.
    pub(super) fn run(&self) -> ! {
        let Launch { parent, processors, words } = self;
        set_parent_process_death_signal(Some(Signal::KILL)).unwrap_or_else(|error| fail(&error));
        if getppid() != Pid::from_raw(parent.cast_signed()) {
            fail(&"the measuring process has ended");
        }
        cpu::allow(processors).unwrap_or_else(|error| fail(&error));
        let program = this_program().unwrap_or_else(|error| fail(&error));
        let error = Command::new(&program).args(words).exec();
        fail(&format!("cannot start {}: {error}", program.display()))
    }
}

/// A command that runs until this value is dropped.
struct Service {
    child: Child,
    log: PathBuf,
}

impl Service {
    /// Starts a command with the words of a worker, which then becomes it.
    fn start(worker: &[String], processors: &[usize], words: &[&str], log: PathBuf) -> Service {
        let launch = Launch {
            parent: std::process::id(),
            processors: processors.to_vec(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
        };
        let failed = |error: std::io::Error| -> ! { fail(&format!("cannot start `bellows {}`: {error}", words[0])) };
        let file = File::create(&log).unwrap_or_else(|error| failed(error));
        let program = this_program().unwrap_or_else(|error| fail(&error));
        let mut command = Command::new(program);
        command.args(worker).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(file);
        let mut child = command.spawn().unwrap_or_else(|error| failed(error));
        // If it has ended already, the log says why.
        if let (Some(mut stdin), Ok(task)) = (child.stdin.take(), serde_json::to_string(&ScrapeTask::Launch(launch))) {
            let _ = writeln!(stdin, "{task}");
        }
        Service { child, log }
    }

    /// Waits until it has started: until `found` finds what shows this. The log is passed to it.
    fn await_start<T>(&mut self, mut found: impl FnMut(&str) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            let has_ended = !matches!(self.child.try_wait(), Ok(None));
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            match found(&log) {
                Some(found) if !has_ended => return found,
                _ if has_ended || Instant::now() > end => {
                    let what = if has_ended { "has ended" } else { "has not started" };
                    fail(&format!("a command to measure {what}: {}", log.trim()));
                }
                _ => std::thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A running network, and the server of its metrics.
pub(super) struct Scraped {
    /// The network's counters, mapped read-only.
    pub(super) observer: Observer,
    /// The server's address.
    address: String,
    network: Service,
    server: Service,
}

impl Scraped {
    /// Starts a network whose engine has a processor, and its server on another one.
    ///
    /// `worker` makes this program a worker of this benchmark. The folder holds the network's file and the logs. The
    /// network ends by itself after the longest time that it is needed.
    pub(super) fn start(
        worker: &[String],
        folder: &Path,
        network: &str,
        [engine, other]: [usize; 2],
        most: Duration,
    ) -> Scraped {
        let file = folder.join("network.toml");
        fs::write(&file, network).unwrap_or_else(|error| fail(&format!("cannot write {}: {error}", file.display())));
        let (file, cpu) = (file.display().to_string(), engine.to_string());
        let most = format!("{}s", most.as_secs());
        let words = ["run", &file, "--name", NAME, "--cpu", &cpu, "--duration", &most];
        // The threads beside the engine's may run on either processor, as they may in production.
        let mut network = Service::start(worker, &[other, engine], &words, folder.join("run.log"));
        let observer = network.await_start(|_| {
            let runtime_dir = RuntimeDir::called(NAME).into_iter().find(|runtime_dir| !runtime_dir.is_foreign())?;
            let observer = Observer::open(runtime_dir).ok()?;
            (observer.link_packets(0) > 0).then_some(observer)
        });
        let words = ["metrics", "--listen", "127.0.0.1:0"];
        let mut server = Service::start(worker, &[other], &words, folder.join("metrics.log"));
        let address = server.await_start(|log| {
            let (_, rest) = log.split_once("http://")?;
            Some(rest.split_once('/')?.0.to_owned())
        });
        Scraped { observer, address, network, server }
    }

    /// Scrapes once. Returns the answer's body.
    ///
    /// # Errors
    /// Why there is no such answer.
    pub(super) fn scrape(&self) -> Result<Vec<u8>, String> {
        let answer = get(&self.address).map_err(|error| format!("cannot scrape {}: {error}", self.address))?;
        let (head, body) = split(&answer).ok_or("a scrape has no whole answer")?;
        let status = head.split(|byte| *byte == b' ').nth(1);
        match status {
            Some(b"200") => Ok(body.to_vec()),
            _ => Err(format!("a scrape was answered by {}", String::from_utf8_lossy(head))),
        }
    }

    /// Checks that both commands still run.
    pub(super) fn check(&mut self) -> Result<(), String> {
        for service in [&mut self.network, &mut self.server] {
            if !matches!(service.child.try_wait(), Ok(None)) {
                let log = fs::read_to_string(&service.log).unwrap_or_default();
                return Err(format!("a command to measure has ended: {}", log.trim()));
            }
        }
        Ok(())
    }
}

/// The answer of the server, from a new connection as of a client that comes now and then.
fn get(address: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_TIME))?;
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nAccept: application/openmetrics-text;\
         version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n\r\n"
    );
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

/// The head and the body of an answer.
fn split(answer: &[u8]) -> Option<(&[u8], &[u8])> {
    const END: &[u8] = b"\r\n\r\n";
    let at = answer.windows(END.len()).position(|window| window == END)?;
    Some((&answer[..at], &answer[at + END.len()..]))
}

/// The number of apps whose packets a scrape has.
pub(super) fn apps_in(scrape: &[u8]) -> usize {
    let lines = scrape.split(|byte| *byte == b'\n');
    lines.filter(|line| line.starts_with(b"bellows_app_in_packets_total{")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_a_head_and_a_body() {
        let (head, body) = split(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\none\r\n\r\ntwo").unwrap();
        assert_eq!((head, body), (&b"HTTP/1.1 200 OK\r\nA: b"[..], &b"one\r\n\r\ntwo"[..]));
        assert_eq!(split(b"HTTP/1.1 200 OK\r\n"), None);
    }

    #[test]
    fn the_apps_of_a_scrape_are_counted() {
        let scrape = b"# TYPE bellows_app_in_packets counter\nbellows_app_in_packets_total{app=\"a\"} 1\n\
            bellows_app_in_packets_total{app=\"b\"} 2\nbellows_app_in_bytes_total{app=\"a\"} 3\n# EOF\n";
        assert_eq!(apps_in(scrape), 2);
    }
}

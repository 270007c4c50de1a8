//! A server, and programs that use it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use bellows_campaign::{Row, read_rows};
use bellows_testkit::programs::{find_program, has_program};
use bellows_testkit::scratch::TempDir;
use bellows_testkit::{eventually, scratch};
use rustix::process::{Pid, Signal, kill_process};

/// A process that does not outlive its test.
pub struct Process(pub Child);

impl Process {
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    pub fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits until it ends by itself.
    pub fn wait(&mut self) -> bool {
        eventually("the end of a program", || !self.is_alive());
        self.0.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server with files of its own.
pub struct NatsServer {
    process: Process,
    port: u16,
    config: String,
    pub folder: TempDir,
}

impl NatsServer {
    /// A server with JetStream. Nothing, and the test is skipped, if it is not installed.
    pub fn new(test: &str) -> Option<NatsServer> {
        NatsServer::with(test, |folder| format!("jetstream {{ store_dir: '{}' }}", folder.join("js").display()))
    }

    /// A server with a part of its configuration.
    pub fn with(test: &str, config: impl FnOnce(&Path) -> String) -> Option<NatsServer> {
        if !has_program(test, "nats-server") {
            return None;
        }
        let folder = scratch();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!("listen: '127.0.0.1:{port}'\n{}\n", config(folder.path()));
        let process = start(folder.path(), &config, port);
        Some(NatsServer { process, port, config, folder })
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The answer to a request, in the protocol of NATS.
    pub fn ask(&self, subject: &str, body: &str) -> String {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let inbox = "_INBOX.test";
        write!(
            connection,
            "CONNECT {{\"verbose\":false}}\r\nSUB {inbox} 1\r\nPUB {subject} {inbox} {}\r\n{body}\r\n",
            body.len()
        )
        .unwrap();
        let mut lines = BufReader::new(connection).lines().map(|line| line.unwrap());
        lines.find(|line| line.starts_with("MSG ")).unwrap();
        lines.next().unwrap()
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, with the same files.
    pub fn restart(&mut self) {
        self.process = start(self.folder.path(), &self.config, self.port);
    }
}

fn start(folder: &Path, config: &str, port: u16) -> Process {
    let file = folder.join("server.conf");
    fs::write(&file, config).unwrap();
    let log = fs::File::options().create(true).append(true).open(folder.join("server.log")).unwrap();
    let mut command = Command::new(find_program("nats-server").unwrap());
    command.arg("-c").arg(file).stdout(Stdio::null()).stderr(log);
    let mut process = Process(command.spawn().unwrap());
    eventually("the server listens", || {
        assert!(process.is_alive(), "{}", fs::read_to_string(folder.join("server.log")).unwrap());
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    process
}

/// The example program, which is built with the tests.
pub fn program(arguments: &[&str]) -> Command {
    let tests = std::env::current_exe().unwrap();
    let program: PathBuf = tests.parent().unwrap().parent().unwrap().join("examples/queue");
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// A campaign at a server: its file, and where its results go.
pub struct Trial {
    pub file: PathBuf,
    pub results: PathBuf,
    pub url: String,
    pub name: String,
    folder: TempDir,
}

impl Trial {
    /// A campaign of three runs a block, whose command is a line of shell.
    pub fn new(server: &NatsServer, name: &str, repeats: u32, shell: &str) -> Trial {
        let folder = scratch();
        let text = format!(
            "name = '{name}'\nrepeats = {repeats}\ncommand = {{ shell = '''{shell}''' }}\n\
             [factors]\nn = [1, 2, 3]\n[score]\npattern = 'score=(?<x>\\d+)'\nunit = '1'\n"
        );
        let file = scratch::write(&folder, "file.toml", text);
        let results = folder.path().join("results");
        Trial { file, results, url: server.url(), name: name.to_owned(), folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start(&self, what: &str, words: &[&str], options: &[&str]) -> Process {
        self.start_in(what, words, options, &[])
    }

    fn start_in(&self, what: &str, words: &[&str], options: &[&str], environment: &[(&str, &str)]) -> Process {
        let log = fs::File::options().create(true).append(true).open(self.path(what)).unwrap();
        let mut command = program(words);
        command.arg(&self.url).args(options).envs(environment.iter().copied());
        Process(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
    }

    /// A coordinator, whose leases last a second.
    pub fn coordinator(&self, options: &[&str]) -> Process {
        let words = ["run", self.file.to_str().unwrap(), self.results.to_str().unwrap(), "--lease", "1000"];
        self.start("coordinator.log", &words, options)
    }

    pub fn worker(&self, options: &[&str]) -> Process {
        self.worker_in(options, &[])
    }

    /// A worker with environment variables of its own.
    pub fn worker_in(&self, options: &[&str], environment: &[(&str, &str)]) -> Process {
        self.start_in("worker.log", &["worker", self.file.to_str().unwrap()], options, environment)
    }

    /// A worker that is started as soon as there is a queue.
    pub fn worker_later(&self) -> Process {
        eventually("there is a queue", || self.status().is_some());
        self.worker(&[])
    }

    /// What the programs have printed.
    pub fn logs(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.path(name)).unwrap_or_default();
        format!("coordinator:\n{}\nworkers:\n{}", read("coordinator.log"), read("worker.log"))
    }

    pub fn status(&self) -> Option<serde_json::Value> {
        let output = self.run(&["status", &self.name]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    pub fn run(&self, words: &[&str]) -> Output {
        program(words).arg(&self.url).output().unwrap()
    }

    pub fn rows(&self) -> Vec<Row> {
        read_rows(&self.results).unwrap_or_default()
    }

    /// Checks that each run is recorded once, and each block was made by one worker: the command's score is the number
    /// of its worker's process.
    pub fn check(&self, repeats: u32) {
        let rows = self.rows();
        let journal = fs::read_to_string(self.results.join("results.jsonl")).unwrap();
        let mut runs: Vec<(u32, u32)> = rows.iter().map(|row| (row.run.block, row.run.combination)).collect();
        runs.sort_unstable();
        let all: Vec<(u32, u32)> =
            (1..=repeats).flat_map(|block| (1..=3).map(move |combination| (block, combination))).collect();
        assert_eq!(runs, all, "{}", self.logs());
        assert_eq!(journal.lines().count(), all.len(), "each run is in one line");
        for block in 1..=repeats {
            let of_block = rows.iter().filter(|row| row.run.block == block);
            let mut workers: Vec<String> = of_block.map(|row| format!("{:?}", row.scores[0].value.unwrap())).collect();
            workers.dedup();
            assert_eq!(workers.len(), 1, "block {block} was made by one worker: {workers:?}\n{}", self.logs());
        }
    }
}

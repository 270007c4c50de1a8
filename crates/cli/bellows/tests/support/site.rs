//! A `bellows web` in the background, and requests to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use bellows::json_reference::Found;
use bellows_testkit::wait::Watchdog;
use serde_json::Value;

use crate::support::{Sandbox, Signal, json_reference, signal};

/// A server. It ends when it is dropped.
pub struct Site {
    child: Child,
    /// The process of the server itself.
    pid: u32,
    _watchdog: Watchdog,
    /// The address as it was printed.
    pub url: String,
    /// `127.0.0.1:PORT`.
    pub host: String,
    token: String,
}

/// An answer of the server.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{} {}", self.head, self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {}", self.text()))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(": "));
        fields.filter(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }
}

impl Site {
    /// Starts the server with these arguments, on a port that the kernel chooses.
    pub fn start(sandbox: &Sandbox, words: &[&str]) -> Site {
        Site::of(sandbox.command(&[&["web", "--listen", "127.0.0.1:0"], words].concat()), false)
    }

    /// Starts a server by its command, perhaps one that runs under strace.
    pub fn of(mut command: Command, is_traced: bool) -> Site {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::new(&child);
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        let (host, token) = url.strip_prefix("http://").unwrap().split_once("/").unwrap();
        let token = token.strip_prefix("#token=").unwrap_or_default().to_owned();
        let mut pid = child.id();
        if is_traced {
            let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
            pid = children.split_whitespace().next().unwrap().parse().unwrap();
        }
        Site { child, pid, _watchdog: watchdog, host: host.to_owned(), token, url }
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends a request with these header lines, in place of the usual ones, and reads the answer.
    pub fn send(&self, method: &str, path: &str, head: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        let head =
            format!("{method} {path} HTTP/1.1\r\n{head}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        // The server may refuse a request before it has read all of it, and then resets the connection.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let split = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
        let head = String::from_utf8_lossy(&answer[..split]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let answer = Answer { status, head, body: answer[split + 4..].to_vec() };
        if answer.header("content-type") == Some("application/json") {
            json_reference::compare_answer(&format!("{method} {path}"), status, &answer.body, &mut Found::new());
        }
        answer
    }

    fn head(&self) -> String {
        let token =
            if self.token.is_empty() { String::new() } else { format!("Authorization: Bearer {}\r\n", self.token) };
        format!("Host: {}\r\n{token}", self.host)
    }

    /// Asks for a path with its query.
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &self.head(), b"")
    }

    /// Asks for an action, and returns the connection without waiting for the answer.
    pub fn ask(&self, path: &str, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        let (head, body) = (self.head(), body.to_string());
        let length = body.len();
        write!(stream, "POST {path} HTTP/1.1\r\n{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        stream
    }

    /// Asks for an action.
    pub fn post(&self, path: &str, body: &Value) -> Answer {
        let head = self.head() + "Content-Type: application/json\r\n";
        self.send("POST", path, &head, body.to_string().as_bytes())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        match self.pid == self.child.id() {
            true => signal(&self.child, Signal::TERM),
            false => drop(Command::new("kill").args(["-TERM", &self.pid.to_string()]).status()),
        }
        let _ = self.child.wait();
    }
}

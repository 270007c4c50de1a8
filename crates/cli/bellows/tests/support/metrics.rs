//! A server of metrics, and a client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use bellows::json_reference::Found;
use bellows_testkit::wait::Watchdog;
use serde_json::Value;

use crate::support::{Sandbox, Signal, json_reference, signal};

/// `bellows metrics --listen` on a free port.
pub struct Server {
    child: Child,
    _watchdog: Watchdog,
    pub place: String,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Server {
    pub fn start(sandbox: &Sandbox, words: &[&str]) -> Server {
        let words = [&["metrics", "--listen", "127.0.0.1:0"], words].concat();
        let mut child = sandbox.command(&words).stderr(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::new(&child);
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let place = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let place = place.unwrap_or_else(|| panic!("no address in {line}")).to_owned();
        Server { child, _watchdog: watchdog, place }
    }

    pub fn get(&self, path: &str, fields: &str) -> Answer {
        let answer = get(&self.place, path, fields);
        if answer.head.lines().any(|line| line == "content-type: application/json") {
            json_reference::compare_answer(
                &format!("GET {path}"),
                answer.status,
                answer.body.as_bytes(),
                &mut Found::new(),
            );
        }
        answer
    }

    /// Ends it by a signal, and returns its exit code.
    pub fn end(mut self) -> Option<i32> {
        signal(&self.child, Signal::TERM);
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The answer of a server to `GET`.
pub fn get(place: &str, path: &str, fields: &str) -> Answer {
    let mut stream = TcpStream::connect(place).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n{fields}\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_ascii_lowercase(), body: dechunked(head, body) }
}

/// A body without the frames of its transfer.
fn dechunked(head: &str, body: &str) -> String {
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut whole, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
        if size == 0 {
            break;
        }
    }
    whole
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:#?}"))
    }
}

//! What another user may start instead of a network: a process with a folder and a control socket, which keeps what it
//! is sent, and answers with the worst.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;

use bellows_engine::listing::{AppCode, CodeLine, ListedCall, Listing};
use bellows_testkit::{eventually, programs};
use serde_json::{Value, json};

use crate::discovery::{Machine, user};

/// A text that does harm wherever it is believed. `CANARY` is a file that nobody makes unless a shell reads it.
pub const HOSTILE: &str = "x\u{1b}]0;t\u{7}\u{9b}2J\u{202e}\u{200b}\u{3164}\r\n\t$(touch${IFS}canary)`touch canary`;\
                           touch canary;'\"<script>alert(1)</script>\u{e0041}{\n";

/// The variable with the folder of the impostor.
const FOLDER: &str = "BELLOWS_TEST_IMPOSTOR";

/// The file with all that it was sent.
const RECEIVED: &str = "received";

/// A running impostor, killed when dropped.
pub struct Impostor {
    child: Child,
    received: PathBuf,
}

impl Impostor {
    /// Starts it as a user, under the name of a network.
    pub fn start(machine: &Machine, number: u32, name: &str) -> Impostor {
        let program = machine.sandbox.path("test");
        if !program.exists() {
            programs::install(std::env::current_exe().unwrap(), &program);
        }
        let folder = format!("/dev/shm/bellows-{number}/{name}");
        let mut command = machine.command(&user(number));
        command.arg(program).args(["--exact", "discovery::impostor::the_impostor", "--nocapture"]).env(FOLDER, &folder);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let received = machine.path(&folder).join(RECEIVED);
        eventually("the impostor", || received.exists());
        Impostor { child, received }
    }

    /// What it was sent so far.
    pub fn received(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.received).unwrap()).into_owned()
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test, but the impostor's process if the variable is set.
#[test]
fn the_impostor() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let folder = Path::new(&folder);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).unwrap();
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let start = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    fs::write(folder.join("identity"), format!("{} {start}\n", std::process::id())).unwrap();
    let listener = UnixListener::bind(folder.join("control")).unwrap();
    let received = folder.join(RECEIVED);
    fs::write(&received, "").unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, received) = (stream.unwrap(), received.clone());
            thread::spawn(move || answer(stream, &received));
        }
    });
    // Until the test ends.
    let _ = std::io::stdin().read(&mut [0]);
}

fn answer(mut stream: UnixStream, received: &Path) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut line = String::new();
        let length = reader.read_line(&mut line).unwrap_or(0);
        let mut log = fs::OpenOptions::new().append(true).open(received).unwrap();
        log.write_all(line.as_bytes()).unwrap();
        if length == 0 {
            return;
        }
        let request: Value = serde_json::from_str(&line).unwrap_or_default();
        let (reply, stream_after) = reply(&request);
        let mut bytes = serde_json::to_vec(&reply).unwrap();
        bytes.push(b'\n');
        bytes.extend(stream_after);
        if stream.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// The worst reply of the right form, and what follows it.
fn reply(request: &Value) -> (Value, Vec<u8>) {
    let lines = |lines: &[Value]| lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
    let of_hostile = json!({ HOSTILE: HOSTILE, "list": [HOSTILE, { HOSTILE: [HOSTILE] }] });
    match request["command"].as_str().unwrap_or_default() {
        "apps" => {
            let direction = json!({ "spi": 1, "algorithm": HOSTILE, "hard": {}, "sequence": 1 });
            let pairs = [json!({ "pair": "pair", "mode": HOSTILE, "local": HOSTILE, "remote": HOSTILE,
                "inbound": direction, "outbound": direction })];
            let app = |name: &str, kind: &str| {
                let mut status = of_hostile.clone();
                status["pairs"] = json!(pairs);
                status["device"] = json!("virtio-net");
                json!({ "app": name, "kind": kind, "status": status })
            };
            let apps = [app("source", HOSTILE), app("esp", "esp"), app("bridge", "bridge")];
            let objects = [json!({ "object": "vrf", "kind": "vrf", "status": of_hostile })];
            (json!({ "reply": "apps", "apps": apps, "objects": objects }), Vec::new())
        }
        "breath" => {
            let text = HOSTILE.to_owned();
            let call = ListedCall {
                entry: text.clone(),
                app: text.clone(),
                function: text.clone(),
                tests: vec![text.clone()],
            };
            let code =
                CodeLine { address: u64::MAX, bytes: text.clone(), text: text.clone(), label: Some(text.clone()) };
            let listing = Listing {
                worker: text.clone(),
                schedule: text.clone(),
                fallback_reason: Some(text.clone()),
                calls: vec![call],
                code: vec![code.clone()],
                app_code: vec![AppCode { app: text, code: vec![code] }],
                ..Listing::default()
            };
            let mut reply = json!(listing);
            reply["reply"] = json!("breath");
            (reply, Vec::new())
        }
        "trace" => {
            let hop = |what: Value| {
                let mut hop = json!({ "event": "hop", "packet": 1, "at_ns": u64::MAX, "app": HOSTILE, "to": HOSTILE });
                hop.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
                hop
            };
            let ends = [json!({ "event": HOSTILE }), json!({ HOSTILE: HOSTILE })];
            let hops = ["sent", "dropped", "ended"].map(|kind| {
                hop(json!({ "what": kind, "port": HOSTILE, "reason": HOSTILE, "bytes": [27, 91, 50, 74], "length": 4,
                    "tag": 1, "link_type": 1 }))
            });
            (json!({ "reply": "tracing" }), lines(&[&hops[..], &ends].concat()))
        }
        "tap" => {
            // A packet of Ethernet with the text as its payload, and what is no frame.
            let mut frames = vec![1];
            frames.extend(u64::MAX.to_le_bytes());
            frames.extend(60u32.to_le_bytes());
            frames.extend(1u32.to_le_bytes());
            frames.extend((HOSTILE.len() as u32).to_le_bytes());
            frames.extend(HOSTILE.as_bytes());
            frames.extend([9, 27, 255]);
            (json!({ "reply": "tapping" }), frames)
        }
        "look-ahead" => {
            let result = json!({ "app": HOSTILE, "calls": [1, 1], "packets_per_call": 1.0, "clocks": 1.0, "fetch": 1.0,
                "clocks_after": 1.0, "saved": 0.5 });
            (json!({ "reply": "trying" }), lines(&[json!({ "event": "end", "why": "time", "results": [result] })]))
        }
        "object" => {
            let name = request["name"].as_str().unwrap_or("vrf");
            let route = json!({ "prefix": HOSTILE, "text": HOSTILE, "protocol": HOSTILE, "origin": HOSTILE });
            let one = json!({ "address": HOSTILE, "mac": HOSTILE, "interface": HOSTILE, "state": HOSTILE, "port": HOSTILE,
                "vlan": 1, "protocol": HOSTILE });
            let mut answer = of_hostile;
            answer["routes"] = json!([route, HOSTILE]);
            answer["neighbours"] = json!([one]);
            answer["addresses"] = json!([one]);
            answer["route"] = route;
            (json!({ "reply": "answer", "name": name, "answer": answer }), Vec::new())
        }
        "status" => (json!({ "reply": HOSTILE }), Vec::new()),
        _ => (json!({ "reply": "refused", "mistake": true, "message": HOSTILE }), Vec::new()),
    }
}

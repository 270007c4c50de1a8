//! The log in the journal of systemd, which is a socket here: below another `/run`, in a namespace of mounts.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use bellows_testkit::programs::has_program;
use bellows_testkit::skip;
use rustix::fs::fstat;

use crate::support::Sandbox;

/// A run of 10 packets.
const NETWORK: &str = r#"
links = ["source.output -> end.input"]
[apps.source]
app = "source"
size = 60
count = 10
[apps.end]
app = "sink"
"#;

/// The fields of a record.
type Record = BTreeMap<String, String>;

/// Reads a record by the definition of the protocol.
fn parse(mut bytes: &[u8]) -> Record {
    let mut record = Record::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|&byte| byte == b'\n').unwrap();
        let line = std::str::from_utf8(&bytes[..end]).unwrap();
        bytes = &bytes[end + 1..];
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => {
                let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
                let value = std::str::from_utf8(&bytes[8..8 + length]).unwrap().to_owned();
                assert_eq!(bytes[8 + length], b'\n');
                bytes = &bytes[9 + length..];
                (line.to_owned(), value)
            }
        };
        assert!(name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'), "{name}");
        assert_eq!(record.insert(name, value), None);
    }
    record
}

/// Runs the command with a stream to the journal as its standard error. The folder `journal` has the journal's socket.
/// Returns what came to the stream; `None` if there can be no namespace of mounts.
fn run(sandbox: &Sandbox, words: &[&str]) -> Option<String> {
    const SCRIPT: &str = "mount -t tmpfs none /run && mkdir -p /run/systemd/journal && \
                          mount --bind \"$JOURNAL\" /run/systemd/journal || exit 77; exec \"$0\" \"$@\"";
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let stream = fstat(&theirs).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT, env!("CARGO_BIN_EXE_bellows")])
        .args(words)
        .env("BELLOWS_RUNTIME_DIR", sandbox.path("runtime"))
        .env("BELLOWS_STATE_DIR", sandbox.path("state"))
        .env("JOURNAL", sandbox.path("journal"))
        .env("JOURNAL_STREAM", format!("{}:{}", stream.st_dev, stream.st_ino))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(OwnedFd::from(theirs));
    let mut child = command.spawn().unwrap();
    // It has the other end of the stream.
    drop(command);
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    let code = child.wait().unwrap().code();
    (code != Some(77) && !text.starts_with("unshare:")).then_some(text)
}

#[test]
fn records_of_the_journal_have_priorities_and_fields_and_no_times() {
    let test = "records_of_the_journal_have_priorities_and_fields_and_no_times";
    if !has_program(test, "unshare") {
        return;
    }
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("journal")).unwrap();
    let journal = UnixDatagram::bind(sandbox.path("journal/socket")).unwrap();
    journal.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let network = sandbox.write("network.toml", NETWORK);
    let Some(text) = run(&sandbox, &["run", &network, "--name", "edge"]) else {
        return skip(test, "no namespace of mounts for a user");
    };
    assert_eq!(text, "", "nothing goes to the stream, where it would have a record of its own");
    journal.set_nonblocking(true).unwrap();
    let mut records = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while let Ok(length) = journal.recv(&mut buffer) {
        records.push(parse(&buffer[..length]));
    }
    let named = |name: &str| {
        let mut named = records.iter().filter(|record| record.get("BELLOWS_EVENT").is_some_and(|found| found == name));
        let found = named.next().unwrap_or_else(|| panic!("no {name} in {records:#?}"));
        assert!(named.next().is_none(), "{name} twice in {records:#?}");
        found
    };
    let started = named("started");
    assert_eq!((started["PRIORITY"].as_str(), started["BELLOWS_NETWORK"].as_str()), ("6", "edge"), "{started:#?}");
    assert_eq!((started["BELLOWS_SOURCE"].as_str(), started["SYSLOG_IDENTIFIER"].as_str()), (&*network, "bellows"));
    assert!(started["MESSAGE"].starts_with("running `"), "no time, no level: {started:#?}");
    assert_eq!(named("stopped")["BELLOWS_END"], "done");

    // What is wrong with a command is an error.
    let missing = sandbox.path("missing.toml").display().to_string();
    run(&sandbox, &["run", &missing]).unwrap();
    let length = journal.recv(&mut buffer).unwrap();
    let record = parse(&buffer[..length]);
    assert_eq!(record["PRIORITY"], "3", "{record:#?}");
    assert!(record["MESSAGE"].contains("missing.toml") && !record["MESSAGE"].starts_with("error: "), "{record:#?}");

    // Without its socket, lines have their priority in front.
    drop(journal);
    fs::remove_file(sandbox.path("journal/socket")).unwrap();
    let text = run(&sandbox, &["run", &network]).unwrap();
    assert!(text.lines().any(|line| line.starts_with("<6>running `")), "{text}");
    assert!(text.lines().all(|line| line.starts_with('<')), "{text}");

    // Those who ask for JSON get it.
    let text = run(&sandbox, &["run", &network, "--log-format", "json"]).unwrap();
    assert!(text.starts_with("{\"timestamp\":"), "{text}");
}

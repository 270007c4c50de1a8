//! A race that a race detector must find, and orders that it must accept: `cargo xtask test --races` runs this under
//! ThreadSanitizer.

use std::cell::UnsafeCell;
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::thread;

use bellows_ring::mailbox::Mailbox;
use bellows_ring::stack::{Links, Stack};
use bellows_ring::{Bell, ring};
use bellows_testkit::skips::skip_here;

/// Set in the process that races, to what it does.
const WAY: &str = "BELLOWS_RACE";

/// What passes the number of the contents that are ready to the other thread.
const WAYS: [&str; 4] = ["ring", "stack", "mailbox", "nothing in time"];

/// The exit code of a process in which ThreadSanitizer has found a race.
const FOUND: i32 = 66;

/// Contents with a plain number, which one thread writes and another one reads.
#[derive(Default)]
struct Contents {
    link: AtomicU64,
    number: UnsafeCell<u64>,
}

// SAFETY: a test for a race detector. The threads access it one after the other, or else it must find them.
unsafe impl Sync for Contents {}

impl Links for Contents {
    fn link(&self, _: u64) -> &AtomicU64 {
        &self.link
    }
}

impl Contents {
    fn write(&self) {
        // SAFETY: see above.
        unsafe { *self.number.get() += 1 };
    }

    fn read(&self) -> u64 {
        // SAFETY: see above.
        unsafe { *self.number.get() }
    }
}

struct Silent;

impl Bell for Silent {
    fn ring(&self) {}
}

/// Two threads, of which the second reads what the first has written, when it has come.
fn race(way: &str) {
    let contents = Contents::default();
    let (stack, mailbox): (Stack, Mailbox) = (Stack::new(), Mailbox::new());
    let (mut sender, mut receiver) = ring::<u64, _>(2, [Silent, Silent]);
    mailbox.ask();
    let sum = thread::scope(|scope| {
        scope.spawn(|| {
            if way != "nothing in time" {
                contents.write();
            }
            match way {
                "stack" => stack.push(1, &contents),
                "mailbox" => assert!(mailbox.fill(1)),
                _ => assert!(sender.send(|place| *place = 1).is_some()),
            }
            if way == "nothing in time" {
                contents.write();
            }
        });
        let reading = scope.spawn(|| {
            let mut has_come = || match way {
                "stack" => stack.pop(&contents).is_some(),
                "mailbox" => mailbox.recall().is_some(),
                _ => receiver.receive(|_| ()).is_some(),
            };
            while !has_come() {
                thread::yield_now();
            }
            contents.read()
        });
        reading.join().unwrap()
    });
    println!("{way}: {sum}");
}

#[test]
fn a_race_is_found_and_an_order_is_accepted() {
    if let Ok(way) = std::env::var(WAY) {
        return race(&way);
    }
    let Ok(options) = std::env::var("TSAN_OPTIONS") else {
        return skip_here("a_race_is_found_and_an_order_is_accepted", "not under ThreadSanitizer");
    };
    for way in WAYS {
        // Its report is none of those of the run.
        let options = format!("{options}:log_path=stderr:exitcode={FOUND}");
        let mut again = Command::new(std::env::current_exe().unwrap());
        let output = again.env(WAY, way).env("TSAN_OPTIONS", options).output().unwrap();
        let expected = if way == "nothing in time" { FOUND } else { 0 };
        let report = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{way}: {report}");
    }
}

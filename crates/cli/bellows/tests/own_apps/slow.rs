//! Slow breaths: counted, logged with the app, kept in the timeline.

use std::panic::{catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::{Running, Sandbox, Signal};
use bellows::Command;
use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, AppError, Io, Port, Ports};
use bellows_testkit::eventually;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Much longer than the limit of these networks, which is much longer than scheduling delays on a busy machine.
const LONG: Duration = Duration::from_millis(1_500);

/// The way in which a sloth spends its time.
#[derive(Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum How {
    /// It computes.
    Spin,
    /// It sleeps.
    Sleep,
    /// It computes in `start`.
    Start,
    /// It is never slow.
    Never,
}

/// Has the one key `how`.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    how: How,
}

/// Takes long once, for a packet after some others.
struct Sloth {
    how: How,
    packets: u64,
}

fn spin() {
    let start = Instant::now();
    while start.elapsed() < LONG {
        std::hint::spin_loop();
    }
}

impl App for Sloth {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const ENDS: bool = true;

    fn push(&mut self, io: &Io<Self>) {
        let before = self.packets;
        for packet in &mut io.input(0) {
            self.packets += 1;
            drop(packet);
        }
        if before < 10_000 && self.packets >= 10_000 {
            match self.how {
                How::Spin => spin(),
                How::Sleep => std::thread::sleep(LONG),
                How::Start | How::Never => {}
            }
        }
    }

    fn start(&mut self, _: Option<&mut Self>) -> Result<(), AppError> {
        if self.how == How::Start {
            spin();
        }
        Ok(())
    }
}

impl Configure for Sloth {
    const NAME: &'static str = "sloth";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<Sloth, SettingError> {
        Ok(Sloth { how: config.how, packets: 0 })
    }
}

/// Adds the apps to the command.
pub fn add(command: Command) -> Command {
    command.app::<Sloth>()
}

tests! { by undisturbed:
    a_slow_app_is_named_under_every_schedule,
    sleeping_and_computing_apps_are_distinguished,
    a_stopped_process_is_nobodys_fault,
    a_slow_start_in_a_reload_is_named,
    without_a_limit_nothing_is_slow,
}

/// Runs a test. If it fails while the machine itself stood still, which these tests measure, it is run again.
fn undisturbed(name: &str, test: fn()) {
    const ATTEMPTS: u32 = 5;
    const STILL: Duration = Duration::from_millis(200);
    for attempt in 1..=ATTEMPTS {
        let is_over = Arc::new(AtomicBool::new(false));
        let watching = {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || longest_pause(&is_over))
        };
        let result = catch_unwind(test);
        is_over.store(true, Relaxed);
        let longest = watching.join().unwrap();
        match result {
            Ok(()) => return,
            Err(_) if longest > STILL && attempt < ATTEMPTS => {
                println!("{name}: the machine stood still for {longest:?}, so it is run again");
            }
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// The time for which a thread that only wants to sleep did not run.
fn longest_pause(is_over: &AtomicBool) -> Duration {
    let mut longest = Duration::ZERO;
    while !is_over.load(Relaxed) {
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(5));
        longest = longest.max(start.elapsed());
    }
    longest
}

/// A network with a limit on breaths that a sloth exceeds.
fn network(how: &str, engine: &str) -> String {
    format!(
        r#"
links = ["source -> before", "before -> last"]
[engine]
breath_limit = "500ms"
{engine}
[apps.source]
app = "source"
size = 60
rate = "100kpps"
[apps.before]
app = "counter"
[apps.last]
app = "sloth"
how = "{how}"
"#
    )
}

/// The numbers of slow breaths and of standstills.
fn found(running: &Running<'_>) -> (u64, u64) {
    let engine = &running.counters()["engine"];
    (engine["slow_breaths"].as_u64().unwrap(), engine["standstills"].as_u64().unwrap())
}

fn packets(running: &Running<'_>) -> u64 {
    running.counters()["links"][0]["packets"].as_u64().unwrap()
}

/// The late breaths of the timeline.
fn late(sandbox: &Sandbox) -> Vec<Value> {
    let timeline = sandbox.bellows(&["timeline", "--json", "--all", "--last", "1h"]).success().json();
    timeline["events"].as_array().unwrap().iter().filter(|event| event["what"] == json!("late")).cloned().collect()
}

fn a_slow_app_is_named_under_every_schedule() {
    for schedule in ["native", "flat", "nested"] {
        let sandbox = Sandbox::own();
        let network = sandbox.write("slow.toml", &network("spin", &format!("schedule = \"{schedule}\"")));
        let start = Instant::now();
        let mut running = sandbox.start(&[&network]);
        running.wait_for_log("slow: a breath took ");
        running.wait_for_log("more than the 500 ms of `breath_limit`, in the app `last` (moving packets), of which ");
        let within = start.elapsed().as_millis() as u64;
        assert_eq!(found(&running), (1, 0), "{schedule}");
        let events = late(&sandbox);
        let [event] = &events[..] else { panic!("{schedule}: {events:#?}") };
        assert_eq!((&event["app"], &event["standstill"]), (&json!("last"), &json!(false)), "{event:#}");
        let millis = event["duration_ns"].as_u64().unwrap() / 1_000_000;
        assert!((1_400..within).contains(&millis), "{schedule}: {event:#}");
        let on_processor = event["on_processor_us"].as_u64().unwrap() / 1_000;
        assert!(on_processor <= millis && on_processor > 300, "{schedule}: {event:#}");
        for (words, wanted) in [
            // The recording forgets first.
            (&["timeline", "--last", "1h"][..], "s in `last`"),
            (&["timeline", "--last", "1h", "--all"], "of it on the processor"),
            (&["show"], "; 1 slow breath\n"),
            (&["top", "--once"], "; 1 slow breath\n"),
            (&["show", "counters"], "slow_breaths"),
        ] {
            let said = sandbox.bellows(words).success().stdout;
            assert!(said.contains(wanted), "{schedule}: {words:?}: {said}");
        }
        let top = sandbox.bellows(&["top", "--once", "--json"]).success().json();
        assert_eq!((&top["slow_breaths"], &top["standstills"]), (&json!(1), &json!(0)), "{top:#}");
        eventually("more packets", || packets(&running) > 200_000);
        sandbox.bellows(&["stop"]).success();
        let said = running.wait();
        assert!(said.stdout.contains(", 1 slow breath\n"), "{schedule}: {said:#?}");
    }
}

fn sleeping_and_computing_apps_are_distinguished() {
    let sandbox = Sandbox::own();
    let network = sandbox.write("slow.toml", &network("sleep", "busywait = true"));
    let mut running = sandbox.start(&[&network]);
    running.wait_for_log("in the app `last` (moving packets), of which ");
    let events = late(&sandbox);
    let on_processor = events[0]["on_processor_us"].as_u64().unwrap() / 1_000;
    assert!(on_processor < 700, "{events:#?}");
    assert_eq!(found(&running), (1, 0));
}

fn a_stopped_process_is_nobodys_fault() {
    for schedule in ["native", "nested"] {
        let sandbox = Sandbox::own();
        let keys = format!("busywait = true\nschedule = \"{schedule}\"");
        let network = sandbox.write("fine.toml", &network("never", &keys));
        let mut running = sandbox.start(&[&network]);
        for turn in 1..=2 {
            let sent = packets(&running);
            eventually("packets", || packets(&running) > sent + 10_000);
            running.signal(Signal::STOP);
            std::thread::sleep(LONG);
            running.signal(Signal::CONT);
            eventually("the standstill", || found(&running) != (0, turn - 1));
            assert_eq!(found(&running), (0, turn), "{schedule}");
        }
        running.wait_for_log("no breath was taken for ");
        running.wait_for_log("the whole process stood still");
        let events = late(&sandbox);
        assert!(events.len() == 2 && events.iter().all(|event| event["standstill"] == json!(true)), "{events:#?}");
        assert!(events.iter().all(|event| event["app"].is_null()), "{events:#?}");
        let said = sandbox.bellows(&["show"]).success().stdout;
        assert!(said.contains("; 2 standstills"), "{said}");
    }
}

fn a_slow_start_in_a_reload_is_named() {
    let sandbox = Sandbox::own();
    let path = sandbox.write("slow.toml", &network("never", ""));
    let mut running = sandbox.start(&[&path]);
    eventually("packets", || packets(&running) > 10_000);
    assert_eq!(found(&running), (0, 0));
    sandbox.write("slow.toml", &network("start", ""));
    sandbox.bellows(&["reload"]).success();
    running.wait_for_log("in the app `last` (starting), of which ");
    assert_eq!(found(&running), (1, 0));
    // The counts are kept, and the watchdog uses the new configuration.
    sandbox.write("slow.toml", &network("spin", ""));
    sandbox.bellows(&["reload"]).success();
    eventually("the second slow breath", || found(&running) == (2, 0));
    eventually("its event", || late(&sandbox).len() == 2);
    assert!(late(&sandbox).iter().all(|event| event["app"] == json!("last")));
}

fn without_a_limit_nothing_is_slow() {
    let sandbox = Sandbox::own();
    let network = network("spin", "").replace("500ms", "0s");
    let path = sandbox.write("slow.toml", &network);
    let running = sandbox.start(&[&path]);
    eventually("packets", || packets(&running) > 200_000);
    assert_eq!((found(&running), late(&sandbox).len()), ((0, 0), 0));
    sandbox.bellows(&["stop"]).success();
    let said = running.wait();
    assert!(!said.stderr.contains("slow: a breath") && !said.stdout.contains("slow breath"), "{said:#?}");
}

//! Networks that do not react: their processes are stopped, or an app never returns. Each command that waits for one
//! gives up after a time and prints the reason.

use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::stuck::never_return;
use crate::support::{ENDLESS, Said, Sandbox, Signal};
use bellows::Command;
use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, AppError, Port, Ports};
use bellows_testkit::eventually;
use bellows_testkit::wait::Watchdog;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// The start of an app that never returns and never gets to push.
#[derive(Clone, Copy, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Moment {
    Start,
    Begin,
}

/// Has the one key `at`.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct When {
    at: Moment,
}

/// Never returns from `start`.
struct NeverStarts(Moment);

impl App for NeverStarts {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);

    fn start(&mut self, _: Option<&mut Self>) -> Result<(), AppError> {
        if self.0 == Moment::Start {
            never_return();
        }
        Ok(())
    }

    fn begin(&mut self) {
        if self.0 == Moment::Begin {
            never_return();
        }
    }
}

impl Configure for NeverStarts {
    const NAME: &'static str = "never-starts";
    type Config = When;

    fn configure(config: When, _: &Context) -> Result<NeverStarts, SettingError> {
        Ok(NeverStarts(config.at))
    }
}

/// A network whose engine hangs at once.
const HUNG: &str = r#"
links = ["source.output -> stuck.input"]
[apps.source]
app = "source"
[apps.stuck]
app = "stuck"
"#;

/// Longer than any command waits here, even on a busy machine; far less than the minute that some used to wait.
const SOON: Duration = Duration::from_secs(25);

/// Adds the apps to the command.
pub fn add(command: Command) -> Command {
    command.app::<NeverStarts>()
}

tests! {
    a_stopped_process_is_named_by_every_command,
    a_stopped_process_is_shown_as_stopped,
    a_hung_app_is_named_by_every_command,
    a_hung_engine_gives_no_sign_of_life,
    an_app_that_is_being_started_is_named,
    a_stream_ends_when_its_process_is_stopped,
    a_run_that_does_not_end_is_killed,
    a_second_signal_ends_a_run_that_is_stuck,
    several_networks_are_stopped,
    the_only_network_is_reloaded_without_its_name,
}

/// Runs a command that must fail soon with this in its error.
fn fails_soon(sandbox: &Sandbox, words: &[&str], reason: &str) -> Said {
    let start = Instant::now();
    let said = sandbox.bellows(words);
    let time = start.elapsed();
    assert!(time < SOON, "{words:?} took {time:?}: {said:#?}");
    assert_eq!(said.code, Some(1), "{words:?}: {said:#?}");
    assert!(said.stderr.contains(reason), "{words:?}: {said:#?}");
    said
}

fn a_stopped_process_is_named_by_every_command() {
    let sandbox = Sandbox::own();
    let network = sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&[&network]);
    running.signal(Signal::STOP);
    let commands: [&[&str]; 6] = [
        &["stop"],
        &["reload", "endless"],
        &["trace"],
        &["tap", "source.output -> end.input", "-w", "-"],
        &["show", "breath"],
        &["show", "vhost"],
    ];
    for words in commands {
        let said = fails_soon(&sandbox, words, "the process is stopped (state T)");
        let remedy = format!("`kill -CONT {}` lets it go on", running.pid());
        assert!(said.stderr.contains(&remedy), "{words:?}: {said:#?}");
    }
    running.signal(Signal::CONT);
    running.wait();
}

fn a_stopped_process_is_shown_as_stopped() {
    let sandbox = Sandbox::own();
    let network = sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&[&network]);
    let state = || sandbox.bellows(&["ps", "--json"]).success().json()[0]["state"].clone();
    assert_eq!(state(), json!("running"));
    running.signal(Signal::STOP);
    eventually("stopped", || state() == json!("stopped"));
    // Long enough for a hang, which this is not.
    std::thread::sleep(Duration::from_millis(2_500));
    let remedy = format!("`kill -CONT {}` lets it go on", running.pid());
    for words in [&["ps"][..], &["show"], &["top", "--once"], &["show", "interfaces"]] {
        let said = sandbox.bellows(words).success();
        let text = said.stdout.clone() + &said.stderr;
        assert!(said.stdout.contains("stopped") && text.contains(&remedy), "{words:?}: {said:#?}");
        assert!(!text.contains("running") && !text.contains("hung"), "{words:?}: {said:#?}");
    }
    assert!(sandbox.bellows(&["show", "run"]).success().stdout.contains("stopped; uptime "));
    let json = |words: &[&str]| sandbox.bellows(words).success().json();
    let listed = json(&["ps", "--json"])[0].clone();
    assert!(listed["hang"].is_null() && listed["uptime_seconds"].is_number(), "{listed:#}");
    for words in [&["show", "--json"][..], &["show", "run", "--json"], &["top", "--once", "--json"]] {
        let value = json(words);
        assert_eq!((&value["state"], value["hang"].is_null()), (&json!("stopped"), true), "{words:?}: {value:#}");
    }
    running.signal(Signal::CONT);
    eventually("running", || state() == json!("running"));
    sandbox.bellows(&["stop"]).success();
    assert_eq!(running.wait().code, Some(0));
}

fn a_hung_app_is_named_by_every_command() {
    let sandbox = Sandbox::own();
    let network = sandbox.write("hung.toml", HUNG);
    let mut running = sandbox.start(&[&network]);
    running.wait_for_log("hung: ");
    let commands: [&[&str]; 4] = [
        &["trace", "--for", "1s"],
        &["tap", "source.output -> stuck.input", "-w", "hung.pcap"],
        &["stop", "--timeout", "1s"],
        &["reload"],
    ];
    for words in commands {
        let said = fails_soon(&sandbox, words, "the engine has been in the app `stuck` for ");
        assert!(said.stderr.contains("`bellows stop --kill hung` ends it"), "{words:?}: {said:#?}");
    }
    let start = Instant::now();
    let said = fails_soon(&sandbox, &["stop", "--timeout", "8s"], "was told to stop 8.00 s ago and has not ended");
    assert!(start.elapsed() >= Duration::from_secs(8));
    assert!(said.stderr.lines().next().unwrap().contains("; waiting for "), "it says so before: {said:#?}");
}

/// The watchdog of a service manager, which is a socket here.
fn a_hung_engine_gives_no_sign_of_life() {
    let sandbox = Sandbox::own();
    let network = sandbox.write("hung.toml", HUNG);
    let path = sandbox.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut command = sandbox.command(&["run", &network]);
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000").stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let _watchdog = Watchdog::new(&child);
    let next = || {
        let mut buffer = [0; 4096];
        manager.recv(&mut buffer).map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned())
    };
    let status = loop {
        let message = next().unwrap();
        if !message.starts_with("READY=1") && message.contains("STATUS=") {
            break message;
        }
    };
    assert!(status.starts_with("STATUS=stalled: the engine has been in the app `stuck`"), "{status}");
    manager.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let quiet = next();
    assert!(quiet.is_err(), "{quiet:?}");
    let probe = sandbox.bellows(&["ps", "hung", "--probe"]);
    assert!(probe.code == Some(11) && probe.stdout.contains("in the app `stuck`"), "{probe:#?}");
    child.kill().unwrap();
    child.wait().unwrap();
}

fn an_app_that_is_being_started_is_named() {
    for at in ["start", "begin"] {
        let sandbox = Sandbox::own();
        let network = sandbox.write("endless.toml", ENDLESS);
        let running = sandbox.start(&[&network]);
        let with_it = ENDLESS.replace("end.input", "newcomer.input").replace("[apps.end]", "[apps.newcomer]");
        let with_it = with_it.replace("app = \"sink\"", &format!("app = \"never-starts\"\nat = \"{at}\""));
        sandbox.write("endless.toml", &with_it);
        let mut reload = sandbox.command(&["reload"]).stderr(std::process::Stdio::null()).spawn().unwrap();
        let hang = || sandbox.bellows(&["ps", "--json"]).success().json()[0]["hang"].clone();
        eventually("the hang", || !hang().is_null());
        assert_eq!((&hang()["app"], &hang()["activity"]), (&json!("newcomer"), &json!("start")), "{at}");
        for words in [&["ps"][..], &["show"], &["top", "--once"]] {
            let said = sandbox.bellows(words).success().stdout;
            let line = said.lines().find(|line| line.contains("in the app `newcomer`"));
            assert!(line.is_some_and(|line| line.contains("(starting)")), "{at}: {words:?}: {said}");
        }
        running.signal(Signal::KILL);
        reload.wait().unwrap();
        running.wait();
        let left = sandbox.bellows(&["show", "endless"]).success().stdout;
        assert!(left.contains("in the app `newcomer`"), "{at}: {left}");
    }
}

fn a_stream_ends_when_its_process_is_stopped() {
    let sandbox = Sandbox::own();
    let network = sandbox.write("endless.toml", ENDLESS);
    let running = sandbox.start(&[&network]);
    let capture = sandbox.path("capture.pcap");
    let path = capture.display().to_string();
    let words = ["tap", "source.output -> end.input", "-w", &path];
    std::thread::scope(|scope| {
        let tap = scope.spawn(|| fails_soon(&sandbox, &words, "the process is stopped (state T)"));
        eventually("packets come", || std::fs::metadata(&capture).is_ok_and(|file| file.len() > 1_000));
        running.signal(Signal::STOP);
        let said = tap.join().unwrap();
        assert!(said.stderr.contains(" captured, "), "what has come is kept: {said:#?}");
    });
    running.signal(Signal::CONT);
    sandbox.bellows(&["stop"]).success();
    assert_eq!(running.wait().code, Some(0));
}

fn a_run_that_does_not_end_is_killed() {
    let sandbox = Sandbox::own();
    let hung = sandbox.write("hung.toml", HUNG);
    let endless = sandbox.write("endless.toml", ENDLESS);
    let mut one = sandbox.start(&[&hung]);
    let other = sandbox.start(&[&endless]);
    let last = sandbox.start(&[&endless, "--name", "obedient"]);
    one.wait_for_log("hung: ");
    other.signal(Signal::STOP);
    let start = Instant::now();
    let said = sandbox.bellows(&["stop", "hung", "endless", "obedient", "--kill"]).success();
    assert!(start.elapsed() < SOON, "{said:#?}");
    for (name, reason) in [("hung", "in the app `stuck`"), ("endless", "the process is stopped")] {
        let line = said.stderr.lines().find(|line| line.starts_with(&format!("`{name}`")) && line.contains("killed"));
        assert!(line.is_some_and(|line| line.contains(reason)), "{said:#?}");
    }
    assert!(said.stderr.contains("stopped `obedient` (process "), "{said:#?}");
    assert_eq!((one.wait().code, other.wait().code, last.wait().code), (None, None, Some(0)));
    let left = sandbox.bellows(&["show", "hung"]).success().stdout;
    assert!(left.contains("the engine was in the app `stuck`"), "{left}");
}

fn a_second_signal_ends_a_run_that_is_stuck() {
    for (first, second, code) in
        [(Signal::TERM, Signal::TERM, 143), (Signal::INT, Signal::TERM, 143), (Signal::TERM, Signal::INT, 130)]
    {
        let sandbox = Sandbox::own();
        let network = sandbox.write("hung.toml", HUNG);
        let mut running = sandbox.start(&[&network]);
        running.signal(first);
        running.wait_for_log("stopping");
        assert!(running.is_alive(), "the engine waits for its app");
        let folder = running.folder();
        running.signal(second);
        eventually("the second signal ends it", || !running.is_alive());
        let said = running.wait();
        assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{first:?} {second:?}: {said:#?}");
        assert!(!folder.exists());
    }
}

fn several_networks_are_stopped() {
    let sandbox = Sandbox::own();
    let network = sandbox.write("endless.toml", ENDLESS);
    let runs = ["a", "b", "c"].map(|name| sandbox.start(&[&network, "--name", name]));
    let said = sandbox.bellows(&["stop", "a", "nobody", "b"]);
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(said.stderr.contains("`nobody`"), "{said:#?}");
    let left = || sandbox.bellows(&["ps", "--json"]).success().json().as_array().unwrap().len();
    assert_eq!(left(), 3, "nothing is stopped if a name is wrong");
    sandbox.bellows(&["stop", "a", "b", "a"]).success();
    assert_eq!(left(), 1);
    sandbox.bellows(&["stop"]).success();
    for running in runs {
        assert_eq!(running.wait().code, Some(0));
    }
}

fn the_only_network_is_reloaded_without_its_name() {
    let sandbox = Sandbox::own();
    let network = sandbox.write("endless.toml", ENDLESS);
    let longer = ENDLESS.replace("end", "finish").replace("sfinish", "send");
    let other = sandbox.write("other.toml", &longer);
    let _running = sandbox.start(&[&network]);
    let report = sandbox.bellows(&["reload", "--json"]).success().json();
    assert_eq!(report["kept"].as_array().unwrap().len(), 2, "{report:#}");
    for file in ["other.toml", &other] {
        let report = sandbox.bellows(&["reload", file, "--json"]).success().json();
        assert_eq!(report["added"] == json!(["finish"]), file == "other.toml", "{report:#}");
    }
    sandbox.bellows(&["reload", "endless", &network]).success();
    let said = sandbox.bellows(&["reload", "nobody"]);
    assert!(said.code == Some(2) && said.stderr.contains("no network named `nobody`"), "{said:#?}");
    let said = sandbox.bellows(&["reload", "missing/file.toml"]);
    assert!(said.code == Some(2) && said.stderr.contains("missing/file.toml"), "{said:#?}");
    let _second = sandbox.start(&[&network, "--name", "second"]);
    let said = sandbox.bellows(&["reload"]);
    assert!(said.code == Some(2) && said.stderr.contains("name one of endless, second with `-n NAME`"), "{said:#?}");
}

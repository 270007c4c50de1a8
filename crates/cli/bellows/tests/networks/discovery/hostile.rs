//! Another user's files and answers with every text hostile: no command and no completion of root's believes them.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;

use bellows::SUBCOMMANDS;
use bellows_engine::LinkEnd;
use bellows_sys::text::is_hidden;
use bellows_testkit::eventually;
use bellows_testkit::programs::has_program;
use bellows_testkit::pty::Pty;
use serde_json::{Value, json};

use crate::discovery::impostor::{HOSTILE, Impostor};
use crate::discovery::{Killed, Machine, NOBODY, ask, logged_out, user};
use crate::support::ENDLESS;

/// The networks of the other user: with hostile names, with hostile texts elsewhere, and with files that are none.
const NETWORKS: [&str; 3] = ["names", "texts", "bytes"];

/// Puts the hostile text in the place of every text of a value.
fn spoil(value: &mut Value) {
    match value {
        Value::String(text) => *text = HOSTILE.to_owned(),
        Value::Array(parts) => parts.iter_mut().for_each(spoil),
        Value::Object(parts) => parts.values_mut().for_each(spoil),
        _ => {}
    }
}

/// The file of counters with a changed directory.
fn with_directory(file: &[u8], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let cell = |cell: usize| u64::from_ne_bytes(file[8 * cell..][..8].try_into().unwrap()) as usize;
    let (start, length, first) = (cell(3), cell(4), cell(5));
    let mut directory: Value = serde_json::from_slice(&file[8 * start..][..length]).unwrap();
    change(&mut directory);
    let mut json = serde_json::to_vec(&directory).unwrap();
    let length = json.len() as u64;
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut changed = file[..8 * start].to_vec();
    changed[32..40].copy_from_slice(&length.to_ne_bytes());
    changed[40..48].copy_from_slice(&((start + json.len() / 8) as u64).to_ne_bytes());
    [&changed[..], &json, &file[8 * first..]].concat()
}

/// Makes the networks of the other user, which run as long as the value lives.
fn start(machine: &Machine) -> Vec<Impostor> {
    let real = machine.start(&user(NOBODY), "real");
    let folder = machine.path(&format!("/dev/shm/bellows-{NOBODY}"));
    let read = |file: &str| fs::read(folder.join("real").join(file)).unwrap();
    let (counters, mut timeline) = (read("counters"), read("timeline"));
    drop(real);
    let impostors: Vec<Impostor> = NETWORKS.iter().map(|name| Impostor::start(machine, NOBODY, name)).collect();
    let pid = |name: &str| -> u32 {
        let identity = fs::read_to_string(folder.join(name).join("identity")).unwrap();
        identity.split(' ').next().unwrap().parse().unwrap()
    };
    let hostile_names = with_directory(&counters, |directory| {
        spoil(directory);
        directory["pid"] = json!(pid("names"));
        // One that the shells would run without further characters.
        directory["apps"][0]["name"] = json!("x$(touch${IFS}canary)");
        directory["apps"][1]["name"] = json!(format!("w{HOSTILE}"));
        directory["links"][0]["from"] = json!("x$(touch${IFS}canary).output");
    });
    let hostile_texts = with_directory(&counters, |directory| {
        directory["pid"] = json!(pid("texts"));
        for key in ["version", "schedule", "fallback_reason", "source", "config"] {
            directory[key] = json!(HOSTILE);
        }
        for list in ["apps", "types"] {
            directory[list].as_array_mut().unwrap().iter_mut().for_each(|entry| {
                if let Some(losses) = entry.get_mut("losses") {
                    spoil(losses);
                }
                for counters in ["drops", "counters"] {
                    for counter in entry[counters].as_array_mut().into_iter().flatten() {
                        if let Some(help) = counter.get_mut("help") {
                            *help = json!(HOSTILE);
                        }
                    }
                }
            });
        }
    });
    // The names of apps in a timeline are bytes among its cells.
    for (at, byte) in timeline.iter_mut().enumerate().take(8_192).skip(64) {
        if byte.is_ascii_lowercase() {
            *byte = b"\x1b[2J\x9b\n$("[at % 8];
        }
    }
    let write = |name: &str, file: &str, content: &[u8]| {
        let path = folder.join(name).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let condition = json!([{ "condition": HOSTILE, "app": HOSTILE, "port": HOSTILE, "since_ns": u64::MAX,
        "last_ns": u64::MAX, "message": HOSTILE }]);
    let event = |id: u64, name: &str, fields: Value| {
        json!({ "id": format!("1-{id}"), "time_ns": u64::MAX, "level": "error", "event": name, "message": HOSTILE,
            "pid": 1, "fields": fields })
    };
    let events = [
        event(1, "app-failed", json!({ "app": HOSTILE, "list": [{ HOSTILE: HOSTILE }] })).to_string(),
        event(2, HOSTILE, json!({})).to_string(),
        event(3, "app-failed", json!({ HOSTILE: 1 })).to_string(),
        HOSTILE.replace('\n', ""),
    ];
    for (name, counters) in [("names", &hostile_names), ("texts", &hostile_texts)] {
        write(name, "counters", counters);
        write(name, "timeline", &timeline);
        write(name, "conditions", condition.to_string().as_bytes());
        write(name, "baseline", json!({ HOSTILE: HOSTILE }).to_string().as_bytes());
        write(name, "placement", json!({ HOSTILE: HOSTILE }).to_string().as_bytes());
        write(".events", name, [events.join("\n").as_bytes(), b"\n\xff\xfe\x1b[2J\n"].concat().as_slice());
    }
    for file in ["counters", "timeline", "conditions", "baseline", "placement"] {
        write("bytes", file, b"\xff\xfe\x1b[2J\n$(touch canary)");
    }
    write(".events", "bytes", b"\xff\xfe\x1b[2J\n");
    // A network of a name that none can have.
    write(HOSTILE.split('/').next().unwrap(), "identity", b"1 1\n");
    machine.shell(&logged_out(), &format!("cd /dev/shm/bellows-{NOBODY} && chown -R {NOBODY} . && chmod 700 .events"));
    impostors
}

/// Fails the test if an output could control a terminal, or hide something.
fn assert_harmless(what: &str, bytes: &[u8]) {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
    let wrong = text.chars().find(|&c| is_hidden(c) && c != '\n' && c != '\t');
    assert_eq!(wrong, None, "{what}: {text:?}");
}

/// The same for the texts in JSON.
fn assert_harmless_json(what: &str, value: &Value) {
    match value {
        Value::String(text) => assert_harmless(what, text.as_bytes()),
        Value::Array(parts) => parts.iter().for_each(|part| assert_harmless_json(what, part)),
        Value::Object(parts) => parts.iter().for_each(|(key, part)| {
            assert_harmless(what, key.as_bytes());
            assert_harmless_json(what, part);
        }),
        _ => {}
    }
}

/// The lines of all commands that read networks.
fn reading(machine: &Machine, network: &str) -> Vec<Vec<String>> {
    let parts = completed(machine, &["show", ""]);
    let parts = parts.iter().map(|(part, _)| part).filter(|part| !part.contains('/') && !part.starts_with('-'));
    let parts: Vec<String> = parts.map(|part| format!("show {part} NAME")).collect();
    assert!(parts.len() > 12, "{parts:?}");
    let reads = SUBCOMMANDS.iter().flat_map(|entry| [entry.reads, entry.reads_all].concat());
    let lines = parts.iter().map(String::as_str).chain(["ps", "ps -a", "events"]).chain(reads);
    let with_json = lines.flat_map(|line| [line.to_owned(), format!("{line} --json")]);
    let plain = ["metrics", "metrics --openmetrics", "metrics --list"].map(str::to_owned);
    let word = |word: &str| match word {
        "NAME" => network.to_owned(),
        "LINK" => "source.output -> end.input".to_owned(),
        word => word.to_owned(),
    };
    with_json.chain(plain).map(|line| line.split(' ').map(word).collect()).collect()
}

/// The candidates for a line, with their descriptions, and the bytes as the shells get them.
fn completed(machine: &Machine, words: &[&str]) -> Vec<(String, String)> {
    let candidates = |shell: &str| {
        let mut command = machine.command(&logged_out());
        command.arg(machine.sandbox.path("bellows")).args(["--", "bellows"]).args(words).env("BELLOWS_COMPLETE", shell);
        let index = words.len().to_string();
        command.env("_CLAP_COMPLETE_INDEX", &index).env("_BELLOWS_INDEX", &index).env("_CLAP_IFS", "\n");
        let said = command.output().unwrap().stdout;
        assert_harmless(&format!("{shell}: {words:?}"), &said);
        String::from_utf8(said).unwrap()
    };
    ["bash", "zsh", "elvish", "powershell"].into_iter().for_each(|shell| drop(candidates(shell)));
    let lines = candidates("fish");
    let pair = |line: &str| {
        line.split_once('\t').map_or((line.to_owned(), String::new()), |(one, two)| (one.into(), two.into()))
    };
    lines.lines().map(pair).collect()
}

/// Whether a shell has run what another user has written.
fn has_canary(machine: &Machine) -> bool {
    [machine.sandbox.path("canary"), machine.path("/canary")].iter().any(|path| path.exists())
}

#[test]
fn commands_believe_no_text_of_another_user() {
    let Some(machine) = Machine::of_root("commands_believe_no_text_of_another_user") else { return };
    let impostors = start(&machine);
    let names: Vec<String> = NETWORKS.iter().map(|name| format!("nobody/{name}")).collect();
    let lines: Vec<Vec<String>> = names.iter().flat_map(|name| reading(&machine, name)).collect();
    let check = |line: &Vec<String>| {
        let mut command = machine.command(&logged_out());
        let output = command.arg(machine.sandbox.path("bellows")).args(line).output().unwrap();
        assert!(output.status.code().is_some_and(|code| code != 101), "{line:?}: {output:?}");
        assert_harmless(&format!("{line:?}"), &output.stdout);
        assert_harmless(&format!("{line:?}"), &output.stderr);
        if line.iter().any(|word| word == "--json") && output.status.success() {
            let values = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>();
            values.for_each(|value| assert_harmless_json(&format!("{line:?}"), &value.unwrap()));
        }
    };
    thread::scope(|scope| {
        for quarter in lines.chunks(lines.len().div_ceil(4)) {
            scope.spawn(move || quarter.iter().for_each(check));
        }
    });
    // What is no network's is refused, and what only has odd texts is shown.
    let said = |words: &[&str]| {
        machine.command(&logged_out()).arg(machine.sandbox.path("bellows")).args(words).output().unwrap()
    };
    let refused = String::from_utf8(said(&["show", "nobody/names"]).stderr).unwrap();
    assert!(refused.contains("names that no network can have"), "{refused}");
    assert!(
        said(&["show", "nobody/texts"]).status.success() && said(&["show", "status", "nobody/texts"]).status.success()
    );
    let events = String::from_utf8(said(&["events", "nobody/texts"]).stdout).unwrap();
    assert!(events.contains("nobody/texts app-failed: x") && events.contains("lines damaged"), "{events}");

    // The page and the metrics of a server.
    let socket = machine.sandbox.path("web.sock");
    let mut command = machine.command(&logged_out());
    command.arg(machine.sandbox.path("bellows")).arg("web").arg("--listen").arg(format!("unix:{}", socket.display()));
    let _page = Killed(command.stdout(Stdio::null()).spawn().unwrap());
    eventually("the page", || socket.exists());
    eventually("the networks", || ask(&socket, "/api/networks").1.contains("nobody/texts"));
    for name in &names {
        for what in ["live", "status", "timeline"] {
            let (_, answer) = ask(&socket, &format!("/api/{what}?network={name}"));
            let (_, body) = answer.split_once("\r\n\r\n").unwrap();
            assert_harmless(&format!("{what} of {name}"), body.as_bytes());
        }
    }
    assert!(!has_canary(&machine));
    drop(impostors);
}

#[test]
fn completions_offer_names_alone() {
    let Some(machine) = Machine::of_root("completions_offer_names_alone") else { return };
    let impostors = start(&machine);
    let further = [
        &["show", "run", ""][..],
        &["show", "vhost", ""],
        &["show", "hot", "--app", ""],
        &["trace", "--app", ""],
        &["tap", "nobody/texts", ""],
        &["clear", "mac", ""],
        &["place", "--keep", ""],
        &["esp", "--app", ""],
    ];
    let of_networks = SUBCOMMANDS.iter().filter(|entry| entry.uses_networks());
    let names = of_networks.flat_map(|entry| [vec![entry.name, ""], vec![entry.name, "-n", ""]]);
    let arguments: Vec<Vec<&str>> = names.chain(further.map(<[&str]>::to_vec)).collect();
    let mut offered = 0;
    for words in arguments {
        for (value, help) in completed(&machine, &words) {
            let is_foreign = help.ends_with("network") || help.contains("nobody/");
            if !is_foreign || value.starts_with('-') {
                continue;
            }
            offered += 1;
            let is_link = value.parse::<bellows_engine::LinkSpec>().is_ok();
            assert!(LinkEnd::is_name(&value) || is_link, "{words:?}: {value:?} {help:?}");
            assert!(!help.ends_with("network") || value.starts_with("nobody/"), "{words:?}: {value:?} {help:?}");
        }
    }
    assert!(offered > 20, "{offered}");
    drop(impostors);
}

/// The command with which a person works in a shell, and how its prompt is set.
fn interactive(machine: &Machine, shell: &str) -> Command {
    let mut command = machine.command(&logged_out());
    command.arg("env").arg("--chdir").arg(machine.sandbox.path("")).args(match shell {
        "bash" => &["bash", "--norc", "-i"][..],
        "zsh" => &["zsh", "-f", "-i"],
        _ => &["fish", "--no-config", "-i", "-C", "function fish_prompt; echo 'READY> '; end"],
    });
    let path = format!("{}:{}", machine.sandbox.path("").display(), std::env::var("PATH").unwrap());
    command.env("PATH", path).env("PS1", "READY> ").env("HOME", machine.sandbox.path("home"));
    command
}

/// What people do all day: Tab and Enter.
fn tab_and_enter(test: &str, shell: &str, prelude: &str) {
    if !has_program(test, shell) {
        return;
    }
    let Some(machine) = Machine::of_root(test) else { return };
    let impostors = start(&machine);
    fs::create_dir(machine.sandbox.path("home")).unwrap();
    // A file that another user has put here.
    let file = "y'\"$(touch${IFS}canary)`touch canary`;touch canary;!#~*.toml";
    machine.sandbox.write(file, ENDLESS);
    let script = Command::new(machine.sandbox.path("bellows")).args(["completions", shell]).output().unwrap().stdout;
    machine.sandbox.write("script", &String::from_utf8(script).unwrap());
    let mut session = Session { terminal: Pty::run(&interactive(&machine, shell), 200, 50), lines: 0 };
    session.type_line(prelude);
    for keys in [
        "bellows trace --app x\t",
        "bellows esp show --app x\t",
        "bellows tap nobody/names x\t",
        "bellows show nobody/n\t",
        "bellows ps nobody/t\t",
    ] {
        let text = session.type_line(keys);
        assert!(!has_canary(&machine), "{keys:?} has run it: {text:?}");
    }
    // The scripts for other shells complete no word in quotes.
    let in_quotes = ["bellows check 'y\t", "bellows check \"y\t"];
    for keys in ["bellows check y\t"].into_iter().chain(in_quotes.into_iter().filter(|_| shell == "bash")) {
        let before = session.terminal.text().matches(": fine").count();
        let text = session.type_line(keys);
        assert!(!has_canary(&machine), "{keys:?} has run it: {text:?}");
        assert!(text.matches(": fine").count() > before, "{keys:?} has not found the file: {text:?}");
    }
    drop(impostors);
}

/// A shell at a terminal.
struct Session {
    terminal: Pty,
    lines: usize,
}

impl Session {
    /// Types a line, and waits until it has run. Returns all that the terminal has shown.
    fn type_line(&mut self, keys: &str) -> String {
        self.lines += 1;
        // What is typed is not what is printed.
        let (typed, printed) = (format!("{keys} ; echo D''ONE-{}\n", self.lines), format!("DONE-{}", self.lines));
        self.terminal.press(&typed);
        let is_done = || self.terminal.text().contains(&printed);
        eventually(&format!("{keys:?} is done"), is_done);
        self.terminal.text()
    }
}

#[test]
fn bash_runs_nothing_that_another_user_has_written() {
    tab_and_enter("bash_runs_nothing_that_another_user_has_written", "bash", "source script");
}

#[test]
fn zsh_runs_nothing_that_another_user_has_written() {
    let prelude = "autoload -U compinit && compinit -u -D && source ./script";
    tab_and_enter("zsh_runs_nothing_that_another_user_has_written", "zsh", prelude);
}

#[test]
fn fish_runs_nothing_that_another_user_has_written() {
    tab_and_enter("fish_runs_nothing_that_another_user_has_written", "fish", "source script");
}

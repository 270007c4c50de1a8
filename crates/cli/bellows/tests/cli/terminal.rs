//! The user interface at the terminal: help, `top`, completions, character sets, and readers that go away.

use std::fmt::Write;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{ENDLESS, IDLE, Said, Sandbox, json_reference};
use bellows::json_reference::Found;
use bellows_testkit::programs::has_program;
use bellows_testkit::pty::Pty;
use bellows_testkit::wait::PATIENCE;
use serde_json::{Value, json};

/// The words of every subcommand that help lists, the command itself first.
fn commands(sandbox: &Sandbox) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut next = 0;
    while let Some(words) = commands.get(next).cloned() {
        next += 1;
        let help = [words.iter().map(String::as_str).collect::<Vec<_>>(), vec!["-h"]].concat();
        let help = sandbox.bellows(&help).success().stdout;
        let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let listed = listed.take_while(|line| !line.is_empty());
        // Continuation lines are indented further.
        let names =
            listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty()));
        commands.extend(names.filter(|name| *name != "help").map(|name| [&words[..], &[name.to_owned()]].concat()));
    }
    assert!(commands.len() > 25, "{commands:?}");
    for known in [vec!["schema"], vec!["run"], vec!["bench", "vring"], vec!["man"]] {
        assert!(commands.iter().any(|words| *words == known), "{known:?} is not among {commands:?}");
    }
    commands
}

/// A chain of this many counters between a source and a sink.
fn chain(counters: usize) -> String {
    let mut text = "links = [\n".to_owned();
    let name = |index: usize| match index {
        0 => "source".to_owned(),
        index if index > counters => "end".to_owned(),
        index => format!("count{index}"),
    };
    for index in 0..=counters {
        let _ = writeln!(text, "  \"{}.output -> {}.input\",", name(index), name(index + 1));
    }
    text += "]\n[apps.source]\napp = \"source\"\nsize = 60\nrate = \"10kpps\"\n[apps.end]\napp = \"sink\"\n";
    for index in 1..=counters {
        let _ = write!(text, "[apps.count{index}]\napp = \"counter\"\n");
    }
    text
}

/// Starts a command, reads this many lines, and closes the pipe. The command must end by itself, successfully.
fn ends_without_reader(sandbox: &Sandbox, words: &[&str], lines: usize) {
    let mut child = sandbox.command(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    for _ in 0..lines {
        let mut line = String::new();
        assert!(stdout.read_line(&mut line).unwrap() > 0, "{words:?} says nothing");
    }
    drop(stdout);
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{words:?} goes on although nobody reads it");
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.code(), Some(0), "{words:?}");
}

#[test]
fn commands_end_when_nobody_reads_them_any_more() {
    let sandbox = Sandbox::new();
    let (busy, idle) = (sandbox.write("busy.toml", ENDLESS), sandbox.write("idle.toml", IDLE));
    let (_busy, _idle) = (sandbox.start(&[&busy]), sandbox.start(&[&idle]));
    ends_without_reader(&sandbox, &["top", "busy", "--interval", "50ms"], 3);
    // Nothing more will be printed for an hour.
    ends_without_reader(&sandbox, &["top", "busy", "--interval", "1h"], 3);
    ends_without_reader(&sandbox, &["top", "busy", "--interval", "50ms", "--json"], 1);
    ends_without_reader(&sandbox, &["trace", "idle", "--for", "1h"], 0);
    ends_without_reader(&sandbox, &["tap", "idle", "source.output -> end.input", "-w", "-"], 0);
    ends_without_reader(&sandbox, &["timeline", "busy", "--all"], 1);
    for words in [&["ps"][..], &["show", "busy"], &["show", "counters", "busy"], &["timeline", "busy"]] {
        ends_without_reader(&sandbox, words, 0);
    }
    ends_without_reader(&sandbox, &["appbench", "tee", "--processes", "1000"], 0);
}

#[test]
fn a_part_that_is_misspelled_is_answered_with_the_parts() {
    let sandbox = Sandbox::new();
    let said = |words: &[&str]| -> Said {
        let said = sandbox.bellows(words);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{words:?}: {said:?}");
        said
    };
    let network = sandbox.write("endless.toml", ENDLESS);
    let mut running = Vec::new();
    // None, one and two networks run.
    for count in 0..3 {
        if count > 0 {
            running.push(sandbox.start(&[&network]));
        }
        for words in [&["show", "latnecy"][..], &["show", "latnecy", "endless"], &["show", "latnecy", "--json"]] {
            let error = said(words).stderr;
            assert!(error.contains("did you mean `latency`?"), "{words:?} with {count}: {error}");
            for part in ["run", "counters", "links", "interfaces", "vhost"] {
                assert!(error.contains(part), "{part} is not in {error}");
            }
        }
    }
    assert!(said(&["show", "endles"]).stderr.contains("did you mean `endless`?"));
    assert!(said(&["show", "counters"]).stderr.contains("several networks"));
    // With the arguments swapped there is only one meaning.
    assert!(sandbox.bellows(&["show", "endless", "links"]).success().stdout.starts_with("LINK"));
}

#[test]
fn each_part_is_printed_alone_also_as_json() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let _running = sandbox.start(&[&network]);
    thread::sleep(Duration::from_millis(300));
    let show = |part: &str| sandbox.bellows(&["show", part]).success().stdout;
    let json = |part: &str| -> Value {
        let json = sandbox.bellows(&["show", part, "--json"]).success().json();
        assert_eq!((&json["name"], &json["state"]), (&json!("endless"), &json!("running")), "{part}");
        json
    };
    let counters = show("counters");
    assert!(counters.contains("source") && counters.contains("packets received on all inputs"), "{counters}");
    assert!(!counters.contains("no_buffer"), "what is 0 is left out: {counters}");
    assert!(sandbox.bellows(&["show", "counters", "--all"]).success().stdout.contains("no_buffer"));
    assert_eq!(sandbox.bellows(&["show", "links", "--all"]).code, Some(2));
    let counters = json("counters");
    let row = counters["counters"].as_array().unwrap().iter().find(|row| row["counter"] == "in_packets").unwrap();
    assert_eq!((&row["owner"], &row["name"]), (&json!("app"), &json!("source")));

    let links = json("links");
    assert_eq!(links["links"][0]["to"], json!("end.input"));
    assert_eq!(links.get("apps"), None, "{links:#}");
    assert_eq!(json("apps")["apps"][0]["kind"], json!("source"));
    assert_eq!(json("apps").get("links"), None);
    assert_eq!(json("errors")["errors"], json!([]));
    assert!(json("config")["config"].as_str().unwrap().contains("100kpps"));

    let interfaces = show("interfaces");
    assert!(interfaces.starts_with("INTERFACE") && interfaces.contains("kpps"), "{interfaces}");
    let interfaces = json("interfaces");
    let [source, end] = [0, 1].map(|index| &interfaces["interfaces"][index]);
    assert_eq!((&source["app"], &source["state"], &end["app"]), (&json!("source"), &json!("up"), &json!("end")));
    assert!(source["rx"]["packets"].as_u64().unwrap() > 0 && source["tx"]["packets"] == json!(0), "{source:#}");
    assert!(end["tx"]["packets_per_second"].as_f64().unwrap() > 0.0, "{end:#}");
}

#[test]
fn brief_help_fits_a_terminal_and_says_where_the_rest_is() {
    let sandbox = Sandbox::new();
    for words in &commands(&sandbox) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let help = |flag| {
            let words = [&words[..], &[flag]].concat();
            let said: Said = sandbox.command(&words).env("COLUMNS", "80").output().unwrap().into();
            said.success().stdout
        };
        let brief = help("-h");
        assert!(brief.contains("Usage: bellows"), "{brief}");
        let widest = brief.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 80, "{words:?}: {widest} columns in\n{brief}");
        // The lists of commands, and commands with over 15 options, are longer than a screen.
        let most = match words[..] {
            [] => 40,
            ["bench"] => 31,
            ["appbench"] | ["bench", "vring"] => 30,
            _ => 25,
        };
        let lines = brief.lines().count();
        assert!(lines <= most, "{words:?}: {lines} lines in\n{brief}");
        assert!(help("--help").lines().count() >= lines, "{words:?}");
        assert!(help("--help").contains("--log-level"), "{words:?}");
    }
}

#[test]
fn help_wraps_at_the_width_of_the_terminal() {
    let sandbox = Sandbox::new();
    for words in &commands(&sandbox) {
        for columns in ["60", "80", "100"] {
            let mut command = sandbox.command(&words.iter().map(String::as_str).collect::<Vec<_>>());
            let said: Said = command.arg("--help").env("COLUMNS", columns).output().unwrap().into();
            let help = said.success().stdout;
            // The line of the usage is not wrapped.
            let is_exempt = |line: &str| line.starts_with("Usage: ") || !line.trim().contains(' ');
            let fits = |line: &&str| line.chars().count() <= columns.parse().unwrap() || is_exempt(line);
            let wide: Vec<&str> = help.lines().filter(|line| !fits(line)).collect();
            assert!(wide.is_empty(), "{words:?} in {columns} columns: {wide:#?}");
        }
    }
    for columns in [60, 90] {
        let (code, text) = Pty::run(&sandbox.command(&["run", "--help"]), columns, 40).wait();
        assert_eq!(code, Some(0));
        let widest = text.lines().map(|line| line.trim_end().chars().count()).max().unwrap();
        assert!(widest <= columns.into() && widest > usize::from(columns) - 20, "{widest} of {columns} in\n{text}");
    }
}

#[test]
fn first_attempts_work_or_get_a_hint() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    assert!(sandbox.bellows(&["validate", &network]).success().stdout.contains("fine"));
    let running = sandbox.start(&[&network]);
    for words in [&["status"][..], &["stats"], &["status", "endless"], &["list"], &["ls"]] {
        assert!(sandbox.bellows(words).success().stdout.contains("endless"), "{words:?}");
    }
    drop(running);
    for (word, remedy) in [
        ("start", "bellows run"),
        ("kill", "bellows stop"),
        ("tcpdump", "bellows tap"),
        ("interfaces", "bellows show PART"),
        ("chekc", "'check'"),
    ] {
        let said = sandbox.bellows(&[word]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains(remedy), "{word}: {said:?}");
    }
    let help = sandbox.bellows(&["-h"]).success().stdout;
    for alias in ["status", "stats", "list", "validate"] {
        assert!(help.contains(alias), "{alias} is not in\n{help}");
    }
}

#[test]
fn a_picture_has_the_format_of_its_extension_or_is_rejected() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    for (file, begins) in [("a.svg", "<svg"), ("a.dot", "digraph"), ("a.gv", "digraph"), ("a.txt", "┌"), ("a", "┌")]
    {
        sandbox.bellows(&["graph", &network, "-o", file]).success();
        let picture = fs::read_to_string(sandbox.path(file)).unwrap();
        assert!(picture.contains(begins), "{file}: {picture}");
    }
    for (file, remedy) in [("c.png", "rsvg-convert -o c.png"), ("c.pdf", "dot -Tpdf -o c.pdf"), ("c.doc", ".svg")] {
        let said = sandbox.bellows(&["graph", &network, "-o", file]);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains(remedy), "{said:?}");
        assert!(!sandbox.path(file).exists(), "{file} was written");
    }
    sandbox.bellows(&["graph", &network, "-o", "c.doc", "--format", "svg"]).success();
    assert!(sandbox.bellows(&["graph", &network, "-o", "-"]).success().stdout.contains('┌'));
    assert!(!sandbox.path("-").exists());
}

#[test]
fn nothing_but_ascii_is_written_under_the_c_locale() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let short = sandbox.write("short.toml", &ENDLESS.replace("rate = \"100kpps\"", "count = 2000"));
    let wrong = sandbox.write("wrong.toml", "links = [\"a.output -> b.inptu\"]\n[apps.ä]\napp = \"sink\"\n");
    let _running = sandbox.start(&[&network]);
    thread::sleep(Duration::from_millis(1_200));
    let apps = sandbox.bellows(&["apps", "--json"]).success().json();
    let apps: Vec<&str> = apps.as_array().unwrap().iter().map(|app| app["name"].as_str().unwrap()).collect();
    let all = self::commands(&sandbox);
    let with = |flag| move |words: &'_ Vec<String>| -> Vec<String> { [&words[..], &[String::from(flag)]].concat() };
    let helps: Vec<Vec<String>> = all.iter().map(with("-h")).chain(all.iter().map(with("--help"))).collect();
    let mut commands: Vec<Vec<&str>> = vec![vec!["--version"], vec!["nonsense"]];
    commands.extend(helps.iter().map(|words| words.iter().map(String::as_str).collect::<Vec<_>>()));
    for app in apps.into_iter().chain(["engine"]) {
        commands.push(vec!["apps", app]);
        commands.push(vec!["apps", app, "--json"]);
    }
    // The parts that `show` itself lists.
    let parts = sandbox.bellows(&["show", "latnecy"]).stderr;
    let parts = parts.split_once("(parts: ").and_then(|(_, rest)| rest.split_once(';')).unwrap().0;
    assert!(parts.contains("status") && parts.contains("hot"), "{parts}");
    for part in parts.split(", ") {
        commands.push(vec!["show", part]);
        commands.push(vec!["show", part, "--json"]);
    }
    commands.extend([
        vec!["show"],
        vec!["show", "latnecy"],
        vec!["apps"],
        vec!["ps"],
        vec!["ps", "--json"],
        vec!["top", "--once"],
        vec!["top", "--once", "--json"],
        vec!["timeline"],
        vec!["timeline", "--all"],
        vec!["timeline", "--json"],
        vec!["trace", "-c", "3"],
        vec!["trace", "-c", "3", "--json"],
        vec!["clear"],
        vec!["man"],
        vec!["completions", "bash"],
        vec!["completions", "zsh"],
        vec!["completions", "fish"],
        vec!["schema"],
        vec!["run", &short],
        vec!["run", &short, "--json"],
        vec!["run", &wrong],
        vec!["run", "--log-format", "json", "ä.toml"],
        vec!["run", "ä.toml"],
        vec!["check", &network],
        vec!["check", &wrong],
        vec!["check", &wrong, "--json"],
        vec!["graph", &network],
        vec!["graph", &network, "-o", "picture.txt"],
        vec!["graph", "--name", "endless"],
        vec!["graph", &network, "--format", "dot"],
        vec!["graph", &network, "--format", "svg"],
        vec!["graph", &network, "-o", "c.png"],
        vec!["reload", "endless"],
        vec!["appbench", "tee", "--processes", "2", "--packets", "1e5"],
        vec![
            "bench",
            "history",
            "--case",
            "mix",
            "--schedule",
            "flat",
            "--processes",
            "2",
            "--rounds",
            "2",
            "--tees",
            "1",
        ],
        vec!["stop"],
    ]);
    for words in commands {
        let mut command = sandbox.command(&words);
        command.env_remove("LC_ALL").env_remove("LC_CTYPE").env("LANG", "C");
        let said: Said = command.output().unwrap().into();
        let others: String = (said.stdout.clone() + &said.stderr).chars().filter(|c| !c.is_ascii()).collect();
        assert!(others.is_empty(), "{words:?} prints {others}: {said:#?}");
        assert!(!said.stdout.is_empty() || !said.stderr.is_empty() || words.contains(&"-o"));
        if words.contains(&"--json") && said.code == Some(0) {
            said.json();
        }
    }
    assert!(fs::read_to_string(sandbox.path("picture.txt")).unwrap().is_ascii());
}

#[test]
fn other_locales_get_the_best_characters() {
    let sandbox = Sandbox::new();
    for (variable, value, unicode) in [
        ("LANG", "de_DE.UTF-8", true),
        ("LC_ALL", "C.utf8", true),
        ("LC_ALL", "C", false),
        ("LC_CTYPE", "POSIX", false),
    ] {
        let mut command = sandbox.command(&["apps", "tee"]);
        command.env_remove("LC_ALL").env_remove("LC_CTYPE").env("LANG", "en_US.UTF-8").env(variable, value);
        let said: Said = command.output().unwrap().into();
        assert_eq!(said.success().stdout.contains("─▶"), unicode, "{variable}={value}");
    }
}

#[test]
fn top_scrolls_sorts_and_switches_tables_on_a_terminal() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("chain.toml", &chain(40));
    let _running = sandbox.start(&[&network]);
    let mut pty = Pty::run(&sandbox.command(&["top", "--interval", "100ms"]), 100, 20);
    let shows = |pty: &Pty, text: &'static str| {
        pty.wait_for_screen(text, |lines| lines.iter().any(|line| line.contains(text)));
    };
    shows(&pty, "q quit");
    shows(&pty, "count3 ");
    pty.press("a");
    shows(&pty, "Tab apps  ");
    pty.press("\x1b[6~\x1b[6~\x1b[6~\x1b[6~\x1b[6~");
    shows(&pty, "count40 ");
    // The headings stay.
    shows(&pty, "IN RATE");
    pty.press("\x1b[H");
    pty.wait_for_screen("the first app", |lines| lines.iter().any(|line| line.starts_with("source ")));
    pty.press("jjk");
    pty.wait_for_screen("one line further", |lines| {
        lines.iter().any(|line| line.starts_with("count1 ")) && !lines.iter().any(|line| line.starts_with("source "))
    });
    pty.press("\x1b[C");
    shows(&pty, "sort: APP");
    shows(&pty, "APP▲");
    pty.press("l");
    pty.wait_for_screen("the links", |lines| {
        lines.iter().any(|line| line.starts_with("LINK")) && lines.iter().any(|line| line.contains("source.output -> "))
    });
    pty.resize(60, 10);
    pty.wait_for_screen("ten lines", |lines| {
        lines.len() == 10 && lines[9].starts_with("q quit") && lines.iter().all(|line| line.chars().count() <= 60)
    });
    pty.resize(120, 50);
    pty.wait_for_screen("fifty lines", |lines| {
        lines.len() == 50 && lines.iter().any(|line| line.contains("count40.output -> end.input"))
    });
    pty.press("q");
    let (code, text) = pty.wait();
    assert_eq!(code, Some(0));
    assert!(text.trim_end().ends_with("\x1b[?25h\x1b[?1049l"), "the terminal is as before");
}

#[test]
fn top_shows_costs_on_a_terminal_of_80_columns() {
    let sandbox = Sandbox::new();
    let long = |text: String, index| text.replace(&format!("count{index}"), &format!("customer-edge-site-{index}"));
    let text = (1..=3).fold(chain(3), long);
    let network = sandbox.write("chain.toml", &text);
    let _running = sandbox.start(&[&network]);
    let pty = Pty::run(&sandbox.command(&["top", "--interval", "100ms"]), 80, 40);
    for (columns, headings) in [
        (80, &["APP", "IN RATE", "DROP RATE", "CLOCKS/PKT", "PKTS/CALL", "SHARE"][..]),
        (60, &["APP", "IN RATE", "DROP RATE", "CLOCKS/PKT", "SHARE"]),
        (120, &["APP", "TYPE", "IN RATE", "OUT RATE", "DROP RATE", "DROPPED", "CLOCKS/PKT", "PKTS/CALL", "SHARE"]),
        (40, &["APP", "CLOCKS/PKT", "SHARE"]),
    ] {
        pty.resize(columns, 40);
        pty.wait_for_screen(&format!("costs in {columns} columns"), |lines| {
            let heads = lines.iter().position(|line| line.starts_with("APP"));
            heads.is_some_and(|at| {
                headings.iter().all(|heading| lines[at].contains(heading))
                    && (columns > 60 || !lines[at].contains("TYPE"))
                    && lines[at + 3].starts_with("cust")
                    && lines[at + 1..at + 6].iter().all(|line| line.ends_with('%'))
            })
        });
    }
}

#[test]
fn top_prints_tables_or_a_line_of_json_at_each_interval() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("chain.toml", &chain(3));
    let running = sandbox.start(&[&network]);
    let mut json = sandbox.command(&["top", "--json", "--interval", "100ms"]);
    let mut json = json.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(json.stdout.take().unwrap()).lines();
    let read = |line: &str| -> Value {
        json_reference::compare(&["top", "--json"], line, &mut Found::new());
        serde_json::from_str(line).unwrap()
    };
    for _ in 0..3 {
        let line = read(&lines.next().unwrap().unwrap());
        assert_eq!((&line["name"], &line["state"]), (&json!("chain"), &json!("running")), "{line:#}");
        assert_eq!(line["apps"].as_array().unwrap().len(), 5);
        assert!(line["links"][0]["packets_per_second"].as_f64().unwrap() > 0.0, "{line:#}");
    }
    let mut plain = sandbox.command(&["top", "--interval", "100ms", "--sort", "app"]);
    let mut plain = plain.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut tables = BufReader::new(plain.stdout.take().unwrap());
    let mut text = String::new();
    while text.matches("APP▲").count() < 2 {
        assert!(tables.read_line(&mut text).unwrap() > 0, "{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");
    assert!(text.find("count1 ").unwrap() < text.find("source ").unwrap(), "{text}");
    sandbox.bellows(&["stop"]).success();
    running.wait().success();
    let last = lines.map(|line| read(&line.unwrap())).last().unwrap();
    assert_eq!(last["state"], json!("ended"), "{last:#}");
    assert!(json.wait().unwrap().success());
    drop(tables);
    plain.wait().unwrap();
    let said = sandbox.bellows(&["top", "--sort", "colour"]);
    assert!(said.code == Some(2) && said.stderr.contains("drop-rate"), "{said:?}");
}

/// Runs a shell with the command's script followed by these lines, and returns its output.
fn shell(sandbox: &Sandbox, shell: &str, prelude: &str, lines: &str) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_bellows"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let script = sandbox.bellows(&["completions", shell]).success().stdout;
    let file = sandbox.write(&format!("script.{shell}"), &format!("{prelude}\n{script}\n{lines}\n"));
    let mut command = Command::new(shell);
    if shell == "zsh" {
        command.arg("-f");
    }
    command
        .arg(file)
        .env("PATH", path)
        .env("BELLOWS_RUNTIME_DIR", sandbox.path("run/bellows"))
        .env("BELLOWS_STATE_DIR", sandbox.path("state"))
        .env("HOME", sandbox.path("."));
    let said: Said = command.current_dir(sandbox.path(".")).stdin(Stdio::null()).output().unwrap().into();
    said.stdout
}

/// Words to complete, and one of the candidates for each.
const COMPLETED: [(&[&str], &str); 9] = [
    (&["show", "lat"], "latency"),
    (&["show", "interf"], "interfaces"),
    (&["show", "end"], "endless"),
    (&["show", "links", ""], "endless"),
    (&["stop", ""], "endless"),
    (&["apps", "pcap-r"], "pcap-reader"),
    (&["appbench", "te"], "tee"),
    (&["trace", "--app", "so"], "source"),
    (&["check", "endl"], "endless.toml"),
];

#[test]
fn bash_completes_the_current_names() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let _running = sandbox.start(&[&network]);
    let mut lines = String::new();
    for (words, _) in COMPLETED.iter().chain([&(&["tap", "endless", ""][..], "")]) {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let (at, last) = (words.len(), quoted.last().unwrap());
        let _ = writeln!(
            lines,
            "COMP_WORDS=(bellows {}) COMP_CWORD={at} COMP_TYPE=9; COMPREPLY=()\n\
             _clap_complete_bellows bellows {last} x 2>/dev/null; printf '%s,' \"${{COMPREPLY[@]}}\"; echo",
            quoted.join(" ")
        );
    }
    let said = shell(&sandbox, "bash", "", &lines);
    let answers: Vec<&str> = said.lines().collect();
    for ((words, wanted), answer) in COMPLETED.iter().zip(&answers) {
        assert!(answer.split(',').any(|candidate| candidate == *wanted), "{words:?}: {answer} in {said}");
    }
    assert!(
        answers[COMPLETED.len()].starts_with("'source.output -> end.input',"),
        "quoted, for it holds blanks: {said}"
    );
}

#[test]
fn zsh_completes_the_current_names() {
    if !has_program("zsh_completes_the_current_names", "zsh") {
        return;
    }
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let _running = sandbox.start(&[&network]);
    // A stand-in for the completion system: keep the function, and show the candidates.
    let prelude = "compdef() { }\n_describe() { print -r -- ${(P)@[-1]} }";
    let mut lines = String::new();
    for (words, _) in COMPLETED {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let at = words.len() + 1;
        let _ = writeln!(
            lines,
            "words=(bellows {}) CURRENT={at}; _clap_dynamic_completer_bellows; print -r -- END",
            quoted.join(" ")
        );
    }
    let said = shell(&sandbox, "zsh", prelude, &lines);
    for ((words, wanted), answer) in COMPLETED.iter().zip(said.split("END\n")) {
        assert!(answer.contains(wanted), "{words:?}: {answer} in {said}");
    }
}

#[test]
fn fish_completes_the_current_names() {
    if !has_program("fish_completes_the_current_names", "fish") {
        return;
    }
    let sandbox = Sandbox::new();
    let network = sandbox.write("endless.toml", ENDLESS);
    let _running = sandbox.start(&[&network]);
    let mut lines = String::new();
    for (words, _) in COMPLETED {
        let _ = writeln!(lines, "complete --do-complete 'bellows {}'; echo END", words.join(" "));
    }
    let said = shell(&sandbox, "fish", "", &lines);
    for ((words, wanted), answer) in COMPLETED.iter().zip(said.split("END\n")) {
        let found = answer.lines().any(|line| line.split('\t').next() == Some(wanted));
        assert!(found, "{words:?}: {answer} in {said}");
    }
}

#[test]
fn a_switch_for_measurements_has_a_value_that_means_something() {
    let said = |switch: &str| Sandbox::new().launched_by(&["env", switch]).bellows(&["apps", "tee"]);
    for (wrong, right) in [
        ("BELLOWS_SIMD=sse9", "BELLOWS_SIMD=baseline"),
        ("BELLOWS_HUGE_PAGES=all", "BELLOWS_HUGE_PAGES=packets"),
        ("BELLOWS_ARENA=on", "BELLOWS_ARENA=off"),
    ] {
        let refused = said(wrong);
        assert_eq!(refused.code, Some(2), "{refused:?}");
        let (variable, value) = right.split_once('=').unwrap();
        let error = format!("error: the environment variable {variable} is ");
        assert!(refused.stderr.starts_with(&error) && refused.stderr.contains(value), "{refused:?}");
        said(right).success();
        said(&format!("{variable}=")).success();
    }
}

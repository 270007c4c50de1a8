//! Every command names a network in the same way: by `-n`, and by a word where nothing else can be meant.

use crate::support::{ENDLESS, Said, Sandbox};

/// Commands that are about files, or about all networks at once.
const WITHOUT_NAME: [&str; 13] = [
    "check",
    "apps",
    "schema",
    "filter",
    "metrics",
    "web",
    "appbench",
    "bench",
    "breathsim",
    "campaign",
    "new",
    "completions",
    "man",
];

/// Command lines in which `NAME` stands where the name of a network may be a word.
const WORDS: [&[&str]; 30] = [
    &["show", "NAME"],
    &["show", "links", "NAME"],
    &["show", "NAME", "links"],
    &["show", "mac", "NAME"],
    &["show", "saved", "NAME"],
    &["show", "vhost", "NAME"],
    &["show", "status", "NAME"],
    &["top", "NAME", "--once"],
    &["trace", "NAME", "--for", "2s", "-c", "1"],
    &["tap", "NAME", "source.output -> end.input", "-c", "1"],
    &["route", "NAME"],
    &["route", "show", "NAME"],
    &["route", "NAME", "show"],
    &["route", "flush", "NAME", "all"],
    &["neighbour", "NAME"],
    &["neighbour", "show", "NAME"],
    &["neighbour", "flush", "NAME", "all"],
    &["esp", "NAME"],
    &["esp", "show", "NAME"],
    &["esp", "show", "NAME", "pair"],
    &["esp", "rekey", "NAME", "pair", "--inbound", "1", "aes-128-gcm", "none.key"],
    &["esp", "forget", "NAME", "pair"],
    &["clear", "NAME"],
    &["clear", "mac", "NAME"],
    &["timeline", "NAME"],
    &["place", "NAME", "--time", "1s"],
    &["reload", "NAME"],
    &["reload", "NAME", "one.toml"],
    &["confirm", "NAME"],
    &["stop", "NAME"],
];

/// Commands whose names of networks choose from all of them.
const OF_ALL: [&[&str]; 2] = [&["ps", "NAME"], &["events", "NAME"]];

/// Those whose words are names of files.
const OPTION_ONLY: [&[&str]; 1] = [&["graph", "NAME"]];

/// The commands that the help lists.
fn commands(sandbox: &Sandbox) -> Vec<String> {
    let help = sandbox.bellows(&["--help"]).fine().stdout;
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Whether an answer says nothing about names of networks.
fn is_understood(said: &Said) -> bool {
    let complaints =
        ["several networks", "no network named", "Usage:", "twice", "neither", "not an action", "pair `one`"];
    !complaints.iter().any(|complaint| said.stderr.contains(complaint))
}

#[test]
fn every_command_accepts_the_option_and_the_word() {
    let sandbox = Sandbox::new();
    let all = commands(&sandbox);
    assert!(all.len() > 20, "{all:?}");
    let lines = || WORDS.iter().chain(&OF_ALL).chain(&OPTION_ONLY);
    for command in &all {
        let help = sandbox.bellows(&[command, "--help"]).fine().stdout;
        let has_option = help.contains("-n, --name <NAME>");
        assert_eq!(has_option, !WITHOUT_NAME.contains(&&**command), "{command}: {help}");
        let is_walked = command == "run" || lines().any(|words| words[0] == command);
        assert_eq!(has_option, is_walked, "`{command}` lacks a command line in this test");
    }
    let network = sandbox.write("one.toml", ENDLESS);
    let mut running = [sandbox.start(&[&network]), sandbox.start(&[&network, "-n", "two"])];
    let run = |words: &[&str]| match words {
        ["place", options @ ..] => sandbox.place(options),
        words => sandbox.bellows(words),
    };
    for words in lines() {
        let without: Vec<&str> = words.iter().copied().filter(|word| *word != "NAME").collect();
        let said = sandbox.bellows(&without);
        if OF_ALL.contains(words) {
            said.fine();
        } else if !OPTION_ONLY.contains(words) {
            assert!(said.code == Some(2) && said.stderr.contains("name one of one, two with `-n NAME`"), "{said:#?}");
        }
        for name in ["one", "two"].iter().filter(|_| words[0] != "stop") {
            let by_option = run(&[&without[..], &["-n", name]].concat());
            assert!(is_understood(&by_option), "{without:?} -n {name}: {by_option:#?}");
            if !OPTION_ONLY.contains(words) {
                let positional: Vec<&str> =
                    words.iter().map(|word| if *word == "NAME" { name } else { *word }).collect();
                let by_word = run(&positional);
                assert!(is_understood(&by_word), "{positional:?}: {by_word:#?}");
                assert_eq!(by_option.code, by_word.code, "{positional:?}: {by_option:#?} {by_word:#?}");
            }
        }
    }
    let said = sandbox.bellows(&["graph", "two"]);
    assert!(said.code == Some(2) && said.stderr.contains("`bellows graph -n two`"), "{said:#?}");
    for words in [&["stop", "-n", "two"][..], &["stop"]] {
        let (stopped, pid) = if words.len() > 1 { ("two", running[1].pid()) } else { ("one", running[0].pid()) };
        let said = sandbox.bellows(words).fine();
        assert_eq!(said.stderr, format!("stopped `{stopped}` (process {pid})\n"));
    }
    assert!(running.iter_mut().all(|running| !running.is_alive()));
}

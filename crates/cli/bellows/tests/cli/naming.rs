//! Every command names a network in the same way: by `-n`, and by a word where nothing else can be meant.

use bellows::SUBCOMMANDS;

use crate::support::{ENDLESS, Said, Sandbox};

/// The words of a line, with those that stand for a network, a link and a file.
fn words<'l>(line: &'l str, name: &'l str) -> Vec<&'l str> {
    let file = if line.starts_with("esp") { "none.key" } else { "one.toml" };
    let word = |word: &'l str| match word {
        "NAME" => name,
        "LINK" => "source.output -> end.input",
        "FILE" => file,
        word => word,
    };
    line.split(' ').map(word).filter(|word| !word.is_empty()).collect()
}

/// Whether a line has the name behind the option alone.
fn has_option(line: &str) -> bool {
    line.contains("-n NAME")
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
    assert!(SUBCOMMANDS.len() > 20, "{SUBCOMMANDS:?}");
    for entry in SUBCOMMANDS {
        let help = sandbox.bellows(&[entry.name, "--help"]).success().stdout;
        let accepts_option = help.contains("-n, --name <NAME>");
        let has_lines = entry.name == "run" || entry.uses_networks();
        assert_eq!(accepts_option, has_lines, "the lines with networks (`Execute::READS`) of {}", entry.name);
    }
    let network = sandbox.write("one.toml", ENDLESS);
    let mut running = [sandbox.start(&[&network]), sandbox.start(&[&network, "-n", "two"])];
    let run = |words: &[&str]| match words {
        ["place", options @ ..] => sandbox.place(options),
        words => sandbox.bellows(words),
    };
    // Without a name.
    for entry in SUBCOMMANDS {
        for line in entry.reads_all {
            sandbox.bellows(&words(line, "")).success();
        }
        for line in [entry.reads, entry.changes].concat().into_iter().filter(|line| !has_option(line)) {
            let said = sandbox.bellows(&words(line, ""));
            assert!(said.code == Some(2) && said.stderr.contains("name one of one, two with `-n NAME`"), "{said:#?}");
        }
    }
    // Changes that need the option are those that other tests make.
    let changes = SUBCOMMANDS.iter().flat_map(|entry| entry.changes).filter(|line| !has_option(line));
    let reads = SUBCOMMANDS.iter().flat_map(|entry| [entry.reads, entry.reads_all].concat());
    for line in reads.chain(changes.copied()).filter(|line| !line.starts_with("stop")) {
        for name in ["one", "two"] {
            if has_option(line) {
                let by_option = run(&words(line, name));
                assert!(is_understood(&by_option), "{line}: {by_option:#?}");
                continue;
            }
            let by_option = run(&[&words(line, "")[..], &["-n", name]].concat());
            assert!(is_understood(&by_option), "{line} -n {name}: {by_option:#?}");
            let by_word = run(&words(line, name));
            assert!(is_understood(&by_word), "{line}: {by_word:#?}");
            assert_eq!(by_option.code, by_word.code, "{line}: {by_option:#?} {by_word:#?}");
        }
    }
    let said = sandbox.bellows(&["graph", "two"]);
    assert!(said.code == Some(2) && said.stderr.contains("`bellows graph -n two`"), "{said:#?}");
    for words in [&["stop", "-n", "two"][..], &["stop"]] {
        let (stopped, pid) = if words.len() > 1 { ("two", running[1].pid()) } else { ("one", running[0].pid()) };
        let said = sandbox.bellows(words).success();
        assert_eq!(said.stderr, format!("stopped `{stopped}` (process {pid})\n"));
    }
    assert!(running.iter_mut().all(|running| !running.is_alive()));
}

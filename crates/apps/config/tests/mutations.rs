//! Any text is either loaded or refused with diagnostics that render.

mod common;

use std::time::{Duration, Instant};

use bellows_testkit::soak::cases;
use common::loaded;
use proptest::prelude::*;

const NETWORK: &str = r#"include = []
links = ["s.output -> t.input", "t.a -> w.input", "t.b -> m.input"]
[engine]
burst = 64
schedule = "nested"
[apps.s]
app = "source"
size = 100
rate = "${SIZE}k"
mix = [{ size = 64, weight = 7 }, { size = 1500 }]
[apps.t]
app = "tee"
[apps.w]
app = "writer"
path = "${DIR:-out}/é.pcap"
flush = "1.5s"
[apps.m]
app = "monitor"
"#;

/// Loads a text and asserts the invariants of any result. Returns whether it was loaded.
fn consistent(text: &str, set: &[&str]) -> bool {
    match loaded(text, set) {
        Ok(loaded) => {
            assert_eq!(loaded.network.wiring_errors(), []);
            assert_eq!(loaded.warnings.errors(), 0);
            true
        }
        Err(diagnostics) => {
            let entries = diagnostics.to_json();
            assert!(diagnostics.errors() > 0 && !entries.as_array().unwrap().is_empty());
            for report in [diagnostics.render(false), diagnostics.render(true)] {
                assert!(report.contains("error"));
            }
            assert!(!diagnostics.render(false).contains(|c: char| c.is_control() && c != '\n'));
            false
        }
    }
}

/// One change of a text: the position, the length to remove, and the text to insert.
fn edit() -> impl Strategy<Value = (prop::sample::Index, usize, String)> {
    let pieces = prop::sample::select(vec![
        "",
        "\"",
        "'",
        "[",
        "]",
        "{",
        "}",
        "=",
        ".",
        "->",
        "-",
        "\n",
        "\\u001b",
        "\t",
        "\r\n",
        "\u{202e}",
        "界",
        "$",
        "${",
        "}",
        "${X}",
        "0",
        "-1",
        "1e999",
        "nan",
        "99999999999999999999",
        "true",
        "1979-05-27",
        "#",
        "\0",
        "apps",
        "links",
        "engine = 1\n",
        "app = \"tee\"\n",
        "[apps.s]\n",
        "[[apps]]\n",
        "s.output",
        "input",
        ",",
        "\"\"\"",
        "size",
    ]);
    (any::<prop::sample::Index>(), 0usize..12, pieces.prop_map(str::to_owned))
}

fn edited(edits: &[(prop::sample::Index, usize, String)]) -> String {
    let mut text = NETWORK.to_owned();
    for (at, cut, piece) in edits {
        let start = text.floor_char_boundary(at.index(text.len() + 1));
        let end = text.ceil_char_boundary((start + cut).min(text.len()));
        text.replace_range(start..end, piece);
    }
    text
}

#[test]
fn the_unmutated_text_is_valid() {
    assert!(consistent(NETWORK, &[]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(2_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_network_is_loaded_or_refused(edits in prop::collection::vec(edit(), 1..5)) {
        consistent(&edited(&edits), &[]);
    }

    #[test]
    fn any_setting_is_taken_or_refused(key in "(apps|engine|links)(\\.[a-z\"' ]{0,6}){0,3}", value in ".{0,12}") {
        consistent(NETWORK, &[&format!("{key}={value}"), &value]);
    }

    #[test]
    fn any_text_is_loaded_or_refused(text in ".{0,200}") {
        consistent(&text, &[]);
    }
}

/// Each of these texts has the maximum size of a file, and is built to be slow to parse.
#[test]
fn large_invalid_files_are_refused_quickly() {
    let repeated = |piece: &str| piece.repeat((2 << 20) / piece.len());
    let numbered = |line: &dyn Fn(usize) -> String| (0..100_000).map(line).collect::<String>();
    let apps = |count: usize, kind: &str| -> String {
        (0..count).map(|app| format!("[apps.application-{app}]\napp = \"{kind}\"\n")).collect()
    };
    let links = |count: usize| -> String {
        let links: String = (0..count).map(|link| format!("\"aplication-{link}.a -> b{link}.input\",\n")).collect();
        format!("links = [{links}]\n")
    };
    for text in [
        repeated("x"),
        repeated("="),
        repeated("[["),
        repeated("a=1\n"),
        repeated("\"${A"),
        format!("links = [{}]", repeated("1,").split_off(100)),
        format!("links = [{}]", "[".repeat(100_000)),
        format!("a.{}a = 1", "a.".repeat(100_000)),
        format!("[engine]\n{}", numbered(&|line| format!("key-{line} = 1\n"))),
        format!("[apps.s]\napp = \"source\"\n{}", numbered(&|line| format!("key-{line} = 1\n"))),
        numbered(&|line| format!("key-{line} = 1\n")),
        format!("[apps.s]\napp = \"source\"\nmix = [{}]\n", repeated("1,").split_off(100)),
        format!("[apps.s]\napp = \"source\"\nmix = [{}]\n", repeated("{a=1},").split_off(102)),
        format!("[apps.m]\napp = \"monitor\"\ncolumns = [{}]\n", repeated("1,").split_off(100)),
        format!("[apps.w]\napp = \"writer\"\npath = \"{}\"\n", repeated("${DIR:-xxxxxxxxxxxxxxxxxxx}").split_off(100)),
        format!("{}{}", links(20_000), apps(10_000, "sorce")),
        format!("{}{}", links(20_000), apps(10_000, "tee")),
        format!("{}{}", links(30_000), apps(20_000, "tee")),
        "\n".repeat((2 << 20) + 1),
    ] {
        let start = Instant::now();
        assert!(!consistent(&text, &[]));
        let elapsed = start.elapsed();
        assert!(elapsed < Duration::from_secs(20), "{elapsed:?} for {}", &text[..text.len().min(60)]);
    }
}

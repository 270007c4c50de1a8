//! Errors in campaign files.

use bellows_campaign::{PlaceholderValue as LevelValue, Read, ScoreDirection, load, parse};
use proptest::prelude::*;

use crate::support::campaign;

const WHOLE: &str = r#"
name = "options"
seed = 7
repeats = 5
warmup = 1
time_limit = "90 s"
cpus = "0, 2-3"
folder = "programs"
command = ["bench", "-s", "{size}", "{config.options}", "--name={config}", "{run}"]
prepare = [["start", "{size}"], { shell = "echo {config.options}" }]
tidy = ["stop"]
setup = { shell = "modprobe vfio" }
exclude = [{ size = [64, 128], config = "all" }]

[environment]
SIZE = "{size}"

[versions]
bench = ["bench", "--version"]

[factors]
size = [64, 128, 1500, "imix"]
config = [{ label = "base", options = [] }, { label = "all", options = ["--merge", "--indirect"] }]

[[score]]
name = "rate"
unit = "Mpps"
better = "higher"
pattern = '(?<rate>[0-9.]+) Mpps'

[[score]]
name = "lost"
unit = "packets"
json = "stats[0].lost"
from = "stderr"

[disturbance]
steal = 0.01

[[hypothesis]]
name = "all options cost something"
score = "rate"
factor = "config"
compare = ["base", "all"]
where = { size = [1500, "imix"] }
direction = "greater"
margin = 0.5
level = 0.01
explored = 5

[[hypothesis]]
name = "small packets suffer from merging"
score = "rate"
term = ["size", "config"]
compare = [{ size = 1500, config = "all" }, { size = 1500, config = "base" }]
"#;

#[test]
fn a_file_with_everything_is_understood() {
    let campaign = campaign(WHOLE);
    assert_eq!((campaign.seed, campaign.repeats, campaign.warmup), (7, 5, 1));
    assert_eq!(campaign.time_limit.as_secs(), 90);
    assert_eq!(campaign.cpus, [0, 2, 3]);
    let labels = |factor: usize| campaign.factors[factor].levels.iter().map(|level| level.label.as_str());
    assert_eq!(campaign.factors[0].name, "size", "in the order of the file");
    assert_eq!(labels(0).collect::<Vec<_>>(), ["64", "128", "1500", "imix"]);
    let words = ["--merge", "--indirect"].map(str::to_owned).to_vec();
    assert_eq!(campaign.factors[1].levels[1].values["options"], LevelValue::Words(words));
    assert_eq!(campaign.exclusions[0].levels, [(0, vec![0, 1]), (1, vec![1])]);
    assert_eq!((campaign.prepare.len(), campaign.tidy.len(), campaign.setup.len()), (2, 1, 1));
    assert_eq!(campaign.scores[1].read, Read::Json("stats[0].lost".to_owned()));
    let [first, second] = campaign.hypotheses.as_slice() else { panic!() };
    assert_eq!((first.direction, first.margin, first.level, first.explored), (ScoreDirection::Greater, 0.5, 0.01, 5));
    assert_eq!(first.subset["size"], ["1500", "imix"]);
    assert_eq!(second.compare, [["1500", "all"], ["1500", "base"]].map(|cell| cell.map(str::to_owned).to_vec()));
    assert_eq!((second.level, second.direction), (0.05, ScoreDirection::Different));
}

/// Each change of the file, what the error says, its line and the way out.
#[test]
fn mistakes_are_told_with_their_line_and_the_remedy() {
    let cases = [
        ("seed = 7", "sead = 7", "no key `sead`", "did you mean `seed`"),
        ("seed = 7", "seed = -7", "`seed` is not a valid number", "0 or more"),
        ("repeats = 5", "repeats = 0", "`repeats` is not a valid number", "1 to"),
        ("name = \"options\"", "name = 3", "`name` is a text, not a number", "quotes"),
        ("\"{size}\"", "\"{sise}\"", "no factor `sise`", "did you mean `size`"),
        (
            "{config.options}\", \"--name",
            "{config.option}\", \"--name",
            "has no `option`",
            "label = \"base\", option =",
        ),
        (
            "{config.options}\", \"--name",
            "x{config.options}\", \"--name",
            "a list, which cannot be a part",
            "of its own",
        ),
        ("size = [64, 128, 1500, \"imix\"]", "size = [64, 128, 1500, \"imix \"]", "ends with a space", "short word"),
        (
            "{ label = \"base\", options = [] }",
            "{ label = \"base\", options = [\"a\\u0000\"] }",
            "a NUL byte",
            "remove it",
        ),
        (
            "{ label = \"base\", options = [] }",
            "{ label = \"base\", options = \"\\u0000\" }",
            "a NUL byte",
            "remove it",
        ),
        (
            "compare = [{ size = 1500, config = \"all\" }",
            "compare = [{ size = 64, config = \"all\" }",
            "are excluded",
            "`where`",
        ),
        ("{run}", "{run", "a `{` without a `}`", "{factor}"),
        ("modprobe vfio", "modprobe {size}", "not that of a run", "remove the placeholder"),
        ("size = [64, 128, 1500, \"imix\"]", "size = [64, 128, 1500, \"64\"]", "level `64` twice", "remove one"),
        ("size = [64, 128, 1500, \"imix\"]", "size = []", "no levels", "add a level"),
        ("size = [64, 128, 1500, \"imix\"]", "size = 64", "is a list, not a number", "[ …"),
        ("size = [64, 128, 1500, \"imix\"]", "score = [1]", "cannot be called `score`", "another name"),
        ("size = [64, 128, 1500, \"imix\"]", "\"a b\" = [1]", "cannot be called `a b`", "letters"),
        ("{ label = \"base\", options = [] }", "{ options = [] }", "has no `label`", "add label"),
        ("config = \"all\" }]", "config = \"al\" }]", "has no level `al`", "did you mean `all`"),
        ("config = \"all\" }]", "colour = \"all\" }]", "no factor `colour`", "`size`"),
        ("exclude = [{ size = [64, 128], config = \"all\" }]", "exclude = [{}]", "removes all", "name fewer"),
        (
            "config = \"all\" }]",
            "config = \"all\" }, { size = 64, config = \"all\" }]",
            "removes nothing that those before",
            "remove it",
        ),
        (
            "exclude = [{ size = [64, 128], config = \"all\" }]",
            "exclude = [{ config = \"all\" }, { config = \"base\" }]",
            "together remove all",
            "remove one",
        ),
        ("(?<rate>[0-9.]+)", "(?<rate>[0-9.+)", "no regular expression", "(?<score>"),
        ("(?<rate>[0-9.]+)", "([0-9.]+)", "no named group", "(?<score>"),
        ("(?<rate>[0-9.]+) Mpps", "(?<rate>(\\w{900}){900})", "too large", "(?<score>"),
        ("stats[0].lost", "stats[x].lost", "no path into JSON", "results[0]"),
        ("unit = \"packets\"", "", "has no `unit`", "unit ="),
        ("name = \"lost\"", "name = \"rate\"", "two scores `rate`", "of its own"),
        ("json = \"stats[0].lost\"", "reads = \"bellow\"", "no reader `bellow`", "bellows-bench"),
        ("json = \"stats[0].lost\"", "", "exactly one of", "pattern ="),
        (
            "json = \"stats[0].lost\"",
            "json = \"lost\"\nmean = \"geometric\"",
            "`mean` is that of all figures",
            "reads =",
        ),
        ("better = \"higher\"", "better = \"more\"", "no value of `better`", "`higher`"),
        ("time_limit = \"90 s\"", "time_limit = \"90\"", "not a duration", "90 s"),
        ("time_limit = \"90 s\"", "time_limit = 0", "not a duration", "90 s"),
        ("cpus = \"0, 2-3\"", "cpus = \"3-\"", "not a list of processors", "0-3"),
        ("command = [", "command = [1979-05-27, ", "an argument that is a date", "quotes"),
        ("compare = [\"base\", \"all\"]", "compare = [\"base\"]", "has 1 means, not two", "first minus"),
        ("compare = [\"base\", \"all\"]", "compare = [\"base\", \"base\"]", "the same mean twice", "different"),
        ("compare = [\"base\", \"all\"]", "compare = [\"base\", \"al\"]", "no level `al`", "did you mean"),
        ("compare = [\"base\", \"all\"]", "", "no `compare`", "add compare"),
        ("factor = \"config\"", "", "either `factor` or `term`", "add factor"),
        ("factor = \"config\"", "factor = \"confik\"", "no factor `confik`", "did you mean `config`"),
        ("direction = \"greater\"\nmargin = 0.5", "direction = \"equal\"", "only within a `margin`", "margin ="),
        ("level = 0.01", "level = 0.99", "`level` is not a valid number", "to 0.5"),
        ("where = { size", "where = { config = \"all\", size", "a factor of the term", "remove it"),
        ("{ size = 1500, config = \"base\" }", "{ size = 1500 }", "a level for each", "add the missing"),
        ("score = \"rate\"\nfactor", "factor", "does not say which", "add score"),
        ("[versions]", "[versions", "", "TOML"),
    ];
    for (old, new, message, help) in cases {
        assert!(WHOLE.contains(old), "{old}");
        let text = WHOLE.replacen(old, new, 1);
        let diagnostics = parse("test.toml", &text).expect_err(new);
        let json = diagnostics.to_json();
        let is_told = |entry: &serde_json::Value| {
            let has = |key: &str, part: &str| entry[key].as_str().unwrap().contains(part);
            has("message", message) && has("help", help)
        };
        let told = json.as_array().unwrap().iter().find(|entry| is_told(entry));
        let told = told.unwrap_or_else(|| panic!("{new}: no `{message}` with `{help}` in\n{diagnostics}"));
        // The changed line, or for what is missing that of the table.
        let line = 1 + WHOLE[..WHOLE.find(old).unwrap()].matches('\n').count() as u64;
        let found = told["line"].as_u64().unwrap();
        assert!(found.abs_diff(line) <= 6, "{new}: line {found}, not {line}\n{diagnostics}");
        if !new.is_empty() && !message.contains("score") && !message.contains("without") {
            assert!(diagnostics.render(false).contains(&format!("test.toml:{found}:")), "{diagnostics}");
        }
    }
}

#[test]
fn what_is_missing_is_told_without_a_place() {
    let diagnostics = parse("empty.toml", "").unwrap_err();
    let text = diagnostics.render(false);
    for key in ["name", "factors", "command", "score"] {
        assert!(text.contains(&format!("the campaign has no `{key}`")), "{text}");
    }
    assert!(text.contains("empty.toml") && diagnostics.errors() == 4, "{text}");
}

#[test]
fn a_file_that_cannot_be_read_has_a_remedy() {
    let folder = bellows_testkit::scratch();
    let missing = load(&folder.path().join("missing.toml")).unwrap_err().to_string();
    assert!(missing.contains("cannot read") && missing.contains("check the path"), "{missing}");
    let binary = bellows_testkit::scratch::write(&folder, "binary.toml", [0xff, 0xfe]);
    assert!(load(&binary).unwrap_err().to_string().contains("not UTF-8"));
    let large = bellows_testkit::scratch::write(&folder, "large.toml", vec![b' '; 2 << 20]);
    assert!(load(&large).unwrap_err().to_string().contains("larger than 1 MiB"));
    let whole = bellows_testkit::scratch::write(&folder, "whole.toml", WHOLE);
    assert_eq!(load(&whole).unwrap().folder, folder.path().join("programs"));
}

#[test]
fn too_many_combinations_are_refused_before_they_are_counted() {
    let levels = (0..100).map(|level| level.to_string()).collect::<Vec<_>>().join(", ");
    let factors = (0..20).map(|factor| format!("f{factor} = [{levels}]\n")).collect::<String>();
    let text = format!("name = 'x'\ncommand = ['x']\n[factors]\n{factors}[score]\nunit = '1'\njson = 'x'\n");
    assert!(parse("x", &text).unwrap_err().to_string().contains("more than 100000 combinations"));
    let text = WHOLE.replace("repeats = 5", "repeats = 1000000").replace("128, 1500, ", "128, 1500, 9000, 9001, ");
    let error = parse("x", &text).unwrap_err().to_string();
    assert!(error.contains("1000000 repeats of 12 combinations are more than 10000000 runs"), "{error}");
}

/// Pieces of campaign files, so that random texts get past the first lines.
fn piece() -> impl Strategy<Value = String> {
    let lines: Vec<&str> = WHOLE.lines().collect();
    let words = ["[", "]", "{", "}", "=", "\"", "'", "\n", "[[score]]\n", "{size}", "é", "\u{9b}", "0", "1e999", ","];
    prop_oneof![
        6 => proptest::sample::select(lines).prop_map(|line| format!("{line}\n")),
        2 => proptest::sample::select(words.to_vec()).prop_map(str::to_owned),
        1 => ".{0,8}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_text_is_a_campaign_or_has_errors(pieces in proptest::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        if let Err(diagnostics) = parse("fuzz.toml", &text) {
            prop_assert!(diagnostics.errors() > 0);
            let has_controls = diagnostics.render(false).contains(['\u{1b}', '\u{9b}']);
            prop_assert!(!has_controls);
            diagnostics.to_json();
        }
    }

    /// The whole file with one piece replaced, removed or added.
    #[test]
    fn a_damaged_file_is_a_campaign_or_has_errors(
        at in 0..WHOLE.len(), length in 0..40usize, with in "[\\[\\]{}=\"'a-z0-9 \n]{0,6}",
    ) {
        let [start, end] = [at, at + length].map(|at| WHOLE.floor_char_boundary(at));
        let text = format!("{}{with}{}", &WHOLE[..start], &WHOLE[end..]);
        if let Err(diagnostics) = parse("fuzz.toml", &text) {
            prop_assert!(diagnostics.errors() > 0);
            diagnostics.render(true);
        }
    }
}

#[test]
fn a_hypothesis_is_tested_behind_what_was_explored() {
    let text = |repeats: u32| WHOLE.replacen("explored = 5", &format!("explored = 5\nrepeats = {repeats}"), 1);
    assert_eq!(campaign(&text(6)).hypotheses[0].repeats, Some(6));
    let error = bellows_campaign::parse("test.toml", &text(5)).unwrap_err().to_string();
    assert!(error.contains("no block is left that could confirm") && error.contains("more `repeats`"), "{error}");
}

/// What is no file, or too large, is not read to its end, which it may not have.
#[test]
fn only_files_of_some_size_are_read() {
    let folder = bellows_testkit::scratch();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let large = folder.path().join("large");
    std::fs::File::create(&large).unwrap().set_len(10 << 30).unwrap();
    for (path, why) in [
        (pipe.as_path(), "is a device, a pipe or a socket"),
        (std::path::Path::new("/dev/zero"), "is a device, a pipe or a socket"),
        (folder.path(), "is a folder"),
        (large.as_path(), "larger than 1 MiB"),
    ] {
        let error = bellows_campaign::load(path).unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("help"), "{error}");
    }
}

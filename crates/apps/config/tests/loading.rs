//! Loading network files: apps, links, engine settings, includes, variables and `--set`.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use bellows_config::{Diagnostics, EngineConfig, Loaded, Overrides, engine_manual, load};
use bellows_engine::Schedule;
use bellows_packet::pool;
use bellows_testkit::scratch;
use common::{loaded, registry};
use expect_test::expect;

const NETWORK: &str = r#"
links = [
  "source.output -> copy.input",
  "copy.a -> file.input",
  "copy.b -> show.input",
]

[engine]
burst = 64
pool = 4096
large_packets = 32
lossless = true
cpu = 0
schedule = "nested"
name = "lab-1"

[apps.source]
app = "source"
size = 100
rate = "1.5M"
payload = "sequence"
mix = [{ size = 64, weight = 7 }, { size = 1500 }]

[apps.copy]
app = "tee"

[apps.file]
app = "writer"
path = "out.pcap"

[apps.show]
app = "monitor"
"#;

fn good(text: &str, set: &[&str]) -> Loaded {
    assert_eq!(common::wrong_by_schema(text), Some(Vec::new()), "the schema objects to:\n{text}");
    loaded(text, set).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
}

fn fingerprint(loaded: &Loaded, app: &str) -> String {
    let found = loaded.network.apps.iter().find(|spec| spec.name == app);
    found.map(|spec| spec.fingerprint.clone()).unwrap_or_default()
}

#[test]
fn a_network_file_becomes_a_network() {
    let loaded = good(NETWORK, &[]);
    let apps: Vec<String> = loaded.network.apps.iter().map(|app| format!("{app:?}")).collect();
    assert_eq!(apps, ["source: source", "copy: tee", "file: writer", "show: monitor"]);
    let links: Vec<String> = loaded.network.links.iter().map(|link| link.to_string()).collect();
    assert_eq!(links, ["source.output -> copy.input", "copy.a -> file.input", "copy.b -> show.input"]);
    assert_eq!((loaded.network.source.as_str(), loaded.network.text.as_str()), ("net.toml", NETWORK));
    let engine = EngineConfig {
        burst: 64,
        pool: 4096,
        large_packets: 32,
        lossless: true,
        cpu: Some(0),
        schedule: Schedule::Nested,
        name: Some("lab-1".to_owned()),
        ..EngineConfig::default()
    };
    assert_eq!(loaded.engine, engine);
    assert_eq!((loaded.engine.settings().burst, loaded.engine.settings().lossless), (64, true));
    let pool = loaded.engine.pool_config();
    assert_eq!((pool.packets, pool.large_packets, pool.stride), (4096, 32, pool::Config::default().stride));
    assert!(loaded.network.wiring_errors().is_empty() && loaded.warnings.is_empty());
}

#[test]
fn the_schema_limits_the_pool_to_its_maximum_size() {
    let schema = &engine_manual().json()["schema"]["properties"];
    let default = pool::Config::default();
    let too_large = [
        ("pool", pool::Config { packets: usize::MAX, ..default }),
        ("large_packets", pool::Config { large_packets: usize::MAX, ..default }),
    ];
    for (key, config) in too_large {
        let Err(pool::Error::OutOfRange { least, most, .. }) = pool::init(config) else { panic!("{key}") };
        assert_eq!(
            (schema[key]["minimum"].as_u64(), schema[key]["maximum"].as_u64()),
            (Some(least as u64), Some(most as u64)),
            "{key}"
        );
    }
    assert_eq!(EngineConfig::default().pool_config(), default);
}

#[test]
fn a_fingerprint_changes_with_the_app_settings_and_with_nothing_else() {
    let before = good(NETWORK, &[]);
    assert_eq!(
        fingerprint(&before, "source"),
        r#"{"size":100,"count":null,"rate":"1.5M","payload":"sequence","mix":[{"size":64,"weight":7},{"size":1500,"weight":null}]} in "nets""#
    );
    let same = good(&NETWORK.replace("rate = \"1.5M\"\n", "# slowly\nrate = 1_500_000\n"), &[]);
    let other = good(&NETWORK.replace("1.5M", "1.6M"), &[]);
    for app in ["source", "copy", "file", "show"] {
        assert_eq!(fingerprint(&before, app), fingerprint(&same, app));
        assert_eq!(fingerprint(&before, app) == fingerprint(&other, app), app != "source");
    }
}

#[test]
fn any_app_takes_a_prefetch_distance() {
    let before = good(NETWORK, &[]);
    let after = good(&NETWORK.replace("app = \"tee\"", "app = \"tee\"\nprefetch = 8"), &["apps.file.prefetch=0"]);
    let prefetch =
        |loaded: &Loaded| -> Vec<usize> { loaded.network.apps.iter().map(|app| app.info().prefetch).collect() };
    assert_eq!((prefetch(&before), prefetch(&after)), (vec![0, 0, 4, 0], vec![0, 8, 0, 0]));
    for app in ["source", "copy", "file", "show"] {
        let changed = ["copy", "file"].contains(&app);
        assert_eq!(fingerprint(&before, app) != fingerprint(&after, app), changed, "a reload notices {app}");
    }
    assert_ne!(fingerprint(&after, "copy"), fingerprint(&good(NETWORK, &["apps.copy.prefetch=9"]), "copy"));
}

#[test]
fn variables_stand_for_text_and_for_numbers() {
    let text = NETWORK
        .replace("out.pcap", "${DIR}/$$a$b-${NONE:-no}${EMPTY:-thing}${EMPTY}.pcap")
        .replace("size = 100", "size = \"${SIZE}\"")
        .replace("lossless = true", "lossless = \"${NONE:-true}\"")
        .replace("copy.b ->", "copy.${DIR} ->");
    let loaded = good(&text, &[]);
    assert!(fingerprint(&loaded, "file").starts_with(r#"{"path":"out/$a$b-nothing.pcap","#));
    assert!(fingerprint(&loaded, "source").starts_with(r#"{"size":100,"#));
    assert!(loaded.engine.lossless);
    assert_eq!(loaded.network.links[2].to_string(), "copy.out -> show.input");
}

#[test]
fn settings_replace_values_in_files() {
    let set = [
        "apps.source.rate=2M",
        "apps.source.mix=[{ size = 64, weight = 1 }]",
        "apps.file.path = a=b.pcap",
        "apps.\"file\".flush='2s'",
        "apps.show.app=writer",
        "apps.show.path=12.5",
        "engine.burst=0x20",
        "engine.name=12",
    ];
    let loaded = good(NETWORK, &set);
    assert_eq!(
        fingerprint(&loaded, "source"),
        r#"{"size":100,"count":null,"rate":"2M","payload":"sequence","mix":[{"size":64,"weight":1}]} in "nets""#
    );
    assert!(fingerprint(&loaded, "file").starts_with(r#"{"path":"a=b.pcap","flush":"2s","#));
    // A key of type text takes a number as its text.
    assert!(fingerprint(&loaded, "show").starts_with(r#"{"path":"12.5","#));
    assert_eq!((loaded.engine.burst, loaded.engine.name.as_deref()), (32, Some("12")));
    assert!(loaded.text.starts_with(NETWORK) && loaded.text.ends_with("\n# --set engine.name=12\n"));
}

#[test]
fn a_setting_without_a_value_removes_the_key() {
    let given = good(NETWORK, &[]);
    assert!(!fingerprint(&given, "source").contains(r#""rate":null"#), "the file limits it");
    assert!(given.engine.lossless);
    let loaded = good(NETWORK, &["apps.source.rate=", "engine.lossless = "]);
    assert!(fingerprint(&loaded, "source").contains(r#""rate":null"#), "{}", fingerprint(&loaded, "source"));
    assert!(!loaded.engine.lossless);
    assert!(loaded.text.ends_with("\n# --set engine.lossless = \n"), "{}", loaded.text);
    assert_eq!(loaded.warnings.to_string(), "");
    // The last setting wins.
    let again = good(NETWORK, &["apps.source.rate=", "apps.source.rate=2M"]);
    assert!(fingerprint(&again, "source").contains(r#""rate":"2M""#));
    // Removing a missing key is a warning, because it is probably a misspelling.
    let slip = good(NETWORK, &["apps.source.raet="]);
    let warning = slip.warnings.to_string();
    assert!(warning.contains("`raet` is not set") && warning.contains("did you mean `rate`?"), "{warning}");
    // Removing a required key is an error.
    let report = loaded_report(&["apps.file.path="]);
    assert!(report.contains("`path`"), "{report}");
}

fn loaded_report(set: &[&str]) -> String {
    loaded(NETWORK, set).unwrap_err().to_string()
}

#[test]
fn unambiguous_ports_may_be_omitted() {
    let short = NETWORK
        .replace("source.output -> copy.input", "source -> copy")
        .replace("copy.a -> file.input", "copy -> file.input")
        .replace("copy.b -> show.input", "copy->show");
    let links =
        |text: &str| -> Vec<String> { good(text, &[]).network.links.iter().map(|link| link.to_string()).collect() };
    assert_eq!(links(&short), ["source.output -> copy.input", "copy.file -> file.input", "copy.show -> show.input"]);
    let dotted = short.replace("copy->show", "copy.x -> my.show").replace("[apps.show]", "[apps.\"my.show\"]");
    assert_eq!(links(&dotted)[2], "copy.x -> my.show.input");
    let taken = short.replace("copy -> file.input", "copy.show -> file.input");
    assert_eq!(links(&taken)[1..], ["copy.show -> file.input", "copy.show-2 -> show.input"]);
}

#[test]
fn a_path_in_a_setting_is_relative_to_the_current_directory() {
    let path = |set: &[&str]| {
        let loaded = good(NETWORK, set);
        fingerprint(&loaded, "file").rsplit_once(" in ").unwrap().1.to_owned()
    };
    assert_eq!(path(&[]), r#""nets""#);
    assert_eq!(path(&["apps.file.path=other.pcap"]), r#""nets" with paths as set"#);
    assert_eq!(path(&["apps.file.path=\"other.pcap\""]), r#""nets" with paths as set"#);
    assert_eq!(path(&["apps.file.path=/tmp/other.pcap", "apps.file.flush=2s"]), r#""nets""#);
    // The path in the error shows the folder that it is relative to.
    let wrong = |set: &[&str]| loaded(&NETWORK.replace("out.pcap", "out"), set).unwrap_err().to_string();
    assert!(wrong(&[]).contains("`nets/out` does not say"), "{}", wrong(&[]));
    assert!(wrong(&["apps.file.path=here"]).contains("`here` does not say"));
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (name, text) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// Writes files into a new folder and loads `net.toml` there. Reports call the folder `DIR`.
fn from_files(files: &[(&str, &str)]) -> Result<(Loaded, PathBuf), String> {
    let folder = scratch();
    write(folder.path(), files);
    let loaded = load(&folder.path().join("net.toml"), &registry(), &Overrides::default());
    let shown = folder.path().display().to_string();
    let shorten = |diagnostics: Diagnostics| diagnostics.render(false).replace(&shown, "DIR");
    loaded.map(|loaded| (loaded, folder.path().to_owned())).map_err(shorten)
}

#[test]
fn files_include_others_relative_to_themselves() {
    let (loaded, folder) = from_files(&[
        ("net.toml", "include = [\"parts/ends.toml\"]\nlinks = [\"s.output -> t.input\"]\n[engine]\nburst = 9\n"),
        ("parts/ends.toml", "include = [\"more/tee.toml\"]\nlinks = [\"t.a -> w.input\"]\n[apps.w]\napp = \"writer\"\npath = \"w.pcap\"\n[apps.s]\napp = \"source\"\n"),
        ("parts/more/tee.toml", "[apps.t]\napp = \"tee\"\n[engine]\nlossless = true\n"),
    ])
    .unwrap();
    let names: Vec<&str> = loaded.network.apps.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(names, ["t", "w", "s"]);
    let links: Vec<String> = loaded.network.links.iter().map(|link| link.to_string()).collect();
    assert_eq!(links, ["t.a -> w.input", "s.output -> t.input"]);
    assert_eq!((loaded.engine.burst, loaded.engine.lossless), (9, true));
    let files = ["net.toml", "parts/ends.toml", "parts/more/tee.toml"].map(|file| folder.join(file));
    assert_eq!(loaded.files, files);
    assert!(fingerprint(&loaded, "w").ends_with(&format!("in {:?}", folder.join("parts"))));
    assert!(loaded.text.contains("[engine]\nburst = 9\n\n# ") && loaded.text.contains("lossless = true"));
}

#[test]
fn a_file_that_cannot_be_read_is_named_with_the_reason() {
    let missing = load(Path::new("no/such.toml"), &registry(), &Overrides::default()).unwrap_err();
    assert_eq!(
        missing.render(false),
        "error: cannot read `no/such.toml`: there is no folder `no`\n--> no/such.toml\n = help: check the path, or create the \
         folder\n"
    );
    assert_eq!(missing.files(), [Path::new("no/such.toml")]);
    let report = from_files(&[("net.toml", "include = [\"other.toml\",\n  \".\"]\n")]).unwrap_err();
    expect![[r#"
        error: cannot read `DIR/other.toml`: it does not exist
         --> DIR/net.toml:1:12
          |
        1 | include = ["other.toml",
          |            ^^^^^^^^^^^^ included here
          |
          = help: check the path, or create the file

        error: cannot read `DIR/.`: it is a folder
         --> DIR/net.toml:2:3
          |
        2 |   "."]
          |   ^^^ included here
          |
          = help: name a TOML file
    "#]]
    .assert_eq(&report);
}

#[test]
fn files_included_twice_are_shown_at_both_places() {
    let report = from_files(&[
        ("net.toml", "include = [\"a.toml\", \"b.toml\"]\n[apps.m]\napp = \"monitor\"\n[engine]\nburst = 9\n"),
        ("a.toml", "include = [\"net.toml\"]\n[engine]\nburst = 8\n[apps.m]\napp = \"monitor\"\n"),
        ("b.toml", "include = [\"./a.toml\"]\n"),
    ])
    .unwrap_err();
    let expected = r#"error: `DIR/a.toml` is included twice
 --> DIR/b.toml:1:12
  |
1 | include = ["./a.toml"]
  |            ^^^^^^^^^^ included again here
  |
 ::: DIR/net.toml:1:12
  |
1 | include = ["a.toml", "b.toml"]
  |            -------- first included here
  |
  = help: remove one `include`: each file is part of the network once
"#;
    assert!(report.contains("error: `DIR/net.toml` includes itself\n --> DIR/a.toml:1:12\n"), "{report}");
    assert!(report.contains("error: there are two apps named `m`\n --> DIR/net.toml:2:7\n"), "{report}");
    assert!(report.contains(" ::: DIR/a.toml:4:7\n"), "{report}");
    assert!(report.contains("error: `engine.burst` is set in two files\n --> DIR/net.toml:5:1\n"), "{report}");
    assert!(report.replace("DIR/./", "DIR/").contains(expected), "{report}");
}

#[test]
fn a_file_that_is_not_text_is_refused() {
    let folder = scratch();
    let path = folder.path().join("net.toml");
    fs::write(&path, b"# caf\xc3\xa9\nlinks = [] # \xff\n").unwrap();
    let diagnostics = load(&path, &registry(), &Overrides::default()).unwrap_err();
    let entry = &diagnostics.to_json()[0];
    assert_eq!((entry["message"].as_str(), entry["line"].as_u64()), (Some("the file is not UTF-8 text"), Some(2)));
    assert_eq!(entry["column"], 14);
}

#[test]
fn an_app_without_links_causes_a_warning() {
    let loaded = good(&format!("{NETWORK}\n[apps.idle]\napp = \"monitor\"\n"), &[]);
    assert_eq!((loaded.warnings.errors(), loaded.warnings.warnings()), (0, 1));
    assert!(loaded.warnings.to_string().starts_with("warning: `idle` is linked to nothing\n  --> net.toml:"));
}

#[test]
fn diagnostics_are_available_as_json() {
    let text = "links = [\n \"s.output -> m.input\", \"s.output -> n.input\"]\n[apps.s]\napp = \"source\"\n";
    let text = format!("{text}[apps.m]\napp = \"monitor\"\n[apps.n]\napp = \"monitor\"\n");
    let diagnostics = loaded(&text, &[]).unwrap_err();
    assert_eq!((diagnostics.errors(), diagnostics.warnings()), (1, 0));
    let expected = serde_json::json!([{
        "severity": "error",
        "message": "the output `s.output` is linked twice",
        "file": "net.toml", "line": 2, "column": 26, "end_line": 2, "end_column": 34,
        "label": "linked again here",
        "help": ["put an app that copies packets between, such as `tee`"],
        "related": [{
            "file": "net.toml", "line": 2, "column": 3, "end_line": 2, "end_column": 11, "label": "first linked here",
        }],
    }]);
    assert_eq!(diagnostics.to_json(), expected);
    assert!(diagnostics.render(true).contains("\u{1b}["));
}

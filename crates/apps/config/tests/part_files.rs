//! Compound apps that files describe: ports, parameters, places of errors, and what a reload sees.

mod common;

use std::fs;

use bellows_config::{Diagnostics, Loaded, Overrides, load};
use bellows_testkit::scratch::{TempDir, scratch};
use bellows_testkit::soak::cases;
use common::registry;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use serde_json::Value;

/// A network in a folder of its own.
struct Files {
    folder: TempDir,
}

/// Copies packets, and writes the copies to a file.
const RECORDER: &str = r#"links = ["copy.file -> write.input"]

[ports]
inputs = { input = "copy.input" }
outputs = { output = "copy.rest" }

[parameters.path]
type = "path"
doc = "The file."

[parameters.flush]
type = "duration"
default = "2s"

[parameters.append]
type = "boolean"
optional = true

[apps.copy]
app = "tee"

[apps.write]
app = "writer"
path = "$path"
flush = "$flush"
append = "$append"
"#;

const NETWORK: &str = r#"links = ["s -> record", "record -> m"]

[apps.s]
app = "source"

[apps.record]
network = "parts/recorder.toml"
with = { path = "out.pcap" }

[apps.m]
app = "monitor"
"#;

impl Files {
    fn new(network: &str, parts: &[(&str, &str)]) -> Files {
        let folder = scratch();
        fs::create_dir(folder.path().join("parts")).unwrap();
        let files = Files { folder };
        files.write("net.toml", network);
        for (name, text) in parts {
            files.write(&format!("parts/{name}"), text);
        }
        files
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.folder.path().join(name), text).unwrap();
    }

    fn load(&self, set: &[&str]) -> Result<Loaded, Diagnostics> {
        let overrides = Overrides::new(set.iter().copied()).with_variables([("DIR".to_owned(), "out".to_owned())]);
        load(&self.folder.path().join("net.toml"), &registry(), &overrides)
    }

    fn loaded(&self, set: &[&str]) -> Loaded {
        self.load(set).unwrap_or_else(|diagnostics| panic!("{diagnostics}"))
    }

    /// The report of errors, with short paths.
    fn report(&self, set: &[&str]) -> String {
        let Err(diagnostics) = self.load(set) else { panic!("it was loaded") };
        self.short(&diagnostics.render(false))
    }

    fn short(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

/// Asserts that a network with this file of a part is refused with exactly this report.
#[track_caller]
fn refused(network: &str, part: &str, set: &[&str], expected: Expect) {
    let report = Files::new(network, &[("recorder.toml", part)]).report(set);
    expected.assert_eq(&report);
}

fn fingerprint<'l>(loaded: &'l Loaded, app: &str) -> &'l str {
    &loaded.network.apps.iter().find(|spec| spec.name == app).unwrap().fingerprint
}

#[test]
fn a_file_becomes_its_parts() {
    let files = Files::new(NETWORK, &[("recorder.toml", RECORDER)]);
    let loaded = files.loaded(&[]);
    let names: Vec<&str> = loaded.network.apps.iter().map(|app| app.name.as_str()).collect();
    assert_eq!(names, ["s", "record/copy", "record/write", "m"]);
    let links: Vec<String> = loaded.network.links.iter().map(ToString::to_string).collect();
    assert_eq!(
        links,
        ["s.output -> record/copy.input", "record/copy.rest -> m.input", "record/copy.file -> record/write.input",]
    );
    let read: Vec<String> = loaded.files.iter().map(|file| files.short(&file.display().to_string())).collect();
    assert_eq!(read, ["net.toml", "parts/recorder.toml"], "the files to watch");
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
}

#[test]
fn values_come_from_with_from_defaults_and_from_settings() {
    let config = |set: &[&str], network: &str| {
        let files = Files::new(network, &[("recorder.toml", RECORDER)]);
        let loaded = files.loaded(set);
        let (config, _) = fingerprint(&loaded, "record/write").split_once(" in ").unwrap();
        config.to_owned()
    };
    assert_eq!(config(&[], NETWORK), r#"{"path":"out.pcap","flush":"2s","append":false}"#);
    let given = NETWORK.replace("\"out.pcap\"", "\"${DIR}.pcap\", flush = \"3s\", append = true");
    assert_eq!(config(&[], &given), r#"{"path":"out.pcap","flush":"3s","append":true}"#);
    let set = ["apps.record.with.flush=4s", "apps.record.with.append=true"];
    assert_eq!(config(&set, NETWORK), r#"{"path":"out.pcap","flush":"4s","append":true}"#);
    let set = ["apps.record.parts.write.flush=5s"];
    assert_eq!(config(&set, &given), r#"{"path":"out.pcap","flush":"5s","append":true}"#);
}

#[test]
fn paths_are_relative_to_the_file_that_gives_them() {
    let files = Files::new(NETWORK, &[("recorder.toml", RECORDER)]);
    let short = |set: &[&str], part: &str| {
        files.write("parts/recorder.toml", part);
        let loaded = files.loaded(set);
        let folder = files.folder.path().display().to_string();
        fingerprint(&loaded, "record/write").split_once(" in ").unwrap().1.replace(&folder, "")
    };
    assert_eq!(short(&[], RECORDER), r#""/parts" with paths in """#, "`with` is in the network file");
    assert_eq!(short(&[], &RECORDER.replace("$path", "own.pcap")), r#""/parts""#);
    let set = ["apps.record.parts.write.path=x.pcap"];
    assert_eq!(short(&set, RECORDER), r#""/parts" with paths as set"#);
    let network = NETWORK.replace("[apps.m]", "parts.write.path = \"x.pcap\"\n[apps.m]");
    files.write("net.toml", &network);
    assert_eq!(short(&[], RECORDER), r#""/parts" with paths in """#);
    let set = ["apps.record.with.path=x.pcap"];
    files.write("net.toml", NETWORK);
    assert_eq!(short(&set, RECORDER), r#""/parts" with paths as set"#);
}

#[test]
fn parameters_are_whole_values_or_parts_of_texts() {
    let part = RECORDER.replace("\"$path\"", "\"${DIR}/${path}-${flush}-$$path.pcap\"");
    let files = Files::new(NETWORK, &[("recorder.toml", &part)]);
    let loaded = files.loaded(&[]);
    let config = fingerprint(&loaded, "record/write");
    assert!(config.starts_with(r#"{"path":"out/out.pcap-2s-$path.pcap""#), "{config}");
    let numbers = RECORDER.replace("\"boolean\"\noptional = true", "\"any\"\ndefault = [1]");
    let numbers = numbers.replace("\"$flush\"", "\"${append}\"");
    refused(
        NETWORK,
        &numbers,
        &[],
        expect![[r#"
            error: `append` must be `true` or `false`
              --> parts/recorder.toml:17:11
               |
            17 | default = [1]
               |           ^^^ this is a list
               |
              ::: net.toml:7:11
               |
             7 | network = "parts/recorder.toml"
               |           --------------------- used by `record` here

            error: the parameter `append` cannot be part of a text
              --> parts/recorder.toml:25:10
               |
            25 | flush = "${append}"
               |          ^^^^^^^^^ its value is a list
               |
              ::: net.toml:7:11
               |
             7 | network = "parts/recorder.toml"
               |           --------------------- used by `record` here
               |
               = help: write `"$append"` for the whole value
        "#]],
    );
}

#[test]
fn objects_and_further_files_belong_to_the_part() {
    let outer = r#"
[ports]
inputs.input = "inner"
outputs.output = "inner.output"
[parameters.file]
type = "path"
[apps.inner]
network = "recorder.toml"
with.path = "$file"
worker = "disk"
"#;
    let network = NETWORK.replace("recorder.toml", "outer.toml").replace("{ path", "{ file");
    let files = Files::new(&(network + "[workers.disk]\n"), &[("outer.toml", outer), ("recorder.toml", RECORDER)]);
    let loaded = files.loaded(&["apps.record.parts.inner.parts.copy.worker=main"]);
    let workers: Vec<_> = loaded.network.apps.iter().map(|app| (app.name.as_str(), app.worker.as_str())).collect();
    assert_eq!(workers, [("s", "main"), ("record/inner/copy", "main"), ("record/inner/write", "disk"), ("m", "main")]);
    let folder = format!("{:?}", files.folder.path());
    let place = fingerprint(&loaded, "record/inner/write");
    assert!(place.ends_with(&format!("with paths in {folder}")), "through both files: {place}");
    assert_eq!(loaded.files.len(), 3);
    files.write("parts/recorder.toml", &RECORDER.replace("\"2s\"", "\"2\""));
    let report = files.report(&[]);
    assert!(report.contains("parts/recorder.toml:13:11") && report.contains("parts/outer.toml:8:11"), "{report}");
}

#[test]
fn a_file_that_changes_changes_only_its_apps() {
    let files = Files::new(NETWORK, &[("recorder.toml", RECORDER)]);
    let before: Vec<String> = files.loaded(&[]).network.apps.iter().map(|app| app.fingerprint.clone()).collect();
    files.write("parts/recorder.toml", &RECORDER.replace("\"2s\"", "\"9s\""));
    let after: Vec<String> = files.loaded(&[]).network.apps.iter().map(|app| app.fingerprint.clone()).collect();
    let changed: Vec<bool> = before.iter().zip(&after).map(|(before, after)| before != after).collect();
    assert_eq!(changed, [false, false, true, false]);
}

#[test]
fn files_with_errors_are_watched_as_well() {
    let files = Files::new(NETWORK, &[("recorder.toml", "x =")]);
    let wrong = files.load(&[]).unwrap_err();
    assert!(wrong.files().iter().any(|file| file.ends_with("parts/recorder.toml")));
    let files = Files::new(NETWORK, &[]);
    let wrong = files.load(&[]).unwrap_err();
    assert!(wrong.files().iter().any(|file| file.ends_with("parts/recorder.toml")));
}

#[test]
fn a_file_that_cannot_be_read_is_named_where_it_is_used() {
    let report = Files::new(NETWORK, &[]).report(&[]);
    expect![[r#"
        error: cannot read `parts/recorder.toml`: it does not exist
         --> net.toml:7:11
          |
        7 | network = "parts/recorder.toml"
          |           ^^^^^^^^^^^^^^^^^^^^^ named here
          |
          = help: check the path, or create the file
    "#]]
    .assert_eq(&report);
}

#[test]
fn syntax_errors_are_in_the_file() {
    refused(
        NETWORK,
        "links = [\n[apps.x]\n",
        &[],
        expect![[r#"
            error: this is not TOML: string values must be quoted
             --> parts/recorder.toml:2:2
              |
            2 | [apps.x]
              |  ^^^^^^ expected literal string
              |
             ::: net.toml:7:11
              |
            7 | network = "parts/recorder.toml"
              |           --------------------- used here
              |
              = help: is the list before this line closed with `]`?
        "#]],
    );
}

#[test]
fn wrong_values_of_parameters_are_where_they_are_given() {
    let network = NETWORK.replace("path = \"out.pcap\"", "pth = 3, flush = \"x\"");
    refused(
        &network,
        RECORDER,
        &[],
        expect![[r#"
            error: `with` for `parts/recorder.toml` needs the key `path`
             --> net.toml:8:8
              |
            8 | with = { pth = 3, flush = "x" }
              |        ^^^^^^^^^^^^^^^^^^^^^^^^ missing here
              |
              = help: add `path = …` (text)

            error: `with` for `parts/recorder.toml` has no key `pth`
             --> net.toml:8:10
              |
            8 | with = { pth = 3, flush = "x" }
              |          ^^^ did you mean `path`?
              |
              = help: its keys: `path`, `flush`, `append`

            error: `flush`: `x` is not a duration
             --> net.toml:8:27
              |
            8 | with = { pth = 3, flush = "x" }
              |                           ^^^
              |
              = help: write it with its unit (`ns`, `us`, `ms`, `s`, `m` or `h`), like `10s`, `1.5ms`, `200us`, `3m`
        "#]],
    );
}

#[test]
fn values_that_a_part_refuses_are_where_they_are_given() {
    refused(
        &NETWORK.replace("out.pcap", "out"),
        RECORDER,
        &[],
        expect![[r#"
            error: `record/write`: `out` does not say what kind of file it is
             --> net.toml:8:17
              |
            8 | with = { path = "out" }
              |                 ^^^^^
              |
              = help: let it end in `.pcap` or `.pcapng`
        "#]],
    );
}

#[test]
fn errors_in_the_file_name_the_app_that_uses_it() {
    let part = RECORDER.replace("\"writer\"", "\"writr\"").replace("$flush", "$flsh");
    refused(
        NETWORK,
        &part,
        &[],
        expect![[r#"
            error: there is no app type `writr`
              --> parts/recorder.toml:23:7
               |
            23 | app = "writr"
               |       ^^^^^^^ did you mean `writer`?
               |
              ::: net.toml:7:11
               |
             7 | network = "parts/recorder.toml"
               |           --------------------- used by `record` here
               |
               = help: there are `monitor`, `source`, `tee`, `writer`

            error: there is no parameter `flsh`
              --> parts/recorder.toml:25:9
               |
            25 | flush = "$flsh"
               |         ^^^^^^^ did you mean `$flush`?
               |
              ::: net.toml:7:11
               |
             7 | network = "parts/recorder.toml"
               |           --------------------- used by `record` here
               |
               = help: the file has `append`, `flush`, `path`; for a text that starts with a dollar sign write `$$flsh`
        "#]],
    );
}

#[test]
fn errors_of_a_file_that_is_used_twice_are_reported_once() {
    let twice = NETWORK.replace("record -> m", "record -> other\", \"other -> m");
    let twice = twice + "[apps.other]\nnetwork = \"parts/recorder.toml\"\nwith.path = \"other.pcap\"\n";
    refused(
        &twice,
        &RECORDER.replace("\"$flush\"", "7"),
        &[],
        expect![[r#"
            error: `flush` must be a duration such as `10s` or `1.5ms`
              --> parts/recorder.toml:25:9
               |
            25 | flush = 7
               |         ^ this is an integer
               |
              ::: net.toml:7:11
               |
             7 | network = "parts/recorder.toml"
               |           --------------------- used by `record` here
        "#]],
    );
}

#[test]
fn links_of_the_file_are_checked_with_its_names() {
    refused(
        NETWORK,
        &RECORDER.replace("copy.file ->", "coppy.file ->"),
        &[],
        expect![[r#"
            error: there is no app `coppy`
             --> parts/recorder.toml:1:11
              |
            1 | links = ["coppy.file -> write.input"]
              |           ^^^^^ did you mean `copy`?
              |
             ::: net.toml:7:11
              |
            7 | network = "parts/recorder.toml"
              |           --------------------- used by `record` here
              |
              = help: `record` has `copy`, `write`
        "#]],
    );
}

#[test]
fn ports_of_the_file_are_checked() {
    let part = RECORDER.replace("cpy.input", "").replace("\"copy.input\"", "\"cpy.input\"");
    refused(
        NETWORK,
        &part.replace("copy.rest", "copy.file"),
        &[],
        expect![[r#"
            error: there is no app `cpy`
             --> parts/recorder.toml:4:20
              |
            4 | inputs = { input = "cpy.input" }
              |                    ^^^^^^^^^^^ did you mean `copy`?
              |
             ::: net.toml:7:11
              |
            7 | network = "parts/recorder.toml"
              |           --------------------- used by `record` here
              |
              = help: `record` has `copy`, `write`

            error: the output `output` of `record`: `copy.file` is linked between the parts as well
             --> parts/recorder.toml:5:22
              |
            5 | outputs = { output = "copy.file" }
              |                      ^^^^^^^^^^^
              |
             ::: net.toml:7:11
              |
            7 | network = "parts/recorder.toml"
              |           --------------------- used by `record` here
              |
              = help: put an app that copies packets between, such as `tee`
        "#]],
    );
}

#[test]
fn ports_that_the_file_does_not_have_are_answered_with_those_it_has() {
    refused(
        &NETWORK.replace("\"s -> record\"", "\"s -> record.inptu\""),
        RECORDER,
        &[],
        expect![[r#"
            error: `record` (parts/recorder.toml) has no input `inptu`
             --> net.toml:1:23
              |
            1 | links = ["s -> record.inptu", "record -> m"]
              |                       ^^^^^ did you mean `input`?
              |
              = help: its inputs: `input`
        "#]],
    );
}

#[test]
fn open_ports_are_those_of_the_compound_app() {
    refused(
        &NETWORK.replace("\"s -> record\", ", ""),
        RECORDER,
        &[],
        expect![[r#"
            error: the output `s.output` is not linked
             --> net.toml:3:7
              |
            3 | [apps.s]
              |       ^ `source` needs it: the packets that are made
              |
              = help: add "s.output -> OTHER.INPUT" to `links`

            error: the input `record.input` is not linked
             --> net.toml:6:7
              |
            6 | [apps.record]
              |       ^^^^^^ `parts/recorder.toml` needs it: packets to copy
              |
              = help: add "OTHER.OUTPUT -> record.input" to `links`
        "#]],
    );
}

#[test]
fn links_outside_cannot_name_a_part() {
    refused(
        &NETWORK.replace("\"s -> record\"", "\"s -> record/copy.input\""),
        RECORDER,
        &[],
        expect![[r#"
            error: `record/copy` is a part of `record`
             --> net.toml:1:16
              |
            1 | links = ["s -> record/copy.input", "record -> m"]
              |                ^^^^^^^^^^^^^^^^^ links outside cannot name it
              |
              = help: link one of its inputs: `record.input`
        "#]],
    );
}

#[test]
fn a_file_that_contains_itself_is_refused() {
    refused(
        NETWORK,
        &(RECORDER.to_owned() + "[apps.me]\nnetwork = \"recorder.toml\"\n"),
        &[],
        expect![[r#"
            error: `parts/recorder.toml` contains itself
              --> parts/recorder.toml:28:11
               |
            28 | network = "recorder.toml"
               |           ^^^^^^^^^^^^^^^ this file is already being read
               |
              ::: net.toml:7:11
               |
             7 | network = "parts/recorder.toml"
               |           --------------------- used by `record` here
               |
               = help: name another file: parts within themselves have no end
        "#]],
    );
}

#[test]
fn what_belongs_to_the_network_is_not_in_the_file() {
    let part = RECORDER.to_owned() + "[engine]\nburst = 3\n[paramters]\n";
    refused(
        NETWORK,
        &part,
        &[],
        expect![[r#"
            error: the file of a part has no key `engine`
              --> parts/recorder.toml:27:2
               |
            27 | [engine]
               |  ^^^^^^ unknown key
               |
              ::: net.toml:7:11
               |
             7 | network = "parts/recorder.toml"
               |           --------------------- used here
               |
               = help: the network file has it; `worker` in the table of an app assigns its parts

            error: the file of a part has no key `paramters`
              --> parts/recorder.toml:29:2
               |
            29 | [paramters]
               |  ^^^^^^^^^ did you mean `parameters`?
               |
              ::: net.toml:7:11
               |
             7 | network = "parts/recorder.toml"
               |           --------------------- used here
               |
               = help: it has `links`, `[ports]`, `[parameters.NAME]`, `[apps.NAME]` and `[objects.NAME]`
        "#]],
    );
}

#[test]
fn parameters_are_checked_where_they_are_declared() {
    let part = RECORDER.replace("\"duration\"", "\"time\"").replace("type = \"path\"", "typ = \"path\"");
    refused(
        NETWORK,
        &part,
        &[],
        expect![[r#"
            error: the parameter `path` needs the key `type`
             --> parts/recorder.toml:7:13
              |
            7 | [parameters.path]
              |             ^^^^ missing here
              |
             ::: net.toml:7:11
              |
            7 | network = "parts/recorder.toml"
              |           --------------------- used here
              |
              = help: add `type = …` (one of `text`, `path`, `integer`, `number`, `boolean`, `duration`, `rate`, `bytes`, `fraction`, `list`, `table`, `any`)

            error: the parameter `path` has no key `typ`
             --> parts/recorder.toml:8:1
              |
            8 | typ = "path"
              | ^^^ did you mean `type`?
              |
             ::: net.toml:7:11
              |
            7 | network = "parts/recorder.toml"
              |           --------------------- used here
              |
              = help: its keys: `type`, `default`, `optional`, `doc`

            error: `type` cannot be `time`
              --> parts/recorder.toml:12:8
               |
            12 | type = "time"
               |        ^^^^^^ not one of them
               |
              ::: net.toml:7:11
               |
             7 | network = "parts/recorder.toml"
               |           --------------------- used here
               |
               = help: it is one of `text`, `path`, `integer`, `number`, `boolean`, `duration`, `rate`, `bytes`, `fraction`, `list`, `table`, `any`
        "#]],
    );
}

#[test]
fn keys_beside_network_are_few() {
    let network = NETWORK.replace("with = ", "app = \"tee\"\nwith = ");
    refused(
        &network,
        RECORDER,
        &[],
        expect![[r#"
            error: `record` has both `app` and `network`
             --> net.toml:8:1
              |
            7 | network = "parts/recorder.toml"
              | ------- the file of a compound app
            8 | app = "tee"
              | ^^^ the type of an app
              |
              = help: remove one of them
        "#]],
    );
    let network = NETWORK.replace("with = ", "path = \"x\"\nwith = ");
    refused(
        &network,
        RECORDER,
        &[],
        expect![[r#"
            error: an app with `network` has no key `path`
             --> net.toml:8:1
              |
            8 | path = "x"
              | ^^^^ did you mean `parts`?
              |
              = help: its keys: `network`, `with`, `parts`, `prefetch`, `worker`, `fuse`; parameters of the file belong in `with`
        "#]],
    );
    let network = NETWORK.replace("\"parts/recorder.toml\"", "3").replace("{ path = \"out.pcap\" }", "[1]");
    refused(
        &network,
        RECORDER,
        &[],
        expect![[r#"
            error: `network` must be the path of a file
             --> net.toml:7:11
              |
            7 | network = 3
              |           ^ this is an integer
              |
              = help: write `network = "part.toml"`; the path is relative to this file

            error: `with` must be a table of parameters
             --> net.toml:8:8
              |
            8 | with = [1]
              |        ^^^ this is a list
              |
              = help: write `with = { parameter = value }`
        "#]],
    );
}

#[test]
fn the_file_of_a_part_is_no_network() {
    let files = Files::new(RECORDER, &[]);
    let report = files.report(&[]);
    assert!(
        report.contains("a network file has no key `ports`") && report.contains("names with `network`"),
        "{report}"
    );
}

/// Each level has ten of the next, so all together would be far too many.
#[test]
fn a_network_that_explodes_is_refused_at_once() {
    let level =
        |next: &str| -> String { (0..10).map(|index| format!("[apps.a{index}]\nnetwork = \"{next}\"\n")).collect() };
    let parts: Vec<(String, String)> =
        (0..14).map(|index| (format!("l{index}.toml"), level(&format!("l{}.toml", index + 1)))).collect();
    let mut parts: Vec<(&str, &str)> = parts.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    parts.push(("l14.toml", "[apps.m]\napp = \"monitor\"\n"));
    let files = Files::new("[apps.all]\nnetwork = \"parts/l0.toml\"\n", &parts);
    let report = files.report(&[]);
    assert!(report.contains("too many apps or links with the parts of its compound apps"), "{report}");
}

/// A large value that many keys have would fill the memory.
#[test]
fn a_value_that_explodes_is_refused() {
    let text = "x".repeat(100_000);
    let apps: String = (0..100).map(|index| format!("[apps.a{index}]\napp = \"writer\"\npath = \"$text\"\n")).collect();
    let part = format!("[parameters.text]\ntype = \"text\"\n{apps}");
    let network = format!("[apps.all]\nnetwork = \"parts/recorder.toml\"\nwith.text = \"{text}\"\n");
    let report = Files::new(&network, &[("recorder.toml", &part)]).report(&[]);
    assert!(report.contains("the variables and parameters make the network too large"), "{}", &report[..2000]);
}

/// The errors that a schema finds in a text.
fn wrong_by(schema: &Value, text: &str) -> Vec<String> {
    let schema = jsonschema::draft202012::new(schema).expect("it is a schema");
    schema.iter_errors(&common::as_json(text).unwrap()).map(|error| error.to_string()).collect()
}

#[test]
fn schemas_know_parts() {
    let (network, part) = (registry().file_schema(), registry().part_schema());
    assert_eq!(wrong_by(&network, NETWORK), [""; 0]);
    assert_eq!(wrong_by(&part, RECORDER), [""; 0]);
    let set = NETWORK.to_owned() + "[apps.record.parts.write]\nflush = \"1s\"\n";
    assert_eq!(wrong_by(&network, &set), [""; 0]);
    for wrong in [
        NETWORK.replace("network = \"parts/recorder.toml\"", "network = 3"),
        NETWORK.replace("with = {", "wth = {"),
        NETWORK.replace("[apps.m]", "prefetch = 65\n[apps.m]"),
    ] {
        assert!(!wrong_by(&network, &wrong).is_empty(), "{wrong}");
    }
    for wrong in [
        RECORDER.replace("\"duration\"", "\"time\""),
        RECORDER.replace("inputs", "input"),
        RECORDER.replace("\"$flush\"", "7"),
        RECORDER.replace("[ports]", "[engine]"),
    ] {
        assert!(!wrong_by(&part, &wrong).is_empty(), "{wrong}");
    }
    assert!(!wrong_by(&network, RECORDER).is_empty(), "a part is no network");
}

/// One change of a text: the position, the length to remove, and the text to insert.
fn edit() -> impl Strategy<Value = (prop::sample::Index, usize, String)> {
    const PIECES: &[&str] = &["", "\"", "$", "${", "}", "$$", "/", ".", "->", "[", "\n", "=", "copy", "path", "x"];
    (any::<prop::sample::Index>(), 0usize..8, prop::sample::select(PIECES).prop_map(str::to_owned))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(200)))]

    /// Whatever is in the file of a part and in the table that uses it, the network is loaded or refused with errors
    /// that have places.
    #[test]
    fn any_file_is_loaded_or_refused(
        edits in prop::collection::vec((any::<bool>(), edit()), 1..4),
        set in prop::sample::select(vec!["", "apps.record.parts.write.flush=1s", "apps.record.with.path=", "apps.record.worker=x"]),
    ) {
        let mut texts = [NETWORK.to_owned(), RECORDER.to_owned()];
        for (is_part, (at, length, text)) in edits {
            let changed = &mut texts[usize::from(is_part)];
            let start = changed.floor_char_boundary(at.index(changed.len()));
            let end = changed.floor_char_boundary((start + length).min(changed.len()));
            changed.replace_range(start..end, &text);
        }
        let files = Files::new(&texts[0], &[("recorder.toml", &texts[1])]);
        let set: Vec<&str> = (!set.is_empty()).then_some(set).into_iter().collect();
        match files.load(&set) {
            Ok(loaded) => {
                prop_assert_eq!(loaded.network.wiring_errors(), vec![]);
                prop_assert_eq!(loaded.warnings.errors(), 0);
            }
            Err(wrong) => {
                prop_assert!(wrong.errors() > 0 && !wrong.to_json().as_array().unwrap().is_empty());
                let report = wrong.render(false);
                prop_assert!(report.contains("error") && report.contains(" --> "), "{}", report);
            }
        }
    }
}

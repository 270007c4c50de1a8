//! Compound apps that types describe.

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellows_config::{
    Compound, Configure, Context, Diagnostics, Loaded, Overrides, Parts, Registry, SettingError, SharedObject,
    load_chain, load_str,
};
use bellows_engine::{App, AppSpec, Port, Ports, Status};
use common::{Tee, TeeConfig, Writer, WriterConfig};
use expect_test::{Expect, expect};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Counts names.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BookConfig {
    /// How many names it holds.
    #[schemars(range(max = 100))]
    size: u32,
}

struct Book(u32);

impl Status for Book {
    fn status(&self) -> Value {
        json!({ "size": self.0 })
    }
}

impl SharedObject for Book {
    const NAME: &'static str = "book";
    type Config = BookConfig;

    fn configure(config: BookConfig, _: &Context) -> Result<Book, SettingError> {
        Ok(Book(config.size))
    }
}

/// Reads a book.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ReaderConfig {
    /// The book.
    book: String,
}

struct Reader;

impl App for Reader {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets in the book")]);
}

impl Configure for Reader {
    const NAME: &'static str = "reader";
    type Config = ReaderConfig;

    fn configure(config: ReaderConfig, context: &Context) -> Result<Reader, SettingError> {
        let book: Arc<Book> = context.object("book", &config.book)?;
        match book.0 {
            0 => Err(SettingError::at("book", "the book is empty", "give it a size")),
            _ => Ok(Reader),
        }
    }
}

/// Reads packets of several ports in one book, and writes them to a file.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeskConfig {
    /// The names of the ports.
    ports: Vec<String>,
    /// The size of its own book.
    #[serde(default)]
    size: Option<u32>,
    /// The file.
    path: PathBuf,
}

struct Desk;

impl Compound for Desk {
    const NAME: &'static str = "desk";
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "packets, one for each of `ports`" };
    const OUTPUTS: Ports = Ports::Any { at_least: 0, help: "the packets of the port" };
    type Config = DeskConfig;

    fn expand(config: DeskConfig, _: &Context, parts: &mut Parts) -> Result<(), SettingError> {
        if let Some(size) = config.size {
            parts.object::<Book>("book", BookConfig { size }).from_key("size");
        }
        for port in &config.ports {
            if port.contains('-') {
                return Err(SettingError::at("ports", format!("`{port}` is no name"), "leave out the `-`"));
            }
            let reader = format!("read-{port}");
            parts.app::<Reader>(&reader, ReaderConfig { book: "book".to_owned() });
            parts.app::<Tee>(format!("copy-{port}"), TeeConfig {}).prefetching(3);
            parts.link(format!("{reader} -> copy-{port}"));
            parts.input(port, format!("{reader}.input"));
            parts.output(port, format!("copy-{port}.out"));
        }
        let writer: WriterConfig = serde_json::from_value(json!({ "path": config.path })).unwrap();
        parts.app::<Writer>("write", writer).from_key("path");
        if let Some(first) = config.ports.first() {
            parts.link(format!("copy-{first} -> write.input"));
        }
        Ok(())
    }
}

/// Contains itself.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EndlessConfig {}

struct Endless;

impl Compound for Endless {
    const NAME: &'static str = "endless";
    type Config = EndlessConfig;

    fn expand(_: EndlessConfig, _: &Context, parts: &mut Parts) -> Result<(), SettingError> {
        parts.compound::<Endless>("again", EndlessConfig {});
        Ok(())
    }
}

/// Is wrong in each way in which a type can be.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct BrokenConfig {}

struct Broken;

impl Compound for Broken {
    const NAME: &'static str = "broken";
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets"), Port::optional("other", "packets")]);
    type Config = BrokenConfig;

    fn expand(_: BrokenConfig, _: &Context, parts: &mut Parts) -> Result<(), SettingError> {
        parts.app::<Tee>("tee", TeeConfig {});
        parts.app::<Tee>("tee", TeeConfig {});
        parts.app::<Tee>("a/b", TeeConfig {});
        parts.link("tee.x -> tea.input");
        parts.link("nonsense");
        parts.input("more", "tee.inptu");
        Ok(())
    }
}

fn registry() -> Registry {
    let registry = common::registry().with::<Reader>().with_object::<Book>().with_compound::<Desk>();
    registry.with_compound::<Endless>().with_compound::<Broken>()
}

fn load(text: &str, set: &[&str]) -> Result<Loaded, Diagnostics> {
    load_str(text, "net.toml", Path::new("nets"), &registry(), &Overrides::new(set.iter().copied()))
}

const NETWORK: &str = r#"links = ["s -> desk.north", "desk.north -> m"]
[apps.s]
app = "source"
[apps.desk]
app = "desk"
ports = ["north"]
path = "out.pcap"
size = 7
[apps.m]
app = "monitor"
"#;

/// Asserts that a network is refused with exactly this report.
#[track_caller]
fn refused(text: &str, set: &[&str], expected: Expect) {
    let Err(diagnostics) = load(text, set) else { panic!("it was loaded") };
    let report = diagnostics.render(false);
    expected.assert_eq(&report);
}

/// The apps of a network: name, type, prefetch distance and config.
fn apps(loaded: &Loaded) -> Vec<String> {
    let app = |app: &AppSpec| format!("{app:?} {} {}", app.info().prefetch, app.fingerprint);
    loaded.network.apps.iter().map(app).collect()
}

#[test]
fn a_compound_app_becomes_its_parts() {
    let loaded = load(NETWORK, &[]).unwrap();
    assert_eq!(
        apps(&loaded)[1..4],
        [
            r#"desk/read-north: reader 0 {"book":"book"} in "nets" with desk/book: book {"size":7} in "nets""#,
            r#"desk/copy-north: tee 3 {} in "nets" prefetching 3"#,
            r#"desk/write: writer 4 {"path":"out.pcap","flush":"1s","append":false} in "nets""#,
        ]
    );
    let links: Vec<String> = loaded.network.links.iter().map(ToString::to_string).collect();
    assert_eq!(
        links,
        [
            "s.output -> desk/read-north.input",
            "desk/copy-north.out -> m.input",
            "desk/read-north.output -> desk/copy-north.input",
            "desk/copy-north.write -> desk/write.input",
        ]
    );
    assert_eq!(format!("{:?}", loaded.network.objects), "[desk/book: book]");
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
}

#[test]
fn a_port_can_be_left_out_if_it_is_the_only_one() {
    let short = load(&NETWORK.replace("desk.north", "desk"), &[]).unwrap();
    let long = load(NETWORK, &[]).unwrap();
    assert_eq!(short.network.links, long.network.links);
}

#[test]
fn parts_use_objects_of_the_network_unless_the_compound_app_has_its_own() {
    let book = "[objects.book]\nobject = \"book\"\nsize = 1\n";
    let loaded = load(&NETWORK.replace("size = 7\n", book), &[]).unwrap();
    assert!(apps(&loaded)[1].ends_with(r#"with book: book {"size":1} in "nets""#), "{:?}", apps(&loaded));
    let both = load(&NETWORK.replace("size = 7\n", &format!("size = 7\n{book}")), &[]).unwrap();
    assert!(apps(&both)[1].contains("with desk/book"), "{:?}", apps(&both));
    assert!(both.warnings.to_string().contains("no app uses the object `book`"), "{}", both.warnings);
    let outside = "[apps.r]\napp = \"reader\"\nbook = \"desk/book\"\n";
    let outside = NETWORK.replace("\"s -> desk.north\"", "\"s -> r\", \"r -> desk.north\"") + outside;
    assert!(apps(&load(&outside, &[]).unwrap()).last().unwrap().contains("with desk/book"));
}

#[test]
fn keys_of_all_apps_are_those_of_the_parts_and_single_parts_have_their_own() {
    let loaded = load(NETWORK, &["apps.desk.prefetch=5", "apps.desk.parts.write.prefetch=6"]).unwrap();
    let prefetch = loaded.network.apps[1..4].iter().map(|app| app.info().prefetch).collect::<Vec<_>>();
    assert_eq!(prefetch, [5, 3, 6], "the type chose 3 for the second");
    let table =
        NETWORK.to_owned() + "[apps.desk.parts.write]\nflush = \"7s\"\n[apps.desk.parts.copy-north]\nprefetch = 0\n";
    let loaded = load(&table, &[]).unwrap();
    assert!(apps(&loaded)[3].contains(r#""flush":"7s""#), "{:?}", apps(&loaded));
    assert_eq!(loaded.network.apps[2].info().prefetch, 0);
    let workers = NETWORK.to_owned() + "[workers.one]\n[workers.two]\n";
    let loaded = load(&workers, &["apps.desk.worker=one", "apps.desk.parts.write.worker=two"]).unwrap();
    let workers = loaded.network.apps.iter().map(|app| app.worker.as_str()).collect::<Vec<_>>();
    assert_eq!(workers, ["main", "one", "one", "two", "main"]);
}

#[test]
fn a_part_that_is_as_before_is_the_same_app() {
    let (before, after) = (load(NETWORK, &[]).unwrap(), load(&NETWORK.replace("out.pcap", "new.pcap"), &[]).unwrap());
    let (before, after) = (apps(&before), apps(&after));
    let changed: Vec<&String> = after.iter().filter(|app| !before.contains(app)).collect();
    assert!(matches!(&changed[..], [only] if only.starts_with("desk/write")), "{changed:?}");
}

#[test]
fn paths_of_settings_are_relative_to_the_current_directory() {
    let loaded = load(NETWORK, &["apps.desk.parts.write.path=set.pcap"]).unwrap();
    assert!(apps(&loaded)[3].ends_with("with paths as set"), "{:?}", apps(&loaded));
    let loaded = load(NETWORK, &["apps.desk.path=set.pcap"]).unwrap();
    assert!(apps(&loaded)[3].ends_with("with paths as set"), "{:?}", apps(&loaded));
}

#[test]
fn values_that_the_type_refuses_are_shown_in_its_table() {
    refused(
        &NETWORK.replace("\"north\"]\npath", "\"north-1\"]\npath"),
        &[],
        expect![[r#"
            error: `desk`: `north-1` is no name
             --> net.toml:6:9
              |
            6 | ports = ["north-1"]
              |         ^^^^^^^^^^^
              |
              = help: leave out the `-`
        "#]],
    );
}

#[test]
fn unknown_keys_are_answered_with_those_of_the_type() {
    refused(
        &NETWORK.replace("size = 7", "sise = 0"),
        &[],
        expect![[r#"
            error: compound app type `desk` has no key `sise`
             --> net.toml:8:1
              |
            8 | sise = 0
              | ^^^^ did you mean `size`?
              |
              = help: its keys: `ports`, `size`, `path`
        "#]],
    );
}

#[test]
fn values_that_a_part_refuses_are_shown_in_the_table_with_the_part() {
    refused(
        &NETWORK.replace("size = 7", "size = 0"),
        &[],
        expect![[r#"
            error: `desk/read-north`: the book is empty
             --> net.toml:4:7
              |
            4 | [apps.desk]
              |       ^^^^ in its part `desk/read-north`
              |
              = help: give it a size
        "#]],
    );
}

#[test]
fn values_of_a_key_that_a_part_refuses_are_shown_there() {
    refused(
        &NETWORK.replace("out.pcap", "out").replace("size = 7", "size = 101"),
        &[],
        expect![[r#"
            error: `desk/write`: `nets/out` does not say what kind of file it is
             --> net.toml:7:8
              |
            7 | path = "out"
              |        ^^^^^ in its part `desk/write`
              |
              = help: let it end in `.pcap` or `.pcapng`

            error: `size` must be an integer 0 to 100
             --> net.toml:8:8
              |
            8 | size = 101
              |        ^^^ out of range
        "#]],
    );
}

#[test]
fn a_missing_object_is_that_of_the_part() {
    refused(
        &NETWORK.replace("size = 7", ""),
        &[],
        expect![[r#"
            error: `desk/read-north`: there is no object `book`
             --> net.toml:4:7
              |
            4 | [apps.desk]
              |       ^^^^ in its part `desk/read-north`
              |
              = help: describe it in a table `[objects.book]`, and below it `object = "book"`
        "#]],
    );
}

#[test]
fn an_open_port_is_that_of_the_compound_app() {
    refused(
        &NETWORK.replace("\"s -> desk.north\", ", ""),
        &[],
        expect![[r#"
            error: the output `s.output` is not linked
             --> net.toml:2:7
              |
            2 | [apps.s]
              |       ^ `source` needs it: the packets that are made
              |
              = help: add "s.output -> OTHER.INPUT" to `links`

            error: the input `desk.north` is not linked
             --> net.toml:4:7
              |
            4 | [apps.desk]
              |       ^^^^ `desk` needs it: packets, one for each of `ports`
              |
              = help: add "OTHER.OUTPUT -> desk.north" to `links`
        "#]],
    );
}

#[test]
fn an_unknown_port_is_answered_with_those_of_the_config() {
    let text = NETWORK.replace("desk.north ->", "desk.nrth ->");
    refused(
        &text.replace("ports = [\"north\"]", "ports = [\"north\", \"south\"]"),
        &[],
        expect![[r#"
            error: `desk` (desk) has no output `nrth`
             --> net.toml:1:35
              |
            1 | links = ["s -> desk.north", "desk.nrth -> m"]
              |                                   ^^^^ did you mean `north`?
              |
              = help: its outputs: `north`, `south`
        "#]],
    );
}

#[test]
fn a_port_that_is_linked_twice_is_called_as_in_the_file() {
    let twice = NETWORK.replace("\"s -> desk.north\"", "\"s -> desk.north\", \"s2 -> desk.north\"");
    refused(
        &(twice + "[apps.s2]\napp = \"source\"\n"),
        &[],
        expect![[r#"
            error: the input `desk.north` is linked twice
             --> net.toml:1:36
              |
            1 | links = ["s -> desk.north", "s2 -> desk.north", "desk.north -> m"]
              |                ----------          ^^^^^^^^^^ linked again here
              |                |
              |                first linked here
              |
              = help: put an app that merges streams between, such as `join`
        "#]],
    );
}

#[test]
fn settings_of_parts_are_checked() {
    let set = ["apps.desk.parts.wite.flush=7s", "apps.desk.parts.write.flsh=7s", "apps.desk.prefetch=90"];
    refused(
        NETWORK,
        &set,
        expect![[r#"
            error: `desk` (desk) has no part `wite`
             --> --set:1:17
              |
            1 | apps.desk.parts.wite.flush=7s
              |                 ^^^^ did you mean `write`?
              |
              = help: its parts: `read-north`, `copy-north`, `write`

            error: app type `writer` has no key `flsh`
             --> --set:1:23
              |
            1 | apps.desk.parts.write.flsh=7s
              |                       ^^^^ did you mean `flush`?
              |
              = help: its keys: `path`, `flush`, `append`

            error: `prefetch` must be an integer 0 to 64
             --> --set:1:20
              |
            1 | apps.desk.prefetch=90
              |                    ^^ out of range
        "#]],
    );
}

#[test]
fn tables_of_parts_are_tables() {
    refused(
        &NETWORK.replace("size = 7", "parts = { write = 7 }"),
        &["apps.desk.parts.read-north.app=tee"],
        expect![[r#"
            error: `desk/read-north`: there is no object `book`
             --> net.toml:4:7
              |
            4 | [apps.desk]
              |       ^^^^ in its part `desk/read-north`
              |
              = help: describe it in a table `[objects.book]`, and below it `object = "book"`

            error: `parts` must be a table of parts, each a table of keys
             --> net.toml:8:19
              |
            8 | parts = { write = 7 }
              |                   ^ this is an integer
              |
              = help: write `[apps.desk.parts.PART]`, and the part's keys below

            error: the type of the part `read-north` cannot be set
             --> --set:1:28
              |
            1 | apps.desk.parts.read-north.app=tee
              |                            ^^^ the compound app decides it
              |
              = help: set other keys, or write the part's links and apps by hand
        "#]],
    );
    refused(
        &NETWORK.replace("size = 7", "size = 7\nparts = 3"),
        &[],
        expect![[r#"
            error: `parts` must be a table of parts, each a table of keys
             --> net.toml:9:9
              |
            9 | parts = 3
              |         ^ this is an integer
              |
              = help: write `[apps.desk.parts.PART]`, and the part's keys below
        "#]],
    );
}

#[test]
fn a_type_that_contains_itself_ends_in_an_error() {
    refused(
        "[apps.e]\napp = \"endless\"\n",
        &[],
        expect![[r#"
            error: `e/again/again/again/again/again/again/again/again/again/agai…` is more than 16 compound apps deep
             --> net.toml:1:7
              |
            1 | [apps.e]
              |       ^ too deep, in its part `e/again/again/again/again/again/again/again/again/again/agai…`
              |
              = help: does `endless` contain itself without end?
        "#]],
    );
}

#[test]
fn errors_of_the_type_are_told() {
    refused(
        "[apps.b]\napp = \"broken\"\n",
        &[],
        expect![[r#"
            error: compound app type `broken` gives no part its input `input`
             --> net.toml:1:7
              |
            1 | [apps.b]
              |       ^
              |
              = help: this is an error in the type, not in the network

            error: compound app type `broken` does not declare its input `more`
             --> net.toml:1:7
              |
            1 | [apps.b]
              |       ^
              |
              = help: this is an error in the type, not in the network

            error: there are two apps named `b/tee`
             --> net.toml:1:7
              |
            1 | [apps.b]
              |       ^
              |       |
              |       named again here
              |       first named here
              |
              = help: rename one of them

            error: `a/b` is not a valid app name
             --> net.toml:1:7
              |
            1 | [apps.b]
              |       ^ invalid name
              |
              = help: use letters, digits, `-`, `_` and `.`: a `/` separates parts from compound apps

            error: `tee` (tee) has no input `inptu`
             --> net.toml:1:7
              |
            1 | [apps.b]
              |       ^ did you mean `input`?, for its input `more`
              |
              = help: its inputs: `input`

            error: `nonsense` is not a link
             --> net.toml:1:7
              |
            1 | [apps.b]
              |       ^ in the links of its parts
              |
              = help: write it as "app.output -> other.input"

            error: there is no app `tea`
             --> net.toml:1:7
              |
            1 | [apps.b]
              |       ^ did you mean `tee`?, in the links of its parts
              |
              = help: `b` has `tee`, `a/b`

            error: the input `a/b.input` is not linked
             --> net.toml:1:7
              |
            1 | [apps.b]
              |       ^ `tee` needs it: packets to copy, in the links of its parts
              |
              = help: add "OTHER.OUTPUT -> a/b.input" to `links`

            error: `a/b` has no outputs linked
             --> net.toml:1:7
              |
            1 | [apps.b]
              |       ^ `tee` needs 1 or more: the copies, in the links of its parts
              |
              = help: add "a/b.NAME -> OTHER.INPUT" to `links`, with any name for the port
        "#]],
    );
}

#[test]
fn a_part_and_an_app_cannot_have_one_name() {
    refused(
        &(NETWORK.to_owned() + "[apps.\"desk/write\"]\napp = \"monitor\"\n"),
        &[],
        expect![[r#"
            error: there are two apps named `desk/write`
              --> net.toml:11:7
               |
             7 | path = "out.pcap"
               |        ---------- first named here
            ...
            11 | [apps."desk/write"]
               |       ^^^^^^^^^^^^ named again here
               |
               = help: rename one of them
        "#]],
    );
}

#[test]
fn apps_in_a_row_share_the_objects_that_come_with_them() {
    let objects = "[objects.book]\nobject = \"book\"\nsize = 7\n";
    let read = |text: &str| load_chain(text, objects, "APP", Path::new(""), &registry());
    assert_eq!(read("reader(book = 'book') | reader(book = 'book')").unwrap().len(), 2);
    let wrong = read("reader(book = 'bok')").unwrap_err().render(false);
    assert!(wrong.contains("there is no object `bok`") && wrong.contains("did you mean `book`?"), "{wrong}");
}

#[test]
fn a_row_of_apps_has_no_compound_ones() {
    let wrong = load_chain("tee | endless", "", "APP", Path::new(""), &registry()).unwrap_err().render(false);
    assert!(wrong.contains("`endless` is more than") || wrong.contains("is a compound app"), "{wrong}");
    let wrong = load_chain("desk(ports = ['a'], path = 'x.pcap', size = 1)", "", "APP", Path::new(""), &registry());
    let wrong = wrong.unwrap_err().render(false);
    assert!(wrong.contains("error: `desk` is a compound app\n --> APP:1:1"), "{wrong}");
}

#[test]
fn parts_whose_types_the_catalogue_lacks_are_named() {
    let load = |registry: Registry| load_str(NETWORK, "net.toml", Path::new("nets"), &registry, &Overrides::default());
    let refused = load(common::registry().with_compound::<Desk>()).err().unwrap();
    expect![[r#"
        error: `read-north` is of the type `reader`, which the catalogue of this program lacks
         --> net.toml:4:7
          |
        4 | [apps.desk]
          |       ^^^^ made by a compound app
          |
          = help: the program adds it with `Command::part`

        error: `desk/book` is of the type `book`, which the catalogue of this program lacks
         --> net.toml:8:8
          |
        8 | size = 7
          |        ^ made by a compound app
          |
          = help: the program adds it with `Command::object`
    "#]]
    .assert_eq(&refused.render(false));
    // A part need not be among what a network file can name.
    let whole = common::registry().with_part::<Reader>().with_object::<Book>().with_compound::<Desk>();
    assert!(whole.get("reader").is_none());
    load(whole).unwrap();
}

#[test]
fn a_compound_app_has_a_manual() {
    let registry = registry();
    let entry = registry.compound("desk").unwrap();
    let manual = entry.manual_text(80);
    for line in ["any name ─▶│  desk  │─▶ any name", "every app has apply to all parts.", "  size   integer 0 to"]
    {
        assert!(manual.contains(line), "{line} in\n{manual}");
    }
    let manual = entry.manual_json();
    assert_eq!(manual["compound"], true);
    assert_eq!(manual["inputs"], json!({ "any": true, "at_least": 1, "help": "packets, one for each of `ports`" }));
    assert_eq!(manual["summary"], "Reads packets of several ports in one book, and writes them to a file");
    assert!(registry.get("desk").is_none() && registry.nearest("dsk") == Some("desk"));
    assert_eq!(
        registry.names().collect::<Vec<_>>(),
        ["broken", "desk", "endless", "monitor", "reader", "source", "tee", "writer"]
    );
    let replaced = registry.with::<Reader>().with_compound::<Desk>();
    assert_eq!(replaced.names().count(), 8);
}

//! The manuals that are generated from app types.

mod common;

use std::collections::BTreeMap;

use bellows_config::{Compound, Context, Entry, ManualKey, Parts, Registry, SettingError, engine_manual};
use common::registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

fn entry(name: &str, check: impl FnOnce(&Entry)) {
    check(registry().get(name).expect("it is registered"));
}

#[test]
fn the_catalogue_is_sorted_and_suggests_the_nearest_name() {
    let registry = registry();
    let names: Vec<&str> = registry.entries().map(Entry::name).collect();
    assert_eq!(names, ["monitor", "source", "tee", "writer"]);
    assert_eq!((registry.nearest("moniter"), registry.nearest("xyzzy")), (Some("monitor"), None));
}

#[test]
fn a_manual_has_description_ports_keys_and_drops() {
    entry("source", |entry| {
        assert_eq!(entry.summary(), "Makes packets");
        let expected = r#"source

  Makes packets. They are of one size, or of several that
  take turns.

  The first packet leaves as soon as the network runs.

  ┌──────────┐
  │  source  │─▶ output
  └──────────┘

PORTS
  out  output  the packets that are made

KEYS of [apps.NAME]
  app      "source"
  size     integer 14 to 9,000, in bytes, default 60
           How long a packet is.
  count    integer 0 or more, optional
           How many packets are made; no end if it is not
           given.
  rate     packets per second such as `250k` or `1.5M`,
           optional
           How fast they are made; as fast as possible if it
           is not given.
  payload  one of `zero`, `sequence`, default "zero"
           What is in them.
           - `zero`: All bytes are 0.
           - `sequence`: A number that counts up.
  mix      list of tables, default []
           Sizes that take turns.

KEYS of [[apps.NAME.mix]]
  size    integer 14 to 9,000, in bytes, required
          The size.
  weight  integer 0 to 255, optional
          How many of this size come in a row.

DROPS are counted as
  no_buffer  packets for which the pool had no buffer
"#;
        let manual = entry.manual_text(60);
        assert!(manual == expected, "{manual}");
    });
}

#[test]
fn a_diagram_has_inputs_on_the_left_and_outputs_on_the_right() {
    entry("tee", |entry| {
        let manual = entry.manual_text(80);
        let expected = "
          ┌───────┐
  input ─▶│  tee  │─▶ any name
          │       │─▶ …
          └───────┘

PORTS
  in   input     packets to copy
  out  any name  the copies (as many as are linked, at least 1)
";
        assert!(manual.contains(expected), "{manual}");
    });
    entry("writer", |entry| {
        let manual = entry.manual_text(80);
        let expected = "
            ┌──────────┐
    input ─▶│  writer  │
  control ─▶│          │
            └──────────┘

PORTS
  in   input    packets to write
  in   control  optional: a packet here closes the file
";
        assert!(manual.contains(expected) && manual.contains("\nCOUNTERS\n  written_bytes  bytes written"), "{manual}");
    });
}

#[test]
fn a_manual_is_available_as_json() {
    entry("writer", |entry| {
        let manual = entry.manual_json();
        assert_eq!(manual["name"], "writer");
        assert_eq!(
            manual["inputs"][1],
            json!({ "name": "control", "required": false, "help": "a packet here closes the file" })
        );
        let flush = json!({
            "name": "flush", "description": "How long a packet waits before it is written at the latest.",
            "type": "duration such as `10s` or `1.5ms`", "unit": null, "default": "1s", "required": false,
        });
        assert_eq!(manual["keys"][1], flush);
        assert_eq!(manual["schema"]["required"], json!(["path"]));
    });
}

#[test]
fn the_engine_has_a_manual_in_the_same_format() {
    let keys = engine_manual().keys();
    let burst = keys.iter().find(|key| key.name == "burst");
    let description = "Maximum packets that a source brings in per breath. A larger burst shares the cost of a breath \
                       among more packets; a smaller one stays in the cache and has a lower latency.";
    let expected = ManualKey {
        name: "burst".to_owned(),
        description: description.to_owned(),
        kind: "integer 1 to 1,024".to_owned(),
        unit: Some("packets".to_owned()),
        default: Some(json!(128)),
        required: false,
    };
    assert_eq!(burst, Some(&expected));
    let text = engine_manual().text(80);
    assert!(
        text.starts_with("[engine]\n\n  Settings of the engine")
            && text.contains("\n  schedule           one of `nested`"),
        "{text}"
    );

    // Common keys are described here, and not in the apps' manuals.
    let common = engine_manual().json()["common_keys"].clone();
    let keys: Vec<&str> = common.as_array().unwrap().iter().map(|key| key["name"].as_str().unwrap()).collect();
    assert_eq!(keys, ["prefetch", "worker", "fuse"]);
    let worker = engine_manual().json()["worker_keys"].clone();
    assert_eq!(worker.as_array().unwrap().iter().map(|key| &key["name"]).collect::<Vec<_>>(), ["cpu", "numa"]);
    assert!(text.contains("\nKEYS of every [workers.NAME]\n  cpu   integer 0 to 4,095"), "{text}");
    assert!(text.contains("\nKEYS of every [apps.NAME], besides its app's own\n  prefetch  integer 0 to 64"), "{text}");
    entry("writer", |entry| assert!(!entry.manual_text(80).contains("prefetch")));
}

/// A compound app with tables at every kind of place.
struct Nested;

/// Has tables.
#[derive(Serialize, Deserialize, JsonSchema)]
struct NestedConfig {
    /// By name.
    sites: BTreeMap<String, Site>,
    /// A tree.
    tree: Option<Tree>,
    /// A word, a table, or several.
    shapes: OneOrMore,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Site {
    /// One direction.
    inbound: Direction,
    /// The other one.
    outbound: Direction,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Direction {
    /// The index.
    spi: u32,
    /// Deeper.
    limits: Option<Vec<BTreeMap<String, Limit>>>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Limit {
    /// The deepest.
    #[serde(default)]
    bytes: u8,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Tree {
    /// What is here.
    leaf: bool,
    /// More of the same.
    children: Vec<Tree>,
}

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
enum OneOrMore {
    Word(String),
    One(Circle),
    More(Vec<Square>),
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Circle {
    /// Of the circle.
    radius: u8,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Square {
    /// Of the square.
    side: u8,
}

impl Compound for Nested {
    const NAME: &'static str = "nested";
    type Config = NestedConfig;

    fn expand(_: NestedConfig, _: &Context, _: &mut Parts) -> Result<(), SettingError> {
        Ok(())
    }
}

#[test]
fn tables_at_any_depth_have_sections_of_their_own_with_their_keys() {
    let registry = Registry::new().with_compound::<Nested>();
    let nested = registry.compound("nested").unwrap();
    let manual = nested.manual_text(80);
    let (_, sections) = manual.split_once("\nKEYS ").unwrap();
    let expected = "\
of [apps.NAME]
  app     \"nested\"
  sites   table whose values are tables, required
          By name.
  shapes  text, or table, or list of tables, required
          A word, a table, or several.
  tree    table, optional
          A tree.

KEYS of [apps.NAME.sites.NAME]
  inbound   table, required
            One direction.
  outbound  table, required
            The other one.

KEYS of [apps.NAME.sites.NAME.inbound],
        [apps.NAME.sites.NAME.outbound]
  spi     integer 0 to 4,294,967,295, required
          The index.
  limits  list of tables whose values are tables, optional
          Deeper.

KEYS of [apps.NAME.sites.NAME.inbound.limits.NAME],
        [apps.NAME.sites.NAME.outbound.limits.NAME]
  bytes  integer 0 to 255, default 0
         The deepest.

KEYS of [apps.NAME.shapes]
  radius  integer 0 to 255, required
          Of the circle.

KEYS of [[apps.NAME.shapes]]
  side  integer 0 to 255, required
        Of the square.

KEYS of [apps.NAME.tree],
        [[apps.NAME.tree.children]]
  leaf      `true` or `false`, required
            What is here.
  children  list of tables, required
            More of the same.
";
    assert!(sections == expected, "{manual}");
    let names: Vec<String> = nested.keys().into_iter().map(|key| key.name).collect();
    let expected = [
        "sites",
        "sites.NAME.inbound",
        "sites.NAME.inbound.spi",
        "sites.NAME.inbound.limits",
        "sites.NAME.inbound.limits[].NAME.bytes",
        "sites.NAME.outbound",
        "sites.NAME.outbound.spi",
        "sites.NAME.outbound.limits",
        "sites.NAME.outbound.limits[].NAME.bytes",
        "shapes",
        "shapes.radius",
        "shapes[].side",
        "tree",
        "tree.leaf",
        "tree.children",
    ];
    assert_eq!(names, expected);
}

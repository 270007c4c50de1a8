//! Random nests of compound apps become the same network as their parts written out by hand.

mod common;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use bellows_config::{Compound, Configure, Context, Overrides, Parts, Registry, SettingError, load};
use bellows_engine::{App, AppSpec, Network, Port, Ports};
use bellows_testkit::scratch::scratch;
use bellows_testkit::soak::cases;
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Passes packets on.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RelayConfig {
    /// A number.
    tag: u32,
}

struct Relay;

impl App for Relay {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets")]);
}

impl Configure for Relay {
    const NAME: &'static str = "relay";
    type Config = RelayConfig;

    fn configure(_: RelayConfig, _: &Context) -> Result<Relay, SettingError> {
        Ok(Relay)
    }
}

/// Relays in a row. `a` is a relay, `(…)` a row within the row.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RowConfig {
    /// What the row consists of, such as `a(aa)`.
    shape: String,
    /// The number of the first relay.
    tag: u32,
}

struct Row;

impl Compound for Row {
    const NAME: &'static str = "row";
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same packets")]);
    type Config = RowConfig;

    fn expand(config: RowConfig, _: &Context, parts: &mut Parts) -> Result<(), SettingError> {
        let mut tag = config.tag;
        let items = items(&config.shape);
        for (index, item) in items.iter().enumerate() {
            let name = format!("n{index}");
            match item.strip_prefix('(') {
                Some(inner) => {
                    let shape = inner.strip_suffix(')').unwrap_or(inner).to_owned();
                    parts.compound::<Row>(&name, RowConfig { shape, tag });
                }
                None => drop(parts.app::<Relay>(&name, RelayConfig { tag })),
            }
            tag += item.matches('a').count() as u32;
            if index > 0 {
                parts.link(format!("n{} -> {name}", index - 1));
            }
        }
        parts.input("input", "n0");
        parts.output("output", format!("n{}", items.len() - 1));
        Ok(())
    }
}

/// The items of a row: single relays, and rows in parentheses.
fn items(shape: &str) -> Vec<&str> {
    let (mut items, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in shape.char_indices() {
        depth = match c {
            '(' => depth + 1,
            ')' => depth - 1,
            _ => depth,
        };
        if depth == 0 {
            items.push(&shape[start..=at]);
            start = at + 1;
        }
    }
    items
}

#[derive(Clone, Debug)]
enum Nest {
    /// A relay, with a number that the table of the app around it may set.
    Relay { tag: u32, set: Option<u32> },
    /// Described by a file.
    File(Vec<Item>),
    /// Described by the type `row`.
    Row { shape: String, tag: u32 },
}

#[derive(Clone, Debug)]
struct Item {
    nest: Nest,
    worker: Option<usize>,
}

const WORKERS: [&str; 3] = ["main", "one", "two"];

fn shape() -> impl Strategy<Value = String> {
    let leaf = Just("a".to_owned());
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop::collection::vec(inner, 1..4).prop_map(|items| format!("({})", items.concat()))
    })
}

fn nest() -> impl Strategy<Value = Item> {
    let relay = (0..100u32, prop::option::of(100..200u32)).prop_map(|(tag, set)| Nest::Relay { tag, set });
    let row = (shape(), 0..100u32).prop_map(|(shape, tag)| Nest::Row { shape, tag });
    let worker = || prop::option::of(0..WORKERS.len());
    let leaf = (prop_oneof![3 => relay, 1 => row], worker()).prop_map(|(nest, worker)| Item { nest, worker });
    leaf.prop_recursive(4, 24, 4, move |inner| {
        (prop::collection::vec(inner, 1..4), worker())
            .prop_map(|(items, worker)| Item { nest: Nest::File(items), worker })
    })
}

/// Writes the table of an item, and the file that it needs. `path` is its full name.
fn write(item: &Item, name: &str, path: &str, files: &mut Vec<(String, String)>) -> String {
    let mut table = format!("[apps.{name}]\n");
    if let Some(worker) = item.worker {
        let _ = writeln!(table, "worker = \"{}\"", WORKERS[worker]);
    }
    match &item.nest {
        Nest::Relay { tag, .. } => {
            let _ = writeln!(table, "app = \"relay\"\ntag = {tag}");
        }
        Nest::Row { shape, tag } => {
            let _ = writeln!(table, "app = \"row\"\nshape = \"{shape}\"\ntag = {tag}");
        }
        Nest::File(items) => {
            let file = format!("{}.toml", path.replace('/', "-"));
            let _ = writeln!(table, "network = \"{file}\"");
            for (index, item) in items.iter().enumerate() {
                if let Nest::Relay { set: Some(set), .. } = item.nest {
                    let _ = writeln!(table, "parts.n{index}.tag = {set}");
                }
            }
            let links = (1..items.len()).map(|index| format!("\"n{} -> n{index}\"", index - 1)).collect::<Vec<_>>();
            let mut text = format!(
                "links = [{}]\n[ports]\ninputs.input = \"n0.input\"\noutputs.output = \"n{}\"\n",
                links.join(", "),
                items.len() - 1
            );
            for (index, item) in items.iter().enumerate() {
                text += &write(item, &format!("n{index}"), &format!("{path}/n{index}"), files);
            }
            files.push((file, text));
        }
    }
    table
}

/// The relays of an item in order: full name, number, worker.
fn relays(item: &Item, path: &str, worker: usize, set: bool, found: &mut Vec<(String, u32, usize)>) {
    let worker = item.worker.unwrap_or(worker);
    match &item.nest {
        Nest::Relay { tag, set: other } => {
            found.push((path.to_owned(), other.filter(|_| set).unwrap_or(*tag), worker));
        }
        Nest::Row { shape, tag } => row(shape, path, *tag, worker, found),
        Nest::File(items) => {
            for (index, item) in items.iter().enumerate() {
                relays(item, &format!("{path}/n{index}"), worker, true, found);
            }
        }
    }
}

fn row(shape: &str, path: &str, tag: u32, worker: usize, found: &mut Vec<(String, u32, usize)>) {
    let mut tag = tag;
    for (index, item) in items(shape).into_iter().enumerate() {
        let path = format!("{path}/n{index}");
        match item.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
            Some(inner) => row(inner, &path, tag, worker, found),
            None => found.push((path, tag, worker)),
        }
        tag += item.matches('a').count() as u32;
    }
}

fn registry() -> Registry {
    common::registry().with::<Relay>().with_compound::<Row>()
}

fn described(network: &Network) -> (Vec<[String; 4]>, BTreeSet<String>) {
    let app = |app: &AppSpec| [&app.name, &app.kind, &app.fingerprint, &app.worker].map(String::clone);
    (network.apps.iter().map(app).collect(), network.links.iter().map(ToString::to_string).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases(64)))]

    #[test]
    fn a_nest_is_the_network_written_by_hand(item in nest()) {
        let folder = scratch();
        let frame = |links: &str| format!(
            "links = [{links}]\n[workers.one]\n[workers.two]\n[apps.s]\napp = \"source\"\n[apps.m]\napp = \"monitor\"\n"
        );
        let mut files = Vec::new();
        let nested = frame("\"s -> x\", \"x -> m\"") + &write(&item, "x", "x", &mut files);
        files.push(("nested.toml".to_owned(), nested));
        let mut relays_by_hand = Vec::new();
        relays(&item, "x", 0, false, &mut relays_by_hand);
        let mut names = vec!["s"];
        names.extend(relays_by_hand.iter().map(|(name, ..)| name.as_str()));
        names.push("m");
        let links: Vec<String> = names.windows(2).map(|pair| format!("\"{} -> {}\"", pair[0], pair[1])).collect();
        let mut by_hand = frame(&links.join(", "));
        for (name, tag, worker) in &relays_by_hand {
            let worker = WORKERS[*worker];
            let _ = writeln!(by_hand, "[apps.\"{name}\"]\napp = \"relay\"\ntag = {tag}\nworker = \"{worker}\"");
        }
        files.push(("by_hand.toml".to_owned(), by_hand));
        for (name, text) in &files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        let loaded = ["nested.toml", "by_hand.toml"].map(|name| {
            load(&folder.path().join(name), &registry(), &Overrides::default())
                .unwrap_or_else(|diagnostics| panic!("{diagnostics}\n{files:#?}"))
        });
        let [nested, by_hand] = loaded.map(|loaded| loaded.network);
        prop_assert_eq!(nested.wiring_errors(), vec![]);
        prop_assert_eq!(described(&nested), described(&by_hand));
    }
}

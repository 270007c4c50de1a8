//! Every app has complete documentation (every app, port, key and counter that `bellows apps` prints), is listed in the
//! README, and moves packets in the networks that measure it.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use bellows_apps::registry;
use bellows_config::{Bench, BenchFiles, BenchRow, Entry, Loaded, Overrides, load_str};
use bellows_engine::{Counter, Engine, Port, Ports};
use bellows_testkit::scratch::scratch;

fn is_name(name: &str, separator: char) -> bool {
    let word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.split(separator).all(word)
}

fn check_ports(app: &str, ports: Ports) {
    let explained = |Port { name, help, .. }: &Port| is_name(name, '_') && !help.is_empty();
    match ports {
        Ports::Named(ports) => assert!(ports.iter().all(explained), "{app}: {ports:?}"),
        Ports::Any { help, .. } => assert!(!help.is_empty(), "{app}"),
    }
}

#[test]
fn every_app_explains_itself() {
    let registry = registry();
    for app in registry.entries() {
        let name = app.name();
        assert!(is_name(name, '-'), "{name}");
        assert!(!app.summary().is_empty() && app.summary().lines().count() == 1, "{name}: {}", app.summary());
        let info = app.info();
        check_ports(name, info.inputs);
        check_ports(name, info.outputs);
        for Counter { name: counter, help, .. } in info.drops.iter().chain(info.counters) {
            assert!(is_name(counter, '_') && !help.is_empty(), "{name}: {counter}");
        }
        for key in app.keys() {
            let mut parts = key.name.split('.').map(|part| part.trim_end_matches("[]"));
            let are_names = parts.all(|part| part == "NAME" || is_name(part, '_'));
            assert!(are_names && !key.description.is_empty(), "{name}: {key:?}");
        }
        let manual = app.manual_text(100);
        let too_long = manual.lines().find(|line| line.chars().count() > 100);
        assert!(manual.starts_with(name) && too_long.is_none(), "{too_long:?} in {manual}");
    }
}

#[test]
fn the_readme_lists_every_app() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once("| app | what it does |\n|---|---|\n").unwrap();
    let (_, after) = rest.split_once("\n\n").unwrap();
    let row = |app: &Entry| format!("| `{}` | {} |\n", app.name(), app.summary().trim_end_matches('.'));
    let rows: String = registry().entries().map(row).collect();
    let written = format!("{before}| app | what it does |\n|---|---|\n{rows}\n{after}");
    if std::env::var_os("BELLOWS_WRITE_README").is_some() {
        fs::write(&path, &written).unwrap();
    }
    let help = "the table is made by `BELLOWS_WRITE_README=1 cargo test -p bellows-apps --test catalogue`";
    assert!(fs::read_to_string(&path).unwrap() == written, "{help}");
}

/// A network of one app: a source before each input, or before the apps that packets pass first; a sink behind each
/// output.
fn network(app: &Entry, row: &BenchRow) -> String {
    let info = app.info();
    let ports = |ports: Ports, usual: &str, asked: &[&str]| -> Vec<String> {
        match (ports, asked) {
            (_, [_, ..]) => asked.iter().map(|&port| port.to_owned()).collect(),
            (Ports::Named(ports), []) => ports.iter().map(|port| port.name.to_owned()).collect(),
            (Ports::Any { at_least, .. }, []) => (0..at_least.max(1)).map(|port| format!("{usual}-{port}")).collect(),
        }
    };
    let (mut links, mut apps) = (Vec::new(), format!("app = {{ app = \"{}\", {} }}\n", app.name(), row.keys));
    let headers = if row.traffic == "ipv6" { "ipv6" } else { "ipv4" };
    for port in ports(info.inputs, "in", row.inputs) {
        let mut from = format!("from-{port}.output");
        for (place, step) in row.before.iter().enumerate() {
            let name = format!("before-{port}-{place}");
            links.push(format!("\"{from} -> {name}.{}\"", step.input));
            apps += &format!("{name} = {{ app = \"{}\", {} }}\n", step.app, step.keys);
            from = format!("{name}.{}", step.output);
        }
        links.push(format!("\"{from} -> app.{port}\""));
        apps += &format!("from-{port} = {{ app = \"source\", headers = \"{headers}\", size = 64 }}\n");
    }
    for port in ports(info.outputs, "out", row.outputs) {
        links.push(format!("\"app.{port} -> to-{port}\""));
        apps += &format!("to-{port} = {{ app = \"sink\" }}\n");
    }
    format!("links = [{}]\n[apps]\n{apps}\n{}", links.join(", "), row.objects)
}

#[test]
fn every_app_moves_packets_as_it_is_measured_or_says_why_it_is_not() {
    const BREATHS: u64 = 100;
    let scratch = scratch();
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/captures/quickstart.pcap");
    let files = BenchFiles::new(capture, scratch.path().join("written.pcap"));
    let registry = registry();
    for app in registry.entries() {
        let name = app.name();
        let rows = match app.bench(&files) {
            Bench::Rows(rows) => rows,
            Bench::Unmeasured(why) => {
                assert!(why.contains("bellows bench"), "{name}: `{why}` names no other way");
                continue;
            }
        };
        assert!(!rows.is_empty(), "{name}: neither a row nor a reason");
        // The app `source` makes no others; `bellows bench apps` does, and a test of it has all rows.
        let is_of_source = |row: &BenchRow| row.traffic != "icmp";
        for row in rows.into_iter().filter(is_of_source) {
            let text = network(app, &row);
            let loaded = load_str(&text, name, scratch.path(), &registry, &Overrides::default());
            let Loaded { network, engine, .. } = loaded.unwrap_or_else(|errors| panic!("{}", errors.render(false)));
            let mut engine = Engine::new(network, engine.settings(), None).unwrap();
            let start = Instant::now();
            // An app may hold packets for a while.
            for breath in 0.. {
                if breath >= BREATHS && start.elapsed() > Duration::from_millis(5) {
                    break;
                }
                engine.breathe();
            }
            engine.control().stop();
            let end = engine.run();
            let outcome = engine.finish(end);
            assert!(outcome.unfinished.is_empty(), "{text}\n{outcome:?}");
            let counts = &outcome.snapshot.apps[0];
            assert_eq!((counts.leaked, counts.uncounted), (0, 0), "{text}\n{counts:?}");
            let info = app.info();
            let has_moved = |ports: Ports, packets| packets >= BREATHS || ports.is_none();
            assert!(has_moved(info.inputs, counts.in_packets), "{text}\n{counts:?}");
            let must_send = match info.outputs {
                Ports::Named(ports) => ports.iter().any(|port| port.required),
                Ports::Any { at_least, .. } => at_least > 0,
            };
            assert!(!must_send || counts.out_packets >= BREATHS, "{text}\n{counts:?}");
        }
    }
}

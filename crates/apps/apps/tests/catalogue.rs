//! Every app has complete documentation (every app, port, key and counter that `bellows apps` prints), and moves
//! packets in the networks that measure it.

use std::time::{Duration, Instant};

use bellows_apps::registry;
use bellows_config::{BenchFiles, BenchRow, BenchSetup, Entry, Loaded, Overrides, engine_manual, load_str};
use bellows_engine::{Counter, Engine, Port, Ports};
use bellows_exercise::tunnel_examples::{TUNNELS, TunnelExamples};
use bellows_testkit::scratch::scratch;
use bellows_testkit::tree::root;
use serde_json::Value as Json;

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

/// The keys of all tables in a schema: the table's place, as the manual's titles have it, and the key.
fn keys_in(schema: &Json, place: &str, found: &mut Vec<(String, String)>) {
    for (key, value) in schema["properties"].as_object().into_iter().flatten() {
        found.push((place.to_owned(), key.clone()));
        keys_in(value, &format!("{place}.{key}"), found);
    }
    for (part, end) in [("items", "[]"), ("additionalProperties", ".NAME")] {
        if schema[part].is_object() {
            keys_in(&schema[part], &format!("{place}{end}"), found);
        }
    }
    for variants in ["oneOf", "anyOf", "allOf"] {
        schema[variants].as_array().into_iter().flatten().for_each(|variant| keys_in(variant, place, found));
    }
}

/// The sections of a manual that list keys: the tables in the title, and the rows.
fn key_sections(manual: &str) -> Vec<(Vec<String>, Vec<&str>)> {
    let section = |text: &&str| text.starts_with("KEYS of ");
    let parts = manual.split("\n\n").filter(section);
    let parse = |text| {
        let (mut tables, mut rows) = (Vec::new(), Vec::new());
        for line in str::lines(text) {
            let header = line.trim_start_matches("KEYS of ").trim().trim_end_matches(',');
            match header.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                Some(table) if rows.is_empty() => tables.push(table.to_owned()),
                _ => rows.push(line),
            }
        }
        (tables, rows)
    };
    parts.map(parse).collect()
}

/// Each key of the schema is a row of a section for its table.
fn check_keys(name: &str, root: &str, schema: &Json, manual: &str) {
    let mut keys = Vec::new();
    keys_in(schema, root, &mut keys);
    // A description with empty lines continues the section before it.
    let joined = manual.replace("\n\n  ", "\n  ");
    let sections = key_sections(&joined);
    for (place, key) in keys {
        let plain = place.replace("[]", "");
        let header = if place.ends_with("[]") { format!("[{plain}]") } else { plain };
        let rows = sections.iter().filter(|(tables, _)| tables.contains(&header)).flat_map(|(_, rows)| rows);
        let is_row = |row: &&&str| row.strip_prefix("  ").is_some_and(|row| row.split(' ').next() == Some(&key));
        let row = rows.clone().find(is_row);
        assert!(row.is_some(), "{name}: {key} of {header} is not in\n{manual}");
    }
}

#[test]
fn manuals_tell_the_keys_of_all_tables_in_80_columns() {
    let registry = registry();
    let apps = registry.entries().map(|app| (app.name(), "apps.NAME", app.schema(), app.manual_text(80)));
    let compounds = registry.compounds().map(|app| (app.name(), "apps.NAME", app.schema(), app.manual_text(80)));
    let objects = registry.objects().map(|of| (of.name(), "objects.NAME", of.schema(), of.manual_text(80)));
    for (name, root, schema, manual) in apps.chain(compounds).chain(objects) {
        check_keys(name, root, schema, &manual);
        // Code of a description is not wrapped.
        let (_, keys) = manual.split_once("\nKEYS of ").unwrap();
        let too_long = keys.lines().find(|line| line.chars().count() > 80);
        assert_eq!(too_long, None, "{name}");
    }
    let engine = engine_manual();
    check_keys("engine", "engine", engine.schema(), &engine.text(80));
}

/// Where a setting of one of two ends, or one key here, has all packets dropped, the drop reason names it.
#[test]
fn drops_that_follow_from_settings_name_the_likely_ones() {
    let registry = registry();
    let tunnels = TUNNELS.iter().flat_map(|TunnelExamples { app, .. }| {
        [
            (*app, "no_session", "`local` and `remote`"),
            (*app, "bad_cookie", "`send_cookie`"),
            (*app, "bad_flags", "only one end"),
            (*app, "bad_checksum", "hardware"),
            (*app, "bad_payload", "one end"),
        ]
    });
    let others = [
        ("esp", "bad_icv", "`esn`"),
        ("esp", "replayed", "new keys"),
        ("esp", "no_association", "SPIs"),
        ("esp", "bad_selector", "`local_networks`"),
        ("ethernet-input", "unknown_vlan", "`vlan`"),
        ("ethernet-input", "other_station", "`mac`"),
        ("vlan-mux", "unknown_vlan", "`tpid`"),
        ("vlan-mux", "untagged", "`native`"),
        ("vlan-untag", "untagged", "`tpid`"),
        ("bridge", "vlan_not_allowed", "`trunk`"),
        ("arp", "l3_src_address_not_local", "prefix"),
        ("nd", "l3_src_address_not_local", "prefix"),
        ("arp", "unresolved", "VLAN"),
        ("nd", "unresolved", "VLAN"),
        ("ip4-lookup", "no_route", "`bellows route`"),
        ("ip6-reverse-path", "rpf_strict", "`loose`"),
        ("punt", "no_host", "`host`"),
        ("ip4-local", "unserved", "`services`"),
        ("raw-socket", "no_interface", "`up`"),
    ];
    for (app, reason, wanted) in tunnels.chain(others) {
        let drops = registry.get(app).unwrap_or_else(|| panic!("there is no {app}")).info().drops;
        let drop = drops.iter().find(|drop| drop.name == reason).unwrap_or_else(|| panic!("{app} has no {reason}"));
        assert!(drop.help.contains(wanted), "{app}: {drop:?}");
    }
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
    let (mut links, mut apps) =
        (Vec::new(), format!("app = {{ app = \"{}\", fuse = false, {} }}\n", app.name(), row.keys));
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
    let capture = root().join("examples/captures/quickstart.pcap");
    let files = BenchFiles::new(capture, scratch.path().join("written.pcap"));
    let registry = registry();
    for app in registry.entries() {
        let name = app.name();
        let rows = match app.bench(&files) {
            BenchSetup::Rows(rows) => rows,
            BenchSetup::Unmeasured(why) => {
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

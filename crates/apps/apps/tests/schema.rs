//! The JSON Schema of network files, with the apps of Bellows: every example is valid.

use std::fs;
use std::path::PathBuf;

use bellows_apps::registry;
use bellows_testkit::tree::root;
use serde_json::Value;
use toml::de::{DeTable, DeValue};

fn value(written: DeValue<'_>) -> Value {
    match written {
        DeValue::String(text) => text.into_owned().into(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().into(),
        DeValue::Float(number) => number.as_str().parse::<f64>().ok().into(),
        DeValue::Boolean(boolean) => boolean.into(),
        DeValue::Datetime(_) => Value::Null,
        DeValue::Array(items) => items.into_iter().map(|item| value(item.into_inner())).collect(),
        DeValue::Table(inner) => table(inner),
    }
}

fn table(written: DeTable<'_>) -> Value {
    let entries = written.into_iter().map(|(key, item)| (key.into_inner().into_owned(), value(item.into_inner())));
    Value::Object(entries.collect())
}

fn wrong(text: &str) -> Vec<String> {
    let schema = jsonschema::draft202012::new(&registry().file_schema()).expect("it is a schema");
    let file = table(DeTable::parse(text).expect("it is TOML").into_inner());
    schema.iter_errors(&file).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

#[test]
fn the_schema_is_one_of_draft_2020_12() {
    let schema = registry().file_schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(jsonschema::meta::validate(&schema).is_ok());
    let rate = &schema["$defs"]["app.source"]["properties"]["rate"];
    assert!(rate["description"].as_str().unwrap().contains("per second"), "{rate:#}");
    assert_eq!(schema["$defs"]["app.delay"]["properties"]["limit"]["default"], 32_768);
    let prefetch = &schema["$defs"]["app.sink"]["properties"]["prefetch"];
    assert!(prefetch["description"].as_str().unwrap().ends_with("In packets."), "{prefetch:#}");
}

#[test]
fn every_example_has_the_shape() {
    let folder = root().join("examples");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|ending| ending == "toml")).collect();
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        assert_eq!(wrong(&fs::read_to_string(&file).unwrap()), [""; 0], "{}", file.display());
    }
}

#[test]
fn values_of_any_spelling_have_the_shape_and_others_do_not() {
    for (app, keys) in [
        ("source", "rate = 1000"),
        ("source", "rate = \"30% of 10Gb/s\""),
        ("source", "rate = \"10Gb/s L1\"\nsizes = \"${SIZES}\"\nheaders = \"${HEADERS:-ipv4}\""),
        ("source", "size = \"${SIZE}\"\nshuffle = \"${SHUFFLE}\""),
        ("impair", "loss = 0.5\ncorrupt = \"1%\"\nprefetch = 4"),
        ("delay", "time = \"1.5ms\""),
        ("pcap-reader", "path = \"x\"\nrepeat = \"forever\""),
        ("pcap-reader", "path = \"${X}\"\nrepeat = 3"),
        ("vhost-user", "socket = \"s\"\ndisable = [\"packed\", \"tso4\"]"),
        ("${TYPE:-sink}", "whatever = 1"),
        ("pcap-writer", "path = \"x\"\nrotate = \"50MB\"\nkeep = 4"),
    ] {
        let text = format!("[apps.a]\napp = \"{app}\"\n{keys}\n");
        assert_eq!(wrong(&text), [""; 0], "{text}");
    }
    for (app, keys) in [
        ("sorce", ""),
        ("source", "rate = \"fast\""),
        ("source", "rate = -1"),
        ("source", "mix = \"imx\""),
        ("source", "size = 0"),
        ("source", "size = \"60\""),
        ("source", "sizes = [60, \"long\"]"),
        ("source", "path = \"x\""),
        ("impair", "loss = 5"),
        ("impair", "loss = \"often\""),
        ("delay", "time = 10"),
        ("delay", "time = \"10\""),
        ("delay", ""),
        ("sink", "prefetch = 65"),
        ("pcap-reader", "path = \"x\"\nrepeat = \"ever\""),
        ("vhost-user", "socket = \"s\"\ndisable = [\"paked\"]"),
    ] {
        let text = format!("[apps.a]\napp = \"{app}\"\n{keys}\n");
        assert_ne!(wrong(&text), [""; 0], "{text}");
    }
    assert_ne!(wrong("links = [\"a.b\"]"), [""; 0]);
    assert_ne!(wrong("[engine]\nburst = 0"), [""; 0]);
    assert_eq!(wrong("links = [\"a -> b\", \"${LINK}\"]\n[engine]\nburst = \"${BURST:-64}\""), [""; 0]);
}

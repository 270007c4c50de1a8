//! What `bellows apps` prints is whole: every app, port, key and counter is explained.

use bellows_apps::registry;
use bellows_engine::{Counter, Port, Ports};

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
    assert_eq!(registry.entries().len(), 17);
    for app in registry.entries() {
        let name = app.name();
        assert!(is_name(name, '-'), "{name}");
        assert!(!app.summary().is_empty() && app.summary().lines().count() == 1, "{name}: {}", app.summary());
        let traits = app.traits();
        check_ports(name, traits.inputs);
        check_ports(name, traits.outputs);
        for Counter { name: counter, help, .. } in traits.drops.iter().chain(traits.counters) {
            assert!(is_name(counter, '_') && !help.is_empty(), "{name}: {counter}");
        }
        for key in app.keys() {
            assert!(is_name(&key.name, '_') && !key.description.is_empty(), "{name}: {key:?}");
        }
        let manual = app.manual_text(100);
        let too_long = manual.lines().find(|line| line.chars().count() > 100);
        assert!(manual.starts_with(name) && too_long.is_none(), "{too_long:?} in {manual}");
    }
}

//! A scrape during a reload has the counters of one configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use crate::metrics::exposition::samples;
use crate::support::Sandbox;
use crate::support::metrics::{Server, get};

/// A chain of apps with these names.
fn chain(names: &[&str]) -> String {
    let all = [&["source"], names, &["end"]].concat();
    let links: Vec<String> =
        all.windows(2).map(|pair| format!("\"{}.output -> {}.input\"", pair[0], pair[1])).collect();
    let mut text = format!(
        "links = [{}]\n[apps.source]\napp = \"source\"\nsize = 60\n[apps.end]\napp = \"sink\"\n",
        links.join(", ")
    );
    for name in names {
        text += &format!("[apps.{name}]\napp = \"tee\"\n");
    }
    text
}

/// The values of a label in the samples that begin with a text.
fn values<'a>(names: impl Iterator<Item = &'a String>, start: &str, label: &str) -> BTreeSet<String> {
    let names = names.filter(|name| name.starts_with(start));
    names.filter_map(|name| Some(name.split(&format!("{label}=\"")).nth(1)?.split('"').next()?.to_owned())).collect()
}

/// Whether a sample is one of a count.
fn is_counter(name: &str) -> bool {
    let name = name.split('{').next().unwrap_or_default();
    ["_total", "_bucket", "_count", "_sum"].iter().any(|ending| name.ends_with(ending))
}

/// Whether a sample is there in both configurations: it is of the network, of the ends, or of a worker.
fn stays(name: &str) -> bool {
    let is_of = |label: &str, ends: [&str; 2]| {
        let value = name.split(&format!("{label}=\"")).nth(1).and_then(|rest| rest.split('"').next());
        value.is_none_or(|value| ends.contains(&value))
    };
    !name.contains("link=\"") && is_of("app", ["source", "end"]) && is_of("port", ["source", "end"])
}

#[test]
fn a_scrape_during_a_reload_is_of_one_configuration() {
    let sandbox = Sandbox::new();
    let names: Vec<String> = (0..40).map(|number| format!("n{number}")).collect();
    let long: Vec<&str> = names.iter().map(String::as_str).collect();
    let files = [chain(&["one", "two"]), chain(&long)];
    let network = sandbox.write("chain.toml", &files[0]);
    let running = sandbox.start(&[&network, "--cpu", "0"]);
    let server = Server::start(&sandbox, &[]);
    let over = AtomicBool::new(false);
    let scrapes = thread::scope(|scope| {
        let scraper = scope.spawn(|| {
            let (mut seen, mut scrapes) = (BTreeSet::new(), 0u64);
            let mut last: BTreeMap<String, f64> = BTreeMap::new();
            while !over.load(Relaxed) {
                let found = samples(&get(&server.place, "/metrics", "").body);
                let apps = values(found.keys(), "bellows_app_in_packets_total", "app");
                let links = values(found.keys(), "bellows_link_packets_total", "link");
                let expected: Vec<&str> =
                    [&["source", "end"][..], if apps.contains("one") { &["one", "two"][..] } else { &long }].concat();
                assert_eq!(apps, expected.iter().map(|name| (*name).to_owned()).collect());
                assert_eq!(links.len(), apps.len() - 1);
                // Every family has all apps.
                for family in ["bellows_app_info", "bellows_app_dropped_packets_total", "bellows_app_held_packets"] {
                    assert_eq!(values(found.keys(), family, "app"), apps, "{family}");
                }
                // Counters of the engine and of apps that stay never fall.
                let mut compared = 0;
                for (name, value) in found.iter().filter(|(name, _)| is_counter(name) && stays(name)) {
                    if let Some(last) = last.get(name) {
                        assert!(value >= last, "{name} is {value} after {last}");
                        compared += 1;
                    }
                }
                assert!(scrapes == 0 || compared > 80, "{compared}");
                last = found;
                seen.insert(apps.len());
                scrapes += 1;
            }
            assert_eq!(seen, [4, 42].into());
            scrapes
        });
        for round in 1..=30 {
            fs::write(&network, &files[round % 2]).unwrap();
            sandbox.bellows(&["reload", "chain"]).success();
        }
        over.store(true, Relaxed);
        scraper.join().unwrap()
    });
    assert!(scrapes > 30, "{scrapes}");
    let found = samples(&server.get("/metrics", "").body);
    assert_eq!(found["bellows_network_reloads_total{network=\"chain\"}"], 30.0);
    drop(running);
}

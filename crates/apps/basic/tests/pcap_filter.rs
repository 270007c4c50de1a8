//! A filter that a reload exchanges loses no packet, and its counters go on.

use std::fs;
use std::path::Path;
use std::thread;

use bellows_basic::register;
use bellows_config::{Loaded, Overrides, Registry, load_str};
use bellows_engine::{End, Engine, Network};
use bellows_testkit::scratch::scratch;
use bellows_testkit::wait::Deadline;

const PACKETS: u64 = 200_000;

fn loaded(folder: &Path, keys: &str) -> Loaded {
    let text = format!(
        "links = [\"source -> filter\", \"filter.match -> found.input\", \"filter.rest -> others.input\"]\n\
         [apps]\n\
         source = {{ app = \"source\", headers = \"ipv4\", count = {PACKETS} }}\n\
         found = {{ app = \"sink\" }}\n\
         others = {{ app = \"sink\" }}\n\
         [apps.filter]\n\
         app = \"pcap-filter\"\n{keys}\n"
    );
    let loaded = load_str(&text, "net.toml", folder, &register(Registry::new()), &Overrides::default());
    loaded.unwrap_or_else(|errors| panic!("{}", errors.render(false)))
}

fn reload(engine: &mut Engine, network: Network) {
    let control = engine.control();
    let reloading = thread::spawn(move || control.reload(network).unwrap());
    let deadline = Deadline::new("a reload");
    while !reloading.is_finished() {
        deadline.check();
        engine.handle_requests();
    }
    reloading.join().unwrap();
}

#[test]
fn a_reload_exchanges_the_filter_and_loses_no_packet() {
    let folder = scratch();
    let file = folder.path().join("tests.filter");
    fs::write(&file, "udp").unwrap();
    let from_file = "file = \"tests.filter\"";
    let Loaded { network, engine: config, .. } = loaded(folder.path(), from_file);
    let mut engine = Engine::new(network, config.settings(), None).unwrap();
    let counters = |engine: &Engine| {
        let snapshot = engine.snapshot();
        let app = snapshot.apps.iter().find(|app| app.name == "filter").expect("the filter");
        (app.counters["matched"], app.counters["rest"])
    };
    let breathe = |engine: &mut Engine| {
        for _ in 0..100 {
            engine.breathe();
        }
    };
    breathe(&mut engine);
    let (udp, none) = counters(&engine);
    assert!(udp > 0 && none == 0);

    // Only the text in the file has changed.
    fs::write(&file, "tcp").unwrap();
    reload(&mut engine, loaded(folder.path(), from_file).network);
    breathe(&mut engine);
    let (matched, rest) = counters(&engine);
    assert!(matched == udp && rest > 0, "{udp} {matched} {rest}");

    reload(&mut engine, loaded(folder.path(), "filters = { match = \"ip\" }\nwhich = \"all\"").network);
    let end = engine.run();
    assert!(matches!(end, End::Done), "{end:?}");
    let outcome = engine.finish(end);
    let apps = &outcome.snapshot.apps;
    let packets = |name: &str| apps.iter().find(|app| app.name == name).expect("an app").in_packets;
    assert_eq!(packets("found") + packets("others"), PACKETS);
    assert_eq!(packets("others"), rest);
    assert_eq!(apps.iter().map(|app| app.dropped()).sum::<u64>(), 0);
    assert_eq!(outcome.snapshot.imbalances(), []);
}

//! Pseudowires that come and go, reload by reload, beside others that carry frames.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use bellows_apps::registry;
use bellows_config::{Loaded, Overrides, Registry, load_str};
use bellows_engine::{Control, End, Engine};
use bellows_observe::Snapshot;
use bellows_testkit::soak;
use bellows_testkit::wait::eventually;

/// Reloads of the short form, and of the long one; and after how many of them memory is measured for the first time.
const FEW: [usize; 2] = [500, 250];
const MANY: [usize; 2] = [10_000, 500];

/// Pseudowires that may come and go.
const CHANGING: usize = 8;

/// Frames that may be on the way when the run ends.
const IN_FLIGHT: u64 = 1_000;

/// Those that stay, whose frames are counted: the ports of their frames.
const STAYING: [&str; 2] = ["lan", "line"];

/// Two ends joined by a wire. Between them are a VPN with a bridge, a line, and one more line for each bit of `lines`,
/// all over the same tunnels.
fn network(lines: usize) -> String {
    let mut text = String::new();
    let mut links = vec!["west.uplink -> east.uplink".to_owned(), "east.uplink -> west.uplink".to_owned()];
    for (end, own, other) in [("west", 1, 2), ("east", 2, 1)] {
        for port in ["lan", "line"] {
            text += &format!("[apps.{end}-to-{port}]\napp = \"sink\"\n[apps.{end}-{port}]\napp = \"source\"\n");
            text += &format!("headers = \"ipv4\"\nrate = \"5kpps\"\nsrc_mac = \"02:00:00:00:01:0{own}\"\n");
            text += &format!("dst_mac = \"02:00:00:00:01:0{other}\"\n");
            links.push(format!("{end}-{port}.output -> {end}.{port}-port"));
            links.push(format!("{end}.{port}-port -> {end}-to-{port}.input"));
        }
        text += &format!("[apps.{end}-customers]\napp = \"source\"\ncount = 0\n");
        text += &format!("[apps.{end}-to-customers]\napp = \"sink\"\n");
        links.push(format!("{end}-customers.output -> {end}.customers"));
        links.push(format!("{end}.customers -> {end}-to-customers.input"));
        text += &format!(
            r#"
[apps.{end}]
app = "l2vpn"
[apps.{end}.interfaces]
uplink = {{ mac = "02:00:00:00:00:0{own}", mtu = 1600, addresses = ["192.0.2.{own}/24", "2001:db8::{own}/64"] }}
lan-port = {{}}
line-port = {{}}
customers = {{ mtu = 1504, trunk = {{}} }}
[apps.{end}.peers]
here = {{ local = true, endpoints = {{ v4 = "192.0.2.{own}", v6 = "2001:db8::{own}" }} }}
there = {{ endpoints = {{ v4 = "192.0.2.{other}", v6 = "2001:db8::{other}" }} }}
[apps.{end}.transports]
four = {{ local = "here.v4", remote = "there.v4" }}
six = {{ local = "here.v6", remote = "there.v6" }}
[apps.{end}.vpls.lan]
circuits = ["lan-port", "customers.4000"]
pseudowires.lan = {{ transport = "six", tunnel = "gre", vc_id = 1000, control_channel = {{ heartbeat = "1s" }} }}
[apps.{end}.vpls.line]
circuits = ["line-port"]
pseudowires.line = {{ transport = "four", tunnel = "gre", vc_id = 1000, control_channel = {{ heartbeat = "1s" }} }}
"#
        );
        for line in (0..CHANGING).filter(|line| lines >> line & 1 != 0) {
            let transport = ["four", "six"][line % 2];
            text += &format!(
                "[apps.{end}.vpls.line{line}]\ncircuits = [\"customers.{number}\"]\n\
                 pseudowires.line{line} = {{ transport = \"{transport}\", tunnel = \"gre\", vc_id = {number}, \
                 control_channel = {{ heartbeat = \"1s\" }} }}\n",
                number = line + 1
            );
        }
    }
    format!("links = {links:?}\n{text}")
}

/// Which lines there are after `reloads` reloads: one comes or goes in each, so that all combinations occur.
fn lines(reloads: usize) -> usize {
    (reloads ^ reloads >> 1) % (1 << CHANGING)
}

fn load(registry: &Registry, lines: usize) -> Loaded {
    let loaded = load_str(&network(lines), "net.toml", Path::new("."), registry, &Overrides::default());
    loaded.unwrap_or_else(|wrong| panic!("{}", wrong.render(false)))
}

/// Ends the run with the thread that steers it, also if that fails.
struct Stop(Control);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A counter of the channel of a staying pseudowire at both ends.
fn of_channels(snapshot: &Snapshot, name: &str) -> Vec<u64> {
    let of = |end: &str, port: &str| {
        let called = format!("{end}/control-channel-{port}.{port}");
        let app = snapshot.apps.iter().find(|app| *app.name == called).unwrap();
        app.counters.get(name).or_else(|| app.drops.get(name)).copied().unwrap()
    };
    ["west", "east"].iter().flat_map(|end| STAYING.map(|port| of(end, port))).collect()
}

/// All drops, by app and name.
fn drops(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let of_app = |app: &bellows_observe::AppCounts| {
        let name = app.name.clone();
        let all: Vec<_> = app.drops.iter().map(|(drop, &count)| (format!("{name}: {drop}"), count)).collect();
        all
    };
    snapshot.apps.iter().flat_map(of_app).filter(|(_, count)| *count > 0).collect()
}

/// Pages of memory that this process has.
fn resident() -> u64 {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap();
    sizes.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// What the steering thread finds.
struct Found {
    reloads: usize,
    /// Drops when all was up.
    drops: BTreeMap<String, u64>,
    /// Pages when the process was warm, and at the end.
    pages: [u64; 2],
}

fn steer(control: &Control, registry: &Registry) -> Found {
    let _stop = Stop(control.clone());
    eventually("all pseudowires up", || of_channels(&control.snapshot(), "up") == [1; 4]);
    // Addresses of IPv6 are checked, and neighbours found.
    thread::sleep(Duration::from_millis(500));
    let before = drops(&control.snapshot());
    let [reloads, warm_after] = if soak::is_soaking() { MANY } else { FEW };
    let mut warm = 0;
    for reload in 1..=reloads {
        let loaded = load(registry, lines(reload));
        control.reload(loaded.network).unwrap();
        loaded.changes.into_iter().for_each(|change| change());
        if reload == warm_after {
            warm = resident();
        }
    }
    Found { reloads, drops: before, pages: [warm, resident()] }
}

#[test]
fn pseudowires_come_and_go_without_a_loss_of_others() {
    let registry = registry();
    let loaded = load(&registry, lines(0));
    assert_eq!(loaded.warnings.render(false), "");
    let mut engine = Engine::new(loaded.network, loaded.engine.settings(), None).unwrap();
    let control = engine.control();
    let steering = thread::spawn(move || steer(&control, &registry));
    let end = engine.run();
    let Found { reloads, drops: before, pages } = steering.join().unwrap();
    let outcome = engine.finish(end.clone());
    assert_eq!((end, outcome.panicked.len(), outcome.snapshot.imbalances()), (End::Stopped, 0, Vec::new()));
    eprintln!("{reloads} reloads, {} pages when warm, {} at the end", pages[0], pages[1]);

    let snapshot = &outcome.snapshot;
    let after = drops(snapshot);
    // A message may be on the way to a pseudowire that is gone. It was one of those that nobody counts on.
    let lost = |(name, count): (&String, &u64)| {
        let before = before.get(name).copied().unwrap_or(0);
        (*count > before && !name.ends_with(": no_session")).then(|| format!("{name}: {}", count - before))
    };
    assert_eq!(after.iter().filter_map(lost).collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!((of_channels(snapshot, "up"), of_channels(snapshot, "down")), (vec![1; 4], vec![0; 4]));
    for (from, to) in [("west", "east"), ("east", "west")] {
        for port in STAYING {
            let packets = |name: String| snapshot.apps.iter().find(|app| *app.name == name).unwrap();
            let (sent, arrived) = (packets(format!("{from}-{port}")), packets(format!("{to}-to-{port}")));
            assert!(arrived.in_packets > 5_000, "{port}: {}", arrived.in_packets);
            let missing = sent.out_packets - arrived.in_packets;
            assert!(missing <= after.values().sum::<u64>() + IN_FLIGHT, "{port}: {missing} frames");
        }
    }
    assert!(pages[1] * 10 <= pages[0] * 12, "{} pages, and {} before", pages[1], pages[0]);
}

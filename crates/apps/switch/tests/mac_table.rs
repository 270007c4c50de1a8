//! Bridges of several workers share one table of addresses, while it grows, stations move, and the network is reloaded.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use bellows_config::{Configure, Context, Overrides, Registry, SettingError, load_str};
use bellows_engine::{App, Control, End, Engine, Io, Port, Ports, Settings};
use bellows_packet::Packet;
use bellows_testkit::wait::eventually;
use fastrand::Rng;

/// The stations of one port: they send to any station, and receive.
struct Stations {
    config: Config,
    random: Rng,
}

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Their first number.
    first: u32,
    /// How many they are.
    count: u32,
    /// The number of all stations.
    all: u32,
}

static MISLED: AtomicU64 = AtomicU64::new(0);

fn address(station: u32) -> [u8; 6] {
    let [_, a, b, c] = station.to_be_bytes();
    [2, 0, 0, a, b, c]
}

impl App for Stations {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "frames for the stations")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "frames of the stations")]);
    const PULLS: bool = true;
    const MAX_FAN_OUT: usize = 0;
    const ENDS: bool = true;

    fn pull(&mut self, io: &Io<Self>) {
        let Config { first, count, all } = self.config;
        let mut output = io.output(0);
        for _ in 0..8.min(output.room()) {
            let from = first + self.random.u32(..count);
            let to = self.random.u32(..all);
            let frame = [&address(to)[..], &address(from), &[0x88, 0xb5], &[0; 46]].concat();
            if let Some(packet) = Packet::from_bytes(&frame) {
                output.push(packet);
            }
        }
    }

    fn is_finished(&self) -> bool {
        false
    }

    fn push(&mut self, io: &Io<Self>) {
        let Config { first, count, .. } = self.config;
        for packet in &mut io.input(0) {
            let [.., a, b, c] = *packet.bytes().first_chunk::<6>().unwrap();
            let to = u32::from_be_bytes([0, a, b, c]);
            MISLED.fetch_add(u64::from(!(first..first + count).contains(&to)), Relaxed);
        }
    }
}

impl Configure for Stations {
    const NAME: &'static str = "stations";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<Stations, SettingError> {
        let random = Rng::with_seed(config.first.into());
        Ok(Stations { config, random })
    }
}

/// Two bridges on two workers, with two ports each.
fn network(keys: &str, on_other: &str) -> String {
    let mut text = format!("[objects.macs]\nobject = \"mac-table\"\n{keys}\n[workers.other]\n");
    let mut links = Vec::new();
    for (bridge, worker, ports) in [("left", "main", ["a", "b"]), ("right", on_other, ["c", "d"])] {
        text += &format!("[apps.{bridge}]\napp = \"bridge\"\ntable = \"macs\"\nworker = \"{worker}\"\n");
        for port in ports {
            let first = (port.as_bytes()[0] - b'a') as u32 * 5_000;
            text += &format!("[apps.{port}]\napp = \"stations\"\nworker = \"{worker}\"\n");
            text += &format!("first = {first}\ncount = 5000\nall = 20000\n");
            text += &format!("[apps.to-{port}]\napp = \"join\"\nworker = \"{worker}\"\n");
            links.push(format!("{port}.output -> {bridge}.{port}"));
            links.push(format!("to-{port}.output -> {port}.input"));
        }
        for port in ["a", "b", "c", "d"] {
            links.push(format!("{bridge}.{port} -> to-{port}.{bridge}"));
        }
    }
    format!("links = {links:?}\n[engine]\nname = \"bridges\"\n{text}")
}

fn reload(control: &Control, registry: &Registry, text: &str) {
    let loaded = load_str(text, "net.toml", Path::new("."), registry, &Overrides::default()).unwrap();
    control.reload(loaded.network).unwrap();
    loaded.changes.into_iter().for_each(|change| change());
}

/// Ends the run with the thread that steers it, also if that fails.
struct Stop(Control);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn table(control: &Control) -> serde_json::Value {
    let objects = control.objects();
    assert_eq!((objects.len(), &*objects[0].object, &*objects[0].kind), (1, "macs", "mac-table"));
    objects[0].status.clone()
}

#[test]
fn bridges_of_two_workers_share_a_table_that_grows_and_survives_reloads() {
    let registry = bellows_switch::register(bellows_basic::register(Registry::new())).with::<Stations>();
    let load = |text: &str| load_str(text, "net.toml", Path::new("."), &registry, &Overrides::default());
    let text = network("", "other");
    let loaded = load(&text).unwrap();
    assert_eq!(loaded.warnings.render(false), "");
    let mut engine = Engine::new(loaded.network, Settings::default(), None).unwrap();
    let control = engine.control();
    let steering = thread::spawn({
        let control = control.clone();
        move || {
            let _stop = Stop(control.clone());
            eventually("all stations", || table(&control)["addresses"] == 20_000);
            let status = table(&control);
            assert_eq!(status["ports"], serde_json::json!({ "a": 5_000, "b": 5_000, "c": 5_000, "d": 5_000 }));
            assert_eq!(status["memory"], 65_536 * 16, "grown six times");
            // A reload keeps the object, also when apps move and bridges are replaced.
            for worker in ["main", "other"] {
                reload(&control, &registry, &network("", worker));
                assert_eq!(table(&control)["addresses"], 20_000, "on {worker}");
            }
            // From here on every frame takes its way: nothing is flooded.
            eventually("packets in flight from before", || {
                let before = MISLED.load(Relaxed);
                thread::sleep(Duration::from_millis(20));
                MISLED.load(Relaxed) == before
            });
            // A table with other keys goes on with what it knows.
            for (keys, fixed) in
                [("ageing = \"10s\"", 0), ("static = { \"02:00:01:00:00:00\" = \"a\" }", 1), ("capacity = 20000", 0)]
            {
                reload(&control, &registry, &network(keys, "other"));
                let status = table(&control);
                assert_eq!(
                    (&status["addresses"], &status["static"]),
                    (&(20_000 + fixed).into(), &fixed.into()),
                    "{keys}"
                );
            }
            assert_eq!(table(&control)["capacity"], 20_000);
        }
    });
    let end = engine.run();
    steering.join().unwrap();
    let outcome = engine.finish(end.clone());
    assert_eq!((end, outcome.panicked.len(), outcome.snapshot.imbalances().len()), (End::Stopped, 0, 0));
}

//! Filters of two workers share one table of connections, which is too small for all of them: what one worker enters the
//! other finds, and nobody passes by the state of another connection.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use bellows_basic::register;
use bellows_config::{Configure, Context, Overrides, Registry, SettingError, load_str};
use bellows_engine::{App, End, Engine, Io, Port, Ports, Settings};
use bellows_packet::Packet;
use bellows_testkit::wait::eventually;
use fastrand::Rng;

/// Connections, of which the clients use the even ones.
const CONNECTIONS: u32 = 1_000;

/// Clients that send requests, or servers that send answers; both receive.
struct Hosts {
    are_servers: bool,
    random: Rng,
}

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {
    are_servers: bool,
}

static ANSWERED: AtomicU64 = AtomicU64::new(0);
static STRANGE: AtomicU64 = AtomicU64::new(0);

/// A datagram of a connection.
fn frame(number: u32, is_answer: bool) -> Vec<u8> {
    let [_, a, b, c] = number.to_be_bytes();
    let (client, server) = ([10, a, b, c, 0xc3, 0x50], [9, 0, 0, 1, 0, 80]);
    let (from, to) = if is_answer { (server, client) } else { (client, server) };
    let ethernet = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
    let header = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
    [&ethernet[..], &header, &from[..4], &to[..4], &from[4..], &to[4..], &[0; 22]].concat()
}

impl App for Hosts {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "datagrams for the hosts")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "datagrams of the hosts")]);
    const PULLS: bool = true;
    const MAX_FAN_OUT: usize = 0;
    const ENDS: bool = true;

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for _ in 0..16.min(output.room()) {
            let number = self.random.u32(..CONNECTIONS);
            let number = if self.are_servers { number } else { number & !1 };
            if let Some(packet) = Packet::from_bytes(&frame(number, self.are_servers)) {
                output.push(packet);
            }
        }
    }

    fn is_finished(&self) -> bool {
        false
    }

    fn push(&mut self, io: &Io<Self>) {
        for packet in &mut io.input(0) {
            if !self.are_servers {
                let is_strange = packet.bytes()[33] % 2 == 1;
                if is_strange { &STRANGE } else { &ANSWERED }.fetch_add(1, Relaxed);
            }
        }
    }
}

impl Configure for Hosts {
    const NAME: &'static str = "hosts";
    type Config = Config;

    fn configure(Config { are_servers }: Config, _: &Context) -> Result<Hosts, SettingError> {
        Ok(Hosts { are_servers, random: Rng::with_seed(are_servers.into()) })
    }
}

const NETWORK: &str = r#"
links = [
  "clients.output -> out.input",
  "out.match -> servers.input",
  "servers.output -> back.input",
  "back.match -> clients.input",
]

[objects.flows]
object = "state-table"
capacity = 64

[workers.other]

[apps.clients]
app = "hosts"
are_servers = false
worker = "main"

[apps.out]
app = "pcap-filter"
filter = "udp dst port 80"
state_table = "flows"
worker = "main"

[apps.servers]
app = "hosts"
are_servers = true
worker = "other"

[apps.back]
app = "pcap-filter"
state_table = "flows"
worker = "other"
"#;

#[test]
fn filters_of_two_workers_share_a_table_that_is_too_small() {
    let registry: Registry = register(Registry::new()).with::<Hosts>();
    let loaded = load_str(NETWORK, "net.toml", Path::new("."), &registry, &Overrides::default()).unwrap();
    let mut engine = Engine::new(loaded.network, Settings::default(), None).unwrap();
    let control = engine.control();
    let steering = thread::spawn(move || {
        eventually("answers", || ANSWERED.load(Relaxed) > 20_000);
        let status = control.objects()[0].status.clone();
        control.stop();
        status
    });
    let end = engine.run();
    let status = steering.join().unwrap();
    let outcome = engine.finish(end.clone());
    assert_eq!((end, outcome.panicked.len(), outcome.snapshot.imbalances().len()), (End::Stopped, 0, 0));
    assert_eq!(STRANGE.load(Relaxed), 0, "answers to requests that nobody sent");
    let connections = status["connections"].as_u64().unwrap();
    assert!((64..=128).contains(&connections), "{status}");
    let counter = |app: &str, name: &str| {
        let app = outcome.snapshot.apps.iter().find(|of| of.name == app).unwrap();
        app.counters.get(name).copied().unwrap_or_default()
    };
    assert!(counter("out", "states_evicted") > 1_000 && counter("back", "states_entered") == 0);
    assert_eq!(counter("back", "passed_by_state"), counter("back", "matched"));
}

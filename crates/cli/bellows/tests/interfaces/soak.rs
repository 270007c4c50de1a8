//! Mixed traffic for minutes, or for an hour in a soak: nothing leaks, each packet that is missing is counted, and the
//! speed is stable.

use std::fs;
use std::time::{Duration, Instant};

use bellows_testkit::netns::interface::Counters;
use bellows_testkit::netns::traffic::{self, StreamDirection, checksum_errors};
use bellows_testkit::skips::is_left_out;
use bellows_testkit::soak::is_soaking;
use bellows_testkit::wait::eventually_without_faults;
use serde_json::Value;

use crate::bridge::{Bridge, Layout, Offloads, Port, SERVER, SERVER_V6, is_missing, missing};
use crate::support::Running;

/// The bridges of a soak, one after the other, and what their hosts leave to their interfaces.
const BRIDGES: [([Port; 2], Offloads); 2] = [
    ([Port::new("af-xdp", ""), Port::new("af-xdp", "")], Offloads::Nothing),
    ([Port::new("tap", ""), Port::new("raw-socket", "")], Offloads::All),
];

/// The time of both bridges.
const SHORT: Duration = Duration::from_secs(50);
const LONG: Duration = Duration::from_secs(3_600);

/// Rounds before memory and speed are judged.
const WARM_UP: usize = 2;

/// Rounds after the warm-up, at least.
const MIN_ROUNDS: usize = 4;

/// How much the resident memory may grow after that, in bytes: the kernel accounts it coarsely.
const GROWTH: u64 = 8 << 20;

/// How many more buffers may be in use at the end.
const BUFFERS: u64 = 256;

/// The least speed that the second half must reach once, as a part of the median of the first. The machine's other work
/// makes single rounds several times slower.
const STEADY: f64 = 0.5;

/// What must not grow.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// Resident memory in bytes.
    memory: u64,
    descriptors: usize,
    threads: usize,
    /// Packet buffers in use.
    buffers: u64,
}

impl Usage {
    fn of(running: &Running<'_>) -> Usage {
        let process = format!("/proc/{}", running.pid());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kibibytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        let entries = |folder: &str| fs::read_dir(format!("{process}/{folder}")).unwrap().count();
        let engine = running.counters()["engine"].clone();
        let buffers = engine["buffers_in_use"].as_u64().unwrap_or_else(|| panic!("no buffers in {engine:#}"));
        Usage { memory: kibibytes << 10, descriptors: entries("fd"), threads: entries("task"), buffers }
    }

    /// What has grown since an earlier time.
    fn faults(&self, before: &Usage) -> String {
        let grown = self.memory > before.memory + GROWTH
            || self.descriptors > before.descriptors
            || self.threads > before.threads
            || self.buffers > before.buffers + BUFFERS;
        if grown { format!("{before:?} has become {self:?}") } else { String::new() }
    }
}

/// Rates in one direction, by round.
struct Rates {
    direction: StreamDirection,
    rates: Vec<f64>,
}

impl Rates {
    /// The median of the first half, after the warm-up, and the best of the second half.
    fn halves(&self) -> [f64; 2] {
        let rates = &self.rates[WARM_UP..];
        let (first, second) = rates.split_at(rates.len() / 2);
        [median(first), second.iter().copied().fold(0.0, f64::max)]
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Packets that the hosts have sent and not received, and those that any counter says were dropped.
fn missing_and_counted(bridge: &Bridge, running: &Running<'_>, before: &[Counters; 2]) -> (i64, u64) {
    let now = bridge.lan_counters();
    let missing = missing(before, &now).map(|packets| packets.max(0)).iter().sum();
    let ports: u64 = bridge.ports().iter().map(|port| port.counters()).map(|port| port.rx_lost + port.tx_lost).sum();
    let hosts: u64 = now.iter().zip(before).map(|(now, before)| now.rx_lost - before.rx_lost).sum();
    (missing, ports + hosts + counted_drops(&running.counters()))
}

/// The drops of all apps.
fn counted_drops(counters: &Value) -> u64 {
    let values = |object: &Value| object.as_object().cloned().unwrap_or_default();
    let apps = counters["apps"].as_array().unwrap();
    let dropped = apps.iter().flat_map(|app| values(&app["drops"]));
    dropped.filter_map(|(_, packets)| packets.as_u64()).sum()
}

/// One round of traffic: streams in both directions, packets, and a file.
fn round(bridge: &Bridge, rates: &mut [Rates; 2]) {
    let (client, second) = (bridge.client(), Duration::from_secs(1));
    for rates in rates {
        rates.rates.push(traffic::tcp(client, SERVER, second, rates.direction));
    }
    traffic::udp(client, SERVER_V6, second, 30, 1_200);
    bridge.fetch(SERVER_V6);
}

fn soak(ports: [Port; 2], offloads: Offloads, time: Duration) {
    let bridge = Bridge::new(Layout { ports, ..Layout::of(ports[0], offloads, 1_500) });
    let running = bridge.start();
    bridge.wait_until_connected();
    let before = bridge.quiet_lan_counters();
    let _servers = bridge.serve();
    let pings = [SERVER, SERVER_V6].map(|to| bridge.client().start(&format!("ping -n -q -i 0.01 {to}")));
    let mut rates =
        [StreamDirection::There, StreamDirection::Back].map(|direction| Rates { direction, rates: Vec::new() });
    let start = Instant::now();
    let mut warm = None;
    while start.elapsed() < time || rates[0].rates.len() < WARM_UP + MIN_ROUNDS {
        round(&bridge, &mut rates);
        if rates[0].rates.len() == WARM_UP {
            warm = Some(Usage::of(&running));
        }
    }
    drop(pings);
    let warm = warm.unwrap();
    eventually_without_faults("a leak", || Usage::of(&running).faults(&warm));
    // Packets may be on their way for a moment.
    eventually_without_faults("missing packets", || {
        let (missing, counted) = missing_and_counted(&bridge, &running, &before);
        if missing > counted as i64 {
            let hosts = bridge.lan_counters();
            let ports: Vec<Counters> = bridge.ports().iter().map(|port| port.counters()).collect();
            format!(
                "{missing} are missing and {counted} counted as dropped\nhosts before: {before:?}\nhosts: {hosts:?}\n\
                 ports: {ports:?}\n{:#}",
                running.counters()
            )
        } else {
            String::new()
        }
    });
    let (missing, counted) = missing_and_counted(&bridge, &running, &before);
    eprintln!("{ports:?}: {} rounds, {missing} packets missing, {counted} counted as dropped", rates[0].rates.len());
    for Rates { direction, rates: all } in &rates {
        eprintln!("{direction:?}: {:.0?} Mbit/s", all.iter().map(|rate| rate / 1e6).collect::<Vec<_>>());
    }
    for rates in &rates {
        let [first, second] = rates.halves();
        assert!(second > STEADY * first, "{:?}: {first:.3e} has become {second:.3e} bit/s", rates.direction);
    }
    assert_eq!([bridge.client(), bridge.server()].map(checksum_errors), [0, 0]);
    bridge.stop(running);
}

#[test]
fn mixed_traffic_leaks_and_loses_nothing() {
    let test = "mixed_traffic_leaks_and_loses_nothing";
    if is_left_out(test) || is_missing(test, &[]) {
        return;
    }
    let time = if is_soaking() { LONG } else { SHORT };
    for (ports, offloads) in BRIDGES {
        soak(ports, offloads, time / BRIDGES.len() as u32);
    }
}

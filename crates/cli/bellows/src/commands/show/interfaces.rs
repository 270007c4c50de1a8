//! `bellows show interfaces`: the apps through which packets enter and leave a network.

use std::collections::{BTreeMap, HashSet};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use bellows_config::{Entry, Registry};
use bellows_engine::ObjectStatus;
use bellows_inspect::control::{Reply, Request, ask};
use bellows_inspect::networks::{self, Change, Sample, State};
use bellows_inspect::reports::Subject;
use bellows_inspect::text::sanitize;
use bellows_observe::{AppCounts, LinkCounts, RuntimeDir};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::{router, say_if_not_running};
use crate::command_error::CommandError;
use crate::terminal;
use crate::text::{Align, Table, UNKNOWN, bit_rate, count, known, packet_rate};

/// The time over which rates are measured.
const RATE_INTERVAL: Duration = Duration::from_millis(200);

/// The traffic in one direction.
#[derive(Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Direction")]
struct InterfaceTraffic {
    /// Packets.
    packets: u64,
    /// Bytes.
    bytes: u64,
    /// Over 0.2 s; null for a crashed network.
    packets_per_second: Option<f64>,
    /// Over 0.2 s; null for a crashed network.
    bits_per_second: Option<f64>,
}

/// An app that connects the network to the outside.
#[derive(Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Interface")]
struct ShownInterface {
    /// The app's name in the network.
    app: String,
    /// The app's type.
    kind: String,
    /// `up`, `failed` (it has panicked), `stopped` (the network's process is stopped) or `crashed` (the network has
    /// crashed), or the `state` in its status, such as `listening` (`vhost-user`) or `waiting` ([ports at
    /// interfaces](#status-of-af-xdp-dpdk-raw-socket-tap-and-unix-socket)).
    state: String,
    /// Packets into the network.
    rx: InterfaceTraffic,
    /// Packets from the network.
    tx: InterfaceTraffic,
    /// Packets dropped in total.
    dropped: u64,
    /// Packets dropped, by reason.
    drops: BTreeMap<String, u64>,
    /// Its status; null if it has none, or if the network does not answer.
    #[schemars(extend("status_of" = "kind", "nullable" = true))]
    status: Value,
}

/// A network with its interfaces.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown interfaces", extend("includes" = ["Network"]))]
pub struct ShownInterfaces {
    #[serde(flatten)]
    subject: Subject,
    /// The interval of rates; null for a crashed network.
    seconds: Option<f64>,
    /// The interfaces.
    interfaces: Vec<ShownInterface>,
    /// The interfaces of routing domains.
    routers: Vec<router::RouterInterface>,
}

pub fn execute(runtime_dir: RuntimeDir, registry: &Registry, json: bool) -> Result<ExitCode, CommandError> {
    let subject = Subject::of(&runtime_dir);
    let state = subject.state;
    let (statuses, objects) =
        if state == State::Running { statuses(&runtime_dir) } else { (BTreeMap::new(), Vec::new()) };
    let mut observer = networks::open(runtime_dir)?;
    let before = Sample::take(&mut observer);
    if state.is_alive() {
        thread::sleep(RATE_INTERVAL);
    }
    let change = Change::between(before, Sample::take(&mut observer));
    let interfaces = interfaces(&change, state, &statuses, registry);
    let routers = router::interfaces(&objects, &change.after.counters);
    let text = if json {
        let seconds = state.is_alive().then(|| change.seconds());
        format!("{:#}\n", json!(ShownInterfaces { subject, seconds, interfaces, routers }))
    } else {
        say_if_not_running(&subject.name, state, &change.after.counters);
        let rich = terminal::stdout_is_rich();
        render(&interfaces, rich) + &router::render(&routers, rich)
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The states that the apps and objects of a running network report. A network that does not answer still has counters.
fn statuses(runtime_dir: &RuntimeDir) -> (BTreeMap<String, Value>, Vec<ObjectStatus>) {
    match ask(runtime_dir, &Request::Apps) {
        Ok(Reply::Apps { apps, objects }) => (apps.into_iter().map(|app| (app.app, app.status)).collect(), objects),
        Ok(_) => Default::default(),
        Err(failure) => {
            terminal::warn(&format!("{}; the apps' own states are left out\n", sanitize(&failure.to_string())));
            Default::default()
        }
    }
}

/// The apps that have links on one side only, apps of an interface type, and apps that report being an interface.
fn interfaces(
    change: &Change,
    state: State,
    statuses: &BTreeMap<String, Value>,
    registry: &Registry,
) -> Vec<ShownInterface> {
    let app_of = |end: &str| end.rsplit_once('.').map_or(end, |(app, _)| app).to_owned();
    let links = &change.after.counters.links;
    let ends = |end: fn(&LinkCounts) -> &String| links.iter().map(|link| app_of(end(link))).collect::<HashSet<_>>();
    let (senders, receivers) = (ends(|link| &link.from), ends(|link| &link.to));
    let is_interface = |app: &AppCounts| {
        let says_so = statuses.get(&app.name).is_some_and(|status| status["interface"] == true);
        let passes_on = senders.contains(&app.name) && receivers.contains(&app.name);
        !passes_on || registry.get(&app.kind).is_some_and(Entry::is_interface) || says_so
    };
    let alive = state.is_alive();
    let none = AppCounts::default();
    let interface = |(before, app): (Option<&AppCounts>, &AppCounts)| {
        let before = before.unwrap_or(&none);
        let direction = |packets: fn(&AppCounts) -> u64, bytes: fn(&AppCounts) -> u64| InterfaceTraffic {
            packets: packets(app),
            bytes: bytes(app),
            packets_per_second: alive.then(|| change.per_second(packets(before), packets(app))),
            bits_per_second: alive.then(|| 8.0 * change.per_second(bytes(before), bytes(app))),
        };
        let status = statuses.get(&app.name).cloned().unwrap_or(Value::Null);
        let state = match (state, app.state.as_str()) {
            (State::Crashed, _) => "crashed",
            (_, "failed") => "failed",
            (State::Stopped, _) => "stopped",
            (State::Running, _) => status["state"].as_str().unwrap_or("up"),
        };
        ShownInterface {
            app: app.name.clone(),
            kind: app.kind.clone(),
            state: state.to_owned(),
            // Packets that an app sends into the network come from outside.
            rx: direction(|app| app.out_packets, |app| app.out_bytes),
            tx: direction(|app| app.in_packets, |app| app.in_bytes),
            dropped: app.dropped(),
            drops: app.drops.clone(),
            status,
        }
    };
    change.apps().filter(|(_, app)| is_interface(app)).map(interface).collect()
}

fn render(interfaces: &[ShownInterface], rich: bool) -> String {
    let mut table = Table::new(&[
        ("INTERFACE", Align::Left),
        ("TYPE", Align::Left),
        ("STATE", Align::Left),
        ("RX PACKETS", Align::Right),
        ("RX BYTES", Align::Right),
        ("RX RATE", Align::Right),
        ("", Align::Right),
        ("TX PACKETS", Align::Right),
        ("TX BYTES", Align::Right),
        ("TX RATE", Align::Right),
        ("", Align::Right),
        ("DROPPED", Align::Right),
        ("AT", Align::Left),
    ]);
    for interface in interfaces {
        let mut cells = vec![interface.app.clone(), interface.kind.clone(), interface.state.clone()];
        for direction in [&interface.rx, &interface.tx] {
            // A side without links and without counts is left out.
            cells.extend(match direction.packets {
                0 => [0; 4].map(|_| UNKNOWN.to_owned()),
                packets => [
                    count(packets),
                    count(direction.bytes),
                    known(direction.packets_per_second, packet_rate),
                    known(direction.bits_per_second, bit_rate),
                ],
            });
        }
        cells.push(count(interface.dropped));
        cells.push(place(&interface.status));
        table.row(cells);
    }
    table.render(rich)
}

/// The socket, or the kernel's interface with its MTU and speed, that a port reports.
fn place(status: &Value) -> String {
    let link = &status["link"];
    let Some(name) = link["name"].as_str() else {
        return sanitize(status["place"].as_str().unwrap_or_default());
    };
    let mut text = sanitize(name);
    if let Some(mtu) = link["mtu"].as_u64() {
        text += &format!(", MTU {mtu}");
    }
    if let Some(speed) = link["speed"].as_f64() {
        text += &format!(", {}", bit_rate(1e6 * speed));
    }
    // The key that ports report.
    if let Some(addresses) = status["details"]["kernel_answers_for"].as_str() {
        text += &format!(", the kernel answers ARP for {}", sanitize(addresses));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_inspect::testing::second;

    fn app(name: &str, kind: &str, packets: [u64; 2]) -> AppCounts {
        let [in_packets, out_packets] = packets;
        AppCounts {
            name: name.into(),
            kind: kind.into(),
            in_packets,
            in_bytes: 60 * in_packets,
            out_packets,
            out_bytes: 60 * out_packets,
            ..AppCounts::default()
        }
    }

    fn linked(apps: Vec<AppCounts>, links: &[(&str, &str)]) -> Change {
        let mut change = second(apps.iter().map(|one| app(&one.name, &one.kind, [0, 0])).collect(), apps);
        let link = |(from, to): &(&str, &str)| LinkCounts {
            from: (*from).to_owned(),
            to: (*to).to_owned(),
            ..LinkCounts::default()
        };
        change.after.counters.links = links.iter().map(link).collect();
        change
    }

    #[test]
    fn apps_at_the_edge_and_devices_are_interfaces() {
        let apps = vec![
            app("in", "pcap-reader", [0, 100]),
            app("guest", "vhost-user", [40, 30]),
            app("mine", "my-device", [5, 5]),
            app("copy", "tee", [100, 200]),
            app("out", "sink", [200, 0]),
        ];
        let links = [
            ("in.output", "copy.input"),
            ("copy.a", "guest.input"),
            ("guest.output", "mine.input"),
            ("mine.output", "out.input"),
        ];
        let statuses = [
            ("guest".to_owned(), json!({ "state": "listening", "place": "/run/guest.sock" })),
            ("mine".to_owned(), json!({ "interface": true, "link": { "name": "eth0", "mtu": 1500, "speed": 10_000 } })),
        ];
        let found = interfaces(&linked(apps, &links), State::Running, &statuses.into(), &bellows_apps::registry());
        let names: Vec<(&str, &str)> = found.iter().map(|one| (one.app.as_str(), one.state.as_str())).collect();
        assert_eq!(names, [("in", "up"), ("guest", "listening"), ("mine", "up"), ("out", "up")]);
        assert_eq!((found[0].rx.packets, found[0].tx.packets, found[1].tx.bytes), (100, 0, 2_400));
        assert_eq!(found[0].rx.packets_per_second, Some(100.0));
        let text = render(&found, false);
        assert!(text.contains("listening") && text.contains("/run/guest.sock"), "{text}");
        assert!(text.contains("eth0, MTU 1500, 10.0 Gb/s"), "{text}");
    }

    #[test]
    fn a_crashed_network_has_no_rates() {
        let change = linked(vec![app("in", "source", [0, 100])], &[]);
        let found = interfaces(&change, State::Crashed, &BTreeMap::new(), &bellows_apps::registry());
        assert_eq!((found[0].state.as_str(), found[0].rx.packets_per_second), ("crashed", None));
        assert!(render(&found, false).contains('–'));
    }
}

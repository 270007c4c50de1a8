//! `bellows show vhost`: the state of the virtio devices of a running network, and the instances that serve their
//! rings.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bellows_config::nearest;
use bellows_engine::{AppStatus, ObjectStatus};
use bellows_inspect::control::{Reply, Request, ask};
use bellows_inspect::networks::{self, Access};
use bellows_inspect::reports::Subject;
use bellows_inspect::text::sanitize;
use bellows_interfaces::VirtioStatus;
use bellows_observe::{Observer, RuntimeDir};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::command_error::CommandError;
use crate::operating::network;
use crate::terminal;
use crate::text::{Align, Table, UNKNOWN, count, plural};

/// A selection of apps by the states that they report.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// Whether an app with this state belongs to the selection.
    is_wanted: fn(&Value) -> bool,
    /// The noun for such an app in messages, with its article.
    noun: &'static str,
}

impl Wanted {
    /// Every app that reports a state.
    pub(super) const ANY: Wanted = Wanted { is_wanted: |_| true, noun: "an app with a status" };
    /// The virtio devices and drivers.
    const VIRTIO: Wanted =
        Wanted { is_wanted: |status| status["device"] == "virtio-net", noun: "a virtio device or driver" };

    /// The noun without its article.
    fn bare_noun(self) -> &'static str {
        self.noun.split_once(' ').map_or(self.noun, |(_, noun)| noun)
    }
}

pub fn execute(named: Option<&str>, word: Option<&str>, json: bool) -> Result<ExitCode, CommandError> {
    let found = find(named, word, Wanted::VIRTIO)?;
    found.complain_if_empty()?;
    let text = if json {
        let device = |AppStatus { app, status, .. }| ShownDevice { status, app };
        let network = Subject::of(found.observer.runtime_dir());
        let shown = ShownDevices { network, devices: found.devices.into_iter().map(device).collect() };
        format!("{:#}\n", json!(shown))
    } else {
        let rich = terminal::stdout_is_rich();
        found.devices.iter().map(|device| render(device, rich)).collect::<Vec<_>>().join("\n")
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The virtio devices and drivers of a network.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown devices", extend("includes" = ["Network"]))]
pub struct ShownDevices {
    #[serde(flatten)]
    network: Subject,
    /// The virtio devices and drivers of a running network, in the order of its file; only one if an app was named.
    devices: Vec<ShownDevice>,
}

/// A virtio device or driver.
#[derive(JsonSchema, Serialize)]
#[schemars(
    title = "Virtio device or driver",
    extend("includes" = ["Status of `vhost-user` and `virtio-user`"])
)]
struct ShownDevice {
    #[serde(flatten)]
    #[schemars(with = "VirtioStatus")]
    status: Value,
    /// The app's name in the network.
    app: String,
}

/// A running network and the selected apps in it.
pub(super) struct Devices {
    pub(super) observer: Observer,
    pub(super) devices: Vec<AppStatus>,
    pub(super) objects: Vec<ObjectStatus>,
    wanted: Wanted,
}

impl Devices {
    fn of(runtime_dir: RuntimeDir, wanted: Wanted) -> Result<Devices, CommandError> {
        let observer = networks::open(runtime_dir)?;
        let Reply::Apps { apps, objects } = ask(observer.runtime_dir(), &Request::Apps)? else {
            let name = observer.runtime_dir().name();
            return Err(CommandError::Failed(format!("`{name}` did not answer with its apps' states")));
        };
        let devices = apps.into_iter().filter(|app| (wanted.is_wanted)(&app.status)).collect();
        Ok(Devices { observer, devices, objects, wanted })
    }

    fn complain_if_empty(&self) -> Result<(), CommandError> {
        if !self.devices.is_empty() {
            return Ok(());
        }
        let name = self.observer.runtime_dir().name();
        Err(CommandError::Usage(format!(
            "`{name}` has no {}; `bellows show apps {name}` lists its apps",
            self.wanted.bare_noun()
        )))
    }

    /// The type of one of the network's apps.
    fn kind_of(&self, app: &str) -> Option<&str> {
        let apps = &self.observer.directory().apps;
        apps.iter().find(|entry| entry.name == app).map(|entry| &*entry.kind)
    }
}

/// The selected apps of the network that is named, or the one app of the word. Without a named network, the word may be
/// a network, or an app of any.
pub(super) fn find(named: Option<&str>, word: Option<&str>, wanted: Wanted) -> Result<Devices, CommandError> {
    let name = match (named, word) {
        (Some(named), Some(app)) => {
            return only_app(vec![Devices::of(network(Some(named), Access::Read)?, wanted)?], app, wanted);
        }
        (named, word) => named.or(word),
    };
    match (networks::pick(name, Access::Read), name) {
        // Nobody else's network hides an app of this user's.
        (Ok(runtime_dir), Some(app)) if runtime_dir.is_foreign() && !app.contains('/') => {
            find_app(app, wanted).or_else(|_| Devices::of(network(name, Access::Read)?, wanted))
        }
        (Ok(_), _) => Devices::of(network(name, Access::Read)?, wanted),
        (Err(_), Some(name)) => find_app(name, wanted),
        (Err(error), None) => Err(error.into()),
    }
}

fn find_app(name: &str, wanted: Wanted) -> Result<Devices, CommandError> {
    // Networks of other users are asked only by name: a network that does not answer would delay the others.
    let own = RuntimeDir::all().into_iter().filter(|runtime_dir| !runtime_dir.is_foreign());
    let running = own.filter(|runtime_dir| networks::state(runtime_dir).is_alive());
    // A network that ends at this moment is left out.
    only_app(running.filter_map(|runtime_dir| Devices::of(runtime_dir, wanted).ok()).collect(), name, wanted)
}

/// The network with the app of this name, and with that app alone.
fn only_app(mut networks: Vec<Devices>, name: &str, wanted: Wanted) -> Result<Devices, CommandError> {
    let known: Vec<String> = networks.iter().flat_map(names).collect();
    let other = networks.iter().find_map(|network| other_app(network, name));
    networks.iter_mut().for_each(|network| network.devices.retain(|device| device.app == name));
    networks.retain(|network| !network.devices.is_empty());
    match networks.len() {
        1 => Ok(networks.swap_remove(0)),
        0 => Err(other.unwrap_or_else(|| no_such(name, &known, wanted))),
        _ => {
            let networks: Vec<String> = networks.iter().map(|network| network.observer.runtime_dir().name()).collect();
            let networks = networks.join(", ");
            Err(CommandError::Usage(format!(
                "several networks have an app `{name}`; name one of {networks} with `-n NAME`"
            )))
        }
    }
}

/// The error for an app of this name that is not in the selection.
fn other_app(network: &Devices, name: &str) -> Option<CommandError> {
    let kind = network.kind_of(name)?;
    let (noun, network) = (network.wanted.noun, network.observer.runtime_dir().name());
    Some(CommandError::Usage(format!("`{name}` of `{network}` is a {kind}, not {noun}")))
}

/// The available names: the networks and their devices.
fn names(network: &Devices) -> Vec<String> {
    let devices = network.devices.iter().map(|device| device.app.clone());
    [network.observer.runtime_dir().name()].into_iter().chain(devices).collect()
}

fn no_such(name: &str, known: &[String], wanted: Wanted) -> CommandError {
    let known = match nearest(name, known.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if known.is_empty() => "; no network is running".to_owned(),
        None => format!("; there are {}", known.join(", ")),
    };
    CommandError::Usage(format!(
        "no network is named `{name}`, and no {} in one{known} ({})",
        wanted.bare_noun(),
        networks::searched_places()
    ))
}

/// A device's state. Everything that may be missing is optional: a device without a driver has little state.
#[derive(Debug, Deserialize)]
struct Device {
    kind: String,
    socket: String,
    mode: String,
    state: String,
    #[serde(default)]
    offered: Vec<String>,
    features: Option<Vec<String>>,
    #[serde(default)]
    protocol_features: Vec<String>,
    memory: Option<MemoryStatus>,
    #[serde(default)]
    connections: u64,
    #[serde(default)]
    logging: bool,
    #[serde(default)]
    errors: Errors,
    last_error: Option<String>,
    waits: Option<String>,
    notifications: Option<Notifications>,
    peer: Option<ShownPeer>,
    confinement: Option<Confinement>,
    engine_faults: Option<Faults>,
    #[serde(default)]
    rings: Vec<RingStatus>,
}

/// The way in which the driver is notified of used buffers.
#[derive(Debug, Deserialize)]
struct Notifications {
    by: String,
    slow_queues: u64,
    slow_seconds: Option<u64>,
}

/// The process on the other side.
#[derive(Debug, Deserialize)]
struct ShownPeer {
    pid: u64,
    uid: u64,
    gid: u64,
}

/// Whether the control thread may make only the system calls that it needs.
#[derive(Debug, Deserialize)]
struct Confinement {
    confined: bool,
    reason: Option<String>,
    #[serde(default)]
    denied: Errors,
}

/// Page faults.
#[derive(Debug, Deserialize)]
struct Faults {
    minor: u64,
    major: u64,
}

#[derive(Debug, Deserialize)]
struct MemoryStatus {
    regions: u64,
    bytes: u64,
}

#[derive(Debug, Deserialize)]
struct RingStatus {
    index: u64,
    direction: String,
    state: String,
    error: Option<String>,
    size: Option<u64>,
    instance: Option<String>,
    #[serde(default)]
    counters: VhostCounters,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct VhostCounters {
    packets: u64,
    bytes: u64,
    chains: u64,
    kicks: u64,
    errors: Errors,
}

/// The count of each error, by name.
type Errors = BTreeMap<String, u64>;

fn render(device: &AppStatus, rich: bool) -> String {
    let app = &device.app;
    match Device::deserialize(&device.status) {
        Ok(status) => sanitize(&format!("{app} ({}): {}", status.kind, heading(&status))) + &rings(&status, rich),
        Err(error) => sanitize(&format!("{app}: its state cannot be read: {error}\n")),
    }
}

/// The device as a whole, on a few lines.
fn heading(device: &Device) -> String {
    let mut text = format!("{} on {}, {}\n", device.mode, device.socket, device.state);
    let mut list = |what: &str, names: &[String]| {
        if !names.is_empty() {
            text += &format!("  {what}: {}\n", names.join(" "));
        }
    };
    match &device.features {
        None => list("offers", &device.offered),
        Some(features) if features.is_empty() => list("negotiated", &["no options".to_owned()]),
        Some(features) => list("negotiated", features),
    }
    list("protocol", &device.protocol_features);
    if let Some(memory) = device.memory.as_ref().filter(|memory| memory.regions > 0) {
        let mebibytes = count(memory.bytes.div_ceil(1 << 20));
        text += &format!("  memory: {mebibytes} MiB in {}\n", plural(memory.regions, "region"));
    }
    if device.logging {
        text += "  the machine is being moved: pages that are written are logged\n";
    }
    if let Some(ShownPeer { pid, uid, gid }) = &device.peer {
        text += &format!("  peer: process {pid}, user {uid}, group {gid}\n");
    }
    if let Some(confinement) = &device.confinement {
        text += &format!("  control thread: {}\n", confined(confinement));
    }
    if let Some(Notifications { by, slow_queues, slow_seconds }) = &device.notifications {
        let slow = match slow_queues {
            0 => String::new(),
            slow => {
                let since = slow_seconds.unwrap_or_default();
                format!("; for {} by the thread since {since} s ago, when that took long", plural(*slow, "queue"))
            }
        };
        text += &format!("  notifications: by {by}{slow}\n");
    }
    if let Some(Faults { minor, major }) =
        device.engine_faults.as_ref().filter(|faults| faults.minor + faults.major > 0)
    {
        text += &format!("  page faults of the engine's thread: {} minor, {} major\n", count(*minor), count(*major));
    }
    if device.connections > 1 {
        text += &format!("  {} so far\n", plural(device.connections, "connection"));
    }
    for (what, why) in [("waits", &device.waits), ("last error", &device.last_error)] {
        text += &why.as_ref().map(|why| format!("  {what}: {why}\n")).unwrap_or_default();
    }
    let errors = counted(&device.errors);
    text + &if errors.is_empty() { String::new() } else { format!("  errors: {errors}\n") }
}

/// Whether a control thread is confined, and the calls that it was denied.
fn confined(confinement: &Confinement) -> String {
    let state = match (confinement.confined, &confinement.reason) {
        (true, _) => "confined".to_owned(),
        (false, Some(reason)) => format!("not confined: {reason}"),
        (false, None) => "not confined".to_owned(),
    };
    match counted(&confinement.denied) {
        denied if denied.is_empty() => state,
        denied => format!("{state}; denied calls: {denied}"),
    }
}

/// The counted errors.
fn counted(errors: &Errors) -> String {
    let met = errors.iter().filter(|(_, times)| **times > 0);
    met.map(|(error, times)| format!("{error} {}", count(*times))).collect::<Vec<_>>().join(", ")
}

fn rings(device: &Device, rich: bool) -> String {
    if device.rings.is_empty() {
        return "  no rings yet\n".to_owned();
    }
    let mut table = Table::new(&[
        ("RING", Align::Right),
        ("DIRECTION", Align::Left),
        ("STATE", Align::Left),
        ("SIZE", Align::Right),
        ("PACKETS", Align::Right),
        ("BYTES", Align::Right),
        ("CHAINS", Align::Right),
        ("KICKS", Align::Right),
        ("ERRORS", Align::Left),
        ("INSTANCE", Align::Left),
    ]);
    let mut failures = String::new();
    for ring in &device.rings {
        let VhostCounters { packets, bytes, chains, kicks, errors } = &ring.counters;
        if let Some(error) = &ring.error {
            failures += &sanitize(&format!("  ring {}: {error}\n", ring.index));
        }
        let or_unknown = |text: String| if text.is_empty() { UNKNOWN.to_owned() } else { text };
        table.row([
            ring.index.to_string(),
            ring.direction.clone(),
            ring.state.clone(),
            or_unknown(ring.size.filter(|size| *size > 0).map(count).unwrap_or_default()),
            count(*packets),
            count(*bytes),
            count(*chains),
            count(*kicks),
            or_unknown(counted(errors)),
            or_unknown(ring.instance.clone().unwrap_or_default()),
        ]);
    }
    table.render(rich) + &failures
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(status: Value) -> AppStatus {
        AppStatus { app: "guest".to_owned(), kind: "device".to_owned(), status }
    }

    #[test]
    fn a_device_is_shown_with_all_its_rings() {
        let text = render(
            &device(json!({
                "kind": "vhost-user", "socket": "/run/vm.sock", "mode": "server", "state": "connected",
                "features": ["packed", "mergeable"], "protocol_features": ["reply-ack"],
                "memory": { "regions": 2, "bytes": 268_435_456 },
                "peer": { "pid": 4711, "uid": 107, "gid": 36 },
                "confinement": { "confined": true, "reason": null, "denied": { "openat": 2 } },
                "engine_faults": { "minor": 12_345, "major": 0 },
                "rings": [
                    { "index": 0, "direction": "receive", "state": "running", "error": null, "size": 256,
                      "instance": "receive packed mergeable", "counters": { "packets": 12_345, "bytes": 740_700,
                      "chains": 12_345, "kicks": 3, "errors": { "too_long": 0 } } },
                    { "index": 1, "direction": "transmit", "state": "failed", "error": "the chain loops", "size": 256,
                      "instance": "transmit packed", "counters": { "errors": { "loop": 1, "too_long": 0 } } },
                ],
            })),
            false,
        );
        let expected = "guest (vhost-user): server on /run/vm.sock, connected\n  negotiated: packed mergeable\n  \
                        protocol: reply-ack\n  memory: 256 MiB in 2 regions\n  \
                        peer: process 4711, user 107, group 36\n  \
                        control thread: confined; denied calls: openat 2\n  \
                        page faults of the engine's thread: 12,345 minor, 0 major\n";
        assert!(text.starts_with(expected), "{text}");
        for part in ["12,345  740,700", "failed", "\n  ring 1: the chain loops\n", "loop 1", "receive packed mergeable"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("too_long"), "{text}");
    }

    #[test]
    fn errors_are_shown_in_words_and_numbers() {
        let text = render(
            &device(json!({
                "kind": "virtio-user", "socket": "/s", "mode": "client", "state": "waiting", "connections": 3,
                "errors": { "cut_off": 2, "version": 0 }, "last_error": "the other side closed", "waits": "refused",
                "logging": true,
                "confinement": { "confined": false, "reason": "the kernel has no seccomp filters", "denied": {} },
            })),
            false,
        );
        let expected = "guest (virtio-user): client on /s, waiting\n  the machine is being moved: pages that are written are \
                        logged\n  \
                        control thread: not confined: the kernel has no seccomp filters\n  3 connections so far\n  \
                        waits: refused\n  last error: the other side closed\n  errors: \
                        cut_off 2\n  no rings yet\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_waiting_or_invalid_device_is_shown_too() {
        let offered = ["packed"];
        let waits = json!({ "kind": "vhost-user", "offered": offered, "socket": "s\u{1b}[2J", "mode": "server", "state": "listening", "memory": null });
        assert_eq!(
            render(&device(waits), false),
            "guest (vhost-user): server on s\u{fffd}[2J, listening\n  offers: packed\n  no rings yet\n"
        );
        let plain =
            json!({ "kind": "vhost-user", "socket": "s", "mode": "server", "state": "connected", "features": [] });
        assert!(render(&device(plain), false).contains("\n  negotiated: no options\n"));
        let nonsense = json!({ "kind": "vhost-user", "socket": 7 });
        assert!(render(&device(nonsense), false).starts_with("guest: its state cannot be read: "));
    }
}

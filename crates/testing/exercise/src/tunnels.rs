//! Packets into tunnels of every kind: what comes out is a part of what went in, and nothing is lost without a count. What
//! nobody has sealed does not come out of those of ESP.

use std::path::Path;

use bellows_apps::registry;
use bellows_config::{Overrides, load_str};
use bellows_engine::Settings;
use bellows_packet::Packet;
use bellows_rig::Rig;

use crate::tunnel_examples::TUNNELS;

/// A network in which packets for 192.0.2.1 and 2001:db8::1 go to the tunnels of their protocols, with the sessions of all
/// [examples](TUNNELS).
fn network() -> String {
    let mut links: Vec<String> = [
        "from.output -> dispatch.input",
        "dispatch.other -> all.other",
        "dispatch.esp -> esp.ip6",
        "dispatch.udp-esp -> esp.ip4",
        "esp.a -> all.esp-a",
        "esp.b -> all.esp-b",
        "esp.c -> all.esp-c",
        "all.output -> to.input",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut rules = vec![
        "{ to = \"esp\", protocol = \"esp\" }".to_owned(),
        "{ to = \"udp-esp\", protocol = \"udp\", port = 4500 }".to_owned(),
    ];
    let mut apps = String::new();
    for tunnel in TUNNELS {
        let app = tunnel.app;
        rules.push(tunnel.rule(app));
        links.push(format!("dispatch.{app} -> {app}.ip6"));
        apps += &format!("\n[apps.{app}]\napp = \"{app}\"\n");
        for (name, session) in tunnel.named_sessions() {
            links.push(format!("{app}.{name} -> all.{name}"));
            apps += &format!("sessions.{name} = {}\n", session.table());
        }
    }
    let rules = rules.join(", ");
    format!("links = {links:?}\n\n[apps.dispatch]\napp = \"dispatch\"\nrules = [{rules}]\n{apps}{OTHERS}")
}

/// The protocols of the tunnels, and of a few other packets.
pub fn protocols() -> Vec<u8> {
    let mut all: Vec<u8> = TUNNELS.iter().map(|tunnel| tunnel.protocol).chain([ESP, DESTINATION_OPTIONS]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

const ESP: u8 = 50;
const DESTINATION_OPTIONS: u8 = 60;

/// The apps that are no tunnels of [`TUNNELS`].
const OTHERS: &str = r#"
[apps.from]
app = "source"

[apps.all]
app = "join"

[apps.to]
app = "sink"

[apps.esp]
app = "esp"

[apps.esp.associations.a]
local = "192.0.2.1"
remote = "192.0.2.2"
inbound = { spi = 0x1001, algorithm = "aes-128-gcm", key = "b51e0d1c2b3a4958675645342312010f0e0d0c0b" }
outbound = { spi = 0x1002, algorithm = "aes-128-gcm", key = "b51e0d1c2b3a4958675645342312010f0e0d0c0c" }

[apps.esp.associations.b]
local = "2001:db8::1"
remote = "2001:db8::2"
mode = "transport"
inbound = { spi = 0x1003, algorithm = "aes-128-gcm", key = "b51e0d1c2b3a4958675645342312010f0e0d0c0d" }
outbound = { spi = 0x1004, algorithm = "aes-128-gcm", key = "b51e0d1c2b3a4958675645342312010f0e0d0c0e" }

[apps.esp.associations.c]
local = "192.0.2.1"
remote = "192.0.2.2"
udp = {}
inbound = { spi = 0x1005, algorithm = "aes-128-gcm", key = "b51e0d1c2b3a4958675645342312010f0e0d0c0f" }
outbound = { spi = 0x1006, algorithm = "aes-128-gcm", key = "b51e0d1c2b3a4958675645342312010f0e0d0c10" }
"#;

/// The tunnels.
pub struct Tunnels(Rig);

impl Tunnels {
    /// Tunnels that have met nothing yet.
    ///
    /// # Panics
    /// If their network is wrong.
    #[allow(clippy::new_without_default, reason = "it starts an engine")]
    pub fn new() -> Tunnels {
        let loaded = load_str(&network(), "tunnels.toml", Path::new("."), &registry(), &Overrides::default());
        let network = loaded.unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false))).network;
        Tunnels(Rig::around(network, &["from"], &["to"], Settings::default()))
    }

    /// Has a packet go through, and checks what becomes of it. Returns whether it was carried by a tunnel.
    ///
    /// # Panics
    /// If something comes out that was not in it, or if it is lost without a count.
    pub fn check(&mut self, packet: &[u8]) -> bool {
        // A longer one does not arrive.
        let Some(sent) = Packet::from_bytes(packet) else { return false };
        let before = self.drops();
        self.0.send_packets("from", [sent]);
        self.0.settle();
        let came = self.0.received("to");
        assert_eq!(came.len() as u64 + self.drops() - before, 1, "{packet:02x?}");
        let Some(came) = came.first() else { return false };
        if came == packet {
            return false;
        }
        // A mark of congestion may have come from outside.
        let marks = marks(came);
        let is_part = |from: usize| {
            let part = || (from..).zip(&came[from..]);
            let is_same =
                |window: &[u8]| part().zip(window).all(|((at, one), other)| one == other || marks.contains(&at));
            packet.windows((came.len() - from).max(1)).any(is_same)
        };
        // The Ethernet header of an IP packet is new.
        assert!(is_part(0) || is_part(14), "{came:02x?} was not in {packet:02x?}");
        true
    }

    /// All packets that were dropped.
    fn drops(&self) -> u64 {
        self.0.snapshot().apps.iter().map(|app| app.dropped()).sum()
    }
}

/// Where a frame has its ECN bits, and the checksum of IPv4 over them.
fn marks(frame: &[u8]) -> Vec<usize> {
    let mut at = 12;
    while matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8])) {
        at += 4;
    }
    match frame.get(at..at + 2) {
        Some([0x08, 0x00]) => vec![at + 3, at + 12, at + 13],
        Some([0x86, 0xdd]) => vec![at + 3],
        _ => Vec::new(),
    }
}

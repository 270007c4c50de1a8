//! Packets into tunnels of every kind: what comes out is a part of what went in, and nothing is lost without a count. What
//! nobody has sealed does not come out of those of ESP.

use bellows_apps::registry;
use bellows_config::{Overrides, load_str};
use bellows_engine::Settings;
use bellows_packet::Packet;
use bellows_rig::Rig;
use std::path::Path;

/// A network in which packets for 192.0.2.1 and 2001:db8::1 go to the tunnels of their protocols, each with sessions over
/// both families.
const NETWORK: &str = r#"
links = [
  "from.output -> dispatch.input",
  "dispatch.other -> all.other",
  "dispatch.l2tp -> l2tp.ip6", "l2tp.a -> all.l2tp-a", "l2tp.b -> all.l2tp-b",
  "dispatch.gre -> gre.ip6", "gre.a -> all.gre-a", "gre.b -> all.gre-b", "gre.c -> all.gre-c",
  "dispatch.vxlan -> vxlan.ip6", "vxlan.a -> all.vxlan-a", "vxlan.b -> all.vxlan-b",
  "dispatch.geneve -> geneve.ip6", "geneve.a -> all.geneve-a", "geneve.b -> all.geneve-b",
  "dispatch.esp -> esp.ip6", "dispatch.udp-esp -> esp.ip4",
  "esp.a -> all.esp-a", "esp.b -> all.esp-b", "esp.c -> all.esp-c",
  "all.output -> to.input",
]

[apps]
from.app = "source"
all.app = "join"
to.app = "sink"

[apps.dispatch]
app = "dispatch"
rules = [
  { to = "l2tp", protocol = "l2tp" },
  { to = "gre", protocol = "gre" },
  { to = "vxlan", protocol = "udp", port = 4789 },
  { to = "geneve", protocol = "udp", port = 6081 },
  { to = "esp", protocol = "esp" },
  { to = "udp-esp", protocol = "udp", port = 4500 },
]

[apps.l2tp]
app = "keyed-tunnel"
sessions.a = { local = "192.0.2.1", remote = "192.0.2.2", expect_session = 1 }
sessions.b = { local = "2001:db8::1", remote = "2001:db8::2", expect_cookie = "00000000", sublayer = "default" }

[apps.gre]
app = "gre"
sessions.a = { local = "192.0.2.1", remote = "192.0.2.2" }
sessions.b = { local = "2001:db8::1", remote = "2001:db8::2", key = 1, checksum = true }
sessions.c = { local = "192.0.2.1", remote = "192.0.2.2", key = 1, payload = "ip" }

[apps.vxlan]
app = "vxlan"
sessions.a = { local = "192.0.2.1", remote = "192.0.2.2", vni = 1 }
sessions.b = { local = "2001:db8::1", remote = "2001:db8::2", vni = 1 }

[apps.geneve]
app = "geneve"
sessions.a = { local = "192.0.2.1", remote = "192.0.2.2", vni = 1 }
sessions.b = { local = "2001:db8::1", remote = "2001:db8::2", vni = 1, payload = "ip" }

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
        let loaded = load_str(NETWORK, "tunnels.toml", Path::new("."), &registry(), &Overrides::default());
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

//! Frames into a whole router, whose answers are checked against what the RFCs allow.

mod judge;

use std::net::IpAddr;
use std::path::Path;

use bellows_apps::registry;
use bellows_config::{Overrides, load_str};
use bellows_engine::Settings;
use bellows_packet::Packet;
use bellows_rig::Rig;

pub use judge::{Datagram, may_be_answered, may_be_forwarded};

/// The interfaces, which are ports.
pub const PORTS: [&str; 2] = ["left", "right"];

/// Their Ethernet addresses.
pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// The longest IP packets that leave them.
const MTUS: [usize; 2] = [1500, 1400];

/// Their IP addresses.
const OWN: [&str; 4] = ["192.0.2.1", "198.51.100.1", "2001:db8:1::1", "2001:db8:2::1"];

/// A network with a route to every address, so that only checks keep a packet from leaving.
const NETWORK: &str = r#"
links = [
  "from-left.output -> router.left",
  "from-right.output -> router.right",
  "router.left -> to-left.input",
  "router.right -> to-right.input",
]

[apps]
from-left.app = "source"
from-right.app = "source"
to-left.app = "sink"
to-right.app = "sink"

[apps.router]
app = "router"
routes = [
  "default via 198.51.100.2",
  "default via 2001:db8:2::2",
  "203.0.113.0/24 via 192.0.2.2",
  "2001:db8:3::/48 via 2001:db8:1::2",
]

[apps.router.interfaces.left]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24", "2001:db8:1::1/64"]
neighbours = { "192.0.2.2" = "04:00:00:00:00:01", "2001:db8:1::2" = "04:00:00:00:00:01" }

[apps.router.interfaces.right]
mac = "02:00:00:00:00:02"
mtu = 1400
addresses = ["198.51.100.1/24", "2001:db8:2::1/64"]
neighbours = { "198.51.100.2" = "04:00:00:00:00:02", "2001:db8:2::2" = "04:00:00:00:00:02" }
"#;

/// Seconds after which nothing more comes of a frame.
const PATIENCE: u64 = 5;

/// A router and its time.
pub struct Router {
    rig: Rig,
    seconds: u64,
}

impl Router {
    /// A router that has met nothing yet.
    ///
    /// # Panics
    /// If its network is wrong.
    #[allow(clippy::new_without_default, reason = "it starts an engine")]
    pub fn new() -> Router {
        let loaded = load_str(NETWORK, "router.toml", Path::new("."), &registry(), &Overrides::default());
        let network = loaded.unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false))).network;
        let rig = Rig::around(network, &["from-left", "from-right"], &["to-left", "to-right"], Settings::default());
        let mut router = Router { rig, seconds: 1 };
        router.wait();
        router.take();
        router
    }

    /// The frames that leave until nothing more comes of this one, each with its port.
    pub fn carry(&mut self, port: usize, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
        // A longer one does not arrive.
        let Some(packet) = Packet::from_bytes(frame) else { return Vec::new() };
        self.rig.send_packets(["from-left", "from-right"][port], [packet]);
        self.rig.settle();
        self.wait();
        self.take()
    }

    fn wait(&mut self) {
        for _ in 0..PATIENCE {
            self.seconds += 1;
            self.rig.set_time(self.seconds * 1_000_000_000);
            self.rig.settle();
        }
    }

    fn take(&mut self) -> Vec<(usize, Vec<u8>)> {
        let leaving = |(port, sink)| self.rig.received(sink).into_iter().map(move |frame| (port, frame));
        [(0, "to-left"), (1, "to-right")].into_iter().flat_map(leaving).collect()
    }

    /// Has the router take a frame, and checks all that leaves it. Returns whether the packet was forwarded.
    ///
    /// # Panics
    /// If a frame leaves that must not, or a wrong one.
    pub fn check(&mut self, port: usize, frame: &[u8]) -> bool {
        let came = Datagram::of(frame);
        let mut was_forwarded = false;
        for (to, leaving) in self.carry(port, frame) {
            let wrong =
                |why: &str| -> ! { panic!("{why}\nport {port} got {frame:02x?}\nport {to} sent {leaving:02x?}") };
            if leaving[6..12] != MACS[to] {
                wrong("the source is not the interface's");
            }
            let Some(left) = Datagram::of(&leaving) else {
                if leaving[12..14] == [0x08, 0x06] { continue } else { wrong("it is neither IP nor ARP") }
            };
            if left.packet.len() > MTUS[to] {
                wrong("it is longer than the MTU");
            }
            let is_own = OWN.iter().any(|own| own.parse::<IpAddr>() == Ok(left.source)) || left.is_link_local();
            let is_same = |came: &Datagram<'_>| (left.source, left.destination) == (came.source, came.destination);
            if is_own && !came.as_ref().is_some_and(is_same) {
                if bellows_wire::verify_checksums(&leaving).is_err() {
                    wrong("a checksum of the router's own packet is wrong");
                }
                if let Some(quoted) = left.quoted_by_error() {
                    if let Err(why) = may_be_answered(frame, MACS[port]) {
                        wrong(&format!("an ICMP error about {why}"));
                    }
                    if !came.as_ref().is_some_and(|came| came.packet.starts_with(&quoted[..quoted.len().min(20)])) {
                        wrong("an ICMP error does not quote the packet");
                    }
                }
                continue;
            }
            was_forwarded = true;
            if let Err(why) = may_be_forwarded(frame, MACS[port]) {
                wrong(&format!("forwarded {why}"));
            }
            let Some(came) = &came else { wrong("a packet from nowhere") };
            if !is_same(came) {
                wrong("the addresses have changed");
            }
            if left.hops + 1 != came.hops {
                wrong("it is not one hop older");
            }
            if let Err(why) = may_be_forwarded(&[&MACS[port], &leaving[6..]].concat(), MACS[port])
                && left.hops > 1
            {
                wrong(&format!("the next router would have to drop it: {why}"));
            }
            if !left.is_fragment() && left.payload() != came.payload() {
                wrong("its contents have changed");
            }
        }
        was_forwarded
    }
}

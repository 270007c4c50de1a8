//! Frames into a whole router, whose answers are checked against what the RFCs allow.

mod judge;

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use bellows_apps::registry;
use bellows_config::{Overrides, load_str};
use bellows_engine::Settings;
use bellows_packet::Packet;
use bellows_rig::Rig;
use bellows_wire::{IpPair, IpProtocol, Sum};

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

/// Writes the right checksums of an IPv4 header, and of an ICMP or ICMPv6 message behind it or behind an IPv6 header.
/// Packets with wrong ones end at the first check.
pub fn seal(frame: &mut [u8]) {
    let Some((ethernet, ip)) = frame.split_at_mut_checked(14) else { return };
    match (&ethernet[12..], ip.first()) {
        ([8, 0], Some(first)) => {
            let header = usize::from(first & 15) * 4;
            let Some((header, message)) = ip.split_at_mut_checked(header).filter(|(header, _)| header.len() >= 20)
            else {
                return;
            };
            if header[9] == 1 {
                write_sum(message, 2, Sum::new());
            }
            write_sum(header, 10, Sum::new());
        }
        ([0x86, 0xdd], _) => {
            let Some((header, message)) = ip.split_at_mut_checked(40).filter(|(header, _)| header[6] == 58) else {
                return;
            };
            let [src, dst] = [8, 24].map(|at| Ipv6Addr::from(<[u8; 16]>::try_from(&header[at..at + 16]).unwrap()));
            let pseudo = IpPair::V6 { src, dst }.pseudo_header(IpProtocol::ICMPV6, message.len());
            write_sum(message, 2, pseudo);
        }
        _ => {}
    }
}

/// Writes a checksum to its place, if it is there.
fn write_sum(bytes: &mut [u8], at: usize, sum: Sum) {
    if bytes.len() >= at + 2 {
        bytes[at..at + 2].fill(0);
        let sum = sum.add_bytes(bytes).finish();
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
}

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

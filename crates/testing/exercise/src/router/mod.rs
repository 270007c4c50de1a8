//! Frames into a whole router, whose answers are checked against what the RFCs allow.
//!
//! | file | contents |
//! |---|---|
//! | `networks.rs` | the routers |
//! | `judge.rs`, `options.rs` | what a router may do with a frame, and with IPv4 options |

mod judge;
mod networks;
mod options;

use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use bellows_apps::registry;
use bellows_config::{Overrides, load_str};
use bellows_engine::Settings;
use bellows_packet::Packet;
use bellows_rig::Rig;
use bellows_wire::{IpPair, IpProtocol, Sum};

pub use judge::Datagram;
use judge::{may_be_answered, may_be_forwarded};

pub use networks::{ALL_KEYS, MACS, PLAIN, PORTS, RouterNetwork};

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
    network: &'static RouterNetwork,
    rig: Rig,
    seconds: u64,
}

impl Router {
    /// A plain router that has met nothing yet.
    ///
    /// # Panics
    /// If its network is wrong.
    #[allow(clippy::new_without_default, reason = "it starts an engine")]
    pub fn new() -> Router {
        Router::of(&PLAIN)
    }

    /// The router of a network, which has met nothing yet.
    ///
    /// # Panics
    /// If the network is wrong.
    pub fn of(network: &'static RouterNetwork) -> Router {
        let loaded = load_str(network.text, "router.toml", Path::new("."), &registry(), &Overrides::default());
        let loaded = loaded.unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false))).network;
        let rig = Rig::around(loaded, &["from-left", "from-right"], &["to-left", "to-right"], Settings::default());
        let mut router = Router { network, rig, seconds: 1 };
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
        let network = self.network;
        let arrived = network.arrived(port, frame);
        let mut was_forwarded = false;
        for (to, leaving) in self.carry(port, frame) {
            let verdict = match network.left(to, &leaving) {
                None => Err("it has the tags of no interface".to_owned()),
                Some((to, left)) => network.judge(arrived.as_ref().map(|(from, came)| (*from, &came[..])), to, &left),
            };
            match verdict {
                Ok(forwarded) => was_forwarded |= forwarded,
                Err(why) => panic!("{why}\nport {port} got {frame:02x?}\nport {to} sent {leaving:02x?}"),
            }
        }
        was_forwarded
    }
}

impl RouterNetwork {
    /// Whether a frame without tags that arrives at a port is a packet that may be forwarded.
    ///
    /// # Errors
    /// What it is.
    pub fn may_forward(&self, port: usize, frame: &[u8]) -> Result<(), &'static str> {
        may_be_forwarded(frame, MACS[port], self.broadcasts)
    }

    /// Whether a frame that leaves is the forwarded one that came; otherwise it is the router's own. Both are without
    /// tags, each with its interface.
    ///
    /// # Errors
    /// What is wrong with it.
    fn judge(&self, came: Option<(usize, &[u8])>, to: usize, leaving: &[u8]) -> Result<bool, String> {
        let own_side = &self.interfaces[to];
        if leaving[6..12] != own_side.mac {
            return Err("the source is not the interface's".to_owned());
        }
        let Some(left) = Datagram::of(leaving) else {
            let is_arp = leaving[12..14] == [0x08, 0x06];
            return if is_arp { Ok(false) } else { Err("it is neither IP nor ARP".to_owned()) };
        };
        if left.packet.len() > own_side.mtu {
            return Err("it is longer than the MTU".to_owned());
        }
        let packet = came.and_then(|(_, frame)| Datagram::of(frame));
        let is_same = |came: &Datagram<'_>| (left.source, left.destination) == (came.source, came.destination);
        if (self.has(left.source) || left.is_link_local()) && !packet.as_ref().is_some_and(is_same) {
            return self.judge_own(came, &left, leaving).map(|()| false);
        }
        let (Some((from, frame)), Some(packet)) = (came, packet) else {
            return Err("a packet from nowhere".to_owned());
        };
        let mac = self.interfaces[from].mac;
        may_be_forwarded(frame, mac, self.broadcasts).map_err(|why| format!("forwarded {why}"))?;
        (self.forbids)(from, to, &packet).map_or(Ok(()), |why| Err(format!("forwarded {why}")))?;
        if !is_same(&packet) {
            return Err("the addresses have changed".to_owned());
        }
        if left.hops + 1 != packet.hops {
            return Err("it is not one hop older".to_owned());
        }
        if let Err(why) = may_be_forwarded(&[&mac, &leaving[6..]].concat(), mac, self.broadcasts)
            && left.hops > 1
        {
            return Err(format!("the next router would have to drop it: {why}"));
        }
        if !left.is_fragment() {
            if left.payload() != packet.payload() {
                return Err("its contents have changed".to_owned());
            }
            options::are_kept(packet.options(), left.options(), |address| self.has(address.into()))?;
        }
        Ok(true)
    }

    /// Checks a packet of the router itself.
    fn judge_own(&self, came: Option<(usize, &[u8])>, left: &Datagram<'_>, leaving: &[u8]) -> Result<(), String> {
        if bellows_wire::verify_checksums(leaving).is_err() {
            return Err("a checksum of the router's own packet is wrong".to_owned());
        }
        let Some(quoted) = left.quoted_by_error() else { return Ok(()) };
        let Some((from, frame)) = came else { return Err("an ICMP error about nothing".to_owned()) };
        may_be_answered(frame, self.interfaces[from].mac).map_err(|why| format!("an ICMP error about {why}"))?;
        let Some(packet) = Datagram::of(frame) else { return Err("an ICMP error about no IP packet".to_owned()) };
        let is_broadcast = |source| matches!(source, IpAddr::V4(source) if self.broadcasts.contains(&source));
        if self.has(packet.source) || is_broadcast(packet.source) {
            return Err("an ICMP error to the router itself, or to all".to_owned());
        }
        // Options may have been filled in before the error was found.
        let length = quoted.len().min(20);
        let same = |at: usize| (10..12).contains(&at) || packet.packet.get(at) == quoted.get(at);
        let is_quoted = if packet.options().is_empty() {
            packet.packet.starts_with(&quoted[..length])
        } else {
            (0..length).all(same)
        };
        if is_quoted { Ok(()) } else { Err("an ICMP error does not quote the packet".to_owned()) }
    }

    fn has(&self, address: IpAddr) -> bool {
        self.own.iter().any(|own| own.parse::<IpAddr>() == Ok(address))
    }
}

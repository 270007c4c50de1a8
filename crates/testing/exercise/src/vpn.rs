//! An end of a VPN whose other end says and sends anything: frames pass while the last message was young and right, and
//! nothing is lost without a count.

use std::path::Path;

use bellows_apps::registry;
use bellows_config::{Overrides, load_str};
use bellows_engine::Settings;
use bellows_rig::Rig;
use bellows_vpn::control_channel::Message;
use bellows_wire::IpProtocol;
use bellows_wire::ipv4::Ipv4Header;

/// A line over GRE between 192.0.2.1 and 192.0.2.2, which is known by its Ethernet address.
const NETWORK: &str = r#"
links = [
  "wire -> vpn.uplink", "vpn.uplink -> to-wire",
  "port -> vpn.port", "vpn.port -> to-port",
]

[apps.vpn]
app = "l2vpn"
interfaces.uplink = { mac = "02:00:00:00:00:01", mtu = 1600, addresses = ["192.0.2.1/24"], neighbours = { "192.0.2.2" = "02:00:00:00:00:02" } }
interfaces.port = {}
peers.here = { local = true, endpoints = { v4 = "192.0.2.1" } }
peers.there = { endpoints = { v4 = "192.0.2.2" } }
transports.wire = { local = "here.v4", remote = "there.v4" }
vpls.line = { circuits = ["port"], pseudowires = { line = { transport = "wire", tunnel = "gre", vc_id = 1, control_channel = { dead_factor = 2 } } } }

[apps]
wire.app = "source"
port.app = "source"
to-wire.app = "sink"
to-port.app = "sink"
"#;

/// Keys of the line.
const FRAMES: u32 = 1;
const CONTROL: u32 = 0x8001;

/// The heartbeats after which the other end is dead.
const DEAD_FACTOR: u64 = 2;

const SECOND: u64 = 1_000_000_000;

/// Where the payload of a packet on the wire begins: behind Ethernet, IPv4 and GRE with a key.
const PAYLOAD: usize = 14 + 20 + 8;

/// Bytes that GRE carries: an Ethernet header at least.
const SHORTEST: usize = 14;

/// Those that the uplink takes, whose MTU is 1,600.
const LONGEST: usize = 1_600 - 20 - 8;

/// Longer events do not happen.
const MAX_LENGTH: usize = 9_000;

/// Something that happens to the end.
#[derive(Clone, Debug)]
pub enum VpnEvent {
    /// So many milliseconds pass.
    Pause(u16),
    /// These bytes come in the session of control messages.
    Control(Vec<u8>),
    /// These bytes come in that of frames.
    FromTunnel(Vec<u8>),
    /// These bytes come from the circuit.
    FromCircuit(Vec<u8>),
    /// This comes from the wire, unless it may be a packet of GRE.
    FromWire(Vec<u8>),
}

/// The end.
pub struct VpnEnd {
    rig: Rig,
    now: u64,
    /// The last message, and when it came.
    heard: Option<(u64, Message)>,
}

impl VpnEnd {
    /// An end that has heard nothing.
    ///
    /// # Panics
    /// If its network is wrong.
    #[allow(clippy::new_without_default, reason = "it starts an engine")]
    pub fn new() -> VpnEnd {
        let loaded = load_str(NETWORK, "vpn.toml", Path::new("."), &registry(), &Overrides::default());
        let network = loaded.unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false))).network;
        let rig = Rig::around(network, &["wire", "port"], &["to-wire", "to-port"], Settings::default());
        VpnEnd { rig, now: SECOND, heard: None }
    }

    /// Lets something happen, and checks what comes out.
    ///
    /// # Panics
    /// If that is not what the last message of the other end allows.
    pub fn check(&mut self, event: &VpnEvent) {
        let (mut to_wire, mut to_port): (Option<&[u8]>, Option<&[u8]>) = (None, None);
        match event {
            VpnEvent::Control(bytes)
            | VpnEvent::FromTunnel(bytes)
            | VpnEvent::FromCircuit(bytes)
            | VpnEvent::FromWire(bytes)
                if bytes.is_empty() || bytes.len() > MAX_LENGTH => {}
            VpnEvent::Pause(milliseconds) => {
                self.now += u64::from(*milliseconds) * 1_000_000;
                self.rig.set_time(self.now);
            }
            VpnEvent::Control(bytes) => {
                self.rig.send("wire", [packet(CONTROL, bytes)]);
                if let (true, Ok((message, _))) = (bytes.len() >= SHORTEST, Message::read(bytes)) {
                    self.heard = Some((self.now, message));
                }
            }
            VpnEvent::FromTunnel(bytes) => {
                self.rig.send("wire", [packet(FRAMES, bytes)]);
                to_port = Some(bytes);
            }
            VpnEvent::FromCircuit(bytes) => {
                self.rig.send("port", [bytes]);
                to_wire = Some(bytes);
            }
            VpnEvent::FromWire(bytes) => {
                self.rig.send("wire", (!may_be_gre(bytes)).then_some(bytes));
            }
        }
        self.rig.settle();
        let is_up = self.is_up();
        let to_wire = to_wire.filter(|bytes| is_up && (SHORTEST..=LONGEST).contains(&bytes.len()));
        let to_port = to_port.filter(|bytes| is_up && bytes.len() >= SHORTEST);
        let sent = self.rig.received("to-wire");
        let sent = sent.iter().filter(|packet| key(packet) == Some(FRAMES)).map(|packet| &packet[PAYLOAD..]);
        assert!(sent.eq(to_wire), "to the wire, after {event:02x?}");
        let arrived = self.rig.received("to-port");
        assert!(arrived.iter().map(Vec::as_slice).eq(to_port), "to the circuit, after {event:02x?}");
    }

    /// Whether frames pass.
    pub fn is_up(&self) -> bool {
        self.heard.as_ref().is_some_and(|(at, message)| {
            let is_young = self.now - at < u64::from(message.heartbeat) * DEAD_FACTOR * SECOND;
            is_young && message.mtu.unwrap_or(1_500) == 1_500 && message.vc_id.unwrap_or(FRAMES) == FRAMES
        })
    }
}

/// A packet from the other end, in the session with this key.
fn packet(key: u32, payload: &[u8]) -> Vec<u8> {
    let mut packet = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &[0; 20], &[0x20, 0, 0x65, 0x58]].concat();
    packet.extend(key.to_be_bytes());
    packet.extend(payload);
    let header = Ipv4Header {
        src: [192, 0, 2, 2].into(),
        dst: [192, 0, 2, 1].into(),
        protocol: IpProtocol::GRE,
        ttl: 64,
        traffic_class: 0,
        identification: 0,
        dont_fragment: true,
    };
    header.emit(&mut packet[14..]).unwrap_or_else(|error| panic!("{error:?}"));
    packet
}

/// Whether bytes may be a packet of GRE over IPv4, behind an Ethernet header with or without a tag.
fn may_be_gre(bytes: &[u8]) -> bool {
    [14, 18].iter().any(|start| bytes.get(start + 9) == Some(&IpProtocol::GRE.0))
}

/// The key of a packet on the wire, if it is one of GRE.
fn key(packet: &[u8]) -> Option<u32> {
    let header = packet.get(14..PAYLOAD)?;
    (header[9] == IpProtocol::GRE.0).then(|| u32::from_be_bytes([header[24], header[25], header[26], header[27]]))
}

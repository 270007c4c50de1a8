//! Two ends in one process, with the test or an impaired wire between them.

use std::collections::BTreeSet;
use std::path::Path;

use bellows_apps::registry;
use bellows_config::{Loaded, Overrides, load_str};
use bellows_engine::{End, Engine, Network, Settings};
use bellows_exercise::vpn::{VpnEnd, VpnEvent};
use bellows_rig::Rig;
use bellows_testkit::tree::root;
use bellows_vpn::control_channel::Message;
use proptest::prelude::*;

/// The keys of an end: its number on the wire, and that of the other. Between the offices there is a VPN with a bridge
/// over L2TPv3, to which VLAN 7 of the customers belongs; VLAN 8 has a line over GRE and IPv4, `lab` one over GRE and IPv6.
pub(crate) fn end(name: &str, own: u8, other: u8, mtu: u16, control: &str) -> String {
    format!(
        r#"
[apps.{name}]
app = "l2vpn"
[apps.{name}.interfaces]
uplink = {{ mac = "02:00:00:00:00:0{own}", mtu = {mtu}, addresses = ["192.0.2.{own}/24", "2001:db8::{own}/64"] }}
office = {{}}
customers = {{ mtu = 1504, trunk = {{}} }}
lab = {{}}
[apps.{name}.peers]
here = {{ local = true, endpoints = {{ v4 = "192.0.2.{own}", v6 = "2001:db8::{own}" }} }}
there = {{ endpoints = {{ v4 = "192.0.2.{other}", v6 = "2001:db8::{other}" }} }}
[apps.{name}.transports]
four = {{ local = "here.v4", remote = "there.v4" }}
six = {{ local = "here.v6", remote = "there.v6" }}
[apps.{name}.vpls.lan]
circuits = ["office", "customers.7"]
pseudowires.lan = {{ transport = "six", tunnel = "l2tpv3", send_cookie = "0{own}0{other}0{own}0{other}", expect_cookie = "0{other}0{own}0{other}0{own}"{control} }}
[apps.{name}.vpls.line]
circuits = ["customers.8"]
pseudowires.line = {{ transport = "four", tunnel = "gre", vc_id = 8{control} }}
[apps.{name}.vpls.lab]
circuits = ["lab"]
pseudowires.lab = {{ transport = "six", tunnel = "gre", vc_id = 9 }}
"#
    )
}

/// The control channels of pseudowires.
pub(crate) const CONTROL: &str = ", control_channel = { heartbeat = \"3s\" }";

const ENDS: [&str; 2] = ["west", "east"];
const PORTS: [&str; 3] = ["office", "customers", "lab"];

/// Two ends, and the time.
pub(crate) struct Pair {
    pub(crate) rig: Rig,
    pub(crate) now: u64,
    /// Whether the test carries what leaves the uplinks, rather than the network.
    by_hand: bool,
    is_cut: bool,
    /// The longest packet that a router between the ends forwards; it tells the senders of others, which must not be
    /// fragmented.
    pub(crate) core_mtu: usize,
    /// The longest packet on the wire so far, bytes without the Ethernet header.
    pub(crate) longest: usize,
    /// The EtherTypes and IP protocols there.
    pub(crate) protocols: BTreeSet<(u16, u8)>,
}

impl Pair {
    fn new(ends: &str, wire: Option<&str>) -> Pair {
        let mut links = Vec::new();
        let mut apps = String::new();
        let (mut sources, mut sinks) = (Vec::new(), Vec::new());
        for end in ENDS {
            let uplink = wire.is_none().then_some("uplink");
            for port in PORTS.into_iter().chain(uplink) {
                links.push(format!("\"to-{end}-{port} -> {end}.{port}\", \"{end}.{port} -> from-{end}-{port}\""));
                apps +=
                    &format!("[apps.to-{end}-{port}]\napp = \"source\"\n[apps.from-{end}-{port}]\napp = \"sink\"\n");
                sources.push(format!("to-{end}-{port}"));
                sinks.push(format!("from-{end}-{port}"));
            }
        }
        if let Some(keys) = wire {
            links.push("\"west.uplink -> there\", \"there -> east.uplink\"".to_owned());
            links.push("\"east.uplink -> back\", \"back -> west.uplink\"".to_owned());
            apps += &format!("[apps.there]\napp = \"impair\"\n{keys}\n[apps.back]\napp = \"impair\"\n{keys}\n");
        }
        let text = format!("links = [{}]\n{apps}{ends}", links.join(", "));
        let loaded = load_str(&text, "ends.toml", Path::new("."), &registry(), &Overrides::default());
        let network = loaded.unwrap_or_else(|wrong| panic!("{}", wrong.render(false))).network;
        let [sources, sinks] = [&sources, &sinks].map(|all| all.iter().map(String::as_str).collect::<Vec<_>>());
        let rig = Rig::around(network, &sources, &sinks, Settings::default());
        Pair {
            rig,
            now: 1_000_000_000,
            by_hand: wire.is_none(),
            is_cut: false,
            core_mtu: usize::MAX,
            longest: 0,
            protocols: BTreeSet::new(),
        }
    }

    /// Both ends, up.
    pub(crate) fn up(ends: &str, wire: Option<&str>) -> Pair {
        let mut pair = Pair::new(ends, wire);
        pair.run(6_000);
        pair
    }

    /// Lets time pass, in milliseconds.
    pub(crate) fn run(&mut self, milliseconds: u64) {
        for _ in 0..milliseconds.div_ceil(50) {
            self.now += 50_000_000;
            self.rig.set_time(self.now);
            self.settle();
        }
    }

    pub(crate) fn settle(&mut self) {
        self.rig.settle();
        while self.by_hand && self.carry() {
            self.rig.settle();
        }
    }

    /// Carries what is at the uplinks. Returns whether there was something.
    fn carry(&mut self) -> bool {
        let mut has_carried = false;
        for [from, to] in [ENDS, [ENDS[1], ENDS[0]]] {
            let packets = self.rig.received(&format!("from-{from}-uplink"));
            has_carried |= !packets.is_empty();
            self.longest = packets.iter().map(|packet| packet.len() - 14).fold(self.longest, usize::max);
            let kinds = packets.iter().map(|packet| u16::from_be_bytes([packet[12], packet[13]]));
            self.protocols.extend(kinds.zip(&packets).filter_map(|(kind, packet)| match kind {
                0x0800 => Some((kind, packet[23])),
                0x86dd => Some((kind, packet[20])),
                _ => None,
            }));
            if self.is_cut {
                continue;
            }
            let (pass, exceed): (Vec<_>, Vec<_>) =
                packets.into_iter().partition(|packet| packet.len() - 14 <= self.core_mtu);
            self.rig.send(&format!("to-{to}-uplink"), pass);
            let errors = exceed.iter().map(|packet| crate::paths::too_big(packet, self.core_mtu as u16));
            self.rig.send(&format!("to-{from}-uplink"), errors);
        }
        has_carried
    }

    pub(crate) fn send(&mut self, end: &str, port: &str, frame: &[u8]) {
        self.rig.send(&format!("to-{end}-{port}"), [frame]);
        self.settle();
    }

    /// What has left each port since the last call, as `END.PORT`.
    pub(crate) fn received(&mut self) -> Vec<(String, Vec<u8>)> {
        let mut all = Vec::new();
        for end in ENDS {
            for port in PORTS {
                let frames = self.rig.received(&format!("from-{end}-{port}"));
                all.extend(frames.into_iter().map(|frame| (format!("{end}.{port}"), frame)));
            }
        }
        all
    }

    /// A counter or drop of an app.
    pub(crate) fn count(&self, app: &str, name: &str) -> u64 {
        let snapshot = self.rig.snapshot();
        let app = snapshot.apps.iter().find(|other| *other.name == *app).unwrap_or_else(|| panic!("no app `{app}`"));
        app.drops.get(name).or_else(|| app.counters.get(name)).copied().unwrap_or_else(|| panic!("no `{name}`"))
    }
}

/// Stations; the first address is that of all.
pub(crate) const ALL: [u8; 6] = [0xff; 6];
pub(crate) const ANN: [u8; 6] = [2, 0, 0, 0, 1, 1];
pub(crate) const BEN: [u8; 6] = [2, 0, 0, 0, 1, 2];

/// A frame of `length` bytes, without a tag or in a VLAN.
pub(crate) fn frame(to: [u8; 6], from: [u8; 6], vlan: Option<u8>, length: usize) -> Vec<u8> {
    let tag = vlan.map_or(Vec::new(), |vlan| vec![0x81, 0, 0, vlan]);
    let mut frame = [&to[..], &from, &tag, &[0x88, 0xb5]].concat();
    frame.extend((0..length - frame.len()).map(|at| at as u8));
    frame
}

pub(crate) fn at(place: &str, frame: &[u8]) -> (String, Vec<u8>) {
    (place.to_owned(), frame.to_vec())
}

pub(crate) fn both(mtu: u16, control: [&str; 2]) -> String {
    end("west", 1, 2, mtu, control[0]) + &end("east", 2, 1, mtu, control[1])
}

#[test]
fn frames_go_between_sites_through_bridges_lines_and_trunks() {
    let mut pair = Pair::up(&both(1600, [CONTROL; 2]), None);
    let (hello, tagged) = (frame(ALL, ANN, None, 60), frame(ALL, ANN, Some(7), 64));
    pair.send("west", "office", &hello);
    let everywhere = [("west.customers", &tagged), ("east.office", &hello), ("east.customers", &tagged)];
    assert_eq!(pair.received(), everywhere.map(|(place, frame)| at(place, frame)));
    // East has learned where Ann is, and does not send to its own VLAN 7.
    let answer = frame(ANN, BEN, None, 1_514);
    pair.send("east", "office", &answer);
    assert_eq!(pair.received(), [at("west.office", &answer)]);
    let answer = frame(BEN, ANN, None, 100);
    pair.send("west", "office", &answer);
    assert_eq!(pair.received(), [at("east.office", &answer)]);
    for (port, vlan) in [("customers", Some(8)), ("lab", None)] {
        for (from, to) in [("west", "east"), ("east", "west")] {
            for length in [64, 1_000, 1_518] {
                let sent = frame(BEN, ANN, vlan, if vlan.is_none() { length.min(1_514) } else { length });
                pair.send(from, port, &sent);
                assert_eq!(pair.received(), [at(&format!("{to}.{port}"), &sent)]);
            }
        }
    }
    pair.send("west", "customers", &frame(ALL, ANN, Some(9), 64));
    assert_eq!((pair.received(), pair.count("west/trunk-customers", "unknown_vlan")), (Vec::new(), 1));
}

#[test]
fn long_frames_are_fragmented_over_ipv6_and_refused_over_ipv4() {
    let mut pair = Pair::up(&both(1500, [CONTROL; 2]), None);
    let sent = frame(ALL, ANN, None, 1_514);
    pair.send("west", "office", &sent);
    assert!(pair.received().contains(&at("east.office", &sent)));
    pair.send("east", "lab", &sent);
    assert_eq!(pair.received(), [at("west.lab", &sent)]);
    // The length of what is in a fragment is a multiple of 8.
    assert_eq!(pair.longest, 1_496);
    assert_eq!(pair.count("east/router/ip6-reassemble", "reasm_oks"), 1);
    // The router tells the tunnel, which then drops them itself.
    for told in ["told_path_mtu", "too_big"] {
        pair.send("west", "customers", &frame(ALL, ANN, Some(8), 1_518));
        assert_eq!((pair.received(), pair.count("west/gre-four", told)), (Vec::new(), 1));
    }
    assert_eq!(pair.count("west/router/ip4-icmp-error", "too_big_sent"), 1);
    let short = frame(ALL, ANN, Some(8), 1_476);
    pair.send("west", "customers", &short);
    assert_eq!(pair.received(), [at("east.customers", &short)]);
}

#[test]
fn frames_arrive_over_a_wire_that_reorders_and_duplicates() {
    let mut pair = Pair::up(&both(1400, [""; 2]), Some("reorder = 0.2\nduplicate = 0.1\nseed = 3"));
    pair.send("west", "lab", &frame(ALL, ANN, None, 60));
    pair.run(2_000);
    pair.received();
    let sent: Vec<Vec<u8>> = (60..1_514).step_by(7).map(|length| frame(ANN, BEN, None, length)).collect();
    for frame in &sent {
        pair.send("east", "lab", frame);
    }
    pair.run(2_000);
    let mut arrived: Vec<Vec<u8>> = pair.received().into_iter().map(|(_, frame)| frame).collect();
    arrived.sort_by_key(Vec::len);
    arrived.dedup();
    assert!(arrived == sent, "{} of {} frames", arrived.len(), sent.len());
}

#[test]
fn control_channels_take_pseudowires_down_and_up_again() {
    let mut pair = Pair::up(&both(1600, [CONTROL; 2]), None);
    let sent = frame(BEN, ANN, Some(8), 64);
    let channel = "east/control-channel-line.line";
    let passes = |pair: &mut Pair| {
        pair.send("east", "customers", &sent);
        pair.received() == [at("west.customers", &sent)]
    };
    assert!(passes(&mut pair));
    pair.is_cut = true;
    // The last message may be a second old.
    pair.run(7_900);
    assert_eq!(pair.count(channel, "down"), 0);
    pair.run(1_200);
    assert!(!passes(&mut pair));
    assert_eq!(["up", "down", "pseudowire_down"].map(|name| pair.count(channel, name)), [1, 1, 1]);
    pair.is_cut = false;
    pair.run(3_000);
    assert!(passes(&mut pair));
    assert_eq!(["up", "down", "malformed"].map(|name| pair.count(channel, name)), [2, 1, 0]);
    // A pseudowire without a control channel has had none of this.
    assert_eq!(pair.count("west/gre-six", "no_session"), 0);
}

#[test]
fn an_end_without_a_control_channel_or_with_another_mtu_is_not_connected() {
    let mut pair = Pair::up(&both(1600, [CONTROL, ""]), None);
    pair.send("west", "office", &frame(ALL, ANN, None, 60));
    assert!(pair.received().iter().all(|(place, _)| place.starts_with("west")));
    assert!(pair.count("east/l2tpv3-six", "no_session") > 0);
    assert!(pair.count("west/control-channel-lan.lan", "pseudowire_down") > 0);
    let east = end("east", 2, 1, 1600, CONTROL).replace("office = {}", "office = { mtu = 1400 }");
    let east = east.replace("customers = { mtu = 1504", "customers = { mtu = 1404");
    let east = east.replace("circuits = [\"office\"", "mtu = 1400\ncircuits = [\"office\"");
    let east = east.replace("circuits = [\"customers.8\"", "mtu = 1400\ncircuits = [\"customers.8\"");
    let mut pair = Pair::up(&(end("west", 1, 2, 1600, CONTROL) + &east), None);
    pair.send("west", "office", &frame(ALL, ANN, None, 60));
    assert!(pair.received().iter().all(|(place, _)| place.starts_with("west")));
    assert!(pair.count("west/control-channel-lan.lan", "mtu_mismatch") > 0);
    assert!(pair.count("east/control-channel-lan.lan", "mtu_mismatch") > 0);
}

#[test]
fn an_uplink_may_be_a_vlan_of_its_port() {
    let ends = both(1600, [CONTROL; 2]).replace("uplink = { ", "uplink = { vlan = 5, ");
    let mut pair = Pair::up(&ends, None);
    for (from, to) in [("west", "east"), ("east", "west")] {
        let sent = frame(ALL, ANN, None, 1_514);
        pair.send(from, "office", &sent);
        assert!(pair.received().contains(&at(&format!("{to}.office"), &sent)));
    }
    // Behind the tag is what the test does not look at.
    assert!(pair.protocols.is_empty(), "{:x?}", pair.protocols);
}

#[test]
fn an_end_answers_pings() {
    let mut pair = Pair::up(&both(1600, [CONTROL; 2]), None);
    let mut ping = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1, 8, 0, 0, 0, 0, 5, 0, 6];
    for (at, range) in [(10, 0..20), (22, 20..28)] {
        let sum = bellows_wire::Sum::new().add_bytes(&ping[range]).finish();
        ping[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &ping].concat();
    pair.rig.send("to-west-uplink", [frame]);
    pair.rig.settle();
    let answers = pair.rig.received("from-west-uplink");
    assert!(
        answers.iter().any(|answer| answer[14..].len() >= 28 && answer[34] == 0 && answer[38..42] == [0, 5, 0, 6]),
        "{answers:02x?}"
    );
}

/// The apps of the example's end `here`, their kinds, and the links among them and to its ports.
const EXAMPLE_SHAPE: [usize; 3] = [40, 26, 104];

fn shape(network: &Network) -> [usize; 3] {
    let is_part = |app: &str| app.starts_with("here/");
    let parts = || network.apps.iter().filter(|app| is_part(&app.name));
    let kinds: BTreeSet<&str> = parts().map(|app| &*app.kind).collect();
    let links = network.links.iter().filter(|link| is_part(&link.from.app) || is_part(&link.to.app)).count();
    [parts().count(), kinds.len(), links]
}

#[test]
fn the_example_ends_by_itself_and_its_frames_arrive() {
    let folder = root().join("examples");
    let text = std::fs::read_to_string(folder.join("l2vpn.toml")).unwrap();
    let loaded = load_str(&text, "l2vpn.toml", &folder, &registry(), &Overrides::default());
    let Loaded { network, engine, warnings, .. } = loaded.unwrap_or_else(|wrong| panic!("{}", wrong.render(false)));
    assert!(warnings.is_empty(), "{}", warnings.render(false));
    assert_eq!(shape(&network), EXAMPLE_SHAPE);
    let counts = EXAMPLE_SHAPE.map(|count| count.to_string());
    let told = format!("{} apps of {} kinds, and {} links", counts[0], counts[1], counts[2]);
    let docs = std::fs::read_to_string(folder.join("../docs/l2vpn.md")).unwrap();
    assert!(text.contains(&told) && docs.replace('\n', " ").contains(&told), "{told}");
    let mut engine = Engine::new(network, engine.settings(), None).unwrap();
    let mut now = 1_000_000_000;
    while !engine.is_done() {
        now += 10_000_000;
        assert!(now < 60_000_000_000, "it does not end");
        engine.set_time(now);
        while engine.breathe() {}
    }
    let snapshot = engine.finish(End::Done).snapshot;
    assert_eq!(snapshot.imbalances(), []);
    let arrived = |name: &str| snapshot.apps.iter().find(|app| *app.name == *name).unwrap().in_packets;
    // All but those of the time in which the ends find one another.
    for name in ["to-office", "to-basel", "to-line", "to-customers"] {
        assert!((2_000..6_000).contains(&arrived(name)), "{name}: {}", arrived(name));
    }
    // What was flooded until the station in Basel had been heard, whose end is up as late as that in Zurich.
    for (name, most) in [("to-bern", 2_500), ("to-zurich", 100)] {
        assert!(arrived(name) < most, "{name}: {}", arrived(name));
    }
}

/// Events of a line, most of whose messages are whole.
fn event() -> impl Strategy<Value = VpnEvent> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..60);
    let message =
        (1u16..9, prop::sample::select(vec![1_500u16, 1_500, 1_400]), prop::sample::select(vec![1u32, 1, 1, 2]));
    let message = message.prop_map(|(heartbeat, mtu, vc_id)| {
        Message { heartbeat, mtu: Some(mtu), description: None, vc_id: Some(vc_id) }.to_bytes()
    });
    prop_oneof![
        any::<u16>().prop_map(|milliseconds| VpnEvent::Pause(milliseconds % 5_000)),
        message.prop_map(VpnEvent::Control),
        bytes().prop_map(VpnEvent::Control),
        bytes().prop_map(VpnEvent::FromTunnel),
        bytes().prop_map(VpnEvent::FromCircuit),
        bytes().prop_map(VpnEvent::FromWire),
        (1_400usize..2_000).prop_map(|length| VpnEvent::FromCircuit(vec![7; length])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_line_is_open_while_the_other_end_is_there_and_alike(events in prop::collection::vec(event(), 1..60)) {
        let mut end = VpnEnd::new();
        for event in &events {
            end.check(event);
        }
    }
}

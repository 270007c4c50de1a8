//! Two hosts with a network of Bellows between them.
//!
//! ```text
//!  client            middle                              server
//!  lan ─ cable ─ left [ port "left" <-> port "right" ] right ─ cable ─ lan
//! ```
//!
//! A port at a `tap` makes the interface `lan` of the host itself, and needs no cable.

use std::fs;
use std::io::Read;

use bellows_testkit::netns::interface::{Counters, HostInterface, Settings, differences};
use bellows_testkit::netns::traffic::{self, Servers};
use bellows_testkit::netns::{self, CableEnd, Host, Lab, connect, disconnect};
use bellows_testkit::skips::is_skipped;
use bellows_testkit::wait::{eventually, eventually_without_faults};
use serde_json::Value;

use crate::support::vhost::Network;
use crate::support::{Running, Sandbox, Signal};

/// The server's addresses.
pub const SERVER: &str = "192.0.2.2";
pub const SERVER_V6: &str = "2001:db8::2";

/// The file that a client fetches, and its length.
pub const FILE: &str = "random";
const FILE_LENGTH: u64 = 5 << 20;

/// The network files' name.
pub const NETWORK: &str = "bridge.toml";

/// The two sides of a bridge: the names of the host, of the port and its interface, and the number in addresses.
const SIDES: [(&str, &str, u8); 2] = [("client", "left", 1), ("server", "right", 2)];

/// Whether a test that needs these programs beside those for traffic is skipped.
pub fn is_missing(test: &str, programs: &[&str]) -> bool {
    is_skipped(test, netns::missing(&[traffic::PROGRAMS, programs].concat()))
}

/// A port of the bridge: the type of the app, and further keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    pub app: &'static str,
    pub keys: &'static str,
}

impl Port {
    pub const fn new(app: &'static str, keys: &'static str) -> Port {
        Port { app, keys }
    }

    pub fn is_tap(self) -> bool {
        self.app == "tap"
    }
}

/// What a host leaves to its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloads {
    /// Checksums and segmentation.
    All,
    /// Checksums alone.
    Checksums,
    /// Nothing: frames are as on a wire.
    Nothing,
}

/// How a bridge is made.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub ports: [Port; 2],
    /// What each host leaves to its interface.
    pub offloads: [Offloads; 2],
    pub mtu: usize,
    /// Queues of each interface, and the maximum.
    pub queues: (usize, usize),
}

impl Layout {
    /// Two equal ports and hosts.
    pub const fn of(port: Port, offloads: Offloads, mtu: usize) -> Layout {
        Layout { ports: [port; 2], offloads: [offloads; 2], mtu, queues: (1, 1) }
    }
}

/// A side of a bridge.
pub struct Side {
    pub host: Host,
    pub port: Port,
    /// The name of the port.
    pub name: &'static str,
    /// The ends of the cable: the host's, and that of the port. None at a tap.
    pub cable: Option<[CableEnd; 2]>,
    mtu: usize,
    offloads: Offloads,
    number: u8,
}

impl Side {
    fn new(lab: &mut Lab, middle: &Host, layout: &Layout, index: usize) -> Side {
        let (host, name, number) = SIDES[index];
        let (host, port) = (lab.host(host), layout.ports[index]);
        let (mtu, offloads) = (layout.mtu, layout.offloads[index]);
        let mut side = Side { host, port, name, cable: None, mtu, offloads, number };
        if !port.is_tap() {
            let (queues, max) = layout.queues;
            let mut near = CableEnd::new(&side.host, "lan", &side.mac()).queues(queues, max);
            near.addresses = side.addresses().into();
            let far = CableEnd::new(middle, name, &format!("00:00:5e:00:53:1{number}")).queues(queues, max);
            side.cable = Some([near, far]);
            side.connect();
        }
        side
    }

    fn mac(&self) -> String {
        format!("00:00:5e:00:53:0{}", self.number)
    }

    fn addresses(&self) -> [String; 2] {
        [format!("192.0.2.{}/24", self.number), format!("2001:db8::{}/64", self.number)]
    }

    /// Lays the cable. A side with a tap has none.
    pub fn connect(&self) {
        if let Some([near, far]) = &self.cable {
            connect([near, far], self.mtu);
            self.set_offloads();
        }
    }

    /// Removes the cable.
    pub fn disconnect(&self) {
        if let Some([_, far]) = &self.cable {
            disconnect(far);
        }
    }

    /// Selects what the host leaves to its interface.
    fn set_offloads(&self) {
        match self.offloads {
            Offloads::All => {}
            Offloads::Checksums => {
                self.host.run("ethtool -K lan tso off gso off gro off");
            }
            Offloads::Nothing => self.host.disable_offloads("lan"),
        }
    }

    /// The host's interface.
    pub fn lan(&self) -> HostInterface {
        HostInterface::new(&self.host, "lan")
    }

    /// The interfaces that exist without Bellows.
    pub fn interfaces(&self) -> Vec<HostInterface> {
        self.cable.iter().flatten().map(CableEnd::interface).collect()
    }

    /// The keys of its port.
    pub fn keys(&self) -> String {
        let (keys, mtu) = (self.port.keys, self.mtu);
        if self.port.is_tap() {
            let (namespace, [v4, v6], mac) = (self.host.namespace(), self.addresses(), self.mac());
            format!(
                "interface = \"lan\"\nnamespace = \"{namespace}\"\naddress = [\"{v4}\", \"{v6}\"]\nmac = \"{mac}\"\n\
                 mtu = {mtu}\n{keys}"
            )
        } else {
            format!("interface = \"{}\"\n{keys}", self.name)
        }
    }
}

/// Two hosts, and the place of the network between them.
pub struct Bridge {
    pub sandbox: Sandbox,
    pub sides: [Side; 2],
    pub middle: Host,
    pub layout: Layout,
    before: Vec<Settings>,
    _lab: Lab,
}

impl Bridge {
    pub fn new(layout: Layout) -> Bridge {
        let mut lab = Lab::new();
        let middle = lab.silent_host("middle");
        let sides = [0, 1].map(|index| Side::new(&mut lab, &middle, &layout, index));
        let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace()]);
        let mut bridge = Bridge { sandbox, sides, middle, layout, before: Vec::new(), _lab: lab };
        bridge.sandbox.write(NETWORK, &bridge.network());
        bridge.before = bridge.interfaces().iter().map(HostInterface::settings).collect();
        bridge
    }

    pub fn client(&self) -> &Host {
        &self.sides[0].host
    }

    pub fn server(&self) -> &Host {
        &self.sides[1].host
    }

    /// The text of the network file.
    fn network(&self) -> String {
        let network = self
            .sides
            .iter()
            .fold(Network::default(), |network, side| network.app(side.name, side.port.app, &side.keys()));
        network.link("left.output -> right.input").link("right.output -> left.input").text()
    }

    /// Starts the network.
    pub fn start(&self) -> Running<'_> {
        let running = self.sandbox.start(&[NETWORK, "--json"]);
        self.sides.iter().filter(|side| side.port.is_tap()).for_each(Side::set_offloads);
        running
    }

    /// Starts the servers, with a file to fetch.
    pub fn serve(&self) -> Servers {
        write_random(&self.sandbox, FILE_LENGTH);
        Servers::start(self.server(), &self.sandbox.path(""))
    }

    /// Fetches the file, and compares the copy with it.
    #[track_caller]
    pub fn fetch(&self, server: &str) {
        traffic::fetch(self.client(), server, &self.sandbox.path(""), FILE);
    }

    /// Waits until the client reaches the server.
    pub fn wait_until_connected(&self) {
        traffic::wait_for_answer(self.client(), SERVER);
        traffic::wait_for_answer(self.client(), SERVER_V6);
    }

    /// The status of a port, from `bellows show interfaces`.
    pub fn status(&self, port: &str) -> Value {
        let shown = self.sandbox.bellows(&["show", "interfaces", "--json"]).success().json();
        let ports = shown["interfaces"].as_array().unwrap_or_else(|| panic!("no ports in {shown:#}"));
        let port = ports.iter().find(|listed| listed["app"] == port).unwrap_or_else(|| panic!("no {port}: {shown:#}"));
        port["status"].clone()
    }

    /// The counters of the hosts' interfaces.
    pub fn lan_counters(&self) -> [Counters; 2] {
        self.sides.each_ref().map(|side| side.lan().counters())
    }

    /// The counters of the hosts' interfaces while no packet is on its way, so that what one host has sent is among what
    /// the other one has received.
    pub fn quiet_lan_counters(&self) -> [Counters; 2] {
        let mut counters = self.lan_counters();
        eventually("a moment without packets", || {
            std::thread::sleep(std::time::Duration::from_millis(50));
            let earlier = std::mem::replace(&mut counters, self.lan_counters());
            counters == earlier
        });
        counters
    }

    /// The interfaces that exist without Bellows.
    fn interfaces(&self) -> Vec<HostInterface> {
        self.sides.iter().flat_map(Side::interfaces).collect()
    }

    /// The ports' own interfaces.
    pub fn ports(&self) -> Vec<HostInterface> {
        self.sides.iter().filter_map(|side| Some(side.cable.as_ref()?[1].interface())).collect()
    }

    /// Waits until nothing of an ended network is left: no program, no promiscuity, no tap, no changed setting.
    #[track_caller]
    pub fn assert_restored(&self, when: &str) {
        eventually_without_faults(when, || {
            let changes = |(interface, before): (&HostInterface, &Settings)| {
                let changes = differences(before, &interface.settings());
                changes.lines().map(|line| format!("{interface}: {line}\n")).collect()
            };
            let interfaces = self.interfaces();
            let changes: Vec<String> = interfaces.iter().zip(&self.before).map(changes).collect();
            let programs = self.ports().into_iter().flat_map(|port| port.xdp_programs());
            let programs = programs.map(|id| format!("the XDP program {id}\n"));
            let taps = self.sides.iter().filter(|side| side.port.is_tap() && side.lan().exists());
            let taps = taps.map(|side| format!("a tap in {}\n", side.host.namespace()));
            changes.into_iter().chain(programs).chain(taps).collect()
        });
    }

    /// Stops the network, and checks that it has ended well and left nothing behind.
    #[track_caller]
    pub fn stop(&self, running: Running<'_>) {
        running.signal(Signal::INT);
        running.wait().success();
        self.assert_restored("after the end");
    }
}

/// Writes the file to fetch.
pub fn write_random(sandbox: &Sandbox, length: u64) {
    let mut random = Vec::new();
    fs::File::open("/dev/urandom").unwrap().take(length).read_to_end(&mut random).unwrap();
    fs::write(sandbox.path(FILE), random).unwrap();
}

/// Packets that each host has sent since an earlier time and the other one has not received. Negative if a packet was
/// segmented on its way.
pub fn missing(before: &[Counters; 2], now: &[Counters; 2]) -> [i64; 2] {
    let [near, far] = [0, 1].map(|side| now[side].since(&before[side]));
    [(near, far), (far, near)].map(|(from, to)| from.tx_packets as i64 - to.rx_packets as i64)
}

/// An app's row in a report or in counters.
pub fn app<'a>(counters: &'a Value, name: &str) -> &'a Value {
    let apps = counters["apps"].as_array().unwrap_or_else(|| panic!("no apps in {counters:#}"));
    apps.iter().find(|app| app["name"] == name).unwrap_or_else(|| panic!("no {name} in {counters:#}"))
}

/// A counter of an app's own.
pub fn counted(counters: &Value, name: &str, counter: &str) -> u64 {
    let app = app(counters, name);
    app["counters"][counter].as_u64().unwrap_or_else(|| panic!("no {counter} in {app:#}"))
}

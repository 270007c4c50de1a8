//! The networks of pages whose other end is Linux: a guest with three cards at vhost-user sockets, one in each of three
//! namespaces of its own, runs the commands of a page, and its namespaces then talk through the page's network.
//!
//! ```text
//!  guest                    network of the page       guest, far and third
//!  devices over card ─ near ─── routers, tunnels ─── far, third ─ cards
//! ```

use bellows_testkit::guest::{self, Card, Guest, Setup};
use bellows_testkit::page::{blocks, commands};
use bellows_testkit::programs;
use bellows_testkit::skips::{is_left_out, is_skipped};

use crate::book::pages::{self, How, Page};
use crate::book::text;
use crate::support::{Running, Sandbox, Signal};

/// A network of a page, and the guest that is its neighbour.
struct Network {
    page: &'static Page,
    /// The number of the block of TOML, from 1 on.
    block: usize,
    /// The names of the ports of the cards near, far and third.
    ports: [&'static str; 3],
    /// A text that the page says to leave out.
    without: &'static [&'static str],
    /// Lines of the guest before the page's commands.
    before: &'static [&'static str],
    /// What the first commands of each block of the other end begin with.
    others: &'static [&'static str],
    /// Lines of the guest after the commands.
    after: &'static [&'static str],
    /// Lines that succeed as soon as all is up, and then those that have to succeed at once.
    eventually: &'static [&'static str],
    then: &'static [&'static str],
}

const NONE: Network = Network {
    page: &pages::TUNNELS,
    block: 1,
    ports: ["", "", ""],
    without: &[],
    before: &[],
    others: &[],
    after: &[],
    eventually: &[],
    then: &[],
};

/// The cards of a wide uplink, and of a host behind the network.
const WIDE_V6: &str = "ip link set $near mtu 1600 up && ip addr add 2001:db8::2/64 dev $near nodad";
const BEHIND: &str = "far ip link set $far up && far ip addr add 10.0.0.2/24 dev $far";
const REACHED: &str = "ping -c 1 -W 1 10.0.0.2";
const WHOLE: &str = "ping -c 2 -W 30 -s 1472 10.0.0.2";

static NETWORKS: [Network; 6] = [
    Network {
        page: &pages::L2VPN,
        ports: ["eth0", "eth1", "eth2"],
        // Linux has no control channel.
        without: &[", control_channel = {}", "control_channel = {}\n"],
        before: &[
            "ip link set $near mtu 1600 up && ip addr add 192.0.2.254/24 dev $near",
            "ip addr add 2001:db8::ff/64 dev $near nodad && ip addr add 2001:db8:b::1/128 dev lo nodad",
            "ip addr add 198.51.100.1/32 dev lo",
            BEHIND,
            "third ip link set $third mtu 1504 up",
            "third ip link add link $third name vlan100 type vlan id 100",
            "third ip link set vlan100 up && third ip addr add 10.1.0.2/24 dev vlan100",
        ],
        others: &["ip l2tp add tunnel", "ip link add line"],
        after: &["ip addr add 10.0.0.1/24 dev lan", "ip addr add 10.1.0.1/24 dev line"],
        eventually: &[REACHED, "ping -c 1 -W 1 10.1.0.2"],
        then: &[WHOLE, "exchange 1", "ping -c 2 -W 30 -s 1472 10.1.0.2"],
        ..NONE
    },
    Network {
        page: &pages::TUNNELS,
        ports: ["uplink", "lan", "unused"],
        before: &[WIDE_V6, BEHIND],
        others: &["ip l2tp add tunnel"],
        after: &["ip link set site mtu 1500 up && ip addr add 10.0.0.1/24 dev site"],
        eventually: &[REACHED],
        then: &[WHOLE, "exchange 1"],
        ..NONE
    },
    Network {
        page: &pages::IPSEC,
        ports: ["uplink", "lan", "unused"],
        before: &[WIDE_V6, BEHIND],
        others: &["key1="],
        after: &[
            "ip link add wire type ip6gretap local 2001:db8::2 remote 2001:db8::1",
            "ip link set wire mtu 1500 up && ip addr add 10.0.0.1/24 dev wire",
        ],
        eventually: &[REACHED],
        then: &[WHOLE, "exchange 1"],
        ..NONE
    },
    Network {
        page: &pages::IPSEC,
        block: 2,
        ports: ["uplink", "lan", "unused"],
        before: &[
            "ip link set $near mtu 1600 up && ip addr add 192.0.2.2/24 dev $near && ip addr add 10.1.0.1/24 dev lo",
            BEHIND,
            "far ip route add default via 10.0.0.1",
        ],
        others: &["key1="],
        eventually: &[REACHED],
        then: &[WHOLE, "exchange 1 10.1.0.1 10.0.0.2"],
        ..NONE
    },
    Network {
        page: &pages::SWITCHING,
        ports: ["one", "two", "uplink"],
        before: &[
            "ip link set $near up && ip addr add 10.0.0.1/24 dev $near",
            BEHIND,
            "third ip link set $third up && third ip addr add 10.0.0.3/24 dev $third",
        ],
        eventually: &[REACHED, "ping -c 1 -W 1 10.0.0.3", "far ping -c 1 -W 1 10.0.0.3"],
        then: &[WHOLE, "exchange 1"],
        ..NONE
    },
    Network {
        page: &pages::SWITCHING,
        block: 2,
        // The trunk is near.
        ports: ["uplink", "one", "two"],
        before: &[
            "ip link set $near up && for vlan in 5 7; do \
             ip link add link $near name vlan$vlan type vlan id $vlan && ip link set vlan$vlan up || break; done",
            "ip addr add 10.0.0.1/24 dev vlan5 && ip addr add 10.1.0.1/24 dev vlan7",
            BEHIND,
            "third ip link set $third up && third ip addr add 10.1.0.2/24 dev $third",
            // An address of the other VLAN's port: nobody may answer for it.
            "third ip addr add 10.0.0.3/24 dev $third",
        ],
        eventually: &[REACHED, "ping -c 1 -W 1 10.1.0.2"],
        then: &[WHOLE, "exchange 1", "! ping -c 2 -W 1 10.0.0.3", "! far ping -c 2 -W 1 10.0.0.3"],
        ..NONE
    },
];

/// Gives the third card a namespace, and the others theirs.
const START: [&str; 5] = [
    "unshare -n sleep 1000000 & THIRD=$!",
    "third() { nsenter -t $THIRD -n \"$@\"; }",
    "near=$(near_card) far=$(far_card) third=$(third_card)",
    "ip link set $far netns $FAR && ip link set $third netns $THIRD && third ip link set lo up",
    "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad",
];

/// Removes all that a page's commands have made. The tunnels of L2TP go in the background.
const CLEAR: [&str; 8] = [
    "for session in lan site; do ip link show $session >/dev/null 2>&1 && ip link set $session down; done; true",
    "ip l2tp del tunnel tunnel_id 1; while ip l2tp show tunnel | grep Tunnel; do sleep 1; done; true",
    "for name in line wire vlan5 vlan7; do ip link show $name >/dev/null 2>&1 && ip link del $name; done; true",
    "third ip link show vlan100 >/dev/null 2>&1 && third ip link del vlan100; true",
    "ip xfrm policy flush && ip xfrm state flush",
    "ip addr flush dev $near && ip addr flush dev lo && ip addr add 127.0.0.1/8 dev lo",
    "far ip addr flush dev $far && third ip addr flush dev $third",
    "ip neigh flush all; far ip neigh flush all; third ip neigh flush all; true",
];

/// The sockets of the cards.
const CARDS: [&str; 3] = ["near", "far", "third"];

impl Network {
    /// Writes the page's network with its ports, as a file of the sandbox.
    fn write(&self, sandbox: &Sandbox) -> String {
        let page = text(self.page.name);
        let is_toml = |info: Option<&str>| info.is_some_and(|info| info.starts_with("toml"));
        let block = blocks(&page).into_iter().filter(|block| is_toml(block.info)).nth(self.block - 1).unwrap();
        let mut network = block.lines.join("\n") + "\n";
        for text in self.without {
            assert!(network.contains(text), "no `{text}` in block {} of docs/{}.md", self.block, self.page.name);
            network = network.replace(text, "");
        }
        for (port, card) in self.ports.iter().zip(CARDS) {
            let socket = sandbox.path(&format!("{card}.sock"));
            network += &format!("[apps.{port}]\napp = \"vhost-user\"\nsocket = \"{}\"\n", socket.display());
        }
        sandbox.write(&format!("{}-{}.toml", self.page.name, self.block), &network)
    }

    /// The page's commands for the guest: of each block of the other end, those that another test does not run.
    fn commands(&self) -> Vec<String> {
        let page = text(self.page.name);
        let in_guest = |text: &str| {
            let all = commands(text);
            let special = |command| self.page.special(command).filter(|special| special.how == How::InGuest);
            let lines = all.iter().filter_map(|command| special(command).map(|special| (special, command)));
            lines.map(|(special, command)| format!("{}{}", special.before, command.text)).collect::<Vec<_>>()
        };
        let all: Vec<Vec<String>> = blocks(&page)
            .iter()
            .map(|block| in_guest(&format!("```sh\n{}\n```\n", block.lines.join("\n"))))
            .filter(|commands| !commands.is_empty())
            .collect();
        let mut matching = Vec::new();
        for other in self.others {
            let starts = |commands: &&Vec<String>| commands[0].contains(other);
            // Where several blocks begin alike, each is for the network of its number.
            let of_page: Vec<&Vec<String>> = all.iter().filter(starts).collect();
            matching.extend(of_page[if of_page.len() > 1 { self.block - 1 } else { 0 }].iter().cloned());
        }
        matching
    }

    fn talks(&self, guest: &mut Guest) -> usize {
        let place = |line: &str| format!("docs/{}.md, network {}: {line}", self.page.name, self.block);
        let run = |guest: &mut Guest, line: &str| {
            let (status, said) = guest.try_run(line);
            assert_eq!(status, "0", "{}\n{said}", place(line));
        };
        let commands = self.commands();
        let lines = self.before.iter().copied().chain(commands.iter().map(String::as_str));
        lines.chain(self.after.iter().copied()).for_each(|line| run(guest, line));
        for line in self.eventually {
            eprintln!("{}", place(line));
            guest.eventually(line);
        }
        self.then.iter().for_each(|line| run(guest, line));
        CLEAR.iter().for_each(|line| run(guest, line));
        commands.len()
    }
}

fn stop(running: Running<'_>) {
    running.signal(Signal::INT);
    running.wait().success();
}

#[test]
fn the_networks_of_pages_reach_linux_at_the_other_end() {
    let test = "neighbours::the_networks_of_pages_reach_linux_at_the_other_end";
    let missing = guest::missing().or_else(|| programs::missing(&["ip"]));
    if is_left_out(test) || is_skipped(test, missing) {
        return;
    }
    let sandbox = Sandbox::new();
    let sockets = CARDS.map(|card| sandbox.path(&format!("{card}.sock")));
    // QEMU starts as soon as all of its sockets are there.
    let mut running = Some(sandbox.start(&[&NETWORKS[0].write(&sandbox)]));
    let folder = sandbox.path("");
    let [near, far, third] = sockets.each_ref().map(|socket| Card { socket, server: false, queues: 1, properties: "" });
    let mut setup = Setup::with_cards(&folder, [near, far]).card(third);
    setup = setup.program(&programs::find_program("ip").unwrap());
    // The names of protocols.
    let mut guest = setup.file("etc/protocols", "gre 47 GRE\n".to_owned()).boot();
    guest.load_vlans();
    guest.load_tunnels();
    guest.load_ipsec();
    START.iter().for_each(|line| drop(guest.run(line)));
    let mut seen = 0;
    for network in &NETWORKS {
        for name in ["site-out.key", "site-in.key"] {
            // As `openssl rand -hex 20` makes it.
            let key = guest.run("head -c 20 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'");
            sandbox.write_secret(name, key.trim());
            guest.run(&format!("echo {} >/tmp/{name}", key.trim()));
        }
        // The cards connect again by themselves.
        let running = running.take().unwrap_or_else(|| sandbox.start(&[&network.write(&sandbox)]));
        seen += network.talks(&mut guest);
        stop(running);
    }
    let of_pages: usize = crate::book::PAGES
        .iter()
        .map(|page| {
            let is_in_guest = |command: &_| page.special(command).is_some_and(|special| special.how == How::InGuest);
            commands(&text(page.name)).iter().filter(|command| is_in_guest(command)).count()
        })
        .sum();
    assert_eq!(seen, of_pages, "commands for the guest that no network here runs");
}

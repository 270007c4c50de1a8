//! IPsec between Bellows and a guest with Linux: both modes, each cipher, over IPv4 and IPv6. Behind Bellows, the guest
//! has its second card, in another namespace.
//!
//! ```text
//!  guest            outer router        ESP     inner router                     guest, far
//!  xfrm ─ card ─ near ───────────────── pairs ─┬─ inside ────── bridge ─ far ───── card
//!                                              └─ gre (transport mode) ┘
//! ```

mod hostile;
mod peer;
mod renewal;

use std::collections::BTreeMap;
use std::time::Instant;

use bellows_testkit::guest::{self, Card, Guest, PATIENCE, Setup};
use bellows_testkit::programs;
use bellows_testkit::skips::{is_left_out, is_skipped};
use serde_json::Value;

use crate::bridge::{NETWORK, app};
use crate::support::vhost::socket;
use crate::support::{Running, Sandbox, Signal};
use peer::{Keys, Line, PAIRS, Pair, Way, network, route, set_up};

/// Both ends.
struct Ends<'a> {
    sandbox: &'a Sandbox,
    running: Running<'a>,
    guest: Guest,
    keys: Keys,
    /// The first round of keys that the guest still has.
    oldest: u32,
}

impl Ends<'_> {
    /// Has Bellows take another network.
    fn reload(&self, line: Line) {
        self.sandbox.write(NETWORK, &network(self.sandbox, &self.keys, line));
        self.sandbox.bellows(&["reload"]).success();
    }

    fn add(&mut self, pair: &Pair, way: Way) {
        let line = self.keys.state(pair, way, "");
        self.guest.run(&line);
    }

    /// Gives all pairs new keys by a reload, at both ends. Each receiver has them before its sender.
    fn renew(&mut self, keys: Keys) {
        self.keys = keys;
        PAIRS.iter().for_each(|pair| self.add(pair, Way::ToGuest));
        self.reload(Line::Plain);
        PAIRS.iter().for_each(|pair| self.add(pair, Way::FromGuest));
    }

    /// Removes all associations from the guest but those with the present keys.
    fn forget_old(&mut self) {
        for round in self.oldest..self.keys.round {
            let keys = Keys { round, ..self.keys };
            for id in PAIRS.iter().flat_map(|pair| [Way::ToGuest, Way::FromGuest].map(|way| keys.id(pair, way))) {
                self.guest.run(&format!("ip xfrm state delete {id}"));
            }
        }
        self.oldest = self.keys.round;
    }

    /// Has packets pass in both directions, some of them in fragments.
    fn ping(&mut self, pair: &Pair) {
        for [near, far] in pair.stations() {
            self.guest.run(&format!("reach ping -I {near} {far}"));
            self.guest.run(&format!("reach far ping {near}"));
        }
    }

    /// Has a file pass in both directions.
    fn exchange(&mut self, pair: &Pair) {
        for [near, far] in pair.stations() {
            if pair.is_tunnel {
                route(&mut self.guest, &near);
            }
            self.guest.run(&format!("exchange 1 {near} {far}"));
        }
    }

    /// Fails if an end has refused anything since both had keys.
    fn assert_nothing_refused(&mut self) {
        assert_eq!(drops(&self.running), BTreeMap::new());
        self.guest.run("diff /tmp/refused /proc/net/xfrm_stat");
    }
}

/// The counters of packets that the inner router itself sends to the link of a tunnel: ARP, and neighbour discovery.
const OF_THE_LINK: [&str; 2] = ["not_ip", "bad_selector"];

/// What ESP has dropped, but for those.
fn drops(running: &Running<'_>) -> BTreeMap<String, u64> {
    let counters = running.counters();
    let drops = app(&counters, "ipsec")["drops"].as_object().unwrap();
    let count = |(name, count): (&String, &Value)| Some((name.clone(), count.as_u64().filter(|&count| count > 0)?));
    drops.iter().filter_map(count).filter(|(name, _)| !OF_THE_LINK.contains(&&**name)).collect()
}

/// The pings that have left both namespaces of the guest, without the answers that have come. These are the kernel's
/// counters: `ping` itself overlooks answers on a busy machine.
fn unanswered(guest: &mut Guest) -> i64 {
    // A line of names and one of values for IPv4, a line for each counter of IPv6.
    let said = guest.run("for place in '' far; do $place grep Icmp: /proc/net/snmp; $place cat /proc/net/snmp6; done");
    let mut names = Vec::new();
    let (mut unanswered, mut seen) = (0, 0);
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let counters: Vec<(&str, &str)> = match words[..] {
            ["Icmp:", "InMsgs", ..] => {
                names = words.iter().map(|name| (*name).to_owned()).collect();
                continue;
            }
            ["Icmp:", ..] => names.iter().map(String::as_str).zip(words).collect(),
            [name, value] => vec![(name, value)],
            _ => continue,
        };
        for (name, value) in counters {
            let sign = match name {
                "OutEchos" | "Icmp6OutEchos" => 1,
                "InEchoReps" | "Icmp6InEchoReplies" => -1,
                _ => continue,
            };
            unanswered += sign * value.parse::<i64>().unwrap();
            seen += 1;
        }
    }
    assert_eq!(seen, 8, "counters of two families in two places: {said}");
    unanswered
}

/// Waits until all pings since an earlier time are answered.
fn wait_for_answers(ends: &mut Ends<'_>, unanswered_before: i64) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let lost = unanswered(&mut ends.guest) - unanswered_before;
        if lost <= 0 {
            return;
        }
        if Instant::now() > deadline {
            let counters = ends.running.counters();
            let drops = counters["apps"].as_array().unwrap().iter().flat_map(|app| {
                let drops = app["drops"].as_object().unwrap().iter().filter(|(_, count)| **count != 0);
                drops.map(|(name, count)| format!("{} {name} {count}\n", app["name"]))
            });
            let drops: String = drops.collect();
            let kernel = ends
                .guest
                .run("for place in '' far; do $place cat /proc/net/dev /proc/net/snmp /proc/net/softnet_stat; done");
            panic!("{lost} pings have no answer\n{drops}{kernel}");
        }
    }
}

/// Runs a line in the guest that other lines do not wait for.
fn run_in_background(guest: &mut Guest, line: &str) {
    guest.run("background=$((background + 1)); name=/tmp/background$background");
    guest.run(&format!("{{ {{ {line}; }} >$name 2>&1; echo $? >$name.status; }} &"));
    guest.run("jobs=\"$jobs $!\"");
}

/// Waits for the lines in the background, each of which must have succeeded.
fn wait_for_background(guest: &mut Guest) {
    // One after another: the patience with a line of the guest is for each of them.
    guest.run("set -- $jobs; jobs=");
    while guest.run("echo $#").trim() != "0" {
        guest.run("wait $1; shift");
    }
    let (_, said) = guest.try_run(
        "for name in /tmp/background*.status; do test $(cat $name) = 0 || { echo $name; cat ${name%.status}; }; done",
    );
    assert_eq!(said, "", "failed in the background");
    guest.run("rm -f /tmp/background*");
}

#[test]
fn esp_is_that_of_linux() {
    let test = "ipsec::esp_is_that_of_linux";
    let programs = ["ip", "perl"];
    if is_left_out(test) || is_skipped(test, guest::missing()) || is_skipped(test, programs::missing(&programs)) {
        return;
    }
    let sandbox = Sandbox::new();
    let keys = |round, algorithm, esn, udp| Keys { round, algorithm, esn, udp };
    let first = keys(0, "aes-128-gcm", true, false);
    sandbox.write(NETWORK, &network(&sandbox, &first, Line::Plain));
    let running = sandbox.start(&[NETWORK, "--json"]);
    let [near, far] = ["near", "far"].map(|port| socket(&sandbox, port));
    let card = |socket| Card { socket, server: false, queues: 1, properties: "" };
    let folder = sandbox.path("");
    let setup = Setup::with_cards(&folder, [card(&near), card(&far)]);
    let setup = programs.iter().fold(setup, |setup, name| setup.program(&programs::find_program(name).unwrap()));
    // The names of protocols.
    let mut guest = setup.file("etc/protocols", "gre 47 GRE\n".to_owned()).boot();
    set_up(&mut guest);
    let mut ends = Ends { sandbox: &sandbox, running, guest, keys: first, oldest: 0 };
    for pair in &PAIRS {
        ends.add(pair, Way::ToGuest);
        ends.add(pair, Way::FromGuest);
        for [near, far] in pair.stations() {
            ends.guest.eventually(&format!("ping -c 1 -W 1 -I {near} {far}"));
        }
    }
    ends.guest.run("cp /proc/net/xfrm_stat /tmp/refused");
    for round in [
        first,
        keys(1, "aes-128-gcm", false, false),
        keys(2, "aes-256-gcm", true, false),
        keys(3, "aes-256-gcm", false, true),
        keys(4, "chacha20-poly1305", true, true),
        keys(5, "chacha20-poly1305", false, false),
    ] {
        if round.round > 0 {
            ends.renew(round);
            ends.forget_old();
        }
        PAIRS.iter().for_each(|pair| ends.ping(pair));
        PAIRS.iter().filter(|pair| round.round == 0 || pair.number == round.round).for_each(|pair| ends.exchange(pair));
        eprintln!("{test}: {}, ESN {}, UDP {}", round.algorithm, round.esn, round.udp);
        ends.assert_nothing_refused();
    }
    ends.renew(keys(6, "aes-128-gcm", true, false));
    ends.forget_old();
    renewal::pass_32_bits(&mut ends);
    renewal::under_traffic(&mut ends);
    hostile::is_refused(&mut ends);
    hostile::lines_do_no_harm(&mut ends);
    drop(ends.guest);
    ends.running.signal(Signal::INT);
    ends.running.wait().success();
}

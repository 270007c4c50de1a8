//! A bridge inside a Linux guest: its two network cards are virtio-net with several queues, and AF_XDP runs in their
//! driver. The other ends of the cards are taps of two hosts, which talk through the guest.
//!
//! ```text
//!  client                        guest                        server
//!  lan (tap) ─ card [ port "left" <-> port "right" ] card ─ lan (tap)
//! ```

use std::path::Path;
use std::time::Duration;

use bellows_testkit::guest::{self, Guest, Setup};
use bellows_testkit::netns::traffic::{self, Servers, StreamDirection, checksum_errors};
use bellows_testkit::netns::{Host, Lab};
use bellows_testkit::skips::{is_left_out, is_skipped};

use crate::bridge::{FILE, NETWORK, SERVER, SERVER_V6, counted, is_missing, write_random};
use crate::support::guest::json;
use crate::support::vhost::Network;
use crate::support::{self, Sandbox};

/// Processors of the guest. The driver uses a pair of queues for each.
const PROCESSORS: usize = 2;

/// The most pairs of queues that the driver may use: it sends the frames of an XDP program through a further one for each
/// processor, and then receives from all of them.
const PAIRS: usize = 2 * PROCESSORS;

/// The ports, and their cards' names in the guest.
const PORTS: [&str; 2] = ["left", "right"];

/// No frame may be merged, and no checksum be partial, as the driver cannot tell that to an XDP program.
const PROPERTIES: &str = ",mq=on,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off";

/// The bytes of the file that goes through.
const LENGTH: u64 = 2 << 20;

/// QEMU's arguments for a card with a tap, which is made in the network namespace of QEMU.
fn backend(middle: &Host, number: usize) -> Vec<String> {
    let tap = PORTS[number];
    middle.run(&format!("ip tuntap add dev {tap} mode tap multi_queue vnet_hdr"));
    let netdev = format!("tap,id=net{number},ifname={tap},queues={PAIRS},script=no,downscript=no,vhost=off");
    vec!["-netdev".to_owned(), netdev]
}

/// Gives a tap that QEMU has opened to a host.
fn hand_over(middle: &Host, tap: &str, host: &Host, number: u8) {
    middle.run(&format!("ip link set dev {tap} netns {} name lan address 00:00:5e:00:53:0{number}", host.namespace()));
    host.run(&format!("ip address add 192.0.2.{number}/24 dev lan"));
    host.run(&format!("ip address add 2001:db8::{number}/64 dev lan nodad"));
    host.run("ip link set dev lan up");
}

/// The bridge. QEMU's cards filter by destination.
fn network() -> String {
    let port = |name: &str| format!("interface = \"{name}\"\nmode = \"native\"\npromiscuous = true\n");
    PORTS
        .iter()
        .fold(Network::default(), |network, name| network.app(name, "af-xdp", &port(name)))
        .link("left.output -> right.input")
        .link("right.output -> left.input")
        .text()
}

/// The receive queues of a card in use.
fn queues(guest: &mut Guest, card: &str) -> usize {
    guest.run(&format!("ls /sys/class/net/{card}/queues | grep -c rx-")).trim().parse().unwrap()
}

fn start(guest: &mut Guest, client: &Host) {
    support::guest::start(guest, NETWORK);
    traffic::wait_for_answer(client, SERVER);
    traffic::wait_for_answer(client, SERVER_V6);
}

#[test]
fn af_xdp_works_in_the_driver_of_a_guest() {
    let test = "af_xdp_works_in_the_driver_of_a_guest";
    if is_left_out(test) || is_skipped(test, guest::missing()) || is_missing(test, &[]) {
        return;
    }
    let mut lab = Lab::new();
    let middle = lab.silent_host("middle");
    let [client, server] = ["client", "server"].map(|name| lab.host(name));
    let sandbox = Sandbox::new();
    let folder = sandbox.path("");
    let mut guest = Setup::new(&folder, [0, 1].map(|number| backend(&middle, number)), [PROPERTIES; 2])
        .on(&middle)
        .program(Path::new(env!("CARGO_BIN_EXE_bellows")))
        .file(NETWORK, network())
        .boot();
    hand_over(&middle, "left", &client, 1);
    hand_over(&middle, "right", &server, 2);
    guest.run("for place in all default; do echo 1 >/proc/sys/net/ipv6/conf/$place/disable_ipv6; done");
    guest.run("left=$(near_card) right=$(far_card)");
    guest.run("ip link set $left name left && ip link set $right name right");
    guest.run("ip link set left up && ip link set right up");
    assert_eq!(queues(&mut guest, "left"), PROCESSORS);

    start(&mut guest, &client);
    for port in PORTS {
        let listed = json(&mut guest, "show interfaces");
        let listed = listed["interfaces"].as_array().unwrap();
        let port = listed.iter().find(|listed| listed["app"] == port).unwrap();
        let details = &port["status"]["details"];
        assert_eq!((&details["mode"], &details["queues"]), (&"native".into(), &"0, 1, 2, 3".into()), "{port:#}");
        assert_eq!(port["state"], "up", "{port:#}");
    }
    for address in [SERVER, SERVER_V6] {
        traffic::ping(&client, address, 1_500);
    }
    write_random(&sandbox, LENGTH);
    let servers = Servers::start(&server, &folder);
    for address in [SERVER, SERVER_V6] {
        traffic::fetch(&client, address, &folder, FILE);
    }
    // Each stream is another flow, and flows are spread over the queues.
    for direction in [StreamDirection::There, StreamDirection::Back] {
        let rate = traffic::tcp(&client, SERVER, Duration::from_secs(2), direction);
        eprintln!("{test}: TCP {direction:?} {:.1} Mbit/s", rate / 1e6);
    }
    assert_eq!([&client, &server].map(checksum_errors), [0, 0], "wrong checksums at the client and at the server");
    let counters = json(&mut guest, "show");
    for port in PORTS {
        assert_eq!(counted(&counters, port, "copied"), 0);
    }

    // The program is gone with the process, and the queues are what they were.
    guest.run("killall -9 bellows");
    guest.eventually(&format!("test $(ls /sys/class/net/left/queues | grep -c rx-) = {PROCESSORS}"));
    assert!(!traffic::is_answered_at(&client, SERVER, 500), "nothing is left that forwards");
    start(&mut guest, &client);
    traffic::fetch(&client, SERVER, &folder, FILE);
    guest.run("killall -INT bellows");
    guest.eventually("! pidof bellows");
    assert_eq!([queues(&mut guest, "left"), queues(&mut guest, "right")], [PROCESSORS; 2]);
    drop(servers);
}

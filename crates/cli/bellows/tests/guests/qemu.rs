//! A Linux guest under QEMU, with both its network cards at one Bellows: it talks to itself through the network, with
//! and without offloaded segmentation and checksums, over rings of every kind, while its driver is replaced and Bellows
//! dies and returns.

use std::collections::BTreeSet;

use crate::support::vhost::{Network, moved, negotiated, port_status, socket, wait_for_driver};
use crate::support::{Running, Sandbox, Signal};
use bellows_testkit::guest::{self, Card, Guest};
use bellows_testkit::netns::traffic::sum_of_checksum_errors;
use bellows_testkit::skips::{is_left_out, is_skipped};

/// The ports of the network, connected crosswise.
const PORTS: [&str; 2] = ["near", "far"];

/// The largest frame that is not a GSO packet.
const LARGEST: u64 = 1_514;

fn network(sandbox: &Sandbox, keys: &str) -> String {
    let [near, far] = PORTS.map(|name| socket(sandbox, name));
    let network = Network::default().port("near", &near, keys).port("far", &far, keys);
    sandbox.write("guest.toml", &network.link("near.output -> far.input").link("far.output -> near.input").text())
}

fn options(sandbox: &Sandbox, running: &Running<'_>, port: &str) -> BTreeSet<String> {
    let socket = socket(sandbox, port);
    wait_for_driver(sandbox, running, &socket);
    negotiated(sandbox, running, &socket)
}

fn assert_options(options: &BTreeSet<String>, with: &[&str], without: &[&str]) {
    for name in with {
        assert!(options.contains(*name), "{name} is not in {options:?}");
    }
    for name in without {
        assert!(!options.contains(*name), "{name} is in {options:?}");
    }
}

/// The mean length of the frames that a port has sent to its driver so far.
fn mean_length(running: &Running<'_>, port: &str) -> u64 {
    let counters = running.counters();
    let apps = counters["apps"].as_array().unwrap();
    let app = apps.iter().find(|app| app["name"] == port).unwrap();
    app["in_bytes"].as_u64().unwrap() / app["in_packets"].as_u64().unwrap()
}

/// Pings, and a file of random bytes there and back.
fn short_talk(guest: &mut Guest) {
    guest.run("ping -c 5 -A -W 30 10.0.0.2");
    guest.run("exchange 4");
}

/// Unbinds the driver from both devices and binds it again.
fn rebind(guest: &mut Guest) {
    guest.run("for card in virtio0 virtio1; do echo $card >/sys/bus/virtio/drivers/virtio_net/unbind; done");
    guest.run("for card in virtio0 virtio1; do echo $card >/sys/bus/virtio/drivers/virtio_net/bind; done");
    guest.run("cards");
}

/// All the traffic between two hosts.
fn talk(guest: &mut Guest) {
    guest.run("ping -c 5 -A -W 30 10.0.0.2");
    guest.run("ping -c 5 -A -W 30 -s 20000 10.0.0.2");
    guest.run("far iperf3 -s -D");
    guest.run("until far netstat -ltn | grep -q :5201; do usleep 50000; done");
    guest.run("iperf3 -c 10.0.0.2 -n 16M -P 4");
    guest.run("iperf3 -c 10.0.0.2 -n 16M -P 4 --reverse");
    let said = guest.run("iperf3 -u -b 20M -l 1400 -c 10.0.0.2 -n 2M");
    assert!(said.lines().any(|line| line.ends_with("receiver") && !line.contains("(100%)")), "{said}");
    guest.run("exchange 16");
    for place in ["", "far "] {
        let counters = guest.run(&format!("{place}cat /proc/net/snmp"));
        assert_eq!(sum_of_checksum_errors(&counters), 0, "{counters}");
    }
    guest.run("far killall iperf3");
}

fn is_missing(test: &str) -> bool {
    is_left_out(test) || is_skipped(test, guest::missing())
}

#[test]
fn a_guest_changes_drivers_and_bellows_returns() {
    if is_missing("a_guest_changes_drivers_and_bellows_returns") {
        return;
    }
    let sandbox = Sandbox::new();
    let network = network(&sandbox, "");
    let running = sandbox.start(&[&network]);
    let sockets = PORTS.map(|name| socket(&sandbox, name));
    let cards = sockets.each_ref().map(|socket| Card { socket, server: false, queues: 1, properties: "" });
    let mut guest = Guest::boot(&sandbox.path(""), cards);
    guest.run("cards");
    let modern = ["version-1", "mergeable", "checksum", "guest-checksum", "tso4", "tso6", "guest-tso4", "guest-tso6"];
    for port in PORTS {
        assert_options(&options(&sandbox, &running, port), &modern, &["packed"]);
    }
    talk(&mut guest);
    assert!(mean_length(&running, "far") > LARGEST, "GSO packets pass on whole");

    rebind(&mut guest);
    short_talk(&mut guest);

    // Another driver, which knows nothing of virtio 1.0.
    let replace = |guest: &mut Guest, how: &str| {
        guest.run("rmmod virtio_net");
        guest.run("rmmod virtio_pci");
        guest.run(&format!("insert virtio_pci {how}"));
        guest.run("insert virtio_net");
        guest.run("cards");
        short_talk(guest);
    };
    replace(&mut guest, "force_legacy=1");
    for port in PORTS {
        assert_options(&options(&sandbox, &running, port), &["mergeable", "checksum"], &["version-1"]);
    }
    replace(&mut guest, "");
    for port in PORTS {
        assert_options(&options(&sandbox, &running, port), &modern, &["packed"]);
    }

    // QEMU reconnects to a restarted Bellows.
    running.signal(Signal::KILL);
    drop(running);
    let running = sandbox.start(&[&network]);
    guest.eventually("ping -c 1 -W 1 10.0.0.2");
    short_talk(&mut guest);
    for port in PORTS {
        assert_options(&options(&sandbox, &running, port), &modern, &["packed"]);
    }
}

#[test]
fn packed_rings_with_several_queues_and_a_plain_card() {
    if is_missing("packed_rings_with_several_queues_and_a_plain_card") {
        return;
    }
    let sandbox = Sandbox::new();
    let network = network(&sandbox, "mode = \"client\"\nqueues = 2");
    let running = sandbox.start(&[&network]);
    let [near, far] = PORTS.map(|name| socket(&sandbox, name));
    let plain = ",mq=on,csum=off,guest_csum=off,gso=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off\
                 ,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,mrg_rxbuf=off";
    let cards = [
        Card {
            socket: &near,
            server: true,
            queues: 2,
            properties: &std::env::var("NEARP").unwrap_or(",packed=on,mq=on".into()),
        },
        Card { socket: &far, server: true, queues: 2, properties: plain },
    ];
    let mut guest = Guest::boot(&sandbox.path(""), cards);
    guest.run("cards");
    let rich = ["packed", "version-1", "mergeable", "checksum", "tso4", "guest-tso4", "multiqueue"];
    let poor = ["packed", "mergeable", "checksum", "guest-checksum", "tso4", "guest-tso4"];
    assert_options(&options(&sandbox, &running, "near"), &rich, &[]);
    assert_options(&options(&sandbox, &running, "far"), &["version-1", "multiqueue"], &poor);
    talk(&mut guest);
    assert!(mean_length(&running, "far") > LARGEST, "GSO packets come to the port that must segment them");
    let status = port_status(&sandbox, &running, &near);
    assert_eq!(status["rings"].as_array().unwrap().len(), 4, "{status:#}");
    let queues = moved(&status, "receive");
    assert!(queues.iter().all(|packets| *packets > 0), "flows are spread over the queues: {queues:?}");

    running.signal(Signal::KILL);
    drop(running);
    let running = sandbox.start(&[&network]);
    for port in [&near, &far] {
        wait_for_driver(&sandbox, &running, port);
    }
    // Only the device knows the position of a packed ring, and this QEMU (7.2,
    // `virtio_queue_packed_restore_last_avail_idx`) does not know it after the device has died: the driver must start
    // anew.
    rebind(&mut guest);
    short_talk(&mut guest);
    assert_options(&options(&sandbox, &running, "near"), &rich, &[]);
}

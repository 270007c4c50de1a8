//! A Linux guest under QEMU whose network cards are at Unix sockets of Bellows: it talks to itself over a stream and
//! datagrams, also after Bellows was killed and has returned.

use crate::support::vhost::{Network, socket};
use crate::support::{Running, Sandbox, Signal};
use bellows_testkit::eventually;
use bellows_testkit::guest::{self, Guest, Setup};
use bellows_testkit::skips::{is_left_out, is_skipped};

/// A network between a stream port with these keys and the datagrams of the far card.
fn network(sandbox: &Sandbox, file: &str, stream: &str, keys: &str) -> String {
    let path = |name: &str| socket(sandbox, name).display().to_string();
    let stream = format!("socket = \"{}\"\n{keys}", path(stream));
    let dgram = format!("kind = \"dgram\"\nsocket = \"{}\"\npeer = \"{}\"", path("bellows"), path("qemu"));
    let network = Network::default().app("near", "unix-socket", &stream).app("far", "unix-socket", &dgram);
    sandbox.write(file, &network.link("near.output -> far.input").link("far.output -> near.input").text())
}

/// QEMU's arguments for the cards. The near one is at a hub with two streams: QEMU is the client of one, and the server
/// of the other.
fn backends(sandbox: &Sandbox) -> [Vec<String>; 2] {
    let path = |name: &str| socket(sandbox, name).display().to_string();
    let near = [
        format!("stream,id=out,server=off,addr.type=unix,addr.path={}", path("listens")),
        format!("stream,id=in,server=on,addr.type=unix,addr.path={}", path("connects")),
        "hubport,id=net0,hubid=0".to_owned(),
        "hubport,id=port1,hubid=0,netdev=out".to_owned(),
        "hubport,id=port2,hubid=0,netdev=in".to_owned(),
    ];
    let far = [format!(
        "dgram,id=net1,local.type=unix,local.path={},remote.type=unix,remote.path={}",
        path("qemu"),
        path("bellows")
    )];
    let arguments = |netdevs: &[String]| netdevs.iter().flat_map(|one| ["-netdev".to_owned(), one.clone()]).collect();
    [arguments(&near), arguments(&far)]
}

/// Waits until both ports have their other side.
fn wait_for_guest(sandbox: &Sandbox, running: &Running<'_>) {
    eventually("the guest at both ports", || {
        let shown = sandbox.bellows(&["show", "interfaces", &running.name, "--json"]).success().json();
        let ports = shown["interfaces"].as_array().unwrap();
        ports.len() == 2 && ports.iter().all(|port| port["state"] == "up" && port["kind"] == "unix-socket")
    });
}

/// Pings of all lengths, and a file of random bytes there and back.
fn talk(guest: &mut Guest) {
    guest.run("ping -c 5 -A -W 30 10.0.0.2");
    guest.run("ping -c 5 -A -W 30 -s 20000 10.0.0.2");
    guest.run("exchange 4");
}

#[test]
fn a_guest_talks_over_streams_and_datagrams() {
    let test = "a_guest_talks_over_streams_and_datagrams";
    if is_left_out(test) || is_skipped(test, guest::missing()) {
        return;
    }
    let sandbox = Sandbox::new();
    let served = network(&sandbox, "server.toml", "listens", "");
    let running = sandbox.start(&[&served]);
    let mut guest = Setup::new(&sandbox.path(""), backends(&sandbox), ["", ""]).boot();
    guest.run("cards");
    wait_for_guest(&sandbox, &running);
    talk(&mut guest);

    // It leaves its sockets behind. This QEMU's client does not connect again, but its server takes us back.
    running.signal(Signal::KILL);
    drop(running);
    let connecting = network(&sandbox, "client.toml", "connects", "mode = \"client\"");
    let running = sandbox.start(&[&connecting]);
    wait_for_guest(&sandbox, &running);
    guest.eventually("ping -c 1 -W 1 10.0.0.2");
    talk(&mut guest);
    running.signal(Signal::INT);
    running.wait().success();
    assert!(!socket(&sandbox, "bellows").exists(), "its own socket is removed");
    assert!(socket(&sandbox, "qemu").exists() && socket(&sandbox, "connects").exists(), "those of QEMU are not");
}

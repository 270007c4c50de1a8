//! A process that is killed leaves nothing behind, and its successor works at once. What belongs to other programs is
//! left alone.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bellows_testkit::programs::Background;

use crate::bridge::{Bridge, Layout, NETWORK, Offloads, Port, is_missing};
use crate::support::Signal;

/// The latest moment of a kill, after the start of the process or of the network.
const LATEST: Duration = Duration::from_millis(400);

const ROUNDS: usize = 8;

/// A random time up to the latest moment.
fn moment() -> Duration {
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
    // The clock's last digits, spread by a multiplication.
    LATEST.mul_f64(f64::from(nanoseconds.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX))
}

/// Starts the network and kills it while it starts, or while it runs.
fn kill_at(moment: Duration, bridge: &Bridge, while_it_starts: bool) {
    if while_it_starts {
        let mut network = Background::start(bridge.sandbox.command(&["run", NETWORK]).stderr(Stdio::null())).unwrap();
        thread::sleep(moment);
        assert_eq!(network.0.try_wait().unwrap(), None, "it runs until it is killed");
    } else {
        let running = bridge.start();
        thread::sleep(moment);
        running.signal(Signal::KILL);
        assert_eq!(running.wait().code, None);
    }
}

fn check(test: &str, port: Port) {
    if is_missing(test, &[]) {
        return;
    }
    let bridge = Bridge::new(Layout::of(port, Offloads::Nothing, 1_500));
    let _traffic = (!port.is_tap()).then(|| bridge.client().start("ping -n -q -i 0.002 192.0.2.2"));
    for round in 0..ROUNDS {
        let (moment, while_it_starts) = (moment(), round % 2 == 0);
        kill_at(moment, &bridge, while_it_starts);
        let during = if while_it_starts { "start" } else { "run" };
        bridge.assert_restored(&format!("after kill {round}, {moment:?} after the {during}"));
    }
    let running = bridge.start();
    bridge.wait_until_connected();
    running.signal(Signal::KILL);
    assert_eq!(running.wait().code, None);
    // A queue that has just been released may be busy for a while.
    let running = bridge.start();
    bridge.wait_until_connected();
    bridge.stop(running);
}

#[test]
fn af_xdp_leaves_nothing_behind() {
    check("af_xdp_leaves_nothing_behind", Port::new("af-xdp", ""));
}

#[test]
fn raw_sockets_leave_nothing_behind() {
    check("raw_sockets_leave_nothing_behind", Port::new("raw-socket", ""));
}

#[test]
fn taps_leave_nothing_behind() {
    check("taps_leave_nothing_behind", Port::new("tap", ""));
}

#[test]
fn a_program_of_others_is_named_and_left() {
    if is_missing("a_program_of_others_is_named_and_left", &[]) {
        return;
    }
    let bridge = Bridge::new(Layout::of(Port::new("af-xdp", ""), Offloads::Nothing, 1_500));
    let running = bridge.start();
    bridge.wait_until_connected();
    let programs = || bridge.ports().iter().map(|port| port.xdp_programs()).collect::<Vec<_>>();
    let attached = programs();
    assert!(attached.iter().all(|programs| programs.len() == 1), "one at each interface: {attached:?}");

    let network = std::fs::read_to_string(bridge.sandbox.path(NETWORK)).unwrap();
    bridge.sandbox.write("second.toml", &network);
    let said = bridge.sandbox.bellows(&["run", "second.toml"]);
    assert_eq!(said.code, Some(2), "{said:#?}");
    let [id] = attached[0][..] else { unreachable!() };
    for part in ["XDP program", "`left`", &id.to_string()] {
        assert!(said.stderr.contains(part), "{part} is not in {}", said.stderr);
    }
    assert_eq!(programs(), attached);
    bridge.wait_until_connected();
    bridge.stop(running);
}

//! Ports of the real kernel's interfaces, each test in a network namespace of its own thread.

use std::process::Command;
use std::sync::Arc;
use std::thread::spawn;
use std::time::Duration;

use bellows_netdev::packet_socket::FanoutMode;
use bellows_netif::interface::Interfaces;
use bellows_netif::raw::{RawConfig, RawQueue};
use bellows_netif::status::{PortStatus, State};
use bellows_netif::tap::{TapConfig, TapQueue};
use bellows_netif::{InterfaceName, Keeper, Queue, Queues, Start};
use bellows_packet::{Packet, Vector};
use bellows_sys::capability::{Set, missing};
use bellows_sys::namespace::enter_new_network;
use bellows_testkit::netns::wait_for_carriers;
use bellows_testkit::skips::is_skipped;
use bellows_testkit::wait::Deadline;
use bellows_testkit::{eventually, programs};

/// Runs a test in a new network namespace, whose interfaces have no IPv6, so that the kernel sends nothing by itself.
fn in_namespace(test: &str, work: impl FnOnce() + Send + 'static) {
    let lacks = missing(Set::SYS_ADMIN | Set::NET_ADMIN | Set::NET_RAW).map(|missing| missing.to_string());
    if is_skipped(test, lacks.or_else(|| programs::missing(&["ip"]))) {
        return;
    }
    let inside = move || {
        enter_new_network().unwrap();
        for scope in ["all", "default"] {
            // A kernel without IPv6 has no such file.
            let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
        }
        work();
    };
    spawn(inside).join().unwrap();
}

fn ip(arguments: &str) {
    assert!(Command::new("ip").args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
}

/// Makes the veth pair `one` and `two`, which are up.
fn add_pair() {
    ip("link add one up type veth peer two");
    ip("link set two up");
    wait_for_carriers(&["one", "two"]);
}

/// A port under test.
struct Port<Q: Queue> {
    keeper: Keeper<Q>,
    queues: Queues<Q>,
}

impl<Q: Queue> Port<Q> {
    /// Waits until the queues are open for the `times`th time.
    fn wait_until_open(&mut self, times: u64) {
        let deadline = Deadline::new("the queues");
        while self.keeper.status().snapshot().opened < times || self.queues.get().is_none() {
            deadline.check();
            self.queues.sync();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn queue(&mut self) -> &mut Q {
        &mut self.queues.get().unwrap()[0]
    }

    fn send(&mut self, bytes: &[u8]) {
        let packet = Packet::from_bytes(bytes).unwrap();
        let queue = self.queue();
        let deadline = Deadline::new("the kernel takes a frame");
        while queue.send(std::slice::from_ref(&packet)).unwrap().count == 0 {
            deadline.check();
        }
        queue.flush().unwrap();
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut packets = Vector::new();
        let deadline = Deadline::new("a frame");
        while packets.is_empty() {
            deadline.check();
            self.queue().receive(&mut packets, 1).unwrap();
        }
        packets.as_slice()[0].bytes().to_vec()
    }

    fn state(&self) -> State {
        self.keeper.status().snapshot().state
    }
}

fn raw(name: &str, offloads: bool) -> Port<RawQueue> {
    let config = RawConfig {
        interface: InterfaceName { name: name.to_owned(), namespace: None },
        queues: 1.into(),
        fanout: FanoutMode::Hash,
        offloads,
        promiscuous: true,
        qdisc: true,
        ring_size: 64,
        busy_poll: None,
    };
    let (keeper, queues) = config.start("raw", Start::default(), status(name)).unwrap();
    let mut port = Port { keeper, queues };
    port.wait_until_open(1);
    port
}

fn tap_config(name: &str) -> TapConfig {
    TapConfig {
        name: Some(name.to_owned()),
        namespace: None,
        queues: 1.into(),
        offloads: true,
        persistent: false,
        owner: None,
        group: None,
        addresses: vec![("192.0.2.1".parse().unwrap(), 24)],
        mtu: Some(1_400),
        mac: Some(bellows_wire::MacAddr([2, 0, 0, 0, 0, 9])),
        accept_ra: true,
        up: true,
    }
}

fn tap(name: &str) -> Port<TapQueue> {
    let (keeper, queues) = tap_config(name).start("tap", Start::default(), status(name)).unwrap();
    let mut port = Port { keeper, queues };
    port.wait_until_open(1);
    port
}

fn status(name: &str) -> Arc<PortStatus> {
    Arc::new(PortStatus::new(name.to_owned()))
}

/// A frame of a protocol that no stack answers.
fn frame(length: usize, seed: u8) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|index| (index as u8).wrapping_mul(seed)).collect();
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    bytes
}

#[test]
fn frames_pass_between_packet_sockets() {
    in_namespace("frames_pass_between_packet_sockets", || {
        add_pair();
        let (mut one, mut two) = (raw("one", true), raw("two", false));
        for (length, seed) in (14..1_514).step_by(50).zip(1..) {
            one.send(&frame(length, seed));
            assert_eq!(two.receive(), frame(length, seed));
            two.send(&frame(length, seed));
            assert_eq!(one.receive(), frame(length, seed));
        }
        // A tag stays where it was, however the kernel keeps it.
        let mut tagged = frame(100, 3);
        tagged[12..18].copy_from_slice(&[0x81, 0, 0x20, 7, 0x88, 0xb5]);
        one.send(&tagged);
        assert_eq!(two.receive(), tagged);
        assert_eq!(two.queue().counts().kernel_dropped, 0);
        assert_eq!(two.queue().counts().vlan_tags_restored, 1);
    });
}

#[test]
fn an_interface_that_returns_or_grows_is_opened_again() {
    in_namespace("an_interface_that_returns_or_grows_is_opened_again", || {
        add_pair();
        let mut port = raw("one", true);
        ip("link set one mtu 9000");
        ip("link set two mtu 9000");
        port.wait_until_open(2);
        let mut other = raw("two", true);
        other.send(&frame(9_000, 5));
        assert_eq!(port.receive(), frame(9_000, 5));
        drop(other);
        ip("link delete one");
        add_pair();
        port.wait_until_open(3);
        let mut other = raw("two", true);
        other.send(&frame(60, 6));
        assert_eq!(port.receive(), frame(60, 6));
    });
}

#[test]
fn a_tap_device_is_created_and_removed_with_its_settings() {
    in_namespace("a_tap_device_is_created_and_removed_with_its_settings", || {
        let mut interfaces = Interfaces::open().unwrap();
        let mut port = tap("t0");
        let there = interfaces.by_name("t0").unwrap().unwrap();
        assert_eq!((there.mtu, there.is_up, there.mac), (1_400, true, tap_config("t0").mac));
        let mut host = raw("t0", true);
        for length in [60, 1_414, 2_048, 2_049, 9_000, 60_000] {
            port.send(&frame(length, 7));
            assert_eq!(host.receive(), frame(length, 7));
        }
        host.send(&frame(1_414, 8));
        assert_eq!(port.receive(), frame(1_414, 8));
        drop(host);
        ip("link delete t0");
        port.wait_until_open(2);
        drop(port);
        // A child that another test starts has a copy of each descriptor for a moment.
        eventually("the end of the device", || interfaces.by_name("t0").unwrap().is_none());
    });
}

#[test]
fn a_tap_device_that_existed_gets_its_settings_back() {
    in_namespace("a_tap_device_that_existed_gets_its_settings_back", || {
        ip("tuntap add dev t0 mode tap");
        let mut interfaces = Interfaces::open().unwrap();
        let found = interfaces.by_name("t0").unwrap().unwrap();
        drop(tap("t0"));
        let left = interfaces.by_name("t0").unwrap().unwrap();
        assert_eq!((left.mtu, left.mac, left.is_up), (found.mtu, found.mac, found.is_up));
        let addresses = Command::new("ip").args(["-br", "address", "show", "t0"]).output().unwrap();
        assert!(!String::from_utf8_lossy(&addresses.stdout).contains("192.0.2.1"));
        ip("tuntap del dev t0 mode tap");
    });
}

#[test]
fn a_tap_device_that_moves_away_goes_on_working() {
    in_namespace("a_tap_device_that_moves_away_goes_on_working", || {
        let mut port = tap("t0");
        let other = spawn(|| {
            enter_new_network().unwrap();
            bellows_sys::namespace::current().unwrap()
        });
        let other = other.join().unwrap();
        let mut interfaces = Interfaces::open().unwrap();
        let index = interfaces.by_name("t0").unwrap().unwrap().index;
        interfaces.move_to_namespace(index, std::os::fd::AsFd::as_fd(&other)).unwrap();
        std::thread::sleep(Duration::from_millis(1_500));
        assert_eq!((port.state(), port.keeper.status().snapshot().opened), (State::Up, 1));
        let inside = move || {
            bellows_sys::namespace::enter(&other).unwrap();
            ip("link set t0 up");
            let mut host = raw("t0", true);
            port.send(&frame(60, 3));
            assert_eq!(host.receive(), frame(60, 3));
        };
        spawn(inside).join().unwrap();
    });
}

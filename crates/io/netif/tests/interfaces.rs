//! Interfaces of the real kernel, each test in a network namespace of its own thread.

use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread::spawn;
use std::time::Duration;

use bellows_netdev::ethtool::{Channels, channels, set_channels};
use bellows_netif::interface::{Event, Interface, Interfaces, Monitor, OperationalState, RequestError};
use bellows_netif::netdev::{QueueDirection, UsedQueue, queues, xdp_features};
use bellows_sys::capability::{Set, missing, retain};
use bellows_sys::namespace::{current, enter_new_network};
use bellows_sys::wake::sleep_until_readable;
use bellows_testkit::programs;
use bellows_testkit::skips::is_skipped;
use bellows_testkit::wait::{Deadline, eventually, meanwhile};
use bellows_wire::MacAddr;

/// `ip` lists no such interface, and netlink says so, with this number.
const NO_DEVICE: i32 = 19;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x77]);

/// Runs a test in a new network namespace with the veth pair `one` and `two`, which are down.
fn with_pair(test: &str, work: impl FnOnce(&mut Interfaces) + Send + 'static) {
    let lacks = missing(Set::SYS_ADMIN | Set::NET_ADMIN).map(|missing| missing.to_string());
    if is_skipped(test, lacks.or_else(|| programs::missing(&["ip"]))) {
        return;
    }
    let in_namespace = move || {
        enter_new_network().unwrap();
        ip("link add one address 02:00:00:00:00:01 numrxqueues 3 numtxqueues 2 type veth peer two mtu 1400");
        work(&mut Interfaces::open().unwrap());
    };
    spawn(in_namespace).join().unwrap();
}

/// Runs `ip` once for several commands, separated by semicolons.
fn ip(commands: &str) {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    let commands = commands.replace("; ", "\n");
    child.stdin.take().unwrap().write_all(format!("{commands}\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "ip: {commands}");
}

fn named(interfaces: &mut Interfaces, name: &str) -> Interface {
    interfaces.by_name(name).unwrap().unwrap_or_else(|| panic!("there is no {name}"))
}

/// Waits for an event that the function accepts, and returns its result. Others are ignored.
fn wait_for<T>(monitor: &mut Monitor, what: &'static str, accept: impl Fn(&Event) -> Option<T>) -> T {
    let deadline = Deadline::new(what);
    loop {
        deadline.check();
        match monitor.next_event().unwrap() {
            Some(event) => {
                if let Some(found) = accept(&event) {
                    return found;
                }
            }
            None => drop(sleep_until_readable(&[monitor.as_fd()], Some(Duration::from_millis(100))).unwrap()),
        }
    }
}

/// The interface of an event, if it has this number.
fn changed(event: &Event, index: u32) -> Option<Interface> {
    match event {
        Event::Changed(interface) if interface.index == index => Some((**interface).clone()),
        _ => None,
    }
}

#[test]
fn interfaces_are_found_by_name_and_number() {
    with_pair("interfaces_are_found_by_name_and_number", |interfaces| {
        let one = named(interfaces, "one");
        assert_eq!(one.mac, Some(MacAddr([2, 0, 0, 0, 0, 1])));
        assert_eq!((one.mtu, one.rx_queues, one.tx_queues), (1500, 3, 2));
        assert!(one.min_mtu <= 1500 && one.max_mtu >= 9000, "{one:?}");
        assert_eq!((one.kind.as_deref(), one.alias.as_deref(), one.master), (Some("veth"), None, None));
        assert!(!one.is_up && !one.has_link && !one.is_loopback && !one.is_promiscuous);
        assert_eq!((one.state, &one.xdp[..]), (OperationalState::Down, &[][..]));
        assert_eq!(interfaces.by_index(one.index).unwrap(), Some(one.clone()));
        let list = interfaces.list().unwrap();
        assert!(list.contains(&one) && list.iter().any(|each| each.name == "two" && each.mtu == 1400));
        assert!(list.is_sorted_by_key(|each| each.index));
        let lo = named(interfaces, "lo");
        assert!(lo.is_loopback && lo.kind.is_none() && lo.mac == Some(MacAddr([0; 6])), "{lo:?}");

        ip("link set one alias uplink; link property add dev one altname the-name-of-an-uplink; \
            link set one promisc on; link add bridge0 type bridge; link set one master bridge0");
        let one = named(interfaces, "the-name-of-an-uplink");
        assert_eq!((&*one.name, one.alias.as_deref(), one.is_promiscuous), ("one", Some("uplink"), true));
        assert_eq!(one.master, Some(named(interfaces, "bridge0").index));
        for absent in ["three", "", "one\0", "a name longer than fifteen bytes", &"x".repeat(200)] {
            assert_eq!(interfaces.by_name(absent).unwrap(), None, "{absent:?}");
        }
        for absent in [0, 9999, u32::MAX] {
            assert_eq!(interfaces.by_index(absent).unwrap(), None, "{absent}");
        }
    });
}

#[test]
fn interfaces_change() {
    with_pair("interfaces_change", |interfaces| {
        let (one, two) = (named(interfaces, "one").index, named(interfaces, "two").index);
        interfaces.set_mtu(one, 9000).unwrap();
        interfaces.set_mac(one, MAC).unwrap();
        interfaces.add_address(one, Ipv4Addr::new(192, 0, 2, 1).into(), 24).unwrap();
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        interfaces.add_address(one, address, 64).unwrap();
        let error = interfaces.add_address(one, address, 64).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("2001:db8::1/64"), "{error}");
        for index in [one, two] {
            interfaces.set_up(index, true).unwrap();
        }
        let state = interfaces.by_index(one).unwrap().unwrap();
        assert_eq!((state.mtu, state.mac, state.is_up, state.has_link), (9000, Some(MAC), true, true));
        eventually("the state is up", || named(interfaces, "one").state == OperationalState::Up);

        // The route to the network exists; the frames go nowhere but are counted.
        let socket = UdpSocket::bind("192.0.2.1:0").unwrap();
        socket.send_to(b"hello", "192.0.2.2:9").unwrap();
        eventually("a request for an address is sent", || {
            let (one, two) = (named(interfaces, "one").statistics, named(interfaces, "two").statistics);
            one.tx_packets > 0 && one.tx_bytes >= 42 && two.rx_packets > 0
        });

        interfaces.set_up(two, false).unwrap();
        let state = named(interfaces, "one");
        assert!(state.is_up && !state.has_link && state.state != OperationalState::Up, "{state:?}");
        interfaces.delete(two).unwrap();
        assert_eq!(interfaces.by_index(one).unwrap(), None, "the peer goes, too");
    });
}

#[test]
fn an_interface_moves_to_another_namespace() {
    with_pair("an_interface_moves_to_another_namespace", |interfaces| {
        let two = named(interfaces, "two").index;
        let mut monitor = Monitor::open().unwrap();
        let other = spawn(|| {
            enter_new_network().unwrap();
            (Interfaces::open().unwrap(), current().unwrap())
        });
        // The connection still belongs to the namespace in which it was opened.
        let (mut there, namespace) = other.join().unwrap();
        assert_eq!(there.by_name("two").unwrap(), None);
        interfaces.move_to_namespace(two, namespace.as_fd()).unwrap();
        assert_eq!(interfaces.by_name("two").unwrap(), None);
        assert_eq!(named(&mut there, "two").kind.as_deref(), Some("veth"));
        wait_for(&mut monitor, "the interface leaves", |event| {
            (*event == Event::Removed { index: two, name: "two".into() }).then_some(())
        });
        let error = interfaces.move_to_namespace(two, namespace.as_fd()).unwrap_err();
        assert_eq!(RequestError::of(&error).unwrap().errno(), NO_DEVICE);
    });
}

#[test]
fn errors_have_the_kernels_words() {
    with_pair("errors_have_the_kernels_words", |interfaces| {
        let one = named(interfaces, "one").index;
        let error = interfaces.set_mtu(one, 1_000_000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let cause = RequestError::of(&error).unwrap();
        assert_eq!(cause.text(), Some("mtu greater than device maximum"));
        assert!(error.to_string().contains(&format!("MTU of interface {one} to 1000000")), "{error}");
        assert!(error.to_string().contains("(mtu greater than device maximum)"), "{error}");
        let error = interfaces.set_up(9999, true).unwrap_err();
        assert_eq!(RequestError::of(&error).unwrap().errno(), NO_DEVICE);
        let lo = named(interfaces, "lo").index;
        assert_eq!(interfaces.delete(lo).unwrap_err().kind(), ErrorKind::Unsupported);
        for index in [0, u32::MAX] {
            assert_eq!(interfaces.set_up(index, true).unwrap_err().kind(), ErrorKind::InvalidInput);
            assert_eq!(interfaces.delete(index).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        retain(Set::EMPTY).unwrap();
        let mut interfaces = Interfaces::open().unwrap();
        let error = interfaces.set_up(one, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("CAP_NET_ADMIN is missing"), "{error}");
        assert!(interfaces.by_index(one).unwrap().is_some(), "reading takes no privilege");
    });
}

#[test]
fn a_monitor_reports_each_change() {
    with_pair("a_monitor_reports_each_change", |interfaces| {
        let (one, two) = (named(interfaces, "one").index, named(interfaces, "two").index);
        let mut monitor = Monitor::open().unwrap();
        assert_eq!(monitor.next_event().unwrap(), None);
        assert!(!sleep_until_readable(&[monitor.as_fd()], Some(Duration::ZERO)).unwrap()[0]);
        ip("link set one name first");
        let renamed = wait_for(&mut monitor, "a rename", |event| changed(event, one));
        assert_eq!(renamed.name, "first");
        interfaces.set_mtu(one, 2000).unwrap();
        wait_for(&mut monitor, "an MTU", |event| changed(event, one).filter(|one| one.mtu == 2000));
        interfaces.set_up(one, true).unwrap();
        interfaces.set_up(two, true).unwrap();
        wait_for(&mut monitor, "a link", |event| changed(event, one).filter(|one| one.is_up && one.has_link));
        interfaces.set_up(two, false).unwrap();
        wait_for(&mut monitor, "no link", |event| changed(event, one).filter(|one| one.is_up && !one.has_link));

        // The port of a bridge that leaves it is reported as deleted from the bridge, and still exists.
        ip(
            "link add bridge0 type bridge; link set first master bridge0; link set first nomaster; link set first alias left",
        );
        wait_for(&mut monitor, "an alias", |event| {
            assert!(!matches!(event, Event::Removed { .. }), "{event:?}");
            changed(event, one).filter(|one| one.alias.as_deref() == Some("left") && one.master.is_none())
        });
        interfaces.delete(two).unwrap();
        // In either order.
        let mut removed = [(one, "first"), (two, "two")].map(|(index, name)| (index, name.to_owned())).to_vec();
        while !removed.is_empty() {
            let gone = wait_for(&mut monitor, "both are removed", |event| match event {
                Event::Removed { index, name } => Some((*index, name.clone())),
                _ => None,
            });
            let count = removed.len();
            removed.retain(|each| *each != gone);
            assert_eq!(removed.len(), count - 1, "{gone:?}");
        }
    });
}

#[test]
fn a_slow_reader_is_told_of_lost_changes() {
    with_pair("a_slow_reader_is_told_of_lost_changes", |interfaces| {
        let one = named(interfaces, "one").index;
        let mut monitor = Monitor::open().unwrap();
        for number in 0..2000 {
            interfaces.set_mtu(one, 1000 + number % 2).unwrap();
        }
        wait_for(&mut monitor, "an overrun", |event| (*event == Event::Overrun).then_some(()));
        // What was not lost is still there, and later changes arrive again.
        while monitor.next_event().unwrap().is_some() {}
        interfaces.set_mtu(one, 1400).unwrap();
        wait_for(&mut monitor, "a change", |event| changed(event, one).filter(|one| one.mtu == 1400));
    });
}

#[test]
fn a_list_that_takes_several_messages_is_consistent() {
    with_pair("a_list_that_takes_several_messages_is_consistent", |interfaces| {
        let pairs = 40;
        let commands: Vec<_> = (0..pairs).map(|pair| format!("link add a{pair} type veth peer b{pair}")).collect();
        ip(&commands.join("; "));
        let one = named(interfaces, "one").index;
        let mut others = Interfaces::open().unwrap();
        let mut mtu = 1000;
        let change = || {
            mtu = 1000 + (mtu + 1) % 100;
            others.set_mtu(one, mtu).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        };
        meanwhile(change, || {
            for _ in 0..50 {
                match interfaces.list() {
                    // lo, one, two, and the pairs.
                    Ok(list) => assert!(list.len() >= 3 + 2 * pairs, "{}", list.len()),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted, "{error}"),
                }
            }
        });
        assert!(interfaces.list().unwrap().iter().any(|each| each.name == "b39"));
    });
}

#[test]
fn the_features_of_drivers_are_known() {
    with_pair("the_features_of_drivers_are_known", |interfaces| {
        assert_eq!(xdp_features(9999).unwrap(), None);
        let one = named(interfaces, "one").index;
        let Some(features) = xdp_features(one).unwrap() else {
            return bellows_testkit::skips::skip_here("the_features_of_drivers_are_known", "a kernel before Linux 6.3");
        };
        assert!(features.basic && features.redirect && !features.zero_copy, "{features:?}");
        assert_eq!(features.zc_max_segs, None);
        let lo = named(interfaces, "lo").index;
        assert!(!xdp_features(lo).unwrap().unwrap().basic);
    });
}

#[test]
fn queues_are_listed_while_the_interface_is_up() {
    with_pair("queues_are_listed_while_the_interface_is_up", |interfaces| {
        let (one, two) = (named(interfaces, "one").index, named(interfaces, "two").index);
        let Some(none) = queues(one).unwrap() else {
            let reason = "a kernel before Linux 6.8";
            return bellows_testkit::skips::skip_here("queues_are_listed_while_the_interface_is_up", reason);
        };
        assert_eq!((none, queues(9999).unwrap()), (Vec::new(), Some(Vec::new())), "it is down");
        set_channels("one", &Channels { rx: 3, tx: 2, ..channels("one").unwrap().unwrap() }).unwrap();
        interfaces.set_up(one, true).unwrap();
        interfaces.set_up(two, true).unwrap();
        let queue = |number, direction| UsedQueue { number, direction, has_xsk: false };
        let expected = [queue(0, QueueDirection::Rx), queue(1, QueueDirection::Rx), queue(2, QueueDirection::Rx)]
            .into_iter()
            .chain([queue(0, QueueDirection::Tx), queue(1, QueueDirection::Tx)]);
        assert_eq!(queues(one).unwrap(), Some(expected.collect()));
        // A driver that reports nothing to `ethtool`.
        let lo = named(interfaces, "lo").index;
        interfaces.set_up(lo, true).unwrap();
        assert_eq!(channels("lo").unwrap(), None);
        assert_eq!(queues(lo).unwrap(), Some(vec![queue(0, QueueDirection::Rx), queue(0, QueueDirection::Tx)]));
        // A TAP that no program has opened uses at most one of those that it could have.
        ip("tuntap add mode tap name tap0 multi_queue; link set tap0 up");
        let tap = named(interfaces, "tap0");
        let count = |direction| queues(tap.index).unwrap().unwrap().iter().filter(|q| q.direction == direction).count();
        assert!(tap.rx_queues > 1 && count(QueueDirection::Rx) <= 1, "{tap:?}");
        assert_eq!(channels("tap0").unwrap().unwrap().receiving(), 0);
    });
}

//! Queues of interfaces through AF_XDP, over veth pairs, each test in a network namespace of its own thread.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::spawn;

use bellows_netif::status::{PortDetails, PortStatus, State};
use bellows_netif::xdp::{CAPABILITIES, CopyMode, Filter, TransmitChecksums, XdpConfig, XdpMode, XdpQueue, XdpSource};
use bellows_netif::{InterfaceName, OpenError, PortSource, Queue, QueueCounts};
use bellows_packet::{Offload, Packet, Vector, pool};
use bellows_ports::{Rejection, SendQueue};
use bellows_sys::capability::{Set, missing};
use bellows_sys::namespace::enter_new_network;
use bellows_testkit::netns::wait_for_carriers;
use bellows_testkit::programs;
use bellows_testkit::skips::is_skipped;
use bellows_testkit::wait::Deadline;
use bellows_wire::offload::Transport;
use bellows_wire::{IpPair, IpProtocol, MacAddr, UdpFrame, verify_checksums};

/// Runs a test in a new network namespace with the veth pair `one` and `two`, of one queue each, which are up.
fn with_pair(test: &str, mtu: u32, work: impl FnOnce() + Send + 'static) {
    let lacks = missing(Set::SYS_ADMIN | CAPABILITIES).map(|missing| missing.to_string());
    if is_skipped(test, lacks.or_else(|| programs::missing(&["ip"]))) {
        return;
    }
    // All tests share the packet pool, and some look at its use.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let in_namespace = move || {
        pool::ensure().unwrap();
        enter_new_network().unwrap();
        ip(&format!("link add one mtu {mtu} type veth peer name two mtu {mtu}"));
        for name in ["one", "two"] {
            // Without addresses of its own, an interface sends no packets that no test has sent.
            ip(&format!("link set {name} addrgenmode none"));
            ip(&format!("link set {name} up"));
        }
        wait_for_carriers(&["one", "two"]);
        work();
    };
    spawn(in_namespace).join().unwrap();
}

fn ip(words: &str) {
    let output = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {words}: {}", String::from_utf8_lossy(&output.stderr));
}

fn config(name: &str) -> XdpConfig {
    XdpConfig {
        interface: InterfaceName { name: name.into(), namespace: None },
        queues: Some(vec![0]),
        mode: XdpMode::Auto,
        copy: CopyMode::Auto,
        busy_poll: None,
        filter: Filter::all(),
        finish_checksums: false,
        transmit_checksums: TransmitChecksums::Off,
        ring_size: 256,
        promiscuous: false,
        set_queues: None,
    }
}

/// A port whose queue a test uses, in place of an engine.
struct Port {
    source: XdpSource,
    status: Arc<PortStatus>,
    queue: XdpQueue,
}

/// Opens a port; a queue that was bound a moment ago is busy.
fn open(config: XdpConfig) -> Result<Port, OpenError> {
    let mut source = XdpSource::new(config.clone());
    let status = Arc::new(PortStatus::new(config.interface.name));
    source.prepare()?;
    let deadline = Deadline::new("a queue that is free");
    loop {
        deadline.check();
        match source.open(&status) {
            Ok(mut queues) => return Ok(Port { source, status, queue: queues.remove(0) }),
            Err(OpenError::Busy(_)) => std::thread::sleep(std::time::Duration::from_millis(10)),
            Err(error) => return Err(error),
        }
    }
}

impl Port {
    /// Sends packets, which the queue must take.
    fn send(&mut self, packets: Vec<Packet>) {
        let mut left = packets;
        let deadline = Deadline::new("room to send");
        while !left.is_empty() {
            deadline.check();
            let taken = self.queue.send(&left).unwrap();
            assert!(matches!(taken.stop, None | Some(Rejection::Full)), "{:?}", taken.stop);
            left.drain(..taken.count).for_each(|packet| self.queue.keep(packet));
            self.queue.flush().unwrap();
        }
        while self.queue.has_unsent() {
            deadline.check();
            self.queue.flush().unwrap();
        }
    }

    /// Receives this many packets.
    fn receive(&mut self, count: usize) -> Vec<Packet> {
        let mut received = Vec::new();
        let deadline = Deadline::new("packets that were sent");
        while received.len() < count {
            deadline.check();
            let mut packets = Vector::new();
            self.queue.receive(&mut packets, 64).unwrap();
            received.extend(packets.drain(usize::MAX));
        }
        received
    }

    fn counts(&mut self) -> QueueCounts {
        self.queue.counts()
    }

    fn details(&self) -> PortDetails {
        self.status.snapshot().details
    }
}

/// A frame of a length with contents that depend on it and on a number.
fn frame(length: usize, number: u8) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..length).map(|at| (at * 7) as u8 ^ number).collect();
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    bytes
}

fn packets(frames: &[Vec<u8>]) -> Vec<Packet> {
    frames.iter().map(|frame| Packet::from_bytes(frame).unwrap()).collect()
}

fn lengths() -> Vec<usize> {
    (14..=1_514).step_by(13).chain([1_514]).collect()
}

#[test]
fn frames_pass_both_ways_and_all_buffers_come_back() {
    with_pair("frames_pass_both_ways_and_all_buffers_come_back", 1_500, || {
        for mode in [XdpMode::Native, XdpMode::Generic] {
            let before = pool::usage();
            let mut one = open(XdpConfig { mode, ..config("one") }).unwrap();
            let mut two = open(XdpConfig { mode, ..config("two") }).unwrap();
            let PortDetails { memory, mode: found, .. } = one.details();
            assert!(memory.as_ref().is_some_and(|memory| memory.contains("the packet pool")), "{memory:?}");
            assert_eq!(found.as_deref(), Some(if mode == XdpMode::Native { "native" } else { "generic" }));
            let frames: Vec<Vec<u8>> = lengths().into_iter().map(|length| frame(length, 3)).collect();
            for round in 0..20 {
                let (from, to) = if round % 2 == 0 { (&mut one, &mut two) } else { (&mut two, &mut one) };
                let mut sent = packets(&frames);
                // Data may begin anywhere in a buffer.
                sent.iter_mut().step_by(2).for_each(|packet| {
                    packet.prepend(3);
                    packet.trim_front(3);
                });
                from.send(sent);
                let received = to.receive(frames.len());
                assert!(received.iter().zip(&frames).all(|(packet, frame)| packet.bytes() == frame), "{mode:?}");
            }
            let (counts, other) = (one.counts(), two.counts());
            assert_eq!((counts, other), (QueueCounts::default(), QueueCounts::default()), "nothing was copied or lost");
            drop((one, two));
            assert_eq!(pool::usage(), before, "{mode:?}");
        }
    });
}

#[test]
fn jumbo_frames_arrive_whole() {
    with_pair("jumbo_frames_arrive_whole", 9_000, || {
        let mut one = open(config("one")).unwrap();
        let mut two = open(config("two")).unwrap();
        if one.details().frames.as_deref() == Some("of one buffer") {
            return;
        }
        let frames: Vec<Vec<u8>> = [9_014, 60, 2_048, 2_049, 4_097, 8_192].map(|length| frame(length, 9)).into();
        for _ in 0..20 {
            one.send(packets(&frames));
            let received = two.receive(frames.len());
            assert!(received.iter().zip(&frames).all(|(packet, frame)| packet.bytes() == frame));
        }
        let counts = two.counts();
        assert_eq!(counts, QueueCounts { copied: 4 * 20, ..QueueCounts::default() });
        let long = Packet::with_room(70_000).map(|mut packet| {
            packet.extend(70_000);
            packet
        });
        let taken = one.queue.send(&[long.unwrap()]).unwrap();
        assert_eq!((taken.count, taken.stop), (0, Some(Rejection::TooLong)));
    });
}

/// A UDP frame whose checksum is partial, and its header.
fn partial() -> (Vec<u8>, Transport) {
    let address = |last: u8| std::net::IpAddr::from([192, 0, 2, last]);
    let (src_mac, dst_mac) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let (src, dst) = (address(1), address(2));
    let headers = UdpFrame { src_mac, dst_mac, vlan: None, src, dst, src_port: 1, dst_port: 2, ttl: 9 };
    let whole = headers.build(200, |payload| payload.fill(0x5a)).unwrap();
    let found = Transport::find(&whole).unwrap();
    let mut frame = whole.clone();
    let addresses = IpPair::V4 { src: [192, 0, 2, 1].into(), dst: [192, 0, 2, 2].into() };
    let sum = !addresses.pseudo_header(IpProtocol::UDP, found.end() - found.start()).finish();
    let field = found.start() + found.checksum_offset();
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    assert!(verify_checksums(&frame).is_err());
    (frame, found)
}

#[test]
fn partial_checksums_are_finished_on_either_side() {
    with_pair("partial_checksums_are_finished_on_either_side", 1_500, || {
        let (frame, found) = partial();
        let offload = Offload {
            flags: Offload::NEEDS_CHECKSUM,
            checksum_start: found.start() as u16,
            checksum_offset: found.checksum_offset() as u16,
            ..Offload::default()
        };
        let mut two = open(XdpConfig { finish_checksums: true, ..config("two") }).unwrap();
        let mut one = open(XdpConfig { transmit_checksums: TransmitChecksums::Software, ..config("one") }).unwrap();
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_offload(offload);
        if one.queue.accepted().checksums {
            one.send(vec![packet]);
            let received = two.receive(1);
            assert!(verify_checksums(received[0].bytes()).is_ok(), "finished by the kernel");
            assert_eq!(two.counts().checksums_finished, 0);
        } else {
            assert_eq!(one.queue.send(&[packet]).unwrap().stop, Some(Rejection::Offload), "before Linux 6.8");
        }
        one.send(packets(&[frame]));
        let received = two.receive(1);
        assert!(verify_checksums(received[0].bytes()).is_ok(), "recognized by its value");
        assert_eq!(two.counts().checksums_finished, 1);
    });
}

#[test]
fn sockets_share_the_pool_also_when_the_first_interface_is_gone() {
    with_pair("sockets_share_the_pool_also_when_the_first_interface_is_gone", 1_500, || {
        ip("link add three type veth peer name four");
        for name in ["three", "four"] {
            ip(&format!("link set {name} addrgenmode none"));
            ip(&format!("link set {name} up"));
        }
        let first = open(config("one")).unwrap();
        let mut three = open(config("three")).unwrap();
        ip("link del one");
        let mut four = open(config("four")).unwrap();
        let frames = [frame(60, 1), frame(1_000, 2)];
        three.send(packets(&frames));
        assert!(four.receive(2).iter().zip(&frames).all(|(packet, frame)| packet.bytes() == frame));
        drop(first);
        four.send(packets(&frames));
        assert!(three.receive(2).iter().zip(&frames).all(|(packet, frame)| packet.bytes() == frame));
    });
}

#[test]
fn what_cannot_be_had_is_refused_with_a_reason() {
    with_pair("what_cannot_be_had_is_refused_with_a_reason", 1_500, || {
        let refused = |config: XdpConfig| open(config).err().map(|error| error.to_string()).unwrap_or_default();
        let said = refused(config("tow"));
        assert!(said.contains("no interface `tow`") && said.contains("two"), "{said}");
        let said = refused(XdpConfig { copy: CopyMode::ZeroCopy, ..config("one") });
        assert!(said.contains("without a copy") && said.contains("zero_copy"), "{said}");
        let said = refused(XdpConfig { queues: Some(vec![7]), ..config("one") });
        assert!(said.contains("no queue 7") && said.contains("ethtool -l one"), "{said}");
        let one = open(config("one")).unwrap();
        let other = Filter { redirect: vec!["arp".parse().unwrap()], pass: Vec::new() };
        let mut source = XdpSource::new(XdpConfig { filter: other, ..config("one") });
        source.prepare().unwrap();
        let Err(OpenError::Busy(said)) = source.open(&one.status) else { panic!("the program is another one") };
        assert!(said.contains("redirects other frames"), "{said}");
    });
}

#[test]
fn the_state_of_the_interface_is_followed() {
    with_pair("the_state_of_the_interface_is_followed", 1_500, || {
        let mut one = open(config("one")).unwrap();
        let state = |one: &mut Port| {
            let gone = one.source.check(&one.status);
            (gone.is_some(), one.status.snapshot().state)
        };
        assert_eq!(state(&mut one), (false, State::Up));
        ip("link set two down");
        assert_eq!(state(&mut one), (false, State::Down));
        ip("link set two up");
        ip("link set one down");
        ip("link set one name uno");
        assert_eq!(state(&mut one), (false, State::Down));
        assert_eq!(one.status.snapshot().link.map(|link| link.name), Some("uno".to_owned()));
        ip("link set uno up");
        assert_eq!(state(&mut one), (false, State::Up));
        ip("link del uno");
        assert!(state(&mut one).0);
        assert!(matches!(one.queue.flush(), Ok(())), "there is nothing to send");
    });
}

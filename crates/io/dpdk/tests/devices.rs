//! Queues at virtual devices of the DPDK that is installed.

use std::env;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bellows_dpdk::{DpdkConfig, DpdkQueue, DpdkSource};
use bellows_netif::status::{PortStatus, State};
use bellows_netif::{OpenError, PortSource, Queue};
use bellows_packet::{Packet, Vector, pool};
use bellows_ports::{QueueSet, Rejection, SendQueue};
use bellows_testkit::skips::is_skipped;
use bellows_testkit::{dpdk, frames, scratch};

/// Tests here compare the use of the whole pool.
static ALONE: Mutex<()> = Mutex::new(());

/// Builds the object where this program finds it. `None`, and the test is skipped, without DPDK.
fn prepare(test: &str) -> Option<MutexGuard<'static, ()>> {
    if is_skipped(test, dpdk::missing_for_build()) {
        return None;
    }
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    if env::var_os("BELLOWS_DPDK").is_none() {
        let program = env::current_exe().unwrap();
        let object = program.ancestors().nth(2).unwrap().join("lib/bellows/libbellows-dpdk.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/dpdk/shim.c");
        dpdk::build(&source, &object).unwrap();
    }
    pool::ensure().unwrap();
    Some(alone)
}

fn config(device: &str) -> DpdkConfig {
    DpdkConfig {
        device: device.to_owned(),
        queues: QueueSet::Whole(1),
        device_queues: None,
        descriptors: 256,
        mtu: None,
        promiscuous: true,
    }
}

struct Port {
    queues: Vec<DpdkQueue>,
    source: DpdkSource,
    status: PortStatus,
}

impl Port {
    fn new(config: DpdkConfig) -> Port {
        let status = PortStatus::new("test".to_owned());
        let mut source = DpdkSource::new(config);
        let queues = source.open(&status).unwrap();
        Port { queues, source, status }
    }

    fn send(&mut self, queue: usize, frames: &[Vec<u8>]) {
        let mut packets = Vector::new();
        for frame in frames {
            packets.push(Packet::from_bytes(frame).unwrap()).unwrap();
        }
        let queue = &mut self.queues[queue];
        let taken = queue.send(packets.as_slice()).unwrap();
        assert_eq!((taken.count, taken.stop), (frames.len(), None));
        queue.keep_first(&mut packets, taken.count);
        queue.flush().unwrap();
        assert!(!queue.has_unsent());
    }

    fn receive(&mut self, queue: usize, most: usize) -> Vec<Vec<u8>> {
        let mut packets = Vector::new();
        self.queues[queue].receive(&mut packets, most).unwrap();
        packets.as_slice().iter().map(|packet| packet.bytes().to_vec()).collect()
    }

    fn end(mut self) {
        drop(self.queues);
        self.source.close();
    }
}

#[test]
fn a_ring_gives_frames_back() {
    let Some(_alone) = prepare("a_ring_gives_frames_back") else { return };
    let before = pool::usage();
    for _ in 0..2 {
        let mut port = Port::new(DpdkConfig { queues: QueueSet::Whole(2), mtu: Some(9_000), ..config("net_ring0") });
        assert_eq!(port.source.check(&port.status), None);
        let snapshot = port.status.snapshot();
        assert_eq!((snapshot.state, snapshot.link.unwrap().driver), (State::Up, Some("net_ring".to_owned())));
        let sent = frames::random(100, |number| 60 + number * 90, 1);
        for queue in [0, 1] {
            port.send(queue, &sent);
            assert_eq!(port.receive(queue, 60), sent[..60], "queue {queue}");
            assert_eq!(port.receive(queue, 60), sent[60..], "queue {queue}");
            assert!(port.receive(queue, 60).is_empty());
        }
        // These stay in the ring, which is removed.
        port.send(0, &sent);
        port.end();
        assert_eq!(pool::usage(), before);
    }
}

#[test]
fn the_null_device_makes_frames_in_buffers_of_the_pool() {
    let Some(_alone) = prepare("the_null_device_makes_frames_in_buffers_of_the_pool") else { return };
    let before = pool::usage();
    let mut port = Port::new(config("net_null0,size=77"));
    for _ in 0..1_000 {
        let received = port.receive(0, 128);
        assert!(received.len() == 128 && received.iter().all(|frame| frame.len() == 77));
        port.send(0, &received);
    }
    assert_eq!(port.source.check(&port.status), None);
    port.end();
    assert_eq!(pool::usage(), before);
}

#[test]
fn files_are_replayed_and_written() {
    let Some(_alone) = prepare("files_are_replayed_and_written") else { return };
    let before = pool::usage();
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    let sent = frames::random(100, |number| 60 + number * 80, 2);
    frames::write(&path("in.pcap"), &sent);
    let files = format!("rx_pcap={},tx_pcap={}", path("in.pcap").display(), path("out.pcap").display());
    let mut port = Port::new(DpdkConfig { mtu: Some(9_000), ..config(&format!("net_pcap0,{files}")) });
    let received = port.receive(0, 1_000);
    frames::assert_same("the frames received", &received, &sent);
    // This driver says that it does not send packets of several buffers.
    let short = &sent[..24];
    port.send(0, short);
    let long = [Packet::from_bytes(&sent[50]).unwrap()];
    assert_eq!(port.queues[0].send(&long).unwrap().stop, Some(Rejection::TooLong));
    drop(long);
    port.end();
    frames::assert_same("the frames written", &frames::read(&path("out.pcap")), short);
    assert_eq!(pool::usage(), before);
}

#[test]
fn errors_of_dpdk_are_passed_on() {
    let Some(_alone) = prepare("errors_of_dpdk_are_passed_on") else { return };
    let before = pool::usage();
    let status = PortStatus::new("test".to_owned());
    for (device, said) in [("net_nothing0", "net_nothing0"), ("net_pcap0,rx_pcap=/nowhere/in.pcap", "net_pcap0")] {
        match DpdkSource::new(config(device)).open(&status) {
            Err(OpenError::Failed(why)) => assert!(why.contains(said), "{why}"),
            _ => panic!("{device} is opened"),
        }
    }
    let too_many = DpdkConfig { queues: QueueSet::Whole(32), ..config("net_ring1") };
    match DpdkSource::new(too_many).open(&status) {
        Err(OpenError::Failed(why)) => assert!(why.contains("at most"), "{why}"),
        _ => panic!("32 queues of a ring"),
    }
    assert_eq!(pool::usage(), before);
}

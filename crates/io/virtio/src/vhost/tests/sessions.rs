//! Well-behaved driver's processes.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use bellows_ipc::memfd;

use super::peer::{Engine, Folder, GUEST, Host, LENGTH, Peer, SIZE, USER, config, event, until};
use crate::Features;
use crate::vhost::message::{
    InflightMessage, ProtocolFeatures, RegionMessage, VhostMessage, VringAddresses, VringState,
};
use crate::vhost::request::VhostRequest;
use crate::vhost::{Backend, Mode, QueueState};

const FEATURES: Features =
    Features(Features::VERSION_1.0 | Features::PROTOCOL_FEATURES.0 | Features::MRG_RXBUF.0 | Features::MQ.0);

fn running(host: &Host) -> Vec<bool> {
    let queues = host.status.snapshot().side.queues;
    queues.iter().map(|queue| queue.state == QueueState::Running).collect()
}

#[test]
fn packets_flow_from_the_first_kick_to_the_base() {
    let host = Host::start();
    let mut peer = host.peer();
    peer.negotiate(FEATURES);
    peer.share_memory();
    peer.start_ring(0, 0);
    peer.start_ring(1, 0);
    assert_eq!(peer.number(VhostRequest::GET_QUEUE_NUM), 2);
    assert_eq!(host.status.snapshot().side.queues[1].state, QueueState::Disabled);
    peer.vring(VhostRequest::SET_VRING_ENABLE, 0, 1);
    peer.vring(VhostRequest::SET_VRING_ENABLE, 1, 1);
    until("rings run", || running(&host) == [true, true, false, false]);
    peer.transmit(1, 0, 200);
    until("packets", || peer.used(1) == 200);
    until("packets are counted", || host.status.snapshot().side.queues[1].counters.packets == 200);
    let snapshot = host.status.snapshot();
    assert!(snapshot.side.queues[1].instance.starts_with("transmit split"), "{}", snapshot.side.queues[1].instance);
    assert_eq!(peer.base(1), 200);
    assert_eq!(running(&host), [true, false, false, false]);
    peer.transmit(1, 200, 50);
    assert_eq!(peer.base(0), 0);
    // It continues at its position.
    peer.event(VhostRequest::SET_VRING_KICK, 1, Some(&event()));
    until("packets after the second kick", || peer.used(1) == 250);
    assert_eq!(host.status.snapshot().side.queues[1].size, SIZE);
    drop(peer);
    until("the end of the connection", || !host.status.snapshot().side.connected);
    let snapshot = host.status.snapshot();
    assert_eq!((snapshot.errors.len(), snapshot.connections, snapshot.side.features), (0, 1, None));
    assert_eq!(snapshot.side.queues[1].counters.packets, 250);
}

#[test]
fn a_driver_without_protocol_features_has_enabled_queues_and_may_skip_set_features() {
    let host = Host::start();
    let mut peer = host.peer();
    assert!(peer.number(VhostRequest::GET_FEATURES) & Features::VERSION_1.0 != 0);
    peer.share_memory();
    peer.start_ring(1, 0);
    until("the ring runs", || running(&host)[1]);
    peer.transmit(1, 0, 10);
    until("packets", || peer.used(1) == 10);
    assert_eq!(peer.base(1), 10);
}

#[test]
fn drivers_come_and_go_and_so_do_back_ends() {
    let folder = Folder::new();
    let (backend, port) = Backend::start(config(&folder.socket(), Mode::Server)).unwrap();
    let status = backend.status();
    let mut engine = Engine::run(port);
    for round in 1..=5 {
        let mut peer = Peer::connect(&folder.socket());
        peer.negotiate(FEATURES.without(Features::PROTOCOL_FEATURES));
        peer.share_memory();
        peer.start_ring(1, 0);
        peer.transmit(1, 0, 100);
        until("packets", || peer.used(1) == 100);
        assert_eq!(status.snapshot().connections, round);
    }
    // The port may go first, and the connection stays.
    let mut peer = Peer::connect(&folder.socket());
    peer.negotiate(FEATURES.without(Features::PROTOCOL_FEATURES));
    peer.share_memory();
    peer.start_ring(1, 0);
    peer.transmit(1, 0, 100);
    until("packets", || peer.used(1) == 100);
    drop(engine.stop());
    assert_eq!(peer.base(1), 100);
    drop(backend);
    assert!(!folder.socket().exists());
    assert!(peer.receive().is_none());

    // The other order, while the ring runs.
    let (backend, port) = Backend::start(config(&folder.socket(), Mode::Server)).unwrap();
    engine = Engine::run(port);
    let mut peer = Peer::connect(&folder.socket());
    peer.share_memory();
    peer.start_ring(1, 0);
    peer.transmit(1, 0, 100);
    until("packets", || peer.used(1) == 100);
    drop(backend);
    drop(engine);
}

#[test]
fn acknowledgements_are_sent_when_wanted() {
    let host = Host::start();
    let mut peer = host.peer();
    peer.need_reply = true;
    // Not negotiated yet: no acknowledgement, so the next message is the reply to the next request.
    peer.send(VhostRequest::SET_OWNER, &[], &[]);
    peer.set(VhostRequest::SET_FEATURES, FEATURES.0);
    assert_eq!(peer.number(VhostRequest::GET_PROTOCOL_FEATURES), ProtocolFeatures::BACKEND.0);
    let ask = |peer: &mut Peer, request, value: u64| peer.ask(request, &value.to_le_bytes(), &[]).body;
    let (good, bad) = (0_u64.to_le_bytes(), 1_u64.to_le_bytes());
    assert_eq!(ask(&mut peer, VhostRequest::SET_PROTOCOL_FEATURES, ProtocolFeatures::BACKEND.0), good);
    assert_eq!(ask(&mut peer, VhostRequest::SET_FEATURES, FEATURES.0), good);
    assert_eq!(ask(&mut peer, VhostRequest::SET_FEATURES, 1 << 60), bad);
    assert_eq!(ask(&mut peer, VhostRequest::SET_FEATURES, FEATURES.0), good);
    host.expect_errors("features_not_offered", 1);
}

fn acknowledged(peer: &mut Peer, request: VhostRequest, body: &[u8], files: &[std::os::fd::BorrowedFd<'_>]) {
    peer.need_reply = true;
    let reply = peer.ask(request, body, files).body;
    peer.need_reply = false;
    assert_eq!(reply, 0_u64.to_le_bytes(), "{} was refused", request.name());
}

/// A peer whose first transmit ring runs.
fn with_ring(host: &Host) -> Peer {
    let mut peer = host.peer();
    peer.negotiate(FEATURES);
    peer.share_memory();
    peer.start_ring(1, 0);
    peer.vring(VhostRequest::SET_VRING_ENABLE, 1, 1);
    peer.transmit(1, 0, 20);
    until("packets", || peer.used(1) == 20);
    peer
}

#[test]
fn everything_may_change_while_rings_run() {
    let host = Host::start();
    let mut peer = with_ring(&host);
    let mut next = 20;
    let mut more = |peer: &Peer, what: &str| {
        peer.transmit(1, next, 30);
        next += 30;
        until(&format!("packets after {what}"), || peer.used(1) == next);
    };
    // Another call, which is raised from now on.
    let call = event();
    acknowledged(&mut peer, VhostRequest::SET_VRING_CALL, &1_u64.to_le_bytes(), &[call.as_fd()]);
    more(&peer, "another call");
    let mut raised = [0; 8];
    until("the new call", || (&call).read(&mut raised).is_ok());
    acknowledged(&mut peer, VhostRequest::SET_VRING_KICK, &1_u64.to_le_bytes(), &[event().as_fd()]);
    more(&peer, "another kick");
    acknowledged(&mut peer, VhostRequest::SET_VRING_CALL, &0x101_u64.to_le_bytes(), &[]);
    more(&peer, "no call");
    acknowledged(&mut peer, VhostRequest::SET_VRING_KICK, &0x101_u64.to_le_bytes(), &[]);
    more(&peer, "no kick");
    let logging = FEATURES.with(Features::LOG_ALL);
    acknowledged(&mut peer, VhostRequest::SET_FEATURES, &logging.0.to_le_bytes(), &[]);
    more(&peer, "other features");
    // The same memory at other addresses of the process.
    let mut body = 1_u64.to_le_bytes().to_vec();
    RegionMessage { user: 5 * USER, ..Peer::region() }.write(&mut body);
    let memory = peer.memory.try_clone().unwrap();
    acknowledged(&mut peer, VhostRequest::SET_MEM_TABLE, &body, &[memory.as_fd()]);
    assert!(
        matches!(host.status.snapshot().side.queues[1].state, QueueState::Failed(_)),
        "its areas are not there any more"
    );
    let addresses = Peer::addresses(1);
    let moved = 4 * USER;
    let addresses = VringAddresses {
        descriptors: addresses.descriptors + moved,
        used: addresses.used + moved,
        available: addresses.available + moved,
        ..addresses
    };
    acknowledged(&mut peer, VhostRequest::SET_VRING_ADDR, &addresses.bytes(), &[]);
    more(&peer, "other memory");
    acknowledged(&mut peer, VhostRequest::SET_VRING_ENABLE, &VringState { index: 1, number: 0 }.bytes(), &[]);
    assert_eq!(host.status.snapshot().side.queues[1].state, QueueState::Disabled);
    let discarded = || host.engine.discarded.load(Ordering::Relaxed);
    assert_eq!(discarded(), 0);
    more(&peer, "a queue that is disabled, whose packets are discarded");
    assert_eq!(discarded(), 30);
    acknowledged(&mut peer, VhostRequest::SET_VRING_ENABLE, &VringState { index: 1, number: 1 }.bytes(), &[]);
    more(&peer, "a pause");
    assert_eq!(peer.base(1), u32::from(next));
}

#[test]
fn memory_comes_and_goes_region_by_region() {
    let host = Host::start();
    let mut peer = host.peer();
    peer.negotiate(FEATURES);
    assert_eq!(peer.number(VhostRequest::GET_MAX_MEM_SLOTS), 64);
    let body = |region: RegionMessage| {
        let mut body = vec![0; 8];
        region.write(&mut body);
        body
    };
    let memory = peer.memory.try_clone().unwrap();
    acknowledged(&mut peer, VhostRequest::ADD_MEM_REG, &body(Peer::region()), &[memory.as_fd()]);
    peer.start_ring(1, 0);
    peer.vring(VhostRequest::SET_VRING_ENABLE, 1, 1);
    peer.transmit(1, 0, 20);
    until("packets", || peer.used(1) == 20);
    // The same again, as QEMU adds it for every pair of queues. It must be removed as often.
    acknowledged(&mut peer, VhostRequest::ADD_MEM_REG, &body(Peer::region()), &[memory.as_fd()]);
    acknowledged(&mut peer, VhostRequest::REM_MEM_REG, &body(Peer::region()), &[]);
    assert_eq!(host.status.snapshot().side.regions.len(), 1);
    // More, while a ring runs.
    let other =
        |number: u64| RegionMessage { guest: GUEST + number * LENGTH, user: USER + number * LENGTH, ..Peer::region() };
    for number in 1..64 {
        let file = memfd::create(LENGTH).unwrap();
        acknowledged(&mut peer, VhostRequest::ADD_MEM_REG, &body(other(number)), &[file.as_fd()]);
    }
    assert_eq!(host.status.snapshot().side.regions.len(), 64);
    peer.need_reply = true;
    let file = memfd::create(LENGTH).unwrap();
    assert_eq!(peer.ask(VhostRequest::ADD_MEM_REG, &body(other(64)), &[file.as_fd()]).body, 1_u64.to_le_bytes());
    peer.need_reply = false;
    host.expect_errors("memory_slots", 1);
    // A descriptor with the removal is allowed, but not used.
    acknowledged(&mut peer, VhostRequest::REM_MEM_REG, &body(other(7)), &[file.as_fd()]);
    acknowledged(&mut peer, VhostRequest::REM_MEM_REG, &body(other(8)), &[]);
    peer.transmit(1, 20, 20);
    until("packets", || peer.used(1) == 40);
    // The region that contains the ring: the ring stops, and continues when the region is back.
    acknowledged(&mut peer, VhostRequest::REM_MEM_REG, &body(Peer::region()), &[]);
    assert!(matches!(host.status.snapshot().side.queues[1].state, QueueState::Failed(_)));
    acknowledged(&mut peer, VhostRequest::ADD_MEM_REG, &body(Peer::region()), &[memory.as_fd()]);
    peer.transmit(1, 40, 20);
    until("packets", || peer.used(1) == 60);
}

#[test]
fn the_configuration_space_tells_address_link_and_pairs() {
    let host = Host::start();
    let mut peer = host.peer();
    peer.negotiate(FEATURES);
    let mut config = |offset: u32, size: u32| {
        let header = [offset, size, 0].map(u32::to_le_bytes).concat();
        let body = [&header[..], &vec![0; size.min(256) as usize]].concat();
        peer.ask(VhostRequest::GET_CONFIG, &body, &[]).body
    };
    assert_eq!(config(0, 10)[12..], [2, 0, 0, 0, 0, 7, 1, 0, 2, 0]);
    assert_eq!(config(6, 2)[12..], [1, 0]);
    assert_eq!(config(0, 256).len(), 12 + 256);
    assert_eq!(config(255, 2)[4..], [0; 8], "an empty part says no");
    assert_eq!(config(u32::MAX, u32::MAX)[4..], [0; 8]);
    let write = [&[0_u32, 6, 0].map(u32::to_le_bytes).concat()[..], &[1; 6]].concat();
    acknowledged(&mut peer, VhostRequest::SET_CONFIG, &write, &[]);
    let mut config = |offset: u32, size: u32| {
        let header = [offset, size, 0].map(u32::to_le_bytes).concat();
        peer.ask(VhostRequest::GET_CONFIG, &header, &[]).body
    };
    assert_eq!(config(0, 6)[12..], [2, 0, 0, 0, 0, 7]);
}

#[test]
fn a_reset_stops_all_rings_and_forgets_the_features() {
    let host = Host::start();
    for request in [VhostRequest::RESET_DEVICE, VhostRequest::RESET_OWNER] {
        let mut peer = with_ring(&host);
        acknowledged(&mut peer, request, &[], &[]);
        let snapshot = host.status.snapshot();
        assert_eq!((snapshot.side.features, &snapshot.side.queues[1].state), (None, &QueueState::Stopped));
        // And again from the start.
        peer.memory.write_all_at(&[0; 0x10000], 0x10000).unwrap();
        peer.set(VhostRequest::SET_FEATURES, FEATURES.0);
        peer.start_ring(1, 0);
        peer.vring(VhostRequest::SET_VRING_ENABLE, 1, 1);
        peer.transmit(1, 0, 20);
        until("packets", || peer.used(1) == 20);
    }
}

#[test]
fn an_inflight_region_is_created_and_accepted() {
    let host = Host::start();
    let mut peer = with_ring(&host);
    let asked = InflightMessage { queues: 4, queue_size: SIZE, ..InflightMessage::default() };
    let VhostMessage { body, files, .. } = peer.ask(VhostRequest::GET_INFLIGHT_FD, &asked.bytes(), &[]);
    let length = u64::from_le_bytes(body[..8].try_into().unwrap());
    let file: &File = &files[0];
    assert_eq!((files.len(), file.metadata().unwrap().len()), (1, length));
    assert!(file.set_len(0).is_err(), "it is sealed");
    acknowledged(&mut peer, VhostRequest::SET_INFLIGHT_FD, &body, &[file.as_fd()]);
    let padded = [&body[..], &[0; 4]].concat();
    acknowledged(&mut peer, VhostRequest::SET_INFLIGHT_FD, &padded, &[file.as_fd()]);
    peer.transmit(1, 20, 20);
    until("packets", || peer.used(1) == 40);
    // Device and process vanish; the next device finds the ring's position, whatever the base is.
    let memory = peer.memory.try_clone().unwrap();
    drop(peer);
    let mut peer = host.peer();
    peer.memory = memory;
    peer.negotiate(FEATURES);
    peer.share_memory();
    acknowledged(&mut peer, VhostRequest::SET_INFLIGHT_FD, &body, &[file.as_fd()]);
    peer.start_ring(1, 7);
    peer.vring(VhostRequest::SET_VRING_ENABLE, 1, 1);
    peer.transmit(1, 40, 20);
    until("packets", || peer.used(1) == 60);
    assert_eq!(peer.base(1), 60);
    // After an orderly stop the base counts again.
    peer.memory.write_all_at(&[0; 0x10000], 0x10000).unwrap();
    peer.start_ring(1, 0);
    peer.transmit(1, 0, 20);
    until("packets", || peer.used(1) == 20);
}

#[test]
fn a_reply_about_inflight_descriptors_is_as_long_as_the_question() {
    let host = Host::start();
    let mut peer = host.peer();
    peer.negotiate(FEATURES);
    let asked = InflightMessage { queues: 2, queue_size: SIZE, ..InflightMessage::default() };
    let exact = peer.ask(VhostRequest::GET_INFLIGHT_FD, &asked.bytes(), &[]);
    let padded = peer.ask(VhostRequest::GET_INFLIGHT_FD, &[&asked.bytes()[..], &[7; 4]].concat(), &[]);
    assert_eq!(exact.body.len(), 20);
    assert_eq!(padded.body, [&exact.body[..], &[0; 4]].concat());
}

/// A packed ring does not contain its position; the record from before a reset must not count after it.
#[test]
fn a_reset_forgets_where_rings_were() {
    let host = Host::start();
    for request in [VhostRequest::RESET_DEVICE, VhostRequest::RESET_OWNER] {
        let mut peer = host.peer();
        let features = FEATURES.with(Features::RING_PACKED);
        peer.negotiate(features);
        peer.share_memory();
        let asked = InflightMessage { queues: 4, queue_size: SIZE, ..InflightMessage::default() };
        let VhostMessage { body, files, .. } = peer.ask(VhostRequest::GET_INFLIGHT_FD, &asked.bytes(), &[]);
        acknowledged(&mut peer, VhostRequest::SET_INFLIGHT_FD, &body, &[files[0].as_fd()]);
        let start_at = |peer: &mut Peer, base: u32| {
            peer.start_ring(1, base);
            acknowledged(peer, VhostRequest::SET_VRING_ENABLE, &VringState { index: 1, number: 1 }.bytes(), &[]);
            until("the ring runs", || running(&host)[1]);
        };
        start_at(&mut peer, 0x8064_8064);
        acknowledged(&mut peer, request, &[], &[]);
        peer.set(VhostRequest::SET_FEATURES, features.0);
        start_at(&mut peer, 0x8000_8000);
        assert_eq!(peer.base(1), 0x8000_8000);
    }
}

/// A request with its own reply cannot be refused with another.
#[test]
fn a_question_that_cannot_be_answered_ends_the_connection() {
    let host = Host::start();
    let mut peer = host.peer();
    peer.negotiate(FEATURES);
    peer.need_reply = true;
    peer.vring(VhostRequest::GET_VRING_BASE, 77, 0);
    assert!(peer.receive().is_none());
    host.expect_errors("queue_unknown", 1);
}

#[test]
fn writes_are_logged_while_logging_is_on() {
    let host = Host::start();
    let mut peer = with_ring(&host);
    let log = memfd::create(LENGTH).unwrap();
    let marked = |log: &File| {
        let mut bytes = vec![0; LENGTH as usize];
        log.read_exact_at(&mut bytes, 0).unwrap();
        (0..8 * LENGTH).filter(|page| bytes[*page as usize / 8] >> (page % 8) & 1 == 1).collect::<Vec<_>>()
    };
    let body = [LENGTH.to_le_bytes(), 0_u64.to_le_bytes()].concat();
    assert_eq!(peer.ask(VhostRequest::SET_LOG_BASE, &body, &[log.as_fd()]).body.len(), 8);
    let news = event();
    acknowledged(&mut peer, VhostRequest::SET_LOG_FD, &[], &[news.as_fd()]);
    peer.transmit(1, 20, 20);
    until("packets", || peer.used(1) == 40);
    assert_eq!(marked(&log), [0_u64; 0], "logging was not negotiated");
    let logging = FEATURES.with(Features::LOG_ALL);
    acknowledged(&mut peer, VhostRequest::SET_FEATURES, &logging.0.to_le_bytes(), &[]);
    let addresses = VringAddresses { flags: 1, log: GUEST + 0x14000, ..Peer::addresses(1) };
    acknowledged(&mut peer, VhostRequest::SET_VRING_ADDR, &addresses.bytes(), &[]);
    assert!(host.status.snapshot().side.logging);
    peer.transmit(1, 40, 20);
    until("packets", || peer.used(1) == 60);
    let page = (GUEST + 0x14000) / 4096;
    until("the used ring's page is marked", || marked(&log) == [page]);
    let mut raised = [0; 8];
    until("the log's event", || (&news).read(&mut raised).is_ok());
    acknowledged(&mut peer, VhostRequest::SET_FEATURES, &FEATURES.0.to_le_bytes(), &[]);
    log.write_all_at(&[0; 8], (page / 8) & !7).unwrap();
    peer.transmit(1, 60, 20);
    until("packets", || peer.used(1) == 80);
    assert_eq!(marked(&log), [0_u64; 0]);
}

/// Its memory is unmapped when the engine has also dropped the doorbells, even if nothing else happens.
#[test]
fn a_driver_that_has_gone_leaves_no_memory_behind() {
    let folder = Folder::new();
    let (backend, mut port) = Backend::start(config(&folder.socket(), Mode::Server)).unwrap();
    let mut peer = Peer::connect(&folder.socket());
    peer.share_memory();
    peer.start_ring(1, 0);
    until("a ring", || port.sync());
    let doorbell = port.transmit()[0].as_ref().unwrap().doorbell();
    let inode = std::os::unix::fs::MetadataExt::ino(&peer.memory.metadata().unwrap()).to_string();
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().any(|line| line.contains("memfd") && line.split_whitespace().nth(4) == Some(&inode))
    };
    drop(peer);
    until("the end of the connection", || {
        port.sync();
        !backend.status().snapshot().side.connected
    });
    let _ = doorbell.word().load(std::sync::atomic::Ordering::Relaxed);
    assert!(mapped());
    drop(doorbell);
    until("no mapping", || !mapped());
}

/// An engine that is busy elsewhere keeps the driver's process waiting, which the status says; nothing is lost.
#[test]
fn an_engine_that_does_not_answer_is_complained_about() {
    let folder = Folder::new();
    let (backend, port) = Backend::start(config(&folder.socket(), Mode::Server)).unwrap();
    let status = backend.status();
    let engine = Engine::run(port);
    let mut peer = Peer::connect(&folder.socket());
    peer.share_memory();
    peer.start_ring(1, 0);
    peer.transmit(1, 0, 20);
    until("packets", || peer.used(1) == 20);
    let port = engine.stop();
    peer.vring(VhostRequest::GET_VRING_BASE, 1, 0);
    until("a complaint", || status.snapshot().waits.is_some());
    assert!(status.snapshot().waits.unwrap().contains("has not given ring 1 back"));
    let _engine = Engine::run(port);
    assert_eq!(peer.receive().unwrap().body[4..], 20_u32.to_le_bytes());
    until("no complaint", || status.snapshot().waits.is_none());
}

/// Nor does it keep the back end from ending, whatever it waits for.
#[test]
fn an_engine_that_does_not_answer_does_not_delay_the_end() {
    for request in [VhostRequest::GET_VRING_BASE, VhostRequest::SET_VRING_BASE, VhostRequest::SET_VRING_ENABLE] {
        let folder = Folder::new();
        let (backend, port) = Backend::start(config(&folder.socket(), Mode::Server)).unwrap();
        let engine = Engine::run(port);
        let mut peer = Peer::connect(&folder.socket());
        peer.share_memory();
        peer.start_ring(1, 0);
        peer.transmit(1, 0, 20);
        until("packets", || peer.used(1) == 20);
        let mut port = engine.stop();
        peer.vring(request, 1, 0);
        let call = event();
        peer.event(VhostRequest::SET_VRING_CALL, 1, Some(&call));
        until("a wish", || port.doorbell().word().load(std::sync::atomic::Ordering::Relaxed) != port.expected());
        drop(backend);
        assert!(port.transmit()[0].is_some());
        assert!(port.sync());
        assert!(port.transmit()[0].is_none());
    }
}

/// The bell's descriptor wakes an engine that sleeps; while nothing is wanted it is not readable.
#[test]
fn a_sleeping_engine_is_woken() {
    use bellows_sys::wake::sleep_until_readable;
    let folder = Folder::new();
    let (_backend, mut port) = Backend::start(config(&folder.socket(), Mode::Server)).unwrap();
    let bell = port.doorbell();
    let wait = |port: &mut crate::vhost::Port| {
        assert!(sleep_until_readable(&[bell.descriptor()], Some(super::peer::LIMIT)).unwrap()[0]);
        until("an exchange", || port.sync());
        assert!(!sleep_until_readable(&[bell.descriptor()], Some(std::time::Duration::ZERO)).unwrap()[0]);
        assert!(!port.sync());
    };
    let mut peer = Peer::connect(&folder.socket());
    peer.share_memory();
    peer.start_ring(1, 0);
    wait(&mut port);
    assert!(port.transmit()[0].is_some() && port.receive()[0].is_none());
    peer.vring(VhostRequest::GET_VRING_BASE, 1, 0);
    wait(&mut port);
    assert!(port.transmit()[0].is_none());
    assert!(peer.receive().is_some());
}

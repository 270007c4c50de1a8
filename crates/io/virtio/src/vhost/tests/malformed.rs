//! Driver's processes that violate the protocol: each violation has a name, is counted, and costs at most the
//! connection.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use bellows_ipc::memfd;
use bellows_testkit::wait::Deadline;

use super::peer::{FEATURES, GUEST, Host, LENGTH, Peer, SIZE, USER, errors, event, file, until};
use crate::vhost::channel::{Channel, Incoming};
use crate::vhost::closer::Closer;
use crate::vhost::message::{
    InflightMessage, MAX_BODY, NO_FILE, ProtocolFeatures, RegionMessage, VringAddresses, VringState, header,
};
use crate::vhost::request::VhostRequest;
use crate::vhost::{ProtocolError, QueueState};
use bellows_handover::Signal;

/// The name of a violation, and the peer's action after the negotiation.
type Violation = (&'static str, fn(&mut Peer));

fn mem_table(peer: &mut Peer, regions: &[RegionMessage], files: &[BorrowedFd<'_>]) {
    let mut body = (regions.len() as u64).to_le_bytes().to_vec();
    regions.iter().for_each(|region| region.write(&mut body));
    peer.send(VhostRequest::SET_MEM_TABLE, &body, files);
}

fn one_region(peer: &mut Peer, region: RegionMessage, file: &File) {
    mem_table(peer, &[region], &[file.as_fd()]);
}

const MISTAKES: &[Violation] = &[
    // Messages.
    ("message_version", |peer| peer.socket.write_all(&[1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]).unwrap()),
    ("message_too_long", |peer| peer.socket.write_all(&header(1, 0, MAX_BODY + 1)).unwrap()),
    ("message_too_long", |peer| peer.socket.write_all(&header(5, 0, u32::MAX as usize)).unwrap()),
    ("message_unexpected", |peer| peer.socket.write_all(&header(1, 4, 0)).unwrap()),
    ("message_size", |peer| peer.send(VhostRequest::GET_FEATURES, &[0], &[])),
    ("message_size", |peer| peer.send(VhostRequest::SET_FEATURES, &[0; 7], &[])),
    ("message_size", |peer| peer.send(VhostRequest::SET_FEATURES, &[0; 9], &[])),
    ("message_size", |peer| peer.send(VhostRequest::SET_VRING_ADDR, &[0; 39], &[])),
    ("message_size", |peer| peer.send(VhostRequest::SET_MEM_TABLE, &[], &[])),
    ("message_size", |peer| peer.send(VhostRequest::SET_MEM_TABLE, &[2, 0, 0, 0, 0, 0, 0, 0, 0], &[])),
    ("message_size", |peer| peer.send(VhostRequest::GET_CONFIG, &[0; 11], &[])),
    ("message_size", |peer| peer.send(VhostRequest::SET_CONFIG, &[9; 12], &[])),
    ("message_size", |peer| peer.send(VhostRequest::GET_INFLIGHT_FD, &[0; 19], &[])),
    ("message_cut_off", |peer| {
        peer.socket.write_all(&header(VhostRequest::SET_FEATURES as u32, 0, 8)).unwrap();
        peer.socket.write_all(&[0; 3]).unwrap();
        peer.socket.shutdown(Shutdown::Write).unwrap();
    }),
    ("message_cut_off", |peer| {
        peer.socket.write_all(&[1, 0]).unwrap();
        peer.socket.shutdown(Shutdown::Write).unwrap();
    }),
    ("request_unknown", |peer| peer.socket.write_all(&header(0, 0, 0)).unwrap()),
    ("request_unknown", |peer| peer.socket.write_all(&header(u32::MAX, 0, 0)).unwrap()),
    // SET_STATUS, SEND_RARP, NET_SET_MTU, SET_BACKEND_REQ_FD: part of the protocol, but never offered here.
    ("request_unknown", |peer| peer.socket.write_all(&[&header(39, 0, 8)[..], &[0; 8]].concat()).unwrap()),
    ("request_unknown", |peer| peer.socket.write_all(&[&header(19, 0, 8)[..], &[0; 8]].concat()).unwrap()),
    ("request_unknown", |peer| peer.socket.write_all(&[&header(20, 0, 8)[..], &[0; 8]].concat()).unwrap()),
    ("request_unknown", |peer| peer.socket.write_all(&header(21, 0, 0)).unwrap()),
    // Descriptors.
    ("descriptor_count", |peer| {
        let memory = memfd::create(8).unwrap();
        peer.send(VhostRequest::GET_FEATURES, &[], &[memory.as_fd()]);
    }),
    ("descriptor_count", |peer| {
        let (one, other) = (event(), event());
        peer.send(VhostRequest::SET_VRING_CALL, &[0; 8], &[one.as_fd(), other.as_fd()]);
    }),
    ("descriptor_count", |peer| peer.event(VhostRequest::SET_VRING_KICK, 0, None)),
    ("descriptor_count", |peer| peer.event(VhostRequest::SET_VRING_KICK, NO_FILE, Some(&event()))),
    ("descriptor_count", |peer| peer.send(VhostRequest::SET_LOG_BASE, &[0; 16], &[])),
    ("descriptor_count", |peer| mem_table(peer, &[Peer::region()], &[])),
    ("descriptor_count", |peer| {
        let memory = memfd::create(LENGTH).unwrap();
        mem_table(peer, &[Peer::region()], &[memory.as_fd(), memory.as_fd()]);
    }),
    ("descriptor_count", |peer| {
        let memory = memfd::create(LENGTH).unwrap();
        mem_table(peer, &[Peer::region()], &[memory.as_fd(); 9]);
    }),
    ("descriptor_kind", |peer| peer.event(VhostRequest::SET_VRING_KICK, 0, Some(&memfd::create(8).unwrap()))),
    ("descriptor_kind", |peer| {
        let (reader, _writer) = std::io::pipe().unwrap();
        peer.event(VhostRequest::SET_VRING_CALL, 0, Some(&file(reader)));
    }),
    ("descriptor_kind", |peer| {
        let (socket, _other) = UnixStream::pair().unwrap();
        peer.event(VhostRequest::SET_VRING_ERR, 0, Some(&file(socket)));
    }),
    // Values.
    ("features_not_offered", |peer| peer.set(VhostRequest::SET_FEATURES, 1 << 63)),
    ("features_not_offered", |peer| peer.set(VhostRequest::SET_PROTOCOL_FEATURES, 1 << 16)),
    ("queue_unknown", |peer| peer.vring(VhostRequest::SET_VRING_NUM, 4, 256)),
    ("queue_unknown", |peer| peer.vring(VhostRequest::SET_VRING_BASE, u32::MAX, 0)),
    ("queue_unknown", |peer| peer.vring(VhostRequest::GET_VRING_BASE, 4, 0)),
    ("queue_unknown", |peer| peer.vring(VhostRequest::SET_VRING_ENABLE, 4, 1)),
    ("queue_unknown", |peer| peer.send(VhostRequest::SET_VRING_ADDR, &Peer::addresses(4).bytes(), &[])),
    ("queue_unknown", |peer| peer.event(VhostRequest::SET_VRING_KICK, 0xff, Some(&event()))),
    ("value_not_allowed", |peer| peer.vring(VhostRequest::SET_VRING_NUM, 0, 0)),
    ("value_not_allowed", |peer| peer.vring(VhostRequest::SET_VRING_NUM, 0, 32_769)),
    ("value_not_allowed", |peer| peer.vring(VhostRequest::SET_VRING_NUM, 0, 0x1_0100)),
    ("value_not_allowed", |peer| peer.vring(VhostRequest::SET_VRING_ENABLE, 0, 2)),
    ("value_not_allowed", |peer| peer.send(VhostRequest::SET_MEM_TABLE, &[0; 8], &[])),
    ("value_not_allowed", |peer| peer.send(VhostRequest::SET_MEM_TABLE, &[9, 0, 0, 0, 0, 0, 0, 0], &[])),
    ("value_not_allowed", |peer| {
        let asked = InflightMessage { queues: 5, queue_size: 256, ..InflightMessage::default() };
        peer.send(VhostRequest::GET_INFLIGHT_FD, &asked.bytes(), &[]);
    }),
    ("value_not_allowed", |peer| {
        let asked = InflightMessage { queues: 1, queue_size: 65_535, ..InflightMessage::default() };
        peer.send(VhostRequest::GET_INFLIGHT_FD, &asked.bytes(), &[]);
    }),
    // Memory.
    ("memory_unusable", |peer| one_region(peer, RegionMessage { length: 0, ..Peer::region() }, &event())),
    ("memory_unusable", |peer| {
        let (reader, _writer) = std::io::pipe().unwrap();
        one_region(peer, Peer::region(), &file(reader));
    }),
    ("memory_unusable", |peer| one_region(peer, Peer::region(), &File::open("/").unwrap())),
    ("memory_unusable", |peer| one_region(peer, Peer::region(), &event())),
    ("memory_unusable", |peer| one_region(peer, Peer::region(), &memfd::create(LENGTH - 1).unwrap())),
    ("memory_unusable", |peer| {
        let memory = memfd::create(LENGTH).unwrap();
        one_region(peer, RegionMessage { length: u64::MAX, ..Peer::region() }, &memory);
    }),
    ("memory_unusable", |peer| {
        let memory = memfd::create(LENGTH).unwrap();
        one_region(peer, RegionMessage { offset: u64::MAX - 5, ..Peer::region() }, &memory);
    }),
    ("memory_unusable", |peer| {
        let memory = memfd::create(LENGTH).unwrap();
        one_region(peer, RegionMessage { guest: u64::MAX - 5, ..Peer::region() }, &memory);
    }),
    ("memory_unusable", |peer| {
        let memory = memfd::create(2 * LENGTH).unwrap();
        let overlapping = RegionMessage { guest: GUEST + LENGTH - 1, ..Peer::region() };
        mem_table(peer, &[Peer::region(), overlapping], &[memory.as_fd(), memory.as_fd()]);
    }),
    ("memory_unusable", |peer| {
        let memory = memfd::create(1 << 46).unwrap();
        one_region(peer, RegionMessage { length: 1 << 46, ..Peer::region() }, &memory);
    }),
    ("memory_unusable", |peer| {
        let (first, second) = (memfd::create(1 << 44).unwrap(), memfd::create(LENGTH).unwrap());
        let all = RegionMessage { guest: 0, length: 1 << 44, ..Peer::region() };
        let more = RegionMessage { guest: 1 << 44, ..Peer::region() };
        mem_table(peer, &[all, more], &[first.as_fd(), second.as_fd()]);
    }),
    ("memory_unknown", |peer| {
        let mut body = vec![0; 8];
        Peer::region().write(&mut body);
        peer.send(VhostRequest::REM_MEM_REG, &body, &[]);
    }),
    ("mapping_unusable", |peer| {
        let body = [LENGTH.to_le_bytes(), 1_u64.to_le_bytes()].concat();
        peer.send(VhostRequest::SET_LOG_BASE, &body, &[memfd::create(LENGTH).unwrap().as_fd()]);
    }),
    ("mapping_unusable", |peer| {
        let body = [(1_u64 << 46).to_le_bytes(), 0_u64.to_le_bytes()].concat();
        peer.send(VhostRequest::SET_LOG_BASE, &body, &[memfd::create(1 << 46).unwrap().as_fd()]);
    }),
    ("mapping_unusable", |peer| {
        let region = InflightMessage { length: 1 << 46, offset: 0, queues: 2, queue_size: 256 };
        peer.send(VhostRequest::SET_INFLIGHT_FD, &region.bytes(), &[memfd::create(1 << 46).unwrap().as_fd()]);
    }),
    ("mapping_unusable", |peer| {
        let region = InflightMessage { length: 64, offset: 0, queues: 2, queue_size: 256 };
        peer.send(VhostRequest::SET_INFLIGHT_FD, &region.bytes(), &[memfd::create(64).unwrap().as_fd()]);
    }),
];

#[test]
fn each_mistake_is_named_and_closes_its_own_connection_only() {
    let host = Host::start();
    for (number, (name, mistake)) in MISTAKES.iter().enumerate() {
        let before = errors(&host.status.snapshot(), name);
        let mut peer = host.peer();
        peer.negotiate(FEATURES);
        mistake(&mut peer);
        host.expect_errors(name, before + 1);
        assert!(peer.receive().is_none(), "mistake {number}, {name}: the connection goes on");
        let total: u64 = host.status.snapshot().errors.iter().map(|(_, count)| count).sum();
        assert_eq!(total, number as u64 + 1, "mistake {number}, {name}: {:?}", host.status.snapshot());
    }
    host.still_works();
}

/// A front end that wants replies gets refusals without losing the connection.
#[test]
fn with_acknowledgements_a_refusal_leaves_the_connection_open() {
    let host = Host::start();
    let mut peer = host.peer();
    peer.negotiate(FEATURES);
    peer.need_reply = true;
    let wrong_kind = memfd::create(8).unwrap();
    let mut refused = |request: VhostRequest, body: &[u8], files: &[BorrowedFd<'_>], name: &str| {
        assert_eq!(peer.ask(request, body, files).body, 1_u64.to_le_bytes(), "{}", request.name());
        assert!(host.status.snapshot().errors.iter().any(|(known, _)| *known == name), "{name}");
    };
    refused(VhostRequest::SET_VRING_NUM, &VringState { index: 9, number: 1 }.bytes(), &[], "queue_unknown");
    refused(VhostRequest::SET_VRING_NUM, &VringState { index: 0, number: 0 }.bytes(), &[], "value_not_allowed");
    refused(VhostRequest::SET_VRING_KICK, &[0; 8], &[wrong_kind.as_fd()], "descriptor_kind");
    refused(VhostRequest::SET_FEATURES, &[0xff; 8], &[], "features_not_offered");
    let mut region = vec![0; 8];
    Peer::region().write(&mut region);
    refused(VhostRequest::REM_MEM_REG, &region, &[], "memory_unknown");
    refused(VhostRequest::ADD_MEM_REG, &region, &[wrong_kind.as_fd()], "memory_unusable");
    assert_eq!(peer.ask(VhostRequest::ADD_MEM_REG, &region, &[peer.memory.try_clone().unwrap().as_fd()]).body, [0; 8]);
}

#[test]
fn requests_before_their_feature_are_refused() {
    let host = Host::start();
    for request in [
        VhostRequest::GET_QUEUE_NUM,
        VhostRequest::GET_CONFIG,
        VhostRequest::SET_CONFIG,
        VhostRequest::GET_INFLIGHT_FD,
        VhostRequest::RESET_DEVICE,
        VhostRequest::GET_MAX_MEM_SLOTS,
        VhostRequest::REM_MEM_REG,
    ] {
        let before = errors(&host.status.snapshot(), "request_not_negotiated");
        let mut peer = host.peer();
        peer.send(request, &[], &[]);
        host.expect_errors("request_not_negotiated", before + 1);
        assert!(peer.receive().is_none());
    }
    host.still_works();
}

/// Impossible rings: only the ring fails, the connection and the other rings continue.
#[test]
fn an_impossible_ring_fails_alone() {
    let host = Host::start();
    let mut peer = host.peer();
    peer.negotiate(FEATURES);
    peer.share_memory();
    peer.start_ring(1, 0);
    peer.vring(VhostRequest::SET_VRING_ENABLE, 1, 1);
    peer.need_reply = true;
    let failed = event();
    peer.ask(VhostRequest::SET_VRING_ERR, &2_u64.to_le_bytes(), &[failed.as_fd()]);
    let good = Peer::addresses(2);
    for (number, (size, addresses)) in [
        (100, good),
        (256, VringAddresses { descriptors: USER - 16, ..good }),
        (256, VringAddresses { used: USER + LENGTH - 8, ..good }),
        (256, VringAddresses { available: u64::MAX, ..good }),
        (256, VringAddresses { descriptors: good.descriptors + 8, ..good }),
        (32_768, VringAddresses { descriptors: USER + 0x90000, ..good }),
    ]
    .into_iter()
    .enumerate()
    {
        peer.ask(VhostRequest::SET_VRING_NUM, &VringState { index: 2, number: size }.bytes(), &[]);
        peer.ask(VhostRequest::SET_VRING_ADDR, &addresses.bytes(), &[]);
        peer.ask(VhostRequest::SET_VRING_ENABLE, &VringState { index: 2, number: 1 }.bytes(), &[]);
        let kick = event();
        assert_eq!(
            peer.ask(VhostRequest::SET_VRING_KICK, &2_u64.to_le_bytes(), &[kick.as_fd()]).body,
            1_u64.to_le_bytes()
        );
        assert_eq!(errors(&host.status.snapshot(), "ring_unusable"), number as u64 + 1);
        let QueueState::Failed(_) = host.status.snapshot().side.queues[2].state else { panic!("{size} {addresses:?}") };
        until("the word that a ring has failed", || (&failed).read_exact(&mut [0; 8]).is_ok());
        peer.base(2);
    }
    peer.transmit(1, 0, 9);
    until("packets of the good ring", || peer.used(1) == 9);
}

/// A driver that violates the specification on its ring stops that ring, and its process is notified.
#[test]
fn a_broken_ring_is_stopped_and_its_process_notified() {
    let host = Host::start();
    let mut peer = host.peer();
    peer.negotiate(FEATURES);
    peer.share_memory();
    for queue in [1, 3] {
        let failed = event();
        peer.event(VhostRequest::SET_VRING_ERR, queue.into(), Some(&failed));
        peer.start_ring(queue, 0);
        peer.vring(VhostRequest::SET_VRING_ENABLE, queue, 1);
        // The index jumps further than the ring's size.
        use std::os::unix::fs::FileExt;
        let at = u64::from(queue) * 0x10000 + 0x2000 + 2;
        peer.memory.write_all_at(&(SIZE + 1).to_le_bytes(), at).unwrap();
        host.expect_errors("index_jump", u64::from(queue).div_ceil(2));
        let mut raised = [0; 8];
        until("the event of errors", || (&failed).read(&mut raised).is_ok());
    }
    // The process may correct it and start the ring again.
    peer.base(1);
    peer.transmit(1, 0, 0);
    peer.start_ring(1, 0);
    peer.transmit(1, 0, 30);
    until("packets", || peer.used(1) == 30);
}

/// A device whose driver has sent packets and then truncated its memory.
fn cut_short() -> (Host, Peer) {
    let host = Host::start();
    let peer = host.served(30);
    peer.memory.set_len(0).unwrap();
    host.expect_errors("memory_gone", 1);
    (host, peer)
}

/// Truncated memory stops the rings in it, and nothing else.
#[test]
fn memory_that_is_cut_short_stops_its_rings() {
    let (host, peer) = cut_short();
    drop(peer);
    host.still_works();
}

/// A process that restores its file and shares it again is served again.
#[test]
fn memory_that_is_whole_again_is_mapped_again() {
    let (host, mut peer) = cut_short();
    peer.memory.set_len(LENGTH).unwrap();
    peer.share_memory();
    peer.start_ring(1, 0);
    peer.transmit(1, 0, 30);
    until("packets", || peer.used(1) == 30);
    assert_eq!(errors(&host.status.snapshot(), "memory_gone"), 1);
}

#[test]
fn one_byte_at_a_time_is_slow_but_fine() {
    let host = Host::start();
    let mut peer = host.peer();
    for byte in header(VhostRequest::GET_FEATURES as u32, 0, 0) {
        peer.socket.write_all(&[byte]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(peer.receive().unwrap().body.len(), 8);
    // Descriptors may come with any byte.
    let call = event();
    let message = [&header(VhostRequest::SET_VRING_CALL as u32, 0, 8)[..], &[0; 8]].concat();
    for (index, byte) in message.iter().enumerate() {
        let files = if index == 15 { vec![call.as_fd()] } else { Vec::new() };
        bellows_ipc::socket::send(&peer.socket, &[*byte], &files).unwrap();
    }
    assert_ne!(peer.number(VhostRequest::GET_FEATURES), 0);
    assert_eq!(host.status.snapshot().errors, []);
}

fn channel(patience: Duration) -> (Channel, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    let mut channel = Channel::new(near, Arc::new(Signal::new().unwrap()), Closer::start().unwrap());
    channel.set_patience(patience);
    (channel, far)
}

#[test]
fn a_message_that_is_never_finished_is_given_up() {
    let (mut channel, mut far) = channel(Duration::from_millis(50));
    assert!(matches!(channel.receive(Some(Duration::from_millis(80))), Ok(Incoming::Interrupted)));
    far.write_all(&header(1, 0, 8)).unwrap();
    far.write_all(&[1, 2, 3]).unwrap();
    assert!(matches!(channel.receive(None), Err(ProtocolError::Stalled(_))));
}

#[test]
fn unread_replies_end_the_connection() {
    let (mut channel, _far) = channel(Duration::from_millis(50));
    let error = (0..1_000_000).find_map(|_| channel.send(1, 4, &[0; 1000], &[]).err()).unwrap();
    assert_eq!(error.name(), "replies_unread");
}

/// A peer that sends requests and never reads does not keep the back end from ending.
#[test]
fn an_unread_peer_does_not_delay_the_end() {
    let host = Host::start();
    let mut peer = host.peer();
    peer.socket.set_nonblocking(true).unwrap();
    let ask = header(VhostRequest::GET_FEATURES as u32, 0, 0);
    let mut full = 0;
    let deadline = Deadline::new("a full socket");
    while full < 20 {
        deadline.check();
        full = if peer.socket.write(&ask).is_ok() { 0 } else { full + 1 };
        std::thread::sleep(Duration::from_micros(if full > 0 { 1000 } else { 0 }));
    }
    drop(host);
}

/// No received descriptor stays open.
#[test]
fn descriptors_are_not_leaked() {
    let host = Host::start();
    let open = || {
        let names = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let names = names.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        names.filter(|name| name.to_string_lossy().contains("bellows-leak")).count()
    };
    let folder = host.folder.socket().with_file_name("bellows-leak");
    std::fs::write(&folder, "x").unwrap();
    let marked = File::open(&folder).unwrap();
    assert_eq!(open(), 1);
    for request in VhostRequest::ALL {
        for count in [1, 2, 8, 12, 16] {
            let mut peer = host.peer();
            peer.set(VhostRequest::SET_PROTOCOL_FEATURES, ProtocolFeatures::BACKEND.0);
            let files = vec![marked.as_fd(); count];
            peer.send(*request, &[0; 8], &files);
            peer.socket.shutdown(Shutdown::Write).unwrap();
            while peer.receive().is_some() {}
        }
    }
    until("all copies are closed", || open() == 1);
}

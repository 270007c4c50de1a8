//! Well-behaved driver's processes.

use super::peer::{Engine, Folder, Host, Peer, SIZE, config, event, until};
use crate::Features;
use crate::vhost::message::{ProtocolFeatures, Request};
use crate::vhost::{Backend, Mode, QueueState};

const FEATURES: Features =
    Features(Features::VERSION_1.0 | Features::PROTOCOL_FEATURES.0 | Features::MRG_RXBUF.0 | Features::MQ.0);

fn running(host: &Host) -> Vec<bool> {
    let queues = host.status.snapshot().queues;
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
    assert_eq!(peer.number(Request::GET_QUEUE_NUM), 2);
    assert_eq!(host.status.snapshot().queues[1].state, QueueState::Disabled);
    peer.vring(Request::SET_VRING_ENABLE, 0, 1);
    peer.vring(Request::SET_VRING_ENABLE, 1, 1);
    until("rings run", || running(&host) == [true, true, false, false]);
    peer.transmit(1, 0, 200);
    until("packets", || peer.used(1) == 200);
    until("packets are counted", || host.status.snapshot().queues[1].counters.packets == 200);
    let snapshot = host.status.snapshot();
    assert!(snapshot.queues[1].instance.starts_with("transmit split"), "{}", snapshot.queues[1].instance);
    assert_eq!(peer.base(1), 200);
    assert_eq!(running(&host), [true, false, false, false]);
    peer.transmit(1, 200, 50);
    assert_eq!(peer.base(0), 0);
    // It goes on where it was.
    peer.event(Request::SET_VRING_KICK, 1, Some(&event()));
    until("packets after the second kick", || peer.used(1) == 250);
    assert_eq!(host.status.snapshot().queues[1].size, SIZE);
    drop(peer);
    until("the end of the connection", || !host.status.snapshot().connected);
    let snapshot = host.status.snapshot();
    assert_eq!((snapshot.errors.len(), snapshot.connections, snapshot.features), (0, 1, None));
    assert_eq!(snapshot.queues[1].counters.packets, 250);
}

#[test]
fn a_driver_without_protocol_features_has_enabled_queues_and_may_skip_set_features() {
    let host = Host::start();
    let mut peer = host.peer();
    assert!(peer.number(Request::GET_FEATURES) & Features::VERSION_1.0 != 0);
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
    // The port may go first, and the connection lives on.
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
    peer.send(Request::SET_OWNER, &[], &[]);
    peer.set(Request::SET_FEATURES, FEATURES.0);
    assert_eq!(peer.number(Request::GET_PROTOCOL_FEATURES), ProtocolFeatures::BACKEND.0);
    let ask = |peer: &mut Peer, request, value: u64| peer.ask(request, &value.to_le_bytes(), &[]).body;
    let (good, bad) = (0_u64.to_le_bytes(), 1_u64.to_le_bytes());
    assert_eq!(ask(&mut peer, Request::SET_PROTOCOL_FEATURES, ProtocolFeatures::BACKEND.0), good);
    assert_eq!(ask(&mut peer, Request::SET_FEATURES, FEATURES.0), good);
    assert_eq!(ask(&mut peer, Request::SET_FEATURES, 1 << 60), bad);
    assert_eq!(ask(&mut peer, Request::SET_FEATURES, FEATURES.0), good);
    host.expect_errors("features_not_offered", 1);
}

//! Queues that talk to each other and to peers that behave badly, without an engine.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use bellows_testkit::scratch;
use bellows_testkit::wait::{Deadline, eventually, meanwhile};

use super::frames::PREFIX;
use super::*;
use crate::status::{PortStatus, State};
use crate::{Keeper, OpenError, PortSource, Queues, Start};

/// A port with its thread, and the engine's end of it.
struct Port {
    queues: Queues<UnixQueue>,
    status: Arc<PortStatus>,
    _keeper: Keeper<UnixQueue>,
}

impl Port {
    fn try_start(config: UnixConfig) -> Result<Port, OpenError> {
        bellows_packet::pool::ensure().expect("a pool");
        let status = Arc::new(PortStatus::new("test".to_owned()));
        let start = Start { may_be_missing: true, later: false };
        let (keeper, queues) = Keeper::start("test", UnixSource::new(config, false), start, Arc::clone(&status))?;
        Ok(Port { queues, status, _keeper: keeper })
    }

    fn start(socket: &Path, mode: UnixMode) -> Port {
        Port::try_start(UnixConfig { socket: socket.to_owned(), mode }).unwrap()
    }

    fn server(socket: &Path) -> Port {
        Port::start(socket, UnixMode::Server(FileAccess::default()))
    }

    fn dgram(socket: &Path, peer: &Path) -> Port {
        Port::start(socket, UnixMode::Dgram(peer.to_owned(), FileAccess::default()))
    }

    /// The queue, once there is one.
    fn queue(&mut self) -> &mut UnixQueue {
        eventually("a queue", || {
            self.queues.sync();
            self.queues.get().is_some()
        });
        &mut self.queues.get().unwrap()[0]
    }

    /// Receives until there is an error, and gives the queue up as the engine does. Returns the error and the counts.
    fn until_error(&mut self) -> (QueueError, QueueCounts) {
        let deadline = Deadline::new("an error");
        let queue = self.queue();
        let (error, counts) = loop {
            deadline.check();
            let mut packets = Vector::new();
            if let Err(error) = queue.receive(&mut packets, 16) {
                break (error, queue.counts());
            }
        };
        self.status.gives_up(error.to_string());
        self.queues.give_up();
        (error, counts)
    }
}

/// The frames that a queue brings, until there are `count`.
fn receive(queue: &mut UnixQueue, count: usize) -> Vec<Vec<u8>> {
    let deadline = Deadline::new("the frames");
    let mut frames = Vec::new();
    while frames.len() < count {
        deadline.check();
        let mut packets = Vector::new();
        queue.receive(&mut packets, 7).unwrap();
        frames.extend(packets.as_slice().iter().map(|packet| packet.bytes().to_vec()));
    }
    frames
}

/// Frames of many lengths, with their number in them.
fn frames(count: usize) -> Vec<Vec<u8>> {
    let lengths = [60, 1_514, 1, 2_048, 2_049, 9_014, 65_549, MAX_SENT];
    (0..count).map(|index| vec![index as u8; lengths[index % lengths.len()]]).collect()
}

fn packets(frames: &[Vec<u8>]) -> Vec<Packet> {
    frames.iter().map(|frame| Packet::from_bytes(frame).expect("a buffer")).collect()
}

/// A frame as a stream carries it.
fn framed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_be_bytes()[..], frame].concat()
}

/// Both sides send many frames at once, and more than the sockets hold.
fn talk(near: &mut UnixQueue, far: &mut UnixQueue) {
    let deadline = Deadline::new("the talk");
    let frames = frames(64);
    let packets = packets(&frames);
    let mut was_full = false;
    let (mut sent, mut received) = ([0; 2], [0; 2]);
    while received != [frames.len(); 2] {
        deadline.check();
        for (side, queue) in [&mut *near, &mut *far].into_iter().enumerate() {
            let taken = queue.send(&packets[sent[side]..]).unwrap();
            sent[side] += taken.count;
            assert_eq!(taken.stop.is_some(), sent[side] < frames.len());
            was_full |= taken.stop == Some(Rejection::Full);
            queue.flush().unwrap();
            let mut came = Vector::new();
            queue.receive(&mut came, 3).unwrap();
            for packet in came.as_slice() {
                assert!(packet.bytes() == frames[received[side]], "frame {}", received[side]);
                received[side] += 1;
            }
        }
    }
    assert!(was_full && !near.has_unsent() && !far.has_unsent());
    assert_eq!([near.counts(), far.counts()], [QueueCounts::default(); 2]);
}

#[test]
fn streams_and_datagrams_carry_all_frames_in_order() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    let mut server = Port::server(&path("s"));
    assert_eq!(server.status.snapshot().state, State::Waiting, "nobody is on the other side");
    let mut client = Port::start(&path("s"), UnixMode::Client);
    talk(server.queue(), client.queue());
    let details = server.status.snapshot().details;
    assert!(details.peer.as_ref().unwrap().contains(&format!("process {}", std::process::id())), "{details:?}");

    let (mut near, mut far) = (Port::dgram(&path("a"), &path("b")), Port::dgram(&path("b"), &path("a")));
    talk(near.queue(), far.queue());

    // One returns while the other one is still connected to its predecessor.
    drop(far);
    let before = near.status.snapshot().opened;
    let mut far = Port::dgram(&path("b"), &path("a"));
    eventually("the new socket", || {
        near.queues.sync();
        near.status.snapshot().opened > before
    });
    talk(near.queue(), far.queue());
    drop((server, client, near, far));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the sockets are removed");
}

#[test]
fn packets_that_the_other_side_cannot_take_are_rejected() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    let mut server = Port::server(&path("s"));
    let _client = UnixStream::connect(path("s")).unwrap();
    let _far = UnixDatagram::bind(path("b")).unwrap();
    let mut dgram = Port::dgram(&path("a"), &path("b"));
    for queue in [server.queue(), dgram.queue()] {
        let long = packets(&[vec![1; 60], vec![2; MAX_SENT + 1]]);
        assert_eq!(queue.send(&long).unwrap(), Taken { count: 1, stop: Some(Rejection::TooLong) });
        let mut partial = packets(&[vec![0; 60]]);
        let needs = Offload { flags: Offload::NEEDS_CHECKSUM, checksum_start: 34, ..Offload::default() };
        partial[0].set_offload(needs);
        assert_eq!(queue.send(&partial).unwrap(), Taken { count: 0, stop: Some(Rejection::Offload) });
        assert_eq!(queue.accepted(), Accepted::default());
        queue.flush().unwrap();
    }
}

#[test]
fn a_stream_out_of_step_ends_and_the_next_one_is_accepted() {
    let folder = scratch();
    let path = folder.path().join("s");
    let mut server = Port::server(&path);
    for (number, (prefix, text)) in
        [(0, "length 0"), (MAX_RECEIVED as u32 + 1, "73601"), (u32::MAX, "4294967295")].into_iter().enumerate()
    {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(&framed(b"a frame before")).unwrap();
        assert_eq!(receive(server.queue(), 1), [b"a frame before"]);
        client.write_all(&prefix.to_be_bytes()).unwrap();
        let (error, counts) = server.until_error();
        assert!(matches!(error, QueueError::System(_)) && error.to_string().contains(text), "{error}");
        assert_eq!((counts.rx_bad_header, counts.rx_too_long), if prefix == 0 { (1, 0) } else { (0, 1) });
        eventually("the end of the connection", || client.read(&mut [0; 8]).is_ok_and(|count| count == 0));
        eventually("the reason", || server.status.snapshot().last_error.is_some_and(|last| last.contains(text)));
        assert_eq!(server.status.snapshot().opened, number as u64 + 1);
    }
}

#[test]
fn peers_that_go_at_any_moment_are_followed_by_others() {
    let folder = scratch();
    let path = folder.path().join("s");
    let mut server = Port::server(&path);
    let whole = framed(&[7; 300]);
    for cut in [0, 1, PREFIX - 1, PREFIX, PREFIX + 1, whole.len() - 1] {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(&whole).unwrap();
        client.write_all(&whole[..cut]).unwrap();
        assert_eq!(receive(server.queue(), 1), [[7; 300]]);
        drop(client);
        let (error, counts) = server.until_error();
        assert!(matches!(error, QueueError::Gone), "{error}");
        assert_eq!(counts, QueueCounts::default());
    }
    // One that waits in the backlog while another one is served, and goes before its turn.
    let first = UnixStream::connect(&path).unwrap();
    server.queue();
    drop(UnixStream::connect(&path).unwrap());
    let mut third = UnixStream::connect(&path).unwrap();
    third.write_all(&framed(b"patience")).unwrap();
    drop(first);
    assert!(matches!(server.until_error().0, QueueError::Gone));
    assert!(matches!(server.until_error().0, QueueError::Gone));
    assert_eq!(receive(server.queue(), 1), [b"patience"]);
}

/// Frames that wait for a peer that does not read are sent whole when it does, and counted when it goes.
#[test]
fn a_peer_that_stops_to_read_only_stops_its_own_frames() {
    let folder = scratch();
    let path = folder.path().join("s");
    let mut server = Port::server(&path);
    let mut client = UnixStream::connect(&path).unwrap();
    let frames = frames(8);
    let packets = packets(&frames);
    let queue = server.queue();
    let deadline = Deadline::new("a full socket");
    let mut taken = 0;
    loop {
        deadline.check();
        let result = queue.send(&packets[taken % packets.len()..]).unwrap();
        taken += result.count;
        queue.flush().unwrap();
        if result == (Taken { count: 0, stop: Some(Rejection::Full) }) {
            break;
        }
    }
    assert!(queue.has_unsent());
    // What the peer sends comes in all the same.
    client.write_all(&framed(b"still here")).unwrap();
    assert_eq!(receive(queue, 1), [b"still here"]);
    let expected: Vec<u8> = (0..taken).flat_map(|index| framed(&frames[index % frames.len()])).collect();
    let mut got = vec![0; expected.len()];
    meanwhile(
        || {
            queue.flush().unwrap();
            std::thread::yield_now();
        },
        || client.read_exact(&mut got).unwrap(),
    );
    assert!(got == expected, "the stream is out of step");
    assert!(!queue.has_unsent());

    while queue.send(&packets).unwrap().count > 0 {
        queue.flush().unwrap();
        deadline.check();
    }
    drop(client);
    assert!(matches!(queue.flush().unwrap_err(), QueueError::Gone));
    assert!(queue.counts().not_sent > 0 && !queue.has_unsent());
    assert!(matches!(server.until_error().0, QueueError::Gone));
}

/// One call brings no more than it was asked for, and ends, however fast the other side sends.
#[test]
fn a_flood_of_frames_does_not_hold_the_engine() {
    let folder = scratch();
    let path = folder.path().join("s");
    let mut server = Port::server(&path);
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_nonblocking(true).unwrap();
    let flood: Vec<u8> = (0..5_000).flat_map(|index: u32| framed(&index.to_be_bytes())).collect();
    let mut at = 0;
    let mut expected = 0u32;
    let queue = server.queue();
    let send = || match client.write(&flood[at..]) {
        Ok(count) => at = (at + count) % flood.len(),
        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
    };
    meanwhile(send, || {
        let deadline = Deadline::new("the flood");
        while expected < 50_000 {
            deadline.check();
            let mut packets = Vector::new();
            queue.receive(&mut packets, 100).unwrap();
            assert!(packets.len() <= 100);
            for packet in packets.as_slice() {
                assert_eq!(packet.bytes(), (expected % 5_000).to_be_bytes());
                expected += 1;
            }
        }
    });
}

#[test]
fn datagrams_that_are_no_frames_are_counted_or_ignored() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    let far = UnixDatagram::bind(path("b")).unwrap();
    let mut port = Port::dgram(&path("a"), &path("b"));
    let queue = port.queue();
    for datagram in [&b"first"[..], b"", &vec![1; MAX_RECEIVED + 1], b"second"] {
        far.send_to(datagram, path("a")).unwrap();
    }
    assert_eq!(receive(queue, 2), [&b"first"[..], b"second"]);
    assert_eq!(queue.counts(), QueueCounts { rx_too_long: 1, ..QueueCounts::default() });
    // Only the other side may send.
    let error = UnixDatagram::unbound().unwrap().send_to(b"strange", path("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
}

#[test]
fn a_datagram_peer_is_found_when_it_comes_and_when_it_returns() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    let mut port = Port::dgram(&path("a"), &path("b"));
    let waits = port.status.snapshot().waits.unwrap();
    assert!(waits.contains("there is no socket"), "{waits}");
    let far = UnixDatagram::bind(path("b")).unwrap();
    far.set_nonblocking(true).unwrap();
    port.queue();

    // It goes, which the next frame shows, and leaves its file.
    drop(far);
    let queue = port.queue();
    let error = queue.send(&packets(&[vec![1; 60]])).unwrap_err();
    assert!(matches!(error, QueueError::Gone), "{error}");
    port.queues.give_up();
    eventually("the reason", || port.status.snapshot().waits.is_some_and(|waits| waits.contains("nobody has")));
    fs::remove_file(path("b")).unwrap();
    let far = UnixDatagram::bind(path("b")).unwrap();
    port.queue();

    // It returns before anything is sent to it: without a look at its file nothing would come from it any more.
    drop(far);
    fs::remove_file(path("b")).unwrap();
    let far = UnixDatagram::bind(path("b")).unwrap();
    let before = port.status.snapshot().opened;
    eventually("the new socket", || {
        port.queues.sync();
        port.status.snapshot().opened > before
    });
    far.send_to(b"again", path("a")).unwrap();
    assert_eq!(receive(port.queue(), 1), [b"again"]);
}

#[test]
fn sockets_of_others_are_refused_and_those_of_the_dead_replaced() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    let modes = || [UnixMode::Server(FileAccess::default()), UnixMode::Dgram(path("b"), FileAccess::default())];
    for mode in modes() {
        let start = || Port::try_start(UnixConfig { socket: path("a"), mode: mode.clone() });
        let live = UnixDatagram::bind(path("a")).unwrap();
        assert!(start().err().unwrap().to_string().contains("another process or app"));
        drop(live);
        drop(start().unwrap());
        assert!(!path("a").exists());
        let live = UnixListener::bind(path("a")).unwrap();
        assert!(start().err().unwrap().to_string().contains("another process or app"));
        drop(live);
        drop(start().unwrap());
        assert!(!path("a").exists());
        fs::write(path("a"), "mine").unwrap();
        assert!(start().err().unwrap().to_string().contains("is not a socket"));
        fs::remove_file(path("a")).unwrap();
    }
    // A port of this process that is about to end is waited for.
    for mode in modes() {
        let config = UnixConfig { socket: path("a"), mode };
        let status = PortStatus::new("test".to_owned());
        let (mut first, mut second) = (UnixSource::new(config.clone(), true), UnixSource::new(config, true));
        assert!(matches!(first.open(&status), Err(OpenError::Missing(_))));
        assert!(matches!(second.open(&status), Err(OpenError::Busy(_))));
        drop(first);
        assert!(matches!(second.open(&status), Err(OpenError::Missing(_))));
    }
    let error = Port::try_start(UnixConfig { socket: path("none/a"), mode: modes()[0].clone() }).err().unwrap();
    assert!(matches!(error, OpenError::Failed(_)) && error.to_string().contains("none/a"), "{error}");
}

/// A client that is always there, at a server that always closes, does not keep the thread busy.
#[test]
fn short_connections_are_followed_by_a_pause() {
    let folder = scratch();
    let path = folder.path().join("s");
    let mut source =
        UnixSource::new(UnixConfig { socket: path.clone(), mode: UnixMode::Server(FileAccess::default()) }, false);
    bellows_packet::pool::ensure().expect("a pool");
    let status = PortStatus::new("test".to_owned());
    assert!(matches!(source.open(&status), Err(OpenError::Missing(_))));
    assert_eq!(source.descriptors().len(), 1, "the next connection wakes the thread");
    let _client = UnixStream::connect(&path).unwrap();
    drop(source.open(&status).unwrap());
    assert!(source.descriptors().is_empty(), "further connections wait");
    source.close();
    assert!(source.descriptors().is_empty(), "also after this one, for a while");
    assert!(matches!(source.open(&status), Err(OpenError::Missing(_))));
    assert_eq!(source.descriptors().len(), 1);
}

use std::path::{Path, PathBuf};
use std::time::Duration;

use bellows_ipc::seqpacket;
use bellows_memif::{AddRing, Channel, Init, Message, VERSION};
use bellows_testkit::{eventually, scratch};

use super::*;
use crate::status::{PortStatus, State};
use crate::{Keeper, Queues, Start};

fn server(path: &Path, rings: u16) -> MemifConfig {
    let config = ServerConfig {
        name: "one".to_owned(),
        id: 0,
        mode: Mode::Ethernet,
        secret: [0; SECRET_LENGTH],
        rings,
        interrupts: true,
    };
    MemifConfig { socket: Address::Path(path.to_owned()), role: MemifRole::Server(config, FileAccess::default()) }
}

fn client(path: &Path, rings: u16) -> MemifConfig {
    let config = ClientConfig {
        name: "two".to_owned(),
        id: 0,
        mode: Mode::Ethernet,
        secret: [0; SECRET_LENGTH],
        rings,
        log2_size: 6,
        buffer_size: 512,
        interrupts: true,
    };
    MemifConfig { socket: Address::Path(path.to_owned()), role: MemifRole::Client(config) }
}

/// A port, with the test as its engine.
struct Port {
    queues: Queues<MemifQueue>,
    keeper: Keeper<MemifQueue>,
}

impl Port {
    fn start(config: MemifConfig) -> Port {
        let status = Arc::new(PortStatus::new("test".to_owned()).with_peer());
        let start = Start { may_be_missing: true, later: false };
        let (keeper, queues) = Keeper::start("test", MemifSource::new(config, false), start, status).unwrap();
        keeper.begin();
        Port { queues, keeper }
    }

    fn open(&mut self) -> Option<&mut Vec<MemifQueue>> {
        self.queues.sync();
        self.queues.get()
    }

    fn send(&mut self, queue: usize, bytes: &[u8]) {
        let packet = [Packet::from_bytes(bytes).unwrap()];
        eventually("a packet to be taken", || {
            self.open().is_some_and(|queues| queues[queue].send(&packet).is_ok_and(|taken| taken.count == 1))
        });
    }

    fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vector::new();
        let mut got = Vec::new();
        for queue in self.open().into_iter().flatten() {
            queue.receive(&mut packets, 100).unwrap();
            got.extend(packets.drain(usize::MAX).map(|packet| packet.bytes().to_vec()));
        }
        got
    }

    fn is_up(&mut self) -> bool {
        self.open().is_some()
    }
}

/// A packet each way on each queue.
fn talk(one: &mut Port, two: &mut Port) {
    eventually("both ends", || one.is_up() && two.is_up());
    for (from, to) in [(0, 1), (1, 0)] {
        let mut ends = [&mut *one, &mut *two];
        let [from, to] = ends.get_disjoint_mut([from, to]).unwrap();
        for queue in 0..from.open().unwrap().len() {
            let bytes = vec![queue as u8; 1_400];
            from.send(queue, &bytes);
            assert_eq!(to.receive(), [bytes]);
        }
    }
}

/// A path for a socket, in a folder that is removed with the first value.
fn place() -> (impl Sized, PathBuf) {
    let folder = scratch();
    let path = folder.path().join("s");
    (folder, path)
}

#[test]
fn either_end_comes_first_and_returns() {
    let (_folder, path) = place();
    let mut one = Port::start(server(&path, 3));
    assert!(!one.is_up());
    assert_eq!(one.keeper.status().snapshot().state, State::Waiting);
    let mut two = Port::start(client(&path, 2));
    assert!(two.is_up(), "a server that is there is found at once");
    talk(&mut one, &mut two);
    let details = one.keeper.status().snapshot().details;
    assert_eq!((details.queues.as_deref(), details.ring_size.as_deref()), (Some("2"), Some("64")));
    assert!(details.peer.is_some_and(|peer| peer.contains("interface two")));
    drop(two);
    eventually("the end of the client", || !one.is_up());
    let mut two = Port::start(client(&path, 5));
    talk(&mut one, &mut two);
    assert_eq!(two.open().unwrap().len(), 3);
    drop(one);
    eventually("the end of the server", || !two.is_up());
    let mut one = Port::start(server(&path, 1));
    talk(&mut one, &mut two);
    assert_eq!(two.keeper.status().snapshot().opened, 2);
}

/// Connections that say nothing, or nonsense, and clients that promise much keep no other client out for long.
#[test]
fn bad_clients_do_not_keep_good_ones_out() {
    let (_folder, path) = place();
    let mut one = Port::start(server(&path, 1));
    let connect = || Channel::new(seqpacket::connect(&Address::Path(path.clone())).unwrap());
    let _silent: Vec<Channel> = (0..3).map(|_| connect()).collect();
    let halfway = connect();
    let init = Init { version: VERSION, id: 0, mode: 0, secret: [0; SECRET_LENGTH], name: String::new() };
    halfway.send(&Message::Init(init), None).unwrap();
    let ring = AddRing { to_server: true, index: 9, region: 9, offset: 9, log2_size: 99, private_header: 9 };
    let wrong = connect();
    wrong.send(&Message::AddRing(ring), None).unwrap();
    let mut told = None;
    eventually("an answer to nonsense", || {
        if let Ok(Some((Message::Disconnect { text, .. }, _))) = wrong.receive() {
            told = Some(text);
        }
        told.is_some()
    });
    assert!(told.unwrap().contains("out of turn"));
    let mut two = Port::start(client(&path, 1));
    talk(&mut one, &mut two);
}

/// What a peer does in the rings ends its session alone; the port takes the next one.
#[test]
fn a_broken_ring_ends_the_session_and_nothing_else() {
    let (_folder, path) = place();
    let mut one = Port::start(server(&path, 1));
    let mut two = Port::start(client(&path, 1));
    talk(&mut one, &mut two);
    // As an engine does with an error.
    one.keeper.status().gives_up("the test wants it".to_owned());
    one.queues.give_up();
    eventually("the end at the other side", || {
        let ended = two.keeper.status().snapshot().last_error.is_some_and(|why| why.contains("disconnected"));
        let _ = two.is_up();
        ended
    });
    std::thread::sleep(Duration::from_millis(10));
    talk(&mut one, &mut two);
}

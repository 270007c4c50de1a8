use std::path::{Path, PathBuf};
use std::time::Duration;

use bellows_ipc::seqpacket;
use bellows_memif::{AddRing, Channel, Init, Message, VERSION};
use bellows_testkit::frames::{self, assert_same};
use bellows_testkit::skips::{is_left_out, is_skipped};
use bellows_testkit::testpmd::Launch;
use bellows_testkit::{eventually, programs, scratch};

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

/// DPDK's driver in both roles: frames come back byte by byte, also to one that comes after another was killed. They are
/// within one of its buffers, because 22.11 leaves flags of longer ones behind.
#[test]
fn dpdk_exchanges_frames_in_both_roles() {
    let test = "dpdk_exchanges_frames_in_both_roles";
    if is_left_out(test) || is_skipped(test, programs::missing(&["dpdk-testpmd", "stdbuf"])) {
        return;
    }
    let (folder, path) = place();
    let file = |name: &str| path.with_file_name(name);
    let sent = frames::random(5_000, |number| 60 + number * 7_919 % 1_455, 3);
    frames::write(&file("sent.pcap"), &sent);
    let secret = *b"mellon\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    for role in ["client", "server"] {
        let mut config = if role == "client" { server(&path, 1) } else { client(&path, 1) };
        match &mut config.role {
            MemifRole::Server(config, _) => (config.id, config.secret) = (5, secret),
            MemifRole::Client(config) => {
                (config.id, config.secret, config.log2_size, config.buffer_size) = (5, secret, 10, 2_048);
            }
        }
        let mut port = Port::start(config);
        for is_killed in [true, false] {
            let memif =
                format!("net_memif0,role={role},id=5,socket={},socket-abstract=no,secret=mellon", path.display());
            let pcap = format!(
                "net_pcap0,rx_pcap={},tx_pcap={}",
                file("sent.pcap").display(),
                file("returned.pcap").display()
            );
            let launch = Launch {
                cpus: "0".to_owned(),
                hugepages: false,
                megabytes: 256,
                devices: vec![memif, pcap],
                environment: Vec::new(),
                // The frames to replay must wait for the start.
                options: ["--total-num-mbufs=32768", "--no-flush-rx"].map(String::from).into(),
            };
            let mut testpmd = launch.start().unwrap();
            eventually("a connection", || port.is_up());
            testpmd.commands(&["set fwd io retry", "set burst tx delay 100 retry 10000", "start"]).unwrap();
            let (mut packets, mut waiting, mut returned) = (Vector::new(), Vec::new(), 0);
            eventually("all frames are back", || {
                // All that comes goes back, as fast as it comes.
                for _ in 0..1_000 {
                    let queue = &mut port.open().unwrap()[0];
                    queue.receive(&mut packets, 256).unwrap();
                    waiting.extend(packets.drain(usize::MAX));
                    let count = queue.send(&waiting).unwrap().count;
                    returned += count;
                    waiting.drain(..count);
                }
                returned == sent.len()
            });
            eventually("all frames at DPDK", || testpmd.forwarded().unwrap().port(1).1 == sent.len() as u64);
            assert_eq!(port.open().unwrap()[0].counts(), QueueCounts::default());
            if is_killed {
                testpmd.kill();
                eventually("the end of the connection", || !port.is_up());
                // DPDK does not replace an abandoned socket.
                let _ = (role == "server").then(|| std::fs::remove_file(&path));
            } else {
                testpmd.command("stop").unwrap();
                testpmd.quit().unwrap();
                assert_same(role, &frames::read(&file("returned.pcap")), &sent);
            }
        }
    }
    drop(folder);
}

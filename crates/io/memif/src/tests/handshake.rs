use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;

use bellows_ipc::seqpacket::{self, Address, Listener};
use bellows_ipc::socket;
use bellows_packet::{Packet, Vector};
use bellows_ports::QueueBell;
use bellows_sys::access::FileAccess;
use bellows_sys::wake::{WakeEvent, sleep_until_readable};
use bellows_testkit::scratch;

use crate::message::{AddRing, Hello, Init, Message, SECRET_LENGTH, VERSION};
use crate::ring::RingSpec;
use crate::{
    Channel, ClientConfig, ClientHandshake, HandshakeError, MAX_REGIONS, Mode, ServerConfig, ServerHandshake, Session,
};

fn pair() -> [Channel; 2] {
    let folder = scratch();
    let address = Address::Path(folder.path().join("s"));
    let listener = Listener::open(&address, FileAccess::default()).unwrap();
    let client = seqpacket::connect(&address).unwrap();
    [listener.accept().unwrap(), client].map(Channel::new)
}

fn server_config() -> ServerConfig {
    ServerConfig {
        name: "one".to_owned(),
        id: 3,
        mode: Mode::Ethernet,
        secret: [7; SECRET_LENGTH],
        rings: 2,
        interrupts: true,
    }
}

fn client_config() -> ClientConfig {
    ClientConfig {
        name: "two".to_owned(),
        id: 3,
        mode: Mode::Ethernet,
        secret: [7; SECRET_LENGTH],
        rings: 4,
        log2_size: 5,
        buffer_size: 256,
        interrupts: true,
    }
}

/// Both ends until one is done or fails.
fn shake(server: &ServerConfig, client: &ClientConfig) -> Result<[Session; 2], [Option<HandshakeError>; 2]> {
    let [near, far] = pair();
    let mut one = ServerHandshake::new(near, server).unwrap();
    let mut two = ClientHandshake::new(far);
    for _ in 0..100 {
        if let Err(error) = two.advance(client) {
            two.refuse(&error);
            return Err([one.advance(server, true).err(), Some(error)]);
        }
        match one.advance(server, true) {
            Ok(false) => {}
            Ok(true) => {
                let one = one.complete(server).map_err(|error| [Some(error), None])?;
                assert!(two.advance(client).unwrap());
                return Ok([one, two.complete().unwrap()]);
            }
            Err(error) => {
                one.refuse(&error);
                return Err([Some(error), two.advance(client).err()]);
            }
        }
    }
    panic!("the handshake does not end");
}

#[test]
fn both_ends_get_their_rings_and_wake_each_other() {
    let [mut server, mut client] =
        shake(&server_config(), &client_config()).unwrap_or_else(|errors| panic!("{errors:?}"));
    assert_eq!((server.peer.as_str(), client.peer.as_str()), ("two", "one"));
    assert_eq!(
        [&server, &client].map(|one| (one.receivers.len(), one.transmitters.len(), one.ring_size)),
        [(2, 2, 32); 2]
    );
    for (from, to) in [(0, 1), (1, 0)] {
        let mut ends = [&mut server, &mut client];
        let [from, to] = ends.get_disjoint_mut([from, to]).unwrap();
        for ring in 0..2 {
            let bell = to.receivers[ring].bell();
            let wakes = |bell: &crate::RingBell| {
                let wait = Some(std::time::Duration::from_millis(200));
                sleep_until_readable(&[bell.descriptor().unwrap()], wait).unwrap()[0]
            };
            let mut send = || from.transmitters[ring].send(&[Packet::from_bytes(&[ring as u8; 600]).unwrap()]).unwrap();
            assert_eq!(send().count, 1);
            bell.arm();
            assert!(bell.word().unwrap().load(std::sync::atomic::Ordering::Relaxed) & bell.mask() != bell.quiet());
            assert_eq!(send().count, 1);
            assert!(wakes(&bell));
            bell.disarm();
            let mut packets = Vector::new();
            to.receivers[ring].receive(&mut packets, 64).unwrap();
            let got: Vec<Vec<u8>> = packets.drain(usize::MAX).map(|packet| packet.bytes().to_vec()).collect();
            assert_eq!(got, vec![vec![ring as u8; 600]; 2]);
        }
    }
    assert_eq!(server.channel.ended(), None);
    client.channel.disconnect("bye");
    assert_eq!(server.channel.ended().unwrap(), "the other side has disconnected: bye");
    drop(server);
    assert!(client.channel.ended().is_some());
}

#[test]
fn ends_that_do_not_fit_tell_each_other_why() {
    for (change, said) in [
        (ClientConfig { id: 4, ..client_config() }, "no interface with id 4"),
        (ClientConfig { secret: [8; SECRET_LENGTH], ..client_config() }, "the secret is wrong"),
        (ClientConfig { mode: Mode::Ip, ..client_config() }, "the mode is 1"),
    ] {
        let errors = shake(&server_config(), &change).err().unwrap();
        let texts = errors.map(|error| error.unwrap().to_string());
        assert!(texts.iter().all(|text| text.contains(said)), "{texts:?}");
    }
}

/// A client that sends these messages, each after the answer to the one before. Returns the server's error.
fn against_server(messages: Vec<(Message, Option<OwnedFd>)>) -> HandshakeError {
    let [near, far] = pair();
    let config = server_config();
    let mut server = ServerHandshake::new(near, &config).unwrap();
    for (message, file) in messages {
        far.send(&message, file.as_ref().map(AsFd::as_fd)).unwrap();
        match server.advance(&config, true) {
            Ok(false) => {}
            Ok(true) => return server.complete(&config).err().unwrap(),
            Err(error) => return error,
        }
    }
    panic!("the server accepts it");
}

fn init() -> (Message, Option<OwnedFd>) {
    let init = Init { version: VERSION, id: 3, mode: 0, secret: [7; SECRET_LENGTH], name: String::new() };
    (Message::Init(init), None)
}

fn memory(length: u64) -> OwnedFd {
    bellows_ipc::memfd::create(length).unwrap().into()
}

fn region(index: u16, size: u64) -> (Message, Option<OwnedFd>) {
    (Message::AddRegion { index, size }, Some(memory(8_192)))
}

fn ring(to_server: bool, index: u16, offset: u32, log2_size: u8) -> (Message, Option<OwnedFd>) {
    let ring = AddRing { to_server, index, region: 0, offset, log2_size, private_header: 0 };
    let event = WakeEvent::new().unwrap();
    (Message::AddRing(ring), Some(event.as_fd().try_clone_to_owned().unwrap()))
}

fn connect() -> (Message, Option<OwnedFd>) {
    (Message::Connect(String::new()), None)
}

#[test]
fn a_server_survives_every_wrong_client() {
    let header = AddRing { to_server: true, index: 0, region: 0, offset: 0, log2_size: 3, private_header: 1 };
    let [no_event, bad_event] = [None, Some(memory(64))].map(|file| (ring(true, 0, 0, 3).0, file));
    let many =
        |count: u16| std::iter::once(init()).chain((0..count).map(|index| region(index, 64))).collect::<Vec<_>>();
    let other_version = Init { version: 0x100, id: 3, mode: 0, secret: [7; SECRET_LENGTH], name: String::new() };
    for (messages, said) in [
        (vec![region(0, 64)], "out of turn"),
        (vec![ring(true, 0, 0, 3)], "out of turn"),
        (vec![connect()], "out of turn"),
        (vec![(Message::Ack, None)], "out of turn"),
        (vec![(Message::Init(other_version), None)], "version"),
        (vec![init(), init()], "INIT twice"),
        (vec![init(), region(1, 64)], "region 1 out of turn"),
        (vec![init(), region(0, 0)], "0 bytes"),
        (vec![init(), region(0, 8_193)], "its file 8192"),
        (vec![init(), region(0, u64::MAX)], "cannot be mapped"),
        (vec![init(), (region(0, 64).0, None)], "without its file"),
        (vec![init(), (region(0, 64).0, Some(File::open("/dev/zero").unwrap().into()))], "cannot be mapped"),
        (many(MAX_REGIONS + 1), "out of turn"),
        (vec![init(), ring(true, 1, 0, 3)], "ring 1 out of turn"),
        (vec![init(), ring(true, 0, 0, 3), ring(true, 1, 0, 3), ring(true, 2, 0, 3)], "ring 2 out of turn"),
        (vec![init(), (Message::AddRing(header), ring(true, 0, 0, 3).1)], "headers of 1 bytes"),
        (vec![init(), no_event], "without its event"),
        (vec![init(), bad_event], "not an eventfd"),
        (vec![init(), connect()], "at least one ring"),
        (vec![init(), region(0, 8_192), ring(true, 0, 0, 3), ring(false, 0, 0, 3), connect()], "begins with 0x0"),
        (vec![init(), region(0, 8_192), ring(true, 0, 0, 15), ring(false, 0, 0, 3), connect()], "2^15"),
        (vec![init(), region(0, 8_192), ring(true, 0, 0, 255), ring(false, 0, 0, 3), connect()], "2^255"),
        (vec![init(), region(0, 8_192), ring(true, 0, 4, 3), ring(false, 0, 0, 3), connect()], "multiple of 8"),
        (vec![init(), region(0, 8_192), ring(true, 0, 8_192, 3), ring(false, 0, 0, 3), connect()], "not in a region"),
        (
            vec![init(), region(0, 8_192), ring(true, 0, u32::MAX - 7, 3), ring(false, 0, 0, 3), connect()],
            "not in a region",
        ),
        (vec![init(), ring(true, 0, 0, 3), ring(false, 0, 0, 3), connect()], "not in a region"),
        (vec![(Message::Disconnect { code: 1, text: "no".to_owned() }, None)], "no"),
    ] {
        let error = against_server(messages).to_string();
        assert!(error.contains(said), "{error}, and not {said}");
    }
}

#[test]
fn a_second_client_is_refused() {
    let [near, far] = pair();
    let config = server_config();
    let mut server = ServerHandshake::new(near, &config).unwrap();
    far.send(&init().0, None).unwrap();
    let error = server.advance(&config, false).unwrap_err().to_string();
    assert!(error.contains("another client"), "{error}");
    assert!(!server.is_admitted());
}

#[test]
fn bytes_that_are_no_message_end_a_connection() {
    let [near, far] = pair();
    for (bytes, files, said) in [
        (vec![1; 127], 0, "127 bytes"),
        (vec![1; 400], 0, "129 bytes"),
        (vec![0; 128], 0, "type 0"),
        (Message::Ack.write().to_vec(), 3, "3 descriptors"),
    ] {
        let (other, _end) = UnixDatagram::pair().unwrap();
        socket::send(&far, &bytes, &vec![other.as_fd(); files]).unwrap();
        let error = near.receive().unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert!(near.receive().unwrap().is_none());
    drop(far);
    assert_eq!(near.receive().unwrap_err().to_string(), "the other side has closed the connection");
}

/// A client that does not read its answers holds nobody up.
#[test]
fn a_server_does_not_wait_for_a_client_that_reads_nothing() {
    let [near, far] = pair();
    let mut sent = 0;
    while near.send(&Message::Ack, None).is_ok() {
        sent += 1;
        assert!(sent < 100_000);
    }
    assert_eq!(near.send(&Message::Ack, None).unwrap_err().to_string(), "the other side does not read its messages");
    drop(far);
}

fn hello() -> Hello {
    Hello {
        name: String::new(),
        min_version: VERSION,
        max_version: VERSION,
        max_region: 0,
        max_s2c: 0,
        max_c2s: 1,
        max_log2_size: 2,
    }
}

#[test]
fn a_client_takes_what_the_server_allows() {
    let [near, far] = pair();
    let config = client_config();
    let mut client = ClientHandshake::new(far);
    near.send(&Message::Hello(hello()), None).unwrap();
    let (mut rings, mut memory) = (Vec::new(), None);
    loop {
        assert!(!client.advance(&config).unwrap());
        match near.receive().unwrap() {
            Some((Message::Connect(_), _)) => break,
            Some((Message::AddRing(ring), Some(_))) => rings.push((ring.to_server, ring.index, ring.log2_size)),
            Some((Message::AddRegion { index: 0, .. }, Some(file))) => memory = Some(file),
            Some((Message::Init(_), None)) => {}
            other => panic!("{other:?}"),
        }
        near.send(&Message::Ack, None).unwrap();
    }
    assert_eq!(rings, [(true, 0, 2), (true, 1, 2), (false, 0, 2)]);
    // DPDK's server begins all rings at 0 now; the client offers its buffers afterwards.
    let memory = memory.unwrap();
    let head = u64::from(2 * RingSpec::length(2)) + 6;
    memory.write_all_at(&[0; 2], head).unwrap();
    near.send(&Message::Connected("x".to_owned()), None).unwrap();
    assert!(client.advance(&config).unwrap());
    assert_eq!(client.complete().unwrap().ring_size, 4);
    let mut offered = [0; 2];
    memory.read_exact_at(&mut offered, head).unwrap();
    assert_eq!(u16::from_ne_bytes(offered), 4);
}

#[test]
fn a_client_survives_every_wrong_server() {
    let (hello, config) = (|| Message::Hello(hello()), client_config());
    let old = Message::Hello(Hello { min_version: 0x100, max_version: 0x1ff, ..self::hello() });
    for (messages, said) in [
        (vec![Message::Ack], "out of turn"),
        (vec![Message::Connected(String::new())], "out of turn"),
        (vec![hello(), hello()], "out of turn"),
        (vec![hello(), Message::Connected(String::new())], "out of turn"),
        (vec![old], "versions 0x0100 to 0x01ff"),
        (vec![init().0], "out of turn"),
        (vec![Message::Disconnect { code: 0, text: "busy".to_owned() }], "busy"),
        (std::iter::once(hello()).chain((0..20).map(|_| Message::Ack)).collect(), "out of turn"),
    ] {
        let [near, far] = pair();
        let mut client = ClientHandshake::new(far);
        let error = messages.iter().find_map(|message| {
            near.send(message, None).unwrap();
            client.advance(&config).err()
        });
        let error = error.expect("the client accepts it").to_string();
        assert!(error.contains(said), "{error}, and not {said}");
    }
}

#[test]
fn memory_beyond_what_offsets_reach_is_refused() {
    let small = client_config().memory().unwrap();
    assert!(small > 8 * (RingSpec::length(5) + 32 * 256), "{small}");
    assert_eq!(ClientConfig { rings: 32, log2_size: 14, buffer_size: 65_536, ..client_config() }.memory(), None);
}

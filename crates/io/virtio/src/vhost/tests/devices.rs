//! A front end, and devices that violate the protocol.

use std::cell::Cell;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};

use super::pairs::Front;
use super::peer::{Folder, Peer, until};
use crate::Features;
use crate::vhost::Mode;
use crate::vhost::message::{ProtocolFeatures, VhostMessage, flags, header};
use crate::vhost::request::VhostRequest;

const FEATURES: u64 = Features::VERSION_1.0 | Features::PROTOCOL_FEATURES.0 | Features::MAC.0;

/// A device's response to the next request.
enum Answer {
    /// The response of a good device.
    Good,
    Body(Vec<u8>),
    Silence,
    Close,
    Raw(Vec<u8>),
}

fn good(message: &VhostMessage, acknowledges: bool) -> Option<Vec<u8>> {
    let number = |number: u64| Some(number.to_le_bytes().to_vec());
    match VhostRequest::of(message.request).unwrap() {
        VhostRequest::GET_FEATURES => number(FEATURES),
        VhostRequest::GET_PROTOCOL_FEATURES if acknowledges => number(ProtocolFeatures::BACKEND.0),
        VhostRequest::GET_PROTOCOL_FEATURES => number(ProtocolFeatures::CONFIG.0),
        VhostRequest::GET_QUEUE_NUM => number(1),
        VhostRequest::GET_CONFIG => Some([&[0; 4][..], &6_u32.to_le_bytes(), &[0; 4], &[2, 0, 0, 0, 0, 9]].concat()),
        _ if message.needs_reply() => number(0),
        _ => None,
    }
}

/// Serves one connection like a good device, except for one request.
fn device(listener: &UnixListener, acknowledges: bool, answer: impl Fn(VhostRequest) -> Answer) {
    let socket: UnixStream = listener.accept().unwrap().0;
    socket.set_nonblocking(true).unwrap();
    let mut peer = Peer::new(socket);
    while let Some(message) = peer.receive() {
        let reply = |body: &[u8]| [&header(message.request, flags::REPLY, body.len())[..], body].concat();
        match answer(VhostRequest::of(message.request).unwrap()) {
            Answer::Good => {
                if let Some(body) = good(&message, acknowledges) {
                    peer.socket.write_all(&reply(&body)).unwrap();
                }
            }
            Answer::Body(body) => peer.socket.write_all(&reply(&body)).unwrap(),
            Answer::Raw(bytes) => peer.socket.write_all(&bytes).unwrap(),
            Answer::Silence => {}
            Answer::Close => return,
        }
    }
}

/// The name of an error, the request after which it is made, and the response.
type Case = (&'static str, VhostRequest, fn() -> Answer);

#[test]
fn each_kind_of_bad_device_is_named_and_tried_again() {
    let cases: &[Case] = &[
        ("message_size", VhostRequest::GET_FEATURES, || Answer::Body(vec![0; 7])),
        ("message_size", VhostRequest::GET_PROTOCOL_FEATURES, || Answer::Body(vec![])),
        ("message_too_long", VhostRequest::GET_FEATURES, || Answer::Raw(header(1, 4, 1 << 20).to_vec())),
        ("message_version", VhostRequest::GET_FEATURES, || Answer::Raw(vec![1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0])),
        ("message_unexpected", VhostRequest::GET_FEATURES, || Answer::Raw(header(2, 4, 0).to_vec())),
        ("message_unexpected", VhostRequest::GET_FEATURES, || Answer::Raw(header(1, 0, 0).to_vec())),
        ("refused", VhostRequest::SET_MEM_TABLE, || Answer::Body(1_u64.to_le_bytes().to_vec())),
        ("refused", VhostRequest::SET_FEATURES, || Answer::Close),
        ("unanswered", VhostRequest::SET_FEATURES, || Answer::Silence),
    ];
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let mut front = Front::start(&folder.socket(), Mode::Client);
    for (name, request, bad) in cases {
        let count = |front: &Front| front.status.snapshot().errors.iter().map(|(_, count)| count).sum::<u64>();
        let before = count(&front);
        device(&listener, true, |asked| if asked == *request { bad() } else { Answer::Good });
        until(name, || count(&front) > before);
        let snapshot = front.status.snapshot();
        assert!(snapshot.errors.iter().any(|(known, _)| known == name), "{name}: {snapshot:?}");
        assert_eq!(snapshot.connections, 0);
    }
    // Finally a good device that acknowledges nothing, and then sends a message that was not requested.
    for acknowledges in [false, true] {
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| device(&listener, acknowledges, |_| Answer::Good));
            let driver = front.wait_for_driver();
            assert_eq!((driver.negotiated.pairs, driver.negotiated.mac), (1, Some([2, 0, 0, 0, 0, 9])));
            front.port.give_up();
            serving.join().unwrap();
        });
    }
}

#[test]
fn a_device_that_speaks_without_being_asked_is_left() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let mut front = Front::start(&folder.socket(), Mode::Client);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Once: the front end may be gone before the next one.
            let has_spoken = Cell::new(false);
            device(&listener, false, |asked| match asked {
                VhostRequest::SET_VRING_ENABLE if !has_spoken.replace(true) => Answer::Raw(header(1, 4, 0).to_vec()),
                _ => Answer::Good,
            });
        });
        until("the end of the device", || front.status.snapshot().errors.iter().any(|e| e.0 == "message_unexpected"));
        front.wait_for_none();
    });
}

/// A device that accepts a connection and then is silent does not keep the front end from ending.
#[test]
fn a_silent_device_does_not_delay_the_end() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let front = Front::start(&folder.socket(), Mode::Client);
    let _socket = listener.accept().unwrap();
    let start = std::time::Instant::now();
    drop(front);
    assert!(start.elapsed() < super::peer::LIMIT);
}

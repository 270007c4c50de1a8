use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use bellows_engine::App;
use bellows_rig::Rig;
use bellows_testkit::wait::Deadline;
use bellows_testkit::{eventually, scratch};
use serde_json::{Value, json};

use super::*;

fn configured(keys: Value) -> Result<UnixSocket, String> {
    let config = serde_json::from_value(keys).map_err(|error| error.to_string())?;
    UnixSocket::configure(config, &Context::default()).map_err(|error| format!("{error:?}"))
}

fn rig(keys: Value) -> Rig {
    Rig::new(configured(keys).unwrap(), &["input"], &["output"])
}

/// Two networks send each other frames of many lengths, and lose none.
fn talk(near: &mut Rig, far: &mut Rig) {
    let deadline = Deadline::new("the talk");
    while far.received("output").is_empty() {
        deadline.check();
        near.send("input", [[1; 60]]);
        near.breathe();
        far.breathe();
    }
    let frames: Vec<Vec<u8>> = (0..100u8).map(|index| vec![index + 2; 60 + usize::from(index) * 80]).collect();
    for turn in 0..2 {
        let (from, to) = if turn == 0 { (&mut *near, &mut *far) } else { (&mut *far, &mut *near) };
        from.send("input", &frames);
        let mut came = Vec::new();
        while came.len() < frames.len() {
            deadline.check();
            from.breathe();
            to.breathe();
            came.extend(to.received("output").into_iter().filter(|packet| packet[0] != 1));
        }
        assert!(came.iter().zip(&frames).all(|(packet, frame)| packet[..] == frame[..]));
    }
}

#[test]
fn two_apps_talk_over_a_stream_and_over_datagrams() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    let mut server = rig(json!({ "socket": path("s") }));
    let mut client = rig(json!({ "socket": path("s"), "mode": "client" }));
    talk(&mut server, &mut client);
    let mut near = rig(json!({ "kind": "dgram", "socket": path("a"), "peer": path("b") }));
    let mut far = rig(json!({ "kind": "dgram", "socket": path("b"), "peer": path("a") }));
    talk(&mut near, &mut far);
}

/// The rest of the frames goes as soon as the other side reads, though no packets follow.
#[test]
fn the_rest_of_a_frame_needs_no_next_packet() {
    const LENGTH: usize = 1_000;
    let folder = scratch();
    let socket = folder.path().join("s");
    let mut server = rig(json!({ "socket": socket }));
    let mut client = UnixStream::connect(&socket).unwrap();
    client.set_nonblocking(true).unwrap();
    let deadline = Deadline::new("the frames");
    let mut buffer = vec![0; 10_000];
    let (mut sent, mut came) = (0, 0);
    while came == 0 {
        deadline.check();
        server.send("input", [[7; LENGTH]]);
        server.breathe();
        sent += 1;
        came += client.read(&mut buffer).unwrap_or(0);
    }
    let dropped = server.counts().dropped() as usize;
    // More than the socket holds, and no more than the port takes in addition.
    server.send("input", vec![[7; LENGTH]; 250]);
    sent += 250;
    while came < (sent - dropped) * (4 + LENGTH) {
        deadline.check();
        server.breathe();
        came += client.read(&mut buffer).unwrap_or(0);
    }
    assert_eq!(server.counts().dropped() as usize, dropped);
}

#[test]
fn without_another_side_packets_are_dropped_by_name_and_the_status_says_why() {
    let folder = scratch();
    let path = folder.path().join("t");
    let mut rig = rig(json!({ "socket": folder.path().join("s") }));
    rig.send("input", vec![[0; 60]; 10]);
    rig.breathe();
    assert_eq!(rig.counts().drops["no_interface"], 10);

    let mut app = configured(json!({ "socket": path, "socket_mode": "0620" })).unwrap();
    app.start(None).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o620);
    let status = || app.status().unwrap().status();
    assert_eq!((&status()["state"], &status()["place"]), (&json!("waiting"), &json!(path)));
    assert!(status()["waits"].as_str().unwrap().contains("nobody has connected"), "{:#}", status());
    let _client = UnixStream::connect(&path).unwrap();
    eventually("the connection", || status()["state"] == "up");
    assert_eq!(status()["details"]["mode"], "server");
}

/// A new configuration takes the socket over, whatever the kind was before.
#[test]
fn a_reload_opens_the_socket_anew() {
    let folder = scratch();
    let path = |name: &str| folder.path().join(name);
    let mut old = configured(json!({ "socket": path("s") })).unwrap();
    old.start(None).unwrap();
    let mut client = UnixStream::connect(path("s")).unwrap();
    let stream = json!({ "socket": path("s"), "socket_mode": "0600" });
    let dgram = json!({ "socket": path("s"), "kind": "dgram", "peer": path("p") });
    for keys in [stream, dgram] {
        let mut new = configured(keys).unwrap();
        new.start(Some(&mut old)).unwrap();
        new.begin();
        old.stop().unwrap();
        eventually("the socket", || new.status().unwrap().status()["waits"].is_string() && path("s").exists());
        old = new;
    }
    // It is reset if nobody has accepted it.
    let end = client.read(&mut [0; 1]);
    assert!(end.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |read| *read == 0), "{end:?}");
    assert!(client.write_all(&[0; 8]).is_err());
    drop(old);
    assert!(!path("s").exists());
}

#[test]
fn keys_that_do_not_go_together_are_refused() {
    let wrong = [
        (json!({ "socket": "s", "peer": "p" }), "peer"),
        (json!({ "socket": "s", "kind": "dgram" }), "peer"),
        (json!({ "socket": "s", "kind": "dgram", "peer": "p", "mode": "server" }), "mode"),
        (json!({ "socket": "s", "kind": "dgram", "peer": "s" }), "same socket"),
        (json!({ "socket": "s", "kind": "dgram", "peer": "p".repeat(200) }), "bytes"),
        (json!({ "socket": "s", "mode": "client", "socket_mode": "0600" }), "socket_mode"),
        (json!({ "socket": "/" }), "file name"),
        (json!({ "socket": "s", "kind": "seqpacket" }), "seqpacket"),
    ];
    for (keys, part) in wrong {
        let error = configured(keys.clone()).err().unwrap_or_else(|| panic!("{keys} is accepted"));
        assert!(error.contains(part), "{keys}: {error}");
    }
    let count = |keys: Value| UnixSocket::resources(&serde_json::from_value(keys).unwrap(), &Context::default()).len();
    assert_eq!(count(json!({ "socket": "s", "mode": "client" })), 1);
    assert_eq!(count(json!({ "socket": "s", "kind": "dgram", "peer": "p" })), 2);
}

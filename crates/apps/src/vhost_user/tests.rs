use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use bellows_engine::testing::Rig;

fn app(socket: &Path, disable: Vec<VirtioOption>) -> VhostUser {
    let config = Config {
        socket: socket.to_owned(),
        mode: Side::Server,
        queues: 1,
        mac: None,
        disable,
        socket_mode: None,
        socket_group: None,
        peer_users: Vec::new(),
        allow_file_memory: false,
        confine: true,
    };
    VhostUser::configure(config, &Context::default()).unwrap()
}

fn connections(app: &VhostUser) -> u64 {
    app.status().unwrap().status()["connections"].as_u64().unwrap()
}

fn wait(what: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !what() && Instant::now() < deadline {
        std::thread::yield_now();
    }
    what()
}

#[test]
fn options_that_change_keep_the_socket_and_a_reload_that_fails_gives_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vm.sock");
    let (mut old, mut new) = (app(&socket, Vec::new()), app(&socket, vec![VirtioOption::Packed]));
    old.start(None).unwrap();
    let first = UnixStream::connect(&socket).unwrap();
    assert!(wait(|| connections(&old) == 1));

    new.start(Some(&mut old)).unwrap();
    let second = UnixStream::connect(&socket).unwrap();
    assert!(wait(|| connections(&new) == 1), "new connections come to the new device");
    drop((first, second));

    new.give_back(&mut old);
    let third = UnixStream::connect(&socket).unwrap();
    assert!(wait(|| connections(&old) == 2), "and to the old one again");
    drop((third, new));
    assert!(socket.exists());
    drop(old);
    assert!(!socket.exists());
}

#[test]
fn a_device_that_does_not_change_is_handed_on_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vm.sock");
    let (mut old, mut new) = (app(&socket, Vec::new()), app(&socket, Vec::new()));
    old.start(None).unwrap();
    let _client = UnixStream::connect(&socket).unwrap();
    assert!(wait(|| connections(&old) == 1));
    new.start(Some(&mut old)).unwrap();
    drop(old);
    assert_eq!(connections(&new), 1);
    let other = app(&socket, Vec::new()).start(None).unwrap_err().to_string();
    assert!(other.contains("somebody listens at") && other.contains("vm.sock"), "{other}");
}

#[test]
fn without_a_driver_packets_are_dropped_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(app(&folder.path().join("vm.sock"), Vec::new()), &["input"], &["output"]);
    rig.send("input", vec![[0; 60]; 10]);
    rig.breathe();
    assert_eq!(rig.counts().dropped(), 10);
}

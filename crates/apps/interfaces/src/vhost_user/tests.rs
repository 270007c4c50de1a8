use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use bellows_engine::App;
use bellows_rig::Rig;
use bellows_testkit::scratch;

use super::*;

fn app(socket: &Path, disable: Vec<VirtioOption>) -> VhostUser {
    let config = Config {
        socket: socket.to_owned(),
        mode: Side::Server,
        queues: Queues::default(),
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
    let folder = scratch();
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
    let folder = scratch();
    let socket = folder.path().join("vm.sock");
    let (mut old, mut new) = (app(&socket, Vec::new()), app(&socket, Vec::new()));
    old.start(None).unwrap();
    let _client = UnixStream::connect(&socket).unwrap();
    assert!(wait(|| connections(&old) == 1));
    new.start(Some(&mut old)).unwrap();
    drop(old);
    assert_eq!(connections(&new), 1);
    let other = app(&socket, Vec::new()).start(None).unwrap_err().to_string();
    assert!(other.contains("already listens at") && other.contains("vm.sock"), "{other}");
}

#[test]
fn without_a_driver_packets_are_dropped_by_name() {
    let folder = scratch();
    let mut rig = Rig::new(app(&folder.path().join("vm.sock"), Vec::new()), &["input"], &["output"]);
    rig.send("input", vec![[0; 60]; 10]);
    rig.breathe();
    assert_eq!(rig.counts().dropped(), 10);
}

#[test]
fn the_keys_that_guard_a_socket_take_effect_and_are_told() {
    use std::os::unix::fs::PermissionsExt;
    let folder = scratch();
    let socket = folder.path().join("vm.sock");
    let configured = |mut keys: serde_json::Value| {
        keys["socket"] = serde_json::json!(socket);
        let config = serde_json::from_value(keys).unwrap();
        VhostUser::configure(config, &Context::default()).map_err(|error| format!("{error:?}"))
    };
    let keys = serde_json::json!({ "socket_mode": "0620", "peer_users": [4_000_000_000_u32], "confine": false });
    let mut app = configured(keys).unwrap();
    app.start(None).unwrap();
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o620);
    let _client = UnixStream::connect(&socket).unwrap();
    assert!(wait(|| app.status().unwrap().status()["errors"]["peer_refused"] == 1));
    let status = app.status().unwrap().status();
    assert_eq!((&status["peer"], &status["connections"]), (&serde_json::Value::Null, &0.into()));
    assert_eq!(status["confinement"]["confined"], false);
    assert!(status["confinement"]["reason"].as_str().unwrap().contains("`confine`"));
    assert!(status["engine_faults"]["minor"].is_u64());
    drop(app);

    let mut app = configured(serde_json::json!({})).unwrap();
    app.start(None).unwrap();
    let _client = UnixStream::connect(&socket).unwrap();
    assert!(wait(|| app.status().unwrap().status()["peer"]["pid"] == std::process::id()));
    assert!(wait(|| app.status().unwrap().status()["confinement"]["denied"] == serde_json::json!({})));
    let error = configured(serde_json::json!({ "mode": "client", "socket_group": 0 })).err().unwrap();
    assert!(error.contains("socket_group"), "{error}");
}

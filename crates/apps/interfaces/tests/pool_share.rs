//! Packets that wait for a port which takes none leave part of the pool to the others.

use std::time::{Duration, Instant};

use bellows_config::{Configure, Context};
use bellows_interfaces::vhost_user::VhostUser;
use bellows_interfaces::virtio_user::VirtioUser;
use bellows_packet::pool;
use bellows_rig::Rig;
use bellows_testkit::scratch;
use serde_json::json;

const PACKETS: usize = 1_200;

fn rig<A: Configure>(socket: &std::path::Path) -> Rig {
    let config = serde_json::from_value(json!({ "socket": socket })).unwrap();
    Rig::new(A::configure(config, &Context::default()).unwrap(), &["input"], &["output"])
}

#[test]
fn a_driver_that_takes_no_packets_cannot_have_the_whole_pool() {
    pool::init(pool::Config { packets: PACKETS, ..pool::Config::default() }).unwrap();
    let folder = scratch();
    let socket = folder.path().join("s");
    let (mut device, mut driver) = (rig::<VhostUser>(&socket), rig::<VirtioUser>(&socket));
    let deadline = Instant::now() + Duration::from_secs(30);
    while driver.received("output").is_empty() {
        assert!(Instant::now() < deadline, "{:?}", device.counts());
        device.send("input", [b"hello"]);
        device.breathe();
        driver.breathe();
        std::thread::sleep(Duration::from_micros(200));
    }
    let before = device.counts();
    assert_eq!(before.drops["pool_low"], 0);
    let left = || PACKETS - pool::usage().in_use;
    // The driver stops breathing: its buffers fill up, and then the link.
    for _ in 0..30 {
        device.send("input", [[7; 60]; 50]);
        device.breathe();
        assert!(left() >= PACKETS / 3, "{} buffers are left of {PACKETS}", left());
    }
    let after = device.counts();
    let dropped = after.drops["pool_low"] as usize;
    let waiting = pool::usage().in_use;
    assert!(dropped > 500 && waiting > PACKETS / 3, "{dropped} dropped, {waiting} wait");
    // The remaining packets come when the driver takes packets again.
    let mut came = 0;
    while came < 1_500 - dropped {
        assert!(Instant::now() < deadline, "{came} came, {dropped} were dropped of 1,500");
        driver.breathe();
        device.breathe();
        came += driver.received("output").iter().filter(|packet| packet.len() == 60).count();
    }
    assert_eq!((came, device.counts().drops["pool_low"] as usize), (1_500 - dropped, dropped));
}

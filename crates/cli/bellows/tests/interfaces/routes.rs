//! Routes that are added, and replaced, while a host pings through the router.

use std::fmt::Write;
use std::thread;
use std::time::Duration;

use bellows_testkit::netns;
use bellows_testkit::soak;

use crate::bridge::is_missing;
use crate::router::Routed;

/// An address behind the second host, to which the router has no route at first.
const BEHIND: &str = "100.64.0.9";

/// How long many routes may take.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// So many routes, those of the pings among them.
fn table(routes: u32, first: u32) -> String {
    let mut text = String::from("100.64.0.0/10 via 198.51.100.2\n");
    for number in 0..routes {
        let [a, b, c, d] = (first + number * 16).to_be_bytes();
        writeln!(text, "{a}.{b}.{c}.{d}/28 via 198.51.100.2").unwrap();
    }
    text
}

#[test]
fn routes_change_while_a_host_pings() {
    if is_missing("routes::routes_change_while_a_host_pings", &[]) {
        return;
    }
    let routed = Routed::new();
    let running = routed.start(&[]);
    routed.hosts[1].run(&format!("ip address add {BEHIND}/32 dev lo"));
    let client = routed.hosts[0].namespace().to_owned();
    let ping = move |count: u32, interval: f32| {
        let client = client.clone();
        thread::spawn(move || match netns::run(&client, &format!("ping -n -c {count} -i {interval} -W 5 {BEHIND}")) {
            Ok(said) | Err(said) => said,
        })
    };
    let bellows = |words: &str| routed.sandbox.bellows(&words.split_whitespace().collect::<Vec<_>>());

    let pings = ping(30, 0.2);
    thread::sleep(Duration::from_secs(2));
    bellows(&format!("route add {BEHIND}/32 via 198.51.100.2")).success();
    let said = pings.join().unwrap();
    assert!(said.contains("Destination Net Unreachable") && said.contains("bytes from"), "{said}");
    let found = bellows(&format!("route lookup {BEHIND} --json")).success().json();
    assert_eq!((&found["ways"][0]["interface"], &found["ways"][0]["kind"]), (&"right".into(), &"complete".into()));
    let state = found["ways"][0]["state"].as_str().unwrap_or_default().to_owned();
    assert!(state == "reachable" || state == "probe", "{found:#}");

    routed.sandbox.write("one.txt", &table(20_000, 0x1400_0000));
    routed.sandbox.write("other.txt", &table(20_000, 0x2800_0000));
    bellows("route replace-all -f one.txt").success();
    let pings = ping(200, 0.02);
    for _ in 0..3 {
        bellows("route replace-all -f other.txt").success();
        bellows("route replace-all -f one.txt").success();
    }
    let said = pings.join().unwrap();
    assert!(said.contains(" 0% packet loss"), "{said}");

    // A neighbour that is forgotten is asked again.
    bellows("neighbour flush dev right").success();
    let said = ping(5, 0.2).join().unwrap();
    assert!(said.contains(" 0% packet loss"), "{said}");
    bellows("route flush proto control").success();
    let said = ping(1, 1.0).join().unwrap();
    assert!(said.contains("Destination Net Unreachable"), "{said}");
    routed.stop(running);
}

#[test]
fn a_file_of_many_routes_is_carried_out_while_a_host_pings() {
    if is_missing("routes::a_file_of_many_routes_is_carried_out_while_a_host_pings", &[]) {
        return;
    }
    let routed = Routed::new();
    let running = routed.start(&[]);
    routed.hosts[1].run(&format!("ip address add {BEHIND}/32 dev lo"));
    let bellows = |words: &str| routed.sandbox.bellows(&words.split_whitespace().collect::<Vec<_>>());
    bellows(&format!("route add {BEHIND}/32 via 198.51.100.2")).success();
    routed.sandbox.write("many.txt", &table(soak::routes(), 0x1400_0000));
    let client = routed.hosts[0].namespace();
    thread::scope(|scope| {
        let pings = scope.spawn(|| netns::run(client, &format!("ping -n -q -c 300 -i 0.01 -W 5 {BEHIND}")));
        let said = bellows("route add -f many.txt -j").success().json();
        assert_eq!((&said["added"], &said["failed"]), (&(soak::routes() + 1).into(), &0.into()), "{said:#}");
        let fib = bellows("show fib --json").success().json();
        assert_eq!(fib["vrfs"][0]["ipv4"]["origins"]["control"], soak::routes() + 2);
        let said = bellows("route replace -f many.txt -j").success().json();
        assert_eq!(said["replaced"], soak::routes() + 1, "{said:#}");
        let said = bellows("route flush root 16.0.0.0/4 -j").success().json();
        assert!(said["deleted"].as_u64() > Some(u64::from(soak::routes().min(1 << 20) / 2)), "{said:#}");
        let said = pings.join().unwrap().unwrap();
        assert!(said.contains(" 0% packet loss"), "{said}");
    });
    routed.stop(running);
}

//! Routers whose apps a network file names one by one: the loader forwards usual packets in one loop, and nothing else
//! changes.

use std::collections::BTreeMap;
use std::path::Path;

use bellows_apps::registry;
use bellows_config::{Overrides, load_str};
use bellows_engine::{Network, Settings};
use bellows_exercise::router::seal;
use bellows_packet::Packet;
use bellows_rig::Rig;
use proptest::prelude::*;

const SINKS: [&str; 5] = ["to-left", "to-right", "own4", "own6", "unresolved"];

/// A router of apps that stand for themselves. In the text, `APART` is what each first stage has besides.
const ROUTER: &str = r#"
links = [
  "from-left.output -> ethernet.left",
  "from-right.output -> ethernet.right",
  "ethernet.ip4 -> ip4-input.input",
  "ip4-input.output -> check.input",
  "check.output -> ip4-lookup.in",
  "ip4-lookup.output -> ip4-rewrite.input",
  "ip4-lookup.local -> own4.input",
  "ip4-rewrite.left -> left-output.ip4",
  "ip4-rewrite.right -> right-output.ip4",
  "ip4-rewrite.resolve -> unresolved.input",
  "ip4-input.error -> errors.input",
  "ip4-lookup.error -> errors.lookup",
  "ip4-rewrite.error -> errors.rewrite",
  "errors.output -> ip4-lookup.error",
  "ethernet.ip6 -> first6.input",
  "first6.output -> ip6-lookup.in",
  "ip6-lookup.output -> ip6-rewrite.input",
  "ip6-lookup.local -> own6.input",
  "ip6-rewrite.left -> left-output.ip6",
  "ip6-rewrite.right -> right-output.ip6",
  "left-output.output -> to-left.input",
  "right-output.output -> to-right.input",
]

[apps]
from-left.app = "source"
from-right.app = "source"
to-left.app = "sink"
to-right.app = "sink"
own4.app = "sink"
own6.app = "sink"
unresolved.app = "sink"
ethernet = { app = "ethernet-input", vrf = "table" }
ip4-input = { app = "ip4-input" APART }
check = { app = "ip4-reverse-path", vrf = "table" }
ip4-lookup = { app = "ip4-lookup", vrf = "table" }
ip4-rewrite = { app = "ip4-rewrite", vrf = "table" }
errors = { app = "ip4-icmp-error", vrf = "table", rate = 100000, burst = 100000 }
first6 = { app = "ip6-input" APART }
ip6-lookup = { app = "ip6-lookup", vrf = "table" }
ip6-rewrite = { app = "ip6-rewrite", vrf = "table" }
left-output = { app = "interface-output", vrf = "table", port = "left" }
right-output = { app = "interface-output", vrf = "table", port = "right" }

[objects.table]
object = "vrf"
routes = ["10.0.0.0/8 via 198.51.100.2", "10.9.0.0/16 via 192.0.2.2", "blackhole 10.8.0.0/16", "2001:db8:3::/48 via 2001:db8:2::2"]

[objects.table.interfaces.left]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24", "2001:db8:1::1/64"]
neighbours = { "192.0.2.2" = "04:00:00:00:00:01" }
reverse_path = "strict"
redirects = false

[objects.table.interfaces.right]
mac = "02:00:00:00:00:02"
mtu = 1400
addresses = ["198.51.100.1/24", "2001:db8:2::1/64"]
neighbours = { "198.51.100.2" = "04:00:00:00:00:02", "2001:db8:2::2" = "04:00:00:00:00:02" }
redirects = false
"#;

fn network(keys: &str) -> Network {
    let text = ROUTER.replace("APART", keys);
    let loaded = load_str(&text, "router.toml", Path::new("."), &registry(), &Overrides::default());
    loaded.unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false))).network
}

/// What a test sends: the port, the addresses, the hops left, the bytes of payload, and whether a byte is wrong.
type Sent = (usize, [u8; 4], [u8; 4], u8, usize, bool);

fn sent() -> impl Strategy<Value = Sent> {
    let sources =
        prop::sample::select(vec![[192, 0, 2, 77], [10, 9, 1, 1], [10, 1, 1, 1], [224, 1, 1, 1], [9, 9, 9, 9]]);
    let destinations = prop::sample::select(vec![
        [10, 1, 1, 1],
        [10, 9, 1, 1],
        [10, 8, 1, 1],
        [9, 9, 9, 9],
        [192, 0, 2, 1],
        [192, 0, 2, 50],
        [198, 51, 100, 2],
    ]);
    let hops = prop::sample::select(vec![0, 1, 2, 64]);
    let payload = prop::sample::select(vec![0, 8, 1380, 1390]);
    (0usize..2, sources, destinations, hops, payload, prop::bool::weighted(0.05))
}

fn frame_of(&(port, source, destination, hops, payload, is_wrong): &Sent) -> Vec<u8> {
    let [high, low] = (20 + payload as u16).to_be_bytes();
    let mut frame = vec![2, 0, 0, 0, 0, 1 + port as u8, 4, 0, 0, 0, 0, 9, 8, 0];
    frame.extend([0x45, 0, high, low, 0, 1, 0x40, 0, hops, 17, 0, 0]);
    frame.extend([source, destination].concat());
    frame.resize(34 + payload, 7);
    seal(&mut frame);
    frame[24] ^= u8::from(is_wrong);
    frame
}

/// A packet of IPv6 to a network behind the right interface.
fn frame6(hops: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 9, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 17, hops];
    for network in [9, 3] {
        frame.extend([0x20, 1, 0xd, 0xb8, 0, network, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    }
    frame.extend([0; 8]);
    frame
}

#[test]
fn the_loader_puts_one_loop_in_front_of_the_stages() {
    let made = |network: &Network| {
        let made = network.apps.iter().filter(|app| app.is_made);
        made.map(|app| (app.name.clone(), app.kind.clone())).collect::<Vec<_>>()
    };
    let expected = [
        ("ip4-forward", "ip4-forward"),
        ("first6-ip6-forward", "ip6-forward"),
        ("own4-input-join", "join"),
        ("own6-input-join", "join"),
        ("unresolved-input-join", "join"),
    ];
    let mut found = made(&network(""));
    found.sort();
    let mut expected = expected.map(|(name, kind)| (name.to_owned(), kind.to_owned()));
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(made(&network(", fuse = false")), []);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_network_does_the_same_with_the_loop_in_front(sent in prop::collection::vec(sent(), 1..150), hops in 1u8..9) {
        let carried = ["", ", fuse = false"].map(|keys| {
            let mut rig = Rig::around(network(keys), &["from-left", "from-right"], &SINKS, Settings::default());
            for (port, name) in ["from-left", "from-right"].iter().enumerate() {
                let frames: Vec<Vec<u8>> = sent.iter().filter(|sent| sent.0 == port).map(frame_of).collect();
                rig.send_packets(name, frames.iter().filter_map(|frame| Packet::from_bytes(frame)));
            }
            rig.send_packets("from-left", (0..hops).filter_map(|hops| Packet::from_bytes(&frame6(hops))));
            rig.settle();
            let received: Vec<Vec<Vec<u8>>> = SINKS
                .iter()
                .map(|sink| {
                    let mut frames = rig.received(sink);
                    frames.sort();
                    frames
                })
                .collect();
            let mut drops = BTreeMap::new();
            for app in rig.snapshot().apps {
                let dropped = app.drops.into_iter().filter(|(_, count)| *count > 0);
                drops.extend(dropped.map(|(reason, count)| ((app.name.clone(), reason), count)));
            }
            (received, drops)
        });
        let [fused, apart] = carried;
        prop_assert_eq!(fused, apart);
    }
}

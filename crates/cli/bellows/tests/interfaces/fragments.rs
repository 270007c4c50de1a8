//! Fragments: hosts with Linux send datagrams through a router to a link with a smaller MTU, and to the router itself.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use bellows_sys::namespace;
use bellows_testkit::netns::{CableEnd, Host, Lab, connect, traffic};
use bellows_wire::ipv4::{Ipv4Header, Ipv4Packet};
use bellows_wire::ipv6::Ipv6Header;
use bellows_wire::{EtherType, EthernetHeader, IpProtocol, MacAddr};

use crate::bridge::{NETWORK, app, is_missing};
use crate::support::vhost::Network;
use crate::support::{Running, Sandbox, Signal};

/// The hosts' addresses, and those of the router on their links, of both families.
const HOSTS: [[&str; 2]; 2] = [["192.0.2.2", "2001:db8:1::2"], ["198.51.100.2", "2001:db8:2::2"]];
const ROUTER: [[&str; 2]; 2] = [["192.0.2.1", "2001:db8:1::1"], ["198.51.100.1", "2001:db8:2::1"]];

/// The ports, and the MTUs of their links.
const PORTS: [(&str, usize); 2] = [("left", 1500), ("right", 1280)];

/// The Ethernet address of a host, and of the router on its link.
fn macs(number: usize) -> [String; 2] {
    [format!("00:00:5e:00:53:0{number}"), format!("02:00:00:00:00:0{number}")]
}

struct Fragmented {
    hosts: [Host; 2],
    sandbox: Sandbox,
    _lab: Lab,
}

impl Fragmented {
    fn new() -> Fragmented {
        let mut lab = Lab::new();
        let middle = lab.silent_host("middle");
        let hosts = ["client", "server"].map(|name| lab.host(name));
        let mut network = Network::default();
        let mut interfaces = String::new();
        for (index, (port, mtu)) in PORTS.into_iter().enumerate() {
            let [mac, router] = macs(index + 1);
            let [[v4, v6], [router_v4, router_v6]] = [HOSTS[index], ROUTER[index]];
            let near = CableEnd::new(&hosts[index], "lan", &mac);
            let near = near.address(&format!("{v4}/24")).address(&format!("{v6}/64"));
            let far = CableEnd::new(&middle, port, &format!("00:00:5e:00:53:1{}", index + 1));
            connect([&near, &far], mtu);
            hosts[index].run(&format!("ip route add default via {router_v4}"));
            hosts[index].run(&format!("ip route add default via {router_v6} dev lan"));
            // Nobody discovers IPv6 neighbours in this test.
            hosts[index].run(&format!("ip neigh replace {router_v6} lladdr {router} nud permanent dev lan"));
            network = network
                .app(port, "raw-socket", &format!("interface = \"{port}\"\npromiscuous = true"))
                .link(&format!("{port}.output -> router.{port}"))
                .link(&format!("router.{port} -> {port}.input"));
            interfaces += &format!(
                "[apps.router.interfaces.{port}]\nmac = \"{router}\"\nmtu = {mtu}\n\
                 addresses = [\"{router_v4}/24\", \"{router_v6}/64\"]\nneighbours = {{ \"{v6}\" = \"{mac}\" }}\n"
            );
        }
        let network = network.app("router", "router", &interfaces).text();
        let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace()]);
        sandbox.write(NETWORK, &network);
        Fragmented { hosts, sandbox, _lab: lab }
    }

    fn start(&self) -> Running<'_> {
        let running = self.sandbox.start(&[NETWORK, "--json"]);
        for address in HOSTS[1] {
            traffic::wait_for_answer(&self.hosts[0], address);
        }
        running
    }

    /// Pings with data that must come back as it was, in fragments where it must.
    #[track_caller]
    fn ping(&self, address: &str, size: usize) {
        // The sender may have to learn the MTU of the path first.
        bellows_testkit::eventually(&format!("answers to {size} bytes from {address}"), || {
            let words = format!("ping -n -q -c 3 -i 0.2 -W 5 -M dont -s {size} {address}");
            let said = bellows_testkit::netns::run(self.hosts[0].namespace(), &words);
            said.is_ok_and(|said| said.contains(" 0% packet loss") && !said.contains("wrong"))
        });
    }
}

fn counter(running: &Running<'_>, name: &str, group: &str, counter: &str) -> u64 {
    app(&running.counters(), name)[group][counter].as_u64().unwrap_or_else(|| panic!("{name} has no {counter}"))
}

/// The data of a datagram.
fn data(number: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (number * 31 + at * 7 + at / 256) as u8).collect()
}

/// Sends datagrams of many lengths from one host to another. Returns how many of them arrive, all unchanged.
fn send_datagrams(from: &Host, to: &Host, address: &str, count: usize) -> usize {
    let length = |number: usize| 600 + number * 1231 % 40_000;
    let at = if address.contains(':') { format!("[{address}]:4000") } else { format!("{address}:4000") };
    let receiving = {
        let (namespace, at) = (to.namespace().to_owned(), at.clone());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let receiver = thread::spawn(move || {
            namespace::enter_network(namespace).unwrap();
            let socket = UdpSocket::bind(at).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
            ready.send(()).unwrap();
            let (mut buffer, mut seen) = (vec![0; 65_536], 0);
            while let Ok(received) = socket.recv(&mut buffer) {
                let number = usize::from(u16::from_be_bytes([buffer[0], buffer[1]]));
                assert_eq!(received, 2 + length(number), "the length of datagram {number}");
                assert!(buffer[2..received] == data(number, length(number)), "datagram {number}");
                seen += 1;
            }
            seen
        });
        is_ready.recv().unwrap();
        receiver
    };
    let namespace = from.namespace().to_owned();
    let sender = thread::spawn(move || {
        namespace::enter_network(namespace).unwrap();
        let any = if at.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any).unwrap();
        socket.connect(at).unwrap();
        for number in 0..count {
            let datagram = [&(number as u16).to_be_bytes()[..], &data(number, length(number))].concat();
            // An error of an earlier packet may be told here.
            while socket.send(&datagram).is_err() {}
            thread::sleep(Duration::from_millis(8));
        }
    });
    sender.join().unwrap();
    receiving.join().unwrap()
}

#[test]
fn datagrams_go_through_a_smaller_mtu_in_fragments() {
    if is_missing("fragments::datagrams_go_through_a_smaller_mtu_in_fragments", &[]) {
        return;
    }
    let routed = Fragmented::new();
    let running = routed.start();
    let [client, server] = &routed.hosts;
    for [address, address_v6] in [HOSTS[1], ROUTER[0]] {
        for size in [1_300, 3_000, 20_000, 50_000] {
            routed.ping(address, size);
            routed.ping(address_v6, size);
        }
    }
    // The longest datagrams, which the router makes of their fragments and answers in fragments.
    for address in ROUTER[0] {
        routed.ping(address, 65_507);
    }
    for address in HOSTS[1] {
        let arrived = send_datagrams(client, server, address, 300);
        assert!(arrived > 240, "{arrived} of 300 to {address}");
    }
    for address in HOSTS[0] {
        let arrived = send_datagrams(server, client, address, 100);
        assert!(arrived > 80, "{arrived} of 100 to {address}");
    }
    assert_eq!([client, server].map(traffic::checksum_errors), [0, 0]);
    // IPv4 packets of others are fragmented until the sender has learned the MTU of the path, of IPv6 only the router's
    // own.
    assert!(counter(&running, "router/ip4-fragment", "counters", "frag_oks") > 100);
    assert!(counter(&running, "router/ip6-fragment", "counters", "frag_oks") >= 9);
    for family in ["ip4", "ip6"] {
        assert!(counter(&running, &format!("router/{family}-reassemble"), "counters", "reasm_oks") >= 9);
    }
    assert!(counter(&running, "router/ip6-icmp-error", "counters", "too_big_sent") > 0);
    running.signal(Signal::INT);
    running.wait().success();
}

#[test]
fn fragments_that_the_router_makes_need_no_permission_of_their_own() {
    if is_missing("fragments::fragments_that_the_router_makes_need_no_permission_of_their_own", &[]) {
        return;
    }
    let routed = Fragmented::new();
    // Fragments behind the first have no header that this matches.
    let rules = "apps.router.interfaces.right.access_out=[\"permit icmp and icmp[0] = 8\", \"permit icmp6\", \"deny\"]";
    let running = routed.sandbox.start(&[NETWORK, "--json", "--set", rules]);
    let [address, _] = HOSTS[1];
    traffic::wait_for_answer(&routed.hosts[0], address);
    routed.ping(address, 1_400);
    assert!(counter(&running, "router/ip4-fragment", "counters", "frag_creates") >= 2);
    let refused = |reason| counter(&running, "router/ip4-access-out", "drops", reason);
    assert_eq!((refused("denied"), refused("undecided_fragment")), (0, 0));
    // Those that the sender has made need it.
    let words = format!("ping -n -q -c 1 -W 1 -M dont -s 3000 {address}");
    assert!(bellows_testkit::netns::run(routed.hosts[0].namespace(), &words).is_err());
    assert!(refused("undecided_fragment") > 0);
    running.signal(Signal::INT);
    running.wait().success();
}

/// Sends the first fragments of two datagrams to the router, whose others are lost.
fn send_first_fragments(client: &Host) {
    let [mac, router] = macs(1).map(|mac| mac.parse::<MacAddr>().unwrap());
    let frame = |ether_type, ip: Vec<u8>| {
        let mut frame = [&[0; 14][..], &ip].concat();
        EthernetHeader { dst: router, src: mac, ether_type }.emit(&mut frame).unwrap();
        frame
    };
    let [host, to] = [HOSTS[0], ROUTER[0]];
    let mut v4 = vec![7; 20 + 64];
    let header = Ipv4Header {
        src: host[0].parse().unwrap(),
        dst: to[0].parse().unwrap(),
        protocol: IpProtocol::UDP,
        ttl: 64,
        traffic_class: 0,
        identification: 5,
        dont_fragment: false,
    };
    header.emit(&mut v4).unwrap();
    let mut view = Ipv4Packet::new_checked(&mut v4[..]).unwrap();
    view.set_flags_fragment(0x2000);
    view.fill_checksum();
    let mut v6 = vec![7; 40 + 8 + 64];
    let header = Ipv6Header {
        src: host[1].parse().unwrap(),
        dst: to[1].parse().unwrap(),
        next_header: IpProtocol::IPV6_FRAGMENT,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
    };
    header.emit(&mut v6).unwrap();
    v6[40..48].copy_from_slice(&[IpProtocol::UDP.0, 0, 0, 1, 0, 0, 0, 5]);
    let frames = [frame(EtherType::IPV4, v4), frame(EtherType::IPV6, v6)];
    let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", client.namespace()]);
    // A capture in the classic format: microseconds, Ethernet.
    let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
    let mut capture: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for frame in &frames {
        let length = frame.len() as u32;
        capture.extend([0, 0, length, length].iter().flat_map(|word: &u32| word.to_le_bytes()));
        capture.extend(frame);
    }
    std::fs::write(sandbox.path("first.pcap"), capture).unwrap();
    let network = Network::default()
        .app("capture", "pcap-reader", "path = \"first.pcap\"")
        .app("port", "raw-socket", "interface = \"lan\"")
        .link("capture.output -> port.input");
    sandbox.write(NETWORK, &network.text());
    let sending = sandbox.start(&[NETWORK, "--json"]);
    // It ends by itself when the capture has been sent.
    let sent = sending.wait().success().json();
    assert_eq!(app(&sent, "port")["in_packets"], 2, "{sent:#}");
}

/// The messages about exceeded times that a host has received, of both families.
fn times_exceeded(host: &Host) -> [u64; 2] {
    let v4 = host.run("cat /proc/net/snmp");
    let mut lines = v4.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let [names, values] = [lines.next().unwrap(), lines.next().unwrap()].map(str::split_whitespace);
    let v4 = names.zip(values).find(|(name, _)| *name == "InTimeExcds").unwrap().1;
    let v6 = host.run("cat /proc/net/snmp6");
    let v6 = v6.lines().find_map(|line| line.strip_prefix("Icmp6InTimeExcds")).unwrap().trim();
    [v4, v6].map(|count| count.parse().unwrap())
}

#[test]
fn a_datagram_that_stays_incomplete_is_told() {
    if is_missing("fragments::a_datagram_that_stays_incomplete_is_told", &[]) {
        return;
    }
    let routed = Fragmented::new();
    let [v4, v6] = [4, 6].map(|ip| format!("apps.router.parts.ip{ip}-reassemble.timeout_ipv{ip}=\"1s\""));
    let running = routed.sandbox.start(&[NETWORK, "--json", "--set", &v4, "--set", &v6]);
    let client = &routed.hosts[0];
    for address in ROUTER[0] {
        traffic::wait_for_answer(client, address);
    }
    send_first_fragments(client);
    bellows_testkit::eventually("both errors", || times_exceeded(client) == [1, 1]);
    for family in ["ip4", "ip6"] {
        assert_eq!(counter(&running, &format!("router/{family}-reassemble"), "counters", "reasm_timeouts"), 1);
        assert_eq!(counter(&running, &format!("router/{family}-icmp-error"), "counters", "time_exceeded_sent"), 1);
    }
    running.signal(Signal::INT);
    running.wait().success();
}

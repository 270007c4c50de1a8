//! Transports that ESP protects.

use std::path::Path;

use bellows_wire::IpProtocol;
use bellows_wire::ipv6::Ipv6Header;

use crate::ends::{ALL, ANN, BEN, CONTROL, Pair, at, end, frame};

/// Two ends whose transport over IPv6 has ESP, with keys in files of a folder.
fn protected(folder: &Path, mtu: u16) -> String {
    let ends = [("west", 1, 2), ("east", 2, 1)].map(|(name, own, other)| {
        let direction = |to: u8| {
            let file = folder.join(format!("to-{to}.key"));
            // No other test of this process has the same keys.
            let key = format!("{:02x}{:04x}", 0x70 + to, mtu).repeat(7);
            bellows_testkit::scratch::write_secret(&file, &key[..40]);
            format!("{{ spi = {}, algorithm = \"aes-128-gcm\", key_file = {file:?} }}", 0x1000 + u32::from(to))
        };
        let six = "remote = \"there.v6\"";
        let ipsec = format!("{six}, ipsec = {{ inbound = {}, outbound = {} }}", direction(own), direction(other));
        end(name, own, other, mtu, CONTROL).replace(six, &ipsec)
    });
    ends.concat()
}

#[test]
fn transports_with_ipsec_have_nothing_but_esp_on_the_wire() {
    let scratch = bellows_testkit::scratch();
    let ends = protected(scratch.path(), 1_500);
    let mut pair = Pair::up(&ends, None);
    // Both tunnels of the transport, with whole frames and with fragments.
    for length in [60, 1_514] {
        let sent = frame(ALL, ANN, None, length);
        pair.send("west", "office", &sent);
        assert!(pair.received().contains(&at("east.office", &sent)));
        for (from, to) in [("west", "east"), ("east", "west")] {
            pair.send(from, "lab", &sent);
            assert_eq!(pair.received(), [at(&format!("{to}.lab"), &sent)]);
        }
    }
    let sent = frame(BEN, ANN, Some(8), 64);
    pair.send("east", "customers", &sent);
    assert_eq!(pair.received(), [at("west.customers", &sent)]);
    let has = |kind: u16, protocol: u8| pair.protocols.contains(&(kind, protocol));
    assert!(has(0x86dd, 50) && has(0x86dd, 44) && has(0x0800, 47), "{:x?}", pair.protocols);
    assert!(!has(0x86dd, 115) && !has(0x86dd, 47), "{:x?}", pair.protocols);
    // Who knows the key of GRE, but not that of ESP.
    let mut forged =
        [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd][..], &[0; 40], &[0x20, 0, 0x65, 0x58, 0, 0, 0, 9]].concat();
    forged.extend(frame(ALL, ANN, None, 60));
    let [src, dst] = [2, 1].map(|number| format!("2001:db8::{number}").parse().unwrap());
    let header = Ipv6Header { src, dst, next_header: IpProtocol::GRE, hop_limit: 64, traffic_class: 0, flow_label: 0 };
    header.emit(&mut forged[14..]).unwrap();
    pair.rig.send("to-west-uplink", [forged]);
    pair.settle();
    assert_eq!(pair.received(), []);
}

#[test]
fn esp_learns_the_mtu_of_a_core_for_the_tunnels_that_it_protects() {
    let scratch = bellows_testkit::scratch();
    let mut pair = Pair::up(&protected(scratch.path(), 1_600), None);
    pair.core_mtu = 1_280;
    let sent = frame(ALL, ANN, None, 1_514);
    pair.send("west", "office", &sent);
    assert!(pair.received().iter().all(|(place, _)| !place.starts_with("east")));
    assert_eq!(pair.count("west/esp-six", "told_path_mtu"), 1);
    pair.longest = 0;
    // Both tunnels of the transport.
    pair.send("west", "office", &sent);
    assert!(pair.received().contains(&at("east.office", &sent)));
    pair.send("west", "lab", &sent);
    assert_eq!(pair.received(), [at("east.lab", &sent)]);
    assert_eq!((pair.longest, pair.count("west/esp-six", "fragmented")), (1_280, 2));
}

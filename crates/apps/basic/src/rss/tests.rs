use bellows_engine::Settings;
use bellows_rig::Rig;
use bellows_wire::{MacAddr, UdpFrame};
use proptest::prelude::*;

use super::*;
use std::collections::HashMap;
use std::net::IpAddr;

const OUTPUTS: [&str; 4] = ["a", "b", "c", "d"];

fn rss(config: &str) -> Result<Rss, SettingError> {
    Rss::configure(serde_json::from_str(config).unwrap(), &Context::default())
}

fn rig(config: &str) -> Rig {
    Rig::new(rss(config).unwrap(), &["input"], &OUTPUTS)
}

fn frame(src: (IpAddr, u16), dst: (IpAddr, u16)) -> Vec<u8> {
    let (src_mac, dst_mac) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr::BROADCAST);
    let headers =
        UdpFrame { src_mac, dst_mac, vlan: None, src: src.0, dst: dst.0, src_port: src.1, dst_port: dst.1, ttl: 64 };
    headers.build(80, |_| {}).unwrap()
}

/// The output that a frame goes to.
fn output_of(rig: &mut Rig, frame: &[u8]) -> usize {
    rig.send("input", [frame]);
    rig.settle();
    let received = OUTPUTS.map(|output| rig.received(output));
    assert_eq!(received.iter().map(Vec::len).sum::<usize>(), 1);
    received.iter().position(|packets| !packets.is_empty()).unwrap()
}

#[test]
fn a_toeplitz_table_is_that_of_a_network_interface() {
    // From the published verification suite: ends, and the low byte of the hash.
    let flows = [
        (("66.9.149.187", 2794), ("161.142.100.80", 1766), 0x78),
        (("199.92.111.2", 14230), ("65.69.140.83", 4739), 0xea),
        (("24.19.198.95", 12898), ("12.22.207.184", 38024), 0x4a),
        (("38.27.205.30", 48228), ("209.142.163.6", 2217), 0x7f),
        (("153.39.163.191", 44251), ("202.188.127.2", 1303), 0xa2),
        (("3ffe:2501:200:1fff::7", 2794), ("3ffe:2501:200:3::1", 1766), 0x3d),
    ];
    let mut rig = rig(r#"{"hash": "toeplitz", "table_size": 128}"#);
    for (src, dst, low_byte) in flows {
        let end = |(address, port): (&str, u16)| (address.parse().unwrap(), port);
        assert_eq!(output_of(&mut rig, &frame(end(src), end(dst))), low_byte % 128 % 4, "{src:?}");
    }
}

#[test]
fn flows_spread_evenly_and_stay_in_order() {
    for config in ["{}", r#"{"hash": "toeplitz"}"#, r#"{"inner": true, "symmetric": true}"#, r#"{"rebalance": "1h"}"#] {
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let mut rig = rig(config);
        // 400 flows that differ in one byte or only in the port, ten packets each.
        for number in 0..10u8 {
            let frames = (0..200u8).flat_map(|flow| {
                let by_address = frame((address(flow), 1000), (address(250), 53));
                let by_port = frame((address(200), 1000 + u16::from(flow)), (address(250), 53));
                [by_address, by_port].map(|mut frame| {
                    frame[79] = number;
                    frame
                })
            });
            rig.send("input", frames);
        }
        rig.settle();
        for output in OUTPUTS {
            let packets = rig.received(output);
            assert!((700..1300).contains(&packets.len()), "{config}: {} of 4,000 packets", packets.len());
            let mut flows = HashMap::<&[u8], Vec<u8>>::new();
            for packet in &packets {
                flows.entry(&packet[..42]).or_default().push(packet[79]);
            }
            assert!(flows.values().all(|numbers| numbers[..] == (0..10).collect::<Vec<u8>>()));
        }
    }
}

#[test]
fn both_directions_go_to_one_output_on_request() {
    for hash in ["fast", "toeplitz"] {
        for symmetric in [false, true] {
            let mut rig = rig(&format!(r#"{{"hash": "{hash}", "symmetric": {symmetric}}}"#));
            let together = (0..100u16).filter(|&port| {
                let ends = (([192, 0, 2, 1].into(), 5000 + port), ([198, 51, 100, 1].into(), 53));
                let there = output_of(&mut rig, &frame(ends.0, ends.1));
                there == output_of(&mut rig, &frame(ends.1, ends.0))
            });
            let together = together.count();
            assert_eq!(together == 100, symmetric, "{hash}: {together}");
        }
    }
}

#[test]
fn the_status_tells_the_shares() {
    let mut rig = rig(r#"{"table_size": 64, "weights": {"b": 5, "d": 0}}"#);
    rig.breathe();
    let expected = json!({
        "hash": "fast", "symmetric": false, "inner": false, "table_size": 64,
        "entries": {"a": 9, "b": 46, "c": 9, "d": 0}, "entries_moving": 0,
    });
    assert_eq!(rig.status(), Some(expected));
}

#[test]
fn wrong_values_are_refused() {
    let error = |config: &str| {
        let error = rss(config).err().unwrap();
        (error.key.unwrap(), error.message)
    };
    for size in [0, 32, 100, 131_072] {
        assert_eq!(error(&format!(r#"{{"table_size": {size}}}"#)).0, "table_size");
    }
    assert_eq!(error(r#"{"key": "00"}"#).1, "the fast hash has no key");
    assert_eq!(error(r#"{"hash": "toeplitz", "key": "6d:5a"}"#).1, "the key is too short");
    assert_eq!(error(r#"{"hash": "toeplitz", "key": "6d:5g"}"#).1, "the key is not hexadecimal");
    assert_eq!(error(r#"{"settle": "2s"}"#).0, "settle");
    assert_eq!(error(r#"{"rebalance": "1us"}"#).0, "rebalance");
    assert_eq!(error(r#"{"hold": 10000000}"#).0, "hold");
    let check = |config: &str| Rss::check_outputs(&serde_json::from_str(config).unwrap(), &["a", "b"]);
    assert_eq!(check(r#"{"weights": {"a": 2}}"#), Ok(()));
    let error = check(r#"{"weights": {"c": 2}}"#).unwrap_err();
    assert_eq!((error.key, &*error.help), (Some("weights"), "the linked outputs are `a`, `b`"));
}

proptest! {
    #[test]
    fn any_bytes_find_an_output(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..100),
        toeplitz: bool, symmetric: bool, inner: bool, lossless: bool,
    ) {
        let hash = if toeplitz { Hash::Toeplitz } else { Hash::Fast };
        let config = Config { hash, symmetric, inner, ..Config::default() };
        let rss = Rss::configure(config, &Context::default()).unwrap();
        let mut rig = Rig::with_settings(rss, &["input"], &OUTPUTS, Settings { lossless, ..Settings::default() });
        rig.send("input", &frames);
        rig.settle();
        let received: usize = OUTPUTS.iter().map(|output| rig.received(output).len()).sum();
        prop_assert_eq!(received, frames.len());
    }
}

use std::collections::{BTreeMap, BTreeSet};

use bellows_capture::{Interface, OutputFormat, Record, Writer, WriterOptions};
use bellows_testkit::scratch::{TempDir, scratch};
use bellows_wire::{ArpPacket, Layer, verify_checksums};
use proptest::prelude::*;

use super::*;

fn frames(text: &str) -> Vec<Vec<u8>> {
    text.parse::<Traffic>().unwrap().frames().unwrap()
}

/// How often each size comes.
fn sizes(text: &str) -> BTreeMap<usize, usize> {
    let mut sizes = BTreeMap::new();
    frames(text).iter().for_each(|frame| *sizes.entry(frame.len()).or_default() += 1);
    sizes
}

fn refused(text: &str) -> String {
    let read = text.parse::<Traffic>();
    read.and_then(|traffic| traffic.frames()).expect_err(text).to_string()
}

#[test]
fn a_size_is_one_frame() {
    let frames = frames("60");
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0].len(), 60);
    assert_eq!(verify_checksums(&frames[0]).unwrap().upper, Some(Layer::Udp));
}

#[test]
fn ethernet_is_a_small_frame_for_one_station_without_ip() {
    let frames = frames("ethernet");
    assert_eq!((frames.len(), frames[0].len(), &frames[0][12..14]), (1, 60, &[0x88, 0xb5][..]));
    assert_eq!(frames[0][0] & 1, 0);
}

#[test]
fn packets_that_may_be_fragmented_differ_in_the_flag() {
    for sizes in ["60", "64-70", "imix"] {
        let (usual, may) = (frames(sizes), frames(&format!("may-fragment:{sizes}")));
        assert_eq!(usual.len(), may.len());
        for (usual, may) in usual.iter().zip(&may) {
            assert_eq!((usual[20], may[20]), (0x40, 0));
            assert_eq!(verify_checksums(may).unwrap().upper, Some(Layer::Udp));
            assert_eq!((&usual[..20], &usual[26..]), (&may[..20], &may[26..]));
        }
    }
    for wrong in ["may-fragment:ipv4", "may-fragment:20", "may-fragment:"] {
        assert!(wrong.parse::<Traffic>().is_err(), "{wrong}");
    }
}

#[test]
fn stations_send_and_receive_alike() {
    for count in [2, 3, 1_024, 65_536] {
        let frames = frames(&format!("stations:{count}"));
        let ends = |at: usize| -> BTreeSet<&[u8]> { frames.iter().map(|frame| &frame[at..at + 6]).collect() };
        let (receivers, senders) = (ends(0), ends(6));
        assert_eq!((receivers.len(), senders.len()), (count / 2, count - count / 2));
        assert!(receivers.iter().all(|address| address[..4] == [2, 0, 0, 1]));
        assert!(senders.iter().all(|address| address[..4] == [2, 0, 0, 0]));
        assert!(frames.len() >= 1_024 && frames.iter().all(|frame| frame.len() == 60));
    }
    for wrong in ["stations:1", "stations:65537", "stations:"] {
        assert!(refused(wrong).contains("is not a number of stations; give 2 to 65536"), "{}", refused(wrong));
    }
}

#[test]
fn imix_is_seven_small_four_middling_and_one_large() {
    assert_eq!(sizes("imix"), BTreeMap::from([(60, 7 * 85), (590, 4 * 85), (1514, 85)]));
    assert_eq!(frames("imix"), frames("60:14,590:8,1514:2"), "weights have no common divisor left");
}

#[test]
fn a_range_is_spread_from_end_to_end() {
    assert_eq!(sizes("64-66"), BTreeMap::from([(64, 1), (65, 1), (66, 1)]));
    assert_eq!(sizes("1514-1514"), BTreeMap::from([(1514, 1)]));
    let sizes: Vec<usize> = sizes("64-9000").into_keys().collect();
    assert_eq!((sizes.len(), sizes[0], sizes[1023]), (1024, 64, 9000));
    assert!(sizes.windows(2).all(|pair| (8..=9).contains(&(pair[1] - pair[0]))), "{sizes:?}");
}

#[test]
fn protocols_come_by_their_weights_in_many_flows_with_valid_checksums() {
    let frames = frames("protocols");
    let mut layers = BTreeMap::new();
    let (mut hosts, mut ipv6) = (BTreeSet::new(), 0);
    for frame in &frames {
        let verified = verify_checksums(frame).unwrap();
        let arp = frame[12..14] == [8, 6] && ArpPacket::new_checked(&frame[14..]).is_ok();
        let layer = verified.upper.map_or_else(|| format!("ARP {arp}"), |layer| layer.to_string());
        *layers.entry(layer.trim_end_matches("v6").to_owned()).or_insert(0) += 1;
        hosts.insert(frame[6..12].to_vec());
        ipv6 += usize::from(frame[12..14] == [0x86, 0xdd]);
        assert!((60..=1514).contains(&frame.len()));
    }
    let expected = [("ARP true", 20), ("ICMP", 30), ("TCP", 800), ("UDP", 150)];
    assert_eq!(layers, expected.map(|(layer, count)| (layer.to_owned(), count)).into());
    assert_eq!(hosts.len(), 64);
    assert!((150..350).contains(&ipv6), "{ipv6} of {}", frames.len());
}

#[test]
fn flows_are_over_one_version_of_ip() {
    for (text, ether_type) in [("ipv4", [8, 0]), ("ipv6", [0x86, 0xdd])] {
        let frames = frames(text);
        assert!(frames.iter().all(|frame| frame.len() == 64 && frame[12..14] == ether_type), "{text}");
        assert!(frames.iter().all(|frame| verify_checksums(frame).unwrap().upper == Some(Layer::Udp)), "{text}");
        let hosts: BTreeSet<&[u8]> = frames.iter().map(|frame| &frame[6..12]).collect();
        assert_eq!((frames.len(), hosts.len()), (1_024, 1_024));
    }
}

#[test]
fn errors_list_the_alternatives() {
    for (text, part) in [
        ("", "give a size (60)"),
        ("fast", "or a capture file (./fast)"),
        ("-5", "`` in `-5` is not a size; give 42 to 65549 bytes"),
        ("41", "it takes 42 to 65549 bytes"),
        ("64,70000", "it takes 42 to 65549 bytes"),
        ("40-100", "it takes 42 to 65549 bytes"),
        ("99999999999", "`99999999999` in `99999999999` is not a size"),
        ("64:", "`` in `64:` is not a weight; give a whole number above 0"),
        ("64:0", "`0` in `64:0` is not a weight"),
        ("64:1:2", "`1:2` in `64:1:2` is not a weight"),
        ("64,,65", "`` in `64,,65` is not a size"),
        ("64:5000,65:1", "add up to 5001; give weights that add up to at most 4096"),
        ("100-64", "give the smaller size first"),
        ("64-", "`` in `64-` is not a size"),
        ("tcp:80,sctp:20", "`sctp` in `tcp:80,sctp:20` is not a known protocol; there are tcp, udp, icmp and arp"),
        ("tcp:x", "`x` in `tcp:x` is not a weight"),
        ("/no/such/capture.pcap", "/no/such/capture.pcap"),
    ] {
        let message = refused(text);
        assert!(message.contains(part), "{text}: {message}");
    }
}

/// A capture of packets of these lengths, on interfaces of these link types in turn.
fn capture(folder: &TempDir, name: &str, link_types: &[LinkType], lengths: &[usize]) -> PathBuf {
    let path = folder.path().join(name);
    let interfaces: Vec<Interface> = link_types.iter().map(|link_type| Interface::new(*link_type)).collect();
    let options = WriterOptions { format: OutputFormat::Pcapng, ..WriterOptions::default() };
    let mut writer = Writer::create(&path, options, &interfaces).unwrap();
    for (index, &length) in lengths.iter().enumerate() {
        let data = vec![index as u8; length];
        let interface = (index % link_types.len()) as u32;
        writer.write(&Record { data: &data, timestamp: 1, original_length: length as u32, interface }).unwrap();
    }
    writer.finish().unwrap();
    path
}

#[test]
fn a_capture_is_sent_unchanged() {
    let folder = scratch();
    let path = capture(&folder, "good", &[LinkType::ETHERNET], &[60, 0, 1514, 80_000, 9000]);
    let frames = frames(path.to_str().unwrap());
    let expected: Vec<Vec<u8>> = [(0, 60), (2, 1514), (4, 9000)].map(|(byte, length)| vec![byte; length]).into();
    assert!(frames == expected, "{:?}", frames.iter().map(Vec::len).collect::<Vec<_>>());
}

#[test]
fn captures_without_frames_are_refused() {
    let folder = scratch();
    let raw = capture(&folder, "raw", &[LinkType::ETHERNET, LinkType::RAW], &[60, 60]);
    let empty = capture(&folder, "empty", &[LinkType::ETHERNET], &[0]);
    assert!(refused(raw.to_str().unwrap()).contains("not Ethernet frames (link type 101)"));
    assert!(refused(empty.to_str().unwrap()).contains("has no packet of up to 73600 bytes"));
}

#[test]
fn traffic_survives_json() {
    let traffic: Traffic = "64:7,570".parse().unwrap();
    let json = serde_json::to_string(&traffic).unwrap();
    assert_eq!(json, "\"64:7,570\"");
    assert_eq!(serde_json::from_str::<Traffic>(&json).unwrap(), traffic);
    assert!(serde_json::from_str::<Traffic>("\"7\"").is_err());
}

/// Every example in the help text is valid.
#[test]
fn the_help_text_is_true() {
    let examples: Vec<&str> = HELP
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split("  ").next())
        .filter(|example| !example.is_empty() && *example != "FILE")
        .collect();
    let sizes = ["60", "64:7,570:4,1518:1", "imix", "64-1518", "may-fragment:1400-1514"];
    assert_eq!(examples, [&sizes[..], &["ipv4, ipv6", "ethernet", "stations:1024", "protocols"]].concat());
    let examples = examples.iter().flat_map(|example| example.split(", "));
    assert!(examples.into_iter().all(|example| !frames(example).is_empty()));
    assert_eq!(frames("protocols"), frames("tcp:80,udp:15,icmp:3,arp:2"));
    assert_eq!(frames("imix"), frames("60:7,590:4,1514:1"));
}

proptest! {
    /// Sizes occur exactly by their weights, and each frame is valid.
    #[test]
    fn sizes_come_by_their_weights(weights in prop::collection::btree_map(42u32..2000, 1u32..200, 2..6)) {
        let text = weights.iter().map(|(size, weight)| format!("{size}:{weight}")).collect::<Vec<_>>().join(",");
        let frames = frames(&text);
        let total: u32 = weights.values().sum();
        for (size, weight) in &weights {
            let count = frames.iter().filter(|frame| frame.len() == *size as usize).count();
            prop_assert_eq!(count * total as usize, frames.len() * *weight as usize);
        }
        for frame in &frames {
            prop_assert!(verify_checksums(frame).unwrap().upper == Some(Layer::Udp));
        }
    }

    /// Any text is parsed or refused.
    #[test]
    fn any_text_is_read_or_refused(text in "[-:,a-z0-9./ ]{0,12}") {
        if let Ok(traffic) = text.parse::<Traffic>() {
            prop_assert_eq!(traffic.to_string(), text);
        }
    }
}

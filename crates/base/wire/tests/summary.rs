//! Summaries of packets: compared with tcpdump's, for real captures and for generated packets; and summaries of
//! arbitrary bytes.

mod packets;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use bellows_capture::{Interface, LinkType, Reader, Record, Writer, WriterOptions};
use bellows_testkit::{captures, programs, scratch};
use bellows_wire::summary::{LinkLayer, summarize, write_summary};
use proptest::prelude::*;

/// tcpdump's output for each packet of a file: the first line, without trailing space. `None`, after reporting that
/// `test` is skipped, without tcpdump.
fn tcpdump(test: &str, options: &[&str], file: &Path) -> Option<Vec<String>> {
    let options = [&["-n", "-t", "-S", "--number"], options].concat();
    let output = programs::output(test, Command::new("tcpdump").args(options).arg("-r").arg(file))?;
    let mut packets = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        // Other lines continue the packet before.
        if let Some(text) = line.strip_prefix(&format!("{:5}  ", packets.len() + 1)) {
            packets.push(text.trim_end().to_owned());
        }
    }
    Some(packets)
}

/// Our summaries of a file's packets, up to damage or an unknown link layer.
fn summaries(file: &Path) -> Vec<String> {
    let mut summaries = Vec::new();
    let Ok(mut reader) = Reader::open(file) else { return summaries };
    while let Ok(Some(record)) = reader.next_record() {
        let (data, index, length) = (record.data.to_vec(), record.interface as usize, record.original_length as usize);
        let interface = &reader.interfaces()[index];
        let Some(link) = LinkLayer::from_number(interface.link_type.0) else { break };
        // tcpdump truncates packets that are longer than the file's own snap length.
        let most = if interface.snap_length == 0 { usize::MAX } else { interface.snap_length as usize };
        summaries.push(summarize(link, &data[..data.len().min(most)], length));
    }
    summaries
}

/// Compared lines by class: their number, and those that differ.
#[derive(Default)]
struct Comparison(BTreeMap<&'static str, (usize, Vec<String>)>);

impl Comparison {
    fn add(&mut self, class: &'static str, place: &str, ours: &str, theirs: &str) {
        let (count, differing) = self.0.entry(class).or_default();
        *count += 1;
        if ours != theirs {
            differing.push(format!("{place}:\n  ours    {ours}\n  tcpdump {theirs}\n"));
        }
    }

    /// Requires that this many lines of each class were compared, and that all are equal.
    fn require(&self, classes: &[(&str, usize)]) {
        let mut report = String::new();
        for (class, least) in classes {
            let count = self.0.get(class).map_or(0, |(count, _)| *count);
            if count < *least {
                report += &format!("{class}: {count} lines were compared, not {least}\n");
            }
        }
        for (class, (count, differing)) in self.0.iter().filter(|(_, (_, differing))| !differing.is_empty()) {
            report += &format!("{class}: {} of {count} lines differ:\n{}", differing.len(), differing.concat());
        }
        assert!(report.is_empty(), "{report}");
    }
}

/// The class of tcpdump's line, if summaries must have the same words: the protocol in which the line ends, other than
/// applications.
fn class(theirs: &str) -> Option<&'static str> {
    // Options and messages that tcpdump decodes and summaries do not.
    let foreign = [
        "mptcp",
        "tcp-ao",
        "exp-",
        "scps",
        "md5 ",
        "MPLS",
        "Arista",
        "router renum",
        "node info",
        "mobile",
        "RPL",
        "time stamp",
    ];
    if foreign.iter().any(|word| theirs.contains(word)) {
        return None;
    }
    let classes = [
        (": Flags [", "TCP"),
        (" > 43913: Flags [", "TCP"),
        (": UDP, ", "UDP"),
        (" > 5642: UDP, ", "UDP"),
        ("ICMP ", "ICMP"),
        ("ICMP6, ", "ICMPv6"),
        ("igmp v", "IGMP"),
        ("igmp query", "IGMP"),
        ("igmp leave", "IGMP"),
        ("ESP(", "ESP"),
        ("gre-proto", "GRE"),
        ("ip-proto-", "other protocols"),
        ("ARP, ", "ARP"),
        ("STP 802", "STP"),
        ("Unnumbered, ", "LLC"),
        ("Information, ", "LLC"),
        (", ethertype Unknown", "unknown types"),
        ("IP bad-", "bad lengths"),
        ("[|hbhopt]", "cut short"),
        ("[|udp]", "cut short"),
        ("[|tcp]", "cut short"),
        ("[|ah]", "cut short"),
        ("[|ipcomp]", "cut short"),
    ];
    classes.iter().rfind(|(word, _)| theirs.contains(word)).map(|(_, class)| *class)
}

/// A line up to the length at which TCP ends: the application's part follows.
fn without_application(line: &str) -> &str {
    let Some(at) = line.find(", length ").filter(|_| line.contains(": Flags [")) else { return line };
    let digits = line[at + 9..].bytes().take_while(u8::is_ascii_digit).count();
    &line[..at + 9 + digits]
}

#[test]
fn real_packets_are_summarized_as_tcpdump_does() {
    const TEST: &str = "real_packets_are_summarized_as_tcpdump_does";
    let Some(comparison) = captures::real(TEST).and_then(|files| compare_files(TEST, files)) else { return };
    comparison.require(&[
        ("TCP", 500),
        ("UDP", 500),
        ("ICMP", 10),
        ("ICMPv6", 10),
        ("IGMP", 20),
        ("ESP", 10),
        ("GRE", 150),
        ("ARP", 20),
        ("STP", 80),
        ("LLC", 2),
        ("unknown types", 50),
        ("other protocols", 5),
        ("bad lengths", 2),
        ("cut short", 5),
    ]);
}

#[test]
fn packets_of_own_captures_are_summarized_as_tcpdump_does() {
    let test = "packets_of_own_captures_are_summarized_as_tcpdump_does";
    let Some(comparison) = compare_files(test, captures::own()) else { return };
    comparison.require(&[
        ("TCP", 80),
        ("UDP", 100),
        ("ICMP", 15),
        ("ICMPv6", 10),
        ("IGMP", 5),
        ("ESP", 2),
        ("GRE", 2),
        ("ARP", 5),
        ("STP", 3),
        ("LLC", 2),
        ("unknown types", 1),
        ("other protocols", 2),
        ("bad lengths", 2),
        ("cut short", 3),
    ]);
}

/// tcpdump's lines and the summaries of these files; `None`, after reporting that `test` is skipped, without tcpdump.
fn compare_files(test: &str, files: Vec<PathBuf>) -> Option<Comparison> {
    let mut comparison = Comparison::default();
    for file in files {
        let ours = summaries(&file);
        // With -q, it does not decode the payload of UDP.
        let (usual, quiet) = (tcpdump(test, &[], &file)?, tcpdump(test, &["-q"], &file)?);
        for (number, ((ours, usual), quiet)) in ours.iter().zip(&usual).zip(&quiet).enumerate() {
            let theirs = if quiet.contains(": UDP, ") { quiet } else { usual };
            // It decodes MACsec, of which summaries know only the name.
            let class = class(theirs).filter(|_| !ours.contains("ethertype Unknown (0x88e5)"));
            if let Some(class) = class {
                let place = format!("{}, packet {}", file.display(), number + 1);
                comparison.add(class, &place, without_application(ours), without_application(theirs));
            }
        }
    }
    Some(comparison)
}

/// Summaries of frames truncated to this many bytes, beside tcpdump's.
fn compare(test: &str, link: LinkType, frames: &[(packets::Made, usize)]) -> Option<Comparison> {
    let folder = scratch();
    let file = folder.path().join("made.pcap");
    let interface = Interface::new(link);
    let mut writer = Writer::create(&file, WriterOptions::default(), &[interface]).expect("a file can be made");
    for ((_, frame), kept) in frames {
        let record = Record { data: &frame[..*kept], timestamp: 0, original_length: frame.len() as u32, interface: 0 };
        writer.write(&record).expect("a record can be written");
    }
    writer.finish().expect("a file can be written");
    let theirs = tcpdump(test, &[], &file);
    let ours = summaries(&file);
    let theirs = theirs?;
    assert_eq!((ours.len(), theirs.len()), (frames.len(), frames.len()));
    let mut comparison = Comparison::default();
    for ((((class, frame), kept), ours), theirs) in frames.iter().zip(&ours).zip(&theirs) {
        let hex: String = frame[..*kept].iter().map(|byte| format!("{byte:02x}")).collect();
        // Some truncated options end with a bracket that tcpdump has not opened.
        let theirs = if theirs.ends_with("[|tcp]>") { &theirs[..theirs.len() - 1] } else { theirs };
        comparison.add(class, &format!("{hex} of {} bytes", frame.len()), ours, theirs);
    }
    Some(comparison)
}

#[test]
fn made_packets_are_summarized_as_tcpdump_does() {
    let whole = |made: packets::Made| {
        let len = made.1.len();
        (made, len)
    };
    let frames: Vec<_> = packets::all().into_iter().map(whole).collect();
    let Some(comparison) = compare("made_packets_are_summarized_as_tcpdump_does", LinkType::ETHERNET, &frames) else {
        return;
    };
    comparison.require(&[]);
}

#[test]
fn packets_cut_anywhere_are_summarized_as_tcpdump_does() {
    let mut seen = BTreeMap::<&str, usize>::new();
    let mut frames = Vec::new();
    for made in packets::all() {
        // Some of each class, as different as possible.
        let count = seen.entry(made.0).or_default();
        *count += 1;
        if *count % 23 == 1 {
            frames.extend((1..=made.1.len()).map(|kept| (made.clone(), kept)));
        }
    }
    let Some(comparison) = compare("packets_cut_anywhere_are_summarized_as_tcpdump_does", LinkType::ETHERNET, &frames)
    else {
        return;
    };
    comparison.require(&[]);
}

#[test]
fn every_link_layer_is_summarized_as_tcpdump_does() {
    const TEST: &str = "every_link_layer_is_summarized_as_tcpdump_does";
    let family = |family: u32| family.to_be_bytes().to_vec();
    let cooked = |ether_type: u16| packets::words(&[4, 1, 6, 0x0200, 0, 1, 0, ether_type]);
    // No interface of this machine has this number.
    let cooked_2 = |ether_type: u16| packets::words(&[ether_type, 0, 0x7fff, 7, 1, 0x0406, 0x0200, 0, 1, 0]);
    let numbers = |header: &dyn Fn(u16) -> Vec<u8>| [4, 0x0800, 0x86dd, 0x0806, 0x8100, 0x1234, 3].map(header).to_vec();
    let headers = [
        (LinkType::LINUX_SLL, numbers(&cooked)),
        (LinkType::LINUX_SLL2, numbers(&cooked_2)),
        (LinkType::NULL, [2, 24, 28, 30, 0x0200_0000, 0x1e00_0000].map(family).to_vec()),
        (LinkType::RAW, vec![vec![]]),
        (LinkType::IPV4, vec![vec![]]),
    ];
    let payloads = [packets::v4(17, &[0; 8]), packets::v6(58, &[128, 0, 0, 0, 0, 1, 0, 2]), vec![0x42; 40]];
    for (link, headers) in headers {
        let pairs = headers.iter().flat_map(|header| payloads.iter().map(move |payload| (header, payload)));
        let packets = pairs.map(|(header, payload)| ("link layer", [header, &payload[14..]].concat()));
        let cut = |made: packets::Made| (1..=made.1.len()).map(move |kept| (made.clone(), kept));
        let Some(comparison) = compare(TEST, link, &packets.flat_map(cut).collect::<Vec<_>>()) else { return };
        comparison.require(&[("link layer", 100)]);
    }
}

fn any_link() -> impl Strategy<Value = LinkLayer> {
    use LinkLayer::*;
    prop_oneof![Just(Ethernet), Just(Ip), Just(LinuxCooked), Just(LinuxCooked2), Just(Loopback)]
}

/// Arbitrary bytes, or a packet of some class with bytes changed.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let made = packets::all();
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8);
    let changed = (prop::sample::select(made), changes).prop_map(|((_, mut frame), changes)| {
        for (at, value) in changes {
            let at = at.index(frame.len());
            frame[at] = value;
        }
        frame
    });
    prop_oneof![any::<Vec<u8>>(), changed]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(bellows_testkit::soak::cases(2_000)))]

    #[test]
    fn any_bytes_have_a_line(link in any_link(), bytes in any_bytes(), length in 0_usize..300_000) {
        for length in [bytes.len(), length] {
            let mut text = "before ".to_owned();
            write_summary(&mut text, link, &bytes, length);
            prop_assert_eq!(&text, &format!("before {}", summarize(link, &bytes, length)));
            prop_assert!(!text.contains(char::is_control), "{:?}", text);
        }
    }
}

#[test]
fn packets_in_packets_come_to_an_end() {
    // As deep as 64 KiB allow, and then no packet.
    let mut packet = vec![0xff; 4];
    while let Ok(total_len) = u16::try_from(packet.len() + 20) {
        let len = total_len.to_be_bytes();
        let header = [0x45, 0, len[0], len[1], 0, 0, 0, 0, 64, 4, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet = [&header[..], &packet].concat();
    }
    let summary = summarize(LinkLayer::Ip, &packet, packet.len());
    assert!(summary.ends_with(": [nested more than 16 times]"), "{summary}");

    // Authentication headers nested in authentication headers.
    let mut packet = vec![0x60, 0, 0, 0, 0xff, 0xff, 51, 64];
    packet.resize(40, 0);
    packet.extend([51, 0, 0, 0, 0, 0, 0, 0].repeat(8_000));
    let summary = summarize(LinkLayer::Ip, &packet, packet.len());
    assert!(summary.ends_with(": [nested more than 16 times]"), "{summary}");
}

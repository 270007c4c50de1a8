use std::fs;
use std::sync::Arc;

use bellows_config::{Configure, Context, SharedObject};
use bellows_engine::{Settings, Status};
use bellows_filter::interpret::{PacketView, matches};
use bellows_filter::{Expression, LinkType, Options};
use bellows_packet::{Meta, Packet};
use bellows_rig::Rig;
use bellows_testkit::scratch::scratch;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// An IPv4 packet with two ports; `mark` is its last byte.
fn datagram(protocol: u8, source: u16, destination: u16, mark: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1];
    packet.extend(source.to_be_bytes());
    packet.extend(destination.to_be_bytes());
    packet.extend([0; 21]);
    packet.push(mark);
    packet
}

/// The same in an Ethernet frame.
fn frame(protocol: u8, source: u16, destination: u16, mark: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
    frame.extend(datagram(protocol, source, destination, mark));
    frame
}

fn configured(config: Value) -> Result<PcapFilter, SettingError> {
    PcapFilter::configure(serde_json::from_value(config).unwrap(), &Context::default())
}

fn rig(config: Value, outputs: &[&str]) -> Rig {
    Rig::new(configured(config).unwrap(), &["input"], outputs)
}

/// Web, name and other packets, each with a number.
fn mixed(count: usize) -> Vec<Vec<u8>> {
    let kinds = [(TCP, 5000, 80), (UDP, 5000, 53), (TCP, 443, 5000), (UDP, 123, 123)];
    (0..count)
        .map(|number| {
            let (protocol, source, destination) = kinds[number * number / 3 % kinds.len()];
            frame(protocol, source, destination, number as u8)
        })
        .collect()
}

/// The packets that an expression matches, by the interpreter.
fn matching(text: &str, packets: &[Vec<u8>]) -> Vec<bool> {
    let expression = Expression::parse(text, &Options::default()).unwrap();
    packets.iter().map(|packet| matches(expression.graph(), PacketView::whole(packet))).collect()
}

#[test]
fn packets_that_match_and_others_go_apart_in_order() {
    for lossless in [false, true] {
        let filter = configured(json!({ "filter": "tcp port 80 or 443" })).unwrap();
        let settings = Settings { lossless, ..Settings::default() };
        let mut rig = Rig::with_settings(filter, &["input"], &["rest", "match"], settings);
        let packets = mixed(3000);
        rig.send("input", &packets);
        rig.settle();
        let (web, rest): (Vec<_>, Vec<_>) = packets.into_iter().partition(|packet| packet[23] == TCP);
        assert!(rig.received("match") == web && rig.received("rest") == rest);
        let counters = rig.counts().counters;
        assert_eq!((counters["matched"], counters["rest"]), (web.len() as u64, rest.len() as u64));
    }
}

#[test]
fn others_are_dropped_if_there_is_no_output_for_them() {
    let mut rig = rig(json!({ "filter": "udp" }), &["match"]);
    let packets = mixed(1000);
    rig.send("input", &packets);
    rig.settle();
    // A whole vector of them.
    rig.send("input", (0..300).map(|_| frame(TCP, 1, 2, 3)));
    rig.settle();
    let matched = packets.iter().filter(|packet| packet[23] == UDP).count();
    assert_eq!(rig.received("match").len(), matched);
    assert_eq!(rig.counts().drops["not_matched"], (1300 - matched) as u64);
}

#[test]
fn the_first_filter_in_the_order_of_the_file_gets_a_packet() {
    let filters = Filters(vec![("web".into(), "port 80 or 443".into()), ("any".into(), "tcp or udp".into())]);
    let reversed = Filters(filters.0.iter().rev().cloned().collect());
    for (filters, web) in [(filters, 1000), (reversed, 0)] {
        let config = Config { filters, ..Config::default() };
        let filter = PcapFilter::configure(config, &Context::default()).unwrap();
        let mut rig = Rig::new(filter, &["input"], &["any", "rest", "web"]);
        let packets: Vec<_> = (0..1000).map(|mark| frame(TCP, 80, 5000, mark as u8)).collect();
        rig.send("input", &packets);
        rig.send("input", [frame(1, 0, 0, 7)]);
        rig.settle();
        let counts = ["web", "any", "rest"].map(|output| rig.received(output).len());
        assert_eq!(counts, [web, 1000 - web, 1]);
    }
}

#[test]
fn the_order_of_the_file_is_kept() {
    let config: Config = serde_json::from_str(r#"{"filters": {"z": "udp", "a": "tcp", "m": "ip"}}"#).unwrap();
    let names: Vec<&str> = config.filters.0.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["z", "a", "m"]);
    // A reload distinguishes a changed order from what it was.
    assert!(serde_json::to_string(&config).unwrap().contains(r#"{"z":"udp","a":"tcp","m":"ip"}"#));
}

#[test]
fn with_all_each_filter_that_matches_gets_a_packet() {
    let config = json!({ "which": "all", "filters": { "ip": "ip", "tcp": "tcp", "none": "arp" } });
    let mut rig = rig(config, &["none", "tcp", "ip", "rest"]);
    let mut packets = mixed(1000);
    packets.push(vec![0; 60]);
    rig.send("input", &packets);
    rig.settle();
    for (output, text) in [("ip", "ip"), ("tcp", "tcp"), ("none", "arp"), ("rest", "not ip")] {
        let expected = packets.iter().zip(matching(text, &packets)).filter(|(_, matches)| *matches);
        let expected: Vec<&Vec<u8>> = expected.map(|(packet, _)| packet).collect();
        assert!(rig.received(output).iter().eq(expected), "{output}");
    }
    assert_eq!(rig.counts().dropped(), 0);
}

#[test]
fn the_link_type_comes_from_the_packets() {
    let mut rig = rig(json!({ "filter": "udp port 53", "link_type": "by-packet" }), &["match", "rest"]);
    let raw = datagram(UDP, 5000, 53, 0);
    let with_type = |bytes: &[u8], link_type| {
        let mut packet = Packet::from_bytes(bytes).unwrap();
        packet.set_meta(Meta { link_type, ..Meta::default() });
        packet
    };
    let ethernet = frame(UDP, 5000, 53, 0);
    rig.send_packets(
        "input",
        (0..300).flat_map(|_| {
            let number = |link_type: LinkType| link_type.number();
            let matching = [with_type(&raw, number(LinkType::Raw)), with_type(&raw, number(LinkType::Ipv4))];
            let others = [with_type(&raw, number(LinkType::Ethernet)), with_type(&raw, 147), with_type(&ethernet, 101)];
            matching.into_iter().chain(others).chain([Packet::from_bytes(&ethernet).unwrap()])
        }),
    );
    rig.settle();
    assert_eq!((rig.received("match").len(), rig.received("rest").len()), (900, 900));
}

#[test]
fn link_types_and_scopes_are_chosen() {
    let mut raw = rig(json!({ "filter": "udp", "link_type": "raw" }), &["match"]);
    raw.send("input", [datagram(UDP, 1, 2, 3)]);
    raw.settle();
    assert_eq!(raw.received("match").len(), 1);
    let mut tagged = frame(UDP, 1, 2, 3);
    tagged.splice(12..12, [0x81, 0x00, 0, 6]);
    for (scope, count) in [("libpcap", 0), ("lexical", 1)] {
        let mut rig = rig(json!({ "filter": "vlan 5 or vlan 6", "scope": scope }), &["match"]);
        rig.send("input", [&tagged]);
        rig.settle();
        assert_eq!(rig.received("match").len(), count, "{scope}");
    }
}

#[test]
fn mistakes_have_places_and_help() {
    let error = |config| configured(config).err().unwrap();
    let wrong = error(json!({ "filter": "tcp port 80 or ether proto" }));
    assert_eq!(wrong.key, Some("filter"));
    assert!(wrong.part.range.is_some() && !wrong.help.is_empty(), "{wrong:?}");
    let wrong = error(json!({ "filters": { "web": "tcp port 80", "x": "vlan 70000" } }));
    assert_eq!((wrong.key, wrong.part.steps.first().map(String::as_str)), (Some("filters"), Some("x")));
    assert_eq!(error(json!({ "filters": { "rest": "tcp" } })).part.steps.first().map(String::as_str), Some("rest"));
    assert_eq!(error(json!({ "filters": { "a.b": "tcp" } })).part.steps.first().map(String::as_str), Some("a.b"));
    assert_eq!(error(json!({ "filter": "tcp", "filters": { "a": "tcp" } })).key, Some("filters"));
    assert_eq!(error(json!({ "filter": "tcp", "file": "x" })).key, Some("file"));
    assert_eq!(error(json!({})).key, None);
    assert_eq!(error(json!({ "file": "no/such/file" })).key, Some("file"));
    assert_eq!(error(json!({ "filter": "vlan", "link_type": "raw" })).key, Some("filter"));
    let many: Vec<(String, String)> = (0..65).map(|number| (format!("f{number}"), "tcp".to_owned())).collect();
    let config = Config { filters: Filters(many), ..Config::default() };
    assert_eq!(PcapFilter::configure(config, &Context::default()).err().unwrap().key, Some("filters"));
    let outputs = |config: Value, outputs: &[&str]| {
        PcapFilter::check_outputs(&serde_json::from_value(config).unwrap(), outputs).err().map(|error| error.message)
    };
    let one = json!({ "filter": "tcp" });
    assert_eq!(outputs(one.clone(), &["match"]), None);
    assert_eq!(outputs(one.clone(), &["rest", "match"]), None);
    assert!(outputs(one.clone(), &["rest"]).is_some_and(|message| message.contains("`match`")));
    assert!(outputs(one, &["match", "web"]).is_some_and(|message| message.contains("`web`")));
}

#[test]
fn a_netmask_tells_broadcast_addresses() {
    let wrong = configured(json!({ "filter": "ip broadcast" })).err().unwrap();
    assert!(wrong.help.contains("`netmask = \"255.255.255.0\"`"), "{wrong:?}");
    let mut rig = rig(json!({ "filter": "ip broadcast", "netmask": "255.255.255.0" }), &["match"]);
    let to = |host| {
        let mut frame = frame(UDP, 1, 2, 3);
        frame[33] = host;
        frame
    };
    rig.send("input", [to(1), to(255)]);
    rig.settle();
    assert_eq!(rig.received("match"), [to(255)]);
}

#[test]
fn the_status_tells_what_the_filters_became() {
    let one = configured(json!({ "filter": "port 80" })).unwrap();
    let status = one.status().unwrap();
    let shown = status.status();
    let explained = "(tcp or udp or sctp) src or dst port 80";
    assert_eq!(shown["filters"], json!([{ "name": "match", "expression": explained }]));
    let [program] = &shown["programs"].as_array().unwrap()[..] else { panic!("{shown}") };
    assert_eq!(program["link_type"], "Ethernet");
    let code = status.code();
    let size: usize = code.concat().iter().map(|line| line.bytes.len() / 2).sum();
    assert_eq!(program["code_bytes"], size);
    assert_eq!(program["fallback_reason"].is_null(), size > 0, "{shown}");

    let two = configured(json!({ "filters": { "web": "tcp port 80", "x": "arp" }, "link_type": "by-packet" })).unwrap();
    let status = two.status().unwrap();
    let link_types = bellows_filter::LinkType::ALL;
    assert_eq!(status.status()["programs"].as_array().unwrap().len(), link_types.len());
    if size > 0 {
        assert_eq!(status.code().len(), link_types.len());
        let labels: Vec<String> = status.code().concat().into_iter().filter_map(|line| line.label).collect();
        assert!(labels.contains(&"web: tcp port 80 (raw IP)".to_owned()), "{labels:?}");
    }
}

#[test]
fn an_expression_comes_from_a_file() {
    let folder = scratch();
    fs::write(folder.path().join("web.filter"), "tcp\n  port 80\n").unwrap();
    let configured = |file: &str| {
        let config: Config = serde_json::from_value(json!({ "file": file })).unwrap();
        PcapFilter::configure(config, &Context::new(folder.path(), "filter"))
    };
    let mut rig = Rig::new(configured("web.filter").unwrap(), &["input"], &["match"]);
    rig.send("input", [frame(TCP, 80, 5000, 1), frame(UDP, 80, 5000, 1)]);
    rig.settle();
    assert_eq!(rig.received("match").len(), 1);
    fs::write(folder.path().join("wrong.filter"), "tcp and\n  vlan 70000\n").unwrap();
    let wrong = configured("wrong.filter").err().unwrap();
    assert!(wrong.message.contains("wrong.filter`, line 2, column "), "{wrong}");
    let file = wrong.file.unwrap();
    assert_eq!(&file.text[file.mistakes[0].range.clone()], "vlan 70000");
    assert_eq!(configured(".").err().unwrap().key, Some("file"));
}

#[test]
fn what_may_surprise_is_told_when_the_network_is_read() {
    let warnings = |value: serde_json::Value| {
        let context = Context::default();
        PcapFilter::configure(serde_json::from_value(value).unwrap(), &context).unwrap();
        context.warnings()
    };
    let told = warnings(json!({ "filters": { "a": "tcp", "b": "ip and arp" } }));
    assert_eq!((told.len(), told[0].key, &told[0].part.steps[..]), (1, Some("filters"), &["b".to_owned()][..]));
    assert!(told[0].message.contains("matches no packet"), "{told:?}");
    let told = warnings(json!({ "filter": "ip or not tcp port 22" }));
    assert!(told[0].message.contains("access-list") && told[0].part.range == Some(10..21), "{told:?}");
    assert_eq!(warnings(json!({ "filter": "tcp" })), []);
}

const EXPRESSIONS: [&str; 8] =
    ["tcp", "udp port 53", "port 80 or 443", "len > 61", "ip[8] < 20", "src port 5000", "not ip", "1 = 1"];

fn any_packets() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let known = (prop::sample::select(vec![TCP, UDP, 1]), prop::sample::select(vec![53, 80, 443, 5000]), any::<u8>());
    let known = (known, 0..20usize).prop_map(|((protocol, port, mark), cut)| {
        let mut frame = frame(protocol, 5000, port, mark);
        frame[22] = mark;
        frame.truncate(60 - cut * cut % 60);
        frame
    });
    let any = prop::collection::vec(any::<u8>(), 0..80);
    prop::collection::vec(prop_oneof![8 => known, 1 => any], 0..400)
}

proptest! {
    /// The interpreter of expressions is the model.
    #[test]
    fn outputs_get_what_the_interpreter_says(
        packets in any_packets(), chosen in prop::sample::subsequence(EXPRESSIONS.to_vec(), 1..=4), all: bool,
        by_packet: bool, lossless: bool,
    ) {
        let name = |number: usize| format!("f{number}");
        let filters = Filters(chosen.iter().enumerate().map(|(n, text)| (name(n), (*text).to_owned())).collect());
        let which = if all { Which::All } else { Which::First };
        let link_type = if by_packet { super::LinkType::ByPacket } else { super::LinkType::Ethernet };
        let filter = PcapFilter::configure(Config { filters, which, link_type, ..Config::default() }, &Context::default());
        let names: Vec<String> = (0..chosen.len()).map(name).chain(["rest".to_owned()]).collect();
        let outputs: Vec<&str> = names.iter().rev().map(String::as_str).collect();
        let settings = Settings { lossless, ..Settings::default() };
        let mut rig = Rig::with_settings(filter.unwrap(), &["input"], &outputs, settings);
        rig.send("input", &packets);
        rig.settle();
        let verdicts: Vec<Vec<bool>> = chosen.iter().map(|text| matching(text, &packets)).collect();
        for (output, name) in names.iter().enumerate() {
            let before = if all && output < chosen.len() { 0..0 } else { 0..output };
            let goes = |packet: usize| {
                let own = verdicts.get(output).is_none_or(|verdict| verdict[packet]);
                own && !verdicts[before.clone()].iter().any(|verdict| verdict[packet])
            };
            let expected: Vec<&Vec<u8>> = (0..packets.len()).filter(|&packet| goes(packet)).map(|n| &packets[n]).collect();
            prop_assert!(rig.received(name).iter().eq(expected), "{}", name);
        }
    }
}

/// Two filters with one table: one that admits, and one without an expression for the way back.
fn both_ways(config: Value, table: &Arc<StateTable>) -> [Rig; 2] {
    [config, json!({ "state_table": "flows" })].map(|config| stateful(config, table))
}

fn stateful(mut config: Value, table: &Arc<StateTable>) -> Rig {
    config["state_table"] = json!("flows");
    let config = serde_json::from_value(config).unwrap();
    let filter = PcapFilter::with_table(config, Some(Arc::clone(table)), &Context::default()).unwrap();
    Rig::new(filter, &["input"], &["match", "rest"])
}

fn table(config: Value) -> Arc<StateTable> {
    let config = serde_json::from_value(config).unwrap();
    Arc::new(StateTable::configure(config, &Context::default()).unwrap())
}

/// The numbers of packets that match and of others.
fn through(rig: &mut Rig, packets: impl IntoIterator<Item = Vec<u8>>) -> [usize; 2] {
    rig.send("input", packets);
    rig.settle();
    ["match", "rest"].map(|output| rig.received(output).len())
}

/// The packet in the other direction.
fn back(mut frame: Vec<u8>) -> Vec<u8> {
    let (addresses, ports) = (frame[26..34].to_vec(), frame[34..38].to_vec());
    frame[26..34].copy_from_slice(&[&addresses[4..], &addresses[..4]].concat());
    frame[34..38].copy_from_slice(&[&ports[2..], &ports[..2]].concat());
    frame
}

#[test]
fn answers_pass_after_what_the_expression_admits() {
    let table = table(json!({}));
    let [mut out, mut home] = both_ways(json!({ "filter": "udp dst port 53" }), &table);
    let (request, stranger) = (frame(UDP, 5000, 53, 0), frame(UDP, 5001, 53, 0));
    assert_eq!(through(&mut home, [back(request.clone())]), [0, 1]);
    assert_eq!(through(&mut out, [request.clone(), frame(UDP, 5000, 54, 0)]), [1, 1]);
    assert_eq!(through(&mut home, [back(request.clone()), back(stranger), request.clone()]), [2, 1]);
    // The answer passes the first filter as well, though it does not match.
    assert_eq!(through(&mut out, [back(request.clone()), request.clone()]), [2, 0]);
    let counters = out.counts().counters;
    let [entered, passed] = ["states_entered", "passed_by_state"].map(|name| counters[name]);
    assert_eq!((entered, passed, counters["matched"], counters["rest"]), (1, 2, 3, 1));
    assert_eq!(table.status()["protocols"], json!({ "tcp": 0, "udp": 1, "icmp": 0, "other": 0 }));
    // Another filter with the table, as a reload makes it.
    let mut other = stateful(json!({ "filter": "arp" }), &table);
    assert_eq!(through(&mut other, [request.clone(), back(request), frame(UDP, 5000, 54, 0)]), [2, 1]);
}

#[test]
fn an_answer_in_the_same_vector_passes() {
    let mut rig = stateful(json!({ "filter": "tcp dst port 80", "which": "all" }), &table(json!({})));
    let requests = (0..100).map(|port| frame(TCP, 5000 + port, 80, 0));
    let packets: Vec<_> =
        requests.flat_map(|request| [back(request.clone()), request.clone(), back(request)]).collect();
    assert_eq!(through(&mut rig, packets), [200, 100]);
}

#[test]
fn states_expire_by_the_engines_time() {
    const S: u64 = 1_000_000_000;
    let table = table(json!({ "capacity": 64, "udp": "10s", "tcp_transitory": "20s" }));
    let [mut out, mut home] = both_ways(json!({ "filter": "dst port 80" }), &table);
    let (tcp, udp) = (frame(TCP, 5000, 80, 0), frame(UDP, 5000, 80, 0));
    let answers = [back(tcp.clone()), back(udp.clone())];
    assert_eq!(through(&mut out, [tcp, udp]), [2, 0]);
    for (seconds, passed) in [(9, 2), (20, 1), (39, 1), (62, 0)] {
        home.set_time((1 + seconds) * S);
        assert_eq!(through(&mut home, answers.clone())[0], passed, "after {seconds} s");
    }
    out.set_time(200 * S);
    out.settle();
    let expired = [&out, &home].map(|rig| rig.counts().counters["states_expired"]);
    assert_eq!((expired.iter().sum::<u64>(), &table.status()["connections"]), (2, &json!(0)));
}

#[test]
fn errors_about_a_connection_pass_and_later_fragments_do_not() {
    let table = table(json!({}));
    let [mut out, mut home] = both_ways(json!({ "filter": "udp dst port 53" }), &table);
    let request = frame(UDP, 5000, 53, 0);
    let mut fragment = request.clone();
    fragment[21] = 10;
    assert_eq!(through(&mut out, [request.clone(), fragment.clone()]), [1, 1], "it has no port to match");
    assert_eq!(through(&mut home, [back(fragment)]), [0, 1]);
    let error_about = |packet: &[u8]| {
        let mut error = frame(1, 0x0303, 0, 0);
        error.truncate(42);
        // From a router to the sender.
        error[26..34].copy_from_slice(&[203, 0, 113, 1, 192, 0, 2, 1]);
        [&error, &packet[14..42]].concat()
    };
    let stranger = frame(UDP, 5001, 53, 0);
    assert_eq!(through(&mut home, [error_about(&request), error_about(&stranger)]), [1, 1]);
    // An error that matches begins no connection.
    let mut all = stateful(json!({ "filter": "" }), &table);
    assert_eq!(through(&mut all, [error_about(&stranger), vec![0; 60]]), [2, 0]);
    assert_eq!(all.counts().counters["states_entered"], 0);
}

#[test]
fn states_know_the_link_types() {
    let raw = datagram(UDP, 5000, 53, 0);
    let behind = |header: &[u8]| [header, &raw].concat();
    let mut cooked = [0; 16];
    cooked[14] = 8;
    let mut cooked2 = [0; 20];
    cooked2[0] = 8;
    let (null, of_loop) = ([2, 0, 0, 0], [0, 0, 0, 2]);
    let kinds = [
        ("ethernet", 1, frame(UDP, 5000, 53, 0)),
        ("raw", 101, raw.clone()),
        ("linux-sll", 113, behind(&cooked)),
        ("linux-sll2", 276, behind(&cooked2)),
        ("null", 0, behind(&null)),
        ("loop", 108, behind(&of_loop)),
    ];
    for (link_type, _, packet) in &kinds {
        let mut rig = stateful(json!({ "filter": "udp", "link_type": link_type }), &table(json!({})));
        assert_eq!(through(&mut rig, [packet.clone()]), [1, 0]);
        assert_eq!(rig.counts().counters["states_entered"], 1, "{link_type}");
    }
    // One connection, whatever the link.
    let mut rig = stateful(json!({ "filter": "udp", "link_type": "by-packet" }), &table(json!({})));
    rig.send_packets(
        "input",
        kinds.iter().map(|(_, link_type, bytes)| {
            let mut packet = Packet::from_bytes(bytes).unwrap();
            packet.set_meta(Meta { link_type: *link_type, ..Meta::default() });
            packet
        }),
    );
    rig.settle();
    let counters = rig.counts().counters;
    assert_eq!((counters["states_entered"], counters["passed_by_state"]), (1, 5));
}

#[test]
fn a_flood_is_counted_and_leaves_what_is_established() {
    let table = table(json!({ "capacity": 64 }));
    let [mut out, mut home] = both_ways(json!({ "filter": "udp dst port 53" }), &table);
    let request = frame(UDP, 5000, 53, 0);
    assert_eq!(through(&mut out, [request.clone(), back(request.clone()), request.clone()]), [3, 0]);
    let flood = (0..20_000u16).filter(|&port| port != 5000).map(|port| frame(UDP, port, 53, 0));
    assert_eq!(through(&mut out, flood), [19_999, 0]);
    assert_eq!(through(&mut home, [back(request)]), [1, 0]);
    let counters = out.counts().counters;
    assert_eq!(counters["states_entered"], 20_000);
    assert!(counters["states_evicted"] > 19_000 && counters["states_refused"] == 0, "{counters:?}");
}

#[test]
fn mistakes_with_a_state_table() {
    let error = |config: Value| {
        let config = serde_json::from_value(config).unwrap();
        PcapFilter::with_table(config, Some(table(json!({}))), &Context::default()).err().and_then(|error| error.key)
    };
    assert_eq!(error(json!({ "state_table": "flows", "filters": { "a": "tcp" } })), Some("state_table"));
    assert_eq!(error(json!({ "state_table": "flows", "filter": "tcp prot" })), Some("filter"));
    assert_eq!(configured(json!({ "state_table": "flows" })).err().unwrap().key, Some("state_table"));
    let outputs = |outputs: &[&str]| {
        let config = serde_json::from_value(json!({ "state_table": "flows" })).unwrap();
        PcapFilter::check_outputs(&config, outputs).err().and_then(|error| error.key)
    };
    assert_eq!((outputs(&["match"]), outputs(&["rest"])), (None, Some("state_table")));
}

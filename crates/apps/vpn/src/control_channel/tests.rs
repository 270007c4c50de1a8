use bellows_rig::EventLog;
use bellows_rig::Rig;
use proptest::prelude::*;
use serde_json::json;

use super::*;

const PORTS: [&str; 3] = ["tunnel", "circuit", "control"];

/// The time at which a rig starts.
const START: u64 = SECOND;
const SECOND: u64 = 1_000_000_000;

fn configure(keys: serde_json::Value) -> Result<ControlChannel, SettingError> {
    ControlChannel::configure(serde_json::from_value(keys).unwrap(), &Context::new("", "line"))
}

fn rig(keys: serde_json::Value) -> Rig {
    Rig::new(configure(keys).unwrap(), &PORTS, &PORTS)
}

/// A message of a peer with the MTU 1500 and the VC ID 7.
fn hello(heartbeat: u16) -> Message {
    Message { heartbeat, mtu: Some(1500), description: Some("far".to_owned()), vc_id: Some(7) }
}

fn end() -> Rig {
    rig(json!({"mtu": 1500, "vc_id": 7}))
}

/// Whether frames pass, in both directions or in neither.
fn passes(rig: &mut Rig) -> bool {
    let before = rig.counts().drops["pseudowire_down"];
    rig.send("tunnel", ["from the tunnel"]);
    rig.send("circuit", ["from the circuit"]);
    rig.settle();
    let (circuit, tunnel) = (rig.received("circuit"), rig.received("tunnel"));
    if circuit.is_empty() && tunnel.is_empty() {
        assert_eq!(rig.counts().drops["pseudowire_down"], before + 2);
        return false;
    }
    assert_eq!((circuit, tunnel), (vec![b"from the tunnel".to_vec()], vec![b"from the circuit".to_vec()]));
    true
}

fn hear(rig: &mut Rig, message: &Message) {
    rig.send("control", [message.to_bytes()]);
    rig.settle();
}

#[test]
fn two_ends_bring_a_pseudowire_up_and_notice_that_the_other_is_gone() {
    let mut ends = [end(), rig(json!({"mtu": 1500, "vc_id": 7, "heartbeat": "2s", "dead_factor": 4}))];
    // The messages of both, one way or both ways.
    let exchange = |[one, two]: &mut [Rig; 2], is_cut: bool| {
        for _ in 0..2 {
            for rig in [&mut *one, &mut *two] {
                rig.settle();
            }
            let (from_one, from_two) = (one.received("control"), two.received("control"));
            two.send("control", from_one);
            if !is_cut {
                one.send("control", from_two);
            }
        }
        [one, two].map(|rig| {
            rig.settle();
            passes(rig)
        })
    };
    assert!(!passes(&mut ends[0]) && !passes(&mut ends[1]));
    assert_eq!(exchange(&mut ends, false), [true; 2]);
    // The second end announces 2 s, so that the first one waits for three times that.
    let mut now = START;
    for (until, expected) in [(5_900, [true, true]), (6_100, [false, true]), (30_000, [false, true])] {
        while now < START + until * 1_000_000 {
            now += 100_000_000;
            ends.iter_mut().for_each(|rig| rig.set_time(now));
            exchange(&mut ends, true);
        }
        assert_eq!(exchange(&mut ends, true), expected, "after {until} ms");
    }
    now += SECOND;
    ends.iter_mut().for_each(|rig| rig.set_time(now));
    assert_eq!(exchange(&mut ends, false), [true; 2]);
    let counts = ends[0].counts().counters;
    assert_eq!((counts["up"], counts["down"]), (2, 1));
    let counts = ends[1].counts().counters;
    assert_eq!((counts["up"], counts["down"]), (1, 0));
}

#[test]
fn three_messages_are_sent_in_a_heartbeat() {
    let mut rig = rig(json!({"mtu": 9000, "vc_id": 70000, "description": "site ä", "heartbeat": "3s"}));
    let mut sent = Vec::new();
    for step in 0..=90 {
        rig.set_time(START + step * 100_000_000);
        rig.settle();
        sent.extend(rig.received("control"));
    }
    let expected = [&[1, 2, 0, 3, 2, 2, 0x23, 0x28, 3, 7][..], "site ä".as_bytes(), &[4, 4, 0, 1, 0x11, 0x70]].concat();
    assert_eq!(sent, vec![expected; 10]);
    assert_eq!(rig.counts().counters["sent"], 10);
}

#[test]
fn a_peer_that_appears_is_answered_at_once() {
    let mut rig = end();
    rig.settle();
    assert_eq!(rig.received("control").len(), 1);
    hear(&mut rig, &hello(1));
    hear(&mut rig, &hello(1));
    assert_eq!(rig.received("control").len(), 1);
}

#[test]
fn mismatches_take_a_pseudowire_down_until_they_are_over() {
    let mut rig = end();
    let other_mtu = Message { mtu: Some(1400), ..hello(5) };
    let other_id = Message { vc_id: Some(8), ..hello(5) };
    let silent = Message { mtu: None, vc_id: None, description: None, ..hello(5) };
    for (message, is_up, cause) in [
        (&hello(5), true, json!(null)),
        (&other_mtu, false, json!("the peer's MTU is 1400, that of this end 1500")),
        (&hello(5), true, json!(null)),
        (&other_id, false, json!("the peer's VC ID is 8, that of this end 7")),
        (&silent, true, json!(null)),
    ] {
        hear(&mut rig, message);
        assert_eq!(passes(&mut rig), is_up);
        assert_eq!(rig.status().unwrap()["cause"], cause);
    }
    let counts = rig.counts().counters;
    let names = ["received", "up", "down", "mtu_mismatch", "vc_id_mismatch"];
    assert_eq!(names.map(|name| counts[name]), [5, 3, 2, 1, 1]);
}

#[test]
fn malformed_messages_change_nothing_and_unknown_fields_are_skipped() {
    let mut rig = end();
    hear(&mut rig, &hello(5));
    let good = Message { mtu: None, description: None, ..hello(5) }.to_bytes();
    let bad: [&[u8]; 8] = [
        &good[..good.len() - 1],
        &[1],
        &[1, 2, 0],
        &[1, 1, 5],
        &[2, 2, 5, 220],
        &[1, 2, 0, 0],
        &[1, 2, 0, 5, 1, 2, 0, 5],
        &[1, 2, 0, 5, 2, 3, 0, 0, 0],
    ];
    rig.send("control", bad);
    rig.send("control", [[&[9, 1, 0, 200, 0][..], &good].concat()]);
    rig.settle();
    let counts = rig.counts();
    assert_eq!(counts.drops["malformed"], 8);
    assert_eq!((counts.counters["received"], counts.counters["unknown_fields"]), (2, 2));
    assert!(passes(&mut rig));
}

#[test]
fn the_status_shows_both_ends() {
    let mut rig = end();
    rig.settle();
    let status = rig.status().unwrap();
    assert_eq!((&status["state"], &status["cause"]), (&json!("down"), &json!("the peer has not been heard yet")));
    assert_eq!(status["peer"], json!(null));
    hear(&mut rig, &hello(9));
    let status = rig.status().unwrap();
    let local = json!({"heartbeat_seconds": 5, "mtu": 1500, "description": "line", "vc_id": 7});
    assert_eq!((&status["state"], &status["cause"], &status["local"]), (&json!("up"), &json!(null), &local));
    let peer = json!({"heartbeat_seconds": 9, "mtu": 1500, "description": "far", "vc_id": 7,
        "last_seen_seconds": 0, "dead_after_seconds": 27});
    assert_eq!(status["peer"], peer);
    assert_eq!(status["since_seconds"], json!(0));
    rig.set_time(START + 27 * SECOND);
    rig.settle();
    assert_eq!(rig.status().unwrap()["cause"], json!("the peer has not been heard for 27 s"));
}

#[test]
fn a_heartbeat_counts_up_to_a_limit() {
    for (keys, announced, seconds) in [
        (json!({}), 65_535, 180),
        (json!({}), 61, 180),
        (json!({}), 60, 180),
        (json!({}), 59, 177),
        (json!({"heartbeat": "100s", "dead_factor": 2}), 65_535, 200),
        (json!({"max_heartbeat": "2s"}), 3, 6),
        (json!({"max_heartbeat": "300s"}), 65_535, 900),
    ] {
        let mut keys = keys;
        (keys["mtu"], keys["vc_id"]) = (json!(1500), json!(7));
        let mut rig = rig(keys.clone());
        let log = EventLog::begin();
        rig.settle();
        // What counts of it is reported once.
        hear(&mut rig, &hello(announced));
        hear(&mut rig, &hello(announced));
        let told = log.take_names().iter().filter(|name| **name == "heartbeat-too-long").count();
        let counted = rig.counts().counters["heartbeat_too_long"];
        assert!([(0, 0), (1, 2)].contains(&(told, counted)), "{keys}: {told} of {counted}");
        assert_eq!(counted > 0, ![59, 60].contains(&announced), "{keys}");
        assert_eq!(rig.status().unwrap()["peer"]["dead_after_seconds"], json!(seconds), "{keys}");
        rig.set_time(START + seconds * SECOND - 1_000_000);
        assert!(passes(&mut rig), "{keys}");
        rig.set_time(START + seconds * SECOND);
        assert!(!passes(&mut rig), "{keys}");
    }
}

#[test]
fn a_successor_keeps_the_state_and_judges_it_by_its_own_keys() {
    let heard = |app: &mut ControlChannel| {
        app.peer.heard = Some((hello(5), START));
        app.state = State::Up;
    };
    for (mtu, is_up, transitions) in [(1500, true, [0, 0]), (1400, false, [0, 1])] {
        let mut old = configure(json!({"mtu": 1500, "vc_id": 7, "heartbeat": "9s"})).unwrap();
        heard(&mut old);
        let mut new = configure(json!({"mtu": mtu, "vc_id": 7})).unwrap();
        new.start(Some(&mut old)).unwrap();
        let mut rig = Rig::new(new, &PORTS, &PORTS);
        rig.settle();
        assert_eq!(passes(&mut rig), is_up);
        let counts = rig.counts().counters;
        assert_eq!(["up", "down"].map(|name| counts[name]), transitions);
    }
}

#[test]
fn a_peer_that_was_never_heard_is_told_once() {
    let log = EventLog::begin();
    let at = |rig: &mut Rig, milliseconds: u64| {
        rig.set_time(START + milliseconds * 1_000_000);
        rig.settle();
    };
    let keys = json!({"mtu": 1500, "vc_id": 7, "heartbeat": "2s", "dead_factor": 2});
    let mut rig = rig(keys.clone());
    for (milliseconds, expected) in [(0, 0), (3_900, 0), (4_000, 1), (5_000, 0), (60_000, 0)] {
        at(&mut rig, milliseconds);
        assert_eq!(log.take_names(), vec!["link-down"; expected], "after {milliseconds} ms");
    }
    hear(&mut rig, &hello(5));
    assert_eq!(log.take_names(), ["link-up"]);
    // One that is heard in time is not missed.
    let mut rig = self::rig(keys);
    at(&mut rig, 3_900);
    hear(&mut rig, &hello(5));
    at(&mut rig, 8_000);
    assert_eq!(log.take_names(), ["link-up"]);
}

#[test]
fn mistakes_in_keys_name_the_key() {
    let long = "x".repeat(256);
    for (keys, key) in [
        (json!({"mtu": 0}), "mtu"),
        (json!({"mtu": 1500, "heartbeat": "0s"}), "heartbeat"),
        (json!({"mtu": 1500, "heartbeat": "1500ms"}), "heartbeat"),
        (json!({"mtu": 1500, "heartbeat": "65536s"}), "heartbeat"),
        (json!({"mtu": 1500, "max_heartbeat": "0s"}), "max_heartbeat"),
        (json!({"mtu": 1500, "max_heartbeat": "65536s"}), "max_heartbeat"),
        (json!({"mtu": 1500, "dead_factor": 0}), "dead_factor"),
        (json!({"mtu": 1500, "description": long}), "description"),
    ] {
        assert_eq!(configure(keys).err().and_then(|error| error.key), Some(key));
    }
}

/// A field of a message: its type, and its value.
fn field() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let known = (1u8..5).prop_flat_map(|kind| {
        let length = [2, 2, 5, 4][usize::from(kind) - 1];
        (Just(kind), prop::collection::vec(any::<u8>(), length..=length))
    });
    let any = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..8));
    prop_oneof![4 => known, 1 => any]
}

/// What fields of these types and values mean, by looking for each by itself.
fn meaning(fields: &[(u8, Vec<u8>)]) -> Option<(Message, u64)> {
    let only = |kind: u8| {
        let mut found = fields.iter().filter(|field| field.0 == kind).map(|field| &field.1);
        let first = found.next();
        found.next().is_none().then_some(first)
    };
    let number = |kind: u8, length: usize| match only(kind)? {
        Some(value) if value.len() != length => None,
        value => Some(value.map(|value| value.iter().fold(0, |all, &byte| all << 8 | u32::from(byte)))),
    };
    let message = Message {
        heartbeat: number(1, 2)?.filter(|&seconds| seconds > 0)? as u16,
        mtu: number(2, 2)?.map(|mtu| mtu as u16),
        description: only(3)?.map(|text| String::from_utf8_lossy(text).into_owned()),
        vc_id: number(4, 4)?,
    };
    Some((message, fields.iter().filter(|field| !(1..5).contains(&field.0)).count() as u64))
}

/// Something that happens to an end.
#[derive(Clone, Debug)]
enum Event {
    Pause(u64),
    Hear(Message),
    Frames,
}

fn event() -> impl Strategy<Value = Event> {
    let message = (1u16..4, prop::option::weighted(0.8, 1500u16..1502), prop::option::weighted(0.8, 7u32..9));
    let hear =
        message.prop_map(|(heartbeat, mtu, vc_id)| Event::Hear(Message { heartbeat, mtu, description: None, vc_id }));
    prop_oneof![2 => (1u64..3_000).prop_map(Event::Pause), 2 => hear, 3 => Just(Event::Frames)]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        heartbeat in 1u16.., mtu in any::<Option<u16>>(), vc_id in any::<Option<u32>>(),
        description in prop::option::of("\\PC{0,60}"),
    ) {
        let message = Message { heartbeat, mtu, description, vc_id };
        prop_assert_eq!(Message::read(&message.to_bytes()), Ok((message, 0)));
    }

    #[test]
    fn messages_are_read_as_their_fields_mean(fields in prop::collection::vec(field(), 0..6), cut in 0usize..40) {
        let bytes: Vec<u8> = fields.iter().flat_map(|(kind, value)| {
            [&[*kind, value.len() as u8][..], value].concat()
        }).collect();
        prop_assert_eq!(Message::read(&bytes).ok(), meaning(&fields));
        // Without its end it is no message, or one of fewer fields.
        let cut = &bytes[..cut.min(bytes.len())];
        let mut whole = 0;
        let mut length = 0;
        while whole < fields.len() && length + 2 + fields[whole].1.len() <= cut.len() {
            length += 2 + fields[whole].1.len();
            whole += 1;
        }
        let expected = if length == cut.len() { meaning(&fields[..whole]) } else { None };
        prop_assert_eq!(Message::read(cut).ok(), expected);
    }

    #[test]
    fn any_bytes_are_a_message_or_counted(messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..20)) {
        let mut rig = end();
        rig.send("control", &messages);
        rig.settle();
        let counts = rig.counts();
        prop_assert_eq!(counts.counters["received"] + counts.drops["malformed"], messages.len() as u64);
        prop_assert_eq!(counts.dropped(), counts.drops["malformed"]);
    }

    /// Beside a model that looks at the last message only.
    #[test]
    fn frames_pass_while_the_last_message_is_young_and_right(
        events in prop::collection::vec(event(), 1..60), dead_factor in 1u8..4,
    ) {
        let mut rig = rig(json!({"mtu": 1500, "vc_id": 7, "dead_factor": dead_factor}));
        let (mut now, mut last) = (START, None::<(u64, Message)>);
        for event in events {
            match event {
                Event::Pause(milliseconds) => {
                    now += milliseconds * 1_000_000;
                    rig.set_time(now);
                    rig.settle();
                }
                Event::Hear(message) => {
                    hear(&mut rig, &message);
                    last = Some((now, message));
                }
                Event::Frames => {
                    let is_up = last.as_ref().is_some_and(|(at, message)| {
                        let is_young = now - at < u64::from(message.heartbeat) * u64::from(dead_factor) * SECOND;
                        is_young && message.mtu.unwrap_or(1500) == 1500 && message.vc_id.unwrap_or(7) == 7
                    });
                    prop_assert_eq!(passes(&mut rig), is_up);
                    let status = rig.status().unwrap();
                    prop_assert_eq!(status["state"].as_str(), Some(if is_up { "up" } else { "down" }));
                }
            }
        }
        let counts = rig.counts().counters;
        prop_assert!([0, 1].contains(&(counts["up"] - counts["down"])));
    }
}

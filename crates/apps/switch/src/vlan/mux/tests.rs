use std::collections::BTreeMap;

use bellows_rig::Rig;
use proptest::prelude::*;

use super::*;

const PORTS: [&str; 6] = ["trunk", "native", "vlan5", "vlan4094", "vlan5-6", "vlan6-5"];

fn rig(config: Config, outputs: &[&str]) -> Rig {
    let app = VlanMux::configure(config, &Context::default()).unwrap();
    Rig::new(app, &PORTS, outputs)
}

/// The output and the frame, or the reason for its drop.
type Fate = Result<(&'static str, Vec<u8>), &'static str>;

/// Whether a frame has a tag at a place, with its control field. `None` if it ends there.
fn tag_at(frame: &[u8], at: usize, tpid: TagProtocols) -> Option<Option<u16>> {
    let kind = frame.get(at..at + 2)?;
    let is_tag = match tpid {
        TagProtocols::Customer => kind == [0x81, 0],
        TagProtocols::Service => kind == [0x88, 0xa8],
        TagProtocols::Old => kind == [0x91, 0],
        TagProtocols::Any => kind == [0x81, 0] || kind == [0x88, 0xa8],
    };
    if !is_tag {
        return Some(None);
    }
    let rest = frame.get(at + 2..at + 6)?;
    Some(Some(u16::from_be_bytes([rest[0], rest[1]])))
}

fn number(tpid: TagProtocols) -> [u8; 2] {
    match tpid {
        TagProtocols::Service => [0x88, 0xa8],
        TagProtocols::Old => [0x91, 0],
        _ => [0x81, 0],
    }
}

/// What a naive multiplexer does with a frame.
fn naive(config: &Config, port: &str, frame: &[u8]) -> Fate {
    let stacked = port == "vlan5-6" || port == "vlan6-5";
    let tpid = if stacked { config.inner_tpid } else { config.tpid };
    let tag = tag_at(frame, 12, tpid).ok_or("too_short")?;
    let (id, priority) = tag.map_or((0, 0), |control| (control & 0xfff, control & 0xf000));
    if port == "trunk" {
        let inner = tag_at(frame, 16, config.inner_tpid).flatten().map(|control| control & 0xfff);
        let (to, tags) = match (id, inner) {
            (0, _) => return Ok(("native", frame.to_vec())),
            (5, Some(6)) => ("vlan5-6", 2),
            (6, Some(5)) => ("vlan6-5", 2),
            (5, _) => ("vlan5", 1),
            (4094, _) => ("vlan4094", 1),
            _ => return Err("unknown_vlan"),
        };
        let kept = [&frame[12..14], &priority.to_be_bytes()].concat();
        let kept: &[u8] = if config.keep_priority && priority != 0 { &kept } else { &[] };
        return Ok((to, [&frame[..12], kept, &frame[12 + 4 * tags..]].concat()));
    }
    let (outer, inner) = match port {
        "native" if id != 0 => return Err("native_tagged"),
        "native" => return Ok(("trunk", frame.to_vec())),
        "vlan5" => (5, None),
        "vlan4094" => (4094, None),
        "vlan5-6" => (5, Some(6)),
        _ => (6, Some(5)),
    };
    let map = config.priority_map.as_ref();
    let point = map.map_or(priority >> 13, |map| u16::from(map[usize::from(priority >> 13)]));
    let eligible = config.drop_eligible.map_or(priority & 0x1000, |eligible| u16::from(eligible) << 12);
    let written = |kind: [u8; 2], vlan: u16| [kind, (point << 13 | eligible | vlan).to_be_bytes()].concat();
    let mut tags = written(number(config.tpid), outer);
    if let Some(inner) = inner {
        tags.extend(written(number(config.inner_tpid), inner));
    }
    let rest = if tag.is_some() && id == 0 { &frame[16..] } else { &frame[12..] };
    Ok(("trunk", [&frame[..12], &tags, rest].concat()))
}

fn tpids() -> impl Strategy<Value = TagProtocols> {
    prop_oneof![
        Just(TagProtocols::Customer),
        Just(TagProtocols::Service),
        Just(TagProtocols::Any),
        Just(TagProtocols::Old)
    ]
}

fn configs() -> impl Strategy<Value = Config> {
    let map = prop::option::of(prop::collection::vec(0u8..8, 8));
    (tpids(), tpids(), any::<bool>(), map, any::<Option<bool>>()).prop_map(
        |(tpid, inner_tpid, keep_priority, priority_map, drop_eligible)| Config {
            tpid,
            inner_tpid,
            keep_priority,
            priority: None,
            priority_map,
            drop_eligible,
        },
    )
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![Just([0x81, 0]), Just([0x88, 0xa8]), Just([0x91, 0]), Just([8, 0]), any::<[u8; 2]>()];
    let ids = prop_oneof![Just(0u16), Just(5), Just(4094), Just(6), 0u16..4096];
    let tag = (kinds.clone(), ids, 0u16..16).prop_map(|(kind, id, priority)| (kind, id | priority << 12));
    let length = prop_oneof![20 => Just(usize::MAX), 1 => 0usize..24];
    (prop::collection::vec(tag, 1..3), kinds, length).prop_map(|(tags, kind, length)| {
        let tags = tags.iter().flat_map(|(kind, control)| [*kind, control.to_be_bytes()].concat());
        let mut frame: Vec<u8> = [3; 12].into_iter().chain(tags).chain(kind).chain([9; 40]).collect();
        frame.truncate(length);
        frame
    })
}

proptest! {
    #[test]
    fn frames_go_where_a_naive_multiplexer_sends_them(
        config in configs(),
        sent in prop::collection::vec((0..PORTS.len(), frames()), 0..200),
    ) {
        let mut rig = rig(config.clone(), &PORTS);
        let mut expected: BTreeMap<&str, Vec<Vec<u8>>> = PORTS.into_iter().map(|port| (port, Vec::new())).collect();
        let mut drops = BTreeMap::<&str, u64>::new();
        for (index, port) in PORTS.into_iter().enumerate() {
            let of_port = sent.iter().filter(|(at, _)| *at == index);
            let frames: Vec<&Vec<u8>> = of_port.map(|(_, frame)| frame).collect();
            for frame in &frames {
                match naive(&config, port, frame) {
                    Ok((to, frame)) => expected.get_mut(to).unwrap().push(frame),
                    Err(reason) => *drops.entry(reason).or_default() += 1,
                }
            }
            rig.send(port, frames);
        }
        rig.settle();
        for port in PORTS {
            prop_assert_eq!(&rig.received(port), &expected[port], "{}", port);
        }
        let counts = rig.counts().drops;
        for (reason, count) in drops {
            prop_assert_eq!(counts[reason], count, "{}", reason);
        }
        rig.finish();
    }
}

#[test]
fn ports_that_are_missing_have_counters() {
    let mut rig = rig(Config::default(), &["vlan5"]);
    let frame = |rest: &[u8]| [&[7; 12], rest].concat();
    rig.send("trunk", [frame(&[8, 0]), frame(&[0x81, 0, 0, 6, 8, 0]), frame(&[0x81, 0, 0, 5, 8, 0])]);
    rig.send("vlan5", [frame(&[8, 0])]);
    rig.settle();
    let drops = rig.counts().drops;
    assert_eq!((drops["untagged"], drops["unknown_vlan"], drops["no_trunk"]), (1, 1, 1));
    assert_eq!(rig.received("vlan5"), [frame(&[8, 0])]);
}

#[test]
fn names_of_ports_are_checked() {
    let check = |name| VlanMux::check_outputs(&Config::default(), &["trunk", name]).is_ok();
    assert!(["native", "vlan1", "vlan4094", "vlan1-4094"].into_iter().all(check));
    assert!(
        ![
            "vlan0",
            "vlan4095",
            "vlan05",
            "vlan",
            "vlan+5",
            "other",
            "vlan5-",
            "vlan5-0",
            "vlan5-07",
            "vlan-5",
            "vlan1-2-3",
            "vlan5.7"
        ]
        .into_iter()
        .any(check)
    );
}

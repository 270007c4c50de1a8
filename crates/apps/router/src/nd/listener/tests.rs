use std::collections::BTreeSet;

use super::*;
use bellows_wire::mld::message_type;
use proptest::prelude::*;

fn group(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, number)
}

fn source(number: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, number)
}

/// The bytes of a query: about all groups, or one, and about all sources or some.
fn query(version: Version, about: Option<u16>, delay_ms: u16, sources: &[u16]) -> Vec<u8> {
    let [high, low] = delay_ms.to_be_bytes();
    let about = about.map_or(Ipv6Addr::UNSPECIFIED, group);
    let mut bytes = [&[message_type::QUERY, 0, 0, 0, high, low, 0, 0][..], &about.octets()].concat();
    if version == Version::Two {
        bytes.extend([0, 125, 0, sources.len() as u8]);
        sources.iter().for_each(|&number| bytes.extend(source(number).octets()));
    }
    bytes
}

fn hear(listener: &mut Listener, bytes: &[u8], now: u64) {
    listener.hear_query(&Query::new_checked(bytes).unwrap(), now, &mut fastrand::Rng::with_seed(7));
}

/// All messages up to a time, with theirs.
fn until(listener: &mut Listener, end: u64) -> Vec<(u64, Message)> {
    let (mut all, mut random) = (Vec::new(), fastrand::Rng::with_seed(9));
    while let Some(at) = listener.next_deadline().filter(|&at| at <= end) {
        let due = listener.due(at, &mut random);
        assert!(listener.next_deadline().is_none_or(|next| next > at), "what is due is done");
        all.extend(due.into_iter().map(|message| (at, message)));
    }
    all
}

fn record(kind: u8, number: u16) -> Record {
    Record { kind, group: group(number), sources: Vec::new() }
}

#[test]
fn groups_are_joined_and_left_with_as_many_reports_as_may_be_lost() {
    let mut listener = Listener::new();
    [1, 2].into_iter().for_each(|number| listener.join(group(number), SECOND));
    let sent = until(&mut listener, 100 * SECOND);
    let both = |kind| Message::Report(vec![record(kind, 1), record(kind, 2)]);
    assert_eq!(sent[0], (SECOND, both(record_type::TO_EXCLUDE)), "one report for what is due at once");
    let repeated = sent[1..].iter().map(|(at, message)| {
        assert!((SECOND + 1..=2 * SECOND).contains(at));
        let Message::Report(records) = message else { panic!("{message:?}") };
        records.len()
    });
    assert_eq!(repeated.sum::<usize>(), 2);
    listener.leave(group(2), 200 * SECOND);
    listener.leave(group(3), 200 * SECOND);
    let sent = until(&mut listener, 300 * SECOND);
    let left = Message::Report(vec![record(record_type::TO_INCLUDE, 2)]);
    assert_eq!(sent.iter().map(|(_, message)| message).collect::<Vec<_>>(), [&left, &left]);
    assert_eq!(listener.joined().collect::<Vec<_>>(), [group(1)]);
}

#[test]
fn a_querier_says_how_many_messages_may_be_lost() {
    let mut listener = Listener::new();
    let mut bytes = query(Version::Two, None, 0, &[]);
    bytes[24] = 4;
    hear(&mut listener, &bytes, 0);
    until(&mut listener, SECOND);
    listener.join(group(1), SECOND);
    assert_eq!(until(&mut listener, 100 * SECOND).len(), 4);
}

#[test]
fn older_queriers_are_answered_in_their_language_until_they_are_gone() {
    let mut listener = Listener::new();
    listener.join(group(1), 0);
    until(&mut listener, 10 * SECOND);
    hear(&mut listener, &query(Version::One, None, 1_000, &[]), 10 * SECOND);
    // A query of version 2 changes nothing while there is one of version 1.
    hear(&mut listener, &query(Version::Two, Some(1), 1_000, &[]), 10 * SECOND);
    let sent = until(&mut listener, 20 * SECOND);
    assert_eq!(sent.iter().map(|(_, message)| message).collect::<Vec<_>>(), [&Message::Report1(group(1))]);
    // Another node answers first.
    hear(&mut listener, &query(Version::One, None, 1_000, &[]), 20 * SECOND);
    listener.hear_report(group(1));
    assert_eq!(until(&mut listener, 30 * SECOND), []);
    // That one is still there, so that nobody need know who leaves.
    listener.leave(group(1), 30 * SECOND);
    assert_eq!(until(&mut listener, 40 * SECOND), []);
    listener.join(group(2), 40 * SECOND);
    assert_eq!(until(&mut listener, 60 * SECOND).len(), 2);
    listener.leave(group(2), 60 * SECOND);
    assert_eq!(until(&mut listener, 70 * SECOND), [(60 * SECOND, Message::Done(group(2)))]);
    // Twice the interval between queries, and the time to answer (RFC 3810, section 9.12).
    until(&mut listener, 20 * SECOND + 251 * SECOND);
    listener.join(group(1), 300 * SECOND);
    assert!(matches!(until(&mut listener, 301 * SECOND)[0].1, Message::Report(_)));
}

#[test]
fn a_successor_leaves_what_it_does_not_join() {
    let mut old = Listener::new();
    [1, 2].into_iter().for_each(|number| old.join(group(number), 0));
    hear(&mut old, &query(Version::One, None, 1_000, &[]), 0);
    until(&mut old, 10 * SECOND);
    let mut new = old.successor(20 * SECOND);
    new.join(group(1), 21 * SECOND);
    let sent = until(&mut new, 21 * SECOND);
    assert_eq!(sent, [(20 * SECOND, Message::Done(group(2))), (21 * SECOND, Message::Report1(group(1)))]);
    assert_eq!(new.leave_all(30 * SECOND, &mut fastrand::Rng::with_seed(1)), [Message::Done(group(1))]);
}

/// What happens to a listener.
#[derive(Clone, Debug)]
enum Step {
    Join(u16),
    Leave(u16),
    Query { is_older: bool, about: Option<u16>, delay_ms: u16, sources: Vec<u16> },
    Report(u16),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 1u16..5;
    let sources = prop::collection::vec(1u16..6, 0..3);
    prop_oneof![
        number().prop_map(Step::Join),
        number().prop_map(Step::Leave),
        number().prop_map(Step::Report),
        (prop::bool::weighted(0.2), prop::option::of(number()), 0u16..5_000, sources).prop_map(
            |(is_older, about, delay_ms, sources)| {
                let sources = if about.is_some() && !is_older { sources } else { Vec::new() };
                Step::Query { is_older, about, delay_ms, sources }
            }
        ),
        (0u64..6_000).prop_map(|time| Step::Wait(time * MILLISECOND)),
        Just(Step::Wait(300 * SECOND)),
    ]
}

/// A querier that remembers what it may expect of the listener.
#[derive(Default)]
struct Model {
    joined: BTreeSet<Ipv6Addr>,
    /// Answers to come: the group, the sources that were asked for, and until when.
    expected: Vec<(Ipv6Addr, BTreeSet<Ipv6Addr>, u64)>,
    older_until: Option<u64>,
    /// Queries about each group that an answer may be for.
    queries: std::collections::BTreeMap<Ipv6Addr, u32>,
    /// Reports of changes, since each group has changed.
    changes: std::collections::BTreeMap<Ipv6Addr, u8>,
}

impl Model {
    fn check(&mut self, at: u64, message: &Message) {
        let is_older = self.older_until.is_some();
        match message {
            Message::Report(records) => {
                assert!(!is_older && !records.is_empty());
                for Record { kind, group, sources } in records {
                    let sources: BTreeSet<Ipv6Addr> = sources.iter().copied().collect();
                    assert_eq!(self.joined.contains(group), *kind != record_type::TO_INCLUDE, "{kind}");
                    assert_eq!(sources.is_empty(), *kind != record_type::IS_INCLUDE);
                    if matches!(*kind, record_type::TO_EXCLUDE | record_type::TO_INCLUDE) {
                        let changes = self.changes.entry(*group).or_default();
                        *changes += 1;
                        assert!(*changes <= ROBUSTNESS, "a change is reported too often");
                        continue;
                    }
                    let queries = self.queries.entry(*group).or_default();
                    assert!(*queries > 0, "an answer without a query");
                    *queries -= 1;
                    self.expected.retain(|(of, asked, _)| {
                        let is_told = sources.is_empty() || !asked.is_empty() && asked.is_subset(&sources);
                        !(of == group && is_told)
                    });
                }
            }
            Message::Report1(group) => {
                assert!(is_older && self.joined.contains(group));
                self.expected.retain(|(of, ..)| of != group);
            }
            Message::Done(group) => assert!(is_older && !self.joined.contains(group)),
        }
        assert!(self.expected.iter().all(|(.., until)| *until >= at), "an answer comes too late");
    }

    /// The version that is spoken at a time.
    fn pass(&mut self, now: u64) {
        if self.older_until.is_some_and(|until| until <= now) {
            self.older_until = None;
            self.expected.clear();
        }
    }
}

proptest! {
    #[test]
    fn every_query_is_answered_in_time_and_in_its_language(steps in prop::collection::vec(step(), 1..60), seed in any::<u64>()) {
        let (mut listener, mut model, mut random) = (Listener::new(), Model::default(), fastrand::Rng::with_seed(seed));
        let mut now = SECOND;
        for step in steps {
            let mut end = now;
            match step {
                Step::Join(number) => {
                    listener.join(group(number), now);
                    model.joined.insert(group(number));
                    model.changes.remove(&group(number));
                }
                Step::Leave(number) => {
                    listener.leave(group(number), now);
                    if model.joined.remove(&group(number)) {
                        model.changes.remove(&group(number));
                    }
                    model.expected.retain(|(of, ..)| *of != group(number));
                }
                Step::Query { is_older, about, delay_ms, sources } => {
                    let version = if is_older { Version::One } else { Version::Two };
                    let bytes = query(version, about, delay_ms, &sources);
                    listener.hear_query(&Query::new_checked(&bytes).unwrap(), now, &mut random);
                    let until = now + u64::from(delay_ms) * MILLISECOND;
                    if is_older {
                        if model.older_until.is_none() {
                            model.expected.clear();
                        }
                        model.older_until = Some(until + 250 * SECOND);
                    }
                    let asked: BTreeSet<Ipv6Addr> = sources.into_iter().map(source).collect();
                    let asked = if model.older_until.is_some() { BTreeSet::new() } else { asked };
                    for one in (1..5).filter(|&one| about.is_none_or(|about| one == about)).map(group) {
                        // Whoever joins before the answer is sent is in it.
                        *model.queries.entry(one).or_default() += 1;
                        if model.joined.contains(&one) {
                            model.expected.push((one, asked.clone(), until));
                        }
                    }
                }
                Step::Report(number) => {
                    listener.hear_report(group(number));
                    if model.older_until.is_some() {
                        model.expected.retain(|(of, ..)| *of != group(number));
                    }
                }
                Step::Wait(time) => end = now + time,
            }
            while let Some(at) = listener.next_deadline().filter(|&at| at <= end) {
                model.pass(at);
                for message in listener.due(at, &mut random) {
                    model.check(at, &message);
                }
                prop_assert!(listener.next_deadline().is_none_or(|next| next > at));
            }
            now = end;
            model.pass(now);
            prop_assert!(model.expected.iter().all(|(.., until)| *until > now), "a query without an answer");
            prop_assert_eq!(listener.joined().collect::<BTreeSet<_>>(), model.joined.clone());
        }
    }
}

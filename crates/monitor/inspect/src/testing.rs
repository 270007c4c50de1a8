//! Counters and recordings for tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellows_observe::timeline::{Event, Passage, What};
use bellows_observe::{AppCounts, Snapshot};
use proptest::prelude::*;

use crate::networks::{Change, Sample};

fn map(entries: &[(&str, u64)]) -> BTreeMap<String, u64> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

/// An app: packets in and out, calls at each entry, and the samples.
pub fn app(name: &str, packets: [u64; 2], calls: &[(&str, u64)], account: &[(&str, u64)]) -> AppCounts {
    let [in_packets, out_packets] = packets;
    AppCounts {
        name: name.to_owned(),
        state: "active".to_owned(),
        in_packets,
        out_packets,
        calls: map(calls),
        account: map(account),
        ..AppCounts::default()
    }
}

/// A second of a network of these apps, before and after.
pub fn second(before: Vec<AppCounts>, after: Vec<AppCounts>) -> Change {
    let sample = |at, apps| {
        let engine = map(&[("sampled_breaths", at / 1_000_000), ("breaths", at / 10_000)]);
        Sample { at, counters: Snapshot { apps, engine, ticks_per_second: 1_000_000_000, ..Snapshot::default() } }
    };
    Change::between(sample(0, before), sample(1_000_000_000, after))
}

/// The samples of a sink that takes 128 packets a call, 20 clocks each.
pub const SINK: [(&str, u64); 3] = [("push_calls", 100), ("push_packets", 12_800), ("push_clocks", 256_000)];

/// Counters as a damaged file may have them.
pub fn any_apps() -> impl Strategy<Value = Vec<AppCounts>> {
    let number = || prop_oneof![0u64..300, Just(u64::MAX), any::<u64>()];
    let names = ["pull", "push", "tick"];
    let calls = proptest::collection::vec(number(), 3);
    let account = proptest::collection::vec(number(), 12);
    let app = (0..3usize, number(), number(), calls, account).prop_map(move |(name, taken, sent, calls, account)| {
        let calls: Vec<_> = names.into_iter().zip(calls).collect();
        let kinds = ["calls", "packets", "clocks", "instructions"];
        let what = names.iter().flat_map(|name| kinds.map(|kind| format!("{name}_{kind}")));
        let account: Vec<(String, u64)> = what.zip(account).collect();
        let account: Vec<(&str, u64)> = account.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        app(["a", "b\u{1b}[2J", ""][name], [taken, sent], &calls, &account)
    });
    proptest::collection::vec(app, 0..5)
}

/// An event of a recording.
pub fn event(start_ns: u64, duration_ns: u64, what: What) -> Event {
    Event { start_ns, duration_ns, what }
}

/// A call of an app.
pub fn call(start: u64, duration: u64, app: &str, packets: u32) -> Event {
    let entry = if app == "source" { "pull" } else { "push" };
    event(start, duration, What::Call { app: app.into(), entry, packets })
}

/// A recording of breaths that took a microsecond, one every hundred microseconds: `source` takes 300 ns and `sink` 500
/// ns for 128 packets; `change` may modify each breath.
pub fn recorded(breaths: u64, change: impl Fn(u64, &mut Vec<Event>)) -> Vec<Event> {
    let mut events = vec![event(0, 0, What::Sleep)];
    for number in 0..breaths {
        let start = 1_000_000_000 + 100_000 * number;
        let mut breath = vec![
            call(start + 50, 300, "source", 128),
            call(start + 400, 500, "sink", 128),
            event(start, 1_000, What::Breath { every: 100, slow: false, caused: false }),
        ];
        change(number, &mut breath);
        events.append(&mut breath);
    }
    events
}

/// Events as a damaged recording may have them.
pub fn any_events() -> impl Strategy<Value = Vec<Event>> {
    let number = || prop_oneof![0u64..20, Just(u64::MAX), any::<u64>()];
    let app = || prop_oneof![Just("a"), Just("b \"c\"\n\u{1b}[2J")].prop_map(Arc::<str>::from);
    let packets = || prop_oneof![0u32..3, Just(u32::MAX)];
    let what = prop_oneof![
        (packets(), any::<bool>(), any::<bool>()).prop_map(|(every, slow, caused)| What::Breath {
            every,
            slow,
            caused
        }),
        (app(), packets(), any::<bool>()).prop_map(|(link, mark, arrives)| {
            let passage = Passage { link, mark, packets: mark };
            if arrives { What::Arrival(passage) } else { What::Departure(passage) }
        }),
        (app(), packets()).prop_map(|(app, packets)| What::Call { app, entry: "push", packets }),
        (app(), packets()).prop_map(|(app, packets)| What::Drops { app, packets }),
        Just(What::Sleep),
        packets().prop_map(|dropped| What::Reload { dropped }),
        app().prop_map(|app| What::Panic { app }),
        (proptest::option::of(app()), proptest::option::of(packets()), any::<bool>())
            .prop_map(|(app, on_processor_us, standstill)| What::Late { app, on_processor_us, standstill }),
    ];
    let event = (number(), number(), what).prop_map(|(start, duration, what)| event(start, duration, what));
    proptest::collection::vec(event, 0..40)
}

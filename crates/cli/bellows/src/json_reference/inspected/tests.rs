//! What is rarely printed has its form, too.

use std::collections::BTreeSet;

use bellows_inspect::crossings::{CrossingCost, CrossingMeter, PairCost};
use bellows_inspect::hot::code::CodeLine as SampledLine;
use bellows_inspect::hot::{Function, Report as HotReport};
use bellows_inspect::networks::State;
use bellows_inspect::timeline::Report;
use bellows_observe::listing::{AppCode, CodeLine, ListedCall, Listing};
use bellows_observe::timeline::{Event, Passage, Track, What};
use serde_json::json;

use super::*;
use crate::json_reference::{Found, differences, lacking, section};

/// A breath of 1 µs every 10 µs, and one of all other events.
fn events() -> Vec<Event> {
    let event = |start_ns: u64, duration_ns: u64, what: What| Event { start_ns, duration_ns, what };
    let call = |entry: &'static str, packets: u32| What::Call { app: "app".into(), entry, packets };
    let breath = |slow: bool| What::Breath { every: 100, slow, caused: false };
    let passage = || Passage { link: "a.output -> b.input".into(), mark: 7, packets: 9 };
    let usual = |number: u64| {
        let start = 1_000_000_000 + number * 10_000;
        [event(start + 100, 800, call("push", 8)), event(start, 1_000, breath(false))]
    };
    let mut events: Vec<Event> = (0..20).flat_map(usual).collect();
    let start = 1_001_000_000;
    events.extend([
        event(start + 100, 90_000, call("push", 8)),
        event(start + 90_200, 0, What::Drops { app: "app".into(), packets: 3 }),
        event(start + 90_300, 0, What::Departure(passage())),
        event(start + 90_400, 0, What::Arrival(passage())),
        event(start, 100_000, breath(true)),
        event(start + 200_000, 1_000, What::Sleep),
        event(start + 300_000, 1_000, What::Reload { dropped: 1 }),
        event(start + 400_000, 0, What::Panic { app: "app".into() }),
        event(start + 410_000, 900, What::Late { app: None, on_processor_us: Some(1), standstill: true }),
        event(start + 420_000, 90_000, breath(true)),
    ]);
    events
}

#[test]
fn a_timeline_with_all_events_has_its_form() {
    let track = Track { worker: "main".to_owned(), events: events() };
    let report = Report::of("name".to_owned(), "user".to_owned(), State::Running, vec![track], None);
    let report = report.json(3, true);
    let mut found = Found::new();
    let kind = schema_of::<ReportJson<'static>>();
    assert_eq!(differences(kind, &report, &mut found), Vec::<String>::new(), "{report:#}");
    let section = section(&["timeline"]).unwrap();
    let forms = kind.form().into_iter().chain(section.all_parts().iter().copied());
    let all: BTreeSet<_> = forms.flat_map(|form| form.all_keys()).map(|(owner, key)| (owner.title, key.name)).collect();
    assert!(all.contains(&("Suspect", "usual_share")) && all.contains(&("Event of a timeline", "mark")), "{all:?}");
    assert_eq!(all.difference(&found).collect::<Vec<_>>(), Vec::<&(&str, &str)>::new());
    let causes: BTreeSet<&str> =
        report["suspects"].as_array().unwrap().iter().filter_map(|suspect| suspect["what"].as_str()).collect();
    assert_eq!(causes, ["app", "between"].into());
    assert!(report["spans"][0]["late"][0]["app"].is_null(), "{report:#}");

    let nothing = Report::of("name".to_owned(), "user".to_owned(), State::Crashed, vec![Track::default()], None);
    let nothing = nothing.json(3, false);
    assert_eq!(differences(kind, &nothing, &mut found), Vec::<String>::new(), "{nothing:#}");
    assert_eq!(lacking("Timeline", &nothing), ["it has no `events`"]);
}

#[test]
fn a_breath_with_all_that_it_may_have_has_its_form() {
    let call = ListedCall {
        entry: "push".to_owned(),
        app: "app".to_owned(),
        function: "push".to_owned(),
        tests: vec!["slot 0".to_owned()],
    };
    let line = CodeLine {
        address: 4_096,
        bytes: "4831c0".to_owned(),
        text: "xor rax, rax".to_owned(),
        label: Some("entry".to_owned()),
    };
    let code = vec![line];
    let breath = Listing {
        worker: "main".to_owned(),
        schedule: "flat".to_owned(),
        fallback_reason: Some("the processor is another one".to_owned()),
        calls: vec![call],
        assembling_ns: 1,
        code: code.clone(),
        ..Listing::default()
    };
    let app_code = vec![AppCode { app: "app".to_owned(), code }];
    let shown = json!(Listing { app_code, further: vec![breath.clone()], ..breath });
    let parts = [
        ("Breath", &shown),
        ("Call of a breath", &shown["calls"][0]),
        ("Code of an app", &shown["app_code"][0]),
        ("Instruction", &shown["code"][0]),
    ];
    for (title, part) in parts {
        assert_eq!(lacking(title, part), Vec::<String>::new(), "{title}: {part}");
    }
}

#[test]
fn hot_spots_have_their_form() {
    let line = SampledLine { address: 4_096, bytes: "90".to_owned(), text: "nop".to_owned(), samples: 1, share: 1.0 };
    let function = Function {
        function: "push".to_owned(),
        symbol: None,
        module: "bellows".to_owned(),
        apps: vec!["app".to_owned()],
        samples: 1,
        share: 1.0,
        instructions: vec![line],
    };
    let report = json!(HotReport {
        name: "name".to_owned(),
        pid: 1,
        schedule: "native".to_owned(),
        seconds: 0.5,
        threads: 1,
        samples: 2,
        lost: 0,
        running: 1.0,
        user_only: true,
        app: None,
        selected: 1,
        functions: vec![function],
    });
    let function = &report["functions"][0];
    let parts =
        [("Hot spots", &report), ("Hot function", function), ("Sampled instruction", &function["instructions"][0])];
    for (title, part) in parts {
        assert_eq!(lacking(title, part), Vec::<String>::new(), "{title}: {part}");
    }
}

#[test]
fn the_cost_of_a_crossing_has_its_form_measured_or_not() {
    let mut meter = CrossingMeter::new(|sender, receiver| {
        Ok(PairCost { sender, receiver, packets_per_vector: 128, send: 20.5, receive: 3.0, latency_ns: 200.0 })
    });
    let measured = json!(meter.between(&[([0, 1], 1)]));
    let [own, assumed] =
        [CrossingCost::in_network(7.0, 2.0), CrossingCost::assumed("it is a test")].map(|it| json!(it));
    let costs = [&measured, &own, &assumed].map(|cost| ("Cost of a crossing", cost));
    for (title, part) in costs.into_iter().chain([("Crossing between two processors", &measured["pairs"][0])]) {
        assert_eq!(lacking(title, part), Vec::<String>::new(), "{title}: {part}");
    }
}

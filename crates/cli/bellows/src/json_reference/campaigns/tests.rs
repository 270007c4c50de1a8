//! The forms fit what campaigns rarely report.

use std::collections::BTreeMap;

use bellows_campaign::{Failure, FailureKind, Hash, Machine, PairConclusion, Row, RunId, Score, Undisturbed, Version};
use serde_json::{from_value, json};

use crate::json_reference::lacking;

fn hash() -> Hash {
    from_value(json!("0".repeat(64))).unwrap()
}

#[test]
fn a_run_with_all_it_may_have_has_its_form() {
    let failure = Failure { kind: FailureKind::Signal, why: "why".to_owned(), stderr: "text".to_owned() };
    let score = Score { name: "rate".to_owned(), unit: String::new(), value: None, failure: Some(failure.clone()) };
    let machine = Machine {
        host: "host".to_owned(),
        cpu: "cpu".to_owned(),
        cpus: "0".to_owned(),
        os: "Linux".to_owned(),
        load: 0.1,
        steal: None,
        yardstick_before: 0.3,
        yardstick_after: 0.3,
    };
    let row = json!(Row {
        run: RunId { block: 1, combination: 2 },
        campaign: hash(),
        levels: BTreeMap::new(),
        scores: vec![score],
        failure: Some(failure),
        disturbed: vec!["a sentence".to_owned()],
        start: "2026-01-01T00:00:00Z".to_owned(),
        seconds: 1.5,
        machine,
        versions: [("program".to_owned(), "1".to_owned())].into(),
        registered: Some(hash()),
        known: Some(hash()),
    });
    let parts = [
        ("Run of a campaign", &row),
        ("Score", &row["scores"][0]),
        ("Failure", &row["failure"]),
        ("Machine of a run", &row["machine"]),
    ];
    for (title, part) in parts {
        assert_eq!(lacking(title, part), Vec::<String>::new(), "{title}: {part}");
    }
}

#[test]
fn a_version_of_git_and_undisturbed_pairs_have_their_forms() {
    let version = Version { name: "v1".to_owned(), commit: Some("1".repeat(40)), content: "git 2".to_owned() };
    assert_eq!(lacking("Compared version", &json!(version)), Vec::<String>::new());
    let undisturbed = Undisturbed { conclusion: PairConclusion::TooFewPairs, effect: None, pairs: 0 };
    assert_eq!(lacking("Undisturbed pairs", &json!(undisturbed)), Vec::<String>::new());
}

#[cfg(feature = "nats")]
#[test]
fn a_queue_has_its_form() {
    use bellows_campaign::{CoordinatorStatus, QueueStatus, WorkerState, WorkerStatus};

    let coordinator = CoordinatorStatus {
        host: "host".to_owned(),
        pid: 1,
        folder: "it.results".to_owned(),
        has_ended: false,
        last_seen_seconds: 0.5,
    };
    let worker = WorkerStatus {
        worker: "worker".to_owned(),
        host: "host".to_owned(),
        pid: 2,
        state: WorkerState::Running,
        is_lost: false,
        block: Some(1),
        attempt: 1,
        run: Some(RunId { block: 1, combination: 2 }),
        run_seconds: 0.5,
        runs: 3,
        blocks: 1,
        clock_seconds: -0.1,
        last_seen_seconds: 0.5,
    };
    let status = QueueStatus {
        queue: "it".to_owned(),
        server: "nats://127.0.0.1:4222".to_owned(),
        name: "it".to_owned(),
        hash: hash(),
        sha256: "0".repeat(64),
        blocks_waiting: 1,
        blocks_given: 1,
        results: 4,
        lease_seconds: 60.0,
        coordinator: Some(coordinator),
        workers: vec![worker],
    };
    let whole = json!({ "status": null, "queue": status });
    let parts = [
        ("Campaign in a queue", &whole),
        ("Queue", &whole["queue"]),
        ("Coordinator", &whole["queue"]["coordinator"]),
        ("Worker of a queue", &whole["queue"]["workers"][0]),
    ];
    for (title, part) in parts {
        assert_eq!(lacking(title, part), Vec::<String>::new(), "{title}: {part}");
    }
}

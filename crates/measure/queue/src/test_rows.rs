//! Rows for tests.

use bellows_campaign::{Row, RunId};
use serde_json::json;

use crate::messages::Delivery;

pub(crate) fn row(run: RunId) -> Row {
    serde_json::from_value(json!({
        "run": run,
        "campaign": "0".repeat(64),
        "levels": {},
        "scores": [],
        "start": "2026-01-31T09:08:07.006Z",
        "seconds": 1.0,
        "machine": {
            "host": "lab", "cpu": "", "cpus": "", "os": "", "load": 0.0, "steal": null, "yardstick_before": 1.0,
            "yardstick_after": 1.0,
        },
    }))
    .unwrap()
}

pub(crate) fn delivery(claim: &str, of: u32, run: RunId) -> Delivery {
    let (claim, worker) = (claim.to_owned(), format!("{claim}-worker"));
    Delivery { claim, worker, attempt: 1, of, clock_ns: 0, row: row(run) }
}

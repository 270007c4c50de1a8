//! What a queue has, and what its workers do.

use bellows_campaign::{CoordinatorStatus, QueueStatus, WorkerState, WorkerStatus};
use bellows_sys::clock::unix_ns;
use serde_json::Value;

use crate::error::QueueError;
use crate::link::{ServerLink, Trouble};
use crate::messages::{CoordinatorReport, WorkerReport, read};
use crate::names::{QueueName, Stream};
use crate::queue::{Queue, last_token};
use crate::slot::host;

/// Reads the status of a queue.
///
/// # Errors
/// If there is no such queue, or the server refuses or does not answer.
pub fn status(link: &ServerLink, name: &QueueName) -> Result<QueueStatus, QueueError> {
    let queue = Queue::new(link, name);
    let fail = |trouble| queue.wire.error("read the queue", trouble);
    let record = link.wait(queue.campaign()).map_err(fail)?.transpose()?.ok_or_else(|| queue.missing())?;
    let found = link.wait(messages(&queue)).map_err(fail)?;
    let consumers = found.consumers["consumers"].as_array().cloned().unwrap_or_default();
    let sum = |key: &str| consumers.iter().filter_map(|consumer| consumer[key].as_u64()).sum::<u64>();
    let blocks_given = sum("num_ack_pending");
    let lease = consumers.iter().find_map(|consumer| consumer["config"]["ack_wait"].as_u64()).unwrap_or(0);
    let ago = |time: u64| found.now.saturating_sub(time) as f64 / 1e9;
    let mut workers = Vec::new();
    for (bytes, time) in &found.workers {
        let report: WorkerReport = read("a worker's report", bytes)?;
        workers.push(worker(report, ago(*time), lease as f64 / 1e9));
    }
    workers.sort_by(|one, other| one.last_seen_seconds.total_cmp(&other.last_seen_seconds));
    let coordinator = match &found.coordinator {
        None => None,
        Some((bytes, time)) => {
            let CoordinatorReport { host, pid, folder, has_ended } = read("the coordinator's report", bytes)?;
            Some(CoordinatorStatus { host, pid, folder, has_ended, last_seen_seconds: ago(*time) })
        }
    };
    Ok(QueueStatus {
        queue: name.to_string(),
        server: link.server().to_owned(),
        name: record.name,
        hash: record.hash,
        sha256: crate::worker::text_sha256(&record.text),
        blocks_waiting: found.blocks.saturating_sub(blocks_given),
        blocks_given,
        results: found.results,
        lease_seconds: lease as f64 / 1e9,
        coordinator,
        workers,
    })
}

fn worker(report: WorkerReport, last_seen_seconds: f64, lease: f64) -> WorkerStatus {
    let WorkerReport { worker, host, pid, state, block, attempt, run, run_seconds, runs, blocks, clock_ns } = report;
    let is_lost = state != WorkerState::Ended && last_seen_seconds > lease;
    // It made the run since it was heard of, as far as is known.
    let run_seconds = if run.is_some() { run_seconds + last_seen_seconds } else { 0.0 };
    let clock_seconds = clock_ns as f64 / 1e9;
    WorkerStatus {
        worker,
        host,
        pid,
        state,
        is_lost,
        block,
        attempt,
        run,
        run_seconds,
        runs,
        blocks,
        clock_seconds,
        last_seen_seconds,
    }
}

/// What a status is made of. Times are those of the server, in nanoseconds since the Unix epoch.
struct Messages {
    now: u64,
    blocks: u64,
    results: u64,
    consumers: Value,
    coordinator: Option<(Vec<u8>, u64)>,
    workers: Vec<(Vec<u8>, u64)>,
}

async fn messages(queue: &Queue) -> Result<Messages, Trouble> {
    let control = queue.name.stream(Stream::Control);
    let count = |state: Value| state["messages"].as_u64().unwrap_or(0);
    let blocks = count(queue.state(Stream::Work).await?);
    let results = count(queue.state(Stream::Results).await?);
    let consumers = queue.wire.api(&format!("CONSUMER.LIST.{}", queue.name.stream(Stream::Work)), &Value::Null).await?;
    let coordinator = queue.wire.last(&control, &queue.control("coordinator")).await?;
    let mut workers = Vec::new();
    for subject in queue.subjects(Stream::Control, "worker.*").await?.into_keys() {
        let subject = queue.control(&format!("worker.{}", last_token(&subject)));
        workers.extend(queue.wire.last(&control, &subject).await?);
    }
    let who = format!("{}-{}", host(), std::process::id());
    let difference = queue.clock_difference(&who).await?.unwrap_or(0);
    Ok(Messages { now: unix_ns().saturating_add_signed(-difference), blocks, results, consumers, coordinator, workers })
}

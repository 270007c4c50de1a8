//! Queues at a NATS server.

use std::path::Path;
use std::sync::Arc;

use bellows_campaign::{Journal, Loaded, Observer, QueueStatus, Stop, Summary, WorkerState, WorkerStatus, load};
use bellows_queue::{CoordinatorOptions, QueueError, QueueName, Server, ServerLink, WorkerOptions, fetch};

use super::{Access, Coordination, QueueOptions, Work};
use crate::command_error::CommandError;
use crate::commands::campaign::{execute_error, journal_error, say};
use crate::terminal;
use crate::text::count;

/// Connects to the server of a campaign's queue, so that nothing is begun without it.
pub fn check(options: &QueueOptions, campaign: &str) -> Result<(), CommandError> {
    connect(options, campaign, "coordinator").map(drop)
}

/// Puts a campaign's blocks into the queue and records the results.
pub fn coordinate(
    options: &QueueOptions,
    how: &Coordination,
    loaded: &Loaded,
    journal: &mut Journal,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<Summary, CommandError> {
    let (link, name) = connect(options, &loaded.campaign.name, "coordinator")?;
    let usual = CoordinatorOptions::default();
    let options = CoordinatorOptions { lease: how.lease.unwrap_or(usual.lease), may_split: how.may_split };
    bellows_queue::coordinate(&link, &name, loaded, journal, &options, stop, observer).map_err(queue_error)
}

/// Makes blocks of the queue. Returns what was done, and whether it was interrupted.
pub fn work(
    options: &QueueOptions,
    work: &Work<'_>,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<(String, bool), CommandError> {
    let (link, name, loaded) = match work.sha256 {
        Some(sha256) => {
            let (link, name) = connect(options, &work.file.to_string_lossy(), "worker")?;
            let loaded = fetch(&link, &name, sha256, Path::new(".")).map_err(queue_error)?;
            (link, name, loaded)
        }
        None => {
            let loaded = load(work.file)
                .map_err(|diagnostics| CommandError::Diagnosed(diagnostics.render(terminal::stderr_is_rich())))?;
            let (link, name) = connect(options, &loaded.campaign.name, "worker")?;
            (link, name, loaded)
        }
    };
    let options = WorkerOptions { max_blocks: work.max_blocks };
    let done = bellows_queue::work(&link, &name, &loaded, &options, stop, observer).map_err(queue_error)?;
    let end = if done.queue_is_gone { "; the queue is gone" } else { "" };
    Ok((format!("{} runs of {} whole blocks{end}\n", count(done.runs), count(done.blocks)), done.interrupted))
}

/// What the queue has and what its workers do, also as text.
pub fn status(options: &QueueOptions, campaign: &str) -> Result<(String, QueueStatus), CommandError> {
    let (link, name) = connect(options, campaign, "status")?;
    let status = bellows_queue::status(&link, &name).map_err(queue_error)?;
    Ok((text_of(&status), status))
}

/// Removes the queue, and says what was in it.
pub fn purge(options: &QueueOptions, campaign: &str) -> Result<String, CommandError> {
    let (link, name) = connect(options, campaign, "purge")?;
    let purged = bellows_queue::purge(&link, &name).map_err(queue_error)?;
    Ok(format!(
        "removed the queue {name}: {} blocks and {} results that were in it\n",
        count(purged.blocks),
        count(purged.results)
    ))
}

/// Connects to the server of a queue, which has the campaign's name unless it has another one.
fn connect(options: &QueueOptions, campaign: &str, purpose: &str) -> Result<(ServerLink, QueueName), CommandError> {
    let Access { queue_name, credentials, ca, certificate, key } = options.access.clone();
    let name = match queue_name {
        Some(name) => name.parse().map_err(queue_error)?,
        None => QueueName::of_campaign(campaign),
    };
    let server = Server { url: options.url.clone(), credentials, ca, certificate: certificate.zip(key) };
    let link = ServerLink::connect(&server, purpose, Arc::new(say)).map_err(queue_error)?;
    Ok((link, name))
}

fn queue_error(error: QueueError) -> CommandError {
    match error {
        QueueError::Execute(error) => execute_error(error),
        QueueError::Journal(error) => journal_error(error),
        QueueError::Address { .. } | QueueError::Name(_) | QueueError::File { .. } | QueueError::NoQueue { .. } => {
            CommandError::Usage(error.to_string())
        }
        error => CommandError::Failed(error.to_string()),
    }
}

fn text_of(status: &QueueStatus) -> String {
    let QueueStatus { queue, server, blocks_waiting, blocks_given, results, lease_seconds, .. } = status;
    let mut text = format!(
        "queue {queue} at {server}: {} blocks wait, {} are being made, {} results delivered; lease {lease_seconds} s\n",
        count(*blocks_waiting),
        count(*blocks_given),
        count(*results)
    );
    if let Some(it) = &status.coordinator {
        let state = if it.has_ended { "ended" } else { "records results" };
        text += &format!(
            "  coordinator {} ({}): {state}, seen {:.0} s ago: {}\n",
            it.host, it.pid, it.last_seen_seconds, it.folder
        );
    }
    for worker in &status.workers {
        text += &worker_line(worker);
    }
    text
}

/// A worker: `  lab1 (4711): block 3, run 3.7 for 12 s, 40 runs of 4 blocks so far, seen 2 s ago`.
fn worker_line(worker: &WorkerStatus) -> String {
    let WorkerStatus { host, pid, runs, blocks, last_seen_seconds, .. } = worker;
    let state = match (worker.state, worker.block, worker.run) {
        (WorkerState::Ended, ..) => "ended".to_owned(),
        (_, Some(block), Some(run)) => format!("block {block}, run {run} for {:.0} s", worker.run_seconds),
        (_, Some(block), None) => format!("block {block}"),
        (_, None, _) => "waits".to_owned(),
    };
    let lost = if worker.is_lost { ", lost" } else { "" };
    let runs = count(*runs);
    format!(
        "  {host} ({pid}): {state}, {runs} runs of {blocks} blocks so far, seen {last_seen_seconds:.0} s ago{lost}\n"
    )
}

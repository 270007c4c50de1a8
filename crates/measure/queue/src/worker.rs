//! A worker: takes blocks out of a queue, makes their runs on this machine, and delivers the results.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use async_nats::{Message, StatusCode};
use bellows_campaign::{
    CampaignProgress, ExecuteError, Executor, Hash, Loaded, LocalExecutor, Observer, Plan, RunId, Stop, WorkerState,
    parse,
};
use bellows_sys::clock::unix_ns;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::delivery::Deliveries;
use crate::error::QueueError;
use crate::lease::Lease;
use crate::link::{NO_JETSTREAM, PAUSE, ServerLink, Trouble};
use crate::messages::{CampaignRecord, Claim, Delivery, Item, RegisterReport, WorkerReport, bytes, read};
use crate::names::{QueueName, Stream, token};
use crate::queue::{Queue, last_token};
use crate::reader::deliveries;
use crate::slot::{Slot, host};

/// How long the server waits for a block before it says that there is none.
const PULL_TIME: Duration = Duration::from_secs(1);

/// The time after which a block is given to another worker, if the server does not say.
const LEASE: Duration = Duration::from_secs(30);

/// How a worker works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerOptions {
    /// It ends after this number of blocks.
    pub max_blocks: Option<u64>,
}

/// What a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkSummary {
    /// The number of runs that it delivered.
    pub runs: u64,
    /// The number of blocks that it delivered as a whole.
    pub blocks: u64,
    /// Whether it was interrupted.
    pub interrupted: bool,
    /// Whether the queue was removed: all results are recorded, or somebody removed it.
    pub queue_is_gone: bool,
}

/// The SHA-256 of a campaign file, as `sha256sum` prints it.
pub fn text_sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The campaign of a queue, if its file has a SHA-256 that is known by another way: commands of the file will run on
/// this machine, and whoever may write into the queue could have changed them. They will run in `folder`.
///
/// # Errors
/// If there is no such queue, its file is another one or has errors, or the server does not answer.
pub fn fetch(link: &ServerLink, name: &QueueName, sha256: &str, folder: &Path) -> Result<Loaded, QueueError> {
    let queue = Queue::new(link, name);
    let record = record_of(link, &queue)?;
    let found = text_sha256(&record.text);
    if !found.eq_ignore_ascii_case(sha256.trim()) {
        let (queue, asked) = (name.to_string(), sha256.to_owned());
        return Err(QueueError::OtherText { queue, found, asked });
    }
    let campaign = parse(&record.file, &record.text);
    let campaign = campaign.map_err(|diagnostics| QueueError::CampaignFile(diagnostics.to_string()))?;
    let folder = folder.join(&campaign.folder);
    Ok(Loaded { campaign, text: record.text, folder })
}

fn record_of(link: &ServerLink, queue: &Queue) -> Result<CampaignRecord, QueueError> {
    let found = link.wait(queue.campaign()).map_err(|trouble| queue.wire.error("read the queue", trouble))?;
    found.transpose()?.ok_or_else(|| queue.missing())
}

/// Makes blocks of a queue until the queue is removed or the end is requested. Then a block that is being made is given
/// back at once. While the server is away it waits.
///
/// # Errors
/// If there is no such queue, it is that of another campaign, the server refuses, or runs cannot be made here; the
/// block is given back.
pub fn work(
    link: &ServerLink,
    name: &QueueName,
    loaded: &Loaded,
    options: &WorkerOptions,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<WorkSummary, QueueError> {
    let queue = Queue::new(link, name);
    let plan = Plan::new(&loaded.campaign);
    let record = record_of(link, &queue)?;
    if record.hash != plan.hash() {
        let (theirs, ours) = (record.hash.short(), plan.hash().short());
        return Err(QueueError::OtherCampaign { queue: name.to_string(), name: record.name, theirs, ours });
    }
    let slot = Slot::take(name)?;
    let executor = LocalExecutor::new(&loaded.campaign, &loaded.folder)?.with_mark_of(&slot.path);
    let fail = |trouble| queue.wire.error("open the queue", trouble);
    let (any, lease) = link.wait(queue.consumer(None, LEASE)).map_err(fail)?;
    let (own, _) = link.wait(queue.consumer(Some(&host()), lease)).map_err(fail)?;
    let worker = format!("{}-{}-{:x}", token(&host()), std::process::id(), unix_ns() & 0xff_ffff);
    let clock_ns = link.wait(queue.clock_difference(&worker)).map_err(fail)?.unwrap_or(0);
    let report = WorkerReport {
        worker: worker.clone(),
        host: host(),
        pid: std::process::id(),
        state: WorkerState::Waiting,
        block: None,
        attempt: 0,
        run: None,
        run_seconds: 0.0,
        runs: 0,
        blocks: 0,
        clock_ns,
    };
    let signs = Lease::new(link, &queue, report, lease);
    let mut work = Worker {
        link,
        queue,
        plan,
        executor,
        stop,
        observer,
        worker,
        lease,
        signs,
        clock_ns,
        claims: 0,
        known: None,
        summary: WorkSummary::default(),
        has_begun: false,
    };
    let result = work.run([&own, &any], options);
    work.signs.idle(link, WorkerState::Ended);
    let ended = work.executor.end();
    let mut summary = work.summary;
    match result {
        Err(QueueError::Removed { .. }) => summary.queue_is_gone = true,
        Err(QueueError::Execute(ExecuteError::Stopped)) => {}
        other => other?,
    }
    ended?;
    summary.interrupted = stop.is_set();
    Ok(summary)
}

struct Worker<'a> {
    link: &'a ServerLink,
    queue: Queue,
    plan: Plan,
    executor: LocalExecutor<'a>,
    stop: &'a Stop,
    observer: &'a mut dyn Observer,
    worker: String,
    lease: Duration,
    signs: Lease,
    clock_ns: i64,
    /// The number of blocks that it was given.
    claims: u64,
    /// The newest record of the register that it knows.
    known: Option<Hash>,
    summary: WorkSummary,
    has_begun: bool,
}

/// A block that was given to this worker.
struct Given {
    reply: String,
    claim: Claim,
    runs: Vec<RunId>,
    /// When it was last certain that no other worker has the block.
    checked: Instant,
}

impl Worker<'_> {
    fn run(&mut self, consumers: [&str; 2], options: &WorkerOptions) -> Result<(), QueueError> {
        self.signs.idle(self.link, WorkerState::Waiting);
        while !self.stop.is_set() && options.max_blocks.is_none_or(|most| self.summary.blocks < most) {
            let [own, any] = consumers;
            let message = match self.pull(own, None)? {
                Some(message) => Some(message),
                None => self.pull(any, Some(PULL_TIME))?,
            };
            let Some(message) = message else { continue };
            let Some(given) = self.given(&message)? else { continue };
            let reply = given.reply.clone();
            self.signs.keep(Some(&reply));
            let result = self.make(given);
            if result.is_err() {
                // Given back at once: the queue need not wait for the lease to end.
                self.link.wait(self.queue.wire.tell(&reply, b"-NAK".to_vec()));
            }
            self.signs.idle(self.link, WorkerState::Waiting);
            result?;
        }
        Ok(())
    }

    /// The next block of a consumer, if there is one within a time.
    fn pull(&self, consumer: &str, time: Option<Duration>) -> Result<Option<Message>, QueueError> {
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{consumer}", self.queue.name.stream(Stream::Work));
        let request = match time {
            None => json!({ "batch": 1, "no_wait": true }),
            Some(time) => json!({ "batch": 1, "expires": time.as_nanos() as u64 }),
        };
        let patience = time.unwrap_or_default() + Duration::from_secs(3);
        // The end of this worker is not waited for here: a block that is given meanwhile would be lost for a time.
        let asked = self.queue.wire.pull(&subject, request.to_string().into_bytes(), patience);
        match self.link.wait(asked) {
            Ok(message) => match message.status {
                None | Some(StatusCode::OK) if message.reply.is_some() => Ok(Some(message)),
                Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => Ok(None),
                _ => self.trouble(Trouble::Away(String::new())).map(|()| None),
            },
            Err(trouble) => self.trouble(trouble).map(|()| None),
        }
    }

    /// Waits a moment if the server is away. Any other trouble is an error.
    fn trouble(&self, trouble: Trouble) -> Result<(), QueueError> {
        match trouble {
            Trouble::Away(_) | Trouble::Nobody | Trouble::Refused { code: NO_JETSTREAM, .. } => {
                if self.link.wait(self.queue.is_gone()) {
                    return Err(self.queue.removed());
                }
                // A server that was killed may have lost what was made last.
                for host in [None, Some(host())] {
                    let _ = self.link.wait(self.queue.consumer(host.as_deref(), self.lease));
                }
                self.link.sleep(PAUSE, self.stop);
                Ok(())
            }
            other => Err(self.queue.wire.error("take a block", other)),
        }
    }

    /// Makes a claim of a block. Nothing for a message that needs no work.
    fn given(&mut self, message: &Message) -> Result<Option<Given>, QueueError> {
        let Some(reply) = message.reply.as_ref().map(ToString::to_string) else { return Ok(None) };
        let attempt = deliveries(&reply).unwrap_or(1);
        let item = match read::<Item>("a block of the queue", &message.payload) {
            Ok(item) => item,
            Err(error) => {
                (self.queue.wire.notices)(&error.to_string());
                self.link.wait(self.queue.wire.tell(&reply, b"+TERM".to_vec()));
                return Ok(None);
            }
        };
        if item.campaign != self.plan.hash() {
            self.link.wait(self.queue.wire.tell(&reply, b"-NAK".to_vec()));
            let (theirs, ours) = (item.campaign.short(), self.plan.hash().short());
            let queue = self.queue.name.to_string();
            return Err(QueueError::OtherCampaign { name: queue.clone(), queue, theirs, ours });
        }
        let whole = self.plan.block(item.block);
        let runs: Vec<RunId> = match &item.only {
            None => whole,
            Some(only) => whole.into_iter().filter(|run| only.contains(&run.combination)).collect(),
        };
        // A server that was killed may give out a block again as if for the first time.
        if self.is_delivered(item.block, runs.len())? {
            self.acknowledge(&reply)?;
            return Ok(None);
        }
        self.claims += 1;
        let (claim, worker) = (format!("{}-{}", self.worker, self.claims), self.worker.clone());
        let claim = Claim { claim, worker, host: host(), block: item.block, attempt };
        let subject = self.queue.control(&format!("claim.{}", item.block));
        let wire = self.queue.wire.clone();
        let stored =
            self.queue.must(self.link, "claim a block", self.stop, || wire.publish(&subject, None, bytes(&claim)))?;
        if stored.is_none() {
            self.link.wait(self.queue.wire.tell(&reply, b"-NAK".to_vec()));
            return Ok(None);
        }
        if let Ok(Some(difference)) = self.link.wait(self.queue.clock_difference(&self.worker)) {
            self.clock_ns = difference;
        }
        self.read_register();
        Ok(Some(Given { reply, claim, runs, checked: Instant::now() }))
    }

    /// Whether one claim of a block has delivered all of its runs.
    fn is_delivered(&self, block: u32, runs: usize) -> Result<bool, QueueError> {
        let filter = format!("{block}.>");
        let subjects =
            self.queue.must(self.link, "read results", self.stop, || self.queue.subjects(Stream::Results, &filter))?;
        let mut counts: HashMap<String, usize> = HashMap::new();
        for subject in subjects.unwrap_or_default().into_keys() {
            let combination = last_token(&subject).len();
            *counts.entry(subject[..subject.len() - combination].to_owned()).or_default() += 1;
        }
        Ok(counts.values().any(|count| *count >= runs))
    }

    /// Makes the runs of a block.
    fn make(&mut self, mut given: Given) -> Result<(), QueueError> {
        let Claim { block, attempt, .. } = given.claim;
        if attempt > 2 {
            (self.queue.wire.notices)(&format!("block {block} was given out {} times before", attempt - 1));
        }
        let clock_ns = self.clock_ns;
        self.signs.change(self.link, |report| {
            report.state = WorkerState::Running;
            (report.block, report.attempt, report.clock_ns) = (Some(block), attempt, clock_ns);
        });
        let (all, start) = (given.runs.len(), Instant::now());
        let Some(first) = given.runs.first().copied() else { return self.acknowledge(&given.reply) };
        if !std::mem::replace(&mut self.has_begun, true) {
            self.executor.begin(first, self.stop)?;
        }
        let (mut pending, mut failed) = (Deliveries::default(), 0);
        for (done, run) in given.runs.clone().into_iter().enumerate() {
            if self.stop.is_set() {
                return Err(ExecuteError::Stopped.into());
            }
            if !self.is_ours(&mut given)? {
                let notice = format!("block {block} was given to another worker meanwhile; this one leaves it");
                (self.queue.wire.notices)(&notice);
                return Ok(());
            }
            let left = |done: usize| {
                let each = start.elapsed().checked_div(u32::try_from(done).ok()?)?;
                Some(each.saturating_mul(u32::try_from(all - done).ok()?))
            };
            self.signs.run(self.link, run);
            self.observer.started(run, &CampaignProgress { done, all, failed, left: left(done) });
            let mut row = self.executor.execute(run, self.stop)?;
            row.known = self.known;
            failed += usize::from(row.has_failed());
            let (claim, worker) = (given.claim.claim.clone(), self.worker.clone());
            let of = u32::try_from(all).unwrap_or(u32::MAX);
            let delivery = Delivery { claim, worker, attempt, of, clock_ns: self.clock_ns, row };
            pending.add(self.link, &self.queue, &delivery, self.stop)?;
            self.summary.runs += 1;
            let progress = CampaignProgress { done: done + 1, all, failed, left: left(done + 1) };
            self.observer.recorded(&delivery.row, &progress);
        }
        if !pending.finish(self.link, self.stop)? {
            return Err(ExecuteError::Stopped.into());
        }
        self.acknowledge(&given.reply)?;
        self.summary.blocks += 1;
        let WorkSummary { runs, blocks, .. } = self.summary;
        self.signs.change(self.link, |report| (report.runs, report.blocks) = (runs, blocks));
        Ok(())
    }

    /// Whether no other worker was given the block. A worker that was stopped for a while finds out so, and one whose
    /// signs of life did not arrive.
    fn is_ours(&mut self, given: &mut Given) -> Result<bool, QueueError> {
        if given.checked.elapsed() < self.lease / 3 {
            return Ok(true);
        }
        let (stream, subject) =
            (self.queue.name.stream(Stream::Control), self.queue.control(&format!("claim.{}", given.claim.block)));
        let found = match self.link.wait(self.queue.wire.last(&stream, &subject)) {
            Ok(found) => found,
            Err(Trouble::Nobody) if self.link.wait(self.queue.is_gone()) => return Err(self.queue.removed()),
            // The server is away: runs go on, and their results are delivered later.
            Err(_) => return Ok(true),
        };
        let Some((bytes, _)) = found else { return Ok(true) };
        let newest: Claim = read("a claim", &bytes)?;
        given.checked = Instant::now();
        self.read_register();
        Ok(newest.claim == given.claim.claim || newest.attempt < given.claim.attempt)
    }

    /// Reads the newest record of the register. An older one is on the safe side.
    fn read_register(&mut self) {
        let (stream, subject) = (self.queue.name.stream(Stream::Control), self.queue.control("register"));
        if let Ok(Some((bytes, _))) = self.link.wait(self.queue.wire.last(&stream, &subject))
            && let Ok(report) = read::<RegisterReport>("the register", &bytes)
        {
            self.known = report.head;
        }
    }

    /// Takes a block that is delivered out of the queue.
    fn acknowledge(&self, reply: &str) -> Result<(), QueueError> {
        let wire = self.queue.wire.clone();
        self.queue
            .must(self.link, "take a block out of the queue", self.stop, || async {
                match wire.ask(reply, None, b"+ACK".to_vec(), Duration::from_secs(4)).await {
                    // The server has lost who was given the block. It gives it out again, and it is found delivered.
                    Ok(_) | Err(Trouble::Nobody) => Ok(()),
                    Err(trouble) => Err(trouble),
                }
            })
            .map(drop)
    }
}

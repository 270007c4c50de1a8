//! The coordinator: puts blocks into a queue, and records the results that come back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use bellows_campaign::{
    Campaign, CampaignProgress, Hash, Journal, Loaded, Observer, REGISTER, Register, RunId, Stop, Summary, each_row,
};

use crate::abandoned::AbandonedFile;
use crate::check::{check, in_our_clock};
use crate::collect::{Blocks, Collected};
use crate::error::QueueError;
use crate::link::{NO_JETSTREAM, SUBJECT_TAKEN, ServerLink, Trouble};
use crate::messages::{CampaignRecord, CoordinatorReport, Delivery, Item, RegisterReport, VERSION, bytes, read};
use crate::names::{QueueName, host_of};
use crate::queue::Queue;
use crate::reader::ResultReader;
use crate::slot::host;

/// How often the clocks are compared.
const CLOCKS: Duration = Duration::from_secs(60);

/// How often the coordinator says that it lives.
const BEAT: Duration = Duration::from_secs(5);

/// How long it waits for results before it looks at other things.
const PATIENCE: Duration = Duration::from_secs(1);

/// A block that was given out this often is worth a notice.
const MANY_ATTEMPTS: u64 = 3;

/// How a queue works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoordinatorOptions {
    /// After this time without a sign of life of its worker, a block is given to another one. Only the coordinator
    /// that makes the queue decides it.
    pub lease: Duration,
    /// Whether the rest of a block that was begun on one machine may be made on another one.
    pub may_split: bool,
}

impl Default for CoordinatorOptions {
    fn default() -> CoordinatorOptions {
        CoordinatorOptions { lease: Duration::from_secs(30), may_split: false }
    }
}

/// Puts all runs of a campaign that its journal lacks into a queue, as blocks, and records their results, until all are
/// there or the end is requested. Then a queue of which all results are recorded is removed; otherwise it stays, and
/// workers go on.
///
/// # Errors
/// If the queue is that of another campaign or was removed, the server refuses, or a result cannot be recorded. While
/// the server is away it waits.
pub fn coordinate(
    link: &ServerLink,
    name: &QueueName,
    loaded: &Loaded,
    journal: &mut Journal,
    options: &CoordinatorOptions,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<Summary, QueueError> {
    let (all, mut lacking) = (journal.plan().runs_in_all(), BTreeMap::<u32, usize>::new());
    for run in journal.pending() {
        *lacking.entry(run.block).or_default() += 1;
    }
    let done = all - lacking.values().sum::<usize>();
    let summary = Summary { done, all, made: 0, failed: journal.failed(), interrupted: false };
    if lacking.is_empty() {
        return Ok(summary);
    }
    let hosts = hosts_of_begun_blocks(journal, &lacking)?;
    let queue = Queue::new(link, name);
    let record = CampaignRecord {
        version: VERSION,
        name: loaded.campaign.name.clone(),
        hash: journal.plan().hash(),
        file: format!("{name}.toml"),
        text: loaded.text.clone(),
    };
    let abandoned = AbandonedFile::open(journal.folder())?;
    let mut coordinator = Coordinator {
        link,
        reader: ResultReader::new(&queue),
        queue,
        campaign: &loaded.campaign,
        journal,
        options,
        stop,
        observer,
        summary,
        lacking,
        hosts,
        blocks: Blocks::default(),
        abandoned,
        warned: HashSet::new(),
        clock_ns: 0,
        seem_stuck: HashSet::new(),
        record,
        register_length: None,
        records: HashSet::new(),
        start: Instant::now(),
    };
    coordinator.open()?;
    coordinator.run()
}

/// The machine of each block that has some of its runs.
fn hosts_of_begun_blocks(
    journal: &Journal,
    lacking: &BTreeMap<u32, usize>,
) -> Result<HashMap<u32, String>, QueueError> {
    let whole = journal.plan().combinations();
    let begun = |block: &u32| lacking.get(block).is_some_and(|count| *count < whole);
    let mut hosts = HashMap::new();
    if lacking.keys().any(begun) {
        each_row(journal.folder(), |row| {
            if begun(&row.run.block) {
                hosts.insert(row.run.block, row.machine.host);
            }
        })?;
    }
    Ok(hosts)
}

struct Coordinator<'a> {
    link: &'a ServerLink,
    queue: Queue,
    reader: ResultReader,
    campaign: &'a Campaign,
    journal: &'a mut Journal,
    options: &'a CoordinatorOptions,
    stop: &'a Stop,
    observer: &'a mut dyn Observer,
    summary: Summary,
    /// The number of runs that each block lacks.
    lacking: BTreeMap<u32, usize>,
    hosts: HashMap<u32, String>,
    blocks: Blocks,
    abandoned: AbandonedFile,
    /// Blocks and workers about which a notice was given.
    warned: HashSet<String>,
    /// The clock of this machine less that of the server, in nanoseconds.
    clock_ns: i64,
    /// The machines whose blocks, and whether those for any worker, the server seemed to give to nobody.
    seem_stuck: HashSet<Option<String>>,
    record: CampaignRecord,
    /// The length of the register when it was published.
    register_length: Option<u64>,
    /// The hashes of its records.
    records: HashSet<Hash>,
    start: Instant,
}

impl Coordinator<'_> {
    /// Makes the queue, or checks that it is that of this campaign.
    fn open(&mut self) -> Result<(), QueueError> {
        let fail = |trouble| self.queue.wire.error("open the queue", trouble);
        let hash = self.record.hash;
        let found = self.link.wait(self.queue.campaign()).map_err(fail)?.transpose()?;
        match found {
            Some(found) if found.hash != hash => {
                let (queue, name) = (self.queue.name.to_string(), found.name);
                let (theirs, ours) = (found.hash.short(), hash.short());
                return Err(QueueError::OtherCampaign { queue, name, theirs, ours });
            }
            Some(found) if found == self.record => {}
            _ => {
                self.link.wait(self.queue.create(self.options.lease)).map_err(fail)?;
                let subject = self.queue.control("campaign");
                self.link.wait(self.queue.wire.publish(&subject, None, bytes(&self.record))).map_err(fail)?;
            }
        }
        Ok(())
    }

    fn run(&mut self) -> Result<Summary, QueueError> {
        let (mut compared, mut clocks, mut beaten): (Option<Instant>, Option<Instant>, Option<Instant>) =
            (None, None, None);
        let is_due = |last: Option<Instant>, period: Duration| last.is_none_or(|last| last.elapsed() >= period);
        while !self.lacking.is_empty() && !self.stop.is_set() {
            if is_due(clocks, CLOCKS) {
                clocks = Some(Instant::now());
                if let Ok(Some(difference)) = self.link.wait(self.queue.clock_difference("coordinator")) {
                    self.clock_ns = difference;
                }
            }
            if is_due(beaten, BEAT) {
                beaten = Some(Instant::now());
                self.report(false);
            }
            self.publish_register()?;
            if is_due(compared, self.options.lease) {
                self.compare()?;
                compared = Some(Instant::now());
                continue;
            }
            if !self.receive(PATIENCE)? {
                compared = None;
            }
        }
        self.summary.interrupted = !self.lacking.is_empty();
        self.report(true);
        if self.lacking.is_empty() {
            let queue = self.queue.clone();
            let deleted = self.queue.must(self.link, "remove the queue", self.stop, || queue.delete());
            match deleted {
                Ok(_) | Err(QueueError::Removed { .. }) => {}
                Err(error) => (self.queue.wire.notices)(&error.to_string()),
            }
        }
        Ok(self.summary)
    }

    /// Receives results. False if there was trouble: the server is away, or was started again.
    fn receive(&mut self, time: Duration) -> Result<bool, QueueError> {
        match self.link.wait(self.reader.batch(time)) {
            Ok(messages) => {
                messages.iter().try_for_each(|message| self.take(message))?;
                Ok(true)
            }
            Err(Trouble::Away(_) | Trouble::Nobody | Trouble::Refused { code: NO_JETSTREAM, .. }) => {
                if self.link.wait(self.queue.is_gone()) {
                    return Err(self.queue.removed());
                }
                self.link.sleep(Duration::from_millis(200), self.stop);
                Ok(false)
            }
            Err(trouble) => match self.link.wait(self.queue.is_gone()) {
                true => Err(self.queue.removed()),
                false => Err(self.queue.wire.error("read results", trouble)),
            },
        }
    }

    /// Puts blocks into the queue that are neither there nor delivered.
    fn compare(&mut self) -> Result<(), QueueError> {
        let queue = self.queue.clone();
        // In this order: a block that is not waiting any more was delivered before, so that its results are read next.
        let waiting = queue.must(self.link, "read the queue", self.stop, || queue.waiting())?;
        let Some(mut waiting) = waiting else { return Ok(()) };
        self.mend(&waiting)?;
        while !self.stop.is_set() {
            match self.link.wait(self.reader.is_at_end()) {
                Ok(true) => break,
                Ok(false) => drop(self.receive(Duration::from_millis(200))?),
                Err(_) => drop(self.receive(Duration::from_millis(200))?),
            }
        }
        if self.options.may_split {
            let bound: Vec<u32> =
                waiting.iter().filter(|(_, subject)| host_of(subject).is_some()).map(|(block, _)| *block).collect();
            for block in bound {
                let subject = waiting.remove(&block).unwrap_or_default();
                queue.must(self.link, "free a block of its machine", self.stop, || queue.drop_block(&subject))?;
            }
        }
        let missing: Vec<u32> = self.lacking.keys().copied().filter(|block| !waiting.contains_key(block)).collect();
        for block in missing {
            if self.stop.is_set() {
                return Ok(());
            }
            self.put(block)?;
        }
        Ok(())
    }

    /// Mends what a server lost when it was killed.
    fn mend(&mut self, waiting: &BTreeMap<u32, String>) -> Result<(), QueueError> {
        let (queue, lease) = (self.queue.clone(), self.options.lease);
        let mut blocks: BTreeMap<Option<&str>, usize> = BTreeMap::from([(None, 0)]);
        waiting.values().for_each(|subject| *blocks.entry(host_of(subject)).or_default() += 1);
        let seemed_stuck = std::mem::take(&mut self.seem_stuck);
        for (host, blocks) in blocks {
            let stuck = queue.must(self.link, "read the queue", self.stop, || queue.has_stuck_blocks(host, blocks))?;
            let host_name = host.map(str::to_owned);
            match stuck == Some(true) {
                false => {}
                // Twice, because it may seem so for a moment.
                true if seemed_stuck.contains(&host_name) => {
                    let again = || queue.give_out_again(host, lease);
                    queue.must(self.link, "give out blocks again", self.stop, again)?;
                }
                true => drop(self.seem_stuck.insert(host_name)),
            }
        }
        let missing = queue.must(self.link, "read the queue", self.stop, || queue.campaign())?;
        if let Some(None) = missing {
            let (subject, record) = (self.queue.control("campaign"), bytes(&self.record));
            let wire = &self.queue.wire;
            queue
                .must(self.link, "publish the campaign", self.stop, || wire.publish(&subject, None, record.clone()))?;
        }
        Ok(())
    }

    /// Puts a block into the queue.
    fn put(&mut self, block: u32) -> Result<(), QueueError> {
        let plan = self.journal.plan();
        let runs = plan.block(block);
        let missing: Vec<u32> = runs.iter().filter(|run| !self.journal.has(**run)).map(|run| run.combination).collect();
        let only = (missing.len() < runs.len()).then_some(missing);
        let host = self.hosts.get(&block).filter(|_| only.is_some() && !self.options.may_split);
        if let (Some(host), Some(only)) = (host, &only)
            && self.warned.insert(format!("host {block}"))
        {
            (self.queue.wire.notices)(&format!(
                "block {block} has {} of {} runs, made on `{host}`: only a worker on that machine makes the others; \
                 `--split-blocks` lets any do so",
                runs.len() - only.len(),
                runs.len()
            ));
        }
        let subject = self.queue.name.work(host.map(String::as_str), block);
        let item = bytes(&Item { campaign: plan.hash(), block, only });
        let wire = &self.queue.wire;
        let put = self.queue.must(self.link, "put a block into the queue", self.stop, || async {
            match wire.publish(&subject, None, item.clone()).await {
                Err(Trouble::Refused { code: SUBJECT_TAKEN, .. }) => Ok(()),
                other => other,
            }
        });
        put.map(drop)
    }

    /// Takes a result.
    fn take(&mut self, message: &[u8]) -> Result<(), QueueError> {
        let delivery = match read::<Delivery>("a result", message) {
            Ok(delivery) => delivery,
            Err(error) => {
                (self.queue.wire.notices)(&error.to_string());
                return Ok(());
            }
        };
        if let Err(why) = check(&delivery, self.campaign, self.journal.plan()) {
            let Delivery { worker, row, .. } = &delivery;
            (self.queue.wire.notices)(&format!(
                "the result of run {} from worker {worker} does not count: {why}",
                row.run
            ));
            return Ok(());
        }
        let (block, attempt) = (delivery.row.run.block, delivery.attempt);
        if attempt >= MANY_ATTEMPTS && self.warned.insert(format!("attempts {block} {attempt}")) {
            (self.queue.wire.notices)(&format!(
                "block {block} was given out {attempt} times; a run of it may end its worker or the machine"
            ));
        }
        match self.blocks.add(delivery) {
            Collected::Waiting | Collected::Repeated => {}
            Collected::Abandoned(delivery) => self.abandoned.add(&delivery)?,
            Collected::Complete { results, is_first, abandoned } => {
                for delivery in results {
                    let is_recorded = !self.record(&delivery)?;
                    if is_recorded && !is_first {
                        self.abandoned.add(&delivery)?;
                    }
                }
                abandoned.iter().try_for_each(|delivery| self.abandoned.add(delivery))?;
            }
        }
        Ok(())
    }

    /// Records a result. False for a run that is recorded already.
    fn record(&mut self, delivery: &Delivery) -> Result<bool, QueueError> {
        let mut row = delivery.row.clone();
        row.start = in_our_clock(&row.start, self.clock_ns.saturating_sub(delivery.clock_ns));
        // A worker may know the register of another results folder.
        row.known = row.known.filter(|record| self.records.contains(record));
        let RunId { block, .. } = row.run;
        if !self.journal.append(row.clone())? {
            return Ok(false);
        }
        self.summary.made += 1;
        if let Some(lacking) = self.lacking.get_mut(&block) {
            self.summary.done += 1;
            *lacking -= 1;
            if *lacking == 0 {
                self.lacking.remove(&block);
            }
        }
        self.summary.failed = self.journal.failed();
        let progress = self.progress();
        self.observer.recorded(&row, &progress);
        Ok(true)
    }

    fn progress(&self) -> CampaignProgress {
        let Summary { done, all, failed, made, .. } = self.summary;
        let each = self.start.elapsed().checked_div(u32::try_from(made).unwrap_or(u32::MAX));
        let left = each.map(|each| each.saturating_mul(u32::try_from(all - done).unwrap_or(u32::MAX)));
        CampaignProgress { done, all, failed, left }
    }

    /// Tells workers the newest record of the register, so that rows show which hypotheses were stated when their run
    /// started.
    fn publish_register(&mut self) -> Result<(), QueueError> {
        let folder = self.journal.folder();
        let length = std::fs::metadata(folder.join(REGISTER)).map_or(0, |file| file.len());
        if self.register_length == Some(length) {
            return Ok(());
        }
        let register = Register::read(folder)?;
        self.records = register.records().iter().map(|record| record.hash).collect();
        let head = register.head();
        let (subject, report) = (self.queue.control("register"), bytes(&RegisterReport { head }));
        let wire = &self.queue.wire;
        let published = self
            .queue
            .must(self.link, "publish the register", self.stop, || wire.publish(&subject, None, report.clone()))?;
        self.register_length = published.map(|()| length);
        Ok(())
    }

    fn report(&self, has_ended: bool) {
        let folder = self.journal.folder().display().to_string();
        let (host, pid) = (host(), std::process::id());
        let report = CoordinatorReport { host, pid, folder, has_ended };
        self.link.wait(self.queue.wire.tell(&self.queue.control("coordinator"), bytes(&report)));
    }
}

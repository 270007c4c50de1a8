//! The signs of life of a worker: it says what it does, and keeps the block that it makes.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellows_campaign::{RunId, WorkerState};
use tokio::task::JoinHandle;

use crate::link::{ServerLink, lock};
use crate::messages::{WorkerReport, bytes};
use crate::queue::Queue;

/// What a worker says of itself, from a task that runs beside its runs.
pub(crate) struct Lease {
    queue: Queue,
    shared: Arc<Mutex<Shared>>,
    task: JoinHandle<()>,
}

struct Shared {
    report: WorkerReport,
    run_start: Option<Instant>,
    /// Where the server expects signs of life for the block.
    reply: Option<String>,
}

impl Shared {
    fn report(&self) -> Vec<u8> {
        let run_seconds = self.run_start.map_or(0.0, |start| start.elapsed().as_secs_f64());
        bytes(&WorkerReport { run_seconds, ..self.report.clone() })
    }
}

impl Lease {
    /// Says it three times in the time after which a block is given to another worker.
    pub(crate) fn new(link: &ServerLink, queue: &Queue, report: WorkerReport, lease: Duration) -> Lease {
        let shared = Arc::new(Mutex::new(Shared { report, run_start: None, reply: None }));
        let task = link.spawn(beat(queue.clone(), Arc::clone(&shared), lease / 3));
        Lease { queue: queue.clone(), shared, task }
    }

    /// Changes what is said, and says it.
    pub(crate) fn change(&self, link: &ServerLink, change: impl FnOnce(&mut WorkerReport)) {
        let (subject, report) = {
            let mut shared = lock(&self.shared);
            change(&mut shared.report);
            (subject(&self.queue, &shared.report), shared.report())
        };
        link.wait(self.queue.wire.tell(&subject, report));
    }

    /// Keeps a block from now on, or none.
    pub(crate) fn keep(&self, reply: Option<&str>) {
        lock(&self.shared).reply = reply.map(str::to_owned);
    }

    /// A run starts.
    pub(crate) fn run(&self, link: &ServerLink, run: RunId) {
        lock(&self.shared).run_start = Some(Instant::now());
        self.change(link, |report| report.run = Some(run));
    }

    /// No block is being made.
    pub(crate) fn idle(&self, link: &ServerLink, state: WorkerState) {
        {
            let mut shared = lock(&self.shared);
            shared.reply = None;
            shared.run_start = None;
        }
        self.change(link, |report| (report.state, report.block, report.run) = (state, None, None));
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn subject(queue: &Queue, report: &WorkerReport) -> String {
    queue.control(&format!("worker.{}", report.worker))
}

async fn beat(queue: Queue, shared: Arc<Mutex<Shared>>, period: Duration) {
    loop {
        tokio::time::sleep(period).await;
        let (subject, report, reply) = {
            let shared = lock(&shared);
            (subject(&queue, &shared.report), shared.report(), shared.reply.clone())
        };
        if let Some(reply) = reply {
            queue.wire.tell(&reply, b"+WPI".to_vec()).await;
        }
        queue.wire.tell(&subject, report).await;
    }
}

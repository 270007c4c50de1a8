//! Delivers the results of a block, each until the server has stored it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bellows_campaign::Stop;
use tokio::task::JoinHandle;

use crate::error::QueueError;
use crate::link::{NO_STREAM, PAUSE, ServerLink, Trouble};
use crate::messages::{Delivery, bytes};
use crate::names::Stream;
use crate::queue::Queue;

/// Maximum number of results that are not stored yet while further runs are made.
const MAX_PENDING: usize = 64;

/// How long the next run waits for the result of the one before. It must not disturb the next one.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a worker that is to end waits.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// Results on their way.
#[derive(Default)]
pub(crate) struct Deliveries {
    pending: VecDeque<JoinHandle<Result<(), QueueError>>>,
}

impl Deliveries {
    /// Delivers a result, and waits a moment for it. If the server is away it goes on beside the next runs.
    pub(crate) fn add(
        &mut self,
        link: &ServerLink,
        queue: &Queue,
        delivery: &Delivery,
        stop: &Stop,
    ) -> Result<(), QueueError> {
        let task = link.spawn(deliver(queue.clone(), delivery.clone()));
        self.pending.push_back(task);
        self.wait(link, stop, 0, Some(PATIENCE))?;
        while self.pending.len() > MAX_PENDING && !stop.is_set() {
            self.wait(link, stop, MAX_PENDING, Some(PATIENCE))?;
        }
        Ok(())
    }

    /// Waits until all are stored. False if the end was requested before.
    pub(crate) fn finish(&mut self, link: &ServerLink, stop: &Stop) -> Result<bool, QueueError> {
        self.wait(link, stop, 0, None)?;
        Ok(self.pending.is_empty())
    }

    /// Waits until at most some are pending, or for a time.
    fn wait(
        &mut self,
        link: &ServerLink,
        stop: &Stop,
        most: usize,
        patience: Option<Duration>,
    ) -> Result<(), QueueError> {
        let start = Instant::now();
        while self.pending.len() > most {
            let Some(task) = self.pending.front_mut() else { return Ok(()) };
            let limit = if stop.is_set() { Some(LAST_PATIENCE) } else { patience };
            let left = limit.map(|limit| limit.saturating_sub(start.elapsed()));
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
            let slice = left.unwrap_or(PATIENCE).min(Duration::from_millis(100));
            let Ok(result) = link.wait(async { tokio::time::timeout(slice, task).await }) else { continue };
            self.pending.pop_front();
            // A task ends by itself only.
            result.unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.pending.iter().for_each(JoinHandle::abort);
    }
}

async fn deliver(queue: Queue, delivery: Delivery) -> Result<(), QueueError> {
    let Delivery { claim, row, .. } = &delivery;
    let rest = format!("{}.{claim}.{}", row.run.block, row.run.combination);
    let (subject, id) = (queue.name.subject(Stream::Results, &rest), format!("{claim}.{}", row.run));
    let payload = bytes(&delivery);
    let mut told = None;
    loop {
        match queue.wire.publish(&subject, Some(&id), payload.clone()).await {
            Ok(()) => return Ok(()),
            Err(Trouble::TooLarge { bytes, most }) => {
                let what = format!("the result of run {}", row.run);
                return Err(QueueError::TooLarge { what, bytes, most });
            }
            Err(Trouble::Refused { code: NO_STREAM, .. }) => return Err(queue.removed()),
            Err(Trouble::Refused { code: 0, why }) => {
                return Err(queue.wire.error("deliver a result", Trouble::Refused { code: 0, why }));
            }
            // For example a full disk, which somebody may mend.
            Err(Trouble::Refused { why, .. }) if told.as_ref() != Some(&why) => {
                let (run, server) = (row.run, &queue.wire.server);
                (queue.wire.notices)(&format!("the result of run {run} waits: the NATS server {server} says: {why}"));
                told = Some(why);
            }
            Err(Trouble::Nobody) if queue.is_gone().await => return Err(queue.removed()),
            Err(_) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

//! The streams of a queue: makes them, looks into them, removes them.

use std::collections::BTreeMap;
use std::time::Duration;

use bellows_campaign::Stop;
use serde_json::{Value, json};

use crate::error::QueueError;
use crate::link::{NO_CONSUMER, NO_JETSTREAM, NO_STREAM, PAUSE, ServerLink, Trouble, Wire};
use crate::messages::{CampaignRecord, read};
use crate::names::{QueueName, Stream, of_host, token};

/// A request to learn the clock takes at most this long to count.
const MAX_CLOCK_TIME: u64 = 1_000_000_000;

/// The consumer of blocks for any worker.
const ANY: &str = "any";

/// A queue on a server.
#[derive(Clone)]
pub(crate) struct Queue {
    pub(crate) wire: Wire,
    pub(crate) name: QueueName,
}

impl Queue {
    pub(crate) fn new(link: &ServerLink, name: &QueueName) -> Queue {
        Queue { wire: link.wire().clone(), name: name.clone() }
    }

    pub(crate) fn control(&self, rest: &str) -> String {
        self.name.subject(Stream::Control, rest)
    }

    /// Makes the streams that are missing. All are files of the server, so that they outlive it.
    pub(crate) async fn create(&self, lease: Duration) -> Result<(), Trouble> {
        for stream in Stream::ALL {
            let name = self.name.stream(stream);
            let mut config = json!({
                "name": name,
                "subjects": [self.name.subject(stream, ">")],
                "storage": "file",
                "retention": "limits",
                "discard": "new",
                "max_consumers": -1,
                "max_msgs": -1,
                "max_bytes": -1,
                "max_age": 0,
                "num_replicas": 1,
                "allow_direct": true,
                "description": "a queue of a Bellows campaign",
            });
            match stream {
                // A block is in it once, until it is acknowledged.
                Stream::Work => {
                    config["retention"] = "workqueue".into();
                    config["max_msgs_per_subject"] = 1.into();
                    config["discard_new_per_subject"] = true.into();
                }
                Stream::Results => {}
                // The last message of each subject.
                Stream::Control => {
                    config["discard"] = "old".into();
                    config["max_msgs_per_subject"] = 1.into();
                }
            }
            if !self.exists(stream).await? {
                self.wire.api(&format!("STREAM.CREATE.{name}"), &config).await?;
            }
        }
        self.consumer(None, lease).await.map(drop)
    }

    pub(crate) async fn exists(&self, stream: Stream) -> Result<bool, Trouble> {
        match self.wire.api(&format!("STREAM.INFO.{}", self.name.stream(stream)), &Value::Null).await {
            Ok(_) => Ok(true),
            Err(Trouble::Refused { code: NO_STREAM, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether the queue is gone, for certain: not only away with its server.
    pub(crate) async fn is_gone(&self) -> bool {
        matches!(self.exists(Stream::Control).await, Ok(false))
    }

    /// The consumer of the blocks for any worker, or for those of a machine; made if it is missing. Also the time
    /// after which a block is given to another worker.
    pub(crate) async fn consumer(&self, host: Option<&str>, lease: Duration) -> Result<(String, Duration), Trouble> {
        let stream = self.name.stream(Stream::Work);
        let (name, filter) = (consumer_name(host), self.name.subject(Stream::Work, &of_host(host, "*")));
        let info = match self.wire.api(&format!("CONSUMER.INFO.{stream}.{name}"), &Value::Null).await {
            Err(Trouble::Refused { code: NO_CONSUMER, .. }) => {
                let config = json!({
                    "durable_name": name,
                    "filter_subject": filter,
                    "deliver_policy": "all",
                    "replay_policy": "instant",
                    "ack_policy": "explicit",
                    "ack_wait": lease.as_nanos() as u64,
                    "max_deliver": -1,
                    "max_ack_pending": 100_000,
                });
                let body = json!({ "stream_name": stream, "config": config });
                self.wire.api(&format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), &body).await?
            }
            other => other?,
        };
        let lease = info["config"]["ack_wait"].as_u64().map_or(lease, Duration::from_nanos);
        Ok((name, lease))
    }

    /// Whether the server has blocks for any worker, or for those of a machine, that it gives to nobody, as one may that
    /// was killed: `blocks` of them are in the queue. If blocks are acknowledged meanwhile it may seem so for a moment.
    pub(crate) async fn has_stuck_blocks(&self, host: Option<&str>, blocks: usize) -> Result<bool, Trouble> {
        let subject = format!("CONSUMER.INFO.{}.{}", self.name.stream(Stream::Work), consumer_name(host));
        match self.wire.api(&subject, &Value::Null).await {
            Ok(info) => {
                let count = |key: &str| info[key].as_u64().unwrap_or(0) as usize;
                Ok(count("num_pending") + count("num_ack_pending") < blocks)
            }
            // Workers of a machine make its consumer when they start.
            Err(Trouble::Refused { code: NO_CONSUMER, .. }) => Ok(host.is_none()),
            Err(trouble) => Err(trouble),
        }
    }

    /// Makes the server give out all these blocks again.
    pub(crate) async fn give_out_again(&self, host: Option<&str>, lease: Duration) -> Result<(), Trouble> {
        let subject = format!("CONSUMER.DELETE.{}.{}", self.name.stream(Stream::Work), consumer_name(host));
        let mut deleted = self.wire.api(&subject, &Value::Null).await;
        if matches!(&deleted, Err(Trouble::Refused { code, .. }) if *code != NO_CONSUMER) {
            // A server that is writing the consumer's files cannot remove them.
            tokio::time::sleep(PAUSE).await;
            deleted = self.wire.api(&subject, &Value::Null).await;
        }
        match deleted {
            Ok(_) | Err(Trouble::Refused { code: NO_CONSUMER, .. }) => self.consumer(host, lease).await.map(drop),
            Err(trouble) => Err(trouble),
        }
    }

    /// The number of messages by subject.
    pub(crate) async fn subjects(&self, stream: Stream, filter: &str) -> Result<BTreeMap<String, u64>, Trouble> {
        let name = self.name.stream(stream);
        let mut found = BTreeMap::new();
        loop {
            let body = json!({ "subjects_filter": self.name.subject(stream, filter), "offset": found.len() });
            let info = self.wire.api(&format!("STREAM.INFO.{name}"), &body).await?;
            let before = found.len();
            let page = info["state"]["subjects"].as_object().into_iter().flatten();
            found.extend(page.map(|(subject, count)| (subject.clone(), count.as_u64().unwrap_or(0))));
            let total = info["total"].as_u64().unwrap_or(0) as usize;
            if found.len() >= total || found.len() == before {
                return Ok(found);
            }
        }
    }

    /// The blocks that wait or are being made, each with its subject.
    pub(crate) async fn waiting(&self) -> Result<BTreeMap<u32, String>, Trouble> {
        let subjects = self.subjects(Stream::Work, ">").await?;
        Ok(subjects.into_keys().filter_map(|subject| Some((last_token(&subject).parse().ok()?, subject))).collect())
    }

    /// The state of a stream.
    pub(crate) async fn state(&self, stream: Stream) -> Result<Value, Trouble> {
        let info = self.wire.api(&format!("STREAM.INFO.{}", self.name.stream(stream)), &Value::Null).await?;
        Ok(info["state"].clone())
    }

    /// The campaign of the queue. Nothing if there is no queue.
    pub(crate) async fn campaign(&self) -> Result<Option<Result<CampaignRecord, QueueError>>, Trouble> {
        if !self.exists(Stream::Control).await? {
            return Ok(None);
        }
        let found = self.wire.last(&self.name.stream(Stream::Control), &self.control("campaign")).await?;
        Ok(found.map(|(bytes, _)| read("the campaign of the queue", &bytes)))
    }

    /// A clock of this machine less that of the server, in nanoseconds; nothing if the answer took too long. `who`
    /// distinguishes those that ask.
    pub(crate) async fn clock_difference(&self, who: &str) -> Result<Option<i64>, Trouble> {
        let subject = self.control(&format!("clock.{}", token(who)));
        let before = bellows_sys::clock::unix_ns();
        self.wire.publish(&subject, None, Vec::new()).await?;
        let after = bellows_sys::clock::unix_ns();
        let stored = self.wire.last(&self.name.stream(Stream::Control), &subject).await?;
        let difference = stored.map(|(_, time)| (before + (after - before) / 2) as i64 - time as i64);
        Ok(difference.filter(|_| after.saturating_sub(before) < MAX_CLOCK_TIME))
    }

    /// Takes a block out of the queue.
    pub(crate) async fn drop_block(&self, subject: &str) -> Result<(), Trouble> {
        let body = json!({ "filter": subject });
        self.wire.api(&format!("STREAM.PURGE.{}", self.name.stream(Stream::Work)), &body).await.map(drop)
    }

    /// Removes all streams.
    pub(crate) async fn delete(&self) -> Result<(), Trouble> {
        // The control stream is the last: as long as it is there, the queue is.
        for stream in Stream::ALL {
            match self.wire.api(&format!("STREAM.DELETE.{}", self.name.stream(stream)), &Value::Null).await {
                Ok(_) | Err(Trouble::Refused { code: NO_STREAM, .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Repeats a request until the server has done it. Nothing if the end was requested before.
    pub(crate) fn must<T, F: Future<Output = Result<T, Trouble>>>(
        &self,
        link: &ServerLink,
        doing: &'static str,
        stop: &Stop,
        mut request: impl FnMut() -> F,
    ) -> Result<Option<T>, QueueError> {
        loop {
            match link.persist(stop, &mut request) {
                None => return Ok(None),
                Some(Ok(done)) => return Ok(Some(done)),
                Some(Err(Trouble::Refused { code: NO_STREAM, .. })) => return Err(self.removed()),
                // A server that is starting has no JetStream yet.
                Some(Err(Trouble::Nobody | Trouble::Refused { code: NO_JETSTREAM, .. })) => {
                    if link.wait(self.is_gone()) {
                        return Err(self.removed());
                    }
                    if stop.is_set() {
                        return Ok(None);
                    }
                    link.sleep(PAUSE, stop);
                }
                Some(Err(trouble)) => return Err(self.wire.error(doing, trouble)),
            }
        }
    }

    pub(crate) fn missing(&self) -> QueueError {
        QueueError::NoQueue { server: self.wire.server.to_string(), queue: self.name.to_string() }
    }

    pub(crate) fn removed(&self) -> QueueError {
        QueueError::Removed { server: self.wire.server.to_string(), queue: self.name.to_string() }
    }
}

/// The name of the consumer of the blocks for any worker, or for those of a machine.
fn consumer_name(host: Option<&str>) -> String {
    host.map_or_else(|| ANY.to_owned(), |host| format!("host-{}", token(host)))
}

/// The last part of a subject.
pub(crate) fn last_token(subject: &str) -> &str {
    subject.rsplit('.').next().unwrap_or_default()
}

/// What was removed with a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purged {
    /// The number of blocks that waited or were being made.
    pub blocks: u64,
    /// The number of results, whether or not a coordinator has recorded them.
    pub results: u64,
}

/// Removes a queue with all blocks and results that it has. Workers and the coordinator end then.
///
/// # Errors
/// If there is no such queue, or the server refuses or does not answer.
pub fn purge(link: &ServerLink, name: &QueueName) -> Result<Purged, QueueError> {
    let queue = Queue::new(link, name);
    let fail = |trouble| queue.wire.error("remove the queue", trouble);
    link.wait(async {
        if !queue.exists(Stream::Control).await.map_err(fail)? {
            return Err(queue.missing());
        }
        let count = |state: Result<Value, Trouble>| match state {
            Ok(state) => Ok(state["messages"].as_u64().unwrap_or(0)),
            Err(Trouble::Refused { code: NO_STREAM, .. }) => Ok(0),
            Err(error) => Err(fail(error)),
        };
        let blocks = count(queue.state(Stream::Work).await)?;
        let results = count(queue.state(Stream::Results).await)?;
        queue.delete().await.map_err(fail)?;
        Ok(Purged { blocks, results })
    })
}

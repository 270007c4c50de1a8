//! Reads the results stream in its order, from any message on.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use async_nats::{Message, StatusCode};
use futures_core::Stream as _;
use serde_json::json;

use crate::link::{NO_CONSUMER, Trouble};
use crate::names::Stream;
use crate::queue::Queue;

/// Maximum number of messages of an answer.
const BATCH: usize = 500;

/// Reads results. The server keeps nothing of it that cannot be made again.
pub(crate) struct ResultReader {
    queue: Queue,
    /// The number of the next message.
    next: u64,
    consumer: Option<String>,
    /// Whether the consumer has given nothing yet. Messages that it gives to an inbox which is not read any more are
    /// lost, which shows as a gap before the next one.
    is_fresh: bool,
    /// Whether the last answer had no message.
    was_empty: bool,
    /// The server that numbered the messages.
    server: String,
}

impl ResultReader {
    /// Reads from the first message on.
    pub(crate) fn new(queue: &Queue) -> ResultReader {
        ResultReader {
            queue: queue.clone(),
            next: 1,
            consumer: None,
            is_fresh: true,
            was_empty: false,
            server: String::new(),
        }
    }

    /// Whether all messages so far were read. If the stream is shorter than it was, it is read again from its start.
    pub(crate) async fn is_at_end(&mut self) -> Result<bool, Trouble> {
        let state = self.queue.state(Stream::Results).await?;
        let last = state["last_seq"].as_u64().unwrap_or(0);
        if last + 1 < self.next {
            self.restart();
        }
        // The last messages may be lost, too.
        if self.next <= last && std::mem::take(&mut self.was_empty) {
            self.consumer = None;
        }
        Ok(self.next > last)
    }

    fn restart(&mut self) {
        self.next = 1;
        self.consumer = None;
    }

    /// The next results; waits for them at most for a time.
    pub(crate) async fn batch(&mut self, time: Duration) -> Result<Vec<Vec<u8>>, Trouble> {
        // A server that was killed may have lost the last messages, and given their numbers to others.
        let server = self.queue.wire.client().server_info().server_id;
        if server != self.server {
            self.restart();
            self.server = server;
        }
        let stream = self.queue.name.stream(Stream::Results);
        let consumer = match &self.consumer {
            Some(name) => name.clone(),
            None => {
                let name = self.create(&stream).await?;
                self.is_fresh = true;
                self.consumer.insert(name).clone()
            }
        };
        let result = self.fetch(&stream, &consumer, time).await;
        self.was_empty = result.as_ref().is_ok_and(Vec::is_empty);
        if result.is_err() {
            // It is made again from the next message on.
            self.consumer = None;
        }
        result
    }

    async fn create(&self, stream: &str) -> Result<String, Trouble> {
        let config = json!({
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.next,
            "ack_policy": "none",
            "replay_policy": "instant",
            "mem_storage": true,
            "inactive_threshold": 60_000_000_000_u64,
        });
        let body = json!({ "stream_name": stream, "config": config });
        let info = self.queue.wire.api(&format!("CONSUMER.CREATE.{stream}"), &body).await?;
        info["name"]
            .as_str()
            .map(str::to_owned)
            .ok_or(Trouble::Refused { code: NO_CONSUMER, why: "a consumer has no name".to_owned() })
    }

    async fn fetch(&mut self, stream: &str, consumer: &str, time: Duration) -> Result<Vec<Vec<u8>>, Trouble> {
        let away = |error: &dyn std::fmt::Display| Trouble::Away(error.to_string());
        let client = self.queue.wire.client();
        let inbox = client.new_inbox();
        let mut answers = client.subscribe(inbox.clone()).await.map_err(|error| away(&error))?;
        let request = json!({ "batch": BATCH, "expires": time.as_nanos() as u64 }).to_string();
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        client.publish_with_reply(subject, inbox, request.into()).await.map_err(|error| away(&error))?;
        let mut results = Vec::new();
        // The first may take all of the time; the others are there or not.
        let mut patience = time + Duration::from_secs(2);
        while results.len() < BATCH {
            let next = poll_fn(|context| Pin::new(&mut answers).poll_next(context));
            let message = match tokio::time::timeout(patience, next).await {
                Ok(Some(message)) => message,
                Ok(None) => return Err(Trouble::Away("the connection has ended".to_owned())),
                Err(_) if results.is_empty() => return Err(Trouble::Away("it does not answer".to_owned())),
                Err(_) => break,
            };
            match message.status {
                None | Some(StatusCode::OK) => {
                    let Some(sequence) = sequence(&message) else { continue };
                    if sequence < self.next {
                        continue;
                    }
                    if sequence > self.next && !self.is_fresh {
                        self.consumer = None;
                        break;
                    }
                    self.is_fresh = false;
                    self.next = sequence + 1;
                    results.push(message.payload.to_vec());
                    patience = Duration::from_millis(20);
                }
                Some(StatusCode::NO_RESPONDERS) => return Err(Trouble::Nobody),
                Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => break,
                Some(_) if results.is_empty() => return Err(Trouble::Away("the consumer is gone".to_owned())),
                Some(_) => break,
            }
        }
        Ok(results)
    }
}

/// The number of a message in its stream, from its reply subject: `$JS.ACK.STREAM.CONSUMER.…`, or the same with a
/// domain and an account before the stream.
fn sequence(message: &Message) -> Option<u64> {
    stream_sequence(message.reply.as_ref()?)
}

fn stream_sequence(reply: &str) -> Option<u64> {
    part_of_reply(reply, 3)
}

/// How often a message was delivered, from its reply subject.
pub(crate) fn deliveries(reply: &str) -> Option<u64> {
    part_of_reply(reply, 2)
}

/// A part of a reply subject, counted from the stream.
fn part_of_reply(reply: &str, index: usize) -> Option<u64> {
    let parts: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
    let start = if parts.len() >= 9 { 2 } else { 0 };
    parts.get(start + index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_reply_subjects_are_read() {
        for reply in ["$JS.ACK.work.any.2.41.43.1700000000000000000.7", "$JS.ACK._.hash.work.any.2.41.43.17.7.token"] {
            assert_eq!((deliveries(reply), stream_sequence(reply)), (Some(2), Some(41)), "{reply}");
        }
        assert_eq!(stream_sequence("_INBOX.x"), None);
        assert_eq!(stream_sequence("$JS.ACK.work.any.x"), None);
    }
}

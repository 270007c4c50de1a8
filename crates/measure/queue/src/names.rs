//! The name of a queue, and the streams and subjects that belong to it.
//!
//! | stream | subject | message |
//! |---|---|---|
//! | `bellows-NAME-work` | `bellows.NAME.work.any.BLOCK` | a block that waits for a worker or is being made |
//! | | `bellows.NAME.work.host.HOST.BLOCK` | the rest of a block that was begun on a machine |
//! | `bellows-NAME-results` | `bellows.NAME.results.BLOCK.CLAIM.COMBINATION` | the result of a run |
//! | `bellows-NAME-control` | `bellows.NAME.control.campaign` | the campaign file |
//! | | `bellows.NAME.control.claim.BLOCK` | the worker that was given a block last |
//! | | `bellows.NAME.control.worker.WORKER` | what a worker does |
//! | | `bellows.NAME.control.coordinator` | the coordinator |
//! | | `bellows.NAME.control.clock.WORKER` | a message to read the server's clock |

use std::fmt;
use std::str::FromStr;

use crate::error::QueueError;

/// Maximum length of a queue's name.
const MAX_NAME: usize = 64;

/// The name of a queue: 1 to 64 letters, digits, `-` and `_`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueName(String);

impl FromStr for QueueName {
    type Err = QueueError;

    fn from_str(text: &str) -> Result<QueueName, QueueError> {
        let is_valid = (1..=MAX_NAME).contains(&text.len()) && text.chars().all(is_plain);
        if is_valid { Ok(QueueName(text.to_owned())) } else { Err(QueueError::Name(text.to_owned())) }
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl QueueName {
    /// The name that a campaign's queue has by default: that of the campaign, with `-` for all other characters.
    pub fn of_campaign(name: &str) -> QueueName {
        let name = token(name);
        QueueName(if name.is_empty() { "campaign".to_owned() } else { name })
    }

    pub(crate) fn stream(&self, stream: Stream) -> String {
        format!("bellows-{self}-{}", stream.name())
    }

    pub(crate) fn subject(&self, stream: Stream, rest: &str) -> String {
        format!("bellows.{self}.{}.{rest}", stream.name())
    }

    /// The subject of a block: for any worker, or for those on a machine.
    pub(crate) fn work(&self, host: Option<&str>, block: u32) -> String {
        self.subject(Stream::Work, &of_host(host, &block.to_string()))
    }
}

/// The end of the subject of a block.
pub(crate) fn of_host(host: Option<&str>, block: &str) -> String {
    match host {
        None => format!("any.{block}"),
        Some(host) => format!("host.{}.{block}", token(host)),
    }
}

/// The machine to which the subject of a block binds it, as a part of subjects.
pub(crate) fn host_of(subject: &str) -> Option<&str> {
    let mut parts = subject.rsplit('.').skip(1);
    let host = parts.next()?;
    (parts.next() == Some("host")).then_some(host)
}

/// A stream of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Work,
    Results,
    Control,
}

impl Stream {
    pub(crate) const ALL: [Stream; 3] = [Stream::Work, Stream::Results, Stream::Control];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Stream::Work => "work",
            Stream::Results => "results",
            Stream::Control => "control",
        }
    }
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '-' || character == '_'
}

/// A word as a part of a subject.
pub(crate) fn token(word: &str) -> String {
    word.chars().take(MAX_NAME).map(|character| if is_plain(character) { character } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_blocks_tell_their_machine() {
        // A queue and a machine may have the names of parts.
        for name in ["sizes", "host", "any"] {
            let name: QueueName = name.parse().unwrap();
            assert_eq!(host_of(&name.work(None, 7)), None);
            assert_eq!(host_of(&name.work(Some("lab.3"), 7)), Some("lab-3"));
            assert_eq!(host_of(&name.work(Some("any"), 7)), Some("any"));
            assert_eq!(host_of(&name.work(Some("host"), 7)), Some("host"));
        }
        assert_eq!((host_of(""), host_of("x")), (None, None));
    }

    #[test]
    fn names_are_words_of_subjects() {
        for good in ["a", "sizes-2_x", &"n".repeat(64)] {
            assert_eq!(good.parse::<QueueName>().unwrap().to_string(), good);
        }
        for bad in ["", "a b", "a.b", "a>", "*", "ä", &"n".repeat(65)] {
            assert!(bad.parse::<QueueName>().is_err(), "{bad}");
        }
        for (campaign, queue) in [("vring sizes", "vring-sizes"), ("ä/ö.>", "-----"), ("", "campaign")] {
            assert_eq!(QueueName::of_campaign(campaign), queue.parse().unwrap());
        }
        let name: QueueName = "q".parse().unwrap();
        assert_eq!(name.work(Some("lab.example"), 7), "bellows.q.work.host.lab-example.7");
    }
}

//! What a build without the feature `nats` says.

use bellows_campaign::{Journal, Loaded, Observer, QueueStatus, Stop, Summary};

use super::{Coordination, QueueOptions, Work};
use crate::command_error::CommandError;

fn lacks<T>() -> Result<T, CommandError> {
    let how = "this build has no queues; build one with cargo build --release --features nats";
    Err(CommandError::Usage(how.to_owned()))
}

pub fn check(_: &QueueOptions, _: &str) -> Result<(), CommandError> {
    lacks()
}

pub fn coordinate(
    _: &QueueOptions,
    _: &Coordination,
    _: &Loaded,
    _: &mut Journal,
    _: &Stop,
    _: &mut dyn Observer,
) -> Result<Summary, CommandError> {
    lacks()
}

pub fn work(_: &QueueOptions, _: &Work<'_>, _: &Stop, _: &mut dyn Observer) -> Result<(String, bool), CommandError> {
    lacks()
}

pub fn status(_: &QueueOptions, _: &str) -> Result<(String, QueueStatus), CommandError> {
    lacks()
}

pub fn purge(_: &QueueOptions, _: &str) -> Result<String, CommandError> {
    lacks()
}

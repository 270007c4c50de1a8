//! A queue of a campaign's runs at a NATS server: the options, and what a build with the feature `nats` does with them.

use std::path::PathBuf;

use clap::Args;

#[cfg_attr(feature = "nats", path = "nats.rs")]
#[cfg_attr(not(feature = "nats"), path = "without.rs")]
mod server;

pub use server::{check, coordinate, purge, status, work};

/// Where a queue is.
#[derive(Debug, Args)]
pub struct QueueOptions {
    /// The NATS server of a queue: nats://HOST or tls://HOST
    #[arg(long = "queue", value_name = "URL")]
    url: String,
    #[command(flatten)]
    access: Access,
}

/// The same where a queue is not needed.
#[derive(Debug, Args)]
pub struct OptionalQueue {
    /// The NATS server of a queue for workers on any machine: nats://HOST or tls://HOST
    #[arg(long = "queue", value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    access: Access,
}

/// How a queue is opened.
#[derive(Clone, Debug, Args)]
pub struct Access {
    /// The queue's name [default: that of the campaign]
    #[arg(long, value_name = "NAME", requires = "url")]
    queue_name: Option<String>,
    /// A file with the user's credentials, of `nsc`, or with the seed of an nkey
    #[arg(long, value_name = "FILE", requires = "url", hide_short_help = true)]
    credentials: Option<PathBuf>,
    /// A file with the authorities of TLS connections [default: the system's]
    #[arg(long, value_name = "FILE", requires = "url", hide_short_help = true)]
    ca: Option<PathBuf>,
    /// A file with the client's certificate
    #[arg(long, value_name = "FILE", requires = "key", requires = "url", hide_short_help = true)]
    certificate: Option<PathBuf>,
    /// A file with the certificate's key
    #[arg(long, value_name = "FILE", requires = "certificate", requires = "url", hide_short_help = true)]
    key: Option<PathBuf>,
}

impl OptionalQueue {
    /// The queue, if one is named.
    pub fn given(&self) -> Option<QueueOptions> {
        Some(QueueOptions { url: self.url.clone()?, access: self.access.clone() })
    }
}

/// How a coordinator works.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "what there is no server for"))]
pub struct Coordination {
    /// The time after which a block without a sign of life is given to another worker, if it is not the default.
    pub lease: Option<std::time::Duration>,
    /// Whether the rest of a block that was begun on one machine may be made on another one.
    pub may_split: bool,
}

/// The campaign that a worker makes runs of.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "nats"), expect(dead_code, reason = "what there is no server for"))]
pub struct Work<'w> {
    /// The campaign file, or the campaign's name if its file comes from the queue.
    pub file: &'w std::path::Path,
    /// The SHA-256 of a file that comes from the queue.
    pub sha256: Option<&'w str>,
    /// The maximum number of blocks.
    pub max_blocks: Option<u64>,
}

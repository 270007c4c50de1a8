//! Campaigns on several machines: blocks of runs and their results in queues of NATS JetStream.
//!
//! A [coordinator](coordinate) puts the blocks of a campaign that its [journal](bellows_campaign::Journal) lacks into a
//! queue, and alone writes the results folder. Any number of [workers](work) take blocks, make their runs with a
//! [`LocalExecutor`](bellows_campaign::LocalExecutor), and deliver the results.
//!
//! A crate of its own because it brings the client of NATS with TLS, which `bellows` has only with the feature `nats`.
//!
//! - **A block belongs to one machine.** A worker that is given a block makes a *claim* of it. The block counts when
//!   one claim has delivered all of its runs. So a difference between machines is one between blocks, and never one
//!   between combinations. If a worker dies, the block is made again as a whole; what it delivered before is kept in
//!   [`ABANDONED`]. The rest of a block that an earlier session began is made on the machine that began it.
//! - **Nothing is lost.** All streams are files of the server. A block stays in its stream until all its results are
//!   stored, and a result until the journal is complete. Whoever asks repeats it until the server answers. The
//!   coordinator compares the queue with what is missing, at its start, after each trouble, and once in each lease.
//! - **Nothing counts twice.** A result is counted by its claim and its run, and the journal has each run once, whatever
//!   window the server has for duplicates.
//! - **A worker that dies gives its block back**, because signs of life end, which extend the time that the server
//!   waits for it. A worker that only seemed dead sees the claim of another one, and leaves the block.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use bellows_campaign::{Journal, Stop, load};
//! use bellows_queue::{CoordinatorOptions, QueueName, Server, ServerLink, WorkerOptions, coordinate, fetch, work};
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! let notices = Arc::new(|text: &str| eprintln!("{text}"));
//! let link = ServerLink::connect(&Server::new("nats://lab"), "coordinator", notices)?;
//! let loaded = load(Path::new("sizes.toml"))?;
//! let name = QueueName::of_campaign(&loaded.campaign.name);
//! let mut journal = Journal::open(Path::new("sizes.results"), &loaded.campaign, &loaded.text)?;
//! let options = CoordinatorOptions::default();
//! coordinate(&link, &name, &loaded, &mut journal, &options, &Stop::new()?, &mut ())?;
//!
//! // On other machines, with the SHA-256 of the file:
//! let loaded = fetch(&link, &name, "3a7bd3…", Path::new("."))?;
//! work(&link, &name, &loaded, &WorkerOptions::default(), &Stop::new()?, &mut ())?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | `server`, `link` | where the server is; a connection |
//! | `names`, `messages` | streams, subjects and messages of a queue |
//! | `queue` | makes, reads and removes the streams |
//! | `coordinator` | puts blocks into a queue and records results |
//! | `reader`, `check` | reads results; checks them |
//! | `collect`, `abandoned` | puts the results of a block together; keeps those that do not count |
//! | `worker`, `lease`, `delivery`, `slot` | makes blocks; signs of life; delivers results; workers of one machine |
//! | `status` | what a queue has, and what workers do |
//! | `error` | why a queue cannot be used |
#![forbid(unsafe_code)]

mod abandoned;
mod check;
mod collect;
mod coordinator;
mod delivery;
mod error;
mod lease;
mod link;
mod messages;
mod names;
mod queue;
mod reader;
mod server;
mod slot;
mod status;
#[cfg(test)]
mod test_rows;
mod worker;

pub use abandoned::ABANDONED;
pub use coordinator::{CoordinatorOptions, coordinate};
pub use error::QueueError;
pub use link::{Notices, ServerLink};
pub use names::QueueName;
pub use queue::{Purged, purge};
pub use server::Server;
pub use status::status;
pub use worker::{WorkSummary, WorkerOptions, fetch, text_sha256, work};

// Chooses the version that takes host names of ASCII only, without tables of Unicode.
use idna_adapter as _;

//! Why a queue cannot be used.

use std::path::PathBuf;

use bellows_campaign::{ExecuteError, JournalError};
use bellows_sys::FileError;
use bellows_sys::private_file::PrivateFileError;

/// Why a queue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The address of the server is not valid.
    #[error("`{url}` is no address of a server: {why}; write nats://HOST, nats://HOST:PORT or tls://HOST:PORT")]
    Address {
        /// The address, without a password.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// A file with credentials or certificates cannot be used.
    #[error("{}: {why}; {help}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
        /// The way out.
        help: &'static str,
    },
    /// Such a file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] FileError),
    /// A file with a secret cannot be used.
    #[error(transparent)]
    Secret(#[from] PrivateFileError),
    /// No server answers.
    #[error("cannot connect to the NATS server {server}: {why}; check that it runs and that the address is right")]
    Connect {
        /// The server.
        server: String,
        /// Why.
        why: String,
    },
    /// The server refuses the credentials.
    #[error(
        "the NATS server {server} refuses the credentials; give its user's by `--credentials FILE`, or by \
         nats://USER:PASSWORD@HOST"
    )]
    Refused {
        /// The server.
        server: String,
    },
    /// The connection cannot be encrypted.
    #[error("no TLS connection to the NATS server {server}: {why}; {help}")]
    Tls {
        /// The server.
        server: String,
        /// Why.
        why: String,
        /// The way out.
        help: &'static str,
    },
    /// The server has no JetStream.
    #[error(
        "the NATS server {server} has no JetStream for this user; start it as `nats-server --jetstream`, or enable \
         `jetstream` in its configuration and for the user's account"
    )]
    NoJetStream {
        /// The server.
        server: String,
    },
    /// There is no such queue.
    #[error(
        "the NATS server {server} has no queue `{queue}`; start its coordinator first (`bellows campaign run FILE \
         --queue …`), or check the name"
    )]
    NoQueue {
        /// The server.
        server: String,
        /// The queue.
        queue: String,
    },
    /// The queue was removed while it was used.
    #[error(
        "the queue `{queue}` was removed from the NATS server {server}; all results so far are in the results folder: \
         start the coordinator again to go on"
    )]
    Removed {
        /// The server.
        server: String,
        /// The queue.
        queue: String,
    },
    /// The queue is that of another campaign.
    #[error(
        "the queue `{queue}` is that of another campaign, `{name}` with the hash {theirs}, not {ours}; give this one \
         another name by `--queue-name`, or remove that queue if it is of no use any more"
    )]
    OtherCampaign {
        /// The queue.
        queue: String,
        /// The other campaign's name.
        name: String,
        /// The first digits of its hash.
        theirs: String,
        /// Those of this campaign.
        ours: String,
    },
    /// The text of the campaign is not the one that was asked for.
    #[error(
        "the queue `{queue}` has a campaign file with the SHA-256 {found}, not {asked}; nothing of it was run: compare \
         the files, and start the worker with the file, or with the right `--sha256`"
    )]
    OtherText {
        /// The queue.
        queue: String,
        /// The SHA-256 of the file in the queue.
        found: String,
        /// The one that was asked for.
        asked: String,
    },
    /// A campaign file from a queue has errors.
    #[error("the campaign file of the queue has errors; it may be one for another version of Bellows:\n{0}")]
    CampaignFile(String),
    /// The name of a queue is not valid.
    #[error("`{0}` is no name of a queue; use 1 to 64 letters, digits, `-` and `_`")]
    Name(String),
    /// A message is larger than the server permits.
    #[error("{what} has {bytes} bytes, but the NATS server takes at most {most}; increase its `max_payload`")]
    TooLarge {
        /// What is too large.
        what: String,
        /// Its size in bytes.
        bytes: usize,
        /// The maximum.
        most: usize,
    },
    /// The server refuses a request, or does not answer.
    #[error("cannot {doing} at the NATS server {server}: {why}; {}", request_help(.why))]
    Request {
        /// What was tried.
        doing: &'static str,
        /// The server.
        server: String,
        /// Why it failed.
        why: String,
    },
    /// A message of the queue cannot be read.
    #[error("{what} cannot be read: {why}; use one version of Bellows on all machines")]
    Message {
        /// The message.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// A file of the worker or of the results folder cannot be used.
    #[error("{}", FileError::of(doing, path, error, "check the path"))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        error: std::io::Error,
    },
    /// Threads or descriptors are missing.
    #[error("cannot start the connection's thread: {0}; free memory or processes")]
    Thread(std::io::Error),
    /// Runs cannot be made.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// Results cannot be recorded.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

fn request_help(why: &str) -> &'static str {
    if why.contains("ermission") {
        "let this user publish and subscribe to `bellows.>`, `$JS.>` and `_INBOX.>`"
    } else {
        "check the server and its log"
    }
}

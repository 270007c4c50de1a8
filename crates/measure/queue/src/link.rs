//! A connection to the server, which a thread of its own keeps up.
//!
//! The client library reconnects by itself. What is asked meanwhile gets no answer in time, so that all requests that
//! must succeed are repeated.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use async_nats::{Client, ConnectErrorKind, Event, HeaderMap, Message, StatusCode};
use bellows_campaign::Stop;
use bellows_sys::calendar;
use serde_json::Value;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::error::QueueError;
use crate::server::{Server, choose_ciphers};

/// How long a request may take.
const REQUEST_TIME: Duration = Duration::from_secs(4);

/// How long a connection may take.
const CONNECT_TIME: Duration = Duration::from_secs(10);

/// Maximum time between two attempts to connect again.
const MAX_RECONNECT: Duration = Duration::from_secs(2);

/// The time between two attempts of a request.
pub(crate) const PAUSE: Duration = Duration::from_millis(200);

/// Takes sentences about the connection and the queue, for people.
pub type Notices = Arc<dyn Fn(&str) + Send + Sync>;

/// A connection to the server.
pub struct ServerLink {
    wire: Wire,
    handle: Handle,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What requests need. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Wire {
    client: Client,
    pub(crate) server: Arc<str>,
    /// What the server complained about last.
    complaint: Arc<Mutex<Option<String>>>,
    pub(crate) notices: Notices,
}

/// Why a request did not succeed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// No answer: the server may come back.
    Away(String),
    /// Nobody listens to the subject: there is no stream of it, or no JetStream, or not yet.
    Nobody,
    /// The server refuses, with its code for the reason.
    Refused { code: u64, why: String },
    /// The message is larger than the server takes.
    TooLarge { bytes: usize, most: usize },
}

/// The reason for which a stream, a consumer or a message is not there.
pub(crate) const NO_STREAM: u64 = 10_059;
pub(crate) const NO_CONSUMER: u64 = 10_014;
/// A subject has a message already.
pub(crate) const SUBJECT_TAKEN: u64 = 10_077;
const NO_JETSTREAM_FOR_ACCOUNT: u64 = 10_039;
pub(crate) const NO_JETSTREAM: u64 = 10_076;

/// A lock that a panic elsewhere does not matter for.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ServerLink {
    /// Connects to a server. `purpose` names the connection in the server's monitoring.
    ///
    /// # Errors
    /// If the address or a file is not valid, no server answers, or it refuses the credentials or the certificate.
    pub fn connect(server: &Server, purpose: &str, notices: Notices) -> Result<ServerLink, QueueError> {
        let address = server.address()?;
        let shown = Server::shown(&address);
        let options = server.options(&address)?;
        match choose_ciphers(&shown) {
            Err(error) if server.wants_tls(&address) => return Err(error),
            _ => {}
        }
        let runtime = Builder::new_current_thread().enable_all().build().map_err(QueueError::Thread)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new().name("queue".to_owned()).spawn(move || {
            // All tasks run while this waits. An error is the sender that is dropped, which also means the end.
            let _ = runtime.block_on(ended);
        });
        let thread = thread.map_err(QueueError::Thread)?;
        let complaint = Arc::new(Mutex::new(None));
        let (kept, told) = (Arc::clone(&complaint), Arc::clone(&notices));
        let options = options
            .name(format!("bellows campaign {purpose}"))
            .connection_timeout(CONNECT_TIME)
            .request_timeout(Some(REQUEST_TIME))
            .ping_interval(Duration::from_secs(10))
            .reconnect_delay_callback(|attempts| {
                MAX_RECONNECT.min(Duration::from_millis(50).saturating_mul(1 << attempts.min(10)))
            })
            .event_callback(move |event| {
                let (kept, told) = (Arc::clone(&kept), Arc::clone(&told));
                async move {
                    match event {
                        Event::Disconnected => {
                            told("the connection to the NATS server is lost; trying to connect again")
                        }
                        Event::ServerError(error) => *lock(&kept) = Some(error.to_string()),
                        Event::ClientError(error) => *lock(&kept) = Some(error.to_string()),
                        _ => {}
                    }
                }
            });
        // As a task: a panic of the library is an error then.
        let connected = handle.block_on(handle.spawn(options.connect(address)));
        let connected = match connected {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error)) => Err(connect_error(&shown, &error)),
            Err(panic) => Err(QueueError::Connect { server: shown.clone(), why: panic.to_string() }),
        };
        let (end, thread) = (Some(end), Some(thread));
        match connected {
            Ok(client) => {
                let wire = Wire { client, server: shown.into(), complaint, notices };
                Ok(ServerLink { wire, handle, end, thread })
            }
            Err(error) => {
                drop(end);
                let _ = thread.map(JoinHandle::join);
                Err(error)
            }
        }
    }

    /// The server's address, without a password.
    pub fn server(&self) -> &str {
        &self.wire.server
    }

    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Waits for a request.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }

    /// Starts a task beside.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.handle.spawn(future)
    }

    /// Repeats a request until it has an answer. Nothing if the end was requested before.
    pub(crate) fn persist<T, F: Future<Output = Result<T, Trouble>>>(
        &self,
        stop: &Stop,
        mut request: impl FnMut() -> F,
    ) -> Option<Result<T, Trouble>> {
        loop {
            match self.wait(request()) {
                Err(Trouble::Away(_)) if stop.is_set() => return None,
                Err(Trouble::Away(_)) => self.sleep(PAUSE, stop),
                other => return Some(other),
            }
        }
    }

    /// Sleeps, unless the end is requested.
    pub(crate) fn sleep(&self, time: Duration, stop: &Stop) {
        let slices = time.as_millis() / 50;
        for _ in 0..=slices {
            if stop.is_set() {
                return;
            }
            std::thread::sleep(time.min(Duration::from_millis(50)));
        }
    }
}

impl Drop for ServerLink {
    fn drop(&mut self) {
        // What was published last goes out, if the server is there.
        let client = self.wire.client.clone();
        self.wait(async { drop(tokio::time::timeout(Duration::from_secs(1), client.flush()).await) });
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Wire {
    /// Asks for something and waits for the answer.
    pub(crate) async fn ask(
        &self,
        subject: &str,
        headers: Option<HeaderMap>,
        payload: Vec<u8>,
        time: Duration,
    ) -> Result<Message, Trouble> {
        let mut request = Request::new();
        if let Some(headers) = headers {
            request = request.headers(headers);
        }
        self.send(subject, request, payload, time).await
    }

    /// Asks for a message of a stream. It has its own subject, so that the answer needs a subscription of its own.
    pub(crate) async fn pull(&self, subject: &str, payload: Vec<u8>, time: Duration) -> Result<Message, Trouble> {
        self.send(subject, Request::new().inbox(self.client.new_inbox()), payload, time).await
    }

    async fn send(
        &self,
        subject: &str,
        request: Request,
        payload: Vec<u8>,
        time: Duration,
    ) -> Result<Message, Trouble> {
        let most = self.client.max_payload();
        if payload.len() > most {
            return Err(Trouble::TooLarge { bytes: payload.len(), most });
        }
        lock(&self.complaint).take();
        let bytes = payload.len();
        let request = request.payload(payload.into()).timeout(Some(time));
        self.client.send_request(subject.to_owned(), request).await.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => Trouble::Nobody,
            RequestErrorKind::MaxPayloadExceeded => Trouble::TooLarge { bytes, most },
            RequestErrorKind::InvalidSubject => Trouble::Refused { code: 0, why: error.to_string() },
            _ => match lock(&self.complaint).take() {
                Some(complaint) if complaint.to_lowercase().contains("permission") => {
                    Trouble::Refused { code: 0, why: complaint }
                }
                Some(complaint) => Trouble::Away(complaint),
                None => Trouble::Away("it does not answer".to_owned()),
            },
        })
    }

    /// Asks JetStream.
    pub(crate) async fn api(&self, subject: &str, body: &Value) -> Result<Value, Trouble> {
        let payload = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let message = self.ask(&format!("$JS.API.{subject}"), None, payload, REQUEST_TIME).await?;
        answer(&message.payload)
    }

    /// Publishes to a stream, and waits until it is stored. A message with an `id` that the stream has seen within its
    /// window counts as stored.
    pub(crate) async fn publish(&self, subject: &str, id: Option<&str>, payload: Vec<u8>) -> Result<(), Trouble> {
        let headers = id.map(|id| {
            let mut headers = HeaderMap::new();
            headers.insert("Nats-Msg-Id", id);
            headers
        });
        let message = self.ask(subject, headers, payload, REQUEST_TIME).await?;
        answer(&message.payload).map(drop)
    }

    /// Publishes without waiting. If the server is away the message may be lost.
    pub(crate) async fn tell(&self, subject: &str, payload: Vec<u8>) {
        let _ = self.client.publish(subject.to_owned(), payload.into()).await;
    }

    /// The last message of a subject, and the server's time when it was stored, in nanoseconds since the Unix epoch.
    pub(crate) async fn last(&self, stream: &str, subject: &str) -> Result<Option<(Vec<u8>, u64)>, Trouble> {
        let body = serde_json::json!({ "last_by_subj": subject }).to_string();
        let message = self.ask(&format!("$JS.API.DIRECT.GET.{stream}"), None, body.into_bytes(), REQUEST_TIME).await?;
        if message.status == Some(StatusCode::NOT_FOUND) {
            return Ok(None);
        }
        let time = message.headers.as_ref().and_then(|headers| headers.get("Nats-Time-Stamp"));
        let time = time.and_then(|time| calendar::microseconds(time.as_str()));
        match time {
            Some(time) => Ok(Some((message.payload.to_vec(), (time as u64).saturating_mul(1_000)))),
            None => Err(Trouble::Refused { code: 0, why: "a stored message has no time".to_owned() }),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// An error for people.
    pub(crate) fn error(&self, doing: &'static str, trouble: Trouble) -> QueueError {
        let server = self.server.to_string();
        match trouble {
            Trouble::Nobody | Trouble::Refused { code: NO_JETSTREAM | NO_JETSTREAM_FOR_ACCOUNT, .. } => {
                QueueError::NoJetStream { server }
            }
            Trouble::Away(why) => QueueError::Request { doing, server, why },
            Trouble::Refused { why, .. } => QueueError::Request { doing, server, why },
            Trouble::TooLarge { bytes, most } => QueueError::TooLarge { what: "a message".to_owned(), bytes, most },
        }
    }
}

/// An answer of JetStream, or its error.
fn answer(payload: &[u8]) -> Result<Value, Trouble> {
    let value: Value = serde_json::from_slice(payload)
        .map_err(|error| Trouble::Refused { code: 0, why: format!("its answer is no JSON: {error}") })?;
    let Some(error) = value.get("error") else { return Ok(value) };
    let code = error["err_code"].as_u64().or_else(|| error["code"].as_u64()).unwrap_or(0);
    let why = error["description"].as_str().unwrap_or("it refuses").to_owned();
    // A server that is starting or short of time says so with the code of HTTP.
    match error["code"].as_u64() {
        Some(503) if code != NO_JETSTREAM && code != NO_JETSTREAM_FOR_ACCOUNT => Err(Trouble::Away(why)),
        _ => Err(Trouble::Refused { code, why }),
    }
}

fn connect_error(server: &str, error: &async_nats::ConnectError) -> QueueError {
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let text = inner.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        source = inner.source();
    }
    let server = server.to_owned();
    let lower = why.to_lowercase();
    let is_tls = ["certificate", "tls", "handshake"].iter().any(|word| lower.contains(word));
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => QueueError::Refused { server },
        // Some servers only say so and close.
        _ if lower.contains("authorization") || lower.contains("authentication") => QueueError::Refused { server },
        ConnectErrorKind::Tls => QueueError::Tls { server, why, help: TLS_HELP },
        _ if is_tls => QueueError::Tls { server, why, help: TLS_HELP },
        _ => QueueError::Connect { server, why },
    }
}

const TLS_HELP: &str = "give the authority's certificate by `--ca FILE`, and the host as its certificate names it; if the \
                        server asks for a client's certificate, give it by `--certificate FILE` and `--key FILE`";

//! The history of a run: its events, in files that outlive it.
//!
//! Whatever thread logs an event puts it into a queue. A thread of its own writes it, so that no other waits for a
//! file. It also follows the conditions that make the network degraded.

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bellows_events::{Crashed, Draft, EventInfo, Level, NAME_FIELD, Part, TARGET, Writer};
use bellows_inspect::events::{CONDITIONS, Condition};
use bellows_observe::RuntimeDir;
use bellows_sys::clock;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The maximum number of events that wait to be written; further ones are counted.
const MAX_QUEUED: usize = 1024;

/// How long the end of a run waits for its events to be written.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the thread is to do.
enum Order {
    Write(Draft),
    /// Apps were started anew by a reload that began at this time.
    Forget(Vec<String>, u64),
    /// The run is over.
    End,
}

/// The thread that writes.
struct Keeper {
    orders: SyncSender<Order>,
    thread: JoinHandle<()>,
}

static KEEPER: Mutex<Option<Keeper>> = Mutex::new(None);

/// Events that found the queue full since the last one that was written.
static LOST: AtomicU64 = AtomicU64::new(0);

fn keeper() -> MutexGuard<'static, Option<Keeper>> {
    KEEPER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to keep the events of a run. If the last run of the name did not end, that is the first of them.
pub fn begin(runtime_dir: &RuntimeDir) {
    match open(runtime_dir) {
        Ok((mut files, crashed)) => {
            let (orders, queue) = sync_channel(MAX_QUEUED);
            let work = move || files.work(&queue);
            match thread::Builder::new().name("events".to_owned()).spawn(work) {
                Ok(thread) => *keeper() = Some(Keeper { orders, thread }),
                Err(error) => tracing::warn!("no thread that keeps the events: {error}"),
            }
            if let Some((pid, app)) = crashed {
                let message = format!("the last run of this name, the process {pid}, has ended without ending its run");
                Crashed { last_app: app.as_deref(), last_pid: pid.into() }.log(message);
            }
        }
        Err(error) => tracing::warn!("events are not kept, so `bellows events` will not have them: {error}"),
    }
}

/// The process of a run that did not end, and the last app of its events.
type CrashedRun = (u32, Option<String>);

/// Opens the files of a run.
fn open(runtime_dir: &RuntimeDir) -> Result<(Files, Option<CrashedRun>), String> {
    let files = runtime_dir.event_files().map_err(|error| error.to_string())?;
    let (current, older) = (files.path(Part::Current), files.path(Part::Older));
    let place = current.display().to_string();
    let opened = Writer::open(current, older, clock::unix_ns());
    let (writer, last) = opened.map_err(|error| format!("{place}: {error}"))?;
    let crashed = last.filter(|last| !EventInfo::ends_run(&last.name));
    let crashed = crashed.map(|last| (last.pid, last.text("app").map(str::to_owned)));
    let path = |name: &str| runtime_dir.file(name);
    let (new, conditions) = (path(&format!("{CONDITIONS}.new")), path(CONDITIONS));
    Ok((Files { writer, place, is_failing: false, conditions: Vec::new(), paths: [new, conditions] }, crashed))
}

/// Ends the history: all events are written when this returns, unless that takes long.
pub fn end() {
    let Some(Keeper { orders, thread }) = keeper().take() else { return };
    let deadline = Instant::now() + PATIENCE;
    let mut order = Order::End;
    while let Err(TrySendError::Full(again)) = orders.try_send(order) {
        if deadline <= Instant::now() {
            return;
        }
        order = again;
        thread::sleep(Duration::from_millis(1));
    }
    while !thread.is_finished() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps an event that has its line in the log, or elsewhere, already.
pub fn note(info: &EventInfo, fields: &[(&str, Value)], message: &str) {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let (name, message) = (info.name.to_owned(), message.to_owned());
    keep(Draft { time_ns: clock::unix_ns(), level: info.level, name, message, fields });
}

/// Drops the conditions of apps that a reload has started anew. It began at this time, in nanoseconds since the Unix
/// epoch.
pub fn forget(apps: Vec<String>, began_ns: u64) {
    if !apps.is_empty()
        && let Some(keeper) = &*keeper()
    {
        let _ = keeper.orders.try_send(Order::Forget(apps, began_ns));
    }
}

fn keep(draft: Draft) {
    let lost = match &*keeper() {
        Some(keeper) => matches!(keeper.orders.try_send(Order::Write(draft)), Err(TrySendError::Full(_))),
        None => false,
    };
    if lost {
        LOST.fetch_add(1, Relaxed);
    }
}

/// The files of a run, on their thread.
struct Files {
    writer: Writer,
    /// The file that is written, for messages.
    place: String,
    /// Whether the last event could not be written.
    is_failing: bool,
    conditions: Vec<Condition>,
    /// The file of the conditions: the next, and the present one.
    paths: [PathBuf; 2],
}

impl Files {
    fn work(&mut self, queue: &Receiver<Order>) {
        for order in queue {
            let have_changed = match order {
                Order::Write(draft) => {
                    self.writer.skip(LOST.swap(0, Relaxed));
                    let have_changed = Condition::follow(&mut self.conditions, &draft);
                    let result = self.writer.write(draft).map(|_| ());
                    // A line without a name: it is not an event itself.
                    if let (Err(error), false) = (&result, self.is_failing) {
                        tracing::warn!("{}: events cannot be kept: {error}", self.place);
                    }
                    self.is_failing = result.is_err();
                    have_changed
                }
                Order::Forget(apps, began_ns) => Condition::forget(&mut self.conditions, &apps, began_ns),
                Order::End => return,
            };
            if have_changed {
                self.publish();
            }
        }
    }

    /// Writes the conditions: a reader finds the old ones or the new ones.
    fn publish(&self) {
        let [new, conditions] = &self.paths;
        let content = serde_json::to_vec(&self.conditions).unwrap_or_default();
        // The folder may be gone at the end.
        let _ = fs::write(new, content).and_then(|()| fs::rename(new, conditions));
    }
}

/// Takes the events out of the log.
pub struct Events;

impl<S: Subscriber> Layer<S> for Events {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target() != TARGET {
            return;
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { name: Some(name), message, others } = fields else { return };
        let level = match *metadata.level() {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warn,
            _ => Level::Info,
        };
        keep(Draft { time_ns: clock::unix_ns(), level, name, message, fields: others });
    }
}

/// The fields of a log record.
#[derive(Default)]
pub struct Fields {
    /// The name of an event.
    pub name: Option<String>,
    /// The message.
    pub message: String,
    /// The others.
    pub others: Map<String, Value>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == NAME_FIELD {
            self.name = Some(value.to_owned());
        } else {
            self.put(field, value.into());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.put(field, text.into());
        }
    }
}

//! The history of a run: its events, in files that outlive it.
//!
//! Whatever thread logs an event puts it into a queue. A thread of its own writes it, so that no other waits for a
//! file. It also follows the conditions that make the network degraded.

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bellows_events::{ContentFile, Crashed, Draft, EventInfo, Level, NAME_FIELD, TARGET, Writer};
use bellows_inspect::events::{CONDITIONS, Condition, crash_before};
use bellows_observe::RuntimeDir;
use bellows_sys::{atomic_file, clock};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The maximum number of events that wait to be written; further ones are counted.
const MAX_QUEUED: usize = 1024;

/// How long the end of a run, and its last event, wait for other events to be written.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the thread is to do.
enum Order {
    /// An event, and the number of those that were lost before it.
    Write(Draft, u64),
    /// A reload has changed apps.
    Forget(Reload),
    /// The run is over.
    End,
}

/// What a reload has changed.
pub struct Reload {
    /// When it began, in nanoseconds since the Unix epoch.
    pub began_ns: u64,
    /// The apps that were started anew.
    pub restarted: Vec<String>,
    /// The apps that are gone.
    pub removed: Vec<String>,
}

/// The thread that writes.
struct Keeper {
    orders: SyncSender<Order>,
    thread: JoinHandle<()>,
    /// Events that found the queue full since the last one that did not.
    lost: u64,
}

impl Keeper {
    /// Puts an event into the queue. If that is full, returns an event that can wait, and counts another one as lost.
    fn write(&mut self, draft: Draft, can_wait: bool) -> Option<Draft> {
        match self.orders.try_send(Order::Write(draft, self.lost)) {
            Err(TrySendError::Full(Order::Write(draft, _))) if can_wait => return Some(draft),
            Err(TrySendError::Full(_)) => self.lost += 1,
            _ => self.lost = 0,
        }
        None
    }
}

static KEEPER: Mutex<Option<Keeper>> = Mutex::new(None);

fn keeper() -> MutexGuard<'static, Option<Keeper>> {
    KEEPER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to keep the events of a run. If the last run of the name did not end, that is the first of them.
pub fn begin(runtime_dir: &RuntimeDir) {
    match open(runtime_dir) {
        Ok((mut files, crashed)) => {
            let (orders, queue) = sync_channel(MAX_QUEUED);
            if let Some(draft) = crashed {
                // Nothing keeps this line of the log yet: the event has the time of the crash, not that of the line.
                let last_app = draft.fields.get("last_app").and_then(Value::as_str);
                let last_pid = draft.fields.get("last_pid").and_then(Value::as_u64).unwrap_or(0);
                Crashed { last_app, last_pid }.log(&draft.message);
                let _ = orders.try_send(Order::Write(draft, 0));
            }
            let work = move || files.work(&queue);
            match thread::Builder::new().name("events".to_owned()).spawn(work) {
                Ok(thread) => *keeper() = Some(Keeper { orders, thread, lost: 0 }),
                Err(error) => tracing::warn!("no thread that keeps the events: {error}"),
            }
        }
        Err(error) => tracing::warn!("events are not kept, so `bellows events` will not have them: {error}"),
    }
}

/// Opens the files of a run. Returns the crash of the last run as well, if it did not end.
fn open(runtime_dir: &RuntimeDir) -> Result<(Files, Option<Draft>), String> {
    let files = runtime_dir.event_files().map_err(|error| error.to_string())?;
    let (current, older) = (files.path(ContentFile::Current), files.path(ContentFile::Older));
    let place = current.display().to_string();
    let opened = Writer::open(current, older, clock::unix_ns());
    let (writer, last) = opened.map_err(|error| format!("{place}: {error}"))?;
    let crashed = last.and_then(|last| crash_before(runtime_dir, &last));
    Ok((Files::new(writer, place, runtime_dir.file(CONDITIONS)), crashed))
}

/// Ends the history: all events are written when this returns, unless that takes long.
pub fn end() {
    let Some(Keeper { orders, thread, .. }) = keeper().take() else { return };
    let deadline = Instant::now() + PATIENCE;
    give(&orders, Order::End, deadline);
    while !thread.is_finished() && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Gives the thread an order as soon as the queue has room. The order is lost if that takes too long.
fn give(orders: &SyncSender<Order>, mut order: Order, deadline: Instant) {
    while let Err(TrySendError::Full(again)) = orders.try_send(order) {
        if deadline <= Instant::now() {
            return;
        }
        order = again;
        thread::sleep(Duration::from_millis(1));
    }
}

/// Keeps an event that has its line in the log, or elsewhere, already.
pub fn note(info: &EventInfo, fields: &[(&str, Value)], message: &str) {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    let (name, message) = (info.name.to_owned(), message.to_owned());
    keep(Draft { time_ns: clock::unix_ns(), level: info.level, name, message, fields });
}

/// Drops the conditions of apps that a reload has changed. Waits for room in the queue: what is not forgotten now stays
/// for ever.
pub fn forget(reload: Reload) {
    let orders = keeper().as_ref().map(|keeper| keeper.orders.clone());
    if let Some(orders) = orders {
        give(&orders, Order::Forget(reload), Instant::now() + PATIENCE);
    }
}

/// Puts an event into the queue. That which ends the run waits for room: without it the run counts as crashed.
fn keep(mut draft: Draft) {
    let deadline = EventInfo::ends_run(&draft.name).then(|| Instant::now() + PATIENCE);
    loop {
        let can_wait = deadline.is_some_and(|deadline| Instant::now() < deadline);
        let left = keeper().as_mut().and_then(|keeper| keeper.write(draft, can_wait));
        let Some(again) = left else { return };
        draft = again;
        thread::sleep(Duration::from_millis(1));
    }
}

/// The files of a run, on their thread.
struct Files {
    writer: Writer,
    /// The file that is written, for messages.
    place: String,
    /// Whether the last event could not be written.
    is_failing: bool,
    /// Whether the event that ends the run was written.
    is_over: bool,
    conditions: Vec<Condition>,
    /// The file of the conditions.
    path: PathBuf,
}

impl Files {
    fn new(writer: Writer, place: String, path: PathBuf) -> Files {
        Files { writer, place, is_failing: false, is_over: false, conditions: Vec::new(), path }
    }

    fn work(&mut self, queue: &Receiver<Order>) {
        for order in queue {
            let have_changed = match order {
                // Threads that end after the run have no history: the last event tells how the run has ended.
                Order::Write(..) if self.is_over => false,
                Order::Write(draft, lost) => {
                    self.writer.skip(lost);
                    self.is_over = EventInfo::ends_run(&draft.name);
                    let have_changed = Condition::follow(&mut self.conditions, &draft);
                    let result = self.writer.write(draft).map(|_| ());
                    // A line without a name: it is not an event itself.
                    if let (Err(error), false) = (&result, self.is_failing) {
                        tracing::warn!("{}: events cannot be kept: {error}", self.place);
                    }
                    self.is_failing = result.is_err();
                    have_changed
                }
                Order::Forget(Reload { began_ns, restarted, removed }) => {
                    let of_removed = Condition::forget(&mut self.conditions, &removed, u64::MAX);
                    Condition::forget(&mut self.conditions, &restarted, began_ns) | of_removed
                }
                Order::End => return,
            };
            if have_changed {
                self.publish();
            }
        }
    }

    /// Writes the conditions: a reader finds the old ones or the new ones.
    fn publish(&self) {
        let content = serde_json::to_vec(&self.conditions).unwrap_or_default();
        // The folder may be gone at the end.
        let _ = atomic_file::write(&self.path, &content, None);
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

#[cfg(test)]
mod tests {
    use bellows_events::{Content, Follower, Item, LinkDown, ReloadRefused, Started, Stopped};
    use bellows_testkit::scratch;

    use super::*;

    fn draft(info: &EventInfo, app: &str, time_ns: u64) -> Draft {
        let fields = [("app", app), ("port", "eth0")].map(|(name, value)| (name.to_owned(), value.into()));
        Draft {
            time_ns,
            level: info.level,
            name: info.name.to_owned(),
            message: String::new(),
            fields: fields.into_iter().collect(),
        }
    }

    /// What is in the files of a run after these orders: the names of events, and the sizes of holes. And the apps with
    /// a condition at the end.
    fn kept(orders: Vec<Order>) -> (Vec<String>, Vec<String>) {
        let folder = scratch();
        let path = |name: &str| folder.path().join(name);
        let (writer, _) = Writer::open(path("edge"), path("edge@1"), 1_000_000).unwrap();
        let mut files = Files::new(writer, "edge".to_owned(), path("conditions"));
        let (sender, queue) = sync_channel(orders.len());
        orders.into_iter().for_each(|order| sender.try_send(order).unwrap());
        drop(sender);
        files.work(&queue);
        let open =
            |part: ContentFile| std::fs::File::open(path(if part == ContentFile::Current { "edge" } else { "edge@1" }));
        let content = Content::read(open).unwrap();
        let text = |item: Item| match item {
            Item::Event(event) => event.name,
            Item::Missing(missing) => missing.events.to_string(),
        };
        let items = Follower::new().read(&content.older, &content.current, true);
        let conditions = files.conditions.into_iter().map(|condition| condition.app);
        (items.into_iter().map(text).collect(), conditions.collect())
    }

    #[test]
    fn nothing_follows_the_end_of_a_run_and_lost_events_are_counted_in_their_place() {
        let write = |info: EventInfo, lost: u64| Order::Write(draft(&info, "left", 1), lost);
        let (items, _) = kept(vec![
            write(Started::INFO, 0),
            write(LinkDown::INFO, 3),
            write(Stopped::INFO, 2),
            write(ReloadRefused::INFO, 1),
            Order::End,
        ]);
        assert_eq!(items, ["started", "3", "link-down", "2", "stopped"]);
        // That the last run has crashed is the first event of a run.
        let (items, _) = kept(vec![write(Crashed::INFO, 0), write(Started::INFO, 0)]);
        assert_eq!(items, ["crashed", "started"]);
    }

    #[test]
    fn a_reload_ends_the_conditions_of_the_apps_before() {
        let down = |app: &str, time_ns: u64| Order::Write(draft(&LinkDown::INFO, app, time_ns), 0);
        let names = |apps: &[&str]| apps.iter().map(|app| (*app).to_owned()).collect::<Vec<_>>();
        let (restarted, removed) = (names(&["old", "new"]), names(&["gone", "going"]));
        let reload = Reload { began_ns: 5, restarted, removed };
        let orders = [down("kept", 1), down("old", 2), down("new", 6), down("gone", 3), down("going", 7)];
        let (_, conditions) = kept(orders.into_iter().chain([Order::Forget(reload)]).collect());
        assert_eq!(conditions, ["kept", "new"]);
    }

    #[test]
    fn a_full_queue_counts_what_it_loses_except_what_can_wait() {
        let (orders, queue) = sync_channel(2);
        let mut keeper = Keeper { orders, thread: thread::spawn(|| ()), lost: 0 };
        let event = |info: &EventInfo| draft(info, "left", 1);
        assert!((0..5).all(|_| keeper.write(event(&LinkDown::INFO), false).is_none()));
        let stopped = keeper.write(event(&Stopped::INFO), true).unwrap();
        assert!(queue.try_iter().all(|order| matches!(order, Order::Write(_, 0))));
        assert_eq!(keeper.write(stopped, true), None);
        assert_eq!(keeper.write(event(&LinkDown::INFO), false), None);
        let lost = |order| match order {
            Order::Write(draft, lost) => (draft.name, lost),
            _ => unreachable!(),
        };
        let taken: Vec<(String, u64)> = queue.try_iter().map(lost).collect();
        assert_eq!(taken, [("stopped".to_owned(), 3), ("link-down".to_owned(), 0)]);
    }
}

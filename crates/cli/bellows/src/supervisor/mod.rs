//! The process around a running engine.
//!
//! The engine has a thread of its own. The main thread waits for events: signals (collected by a third thread),
//! requests (from the control socket's threads), the end of the run, and timeouts.

mod unconfirmed;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bellows_config::{EngineConfig, Loaded, Registry, Texts};
use bellows_engine::{Control, Engine, MAIN, Network, Outcome, ReloadError, Settings, StartError, TraceOrder};
use bellows_events::{
    Aborted, ChangeConfirmed, ChangeUndone, ConfirmationAwaited, ReloadRefused, SavedLeftOut, SlowBreath, StartFailed,
    Started, Stopping, UndoFailed, WorkerRecovered, WorkerStalled,
};
use bellows_inspect::baseline;
use bellows_inspect::control::{Confirmation, ReloadReport, Reply, Request};
use bellows_inspect::networks::{GAUGE_INTERVAL, Hang, MAX_CALL_NS};
use bellows_inspect::slow_log::SlowLog;
use bellows_observe::{Liveness, Reloaded, RuntimeDir};
use bellows_sys::clock;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::arguments::NetworkFile;
use crate::command_error::CommandError;
use crate::control::{self, ControlAnswer, Conversations};
use crate::history;
use crate::operating::VRF;
use crate::privileges::{self, LaterFiles};
use crate::progress::Progress;
use crate::report::{self, StoppedBy};
use crate::saved::{ESP, Saved, SavedKeys};
use crate::service::Service;
use crate::terminal::{ControllingTerminal, Hangup};
use crate::text::span;

use unconfirmed::{Former, Unconfirmed};

/// The interval at which watched files are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The interval at which the main thread looks around while the engine sleeps.
const RESTING_INTERVAL: Duration = Duration::from_secs(1);

/// A network that is ready to run.
pub struct Supervisor {
    /// The network's file.
    pub file: NetworkFile,
    /// The catalogue, for reloads.
    pub registry: Arc<Registry>,
    /// The network.
    pub loaded: Loaded,
    /// The settings of the run.
    pub settings: Settings,
    /// The run's folder.
    pub runtime_dir: Arc<RuntimeDir>,
    /// The time after which to stop it.
    pub duration: Option<Duration>,
    /// Whether to reload when a file changes.
    pub watch: bool,
}

/// The events of the main thread.
enum SupervisorEvent {
    Signal(i32),
    StopRequested,
    /// The engine has woken up while the main thread [rests](Run::rests).
    Awake,
    /// The run is over. There is no outcome if the engine itself panicked.
    Ended(Box<Option<Outcome>>),
}

/// Starts to queue SIGINT, SIGTERM and SIGHUP.
///
/// # Errors
/// Those of installing a signal handler.
pub fn catch_signals() -> Result<Signals, CommandError> {
    Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| CommandError::Failed(format!("signals cannot be handled: {error}")))
}

impl Supervisor {
    /// Runs the network to its end.
    ///
    /// # Errors
    /// When it cannot start.
    pub fn run(
        self,
        signals: Signals,
        terminal: ControllingTerminal,
    ) -> Result<(Outcome, Option<StoppedBy>), CommandError> {
        let (sender, events) = channel();
        let Loaded { network, engine, files, texts, capabilities, written_folders, .. } = self.loaded;
        // An app may hang when it starts, so the second signal must work by now.
        forward_signals(signals, sender.clone(), Arc::clone(&self.runtime_dir));
        let source = self.file.name();
        let started = start_engine(network, self.settings, Arc::clone(&self.runtime_dir), sender.clone());
        let control = started.inspect_err(|failure| {
            // The command prints it as well.
            history::note(&StartFailed::INFO, &[("source", source.as_str().into())], &told(failure));
        })?;
        // `--duration` counts the engine's time, without the start of the apps.
        let started = Instant::now();
        let running = format!("running `{source}` as `{}` (process {})", self.runtime_dir.name(), process::id());
        Started { source: &source }.log(&running);

        let read = files.clone();
        let (mut saved, errors) = Saved::read(&self.runtime_dir.name());
        enter_saved(&control, &mut saved, errors);
        let source = Mutex::new(NetworkSource { file: self.file, texts, watched: WatchedFiles::new(files) });
        let run = Arc::new(Run {
            runtime_dir: Arc::clone(&self.runtime_dir),
            control: control.clone(),
            registry: self.registry,
            settings: engine,
            source,
            running,
            service: Service::of_environment(),
            reloading: RwLock::new(()),
            unconfirmed: Mutex::new(None),
            saved: Mutex::new(saved),
            started,
            events: sender,
            rests: AtomicBool::new(false),
        });
        if let Err(error) = control::serve(&self.runtime_dir.control(), Arc::clone(&run) as Arc<dyn control::Engine>) {
            tracing::warn!(
                "no control socket, so neither `reload` nor `stop`: {}: {error}",
                self.runtime_dir.control().display()
            );
        }
        watch_breaths(&run);
        if !run.settings.keep_capabilities {
            privileges::give_up(capabilities, &LaterFiles { read: &read, written: &written_folders });
        }
        run.service.ready(&run.running);
        // A deadline too far away to represent counts as none.
        let deadline = self.duration.and_then(|duration| started.checked_add(duration));
        wait(&run, &events, deadline, self.watch, terminal)
    }
}

/// Enters what commands have saved, and logs what cannot be entered: that never keeps a network from starting.
fn enter_saved(control: &Control, saved: &mut Saved, mut errors: Vec<String>) {
    let (addressees, mut conversations) = (control.addressees(), Conversations::default());
    errors.extend(saved.enter(|domain, request| conversations.answer(&addressees, Some(domain), Some(VRF), request)));
    for error in errors {
        SavedLeftOut { file: &saved.file() }.log(error);
    }
    for error in saved.keys.restore(|app, request| conversations.answer(&addressees, Some(app), Some(ESP), request)) {
        SavedLeftOut { file: &saved.keys.file() }.log(error);
    }
}

/// The reason for a failure, as an event has it.
fn told(failure: &CommandError) -> String {
    let text = failure.to_string();
    text.strip_prefix("error: ").unwrap_or(&text).to_owned()
}

/// Starts the engine on a thread of its own.
fn start_engine(
    network: Network,
    settings: Settings,
    runtime_dir: Arc<RuntimeDir>,
    events: Sender<SupervisorEvent>,
) -> Result<Control, CommandError> {
    let (sender, started) = channel();
    let work = move || {
        if let Some(main) = network.workers.iter().find(|worker| worker.name == MAIN)
            && let Err(error) = main.settle()
        {
            let place = main.cpu.map_or("its memory node".to_owned(), |cpu| format!("processor {cpu}"));
            let _ = sender.send(Err(CommandError::Usage(format!("the engine cannot run on {place}: {error}"))));
            return;
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut engine = match Engine::new(network, settings, Some(runtime_dir)) {
                Ok(engine) => engine,
                Err(error) => {
                    let _ = sender.send(Err(cannot_start(&error)));
                    return None;
                }
            };
            let _ = sender.send(Ok(engine.control()));
            let end = engine.run();
            Some(engine.finish(end))
        }));
        let _ = events.send(SupervisorEvent::Ended(Box::new(outcome.ok().flatten())));
    };
    let thread = thread::Builder::new().name("engine".to_owned()).spawn(work);
    thread.map_err(|error| CommandError::Failed(format!("no thread for the engine: {error}")))?;
    started.recv().unwrap_or_else(|_| Err(CommandError::Failed("an app panicked when it was started".to_owned())))
}

fn cannot_start(error: &StartError) -> CommandError {
    match error {
        StartError::Wiring(_) | StartError::App(..) | StartError::Events(_) | StartError::Worker(_) => {
            CommandError::Usage(error.to_string())
        }
        StartError::Counters(_) | StartError::PerfMap(_) | StartError::Pool(_) => {
            CommandError::Failed(error.to_string())
        }
    }
}

/// Starts the thread that watches for slow breaths. The main thread does this, because a child of the engine's thread
/// would share its processor.
fn watch_breaths(run: &Arc<Run>) {
    let run = Arc::clone(run);
    let watch = move || {
        run.control.watch_breaths(|| {
            if run.rests.swap(false, SeqCst) {
                let _ = run.events.send(SupervisorEvent::Awake);
            }
        });
    };
    let thread = thread::Builder::new().name("watchdog".to_owned()).spawn(watch);
    if let Err(error) = thread {
        tracing::warn!("no thread that watches for slow breaths, so few of them will be found: {error}");
    }
}

/// Passes signals on to the main thread. A second request to stop ends the process at once.
fn forward_signals(mut signals: Signals, events: Sender<SupervisorEvent>, runtime_dir: Arc<RuntimeDir>) {
    thread::spawn(move || {
        let mut stopping = false;
        for signal in signals.forever() {
            if signal != SIGHUP && stopping {
                history::note(&Aborted::INFO, &[("by", "signal".into())], "ended at once by a second signal");
                history::end();
                let _ = runtime_dir.remove();
                process::exit(128 + signal);
            }
            stopping |= signal != SIGHUP;
            let _ = events.send(SupervisorEvent::Signal(signal));
        }
    });
}

/// The main thread's loop while the engine runs.
fn wait(
    run: &Arc<Run>,
    events: &Receiver<SupervisorEvent>,
    mut deadline: Option<Instant>,
    watch: bool,
    mut terminal: ControllingTerminal,
) -> Result<(Outcome, Option<StoppedBy>), CommandError> {
    let mut progress = Progress::on_terminal();
    let mut stopped_by = None;
    let mut stop = |why: StoppedBy| {
        if stopped_by.is_none() {
            Stopping { by: why.name() }.log("stopping");
            run.service.stopping("stopping: apps flush and finish");
            if run.unconfirmed().take().is_some() {
                let file = run.source().file.name();
                tracing::warn!(
                    "the run ends while a change awaits its confirmation; the next one reads its file as it is: `{file}`"
                );
            }
        }
        stopped_by.get_or_insert(why);
        run.control.stop();
    };
    let mut next_check = Instant::now() + CHECK_INTERVAL;
    let mut watchdog = HangLog::default();
    let mut slow = SlowLog::new(run.settings.breath_limit.std());
    let mut last_look = Instant::now();
    let mut next_look = last_look + GAUGE_INTERVAL;
    loop {
        let undone = run.unconfirmed().as_ref().and_then(Unconfirmed::until_undone).map(|time| Instant::now() + time);
        let next = [Some(next_look), deadline, watch.then_some(next_check), undone].into_iter().flatten().min();
        let wait = next.map_or(GAUGE_INTERVAL, |next| next.saturating_duration_since(Instant::now()));
        match events.recv_timeout(wait) {
            Ok(SupervisorEvent::Awake) => {
                next_look = last_look + GAUGE_INTERVAL;
                continue;
            }
            Ok(SupervisorEvent::Ended(outcome)) => {
                drop(progress);
                let panicked = || {
                    let message = "the engine panicked; this is a bug in bellows";
                    history::note(&Aborted::INFO, &[("by", "panic".into())], message);
                    CommandError::Failed(message.to_owned())
                };
                return Ok((outcome.ok_or_else(panicked)?, stopped_by));
            }
            Ok(SupervisorEvent::Signal(SIGHUP)) => match terminal.meaning() {
                Hangup::Request => reload_in_background(run, "signal"),
                Hangup::Terminal => stop(StoppedBy::Signal),
                Hangup::Ignored => tracing::info!("the terminal has gone away; the network runs on"),
            },
            Ok(SupervisorEvent::Signal(_)) => stop(StoppedBy::Signal),
            Ok(SupervisorEvent::StopRequested) => stop(StoppedBy::Request),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        if deadline.take_if(|deadline| *deadline <= Instant::now()).is_some() {
            stop(StoppedBy::Duration);
        }
        if watch && next_check <= Instant::now() {
            next_check = Instant::now() + CHECK_INTERVAL;
            if run.source().watched.have_changed() {
                reload_in_background(run, "watch");
            }
        }
        if run.unconfirmed().as_mut().is_some_and(Unconfirmed::is_due) {
            undo_in_background(run);
        }
        terminal.check();
        let now = clock::unix_ns();
        if let Some(status) = watchdog.check(run.control.liveness(), now) {
            run.service.status(status.as_deref().unwrap_or(&run.running));
        }
        // A hang is noticed late enough for workers that are only busy.
        run.service.breathe(|| watchdog.hang.is_none());
        let breaths = run.control.take_slow_breaths();
        let app = breaths.first.first().and_then(|slow| Some(slow.doing.as_ref()?.app.clone()));
        if let Some(line) = slow.take(breaths, Instant::now()) {
            SlowBreath { app: app.as_deref() }.log(line);
        }
        run.control.refresh();
        progress.update(&run.control);
        last_look = Instant::now();
        next_look = last_look + run.next_look();
    }
}

/// Logs when the engine hangs in an app, and when that is over: once each.
#[derive(Default)]
struct HangLog {
    hang: Option<Hang>,
    /// The last check, and the last time at which the check itself was late because the whole process had been stopped.
    checked: u64,
    resumed: u64,
}

impl HangLog {
    /// Returns what is new, if anything: a hang, in words, or nothing if one is over.
    fn check(&mut self, pulse: Liveness, now: u64) -> Option<Option<String>> {
        if now.saturating_sub(self.checked) > MAX_CALL_NS / 2 {
            self.resumed = now;
        }
        self.checked = now;
        let alive = pulse.alive.max(self.resumed);
        match (Hang::at(Liveness { alive, ..pulse }, now), &mut self.hang) {
            (Some(hang), before @ None) => {
                let (worker, app) = (hang.worker.as_deref(), hang.app.as_deref());
                let message = format!("hung: {hang}; `bellows stop --kill` ends it");
                WorkerStalled { worker, app, seconds: hang.seconds }.log(message);
                Some(Some(format!("stalled: {}", before.insert(hang))))
            }
            (Some(hang), Some(before)) => {
                before.seconds = hang.seconds;
                None
            }
            (None, before) => {
                let Hang { worker, app, seconds, .. } = before.take()?;
                let time = span(Duration::from_secs_f64(seconds));
                let message = match (&app, &worker) {
                    (Some(app), _) => format!("the app `{app}` has returned after about {time}"),
                    (_, Some(worker)) => format!("the worker `{worker}` breathes again after about {time}"),
                    _ => format!("the engine breathes again after about {time}"),
                };
                WorkerRecovered { worker: worker.as_deref(), app: app.as_deref(), seconds }.log(message);
                Some(None)
            }
        }
    }
}

/// Reloads on a separate thread, so that signals and timeouts are not delayed, and logs the result.
fn reload_in_background(run: &Arc<Run>, by: &'static str) {
    let reloading = Arc::clone(run);
    // The result is in the log.
    let work = move || drop(reloading.reload(&ReloadOrder::default(), by));
    if let Err(error) = thread::Builder::new().name("reload".to_owned()).spawn(work) {
        tracing::error!("no thread for a reload: {error}");
    }
}

/// Puts the former network back on a separate thread, because a change was not confirmed in time, and logs the result.
fn undo_in_background(run: &Arc<Run>) {
    let undoing = Arc::clone(run);
    let work = move || {
        if catch_unwind(AssertUnwindSafe(|| drop(undoing.undo(BY_TIME)))).is_err() {
            undoing.undo_has_failed(BY_TIME, "reading the former network has panicked; this is a bug");
        }
    };
    if let Err(error) = thread::Builder::new().name("undo".to_owned()).spawn(work) {
        run.undo_has_failed(BY_TIME, &format!("there is no thread for it: {error}"));
    }
}

/// Who undoes a change, as events have it.
const BY_TIME: &str = "time";
const BY_REQUEST: &str = "request";

/// What a reload is to do.
#[derive(Default)]
struct ReloadOrder {
    /// Another network's file.
    network: Option<PathBuf>,
    /// Apps to restart even if they have not changed.
    restart: Vec<String>,
    /// The time after which the change is undone unless it is confirmed.
    confirm: Option<Duration>,
}

/// The state shared by the main thread and the threads that serve clients.
struct Run {
    runtime_dir: Arc<RuntimeDir>,
    control: Control,
    registry: Arc<Registry>,
    /// The table `[engine]` that the process was started with.
    settings: EngineConfig,
    source: Mutex<NetworkSource>,
    /// What runs, in words.
    running: String,
    service: Service,
    /// Held by a reload, and by each request to an app or object.
    reloading: RwLock<()>,
    /// The change that is undone unless it is confirmed in time. Changed only with `reloading` held, except at the end.
    unconfirmed: Mutex<Option<Unconfirmed>>,
    /// What commands have saved.
    saved: Mutex<Saved>,
    started: Instant,
    events: Sender<SupervisorEvent>,
    /// Whether the main thread is to be notified when the engine wakes up.
    rests: AtomicBool,
}

/// The file of the running network.
struct NetworkSource {
    file: NetworkFile,
    /// The texts that it was read from.
    texts: Texts,
    watched: WatchedFiles,
}

impl Run {
    /// The time until the main thread looks around again: longer while the engine sleeps. An engine that wakes up is
    /// noticed by the watchdog, which then notifies the main thread.
    fn next_look(&self) -> Duration {
        self.rests.store(true, SeqCst);
        if !self.control.rests() {
            self.rests.store(false, SeqCst);
            return GAUGE_INTERVAL;
        }
        RESTING_INTERVAL.min(self.service.interval().unwrap_or(RESTING_INTERVAL))
    }

    fn source(&self) -> MutexGuard<'_, NetworkSource> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn saved(&self) -> MutexGuard<'_, Saved> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unconfirmed(&self) -> MutexGuard<'_, Option<Unconfirmed>> {
        self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins or ends the wait for a confirmation. No other reload may run.
    fn await_confirmation(&self, change: Option<Unconfirmed>) {
        let mut unconfirmed = self.unconfirmed();
        *unconfirmed = change;
        unconfirmed::publish(unconfirmed.as_ref(), &self.runtime_dir);
        // The main thread, which undoes it, may rest.
        let _ = self.events.send(SupervisorEvent::Awake);
    }

    /// Reads the network again, or another one, and swaps it in. Logs the result, and who asked for it.
    fn reload(&self, order: &ReloadOrder, by: &'static str) -> Result<ReloadReport, CommandError> {
        // One after another, also in the notifications of the service manager.
        let _alone = self.reloading.write().unwrap_or_else(PoisonError::into_inner);
        let began_ns = clock::unix_ns();
        self.service.reloading();
        let result = self.swap(order);
        let what = if by == BY_REQUEST { " on request" } else { "" };
        match &result {
            Ok(report) => self.log_reload(report, by, &format!("reloaded{what}"), began_ns),
            Err(failure) => {
                let why = told(failure);
                ReloadRefused { by }.log(format_args!("not reloaded{what}, the old network runs on\n{why}"));
                self.service.ready(&format!("{}; the last reload was refused", self.status()));
            }
        }
        result
    }

    /// What runs, in words.
    fn status(&self) -> String {
        let unconfirmed = if self.unconfirmed().is_some() { "; a change awaits its confirmation" } else { "" };
        format!("{}{unconfirmed}", self.running)
    }

    /// Logs a reload, and informs whoever follows the conditions of apps.
    fn log_reload(&self, report: &ReloadReport, by: &'static str, what: &str, began_ns: u64) {
        let Reloaded { kept, replaced, revived, added, removed, .. } = &report.reloaded;
        let restarted = [replaced.as_slice(), revived.as_slice()].concat();
        history::forget(history::Reload { began_ns, restarted, removed: removed.clone() });
        let [kept, added, removed] = [kept, added, removed].map(|apps| apps.len() as u64);
        let restarted = (replaced.len() + revived.len()) as u64;
        let text = report::reload(report);
        bellows_events::Reloaded { by, kept, restarted, added, removed }
            .log(format_args!("{what}\n{}", text.trim_end()));
        if let Some(confirm_ns) = report.confirm_ns {
            let time = Duration::from_nanos(confirm_ns);
            ConfirmationAwaited { source: &self.source().file.name(), seconds: time.as_secs_f64() }.log(format_args!(
                "the former network is put back in {} unless `bellows confirm {}` keeps this one",
                span(time),
                self.runtime_dir.name()
            ));
        }
        self.service.ready(&self.status());
    }

    /// Reads the network again, or another one, and swaps it in. No other reload may run.
    fn swap(&self, order: &ReloadOrder) -> Result<ReloadReport, CommandError> {
        let name = self.runtime_dir.name();
        let (mut file, texts) = {
            let source = self.source();
            (source.file.clone(), source.texts.clone())
        };
        let waiting = self.unconfirmed().as_ref().map(|waiting| waiting.former.clone());
        let former = match (order.confirm, waiting) {
            (None, Some(_)) => {
                return Err(CommandError::Usage(format!(
                    "a change awaits its confirmation: `bellows confirm {name}` keeps it, `bellows reload {name} --undo` \
                     puts the former network back, and `bellows reload {name} --confirm TIME` tries another change"
                )));
            }
            (None, None) => None,
            // The network that was confirmed last stays the one that is put back.
            (Some(time), Some(former)) => Some((former, time)),
            (Some(time), None) => {
                let complete = texts.complete().map_err(|why| {
                    CommandError::Usage(format!(
                        "the former network could not be put back: {why}; or reload without `--confirm`"
                    ))
                })?;
                Some((Former { file: file.clone(), read: texts, texts: complete }, time))
            }
        };
        if order.network.is_none() && file.is_stdin() {
            return Err(CommandError::Usage(format!(
                "the network came from standard input, which cannot be read again; name a file: \
                 `bellows reload {name} FILE`"
            )));
        }
        if let Some(other) = &order.network {
            file.path = respelled(other, &file.path);
        }
        let loaded = match file.load(&self.registry) {
            Ok(loaded) => loaded,
            Err(mistakes) => {
                // The user is going to fix one of these files.
                self.source().watched.add(mistakes.files());
                return Err(CommandError::Diagnosed(mistakes.render(false)));
            }
        };
        let unknown = |name: &&String| !loaded.network.apps.iter().any(|app| app.name == **name);
        if let Some(unknown) = order.restart.iter().find(unknown) {
            return Err(CommandError::Usage(format!("there is no app `{unknown}` to restart; nothing was reloaded")));
        }
        let (is_running, result) = self.swap_in(file, loaded, &order.restart);
        let mut confirm_ns = None;
        if let (true, Some((former, time))) = (is_running, former) {
            confirm_ns = u64::try_from(time.as_nanos()).ok();
            self.await_confirmation(Some(Unconfirmed::new(former, time)));
        }
        result.map(|report| ReloadReport { confirm_ns, ..report })
    }

    /// Swaps a network in. No other reload may run. Returns whether it runs, and its report: the new configuration also
    /// runs if its counters cannot be published.
    fn swap_in(
        &self,
        file: NetworkFile,
        mut loaded: Loaded,
        restart: &[String],
    ) -> (bool, Result<ReloadReport, CommandError>) {
        let reloaded = self.control.reload_restarting(loaded.network, restart);
        let is_running = matches!(reloaded, Ok(_) | Err(ReloadError::Unpublished(_)));
        if is_running {
            loaded.changes.drain(..).for_each(|change| change());
            *self.source() = NetworkSource { file, texts: loaded.texts, watched: WatchedFiles::new(loaded.files) };
        }
        let reloaded = match reloaded {
            Ok(reloaded) => reloaded,
            Err(error) => {
                let failure = match error {
                    ReloadError::Wiring(_)
                    | ReloadError::App(..)
                    | ReloadError::Worker(_)
                    | ReloadError::Overfull(_) => CommandError::Usage(error.to_string()),
                    ReloadError::Counters(_) | ReloadError::Unpublished(_) | ReloadError::Over => {
                        CommandError::Failed(error.to_string())
                    }
                };
                return (is_running, Err(failure));
            }
        };
        baseline::forget(&self.runtime_dir, &reloaded);
        let mut report = ReloadReport::from(reloaded);
        if !loaded.warnings.is_empty() {
            report.warnings.push(loaded.warnings.render(false).trim_end().to_owned());
        }
        if loaded.engine != self.settings {
            let warning = "the settings in [engine] are not those that the process was started with; \
                           they take effect when it is started again";
            report.warnings.push(warning.to_owned());
        }
        (true, Ok(report))
    }

    /// Keeps a change that awaits its confirmation.
    fn confirm(&self) -> Result<Reply, CommandError> {
        let _alone = self.reloading.write().unwrap_or_else(PoisonError::into_inner);
        let seconds_left =
            self.unconfirmed().as_ref().map(Unconfirmed::seconds_left).ok_or_else(|| self.no_change())?;
        self.await_confirmation(None);
        let network = self.source().file.name();
        ChangeConfirmed { by: BY_REQUEST }.log(format_args!("the change is confirmed: `{network}` runs on"));
        self.service.ready(&self.running);
        Ok(Reply::Confirmed(Confirmation { network, seconds_left }))
    }

    fn no_change(&self) -> CommandError {
        let name = self.runtime_dir.name();
        CommandError::Usage(format!(
            "no change of `{name}` awaits its confirmation; `bellows events {name}` tells whether one was confirmed or undone"
        ))
    }

    /// Puts the former network back. Logs the result.
    fn undo(&self, by: &'static str) -> Result<ReloadReport, CommandError> {
        let _alone = self.reloading.write().unwrap_or_else(PoisonError::into_inner);
        let Former { file, read, texts } = match &*self.unconfirmed() {
            // It was confirmed, or replaced by another change, at the last moment.
            Some(waiting) if by == BY_TIME && !waiting.is_over() => return Err(self.no_change()),
            Some(waiting) => waiting.former.clone(),
            None => return Err(self.no_change()),
        };
        let began_ns = clock::unix_ns();
        self.service.reloading();
        let changed = self.source().file.name();
        let (is_running, result) = match file.load_from(&self.registry, &texts) {
            Ok(loaded) => {
                let texts = loaded.texts.without_secrets(&read);
                self.swap_in(file, Loaded { texts, ..loaded }, &[])
            }
            Err(mistakes) => (false, Err(CommandError::Diagnosed(mistakes.render(false)))),
        };
        if is_running {
            self.await_confirmation(None);
            let why = if by == BY_TIME { "the change was not confirmed in time" } else { "the change is undone" };
            ChangeUndone { by }.log(format_args!(
                "{why}: the former network is back; `{changed}` may still have the change, and the next start reads a \
                 file as it is"
            ));
        }
        match &result {
            Ok(report) => self.log_reload(report, "undo", "the former network is back", began_ns),
            Err(failure) => self.undo_has_failed(by, &told(failure)),
        }
        result
    }

    /// Logs that the former network could not be put back. When the time is over, this is tried again.
    fn undo_has_failed(&self, by: &'static str, why: &str) {
        let mut unconfirmed = self.unconfirmed();
        let is_new = unconfirmed.as_mut().is_none_or(|waiting| by == BY_REQUEST || waiting.failed(why));
        unconfirmed::publish(unconfirmed.as_ref(), &self.runtime_dir);
        drop(unconfirmed);
        if is_new {
            UndoFailed { by }
                .log(format_args!("the former network could not be put back, the changed one runs on\n{why}"));
        }
        self.service.ready(&self.status());
    }
}

/// The path of `other`, with its folder written as in `current` if it is the same folder: apps are equal only if their
/// paths are relative to the same folder.
fn respelled(other: &Path, current: &Path) -> PathBuf {
    let folder = |path: &Path| std::fs::canonicalize(path.parent().filter(|path| !path.as_os_str().is_empty())?).ok();
    let here = || std::env::current_dir().ok();
    match (folder(other), folder(current).or_else(here), other.file_name()) {
        (Some(one), Some(same), Some(name)) if one == same => current.with_file_name(name),
        _ => other.to_owned(),
    }
}

/// The reply to a client.
fn reply(result: Result<Reply, CommandError>) -> Reply {
    result.unwrap_or_else(|failure| {
        let mistake = !matches!(failure, CommandError::Failed(_));
        let message = match failure {
            CommandError::Failed(message) => message,
            failure => failure.to_string(),
        };
        Reply::Refused { mistake, message }
    })
}

impl control::Engine for Run {
    fn answer(&self, request: Request, conversations: &mut Conversations) -> ControlAnswer {
        let reply = match request {
            Request::Status => Reply::Status {
                name: self.runtime_dir.name(),
                pid: process::id(),
                network: self.source().file.name(),
                uptime_seconds: self.started.elapsed().as_secs_f64(),
            },
            Request::Stop => match self.events.send(SupervisorEvent::StopRequested) {
                Ok(()) => Reply::Stopping,
                Err(_) => Reply::Refused { mistake: false, message: "the run is over".to_owned() },
            },
            Request::Breath => Reply::Breath(self.control.listing()),
            Request::Apps => Reply::Apps { apps: self.control.statuses(), objects: self.control.objects() },
            Request::Reload { network, restart, confirm_ns } => {
                match confirm_ns.map(unconfirmed::time).transpose().map_err(CommandError::Usage) {
                    Ok(confirm) => {
                        reply(self.reload(&ReloadOrder { network, restart, confirm }, BY_REQUEST).map(Reply::Reloaded))
                    }
                    Err(failure) => reply(Err(failure)),
                }
            }
            Request::Confirm => reply(self.confirm()),
            Request::Undo => reply(self.undo(BY_REQUEST).map(Reply::Reloaded)),
            Request::Trace { count, app, filter, seconds } => {
                return control::trace(&self.control, TraceOrder { count, app }, filter.as_deref(), seconds);
            }
            Request::Tap { link, snap } => return control::tap(&self.control, &link, snap),
            Request::Object { name, kind, request, save, .. } => {
                // A reload takes over what requests have done so far.
                let _unchanged = self.reloading.read().unwrap_or_else(PoisonError::into_inner);
                let addressees = self.control.addressees();
                let are_keys = save && SavedKeys::are_meant(kind.as_deref(), &request);
                let kind = if are_keys { Some(ESP) } else { kind.as_deref() };
                let mut ask = |request| conversations.answer(&addressees, name.as_deref(), kind, request);
                match save {
                    true if are_keys => self.saved().keys.change(name.as_deref(), &request, ask),
                    true => self.saved().change(request, ask),
                    false => ask(request),
                }
            }
            Request::Saved => self.saved().list(),
            Request::LookAhead { seconds } => return control::try_look_ahead(&self.control, seconds),
        };
        reply.into()
    }
}

/// The properties of a file that change with its content.
type Stamp = Option<(SystemTime, u64)>;

fn stamp(file: &Path) -> Stamp {
    let metadata = std::fs::metadata(file).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

/// Files, in the state in which they were read.
struct WatchedFiles {
    files: Vec<(PathBuf, Stamp)>,
    /// The state of the files at the last check, if it differs from the state in which they were read.
    changing: Option<Vec<Stamp>>,
}

impl WatchedFiles {
    fn new(files: Vec<PathBuf>) -> WatchedFiles {
        let stamped = |file: PathBuf| {
            let stamp = stamp(&file);
            (file, stamp)
        };
        WatchedFiles { files: files.into_iter().map(stamped).collect(), changing: None }
    }

    /// Adds files.
    fn add(&mut self, files: &[PathBuf]) {
        let new = files.iter().filter(|file| !self.files.iter().any(|(known, _)| known == *file));
        let more = WatchedFiles::new(new.cloned().collect()).files;
        self.files.extend(more);
    }

    /// Whether a file has changed since it was read and is now stable: a half-written file is not read. Each change is
    /// reported once.
    fn have_changed(&mut self) -> bool {
        let now: Vec<Stamp> = self.files.iter().map(|(file, _)| stamp(file)).collect();
        if now.iter().eq(self.files.iter().map(|(_, stamp)| stamp)) {
            self.changing = None;
            return false;
        }
        if self.changing.as_ref() != Some(&now) {
            self.changing = Some(now);
            return false;
        }
        self.changing = None;
        for ((_, stamp), now) in self.files.iter_mut().zip(now) {
            *stamp = now;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use bellows_observe::{Activity, CurrentCall};
    use bellows_testkit::scratch;

    use super::*;

    #[test]
    fn a_change_is_reported_once_and_when_it_is_over() {
        let folder = scratch();
        let path = folder.path().join("network.toml");
        std::fs::write(&path, "a").unwrap();
        let mut watched = WatchedFiles::new(vec![path.clone()]);
        assert!(!watched.have_changed());
        std::fs::write(&path, "ab").unwrap();
        assert!(!watched.have_changed(), "it may still be changing");
        std::fs::write(&path, "abc").unwrap();
        assert!(!watched.have_changed(), "it was");
        assert!(watched.have_changed());
        assert!(!watched.have_changed());
    }

    #[test]
    fn a_hang_is_noticed_until_it_is_over_and_not_when_the_process_itself_was_stopped() {
        const TENTH: u64 = 100_000_000;
        let doing = Some(CurrentCall { app: "slow".to_owned(), activity: Activity::Call });
        let mut watchdog = HangLog::default();
        let mut check = |alive: u64, now: u64| {
            let (doing, alive) = (doing.clone(), alive * TENTH);
            let _ = watchdog.check(Liveness { worker: None, doing, asleep: false, alive }, now * TENTH);
            watchdog.hang.as_ref().and_then(|hang| hang.app.clone())
        };
        let start = 1_000_000;
        assert!((start..start + 20).all(|now| check(start, now).is_none()));
        assert!((start + 20..start + 50).all(|now| check(start, now).as_deref() == Some("slow")));
        assert_eq!(check(start + 50, start + 51), None, "it has returned");
        assert_eq!(check(start + 50, start + 500), None, "nobody has checked for long");
        assert_eq!(check(start + 50, start + 501), None);
        assert_eq!(check(start + 501, start + 502), None);
    }
}

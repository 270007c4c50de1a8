//! The log: messages of the command itself, on standard error.

use std::backtrace::Backtrace;
use std::ffi::OsString;
use std::io::{IsTerminal, stderr};

use bellows_events::{AppFailed, NAME_FIELD, TARGET};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::{DefaultVisitor, Writer};
use tracing_subscriber::fmt::{self, FormatFields};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::Registry;

use crate::arguments::{LogFormat, LogLevel, Logging};
use crate::history::{Events, Fields};
use crate::journal::{self, Record};
use crate::terminal::{self, Records};

/// Starts logging. A second call in one process changes nothing.
pub fn init(logging: Logging) {
    let level = match logging.log_level {
        LogLevel::Off => LevelFilter::OFF,
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let is_journal = logging.log_format == LogFormat::Text && journal::is_stderr();
    if logging.log_format == LogFormat::Json {
        terminal::write_errors_as_json();
        log_panics();
    } else if is_journal {
        terminal::write_errors_to_journal();
    }
    // What the client library says of its connection, the command says itself.
    let library = if level > LevelFilter::INFO { level } else { LevelFilter::OFF };
    let targets = Targets::new().with_default(level).with_target("async_nats", library);
    // The layer would report its own errors with `eprintln!`, which panics if standard error is broken.
    let text = || {
        let layer = fmt::layer::<Registry>().with_writer(|| Records).with_ansi(false).with_target(false);
        layer.log_internal_errors(false)
    };
    let log: Box<dyn Layer<Registry> + Send + Sync> = match logging.log_format {
        LogFormat::Json => text().json().flatten_event(true).boxed(),
        LogFormat::Text if is_journal => Box::new(Journal),
        // A person at a terminal knows the time.
        LogFormat::Text if stderr().is_terminal() => {
            text().fmt_fields(MessageOnly { in_a_line: false }).without_time().boxed()
        }
        LogFormat::Text => text().fmt_fields(MessageOnly { in_a_line: true }).boxed(),
    };
    // Events are kept whatever the level of the log is.
    let events = Events.with_filter(Targets::new().with_target(TARGET, LevelFilter::INFO));
    let subscriber = tracing_subscriber::registry().with(log.with_filter(targets)).with(events);
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Writes the message of a record alone: the fields of an event are in its message as well.
struct MessageOnly {
    /// Whether a message of several lines becomes one, for readers that take each line for a record.
    in_a_line: bool,
}

impl<'w> FormatFields<'w> for MessageOnly {
    fn format_fields<R: tracing_subscriber::field::RecordFields>(
        &self,
        writer: Writer<'w>,
        fields: R,
    ) -> std::fmt::Result {
        use tracing_subscriber::field::VisitOutput;
        let mut visitor = MessageVisitor(DefaultVisitor::new(writer, true), self.in_a_line);
        fields.record(&mut visitor);
        visitor.0.finish()
    }
}

struct MessageVisitor<'w>(DefaultVisitor<'w>, bool);

impl Visit for MessageVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let text = format!("{value:?}");
            if self.1 && text.contains('\n') {
                self.0.record_debug(field, &format_args!("{}", in_a_line(&text)));
            } else {
                self.0.record_debug(field, value);
            }
        }
    }
}

/// The lines of a text behind one another. The first one is what the others are about.
fn in_a_line(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "|");
    let first = lines.next().unwrap_or_default().to_owned();
    let rest: Vec<&str> = lines.collect();
    if rest.is_empty() { first } else { format!("{first}: {}", rest.join("; ")) }
}

/// Sends records to the journal, with their fields.
struct Journal;

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut record = Record::new(journal::priority(*event.metadata().level()), &fields.message);
        if let Some(name) = &fields.name {
            record.field(NAME_FIELD, name);
        }
        for (name, value) in &fields.others {
            match value {
                Value::String(text) => record.field(name, text),
                other => record.field(name, &other.to_string()),
            }
        }
        terminal::log_to_journal(record);
    }
}

/// Whether arguments that could not be parsed request a JSON log.
pub fn asks_for_json(arguments: &[OsString]) -> bool {
    arguments.iter().any(|word| word == "--log-format=json")
        || arguments.windows(2).any(|words| words[0] == "--log-format" && words[1] == "json")
}

/// Logs panics as one line, with a backtrace if RUST_BACKTRACE requests one.
pub fn log_panics() {
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let place = panic.location().map(|location| format!("{}:{}", location.file(), location.line()));
        let message = panic.payload_as_str().unwrap_or("no message");
        let what = format!("{message}{}", place.as_ref().map(|place| format!(" at {place}")).unwrap_or_default());
        let place = place.as_deref();
        match (bellows_engine::app_at_work(), thread.name()) {
            (Some(app), _) => {
                AppFailed { app: Some(&app), place }.log(format_args!("app `{app}` panicked: {what}"));
            }
            (None, Some("engine")) => AppFailed { app: None, place }.log(format_args!("an app panicked: {what}")),
            (None, _) => tracing::error!("bellows panicked: {what}"),
        }
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            terminal::fail(&format!("stack backtrace:\n{}", Backtrace::force_capture()));
        }
    }));
}

//! The log: messages of the command itself, on standard error.

use std::backtrace::Backtrace;
use std::ffi::OsString;
use std::io::{IsTerminal, stderr};

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;

use crate::arguments::{LogFormat, LogLevel, Logging};
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
    if logging.log_format == LogFormat::Json {
        terminal::write_errors_as_json();
        log_panics();
    }
    // What the client library says of its connection, the command says itself.
    let library = if level > LevelFilter::INFO { level } else { LevelFilter::OFF };
    let targets = Targets::new().with_default(level).with_target("async_nats", library);
    let builder = fmt().with_max_level(level).with_writer(|| Records).with_ansi(false).with_target(false);
    // The subscriber would report its own errors with `eprintln!`, which panics if standard error is broken.
    let builder = builder.log_internal_errors(false);
    let _ = match logging.log_format {
        LogFormat::Json => {
            tracing::subscriber::set_global_default(builder.json().flatten_event(true).finish().with(targets))
        }
        // A person at a terminal knows the time.
        LogFormat::Text if stderr().is_terminal() => {
            tracing::subscriber::set_global_default(builder.without_time().finish().with(targets))
        }
        LogFormat::Text => tracing::subscriber::set_global_default(builder.finish().with(targets)),
    };
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
        let place = panic.location().map(|location| format!(" at {}:{}", location.file(), location.line()));
        let message = panic.payload_as_str().unwrap_or("no message");
        let who = match (bellows_engine::app_at_work(), thread.name()) {
            (Some(app), _) => format!("app `{app}` panicked"),
            (None, Some("engine")) => "an app panicked".to_owned(),
            (None, _) => "bellows panicked".to_owned(),
        };
        tracing::error!("{who}: {message}{}", place.unwrap_or_default());
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
            terminal::fail(&format!("stack backtrace:\n{}", Backtrace::force_capture()));
        }
    }));
}
